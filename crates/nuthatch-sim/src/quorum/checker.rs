//! The observer: looks at all nodes and disks after every step, and at every message that is sent.

use super::host::{Host, Seen};
use crate::clock::{WALL_ERROR, WallClock};
use nuthatch_quorum::catalog::Snapshot;
use nuthatch_quorum::effect::{Alarm, Effect};
use nuthatch_quorum::entry::{Body, Entry};
use nuthatch_quorum::message::{Envelope, Message, Wholeness};
use nuthatch_quorum::node::Node;
use nuthatch_quorum::store::{Image, Record, Slot, StoreOp};
use nuthatch_quorum::timing;
use nuthatch_quorum::types::{
    Epoch, Incarnation, Lsn, Member, NodeId, Position, Promise, Sum, WallTime, majority,
};
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// Which invariant does not hold.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum ViolationKind {
    /// An epoch has two owners.
    #[error("Q1: two owners of one epoch")]
    TwoOwners,
    /// A promise fell.
    #[error("Q2: a promise fell, or was given before it was durable")]
    PromiseFell,
    /// An answer was too early.
    #[error("Q3: an entry was said to be done and is not on the disk")]
    NotDurable,
    /// A commit was too early.
    #[error("Q4, Q7: an entry was committed and is not on a majority of the set")]
    NotOnMajority,
    /// Two directories differ.
    #[error("Q5, Q13: two directories of one epoch differ")]
    Diverged,
    /// A committed entry was lost.
    #[error("Q6: an epoch began without what was committed before")]
    Lost,
    /// Something was trimmed that is not committed.
    #[error("M19: what was trimmed is not what is committed")]
    Trimmed,
    /// A disk claims to be another one.
    #[error("Q8: a disk that lost its state answered as before")]
    FormerDisk,
    /// A keeper hides damage.
    #[error("Q10: a keeper called itself whole without what it had said was done")]
    NotWhole,
    /// A commit position is not for ever.
    #[error("Q11: a commit position fell, or one entry has two contents")]
    CommitFell,
    /// Leases overlap.
    #[error("Q12: two nodes have a lease, or a read was stale")]
    StaleRead,
    /// A keeper without room was to write a frame.
    #[error("a keeper that was told that its disk has no room wrote a frame")]
    WroteWhenFull,
    /// A message is longer than a window.
    #[error("a message holds more than a window of entries")]
    Window,
    /// A stamp is less than the one before.
    #[error("the stamps of committed entries go back")]
    StampFell,
    /// A wrong clock decides what expires.
    #[error("a node would expire entries by a wrong clock")]
    WrongClock,
    /// A handover left the next owner something to be brought.
    #[error("a log was handed over to a disk that lacks what was committed")]
    HandedToLess,
    /// Faults have stopped and writes have not begun.
    #[error("Q14: no write was taken after faults had stopped")]
    NoProgress,
}

/// A violation and where it was seen.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Error)]
#[error("{kind} ({what})")]
pub struct Violation {
    /// Which invariant.
    pub kind: ViolationKind,
    /// Facts, for people.
    pub what: String,
}

pub(super) fn broken(kind: ViolationKind, what: String) -> Result<(), Violation> {
    Err(Violation { kind, what })
}

/// What an entry is in all eyes once it is committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Committed {
    pub(super) sum: Sum,
    /// The epoch whose owner committed it.
    epoch: Epoch,
    stamp: WallTime,
}

/// What the observer remembers.
#[derive(Debug, Default)]
pub(super) struct Checker {
    /// Committed entries from 1 on.
    pub(super) committed: Vec<Committed>,
    /// Who owned an epoch: node and life.
    owners: BTreeMap<Epoch, (NodeId, u64)>,
    /// The last epoch and commit position seen of each owner.
    seen: BTreeMap<(NodeId, u64), (Epoch, Lsn)>,
    /// What a disk has promised and somebody was told. What only one slot had may go with that slot.
    promises: BTreeMap<Incarnation, Promise>,
    /// What a disk said is durable.
    done: BTreeMap<Incarnation, Position>,
    /// Disks that were damaged after they may have answered.
    harmed: BTreeSet<Incarnation>,
    /// Those of them whose state was lost or set back.
    lost: BTreeSet<Incarnation>,
    /// Entries that rotted while the process ran, which does not know.
    rotten: BTreeMap<Incarnation, BTreeSet<Lsn>>,
    /// True if linearizable reads rest on leases.
    leases: bool,
    /// Committed entries that were lost to damage beyond what is tolerated, with an alarm.
    pub(super) alarmed: u64,
}

