//! The moves that are under way, and how they are doing.

use nuthatch_server::jetstream_port::MoveReport;
use nuthatch_streams::AccountId;
use nuthatch_streams::stream::StreamLocation;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, sleep};

/// Copies that are being made at a time, each of which takes up to twice [`mover::STORE_BYTES_MAX`]
/// of memory; further moves wait for their turn.
pub const COPIES_AT_ONCE: usize = 8;
/// Moves that ended badly and are still told of.
const REMEMBERED_MAX: usize = 1024;
/// How long a log that leaves this node waits for its moves to end.
const GIVEN_UP_WITHIN: Duration = Duration::from_secs(1);
const GIVEN_UP_PAUSE: Duration = Duration::from_millis(5);
/// A stream by its account and name.
type Key = (AccountId, String);

/// Moves that are under way, and those that ended badly.
pub(super) struct Moves {
    known: Mutex<FxHashMap<Key, Arc<Progress>>>,
    /// How many are under way.
    pub(super) active: AtomicUsize,
    /// Room for copies.
    pub(super) room: Semaphore,
}

impl Default for Moves {
    fn default() -> Self {
        let room = Semaphore::new(COPIES_AT_ONCE);
        Self { known: Mutex::default(), active: AtomicUsize::new(0), room }
    }
}

impl Moves {
    /// One more is under way.
    pub(super) fn add(&self, key: Key, progress: Arc<Progress>) {
        let mut known = self.known.lock();
        if known.len() >= REMEMBERED_MAX {
            known.retain(|_, other| other.is_under_way());
        }
        known.insert(key, progress);
        self.active.fetch_add(1, Ordering::AcqRel);
    }

    /// How the move of a stream is doing, or how its last one has ended.
    pub(super) fn of(&self, account: AccountId, name: &str) -> Option<Arc<Progress>> {
        self.known.lock().get(&(account, name.to_owned())).cloned()
    }

    /// How the move of a stream is doing, if one is under way.
    pub(super) fn report_of(&self, account: AccountId, name: &str) -> Option<MoveReport> {
        if self.active.load(Ordering::Acquire) == 0 {
            return None;
        }
        let progress = self.of(account, name)?;
        progress.is_under_way().then(|| progress.report())
    }

    /// True if a move to this copy is under way.
    pub(super) fn is_going_to(&self, copy: &StreamLocation) -> bool {
        let known = self.known.lock();
        known.values().any(|progress| progress.is_under_way() && progress.copy == *copy)
    }

    /// A log leaves this node: the moves from it and to it are given up. Whether there are any still.
    pub(super) fn give_up(&self, log: &str) -> bool {
        let known = self.known.lock();
        let its = |progress: &&Arc<Progress>| progress.from == log || progress.to == log;
        let mut under_way = false;
        for progress in known.values().filter(|progress| progress.is_under_way()).filter(its) {
            progress.log_left.store(true, Ordering::Release);
            progress.cancelled.store(true, Ordering::Release);
            progress.wake.notify_one();
            under_way = true;
        }
        under_way
    }

    /// As [`Moves::give_up`], and waits until they have ended, as long as that is worth it: what one engine keeps in memory
    /// can be handed to the other only while both are here.
    pub(super) async fn given_up(&self, log: &str) {
        let late = Instant::now() + GIVEN_UP_WITHIN;
        while self.give_up(log) && Instant::now() < late {
            sleep(GIVEN_UP_PAUSE).await;
        }
    }

    /// A move has ended.
    pub(super) fn close(&self, progress: &Progress, error: Option<String>) {
        *progress.error.lock() = error;
        progress.ended.store(true, Ordering::Release);
        self.active.fetch_sub(1, Ordering::AcqRel);
    }

    /// It has ended well.
    pub(super) fn forget(&self, account: AccountId, name: &str) {
        self.known.lock().remove(&(account, name.to_owned()));
    }

    /// How many are under way: those that go well, and those that wait for another try.
    pub(super) fn under_way(&self) -> [u64; 2] {
        let known = self.known.lock();
        let under_way = known.values().filter(|progress| progress.is_under_way());
        let (failing, well): (Vec<_>, Vec<_>) =
            under_way.partition(|progress| progress.error.lock().is_some());
        [well, failing].map(|moves| moves.len() as u64)
    }

    /// The log that a stream has left and that has not durably forgotten it yet.
    pub(super) fn unforgotten(&self, account: AccountId, name: &str) -> Option<Arc<Progress>> {
        if self.active.load(Ordering::Acquire) == 0 {
            return None;
        }
        let known = self.known.lock();
        let progress = known.get(&(account, name.to_owned()))?;
        let waits = progress.is_under_way() && progress.switched.load(Ordering::Acquire);
        waits.then(|| progress.clone())
    }
}

/// How a move is doing.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) from: String,
    pub(super) to: String,
    /// The copy, as records call it.
    pub(super) copy: StreamLocation,
    pub(super) copied: AtomicU64,
    pub(super) last_seq: AtomicU64,
    pub(super) rate_bytes: u64,
    pub(super) cancelled: AtomicBool,
    /// It was given up because one of its logs has left this node.
    pub(super) log_left: AtomicBool,
    pub(super) wake: Notify,
    /// The new log has it; the old one has not durably forgotten it yet.
    pub(super) switched: AtomicBool,
    pub(super) ended: AtomicBool,
    pub(super) error: Mutex<Option<String>>,
}

impl Progress {
    /// A move that is about to begin, from one log to another.
    pub(super) fn new(
        (from, to): (&str, &str),
        copy: StreamLocation,
        rate_bytes: u64,
    ) -> Arc<Self> {
        Arc::new(Self {
            from: from.to_owned(),
            to: to.to_owned(),
            copy,
            copied: AtomicU64::new(0),
            last_seq: AtomicU64::new(0),
            rate_bytes,
            cancelled: AtomicBool::new(false),
            log_left: AtomicBool::new(false),
            switched: AtomicBool::new(false),
            wake: Notify::new(),
            ended: AtomicBool::new(false),
            error: Mutex::new(None),
        })
    }

    /// Its report.
    pub(super) fn report(&self) -> MoveReport {
        MoveReport {
            from: self.from.clone(),
            to: self.to.clone(),
            copied_seq: self.copied.load(Ordering::Relaxed),
            last_seq: self.last_seq.load(Ordering::Relaxed),
            error: self.error.lock().clone(),
        }
    }

    pub(super) fn is_under_way(&self) -> bool {
        !self.ended.load(Ordering::Acquire)
    }
}
