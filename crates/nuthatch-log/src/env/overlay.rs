//! Another disk with changes laid over it in memory: what would happen is tried out, looked at, and
//! then written down, or forgotten.
//!
//! Files that are changed are kept in memory as a whole.

use super::{Disk, DiskFile, Medium, Onlooker, Ownership, Tenure};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// A disk under changes that exist only in memory.
pub struct OverlayDisk {
    base: Arc<dyn Disk>,
    files: Mutex<BTreeMap<String, Option<Arc<OverlayFile>>>>,
}

/// How a file differs from the disk below.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// It has this content now.
    Written(Vec<u8>),
    /// It is gone.
    Removed,
}

/// A file as the overlay shows it.
struct OverlayFile {
    content: Mutex<Content>,
}

enum Content {
    Below(Arc<dyn DiskFile>),
    Own(Vec<u8>),
}

impl OverlayDisk {
    /// No changes yet.
    #[must_use]
    pub fn new(base: Arc<dyn Disk>) -> Self {
        Self { base, files: Mutex::default() }
    }

    /// Files that differ from the disk below, by path.
    ///
    /// # Errors
    /// The disk below cannot be read.
    pub fn changes(&self) -> io::Result<BTreeMap<String, Change>> {
        let mut changes = BTreeMap::new();
        for (path, file) in &*self.files.lock() {
            match file {
                None => {
                    if exists(&*self.base, path)? {
                        changes.insert(path.clone(), Change::Removed);
                    }
                }
                Some(file) => {
                    if let Content::Own(bytes) = &*file.content.lock() {
                        changes.insert(path.clone(), Change::Written(bytes.clone()));
                    }
                }
            }
        }
        Ok(changes)
    }
}

fn exists(disk: &dyn Disk, path: &str) -> io::Result<bool> {
    match disk.open(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

impl Disk for OverlayDisk {
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = Arc::new(OverlayFile { content: Mutex::new(Content::Own(Vec::new())) });
        self.files.lock().insert(path.to_owned(), Some(Arc::clone(&file)));
        Ok(file)
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut files = self.files.lock();
        match files.get(path) {
            Some(Some(file)) => Ok(Arc::clone(file) as Arc<dyn DiskFile>),
            Some(None) => Err(io::ErrorKind::NotFound.into()),
            None => {
                let below = self.base.open(path)?;
                let file = Arc::new(OverlayFile { content: Mutex::new(Content::Below(below)) });
                files.insert(path.to_owned(), Some(Arc::clone(&file)));
                Ok(file)
            }
        }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.open(from)?;
        let mut files = self.files.lock();
        let Some(Some(file)) = files.insert(from.to_owned(), None) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        file.own()?;
        files.insert(to.to_owned(), Some(file));
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let mut files = self.files.lock();
        let is_there = match files.get(path) {
            Some(file) => file.is_some(),
            None => exists(&*self.base, path)?,
        };
        if !is_there {
            return Err(io::ErrorKind::NotFound.into());
        }
        files.insert(path.to_owned(), None);
        Ok(())
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let mut names: std::collections::BTreeSet<String> =
            self.base.list(dir)?.into_iter().collect();
        for (path, file) in &*self.files.lock() {
            let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
            if parent == dir {
                match file {
                    Some(_) => names.insert(name.to_owned()),
                    None => names.remove(name),
                };
            }
        }
        Ok(names.into_iter().collect())
    }

    fn create_dir(&self, _dir: &str) -> io::Result<()> {
        Ok(())
    }

    fn sync_dir(&self, _dir: &str) -> io::Result<()> {
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    /// What holds of the names of files in a bucket holds of them here.
    fn medium(&self) -> Medium {
        let below = self.base.medium();
        if below.in_memory { Medium::LOCAL } else { below }
    }

    fn label(&self) -> String {
        self.base.label()
    }
}

impl Ownership for OverlayDisk {
    /// The lock belongs to the owner of the disk below.
    fn take(&self) -> io::Result<Option<Box<dyn Tenure>>> {
        Ok(Some(Box::new(Onlooker)))
    }
}

impl OverlayFile {
    /// Takes the content into memory, so that it can be changed or carried to another name.
    fn own(&self) -> io::Result<()> {
        let mut content = self.content.lock();
        if let Content::Below(file) = &*content {
            let len = index(file.len()?);
            let (bytes, _) = super::read_what_can_be_read(&**file, len)?;
            *content = Content::Own(bytes);
        }
        Ok(())
    }

    fn change(&self, change: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        self.own()?;
        if let Content::Own(bytes) = &mut *self.content.lock() {
            change(bytes);
        }
        Ok(())
    }
}

impl DiskFile for OverlayFile {
    fn write_at(&self, new: &[u8], offset: u64) -> io::Result<()> {
        self.change(|bytes| {
            let at = index(offset);
            if bytes.len() < at + new.len() {
                bytes.resize(at + new.len(), 0);
            }
            bytes[at..at + new.len()].copy_from_slice(new);
        })
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        match &*self.content.lock() {
            Content::Below(file) => file.read_at(into, offset),
            Content::Own(bytes) => {
                let rest = bytes.get(index(offset)..).unwrap_or(&[]);
                let n = rest.len().min(into.len());
                into[..n].copy_from_slice(&rest[..n]);
                Ok(n)
            }
        }
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn reread(&self) -> io::Result<()> {
        match &*self.content.lock() {
            Content::Below(file) => file.reread(),
            Content::Own(_) => Ok(()),
        }
    }

    fn len(&self) -> io::Result<u64> {
        match &*self.content.lock() {
            Content::Below(file) => file.len(),
            Content::Own(bytes) => Ok(bytes.len() as u64),
        }
    }

    /// A file that keeps its length is left alone.
    fn set_len(&self, len: u64) -> io::Result<()> {
        if self.len()? == len {
            return Ok(());
        }
        self.change(|bytes| bytes.resize(index(len), 0))
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let end = index(offset + len);
        self.change(|bytes| bytes.resize(bytes.len().max(end), 0))
    }
}

#[cfg(test)]
mod tests {
    use super::super::MemDisk;
    use super::*;

    #[test]
    fn changes_stay_above() {
        let base = MemDisk::default();
        base.create("a").and_then(|file| file.write_at(b"one", 0)).expect("writes");
        base.create("b").and_then(|file| file.write_at(b"two", 0)).expect("writes");
        let disk = OverlayDisk::new(Arc::new(base.clone()));
        disk.open("a").and_then(|file| file.write_at(b"O", 0)).expect("writes");
        disk.rename("b", "sub/c").expect("renames");
        assert_eq!(disk.list("").expect("lists"), ["a"]);
        assert_eq!(disk.list("sub").unwrap_or_default(), ["c"]);
        let below = super::super::read_exact_at(&*base.open("a").expect("there"), 0, 3);
        assert_eq!(below.expect("reads"), b"one");
        let changes = disk.changes().expect("reads");
        assert_eq!(changes["a"], Change::Written(b"One".to_vec()));
        assert_eq!(changes["b"], Change::Removed);
        assert_eq!(changes["sub/c"], Change::Written(b"two".to_vec()));
    }
}