impl Checker {
    /// An observer; with `leases` linearizable reads rest on them.
    pub(super) fn new(leases: bool) -> Self {
        Self { leases, ..Self::default() }
    }

    /// The last committed entry.
    pub(super) fn last(&self) -> Lsn {
        Lsn(self.committed.len() as u64)
    }

    /// A disk was damaged, or has lost its state as a whole.
    pub(super) fn harmed(&mut self, disk: Incarnation, lost: bool) {
        self.harmed.insert(disk);
        if lost {
            self.lost.insert(disk);
        }
    }

    /// An entry has rotted while the process ran.
    pub(super) fn rotted(&mut self, disk: Incarnation, lsn: Lsn) {
        self.harmed.insert(disk);
        self.rotten.entry(disk).or_default().insert(lsn);
    }

    /// Operations are to be written.
    pub(super) fn stores(&self, host: &Host, ops: &[StoreOp]) -> Result<(), Violation> {
        let frame =
            |op: &StoreOp| matches!(op, StoreOp::Append(e) if matches!(e.body, Body::Frame { .. }));
        if host.told_full && ops.iter().any(frame) {
            return broken(ViolationKind::WroteWhenFull, format!("{:?}", host.id));
        }
        Ok(())
    }

    /// The clock by which a node expires entries is one that a majority agrees with: as far from the truth as
    /// two clocks that agree may be apart, the answers' way included.
    pub(super) fn expires(&self, host: &Host, now: u64) -> Result<(), Violation> {
        let clock = host.node.as_ref().and_then(|node| node.expiry_clock(host.time(now)));
        let Some(clock) = clock else { return Ok(()) };
        let apart = clock.0.abs_diff(WallClock::truth(now));
        if apart > WALL_ERROR + timing::WALL_APART + 2 * timing::SUSPECT {
            return broken(ViolationKind::WrongClock, format!("{:?} by {apart} us", host.id));
        }
        Ok(())
    }

    /// True if a disk has lost its state as a whole.
    pub(super) fn has_lost(&self, disk: Incarnation) -> bool {
        self.lost.contains(&disk)
    }

    /// True if a disk that is at `at` lacks what it said is durable, whether that is committed yet or not.
    pub(super) fn owes(&self, disk: Incarnation, at: Position) -> bool {
        self.done.get(&disk).is_some_and(|done| at < *done)
    }

    /// A message leaves a node: what it says must be true of that node's disk.
    pub(super) fn sent(&mut self, envelope: &Envelope, host: &Host) -> Result<(), Violation> {
        let disk = host.disk.durable();
        let answers = matches!(
            envelope.message,
            Message::Sealed(_)
                | Message::Done { .. }
                | Message::Started { .. }
                | Message::Brought { .. }
                | Message::Fetched { .. }
        );
        if answers && self.lost.contains(&envelope.sender) {
            return broken(ViolationKind::FormerDisk, format!("{envelope:?}"));
        }
        within_window(&envelope.message)?;
        if let Message::Append { epoch, commit, .. } = envelope.message {
            self.told(host, epoch, commit);
        }
        match &envelope.message {
            Message::Sealed(sealed) => {
                let promise = best_promise(disk).unwrap_or_default();
                if promise.epoch < sealed.epoch {
                    return broken(ViolationKind::PromiseFell, format!("{envelope:?}"));
                }
                let given = self.promises.entry(envelope.sender).or_default();
                *given = promise.max(*given);
                let done = self.done.get(&envelope.sender);
                // What a candidate has cut back lies in `torn/`.
                let aside = |lsn: Lsn| disk.aside.iter().any(|entry| entry.lsn == lsn);
                let short = done.is_some_and(|d| sealed.position < *d && !aside(d.lsn));
                if sealed.wholeness == Wholeness::Whole && short {
                    return broken(ViolationKind::NotWhole, format!("{envelope:?} after {done:?}"));
                }
                Ok(())
            }
            Message::Done { epoch, upto, .. } => self.said_done(envelope, host, *epoch, *upto),
            Message::Started { epoch } => {
                let start = host.node.as_ref().and_then(|node| start_of(node, *epoch));
                let Some(start) = start else {
                    return broken(ViolationKind::NotDurable, format!("{envelope:?}: no start"));
                };
                self.said_done(envelope, host, *epoch, start)
            }
            _ => Ok(()),
        }
    }

