//! The cluster goes on to a later protocol, when all its nodes know it.

use super::{Nodes, NodesError};
use crate::quorum_log::QuorumLog;
use nuthatch_catalog_group::{Change, Protocol, Roster};
use nuthatch_quorum::types::NodeId;
use std::sync::Arc;

/// Whether the nodes are to speak something else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finalize {
    /// Nothing is changed: what could be.
    Look,
    /// They are to speak this, if it is the newest that all of them know.
    To(Protocol),
}

/// What the nodes speak, and what they may.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finalizing {
    /// What they speak.
    pub active: Protocol,
    /// The newest that all of them know.
    pub all_know: Protocol,
    /// The nodes that know nothing newer than that, while another one does.
    pub held_back_by: Vec<String>,
}

impl Nodes {
    /// Has the nodes speak the newest protocol that all of them know. Gives what they spoke before.
    pub(crate) fn finalize(
        &self,
        logs: &[Arc<QuorumLog>],
        finalize: Finalize,
    ) -> Result<Finalizing, NodesError> {
        let roster = self.asked();
        let finalizing = self.finalizing(&roster, logs)?;
        let Finalize::To(active) = finalize else { return Ok(finalizing) };
        if active <= finalizing.active {
            return Ok(finalizing);
        }
        if active != finalizing.all_know {
            let (asked, all_know) = (active, finalizing.all_know);
            return Err(NodesError::OtherProtocol { asked, all_know });
        }
        self.changes.change(Change::Finalize { active, changes: roster.changes })?;
        Ok(finalizing)
    }

    /// What could be done now. A node that is away may come back with whatever program.
    fn finalizing(
        &self,
        roster: &Roster,
        logs: &[Arc<QuorumLog>],
    ) -> Result<Finalizing, NodesError> {
        let newest = |node: &NodeId| {
            let is_there = *node == self.roll.me() || logs.iter().any(|log| log.hears(*node).0);
            let met = self.node.met(*node).filter(|_| is_there);
            let unknown = || NodesError::VersionUnknown { name: roster.name(*node) };
            met.map(|met| (*node, met.speaks.newest)).ok_or_else(unknown)
        };
        let newest = roster.nodes.keys().map(newest).collect::<Result<Vec<_>, NodesError>>()?;
        let known = newest.iter().map(|(_, newest)| *newest);
        let all_know = known.clone().min().unwrap_or_default().max(roster.active);
        let is_behind = |(_, newest): &&(NodeId, Protocol)| known.clone().max() > Some(*newest);
        let behind = newest.iter().filter(is_behind).filter(|(_, newest)| *newest <= all_know);
        let held_back_by = behind.map(|(node, _)| roster.name(*node)).collect();
        Ok(Finalizing { active: roster.active, all_know, held_back_by })
    }
}
