//! Reading committed messages: the tail cache first, then what was read back, then files.

use super::inner::LogInner;
use super::read_backoff::{BackoffKey, ReadFault};
use crate::cache::block::{FramePosition, ReadStep, find_in_frame};
use crate::cache::{
    Expect, Link, LoadFailure, LoadFault, LoadRequest, Loaded, Resume, block::FrameWalk,
};
use crate::frame::codec::{RecordPeek, decode_record};
use crate::index::{Cursor, IndexPosition, StreamIndex, TailRun};
use crate::machine::{Read, StoredMessage};
use crate::record::RecordKind;
use crate::segment::SegmentId;
use crate::stats::add;
use crate::types::{Lsn, Seq, StreamId};
use bytes::Bytes;
use std::collections::hash_map::Entry;

/// Result of reading one message.
enum ReadEnd {
    Tail(Lsn, u32),
    Cold(SegmentId, FramePosition),
    Pending,
    Missing,
    ReadFault(ReadFault),
}

/// Walks that wait for a frame behind the one where they began. With more, some begin anew.
const WALKS_MAX: usize = 1024;

/// A walk over frames to a message.
#[derive(Clone, Copy)]
pub struct FrameWalker {
    seq: Seq,
    segment: SegmentId,
    /// How far it has come.
    from: FramePosition,
    /// What the frame there must match.
    expect: Expect,
    /// It went over frames that cannot be read.
    passed_over: Option<ReadFault>,
}

impl FrameWalker {
    /// It has come to a frame that is not in memory, perhaps from the one before it.
    fn reach(&mut self, frame: u32, before: Option<Link>) {
        if let Some(before) = before {
            self.expect = Expect::Behind(before);
        }
        if frame != self.from.frame {
            self.from = FramePosition { frame, record: 0 };
        }
    }

    /// It goes on behind a frame that cannot be read. What may be readable in a moment is not called
    /// damaged.
    fn pass_over(&mut self, read_fault: ReadFault, resume: &Resume) {
        self.passed_over =
            self.passed_over.filter(|before| *before == ReadFault::Failing).or(Some(read_fault));
        self.from = FramePosition { frame: resume.offset, record: 0 };
        self.expect = Expect::Is(resume.link);
    }
}

/// Result of looking a frame up.
enum Fetched {
    /// It is being read.
    Pending,
    /// It is in memory already (logs in memory).
    Here,
    /// It cannot be read; where the next one is that can.
    ReadFault(ReadFault, Option<Resume>),
}

