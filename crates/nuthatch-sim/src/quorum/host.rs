//! One machine: a disk, a clock, and the node that runs on them while it runs.

use crate::clock::{Clock, WallClock};
use crate::disk::{Disk, Medium};
use crate::rng::Rng;
use nuthatch_quorum::entry::Base;
use nuthatch_quorum::node::{Config, Event, Node, Reads};
use nuthatch_quorum::rules::Rule;
use nuthatch_quorum::store::{Image, Record, Slot, StoreOp};
use nuthatch_quorum::timing;
use nuthatch_quorum::types::{BootCount, Incarnation, Lsn, MILLISECOND, NodeId, Time, WallTime};

impl Medium for Image {
    type Op = StoreOp;

    fn apply(&mut self, op: &StoreOp) {
        match op {
            StoreOp::Cut { after } => self.assert_kept_aside(*after),
            StoreOp::Install { note, keep: false } => {
                self.assert_kept_aside(note.base.lsn);
            }
            _ => {}
        }
        Image::apply(self, op);
    }

    fn tear(&mut self, op: &StoreOp) -> bool {
        match op {
            StoreOp::Append(entry) | StoreOp::Heal(entry) => self.write(entry.lsn, Slot::Garbage),
            StoreOp::Promise { slot, .. } => self.promises[*slot] = Record::Damaged,
            StoreOp::Drop { upto } => self.drop_to(Lsn(upto.0 / 2)),
            // Files that are replaced as a whole, by a name: there or not.
            _ => return false,
        }
        true
    }

    fn is_barrier(op: &StoreOp) -> bool {
        *op == StoreOp::Barrier
    }

    fn grows(op: &StoreOp) -> bool {
        matches!(op, StoreOp::Append(_))
    }
}

/// What the checker asks of a directory.
pub(super) trait Seen {
    fn assert_kept_aside(&self, after: Lsn);
    fn last_good(&self) -> Lsn;
    fn boots(&self) -> Option<(Incarnation, BootCount)>;
    fn is_foreign(&self, node: NodeId) -> bool;
}

impl Seen for Image {
    /// Q9: nothing is removed that is not kept.
    fn assert_kept_aside(&self, after: Lsn) {
        for slot in self.behind(after) {
            if let Slot::Bytes(entry) = slot {
                assert!(self.aside.contains(entry), "Q9: {entry:?} was removed and is not kept");
            }
        }
    }

    fn last_good(&self) -> Lsn {
        let (base, places) = (self.begins().lsn, self.end().0);
        let mut behind = (base.0 + 1..=places).map(Lsn);
        behind.rfind(|lsn| self.is_good(*lsn)).unwrap_or(base)
    }

    fn boots(&self) -> Option<(Incarnation, BootCount)> {
        match self.identity {
            Record::Good(identity) => Some((identity.incarnation, identity.boots)),
            _ => None,
        }
    }

    fn is_foreign(&self, node: NodeId) -> bool {
        matches!(self.identity, Record::Good(identity) if identity.node != node)
    }
}

/// A machine.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) id: NodeId,
    pub(super) disk: Disk<Image>,
    pub(super) clock: Clock,
    pub(super) wall: WallClock,
    /// True if the node was told that the disk has no room.
    pub(super) told_full: bool,
    /// Hours that the machine will have slept when it wakes, in microseconds.
    pub(super) slept: u64,
    /// When its clock last jumped, and by how much, in microseconds: until the node looks at its wall clock again it tells
    /// one that is as much ahead.
    pub(super) jumped: Option<(u64, u64)>,
    pub(super) node: Option<Node>,
    /// Raised at each start and stop: what was for an earlier life is dropped.
    pub(super) life: u64,
    pub(super) paused: bool,
    /// What came while the process was paused.
    pub(super) deferred: Vec<Event>,
    /// Directories as they were at earlier starts.
    pub(super) images: Vec<Image>,
    pub(super) first: Incarnation,
    /// Entries up to this one have made what they make of the files, which are durable.
    pub(super) applied: Lsn,
    /// It is cold until then.
    pub(super) cold_until: Option<u64>,
}

/// Earlier directories that are kept to be brought back.
const IMAGES: usize = 4;

impl Host {
    pub(super) fn new(
        id: NodeId,
        image: Image,
        clocks: (Clock, WallClock),
        first: Incarnation,
    ) -> Self {
        Self {
            id,
            disk: Disk::new(image),
            clock: clocks.0,
            wall: clocks.1,
            told_full: false,
            slept: 0,
            jumped: None,
            node: None,
            life: 0,
            paused: false,
            deferred: vec![],
            images: vec![],
            first,
            applied: Lsn(0),
            cold_until: None,
        }
    }

    /// What its wall clock shows. One node of sixteen shortens its lease, at its start or some seconds later, and one of eight is
    /// cold for some seconds after each start, or for ever: nothing is drawn for that, so that schedules stay as they were.
    pub(super) fn look(&mut self, now: u64) -> WallTime {
        let drawn = self.first.0 >> 8;
        let lease = if drawn & 16 == 0 { timing::LEASE_MIN } else { 140 * MILLISECOND };
        let from = self.some_seconds();
        if let Some(node) = self.node.as_mut().filter(|_| drawn & 15 == 0 && now >= from) {
            node.shorten_lease(lease);
        }
        if let Some(node) = self.node.as_mut()
            && let Some(until) = self.cold_until
        {
            self.cold_until = Some(until).filter(|until| now < *until);
            node.set_cold(self.cold_until.is_some());
        }
        WallTime(self.wall.at(now))
    }

