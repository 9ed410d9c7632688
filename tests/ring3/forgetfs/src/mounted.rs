//! The disk as the kernel asks for it.

use crate::content::FileData;
use crate::disk::{Directory, Disk, Ino, Inode, Kind};
use fuser::{
    FileAttr, FileType, Filesystem, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow,
};
use libc::{EINVAL, EIO, ENOSPC, c_int};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, SystemTime};

/// The kernel asks each time: a power cut changes everything behind its back.
const NOTHING_CACHED: Duration = Duration::ZERO;
const BLOCK: u32 = 4096;
const BLOCKS: u64 = 1 << 24;

/// The disk and its faults.
pub struct State {
    pub disk: Disk,
    pub slow_ms: u64,
    pub failing_syncs: u64,
    /// Syncs that failed or were slow since somebody asked.
    disturbed_syncs: u64,
    /// The power is gone: nothing is done any more, and no sync that is under way ends well.
    is_dead: bool,
}

impl State {
    /// The power comes back, to what is left.
    /// Gives how many sectors and changes of names are gone.
    pub fn cut(&mut self, seed: u64, keep_percent: u64) -> u64 {
        self.is_dead = false;
        self.disk.cut(seed, keep_percent)
    }

    /// How many calls were refused for want of room, and syncs failed or were slow, since this was asked last.
    pub fn disturbed(&mut self) -> u64 {
        std::mem::take(&mut self.disturbed_syncs) + std::mem::take(&mut self.disk.refused)
    }

    fn alive(&mut self) -> Result<&mut Disk, c_int> {
        if self.is_dead { Err(EIO) } else { Ok(&mut self.disk) }
    }

    fn sync(&mut self, ino: Ino) -> Result<(), c_int> {
        if self.is_dead {
            Err(EIO)
        } else if self.failing_syncs > 0 {
            self.failing_syncs -= 1;
            self.disturbed_syncs += 1;
            self.disk.fail_sync(ino).and(Err(EIO))
        } else {
            self.disk.sync(ino)
        }
    }
}

/// What the kernel's side and the commands share.
#[derive(Clone)]
pub struct Shared(Arc<(Mutex<State>, Condvar)>);

impl Default for Shared {
    fn default() -> Shared {
        let state = State {
            disk: Disk::new(),
            slow_ms: 0,
            failing_syncs: 0,
            disturbed_syncs: 0,
            is_dead: false,
        };
        Shared(Arc::new((Mutex::new(state), Condvar::new())))
    }
}

impl Shared {
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().expect("nobody panics with the disk")
    }

    /// The power goes. Syncs that are under way end at once, and make nothing durable.
    pub fn die(&self) {
        self.lock().is_dead = true;
        self.0.1.notify_all();
    }

    /// A sync that takes a while.
    fn sync_slowly(&self, ino: Ino, slow: Duration) -> Result<(), c_int> {
        let waited = self.0.1.wait_timeout_while(self.lock(), slow, |state| !state.is_dead);
        waited.expect("nobody panics with the disk").0.sync(ino)
    }
}

pub struct Mounted {
    shared: Shared,
    /// Directories that are being read, as they were when they were opened.
    listings: HashMap<u64, Vec<(Ino, FileType, OsString)>>,
    next_handle: u64,
}

impl Mounted {
    pub fn new(shared: Shared) -> Mounted {
        Mounted { shared, listings: HashMap::new(), next_handle: 1 }
    }

    fn attr(&self, ino: Ino) -> Result<FileAttr, c_int> {
        self.shared.lock().disk.get(ino).map(|inode| attr_of(ino, inode))
    }

    fn enter(&self, made: Result<Ino, c_int>, reply: ReplyEntry) {
        match made.and_then(|ino| self.attr(ino)) {
            Ok(attr) => reply.entry(&NOTHING_CACHED, &attr, 0),
            Err(error) => reply.error(error),
        }
    }

    fn create_as(
        &self,
        req: &Request<'_>,
        (parent, name): (Ino, &OsStr),
        kind: Kind,
        mode: u32,
    ) -> Result<Ino, c_int> {
        let of = (req.uid(), req.gid());
        self.shared.lock().alive()?.create(parent, name, kind, mode & 0o7777, of)
    }

    fn sync(&self, ino: Ino, reply: ReplyEmpty) {
        let slow = Duration::from_millis(self.shared.lock().slow_ms);
        if slow.is_zero() {
            return answer(self.shared.lock().sync(ino), reply);
        }
        let shared = self.shared.clone();
        shared.lock().disturbed_syncs += 1;
        thread::spawn(move || answer(shared.sync_slowly(ino, slow), reply));
    }
}

