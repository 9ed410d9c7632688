//! Files of the operating system: `O_DIRECT` where the file system takes it, `fdatasync`, `flock`.

use super::{AlignedBuf, DIRECT_ALIGN, Dated, Disk, DiskFile, Medium, Ownership, Tenure};
use rustix::fs::{FallocateFlags, FlockOperation, OFlags};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// A directory of the operating system.
pub struct RealDisk {
    root: PathBuf,
    /// Aligned writes go past the page cache.
    direct: bool,
}

impl RealDisk {
    /// Uses `root`, creating it if need be, and finds out by writing a small file whether direct
    /// writes work there; if not they go through the page cache.
    ///
    /// # Errors
    /// The directory cannot be made or written.
    pub fn open(root: &Path) -> io::Result<Self> {
        make_dirs(root, &mut sync_dir)?;
        let mut disk = Self { root: root.to_owned(), direct: false };
        disk.create_dir("tmp")?;
        disk.direct = disk.direct_works();
        Ok(disk)
    }

    fn direct_works(&self) -> bool {
        let path = self.root.join("tmp/direct-io-test");
        let works = Self::try_direct(&path).unwrap_or(false);
        let _ = std::fs::remove_file(&path);
        works
    }

    fn try_direct(path: &Path) -> io::Result<bool> {
        let mut buf = AlignedBuf::zeroed(DIRECT_ALIGN);
        buf.fill(0xA5);
        let plain =
            OpenOptions::new().create(true).truncate(true).read(true).write(true).open(path)?;
        let direct = open_direct(path)?;
        direct.write_all_at(&buf, 0)?;
        direct.sync_data()?;
        let mut back = vec![0; DIRECT_ALIGN];
        plain.read_exact_at(&mut back, 0)?;
        Ok(back[..] == buf[..])
    }

    fn file(&self, path: &Path, plain: File) -> io::Result<Arc<dyn DiskFile>> {
        let direct = if self.direct { Some(open_direct(path)?) } else { None };
        Ok(Arc::new(RealFile { plain, direct }))
    }
}

fn open_direct(path: &Path) -> io::Result<File> {
    let flags = i32::try_from(OFlags::DIRECT.bits()).unwrap_or(0);
    OpenOptions::new().write(true).custom_flags(flags).open(path)
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    File::open(dir)?.sync_all()
}

/// Makes a directory and those above it that are missing, durably.
///
/// # Errors
/// One cannot be made, or its name not made durable.
pub fn create_dirs(dir: &Path) -> io::Result<()> {
    make_dirs(dir, &mut sync_dir)
}

/// Makes a directory and those above it that are missing, and sees to it that their names are durable:
/// each one's parent is synced, the first one's also if it was there, because whoever made it may not
/// have done so.
fn make_dirs(dir: &Path, sync: &mut dyn FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    let exists = dir.is_dir();
    let parent = dir.parent().filter(|parent| *parent != dir);
    if !exists {
        if let Some(parent) = parent.filter(|parent| !parent.as_os_str().is_empty()) {
            make_dirs(parent, sync)?;
        }
        match std::fs::create_dir(dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    match parent.map(sync) {
        // A directory that may be traversed and not read was made by another user.
        Some(Err(error)) if exists && error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        Some(result) => result,
        None => Ok(()),
    }
}

impl Disk for RealDisk {
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let path = self.root.join(path);
        let plain =
            OpenOptions::new().create(true).truncate(true).read(true).write(true).open(&path)?;
        self.file(&path, plain)
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let path = self.root.join(path);
        let plain = OpenOptions::new().read(true).write(true).open(&path)?;
        self.file(&path, plain)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.root.join(from), self.root.join(to))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        std::fs::remove_file(self.root.join(path))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(self.root.join(dir))? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    fn create_dir(&self, dir: &str) -> io::Result<()> {
        make_dirs(&self.root.join(dir), &mut sync_dir)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        sync_dir(&self.root.join(dir))
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(&self.root)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn medium(&self) -> Medium {
        Medium::LOCAL
    }

    fn label(&self) -> String {
        self.root.display().to_string()
    }
}

impl Dated for RealDisk {
    fn modified(&self, path: &str) -> io::Result<Option<SystemTime>> {
        std::fs::metadata(self.root.join(path))?.modified().map(Some)
    }
}

impl Ownership for RealDisk {
    fn take(&self) -> io::Result<Option<Box<dyn Tenure>>> {
        let dir = File::open(&self.root)?;
        match rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Box::new(dir))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

struct RealFile {
    plain: File,
    direct: Option<File>,
}

impl DiskFile for RealFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let aligned = (bytes.as_ptr() as usize | bytes.len()).is_multiple_of(DIRECT_ALIGN)
            && offset.is_multiple_of(DIRECT_ALIGN as u64);
        match &self.direct {
            Some(direct) if aligned => direct.write_all_at(bytes, offset),
            _ => self.plain.write_all_at(bytes, offset),
        }
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < into.len() {
            match self.plain.read_at(&mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn sync(&self) -> io::Result<()> {
        self.plain.sync_data()
    }

    /// Pages that could not be written are clean after a failed sync: dropped, they show the medium.
    /// The first sync of a file that was just opened may tell of a failure in an earlier life.
    fn reread(&self) -> io::Result<()> {
        self.plain.sync_data().or_else(|_| self.plain.sync_data())?;
        rustix::fs::fadvise(&self.plain, 0, None, rustix::fs::Advice::DontNeed)?;
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.plain.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.plain.set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&self.plain, FallocateFlags::empty(), offset, len) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::OPNOTSUPP) => self.fill_with_zeros(offset, len),
            Err(error) => Err(error.into()),
        }
    }
}

impl RealFile {
    /// On a file system that cannot reserve space, zeros are written.
    fn fill_with_zeros(&self, offset: u64, len: u64) -> io::Result<()> {
        let zeros = [0; DIRECT_ALIGN];
        let end = offset + len;
        let mut at = offset.max(self.len()?);
        while at < end {
            let step = (end - at).min(zeros.len() as u64);
            self.plain.write_all_at(&zeros[..usize::try_from(step).unwrap_or(0)], at)?;
            at += step;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_directory_that_is_made_is_made_durable() {
        let root = std::env::temp_dir().join(format!("nuthatch-dirs-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir(&root).expect("makes");
        let mut synced = Vec::new();
        let mut note = |dir: &Path| {
            synced.push(dir.to_owned());
            Ok(())
        };
        make_dirs(&root.join("a/b/c"), &mut note).expect("makes");
        make_dirs(&root.join("a/b/c"), &mut note).expect("is there");
        assert!(root.join("a/b/c").is_dir());
        let parents = ["", "", "a", "a/b", "a/b"].map(|dir| root.join(dir));
        // The parent of what was there already as well: who made it may not have synced it.
        assert_eq!(synced[0], root.parent().expect("a parent"));
        assert_eq!(synced[1..], parents[1..]);
        std::fs::remove_dir_all(&root).expect("removes");
    }
}
