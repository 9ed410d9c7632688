//! Handling of a leaf node's protocol: interest, messages, and its identity.
//!
//! Its messages go the way of a client's publishes, so they keep their order with API calls and
//! wait where a log's queue is full; only who may get them is decided differently.

use self::joining::{MIN_VERSION_REJECTED, leaf_credentials, replace_older};
use super::callout::Introduction;
use super::connect::ConnectError;
use super::publish::Handled;
use super::told::Told;
use super::{ConnReader, Flow, Turn};
use crate::close_reason::CloseReason;
use crate::conn::{Added, Connection};
use crate::egress::{DirectWrites, Groups};
use crate::jetstream_port::{NodeQuestion, Requester};
use crate::leaf;
use crate::leaf::hello::{LeafConnect, LeafInfo, NodeInfo, Subjects};
use crate::link::PeerFacts;
use crate::link::rights::{Domains, LeafPermissions, LeafRights, is_internal_reply};
use crate::link::{LOOP_PREFIX, Link};
use crate::mapping::Mapping;
use crate::msg_trace::Support;
use crate::options::{LeafCompression, RemoteOptions, SubjectPermission};
use crate::served::NodeMessage;
use crate::server::Server;
use crate::slice::Deadline;
use crate::subscription::Subscription;
use bytes::Bytes;
use nuthatch_protocol::subject::{has_wildcard, is_valid_subject};
use nuthatch_protocol::wire::leaf::{LeafMessage, LeafParseError, split_delivery};
use nuthatch_protocol::wire::{LeafOp, LeafStep, Publish, parse_leaf_op, write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

mod deliveries;
mod joining;

/// State of a leaf node that only its reader touches.
#[derive(Default)]
pub(crate) struct LeafSide {
    /// We have opened the connection.
    solicited: Option<Box<Solicited>>,
    /// It was opened over a websocket.
    is_websocket: bool,
    /// What it is compressed with.
    compression: LeafCompression,
    /// Told once the other side is let in.
    admitted: Arc<AtomicBool>,
}

struct Solicited {
    remote: RemoteOptions,
    info: LeafInfo,
    isolated: bool,
    told: Arc<Told>,
}

impl LeafSide {
    /// The connection to this remote, which has greeted us like that.
    pub(crate) fn solicited(
        remote: RemoteOptions,
        info: LeafInfo,
        isolated: bool,
        told: Arc<Told>,
    ) -> Self {
        let solicited = Box::new(Solicited { remote, info, isolated, told });
        Self { solicited: Some(solicited), ..Self::default() }
    }

    /// A server that has connected over a websocket.
    pub(crate) fn over_websocket() -> Self {
        Self { is_websocket: true, ..Self::default() }
    }

    /// With what is told once the other side is let in.
    pub(crate) fn telling(self, admitted: Arc<AtomicBool>) -> Self {
        Self { admitted, ..self }
    }

    /// With a connection that is compressed like this.
    pub(crate) fn compressed(self, compression: LeafCompression) -> Self {
        Self { compression, ..self }
    }
}

/// A server that is too old for the other side waits so long.
const OLD_VERSION_PAUSE: Duration = Duration::from_secs(5);

const WRONG_PORT: ConnectError = ConnectError {
    reason: CloseReason::WrongPort,
    text: Some("attempted to connect to leaf node port"),
};

impl ConnReader {
    /// The reader of a connection to another server.
    pub(crate) fn of_leaf(
        server: Arc<Server>,
        conn: Arc<Connection>,
        nonce: String,
        side: LeafSide,
    ) -> Self {
        let mut reader = Self::new(server, conn, nonce);
        reader.expect_connect = false;
        reader.limits.headers = !reader.server.options().no_header_support;
        reader.connected = side.solicited.is_some();
        reader.leaf = Some(Box::new(side));
        reader
    }

    /// The reader of a connection to another node of the cluster, with which hellos were exchanged.
    pub(crate) fn of_node(server: Arc<Server>, conn: Arc<Connection>) -> Self {
        let mut reader = Self::of_leaf(server, conn, String::new(), LeafSide::default());
        reader.limits.headers = true;
        reader.connected = true;
        reader
    }

    /// CONNECT of a server that has opened the connection.
    pub(super) async fn handle_leaf_connect(&mut self, json: &[u8]) -> Result<(), ConnectError> {
        let connect: LeafConnect = crate::greeting::parse(json).map_err(|error| {
            let (log, conn) = (&self.server.log, &self.conn);
            log.error(format_args!("{conn} - invalid CONNECT of a leaf node: {error}"));
            ConnectError { reason: CloseReason::ProtocolViolation, text: None }
        })?;
        if !connect.lang.is_empty() || !connect.gateway.is_empty() {
            return Err(WRONG_PORT);
        }
        let auth = self.server.leafs.auth().unwrap_or_else(|| self.server.auth());
        let mut credentials = leaf_credentials(&connect, &self.conn);
        if self.leaf.as_ref().is_some_and(|side| side.is_websocket) {
            let options = self.server.options();
            let own = options.websocket.as_ref();
            credentials.origin.is_websocket = true;
            credentials.origin.no_auth_user = own.and_then(|own| own.no_auth_user.clone());
        }
        let introduction =
            Introduction { name: &connect.name, version: &connect.version, ..Default::default() };
        let checked = self.check_with(auth, credentials, introduction).await;
        let identity = checked.map_err(|refused| self.refused(&refused, " of a leaf node"))?;
        let Some(account) = self.server.accounts.by_name(&identity.account) else {
            let text = Some("Failed Account Registration");
            return Err(ConnectError { reason: CloseReason::MissingAccount, text });
        };
        let session = Arc::make_mut(&mut self.session);
        session.account = account;
        session.user.clone_from(&identity.user);
        session.grant.clone_from(&identity.grant);
        session.name.clone_from(&connect.name);
        session.version.clone_from(&connect.version);
        session.headers = connect.headers && !self.server.options().no_header_support;
        self.check_version(&connect.version)?;
        if let Some(side) = &self.leaf {
            side.admitted.store(true, Ordering::Relaxed);
        }
        self.connected = true;
        self.bound_payload();
        self.conn.set_session(self.session.clone());
        self.conn.connected.notify_one();
        let user = identity.rights.map(|rights| rights.source.clone()).unwrap_or_default();
        self.let_in(connect, user);
        self.server.recheck_grant(&self.conn);
        Ok(())
    }

    /// Tells a server that it is in, and begins to exchange interest.
    fn let_in(&self, connect: LeafConnect, user: crate::options::Permissions) {
        let (server, conn, account) = (&self.server, &self.conn, &self.session.account);
        let Some(facts) = self.facts_of_accepted(connect, &user) else { return };
        replace_older(server, conn, &facts);
        let subjects =
            |permission: &Option<SubjectPermission>| permission.as_ref().map(Subjects::of);
        let is_system = account.id == server.accounts.system().id;
        let (import, export) = (subjects(&user.subscribe), subjects(&user.publish));
        let info = LeafInfo::greeting(server, conn, "");
        conn.send(&info.welcome(&account.name, is_system, import, export).encode());
        leaf::join(server, conn, Link::new(facts));
    }

    fn facts_of_accepted(
        &self,
        connect: LeafConnect,
        user: &crate::options::Permissions,
    ) -> Option<PeerFacts> {
        let options = self.server.options();
        let own = options.leafnodes.as_ref()?;
        // What its user may subscribe to goes there, what it may publish comes from there.
        let mut outward = user.subscribe.clone().unwrap_or_default();
        outward.deny.extend(connect.deny_pub.unwrap_or_default());
        let terms = LeafPermissions { outward, inward: user.publish.clone().unwrap_or_default() };
        let is_spoke = connect.is_hub;
        let compression = self.leaf.as_ref().map_or("off", |side| side.compression.name());
        Some(PeerFacts {
            compression,
            rights: self.rights(&terms, &connect.domain, is_spoke),
            is_spoke,
            node: None,
            knows_by_table: false,
            is_core: false,
            solicited: false,
            isolated: own.isolated || connect.isolate,
            headers: connect.headers && !options.no_header_support,
            traces: Support::of(connect.protocol),
            remote_name: connect.name,
            remote_cluster: connect.cluster,
            remote_domain: connect.domain,
            remote_account: connect.remote_account,
            token: String::new(),
        })
    }

    fn facts_of_solicited(&self, side: &Solicited, welcome: LeafInfo) -> PeerFacts {
        let Solicited { remote, info, isolated, .. } = side;
        let mut terms = LeafPermissions {
            outward: welcome.export.unwrap_or_default().permission(),
            inward: welcome.import.unwrap_or_default().permission(),
        };
        terms.outward.deny.extend_from_slice(&remote.deny_exports);
        terms.inward.deny.extend_from_slice(&remote.deny_imports);
        let name = if info.server_name.is_empty() { &info.server_id } else { &info.server_name };
        PeerFacts {
            compression: self.leaf.as_ref().map_or("off", |side| side.compression.name()),
            rights: self.rights(&terms, &info.domain, !remote.hub),
            is_spoke: !remote.hub,
            node: None,
            knows_by_table: false,
            is_core: false,
            solicited: true,
            isolated: *isolated || remote.isolated,
            headers: info.headers && !self.server.options().no_header_support,
            traces: Support::of(info.proto),
            remote_name: name.clone(),
            remote_cluster: info.cluster.clone(),
            remote_domain: info.domain.clone(),
            remote_account: welcome.remote_account,
            token: String::new(),
        }
    }

    fn rights(&self, terms: &LeafPermissions, remote_domain: &str, is_spoke: bool) -> LeafRights {
        let options = self.server.options();
        let enabled = options.has_jetstream();
        let own = options.jetstream.domain.as_deref().filter(|_| enabled).unwrap_or_default();
        let system = self.session.account.id == self.server.accounts.system().id;
        let domains = Domains { own, remote: remote_domain, enabled, system };
        let (log, conn) = (&self.server.log, &self.conn);
        log.info(format_args!(
            "{conn} - JetStream using domains: local \"{own}\", remote \"{remote_domain}\""
        ));
        LeafRights::new(terms, &domains, is_spoke)
    }
}

impl<'a> Turn<'a> {
    /// Handles operations of another server.
    pub(super) fn run_leaf(&mut self, from: usize) -> Flow {
        let mut at = from;
        let data: &'a bytes::Bytes = self.data;
        let mut deadline = Deadline::new();
        while at < data.len() {
            match parse_leaf_op(&data[at..], self.reader.limits.max_payload) {
                Ok(LeafStep::Op(LeafOp::Connect(json), used)) => {
                    at += used;
                    if !self.reader.connected {
                        return Flow::Connect { json: json.to_vec(), consumed: at };
                    }
                }
                Ok(LeafStep::Op(op, used)) => {
                    at += used;
                    self.handle_leaf(op);
                    if self.scratch.closed {
                        return Flow::Closed;
                    }
                    if deadline.is_over() {
                        return Flow::Rest { consumed: at };
                    }
                }
                Ok(LeafStep::Incomplete { need }) => return Flow::Done { consumed: at, need },
                Err(error) => {
                    self.leaf_parse_error(&error);
                    return Flow::Closed;
                }
            }
        }
        Flow::Done { consumed: at, need: 1 }
    }

    fn handle_leaf(&mut self, op: LeafOp<'a>) {
        match op {
            LeafOp::Message(message) => self.leaf_message(&message),
            LeafOp::Subscribe { subject, queue } => self.leaf_subscribe(subject, queue),
            LeafOp::Unsubscribe { subject, queue } => self.leaf_unsubscribe(subject, queue),
            LeafOp::Ping => self.out().extend_from_slice(write::PONG),
            LeafOp::Pong => self.reader.conn.ponged(),
            LeafOp::Info(json) => self.leaf_info(json),
            LeafOp::Err(text) => self.leaf_error(text),
            LeafOp::Ok | LeafOp::Connect(_) => {}
        }
    }

    fn leaf_parse_error(&mut self, error: &LeafParseError) {
        let (reason, text) = match error {
            LeafParseError::MaxPayload { .. } => {
                (CloseReason::MaxPayloadExceeded, Some("Maximum Payload Violation"))
            }
            LeafParseError::UnknownOperation => {
                (CloseReason::ParseError, Some("Unknown Protocol Operation"))
            }
            _ => (CloseReason::ProtocolViolation, None),
        };
        let (log, conn) = (&self.reader.server.log, &self.reader.conn);
        log.error(format_args!("{conn} - {error}"));
        self.fail(reason, text);
    }

    /// The other side has let us in, or has news that do not concern us.
    fn leaf_info(&mut self, json: &[u8]) {
        let reader = &*self.reader;
        if reader.conn.is_node() {
            return self.node_info(json);
        }
        let side = reader.leaf.as_ref().and_then(|side| side.solicited.as_ref());
        let Some(side) = side else { return };
        let info: LeafInfo = match crate::greeting::parse(json) {
            Ok(info) => info,
            Err(error) => {
                let (log, conn) = (&reader.server.log, &reader.conn);
                return log.error(format_args!("{conn} - INFO that cannot be read: {error}"));
            }
        };
        side.told.learn(&side.remote, info.leafnode_urls.as_deref());
        if !info.connect_info || reader.conn.link().is_some() {
            return;
        }
        let link = Link::new(reader.facts_of_solicited(side, info));
        let conn = reader.conn.clone();
        // Its writer stops waiting for this.
        conn.connected.notify_one();
        if !leaf::join(&self.reader.server, &conn, link) {
            self.scratch.closed = true;
        }
    }

    /// Another node of the cluster has news.
    fn node_info(&self, json: &[u8]) {
        let (server, conn) = (&self.reader.server, &self.reader.conn);
        let info: NodeInfo = match crate::greeting::parse(json) {
            Ok(info) => info,
            Err(error) => {
                return server
                    .log
                    .error(format_args!("{conn} - INFO that cannot be read: {error}"));
            }
        };
        let Some(link) = conn.link() else { return };
        if info.traces {
            link.takes_part_in_traces();
        }
        if !info.token.is_empty() {
            let account = &self.reader.session.account;
            let node = (&*link.remote_name, link.is_core);
            account.served.met(node, conn.outlet(), &info.token);
            account.served.learn_gets(&link.remote_name, info.gets());
            server.advertise(account);
        }
        if info.ldm && server.nodes.is_leaving(&link.remote_name) {
            let server = server.clone();
            tokio::spawn(async move { server.tell_clients().await });
        }
    }

    fn leaf_error(&mut self, text: &[u8]) {
        let text = String::from_utf8_lossy(text);
        let (log, conn) = (&self.reader.server.log, self.reader.conn.clone());
        log.error(format_args!("{conn} - Leafnode Error {text}"));
        if text.contains(MIN_VERSION_REJECTED)
            && let Some(link) = conn.link()
        {
            link.pause_for(OLD_VERSION_PAUSE);
        }
        if text.contains("Loop detected") {
            self.flush_stage();
            leaf::loop_detected(&self.reader.server, &conn, false);
            self.scratch.closed = true;
        }
    }

    /// Something came before CONNECT.
    fn leaf_stranger(&mut self) {
        self.fail(CloseReason::ProtocolViolation, Some("Authorization Violation"));
    }

    fn leaf_violation(&mut self, what: &str, subject: &[u8]) {
        let subject = crate::quote::go_quote(subject);
        let (log, conn) = (&self.reader.server.log, &self.reader.conn);
        log.error(format_args!(
            "{conn} - {what} Violation on {subject} - Check other side configuration"
        ));
        let verb = if what == "Publish" { "Publish" } else { "Subscription" };
        let text = format!("Permissions Violation for {verb} to {subject}");
        self.fail(CloseReason::ProtocolViolation, Some(&text));
    }

    fn leaf_subscribe(&mut self, subject: &[u8], queue: Option<(&[u8], u32)>) {
        let conn = self.reader.conn.clone();
        let account = self.reader.session.account.clone();
        let Some(link) = conn.link() else { return self.leaf_stranger() };
        let finds_loops = subject.starts_with(LOOP_PREFIX);
        if finds_loops && account.interest.is_own_loop(subject) {
            if link.node.is_some() {
                // A leaf node of that node has it from here: it finds out by its own.
                return;
            }
            self.flush_stage();
            leaf::loop_detected(&self.reader.server, &conn, true);
            self.scratch.closed = true;
            return;
        }
        if !is_valid_subject(subject) {
            return self.say_err("Invalid Subscription");
        }
        if !finds_loops && !has_wildcard(subject) && !link.rights.may_send(subject) {
            // A hub has told its spokes what they may do; a hub may well ask us for too much.
            if !link.is_spoke {
                self.leaf_violation("Subscription", subject);
            }
            return;
        }
        let key = key_of(subject, queue.map(|(name, _)| name));
        let make = || Some(Subscription::of_leaf(conn.outlet().clone(), subject, queue, &key));
        match conn.add_subscription(&key, self.reader.subscriptions_max(), make) {
            // What another node's clients see of other accounts is looked at there.
            Added::New(sub) if link.node.is_some() => self.take_in_alone(&account, &sub),
            Added::New(sub) => self.take_in(&account, &sub),
            Added::Known(known) => {
                if let Some((_, weight)) = queue {
                    account.interest.set_weight(&known, weight);
                }
            }
            Added::TooMany => self.say_err("maximum subscriptions exceeded"),
            Added::Invalid => unreachable!("the subject was looked at"),
        }
    }

    fn leaf_unsubscribe(&mut self, subject: &[u8], queue: Option<&[u8]>) {
        let conn = self.reader.conn.clone();
        let sub = conn.subscription(&key_of(subject, queue));
        if let Some(sub) = sub {
            conn.end_subscription(&sub);
        }
    }

    fn leaf_message(&mut self, message: &LeafMessage<'a>) {
        let publish = &message.publish;
        self.tally.messages += 1;
        self.tally.bytes += publish.message.len() as u64;
        let conn = self.reader.conn.clone();
        let Some(link) = conn.link() else { return self.leaf_stranger() };
        if let Some(what) = link.own_message(publish.subject) {
            return self.node_message(what, publish);
        }
        if !link.rights.may_take(publish.subject) && !link.was_handed(publish.subject) {
            return match is_internal_reply(publish.subject) {
                true => self.leaf_drop(publish.subject),
                false => self.leaf_refuse(publish.subject),
            };
        }
        self.groups = Groups::Named(message.queues);
        match publish.reply.and_then(split_delivery) {
            Some((reply, shown)) => self.leaf_delivery(publish, reply, shown),
            None if publish.header_len > 0 && self.may_ask_for_trace(publish) => {
                self.with_trace(publish, |turn, publish| turn.leaf_any(link, publish));
            }
            None => self.leaf_any(link, publish),
        }
        self.groups = Groups::All;
    }

    /// What another node says itself: no client sees it.
    #[cold]
    fn node_message(&mut self, what: &[u8], publish: &Publish<'_>) {
        if self.gets_of_nodes(what, publish) {
            return;
        }
        let (server, conn) = (self.reader.server.clone(), self.reader.conn.clone());
        let account = self.reader.session.account.clone();
        let node = conn.link().map(|link| link.remote_name.clone()).unwrap_or_default();
        match account.served.receive(&node, what, publish.payload()) {
            NodeMessage::Taken => {}
            NodeMessage::Table(change) => {
                account.interest.serves(conn.outlet(), change);
                server.nodes.tables_changed();
                server.jetstream().nodes_changed();
            }
            NodeMessage::Unknown => server.log.error(format_args!(
                "{conn} - message of node {node} that is not understood: {}",
                String::from_utf8_lossy(what)
            )),
            NodeMessage::Question { id, scope, call } => {
                // What came before it must be ahead of it, here and in the engines.
                self.hand_over();
                let served = account.served.clone();
                let answer = move |answer: Option<Vec<u8>>| {
                    served.answer(&node, id, answer.as_deref());
                };
                server.jetstream().node_asks(NodeQuestion {
                    from: Requester { account: account.id, client: Some(conn) },
                    scope,
                    call: call.to_owned(),
                    headers: Bytes::copy_from_slice(publish.headers()),
                    body: Bytes::copy_from_slice(publish.payload()),
                    answer: Box::new(answer),
                });
            }
        }
    }

    fn leaf_any(&mut self, link: &Link, publish: &Publish<'_>) {
        // A node of the cluster has applied the mappings.
        if link.node.is_none() && self.reader.session.account.mappings.any() {
            self.leaf_mapped(publish);
        } else {
            self.leaf_publish(publish);
        }
    }

    /// Under what the account's subject mappings make of the subject.
    fn leaf_mapped(&mut self, publish: &Publish<'_>) {
        let mut subject = std::mem::take(&mut self.scratch.mapped);
        let account = &self.reader.session.account;
        let (jetstream, rng) = (self.reader.server.jetstream(), &mut self.scratch.rng);
        match self.scratch.routes.map(account, jetstream, publish.subject, rng, &mut subject) {
            Mapping::Unchanged => self.leaf_publish(publish),
            Mapping::Dropped => self.note_mapped(b""),
            Mapping::Changed => {
                self.note_mapped(&subject);
                // The other side has chosen among groups of the subject before.
                if matches!(self.groups, Groups::Named(b"")) {
                    self.groups = Groups::All;
                }
                self.remapped = true;
                self.leaf_publish(&Publish { subject: &subject, ..*publish });
                self.remapped = false;
            }
        }
        self.scratch.mapped = subject;
    }

    fn leaf_publish(&mut self, publish: &Publish<'_>) {
        if let Some(forbidden) = self.leaf_forbidden(publish.subject) {
            return self.leaf_refuse(&forbidden);
        }
        if self.trace.is_some() {
            return self.route_traced(publish);
        }
        if self.waits(publish) {
            return;
        }
        let taken = match publish.subject.first() {
            Some(b'$') => self.reserved(publish),
            _ => Handled::No,
        };
        if taken == Handled::No && self.near_get(publish) {
            return;
        }
        self.route(publish, taken);
    }

    /// The subject that takes effect, after mappings and without the domain's prefix, if the other
    /// side may not publish to it.
    fn leaf_forbidden(&self, subject: &[u8]) -> Option<Vec<u8>> {
        let link = self.reader.conn.link()?;
        let may = |subject: &[u8]| link.rights.may_take_effect(subject);
        if self.remapped && !may(subject) {
            return Some(subject.to_vec());
        }
        self.effective(subject).filter(|effective| !may(effective))
    }

    /// A spoke keeps out what it does not want; a hub must be obeyed.
    fn leaf_refuse(&mut self, subject: &[u8]) {
        let is_spoke = self.reader.conn.link().is_some_and(|link| link.is_spoke);
        if !is_spoke {
            self.leaf_violation("Publish", subject);
        }
    }

    /// Hands over what was staged, ahead of a close.
    fn flush_stage(&mut self) {
        self.scratch.egress.flush(DirectWrites::READER);
    }
}

/// Key of a subscription in `LS+` and `LS-`.
fn key_of(subject: &[u8], queue: Option<&[u8]>) -> Box<[u8]> {
    match queue {
        None => subject.into(),
        Some(queue) => [subject, b" ", queue].concat().into_boxed_slice(),
    }
}
