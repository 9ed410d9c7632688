//! What goes wrong in a world: faults drawn from the mix of the seed.

use super::super::checker::Violation;
use super::super::faults::Fault;
use super::super::host::Host;
use super::{Happening, MILLI, SECOND, World};
use crate::clock::{WALL_ERROR, WallClock};
use nuthatch_quorum::catalog::{Call, Key, Ordering, Txn, TxnId, Value, Wish};
use nuthatch_quorum::node::{Event, Reads};
use nuthatch_quorum::types::{Incarnation, NodeId};

/// For as long nodes may remember what they have heard of a wall clock, in microseconds.
const HEARD: u64 = 2 * SECOND;

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
            Fault::CatalogBack => self.catalog_goes_back(),
            Fault::CatalogAway | Fault::CatalogSlow | Fault::CatalogMute => {
                self.catalog_fails(fault)
            }
            Fault::TakeOver => self.event(any, Event::TakeOver)?,
            Fault::TakeOverTwice => {
                self.event(any, Event::TakeOver)?;
                self.event(other, Event::TakeOver)?;
            }
            Fault::HandOver => {
                let owner = self.owner_or_any();
                if self.schedule.rng.chance(500) {
                    let pause = self.schedule.rng.below(300 * MILLI);
                    self.schedule.after(pause, Happening::HandsOver { at: owner });
                    self.event(owner, Event::Prepare)?;
                } else {
                    let handover = self.handover();
                    self.event(owner, handover)?;
                }
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
            Fault::Trim => self.trim(any)?,
            Fault::TrimOthers => {
                for at in (0..count).filter(|at| *at != any) {
                    self.trim(at)?;
                }
            }
            machine => self.machine_fails(machine, any)?,
        }
        Ok(())
    }

    /// A disk or a clock fails.
    fn machine_fails(&mut self, fault: Fault, any: usize) -> Result<(), Violation> {
        let count = self.hosts.len();
        match fault {
            Fault::FailSync => self.hosts[any].disk.failing = 1,
            Fault::SlowDisk => {
                self.hosts[any].disk.sync_max = self.schedule.rng.between(20 * MILLI, 10 * SECOND);
            }
            Fault::QuickDisk => self.hosts.iter_mut().for_each(|h| h.disk.sync_max = 2_000),
            Fault::FailWrite => self.hosts[any].disk.refusing = 1,
            Fault::DiskFull => {
                let room = self.schedule.rng.below(12);
                self.hosts[any].disk.room = Some(room);
                self.tell_room(any)?;
            }
            Fault::DiskFreed => {
                for at in 0..count {
                    self.hosts[at].disk.room = None;
                    self.tell_room(at)?;
                }
            }
            Fault::WallJump => self.wall_jumps(any),
            Fault::WallSet => {
                self.walls_set_at = Some(self.schedule.now());
                for host in &mut self.hosts {
                    host.wall = WallClock::kept(&mut self.schedule.rng);
                }
            }
            Fault::ClockJump if self.reads_by == Reads::Quorum => {
                let ahead = self.schedule.rng.below(3_600 * SECOND);
                if !self.is_as_wrong(any, ahead) {
                    self.hosts[any].jump(ahead, self.schedule.now());
                }
            }
            Fault::ClockJump => {}
            Fault::Sleep => self.sleep(any),
            Fault::RotLive | Fault::Misdirect | Fault::ReadError => self.harm_live(any, fault)?,
            Fault::Wipe
            | Fault::OldImage
            | Fault::RotTail
            | Fault::RotMiddle
            | Fault::RotPromise
            | Fault::RotNote
            | Fault::RotBase
            | Fault::ForeignDisk
            | Fault::RotIdentity => self.harm(any, fault),
            other => unreachable!("{other:?} is no fault of a machine"),
        }
        Ok(())
    }

    /// A driver says that the files of a keeper are durable.
    fn trim(&mut self, at: usize) -> Result<(), Violation> {
        match self.hosts[at].trim_to(&mut self.schedule.rng) {
            Some(upto) => self.event(at, Event::Trim { upto }),
            None => Ok(()),
        }
    }

    /// The catalog is away or slow for a while.
    fn catalog_fails(&mut self, fault: Fault) {
        let pause = self.schedule.rng.between(50 * MILLI, 3 * SECOND);
        let until = self.schedule.now() + pause;
        match fault {
            Fault::CatalogAway => self.catalog_back = until,
            Fault::CatalogMute => self.catalog_mute_until = until,
            _ => self.catalog_slow_until = until,
        }
    }

    /// A keeper is to be replaced by another node, or two are to come or to go, and perhaps a certain node to own the log.
    fn wish(&mut self) {
        if self.catalog_ahead.is_some() {
            return;
        }
        let wish = self.catalog.state().wish.clone();
        let mut keepers = wish.value.keepers;
        let all = (0..self.hosts.len() as u8).map(NodeId);
        let idle = all.filter(|node| !keepers.contains(node));
        let idle: Vec<NodeId> = idle.filter(|node| !self.impaired.contains(node)).collect();
        let may_shrink = self.may_shrink();
        let rng = &mut self.schedule.rng;
        let resizes = rng.chance(300);
        if resizes && keepers.len() > 3 && may_shrink {
            for _ in 0..2 {
                keepers.remove(rng.below(keepers.len() as u64) as usize);
            }
        } else if resizes && idle.len() >= 2 {
            keepers.extend(&idle[..2]);
        } else if !idle.is_empty() {
            let leaves = rng.below(keepers.len() as u64) as usize;
            keepers[leaves] = *rng.pick(&idle);
        }
        let owner = rng.chance(500).then(|| *rng.pick(&keepers));
        self.fewest_wished = self.fewest_wished.min(keepers.len());
        self.requests += 1;
        let id = TxnId { proposer: Incarnation(0), number: self.requests };
        let value = Value::Wish(Wish { keepers, owner });
        let seen = self.catalog.state().revision;
        let txn = Txn { id, key: Key::Wish, revision: wish.revision, seen, value };
        self.catalog.call(&Call::Propose(txn));
    }

    /// To the node that is wished, as balance does, or to any, as at a clean stop.
    fn handover(&mut self) -> Event {
        let wished = self.catalog.state().wish.value.owner;
        let wished = wished.filter(|_| self.schedule.rng.chance(500));
        wished.map_or(Event::HandOver, Event::HandOverTo)
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

    /// True if a set of three may follow: a majority of it has clocks that are right, and disks that are well.
    fn may_shrink(&self) -> bool {
        self.wrong_walls() <= 1 && !self.were_walls_set() && self.impaired.len() <= 1
    }

    fn wrong_walls(&self) -> usize {
        self.hosts.iter().filter(|host| host.wall.is_wrong()).count()
    }

    /// True if another node tells a wall clock that is as wrong as this one's would be when its clock jumps ahead: two of
    /// three that agree are a majority.
    fn is_as_wrong(&self, at: usize, ahead: u64) -> bool {
        self.are_as_wrong(at, self.hosts[at].wall.error() + ahead.cast_signed())
    }

    fn are_as_wrong(&self, at: usize, error: i64) -> bool {
        // What nodes take for the same, and how wrong those clocks are that are kept.
        const SAME: u64 = 4 * SECOND;
        let now = self.schedule.now();
        let told = |host: &Host| {
            let jumped = host.jumped.filter(|(at, _)| now < at + HEARD).map_or(0, |(_, by)| by);
            [0, host.slept, jumped].map(|by| host.wall.error() + by.cast_signed())
        };
        let others = self.hosts.iter().filter(|host| host.id != self.hosts[at].id);
        let mut told = others.flat_map(told).filter(|told| told.unsigned_abs() > WALL_ERROR);
        told.any(|told| told.abs_diff(error) < SAME)
    }

    /// True while nodes may count what they have heard of clocks that were wrong.
    fn were_walls_set(&self) -> bool {
        self.walls_set_at.is_some_and(|set_at| self.schedule.now() < set_at + HEARD)
    }

    /// A wall clock is set wrong, if a majority of the set stays right, and of the one that is wished.
    fn wall_jumps(&mut self, at: usize) {
        if !self.hosts[at].wall.is_wrong() && self.were_walls_set() {
            return;
        }
        let fewest = self.fewest_kept();
        if self.hosts[at].wall.is_wrong() || self.wrong_walls() < (fewest - 1) / 2 {
            let rng = &mut self.schedule.rng;
            let far = if rng.chance(500) { 3_600 * SECOND } else { 5 * SECOND };
            let micros = rng.below(2 * far) as i64 - far as i64;
            if !self.are_as_wrong(at, self.hosts[at].wall.error() + micros) {
                self.hosts[at].wall.jump(micros);
            }
        }
    }

    /// A machine does nothing for longer than any lease; by its own clock hours have passed then.
    fn sleep(&mut self, at: usize) {
        let pause = self.schedule.rng.between(SECOND, 4 * SECOND);
        if !self.hosts[at].paused {
            let slept = self.schedule.rng.below(5 * 3_600 * SECOND);
            self.hosts[at].slept = if self.is_as_wrong(at, slept) { 0 } else { slept };
            self.pause_for(at, pause);
        }
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
}
