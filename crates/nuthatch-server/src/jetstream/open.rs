//! Opening the logs of a server and putting engines and the service on them.

use super::advice;
use super::backend::{Arrived, Inbox, Slot};
use super::banner;
use super::foreign::{self, Foreign};
use super::hook::{Answers, Engines, Hook, Take};
use super::places::LogPlace;
use super::registry::EngineIndex;
use super::service::{AccountLimits, DEFAULT_LOG, ServedAccount, ServedAccounts, Settings};
use crate::account::{Account, SYSTEM_ACCOUNT_ID};
use crate::interest::Matched;
use crate::jetstream_hook::{EngineId, Peer};
use crate::options::{
    AccountJetStream, CacheSettings, Compression, JetStreamOptions, LogHome, Options, SyncPolicy,
    TierSettings,
};
use crate::process::{OUR_DIRECTORY, StartedJetStream, close_directory};
use crate::route::Way;
use crate::server::{NATS_VERSION, Server};
use crate::sink::ServerSink;
use crate::stage::Outgoing;
use crate::subscription::{Receiver, Subscription};
use nuthatch_log::env::{RealDisk, SystemClock, SystemEntropy};
use nuthatch_log::{
    Disk, Log, LogCore, LogHandle, LogOptions, OpenError, RecoveryReport, Reporter,
};
use nuthatch_object::{
    BucketOptions, DiskCacheOptions, ObjectDisk, ObjectDiskOptions, TierOptions, TieredDisk,
};
use nuthatch_protocol::js::StreamSource;
use nuthatch_streams::consumer::ConsumerLimits;
use nuthatch_streams::{
    AccountBounds, AccountId, BatchLimits, Engine, EngineConfig, Event, Message,
};
use rustc_hash::FxHashMap;
use std::any::Any;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Bytes of memory streams when the configuration sets no `max_memory_store`: three quarters of the
/// machine's memory, as upstream, but at least this.
const MEMORY_STORE_MIN_BYTES: u64 = 64 << 20;

/// Answers of the service go through the server's core routing.
struct CoreRouting(Weak<Server>);

impl Answers for CoreRouting {
    fn listens(&self, account: AccountId, subject: &[u8]) -> bool {
        let account = self.0.upgrade().and_then(|server| server.accounts.get(account));
        account.is_some_and(|account| account.interest.any(subject))
    }

    fn listens_to_just(&self, account: AccountId, subject: &[u8]) -> bool {
        let account = self.0.upgrade().and_then(|server| server.accounts.get(account));
        let Some(account) = account else { return false };
        let mut matched = Matched::default();
        account.interest.match_into(subject, &mut matched);
        matched.plain().iter().any(|sub| *sub.subject == *subject)
    }

    fn foreign(&self, account: AccountId, source: &StreamSource) -> Foreign {
        let Some(server) = self.0.upgrade() else { return Foreign::Afar };
        let Some(account) = server.accounts.get(account) else { return Foreign::Afar };
        let options = server.options();
        let own = options.accounts.iter().find(|own| own.name == account.name);
        let Some(own) = own else { return Foreign::Afar };
        match foreign::copied_account(&options.accounts, own, source) {
            Ok(name) => match server.accounts.by_name(name) {
                Some(exporter) => Foreign::Granted(exporter.id),
                None => Foreign::Denied(name.to_owned()),
            },
            Err(Some(name)) => Foreign::Denied(name.to_owned()),
            Err(None) => Foreign::Afar,
        }
    }

    fn say(&self, text: &str) {
        if let Some(server) = self.0.upgrade() {
            server.log.info(format_args!("JetStream: {text}"));
        }
    }

    fn publish(&self, account: AccountId, message: &Message<'_>) -> bool {
        self.0.upgrade().is_some_and(|server| server.publish(account, message))
    }

    fn listen(&self, account: AccountId, subject: &[u8]) -> Option<Inbox> {
        let server = self.0.upgrade()?;
        let account = server.accounts.get(account)?;
        Some(Inbox::new(|slot| Box::new(Listening::begin(&server, account, subject, slot))))
    }

    fn subscribe(
        &self,
        account: AccountId,
        subject: &str,
        take: Take,
    ) -> Option<Box<dyn Any + Send + Sync>> {
        let server = self.0.upgrade()?;
        let account = server.accounts.get(account)?;
        let conn = server.own_connection().clone();
        let sub =
            Arc::new(Subscription::of_server(conn, subject.as_bytes(), Arc::new(Taker(take))));
        account.interest.insert(sub.clone());
        Some(Box::new(Listening { account, sub }))
    }
}

