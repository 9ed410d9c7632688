//! State shared by all connections, engines and endpoints of one server.

use crate::account::{Account, Accounts};
use crate::account_imports::{self, ImportHost};
use crate::auth::{Authenticator, SlowChecks};
use crate::close_reason::CloseReason;
use crate::conn::{Connection, ConnectionHost, Transport};
use crate::connections::{AccountTraffic, Connections};
use crate::credentials::ServerKeys;
use crate::egress::{DirectWrites, EgressBatch, Outgoing};
use crate::interest::Matched;
use crate::jetstream_port::{JetStreamPort, NoJetStream, Peer, SendError};
use crate::leafs::Leafs;
use crate::log_id::SlotSet;
use crate::logging::Logger;
use crate::logs::Logs;
use crate::member_rng::MemberRng;
use crate::nodes::Nodes;
use crate::operator::Operator;
use crate::options::{self, Options};
use crate::outlet::Outlet;
use crate::own_publishes::OwnPublishes;
use crate::peer::EnginePeer;
use crate::route::{self};
use crate::shares::Shares;
use crate::system_port::{NoSystem, SystemPort};
use crate::tls::{Offered, RateLimit};
use arc_swap::ArcSwap;
use nuthatch_streams::{AccountId, Event, Message};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

mod description;
mod recheck;
mod reconfiguration;

pub(crate) use self::recheck::tracks_replies;
pub use self::reconfiguration::Reload;

/// How long the end of subscriptions may wait before engines hear of it: many end together.
const INTEREST_LOST_DELAY: Duration = Duration::from_millis(20);

/// Slow consumers by what gave them away.
#[derive(Debug, Default)]
pub struct SlowConsumers {
    /// More than `max_pending` was waiting.
    pub pending_bytes: AtomicU64,
    /// A write took longer than `write_deadline`.
    pub write_deadline: AtomicU64,
}

/// Load of the runtime.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeUsage {
    /// Tasks that have not ended.
    pub tasks: usize,
    /// Worker threads.
    pub workers: usize,
    /// Tasks in the shared queue that wait for a worker.
    pub queued: usize,
}

/// A server.
pub struct Server {
    /// Its id: a public nkey, `N…`.
    pub id: String,
    /// The keys that belong to it, for requests of an auth callout.
    pub(crate) key: ServerKeys,
    /// Its name.
    pub name: String,
    /// When it started.
    pub since: SystemTime,
    started: Instant,
    options: ArcSwap<Options>,
    /// Held while other options are adopted.
    reconfiguring: parking_lot::Mutex<()>,
    /// The operators whose tokens count, in operator mode.
    operator: Option<Arc<Operator>>,
    auth: ArcSwap<Authenticator>,
    /// When the configuration was last read.
    pub config_loaded: ArcSwap<SystemTime>,
    /// TLS of its listeners.
    pub tls: Offered,
    /// Counts handshakes for `connection_rate_limit`.
    pub handshakes: RateLimit,
    /// Accounts.
    pub accounts: Arc<Accounts>,
    /// Connections.
    pub connections: Connections,
    /// Connections to other servers.
    pub leafs: Leafs,
    /// The other nodes of its cluster.
    pub nodes: Nodes,
    /// Log lines.
    pub log: Logger,
    /// Its logs.
    pub logs: Logs,
    /// This server as a node of a quorum log, once it runs.
    pub cluster: OnceLock<Arc<nuthatch_cluster::Cluster>>,
    /// This server as a node without JetStream, once it has found its cluster.
    pub core_node: OnceLock<Arc<nuthatch_cluster::CoreNode>>,
    /// Reports faults that stop the server.
    pub fatal: crate::fatal::Fatal,
    /// Slow consumers so far.
    pub slow_consumers: SlowConsumers,
    /// Producers slowed down for slow consumers so far.
    pub stalled_clients: AtomicU64,
    /// Connections closed as stale so far.
    pub stale_connections: AtomicU64,
    /// `max_payload` in force.
    pub max_payload_bytes: AtomicUsize,
    /// Password checks that take long.
    pub slow_checks: SlowChecks,
    /// Published messages that no log took, answered or not, so far.
    pub refused_publishes: AtomicU64,
    /// Published messages that wait for room in a log's queue, in bytes.
    pub backlog_bytes: AtomicUsize,
    /// The port of HTTP monitoring; 0 without.
    pub monitor_port: AtomicU16,
    /// The port of HTTPS monitoring; 0 without.
    pub monitor_https_port: AtomicU16,
    listening: AtomicBool,
    /// The port that clients connect to.
    pub client_port: AtomicU16,
    /// The port of websocket clients; 0 without.
    pub websocket_port: AtomicU16,
    /// True if it is a lame duck.
    pub lame_duck: AtomicBool,
    /// True if it is going down.
    pub stopping: AtomicBool,
    /// Who hears of requests to the JetStream API.
    pub operations: crate::operations::Operations,
    /// Bounds for large answers of monitoring.
    pub large_answers: crate::large_answers::LargeAnswers,
    /// Memory of the subscriptions of all connections.
    pub(crate) subscription_bytes: Arc<Shares>,
    /// Requests per monitoring path.
    pub http_requests: parking_lot::Mutex<std::collections::BTreeMap<&'static str, u64>>,
    jetstream: OnceLock<Arc<dyn JetStreamPort>>,
    no_jetstream: NoJetStream,
    interest_lost: AtomicBool,
    /// Logs whose queue was too full for a notice.
    late_notices: parking_lot::Mutex<SlotSet>,
    runtime: OnceLock<tokio::runtime::Handle>,
    /// Whose the server's own subscriptions are.
    own_peer: Peer,
    system: OnceLock<Arc<dyn SystemPort>>,
    /// Sequence of what it publishes about itself.
    event_sequence: AtomicU64,
    reload: OnceLock<Box<dyn Reload>>,
}

