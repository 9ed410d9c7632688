//! A mirror and a source of a stream in another log, while it is published to and deleted from.

use super::log::{Reply, Request, SimLog, SimStream};
use super::violation::Violation;
use super::{Faults, Summary};
use crate::scheduler::Scheduler;
use nuthatch_log::StreamId;
use nuthatch_protocol::js::{StreamConfig, StreamSource, Time};
use nuthatch_protocol::jserror::JsError;
use nuthatch_streams::control::replication::{Action, Happened, Location, Plan, Replicator, Side};
use nuthatch_streams::op::OpResult;
use nuthatch_streams::{AccountId, Op};
use std::collections::BTreeMap;
use std::time::Duration;

const SECOND: u64 = 1_000_000;
const MILLI: u64 = 1_000;
/// What the end of a copy may take once nothing fails any more.
const QUIET: u64 = 120 * SECOND;
const ORIGIN: StreamId = StreamId(1);
/// The two copies: the mirror first.
const COPIES: [StreamId; 2] = [StreamId(1), StreamId(2)];
const NAMES: [&str; 2] = ["the mirror", "the source"];

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Happening {
    Turn { log: usize },
    Commit { log: usize },
    Publish,
    Delete,
    Answer { life: u64, number: u64 },
    Rested { life: u64, number: u64 },
    FaultComes,
    Restart { life: u64 },
}

/// A mirror or source, and the number of what it waits for.
#[derive(Debug)]
struct Copier {
    machine: Replicator,
    awaits: u64,
}

struct World {
    schedule: Scheduler<Happening>,
    /// The origin is in the first, its copies in the second.
    logs: [SimLog; 2],
    faults: Faults,
    is_faulty: bool,
    life: u64,
    copiers: Vec<Copier>,
    answers: BTreeMap<u64, OpResult>,
    /// Messages that were deleted in the origin, perhaps: a copy may have them.
    deleted: BTreeMap<u64, u64>,
    numbers: u64,
    summary: Summary,
}

fn source() -> StreamSource {
    StreamSource { name: "O".to_owned(), ..StreamSource::default() }
}

impl World {
    fn new(seed: u64, printed: bool) -> Self {
        let mut schedule = Scheduler::new(seed, printed);
        let faults = Faults::drawn(&mut schedule.rng);
        schedule.after(MILLI, Happening::Publish);
        schedule.after(100 * MILLI, Happening::Delete);
        schedule.after(faults.pause, Happening::FaultComes);
        let mut world = Self {
            schedule,
            logs: [SimLog::default(), SimLog::default()],
            faults,
            is_faulty: true,
            life: 0,
            copiers: Vec::new(),
            answers: BTreeMap::new(),
            deleted: BTreeMap::new(),
            numbers: 0,
            summary: Summary::default(),
        };
        for (log, id) in [(0, ORIGIN), (1, COPIES[0]), (1, COPIES[1])] {
            world.create(log, id);
        }
        world.begin();
        world
    }

