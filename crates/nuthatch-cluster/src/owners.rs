//! Which node is to own a log.
//!
//! The nodes that are to keep a log are named in an order, with another one first for each log: its place. A log goes to the
//! node in its place; where that is drained, or not in a zone in which logs are to be owned, to another one.

use nuthatch_catalog_group::LogNumber;
use nuthatch_quorum::types::NodeId;
use std::collections::BTreeSet;

/// What decides who is to own a log.
pub(crate) struct Owners {
    /// The nodes that are to keep it, the one in its place first; none: that is not known.
    pub(crate) wished: Vec<NodeId>,
    /// The one that people want to own it.
    pub(crate) asked: Option<NodeId>,
    /// All that keep logs, in their order: they count where no others are known.
    pub(crate) keepers: Vec<NodeId>,
    /// Those that are to own nothing while others can.
    pub(crate) drained: BTreeSet<NodeId>,
    /// Those in zones in which logs are to be owned that could own it.
    pub(crate) favoured: BTreeSet<NodeId>,
}

impl Owners {
    /// The node that is to own a log. Before anything is known of who is to keep it, the one in its place.
    pub(crate) fn preferred(&self, number: LogNumber) -> NodeId {
        if let Some(asked) = self.able_asked() {
            return asked;
        }
        let found = preferred(number, &self.wished, &self.drained, &self.favoured);
        found.unwrap_or_else(|| self.keepers[number.index() % self.keepers.len()])
    }

    /// The node that people want to own it, if that is to keep it and is not drained.
    fn able_asked(&self) -> Option<NodeId> {
        self.asked.filter(|node| self.wished.contains(node) && !self.drained.contains(node))
    }

    /// The nodes that may own it while there are such ones: not drained, and favoured if any of them is.
    pub(crate) fn may_own(&self) -> BTreeSet<NodeId> {
        let known = if self.wished.is_empty() { &self.keepers } else { &self.wished };
        let able = known.iter().copied().filter(|node| !self.drained.contains(node));
        let able: BTreeSet<NodeId> = able.collect();
        let inside: BTreeSet<NodeId> = able.intersection(&self.favoured).copied().collect();
        if inside.is_empty() { able } else { inside }
    }
}

/// The node that is to own a log of those that are to keep it, which are named in `wished`: the first. The logs of one that is
/// drained are spread over the others. Where some are `favoured` and not drained, those own all logs: each its own, and
/// those of the others in turn. None where nobody is known.
pub(crate) fn preferred(
    number: LogNumber,
    wished: &[NodeId],
    drained: &BTreeSet<NodeId>,
    favoured: &BTreeSet<NodeId>,
) -> Option<NodeId> {
    let first = *wished.first()?;
    let is_favoured = |node: &NodeId| favoured.contains(node) && !drained.contains(node);
    if wished.iter().any(is_favoured) {
        return Some(favoured_owner(number, wished, is_favoured));
    }
    let others: Vec<NodeId> =
        wished.iter().copied().filter(|node| !drained.contains(node)).collect();
    if others.is_empty() || !drained.contains(&first) {
        return Some(first);
    }
    let round = number.index() / wished.len();
    Some(others[round % others.len()])
}

/// Of the favoured nodes, of which there are some, the one that is to own a log. The order of places is the same for all logs,
/// so that each finds by itself whose turn it is.
fn favoured_owner(
    number: LogNumber,
    wished: &[NodeId],
    is_favoured: impl Fn(&NodeId) -> bool,
) -> NodeId {
    if is_favoured(&wished[0]) {
        return wished[0];
    }
    let (round, place) = (number.index() / wished.len(), number.index() % wished.len());
    let mut places = wished.to_vec();
    places.rotate_right(place);
    let favoured: Vec<NodeId> = places.iter().copied().filter(&is_favoured).collect();
    let others_before = places[..place].iter().filter(|node| !is_favoured(node)).count();
    let turn = round * (places.len() - favoured.len()) + others_before;
    favoured[turn % favoured.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The owners of the first logs of so many nodes.
    fn owners(nodes: u8, logs: u8, drained: &[u8], favoured: &[u8]) -> Vec<u8> {
        let set = |of: &[u8]| of.iter().copied().map(NodeId).collect::<BTreeSet<NodeId>>();
        let wished = |log: u8| {
            let mut wished: Vec<NodeId> = (1..=nodes).map(NodeId).collect();
            wished.rotate_left(usize::from(log % nodes));
            wished
        };
        let of = |log| preferred(LogNumber(log), &wished(log), &set(drained), &set(favoured));
        (0..logs).map(|log| of(log).expect("somebody").0).collect()
    }

    #[test]
    fn logs_of_a_drained_node_are_spread_over_the_others() {
        assert_eq!(owners(3, 7, &[], &[]), [1, 2, 3, 1, 2, 3, 1]);
        assert_eq!(owners(3, 7, &[1], &[]), [2, 2, 3, 3, 2, 3, 2]);
        assert_eq!(owners(3, 7, &[1, 3], &[]), [2; 7]);
        assert_eq!(owners(3, 7, &[1, 2, 3], &[]), owners(3, 7, &[], &[]), "somebody has to");
        let none = BTreeSet::new();
        assert_eq!(preferred(LogNumber(0), &[], &none, &none), None);
    }

    #[test]
    fn favoured_nodes_own_their_logs_and_those_of_the_others_in_turn() {
        assert_eq!(owners(3, 6, &[], &[1, 2]), [1, 2, 1, 1, 2, 2]);
        assert_eq!(owners(3, 6, &[], &[2]), [2; 6]);
        assert_eq!(owners(3, 6, &[], &[1, 2, 3]), owners(3, 6, &[], &[]));
        assert_eq!(owners(5, 5, &[], &[2, 4]), [2, 2, 4, 4, 2]);
        assert_eq!(owners(5, 10, &[], &[1, 2]), [1, 2, 1, 2, 1, 1, 2, 2, 1, 2]);
        assert_eq!(owners(3, 6, &[], &[7]), owners(3, 6, &[], &[]), "it keeps no log");
    }

    #[test]
    fn a_favoured_node_that_is_drained_owns_nothing() {
        assert_eq!(owners(3, 6, &[1], &[1, 2]), [2; 6]);
        assert_eq!(owners(3, 6, &[1], &[1]), owners(3, 6, &[1], &[]));
        assert_eq!(owners(3, 3, &[1, 2, 3], &[1]), [1, 2, 3]);
    }
}
