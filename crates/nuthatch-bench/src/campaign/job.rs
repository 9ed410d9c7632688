//! One measurement of a campaign: start a system, do one work, end it.

use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::ingest;
use super::outcome::Outcome;
use super::plan::{Work, mq_variant};
use crate::harness::{BenchError, Target};
use crate::meter::{Meter, Readings};
use crate::mq::processes::{self, RunPlan, Setting};
use crate::mq::result::MqResult;
use crate::peers::{Peer, Running};
use crate::process;
use crate::report::{Latencies, RawLimit};
use crate::workbench::cli::best_limit;
use crate::workbench::latency::{self, Column, Pacing};
use crate::workbench::log;
use crate::workbench::partitions::{self, Partitions};
use crate::workbench::pubsub;
use nuthatch_client::ConnectOptions;

/// Limit for single requests of the NATS workloads.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Name of the queue; a table of PostgreSQL must be able to have it.
const QUEUE: &str = "bench";

/// Outcomes by the row they belong to.
pub type Outcomes = Vec<(String, Outcome)>;

/// Starts a system below `base`, does the work, and ends it. `raw` is what the machine itself does.
///
/// # Errors
/// When the system does not start, fails, or takes longer than `limit`.
pub fn run(
    peer: &'static Peer,
    work: &Work,
    base: &Path,
    limit: Duration,
    raw: &[RawLimit],
) -> Result<Outcomes, BenchError> {
    if let Work::Ingest(rows) = work {
        return ingest::run(peer, *rows, base, limit);
    }
    let server = Running::start(peer, base)?;
    let watch = Watchdog::start(server.pid(), limit);
    let result = work_on(&server, work, raw);
    match watch.finish() {
        true => Err(BenchError::TooLong(limit)),
        false => result,
    }
}

fn work_on(server: &Running, work: &Work, raw: &[RawLimit]) -> Result<Outcomes, BenchError> {
    let meter = Meter::start(server.pids());
    match work {
        Work::CoreLatency(size) => {
            let found = latency::core(&target(server)?, *size, Pacing::default())?;
            Ok(columns(&found, size.messages()))
        }
        Work::DurableLatency(size, limit) => {
            let pacing = Pacing { column_limit: *limit, ..Pacing::default() };
            let found = latency::durable(&server.spec(QUEUE), *size, pacing)?;
            Ok(columns(&found, size.messages()))
        }
        Work::PubSub(shape, operations) => pub_sub(server, *shape, *operations, meter),
        Work::Partitions(plan) => Ok(phases(&partitions::run(&target(server)?, *plan)?)),
        Work::Log(sizes, span) => {
            log_rows(server, sizes, *span, best_limit(raw, server.peer.on_objects))
        }
        Work::Mq(setting, plan) => mq(server, setting, plan, meter),
        Work::Ingest(_) => unreachable!("it starts its systems itself"),
    }
}

fn target(server: &Running) -> Result<Target, BenchError> {
    let options = ConnectOptions::new(&server.url)?;
    Ok(Target { options, server_pid: Some(server.pid()), timeout: REQUEST_TIMEOUT, watched: None })
}

/// Kills a server that takes too long, so that the work on it fails.
struct Watchdog {
    stop: mpsc::Sender<()>,
    thread: thread::JoinHandle<bool>,
}

impl Watchdog {
    fn start(pid: u32, limit: Duration) -> Self {
        let (stop, stopped) = mpsc::channel();
        let thread = thread::spawn(move || {
            let late = stopped.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
            if let (true, Ok(pid)) = (late, libc::pid_t::try_from(pid)) {
                // SAFETY: a plain system call; the server is ended only after this thread.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
            late
        });
        Self { stop, thread }
    }

    /// Ends the watch; says whether the limit was passed.
    fn finish(self) -> bool {
        // The thread may have ended at its limit.
        let _ = self.stop.send(());
        self.thread.join().unwrap_or(false)
    }
}

/// What a part of a run cost.
struct Cost<'a> {
    readings: &'a Readings,
    from: Instant,
    to: Instant,
    /// CPU time of the clients in seconds.
    client_cpu_s: f64,
    messages: u64,
}

