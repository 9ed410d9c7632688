//! Messages to other nodes, with the payloads of their entries.
//!
//! What is in memory goes out at once. Payloads that a keeper needs which is behind are read from the journal by a
//! thread of their own: nobody waits for the disk meanwhile, and a few messages are on their way so; what is more is
//! as good as lost, and sent again.

use super::Host;
use super::core::{Core, Payload};
use crate::packet::{BATCH_BYTES, PAYLOADS_MAX, Packet, entries, hash_of, shorten};
use nuthatch_quorum::message::{Envelope, Message};
use nuthatch_quorum::node::Event;
use nuthatch_quorum::types::Lsn;

/// A message that goes out when its payloads are read.
pub struct ColdPacket {
    envelope: Envelope,
    payloads: Vec<(Lsn, Payload)>,
}

impl Host {
    /// Sends a message with the payloads of its entries, or as many of them as fit.
    pub(super) fn send(&self, core: &mut Core, mut envelope: Envelope) {
        let limit = match &envelope.message {
            Message::Fetched { .. } => PAYLOADS_MAX,
            _ => BATCH_BYTES,
        };
        let (mut payloads, mut bytes, mut fit) = (vec![], 0, 0);
        for entry in entries(&envelope.message) {
            let Some((payload, len)) = core.place(entry) else {
                // The cores have it healed; until then nobody gets it from here.
                core.suspect = Some(entry.lsn);
                break;
            };
            if fit > 0 && bytes + len > limit {
                break;
            }
            bytes += len;
            fit += 1;
            if hash_of(entry).is_some() {
                payloads.push((entry.lsn, payload));
            }
        }
        let all = entries(&envelope.message).count();
        if fit == 0 && all > 0 {
            return;
        }
        if fit < all {
            shorten(&mut envelope.message, fit);
        }
        self.send_with(ColdPacket { envelope, payloads });
    }

    fn send_with(&self, packet: ColdPacket) {
        let here = |(_, payload): &(Lsn, Payload)| match payload {
            Payload::Here(bytes) => Some(bytes.clone()),
            Payload::OnDisk(_) => None,
        };
        match packet.payloads.iter().map(here).collect() {
            Some(payloads) => {
                self.helpers.outbound.send(Packet { envelope: packet.envelope, payloads });
            }
            None => drop(self.helpers.reads.offer(packet)),
        }
    }

    /// Reads the payloads of a message and sends it, up to one that cannot be read: the cores have that healed.
    pub fn send_read(&self, packet: ColdPacket) {
        let ColdPacket { mut envelope, payloads } = packet;
        let (mut read, mut damaged) = (vec![], None);
        for (lsn, payload) in payloads {
            match payload.read() {
                Ok(bytes) => read.push(bytes),
                Err(_) => {
                    damaged = Some(lsn);
                    break;
                }
            }
        }
        let mut fits = true;
        if let Some(lsn) = damaged {
            let before = entries(&envelope.message).take_while(|entry| entry.lsn != lsn).count();
            fits = before > 0;
            shorten(&mut envelope.message, before);
        }
        if fits {
            self.helpers.outbound.send(Packet { envelope, payloads: read });
        }
        if let Some(lsn) = damaged {
            let strays = self.cores().stray_at(lsn).into_iter().collect();
            let damaged = vec![lsn];
            self.handle(Event::Verified { from: lsn, upto: lsn, damaged, strays });
        }
    }
}
