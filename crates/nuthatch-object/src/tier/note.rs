//! What was moved, written down on the local disk: the only thing that says that a segment need not
//! be here any more.

use crate::manifest::crc;
use nuthatch_log::env::{Disk, is_full, read_exact_at, replace_file};
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
pub enum Stage {
    /// Being uploaded: what is in the bucket does not count. The segment is here.
    Moving = 1,
    /// All of it is in the bucket. It may still be here too.
    Moved = 2,
    /// Not needed any more: to be removed from the bucket.
    Doomed = 3,
    /// The log does not know it: left where it is, and not shown.
    Aside = 4,
}

impl Stage {
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
pub struct Entry {
    /// How far its move has come.
    pub stage: Stage,
    /// Generation in the keys of its objects.
    pub generation: u32,
    /// Its bytes.
    pub bytes: u64,
    /// Bytes of each of its objects but the last.
    pub part_bytes: u64,
}

/// What was moved, by name of segment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Note {
    /// The tier's address, for people.
    pub place: String,
    /// The segments.
    pub entries: BTreeMap<String, Entry>,
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
            out.extend_from_slice(&entry.generation.to_le_bytes());
            out.extend_from_slice(&entry.bytes.to_le_bytes());
            out.extend_from_slice(&entry.part_bytes.to_le_bytes());
            out.extend_from_slice(name.as_bytes());
        }
        let sum = crc(&out);
        out[12..16].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads the file's bytes; `None` if they are not a note.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let u32_at = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let mut unsummed = bytes.to_vec();
        unsummed.get_mut(12..16)?.fill(0);
        if bytes[..8] != MAGIC || u32_at(8)? != VERSION || u32_at(12)? != crc(&unsummed) {
            return None;
        }
        let place_end = HEADER_BYTES.checked_add(u32_at(16)? as usize)?;
        let place = std::str::from_utf8(bytes.get(HEADER_BYTES..place_end)?).ok()?.to_owned();
        let mut entries = BTreeMap::new();
        let mut rest = bytes.get(place_end..)?;
        for _ in 0..u32_at(20)? {
            let (name, entry, left) = read_entry(rest)?;
            entries.insert(name, entry);
            rest = left;
        }
        rest.is_empty().then_some(Self { place, entries })
    }

    /// Reads the note of a disk: nothing if there is none.
    ///
    /// # Errors
    /// The disk's; `InvalidData` if it is damaged.
    pub fn load(disk: &dyn Disk) -> io::Result<Option<Self>> {
        let file = match disk.open(NOTE_FILE) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let len = file.len()?.min(NOTE_MAX_BYTES);
        let bytes = read_exact_at(&*file, 0, crate::extents::to_usize(len))?;
        Self::decode(&bytes)
            .map(Some)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the file 'tier' is damaged"))
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

    /// Sets space aside for the next [`Note::store`], if there is any.
    pub fn make_spare(&self, disk: &dyn Disk) {
        let wanted = SPARE_BYTES.max(2 * self.encode().len() as u64);
        let made = || -> io::Result<()> {
            let file = match disk.open(SPARE_FILE) {
                Ok(file) => file,
                Err(_) => disk.create(SPARE_FILE)?,
            };
            let len = file.len()?;
            if len < wanted { file.allocate(len, wanted - len) } else { Ok(()) }
        };
        // Without it, a disk that fills up meanwhile holds up the next move.
        let _ = made();
    }
}

fn read_entry(bytes: &[u8]) -> Option<(String, Entry, &[u8])> {
    let (head, rest) = bytes.split_at_checked(ENTRY_BYTES)?;
    let u64_at = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
    let name_len = usize::from(u16::from_le_bytes(head.get(2..4)?.try_into().ok()?));
    let (name, rest) = rest.split_at_checked(name_len)?;
    let entry = Entry {
        stage: Stage::from_u8(head[0])?,
        generation: u32::from_le_bytes(head.get(4..8)?.try_into().ok()?),
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
        let entry = |stage, bytes| Entry { stage, generation: 3, bytes, part_bytes: 8 << 20 };
        let entries = [
            ("0001-2.seg".to_owned(), entry(Stage::Moved, 5000)),
            ("0001-9.seg".to_owned(), entry(Stage::Doomed, 1 << 40)),
        ];
        Note { place: "s3://b/log".to_owned(), entries: entries.into() }
    }

    #[test]
    fn a_note_survives_the_round_trip() {
        assert_eq!(Note::decode(&sample().encode()), Some(sample()));
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
            assert_eq!(Note::decode(&copy), None, "bit {bit}");
        }
        assert_eq!(Note::decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(Note::decode(&[]), None);
    }

    #[test]
    fn a_full_disk_still_takes_a_note() {
        let disk = RamDisk::new(256 << 10);
        sample().make_spare(&disk);
        let filler = disk.create("filler").expect("creates");
        let free = disk.free_bytes().expect("known");
        filler.allocate(0, free).expect("fits");
        sample().store(&disk).expect("there is room set aside");
        assert_eq!(Note::load(&disk).expect("reads"), Some(sample()));
    }
}
