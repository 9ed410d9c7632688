//! `bench latency` (seed 003): one way from publisher to subscriber, one message at a time, for
//! the payload sizes and message counts of the NATS Java client's latency benchmark.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::harness::{BenchError, Target};
use crate::payload::Payload;
use crate::queue::{self, QueueError, QueueSpec};
use crate::report::Latencies;
use nuthatch_client::{Client, TransportError};

/// Messages sent before each size, not measured; at most as many as are measured.
const WARMUP_MESSAGES: usize = 500;

/// A message that has not arrived by then is lost.
const ARRIVAL_LIMIT: Duration = Duration::from_secs(30);

/// The table of the seed: instruction, messages, payload bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum TestSize {
    /// 5000 messages of 0, 8, 32, 256, 512, 1024, 4096, 8192 bytes
    #[default]
    None,
    /// 5 messages of 0, 8, 32, 256, 512 bytes
    Nano,
    /// 50 messages of 0, 8, 32, 256, 512, 1024 bytes
    Tiny,
    /// 250 messages of 0, 8, 32, 256, 512, 1024 bytes
    Small,
    /// 2500 messages of 0, 8, 32, 256, 512, 1024, 4096, 8192 bytes
    Med,
    /// 25000 messages of 0, 8, 32, 256, 512, 1024, 4096, 8192 bytes
    Large,
}

impl TestSize {
    /// Messages for each payload size.
    pub fn messages(self) -> usize {
        match self {
            Self::Nano => 5,
            Self::Tiny => 50,
            Self::Small => 250,
            Self::Med => 2500,
            Self::None => 5000,
            Self::Large => 25_000,
        }
    }

    /// Payload sizes in bytes.
    pub fn payloads(self) -> &'static [usize] {
        const ALL: &[usize] = &[0, 8, 32, 256, 512, 1024, 4096, 8192];
        match self {
            Self::Nano => &ALL[..5],
            Self::Tiny | Self::Small => &ALL[..6],
            Self::Med | Self::None | Self::Large => ALL,
        }
    }
}

/// How the messages of a latency test follow each other, and how long it may take.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pacing {
    /// Messages per second: latencies then count from when a message was due (open loop). `None`
    /// sends the next message when the last one has arrived (closed loop).
    pub rate: Option<f64>,
    /// A payload size that takes longer ends with the messages it has; so does its warm-up.
    pub column_limit: Option<Duration>,
}

/// All latencies of one payload size, in the order of the messages.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Column {
    /// Payload size in bytes.
    pub payload_bytes: usize,
    /// One way, in nanoseconds.
    pub ns: Vec<u64>,
}

/// The numbers of the seed's table, and two percentiles more. All in microseconds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ColumnSummary {
    /// Payload size in bytes.
    pub payload_bytes: usize,
    /// Messages.
    pub count: usize,
    /// Shortest.
    pub min: f64,
    /// Median.
    pub median: f64,
    /// 99 % are not longer.
    pub p99: f64,
    /// 99.9 % are not longer.
    pub p999: f64,
    /// Longest.
    pub max: f64,
    /// Standard deviation.
    pub std_dev: f64,
}

impl Column {
    /// Exact numbers, from the messages themselves.
    pub fn summary(&self) -> ColumnSummary {
        let mut sorted = self.ns.clone();
        sorted.sort_unstable();
        let count = sorted.len();
        let us = |ns: u64| ns as f64 / 1000.0;
        let at = |q: f64| {
            let rank = (q * count as f64).ceil() as usize;
            sorted.get(rank.clamp(1, count.max(1)) - 1).copied().map_or(0.0, us)
        };
        let mean = sorted.iter().map(|ns| us(*ns)).sum::<f64>() / count.max(1) as f64;
        let square = |ns: &u64| (us(*ns) - mean).powi(2);
        let variance = sorted.iter().map(square).sum::<f64>() / count.max(1) as f64;
        ColumnSummary {
            payload_bytes: self.payload_bytes,
            count,
            min: at(0.0),
            median: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max: at(1.0),
            std_dev: variance.sqrt(),
        }
    }

