//! Clients: operations on files, as an owner's log has them.

use super::{MILLI, Violation, World};
use crate::keeper::world::Happening;
use crate::rng::Rng;
use bytes::Bytes;
use nuthatch_cluster::coding::payload_hash;
use nuthatch_cluster::operation::{FileId, Operation, begin_payload};
use nuthatch_quorum::node::Event;
use nuthatch_quorum::owner::Publish;
use nuthatch_quorum::types::{Epoch, RequestId};

/// Names of files.
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Offsets of writes are below this.
const OFFSET_MAX: u64 = 6_000;

impl World {
    pub(super) fn clients_act(&mut self) -> Result<(), Violation> {
        let pause = self.schedule.rng.between(5 * MILLI, 60 * MILLI);
        self.schedule.after(pause, Happening::ClientsAct);
        if self.silent {
            return Ok(());
        }
        (0..self.logs).try_for_each(|log| self.publish_to(log))
    }

    fn publish_to(&mut self, log: usize) -> Result<(), Violation> {
        let Some(at) = self.owner(log) else { return Ok(()) };
        let machine = &mut self.machines[at];
        let Some(running) = machine.running.as_mut().filter(|r| !r.failed) else { return Ok(()) };
        let Some(owner) = running.node.owner() else { return Ok(()) };
        let (epoch, commit) = (owner.epoch(), owner.commit());
        // Names are those behind everything that the log has.
        machine.touched = machine.touched.max(running.commit);
        running.failed |= running.apply().is_err();
        if running.node.keeper().log().last() != commit || running.replica.applied() != commit {
            return Ok(());
        }
        let names = running.replica.names().map(|(name, file)| (name.clone(), file)).collect();
        let next = FileId(running.replica.next_file());
        for payload in self.payloads(epoch, names, next) {
            self.requests += 1;
            let (hash, len) = (payload_hash(&payload), payload.len() as u32);
            if let Some(running) = &mut self.machines[at].running {
                running.held.insert(hash, payload);
            }
            let request = RequestId(self.requests);
            self.event(at, Event::Publish(Publish { request, payload: hash, len }))?;
        }
        Ok(())
    }

    /// One change of names and content, and then up to three writes to files that are there, whatever is behind them.
    fn payloads(&mut self, epoch: Epoch, names: Vec<(String, FileId)>, next: FileId) -> Vec<Bytes> {
        let rng = &mut self.schedule.rng;
        let more = if rng.chance(600) { 0 } else { rng.between(1, 3) };
        let mut payloads = vec![];
        for number in 0..=more {
            let mut to = begin_payload(epoch, self.requests + number + 1);
            let operation = if number == 0 { rng.below(10) } else { 5 };
            let bytes = content(rng);
            let any = (!names.is_empty()).then(|| rng.pick(&names).clone());
            let fresh = Operation::Create { path: (*rng.pick(&NAMES)).to_owned(), file: next };
            let first = match (any, operation) {
                (Some((path, _)), 0) => Operation::Remove { path },
                (Some((from, _)), 1) => rename(from, rng),
                (Some((_, file)), 2) => Operation::SetLen { file, len: rng.below(OFFSET_MAX) },
                (Some((_, file)), 3..) => {
                    Operation::Write { file, at: rng.below(OFFSET_MAX), bytes: &bytes }
                }
                _ if number == 0 => fresh,
                _ => continue,
            };
            let creates = matches!(first, Operation::Create { .. });
            first.encode(&mut to);
            if creates {
                Operation::Write { file: next, at: 0, bytes: &bytes }.encode(&mut to);
            }
            payloads.push(Bytes::from(to.0));
        }
        payloads
    }
}

fn content(rng: &mut Rng) -> Vec<u8> {
    // Some records go on space that was only allocated, or take several blocks.
    let len = if rng.chance(800) { rng.between(1, 600) } else { rng.between(4_000, 14_000) };
    let byte = rng.below(255) as u8 + 1;
    vec![byte; len as usize]
}

fn rename(from: String, rng: &mut Rng) -> Operation<'static> {
    let to = (*rng.pick(&NAMES)).to_owned();
    Operation::Rename { from, to }
}
