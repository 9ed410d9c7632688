//! What an owner knows of each keeper.

use crate::rules::Rule;
use crate::timing::{AWAY, RESEND, RESEND_AWAY};
use crate::types::{BootCount, Lsn, Member, Sum, Time, majority};

/// The position that a majority of `positions` has reached.
#[must_use]
pub fn committed(positions: &[Lsn]) -> Lsn {
    let mut sorted = positions.to_vec();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    let needed = if Rule::CommitMajority.holds() { majority(sorted.len()) } else { 1 };
    sorted[needed - 1]
}

/// What the owner does next with a keeper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// It has not promised the epoch.
    Unsealed,
    /// Its log is not the one that the epoch starts with; it is sent what lies behind `after`.
    Behind { after: Lsn },
    /// What it has trimmed, up to this sum, is not what the epoch starts with: whatever it has is replaced.
    Foreign { trimmed: Sum },
    /// Its log is; the epoch has not started there.
    Ready,
    /// It takes entries.
    Live,
}

/// What the owner knows of a keeper.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) member: Member,
    /// True for a disk that is to come into the set and does not count yet.
    pub(super) learns: bool,
    pub(super) stage: Stage,
    /// What it said is durable and readable in this epoch.
    pub(super) done: Lsn,
    /// Its boot counter, as it last said.
    pub(super) boots: BootCount,
    pub(super) sent_at: Time,
    /// When the last beat was sent that it answered with this epoch.
    pub(super) leased: Option<Time>,
    /// The last round of beats that it answered so.
    pub(super) round: u64,
    /// When it was last heard.
    pub(super) heard_at: Time,
    /// True once it was said that it is away.
    pub(super) told_away: bool,
}

impl Progress {
    pub(super) fn new(member: Member, now: Time) -> Self {
        Self {
            member,
            learns: false,
            stage: Stage::Unsealed,
            done: Lsn(0),
            boots: BootCount(0),
            sent_at: Time(0),
            leased: None,
            round: 0,
            heard_at: now,
            told_away: false,
        }
    }

    /// True if its log is known to be the owner's and durable to here.
    pub(super) fn has(&self, upto: Lsn) -> bool {
        self.stage == Stage::Live && self.done >= upto
    }

    pub(super) fn is_away(&self, now: Time) -> bool {
        now.since(self.heard_at) >= AWAY
    }

    /// After how long it is sent again what it did not answer.
    pub(super) fn resend_after(&self, now: Time) -> u64 {
        if self.is_away(now) && Rule::AwaySeldom.holds() { RESEND_AWAY } else { RESEND }
    }
}
