//! The replicated directory on one node: what the committed entries make of it.
//!
//! Only committed entries are applied, so nothing here is ever taken back. Files lie under their numbers in
//! `files/`; `state` has the names, lengths and the last entry up to which they are durable. After a stop what
//! the journal has behind that is applied again.

use crate::coding::{Reader, Writer, crc, malformed};
use crate::operation::{FileId, Operation, operations};
use crate::replica_view::ReplicaView;
use crate::rules::{CUT_NOTED_FIRST, FILES_BEFORE_STATE, GONE_WITH_MARK};
use nuthatch_log::env::{Disk, DiskFile, again, read_exact_at, replace_file};
use nuthatch_quorum::types::Lsn;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

/// The directory of the files.
pub const FILES_DIR: &str = "files";

/// The names of the files, and how far they are durable.
pub const STATE: &str = "state";

const MAGIC: u64 = u64::from_le_bytes(*b"NUTHSTA1");

/// The files of a replicated directory at one entry, open: later entries may have changed what is in them, and do
/// so again wherever they are applied.
pub struct Snapshot {
    /// The last entry that was applied.
    pub applied: Lsn,
    /// What names them, as it is to be written.
    pub state: Vec<u8>,
    /// The files with their lengths.
    pub files: BTreeMap<FileId, (Arc<dyn DiskFile>, u64)>,
}

/// A part of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileRange {
    /// The file.
    pub file: FileId,
    /// Offset of the first byte.
    pub at: u64,
    /// How many bytes.
    pub len: u64,
}

/// Names and files of a replicated directory.
pub struct Replica {
    disk: Arc<dyn Disk>,
    names: BTreeMap<String, FileId>,
    files: BTreeMap<FileId, Arc<dyn DiskFile>>,
    applied: Lsn,
    marked: Lsn,
    /// Bytes of entries applied since the last mark.
    unmarked_bytes: u64,
    /// Written to since the last mark.
    dirty: BTreeSet<FileId>,
    /// The last entry that changed a file; of others it is not after `opened`.
    changed: BTreeMap<FileId, Lsn>,
    /// The last entry that was applied when this was opened.
    opened: Lsn,
    /// Gone from the directory since the last mark.
    gone: BTreeSet<FileId>,
    next: u64,
    /// A change was made in part: what is here is nothing that entries make.
    failed: bool,
    noted: Arc<Mutex<Noted>>,
}

/// What says how long files are at least. Held while it is written.
#[derive(Default)]
struct Noted {
    /// As it is in [`STATE`]; none before the first mark.
    durable: Option<State>,
    /// As the mark that is under way will write it.
    pending: Option<State>,
}

fn path(file: FileId) -> String {
    format!("{FILES_DIR}/{}", file_name(file))
}

/// Name of a file in the directory of files.
#[must_use]
pub fn file_name(file: FileId) -> String {
    format!("{:016x}", file.0)
}

fn invalid(what: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_string())
}

impl Replica {
    /// Opens what the last mark says. Without one, or one that cannot be read, the directory begins empty, and
    /// all of the journal is applied.
    ///
    /// # Errors
    /// The disk's.
    pub fn open(disk: Arc<dyn Disk>) -> io::Result<Self> {
        disk.create_dir(FILES_DIR)?;
        let mut replica = Self {
            names: BTreeMap::new(),
            files: BTreeMap::new(),
            applied: Lsn(0),
            marked: Lsn(0),
            unmarked_bytes: 0,
            dirty: BTreeSet::new(),
            changed: BTreeMap::new(),
            opened: Lsn(0),
            gone: BTreeSet::new(),
            next: 1,
            failed: false,
            noted: Arc::default(),
            disk,
        };
        // Without one of the files all is made again of the journal, if that has all.
        let state = load_state(&*replica.disk)?;
        let Some(state) = state.filter(|state| state.is_here(&*replica.disk)) else {
            return Ok(replica);
        };
        (replica.applied, replica.marked, replica.next) =
            (state.applied, state.applied, state.next);
        replica.opened = state.applied;
        replica.noted.lock().durable = Some(state.clone());
        for (name, file, len) in state.names {
            let open = replica.disk.open(&path(file))?;
            // What is behind that is written again.
            open.set_len(len)?;
            replica.dirty.insert(file);
            replica.names.insert(name, file);
            replica.files.insert(file, open);
        }
        // What was there beside them at the mark, and was not removed yet, or is made again by later entries.
        remove_unnamed(&*replica.disk)?;
        Ok(replica)
    }

    /// The disk.
    #[must_use]
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// The last entry that was applied.
    #[must_use]
    pub fn applied(&self) -> Lsn {
        self.applied
    }

