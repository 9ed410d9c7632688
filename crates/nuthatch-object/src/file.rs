//! A file: pieces in objects, and what was written since the last sync in memory.

use crate::bucket::MAX_REQUESTS_IN_FLIGHT;
use crate::cache::Stretch;
use crate::cache::ahead::Cursors;
use crate::disk::Shared;
use crate::extents::{Extents, Piece, Source, to_usize};
use crate::{manifest, names};
use bytes::Bytes;
use nuthatch_log::env::DiskFile;
use object_store::PutPayload;
use parking_lot::Mutex;
use std::collections::BTreeMap;
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
    shared: Arc<Shared>,
    state: Mutex<FileState>,
    /// Held during a sync, so that two do not write the same bytes.
    syncing: Mutex<()>,
    /// Who reads it in order.
    cursors: Mutex<Cursors>,
}

struct FileState {
    /// `None` as long as it is only in memory.
    name: Option<String>,
    extents: Extents,
    /// Every object that belongs to the file, with its size, those that no longer count included.
    objects: BTreeMap<Arc<str>, u64>,
}

impl ObjectFile {
    /// A file that is only in memory until it gets a name.
    pub fn volatile(shared: Arc<Shared>) -> Self {
        Self::stored(shared, None, Extents::default(), BTreeMap::new())
    }

    /// A file with a name and, perhaps, objects.
    pub fn stored(
        shared: Arc<Shared>,
        name: Option<String>,
        extents: Extents,
        objects: BTreeMap<Arc<str>, u64>,
    ) -> Self {
        let state = Mutex::new(FileState { name, extents, objects });
        Self { shared, state, syncing: Mutex::new(()), cursors: Mutex::default() }
    }

    /// Keys of all objects of the file.
    pub fn objects(&self) -> Vec<String> {
        self.state.lock().objects.keys().map(ToString::to_string).collect()
    }

    /// The first and the last object that the file consists of, with their sizes: of a segment its
    /// header and its footer, which recovery reads.
    pub fn ends(&self) -> Vec<(Arc<str>, u64)> {
        let state = self.state.lock();
        let Some(name) = &state.name else { return Vec::new() };
        let object = |(_, piece): (u64, &Piece)| match piece.source {
            Source::Object { offset, generation, .. } => {
                let key: Arc<str> = names::part(name, offset, generation).into();
                let size = *state.objects.get(&key)?;
                Some((key, size))
            }
            Source::Memory(_) => None,
        };
        let mut objects = state.extents.iter().filter_map(object);
        let first = objects.next();
        first.into_iter().chain(objects.last()).collect()
    }

    /// All bytes.
    pub fn content(&self) -> io::Result<Bytes> {
        let len = self.state.lock().extents.len();
        self.read_shared(0, to_usize(len))
    }

    /// Gives a file in memory its name and stores it.
    pub fn store_as(&self, name: &str) -> io::Result<()> {
        self.state.lock().name = Some(name.to_owned());
        self.sync()
    }

    /// What must be put: key and payload of each object, and which stretch of the file it is.
    fn unwritten(&self) -> Option<(String, Vec<Part>)> {
        let state = self.state.lock();
        let name = state.name.clone()?;
        let runs = state.extents.unwritten();
        let parts =
            runs.into_iter().flat_map(|(at, run)| split(at, run, self.shared.part_bytes)).collect();
        Some((name, parts))
    }

    fn put_parts(&self, name: &str, parts: Vec<Part>) -> io::Result<()> {
        let generation = self.shared.generation();
        let key = |part: &Part| names::part(name, part.at, generation);
        let objects = parts.iter().map(|part| (key(part), part.payload())).collect();
        self.shared.bucket.put_all(objects)?;
        let mut state = self.state.lock();
        for part in &parts {
            state.extents.written(part.at, part.len, generation);
            state.objects.insert(key(part).into(), part.len);
        }
        Ok(())
    }

