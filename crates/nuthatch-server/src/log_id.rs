//! Names of logs, and of the streams in them.

use nuthatch_log::StreamId;
use std::fmt;

/// Identity of a log: the number in its catalog, drawn at random when the log was made. It stays with
/// the log whatever node serves it, and no log that comes later has it. A memory log is another one
/// after each start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LogId(pub u64);

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Location of a stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StreamRoute {
    /// The log whose queue takes its events.
    pub log: LogId,
    /// Its identity there.
    pub stream: StreamId,
}

/// Number of a log among those that this server has had attached: the first gets 0, and none is given
/// twice. What an engine waits for is noted under it, since it is known before the log is open.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LogSlot(pub u32);

/// A set of attached logs: few at a time, so a sorted list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SlotSet(Vec<LogSlot>);

impl SlotSet {
    /// Adds a log.
    pub fn insert(&mut self, slot: LogSlot) {
        if let Err(place) = self.0.binary_search(&slot) {
            self.0.insert(place, slot);
        }
    }

    /// Takes a log out.
    pub fn remove(&mut self, slot: LogSlot) {
        if let Ok(place) = self.0.binary_search(&slot) {
            self.0.remove(place);
        }
    }

    /// True if it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The slots, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = LogSlot> + '_ {
        self.0.iter().copied()
    }
}

impl FromIterator<LogSlot> for SlotSet {
    fn from_iter<I: IntoIterator<Item = LogSlot>>(slots: I) -> Self {
        let mut set = Self::default();
        slots.into_iter().for_each(|slot| set.insert(slot));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_each_slot_once() {
        let mut set: SlotSet = [9, 3, 9, u32::MAX].into_iter().map(LogSlot).collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [LogSlot(3), LogSlot(9), LogSlot(u32::MAX)]);
        set.remove(LogSlot(9));
        set.remove(LogSlot(4));
        assert_eq!(set.iter().count(), 2);
        assert!(!set.is_empty() && SlotSet::default().is_empty());
    }
}