/// The configured name, or one that stays the same at the next start.
fn name_of(options: &Options) -> Option<String> {
    let of_node = || options.cluster.as_ref().map(|node| node.name.clone());
    let of_host = || options.named_by_host.then(crate::host_name::host_name).flatten();
    options.server_name.clone().or_else(of_node).or_else(of_host)
}

impl Server {
    /// A server that does not listen yet.
    #[must_use]
    pub fn new(options: Options, log: Logger) -> Arc<Self> {
        let key = ServerKeys::random();
        let id = key.signing.public();
        let name = name_of(&options).unwrap_or_else(|| id.clone());
        let closed_max = options.limits.max_closed_clients;
        let operator = Operator::new(&options);
        let auth = Authenticator::new(&options).with_operator(operator.clone(), &options);
        let server = Arc::new(Self {
            name,
            id,
            key,
            since: SystemTime::now(),
            started: Instant::now(),
            auth: ArcSwap::from_pointee(auth),
            reconfiguring: parking_lot::Mutex::default(),
            operator,
            config_loaded: ArcSwap::from_pointee(SystemTime::now()),
            tls: Offered::default(),
            handshakes: RateLimit::default(),
            accounts: Arc::new(Accounts::new(&options)),
            connections: Connections::new(closed_max),
            leafs: Leafs::new(&options),
            nodes: Nodes::default(),
            log,
            logs: Logs::default(),
            cluster: OnceLock::new(),
            core_node: OnceLock::new(),
            fatal: crate::fatal::Fatal::default(),
            slow_consumers: SlowConsumers::default(),
            stalled_clients: AtomicU64::new(0),
            stale_connections: AtomicU64::new(0),
            max_payload_bytes: AtomicUsize::new(options.limits.max_payload_bytes),
            slow_checks: SlowChecks::default(),
            refused_publishes: AtomicU64::new(0),
            backlog_bytes: AtomicUsize::new(0),
            monitor_port: AtomicU16::new(0),
            monitor_https_port: AtomicU16::new(0),
            listening: AtomicBool::new(false),
            client_port: AtomicU16::new(options.port),
            websocket_port: AtomicU16::new(0),
            lame_duck: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            operations: Default::default(),
            large_answers: Default::default(),
            subscription_bytes: crate::conn::subscription_bytes::shares(),
            http_requests: parking_lot::Mutex::default(),
            jetstream: OnceLock::new(),
            no_jetstream: NoJetStream::new(&options),
            interest_lost: AtomicBool::new(false),
            late_notices: parking_lot::Mutex::default(),
            runtime: OnceLock::new(),
            own_peer: EnginePeer::new(Outlet::nowhere()),
            system: OnceLock::new(),
            event_sequence: AtomicU64::new(0),
            reload: OnceLock::new(),
            options: ArcSwap::from_pointee(options),
        });
        server.install_imports();
        server
    }

    /// The runtime on which background work runs.
    pub(crate) fn runtime(&self) -> Option<&tokio::runtime::Handle> {
        self.runtime.get()
    }

