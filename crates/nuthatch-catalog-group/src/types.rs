//! Who the members of a group are, and how many logs there are.

use crate::coding::{Malformed, Reader, Writer, malformed};
use std::fmt;

/// One disk that is, was or wants to be a member of the group. Drawn at random when the disk is first used, so a
/// disk that lost everything comes back as another member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MemberId(pub u64);

/// One beginning of a member on its disk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Boot {
    /// How often the member has begun.
    pub count: u32,
    /// A number drawn for this beginning: an old image of the disk that begins as often is another one.
    pub nonce: u64,
}

impl Boot {
    /// True if who has seen `self` must not listen to `other` of the same member.
    #[must_use]
    pub fn outdates(self, other: Self) -> bool {
        other.count < self.count || (other.count == self.count && other.nonce != self.nonce)
    }
}

/// Number of one of the cluster's quorum logs, from 0 on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LogNumber(pub u8);

impl LogNumber {
    /// The log that every cluster has.
    pub const FIRST: Self = Self(0);

    /// Its place among all logs.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for LogNumber {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to)
    }
}

/// How many quorum logs a cluster has, and whether it has one more that is in its nodes' memory. That is decided when it
/// is founded, for ever.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LogCount {
    on_disks: u8,
    in_memory: bool,
}

/// In the byte that says how many logs there are: there is one in memory, too.
const IN_MEMORY: u8 = 1 << 7;

impl LogCount {
    /// One log: what clusters were founded with before they could have several.
    pub const ONE: Self = Self { on_disks: 1, in_memory: false };

    /// Most logs on disks: three for each of five nodes. Each one costs each node threads and connections of its own, and
    /// beats to each other node, whether or not it is used.
    pub const MAX: Self = Self { on_disks: 15, in_memory: false };

    /// Most logs of all kinds.
    pub const MOST: Self = Self { in_memory: true, ..Self::MAX };

    /// So many on disks, if a cluster may have so many.
    #[must_use]
    pub fn new(count: u8) -> Option<Self> {
        let may = (1..=Self::MAX.on_disks).contains(&count);
        may.then_some(Self { on_disks: count, in_memory: false })
    }

    /// The same with a log in memory.
    #[must_use]
    pub fn with_memory(self) -> Self {
        Self { in_memory: true, ..self }
    }

    /// How many are on disks.
    #[must_use]
    pub fn get(self) -> u8 {
        self.on_disks
    }

    /// How many there are of all kinds.
    #[must_use]
    pub fn all(self) -> u8 {
        self.on_disks + u8::from(self.in_memory)
    }

    /// The log in memory, which is the last one.
    #[must_use]
    pub fn memory(self) -> Option<LogNumber> {
        self.in_memory.then_some(LogNumber(self.on_disks))
    }

    /// The numbers of the logs, in order.
    pub fn numbers(self) -> impl Iterator<Item = LogNumber> {
        (0..self.all()).map(LogNumber)
    }

    /// Appends it behind everything else of a document. One log is written as nothing, as before there could be several.
    pub fn put(self, to: &mut Writer) {
        if self != Self::ONE {
            to.u8(self.on_disks | if self.in_memory { IN_MEMORY } else { 0 });
        }
    }

    /// Reads what is left of a document.
    ///
    /// # Errors
    /// It is no number of logs.
    pub fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        if from.0.is_empty() {
            return Ok(Self::ONE);
        }
        let byte = from.u8()?;
        let in_memory = byte & IN_MEMORY != 0;
        let count = Self::new(byte & !IN_MEMORY).map(|count| Self { in_memory, ..count });
        let count = count.filter(|count| *count != Self::ONE);
        count.ok_or_else(|| malformed("a cluster with another number of logs than it may have"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_log_is_written_as_nothing_and_each_number_has_one_form() {
        for count in 1..=LogCount::MAX.get() {
            let count = LogCount::new(count).expect("as many as there may be");
            let mut to = Writer::default();
            count.put(&mut to);
            assert_eq!(to.0.is_empty(), count == LogCount::ONE);
            assert_eq!(LogCount::read(&mut Reader(&to.0)), Ok(count));
            let more = count.with_memory();
            assert_eq!((more.get(), more.all()), (count.get(), count.get() + 1));
            assert_eq!((count.memory(), more.memory()), (None, Some(LogNumber(count.get()))));
            let mut to = Writer::default();
            more.put(&mut to);
            assert_eq!(LogCount::read(&mut Reader(&to.0)), Ok(more));
        }
        for none in [0, 1, 16, 127, 128, 128 + 16, 255] {
            assert!(LogCount::read(&mut Reader(&[none])).is_err(), "{none}");
        }
        assert_eq!((LogCount::new(0), LogCount::new(16)), (None, None));
    }

    #[test]
    fn an_earlier_beginning_and_another_one_of_the_same_number_are_outdated() {
        let boot = |count, nonce| Boot { count, nonce };
        assert!(boot(3, 1).outdates(boot(2, 9)));
        assert!(boot(3, 1).outdates(boot(3, 2)), "two images of one disk");
        assert!(!boot(3, 1).outdates(boot(3, 1)));
        assert!(!boot(3, 1).outdates(boot(4, 2)));
    }
}
