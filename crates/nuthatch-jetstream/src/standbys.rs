//! Standbys: what other nodes write to quorum logs is followed in memory where a log takes long to open, so that this node
//! takes it over at once whatever its size.
//!
//! Each log that this node keeps has a thread, which sleeps while nothing is applied. What follows a log is a machine as its
//! owner has it; all of them together stay within a bound of memory, above which one is dropped, which costs the time that
//! opening takes without it and nothing else.

mod reads;

use crate::durable_logs::{DurableLog, quorum_log};
use crate::engine::{LogStandby, engine, engine_config};
use crate::settings::account_bounds;
use nuthatch_log::{Disk, OpenError, Standby, StandbyError};
use nuthatch_server::logging::Logger;
use nuthatch_server::logs::{Followed, QuorumLog, standby_memory_bytes};
use nuthatch_server::options::Options;
use nuthatch_server::server::Server;
use nuthatch_server::sink::ServerSink;
use nuthatch_streams::{Engine, EngineConfig};
use parking_lot::Mutex;
use reads::{Readers, Reads};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// A standby that was kept for so long has not failed at once.
const LASTS: Duration = Duration::from_secs(600);

/// Between two looks at what was applied.
const REST: Duration = Duration::from_millis(100);

/// After a log could not be read, or has changed in a way that could not be followed; twice as long each time, up to
/// [`RETRY_DOUBLINGS`] times.
const RETRY: Duration = Duration::from_secs(2);

const RETRY_DOUBLINGS: u32 = 8;

/// A log that could not be followed so often may never be: this node is as good as others.
const COLD_FAILURES: u32 = 3;

/// After there was no memory for a standby.
const RETRY_WITHOUT_MEMORY: Duration = Duration::from_secs(600);

/// How often it is looked whether another node owns a log to which nothing is written.
const UNKNOWN_OWNER: Duration = Duration::from_secs(1);

/// A log that was found small is looked at again when it has so many entries, and twice as many, or after [`LOOK_AGAIN`].
const GROWN_ENTRIES: u64 = 2048;

const LOOK_AGAIN: Duration = Duration::from_secs(3600);

/// While nothing is written it is looked so often whether the log is still followed, or owned.
const IDLE: Duration = Duration::from_secs(60);

/// How often it is counted what one takes, which looks at all of its streams.
const COUNT_EVERY: Duration = Duration::from_secs(10);

/// The standbys of a node, by the numbers of their logs.
pub(super) struct Standbys {
    server: Weak<Server>,
    by_log: Mutex<BTreeMap<u8, Arc<Place>>>,
    /// Held by the one that reads a whole log.
    reading: Mutex<()>,
    reads: Reads,
}

/// That of one log.
#[derive(Default)]
struct Place {
    /// Held while it reads on, and taken by who opens the log.
    kept: Mutex<Option<Kept>>,
    /// Memory that it takes, about.
    bytes: AtomicU64,
    readers: Readers,
}

struct Kept {
    standby: LogStandby,
    /// Which one it is of those that this node has begun.
    number: u64,
    /// The files that it was read from.
    files: Arc<dyn Disk>,
    /// With which its machine was made.
    config: EngineConfig,
    /// The last entry that was applied to the files that it has read.
    applied: u64,
    /// Nobody has ended in the middle of reading on.
    is_whole: bool,
    since: Instant,
}

impl Place {
    /// Takes it out: who drops it does so without the lock.
    fn take(&self) -> Option<Kept> {
        let mut kept = self.kept.lock();
        self.forget();
        kept.take()
    }

    /// There is none any more.
    fn forget(&self) {
        self.bytes.store(0, Ordering::Relaxed);
        self.readers.keep(None);
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
    /// It could not be followed.
    Again(Instant),
    /// There was no memory for it.
    WithMemory(Instant),
}

impl Next {
    /// How long to wait for another entry before that.
    fn wait(self) -> Duration {
        match self {
            Self::Now => UNKNOWN_OWNER,
            Self::Grown(_, at) | Self::Again(at) | Self::WithMemory(at) => {
                at.saturating_duration_since(Instant::now()).max(UNKNOWN_OWNER)
            }
        }
    }

