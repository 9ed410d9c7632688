//! Events deferred because their stream is between two states: while a purge past the end is on its
//! way to the medium, while the value of a counter is being read, and while the stream is between
//! two logs.
//!
//! Such a purge moves a stream's next sequence. Readers must not see that before it has committed,
//! and nothing may be given a sequence on either side of the gap meanwhile: publishes and changes of
//! the stream wait for the commit, in their order. That is one frame, and rare. Counters whose last
//! message is not in memory wait for one read, after a restart mostly. A stream that changes logs
//! ([`super::migration`]) keeps everything waiting for a few frames.

use super::Engine;
use super::outputs::Outputs;
use super::registry::Streams;
use super::stream_slot::StreamSlot;
use crate::event::{ClientBatch, Item};
use crate::op::{Op, Respond};
use crate::rules::PURGE_HOLDS;
use crate::sink::Sink;
use crate::stream::unavailable;
use nuthatch_log::{LogAccess, StreamId};
use nuthatch_protocol::jserror::JsError;
use rustc_hash::FxHashSet;

/// Events that may wait for a commit or a read; further ones are refused (10167).
const DEFERRED_EVENTS_MAX: usize = 4096;
/// Events that may wait for a stream between two logs, where everything waits.
const DEFERRED_MOVING_EVENTS_MAX: usize = 64 * 1024;
/// Bytes of read buffers that may wait: further publishes are refused (10167).
const DEFERRED_BYTES_MAX: usize = 256 * 1024 * 1024;

/// A deferred event.
pub(super) enum DeferredEvent<P> {
    /// Items for one stream.
    Items(ClientBatch<P>),
    /// An operation.
    Change(Op, Respond),
}

impl<P> DeferredEvent<P> {
    fn weight(&self) -> usize {
        match self {
            Self::Items(batch) => batch.buf.len(),
            Self::Change(..) => 0,
        }
    }

    fn stream(&mut self) -> Option<StreamId> {
        match self {
            Self::Items(batch) => batch.items.first().map(Item::stream),
            Self::Change(op, _) => op.stream_mut().copied(),
        }
    }

    /// The same for a stream that goes by another identity now.
    pub(super) fn moved_to(mut self, id: StreamId) -> Self {
        match &mut self {
            Self::Items(batch) => batch.items.iter_mut().for_each(|item| item.move_to(id)),
            Self::Change(op, _) => {
                if let Some(stream) = op.stream_mut() {
                    *stream = id;
                }
            }
        }
        self
    }
}

/// Deferred events, oldest first.
pub(super) struct DeferredEvents<P> {
    waiting: Vec<DeferredEvent<P>>,
    bytes: usize,
    /// Streams with a counter that is being read.
    counting: FxHashSet<StreamId>,
}

impl<P> Default for DeferredEvents<P> {
    fn default() -> Self {
        Self { waiting: Vec::new(), bytes: 0, counting: FxHashSet::default() }
    }
}

impl<P> DeferredEvents<P> {
    /// True if nothing waits.
    pub(super) const fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    fn is_full(&self, events_max: usize) -> bool {
        self.waiting.len() >= events_max || self.bytes >= DEFERRED_BYTES_MAX
    }

    fn push(&mut self, waiting: DeferredEvent<P>) {
        self.bytes += waiting.weight();
        self.waiting.push(waiting);
    }

    /// Takes everything; counters are looked at again.
    fn take(&mut self) -> Vec<DeferredEvent<P>> {
        std::mem::take(self).waiting
    }

    /// Keeps the publishes from `start` on that go to a stream; returns where others begin, `None` if
    /// too much waits already.
    #[cold]
    fn hold(&mut self, batch: &ClientBatch<P>, start: usize, id: StreamId) -> Option<usize>
    where
        P: Clone,
    {
        if self.is_full(DEFERRED_EVENTS_MAX) {
            return None;
        }
        let theirs = |item: &&Item| matches!(item, Item::Publish(to) if to.stream == id);
        let items: Vec<Item> = batch.items[start..].iter().take_while(theirs).copied().collect();
        let end = start + items.len();
        let (peer, buf) = (batch.peer.clone(), batch.buf.clone());
        self.push(DeferredEvent::Items(ClientBatch { peer, buf, items }));
        Some(end)
    }

    /// A counter that the publish at `start` adds to is being read: it waits with those behind it.
    /// Returns where others begin; `None` if too much waits already.
    pub(super) fn hold_for_counter(
        &mut self,
        batch: &ClientBatch<P>,
        start: usize,
        id: StreamId,
    ) -> Option<usize>
    where
        P: Clone,
    {
        let end = self.hold(batch, start, id)?;
        self.counting.insert(id);
        Some(end)
    }

    /// Takes out what waits for a stream.
    pub(super) fn take_of(&mut self, id: StreamId) -> Vec<DeferredEvent<P>> {
        let mut counting = std::mem::take(&mut self.counting);
        let mut theirs = Vec::new();
        for mut waiting in self.take() {
            if waiting.stream() == Some(id) {
                theirs.push(waiting);
            } else {
                self.push(waiting);
            }
        }
        counting.remove(&id);
        self.counting = counting;
        theirs
    }

    /// The log failed: what waits will never be stored.
    pub(super) fn refuse<S: Sink<Peer = P>>(
        &mut self,
        error: &JsError,
        streams: &Streams<S>,
        out: &mut Outputs<S>,
    ) {
        for waiting in self.take() {
            match waiting {
                DeferredEvent::Items(batch) => {
                    for item in &batch.items {
                        if let Item::Publish(item) = item {
                            out.refuse(streams.get(item.stream), &batch, item, error);
                        }
                    }
                }
                DeferredEvent::Change(_, respond) => respond(Err(error.clone())),
            }
        }
    }

