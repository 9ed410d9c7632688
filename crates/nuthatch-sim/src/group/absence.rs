//! Nodes that are away for long, of which a leader has the places taken by spares.

use super::check::Violation;
use super::world::{FAULTS_FOR, Life, World};
use nuthatch_catalog_group::{Boot, Envelope, Event, Member, MemberId, TICK};
use nuthatch_quorum::types::NodeId;
use std::collections::BTreeMap;

/// Who has heard whom.
#[derive(Debug, Default)]
pub struct Heard {
    /// When a node was brought something of a member last.
    last: BTreeMap<(usize, MemberId), u64>,
    /// Nodes of which leaders had the places taken.
    pub replaced: u64,
}

/// Ticks for which a node may be away, in every seventh schedule: it is drawn by the seed alone, so that the other schedules
/// are what they were.
pub fn replace_after_ticks(seed: u64) -> Option<u64> {
    (seed % 7 == 3).then_some(20 + seed / 7 % 80)
}

impl World {
    /// True if little happens now. Every fifth schedule ends so.
    pub(super) fn is_quiet(&self) -> bool {
        self.quiet && self.queue.now() >= FAULTS_FOR
    }

    /// Something of a member comes to a node.
    pub(super) fn bring(&mut self, at: usize, bytes: &[u8]) -> Result<(), Violation> {
        let envelope = Envelope::decode(bytes).expect("as it was sent");
        self.step(at, Event::Deliver(Box::new(envelope)))
    }

    /// Notes whom a node hears when it takes this in.
    pub(super) fn note_heard(&mut self, at: usize, event: &Event) {
        let Event::Deliver(envelope) = event else { return };
        // What is for a former disk, or of a disk that was set back, is not listened to.
        let listens = |member: &Member| {
            let outdated = |held: Boot| held.outdates(envelope.boot);
            member.id() == envelope.to && !member.holds(envelope.from).is_some_and(outdated)
        };
        if matches!(&self.nodes[at].life, Life::Runs(member) if listens(member)) {
            self.heard.last.insert((at, envelope.from), self.queue.now());
        }
    }

    /// A leader says that a node is away for so many ticks. `before` the step in which it does so those were the members.
    pub(super) fn look_at_absence(
        &mut self,
        at: usize,
        (old, ticks, replaced): (NodeId, u64, bool),
        before: &BTreeMap<NodeId, MemberId>,
    ) -> Result<(), Violation> {
        let Life::Runs(leader) = &self.nodes[at].life else { return Ok(()) };
        self.heard.replaced += u64::from(replaced);
        let disk = leader.roster().nodes[&old].member;
        if before.get(&old) != Some(&disk) {
            // It has another disk since the same step: the former one is away.
            return Ok(());
        }
        let takes_part =
            |life: &Life| matches!(life, Life::Runs(one) if one.id() == disk && one.takes_part());
        let heard = self.heard.last.get(&(at, disk)).copied().unwrap_or_default();
        let lately = self.queue.now() < heard + (ticks - 1) * TICK;
        // What a disk says that takes no part may be refused.
        match lately && self.nodes.iter().any(|node| takes_part(&node.life)) {
            true => Err(Violation::HeardReplaced(old)),
            false => Ok(()),
        }
    }

    /// A node connects to those that it can reach.
    pub(super) fn meet(&mut self, at: usize) -> Result<(), Violation> {
        for other in (0..self.nodes.len()).filter(|other| *other != at) {
            if let Life::Runs(member) = &self.nodes[other].life
                && self.net.is_up(at, other)
                && self.net.is_up(other, at)
            {
                let met = member.id();
                self.step(at, Event::Met(met))?;
            }
        }
        Ok(())
    }
}
