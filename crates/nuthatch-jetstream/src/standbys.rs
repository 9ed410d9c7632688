//! Standbys: what other nodes write to quorum logs is followed in memory where a log takes long to open, so that this node
//! takes it over at once whatever its size.
//!
//! Each log that this node keeps has a thread, which sleeps while nothing is applied. What follows a log is a machine as its
//! owner has it; all of them together stay within a bound of memory, above which one is dropped, which costs the time that
//! opening takes without it and nothing else.

use crate::durable_logs::{DurableLog, quorum_log};
use crate::engine::{LogStandby, engine};
use nuthatch_log::{Disk, OpenError, Standby, StandbyError};
use nuthatch_server::logging::Logger;
use nuthatch_server::logs::{Followed, QuorumLog, standby_memory_bytes};
use nuthatch_server::options::Options;
use nuthatch_server::server::Server;
use nuthatch_server::sink::ServerSink;
use nuthatch_streams::Engine;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Between two looks at what was applied.
const REST: Duration = Duration::from_millis(100);

/// After a log could not be read, or has changed in a way that could not be followed; twice as long each time, up to
/// [`RETRY_DOUBLINGS`] times.
const RETRY: Duration = Duration::from_secs(2);

const RETRY_DOUBLINGS: u32 = 8;

/// After there was no memory for a standby.
const RETRY_WITHOUT_MEMORY: Duration = Duration::from_secs(600);

/// A log that was found small is looked at again when it has so many more entries, and twice as many.
const GROWN_ENTRIES: u64 = 1024;

/// The standbys of a node, by the numbers of their logs.
pub(super) struct Standbys {
    server: Weak<Server>,
    by_log: Mutex<BTreeMap<u8, Arc<Place>>>,
    /// Held by the one that reads a whole log.
    reading: Mutex<()>,
}

/// That of one log.
#[derive(Default)]
struct Place {
    /// Held while it reads on, and taken by who opens the log.
    kept: Mutex<Option<Kept>>,
    /// Memory that it takes, about.
    bytes: AtomicU64,
}

struct Kept {
    standby: LogStandby,
    /// With which its machine was made.
    options: Arc<Options>,
    /// The last entry that was applied to the files that it has read.
    applied: u64,
}

impl Place {
    fn clear(&self) {
        *self.kept.lock() = None;
        self.bytes.store(0, Ordering::Relaxed);
    }
}

/// When a log is looked at again that is not followed.
#[derive(Clone, Copy)]
enum Next {
    /// When it has so many entries.
    Entries(u64),
    At(Instant),
}

impl Next {
    fn is_due(self, applied: u64) -> bool {
        match self {
            Self::Entries(entries) => applied >= entries,
            Self::At(at) => Instant::now() >= at,
        }
    }
}

impl Standbys {
    /// For logs of this server.
    pub(super) fn new(server: &Arc<Server>) -> Arc<Self> {
        let (by_log, reading) = (Mutex::default(), Mutex::default());
        Arc::new(Self { server: Arc::downgrade(server), by_log, reading })
    }

    /// Follows a log from now on whenever another node owns it, where that is worth it.
    pub(super) fn follow(self: &Arc<Self>, log: Arc<QuorumLog>) {
        let Some(server) = self.server.upgrade() else { return };
        let (options, number) = (server.options(), log.number().0);
        let home = quorum_log(&options, &log);
        if !is_in_files(&home, &log) || standby_memory_bytes(&options) == 0 {
            return;
        }
        let place = Arc::new(Place::default());
        self.by_log.lock().insert(number, Arc::clone(&place));
        let standbys = Arc::clone(self);
        let follower = Follower { standbys, log, home, place, next: Next::Entries(0), failures: 0 };
        let thread = std::thread::Builder::new().name(format!("standby-{number}"));
        if let Err(error) = thread.spawn(move || follower.run()) {
            server.log.warn(format_args!("No thread for a standby of log {number}: {error}"));
        }
    }

    /// What has followed a log that this node is about to open with these options.
    pub(super) fn take(&self, number: u8, options: &Arc<Options>) -> Option<LogStandby> {
        let place = self.by_log.lock().get(&number).cloned()?;
        let kept = place.kept.lock().take()?;
        place.bytes.store(0, Ordering::Relaxed);
        Arc::ptr_eq(&kept.options, options).then_some(kept.standby)
    }

    /// Memory that all of them take, about.
    fn bytes(&self) -> u64 {
        let places = self.by_log.lock();
        places.values().map(|place| place.bytes.load(Ordering::Relaxed)).sum()
    }
}

/// True if all of a log is in the files of this node's keeper, as long as it is not in memory.
fn is_in_files(home: &DurableLog, log: &QuorumLog) -> bool {
    home.tier.is_none() && !log.is_in_bucket() && !log.is_in_memory()
}

/// Follows one log.
struct Follower {
    standbys: Arc<Standbys>,
    log: Arc<QuorumLog>,
    home: DurableLog,
    place: Arc<Place>,
    next: Next,
    /// How often it has failed since it has read anything behind what was there when it began.
    failures: u32,
}

