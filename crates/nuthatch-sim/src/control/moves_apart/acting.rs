//! What nodes do about a stream that moves: each task is told what it waits for, and says what is to be done next.

use super::{ASKED_MAX, Happening, PAUSES, World, log_of};
use crate::control::log::{LOGS, Request};
use crate::control::moves::{config, location};
use crate::control::violation::Violation;
use nuthatch_log::StreamId;
use nuthatch_protocol::jserror::JsError;
use nuthatch_streams::migration::LogStream;
use nuthatch_streams::migration::deciding::{self, Decided, Decider, Told};
use nuthatch_streams::migration::left_copy::{self, LeftCopy};
use nuthatch_streams::migration::mover::{self, Ended, Mover, Side};
use nuthatch_streams::op::OpResult;
use nuthatch_streams::stream::StreamLocation;
use nuthatch_streams::{AccountId, Op, OpOutcome};
use std::time::Duration;

/// What a node does about a stream.
#[derive(Debug)]
pub(super) enum Task {
    Move(Box<Move>),
    Decide { at: LogStream, decider: Decider },
    Left { at: LogStream, left: LeftCopy },
}

/// A move on its way.
#[derive(Debug)]
pub(super) struct Move {
    pub(super) from: LogStream,
    pub(super) to: LogStream,
    pub(super) mover: Mover,
    /// The number of the removal from the old log, once it was switched.
    pub(super) departs: Option<u64>,
    pub(super) forgotten: Option<OpResult>,
    pub(super) awaits_forgotten: bool,
}

/// What a task waits for.
#[derive(Debug)]
pub(super) enum Waiting {
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
pub(super) enum Question {
    /// How does this copy stand?
    Copy(StreamId),
    /// Does this stream go to this copy?
    Names { stream: StreamId, copy: StreamLocation },
}

/// A task and what it waits for; the epochs of the logs when it began.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) task: Task,
    pub(super) epochs: [u64; 2],
    /// The node that it runs at: one about what is in a log goes on while that is there, gone in between or not.
    pub(super) node: usize,
    pub(super) waiting: Waiting,
}

/// What a task hears.
#[derive(Debug)]
pub(super) enum Heard {
    Outcome(OpResult),
    NotSent,
    Nothing,
    Copy(Told),
    Names(bool),
    Late,
}

