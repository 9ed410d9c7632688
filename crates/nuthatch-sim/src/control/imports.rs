//! Imports of one stream from another server: commands that bring it, compare it, put it in service or
//! give it up, two at a time now and then, while the log is slow, operations are refused, answers are
//! lost, late or doubled, commands are killed and the server stops.

mod checks;
mod command;

use super::log::{Reply, Request as ToLog, SimLog};
use super::violation::Violation;
use super::{Faults, Summary};
use crate::scheduler::Scheduler;
use command::{Command, Doing};
use nuthatch_log::StreamId;
use nuthatch_protocol::js::{StreamConfig, StreamInfo, StreamState};
use nuthatch_protocol::jserror::JsError;
use nuthatch_streams::control::import::{
    Batch, BatchId, Call, CallAction, CallHappened, Effect, Ended, Imports, Key, Request, Target,
};
use nuthatch_streams::op::{OpResult, Replica};
use nuthatch_streams::stream::importing_name;
use nuthatch_streams::{AccountId, Op, OpOutcome};
use std::collections::{BTreeMap, VecDeque};

const SECOND: u64 = 1_000_000;
const MILLI: u64 = 1_000;
const QUIET: u64 = 120 * SECOND;
const NAME: &str = "I";
const LOG: u64 = 1;
/// How long a command waits for an answer.
const TIMEOUT: u64 = 5 * SECOND;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Happening {
    Turn,
    Commit,
    /// The other server takes messages, while nobody finishes the import.
    Publish,
    /// A command begins.
    Begin,
    /// What a command sent arrives.
    Arrive {
        command: u64,
    },
    /// A command goes on.
    Go {
        command: u64,
    },
    /// A command looks whether the other server has more.
    Again {
        command: u64,
    },
    /// A command waits no longer.
    Timeout {
        command: u64,
        at: u64,
    },
    Kill {
        command: u64,
    },
    Answer {
        life: u64,
        number: u64,
    },
    FaultComes,
    Restart {
        life: u64,
    },
}

/// What an operation in the log is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    /// This call waits for it; it begins a stream.
    Begins(u64, StreamId),
    /// This call waits for it.
    Call(u64),
    /// Batches of the import that fills this stream are stored.
    Store(Target),
    /// The stream in service is deleted.
    Clear,
}

/// A call at the server.
struct Going {
    machine: Call,
    command: u64,
    /// It puts the stream in service.
    finishes: bool,
}

/// What a command sends.
#[derive(Clone, Debug)]
enum Sent {
    Call(Request),
    Batch { copies: Vec<Replica>, after: u64, gap_to: u64 },
}

/// What it is answered.
#[derive(Clone, Debug)]
enum Told {
    Call(Result<Ended, JsError>),
    Batch(Result<(), JsError>),
    /// The other server may have more.
    Again,
}

struct World {
    schedule: Scheduler<Happening>,
    log: SimLog,
    faults: Faults,
    is_faulty: bool,
    life: u64,
    imports: Imports,
    calls: BTreeMap<u64, Going>,
    /// Calls that wait for the right to change the stream; the first has it.
    queue: VecDeque<u64>,
    /// Who waits for a batch, and up to where it speaks.
    batches: BTreeMap<u64, (u64, u64)>,
    /// What operations are for.
    purposes: BTreeMap<u64, Purpose>,
    answers: BTreeMap<u64, OpResult>,
    /// What the other server has, by sequence; what is missing was deleted there.
    origin: BTreeMap<u64, u64>,
    /// The last sequence there.
    last: u64,
    commands: BTreeMap<u64, Command>,
    /// What the other server had when the stream was last being put in service.
    whole: (u64, BTreeMap<u64, u64>),
    /// The stream that clients see.
    shown: Option<StreamId>,
    /// A finish was answered, and nobody has asked for the deletion of the stream.
    is_answered: bool,
    clears: bool,
    /// Up to here commands were told that messages are durable, in this stream.
    confirmed: Option<(StreamId, u64)>,
    numbers: u64,
    next_id: u32,
    summary: Summary,
}