impl Follower {
    fn run(mut self) {
        let mut seen = Default::default();
        while let Some(applied) = self.log.wait_applied(seen) {
            seen = applied;
            if self.log.owned().is_some() {
                // Who opens the log takes what there is, a moment after the node owns it.
                self.next = Next::Entries(0);
            } else if let Err(why) = self.look(applied.0) {
                self.place.clear();
                self.next = Next::At(Instant::now() + RETRY * (1 << self.failures));
                self.failures = (self.failures + 1).min(RETRY_DOUBLINGS);
                self.say(|log| {
                    log.debug(format_args!("{self}: its standby begins anew: {why}"));
                });
            }
            self.log.set_followed(self.followed());
            std::thread::sleep(REST);
        }
        self.place.clear();
    }

    fn say(&self, say: impl FnOnce(&Logger)) {
        if let Some(server) = self.standbys.server.upgrade() {
            say(&server.log);
        }
    }

    fn followed(&self) -> Option<Followed> {
        let position = self.place.kept.lock().as_ref()?.standby.last().0;
        Some(Followed { position, bytes: self.place.bytes.load(Ordering::Relaxed) })
    }

    fn look(&mut self, applied: u64) -> Result<(), StandbyError> {
        let Some(server) = self.standbys.server.upgrade() else { return Ok(()) };
        let options = server.options();
        let is_kept = {
            let mut kept = self.place.kept.lock();
            // The files may have begun anew, and limits may have changed.
            kept.take_if(|kept| kept.applied > applied || !Arc::ptr_eq(&kept.options, &options));
            kept.is_some()
        };
        if is_kept {
            drop(server);
            self.read_on()?;
            self.failures = 0;
        } else if self.next.is_due(applied) {
            // The server may end while the log is read.
            let engine = engine(&server, self.home.slot, false, &options);
            drop(server);
            self.begin(engine, &options, applied)?;
        }
        self.stay_within(&options);
        Ok(())
    }

    fn files(&self) -> Result<(u64, Arc<dyn Disk>), StandbyError> {
        let view = self
            .log
            .view()
            .map_err(|source| OpenError::Io { context: "the keeper's files".to_owned(), source })?;
        Ok((view.applied().0, Arc::new(view)))
    }

    /// Reads what was applied since. Who opens the log waits for one step at most.
    fn read_on(&self) -> Result<(), StandbyError> {
        let (applied, files) = self.files()?;
        loop {
            let mut kept = self.place.kept.lock();
            // Taken by who opens the log.
            let Some(kept) = kept.as_mut() else { return Ok(()) };
            if !kept.standby.follow(&files)? {
                kept.applied = applied;
                let bytes = kept.standby.machine().memory_bytes();
                self.place.bytes.store(bytes, Ordering::Relaxed);
                return Ok(());
            }
        }
    }

    fn begin(
        &mut self,
        engine: Engine<ServerSink>,
        options: &Arc<Options>,
        applied: u64,
    ) -> Result<(), StandbyError> {
        let standbys = Arc::clone(&self.standbys);
        let _reading = standbys.reading.lock();
        let (began, (read_to, files)) = (Instant::now(), self.files()?);
        let begun = Standby::begin(&self.home.keys, &files, engine)?;
        let Some(standby) = begun else { return Ok(()) };
        let took = began.elapsed();
        let above = options.cluster.as_ref().map_or(Duration::MAX, |cluster| cluster.standby_above);
        if took < above {
            // To open it takes no longer.
            self.next = Next::Entries(applied.max(GROWN_ENTRIES) * 2);
            return Ok(());
        }
        self.next = Next::Entries(0);
        let (bytes, last) = (standby.machine().memory_bytes(), standby.last());
        let mut kept = self.place.kept.lock();
        if self.log.owned().is_some() {
            return Ok(());
        }
        *kept = Some(Kept { standby, options: Arc::clone(options), applied: read_to });
        drop(kept);
        self.place.bytes.store(bytes, Ordering::Relaxed);
        let (ms, mib) = (took.as_millis(), bytes >> 20);
        self.say(|log| {
            log.info(format_args!(
                "{self} is followed here, to be taken over faster: read to position {last} in {ms} ms, about {mib} MiB"
            ));
        });
        Ok(())
    }

    /// Drops this one if all of them take too much.
    fn stay_within(&mut self, options: &Options) {
        let (used, max) = (self.standbys.bytes(), standby_memory_bytes(options));
        if used <= max || self.place.bytes.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.place.clear();
        self.next = Next::At(Instant::now() + RETRY_WITHOUT_MEMORY);
        let (used, max) = (used >> 20, max >> 20);
        self.say(|log| {
            log.warn(format_args!(
                "{self} is not followed here any more: standbys take about {used} MiB, and standby_memory is {max} MiB. A \
                 takeover of it takes longer"
            ));
        });
    }
}

impl std::fmt::Display for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Quorum log {}", self.log.number())
    }
}
