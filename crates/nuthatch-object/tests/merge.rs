//! What compaction makes of a log in a bucket: few large objects out of many small ones, each
//! stream's messages in one place, and nothing left of a stream that is gone. Counted in objects,
//! requests and bytes.

#[path = "../../nuthatch-log/tests/common/mod.rs"]
mod common;

use common::{Event, Outcome, Rig};
use nuthatch_log::{Compression, LogOptions, StreamId};
use nuthatch_object::{Bucket, BucketOptions, ObjectDisk, ObjectDiskOptions, RequestKind};
use object_store::memory::InMemory;
use object_store::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Options of a log in a bucket, with everything cold at once and nothing compressed.
fn options() -> LogOptions {
    LogOptions {
        cold_after_ms: 0,
        segment_frames: 128,
        compression: Compression::None,
        commit_marker_ms: 50,
        ..LogOptions::object()
    }
}

fn bucket(store: &Arc<InMemory>) -> Arc<Bucket> {
    let (store, options) = (Arc::clone(store), BucketOptions::default());
    let bucket = Bucket::new(store, Path::from("log"), "memory".to_owned(), options);
    Arc::new(bucket.expect("threads"))
}

/// The log, taken over by an owner whose memory is empty.
fn open(options: &LogOptions, store: &Arc<InMemory>) -> (Rig, Arc<Bucket>) {
    let bucket = bucket(store);
    let disk = ObjectDisk::open(Arc::clone(&bucket), ObjectDiskOptions::default());
    let rig = Rig::open(options.clone(), Arc::new(disk.expect("opens")));
    (rig.expect("opens"), bucket)
}

fn body(stream: u32, n: u64, len: usize) -> Vec<u8> {
    let mut state = u64::from(stream) << 40 | n;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn settle(rig: &mut Rig) {
    for _ in 0..40 {
        rig.advance(Duration::from_millis(1100));
    }
}

/// So many frames of one message each, dealt out to the streams in turn.
fn fill(rig: &mut Rig, streams: u32, each: u64, len: usize) {
    (1..=streams).for_each(|stream| rig.create(stream, 0));
    for n in 1..=each {
        for stream in 1..=streams {
            assert_eq!(rig.publish(stream, &body(stream, n, len)), Outcome::Acked(n));
        }
    }
    settle(rig);
}

fn objects(bucket: &Bucket) -> Vec<(String, u64)> {
    let listed = bucket.list("data").expect("lists");
    listed.into_iter().map(|object| (object.key, object.bytes)).collect()
}

#[test]
fn many_small_objects_become_few_large_ones() {
    let store = Arc::new(InMemory::new());
    let (mut rig, bucket) = open(&options(), &store);
    fill(&mut rig, 10, 150, 200);
    let left = objects(&bucket);
    let all: u64 = left.iter().map(|(_, bytes)| bytes).sum();
    assert!(left.len() < 200, "{} objects of 1,500", left.len());
    assert!(all < 1_200_000, "{all} bytes");
    drop(rig);
    let (mut rig, _) = open(&options(), &store);
    for stream in 1..=10 {
        for n in 1..=150 {
            assert_eq!(rig.read(stream, n), Outcome::Body(body(stream, n, 200)));
        }
    }
}

#[test]
fn reading_one_stream_of_many_does_not_fetch_the_others() {
    let store = Arc::new(InMemory::new());
    let options = LogOptions { own_segment_bytes: 1 << 20, ..options() };
    let (mut rig, _) = open(&options, &store);
    // 24 MB; each stream has less than gets a segment of its own.
    fill(&mut rig, 40, 6, 100_000);
    drop(rig);
    let (mut rig, bucket) = open(&options, &store);
    let before = bucket.counters().snapshot();
    for n in 1..=6 {
        assert_eq!(rig.read(17, n), Outcome::Body(body(17, n, 100_000)));
    }
    let after = bucket.counters().snapshot();
    let bytes = after.get_bytes - before.get_bytes;
    let gets = after.of(RequestKind::Get) - before.of(RequestKind::Get);
    assert!(bytes < 16_000_000, "{bytes} bytes for 600,000");
    assert!(gets < 24, "{gets} requests");
}

#[test]
fn objects_of_a_stream_that_is_gone_go_without_being_read() {
    let store = Arc::new(InMemory::new());
    let options = LogOptions { own_segment_bytes: 100_000, ..options() };
    let (mut rig, bucket) = open(&options, &store);
    fill(&mut rig, 4, 120, 50_000);
    let before = (objects(&bucket), bucket.counters().snapshot(), rig.handle.stats());
    rig.run(Event::Drop { stream: StreamId(3) });
    settle(&mut rig);
    let bytes = |objects: &[(String, u64)]| objects.iter().map(|(_, bytes)| bytes).sum::<u64>();
    let (left, stats) = (objects(&bucket), rig.handle.stats());
    let freed = bytes(&before.0).saturating_sub(bytes(&left));
    assert!(freed > 2_500_000, "{freed} bytes came back");
    let read = stats.compaction_read_bytes - before.2.compaction_read_bytes;
    assert!(read < 500_000, "{read} bytes of records were read for that");
    drop(rig);
    let (mut rig, _) = open(&options, &store);
    for stream in [1, 2, 4] {
        for n in 1..=60 {
            assert_eq!(rig.read(stream, n), Outcome::Body(body(stream, n, 50_000)));
        }
    }
    assert_eq!(rig.read(3, 1), Outcome::Missing);
}
