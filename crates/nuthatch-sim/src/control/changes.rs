//! Changes of a few streams in two logs: created and deleted by many at once, answered late, refused or
//! never before a restart.

use super::log::{LOGS, Reply, Request, SimLog, unknown};
use super::violation::Violation;
use super::{Faults, Summary};
use crate::scheduler::Scheduler;
use nuthatch_log::StreamId;
use nuthatch_protocol::js::StreamConfig;
use nuthatch_protocol::subject::tree::SubjectTree;
use nuthatch_streams::control::changes::{ChangeId, Changes, Claim, Effect, Event};
use nuthatch_streams::{AccountId, Op, OpOutcome};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const SECOND: u64 = 1_000_000;
const MILLI: u64 = 1_000;
const QUIET: u64 = 60 * SECOND;
const ACCOUNT: AccountId = AccountId::GLOBAL;
const NAMES: [&str; 4] = ["A", "B", "C", "D"];
const SUBJECTS: [&str; 3] = ["x", "y", "z"];

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Happening {
    Turn { log: usize },
    Commit { log: usize },
    Ask,
    Answer { life: u64, change: u64 },
    Late { life: u64, change: u64 },
    FaultComes,
    Restart { life: u64 },
}

/// What a change is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Work {
    Create(&'static str),
    Delete,
}

/// A change, as who asked for it sees it.
#[derive(Debug)]
struct Task {
    name: &'static str,
    work: Work,
    /// What its log said: whether it was done.
    answer: Option<bool>,
}

/// A stream as the registry has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    id: StreamId,
    subject: &'static str,
}

struct World {
    schedule: Scheduler<Happening>,
    logs: [SimLog; LOGS.len()],
    faults: Faults,
    is_faulty: bool,
    life: u64,
    machine: Changes,
    tasks: BTreeMap<u64, Task>,
    registry: BTreeMap<&'static str, Entry>,
    granted: Option<u64>,
    answers: BTreeMap<u64, bool>,
    numbers: u64,
    summary: Summary,
}

const fn log_of(name: &str) -> usize {
    // C and D are in the second.
    (name.as_bytes()[0] >= b'C') as usize
}

fn tree(subject: &str) -> Arc<SubjectTree<()>> {
    let mut tree = SubjectTree::default();
    tree.insert(subject.as_bytes(), None, ());
    Arc::new(tree)
}

