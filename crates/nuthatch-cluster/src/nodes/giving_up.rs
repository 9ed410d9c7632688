//! What a node held of logs whose copies end with their nodes is gone for good, as people say who know it.
//!
//! Such a log waits while a majority of its copies may be there, and nobody but people can know of a node that is away that it
//! never comes back. Logs on disks are never given up so: what they hold would be lost (`force-recover`).

use super::{Nodes, NodesError, number};
use crate::quorum_log::QuorumLog;
use nuthatch_catalog_group::Roster;
use nuthatch_quorum::types::NodeId;
use std::sync::Arc;
use std::time::Duration;

/// A node that was heard within this may be there still; one that runs for no longer may just have heard nobody yet.
const SILENT_MIN: Duration = Duration::from_secs(3);

impl Nodes {
    /// Has logs in memory, or in a bucket, wait no longer for what a node held of them which is away, and is being replaced or
    /// leaves the logs. With `only_look` nothing is changed. The names of these logs; none where it was said before. Waits for
    /// the catalog.
    pub(crate) fn give_up(
        &self,
        logs: &[Arc<QuorumLog>],
        name: &str,
        only_look: bool,
    ) -> Result<Vec<String>, NodesError> {
        let roster = self.asked();
        if roster.gone(name).is_some() {
            return Ok(vec![]);
        }
        let node = number(&roster, name)?;
        if roster.keepers().contains(&node) {
            return Err(NodesError::KeepsItsPlace { name: name.to_owned() });
        }
        // Whether it is on the node does not matter: a set with it may be on its way to the catalog.
        let begin_anew = logs.iter().filter(|log| log.begins_anew());
        let mut names = Vec::new();
        for log in begin_anew {
            if !log.host().may_give_up(node).map_err(NodesError::NotWished)? {
                continue;
            }
            // Those before it may have taken seconds.
            self.may_be_gone(logs, &roster, node)?;
            if !only_look {
                log.host().give_up(log.number(), node).map_err(NodesError::NotWished)?;
            }
            names.push(log.name());
        }
        Ok(names)
    }

    /// Refuses where the node may be there, and where this node is the one that is cut off: it must hear all that stay.
    fn may_be_gone(
        &self,
        logs: &[Arc<QuorumLog>],
        roster: &Roster,
        node: NodeId,
    ) -> Result<(), NodesError> {
        let me = self.roll.me();
        let hears = |node: NodeId| logs.first().map(|log| log.hears(node)).unwrap_or_default();
        let silent = hears(node).1.unwrap_or_else(|| self.began.elapsed());
        if node == me || silent < SILENT_MIN {
            return Err(NodesError::IsThere { name: roster.name(node) });
        }
        let stay = roster.keepers().into_iter().filter(|keeper| *keeper != me);
        match stay.into_iter().find(|keeper| !hears(*keeper).0) {
            Some(unheard) => Err(NodesError::Unheard { name: roster.name(unheard) }),
            None => Ok(()),
        }
    }
}
