//! Nanoseconds per record of the log's hot paths, one named loop each: `cargo bench -p nuthatch-log`.
//! An argument selects loops by a part of their name.

use nuthatch_log::{
    Cipher, IndexedMessage, Key, Keys, Log, LogAccess, LogCore, LogOptions, Lsn, Machine, Read,
    RecordKind, RecordRef, Seq, SnapshotError, StreamId, Timestamp, Urgency,
};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Appends messages without any thought, and reads them back.
struct Blunt {
    next: Vec<u64>,
    committed: Arc<AtomicU64>,
    body: Vec<u8>,
}

enum Event {
    /// So many messages, dealt out to so many streams.
    Publish { count: u64, streams: u64 },
    /// Reads a range of a stream's messages, in order.
    Read { stream: u32, from: u64, to: u64 },
}

impl Machine for Blunt {
    type Event = Event;

    fn step<L: LogAccess>(&mut self, event: Event, log: &mut L) {
        match event {
            Event::Publish { count, streams } => {
                for n in 0..count {
                    let stream = (n % streams) as u32 + 1;
                    let next = &mut self.next[stream as usize];
                    *next += 1;
                    let record = RecordRef {
                        kind: RecordKind::Message,
                        stream: StreamId(stream),
                        seq: Seq(*next),
                        timestamp: log.now(),
                        subject: b"orders.new.eu",
                        headers: b"",
                        body: &self.body,
                    };
                    log.append(&record, Urgency::Awaited, false).expect("there is room");
                }
            }
            Event::Read { stream, from, to } => {
                for seq in from..=to {
                    match log.read(StreamId(stream), Seq(seq)) {
                        Read::Ready(found) => drop(black_box(found.record.body.len())),
                        other => panic!("message {seq}: {other:?}"),
                    }
                }
            }
        }
    }

    fn committed<L: LogAccess>(&mut self, lsn: Lsn, _log: &mut L) {
        self.committed.store(lsn.0, Ordering::Release);
    }

