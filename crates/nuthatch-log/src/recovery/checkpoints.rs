//! The checkpoint that a start begins with: the newest one that can be used.

use super::{OpenError, Recovery, Todo, io_context};
use crate::bytes::u32_at;
use crate::checkpoint::{
    self, CHECKPOINT_VERSION, Checkpoint, CheckpointFault, HEADER_BYTES, SEALED_VERSION,
};
use crate::env::{again, read_exact_at};
use crate::keys::KeyId;
use crate::later::{Later, Unusable};
use crate::machine::Machine;
use crate::rules::CHECK_AHEAD;
use crate::types::Lsn;

/// Result of reading one checkpoint file.
enum Tried {
    /// The machine has it.
    Restored(Lsn),
    /// It is not usable, and was renamed so that it is not read again.
    Aside(String),
    /// It may be whole and could not be read: it stays as it is.
    Left(String),
}

impl<M: Machine> Recovery<M> {
    /// Restores the newest usable checkpoint into the machine: everything in it can be had from the
    /// log.
    ///
    /// # Errors
    /// One is of a later version, or proves that the log has lost its end.
    pub(super) fn restore_checkpoint(&mut self) -> Result<Option<Lsn>, OpenError> {
        let listed = again(|| checkpoint::names(&*self.disk));
        let names = listed.map_err(io_context("listing checkpoints"))?;
        let mut restored = None;
        for name in names.iter().rev() {
            if restored.is_some() {
                self.refuse_later(name)?;
                continue;
            }
            match self.try_checkpoint(name)? {
                Tried::Restored(lsn) => restored = Some(lsn),
                Tried::Aside(why) => {
                    self.options.report.say(&format!("{name} is not used: {why}; set aside"));
                    self.report.unusable += 1;
                    self.todo.push(Todo::Checkpoint { name: name.clone() });
                }
                Tried::Left(why) => {
                    self.options.report.say(&format!("{name} is not used: {why}; left as it is"));
                    self.report.unusable += 1;
                }
            }
        }
        Ok(restored)
    }

    /// Looks at checkpoints none of which is needed; gives the position of the newest one.
    ///
    /// # Errors
    /// One is of a later version.
    pub(super) fn look_at_checkpoints(&mut self) -> Result<Option<Lsn>, OpenError> {
        let names = again(|| checkpoint::names(&*self.disk));
        let names = names.map_err(io_context("listing checkpoints"))?;
        names.iter().try_for_each(|name| self.refuse_later(name))?;
        Ok(names.iter().rev().find_map(|name| checkpoint::named_lsn(name)))
    }

    /// A checkpoint that is not needed is looked at as far as its header only. One under a key that is not
    /// there stays as it is: a later one takes its place.
    fn refuse_later(&mut self, name: &str) -> Result<(), OpenError> {
        let head = self.disk.open(name).and_then(|file| read_exact_at(&*file, 0, HEADER_BYTES));
        let Ok(head) = head else { return Ok(()) };
        let key_id = KeyId(u32_at(&head, 36));
        if matches!(u32_at(&head, 8), CHECKPOINT_VERSION | SEALED_VERSION) {
            self.reseal_later(name, key_id);
            return Ok(());
        }
        match Some(checkpoint::read(&*self.disk, name, &self.keys)) {
            Some(Err(CheckpointFault::Unusable(Unusable::Later(what)))) => {
                Err(OpenError::Unknown { file: name.to_owned(), what })
            }
            _ => Ok(()),
        }
    }

    /// Notes that a checkpoint is to be written anew, if that can be done and changes anything.
    fn reseal_later(&mut self, name: &str, key_id: KeyId) {
        if key_id != self.keys.current() && self.keys.has(key_id) {
            self.todo.push(Todo::Reseal { name: name.to_owned() });
        }
    }

    fn try_checkpoint(&mut self, name: &str) -> Result<Tried, OpenError> {
        let file = || name.to_owned();
        let end = self.catalog.end();
        let found = match checkpoint::read(&*self.disk, name, &self.keys) {
            Ok(read) => read,
            Err(CheckpointFault::Unusable(Unusable::Later(what))) => {
                return Err(OpenError::Unknown { file: file(), what });
            }
            // Its name tells what it covers: whether the log has that is not to be guessed.
            Err(CheckpointFault::Io(source)) if checkpoint::named_lsn(name) > Some(end) => {
                return Err(OpenError::Io { context: file(), source });
            }
            Err(CheckpointFault::Unusable(why)) => {
                return match checkpoint::name_is_ahead(&*self.disk, name, end) {
                    Some(covers) if CHECK_AHEAD.holds() => {
                        Err(OpenError::Ahead { checkpoint: file(), covers, end })
                    }
                    _ => Ok(Tried::Aside(why.to_string())),
                };
            }
            Err(why @ CheckpointFault::Io(_)) => return Ok(Tried::Left(why.to_string())),
        };
        let Checkpoint { covers, key_id, .. } = found;
        if checkpoint::is_ahead(covers, &self.catalog, end) && CHECK_AHEAD.holds() {
            return Err(OpenError::Ahead { checkpoint: file(), covers: covers.lsn, end });
        }
        if !checkpoint::fits(covers, &self.catalog) {
            return Ok(Tried::Aside("it does not belong to the log as it is".to_owned()));
        }
        match self.machine.restore(found.snapshot()) {
            Ok(()) => {
                self.reseal_later(name, key_id);
                Ok(Tried::Restored(covers.lsn))
            }
            Err(why) if why.is_later => {
                self.options.report.say(&format!("{name}: {why}"));
                Err(OpenError::Unknown { file: file(), what: Later::Snapshot })
            }
            Err(why) => Ok(Tried::Aside(why.to_string())),
        }
    }
}
