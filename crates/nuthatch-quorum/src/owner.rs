//! The owner of an epoch: one frame in flight, committed when a majority has it durably.

use crate::effect::{Alarm, Effect};
use crate::entry::{Body, Chain, Entry};
use crate::message::{Answer, BeatAnswer, Message, Reach, Refusal};
use crate::out::Out;
use crate::rules::Rule;
use crate::timing::{QUEUE_MAX, RESEND};
use crate::types::{Epoch, Lsn, Member, NodeId, RequestId, Sum, Time, WallTime, majority};
use crate::wall::stamp;
pub use progress::committed;
use progress::{Progress, Stage};
use reads::Reads;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

mod leaving;
mod progress;
mod reads;

/// What an owner sees of its own node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Here<'a> {
    /// The log of its own keeper.
    pub(crate) log: &'a Chain,
    /// True if its own disk has room.
    pub(crate) room: bool,
    /// Its wall clock, while a majority agrees with it.
    pub(crate) wall: Option<WallTime>,
}

/// A client's publish that waits for its frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Publish {
    /// The request.
    pub request: RequestId,
    /// Hash of what is published.
    pub payload: u64,
    /// Its length in bytes.
    pub len: u32,
}

/// The core of an owner.
#[derive(Debug)]
pub struct Owner {
    epoch: Epoch,
    me: NodeId,
    start: Lsn,
    /// Sum of the entry there.
    start_sum: Sum,
    progress: Vec<Progress>,
    last: Lsn,
    commit: Lsn,
    in_flight: BTreeMap<Lsn, RequestId>,
    queue: VecDeque<Publish>,
    reads: Reads,
    /// How long it answers reads after a beat that a majority answered.
    lease: u64,
    /// When entries were last asked for that its own keeper cannot read, and how often that was.
    healing: (Time, usize),
    /// An entry that its own keeper cannot read and others have trimmed.
    unhealable: Option<Lsn>,
    /// Since when it takes nothing more, and who is to own the log next.
    leaving: Option<(Time, Member)>,
    /// Who was told that it is to own the log soon.
    prepared: Option<Member>,
    /// The lease as it was when it was last looked at; a mutation run trusts it.
    lease_seen: bool,
}

impl Owner {
    /// An owner whose epoch was started by `started`, with its first entry behind `start`.
    pub(crate) fn new(
        me: Member,
        epoch: Epoch,
        (start, start_sum): (Lsn, Sum),
        set: &[Member],
        started: &[Member],
        lease: u64,
        now: Time,
    ) -> Self {
        let first = start.next();
        let progress = set.iter().map(|member| {
            let unsealed = Progress::new(*member, now);
            let live = Progress { stage: Stage::Live, done: first, ..Progress::new(*member, now) };
            if started.contains(member) { live } else { unsealed }
        });
        Self {
            epoch,
            me: me.node,
            start,
            start_sum,
            progress: progress.collect(),
            last: first,
            commit: first,
            in_flight: BTreeMap::new(),
            queue: VecDeque::new(),
            reads: Reads::default(),
            lease,
            healing: (Time(0), 0),
            unhealable: None,
            leaving: None,
            prepared: None,
            lease_seen: false,
        }
    }