impl LogInner {
    pub(super) fn read_message(&mut self, stream: StreamId, seq: Seq) -> Read<'_> {
        match self.locate(stream, seq) {
            ReadEnd::Tail(lsn, offset) => message_at(self.tail.get(lsn), offset),
            ReadEnd::Cold(segment, at) => match self.blocks.record(segment, at) {
                Some((record, owner)) => ready(record, owner),
                None => Read::Missing,
            },
            ReadEnd::Pending => Read::Pending,
            ReadEnd::Missing => Read::Missing,
            ReadEnd::ReadFault(ReadFault::Damaged) => Read::Damaged,
            ReadEnd::ReadFault(ReadFault::Failing) => Read::Failing,
        }
    }

    fn locate(&mut self, stream: StreamId, seq: Seq) -> ReadEnd {
        let Some(index) = self.index.get_mut(stream) else { return ReadEnd::Missing };
        if let Some((run, lsn, offset)) = tail_spot(index, &self.tail, stream, seq) {
            index.cursor = Cursor::Tail { seq, run, offset };
            add(&self.stats.tail_hits, 1);
            return ReadEnd::Tail(lsn, offset);
        }
        let Some(place) = index.place(seq).copied() else { return ReadEnd::Missing };
        let start = match index.cursor {
            Cursor::Cold { seq: at, segment, frame, record }
                if segment == place.segment && at < seq && at >= place.first =>
            {
                (FramePosition { frame, record }, at)
            }
            _ => (FramePosition { frame: place.frame, record: place.record }, place.first),
        };
        self.locate_cold(stream, seq, &place, start)
    }

    /// Walks from a message that is known to be at `start` to the one that is wanted.
    fn locate_cold(
        &mut self,
        stream: StreamId,
        seq: Seq,
        place: &IndexPosition,
        (start, known): (FramePosition, Seq),
    ) -> ReadEnd {
        let Some(info) = self.segments.get(place.segment) else { return ReadEnd::Missing };
        let span = (info.segment.header.block_bytes, info.data_end);
        let expect = Expect::Message { stream, seq: known, offset: start.record };
        let begin =
            FrameWalker { seq, segment: place.segment, from: start, expect, passed_over: None };
        let mut walk = self.taken_up(&begin, stream);
        let is_start = |frame| frame == start.frame && seq == known;
        let spot = self.walk(stream, &mut walk, span, &is_start);
        if matches!(spot, ReadEnd::Pending) && walk.from.frame != start.frame {
            if self.walks.len() >= WALKS_MAX {
                self.walks.clear();
            }
            self.walks.insert(stream, walk);
        }
        spot
    }

    /// A walk that waited for a frame goes on there: what it has passed may not be in memory any more.
    fn taken_up(&mut self, begin: &FrameWalker, stream: StreamId) -> FrameWalker {
        let waiting = if self.walks.is_empty() { None } else { self.walks.remove(&stream) };
        let same = |walk: &FrameWalker| walk.seq == begin.seq && walk.segment == begin.segment;
        waiting.filter(same).unwrap_or(*begin)
    }

    /// Every frame on the way is known to be the right one, so what is not in them does not exist; but
    /// a frame that cannot be read may have held it.
    fn walk(
        &mut self,
        stream: StreamId,
        walk: &mut FrameWalker,
        (block, end): (u32, u64),
        is_start: &dyn Fn(u32) -> bool,
    ) -> ReadEnd {
        let segment = walk.segment;
        loop {
            match self.blocks.find(segment, block, walk.from, end, (stream, walk.seq)) {
                ReadStep::Found(at) => {
                    self.remember(stream, walk.seq, segment, at);
                    self.read_ahead(segment, at.frame);
                    add(&self.stats.block_hits, 1);
                    return ReadEnd::Cold(segment, at);
                }
                ReadStep::Passed => {
                    return walk.passed_over.map_or(ReadEnd::Missing, ReadEnd::ReadFault);
                }
                ReadStep::Absent(frame, before) => {
                    walk.reach(frame, before);
                    match self.fetch(stream, (segment, frame), walk.expect) {
                        Fetched::Pending => return ReadEnd::Pending,
                        Fetched::Here => {}
                        Fetched::ReadFault(read_fault, resume) => {
                            let Some(resume) = resume.filter(|_| !is_start(frame)) else {
                                return ReadEnd::ReadFault(read_fault);
                            };
                            walk.pass_over(read_fault, &resume);
                        }
                    }
                }
            }
        }
    }

    fn remember(&mut self, stream: StreamId, seq: Seq, segment: SegmentId, at: FramePosition) {
        if let Some(index) = self.index.get_mut(stream) {
            let (frame, record) = (at.frame, at.record);
            index.cursor = Cursor::Cold { seq, segment, frame, record };
        }
    }

    /// Has the stretch behind the one in use read while that is being consumed.
    fn read_ahead(&mut self, segment: SegmentId, frame: u32) {
        if self.medium.in_memory {
            return;
        }
        let Some((next, last)) = self.blocks.read_ahead(segment, frame) else { return };
        let wanted = self.segments.get(segment).is_some_and(|info| u64::from(next) < info.data_end)
            && !self.loading.contains_key(&(segment, next))
            && !self.read_backoffs.knows((segment, next));
        let request = self.request(segment, next, Expect::Behind(last));
        if let Some(request) = request.filter(|_| wanted) {
            self.loading.insert((segment, next), Vec::new());
            self.loader.submit(request);
        }
    }

    fn request(&self, segment: SegmentId, offset: u32, expect: Expect) -> Option<LoadRequest> {
        let info = self.segments.get(segment)?;
        let (segment, end) = (std::sync::Arc::clone(&info.segment), info.data_end);
        Some(LoadRequest { segment, offset, expect, end, in_memory: self.medium.in_memory })
    }

    /// Starts reading a frame that is not in memory.
    fn fetch(&mut self, stream: StreamId, place: BackoffKey, expect: Expect) -> Fetched {
        if let Some((read_fault, resume)) = self.read_backoffs.at(place, self.now) {
            return Fetched::ReadFault(read_fault, resume);
        }
        let (segment, frame) = place;
        let request = self.request(segment, frame, expect).expect("its segment was found before");
        if self.medium.in_memory {
            self.note_loaded(request.run());
            let read_fault = self.read_backoffs.at(place, self.now);
            return read_fault.map_or(Fetched::Here, |(t, resume)| Fetched::ReadFault(t, resume));
        }
        let waiting = match self.loading.entry((segment, frame)) {
            Entry::Occupied(under_way) => under_way.into_mut(),
            Entry::Vacant(vacant) => {
                add(&self.stats.cache_misses, 1);
                self.loader.submit(request);
                vacant.insert(Vec::new())
            }
        };
        if !waiting.contains(&stream) {
            waiting.push(stream);
        }
        Fetched::Pending
    }

    /// Takes what was read; returns the streams that wait for it.
    pub(super) fn note_loaded(&mut self, loaded: Loaded) -> Vec<StreamId> {
        let key = (loaded.segment, loaded.offset);
        let known = self.segments.get(loaded.segment).is_some();
        match loaded.result {
            Ok(stretches) if known => {
                // The first one is awaited: the newest is never pushed out.
                for stretch in stretches.into_iter().rev() {
                    self.blocks.insert(loaded.segment, stretch);
                }
                if self.read_backoffs.clear(key) {
                    self.say_of(key, "can be read again");
                }
            }
            Ok(_) => {}
            Err(failure) if known => self.note_read_fault(key, &failure),
            Err(_) => {}
        }
        crate::stats::set(&self.stats.block_bytes, self.blocks.bytes() as u64);
        self.loading.remove(&key).unwrap_or_default()
    }

    fn note_read_fault(&mut self, key: BackoffKey, failure: &LoadFailure) {
        let fault = &failure.fault;
        if matches!(fault, LoadFault::Io(_)) {
            add(&self.stats.read_errors, 1);
        }
        // Each place is reported once; what is tried again in vain says nothing new.
        let Some(read_fault) = self.read_backoffs.note(key, failure, self.now) else { return };
        if read_fault == ReadFault::Damaged {
            add(&self.stats.damaged, 1);
        }
        self.say_of(key, &format!("cannot be read: {fault}; whoever needs it waits"));
    }

    fn say_of(&self, (segment, offset): BackoffKey, what: &str) {
        let name = self.segments.get(segment).map(|info| info.segment.header.file_name());
        let name = name.unwrap_or_default();
        self.options.report.say(&format!("segment {name}: frame at offset {offset} {what}"));
    }
}

