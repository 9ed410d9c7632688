//! JetStream traffic of a connection: recognised while reading, sent to engines in batches.

use super::call_order::DeferredCalls;
use super::publish::Handled;
use super::{ConnReader, Turn};
use crate::account_id::SYSTEM_ACCOUNT_ID;
use crate::egress::{DirectWrites, Outgoing};
use crate::jetstream_port::{ApiRequest, LogId, Requester, StreamRoute, Wanted};
use crate::meaning::{AckSubject, Meaning, Place, Request, effective_subject, meaning};
use crate::peer::MuxRoute;
use crate::system_port::{OwnRequest, own_document};
use bytes::Bytes;
use memchr::memrchr;
use nuthatch_log::Lsn;
use nuthatch_protocol::subject::has_wildcard;
use nuthatch_protocol::wire::Publish;
use nuthatch_streams::{
    AckItem, ClientBatch, DirectGetItem, FlowItem, Item, Message, PublishItem, PullItem, Span,
    UnlessChanged,
};
use std::borrow::Cow;
use std::sync::Arc;

/// A batch that uses less than this share of its buffer is copied out, so that a small message
/// never pins a large buffer.
const COPY_SHARE: usize = 4;
/// Items to make room for: one per so many bytes read, up to so many.
pub(super) const LIKELY_ITEM_BYTES: usize = 192;
const LIKELY_ITEMS_MAX: usize = 512;
/// The call for account info.
const API_INFO: &[u8] = b"$JS.API.INFO";
/// Items for engines, collected during one turn.
pub(super) type Batches = Vec<(LogId, Vec<Item>)>;

/// Streams that a connection remembers by name; then the oldest gives way.
const STREAMS_MAX: usize = 8;

/// Streams that acknowledgements, pulls and gets of one connection have named lately.
#[derive(Default)]
pub(super) struct StreamCache {
    /// The JetStream port's version under which they hold.
    version: u64,
    known: Vec<(Box<[u8]>, StreamRoute)>,
    oldest: usize,
}

impl StreamCache {
    /// The stream of this name: remembered, if nothing has changed, or found by `find`.
    #[inline]
    fn lookup(
        &mut self,
        version: u64,
        name: &[u8],
        find: impl FnOnce() -> Option<StreamRoute>,
    ) -> Option<StreamRoute> {
        if self.version != version {
            self.version = version;
            self.known.clear();
            self.oldest = 0;
        }
        if let Some((_, route)) = self.known.iter().find(|(known, _)| **known == *name) {
            return Some(*route);
        }
        let route = find()?;
        if self.known.len() < STREAMS_MAX {
            self.known.push((name.into(), route));
        } else {
            self.known[self.oldest] = (name.into(), route);
            self.oldest = (self.oldest + 1) % STREAMS_MAX;
        }
        Some(route)
    }
}

impl StreamCache {
    /// The name by which this stream was found, if it is remembered.
    pub(super) fn name_of(&self, stream: StreamRoute) -> Option<&[u8]> {
        self.known.iter().find(|(_, known)| *known == stream).map(|(name, _)| &**name)
    }
}

/// The inbox whose replies need no look at the account's interest.
pub(super) struct MuxCache {
    version: u64,
    prefix: Box<[u8]>,
    hint: u32,
}

