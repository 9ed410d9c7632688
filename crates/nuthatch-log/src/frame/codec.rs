//! The bytes of one record: a 32-byte header that tells everything about its own size, then
//! subject, headers and body. Little endian: `kind u8, flags u8, subject_len u16, stream u32,
//! len u32 (the whole record), hdr_len u32, seq u64, ts i64`.

use crate::env::AlignedBuf;
use crate::later::{Later, Unusable};
use crate::record::{RECORD_HEADER_BYTES, RecordKind, RecordRef};
use crate::types::{Seq, StreamId, Timestamp};

/// Appends a record; returns how many bytes that were.
#[inline]
pub fn encode_record(record: &RecordRef<'_>, out: &mut AlignedBuf) -> usize {
    let weight = encode_record_head(record, out);
    out.extend(record.body);
    weight
}

/// Appends everything of a record but its body; returns how many bytes it has with it.
#[inline]
pub fn encode_record_head(record: &RecordRef<'_>, out: &mut AlignedBuf) -> usize {
    let weight = record.weight();
    let mut header = [0; RECORD_HEADER_BYTES];
    header[0] = record.kind as u8;
    header[2..4].copy_from_slice(&(record.subject.len() as u16).to_le_bytes());
    header[4..8].copy_from_slice(&record.stream.0.to_le_bytes());
    header[8..12].copy_from_slice(&(weight as u32).to_le_bytes());
    header[12..16].copy_from_slice(&(record.headers.len() as u32).to_le_bytes());
    header[16..24].copy_from_slice(&record.seq.0.to_le_bytes());
    header[24..32].copy_from_slice(&record.timestamp.0.to_le_bytes());
    out.extend(&header);
    out.extend(record.subject);
    out.extend(record.headers);
    weight
}

/// Decoded header of a record, without its variable parts.
#[derive(Clone, Copy, Debug)]
pub struct RecordPeek {
    /// The persisted kind number.
    pub kind: u8,
    /// Whose it is.
    pub stream: StreamId,
    /// Its sequence.
    pub seq: Seq,
    /// Bytes of the whole record.
    pub len: usize,
}

impl RecordPeek {
    /// Reads the fixed part at the start of `bytes`; `None` if that is not a record.
    #[must_use]
    pub fn at(bytes: &[u8]) -> Option<Self> {
        let h = bytes.first_chunk::<RECORD_HEADER_BYTES>()?;
        let len = u32::from_le_bytes([h[8], h[9], h[10], h[11]]) as usize;
        if len < RECORD_HEADER_BYTES || len > bytes.len() {
            return None;
        }
        Some(Self {
            kind: h[0],
            stream: StreamId(u32::from_le_bytes([h[4], h[5], h[6], h[7]])),
            seq: Seq(crate::bytes::u64_at(h, 16)),
            len,
        })
    }
}

/// The fault of bytes that are no record.
const NO_RECORD: Unusable = Unusable::Damaged("records that make no sense");

/// Reads the record at the start of `bytes` and tells its length.
///
/// # Errors
/// Its kind or flags are of a later version, or its sizes do not add up.
pub fn decode_record(bytes: &[u8]) -> Result<(RecordRef<'_>, usize), Unusable> {
    let (record, kind, len) = split_record(bytes).ok_or(NO_RECORD)?;
    let flags = bytes[1];
    match RecordKind::from_u8(kind) {
        None => Err(Unusable::Later(Later::RecordKind(kind))),
        Some(_) if flags != 0 => Err(Unusable::Later(Later::RecordFlags(flags))),
        Some(kind) => Ok((RecordRef { kind, ..record }, len)),
    }
}

/// The parts of a record whose kind may not be known, that kind, and its length.
fn split_record(bytes: &[u8]) -> Option<(RecordRef<'_>, u8, usize)> {
    let peek = RecordPeek::at(bytes)?;
    let h = bytes.first_chunk::<RECORD_HEADER_BYTES>()?;
    let rest = &bytes[RECORD_HEADER_BYTES..peek.len];
    let subject_len = usize::from(u16::from_le_bytes([h[2], h[3]]));
    let headers_len = u32::from_le_bytes([h[12], h[13], h[14], h[15]]) as usize;
    let (subject, rest) = rest.split_at_checked(subject_len)?;
    let (headers, body) = rest.split_at_checked(headers_len)?;
    let record = RecordRef {
        kind: RecordKind::Message,
        stream: peek.stream,
        seq: peek.seq,
        timestamp: Timestamp(crate::bytes::u64_at(h, 24).cast_signed()),
        subject,
        headers,
        body,
    };
    Some((record, peek.kind, peek.len))
}

/// Walks the records of a checked frame body. Ends early, with `fault` set, where the bytes are no
/// record that this version knows although the checksum fits.
pub struct RecordIter<'a> {
    body: &'a [u8],
    at: usize,
    /// Why the walk ended before the end of the body.
    pub fault: Option<Unusable>,
}

impl<'a> RecordIter<'a> {
    /// Walks `body`, the bytes after a frame's header.
    #[must_use]
    pub const fn new(body: &'a [u8]) -> Self {
        Self { body, at: 0, fault: None }
    }
}

impl<'a> Iterator for RecordIter<'a> {
    /// Offset in the body, and the record.
    type Item = (usize, RecordRef<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.body.len() {
            return None;
        }
        match decode_record(&self.body[self.at..]) {
            Ok((record, len)) => {
                let at = self.at;
                self.at += len;
                Some((at, record))
            }
            Err(fault) => {
                self.fault = Some(fault);
                self.at = self.body.len();
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn records_survive_the_round_trip(
            kind in 1u8..=17, stream: u32, seq: u64, ts: i64,
            subject in proptest::collection::vec(any::<u8>(), 0..80),
            headers in proptest::collection::vec(any::<u8>(), 0..80),
            body in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            let record = RecordRef {
                kind: RecordKind::from_u8(kind).expect("known"),
                stream: StreamId(stream), seq: Seq(seq), timestamp: Timestamp(ts),
                subject: &subject, headers: &headers, body: &body,
            };
            let mut bytes = AlignedBuf::with_capacity(record.weight());
            let len = encode_record(&record, &mut bytes);
            prop_assert_eq!(decode_record(&bytes), Ok((record, len)));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut records = RecordIter::new(&bytes);
            while records.next().is_some() {}
        }
    }
}
