//! The part of a configuration that is checked for every message, in the form in which it is
//! compared.

use nuthatch_log::record::RECORD_HEADER_BYTES;
use nuthatch_protocol::js::{
    DiscardPolicy, PersistMode, RetentionPolicy, StorageType, StreamConfig,
};

/// Bytes that the incumbent's file store adds to subject and payload of a message.
const FILE_OVERHEAD_BYTES: u64 = 22 + 8;
/// Bytes that it adds for the length of a header block.
const FILE_HEADERS_OVERHEAD_BYTES: u64 = 4;
/// Bytes that its memory store adds.
const MEMORY_OVERHEAD_BYTES: u64 = 16;

/// Limits and switches of a stream. "None" is the largest value of the type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Messages.
    pub messages: u64,
    /// Bytes as JetStream counts them.
    pub bytes: u64,
    /// Messages per subject; 0: no limit.
    pub per_subject: u64,
    /// Headers and payload of one message.
    pub message_bytes: usize,
    /// Age, ns; 0: no limit.
    pub age_ns: i64,
    /// Window for duplicates, ns.
    pub window_ns: i64,
    /// New messages give way, not old ones.
    pub discard_new: bool,
    /// Also where only a subject is full.
    pub discard_new_per_subject: bool,
    /// Nothing may change.
    pub sealed: bool,
    /// It is sealed or has one writer: publishes are looked at more closely. Kept by the stream.
    pub guarded: bool,
    /// Publishes are not acknowledged.
    pub no_ack: bool,
    /// Publishes are acknowledged before they are durable.
    pub ack_early: bool,
    /// Atomic batches may be published (ADR-50).
    pub atomic: bool,
    /// Fast batches may be published (ADR-50).
    pub batched: bool,
    /// Messages may have a time to live (ADR-43).
    pub ttl: bool,
    /// The last message of a subject that expires leaves a marker that lives so many seconds; 0: no.
    pub marker_ttl_s: u32,
    /// Every message adds to the counter of its subject (ADR-49).
    pub counter: bool,
    /// Messages may be schedules (ADR-51).
    pub schedules: bool,
    /// Rollup headers are honoured.
    pub rollup: bool,
    /// Kept in memory: counts bytes differently.
    pub memory: bool,
    /// It is being restored: nothing expires.
    pub restoring: bool,
    /// When messages leave.
    pub retention: RetentionPolicy,
}

fn limit(value: i64) -> u64 {
    u64::try_from(value).ok().filter(|&value| value > 0).unwrap_or(u64::MAX)
}

impl Limits {
    /// The limits that a validated configuration sets.
    #[must_use]
    pub fn new(config: &StreamConfig) -> Self {
        Self {
            messages: limit(config.max_msgs),
            bytes: limit(config.max_bytes),
            per_subject: u64::try_from(config.max_msgs_per_subject).unwrap_or(0),
            message_bytes: usize::try_from(config.max_msg_size)
                .ok()
                .filter(|&size| size > 0)
                .unwrap_or(usize::MAX),
            age_ns: config.max_age.max(0),
            window_ns: config.duplicate_window.max(0),
            discard_new: config.discard == DiscardPolicy::New,
            discard_new_per_subject: config.discard_new_per_subject,
            sealed: config.sealed,
            guarded: config.sealed,
            no_ack: config.no_ack,
            ack_early: config.persist_mode == PersistMode::Async,
            atomic: config.allow_atomic,
            batched: config.allow_batched,
            ttl: config.allow_msg_ttl,
            marker_ttl_s: u32::try_from(config.subject_delete_marker_ttl / 1_000_000_000)
                .unwrap_or(0),
            counter: config.allow_msg_counter,
            schedules: config.allow_msg_schedules,
            rollup: config.allow_rollup_hdrs && !config.deny_purge,
            memory: config.storage == StorageType::Memory,
            restoring: super::restoring::is_staged(&config.name),
            retention: config.retention,
        }
    }

    /// Bytes of a message as JetStream counts them, from the weight of its record.
    #[inline]
    #[must_use]
    pub const fn counted_bytes(&self, weight: usize, has_headers: bool) -> u64 {
        counted_bytes(self.memory, weight, has_headers)
    }
}

/// [`Limits::counted_bytes`] of a stream that is kept in memory, or in files.
#[inline]
pub(super) const fn counted_bytes(is_in_memory: bool, weight: usize, has_headers: bool) -> u64 {
    let content = (weight - RECORD_HEADER_BYTES) as u64;
    if is_in_memory {
        content + MEMORY_OVERHEAD_BYTES
    } else if has_headers {
        content + FILE_OVERHEAD_BYTES + FILE_HEADERS_OVERHEAD_BYTES
    } else {
        content + FILE_OVERHEAD_BYTES
    }
}