/// A subscription of the service; it ends when this is dropped.
struct Listening {
    account: Arc<Account>,
    sub: Arc<Subscription>,
}

impl Listening {
    fn begin(server: &Arc<Server>, account: Arc<Account>, subject: &[u8], slot: Slot) -> Self {
        let (conn, receiver) = (server.own_connection().clone(), Arc::new(Putting(slot)));
        let sub = Arc::new(Subscription::of_server(conn, subject, receiver));
        account.interest.insert(sub.clone());
        Self { account, sub }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.sub.close();
        self.account.interest.remove(&self.sub);
    }
}

/// Puts what comes into an inbox.
struct Putting(Slot);

impl Receiver for Putting {
    fn receive(&self, sub: &Subscription, message: &Outgoing<'_>, _way: &mut Way<'_>) -> bool {
        !sub.is_closed()
            && self.0.put(Arrived {
                subject: message.subject.to_vec(),
                reply: message.reply.to_vec(),
                headers: message.headers.to_vec(),
                body: message.body.to_vec(),
            })
    }
}

/// Hands what comes to a subscription of the server to a function.
struct Taker(Take);

impl Receiver for Taker {
    fn receive(&self, _: &Subscription, message: &Outgoing<'_>, _: &mut Way<'_>) -> bool {
        let Outgoing { routed, reply, headers, body, .. } = *message;
        (self.0)(&Message { subject: routed, reply, headers, body });
        true
    }
}

/// Opens the logs, starts their threads and loads the registry. Blocks while it recovers; runs on
/// a thread of the runtime that may block.
///
/// # Errors
/// A sentence for the log: which log cannot be opened and what to do about it.
pub fn start(server: &Arc<Server>) -> Result<StartedJetStream, String> {
    let options = server.options();
    let mut logs = Vec::new();
    let mut reports = Vec::new();
    for home in homes(&options) {
        let (handle, report) = home.open(server, &options)?;
        reports.push((home.name.clone(), report));
        logs.push((home.name, handle));
    }
    let memory = open_memory(server, &options)?;
    logs.insert(EngineIndex::MEMORY.0, (MEMORY_LOG.to_owned(), memory));
    let answers = Box::new(CoreRouting(Arc::downgrade(server)));
    let engines = Arc::new(Engines::new(logs, answers, server.name.clone()));
    let started = Hook::start(engines, settings(server, &options));
    let hook = tokio::runtime::Handle::current().block_on(started)?;
    let lines = banner::recovered(&reports, hook.stream_count());
    Ok(StartedJetStream { hook, lines })
}

/// Name of the memory log.
pub(super) const MEMORY_LOG: &str = "memory";

/// A log that survives the process, and where.
struct Home {
    name: String,
    index: EngineIndex,
    place: LogHome,
    sync: SyncPolicy,
    tier: Option<TierSettings>,
    cache: Option<CacheSettings>,
    compression: Option<Compression>,
}

/// The default log, then those that the configuration names, in the order of their engines.
fn homes(options: &Options) -> Vec<Home> {
    let jetstream = &options.jetstream;
    let default = Home {
        name: DEFAULT_LOG.to_owned(),
        index: EngineIndex::FILE,
        place: match &jetstream.store {
            Some(address) => LogHome::Bucket(address.clone()),
            None => LogHome::Directory(None),
        },
        sync: jetstream.sync,
        tier: jetstream.tier.clone(),
        cache: jetstream.cache.clone(),
        compression: jetstream.compression,
    };
    let named = jetstream.logs.iter().enumerate().map(|(at, log)| Home {
        name: log.name.clone(),
        index: EngineIndex(EngineIndex::FIRST_NAMED + at),
        place: log.home.clone(),
        sync: log.sync.unwrap_or(jetstream.sync),
        tier: log.tier.clone(),
        cache: log.cache.clone(),
        compression: log.compression,
    });
    std::iter::once(default).chain(named).collect()
}

type Opened = (LogHandle<Event<Peer>>, RecoveryReport);

impl Home {
    fn open(&self, server: &Arc<Server>, options: &Options) -> Result<Opened, String> {
        let opened = match &self.place {
            LogHome::Directory(dir) => self.open_local(server, options, dir.as_deref()),
            LogHome::Bucket(address) => self.open_object(server, options, address),
        };
        opened.map_err(|why| match self.index {
            EngineIndex::FILE => why,
            _ => format!("log {}: {why}", self.name),
        })
    }

