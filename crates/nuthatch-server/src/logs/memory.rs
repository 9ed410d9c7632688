//! How much memory streams of storage `memory` may take.

use crate::options::Options;
use std::sync::OnceLock;

/// Bytes of memory streams when the configuration sets no `max_memory_store`: three quarters of the
/// machine's memory, as upstream, but at least this.
const MEMORY_STORE_MIN_BYTES: u64 = 64 << 20;

/// The keeper of the cluster's memory log may take so many times what its streams may have: files hold what was removed
/// until they are rewritten, and those that are rewritten are there twice meanwhile.
const KEEPER_SHARE: u64 = 3;

/// Standbys may take this share of the machine's memory where nothing is configured.
const STANDBY_SHARE: u64 = 8;

/// Bytes that standbys of quorum logs may take, about.
#[must_use]
pub fn standby_memory_bytes(options: &Options) -> u64 {
    let set = options.cluster.as_ref().and_then(|cluster| cluster.standby_bytes);
    set.unwrap_or_else(|| total_bytes() / STANDBY_SHARE)
}

/// Bytes that the memory log of a server may take.
#[must_use]
pub fn memory_store_bytes(options: &Options) -> u64 {
    options.jetstream.max_memory_bytes.unwrap_or_else(of_machine)
}

/// Bytes that streams in the cluster's memory log may have: as many again as those in the server's own, and a third of that
/// where nothing is configured.
#[must_use]
pub fn quorum_memory_bytes(options: &Options) -> u64 {
    options.jetstream.max_memory_bytes.unwrap_or_else(|| of_machine() / KEEPER_SHARE)
}

/// Bytes that this node's keeper of that log may take.
#[must_use]
pub(crate) fn keeper_memory_bytes(options: &Options) -> u64 {
    quorum_memory_bytes(options).saturating_mul(KEEPER_SHARE)
}

fn of_machine() -> u64 {
    (total_bytes() / 4 * 3).max(MEMORY_STORE_MIN_BYTES)
}

/// Bytes of memory of the machine; 0: not known.
fn total_bytes() -> u64 {
    static TOTAL: OnceLock<u64> = OnceLock::new();
    *TOTAL.get_or_init(read_total_bytes)
}

fn read_total_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total_kib = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok())
        .unwrap_or(0);
    total_kib * 1024
}
