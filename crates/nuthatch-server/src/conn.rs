//! A client connection as the rest of the server sees it: identity, outbox, subscriptions, counters.
//!
//! Its two tasks are in [`reader`](crate::reader) and [`writer`](crate::writer).

use crate::account::Account;
use crate::account::imports::end_imports;
use crate::close_reason::CloseReason;
use crate::identity::CertificateLogin;
use crate::identity::{Origin, SubjectFilter};
use crate::link::Link;
use crate::log_id::SlotSet;
use crate::options::Options;
use crate::outbox::{Appended, Outbox, Tally};
use crate::outlet::{Client, ClientFacts, Outlet};
use crate::peer::{EnginePeer, Peer};
use crate::shares::Shares;
use crate::slice::Deadline;
use crate::subscription::Subscription;
use crate::tls::TlsInfo;
use crate::websocket::{self, Upgrade};
use nuthatch_protocol::wire::write;
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};
use tokio::net::TcpStream;

use self::address::PeerAddress;
use self::ending::Ending;
use self::replies::ReplyTracker;
pub use self::session::Session;
use self::subscription_bytes::SUBSCRIPTION_BYTES_OF_CLIENT_MAX;
pub(crate) use self::subscriptions::Added;
use self::subscriptions::{Bounds, Subscriptions};

mod address;
mod ending;
mod replies;
mod session;
pub(crate) mod subscription_bytes;
mod subscriptions;

/// A connection with so many subscriptions ends them when no other one does.
const MANY_SUBSCRIPTIONS: usize = 512;

/// Bytes that may wait for another node of the cluster at least, however little `max_pending` allows for a client: all
/// clients of an account here publish into it.
const NODE_PENDING_BYTES_MIN: usize = 64 << 20;

/// How a client speaks to us.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Transport {
    /// The protocol itself, perhaps in TLS.
    Tcp,
    /// In frames of a websocket.
    Websocket(Box<Upgrade>),
    /// It is another server, and speaks the protocol of leaf nodes.
    Leaf,
    /// It is another node of the cluster of this server, and speaks that protocol too.
    Node,
}

/// What connections need of the server.
pub trait ConnectionHost: Send + Sync {
    /// The options in force.
    fn options(&self) -> Arc<Options>;

    /// Milliseconds since the start.
    fn uptime_ms(&self) -> u64;

    /// Memory of the subscriptions of all connections.
    fn subscription_bytes(&self) -> &Arc<Shares>;