    fn open_local(
        &self,
        server: &Arc<Server>,
        options: &Options,
        dir: Option<&Path>,
    ) -> Result<Opened, String> {
        let ours = options.jetstream.store_dir.join(OUR_DIRECTORY);
        let store = dir.unwrap_or(&options.jetstream.store_dir).to_owned();
        let dir = dir.map_or_else(|| ours.join(&self.name), Path::to_owned);
        std::fs::create_dir_all(&dir)
            .map_err(|error| format!("cannot create {}: {error}", dir.display()))?;
        if dir.starts_with(&ours) {
            close_directory(&ours)
                .map_err(|error| format!("cannot close {} to others: {error}", ours.display()))?;
        }
        let log_options = LogOptions {
            sync: sync_of(self.sync),
            report: reporter(server),
            ..self.compressed(LogOptions::local(&dir))
        };
        let disk = RealDisk::open(&dir)
            .map_err(|error| format!("cannot use {}: {error}", dir.display()))?;
        let advice = |error| advice::in_directory(&error, &store);
        if let Some(tier) = &self.tier {
            let tiered = self.put_tier(server, disk, tier)?;
            let log_options = for_tier(log_options, tier);
            let engine = engine(server, self.index, options);
            let disk = Arc::clone(&tiered) as Arc<dyn Disk>;
            let (core, report) = open_on(disk, log_options, engine).map_err(advice)?;
            tiered.start(&format!("log-{}", self.name)).map_err(|error| error.to_string())?;
            server.places.lock().push(LogPlace::tiered(&self.name, &dir, self.sync, &tiered));
            return Ok((self.spawn(core)?, report));
        }
        if let Ok(Some(moved)) = nuthatch_object::moved_away(&disk) {
            return Err(format!(
                "segments of the log in {} were moved to {}: it needs its 'tier' to be opened",
                dir.display(),
                moved.place
            ));
        }
        let engine = engine(server, self.index, options);
        let (core, report) = open_on(Arc::new(disk), log_options, engine).map_err(advice)?;
        server.places.lock().push(LogPlace::local(&self.name, &dir, self.sync));
        Ok((self.spawn(core)?, report))
    }

    /// Puts a bucket behind the log's directory.
    fn put_tier(
        &self,
        server: &Arc<Server>,
        disk: RealDisk,
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
        let opened = TieredDisk::open(Arc::new(disk), Arc::clone(&bucket), options);
        let tiered = opened.map_err(|error| format!("tier: {error}"))?;
        bucket.set_retry_for(TIER_RETRY_FOR);
        server.buckets.lock().push((self.name.clone(), bucket));
        Ok(Arc::new(tiered))
    }

    /// Opens the log in a bucket, which ends any other server that has it open.
    fn open_object(
        &self,
        server: &Arc<Server>,
        options: &Options,
        address: &str,
    ) -> Result<Opened, String> {
        let report = reporter(server);
        let bucket_options = BucketOptions { report: report.clone(), ..BucketOptions::default() };
        let bucket = nuthatch_object::open_url(address, &self.name, bucket_options);
        let bucket = Arc::new(bucket.map_err(|error| error.to_string())?);
        bucket.set_retry_for(STARTING_RETRY_FOR);
        let disk_cache = self.cache.as_ref().map(|cache| DiskCacheOptions {
            dir: cache.dir.join(&self.name),
            max_bytes: cache.max_bytes,
        });
        let disk_options = ObjectDiskOptions { disk_cache, ..object_options(server) };
        let disk = ObjectDisk::open(Arc::clone(&bucket), disk_options);
        let disk = disk.map_err(|error| match error.kind() {
            std::io::ErrorKind::InvalidData => advice::in_bucket(&error, address, &self.name),
            _ => error.to_string(),
        });
        let disk = Arc::new(disk?);
        bucket.set_retry_for(BucketOptions::default().retry_for);
        server.buckets.lock().push((self.name.clone(), bucket));
        server.places.lock().push(LogPlace::object(&self.name, &disk));
        let log_options = LogOptions { report, ..self.compressed(LogOptions::object()) };
        let engine = engine(server, self.index, options);
        let opened = open_on(Arc::clone(&disk) as Arc<dyn Disk>, log_options, engine);
        let (core, report) = opened.map_err(|error| {
            // Nothing is written any more: whoever mends the log need not ask who has it.
            disk.leave();
            if error.is_damage() {
                advice::in_bucket(&error, address, &self.name)
            } else {
                error.to_string()
            }
        })?;
        Ok((self.spawn(core)?, report))
    }

