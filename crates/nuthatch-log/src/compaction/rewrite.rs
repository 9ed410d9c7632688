//! Writing the compacted segment: live messages only, each stream's together.

use super::{CompactionFault, Pace, Survey, for_each_frame};
use crate::catalog::{Catalog, SegmentEntry, SegmentState};
use crate::env::{AlignedBuf, DiskFile};
use crate::frame::{FRAME_HEADER_BYTES, FrameHeader, RecordIter, crc, flags};
use crate::record::RecordKind;
use crate::segment::writer::append_footer;
use crate::segment::{
    FooterBuilder, MAX_SEGMENT_BYTES, SEGMENT_HEADER_BYTES, Segment, SegmentHeader, SegmentId,
};
use crate::store::{Store, TMP_DIR};
use crate::types::{Lsn, Seq, StreamId};
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A compaction that may go ahead.
pub struct RewriteJob {
    /// The log's files.
    pub store: Arc<Store>,
    /// What the segments hold.
    pub survey: Survey,
    /// The messages that are live.
    pub live: FxHashSet<(StreamId, Seq)>,
    /// Weight of the live messages.
    pub live_bytes: u64,
    /// Frames of the new segment are about this large.
    pub frame_bytes: usize,
    /// Frames start at multiples of this.
    pub block_bytes: u32,
    /// Salt of the new segment.
    pub salt: u32,
    /// How fast it goes.
    pub hurry: Arc<AtomicBool>,
}

/// The outcome of a compaction.
pub struct Rewritten {
    /// What was compacted.
    pub survey: Survey,
    /// The new segment, where its frames end, and its footer; `None` if nothing was live.
    pub output: Option<Output>,
    /// Weight of the messages in it.
    pub live_bytes: u64,
}

/// A compacted segment.
pub struct Output {
    /// The segment.
    pub segment: Arc<Segment>,
    /// Where its frames end.
    pub data_end: u64,
    /// Last position it stands for.
    pub end: Lsn,
    /// Its footer.
    pub footer: crate::segment::Footer,
}

impl RewriteJob {
    /// Rewrites, publishes, removes the inputs.
    ///
    /// # Errors
    /// [`CompactionFault`]: the inputs are then all still in place.
    pub fn run(self) -> Result<Rewritten, CompactionFault> {
        let output = if self.live.is_empty() { None } else { Some(self.write()?) };
        self.publish(output.as_ref())?;
        self.remove_inputs();
        let output = output.map(|(output, _)| output);
        Ok(Rewritten { survey: self.survey, output, live_bytes: self.live_bytes })
    }

    /// Gathers live records by stream. Bounded by what a segment may hold.
    fn gather(&self) -> Result<BTreeMap<StreamId, Vec<u8>>, CompactionFault> {
        let mut streams: BTreeMap<StreamId, Vec<u8>> = BTreeMap::new();
        let mut found = 0;
        let mut pace = Pace::new(Arc::clone(&self.hurry));
        for victim in &self.survey.victims {
            for_each_frame(victim, &mut pace, &mut |body, _, _| {
                for (at, record) in RecordIter::new(body) {
                    let live = record.kind == RecordKind::Message
                        && self.live.contains(&(record.stream, record.seq));
                    if live {
                        found += 1;
                        let bytes = &body[at..at + record.weight()];
                        streams.entry(record.stream).or_default().extend_from_slice(bytes);
                    }
                }
            })?;
        }
        if found == self.live.len() {
            return Ok(streams);
        }
        // Footer and frames disagree. Whatever the reason, nothing may be dropped.
        let first = &self.survey.victims[0];
        Err(CompactionFault::Damaged { segment: first.segment.id(), offset: first.data_end })
    }

    fn write(&self) -> Result<(Output, SegmentEntry), CompactionFault> {
        let streams = self.gather()?;
        let header = self.header();
        let temporary = format!("{TMP_DIR}/compact-{}", header.id.0);
        let result = self.write_file(&temporary, header, &streams);
        if result.is_err() {
            let _ = self.store.disk.remove(&temporary);
        }
        result
    }

    fn header(&self) -> SegmentHeader {
        SegmentHeader {
            log_id: self.store.catalog().log_id,
            id: self.store.new_segment_id(),
            epoch: self.store.epoch,
            base: self.survey.victims[0].segment.header.base,
            salt: self.salt | 1,
            block_bytes: self.block_bytes,
            compacted: true,
        }
    }

    fn end(&self) -> Lsn {
        self.survey.victims.last().map_or(Lsn(0), |victim| victim.end)
    }

    fn write_file(
        &self,
        temporary: &str,
        header: SegmentHeader,
        streams: &BTreeMap<StreamId, Vec<u8>>,
    ) -> Result<(Output, SegmentEntry), CompactionFault> {
        let file = self.store.disk.create(temporary)?;
        let expected = self.live_bytes + self.live_bytes / 8 + 2 * u64::from(self.block_bytes);
        self.store.allocate_for_compaction(&*file, expected)?;
        let mut out = Frames::begin(self, file, header)?;
        for records in streams.values() {
            out.add(records)?;
        }
        out.flush()?;
        let Frames { file, at: data_end, mut footer, .. } = out;
        footer.set_end(self.end());
        let written = append_footer(&*file, data_end, &footer)?;
        self.store.disk.rename(temporary, &header.file_name())?;
        self.store.disk.sync_dir("")?;
        let entry = SegmentEntry {
            id: header.id,
            epoch: header.epoch,
            base: header.base,
            end: self.end(),
            data_end,
            footer_len: written.len,
            footer_crc: written.crc,
            salt: header.salt,
            state: SegmentState::Sealed,
            compacted: true,
        };
        let footer = crate::segment::Footer::parse(footer.encode().0, header.id)
            .ok_or_else(|| io::Error::other("a footer that was just made is not valid"))?;
        let segment = Arc::new(Segment { header, file });
        Ok((Output { segment, data_end, end: self.end(), footer }, entry))
    }

