//! Wake-ups of consumers, when what they wait for has come: a receiver, a load, room among their
//! pending messages, new messages. Each kind has its own list, so that no other consumer is looked
//! at.

use super::Engine;
use super::consumers::ConsumerKey;
use crate::index::MessageIndex;
use crate::sink::Sink;
use nuthatch_log::{LogAccess, Seq, StreamId, Timestamp};

/// Consumers with as many messages out as they may have look at most this often whether some of
/// them have left the stream.
const FULL_RECHECK_NS: i64 = 250_000_000;

impl<S: Sink> Engine<S> {
    /// Consumers that waited for a receiver go on.
    pub(super) fn wake_slow<L: LogAccess>(&mut self, log: &mut L) {
        for key in std::mem::take(&mut self.lists.slow) {
            if let Some(listed) = self.listed(key)
                && std::mem::take(&mut listed.slow)
            {
                self.pump(key, log);
            }
        }
    }

    /// Consumers of a stream that waited for a load go on.
    pub(super) fn wake_loading<L: LogAccess>(&mut self, stream: StreamId, log: &mut L) {
        for index in self.lists.loading.remove(&stream).unwrap_or_default() {
            let key = ConsumerKey { stream, index };
            if let Some(listed) = self.listed(key)
                && std::mem::take(&mut listed.loading)
            {
                self.pump(key, log);
            }
        }
    }

    /// If messages have left the stream and some of its consumers have too many out, those look soon
    /// whether theirs were among them.
    #[inline]
    pub(super) fn note_freed(&mut self, id: StreamId, now: Timestamp) {
        let Some(slot) = self.streams.get_mut(id).filter(|slot| !slot.consumers.full.is_empty())
        else {
            return;
        };
        if slot.stream.removal_cursor() != slot.removals_seen
            && !std::mem::replace(&mut slot.is_freed, true)
        {
            self.lists.freed.push(id);
            self.lists.freed_at.get_or_insert(now.plus_nanos(FULL_RECHECK_NS));
        }
    }

    /// Consumers with too many messages out look whether some of them have left their stream.
    pub(super) fn wake_full<L: LogAccess>(&mut self, log: &mut L) {
        if self.lists.freed_at.is_none_or(|at| at > log.now()) {
            return;
        }
        self.lists.freed_at = None;
        for stream in std::mem::take(&mut self.lists.freed) {
            let Some(slot) = self.streams.get_mut(stream) else { continue };
            (slot.is_freed, slot.removals_seen) = (false, slot.stream.removal_cursor());
            for index in std::mem::take(&mut slot.consumers.full) {
                let key = ConsumerKey { stream, index };
                if let Some(listed) = self.listed(key)
                    && std::mem::take(&mut listed.full)
                {
                    self.pump(key, log);
                }
            }
        }
    }

    /// Messages after `seen` are visible now: whoever waits for them is served.
    pub(super) fn pump_caught_up<L: LogAccess>(
        &mut self,
        stream: StreamId,
        seen: Seq,
        log: &mut L,
    ) {
        let Some(slot) = self.streams.get_mut(stream) else { return };
        if slot.consumers.caught_up.is_empty() {
            return;
        }
        for index in slot.consumers.caught_up.wake(&slot.stream, seen) {
            let key = ConsumerKey { stream, index };
            if let Some(listed) = self.listed(key)
                && std::mem::take(&mut listed.caught_up)
            {
                self.pump(key, log);
            }
        }
    }
}