    /// An owner has given its leases back, and says that all was committed: the disk of the one that it has told to follow
    /// has everything.
    pub(super) fn handed_over(
        &self,
        hosts: &[Host],
        at: usize,
        effects: &[Effect],
    ) -> Result<(), Violation> {
        let is_left =
            |effect: &Effect| matches!(effect, Effect::Alarm(Alarm::LeftUndrained { .. }));
        let is_release = |effect: &Effect| matches!(effect, Effect::Send(envelope) if matches!(envelope.message, Message::Release { .. }));
        let follower = effects.iter().find_map(|effect| match effect {
            Effect::Send(sent) if matches!(sent.message, Message::Succeed { .. }) => Some(sent),
            _ => None,
        });
        let (Some(sent), Some(node)) = (follower, &hosts[at].node) else { return Ok(()) };
        let harmed = sent.disk.is_some_and(|disk| self.harmed.contains(&disk));
        if harmed || effects.iter().any(is_left) || !effects.iter().any(is_release) {
            return Ok(());
        }
        let (log, disk) = (node.keeper().log(), hosts[usize::from(sent.to.0)].disk.durable());
        let last = log.last();
        let same = |entry: &Entry| log.sum_at(last).is_none_or(|sum| entry.sum == sum);
        let has = matches!(disk.slot(last), Slot::Bytes(entry) if same(&entry));
        if disk.begins().lsn >= last || has {
            return Ok(());
        }
        broken(ViolationKind::HandedToLess, format!("{last:?}: {sent:?}"))
    }

    /// An owner says what is committed: one that ends in the same step is not seen with that.
    fn told(&mut self, host: &Host, epoch: Epoch, commit: Lsn) {
        let Some(node) = &host.node else { return };
        let unseen = (self.last().next().0..=commit.0).map(Lsn);
        for entry in unseen.map_while(|lsn| node.keeper().log().get(lsn)) {
            self.committed.push(Committed { sum: entry.sum, epoch, stamp: entry.stamp });
        }
    }

    fn said_done(
        &mut self,
        envelope: &Envelope,
        host: &Host,
        epoch: Epoch,
        upto: Lsn,
    ) -> Result<(), Violation> {
        let disk = host.disk.durable();
        let from = upto.0.saturating_sub(4).max(1);
        let rotten = self.rotten.get(&envelope.sender);
        let rotted = |lsn: &Lsn| rotten.is_some_and(|rotten| rotten.contains(lsn));
        let base = disk.begins().lsn;
        let lost = |lsn: &Lsn| *lsn > base && !disk.is_good(*lsn) && !rotted(lsn);
        if let Some(lsn) = (from..=upto.0).map(Lsn).find(lost) {
            return broken(ViolationKind::NotDurable, format!("{lsn:?} of {envelope:?}"));
        }
        let done = self.done.entry(envelope.sender).or_default();
        *done = (*done).max(Position { accepted: epoch, lsn: upto });
        Ok(())
    }

    /// A node has started on a directory: what it can read there ends its log, or lies behind what does (Q10).
    pub(super) fn booted(&self, host: &Host) -> Result<(), Violation> {
        let (disk, node) = (host.disk.durable(), host.node.as_ref().expect("it started"));
        let keeper = node.keeper();
        let same = disk.boots().is_some_and(|(disk, _)| disk == keeper.identity().incarnation);
        if same && keeper.log().last() < disk.last_good() {
            let what = format!("{:?} of {:?}", keeper.log().last(), disk.last_good());
            return broken(ViolationKind::NotWhole, what);
        }
        Ok(())
    }

