//! One system under one load: what it stored, how long that took, what it cost.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::harness::BenchError;
use crate::meter;
use crate::payload::Payload;
use crate::peers::{Peer, Running};
use crate::process;
use crate::queue::{self, Queue, QueueError, QueueSpec, Sender};
use crate::report::{Latencies, LatencySummary};
use crate::requests::{self, Requests};

/// Part of the time before a measurement that is not measured.
const WARMUP_PART: u32 = 4;

/// Name of the queue.
const QUEUE: &str = "bench";

/// The load.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    /// Streams that messages are spread over in turn.
    pub(super) streams: u64,
    /// Connections at a time.
    pub(super) senders: usize,
    /// Messages that each of them sends before it waits for all of them.
    pub(super) batch: usize,
    /// Bytes of a body.
    pub(super) bytes: usize,
    /// How long.
    pub(super) span: Duration,
    /// How long opening the streams may take.
    pub(super) setup_limit: Duration,
}

/// Results.
#[derive(Debug, Clone)]
pub(super) struct Found {
    /// Streams that were opened within the limit.
    pub(super) streams: u64,
    /// Messages within the time.
    pub(super) messages: u64,
    /// Bytes of their bodies.
    pub(super) bytes: u64,
    /// The time.
    pub(super) seconds: f64,
    /// Latency of a batch in microseconds.
    pub(super) batch_us: Option<LatencySummary>,
    /// CPU time of the system without its store, of its store, and of the client, in seconds.
    pub(super) server_cpu_s: f64,
    pub(super) store_cpu_s: f64,
    pub(super) client_cpu_s: f64,
    /// Requests to the store.
    pub(super) requests: Requests,
}

impl Found {
    pub(super) fn per_s(&self) -> f64 {
        self.messages as f64 / self.seconds
    }

    pub(super) fn mb_per_s(&self) -> f64 {
        self.bytes as f64 / self.seconds / 1e6
    }

    /// CPU seconds of the system and its client for each byte; the store's own not counted.
    pub(super) fn own_cpu_s_per_byte(&self) -> f64 {
        (self.server_cpu_s + self.client_cpu_s) / self.bytes.max(1) as f64
    }

    pub(super) fn per_gb(&self, cpu_s: f64) -> f64 {
        cpu_s * 1e9 / self.bytes.max(1) as f64
    }
}

/// The processes of a system, told apart from those of its store.
struct Processes {
    server: Vec<u32>,
    store: Vec<u32>,
    /// The store's port.
    store_port: u16,
}

impl Processes {
    fn of(running: &Running) -> Result<Self, BenchError> {
        let mut all: Vec<u32> = running.pids().into_iter().flat_map(meter::family_pids).collect();
        all.sort_unstable();
        all.dedup();
        let port = |pid: &u32| minio_port(*pid);
        let Some(store_port) = all.iter().find_map(port) else {
            let text = format!("{} has no MinIO beside it", running.peer.name);
            return Err(BenchError::Failed(text));
        };
        let (store, server) = all.into_iter().partition(|pid| minio_port(*pid).is_some());
        Ok(Self { server, store, store_port })
    }

    /// CPU seconds of both.
    fn cpu_s(&self) -> (f64, f64) {
        let sum = |pids: &[u32]| {
            let used = pids.iter().filter_map(|pid| process::usage(*pid));
            used.map(|usage| usage.cpu.as_secs_f64()).sum()
        };
        (sum(&self.server), sum(&self.store))
    }

    fn moment(&self) -> Result<Moment, BenchError> {
        let requests = requests::requests(self.store_port, requests::MINIO_METRICS)?;
        let (server_cpu_s, store_cpu_s) = self.cpu_s();
        let client_cpu_s = process::own_cpu().as_secs_f64();
        Ok(Moment { at: Instant::now(), server_cpu_s, store_cpu_s, client_cpu_s, requests })
    }
}

/// The port that a process serves as a MinIO, from its command line.
fn minio_port(pid: u32) -> Option<u16> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let mut words = line.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let program = words.next()?;
    let is_minio = Path::new(&*program).file_name().is_some_and(|name| name == "minio");
    words.find(|word| word == "--address")?;
    let address = words.next()?;
    is_minio.then(|| address.rsplit(':').next()?.parse().ok()).flatten()
}

