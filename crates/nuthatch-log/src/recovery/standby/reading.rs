//! Reading messages of a log that is followed, from the files that it was read from.
//!
//! Who reads holds the standby only to look where a message is ([`Standby::read`]) and lets go of it while the disk is read
//! ([`StandbyReader::load`]): who follows the log, or is to open it, does not wait for that.

use super::{Sealed, Standby, Tail};
use crate::cache::block::{BlockCache, FramePosition, ReadStep};
use crate::cache::{Expect, LoadRequest};
use crate::catalog::SegmentEntry;
use crate::env::Disk;
use crate::index::{Index, IndexPosition};
use crate::keys::Keyring;
use crate::machine::{AppendError, Appended, LogAccess, Machine, Read, Space, Urgency};
use crate::record::RecordRef;
use crate::segment::reader::SegmentFile;
use crate::segment::{Segment, SegmentId};
use crate::sequencer::ready;
use crate::types::{Lsn, Seq, StreamId, Timestamp};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Bytes of frames that one reader keeps, about; the newest stretch stays whatever its size.
const READER_BYTES_MAX: usize = 4 << 20;

/// Stretches of segments that one reader reads from the disk at most.
const READER_LOADS_MAX: u32 = 2048;

/// What one who reads has read so far, of one log.
pub struct StandbyReader {
    blocks: BlockCache,
    segments: FxHashMap<SegmentId, Arc<Segment>>,
    /// The message found last, from where the next one is near.
    last: Option<(StreamId, Seq, SegmentId, FramePosition)>,
    wanted: Option<Wanted>,
    loads: u32,
}

/// A stretch of a segment that is to be read.
struct Wanted {
    entry: SegmentEntry,
    log_id: u64,
    keys: Keyring,
    frame: u32,
    expect: Expect,
    end: u64,
}

impl Default for StandbyReader {
    fn default() -> Self {
        Self {
            blocks: BlockCache::new(READER_BYTES_MAX),
            segments: FxHashMap::default(),
            last: None,
            wanted: None,
            loads: 0,
        }
    }
}

impl StandbyReader {
    /// Somebody else reads: who may read from the disk as much as anybody.
    pub const fn begin(&mut self) {
        self.loads = 0;
    }

    /// Reads what the last look at the standby was in want of; may wait for the disk. `false`: nothing was wanted that could be
    /// read, it cannot be read now, or too much has been read already. The log's owner has to be asked then.
    #[must_use]
    pub fn load(&mut self, disk: &Arc<dyn Disk>) -> bool {
        let Some(wanted) = self.wanted.take() else { return false };
        if self.loads == READER_LOADS_MAX {
            return false;
        }
        self.loads += 1;
        let Some(segment) = self.segment(&wanted, disk) else { return false };
        let Wanted { frame: offset, expect, end, .. } = wanted;
        let loaded = LoadRequest { segment, offset, expect, end, in_memory: false }.run();
        let Ok(stretches) = loaded.result else { return false };
        // The first one is awaited: the newest is never pushed out.
        for stretch in stretches.into_iter().rev() {
            self.blocks.insert(loaded.segment, stretch);
        }
        true
    }

    fn segment(&mut self, wanted: &Wanted, disk: &Arc<dyn Disk>) -> Option<Arc<Segment>> {
        let Wanted { entry, log_id, keys, .. } = wanted;
        if let Some(known) = self.segments.get(&entry.id) {
            return Some(Arc::clone(known));
        }
        let found = SegmentFile::open(&**disk, &entry.file_name()).ok()?;
        let header = found.header.ok().filter(|header| header.is_of(entry, *log_id))?;
        if !keys.has(header.key_id) {
            return None;
        }
        let segment = Arc::new(Segment { header, file: found.file, keys: keys.clone() });
        self.segments.insert(entry.id, Arc::clone(&segment));
        Some(segment)
    }
}

/// A followed log as its machine sees it while somebody reads: nothing can be written to it. A message that is not in memory is
/// [`Read::Pending`], and so is one that cannot be read at all: [`StandbyReader::load`] tells which it was.
pub struct StandbyLog<'a> {
    places: Places<'a>,
    reader: &'a mut StandbyReader,
}

