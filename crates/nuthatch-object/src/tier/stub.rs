//! The two ends of a moved segment, kept on the local disk: what a start reads of every segment, and
//! compaction to learn what is in one. May be missing or wrong: then the bucket is asked.

use crate::extents::to_usize;
use crate::manifest::crc;
use nuthatch_log::env::{Disk, DiskFile, read_exact_at, replace_file};
use std::io;

/// Where they are, below the log's directory.
pub const STUB_DIR: &str = "cold";

const MAGIC: [u8; 8] = *b"NUTHSTUB";

/// Version of the format that this code writes, and the only one it reads.
const VERSION: u32 = 1;

const HEADER_BYTES: usize = 32;

/// Bytes from the beginning of a segment: its header.
const HEAD_BYTES: u64 = 64;

/// A footer longer than this is read from the bucket.
const TAIL_MAX_BYTES: u64 = 16 << 20;

/// The ends of a segment.
pub struct Stub {
    head_len: usize,
    tail_at: u64,
    bytes: Vec<u8>,
}

fn path(segment: &str) -> String {
    format!("{STUB_DIR}/{segment}")
}

impl Stub {
    /// Keeps the ends of `file`, whose frames end at `data_end`.
    ///
    /// # Errors
    /// The disk's.
    pub fn write(
        disk: &dyn Disk,
        segment: &str,
        file: &dyn DiskFile,
        data_end: u64,
        bytes: u64,
    ) -> io::Result<()> {
        let tail_len = bytes.saturating_sub(data_end);
        if tail_len > TAIL_MAX_BYTES {
            return Ok(());
        }
        let head = read_exact_at(file, 0, to_usize(HEAD_BYTES.min(data_end)))?;
        let tail = read_exact_at(file, data_end, to_usize(tail_len))?;
        let mut out = Vec::with_capacity(HEADER_BYTES + head.len() + tail.len());
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&(head.len() as u64).to_le_bytes());
        out.extend_from_slice(&data_end.to_le_bytes());
        out.extend_from_slice(&head);
        out.extend_from_slice(&tail);
        let sum = crc(&out[16..]);
        out[12..16].copy_from_slice(&sum.to_le_bytes());
        disk.create_dir(STUB_DIR)?;
        replace_file(disk, &path(segment), &out)
    }

    /// Reads the ends of a segment back, if they are here and whole.
    pub fn read(disk: &dyn Disk, segment: &str) -> Option<Self> {
        let file = disk.open(&path(segment)).ok()?;
        let len = file.len().ok().filter(|len| *len <= TAIL_MAX_BYTES + 2 * HEAD_BYTES)?;
        let bytes = read_exact_at(&*file, 0, to_usize(len)).ok()?;
        let u32_at = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let u64_at = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let fits = bytes.get(..8)? == MAGIC
            && u32_at(8)? == VERSION
            && u32_at(12)? == crc(bytes.get(16..)?);
        let head_len = usize::try_from(u64_at(16)?).ok()?;
        let tail_at = u64_at(24)?;
        let whole = fits && head_len <= bytes.len() - HEADER_BYTES;
        whole.then_some(Self { head_len, tail_at, bytes })
    }

    /// Removes the ends of a segment.
    pub fn remove(disk: &dyn Disk, segment: &str) {
        // What stays says nothing and is overwritten or goes later.
        let _ = disk.remove(&path(segment));
    }

    /// Fills `into` from `at` on, if that is in one of the ends.
    pub fn fill(&self, at: u64, into: &mut [u8]) -> bool {
        let (head, tail) = self.bytes[HEADER_BYTES..].split_at(self.head_len);
        let (end, from) = if at >= self.tail_at { (tail, at - self.tail_at) } else { (head, at) };
        let from = to_usize(from);
        match end.get(from..from.saturating_add(into.len())) {
            Some(bytes) => {
                into.copy_from_slice(bytes);
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nuthatch_log::env::RamDisk;

    #[test]
    fn the_ends_are_those_of_the_file() {
        let disk = RamDisk::new(1 << 20);
        let content: Vec<u8> = (0..40_000u32).map(|n| (n * 7 % 251) as u8).collect();
        let file = disk.create("a.seg").expect("creates");
        file.write_at(&content, 0).expect("writes");
        Stub::write(&disk, "a.seg", &*file, 30_000, 40_000).expect("writes");
        let stub = Stub::read(&disk, "a.seg").expect("there");
        for (at, len, here) in [
            (0, 64, true),
            (10, 54, true),
            (0, 65, false),
            (20_000, 10, false),
            (29_999, 2, false),
            (30_000, 10_000, true),
            (39_999, 1, true),
            (39_999, 2, false),
        ] {
            let mut into = vec![0; len];
            assert_eq!(stub.fill(at, &mut into), here, "{at} {len}");
            let at = at as usize;
            assert!(!here || into == content[at..at + len], "{at} {len}");
        }
        disk.open("cold/a.seg").and_then(|file| file.write_at(b"x", 900)).expect("writes");
        assert!(Stub::read(&disk, "a.seg").is_none(), "damaged");
        Stub::remove(&disk, "a.seg");
        assert!(Stub::read(&disk, "a.seg").is_none());
    }
}
