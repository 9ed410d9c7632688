//! The one writer of a log: completes frame headers, puts frames into the open segment, rolls over
//! to a new segment when it is full.

use super::footer::FooterBuilder;
use super::{MAX_SEGMENT_BYTES, Segment, SegmentHeader, SegmentId};
use crate::catalog::{Catalog, SegmentEntry, SegmentState};
use crate::env::{AlignedBuf, BufPool, DiskFile, Entropy, Medium, SeededEntropy, SyncDone};
use crate::frame::{FRAME_HEADER_BYTES, FrameHeader, SealedFrame, crc, sealed};
use crate::keys::{Keyring, SEAL_BYTES, SEAL_HEAD_BYTES};
use crate::rules::{
    CATALOG_BEFORE_FRAMES, CUT_AFTER_CATALOG, FRAME_SYNC, SEALED_SYNC, SEGMENT_NAME_SYNC,
    SEGMENT_SYNC, VOUCH_FOR_DURABLE,
};
use crate::stats::add;
use crate::store::Store;
use crate::types::Lsn;
use bytes::Bytes;
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// Zeros are written this far ahead of small frames, so that a later frame overwrites blocks that
/// are already initialised and its sync has no metadata to write.
const ZERO_AHEAD_BYTES: usize = 1024 * 1024;

/// Frames from this size on go straight to allocated space: writing it twice would cost more than
/// the metadata does.
const LARGE_FRAME_BYTES: usize = 256 * 1024;

/// Unused buffers kept for frames that are sealed: one at a time on a disk.
const SEALED_IDLE_BYTES: usize = 4 * 1024 * 1024;

/// Position of a written frame.
pub struct Written {
    /// The frame's bytes, header included, without padding; not encrypted.
    pub bytes: Bytes,
    /// Memory that they keep.
    pub held_bytes: usize,
    /// The segment that holds it.
    pub segment: Arc<Segment>,
    /// Offset where it starts in the segment.
    pub offset: u64,
    /// Offset where the next frame will start.
    pub end: u64,
}

/// How segments are made.
#[derive(Clone, Copy, Debug)]
pub struct SegmentShape {
    /// Frames start at multiples of this.
    pub block_bytes: u32,
    /// Size of a full segment.
    pub full_bytes: u64,
    /// Frames of a full segment.
    pub frames: u32,
}

/// Writes frames. Used by one thread at a time.
pub struct SegmentWriter {
    store: Arc<Store>,
    medium: Medium,
    shape: SegmentShape,
    salts: SeededEntropy,
    zeros: AlignedBuf,
    /// Buffers for frames that are encrypted: the frame itself goes to readers as it is.
    sealed: BufPool,
    open: Option<Open>,
    /// The newest frame that was written, and the newest one that a sync covers.
    written: Lsn,
    durable: Lsn,
}

struct Open {
    segment: Arc<Segment>,
    at: u64,
    frames: u32,
    zeroed: u64,
    allocated: u64,
    prev_crc: u32,
    footer: FooterBuilder,
    /// The frame written last, which is not in the footer yet.
    unlisted: Option<Unlisted>,
    unsynced: bool,
}

/// A frame that is still to be taken into the footer.
struct Unlisted {
    bytes: Bytes,
    lsn: Lsn,
    offset: u32,
}

impl SegmentWriter {
    /// A writer with no open segment: the first frame makes one.
    #[must_use]
    pub fn new(store: Arc<Store>, shape: SegmentShape, salt_seed: u64) -> Self {
        let salts = SeededEntropy::new(salt_seed);
        let zero_bytes = ZERO_AHEAD_BYTES.min(usize::try_from(shape.full_bytes).unwrap_or(0));
        Self {
            medium: store.disk.medium(),
            store,
            shape,
            salts,
            zeros: AlignedBuf::zeroed(zero_bytes),
            sealed: BufPool::new(SEALED_IDLE_BYTES),
            open: None,
            written: Lsn(0),
            durable: Lsn(0),
        }
    }

