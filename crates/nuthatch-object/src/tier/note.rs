//! The record of moved segments on the local disk: the only evidence that a segment need not be
//! here any more.

use super::aside::read_small;
use crate::manifest::crc;
use crate::rules;
use nuthatch_log::env::{Disk, is_full, replace_file};
use std::collections::BTreeMap;
use std::io;

/// The note's file, beside the log's catalog.
pub const NOTE_FILE: &str = "tier";

/// Space for the note when the disk is full: moving is what makes room then.
const SPARE_FILE: &str = "tier-spare";

/// That space is at least this, and twice what the note takes.
const SPARE_BYTES: u64 = 64 * 1024;

const MAGIC: [u8; 8] = *b"NUTHTIER";

/// Version of the format that this code writes, and the only one it reads.
const VERSION: u32 = 1;

const HEADER_BYTES: usize = 32;
const ENTRY_BYTES: usize = 24;

/// A note longer than this (hundreds of thousands of segments) is not one.
const NOTE_MAX_BYTES: u64 = 64 << 20;

/// How far the move of a segment has come. The numbers are part of the format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum MoveStage {
    /// Being uploaded: what is in the bucket does not count. The segment is here.
    Moving = 1,
    /// All of it is in the bucket. It may still be here too.
    Moved = 2,
    /// Not needed any more: to be removed from the bucket.
    Doomed = 3,
    /// The log does not know it: left where it is, and not shown.
    Aside = 4,
}

impl MoveStage {
    const fn from_u8(n: u8) -> Option<Self> {
        Some(match n {
            1 => Self::Moving,
            2 => Self::Moved,
            3 => Self::Doomed,
            4 => Self::Aside,
            _ => return None,
        })
    }
}

/// A segment in the note.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoteEntry {
    /// How far its move has come.
    pub stage: MoveStage,
    /// Epoch in the keys of its objects.
    pub epoch: u32,
    /// Its bytes.
    pub bytes: u64,
    /// Bytes of each of its objects but the last.
    pub part_bytes: u64,
}

/// Why a note's bytes cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoteFault {
    /// They are not what was written.
    Damaged,
    /// They are whole, and of this version of the format.
    Version(u32),
}

/// Moved segments, by name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Note {
    /// The tier's address, for people.
    pub place: String,
    /// The segments.
    pub entries: BTreeMap<String, NoteEntry>,
}

impl Note {
    /// The file's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&(self.place.len() as u32).to_le_bytes());
        out.extend_from_slice(&(self.entries.len() as u32).to_le_bytes());
        out.resize(HEADER_BYTES, 0);
        out.extend_from_slice(self.place.as_bytes());
        for (name, entry) in &self.entries {
            out.push(entry.stage as u8);
            out.push(0);
            out.extend_from_slice(&(name.len() as u16).to_le_bytes());
            out.extend_from_slice(&entry.epoch.to_le_bytes());
            out.extend_from_slice(&entry.bytes.to_le_bytes());
            out.extend_from_slice(&entry.part_bytes.to_le_bytes());
            out.extend_from_slice(name.as_bytes());
        }
        let sum = crc(&out);
        out[12..16].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads the file's bytes.
    ///
    /// # Errors
    /// [`NoteFault`].
    pub fn decode(bytes: &[u8]) -> Result<Self, NoteFault> {
        if bytes.len() < HEADER_BYTES || bytes[..8] != MAGIC {
            return Err(NoteFault::Damaged);
        }
        let u32_of = |at: usize| u32::from_le_bytes(std::array::from_fn(|n| bytes[at + n]));
        let mut unsummed = bytes.to_vec();
        unsummed[12..16].fill(0);
        if rules::NOTE_SUM.holds() && u32_of(12) != crc(&unsummed) {
            return Err(NoteFault::Damaged);
        }
        if rules::LATER_VERSION_REFUSED.holds() && u32_of(8) != VERSION {
            return Err(NoteFault::Version(u32_of(8)));
        }
        Self::fields(bytes, u32_of(16), u32_of(20)).ok_or(NoteFault::Damaged)
    }

    fn fields(bytes: &[u8], place_len: u32, count: u32) -> Option<Self> {
        let (place, mut rest) = bytes.get(HEADER_BYTES..)?.split_at_checked(place_len as usize)?;
        let place = std::str::from_utf8(place).ok()?.to_owned();
        let mut entries = BTreeMap::new();
        for _ in 0..count {
            let (name, entry, left) = read_entry(rest)?;
            entries.insert(name, entry);
            rest = left;
        }
        rest.is_empty().then_some(Self { place, entries })
    }