impl Turn<'_> {
    /// Publishes to `$…`: JetStream's and the system's own subjects.
    pub(super) fn reserved(&mut self, publish: &Publish<'_>) -> Handled {
        let subject = publish.subject;
        if self.remapped {
            return self.reserved_elsewhere(publish);
        }
        if let Some(rest) = subject.strip_prefix(b"$JS.") {
            let (jetstream, account) =
                (self.reader.server.jetstream(), &self.reader.session.account);
            if !jetstream.enabled(account.id) {
                return self.without_jetstream(publish, rest);
            }
            let place = Place::new(jetstream.domain(), &account.name);
            let request = meaning(&place, subject).and_then(Meaning::request);
            return request.map_or(Handled::No, |request| self.request(publish, request));
        } else if subject == b"$SYS.REQ.USER.INFO" {
            return self.user_info(publish);
        } else if let Some(request) = own_document(subject) {
            return self.account_request(publish, request);
        }
        Handled::No
    }

    #[inline]
    fn request(&mut self, publish: &Publish<'_>, request: Request<'_>) -> Handled {
        match request {
            Request::Ack(ack) => self.ack(publish, &ack),
            Request::Flow { stream, consumer } => self.flow(publish, stream, consumer),
            Request::Pull { stream, consumer } => self.pull(publish, stream, consumer),
            Request::DirectGet { stream, subject } => {
                self.direct_get(publish, (stream, subject), None)
            }
            Request::Call(rest) => self.call(publish, rest),
            Request::Bucket(subject) => self.publish_bucket(publish, subject),
        }
    }

    /// The subject that takes effect in place of this one, if it is another: see
    /// [`crate::meaning`].
    pub(super) fn effective(&self, subject: &[u8]) -> Option<Vec<u8>> {
        let (jetstream, account) = (self.reader.server.jetstream(), &self.reader.session.account);
        if !subject.starts_with(b"$JS.") || !jetstream.understands(account.id) {
            return None;
        }
        match effective_subject(&Place::new(jetstream.domain(), &account.name), subject) {
            Cow::Owned(effective) => Some(effective),
            Cow::Borrowed(_) => None,
        }
    }

    /// A key-value bucket or an object store was written to with the domain's prefix, which is how
    /// clients write to those of a domain.
    pub(super) fn publish_bucket(&mut self, publish: &Publish<'_>, subject: &[u8]) -> Handled {
        self.route(&Publish { subject, ..*publish }, Handled::No);
        Handled::ByServer
    }

    /// An account without JetStream on a server that has it: API calls are told so, unless the
    /// account imports another account's API. One that imports account info from there uses the other
    /// account's JetStream: nobody answers what it does not import, as upstream.
    #[cold]
    fn without_jetstream(&mut self, publish: &Publish<'_>, rest: &[u8]) -> Handled {
        let is_served = self.reader.server.jetstream().runs();
        let account = &self.reader.session.account;
        let is_imported =
            || account.interest.any(publish.subject) || account.imports.serves(API_INFO);
        match rest.strip_prefix(b"API.") {
            Some(rest) if is_served && !is_imported() => {
                Request::of_api(rest).map_or(Handled::No, |request| self.request(publish, request))
            }
            Some(rest) if !is_served && account.served.has_nodes() && !is_imported() => {
                self.hand_to_leader(publish, rest)
            }
            _ => Handled::No,
        }
    }

    /// This node has no JetStream, others of its cluster do. Pulls and gets go to who listens for them.
    fn hand_to_leader(&mut self, publish: &Publish<'_>, rest: &[u8]) -> Handled {
        if !matches!(Request::of_api(rest), Some(Request::Call(_))) || self.reader.conn.is_node() {
            return Handled::No;
        }
        self.hand_over();
        let subject = [b"$JS.API.", rest].concat();
        let names = (&subject[..], publish.reply.unwrap_or_default());
        let served = &self.reader.session.account.served;
        match served.hand_to_leader(names, publish.headers(), publish.payload()) {
            true => Handled::ByServer,
            false => Handled::No,
        }
    }

    fn span(&self, part: &[u8]) -> Span {
        if part.is_empty() {
            return Span::default();
        }
        let start = part.as_ptr() as usize - self.data.as_ptr() as usize;
        Span { start: start as u32, end: (start + part.len()) as u32 }
    }

    fn stream(&mut self, name: &[u8]) -> Option<StreamRoute> {
        let ConnReader { server, session, streams, .. } = &mut *self.reader;
        let (jetstream, account) = (server.jetstream(), session.account.id);
        // Read before the look-up: what changes in between makes the result look old, not new.
        let version = jetstream.version();
        streams.lookup(version, name, || jetstream.find(account, Wanted::Named(name)))
    }

    fn push(&mut self, log: LogId, item: Item) {
        let version = self.reader.server.jetstream().version();
        if version != self.reader.seen {
            return self.push_alone(log, item, version);
        }
        if !self.copied.is_empty() {
            self.hand_over();
        }
        match self.batches.iter_mut().find(|(known, _)| *known == log) {
            Some((_, items)) => items.push(item),
            None => {
                let likely = (self.data.len() / LIKELY_ITEM_BYTES).clamp(1, LIKELY_ITEMS_MAX);
                let mut items = Vec::with_capacity(likely);
                items.push(item);
                self.batches.push((log, items));
            }
        }
    }

    /// Streams have come, gone or moved since this turn began: the item goes by itself, behind what
    /// came before it, since it may have been routed before or after that.
    #[cold]
    fn push_alone(&mut self, log: LogId, item: Item, version: u64) {
        self.hand_over();
        self.batches.push((log, vec![item]));
        self.hand_over();
        self.reader.seen = version;
    }

    pub(super) fn publish_to_stream(&mut self, publish: &Publish<'_>, route: StreamRoute) {
        let reply = publish.reply.unwrap_or_default();
        let item = PublishItem {
            stream: route.stream,
            hint: self.mux_hint(reply),
            subject: self.span(publish.subject),
            reply: self.span(reply),
            headers: self.span(publish.headers()),
            body: self.span(publish.payload()),
        };
        self.push(route.log, Item::Publish(item));
    }

    fn ack(&mut self, publish: &Publish<'_>, ack: &AckSubject<'_>) -> Handled {
        let Some(route) = self.stream(ack.stream) else { return Handled::No };
        let reply = publish.reply.unwrap_or_default();
        let item = AckItem {
            stream: route.stream,
            hint: self.mux_hint(reply),
            consumer: self.span(ack.consumer),
            delivered: ack.delivered,
            stream_seq: ack.stream_seq,
            consumer_seq: ack.consumer_seq,
            reply: self.span(reply),
            body: self.span(publish.payload()),
        };
        self.push(route.log, Item::Ack(item));
        Handled::ByServer
    }

    fn flow(&mut self, publish: &Publish<'_>, stream: &[u8], consumer: &[u8]) -> Handled {
        let Some(route) = self.stream(stream) else { return Handled::No };
        let (consumer, subject) = (self.span(consumer), self.span(publish.subject));
        let headers = self.span(publish.headers());
        let item = FlowItem { stream: route.stream, consumer, subject, headers };
        self.push(route.log, Item::Flow(item));
        Handled::ByServer
    }

    /// `rest` is what follows `$JS.API.`.
    fn call(&mut self, publish: &Publish<'_>, rest: &[u8]) -> Handled {
        // What came before the request must be ahead of it, here and in the engines.
        self.hand_over();
        let mut subject = Vec::with_capacity(8 + rest.len());
        subject.extend_from_slice(b"$JS.API.");
        subject.extend_from_slice(rest);
        let from = Requester {
            account: self.reader.session.account.id,
            client: Some(self.reader.conn.clone()),
        };
        let change = self.reader.server.jetstream().api_request(ApiRequest {
            from,
            subject: subject.into(),
            reply: Bytes::copy_from_slice(publish.reply.unwrap_or_default()),
            headers: Bytes::copy_from_slice(publish.headers()),
            body: Bytes::copy_from_slice(publish.payload()),
        });
        // Only one whose message is traced and not delivered comes while something waits, or right behind publishes that a
        // closed log did not take; nothing waits for it.
        if self.reader.deferred.is_none() {
            self.reader.deferred = change.map(|change| Box::new(DeferredCalls::new(change)));
        }
        Handled::ByServer
    }

    /// Sends what this turn has collected so far.
    pub(super) fn hand_over(&mut self) {
        let batches = std::mem::take(&mut self.batches);
        self.reader.send_batches(batches, self.data);
        let copied = std::mem::take(&mut self.copied);
        self.reader.send_copied(copied);
        self.scratch.egress.flush(DirectWrites::READER);
    }

    fn pull(&mut self, publish: &Publish<'_>, stream: &[u8], consumer: &[u8]) -> Handled {
        let Some(route) = self.stream(stream) else { return Handled::No };
        let item = PullItem {
            stream: route.stream,
            hint: 0,
            headers: self.span(publish.headers()),
            consumer: self.span(consumer),
            reply: self.span(publish.reply.unwrap_or_default()),
            body: self.span(publish.payload()),
        };
        self.push(route.log, Item::Pull(item));
        Handled::ByServer
    }

    /// A direct get; another node asks `unless` the stream has changed: the log, the position, and where it goes back to.
    pub(super) fn direct_get(
        &mut self,
        publish: &Publish<'_>,
        (stream, subject): (&[u8], &[u8]),
        unless: Option<(LogId, Lsn, &[u8])>,
    ) -> Handled {
        let own = self.stream(stream);
        let for_origin = own.is_none();
        let account = self.reader.session.account.id;
        if for_origin && self.is_elsewhere(stream) {
            return Handled::No;
        }
        let mirror = || self.reader.server.jetstream().find(account, Wanted::MirrorOf(stream));
        let Some(route) = own.or_else(mirror) else { return self.get_of_mirror(publish, stream) };
        let reply = publish.reply.unwrap_or_default();
        let item = DirectGetItem {
            unless_changed: unless
                .filter(|(log, ..)| *log == route.log && !for_origin)
                .map(|(_, position, back)| UnlessChanged { position, back: self.span(back) }),
            stream: route.stream,
            for_origin,
            hint: self.mux_hint(reply),
            headers: self.span(publish.headers()),
            subject: self.span(subject),
            reply: self.span(reply),
            body: self.span(publish.payload()),
        };
        self.push(route.log, Item::DirectGet(item));
        Handled::ByServer
    }

    /// A direct get of a stream that nobody has goes to a node with a mirror of it.
    #[cold]
    fn get_of_mirror(&mut self, publish: &Publish<'_>, stream: &[u8]) -> Handled {
        let served = &self.reader.session.account.served;
        let Ok(origin) = std::str::from_utf8(stream) else { return Handled::No };
        // From another node it makes no second hop.
        if self.reader.conn.is_node() || !served.has_nodes() {
            return Handled::No;
        }
        self.hand_over();
        let served = &self.reader.session.account.served;
        let names = (publish.subject, publish.reply.unwrap_or_default());
        match served.hand_to_mirror(origin, names, publish.headers(), publish.payload()) {
            true => Handled::ByServer,
            false => Handled::No,
        }
    }

    /// True if another node serves the stream of this name.
    #[cold]
    fn is_elsewhere(&self, stream: &[u8]) -> bool {
        let served = &self.reader.session.account.served;
        std::str::from_utf8(stream).is_ok_and(|name| served.find(name).is_some())
    }

    /// The hint under which the connection's outbox knows where replies to this inbox go; 0: none.
    ///
    /// It holds when exactly one subscription of the account can see `<inbox>.*`, and that one is
    /// this connection's own, plain and unlimited.
    pub(super) fn mux_hint(&mut self, reply: &[u8]) -> u32 {
        let Some(dot) = memrchr(b'.', reply) else { return 0 };
        let prefix = &reply[..=dot];
        let interest = &self.reader.session.account.interest;
        let version = interest.version();
        if let Some(mux) = &self.reader.mux
            && mux.version == version
            && *mux.prefix == *prefix
        {
            return mux.hint;
        }
        if self.reader.leaf.is_some() {
            // Many clients stand behind another server, with an inbox each.
            return 0;
        }
        let pattern = [prefix, b"*"].concat();
        // Interest with a wildcard is not looked up: that would take as long as there are
        // subscriptions.
        let sole = (!has_wildcard(prefix)).then(|| interest.sole_overlapping(&pattern)).flatten();
        let hint = match sole {
            Some(sub)
                if Arc::ptr_eq(&sub.outlet, self.reader.conn.outlet())
                    && sub.max() == 0
                    && sub.denied.is_none()
                    && !sub.tracks_replies
                    && nuthatch_protocol::subject::is_subset(&pattern, &sub.subject) =>
            {
                let route = MuxRoute { version, prefix: prefix.into(), sub };
                self.reader.conn.peer.mux.add(route)
            }
            _ => 0,
        };
        self.reader.mux = Some(Box::new(MuxCache { version, prefix: prefix.into(), hint }));
        hint
    }

    /// A request about the connection's own account.
    fn account_request(&mut self, publish: &Publish<'_>, document: &'static str) -> Handled {
        let account = self.reader.session.account.clone();
        if account.id == SYSTEM_ACCOUNT_ID {
            return Handled::No;
        }
        let reply = publish.reply.unwrap_or_default();
        let request = OwnRequest { document, reply, body: publish.payload() };
        self.reader.server.system().own_request(account, &request);
        Handled::ByServer
    }

    fn user_info(&mut self, publish: &Publish<'_>) -> Handled {
        let Some(reply) = publish.reply else { return Handled::ByServer };
        let body = super::user_info::response(&self.reader.server, &self.reader.session);
        let account = self.reader.session.account.clone();
        let mut matched = crate::interest::Matched::default();
        account.interest.match_into(reply, &mut matched);
        let message = Outgoing::from_message(&Message {
            subject: reply,
            reply: b"",
            headers: b"",
            body: &body,
        });
        let mut rng = crate::member_rng::MemberRng::default();
        crate::route::deliver(&matched, &message, None, &mut self.scratch.egress, &mut rng);
        Handled::ByServer
    }
}

