//! A stream that moves between two logs of a cluster, each of which comes to another node at any moment: what
//! a node finds in a log that it comes to own is decided with the other log's owner, whoever that is.

mod acting;

use super::log::{LOGS, Reply, Request, SimLog};
use super::moves::{check_stream, config, location, pace};
use super::violation::Violation;
use super::{Faults, Summary};
use crate::scheduler::Scheduler;
use acting::{Heard, Move, Running, Task, Waiting};
use nuthatch_log::StreamId;
use nuthatch_protocol::js::Time;
use nuthatch_streams::migration::deciding::Pauses;
use nuthatch_streams::migration::mover::{Mover, Plan};
use nuthatch_streams::migration::{self, LogStream, OtherLogs};
use nuthatch_streams::op::{CatalogEntry, OpResult};
use nuthatch_streams::stream::StreamLocation;
use nuthatch_streams::{AccountId, Op};
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
                let running = Running {
                    task: Task::Move(Box::new(going)),
                    epochs,
                    node: self.owner[at.log],
                    waiting: Waiting::Pause,
                };
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
                self.logs[log].send(Request::Op { number, op: Op::Hold { id, refuses: false } });
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
        // What is held, and waits for somebody, must come to its end by itself, too.
        let begins_anew = self.schedule.rng.chance(500);
        for log in 0..2 {
            if begins_anew || self.owner[log] != 0 || self.logs[log].has_failed {
                self.come(log, 0)?;
            }
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
