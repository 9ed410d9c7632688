//! A stream that moves between two logs of a cluster, each of which comes to another node at any moment: what
//! a node finds in a log that it comes to own is decided with the other log's owner, whoever that is.

use super::log::{LOGS, Reply, Request, SimLog};
use super::moves::{check_stream, config, location, pace};
use super::violation::Violation;
use super::{Faults, Summary};
use crate::scheduler::Scheduler;
use nuthatch_log::StreamId;
use nuthatch_protocol::js::Time;
use nuthatch_protocol::jserror::JsError;
use nuthatch_streams::migration::deciding::{self, Decided, Decider, Pauses, Told};
use nuthatch_streams::migration::left_copy::{self, LeftCopy};
use nuthatch_streams::migration::mover::{self, Ended, Mover, Plan, Side};
use nuthatch_streams::migration::{self, LogStream, OtherLogs};
use nuthatch_streams::op::{CatalogEntry, OpResult};
use nuthatch_streams::stream::StreamLocation;
use nuthatch_streams::{AccountId, Op, OpOutcome};
use std::collections::BTreeMap;
use std::time::Duration;

const SECOND: u64 = 1_000_000;
const MILLI: u64 = 1_000;
/// What it may take until everything is decided once nothing fails any more.
const QUIET: u64 = 240 * SECOND;
/// So long a node waits for another one's answer.
const ASKED_MAX: u64 = SECOND;

const PAUSES: Pauses = Pauses { min: Duration::from_millis(20), max: Duration::from_secs(5) };

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Happening {
    Turn {
        log: usize,
    },
    Commit {
        log: usize,
        epoch: u64,
    },
    Publish,
    Operator,
    /// A task hears of the operation, or of the end of the pause, of this number.
    Told {
        number: u64,
    },
    /// The operation or the question of this number takes too long.
    Late {
        number: u64,
    },
    /// A question of one node arrives at the owner of a log.
    Arrives {
        number: u64,
    },
    FaultComes,
}

/// What a node does about a stream.
#[derive(Debug)]
enum Task {
    Move(Move),
    Decide { at: LogStream, decider: Decider },
    Left { at: LogStream, left: LeftCopy },
}

/// A move on its way.
#[derive(Debug)]
struct Move {
    from: LogStream,
    to: LogStream,
    mover: Mover,
    /// The number of the removal from the old log, once it was switched.
    departs: Option<u64>,
    forgotten: Option<OpResult>,
    awaits_forgotten: bool,
}

/// What a task waits for.
#[derive(Debug)]
enum Waiting {
    /// The outcome of an operation in a log.
    Outcome,
    /// An answer of the owner of a log: to this question.
    Answer {
        log: usize,
        question: Question,
    },
    Pause,
}

/// What one node asks the owner of another log.
#[derive(Clone, Debug)]
enum Question {
    /// How does this copy stand?
    Copy(StreamId),
    /// Does this stream go to this copy?
    Names { stream: StreamId, copy: StreamLocation },
}

/// A task and what it waits for; the epochs of the logs when it began.
#[derive(Debug)]
struct Running {
    task: Task,
    epochs: [u64; 2],
    waiting: Waiting,
}

/// The logs, their owners, and what publishers know.
struct World {
    schedule: Scheduler<Happening>,
    logs: [SimLog; 2],
    owner: [usize; 2],
    /// How often each log has changed hands.
    epoch: [u64; 2],
    faults: Faults,
    is_faulty: bool,
    /// The streams that are served in each log, held ones included.
    served: [Option<StreamId>; 2],
    /// Whether that one waits until it is known whether it lives there.
    undecided: [bool; 2],
    /// Tasks by the number of what they wait for.
    tasks: BTreeMap<u64, Running>,
    /// What logs and nodes have answered, by number.
    answers: BTreeMap<u64, Heard>,
    /// Questions at the owner of a log: the number there, and that of the task.
    asked: BTreeMap<u64, (u64, Option<StreamLocation>)>,
    /// Creations and beginnings of copies.
    begun: BTreeMap<u64, (LogStream, Option<LogStream>, [u64; 2])>,
    acked: BTreeMap<u64, u64>,
    numbers: u64,
    next_id: u32,
    summary: Summary,
}

/// What a task hears.
#[derive(Debug)]
enum Heard {
    Outcome(OpResult),
    NotSent,
    Nothing,
    Copy(Told),
    Names(bool),
    Late,
}

