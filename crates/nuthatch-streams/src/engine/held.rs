//! What waits while a purge past the end is on its way to the medium, or while the value of a
//! counter is being read.
//!
//! Such a purge moves a stream's next sequence. Readers must not see that before it has committed,
//! and nothing may be given a sequence on either side of the gap meanwhile: publishes and changes of
//! the stream wait for the commit, in their order. That is one frame, and rare. Counters whose last
//! message is not in memory wait for one read, after a restart mostly.

use super::Engine;
use crate::event::{ClientBatch, Item};
use crate::op::{Op, Respond};
use crate::sink::Sink;
use nuthatch_log::{LogAccess, StreamId};
use nuthatch_protocol::jserror::JsError;
use rustc_hash::FxHashSet;

/// Events that may wait; further ones are refused (10167).
const HELD_EVENTS_MAX: usize = 4096;

/// What waits.
enum Waiting<P> {
    Publishes(ClientBatch<P>),
    Change(Op, Respond),
}

/// Events that wait.
pub(super) struct Held<P> {
    /// Oldest first.
    events: Vec<Waiting<P>>,
    /// Streams with a counter that is being read.
    counting: FxHashSet<StreamId>,
}

impl<P> Default for Held<P> {
    fn default() -> Self {
        Self { events: Vec::new(), counting: FxHashSet::default() }
    }
}

impl<P> Held<P> {
    /// Whether nothing waits.
    pub(super) const fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Whether a stream waits for a counter.
    pub(super) fn waits(&self, id: StreamId) -> bool {
        self.counting.contains(&id)
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
        | Op::FinishRestore { id, .. }
        | Op::RemoveRestored { id, .. }
        | Op::CreateConsumer { id, .. }
        | Op::DeleteConsumer { id, .. }
        | Op::ResetConsumer { id, .. } => Some(*id),
        _ => None,
    }
}

impl<S: Sink> Engine<S> {
    fn must_wait(&self, id: StreamId) -> bool {
        let is_jumping = || self.slots.get(&id).is_some_and(|slot| slot.stream.is_jumping());
        self.failed.is_none() && (is_jumping() || self.held.waits(id))
    }

    /// Keeps the publishes from `start` on that go to a stream which is between two sequences or
    /// waits for a counter; returns where others begin.
    #[inline]
    pub(super) fn hold_publishes(
        &mut self,
        batch: &ClientBatch<S::Peer>,
        start: usize,
        id: StreamId,
    ) -> Option<usize> {
        if self.must_wait(id) { self.hold(batch, start, id) } else { None }
    }

    /// A counter that the publish at `start` adds to is being read: it waits with those behind it.
    /// Returns where others begin; `None` if too much waits already.
    pub(super) fn hold_for_counter(
        &mut self,
        batch: &ClientBatch<S::Peer>,
        start: usize,
        id: StreamId,
    ) -> Option<usize> {
        let end = self.hold(batch, start, id)?;
        self.held.counting.insert(id);
        Some(end)
    }

    #[cold]
    fn hold(&mut self, batch: &ClientBatch<S::Peer>, start: usize, id: StreamId) -> Option<usize> {
        if self.held.events.len() >= HELD_EVENTS_MAX {
            return None;
        }
        let theirs = |item: &&Item| matches!(item, Item::Publish(to) if to.stream == id);
        let items: Vec<Item> = batch.items[start..].iter().take_while(theirs).copied().collect();
        let end = start + items.len();
        let (peer, buf) = (batch.peer.clone(), batch.buf.clone());
        self.held.events.push(Waiting::Publishes(ClientBatch { peer, buf, items }));
        Some(end)
    }

    /// Keeps a change of a stream which is between two sequences or waits for a counter; gives
    /// everything else back.
    pub(super) fn hold_op<L: LogAccess>(
        &mut self,
        op: Op,
        respond: Respond,
        log: &mut L,
    ) -> Option<(Op, Respond)> {
        let Some(id) = changes(&op) else { return Some((op, respond)) };
        let counts = match &op {
            Op::Source { copies, .. } => !self.are_sourced_counters_known(id, copies, log),
            _ => false,
        };
        if !counts && !self.must_wait(id) {
            return Some((op, respond));
        }
        if self.held.events.len() >= HELD_EVENTS_MAX {
            respond(Err(JsError::STREAM_TOO_MANY_REQUESTS));
            return None;
        }
        if counts {
            self.held.counting.insert(id);
        }
        self.held.events.push(Waiting::Change(op, respond));
        None
    }

    /// The log failed: what waits will never be stored.
    pub(super) fn refuse_held(&mut self, error: &JsError) {
        for waiting in std::mem::take(&mut self.held).events {
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
        for waiting in std::mem::take(&mut self.held).events {
            match waiting {
                // The stream may be jumping again, or the next counter may have to be read: then
                // these wait again, behind each other.
                Waiting::Publishes(batch) => self.batch(batch, log),
                Waiting::Change(op, respond) => self.op(op, respond, log),
            }
        }
    }
}
