//! The catalog of a log: its chain of segments, kept in one small file that is replaced as a whole.
//!
//! Because the chain is written down, a missing file is noticed and named instead of read past.
//! A catalog that cannot be read is an error, never a reason to delete or to start anew.

use crate::bytes::{ByteReader, u32_at};
use crate::env::{Disk, replace_file};
use crate::frame::crc;
use crate::keys::KeyId;
use crate::later::Later;
use crate::types::{Epoch, Lsn, SegmentId};
use std::io;

/// The catalog's file.
pub const CATALOG_FILE: &str = "catalog";

const MAGIC: [u8; 8] = *b"NUTHCATL";

/// Version of the catalog format that this code writes. It reads this one and [`FIRST_VERSION`].
pub const CATALOG_VERSION: u32 = 2;

/// Version without `allocated` and the key, which are zero in it.
const FIRST_VERSION: u32 = 1;

const HEADER_BYTES: usize = 48;
const ENTRY_BYTES: usize = 64;

/// State of a segment in the chain. The numbers are part of the format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum SegmentState {
    /// Being written; its end is found by scanning.
    Open = 1,
    /// Never changes any more; everything up to `data_end` is durable.
    Sealed = 2,
    /// Its file is gone: nothing in it was needed.
    Removed = 3,
    /// Replaced by a compacted segment; its file may or may not still be there.
    Replaced = 4,
}

impl SegmentState {
    const fn from_u8(n: u8) -> Option<Self> {
        Some(match n {
            1 => Self::Open,
            2 => Self::Sealed,
            3 => Self::Removed,
            4 => Self::Replaced,
            _ => return None,
        })
    }
}

/// A segment in the chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentEntry {
    /// Identity.
    pub id: SegmentId,
    /// Epoch of its writer.
    pub epoch: Epoch,
    /// First position it stands for.
    pub base: Lsn,
    /// Last position it stands for (`base - 1` while open or empty).
    pub end: Lsn,
    /// Offset where its frames end, in bytes; 0 while open.
    pub data_end: u64,
    /// Bytes of the footer behind `data_end`; 0 if it has none.
    pub footer_len: u32,
    /// The footer's checksum.
    pub footer_crc: u32,
    /// Salt of its frames.
    pub salt: u32,
    /// Its state.
    pub state: SegmentState,
    /// Written by compaction.
    pub compacted: bool,
    /// Of an open segment: bytes that its file has at least, which was durable before this entry
    /// was. 0: not known (of a log in a bucket, or written by a version that did not note it).
    pub allocated: u64,
}

impl SegmentEntry {
    /// Name of its file.
    #[must_use]
    pub fn file_name(&self) -> String {
        self.id.file_name(self.epoch, self.base, self.compacted)
    }
}

/// The catalog's content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Catalog {
    /// Identity of the log, in every segment's header.
    pub log_id: u64,
    /// The newest epoch that wrote.
    pub epoch: Epoch,
    /// Identity that the next segment gets.
    pub next_segment: SegmentId,
    /// True if the last writer closed the log: no segment is open and nothing may be torn.
    pub clean: bool,
    /// Key for new frames, when the last owner opened the log.
    pub key_id: KeyId,
    /// The chain in the order of positions.
    pub segments: Vec<SegmentEntry>,
}

/// Why a catalog could not be read.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// Reading it failed.
    #[error("cannot read the catalog: {0}")]
    Io(#[from] io::Error),
    /// Its checksum or structure is wrong.
    #[error("the catalog is damaged: {what}")]
    Damaged {
        /// The check that failed.
        what: &'static str,
    },
    /// Another version of the format.
    #[error(
        "the catalog has format version {found}; this program reads versions up to {CATALOG_VERSION}"
    )]
    Version {
        /// The version found.
        found: u32,
    },
    /// It says something that only a later version understands.
    #[error("the catalog is {0}")]
    Later(Later),
}

impl Catalog {
    /// An empty log.
    #[must_use]
    pub const fn new(log_id: u64) -> Self {
        let (epoch, next_segment, key_id) = (Epoch(0), SegmentId(1), KeyId::NONE);
        Self { log_id, epoch, next_segment, clean: true, key_id, segments: Vec::new() }
    }

