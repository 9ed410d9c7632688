//! One suite for every provider: files of the operating system, the simulated disk, a bucket, a disk
//! with a bucket behind it, memory.

mod common;

use common::{Event, Outcome, Outputs, Rig, Toy, tiny, tiny_sync};
use nuthatch_log::env::{
    Fault, MemDisk, OverlayDisk, RamDisk, RealDisk, SeededEntropy, SystemClock,
};
use nuthatch_log::{Disk, Log, LogOptions, OwnableDisk, Reporter, SendError, StreamId, SyncPolicy};
use nuthatch_object::{
    Bucket, BucketOptions, ObjectDisk, ObjectDiskOptions, TierOptions, TieredDisk,
};
use object_store::{memory::InMemory, path::Path};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A directory that goes away with the test.
struct TempDir(PathBuf);

impl TempDir {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("nuthatch-log-{}-{n}", std::process::id()));
        // A process of the same number may have been killed here.
        let _ = std::fs::remove_dir_all(&dir);
        Self(dir)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The log in a bucket in memory. Each call is another owner, as another server would be.
fn object_disk(store: &Arc<InMemory>) -> ObjectDisk {
    let (store, options) = (Arc::clone(store), BucketOptions::default());
    let bucket = Bucket::new(store, Path::from("log"), "memory".to_owned(), options);
    let bucket = Arc::new(bucket.expect("threads"));
    ObjectDisk::open(bucket, ObjectDiskOptions::default()).expect("a bucket in memory")
}

/// A simulated disk from which every sealed segment moves to a bucket at once, beside the test.
fn tiered_disk(local: &MemDisk, store: &Arc<InMemory>) -> TieredDisk {
    let (store, options) = (Arc::clone(store), BucketOptions::default());
    let bucket = Bucket::new(store, Path::from("log"), "memory".to_owned(), options);
    let options = TierOptions {
        after_age: Some(Duration::ZERO),
        part_bytes: 10_000,
        ..TierOptions::default()
    };
    let bucket = Arc::new(bucket.expect("threads"));
    let disk = TieredDisk::open(Arc::new(local.clone()), bucket, options).expect("opens");
    disk.start("conformance").expect("a thread");
    disk
}

/// Runs a test on each provider: options, a way to get at the same storage again, and whether it
/// survives being reopened.
fn on_each(test: impl Fn(&LogOptions, &dyn Fn() -> Arc<dyn OwnableDisk>, bool)) {
    let dir = TempDir::new();
    let local = LogOptions {
        block_bytes: 4096,
        first_segment_bytes: 64 << 10,
        segment_bytes: 256 << 10,
        ..tiny()
    };
    test(&local, &|| Arc::new(RealDisk::open(&dir.0).expect("temp dir")), true);
    let sim = MemDisk::default();
    test(&tiny(), &|| Arc::new(sim.clone()), true);
    let bucket = Arc::new(InMemory::new());
    test(&tiny(), &|| Arc::new(object_disk(&bucket)), true);
    let (local, behind) = (MemDisk::default(), Arc::new(InMemory::new()));
    test(&tiny(), &|| Arc::new(tiered_disk(&local, &behind)), true);
    let never = LogOptions { block_bytes: 64, ..tiny_sync(SyncPolicy::Never) };
    test(&never, &|| Arc::new(RamDisk::new(64 << 20)), false);
}

fn body(n: u64) -> Vec<u8> {
    let len = usize::try_from(n * 37 % 600).expect("small");
    let mut body = n.to_le_bytes().to_vec();
    body.resize(8 + len, n as u8);
    body
}

/// A copy in memory of what is in a bucket is judged as the bucket is: there an owner that was
/// superseded may have left a checkpoint whose name says more than the log holds.
#[test]
fn a_rehearsal_does_not_believe_the_name_of_a_checkpoint_in_a_bucket() {
    let store = Arc::new(InMemory::new());
    let mut rig = Rig::open(tiny(), Arc::new(object_disk(&store))).expect("opens");
    rig.create(1, 0);
    assert_eq!(rig.publish(1, b"one"), Outcome::Acked(1));
    drop(rig);
    let disk = object_disk(&store);
    let file = disk.create("checkpoint-00000000000000004711").expect("creates");
    file.write_at(&[7; 900], 0).and_then(|()| file.sync()).expect("writes");
    let copy = OverlayDisk::new(Arc::new(disk));
    let rehearsed = Rig::open(tiny(), Arc::new(copy)).map(|mut rig| rig.read(1, 1));
    assert_eq!(rehearsed.expect("opens"), Outcome::Body(b"one".to_vec()));
    let mut rig = Rig::open(tiny(), Arc::new(object_disk(&store))).expect("opens as well");
    assert_eq!(rig.read(1, 1), Outcome::Body(b"one".to_vec()));
}