    fn is_due(self, applied: u64) -> bool {
        match self {
            Self::Now => true,
            Self::Grown(entries, at) => applied >= entries || Instant::now() >= at,
            Self::Again(at) | Self::WithMemory(at) => Instant::now() >= at,
        }
    }
}

impl Standbys {
    /// For logs of this server.
    pub(super) fn new(server: &Arc<Server>) -> Arc<Self> {
        Arc::new_cyclic(|standbys| Self {
            server: Arc::downgrade(server),
            by_log: Mutex::default(),
            reading: Mutex::default(),
            reads: Reads::new(standbys, server),
        })
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
        let follower = Follower {
            standbys,
            log,
            home,
            place,
            next: Next::Now,
            failures: 0,
            counted: Instant::now(),
            lacks_room: false,
            needs: None,
            settings: None,
        };
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
        let mut kept = place.take()?;
        let fits = kept.is_whole && kept.config == config(server, options);
        let bounds = account_bounds(&server.accounts, options, false);
        kept.standby.machine_mut().adopt_bounds(bounds);
        fits.then_some(kept.standby)
    }

    /// Memory that all of them take, about.
    fn bytes(&self) -> u64 {
        let places = self.by_log.lock();
        places.values().map(|place| place.bytes.load(Ordering::Relaxed)).sum()
    }
}

/// The settings of a machine of these logs, without the bounds of accounts: they are set when the log is opened, and may
/// change with each account that an operator adds.
fn config(server: &Server, options: &Options) -> EngineConfig {
    let config = engine_config(server, (false, options.jetstream.max_store_bytes), options);
    EngineConfig { accounts: FxHashMap::default(), ..config }
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
    /// How often it has failed since a standby has lasted for [`LASTS`].
    failures: u32,
    counted: Instant,
    /// There is no memory for it at present.
    lacks_room: bool,
    /// What it took when there was no memory for it, and when that was.
    needs: Option<(u64, Instant)>,
    /// The settings of the options that were looked at last.
    settings: Option<(Arc<Options>, EngineConfig)>,
}

impl Follower {
    fn run(mut self) {
        let mut seen = Default::default();
        self.tell();
        while let Some(applied) = self.log.wait_applied(seen, self.wait()) {
            seen = applied;
            if self.log.owned().is_some() {
                // Who opens the log takes what there is, a moment after the node owns it.
                self.next = Next::Now;
            } else if let Err(why) = self.look(applied.0) {
                self.next = Next::Again(Instant::now() + RETRY * (1 << self.failures));
                self.failures = (self.failures + 1).min(RETRY_DOUBLINGS);
                self.say(|log| {
                    log.debug(format_args!("{self}: its standby begins anew: {why}"));
                });
            }
            self.tell();
            std::thread::sleep(REST);
        }
        drop(self.place.take());
    }

    /// Notes how the log is followed, and tells other nodes where it will be soon: they do not give it to this one before.
    fn tell(&self) {
        let followed = self.followed();
        let is_soon = match self.next {
            Next::Now => true,
            Next::Again(_) => self.failures < COLD_FAILURES,
            Next::Grown(..) | Next::WithMemory(_) => false,
        };
        let is_soon = is_soon && !self.lacks_room && self.log.owned().is_none();
        self.log.set_cold(is_soon && followed.is_none());
        self.log.set_followed(followed);
    }

    /// How long to wait for another entry: a log that is followed, or owned, gives nothing to do without one.
    fn wait(&self) -> Duration {
        let is_idle = self.log.owned().is_some() || self.place.kept.lock().is_some();
        if is_idle { IDLE } else { self.next.wait() }
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
        let now = self.settings_of(&server, &options);
        let (stale, is_kept) = {
            let mut kept = self.place.kept.lock();
            // The files may have begun anew, and limits may have changed.
            let is_stale = |kept: &mut Kept| kept.applied > applied || kept.config != now;
            let stale = kept.take_if(|kept| !kept.is_whole || is_stale(kept));
            if stale.is_some() {
                self.place.forget();
            }
            (stale, kept.is_some())
        };
        drop(stale);
        self.lacks_room = !is_kept && !self.has_room(&options);
        if is_kept {
            drop(server);
            self.read_on()?;
        } else if self.next.is_due(applied) && self.is_owned_elsewhere() && !self.lacks_room {
            // The server may end while another log is read, or this one.
            drop(server);
            self.tell();
            let standbys = Arc::clone(&self.standbys);
            let _reading = standbys.reading.lock();
            let Some(server) = standbys.server.upgrade() else { return Ok(()) };
            let engine = engine(&server, (self.home.slot, &self.home.name), false, &options);
            drop(server);
            self.begin(engine, (&options, now))?;
        }
        self.stay_within(&options);
        Ok(())
    }