    /// Takes an identity for a new segment.
    pub fn new_segment_id(&mut self) -> SegmentId {
        let id = self.next_segment;
        self.next_segment = SegmentId(id.0 + 1);
        id
    }

    /// The entry of a segment.
    pub fn entry_mut(&mut self, id: SegmentId) -> Option<&mut SegmentEntry> {
        self.segments.iter_mut().find(|entry| entry.id == id)
    }

    /// Last position of the chain.
    #[must_use]
    pub fn end(&self) -> Lsn {
        self.segments.iter().map(|entry| entry.end).max().unwrap_or_default()
    }

    /// The file's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES + self.segments.len() * ENTRY_BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&CATALOG_VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.log_id.to_le_bytes());
        out.extend_from_slice(&self.epoch.0.to_le_bytes());
        out.extend_from_slice(&self.next_segment.0.to_le_bytes());
        out.extend_from_slice(&u32::from(self.clean).to_le_bytes());
        out.extend_from_slice(&(self.segments.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.key_id.0.to_le_bytes());
        out.resize(HEADER_BYTES, 0);
        for entry in &self.segments {
            put_entry(&mut out, entry);
        }
        let sum = crc(&out);
        out[12..16].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads the file's bytes.
    ///
    /// # Errors
    /// [`CatalogError::Damaged`] and [`CatalogError::Version`].
    pub fn decode(bytes: &[u8]) -> Result<Self, CatalogError> {
        if bytes.len() < HEADER_BYTES || bytes[0..8] != MAGIC {
            return Err(CatalogError::Damaged { what: "it does not begin like a catalog" });
        }
        let mut unsummed = bytes.to_vec();
        unsummed[12..16].fill(0);
        if crc(&unsummed) != u32_at(bytes, 12) {
            return Err(CatalogError::Damaged { what: "its checksum does not fit" });
        }
        let version = u32_at(bytes, 8);
        if !(FIRST_VERSION..=CATALOG_VERSION).contains(&version) {
            return Err(CatalogError::Version { found: version });
        }
        match later(bytes) {
            Some(later) => Err(CatalogError::Later(later)),
            None => {
                Self::fields(bytes).ok_or(CatalogError::Damaged { what: "an entry makes no sense" })
            }
        }
    }

    fn fields(bytes: &[u8]) -> Option<Self> {
        let mut reader = ByteReader::new(bytes.get(16..)?);
        let log_id = reader.u64()?;
        let epoch = Epoch(reader.u32()?);
        let next_segment = SegmentId(reader.u32()?);
        let clean = reader.u32()? != 0;
        let count = reader.u32()? as usize;
        let key_id = KeyId(reader.u32()?);
        let entries = bytes.get(HEADER_BYTES..)?;
        if count.checked_mul(ENTRY_BYTES)? != entries.len() {
            return None;
        }
        let segments = entries.chunks(ENTRY_BYTES).map(read_entry).collect::<Option<_>>()?;
        Some(Self { log_id, epoch, next_segment, clean, key_id, segments })
    }

    /// Reads the catalog of a disk; `None` if there is none.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub fn load(disk: &dyn Disk) -> Result<Option<Self>, CatalogError> {
        let file = match crate::env::again(|| disk.open(CATALOG_FILE)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let len = usize::try_from(file.len()?).unwrap_or(usize::MAX);
        if len > MAX_CATALOG_BYTES {
            return Err(CatalogError::Damaged { what: "it is too long" });
        }
        let bytes = crate::env::again(|| crate::env::read_exact_at(&*file, 0, len))?;
        Self::decode(&bytes).map(Some)
    }

    /// Replaces the catalog of a disk, durably.
    ///
    /// # Errors
    /// The disk's; the old catalog or the new one is then in place.
    pub fn store(&self, disk: &dyn Disk) -> io::Result<()> {
        replace_file(disk, CATALOG_FILE, &self.encode())
    }
}

/// A catalog longer than this (a million segments) is not one.
const MAX_CATALOG_BYTES: usize = 64 * 1024 * 1024;

/// The field of a catalog with a fitting checksum that only a later version writes. In both known
/// versions all of this is zero, or one of few values.
fn later(bytes: &[u8]) -> Option<Later> {
    if bytes[44..48] != [0; 4] {
        return Some(Later::Header);
    }
    bytes[HEADER_BYTES..].chunks_exact(ENTRY_BYTES).find_map(|entry| {
        let (state, compacted) = (entry[44], entry[45]);
        let zeros = || entry[46..48].iter().chain(&entry[56..]);
        if SegmentState::from_u8(state).is_none() {
            Some(Later::SegmentState(state))
        } else if compacted > 1 || zeros().any(|byte| *byte != 0) {
            Some(Later::Header)
        } else {
            None
        }
    })
}

fn put_entry(out: &mut Vec<u8>, entry: &SegmentEntry) {
    let start = out.len();
    out.extend_from_slice(&entry.id.0.to_le_bytes());
    out.extend_from_slice(&entry.epoch.0.to_le_bytes());
    out.extend_from_slice(&entry.base.0.to_le_bytes());
    out.extend_from_slice(&entry.end.0.to_le_bytes());
    out.extend_from_slice(&entry.data_end.to_le_bytes());
    out.extend_from_slice(&entry.footer_len.to_le_bytes());
    out.extend_from_slice(&entry.footer_crc.to_le_bytes());
    out.extend_from_slice(&entry.salt.to_le_bytes());
    out.push(entry.state as u8);
    out.push(u8::from(entry.compacted));
    out.extend_from_slice(&[0; 2]);
    out.extend_from_slice(&entry.allocated.to_le_bytes());
    out.resize(start + ENTRY_BYTES, 0);
}

fn read_entry(bytes: &[u8]) -> Option<SegmentEntry> {
    let mut reader = ByteReader::new(bytes);
    Some(SegmentEntry {
        id: SegmentId(reader.u32()?),
        epoch: Epoch(reader.u32()?),
        base: Lsn(reader.u64()?),
        end: Lsn(reader.u64()?),
        data_end: reader.u64()?,
        footer_len: reader.u32()?,
        footer_crc: reader.u32()?,
        salt: reader.u32()?,
        state: SegmentState::from_u8(reader.u8()?)?,
        compacted: reader.u8()? != 0,
        allocated: crate::bytes::u64_at(reader.take(10)?, 2),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Catalog {
        let mut catalog = Catalog::new(77);
        catalog.key_id = KeyId(0x1a2b_3c4d);
        let id = catalog.new_segment_id();
        catalog.segments.push(SegmentEntry {
            id,
            epoch: Epoch(1),
            base: Lsn(1),
            end: Lsn(9),
            data_end: 4096,
            footer_len: 10,
            footer_crc: 11,
            salt: 12,
            state: SegmentState::Sealed,
            compacted: false,
            allocated: 1 << 20,
        });
        catalog
    }

    #[test]
    fn a_catalog_survives_the_round_trip() {
        assert_eq!(Catalog::decode(&sample().encode()).expect("valid"), sample());
    }

    /// Content that version 1 wrote, which is the same without what came later.
    #[test]
    fn the_first_version_is_read() {
        let mut catalog = sample();
        catalog.segments[0].allocated = 0;
        catalog.key_id = KeyId::NONE;
        let mut bytes = catalog.encode();
        bytes[8] = 1;
        resum(&mut bytes);
        assert_eq!(Catalog::decode(&bytes).expect("valid"), catalog);
    }

    fn resum(bytes: &mut [u8]) {
        bytes[12..16].fill(0);
        let sum = crc(bytes);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    }

    /// Whatever is zero today may mean something to a later version.
    #[test]
    fn what_a_later_version_says_is_refused() {
        let later = [(8, 3), (44, 1), (48 + 44, 9), (48 + 45, 2), (48 + 46, 1), (48 + 56, 1)];
        for (at, byte) in later {
            let mut bytes = sample().encode();
            bytes[at] = byte;
            resum(&mut bytes);
            let error = Catalog::decode(&bytes).expect_err("refused");
            let is_later = matches!(error, CatalogError::Version { .. } | CatalogError::Later(_));
            assert!(is_later, "byte {at}: {error}");
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = sample().encode();
        for bit in 0..bytes.len() * 8 {
            let mut copy = bytes.clone();
            copy[bit / 8] ^= 1 << (bit % 8);
            assert!(Catalog::decode(&copy).is_err(), "bit {bit}");
        }
    }
}
