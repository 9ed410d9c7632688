//! What is read of a node's journal beside its steps.

use super::Host;
use super::core::Payload;
use crate::journal::RecordOnDisk;
use bytes::Bytes;
use nuthatch_quorum::node::Event;
use nuthatch_quorum::types::Lsn;

impl Host {
    /// Payloads of committed entries behind `after`, in their order, up to about 8 MiB; empty for entries that
    /// have none. Nothing if there are no more, or the next cannot be read and waits to be healed. Nobody waits while
    /// the disk is read.
    #[must_use]
    pub fn committed(&self, after: Lsn) -> Vec<(Lsn, Bytes)> {
        if self.has_ended() {
            return vec![];
        }
        let places = self.cores().committed(after);
        let read = |(lsn, payload): (Lsn, Payload)| Some((lsn, payload.read().ok()?));
        places.into_iter().map_while(read).collect()
    }

    /// Reads entries again, from the first to the last, and tells the cores which are damaged. `pause` is
    /// called after each with the bytes that were read.
    pub fn scrub(&self, from: Lsn, upto: Lsn, mut pause: impl FnMut(u64)) {
        let records: Vec<(Lsn, Option<RecordOnDisk>)> = {
            let mut core = self.cores();
            // What is read is what the cores know.
            self.catch_up(&mut core);
            let log = core.node.keeper().log();
            let entries = (from.0..=upto.0).filter_map(|lsn| log.get(Lsn(lsn)));
            entries.map(|entry| (entry.lsn, core.dir.record(entry))).collect()
        };
        let (mut damaged, mut strays) = (vec![], vec![]);
        for (lsn, record) in records {
            if self.has_ended() {
                return;
            }
            // Of one that is known to be damaged nothing is read.
            let Some(record) = record else { continue };
            if !record.is_good() {
                damaged.push(lsn);
                strays.extend(record.stray().filter(|lsn| !self.is_in_place(*lsn)));
            }
            pause(record.bytes());
        }
        if !damaged.is_empty() {
            self.handle(Event::Verified { from, upto, damaged, strays });
        }
    }

    /// True if an entry can be read where it should be. Nobody waits while the disk is read.
    fn is_in_place(&self, lsn: Lsn) -> bool {
        let record = self.cores().record(lsn);
        record.is_some_and(|record| record.is_good())
    }
}
