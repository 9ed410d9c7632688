//! Imports: a command reads another server and sends batches, a server stores them, and either is
//! killed, batches are refused, answers are lost, and power goes.
//!
//! What is here is what the other server has, without holes, up to the last sequence here; what was
//! confirmed stays; nothing is brought again that is stored. Without faults all of it is brought.

use super::rig::{Dark, Lit, Rig};
use super::seeds;
use nuthatch_log::StreamId;
use nuthatch_log::env::{Fault, MemDisk, SeededEntropy};
use nuthatch_protocol::js::{StreamConfig, Time};
use nuthatch_protocol::jserror::JsError;
use nuthatch_streams::control::import::{
    Action, Batch as Taken, BatchId, Effect, Event, Happened, Importer, Intake,
};
use nuthatch_streams::op::Replica;
use nuthatch_streams::stream::importing_config;
use nuthatch_streams::{AccountId, Op};
use std::collections::{BTreeMap, VecDeque};

/// Power cuts in one history.
const CUTS: u64 = 4;
const HISTORIES: u64 = 150;
/// Steps between two cuts, at most.
const STEPS: u64 = 250;
/// Batches that wait for their answers.
const WINDOW: usize = 4;
const STREAM: StreamId = StreamId(1);

/// A command at work.
struct Command {
    importer: Importer,
    action: Action,
    /// Batches that are to be sent.
    to_send: VecDeque<Batch>,
    /// Those that are not answered.
    unanswered: Vec<BatchId>,
}

#[derive(Clone)]
struct Batch {
    copies: Vec<Replica>,
    after: u64,
    gap_to: u64,
}

