//! The reading task of a connection: bytes in, operations out.
//!
//! All operations of one socket read are handled in one [`Turn`]; deliveries, batches for engines
//! and answers leave at its end.

use self::backlog::Backlog;
use self::call_order::DeferredCalls;
use self::connect::ConnectError;
#[doc(hidden)]
pub use self::front::Front;
use self::intake::{drain, into_mut, keep_rest, read_error, read_some};
use self::js_traffic::StreamCache;
pub(crate) use self::leaf::LeafSide;
use self::publish::Scratch;
pub(crate) use self::told::Told;
use crate::account_id::SYSTEM_ACCOUNT_ID;
use crate::close_reason::CloseReason;
use crate::conn::{Connection, Session, Transport};
use crate::connections::Listened;
use crate::egress::{DirectWrites, Groups};
use crate::info;
use crate::msg_trace::Trace;
use crate::outbox::Tally;
use crate::outlet::Outlet;
use crate::served::BETWEEN_MAX;
use crate::server::Server;
use crate::slice::{Deadline, Slice};
use crate::trim;
use bytes::{Bytes, BytesMut};
use nuthatch_protocol::wire::{Limits, Op, ParseError, Step, parse_op, write};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::io::AsyncRead;

mod backlog;
mod call_order;
mod callout;
mod connect;
mod copied;
#[doc(hidden)]
pub mod front;
mod intake;
mod js_traffic;
mod leaf;
mod near_gets;
mod pacing;
mod publish;
mod refusal;
mod subscribe;
mod told;
mod tracing;
mod user_info;

/// How often a refused batch is offered again.
const RETRY: Duration = Duration::from_millis(1);
/// When a connection ends, its backlog is offered to the logs for so long.
const LAST_OFFERS: Duration = Duration::from_secs(1);
/// Bytes of one message between nodes at most. What clients may send is decided where they are.
const NODE_PAYLOAD_MAX: usize = 80 << 20;
/// Subjects with listeners at one other node that are known at most, for each account.
const NODE_INTEREST_MAX: usize = 8 << 20;
/// State of a connection that only its reader touches.
pub(crate) struct ConnReader {
    conn: Arc<Connection>,
    server: Arc<Server>,
    session: Arc<Session>,
    limits: Limits,
    nonce: Box<str>,
    connected: bool,
    /// Authentication is asked for and has not happened.
    expect_connect: bool,
    first_pong_sent: bool,
    mux: Option<Box<js_traffic::MuxCache>>,
    /// Streams that acknowledgements and pulls have named lately.
    streams: StreamCache,
    /// The JetStream port's version when this turn began: its routes are no older.
    seen: u64,
    /// Publishes that a full queue has refused.
    backlog: Option<Box<Backlog>>,
    /// Traffic deferred behind a change of the registry that this connection has asked for.
    deferred: Option<Box<DeferredCalls>>,
    /// `max_subscriptions`.
    max_subscriptions: usize,
    /// Another node of the cluster for which so much waits that what is read next has to wait too.
    full_node: Option<Arc<Outlet>>,
    /// The server's log has a line about a trace that this connection asked for in vain: one is enough.
    told_of_traces: bool,
    /// The other side is a server, not a client.
    leaf: Option<Box<leaf::LeafSide>>,
}

/// Result of handling one read.
enum Flow {
    /// So many bytes are handled; that many are needed in front of the next operation.
    Done { consumed: usize, need: usize },
    /// A CONNECT is to be looked at, which may take a while; then go on behind it.
    Connect { json: Vec<u8>, consumed: usize },
    /// So many bytes are handled, and others are to have their turn before the rest.
    Rest { consumed: usize },
    /// The connection was closed.
    Closed,
}

/// The handling of one socket read.
struct Turn<'a> {
    reader: &'a mut ConnReader,
    /// The bytes read, operations and payloads alike.
    data: &'a Bytes,
    scratch: Scratch,
    tally: Tally,
    batches: js_traffic::Batches,
    /// Items for engines whose parts are not all in `data`.
    copied: copied::CopiedBatches,
    /// The subject of the present publish is not in `data`.
    remapped: bool,
    /// Queue groups that get the present publish.
    groups: Groups<'a>,
    /// The trace of the present publish, if it asks for one.
    trace: Option<Trace>,
    /// Since when the present publish has waited for the owner of a log, if it has.
    held_since: Option<Instant>,
}

