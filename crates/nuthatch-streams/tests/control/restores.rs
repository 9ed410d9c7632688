//! Restores: backups with gaps, messages that were deleted later, and consumers become a stream, while
//! operations are refused, answers are lost, backups end in the middle, and power goes.
//!
//! What clients are shown is the whole backup, under its name, now and after every restart; what was
//! answered stays; a restore that failed leaves nothing.

use super::rig::{Dark, Lit, Rig, valid};
use super::seeds;
use nuthatch_log::StreamId;
use nuthatch_log::env::{Fault, MemDisk, SeededEntropy};
use nuthatch_protocol::js::{ConsumerConfig, ConsumerSnapshot, StreamConfig, Time};
use nuthatch_protocol::jserror::JsError;
use nuthatch_streams::control::restore::{Action, Happened, Item, Parts, Restore};
use nuthatch_streams::op::Replica;
use nuthatch_streams::{AccountId, Op, OpOutcome};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Power cuts in one history.
const CUTS: u64 = 4;
const HISTORIES: u64 = 150;
/// Steps between two cuts, at most.
const STEPS: u64 = 200;
const NAME: &str = "R";

/// What a restore is to bring.
#[derive(Clone, Default)]
struct Backup {
    items: Vec<Item>,
    messages: BTreeMap<u64, Vec<u8>>,
    consumers: BTreeSet<String>,
}

impl Backup {
    fn drawn(chance: &mut SeededEntropy) -> Self {
        let mut backup = Self::default();
        let mut seq = 1 + chance.below(5);
        for _ in 0..chance.below(24) {
            let body = vec![chance.below(256) as u8; 1 + chance.below(200) as usize];
            backup.messages.insert(seq, body.clone());
            let subject = b"s.0".to_vec();
            let time = Time(1_600_000_000_000_000_000 + seq as i64);
            let message = Replica { seq, time, subject, headers: Vec::new(), body };
            backup.items.push(Item::Message(message));
            if chance.below(6) == 0 {
                let first = 1 + chance.below(seq);
                let last = (first + chance.below(3)).min(seq);
                backup.messages.retain(|seq, _| !(first..=last).contains(seq));
                backup.items.push(Item::Removed { first, last });
            }
            seq += 1 + chance.below(3);
        }
        for at in 0..chance.below(3) {
            let name = format!("c{at}");
            let config = ConsumerConfig {
                name: name.clone(),
                durable_name: name.clone(),
                ..ConsumerConfig::default()
            };
            let snapshot = ConsumerSnapshot { config, state: None };
            backup.items.push(Item::Consumer(Box::new(snapshot)));
            backup.consumers.insert(name);
        }
        backup
    }
}

struct Going {
    machine: Restore,
    action: Action,
    left: std::vec::IntoIter<Item>,
}

struct World {
    chance: SeededEntropy,
    disk: MemDisk,
    going: Option<Going>,
    /// The backups of the last two restores: the older one's stream may not be deleted durably.
    backups: [Backup; 2],
    next_id: u32,
    now: Duration,
    /// What clients can ask for.
    shown: Option<StreamId>,
    /// The restore was answered.
    is_answered: bool,
    is_calm: bool,
    wrong: Option<String>,
    restored: u64,
    failed: u64,
}

