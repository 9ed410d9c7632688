//! What goes wrong in a world: faults drawn from the mix of the seed.

use super::super::checker::Violation;
use super::super::faults::Fault;
use super::super::host::Seen;
use super::{Happening, MILLI, SECOND, World};
use nuthatch_quorum::catalog::{Call, Key, Ordering, Txn, TxnId, Value, Wish};
use nuthatch_quorum::node::Event;
use nuthatch_quorum::store::{Image, Record, Slot};
use nuthatch_quorum::types::{Incarnation, Lsn, NodeId};

/// With whose help a node takes over while the owner's lease may run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Usurp {
    /// The owner's own keeper's: the others hear the owner.
    OwnersHelp,
    /// That of keepers which have just started.
    AfterStart,
    /// That of keepers which have not heard the owner for about a lease.
    Deaf,
}

impl World {
    pub(super) fn fault_comes(&mut self) -> Result<(), Violation> {
        if !self.faulty {
            return Ok(());
        }
        let pause = self.schedule.rng.between(10 * MILLI, self.mix.every_max);
        self.schedule.after(pause, Happening::FaultComes);
        let Some(fault) = self.mix.draw(&mut self.schedule.rng) else { return Ok(()) };
        self.schedule.trace.record(self.schedule.now(), &fault);
        self.summary.faults += 1;
        let any = self.schedule.rng.below(self.hosts.len() as u64) as usize;
        self.inject(fault, any)
    }

    /// Lets a fault come at once, at the node `any` if it is one of a node that is drawn.
    ///
    /// # Errors
    /// What breaks by it.
    pub fn inject(&mut self, fault: Fault, any: usize) -> Result<(), Violation> {
        let count = self.hosts.len();
        let other = (any + 1 + self.schedule.rng.below(count as u64 - 1) as usize) % count;
        match fault {
            Fault::PowerCut => self.stop(any, true),
            Fault::Kill => self.stop(any, false),
            Fault::OwnerPowerCut => {
                let at = self.owner_or_any();
                self.stop(at, true);
            }
            Fault::PowerCutAll => (0..count).for_each(|at| self.stop(at, true)),
            Fault::Pause => self.pause(any),
            Fault::OwnerPause => {
                let at = self.owner_or_any();
                self.pause(at);
            }
            Fault::CutLink => self.net.set(any, other, false),
            Fault::Pattern => {
                let pattern = self.schedule.rng.bits();
                self.net.set_pattern(pattern);
            }
            Fault::Isolate => {
                for peer in (0..count).filter(|peer| *peer != any) {
                    self.net.set(any, peer, false);
                    self.net.set(peer, any, false);
                }
            }
            Fault::Mend => self.net.heal(),
            Fault::Reset => {
                self.net.reset(any, other);
                self.event(any, Event::Reset(NodeId(other as u8)))?;
                self.event(other, Event::Reset(NodeId(any as u8)))?;
            }
            Fault::FailSync => self.hosts[any].disk.failing = 1,
            Fault::SlowDisk => {
                self.hosts[any].disk.sync_max = self.schedule.rng.between(20 * MILLI, 10 * SECOND);
            }
            Fault::QuickDisk => self.hosts.iter_mut().for_each(|h| h.disk.sync_max = 2_000),
            Fault::CatalogAway | Fault::CatalogSlow => self.catalog_fails(fault),
            Fault::TakeOver => self.event(any, Event::TakeOver)?,
            Fault::TakeOverTwice => {
                self.event(any, Event::TakeOver)?;
                self.event(other, Event::TakeOver)?;
            }
            Fault::HandOver => {
                let owner = self.owner_or_any();
                self.event(owner, Event::HandOver)?;
            }
            Fault::Wish => self.wish(),
            Fault::Restart => {
                let pause = self.schedule.rng.between(MILLI, 30 * MILLI);
                self.stop_for(any, false, pause);
            }
            Fault::Flap => self.flap(other),
            Fault::Usurp => self.usurp(any),
            Fault::OwnerStall => self.stall()?,
            Fault::Strand => self.strand(any),
            Fault::Wipe
            | Fault::OldImage
            | Fault::RotTail
            | Fault::RotMiddle
            | Fault::RotPromise
            | Fault::RotIdentity => self.harm(any, fault),
        }
        Ok(())
    }

    /// The catalog is away or slow for a while.
    fn catalog_fails(&mut self, fault: Fault) {
        let pause = self.schedule.rng.between(50 * MILLI, 3 * SECOND);
        let until = self.schedule.now() + pause;
        if fault == Fault::CatalogAway {
            self.catalog_back = until;
        } else {
            self.catalog_slow_until = until;
        }
    }

