//! Disks that lose, change or confuse what they hold.

use super::super::checker::Violation;
use super::super::faults::Fault;
use super::super::host::{Host, Seen};
use super::World;
use super::whole::reached;
use nuthatch_quorum::catalog::Phase;
use nuthatch_quorum::node::Event;
use nuthatch_quorum::store::{Image, Record, Slot};
use nuthatch_quorum::types::{Incarnation, Lsn, NodeId};
use std::ops::RangeInclusive;

impl World {
    /// How many nodes keep the log, or fewer if a takeover may still bring about so few.
    pub(super) fn fewest_kept(&mut self) -> usize {
        let state = self.catalog.state();
        let kept = state.log.value.set.len();
        if state.log.value.phase == Phase::Serving && state.target() == state.log.value.set {
            self.fewest_wished = kept;
        }
        self.fewest_wished.min(kept)
    }

    /// True if those disks that were harmed before and are not yet made good leave room for another.
    fn may_harm(&mut self, at: usize) -> bool {
        let good = self.hosts.iter().filter(|host| self.is_good(host));
        let good: Vec<NodeId> = good.map(|host| host.id).collect();
        self.impaired.retain(|node| !good.contains(node));
        let id = self.hosts[at].id;
        let tolerated = (self.fewest_kept() - 1) / 2;
        let room = self.impaired.contains(&id) || self.impaired.len() < tolerated;
        // What a disk was is told by the catalog.
        room && self.catalog_ahead.is_none()
    }

    /// True if a disk that was harmed is made good: it is whole and has what it had then, which its own node may have
    /// counted and told nobody yet; or it is none of the log.
    fn is_good(&self, host: &Host) -> bool {
        let disk = host.disk.durable();
        let had = disk.boots().and_then(|(incarnation, _)| self.had.get(&incarnation));
        let again = had.is_none_or(|had| reached(disk) >= *had);
        again && self.is_whole(host) || self.is_fit(host)
    }

    /// Notes how far a disk goes that is about to be harmed.
    fn note_had(&mut self, at: usize, disk: Incarnation) {
        let had = self.had.entry(disk).or_default();
        *had = reached(self.hosts[at].disk.durable()).max(*had);
    }

    /// Harms a disk while its process runs and does not know.
    pub(super) fn harm_live(&mut self, at: usize, fault: Fault) -> Result<(), Violation> {
        let last = self.hosts[at].disk.durable().last_good();
        let id = self.hosts[at].id;
        let disk = self.hosts[at].disk.durable();
        let Some((incarnation, _)) = disk.boots().filter(|_| !disk.is_foreign(id)) else {
            return Ok(());
        };
        let base = disk.begins().lsn;
        if self.hosts[at].node.is_none() || last.0 < base.0 + 2 || !self.may_harm(at) {
            return Ok(());
        }
        let rng = &mut self.schedule.rng;
        let begins = base.0 + 1;
        let oldest = if rng.chance(500) { begins } else { last.0.saturating_sub(4).max(begins) };
        let lsn = Lsn(rng.between(oldest, last.0 - u64::from(fault == Fault::Misdirect)));
        if is_only_trace(self.hosts[at].disk.durable(), lsn) {
            return Ok(());
        }
        self.summary.disks += 1;
        self.impaired.push(id);
        self.note_had(at, incarnation);
        let image = self.hosts[at].disk.durable_mut();
        match fault {
            Fault::ReadError => {
                let (damaged, strays) = (vec![lsn], self.hosts[at].strays(&[lsn]));
                let event = Event::Verified { from: lsn, upto: lsn, damaged, strays };
                return self.event(at, event);
            }
            Fault::Misdirect => {
                let astray = image.slot(last);
                image.write(lsn, astray);
                image.write(last, Slot::Empty);
                self.checker.rotted(incarnation, last);
            }
            _ => image.write(lsn, Slot::Garbage),
        }
        self.checker.rotted(incarnation, lsn);
        Ok(())
    }

    /// Harms a disk, if those that were harmed before and are not yet made good leave room for it: what
    /// is tolerated is a minority of the set.
    pub(super) fn harm(&mut self, at: usize, fault: Fault) {
        if !self.may_harm(at) {
            return;
        }
        let id = self.hosts[at].id;
        self.stop(at, true);
        let before = self.hosts[at].disk.durable();
        let before = if before.is_foreign(id) { None } else { before.boots() };
        if let Some((incarnation, _)) = before {
            self.note_had(at, incarnation);
        }
        if self.harmed(at, fault) {
            self.summary.disks += 1;
            self.impaired.push(id);
            // An old image may be one of a disk that was replaced since; another node's is not harmed.
            let after = self.hosts[at].disk.durable();
            let after = if after.is_foreign(id) { None } else { after.boots() };
            for (incarnation, _) in before.into_iter().chain(after) {
                self.checker.harmed(incarnation, forgets(fault));
            }
        }
    }

