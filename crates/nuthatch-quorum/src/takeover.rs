//! Taking over: transaction, seal, donor, bring, transaction, start (R1).

use crate::catalog::{CutRecord, LogRow, Phase};
use crate::doing::Doing;
use crate::effect::{Alarm, Effect};
use crate::entry::{Chain, Entry, common};
use crate::message::{Message, Refusal, Sealed, Wholeness};
use crate::out::Out;
use crate::owner::supply;
use crate::rules::Rule;
use crate::timing::{ATTEMPT, JOIN_GRACE, PREPARED, RECOVERY_GRACE, RESEND};
use crate::types::{Epoch, Lsn, Member, Revision, Sum, Time, majority};
pub use donor::donor;
use fetched::Fetched;
pub(crate) use lacking::Lacking;
use std::collections::{BTreeMap, BTreeSet};

mod donor;
mod fetched;
mod lacking;

/// Where the log of the epoch ends before its start: the donor's position.
#[derive(Clone, Copy, Debug)]
struct Goal {
    end: Lsn,
    sum: Sum,
    /// The first entry that has to be fetched.
    from: Lsn,
}

/// Up to where logs were made equal to the donor's.
type Equal = BTreeMap<Member, Lsn>;

/// Whether a larger position than the one that was chosen may still be chosen.
fn is_open(stage: &Stage) -> bool {
    matches!(stage, Stage::Gathering { .. } | Stage::Bringing { .. })
}

/// How far a takeover is. The first transaction has been applied.
#[derive(Debug)]
enum Stage {
    /// Answers to the seal are collected.
    Sealing,
    /// What the candidate's own keeper lacks is fetched.
    Gathering { goal: Goal, fetched: BTreeMap<Member, Fetched> },
    /// Logs are made equal to the donor's, the candidate's own first.
    Bringing { goal: Goal, equal_to: Equal },
    /// The second transaction has been proposed, and the epoch does not start before it is applied.
    Committing { goal: Goal, row: LogRow, equal_to: Equal },
    /// The epoch is started. Whoever is not where it begins is brought there as before: those that are may go.
    Starting { goal: Goal, row: LogRow, equal_to: Equal, started: BTreeSet<Member> },
}

/// What the node has to do for a candidate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// Nothing.
    Wait,
    /// Proposes the row with which the epoch serves.
    Propose(LogRow),
    /// Begins to serve.
    Serve { set: Vec<Member>, start: Lsn, sum: Sum, started: Vec<Member> },
    /// The attempt has failed.
    GiveUp,
    /// It has, because the own log lacks an entry that others have trimmed: one of them is to own the log.
    Leave {
        /// The one to own it.
        to: Member,
        /// What is lacking.
        lacks: Lacking,
    },
}

/// The core of a takeover.
#[derive(Debug)]
pub struct Candidate {
    me: Member,
    epoch: Epoch,
    row: LogRow,
    revision: Revision,
    /// The set that the log is to have.
    target: Vec<Member>,
    began: Time,
    /// When it began, or files were last on their way that it waits for.
    went_on: Time,
    sent_at: Time,
    /// The owner that hands over still serves until this, unless it says before that it does not, or goes: nobody is
    /// asked for a promise.
    held_until: Option<Time>,
    /// A keeper's lease to the former owner has not ended: it is asked again at the next tick.
    leased: bool,
    /// When a keeper last said that.
    leased_at: Option<Time>,
    answers: BTreeMap<Member, Sealed>,
    stage: Stage,
    /// Answers of disks that had been cut, without an answer of all others: what goes into the row.
    cuts: Vec<CutRecord>,
    told: bool,
    /// Keepers whose trimmed entries differ: whatever they have is replaced.
    foreign: BTreeMap<Member, Sum>,
}

