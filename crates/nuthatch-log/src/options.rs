//! Options of a log, with the bounds of everything in it that can grow.

use crate::keys::Keys;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Receives one-line messages about what happens to a log (damage, failures), for the program's
/// own log. The default drops them.
#[derive(Clone)]
pub struct Reporter {
    say: Arc<dyn Fn(&str) + Send + Sync>,
    note: Arc<dyn Fn(&str) + Send + Sync>,
}

impl Reporter {
    /// Hands messages to `report`, which may be called from any of the log's threads.
    #[must_use]
    pub fn new(report: impl Fn(&str) + Send + Sync + 'static) -> Self {
        let say: Arc<dyn Fn(&str) + Send + Sync> = Arc::new(report);
        Self { note: Arc::clone(&say), say }
    }

    /// Hands what belongs to normal operation to `note`, and the rest to `report`.
    #[must_use]
    pub fn with_notes(
        report: impl Fn(&str) + Send + Sync + 'static,
        note: impl Fn(&str) + Send + Sync + 'static,
    ) -> Self {
        Self { say: Arc::new(report), note: Arc::new(note) }
    }

    /// Reports a message to which somebody may have to do something.
    pub fn say(&self, message: &str) {
        (self.say)(message);
    }

    /// Reports a message that belongs to normal operation.
    pub fn note(&self, message: &str) {
        (self.note)(message);
    }
}

impl Default for Reporter {
    fn default() -> Self {
        Self::new(|_| {})
    }
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reporter")
    }
}

/// When frames are made durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncPolicy {
    /// Before a frame counts as committed. The default.
    Always,
    /// Frames count as committed once written; the file is synced this often.
    Every(Duration),
    /// Frames count as committed once written; the operating system decides the rest. Segments are
    /// still synced when they are sealed.
    Never,
}

/// Compression of records by compaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Compression {
    /// They stay as they are, except those of streams that ask for compression
    /// ([`crate::Machine::compresses`]).
    #[default]
    None,
    /// They are packed with zstd where that pays.
    Zstd,
}

