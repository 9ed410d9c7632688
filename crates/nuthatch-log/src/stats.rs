//! Counters and gauges of one log, written by its threads and readable from any other.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets of a latency histogram: bucket `i` counts durations below `2^i` microseconds.
pub const LATENCY_BUCKETS: usize = 24;

/// Durations by powers of two of microseconds.
#[derive(Default, Debug)]
pub struct Latency {
    buckets: [AtomicU64; LATENCY_BUCKETS],
    total_nanos: AtomicU64,
}

impl Latency {
    /// Counts one duration.
    pub fn record(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = (u64::BITS - micros.leading_zeros()) as usize;
        self.buckets[bucket.min(LATENCY_BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.total_nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// The counts of all buckets.
    #[must_use]
    pub fn snapshot(&self) -> LatencySnapshot {
        LatencySnapshot {
            buckets: std::array::from_fn(|i| self.buckets[i].load(Ordering::Relaxed)),
            total_nanos: self.total_nanos.load(Ordering::Relaxed),
        }
    }
}

/// A copy of a [`Latency`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LatencySnapshot {
    /// Bucket `i` counts durations below `2^i` microseconds and not below `2^(i-1)`.
    pub buckets: [u64; LATENCY_BUCKETS],
    /// Sum of all durations, in nanoseconds.
    pub total_nanos: u64,
}

impl LatencySnapshot {
    /// How many durations were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Live counters of one log.
        #[derive(Default)]
        pub struct LogStats {
            $($(#[$doc])* pub $name: AtomicU64,)*
            /// Time of each `fdatasync` (with the write, where the write is direct).
            pub sync_latency: Latency,
            /// Time from sealing a frame to its commit.
            pub commit_latency: Latency,
            /// Time from the first record of a frame that somebody waits for to its commit, for each such frame.
            pub ack_latency: Latency,
        }

        /// A copy of [`LogStats`] at one moment.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct StatsSnapshot {
            $($(#[$doc])* pub $name: u64,)*
            /// See [`LogStats::sync_latency`].
            pub sync_latency: LatencySnapshot,
            /// See [`LogStats::commit_latency`].
            pub commit_latency: LatencySnapshot,
            /// See [`LogStats::ack_latency`].
            pub ack_latency: LatencySnapshot,
        }

        impl LogStats {
            /// Copies all values.
            #[must_use]
            pub fn snapshot(&self) -> StatsSnapshot {
                StatsSnapshot {
                    $($name: self.$name.load(Ordering::Relaxed),)*
                    sync_latency: self.sync_latency.snapshot(),
                    commit_latency: self.commit_latency.snapshot(),
                    ack_latency: self.ack_latency.snapshot(),
                }
            }
        }
    };
}

stats! {
    /// Reads that the disk failed.
    read_errors,
    /// Compactions that were put off because a state could not be logged.
    states_refused,
    /// Frames committed since the start.
    frames,
    /// Records committed since the start.
    records,
    /// Bytes of committed frames, without padding.
    frame_bytes,
    /// Bytes written to files: frames with padding, zero-filling, footers, headers.
    written_bytes,
    /// Syncs of segments.
    syncs,
    /// Newest committed position.
    committed_lsn,
    /// Newest position known to be durable.
    durable_lsn,
    /// Bytes of events waiting for the sequencer.
    queue_bytes,
    /// Sends that were refused because the queue was full.
    queue_refusals,
    /// Reads answered from recent frames.
    tail_hits,
    /// Reads answered from frames read back earlier.
    block_hits,
    /// Reads that had to go to a file.
    cache_misses,
    /// Bytes held by the tail cache.
    tail_bytes,
    /// Bytes held by the block cache.
    block_bytes,
    /// Segments in the chain that have a file.
    segments,
    /// Bytes of those files' frames.
    segment_bytes,
    /// Bytes of live messages.
    live_bytes,
    /// Frames cut off as torn by recovery.
    torn_frames,
    /// Bytes cut off as torn by recovery.
    torn_bytes,
    /// Checkpoints and footers that the start could not use: set aside, or left as they are because
    /// reading them failed.
    unusable_files,
    /// Places in files found damaged.
    damaged,
    /// Checkpoints written.
    checkpoints,
    /// Segments rewritten or removed by compaction.
    compacted_segments,
    /// Bytes of frames given back by compaction.
    reclaimed_bytes,
    /// Bytes of records that compaction read.
    compaction_read_bytes,
    /// Bytes of frames that compaction wrote, with padding.
    compaction_written_bytes,
    /// Bytes of records that compaction packed, before.
    packed_bytes,
    /// The same, after.
    packed_into_bytes,
    /// Appends refused because the medium was full.
    full_refusals,
    /// Space on the medium: 0 any, 1 only the reserve is left, 2 none.
    space,
    /// 1 after a failure that stopped the log.
    failed,
}

/// Adds to a counter.
pub fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

/// Sets a gauge.
pub fn set(gauge: &AtomicU64, n: u64) {
    gauge.store(n, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_fall_into_powers_of_two() {
        let latency = Latency::default();
        latency.record(Duration::from_micros(0));
        latency.record(Duration::from_micros(1));
        latency.record(Duration::from_micros(100));
        latency.record(Duration::from_secs(1000));
        let snapshot = latency.snapshot();
        assert_eq!((snapshot.buckets[0], snapshot.buckets[1], snapshot.buckets[7]), (1, 1, 1));
        assert_eq!(snapshot.buckets[LATENCY_BUCKETS - 1], 1);
        assert_eq!(snapshot.count(), 4);
    }
}