    /// Writes a frame; it is durable after [`SegmentWriter::sync`]. `durable` is a position known to
    /// be durable; what this writer itself has synced may be newer.
    ///
    /// # Errors
    /// The disk's. The log must then stop: what was written is unknown.
    pub fn write(&mut self, frame: SealedFrame, durable: Lsn) -> io::Result<Written> {
        self.list_last();
        let stored = frame.len + Keyring::overhead(self.store.keys.current());
        let padded = stored.next_multiple_of(self.shape.block_bytes as usize);
        let frames = self.shape.frames.max(1);
        let is_full =
            |open: &Open| open.at + padded as u64 > open.allocated || open.frames >= frames;
        if self.open.as_ref().is_none_or(is_full) {
            self.roll(frame.lsn, padded as u64)?;
        }
        self.zero_ahead(padded)?;
        let open = self.open.as_mut().expect("roll opened a segment");
        let segment = Arc::clone(&open.segment);
        let offset = open.at;
        let durable = durable.max(self.durable);
        let durable = if VOUCH_FOR_DURABLE.holds() { durable } else { frame.lsn };
        self.written = frame.lsn;
        let (bytes, held_bytes) = if segment.header.key_id.is_some() {
            open.put_sealed(frame, durable, padded, (&self.sealed, self.medium.keeps_buffers))?
        } else {
            open.put(frame, durable, padded, self.medium.keeps_buffers)?
        };
        add(&self.store.stats.written_bytes, padded as u64);
        self.store.set_open_room(open.allocated - open.at);
        Ok(Written { bytes, held_bytes, segment, offset, end: open.at })
    }

    /// Makes everything written durable.
    ///
    /// # Errors
    /// The disk's. The log must then stop.
    pub fn sync(&mut self) -> io::Result<()> {
        let Some(open) = self.open.as_mut().filter(|open| open.unsynced) else { return Ok(()) };
        if !self.medium.in_memory {
            let start = Instant::now();
            if FRAME_SYNC.holds() {
                open.segment.file.sync()?;
            }
            add(&self.store.stats.syncs, 1);
            self.store.stats.sync_latency.record(start.elapsed());
        }
        open.unsynced = false;
        self.durable = self.written;
        Ok(())
    }

    /// Begins to make durable what was written since the last sync; `done` hears of the end. What
    /// is written and synced after this may become durable earlier.
    pub fn sync_later(&mut self, done: SyncDone) {
        let Some(open) = self.open.as_mut().filter(|open| open.unsynced) else {
            return done(Ok(()));
        };
        open.unsynced = false;
        let (stats, start) = (Arc::clone(&self.store.stats), Instant::now());
        open.segment.file.sync_later(Box::new(move |result| {
            if result.is_ok() {
                add(&stats.syncs, 1);
                stats.sync_latency.record(start.elapsed());
            }
            done(result);
        }));
    }

    /// Takes the frame written last into the segment's footer. Nobody waits for that, so it is done
    /// when whoever waits for the frame has been told.
    pub fn list_last(&mut self) {
        if let Some(open) = &mut self.open {
            open.list_last();
        }
    }

    /// Ends the open segment. Everything in it is durable afterwards.
    ///
    /// # Errors
    /// The disk's.
    pub fn seal(&mut self, clean: bool) -> io::Result<()> {
        let sealed = self.finish_open()?;
        self.store.publish(|catalog| {
            note_sealed(catalog, sealed.as_ref());
            catalog.clean = clean;
        })?;
        cut(sealed);
        Ok(())
    }

    /// Writes zeros ahead while nothing else is to be done.
    ///
    /// # Errors
    /// The disk's.
    pub fn idle(&mut self) -> io::Result<()> {
        let Some(open) = &self.open else { return Ok(()) };
        if open.zeroed < open.at + (self.zeros.len() / 2) as u64 {
            self.zero_to(open.zeroed.max(open.at) + 1)?;
        }
        Ok(())
    }

    fn zero_ahead(&mut self, padded: usize) -> io::Result<()> {
        let Some(open) = &self.open else { return Ok(()) };
        let end = open.at + padded as u64;
        if padded >= LARGE_FRAME_BYTES || end <= open.zeroed {
            return Ok(());
        }
        self.zero_to(end)
    }

