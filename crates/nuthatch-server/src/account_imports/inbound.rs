//! Messages that enter an account from another one: to its subscribers, its streams, and its
//! JetStream API.

use super::{ImportHost, request_info};
use crate::account::Account;
use crate::egress::{DeliveryContext, Outgoing};
use crate::interest::Matched;
use crate::jetstream_port::{ApiRequest, LogId, Requester, SendError, StreamRoute, Wanted};
use crate::meaning::{AckSubject, Meaning, Place, Request, meaning};
use crate::msg_trace::Trace;
use crate::peer::{EnginePeer, Peer};
use crate::route::deliver_on;
use crate::traced_publish::{self, Stored};
use bytes::Bytes;
use nuthatch_streams::{
    AccountId, AckItem, ClientBatch, DirectGetItem, Event, FlowItem, Item, Message, PublishItem,
    PullItem, Span,
};
use std::sync::Arc;

/// Answer to a publish that no queue would take.
const TOO_MANY: &[u8] = b"{\"error\":{\"code\":429,\"err_code\":10167,\"description\":\"too many requests\"},\"seq\":0}";
const TOO_MANY_HEADERS: &[u8] = b"NATS/1.0 429 Too Many Requests\r\n\r\n";

/// A message that enters an account.
#[derive(Clone, Copy, Debug)]
pub struct Inbound<'a> {
    /// Its subject, as receivers see it.
    pub subject: &'a [u8],
    /// The subject it is routed by.
    pub routed: &'a [u8],
    /// Reply subject or empty.
    pub reply: &'a [u8],
    /// Header block or empty.
    pub headers: &'a [u8],
    /// Body.
    pub body: &'a [u8],
}

/// Routes a message inside `account` as one of its own clients' publishes would be. Returns whether
/// anybody took it.
pub fn route_inbound(
    host: &dyn ImportHost,
    account: &Arc<Account>,
    message: &Inbound<'_>,
    way: &mut DeliveryContext<'_>,
) -> bool {
    let jetstream = host.jetstream();
    if message.routed.starts_with(b"$JS.")
        && jetstream.enabled(account.id)
        && to_jetstream(host, account, message, way)
    {
        return true;
    }
    let mut matched = Matched::default();
    account.interest.match_into(message.routed, &mut matched);
    let mut taken = false;
    if !matched.is_empty() {
        let Inbound { subject, routed, reply, headers, body } = *message;
        let outgoing = Outgoing { subject, routed, reply, headers, body, owner: None };
        taken |= deliver_on(&matched, &outgoing, way);
    }
    // A consumer's delivery is not published: no stream stores it.
    if message.subject == message.routed
        && let Some(route) = jetstream.find(account.id, Wanted::owner(message.routed))
    {
        to_stream(host, account, route, message, way);
        taken = true;
    }
    taken
}

/// Stores a message in the stream that owns its subject.
pub fn to_stream(
    host: &dyn ImportHost,
    account: &Arc<Account>,
    route: StreamRoute,
    message: &Inbound<'_>,
    way: &DeliveryContext<'_>,
) {
    let headers = request_info::strip(message.headers);
    if let Some(trace) = &way.trace {
        let Inbound { subject, reply, body, .. } = *message;
        let headers = &headers[..];
        let stored = Stored { account: account.id, route, subject, reply, headers, body };
        return to_stream_traced(host, trace, &stored, way);
    }
    let mut parts = Parts::new(message, &headers);
    let item = PublishItem {
        stream: route.stream,
        hint: 0,
        subject: parts.span(message.subject),
        reply: parts.span(message.reply),
        headers: parts.span(&headers),
        body: parts.span(message.body),
    };
    if parts.send(host, route.log, Item::Publish(item), false, way).is_err() {
        refuse(host, account.id, message.reply);
    }
}

/// Answers a publish that no queue took.
fn refuse(host: &dyn ImportHost, account: AccountId, reply: &[u8]) {
    if !reply.is_empty() {
        let headers = TOO_MANY_HEADERS;
        host.publish(account, &Message { subject: reply, reply: b"", headers, body: TOO_MANY });
    }
}

