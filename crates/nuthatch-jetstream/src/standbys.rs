//! Standbys: what other nodes write to quorum logs is followed in memory where a log takes long to open, so that this node
//! takes it over at once whatever its size.
//!
//! Each log that this node keeps has a thread, which sleeps while nothing is applied. What follows a log is a machine as its
//! owner has it; all of them together stay within a bound of memory, above which one is dropped, which costs the time that
//! opening takes without it and nothing else.

use crate::durable_logs::{DurableLog, quorum_log};
use crate::engine::{LogStandby, engine, engine_config};
use nuthatch_log::{Disk, OpenError, Standby, StandbyError};
use nuthatch_server::logging::Logger;
use nuthatch_server::logs::{Followed, QuorumLog, standby_memory_bytes};
use nuthatch_server::options::Options;
use nuthatch_server::server::Server;
use nuthatch_server::sink::ServerSink;
use nuthatch_streams::{Engine, EngineConfig};
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

/// A log that was found small is looked at again when it has so many entries, and twice as many, or after [`LOOK_AGAIN`].
const GROWN_ENTRIES: u64 = 2048;

const LOOK_AGAIN: Duration = Duration::from_secs(3600);

/// How often it is counted what one takes, which looks at all of its streams.
const COUNT_EVERY: Duration = Duration::from_secs(10);

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
    config: EngineConfig,
    /// The last entry that was applied to the files that it has read.
    applied: u64,
}

impl Place {
    /// Takes it out: who drops it does so without the lock.
    fn take(&self) -> Option<Kept> {
        let mut kept = self.kept.lock();
        self.bytes.store(0, Ordering::Relaxed);
        kept.take()
    }

    fn note_bytes(&self, standby: &LogStandby) {
        self.bytes.store(bytes_of(standby), Ordering::Relaxed);
    }
}

fn bytes_of(standby: &LogStandby) -> u64 {
    standby.machine().memory_bytes() + standby.index_bytes()
}

/// When a log is looked at again that is not followed.
#[derive(Clone, Copy)]
enum Next {
    /// As soon as another node owns it.
    Now,
    /// When it has so many entries, or then: what it takes to open does not follow from its entries alone.
    Grown(u64, Instant),
    At(Instant),
}

impl Next {
    fn is_due(self, applied: u64) -> bool {
        match self {
            Self::Now => true,
            Self::Grown(entries, at) => applied >= entries || Instant::now() >= at,
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
        let (counted, needs) = (Instant::now(), 0);
        let next = Next::Now;
        let follower = Follower { standbys, log, home, place, next, failures: 0, counted, needs };
        let thread = std::thread::Builder::new().name(format!("standby-{number}"));
        if let Err(error) = thread.spawn(move || follower.run()) {
            server.log.warn(format_args!("No thread for a standby of log {number}: {error}"));
        }
    }

    /// What has followed a log that this node is about to open with these options.
    pub(super) fn take(
        &self,
        number: u8,
        (server, options): (&Server, &Options),
    ) -> Option<LogStandby> {
        let place = self.by_log.lock().get(&number).cloned()?;
        let kept = place.take()?;
        (kept.config == config(server, options)).then_some(kept.standby)
    }

    /// Memory that all of them take, about.
    fn bytes(&self) -> u64 {
        let places = self.by_log.lock();
        places.values().map(|place| place.bytes.load(Ordering::Relaxed)).sum()
    }
}

/// The settings of a machine of these logs.
fn config(server: &Server, options: &Options) -> EngineConfig {
    engine_config(server, (false, options.jetstream.max_store_bytes), options)
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
    counted: Instant,
    /// What it took when there was no memory for it.
    needs: u64,
}

impl Follower {
    fn run(mut self) {
        let mut seen = Default::default();
        while let Some(applied) = self.log.wait_applied(seen) {
            seen = applied;
            if self.log.owned().is_some() {
                // Who opens the log takes what there is, a moment after the node owns it.
                self.next = Next::Now;
            } else if let Err(why) = self.look(applied.0) {
                self.next = Next::At(Instant::now() + RETRY * (1 << self.failures));
                self.failures = (self.failures + 1).min(RETRY_DOUBLINGS);
                self.say(|log| {
                    log.debug(format_args!("{self}: its standby begins anew: {why}"));
                });
            }
            self.log.set_followed(self.followed());
            std::thread::sleep(REST);
        }
        drop(self.place.take());
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
        let now = config(&server, &options);
        let (stale, is_kept) = {
            let mut kept = self.place.kept.lock();
            // The files may have begun anew, and limits may have changed.
            let stale = kept.take_if(|kept| kept.applied > applied || kept.config != now);
            (stale, kept.is_some())
        };
        drop(stale);
        if is_kept {
            self.read_on()?;
            self.failures = 0;
        } else if self.next.is_due(applied) && self.is_owned_elsewhere() && self.has_room(&options)
        {
            // The server may end while the log is read.
            let engine = engine(&server, self.home.slot, false, &options);
            drop(server);
            self.begin(engine, (&options, now), applied)?;
        }
        self.stay_within(&options);
        Ok(())
    }

