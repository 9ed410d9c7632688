//! Which nodes are away for long, as one node knows that hears a majority of those that keep the logs.

use nuthatch_catalog_group::Roster;
use nuthatch_quorum::types::{NodeId, majority};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A node that is not heard.
struct Absence {
    since: Instant,
    /// People were told what follows from it: the spare that takes the place, or that there is none.
    told: Option<Option<NodeId>>,
}

/// The nodes that are not heard. One that hears no majority of those that keep the logs is itself what is away: it knows of no
/// absence, and counts anew when it hears one again.
#[derive(Default)]
pub(super) struct Absences(BTreeMap<NodeId, Absence>);

impl Absences {
    /// Notes who is heard now. The first node that keeps logs, is not drained and was not heard for as long as it takes, where
    /// nothing was begun.
    pub fn look(
        &mut self,
        (roster, me): (&Roster, NodeId),
        (hears, after): (&dyn Fn(NodeId) -> bool, Duration),
        now: Instant,
    ) -> Option<NodeId> {
        let keepers: Vec<NodeId> =
            roster.nodes.iter().filter(|(_, one)| one.keeps).map(|(node, _)| *node).collect();
        let heard = keepers.iter().filter(|node| **node == me || hears(**node)).count();
        if heard < majority(keepers.len()) {
            self.0.clear();
            return None;
        }
        let is_away = |node: &NodeId| *node != me && !hears(*node);
        self.0.retain(|node, _| keepers.contains(node) && is_away(node));
        for node in keepers.iter().filter(|node| is_away(node)) {
            self.0.entry(*node).or_insert(Absence { since: now, told: None });
        }
        if roster.replacing.is_some() || roster.resizing.is_some() {
            return None;
        }
        let is_over = |one: &Absence| now.duration_since(one.since) >= after;
        let mut over = self.0.iter().filter(|(_, one)| is_over(one)).map(|(node, _)| *node);
        over.find(|node| !roster.drained.contains(node))
    }

    /// True if people were not told of that yet.
    pub fn tell(&mut self, node: NodeId, next: Option<NodeId>) -> bool {
        let absence = self.0.get_mut(&node);
        absence.is_some_and(|absence| absence.told.replace(next) != Some(next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nuthatch_catalog_group::roster::Enrolled;
    use nuthatch_catalog_group::{MemberId, Replacing};

    const AFTER: Duration = Duration::from_secs(10);

    fn nodes() -> Roster {
        let mut roster = Roster::default();
        for number in 1..=4 {
            let (name, member) = (format!("n{number}"), MemberId(number.into()));
            let keeps = number <= 3;
            roster.nodes.insert(NodeId(number), Enrolled { name, member, address: None, keeps });
        }
        roster
    }

    /// Who is to be replaced, as node 1 knows, after these looks: so many seconds after the first one, and whom it hears.
    fn after(roster: &Roster, looks: &[(u64, &[u8])]) -> Option<NodeId> {
        let (mut absences, begin) = (Absences::default(), Instant::now());
        let mut away = None;
        for (seconds, heard) in looks {
            let hears = |node: NodeId| heard.contains(&node.0);
            let now = begin + Duration::from_secs(*seconds);
            away = absences.look((roster, NodeId(1)), (&hears, AFTER), now);
        }
        away
    }

    #[test]
    fn who_is_not_heard_for_long_is_away() {
        let roster = nodes();
        assert_eq!(after(&roster, &[(0, &[2, 3]), (1, &[2]), (10, &[2])]), None);
        assert_eq!(after(&roster, &[(0, &[2, 3]), (1, &[2]), (11, &[2])]), Some(NodeId(3)));
        assert_eq!(after(&roster, &[(1, &[2]), (9, &[2, 3]), (11, &[2])]), None, "it was heard");
        assert_eq!(after(&roster, &[(0, &[2, 3]), (11, &[2, 3])]), None, "a spare does not count");
    }

    #[test]
    fn who_hears_no_majority_knows_of_no_absence() {
        let roster = nodes();
        assert_eq!(after(&roster, &[(0, &[]), (11, &[])]), None);
        assert_eq!(after(&roster, &[(0, &[2]), (9, &[]), (11, &[2])]), None, "it counts anew");
    }

    #[test]
    fn nobody_is_replaced_who_is_drained_or_while_something_was_begun() {
        let mut roster = nodes();
        roster.drained.insert(NodeId(3));
        assert_eq!(after(&roster, &[(0, &[2]), (11, &[2])]), None);
        roster.drained.clear();
        roster.replacing = Some(Replacing { old: NodeId(2), new: NodeId(4) });
        assert_eq!(after(&roster, &[(0, &[2]), (11, &[2])]), None);
    }
}
