//! Second pass: the newest checkpoint, the newest states after it, then every message and every
//! later record in the order of the log.
//!
//! A record of a stream is *before the cutoff* if the checkpoint or the stream's newest state was
//! taken after it: then only messages matter, and they are indexed from footers. Compacted segments
//! hold nothing but messages, all before the cutoff, because states were logged before compaction.

use super::chain_check::{Link, sealed_frames};
use super::{DamageKind, Machine, OpenError, Recovery, damage, io_context, no_records};
use crate::env::again;
use crate::frame::{
    FRAME_HEADER_BYTES, FrameFault, FrameHeader, codec::decode_record, pack, sealed,
};
use crate::index::Index;
use crate::later::{Later, Unusable};
use crate::machine::IndexedMessage;
use crate::record::{RecordKind, RecordRef};
use crate::rules::REFUSE_LATER;
use crate::segment::reader::{GoodFrame, read_footer};
use crate::segment::{Footer, Mark, Position};
use crate::state_part::{PartHead, StatePiece, whole_kind};
use crate::types::{SegmentId, StreamId};
use bytes::Bytes;
use rustc_hash::FxHashMap;

/// Position of a whole state.
struct Pieces {
    /// Marks of the parts before the last, with the number of their link; possibly those of attempts
    /// that were never finished before them.
    earlier: Vec<(Mark, usize)>,
    /// The last part, or the only one.
    last: (Mark, usize),
}

impl Pieces {
    /// Position of the state.
    const fn at(&self) -> Position {
        self.last.0.at
    }
}

/// The frame that a state was read from last: the next one is often in it, too, and with many streams a frame has
/// thousands.
pub(super) struct ReadFrame {
    /// Number of the link that it is in.
    link: usize,
    /// A mark of a state in it.
    mark: Mark,
    frame: Bytes,
}

impl ReadFrame {
    fn is_of(&self, mark: &Mark, link: usize) -> bool {
        (self.link, self.mark.frame, self.mark.at.lsn) == (link, mark.frame, mark.at.lsn)
    }
}

/// Up to where each stream's records are summed up by a state or a checkpoint.
struct Cutoffs {
    checkpoint: Position,
    streams: FxHashMap<StreamId, Position>,
}

impl Cutoffs {
    fn of(&self, stream: StreamId) -> Position {
        self.streams.get(&stream).copied().unwrap_or(self.checkpoint)
    }
}

impl<M: Machine> Recovery<M> {
    pub(super) fn replay(&mut self) -> Result<(), OpenError> {
        let checkpoint = self.restore_checkpoint()?;
        self.report.checkpoint = checkpoint;
        let at = checkpoint.map_or(Position::default(), Position::end_of);
        let mut cutoffs = Cutoffs { checkpoint: at, streams: FxHashMap::default() };
        self.apply_states(&mut cutoffs)?;
        for link in std::mem::take(&mut self.links) {
            self.replay_link(link, &cutoffs)?;
        }
        Ok(())
    }

    /// Hands the newest state of each stream, and of the log, to the machine, oldest first.
    fn apply_states(&mut self, cutoffs: &mut Cutoffs) -> Result<(), OpenError> {
        let mut states: Vec<_> = self.newest_states().into_iter().collect();
        states.retain(|(_, pieces)| pieces.at() > cutoffs.checkpoint);
        states.sort_unstable_by_key(|(_, pieces)| pieces.at());
        let mut incomplete = Vec::new();
        for (stream, pieces) in states {
            match self.apply_state(stream, &pieces) {
                Ok(()) => {
                    cutoffs.streams.insert(stream, pieces.at());
                }
                Err(why @ OpenError::Damaged { kind: DamageKind::Record, .. })
                    if pieces.last.0.piece == StatePiece::Last =>
                {
                    incomplete.push((stream, pieces.at(), why));
                }
                Err(why) => return Err(why),
            }
        }
        self.states_of = None;
        self.refuse_incomplete(incomplete, cutoffs)?;
        self.bury(cutoffs);
        Ok(())
    }

    /// The first parts of a state may have been compacted away while the last ones are still there: of a stream that
    /// lives a later state was logged before that, of one that is gone the log's state says so.
    fn refuse_incomplete(
        &self,
        incomplete: Vec<(StreamId, Position, OpenError)>,
        cutoffs: &Cutoffs,
    ) -> Result<(), OpenError> {
        let log_state = cutoffs.streams.get(&StreamId::LOG);
        for (stream, at, why) in incomplete {
            let is_later = log_state.is_some_and(|log_state| *log_state > at);
            if !is_later || !self.machine.is_gone(stream) {
                return Err(why);
            }
        }
        Ok(())
    }

