//! A keeper: one disk's copy of the log, and its promises.

use crate::effect::{Alarm, Effect};
use crate::entry::{Body, Chain, Entry};
use crate::message::{Envelope, Message, Refusal, Sealed, Wholeness};
use crate::out::Out;
use crate::rules::Rule;
use crate::store::{
    CutNote, ForeignDisk, Identity, Image, Names, Opened, StoreError, StoreOp, begin_anew, open,
};
use crate::timing::{LEASE, LEASE_GRANTED, LEASE_MIN, granted};
use crate::types::{
    BootCount, Epoch, Incarnation, Lsn, NodeId, Position, Promise, Revision, SyncId, Time,
};
use scrub::Scrub;
use std::collections::VecDeque;

mod bring;
mod damage;
mod scrub;
mod trim;

/// An answer that waits for a sync.
#[derive(Debug)]
struct Waiting {
    sync: SyncId,
    /// The last entry that it makes durable.
    last: Lsn,
    /// Who asked, with which disk, and the answer; none where nobody waits.
    answer: Option<(NodeId, Incarnation, Message)>,
}

/// The lease that the owner of an epoch has from this keeper.
#[derive(Clone, Copy, Debug)]
struct Lease {
    owner: Incarnation,
    until: Time,
    /// The last epoch whose owner has given its lease back. What it had sent before may come later.
    released: Epoch,
}

/// Whether a directory can be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Health {
    Good,
    /// What is held in memory is not what the directory holds: that must be read again.
    Stale,
    /// It belongs to another node.
    Foreign,
}

/// The core of one keeper.
#[derive(Debug)]
pub struct Keeper {
    node: NodeId,
    identity: Identity,
    promise: Promise,
    log: Chain,
    cut: Option<CutNote>,
    lease: Lease,
    next_sync: u64,
    waiting: VecDeque<Waiting>,
    /// The entry with which the log ended is gone; what is told when that is noted durably.
    lost_end: Option<(SyncId, Alarm)>,
    health: Health,
    room: bool,
    /// Entries up to this one are durable.
    durable_to: Lsn,
    scrub: Scrub,
}

impl Keeper {
    /// Reads a directory and writes what must be durable before anything is answered.
    pub(crate) fn open(
        node: NodeId,
        image: &Image,
        names: Names,
        scrub_every: u64,
        now: Time,
        out: &mut Out,
    ) -> Self {
        let incarnation = Incarnation(0);
        let nobody = Identity { node, incarnation, boots: BootCount(0), seen: Revision(0) };
        let mut keeper = Self {
            node,
            identity: nobody,
            promise: Promise::default(),
            log: Chain::default(),
            cut: None,
            // Whoever had a lease from this keeper before its start may still rely on it.
            lease: Lease {
                owner: Incarnation(0),
                until: now.plus(LEASE_GRANTED),
                released: Epoch(0),
            },
            next_sync: 0,
            waiting: VecDeque::new(),
            lost_end: None,
            health: Health::Good,
            room: true,
            durable_to: Lsn(0),
            scrub: Scrub::new(scrub_every, now),
        };
        if !Rule::LeaseAfterBoot.holds() {
            keeper.lease.until = Time(0);
        }
        match open(image, names) {
            Ok(opened) => keeper.take(opened, out),
            Err(ForeignDisk { node: of }) => {
                keeper.health = Health::Foreign;
                out.effects.push(Effect::Alarm(Alarm::ForeignDisk { node, of }));
            }
        }
        keeper
    }

    fn take(&mut self, opened: Opened, out: &mut Out) {
        self.identity = opened.identity;
        self.promise = opened.promise;
        self.log = opened.log;
        self.cut = opened.cut;
        self.durable_to = self.log.last();
        out.effects.push(Effect::Store(opened.ops));
        self.sync(None, out);
    }

    /// Sets everything aside and begins anew under another identity.
    pub(crate) fn begin_anew(&mut self, incarnation: Incarnation, out: &mut Out) {
        let opened = begin_anew(self.node, incarnation);
        self.waiting.clear();
        self.lost_end = None;
        self.take(opened, out);
    }