    /// Writes an error to the log of the process.
    fn log_error(&self, text: std::fmt::Arguments<'_>);

    /// A client is not let in.
    fn refused(&self, conn: &Connection, reason: CloseReason);

    /// More than `max_pending` waits for a connection, which is about to be closed.
    fn slow_consumer(&self, conn: &Connection);

    /// Engines of these logs may deliver again.
    fn resume(self: Arc<Self>, logs: SlotSet);

    /// Subscriptions have ended that engines may deliver to.
    fn interest_lost(self: Arc<Self>);
}

/// A client connection. Shared by its tasks, its subscriptions and whatever answers it.
pub struct Connection {
    /// Its number, unique in the life of the server, from 1.
    pub id: u64,
    /// Where it comes from.
    pub remote: PeerAddress,
    /// How it speaks.
    pub transport: Transport,
    /// When it was accepted.
    pub since: SystemTime,
    /// It as engines know it: where messages to it go out, and where replies to its inboxes go.
    pub peer: Peer,
    /// Messages and bytes it sent. Written by its reader only.
    pub received: Counters,
    /// Parameters that TLS negotiated.
    pub tls: std::sync::OnceLock<TlsInfo>,
    /// When it last sent or was sent something, in milliseconds since the server's start.
    pub last_active_ms: AtomicU64,
    /// Round trip of the last ping, in nanoseconds; 0: not known.
    pub rtt_ns: AtomicU64,
    /// Times it was slowed down for a slow subscriber.
    pub stalls: AtomicU64,
    pings: Mutex<Pings>,
    host: Arc<dyn ConnectionHost>,
    session: Mutex<Arc<Session>>,
    /// It was changed by another than the reader.
    session_changed: AtomicBool,
    subs: Subscriptions,
    reason: Mutex<Option<CloseReason>>,
    replies: Mutex<Option<Box<ReplyTracker>>>,
    /// The socket, while the connection is open: closing it cuts a write short that goes nowhere.
    socket: Mutex<Option<Arc<TcpStream>>>,
    /// The system account was told that it came.
    pub(crate) announced: AtomicBool,
    /// The client has had its first PONG: from now on it hears of changes of INFO.
    pub(crate) hears_info: AtomicBool,
    /// Wakes the writer's timers when the client has connected.
    pub(crate) connected: tokio::sync::Notify,
    /// Tells the writer that the reader has ended.
    pub(crate) reader_done: tokio::sync::Notify,
    /// Its reader waits for the service of an auth callout.
    pub(crate) asks_service: AtomicBool,
    /// The reader has thrown away what the peer sent after what the connection was closed for.
    pub(crate) input_dropped: AtomicBool,
}

/// Monotonic counters with one writer.
#[derive(Default)]
pub struct Counters {
    messages: AtomicU64,
    bytes: AtomicU64,
}

impl Counters {
    pub(crate) fn add(&self, tally: Tally) {
        let messages = self.messages.load(Ordering::Relaxed) + tally.messages;
        self.messages.store(messages, Ordering::Relaxed);
        let bytes = self.bytes.load(Ordering::Relaxed) + tally.bytes;
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// The values.
    pub fn get(&self) -> Tally {
        Tally {
            messages: self.messages.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }
}

#[derive(Default)]
struct Pings {
    outstanding: u32,
    sent_at: Option<Instant>,
}

impl Connection {
    pub(crate) fn new(
        host: Arc<dyn ConnectionHost>,
        account: Arc<Account>,
        id: u64,
        remote: SocketAddr,
        transport: Transport,
    ) -> Arc<Self> {
        let of_options = host.options().limits.max_pending_bytes;
        let limit = match transport {
            Transport::Node => of_options.max(NODE_PENDING_BYTES_MIN),
            _ => of_options,
        };
        let session = Arc::new(match transport {
            Transport::Leaf | Transport::Node => Session::of_leaf(account),
            Transport::Tcp | Transport::Websocket(_) => Session::initial(account),
        });
        Arc::new_cyclic(|own: &Weak<Self>| Self {
            id,
            remote: PeerAddress::new(remote),
            transport,
            since: SystemTime::now(),
            peer: EnginePeer::new(Outlet::new(id, limit, own.clone())),
            received: Counters::default(),
            tls: std::sync::OnceLock::new(),
            last_active_ms: AtomicU64::new(host.uptime_ms()),
            rtt_ns: AtomicU64::new(0),
            stalls: AtomicU64::new(0),
            pings: Mutex::default(),
            host,
            session: Mutex::new(session),
            session_changed: AtomicBool::new(false),
            subs: Subscriptions::default(),
            reason: Mutex::new(None),
            replies: Mutex::new(None),
            socket: Mutex::new(None),
            announced: AtomicBool::new(false),
            hears_info: AtomicBool::new(false),
            connected: tokio::sync::Notify::new(),
            reader_done: tokio::sync::Notify::new(),
            asks_service: AtomicBool::new(false),
            input_dropped: AtomicBool::new(false),
        })
    }

    /// Where messages to it go out.
    #[inline]
    pub fn outlet(&self) -> &Arc<Outlet> {
        &self.peer.outlet
    }

    /// Bytes that wait to be written.
    #[inline]
    pub fn outbox(&self) -> &Outbox {
        &self.peer.outlet.outbox
    }

    /// State of a leaf node, once it has joined its account.
    pub fn link(&self) -> Option<&Link> {
        self.peer.outlet.link()
    }

    /// How its client reached the server, in the words of monitoring.
    pub fn client_type(&self) -> &'static str {
        match self.transport {
            Transport::Tcp | Transport::Leaf | Transport::Node => "nats",
            Transport::Websocket(_) => "websocket",
        }
    }

    /// True if it is another server, of the same cluster or of none.
    pub fn is_leaf(&self) -> bool {
        matches!(self.transport, Transport::Leaf | Transport::Node)
    }

    /// True if it is another node of the same cluster.
    pub fn is_node(&self) -> bool {
        self.transport == Transport::Node
    }

    /// Its CONNECT options and identity.
    pub fn session(&self) -> Arc<Session> {
        self.session.lock().clone()
    }

    pub(crate) fn set_session(&self, session: Arc<Session>) {
        *self.session.lock() = session;
    }

    /// As [`Connection::set_session`], by another than its reader, which hears of it.
    pub(crate) fn change_session(&self, session: Arc<Session>) {
        if session.rights.as_ref().is_none_or(|rights| rights.responses.is_none()) {
            // Replies were allowed by the permission that is gone.
            *self.replies.lock() = None;
        }
        self.set_session(session);
        self.session_changed.store(true, Ordering::Release);
    }

    /// True once after its session was changed by another than its reader.
    #[inline]
    pub(crate) fn has_changed_session(&self) -> bool {
        self.session_changed.load(Ordering::Acquire)
            && self.session_changed.swap(false, Ordering::AcqRel)
    }

    /// Number of its subscriptions.
    pub fn subscription_count(&self) -> usize {
        self.subs.len()
    }

    /// Its subscriptions.
    pub fn subscriptions(&self) -> Vec<Arc<Subscription>> {
        self.subs.some(usize::MAX)
    }

    /// Some of its subscriptions: at most so many.
    pub(crate) fn some_subscriptions(&self, max: usize) -> Vec<Arc<Subscription>> {
        self.subs.some(max)
    }

    /// True if it is open.
    pub fn is_open(&self) -> bool {
        self.reason.lock().is_none()
    }

    /// Why it was closed, if it was.
    pub fn close_reason(&self) -> Option<CloseReason> {
        *self.reason.lock()
    }

    /// True if it was closed for a reason that throws away what waits for it.
    pub(crate) fn drops_pending(&self) -> bool {
        self.close_reason().is_some_and(CloseReason::drops_pending)
    }

    /// Appends protocol text and lets it be written.
    pub fn send(&self, text: &[u8]) {
        let mut bytes = text.to_vec();
        if self.outbox().append(&mut bytes, Tally::default()) == Appended::Overflow {
            self.close_slow_consumer();
            return;
        }
        self.outbox().write_direct();
        self.outlet().after_write();
    }

    /// Sends `-ERR '<text>'`.
    pub fn send_err(&self, text: &str) {
        let mut bytes = Vec::with_capacity(text.len() + 10);
        write::push_err(&mut bytes, text);
        self.send(&bytes);
    }

    /// Closes it, with an `-ERR` if there is something to say; what waits is still written, within
    /// limits. Only the first call has an effect.
    pub fn close(&self, reason: CloseReason, err: Option<&str>) {
        {
            let mut current = self.reason.lock();
            if current.is_some() {
                return;
            }
            *current = Some(reason);
        }
        if let Some(text) = err {
            let mut bytes = Vec::with_capacity(text.len() + 10);
            write::push_err(&mut bytes, text);
            self.outbox().append(&mut bytes, Tally::default());
        }
        if reason.is_refusal() {
            self.host.refused(self, reason);
        }
        self.outbox().close(!reason.drops_pending());
        self.peer.mux.close();
        let socket = self.socket.lock().take();
        if let Some(socket) = socket
            && reason.drops_pending()
        {
            let _ = socket2::SockRef::from(&*socket).shutdown(std::net::Shutdown::Both);
        }
        self.outlet().resume();
    }

    /// Hands over the socket, to be shut down when the connection is closed.
    pub(crate) fn set_socket(&self, socket: Arc<TcpStream>) {
        *self.socket.lock() = Some(socket);
    }

    /// Its origin, as authentication uses it.
    pub(crate) fn origin(&self) -> Origin {
        let options = self.host.options();
        let (tls, no_auth_user) = match (&self.transport, &options.websocket) {
            (Transport::Websocket(_), Some(ws)) => (ws.tls.as_ref(), ws.no_auth_user.clone()),
            _ => (options.tls.as_ref(), None),
        };
        let certificate = if tls.is_some_and(|tls| tls.map_users) {
            let shown = self.tls.get().and_then(|tls| tls.peer.clone());
            shown.map_or(CertificateLogin::Missing, CertificateLogin::Shown)
        } else {
            CertificateLogin::Unused
        };
        let is_websocket = matches!(self.transport, Transport::Websocket(_));
        let address = Some(self.remote.get().ip());
        let (is_leaf, is_proxied) = (self.is_leaf(), self.session().proxy.is_some());
        Origin { is_websocket, is_leaf, is_proxied, address, no_auth_user, certificate }
    }

    /// Adds the subscription that `make` makes, which the client calls `sid`: one of at most `count_max`.
    pub(crate) fn add_subscription(
        &self,
        sid: &[u8],
        count_max: usize,
        make: impl FnOnce() -> Option<Subscription>,
    ) -> Added {
        let shares = self.host.subscription_bytes();
        let bytes_max = match self.is_leaf() {
            true => usize::MAX,
            false => SUBSCRIPTION_BYTES_OF_CLIENT_MAX,
        };
        let account = self.session().account.id;
        self.subs.add(sid, &Bounds { count_max, bytes_max, account, shares }, make)
    }

    /// The subscription that the client calls `sid`.
    pub(crate) fn subscription(&self, sid: &[u8]) -> Option<Arc<Subscription>> {
        self.subs.get(sid)
    }

    /// A plain subscription that covers a reply subject.
    pub(crate) fn subscription_for(&self, reply: &[u8]) -> Option<Arc<Subscription>> {
        self.subs.covering(reply)
    }

    /// Memory that its subscriptions take.
    pub(crate) fn subscription_bytes(&self) -> usize {
        self.subs.bytes()
    }

    /// Ends a subscription; `false`: it had ended.
    pub(crate) fn end_subscription(&self, sub: &Arc<Subscription>) -> bool {
        let was_there = self.subs.remove(sub);
        self.detach(sub);
        was_there
    }

    /// Puts one in the place of a subscription that goes on with other denied subjects.
    pub(crate) fn replace_subscription(
        &self,
        sub: &Arc<Subscription>,
        denied: Option<Arc<SubjectFilter>>,
        tracks_replies: bool,
    ) {
        let new = Arc::new(sub.continued(denied, tracks_replies));
        // Of the same size: it is charged already.
        if self.subs.replace(sub, &new) {
            self.detach(sub);
            let account = self.session().account.clone();
            account.interest.insert(new.clone());
            account.import(&new);
            self.host.clone().interest_lost();
            // It may have ended meanwhile, when there was nothing of it to take out.
            if !self.subs.has(&new) {
                self.detach(&new);
            }
        }
    }

    /// Takes a subscription out of its account, and tells engines that may have delivered to it.
    fn detach(&self, sub: &Arc<Subscription>) {
        sub.close();
        let account = self.session().account.clone();
        let foreign_streams = end_imports(sub);
        if (account.interest.remove(sub) && account.watch.has_targets()) || foreign_streams {
            self.host.clone().interest_lost();
        }
    }

    /// After exports or imports have changed: what its subscriptions see of other accounts.
    pub(crate) fn renew_import_subs(&self) {
        let account = self.session().account.clone();
        for sub in self.subscriptions() {
            account.import(&sub);
        }
    }

    /// Ends all subscriptions.
    pub(crate) fn drop_subscriptions(&self) {
        drop(Ending::of(self));
    }

    /// Ends all subscriptions; others have their turn in between, since there may be very many. Of
    /// those of an account that have many one at a time does so: fifty that take turns are as long as
    /// fifty turns.
    pub(crate) async fn drop_subscriptions_in_turns(&self) {
        let account = self.session().account.clone();
        let _turn = match self.subscription_count() >= MANY_SUBSCRIPTIONS {
            true => account.endings.acquire().await.ok(),
            false => None,
        };
        let mut ending = Ending::of(self);
        let mut deadline = Deadline::new();
        while ending.next() {
            if deadline.is_over() {
                tokio::task::yield_now().await;
                deadline = Deadline::new();
            }
        }
    }

    pub(crate) fn response_allowed(&self, subject: &[u8]) -> bool {
        let mut replies = self.replies.lock();
        replies.as_mut().is_some_and(|tracker| tracker.spend(subject, Instant::now()))
    }

    /// Sends a ping unless too many are unanswered: `false` then.
    pub(crate) fn ping(&self, max_outstanding: u32) -> bool {
        {
            let mut pings = self.pings.lock();
            if pings.outstanding + 1 > max_outstanding {
                return false;
            }
            pings.outstanding += 1;
            pings.sent_at = Some(Instant::now());
        }
        self.send(write::PING);
        true
    }

    pub(crate) fn ponged(&self) {
        let mut pings = self.pings.lock();
        pings.outstanding = 0;
        if let Some(sent_at) = pings.sent_at.take() {
            let rtt = sent_at.elapsed().max(Duration::from_nanos(1));
            self.rtt_ns.store(rtt.as_nanos() as u64, Ordering::Relaxed);
        }
    }
}

impl websocket::Owner for Connection {
    fn max_payload_bytes(&self) -> usize {
        self.host.options().limits.max_payload_bytes
    }