/// Options of one log.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Directory of a log on files; unused by logs in memory.
    pub dir: PathBuf,
    /// When frames are made durable. Default: always, before the acknowledgement.
    pub sync: SyncPolicy,
    /// Size of a full segment. The first ones are smaller: they double from `first_segment_bytes`.
    /// Default 64 MiB.
    pub segment_bytes: u64,
    /// Size of the first segment. Default 1 MiB.
    pub first_segment_bytes: u64,
    /// Frames start at multiples of this. Default 4096, needed for direct writes; logs in memory
    /// use 64.
    pub block_bytes: u32,
    /// A frame is closed when it holds this much and the writer is busy. Default 1 MiB.
    pub frame_bytes: usize,
    /// While frames are on their way to a bucket, the next one follows without waiting for them as
    /// soon as it holds this much for each of them: the busier the bucket, the larger the frames.
    /// Acknowledgements keep their order. Default: never; in a bucket 8 MiB. On a disk one frame is on
    /// its way at a time in any case.
    pub ahead_bytes: usize,
    /// Frames on their way to a bucket at a time hold at most this much, unless it is a single one.
    /// Default 48 MiB.
    pub in_flight_bytes: usize,
    /// Bytes of recent frames kept in memory for readers at the tail. Default 64 MiB.
    pub tail_cache_bytes: usize,
    /// Bytes of older frames kept in memory after being read from files. Default 32 MiB.
    pub block_cache_bytes: usize,
    /// Bytes of events that wait for the sequencer; above it senders are told `Busy`.
    /// Default 32 MiB.
    pub queue_bytes: usize,
    /// Space set aside for deletes, acks and compaction when the medium is full. Default: two
    /// segments, but at most an eighth of what is free at the start.
    pub reserve_bytes: Option<u64>,
    /// How long a lazy record may stay in memory, in milliseconds. Default 250.
    pub lazy_flush_ms: u64,
    /// An idle log covers its last frame by a commit marker after this long. Default 50.
    pub commit_marker_ms: u64,
    /// A checkpoint is taken after this many bytes of log. Default 64 MiB.
    pub checkpoint_bytes: u64,
    /// After the log was opened nothing is compacted for so long, in milliseconds: whoever waited for it has the machine first.
    /// Default 0.
    pub rest_at_start_ms: u64,
    /// A checkpoint is taken after this long if anything changed, in milliseconds. Default 30 s.
    pub checkpoint_interval_ms: u64,
    /// Segments with a smaller share of live bytes are rewritten, in percent. Default 50.
    pub compact_below_percent: u8,
    /// Compression of cold data. Default: none; in a bucket zstd.
    pub compression: Compression,
    /// True if segments are rewritten although everything in them is alive: those that consist of
    /// many small parts, or of many streams, into few large parts with each stream's messages
    /// together. Default: no; in a bucket yes, because each part there is an object.
    pub merge: bool,
    /// A segment must have been sealed for so long before it is rewritten to be merged or
    /// compressed. Default 10 s; in a bucket 5 minutes.
    pub cold_after_ms: u64,
    /// A stream with so many live bytes in a compaction gets a segment of its own, which goes as a
    /// whole when the stream does. Default 8 MiB.
    pub own_segment_bytes: u64,
    /// A segment takes at most this many frames. Default: no limit; in a bucket, where each is an
    /// object that a start must find and read, 2048.
    pub segment_frames: u32,
    /// A compaction holds at most this many bytes of records in memory; with more to rewrite it
    /// reads its inputs several times. Default 32 MiB.
    pub compact_memory_bytes: u64,
    /// A compaction reads and writes at most this many bytes in a second (unless the medium is full).
    /// Default 128 MiB; in a bucket 32 MiB.
    pub compact_bytes_per_s: u64,
    /// The largest record. Default [`crate::frame::MAX_RECORD_BYTES`], which is also the most.
    pub max_record_bytes: usize,
    /// States larger than this are written in parts of this size. Default 256 KiB.
    pub state_part_bytes: usize,
    /// Keys of encryption at rest. Default: none. A log in memory has no files and uses none.
    pub keys: Keys,
    /// Receives messages about the log.
    pub report: Reporter,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            dir: PathBuf::new(),
            sync: SyncPolicy::Always,
            segment_bytes: 64 << 20,
            first_segment_bytes: 1 << 20,
            block_bytes: 4096,
            frame_bytes: 1 << 20,
            ahead_bytes: usize::MAX,
            in_flight_bytes: 48 << 20,
            tail_cache_bytes: 64 << 20,
            block_cache_bytes: 32 << 20,
            queue_bytes: 32 << 20,
            reserve_bytes: None,
            lazy_flush_ms: 250,
            commit_marker_ms: 50,
            checkpoint_bytes: 64 << 20,
            rest_at_start_ms: 0,
            checkpoint_interval_ms: 30_000,
            compact_below_percent: 50,
            compression: Compression::None,
            merge: false,
            cold_after_ms: 10_000,
            own_segment_bytes: 8 << 20,
            segment_frames: u32::MAX,
            compact_memory_bytes: 32 << 20,
            compact_bytes_per_s: 128 << 20,
            max_record_bytes: crate::frame::MAX_RECORD_BYTES,
            state_part_bytes: crate::state_part::STATE_PART_BYTES,
            keys: Keys::default(),
            report: Reporter::default(),
        }
    }
}

impl LogOptions {
    /// Options for a log on files in `dir`.
    #[must_use]
    pub fn local(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), ..Self::default() }
    }

    /// Options for a log whose directory several nodes keep: another one opens it while clients wait for it, and frames end
    /// where they end.
    #[must_use]
    pub fn replicated() -> Self {
        Self { block_bytes: 64, rest_at_start_ms: 3_000, ..Self::default() }
    }

    /// Options for a log in a bucket: large frames, because each is a request, and large segments,
    /// because each is several; no padding to blocks; what nobody awaits waits longer. The figures
    /// bound memory: two frames are built or wait while others, `in_flight_bytes` in all, are under
    /// way.
    #[must_use]
    pub fn object() -> Self {
        Self {
            segment_bytes: 128 << 20,
            first_segment_bytes: 128 << 20,
            segment_frames: 2048,
            merge: true,
            cold_after_ms: 300_000,
            compression: Compression::Zstd,
            compact_bytes_per_s: 32 << 20,
            block_bytes: 64,
            frame_bytes: 16 << 20,
            ahead_bytes: 8 << 20,
            tail_cache_bytes: 96 << 20,
            queue_bytes: 48 << 20,
            reserve_bytes: Some(0),
            lazy_flush_ms: 10_000,
            commit_marker_ms: 2_000,
            checkpoint_bytes: 512 << 20,
            checkpoint_interval_ms: 300_000,
            ..Self::default()
        }
    }

    /// Options for a log in memory: nothing to sync, no direct writes to align for, and hardly a
    /// tail cache, because the frames themselves stay in memory.
    #[must_use]
    pub fn memory() -> Self {
        Self {
            sync: SyncPolicy::Never,
            block_bytes: 64,
            tail_cache_bytes: 4 << 20,
            ..Self::default()
        }
    }
}