    /// Entries applied since the last mark, and their bytes with those of the files that lost their names.
    #[must_use]
    pub fn unmarked(&self) -> (u64, u64) {
        (self.applied.0 - self.marked.0, self.unmarked_bytes)
    }

    /// The last entry up to which the files are durable.
    #[must_use]
    pub fn marked(&self) -> Lsn {
        self.marked
    }

    /// The files as they are now, to be read while entries go on being applied.
    ///
    /// # Errors
    /// The disk's.
    pub fn snapshot(&self) -> io::Result<Snapshot> {
        self.check()?;
        let state = self.state()?;
        let named =
            |(_, file, len): &(String, FileId, u64)| (*file, (Arc::clone(&self.files[file]), *len));
        let files = state.names.iter().map(named).collect();
        Ok(Snapshot { applied: self.applied, state: state.encode(), files })
    }

    /// The files as they are now, for who only reads them.
    ///
    /// # Errors
    /// A change was made in part.
    pub fn view(&self) -> io::Result<ReplicaView> {
        self.check()?;
        let file = |(name, file): (&String, &FileId)| (name.clone(), Arc::clone(&self.files[file]));
        let files = self.names.iter().map(file).collect();
        Ok(ReplicaView::new(
            files,
            self.applied,
            format!("the keeper's files in {}", self.disk.label()),
        ))
    }

    fn state(&self) -> io::Result<State> {
        let name =
            |(name, file): (&String, &FileId)| Ok((name.clone(), *file, self.known(*file)?.len()?));
        let names = self.names.iter().map(name).collect::<io::Result<Vec<_>>>()?;
        Ok(State { applied: self.applied, next: self.next, names })
    }

    /// Names and numbers of the files.
    pub fn names(&self) -> impl Iterator<Item = (&String, FileId)> {
        self.names.iter().map(|(name, file)| (name, *file))
    }

    /// A number that no file has had.
    #[must_use]
    pub fn next_file(&self) -> u64 {
        self.next
    }

    /// A file.
    #[must_use]
    pub fn file(&self, file: FileId) -> Option<&Arc<dyn DiskFile>> {
        self.files.get(&file)
    }

    /// Applies a committed entry; one that was applied is passed over.
    ///
    /// # Errors
    /// The disk's; `InvalidData` if the payload is none, or does not belong behind what was applied. After one
    /// nothing more is applied or marked: a part of the entry may have been, and again it would not do the same.
    /// Opened anew, the directory is as it was marked, and all behind that is applied again.
    pub fn apply(&mut self, lsn: Lsn, payload: &[u8]) -> io::Result<()> {
        if lsn <= self.applied {
            return Ok(());
        }
        assert_eq!(lsn, self.applied.next(), "entries are applied in their order");
        self.check()?;
        let applied = self.apply_all(payload);
        self.failed = applied.is_err();
        applied?;
        self.applied = lsn;
        self.unmarked_bytes += payload.len() as u64;
        Ok(())
    }

    fn apply_all(&mut self, payload: &[u8]) -> io::Result<()> {
        let operations = operations(payload).map_err(invalid)?;
        operations.into_iter().try_for_each(|operation| self.apply_one(operation))
    }