    /// A message comes to a node. What a keeper said was done in an earlier epoch of the same owner reaches
    /// no further than the first entry of the epoch that it owns now: one frame is in flight.
    pub(super) fn delivered(&self, envelope: &Envelope, host: &Host) {
        let owner = host.node.as_ref().and_then(Node::owner);
        if let (Message::Done { epoch, upto, .. }, Some(owner)) = (&envelope.message, owner) {
            let stale = *epoch < owner.epoch() && envelope.disk == Some(host_disk(host));
            assert!(!stale || *upto <= owner.start().next(), "{envelope:?} counts for too much");
        }
    }

    /// A directory has changed durably.
    pub(super) fn disk_changed(&mut self, hosts: &[Host], at: usize) -> Result<(), Violation> {
        let disk = hosts[at].disk.durable();
        if disk.is_foreign(hosts[at].id) {
            let what = format!("{:?} writes to a disk of another node", hosts[at].id);
            return broken(ViolationKind::FormerDisk, what);
        }
        if let (Some((incarnation, _)), Some(promise)) = (disk.boots(), best_promise(disk)) {
            let given = self.promises.get(&incarnation).copied().unwrap_or_default();
            if promise < given && !self.lost.contains(&incarnation) {
                return broken(ViolationKind::PromiseFell, format!("{promise:?} < {given:?}"));
            }
        }
        self.trimmed_is_committed(disk)?;
        let Some(last) = last_entry(disk) else { return Ok(()) };
        for other in hosts.iter().filter(|host| host.id != hosts[at].id) {
            same_log(disk, &last, other.disk.durable())?;
        }
        Ok(())
    }

    /// What a disk has trimmed is committed; unless more disks were lost than can be.
    fn trimmed_is_committed(&self, disk: &Image) -> Result<(), Violation> {
        let base = disk.begins();
        if base.lsn == Lsn(0) || self.alarmed > 0 {
            return Ok(());
        }
        if base.lsn > self.last() || self.at(base.lsn).sum != base.sum {
            return broken(ViolationKind::Trimmed, format!("{base:?}"));
        }
        Ok(())
    }

    /// A node has done a step.
    pub(super) fn stepped(
        &mut self,
        hosts: &[Host],
        at: usize,
        now: u64,
        catalog: &Snapshot,
    ) -> Result<(), Violation> {
        // Who owns nothing has none: its clock is not asked.
        let leased = |host: &&Host| {
            let owner = host.node.as_ref().and_then(Node::owner);
            owner.is_some_and(|owner| owner.has_lease(host.time(now)))
        };
        if self.leases && hosts.iter().filter(leased).count() > 1 {
            return broken(ViolationKind::StaleRead, "two leases".to_owned());
        }
        let Some(owner) = hosts[at].node.as_ref().and_then(Node::owner) else { return Ok(()) };
        let life = (hosts[at].id, hosts[at].life);
        let (epoch, commit) = (owner.epoch(), owner.commit());
        let known = self.seen.insert(life, (epoch, commit));
        if known.is_none_or(|(before, _)| before != epoch) {
            self.began(hosts, at, catalog)?;
        } else if known.is_some_and(|(_, before)| commit < before) {
            return broken(ViolationKind::CommitFell, format!("{commit:?} after {known:?}"));
        }
        if known == Some((epoch, commit)) { Ok(()) } else { self.commit(hosts, at, catalog) }
    }

    /// A node has begun to serve an epoch.
    fn began(&mut self, hosts: &[Host], at: usize, catalog: &Snapshot) -> Result<(), Violation> {
        let node = hosts[at].node.as_ref().expect("it stepped");
        let owner = node.owner().expect("it owns");
        let life = (hosts[at].id, hosts[at].life);
        let other = self.owners.insert(owner.epoch(), life);
        if other.is_some_and(|other| other != life) {
            return broken(ViolationKind::TwoOwners, format!("{:?}: {other:?}", owner.epoch()));
        }
        let Some(lost) = self.first_lost(node) else { return Ok(()) };
        if self.is_recorded(lost, owner.epoch(), catalog) {
            let kept = usize::try_from(lost.before().0).expect("a size");
            self.alarmed += self.last_before(owner.epoch()).0 - lost.before().0;
            self.committed.truncate(kept);
            return Ok(());
        }
        let what = format!("{lost:?} at {:?} in {:?}", hosts[at].id, owner.epoch());
        broken(ViolationKind::Lost, what)
    }

