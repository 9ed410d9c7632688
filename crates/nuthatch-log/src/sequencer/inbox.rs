//! The way into a log: a byte-bounded queue and the handle that senders hold.
//!
//! A send is one short lock for a whole batch of events; the sequencer takes everything that waits
//! with one swap. It is woken only if it sleeps.

use crate::stats::{LogStats, StatsSnapshot, add};
use parking_lot::{Condvar, Mutex};
use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::thread::Thread;

/// Why events were not queued. They come back to the sender.
#[derive(Debug, thiserror::Error)]
pub enum SendError<E> {
    /// The queue holds as many bytes as it may. [`LogHandle::wait_for_room`] tells when to retry.
    #[error("the queue of the log is full")]
    Busy(E),
    /// The log was closed.
    #[error("the log is closed")]
    Closed(E),
    /// The sender's view of where things are is older than [`LogHandle::set_gate`] allows. It is to
    /// look again.
    #[error("what was sent may be meant for another log by now")]
    Stale(E),
}

/// Of privileged events the queue takes so many times its bound, whatever waits beside them: publishes must not keep a stream
/// on its way from its end.
const PRIVILEGED_FACTOR: usize = 2;

/// Whose room an event takes. An operation may be as large as a stream's state, or a restored stream's consumers:
/// publishers are to wait for each other, not to be refused because of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The queue's bound holds for all of these together.
    Ordinary,
    /// Taken until the queue holds [`PRIVILEGED_FACTOR`] times its bound of these.
    Privileged,
    /// Taken however much there is.
    Anyway,
}

/// What an event keeps in memory.
#[derive(Clone, Copy)]
pub(crate) struct Charge {
    bytes: usize,
    is_ordinary: bool,
}

/// What several events keep in memory.
#[derive(Clone, Copy, Default)]
pub(crate) struct Charges {
    ordinary: usize,
    privileged: usize,
}

impl AddAssign<Charge> for Charges {
    fn add_assign(&mut self, charge: Charge) {
        *(if charge.is_ordinary { &mut self.ordinary } else { &mut self.privileged }) +=
            charge.bytes;
    }
}

type RoomCallback = Box<dyn FnOnce() + Send>;

/// The queue between senders and the sequencer.
pub struct Inbox<E> {
    queue: Mutex<Queue<E>>,
    /// Bytes of ordinary events.
    ordinary: AtomicUsize,
    /// Bytes of all others.
    privileged: AtomicUsize,
    limit: usize,
    sleeping: AtomicBool,
    waiting: AtomicUsize,
    sequencer: Mutex<Option<Thread>>,
    end: Mutex<Option<Result<(), String>>>,
    ended: Condvar,
    pub(crate) stats: Arc<LogStats>,
}

struct Queue<E> {
    events: Vec<(E, Charge)>,
    room: Vec<RoomCallback>,
    closing: bool,
    /// Events of senders that have seen less than this are not taken.
    gate: u64,
}

impl<E> Inbox<E> {
    pub(crate) fn new(limit: usize, stats: Arc<LogStats>) -> Self {
        Self {
            queue: Mutex::new(Queue {
                events: Vec::new(),
                room: Vec::new(),
                closing: false,
                gate: 0,
            }),
            ordinary: AtomicUsize::new(0),
            privileged: AtomicUsize::new(0),
            limit,
            sleeping: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            sequencer: Mutex::new(None),
            end: Mutex::new(None),
            ended: Condvar::new(),
            stats,
        }
    }

    /// True if so much more fits.
    fn has_room(&self, weight: usize, way: Way) -> bool {
        let (bytes, limit) = match way {
            Way::Ordinary => (self.ordinary.load(Ordering::Relaxed), self.limit),
            Way::Privileged => (
                self.privileged.load(Ordering::Relaxed),
                self.limit.saturating_mul(PRIVILEGED_FACTOR),
            ),
            Way::Anyway => return true,
        };
        bytes == 0 || bytes + weight <= limit
    }

    fn push(&self, events: E, bytes: usize, way: Way, seen: u64) -> Result<(), SendError<E>> {
        let mut queue = self.queue.lock();
        if queue.closing {
            return Err(SendError::Closed(events));
        }
        if seen < queue.gate {
            return Err(SendError::Stale(events));
        }
        if !self.has_room(bytes, way) {
            drop(queue);
            add(&self.stats.queue_refusals, 1);
            return Err(SendError::Busy(events));
        }
        let is_ordinary = way == Way::Ordinary;
        let held = if is_ordinary { &self.ordinary } else { &self.privileged };
        held.fetch_add(bytes, Ordering::Relaxed);
        queue.events.push((events, Charge { bytes, is_ordinary }));
        drop(queue);
        self.wake();
        Ok(())
    }