    /// Changes what is on a disk; whether it did.
    fn harmed(&mut self, at: usize, fault: Fault) -> bool {
        let known = self.catalog.state().nodes.get(&self.hosts[at].id).map(|row| row.value.clone());
        let rng = &mut self.schedule.rng;
        let other = (at + 1 + rng.below(self.hosts.len() as u64 - 1) as usize) % self.hosts.len();
        // One that has a copy of this node's disk would give back what that was.
        let donor = &self.hosts[other];
        let image = donor.disk.durable();
        let copied = fault == Fault::ForeignDisk && !image.is_foreign(donor.id);
        let foreign = copied.then(|| image.clone());
        let host = &mut self.hosts[at];
        let (base, last) = (host.disk.durable().begins().lsn.0, host.disk.durable().last_good().0);
        match fault {
            Fault::Wipe => *host.disk.durable_mut() = Image::default(),
            Fault::OldImage => {
                let known = known.expect("every node has a row");
                let image = rng.pick(&host.images).clone();
                // Going back within one boot cannot be told from not having gone on.
                let earlier = image.boots().is_some_and(|(incarnation, boots)| {
                    let same = incarnation == known.incarnation && boots < known.boots;
                    same || known.former.contains(&incarnation)
                });
                if !earlier || host.disk.durable().boots().map(|b| b.0) != Some(known.incarnation) {
                    return false;
                }
                *host.disk.durable_mut() = image;
            }
            Fault::RotTail if last > base => {
                let first = last - rng.below(2.min(last - base));
                return rot(host.disk.durable_mut(), first..=last, Slot::Garbage);
            }
            Fault::RotMiddle if last > base + 1 => {
                let oldest =
                    if rng.chance(500) { base + 1 } else { last.saturating_sub(4).max(base + 1) };
                let first = rng.between(oldest, last - 1);
                let end = (first + rng.below(3)).min(last - 1);
                let elsewhere = host.disk.durable().slot(Lsn(last));
                let slot = if rng.chance(500) { Slot::Garbage } else { elsewhere };
                return rot(host.disk.durable_mut(), first..=end, slot);
            }
            Fault::RotBase if host.disk.durable().base != Record::Absent => {
                host.disk.durable_mut().base = Record::Damaged;
            }
            Fault::RotNote if host.disk.durable().cut != Record::Absent => {
                host.disk.durable_mut().cut = Record::Damaged;
            }
            Fault::ForeignDisk => match foreign {
                Some(image) => *host.disk.durable_mut() = image,
                None => return false,
            },
            Fault::RotPromise => {
                let slot = rng.below(2) as usize;
                host.disk.durable_mut().promises[slot] = Record::Damaged;
            }
            Fault::RotIdentity if rng.chance(500) => {
                host.disk.durable_mut().promises = [Record::Damaged; 2];
            }
            Fault::RotIdentity => host.disk.durable_mut().identity = Record::Damaged,
            _ => return false,
        }
        true
    }
}

/// True if the entry here is another place's, where it is not: it alone tells that something is gone there. A second damage
/// does not come here, since no keeper could know then what it lacks (seed 14337329).
fn is_only_trace(image: &Image, lsn: Lsn) -> bool {
    match image.slot(lsn) {
        Slot::Bytes(entry) => entry.lsn != lsn && image.slot(entry.lsn) != Slot::Bytes(entry),
        Slot::Empty | Slot::Garbage => false,
    }
}

/// Writes something to places of a disk; whether it did.
fn rot(image: &mut Image, places: RangeInclusive<u64>, slot: Slot) -> bool {
    let places: Vec<Lsn> = places.map(Lsn).filter(|lsn| !is_only_trace(image, *lsn)).collect();
    places.iter().for_each(|lsn| image.write(*lsn, slot));
    !places.is_empty()
}

/// True if a disk is not the same any more after a fault: it may not answer for its former identity.
fn forgets(fault: Fault) -> bool {
    matches!(
        fault,
        Fault::Wipe | Fault::OldImage | Fault::RotIdentity | Fault::RotBase | Fault::ForeignDisk
    )
}