#[test]
fn published_messages_are_acknowledged_and_readable() {
    on_each(|options, disk, _| {
        let mut rig = Rig::open(options.clone(), disk()).expect("opens");
        rig.create(1, 0);
        rig.create(2, 0);
        for n in 1..=300 {
            assert_eq!(rig.publish(1, &body(n)), Outcome::Acked(n));
            assert_eq!(rig.publish(2, &body(n + 1)), Outcome::Acked(n));
        }
        for n in 1..=300 {
            assert_eq!(rig.read(1, n), Outcome::Body(body(n)));
        }
        for n in (1..=300).rev() {
            assert_eq!(rig.read(2, n), Outcome::Body(body(n + 1)));
        }
        assert_eq!(rig.read(1, 301), Outcome::Missing);
        assert_eq!(rig.read(3, 1), Outcome::Missing);
    });
}

#[test]
fn everything_is_there_again_after_a_clean_close_and_after_none() {
    on_each(|options, disk, survives| {
        if !survives {
            return;
        }
        for (round, clean) in [true, false, true, false, false].into_iter().enumerate() {
            let mut rig = Rig::open(options.clone(), disk()).expect("opens");
            let round = round as u64;
            if round == 0 {
                rig.create(1, 0);
            }
            for n in 1..=round * 50 {
                assert_eq!(rig.read(1, n), Outcome::Body(body(n)), "round {round}");
            }
            for n in round * 50 + 1..=round * 50 + 50 {
                assert_eq!(rig.publish(1, &body(n)), Outcome::Acked(n));
            }
            if clean {
                rig.core.close().expect("closes");
            }
        }
    });
}

#[test]
fn a_batch_becomes_few_frames_and_large_records_fit() {
    on_each(|options, disk, survives| {
        let mut rig = Rig::open(options.clone(), disk()).expect("opens");
        rig.create(1, 0);
        let frames = rig.handle.stats().frames;
        let publish = |n| Event::Publish { stream: StreamId(1), body: vec![7; 10], token: n };
        rig.run(Event::Batch((0..30).map(publish).collect()));
        assert_eq!(rig.handle.stats().frames, frames + 1);
        let large = vec![9; 100_000];
        assert_eq!(rig.publish(1, &large), Outcome::Acked(31));
        assert_eq!(rig.publish(1, b"small"), Outcome::Acked(32));
        assert_eq!(rig.read(1, 31), Outcome::Body(large.clone()));
        drop(rig);
        if survives {
            let mut rig = Rig::open(options.clone(), disk()).expect("opens");
            assert_eq!(rig.read(1, 31), Outcome::Body(large));
            assert_eq!(rig.read(1, 30), Outcome::Body(vec![7; 10]));
        }
    });
}

#[test]
fn the_open_segment_is_counted() {
    on_each(|options, disk, _| {
        let mut rig = Rig::open(options.clone(), disk()).expect("opens");
        rig.create(1, 0);
        rig.publish(1, b"first");
        let before = rig.handle.stats();
        assert!(before.segments >= 1 && before.segment_bytes > 0, "{before:?}");
        rig.publish(1, &[7; 10_000]);
        let after = rig.handle.stats();
        assert!(after.segment_bytes >= before.segment_bytes + 10_000, "{after:?}");
        assert!(after.live_bytes >= before.live_bytes + 10_000, "{after:?}");
    });
}

#[test]
fn what_nobody_awaits_waits_for_the_timer() {
    on_each(|options, disk, _| {
        let mut rig = Rig::open(options.clone(), disk()).expect("opens");
        rig.create(1, 0);
        let frames = rig.handle.stats().frames;
        rig.run(Event::Lazy { stream: StreamId(1) });
        assert_eq!(rig.handle.stats().frames, frames);
        rig.advance(Duration::from_millis(251));
        assert_eq!(rig.handle.stats().frames, frames + 1);
    });
}