    /// Streams that were gone at the newest `LogState` do not come back by older records.
    fn bury(&self, cutoffs: &mut Cutoffs) {
        let Some(at) = cutoffs.streams.get(&StreamId::LOG).copied() else { return };
        let streams = self.links.iter().flat_map(|link| link.streams.iter().copied());
        for stream in streams {
            if self.machine.is_gone(stream) {
                let cutoff = cutoffs.streams.entry(stream).or_insert(at);
                *cutoff = (*cutoff).max(at);
            }
        }
    }

    /// The newest state of each stream that is in the log to its last part.
    fn newest_states(&self) -> FxHashMap<StreamId, Pieces> {
        let mut newest: FxHashMap<StreamId, Pieces> = FxHashMap::default();
        let mut parts: FxHashMap<StreamId, Vec<(Mark, usize)>> = FxHashMap::default();
        for (number, link) in self.links.iter().enumerate() {
            for mark in &link.marks {
                let last = (*mark, number);
                let earlier = match mark.piece {
                    StatePiece::Part => {
                        parts.entry(mark.stream).or_default().push(last);
                        continue;
                    }
                    StatePiece::Whole => Vec::new(),
                    StatePiece::Last => parts.remove(&mark.stream).unwrap_or_default(),
                };
                newest.insert(mark.stream, Pieces { earlier, last });
            }
        }
        newest
    }

    /// Reads a state, puts it together if it is in parts, and hands it to the machine.
    fn apply_state(&mut self, stream: StreamId, pieces: &Pieces) -> Result<(), OpenError> {
        let (mark, link) = pieces.last;
        let last = self.read_piece(&mark, link)?;
        let malformed = |this: &Self| {
            let entry = &this.links[link].entry;
            damage(entry, u64::from(mark.frame), mark.at.lsn, DamageKind::Record)
        };
        let (record, _) = decode_record(&last).map_err(|_| malformed(self))?;
        if record.kind != RecordKind::StatePart {
            self.machine.apply_state(&record);
            return self.refuse_unreadable(link);
        }
        let of = PartHead::decode(record.headers).ok_or_else(|| malformed(self))?.of;
        // Parts of attempts that were never finished may come before those of this one.
        let unfinished = pieces.earlier.len().checked_sub(of as usize - 1);
        let mut body = Vec::new();
        for (number, (mark, link)) in
            (0..of - 1).zip(&pieces.earlier[unfinished.ok_or_else(|| malformed(self))?..])
        {
            let bytes = self.read_piece(mark, *link)?;
            let part = decode_record(&bytes).ok().map(|(record, _)| record);
            let part =
                part.filter(|part| PartHead::decode(part.headers) == Some(PartHead { number, of }));
            body.extend_from_slice(part.ok_or_else(|| malformed(self))?.body);
        }
        body.extend_from_slice(record.body);
        let kind = whole_kind(stream);
        self.machine.apply_state(&RecordRef { kind, headers: b"", body: &body, ..record });
        self.refuse_unreadable(link)
    }

    /// Whether the machine understood what it was given of a segment. Nothing was changed until now.
    fn refuse_unreadable(&self, link: usize) -> Result<(), OpenError> {
        if self.machine.unreadable_records() == 0 || !REFUSE_LATER.holds() {
            return Ok(());
        }
        let file = self.links[link].entry.file_name();
        Err(OpenError::Unknown { file, what: Later::RecordBody })
    }

    /// The bytes of the record that a mark points at, out of a frame whose checksums are right.
    fn read_piece(&mut self, mark: &Mark, number: usize) -> Result<Bytes, OpenError> {
        let frame = match &self.states_of {
            Some(read) if read.is_of(mark, number) => read.frame.clone(),
            _ => {
                self.report.state_frames += 1;
                let frame = self.read_frame(mark, number)?;
                let read = ReadFrame { link: number, mark: *mark, frame: frame.clone() };
                self.states_of = Some(read);
                frame
            }
        };
        let entry = &self.links[number].entry;
        let at = u64::from(mark.frame);
        let start = (mark.offset as usize).min(frame.len());
        match decode_record(&frame[start..]) {
            Ok((record, len))
                if StatePiece::of(&record) == Some(mark.piece) && record.stream == mark.stream =>
            {
                Ok(frame.slice(start..start + len))
            }
            Err(why) => Err(no_records(entry, at, mark.at.lsn, why)),
            Ok(_) => Err(damage(entry, at, mark.at.lsn, DamageKind::Record)),
        }
    }

