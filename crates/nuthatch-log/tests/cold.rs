//! Cold segments: merged, sorted by stream, compressed where that pays; read as before; damage in
//! them found as ever; given back as whole files when their stream goes.

mod common;

use common::{Event, Outcome, Rig, tiny, tiny_cold};
use nuthatch_log::doctor::{FrameView, Seen, walk_segment};
use nuthatch_log::env::MemDisk;
use nuthatch_log::{Compression, Disk, Inspection, LogOptions, StreamId};
use std::sync::Arc;
use std::time::Duration;

const STREAMS: u32 = 6;

/// As large a segment as states of these streams are small in: a compaction that logs large states
/// waits until the log has grown.
fn cold() -> LogOptions {
    LogOptions { segment_bytes: 64 * 1024, state_part_bytes: 64 * 1024, ..tiny_cold() }
}

/// Messages that compress: a few words and a number.
fn text(stream: u32, n: u64) -> Vec<u8> {
    format!("order {n} of shop {stream}: paid, packed, sent; paid, packed, sent; thanks")
        .into_bytes()
}

/// Messages that do not.
fn noise(stream: u32, n: u64) -> Vec<u8> {
    let mut state = u64::from(stream) << 32 | n;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    (0..900).map(|_| next()).collect()
}

/// A log with so many messages in each of some streams, dealt out in turn, and time to tidy up.
fn filled(options: &LogOptions, disk: &MemDisk, body: fn(u32, u64) -> Vec<u8>, count: u64) -> Rig {
    let mut rig = Rig::open(options.clone(), Arc::new(disk.clone())).expect("opens");
    (1..=STREAMS).for_each(|stream| rig.create(stream, 0));
    fill(&mut rig, body, 1..=count);
    rig
}

fn fill(rig: &mut Rig, body: fn(u32, u64) -> Vec<u8>, range: std::ops::RangeInclusive<u64>) {
    for n in range {
        for stream in 1..=STREAMS {
            assert_eq!(rig.publish(stream, &body(stream, n)), Outcome::Acked(n));
        }
        rig.advance(Duration::from_millis(30));
    }
    settle(rig);
}

/// Until there is nothing left to tidy up.
fn settle(rig: &mut Rig) {
    for _ in 0..60 {
        rig.advance(Duration::from_millis(1100));
    }
}

fn check(rig: &mut Rig, body: fn(u32, u64) -> Vec<u8>, count: u64) {
    for stream in 1..=STREAMS {
        for n in 1..=count {
            assert_eq!(rig.read(stream, n), Outcome::Body(body(stream, n)), "{n} of {stream}");
        }
        // And not in order.
        for n in (1..=count).rev().step_by(7) {
            assert_eq!(rig.read(stream, n), Outcome::Body(body(stream, n)), "{n} of {stream}");
        }
        assert_eq!(rig.read(stream, count + 1), Outcome::Missing);
    }
}

/// Frames of all segment files.
fn frames(disk: &MemDisk) -> Vec<(String, FrameView)> {
    let mut frames = Vec::new();
    for file in disk.list("").expect("lists").into_iter().filter(|name| name.ends_with(".seg")) {
        let seen = walk_segment(disk, &file, &mut |seen| {
            if let Seen::Frame(frame) = seen {
                frames.push((file.clone(), *frame));
            }
            Ok(())
        });
        seen.expect("can be read");
    }
    frames
}

/// Streams of the compacted segments' messages, segment by segment.
fn streams_of_compacted(disk: &MemDisk) -> Vec<Vec<u32>> {
    let inspection = Inspection::look(disk, &mut |_, _| {}).expect("can be read");
    assert!(inspection.is_sound(), "{inspection}");
    let mut streams = Vec::new();
    for segment in inspection.segments.iter().filter(|s| s.compacted && s.state == "sealed") {
        let mut here = Vec::new();
        let seen = walk_segment(disk, &segment.file, &mut |seen| {
            if let Seen::Record(_, record) = seen
                && here.last() != Some(&record.stream.0)
            {
                here.push(record.stream.0);
            }
            Ok(())
        });
        seen.expect("can be read");
        streams.push(here);
    }
    streams
}

#[test]
fn each_streams_messages_end_up_together() {
    let disk = MemDisk::default();
    let options = LogOptions { compression: Compression::None, own_segment_bytes: 400, ..cold() };
    let rig = filled(&options, &disk, text, 60);
    let written = rig.handle.stats().compaction_written_bytes;
    drop(rig);
    assert!(written > 0);
    let compacted = streams_of_compacted(&disk);
    assert!(compacted.len() > 3, "{compacted:?}");
    for streams in &compacted {
        let mut sorted = streams.clone();
        sorted.dedup();
        sorted.sort_unstable();
        assert_eq!(*streams, sorted, "each stream's messages are one run");
    }
    assert!(compacted.iter().any(|streams| streams.len() == 1), "{compacted:?}");
    let mut rig = Rig::open(options, Arc::new(disk)).expect("opens");
    check(&mut rig, text, 60);
}