    /// A keeper is to be replaced by another node, and perhaps a certain node to own the log.
    fn wish(&mut self) {
        let wish = self.catalog.state().wish.clone();
        let mut keepers = wish.value.keepers;
        let all = (0..self.hosts.len() as u8).map(NodeId);
        let idle = all.filter(|node| !keepers.contains(node));
        let idle: Vec<NodeId> = idle.filter(|node| !self.impaired.contains(node)).collect();
        let rng = &mut self.schedule.rng;
        if !idle.is_empty() {
            let leaves = rng.below(keepers.len() as u64) as usize;
            keepers[leaves] = *rng.pick(&idle);
        }
        let owner = rng.chance(500).then(|| *rng.pick(&keepers));
        self.requests += 1;
        let id = TxnId { proposer: Incarnation(0), number: self.requests };
        let value = Value::Wish(Wish { keepers, owner });
        let txn = Txn { id, key: Key::Wish, revision: wish.revision, value };
        self.catalog.call(&Call::Propose(txn));
    }

    /// The links between the owner and another node go away for less than a second.
    fn flap(&mut self, peer: usize) {
        let owner = self.owner_or_any();
        let ways = self.schedule.rng.below(3);
        for (way, from, to) in [(0, owner, peer), (1, peer, owner)] {
            if ways != way && owner != peer {
                let pause = self.schedule.rng.between(100 * MILLI, 900 * MILLI);
                self.cut_for(from, to, pause);
            }
        }
    }

    /// A node takes over that has heard nothing of the owner for a little more than a lease. The owner may
    /// still have one: the others hear it, or have just started, or heard it until then.
    fn usurp(&mut self, any: usize) {
        let owner = self.owner_or_any();
        let count = self.hosts.len();
        let at = if any == owner { (any + 1) % count } else { any };
        let way = *self.schedule.rng.pick(&[Usurp::OwnersHelp, Usurp::AfterStart, Usurp::Deaf]);
        let pause = self.schedule.rng.between(200 * MILLI, 350 * MILLI);
        self.cut_for(owner, at, if way == Usurp::OwnersHelp { pause } else { 900 * MILLI });
        if way != Usurp::OwnersHelp {
            self.cut_for(at, owner, 900 * MILLI);
        }
        if way == Usurp::Deaf {
            for helper in self.helpers(owner, at) {
                let pause = self.schedule.rng.between(200 * MILLI, 500 * MILLI);
                self.cut_for(owner, helper, pause);
            }
            if self.schedule.rng.chance(500) {
                self.hosts[at].disk.sync_max = self.schedule.rng.between(20 * MILLI, 300 * MILLI);
            }
        }
        let early = if way == Usurp::AfterStart { 0 } else { self.schedule.rng.below(200 * MILLI) };
        let restart = (way == Usurp::AfterStart).then_some(owner);
        self.schedule.after(pause.saturating_sub(early) + MILLI, Happening::Told { at, restart });
    }

    fn helpers(&self, owner: usize, at: usize) -> Vec<usize> {
        (0..self.hosts.len()).filter(|helper| *helper != owner && *helper != at).collect()
    }

    /// A node is told to take over, after all but it and the owner have been killed.
    pub(super) fn told(&mut self, at: usize, restart: Option<usize>) -> Result<(), Violation> {
        if !self.faulty {
            return Ok(());
        }
        for helper in restart.map_or(vec![], |owner| self.helpers(owner, at)) {
            let pause = self.schedule.rng.between(MILLI, 10 * MILLI);
            self.stop_for(helper, false, pause);
        }
        self.event(at, Event::TakeOver)
    }

    fn cut_for(&mut self, from: usize, to: usize, pause: u64) {
        self.net.set(from, to, false);
        self.schedule.after(pause, Happening::LinkUp { from, to });
    }

    /// The owner does nothing for a moment, and the others see their connections to it end.
    fn stall(&mut self) -> Result<(), Violation> {
        let owner = self.owner_or_any();
        let pause = self.schedule.rng.between(150 * MILLI, 700 * MILLI);
        self.pause_for(owner, pause);
        for peer in (0..self.hosts.len()).filter(|peer| *peer != owner) {
            self.event(peer, Event::Reset(NodeId(owner as u8)))?;
        }
        Ok(())
    }

    /// As many keepers as may be away are left behind for a while; see [`Self::stranded`].
    fn strand(&mut self, first: usize) {
        let (behind, _, _) = self.parties(first);
        for (from, to) in self.between(&behind) {
            self.net.set(from, to, false);
        }
        let pause = self.schedule.rng.between(100 * MILLI, 500 * MILLI);
        self.schedule.after(pause, Happening::Stranded { first });
    }