    /// Reads the note of a disk: nothing if there is none.
    ///
    /// # Errors
    /// The disk's, when it goes on failing; `InvalidData` if the note is damaged; `Unsupported` if
    /// it is of a later version.
    pub fn load(disk: &dyn Disk) -> io::Result<Option<Self>> {
        let Some(bytes) = read_small(disk, NOTE_FILE, NOTE_MAX_BYTES)? else { return Ok(None) };
        Self::decode(&bytes).map(Some).map_err(|fault| match fault {
            NoteFault::Damaged => {
                io::Error::new(io::ErrorKind::InvalidData, "the file 'tier' is damaged")
            }
            NoteFault::Version(found) => io::Error::new(
                io::ErrorKind::Unsupported,
                format!(
                    "the file 'tier' has format version {found}; this program reads version \
                     {VERSION}"
                ),
            ),
        })
    }

    /// Replaces the note of a disk, durably, even if the disk is full.
    ///
    /// # Errors
    /// The disk's; the old note or the new one is then there.
    pub fn store(&self, disk: &dyn Disk) -> io::Result<()> {
        let bytes = self.encode();
        match replace_file(disk, NOTE_FILE, &bytes) {
            Err(error) if is_full(&error) => {
                let spare = disk.open(SPARE_FILE).and_then(|file| file.set_len(0));
                spare.map_err(|_| error)?;
                replace_file(disk, NOTE_FILE, &bytes)
            }
            result => result,
        }
    }

    /// Sets space aside for the next [`Note::store`]. Without it, a disk that fills up meanwhile
    /// holds up the next move.
    ///
    /// # Errors
    /// The disk's; that it is full among them.
    pub fn make_spare(&self, disk: &dyn Disk) -> io::Result<()> {
        let wanted = SPARE_BYTES.max(2 * self.encode().len() as u64);
        let file = match disk.open(SPARE_FILE) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => disk.create(SPARE_FILE)?,
            file => file?,
        };
        let len = file.len()?;
        if len < wanted { file.allocate(len, wanted - len) } else { Ok(()) }
    }
}

fn read_entry(bytes: &[u8]) -> Option<(String, NoteEntry, &[u8])> {
    let (head, rest) = bytes.split_at_checked(ENTRY_BYTES)?;
    let u64_at = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
    let name_len = usize::from(u16::from_le_bytes(head.get(2..4)?.try_into().ok()?));
    let (name, rest) = rest.split_at_checked(name_len)?;
    let entry = NoteEntry {
        stage: MoveStage::from_u8(head[0])?,
        epoch: u32::from_le_bytes(head.get(4..8)?.try_into().ok()?),
        bytes: u64_at(8)?,
        part_bytes: u64_at(16).filter(|bytes| *bytes > 0)?,
    };
    Some((std::str::from_utf8(name).ok()?.to_owned(), entry, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nuthatch_log::env::RamDisk;

    fn sample() -> Note {
        let entry = |stage, bytes| NoteEntry { stage, epoch: 3, bytes, part_bytes: 8 << 20 };
        let entries = [
            ("0001-2.seg".to_owned(), entry(MoveStage::Moved, 5000)),
            ("0001-9.seg".to_owned(), entry(MoveStage::Doomed, 1 << 40)),
        ];
        Note { place: "s3://b/log".to_owned(), entries: entries.into() }
    }

    #[test]
    fn a_note_survives_the_round_trip() {
        assert_eq!(Note::decode(&sample().encode()), Ok(sample()));
        let disk = RamDisk::new(1 << 20);
        assert_eq!(Note::load(&disk).expect("reads"), None);
        sample().store(&disk).expect("stores");
        assert_eq!(Note::load(&disk).expect("reads"), Some(sample()));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = sample().encode();
        for bit in 0..bytes.len() * 8 {
            let mut copy = bytes.clone();
            copy[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Note::decode(&copy), Err(NoteFault::Damaged), "bit {bit}");
        }
        assert_eq!(Note::decode(&bytes[..bytes.len() - 1]), Err(NoteFault::Damaged));
        assert_eq!(Note::decode(&[]), Err(NoteFault::Damaged));
    }

    #[test]
    fn a_full_disk_still_takes_a_note() {
        let disk = RamDisk::new(256 << 10);
        sample().make_spare(&disk).expect("there is room");
        let filler = disk.create("filler").expect("creates");
        let free = disk.free_bytes().expect("known");
        filler.allocate(0, free).expect("fits");
        sample().store(&disk).expect("there is room set aside");
        assert_eq!(Note::load(&disk).expect("reads"), Some(sample()));
    }
}