impl ConnReader {
    pub(crate) fn new(server: Arc<Server>, conn: Arc<Connection>, nonce: String) -> Self {
        let options = server.options();
        let session = conn.session();
        let is_websocket = matches!(conn.transport, Transport::Websocket(_));
        Self {
            limits: Limits {
                max_control_line: options.limits.max_control_line_bytes,
                max_payload: options.limits.max_payload_bytes,
                headers: false,
            },
            nonce: nonce.into(),
            connected: false,
            expect_connect: server.auth().requires(is_websocket),
            first_pong_sent: false,
            mux: None,
            streams: StreamCache::default(),
            seen: 0,
            backlog: None,
            deferred: None,
            full_node: None,
            told_of_traces: false,
            leaf: None,
            max_subscriptions: options
                .limits
                .max_subscriptions
                .map_or(usize::MAX, |max| max as usize),
            conn,
            server,
            session,
        }
    }

    /// Reads and handles until the connection ends.
    pub(crate) async fn run<R: AsyncRead + Unpin>(mut self, mut input: R) {
        let (server, conn) = (self.server.clone(), self.conn.clone());
        let mut leaving = DisconnectGuard {
            server: self.server.clone(),
            conn: conn.clone(),
            reason: CloseReason::InternalError,
            listened: None,
        };
        let reason = self.read_loop(&mut input).await;
        leaving.reason = reason;
        leaving.close();
        crate::leaf::lose_node(&conn);
        let freed_bytes = conn.subscription_bytes();
        conn.drop_subscriptions_in_turns().await;
        trim::freed(freed_bytes);
        if conn.drops_pending() {
            trim::freed_much();
        }
        self.finish().await;
        drop(leaving);
        drop(self);
        if !conn.drops_pending() && drain(&mut input).await {
            conn.input_dropped.store(true, Ordering::Relaxed);
        }
        conn.reader_done.notify_one();
        let reason = conn.close_reason().unwrap_or(reason);
        server.log.debug(format_args!("{conn} - Client connection closed: {}", reason.text()));
    }

    async fn read_loop<R: AsyncRead + Unpin>(&mut self, input: &mut R) -> CloseReason {
        let mut rest = BytesMut::new();
        let mut need = 1;
        let mut slice = Slice::default();
        loop {
            let data = match self.next_data(input, &mut rest, need).await {
                Ok(Some(data)) => data,
                Ok(None) => return CloseReason::ClientClosed,
                Err(error) => return read_error(&error),
            };
            let began = Instant::now();
            match self.handle_all(&data).await {
                Ok((consumed, more)) => {
                    need = more;
                    rest = keep_rest(&data, consumed, more);
                }
                Err(reason) => return reason,
            }
            // What is read next may be here already: a socket that is always full, or one frame that
            // holds very much when it is inflated.
            slice.spend(began).await;
        }
    }

    /// How many subscriptions the connection may have: server, account and user each have a say.
    fn subscriptions_max(&self) -> usize {
        if self.conn.is_node() {
            return NODE_INTEREST_MAX;
        }
        let of_account = self.session.account.limits.load().max_subscriptions;
        let of_user = self.session.grant.as_ref().and_then(|grant| grant.max_subscriptions);
        let max = [of_account, of_user].into_iter().flatten().min();
        max.map_or(self.max_subscriptions, |max| self.max_subscriptions.min(max as usize))
    }

    /// Makes the largest message the least that server, account and user allow.
    fn bound_payload(&mut self) {
        if self.conn.is_node() {
            self.limits.max_payload = NODE_PAYLOAD_MAX;
            return;
        }
        let of_user = self.session.grant.as_ref().and_then(|grant| grant.max_payload_bytes);
        let own = self.session.account.limits.load().max_payload_bytes.into_iter().chain(of_user);
        let of_server = self.server.max_payload_bytes.load(Ordering::Relaxed);
        self.limits.max_payload = own.fold(of_server, usize::min);
    }

