//! What a store takes from a client that does nothing but put objects: with as much CPU burnt for
//! each byte as a system and its client need, which a store on the same cores notices.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use nuthatch_object::{Bucket, BucketOptions, open_url_with};

use crate::harness::BenchError;
use crate::payload::Payload;
use crate::peers::minio::Minio;
use crate::process;
use crate::report::{Latencies, LatencySummary};

/// Sizes of objects, and how many at a time, that are tried: the best counts. Nuthatch puts up to
/// three of 16 MiB, or more of smaller ones.
const SHAPES: [(usize, usize); 4] = [(4 << 20, 4), (8 << 20, 3), (16 << 20, 1), (16 << 20, 4)];

/// Size of the object whose latency a single message is compared with: its frame is no larger.
const SINGLE_BYTES: usize = 4 << 10;

/// Objects that are overwritten in turn by each thread: enough that a store cannot keep one in hand.
const OBJECTS: u64 = 16;

/// Part of the time before a measurement that is not measured.
const WARMUP_PART: u32 = 8;

/// How long CPU is burnt before the clock is asked.
const BURN: Duration = Duration::from_micros(200);

/// Bucket of the MinIO.
const BUCKET: &str = "raw";

/// Plain puts.
#[derive(Debug, Clone, Copy)]
pub(super) struct RawPuts {
    /// CPU seconds burnt for each byte, those of the puts themselves included.
    pub(super) cpu_s_per_byte: f64,
    /// Length of each try.
    pub(super) span: Duration,
}

/// The best of the tries.
#[derive(Debug, Clone)]
pub(super) struct RawRate {
    /// How it was reached.
    pub(super) what: String,
    /// 10^6 bytes in a second.
    pub(super) mb_per_s: f64,
    /// CPU seconds burnt for each GB.
    pub(super) cpu_s_per_gb: f64,
    /// CPU seconds of the store for each GB.
    pub(super) store_cpu_s_per_gb: f64,
}

impl RawPuts {
    /// Tries each shape on a MinIO of its own.
    pub(super) fn best(&self, base: &Path) -> Result<RawRate, BenchError> {
        let mut best: Option<RawRate> = None;
        for (bytes, parallel) in SHAPES {
            let minio = Minio::start(base, BUCKET)?;
            let rate = self.measure(&minio, bytes, parallel)?;
            if best.as_ref().is_none_or(|best| best.mb_per_s < rate.mb_per_s) {
                best = Some(rate);
            }
        }
        best.ok_or_else(|| BenchError::Failed("nothing was tried".into()))
    }

    fn measure(&self, minio: &Minio, bytes: usize, parallel: usize) -> Result<RawRate, BenchError> {
        let bucket = &open(minio)?;
        let body = Bytes::copy_from_slice(Payload::new(bytes, 3).get(0));
        let run = RawRun {
            stored: AtomicU64::new(0),
            over: AtomicBool::new(false),
            cpu_from: process::own_cpu(),
            cpu_s_per_byte: self.cpu_s_per_byte,
            store: process::find_listener(minio.port),
        };
        let (run, body) = (&run, &body);
        std::thread::scope(|scope| {
            let burner = scope.spawn(|| run.burn());
            let put = |thread| scope.spawn(move || run.put(bucket, thread, body));
            let threads: Vec<_> = (0..parallel).map(put).collect();
            std::thread::sleep(self.span / WARMUP_PART);
            let before = run.now();
            std::thread::sleep(self.span);
            let after = run.now();
            run.over.store(true, Ordering::Relaxed);
            for thread in threads {
                thread.join().map_err(|_| BenchError::Panicked)??;
            }
            burner.join().map_err(|_| BenchError::Panicked)?;
            let stored = (after.1 - before.1) as f64;
            let seconds = after.0.duration_since(before.0).as_secs_f64();
            let per_gb = |from: Duration, to: Duration| {
                to.saturating_sub(from).as_secs_f64() * 1e9 / stored.max(1.0)
            };
            Ok(RawRate {
                what: format!("{} MiB, {parallel} at a time", bytes >> 20),
                mb_per_s: stored / seconds / 1e6,
                cpu_s_per_gb: per_gb(before.2, after.2),
                store_cpu_s_per_gb: per_gb(before.3, after.3),
            })
        })
    }
}

/// One try.
struct RawRun {
    stored: AtomicU64,
    over: AtomicBool,
    cpu_from: Duration,
    cpu_s_per_byte: f64,
    /// The store's process.
    store: Option<u32>,
}

impl RawRun {
    /// The time, bytes stored until now, and the CPU time of this process and of the store.
    fn now(&self) -> (Instant, u64, Duration, Duration) {
        let store = self.store.and_then(process::usage).map_or(Duration::ZERO, |usage| usage.cpu);
        (Instant::now(), self.stored.load(Ordering::Relaxed), process::own_cpu(), store)
    }

    /// CPU seconds that should have been burnt for `bytes` and have not been.
    fn owed_s(&self, bytes: u64) -> f64 {
        let burnt = process::own_cpu().saturating_sub(self.cpu_from).as_secs_f64();
        bytes as f64 * self.cpu_s_per_byte - burnt
    }

    /// Burns what is owed for what was stored, until the end.
    fn burn(&self) {
        while !self.over.load(Ordering::Relaxed) {
            if self.owed_s(self.stored.load(Ordering::Relaxed)) <= 0.0 {
                std::thread::sleep(BURN);
                continue;
            }
            let started = Instant::now();
            while started.elapsed() < BURN {
                std::hint::spin_loop();
            }
        }
    }

    /// Puts one object after the other; the next one not before the CPU for the last is burnt, as a
    /// message cannot be stored before it was received.
    fn put(&self, bucket: &Bucket, thread: usize, body: &Bytes) -> Result<(), BenchError> {
        let mut number = 0;
        while !self.over.load(Ordering::Relaxed) {
            let key = format!("object-{thread}-{}", number % OBJECTS);
            bucket.put(&key, body.clone().into()).map_err(failed)?;
            number += 1;
            let stored = self.stored.fetch_add(body.len() as u64, Ordering::Relaxed);
            while self.owed_s(stored) > 0.0 && !self.over.load(Ordering::Relaxed) {
                std::thread::sleep(BURN);
            }
        }
        Ok(())
    }
}

fn failed(error: impl std::fmt::Display) -> BenchError {
    BenchError::Failed(format!("cannot put objects: {error}"))
}

fn open(minio: &Minio) -> Result<Bucket, BenchError> {
    let env = minio.env();
    let settings: Vec<(&str, &str)> =
        env.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let url = format!("s3://{BUCKET}");
    open_url_with(&url, "limits", &settings, BucketOptions::default()).map_err(failed)
}

/// Latency of small puts, one at a time, in microseconds.
pub(super) fn single(base: &Path, span: Duration) -> Result<LatencySummary, BenchError> {
    let minio = Minio::start(base, BUCKET)?;
    let bucket = open(&minio)?;
    let body = Bytes::copy_from_slice(Payload::new(SINGLE_BYTES, 3).get(0));
    let (started, mut latencies, mut number) = (Instant::now(), Latencies::default(), 0_u64);
    while started.elapsed() < span + span / WARMUP_PART {
        let before = Instant::now();
        bucket.put(&format!("single-{number:08}"), body.clone().into()).map_err(failed)?;
        number += 1;
        if started.elapsed() > span / WARMUP_PART {
            latencies.record(before.elapsed());
        }
    }
    latencies.summary().ok_or_else(|| failed("none within the time"))
}
