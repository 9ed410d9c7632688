//! What goes wrong, and what people do about it. At most a minority of the disks is harmed at a time: lost, or set
//! back to an earlier image. Everything else may happen to all at once.

use super::check::Violation;
use super::world::{Happening, Life, World};
use nuthatch_catalog_group::identity::identify;
use nuthatch_catalog_group::{Boot, MemberId};
use nuthatch_log::env::{Fault, MemDisk};

/// The longest time between two faults, in microseconds.
const BETWEEN_MAX: u64 = 1_500_000;

/// After so many faults somebody wants a node to be drained, or takes that back: beside them, so that none of them is
/// rarer for it.
const DRAIN_EVERY: u64 = 4;

/// Kinds of what may happen.
pub const HARMS: usize = 12;

/// Those of them that need no spare.
pub const SIMPLE_HARMS: usize = 10;

/// What may happen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Harm {
    /// The process ends; what it wrote is there.
    Kill,
    /// The power goes.
    PowerCut,
    /// The power goes at one of the next operations of the disk.
    PowerCutWithin(u64),
    /// The node does nothing for a while.
    Pause(u64),
    /// Links are up or down as these bits say.
    Links(u64),
    /// All links are up.
    Heal,
    /// The disk is empty.
    Wipe,
    /// The disk is kept as it is.
    TakeImage,
    /// The disk is what it was.
    PutImage,
    /// Others hear that a node cannot be reached, rightly or not.
    Lost,
    /// Somebody wants this node to be replaced by a spare.
    Replace,
    /// The node that leads is to be replaced by a spare.
    ReplaceLeader,
}

impl World {
    /// Lets the next fault happen, and draws when another one does.
    ///
    /// # Errors
    /// What it broke.
    pub fn harm(&mut self) -> Result<(), Violation> {
        let at = self.queue.rng.below(self.nodes.len() as u64) as usize;
        let rng = &mut self.queue.rng;
        let kinds = [
            Harm::Kill,
            Harm::PowerCut,
            Harm::PowerCutWithin(rng.between(1, 12)),
            Harm::Pause(rng.between(50_000, 3_000_000)),
            Harm::Links(rng.bits()),
            Harm::Heal,
            Harm::Wipe,
            Harm::TakeImage,
            Harm::PutImage,
            Harm::Lost,
            Harm::Replace,
            Harm::ReplaceLeader,
        ];
        let kind = rng.weighted(&self.weights);
        let after = self.queue.rng.between(10_000, BETWEEN_MAX);
        self.queue.after(after, Happening::Nemesis);
        kind.map_or(Ok(()), |kind| self.suffer(at, kinds[kind]))
    }

    fn suffer(&mut self, at: usize, harm: Harm) -> Result<(), Violation> {
        self.queue.trace.record(self.queue.now(), &(at, harm));
        self.faults += 1;
        if self.faults.is_multiple_of(DRAIN_EVERY) {
            self.drain(at)?;
        }
        match harm {
            Harm::Kill => self.end(at, MemDisk::survive),
            Harm::PowerCut => self.power_cut(at),
            Harm::PowerCutWithin(more) => {
                let disk = &self.nodes[at].disk;
                disk.inject(Fault::PowerCut(disk.operations() + more));
            }
            Harm::Pause(time) => self.nodes[at].paused_until = self.queue.now() + time,
            Harm::Links(bits) => self.net.set_pattern(bits),
            Harm::Heal => self.net.heal(),
            Harm::Wipe => {
                if self.may_harm(at) {
                    self.lose(at);
                }
            }
            Harm::TakeImage if self.nodes[at].image.is_some() => {}
            Harm::TakeImage => {
                let image = self.nodes[at].disk.survive();
                self.nodes[at].image = Some(image);
            }
            Harm::PutImage => self.put_image(at),
            Harm::Lost => self.tell_lost(at),
            Harm::Replace => self.replace(at)?,
            Harm::ReplaceLeader => {
                let leads = |life: &Life| matches!(life, Life::Runs(member) if member.is_leader());
                let leader = self.nodes.iter().position(|node| leads(&node.life));
                self.replace(leader.unwrap_or(at))?;
            }
        }
        Ok(())
    }

    /// The power of a node goes.
    pub fn power_cut(&mut self, at: usize) {
        let seed = self.queue.rng.bits();
        self.end(at, |disk| disk.crash(seed));
    }

    pub(super) fn may_harm(&self, at: usize) -> bool {
        // Once that was asked for, five that vote may become three at any time.
        let fewest = if self.joins.may_be_three { 3 } else { self.founders };
        let most = if self.observer.answers == 0 { 1 } else { (fewest - 1) / 2 };
        // Before anything was answered one loss is enough: what was founded may name disks that are gone.
        let early = self.observer.answers == 0 && self.disks > 0;
        self.harmed.contains(&at) || (self.harmed.len() < most && !early)
    }

    /// A disk is set back, if the other members have heard how it began last: one that none of those that run has
    /// heard could not be told from the true one, and counts as two disks.
    fn put_image(&mut self, at: usize) {
        let Some(image) = self.nodes[at].image.clone() else { return };
        let Some((member, now)) = began(&self.nodes[at].disk) else { return };
        let earlier =
            began(&image).is_some_and(|(id, boot)| id == member && boot.count < now.count);
        let known = (0..self.nodes.len()).filter(|other| *other != at).all(|other| {
            match &self.nodes[other].life {
                Life::Runs(other) => other.holds(member) == Some(now),
                // It has not joined yet, and has seen nothing.
                Life::Seeks { .. } | Life::Joins => other >= self.founders,
                Life::Gone => true,
                Life::Down => false,
            }
        });
        if earlier && known && self.harmed.is_empty() {
            self.harmed.insert(at);
            self.set_back = Some((at, member));
            self.disks += 1;
            self.images += 1;
            self.nodes[at].image = None;
            self.end(at, |_| image);
        }
    }

    /// Who is connected to a node hears that it is gone.
    pub fn tell_lost(&mut self, at: usize) {
        let Life::Runs(member) = &self.nodes[at].life else { return };
        let lost = member.id();
        for other in (0..self.nodes.len()).filter(|other| *other != at) {
            let after = self.queue.rng.between(100, 300_000);
            self.queue.after(after, Happening::Lost(other, lost));
        }
    }

    /// Nothing goes wrong any more.
    pub fn heal(&mut self) {
        self.weights = [0; HARMS];
        self.net.heal();
        self.net.weather = crate::net::Weather::FINE;
        for node in &mut self.nodes {
            node.paused_until = 0;
            node.disk.heal();
        }
    }
}

/// Which member a disk is, and how that began last; none: it has not yet.
fn began(disk: &MemDisk) -> Option<(MemberId, Boot)> {
    disk.file_len("catalog/identity")?;
    let identity = identify(disk, MemberId(1)).ok()?;
    Some((identity.member, identity.boot))
}
