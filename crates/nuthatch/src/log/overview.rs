//! The log as a whole: segments, checkpoints, streams, what is live and what is dead.

use super::{EXIT_CANNOT_LOOK, EXIT_DAMAGE, InspectArgs, Wanted};
use crate::doctor::{LogLocation, open_preview};
use crate::show::plural;
use nuthatch_log::doctor::{CheckpointInspection, Inspection, SegmentInspection, StreamPreview};
use nuthatch_log::env::OverlayDisk;
use nuthatch_log::{Disk, KeyId, RecordRef, StreamId};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::sync::Arc;

/// Summary of a log.
struct Overview {
    inspection: Inspection,
    /// Live bytes of each segment, if the log opens.
    live: Option<Vec<u64>>,
    /// The streams, or why the log does not open.
    streams: Result<Vec<StreamPreview>, String>,
    in_use: bool,
}

/// Shows a log; returns the exit code.
pub fn show(
    out: &mut impl Write,
    place: &LogLocation,
    disk: Arc<dyn Disk>,
    in_use: bool,
    args: &InspectArgs,
    wanted: &mut Wanted<'_>,
) -> io::Result<u8> {
    let overview = match look(disk, in_use, wanted) {
        Ok(overview) => overview,
        Err(why) => {
            let dir = place.dir.display();
            let explain = match &args.store {
                Some(address) => format!("--store {address} --log {}", args.log_name),
                None => dir.to_string(),
            };
            eprintln!("nuthatch: {dir}: {why}; to have it explained: nuthatch doctor {explain}");
            return Ok(EXIT_CANNOT_LOOK);
        }
    };
    if args.segment.is_some() {
        wanted.note(&overview.inspection.segments);
        if !overview.inspection.segments.iter().any(|segment| wanted.is(segment)) {
            return Ok(0);
        }
    }
    let only = |segment: &SegmentInspection| wanted.is(segment);
    if args.json {
        writeln!(out, "{:#}", overview.json(place, &only))?;
    } else {
        overview.text(out, place, &only)?;
    }
    let is_locked = overview.inspection.segments.iter().any(|segment| segment.locked);
    Ok(match (overview.inspection.is_sound(), overview.streams.is_ok()) {
        (true, true) => 0,
        (true, false) if is_locked => EXIT_CANNOT_LOOK,
        _ => EXIT_DAMAGE,
    })
}

fn look(disk: Arc<dyn Disk>, in_use: bool, wanted: &Wanted<'_>) -> Result<Overview, String> {
    // Recovery writes: into memory, where it is forgotten.
    let streams = open_preview(Arc::new(OverlayDisk::new(Arc::clone(&disk))), &wanted.keys);
    let by_id: HashMap<StreamId, &StreamPreview> =
        streams.iter().flatten().map(|stream| (stream.id, stream)).collect();
    let mut live: Vec<u64> = Vec::new();
    let mut visit = |segment: usize, record: &RecordRef<'_>| {
        live.resize(live.len().max(segment + 1), 0);
        if by_id.get(&record.stream).is_some_and(|stream| is_live(stream, record.seq.0)) {
            live[segment] += record.weight() as u64;
        }
    };
    let inspection = Inspection::look_with(&*disk, &wanted.ring, &mut visit);
    let inspection = inspection.map_err(|error| error.to_string())?;
    live.resize(inspection.segments.len(), 0);
    let live = streams.is_ok().then_some(live);
    Ok(Overview { inspection, live, streams, in_use })
}

fn is_live(stream: &StreamPreview, seq: u64) -> bool {
    let after = stream.live.partition_point(|(first, _)| *first <= seq);
    after > 0 && stream.live[after - 1].1 >= seq
}

impl Overview {
    fn text(
        &self,
        out: &mut impl Write,
        place: &LogLocation,
        only: &dyn Fn(&SegmentInspection) -> bool,
    ) -> io::Result<()> {
        let Inspection { log_id, epoch, clean, strangers, .. } = &self.inspection;
        let closed = match (self.in_use, clean) {
            (true, _) => "in use by a server: the end may change while it is read",
            (false, true) => "closed cleanly",
            (false, false) => "not closed cleanly",
        };
        writeln!(out, "{}: log {log_id:016x}, epoch {epoch}, {closed}", place.dir.display())?;
        for (number, segment) in self.inspection.segments.iter().enumerate() {
            if only(segment) {
                self.segment_text(out, number, segment)?;
            }
        }
        for checkpoint in &self.inspection.checkpoints {
            let CheckpointInspection { file, content } = checkpoint;
            match content {
                Ok((lsn, bytes)) => {
                    writeln!(out, "  {file}: covers position {lsn}, {bytes} bytes")?
                }
                Err(why) => writeln!(out, "  {file}: PROBLEM: {why}")?,
            }
        }
        self.keys_text(out)?;
        for name in strangers {
            writeln!(out, "  {name}: PROBLEM: not part of the log")?;
        }
        match &self.streams {
            Err(why) => writeln!(out, "  streams: the log does not open: {why}"),
            Ok(streams) => streams.iter().try_for_each(|stream| stream_text(out, stream)),
        }
    }

    /// Bytes of the segments' frames under each key.
    fn by_key(&self) -> BTreeMap<KeyId, (u64, u64)> {
        let mut keys: BTreeMap<KeyId, (u64, u64)> = BTreeMap::new();
        for segment in self.inspection.segments.iter().filter(|segment| segment.file_bytes > 0) {
            let (segments, bytes) = keys.entry(segment.key_id).or_default();
            *segments += 1;
            *bytes += segment.good_bytes;
        }
        keys
    }