    /// Handles what was read: how much of it, and how many bytes the next operation needs.
    async fn handle_all(&mut self, data: &Bytes) -> Result<(usize, usize), CloseReason> {
        if let Some(reason) = self.conn.close_reason() {
            return Err(reason);
        }
        // A reload changes it for everybody.
        self.bound_payload();
        let now = self.server.uptime_ms();
        self.conn.last_active_ms.store(now, Ordering::Relaxed);
        let mut from = 0;
        loop {
            let (flow, stalled) = self.turn(data, from);
            self.slow_down(stalled).await;
            match flow {
                Flow::Closed => {
                    return Err(self.conn.close_reason().unwrap_or(CloseReason::ClientClosed));
                }
                Flow::Done { consumed, need } => return Ok((consumed, need)),
                Flow::Rest { consumed } => {
                    from = consumed;
                    tokio::task::yield_now().await;
                }
                Flow::Connect { json, consumed } => {
                    from = consumed;
                    // What came before was sent under the old identity.
                    while let Some(deferred) = &mut self.deferred {
                        deferred.over().await;
                        self.settle_lane();
                    }
                    let handled = match self.leaf {
                        None => self.handle_connect(&json).await,
                        Some(_) => self.handle_leaf_connect(&json).await,
                    };
                    if let Err(error) = handled {
                        self.refuse(&error);
                        return Err(error.reason);
                    }
                }
            }
        }
    }

    fn refuse(&self, error: &ConnectError) {
        self.conn.close(error.reason, error.text);
    }

    /// One pass over the operations; returns also whether the producer should slow down.
    fn turn(&mut self, data: &Bytes, from: usize) -> (Flow, bool) {
        self.with_turn(data, |turn| turn.run(from))
    }

