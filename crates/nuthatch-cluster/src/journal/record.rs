//! Records of a journal as bytes, and those of which it is known where they are.

use crate::coding::{Reader, Writer, crc, payload_hash};
use crate::packet::{self, PAYLOAD_MAX};
use crate::records;
use bytes::Bytes;
use nuthatch_log::env::{DIRECT_ALIGN, DiskFile, again, read_exact_at};
use nuthatch_quorum::entry::Entry;
use nuthatch_quorum::types::Lsn;
use std::io;
use std::sync::Arc;

/// Bytes of a record before its payload.
pub const RECORD_HEADER: usize = 96;

const MAGIC: u64 = u64::from_le_bytes(*b"NUTHOPS1");
pub(super) const BLOCK: u64 = DIRECT_ALIGN as u64;

/// What a record says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Record {
    Entry(Entry),
    Healed(Entry),
    CutBehind(Lsn),
}

/// Where an entry's record is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) file: u32,
    pub(super) block: u32,
    pub(super) payload: u32,
}

/// A record that is to be read again.
pub struct RecordOnDisk {
    pub(super) entry: Entry,
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) place: Place,
}

impl RecordOnDisk {
    /// Bytes that are read.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        padded(self.place.payload as usize)
    }

    /// What belongs to the entry, read from the disk.
    ///
    /// # Errors
    /// The disk's; `InvalidData` if it is not what was written.
    pub fn payload(&self) -> io::Result<Bytes> {
        let payload = read_payload(&*self.file, self.place)?;
        match packet::hash_of(&self.entry) {
            Some(hash) if payload_hash(&payload) != hash => Err(io::ErrorKind::InvalidData.into()),
            _ => Ok(payload),
        }
    }

    /// The number of another entry whose record begins here: its write went astray.
    #[must_use]
    pub fn stray(&self) -> Option<Lsn> {
        let at = u64::from(self.place.block) * BLOCK;
        let block = again(|| read_exact_at(&*self.file, at, DIRECT_ALIGN)).ok()?;
        match decode_header(&block) {
            Some((Record::Entry(entry) | Record::Healed(entry), _)) => Some(entry.lsn),
            _ => None,
        }
        .filter(|lsn| *lsn != self.entry.lsn)
    }

    /// True if it can be read and is what was written.
    #[must_use]
    pub fn is_good(&self) -> bool {
        let len = usize::try_from(self.bytes()).expect("a size");
        let at = u64::from(self.place.block) * BLOCK;
        let Ok(bytes) = again(|| read_exact_at(&*self.file, at, len)) else { return false };
        let entry = match decode_header(&bytes) {
            Some((Record::Entry(entry) | Record::Healed(entry), _)) => entry,
            _ => return false,
        };
        let payload = &bytes[RECORD_HEADER..RECORD_HEADER + self.place.payload as usize];
        let is_whole = packet::hash_of(&entry).is_none_or(|hash| payload_hash(payload) == hash);
        entry == self.entry && is_whole
    }
}

pub(super) fn encode_header(record: Record, payload: usize) -> [u8; RECORD_HEADER] {
    let mut body = Writer::default();
    body.u32(u32::try_from(payload).expect("bounded by the largest frame"));
    match record {
        Record::Entry(entry) => {
            body.u8(1);
            records::put_entry(&mut body, &entry);
        }
        Record::Healed(entry) => {
            body.u8(2);
            records::put_entry(&mut body, &entry);
        }
        Record::CutBehind(lsn) => {
            body.u8(3);
            body.u64(lsn.0);
        }
    }
    body.0.resize(RECORD_HEADER - 12, 0);
    let mut header = Writer::default();
    header.u64(MAGIC);
    header.u32(crc(&body.0));
    header.0.extend_from_slice(&body.0);
    header.0.try_into().expect("as long as a header")
}

/// The record that begins here, and the length of its payload.
pub(super) fn decode_header(bytes: &[u8]) -> Option<(Record, usize)> {
    let mut from = Reader(bytes);
    let known = from.u64().ok()? == MAGIC;
    let sum = from.u32().ok()?;
    let body = from.take(RECORD_HEADER - 12).ok().filter(|body| known && crc(body) == sum)?;
    let mut from = Reader(body);
    let payload = from.u32().ok()? as usize;
    let record = match from.u8().ok()? {
        1 => Record::Entry(records::entry(&mut from).ok()?),
        2 => Record::Healed(records::entry(&mut from).ok()?),
        3 => Record::CutBehind(Lsn(from.u64().ok()?)),
        _ => return None,
    };
    (payload <= PAYLOAD_MAX).then_some((record, payload))
}

pub(super) fn padded(payload: usize) -> u64 {
    ((RECORD_HEADER + payload) as u64).next_multiple_of(BLOCK)
}

pub(super) fn read_payload(file: &dyn DiskFile, place: Place) -> io::Result<Bytes> {
    let offset = u64::from(place.block) * BLOCK + RECORD_HEADER as u64;
    again(|| file.read_shared(offset, place.payload as usize))
}