    /// Whose the server's own subscriptions are: nobody's connection.
    pub fn own_peer(&self) -> &Peer {
        &self.own_peer
    }

    /// Makes exports and imports those of the options in force.
    fn install_imports(self: &Arc<Self>) {
        let options = self.options();
        let host: Arc<dyn ImportHost> = self.clone();
        account_imports::install(&self.accounts, &options.accounts, &host);
    }

    /// The options in force.
    pub fn options(&self) -> Arc<Options> {
        self.options.load_full()
    }

    /// The users in force.
    pub fn auth(&self) -> Arc<Authenticator> {
        self.auth.load_full()
    }

    /// The operators whose tokens count; `None` outside of operator mode.
    pub fn operator(&self) -> Option<&Arc<Operator>> {
        self.operator.as_ref()
    }

    /// Adopts reloaded options. The accounts of an operator stay as they are.
    pub fn set_options(self: &Arc<Self>, mut options: Options) {
        let _one_at_a_time = self.reconfiguring.lock();
        if self.operator.is_some() {
            options.accounts.clone_from(&self.options.load().accounts);
        }
        self.adopt(options);
    }

    /// Adopts the accounts of an operator.
    pub(crate) fn set_accounts(self: &Arc<Self>, accounts: Vec<options::Account>) {
        let _one_at_a_time = self.reconfiguring.lock();
        let mut options = Options::clone(&self.options.load());
        options.accounts = accounts;
        self.adopt(options);
    }

    fn adopt(self: &Arc<Self>, options: Options) {
        self.accounts.update(&options);
        let auth = Authenticator::new(&options).with_operator(self.operator.clone(), &options);
        self.auth.store(Arc::new(auth));
        self.config_loaded.store(Arc::new(SystemTime::now()));
        self.max_payload_bytes.store(options.limits.max_payload_bytes, Ordering::Relaxed);
        let options = Arc::new(options);
        let accounts_changed = self.options.swap(options.clone()).accounts != options.accounts;
        if !accounts_changed {
            // Mappings of the global account may have.
            return self.advertise_all();
        }
        self.install_imports();
        self.nodes.accounts_changed();
        for conn in self.connections.open().iter().chain(&self.leafs.connections.open()) {
            conn.renew_import_subs();
        }
        self.jetstream().set_accounts(&self.accounts, &options);
        self.advertise_all();
        // Who listens where may have changed in any account.
        self.tell_all_logs(|| Event::Interest(None));
    }

    /// Installs the JetStream service; only the first call has an effect.
    pub fn set_jetstream(&self, jetstream: Arc<dyn JetStreamPort>) {
        let _ = self.jetstream.set(jetstream);
    }

    /// Names the runtime on which background work runs; only the first call has an effect.
    pub fn set_runtime(&self, runtime: tokio::runtime::Handle) {
        let _ = self.runtime.set(runtime);
    }

    /// Present load of the runtime; `None` before [`Server::set_runtime`].
    pub fn runtime_usage(&self) -> Option<RuntimeUsage> {
        let metrics = self.runtime.get()?.metrics();
        Some(RuntimeUsage {
            tasks: metrics.num_alive_tasks(),
            workers: metrics.num_workers(),
            queued: metrics.global_queue_depth(),
        })
    }

    /// The JetStream service, or one that owns nothing.
    pub fn jetstream(&self) -> &dyn JetStreamPort {
        match self.jetstream.get() {
            Some(jetstream) => &**jetstream,
            None => &self.no_jetstream,
        }
    }

    /// Installs the service of the system account; `false`: there is one already.
    pub(crate) fn set_system(&self, system: Arc<dyn SystemPort>) -> bool {
        self.system.set(system).is_ok()
    }

    /// The service of the system account, or one that hears nothing.
    pub(crate) fn system(&self) -> &dyn SystemPort {
        self.system.get().map_or(&NoSystem, |system| &**system)
    }

    /// Clients are accepted from now on.
    pub(crate) fn set_listening(&self) {
        self.listening.store(true, Ordering::Release);
    }

    /// True if recovery is over and clients are accepted.
    pub fn is_listening(&self) -> bool {
        self.listening.load(Ordering::Acquire)
    }

