//! The life of a node in its process: its threads and connections, and their end.
//!
//! Whoever starts a thread, waits in one, or opens a connection does it through [`Life`]. [`Life::end`] then tells all of
//! them, closes the connections, waits for the threads within [`END_MAX`], and says which did not end. Each thread holds
//! the lock of the node's directory: one that hangs keeps others from the directory until it has ended.

mod accept;
mod dial;

use nuthatch_catalog_group::LogNumber;
use nuthatch_log::env::Tenure;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// How long the end of a node waits for its threads. The longest of what they do without looking is a call to a catalog
/// in a bucket, and whatever the disk is asked for.
pub const END_MAX: Duration = Duration::from_secs(10);

/// Done once when the node ends. It must not wait for a disk or another node.
type AtEnd = Box<dyn FnOnce() + Send>;

/// Hears that a thread has panicked without which the node cannot go on.
type OnPanic = Arc<dyn Fn(&str) + Send + Sync>;

/// Threads of a node that have not ended in time.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{} threads of the node did not end within {END_MAX:?}, and keep its directory until they do: {}",
    threads.len(),
    threads.join(", ")
)]
pub struct Unended {
    /// Their names.
    pub threads: Vec<String>,
}

/// The threads and connections of a node. Clones are of the same node.
#[derive(Clone, Default)]
pub struct Life(Arc<Inner>);

#[derive(Default)]
struct Inner {
    is_ending: AtomicBool,
    state: Mutex<State>,
    /// The end has begun.
    ending: Condvar,
    /// A thread has ended.
    ended: Condvar,
}

#[derive(Default)]
struct State {
    threads: BTreeMap<u64, Running>,
    numbered: u64,
    /// Of those that are closed already nothing is left.
    streams: Vec<Weak<TcpStream>>,
    at_end: Vec<AtEnd>,
    on_panic: Option<OnPanic>,
    /// Nobody else works on the directory while somebody holds this.
    lock: Option<Arc<dyn Tenure>>,
}

struct Running {
    name: String,
    thread: JoinHandle<()>,
    is_done: bool,
}

/// Tells that a thread has ended, however that comes.
struct Done {
    life: Life,
    number: u64,
    lock: Option<Arc<dyn Tenure>>,
}

impl Drop for Done {
    fn drop(&mut self) {
        drop(self.lock.take());
        let mut state = self.life.0.state.lock();
        if let Some(running) = state.threads.get_mut(&self.number) {
            running.is_done = true;
        }
        self.life.0.ended.notify_all();
    }
}

impl Life {
    /// That of a node which has locked its directory.
    #[must_use]
    pub(crate) fn with_lock(lock: Box<dyn Tenure>) -> Self {
        let life = Self::default();
        life.0.state.lock().lock = Some(Arc::from(lock));
        life
    }

    /// The lock of the directory, for who works on it without a thread of the node's.
    pub(crate) fn lock(&self) -> Option<Arc<dyn Tenure>> {
        self.0.state.lock().lock.clone()
    }