    /// Zeroes from where zeros or frames end to `end` or as much beyond as one step takes.
    fn zero_to(&mut self, end: u64) -> io::Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        if !self.medium.is_local {
            return Ok(());
        }
        let mut from = open.zeroed.max(open.at);
        while from < end.min(open.allocated) {
            let step = (open.allocated - from).min(self.zeros.len() as u64);
            let zeros = &self.zeros[..usize::try_from(step).unwrap_or(0)];
            open.segment.file.write_at(zeros, from)?;
            add(&self.store.stats.written_bytes, step);
            from += step;
        }
        open.zeroed = from;
        Ok(())
    }

    /// Seals the open segment, if any, and opens one that starts with `base` and has room for a
    /// frame of `padded` bytes. The catalog knows the new segment before a frame goes into it.
    fn roll(&mut self, base: Lsn, padded: u64) -> io::Result<()> {
        let sealed = self.finish_open()?;
        let open = self.create(base, padded)?;
        let entry = SegmentEntry {
            id: open.segment.id(),
            epoch: open.segment.header.epoch,
            base,
            end: Lsn(base.0 - 1),
            data_end: 0,
            footer_len: 0,
            footer_crc: 0,
            salt: open.segment.header.salt,
            state: SegmentState::Open,
            compacted: false,
            allocated: if self.medium.is_local { open.allocated } else { 0 },
        };
        let change = |catalog: &mut Catalog| {
            note_sealed(catalog, sealed.as_ref());
            catalog.clean = false;
            catalog.segments.push(entry);
        };
        if CATALOG_BEFORE_FRAMES.holds() {
            self.store.publish(change)?;
        } else {
            self.store.forget_to_publish(change);
        }
        cut(sealed);
        add(&self.store.stats.segments, 1);
        self.store.set_open_room(open.allocated - open.at);
        self.open = Some(open);
        Ok(())
    }

    fn create(&mut self, base: Lsn, padded: u64) -> io::Result<Open> {
        let least = u64::from(self.shape.block_bytes) + padded;
        // Where a segment ends by the number of its frames, nothing was set aside for this one yet.
        let unforeseen = !self.store.has_spare();
        let wanted = if unforeseen { self.shape.full_bytes.max(least) } else { least };
        self.store.make_spare(least, wanted)?;
        let spare = self.store.take_spare().ok_or(io::ErrorKind::NotFound)?;
        let header = SegmentHeader {
            log_id: self.store.catalog().log_id,
            id: self.store.new_segment_id(),
            epoch: self.store.epoch,
            base,
            salt: (self.salts.next() >> 32) as u32 | 1,
            block_bytes: self.shape.block_bytes,
            compacted: false,
            packed: false,
            key_id: self.store.keys.current(),
        };
        let mut block = AlignedBuf::zeroed(self.shape.block_bytes as usize);
        block[..super::SEGMENT_HEADER_BYTES].copy_from_slice(&header.encode());
        spare.file.write_at(&block[..self.shape.block_bytes as usize], 0)?;
        if SEGMENT_SYNC.holds() {
            spare.file.sync()?;
        }
        self.store.disk.rename(&spare.name, &header.file_name())?;
        if SEGMENT_NAME_SYNC.holds() {
            self.store.disk.sync_dir("")?;
        }
        let allocated = spare.len.min(MAX_SEGMENT_BYTES);
        let keys = self.store.keys.clone();
        let segment = Arc::new(Segment { header, file: spare.file, keys });
        let at = segment.first_offset();
        let prev_crc = header.checksum();
        let footer = FooterBuilder::new(header.id, base);
        Ok(Open {
            segment,
            at,
            frames: 0,
            zeroed: at,
            allocated,
            prev_crc,
            footer,
            unlisted: None,
            unsynced: false,
        })
    }

    fn finish_open(&mut self) -> io::Result<Option<Finished>> {
        let Some(mut open) = self.open.take() else { return Ok(None) };
        open.list_last();
        self.store.set_open_room(0);
        let (file, local) = (Arc::clone(&open.segment.file), self.medium.is_local);
        let footer = append_footer(&open.segment, open.at, &open.footer, local)?;
        add(&self.store.stats.written_bytes, u64::from(footer.len));
        let (id, end) = (open.segment.id(), open.footer.end());
        let excess = local.then_some(file);
        Ok(Some(Finished { id, end, data_end: open.at, footer, excess }))
    }
}

