//! States that are too large for one record: written in parts, put together again by recovery.
//!
//! The parts of a state are appended in one go, in order, with nothing of their stream between them,
//! so together they stand where the last one stands. A crash or a full medium may leave only the
//! first ones: those mean nothing, and the state before them counts. Each part says in its headers
//! which one it is and of how many.

use crate::record::{RecordKind, RecordRef};
use crate::types::StreamId;

/// Bytes of a state's encoding in one part. Small beside a frame, so that frames fill up.
pub const STATE_PART_BYTES: usize = 256 * 1024;

/// Bytes of a part's headers.
const HEAD_BYTES: usize = 8;

/// Which part of a state a record holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartHead {
    /// Counted from 0.
    pub number: u32,
    /// How many parts the state has.
    pub of: u32,
}

impl PartHead {
    /// As the headers of a record: `number u32 | of u32`.
    #[must_use]
    pub fn encode(self) -> [u8; HEAD_BYTES] {
        let mut out = [0; HEAD_BYTES];
        out[..4].copy_from_slice(&self.number.to_le_bytes());
        out[4..].copy_from_slice(&self.of.to_le_bytes());
        out
    }

    /// Reads a part's headers; `None` if they make no sense.
    #[must_use]
    pub fn decode(headers: &[u8]) -> Option<Self> {
        let head = headers.first_chunk::<HEAD_BYTES>().filter(|_| headers.len() == HEAD_BYTES)?;
        let (number, of) = (crate::bytes::u32_at(head, 0), crate::bytes::u32_at(head, 4));
        (number < of).then_some(Self { number, of })
    }
}

/// How much of a state a record is. The numbers are part of the footer's format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StatePiece {
    /// All of it.
    Whole = 0,
    /// A part, not the last one.
    Part = 1,
    /// The last part: with it the state is complete.
    Last = 2,
}

impl StatePiece {
    /// Which part of a state a record is; `None` if it is none.
    #[must_use]
    pub fn of(record: &RecordRef<'_>) -> Option<Self> {
        match record.kind {
            RecordKind::StreamState | RecordKind::LogState => Some(Self::Whole),
            RecordKind::StatePart => match PartHead::decode(record.headers) {
                Some(head) if head.number + 1 == head.of => Some(Self::Last),
                _ => Some(Self::Part),
            },
            _ => None,
        }
    }

    /// The piece for a persisted number.
    #[must_use]
    pub const fn from_u16(number: u16) -> Option<Self> {
        match number {
            0 => Some(Self::Whole),
            1 => Some(Self::Part),
            2 => Some(Self::Last),
            _ => None,
        }
    }
}

/// Record kind of a whole state of this stream.
#[must_use]
pub fn whole_kind(stream: StreamId) -> RecordKind {
    if stream == StreamId::LOG { RecordKind::LogState } else { RecordKind::StreamState }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_that_make_no_sense_are_no_heads() {
        let head = PartHead { number: 1, of: 3 };
        assert_eq!(PartHead::decode(&head.encode()), Some(head));
        assert_eq!(PartHead::decode(&PartHead { number: 3, of: 3 }.encode()), None);
        assert_eq!(PartHead::decode(&head.encode()[..7]), None);
        assert_eq!(PartHead::decode(&[1; 9]), None);
    }
}
