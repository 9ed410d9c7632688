//! A log is to be owned by a certain node, or by whichever is best.

use super::{Nodes, NodesError, number};
use crate::quorum_log::QuorumLog;
use nuthatch_catalog_group::Protocol;
use std::sync::Arc;

/// What was asked of the owner of a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MovedLog {
    /// The log's name.
    pub log: String,
    /// Who owns it now, as far as that was heard lately.
    pub owner: Option<String>,
    /// The node that was to own it by somebody's word before.
    pub before: Option<String>,
}

impl Nodes {
    /// Has a log owned by this node from now on, whenever that can; none: by whichever is best. With `only_look` nothing is
    /// changed. Waits for the catalog.
    pub(crate) fn move_log(
        &self,
        logs: &[Arc<QuorumLog>],
        (name, to): (&str, Option<&str>),
        only_look: bool,
    ) -> Result<MovedLog, NodesError> {
        let log = logs.iter().find(|log| log.name() == name).ok_or_else(|| {
            let names: Vec<String> = logs.iter().map(|log| log.name()).collect();
            NodesError::NoSuchLog { name: name.to_owned(), logs: names.join(", ") }
        })?;
        let (roster, sight) = (self.roll.roster(), log.sight());
        if to.is_some() && roster.active < Protocol::OWNERS_NAMED {
            return Err(NodesError::NotFinalized { active: roster.active });
        }
        let to = to.map(|to| number(&roster, to)).transpose()?;
        let keeps = |node| sight.wished.contains(&node) || sight.wished.is_empty();
        if let Some(node) = to.filter(|node| !keeps(*node)) {
            return Err(NodesError::KeepsNoCopy { name: roster.name(node) });
        }
        if let Some(node) = to.filter(|node| sight.drained.contains(node)) {
            return Err(NodesError::Drained { name: roster.name(node) });
        }
        let before = log.host().wished().1.map(|node| roster.name(node));
        if !only_look {
            log.host().wish_owner(to).map_err(NodesError::NotWished)?;
        }
        let owner = sight.owner.map(|owner| owner.name);
        Ok(MovedLog { log: sight.name, owner, before })
    }
}
