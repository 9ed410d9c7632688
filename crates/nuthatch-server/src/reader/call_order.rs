//! Order of one connection's requests.
//!
//! Most API calls reach the queue of their log while they are read, so they stand there in order
//! with the publishes around them. Creating, updating and deleting a stream takes longer: until it
//! is done nobody can tell which stream a subject belongs to. What the client sends behind such a
//! call and what may depend on it waits here, in wire form; pings, core deliveries, acknowledgements
//! and all other connections do not.
//!
//! So does what is for a stream of a log that has no owner just now, since that has gone or hands it over, and all that the
//! client publishes behind it but acknowledgements: nobody was given any of it before, and what was sent first comes first.
//! Subscriptions go ahead.

use super::publish::Handled;
use super::{ConnReader, Turn};
use crate::jetstream_port::{LogId, Peer, StreamRoute};
use crate::msg_trace::Trace;
use crate::peer::TRACED_HINT;
use crate::served::{BETWEEN_MAX, Held};
use bytes::Bytes;
use nuthatch_protocol::wire::{Limits, Op, Publish, Step, parse_op, write};
use nuthatch_streams::{ClientBatch, Item};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tokio::sync::oneshot;

/// Bytes that wait behind a call; with more the connection is not read until the call is answered.
const WAITING_BYTES_MAX: usize = 1024 * 1024;
/// The same behind what is for a log without an owner: then all clients of the node may have something that waits.
const WAITING_FOR_OWNER_BYTES_MAX: usize = 64 * 1024;
/// Traces of publishes that wait; those beyond end without what streams do.
const TRACES_WAITING_MAX: usize = 64;

/// What waits was held to the client's limits when it came.
const OWN_LIMITS: Limits =
    Limits { max_payload: usize::MAX, max_control_line: usize::MAX, headers: true };

/// What is waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// A call that changes the registry of streams.
    Call,
    /// An owner of a log. What waits was not routed.
    Owner,
}

/// Traffic deferred behind a call that changes the registry of streams, or for want of the owner of a log.
pub(super) struct DeferredCalls {
    cause: Cause,
    /// Ends with the call, or when it is to be tried again.
    call: oneshot::Receiver<()>,
    /// Publishes in wire form: first these, then `tail`.
    head: Bytes,
    tail: Vec<u8>,
    /// What has become of each of them so far.
    begun: VecDeque<Begun>,
    /// The account's room that what waits for an owner takes.
    held: Option<Held>,
}

/// A publish that has become an item of a batch, as it came; reply and headers may be empty.
struct WireForm<'a> {
    subject: Cow<'a, [u8]>,
    reply: &'a [u8],
    headers: &'a [u8],
    body: &'a [u8],
}

/// What has become of a publish that waits.
#[derive(Default)]
struct Begun {
    /// Core subscribers were given it.
    routed: bool,
    /// They have taken it.
    delivered: bool,
    /// Its trace, if it is traced.
    trace: Option<Trace>,
    /// Since when it waits for an owner, if it does.
    since: Option<Instant>,
}

impl DeferredCalls {
    pub(super) fn new(call: oneshot::Receiver<()>) -> Self {
        Self::behind(Cause::Call, call)
    }

    fn behind(cause: Cause, call: oneshot::Receiver<()>) -> Self {
        let (head, tail, begun) = (Bytes::new(), Vec::new(), VecDeque::new());
        Self { cause, call, head, tail, begun, held: None }
    }

    fn push(&mut self, publish: &Publish<'_>, begun: Begun) {
        let (headers, body) = (publish.headers(), publish.payload());
        let before = self.tail.len();
        write::push_publish(&mut self.tail, publish.subject, publish.reply, headers, body);
        self.begun.push_back(begun);
        if let Some(held) = &mut self.held {
            held.grow(self.tail.len() - before);
        }
    }

    /// True if what comes next is not routed yet either: what waits for an owner, or behind that for a call, comes first.
    pub(super) fn is_unrouted(&self) -> bool {
        self.cause == Cause::Owner || self.begun.back().is_some_and(|begun| !begun.routed)
    }

    /// Room for one more trace.
    fn may_trace(&self) -> bool {
        self.begun.iter().filter(|begun| begun.trace.is_some()).count() < TRACES_WAITING_MAX
    }

    /// Takes publishes in wire form that were sent before all others.
    fn push_front(&mut self, publishes: &[u8], begun: impl Iterator<Item = Begun>) {
        if let Some(held) = &mut self.held {
            held.grow(publishes.len());
        }
        let head = std::mem::take(&mut self.head);
        self.tail = [publishes, &head[..], &self.tail[..]].concat();
        let mut all: VecDeque<Begun> = begun.collect();
        all.append(&mut self.begun);
        self.begun = all;
    }

