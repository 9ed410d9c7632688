//! `bench log` (seed 002): one node, one client, one stream; throughput and latency beside the
//! measured limit of the disk itself, and the part of it that was reached.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::harness::BenchError;
use crate::payload::Payload;
use crate::queue::{self, QueueSpec};
use crate::report::{Latencies, LatencySummary};
use crate::requests::Requests;

/// A batch has at most so many messages and bytes; at least one message.
const BATCH_MESSAGES: usize = 1000;
const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// Part of the time before each measurement that is not measured.
const WARMUP_PART: u32 = 5;

/// One body size.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LogRow {
    /// Bytes of a body.
    pub bytes: usize,
    /// Messages of a batch.
    pub batch: usize,
    /// Messages per second with batches, each awaited before the next.
    pub per_s: f64,
    /// The same in MB (10^6 bytes) of bodies per second.
    pub mb_per_s: f64,
    /// Latency of a batch in microseconds.
    pub batch_us: Option<LatencySummary>,
    /// Latency of single messages, each awaited before the next, in microseconds.
    pub single_us: Option<LatencySummary>,
    /// Messages sent, warm-up included.
    pub messages: u64,
    /// Bytes of their bodies.
    pub body_bytes: u64,
    /// What the store was asked for while the batches were measured, where that is known, and how
    /// many messages that was for.
    #[serde(default)]
    pub store: Option<(Requests, u64)>,
}

/// Asks what a store has been asked for so far.
pub type Counted<'a> = &'a dyn Fn() -> Result<Requests, BenchError>;

/// Measures each size for `span` with batches and again with single messages. `begun` is called
/// when all is ready; `counted`, where the server keeps objects, around the batches.
///
/// # Errors
/// When the queue fails.
pub fn run(
    spec: &QueueSpec,
    sizes: &[usize],
    span: Duration,
    counted: Option<Counted<'_>>,
    begun: impl FnOnce(),
) -> Result<Vec<LogRow>, BenchError> {
    let queue = queue::open(spec)?;
    queue.prepare()?;
    let mut sender = queue.sender(0)?;
    begun();
    sizes.iter().map(|bytes| one_size(sender.as_mut(), *bytes, span, counted)).collect()
}

fn one_size(
    sender: &mut dyn queue::Sender,
    bytes: usize,
    span: Duration,
    counted: Option<Counted<'_>>,
) -> Result<LogRow, BenchError> {
    let batch = (BATCH_BYTES / bytes.max(1)).clamp(1, BATCH_MESSAGES);
    let payload = Payload::new(bytes.max(1), 11);
    let mut sent = 0;
    let mut send_for = |count: usize, span: Duration| -> Result<_, BenchError> {
        let mut latencies = Latencies::default();
        let started = Instant::now();
        let mut messages = 0;
        while started.elapsed() < span {
            let bodies: Vec<&[u8]> =
                (0..count as u64).map(|index| payload.get(sent + index)).collect();
            let before = Instant::now();
            sender.send(&bodies)?;
            latencies.record(before.elapsed());
            sent += count as u64;
            messages += count as u64;
        }
        Ok((messages as f64 / started.elapsed().as_secs_f64(), latencies, messages))
    };
    send_for(batch, span / WARMUP_PART)?;
    let before = counted.map(|counted| counted()).transpose()?;
    let (per_s, batches, messages) = send_for(batch, span)?;
    let after = counted.map(|counted| counted()).transpose()?;
    send_for(1, span / WARMUP_PART)?;
    let (_, singles, _) = send_for(1, span)?;
    Ok(LogRow {
        bytes,
        batch,
        per_s,
        mb_per_s: per_s * bytes as f64 / 1e6,
        batch_us: batches.summary(),
        single_us: singles.summary(),
        messages: sent,
        body_bytes: sent * bytes as u64,
        store: after.zip(before).map(|(after, before)| (after.since(&before), messages)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Queue;
    use crate::queue::fake::{FakeQueue, Faults};

    #[test]
    fn a_known_delay_gives_the_expected_throughput() {
        let send_delay = Duration::from_millis(4);
        let queue = FakeQueue::new(Faults { send_delay, ..Faults::default() });
        let mut sender = queue.sender(0).unwrap();
        // While the machine is busy, times are not what they should be.
        let as_expected = (0..20).any(|_| {
            let row = one_size(sender.as_mut(), 1024, Duration::from_millis(200), None).unwrap();
            assert_eq!(row.batch, BATCH_MESSAGES);
            let single = row.single_us.unwrap();
            assert!(single.p50 >= 4000.0 && row.per_s < 250_000.0, "{single:?} {}", row.per_s);
            assert!((row.mb_per_s - row.per_s * 1024.0 / 1e6).abs() < 1e-6);
            single.p50 < 20_000.0 && row.per_s > 30_000.0
        });
        assert!(as_expected, "twenty times too slow");
    }
}