    /// Those that were left behind are back, one disk that was not loses its tail or something before it,
    /// and the machines of all others stay dark for longer than a takeover waits for them.
    pub(super) fn stranded(&mut self, first: usize) {
        if !self.faulty {
            return;
        }
        let (behind, harmed, rest) = self.parties(first);
        for (from, to) in self.between(&behind) {
            self.net.set(from, to, true);
        }
        let pause = self.schedule.rng.between(10 * MILLI, 300 * MILLI);
        self.stop_for(harmed, true, pause);
        let tail = self.schedule.rng.chance(500);
        self.harm(harmed, if tail { Fault::RotTail } else { Fault::RotMiddle });
        for at in rest {
            let pause = self.schedule.rng.between(4 * SECOND, 6 * SECOND);
            self.stop_for(at, true, pause);
        }
    }

    /// A minority that is as large as can be, one more node, and the rest.
    fn parties(&self, first: usize) -> (Vec<usize>, usize, Vec<usize>) {
        let count = self.hosts.len();
        let nodes: Vec<usize> = (0..count).map(|n| (first + n) % count).collect();
        let minority = (count - 1) / 2;
        (nodes[..minority].to_vec(), nodes[minority], nodes[minority + 1..].to_vec())
    }

    /// The directed links between some nodes and all others.
    fn between(&self, some: &[usize]) -> Vec<(usize, usize)> {
        let others = (0..self.hosts.len()).filter(|at| !some.contains(at));
        others.flat_map(|a| some.iter().flat_map(move |b| [(a, *b), (*b, a)])).collect()
    }

    fn pause(&mut self, at: usize) {
        let pause = self.schedule.rng.between(50 * MILLI, 4 * SECOND);
        self.pause_for(at, pause);
    }

    fn pause_for(&mut self, at: usize, pause: u64) {
        if self.hosts[at].paused || self.hosts[at].node.is_none() {
            return;
        }
        self.hosts[at].paused = true;
        let life = self.hosts[at].life;
        self.schedule.after(pause, Happening::Wake { at, life });
    }

    /// Harms a disk, if those that were harmed before and are not yet made good leave room for it: what
    /// is tolerated is a minority of the set.
    fn harm(&mut self, at: usize, fault: Fault) {
        let good = self.hosts.iter().filter(|host| self.is_whole(host) || self.is_fit(host));
        let good: Vec<NodeId> = good.map(|host| host.id).collect();
        self.impaired.retain(|node| !good.contains(node));
        let id = self.hosts[at].id;
        let tolerated = (self.catalog.state().log.value.set.len() - 1) / 2;
        if !self.impaired.contains(&id) && self.impaired.len() >= tolerated {
            return;
        }
        self.stop(at, true);
        let before = self.hosts[at].disk.durable().boots();
        if self.harmed(at, fault) {
            self.summary.disks += 1;
            self.impaired.push(id);
            // An old image may be one of a disk that was replaced since.
            let after = self.hosts[at].disk.durable().boots();
            for (incarnation, _) in before.into_iter().chain(after) {
                self.checker.harmed(incarnation, forgets(fault));
            }
        }
    }

    /// Changes what is on a disk; whether it did.
    fn harmed(&mut self, at: usize, fault: Fault) -> bool {
        let known = self.catalog.state().nodes.get(&self.hosts[at].id).map(|row| row.value.clone());
        let rng = &mut self.schedule.rng;
        let host = &mut self.hosts[at];
        let last = host.disk.durable().last_good().0;
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
            Fault::RotTail if last > 0 => {
                let first = last - rng.below(2.min(last));
                for lsn in first..=last {
                    host.disk.durable_mut().write(Lsn(lsn), Slot::Garbage);
                }
            }
            Fault::RotMiddle if last > 1 => {
                let oldest = if rng.chance(500) { 1 } else { last.saturating_sub(4).max(1) };
                let first = rng.between(oldest, last - 1);
                let end = (first + rng.below(3)).min(last - 1);
                let elsewhere = host.disk.durable().slot(Lsn(last));
                let slot = if rng.chance(500) { Slot::Garbage } else { elsewhere };
                for lsn in first..=end {
                    host.disk.durable_mut().write(Lsn(lsn), slot);
                }
            }
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

/// True if a disk is not the same any more after a fault: it may not answer for its former identity.
fn forgets(fault: Fault) -> bool {
    matches!(fault, Fault::Wipe | Fault::OldImage | Fault::RotIdentity)
}
