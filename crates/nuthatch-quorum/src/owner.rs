//! The owner of an epoch: one frame in flight, committed when a majority has it durably.

use crate::entry::{Body, Chain, Entry};
use crate::message::{Answer, Message, Reach, Refusal};
use crate::out::Out;
use crate::rules::Rule;
use crate::timing::{BATCH_MAX, DRAIN, LEASE, QUEUE_MAX, RESEND};
use crate::types::{BootCount, Epoch, Lsn, Member, NodeId, RequestId, Sum, Time, majority};
use std::collections::{BTreeMap, VecDeque};

/// What the owner does next with a keeper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// It has not promised the epoch.
    Unsealed,
    /// Its log is not the one that the epoch starts with; it is sent what lies behind `after`.
    Behind { after: Lsn },
    /// Its log is; the epoch has not started there.
    Ready,
    /// It takes entries.
    Live,
}

/// What the owner knows of a keeper.
#[derive(Debug)]
struct Progress {
    member: Member,
    stage: Stage,
    /// What it said is durable and readable in this epoch.
    done: Lsn,
    /// Its boot counter, as it last said.
    boots: BootCount,
    sent_at: Time,
    /// When the last beat was sent that it answered with this epoch.
    leased: Option<Time>,
}

/// The core of an owner.
#[derive(Debug)]
pub struct Owner {
    epoch: Epoch,
    me: NodeId,
    start: Lsn,
    progress: Vec<Progress>,
    last: Lsn,
    commit: Lsn,
    in_flight: BTreeMap<Lsn, RequestId>,
    queue: VecDeque<(RequestId, u64)>,
    /// Since when it takes nothing more, and who is to own the log next.
    leaving: Option<(Time, Member)>,
    /// The lease as it was when it was last looked at; a mutation run trusts it.
    lease_seen: bool,
}

/// The position that a majority of `positions` has reached.
#[must_use]
pub fn committed(positions: &[Lsn]) -> Lsn {
    let mut sorted = positions.to_vec();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    let needed = if Rule::CommitMajority.holds() { majority(sorted.len()) } else { 1 };
    sorted[needed - 1]
}

impl Owner {
    /// An owner whose epoch was started by `started`, with its first entry behind `start`.
    pub(crate) fn new(
        me: Member,
        epoch: Epoch,
        start: Lsn,
        set: &[Member],
        started: &[Member],
    ) -> Self {
        let first = start.next();
        let progress = set.iter().map(|member| {
            let live = started.contains(member);
            Progress {
                member: *member,
                stage: if live { Stage::Live } else { Stage::Unsealed },
                done: if live { first } else { Lsn(0) },
                boots: BootCount(0),
                sent_at: Time(0),
                leased: None,
            }
        });
        Self {
            epoch,
            me: me.node,
            start,
            progress: progress.collect(),
            last: first,
            commit: first,
            in_flight: BTreeMap::new(),
            queue: VecDeque::new(),
            leaving: None,
            lease_seen: false,
        }
    }

    /// Takes no further publish or read; what it has is still committed.
    pub(crate) fn leave(&mut self, successor: Member, now: Time) {
        if self.leaving.is_none() {
            self.leaving = Some((now, successor));
        }
    }

    /// Who is to own the log next, once there is nothing left to commit, or that has taken too long.
    pub(crate) fn successor(&self, now: Time) -> Option<Member> {
        let (since, successor) = self.leaving?;
        let drained = self.queue.is_empty() && self.commit == self.last;
        (drained || now.since(since) >= DRAIN).then_some(successor)
    }

