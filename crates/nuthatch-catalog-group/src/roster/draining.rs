//! Nodes that are to own no log and not to lead the catalog, while they keep their copies: before maintenance.

use super::{Refusal, Roster, WITH_DRAINED, rank};
use crate::change::{Draining, Resizing};
use crate::coding::{Malformed, Reader, Writer};
use crate::types::MemberId;
use nuthatch_quorum::types::NodeId;
use std::collections::BTreeSet;

impl Roster {
    /// The disks of the nodes that are to own nothing.
    #[must_use]
    pub fn drained_members(&self) -> Vec<MemberId> {
        let drained = self.nodes.iter().filter(|(node, _)| self.drained.contains(node));
        drained.map(|(_, enrolled)| enrolled.member).collect()
    }

    /// The disks of the nodes that are about to lose their votes.
    #[must_use]
    pub fn going_members(&self) -> Vec<MemberId> {
        let resized = self.resizing.as_ref().filter(|resizing| !resizing.keep);
        let resized = resized.into_iter().flat_map(|resizing| resizing.nodes.iter());
        let going = self.replacing.iter().map(|replacing| &replacing.old).chain(resized);
        going.filter_map(|node| self.nodes.get(node)).map(|enrolled| enrolled.member).collect()
    }

    /// Ranks by which a node waits longer before it stands for the lead: a drained one is behind all others.
    #[must_use]
    pub fn ranks_behind(&self, node: NodeId) -> u8 {
        match self.drained.contains(&node) {
            true => self.nodes.keys().map(|node| rank(*node) + 1).max().unwrap_or_default(),
            false => 0,
        }
    }

    /// True if somebody who keeps the logs when this is over is not among `drained`.
    pub(super) fn is_owned_with(
        &self,
        resizing: Option<&Resizing>,
        drained: &BTreeSet<NodeId>,
    ) -> bool {
        self.keepers_with(resizing).iter().any(|node| !drained.contains(node))
    }

    pub(super) fn check_drain(&self, Draining { node, drain }: Draining) -> Result<(), Refusal> {
        let one = self.enrolled(node)?;
        if !drain {
            return Ok(());
        }
        if !one.keeps {
            return Err(Refusal::OwnsNothing(one.name.clone()));
        }
        let mut drained = self.drained.clone();
        drained.insert(node);
        // Now, and when what is under way is over, and if that is taken back.
        let now = self.nodes.iter().any(|(node, one)| one.keeps && !drained.contains(node));
        match now && self.is_owned_with(self.resizing.as_ref(), &drained) {
            true => Ok(()),
            false => Err(Refusal::AllDrained),
        }
    }

    pub(super) fn drain(&mut self, Draining { node, drain }: Draining) {
        match drain {
            true => self.drained.insert(node),
            false => self.drained.remove(&node),
        };
    }

    /// Appends the drained nodes. None are written as nothing, as before there could be some.
    pub(super) fn put_drained(&self, to: &mut Writer) {
        if !self.drained.is_empty() {
            to.u8(WITH_DRAINED);
            let drained: Vec<NodeId> = self.drained.iter().copied().collect();
            to.all(&drained, |to, node| to.u8(node.0));
        }
    }

    pub(super) fn read_drained(from: &mut Reader<'_>) -> Result<BTreeSet<NodeId>, Malformed> {
        if from.0.first() != Some(&WITH_DRAINED) {
            return Ok(BTreeSet::new());
        }
        from.u8()?;
        Ok(from.all(|from| Ok(NodeId(from.u8()?)))?.into_iter().collect())
    }
}