    fn is_victim(&self, id: SegmentId) -> bool {
        self.survey.victims.iter().any(|victim| victim.segment.id() == id)
    }

    /// Puts the new segment in the place of the old ones, in one step.
    fn publish(&self, output: Option<&(Output, SegmentEntry)>) -> io::Result<()> {
        self.store.publish(|catalog| {
            let is_victim = |entry: &SegmentEntry| self.is_victim(entry.id);
            let at = catalog.segments.iter().position(is_victim).unwrap_or(0);
            for entry in catalog.segments.iter_mut().filter(|entry| is_victim(entry)) {
                let gone =
                    if output.is_some() { SegmentState::Replaced } else { SegmentState::Removed };
                entry.state = gone;
            }
            if let Some((_, entry)) = output {
                catalog.segments.insert(at, *entry);
            }
        })
    }

    /// The inputs are no longer needed. What cannot be removed now goes at the next start.
    fn remove_inputs(&self) {
        let remove = || -> io::Result<()> {
            for victim in &self.survey.victims {
                self.store.disk.remove(&victim.segment.header.file_name())?;
            }
            self.store.disk.sync_dir("")?;
            self.store.publish(|catalog| forget_removed(catalog, &|id| self.is_victim(id)))
        };
        let _ = remove();
    }
}

/// Drops entries of replaced segments whose files are gone, and joins removed neighbours, so that
/// the catalog stays as long as the chain.
pub fn forget_removed(catalog: &mut Catalog, gone: &dyn Fn(SegmentId) -> bool) {
    catalog.segments.retain(|entry| entry.state != SegmentState::Replaced || !gone(entry.id));
    let mut joined: Vec<SegmentEntry> = Vec::with_capacity(catalog.segments.len());
    for entry in catalog.segments.drain(..) {
        match joined.last_mut() {
            Some(last)
                if last.state == SegmentState::Removed && entry.state == SegmentState::Removed =>
            {
                last.end = entry.end;
            }
            _ => joined.push(entry),
        }
    }
    catalog.segments = joined;
}

/// The frames of a compacted segment on their way to its file.
struct Frames<'a> {
    job: &'a RewriteJob,
    file: Arc<dyn DiskFile>,
    header: SegmentHeader,
    at: u64,
    prev_crc: u32,
    body: Vec<u8>,
    count: u16,
    pace: Pace,
    footer: FooterBuilder,
}

impl<'a> Frames<'a> {
    fn begin(
        job: &'a RewriteJob,
        file: Arc<dyn DiskFile>,
        header: SegmentHeader,
    ) -> io::Result<Self> {
        let mut block = AlignedBuf::zeroed(header.block_bytes as usize);
        block[..SEGMENT_HEADER_BYTES].copy_from_slice(&header.encode());
        let first = SEGMENT_HEADER_BYTES.next_multiple_of(header.block_bytes as usize);
        file.write_at(&block[..first], 0)?;
        let (at, prev_crc) = (first as u64, header.checksum());
        let footer = FooterBuilder::new(header.id, header.base);
        let pace = Pace::new(Arc::clone(&job.hurry));
        Ok(Self { job, file, header, at, prev_crc, body: Vec::new(), count: 0, pace, footer })
    }

    fn add(&mut self, records: &[u8]) -> io::Result<()> {
        for (at, record) in RecordIter::new(records) {
            let weight = record.weight();
            let full = self.body.len() + weight + FRAME_HEADER_BYTES > self.job.frame_bytes;
            if (full && self.count > 0) || self.count == u16::MAX {
                self.flush()?;
            }
            self.body.extend_from_slice(&records[at..at + weight]);
            self.count += 1;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.count == 0 {
            return Ok(());
        }
        let len = FRAME_HEADER_BYTES + self.body.len();
        let padded = len.next_multiple_of(self.header.block_bytes as usize);
        if self.at + padded as u64 > MAX_SEGMENT_BYTES {
            return Err(io::Error::other("a compacted segment would be too long"));
        }
        let mut buf = AlignedBuf::zeroed(padded);
        buf[FRAME_HEADER_BYTES..len].copy_from_slice(&self.body);
        let header = FrameHeader {
            len: len as u32,
            header_crc: 0,
            body_crc: crc(&self.body),
            salt: self.header.salt,
            flags: flags::COMPACTED,
            count: self.count,
            lsn: self.job.end(),
            durable_lsn: self.job.end(),
            epoch: self.header.epoch,
            prev_crc: self.prev_crc,
            key_id: 0,
        };
        let head = buf.first_chunk_mut().expect("a frame buffer holds a header");
        self.prev_crc = header.encode(head);
        let shared = buf.into_bytes(padded);
        self.file.write_shared(&shared, self.at)?;
        self.footer.add_frame(&self.body, self.job.end(), self.at as u32);
        self.at += padded as u64;
        self.pace.step();
        self.body.clear();
        self.count = 0;
        Ok(())
    }
}
