//! Wake-ups of consumers, when what they wait for has come: a receiver, a load, room among their
//! pending messages, new messages. Each kind has its own list, so that no other consumer is looked
//! at.

use super::Engine;
use super::consumers::ConsumerKey;
use crate::sink::Sink;
use nuthatch_log::{LogAccess, Seq, StreamId};

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

    /// Consumers with too many messages out look whether some of them have left their stream.
    pub(super) fn wake_full<L: LogAccess>(&mut self, log: &mut L) {
        for key in self.streams.take_full(log.now()) {
            if let Some(listed) = self.listed(key)
                && std::mem::take(&mut listed.full)
            {
                self.pump(key, log);
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