fn answer(done: Result<(), c_int>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

fn kind_of(inode: &Inode) -> FileType {
    match inode.kind {
        Kind::File(_) => FileType::RegularFile,
        Kind::Directory(_) => FileType::Directory,
    }
}

fn attr_of(ino: Ino, inode: &Inode) -> FileAttr {
    let (size, stored) = match &inode.kind {
        Kind::File(data) => (data.current().len(), data.current().stored()),
        Kind::Directory(_) => (0, 0),
    };
    FileAttr {
        ino,
        size,
        blocks: stored / 512,
        atime: inode.mtime,
        mtime: inode.mtime,
        ctime: inode.mtime,
        crtime: inode.mtime,
        kind: kind_of(inode),
        perm: inode.mode as u16,
        nlink: 1,
        uid: inode.uid,
        gid: inode.gid,
        rdev: 0,
        blksize: BLOCK,
        flags: 0,
    }
}

impl Filesystem for Mounted {
    fn lookup(&mut self, _req: &Request<'_>, parent: u64, name: &OsStr, reply: ReplyEntry) {
        let found = self.shared.lock().disk.lookup(parent, name);
        self.enter(found, reply);
    }

    fn getattr(&mut self, _req: &Request<'_>, ino: u64, _fh: Option<u64>, reply: ReplyAttr) {
        match self.attr(ino) {
            Ok(attr) => reply.attr(&NOTHING_CACHED, &attr),
            Err(error) => reply.error(error),
        }
    }

    fn setattr(
        &mut self,
        _req: &Request<'_>,
        ino: u64,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<u64>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<u32>,
        reply: ReplyAttr,
    ) {
        let set = |state: &mut State| {
            if let Some(size) = size {
                state.alive()?.file(ino)?.set_len(size);
            }
            let inode = state.disk.get_mut(ino)?;
            inode.mode = mode.map_or(inode.mode, |mode| mode & 0o7777);
            inode.uid = uid.unwrap_or(inode.uid);
            inode.gid = gid.unwrap_or(inode.gid);
            match mtime {
                Some(TimeOrNow::SpecificTime(time)) => inode.mtime = time,
                Some(TimeOrNow::Now) => inode.mtime = SystemTime::now(),
                None => {}
            }
            Ok(attr_of(ino, inode))
        };
        match set(&mut self.shared.lock()) {
            Ok(attr) => reply.attr(&NOTHING_CACHED, &attr),
            Err(error) => reply.error(error),
        }
    }

    fn mkdir(
        &mut self,
        req: &Request<'_>,
        parent: u64,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let kind = Kind::Directory(Directory::default());
        let made = self.create_as(req, (parent, name), kind, mode & !umask);
        self.enter(made, reply);
    }

    fn mknod(
        &mut self,
        req: &Request<'_>,
        parent: u64,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        if mode & libc::S_IFMT != libc::S_IFREG {
            return reply.error(EINVAL);
        }
        let kind = Kind::File(FileData::default());
        let made = self.create_as(req, (parent, name), kind, mode & !umask);
        self.enter(made, reply);
    }

    fn create(
        &mut self,
        req: &Request<'_>,
        parent: u64,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let kind = Kind::File(FileData::default());
        let made = self.create_as(req, (parent, name), kind, mode & !umask).and_then(|ino| {
            self.shared.lock().disk.open(ino)?;
            self.attr(ino)
        });
        match made {
            Ok(attr) => reply.created(&NOTHING_CACHED, &attr, 0, 0, 0),
            Err(error) => reply.error(error),
        }
    }

    fn unlink(&mut self, _req: &Request<'_>, parent: u64, name: &OsStr, reply: ReplyEmpty) {
        let removed = self.shared.lock().alive().and_then(|disk| disk.remove(parent, name));
        answer(removed, reply);
    }

    fn rmdir(&mut self, _req: &Request<'_>, parent: u64, name: &OsStr, reply: ReplyEmpty) {
        let removed = self.shared.lock().alive().and_then(|disk| disk.remove(parent, name));
        answer(removed, reply);
    }

    fn rename(
        &mut self,
        _req: &Request<'_>,
        parent: u64,
        name: &OsStr,
        newparent: u64,
        newname: &OsStr,
        flags: u32,
        reply: ReplyEmpty,
    ) {
        if flags & !libc::RENAME_NOREPLACE != 0 {
            return reply.error(EINVAL);
        }
        let mut state = self.shared.lock();
        let (from, to) = ((parent, name), (newparent, newname));
        answer(state.alive().and_then(|disk| disk.rename(from, to, flags == 0)), reply);
    }

    fn link(
        &mut self,
        _req: &Request<'_>,
        ino: u64,
        newparent: u64,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let made = self
            .shared
            .lock()
            .alive()
            .and_then(|disk| disk.link(ino, newparent, newname))
            .map(|()| ino);
        self.enter(made, reply);
    }

    fn open(&mut self, _req: &Request<'_>, ino: u64, _flags: i32, reply: ReplyOpen) {
        match self.shared.lock().disk.open(ino) {
            Ok(()) => reply.opened(0, 0),
            Err(error) => reply.error(error),
        }
    }

    fn release(
        &mut self,
        _req: &Request<'_>,
        ino: u64,
        _fh: u64,
        _flags: i32,
        _lock_owner: Option<u64>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.shared.lock().disk.close(ino);
        reply.ok();
    }

    fn read(
        &mut self,
        _req: &Request<'_>,
        ino: u64,
        _fh: u64,
        offset: i64,
        size: u32,
        _flags: i32,
        _lock_owner: Option<u64>,
        reply: ReplyData,
    ) {
        let mut state = self.shared.lock();
        match state.disk.file(ino) {
            Ok(file) => reply.data(&file.current().read(offset as u64, size.into())),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &mut self,
        _req: &Request<'_>,
        ino: u64,
        _fh: u64,
        offset: i64,
        data: &[u8],
        _write_flags: u32,
        _flags: i32,
        _lock_owner: Option<u64>,
        reply: ReplyWrite,
    ) {
        let written =
            self.shared.lock().alive().and_then(|disk| disk.write(ino, offset as u64, data));
        match written {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&mut self, _req: &Request<'_>, _ino: u64, _fh: u64, _owner: u64, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&mut self, _req: &Request<'_>, ino: u64, _fh: u64, _data: bool, reply: ReplyEmpty) {
        self.sync(ino, reply);
    }

    fn fsyncdir(&mut self, _req: &Request<'_>, ino: u64, _fh: u64, _data: bool, reply: ReplyEmpty) {
        self.sync(ino, reply);
    }

    fn opendir(&mut self, _req: &Request<'_>, ino: u64, _flags: i32, reply: ReplyOpen) {
        let state = self.shared.lock();
        let listed = state.disk.directory(ino).map(|directory| {
            let known = directory.names().iter();
            let known =
                known.filter_map(|(name, ino)| Some((*ino, state.disk.get(*ino).ok()?, name)));
            let names = known.map(|(ino, inode, name)| (ino, kind_of(inode), name.clone()));
            let dots = [".", ".."].map(|name| (ino, FileType::Directory, name.into()));
            dots.into_iter().chain(names).collect()
        });
        match listed {
            Ok(listing) => {
                let handle = self.next_handle;
                self.next_handle += 1;
                self.listings.insert(handle, listing);
                reply.opened(handle, 0);
            }
            Err(error) => reply.error(error),
        }
    }

    fn readdir(
        &mut self,
        _req: &Request<'_>,
        _ino: u64,
        fh: u64,
        offset: i64,
        mut reply: ReplyDirectory,
    ) {
        let listing = self.listings.get(&fh).map_or(&[][..], Vec::as_slice);
        for (at, (ino, kind, name)) in listing.iter().enumerate().skip(offset as usize) {
            if reply.add(*ino, at as i64 + 1, *kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &mut self,
        _req: &Request<'_>,
        _ino: u64,
        fh: u64,
        _flags: i32,
        reply: ReplyEmpty,
    ) {
        self.listings.remove(&fh);
        reply.ok();
    }

    fn statfs(&mut self, _req: &Request<'_>, _ino: u64, reply: ReplyStatfs) {
        let free = if self.shared.lock().disk.is_full { 0 } else { BLOCKS };
        reply.statfs(BLOCKS, free, free, 1 << 20, 1 << 20, BLOCK, 255, BLOCK);
    }

    fn fallocate(
        &mut self,
        _req: &Request<'_>,
        ino: u64,
        _fh: u64,
        offset: i64,
        length: i64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        if mode != 0 {
            return reply.error(libc::EOPNOTSUPP);
        }
        let mut state = self.shared.lock();
        let (is_full, end) = (state.disk.is_full, (offset + length) as u64);
        let grown = state.alive().and_then(|disk| disk.file(ino)).and_then(|file| {
            match end > file.current().len() {
                true if is_full => Err(ENOSPC),
                true => {
                    file.set_len(end);
                    Ok(())
                }
                false => Ok(()),
            }
        });
        answer(grown, reply);
    }
}