    /// True if a change was made in part: the directory has to be opened anew.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    fn check(&self) -> io::Result<()> {
        match self.failed {
            true => Err(io::Error::other("an earlier entry was applied in part")),
            false => Ok(()),
        }
    }

    fn apply_one(&mut self, operation: Operation<'_>) -> io::Result<()> {
        match operation {
            Operation::Create { path: name, file } => {
                let open = self.disk.create(&path(file))?;
                self.next = self.next.max(file.0 + 1);
                self.files.insert(file, open);
                self.note_change(file);
                let before = self.names.insert(name, file);
                self.drop_file(before)?;
            }
            Operation::Write { file, at, bytes } => {
                self.change(file, |open| open.write_at(bytes, at))?;
            }
            Operation::SetLen { file, len } => {
                self.may_be_cut(file, len)?;
                self.change(file, |open| open.set_len(len))?;
            }
            Operation::Rename { from, to } => {
                let file = self.names.remove(&from).ok_or_else(|| unknown(&from))?;
                let before = self.names.insert(to, file);
                self.drop_file(before)?;
            }
            Operation::Remove { path } => {
                let file = self.names.remove(&path).ok_or_else(|| unknown(&path))?;
                self.drop_file(Some(file))?;
            }
        }
        Ok(())
    }

    /// A file is about to be cut. One that is shorter than its mark says counts as lost, and a cut that is not marked
    /// may be durable or not: so the mark says it before. Until the entry that cuts is applied again, what the file
    /// had behind that is missing.
    fn may_be_cut(&self, file: FileId, len: u64) -> io::Result<()> {
        let mut noted = self.noted.lock();
        if let Some(pending) = &mut noted.pending {
            pending.shorten(file, len);
        }
        let durable = noted.durable.as_mut().filter(|_| CUT_NOTED_FIRST.holds());
        let Some(durable) = durable else { return Ok(()) };
        let is_marked = durable.shorten(file, len);
        if is_marked { replace_file(&*self.disk, STATE, &durable.encode()) } else { Ok(()) }
    }

    /// Changes a file. One that lost its name and went with a mark is nobody's any more: nothing is changed.
    fn change(
        &mut self,
        file: FileId,
        change: impl FnOnce(&dyn DiskFile) -> io::Result<()>,
    ) -> io::Result<()> {
        match self.files.get(&file) {
            Some(open) => {
                let open = Arc::clone(open);
                self.note_change(file);
                change(&*open)
            }
            None if file.0 < self.next => Ok(()),
            None => Err(invalid(format!("no file has the number {}", file.0))),
        }
    }

    /// The entry that is being applied changes a file.
    fn note_change(&mut self, file: FileId) {
        self.dirty.insert(file);
        self.changed.insert(file, self.applied.next());
    }

    /// No later entry than this one has changed a file; none of one that is not here.
    #[must_use]
    pub fn changed(&self, file: FileId) -> Option<Lsn> {
        self.files
            .contains_key(&file)
            .then(|| self.changed.get(&file).copied().unwrap_or(self.opened))
    }

    /// Puts bytes in place that entries made and the disk has lost.
    ///
    /// # Errors
    /// The disk's, and `NotFound` for a file that is not here.
    pub fn heal(&mut self, file: FileId, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.check()?;
        let open = self.files.get(&file).ok_or(io::ErrorKind::NotFound)?;
        open.write_at(bytes, at)?;
        self.dirty.insert(file);
        Ok(())
    }

    /// A file without a name may still be written to by whoever has it open: it goes with the next mark, which is
    /// due the sooner the more space that frees.
    fn drop_file(&mut self, file: Option<FileId>) -> io::Result<()> {
        let Some(file) = file else { return Ok(()) };
        self.unmarked_bytes += self.known(file)?.len()?;
        self.gone.insert(file);
        if GONE_WITH_MARK.holds() { Ok(()) } else { remove_files(&*self.disk, &[file]) }
    }

    fn known(&self, file: FileId) -> io::Result<&Arc<dyn DiskFile>> {
        self.files.get(&file).ok_or_else(|| invalid(format!("no file has the number {}", file.0)))
    }

    /// Makes what was applied durable and notes that. The caller sees to it that the journal is durable so
    /// far.
    ///
    /// # Errors
    /// The disk's.
    pub fn mark(&mut self) -> io::Result<()> {
        let mark = self.begin_mark()?;
        mark.make_durable(&*self.disk)?;
        let gone = self.end_mark(mark);
        remove_files(&*self.disk, &gone)
    }

    /// Begins to make durable what was applied so far. Entries may go on being applied meanwhile: what they change
    /// beyond that, they change again should the directory be opened as it was marked.
    ///
    /// # Errors
    /// The disk's.
    pub fn begin_mark(&mut self) -> io::Result<Mark> {
        self.check()?;
        self.noted.lock().pending = Some(self.state()?);
        let dirty = std::mem::take(&mut self.dirty);
        let files = dirty.iter().filter_map(|file| self.files.get(file).cloned()).collect();
        self.unmarked_bytes = 0;
        let (noted, gone) = (Arc::clone(&self.noted), std::mem::take(&mut self.gone));
        Ok(Mark { applied: self.applied, noted, files, gone })
    }

    /// What was begun is durable. Gives the files that are nobody's any more, to be removed.
    #[must_use]
    pub fn end_mark(&mut self, mark: Mark) -> Vec<FileId> {
        self.marked = mark.applied;
        for file in &mark.gone {
            self.files.remove(file);
            self.changed.remove(file);
        }
        mark.gone.into_iter().collect()
    }
}

/// Removes files that are nobody's any more; one that is not there is.
///
/// # Errors
/// The disk's.
pub fn remove_files(disk: &dyn Disk, gone: &[FileId]) -> io::Result<()> {
    for file in gone {
        match disk.remove(&path(*file)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed?,
        }
    }
    Ok(())
}

/// Files that are to be durable as of an entry.
pub struct Mark {
    applied: Lsn,
    /// What names them, as it is to be written.
    noted: Arc<Mutex<Noted>>,
    /// Those that were changed.
    files: Vec<Arc<dyn DiskFile>>,
    /// Those that had lost their names by then.
    gone: BTreeSet<FileId>,
}

