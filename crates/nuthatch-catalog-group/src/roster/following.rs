//! How logs follow a roster that is not ordered with them: where the catalog is outside the nodes, the roster and each log have
//! an order of their own, and any node may take the next step.
//!
//! A log notes which roster it has followed, and follows none that is earlier. What was begun ends when every log has followed
//! the roster of that time and is on the nodes that are to keep it. So a node that has read a roster, was held up, and
//! goes on after later ones changes nothing: the logs have followed those.

use super::{Refusal, Roster};
use crate::change::{Change, Replacing, Resizing};
use crate::log_catalog::LogCatalog;
use crate::rules::Rule;
use crate::types::LogNumber;
use nuthatch_quorum::types::NodeId;

/// What is to be done next for what was begun.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Due {
    /// Nothing: nothing was begun, or the owners of the logs are at it.
    Nothing,
    /// These logs are to follow the roster ([`LogCatalog::follow`]).
    Follow(Vec<LogNumber>),
    /// The change that ends it is to be made.
    End(Change),
}

impl Roster {
    /// The nodes that are to keep the logs when what was begun is over, in the order of their numbers.
    #[must_use]
    pub fn keepers(&self) -> Vec<NodeId> {
        self.keepers_with(self.resizing.as_ref())
    }

    /// The same with nodes that come or go.
    pub(super) fn keepers_with(&self, resizing: Option<&Resizing>) -> Vec<NodeId> {
        let changed = |node: &NodeId| {
            let of_replacing = self.replacing.and_then(|Replacing { old, new }| match *node {
                node if node == old => Some(false),
                node if node == new => Some(true),
                _ => None,
            });
            let resizing = resizing.filter(|one| one.nodes.contains(node));
            of_replacing.or(resizing.map(|one| one.keep))
        };
        let all = self.nodes.iter();
        let keeps = all.filter(|(node, one)| changed(node).unwrap_or(one.keeps));
        keeps.map(|(node, _)| *node).collect()
    }

    /// What is to be done next, as far as these logs tell, which were read after the roster.
    #[must_use]
    pub fn due(&self, logs: &[LogCatalog]) -> Due {
        let keepers = self.keepers();
        let end = self.end_of_begun();
        let follows = |log: &&LogCatalog| {
            let is_behind = end.is_some() && self.lacks(log);
            is_behind || !log.is_wished(&keepers)
        };
        let behind: Vec<LogNumber> = logs.iter().filter(follows).map(LogCatalog::number).collect();
        match end {
            _ if !behind.is_empty() => Due::Follow(behind),
            Some(end) if self.are_moved(logs) => Due::End(end),
            _ => Due::Nothing,
        }
    }

    /// The change that ends what was begun.
    fn end_of_begun(&self) -> Option<Change> {
        let resized = self.resizing.clone().map(Change::Resized);
        self.replacing.map(Change::Swap).or(resized)
    }

    /// True if a log has not followed this roster.
    fn lacks(&self, log: &LogCatalog) -> bool {
        log.followed() < self.changes && Rule::FollowedFirst.holds()
    }

    /// True if every log is on the nodes that are to keep it, and no others.
    pub(crate) fn are_moved(&self, logs: &[LogCatalog]) -> bool {
        logs.iter().all(LogCatalog::is_as_wished) || !Rule::LogsFirst.holds()
    }

    /// The logs that are to follow this roster before a change can be made.
    #[must_use]
    pub fn to_follow(&self, change: &Change, logs: &[LogCatalog]) -> Vec<LogNumber> {
        let behind = logs.iter().filter(|log| change.is_of_copies() && self.lacks(log));
        behind.map(LogCatalog::number).collect()
    }

    /// Whether a change can be made now, as far as the logs are concerned too.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn check_with(&self, change: &Change, logs: &[LogCatalog]) -> Result<(), Refusal> {
        self.check(change)?;
        match change {
            // Copies of logs would go with it.
            Change::Leave(node) if logs.iter().any(|log| log.is_on(*node)) => {
                Err(Refusal::HasLog(self.name(*node)))
            }
            // What was so when it was proposed may not be any more.
            Change::Swap(_) | Change::Resized(_) if !self.are_moved(logs) => Err(Refusal::Late),
            _ => Ok(()),
        }
    }
}