    /// Milliseconds since the start.
    pub fn uptime_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// Publishes through core routing, as nobody's connection, and lets it be written. Returns
    /// whether anybody took it. Subjects of streams are not stored through this.
    pub fn publish(&self, account: AccountId, message: &Message<'_>) -> bool {
        let Some(account) = self.accounts.get(account) else { return false };
        let mut matched = Matched::default();
        account.interest.match_into(message.subject, &mut matched);
        let mut egress = EgressBatch::default();
        let outgoing = Outgoing::from_message(message);
        let taken =
            route::deliver(&matched, &outgoing, None, &mut egress, &mut MemberRng::default());
        egress.flush(DirectWrites::READER);
        taken
    }

    /// Publishes as [`Server::publish`] does, and streams whose subjects match store it.
    pub fn publish_and_store(self: &Arc<Self>, account: AccountId, message: &Message<'_>) -> bool {
        let Some(account) = self.accounts.get(account) else { return false };
        self.accounts.advisories.tell(&account.name, message);
        let host: Arc<dyn ImportHost> = self.clone();
        let mut publishes = OwnPublishes::new(Arc::downgrade(&host));
        let (mut egress, mut rng) = (EgressBatch::default(), MemberRng::default());
        let outgoing = Outgoing::from_message(message);
        let taken = publishes.add(&account, message, |route| {
            route::deliver(&route.matched, &outgoing, None, &mut egress, &mut rng)
                || route.stream.is_some()
        });
        egress.flush(DirectWrites::READER);
        publishes.flush();
        taken.unwrap_or_default()
    }

    /// Sends an event to the engines of all attached logs, as [`Server::tell_logs`] does.
    pub fn tell_all_logs(self: &Arc<Self>, event: impl Fn() -> Event<Peer>) {
        self.tell_logs(self.jetstream().slots().iter().copied().collect(), event);
    }

    /// Sends an event to the engines of these logs. It gets past a full queue; if there is no room for
    /// that either, the engine hears later that anything may have changed.
    pub fn tell_logs(self: &Arc<Self>, logs: SlotSet, event: impl Fn() -> Event<Peer>) {
        let refused = self.offer(&logs, event);
        if !refused.is_empty() && self.add_late_notices(&refused) {
            self.offer_later();
        }
    }

    /// Returns those whose queue was full. A log that is detached hears nothing.
    fn offer(&self, logs: &SlotSet, event: impl Fn() -> Event<Peer>) -> SlotSet {
        let jetstream = self.jetstream();
        let is_full = |slot| matches!(jetstream.notify(slot, event()), Err(SendError::Busy(_)));
        logs.iter().filter(|slot| is_full(*slot)).collect()
    }

    /// Notes logs that are to hear later; `true`: there were none before.
    fn add_late_notices(&self, logs: &SlotSet) -> bool {
        let mut late = self.late_notices.lock();
        let were_none = late.is_empty();
        logs.iter().for_each(|slot| late.insert(slot));
        were_none
    }

    fn offer_later(self: &Arc<Self>) {
        let Some(runtime) = self.runtime.get() else { return };
        let server = self.clone();
        runtime.spawn(async move {
            loop {
                tokio::time::sleep(INTEREST_LOST_DELAY).await;
                let late = std::mem::take(&mut *server.late_notices.lock());
                let mut refused = server.offer(&late, || Event::Interest(None));
                server
                    .offer(&late, || Event::Writable)
                    .iter()
                    .for_each(|slot| refused.insert(slot));
                if refused.is_empty() || !server.add_late_notices(&refused) {
                    // Nothing is left, or another writer has taken over.
                    return;
                }
            }
        });
    }

    /// Subscriptions have ended that engines may deliver to. They hear of it soon, once for many.
    pub(crate) fn interest_lost(self: &Arc<Self>) {
        if self.interest_lost.swap(true, Ordering::AcqRel) {
            return;
        }
        let Some(runtime) = self.runtime.get() else {
            self.interest_lost.store(false, Ordering::Release);
            return;
        };
        let server = self.clone();
        runtime.spawn(async move {
            tokio::time::sleep(INTEREST_LOST_DELAY).await;
            server.interest_lost.store(false, Ordering::Release);
            server.tell_all_logs(|| Event::Interest(None));
        });
    }

    /// A new connection, in the global account until its client says who it is.
    pub(crate) fn connect(
        self: &Arc<Self>,
        id: u64,
        remote: SocketAddr,
        transport: Transport,
    ) -> Arc<Connection> {
        Connection::new(self.clone(), self.accounts.global().clone(), id, remote, transport)
    }

