//! PUB and HPUB: permissions, routing, delivery.

use super::Turn;
use crate::egress::{DeliveryContext, EgressBatch, Outgoing};
use crate::jetstream_port::StreamRoute;
use crate::mapping::Mapping;
use crate::member_rng::MemberRng;
use crate::quote::go_quote;
use crate::route::{ForeignStream, RouteCache, deliver_on};
use nuthatch_protocol::subject::is_valid_literal;
use nuthatch_protocol::wire::{Publish, write};
use std::cell::Cell;

/// Buffers for the handling of one read, lent by the thread, so that idle connections own none.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) egress: EgressBatch,
    pub(super) routes: RouteCache,
    pub(super) rng: MemberRng,
    /// A subject that mappings have made.
    pub(super) mapped: Vec<u8>,
    /// The connection was closed in this turn.
    pub(super) closed: bool,
}

thread_local! {
    static SCRATCH: Cell<Option<Scratch>> = const { Cell::new(None) };
}

impl Scratch {
    pub(super) fn take() -> Self {
        SCRATCH.take().unwrap_or_default()
    }

    /// The parts that a delivery needs.
    pub(super) fn split(&mut self) -> (&mut EgressBatch, &mut MemberRng) {
        (&mut self.egress, &mut self.rng)
    }

    pub(super) fn give_back(mut self) {
        self.closed = false;
        SCRATCH.set(Some(self));
    }
}

/// Whether the server itself handled a publish.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Handled {
    /// The server took it; core subscribers may get it too.
    ByServer,
    /// It is an ordinary subject.
    No,
}