impl Candidate {
    /// A candidate whose first transaction made `row`.
    pub(crate) fn new(
        me: Member,
        row: LogRow,
        revision: Revision,
        target: Vec<Member>,
        now: Time,
    ) -> Self {
        Self {
            me,
            epoch: row.epoch,
            row,
            revision,
            target,
            began: now,
            went_on: now,
            sent_at: Time(0),
            held_until: None,
            leased: false,
            leased_at: None,
            answers: BTreeMap::new(),
            stage: Stage::Sealing,
            cuts: vec![],
            told: false,
            foreign: BTreeMap::new(),
        }
    }

    /// The epoch.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The owner that is to be followed still serves: promises are asked for when it has ended.
    pub(crate) fn hold(&mut self, now: Time) {
        self.held_until = Some(now.plus(PREPARED));
    }

    /// The owner of an epoch has ended. True if this was waited for.
    pub(crate) fn succeed(&mut self, epoch: Epoch, now: Time) -> bool {
        let waited = self.is_held() && epoch < self.epoch;
        if waited {
            self.end_hold(now);
        }
        waited
    }

    /// True while it waits for the owner to end.
    pub(crate) fn is_held(&self) -> bool {
        self.held_until.is_some()
    }

    /// It waits no longer: promises are asked for, and given when the owner's lease has ended.
    pub(crate) fn end_hold(&mut self, now: Time) {
        self.held_until = None;
        (self.began, self.went_on, self.sent_at) = (now, now, Time(0));
    }

    /// What it is doing.
    pub(crate) fn doing(&self) -> Doing {
        match &self.stage {
            Stage::Sealing if self.held_until.is_some() => Doing::Prepared,
            Stage::Sealing => Doing::Sealing,
            Stage::Gathering { .. } | Stage::Bringing { .. } => Doing::Bringing,
            Stage::Committing { .. } => Doing::Deciding,
            Stage::Starting { .. } => Doing::Starting,
        }
    }

    /// When a keeper last refused its promise because of the former owner's lease.
    pub(crate) fn leased_at(&self) -> Option<Time> {
        self.leased_at
    }