#[test]
fn an_idle_log_vouches_for_its_last_frame_once() {
    let mut rig = Rig::open(tiny(), Arc::new(MemDisk::default())).expect("opens");
    rig.create(1, 0);
    rig.advance(Duration::from_millis(51));
    assert_eq!(rig.handle.stats().frames, 2);
    rig.advance(Duration::from_secs(5));
    assert_eq!(rig.handle.stats().frames, 2);
}

#[test]
fn a_second_owner_is_refused() {
    let dir = TempDir::new();
    let options = LogOptions::local(&dir.0);
    let (core, _) = Log::open_local(options.clone(), Toy::new(Outputs::default())).expect("opens");
    let second = Log::open_local(options, Toy::new(Outputs::default()));
    assert!(second.err().is_some_and(|error| error.to_string().contains("in use")));
    drop(core);
}

#[test]
fn threads_take_events_from_everywhere_and_close_cleanly() {
    let dir = TempDir::new();
    let options = LogOptions::local(&dir.0);
    let outputs = Outputs::default();
    let (core, _) = Log::open_local(options.clone(), Toy::new(outputs.clone())).expect("opens");
    let handle = core.spawn("test").expect("spawns");
    let send = |event: Event| {
        let weight = event.weight();
        assert!(handle.send(event, weight).is_ok());
    };
    send(Event::Create { stream: StreamId(1), max_messages: 0 });
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            scope.spawn(move || {
                for n in 0..500 {
                    let token = thread * 1000 + n;
                    let body = body(token);
                    send(Event::Publish { stream: StreamId(1), body, token });
                }
            });
        }
    });
    handle.close().expect("closes");
    let refused = handle.send(Event::Drop { stream: StreamId(1) }, 1);
    assert!(matches!(refused, Err(SendError::Closed(_))));
    let acked = (0..4000).filter(|token| matches!(outputs.get(*token), Outcome::Acked(_))).count();
    assert_eq!(acked, 2000);
    let (core, report) = Log::open_local(options, Toy::new(outputs.clone())).expect("opens");
    assert!(report.clean);
    assert_eq!(core.machine().streams[&StreamId(1)].live.len(), 2000);
}

#[test]
fn a_full_queue_says_busy_and_tells_when_there_is_room() {
    let options = LogOptions { queue_bytes: 1000, ..tiny() };
    let mut rig = Rig::open(options, Arc::new(MemDisk::default())).expect("opens");
    let event = || Event::Create { stream: StreamId(1), max_messages: 0 };
    assert!(rig.handle.send(event(), 900).is_ok());
    assert!(matches!(rig.handle.send(event(), 200), Err(SendError::Busy(_))));
    let called = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&called);
    rig.handle.wait_for_room(move || {
        seen.fetch_add(1, Ordering::SeqCst);
    });
    assert_eq!(called.load(Ordering::SeqCst), 0);
    rig.settle();
    assert_eq!(called.load(Ordering::SeqCst), 1);
    assert!(rig.handle.send(event(), 2000).is_ok(), "a lone event passes whatever its size");
}

/// An operation may be large (a stream's state on its way to another log); publishers are not refused because of it.
#[test]
fn what_is_privileged_takes_no_room_from_the_others() {
    let options = LogOptions { queue_bytes: 1000, ..tiny() };
    let mut rig = Rig::open(options, Arc::new(MemDisk::default())).expect("opens");
    let event = || Event::Create { stream: StreamId(1), max_messages: 0 };
    assert!(rig.handle.send_privileged(event(), 1900).is_ok());
    assert!(rig.handle.send(event(), 900).is_ok());
    assert!(matches!(rig.handle.send(event(), 200), Err(SendError::Busy(_))));
    assert!(rig.handle.send_privileged(event(), 100).is_ok(), "publishes take no room either");
    assert!(matches!(rig.handle.send_privileged(event(), 1), Err(SendError::Busy(_))));
    assert_eq!(rig.handle.stats().queue_bytes, 2900);
    assert!(rig.handle.send_anyway(event(), 100).is_ok());
    rig.settle();
    assert_eq!(rig.handle.stats().queue_bytes, 0);
    assert!(rig.handle.send(event(), 1000).is_ok());
    assert!(rig.handle.send_privileged(event(), 1000).is_ok());
}