    /// Stores which pieces count, where listing the file's objects would not tell.
    fn put_manifest(&self, name: &str, changed: bool) -> io::Result<()> {
        let generation = self.shared.generation();
        let mut state = self.state.lock();
        let foreign = |(_, piece): (u64, &Piece)| match piece.source {
            Source::Object { generation: by, .. } => by != generation,
            Source::Memory(_) => false,
        };
        let composed = changed && state.extents.iter().any(foreign);
        if !(state.extents.is_cut() || composed) {
            return Ok(());
        }
        let key = names::manifest(name, generation);
        let bytes = manifest::encode(&state.extents);
        state.objects.insert(key.as_str().into(), bytes.len() as u64);
        state.extents.settle();
        drop(state);
        Ok(self.shared.bucket.put(&key, bytes.into())?)
    }

    fn read_piece(&self, name: &str, piece: &Piece, into: &mut [u8]) -> io::Result<()> {
        match &piece.source {
            Source::Memory(bytes) => into.copy_from_slice(bytes),
            Source::Object { offset, generation, skip } => {
                let key: Arc<str> = names::part(name, *offset, *generation).into();
                let size = self.state.lock().objects.get(&key).copied().unwrap_or(u64::MAX);
                self.shared.cache.read(&key, size, *skip, into)?;
            }
        }
        Ok(())
    }

    /// Where a range consists of several objects, they are fetched at the same time: a start that reads
    /// the end of a log of small frames has thousands of them before it.
    fn fetch_together(&self, name: &str, pieces: &[(u64, Piece)]) {
        let state = self.state.lock();
        let stretch = |(_, piece): &(u64, Piece)| {
            let Source::Object { offset, generation, skip } = piece.source else { return None };
            let key: Arc<str> = names::part(name, offset, generation).into();
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
                Source::Memory(bytes) => into[start..start + bytes.len()].copy_from_slice(bytes),
                Source::Object { offset, generation, skip } => {
                    let key = names::part(name, *offset, *generation);
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

    /// What follows a stretch that was read in order is fetched before it is asked for.
    fn read_ahead(&self, name: &str, at: u64, len: u64) {
        let window = self.cursors.lock().note(at, len);
        if window == 0 {
            return;
        }
        let state = self.state.lock();
        let stretch = |(_, piece): (u64, Piece)| {
            let Source::Object { offset, generation, skip } = piece.source else { return None };
            let key: Arc<str> = names::part(name, offset, generation).into();
            let size = *state.objects.get(&key)?;
            Some(Stretch { key, size, from: skip, to: skip + piece.len })
        };
        let pieces = state.extents.within(at + len, at + len + window);
        let stretches: Vec<Stretch> = pieces.into_iter().filter_map(stretch).collect();
        drop(state);
        self.shared.cache.ahead(&stretches);
    }
}

/// A stretch of a file that becomes an object.
struct Part {
    at: u64,
    len: u64,
    pieces: Vec<Bytes>,
}

impl Part {
    fn payload(&self) -> PutPayload {
        self.pieces.iter().cloned().collect()
    }
}

/// Cuts a run of bytes into objects of at most `part_bytes`.
fn split(at: u64, run: Vec<Bytes>, part_bytes: usize) -> Vec<Part> {
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
        self.state.lock().extents.put(offset, piece);
        Ok(())
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let (name, pieces, n) = {
            let state = self.state.lock();
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
        let Some((name, parts)) = self.unwritten() else { return Ok(()) };
        let changed = !parts.is_empty();
        self.put_parts(&name, parts)?;
        self.put_manifest(&name, changed)?;
        self.shared.check_owner()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().extents.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.shared.usable()?;
        self.state.lock().extents.set_len(len);
        Ok(())
    }

    /// A bucket has no space to reserve.
    fn allocate(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }

    fn is_remote(&self) -> bool {
        true
    }
}
