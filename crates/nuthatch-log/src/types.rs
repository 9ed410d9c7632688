//! The newtypes that every layer above shares: positions, epochs, identities, time.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $inner:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number! {
    /// Sequence of a message inside its stream, dense from 1; 0 means "none".
    Seq, u64
}
number! {
    /// Log sequence number: the position of a frame in a log. It counts frames, not bytes or
    /// records; dense from 1; 0 means "before the first frame".
    Lsn, u64
}
number! {
    /// Epoch of a log's owner: raised at every open for writing, so that a frame tells which owner
    /// wrote it.
    Epoch, u32
}
number! {
    /// Identity of a stream inside a server, never reused. 0 is the log itself ([`StreamId::LOG`]).
    StreamId, u32
}
number! {
    /// Nanoseconds since the Unix epoch, UTC. `i64::MIN` stands for "no time".
    Timestamp, i64
}

impl Seq {
    /// The sequence after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Lsn {
    /// The position after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl StreamId {
    /// Records that concern the log as a whole carry this id.
    pub const LOG: Self = Self(0);
}

impl Timestamp {
    /// "No time", shown as Go's zero time on the wire.
    pub const NONE: Self = Self(i64::MIN);

    /// This moment plus `nanos`, saturating.
    #[must_use]
    pub const fn plus_nanos(self, nanos: i64) -> Self {
        Self(self.0.saturating_add(nanos))
    }
}

/// Identity of a segment within its log, never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SegmentId(pub u32);

impl SegmentId {
    /// Name of a segment's file: epoch, first position, and for a compacted one its id as well,
    /// because it starts where one of its inputs started.
    #[must_use]
    pub fn file_name(self, epoch: Epoch, base: Lsn, compacted: bool) -> String {
        if compacted {
            format!("{:016x}-{:020}-{:08x}.seg", epoch.0, base.0, self.0)
        } else {
            format!("{:016x}-{:020}.seg", epoch.0, base.0)
        }
    }
}