/// The same of a message that is traced.
#[cold]
fn to_stream_traced(
    host: &dyn ImportHost,
    trace: &Trace,
    stored: &Stored<'_>,
    way: &DeliveryContext<'_>,
) {
    let outlet = way.from.map_or_else(|| host.own_peer().outlet.clone(), |from| (*from).clone());
    let batch = traced_publish::batch(trace, host.jetstream(), &outlet, stored);
    let Some(batch) = batch else { return };
    let peer = batch.peer.clone();
    if host.jetstream().send(stored.route.log, Event::Batch(batch), false, 0).is_err() {
        peer.answered(TOO_MANY);
        refuse(host, stored.account, stored.reply);
    }
}

/// The bytes of an item, copied together.
struct Parts {
    bytes: Vec<u8>,
}

impl Parts {
    fn new(message: &Inbound<'_>, headers: &[u8]) -> Self {
        let Inbound { subject, reply, body, .. } = message;
        let room = subject.len() + reply.len() + headers.len() + body.len();
        Self { bytes: Vec::with_capacity(room) }
    }

    fn span(&mut self, part: &[u8]) -> Span {
        if part.is_empty() {
            return Span::default();
        }
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(part);
        Span { start, end: self.bytes.len() as u32 }
    }

    fn send(
        self,
        host: &dyn ImportHost,
        log: LogId,
        item: Item,
        privileged: bool,
        way: &DeliveryContext<'_>,
    ) -> Result<(), SendError> {
        let peer = peer_of(host, way);
        let batch = ClientBatch { peer, buf: Bytes::from(self.bytes), items: vec![item] };
        host.jetstream().send(log, Event::Batch(batch), privileged, 0)
    }
}

fn peer_of(host: &dyn ImportHost, way: &DeliveryContext<'_>) -> Peer {
    way.from.map_or_else(|| host.own_peer().clone(), |from| EnginePeer::new(from.clone()))
}

/// Takes `$JS.…` subjects that JetStream serves; `false`: it is none of them.
pub fn to_jetstream(
    host: &dyn ImportHost,
    account: &Arc<Account>,
    message: &Inbound<'_>,
    way: &mut DeliveryContext<'_>,
) -> bool {
    let place = Place::new(host.jetstream().domain(), &account.name);
    let Some(request) = meaning(&place, message.routed).and_then(Meaning::request) else {
        return false;
    };
    if way.trace.is_some() {
        return traced_request(host, account, message, &request, way);
    }
    match request {
        Request::Ack(asked) => ack(host, account, message, &asked, way),
        Request::Flow { stream, consumer } => flow(host, account, message, (stream, consumer), way),
        Request::Pull { stream, consumer } => pull(host, account, message, (stream, consumer), way),
        Request::DirectGet { stream, subject } => {
            direct_get(host, account, message, (stream, subject), way)
        }
        Request::Call(rest) => {
            call(host, account, message, rest, way);
            true
        }
        Request::Bucket(subject) => {
            let bucket = Inbound { subject, routed: subject, ..*message };
            route_inbound(host, account, &bucket, way)
        }
    }
}

/// A request that is traced: what JetStream does with it is not, and what is only traced it does not
/// get. A call of the API is one to a service of the system account.
#[cold]
fn traced_request(
    host: &dyn ImportHost,
    account: &Arc<Account>,
    message: &Inbound<'_>,
    request: &Request<'_>,
    way: &mut DeliveryContext<'_>,
) -> bool {
    match request {
        Request::Bucket(subject) => {
            let bucket = Inbound { subject, routed: subject, ..*message };
            return route_inbound(host, account, &bucket, way);
        }
        Request::Call(rest) => {
            if let Some(trace) = &way.trace {
                let to = [b"$JS.API.", *rest].concat();
                trace.carried(host.system_account(), message.routed, &to);
            }
        }
        Request::Ack(_)
        | Request::Flow { .. }
        | Request::Pull { .. }
        | Request::DirectGet { .. } => {}
    }
    let Some(trace) = way.trace.take() else { return false };
    let taken = trace.only || to_jetstream(host, account, message, way);
    way.trace = Some(trace);
    taken
}

