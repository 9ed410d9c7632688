//! Order of one connection's requests.
//!
//! Most API calls reach the queue of their log while they are read, so they stand there in order
//! with the publishes around them. Creating, updating and deleting a stream takes longer: until it
//! is done nobody can tell which stream a subject belongs to. What the client sends behind such a
//! call and what may depend on it waits here, in wire form; pings, core deliveries, acknowledgements
//! and all other connections do not.

use super::publish::Handled;
use super::{ConnReader, Turn};
use crate::msg_trace::Trace;
use bytes::Bytes;
use nuthatch_protocol::wire::{Limits, Op, Publish, Step, parse_op, write};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use tokio::sync::oneshot;

/// Bytes that wait behind a call; with more the connection is not read until the call is answered.
const WAITING_BYTES_MAX: usize = 1024 * 1024;
/// Traces of publishes that wait; those beyond end without what streams do.
const TRACES_WAITING_MAX: usize = 64;

/// Traffic deferred behind a call that changes the registry of streams.
pub(super) struct DeferredCalls {
    /// Ends with the call.
    call: oneshot::Receiver<()>,
    /// Publishes in wire form: first these, then `tail`.
    head: Bytes,
    tail: Vec<u8>,
    /// What has become of each of them so far.
    begun: VecDeque<Begun>,
}

/// What has become of a publish that waits.
#[derive(Default)]
struct Begun {
    /// Core subscribers have taken it.
    delivered: bool,
    /// Its trace, if it is traced.
    trace: Option<Trace>,
}

impl DeferredCalls {
    pub(super) fn new(call: oneshot::Receiver<()>) -> Self {
        Self { call, head: Bytes::new(), tail: Vec::new(), begun: VecDeque::new() }
    }

    fn is_over(&mut self) -> bool {
        // An error means that the sender has gone, which is how a call ends.
        !matches!(self.call.try_recv(), Err(oneshot::error::TryRecvError::Empty))
    }

    /// True if so much waits that nothing more should be read.
    pub(super) fn is_full(&self) -> bool {
        self.head.len() + self.tail.len() > WAITING_BYTES_MAX
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
    /// True if this publish waits for the end of a call; core subscribers have it then.
    pub(super) fn waits(&mut self, publish: &Publish<'_>) -> bool {
        if self.reader.deferred.is_none() || goes_ahead(publish.subject) {
            return false;
        }
        let delivered = self.deliver_to_core(publish);
        if let Some(deferred) = &mut self.reader.deferred {
            let (headers, body) = (publish.headers(), publish.payload());
            write::push_publish(&mut deferred.tail, publish.subject, publish.reply, headers, body);
            let traced = deferred.begun.iter().filter(|begun| begun.trace.is_some()).count();
            // One that does not wait is finished without what streams do.
            let trace = self.trace.take().filter(|_| traced < TRACES_WAITING_MAX);
            deferred.begun.push_back(Begun { delivered, trace });
        }
        true
    }

    /// Handles publishes that have waited, up to the next that has to be waited for. Returns how
    /// many bytes of the turn's data they were.
    fn go_on(&mut self, begun: &mut VecDeque<Begun>) -> usize {
        // They were held to the client's limits when they came.
        let limits =
            Limits { max_payload: usize::MAX, max_control_line: usize::MAX, headers: true };
        let mut at = 0;
        while self.reader.deferred.is_none() && at < self.data.len() {
            let Ok(Step::Op(Op::Publish(publish), used)) = parse_op(&self.data[at..], &limits)
            else {
                debug_assert!(false, "what waits was written by this module");
                return self.data.len();
            };
            at += used;
            let Begun { delivered, trace } = begun.pop_front().unwrap_or_default();
            self.trace = trace;
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

    /// The connection is over and the call is not: what waits behind it is not handled any more.
    pub(super) fn abandon_lane(&mut self) {
        let Some(deferred) = self.deferred.take() else { return };
        let count = deferred.begun.len();
        if count > 0 {
            self.server.refused_publishes.fetch_add(count as u64, Ordering::Relaxed);
            self.server.log.warn(format_args!(
                "{} - {count} messages behind an API call without an answer were not handled",
                self.conn
            ));
        }
    }

    fn go_on(&mut self, deferred: DeferredCalls) {
        let DeferredCalls { head, tail, mut begun, .. } = deferred;
        let mut parts = [head, Bytes::from(tail)];
        for part in &mut parts {
            if self.deferred.is_none() && !part.is_empty() {
                let used = self.with_turn(part, |turn| turn.go_on(&mut begun)).0;
                *part = part.slice(used..);
            }
        }
        let Some(next) = &mut self.deferred else { return };
        let [head, tail] = parts;
        // Nothing was read meanwhile, so the new lane is empty.
        if head.is_empty() {
            next.head = tail;
        } else {
            next.head = head;
            next.tail = tail.into();
        }
        next.begun = begun;
    }
}