fn known(of: &[&'static str], text: &str) -> &'static str {
    of.iter().copied().find(|known| *known == text).expect("one of ours")
}

impl World {
    fn new(seed: u64, printed: bool) -> Self {
        let mut schedule = Scheduler::new(seed, printed);
        let faults = Faults::drawn(&mut schedule.rng);
        schedule.after(MILLI, Happening::Ask);
        schedule.after(faults.pause, Happening::FaultComes);
        Self {
            schedule,
            logs: Default::default(),
            faults,
            is_faulty: true,
            life: 0,
            machine: Changes::default(),
            tasks: BTreeMap::new(),
            registry: BTreeMap::new(),
            granted: None,
            answers: BTreeMap::new(),
            numbers: 0,
            summary: Summary::default(),
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
            Happening::Turn { log } => {
                let replies = self.logs[log].turn();
                self.take(replies);
                self.commit_later(log, self.faults.slowest);
                Ok(())
            }
            Happening::Commit { log } => {
                let replies = self.logs[log].commit(1);
                self.take(replies);
                self.commit_later(log, self.faults.slowest);
                Ok(())
            }
            Happening::Ask => self.ask(),
            Happening::Answer { life, change } if life == self.life => self.answered(change),
            Happening::Late { life, change } if life == self.life => self.late(change),
            Happening::FaultComes => self.fault_comes(),
            Happening::Restart { life } if life == self.life => self.restart(),
            // It belongs to a process that has ended.
            _ => Ok(()),
        }
    }

    fn commit_later(&mut self, log: usize, slowest: u64) {
        if self.logs[log].has_jobs() {
            let delay = self.schedule.rng.between(50, slowest);
            self.schedule.after(delay, Happening::Commit { log });
        }
    }

    fn take(&mut self, replies: Vec<Reply>) {
        for reply in replies {
            let Reply::Outcome { number, result } = reply else { continue };
            // What may have been done is not answered before a restart has found out.
            if result == unknown() {
                continue;
            }
            self.answers.insert(number, matches!(result, Ok(OpOutcome::Done)));
            for _ in 0..1 + u64::from(self.schedule.rng.chance(50)) {
                let delay = self.schedule.rng.between(1, self.faults.answer_max);
                self.schedule.after(delay, Happening::Answer { life: self.life, change: number });
            }
        }
    }

    /// Somebody asks for a change; now and then gives up waiting for the right.
    fn ask(&mut self) -> Result<(), Violation> {
        if !self.is_faulty {
            return Ok(());
        }
        let pause = self.schedule.rng.between(MILLI, 300 * MILLI);
        self.schedule.after(pause, Happening::Ask);
        let rng = &mut self.schedule.rng;
        let name = *rng.pick(&NAMES);
        let work = match rng.below(3) {
            0 => Work::Delete,
            _ => Work::Create(SUBJECTS[rng.below(3) as usize]),
        };
        self.numbers += 1;
        let id = self.numbers;
        let task = Task { name, work, answer: None };
        self.tasks.insert(id, task);
        self.step(id, Event::Wanted { account: ACCOUNT, name: name.to_owned() })
    }

    fn step(&mut self, id: u64, event: Event) -> Result<(), Violation> {
        self.summary.steps_of_machines += 1;
        let now = Duration::from_micros(self.schedule.now());
        for effect in self.machine.step(ChangeId(id), event, now) {
            match effect {
                Effect::Grant(ChangeId(id)) => {
                    if let Some(first) = self.granted.replace(id).filter(|other| *other != id) {
                        return Err(Violation::TwoRights { first, second: id });
                    }
                    self.go_on(id)?;
                }
                Effect::Refuse(ChangeId(id), _) => drop(self.tasks.remove(&id)),
                Effect::Wait(ChangeId(id), until) => {
                    let wait = (until.as_micros() as u64).saturating_sub(self.schedule.now());
                    self.schedule.after(wait, Happening::Late { life: self.life, change: id });
                }
            }
        }
        Ok(())
    }

    fn end(&mut self, id: u64) -> Result<(), Violation> {
        self.tasks.remove(&id);
        self.release(id);
        self.step(id, Event::Ended)
    }

    fn release(&mut self, id: u64) {
        self.granted = self.granted.filter(|granted| *granted != id);
    }

    /// It has the right: begins, or does what follows from its outcome.
    fn go_on(&mut self, id: u64) -> Result<(), Violation> {
        let task = &self.tasks[&id];
        let (name, work) = (task.name, task.work);
        match task.answer {
            None => self.begin(id, name, work),
            Some(true) => {
                self.show(id, name, work)?;
                self.end(id)
            }
            // A write of the log has failed: a restart finds out.
            Some(false) => self.end(id),
        }
    }

    /// What is durable shows in the registry.
    fn show(&mut self, id: u64, name: &'static str, work: Work) -> Result<(), Violation> {
        self.summary.done += 1;
        let Work::Create(subject) = work else {
            self.registry.remove(name);
            return Ok(());
        };
        let entry = Entry { id: StreamId(id as u32), subject };
        if self.registry.insert(name, entry).is_some() {
            return Err(Violation::NameTwice { log: log_of(name), name });
        }
        let same = self.registry.values().filter(|entry| entry.subject == subject);
        if same.count() > 1 {
            return Err(Violation::SubjectTwice { subject: subject.to_owned() });
        }
        Ok(())
    }

    fn begin(&mut self, id: u64, name: &'static str, work: Work) -> Result<(), Violation> {
        let there = self.registry.get(name).copied();
        let claimed = |subject: &str| {
            let mut beside = self.machine.claims_beside(ACCOUNT, name);
            beside.any(|claim| claim.subjects.first_match(subject.as_bytes()).is_some())
        };
        let op = match (work, there) {
            (Work::Delete, Some(entry)) => Op::DeleteStream { id: entry.id },
            (Work::Create(subject), None)
                if !claimed(subject)
                    && self.registry.values().all(|entry| entry.subject != subject) =>
            {
                let subjects = vec![subject.to_owned()];
                let config =
                    StreamConfig { name: name.into(), subjects, ..StreamConfig::default() };
                let (id, config) = (StreamId(id as u32), Box::new(config));
                Op::CreateStream { id, account: ACCOUNT, config }
            }
            _ => return self.end(id),
        };
        let log = log_of(name);
        self.logs[log].send(Request::Op { number: id, op });
        let delay = self.schedule.rng.between(1, 200);
        self.schedule.after(delay, Happening::Turn { log });
        self.step(id, Event::Begun(Claim::of_name(log as u64, name)))
    }

    fn answered(&mut self, id: u64) -> Result<(), Violation> {
        // The second copy of an answer finds nobody who waits for it.
        let Some(answer) = self.answers.remove(&id) else { return Ok(()) };
        let Some(task) = self.tasks.get_mut(&id) else { return Ok(()) };
        task.answer = Some(answer);
        self.release(id);
        self.step(id, Event::Answered)
    }

    fn late(&mut self, id: u64) -> Result<(), Violation> {
        let Some(task) = self.tasks.get(&id).filter(|task| task.answer.is_none()) else {
            return Ok(());
        };
        self.summary.claims += 1;
        let subjects = match task.work {
            Work::Create(subject) => tree(subject),
            Work::Delete => Arc::default(),
        };
        self.release(id);
        self.step(id, Event::Late(subjects))
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
        let log = self.schedule.rng.below(2) as usize;
        let kept = self.schedule.rng.between(0, self.logs[log].jobs() as u64) as usize;
        let replies = self.logs[log].fail(kept);
        self.take(replies);
        let pause = self.schedule.rng.between(MILLI, SECOND);
        self.schedule.after(pause, Happening::Restart { life: self.life });
        Ok(())
    }

    /// What is durable counts; everything else is forgotten.
    fn restart(&mut self) -> Result<(), Violation> {
        for log in &mut self.logs {
            let kept = self.schedule.rng.between(0, log.jobs() as u64) as usize;
            log.crash(kept);
        }
        self.life += 1;
        self.summary.lives += 1;
        (self.machine, self.granted) = (Changes::default(), None);
        self.tasks.clear();
        self.answers.clear();
        self.registry = self.durable()?;
        Ok(())
    }

    /// The streams that are durable: each name once, each subject once.
    fn durable(&self) -> Result<BTreeMap<&'static str, Entry>, Violation> {
        let mut found = BTreeMap::new();
        for (log, streams) in self.logs.iter().map(|log| &log.durable).enumerate() {
            for (id, stream) in streams {
                let name = known(&NAMES, &stream.config.name);
                let subject = known(&SUBJECTS, &stream.config.subjects[0]);
                if found.values().any(|entry: &Entry| entry.subject == subject) {
                    return Err(Violation::SubjectTwice { subject: subject.to_owned() });
                }
                if found.insert(name, Entry { id: *id, subject }).is_some() {
                    return Err(Violation::NameTwice { log, name });
                }
            }
        }
        Ok(found)
    }

    /// Nothing fails any more: every change ends, nothing stays claimed, the registry is what is durable.
    fn finish(&mut self) -> Result<(), Violation> {
        self.is_faulty = false;
        // A failed log says nothing more before a restart.
        if self.logs.iter().any(|log| log.has_failed) {
            self.restart()?;
        }
        let end = self.schedule.now() + QUIET;
        self.run_until(end)?;
        if let Some((id, task)) = self.tasks.first_key_value() {
            return Err(Violation::Stuck { what: "a change", state: format!("{id} {task:?}") });
        }
        let durable = self.durable()?;
        for name in NAMES {
            if self.machine.claimed(ACCOUNT, name).is_some() {
                return Err(Violation::StaysClaimed { name });
            }
            if durable.get(name) != self.registry.get(name) {
                return Err(Violation::RegistryDiffers { name });
            }
        }
        Ok(())
    }
}

/// Runs the schedule of a seed.
pub fn run(seed: u64, printed: bool) -> (Summary, Result<(), Violation>) {
    let mut world = World::new(seed, printed);
    // Logs that take longer than others wait are what claims are for.
    world.faults.slowest = *world.schedule.rng.pick(&[2 * MILLI, SECOND, 8 * SECOND]);
    let faults_for = world.schedule.rng.between(2 * SECOND, 12 * SECOND);
    let result = world.run_until(faults_for).and_then(|()| world.finish());
    world.summary.hash = world.schedule.trace.hash();
    world.summary.steps = world.schedule.steps();
    (world.summary, result)
}