    /// After the accounts of an operator have changed: closes a connection if its token counts no
    /// longer.
    pub(crate) fn recheck_grant(&self, conn: &Connection) {
        let session = conn.session();
        if let (Some(operator), Some(grant)) = (self.operator(), &session.grant)
            && let Some((reason, text)) = operator.must_go(grant)
        {
            conn.close(reason, text);
        }
    }

    /// Tells the leaf nodes of an account what it takes without a subscription.
    pub fn advertise(&self, account: &Account) {
        self.leafs.advertise(self.jetstream(), account);
    }

    /// [`Server::advertise`] for every account that has leaf nodes.
    pub fn advertise_all(&self) {
        for account in self.accounts.all() {
            if account.interest.has_leafs() {
                self.advertise(&account);
            }
        }
    }

    /// Traffic of an account's connections, those to other servers included.
    pub fn traffic_of(&self, account: AccountId) -> AccountTraffic {
        let of = |connections: &Connections| {
            connections.traffic_by_account().get(&account).copied().unwrap_or_default()
        };
        let mut traffic = of(&self.connections);
        traffic.add(&of(&self.leafs.connections));
        traffic
    }

    /// The table that a connection is in.
    pub(crate) fn table_of(&self, conn: &Connection) -> &Connections {
        match conn.transport {
            Transport::Tcp | Transport::Websocket(_) => &self.connections,
            Transport::Leaf => &self.leafs.connections,
            Transport::Node => &self.nodes.connections,
        }
    }

    /// Counts a connection whose other side answers no pings.
    pub(crate) fn count_stale(&self, conn: &Connection) {
        let count = match conn.transport {
            Transport::Node => &self.nodes.stale,
            Transport::Leaf => &self.leafs.stale,
            Transport::Tcp | Transport::Websocket(_) => &self.stale_connections,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts and logs a slow consumer that is about to be closed.
    pub(crate) fn count_slow_consumer(&self, conn: &Connection, reason: CloseReason) {
        let options = self.options();
        let count = match conn.transport {
            Transport::Node => Some(&self.nodes.slow_consumers),
            Transport::Leaf => Some(&self.leafs.slow_consumers),
            Transport::Tcp | Transport::Websocket(_) => None,
        };
        if let Some(count) = count {
            count.fetch_add(1, Ordering::Relaxed);
        }
        if reason == CloseReason::SlowConsumerWriteDeadline {
            self.slow_consumers.write_deadline.fetch_add(1, Ordering::Relaxed);
            let (deadline, pending) = (options.limits.write_deadline, conn.outbox().pending());
            self.log.info(format_args!(
                "{conn} - Slow Consumer Detected: WriteDeadline of {deadline:?} exceeded with {pending} total bytes."
            ));
        } else {
            self.slow_consumers.pending_bytes.fetch_add(1, Ordering::Relaxed);
            self.log.info(format_args!(
                "{conn} - Slow Consumer Detected: MaxPending of {} Exceeded",
                conn.outbox().limit()
            ));
        }
    }
}

impl ConnectionHost for Server {
    fn options(&self) -> Arc<Options> {
        Self::options(self)
    }

    fn uptime_ms(&self) -> u64 {
        Self::uptime_ms(self)
    }

    fn subscription_bytes(&self) -> &Arc<Shares> {
        &self.subscription_bytes
    }

    fn log_error(&self, text: std::fmt::Arguments<'_>) {
        self.log.error(text);
    }

    fn refused(&self, conn: &Connection, reason: CloseReason) {
        self.system().refused(conn, reason);
    }

    fn slow_consumer(&self, conn: &Connection) {
        self.count_slow_consumer(conn, CloseReason::SlowConsumerPendingBytes);
    }

    fn resume(self: Arc<Self>, logs: SlotSet) {
        self.tell_logs(logs, || Event::Writable);
    }

    fn interest_lost(self: Arc<Self>) {
        Self::interest_lost(&self);
    }
}

impl ImportHost for Server {
    fn name(&self) -> &str {
        &self.name
    }

    fn jetstream(&self) -> &dyn JetStreamPort {
        Self::jetstream(self)
    }

    fn publish(&self, account: AccountId, message: &Message<'_>) -> bool {
        Self::publish(self, account, message)
    }

    fn own_peer(&self) -> &Peer {
        Self::own_peer(self)
    }

    fn system_account(&self) -> &str {
        &self.accounts.system().name
    }

    fn warn(&self, text: &str) {
        self.log.warn(format_args!("JetStream: {text}"));
    }
}