pub(super) fn unavailable() -> JsError {
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
    /// A task hears what it waits for.
    pub(super) fn told(&mut self, number: u64) -> Result<(), Violation> {
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

    pub(super) fn is_owner(&self, running: &Running, log: usize) -> bool {
        running.epochs[log] == self.epoch[log]
    }

    /// True if a log is where a task runs: for a move ever since that began.
    pub(super) fn has_log(&self, running: &Running, log: usize) -> bool {
        match running.task {
            Task::Move(_) => self.is_owner(running, log),
            Task::Decide { .. } | Task::Left { .. } => self.owner[log] == running.node,
        }
    }

    /// An operation of a task; the log may be another node's by now.
    pub(super) fn run(
        &mut self,
        log: usize,
        op: Op,
        mut running: Running,
        until: Option<Duration>,
    ) {
        let number = self.number();
        running.waiting = Waiting::Outcome;
        // What is not sent is looked at again where the log comes next: for a copy that may be never.
        let may_fail = self.is_faulty && !matches!(running.task, Task::Left { .. });
        let unsent = may_fail && self.schedule.rng.chance(self.faults.not_sent);
        let lost = !self.has_log(&running, log);
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

    pub(super) fn question(&mut self, log: usize, question: Question, mut running: Running) {
        let number = self.number();
        running.waiting = Waiting::Answer { log, question };
        self.tasks.insert(number, running);
        let delay = self.schedule.rng.between(1, self.faults.answer_max);
        self.schedule.after(delay, Happening::Arrives { number });
        self.schedule.after(ASKED_MAX, Happening::Late { number });
    }

    pub(super) fn rest(&mut self, micros: u64, mut running: Running) {
        let number = self.number();
        running.waiting = Waiting::Pause;
        self.tasks.insert(number, running);
        self.answers.insert(number, Heard::Nothing);
        self.schedule.after(micros.max(1), Happening::Told { number });
    }

    pub(super) fn decide(&mut self, at: LogStream, running: Running, action: deciding::Action) {
        if !self.has_log(&running, at.log) {
            return;
        }
        match action {
            deciding::Action::Ask(copy) => {
                let log = log_of(&copy);
                self.question(log, Question::Copy(copy.stream), running);
            }
            deciding::Action::Run(op) => self.run(at.log, op, running, None),
            deciding::Action::Rest(pause) => self.rest(pause.as_micros() as u64, running),
            deciding::Action::End(decided) => {
                let is_same = self.is_owner(&running, at.log);
                self.decided(at, decided, is_same);
            }
        }
    }

    pub(super) fn decided(&mut self, at: LogStream, decided: Decided, is_same: bool) {
        let is_served = self.served[at.log] == Some(at.stream);
        match decided {
            Decided::Stays if is_served => self.undecided[at.log] = false,
            Decided::Left if is_served => {
                (self.served[at.log], self.undecided[at.log]) = (None, false);
            }
            // The log takes nothing: it comes to a node anew.
            Decided::GivenUp if is_same && self.undecided[at.log] => self.come_soon(at.log),
            _ => {}
        }
    }

    pub(super) fn clear(&mut self, at: LogStream, running: Running, action: left_copy::Action) {
        if !self.has_log(&running, at.log) {
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

    pub(super) fn move_on(
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

    pub(super) fn switch(&mut self, running: &mut Running) {
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

    pub(super) fn has_forgotten(&mut self, departs: u64) -> Result<(), Violation> {
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
    pub(super) fn ended(&mut self, running: Running, ended: &Ended) {
        let owned = [0, 1].map(|log| self.is_owner(&running, log));
        let Task::Move(going) = running.task else { panic!("it moved") };
        match ended {
            Ended::Moved => self.summary.done += 1,
            Ended::GivenUp { not_refused: None, not_dropped: None, .. } => {
                self.summary.given_up += 1;
            }
            Ended::GivenUp { not_refused, .. } => {
                if owned[going.to.log] {
                    self.begin_clearing(going.to, location(going.from));
                }
                if not_refused.is_some() && owned[going.from.log] {
                    self.come_soon(going.from.log);
                }
            }
            Ended::Undecided(_) | Ended::Unforgotten(_) => {
                if owned[going.from.log] {
                    self.undecided[going.from.log] = self.served[going.from.log].is_some();
                    self.begin_deciding(going.from, location(going.to));
                }
                // What the copy waits for does not come any more.
                let is_cut_off = matches!(ended, Ended::Undecided(_)) || !owned[going.from.log];
                if is_cut_off && owned[going.to.log] {
                    self.come_soon(going.to.log);
                }
            }
        }
    }

    pub(super) fn begin_deciding(&mut self, at: LogStream, copy: StreamLocation) {
        let decider = Decider::new(location(at), copy, PAUSES);
        let (task, epochs, node) = (Task::Decide { at, decider }, self.epoch, self.owner[at.log]);
        let mut running = Running { task, epochs, node, waiting: Waiting::Pause };
        let Task::Decide { decider, .. } = &mut running.task else { panic!("it was made so") };
        let action = decider.step(deciding::Happened::Began);
        self.decide(at, running, action);
    }

    pub(super) fn begin_clearing(&mut self, at: LogStream, source: StreamLocation) {
        let left = LeftCopy::new(at.stream, source, PAUSES);
        let (task, epochs, node) = (Task::Left { at, left }, self.epoch, self.owner[at.log]);
        let mut running = Running { task, epochs, node, waiting: Waiting::Pause };
        let Task::Left { left, .. } = &mut running.task else { panic!("it was made so") };
        let action = left.step(left_copy::Happened::Began);
        self.clear(at, running, action);
    }

    /// The tasks of the node that had the log: those about what is in it end; a move hears nothing of what it waits for.
    pub(super) fn lose_tasks(&mut self, log: usize) {
        let lost: Vec<u64> = self
            .tasks
            .iter()
            .filter_map(|(number, running)| match &running.task {
                Task::Decide { at, .. } | Task::Left { at, .. } if at.log == log => {
                    let ends = running.node != self.owner[log]
                        || matches!(running.waiting, Waiting::Outcome);
                    ends.then_some(*number)
                }
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

    /// True if a move to this copy is under way at a node that owns its source.
    pub(super) fn is_going_to(&self, copy: &StreamLocation) -> bool {
        self.tasks.values().any(|running| match &running.task {
            Task::Move(going) => {
                let owned = running.epochs[going.from.log] == self.epoch[going.from.log];
                owned && location(going.to) == *copy
            }
            _ => false,
        })
    }

    pub(super) fn tell_asker(
        &mut self,
        task: u64,
        names: Option<StreamLocation>,
        result: OpResult,
    ) {
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
    pub(super) fn arrives(&mut self, number: u64) {
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
}
