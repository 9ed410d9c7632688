//! The consumers of one stream, by name and by index, and what the engine keeps beside each.

use super::caught_up::CaughtUp;
use crate::consumer::{Consumer, Env};
use crate::stream::{Contents, Stream};
use nuthatch_log::{AppendError, LogAccess, Seq, StreamId, Timestamp, Urgency};
use nuthatch_protocol::headers::find_header;
use nuthatch_protocol::js::is_level_met;
use nuthatch_protocol::js::{ConsumerConfig, RetentionPolicy};
use rustc_hash::FxHashMap;

/// A consumer of an engine. The index may be reused after a delete.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct ConsumerKey {
    pub(super) stream: StreamId,
    pub(super) index: u32,
}

/// A consumer with what the engine keeps beside it.
pub(super) struct ConsumerSlot<T> {
    pub(super) consumer: Consumer<T>,
    pub(super) scheduled: Option<Timestamp>,
    /// On which of the engine's lists it is.
    pub(super) listed: Listed,
}

/// Membership in lists.
#[derive(Clone, Copy, Default)]
pub(super) struct Listed {
    pub(super) called: bool,
    pub(super) unlogged: bool,
    pub(super) urgent: bool,
    pub(super) awaiting: bool,
    pub(super) slow: bool,
    pub(super) loading: bool,
    pub(super) full: bool,
    dirty: bool,
    pub(super) caught_up: bool,
}

/// The consumers of one stream.
pub(super) struct Consumers<T> {
    by_name: FxHashMap<Box<str>, u32>,
    slots: Vec<Option<Box<ConsumerSlot<T>>>>,
    free: Vec<u32>,
    /// How many keep their state in memory only.
    in_memory: usize,
    /// How many serve a copy elsewhere and are not listed.
    direct: usize,
    /// How many serve a copy elsewhere: limits do not count them.
    copying: usize,
    /// Those that want new messages at once.
    pub(super) caught_up: CaughtUp,
    /// Those with as many messages out as they may have. Entries may be stale.
    pub(super) full: Vec<u32>,
    /// Those with progress that is not in the log, so that a change of the stream that must log it
    /// first does not look at all of them. Entries may be stale.
    dirty: Vec<u32>,
    /// States in memory are logged as all others: the log is gone on with by other nodes.
    outlive: bool,
}

impl<T> Default for Consumers<T> {
    fn default() -> Self {
        Self {
            by_name: FxHashMap::default(),
            slots: Vec::new(),
            free: Vec::new(),
            in_memory: 0,
            direct: 0,
            copying: 0,
            caught_up: CaughtUp::default(),
            full: Vec::new(),
            dirty: Vec::new(),
            outlive: false,
        }
    }
}

impl<T> Consumers<T> {
    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Those that are listed.
    pub(super) fn listed(&self) -> usize {
        self.by_name.len() - self.direct
    }

    /// Those that count for limits.
    pub(super) fn limited(&self) -> usize {
        self.by_name.len() - self.copying
    }

    /// True if any of them keeps its state in memory only.
    pub(super) fn any_memory(&self) -> bool {
        self.in_memory > 0
    }

    /// True if no consumer has progress to log. Forgets those that were logged meanwhile.
    pub(super) fn all_logged(&mut self) -> bool {
        while let Some(&index) = self.dirty.last() {
            if let Some(slot) = self.get_mut(index) {
                if slot.consumer.needs_log().is_some() {
                    return false;
                }
                slot.listed.dirty = false;
            }
            self.dirty.pop();
        }
        true
    }

