//! Identifiers and positions.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}{}", stringify!($name), self.0)
            }
        }
    };
}

number! {
    /// A node of the cluster. It hosts at most one keeper of the log.
    NodeId(u8)
}
number! {
    /// Numbers the owners of a log. Given out by the catalog, never twice.
    Epoch(u32)
}
number! {
    /// Number of an entry of the log, dense from 1.
    Lsn(u64)
}
number! {
    /// Identity of a *disk*: random, made with its directory, never again.
    Incarnation(u128)
}
number! {
    /// How often a server began to work on a disk.
    BootCount(u32)
}
number! {
    /// Version of a value in the catalog; 0: absent.
    Revision(u64)
}
number! {
    /// Checksum of an entry, its predecessor's included.
    Sum(u64)
}
number! {
    /// A client's request.
    RequestId(u64)
}
number! {
    /// A sync that a keeper asked its disk for.
    SyncId(u64)
}
number! {
    /// Microseconds of a clock that runs on while the machine sleeps.
    Time(u64)
}
number! {
    /// Microseconds since 1970 by a node's wall clock, which people and time servers set.
    WallTime(u64)
}

impl Epoch {
    /// The epoch after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.checked_add(1).expect("fewer than 2^32 owners"))
    }
}

impl Lsn {
    /// The position after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The position before this one; 0 has none before it.
    #[must_use]
    pub fn before(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

impl Time {
    /// This moment and `micros` more.
    #[must_use]
    pub fn plus(self, micros: u64) -> Self {
        Self(self.0.saturating_add(micros))
    }

    /// How long ago `earlier` was; 0 when it lies ahead.
    #[must_use]
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A millisecond in the units of [`Time`].
pub const MILLISECOND: u64 = 1_000;

/// How far a keeper's log goes. The larger one is the donor of a takeover: the accepted epoch is
/// compared first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Position {
    /// Epoch of the last `Start` entry in the log.
    pub accepted: Epoch,
    /// Number of the last entry.
    pub lsn: Lsn,
}

/// The greatest epoch that a keeper has promised, and to whom. Durable before any answer to a seal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Promise {
    /// The epoch.
    pub epoch: Epoch,
    /// The disk of the candidate that it was promised to.
    pub owner: Incarnation,
}

/// A member of a replica set: the disk counts, the node says where it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Member {
    /// The node that hosts the disk.
    pub node: NodeId,
    /// The disk.
    pub incarnation: Incarnation,
}

/// How many of a set of `members` disks must agree.
#[must_use]
pub fn majority(members: usize) -> usize {
    members / 2 + 1
}

/// SplitMix64's finisher: sums entries, and draws numbers that only have to differ.
#[must_use]
pub fn mix(state: u64, value: u64) -> u64 {
    let mut z = state.rotate_left(5) ^ value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