#[test]
fn a_stream_with_its_own_segments_goes_without_rewriting() {
    let disk = MemDisk::default();
    let options = LogOptions { own_segment_bytes: 400, compact_memory_bytes: 1 << 20, ..cold() };
    let mut rig = filled(&options, &disk, text, 60);
    assert!(streams_of_compacted(&disk).contains(&vec![2]));
    let before = rig.handle.stats();
    rig.run(Event::Drop { stream: StreamId(2) });
    settle(&mut rig);
    let after = rig.handle.stats();
    assert!(after.compacted_segments > before.compacted_segments, "{after:?}");
    assert!(!streams_of_compacted(&disk).contains(&vec![2]));
    // What lies around the gaps that it leaves is merged; no positions are then spoken for twice.
    for n in 61..=200 {
        for stream in [1, 3, 4, 5, 6] {
            assert_eq!(rig.publish(stream, &text(stream, n)), Outcome::Acked(n));
        }
        rig.advance(Duration::from_millis(100));
    }
    settle(&mut rig);
    let chain = Inspection::look(&disk, &mut |_, _| {}).expect("can be read").segments;
    for pair in chain.windows(2) {
        assert!(pair[0].end < pair[1].base, "{} and {}", pair[0], pair[1]);
    }
}

#[test]
fn what_compresses_is_packed_and_read_as_before() {
    let (disk, plain) = (MemDisk::default(), MemDisk::default());
    let mut rig = filled(&cold(), &disk, text, 60);
    let stats = rig.handle.stats();
    assert!(stats.packed_bytes > stats.packed_into_bytes * 3 / 2, "{stats:?}");
    check(&mut rig, text, 60);
    fill(&mut rig, text, 61..=90);
    check(&mut rig, text, 90);
    drop(rig);
    for _ in 0..2 {
        let mut rig = Rig::open(cold(), Arc::new(disk.clone())).expect("opens");
        check(&mut rig, text, 90);
        rig.core.close().expect("closes");
    }
    let packed: Vec<_> = frames(&disk).into_iter().filter(|(_, f)| f.flags & 4 != 0).collect();
    assert!(!packed.is_empty());
    assert!(packed.iter().all(|(_, f)| f.unpacked_bytes.is_some_and(|b| b > f.bytes as usize)));
    let none = LogOptions { compression: Compression::None, ..cold() };
    drop(filled(&none, &plain, text, 90));
    assert!(frames(&plain).iter().all(|(_, frame)| frame.flags & 4 == 0));
}

/// A program that cannot unpack must refuse the segment at once: its version says so. Nothing else
/// about segments has changed, so others keep the version that every program reads.
#[test]
fn only_segments_that_may_be_packed_are_of_version_two() {
    let disk = MemDisk::default();
    drop(filled(&cold(), &disk, text, 60));
    let frames = frames(&disk);
    let mut versions = std::collections::BTreeMap::new();
    for (file, frame) in &frames {
        let head = disk.open(file).and_then(|f| f.read_shared(0, 12)).expect("can be read");
        versions.insert(file, head[8]);
        assert!(head[8] == 2 || frame.flags & 4 == 0, "{file}");
    }
    assert!(versions.values().any(|v| *v == 2) && versions.values().any(|v| *v == 1));
}

#[test]
fn what_does_not_compress_is_left_alone() {
    let disk = MemDisk::default();
    let options = LogOptions { merge: false, ..cold() };
    let mut rig = filled(&options, &disk, noise, 20);
    let stats = rig.handle.stats();
    assert_eq!((stats.compaction_written_bytes, stats.packed_bytes), (0, 0), "{stats:?}");
    check(&mut rig, noise, 20);
}

