//! What a node held of logs whose copies end with their nodes is gone for good, as people say who know it.
//!
//! Such a log waits while a majority of its copies may be there, and nobody but people can know of a node that is away that it
//! never comes back. Logs on disks are never given up so: what they hold would be lost (`force-recover`).

use super::{Nodes, NodesError, number};
use crate::quorum_log::QuorumLog;
use std::sync::Arc;

impl Nodes {
    /// Has logs in memory, or in a bucket, wait no longer for what a node held of them which is away, and is being replaced or
    /// leaves the logs. With `only_look` nothing is changed. The names of these logs. Waits for the catalog.
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
        if node == self.roll.me() || logs.iter().any(|log| log.hears(node).0) {
            return Err(NodesError::IsThere { name: name.to_owned() });
        }
        // Whether it is on the node does not matter: a set with it may be on its way to the catalog.
        let begin_anew = logs.iter().filter(|log| log.begins_anew());
        let mut names = Vec::new();
        for log in begin_anew {
            if !only_look {
                log.host().give_up(log.number(), node).map_err(NodesError::NotWished)?;
            }
            names.push(log.name());
        }
        Ok(names)
    }
}