    /// Lets `run` handle operations in `data` and sends what came of them; returns also whether
    /// the producer should slow down.
    fn with_turn<T>(&mut self, data: &Bytes, run: impl FnOnce(&mut Turn<'_>) -> T) -> (T, bool) {
        if self.conn.has_changed_session() {
            self.session = self.conn.session();
        }
        let scratch = Scratch::take();
        self.seen = self.server.jetstream().version();
        let mut turn = Turn {
            reader: self,
            data,
            scratch,
            tally: Tally::default(),
            batches: Default::default(),
            copied: Default::default(),
            remapped: false,
            groups: Groups::All,
            trace: None,
            held_since: None,
        };
        let result = run(&mut turn);
        let tally = turn.tally;
        let (batches, copied) =
            (std::mem::take(&mut turn.batches), std::mem::take(&mut turn.copied));
        let mut scratch = std::mem::take(&mut turn.scratch);
        if self.conn.has_changed_session() {
            // What it has subscribed to just now may be forbidden already.
            self.session = self.conn.session();
            self.server.enforce_rights(&self.conn);
        }
        self.conn.received.add(tally);
        self.send_batches(batches, data);
        self.send_copied(copied);
        let stalled = scratch.egress.flush(DirectWrites::READER);
        self.full_node = scratch.egress.take_full_node();
        scratch.give_back();
        (result, stalled)
    }

    /// The next bytes to handle, at least `need` of them with what is left from before.
    async fn next_data<R: AsyncRead + Unpin>(
        &mut self,
        input: &mut R,
        rest: &mut BytesMut,
        need: usize,
    ) -> io::Result<Option<Bytes>> {
        loop {
            let read = if self.backlog.is_none() && self.deferred.is_none() {
                read_some(input, rest, need).await?
            } else {
                match self.read_beside(input, rest, need).await {
                    Some(read) => read?,
                    None => continue,
                }
            };
            match read {
                None => return Ok(None),
                Some(data) if data.len() >= need => return Ok(Some(data)),
                Some(data) => *rest = into_mut(data),
            }
        }
    }

    /// Reads while something waits; `None`: it is time to look after that.
    async fn read_beside<R: AsyncRead + Unpin>(
        &mut self,
        input: &mut R,
        rest: &mut BytesMut,
        need: usize,
    ) -> Option<io::Result<Option<Bytes>>> {
        self.settle_lane();
        self.offer_backlog();
        let may_read =
            !self.is_paced() && !self.deferred.as_ref().is_some_and(|deferred| deferred.is_full());
        let has_backlog = self.backlog.is_some();
        let call = async {
            match &mut self.deferred {
                Some(deferred) => deferred.over().await,
                None => std::future::pending().await,
            }
        };
        let read = tokio::select! {
            biased;
            () = call => return None,
            read = read_some(input, rest, need), if may_read => read,
            () = tokio::time::sleep(RETRY), if has_backlog => return None,
            else => return None,
        };
        self.pace();
        // What the call had to wait for may be here now: that comes before what was read.
        self.settle_lane();
        Some(read)
    }

    /// The connection is over: what its client has sent before is still offered for a while.
    async fn finish(&mut self) {
        let waits_longer = self.deferred.as_ref().is_some_and(|lane| lane.is_unrouted());
        let longer = if waits_longer { BETWEEN_MAX } else { Duration::ZERO };
        let deadline = tokio::time::Instant::now() + LAST_OFFERS + longer;
        while self.backlog.is_some() || self.deferred.is_some() {
            self.settle_lane();
            self.offer_backlog();
            if tokio::time::Instant::now() >= deadline {
                self.abandon_lane();
                self.abandon_backlog();
                return;
            }
            tokio::time::sleep(RETRY).await;
        }
    }
}

/// Takes a connection out of the server when its reader ends, even if it ends by a panic.
struct DisconnectGuard {
    server: Arc<Server>,
    conn: Arc<Connection>,
    reason: CloseReason,
    /// What it listened to; `None`: it is not closed yet.
    listened: Option<Listened>,
}

impl DisconnectGuard {
    /// Closes it; nothing is delivered to it any more once its subscriptions are gone.
    fn close(&mut self) {
        let conn = &self.conn;
        self.listened.get_or_insert_with(|| {
            let listened = Listened::of(conn);
            conn.close(self.reason, None);
            listened
        });
    }
}

impl Drop for DisconnectGuard {
    fn drop(&mut self) {
        self.close();
        let conn = &self.conn;
        conn.drop_subscriptions();
        if conn.is_leaf() {
            crate::leaf::leave(conn);
        } else {
            conn.session().account.connections.fetch_sub(1, Ordering::Relaxed);
        }
        if !conn.is_node() {
            conn.session().account.connected_changed();
        }
        self.server.table_of(conn).remove(conn, self.listened.take().unwrap_or_default());
        let reason = conn.close_reason().unwrap_or(CloseReason::ClientClosed);
        self.server.system().disconnected(conn, reason);
    }
}

impl Turn<'_> {
    fn run(&mut self, from: usize) -> Flow {
        if self.reader.leaf.is_some() {
            return self.run_leaf(from);
        }
        let mut at = from;
        let data = self.data;
        let mut deadline = Deadline::new();
        while at < data.len() {
            // Judged by the first byte: a stranger's payload is not waited for, nor given memory.
            if self.reader.expect_connect
                && !matches!(data[at], b'C' | b'c')
                && let Some(flow) = self.without_connect()
            {
                return flow;
            }
            let limits = self.reader.limits;
            match parse_op(&data[at..], &limits) {
                Ok(Step::Op(op, used)) => {
                    at += used;
                    if let Op::Connect(json) = op {
                        return Flow::Connect { json: json.to_vec(), consumed: at };
                    }
                    self.handle(op);
                    if self.scratch.closed {
                        return Flow::Closed;
                    }
                    if deadline.is_over() {
                        return Flow::Rest { consumed: at };
                    }
                }
                Ok(Step::Incomplete { need }) => return Flow::Done { consumed: at, need },
                Err(error) => {
                    self.parse_error(&error);
                    return Flow::Closed;
                }
            }
        }
        Flow::Done { consumed: at, need: 1 }
    }

    fn handle(&mut self, op: Op<'_>) {
        if self.reader.server.log.is_trace() {
            self.trace(&op);
        }
        match op {
            Op::Publish(publish) => self.publish(&publish),
            Op::Subscribe { subject, queue, sid } => self.subscribe(subject, queue, sid),
            Op::Unsubscribe { sid, max } => self.unsubscribe(sid, max),
            Op::Ping => self.ping(),
            Op::Pong => self.reader.conn.ponged(),
            Op::Err(_) => self.fail(CloseReason::ClientClosed, None),
            Op::Info(_) | Op::Ok | Op::Connect(_) => {}
        }
    }

