//! A file: pieces in objects, and what was written since the last sync in memory.

mod in_flight_upload;

use crate::bucket::MAX_REQUESTS_IN_FLIGHT;
use crate::cache::Stretch;
use crate::cache::ahead::Cursors;
use crate::extents::{Extents, Piece, Source, to_usize};
use crate::shared::LogShared;
use crate::{manifest, names, rules};
use bytes::Bytes;
use in_flight_upload::InFlightUpload;
use nuthatch_log::env::{DiskFile, Reach, SyncDone};
use object_store::PutPayload;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

/// Objects of one range that are fetched at the same time.
const PIECES_TOGETHER: usize = 8;
/// Reads from this size on go past the cache, in pieces of [`LARGE_STEP_BYTES`], with several requests
/// at a time: footers of large segments. More than frames have, which are read again.
const LARGE_READ_BYTES: usize = 32 << 20;
const LARGE_STEP_BYTES: u64 = 4 << 20;

/// A file of a log. Cheap to share.
pub struct ObjectFile {
    shared: Arc<LogShared>,
    content: Arc<Content>,
    /// Held while it is decided what is written, so that no two write the same bytes.
    syncing: Mutex<()>,
    /// Its sequential readers.
    cursors: Mutex<Cursors>,
}

/// Layout of a file, with what is in memory.
pub struct Content {
    pub state: Mutex<FileState>,
    /// Told when something has ceased to be leaving.
    pub settled: Condvar,
}

pub struct FileState {
    /// `None` as long as it is only in memory.
    name: Option<String>,
    pub extents: Extents,
    /// Every object that belongs to the file, with its size, those that no longer count included.
    pub objects: BTreeMap<Arc<str>, u64>,
    /// Keys of objects that are being written beside what follows.
    pub leaving: BTreeSet<Arc<str>>,
    /// Something that was leaving did not arrive for certain. Nothing is written behind it, and it is
    /// not written again: it may arrive yet.
    pub lost: bool,
}

impl ObjectFile {
    /// A file that is only in memory until it gets a name.
    pub fn volatile(shared: Arc<LogShared>) -> Self {
        Self::stored(shared, None, Extents::default(), BTreeMap::new())
    }

    /// A file with a name and, perhaps, objects.
    pub fn stored(
        shared: Arc<LogShared>,
        name: Option<String>,
        extents: Extents,
        objects: BTreeMap<Arc<str>, u64>,
    ) -> Self {
        let leaving = BTreeSet::new();
        let state = Mutex::new(FileState { name, extents, objects, leaving, lost: false });
        let content = Arc::new(Content { state, settled: Condvar::new() });
        Self { shared, content, syncing: Mutex::new(()), cursors: Mutex::default() }
    }

    /// Keys of all objects of the file.
    pub fn objects(&self) -> Vec<String> {
        self.content.state.lock().objects.keys().map(ToString::to_string).collect()
    }

    /// The first and the last object that the file consists of, with their sizes: of a segment its
    /// header and its footer, which recovery reads.
    pub fn ends(&self) -> Vec<(Arc<str>, u64)> {
        let state = self.content.state.lock();
        let Some(name) = &state.name else { return Vec::new() };
        let object = |(_, piece): (u64, &Piece)| match piece.source {
            Source::Object { offset, epoch, .. } => {
                let key: Arc<str> = names::part(name, offset, epoch).into();
                let size = *state.objects.get(&key)?;
                Some((key, size))
            }
            Source::Memory(_) | Source::Uploading(_) => None,
        };
        let mut objects = state.extents.iter().filter_map(object);
        let first = objects.next();
        first.into_iter().chain(objects.last()).collect()
    }

    /// All bytes.
    pub fn content(&self) -> io::Result<Bytes> {
        let len = self.content.state.lock().extents.len();
        self.read_shared(0, to_usize(len))
    }

    /// Gives a file in memory its name and stores it.
    pub fn store_as(&self, name: &str) -> io::Result<()> {
        self.content.state.lock().name = Some(name.to_owned());
        self.sync()
    }

