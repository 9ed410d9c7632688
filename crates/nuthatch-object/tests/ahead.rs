//! Several frames on their way to a bucket at a time: one of them takes long while those behind it
//! are stored. Then the server dies, or another takes over, or it was only slow. Whatever was
//! acknowledged is readable for the next owner, in order, and no sequence is given out twice; the
//! same checks must fail when the fence is broken.

#[path = "../../nuthatch-log/tests/common/mod.rs"]
mod common;
#[path = "../../../tests/seeds.rs"]
mod seeds;
#[path = "common/toxic.rs"]
mod toxic;

use async_trait::async_trait;
use common::{Event, Outcome, Outputs, Rig, tiny};
use futures_util::TryStreamExt;
use futures_util::stream::BoxStream;
use nuthatch_log::env::SeededEntropy;
use nuthatch_log::{LogHandle, LogOptions, SendError, StreamId, SyncPolicy};
use nuthatch_object::{Bucket, BucketOptions, ObjectDisk, ObjectDiskOptions};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};
use toxic::{Moment, ToxicStore, Toxics};

const ROUNDS: u64 = 60;

/// The stream of these tests.
const STREAM: StreamId = StreamId(1);

/// Batches that are sent without waiting, and messages of each.
const BATCHES: u64 = 60;
const BATCH: u64 = 5;

/// How long the chosen put is held up. Nothing depends on it but how many frames overtake it.
const HOLD: Duration = Duration::from_millis(20);

/// How long an answer is waited for at most.
const TIMEOUT: Duration = Duration::from_secs(120);

/// What is done while the chosen put is held up.
type Meanwhile = Box<dyn FnOnce() + Send>;

/// What comes of the put that was held up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    /// It is carried out.
    Served,
    /// Nothing has an answer any more.
    Dead,
    /// It is refused, for good. Nothing else is.
    Refused,
}

/// A store that holds up one put of a frame.
struct HoldingStore {
    below: ToxicStore,
    puts: AtomicU64,
    /// The so-many-th is held up.
    at: u64,
    meanwhile: Mutex<Option<Meanwhile>>,
    then: Then,
    dead: AtomicBool,
    /// What was refused.
    refused: Mutex<Option<(Path, PutPayload)>>,
    /// Changes of the catalog after that.
    published: AtomicU64,
}

impl HoldingStore {
    fn of(inner: &Arc<InMemory>, at: u64, then: Then, hide_fences: bool) -> Self {
        let toxics = Toxics { seed: at, fail_percent: 0, die_at: None, hide_fences };
        Self {
            below: ToxicStore::new(Arc::clone(inner), toxics),
            puts: AtomicU64::new(0),
            at,
            meanwhile: Mutex::default(),
            then,
            dead: AtomicBool::new(false),
            refused: Mutex::default(),
            published: AtomicU64::new(0),
        }
    }

    fn alive(&self) -> Result<()> {
        let (path, source) = (String::new(), "the process is dead".into());
        let dead = self.dead.load(Ordering::SeqCst);
        if dead { Err(Error::PermissionDenied { path, source }) } else { Ok(()) }
    }

    async fn hold(&self) {
        tokio::time::sleep(HOLD).await;
        let meanwhile = self.meanwhile.lock().take();
        if let Some(run) = meanwhile {
            // It blocks.
            let ran = tokio::task::spawn_blocking(run).await;
            ran.expect("nothing panics in it");
        }
        self.dead.store(self.then == Then::Dead, Ordering::SeqCst);
    }

    fn refuse(&self, location: &Path, payload: PutPayload) -> Error {
        *self.refused.lock() = Some((location.clone(), payload));
        let (path, source) = (location.to_string(), "not this one".into());
        Error::PermissionDenied { path, source }
    }
}

impl fmt::Display for HoldingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("holding")
    }
}

impl fmt::Debug for HoldingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("holding")
    }
}