    /// The members whose keepers have all that is committed.
    pub(crate) fn whole(&self) -> impl Iterator<Item = Member> + '_ {
        let whole = |p: &&Progress| p.stage == Stage::Live && p.done >= self.commit;
        self.progress.iter().filter(whole).map(|progress| progress.member)
    }

    /// The epoch.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// What is committed.
    #[must_use]
    pub fn commit(&self) -> Lsn {
        self.commit
    }

    /// The last entry before the epoch.
    #[must_use]
    pub fn start(&self) -> Lsn {
        self.start
    }

    /// The disks of the set.
    pub fn members(&self) -> impl Iterator<Item = Member> + '_ {
        self.progress.iter().map(|progress| progress.member)
    }

    /// True if linearizable reads may be answered without asking anybody.
    #[must_use]
    pub fn has_lease(&self, now: Time) -> bool {
        let fresh = |at: &Option<Time>| at.is_some_and(|at| now.since(at) < LEASE && at <= now);
        let peers = self.progress.iter().filter(|p| p.member.node != self.me);
        1 + peers.filter(|progress| fresh(&progress.leased)).count()
            >= majority(self.progress.len())
    }

    /// Takes a publish, or refuses it. It is sealed at once if no frame is in flight.
    pub(crate) fn publish(
        &mut self,
        request: RequestId,
        payload: u64,
        log: &Chain,
        now: Time,
        out: &mut Out,
    ) {
        if self.queue.len() >= QUEUE_MAX || self.leaving.is_some() {
            out.reply(request, Answer::Refused);
        } else {
            self.queue.push_back((request, payload));
            self.next_frame(log, now, out);
        }
    }

    /// Answers a linearizable read, or refuses it.
    pub(crate) fn read(&mut self, request: RequestId, now: Time, out: &mut Out) {
        let leased = if Rule::LeaseByClock.holds() { self.has_lease(now) } else { self.lease_seen };
        let answer = if leased && self.leaving.is_none() {
            Answer::Read { commit: self.commit }
        } else {
            Answer::Refused
        };
        out.reply(request, answer);
    }

    /// Seals the next frame if none is in flight, and sends what was not answered for a while.
    pub(crate) fn tick(&mut self, log: &Chain, now: Time, out: &mut Out) {
        self.lease_seen = self.has_lease(now);
        self.next_frame(log, now, out);
        for index in 0..self.progress.len() {
            let progress = &self.progress[index];
            let behind = progress.stage != Stage::Live || progress.done < self.last;
            if behind && now.since(progress.sent_at) >= RESEND {
                self.drive(index, log, now, out);
            }
        }
    }

    /// One frame is in flight: the next one is sealed when the last is committed (A2).
    fn next_frame(&mut self, log: &Chain, now: Time, out: &mut Out) {
        let busy = self.commit < self.last && Rule::OneFrame.holds();
        if busy || log.last() != self.last {
            return;
        }
        let Some((request, payload)) = self.queue.pop_front() else { return };
        let prev = log.sum_at(self.last).expect("an owner's log is readable");
        let body = Body::Frame { payload };
        let entry = Entry::new(self.last.next(), self.epoch, prev, self.commit, body);
        self.last = entry.lsn;
        self.in_flight.insert(entry.lsn, request);
        // Its own keeper gets the entry itself, the others what they lack of the log.
        let own = self.append(self.own(), entry.lsn.before(), prev, vec![entry]);
        self.send(self.own(), own, now, out);
        for index in 0..self.progress.len() {
            let progress = &self.progress[index];
            let next = progress.stage == Stage::Live && progress.done.next() == entry.lsn;
            if next && progress.member.node != self.me {
                let message = self.append(index, entry.lsn.before(), prev, vec![entry]);
                self.send(index, message, now, out);
            }
        }
    }

    fn own(&self) -> usize {
        self.progress.iter().position(|p| p.member.node == self.me).expect("an owner is of the set")
    }

    fn append(&self, index: usize, after: Lsn, prev: Sum, entries: Vec<Entry>) -> Message {
        let reach = Reach { boots: self.progress[index].boots, last: self.last };
        Message::Append { epoch: self.epoch, after, prev, entries, commit: self.commit, reach }
    }

    fn send(&mut self, index: usize, message: Message, now: Time, out: &mut Out) {
        let progress = &mut self.progress[index];
        progress.sent_at = now;
        out.send(progress.member.node, Some(progress.member.incarnation), message);
    }

    /// Sends a keeper what it needs next.
    fn drive(&mut self, index: usize, log: &Chain, now: Time, out: &mut Out) {
        let progress = &self.progress[index];
        let epoch = self.epoch;
        let message = match progress.stage {
            Stage::Unsealed => Message::Seal { epoch },
            Stage::Behind { after } => {
                bring(epoch, log, after, self.start).expect("an owner's log is readable")
            }
            Stage::Ready => {
                let sum = log.sum_at(self.start).expect("an owner's log is readable");
                Message::Start { epoch, from: self.start, sum }
            }
            Stage::Live => {
                let after = progress.done.min(log.last());
                let Some(prev) = log.sum_at(after) else { return };
                let entries = slice(log, after, log.last());
                self.append(index, after, prev, entries)
            }
        };
        self.send(index, message, now, out);
    }

    /// The keeper that sent a message, if it is of the set.
    fn find(&self, member: Member) -> Option<usize> {
        let same = |p: &&Progress| p.member == member;
        let mut all = self.progress.iter();
        if Rule::DoneOfThisDisk.holds() {
            all.position(|p| same(&p))
        } else {
            all.position(|p| p.member.node == member.node)
        }
    }

    /// A keeper's answer.
    pub(crate) fn answered(
        &mut self,
        from: Member,
        message: &Message,
        log: &Chain,
        now: Time,
        out: &mut Out,
    ) {
        let Some(index) = self.find(from) else { return };
        match message {
            Message::Sealed(sealed) if sealed.epoch == self.epoch => {
                let common = crate::entry::common(
                    (&sealed.starts, sealed.position.lsn),
                    (log.starts(), log.last()),
                );
                self.advance(index, Stage::Behind { after: common.min(self.start) });
            }
            Message::Brought { epoch, equal_to } if *epoch == self.epoch => {
                let behind = Stage::Behind { after: *equal_to };
                self.advance(index, if *equal_to >= self.start { Stage::Ready } else { behind });
            }
            Message::Started { epoch } if *epoch == self.epoch => {
                let done = self.progress[index].done.max(self.start.next());
                self.progress[index].done = done;
                self.advance(index, Stage::Live);
            }
            // One of an earlier epoch would not count for more: with one frame in flight it reaches no
            // further than the start of this one.
            Message::Done { epoch, upto, boots } if *epoch == self.epoch => {
                let known = &mut self.progress[index].boots;
                *known = (*known).max(*boots);
                self.done(index, *upto, out);
            }
            _ => return,
        }
        let progress = &self.progress[index];
        if progress.stage != Stage::Live || progress.done < self.commit {
            self.drive(index, log, now, out);
        }
        self.next_frame(log, now, out);
    }

    /// A refusal by a keeper of the set; whether the epoch is over.
    pub(crate) fn refused(&mut self, from: Member, epoch: Epoch, why: Refusal) -> bool {
        let Some(index) = self.find(from) else { return false };
        if epoch != self.epoch {
            return false;
        }
        match why {
            Refusal::Promised { promised, .. } if promised > self.epoch => return true,
            Refusal::Chain { .. } => self.advance(index, Stage::Behind { after: Lsn(0) }),
            Refusal::NotStarted { .. } | Refusal::NotAtStart { .. } | Refusal::Promised { .. } => {
                self.progress[index].stage = Stage::Unsealed;
            }
            Refusal::Leased => {}
        }
        false
    }

    /// A keeper that takes entries does not go back to an earlier stage because of a late answer.
    fn advance(&mut self, index: usize, stage: Stage) {
        if self.progress[index].stage != Stage::Live {
            self.progress[index].stage = stage;
        }
    }

    fn done(&mut self, index: usize, upto: Lsn, out: &mut Out) {
        self.progress[index].done = upto;
        let positions: Vec<Lsn> = self.progress.iter().map(|progress| progress.done).collect();
        let commit = committed(&positions).min(self.last);
        if commit <= self.commit {
            return;
        }
        self.commit = commit;
        let later = self.in_flight.split_off(&commit.next());
        for (lsn, request) in std::mem::replace(&mut self.in_flight, later) {
            out.reply(request, Answer::Acked { lsn });
        }
    }

    /// A keeper answered a beat: the owner's lease begins when that was sent.
    pub(crate) fn beat_answered(&mut self, from: Member, epoch: Epoch, sent: Time, now: Time) {
        let Some(index) = self.find(from) else { return };
        if epoch == self.epoch {
            let at = if Rule::LeaseFromSending.holds() { sent } else { now };
            let leased = &mut self.progress[index].leased;
            *leased = Some(leased.map_or(at, |earlier| earlier.max(at)));
        }
    }

    /// The epoch is over: what was sealed has an unknown fate, what waits was never written.
    pub(crate) fn end(self, out: &mut Out) {
        for request in self.in_flight.into_values() {
            out.reply(request, Answer::Unknown);
        }
        for (request, _) in self.queue {
            out.reply(request, Answer::Refused);
        }
    }
}

fn slice(log: &Chain, after: Lsn, last: Lsn) -> Vec<Entry> {
    let range = after.next().0..=last.0;
    range.map_while(|lsn| log.get(Lsn(lsn)).copied()).take(BATCH_MAX).collect()
}

/// The message that makes a keeper's log equal to `log` up to `end`, from `after` on; none when `log`
/// is damaged there.
pub(crate) fn bring(epoch: Epoch, log: &Chain, after: Lsn, end: Lsn) -> Option<Message> {
    let after = after.min(end);
    let prev = log.sum_at(after)?;
    let entries = slice(log, after, end);
    Some(Message::Bring { epoch, after, prev, entries, end })
}

#[cfg(test)]
mod tests;