/// A footer behind a segment's frames.
#[derive(Clone, Copy, Debug, Default)]
pub struct FooterRef {
    /// Its bytes; 0 if there is none.
    pub len: u32,
    /// Its checksum.
    pub crc: u32,
}

/// Writes a footer behind the frames, sealed as they are, and makes all of it durable. On a full medium the segment goes
/// without: its footer is then rebuilt when it is needed.
///
/// The file is cut behind the footer, unless it `keeps_length`: the catalog has it as open and at
/// least as long as it is, and it is to be cut when the catalog says otherwise.
///
/// # Errors
/// The disk's.
pub fn append_footer(
    segment: &Segment,
    data_end: u64,
    footer: &FooterBuilder,
    keeps_length: bool,
) -> io::Result<FooterRef> {
    let file = &segment.file;
    let (bytes, crc) = footer.encode_for(&segment.keys, segment.header.key_id);
    let written = match file.write_at(&bytes, data_end) {
        Ok(()) => FooterRef { len: bytes.len() as u32, crc },
        Err(error) if crate::env::is_full(&error) => FooterRef::default(),
        Err(error) => return Err(error),
    };
    if !keeps_length || !CUT_AFTER_CATALOG.holds() {
        file.set_len(data_end + u64::from(written.len))?;
    }
    if SEALED_SYNC.holds() {
        file.sync()?;
    }
    Ok(written)
}

struct Finished {
    id: SegmentId,
    end: Lsn,
    data_end: u64,
    footer: FooterRef,
    /// The file, if it is to be cut when the catalog has it as sealed.
    excess: Option<Arc<dyn DiskFile>>,
}

/// Gives back what was allocated and not used. What cannot be given back now is at the next start.
fn cut(sealed: Option<Finished>) {
    if let Some(Finished { data_end, footer, excess: Some(file), .. }) = sealed {
        let _ = file.set_len(data_end + u64::from(footer.len));
    }
}

fn note_sealed(catalog: &mut Catalog, sealed: Option<&Finished>) {
    if let Some(sealed) = sealed
        && let Some(entry) = catalog.entry_mut(sealed.id)
    {
        entry.end = sealed.end;
        entry.data_end = sealed.data_end;
        entry.footer_len = sealed.footer.len;
        entry.footer_crc = sealed.footer.crc;
        entry.state = SegmentState::Sealed;
        entry.allocated = 0;
    }
}

impl Open {
    fn put(
        &mut self,
        frame: SealedFrame,
        durable: Lsn,
        padded: usize,
        keeps_buffers: bool,
    ) -> io::Result<(Bytes, usize)> {
        let header = self.header(&frame, durable);
        let SealedFrame { mut buf, len, sum, lsn, .. } = frame;
        let header = FrameHeader { len: len as u32, body_crc: sum.finish(&buf[..len]), ..header };
        buf.extend_zeros(padded - len);
        let head = buf.first_chunk_mut().expect("a frame buffer holds a header");
        self.prev_crc = header.encode(head);
        let (bytes, held) = self.write_buf(buf, len, padded, keeps_buffers)?;
        self.note(lsn, &bytes, padded);
        Ok((bytes, held))
    }

