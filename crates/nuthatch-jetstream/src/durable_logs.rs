//! The logs of a server, opened in two steps: what needs no ownership first, for all of them, then
//! what takes a log from another server. A start that is refused because of one log leaves the
//! owners of the others alone.

use crate::clock;
use crate::engine::{LogStandby, engine, engine_within, reporter, sync_of, who};
use crate::known_logs::KnownLogs;
use crate::local_log::local_log_dir;
use crate::registry::{DEFAULT_LOG, LOCAL_LOG};
use crate::startup_hints;
use nuthatch_log::env::{RealDisk, Standing, SystemEntropy, Tenure};
use nuthatch_log::{
    Chain, Disk, Keys, LOST, Log, LogCore, LogOptions, OpenError, OwnableDisk, RecoveryReport,
    Reporter,
};
use nuthatch_object::{
    Bucket, BucketOptions, DiskCacheOptions, LocalDisk, ObjectDisk, ObjectDiskOptions,
    PreparedDisk, TierOptions, TieredDisk,
};
use nuthatch_server::jetstream_port::LogSlot;
use nuthatch_server::logs::{LogLocation, QuorumLog, ServerClock, quorum_memory_bytes};
use nuthatch_server::options::{
    CacheSettings, Compression, LogStore, Options, SyncPolicy, TierSettings,
};
use nuthatch_server::private_files::{OUR_DIRECTORY, close_directory};
use nuthatch_server::process::OnLost;
use nuthatch_server::server::Server;
use nuthatch_server::sink::ServerSink;
use nuthatch_streams::{Engine, EngineConfig, NullSink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The numbers of the logs of a start: the default log, the memory log, and those with names.
const DEFAULT_SLOT: LogSlot = LogSlot(0);
pub(super) const MEMORY_SLOT: LogSlot = LogSlot(1);

fn named_slot(place: usize) -> LogSlot {
    LogSlot(2 + u32::try_from(place).expect("the configuration bounds the number of logs"))
}

/// A log on a disk or in a bucket, and its location.
pub(super) struct DurableLog {
    pub(super) name: String,
    pub(super) slot: LogSlot,
    place: LogStore,
    sync: SyncPolicy,
    pub(super) tier: Option<TierSettings>,
    cache: Option<CacheSettings>,
    compression: Option<Compression>,
    /// Keys of encryption at rest, the same for all.
    pub(super) keys: Keys,
}

/// The log that streams live in by default, under this name and number.
fn default_log(options: &Options, name: String, slot: LogSlot) -> DurableLog {
    let jetstream = &options.jetstream;
    DurableLog {
        name,
        slot,
        place: match &jetstream.store {
            None if options.cluster.is_some() => LogStore::Quorum,
            Some(address) => LogStore::Bucket(address.clone()),
            None => LogStore::Directory(None),
        },
        sync: jetstream.sync,
        tier: jetstream.tier.clone(),
        cache: jetstream.cache.clone(),
        compression: jetstream.compression,
        keys: jetstream.keys.clone(),
    }
}

/// A quorum log, which is opened when this node comes to own it.
pub(super) fn quorum_log(options: &Options, log: &QuorumLog) -> DurableLog {
    let slot = match log.number().0 {
        0 => DEFAULT_SLOT,
        number => named_slot(options.jetstream.logs.len() + usize::from(number)),
    };
    let home = default_log(options, log.name(), slot);
    match log.is_in_memory() {
        // Nothing of it is on a disk or in a bucket.
        true => DurableLog {
            place: LogStore::Quorum,
            tier: None,
            cache: None,
            compression: None,
            keys: Keys::default(),
            ..home
        },
        false => home,
    }
}

/// The log of just this node of a cluster, in this directory.
pub(super) fn local(options: &Options, dir: PathBuf) -> DurableLog {
    // No quorum log beside the first one has its number.
    let slot = named_slot(options.jetstream.logs.len());
    let home = default_log(options, LOCAL_LOG.to_owned(), slot);
    // A bucket that is behind the quorum logs is not behind this one.
    DurableLog { place: LogStore::Directory(Some(dir)), tier: None, ..home }
}

/// The default log, if it is this server's own, those that the configuration names, and a node's own, by their engines.
pub(super) fn durable_logs(options: &Options) -> Vec<DurableLog> {
    let jetstream = &options.jetstream;
    let is_own = options.cluster.is_none();
    let default = is_own.then(|| default_log(options, DEFAULT_LOG.to_owned(), DEFAULT_SLOT));
    let local = local_log_dir(options).map(|dir| local(options, dir));
    let named = jetstream.logs.iter().enumerate().map(|(at, log)| DurableLog {
        name: log.name.clone(),
        slot: named_slot(at),
        place: log.home.clone(),
        sync: log.sync.unwrap_or(jetstream.sync),
        tier: log.tier.clone(),
        cache: log.cache.clone(),
        compression: log.compression,
        keys: jetstream.keys.clone(),
    });
    default.into_iter().chain(named).chain(local).collect()
}

/// A log and what opening it found.
pub(super) type Opened = (LogCore<Engine<ServerSink>>, RecoveryReport);

/// A log that was looked at: it can be opened as far as anybody can tell who does not own it.
pub(super) enum Ready {
    /// In a directory: it is open, with a bucket behind it that is not taken yet.
    Local { opened: Box<Opened>, tier: Option<Arc<TieredDisk>>, identity: u64 },
    /// In a bucket: another server may own it still.
    Object { prepared: Box<PreparedDisk>, bucket: Arc<Bucket> },
}

impl DurableLog {
    /// Does everything that needs no ownership of the log.
    ///
    /// # Errors
    /// A sentence: why the log cannot be opened and what to do about it.
    pub(super) fn ready(
        &self,
        server: &Arc<Server>,
        options: &Options,
        known: &KnownLogs,
    ) -> Result<Ready, String> {
        let ready = match &self.place {
            LogStore::Directory(_) => self.ready_local(server, options, known),
            LogStore::Bucket(address) => self.ready_object(server, address),
            LogStore::Quorum => unreachable!("it is opened when this node owns it"),
        };
        ready.map_err(|why| self.named(why))
    }

    /// Takes the log from whoever has it, and opens it.
    ///
    /// # Errors
    /// As [`DurableLog::ready`].
    pub(super) fn take(
        &self,
        ready: Ready,
        server: &Arc<Server>,
        options: &Options,
    ) -> Result<Opened, String> {
        let opened = match ready {
            Ready::Local { opened, tier, .. } => self.take_tier(tier).map(|()| *opened),
            Ready::Object { prepared, bucket } => {
                let taken = (bucket, BucketOptions::default().retry_for);
                self.take_object(*prepared, taken, (server, clock::of(server)), options)
            }
        };
        opened.map_err(|why| self.named(why))
    }

    fn named(&self, why: String) -> String {
        if self.name == DEFAULT_LOG { why } else { format!("log {}: {why}", self.name) }
    }

    /// The directory of a local log; `None`: it is in a bucket.
    pub(super) fn dir(&self, options: &Options) -> Option<PathBuf> {
        let ours = options.jetstream.store_dir.join(OUR_DIRECTORY);
        match &self.place {
            LogStore::Directory(None) => Some(ours.join(&self.name)),
            LogStore::Directory(Some(dir)) => Some(dir.clone()),
            LogStore::Bucket(_) | LogStore::Quorum => None,
        }
    }

    /// Opens the log of a cluster that this node owns; `lost` hears when it owns it no more. Returns the bucket's disk
    /// behind it, if there is one, which moves segments until it is stopped.
    ///
    /// # Errors
    /// As [`DurableLog::ready`].
    pub(super) fn take_owned(
        &self,
        server: &Arc<Server>,
        options: &Options,
        (log, lost): (&QuorumLog, OnLost),
        standby: impl FnOnce() -> Option<LogStandby>,
    ) -> Result<(Opened, Option<Arc<TieredDisk>>), String> {
        match (&self.place, log.is_in_bucket()) {
            (LogStore::Bucket(address), true) => {
                let opened = self.take_owned_object(address, server, options, (log, lost));
                opened.map(|opened| (opened, None)).map_err(|why| self.named(why))
            }
            (LogStore::Quorum, false) => self.take_quorum(server, options, (log, lost), standby),
            _ => Err(format!("log {} is elsewhere than this node is set up for", self.name)),
        }
    }

    /// Opens a log that is in a bucket, when this node owns it. That its former owner is gone or has left it the cluster has
    /// decided, so nothing is looked at beforehand but which log it is.
    fn take_owned_object(
        &self,
        address: &str,
        server: &Arc<Server>,
        options: &Options,
        (log, lost): (&QuorumLog, OnLost),
    ) -> Result<Opened, String> {
        let tenure = Arc::new(log.wait_tenure().map_err(|error| error.to_string())?);
        let (epoch, time) = (tenure.owned(), clock::of_owner(server, log.number().0));
        let lost: Arc<dyn Fn(&str) + Send + Sync> = Arc::from(lost);
        let on_fenced = Arc::clone(&lost);
        let object = ObjectDiskOptions {
            who: who(server),
            on_fenced: Arc::new(move |why: &str| on_fenced(why)),
            tenure: Some(Arc::clone(&tenure) as Arc<dyn Tenure>),
            ..ObjectDiskOptions::default()
        };
        let (prepared, bucket) = self.prepare_object(server, address, object)?;
        let bound = log.bound_to().map_err(|error| error.to_string())?;
        let found = prepared.identity().map_err(|error| self.in_bucket(&error, address))?;
        if bound.is_some() && bound != found {
            return Err(startup_hints::another_log(bucket.label()));
        }
        if tenure.standing() == Standing::Lost {
            return Err("this node owns the log no more".to_owned());
        }
        let taken = (bucket, OWNED_RETRY_FOR);
        let opened = self.take_object(prepared, taken, (server, time), options)?;
        let counts = log.bind_to(opened.0.log_id()).map_err(|error| error.to_string())?;
        if counts != opened.0.log_id() {
            return Err(startup_hints::another_log(address));
        }
        log.watch(epoch, Box::new(move |why| lost(why))).map_err(|error| error.to_string())?;
        Ok(opened)
    }

    /// Opens the log of a quorum that this node owns.
    fn take_quorum(
        &self,
        server: &Arc<Server>,
        options: &Options,
        (log, lost): (&QuorumLog, OnLost),
        standby: impl FnOnce() -> Option<LogStandby>,
    ) -> Result<(Opened, Option<Arc<TieredDisk>>), String> {
        let disk = Arc::new(log.wait_until_owner().map_err(|error| error.to_string())?);
        let (epoch, label) = (disk.epoch(), disk.label());
        let report = of_quorum(reporter(server), &self.name);
        let log_options = LogOptions { report, ..LogOptions::replicated() };
        let (disk, log_options, tier): (Arc<dyn OwnableDisk>, _, _) = match &self.tier {
            Some(tier) => {
                let tiered = self.put_tier(server, disk, tier)?;
                (Arc::clone(&tiered) as _, for_tier(log_options, tier), Some(tiered))
            }
            None => {
                refuse_moved(&*disk, &label)?;
                (disk, log_options, None)
            }
        };
        server.logs.add(LogLocation::quorum(&self.name, label, tier.as_ref()));
        let log_options = LogOptions { reserve_bytes: Some(0), ..self.compressed(log_options) };
        let (log_options, engine) = match log.is_in_memory() {
            true => {
                let (bytes, slot) = (quorum_memory_bytes(options), (self.slot, &*self.name));
                let engine = engine_within(server, slot, (true, Some(bytes)), options);
                (in_memory(log_options, bytes), engine)
            }
            false => (log_options, engine(server, (self.slot, &self.name), false, options)),
        };
        let time = clock::of_owner(server, log.number().0);
        let opened = open_on(disk, log_options, (standby(), engine), time);
        let opened = opened.map_err(|error| error.to_string())?;
        log.watch(epoch, lost).map_err(|error| error.to_string())?;
        self.take_tier(tier.clone())?;
        Ok((opened, tier))
    }

    fn ready_local(
        &self,
        server: &Arc<Server>,
        options: &Options,
        known: &KnownLogs,
    ) -> Result<Ready, String> {
        let ours = options.jetstream.store_dir.join(OUR_DIRECTORY);
        let store = match &self.place {
            LogStore::Directory(Some(dir)) => dir.clone(),
            _ => options.jetstream.store_dir.clone(),
        };
        let dir = self.dir(options).expect("it is in a directory");
        known.check(&self.name, &dir)?;
        let advice = |error| startup_hints::in_directory(&error, &store);
        let refused = |what: &str, dir: &Path| {
            let context = format!("{what} {}", dir.display());
            move |source| advice(OpenError::Io { context, source })
        };
        let disk = RealDisk::open(&dir).map_err(refused("using", &dir))?;
        known.check_identity(&self.name, &dir, &disk)?;
        if dir.starts_with(&ours) {
            close_directory(&ours).map_err(refused("closing to other users", &ours))?;
        }
        let log_options = LogOptions {
            sync: sync_of(self.sync),
            report: reporter(server),
            ..self.compressed(LogOptions::local(&dir))
        };
        let engine = engine(server, (self.slot, &self.name), false, options);
        let (disk, log_options, tier): (Arc<dyn OwnableDisk>, _, _) = match &self.tier {
            Some(tier) => {
                let tiered = self.put_tier(server, Arc::new(disk), tier)?;
                (Arc::clone(&tiered) as _, for_tier(log_options, tier), Some(tiered))
            }
            None => {
                refuse_moved(&disk, &dir.display().to_string())?;
                (Arc::new(disk), log_options, None)
            }
        };
        let shown = Arc::clone(&disk);
        let opened = Box::new(
            open_on(disk, log_options, (None, engine), clock::of(server)).map_err(advice)?,
        );
        let chain = Chain::read(&*shown).map_err(|error| error.to_string())?;
        let identity = chain.expect("a log that is open has a catalog").log_id;
        server.logs.add(match &tier {
            Some(tiered) => LogLocation::tiered(&self.name, &dir, self.sync, tiered),
            None => LogLocation::local(&self.name, &dir, self.sync),
        });
        Ok(Ready::Local { opened, tier, identity })
    }

    fn take_tier(&self, tier: Option<Arc<TieredDisk>>) -> Result<(), String> {
        match tier {
            Some(tier) => {
                tier.start(&format!("log-{}", self.name)).map_err(|error| error.to_string())
            }
            None => Ok(()),
        }
    }

    /// Puts a bucket behind the log's directory.
    fn put_tier(
        &self,
        server: &Arc<Server>,
        disk: Arc<dyn LocalDisk>,
        tier: &TierSettings,
    ) -> Result<Arc<TieredDisk>, String> {
        let report = reporter(server);
        let bucket_options = BucketOptions { report: report.clone(), ..BucketOptions::default() };
        let bucket = nuthatch_object::open_url(&tier.store, &self.name, bucket_options);
        let bucket = Arc::new(bucket.map_err(|error| error.to_string())?);
        bucket.set_retry_for(STARTING_RETRY_FOR);
        let options = TierOptions {
            who: who(server),
            after_age: tier.after_age,
            local_max_bytes: tier.local_max_bytes,
            headroom_bytes: 2 * for_tier(LogOptions::default(), tier).segment_bytes,
            report,
            ..TierOptions::default()
        };
        let opened = TieredDisk::open(disk, Arc::clone(&bucket), options);
        let tiered = opened.map_err(|error| format!("tier: {error}"))?;
        bucket.set_retry_for(TIER_RETRY_FOR);
        server.logs.add_bucket(&self.name, bucket);
        Ok(Arc::new(tiered))
    }

    /// Looks at the log in a bucket, which another server may have open.
    fn ready_object(&self, server: &Arc<Server>, address: &str) -> Result<Ready, String> {
        let (mut prepared, bucket) =
            self.prepare_object(server, address, object_options(server))?;
        let log_options = self.compressed(LogOptions::object());
        // Without anybody connected: only what the records say counts.
        let engine = || Engine::new(EngineConfig::default(), NullSink);
        prepared.rehearse_with(&log_options, engine).map_err(|error| match error.is_damage() {
            true => startup_hints::in_bucket(&error, address, &self.name),
            false => error.to_string(),
        })?;
        Ok(Ready::Object { prepared: Box::new(prepared), bucket })
    }

    fn prepare_object(
        &self,
        server: &Arc<Server>,
        address: &str,
        options: ObjectDiskOptions,
    ) -> Result<(PreparedDisk, Arc<Bucket>), String> {
        let report = reporter(server);
        let bucket_options = BucketOptions { report, ..BucketOptions::default() };
        let bucket = nuthatch_object::open_url(address, &self.name, bucket_options);
        let bucket = Arc::new(bucket.map_err(|error| error.to_string())?);
        bucket.set_retry_for(STARTING_RETRY_FOR);
        let disk_cache = self.cache.as_ref().map(|cache| DiskCacheOptions {
            dir: cache.dir.join(&self.name),
            max_bytes: cache.max_bytes,
        });
        let options = ObjectDiskOptions { disk_cache, ..options };
        let prepared = ObjectDisk::prepare(Arc::clone(&bucket), options);
        Ok((prepared.map_err(|error| self.in_bucket(&error, address))?, bucket))
    }

    fn in_bucket(&self, error: &std::io::Error, address: &str) -> String {
        match error.kind() {
            std::io::ErrorKind::InvalidData => startup_hints::in_bucket(error, address, &self.name),
            _ => error.to_string(),
        }
    }

    /// Opens the log in a bucket, which ends any other server that has it open.
    fn take_object(
        &self,
        prepared: PreparedDisk,
        (bucket, retry_for): (Arc<Bucket>, Duration),
        (server, time): (&Arc<Server>, Arc<ServerClock>),
        options: &Options,
    ) -> Result<Opened, String> {
        let LogStore::Bucket(address) = &self.place else {
            unreachable!("a directory is not taken")
        };
        let disk = Arc::new(prepared.take().map_err(|error| self.in_bucket(&error, address))?);
        bucket.set_retry_for(retry_for);
        server.logs.add_bucket(&self.name, bucket);
        server.logs.add(LogLocation::object(&self.name, &disk));
        let report = reporter(server);
        let log_options = LogOptions { report, ..self.compressed(LogOptions::object()) };
        let engine = engine(server, (self.slot, &self.name), false, options);
        let opened =
            open_on(Arc::clone(&disk) as Arc<dyn OwnableDisk>, log_options, (None, engine), time);
        opened.map_err(|error| {
            // Nothing is written any more: whoever mends the log need not ask who has it.
            disk.leave();
            if error.is_damage() {
                startup_hints::in_bucket(&error, address, &self.name)
            } else {
                error.to_string()
            }
        })
    }

    /// These options with the compression that was chosen, if one was, and with the keys.
    fn compressed(&self, options: LogOptions) -> LogOptions {
        let compression = match self.compression {
            None => options.compression,
            Some(Compression::None) => nuthatch_log::Compression::None,
            Some(Compression::Zstd) => nuthatch_log::Compression::Zstd,
        };
        LogOptions { compression, keys: self.keys.clone(), ..options }
    }
}

/// A log that was taken and is open.
pub(super) struct Taken {
    pub(super) opened: Opened,
    /// That of a log in a directory.
    pub(super) identity: Option<u64>,
}

/// Takes all logs, in buckets at the same time: a bucket that answers slowly keeps no other log from
/// its new owner for longer than need be. What one start takes it cannot take in one step. If a log
/// cannot be had after all, those that were taken have left their former owners, and the error says
/// which; none of them is served.
///
/// # Errors
/// Those of all logs that cannot be had, as [`DurableLog::take`] tells them.
pub(super) fn take_all(
    durable_logs: &[DurableLog],
    ready: Vec<Ready>,
    server: &Arc<Server>,
    options: &Options,
) -> Result<Vec<Taken>, String> {
    let runtime = tokio::runtime::Handle::current();
    let take = |home: &DurableLog, ready: Ready| {
        let _context = runtime.enter();
        let identity = match &ready {
            Ready::Local { identity, .. } => Some(*identity),
            Ready::Object { .. } => None,
        };
        home.take(ready, server, options).map(|opened| Taken { opened, identity })
    };
    let taken: Vec<Result<Taken, String>> = std::thread::scope(|scope| {
        let take = &take;
        let begin = |(home, ready)| scope.spawn(move || take(home, ready));
        let all: Vec<_> = durable_logs.iter().zip(ready).map(begin).collect();
        let join = |one: std::thread::ScopedJoinHandle<'_, _>| {
            one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        all.into_iter().map(join).collect()
    });
    let place = |name: &str| durable_logs.iter().position(|home| home.name == name);
    server.logs.sort_by(place);
    let (good, bad): (Vec<_>, Vec<_>) =
        durable_logs.iter().zip(taken).partition(|(_, one)| one.is_ok());
    if bad.is_empty() {
        return Ok(good.into_iter().filter_map(|(_, one)| one.ok()).collect());
    }
    let faults: Vec<String> = bad.into_iter().filter_map(|(_, one)| one.err()).collect();
    let in_bucket = |home: &&DurableLog| matches!(home.place, LogStore::Bucket(_));
    let lost: Vec<&str> =
        good.iter().map(|(home, _)| *home).filter(in_bucket).map(|home| &*home.name).collect();
    let mut why = faults.join("; ");
    if !lost.is_empty() {
        why += &format!(
            "; taken from whoever had them before that showed: {}. Start the server that is to have \
             them again",
            lost.join(", ")
        );
    }
    Err(why)
}

/// What a quorum log reports, with its name. That another node owns it now the node says itself, as a handover or a takeover.
fn of_quorum(report: Reporter, name: &str) -> Reporter {
    let name = name.to_owned();
    Reporter::new(move |message| {
        if !message.ends_with(LOST) {
            report.say(&format!("log {name}: {message}"));
        }
    })
}

/// A log whose segments were moved away needs its tier.
fn refuse_moved(disk: &dyn Disk, place: &str) -> Result<(), String> {
    if let Ok(Some(moved)) = nuthatch_object::moved_away(disk) {
        return Err(format!(
            "segments of the log in {place} were moved to {}: it needs its 'tier' to be opened",
            moved.place
        ));
    }
    Ok(())
}

/// How long failures of a store are retried at the start, when an operator waits to learn that an
/// address or a key is wrong.
const STARTING_RETRY_FOR: Duration = Duration::from_secs(15);

/// How long those of a log's bucket are at a node: then the log stops, and another node may reach the bucket.
const OWNED_RETRY_FOR: Duration = Duration::from_secs(30);

/// How long a tier's failures are borne before they are told, and before a cold read is an error
/// that is tried again later.
const TIER_RETRY_FOR: Duration = Duration::from_secs(20);

/// A local log with a bound for its disk has segments of this part of it, so that there are several
/// to choose from.
const SEGMENTS_WITHIN_BOUND: u64 = 8;

/// The smallest segments of such a log.
const SEGMENT_MIN_BYTES: u64 = 1 << 20;

/// Options of a log that must keep its local disk below a bound.
fn for_tier(options: LogOptions, tier: &TierSettings) -> LogOptions {
    let Some(most) = tier.local_max_bytes else { return options };
    let part = (most / SEGMENTS_WITHIN_BOUND).max(SEGMENT_MIN_BYTES);
    let segment_bytes = part.min(options.segment_bytes);
    let first_segment_bytes = options.first_segment_bytes.min(segment_bytes);
    let reserve_bytes = Some(segment_bytes);
    LogOptions { segment_bytes, first_segment_bytes, reserve_bytes, ..options }
}

/// A memory log has at least so many segments, unless they would be smaller than
/// [`MEMORY_SEGMENT_MIN`] bytes.
const MEMORY_SEGMENTS: u64 = 16;
const MEMORY_SEGMENT_MIN: u64 = 64 << 10;

/// Options of a log in memory of so many bytes.
pub(super) fn in_memory(options: LogOptions, bytes: u64) -> LogOptions {
    let segment_bytes =
        options.segment_bytes.min((bytes / MEMORY_SEGMENTS).max(MEMORY_SEGMENT_MIN));
    let first_segment_bytes = options.first_segment_bytes.min(segment_bytes);
    LogOptions { segment_bytes, first_segment_bytes, ..options }
}

pub(super) fn open_on(
    disk: Arc<dyn OwnableDisk>,
    options: LogOptions,
    (standby, engine): (Option<LogStandby>, Engine<ServerSink>),
    clock: Arc<ServerClock>,
) -> Result<Opened, OpenError> {
    let entropy = Box::new(SystemEntropy::default());
    Log::open_from(options, disk, clock, entropy, (standby, || engine))
}

/// How this server shows itself, and what it does when another takes over.
fn object_options(server: &Arc<Server>) -> ObjectDiskOptions {
    let who = who(server);
    let server = Arc::downgrade(server);
    let on_fenced = Arc::new(move |why: &str| {
        if let Some(server) = server.upgrade() {
            server.fatal.raise(why);
        }
    });
    ObjectDiskOptions { who, on_fenced, ..ObjectDiskOptions::default() }
}
