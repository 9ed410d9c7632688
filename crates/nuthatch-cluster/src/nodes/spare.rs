//! Which spare takes the place of a node where nobody names one.

use super::{Nodes, NodesError, Replacement, wanted};
use crate::quorum_log::QuorumLog;
use nuthatch_catalog_group::{Change, Roster, Zones};
use nuthatch_quorum::types::NodeId;
use std::sync::Arc;

/// What a choice among spares goes by.
pub(super) struct Choice<'a> {
    pub zones: Zones,
    /// Whether a node is connected.
    pub hears: &'a dyn Fn(NodeId) -> bool,
}

impl Choice<'_> {
    /// The spare that takes the place of a node already, or the one that is to: of those that are connected, or of all where
    /// none is, the first by its zone.
    pub fn spare(&self, roster: &Roster, goes: NodeId, name: &str) -> Result<NodeId, NodesError> {
        let under_way = roster.replacing.filter(|one| one.old == goes).map(|one| one.new);
        let spares = self.zones.spares_for(goes, roster);
        let hears = |node: &&NodeId| (self.hears)(**node);
        let first = spares.iter().find(hears).or(spares.first()).copied();
        under_way.or(first).ok_or_else(|| NodesError::NoSpare { name: name.to_owned() })
    }
}

impl Nodes {
    /// As [`wanted`](super::wanted), by what is known of the spares here.
    pub(super) fn wanted(
        &self,
        roster: &Roster,
        names: (&str, Option<&str>),
        logs: &[Arc<QuorumLog>],
    ) -> Result<(Option<Change>, Replacement), NodesError> {
        let hears = |node| node == self.roll.me() || logs.iter().any(|log| log.hears(node).0);
        wanted(roster, names, &Choice { zones: self.roll.zones(), hears: &hears })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nuthatch_catalog_group::roster::Enrolled;
    use nuthatch_catalog_group::{MemberId, Replacing};

    /// Three nodes that keep the logs in the zones a, b and c, and three spares: n4 and n6 in a, n5 in c.
    fn nodes() -> (Roster, Zones) {
        let (mut roster, mut zones) = (Roster::default(), Zones::default());
        for (number, zone) in (1..).zip(["a", "b", "c", "a", "c", "a"]) {
            let (node, member) = (NodeId(number), MemberId(number.into()));
            let (name, keeps) = (format!("n{number}"), number <= 3);
            roster.nodes.insert(node, Enrolled { name, member, address: None, keeps });
            zones.note(node, zone.parse().ok());
        }
        (roster, zones)
    }

    /// Who takes the place of a node of which nobody says that, while these are connected.
    fn chosen(of: &str, connected: &[u8]) -> String {
        let (roster, zones) = nodes();
        let hears = |node: NodeId| connected.contains(&node.0);
        let choice = Choice { zones, hears: &hears };
        match wanted(&roster, (of, None), &choice) {
            Ok((Some(Change::Begin(_)), Replacement::Begun { new, .. })) => new,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_spare_is_one_that_is_connected_and_in_the_zone_with_the_fewest() {
        assert_eq!(chosen("n3", &[4, 5, 6]), "n5", "c has none left");
        assert_eq!(chosen("n1", &[4, 5, 6]), "n4", "a has none left, and two spares");
        assert_eq!(chosen("n1", &[5, 6]), "n6");
        assert_eq!(chosen("n1", &[5]), "n5", "the others are not connected");
        assert_eq!(chosen("n1", &[]), "n4", "nobody is");
    }

    #[test]
    fn the_spare_that_takes_the_place_already_goes_on() {
        let (mut roster, zones) = nodes();
        roster.replacing = Some(Replacing { old: NodeId(3), new: NodeId(6) });
        let choice = Choice { zones, hears: &|_| true };
        assert_eq!(choice.spare(&roster, NodeId(3), "n3"), Ok(NodeId(6)));
        roster.nodes.retain(|node, _| node.0 <= 3);
        roster.replacing = None;
        let name = "n3".to_owned();
        assert_eq!(choice.spare(&roster, NodeId(3), "n3"), Err(NodesError::NoSpare { name }));
    }
}
