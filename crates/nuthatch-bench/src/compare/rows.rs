//! The rows of the comparison: which workload, how much of it, and which number decides.

use serde::Serialize;

use crate::compare::server::{Contender, Server};
use crate::driver::Driver;
use crate::harness::{BenchError, Target};
use crate::report::RunReport;
use crate::workload::consumer::AckMode;
use crate::workload::js_pub::JsPub;
use crate::workload::js_read::{JsRead, ReadMode};
use crate::workload::stream::StreamPlan;

/// Body size of the small-message rows in bytes.
pub const SMALL_BYTES: usize = 128;

/// A quick comparison does this part of the messages.
const QUICK_DIVISOR: u64 = 10;

/// Pull batch of the consuming row.
const PULL_BATCH: usize = 500;

/// The number of a row that decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Messages per second, more is better.
    MsgsPerS,
    /// Megabytes per second, more is better.
    MbPerS,
    /// Median ack latency in microseconds, less is better.
    P50Us,
}

impl Metric {
    /// Its unit for a table.
    pub fn unit(self) -> &'static str {
        match self {
            Self::MsgsPerS => "msgs/s",
            Self::MbPerS => "MB/s",
            Self::P50Us => "p50 µs",
        }
    }

    /// Its value in a run.
    pub fn of(self, run: &RunReport) -> Option<f64> {
        match self {
            Self::MsgsPerS => Some(run.msgs_per_s),
            Self::MbPerS => Some(run.mb_per_s),
            Self::P50Us => run.latency_us.as_ref().map(|latency| latency.p50),
        }
    }

    /// How many times better `ours` is than `theirs`.
    pub fn gain(self, ours: f64, theirs: f64) -> f64 {
        match self {
            Self::MsgsPerS | Self::MbPerS => ours / theirs,
            Self::P50Us => theirs / ours,
        }
    }
}

/// Work of a row.
#[derive(Debug, Clone, Copy)]
enum Work {
    Publish { size: usize, window: usize, clients: usize },
    Consume,
    Ordered,
}

/// A row.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Short name for `--rows`.
    pub key: &'static str,
    /// Name in the table.
    pub title: &'static str,
    /// The number that decides.
    pub metric: Metric,
    work: Work,
    /// Messages of a full run.
    msgs: u64,
    /// Messages where each publish waits for the disk by itself.
    slow_msgs: u64,
    /// Whether it is repeated by async-nats.
    pub by_async_nats: bool,
}

const fn publish(size: usize, window: usize, clients: usize) -> Work {
    Work::Publish { size, window, clients }
}

/// All rows, in the order of docs/benchmarks.md.
pub const ROWS: [Row; 9] = [
    Row {
        key: "async1",
        title: "async publish 128 B, 1 client, window 500",
        metric: Metric::MsgsPerS,
        work: publish(SMALL_BYTES, 500, 1),
        msgs: 1_000_000,
        slow_msgs: 50_000,
        by_async_nats: true,
    },
    Row {
        key: "async1-wide",
        title: "async publish 128 B, 1 client, window 4000",
        metric: Metric::MsgsPerS,
        work: publish(SMALL_BYTES, 4000, 1),
        msgs: 2_000_000,
        slow_msgs: 50_000,
        by_async_nats: false,
    },
    Row {
        key: "async4",
        title: "async publish 128 B, 4 clients, window 500",
        metric: Metric::MsgsPerS,
        work: publish(SMALL_BYTES, 500, 4),
        msgs: 2_000_000,
        slow_msgs: 50_000,
        by_async_nats: true,
    },
    Row {
        key: "sync",
        title: "synchronous publish 128 B",
        metric: Metric::P50Us,
        work: publish(SMALL_BYTES, 1, 1),
        msgs: 20_000,
        slow_msgs: 10_000,
        by_async_nats: true,
    },
    Row {
        key: "consume",
        title: "durable pull consumer, explicit ack, 128 B",
        metric: Metric::MsgsPerS,
        work: Work::Consume,
        msgs: 500_000,
        slow_msgs: 500_000,
        by_async_nats: true,
    },
    Row {
        key: "ordered",
        title: "ordered consumer, 128 B",
        metric: Metric::MsgsPerS,
        work: Work::Ordered,
        msgs: 1_000_000,
        slow_msgs: 1_000_000,
        by_async_nats: true,
    },
    Row {
        key: "64k",
        title: "publish 64 KiB, window 100",
        metric: Metric::MbPerS,
        work: publish(64 * 1024, 100, 1),
        msgs: 15_000,
        slow_msgs: 5_000,
        by_async_nats: false,
    },
    Row {
        key: "1m",
        title: "publish 1 MiB, window 16",
        metric: Metric::MbPerS,
        work: publish(1024 * 1024, 16, 1),
        msgs: 1_000,
        slow_msgs: 500,
        by_async_nats: false,
    },
    Row {
        key: "5m",
        title: "publish 5 MiB, window 8",
        metric: Metric::MbPerS,
        work: publish(5 * 1024 * 1024, 8, 1),
        msgs: 200,
        slow_msgs: 100,
        by_async_nats: false,
    },
];