    /// The last entry that was committed in an epoch before this one.
    fn last_before(&self, epoch: Epoch) -> Lsn {
        Lsn(self.committed.partition_point(|entry| entry.epoch < epoch) as u64)
    }

    /// The first entry of earlier epochs that is committed and not in an owner's log. What later epochs
    /// have committed is not looked at: an owner that slept may see late that its epoch has started.
    fn first_lost(&self, node: &Node) -> Option<Lsn> {
        let epoch = node.owner().expect("it owns").epoch();
        let log = node.keeper().log();
        let here = |lsn: Lsn| match log.sum_at(lsn) {
            // Damage is not absence: an owner's log was whole when the epoch was decided.
            None => lsn <= log.last(),
            Some(sum) => sum == self.at(lsn).sum,
        };
        let last = self.last_before(epoch);
        if last == Lsn(0) || here(last) {
            return None;
        }
        (1..=last.0).map(Lsn).find(|lsn| !here(*lsn))
    }

    fn at(&self, lsn: Lsn) -> &Committed {
        &self.committed[usize::try_from(lsn.0 - 1).expect("an index")]
    }

    /// Entries that only a disk with a damaged tail and one that nobody could reach had are lost: that is
    /// beyond what is tolerated, and allowed if the row says so (R2).
    fn is_recorded(&self, lost: Lsn, epoch: Epoch, catalog: &Snapshot) -> bool {
        let since = self.at(lost).epoch;
        let mut cuts = catalog.log.value.cuts.iter();
        cuts.any(|cut| cut.after < lost && since < cut.epoch && cut.epoch <= epoch)
    }

    /// An owner has committed more.
    fn commit(&mut self, hosts: &[Host], at: usize, catalog: &Snapshot) -> Result<(), Violation> {
        let node = hosts[at].node.as_ref().expect("it stepped");
        let owner = node.owner().expect("it owns");
        let (commit, log) = (owner.commit(), node.keeper().log());
        let members: Vec<_> = owner.members().collect();
        let holds = |lsn: Lsn, sum: Sum| {
            let has = |member: &&Member| {
                let mut disks = hosts.iter().filter(|host| host.id == member.node);
                let disk = disks.next().expect("a host of every node").disk.durable();
                let here = disk.boots().is_some_and(|(disk, _)| disk == member.incarnation);
                let trimmed = disk.begins().lsn >= lsn;
                let same = matches!(disk.slot(lsn), Slot::Bytes(entry) if entry.sum == sum);
                let same = trimmed || same && disk.is_good(lsn);
                // A damaged disk had the entry when it said so; what has happened to it is a fault.
                let position = Position { accepted: owner.epoch(), lsn };
                let damaged = self.harmed.contains(&member.incarnation);
                let said = damaged && self.done.get(&member.incarnation) >= Some(&position);
                // As had one whose entry rotted while its process ran.
                let mut rotten = self.rotten.get(&member.incarnation).into_iter().flatten();
                (here && same) || said || rotten.any(|rotten| *rotten == lsn)
            };
            members.iter().filter(has).count()
        };
        // The own one may have rotted since; then another keeper's is looked at, or it is with the next one.
        let sum = log.sum_at(commit);
        let sum = sum.or_else(|| entry_of(hosts, owner.epoch(), commit).map(|entry| entry.sum));
        let Some(sum) = sum else { return Ok(()) };
        if holds(commit, sum) < majority(members.len()) {
            return broken(
                ViolationKind::NotOnMajority,
                format!("{commit:?} by {:?}", owner.epoch()),
            );
        }
        let known = self.committed.get(usize::try_from(commit.0 - 1).expect("an index"));
        if let Some(known) = known.filter(|known| known.sum != sum) {
            if late_for_a_cut((commit, owner.epoch()), known.epoch, catalog) {
                self.alarmed += 1;
                return Ok(());
            }
            return broken(ViolationKind::CommitFell, format!("{commit:?} has two contents"));
        }
        for lsn in self.last().0 + 1..=commit.0 {
            // What has rotted since is known by the others.
            let Some(entry) =
                log.get(Lsn(lsn)).copied().or_else(|| entry_of(hosts, owner.epoch(), Lsn(lsn)))
            else {
                return broken(ViolationKind::NotOnMajority, format!("{lsn} is nowhere"));
            };
            let before = self.committed.last().map_or(WallTime(0), |before| before.stamp);
            if entry.stamp < before {
                let what = format!("{:?} after {before:?}", entry.stamp);
                return broken(ViolationKind::StampFell, what);
            }
            let (sum, stamp) = (entry.sum, entry.stamp);
            self.committed.push(Committed { sum, epoch: owner.epoch(), stamp });
        }
        Ok(())
    }

