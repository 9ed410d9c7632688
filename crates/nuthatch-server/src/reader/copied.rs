//! Publishes to streams whose parts are not all in the read buffer: their subject is another one
//! than the client wrote. They travel in a buffer of their own.

use super::publish::Handled;
use super::{ConnReader, Turn};
use crate::account_imports::{Inbound, to_jetstream};
use crate::egress::{DeliveryContext, Groups};
use crate::jetstream_port::{LogId, StreamRoute};
use crate::meaning::{Meaning, Place, meaning};
use crate::own_publishes::CopiedBatch;
use bytes::Bytes;
use nuthatch_protocol::wire::Publish;
use nuthatch_streams::ClientBatch;

/// A buffer that has reached this size is sent with what is in it.
const BUFFER_BYTES: usize = 256 * 1024;

/// Items to make room for at first.
const ITEMS_MAX: usize = 512;

/// Items for engines.
pub(super) type CopiedBatches = Vec<(LogId, CopiedBatch)>;

impl Turn<'_> {
    /// Publishes to a stream from a copy.
    pub(super) fn publish_copied(&mut self, publish: &Publish<'_>, route: StreamRoute) {
        if self.trace.is_some() {
            let account = self.reader.session.account.id;
            return self.publish_to_stream_traced(publish, account, route);
        }
        let version = self.reader.server.jetstream().version();
        // It may have been routed before or after a change of the streams: then it goes by itself.
        let goes_alone = version != self.reader.seen;
        if !self.batches.is_empty() || goes_alone {
            // What came before must be ahead of it.
            self.hand_over();
        }
        let hint = self.mux_hint(publish.reply.unwrap_or_default());
        let log = route.log;
        let at = match self.copied.iter().position(|(of, _)| *of == log) {
            Some(at) => at,
            None => {
                // Most of the read is likely to go the same way.
                let bytes = Vec::with_capacity(self.data.len().min(BUFFER_BYTES));
                let likely = self.data.len() / super::js_traffic::LIKELY_ITEM_BYTES;
                let items = Vec::with_capacity(likely.clamp(1, ITEMS_MAX));
                self.copied.push((log, CopiedBatch { bytes, items }));
                self.copied.len() - 1
            }
        };
        self.copied[at].1.push(publish, route, hint);
        if self.copied[at].1.bytes.len() >= BUFFER_BYTES {
            let full = self.copied.swap_remove(at);
            self.reader.send_copied(vec![full]);
        }
        if goes_alone {
            self.hand_over();
            self.reader.seen = version;
        }
    }

    /// `$JS.…` subjects that the client did not write itself.
    pub(super) fn reserved_elsewhere(&mut self, publish: &Publish<'_>) -> Handled {
        let account = self.reader.session.account.clone();
        let server = self.reader.server.clone();
        if !server.jetstream().enabled(account.id) {
            return Handled::No;
        }
        let place = Place::new(server.jetstream().domain(), &account.name);
        if let Some(Meaning::Bucket(subject)) = meaning(&place, publish.subject) {
            return self.publish_bucket(publish, subject);
        }
        self.hand_over();
        let inbound = Inbound {
            subject: publish.subject,
            routed: publish.subject,
            reply: publish.reply.unwrap_or_default(),
            headers: publish.headers(),
            body: publish.payload(),
        };
        let (egress, rng) = self.scratch.split();
        let from = Some(self.reader.conn.outlet());
        let groups = Groups::All;
        let mut way =
            DeliveryContext { from, egress, rng, hops: 0, by_service: false, groups, trace: None };
        match to_jetstream(&*server, &account, &inbound, &mut way) {
            true => Handled::ByServer,
            false => Handled::No,
        }
    }
}

impl ConnReader {
    /// Sends batches of copies.
    pub(super) fn send_copied(&mut self, batches: CopiedBatches) {
        for (log, CopiedBatch { bytes, items }) in batches {
            let (peer, buf) = (self.conn.peer.clone(), Bytes::from(bytes));
            self.submit(log, ClientBatch { peer, buf, items });
        }
    }
}