/// The stream all rows use.
pub fn stream() -> StreamPlan {
    StreamPlan {
        name: "bench".into(),
        subject: "bench.js".into(),
        storage: "file".into(),
        create: true,
        purge: false,
        batches: false,
    }
}

impl Row {
    fn publishes(&self) -> bool {
        matches!(self.work, Work::Publish { .. })
    }

    fn messages(&self, contender: &Contender, quick: bool) -> u64 {
        let msgs = if contender.slow_publish { self.slow_msgs } else { self.msgs };
        if quick { (msgs / QUICK_DIVISOR).max(10) } else { msgs }
    }

    /// Runs the row once on a fresh server.
    ///
    /// # Errors
    /// When the server cannot be started or stops answering.
    pub fn run(
        &self,
        contender: &Contender,
        driver: Driver,
        base: &std::path::Path,
        quick: bool,
    ) -> Result<RunReport, BenchError> {
        let msgs = self.messages(contender, quick);
        if self.publishes() {
            let server = Server::start(contender, base)?;
            return self.work(msgs, &server.target()?, driver);
        }
        // What is read was written with the server's default setting, which is much faster for
        // some and does not matter for reading.
        let filling = Contender { sync_interval: None, ..contender.clone() };
        let server = Server::start(&filling, base)?;
        fill(msgs, &server.target()?)?;
        let server = server.restart(contender, false)?;
        self.work(msgs, &server.target()?, driver)
    }

    fn work(&self, msgs: u64, target: &Target, driver: Driver) -> Result<RunReport, BenchError> {
        match self.work {
            Work::Publish { size, window, clients } => {
                let workload = JsPub { stream: stream(), msgs, size, window, clients };
                driver.publish(&workload, target)
            }
            Work::Consume => driver.read(&read(ReadMode::Consume, msgs), target),
            Work::Ordered => driver.read(&read(ReadMode::OrderedPush, msgs), target),
        }
    }
}

/// Publishes `msgs` small messages.
///
/// # Errors
/// When one of them is refused, or the server stops answering.
pub fn fill(msgs: u64, target: &Target) -> Result<(), BenchError> {
    const WINDOW: usize = 4000;
    let workload = JsPub { stream: stream(), msgs, size: SMALL_BYTES, window: WINDOW, clients: 1 };
    match workload.run(target)?.first_error {
        Some(err) => Err(BenchError::Failed(format!("filling the stream failed: {err}"))),
        None => Ok(()),
    }
}

fn read(mode: ReadMode, msgs: u64) -> JsRead {
    JsRead {
        stream: StreamPlan { create: false, ..stream() },
        mode,
        ack: AckMode::Explicit,
        consumer: "bench".into(),
        msgs,
        batch: PULL_BATCH,
        max_ack_pending: 4 * PULL_BATCH as u64,
        clients: 1,
        fill: None,
    }
}