#[async_trait]
impl ObjectStore for HoldingStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let of_segment = location.as_ref().contains(".seg/");
        if of_segment && self.puts.fetch_add(1, Ordering::SeqCst) + 1 == self.at {
            self.hold().await;
            if self.then != Then::Served {
                return Err(self.refuse(location, payload));
            }
        }
        self.alive()?;
        if location.as_ref().contains("/catalog/") && self.refused.lock().is_some() {
            self.published.fetch_add(1, Ordering::SeqCst);
        }
        self.below.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.below.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.alive()?;
        self.below.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.below.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.below.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.below.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.below.copy_opts(from, to, options).await
    }
}

fn options() -> LogOptions {
    let (ahead_bytes, in_flight_bytes) = (300, 12 * 1024);
    LogOptions { sync: SyncPolicy::Always, block_bytes: 64, ahead_bytes, in_flight_bytes, ..tiny() }
}

fn open(store: Arc<dyn ObjectStore>, seed: u64) -> Rig {
    try_open(store, seed).unwrap_or_else(|why| panic!("it opens: {why}"))
}

fn try_open(store: Arc<dyn ObjectStore>, seed: u64) -> Result<Rig, String> {
    let bucket_options = BucketOptions { retry_first_ms: 0, ..BucketOptions::default() };
    let bucket = Bucket::new(store, Path::from("p/log"), "bucket".to_owned(), bucket_options);
    // Small objects, so that some frames take several.
    let disk_options = ObjectDiskOptions { seed, part_bytes: 700, ..ObjectDiskOptions::default() };
    let disk = ObjectDisk::open(Arc::new(bucket.expect("a runtime")), disk_options);
    let disk = Arc::new(disk.map_err(|error| error.to_string())?);
    Rig::open_seeded(options(), disk, seed).map_err(|error| error.to_string())
}

/// What was acknowledged, by sequence.
type Acked = BTreeMap<u64, Vec<u8>>;

fn send(handle: &LogHandle<Event>, mut event: Event) {
    let weight = event.weight();
    while let Err(error) = handle.send(event, weight) {
        let SendError::Busy(back) = error else { panic!("the log is open: {error}") };
        event = back;
        let (done, room) = sync_channel(1);
        handle.wait_for_room(move || {
            // Nobody waits any more if there was room all along.
            let _ = done.send(());
        });
        room.recv_timeout(TIMEOUT).expect("there will be room");
    }
}