#[test]
fn dead_space_is_given_back_and_the_rest_stays_readable() {
    on_each(|options, disk, survives| {
        let mut rig = Rig::open(options.clone(), disk()).expect("opens");
        rig.create(1, 20);
        rig.create(2, 0);
        rig.create(3, 0);
        for n in 1..=400 {
            rig.publish(1, &[1; 300]);
            if n % 20 == 0 {
                rig.publish(2, &body(n));
            }
            rig.publish(3, &[3; 100]);
            rig.advance(Duration::from_millis(20));
        }
        rig.run(Event::Purge { stream: StreamId(3), up_to: 390 });
        for _ in 0..20 {
            rig.advance(Duration::from_millis(600));
        }
        let stats = rig.handle.stats();
        assert!(stats.compacted_segments > 0, "{stats:?}");
        let before = rig.core.machine().streams.clone();
        for n in 1..=20 {
            assert_eq!(rig.read(2, n), Outcome::Body(body(n * 20)));
        }
        assert_eq!(rig.read(1, 380), Outcome::Missing);
        assert_eq!(rig.read(1, 381), Outcome::Body(vec![1; 300]));
        drop(rig);
        if survives {
            let mut rig = Rig::open(options.clone(), disk()).expect("opens");
            assert_eq!(rig.core.machine().streams, before);
            for n in 1..=20 {
                assert_eq!(rig.read(2, n), Outcome::Body(body(n * 20)));
            }
            assert_eq!(rig.read(3, 395), Outcome::Body(vec![3; 100]));
        }
    });
}

/// A read that failed once is tried again; so is damage, which may be gone when it is.
#[test]
fn a_read_fault_is_not_remembered_for_good() {
    let disk = MemDisk::default();
    let mut rig = Rig::open(tiny(), Arc::new(disk.clone())).expect("opens");
    rig.create(1, 0);
    (1..=200).for_each(|n| drop(rig.publish(1, &body(n))));
    disk.inject(Fault::ReadErrors(u64::MAX));
    assert_eq!(rig.read(1, 1), Outcome::Failing);
    assert_eq!(rig.read(1, 1), Outcome::Failing, "left alone");
    rig.advance(Duration::from_millis(110));
    assert_eq!(rig.read(1, 1), Outcome::Failing, "the second error");
    disk.heal();
    rig.advance(Duration::from_millis(110));
    assert_eq!(rig.read(1, 1), Outcome::Failing, "left alone for longer");
    rig.advance(Duration::from_millis(110));
    assert_eq!(rig.read(1, 1), Outcome::Body(body(1)));
    let stats = rig.handle.stats();
    assert_eq!((stats.read_errors, stats.damaged), (2, 0));

    drop(rig);
    let mut rig = Rig::open(tiny(), Arc::new(disk.clone())).expect("opens");
    let names = disk.list("").expect("lists");
    let first = names.iter().find(|name| name.ends_with(".seg")).expect("a segment");
    disk.flip_bit(first, 1040, 3);
    let broken = (1..=9).find(|&n| rig.read(1, n) == Outcome::Damaged).expect("one is damaged");
    disk.flip_bit(first, 1040, 3);
    assert_eq!(rig.read(1, broken), Outcome::Damaged, "left alone");
    rig.advance(Duration::from_millis(110));
    assert_eq!(rig.read(1, broken), Outcome::Body(body(broken)));
    assert_eq!(rig.handle.stats().damaged, 1);
}

/// Fills a log until it refuses messages; returns how many it took.
fn fill(rig: &mut Rig) -> u64 {
    for n in 1..100_000 {
        match rig.publish(1, &[n as u8; 400]) {
            Outcome::Acked(seq) => assert_eq!(seq, n),
            Outcome::Refused(why) => {
                assert!(why.contains("no space left"), "{why}");
                return n - 1;
            }
            other => panic!("{other:?}"),
        }
    }
    panic!("the medium never filled up");
}

