//! The two ends of a moved segment, kept on the local disk: what a start reads of every segment, and
//! compaction to learn what is in one. May be missing or wrong: then the bucket is asked.

use super::aside::{read_small, set_aside};
use crate::extents::to_usize;
use crate::manifest::crc;
use crate::rules;
use nuthatch_log::env::{Disk, DiskFile, read_exact_at, replace_file};
use std::io;

/// Their directory, below the log's directory.
pub const STUB_DIR: &str = "cold";

const MAGIC: [u8; 8] = *b"NUTHSTUB";

/// Version of the format that this code writes, and the only one it reads.
const VERSION: u32 = 1;

const HEADER_BYTES: usize = 32;

/// Bytes from the beginning of a segment: its header.
const HEAD_BYTES: u64 = 64;

/// A footer longer than this is read from the bucket.
const TAIL_MAX_BYTES: u64 = 16 << 20;

/// Why the ends of a segment cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StubFault {
    /// They are not what was written for this segment.
    #[error("they are damaged, or another segment's")]
    Damaged,
    /// They are whole, and of another version of the format.
    #[error("they have format version {0}; this program reads version {VERSION}")]
    Version(u32),
    /// The disk goes on failing.
    #[error("{0}")]
    Io(#[source] io::Error),
}

/// The ends of a segment.
pub struct Stub {
    head_len: usize,
    tail_at: u64,
    bytes: Vec<u8>,
}

/// True if the first bytes of a segment fit its name: epoch, first position, and for one that
/// compaction wrote its id.
fn head_is_of(head: &[u8], segment: &str) -> bool {
    let Some(words) = head.get(24..40) else { return false };
    let u32_of = |at: usize| u32::from_le_bytes(std::array::from_fn(|n| words[at + n]));
    let (id, epoch) = (u32_of(0), u32_of(4));
    let base = u64::from_le_bytes(std::array::from_fn(|n| words[8 + n]));
    let plain = format!("{epoch:016x}-{base:020}");
    segment == format!("{plain}.seg") || segment == format!("{plain}-{id:08x}.seg")
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
        // What cannot be read is kept, though something better takes its place.
        match Self::read(disk, segment, bytes) {
            Err(StubFault::Damaged | StubFault::Version(_)) => {
                set_aside(disk, &path(segment))?;
            }
            Err(StubFault::Io(error)) => return Err(error),
            Ok(_) => {}
        }
        replace_file(disk, &path(segment), &out)
    }

    /// Reads the ends of a segment of `bytes` back; `None` if they are not here.
    ///
    /// # Errors
    /// [`StubFault`]: the bucket has them as well.
    pub fn read(disk: &dyn Disk, segment: &str, bytes: u64) -> Result<Option<Self>, StubFault> {
        let most = TAIL_MAX_BYTES + HEAD_BYTES + HEADER_BYTES as u64;
        let content =
            read_small(disk, &path(segment), most).map_err(|error| match error.kind() {
                io::ErrorKind::InvalidData => StubFault::Damaged,
                _ => StubFault::Io(error),
            })?;
        let Some(content) = content else { return Ok(None) };
        let stub = Self::decode(content)?;
        if stub.is_of(segment, bytes) || !rules::ENDS_OF_THIS.holds() {
            Ok(Some(stub))
        } else {
            Err(StubFault::Damaged)
        }
    }

    fn decode(bytes: Vec<u8>) -> Result<Self, StubFault> {
        if bytes.len() < HEADER_BYTES || bytes[..8] != MAGIC {
            return Err(StubFault::Damaged);
        }
        let u32_of = |at: usize| u32::from_le_bytes(std::array::from_fn(|n| bytes[at + n]));
        let u64_of = |at: usize| u64::from_le_bytes(std::array::from_fn(|n| bytes[at + n]));
        if rules::ENDS_SUM.holds() && u32_of(12) != crc(&bytes[16..]) {
            return Err(StubFault::Damaged);
        }
        if rules::LATER_VERSION_REFUSED.holds() && u32_of(8) != VERSION {
            return Err(StubFault::Version(u32_of(8)));
        }
        let (head_len, tail_at) = (to_usize(u64_of(16)), u64_of(24));
        if head_len > bytes.len() - HEADER_BYTES {
            return Err(StubFault::Damaged);
        }
        Ok(Self { head_len, tail_at, bytes })
    }

    /// True if these are the ends of that segment: a file that was written or copied to the wrong
    /// place has the right checksum. A segment's name repeats what its first bytes say.
    fn is_of(&self, segment: &str, bytes: u64) -> bool {
        let (head, tail) = self.bytes[HEADER_BYTES..].split_at(self.head_len);
        self.tail_at.checked_add(tail.len() as u64) == Some(bytes) && head_is_of(head, segment)
    }

    /// Removes the ends of a segment that is not needed any more.
    ///
    /// # Errors
    /// The disk's; what stays says nothing, and is overwritten or goes later.
    pub fn remove(disk: &dyn Disk, segment: &str) -> io::Result<()> {
        match disk.remove(&path(segment)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
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
        let mut content: Vec<u8> = (0..40_000u32).map(|n| (n * 7 % 251) as u8).collect();
        content[24..40].copy_from_slice(&[9, 0, 0, 0, 3, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
        let name = "0000000000000003-00000000000000000005.seg";
        let file = disk.create(name).expect("creates");
        file.write_at(&content, 0).expect("writes");
        Stub::write(&disk, name, &*file, 30_000, 40_000).expect("writes");
        let stub = Stub::read(&disk, name, 40_000).expect("whole").expect("there");
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
        let damaged = |segment: &str, bytes| {
            matches!(Stub::read(&disk, segment, bytes), Err(StubFault::Damaged))
        };
        assert!(damaged(name, 40_001), "of another length");
        let other = "0000000000000003-00000000000000000006.seg";
        let bytes = read_exact_at(&*disk.open(&path(name)).expect("there"), 0, 10_096);
        replace_file(&disk, &path(other), &bytes.expect("reads")).expect("writes");
        assert!(damaged(other, 40_000), "another segment's");
        disk.open(&path(name)).and_then(|file| file.write_at(b"x", 900)).expect("writes");
        assert!(damaged(name, 40_000));
        Stub::write(&disk, name, &*file, 30_000, 40_000).expect("writes");
        assert!(Stub::read(&disk, name, 40_000).is_ok_and(|stub| stub.is_some()));
        assert_eq!(disk.list("torn").expect("lists"), [format!("cold-{name}-0")]);
        Stub::remove(&disk, name).expect("removes");
        assert!(Stub::read(&disk, name, 40_000).is_ok_and(|stub| stub.is_none()));
        Stub::remove(&disk, name).expect("is gone already");
    }
}
