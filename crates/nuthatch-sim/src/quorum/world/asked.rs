//! What tests of single rules ask of a world.

use super::super::checker::Violation;
use super::super::host::Seen;
use super::World;
use nuthatch_quorum::catalog::{Call, Key, Ordering, Txn, TxnId, Value, Wish};
use nuthatch_quorum::doing::Doing;
use nuthatch_quorum::node::Event;
use nuthatch_quorum::store::Slot;
use nuthatch_quorum::types::{Incarnation, Lsn, NodeId};

impl World {
    /// Messages to a node so far, without beats and their answers.
    #[must_use]
    pub fn sent_to(&self, at: usize) -> u64 {
        self.sent_to[at]
    }

    /// How often a keeper was said to be away.
    #[must_use]
    pub fn told_away(&self) -> u64 {
        self.told_away
    }

    /// Ends a process for good.
    pub fn shut_down(&mut self, at: usize) {
        self.hosts[at].stop(false, &mut self.schedule.rng);
    }

    /// A process ends for good, and the others see their connections to it end.
    ///
    /// # Errors
    /// What breaks by it.
    pub fn dies(&mut self, at: usize) -> Result<(), Violation> {
        self.shut_down(at);
        let others = (0..self.hosts.len()).filter(|other| *other != at);
        others.into_iter().try_for_each(|other| self.event(other, Event::Reset(NodeId(at as u8))))
    }

    /// All links are well again.
    pub fn mend(&mut self) {
        self.net.heal();
    }

    /// Clients ask for nothing any more.
    pub fn silence(&mut self) {
        self.silent = true;
    }

    /// An entry could not be read once.
    ///
    /// # Errors
    /// What breaks by it.
    pub fn read_fails(&mut self, at: usize, lsn: Lsn) -> Result<(), Violation> {
        let (damaged, strays) = (vec![lsn], vec![]);
        self.event(at, Event::Verified { from: lsn, upto: lsn, damaged, strays })
    }

    /// The write of the last entry of a disk went to the place of this one.
    pub fn misplace(&mut self, at: usize, lsn: Lsn) {
        let last = self.holds(at);
        let disk = self.hosts[at].disk.durable_mut();
        let (incarnation, _) = disk.boots().expect("it has an identity");
        let astray = disk.slot(last);
        disk.write(lsn, astray);
        disk.write(last, Slot::Empty);
        [lsn, last].into_iter().for_each(|lsn| self.checker.rotted(incarnation, lsn));
    }

    /// A machine has no power for so long. With `torn` the last entry of its disk cannot be read then.
    pub fn set_dark(&mut self, at: usize, micros: u64, torn: bool) {
        self.stop_for(at, true, micros);
        if torn {
            let last = self.holds(at);
            let disk = self.hosts[at].disk.durable_mut();
            let (incarnation, _) = disk.boots().expect("it has an identity");
            disk.write(last, Slot::Garbage);
            self.checker.rotted(incarnation, last);
        }
    }

    /// Entries of a disk up to the last one that cannot be read.
    #[must_use]
    pub fn unreadable(&self, at: usize) -> usize {
        let disk = self.hosts[at].disk.durable();
        (disk.begins().lsn.0 + 1..=disk.last_good().0)
            .filter(|lsn| !disk.is_good(Lsn(*lsn)))
            .count()
    }

    /// Sets a wall clock ahead or back, by microseconds.
    pub fn set_wall(&mut self, at: usize, micros: i64) {
        self.hosts[at].wall.jump(micros);
    }

    /// A node is about to follow the log in memory, or does so, until it starts again.
    pub fn set_cold(&mut self, at: usize, cold: bool) {
        let host = &mut self.hosts[at];
        host.cold_until = None;
        host.node.as_mut().expect("it runs").set_cold(cold);
    }

    /// The last entry of a disk that can be read.
    #[must_use]
    pub fn holds(&self, at: usize) -> Lsn {
        self.hosts[at].disk.durable().last_good()
    }

    /// The last committed entry.
    #[must_use]
    pub fn committed(&self) -> Lsn {
        self.checker.last()
    }

    /// An owner is told that it is about to hand over, or to do so now.
    ///
    /// # Errors
    /// What breaks by it.
    pub fn hands_over(&mut self, at: usize, now: bool) -> Result<(), Violation> {
        self.event(at, if now { Event::HandOver } else { Event::Prepare })
    }

    /// True if a node starts an epoch that does not serve yet.
    #[must_use]
    pub fn is_starting(&self, at: usize) -> bool {
        let node = self.hosts[at].node.as_ref();
        node.is_some_and(|node| node.activity().doing == Doing::Starting)
    }

    /// Wishes for other keepers.
    pub fn wish_for(&mut self, keepers: &[u8]) {
        let keepers = keepers.iter().copied().map(NodeId).collect();
        let revision = self.catalog.state().wish.revision;
        self.requests += 1;
        let id = TxnId { proposer: Incarnation(0), number: self.requests };
        let value = Value::Wish(Wish { keepers, owner: None });
        let seen = self.catalog.state().revision;
        self.catalog.call(&Call::Propose(Txn { id, key: Key::Wish, revision, seen, value }));
    }
}