fn check_full(mut rig: Rig) -> Rig {
    rig.create(1, 0);
    let taken = fill(&mut rig);
    assert!(taken > 50, "{taken}");
    assert_ne!(rig.handle.stats().space, 0);
    assert_eq!(rig.read(1, 1), Outcome::Body(vec![1; 400]));
    for seq in 2..10 {
        let token = rig.outputs.token();
        rig.run(Event::Delete { stream: StreamId(1), seq, token });
        assert_eq!(rig.outputs.take(token), Outcome::Acked(seq), "deletes go on");
    }
    rig.advance(Duration::from_millis(60));
    assert!(matches!(rig.publish(1, &[0; 400]), Outcome::Refused(_)), "still full");
    rig.run(Event::Purge { stream: StreamId(1), up_to: taken - 5 });
    for _ in 0..100 {
        rig.advance(Duration::from_millis(60));
    }
    assert_eq!(rig.publish(1, &[7; 400]), Outcome::Acked(taken + 1), "{:?}", rig.handle.stats());
    assert_eq!(rig.handle.stats().space, 0);
    assert_eq!(rig.handle.stats().failed, 0);
    assert_eq!(rig.read(1, taken), Outcome::Body(vec![taken as u8; 400]));
    rig
}

#[test]
fn a_full_medium_refuses_messages_until_space_is_freed() {
    let options = || LogOptions { reserve_bytes: None, ..tiny() };
    let disk = MemDisk::with_capacity(512 << 10);
    let rig = Rig::open(options(), Arc::new(disk.clone())).expect("opens");
    let streams = check_full(rig).core.machine().streams.clone();
    let rig = Rig::open(options(), Arc::new(disk)).expect("opens");
    assert_eq!(rig.core.machine().streams, streams);
    let memory = LogOptions { block_bytes: 64, sync: SyncPolicy::Never, ..options() };
    check_full(Rig::open(memory, Arc::new(RamDisk::new(512 << 10))).expect("opens"));
}

/// On a full medium compaction is tried many times a second: what keeps it from it is said once a minute, and again
/// once one was possible.
#[test]
fn a_compaction_that_cannot_be_done_is_told_now_and_then() {
    let said: Arc<Mutex<Vec<String>>> = Arc::default();
    let report = {
        let said = Arc::clone(&said);
        Reporter::new(move |text: &str| said.lock().unwrap().push(text.to_owned()))
    };
    let told = || said.lock().unwrap().iter().filter(|text| text.contains("put off")).count();
    let mut rig =
        Rig::open(LogOptions { report, ..tiny() }, Arc::new(MemDisk::with_capacity(1 << 30)))
            .expect("opens");
    rig.create(1, 3);
    let mut refused = 0;
    for (refuses, puts_off) in [(true, 2), (false, 2), (true, 4)] {
        rig.core.machine_mut().refuses_states = refuses;
        for n in 0..200 {
            rig.publish(1, &[n; 400]);
            rig.advance(Duration::from_millis(500));
        }
        assert_eq!(told(), puts_off, "{said:?}");
        let stats = rig.handle.stats();
        assert_eq!(stats.states_refused > refused + 2, refuses, "{stats:?}");
        refused = stats.states_refused;
    }
}

#[test]
fn a_full_medium_is_noticed_to_have_grown() {
    let disk = MemDisk::with_capacity(256 << 10);
    let options = LogOptions { reserve_bytes: None, ..tiny() };
    let mut rig = Rig::open(options, Arc::new(disk.clone())).expect("opens");
    rig.create(1, 0);
    let taken = fill(&mut rig);
    disk.set_capacity(1 << 20);
    rig.advance(Duration::from_millis(60));
    assert_eq!(rig.publish(1, b"more"), Outcome::Acked(taken + 1));
}