    /// Wakes the sequencer if it sleeps. Whatever the caller did before is seen by it.
    pub(crate) fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.sleeping.load(Ordering::Relaxed)
            && self.sleeping.swap(false, Ordering::AcqRel)
            && let Some(thread) = &*self.sequencer.lock()
        {
            thread.unpark();
        }
    }

    /// Called by the sequencer before it looks a last time for work and then parks.
    pub(crate) fn about_to_sleep(&self) {
        self.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    pub(crate) fn awake(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }

    pub(crate) fn adopt(&self, thread: Thread) {
        *self.sequencer.lock() = Some(thread);
    }

    /// Exchanges the waiting events for an empty vector; returns whether closing was asked for.
    pub(crate) fn take(&self, into: &mut Vec<(E, Charge)>) -> bool {
        let mut queue = self.queue.lock();
        std::mem::swap(&mut queue.events, into);
        queue.closing
    }

    pub(crate) fn is_empty(&self) -> bool {
        let queue = self.queue.lock();
        queue.events.is_empty() && !(queue.closing && self.end.lock().is_none())
    }

    /// Gives queue bytes back, and calls those who wait once half of the queue is free.
    pub(crate) fn release(&self, spent: Charges) {
        self.privileged.fetch_sub(spent.privileged, Ordering::Relaxed);
        let left = self.ordinary.fetch_sub(spent.ordinary, Ordering::SeqCst) - spent.ordinary;
        // Either this sees who waits, or who comes to wait sees these bytes gone.
        if self.waiting.load(Ordering::SeqCst) > 0 && left <= self.limit / 2 {
            let mut queue = self.queue.lock();
            let callbacks = std::mem::take(&mut queue.room);
            self.waiting.store(0, Ordering::SeqCst);
            drop(queue);
            callbacks.into_iter().for_each(|callback| callback());
        }
    }

    pub(crate) fn queued_bytes(&self) -> usize {
        self.ordinary.load(Ordering::Relaxed) + self.privileged.load(Ordering::Relaxed)
    }

    /// Refuses all later events; those that wait already can still be taken.
    pub(crate) fn stop_taking(&self) {
        self.queue.lock().closing = true;
    }

    pub(crate) fn finish(&self, result: Result<(), String>) {
        let callbacks = {
            let mut queue = self.queue.lock();
            queue.closing = true;
            std::mem::take(&mut queue.room)
        };
        *self.end.lock() = Some(result);
        self.ended.notify_all();
        callbacks.into_iter().for_each(|callback| callback());
    }
}

/// A sender's end of a log; cheap to clone.
pub struct LogHandle<E>(pub(crate) Arc<Inbox<E>>);

impl<E> Clone for LogHandle<E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<E: Send + 'static> LogHandle<E> {
    /// Queues an event (or a whole batch, if that is what `E` is) for the machine. Never blocks.
    /// `weight_bytes` is what it keeps in memory; a single event is taken however large it is if
    /// the queue is otherwise empty.
    ///
    /// # Errors
    /// [`SendError`], with the event in it.
    pub fn send(&self, events: E, weight_bytes: usize) -> Result<(), SendError<E>> {
        self.0.push(events, weight_bytes, Way::Ordinary, u64::MAX)
    }

    /// [`LogHandle::send`] by a sender whose routes are of version `seen`.
    ///
    /// # Errors
    /// [`SendError`], with the event in it; [`SendError::Stale`] if that view is too old.
    pub fn send_seen(
        &self,
        events: E,
        weight_bytes: usize,
        seen: u64,
        privileged: bool,
    ) -> Result<(), SendError<E>> {
        let way = if privileged { Way::Privileged } else { Way::Ordinary };
        self.0.push(events, weight_bytes, way, seen)
    }

    /// Queues an event however full the queue is: for the few that are sent once and cannot be
    /// sent again.
    ///
    /// # Errors
    /// [`SendError::Closed`], with the event in it.
    pub fn send_anyway(&self, events: E, weight_bytes: usize) -> Result<(), SendError<E>> {
        self.0.push(events, weight_bytes, Way::Anyway, u64::MAX)
    }

    /// From now on events of senders that have seen less than `version` are not taken: something
    /// has moved from this log to another one. All of them that were taken stand in the queue
    /// before whatever is sent after this.
    pub fn set_gate(&self, version: u64) {
        let mut queue = self.0.queue.lock();
        queue.gate = queue.gate.max(version);
    }

    /// [`LogHandle::send`] for what must not wait behind publishes (acks, operations): taken until the
    /// queue holds `PRIVILEGED_FACTOR` times its bound of these. Neither takes room from the other.
    ///
    /// # Errors
    /// [`SendError`], with the event in it.
    pub fn send_privileged(&self, events: E, weight_bytes: usize) -> Result<(), SendError<E>> {
        self.send_seen(events, weight_bytes, u64::MAX, true)
    }

    /// Calls `callback` once the queue has room again: at once if it has, otherwise from the
    /// sequencer's thread, so it must be quick (wake a task).
    pub fn wait_for_room(&self, callback: impl FnOnce() + Send + 'static) {
        let mut queue = self.0.queue.lock();
        self.0.waiting.fetch_add(1, Ordering::SeqCst);
        if queue.closing || self.0.ordinary.load(Ordering::SeqCst) <= self.0.limit / 2 {
            self.0.waiting.fetch_sub(1, Ordering::SeqCst);
            drop(queue);
            return callback();
        }
        queue.room.push(Box::new(callback));
    }

    /// Counters and gauges as of now.
    #[must_use]
    pub fn stats(&self) -> StatsSnapshot {
        let bytes = self.0.queued_bytes() as u64;
        StatsSnapshot { queue_bytes: bytes, ..self.0.stats.snapshot() }
    }

    /// Closes the log cleanly and waits: everything queued is handled and made durable, a
    /// checkpoint is written, the log is marked as closed. Blocks; call it outside async code.
    ///
    /// # Errors
    /// What kept the log from closing cleanly. Nothing that was acknowledged is lost.
    pub fn close(&self) -> Result<(), CloseError> {
        self.begin_close();
        let mut end = self.0.end.lock();
        while end.is_none() {
            self.0.ended.wait(&mut end);
        }
        match &*end {
            Some(Err(reason)) => Err(CloseError { reason: reason.clone() }),
            _ => Ok(()),
        }
    }

    /// Starts closing without waiting for the end.
    pub fn begin_close(&self) {
        self.0.queue.lock().closing = true;
        self.0.wake();
    }
}

/// A log did not close cleanly; it recovers at the next start.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the log did not close cleanly: {reason}")]
pub struct CloseError {
    /// The reason, in words.
    pub reason: String,
}