    fn settings_of(&mut self, server: &Server, options: &Arc<Options>) -> EngineConfig {
        match &self.settings {
            Some((of, settings)) if Arc::ptr_eq(of, options) => settings.clone(),
            _ => {
                let settings = config(server, options);
                self.settings = Some((Arc::clone(options), settings.clone()));
                settings
            }
        }
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
            kept.is_whole = false;
            let followed = kept.standby.follow(&files);
            kept.is_whole = followed.is_ok();
            match followed {
                Ok(true) => {}
                Ok(false) => {
                    kept.applied = applied;
                    kept.files = Arc::clone(&files);
                    self.place.readers.keep(Some(&files));
                    if self.counted.elapsed() >= COUNT_EVERY {
                        kept.standby.pass_time();
                        self.place.note_bytes(&kept.standby);
                        self.counted = Instant::now();
                    }
                    if kept.since.elapsed() >= LASTS {
                        self.failures = 0;
                    }
                    return Ok(());
                }
                Err(why) => {
                    // What was read in part is nothing to open a log from.
                    let gone = place.take();
                    self.place.forget();
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
    ) -> Result<(), StandbyError> {
        let view = self.log.view_of_other().map_err(in_files)?;
        let (began, read_to) = (Instant::now(), view.applied().0);
        let files: Arc<dyn Disk> = Arc::new(view);
        let begun = Standby::begin(&self.home.keys, &files, engine);
        if self.log.owned().is_some() {
            return Ok(());
        }
        let Some(mut standby) = begun? else {
            self.next = Next::Grown(GROWN_ENTRIES, Instant::now() + LOOK_AGAIN);
            return Ok(());
        };
        let took = began.elapsed();
        let above = options.cluster.as_ref().map_or(Duration::MAX, |cluster| cluster.standby_above);
        if took < above {
            // To open it takes no longer.
            let entries = read_to.max(GROWN_ENTRIES / 2) * 2;
            self.next = Next::Grown(entries, Instant::now() + LOOK_AGAIN);
            return Ok(());
        }
        self.next = Next::Now;
        let (last, mib) = (standby.last(), bytes_of(&standby) >> 20);
        standby.machine_mut().name_streams();
        let (since, number) = (Instant::now(), self.standbys.reads.next_number());
        let kept = Kept { standby, number, files, config, applied: read_to, is_whole: true, since };
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
        let needs = self.needs.filter(|(_, at)| at.elapsed() < LOOK_AGAIN);
        let needs = needs.map_or(0, |(bytes, _)| bytes);
        self.standbys.bytes() + needs <= standby_memory_bytes(options)
    }

    /// Drops this one if all of them take too much.
    fn stay_within(&mut self, options: &Options) {
        let (used, max) = (self.standbys.bytes(), standby_memory_bytes(options));
        let own = self.place.bytes.load(Ordering::Relaxed);
        if used <= max || own == 0 {
            return;
        }
        drop(self.place.take());
        let now = Instant::now();
        (self.needs, self.next) = (Some((own, now)), Next::WithMemory(now + RETRY_WITHOUT_MEMORY));
        let (used, max) = (used >> 20, max >> 20);
        if let Some(server) = self.standbys.server.upgrade() {
            server.nodes.counts.standby_dropped(self.log.number().0);
        }
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

impl Drop for Follower {
    /// Nobody follows the log here any more, perhaps because of a panic.
    fn drop(&mut self) {
        self.log.set_cold(false);
        self.log.set_followed(None);
    }
}

impl std::fmt::Display for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Quorum log {}", self.log.number())
    }
}
