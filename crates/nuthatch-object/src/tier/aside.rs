//! Files of a tier that cannot be read: read again in case that passes, kept out of the way before
//! something else takes their name, never deleted and never overwritten.

use crate::extents::to_usize;
use crate::rules;
use nuthatch_log::env::{Disk, read_exact_at};
use std::io;

/// Directory of files that a log has set aside.
const ASIDE_DIR: &str = "torn";

/// Files of one name that are kept there.
const ASIDE_MAX: u32 = 10_000;

/// A read of a small file that fails is repeated until this many attempts were made.
const READ_ATTEMPTS: u32 = 3;

/// Reads a small file of at most `max_bytes`; `None` if there is none. An error of the medium may
/// pass, so it is not believed at once.
///
/// # Errors
/// The disk's, after [`READ_ATTEMPTS`]; nothing is known of the content then. `InvalidData` if the
/// file is longer.
pub fn read_small(disk: &dyn Disk, path: &str, max_bytes: u64) -> io::Result<Option<Vec<u8>>> {
    let mut attempts = 1;
    loop {
        match read_once(disk, path, max_bytes) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(error),
            Err(_) if attempts < READ_ATTEMPTS && rules::READ_REPEATED.holds() => attempts += 1,
            read => return read.map(Some),
        }
    }
}

fn read_once(disk: &dyn Disk, path: &str, max_bytes: u64) -> io::Result<Vec<u8>> {
    let file = disk.open(path)?;
    let len = file.len()?;
    if len > max_bytes {
        let text = format!("{path} has {len} bytes, at most {max_bytes} can be");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    read_exact_at(&*file, 0, to_usize(len))
}

/// Moves a file out of the way, durably; returns its new name.
///
/// # Errors
/// The disk's: the file is where it was, or at its new name.
pub fn set_aside(disk: &dyn Disk, path: &str) -> io::Result<String> {
    disk.create_dir(ASIDE_DIR)?;
    let taken = disk.list(ASIDE_DIR)?;
    let base = path.replace('/', "-");
    let free = (0..ASIDE_MAX).map(|n| format!("{base}-{n}")).find(|name| !taken.contains(name));
    let free = free.ok_or_else(|| {
        io::Error::other(format!("{ASIDE_DIR} holds {ASIDE_MAX} files of the name {base} already"))
    })?;
    let to = format!("{ASIDE_DIR}/{free}");
    disk.rename(path, &to)?;
    disk.sync_dir(ASIDE_DIR)?;
    disk.sync_dir(path.rsplit_once('/').map_or("", |(dir, _)| dir))?;
    Ok(to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nuthatch_log::env::{Fault, MemDisk};

    #[test]
    fn a_read_that_fails_is_repeated() {
        let disk = MemDisk::default();
        disk.create("a").and_then(|file| file.write_at(b"content", 0)).expect("writes");
        disk.inject(Fault::ReadErrors(u64::from(READ_ATTEMPTS) - 1));
        let read = read_small(&disk, "a", 100).expect("passes");
        assert_eq!(read.as_deref(), Some(&b"content"[..]));
        disk.inject(Fault::ReadErrors(u64::from(READ_ATTEMPTS)));
        assert!(read_small(&disk, "a", 100).is_err());
        assert_eq!(read_small(&disk, "b", 100).expect("nothing"), None);
        let too_long = read_small(&disk, "a", 3).expect_err("is longer").kind();
        assert_eq!(too_long, io::ErrorKind::InvalidData);
    }
}