fn unavailable() -> JsError {
    JsError::CLUSTER_NOT_AVAIL
}

impl From<Heard> for mover::Happened {
    fn from(heard: Heard) -> Self {
        match heard {
            Heard::Outcome(result) => Self::Outcome(result),
            Heard::NotSent => Self::NotSent(unavailable()),
            Heard::Late => Self::Late,
            _ => Self::NoAnswer(unavailable()),
        }
    }
}

impl From<Heard> for deciding::Happened {
    fn from(heard: Heard) -> Self {
        match heard {
            Heard::Outcome(result) => Self::Outcome(result),
            Heard::NotSent => Self::NotSent,
            Heard::Copy(told) => Self::Told(told),
            _ => Self::NotTold,
        }
    }
}

impl World {
    fn new(seed: u64, printed: bool) -> Self {
        let mut schedule = Scheduler::new(seed, printed);
        let faults = Faults::drawn(&mut schedule.rng);
        schedule.after(MILLI, Happening::Operator);
        schedule.after(MILLI, Happening::Publish);
        schedule.after(faults.pause, Happening::FaultComes);
        Self {
            schedule,
            logs: Default::default(),
            owner: [0; 2],
            epoch: [1; 2],
            faults,
            is_faulty: true,
            served: [None; 2],
            undecided: [false; 2],
            tasks: BTreeMap::new(),
            answers: BTreeMap::new(),
            asked: BTreeMap::new(),
            begun: BTreeMap::new(),
            acked: BTreeMap::new(),
            numbers: 0,
            next_id: 0,
            summary: Summary::default(),
        }
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn fresh_id(&mut self) -> StreamId {
        self.next_id += 1;
        StreamId(self.next_id)
    }

    fn run_until(&mut self, end: u64) -> Result<(), Violation> {
        while let Some(happening) = self.schedule.next_until(end) {
            let now = self.schedule.now();
            self.schedule.trace.record(now, &happening);
            self.happen(happening)?;
            self.check_homes()?;
        }
        Ok(())
    }

    fn happen(&mut self, happening: Happening) -> Result<(), Violation> {
        match happening {
            Happening::Turn { log } => self.turn(log),
            Happening::Commit { log, epoch } if epoch == self.epoch[log] => self.commit(log),
            Happening::Commit { .. } => Ok(()),
            Happening::Publish => {
                self.publish();
                Ok(())
            }
            Happening::Operator => {
                self.operate();
                Ok(())
            }
            Happening::Told { number } => self.told(number),
            Happening::Late { number } => {
                if self.tasks.contains_key(&number) {
                    self.answers.entry(number).or_insert(Heard::Late);
                }
                self.told(number)
            }
            Happening::Arrives { number } => {
                self.arrives(number);
                Ok(())
            }
            Happening::FaultComes => self.fault_comes(),
        }
    }

    /// A stream takes messages in one log only.
    fn check_homes(&self) -> Result<(), Violation> {
        let takes = |log: usize| {
            let id = self.served[log]?;
            (!self.undecided[log] && !self.logs[log].is_held(id)).then_some(())
        };
        let homes = (0..2).filter_map(takes).count();
        if homes > 1 { Err(Violation::TwoHomes { homes }) } else { Ok(()) }
    }

    fn send(&mut self, log: usize, request: Request) {
        self.logs[log].send(request);
        let delay = self.schedule.rng.between(1, 200);
        self.schedule.after(delay, Happening::Turn { log });
    }

    fn turn(&mut self, log: usize) -> Result<(), Violation> {
        let replies = self.logs[log].turn();
        self.take(log, replies)?;
        if self.logs[log].has_jobs() {
            let delay = self.schedule.rng.between(50, self.faults.slowest);
            self.schedule.after(delay, Happening::Commit { log, epoch: self.epoch[log] });
        }
        Ok(())
    }

    fn commit(&mut self, log: usize) -> Result<(), Violation> {
        let count = 1 + self.schedule.rng.below(6) as usize;
        let replies = self.logs[log].commit(count);
        self.take(log, replies)?;
        if self.logs[log].has_jobs() {
            let delay = self.schedule.rng.between(50, 2 * MILLI);
            self.schedule.after(delay, Happening::Commit { log, epoch: self.epoch[log] });
        }
        Ok(())
    }

    fn take(&mut self, log: usize, replies: Vec<Reply>) -> Result<(), Violation> {
        for reply in replies {
            match reply {
                Reply::Outcome { number, result } => self.answered(number, result)?,
                Reply::Acked { token, seq } => {
                    self.summary.acked += 1;
                    if self.acked.insert(seq, token).is_some_and(|other| other != token) {
                        return Err(Violation::GivenTwice { seq });
                    }
                }
                Reply::HandedOver { held } => {
                    let to = 1 - log;
                    if let Some(id) = self.served[to] {
                        self.send(to, Request::Install { id, held });
                    }
                }
            }
        }
        Ok(())
    }

    /// A log has answered: the way to who asked takes time, or loses it.
    fn answered(&mut self, number: u64, result: OpResult) -> Result<(), Violation> {
        if let Some((at, copy, epochs)) = self.begun.remove(&number) {
            self.has_begun(at, copy, epochs, result.is_ok());
            return Ok(());
        }
        if let Some((task, names)) = self.asked.remove(&number) {
            self.tell_asker(task, names, result);
            return Ok(());
        }
        let departed = self.tasks.values_mut().find_map(|running| match &mut running.task {
            Task::Move(going) if going.departs == Some(number) => Some(going),
            _ => None,
        });
        if let Some(going) = departed {
            going.forgotten = Some(result);
            return self.has_forgotten(number);
        }
        self.tell(number, Heard::Outcome(result));
        Ok(())
    }

    fn tell(&mut self, number: u64, heard: Heard) {
        let lost = self.is_faulty && self.schedule.rng.chance(self.faults.lost);
        let heard = if lost { Heard::Nothing } else { heard };
        self.answers.insert(number, heard);
        let delay = self.schedule.rng.between(1, self.faults.answer_max);
        self.schedule.after(delay, Happening::Told { number });
    }

    fn tell_asker(&mut self, task: u64, names: Option<StreamLocation>, result: OpResult) {
        let heard = match result {
            Ok(OpOutcome::Copy(standing)) => Heard::Copy(Told::Copy(standing)),
            Ok(OpOutcome::GoesTo(to)) => Heard::Names(to.is_some() && to == names),
            Err(error) if error.err_code == JsError::STREAM_NOT_FOUND.err_code => match names {
                Some(_) => Heard::Names(false),
                None => Heard::Copy(Told::Gone),
            },
            _ => Heard::Nothing,
        };
        self.tell(task, heard);
    }

    /// A question of a node arrives where the log is owned by now.
    fn arrives(&mut self, number: u64) {
        let Some(running) = self.tasks.get(&number) else { return };
        let Waiting::Answer { log, question } = &running.waiting else { return };
        let (log, question) = (*log, question.clone());
        let (op, names) = match question {
            Question::Copy(id) => {
                let (account, name) = (AccountId::GLOBAL, config().name);
                (Op::RefuseCopy { id, account, name, log: LOGS[log].to_owned() }, None)
            }
            Question::Names { copy, .. } if self.is_going_to(&copy) => {
                return self.tell(number, Heard::Names(true));
            }
            Question::Names { stream, copy } => (Op::GoesTo { id: stream }, Some(copy)),
        };
        let there = self.number();
        self.asked.insert(there, (number, names));
        self.send(log, Request::Op { number: there, op });
    }

    /// True if a move to this copy is under way at a node that owns its source.
    fn is_going_to(&self, copy: &StreamLocation) -> bool {
        self.tasks.values().any(|running| match &running.task {
            Task::Move(going) => {
                let owned = running.epochs[going.from.log] == self.epoch[going.from.log];
                owned && location(going.to) == *copy
            }
            _ => false,
        })
    }

    /// A task hears what it waits for.
    fn told(&mut self, number: u64) -> Result<(), Violation> {
        let Some(heard) = self.answers.remove(&number) else { return Ok(()) };
        let Some(mut running) = self.tasks.remove(&number) else { return Ok(()) };
        self.summary.steps_of_machines += 1;
        let rested = matches!(running.waiting, Waiting::Pause);
        match &mut running.task {
            Task::Decide { at, decider } => {
                let ran = matches!(running.waiting, Waiting::Outcome);
                let happened = match heard {
                    _ if rested => deciding::Happened::Rested,
                    // The log ended before it answered.
                    Heard::Nothing if ran => deciding::Happened::NotSent,
                    heard => heard.into(),
                };
                let (at, action) = (*at, decider.step(happened));
                self.decide(at, running, action);
            }
            Task::Left { at, left } => {
                let happened = match heard {
                    _ if rested => left_copy::Happened::Rested,
                    Heard::Names(names) => left_copy::Happened::Told(names),
                    _ if matches!(running.waiting, Waiting::Outcome) => left_copy::Happened::Done,
                    _ => left_copy::Happened::NotTold,
                };
                let (at, action) = (*at, left.step(happened));
                self.clear(at, running, action);
            }
            Task::Move(_) => {
                let happened = if rested { mover::Happened::Rested } else { heard.into() };
                return self.move_on(running, happened);
            }
        }
        Ok(())
    }

    fn is_owner(&self, running: &Running, log: usize) -> bool {
        running.epochs[log] == self.epoch[log]
    }

    /// An operation of a task; the log may be another node's by now.
    fn run(&mut self, log: usize, op: Op, mut running: Running, until: Option<Duration>) {
        let number = self.number();
        running.waiting = Waiting::Outcome;
        let unsent = self.is_faulty && self.schedule.rng.chance(self.faults.not_sent);
        let lost = !self.is_owner(&running, log);
        self.tasks.insert(number, running);
        if unsent || lost {
            self.answers.insert(number, Heard::NotSent);
            return self.schedule.after(10, Happening::Told { number });
        }
        if let Some(until) = until {
            let wait = (until.as_micros() as u64).saturating_sub(self.schedule.now());
            self.schedule.after(wait, Happening::Late { number });
        }
        self.send(log, Request::Op { number, op });
    }

    fn question(&mut self, log: usize, question: Question, mut running: Running) {
        let number = self.number();
        running.waiting = Waiting::Answer { log, question };
        self.tasks.insert(number, running);
        let delay = self.schedule.rng.between(1, self.faults.answer_max);
        self.schedule.after(delay, Happening::Arrives { number });
        self.schedule.after(ASKED_MAX, Happening::Late { number });
    }

    fn rest(&mut self, micros: u64, mut running: Running) {
        let number = self.number();
        running.waiting = Waiting::Pause;
        self.tasks.insert(number, running);
        self.answers.insert(number, Heard::Nothing);
        self.schedule.after(micros.max(1), Happening::Told { number });
    }

    fn decide(&mut self, at: LogStream, running: Running, action: deciding::Action) {
        if !self.is_owner(&running, at.log) {
            return;
        }
        match action {
            deciding::Action::Ask(copy) => {
                let log = log_of(&copy);
                self.question(log, Question::Copy(copy.stream), running);
            }
            deciding::Action::Run(op) => self.run(at.log, op, running, None),
            deciding::Action::Rest(pause) => self.rest(pause.as_micros() as u64, running),
            deciding::Action::End(decided) => self.decided(at, decided),
        }
    }

    fn decided(&mut self, at: LogStream, decided: Decided) {
        match decided {
            Decided::Stays => self.undecided[at.log] = false,
            Decided::Left => {
                (self.served[at.log], self.undecided[at.log]) = (None, false);
            }
            // As a start: here the log comes to a node anew.
            Decided::GivenUp => self.come_soon(at.log),
        }
    }

    fn clear(&mut self, at: LogStream, running: Running, action: left_copy::Action) {
        if !self.is_owner(&running, at.log) {
            return;
        }
        match action {
            left_copy::Action::Ask(source) => {
                let (stream, copy) = (source.stream, location(at));
                self.question(log_of(&source), Question::Names { stream, copy }, running);
            }
            left_copy::Action::Run(op) => self.run(at.log, op, running, None),
            left_copy::Action::Rest(pause) => self.rest(pause.as_micros() as u64, running),
            left_copy::Action::End => {}
        }
    }

    fn move_on(
        &mut self,
        mut running: Running,
        mut happened: mover::Happened,
    ) -> Result<(), Violation> {
        loop {
            let lost = (0..2).any(|log| !self.is_owner(&running, log));
            let busy = self.is_faulty && self.schedule.rng.chance(50);
            let now = Duration::from_micros(self.schedule.now());
            let Task::Move(going) = &mut running.task else { panic!("it moves") };
            if lost {
                // As where a log is detached.
                going.mover.cancel();
            }
            let action = going.mover.step(happened, now);
            happened = match action {
                mover::Action::TakeTurn => mover::Happened::Turn(true),
                mover::Action::Lock if lost => mover::Happened::Elsewhere,
                mover::Action::Lock if busy => mover::Happened::LockBusy,
                mover::Action::Lock => mover::Happened::Locked(config()),
                mover::Action::Switch => {
                    self.switch(&mut running);
                    mover::Happened::Switched
                }
                mover::Action::Run { side, op, until } => {
                    let at = if side == Side::Source { going.from } else { going.to };
                    self.run(at.log, op, running, until);
                    return Ok(());
                }
                mover::Action::Rest { until } | mover::Action::Retry { until, .. } => {
                    let wait = (until.as_micros() as u64).saturating_sub(self.schedule.now());
                    self.rest(wait, running);
                    return Ok(());
                }
                mover::Action::AwaitForgotten => match going.forgotten.take() {
                    Some(result) => mover::Happened::Outcome(result),
                    None if lost => mover::Happened::NoAnswer(unavailable()),
                    None => {
                        going.awaits_forgotten = true;
                        let number = self.number();
                        running.waiting = Waiting::Outcome;
                        self.tasks.insert(number, running);
                        return Ok(());
                    }
                },
                mover::Action::End(ended) => {
                    self.ended(running, &ended);
                    return Ok(());
                }
            };
        }
    }

    fn switch(&mut self, running: &mut Running) {
        let owned = [0, 1].map(|log| self.is_owner(running, log));
        let Task::Move(going) = &mut running.task else { panic!("it moves") };
        let (from, to) = (going.from, going.to);
        let number = self.numbers + 1;
        going.departs = Some(number);
        self.numbers = number;
        if owned[to.log] {
            self.served[to.log] = Some(to.stream);
        }
        if owned[from.log] {
            (self.served[from.log], self.undecided[from.log]) = (None, false);
            self.send(from.log, Request::Depart { id: from.stream, number });
        } else {
            going.forgotten = Some(Err(unavailable()));
        }
    }

    fn has_forgotten(&mut self, departs: u64) -> Result<(), Violation> {
        let waits = |running: &Running| match &running.task {
            Task::Move(going) => going.departs == Some(departs) && going.awaits_forgotten,
            _ => false,
        };
        let Some(number) = self.tasks.iter().find(|(_, one)| waits(one)).map(|(at, _)| *at) else {
            return Ok(());
        };
        let mut running = self.tasks.remove(&number).expect("it was found");
        let Task::Move(going) = &mut running.task else { panic!("it moves") };
        let result = going.forgotten.take().expect("it was told");
        self.move_on(running, mover::Happened::Outcome(result))
    }

    /// What a move leaves behind is found out about by the nodes that own its logs.
    fn ended(&mut self, running: Running, ended: &Ended) {
        let owned = [0, 1].map(|log| self.is_owner(&running, log));
        let Task::Move(going) = running.task else { panic!("it moved") };
        match ended {
            Ended::Moved => self.summary.done += 1,
            Ended::GivenUp { not_refused: None, not_dropped: None, .. } => {
                self.summary.given_up += 1;
            }
            Ended::Undecided(_) if owned[going.from.log] => {
                self.undecided[going.from.log] = true;
                self.begin_deciding(going.from, location(going.to));
            }
            Ended::GivenUp { .. } if owned[going.to.log] => {
                self.begin_clearing(going.to, location(going.from));
            }
            Ended::Unforgotten(_) if owned[going.from.log] => self.come_soon(going.from.log),
            _ => {}
        }
    }

    fn begin_deciding(&mut self, at: LogStream, copy: StreamLocation) {
        let decider = Decider::new(location(at), copy, PAUSES);
        let (task, epochs) = (Task::Decide { at, decider }, self.epoch);
        let mut running = Running { task, epochs, waiting: Waiting::Pause };
        let Task::Decide { decider, .. } = &mut running.task else { panic!("it was made so") };
        let action = decider.step(deciding::Happened::Began);
        self.decide(at, running, action);
    }

    fn begin_clearing(&mut self, at: LogStream, source: StreamLocation) {
        let left = LeftCopy::new(at.stream, source, PAUSES);
        let (task, epochs) = (Task::Left { at, left }, self.epoch);
        let mut running = Running { task, epochs, waiting: Waiting::Pause };
        let Task::Left { left, .. } = &mut running.task else { panic!("it was made so") };
        let action = left.step(left_copy::Happened::Began);
        self.clear(at, running, action);
    }

    fn publish(&mut self) {
        let pause = self.schedule.rng.between(MILLI, 100 * MILLI);
        self.schedule.after(pause, Happening::Publish);
        let log = self.schedule.rng.below(2) as usize;
        let log = if self.served[log].is_some() { log } else { 1 - log };
        let Some(id) = self.served[log] else { return };
        let token = self.number();
        self.send(log, Request::Publish { id, token });
    }

    fn operate(&mut self) {
        let pause = self.schedule.rng.between(20 * MILLI, 800 * MILLI);
        self.schedule.after(pause, Happening::Operator);
        let moves = |running: &Running| matches!(running.task, Task::Move(_));
        if !self.begun.is_empty() || self.tasks.values().any(moves) {
            return;
        }
        match (self.served, self.undecided) {
            ([None, None], _) if self.next_id == 0 => self.create(),
            ([Some(stream), None], [false, _]) => self.begin(LogStream { log: 0, stream }),
            ([None, Some(stream)], [_, false]) => self.begin(LogStream { log: 1, stream }),
            _ => {}
        }
    }

    fn create(&mut self) {
        let (number, id) = (self.number(), self.fresh_id());
        let op = Op::CreateStream { id, account: AccountId::GLOBAL, config: config() };
        self.begun.insert(number, (LogStream { log: 0, stream: id }, None, self.epoch));
        self.send(0, Request::Op { number, op });
    }

    /// A move begins where one node has both logs.
    fn begin(&mut self, from: LogStream) {
        if self.owner[0] != self.owner[1] {
            return;
        }
        let (number, to) =
            (self.number(), LogStream { log: 1 - from.log, stream: self.fresh_id() });
        let (account, config, created) = (AccountId::GLOBAL, config(), Time(1));
        let op = Op::Arrive { id: to.stream, account, config, from: location(from), created };
        self.begun.insert(number, (to, Some(from), self.epoch));
        self.send(to.log, Request::Op { number, op });
    }

    fn has_begun(
        &mut self,
        at: LogStream,
        source: Option<LogStream>,
        epochs: [u64; 2],
        is_done: bool,
    ) {
        match (source, is_done) {
            (None, true) => self.served[at.log] = Some(at.stream),
            // Nobody has heard of it: it is created anew.
            (None, false) => self.next_id = 0,
            (Some(from), true) => {
                let plan = Plan { source: location(from), copy: location(at) };
                let mover = Mover::new(plan, pace());
                let (to, departs, forgotten) = (at, None, None);
                let going = Move { from, to, mover, departs, forgotten, awaits_forgotten: false };
                let running = Running { task: Task::Move(going), epochs, waiting: Waiting::Pause };
                self.rest(1, running);
            }
            (Some(_), false) => {}
        }
    }

    fn fault_comes(&mut self) -> Result<(), Violation> {
        if !self.is_faulty {
            return Ok(());
        }
        let pause = self.schedule.rng.between(1, 2 * self.faults.pause);
        self.schedule.after(pause, Happening::FaultComes);
        self.summary.faults += 1;
        let which = self.schedule.rng.below(3) as usize;
        for log in 0..2 {
            if which == 2 || which == log {
                let node = self.schedule.rng.below(2) as usize;
                self.come(log, node)?;
            }
        }
        Ok(())
    }

    fn come_soon(&mut self, log: usize) {
        // Its node ends: the log comes to one anew.
        let node = self.owner[log];
        if let Err(why) = self.come(log, node) {
            panic!("a log that comes to its node again: {why}");
        }
    }

    /// A log comes to a node: what was on its way there is durable or not, and nobody hears of it.
    fn come(&mut self, log: usize, node: usize) -> Result<(), Violation> {
        let jobs = self.logs[log].jobs() as u64;
        let kept = self.schedule.rng.between(0, jobs) as usize;
        self.logs[log].crash(kept);
        (self.epoch[log], self.owner[log]) = (self.epoch[log] + 1, node);
        self.summary.lives += 1;
        (self.served[log], self.undecided[log]) = (None, false);
        self.begun.retain(|_, (at, ..)| at.log != log);
        self.asked.clear();
        self.lose_tasks(log);
        let catalog = self.logs[log].catalog();
        let found =
            migration::resolve(&[LOGS[log]], std::slice::from_ref(&catalog), OtherLogs::AtNodes)
                .map_err(|error| Violation::Unresolved { error: error.to_string() })?;
        self.adopt(log, found.serve, false)?;
        self.adopt(log, found.undecided, true)?;
        for (_, copy) in found.waiting {
            let source = copy.provenance.from.expect("a copy comes from somewhere");
            self.begin_clearing(LogStream { log, stream: copy.id }, source);
        }
        if self.next_id > 0 && catalog.is_empty() && self.logs[1 - log].durable.is_empty() {
            // Its creation was lost.
            if !self.acked.is_empty() {
                return Err(Violation::StreamLost);
            }
            self.next_id = 0;
        }
        Ok(())
    }

    /// The tasks of the node that had the log: those about what is in it end; a move hears nothing of what it waits for.
    fn lose_tasks(&mut self, log: usize) {
        let lost: Vec<u64> = self
            .tasks
            .iter()
            .filter_map(|(number, running)| match &running.task {
                Task::Decide { at, .. } | Task::Left { at, .. } if at.log == log => Some(*number),
                _ => None,
            })
            .collect();
        for number in lost {
            self.tasks.remove(&number);
        }
        let moves = |running: &Running| matches!(running.task, Task::Move(_));
        let waiting: Vec<u64> =
            self.tasks.iter().filter(|(_, one)| moves(one)).map(|(at, _)| *at).collect();
        for number in waiting {
            let running = self.tasks.get_mut(&number).expect("it was listed");
            if matches!(running.waiting, Waiting::Outcome) {
                let Task::Move(going) = &mut running.task else { panic!("it was listed so") };
                going.awaits_forgotten = false;
                self.answers.entry(number).or_insert(Heard::Nothing);
                self.schedule.after(1, Happening::Told { number });
            }
        }
    }

    fn adopt(
        &mut self,
        log: usize,
        streams: Vec<(usize, CatalogEntry)>,
        is_undecided: bool,
    ) -> Result<(), Violation> {
        for (_, entry) in streams {
            if self.served[log].is_some() {
                return Err(Violation::TwoHomes { homes: 2 });
            }
            (self.served[log], self.undecided[log]) = (Some(entry.id), is_undecided);
            if is_undecided {
                let (number, id) = (self.number(), entry.id);
                self.logs[log].send(Request::Op { number, op: Op::Hold { id } });
                let replies = self.logs[log].turn();
                self.take(log, replies)?;
                let copy = entry.provenance.to.expect("it was about to go somewhere");
                self.begin_deciding(LogStream { log, stream: id }, copy);
            }
        }
        Ok(())
    }

    /// Nothing fails any more: everything is decided, a move comes to its end, and everything is there once.
    fn finish(&mut self) -> Result<(), Violation> {
        self.is_faulty = false;
        self.faults.slowest = 2 * MILLI;
        self.faults.answer_max = MILLI;
        for log in 0..2 {
            self.come(log, 0)?;
        }
        let (end, done) = (self.schedule.now() + QUIET, self.summary.done);
        while self.schedule.now() < end {
            self.run_until(self.schedule.now() + SECOND)?;
            if self.summary.done > done && self.tasks.is_empty() && self.begun.is_empty() {
                return self.check_whole();
            }
        }
        let state = format!("{:?} {:?} {:?}", self.tasks, self.served, self.logs);
        Err(Violation::Stuck { what: "a move between nodes", state })
    }

    fn check_whole(&mut self) -> Result<(), Violation> {
        for log in 0..2 {
            let jobs = self.logs[log].jobs();
            self.logs[log].crash(jobs);
        }
        let homes = self.logs.iter().flat_map(|log| log.durable.values());
        let homes: Vec<_> = homes.collect();
        match homes[..] {
            [home] if !home.provenance.arriving => check_stream(home, &self.acked),
            [] => Err(Violation::StreamLost),
            _ => Err(Violation::TwoHomes { homes: homes.len() }),
        }
    }
}

fn log_of(place: &StreamLocation) -> usize {
    LOGS.iter().position(|name| *name == place.log).expect("one of both logs")
}

/// Runs the schedule of a seed.
pub fn run(seed: u64, printed: bool) -> (Summary, Result<(), Violation>) {
    let mut world = World::new(seed, printed);
    let faults_for = world.schedule.rng.between(SECOND, 10 * SECOND);
    let result = world.run_until(faults_for).and_then(|()| world.finish());
    world.summary.hash = world.schedule.trace.hash();
    world.summary.steps = world.schedule.steps();
    (world.summary, result)
}
