//! Wall clocks: whether a node's own is right, told by those of the others.
//!
//! A wall clock is compared by how far it is ahead of the clock that no one sets ([`Time`]), so a jump of the own
//! one shows at once. Nothing of the protocol's safety depends on it: it stamps entries, and expires them.

use crate::catalog::LogRow;
use crate::rules::Rule;
use crate::timing::{SUSPECT, WALL_APART, WALL_FRESH};
use crate::types::{NodeId, Time, WallTime, majority};
use std::collections::BTreeMap;

/// The stamp of an entry behind one with the stamp `before`: the wall clock's, if that has not gone back.
pub(crate) fn stamp(before: WallTime, wall: Option<WallTime>) -> WallTime {
    let wall = wall.unwrap_or(before);
    if Rule::StampsRise.holds() { wall.max(before) } else { wall }
}

/// How far a wall clock is ahead of the own [`Time`], in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ahead(i64);

impl Ahead {
    fn of(wall: WallTime, now: Time) -> Self {
        Self(wall.0.cast_signed().wrapping_sub(now.0.cast_signed()))
    }

    fn differs(self, other: Self) -> bool {
        self.0.abs_diff(other.0) > WALL_APART
    }
}

/// What a node knows of wall clocks.
#[derive(Debug, Default)]
pub(crate) struct Walls {
    mine: Option<Ahead>,
    peers: BTreeMap<NodeId, (Ahead, Time)>,
}

impl Walls {
    /// What the own clock shows.
    pub(crate) fn set(&mut self, wall: WallTime, now: Time) {
        self.mine = Some(Ahead::of(wall, now));
    }

    /// What the own clock shows, going by when it was last looked at.
    pub(crate) fn mine(&self, now: Time) -> Option<WallTime> {
        let ahead = self.mine?;
        Some(WallTime(now.0.wrapping_add_signed(ahead.0)))
    }

    /// What a peer said in answer to a beat. One that took long says little.
    pub(crate) fn heard(&mut self, peer: NodeId, wall: WallTime, sent: Time, now: Time) {
        if sent <= now && now.since(sent) < SUSPECT {
            self.peers.insert(peer, (Ahead::of(wall, now), now));
        }
    }

    /// How many of the set were heard lately whose clock differs from the own one, or does not.
    fn count(&self, row: &LogRow, me: NodeId, differs: bool, now: Time) -> usize {
        let Some(mine) = self.mine else { return 0 };
        let others = row.set.iter().filter(|member| member.node != me);
        let heard = others.filter_map(|member| self.peers.get(&member.node));
        let fresh = heard.filter(|(_, at)| now.since(*at) < WALL_FRESH);
        fresh.filter(|(ahead, _)| ahead.differs(mine) == differs).count()
    }

    /// True if the clock of a peer that was heard lately differs from the own one.
    pub(crate) fn is_apart(&self, peer: NodeId, now: Time) -> bool {
        let heard = self.peers.get(&peer).filter(|(_, at)| now.since(*at) < WALL_FRESH);
        self.mine.zip(heard).is_some_and(|(mine, (theirs, _))| theirs.differs(mine))
    }

    /// True if a majority of the set contradicts the own clock.
    pub(crate) fn is_wrong(&self, row: &LogRow, me: NodeId, now: Time) -> bool {
        self.count(row, me, true, now) >= majority(row.set.len())
    }

    /// True if a majority of the set, this node included, agrees with the own clock.
    pub(crate) fn is_agreed(&self, row: &LogRow, me: NodeId, now: Time) -> bool {
        1 + self.count(row, me, false, now) >= majority(row.set.len())
    }
}

#[cfg(test)]
mod tests;
