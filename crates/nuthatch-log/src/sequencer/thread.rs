//! Running a log on threads of its own.

use super::inbox::Inbox;
use super::io::{IoThread, Loader, Wake};
use super::worker::Worker;
use super::{LogCore, LogHandle};
use crate::machine::Machine;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// The longest sleep, so that a clock that jumped forward is noticed.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Why a log ended by a fault of this program; the panic itself is on stderr.
const PANICKED: &str = "the sequencer panicked";

impl<M: Machine> LogCore<M> {
    /// Moves the log to threads named after `name`: a sequencer, a writer and a reader. They end
    /// with [`LogHandle::close`].
    ///
    /// # Errors
    /// The operating system has no thread to give.
    pub fn spawn(mut self, name: &str) -> io::Result<LogHandle<M::Event>> {
        let handle = self.handle();
        let inbox = Arc::clone(&self.inbox);
        let wake: Wake = Arc::new(move || inbox.wake());
        self.worker = Worker::start(name, Arc::clone(&wake))?;
        let remote_readers = self.log.medium.remote_readers;
        let loader = Loader::start(name, remote_readers, &wake)?;
        loader.adopt(&self.log.loader);
        self.log.loader = loader;
        let ahead = self.in_flight.runs_ahead();
        self.thread = Some(IoThread::start(name, Arc::clone(&self.writer), ahead, wake)?);
        std::thread::Builder::new().name(name.to_owned()).spawn(move || self.serve())?;
        Ok(handle)
    }

    fn serve(mut self) {
        let _guard = PanicGuard(Arc::clone(&self.inbox));
        self.inbox.adopt(std::thread::current());
        loop {
            // What a panic leaves behind is not used again but to tell those who wait.
            let Ok(turn) = catch_unwind(AssertUnwindSafe(|| self.turn())) else {
                return self.end_after_panic();
            };
            if self.closing {
                let result = self.close().map_err(|error| error.reason);
                let inbox = Arc::clone(&self.inbox);
                // The lock on the directory goes with the log, before anybody hears of the end.
                drop(self);
                return inbox.finish(result);
            }
            if !turn.progress {
                self.sleep(turn.wake_at);
            }
        }
    }

    /// A fault in the program: nothing more is written, waiting senders are told, and later ones
    /// are refused.
    fn end_after_panic(mut self) {
        self.inbox.stop_taking();
        self.log.failed.get_or_insert_with(|| PANICKED.to_owned());
        self.thread = None;
        self.log.pending.clear();
        // The machine may be in any state. If it panics again, fewer are told.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            self.announce_failure();
            while self.take_events() {}
            self.machine.turn_end();
        }));
        let inbox = Arc::clone(&self.inbox);
        drop(self);
        inbox.finish(Err(PANICKED.to_owned()));
    }

    fn sleep(&self, wake_at: Option<crate::Timestamp>) {
        self.inbox.about_to_sleep();
        if self.nothing_waits() {
            let longest = wake_at.map_or(LONGEST_SLEEP, |at| self.log.clock.until(at));
            std::thread::park_timeout(longest.min(LONGEST_SLEEP));
        }
        self.inbox.awake();
    }

    fn nothing_waits(&self) -> bool {
        let backed_up = !self.batch.is_empty() || self.maintenance.wants_quiet();
        (backed_up || self.inbox.is_empty())
            && !self.log.loader.is_ready()
            && !self.worker.is_ready()
            && !self.thread.as_ref().is_some_and(IoThread::is_ready)
    }
}

/// Ends the waits of senders when the sequencer panics.
struct PanicGuard<E>(Arc<Inbox<E>>);

impl<E> Drop for PanicGuard<E> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            crate::stats::set(&self.0.stats.failed, 1);
            // Dropped, so that senders that wait for an answer hear that there is none.
            self.0.take(&mut Vec::new());
            self.0.finish(Err(PANICKED.to_owned()));
        }
    }
}
