//! The end of the faults, and whether everything has recovered from them.

use super::super::host::{Host, Seen};
use super::{Happening, MILLI, World};
use crate::clock::WallClock;
use crate::net::Weather;
use nuthatch_quorum::catalog::Phase;
use nuthatch_quorum::node::Event;
use nuthatch_quorum::store::{Image, Record, Slot, StoreOp};
use nuthatch_quorum::types::{Lsn, Member, Position};

impl World {
    /// Faults stop: what is away comes back, and nothing fails any more.
    pub(super) fn heal(&mut self) {
        self.faulty = false;
        self.net.heal();
        self.net.weather = Weather::FINE;
        self.catalog_back = 0;
        self.catalog_slow_until = 0;
        self.catalog_mute_until = 0;
        self.catalog_forward();
        self.leave_one_full();
        for at in 0..self.hosts.len() {
            self.hosts[at].disk.failing = 0;
            self.hosts[at].disk.refusing = 0;
            self.hosts[at].disk.sync_max = 2_000;
            self.hosts[at].wall = WallClock::kept(&mut self.schedule.rng);
            self.replace_foreign(at);
            let life = self.hosts[at].life;
            self.schedule.after(0, Happening::Wake { at, life });
            if self.hosts[at].disk.busy_until() > self.schedule.now() + 100 * MILLI {
                // A sync that takes ten seconds is a fault that goes on.
                self.stop(at, false);
            }
            if self.hosts[at].node.is_none() {
                self.schedule.after(20 * MILLI, Happening::Boot { at });
            }
        }
    }

    /// All disks get room but one, where the log can do without that.
    fn leave_one_full(&mut self) {
        let state = self.catalog.state();
        let settled = state.target() == state.log.value.set;
        let full = self.hosts.iter().position(|host| host.disk.room.is_some());
        for at in 0..self.hosts.len() {
            if full != Some(at) || !settled || !self.impaired.is_empty() {
                self.hosts[at].disk.room = None;
            }
        }
    }

    /// A disk of another node is taken out, and an empty one put in.
    fn replace_foreign(&mut self, at: usize) {
        if self.hosts[at].disk.durable().is_foreign(self.hosts[at].id) {
            self.stop(at, true);
            *self.hosts[at].disk.durable_mut() = Image::default();
        }
    }

    /// True if the set is the one that is wished, every disk of it is the one in its node, and each holds
    /// all that is committed.
    pub(super) fn all_whole(&self) -> bool {
        let state = self.catalog.state();
        let kept =
            |host: &&Host| state.wish.value.keepers.contains(&host.id) && host.disk.room.is_none();
        state.target() == state.log.value.set
            && self.hosts.iter().filter(kept).all(|host| self.is_whole(host))
    }

    /// True if a node neither keeps the log nor is about to, and its disk is one that might.
    pub(super) fn is_fit(&self, host: &Host) -> bool {
        let state = self.catalog.state();
        let kept = state.log.value.set.iter().any(|member| member.node == host.id);
        let idle = !kept && !state.wish.value.keepers.contains(&host.id);
        let disk = host.disk.durable();
        let named = disk.boots().is_some_and(|(disk, _)| {
            state.nodes[&host.id].value.incarnation == disk && !self.checker.has_lost(disk)
        });
        // A takeover under way may still bring about an earlier wish.
        idle && named && has_promised(disk) && state.log.value.phase == Phase::Serving
    }

    pub(super) fn is_whole(&self, host: &Host) -> bool {
        let disk = host.disk.durable();
        let set = &self.catalog.state().log.value.set;
        let named = disk.boots().is_some_and(|(incarnation, _)| {
            let member = Member { node: host.id, incarnation };
            set.contains(&member) && !self.checker.has_lost(incarnation)
        });
        let base = disk.begins();
        let good = |index: usize, sum| {
            let lsn = Lsn(index as u64 + 1);
            lsn <= base.lsn
                || disk.is_good(lsn) && matches!(disk.slot(lsn), Slot::Bytes(e) if e.sum == sum)
        };
        // What a process could not read it does not hold.
        let damaged = host.node.as_ref().and_then(|node| node.keeper().damaged()).is_some();
        // One that stands still is told later.
        let is_damage =
            |event: &Event| matches!(event, Event::Verified { damaged, .. } if !damaged.is_empty());
        let damaged = damaged || host.deferred.iter().any(is_damage);
        // What is being written anew may be torn, although it was readable before.
        let heals = host.disk.unsynced().any(|op| matches!(op, StoreOp::Heal(_)));
        // What is decided and not committed yet must be here, too, and nothing before the end be damaged.
        let last = disk.last_good();
        let sound = (base.lsn.0 + 1..=last.0).all(|lsn| disk.is_good(Lsn(lsn)));
        // What it said is done may be under way to the owner, and be committed when it arrives.
        let at = reached(disk);
        let owes = disk.boots().is_some_and(|(incarnation, _)| self.checker.owes(incarnation, at));
        named
            && sound
            && !damaged
            && !heals
            && !owes
            && last >= self.catalog.state().log.value.start
            && has_promised(disk)
            && disk.base != Record::Damaged
            && self.checker.committed.iter().enumerate().all(|(at, c)| good(at, c.sum))
    }
}

/// How far what can be read of a disk goes.
pub(super) fn reached(disk: &Image) -> Position {
    let (base, lsn) = (disk.begins(), disk.last_good());
    let accepted = match disk.slot(lsn) {
        Slot::Bytes(entry) if lsn > base.lsn => entry.epoch,
        Slot::Bytes(_) | Slot::Empty | Slot::Garbage => base.epoch,
    };
    Position { accepted, lsn }
}

fn has_promised(disk: &Image) -> bool {
    disk.promises.iter().all(|slot| matches!(slot, Record::Good(_)))
}