#[test]
fn threads_publish_read_and_compact_at_the_same_time() {
    let dir = TempDir::new();
    let options = LogOptions {
        dir: dir.0.clone(),
        segment_bytes: 256 << 10,
        first_segment_bytes: 64 << 10,
        tail_cache_bytes: 64 << 10,
        block_cache_bytes: 128 << 10,
        frame_bytes: 32 << 10,
        checkpoint_bytes: 512 << 10,
        reserve_bytes: Some(64 << 10),
        ..LogOptions::default()
    };
    let outputs = Outputs::default();
    let (core, _) = Log::open_local(options.clone(), Toy::new(outputs.clone())).expect("opens");
    let handle = core.spawn("stress").expect("spawns");
    let send = |event: Event| {
        let weight = event.weight();
        let mut event = event;
        while let Err(error) = handle.send(event, weight) {
            let SendError::Busy(back) = error else { panic!("closed") };
            event = back;
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    for (stream, max_messages) in [(1, 0), (2, 50), (3, 50)] {
        send(Event::Create { stream: StreamId(stream), max_messages });
    }
    let started = std::time::Instant::now();
    let mut token = 1_000_000;
    let mut published = 0;
    while started.elapsed() < Duration::from_millis(2500) {
        let publish = |stream| Event::Publish {
            stream: StreamId(stream),
            body: vec![stream as u8; 500],
            token: 0,
        };
        let mut events: Vec<_> = (0..20).map(|n| publish(2 + n % 2)).collect();
        events.push(publish(1));
        published += 1;
        // From the older half: the newest ones are not committed yet.
        if published > 500 {
            token += 1;
            let seq = token * 7919 % (published / 2) + 1;
            events.push(Event::Read { stream: StreamId(1), seq, token });
        }
        send(Event::Batch(events));
        std::thread::sleep(Duration::from_micros(300));
    }
    let read = token - 1_000_000;
    let answered = |token| outputs.get(token) != Outcome::Nothing;
    let began = std::time::Instant::now();
    // A read that waits for a file when the log is closed would not be answered.
    while !(1_000_001..=token).all(answered) && began.elapsed() < Duration::from_secs(120) {
        std::thread::sleep(Duration::from_millis(5));
    }
    handle.close().expect("closes");
    let stats = handle.stats();
    assert!(stats.compacted_segments > 0, "{stats:?}");
    assert!(stats.checkpoints > 1, "{stats:?}");
    assert_eq!((stats.damaged, stats.failed), (0, 0));
    let count = |outcome: &Outcome| {
        (1_000_001..=token).filter(|token| outputs.get(*token) == *outcome).count() as u64
    };
    let (found, missing) = (count(&Outcome::Body(vec![1; 500])), count(&Outcome::Missing));
    assert_eq!((found, missing), (read, 0), "every read is answered with its message");
    let (core, report) = Log::open_local(options, Toy::new(outputs)).expect("opens");
    assert!(report.clean && report.checkpoint.is_some() && report.frames == 0, "{report:?}");
    assert_eq!(core.machine().streams[&StreamId(1)].live.len() as u64, published);
    assert_eq!(core.machine().streams[&StreamId(2)].live.len(), 50);
}

#[test]
fn a_panic_of_the_machine_is_told_to_everybody() {
    let disk: Arc<dyn OwnableDisk> = Arc::new(MemDisk::default());
    let rig = Rig::open(tiny(), disk).expect("opens");
    let (outputs, handle) = (rig.outputs.clone(), rig.core.spawn("panics").expect("threads"));
    let token = outputs.token();
    let publish = Event::Publish { stream: StreamId(1), body: b"x".to_vec(), token };
    let create = Event::Create { stream: StreamId(1), max_messages: 0 };
    assert!(handle.send(Event::Batch(vec![create, publish, Event::Panic]), 64).is_ok());
    assert!(handle.close().is_err(), "it did not end well");
    assert!(matches!(outputs.take(token), Outcome::Failed(_)), "whoever waits is told");
    assert_eq!(handle.stats().failed, 1);
    let late = Event::Lazy { stream: StreamId(1) };
    assert!(matches!(handle.send(late, 64), Err(SendError::Closed(_))));
}

#[test]
fn a_sync_interval_is_kept_under_load() {
    let dir = TempDir::new();
    let disk: Arc<dyn OwnableDisk> = Arc::new(RealDisk::open(&dir.0).expect("temp dir"));
    let sync = SyncPolicy::Every(Duration::from_millis(10));
    let options = LogOptions { sync, queue_bytes: 1 << 20, ..LogOptions::default() };
    let outputs = Outputs::default();
    let (clock, entropy) = (SystemClock::default(), Box::new(SeededEntropy::new(1)));
    let opened = Log::open(options, disk, Arc::new(clock), entropy, Toy::new(outputs.clone()));
    let handle = opened.expect("opens").0.spawn("interval").expect("threads");
    let create = Event::Create { stream: StreamId(1), max_messages: 100 };
    assert!(handle.send(create, 64).is_ok());
    let begun = std::time::Instant::now();
    // Without the policy there would be none as long as there is always something to write.
    while handle.stats().syncs < 5 && begun.elapsed() < Duration::from_secs(120) {
        let body = vec![7; 10];
        let token = outputs.token();
        let _ = handle.send(Event::Publish { stream: StreamId(1), body, token }, 1 << 10);
    }
    let syncs = handle.stats().syncs;
    assert!(handle.close().is_ok());
    assert!(syncs >= 5, "only {syncs} syncs in two minutes");
}
