//! Opening the logs of a server and putting engines and the service on them.

use super::banner;
use super::clock;
use super::core_port::{Arrived, Inbox, InboxSender};
use super::durable_logs::{Taken, durable_logs, open_on, take_all};
use super::foreign::{self, Foreign};
use super::handle::{Engines, JetStreamHandle, ReplyPort, Take};
use super::known_logs::KnownLogs;
use super::registry::LogIndex;
use super::service::{AccountLimits, DEFAULT_LOG, ServedAccount, ServedAccounts, Settings};
use crate::account::{Account, SYSTEM_ACCOUNT_ID};
use crate::egress::Outgoing;
use crate::interest::Matched;
use crate::jetstream_port::LogId;
use crate::options::{AccountJetStream, JetStreamOptions, LogStore, Options, SyncPolicy};
use crate::process::StartedJetStream;
use crate::route::DeliveryContext;
use crate::server::{NATS_VERSION, Server};
use crate::sink::ServerSink;
use crate::subscription::{Receiver, Subscription};
use nuthatch_log::env::RamDisk;
use nuthatch_log::{LogCore, LogOptions, Reporter};
use nuthatch_protocol::js::StreamSource;
use nuthatch_streams::consumer::ConsumerLimits;
use nuthatch_streams::{AccountBounds, AccountId, BatchLimits, Engine, EngineConfig, Message};
use rustc_hash::FxHashMap;
use std::any::Any;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Bytes of memory streams when the configuration sets no `max_memory_store`: three quarters of the
/// machine's memory, as upstream, but at least this.
const MEMORY_STORE_MIN_BYTES: u64 = 64 << 20;

/// The memory log has at least so many segments, unless they would be smaller than
/// [`MEMORY_SEGMENT_MIN`] bytes.
const MEMORY_SEGMENTS: u64 = 16;
const MEMORY_SEGMENT_MIN: u64 = 64 << 10;

/// Answers of the service go through the server's core routing.
struct CoreRouting(Weak<Server>);

impl ReplyPort for CoreRouting {
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
    fn begin(
        server: &Arc<Server>,
        account: Arc<Account>,
        subject: &[u8],
        slot: InboxSender,
    ) -> Self {
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
struct Putting(InboxSender);

impl Receiver for Putting {
    fn receive(
        &self,
        sub: &Subscription,
        message: &Outgoing<'_>,
        _way: &mut DeliveryContext<'_>,
    ) -> bool {
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
    fn receive(
        &self,
        _: &Subscription,
        message: &Outgoing<'_>,
        _: &mut DeliveryContext<'_>,
    ) -> bool {
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
    let durable_logs = durable_logs(&options);
    let known = KnownLogs::of(&options, &durable_logs)?;
    // Nothing is taken from another server before all of it can be opened, as far as one can tell.
    let ready: Result<Vec<_>, _> =
        durable_logs.iter().map(|home| home.ready(server, &options, &known)).collect();
    let ready = ready?;
    known.prepare()?;
    let memory = open_memory(server, &options)?;
    let (mut opened, mut reports, mut identities) = (Vec::new(), Vec::new(), BTreeMap::new());
    for (home, taken) in durable_logs.iter().zip(take_all(&durable_logs, ready, server, &options)?)
    {
        let Taken { opened: (core, report), identity } = taken;
        identities.extend(identity.map(|identity| (home.name.clone(), identity)));
        reports.push((home.name.clone(), report));
        opened.push((home.name.clone(), core));
    }
    known.note(identities)?;
    opened.insert(LogIndex::MEMORY.0, (MEMORY_LOG.to_owned(), memory));
    let spawn = |(name, core): (String, LogCore<_>)| match core.spawn(&format!("log-{name}")) {
        Ok(handle) => Ok((name, handle)),
        Err(error) => Err(error.to_string()),
    };
    let logs: Vec<_> = opened.into_iter().map(spawn).collect::<Result<_, _>>()?;
    let answers = Box::new(CoreRouting(Arc::downgrade(server)));
    let engines = Arc::new(Engines::new(logs, answers, server.name.clone()));
    let started = JetStreamHandle::start(engines, settings(server, &options));
    let jetstream = tokio::runtime::Handle::current().block_on(started)?;
    let lines = banner::recovered(&reports, jetstream.stream_count());
    Ok(StartedJetStream { jetstream, lines })
}

/// Name of the memory log.
pub(super) const MEMORY_LOG: &str = "memory";

fn open_memory(
    server: &Arc<Server>,
    options: &Options,
) -> Result<LogCore<Engine<ServerSink>>, String> {
    let budget = options.jetstream.max_memory_bytes.unwrap_or_else(default_memory_bytes);
    let memory = LogOptions::memory();
    let segment_bytes =
        memory.segment_bytes.min((budget / MEMORY_SEGMENTS).max(MEMORY_SEGMENT_MIN));
    let first_segment_bytes = memory.first_segment_bytes.min(segment_bytes);
    let report = reporter(server);
    let log_options = LogOptions { segment_bytes, first_segment_bytes, report, ..memory };
    let engine = engine(server, LogIndex::MEMORY, options);
    let disk = Arc::new(RamDisk::new(budget));
    let opened = open_on(disk, log_options, engine, clock::of(server));
    let (core, _) = opened.map_err(|error| error.to_string())?;
    Ok(core)
}

pub(super) fn engine(
    server: &Arc<Server>,
    index: LogIndex,
    options: &Options,
) -> Engine<ServerSink> {
    #[allow(clippy::cast_possible_truncation)] // two engines
    let sink = ServerSink::new(server.clone(), LogId(index.0 as u8));
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
        LogIndex::MEMORY => options.jetstream.max_memory_bytes,
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

/// Bounds of accounts in an engine.
pub(super) fn account_bounds(
    server: &Server,
    options: &Options,
    index: LogIndex,
) -> FxHashMap<AccountId, AccountBounds> {
    let accounts = options.accounts.iter().filter_map(|account| {
        let own = account.jetstream.as_ref()?;
        let id = server.accounts.by_name(&account.name)?.id;
        let bytes_max = match index {
            LogIndex::MEMORY => own.max_memory_bytes,
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

pub(super) fn reporter(server: &Arc<Server>) -> Reporter {
    let server = Arc::downgrade(server);
    Reporter::new(move |message| {
        if let Some(server) = server.upgrade() {
            server.log.warn(format_args!("JetStream: {message}"));
        }
    })
}

pub(super) const fn sync_of(policy: SyncPolicy) -> nuthatch_log::SyncPolicy {
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

/// Limits of an account that has none of its own.
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
        matches!(log.home, LogStore::Directory(_))
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
