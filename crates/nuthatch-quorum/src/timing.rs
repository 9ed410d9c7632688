//! Times of the protocol, in microseconds.

use crate::types::{MILLISECOND, Time};

/// True if a multiple of `period` lies behind `last` and not behind `now`. What the logs of a node do periodically they do
/// at the same ticks so, whenever each has begun with it, and a driver can send it together.
#[must_use]
pub const fn passed(period: u64, last: Time, now: Time) -> bool {
    now.0 / period > last.0 / period
}

/// Between two beats of a node.
pub const BEAT: u64 = 50 * MILLISECOND;
/// How long an owner may answer linearizable reads after it sent the last beat that a majority answered, where nothing shorter
/// is set ([`Node::shorten_lease`](crate::node::Node::shorten_lease)).
pub const LEASE: u64 = 200 * MILLISECOND;
/// The shortest lease: one of the beats that renew it may be late.
pub const LEASE_MIN: u64 = 2 * BEAT;
/// How long a keeper that has just started holds back promises: as after a beat of whoever has the longest lease.
pub const LEASE_GRANTED: u64 = granted(LEASE);

/// How long a keeper holds back promises after a beat of an owner with this lease: that and a tenth for clocks that drift.
#[must_use]
pub const fn granted(lease: u64) -> u64 {
    lease + lease / 10
}
/// Silence after which an owner is suspected.
pub const SUSPECT: u64 = 500 * MILLISECOND;
/// How long a candidate of one rank waits for the one before.
pub const RANK_WAIT: u64 = 150 * MILLISECOND;
/// An owner without a majority for so long resigns.
pub const RESIGN: u64 = 600 * MILLISECOND;
/// How long a candidate waits for the rest of the set after an answer that was cut or partial.
pub const RECOVERY_GRACE: u64 = 2_000 * MILLISECOND;
/// A takeover that has not ended after this is given up.
pub const ATTEMPT: u64 = 4_000 * MILLISECOND;
/// How long a candidate waits for answers whether there is a healthy owner.
pub const ASK: u64 = 250 * MILLISECOND;
/// How long a candidate waits for a majority of a new set before it goes on with the old one.
pub const JOIN_GRACE: u64 = 1_000 * MILLISECOND;
/// An owner that is to hand over waits so long for its last frames.
pub const DRAIN: u64 = 500 * MILLISECOND;
/// A candidate that prepares a handover waits so long to be told that the owner has ended.
pub const PREPARED: u64 = 2_000 * MILLISECOND;
/// After this what was not answered is sent again.
pub const RESEND: u64 = 100 * MILLISECOND;
/// Between two looks at the catalog.
pub const CATALOG_POLL: u64 = 200 * MILLISECOND;
/// A catalog that has given nothing but old answers for so long went back; before that they may be late.
pub const CATALOG_BACK: u64 = 1_000 * MILLISECOND;
/// Between two looks of an owner whether a disk waits to be admitted.
pub const ADMIT_POLL: u64 = 1_000 * MILLISECOND;
/// How long an owner that is to keep the log no more, or whose set can change, waits for its driver, which closes the log
/// and then has it do so.
pub const UNWISHED_WAIT: u64 = 4_000 * MILLISECOND;
/// Between two parts of a scrub, where a driver says nothing else.
pub const SCRUB: u64 = 200 * MILLISECOND;
/// A wall clock that is further than this from another one differs from it.
pub const WALL_APART: u64 = 2_000 * MILLISECOND;
/// How long what a peer said of its wall clock counts.
pub const WALL_FRESH: u64 = 1_000 * MILLISECOND;
/// A keeper that was not heard for so long is away.
pub const AWAY: u64 = 3_000 * MILLISECOND;
/// After this what an absent keeper did not answer is sent again.
pub const RESEND_AWAY: u64 = 1_000 * MILLISECOND;
/// How often a driver calls a node's `tick`.
pub const TICK: u64 = 25 * MILLISECOND;

/// Publishes that wait for their frame; more are refused.
pub const QUEUE_MAX: usize = 64;
/// Entries in one message.
pub const BATCH_MAX: usize = 64;
/// Bytes of entries in one message, but for a single entry that is longer: the window of a keeper, which has
/// no more than one message on its way.
pub const WINDOW_BYTES: u64 = 16 << 20;
/// A disk may lack so many entries when the log is closed for a change of its set: it gets them before the set changes.
pub const CHANGE_LAG_MAX: u64 = 8;
/// Entries of one part of a scrub.
pub const SCRUB_MAX: u64 = 32;
/// Reads that wait for a round of beats; more are refused.
pub const READS_MAX: usize = 64;

const _: () = assert!(LEASE_GRANTED * 10 >= LEASE * 11, "a tenth for drift");
const _: () = assert!(RESIGN > LEASE, "an owner without a majority has no lease any more");
const _: () = assert!(ATTEMPT > JOIN_GRACE, "an attempt outlives its wait for new disks");
const _: () = assert!(PREPARED > DRAIN, "an owner that hands over has ended by then");
const _: () = assert!(ATTEMPT > RECOVERY_GRACE, "an attempt outlives its wait for cut answers");