    /// The streams are there from the beginning.
    fn create(&mut self, log: usize, id: StreamId) {
        let (account, config) = (AccountId::GLOBAL, Box::<StreamConfig>::default());
        let number = self.number();
        let log = &mut self.logs[log];
        log.send(Request::Op { number, op: Op::CreateStream { id, account, config } });
        log.turn();
        log.commit(1);
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Machines that know nothing.
    fn begin(&mut self) {
        self.copiers.clear();
        for (at, target) in COPIES.into_iter().enumerate() {
            let plan = Plan { target, source: source(), mirrors: at == 0 };
            let awaits = self.number();
            self.copiers.push(Copier { machine: Replicator::new(plan), awaits });
            self.schedule.after(1, Happening::Rested { life: self.life, number: awaits });
        }
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
            Happening::Turn { log } => self.turn(log),
            Happening::Commit { log } => self.commit(log),
            Happening::Publish => self.publish(),
            Happening::Delete => self.delete(),
            Happening::Answer { life, number } if life == self.life => {
                // The second copy of an answer finds nobody who waits for it.
                if let Some(result) = self.answers.remove(&number) {
                    return self.step(number, Happened::Outcome(result));
                }
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

    fn send(&mut self, log: usize, request: Request) {
        self.logs[log].send(request);
        let delay = self.schedule.rng.between(1, 200);
        self.schedule.after(delay, Happening::Turn { log });
    }

    fn turn(&mut self, log: usize) {
        let replies = self.logs[log].turn();
        self.take(replies);
        if self.logs[log].has_jobs() {
            let delay = self.schedule.rng.between(50, self.faults.slowest);
            self.schedule.after(delay, Happening::Commit { log });
        }
    }

    fn commit(&mut self, log: usize) {
        let count = 1 + self.schedule.rng.below(6) as usize;
        let replies = self.logs[log].commit(count);
        self.take(replies);
        if self.logs[log].has_jobs() {
            let delay = self.schedule.rng.between(50, 2 * MILLI);
            self.schedule.after(delay, Happening::Commit { log });
        }
    }

    /// Outcomes come to the server some time later, or as an error although it was done.
    fn take(&mut self, replies: Vec<Reply>) {
        for reply in replies {
            let Reply::Outcome { number, result } = reply else {
                self.summary.acked += 1;
                continue;
            };
            let lost = self.is_faulty && self.schedule.rng.chance(self.faults.lost);
            let result = if lost { Err(JsError::CLUSTER_NOT_AVAIL) } else { result };
            self.answers.insert(number, result);
            for _ in 0..1 + u64::from(self.schedule.rng.chance(50)) {
                let delay = self.schedule.rng.between(1, self.faults.answer_max);
                self.schedule.after(delay, Happening::Answer { life: self.life, number });
            }
        }
    }

    fn publish(&mut self) {
        let pause = self.schedule.rng.between(MILLI, 60 * MILLI);
        self.schedule.after(pause, Happening::Publish);
        let token = self.number();
        self.send(0, Request::Publish { id: ORIGIN, token });
    }

    fn delete(&mut self) {
        let pause = self.schedule.rng.between(MILLI, 600 * MILLI);
        self.schedule.after(pause, Happening::Delete);
        let messages = &self.logs[0].durable[&ORIGIN].messages;
        let count = messages.len().max(1) as u64;
        let at = self.schedule.rng.below(count) as usize;
        let Some((seq, stored)) = messages.iter().nth(at).map(|(seq, m)| (*seq, *m)) else {
            return;
        };
        self.deleted.insert(seq, stored.token);
        let number = self.number();
        self.send(0, Request::Op { number, op: Op::DeleteMessage { id: ORIGIN, seq } });
    }

    /// Tells the machine that waits for this what happened, and does what it says.
    fn step(&mut self, number: u64, happened: Happened) -> Result<(), Violation> {
        let Some(at) = self.copiers.iter().position(|copier| copier.awaits == number) else {
            return Ok(());
        };
        let mut happened = happened;
        loop {
            let now = Duration::from_micros(self.schedule.now());
            let action = self.copiers[at].machine.step(happened, now);
            self.summary.steps_of_machines += 1;
            let awaits = self.number();
            self.copiers[at].awaits = awaits;
            match action {
                Action::Locate { .. } => happened = self.locate(),
                Action::Run { side, op } => return self.perform(at, awaits, side, op),
                Action::Rest { until } => {
                    let until = until.as_micros() as u64;
                    self.rest(until.saturating_sub(self.schedule.now()), awaits);
                    return Ok(());
                }
                Action::AwaitChange => {
                    let wait = self.schedule.rng.between(MILLI, SECOND);
                    self.rest(wait, awaits);
                    return Ok(());
                }
                other => panic!("the origin is of this server: {other:?}"),
            }
        }
    }

    fn rest(&mut self, wait: u64, number: u64) {
        self.schedule.after(wait, Happening::Rested { life: self.life, number });
    }

    fn locate(&mut self) -> Happened {
        let errors = [JsError::STREAM_NOT_FOUND, JsError::CLUSTER_NOT_AVAIL];
        if self.is_faulty && self.schedule.rng.chance(50) {
            return Happened::NotLocated(self.schedule.rng.pick(&errors).clone());
        }
        Happened::Located(Location::Here { id: ORIGIN, created: Time(1) })
    }

    fn perform(&mut self, at: usize, number: u64, side: Side, op: Op) -> Result<(), Violation> {
        if let Op::ReadRange { request, .. } = &op {
            let copy = &self.logs[1].durable[&COPIES[at]];
            let (copy, from, stored) = (NAMES[at], request.from, position(at, copy));
            if from <= stored {
                return Err(Violation::ReadAgain { copy, from, stored });
            }
        }
        if self.is_faulty && self.schedule.rng.chance(self.faults.not_sent) {
            self.answers.insert(number, Err(JsError::STREAM_STORE_FAILED));
            self.schedule.after(10, Happening::Answer { life: self.life, number });
            return Ok(());
        }
        let log = usize::from(side == Side::Target);
        self.send(log, Request::Op { number, op });
        Ok(())
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
        let log = self.schedule.rng.below(2) as usize;
        let kept = self.schedule.rng.between(0, self.logs[log].jobs() as u64) as usize;
        let replies = self.logs[log].fail(kept);
        self.take(replies);
        let pause = self.schedule.rng.between(MILLI, SECOND);
        self.schedule.after(pause, Happening::Restart { life: self.life });
        Ok(())
    }

    /// The server ends and starts again: the copies' own streams say how far they are.
    fn restart(&mut self) -> Result<(), Violation> {
        for log in &mut self.logs {
            let kept = self.schedule.rng.between(0, log.jobs() as u64) as usize;
            log.crash(kept);
        }
        self.life += 1;
        self.summary.lives += 1;
        self.answers.clear();
        self.check()?;
        self.begin();
        Ok(())
    }

    /// A copy has what its origin has, up to its end.
    fn check(&self) -> Result<(), Violation> {
        let origin = &self.logs[0].durable[&ORIGIN];
        for (at, id) in COPIES.into_iter().enumerate() {
            self.compare(at, origin, &self.logs[1].durable[&id])?;
        }
        Ok(())
    }

    fn compare(&self, at: usize, origin: &SimStream, found: &SimStream) -> Result<(), Violation> {
        let copy = NAMES[at];
        let mut copied = BTreeMap::new();
        let mut before = 0;
        for (seq, stored) in &found.messages {
            let here = stored.origin_seq;
            if here <= before || at == 0 && here != *seq {
                return Err(Violation::OutOfOrder { copy, seq: here, before });
            }
            before = here;
            copied.insert(here, stored.token);
            let there = origin.messages.get(&here).map(|stored| stored.token);
            let expected = there.or_else(|| self.deleted.get(&here).copied());
            if expected != Some(stored.token) {
                return Err(Violation::Differs { copy, seq: here });
            }
        }
        let last = position(at, found);
        let mut must = origin.messages.range(..=last).map(|(seq, _)| *seq);
        let lacked = must.find(|seq| !copied.contains_key(seq));
        lacked.map_or(Ok(()), |seq| Err(Violation::Hole { copy, seq, last }))
    }

    fn is_done(&self) -> bool {
        let origin = &self.logs[0].durable[&ORIGIN];
        let last = origin.messages.keys().next_back().copied().unwrap_or(0);
        let at = |at: usize| position(at, &self.logs[1].durable[&COPIES[at]]);
        at(0) >= last && at(1) >= last && last > 0
    }

    /// Nothing fails any more: both copies come to the end of their origin.
    fn finish(&mut self) -> Result<(), Violation> {
        self.is_faulty = false;
        self.faults.slowest = 2 * MILLI;
        self.faults.answer_max = MILLI;
        self.restart()?;
        let end = self.schedule.now() + QUIET;
        while self.schedule.now() < end {
            self.run_until(self.schedule.now() + 200 * MILLI)?;
            if self.is_done() {
                self.summary.done += 1;
                return self.check();
            }
        }
        let state = format!("{:?}", self.copiers);
        Err(Violation::Stuck { what: "a copy", state })
    }
}

/// The last sequence of the origin that a copy has.
fn position(at: usize, copy: &SimStream) -> u64 {
    match at {
        0 => copy.last,
        _ => copy.messages.values().map(|stored| stored.origin_seq).max().unwrap_or(0),
    }
}

/// Runs the schedule of a seed.
pub fn run(seed: u64, printed: bool) -> (Summary, Result<(), Violation>) {
    let mut world = World::new(seed, printed);
    let faults_for = world.schedule.rng.between(SECOND, 6 * SECOND);
    let result = world.run_until(faults_for).and_then(|()| world.finish());
    world.summary.hash = world.schedule.trace.hash();
    world.summary.steps = world.schedule.steps();
    (world.summary, result)
}
