//! What the server publishes itself and streams store as if a client had published it: messages that a
//! stream publishes again, advisories.

use crate::account::Account;
use crate::account_imports::ImportHost;
use crate::jetstream_port::{LogId, SendError, StreamRoute};
use crate::route::{Route, RouteCache};
use bytes::Bytes;
use nuthatch_protocol::wire::Publish;
use nuthatch_streams::{ClientBatch, Event, Item, Message, PublishItem, Span};
use std::sync::{Arc, Weak};

/// Messages for one log, with the buffer that they are in.
#[derive(Default)]
pub struct CopiedBatch {
    /// The buffer.
    pub bytes: Vec<u8>,
    /// The messages.
    pub items: Vec<Item>,
}

impl CopiedBatch {
    /// Adds a publish to a stream; its answer finds its way by `hint`.
    pub fn push(&mut self, publish: &Publish<'_>, route: StreamRoute, hint: u32) {
        let reply = publish.reply.unwrap_or_default();
        let parts = [publish.subject, reply, publish.headers(), publish.payload()];
        self.push_parts(parts, route, hint);
    }

    /// As [`CopiedBatch::push`]: subject, reply, headers and payload.
    fn push_parts(&mut self, parts: [&[u8]; 4], route: StreamRoute, hint: u32) {
        let [subject, reply, headers, body] = parts.map(|part| {
            let start = self.bytes.len() as u32;
            self.bytes.extend_from_slice(part);
            Span { start, end: self.bytes.len() as u32 }
        });
        let stream = route.stream;
        let item = PublishItem { stream, hint, subject, reply, headers, body };
        self.items.push(Item::Publish(item));
    }
}

/// A batch of more bytes than this is sent with what is in it.
const BATCH_BYTES: usize = 256 * 1024;

/// The server's own publishes on their way to streams.
pub struct OwnPublishes {
    host: Weak<dyn ImportHost>,
    routes: RouteCache,
    batches: Vec<(LogId, CopiedBatch)>,
    /// Version of the streams before the first of `batches` was routed.
    seen: u64,
    /// A full log has lost messages, and that was said.
    has_lost: bool,
}

impl OwnPublishes {
    /// Of this server, which is not kept alive.
    #[must_use]
    pub fn new(host: Weak<dyn ImportHost>) -> Self {
        let (routes, batches) = (RouteCache::default(), Vec::new());
        Self { host, routes, batches, seen: 0, has_lost: false }
    }

    /// Takes a message for the streams that store it, those of importing accounts included, and hands
    /// its route to `deliver`. They get it with [`OwnPublishes::flush`]. Nobody is answered.
    pub fn add<T>(
        &mut self,
        account: &Arc<Account>,
        message: &Message<'_>,
        deliver: impl FnOnce(&Route) -> T,
    ) -> Option<T> {
        let host = self.host.upgrade()?;
        let version = host.jetstream().version();
        if self.batches.is_empty() {
            self.seen = version;
        }
        let route = self.routes.lookup(account, host.jetstream(), message.subject);
        let mut is_full = false;
        let foreign = route.foreign_streams.iter().flat_map(|streams| streams.iter());
        let own = route.stream.map(|stream| (message.subject, stream));
        let all = own.into_iter().chain(foreign.map(|foreign| (&*foreign.subject, foreign.route)));
        for (subject, stream) in all {
            let at = match self.batches.iter().position(|(log, _)| *log == stream.log) {
                Some(at) => at,
                None => {
                    self.batches.push((stream.log, CopiedBatch::default()));
                    self.batches.len() - 1
                }
            };
            let batch = &mut self.batches[at].1;
            batch.push_parts([subject, b"", message.headers, message.body], stream, 0);
            is_full |= batch.bytes.len() >= BATCH_BYTES;
        }
        let delivered = deliver(route);
        if is_full {
            self.flush();
        }
        Some(delivered)
    }

    /// Sends the logs what is for them. What a full one does not take is lost, as any message may be
    /// that nobody waits for; the operator is told.
    #[inline]
    pub fn flush(&mut self) {
        if !self.batches.is_empty() {
            self.send();
        }
    }

    #[cold]
    fn send(&mut self) {
        let Some(host) = self.host.upgrade() else { return self.batches.clear() };
        let mut has_lost = false;
        for (log, CopiedBatch { bytes, items }) in self.batches.drain(..) {
            let (peer, buf) = (host.own_peer().clone(), Bytes::from(bytes));
            let event = Event::Batch(ClientBatch { peer, buf, items });
            // With the bound of clients: what is kept free beyond it is for acknowledgements.
            let sent = host.jetstream().send(log, event, false, self.seen);
            has_lost |= matches!(sent, Err(SendError::Busy(_)));
        }
        if has_lost && !self.has_lost {
            host.warn(
                "messages that were published again, or advisories, were not stored: the queue of their log is full",
            );
        }
        self.has_lost = has_lost;
    }
}