    /// As [`Open::put`] where frames are encrypted: into another buffer, which is written. Readers get
    /// the frame as it was built.
    fn put_sealed(
        &mut self,
        frame: SealedFrame,
        durable: Lsn,
        padded: usize,
        (pool, keeps_buffers): (&BufPool, bool),
    ) -> io::Result<(Bytes, usize)> {
        let header = self.header(&frame, durable);
        let SealedFrame { mut buf, len, lsn, .. } = frame;
        let stored = len + SEAL_BYTES;
        let body = FRAME_HEADER_BYTES + SEAL_HEAD_BYTES;
        let mut out = pool.take(padded);
        out.extend_zeros(body);
        out.extend(&buf[FRAME_HEADER_BYTES..len]);
        let (head, tag) = sealed::seal(&self.segment.keys, &header, &mut out[body..]);
        out[FRAME_HEADER_BYTES..body].copy_from_slice(&head);
        out.extend(&tag);
        let body_crc = crc(&out[FRAME_HEADER_BYTES..stored]);
        let header = FrameHeader { len: stored as u32, body_crc, ..header };
        out.extend_zeros(padded - stored);
        let head = out.first_chunk_mut().expect("a frame buffer holds a header");
        self.prev_crc = header.encode(head);
        // As what is read back: the header of the stored frame, with the length that this one has.
        buf[..FRAME_HEADER_BYTES].copy_from_slice(&out[..FRAME_HEADER_BYTES]);
        buf[0..4].copy_from_slice(&(len as u32).to_le_bytes());
        if keeps_buffers {
            self.segment.file.write_shared(&shared(out, padded).0, self.at)?;
        } else {
            self.segment.file.write_at(&out[..padded], self.at)?;
        }
        let (bytes, held) = shared(buf, len);
        self.note(lsn, &bytes, padded);
        Ok((bytes, held))
    }

    /// The header of a frame that is written here, but for its length and checksums.
    fn header(&self, frame: &SealedFrame, durable: Lsn) -> FrameHeader {
        FrameHeader {
            len: 0,
            header_crc: 0,
            body_crc: 0,
            salt: self.segment.header.salt,
            flags: frame.flags,
            count: frame.count,
            lsn: frame.lsn,
            durable_lsn: durable,
            epoch: self.segment.header.epoch,
            prev_crc: self.prev_crc,
            key_id: self.segment.header.key_id,
        }
    }

    /// A frame was written.
    fn note(&mut self, lsn: Lsn, bytes: &Bytes, padded: usize) {
        let offset = u32::try_from(self.at).expect("segments stay below 4 GiB");
        self.unlisted = Some(Unlisted { bytes: bytes.clone(), lsn, offset });
        self.at += padded as u64;
        self.frames += 1;
        self.zeroed = self.zeroed.max(self.at);
        self.unsynced = true;
    }

    fn list_last(&mut self) {
        let Some(Unlisted { bytes, lsn, offset }) = &self.unlisted else { return };
        let listed = self.footer.add_frame(&bytes[FRAME_HEADER_BYTES..], *lsn, *offset);
        listed.expect("the builder makes whole records");
        self.unlisted = None;
    }

    /// Writes the padded frame and returns its bytes for the tail cache: the buffer itself, or a
    /// copy where the buffer is so much larger that keeping it would waste memory.
    fn write_buf(
        &self,
        buf: AlignedBuf,
        len: usize,
        padded: usize,
        keeps_buffers: bool,
    ) -> io::Result<(Bytes, usize)> {
        // A frame that fills its buffer badly is copied rather than keeping the whole buffer.
        let (file, capacity) = (&self.segment.file, buf.capacity());
        if keeps_buffers {
            let small = is_small(len, capacity);
            let shared =
                if small { Bytes::copy_from_slice(&buf[..padded]) } else { buf.into_bytes(padded) };
            file.write_shared(&shared, self.at)?;
            return Ok((shared.slice(..len), if small { padded } else { capacity }));
        }
        file.write_at(&buf[..padded], self.at)?;
        Ok(shared(buf, len))
    }
}

/// True if a frame fills its buffer badly.
const fn is_small(len: usize, capacity: usize) -> bool {
    len + len / 2 < capacity
}

/// A frame for the tail cache, and the memory that it keeps: the buffer, or a copy where the buffer is so
/// much larger that keeping it would waste memory.
fn shared(buf: AlignedBuf, len: usize) -> (Bytes, usize) {
    let capacity = buf.capacity();
    if is_small(len, capacity) {
        (Bytes::copy_from_slice(&buf[..len]), len)
    } else {
        (buf.into_bytes(len), capacity)
    }
}