    /// Something other than CONNECT came first although authentication is asked for.
    #[cold]
    fn without_connect(&mut self) -> Option<Flow> {
        if let Some(identity) = self.reader.server.auth().anonymous(&self.reader.conn.origin())
            && self.reader.adopt(&identity).is_ok()
        {
            return None;
        }
        self.fail(CloseReason::AuthenticationViolation, Some("Authorization Violation"));
        Some(Flow::Closed)
    }

    fn ping(&mut self) {
        self.out().extend_from_slice(write::PONG);
        let reader = &mut self.reader;
        if reader.connected && !reader.first_pong_sent {
            reader.first_pong_sent = true;
            if reader.session.protocol >= 1 {
                // Before the list is read: what changes in between is told once more.
                reader.conn.hears_info.store(true, Ordering::Release);
                let info =
                    reader.server.info_for(reader.server.info(), &reader.conn, &reader.nonce);
                let info = info::for_session(info, &reader.session);
                self.out().extend_from_slice(&info.encode());
            }
        }
    }

    /// Buffer for protocol text to this connection itself, in order with its own deliveries.
    fn out(&mut self) -> &mut Vec<u8> {
        self.scratch.egress.buffer(self.reader.conn.outlet())
    }

    fn say_err(&mut self, text: &str) {
        write::push_err(self.out(), text);
    }

    fn say_ok(&mut self) {
        if self.reader.session.verbose {
            self.out().extend_from_slice(write::OK);
        }
    }

    /// Hands over what was staged, then closes.
    fn fail(&mut self, reason: CloseReason, text: Option<&str>) {
        self.scratch.egress.flush(DirectWrites::READER);
        self.reader.conn.close(reason, text);
        self.scratch.closed = true;
    }

    #[cold]
    fn parse_error(&mut self, error: &ParseError) {
        let reason = match error {
            ParseError::MaxPayload { .. } => CloseReason::MaxPayloadExceeded,
            ParseError::ControlLineTooLong { .. } => CloseReason::MaxControlLineExceeded,
            ParseError::UnknownOperation => CloseReason::ParseError,
            _ => CloseReason::ProtocolViolation,
        };
        let (log, conn) = (&self.reader.server.log, &self.reader.conn);
        log.error(format_args!("{conn} - {error}"));
        self.fail(reason, error.err_text());
    }

    #[cold]
    fn trace(&self, op: &Op<'_>) {
        let (log, conn) = (&self.reader.server.log, &self.reader.conn);
        if self.reader.session.account.id == SYSTEM_ACCOUNT_ID && !log.traces_system() {
            return;
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let line = match op {
            Op::Connect(_) => "CONNECT".to_owned(),
            Op::Publish(p) => {
                let verb = if p.header_len == 0 { "PUB" } else { "HPUB" };
                let reply = p.reply.map(|r| format!(" {}", text(r))).unwrap_or_default();
                format!("{verb} {}{reply} {}", text(p.subject), p.message.len())
            }
            Op::Subscribe { subject, queue, sid } => {
                let queue = queue.map(|q| format!(" {}", text(q))).unwrap_or_default();
                format!("SUB {}{queue} {}", text(subject), text(sid))
            }
            Op::Unsubscribe { sid, max } => match max {
                Some(max) => format!("UNSUB {} {max}", text(sid)),
                None => format!("UNSUB {}", text(sid)),
            },
            Op::Ping => "PING".to_owned(),
            Op::Pong => "PONG".to_owned(),
            Op::Info(_) => "INFO".to_owned(),
            Op::Ok => "+OK".to_owned(),
            Op::Err(e) => format!("-ERR {}", text(e)),
        };
        log.log(crate::logging::Level::Trace, format_args!("{conn} - <<- [{line}]"));
        if let Op::Publish(p) = op {
            let body = text(log.traced(p.headers(), p.message));
            if body.is_empty() {
                return;
            }
            log.log(
                crate::logging::Level::Trace,
                format_args!("{conn} - <<- MSG_PAYLOAD: [{body:?}]"),
            );
        }
    }
}
