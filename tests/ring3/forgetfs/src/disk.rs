//! Files and directories: a sync of a file makes its bytes durable, a sync of a directory its names. Modes and owners
//! are durable at once.

use crate::content::FileData;
use crate::random::Random;
use libc::{EEXIST, EISDIR, ENOENT, ENOSPC, ENOTDIR, ENOTEMPTY, c_int};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::time::SystemTime;

pub type Ino = u64;
/// The root directory.
pub const ROOT: Ino = 1;

type Names = BTreeMap<OsString, Ino>;

/// A directory: names as processes see them, as they are on the medium, and the changes between, in their order.
#[derive(Default)]
pub struct Directory {
    current: Names,
    durable: Names,
    unsynced: Vec<Vec<(OsString, Option<Ino>)>>,
}

impl Directory {
    pub fn names(&self) -> &Names {
        &self.current
    }

    /// One change, which happens as a whole or not at all.
    fn change(&mut self, names: Vec<(OsString, Option<Ino>)>) {
        apply(&mut self.current, &names);
        self.unsynced.push(names);
    }

    fn sync(&mut self) {
        self.durable = self.current.clone();
        self.unsynced.clear();
    }

    /// The first changes stay, some of them or none.
    fn cut(&mut self, random: &mut Random, keep_percent: u64) -> u64 {
        let changes = std::mem::take(&mut self.unsynced);
        let mut lost = changes.len() as u64;
        for change in changes.iter().take_while(|_| random.percent(keep_percent)) {
            apply(&mut self.durable, change);
            lost -= 1;
        }
        self.current = self.durable.clone();
        lost
    }
}

fn apply(names: &mut Names, change: &[(OsString, Option<Ino>)]) {
    for (name, ino) in change {
        match ino {
            Some(ino) => names.insert(name.clone(), *ino),
            None => names.remove(name),
        };
    }
}

pub enum Kind {
    File(FileData),
    Directory(Directory),
}

pub struct Inode {
    pub kind: Kind,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub mtime: SystemTime,
    opened: u32,
}

impl Inode {
    fn new(kind: Kind, mode: u32, (uid, gid): (u32, u32)) -> Inode {
        Inode { kind, mode, uid, gid, mtime: SystemTime::now(), opened: 0 }
    }
}

pub struct Disk {
    inodes: HashMap<Ino, Inode>,
    next: Ino,
    /// Nothing new can be stored.
    pub is_full: bool,
    /// How often that was so.
    pub refused: u64,
}

impl Disk {
    pub fn new() -> Disk {
        let root = Inode::new(Kind::Directory(Directory::default()), 0o755, (0, 0));
        Disk { inodes: HashMap::from([(ROOT, root)]), next: ROOT + 1, is_full: false, refused: 0 }
    }

    pub fn get(&self, ino: Ino) -> Result<&Inode, c_int> {
        self.inodes.get(&ino).ok_or(ENOENT)
    }

    pub fn get_mut(&mut self, ino: Ino) -> Result<&mut Inode, c_int> {
        self.inodes.get_mut(&ino).ok_or(ENOENT)
    }

    pub fn file(&mut self, ino: Ino) -> Result<&mut FileData, c_int> {
        match &mut self.get_mut(ino)?.kind {
            Kind::File(data) => Ok(data),
            Kind::Directory(_) => Err(EISDIR),
        }
    }

    pub fn directory(&self, ino: Ino) -> Result<&Directory, c_int> {
        match &self.get(ino)?.kind {
            Kind::Directory(directory) => Ok(directory),
            Kind::File(_) => Err(ENOTDIR),
        }
    }

    fn directory_mut(&mut self, ino: Ino) -> Result<&mut Directory, c_int> {
        match &mut self.get_mut(ino)?.kind {
            Kind::Directory(directory) => Ok(directory),
            Kind::File(_) => Err(ENOTDIR),
        }
    }

    pub fn lookup(&self, parent: Ino, name: &OsStr) -> Result<Ino, c_int> {
        self.directory(parent)?.current.get(name).copied().ok_or(ENOENT)
    }

    pub fn create(
        &mut self,
        parent: Ino,
        name: &OsStr,
        kind: Kind,
        mode: u32,
        of: (u32, u32),
    ) -> Result<Ino, c_int> {
        if self.is_full {
            self.refused += 1;
            return Err(ENOSPC);
        }
        if self.lookup(parent, name).is_ok() {
            return Err(EEXIST);
        }
        let ino = self.next;
        self.directory_mut(parent)?.change(vec![(name.to_owned(), Some(ino))]);
        self.next += 1;
        self.inodes.insert(ino, Inode::new(kind, mode, of));
        Ok(ino)
    }