    /// Takes what waited before and still does: behind what waits for an owner anew, if anything.
    fn take_rest(&mut self, head: Bytes, tail: Bytes, mut begun: VecDeque<Begun>) {
        if let Some(held) = &mut self.held {
            held.grow(head.len() + tail.len());
        }
        if !(self.head.is_empty() && self.tail.is_empty()) {
            let first = std::mem::take(&mut self.head);
            self.tail = [&first[..], &self.tail[..], &head[..], &tail[..]].concat();
        } else if head.is_empty() {
            self.head = tail;
        } else {
            self.head = head;
            self.tail = tail.into();
        }
        self.begun.append(&mut begun);
    }

    fn is_over(&mut self) -> bool {
        // An error means that the sender has gone, which is how a call ends.
        !matches!(self.call.try_recv(), Err(oneshot::error::TryRecvError::Empty))
    }

    /// True if so much waits that nothing more should be read.
    pub(super) fn is_full(&self) -> bool {
        let max = match self.cause {
            Cause::Call => WAITING_BYTES_MAX,
            Cause::Owner => WAITING_FOR_OWNER_BYTES_MAX,
        };
        let is_held = || self.held.as_ref().is_some_and(Held::is_too_much);
        self.head.len() + self.tail.len() > max || is_held()
    }

    /// Waits for the end of the call.
    pub(super) async fn over(&mut self) {
        // Either way it has ended.
        let _ = (&mut self.call).await;
    }
}

/// Subjects that never wait: acknowledgements and answers to flow control.
fn goes_ahead(subject: &[u8]) -> bool {
    subject.starts_with(b"$JS.ACK.") || subject.starts_with(b"$JS.FC.")
}

impl Turn<'_> {
    /// True if this publish waits for the end of a call; core subscribers have it then. Or for the owner of a log.
    pub(super) fn waits(&mut self, publish: &Publish<'_>) -> bool {
        let Some(deferred) = &mut self.reader.deferred else { return false };
        if goes_ahead(publish.subject) {
            return false;
        }
        // A trace that does not wait is finished without what streams do.
        if deferred.is_unrouted() {
            let trace = self.trace.take().filter(|_| deferred.may_trace());
            deferred.push(publish, Begun { trace, ..Begun::default() });
            return true;
        }
        let delivered = self.deliver_to_core(publish);
        if let Some(deferred) = &mut self.reader.deferred {
            let trace = self.trace.take().filter(|_| deferred.may_trace());
            deferred.push(publish, Begun { routed: true, delivered, trace, since: None });
        }
        true
    }

    /// True if this publish, which nobody takes, waits since the stream that it is for lacks its owner just now.
    #[cold]
    pub(super) fn waits_for_owner(&mut self, publish: &Publish<'_>) -> bool {
        let since = self.held_since.unwrap_or_else(Instant::now);
        // What another node has sent on waits at that node.
        if self.reader.conn.is_node() || self.trace.is_some() || since.elapsed() >= BETWEEN_MAX {
            return false;
        }
        let effective = self.effective(publish.subject);
        let subject = effective.as_deref().unwrap_or(publish.subject);
        let served = &self.reader.session.account.served;
        let Some(owned) = served.until_owned(subject) else { return false };
        let begun = Begun { since: Some(since), ..Begun::default() };
        match &mut self.reader.deferred {
            // An acknowledgement goes ahead of what waits, and waits itself where nobody takes it.
            Some(deferred) if deferred.is_unrouted() => deferred.push(publish, begun),
            Some(_) => return false,
            lane @ None => {
                let Some(held) = served.hold() else { return false };
                let mut deferred = DeferredCalls::behind(Cause::Owner, owned);
                deferred.held = Some(held);
                deferred.push(publish, begun);
                *lane = Some(Box::new(deferred));
            }
        }
        true
    }

    /// Gives core subscribers what waits and was not routed yet, since the connection is over; how many messages nobody has.
    fn give_up(&mut self, begun: &mut VecDeque<Begun>) -> usize {
        let (mut at, mut count) = (0, 0);
        while let Ok(Step::Op(Op::Publish(publish), used)) = parse_op(&self.data[at..], &OWN_LIMITS)
        {
            at += used;
            let Begun { routed, trace, .. } = begun.pop_front().unwrap_or_default();
            self.trace = trace;
            count += usize::from(routed || !self.deliver_to_core(&publish));
            self.trace = None;
            if at == self.data.len() {
                break;
            }
        }
        count
    }

    /// Handles publishes that have waited, up to the next that has to be waited for. Returns how
    /// many bytes of the turn's data they were.
    fn go_on(&mut self, begun: &mut VecDeque<Begun>) -> usize {
        let mut at = 0;
        while self.reader.deferred.is_none() && at < self.data.len() {
            let Ok(Step::Op(Op::Publish(publish), used)) = parse_op(&self.data[at..], &OWN_LIMITS)
            else {
                debug_assert!(false, "what waits was written by this module");
                return self.data.len();
            };
            at += used;
            let Begun { routed, delivered, trace, since } = begun.pop_front().unwrap_or_default();
            self.trace = trace;
            if !routed {
                self.held_since = since;
                match self.trace.is_some() {
                    true => self.route_traced(&publish),
                    false => self.route_anew(&publish),
                }
                (self.held_since, self.trace) = (None, None);
                continue;
            }
            let taken = match publish.subject.first() {
                Some(b'$') if self.trace.is_some() => self.reserved_traced(&publish, false),
                Some(b'$') => self.reserved(&publish),
                _ => Handled::No,
            };
            if taken == Handled::No {
                self.route_to_stream(&publish, delivered);
            }
            self.trace = None;
        }
        at
    }
}