/// Adds CPU per message of both sides, and memory.
fn add_cost(outcome: &mut Outcome, cost: &Cost<'_>) {
    let used = cost.readings.between(cost.from, cost.to);
    let per_message =
        |seconds: f64| (cost.messages > 0).then(|| seconds * 1e6 / cost.messages as f64);
    outcome.set("server µs CPU/msg", per_message(used.cpu_s));
    outcome.set("client µs CPU/msg", per_message(cost.client_cpu_s));
    outcome.set("server CPU s", Some(used.cpu_s));
    outcome.set("server peak memory MB", Some(used.peak_memory_bytes as f64 / 1e6));
}

fn columns(columns: &[Column], planned: usize) -> Outcomes {
    let outcome = |column: &Column| {
        let s = column.summary();
        let mut outcome = Outcome { detail: json(&s), ..Outcome::default() };
        if s.count < planned {
            outcome.faults = format!("only {} messages in the time it was given", s.count);
        }
        for (name, value) in [
            ("min µs", s.min),
            ("p50 µs", s.median),
            ("p99 µs", s.p99),
            ("p99.9 µs", s.p999),
            ("max µs", s.max),
            ("std dev µs", s.std_dev),
        ] {
            outcome.set(name, Some(value));
        }
        outcome.curves.insert("one way".into(), column.latencies().pairs());
        (format!("{planned} messages of {} bytes", s.payload_bytes), outcome)
    };
    columns.iter().map(outcome).collect()
}

fn pub_sub(
    server: &Running,
    shape: pubsub::Shape,
    operations: usize,
    meter: Meter,
) -> Result<Outcomes, BenchError> {
    let mut began = (Instant::now(), process::own_cpu());
    let begun = || began = (Instant::now(), process::own_cpu());
    let result = pubsub::run(&server.spec(QUEUE), shape, operations, begun)?;
    let to = Instant::now();
    let client_cpu_s = process::own_cpu().saturating_sub(began.1).as_secs_f64();
    let readings = meter.finish();
    let messages = (result.messages * operations) as u64;
    let seconds = result.seconds_per_op();
    let mut outcome = Outcome { detail: json(&result), ..Outcome::default() };
    outcome.set("cost s/op", Some(seconds));
    outcome.set("msgs/s", Some(result.messages as f64 / seconds));
    outcome.set("MB/s", Some((result.messages * shape.bytes) as f64 / seconds / 1e6));
    outcome.set("op count", Some(operations as f64));
    add_cost(
        &mut outcome,
        &Cost { readings: &readings, from: began.0, to, client_cpu_s, messages },
    );
    outcome.set("storage MB", Some(server.disk_bytes() as f64 / 1e6));
    if result.reordered > 0 {
        outcome.faults = format!("{} out of order", result.reordered);
    }
    Ok(vec![(shape.name.to_owned(), outcome)])
}

fn phases(result: &Partitions) -> Outcomes {
    let words = crate::workbench::cli::mapping_words(result.mapping);
    let outcome = |phase: &partitions::Phase| {
        let mut outcome = Outcome { detail: json(phase), ..Outcome::default() };
        let [min, avg, max, std_dev] = phase.spread();
        outcome.set("msgs/s", Some(phase.per_s));
        outcome.set("publisher min", Some(min));
        outcome.set("publisher avg", Some(avg));
        outcome.set("publisher max", Some(max));
        outcome.set("publisher stddev", Some(std_dev));
        outcome.set("ack p50 µs", phase.ack_us.as_ref().map(|l| l.p50));
        outcome.set("ack p99 µs", phase.ack_us.as_ref().map(|l| l.p99));
        for (partition, count) in phase.streams.iter().enumerate() {
            outcome.set(&format!("events-{partition}"), Some(*count as f64));
        }
        outcome.faults = match &phase.first_error {
            Some(error) => format!("{} errors: {error}; {words}", phase.errors),
            None => words.to_owned(),
        };
        (phase.name.clone(), outcome)
    };
    result.phases.iter().map(outcome).collect()
}