fn answer(outputs: &Outputs, token: u64) -> Outcome {
    let since = Instant::now();
    loop {
        match outputs.take(token) {
            Outcome::Nothing => assert!(since.elapsed() < TIMEOUT, "{token} has no answer"),
            outcome => return outcome,
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Publishes on threads, without waiting in between; what was acknowledged.
fn work(rig: Rig, name: u8, chance: &mut SeededEntropy) -> Acked {
    let Rig { core, handle, outputs, .. } = rig;
    let created = core.machine().streams.contains_key(&STREAM);
    core.spawn("ahead").expect("threads");
    if !created {
        send(&handle, Event::Create { stream: STREAM, max_messages: 0 });
    }
    let mut sent = Vec::new();
    for batch in 0..BATCHES {
        let mut publish = |index| {
            let (token, mut body) = (outputs.token(), vec![name, batch as u8, index as u8]);
            body.resize(3 + chance.below(300) as usize, index as u8);
            sent.push((token, body.clone()));
            Event::Publish { stream: STREAM, body, token }
        };
        send(&handle, Event::Batch((0..BATCH).map(&mut publish).collect()));
    }
    let mut acked = Acked::new();
    let mut last = 0;
    for (token, body) in sent {
        if let Outcome::Acked(seq) = answer(&outputs, token) {
            assert!(seq > last, "acknowledged in order: {seq} after {last}");
            last = seq;
            acked.insert(seq, body);
        }
    }
    // A log that has failed cannot be closed cleanly.
    let _ = handle.close();
    acked
}

/// What is missing or different for the next owner.
fn check(rig: &mut Rig, acked: &Acked) -> Result<(), String> {
    let streams = &rig.core.machine().streams;
    let last = streams.get(&STREAM).map_or(0, |state| state.last);
    for (seq, body) in acked {
        if *seq > last {
            return Err(format!("{seq} is lost, {last} is the last"));
        }
        if rig.read(STREAM.0, *seq) != Outcome::Body(body.clone()) {
            return Err(format!("{seq} is not what was acknowledged"));
        }
    }
    Ok(())
}

fn merge(into: &mut Acked, other: Acked) -> Result<(), String> {
    for (seq, body) in other {
        if into.insert(seq, body.clone()).is_some_and(|before| before != body) {
            return Err(format!("sequence {seq} was given out twice"));
        }
    }
    Ok(())
}

/// One put is held up, and then the server dies. How many frames had overtaken it.
fn death(seed: u64) -> Result<u64, String> {
    let inner = Arc::new(InMemory::new());
    let mut chance = SeededEntropy::new(seed);
    let store = HoldingStore::of(&inner, 3 + chance.below(60), Then::Dead, false);
    let mut acked = work(open(Arc::new(store), seed), 1, &mut chance);
    let mut next = open(Arc::clone(&inner) as Arc<dyn ObjectStore>, seed ^ 7 << 40);
    check(&mut next, &acked)?;
    let torn = next.report.torn_frames;
    // And the one after it, which sees what the cut has left.
    merge(&mut acked, work(next, 2, &mut chance))?;
    check(&mut open(inner, seed ^ 9 << 40), &acked)?;
    Ok(torn.saturating_sub(1))
}

/// One put is held up while another server takes over and works; then the first goes on.
fn takeover(seed: u64, hide_fences: bool) -> Result<(), String> {
    let inner = Arc::new(InMemory::new());
    let mut chance = SeededEntropy::new(seed);
    let store = Arc::new(HoldingStore::of(&inner, 3 + chance.below(60), Then::Served, hide_fences));
    let (send, receive) = sync_channel(1);
    let (shared, mut theirs) = (Arc::clone(&inner), SeededEntropy::new(seed ^ 5));
    *store.meanwhile.lock() = Some(Box::new(move || {
        let rig = open(shared, seed ^ 5 << 40);
        let _ = send.send(work(rig, 2, &mut theirs));
    }));
    let mut acked = work(open(Arc::clone(&store) as Arc<dyn ObjectStore>, seed), 1, &mut chance);
    if let Ok(second) = receive.try_recv() {
        merge(&mut acked, second)?;
    }
    check(&mut open(inner, seed ^ 9 << 40), &acked)
}

#[test]
fn what_overtook_a_frame_that_was_lost_counts_for_nothing() {
    let overtaken: u64 = seeds::seeds(0..ROUNDS)
        .map(|seed| death(seed).unwrap_or_else(|why| panic!("seed {seed}: {why}")))
        .sum();
    assert!(overtaken > 0, "no frame was overtaken");
}

#[test]
fn an_owner_with_frames_under_way_is_replaced() {
    for seed in seeds::seeds(0..ROUNDS) {
        takeover(seed, false).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

#[test]
fn the_harness_notices_a_broken_fence() {
    let failures = (0..ROUNDS / 2).filter(|seed| takeover(*seed, true).is_err()).count();
    assert!(failures > 2, "only {failures} takeovers lost anything");
}

/// Nothing is committed before what precedes it, however long that takes.
#[test]
fn a_slow_put_loses_nothing() {
    for seed in seeds::seeds(0..ROUNDS / 4) {
        let inner = Arc::new(InMemory::new());
        let mut chance = SeededEntropy::new(seed);
        let store = HoldingStore::of(&inner, 3 + chance.below(60), Then::Served, false);
        let acked = work(open(Arc::new(store), seed), 1, &mut chance);
        assert_eq!(acked.len() as u64, BATCHES * BATCH, "seed {seed}");
        check(&mut open(inner, seed ^ 9 << 40), &acked).expect("all of it is there");
    }
}

/// Stores what its sender has given up.
fn arrive(inner: &InMemory, location: &Path, payload: PutPayload) {
    block_on(inner.put(location, payload)).expect("it has room");
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(work)
}

/// One put is refused while frames behind it are on their way, and a segment perhaps waits for them
/// to be ended. What was refused arrives in the end all the same.
#[test]
fn nothing_is_written_behind_a_frame_that_was_refused() {
    for seed in seeds::seeds(0..ROUNDS) {
        let inner = Arc::new(InMemory::new());
        let mut chance = SeededEntropy::new(seed);
        let at = 3 + chance.below(60);
        let store = Arc::new(HoldingStore::of(&inner, at, Then::Refused, false));
        let acked = work(open(Arc::clone(&store) as Arc<dyn ObjectStore>, seed), 1, &mut chance);
        let published = store.published.load(Ordering::SeqCst);
        assert_eq!(published, 0, "seed {seed}: the log went on");
        if let Some((location, payload)) = store.refused.lock().take() {
            arrive(&inner, &location, payload);
        }
        check(&mut open(inner, seed ^ 9 << 40), &acked).unwrap_or_else(|why| panic!("{why}"));
    }
}

/// The server dies, and so does the next one, at any of the changes that it makes to cut off what
/// overtook a frame: the first one of the log, or a later one. Then that frame may arrive yet.
#[test]
fn a_death_while_what_overtook_a_frame_is_cut_off() {
    for (at, seed) in (2..6).flat_map(|at| (0..4).map(move |seed| (at, seed))) {
        let inner = Arc::new(InMemory::new());
        let store = Arc::new(HoldingStore::of(&inner, at, Then::Dead, false));
        let first = open(Arc::clone(&store) as Arc<dyn ObjectStore>, seed);
        let acked = work(first, 1, &mut SeededEntropy::new(seed));
        let (location, payload) = store.refused.lock().take().expect("a put was held up");
        for change in 1.. {
            let left = Arc::new(inner.fork());
            let Some(moment) = death_at_start(&left, change, seed) else { break };
            if change % 2 == seed / 2 {
                arrive(&left, &location, payload.clone());
            }
            let next = try_open(left, seed ^ 9 << 40).map_err(|why| format!("refuses: {why}"));
            next.and_then(|mut next| check(&mut next, &acked))
                .unwrap_or_else(|why| panic!("put {at}, seed {seed}, {moment:?} {change}: {why}"));
        }
    }
}

/// An owner that is replaced while it recovers may store what a file consists of when the file is gone
/// already.
#[test]
fn a_manifest_of_a_file_that_is_gone_holds_nobody_up() {
    let (inner, acked, manifest) =
        (3..60).find_map(cut_at).expect("something overtook one of them");
    let name = manifest.parts().nth(3).expect("a file").as_ref().to_owned();
    let gone = manifest.as_ref().replace(&name, "0000000000000001-00000000000000009999.seg");
    let gone = Path::from(gone);
    block_on(inner.copy(&manifest, &gone)).expect("it is there");
    check(&mut open(Arc::clone(&inner) as Arc<dyn ObjectStore>, 3), &acked).expect("all is there");
    assert!(!keys(&inner).contains(&gone), "nobody needs it");
}

/// A log whose so-many-th change was lost and whose next owner cut off what had overtaken it, what was
/// acknowledged, and the manifest of the cut. `None` when nothing had overtaken it: how many frames are
/// under way is up to the threads.
fn cut_at(at: u64) -> Option<(Arc<InMemory>, Acked, Path)> {
    let inner = Arc::new(InMemory::new());
    let store = HoldingStore::of(&inner, at, Then::Dead, false);
    let acked = work(open(Arc::new(store), 1), 1, &mut SeededEntropy::new(1));
    drop(open(Arc::clone(&inner) as Arc<dyn ObjectStore>, 2));
    let manifest = keys(&inner).into_iter().find(|key| key.as_ref().contains("/manifest."))?;
    Some((inner, acked, manifest))
}

fn keys(inner: &InMemory) -> Vec<Path> {
    let listed = block_on(inner.list(None).try_collect::<Vec<_>>()).expect("it lists");
    listed.into_iter().map(|meta| meta.location).collect()
}

/// Opens the log and dies at the so-many-th change; in the middle of what, if it came to that.
fn death_at_start(left: &Arc<InMemory>, change: u64, seed: u64) -> Option<Moment> {
    let toxics = Toxics { seed, fail_percent: 0, die_at: Some(change), hide_fences: false };
    let dying = Arc::new(ToxicStore::new(Arc::clone(left), toxics));
    drop(try_open(Arc::clone(&dying) as Arc<dyn ObjectStore>, seed ^ 7 << 40));
    dying.died_at()
}