impl ConnReader {
    /// Sends the batches of a turn to their logs.
    pub(super) fn send_batches(&mut self, batches: Batches, data: &Bytes) {
        for (log, mut items) in batches {
            let buf = compact(&mut items, data);
            self.submit(log, ClientBatch { peer: self.conn.peer.clone(), buf, items });
        }
    }
}

/// The buffer for a batch: the read buffer itself, or a copy of the little that is used of it, with
/// the spans moved.
fn compact(items: &mut [Item], data: &Bytes) -> Bytes {
    // Items are in the order of the buffer, so the first and the last one tell the range.
    let (mut start, mut end) = (u32::MAX, 0);
    if let Some(first) = items.first_mut() {
        each_span(first, &mut |span| {
            start = start.min(if span.is_empty() { start } else { span.start })
        });
    }
    if let Some(last) = items.last_mut() {
        each_span(last, &mut |span| end = end.max(span.end));
    }
    if start >= end {
        return Bytes::new();
    }
    let used = (end - start) as usize;
    let large = crate::buffers::READ_BUFFER_BYTES / COPY_SHARE;
    if used >= large.min(data.len()) && data.len() >= large {
        return data.clone();
    }
    for item in items.iter_mut() {
        each_span(item, &mut |span| {
            if !span.is_empty() {
                span.start -= start;
                span.end -= start;
            }
        });
    }
    Bytes::copy_from_slice(&data[start as usize..end as usize])
}

fn each_span(item: &mut Item, visit: &mut impl FnMut(&mut Span)) {
    match item {
        Item::Publish(p) => {
            for span in [&mut p.subject, &mut p.reply, &mut p.headers, &mut p.body] {
                visit(span);
            }
        }
        Item::Ack(a) => [&mut a.consumer, &mut a.reply, &mut a.body].into_iter().for_each(visit),
        Item::Pull(p) => {
            let spans = [&mut p.consumer, &mut p.reply, &mut p.body, &mut p.headers];
            spans.into_iter().for_each(visit);
        }
        Item::DirectGet(d) => {
            let back = d.unless_changed.as_mut().map(|unless| &mut unless.back);
            let spans = [&mut d.subject, &mut d.reply, &mut d.body, &mut d.headers];
            spans.into_iter().chain(back).for_each(visit);
        }
        Item::Flow(f) => {
            [&mut f.consumer, &mut f.subject, &mut f.headers].into_iter().for_each(visit);
        }
    }
}

#[cfg(test)]
mod tests;