    /// The members whose keepers have all that is committed.
    pub(crate) fn whole(&self) -> impl Iterator<Item = Member> + '_ {
        self.whole_but(0)
    }

    /// The members whose keepers have all that is committed but the last `lag` entries.
    pub(crate) fn whole_but(&self, lag: u64) -> impl Iterator<Item = Member> + '_ {
        let upto = self.committed_but(lag);
        self.voters().filter(move |p| p.has(upto)).map(|progress| progress.member)
    }

    /// The last committed entry but `lag`; never before the first one of the epoch.
    fn committed_but(&self, lag: u64) -> Lsn {
        Lsn(self.commit.0.saturating_sub(lag)).max(self.start.next())
    }

    /// How many entries a keeper lacks, or a disk that learns; none of one whose log is not known to be this one's.
    pub(crate) fn lag(&self, keeper: Member) -> Option<u64> {
        let live = self.progress.iter().find(|p| p.member == keeper && p.stage == Stage::Live);
        live.map(|progress| self.last.0.saturating_sub(progress.done.0))
    }

    /// What a keeper of the set said is durable in this epoch; none of one whose log is not known to be this one's.
    #[must_use]
    pub fn done_by(&self, keeper: Member) -> Option<Lsn> {
        self.voters().find(|p| p.member == keeper && p.stage == Stage::Live).map(|p| p.done)
    }

    /// True if its own keeper cannot read an entry that others have trimmed: one of them had better be the owner.
    pub(crate) fn lacks_trimmed(&self, log: &Chain) -> bool {
        self.unhealable.is_some() && self.unhealable == log.first_damaged()
    }

    /// The disks of the set; the others learn.
    fn voters(&self) -> impl Iterator<Item = &Progress> {
        self.progress.iter().filter(|progress| !progress.learns)
    }

    /// Disks that are to come into the set are brought the log beside serving, and do not count for anything.
    pub(crate) fn teach(&mut self, disks: &[Member], now: Time) {
        self.progress.retain(|p| !p.learns || disks.contains(&p.member));
        let known: Vec<Member> = self.progress.iter().map(|p| p.member).collect();
        let new = disks.iter().filter(|member| !known.contains(member));
        let learner = |member: &Member| Progress { learns: true, ..Progress::new(*member, now) };
        self.progress.extend(new.map(learner));
    }

    /// True if a disk that learns has everything that is committed but the last `lag` entries.
    pub(crate) fn has_learnt_but(&self, disk: Member, lag: u64) -> bool {
        let upto = self.committed_but(lag);
        self.progress.iter().any(|p| p.learns && p.member == disk && p.has(upto))
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
        self.voters().map(|progress| progress.member)
    }

    /// Answers reads no longer than that after a beat that a majority answered: no longer than until now.
    pub(crate) fn shorten_lease(&mut self, lease: u64) {
        assert!(lease <= self.lease, "keepers go by what beats said before");
        self.lease = lease;
    }

    /// True if linearizable reads may be answered without asking anybody.
    #[must_use]
    pub fn has_lease(&self, now: Time) -> bool {
        let is_fresh = |at: Time| now.since(at) < self.lease;
        self.voters().count() == 1 || self.leased_at(now).is_some_and(is_fresh)
    }

    /// When the lease ends, unless it is renewed before; none if there is none, or the log is being handed
    /// over. For drivers that ask more often than they step.
    #[must_use]
    pub fn lease_ends(&self, now: Time) -> Option<Time> {
        self.leased_at(now).filter(|_| self.leaving.is_none()).map(|at| at.plus(self.lease))
    }

    /// When the last beat was sent that so many others have answered as make a majority with this node.
    fn leased_at(&self, now: Time) -> Option<Time> {
        let peers = self.voters().filter(|p| p.member.node != self.me);
        // Nothing was sent later than now, whoever says so.
        let sent = peers.filter_map(|p| p.leased).filter(|at| *at <= now);
        let sent: BinaryHeap<Time> = sent.collect();
        let others = majority(self.voters().count()) - 1;
        sent.into_sorted_vec().into_iter().rev().nth(others.checked_sub(1)?)
    }

    /// Takes a publish, or refuses it. It is sealed at once if no frame is in flight.
    pub(crate) fn publish(&mut self, publish: Publish, here: Here<'_>, now: Time, out: &mut Out) {
        let full = !here.room && Rule::FullHandsOver.holds();
        if self.queue.len() >= QUEUE_MAX || self.leaving.is_some() || full {
            out.reply(publish.request, Answer::Refused);
        } else {
            self.queue.push_back(publish);
            self.next_frame(here, now, out);
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

    /// Takes a linearizable read that trusts no clock: it is answered when a majority has answered a round of
    /// beats that began after `round`, the last one so far. True if such a round is to begin now.
    pub(crate) fn read_by_round(&mut self, request: RequestId, round: u64, out: &mut Out) -> bool {
        let taken = self.leaving.is_none() && self.reads.wait(request, round);
        if !taken {
            out.reply(request, Answer::Refused);
        }
        let begins = taken && self.reads.begin_round();
        self.answer_reads(out);
        begins
    }

    /// Answers the reads whose round a majority has answered; true if others wait for a round to begin.
    fn answer_reads(&mut self, out: &mut Out) -> bool {
        if self.reads.is_empty() {
            return false;
        }
        let needed = majority(self.voters().count());
        let peers = self.progress.iter().filter(|p| !p.learns && p.member.node != self.me);
        let commit = self.commit;
        let rounds: Vec<u64> = peers.map(|progress| progress.round).collect();
        let reached = |round: u64| 1 + rounds.iter().filter(|r| **r >= round).count() >= needed;
        for request in self.reads.reached(reached) {
            out.reply(request, Answer::Read { commit });
        }
        self.reads.begin_round()
    }

    /// Seals the next frame if none is in flight, and sends what was not answered for a while.
    pub(crate) fn tick(&mut self, here: Here<'_>, now: Time, out: &mut Out) {
        self.lease_seen = self.has_lease(now);
        self.next_frame(here, now, out);
        self.heal_own(here.log, now, out);
        for index in 0..self.progress.len() {
            self.tell_away(index, now, out);
            let keeper = &self.progress[index];
            if !keeper.has(self.last) && now.since(keeper.sent_at) >= keeper.resend_after(now) {
                self.drive(index, here.log, now, out);
            }
        }
    }

    /// Says once that a keeper of the set is away. That nobody replaces it is no reason to say it again.
    fn tell_away(&mut self, index: usize, now: Time, out: &mut Out) {
        let (epoch, me) = (self.epoch, self.me);
        let progress = &mut self.progress[index];
        let away = progress.is_away(now) && progress.member.node != me && !progress.learns;
        if away && !(progress.told_away && Rule::AwayOnce.holds()) {
            progress.told_away = true;
            out.effects.push(Effect::Alarm(Alarm::Away { node: progress.member.node, epoch }));
        }
    }

    /// Asks one whole keeper after another for what its own cannot read any more.
    fn heal_own(&mut self, log: &Chain, now: Time, out: &mut Out) {
        let Some(first) = log.first_damaged() else { return };
        let (asked_at, turn) = self.healing;
        let mut others: Vec<Member> =
            self.whole().filter(|member| member.node != self.me).collect();
        if others.is_empty() {
            // One that had everything may have said less in a message that came late, and cannot be sent what is
            // damaged here: it is asked all the same.
            let live = self.progress.iter().filter(|progress| progress.stage == Stage::Live);
            others = live.map(|progress| progress.member).filter(|m| m.node != self.me).collect();
        }
        if now.since(asked_at) < RESEND || others.is_empty() || !Rule::HealsOwn.holds() {
            return;
        }
        self.healing = (now, turn + 1);
        let member = others[turn % others.len()];
        let fetch = Message::Fetch { epoch: self.epoch, from: first };
        out.send(member.node, Some(member.incarnation), fetch);
    }

    /// What a keeper has where its own has damage, as far as it follows what is here.
    fn healed_by(&self, from: Lsn, theirs: &[Option<Entry>], log: &Chain) -> Option<Message> {
        let first = log.first_damaged().filter(|first| *first >= from)?;
        let prev = log.sum_at(first.before())?;
        let skipped = usize::try_from(first.0 - from.0).expect("an index");
        let mut entries: Vec<Entry> = vec![];
        for entry in theirs.get(skipped..)?.iter().map_while(|entry| *entry) {
            let expected = entries.last().map_or(prev, |before| before.sum);
            let follows = entry.prev == expected && entry.is_intact() && log.fits(&entry);
            if log.get(entry.lsn).is_some() || entry.lsn > log.last() || !follows {
                break;
            }
            entries.push(entry);
        }
        (!entries.is_empty()).then(|| self.append(self.own(), first.before(), prev, entries))
    }

    /// One frame is in flight: the next one is sealed when the last is committed (A2).
    fn next_frame(&mut self, here: Here<'_>, now: Time, out: &mut Out) {
        let busy = self.commit < self.last && Rule::OneFrame.holds();
        let full = !here.room && Rule::FullHandsOver.holds();
        if busy || full || here.log.last() != self.last {
            return;
        }
        let Some(Publish { request, payload, len }) = self.queue.pop_front() else { return };
        // It may be the last one that is trimmed.
        let prev = here.log.sum_at(self.last).expect("the last entry is readable");
        let before = here.log.stamp_at(self.last).expect("so is its stamp");
        let stamp = stamp(before, here.wall);
        let body = Body::Frame { payload, len };
        let entry = Entry::new(self.last.next(), self.epoch, prev, self.commit, stamp, body);
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
            // What the own keeper cannot read has to be healed first.
            Stage::Behind { after } if after >= self.start => {
                let (after, prev, entries) = (self.start, self.start_sum, vec![]);
                Message::Bring { epoch, after, prev, entries, end: self.start }
            }
            Stage::Behind { after } => {
                let Some(bring) = supply(epoch, log, after, self.start) else { return };
                bring
            }
            Stage::Foreign { trimmed } => {
                Message::Install { epoch, base: log.base(), replaces: Some(trimmed) }
            }
            Stage::Ready => Message::Start { epoch, from: self.start, sum: self.start_sum },
            Stage::Live if self.installs(index, log) => {
                Message::Install { epoch, base: log.base(), replaces: None }
            }
            Stage::Live => {
                let after = progress.done.min(log.last());
                let Some(prev) = log.sum_at(after) else { return };
                let entries = slice(log, after, log.last());
                if entries.is_empty() && after < log.last() {
                    return;
                }
                self.append(index, after, prev, entries)
            }
        };
        self.send(index, message, now, out);
    }

    /// True if a keeper takes entries and lacks what is trimmed here.
    fn installs(&self, index: usize, log: &Chain) -> bool {
        let progress = &self.progress[index];
        let lacks = progress.done < log.base().lsn && Rule::InstallsTrimmed.holds();
        lacks && progress.stage == Stage::Live
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
        here: Here<'_>,
        now: Time,
        out: &mut Out,
    ) {
        let log = here.log;
        let Some(index) = self.find(from) else { return };
        self.heard(index, now);
        match message {
            Message::Sealed(sealed) if sealed.epoch == self.epoch => {
                let common = crate::entry::common(sealed.extent(), log.extent());
                self.advance(index, Stage::Behind { after: common.min(self.start) });
            }
            // It was installed files, which a keeper that still takes entries answers with `Done`.
            Message::Brought { epoch, .. } if *epoch == self.epoch && self.installs(index, log) => {
                self.progress[index].stage = Stage::Unsealed;
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
            Message::Fetched { epoch, base, from, entries, .. } if *epoch == self.epoch => {
                if let Some(first) = log.first_damaged().filter(|first| first <= base) {
                    self.unhealable = Some(first);
                    self.has_trimmed(index, *base);
                }
                if let Some(heal) = self.healed_by(*from, entries, log) {
                    self.send(self.own(), heal, now, out);
                }
                return;
            }
            // One of an earlier epoch would not count for more: with one frame in flight it reaches no
            // further than the start of this one.
            Message::Done { epoch, upto, boots } if *epoch == self.epoch => {
                let known = &mut self.progress[index].boots;
                *known = (*known).max(*boots);
                // Who takes what the epoch itself has made accepts it by that.
                self.advance(index, Stage::Live);
                self.done(index, *upto, out);
            }
            _ => return,
        }
        let progress = &self.progress[index];
        if !progress.has(self.commit) {
            self.drive(index, log, now, out);
        }
        self.next_frame(here, now, out);
    }

    fn heard(&mut self, index: usize, now: Time) {
        let progress = &mut self.progress[index];
        (progress.heard_at, progress.told_away) = (now, false);
    }

    /// A refusal by a keeper of the set; whether the epoch is over.
    pub(crate) fn refused(&mut self, from: Member, epoch: Epoch, why: Refusal, now: Time) -> bool {
        let Some(index) = self.find(from) else { return false };
        if epoch != self.epoch {
            return false;
        }
        self.heard(index, now);
        match why {
            Refusal::Promised { promised, .. } if promised > self.epoch => return true,
            Refusal::Chain { .. } => self.advance(index, Stage::Behind { after: Lsn(0) }),
            // It has started and lost what shows it: that is sent again, as whatever a keeper lost.
            Refusal::NotAtStart { at } if at.accepted == self.epoch => {
                let progress = &mut self.progress[index];
                progress.stage = Stage::Live;
                progress.done = progress.done.min(self.start);
            }
            Refusal::NotStarted { .. } | Refusal::NotAtStart { .. } | Refusal::Promised { .. } => {
                self.progress[index].stage = Stage::Unsealed;
            }
            Refusal::Trimmed { sum, .. } => self.advance(index, Stage::Foreign { trimmed: sum }),
            Refusal::Leased | Refusal::Full => {}
        }
        false
    }

    /// A keeper that takes entries does not go back to an earlier stage because of a late answer.
    fn advance(&mut self, index: usize, stage: Stage) {
        if self.progress[index].stage != Stage::Live {
            self.progress[index].stage = stage;
        }
    }

    /// A keeper has had durably what it has trimmed, whatever it said in a message that came late. What the own keeper
    /// cannot read of that cannot be sent to it again.
    fn has_trimmed(&mut self, index: usize, base: Lsn) {
        let progress = &mut self.progress[index];
        if progress.stage == Stage::Live && Rule::TrimmedIsDone.holds() {
            progress.done = progress.done.max(base.min(self.commit));
        }
    }

    fn done(&mut self, index: usize, upto: Lsn, out: &mut Out) {
        self.progress[index].done = upto;
        let positions: Vec<Lsn> = self.voters().map(|progress| progress.done).collect();
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

    /// A keeper answered a beat: the owner's lease begins when that was sent. True if reads wait for another
    /// round to begin now.
    pub(crate) fn beat_answered(
        &mut self,
        from: Member,
        answer: &BeatAnswer,
        now: Time,
        out: &mut Out,
    ) -> bool {
        let Some(index) = self.find(from) else { return false };
        self.heard(index, now);
        if answer.epoch != Some(self.epoch) {
            return false;
        }
        let at = if Rule::LeaseFromSending.holds() { answer.sent } else { now };
        let progress = &mut self.progress[index];
        progress.leased = Some(progress.leased.map_or(at, |earlier| earlier.max(at)));
        progress.round = progress.round.max(answer.round);
        if let Some(damaged) = answer.damaged
            && progress.stage == Stage::Live
        {
            // From there on it is sent again.
            progress.done = progress.done.min(damaged.before());
        }
        self.answer_reads(out)
    }

    /// The epoch is over: what was sealed has an unknown fate, what waits was never written.
    pub(crate) fn end(self, out: &mut Out) {
        for request in self.in_flight.into_values() {
            out.reply(request, Answer::Unknown);
        }
        let waiting = self.queue.iter().map(|publish| publish.request);
        for request in waiting.chain(self.reads.all()) {
            out.reply(request, Answer::Refused);
        }
    }
}

/// Entries behind `after`, as many as can be read and one message may hold.
fn slice(log: &Chain, after: Lsn, last: Lsn) -> Vec<Entry> {
    log.window(after.next(), last).into_iter().map_while(|entry| entry).collect()
}

/// The message that makes a keeper's log equal to `log` up to `end`, from `after` on; none when `log`
/// is damaged there.
pub(crate) fn supply(epoch: Epoch, log: &Chain, after: Lsn, end: Lsn) -> Option<Message> {
    let (base, after) = (log.base(), after.min(end));
    if after < base.lsn && Rule::InstallsTrimmed.holds() {
        return Some(Message::Install { epoch, base, replaces: None });
    }
    let prev = log.sum_at(after)?;
    let entries = slice(log, after, end);
    // A message that brings nothing would be answered and sent again at once, for ever.
    let brings = after == end || !entries.is_empty();
    brings.then_some(Message::Bring { epoch, after, prev, entries, end })
}

#[cfg(test)]
mod tests;