    /// Objects to upload: key and payload of each, and the range of the file that it covers. From
    /// now on they count as in flight.
    fn unwritten(&self) -> io::Result<Option<(String, Vec<Part>)>> {
        let mut state = self.content.state.lock();
        while !state.leaving.is_empty() && rules::SYNC_WAITS.holds() {
            self.content.settled.wait(&mut state);
        }
        state.nothing_is_lost()?;
        let Some(name) = state.name.clone() else { return Ok(None) };
        let parts = self.cut_unwritten(&state);
        state.set_leaving(&parts, true);
        Ok(Some((name, parts)))
    }

    fn cut_unwritten(&self, state: &FileState) -> Vec<Part> {
        let part_bytes = self.shared.part_bytes;
        let runs = state.extents.unwritten().into_iter();
        runs.flat_map(|(at, run)| split(at, run, part_bytes)).collect()
    }

    fn put_parts(&self, name: &str, parts: &[Part]) -> io::Result<()> {
        let epoch = self.shared.epoch();
        let key = |part: &Part| names::part(name, part.at, epoch);
        let objects = parts.iter().map(|part| (key(part), part.payload())).collect();
        let stored = self.shared.bucket.put_all(objects);
        let mut state = self.content.state.lock();
        if let Err(error) = stored {
            state.set_leaving(parts, false);
            return Err(error.into());
        }
        for part in parts {
            state.note_written(part, key(part).into(), epoch);
        }
        Ok(())
    }

    /// Parts that can be uploaded while later ones are written, if any: from now on they count as
    /// in flight. Leaves out what needs a manifest, or an object under an existing key.
    fn begin_to_leave(&self) -> io::Result<Option<Vec<KeyedPart>>> {
        self.shared.usable()?;
        let mut state = self.content.state.lock();
        state.nothing_is_lost()?;
        let Some(name) = state.name.clone() else { return Ok(None) };
        let epoch = self.shared.epoch();
        if state.extents.is_cut() || state.is_composed(epoch) {
            return Ok(None);
        }
        let key = |part: &Part| Arc::from(names::part(&name, part.at, epoch));
        let parts = self.cut_unwritten(&state).into_iter().map(|part| (key(&part), part));
        let parts: Vec<KeyedPart> = parts.collect();
        let is_there =
            |key: &Arc<str>| state.objects.contains_key(key) || state.leaving.contains(key);
        let again = rules::NO_KEY_TWICE.holds() && parts.iter().any(|(key, _)| is_there(key));
        if parts.is_empty() || again {
            return Ok(None);
        }
        for (key, part) in &parts {
            state.leaving.insert(Arc::clone(key));
            state.extents.set_leaving(part.at, part.len, true);
        }
        Ok(Some(parts))
    }

    /// Stores which pieces count, where listing the file's objects would not tell.
    fn put_manifest(&self, name: &str, changed: bool) -> io::Result<()> {
        let epoch = self.shared.epoch();
        let mut state = self.content.state.lock();
        let composed = changed && state.is_composed(epoch);
        if !(state.extents.is_cut() || composed) || !rules::MANIFEST_STORED.holds() {
            return Ok(());
        }
        let key = names::manifest(name, epoch);
        let bytes = manifest::encode(&state.extents);
        state.objects.insert(key.as_str().into(), bytes.len() as u64);
        state.extents.settle();
        drop(state);
        Ok(self.shared.bucket.put(&key, bytes.into())?)
    }

    fn read_piece(&self, name: &str, piece: &Piece, into: &mut [u8]) -> io::Result<()> {
        match &piece.source {
            Source::Memory(bytes) | Source::Uploading(bytes) => into.copy_from_slice(bytes),
            Source::Object { offset, epoch, skip } => {
                let key: Arc<str> = names::part(name, *offset, *epoch).into();
                let size = self.content.state.lock().objects.get(&key).copied().unwrap_or(u64::MAX);
                self.shared.cache.read(&key, size, *skip, into)?;
            }
        }
        Ok(())
    }