    /// How much is under which key, where anything is encrypted.
    fn keys_text(&self, out: &mut impl Write) -> io::Result<()> {
        let keys = self.by_key();
        if !keys.keys().any(|key| key.is_some()) {
            return Ok(());
        }
        for (key, (segments, bytes)) in keys {
            let what = if key.is_some() {
                format!("encrypted with key {key}")
            } else {
                "not encrypted".to_owned()
            };
            writeln!(out, "  {what}: {}, {bytes} bytes of frames", plural(segments, "segment"))?;
        }
        Ok(())
    }

    fn segment_text(
        &self,
        out: &mut impl Write,
        number: usize,
        segment: &SegmentInspection,
    ) -> io::Result<()> {
        let SegmentInspection { id, file, state, base, end, frames, records, messages, .. } =
            segment;
        let compacted = if segment.compacted { ", compacted" } else { "" };
        writeln!(out, "  segment {id} {file} ({state}{compacted}): positions {base} to {end}")?;
        if segment.file_bytes == 0 {
            return Ok(());
        }
        writeln!(
            out,
            "      {}, {}, {}; checksums read",
            plural(*frames, "frame"),
            plural(*records, "record"),
            plural(*messages, "message"),
        )?;
        let (data, footer, all) = (segment.good_bytes, segment.footer_bytes, segment.file_bytes);
        write!(out, "      {all} bytes: {data} of frames, {footer} of footer")?;
        if segment.packed_frames > 0 {
            let (packed, messages) = (segment.packed_frames, segment.message_bytes);
            write!(out, "; {packed} frames packed, {messages} bytes of messages when unpacked")?;
        }
        if let Some(live) = &self.live {
            write!(out, "; {} live, {} dead", live[number], dead_bytes(segment, live[number]))?;
        }
        writeln!(out)?;
        if segment.key_id.is_some() {
            let locked = if segment.locked { ", which was not given (--key-file)" } else { "" };
            writeln!(out, "      encrypted with key {}{locked}", segment.key_id)?;
        }
        if segment.torn_bytes > 0 {
            writeln!(out, "      torn tail of {} bytes, never acknowledged", segment.torn_bytes)?;
        }
        segment.problems.iter().try_for_each(|problem| writeln!(out, "      PROBLEM: {problem}"))
    }

    fn json(&self, place: &LogLocation, only: &dyn Fn(&SegmentInspection) -> bool) -> Value {
        let found = &self.inspection;
        let segments = found.segments.iter().enumerate().filter(|(_, segment)| only(segment));
        json!({
            "dir": place.dir,
            "log_id": format!("{:016x}", found.log_id),
            "epoch": found.epoch.0,
            "in_use": self.in_use,
            "clean": found.clean,
            "sound": found.is_sound(),
            "segments": segments.map(|(n, segment)| self.segment_json(n, segment)).collect::<Vec<_>>(),
            "checkpoints": found.checkpoints.iter().map(checkpoint_json).collect::<Vec<_>>(),
            "strangers": found.strangers,
            "opens": self.streams.is_ok(),
            "why_not": self.streams.as_ref().err(),
            "streams": self.streams.iter().flatten().map(crate::doctor::stream_json).collect::<Vec<_>>(),
        })
    }

    fn segment_json(&self, number: usize, segment: &SegmentInspection) -> Value {
        let live = self.live.as_ref().map(|live| live[number]);
        json!({
            "id": segment.id,
            "file": segment.file,
            "state": segment.state,
            "compacted": segment.compacted,
            "epoch": segment.epoch.0,
            "base": segment.base.0,
            "end": segment.end.0,
            "file_bytes": segment.file_bytes,
            "frame_bytes": segment.good_bytes,
            "footer_bytes": segment.footer_bytes,
            "message_bytes": segment.message_bytes,
            "live_bytes": live,
            "dead_bytes": live.map(|live| dead_bytes(segment, live)),
            "frames": segment.frames,
            "packed_frames": segment.packed_frames,
            "key": segment.key_id.is_some().then(|| segment.key_id.to_string()),
            "locked": segment.locked,
            "records": segment.records,
            "messages": segment.messages,
            "torn_bytes": segment.torn_bytes,
            "problems": segment.problems,
        })
    }
}

fn stream_text(out: &mut impl Write, stream: &StreamPreview) -> io::Result<()> {
    let StreamPreview { id, name, first, last, messages, bytes, consumers, .. } = stream;
    writeln!(
        out,
        "  stream {name} (id {id}): {}, {} in the log, sequence {first} to {last}, {}",
        plural(*messages, "message"),
        plural(*bytes, "byte"),
        plural(*consumers as u64, "consumer"),
    )
}

/// Dead bytes of a segment. Live bytes are counted unpacked: where frames are packed, so are the
/// dead ones.
const fn dead_bytes(segment: &SegmentInspection, live: u64) -> u64 {
    let all = if segment.packed_frames > 0 { segment.message_bytes } else { segment.good_bytes };
    all.saturating_sub(live)
}

fn checkpoint_json(checkpoint: &CheckpointInspection) -> Value {
    match &checkpoint.content {
        Ok((lsn, bytes)) => json!({ "file": checkpoint.file, "covers": lsn.0, "bytes": bytes }),
        Err(why) => json!({ "file": checkpoint.file, "problem": why }),
    }
}