    /// The revision of the row that it goes on from.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    fn counts(&self, member: &Member) -> bool {
        self.row.set.contains(member) || !Rule::SealCountsMembers.holds()
    }

    /// True for what a disk has of a log that has begun anew since: it counts for nothing until that is gone, whatever it
    /// is. Nobody knows how much of what was acknowledged then it has.
    fn is_former(&self, sealed: &Sealed) -> bool {
        let older = sealed.position.accepted < self.row.origin && sealed.position.lsn > Lsn(0);
        older && Rule::FormerIsNothing.holds()
    }

    fn counted(&self) -> impl Iterator<Item = (Member, &Sealed)> {
        let counts = |(m, s): &(&Member, &Sealed)| self.counts(m) && !self.is_former(s);
        self.answers.iter().filter(counts).map(|(m, s)| (*m, s))
    }

    /// Sends what is due, and goes on where time has passed.
    pub(crate) fn tick(&mut self, log: &Chain, now: Time, out: &mut Out) -> Next {
        if self.held_until.is_some_and(|until| now < until) && Rule::PreparedWaits.holds() {
            return Next::Wait;
        }
        if self.is_held() {
            self.end_hold(now);
        }
        if now.since(self.went_on) > ATTEMPT {
            return Next::GiveUp;
        }
        if now.since(self.sent_at) >= RESEND || self.leased {
            (self.sent_at, self.leased) = (now, false);
            self.send_all(log, out);
        }
        self.advance(log, now, out)
    }

    /// Goes on as far as answers allow; what is due then is sent at once.
    fn advance(&mut self, log: &Chain, now: Time, out: &mut Out) -> Next {
        let next = self.go_on(log, now, out);
        if self.sent_at == Time(0) && next == Next::Wait {
            self.sent_at = now;
            self.send_all(log, out);
        }
        next
    }

    fn everybody(&self) -> Vec<Member> {
        let set = &self.row.set;
        let new = self.target.iter().filter(|member| !set.contains(member));
        set.iter().chain(new).copied().collect()
    }

    fn send_all(&mut self, log: &Chain, out: &mut Out) {
        for member in self.everybody() {
            if let Some(message) = self.due(member, log) {
                out.send(member.node, Some(member.incarnation), message);
            }
        }
    }

    /// What a keeper is to be sent now.
    fn due(&self, member: Member, log: &Chain) -> Option<Message> {
        let epoch = self.epoch;
        let Some(sealed) = self.answers.get(&member) else { return Some(Message::Seal { epoch }) };
        match &self.stage {
            Stage::Sealing | Stage::Committing { .. } => None,
            Stage::Gathering { goal, fetched } => {
                let from = fetched.get(&member).map_or(Some(goal.from), |fetched| fetched.next);
                let from = from.filter(|_| member != self.me)?;
                Some(Message::Fetch { epoch, from })
            }
            Stage::Bringing { goal, equal_to } => self.bring(member, sealed, (goal, equal_to), log),
            Stage::Starting { started, .. } if started.contains(&member) => None,
            Stage::Starting { goal, row, equal_to, .. } => {
                let behind = member != self.me && equal_to.get(&member) < Some(&goal.end);
                if behind && Rule::StartingBrings.holds() {
                    return self.bring(member, sealed, (goal, equal_to), log);
                }
                let due = row.set.contains(&member);
                due.then_some(Message::Start { epoch, from: goal.end, sum: goal.sum })
            }
        }
    }

    /// What makes a keeper's log equal to the donor's.
    fn bring(
        &self,
        member: Member,
        sealed: &Sealed,
        (goal, equal_to): (&Goal, &Equal),
        log: &Chain,
    ) -> Option<Message> {
        if member == self.me || equal_to.get(&member) >= Some(&goal.end) {
            return None;
        }
        // Until then what is here may be another log's.
        if log.sum_at(goal.end) != Some(goal.sum) && Rule::BringsGoal.holds() {
            return None;
        }
        if let Some(trimmed) = self.foreign.get(&member) {
            let (epoch, replaces) = (self.epoch, Some(*trimmed));
            return Some(Message::Install { epoch, base: log.base(), replaces });
        }
        let ours = common(sealed.extent(), log.extent());
        let first = match sealed.wholeness {
            Wholeness::Partial { first, .. } => ours.min(first.before()),
            Wholeness::Whole | Wholeness::Cut => ours,
        };
        let after = equal_to.get(&member).copied().unwrap_or(first);
        supply(self.epoch, log, after, goal.end)
    }

    /// Up to where logs were made equal, while others are still brought.
    fn equal_to(&mut self) -> Option<&mut Equal> {
        match &mut self.stage {
            Stage::Sealing | Stage::Gathering { .. } => None,
            Stage::Bringing { equal_to, .. }
            | Stage::Committing { equal_to, .. }
            | Stage::Starting { equal_to, .. } => Some(equal_to),
        }
    }

    /// An answer of a keeper.
    pub(crate) fn answered(
        &mut self,
        from: Member,
        message: &Message,
        log: &Chain,
        now: Time,
        out: &mut Out,
    ) -> Next {
        if !self.everybody().contains(&from) {
            return Next::Wait;
        }
        match (message, &mut self.stage) {
            (Message::Sealed(sealed), _) if sealed.epoch == self.epoch => {
                self.sealed(from, sealed, log);
            }
            (
                Message::Fetched { epoch, base, from: first, entries, last },
                Stage::Gathering { goal, fetched },
            ) if *epoch == self.epoch => {
                let so_far = fetched.remove(&from).unwrap_or_else(|| Fetched::behind(goal.from));
                fetched.insert(from, so_far.and(*base, *first, entries, (*last).min(goal.end)));
            }
            (Message::Brought { epoch, equal_to }, _) if *epoch == self.epoch => {
                let Some(all) = self.equal_to() else { return Next::Wait };
                all.insert(from, *equal_to);
                self.foreign.remove(&from);
                if from == self.me && is_open(&self.stage) {
                    // The others are brought what was waited for here.
                    self.sent_at = Time(0);
                }
            }
            (Message::Receiving { epoch }, Stage::Bringing { .. } | Stage::Starting { .. })
                if *epoch == self.epoch =>
            {
                self.went_on = now;
                return Next::Wait;
            }
            (Message::Started { epoch }, Stage::Starting { row, started, .. })
                if *epoch == self.epoch && row.set.contains(&from) =>
            {
                started.insert(from);
            }
            _ => return Next::Wait,
        }
        if let Some(message) = self.due(from, log) {
            let more = matches!(
                message,
                Message::Bring { .. }
                    | Message::Fetch { .. }
                    | Message::Install { .. }
                    | Message::Start { .. }
            );
            if more && !matches!(self.stage, Stage::Sealing) {
                out.send(from.node, Some(from.incarnation), message);
            }
        }
        self.advance(log, now, out)
    }

    /// An answer to the seal. One that comes late and has more than what was chosen is chosen instead, as long
    /// as nothing is decided.
    fn sealed(&mut self, from: Member, sealed: &Sealed, log: &Chain) {
        if self.answers.contains_key(&from) {
            return;
        }
        self.answers.insert(from, sealed.clone());
        let best = donor(self.counted()).map(|(member, _)| member);
        if is_open(&self.stage) && best == Some(from) && sealed.position > log.position() {
            self.stage = Stage::Sealing;
        }
    }

    /// A refusal by a keeper; whether the attempt has failed.
    pub(crate) fn refused(&mut self, from: Member, epoch: Epoch, why: Refusal, now: Time) -> bool {
        if epoch != self.epoch || !self.everybody().contains(&from) {
            return false;
        }
        match why {
            // Whatever was promised meanwhile, this epoch has lost that keeper.
            Refusal::Promised { promised, .. } => promised > self.epoch,
            Refusal::Chain { .. } => {
                if let Some(equal_to) = self.equal_to() {
                    equal_to.insert(from, Lsn(0));
                }
                false
            }
            Refusal::Trimmed { sum, .. } => {
                self.foreign.insert(from, sum);
                false
            }
            Refusal::Leased => {
                (self.leased, self.leased_at) = (true, Some(now));
                false
            }
            // It cannot be what the epoch begins with; what a peer cannot store is asked for again.
            Refusal::Full => from == self.me && Rule::FullGivesUp.holds(),
            Refusal::NotStarted { .. } | Refusal::NotAtStart { .. } => false,
        }
    }

    fn go_on(&mut self, log: &Chain, now: Time, out: &mut Out) -> Next {
        match &self.stage {
            Stage::Sealing => self.try_donor(log, now, out),
            Stage::Gathering { .. } => self.try_assemble(log, out),
            Stage::Bringing { goal, equal_to } => {
                let (goal, equal_to) = (*goal, equal_to.clone());
                let reached = |m: &Member| equal_to.get(m) >= Some(&goal.end);
                let Some(set) = self.next_set(reached, now) else { return Next::Wait };
                let row = self.serving_row(set, goal.end);
                if self.starts_before(&row) {
                    self.start((goal, row.clone()), equal_to, log, out);
                } else {
                    self.stage = Stage::Committing { goal, row: row.clone(), equal_to };
                }
                Next::Propose(row)
            }
            Stage::Committing { .. } => Next::Wait,
            Stage::Starting { goal, row, started, .. } => {
                let needed = if Rule::StartMajority.holds() { majority(row.set.len()) } else { 1 };
                if started.len() < needed || !started.contains(&self.me) {
                    return Next::Wait;
                }
                let started = started.iter().copied().collect();
                Next::Serve { set: row.set.clone(), start: goal.end, sum: goal.sum, started }
            }
        }
    }

    /// Chooses the donor once enough disks of the set have answered (R2, R3).
    fn try_donor(&mut self, log: &Chain, now: Time, out: &mut Out) -> Next {
        let set = self.row.set.len();
        let answers = self.counted().count();
        let needed = if Rule::SealMajority.holds() { majority(set) } else { 1 };
        if answers < needed || !self.answers.contains_key(&self.me) {
            return Next::Wait;
        }
        let doubtful = self.counted().any(|(_, sealed)| sealed.wholeness != Wholeness::Whole);
        let waits = doubtful && answers < set && now.since(self.began) < RECOVERY_GRACE;
        if waits && Rule::WaitForCut.holds() {
            return Next::Wait;
        }
        self.cuts = self.unvouched();
        let (_, sealed) = donor(self.counted()).expect("there are answers");
        let (end, sum) = (sealed.position.lsn, sealed.last_sum);
        // What is trimmed here is committed, so a donor has it, too.
        let same = common(sealed.extent(), log.extent()).max(log.base().lsn);
        let lacking = log.first_damaged().map_or(same.next(), |first| first.min(same.next()));
        let goal = Goal { end, sum, from: lacking };
        self.stage = Stage::Gathering { goal, fetched: BTreeMap::new() };
        self.sent_at = Time(0);
        self.try_assemble(log, out)
    }

    /// Looks whether all that the own keeper lacks is here: the chain is followed from the donor's end
    /// back to what the own keeper has.
    fn try_assemble(&mut self, log: &Chain, out: &mut Out) -> Next {
        let Stage::Gathering { goal, fetched } = &self.stage else { unreachable!("as called") };
        let mut goal = *goal;
        let mut expected = goal.sum;
        let mut entries = vec![];
        for lsn in (goal.from.0..=goal.end.0).rev().map(Lsn) {
            let own = log.get(lsn).into_iter();
            let theirs = fetched.values().filter_map(|fetched| fetched.get(lsn));
            let Some(entry) = own.chain(theirs).find(|entry| entry.sum == expected) else {
                return self.lacks(Lacking { lsn, sum: expected }, log, out);
            };
            expected = entry.prev;
            entries.push(*entry);
        }
        let after = goal.from.before();
        if log.sum_at(after) != Some(expected) {
            let (to, _) = donor(self.counted()).expect("there are answers");
            if after == log.base().lsn && to != self.me {
                // What is trimmed here is no part of the log any more: more disks were lost than can be.
                return Next::Leave { to, lacks: Lacking { lsn: after, sum: expected } };
            }
            // The beginnings of epochs did not tell where the logs part: all of it is compared.
            goal.from = log.base().lsn.next();
            self.stage = Stage::Gathering { goal, fetched: BTreeMap::new() };
            self.sent_at = Time(0);
            return Next::Wait;
        }
        entries.reverse();
        self.bring_own(goal, after, expected, entries, out);
        Next::Wait
    }

    fn bring_own(&mut self, goal: Goal, after: Lsn, prev: Sum, entries: Vec<Entry>, out: &mut Out) {
        let epoch = self.epoch;
        let message = Message::Bring { epoch, after, prev, entries, end: goal.end };
        out.send(self.me.node, Some(self.me.incarnation), message);
        self.stage = Stage::Bringing { goal, equal_to: BTreeMap::new() };
    }

    /// Nobody in reach can read an entry: it is waited for, never left out.
    fn lacks(&mut self, lacks: Lacking, log: &Chain, out: &mut Out) -> Next {
        let lsn = lacks.lsn;
        let Stage::Gathering { goal, fetched } = &self.stage else { unreachable!("as called") };
        let mut others = self.answers.keys().filter(|member| **member != self.me);
        let complete = |member| fetched.get(member).is_some_and(|f: &Fetched| f.next.is_none());
        let all = others.all(complete);
        if !all {
            return Next::Wait;
        }
        let trimmed = |(_, sealed): &(Member, &Sealed)| sealed.base >= lsn;
        let whole = self.counted().filter(trimmed).max_by_key(|(m, s)| (s.position, *m));
        if let Some((to, _)) = whole.filter(|_| Rule::LeavesToTrimmed.holds()) {
            return Next::Leave { to, lacks };
        }
        if !Rule::WaitForDamage.holds() {
            let goal = *goal;
            return self.leave_out(lsn, goal, log);
        }
        if !self.told {
            self.told = true;
            out.effects.push(Effect::Alarm(Alarm::Unreadable { epoch: self.epoch, lsn }));
        }
        Next::Wait
    }

    /// What a candidate without the rule does: it ends the log before what it cannot read.
    fn leave_out(&mut self, lsn: Lsn, mut goal: Goal, log: &Chain) -> Next {
        let Stage::Gathering { fetched, .. } = &self.stage else { unreachable!("as called") };
        let before = lsn.before();
        let mut known = fetched.values().filter_map(|fetched| fetched.get(before));
        let known = log.get(before).or_else(|| known.next());
        let Some(entry) = known else { return Next::Wait };
        (goal.end, goal.sum) = (before, entry.sum);
        goal.from = goal.from.min(before);
        let fetched = fetched.clone();
        self.stage = Stage::Gathering { goal, fetched };
        Next::Wait
    }

    /// The set of the epoch, once a majority of it holds all that the epoch begins with: the one that the
    /// log is to have, or after a while the one that it has. That a majority of the old set has answered is
    /// all that is asked of that; the two sets need no disk in common.
    fn next_set(&self, reached: impl Fn(&Member) -> bool, now: Time) -> Option<Vec<Member>> {
        let whole = |set: &[Member]| {
            let brought = set.iter().filter(|member| reached(member)).count();
            let needed = if Rule::BroughtMajority.holds() { majority(set.len()) } else { 1 };
            reached(&self.me) && set.contains(&self.me) && brought >= needed
        };
        if whole(&self.target) {
            return Some(self.target.clone());
        }
        let late = now.since(self.began) >= JOIN_GRACE || !self.target.contains(&self.me);
        (late && whole(&self.row.set)).then(|| self.row.set.clone())
    }

    /// Disks of the set that had been cut, if not all of the set have answered (R2).
    fn unvouched(&self) -> Vec<CutRecord> {
        let all = self.counted().count() == self.row.set.len();
        let cut = self.counted().filter(|(_, sealed)| sealed.wholeness.is_cut());
        let record = |(member, sealed): (Member, &Sealed)| CutRecord {
            disk: member.incarnation,
            epoch: self.epoch,
            after: sealed.position.lsn,
        };
        if all || !Rule::RecordCut.holds() { vec![] } else { cut.map(record).collect() }
    }

    fn serving_row(&self, set: Vec<Member>, start: Lsn) -> LogRow {
        let cuts = self.row.cuts.iter().chain(&self.cuts).copied().collect();
        let (owner, phase, origin) = (Some(self.me), Phase::Serving, self.row.origin);
        LogRow { epoch: self.epoch, owner, phase, origin, set, start, cuts }
    }

    /// True if the epoch may start before the row says that it serves: with the set that it was claimed with, whoever
    /// claims a later one asks a majority of the same disks, and finds what this one has started or stops it. A
    /// set is another only by the row, and a cut that is gone on with is recorded first.
    fn starts_before(&self, row: &LogRow) -> bool {
        let same = row.set == self.row.set && row.cuts == self.row.cuts;
        same || !Rule::RowBeforeStart.holds()
    }

    /// The second transaction was applied: the epoch is started, if it was not before.
    pub(crate) fn committed(&mut self, log: &Chain, out: &mut Out) {
        let Stage::Committing { goal, row, equal_to } = &self.stage else { return };
        let (goal, row, equal_to) = (*goal, row.clone(), equal_to.clone());
        self.start((goal, row), equal_to, log, out);
    }

    fn start(&mut self, (goal, row): (Goal, LogRow), equal_to: Equal, log: &Chain, out: &mut Out) {
        self.stage = Stage::Starting { goal, row, equal_to, started: BTreeSet::new() };
        self.send_all(log, out);
    }
}

#[cfg(test)]
mod tests;