struct World {
    chance: SeededEntropy,
    disk: MemDisk,
    origin: BTreeMap<u64, Vec<u8>>,
    /// The last sequence there; it may be of a message that is gone.
    last: u64,
    command: Option<Command>,
    intake: Intake,
    /// On their way to the server, and from it.
    batches: VecDeque<(BatchId, Batch)>,
    answers: VecDeque<(BatchId, bool)>,
    /// Asked for, and not begun yet.
    store: Option<(Vec<Replica>, u64)>,
    next_batch: u64,
    /// Up to here the command was told that it is here.
    confirmed: u64,
    is_calm: bool,
    wrong: Option<String>,
    brought: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            chance: SeededEntropy::new(seed),
            disk: MemDisk::default(),
            origin: BTreeMap::new(),
            last: 0,
            command: None,
            intake: Intake::default(),
            batches: VecDeque::new(),
            answers: VecDeque::new(),
            store: None,
            next_batch: 0,
            confirmed: 0,
            is_calm: false,
            wrong: None,
            brought: 0,
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
        self.begin(rig)?;
        for _ in 0..self.chance.below(STEPS) {
            if self.odds(60) {
                self.kill();
            }
            self.step(rig)?;
        }
        Ok(())
    }

    /// The import, where it is not begun. Nothing of what was under way is left.
    fn begin(&mut self, rig: &mut Rig) -> Lit<()> {
        self.kill();
        (self.intake, self.store) = (Intake::found(), None);
        if rig.catalog()?.is_empty() {
            let named = StreamConfig { name: "I".into(), ..StreamConfig::default() };
            let (id, account) = (STREAM, AccountId::GLOBAL);
            let config = Box::new(importing_config(&named));
            rig.done(Op::CreateStream { id, account, config })?;
        }
        Ok(())
    }

    /// The command ends, and what it has sent does not arrive.
    fn kill(&mut self) {
        self.command = None;
        self.batches.clear();
        self.answers.clear();
    }

    fn step(&mut self, rig: &mut Rig) -> Lit<()> {
        match self.chance.below(5) {
            0 => self.publish(),
            1 => self.arrive(),
            2 => self.store(rig)?,
            _ => self.command(rig)?,
        }
        Ok(())
    }

    fn publish(&mut self) {
        if self.is_calm {
            return;
        }
        for _ in 0..self.chance.below(4) {
            self.last += 1;
            if self.chance.below(4) > 0 {
                let body = vec![self.last as u8; 1 + self.chance.below(150) as usize];
                self.origin.insert(self.last, body);
            }
        }
    }

    /// The server gets a batch.
    fn arrive(&mut self) {
        let Some((id, Batch { copies, after, gap_to })) = self.batches.pop_front() else { return };
        let after = Some(after);
        let effects = self.intake.step(Event::Batch(Taken { id, copies, after, gap_to }));
        self.take(effects);
    }

    fn take(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Store { copies, gap_to } => {
                    let before = self.store.replace((copies, gap_to));
                    assert!(before.is_none(), "two stores at a time");
                }
                Effect::Answer(batch, answer) => self.answers.push_back((batch, answer.is_ok())),
            }
        }
    }

    fn store(&mut self, rig: &mut Rig) -> Lit<()> {
        let Some((copies, gap_to)) = self.store.take() else { return Ok(()) };
        let outcome = match self.odds(12) {
            true => Err(JsError::STREAM_TOO_MANY_REQUESTS),
            false => rig.op(Op::Mirror { id: STREAM, copies, gap_to })?,
        };
        let outcome = if self.odds(20) { Err(JsError::CLUSTER_NOT_AVAIL) } else { outcome };
        let effects = self.intake.step(Event::Stored(outcome));
        self.take(effects);
        Ok(())
    }

    /// The command goes on, if it can.
    fn command(&mut self, rig: &mut Rig) -> Lit<()> {
        let Some(mut command) = self.command.take() else {
            let mut importer = Importer::default();
            let action = importer.step(Happened::Began);
            let (to_send, unanswered) = (VecDeque::new(), Vec::new());
            self.command = Some(Command { importer, action, to_send, unanswered });
            return Ok(());
        };
        let happened = match command.action {
            Action::Begin => {
                // It answers behind what was sent before.
                if self.store.is_some() || !self.batches.is_empty() {
                    self.command = Some(command);
                    return self.store(rig);
                }
                let stored = rig.info(STREAM)?.state.last_seq;
                let effects = self.intake.step(Event::Asked(stored));
                self.take(effects);
                Happened::Told { stored, verified: 0 }
            }
            Action::AskLast => Happened::Last(self.last),
            Action::Bring { last, .. } => match self.bring(&mut command) {
                Some(true) => {
                    self.confirmed = last;
                    self.brought += 1;
                    Happened::Brought
                }
                Some(false) => {
                    self.kill();
                    return Ok(());
                }
                None => {
                    self.command = Some(command);
                    return Ok(());
                }
            },
            Action::Compare { .. } => Happened::Compared,
            Action::Note(_) => Happened::Noted,
            Action::Done => Happened::LookAgain,
        };
        command.action = command.importer.step(happened);
        if let Action::Bring { first, last } = command.action {
            let stored = rig.info(STREAM)?.state.last_seq;
            if first <= stored {
                let text = format!("{first} to {last} is brought, and {stored} is stored");
                self.wrong = self.wrong.take().or(Some(text));
            }
            self.cut(&mut command, first, last);
        }
        self.command = Some(command);
        Ok(())
    }

    /// What is to be brought, in batches.
    fn cut(&mut self, command: &mut Command, first: u64, last: u64) {
        let range = self.origin.range(first..=last.max(first));
        let messages: Vec<Replica> = range
            .map(|(seq, body)| Replica {
                seq: *seq,
                time: Time(1_600_000_000_000_000_000 + *seq as i64),
                subject: b"s.0".to_vec(),
                headers: Vec::new(),
                body: body.clone(),
            })
            .collect();
        let mut after = first - 1;
        for copies in messages.chunks(1 + self.chance.below(3) as usize) {
            let gap_to = copies.last().expect("a chunk holds something").seq;
            command.to_send.push_back(Batch { copies: copies.to_vec(), after, gap_to });
            after = gap_to;
        }
        match command.to_send.back_mut() {
            Some(batch) => batch.gap_to = last,
            None => command.to_send.push_back(Batch { copies: Vec::new(), after, gap_to: last }),
        }
    }

    /// Sends a batch, or takes an answer. `true`: all of it is confirmed; `false`: it fails.
    fn bring(&mut self, command: &mut Command) -> Option<bool> {
        if command.unanswered.len() < WINDOW
            && let Some(batch) = command.to_send.pop_front()
        {
            self.next_batch += 1;
            let id = BatchId(self.next_batch);
            command.unanswered.push(id);
            self.batches.push_back((id, batch));
            return None;
        }
        if self.odds(50) {
            return Some(false);
        }
        if let Some((batch, is_stored)) = self.answers.pop_front() {
            command.unanswered.retain(|other| *other != batch);
            if !is_stored {
                return Some(false);
            }
        }
        let is_done = command.unanswered.is_empty() && command.to_send.is_empty();
        is_done.then_some(true)
    }

    /// What is here is what is there.
    fn check(&mut self, rig: &mut Rig) -> Result<(), String> {
        if let Some(wrong) = self.wrong.take() {
            return Err(wrong);
        }
        let dark = |Dark| "dark without a cut".to_owned();
        if rig.catalog().map_err(dark)?.is_empty() {
            return match self.confirmed {
                0 => Ok(()),
                _ => Err("the import is gone".to_owned()),
            };
        }
        let last = rig.info(STREAM).map_err(dark)?.state.last_seq;
        if last < self.confirmed {
            return Err(format!("{} was confirmed, and {last} is here", self.confirmed));
        }
        let here: Vec<_> = rig.read_all(STREAM).map_err(dark)?;
        let here: Vec<_> = here.into_iter().map(|found| (found.seq, found.body)).collect();
        let there: Vec<_> =
            self.origin.range(..=last).map(|(seq, body)| (*seq, body.clone())).collect();
        if here != there {
            let differs = there.iter().zip(&here).find(|(a, b)| a != b).map(|(a, _)| a.0);
            return Err(format!(
                "{} messages are here up to {last}, and {} there; the first that differs is \
                 {differs:?}",
                here.len(),
                there.len()
            ));
        }
        Ok(())
    }
}

/// Returns how the disk was used, and how many stretches were brought.
fn history(seed: u64) -> Result<(u64, u64), String> {
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
    world.is_calm = true;
    let mut rig =
        Rig::open(&world.disk, seed ^ 0xf1).map_err(|error| format!("does not open: {error}"))?;
    let dark = |Dark| "dark without a cut".to_owned();
    world.begin(&mut rig).map_err(dark)?;
    world.last += 1;
    for _ in 0..4_000 {
        world.step(&mut rig).map_err(dark)?;
        if world.confirmed >= world.last {
            world.check(&mut rig)?;
            return Ok((trace, world.brought));
        }
    }
    Err("an import does not come to its end".to_owned())
}

#[test]
fn an_import_has_what_the_other_server_has() {
    let mut brought = 0;
    for seed in seeds::seeds(0..HISTORIES) {
        match history(seed) {
            Ok((_, stretches)) => brought += stretches,
            Err(why) => panic!("seed {seed}: {why}"),
        }
    }
    assert!(brought > HISTORIES * 2, "only {brought} stretches were brought");
}

#[test]
fn equal_seeds_give_equal_traces() {
    for seed in 0..3 {
        assert_eq!(history(seed), history(seed));
    }
}