    /// A linearizable read was answered that was asked when `acked` was the last committed entry.
    pub(super) fn read(&self, commit: Lsn, acked: Lsn) -> Result<(), Violation> {
        if commit < acked || commit > self.last() {
            return broken(ViolationKind::StaleRead, format!("{commit:?}, acked {acked:?}"));
        }
        Ok(())
    }
}

/// True if an owner that was stopped meanwhile hears now that an entry was durable elsewhere, which has rotted there since:
/// the epoch that has another one in its place was begun without this owner's disk, and the row says that something may be
/// lost (R2).
fn late_for_a_cut((lsn, epoch): (Lsn, Epoch), kept: Epoch, catalog: &Snapshot) -> bool {
    let mut cuts = catalog.log.value.cuts.iter();
    cuts.any(|cut| cut.after < lsn && epoch < cut.epoch && cut.epoch <= kept)
}

/// An entry that some keeper of an epoch has, in its memory or on its disk.
fn entry_of(hosts: &[Host], epoch: Epoch, lsn: Lsn) -> Option<Entry> {
    let kept = hosts.iter().find_map(|host| {
        let log = host.node.as_ref()?.keeper().log();
        log.get(lsn).copied().filter(|_| log.position().accepted == epoch)
    });
    let mut disks = hosts.iter().map(|host| host.disk.durable());
    let stored = |disk: &Image| match disk.slot(lsn) {
        Slot::Bytes(entry) if disk.is_good(lsn) => Some(entry),
        _ => None,
    };
    kept.or_else(|| disks.find_map(stored))
}

/// A message holds a window of entries at most, or a single one.
fn within_window(message: &Message) -> Result<(), Violation> {
    let (count, bytes) = match message {
        Message::Append { entries, .. } | Message::Bring { entries, .. } => {
            (entries.len(), entries.iter().map(Entry::bytes).sum())
        }
        Message::Fetched { entries, .. } => {
            let readable = entries.iter().flatten();
            (readable.clone().count(), readable.map(Entry::bytes).sum::<u64>())
        }
        _ => return Ok(()),
    };
    if count > timing::BATCH_MAX || count > 1 && bytes > timing::WINDOW_BYTES {
        return broken(ViolationKind::Window, format!("{count} entries, {bytes} bytes"));
    }
    Ok(())
}

fn host_disk(host: &Host) -> Incarnation {
    host.node.as_ref().expect("it runs").keeper().identity().incarnation
}

fn start_of(node: &Node, epoch: Epoch) -> Option<Lsn> {
    node.keeper().log().starts().iter().find(|start| start.epoch == epoch).map(|start| start.lsn)
}

fn best_promise(disk: &Image) -> Option<Promise> {
    let good = disk.promises.iter().filter_map(|record| match record {
        Record::Good(promise) => Some(*promise),
        Record::Absent | Record::Damaged => None,
    });
    good.max()
}

fn last_entry(disk: &Image) -> Option<Entry> {
    match disk.slot(disk.last_good()) {
        Slot::Bytes(entry) => Some(entry),
        Slot::Empty | Slot::Garbage => None,
    }
}

/// Two directories of one accepted epoch: the shorter is a prefix of the longer one.
fn same_log(disk: &Image, last: &Entry, other: &Image) -> Result<(), Violation> {
    let Some(theirs) = last_entry(other) else { return Ok(()) };
    if theirs.epoch != last.epoch {
        return Ok(());
    }
    let end = last.lsn.min(theirs.lsn);
    match (disk.slot(end), other.slot(end)) {
        _ if end <= disk.begins().lsn || end <= other.begins().lsn => Ok(()),
        (Slot::Bytes(a), Slot::Bytes(b)) if a != b && disk.is_good(end) && other.is_good(end) => {
            broken(ViolationKind::Diverged, format!("{a:?} and {b:?}"))
        }
        _ => Ok(()),
    }
}