    pub(super) fn find(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    pub(super) fn get(&self, index: u32) -> Option<&ConsumerSlot<T>> {
        self.slots.get(index as usize)?.as_deref()
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut ConsumerSlot<T>> {
        self.slots.get_mut(index as usize)?.as_deref_mut()
    }

    /// Whether states in memory are logged as all others from now on; up to now the log knows all.
    pub(super) fn set_outlive(&mut self, outlive: bool) {
        self.outlive = outlive;
        self.iter_mut().for_each(|consumer| consumer.set_outlives(outlive));
        self.in_memory = self.iter().filter(|consumer| consumer.is_memory()).count();
    }

    pub(super) fn insert(&mut self, mut consumer: Consumer<T>) -> u32 {
        consumer.set_outlives(self.outlive);
        self.count(&consumer, usize::checked_add);
        if let Some(index) = self.find(consumer.name()) {
            if let Some(slot) = self.get_mut(index) {
                let old = std::mem::replace(&mut slot.consumer, consumer);
                self.count(&old, usize::checked_sub);
            }
            return index;
        }
        let index = self.free.pop().unwrap_or(self.slots.len() as u32);
        self.by_name.insert(consumer.name().into(), index);
        let slot = ConsumerSlot { consumer, scheduled: None, listed: Listed::default() };
        if index as usize == self.slots.len() {
            self.slots.push(Some(Box::new(slot)));
        } else {
            self.slots[index as usize] = Some(Box::new(slot));
        }
        index
    }

    pub(super) fn remove(&mut self, index: u32) -> Option<Box<ConsumerSlot<T>>> {
        let slot = self.slots.get_mut(index as usize)?.take()?;
        self.by_name.remove(slot.consumer.name());
        self.count(&slot.consumer, usize::checked_sub);
        self.free.push(index);
        Some(slot)
    }

    /// A consumer has come, or has gone.
    fn count(&mut self, consumer: &Consumer<T>, step: fn(usize, usize) -> Option<usize>) {
        let config = consumer.config();
        let (is_direct, copies) = (config.direct, config.direct || config.sourcing);
        let kinds = [
            (&mut self.in_memory, consumer.is_memory()),
            (&mut self.direct, is_direct),
            (&mut self.copying, copies),
        ];
        for (count, is_one) in kinds {
            *count = step(*count, usize::from(is_one)).expect("it was counted");
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Consumer<T>> {
        self.slots.iter().flatten().map(|slot| &slot.consumer)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Consumer<T>> {
        self.slots.iter_mut().flatten().map(|slot| &mut slot.consumer)
    }

    pub(super) fn configs(&self) -> impl Iterator<Item = &ConsumerConfig> {
        self.iter().map(Consumer::config)
    }

    pub(super) fn indexes(&self) -> Vec<u32> {
        let mut indexes: Vec<u32> = self.by_name.values().copied().collect();
        indexes.sort_unstable();
        indexes
    }

    /// Names of those that are listed, in order, with indexes.
    pub(super) fn sorted(&self) -> Vec<(&str, u32)> {
        let is_listed = |&(_, &index): &(_, &u32)| {
            self.get(index).is_some_and(|slot| !slot.consumer.config().direct)
        };
        let listed = self.by_name.iter().filter(is_listed);
        let mut names: Vec<(&str, u32)> = listed.map(|(name, &index)| (&**name, index)).collect();
        names.sort_unstable();
        names
    }

    /// They have come from another engine: they are on none of this one's lists, and what waits for
    /// a frame waits for none of this log's.
    pub(super) fn unpack(&mut self) {
        self.caught_up = CaughtUp::default();
        self.full.clear();
        self.dirty.clear();
        for slot in self.slots.iter_mut().flatten() {
            slot.scheduled = None;
            slot.listed = Listed::default();
            slot.consumer.rehomed();
        }
    }

    /// True if any consumer wants messages on this subject.
    #[inline]
    pub(super) fn any_wants(&self, subject: &[u8]) -> bool {
        self.iter().any(|consumer| consumer.wants(subject))
    }

    /// Puts a consumer on the stream's own lists that it belongs to now. Returns true if it is the
    /// first one that has as many messages out as it may.
    #[inline]
    pub(super) fn file(&mut self, index: u32) -> bool {
        let slot = self.slots.get_mut(index as usize).and_then(|slot| slot.as_deref_mut());
        let ConsumerSlot { consumer, listed, .. } = slot.expect("the consumer was called");
        if consumer.has_caught_up() && !std::mem::replace(&mut listed.caught_up, true) {
            self.caught_up.push(index, consumer.config());
        }
        if consumer.needs_log().is_some() && !std::mem::replace(&mut listed.dirty, true) {
            self.dirty.push(index);
        }
        if consumer.is_full() && !std::mem::replace(&mut listed.full, true) {
            self.full.push(index);
            return self.full.len() == 1;
        }
        false
    }

    /// Writes the progress of those that have any to tell.
    ///
    /// # Errors
    /// The log has no room; what was not written stays to be logged.
    pub(super) fn log_progress<L: LogAccess>(
        &mut self,
        stream: StreamId,
        log: &mut L,
    ) -> Result<(), AppendError> {
        while let Some(&index) = self.dirty.last() {
            if let Some(slot) = self.get_mut(index) {
                if slot.consumer.needs_log().is_some() {
                    slot.consumer.log_state(stream, log, Urgency::Lazy)?;
                }
                slot.listed.dirty = false;
            }
            self.dirty.pop();
        }
        Ok(())
    }

    /// True if any consumer but `except` still needs a message.
    pub(super) fn any_needs(
        &mut self,
        contents: &Contents,
        seq: Seq,
        subject: u32,
        except: u32,
    ) -> bool {
        self.slots.iter_mut().enumerate().any(|(index, slot)| {
            index as u32 != except
                && slot.as_mut().is_some_and(|slot| slot.consumer.needs(contents, seq, subject))
        })
    }
}

/// The surroundings of a consumer of `stream`.
pub(super) fn env<'a, L, S>(
    stream: &'a Stream,
    sink: &'a mut S,
    log: &'a mut L,
    domain: &'a str,
    released: &'a mut Vec<Seq>,
) -> Env<'a, Contents, L, S> {
    let removes = stream.limits().retention != RetentionPolicy::Limits;
    Env {
        index: stream.contents(),
        log,
        sink,
        account: stream.account(),
        stream: stream.id(),
        stream_name: &stream.config().name,
        domain,
        released: removes.then_some(released),
    }
}

/// True if we have the API level that a request's headers ask for, if they do.
pub(super) fn offers_level(headers: &[u8]) -> bool {
    headers.is_empty() || find_header(headers, b"Nats-Required-Api-Level").is_none_or(is_level_met)
}
