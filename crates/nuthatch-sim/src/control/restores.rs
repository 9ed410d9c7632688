//! Restores of a stream from backups, one after the other, while operations are refused, answers are lost,
//! backups end in the middle and the server stops.

use super::log::{Reply, Request, SimLog, SimStream};
use super::violation::Violation;
use super::{Faults, Summary};
use crate::rng::Rng;
use crate::scheduler::Scheduler;
use nuthatch_log::StreamId;
use nuthatch_protocol::js::{ConsumerConfig, ConsumerSnapshot, StreamConfig, StreamInfo, Time};
use nuthatch_protocol::jserror::JsError;
use nuthatch_streams::control::restore::{Action, Happened, Item, Parts, Restore};
use nuthatch_streams::op::{OpResult, Replica};
use nuthatch_streams::stream::is_restoring;
use nuthatch_streams::{AccountId, Op, OpOutcome};
use std::collections::BTreeMap;
use std::time::Duration;

const SECOND: u64 = 1_000_000;
const MILLI: u64 = 1_000;
const QUIET: u64 = 60 * SECOND;
const NAME: &str = "R";
/// What is stored in one go.
const PARTS: Parts = Parts { messages_max: 4, bytes_max: 600 };

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Happening {
    Turn,
    Commit,
    /// The next restore is asked for, or the stream is deleted for it.
    Ask,
    Answer {
        life: u64,
        number: u64,
    },
    Rested {
        life: u64,
        number: u64,
    },
    FaultComes,
    Restart {
        life: u64,
    },
}

/// What a restore is to bring.
#[derive(Clone, Default, Debug)]
struct Backup {
    items: Vec<Item>,
    messages: BTreeMap<u64, u64>,
    consumers: Vec<String>,
}

struct Going {
    machine: Restore,
    left: std::vec::IntoIter<Item>,
    awaits: u64,
    /// What it waits for is the beginning of this stream.
    begins: Option<StreamId>,
    /// It waits for the end of the restore.
    finishes: bool,
}

struct World {
    schedule: Scheduler<Happening>,
    log: SimLog,
    faults: Faults,
    is_faulty: bool,
    life: u64,
    going: Option<Going>,
    backup: Backup,
    /// What clients can ask for.
    shown: Option<StreamId>,
    /// The restore was answered, and nobody has asked for the stream's deletion.
    is_answered: bool,
    /// The deletion of the stream that is shown.
    deletes: Option<u64>,
    answers: BTreeMap<u64, OpResult>,
    /// The next backup ends in the middle.
    breaks: bool,
    numbers: u64,
    next_id: u32,
    summary: Summary,
}

fn config() -> StreamConfig {
    StreamConfig { name: NAME.into(), subjects: vec!["s.>".into()], ..StreamConfig::default() }
}

impl Backup {
    fn drawn(rng: &mut Rng, numbers: &mut u64) -> Self {
        let mut backup = Self::default();
        let mut seq = rng.between(1, 5);
        for _ in 0..rng.below(24) {
            *numbers += 1;
            backup.messages.insert(seq, *numbers);
            let (subject, body) = (b"s.0".to_vec(), numbers.to_le_bytes().to_vec());
            let message = Replica { seq, time: Time(1), subject, headers: Vec::new(), body };
            backup.items.push(Item::Message(message));
            if rng.chance(150) {
                let first = rng.between(1, seq);
                let last = (first + rng.below(3)).min(seq);
                backup.messages.retain(|seq, _| !(first..=last).contains(seq));
                backup.items.push(Item::Removed { first, last });
            }
            seq += rng.between(1, 3);
        }
        for at in 0..rng.below(3) {
            let name = format!("c{at}");
            let config = ConsumerConfig { name: name.clone(), ..ConsumerConfig::default() };
            let snapshot = ConsumerSnapshot { config, state: None };
            backup.items.push(Item::Consumer(Box::new(snapshot)));
            backup.consumers.push(name);
        }
        backup
    }