    /// The latencies as a histogram.
    pub fn latencies(&self) -> Latencies {
        let mut latencies = Latencies::default();
        for ns in &self.ns {
            latencies.record(Duration::from_nanos(*ns));
        }
        latencies
    }
}

/// Runs core publish and subscribe for all payload sizes.
///
/// # Errors
/// When the server cannot be reached, or a message does not arrive.
pub fn core(target: &Target, size: TestSize, pacing: Pacing) -> Result<Vec<Column>, BenchError> {
    let subject = "bench.latency";
    let mut publisher = target.connect()?;
    let mut subscriber = target.connect()?;
    subscriber.subscribe(subject, "")?;
    subscriber.round_trip(target.timeout)?;
    let mut one = |body: &[u8]| -> Result<Instant, BenchError> {
        publisher.writer.publish(subject.as_bytes(), b"", b"", body)?;
        publisher.writer.flush()?;
        receive_one(&mut subscriber, body.len())?;
        Ok(Instant::now())
    };
    size.payloads().iter().map(|bytes| column(*bytes, size, pacing, &mut one)).collect()
}

fn receive_one(subscriber: &mut Client, length: usize) -> Result<(), TransportError> {
    let mut got = usize::MAX;
    subscriber.pump(ARRIVAL_LIMIT, |message, _| {
        got = message.payload.len();
        Ok(std::ops::ControlFlow::Break(()))
    })?;
    match got == length {
        true => Ok(()),
        false => Err(TransportError::Server(format!("{length} bytes sent, {got} received"))),
    }
}

/// Runs a durable queue for all payload sizes: one sender, one receiver, one message at a time.
/// The receiver waits in a thread of its own, since a send returns only when the message is safe.
///
/// # Errors
/// When the queue fails, or a message does not arrive.
pub fn durable(
    spec: &QueueSpec,
    size: TestSize,
    pacing: Pacing,
) -> Result<Vec<Column>, BenchError> {
    let queue = queue::open(spec)?;
    queue.prepare()?;
    let mut sender = queue.sender(0)?;
    let mut receiver = queue.receiver(0)?;
    let (arrived, arrivals) = std::sync::mpsc::sync_channel::<Result<Instant, QueueError>>(1);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let mut at = None;
                let wait = Duration::from_millis(100);
                let result = receiver
                    .receive(1, wait, &mut |_| at = Some(Instant::now()))
                    .and_then(|count| if count > 0 { receiver.ack() } else { Ok(()) });
                let report = match (result, at) {
                    (Err(err), _) => Err(err),
                    (Ok(()), Some(at)) => Ok(at),
                    (Ok(()), None) => continue,
                };
                if arrived.send(report).is_err() {
                    return;
                }
            }
        });
        let mut one = |body: &[u8]| -> Result<Instant, BenchError> {
            // Some systems refuse an empty message; one byte stands for it.
            sender.send(&[if body.is_empty() { b"-" } else { body }])?;
            let arrived = arrivals.recv_timeout(ARRIVAL_LIMIT).map_err(|_| {
                BenchError::Failed(format!("a message of {} bytes did not arrive", body.len()))
            })?;
            Ok(arrived?)
        };
        let result =
            size.payloads().iter().map(|bytes| column(*bytes, size, pacing, &mut one)).collect();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        drop(arrivals);
        result
    })
}

/// Sends message after message with `one`, which returns when it has arrived.
fn column(
    bytes: usize,
    size: TestSize,
    pacing: Pacing,
    one: &mut dyn FnMut(&[u8]) -> Result<Instant, BenchError>,
) -> Result<Column, BenchError> {
    let payload = Payload::new(bytes, 3);
    let mut pace = Pace::new(pacing.rate);
    let mut numbers = 0..;
    let mut phase = |messages: usize| -> Result<Vec<u64>, BenchError> {
        let mut ns = Vec::with_capacity(messages);
        let started = Instant::now();
        let late = || pacing.column_limit.is_some_and(|limit| started.elapsed() > limit);
        while ns.len() < messages && !late() {
            let due = pace.next();
            let arrived = one(payload.get(numbers.next().unwrap_or_default()))?;
            ns.push(arrived.saturating_duration_since(due).as_nanos() as u64);
        }
        Ok(ns)
    };
    phase(WARMUP_MESSAGES.min(size.messages()))?;
    Ok(Column { payload_bytes: bytes, ns: phase(size.messages())? })
}