impl Turn<'_> {
    pub(super) fn publish(&mut self, publish: &Publish<'_>) {
        self.tally.messages += 1;
        self.tally.bytes += publish.message.len() as u64;
        if self.reader.session.pedantic && !is_valid_literal(publish.subject) {
            self.say_err("Invalid Publish Subject");
        }
        if !publish.headers().is_empty() && self.may_ask_for_trace(publish) {
            self.publish_traced(publish);
        } else {
            self.publish_to_any(publish);
        }
    }

    #[inline]
    pub(super) fn publish_to_any(&mut self, publish: &Publish<'_>) {
        if self.reader.session.account.mappings.any() {
            self.publish_mapped(publish);
        } else {
            self.publish_as(publish);
        }
    }

    /// Publishes under what the account's subject mappings make of the subject.
    fn publish_mapped(&mut self, publish: &Publish<'_>) {
        let mut subject = std::mem::take(&mut self.scratch.mapped);
        let account = &self.reader.session.account;
        let (jetstream, rng) = (self.reader.server.jetstream(), &mut self.scratch.rng);
        match self.scratch.routes.map(account, jetstream, publish.subject, rng, &mut subject) {
            Mapping::Unchanged => self.publish_as(publish),
            Mapping::Dropped => {
                self.note_mapped(b"");
                self.say_ok();
            }
            Mapping::Changed => {
                self.note_mapped(&subject);
                self.remapped = true;
                self.publish_as(&Publish { subject: &subject, ..*publish });
                self.remapped = false;
            }
        }
        self.scratch.mapped = subject;
    }

    fn publish_as(&mut self, publish: &Publish<'_>) {
        if !self.may_publish(publish) {
            return;
        }
        self.say_ok();
        if self.trace.is_some() {
            return self.route_traced(publish);
        }
        if self.waits(publish) {
            return;
        }
        self.route_anew(publish);
    }

    /// To whoever takes it, of a publish that nobody was given before.
    #[inline]
    pub(super) fn route_anew(&mut self, publish: &Publish<'_>) {
        let taken = if publish.subject.first() == Some(&b'$') {
            let taken = self.reserved(publish);
            if taken == Handled::ByServer && !self.reader.session.account.interest.sees_reserved() {
                return;
            }
            if taken == Handled::No && self.near_get(publish) {
                return;
            }
            taken
        } else {
            Handled::No
        };
        self.route(publish, taken);
    }

    fn may_publish(&mut self, publish: &Publish<'_>) -> bool {
        let is_free = self.reader.session.rights.is_none() && !is_gateway_subject(publish.subject);
        if !is_free && let Some(forbidden) = self.forbidden(publish.subject) {
            self.publish_violation(&forbidden);
            return false;
        }
        if let Some(reply) = publish.reply
            && is_reserved_reply(reply)
        {
            self.reply_violation(reply);
            return false;
        }
        true
    }

    #[cold]
    pub(super) fn publish_violation(&mut self, subject: &[u8]) {
        let subject = go_quote(subject);
        let (log, conn) = (&self.reader.server.log, &self.reader.conn);
        log.error(format_args!("{conn} - Publish Violation - Subject {subject}"));
        let text = format!("Permissions Violation for Publish to {subject}");
        self.note_refused(&text);
        self.say_err(&text);
    }

    #[cold]
    fn reply_violation(&mut self, reply: &[u8]) {
        let reply = go_quote(reply);
        let (log, conn) = (&self.reader.server.log, &self.reader.conn);
        log.error(format_args!("{conn} - Publish Violation - Reply {reply}"));
        let text = format!("Permissions Violation for Publish with Reply of {reply}");
        self.note_refused(&text);
        self.say_err(&text);
    }

    /// The subject that this client may not publish to, if it is this one or what takes effect in
    /// its place.
    #[inline(never)]
    fn forbidden(&self, subject: &[u8]) -> Option<Vec<u8>> {
        if let Some(rights) = &self.reader.session.rights {
            let conn = &self.reader.conn;
            let is_allowed =
                |subject: &[u8]| rights.may_publish(subject) || conn.response_allowed(subject);
            if !is_allowed(subject) {
                return Some(subject.to_vec());
            }
            let effective = self.effective(subject).filter(|effective| !is_allowed(effective));
            if effective.is_some() {
                return effective;
            }
        }
        is_gateway_subject(subject).then(|| subject.to_vec())
    }

    /// To core subscribers, and to the stream that owns the subject.
    #[inline]
    pub(super) fn route(&mut self, publish: &Publish<'_>, taken: Handled) {
        let reader = &mut *self.reader;
        let session = &reader.session;
        let jetstream = reader.server.jetstream();
        let scratch = &mut self.scratch;
        let route = scratch.routes.lookup(&session.account, jetstream, publish.subject);
        let stream = route.stream.filter(|_| taken == Handled::No);
        let foreign_streams = route.foreign_streams.clone();
        let mut delivered = taken == Handled::ByServer || stream.is_some();
        if !route.matched.is_empty() {
            let message = outgoing(publish, self.data);
            let (from, groups) = (Some(reader.conn.outlet()), self.groups);
            let Scratch { egress, rng, .. } = scratch;
            let trace = self.trace.as_mut();
            let mut way =
                DeliveryContext { from, egress, rng, hops: 0, by_service: false, groups, trace };
            delivered |= deliver_on(&route.matched, &message, &mut way);
        }
        let has_foreign = foreign_streams.is_some();
        if let Some(foreign_streams) = foreign_streams {
            self.publish_foreign(publish, &foreign_streams);
        }
        if let Some(stream) = stream {
            self.publish_to_own_stream(publish, stream);
        } else if !delivered {
            self.nobody_takes(publish, has_foreign);
        }
    }

    /// To core subscribers only: whether anybody took it.
    pub(super) fn deliver_to_core(&mut self, publish: &Publish<'_>) -> bool {
        let reader = &mut *self.reader;
        let scratch = &mut self.scratch;
        let account = &reader.session.account;
        let route = scratch.routes.lookup(account, reader.server.jetstream(), publish.subject);
        let foreign_streams = route.foreign_streams.clone();
        let message = outgoing(publish, self.data);
        let (from, groups) = (Some(reader.conn.outlet()), self.groups);
        let Scratch { egress, rng, .. } = scratch;
        let trace = self.trace.as_mut();
        let mut way =
            DeliveryContext { from, egress, rng, hops: 0, by_service: false, groups, trace };
        let taken = deliver_on(&route.matched, &message, &mut way);
        if let Some(foreign_streams) = foreign_streams {
            self.publish_foreign(publish, &foreign_streams);
        }
        taken
    }

    /// To the stream of the account that owns the subject.
    #[inline]
    fn publish_to_own_stream(&mut self, publish: &Publish<'_>, stream: StreamRoute) {
        if self.remapped {
            self.publish_copied(publish, stream);
        } else {
            self.publish_to_stream(publish, stream);
        }
    }

    /// To streams of other accounts that store what they import.
    #[cold]
    fn publish_foreign(&mut self, publish: &Publish<'_>, foreign_streams: &[ForeignStream]) {
        for stream in foreign_streams {
            // Its acknowledgement would go to an inbox of the other account.
            let publish = Publish { subject: &stream.subject, reply: None, ..*publish };
            match self.trace.is_some() {
                true => self.publish_foreign_traced(&publish, stream),
                false => self.publish_copied(&publish, stream.route),
            }
        }
    }

    /// To the stream that owns the subject, of a publish that core subscribers have had.
    pub(super) fn route_to_stream(&mut self, publish: &Publish<'_>, delivered: bool) {
        let reader = &mut *self.reader;
        let account = &reader.session.account;
        let jetstream = reader.server.jetstream();
        let route = self.scratch.routes.lookup(account, jetstream, publish.subject);
        match (route.stream, route.foreign_streams.is_some()) {
            (Some(stream), _) if self.trace.is_some() => self.publish_copied(publish, stream),
            (Some(stream), _) => self.publish_to_stream(publish, stream),
            (None, _) if delivered => {}
            // Another server says which queue groups are to have it, and that is not known any more.
            (None, has_foreign)
                if has_foreign || self.trace.is_some() || self.reader.leaf.is_some() =>
            {
                self.nobody_listens(publish);
            }
            // Nobody was given it, and somebody may take it by now.
            (None, _) => self.route_anew(publish),
        }
    }

    /// Nobody took it: it waits if that is so only for a moment, unless a stream of another account has it already.
    #[inline]
    fn nobody_takes(&mut self, publish: &Publish<'_>, has_foreign: bool) {
        let is_asked = self.reader.session.no_responders && publish.reply.is_some();
        if is_asked && (has_foreign || !self.waits_for_owner(publish)) {
            self.no_responders(publish);
        }
    }

    #[inline]
    fn nobody_listens(&mut self, publish: &Publish<'_>) {
        if self.reader.session.no_responders && publish.reply.is_some() {
            self.no_responders(publish);
        }
    }

    /// Sends "no responders" to a publisher that asked for it, if it listens for the answer.
    #[cold]
    fn no_responders(&mut self, publish: &Publish<'_>) {
        let Some(reply) = publish.reply else { return };
        if let Some(sub) = self.reader.conn.subscription_for(reply) {
            write::push_no_responders(self.out(), reply, &sub.sid, publish.subject);
        }
    }
}

/// A publish as its receivers get it.
#[inline]
fn outgoing<'a>(publish: &Publish<'a>, data: &'a bytes::Bytes) -> Outgoing<'a> {
    Outgoing {
        subject: publish.subject,
        routed: publish.subject,
        reply: publish.reply.unwrap_or_default(),
        headers: publish.headers(),
        body: publish.payload(),
        owner: Some(data),
    }
}

/// Subjects that gateways route replies by; clients may not publish to them.
#[inline]
pub(super) fn is_gateway_subject(subject: &[u8]) -> bool {
    matches!(subject.first(), Some(b'$' | b'_'))
        && (subject.starts_with(b"_GR_.") || subject.starts_with(b"$GR."))
}

/// Reply subjects that only the server may use.
fn is_reserved_reply(reply: &[u8]) -> bool {
    const RESERVED: [&[u8]; 4] = [b"$JS.ACK.", b"_R_.", b"_GR_.", b"$GR."];
    matches!(reply.first(), Some(b'$' | b'_'))
        && RESERVED.iter().any(|prefix| reply.starts_with(prefix) && reply.len() > prefix.len())
}
