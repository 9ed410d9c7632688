//! A stream that moves between two logs while it is published to, deleted and made anew.

use super::log::{LOGS, Reply, Request, SimLog, SimStream};
use super::violation::Violation;
use super::{Faults, Summary};
use crate::scheduler::Scheduler;
use nuthatch_log::StreamId;
use nuthatch_protocol::js::{StreamConfig, Time};
use nuthatch_protocol::jserror::JsError;
use nuthatch_streams::migration::mover::{Action, Ended, Happened, Mover, Pace, Phase, Plan, Side};
use nuthatch_streams::migration::{self, LogStream, OtherLogs};
use nuthatch_streams::op::{CatalogEntry, Forgotten, OpResult};
use nuthatch_streams::stream::StreamLocation;
use nuthatch_streams::{AccountId, Op, OpOutcome};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const SECOND: u64 = 1_000_000;
const MILLI: u64 = 1_000;
/// Name of the stream.
const NAME: &str = "S";
/// What the end of a move may take once nothing fails any more.
const QUIET: u64 = 120 * SECOND;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Happening {
    Turn {
        log: usize,
    },
    Commit {
        log: usize,
    },
    Publish,
    /// A move begins, is cancelled, or the stream is deleted.
    Operator,
    Answer {
        life: u64,
        number: u64,
    },
    /// The request of this number times out.
    Late {
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

/// A move on its way.
#[derive(Debug)]
struct Move {
    from: LogStream,
    to: LogStream,
    mover: Mover,
    /// What it waits for: the answer, or the end of the pause, of this number.
    awaits: u64,
    /// It waits for the old log to have forgotten the stream.
    awaits_forgotten: bool,
}

/// The logs, the server that moves, and what publishers know.
struct World {
    schedule: Scheduler<Happening>,
    logs: [SimLog; 2],
    faults: Faults,
    is_faulty: bool,
    life: u64,
    home: Option<LogStream>,
    going: Option<Move>,
    /// Answers on their way.
    answers: BTreeMap<u64, Told>,
    /// Answers that come to nobody: of creations and removals.
    plain: BTreeMap<u64, Plain>,
    /// Whether the old log has forgotten the stream, or the number of that request.
    forgotten: Result<(), u64>,
    acked: BTreeMap<u64, u64>,
    sequences: BTreeMap<u64, u64>,
    is_deleted: bool,
    /// Perhaps it was: nobody has answered.
    is_doomed: bool,
    /// Nobody knows how something has ended, until a restart finds out.
    awaits_restart: bool,
    numbers: u64,
    next_id: u32,
    summary: Summary,
}

/// What the server hears of an operation.
#[derive(Debug)]
enum Told {
    Outcome(OpResult),
    /// The log did not take it.
    NotSent,
    /// It may have been done.
    Nothing,
}

impl From<Told> for Happened {
    fn from(told: Told) -> Self {
        match told {
            Told::Outcome(result) => Happened::Outcome(result),
            Told::NotSent => Happened::NotSent(JsError::CLUSTER_NOT_AVAIL),
            Told::Nothing => Happened::NoAnswer(JsError::CLUSTER_NOT_AVAIL),
        }
    }
}

/// What the operator asked for.
#[derive(Clone, Copy, Debug)]
enum Plain {
    Create(LogStream),
    Delete,
    Arrive {
        from: LogStream,
        to: LogStream,
    },
    /// The remains of a stream are forgotten.
    Forget,
}

pub(super) fn pace() -> Pace {
    Pace {
        store_bytes_max: 1 << 20,
        store_messages_max: 6,
        switch_lag: 4,
        hold_step: Duration::from_millis(600),
        hold_max: Duration::from_secs(20),
        retry_min: Duration::from_millis(250),
        retry_max: Duration::from_secs(10),
        busy_pause: Duration::from_secs(2),
        rate_bytes: 1 << 30,
    }
}

pub(super) fn location(at: LogStream) -> StreamLocation {
    StreamLocation { log: LOGS[at.log].to_owned(), stream: at.stream }
}

pub(super) fn config() -> Box<StreamConfig> {
    Box::new(StreamConfig { name: NAME.to_owned(), ..StreamConfig::default() })
}

const fn micros(time: Duration) -> u64 {
    time.as_micros() as u64
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
            logs: [SimLog::default(), SimLog::default()],
            faults,
            is_faulty: true,
            life: 0,
            home: None,
            going: None,
            answers: BTreeMap::new(),
            plain: BTreeMap::new(),
            forgotten: Ok(()),
            acked: BTreeMap::new(),
            sequences: BTreeMap::new(),
            is_deleted: false,
            is_doomed: false,
            awaits_restart: false,
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

    fn now(&self) -> Duration {
        Duration::from_micros(self.schedule.now())
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
            Happening::Turn { log } => self.turn(log)?,
            Happening::Commit { log } => self.commit(log)?,
            Happening::Publish => self.publish(),
            Happening::Operator => self.operate(),
            Happening::Answer { life, number } if life == self.life => self.answered(number)?,
            Happening::Late { life, number } if life == self.life => {
                self.move_on(number, Happened::Late)?;
            }
            Happening::Rested { life, number } if life == self.life => {
                self.move_on(number, Happened::Rested)?;
            }
            Happening::FaultComes => self.fault_comes()?,
            Happening::Restart { life } if life == self.life => self.restart()?,
            // It belongs to a process that has ended.
            _ => {}
        }
        Ok(())
    }

    fn send(&mut self, log: usize, request: Request) {
        self.logs[log].send(request);
        let delay = self.schedule.rng.between(1, 200);
        self.schedule.after(delay, Happening::Turn { log });
    }

    fn turn(&mut self, log: usize) -> Result<(), Violation> {
        let replies = self.logs[log].turn();
        self.take(replies)?;
        if self.logs[log].has_jobs() {
            let delay = self.schedule.rng.between(50, self.faults.slowest);
            self.schedule.after(delay, Happening::Commit { log });
        }
        Ok(())
    }

    fn commit(&mut self, log: usize) -> Result<(), Violation> {
        let count = 1 + self.schedule.rng.below(6) as usize;
        let replies = self.logs[log].commit(count);
        self.take(replies)?;
        if self.logs[log].has_jobs() {
            let delay = self.schedule.rng.between(50, 2 * MILLI);
            self.schedule.after(delay, Happening::Commit { log });
        }
        Ok(())
    }

    /// What a log says: outcomes come to the server some time later, or never; acknowledgements at once.
    fn take(&mut self, replies: Vec<Reply>) -> Result<(), Violation> {
        for reply in replies {
            match reply {
                Reply::Outcome { number, result } => self.deliver(number, result),
                Reply::Acked { token, seq } => {
                    self.summary.acked += 1;
                    if self.sequences.insert(seq, token).is_some_and(|other| other != token) {
                        return Err(Violation::GivenTwice { seq });
                    }
                    self.acked.insert(seq, token);
                }
                Reply::HandedOver { held } => {
                    let to = self.home.expect("it was switched");
                    self.send(to.log, Request::Install { id: to.stream, held });
                }
            }
        }
        Ok(())
    }

    fn deliver(&mut self, number: u64, result: OpResult) {
        let lost = self.is_faulty && self.schedule.rng.chance(self.faults.lost);
        let told = if lost { Told::Nothing } else { Told::Outcome(result) };
        self.answers.insert(number, told);
        let copies = 1 + u64::from(self.schedule.rng.chance(50));
        for _ in 0..copies {
            let delay = self.schedule.rng.between(1, self.faults.answer_max);
            self.schedule.after(delay, Happening::Answer { life: self.life, number });
        }
    }

    fn publish(&mut self) {
        let pause = self.schedule.rng.between(MILLI, 100 * MILLI);
        self.schedule.after(pause, Happening::Publish);
        let Some(home) = self.home else { return };
        let token = self.number();
        self.send(home.log, Request::Publish { id: home.stream, token });
    }

    /// True if the stream may change: not while a move has its name, nor from the switch to its end.
    fn is_free(&self) -> bool {
        let may_change =
            |going: &Move| going.mover.phase() == Phase::Free && !going.mover.progress().switched;
        self.going.as_ref().is_none_or(may_change) && self.plain.is_empty() && !self.awaits_restart
    }

    fn operate(&mut self) {
        let pause = self.schedule.rng.between(20 * MILLI, 800 * MILLI);
        self.schedule.after(pause, Happening::Operator);
        if !self.is_free() {
            return;
        }
        match (self.home, &mut self.going) {
            (None, _) => self.create(),
            (Some(home), None) => self.begin(home),
            (Some(_), Some(going)) if self.is_faulty && self.schedule.rng.chance(60) => {
                going.mover.cancel();
            }
            (Some(home), _) if self.is_faulty && self.schedule.rng.chance(80) => self.delete(home),
            _ => {}
        }
    }

    fn ask(&mut self, log: usize, op: Op, plain: Plain) {
        let number = self.number();
        self.plain.insert(number, plain);
        self.send(log, Request::Op { number, op });
    }

    fn create(&mut self) {
        let id = self.fresh_id();
        let op = Op::CreateStream { id, account: AccountId::GLOBAL, config: config() };
        (self.is_deleted, self.is_doomed) = (false, false);
        self.acked.clear();
        self.sequences.clear();
        self.ask(0, op, Plain::Create(LogStream { log: 0, stream: id }));
    }

    fn delete(&mut self, home: LogStream) {
        self.is_doomed = true;
        self.ask(home.log, Op::DeleteStream { id: home.stream }, Plain::Delete);
    }

    fn begin(&mut self, from: LogStream) {
        let to = LogStream { log: 1 - from.log, stream: self.fresh_id() };
        let (account, config, created) = (AccountId::GLOBAL, config(), Time(1));
        let op = Op::Arrive { id: to.stream, account, config, from: location(from), created };
        self.ask(to.log, op, Plain::Arrive { from, to });
    }

    fn answered(&mut self, number: u64) -> Result<(), Violation> {
        // The second copy of an answer finds nobody who waits for it.
        let Some(told) = self.answers.remove(&number) else { return Ok(()) };
        if self.forgotten == Err(number) {
            return self.has_forgotten(told);
        }
        match self.plain.remove(&number) {
            None => self.move_on(number, told.into()),
            Some(plain) => {
                self.operated(plain, matches!(told, Told::Outcome(Ok(_))));
                Ok(())
            }
        }
    }

    fn operated(&mut self, plain: Plain, is_done: bool) {
        match (plain, is_done) {
            (Plain::Create(home), true) => self.home = Some(home),
            (Plain::Delete, true) => {
                (self.home, self.is_deleted, self.is_doomed) = (None, true, false);
                self.acked.clear();
            }
            (Plain::Arrive { from, to }, true) => self.go_on(from, to),
            (Plain::Forget, true) => {}
            // Whether it happened shows after a restart.
            (_, false) => self.restart_soon(),
        }
    }

    fn go_on(&mut self, from: LogStream, to: LogStream) {
        let plan = Plan { source: location(from), copy: location(to) };
        let mover = Mover::new(plan, pace());
        let awaits = self.number();
        self.going = Some(Move { from, to, mover, awaits, awaits_forgotten: false });
        self.schedule.after(1, Happening::Rested { life: self.life, number: awaits });
    }

    /// Tells the mover what happened, if that is what it waits for, and does what it says.
    fn move_on(&mut self, number: u64, mut happened: Happened) -> Result<(), Violation> {
        // What nobody waits for any more is dropped.
        if self.going.as_ref().is_none_or(|going| going.awaits != number) {
            return Ok(());
        }
        let mut going = self.going.take().expect("it waits");
        loop {
            let action = going.mover.step(happened, self.now());
            self.summary.steps_of_machines += 1;
            happened = match action {
                Action::TakeTurn => Happened::Turn(true),
                Action::Lock => match self.lock() {
                    Some(happened) => happened,
                    None => Happened::LockBusy,
                },
                Action::Switch => {
                    self.switch(&going);
                    Happened::Switched
                }
                Action::End(ended) => return self.ended(&ended),
                action => {
                    self.perform(&mut going, action);
                    self.going = Some(going);
                    return Ok(());
                }
            };
        }
    }

    fn lock(&mut self) -> Option<Happened> {
        let is_busy = !self.plain.is_empty() || self.is_faulty && self.schedule.rng.chance(50);
        (!is_busy).then(|| Happened::Locked(config()))
    }

    /// What takes time: its end is a happening of a number of its own.
    fn perform(&mut self, going: &mut Move, action: Action) {
        going.awaits = self.number();
        let (life, number) = (self.life, going.awaits);
        match action {
            Action::Run { side, op, until } => {
                let at = if side == Side::Source { going.from } else { going.to };
                if let Some(until) = until {
                    let wait = micros(until).saturating_sub(self.schedule.now());
                    self.schedule.after(wait, Happening::Late { life, number });
                }
                if self.is_faulty && self.schedule.rng.chance(self.faults.not_sent) {
                    self.answers.insert(number, Told::NotSent);
                    self.schedule.after(10, Happening::Answer { life, number });
                    return;
                }
                self.send(at.log, Request::Op { number, op });
            }
            Action::Rest { until } | Action::Retry { until, .. } => {
                let wait = micros(until).saturating_sub(self.schedule.now());
                self.schedule.after(wait, Happening::Rested { life, number });
            }
            Action::AwaitForgotten => {
                going.awaits_forgotten = true;
                if self.forgotten.is_ok() {
                    self.answers.insert(number, Told::Outcome(Ok(OpOutcome::Done)));
                    self.schedule.after(1, Happening::Answer { life, number });
                }
            }
            other => panic!("that takes no time: {other:?}"),
        }
    }

    fn switch(&mut self, going: &Move) {
        self.home = Some(going.to);
        let number = self.number();
        self.forgotten = Err(number);
        self.send(going.from.log, Request::Depart { id: going.from.stream, number });
    }

    /// The old log has answered whether it has forgotten the stream.
    fn has_forgotten(&mut self, told: Told) -> Result<(), Violation> {
        if matches!(told, Told::Outcome(Ok(_))) {
            self.forgotten = Ok(());
        }
        let waiting = self.going.as_ref().filter(|going| going.awaits_forgotten);
        let Some(number) = waiting.map(|going| going.awaits) else { return Ok(()) };
        self.move_on(number, told.into())
    }

    fn ended(&mut self, ended: &Ended) -> Result<(), Violation> {
        match ended {
            Ended::Moved => self.summary.done += 1,
            Ended::GivenUp { not_refused: None, not_dropped: None, .. } => {
                self.summary.given_up += 1;
            }
            // A restart finds out.
            _ => self.restart_soon(),
        }
        Ok(())
    }

    fn restart_soon(&mut self) {
        self.awaits_restart = true;
        let pause = self.schedule.rng.between(MILLI, SECOND);
        self.schedule.after(pause, Happening::Restart { life: self.life });
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
        // A write of one log fails: what waits there may be durable or not, and nobody hears of it.
        let log = self.schedule.rng.below(2) as usize;
        let kept = self.kept(log);
        let replies = self.logs[log].fail(kept);
        self.restart_soon();
        self.take(replies)
    }

    fn kept(&mut self, log: usize) -> usize {
        let jobs = self.logs[log].jobs() as u64;
        self.schedule.rng.between(0, jobs) as usize
    }

    /// The server ends and starts again: what is durable decides.
    fn restart(&mut self) -> Result<(), Violation> {
        for log in 0..2 {
            let kept = self.kept(log);
            self.logs[log].crash(kept);
        }
        self.life += 1;
        self.summary.lives += 1;
        self.answers.clear();
        self.plain.clear();
        (self.going, self.forgotten, self.awaits_restart) = (None, Ok(()), false);
        let catalogs: Vec<Vec<CatalogEntry>> = self.logs.iter().map(SimLog::catalog).collect();
        let found = migration::resolve(&LOGS, &catalogs, OtherLogs::Nowhere)
            .map_err(|error| Violation::Unresolved { error: error.to_string() })?;
        if found.serve.len() > 1 {
            return Err(Violation::TwoHomes { homes: found.serve.len() });
        }
        let serve = found.serve.first();
        let home = serve.map(|(log, entry)| LogStream { log: *log, stream: entry.id });
        self.check(home)?;
        self.home = home;
        for at in found.forget {
            let op = Op::Forget { id: at.stream, what: Forgotten::Any };
            self.ask(at.log, op, Plain::Forget);
        }
        if let Some(resume) = found.resume.first() {
            self.go_on(resume.source, resume.copy);
        }
        Ok(())
    }

    /// What was acknowledged is there, once, under its sequence, in the one home of the stream.
    fn check(&mut self, home: Option<LogStream>) -> Result<(), Violation> {
        let Some(home) = home else {
            let is_lost = self.home.is_some() && !self.is_doomed;
            self.acked.clear();
            self.sequences.clear();
            return if is_lost { Err(Violation::StreamLost) } else { Ok(()) };
        };
        if self.is_deleted {
            return Err(Violation::CameBack);
        }
        self.is_doomed = false;
        let stream = &self.logs[home.log].durable[&home.stream];
        check_stream(stream, &self.acked)?;
        // What was stored and never acknowledged stays.
        self.sequences = stream.messages.iter().map(|(seq, m)| (*seq, m.token)).collect();
        Ok(())
    }

    /// Nothing fails any more: the move comes to its end, and everything is there.
    fn finish(&mut self) -> Result<(), Violation> {
        self.is_faulty = false;
        self.faults.slowest = 2 * MILLI;
        self.faults.answer_max = MILLI;
        self.restart()?;
        let (end, done) = (self.schedule.now() + QUIET, self.summary.done);
        while self.schedule.now() < end {
            self.run_until(self.schedule.now() + SECOND)?;
            if self.home.is_some() && self.summary.done > done && self.is_free() {
                return self.restart();
            }
        }
        let state = format!("{:?}", self.going);
        Err(Violation::Stuck { what: "a move", state })
    }
}

pub(super) fn check_stream(
    stream: &SimStream,
    acked: &BTreeMap<u64, u64>,
) -> Result<(), Violation> {
    for (seq, token) in acked {
        match stream.messages.get(seq) {
            Some(stored) if stored.token == *token => {}
            Some(_) => return Err(Violation::GivenTwice { seq: *seq }),
            None => return Err(Violation::MessageLost { seq: *seq }),
        }
    }
    let mut seen = BTreeSet::new();
    let twice = stream.messages.values().find(|stored| !seen.insert(stored.token));
    twice.map_or(Ok(()), |stored| Err(Violation::Doubled { token: stored.token }))
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
