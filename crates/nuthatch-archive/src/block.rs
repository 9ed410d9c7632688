//! Message blocks (`msgs/N.blk`) of nats-server's file store.
//!
//! ```text
//! record = length u32 (top bit: it has headers) | sequence u64 | timestamp i64 | subject length u16
//!        | subject | [headers length u32 | headers] | payload | checksum 8
//! block  = records, or "cmp" 1 | varint uncompressed length | S2 of all but the last 8 bytes | those
//! ```
//!
//! Numbers are little endian. The two top bits of a sequence mark a record without a message: one
//! that was erased, and one that says that an earlier message was deleted. The checksum is keyed
//! with the stream's name and the block's number, and covers sequence, timestamp, subject, headers
//! and payload; where one ends and the next begins it does not cover.

use crate::error::ArchiveError;
use crate::frames::{FrameReader, STREAM_START};
use crate::hash::{SUM_BYTES, Sums};
use crate::{BLOCK_FILE_BYTES_MAX, Message, fill, read_into};
use nuthatch_protocol::subject;
use std::io::{self, BufReader, Cursor, Read};

/// Bytes of a record in front of its subject.
const HEADER_BYTES: usize = 22;
/// Largest record; nats-server takes a larger one for damage too.
const RECORD_BYTES_MAX: u64 = 32 << 20;
const HEADERS_BIT: u32 = 1 << 31;
const ERASED_BIT: u64 = 1 << 63;
const TOMBSTONE_BIT: u64 = 1 << 62;
/// Prefix of a compressed block.
const COMPRESSED: &[u8] = b"cmp\x01";
/// Longest beginning of a compressed block, up to the identifier of the compressed stream.
const FRONT_BYTES_MAX: usize = COMPRESSED.len() + 10 + STREAM_START.len();

/// A decoded record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record<'a> {
    /// A message.
    Message(Message<'a>),
    /// This sequence holds nothing (any more).
    Removed {
        /// The sequence.
        seq: u64,
        /// When it was removed, ns since the epoch; 0 if that is not known.
        time_ns: i64,
    },
}

/// A compressed block: the stream inside it, then the checksum behind it.
struct Compressed<R> {
    frames: FrameReader<io::Take<R>>,
    /// Bytes that may still come out of it: a few bytes could become any number.
    left: u64,
    tail: u64,
}

impl<R: Read> Read for Compressed<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let got = self.frames.read(out)?;
        if got > 0 || out.is_empty() {
            self.left =
                self.left.checked_sub(got as u64).ok_or_else(|| ArchiveError::TooLarge {
                    what: "a compressed block".to_owned(),
                    bytes: BLOCK_FILE_BYTES_MAX - self.left + got as u64,
                    bytes_max: BLOCK_FILE_BYTES_MAX,
                })?;
            return Ok(got);
        }
        let len = out.len().min(self.tail as usize);
        let got = self.frames.get_mut().get_mut().read(&mut out[..len])?;
        self.tail -= got as u64;
        Ok(got)
    }
}

/// Reads the records of a block.
pub struct BlockReader<'a> {
    input: Box<dyn Read + 'a>,
    sums: Sums,
    /// For errors.
    name: String,
    /// Uncompressed bytes before the current record.
    offset: u64,
    record: Vec<u8>,
}