    fn wake_writer(&self) {
        self.outbox().wake();
    }

    fn broken(&self, reason: CloseReason, why: std::fmt::Arguments<'_>) {
        self.host.log_error(format_args!("{self} - {why}"));
        self.close(reason, None);
    }

    fn close_reason(&self) -> Option<CloseReason> {
        Self::close_reason(self)
    }
}

impl Client for Connection {
    fn is_open(&self) -> bool {
        Self::is_open(self)
    }

    fn close_slow_consumer(&self) {
        if self.is_open() {
            self.host.slow_consumer(self);
            self.close(CloseReason::SlowConsumerPendingBytes, None);
        }
    }

    fn resume(&self, logs: SlotSet) {
        self.host.clone().resume(logs);
    }

    fn end_subscription(&self, sid: &[u8]) {
        if let Some(sub) = self.subs.get(sid).filter(|sub| sub.is_exhausted()) {
            Self::end_subscription(self, &sub);
        }
    }

    fn track_reply(&self, reply: &[u8]) {
        let session = self.session();
        let Some(rights) = &session.rights else { return };
        let Some(bounds) = rights.responses else { return };
        if rights.may_publish(reply) {
            return;
        }
        let mut replies = self.replies.lock();
        replies.get_or_insert_default().track(reply, &bounds, Instant::now());
    }

    fn facts(&self) -> ClientFacts {
        let session = self.session();
        ClientFacts {
            id: self.id,
            since: self.since,
            remote: self.remote.get(),
            client_type: self.client_type(),
            account: session.account.name.clone(),
            user: session.user.clone(),
            name: session.name.clone(),
            lang: session.lang.clone(),
            version: session.version.clone(),
            rtt_ns: self.rtt_ns.load(Ordering::Relaxed),
        }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("id", &self.id).field("remote", &self.remote).finish()
    }
}

/// As log lines name it: `127.0.0.1:50000 - cid:7`, and over websocket `wid`.
impl std::fmt::Display for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (remote, id) = (self.remote.get(), self.id);
        match &self.transport {
            Transport::Tcp => write!(f, "{remote} - cid:{id}"),
            Transport::Leaf => write!(f, "{remote} - lid:{id}"),
            Transport::Node => write!(f, "{remote} - rid:{id}"),
            Transport::Websocket(upgrade) => match upgrade.forwarded_for {
                Some(client) => write!(f, "{client}/{remote} - wid:{id}"),
                None => write!(f, "{remote} - wid:{id}"),
            },
        }
    }
}

#[cfg(test)]
mod tests;
