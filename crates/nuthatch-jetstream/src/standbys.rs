//! Standbys: what other nodes write to quorum logs is followed in memory where a log takes long to open, so that this node
//! takes it over at once whatever its size.
//!
//! Each log that this node keeps has a thread, which sleeps while nothing is applied. What follows a log is a machine as its
//! owner has it; all of them together stay within a bound of memory, above which one is dropped, which costs the time that
//! opening takes without it and nothing else.

use crate::durable_logs::{DurableLog, LogStandby, quorum_log};
use nuthatch_log::{Disk, OpenError, StandbyError};
use nuthatch_server::logs::{Followed, QuorumLog, standby_memory_bytes};
use nuthatch_server::options::Options;
use nuthatch_server::server::Server;
use parking_lot::Mutex;
use std::collections::BTreeMap;
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
    kept: Mutex<Option<Kept>>,
}

struct Kept {
    standby: LogStandby,
    /// With which its machine was made.
    options: Arc<Options>,
    /// The last entry that was applied to the files that it has read.
    applied: u64,
    /// Memory that it takes, about.
    bytes: u64,
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
        if !home.can_be_followed(&log) || standby_memory_bytes(&options) == 0 {
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
        Arc::ptr_eq(&kept.options, options).then_some(kept.standby)
    }

    /// Memory that all of them take, about.
    fn bytes(&self) -> u64 {
        let places = self.by_log.lock();
        places.values().filter_map(|place| Some(place.kept.lock().as_ref()?.bytes)).sum()
    }
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
            let Some(server) = self.standbys.server.upgrade() else { return };
            if self.log.owned().is_some() {
                *self.place.kept.lock() = None;
                self.next = Next::Entries(0);
            } else if let Err(why) = self.look(&server, applied.0) {
                *self.place.kept.lock() = None;
                self.next = Next::At(Instant::now() + RETRY * (1 << self.failures));
                self.failures = (self.failures + 1).min(RETRY_DOUBLINGS);
                server.log.debug(format_args!(
                    "Quorum log {}: its standby begins anew: {why}",
                    self.log.number()
                ));
            }
            self.log.set_followed(self.followed());
            drop(server);
            std::thread::sleep(REST);
        }
    }

    fn followed(&self) -> Option<Followed> {
        let kept = self.place.kept.lock();
        let kept = kept.as_ref()?;
        Some(Followed { position: kept.standby.last().0, bytes: kept.bytes })
    }

    fn look(&mut self, server: &Arc<Server>, applied: u64) -> Result<(), StandbyError> {
        let options = server.options();
        let is_kept = {
            let mut kept = self.place.kept.lock();
            // The files may have begun anew, and limits may have changed.
            kept.take_if(|kept| kept.applied > applied || !Arc::ptr_eq(&kept.options, &options));
            kept.is_some()
        };
        if is_kept {
            self.read_on()?;
            self.failures = 0;
        } else if self.next.is_due(applied) {
            self.begin(server, &options, applied)?;
        }
        self.stay_within(server, &options);
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
                (kept.applied, kept.bytes) = (applied, kept.standby.machine().memory_bytes());
                return Ok(());
            }
        }
    }

    fn begin(
        &mut self,
        server: &Arc<Server>,
        options: &Arc<Options>,
        applied: u64,
    ) -> Result<(), StandbyError> {
        let standbys = Arc::clone(&self.standbys);
        let _reading = standbys.reading.lock();
        let (began, (read_to, files)) = (Instant::now(), self.files()?);
        let Some(standby) = self.home.begin_standby(server, options, &files)? else {
            return Ok(());
        };
        let took = began.elapsed();
        let above = options.cluster.as_ref().map_or(Duration::MAX, |cluster| cluster.standby_above);
        if took < above {
            // To open it takes no longer.
            self.next = Next::Entries(applied.max(GROWN_ENTRIES) * 2);
            return Ok(());
        }
        self.next = Next::Entries(0);
        if self.log.owned().is_some() {
            return Ok(());
        }
        let bytes = standby.machine().memory_bytes();
        server.log.info(format_args!(
            "Quorum log {} is followed here, to be taken over faster: read to position {} in {} ms, about {} MiB",
            self.log.number(),
            standby.last().0,
            took.as_millis(),
            bytes >> 20
        ));
        let options = Arc::clone(options);
        *self.place.kept.lock() = Some(Kept { standby, options, applied: read_to, bytes });
        Ok(())
    }

    /// Drops this one if all of them take too much.
    fn stay_within(&mut self, server: &Server, options: &Options) {
        let (used, max) = (self.standbys.bytes(), standby_memory_bytes(options));
        if used <= max || self.place.kept.lock().take().is_none() {
            return;
        }
        self.next = Next::At(Instant::now() + RETRY_WITHOUT_MEMORY);
        server.log.warn(format_args!(
            "Quorum log {} is not followed here any more: standbys take about {} MiB, and standby_memory is {} MiB. A takeover of it \
             takes longer",
            self.log.number(),
            used >> 20,
            max >> 20
        ));
    }
}