    fn is(&self, stream: &SimStream) -> bool {
        let messages = stream.messages.iter().map(|(seq, stored)| (*seq, stored.token));
        messages.eq(self.messages.iter().map(|(seq, token)| (*seq, *token)))
            && stream.consumers == self.consumers
    }
}

/// The log of this world tells no more of a stream than that it was done.
fn with_info(result: OpResult) -> OpResult {
    result.map(|_| OpOutcome::Stream { info: Box::<StreamInfo>::default(), subjects_total: 0 })
}

impl World {
    fn new(seed: u64, printed: bool) -> Self {
        let mut schedule = Scheduler::new(seed, printed);
        let faults = Faults::drawn(&mut schedule.rng);
        schedule.after(MILLI, Happening::Ask);
        schedule.after(faults.pause, Happening::FaultComes);
        Self {
            schedule,
            log: SimLog::default(),
            faults: Faults { slowest: faults.slowest.min(SECOND), ..faults },
            is_faulty: true,
            life: 0,
            going: None,
            backup: Backup::default(),
            shown: None,
            is_answered: false,
            deletes: None,
            answers: BTreeMap::new(),
            breaks: false,
            numbers: 0,
            next_id: 0,
            summary: Summary::default(),
        }
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn run_until(&mut self, end: u64) -> Result<(), Violation> {
        while let Some(happening) = self.schedule.next_until(end) {
            let now = self.schedule.now();
            self.schedule.trace.record(now, &happening);
            self.happen(happening)?;
        }
        Ok(())
    }

    fn happen(&mut self, happening: Happening) -> Result<(), Violation> {
        match happening {
            Happening::Turn => {
                let replies = self.log.turn();
                self.take(replies);
                self.commit_later();
            }
            Happening::Commit => {
                let count = 1 + self.schedule.rng.below(3) as usize;
                let replies = self.log.commit(count);
                self.take(replies);
                self.commit_later();
            }
            Happening::Ask => self.ask(),
            Happening::Answer { life, number } if life == self.life => {
                return self.answered(number);
            }
            Happening::Rested { life, number } if life == self.life => {
                return self.step(number, Happened::Rested);
            }
            Happening::FaultComes => return self.fault_comes(),
            Happening::Restart { life } if life == self.life => return self.restart(),
            // It belongs to a process that has ended.
            _ => {}
        }
        Ok(())
    }

    fn commit_later(&mut self) {
        if self.log.has_jobs() {
            let delay = self.schedule.rng.between(50, self.faults.slowest);
            self.schedule.after(delay, Happening::Commit);
        }
    }

    fn send(&mut self, number: u64, op: Op) {
        self.log.send(Request::Op { number, op });
        let delay = self.schedule.rng.between(1, 200);
        self.schedule.after(delay, Happening::Turn);
    }

    /// Outcomes come some time later, or as an error although it was done.
    fn take(&mut self, replies: Vec<Reply>) {
        for reply in replies {
            let Reply::Outcome { number, result } = reply else { continue };
            let lost = self.is_faulty && self.schedule.rng.chance(self.faults.lost);
            let result = if lost { Err(JsError::CLUSTER_NOT_AVAIL) } else { result };
            self.answer(number, result);
        }
    }

    fn answer(&mut self, number: u64, result: OpResult) {
        self.answers.insert(number, result);
        for _ in 0..1 + u64::from(self.schedule.rng.chance(50)) {
            let delay = self.schedule.rng.between(1, self.faults.answer_max);
            self.schedule.after(delay, Happening::Answer { life: self.life, number });
        }
    }

    fn ask(&mut self) {
        let pause = self.schedule.rng.between(20 * MILLI, 600 * MILLI);
        self.schedule.after(pause, Happening::Ask);
        if self.going.is_some() || self.deletes.is_some() || self.log.has_failed {
            return;
        }
        if let Some(id) = self.shown {
            let number = self.number();
            self.is_answered = false;
            self.deletes = Some(number);
            return self.send(number, Op::DeleteStream { id });
        }
        self.backup = Backup::drawn(&mut self.schedule.rng, &mut self.numbers);
        self.breaks = self.schedule.rng.chance(150);
        let machine = Restore::new(config(), PARTS);
        let (awaits, left) = (self.number(), self.backup.items.clone().into_iter());
        self.going = Some(Going { machine, left, awaits, begins: None, finishes: false });
        self.schedule.after(1, Happening::Rested { life: self.life, number: awaits });
    }

    fn answered(&mut self, number: u64) -> Result<(), Violation> {
        // The second copy of an answer finds nobody who waits for it.
        let Some(result) = self.answers.remove(&number) else { return Ok(()) };
        if self.deletes == Some(number) {
            self.deletes = None;
            // Otherwise it is asked for again.
            if result.is_ok() || result == Err(JsError::STREAM_NOT_FOUND) {
                self.shown = None;
            }
            return Ok(());
        }
        let waiting = self.going.as_ref();
        let begins = waiting.and_then(|going| going.begins);
        let finishes = waiting.is_some_and(|going| going.finishes);
        let happened = match begins {
            Some(id) => Happened::Created(id, with_info(result)),
            None if finishes => Happened::Outcome(with_info(result)),
            None => Happened::Outcome(result),
        };
        self.step(number, happened)
    }

    /// Tells the restore what happened, if that is what it waits for, and does what it says.
    fn step(&mut self, number: u64, happened: Happened) -> Result<(), Violation> {
        if self.going.as_ref().is_none_or(|going| going.awaits != number) {
            return Ok(());
        }
        let mut going = self.going.take().expect("it waits");
        let mut happened = happened;
        loop {
            let now = Duration::from_micros(self.schedule.now());
            let action = going.machine.step(happened, now);
            self.summary.steps_of_machines += 1;
            happened = match action {
                Action::Lock if self.fails(30) => Happened::Failed(JsError::CLUSTER_NOT_AVAIL),
                Action::Lock => Happened::Locked,
                Action::Feed if self.breaks && self.schedule.rng.chance(300) => {
                    Happened::Failed(JsError::CLUSTER_NOT_AVAIL)
                }
                Action::Feed => going.left.next().map_or(Happened::Complete, Happened::Item),
                Action::Check(_) if self.fails(30) => Happened::Failed(JsError::CLUSTER_NOT_AVAIL),
                Action::Check(consumers) => Happened::Checked(Box::new(config()), consumers),
                Action::Show(_) => {
                    self.show(going.machine.stream().expect("it was begun"))?;
                    Happened::Shown
                }
                Action::End(ended) => {
                    self.ended(ended.is_ok());
                    return Ok(());
                }
                action => {
                    self.perform(&mut going, action);
                    self.going = Some(going);
                    return Ok(());
                }
            };
        }
    }

    fn fails(&mut self, per_mille: u64) -> bool {
        self.is_faulty && self.schedule.rng.chance(per_mille)
    }

    /// What takes time: its end is a happening of a number of its own.
    fn perform(&mut self, going: &mut Going, action: Action) {
        going.awaits = self.number();
        (going.begins, going.finishes) = (None, false);
        let number = going.awaits;
        let op = match action {
            Action::Create(config) => {
                self.next_id += 1;
                let id = StreamId(self.next_id);
                going.begins = Some(id);
                Op::CreateStream { id, account: AccountId::GLOBAL, config }
            }
            Action::Run(op) => {
                going.finishes = matches!(op, Op::FinishRestore { .. });
                op
            }
            Action::Rest { until } => {
                let wait = (until.as_micros() as u64).saturating_sub(self.schedule.now());
                self.schedule.after(wait, Happening::Rested { life: self.life, number });
                return;
            }
            other => panic!("that takes no time: {other:?}"),
        };
        if self.fails(self.faults.not_sent) {
            return self.answer(number, Err(JsError::STREAM_TOO_MANY_REQUESTS));
        }
        self.send(number, op);
    }

    /// From now on clients can ask for it.
    fn show(&mut self, id: StreamId) -> Result<(), Violation> {
        self.shown = Some(id);
        self.check_shown()
    }

    fn check_shown(&self) -> Result<(), Violation> {
        let Some(stream) = self.shown.map(|id| self.log.durable.get(&id)) else { return Ok(()) };
        let of = self.backup.messages.len();
        match stream {
            Some(stream) if stream.config.name == NAME && self.backup.is(stream) => Ok(()),
            stream => {
                let messages = stream.map_or(0, |stream| stream.messages.len());
                Err(Violation::HalfShown { messages, of })
            }
        }
    }

    fn ended(&mut self, is_restored: bool) {
        if is_restored {
            self.is_answered = true;
            self.summary.done += 1;
        } else {
            self.summary.given_up += 1;
        }
    }

    fn fault_comes(&mut self) -> Result<(), Violation> {
        if !self.is_faulty {
            return Ok(());
        }
        let pause = self.schedule.rng.between(1, 2 * self.faults.pause);
        self.schedule.after(pause, Happening::FaultComes);
        self.summary.faults += 1;
        if self.schedule.rng.chance(500) {
            return self.restart();
        }
        let kept = self.schedule.rng.between(0, self.log.jobs() as u64) as usize;
        let replies = self.log.fail(kept);
        self.take(replies);
        let pause = self.schedule.rng.between(MILLI, SECOND);
        self.schedule.after(pause, Happening::Restart { life: self.life });
        Ok(())
    }

    /// The server ends and starts again: what was being restored goes, what has its name is shown.
    fn restart(&mut self) -> Result<(), Violation> {
        let kept = self.schedule.rng.between(0, self.log.jobs() as u64) as usize;
        self.log.crash(kept);
        self.life += 1;
        self.summary.lives += 1;
        self.answers.clear();
        (self.going, self.deletes) = (None, None);
        let was_shown = self.is_answered.then_some(self.shown).flatten();
        let mut shown = None;
        for entry in self.log.catalog() {
            if is_restoring(&entry.config.name) {
                let number = self.number();
                self.send(number, Op::DeleteStream { id: entry.id });
            } else {
                shown = Some(entry.id);
            }
        }
        if was_shown.is_some() && was_shown != shown {
            return Err(Violation::RestoreLost);
        }
        self.shown = shown;
        self.check_shown()
    }

    /// Nothing fails any more: restores come to their end, and those that break leave nothing.
    fn finish(&mut self) -> Result<(), Violation> {
        self.is_faulty = false;
        self.faults.answer_max = MILLI;
        self.restart()?;
        let (end, done) = (self.schedule.now() + QUIET, self.summary.done);
        let given_up = self.summary.given_up;
        while self.schedule.now() < end {
            self.run_until(self.schedule.now() + 100 * MILLI)?;
            let rests = self.going.is_none() && self.deletes.is_none() && !self.log.has_jobs();
            if rests {
                self.check_left()?;
            }
            if rests && self.summary.done > done && self.summary.given_up > given_up {
                return self.restart();
            }
        }
        if self.summary.done > done {
            return Ok(());
        }
        Err(Violation::Stuck { what: "a restore", state: format!("after {QUIET} us") })
    }

    /// Nothing is there but what is shown.
    fn check_left(&self) -> Result<(), Violation> {
        let left = self.log.durable.iter().find(|(id, _)| Some(**id) != self.shown);
        left.map_or(Ok(()), |(_, stream)| Err(Violation::Left { name: stream.config.name.clone() }))
    }
}

/// Runs the schedule of a seed.
pub fn run(seed: u64, printed: bool) -> (Summary, Result<(), Violation>) {
    let mut world = World::new(seed, printed);
    let faults_for = world.schedule.rng.between(SECOND, 8 * SECOND);
    let result = world.run_until(faults_for).and_then(|()| world.finish());
    world.summary.hash = world.schedule.trace.hash();
    world.summary.steps = world.schedule.steps();
    (world.summary, result)
}
