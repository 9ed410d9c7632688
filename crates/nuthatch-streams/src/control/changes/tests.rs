//! Random changes of a few streams in two logs that answer when they like, or never before a restart:
//! a name has one stream, no two streams share a subject, and once every change has ended any stream
//! can be changed.

use super::*;
use nuthatch_log::env::SeededEntropy;
use std::collections::BTreeMap;

#[path = "../../../../../tests/seeds.rs"]
mod seeds;

const ACCOUNT: AccountId = AccountId::GLOBAL;
const NAMES: [&str; 3] = ["A", "B", "C"];
const SUBJECTS: [&str; 2] = ["x", "y"];
const HISTORIES: u64 = 2_000;
const ROUNDS: u64 = 120;

/// What a change is to do.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Work {
    /// A stream with this subject.
    Create(&'static str),
    Delete,
}

/// A change, as its driver sees it.
#[derive(Debug)]
struct Task {
    name: &'static str,
    work: Work,
    /// Its place in the queue of its log, and whether that has answered.
    at_log: Option<bool>,
    /// Its timer.
    due: Option<Now>,
    is_claimed: bool,
}

/// The logs' streams are what is durable; the registry is what clients and checks see.
#[derive(Default)]
struct World {
    machine: Changes,
    tasks: BTreeMap<u64, Task>,
    next: u64,
    now: Now,
    registry: BTreeMap<&'static str, &'static str>,
    /// By log: what was told to it and is not durable yet.
    queues: [Vec<(u64, &'static str, Work)>; 2],
    durable: [BTreeMap<&'static str, Vec<&'static str>>; 2],
    granted: Option<u64>,
}

fn log_of(name: &str) -> usize {
    usize::from(name == "C")
}

fn tree(subject: &str) -> Arc<SubjectTree<()>> {
    let mut tree = SubjectTree::default();
    tree.insert(subject.as_bytes(), None, ());
    Arc::new(tree)
}

impl World {
    fn take(&mut self, effects: Vec<Effect>) -> Result<(), String> {
        for effect in effects {
            match effect {
                Effect::Grant(ChangeId(id)) => {
                    if let Some(other) = self.granted.replace(id).filter(|other| *other != id) {
                        return Err(format!("{other} and {id} have the right"));
                    }
                    self.go_on(id)?;
                }
                Effect::Refuse(ChangeId(id), _) => drop(self.tasks.remove(&id)),
                Effect::Wait(ChangeId(id), until) => {
                    self.tasks.get_mut(&id).expect("under way").due = Some(until);
                }
            }
        }
        Ok(())
    }

    fn step(&mut self, id: u64, event: Event) -> Result<(), String> {
        let effects = self.machine.step(ChangeId(id), event, self.now);
        self.take(effects)
    }

    fn end(&mut self, id: u64) -> Result<(), String> {
        self.tasks.remove(&id);
        self.granted = self.granted.filter(|granted| *granted != id);
        self.step(id, Event::Ended)
    }

    /// It has the right: begins, or does what follows from its outcome.
    fn go_on(&mut self, id: u64) -> Result<(), String> {
        let task = &self.tasks[&id];
        let (name, work) = (task.name, task.work.clone());
        if task.at_log.is_none() {
            return self.begin(id, name, work);
        }
        match work {
            Work::Create(subject) => {
                if let Some(other) = self.registry.insert(name, subject) {
                    return Err(format!("{name} was created twice, before with {other}"));
                }
                let same = self.registry.iter().filter(|(_, other)| **other == subject);
                if same.count() > 1 {
                    return Err(format!("two streams take {subject}"));
                }
            }
            Work::Delete => {
                if self.registry.remove(name).is_none() {
                    return Err(format!("{name} was deleted twice"));
                }
            }
        }
        self.end(id)
    }

    fn begin(&mut self, id: u64, name: &'static str, work: Work) -> Result<(), String> {
        let is_there = self.registry.contains_key(name);
        let claimed = |subject: &str| {
            let mut beside = self.machine.claims_beside(ACCOUNT, name);
            beside.any(|claim| claim.subjects.first_match(subject.as_bytes()).is_some())
        };
        let is_refused = match work {
            Work::Create(subject) => {
                is_there || self.registry.values().any(|s| *s == subject) || claimed(subject)
            }
            Work::Delete => !is_there,
        };
        if is_refused {
            return self.end(id);
        }
        self.tasks.get_mut(&id).expect("under way").at_log = Some(false);
        self.queues[log_of(name)].push((id, name, work));
        self.step(id, Event::Begun(Claim::of_name(log_of(name) as u64, name)))
    }

    /// The first that a log was told becomes durable, and is answered.
    fn answer(&mut self, log: usize) -> Result<(), String> {
        if self.queues[log].is_empty() {
            return Ok(());
        }
        let (id, name, work) = self.queues[log].remove(0);
        self.apply(log, name, &work)?;
        let Some(task) = self.tasks.get_mut(&id) else { return Ok(()) };
        task.at_log = Some(true);
        self.granted = self.granted.filter(|granted| *granted != id);
        self.step(id, Event::Answered)
    }

    fn apply(&mut self, log: usize, name: &'static str, work: &Work) -> Result<(), String> {
        let streams = self.durable[log].entry(name).or_default();
        match work {
            Work::Create(subject) => streams.push(subject),
            Work::Delete => drop(streams.pop()),
        }
        if streams.len() > 1 {
            return Err(format!("log {log} has {name} twice"));
        }
        Ok(())
    }

    /// Timers that are due: the right goes on to others.
    fn tick(&mut self) -> Result<(), String> {
        let due = self.tasks.iter().find(|(_, task)| {
            task.at_log == Some(false)
                && !task.is_claimed
                && task.due.is_some_and(|due| due <= self.now)
        });
        let Some((&id, _)) = due else { return Ok(()) };
        let task = self.tasks.get_mut(&id).expect("it was there a moment ago");
        task.is_claimed = true;
        let subjects = match task.work {
            Work::Create(subject) => tree(subject),
            Work::Delete => Arc::default(),
        };
        self.granted = self.granted.filter(|granted| *granted != id);
        self.step(id, Event::Late(subjects))
    }

    fn ask(&mut self, chance: &mut SeededEntropy) -> Result<(), String> {
        let name = NAMES[chance.below(3) as usize];
        let work = match chance.below(3) {
            0 => Work::Delete,
            _ => Work::Create(SUBJECTS[chance.below(2) as usize]),
        };
        self.next += 1;
        let task = Task { name, work, at_log: None, due: None, is_claimed: false };
        self.tasks.insert(self.next, task);
        self.step(self.next, Event::Wanted { account: ACCOUNT, name: name.to_owned() })
    }

    /// What is durable counts, some of what the logs were told among it; everything else is forgotten.
    fn restart(&mut self, chance: &mut SeededEntropy) -> Result<(), String> {
        for log in 0..2 {
            for (_, name, work) in std::mem::take(&mut self.queues[log]) {
                if chance.below(2) == 0 {
                    break;
                }
                self.apply(log, name, &work)?;
            }
        }
        self.registry.clear();
        for streams in &self.durable {
            let there = streams.iter().filter_map(|(name, list)| Some((*name, *list.first()?)));
            self.registry.extend(there);
        }
        (self.machine, self.granted) = (Changes::default(), None);
        self.tasks.clear();
        Ok(())
    }

    /// Every log answers, every change ends: the registry is what is durable, and nothing is claimed.
    fn finish(&mut self) -> Result<(), String> {
        while !self.tasks.is_empty() {
            let before = (self.tasks.len(), self.queues[0].len() + self.queues[1].len());
            self.now += CHANGE_TIMEOUT;
            self.tick()?;
            self.answer(0)?;
            self.answer(1)?;
            let after = (self.tasks.len(), self.queues[0].len() + self.queues[1].len());
            if before == after && self.granted.is_none() {
                return Err(format!("{} changes wait for ever", self.tasks.len()));
            }
        }
        for name in NAMES {
            if self.machine.claimed(ACCOUNT, name).is_some() {
                return Err(format!("{name} stays claimed"));
            }
            let durable = self.durable[log_of(name)].get(name).and_then(|list| list.first());
            if durable != self.registry.get(name) {
                return Err(format!("the registry does not have {name} as its log has it"));
            }
        }
        Ok(())
    }
}

fn history(seed: u64) -> Result<usize, String> {
    let (mut world, mut chance) = (World::default(), SeededEntropy::new(seed));
    let mut claims = 0;
    for _ in 0..ROUNDS {
        world.now += Duration::from_millis(chance.below(800));
        match chance.below(24) {
            0..8 => world.ask(&mut chance)?,
            8..14 => world.answer(0)?,
            // The log of `C` is slow.
            14..16 => world.answer(1)?,
            16..23 => world.tick()?,
            _ if chance.below(4) == 0 => world.restart(&mut chance)?,
            _ => {}
        }
        claims = claims.max(world.machine.claims(ACCOUNT).count());
    }
    world.finish()?;
    Ok(claims)
}

#[test]
fn a_name_has_one_stream_whatever_order_logs_answer_in() {
    let mut claimed = 0;
    for seed in seeds::seeds(0..HISTORIES) {
        match history(seed) {
            Ok(claims) => claimed += u64::from(claims > 0),
            Err(why) => panic!("seed {seed}: {why}"),
        }
    }
    assert!(claimed > HISTORIES / 2, "only {claimed} histories had a claim");
}

#[test]
fn changes_that_are_given_up_leave_nothing() {
    let mut machine = Changes::default();
    let wanted = || Event::Wanted { account: ACCOUNT, name: "A".to_owned() };
    let granted = machine.step(ChangeId(1), wanted(), Now::ZERO);
    assert_eq!(granted, [Effect::Grant(ChangeId(1))]);
    assert_eq!(machine.step(ChangeId(2), wanted(), Now::ZERO), []);
    assert_eq!(machine.step(ChangeId(3), wanted(), Now::ZERO), []);
    assert_eq!(machine.step(ChangeId(2), Event::Ended, Now::ZERO), []);
    let claim = Event::Begun(Claim::of_name(5, "A"));
    machine.step(ChangeId(1), claim, Now::ZERO);
    let effects = machine.step(ChangeId(1), Event::Late(Arc::default()), Now::ZERO);
    assert_eq!(effects, [Effect::Refuse(ChangeId(3), 5)]);
    assert_eq!(machine.step(ChangeId(1), Event::Ended, Now::ZERO), []);
    assert_eq!(machine.claimed(ACCOUNT, "A"), None);
    assert_eq!(machine.step(ChangeId(4), wanted(), Now::ZERO), [Effect::Grant(ChangeId(4))]);
}

#[test]
fn a_timer_that_comes_after_the_answer_or_the_end_changes_nothing() {
    let mut machine = Changes::default();
    let wanted = || Event::Wanted { account: ACCOUNT, name: "A".to_owned() };
    machine.step(ChangeId(1), wanted(), Now::ZERO);
    machine.step(ChangeId(2), wanted(), Now::ZERO);
    machine.step(ChangeId(1), Event::Begun(Claim::of_name(5, "A")), Now::ZERO);
    machine.step(ChangeId(1), Event::Answered, Now::ZERO);
    assert_eq!(machine.step(ChangeId(1), Event::Late(Arc::default()), Now::ZERO), []);
    assert_eq!(machine.claimed(ACCOUNT, "A"), None);
    let effects = machine.step(ChangeId(1), Event::Ended, Now::ZERO);
    assert_eq!(effects, [Effect::Grant(ChangeId(2))]);
    assert_eq!(machine.step(ChangeId(1), Event::Late(Arc::default()), Now::ZERO), []);
}
