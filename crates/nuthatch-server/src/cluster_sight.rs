//! What follows from what this node knows of its cluster, for metrics and pages.

use nuthatch_cluster::{LogSight, NodeSight, NodesSight};

/// How the nodes that keep the logs change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// A spare takes the place of a node.
    Replace,
    /// More nodes are to keep the logs.
    Grow,
    /// Fewer are.
    Shrink,
}

impl Change {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Replace, Self::Grow, Self::Shrink];

    /// Its name, for people and tools.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Replace => "replace",
            Self::Grow => "grow",
            Self::Shrink => "shrink",
        }
    }

    /// The one that is under way.
    #[must_use]
    pub fn of(sight: &NodesSight) -> Option<Self> {
        match (&sight.replacing, &sight.resizing) {
            (Some(_), _) => Some(Self::Replace),
            (None, Some((_, true))) => Some(Self::Grow),
            (None, Some((_, false))) => Some(Self::Shrink),
            (None, None) => None,
        }
    }
}

/// True if nothing that this node knows speaks against stopping any one node; of each log: what is known of it, and whether this
/// node owns it. How far copies are its owner alone knows.
pub fn may_stop<'a>(
    sight: &NodesSight,
    logs: impl IntoIterator<Item = (&'a LogSight, bool)>,
) -> bool {
    let is_there = |node: &NodeSight| !node.keeps || (node.connected && node.uncounted.is_empty());
    let is_well = |(log, is_owned): (&LogSight, bool)| {
        let owner = log.owner.as_ref().map(|owner| owner.name.as_str());
        owner.is_some_and(|owner| !is_owned || log.behind(owner) == 0)
    };
    sight.knows_logs
        && Change::of(sight).is_none()
        && sight.nodes.iter().all(is_there)
        && logs.into_iter().all(is_well)
}

/// The newest protocol that all nodes know; none while one of them is not heard: it may come back with whatever program.
#[must_use]
pub fn all_know(sight: &NodesSight) -> Option<u8> {
    let newest = |node: &NodeSight| Some(node.speaks.filter(|_| node.connected)?.newest.0);
    let all: Option<Vec<u8>> = sight.nodes.iter().map(newest).collect();
    all?.into_iter().min()
}