    /// Up to six of them, of its own.
    fn some_seconds(&self) -> u64 {
        u64::try_from(self.first.0 >> 13 & 3).expect("two bits") * 2_000 * MILLISECOND
    }

    pub(super) fn time(&self, now: u64) -> Time {
        Time(self.clock.at(now))
    }

    /// The clock jumps ahead by `micros`.
    pub(super) fn jump(&mut self, micros: u64, now: u64) {
        if micros > 0 {
            self.clock.jump(micros);
            self.jumped = Some((now, micros));
        }
    }

    pub(super) fn boot(
        &mut self,
        nodes: u8,
        reads: Reads,
        now: u64,
        rng: &mut Rng,
    ) -> Vec<nuthatch_quorum::effect::Effect> {
        assert!(self.node.is_none(), "a node starts once");
        if self.images.len() == IMAGES {
            self.images.remove(0);
        }
        self.images.push(self.disk.durable().clone());
        let fresh = [incarnation(rng), incarnation(rng)];
        let peers = (0..nodes).map(NodeId).filter(|peer| *peer != self.id).collect();
        let scrub_every = timing::SCRUB;
        let config = Config { id: self.id, peers, fresh, former: self.first, reads, scrub_every };
        let (node, effects) = Node::boot(config, self.disk.durable(), self.time(now));
        self.applied = node.keeper().log().base().lsn;
        self.node = Some(node);
        self.told_full = false;
        self.life += 1;
        let is_cold = self.first.0 >> 20 & 7 == 1;
        let until = match self.some_seconds() {
            0 => u64::MAX,
            some => now + some,
        };
        self.cold_until = is_cold.then_some(until);
        effects
    }

    pub(super) fn stop(&mut self, power: bool, rng: &mut Rng) {
        if self.node.take().is_none() {
            return;
        }
        if power {
            self.disk.power_goes(rng);
        } else {
            self.disk.process_ends();
        }
        self.life += 1;
        self.paused = false;
        self.slept = 0;
        self.deferred.clear();
    }

    /// True if the disk has no more room than what is kept for promises and the starts of epochs.
    pub(super) fn is_full(&self) -> bool {
        self.disk.room.is_some_and(|room| room <= RESERVE)
    }

    /// Applies what is committed, as far as it can be read, and chooses up to where the log may be trimmed.
    pub(super) fn trim_to(&mut self, rng: &mut Rng) -> Option<Lsn> {
        let log = self.node.as_ref()?.keeper().log();
        let (base, committed) = (log.base().lsn, log.known_commit());
        let damaged = log.first_damaged().filter(|first| *first > self.applied);
        let readable = damaged.map_or(committed, |first| committed.min(first.before()));
        self.applied = self.applied.max(readable).max(base);
        let least = if rng.chance(500) { base.0 } else { self.applied.0 };
        // Who trims what is not committed takes it for that.
        let uncommitted = !Rule::TrimsCommitted.holds();
        Some(if uncommitted { log.last() } else { Lsn(rng.between(least, self.applied.0)) })
    }

    /// What the files that a node sends hold, when entries up to `base` are trimmed there.
    pub(super) fn files(&self, base: Base, rng: &mut Rng) -> Base {
        let log = self.node.as_ref().expect("it sends").keeper().log();
        let upto = rng.between(base.lsn.0, self.applied.0.max(base.lsn.0));
        log.base_at(Lsn(upto)).unwrap_or(base)
    }

    /// Those of some entries that are durable and cannot be read.
    pub(super) fn unreadable(&self, from: Lsn, upto: Lsn) -> Vec<Lsn> {
        let rewritten = |lsn: Lsn| {
            let mut ops = self.disk.unsynced();
            ops.any(|op| matches!(op, StoreOp::Append(e) | StoreOp::Heal(e) if e.lsn == lsn))
        };
        let all = (from.0..=upto.0).map(Lsn);
        let base = self.disk.durable().begins().lsn;
        let all = all.filter(|lsn| *lsn > base);
        all.filter(|lsn| !self.disk.durable().is_good(*lsn) && !rewritten(*lsn)).collect()
    }

    /// Intact entries that lie at the places of these and not at their own.
    pub(super) fn strays(&self, places: &[Lsn]) -> Vec<Lsn> {
        let disk = self.disk.durable();
        let entry = |lsn: &Lsn| match disk.slot(*lsn) {
            Slot::Bytes(entry) if entry.is_intact() => Some(entry.lsn),
            _ => None,
        };
        places.iter().filter_map(entry).filter(|lsn| !disk.is_good(*lsn)).collect()
    }
}

/// Entries for which room is kept.
const RESERVE: u64 = 8;

pub(super) fn incarnation(rng: &mut Rng) -> Incarnation {
    Incarnation((u128::from(rng.bits()) << 64) | u128::from(rng.bits()))
}
