//! Reading committed messages: the tail cache first, then what was read back, then files.

use super::inner::LogInner;
use super::trouble::{PlaceKey, Trouble};
use crate::cache::block::{At, Walk, find_in_frame};
use crate::cache::{LoadFault, LoadRequest, Loaded, block::FrameWalk};
use crate::env::WriteMode;
use crate::frame::codec::{RecordPeek, decode_record};
use crate::index::{Cursor, Place, StreamIndex, TailRun};
use crate::machine::{Read, StoredMessage};
use crate::record::RecordKind;
use crate::segment::SegmentId;
use crate::stats::add;
use crate::types::{Lsn, Seq, StreamId};
use bytes::Bytes;
use std::collections::hash_map::Entry;

/// Where a read ended.
enum Spot {
    Tail(Lsn, u32),
    Cold(SegmentId, At),
    Pending,
    Missing,
    Trouble(Trouble),
}

impl LogInner {
    pub(super) fn read_message(&mut self, stream: StreamId, seq: Seq) -> Read<'_> {
        match self.locate(stream, seq) {
            Spot::Tail(lsn, offset) => message_at(self.tail.get(lsn), offset),
            Spot::Cold(segment, at) => match self.blocks.record(segment, at) {
                Some((record, owner)) => ready(record, owner),
                None => Read::Missing,
            },
            Spot::Pending => Read::Pending,
            Spot::Missing => Read::Missing,
            Spot::Trouble(Trouble::Damaged) => Read::Damaged,
            Spot::Trouble(Trouble::Failing) => Read::Failing,
        }
    }

    fn locate(&mut self, stream: StreamId, seq: Seq) -> Spot {
        let Some(index) = self.index.get_mut(stream) else { return Spot::Missing };
        if let Some((run, lsn, offset)) = tail_spot(index, &self.tail, stream, seq) {
            index.cursor = Cursor::Tail { seq, run, offset };
            add(&self.stats.tail_hits, 1);
            return Spot::Tail(lsn, offset);
        }
        let Some(place) = index.place(seq).copied() else { return Spot::Missing };
        let start = match index.cursor {
            Cursor::Cold { seq: at, segment, frame, record }
                if segment == place.segment && at < seq && at >= place.first =>
            {
                At { frame, record }
            }
            _ => At { frame: place.frame, record: place.record },
        };
        self.locate_cold(stream, seq, &place, start)
    }

    fn locate_cold(&mut self, stream: StreamId, seq: Seq, place: &Place, start: At) -> Spot {
        let Some(info) = self.segments.get(place.segment) else { return Spot::Missing };
        let (end, block) = (info.data_end, info.segment.header.block_bytes);
        let mut from = start;
        loop {
            match self.blocks.find(place.segment, block, from, end, (stream, seq)) {
                Walk::Found(at) => {
                    self.remember(stream, seq, place.segment, at);
                    self.read_ahead(place.segment, at.frame);
                    add(&self.stats.block_hits, 1);
                    return Spot::Cold(place.segment, at);
                }
                Walk::Passed => return Spot::Missing,
                Walk::Absent(frame) => match self.fetch(stream, place.segment, frame) {
                    Some(spot) => return spot,
                    None => {
                        from = if frame == start.frame { start } else { At { frame, record: 0 } }
                    }
                },
            }
        }
    }

    fn remember(&mut self, stream: StreamId, seq: Seq, segment: SegmentId, at: At) {
        if let Some(index) = self.index.get_mut(stream) {
            let (frame, record) = (at.frame, at.record);
            index.cursor = Cursor::Cold { seq, segment, frame, record };
        }
    }

    /// Has the stretch behind the one in use read while that is being consumed.
    fn read_ahead(&mut self, segment: SegmentId, frame: u32) {
        if self.mode == WriteMode::Memory {
            return;
        }
        let Some(next) = self.blocks.read_ahead(segment, frame) else { return };
        let wanted = self.segments.get(segment).is_some_and(|info| u64::from(next) < info.data_end)
            && !self.loading.contains_key(&(segment, next))
            && !self.troubled.knows((segment, next));
        if let Some(request) = self.request(segment, next).filter(|_| wanted) {
            self.loading.insert((segment, next), Vec::new());
            self.loader.submit(request);
        }
    }

    fn request(&self, segment: SegmentId, offset: u32) -> Option<LoadRequest> {
        let info = self.segments.get(segment)?;
        let (segment, end) = (std::sync::Arc::clone(&info.segment), info.data_end);
        Some(LoadRequest { segment, offset, end, mode: self.mode })
    }

    /// Starts reading a frame that is not in memory. `None` if it is there already (logs in memory).
    fn fetch(&mut self, stream: StreamId, segment: SegmentId, frame: u32) -> Option<Spot> {
        if let Some(trouble) = self.troubled.at((segment, frame), self.now) {
            return Some(Spot::Trouble(trouble));
        }
        let request = self.request(segment, frame)?;
        if self.mode == WriteMode::Memory {
            self.note_loaded(request.run());
            return self.troubled.at((segment, frame), self.now).map(Spot::Trouble);
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
        Some(Spot::Pending)
    }

    /// Takes what was read; returns the streams that wait for it.
    pub(super) fn note_loaded(&mut self, loaded: Loaded) -> Vec<StreamId> {
        let key = (loaded.segment, loaded.offset);
        let known = self.segments.get(loaded.segment).is_some();
        match loaded.result {
            Ok(stretches) if known => {
                // The first one is what somebody waits for: the newest is never pushed out.
                for stretch in stretches.into_iter().rev() {
                    self.blocks.insert(loaded.segment, stretch);
                }
                if self.troubled.clear(key) {
                    self.say_of(key, "can be read again");
                }
            }
            Ok(_) => {}
            Err(fault) if known => self.note_trouble(key, &fault),
            Err(_) => {}
        }
        crate::stats::set(&self.stats.block_bytes, self.blocks.bytes() as u64);
        self.loading.remove(&key).unwrap_or_default()
    }

    fn note_trouble(&mut self, key: PlaceKey, fault: &LoadFault) {
        if matches!(fault, LoadFault::Io(_)) {
            add(&self.stats.read_errors, 1);
        }
        // Each place is reported once; what is tried again in vain says nothing new.
        let Some(trouble) = self.troubled.note(key, fault, self.now) else { return };
        if trouble == Trouble::Damaged {
            add(&self.stats.damaged, 1);
        }
        self.say_of(key, &format!("cannot be read: {fault}; whoever needs it waits"));
    }

    fn say_of(&self, (segment, offset): PlaceKey, what: &str) {
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

fn ready<'a>(record: &'a [u8], owner: &'a Bytes) -> Read<'a> {
    match decode_record(record) {
        Ok((record, _)) if record.kind == RecordKind::Message => {
            Read::Ready(StoredMessage { record, owner })
        }
        Ok(_) => unreachable!("only messages are looked for"),
        // Its checksum fits, and this version does not understand it.
        Err(_) => Read::Damaged,
    }
}