    /// Writes a higher boot counter.
    pub(crate) fn raise_boots(&mut self, boots: BootCount, out: &mut Out) {
        self.identity.boots = boots;
        out.effects.push(Effect::Store(vec![StoreOp::Identity(self.identity)]));
        self.sync(None, out);
    }

    /// Remembers the newest revision of the log's row, so that a catalog which goes back is known.
    pub(crate) fn note_seen(&mut self, revision: Revision, out: &mut Out) {
        if revision > self.identity.seen && !self.is_poisoned() {
            self.identity.seen = revision;
            out.effects.push(Effect::Store(vec![StoreOp::Identity(self.identity)]));
            self.sync(None, out);
        }
    }

    /// The identity of the disk.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// What is promised; durable before anybody is told.
    #[must_use]
    pub fn promise(&self) -> Promise {
        self.promise
    }

    /// The log, what is not yet synced included.
    #[must_use]
    pub fn log(&self) -> &Chain {
        &self.log
    }

    /// True if a sync or a write failed, or the directory is another node's: nothing is answered.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.health != Health::Good
    }

    /// True if the directory must be read again.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.health == Health::Stale
    }

    /// True if the disk has room for frames.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.room
    }

    /// Whether the disk has room for frames; there is always some for promises and the starts of epochs.
    pub(crate) fn set_room(&mut self, room: bool) {
        self.room = room;
    }

    /// The first entry that cannot be read, where the owner is to be told.
    #[must_use]
    pub fn damaged(&self) -> Option<Lsn> {
        if Rule::TellsDamage.holds() { self.log.first_damaged() } else { None }
    }

    /// True if everything that was written is durable.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.waiting.is_empty()
    }

    fn sync(&mut self, answer: Option<(NodeId, Incarnation, Message)>, out: &mut Out) {
        self.next_sync += 1;
        let sync = SyncId(self.next_sync);
        self.waiting.push_back(Waiting { sync, last: self.log.last(), answer });
        out.effects.push(Effect::Sync(sync));
    }

    /// The last entry up to which everything is here.
    fn done_to(&self) -> Lsn {
        if Rule::AppendInOrder.holds() { self.log.readable_to() } else { self.log.last() }
    }

    /// Answers after what was written is durable.
    fn answer_durably(&mut self, to: &Envelope, message: Message, rule: Rule, out: &mut Out) {
        if rule.holds() {
            self.sync(Some((to.from, to.sender, message)), out);
        } else {
            self.sync(None, out);
            out.send(to.from, Some(to.sender), message);
        }
    }

    /// A sync has ended.
    pub(crate) fn synced(&mut self, sync: SyncId, good: bool, out: &mut Out) {
        if self.is_poisoned() || !self.waiting.iter().any(|waiting| waiting.sync == sync) {
            return;
        }
        if !good && Rule::PoisonedBySync.holds() {
            self.poison(Alarm::SyncFailed { node: self.node }, out);
            return;
        }
        while let Some(waiting) = self.waiting.pop_front_if(|waiting| waiting.sync <= sync) {
            self.durable_to = waiting.last.min(self.log.last());
            if let Some((to, disk, message)) = waiting.answer {
                out.send(to, Some(disk), message);
            }
        }
        if let Some((_, alarm)) = self.lost_end.take_if(|(noted, _)| *noted <= sync) {
            self.poison(alarm, out);
        }
    }

    fn poison(&mut self, alarm: Alarm, out: &mut Out) {
        self.health = Health::Stale;
        self.waiting.clear();
        self.lost_end = None;
        out.effects.push(Effect::Alarm(alarm));
    }

    /// A write was not made, nor those behind it: the directory is behind what is here.
    pub(crate) fn write_failed(&mut self, why: StoreError, out: &mut Out) {
        if self.health == Health::Good && Rule::PoisonedByWrite.holds() {
            self.poison(Alarm::WriteFailed { node: self.node, why }, out);
        }
    }

    /// Handles a message for this keeper.
    pub(crate) fn receive(&mut self, envelope: &Envelope, now: Time, out: &mut Out) {
        if self.is_poisoned() {
            return;
        }
        let done = match &envelope.message {
            Message::Seal { epoch } => self.seal(envelope, *epoch, now, out),
            Message::Fetch { epoch, from } => self.fetch(envelope, *epoch, *from, out),
            Message::Bring { epoch, .. } => self.bring(envelope, *epoch, out),
            Message::Install { epoch, .. } => self.install(envelope, *epoch, out),
            Message::Start { epoch, .. } => self.start(envelope, *epoch, out),
            Message::Append { epoch, .. } => self.append(envelope, *epoch, out),
            other => unreachable!("no keeper is sent {other:?}"),
        };
        if let Err((epoch, why)) = done {
            out.send(envelope.from, Some(envelope.sender), Message::Refused { epoch, why });
        }
    }

    fn promised_refusal(&self, epoch: Epoch) -> (Epoch, Refusal) {
        let accepted = self.log.position().accepted;
        (epoch, Refusal::Promised { promised: self.promise.epoch, accepted })
    }

    /// Whether an epoch is the promised one and its owner asks.
    fn check_promised(
        &self,
        envelope: &Envelope,
        epoch: Epoch,
        rule: Rule,
    ) -> Result<(), (Epoch, Refusal)> {
        let asked = Promise { epoch, owner: envelope.sender };
        let stale = !rule.holds() && epoch < self.promise.epoch;
        if asked == self.promise || stale { Ok(()) } else { Err(self.promised_refusal(epoch)) }
    }

    fn seal(
        &mut self,
        envelope: &Envelope,
        epoch: Epoch,
        now: Time,
        out: &mut Out,
    ) -> Result<(), (Epoch, Refusal)> {
        let asked = Promise { epoch, owner: envelope.sender };
        if asked != self.promise {
            if epoch <= self.promise.epoch {
                return Err(self.promised_refusal(epoch));
            }
            let leased = now < self.lease.until && self.lease.owner != envelope.sender;
            if leased && Rule::LeaseKept.holds() {
                return Err((epoch, Refusal::Leased));
            }
            self.give_promise(asked, out);
        }
        let sealed = Message::Sealed(Sealed {
            epoch,
            wholeness: self.wholeness(),
            position: self.log.position(),
            last_sum: self.log.sum_at(self.log.last()).expect("the last entry is readable"),
            base: self.log.base().lsn,
            starts: self.log.starts().to_vec(),
        });
        self.answer_durably(envelope, sealed, Rule::PromiseSynced, out);
        Ok(())
    }

    fn give_promise(&mut self, promise: Promise, out: &mut Out) {
        self.promise = promise;
        // What the other slot has from the promise before is durable first: one of them can always be read.
        let mut ops = vec![StoreOp::Barrier, StoreOp::Promise { slot: 0, promise }];
        if Rule::PromiseTwice.holds() {
            ops.extend([StoreOp::Barrier, StoreOp::Promise { slot: 1, promise }]);
        }
        out.effects.push(Effect::Store(ops));
    }

    fn wholeness(&self) -> Wholeness {
        match (self.log.first_damaged(), self.cut) {
            (Some(first), note) => {
                Wholeness::Partial { first, cut: note.is_some_and(|note| self.is_cut(note)) }
            }
            (None, Some(note)) if self.is_cut(note) => Wholeness::Cut,
            (None, _) => Wholeness::Whole,
        }
    }

    fn is_cut(&self, note: CutNote) -> bool {
        Rule::CutStaysKnown.holds() || note.at >= self.log.position()
    }

    /// All that this disk may have said is done is here again.
    fn forget_cut(&mut self, ops: &mut Vec<StoreOp>) {
        if self.cut.take().is_some() {
            ops.extend([StoreOp::Barrier, StoreOp::ForgetCut]);
        }
    }

    fn start(
        &mut self,
        envelope: &Envelope,
        epoch: Epoch,
        out: &mut Out,
    ) -> Result<(), (Epoch, Refusal)> {
        let Message::Start { from, sum, .. } = &envelope.message else {
            unreachable!("as dispatched");
        };
        self.check_promised(envelope, epoch, Rule::StartPromised)?;
        let at = self.log.position();
        if at.accepted < epoch {
            let same = at.lsn == *from && self.log.sum_at(*from) == Some(*sum);
            let here = same && self.log.first_damaged().is_none();
            if !here && Rule::StartAtPosition.holds() {
                return Err((epoch, Refusal::NotAtStart { at }));
            }
            let prev = self.log.sum_at(at.lsn).expect("the last entry is readable");
            let body = Body::Start { owner: envelope.sender };
            // The same on all keepers: no clock is looked at.
            let stamp = self.log.stamp_at(at.lsn).expect("the last entry is readable");
            let entry = Entry::new(at.lsn.next(), epoch, prev, at.lsn, stamp, body);
            self.log.push(entry);
            // What is not yet durable belongs to an earlier epoch, and perhaps nobody else has it: this entry
            // must not survive without it, since it vouches for it.
            let mut ops = vec![StoreOp::Barrier, StoreOp::Append(entry)];
            // All that was done in earlier epochs and counts is here; in this one only what follows shows it.
            if self.cut.is_some_and(|note| note.promised < epoch) {
                self.forget_cut(&mut ops);
            }
            out.effects.push(Effect::Store(ops));
        } else if self.log.readable_to() <= *from {
            // It started and is damaged now: it has to be brought what it lost.
            return Err((epoch, Refusal::NotAtStart { at }));
        }
        self.answer_durably(envelope, Message::Started { epoch }, Rule::DoneAfterSync, out);
        Ok(())
    }

    fn append(
        &mut self,
        envelope: &Envelope,
        epoch: Epoch,
        out: &mut Out,
    ) -> Result<(), (Epoch, Refusal)> {
        let Message::Append { after, prev, entries, reach, .. } = &envelope.message else {
            unreachable!("as dispatched");
        };
        self.check_promised(envelope, epoch, Rule::AppendPromised)?;
        let at = self.log.position();
        if at.accepted != epoch {
            return Err((epoch, Refusal::NotStarted { at }));
        }
        if !Rule::AppendInOrder.holds() {
            self.fill_gap(*after);
        }
        if self.joins(*after, prev.0).map_err(|why| (epoch, why))? {
            let mut ops = vec![];
            let done = self.write_with_room(entries, false, &mut ops, out);
            if reach.boots == self.identity.boots && self.log.readable_to() >= reach.last {
                self.forget_cut(&mut ops);
            }
            out.effects.push(Effect::Store(ops));
            done.map_err(|why| (epoch, why))?;
        }
        let done = Message::Done { epoch, upto: self.done_to(), boots: self.identity.boots };
        self.answer_durably(envelope, done, Rule::DoneAfterSync, out);
        Ok(())
    }

    /// What a keeper without the rule of order does: it leaves room for what is missing.
    fn fill_gap(&mut self, after: Lsn) {
        while self.log.last() < after {
            self.log.push_damaged();
        }
    }

    /// Grants the owner of the accepted epoch a lease of that length; whether it is one, and has not given it back.
    pub(crate) fn grant(
        &mut self,
        owner: Incarnation,
        epoch: Epoch,
        lease: u64,
        now: Time,
    ) -> bool {
        let promised = self.promise == Promise { epoch, owner };
        let is_owner = !self.is_poisoned() && promised && self.log.position().accepted == epoch;
        let has_left = self.lease.released == epoch && Rule::ReleaseLasts.holds();
        let is_granted = is_owner && !has_left;
        let lease =
            if Rule::LeaseAsAsked.holds() { lease.clamp(LEASE_MIN, LEASE) } else { LEASE_MIN };
        if is_granted {
            self.lease = Lease { owner, until: now.plus(granted(lease)), ..self.lease };
        }
        is_granted
    }

    /// The owner of the promised epoch has given its lease back.
    pub(crate) fn release(&mut self, owner: Incarnation, epoch: Epoch, now: Time) {
        if self.promise != (Promise { epoch, owner }) {
            return;
        }
        self.lease.released = epoch;
        if self.lease.owner == owner {
            self.lease.until = now;
        }
    }

    /// How far the log goes.
    #[must_use]
    pub fn position(&self) -> Position {
        self.log.position()
    }
}

#[cfg(test)]
mod tests;