    /// True from the beginning of the end.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.0.is_ending.load(Ordering::Acquire)
    }

    /// Waits so long, or until the end begins: true then.
    pub(crate) fn pause(&self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        let mut state = self.0.state.lock();
        while !self.is_ending() && !self.0.ending.wait_until(&mut state, deadline).timed_out() {}
        self.is_ending()
    }

    /// Has something done at the end; at once if it has begun.
    pub(crate) fn at_end(&self, work: impl FnOnce() + Send + 'static) {
        let mut state = self.0.state.lock();
        if !self.is_ending() {
            state.at_end.push(Box::new(work));
            return;
        }
        drop(state);
        work();
    }

    /// Says who hears that a thread has panicked which [`Life::spawn`] has started.
    pub(crate) fn on_panic(&self, told: impl Fn(&str) + Send + Sync + 'static) {
        self.0.state.lock().on_panic = Some(Arc::new(told));
    }

    /// A connection, which is shut down at the end.
    ///
    /// # Errors
    /// The node ends.
    pub(crate) fn track(&self, stream: TcpStream) -> io::Result<Arc<TcpStream>> {
        let mut state = self.0.state.lock();
        if self.is_ending() {
            return Err(ends());
        }
        let stream = Arc::new(stream);
        state.streams.retain(|one| one.strong_count() > 0);
        state.streams.push(Arc::downgrade(&stream));
        Ok(stream)
    }

    /// Starts a thread without which the node cannot go on.
    ///
    /// # Errors
    /// The operating system has none to give, or the node ends.
    pub(crate) fn spawn(&self, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let (life, role) = (self.clone(), name.to_owned());
        self.spawn_for_one(name, move || {
            if catch_unwind(AssertUnwindSafe(work)).is_err() {
                let told = life.0.state.lock().on_panic.clone();
                if let Some(told) = told {
                    told(&role);
                }
            }
        })
    }

    /// Starts one of a log. Its name says so; Linux shows 15 bytes of it.
    ///
    /// # Errors
    /// As [`Life::spawn`].
    pub(crate) fn spawn_of(
        &self,
        log: LogNumber,
        role: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        match log {
            LogNumber::FIRST => self.spawn(&format!("node-{role}"), work),
            LogNumber(other) => self.spawn(&format!("node-{role}-{other}"), work),
        }
    }

    /// Starts a thread for one connection, or one wait: what it does wrong ends nothing else.
    ///
    /// # Errors
    /// As [`Life::spawn`].
    pub(crate) fn spawn_for_one(
        &self,
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let mut state = self.0.state.lock();
        if self.is_ending() {
            return Err(ends());
        }
        for done in take_done(&mut state) {
            // It has nothing left to do.
            let _ = done.join();
        }
        let number = state.numbered;
        state.numbered += 1;
        let (life, lock) = (self.clone(), state.lock.clone());
        let body = move || {
            let _done = Done { life, number, lock };
            work();
        };
        let thread = Builder::new().name(name.to_owned()).spawn(body)?;
        let running = Running { name: name.to_owned(), thread, is_done: false };
        state.threads.insert(number, running);
        Ok(())
    }

    /// Ends everything: waits that go on are told, connections shut down, threads waited for. A second call waits, too.
    /// Nothing is handed over, and no log closed: that comes before it.
    ///
    /// # Errors
    /// [`Unended`]: not all threads have ended. They end nothing but themselves any more.
    pub fn end(&self) -> Result<(), Unended> {
        let at_end = {
            let mut state = self.0.state.lock();
            self.0.is_ending.store(true, Ordering::Release);
            self.0.ending.notify_all();
            std::mem::take(&mut state.at_end)
        };
        at_end.into_iter().for_each(|work| work());
        let deadline = Instant::now() + END_MAX;
        let mut state = self.0.state.lock();
        for stream in std::mem::take(&mut state.streams).iter().filter_map(Weak::upgrade) {
            // One that has ended already is as it should be.
            let _ = stream.shutdown(Shutdown::Both);
        }
        let runs = |state: &mut State| state.threads.values().any(|running| !running.is_done);
        while runs(&mut state) && !self.0.ended.wait_until(&mut state, deadline).timed_out() {}
        let done = take_done(&mut state);
        let left = state.threads.values().map(|running| running.name.clone());
        let threads: Vec<String> = left.collect();
        state.on_panic = None;
        state.lock = None;
        drop(state);
        for thread in done {
            // Its panic was told where it counts.
            let _ = thread.join();
        }
        if threads.is_empty() { Ok(()) } else { Err(Unended { threads }) }
    }
}

/// Takes the threads that have ended out of those that run.
fn take_done(state: &mut State) -> Vec<JoinHandle<()>> {
    let done = state.threads.extract_if(.., |_, running| running.is_done);
    done.map(|(_, running)| running.thread).collect()
}

/// What is not begun any more.
fn ends() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the node ends")
}

#[cfg(test)]
mod tests;