impl<'a> BlockReader<'a> {
    /// A reader of block `index` of a stream, whose file has `size` bytes. `name` is for errors.
    pub fn new(
        mut input: impl Read + 'a,
        size: u64,
        stream: &str,
        index: u32,
        name: String,
    ) -> Result<Self, ArchiveError> {
        let mut front = vec![0; FRONT_BYTES_MAX.min(usize::try_from(size).unwrap_or(usize::MAX))];
        let got = fill(&mut input, &mut front)?;
        front.truncate(got);
        if let Some(how) = unknown_compression(&front) {
            let what = format!("it is compressed in a way ({how}) that this version does not know");
            return Err(ArchiveError::damaged(name, what));
        }
        let whole = |front: Vec<u8>, input| BufReader::new(Cursor::new(front).chain(input));
        let input: Box<dyn Read + 'a> = match compressed_at(&front) {
            None => Box::new(whole(front, input)),
            Some(at) => {
                let tail = SUM_BYTES as u64;
                let inside = size.saturating_sub(at as u64).saturating_sub(tail);
                let input = whole(front.split_off(at), input);
                Box::new(BufReader::new(Compressed {
                    frames: FrameReader::new(input.take(inside)),
                    left: BLOCK_FILE_BYTES_MAX,
                    tail,
                }))
            }
        };
        let sums = Sums::new(&format!("{stream}-{index}"));
        Ok(Self { input, sums, name, offset: 0, record: Vec::new() })
    }

    fn place(&self) -> String {
        format!("{}, record at byte {}", self.name, self.offset)
    }

    fn damaged(&self, what: &str) -> ArchiveError {
        ArchiveError::damaged(self.place(), what)
    }

    /// The next record; `None` at the end.
    pub fn next(&mut self) -> Result<Option<Record<'_>>, ArchiveError> {
        let mut header = [0; HEADER_BYTES];
        let got = fill(&mut self.input, &mut header)?;
        if got == 0 {
            return Ok(None);
        }
        if got < header.len() {
            return Err(self.damaged("it ends in the middle"));
        }
        let [l0, l1, l2, l3, s0, s1, s2, s3, s4, s5, s6, s7, rest @ ..] = header;
        let length = u32::from_le_bytes([l0, l1, l2, l3]);
        let seq = u64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7]);
        let [t0, t1, t2, t3, t4, t5, t6, t7, n0, n1] = rest;
        let time_ns = i64::from_le_bytes([t0, t1, t2, t3, t4, t5, t6, t7]);
        let subject_bytes = usize::from(u16::from_le_bytes([n0, n1]));
        let has_headers = length & HEADERS_BIT != 0;
        let size = u64::from(length & !HEADERS_BIT);
        if size > RECORD_BYTES_MAX || size < (HEADER_BYTES + SUM_BYTES) as u64 {
            return Err(self.damaged(&format!("a record of {size} bytes cannot be")));
        }
        let (name, offset) = (&self.name, self.offset);
        let place = || format!("{name}, record at byte {offset}");
        read_into(&mut self.input, size - HEADER_BYTES as u64, &mut self.record, &place)?;
        let parts = self.split(subject_bytes, has_headers)?;
        let [subject, headers, body, sum] = parts;
        if self.sums.of(&[&header[4..20], subject, headers, body]) != sum {
            return Err(self.damaged("the checksum is wrong"));
        }
        let message = Message { seq, time_ns, subject, headers, body };
        let record = told(message).map_err(|what| self.damaged(what))?;
        // Nothing but the record borrows from here on; the next one begins behind it.
        self.offset += size;
        Ok(Some(record_of(&self.record, record, subject_bytes, has_headers)))
    }

    /// Subject, headers, payload and checksum.
    fn split(&self, subject_bytes: usize, has_headers: bool) -> Result<[&[u8]; 4], ArchiveError> {
        split_record(&self.record, subject_bytes, has_headers)
            .ok_or_else(|| self.damaged("its lengths do not fit each other"))
    }
}

/// Where the compressed stream of a block begins; `None` if it is not compressed. A plain block may
/// begin with the same four bytes, so the stream's own beginning must follow.
fn compressed_at(front: &[u8]) -> Option<usize> {
    let rest = front.strip_prefix(COMPRESSED)?;
    let varint = rest.iter().position(|byte| byte & 0x80 == 0)? + 1;
    rest.get(varint..)?.starts_with(&STREAM_START).then_some(COMPRESSED.len() + varint)
}

/// How a block is compressed, if that is not known. As a plain one, it would begin with a record that
/// is larger than any.
fn unknown_compression(front: &[u8]) -> Option<u8> {
    let how = *front.strip_prefix(&COMPRESSED[..3])?.first()?;
    (COMPRESSED[3] + 1..0x80).contains(&how).then_some(how)
}

fn split_record(record: &[u8], subject_bytes: usize, has_headers: bool) -> Option<[&[u8]; 4]> {
    let (data, sum) = record.split_at_checked(record.len().checked_sub(SUM_BYTES)?)?;
    let (subject, data) = data.split_at_checked(subject_bytes)?;
    if !has_headers {
        return Some([subject, b"", data, sum]);
    }
    let (length, data) = data.split_first_chunk::<4>()?;
    let (headers, body) = data.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    Some([subject, headers, body, sum])
}

/// Metadata of an intact record.
#[derive(Clone, Copy)]
enum RecordSummary {
    Message { seq: u64, time_ns: i64 },
    Removed { seq: u64, time_ns: i64 },
}

fn told(message: Message<'_>) -> Result<RecordSummary, &'static str> {
    let Message { seq, time_ns, .. } = message;
    let bare = seq & !(ERASED_BIT | TOMBSTONE_BIT);
    if seq & (ERASED_BIT | TOMBSTONE_BIT) != 0 || bare == 0 {
        return Ok(RecordSummary::Removed { seq: bare, time_ns });
    }
    if !subject::is_valid_literal(message.subject) {
        return Err("its subject is not valid");
    }
    Ok(RecordSummary::Message { seq, time_ns })
}

fn record_of(
    record: &[u8],
    told: RecordSummary,
    subject_bytes: usize,
    has_headers: bool,
) -> Record<'_> {
    match told {
        RecordSummary::Removed { seq, time_ns } => Record::Removed { seq, time_ns },
        RecordSummary::Message { seq, time_ns } => {
            let parts = split_record(record, subject_bytes, has_headers);
            let [subject, headers, body, _] = parts.unwrap_or([b""; 4]);
            Record::Message(Message { seq, time_ns, subject, headers, body })
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
