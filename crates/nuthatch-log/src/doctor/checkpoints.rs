//! Checkpoints: which of them a restart could use, and what the newest one knows of the streams.

use super::chain::removed;
use super::examine::Examiner;
use super::finding::{Finding, Kind};
use crate::catalog::SegmentState;
use crate::checkpoint::{self, Covers};
use crate::env::Disk;
use crate::types::Lsn;
use std::io;

impl Examiner<'_> {
    /// Looks at every checkpoint, the newest first; unusable ones go.
    pub(super) fn checkpoints(&mut self) -> io::Result<()> {
        let mut used = false;
        for name in checkpoint::names(&*self.disk)?.iter().rev() {
            let (covers, bytes) = match checkpoint::read(&*self.disk, name) {
                Ok(read) => read,
                Err(why) => {
                    self.set_aside(Kind::Checkpoint, name, why);
                    continue;
                }
            };
            self.let_it_lead(name, covers);
            if !checkpoint::fits(covers, &self.catalog) {
                let what = "it does not belong to the log as it is".to_owned();
                self.set_aside(Kind::Checkpoint, name, what);
                continue;
            }
            match self.medic.snapshot(&bytes[checkpoint::HEADER_BYTES..]) {
                Some(streams) if !used => {
                    let covers_all = covers.lsn >= self.catalog.end();
                    self.census.checkpoint(covers.lsn, covers_all, streams);
                    used = true;
                }
                Some(_) => {}
                None => {
                    let what = "what it says of the streams makes no sense".to_owned();
                    self.set_aside(Kind::Checkpoint, name, what);
                }
            }
        }
        Ok(())
    }

    /// A checkpoint of the newest generation that covers positions behind the log's end proves that
    /// they were committed: they are entered as lost, and the checkpoint knows their sequences.
    fn let_it_lead(&mut self, name: &str, covers: Covers) {
        let end = self.catalog.end();
        let newest = self.catalog.segments.iter().rfind(|entry| {
            matches!(entry.state, SegmentState::Open | SegmentState::Sealed) && !entry.compacted
        });
        let same = covers.log_id == self.catalog.log_id
            && newest.is_none_or(|entry| entry.epoch == covers.epoch)
            && !newest.is_some_and(|entry| entry.state == SegmentState::Open);
        if !same || covers.lsn <= end {
            return;
        }
        let what = format!("it covers position {}, and the log ends with {end}", covers.lsn);
        let action = "the positions between are given up; their sequences are not used again";
        let id = self.new_id();
        self.catalog.segments.push(removed(id, Lsn(end.0 + 1), covers.lsn));
        self.census.hole(0);
        self.note(Finding::new(Kind::CheckpointAhead, name, what, action));
    }
}