impl ConnReader {
    /// Handles what has waited for a call, if that has ended.
    pub(super) fn settle_lane(&mut self) {
        while self.deferred.as_mut().is_some_and(|deferred| deferred.is_over()) {
            let Some(deferred) = self.deferred.take() else { return };
            self.go_on(*deferred);
        }
    }

    /// The connection is over and what is waited for is not there: core subscribers have what waits, and nobody else.
    pub(super) fn abandon_lane(&mut self) {
        let Some(deferred) = self.deferred.take() else { return };
        let DeferredCalls { head, tail, mut begun, .. } = *deferred;
        let mut count = 0;
        for part in [head, Bytes::from(tail)].iter().filter(|part| !part.is_empty()) {
            count += self.with_turn(part, |turn| turn.give_up(&mut begun)).0;
        }
        if count > 0 {
            self.server.refused_publishes.fetch_add(count as u64, Ordering::Relaxed);
            self.server.log.warn(format_args!(
                "{} - {count} messages that waited for an API call or the owner of a log were not handled",
                self.conn
            ));
        }
    }

    /// Has these publishes and direct gets of a client, which a log did not take that was closed here, wait for its next owner,
    /// before all that waits already; gives what cannot.
    pub(super) fn await_owner(
        &mut self,
        log: LogId,
        batch: ClientBatch<Peer>,
    ) -> Option<ClientBatch<Peer>> {
        let may_wait = self.leaf.is_none()
            && self.deferred.as_ref().is_none_or(|lane| lane.cause == Cause::Owner)
            && self.server.jetstream().is_handed_over(log);
        if !may_wait {
            return Some(batch);
        }
        // A lane that is there has its room.
        let held = match self.deferred {
            None => self.session.account.served.hold(),
            Some(_) => None,
        };
        if self.deferred.is_none() && held.is_none() {
            return Some(batch);
        }
        let ClientBatch { peer, buf, items } = batch;
        let (mut front, mut begun, mut rest) = (Vec::new(), Vec::new(), Vec::new());
        let (mut owned, since) = (None, Some(Instant::now()));
        for item in items {
            let form = self.wire_form(log, &item, &buf);
            let served = &self.session.account.served;
            if let (Some(form), None) = (&form, &owned) {
                owned = served.until_owned(&form.subject);
            }
            match form {
                Some(WireForm { subject, reply, headers, body }) if owned.is_some() => {
                    let reply = Some(reply).filter(|reply| !reply.is_empty());
                    write::push_publish(&mut front, &subject, reply, headers, body);
                    begun.push(Begun { since, ..Begun::default() });
                }
                _ => rest.push(item),
            }
        }
        if let Some(owned) = owned {
            let lane = self.deferred.get_or_insert_with(|| {
                Box::new(DeferredCalls { held, ..DeferredCalls::behind(Cause::Owner, owned) })
            });
            lane.push_front(&front, begun.into_iter());
        }
        (!rest.is_empty()).then_some(ClientBatch { peer, buf, items: rest })
    }

    /// An item as its publish came; `None`: it is none that waits.
    fn wire_form<'a>(&self, log: LogId, item: &Item, buf: &'a [u8]) -> Option<WireForm<'a>> {
        let (subject, parts) = match item {
            Item::Publish(publish) if publish.hint != TRACED_HINT => {
                let subject = Cow::Borrowed(publish.subject.of(buf));
                (subject, [publish.reply, publish.headers, publish.body])
            }
            Item::DirectGet(get) if !get.for_origin && get.unless_changed.is_none() => {
                let name = self.streams.name_of(StreamRoute { log, stream: get.stream })?;
                let mut subject = [b"$JS.API.DIRECT.GET.", name].concat();
                if !get.subject.is_empty() {
                    subject.push(b'.');
                    subject.extend_from_slice(get.subject.of(buf));
                }
                (Cow::Owned(subject), [get.reply, get.headers, get.body])
            }
            _ => return None,
        };
        let [reply, headers, body] = parts.map(|part| part.of(buf));
        Some(WireForm { subject, reply, headers, body })
    }

    fn go_on(&mut self, deferred: DeferredCalls) {
        let DeferredCalls { head, tail, mut begun, held, .. } = deferred;
        drop(held);
        let mut parts = [head, Bytes::from(tail)];
        for part in &mut parts {
            if self.deferred.is_none() && !part.is_empty() {
                let used = self.with_turn(part, |turn| turn.go_on(&mut begun)).0;
                *part = part.slice(used..);
            }
        }
        // Nothing was read meanwhile.
        if let Some(next) = &mut self.deferred {
            let [head, tail] = parts;
            next.take_rest(head, tail, begun);
        }
    }
}
