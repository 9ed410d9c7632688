//! In which zones nodes are (availability zones, racks, rooms: what fails together), and which spare is chosen by that.
//!
//! Nodes say it of themselves when they connect. It is in no format of the catalog: whoever leads knows it of the nodes that
//! its own node has met, and is told so by [`Event::Zones`](crate::Event::Zones).

use crate::roster::Roster;
use nuthatch_quorum::types::NodeId;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Characters of a zone's name at most.
pub const ZONE_MAX: usize = 64;

/// The name of a zone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Zone(String);

/// A text that names no zone.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a zone's name has 1 to {ZONE_MAX} letters, digits, '-', '_' and '.'; {name:?} is none")]
pub struct ZoneError {
    /// The text.
    pub name: String,
}

impl Zone {
    /// Its name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Zone {
    type Err = ZoneError;

    fn from_str(name: &str) -> Result<Self, ZoneError> {
        let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        match (1..=ZONE_MAX).contains(&name.len()) && name.bytes().all(is_fit) {
            true => Ok(Self(name.to_owned())),
            false => Err(ZoneError { name: name.to_owned() }),
        }
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

/// The zones of the nodes that were met, as they said last. There are no more nodes than numbers of nodes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Zones(BTreeMap<NodeId, Option<Zone>>);

impl Zones {
    /// A node was met: it says its zone, or that it has none.
    pub fn note(&mut self, node: NodeId, zone: Option<Zone>) {
        self.0.insert(node, zone);
    }

    /// True if a node was met.
    #[must_use]
    pub fn has_met(&self, node: NodeId) -> bool {
        self.0.contains_key(&node)
    }

    /// The zone of a node; none: it has none, or was not met.
    #[must_use]
    pub fn of(&self, node: NodeId) -> Option<&Zone> {
        self.0.get(&node)?.as_ref()
    }

    /// The spares in the order in which they are to take the place of a node: first those in whose zone the fewest of the
    /// nodes are that go on keeping the logs, then by their numbers. A spare of which no zone is known may be in any: it counts
    /// as in the one with the most.
    #[must_use]
    pub fn spares_for(&self, goes: NodeId, roster: &Roster) -> Vec<NodeId> {
        let stays = roster.nodes.iter().filter(|(node, one)| one.keeps && **node != goes);
        let mut kept: BTreeMap<&Zone, usize> = BTreeMap::new();
        for zone in stays.filter_map(|(node, _)| self.of(*node)) {
            *kept.entry(zone).or_default() += 1;
        }
        let most = kept.values().max().copied().unwrap_or(0);
        let keepers = |node: &NodeId| {
            self.of(*node).map_or(most, |zone| kept.get(zone).copied().unwrap_or(0))
        };
        let mut spares: Vec<NodeId> = roster.spares().map(|(node, _)| *node).collect();
        spares.sort_by_key(|node| (keepers(node), *node));
        spares
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roster::Enrolled;
    use crate::types::MemberId;

    #[test]
    fn a_zone_has_a_name() {
        for name in ["a", "eu-west-1a", "Rack_7.2", &"z".repeat(ZONE_MAX)] {
            let zone: Zone = name.parse().expect("a zone");
            assert_eq!((zone.as_str(), zone.to_string().as_str()), (name, name));
        }
        for name in ["", " a", "a b", "a/b", "a,b", "zoné", "a\n", &"z".repeat(ZONE_MAX + 1)] {
            let error = name.parse::<Zone>().expect_err("no zone");
            assert_eq!(error.name, name);
            assert!(error.to_string().contains("1 to 64 letters"), "{error}");
        }
    }

    /// Nodes that keep the logs, numbered from 1 on, and spares after them; of each the zone ("": it says none, "?": not met).
    fn nodes(keepers: &[&str], spares: &[&str]) -> (Roster, Zones) {
        let (mut roster, mut zones) = (Roster::default(), Zones::default());
        let kept = keepers.iter().map(|zone| (true, zone));
        let all = kept.chain(spares.iter().map(|zone| (false, zone)));
        for (number, (keeps, zone)) in (1..).zip(all) {
            let (node, member) = (NodeId(number), MemberId(number.into()));
            let name = format!("n{number}");
            roster.nodes.insert(node, Enrolled { name, member, address: None, keeps });
            match *zone {
                "?" => {}
                zone => zones.note(node, zone.parse().ok()),
            }
        }
        (roster, zones)
    }

    fn order(keepers: &[&str], goes: u8, spares: &[&str]) -> Vec<u8> {
        let (roster, zones) = nodes(keepers, spares);
        zones.spares_for(NodeId(goes), &roster).iter().map(|node| node.0).collect()
    }

    #[test]
    fn a_spare_is_chosen_whose_zone_has_the_fewest_of_those_that_stay() {
        assert_eq!(order(&["a", "b", "c"], 3, &["a", "b", "c"]), [6, 4, 5], "c has none left");
        assert_eq!(order(&["a", "b", "c"], 1, &["c", "b", "a"]), [6, 4, 5]);
        assert_eq!(order(&["a", "a", "b"], 1, &["a", "b", "c"]), [6, 4, 5], "the one that goes");
        assert_eq!(order(&["a", "a", "b"], 3, &["a", "b"]), [5, 4], "which counts no more");
        assert_eq!(order(&["a", "a", "b", "b", "c"], 5, &["b", "a", "d"]), [8, 6, 7]);
    }

    #[test]
    fn without_zones_spares_are_chosen_by_their_numbers() {
        assert_eq!(order(&["", "", ""], 2, &["", "", ""]), [4, 5, 6]);
        assert_eq!(order(&["?", "?", "?"], 2, &["?", "?"]), [4, 5]);
        assert_eq!(order(&["a", "a", "a"], 2, &["a", "a"]), [4, 5]);
        assert_eq!(order(&["a", "b", "c"], 1, &[]), [0; 0]);
    }

    #[test]
    fn a_spare_that_may_be_in_any_zone_counts_as_in_the_one_with_the_most() {
        assert_eq!(order(&["a", "b", "c"], 3, &["", "c"]), [5, 4]);
        assert_eq!(order(&["a", "b", "c"], 3, &["?", "a"]), [4, 5], "both have one");
        assert_eq!(order(&["a", "a", "b"], 3, &["?", "a"]), [4, 5]);
        assert_eq!(order(&["a", "a", "b", "c", "c"], 5, &["?", "b"]), [7, 6]);
        // Nodes that stay and say none are in no zone that counts.
        assert_eq!(order(&["", "?", "b"], 3, &["a", "b", ""]), [4, 5, 6]);
    }
}