    pub fn link(&mut self, ino: Ino, parent: Ino, name: &OsStr) -> Result<(), c_int> {
        if self.lookup(parent, name).is_ok() {
            return Err(EEXIST);
        }
        self.directory_mut(parent)?.change(vec![(name.to_owned(), Some(ino))]);
        Ok(())
    }

    pub fn remove(&mut self, parent: Ino, name: &OsStr) -> Result<(), c_int> {
        let ino = self.lookup(parent, name)?;
        self.refuse_filled(ino)?;
        self.directory_mut(parent)?.change(vec![(name.to_owned(), None)]);
        Ok(())
    }

    fn refuse_filled(&self, ino: Ino) -> Result<(), c_int> {
        match self.directory(ino) {
            Ok(directory) if !directory.current.is_empty() => Err(ENOTEMPTY),
            _ => Ok(()),
        }
    }

    /// Within a directory at once; between two of them each has its own half to lose.
    pub fn rename(
        &mut self,
        (from, name): (Ino, &OsStr),
        (to, new_name): (Ino, &OsStr),
        replaces: bool,
    ) -> Result<(), c_int> {
        let ino = self.lookup(from, name)?;
        match self.lookup(to, new_name) {
            Ok(_) if !replaces => return Err(EEXIST),
            Ok(other) if other == ino => return Ok(()),
            Ok(other) => self.refuse_filled(other)?,
            Err(_) => {}
        }
        let (goes, comes) = ((name.to_owned(), None), (new_name.to_owned(), Some(ino)));
        if from == to {
            self.directory_mut(from)?.change(vec![goes, comes]);
        } else {
            self.directory_mut(to)?.change(vec![comes]);
            self.directory_mut(from)?.change(vec![goes]);
        }
        Ok(())
    }

    pub fn write(&mut self, ino: Ino, at: u64, data: &[u8]) -> Result<(), c_int> {
        let is_full = self.is_full;
        let file = self.file(ino)?;
        if is_full && at + data.len() as u64 > file.current().len() {
            self.refused += 1;
            return Err(ENOSPC);
        }
        file.write(at, data);
        self.get_mut(ino)?.mtime = SystemTime::now();
        Ok(())
    }

    pub fn open(&mut self, ino: Ino) -> Result<(), c_int> {
        self.get_mut(ino)?.opened += 1;
        Ok(())
    }

    pub fn close(&mut self, ino: Ino) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.opened = inode.opened.saturating_sub(1);
            if inode.opened == 0 {
                self.collect();
            }
        }
    }

    /// Makes a file's bytes or a directory's names durable.
    pub fn sync(&mut self, ino: Ino) -> Result<(), c_int> {
        match &mut self.get_mut(ino)?.kind {
            Kind::File(data) => data.sync(),
            Kind::Directory(directory) => directory.sync(),
        }
        Ok(())
    }

    /// A sync that fails.
    pub fn fail_sync(&mut self, ino: Ino) -> Result<(), c_int> {
        if let Kind::File(data) = &mut self.get_mut(ino)?.kind {
            data.fail_sync();
        }
        Ok(())
    }

    /// Makes everything durable.
    pub fn settle(&mut self) {
        for inode in self.inodes.values_mut() {
            match &mut inode.kind {
                Kind::File(data) => data.sync(),
                Kind::Directory(directory) => directory.sync(),
            }
        }
        self.collect();
    }

    /// The power goes; of what was not synced so many of a hundred parts stay. Gives how many are gone.
    pub fn cut(&mut self, seed: u64, keep_percent: u64) -> u64 {
        let mut lost = 0;
        let mut random = Random::new(seed);
        let mut inodes: Vec<_> = self.inodes.iter_mut().collect();
        inodes.sort_by_key(|(ino, _)| **ino);
        for (_, inode) in inodes {
            inode.opened = 0;
            lost += match &mut inode.kind {
                Kind::File(data) => data.cut(&mut random, keep_percent),
                Kind::Directory(directory) => directory.cut(&mut random, keep_percent),
            };
        }
        self.collect();
        lost
    }

    /// Forgets what nobody can reach, now or after a power cut.
    fn collect(&mut self) {
        let mut reached = BTreeSet::new();
        let opened = self.inodes.iter().filter(|(_, inode)| inode.opened > 0).map(|(ino, _)| *ino);
        let mut next: Vec<Ino> = opened.chain([ROOT]).collect();
        while let Some(ino) = next.pop() {
            if !reached.insert(ino) {
                continue;
            }
            if let Some(Inode { kind: Kind::Directory(directory), .. }) = self.inodes.get(&ino) {
                let changes = directory.unsynced.iter().flatten().filter_map(|(_, ino)| *ino);
                next.extend(directory.current.values().chain(directory.durable.values()).copied());
                next.extend(changes);
            }
        }
        self.inodes.retain(|ino, _| reached.contains(ino));
    }
}
