//! A log in a bucket behind a real S3 API over HTTP, signatures included, served in this process.

#[path = "../../nuthatch-log/tests/common/mod.rs"]
mod common;
#[path = "common/s3.rs"]
mod store;

use common::{Outcome, Rig};
use nuthatch_log::env::MemDisk;
use nuthatch_log::{LogOptions, OpenError};
use nuthatch_object::{
    Bucket, BucketOptions, ObjectDisk, ObjectDiskOptions, RequestKind, Step, TierOptions,
    TieredDisk,
};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use store::{S3, SECRET};

impl S3 {
    fn bucket(&self, secret: &str) -> Arc<Bucket> {
        let retry_for = Duration::from_secs(5);
        let options = BucketOptions { retry_for, ..BucketOptions::default() };
        store::bucket_with(self.address, secret, "team/a", options)
    }

    fn disk(&self) -> io::Result<ObjectDisk> {
        let options = ObjectDiskOptions { part_bytes: 100_000, ..ObjectDiskOptions::default() };
        ObjectDisk::open(self.bucket(SECRET), options)
    }

    fn rig(&self) -> Result<(Rig, Arc<Bucket>), OpenError> {
        let disk = self.disk().expect("the store can be used");
        let bucket = Arc::clone(disk.bucket());
        Ok((Rig::open(options(), Arc::new(disk))?, bucket))
    }
}

fn options() -> LogOptions {
    LogOptions { reserve_bytes: Some(0), ..LogOptions::object() }
}

fn body(n: u64, len: usize) -> Vec<u8> {
    let mut body = n.to_le_bytes().to_vec();
    body.resize(8 + len, n as u8);
    body
}

#[test]
fn a_log_survives_its_server_and_moves_to_the_next() {
    let s3 = S3::start("survives");
    let mut published = 0;
    for round in 0..4u64 {
        let (mut rig, _) = s3.rig().expect("opens");
        if round == 0 {
            rig.create(1, 0);
        }
        for n in 1..=published {
            assert_eq!(rig.read(1, n), Outcome::Body(body(n, 1000)), "round {round}");
        }
        for _ in 0..10 {
            published += 1;
            assert_eq!(rig.publish(1, &body(published, 1000)), Outcome::Acked(published));
        }
        // Several objects for one frame.
        published += 1;
        let large = body(published, 1000);
        assert_eq!(rig.publish(1, &large), Outcome::Acked(published));
        if round % 2 == 0 {
            rig.core.close().expect("closes");
        }
    }
}

#[test]
fn a_frame_of_many_objects_is_read_back() {
    let s3 = S3::start("parts");
    let (mut rig, bucket) = s3.rig().expect("opens");
    rig.create(1, 0);
    let before = bucket.counters().snapshot().of(RequestKind::Put);
    let large = body(1, 950_000);
    assert_eq!(rig.publish(1, &large), Outcome::Acked(1));
    let puts = bucket.counters().snapshot().of(RequestKind::Put) - before;
    assert_eq!(puts, 10, "objects of 100,000 bytes");
    drop(rig);
    let (mut rig, _) = s3.rig().expect("opens");
    assert_eq!(rig.read(1, 1), Outcome::Body(large));
}

#[test]
fn the_second_server_ends_the_first() {
    let s3 = S3::start("two");
    let (mut first, _) = s3.rig().expect("opens");
    first.create(1, 0);
    assert_eq!(first.publish(1, b"one"), Outcome::Acked(1));
    let (mut second, _) = s3.rig().expect("opens");
    let late = first.publish(1, b"late");
    let Outcome::Failed(why) = late else { panic!("acknowledged by nobody's owner: {late:?}") };
    assert!(why.contains("another server has taken over"), "{why}");
    assert!(!why.contains(SECRET));
    assert_eq!(second.publish(1, b"two"), Outcome::Acked(2));
    assert_eq!(second.read(1, 2), Outcome::Body(b"two".to_vec()));
}

/// What a log costs a bucket is a number of requests for each frame, not for each stream.
#[test]
fn streams_share_requests() {
    let s3 = S3::start("shared");
    let (mut rig, bucket) = s3.rig().expect("opens");
    for stream in 1..=100 {
        rig.create(stream, 0);
    }
    let before = bucket.counters().snapshot();
    let events = (1..=100).map(|stream| common::Event::Publish {
        stream: nuthatch_log::StreamId(stream),
        body: body(1, 100),
        token: u64::from(stream) + 10_000,
    });
    rig.run(common::Event::Batch(events.collect()));
    let after = bucket.counters().snapshot();
    let of = |kind| after.of(kind) - before.of(kind);
    assert_eq!((of(RequestKind::Put), of(RequestKind::Head)), (1, 1), "one frame, one look");
}

#[test]
fn what_cannot_be_used_is_said() {
    let s3 = S3::start("wrong");
    let text = |bucket: Arc<Bucket>| {
        let error = ObjectDisk::open(bucket, ObjectDiskOptions::default()).err();
        error.map(|error| error.to_string()).unwrap_or_default()
    };
    let wrong = text(s3.bucket("wrong"));
    assert!(wrong.contains("s3://logs/team/a/default cannot be used"), "{wrong}");
    assert!(!wrong.contains(SECRET), "{wrong}");
}

#[test]
fn segments_of_a_local_log_move_and_are_read_back() {
    let s3 = S3::start("tier");
    let local = MemDisk::default();
    let open = |local: &MemDisk| {
        let options = TierOptions {
            local_max_bytes: Some(1),
            part_bytes: 5_000,
            cache_bytes: 0,
            ..TierOptions::default()
        };
        let tier = TieredDisk::open(Arc::new(local.clone()), s3.bucket(SECRET), options);
        let tier = Arc::new(tier.expect("opens"));
        let disk = Arc::clone(&tier) as Arc<dyn nuthatch_log::OwnableDisk>;
        (Rig::open(common::tiny(), disk).expect("opens"), tier)
    };
    let (mut rig, tier) = open(&local);
    rig.create(1, 0);
    for n in 1..=100 {
        assert_eq!(rig.publish(1, &body(n, 500)), Outcome::Acked(n));
    }
    let now = std::time::SystemTime::UNIX_EPOCH;
    while !matches!(tier.step(now).expect("moves"), Step::Idle(_)) {}
    assert!(tier.status().moved_segments >= 3, "{:?}", tier.status());
    drop((rig, tier));
    let (mut rig, _tier) = open(&local.survive());
    for n in 1..=100 {
        assert_eq!(rig.read(1, n), Outcome::Body(body(n, 500)));
    }
}

/// A server that is told to stop does not wait ten minutes for a store that is gone.
#[test]
fn the_retry_budget_for_a_store_that_is_gone_can_be_cut_short() {
    let s3 = S3::start("gone");
    let bucket = s3.bucket(SECRET);
    bucket.set_retry_for(Duration::from_secs(600));
    drop(s3);
    let (done, ended) = std::sync::mpsc::sync_channel(1);
    let waiting = Arc::clone(&bucket);
    std::thread::spawn(move || done.send(waiting.put("key", "value".into()).is_err()));
    while bucket.counters().snapshot().retries == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    bucket.set_retry_for(Duration::ZERO);
    assert_eq!(ended.recv_timeout(Duration::from_secs(60)), Ok(true));
}