impl Mark {
    /// Makes the files durable and notes that they are. Waits for the disk.
    ///
    /// # Errors
    /// The disk's.
    pub fn make_durable(&self, disk: &dyn Disk) -> io::Result<()> {
        if FILES_BEFORE_STATE.holds() {
            self.files.iter().try_for_each(|file| file.sync())?;
        }
        disk.sync_dir(FILES_DIR)?;
        let mut noted = self.noted.lock();
        let state = noted.pending.take().expect("one mark is under way");
        replace_file(disk, STATE, &state.encode())?;
        noted.durable = Some(state);
        Ok(())
    }
}

fn load_state(disk: &dyn Disk) -> io::Result<Option<State>> {
    let read = || {
        let file = disk.open(STATE)?;
        let len = usize::try_from(file.len()?).map_err(invalid)?;
        read_exact_at(&*file, 0, len)
    };
    match again(read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
        Ok(bytes) => Ok(State::decode(&bytes).ok()),
    }
}

/// True if the files are durable up to an entry, as far as their state can be read, and all of them are there.
///
/// # Errors
/// The disk's.
pub fn is_durable_to(disk: &dyn Disk, lsn: Lsn) -> io::Result<bool> {
    Ok(durable_to(disk)?.is_some_and(|applied| applied >= lsn))
}

/// The last entry whose work the files have durably; none: their state cannot be read, or some of them are not there.
///
/// # Errors
/// The disk's.
pub fn durable_to(disk: &dyn Disk) -> io::Result<Option<Lsn>> {
    let state = load_state(disk)?.filter(|state| state.is_here(disk));
    Ok(state.map(|state| state.applied))
}

/// Removes the files that the state does not name.
///
/// # Errors
/// The disk's; `InvalidData` if the state cannot be read: nothing is removed then.
pub fn remove_unnamed(disk: &dyn Disk) -> io::Result<()> {
    let state = load_state(disk)?.ok_or_else(|| invalid("the state of files cannot be read"))?;
    let named: BTreeSet<String> = state.names.iter().map(|(_, file, _)| path(*file)).collect();
    for name in disk.list(FILES_DIR)? {
        let path = format!("{FILES_DIR}/{name}");
        if !named.contains(&path) {
            disk.remove(&path)?;
        }
    }
    disk.sync_dir(FILES_DIR)
}

/// The numbers and lengths of the files that an encoded state names, and the last entry that it has.
///
/// # Errors
/// It is none.
pub fn read_state(bytes: &[u8]) -> io::Result<(Lsn, Vec<(FileId, u64)>)> {
    let state = State::decode(bytes).map_err(invalid)?;
    let files = state.names.iter().map(|(_, file, len)| (*file, *len));
    Ok((state.applied, files.collect()))
}

fn unknown(name: &str) -> io::Error {
    invalid(format!("an operation names {name}, which is not there"))
}

/// Content of the file `state`.
#[derive(Clone, PartialEq, Eq, Debug)]
struct State {
    applied: Lsn,
    next: u64,
    names: Vec<(String, FileId, u64)>,
}

impl State {
    /// True if no file is lacking, nor any of its end.
    fn is_here(&self, disk: &dyn Disk) -> bool {
        let is_whole = |file: FileId, len: u64| match disk.open(&path(file)) {
            Err(error) => error.kind() != io::ErrorKind::NotFound,
            Ok(open) => open.len().map_or(true, |here| here >= len),
        };
        self.names.iter().all(|(_, file, len)| is_whole(*file, *len))
    }

    /// Lets a file be no longer than this; true if it was.
    fn shorten(&mut self, file: FileId, to: u64) -> bool {
        let named = self.names.iter_mut().find(|(_, known, len)| *known == file && *len > to);
        named.map(|(_, _, len)| *len = to).is_some()
    }

    fn encode(&self) -> Vec<u8> {
        let mut body = Writer::default();
        body.u64(self.applied.0);
        body.u64(self.next);
        body.all(&self.names, |to, (name, file, len)| {
            to.bytes(name.as_bytes());
            to.u64(file.0);
            to.u64(*len);
        });
        let mut to = Writer::default();
        to.u64(MAGIC);
        to.u32(crc(&body.0));
        to.0.extend_from_slice(&body.0);
        to.0
    }

    fn decode(bytes: &[u8]) -> Result<Self, crate::coding::Malformed> {
        let mut from = Reader(bytes);
        let (magic, sum) = (from.u64()?, from.u32()?);
        if magic != MAGIC || sum != crc(from.0) {
            return Err(malformed("the checksum of the state does not fit"));
        }
        Ok(Self {
            applied: Lsn(from.u64()?),
            next: from.u64()?,
            names: from.all(|from| Ok((from.string()?, FileId(from.u64()?), from.u64()?)))?,
        })
    }
}

#[cfg(test)]
mod tests;
