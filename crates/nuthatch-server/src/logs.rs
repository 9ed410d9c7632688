//! The logs below the streams as operations see them: where they are, the buckets that some are in,
//! and the time they live by. Whoever opens a log enters it here; nothing is kept open.

mod clock;
mod location;
mod memory;

pub use self::clock::{Machine, ServerClock};
pub use self::location::LogLocation;
pub(crate) use self::memory::keeper_memory_bytes;
pub use self::memory::{memory_store_bytes, quorum_memory_bytes, standby_memory_bytes};
/// Name of the cluster's log that is in the memory of its nodes.
pub use nuthatch_cluster::MEMORY_LOG as QUORUM_MEMORY_LOG;
/// A log that the nodes of a cluster keep together.
pub use nuthatch_cluster::{BUSY, Followed, KeeperSight, Loads, LogLoad, LogNumber, QuorumLog};

use nuthatch_object::Bucket;
use nuthatch_streams::steady::StepEvent;
use parking_lot::{Mutex, MutexGuard};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// Name of the default log of a server, and of the first quorum log of a cluster.
pub const DEFAULT_LOG: &str = "default";

/// What the names of further quorum logs begin with.
const QUORUM_LOG: &str = "default-";

/// The number of the quorum log of this name that is on disks; `None`: it is none.
#[must_use]
pub fn quorum_log_number(name: &str) -> Option<u8> {
    if name == DEFAULT_LOG {
        return Some(0);
    }
    name.strip_prefix(QUORUM_LOG)?.parse().ok()
}

/// True if, in a cluster, the log of this name is on all nodes that keep logs.
#[must_use]
pub fn is_quorum_log(name: &str) -> bool {
    quorum_log_number(name).is_some() || name == QUORUM_MEMORY_LOG
}

/// A bucket by the name of the log that is in it.
pub type LogBucket = (String, Arc<Bucket>);

/// The logs of a server.
#[derive(Default)]
pub struct Logs {
    locations: Mutex<Vec<LogLocation>>,
    buckets: Mutex<Vec<LogBucket>>,
    clock: OnceLock<Arc<ServerClock>>,
    /// Those of quorum logs, as long as somebody lives by them.
    owners_clocks: Mutex<Vec<Weak<ServerClock>>>,
}

impl Logs {
    /// Locations of logs, the default one first.
    pub fn locations(&self) -> MutexGuard<'_, Vec<LogLocation>> {
        self.locations.lock()
    }

    /// Buckets that logs are kept in, in the order of [`Logs::locations`].
    pub fn buckets(&self) -> MutexGuard<'_, Vec<LogBucket>> {
        self.buckets.lock()
    }

    /// Enters a log.
    pub fn add(&self, location: LogLocation) {
        self.locations.lock().push(location);
    }

    /// Enters the bucket of a log.
    pub fn add_bucket(&self, log: &str, bucket: Arc<Bucket>) {
        self.buckets.lock().push((log.to_owned(), bucket));
    }

    /// Takes a log out that is closed.
    pub fn remove(&self, name: &str) {
        self.locations.lock().retain(|log| log.name != name);
        self.buckets.lock().retain(|(log, _)| log != name);
    }

    /// Puts logs that were opened side by side in order.
    pub fn sort_by<K: Ord>(&self, order: impl Fn(&str) -> K) {
        self.locations.lock().sort_by_key(|log| order(&log.name));
        self.buckets.lock().sort_by_key(|(log, _)| order(log));
    }

    /// The time of a quorum log from now on, which other nodes judge; `tell` hears what it makes of steps.
    pub fn owners_clock(&self, tell: Box<dyn Fn(StepEvent) + Send + Sync>) -> Arc<ServerClock> {
        let clock = Arc::new(clock::steady(tell));
        let mut clocks = self.owners_clocks.lock();
        clocks.retain(|known| known.strong_count() > 0);
        clocks.push(Arc::downgrade(&clock));
        clock
    }

    /// The time of all logs of this machine; `tell` of the first call hears what it makes of steps.
    pub fn clock(&self, tell: Box<dyn Fn(StepEvent) + Send + Sync>) -> Arc<ServerClock> {
        self.clock.get_or_init(|| Arc::new(clock::steady(tell))).clone()
    }

    /// The machine's clock is right: a step that is doubted is followed. Returns how far it had
    /// stepped; `None`: none is doubted.
    pub fn trust_clock(&self) -> Option<Duration> {
        let of_owners: Vec<_> =
            self.owners_clocks.lock().iter().filter_map(Weak::upgrade).collect();
        let clocks = self.clock.get().into_iter().chain(&of_owners);
        clocks.filter_map(|clock| clock.trust_wall()).max()
    }
}