    /// These options with the compression that was chosen, if one was.
    fn compressed(&self, options: LogOptions) -> LogOptions {
        let compression = match self.compression {
            None => options.compression,
            Some(Compression::None) => nuthatch_log::Compression::None,
            Some(Compression::Zstd) => nuthatch_log::Compression::Zstd,
        };
        LogOptions { compression, ..options }
    }

    fn spawn(&self, core: LogCore<Engine<ServerSink>>) -> Result<LogHandle<Event<Peer>>, String> {
        core.spawn(&format!("log-{}", self.name)).map_err(|error| error.to_string())
    }
}

/// How long a store's failures are borne at the start, where somebody waits to hear that an address
/// or a key is wrong.
const STARTING_RETRY_FOR: Duration = Duration::from_secs(15);

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

fn open_on(
    disk: Arc<dyn Disk>,
    options: LogOptions,
    engine: Engine<ServerSink>,
) -> Result<(LogCore<Engine<ServerSink>>, RecoveryReport), OpenError> {
    let (clock, entropy) = (SystemClock::default(), SystemEntropy::default());
    Log::open(options, disk, Arc::new(clock), Box::new(entropy), engine)
}

/// How this server shows itself to others at a bucket.
fn who(server: &Server) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("server {} (process {} on {})", server.name, std::process::id(), host.trim())
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

fn open_memory(server: &Arc<Server>, options: &Options) -> Result<LogHandle<Event<Peer>>, String> {
    let budget = options.jetstream.max_memory_bytes.unwrap_or_else(default_memory_bytes);
    let log_options = LogOptions { report: reporter(server), ..LogOptions::memory() };
    let engine = engine(server, EngineIndex::MEMORY, options);
    let (core, _) =
        Log::open_memory(log_options, budget, engine).map_err(|error| error.to_string())?;
    core.spawn("log-memory").map_err(|error| error.to_string())
}

fn engine(server: &Arc<Server>, index: EngineIndex, options: &Options) -> Engine<ServerSink> {
    #[allow(clippy::cast_possible_truncation)] // two engines
    let sink = ServerSink::new(server.clone(), EngineId(index.0 as u8));
    let domain = options.jetstream.domain.clone().unwrap_or_default();
    let limits = &options.jetstream.limits;
    let consumers = consumer_limits(options);
    let batch = &limits.batch;
    let default = BatchLimits::default();
    let batches = BatchLimits {
        per_stream: batch.per_stream.map(|count| count as usize),
        total: batch.total.map(|count| count as usize),
        messages: batch.messages.map_or(default.messages, |count| count as usize),
        idle_ns: batch.timeout.map_or(default.idle_ns, |timeout| {
            i64::try_from(timeout.as_nanos()).unwrap_or(i64::MAX)
        }),
    };
    let bytes_max = match index {
        EngineIndex::MEMORY => options.jetstream.max_memory_bytes,
        _ => options.jetstream.max_store_bytes,
    };
    let bytes_max = bytes_max.unwrap_or(u64::MAX);
    let accounts = account_bounds(server, options, index);
    let hash_seed = RandomState::new().build_hasher().finish();
    let config = EngineConfig {
        domain,
        consumers,
        batches,
        hash_seed,
        bytes_max,
        accounts,
        ..EngineConfig::default()
    };
    Engine::new(config, sink)
}

/// What accounts may use of an engine.
pub(super) fn account_bounds(
    server: &Server,
    options: &Options,
    index: EngineIndex,
) -> FxHashMap<AccountId, AccountBounds> {
    let accounts = options.accounts.iter().filter_map(|account| {
        let own = account.jetstream.as_ref()?;
        let id = server.accounts.by_name(&account.name)?.id;
        let bytes_max = match index {
            EngineIndex::MEMORY => own.max_memory_bytes,
            _ => own.max_store_bytes,
        };
        let bounds = AccountBounds {
            bytes_max: bytes_max.unwrap_or(u64::MAX),
            max_ack_pending: own.max_ack_pending.map_or(0, i64::from),
            max_consumers: own.max_consumers.map_or(0, i64::from),
        };
        Some((id, bounds))
    });
    accounts.collect()
}