    fn is_owned_elsewhere(&self) -> bool {
        self.log.sight().owner.is_some() && self.log.owned().is_none()
    }

    /// Reads what was applied since. Who opens the log waits for one step at most.
    fn read_on(&mut self) -> Result<(), StandbyError> {
        let view = self.log.view().map_err(in_files)?;
        let (applied, files): (u64, Arc<dyn Disk>) = (view.applied().0, Arc::new(view));
        loop {
            let mut place = self.place.kept.lock();
            // Taken by who opens the log.
            let Some(kept) = place.as_mut() else { return Ok(()) };
            match kept.standby.follow(&files) {
                Ok(true) => {}
                Ok(false) => {
                    kept.applied = applied;
                    if self.counted.elapsed() >= COUNT_EVERY {
                        self.place.note_bytes(&kept.standby);
                        self.counted = Instant::now();
                    }
                    return Ok(());
                }
                Err(why) => {
                    // What was read in part is nothing to open a log from.
                    let gone = place.take();
                    self.place.bytes.store(0, Ordering::Relaxed);
                    drop(place);
                    drop(gone);
                    return Err(why);
                }
            }
        }
    }

    fn begin(
        &mut self,
        engine: Engine<ServerSink>,
        (options, config): (&Options, EngineConfig),
        applied: u64,
    ) -> Result<(), StandbyError> {
        let standbys = Arc::clone(&self.standbys);
        let _reading = standbys.reading.lock();
        let view = self.log.view_of_other().map_err(in_files)?;
        let (began, read_to) = (Instant::now(), view.applied().0);
        let files: Arc<dyn Disk> = Arc::new(view);
        let begun = Standby::begin(&self.home.keys, &files, engine);
        if self.log.owned().is_some() {
            return Ok(());
        }
        let Some(standby) = begun? else { return Ok(()) };
        let took = began.elapsed();
        let above = options.cluster.as_ref().map_or(Duration::MAX, |cluster| cluster.standby_above);
        if took < above {
            // To open it takes no longer.
            let entries = applied.max(GROWN_ENTRIES / 2) * 2;
            self.next = Next::Grown(entries, Instant::now() + LOOK_AGAIN);
            return Ok(());
        }
        self.next = Next::Now;
        let (last, mib) = (standby.last(), bytes_of(&standby) >> 20);
        let kept = Kept { standby, config, applied: read_to };
        let left = {
            let mut place = self.place.kept.lock();
            match self.log.owned() {
                // It has been opened without this, or will be in a moment.
                Some(_) => Some(kept),
                None => {
                    self.place.note_bytes(&kept.standby);
                    *place = Some(kept);
                    None
                }
            }
        };
        if left.is_none() {
            let ms = took.as_millis();
            self.say(|log| {
                log.info(format_args!(
                    "{self} is followed here, to be taken over faster: read to position {last} in {ms} ms, about {mib} MiB"
                ));
            });
        }
        Ok(())
    }

    /// True unless it is known to take more than there is.
    fn has_room(&self, options: &Options) -> bool {
        self.standbys.bytes() + self.needs <= standby_memory_bytes(options)
    }

    /// Drops this one if all of them take too much.
    fn stay_within(&mut self, options: &Options) {
        let (used, max) = (self.standbys.bytes(), standby_memory_bytes(options));
        let own = self.place.bytes.load(Ordering::Relaxed);
        if used <= max || own == 0 {
            return;
        }
        drop(self.place.take());
        (self.needs, self.next) = (own, Next::At(Instant::now() + RETRY_WITHOUT_MEMORY));
        let (used, max) = (used >> 20, max >> 20);
        self.say(|log| {
            log.warn(format_args!(
                "{self} is not followed here any more: standbys take about {used} MiB, and standby_memory is {max} MiB. A \
                 takeover of it takes longer"
            ));
        });
    }
}

fn in_files(source: std::io::Error) -> StandbyError {
    OpenError::Io { context: "the keeper's files".to_owned(), source }.into()
}

impl std::fmt::Display for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Quorum log {}", self.log.number())
    }
}
