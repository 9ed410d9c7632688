//! What some schedules are about, since chance alone hardly brings it about: the seed alone says which, so that the other
//! schedules are what they were.

use super::world::{FAULTS_FOR, Happening, Life, World, empty_disk};
use crate::net::Weather;
use crate::rng::Rng;
use nuthatch_catalog_group::{Member, MemberId};
use nuthatch_log::env::MemDisk;

/// The longest time from the end of a change of the members to the outage, in microseconds: few entries come in between.
const OUTAGE_WITHIN: u64 = 30_000;

/// The longest time from a founding to the loss of the founder's disk, in microseconds: one round of those that look for
/// their cluster, and somewhat more.
const FOUNDER_LOST_WITHIN: u64 = 300_000;

/// The longest time until the founder starts again, in microseconds: within the same round of another node.
const FOUNDER_BACK_WITHIN: u64 = 100_000;

/// What a schedule is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Theme {
    /// Anything.
    Any,
    /// As soon as a change of the members is over, most members end and one disk is lost: what a start knows of that
    /// change decides whether those that are left can lead. The new disk is the next change.
    Members {
        /// Those that voted after the last change that was looked at.
        voters: Vec<MemberId>,
    },
    /// The founder's disk is lost while what it said is on its way, and it is back at once.
    Founding,
}

impl Theme {
    /// The theme of a seed: two of eleven have one.
    pub fn of(seed: u64) -> Self {
        match seed % 11 {
            3 => Self::Members { voters: vec![] },
            8 => Self::Founding,
            _ => Self::Any,
        }
    }

    /// How bad the network is, where it was drawn so.
    pub fn weather(&self, drawn: Weather) -> Weather {
        match self {
            // Answers take up to two rounds.
            Self::Founding => Weather { late: 400, late_max: 400_000, ..drawn },
            _ => drawn,
        }
    }

    /// No voter knows of a change of the members that is under way: when an outage comes, if those who vote are other ones
    /// than before.
    pub fn settled(&mut self, now: Vec<MemberId>, rng: &mut Rng) -> Option<u64> {
        match self {
            Self::Members { voters } if *voters != now => {
                *voters = now;
                Some(rng.between(1, OUTAGE_WITHIN))
            }
            _ => None,
        }
    }
}

impl World {
    /// The disk of one voter is lost, if it may be, and most of the other nodes end.
    pub(super) fn outage(&mut self) {
        let Theme::Members { voters } = &self.theme else { return };
        if self.queue.now() >= FAULTS_FOR {
            return;
        }
        let votes = |member: &Member| voters.contains(&member.id());
        let is_voter =
            |at: &usize| matches!(&self.nodes[*at].life, Life::Runs(member) if votes(member));
        let running: Vec<usize> = (0..self.nodes.len()).filter(is_voter).collect();
        if running.is_empty() {
            return;
        }
        let lost = *self.queue.rng.pick(&running);
        let is_lost = self.queue.rng.chance(750) && self.may_harm(lost);
        if is_lost {
            self.lose(lost);
        } else {
            // Nothing changes now: the next time that all is settled will do.
            self.theme = Theme::Members { voters: vec![] };
        }
        for at in running.into_iter().filter(|at| !is_lost || *at != lost) {
            match self.queue.rng.below(8) {
                0 => {}
                1..=3 => self.end(at, MemDisk::survive),
                _ => self.power_cut(at),
            }
        }
    }

    /// A node has founded the cluster.
    pub(super) fn was_founded(&mut self, by: usize) {
        if self.theme == Theme::Founding {
            let after = self.queue.rng.between(1, FOUNDER_LOST_WITHIN);
            self.queue.after(after, Happening::FounderLost(by));
        }
    }

    /// The founder comes back without its disk.
    pub(super) fn founder_lost(&mut self, at: usize) {
        if self.queue.now() < FAULTS_FOR && self.may_harm(at) {
            self.faults += 1;
            self.lose(at);
            let later = self.queue.rng.between(1_000, FOUNDER_BACK_WITHIN);
            self.queue.after(later, Happening::Start(at));
        }
    }

    /// The disk of a node is lost.
    pub(super) fn lose(&mut self, at: usize) {
        self.harmed.insert(at);
        self.disks += 1;
        self.end(at, |_| empty_disk());
    }
}