fn log_rows(
    server: &Running,
    sizes: &[usize],
    span: Duration,
    limit: Option<f64>,
) -> Result<Outcomes, BenchError> {
    let rows = log::run(&server.spec(QUEUE), sizes, span, None, || {})?;
    let body_bytes: u64 = rows.iter().map(|row| row.body_bytes).sum();
    let disk_bytes = server.disk_bytes() as f64;
    let outcome = |row: &log::LogRow| {
        let mut outcome = Outcome { detail: json(row), ..Outcome::default() };
        outcome.set("msgs/s", Some(row.per_s));
        outcome.set("MB/s", Some(row.mb_per_s));
        outcome.set("% of its storage's limit", limit.map(|limit| row.mb_per_s * 100.0 / limit));
        let batch = row.batch_us.as_ref();
        outcome.set("batch p50 ms", batch.map(|l| l.p50 / 1000.0));
        outcome.set("batch p99 ms", batch.map(|l| l.p99 / 1000.0));
        let single = row.single_us.as_ref();
        outcome.set("single p50 µs", single.map(|l| l.p50));
        outcome.set("single p99 µs", single.map(|l| l.p99));
        let ratio = disk_bytes / body_bytes.max(1) as f64;
        outcome.set("disk bytes per body byte, all sizes", Some(ratio));
        (format!("{} B, batches of {}", row.bytes, row.batch), outcome)
    };
    Ok(rows.iter().map(outcome).collect())
}

fn mq(
    server: &Running,
    setting: &Setting,
    plan: &RunPlan,
    meter: Meter,
) -> Result<Outcomes, BenchError> {
    let mut spec = server.spec(QUEUE);
    // A consumer group of Kafka has no use for more receivers than partitions.
    let partitions = spec.settings.get("partitions").and_then(|text| text.parse().ok());
    if partitions.is_some_and(|count: usize| count < setting.all_receivers()) {
        spec.settings.insert("partitions".into(), setting.all_receivers().to_string());
    }
    let (nodes, schedule) = processes::run(None, &spec, setting, plan)?;
    let result = MqResult::of(&nodes);
    let readings = meter.finish();
    let mut outcome = mq_outcome(&result)?;
    let (from, to) = (instant_of(schedule.first_ns()), instant_of(schedule.end_ns()));
    let client_cpu_s = result.client_cpu_us_per_msg * result.messages as f64 / 1e6;
    let messages = result.messages;
    add_cost(&mut outcome, &Cost { readings: &readings, from, to, client_cpu_s, messages });
    outcome.set("storage MB", Some(server.disk_bytes() as f64 / 1e6));
    Ok(vec![(mq_variant(setting, plan), outcome)])
}

/// A run in which a node failed is a failed run, whatever the others counted.
///
/// # Errors
/// The first failure of a node.
pub fn mq_outcome(result: &MqResult) -> Result<Outcome, BenchError> {
    if let Some(error) = &result.error {
        return Err(BenchError::Failed(error.clone()));
    }
    let mut outcome = Outcome { detail: json(result), ..Outcome::default() };
    outcome.set("send msgs/s", Some(result.send_per_s));
    outcome.set("receive msgs/s", Some(result.receive_per_s));
    outcome.set("processing p95 ms", result.processing_p95_ms);
    outcome.set("send p95 ms", result.send_p95_ms);
    let pairs = |latencies: &Latencies| latencies.pairs();
    outcome.curves.insert("processing".into(), pairs(&result.curves.processing));
    outcome.curves.insert("send".into(), pairs(&result.curves.send));
    outcome.faults = match result.receive_per_s > 0.0 {
        true => result.faults(),
        false => "nothing was received within the windows".into(),
    };
    Ok(outcome)
}

/// The moment of a time since 1970 on the monotonic clock.
fn instant_of(unix_ns: u64) -> Instant {
    let now_ns = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let ago = Duration::from_nanos((now_ns.as_nanos() as u64).saturating_sub(unix_ns));
    Instant::now().checked_sub(ago).unwrap_or_else(Instant::now)
}

fn json<T: serde::Serialize>(value: &T) -> serde_json::Value {
    serde_json::to_value(value).unwrap_or_default()
}
