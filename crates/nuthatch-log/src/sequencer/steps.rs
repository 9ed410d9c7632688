//! Running a log without threads, where a simulation decides when the writer and the worker go on.

use super::LogCore;
use super::io::IoThread;
use super::worker::Worker;
use crate::machine::Machine;
use std::sync::Arc;

impl<M: Machine> LogCore<M> {
    /// From now on frames, checkpoints and compactions wait where a thread of the log would do them, until
    /// [`LogCore::write_one`] and [`LogCore::work_one`] are called, in any order with turns: all that
    /// [`LogCore::spawn`] runs beside each other, on one thread. Cold blocks are read in the next turn.
    pub fn run_by_hand(&mut self) {
        let ahead = self.in_flight.runs_ahead();
        self.thread = Some(IoThread::by_hand(Arc::clone(&self.writer), ahead));
        self.worker = Worker::by_hand();
    }

    /// True if [`LogCore::write_one`] has something to do.
    #[must_use]
    pub fn has_writing(&self) -> bool {
        self.thread.as_ref().is_some_and(IoThread::waits)
    }

    /// Does the oldest job of the writer, if one waits. A turn takes the outcome.
    pub fn write_one(&mut self) -> bool {
        self.thread.as_ref().is_some_and(IoThread::run_one)
    }

    /// True if [`LogCore::work_one`] has something to do.
    #[must_use]
    pub const fn has_work(&self) -> bool {
        self.worker.waits()
    }

    /// Does the checkpoint or the part of a compaction that waits, if one does. A turn takes the outcome.
    pub fn work_one(&mut self) -> bool {
        self.worker.run_one()
    }
}