    fn loaded<L: LogAccess>(&mut self, _stream: StreamId, _log: &mut L) {}
    fn next_deadline(&self) -> Option<Timestamp> {
        None
    }
    fn tick<L: LogAccess>(&mut self, _log: &mut L) {}
    fn turn_end(&mut self) {}
    fn before_seal<L: LogAccess>(&mut self, _log: &mut L) {}
    fn failed(&mut self, reason: &str) {
        panic!("{reason}");
    }
    fn restore(&mut self, _snapshot: &[u8]) -> Result<(), SnapshotError> {
        Ok(())
    }
    fn snapshot(&self, _out: &mut Vec<u8>) {}
    fn apply_state(&mut self, _record: &RecordRef<'_>) {}
    fn is_gone(&self, _stream: StreamId) -> bool {
        false
    }
    fn reindex(&mut self, message: &IndexedMessage<'_>) {
        self.next[message.stream.0 as usize] = message.seq.0;
    }
    fn apply(&mut self, record: &RecordRef<'_>) {
        self.next[record.stream.0 as usize] = record.seq.0;
    }
    fn recovered<L: LogAccess>(&mut self, _log: &mut L) {}
    fn is_live(&self, _stream: StreamId, _seq: Seq) -> bool {
        true
    }
    fn log_states<L: LogAccess>(
        &mut self,
        _streams: &[StreamId],
        _log: &mut L,
    ) -> Result<(), nuthatch_log::StatesError> {
        Ok(())
    }
    fn is_news(&self, _: &RecordRef<'_>) -> bool {
        false
    }

    fn live_weight(&self, _: StreamId, _: Seq, _: Seq) -> u64 {
        0
    }
}

const STREAMS: usize = 1001;

fn machine(body: usize) -> (Blunt, Arc<AtomicU64>) {
    let committed = Arc::new(AtomicU64::new(0));
    let blunt =
        Blunt { next: vec![0; STREAMS], committed: Arc::clone(&committed), body: vec![7; body] };
    (blunt, committed)
}

fn report(name: &str, records: u64, bytes: u64, took: Duration) {
    let seconds = took.as_secs_f64();
    println!(
        "{name:<44} {:>8.1} ns/record {:>8.2} M/s {:>8.0} MB/s",
        seconds * 1e9 / records as f64,
        records as f64 / seconds / 1e6,
        bytes as f64 / seconds / 1e6
    );
}

fn settle(core: &mut LogCore<Blunt>) {
    while core.turn().progress {}
}

/// One thread, a disk in memory: CPU time of the log itself.
fn in_memory(name: &str, body: usize, per_event: u64, streams: u64, total: u64) {
    let (blunt, _) = machine(body);
    let (mut core, _) = Log::open_memory(LogOptions::memory(), 8 << 30, blunt).expect("opens");
    let handle = core.handle();
    let start = cpu_seconds();
    for _ in 0..total / per_event {
        let event = Event::Publish { count: per_event, streams };
        assert!(handle.send(event, 1).is_ok());
        settle(&mut core);
    }
    let bytes = total * body as u64;
    report(name, total, bytes, Duration::from_secs_f64(cpu_seconds() - start));
}

fn reads(name: &str, streams: u64) {
    let (blunt, _) = machine(128);
    let options = LogOptions { tail_cache_bytes: 1 << 30, ..LogOptions::memory() };
    let (mut core, _) = Log::open_memory(options, 8 << 30, blunt).expect("opens");
    let handle = core.handle();
    let total = 1_000_000;
    assert!(handle.send(Event::Publish { count: total, streams }, 1).is_ok());
    settle(&mut core);
    let each = total / streams;
    let start = cpu_seconds();
    for stream in 1..=streams {
        assert!(handle.send(Event::Read { stream: stream as u32, from: 1, to: each }, 1).is_ok());
    }
    settle(&mut core);
    report(name, total, total * 128, Duration::from_secs_f64(cpu_seconds() - start));
}

/// All threads, files, a sync per frame: what comes out in the end.
fn on_files(name: &str, body: usize, per_event: u64, total: u64, keys: &Keys) {
    let dir = std::env::temp_dir().join(format!("nuthatch-bench-{}", std::process::id()));
    let (blunt, _) = machine(body);
    let options = LogOptions { keys: keys.clone(), ..LogOptions::local(&dir) };
    let (core, _) = Log::open_local(options.clone(), blunt).expect("opens");
    let handle = core.spawn("bench").expect("spawns");
    let weight = per_event as usize * (body + 48);
    let cpu = cpu_seconds();
    let start = Instant::now();
    for _ in 0..total / per_event {
        while handle.send(Event::Publish { count: per_event, streams: 1 }, weight).is_err() {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    while handle.stats().records < total {
        std::thread::sleep(Duration::from_micros(50));
    }
    let took = start.elapsed();
    report(name, total, total * body as u64, took);
    let stats = handle.stats();
    println!(
        "    {} frames, mean sync {:.0} us, {:.0} ns CPU per record, written {:.2} x",
        stats.frames,
        stats.sync_latency.total_nanos as f64 / stats.syncs.max(1) as f64 / 1e3,
        (cpu_seconds() - cpu) * 1e9 / total as f64,
        stats.written_bytes as f64 / stats.frame_bytes as f64
    );
    handle.close().expect("closes");
    let start = Instant::now();
    let (core, recovered) = Log::open_local(options, machine(body).0).expect("opens");
    println!("    reopened in {:?} ({} indexed)", start.elapsed(), recovered.indexed);
    drop(core);
    let _ = std::fs::remove_dir_all(&dir);
}

fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

fn main() {
    let chosen = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let run = |name: &str, bench: &dyn Fn(&str)| {
        if chosen.as_deref().is_none_or(|part| name.contains(part)) {
            bench(name);
        }
    };
    run("memory/append-128B-500-per-event", &|n| in_memory(n, 128, 500, 1, 4_000_000));
    run("memory/append-128B-1000-streams", &|n| in_memory(n, 128, 1000, 1000, 4_000_000));
    run("memory/append-128B-one-per-frame", &|n| in_memory(n, 128, 1, 1, 400_000));
    run("memory/append-64KiB", &|n| in_memory(n, 65_536, 1, 1, 20_000));
    run("memory/read-tail-1-stream", &|n| reads(n, 1));
    run("memory/read-tail-1000-streams", &|n| reads(n, 1000));
    let key = |cipher| Keys { current: Key::of_text(b"a key of this"), cipher, ..Keys::default() };
    let (chacha, aes) = (key(Cipher::ChaCha20Poly1305), key(Cipher::Aes256Gcm));
    for (with, keys) in [("", &Keys::default()), ("-chacha", &chacha), ("-aes", &aes)] {
        let run = |name: &str, body, per_event, total| {
            run(&format!("{name}{with}"), &|n| on_files(n, body, per_event, total, keys));
        };
        run("files/append-128B-500-per-event", 128, 500, 4_000_000);
        run("files/append-1KiB-500-per-event", 1024, 500, 1_000_000);
        run("files/append-128B-one-per-event", 128, 1, 100_000);
        run("files/append-64KiB", 65_536, 4, 16_000);
        run("files/append-1MiB", 1 << 20, 1, 1_000);
    }
}