    /// True if a stream waits for a counter.
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
        | Op::Fence { id, .. }
        | Op::Truncate { id, .. }
        | Op::DeleteMessage { id, .. }
        | Op::Mirror { id, .. }
        | Op::Source { id, .. }
        | Op::FinishRestore { id, .. }
        | Op::RemoveRestored { id, .. }
        | Op::CreateConsumer { id, .. }
        | Op::DeleteConsumer { id, .. }
        | Op::StartConsumer { id, .. }
        | Op::ResetConsumer { id, .. }
        | Op::UnpinConsumer { id, .. }
        | Op::Leave { id, .. } => Some(*id),
        _ => None,
    }
}

/// The stream that an operation asks about.
const fn asks(op: &Op) -> Option<StreamId> {
    match op {
        Op::StreamInfo { id, .. }
        | Op::GetMessage { id, .. }
        | Op::WouldTake { id, .. }
        | Op::ConsumerInfo { id, .. }
        | Op::ConsumerState { id, .. }
        | Op::ReadRange { id, .. }
        | Op::Sourced { id, .. }
        | Op::ListConsumers { id, .. } => Some(*id),
        _ => None,
    }
}

impl<S: Sink> Engine<S> {
    fn must_wait(&self, id: StreamId) -> bool {
        let between = |slot: &StreamSlot<S>| {
            slot.stream.contents().is_jumping() && PURGE_HOLDS.holds() || slot.migration.holds()
        };
        let is_between = || self.streams.get(id).is_some_and(between);
        !self.out.has_failed() && (is_between() || self.deferred.waits(id))
    }

    /// Keeps the items from `start` on that go to a stream which is between two logs; returns where
    /// others begin.
    #[cold]
    pub(super) fn hold_items(
        &mut self,
        batch: &ClientBatch<S::Peer>,
        start: usize,
    ) -> Option<usize> {
        let id = batch.items.get(start)?.stream();
        if self.out.has_failed() || !self.streams.is_held(id) {
            return None;
        }
        let theirs = |item: &&Item| item.stream() == id;
        let items: Vec<Item> = batch.items[start..].iter().take_while(theirs).copied().collect();
        let end = start + items.len();
        let refuses = self.streams.get(id).is_some_and(|slot| slot.refuses());
        if refuses || self.deferred.is_full(DEFERRED_MOVING_EVENTS_MAX) {
            let error =
                if refuses { may_live_elsewhere() } else { JsError::STREAM_TOO_MANY_REQUESTS };
            // Acknowledgements and pulls are lost as they may be on any wire.
            for item in &items {
                if let Item::Publish(item) = item {
                    self.out.refuse(self.streams.get(id), batch, item, &error);
                }
            }
            return Some(end);
        }
        let (peer, buf) = (batch.peer.clone(), batch.buf.clone());
        self.deferred.push(DeferredEvent::Items(ClientBatch { peer, buf, items }));
        Some(end)
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
        if self.must_wait(id) { self.deferred.hold(batch, start, id) } else { None }
    }

    /// Keeps a change of a stream which is between two states or waits for a counter, and a
    /// question about one that has not quite arrived; gives everything else back.
    pub(super) fn hold_op<L: LogAccess>(
        &mut self,
        op: Op,
        respond: Respond,
        log: &mut L,
    ) -> Option<(Op, Respond)> {
        let about = changes(&op).or_else(|| asks(&op));
        if self.streams.any_held()
            && about.and_then(|id| self.streams.get(id)).is_some_and(|slot| slot.refuses())
        {
            respond(Err(may_live_elsewhere()));
            return None;
        }
        let waits_for_hand_off = |id: StreamId| {
            self.streams.any_held()
                && self.streams.get(id).is_some_and(|slot| slot.migration.holds_questions())
        };
        let waits = changes(&op).is_some_and(|id| self.must_wait(id))
            || asks(&op).is_some_and(waits_for_hand_off);
        let counts = match &op {
            Op::Source { id, copies } => !self.are_sourced_counters_known(*id, copies, log),
            _ => false,
        };
        if !waits && !counts {
            return Some((op, respond));
        }
        let is_held =
            self.streams.any_held() && changes(&op).is_none_or(|id| self.streams.is_held(id));
        let events_max = if is_held { DEFERRED_MOVING_EVENTS_MAX } else { DEFERRED_EVENTS_MAX };
        if self.deferred.is_full(events_max) {
            respond(Err(JsError::STREAM_TOO_MANY_REQUESTS));
            return None;
        }
        if let Some(id) = changes(&op).filter(|_| counts) {
            self.deferred.counting.insert(id);
        }
        self.deferred.push(DeferredEvent::Change(op, respond));
        None
    }

    /// Handles what has waited long enough.
    #[cold]
    pub(super) fn release_deferred<L: LogAccess>(&mut self, log: &mut L) {
        for waiting in self.deferred.take() {
            self.run_held(waiting, log);
        }
    }

    /// Handles what has waited. Its stream may be between two states again: then it waits again,
    /// behind what came before it.
    pub(super) fn run_held<L: LogAccess>(&mut self, waiting: DeferredEvent<S::Peer>, log: &mut L) {
        match waiting {
            DeferredEvent::Items(batch) => self.batch(batch, log),
            DeferredEvent::Change(op, respond) => self.op(op, respond, log),
        }
    }
}

/// What is told where nobody knows for a while whether a stream lives here.
fn may_live_elsewhere() -> JsError {
    unavailable(
        "the stream may have moved to another log, and nobody can say that at the moment: try again later",
    )
}