/// Says when the next message is due: now, or by a set rate.
struct Pace {
    interval: Option<Duration>,
    due: Instant,
}

impl Pace {
    fn new(rate: Option<f64>) -> Self {
        let interval = rate.map(|rate| Duration::from_secs_f64(1.0 / rate.max(0.001)));
        Self { interval, due: Instant::now() }
    }

    /// Waits until the next message is due and returns that moment, which may have passed.
    fn next(&mut self) -> Instant {
        let Some(interval) = self.interval else { return Instant::now() };
        self.due += interval;
        let early = self.due.saturating_duration_since(Instant::now());
        if !early.is_zero() {
            std::thread::sleep(early);
        }
        self.due
    }
}

/// The file of the seed: a column per payload size, a row per message, nanoseconds. As there, each
/// column is sorted.
pub fn csv(columns: &[Column]) -> String {
    let heads: Vec<String> =
        columns.iter().map(|column| format!("{} bytes", column.payload_bytes)).collect();
    let sorted: Vec<Vec<u64>> = columns
        .iter()
        .map(|column| {
            let mut ns = column.ns.clone();
            ns.sort_unstable();
            ns
        })
        .collect();
    let mut out = heads.join(",") + "\n";
    for row in 0..sorted.iter().map(Vec::len).max().unwrap_or(0) {
        let cells: Vec<String> = sorted
            .iter()
            .map(|column| column.get(row).map_or(String::new(), u64::to_string))
            .collect();
        out += &cells.join(",");
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_the_seed() {
        let row = |size: TestSize| (size.messages(), size.payloads().len(), size.payloads().last());
        assert_eq!(row(TestSize::None), (5000, 8, Some(&8192)));
        assert_eq!(row(TestSize::Nano), (5, 5, Some(&512)));
        assert_eq!(row(TestSize::Tiny), (50, 6, Some(&1024)));
        assert_eq!(row(TestSize::Small), (250, 6, Some(&1024)));
        assert_eq!(row(TestSize::Med), (2500, 8, Some(&8192)));
        assert_eq!(row(TestSize::Large), (25_000, 8, Some(&8192)));
    }

    #[test]
    fn the_csv_of_the_seed() {
        let column = |payload_bytes, ns: &[u64]| Column { payload_bytes, ns: ns.to_vec() };
        let columns = [column(0, &[35_900, 35_800]), column(8, &[35_500, 35_700])];
        assert_eq!(csv(&columns), "0 bytes,8 bytes\n35800,35500\n35900,35700\n");
    }

    #[test]
    fn exact_percentiles() {
        let ns = (1..=1000).rev().map(|us| us * 1000).collect();
        let summary = Column { payload_bytes: 0, ns }.summary();
        assert_eq!((summary.min, summary.median, summary.max), (1.0, 500.0, 1000.0));
        assert_eq!((summary.p99, summary.p999), (990.0, 999.0));
        assert!((summary.std_dev - 288.67).abs() < 0.01, "{}", summary.std_dev);
    }

    #[test]
    fn a_slow_size_ends_at_its_limit_with_what_it_has() {
        let mut one = |_: &[u8]| {
            std::thread::sleep(Duration::from_millis(20));
            Ok(Instant::now())
        };
        let limit = Duration::from_millis(100);
        let pacing = Pacing { rate: None, column_limit: Some(limit) };
        let column = column(8, TestSize::Large, pacing, &mut one).unwrap();
        assert!((1..=6).contains(&column.ns.len()), "{}", column.ns.len());
        assert!(column.ns.iter().all(|ns| *ns >= 20_000_000), "{:?}", column.ns);
    }

    #[test]
    fn a_set_rate_counts_from_when_a_message_was_due() {
        let mut pace = Pace::new(Some(1000.0));
        let first = pace.next();
        std::thread::sleep(Duration::from_millis(20));
        let second = pace.next();
        assert_eq!(second - first, Duration::from_millis(1));
        assert!(second.elapsed() >= Duration::from_millis(18));
    }
}