    /// The frame that a mark points into, readable, once its checksums were found right.
    fn read_frame(&self, mark: &Mark, number: usize) -> Result<Bytes, OpenError> {
        let link = &self.links[number];
        let file = &link.segment.file;
        let name = || io_context(format!("segment {}", link.entry.file_name()));
        let at = u64::from(mark.frame);
        let head = again(|| file.read_shared(at, FRAME_HEADER_BYTES)).map_err(name())?;
        let fault = |fault| match fault {
            FrameFault::Unknown => {
                OpenError::Unknown { file: link.entry.file_name(), what: Later::Frame }
            }
            FrameFault::Key(id) => {
                OpenError::Unknown { file: link.entry.file_name(), what: Later::Key(id) }
            }
            fault => damage(&link.entry, at, mark.at.lsn, DamageKind::Frame(fault)),
        };
        let header = FrameHeader::decode(&head, link.segment.header.salt).map_err(fault)?;
        let frame = again(|| file.read_shared(at, header.len as usize)).map_err(name())?;
        header.check_body(&frame).map_err(fault)?;
        if header.lsn != mark.at.lsn || header.epoch != link.entry.epoch {
            return Err(fault(FrameFault::Chain));
        }
        if pack::is_packed(&header) {
            // States are never compacted, and only compaction packs.
            return Err(fault(FrameFault::Chain));
        }
        let frame = frame.slice(..header.len as usize);
        let image = sealed::image(&link.segment.keys, &header, &frame).map_err(fault)?;
        Ok(image.map_or(frame, Bytes::from))
    }

    fn replay_link(&mut self, mut link: Link, cutoffs: &Cutoffs) -> Result<(), OpenError> {
        let footer = link.footer.take().map_or_else(|| read_footer(&link.segment, &link.entry), Ok);
        let footer = footer.map_err(|why| {
            // It was good a moment ago.
            let context = format!("segment {}", link.entry.file_name());
            io_context(context)(std::io::Error::other(why.to_string()))
        })?;
        push_places(&mut self.index, &footer, link.entry.id);
        let later = |stream: &crate::segment::footer::FooterStream| {
            stream.last_at > cutoffs.of(stream.stream)
        };
        if !link.entry.compacted && footer.streams().iter().any(later) {
            return self.replay_frames(&link, cutoffs);
        }
        self.reindex_footer(&link, &footer)
    }

    fn reindex_footer(&mut self, link: &Link, footer: &Footer) -> Result<(), OpenError> {
        for stream in footer.streams() {
            self.report.indexed += u64::from(stream.messages);
            let machine = &mut self.machine;
            if !footer.for_each_message(stream, |message| machine.reindex(message)) {
                let (at, kind) = (link.entry.data_end, DamageKind::Record);
                return Err(damage(&link.entry, at, link.entry.end, kind));
            }
        }
        Ok(())
    }

    fn replay_frames(&mut self, link: &Link, cutoffs: &Cutoffs) -> Result<(), OpenError> {
        sealed_frames(&link.segment, &link.entry, |frame| {
            let replayed = self.replay_frame(frame, cutoffs);
            replayed.map_err(|why| no_records(&link.entry, frame.offset, frame.header.lsn, why))
        })
    }

    fn replay_frame(&mut self, frame: &GoodFrame<'_>, cutoffs: &Cutoffs) -> Result<(), Unusable> {
        self.report.frames += 1;
        let lsn = frame.header.lsn;
        let mut records = frame.records();
        for (number, (_, record)) in records.by_ref().enumerate() {
            self.report.records += 1;
            let at = Position { lsn, record: number as u16 };
            if StatePiece::of(&record).is_some() {
                continue;
            }
            if at > cutoffs.of(record.stream) {
                self.machine.apply(&record);
            } else if record.kind == RecordKind::Message {
                self.machine.reindex(&indexed(&record));
            }
        }
        let unread = self.machine.unreadable_records() > 0;
        let fault = records.fault.or(unread.then_some(Unusable::Later(Later::RecordBody)));
        fault.filter(|_| REFUSE_LATER.holds()).map_or(Ok(()), Err)
    }
}

/// Adds the places of a segment behind those of all others.
pub(super) fn push_places(index: &mut Index, footer: &Footer, id: SegmentId) {
    for stream in footer.streams().iter().filter(|stream| stream.messages > 0) {
        let index = index.entry(stream.stream);
        footer.places(stream, id).for_each(|place| index.push_place(place));
    }
}

fn indexed<'a>(record: &RecordRef<'a>) -> IndexedMessage<'a> {
    IndexedMessage {
        stream: record.stream,
        seq: record.seq,
        timestamp: record.timestamp,
        subject: record.subject,
        weight: record.weight() as u32,
        has_headers: !record.headers.is_empty(),
    }
}