fn config() -> StreamConfig {
    let subjects = vec!["s.>".to_owned()];
    *valid(StreamConfig { name: NAME.into(), subjects, ..StreamConfig::default() })
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            chance: SeededEntropy::new(seed),
            disk: MemDisk::default(),
            going: None,
            backups: Default::default(),
            next_id: 1,
            now: Duration::from_secs(1),
            shown: None,
            is_answered: false,
            is_calm: false,
            wrong: None,
            restored: 0,
            failed: 0,
        }
    }

    fn odds(&mut self, one_in: u64) -> bool {
        !self.is_calm && self.chance.below(one_in) == 0
    }

    fn inject_faults(&mut self) {
        let begin = self.disk.operations() + 1;
        self.disk.inject(Fault::PowerCut(begin + self.chance.below(400)));
        match self.chance.below(8) {
            0 => self.disk.inject(Fault::SyncError(begin + self.chance.below(90))),
            1 => self.disk.inject(Fault::WriteError(begin + self.chance.below(90))),
            _ => {}
        }
    }

    fn work(&mut self, rig: &mut Rig) -> Lit<()> {
        for _ in 0..self.chance.below(STEPS) {
            self.step(rig)?;
        }
        Ok(())
    }

    fn step(&mut self, rig: &mut Rig) -> Lit<()> {
        let Some(mut going) = self.going.take() else { return self.begin(rig) };
        self.now += Duration::from_millis(1);
        let happened = self.perform(&mut going, rig)?;
        going.action = going.machine.step(happened, self.now);
        if let Action::End(ended) = going.action {
            return self.ended(ended.is_ok(), rig);
        }
        self.going = Some(going);
        Ok(())
    }

    /// The stream goes, and the next restore begins.
    fn begin(&mut self, rig: &mut Rig) -> Lit<()> {
        if let Some(id) = self.shown.take() {
            self.is_answered = false;
            rig.done(Op::DeleteStream { id })?;
        }
        let backup = Backup::drawn(&mut self.chance);
        self.backups.swap(0, 1);
        self.backups[0] = backup.clone();
        let parts = Parts { messages_max: 4, bytes_max: 600 };
        let mut machine = Restore::new(config(), parts);
        let action = machine.step(Happened::Began, self.now);
        self.going = Some(Going { machine, action, left: backup.items.into_iter() });
        Ok(())
    }

    fn perform(&mut self, going: &mut Going, rig: &mut Rig) -> Lit<Happened> {
        let failed = || Happened::Failed(JsError::CLUSTER_NOT_AVAIL);
        Ok(match going.action.clone() {
            Action::Lock | Action::Check(_) if self.odds(20) => failed(),
            Action::Feed if self.odds(40) => failed(),
            Action::Lock => Happened::Locked,
            Action::Create(config) => {
                self.next_id += 1;
                let (id, account) = (StreamId(self.next_id), AccountId::GLOBAL);
                let is_busy = self.odds(20);
                let busy = || Ok(Err(JsError::STREAM_TOO_MANY_REQUESTS));
                let create = Op::CreateStream { id, account, config };
                let outcome = if is_busy { busy() } else { rig.op(create) };
                Happened::Created(id, outcome?)
            }
            Action::Run(op) => self.run(op, rig)?,
            Action::Feed => going.left.next().map_or(Happened::Complete, Happened::Item),
            Action::Check(consumers) => Happened::Checked(Box::new(config()), consumers),
            Action::Show(_) => {
                self.show(rig)?;
                Happened::Shown
            }
            Action::Rest { until } => {
                self.now = until;
                Happened::Rested
            }
            Action::End(_) => panic!("it is over"),
        })
    }

    fn run(&mut self, op: Op, rig: &mut Rig) -> Lit<Happened> {
        let refused = |error: JsError| Ok(Happened::Outcome(Err(error)));
        if self.odds(20) {
            return refused(JsError::STREAM_TOO_MANY_REQUESTS);
        }
        let outcome = rig.op(op)?;
        if self.odds(25) {
            return refused(JsError::CLUSTER_NOT_AVAIL);
        }
        Ok(Happened::Outcome(outcome))
    }

    /// From now on clients can ask for it.
    fn show(&mut self, rig: &mut Rig) -> Lit<()> {
        self.shown = Some(StreamId(self.next_id));
        let found = self.fault_of_shown(rig)?;
        self.wrong = self.wrong.take().or(found);
        Ok(())
    }

    fn ended(&mut self, is_restored: bool, rig: &mut Rig) -> Lit<()> {
        if is_restored {
            self.is_answered = true;
            self.restored += 1;
            return Ok(());
        }
        self.failed += 1;
        if let Some(left) = rig.catalog()?.first() {
            let text = format!("a failed restore has left {}", left.config.name);
            self.wrong = self.wrong.take().or(Some(text));
        }
        Ok(())
    }

    /// What is wrong with what clients are shown.
    fn fault_of_shown(&mut self, rig: &mut Rig) -> Lit<Option<String>> {
        let Some(id) = self.shown else { return Ok(None) };
        let catalog = rig.catalog()?;
        let name = catalog.iter().find(|entry| entry.id == id).map(|entry| &entry.config.name);
        if name.is_none_or(|name| name != NAME) {
            return Ok(Some(format!("a stream is shown that is {name:?}")));
        }
        let held: BTreeMap<u64, Vec<u8>> =
            rig.read_all(id)?.into_iter().map(|found| (found.seq, found.body)).collect();
        let list = Op::ListConsumers { id, offset: 0, limit: 100, names_only: true };
        let consumers: BTreeSet<String> = match rig.done(list)? {
            OpOutcome::Consumers { names, .. } => names.into_iter().collect(),
            other => panic!("no consumers: {other:?}"),
        };
        let is_whole = |backup: &Backup| backup.messages == held && backup.consumers == consumers;
        let text = || format!("half of a backup is shown: {} messages", held.len());
        Ok((!self.backups.iter().any(is_whole)).then(text))
    }

    /// After a restart: what has a name that clients can ask for is shown.
    fn check(&mut self, rig: &mut Rig) -> Result<(), String> {
        if let Some(wrong) = self.wrong.take() {
            return Err(wrong);
        }
        let dark = |Dark| "dark without a cut".to_owned();
        let catalog = rig.catalog().map_err(dark)?;
        if let Some(left) = catalog.iter().find(|entry| entry.config.name != NAME) {
            return Err(format!("{} is there after a start", left.config.name));
        }
        self.going = None;
        let was_shown = self.is_answered.then_some(self.shown).flatten();
        self.shown = catalog.first().map(|entry| entry.id);
        if was_shown.is_some() && was_shown != self.shown {
            return Err("a stream that was restored is gone".to_owned());
        }
        match self.fault_of_shown(rig).map_err(dark)? {
            Some(wrong) => Err(wrong),
            None => Ok(()),
        }
    }
}

