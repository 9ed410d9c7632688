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

/// A version of all that nodes say to each other, and write for each other into logs and catalog: a number that rises.
/// What came with a later one than the [first](Protocol::FIRST) is used when both sides of a connection know it, or, where it
/// is written, when the cluster has it as its active one ([`Change::Finalize`](crate::Change::Finalize)).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Protocol(pub u8);

impl Protocol {
    /// What clusters speak for which nothing else was decided.
    pub const FIRST: Self = Self(4);

    /// From this one on the nodes of a cluster change also where its catalog is outside them: who they are is in its store then.
    pub const ROSTER_IN_STORE: Self = Self(6);

    /// From the same one on people name owners of logs: earlier programs bring such a log to and fro.
    pub const OWNERS_NAMED: Self = Self::ROSTER_IN_STORE;

    /// From this one on an owner says in its beats how long it answers reads after them.
    pub const LEASES_SAID: Self = Self(7);

    /// From the same one on nodes say in their beats that they are about to follow a log in memory.
    pub const COLD_SAID: Self = Self::LEASES_SAID;

    /// The newest one that this program knows. From 5 on a cluster has an active version, and nodes tell each other by which
    /// keys they encrypt.
    pub const NEWEST: Self = Self::LEASES_SAID;
}

impl Default for Protocol {
    fn default() -> Self {
        Self::FIRST
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to)
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

/// How many quorum logs a cluster has, whether they lie on its nodes' disks or in a bucket, and whether there is one more
/// that is in its nodes' memory. That is decided when it is founded, for ever.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LogCount {
    durable: u8,
    in_memory: bool,
    in_bucket: bool,
}

/// In the byte that says how many logs there are: there is one in memory, too.
const IN_MEMORY: u8 = 1 << 7;

/// In the same byte: those that are not in memory are in a bucket.
const IN_BUCKET: u8 = 1 << 6;

impl LogCount {
    /// One log: what clusters were founded with before they could have several.
    pub const ONE: Self = Self { durable: 1, in_memory: false, in_bucket: false };

    /// Most durable logs: three for each of five nodes. Each one costs each node threads and connections of its own, and
    /// beats to each other node, whether or not it is used.
    pub const MAX: Self = Self { durable: 15, ..Self::ONE };

    /// Most logs of all kinds.
    pub const MOST: Self = Self { in_memory: true, ..Self::MAX };

    /// So many on disks, if a cluster may have so many.
    #[must_use]
    pub fn new(count: u8) -> Option<Self> {
        let may = (1..=Self::MAX.durable).contains(&count);
        may.then_some(Self { durable: count, ..Self::ONE })
    }

    /// As many in a bucket. Their nodes keep who owns them.
    #[must_use]
    pub fn in_bucket(self) -> Self {
        Self { in_bucket: true, ..self }
    }

    /// True if the durable logs are in a bucket.
    #[must_use]
    pub fn are_in_bucket(self) -> bool {
        self.in_bucket
    }

    /// The same with a log in memory.
    #[must_use]
    pub fn with_memory(self) -> Self {
        Self { in_memory: true, ..self }
    }

    /// How many are durable: on disks, or in a bucket.
    #[must_use]
    pub fn get(self) -> u8 {
        self.durable
    }

    /// How many there are of all kinds.
    #[must_use]
    pub fn all(self) -> u8 {
        self.durable + u8::from(self.in_memory)
    }

    /// The log in memory, which is the last one.
    #[must_use]
    pub fn memory(self) -> Option<LogNumber> {
        self.in_memory.then_some(LogNumber(self.durable))
    }

    /// The numbers of the logs, in order.
    pub fn numbers(self) -> impl Iterator<Item = LogNumber> {
        (0..self.all()).map(LogNumber)
    }

    /// Appends it behind everything else of a document. One log is written as nothing, as before there could be several.
    pub fn put(self, to: &mut Writer) {
        if self != Self::ONE {
            let memory = if self.in_memory { IN_MEMORY } else { 0 };
            to.u8(self.durable | memory | if self.in_bucket { IN_BUCKET } else { 0 });
        }
    }

    /// Reads what follows on everything else of a document, if something does that does not begin with zero.
    ///
    /// # Errors
    /// It is no number of logs.
    pub fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        if matches!(from.0.first(), None | Some(0)) {
            return Ok(Self::ONE);
        }
        let byte = from.u8()?;
        let (in_memory, in_bucket) = (byte & IN_MEMORY != 0, byte & IN_BUCKET != 0);
        let count = Self::new(byte & !(IN_MEMORY | IN_BUCKET));
        let count = count.map(|count| Self { in_memory, in_bucket, ..count });
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
            for one in [more, count.in_bucket(), more.in_bucket()] {
                let mut to = Writer::default();
                one.put(&mut to);
                assert_eq!(LogCount::read(&mut Reader(&to.0)), Ok(one));
            }
            assert!(count.in_bucket().are_in_bucket() && !more.are_in_bucket());
        }
        for none in [1, 16, 64, 64 + 16, 127, 128, 128 + 16, 128 + 64, 255] {
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
