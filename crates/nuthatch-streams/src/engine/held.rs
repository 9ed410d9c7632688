//! What waits while a purge past the end is on its way to the medium.
//!
//! Such a purge moves a stream's next sequence. Readers must not see that before it has committed,
//! and nothing may be given a sequence on either side of the gap meanwhile: publishes and changes of
//! the stream wait for the commit, in their order. That is one frame, and rare.

use super::Engine;
use crate::event::{ClientBatch, Item};
use crate::op::{Op, Respond};
use crate::sink::Sink;
use nuthatch_log::{LogAccess, StreamId};
use nuthatch_protocol::jserror::JsError;

/// Events that may wait; further ones are refused (10167).
const HELD_EVENTS_MAX: usize = 4096;

/// What waits.
enum Waiting<P> {
    Publishes(ClientBatch<P>),
    Change(Op, Respond),
}

/// Events that wait, oldest first.
pub(super) struct Held<P>(Vec<Waiting<P>>);

impl<P> Default for Held<P> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<P> Held<P> {
    /// Whether nothing waits.
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The stream that an operation changes.
const fn changes(op: &Op) -> Option<StreamId> {
    match op {
        Op::UpdateStream { id, .. }
        | Op::DeleteStream { id }
        | Op::Purge { id, .. }
        | Op::DeleteMessage { id, .. }
        | Op::Mirror { id, .. }
        | Op::Source { id, .. }
        | Op::CreateConsumer { id, .. }
        | Op::DeleteConsumer { id, .. }
        | Op::ResetConsumer { id, .. } => Some(*id),
        _ => None,
    }
}

impl<S: Sink> Engine<S> {
    fn must_wait(&self, id: StreamId) -> bool {
        self.failed.is_none() && self.slots.get(&id).is_some_and(|slot| slot.stream.is_jumping())
    }

    /// Keeps the publishes from `start` on that go to a stream which is between two sequences;
    /// returns where others begin.
    #[inline]
    pub(super) fn hold_publishes(
        &mut self,
        batch: &ClientBatch<S::Peer>,
        start: usize,
        id: StreamId,
    ) -> Option<usize> {
        if !self.must_wait(id) || self.held.0.len() >= HELD_EVENTS_MAX {
            return None;
        }
        let theirs = |item: &&Item| matches!(item, Item::Publish(to) if to.stream == id);
        let items: Vec<Item> = batch.items[start..].iter().take_while(theirs).copied().collect();
        let end = start + items.len();
        let (peer, buf) = (batch.peer.clone(), batch.buf.clone());
        self.held.0.push(Waiting::Publishes(ClientBatch { peer, buf, items }));
        Some(end)
    }

    /// Keeps a change of a stream which is between two sequences; gives everything else back.
    pub(super) fn hold_op(&mut self, op: Op, respond: Respond) -> Option<(Op, Respond)> {
        if changes(&op).is_none_or(|id| !self.must_wait(id)) {
            return Some((op, respond));
        }
        if self.held.0.len() >= HELD_EVENTS_MAX {
            respond(Err(JsError::STREAM_TOO_MANY_REQUESTS));
        } else {
            self.held.0.push(Waiting::Change(op, respond));
        }
        None
    }

    /// The log failed: what waits will never be stored.
    pub(super) fn refuse_held(&mut self, error: &JsError) {
        for waiting in std::mem::take(&mut self.held.0) {
            match waiting {
                Waiting::Publishes(batch) => {
                    for item in &batch.items {
                        if let Item::Publish(item) = item {
                            self.refuse(&batch, item, error.clone());
                        }
                    }
                }
                Waiting::Change(_, respond) => respond(Err(error.clone())),
            }
        }
    }

    /// Handles what has waited long enough.
    #[cold]
    pub(super) fn release_held<L: LogAccess>(&mut self, log: &mut L) {
        for waiting in std::mem::take(&mut self.held.0) {
            match waiting {
                // The stream may be jumping again: then these wait again, behind each other.
                Waiting::Publishes(batch) => self.batch(batch, log),
                Waiting::Change(op, respond) => self.op(op, respond, log),
            }
        }
    }
}