fn key() -> Key {
    Key { account: AccountId::GLOBAL, name: NAME.into() }
}

fn config() -> StreamConfig {
    StreamConfig { name: NAME.into(), subjects: vec!["s.>".into()], ..StreamConfig::default() }
}

impl World {
    fn new(seed: u64, printed: bool) -> Self {
        let mut schedule = Scheduler::new(seed, printed);
        let faults = Faults::drawn(&mut schedule.rng);
        schedule.after(MILLI, Happening::Publish);
        schedule.after(2 * MILLI, Happening::Begin);
        schedule.after(faults.pause, Happening::FaultComes);
        Self {
            schedule,
            log: SimLog::default(),
            faults,
            is_faulty: true,
            life: 0,
            imports: Imports::default(),
            calls: BTreeMap::new(),
            queue: VecDeque::new(),
            batches: BTreeMap::new(),
            purposes: BTreeMap::new(),
            answers: BTreeMap::new(),
            origin: BTreeMap::new(),
            last: 0,
            commands: BTreeMap::new(),
            whole: (0, BTreeMap::new()),
            shown: None,
            is_answered: false,
            clears: false,
            confirmed: None,
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
            Happening::Publish => self.publish(),
            Happening::Begin => self.begin_command(),
            Happening::Arrive { command } => return self.arrive(command),
            Happening::Go { command } => return self.go(command),
            Happening::Again { command } => self.tell(command, Told::Again),
            Happening::Timeout { command, at } => self.time_out(command, at),
            Happening::Kill { command } => self.kill(command),
            Happening::Answer { life, number } if life == self.life => {
                return self.answered(number);
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

    fn publish(&mut self) {
        let pause = self.schedule.rng.between(10 * MILLI, 500 * MILLI);
        self.schedule.after(pause, Happening::Publish);
        // Who puts the stream in service has stopped those who publish there, until it is on its way.
        if self.commands.values().any(Command::finishes)
            || self.calls.values().any(|call| call.finishes)
        {
            return;
        }
        for _ in 0..self.schedule.rng.below(5) {
            self.last += 1;
            let token = self.number();
            if self.schedule.rng.chance(800) {
                self.origin.insert(self.last, token);
            }
        }
        if self.schedule.rng.chance(200) && self.last > 0 {
            let gone = self.schedule.rng.between(1, self.last);
            self.origin.remove(&gone);
        }
    }

    fn send(&mut self, purpose: Purpose, op: Op) {
        let number = self.number();
        self.purposes.insert(number, purpose);
        if self.is_faulty && self.schedule.rng.chance(self.faults.not_sent) {
            return self.answer(number, Err(JsError::STREAM_TOO_MANY_REQUESTS));
        }
        self.log.send(ToLog::Op { number, op });
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

    fn answered(&mut self, number: u64) -> Result<(), Violation> {
        // The second copy of an answer finds nobody who waits for it.
        let Some(result) = self.answers.remove(&number) else { return Ok(()) };
        match self.purposes.remove(&number).expect("every operation is for something") {
            Purpose::Clear => {
                self.clears = false;
                // Otherwise it is asked for again.
                if result.is_ok() || result == Err(JsError::STREAM_NOT_FOUND) {
                    self.shown = None;
                }
                Ok(())
            }
            Purpose::Store(target) => {
                let effects = self.imports.stored(&key(), target, result);
                self.perform(target, effects);
                Ok(())
            }
            Purpose::Begins(call, id) => self.step(call, CallHappened::Created(id, result)),
            Purpose::Call(call) => {
                let result = result.map(|outcome| self.with_info(outcome));
                self.step(call, CallHappened::Outcome(result))
            }
        }
    }

    /// The log of this world says of some changes no more than that they are done.
    fn with_info(&self, outcome: OpOutcome) -> OpOutcome {
        let OpOutcome::Done = outcome else { return outcome };
        let stream = self.imports.target(&key()).and_then(|at| self.log.durable.get(&at.stream));
        let Some(stream) = stream else { return outcome };
        let state = StreamState { last_seq: stream.last, ..StreamState::default() };
        let config = stream.config.clone().into();
        let info = Box::new(StreamInfo { config, state, ..StreamInfo::default() });
        OpOutcome::Stream { info, subjects_total: 0 }
    }

    /// What follows for batches of the import that fills this stream.
    fn perform(&mut self, target: Target, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Store { copies, gap_to } => {
                    let op = Op::Mirror { id: target.stream, copies, gap_to };
                    self.send(Purpose::Store(target), op);
                }
                Effect::Answer(BatchId(number), answer) => {
                    // One that was answered too early is answered again.
                    let Some((command, gap_to)) = self.batches.remove(&number) else { continue };
                    if answer.is_ok() {
                        let before = self.confirmed.filter(|(of, _)| *of == target.stream);
                        let up_to = before.map_or(gap_to, |(_, seq)| seq.max(gap_to));
                        self.confirmed = Some((target.stream, up_to));
                    }
                    self.tell(command, Told::Batch(answer));
                }
            }
        }
    }

    /// What a command sent arrives at the server, in its order.
    fn arrive(&mut self, id: u64) -> Result<(), Violation> {
        let Some(sent) = self.commands.get_mut(&id).and_then(Command::arrives) else {
            return Ok(());
        };
        match sent {
            Sent::Call(request) => {
                let number = self.number();
                let finishes = matches!(request, Request::Finish { .. });
                let machine = Call::new(key(), request);
                self.calls.insert(number, Going { machine, command: id, finishes });
                self.step(number, CallHappened::Began)
            }
            Sent::Batch { copies, after, gap_to } => {
                let number = self.number();
                self.batches.insert(number, (id, gap_to));
                let batch = Batch { id: BatchId(number), copies, after: Some(after), gap_to };
                match self.imports.batch(&key(), batch) {
                    Ok((target, effects)) => self.perform(target, effects),
                    Err(why) => {
                        self.batches.remove(&number);
                        self.tell(id, Told::Batch(Err(why)));
                    }
                }
                Ok(())
            }
        }
    }

    /// Takes steps of a call until it waits for something.
    fn step(&mut self, number: u64, happened: CallHappened) -> Result<(), Violation> {
        let Some(mut going) = self.calls.remove(&number) else { return Ok(()) };
        let mut happened = happened;
        loop {
            self.summary.steps_of_machines += 1;
            let target = self.imports.target(&key());
            let (action, effects) = going.machine.step(happened, &mut self.imports);
            if let Some(target) = target {
                self.perform(target, effects);
            }
            happened = match action {
                CallAction::Lock => {
                    self.queue.push_back(number);
                    if self.queue.front() != Some(&number) {
                        self.calls.insert(number, going);
                        return Ok(());
                    }
                    CallHappened::Locked
                }
                CallAction::Check(config, consumers) => match self.check() {
                    Ok(()) => CallHappened::Checked(config, consumers, LOG),
                    Err(why) => CallHappened::Failed(why),
                },
                CallAction::Show(target, _) => {
                    self.show(target.stream)?;
                    CallHappened::Shown
                }
                CallAction::End(ended) => return self.ended(number, &going, ended),
                CallAction::Create { config, .. } => {
                    self.next_id += 1;
                    let id = StreamId(self.next_id);
                    self.calls.insert(number, going);
                    let account = AccountId::GLOBAL;
                    let op = Op::CreateStream { id, account, config };
                    self.send(Purpose::Begins(number, id), op);
                    return Ok(());
                }
                CallAction::Run { op, .. } => {
                    if let Op::FinishRestore { .. } = op {
                        going.finishes = false;
                        self.whole = (self.last, self.origin.clone());
                        if let Some(command) = self.commands.get_mut(&going.command) {
                            command.finishing_is_on_its_way();
                        }
                    }
                    self.calls.insert(number, going);
                    self.send(Purpose::Call(number), op);
                    return Ok(());
                }
            };
        }
    }

    fn check(&mut self) -> Result<(), JsError> {
        if self.shown.is_some() {
            return Err(JsError::STREAM_NAME_EXIST);
        }
        let fails = self.is_faulty && self.schedule.rng.chance(20);
        if fails { Err(JsError::STREAM_TOO_MANY_REQUESTS) } else { Ok(()) }
    }

    fn ended(
        &mut self,
        number: u64,
        going: &Going,
        ended: Result<Ended, JsError>,
    ) -> Result<(), Violation> {
        match &ended {
            Ok(Ended::Finished(_)) => {
                self.is_answered = true;
                self.summary.done += 1;
            }
            Ok(Ended::Cancelled) => {
                self.summary.given_up += 1;
                self.check_cancelled()?;
            }
            _ => {}
        }
        self.tell(going.command, Told::Call(ended));
        let had = self.queue.front() == Some(&number);
        self.queue.retain(|other| *other != number);
        match self.queue.front() {
            Some(next) if had => self.step(*next, CallHappened::Locked),
            _ => Ok(()),
        }
    }

    /// An answer is on its way to a command.
    fn tell(&mut self, id: u64, told: Told) {
        if let Some(command) = self.commands.get_mut(&id) {
            command.inbox.push_back(told);
            let delay = self.schedule.rng.between(1, MILLI);
            self.schedule.after(delay, Happening::Go { command: id });
        }
    }

    /// From now on clients can ask for it: it is what the other server has.
    fn show(&mut self, id: StreamId) -> Result<(), Violation> {
        self.shown = Some(id);
        self.check_shown()
    }

    fn fault_comes(&mut self) -> Result<(), Violation> {
        if !self.is_faulty {
            return Ok(());
        }
        let pause = self.schedule.rng.between(1, 4 * self.faults.pause);
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

    /// The server ends and starts again: what is being imported goes on, what has its name is shown.
    fn restart(&mut self) -> Result<(), Violation> {
        let kept = self.schedule.rng.between(0, self.log.jobs() as u64) as usize;
        self.log.crash(kept);
        self.life += 1;
        self.summary.lives += 1;
        self.answers.clear();
        self.purposes.clear();
        self.calls.clear();
        self.queue.clear();
        self.batches.clear();
        self.clears = false;
        (self.imports, self.commands) = (Imports::default(), BTreeMap::new());
        let was_shown = self.is_answered.then_some(self.shown).flatten();
        let mut shown = None;
        for entry in self.log.catalog() {
            if importing_name(&entry.config.name).is_some() {
                let target = Target { log: LOG, stream: entry.id };
                if self.imports.found(key(), target).is_err() {
                    return Err(Violation::NameTwice { log: 0, name: NAME });
                }
            } else {
                shown = Some(entry.id);
            }
        }
        if was_shown.is_some() && was_shown != shown {
            return Err(Violation::RestoreLost);
        }
        self.shown = shown;
        self.check_shown()?;
        self.check_importing()
    }

    /// Nothing fails any more: imports come to their end.
    fn finish(&mut self) -> Result<(), Violation> {
        self.is_faulty = false;
        self.faults.answer_max = MILLI;
        self.faults.slowest = self.faults.slowest.min(20 * MILLI);
        self.restart()?;
        let (end, done) = (self.schedule.now() + QUIET, self.summary.done);
        while self.schedule.now() < end {
            self.run_until(self.schedule.now() + 100 * MILLI)?;
            if self.summary.done > done && self.calls.is_empty() && !self.log.has_jobs() {
                self.check_shown()?;
                self.check_importing()?;
                return self.restart();
            }
        }
        let commands: Vec<&Doing> = self.commands.values().map(|one| &one.doing).collect();
        let state = format!("after {QUIET} us: {commands:?}, {} calls", self.calls.len());
        Err(Violation::Stuck { what: "an import", state })
    }
}

/// Runs the schedule of a seed.
pub fn run(seed: u64, printed: bool) -> (Summary, Result<(), Violation>) {
    let mut world = World::new(seed, printed);
    let faults_for = world.schedule.rng.between(2 * SECOND, 15 * SECOND);
    let result = world.run_until(faults_for).and_then(|()| world.finish());
    world.summary.hash = world.schedule.trace.hash();
    world.summary.steps = world.schedule.steps();
    (world.summary, result)
}