    /// Ranges that span several objects fetch them in parallel: a start that reads the end of a log
    /// of small frames has thousands of them before it.
    fn fetch_together(&self, name: &str, pieces: &[(u64, Piece)]) {
        let state = self.content.state.lock();
        let stretch = |(_, piece): &(u64, Piece)| {
            let Source::Object { offset, epoch, skip } = piece.source else { return None };
            let key: Arc<str> = names::part(name, offset, epoch).into();
            let size = *state.objects.get(&key)?;
            Some(Stretch { key, size, from: skip, to: skip + piece.len })
        };
        let stretches: Vec<Stretch> = pieces.iter().filter_map(stretch).collect();
        drop(state);
        self.shared.cache.ahead(&stretches);
    }

    /// Fills `into`, which begins at `offset` of the file, with several requests at a time.
    fn read_large(
        &self,
        name: &str,
        pieces: &[(u64, Piece)],
        offset: u64,
        into: &mut [u8],
    ) -> io::Result<()> {
        let mut wanted = Vec::new();
        for (at, piece) in pieces {
            let start = to_usize(at - offset);
            match &piece.source {
                Source::Memory(bytes) | Source::Uploading(bytes) => {
                    into[start..start + bytes.len()].copy_from_slice(bytes);
                }
                Source::Object { offset, epoch, skip } => {
                    let key = names::part(name, *offset, *epoch);
                    for done in (0..piece.len).step_by(to_usize(LARGE_STEP_BYTES)) {
                        let step = LARGE_STEP_BYTES.min(piece.len - done);
                        let range = skip + done..skip + done + step;
                        wanted.push((start + to_usize(done), (key.clone(), range)));
                    }
                }
            }
        }
        // In groups, so that what is on its way stays small beside what it is for.
        for group in wanted.chunks(MAX_REQUESTS_IN_FLIGHT) {
            let ranges = group.iter().map(|(_, range)| range.clone()).collect();
            for ((start, (_, range)), bytes) in
                group.iter().zip(self.shared.bucket.get_ranges(ranges)?)
            {
                let target = &mut into[*start..*start + to_usize(range.end - range.start)];
                if bytes.len() != target.len() {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                target.copy_from_slice(&bytes);
            }
        }
        Ok(())
    }

    /// Fetches what follows a range that was read in order before it is asked for.
    fn read_ahead(&self, name: &str, at: u64, len: u64) {
        let window = self.cursors.lock().note(at, len);
        if window == 0 {
            return;
        }
        let state = self.content.state.lock();
        let stretch = |(_, piece): (u64, Piece)| {
            let Source::Object { offset, epoch, skip } = piece.source else { return None };
            let key: Arc<str> = names::part(name, offset, epoch).into();
            let size = *state.objects.get(&key)?;
            Some(Stretch { key, size, from: skip, to: skip + piece.len })
        };
        let pieces = state.extents.within(at + len, at + len + window);
        let stretches: Vec<Stretch> = pieces.into_iter().filter_map(stretch).collect();
        drop(state);
        self.shared.cache.ahead(&stretches);
    }
}

impl FileState {
    fn nothing_is_lost(&self) -> io::Result<()> {
        if self.lost && rules::NOTHING_BEHIND_LOST.holds() {
            Err(io::Error::other("what comes before was not stored"))
        } else {
            Ok(())
        }
    }

    /// True if it consists of objects of other epochs too.
    fn is_composed(&self, ours: u32) -> bool {
        let foreign = |(_, piece): (u64, &Piece)| match piece.source {
            Source::Object { epoch, .. } => epoch != ours,
            Source::Memory(_) | Source::Uploading(_) => false,
        };
        self.extents.iter().any(foreign)
    }

    /// Notes that parts are being written; or, if not `leaving`, that they have not been after all.
    pub fn set_leaving(&mut self, parts: &[Part], leaving: bool) {
        for part in parts {
            self.extents.set_leaving(part.at, part.len, leaving);
        }
    }