/// Counters at one moment.
struct Moment {
    at: Instant,
    server_cpu_s: f64,
    store_cpu_s: f64,
    client_cpu_s: f64,
    requests: Requests,
}

/// Starts a system below `base`, loads it, ends it.
///
/// # Errors
/// When it does not start or fails.
pub(super) fn run(peer: &'static Peer, base: &Path, load: &Load) -> Result<Found, BenchError> {
    let running = Running::start(peer, base)?;
    let queue = queue::open(&spec(&running, load))?;
    queue.prepare()?;
    let senders: Result<Vec<_>, QueueError> =
        (0..load.senders).map(|index| queue.sender(index)).collect();
    drive(&Processes::of(&running)?, queue.as_ref(), senders?, load)
}

fn spec(running: &Running, load: &Load) -> QueueSpec {
    let mut spec = running.spec(QUEUE);
    if load.streams > 1 {
        spec.settings.insert("streams".into(), load.streams.to_string());
        let limit = load.setup_limit.as_secs().to_string();
        spec.settings.insert("setup_limit_s".into(), limit);
    }
    spec
}

fn drive(
    processes: &Processes,
    queue: &dyn Queue,
    senders: Vec<Box<dyn Sender>>,
    load: &Load,
) -> Result<Found, BenchError> {
    let started = Instant::now();
    let from = started + load.span / WARMUP_PART;
    let until = from + load.span;
    let messages = &AtomicU64::new(0);
    std::thread::scope(|scope| {
        let work = |sender| scope.spawn(move || send(sender, load, (from, until), messages));
        let threads: Vec<_> = senders.into_iter().map(work).collect();
        std::thread::sleep(from.saturating_duration_since(Instant::now()));
        let counted_from = messages.load(Ordering::Relaxed);
        let before = processes.moment();
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
        let counted = messages.load(Ordering::Relaxed) - counted_from;
        let after = processes.moment();
        let mut latencies = Latencies::default();
        for thread in threads {
            latencies.merge(&thread.join().map_err(|_| BenchError::Panicked)??);
        }
        let (before, after) = (before?, after?);
        Ok(Found {
            streams: queue.streams(),
            messages: counted,
            bytes: counted * load.bytes as u64,
            seconds: after.at.duration_since(before.at).as_secs_f64(),
            batch_us: latencies.summary(),
            server_cpu_s: after.server_cpu_s - before.server_cpu_s,
            store_cpu_s: after.store_cpu_s - before.store_cpu_s,
            client_cpu_s: after.client_cpu_s - before.client_cpu_s,
            requests: after.requests.since(&before.requests),
        })
    })
}

/// Sends until the end; latencies of what began within the time.
fn send(
    mut sender: Box<dyn Sender>,
    load: &Load,
    (from, until): (Instant, Instant),
    messages: &AtomicU64,
) -> Result<Latencies, QueueError> {
    let payload = Payload::new(load.bytes.max(1), 11);
    let mut latencies = Latencies::default();
    let mut sent = 0;
    while Instant::now() < until {
        let bodies: Vec<&[u8]> =
            (0..load.batch as u64).map(|index| payload.get(sent + index)).collect();
        let before = Instant::now();
        sender.send(&bodies)?;
        if before >= from {
            latencies.record(before.elapsed());
        }
        sent += load.batch as u64;
        messages.fetch_add(load.batch as u64, Ordering::Relaxed);
    }
    Ok(latencies)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_those_of_a_byte() {
        let found = Found {
            streams: 1,
            messages: 1_000,
            bytes: 1_000_000_000,
            seconds: 2.0,
            batch_us: None,
            server_cpu_s: 0.5,
            store_cpu_s: 4.0,
            client_cpu_s: 0.25,
            requests: Requests::default(),
        };
        assert!((found.per_s() - 500.0).abs() < 1e-9 && (found.mb_per_s() - 500.0).abs() < 1e-9);
        assert!((found.own_cpu_s_per_byte() - 0.75e-9).abs() < 1e-15);
        assert!((found.per_gb(found.store_cpu_s) - 4.0).abs() < 1e-9);
    }

    #[test]
    fn this_process_is_no_store() {
        assert_eq!(minio_port(std::process::id()), None);
    }
}