/// The lower of two limits, where `None` is no limit.
fn lower<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    one.into_iter().chain(other).min()
}

fn reporter(server: &Arc<Server>) -> Reporter {
    let server = Arc::downgrade(server);
    Reporter::new(move |message| {
        if let Some(server) = server.upgrade() {
            server.log.warn(format_args!("JetStream: {message}"));
        }
    })
}

const fn sync_of(policy: SyncPolicy) -> nuthatch_log::SyncPolicy {
    match policy {
        SyncPolicy::Always => nuthatch_log::SyncPolicy::Always,
        SyncPolicy::Every(interval) => nuthatch_log::SyncPolicy::Every(interval),
        SyncPolicy::Never => nuthatch_log::SyncPolicy::Never,
    }
}

/// The server's limits on consumers; 0: none.
fn consumer_limits(options: &Options) -> ConsumerLimits {
    let limits = &options.jetstream.limits;
    ConsumerLimits {
        max_ack_pending: limits.max_ack_pending.map_or(0, i64::from),
        max_request_batch: limits.max_request_batch.map_or(0, i64::from),
        max_consumers: limits.default_max_consumers.map_or(0, i64::from),
    }
}

/// What an account may use that has no limits of its own.
fn server_limits(options: &Options) -> AccountLimits {
    let jetstream = &options.jetstream;
    AccountLimits {
        max_memory_bytes: jetstream.max_memory_bytes,
        max_store_bytes: jetstream.max_store_bytes,
        max_ack_pending: jetstream.limits.max_ack_pending.map(u64::from),
        ..AccountLimits::default()
    }
}

/// The accounts of these options that have JetStream.
pub(super) fn served_accounts(server: &Server, options: &Options) -> ServedAccounts {
    let limits = server_limits(options);
    let accounts = options.accounts.iter().filter_map(|account| {
        let own = account.jetstream.as_ref()?;
        let id = server.accounts.by_name(&account.name)?.id;
        (id != SYSTEM_ACCOUNT_ID).then(|| {
            let limits = of_account(&limits, own);
            (id, ServedAccount { name: account.name.clone(), limits })
        })
    });
    accounts.collect()
}

fn settings(server: &Server, options: &Options) -> Settings {
    let jetstream = &options.jetstream;
    Settings {
        strict: jetstream.strict,
        domain: jetstream.domain.clone().unwrap_or_default(),
        version: NATS_VERSION.to_owned(),
        limits: server_limits(options),
        accounts: served_accounts(server, options),
        logs: jetstream.logs.iter().map(|log| log.name.clone()).collect(),
        lazy_logs: lazy_logs(jetstream),
        max_duplicate_window: jetstream.limits.duplicate_window.map_or(0, nanos),
        consumers: consumer_limits(options),
    }
}

/// Names of the logs on a local disk that do not sync before they answer.
fn lazy_logs(jetstream: &JetStreamOptions) -> Vec<String> {
    let default_is_lazy = jetstream.store.is_none() && jetstream.sync != SyncPolicy::Always;
    let named = jetstream.logs.iter().filter(|log| {
        matches!(log.home, LogHome::Directory(_))
            && log.sync.unwrap_or(jetstream.sync) != SyncPolicy::Always
    });
    let named = named.map(|log| log.name.clone());
    default_is_lazy.then(|| DEFAULT_LOG.to_owned()).into_iter().chain(named).collect()
}

/// An account's own limits under those of the server.
fn of_account(server: &AccountLimits, own: &AccountJetStream) -> AccountLimits {
    AccountLimits {
        max_memory_bytes: lower(server.max_memory_bytes, own.max_memory_bytes),
        max_store_bytes: lower(server.max_store_bytes, own.max_store_bytes),
        max_streams: own.max_streams.map(u64::from),
        max_consumers: own.max_consumers.map(u64::from),
        max_ack_pending: lower(server.max_ack_pending, own.max_ack_pending.map(u64::from)),
        max_memory_stream_bytes: own.memory_max_stream_bytes,
        max_store_stream_bytes: own.store_max_stream_bytes,
        max_bytes_required: own.max_bytes_required,
    }
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

fn default_memory_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total_kib = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok())
        .unwrap_or(0);
    (total_kib * 1024 / 4 * 3).max(MEMORY_STORE_MIN_BYTES)
}