/// Finds a message in the tail cache, from the message read last if that one is just before.
fn tail_spot(
    index: &StreamIndex,
    tail: &crate::cache::TailCache,
    stream: StreamId,
    seq: Seq,
) -> Option<(u64, Lsn, u32)> {
    let (number, run, from) = match next_of_cursor(index, tail, seq) {
        Some(found) => found,
        None => index.tail_run(seq).map(|(number, run)| (number, run, run.offset))?,
    };
    match find_in_frame(tail.get(run.lsn)?, from, (stream, seq)) {
        FrameWalk::Found(offset) => Some((number, run.lsn, offset)),
        FrameWalk::Passed | FrameWalk::End => None,
    }
}

fn next_of_cursor(
    index: &StreamIndex,
    tail: &crate::cache::TailCache,
    seq: Seq,
) -> Option<(u64, TailRun, u32)> {
    let Cursor::Tail { seq: at, run: number, offset } = index.cursor else { return None };
    if at.next() != seq {
        return None;
    }
    let run = index.run_number(number)?;
    if seq.0 < run.first.0 + u64::from(run.count) {
        let here = tail.get(run.lsn)?.get(offset as usize..)?;
        return Some((number, run, offset + RecordPeek::at(here)?.len as u32));
    }
    let next = index.run_number(number + 1)?;
    (next.first == seq).then_some((number + 1, next, next.offset))
}

fn message_at(owner: Option<&Bytes>, offset: u32) -> Read<'_> {
    match owner {
        Some(owner) => ready(&owner[offset as usize..], owner),
        None => Read::Missing,
    }
}

/// The message whose record begins here, in a checked frame of `owner`.
///
/// # Panics
/// It is the record of something else.
#[must_use]
pub fn ready<'a>(record: &'a [u8], owner: &'a Bytes) -> Read<'a> {
    match decode_record(record) {
        Ok((record, _)) if record.kind == RecordKind::Message => {
            Read::Ready(StoredMessage { record, owner })
        }
        Ok(_) => unreachable!("only messages are looked for"),
        // Its checksum fits, and this version does not understand it.
        Err(_) => Read::Damaged,
    }
}