    /// Notes that a part is an object now.
    pub fn note_written(&mut self, part: &Part, key: Arc<str>, epoch: u32) {
        self.extents.written(part.at, part.len, epoch);
        self.objects.insert(key, part.len);
    }
}

/// A stretch of a file that becomes an object.
pub struct Part {
    at: u64,
    len: u64,
    pieces: Vec<Bytes>,
}

impl Part {
    /// Its bytes.
    pub fn payload(&self) -> PutPayload {
        self.pieces.iter().cloned().collect()
    }
}

/// A part and the key of its object.
pub type KeyedPart = (Arc<str>, Part);

/// Cuts a run of bytes into objects of at most `most_bytes`, as few as that allows, of equal size.
fn split(at: u64, run: Vec<Bytes>, most_bytes: usize) -> Vec<Part> {
    let total: usize = run.iter().map(Bytes::len).sum();
    let part_bytes = total.div_ceil(total.div_ceil(most_bytes).max(1)).max(1);
    let mut parts = vec![Part { at, len: 0, pieces: Vec::new() }];
    for mut bytes in run {
        while !bytes.is_empty() {
            let last = parts.len() - 1;
            let room = part_bytes - to_usize(parts[last].len);
            if room == 0 {
                let at = parts[last].at + parts[last].len;
                parts.push(Part { at, len: 0, pieces: Vec::new() });
                continue;
            }
            let taken = bytes.split_to(room.min(bytes.len()));
            parts[last].len += taken.len() as u64;
            parts[last].pieces.push(taken);
        }
    }
    parts.retain(|part| part.len > 0);
    parts
}

impl DiskFile for ObjectFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_shared(&Bytes::copy_from_slice(bytes), offset)
    }

    fn write_shared(&self, bytes: &Bytes, offset: u64) -> io::Result<()> {
        self.shared.usable()?;
        let piece = Piece { len: bytes.len() as u64, source: Source::Memory(bytes.clone()) };
        self.content.state.lock().extents.put(offset, piece);
        Ok(())
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let (name, pieces, n) = {
            let state = self.content.state.lock();
            let end = state.extents.len().min(offset + into.len() as u64);
            let n = to_usize(end.saturating_sub(offset));
            (state.name.clone().unwrap_or_default(), state.extents.within(offset, end), n)
        };
        into[..n].fill(0);
        if n >= LARGE_READ_BYTES {
            self.read_large(&name, &pieces, offset, &mut into[..n])?;
            return Ok(n);
        }
        for together in pieces.chunks(PIECES_TOGETHER) {
            if together.len() > 1 {
                self.fetch_together(&name, together);
            }
            for (at, piece) in together {
                let start = to_usize(at - offset);
                self.read_piece(&name, piece, &mut into[start..start + to_usize(piece.len)])?;
            }
        }
        if n == into.len() {
            self.read_ahead(&name, offset, n as u64);
        }
        Ok(n)
    }

    /// Stores what was written since the last sync, then makes sure that this server still owns the
    /// log: only then may anything of it be acknowledged.
    fn sync(&self) -> io::Result<()> {
        let _one = self.syncing.lock();
        self.shared.usable()?;
        let Some((name, parts)) = self.unwritten()? else { return Ok(()) };
        let changed = !parts.is_empty();
        self.put_parts(&name, &parts)?;
        self.put_manifest(&name, changed)?;
        self.shared.check_owner()
    }

    /// A bucket shows what is stored.
    fn reread(&self) -> io::Result<()> {
        Ok(())
    }

    /// Puts what was written since the last sync and then looks for a later owner, beside what
    /// follows. Where that would not do (a manifest is to be written, or there is more to look for),
    /// everything is waited for.
    fn sync_later(&self, done: SyncDone) {
        let one = self.syncing.lock();
        let leaving = self.shared.next_fence().and_then(|sentinel| {
            let Some(sentinel) = sentinel else { return Ok(None) };
            Ok(self.begin_to_leave()?.map(|parts| (sentinel, parts)))
        });
        match leaving {
            Ok(Some((sentinel, parts))) => {
                let (content, shared) = (Arc::clone(&self.content), Arc::clone(&self.shared));
                InFlightUpload::new(content, shared, parts, done).begin(sentinel);
            }
            Ok(None) => {
                drop(one);
                done(self.sync());
            }
            Err(error) => done(Err(error)),
        }
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.content.state.lock().extents.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.shared.usable()?;
        self.content.state.lock().extents.set_len(len);
        Ok(())
    }

    /// A bucket has no space to reserve.
    fn allocate(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }

    fn reach(&self) -> Reach {
        Reach::Remote
    }
}
