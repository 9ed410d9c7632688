//! Checkpoints: which of them a restart could use, and what the newest one knows of the streams.

use super::chain_repair::removed;
use super::examine::Examiner;
use super::finding::{Finding, Kind};
use crate::catalog::{Catalog, SegmentState};
use crate::checkpoint::{self, Checkpoint, CheckpointFault, Covers};
use crate::frame::FRAME_HEADER_BYTES;
use crate::later::{Later, Unusable};
use crate::segment::MAX_SEGMENT_BYTES;
use crate::types::Lsn;
use std::io;

/// More positions than an open segment can hold. The catalog knows every segment before a frame goes
/// into it, so that no more than these can be missing behind all that it tells of.
const LOST_POSITIONS_MAX: u64 = MAX_SEGMENT_BYTES / FRAME_HEADER_BYTES as u64;

impl Examiner<'_> {
    /// Looks at every checkpoint, the newest first; unusable ones go.
    pub(super) fn checkpoints(&mut self) -> io::Result<()> {
        let mut used = false;
        for name in checkpoint::names(&*self.disk)?.iter().rev() {
            let found = match checkpoint::read(&*self.disk, name, &self.keys) {
                Ok(read) => read,
                // An older one is not needed.
                Err(CheckpointFault::Unusable(Unusable::Later(Later::Key(_)))) if used => continue,
                Err(CheckpointFault::Unusable(Unusable::Later(Later::Key(key)))) => {
                    self.note_encrypted(name, key, "");
                    continue;
                }
                Err(CheckpointFault::Unusable(Unusable::Later(what))) => {
                    self.note(Finding::new(Kind::LaterVersion, name, what.to_string(), ""));
                    continue;
                }
                Err(why) => {
                    self.let_the_name_lead(name)?;
                    self.set_aside(Kind::Checkpoint, name, why.to_string());
                    continue;
                }
            };
            let Checkpoint { covers, .. } = found;
            self.let_it_lead(name, covers)?;
            if !checkpoint::fits(covers, &self.as_recovered()) {
                let what = "it does not belong to the log as it is".to_owned();
                self.set_aside(Kind::Checkpoint, name, what);
                continue;
            }
            let snapshot = found.snapshot();
            if self.decoder.is_later(snapshot) {
                let what = Later::Snapshot.to_string();
                self.note(Finding::new(Kind::LaterVersion, name, what, ""));
                continue;
            }
            match self.decoder.snapshot(snapshot) {
                Some(streams) if !used => {
                    self.inventory.checkpoint(covers.lsn, streams);
                    used = true;
                }
                Some(_) => {}
                None => {
                    let what = "its snapshot makes no sense".to_owned();
                    self.set_aside(Kind::Checkpoint, name, what);
                }
            }
        }
        Ok(())
    }

    /// The catalog as recovery has it when it looks at checkpoints: no segment is open any more.
    fn as_recovered(&self) -> Catalog {
        let mut catalog = self.catalog.clone();
        for entry in catalog.segments.iter_mut().filter(|e| e.state == SegmentState::Open) {
            entry.end = self.open_end;
        }
        catalog
    }

    /// A checkpoint of the newest epoch that covers positions behind the log's end proves that
    /// they were committed: they are entered as lost. It knows the sequences up to there; how far the
    /// log went on behind it nobody knows.
    fn let_it_lead(&mut self, name: &str, covers: Covers) -> io::Result<()> {
        let end = self.catalog.end().max(self.open_end);
        if !checkpoint::is_ahead(covers, &self.catalog, end) {
            return Ok(());
        }
        self.give_up_until(name, end, covers.lsn)
    }

    /// As a checkpoint that can be read, by the position in its name: which sequences were given out
    /// until then is not known. The name says so only if the log can have reached that position.
    fn let_the_name_lead(&mut self, name: &str) -> io::Result<()> {
        let end = self.catalog.end().max(self.open_end);
        let Some(covers) = checkpoint::name_is_ahead(&*self.base, name, end) else {
            return Ok(());
        };
        if covers.0 - end.0 <= LOST_POSITIONS_MAX {
            return self.give_up_until(name, end, covers);
        }
        let what = format!(
            "its name says position {covers}, which a log that ends with {end} cannot have reached: \
             what it covered is not known"
        );
        let action = "its name is not believed; sequences that may have been given out are skipped";
        self.inventory.lost_end();
        self.note(Finding::new(Kind::CheckpointAhead, name, what, action));
        Ok(())
    }

    /// Enters the positions behind the log's end, up to one that a checkpoint covers, as lost.
    fn give_up_until(&mut self, name: &str, end: Lsn, covers: Lsn) -> io::Result<()> {
        self.seal_open()?;
        let what = format!("it covers position {covers}, and the log ends with {end}");
        let action = "the positions between are given up; their sequences are not used again";
        let id = self.new_id();
        self.catalog.segments.push(removed(id, Lsn(end.0 + 1), covers));
        self.inventory.lost_end();
        self.note(Finding::new(Kind::CheckpointAhead, name, what, action));
        Ok(())
    }
}