/// Returns how the disk was used, and how many restores came to their end, and failed.
fn history(seed: u64) -> Result<(u64, [u64; 2]), String> {
    let mut world = World::new(seed);
    let mut trace = 0_u64;
    for cut in 0..CUTS {
        world.inject_faults();
        let salt = seed * 31 + cut;
        if let Ok(mut rig) = Rig::open(&world.disk, salt) {
            // Dark or not, power goes now.
            let _ = world.work(&mut rig);
        }
        trace = trace.rotate_left(9) ^ world.disk.trace();
        world.disk = world.disk.crash(seed ^ (cut << 32));
        let mut rig =
            Rig::open(&world.disk, salt ^ 7).map_err(|error| format!("does not open: {error}"))?;
        world.check(&mut rig)?;
        // What this look did to the disk is lost as well.
        world.disk = world.disk.crash(salt);
    }
    // With power and without faults a restore comes to its end.
    world.is_calm = true;
    let mut rig =
        Rig::open(&world.disk, seed ^ 0xf1).map_err(|error| format!("does not open: {error}"))?;
    world.check(&mut rig)?;
    let restored = world.restored;
    while world.restored == restored {
        let failed = world.failed;
        world.step(&mut rig).map_err(|Dark| "dark without a cut".to_owned())?;
        if world.failed > failed {
            return Err("a restore fails without a fault".to_owned());
        }
    }
    world.check(&mut rig)?;
    Ok((trace, [world.restored, world.failed]))
}

#[test]
fn a_backup_becomes_a_stream_or_nothing() {
    let mut totals = [0; 2];
    for seed in seeds::seeds(0..HISTORIES) {
        match history(seed) {
            Ok((_, counts)) => totals = std::array::from_fn(|at| totals[at] + counts[at]),
            Err(why) => panic!("seed {seed}: {why}"),
        }
    }
    let [restored, failed] = totals;
    assert!(restored > HISTORIES * 2, "only {restored} restores came to their end");
    assert!(failed > HISTORIES / 2, "only {failed} restores failed");
}

#[test]
fn equal_seeds_give_equal_traces() {
    for seed in 0..3 {
        assert_eq!(history(seed), history(seed));
    }
}