/// `compression: s2` of a stream counts although the log compresses nothing by itself.
#[test]
fn streams_that_ask_for_it_are_compressed_in_any_log() {
    let disk = MemDisk::default();
    let options = LogOptions { cold_after_ms: 0, ..tiny() };
    let mut rig = filled(&options, &disk, text, 40);
    assert_eq!(rig.handle.stats().packed_bytes, 0);
    rig.core.machine_mut().compressed = [2, 3, 5].map(StreamId).into();
    fill(&mut rig, text, 41..=200);
    let stats = rig.handle.stats();
    assert!(stats.packed_bytes > 0, "{stats:?}");
    check(&mut rig, text, 200);
    drop(rig);
    for file in disk.list("").expect("lists").into_iter().filter(|name| name.ends_with(".seg")) {
        let mut packed = false;
        let walked = walk_segment(&disk, &file, &mut |seen| {
            match seen {
                Seen::Frame(frame) => packed = frame.flags & 4 != 0,
                Seen::Record(_, record) if packed => assert!([2, 3, 5].contains(&record.stream.0)),
                _ => {}
            }
            Ok(())
        });
        walked.expect("can be read");
    }
}

/// The machine looks at all its streams to answer: asked for each of them, a log of 34,000 stood still for seconds.
#[test]
fn what_compactions_ask_of_all_streams_does_not_grow_with_their_number() {
    let asked = |streams: u32| {
        let options = LogOptions { compression: Compression::None, ..cold() };
        let mut rig = Rig::open(options, Arc::new(MemDisk::default())).expect("opens");
        (1..=streams).for_each(|stream| rig.create(stream, 0));
        for n in 0..1200 {
            rig.publish(1 + n % streams, &text(1, n.into()));
            if n % 20 == 0 {
                rig.advance(Duration::from_millis(30));
            }
        }
        settle(&mut rig);
        assert!(rig.handle.stats().compacted_segments > 0, "{streams} streams");
        rig.core.machine_mut().asked_for_compressed.get()
    };
    let (few, many) = (asked(6), asked(120));
    assert!(many < 2 * few, "{few} times with 6 streams, {many} with 120");
}

/// Many rounds leave many small segments; they are merged in their turn.
#[test]
fn the_number_of_segments_stays_bounded() {
    let disk = MemDisk::default();
    let options = LogOptions { segment_frames: 17, ..cold() };
    let mut rig = filled(&options, &disk, text, 20);
    let mut most = 0;
    for round in 1..=12 {
        fill(&mut rig, text, round * 20 + 1..=round * 20 + 20);
        most = most.max(rig.handle.stats().segments);
    }
    let inspection = Inspection::look(&disk, &mut |_, _| {}).expect("can be read");
    assert!(most < 60, "{most} segments: {inspection}\n{:?}", rig.handle.stats());
    check(&mut rig, text, 260);
    drop(rig);
    let mut rig = Rig::open(options, Arc::new(disk)).expect("opens");
    check(&mut rig, text, 260);
}

/// Every byte of every packed frame, one after the other, is spoilt: messages of it are reported as
/// damaged and never read as something else; set right again they are read.
#[test]
fn a_flipped_bit_in_a_packed_frame_is_reported_and_forgiven() {
    let disk = MemDisk::default();
    drop(filled(&cold(), &disk, text, 40));
    let all = frames(&disk);
    let packed = all.iter().filter(|(_, frame)| frame.flags & 4 != 0);
    let (file, frame) = packed.max_by_key(|(_, frame)| frame.records).expect("packed frames");
    let (from, to) = (frame.offset as usize, frame.offset as usize + frame.bytes as usize);
    for byte in (from..to).step_by(11) {
        disk.flip_bit(file, byte, (byte % 8) as u8);
        let mut rig = Rig::open(cold(), Arc::new(disk.crash(1))).expect("opens");
        let mut damaged = 0;
        for stream in 1..=STREAMS {
            for n in 1..=40 {
                match rig.read(stream, n) {
                    Outcome::Body(body) => assert_eq!(body, text(stream, n), "byte {byte}"),
                    Outcome::Damaged => damaged += 1,
                    other => panic!("byte {byte}: {n} of {stream}: {other:?}"),
                }
            }
        }
        // With those behind it that are found by walking over it.
        assert!(damaged >= u64::from(frame.records), "byte {byte}: {damaged}");
        assert!(rig.handle.stats().damaged > 0);
        disk.flip_bit(file, byte, (byte % 8) as u8);
    }
    let mut rig = Rig::open(cold(), Arc::new(disk)).expect("opens");
    check(&mut rig, text, 40);
}

/// A footer that is lost is made again from packed frames, and finds the same.
#[test]
fn footers_are_rebuilt_from_packed_frames() {
    let disk = MemDisk::default();
    drop(filled(&cold(), &disk, text, 40));
    for file in disk.list("").expect("lists").into_iter().filter(|name| name.ends_with(".seg")) {
        let len = disk.file_len(&file).expect("is there");
        disk.flip_bit(&file, len - 20, 1);
    }
    let mut rig = Rig::open(cold(), Arc::new(disk)).expect("opens");
    check(&mut rig, text, 40);
}