/// What of a standby tells where messages are.
struct Places<'a> {
    index: &'a Index,
    sealed: &'a FxHashMap<SegmentId, Sealed>,
    tail: Option<&'a Tail>,
    keys: &'a Keyring,
    log_id: u64,
    last: Lsn,
    newest: Timestamp,
}

impl Places<'_> {
    /// The place whose stretch may hold a message, with its segment and where what was followed of that ends.
    fn of(&self, stream: StreamId, seq: Seq) -> Option<(IndexPosition, SegmentEntry, u64)> {
        let in_tail = || {
            let tail = self.tail?;
            Some((*tail.builder.place(stream, seq)?, tail.entry, tail.at.at))
        };
        let in_sealed = || {
            let place = *self.index.get(stream)?.place(seq)?;
            let entry = self.sealed.get(&place.segment)?.entry;
            Some((place, entry, entry.data_end))
        };
        in_tail().or_else(in_sealed)
    }
}

impl StandbyLog<'_> {
    /// Where a message is, if the frames up to it are in memory; else what is missing is wanted.
    fn find(&mut self, stream: StreamId, seq: Seq) -> Option<(SegmentId, FramePosition)> {
        let (place, entry, end) = self.places.of(stream, seq)?;
        let (known, start) = match self.reader.last {
            Some((of, known, segment, at))
                if (of, segment) == (stream, entry.id) && (place.first..=seq).contains(&known) =>
            {
                (known, at)
            }
            _ => (place.first, FramePosition { frame: place.frame, record: place.record }),
        };
        let first = Expect::Message { stream, seq: known, offset: start.record };
        let Some(segment) = self.reader.segments.get(&entry.id) else {
            self.want(entry, (start.frame, first), end);
            return None;
        };
        let block = segment.header.block_bytes;
        match self.reader.blocks.find(entry.id, block, start, end, (stream, seq)) {
            ReadStep::Found(at) => {
                self.reader.last = Some((stream, seq, entry.id, at));
                Some((entry.id, at))
            }
            // The files do not have it: whether that is damage is for the log's owner to say.
            ReadStep::Passed => None,
            ReadStep::Absent(frame, before) => {
                self.want(entry, (frame, before.map_or(first, Expect::Behind)), end);
                None
            }
        }
    }

    fn want(&mut self, entry: SegmentEntry, (frame, expect): (u32, Expect), end: u64) {
        let (log_id, keys) = (self.places.log_id, self.places.keys.clone());
        self.reader.wanted = Some(Wanted { entry, log_id, keys, frame, expect, end });
    }
}

impl LogAccess for StandbyLog<'_> {
    /// When the newest record was written that was followed.
    fn now(&self) -> Timestamp {
        self.places.newest
    }

    fn entropy(&mut self) -> u64 {
        panic!("who reads a log that another process writes decides nothing")
    }

    fn append(
        &mut self,
        _record: &RecordRef<'_>,
        _urgency: Urgency,
        _privileged: bool,
    ) -> Result<Appended, AppendError> {
        panic!("a log that another process writes is only read")
    }

    fn flush_soon(&mut self) {}

    fn committed(&self) -> Lsn {
        self.places.last
    }

    fn read(&mut self, stream: StreamId, seq: Seq) -> Read<'_> {
        self.reader.wanted = None;
        let Some((segment, at)) = self.find(stream, seq) else { return Read::Pending };
        let record = self.reader.blocks.record(segment, at);
        match record.map(|(record, owner)| ready(record, owner)) {
            Some(Read::Ready(message)) => Read::Ready(message),
            _ => Read::Pending,
        }
    }

    fn dead(&mut self, _stream: StreamId, _seq: Seq, _weight: usize) {}

    fn space(&self) -> Space {
        Space::Exhausted
    }
}

impl<M: Machine> Standby<M> {
    /// Has the machine look at itself and at messages of the log. No disk is read: what the reader does not have is pending.
    pub fn read<R>(
        &mut self,
        reader: &mut StandbyReader,
        look: impl FnOnce(&mut M, &mut StandbyLog<'_>) -> R,
    ) -> R {
        let Self { log_id, keys, machine, index, sealed, tail, last, newest, .. } = self;
        let (log_id, last, newest, tail) = (*log_id, *last, *newest, tail.as_ref());
        reader.wanted = None;
        let places = Places { index, sealed, tail, keys, log_id, last, newest };
        look(machine, &mut StandbyLog { places, reader })
    }
}