/// Hands a call of the API over, whose answer goes its own way.
fn call(
    host: &dyn ImportHost,
    account: &Arc<Account>,
    message: &Inbound<'_>,
    rest: &[u8],
    way: &DeliveryContext<'_>,
) {
    let subject = [b"$JS.API.", rest].concat();
    host.jetstream().api_request(ApiRequest {
        from: Requester { account: account.id, client: way.from.and_then(|from| from.client()) },
        subject: subject.into(),
        reply: Bytes::copy_from_slice(message.reply),
        headers: Bytes::copy_from_slice(message.headers),
        body: Bytes::copy_from_slice(message.body),
    });
}

fn ack(
    host: &dyn ImportHost,
    account: &Arc<Account>,
    message: &Inbound<'_>,
    ack: &AckSubject<'_>,
    way: &DeliveryContext<'_>,
) -> bool {
    let Some(route) = host.jetstream().find(account.id, Wanted::Named(ack.stream)) else {
        return false;
    };
    let mut parts = Parts::new(message, b"");
    let item = AckItem {
        stream: route.stream,
        hint: 0,
        consumer: parts.span(ack.consumer),
        delivered: ack.delivered,
        stream_seq: ack.stream_seq,
        consumer_seq: ack.consumer_seq,
        reply: parts.span(message.reply),
        body: parts.span(message.body),
    };
    parts.send(host, route.log, Item::Ack(item), true, way).is_ok()
}

fn flow(
    host: &dyn ImportHost,
    account: &Arc<Account>,
    message: &Inbound<'_>,
    (stream, consumer): (&[u8], &[u8]),
    way: &DeliveryContext<'_>,
) -> bool {
    let Some(route) = host.jetstream().find(account.id, Wanted::Named(stream)) else {
        return false;
    };
    let mut parts = Parts::new(message, b"");
    let (consumer, subject) = (parts.span(consumer), parts.span(message.routed));
    let headers = parts.span(message.headers);
    let item = FlowItem { stream: route.stream, consumer, subject, headers };
    parts.send(host, route.log, Item::Flow(item), true, way).is_ok()
}

fn pull(
    host: &dyn ImportHost,
    account: &Arc<Account>,
    message: &Inbound<'_>,
    (stream, consumer): (&[u8], &[u8]),
    way: &DeliveryContext<'_>,
) -> bool {
    let Some(route) = host.jetstream().find(account.id, Wanted::Named(stream)) else {
        return false;
    };
    let mut parts = Parts::new(message, b"");
    let item = PullItem {
        stream: route.stream,
        hint: 0,
        headers: parts.span(message.headers),
        consumer: parts.span(consumer),
        reply: parts.span(message.reply),
        body: parts.span(message.body),
    };
    parts.send(host, route.log, Item::Pull(item), true, way).is_ok()
}

/// True unless the message comes from another node of the cluster, which makes no second hop.
fn may_hop(way: &DeliveryContext<'_>) -> bool {
    way.from.is_none_or(|from| !from.leads_to_node())
}

fn direct_get(
    host: &dyn ImportHost,
    account: &Arc<Account>,
    message: &Inbound<'_>,
    (stream, subject): (&[u8], &[u8]),
    way: &DeliveryContext<'_>,
) -> bool {
    let jetstream = host.jetstream();
    let own = jetstream.find(account.id, Wanted::Named(stream));
    let for_origin = own.is_none();
    // What another node serves is asked there, whatever mirror of it is here.
    let name = std::str::from_utf8(stream);
    if for_origin && name.is_ok_and(|name| account.served.find(name).is_some()) {
        return false;
    }
    let Some(route) = own.or_else(|| jetstream.find(account.id, Wanted::MirrorOf(stream))) else {
        let origin = std::str::from_utf8(stream).ok().filter(|_| may_hop(way));
        let names = (message.routed, message.reply);
        return origin.is_some_and(|origin| {
            account.served.find(origin).is_none()
                && account.served.hand_to_mirror(origin, names, message.headers, message.body)
        });
    };
    let mut parts = Parts::new(message, b"");
    let item = DirectGetItem {
        unless_changed: None,
        stream: route.stream,
        for_origin,
        hint: 0,
        headers: parts.span(message.headers),
        subject: parts.span(subject),
        reply: parts.span(message.reply),
        body: parts.span(message.body),
    };
    parts.send(host, route.log, Item::DirectGet(item), true, way).is_ok()
}
