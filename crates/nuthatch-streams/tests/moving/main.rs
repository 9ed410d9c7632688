//! Moves between two logs whose disks forget what was not synced: publishes, pulls and
//! acknowledgements go on while the server's mover ([`nuthatch_streams::migration::mover`]) takes a
//! stream there and back, power is cut at any step, and syncs and writes fail.
//!
//! After each cut both logs are opened again and [`nuthatch_streams::migration::resolve`] decides,
//! as the server does. What was acknowledged must be there once, under its sequence; ids that were
//! stored are known; what a consumer's confirmed acknowledgement has let go does not come again; a
//! stream that was deleted stays deleted. The harness must find losses when it is told to believe
//! the wrong log, and a start that is refused when streams are deleted before the old log has
//! forgotten them.

mod apart;
mod fencing;
mod followed;
mod rig;
#[path = "../../../../tests/seeds.rs"]
mod seeds;

use nuthatch_log::env::{Fault, MemDisk, SeededEntropy};
use nuthatch_log::{OpenError, StreamId};
use nuthatch_protocol::jserror::JsError;
use nuthatch_streams::migration::mover::{Action, Ended, Happened, Mover, Pace, Phase, Plan, Side};
use nuthatch_streams::migration::{self, LogStream};
use nuthatch_streams::op::{CatalogEntry, Forgotten, OpResult};
use nuthatch_streams::stream::StreamLocation;
use nuthatch_streams::{AccountId, Event, HandOff, Op, OpOutcome};
use rig::{Rig, config};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Power cuts in one history.
const CUTS: u64 = 4;
/// Histories: each of [`CUTS`] cut points.
const HISTORIES: u64 = 60;
/// Rounds of work between two cuts, at most.
const ROUNDS: u64 = 60;
/// Steps of which one is given up, on average.
const CANCEL_ONE_IN: u64 = 80;
const LOGS: [&str; 2] = ["one", "two"];

/// What was sent and is not answered yet.
type Sent = BTreeMap<u64, Vec<u8>>;

/// A move on its way, and what it waits for.
struct Move {
    from: LogStream,
    to: LogStream,
    mover: Mover,
    action: Action,
}

/// In pieces of a few messages, so that faults come between them.
fn pace() -> Pace {
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

/// The disks and what the outside world knows.
struct World {
    chance: SeededEntropy,
    disks: [MemDisk; 2],
    provenance: Option<LogStream>,
    under_way: Option<Move>,
    next_id: u32,
    next_token: u64,
    sent: Sent,
    acked: BTreeMap<u64, (u64, Vec<u8>)>,
    confirmed: BTreeSet<u64>,
    moves: u64,
    deletions: u64,
    /// The log that the stream left last has durably forgotten it.
    forgotten: Arc<AtomicBool>,
    /// The stream was deleted for good.
    is_gone: bool,
    /// Perhaps it was: nobody has answered.
    is_doomed: bool,
    /// A stream that may go, as the log that it leaves has said: no answer came to what follows.
    left: Option<(LogStream, LogStream)>,
    now: Duration,
    given_up: u64,
    /// Logs that stopped over a fault while they worked.
    stopped: u64,
    flaw: Flaw,
}

/// A fault to be found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    /// Believes the old log where both have the stream.
    OldLog,
    /// Deletes a stream before the log that it left has forgotten it.
    Hasty,
}

fn location(at: LogStream) -> StreamLocation {
    StreamLocation { log: LOGS[at.log].to_owned(), stream: at.stream }
}

/// Power is gone, or a log has stopped.
#[derive(Debug)]
struct Dark;

type Lit<T> = Result<T, Dark>;

impl World {
    fn new(seed: u64, flaw: Flaw) -> Self {
        Self {
            chance: SeededEntropy::new(seed),
            disks: [MemDisk::default(), MemDisk::default()],
            provenance: None,
            under_way: None,
            next_id: 1,
            next_token: 0,
            sent: Sent::new(),
            acked: BTreeMap::new(),
            confirmed: BTreeSet::new(),
            moves: 0,
            deletions: 0,
            forgotten: Arc::new(AtomicBool::new(true)),
            is_gone: false,
            is_doomed: false,
            left: None,
            now: Duration::from_secs(1),
            given_up: 0,
            stopped: 0,
            flaw,
        }
    }

    fn fresh_id(&mut self) -> StreamId {
        self.next_id += 1;
        StreamId(self.next_id)
    }

    /// Power goes at some operation of each disk. Before that a sync may fail and drop what it was to
    /// make durable, or a write: either stops its log, and nothing else is known of it then.
    fn inject_faults(&mut self) {
        for disk in &self.disks {
            let begin = disk.operations() + 1;
            disk.inject(Fault::PowerCut(begin + self.chance.below(160)));
            match self.chance.below(6) {
                0 => disk.inject(Fault::SyncError(begin + self.chance.below(120))),
                1 => disk.inject(Fault::WriteError(begin + self.chance.below(120))),
                _ => {}
            }
        }
    }

    fn work(&mut self, rigs: &mut [Rig; 2]) -> Lit<()> {
        for _ in 0..self.chance.below(ROUNDS) {
            if self.provenance.is_none() {
                self.create(rigs)?;
            }
            match self.chance.below(40) {
                0..18 => self.step(rigs)?,
                18..25 => self.consume(rigs)?,
                25 => self.delete(rigs)?,
                _ => self.publish(rigs)?,
            }
            self.collect(&rigs[0])?;
        }
        Ok(())
    }

    fn create(&mut self, rigs: &mut [Rig; 2]) -> Lit<()> {
        let id = self.fresh_id();
        (self.is_gone, self.is_doomed) = (false, false);
        let op = Op::CreateStream { id, account: AccountId::GLOBAL, config: config() };
        rigs[0].op(op)?;
        self.provenance = Some(LogStream { log: 0, stream: id });
        rigs[0].op(rig::create_consumer(id)).map(drop)
    }

    /// Deletes the stream, and the copy of it if there is one, as the server does.
    fn delete(&mut self, rigs: &mut [Rig; 2]) -> Lit<()> {
        if !self.forgotten.load(Ordering::Relaxed) && self.flaw != Flaw::Hasty {
            return Ok(());
        }
        // A switch that has begun comes to its end first.
        if self.under_way.as_ref().is_some_and(|going| going.mover.phase() != Phase::Free) {
            return Ok(());
        }
        let provenance = self.provenance();
        self.is_doomed = true;
        rigs[provenance.log].op(Op::DeleteStream { id: provenance.stream })?;
        (self.provenance, self.is_gone, self.is_doomed) = (None, true, false);
        self.deletions += 1;
        self.acked.clear();
        self.confirmed.clear();
        self.sent.clear();
        Ok(())
    }

    fn provenance(&self) -> LogStream {
        self.provenance.expect("the stream was created")
    }

    fn publish(&mut self, rigs: &mut [Rig; 2]) -> Lit<()> {
        let provenance = self.provenance();
        let mut publishes = Vec::new();
        for _ in 0..=self.chance.below(4) {
            self.next_token += 1;
            let mut body = self.next_token.to_le_bytes().to_vec();
            body.resize(8 + self.chance.below(300) as usize, 7);
            self.sent.insert(self.next_token, body.clone());
            publishes.push((self.next_token, body));
        }
        rigs[provenance.log].publish(provenance.stream, &publishes);
        Ok(())
    }

    /// Takes in the answers that have come. A refusal means that the disk is gone.
    fn collect(&mut self, rig: &Rig) -> Lit<()> {
        for (token, answer) in rig.take_answers() {
            let Some(body) = self.sent.remove(&token) else { continue };
            let Some(seq) = rig::sequence(&answer) else { return Err(Dark) };
            let known = self.acked.insert(seq, (token, body));
            assert!(known.is_none(), "sequence {seq} was given out twice");
        }
        for seq in rig.take_confirmed() {
            self.confirmed.insert(seq);
        }
        Ok(())
    }

    /// Pulls a few messages and acknowledges them, to be confirmed.
    fn consume(&mut self, rigs: &mut [Rig; 2]) -> Lit<()> {
        let provenance = self.provenance();
        rigs[provenance.log].pull(provenance.stream);
        let delivered = rigs[provenance.log].take_delivered();
        for (seq, ack) in delivered {
            assert!(!self.confirmed.contains(&seq), "{seq} came again after its confirmed ack");
            let provenance = self.provenance();
            rigs[provenance.log].ack(provenance.stream, seq, &ack);
        }
        Ok(())
    }

    /// One step of a move, or the beginning of one.
    fn step(&mut self, rigs: &mut [Rig; 2]) -> Lit<()> {
        let Some(mut going) = self.under_way.take() else { return self.begin(rigs) };
        if self.chance.below(CANCEL_ONE_IN) == 0 {
            going.mover.cancel();
        }
        // Now and then everything takes so long that the time for which a stream is held is over.
        let slow = self.chance.below(20) == 0;
        self.now += if slow { Duration::from_secs(1) } else { Duration::from_millis(1) };
        // What concerns no log is no step.
        loop {
            let happened = match going.action {
                Action::TakeTurn => Happened::Turn(true),
                Action::Lock => Happened::Locked(config()),
                Action::Rest { until } | Action::Retry { until, .. } => {
                    self.now = self.now.max(until);
                    Happened::Rested
                }
                _ => break,
            };
            going.action = going.mover.step(happened, self.now);
        }
        let action = std::mem::replace(&mut going.action, Action::Lock);
        let happened = match action {
            Action::Run { side, op, until } => {
                let at = if side == Side::Source { going.from } else { going.to };
                if matches!(op, Op::Stay { .. }) {
                    self.left = None;
                }
                match rigs[at.log].try_op(op) {
                    // The log has stopped and does not answer, or the disk has.
                    None => return Err(Dark),
                    Some(_) if until.is_some_and(|until| self.now > until) => Happened::Late,
                    Some(outcome) => {
                        self.note_left(&going, &outcome);
                        Happened::Outcome(outcome)
                    }
                }
            }
            Action::Switch => {
                self.switch(rigs, going.from, going.to);
                Happened::Switched
            }
            Action::AwaitForgotten => match self.forgotten.load(Ordering::Relaxed) {
                true => Happened::Outcome(Ok(OpOutcome::Done)),
                false => Happened::NoAnswer(JsError::CLUSTER_NOT_AVAIL),
            },
            Action::End(ended) => return self.ended(&ended),
            other => panic!("that is no step of a log: {other:?}"),
        };
        going.action = going.mover.step(happened, self.now);
        self.under_way = Some(going);
        Ok(())
    }

    /// A log that says that a stream may go durably remembers where to.
    fn note_left(&mut self, going: &Move, outcome: &OpResult) {
        if matches!(outcome, Ok(OpOutcome::Left { .. })) {
            self.left = Some((going.from, going.to));
        }
    }

    /// What a move that is over says of itself.
    fn ended(&mut self, ended: &Ended) -> Lit<()> {
        match ended {
            Ended::Moved => self.moves += 1,
            Ended::GivenUp { not_refused: None, not_dropped: None, .. } => self.given_up += 1,
            // The log has failed: a restart finds out.
            Ended::Unforgotten(_) | Ended::Undecided(_) | Ended::GivenUp { .. } => {
                return Err(Dark);
            }
        }
        Ok(())
    }

    fn begin(&mut self, rigs: &mut [Rig; 2]) -> Lit<()> {
        let from = self.provenance();
        let to = LogStream { log: 1 - from.log, stream: self.fresh_id() };
        let op = Op::Arrive {
            id: to.stream,
            account: AccountId::GLOBAL,
            config: config(),
            from: location(from),
            created: nuthatch_protocol::js::Time(1),
        };
        rigs[to.log].op(op)?;
        self.go_on(from, to);
        Ok(())
    }

    fn go_on(&mut self, from: LogStream, to: LogStream) {
        let plan = Plan { source: location(from), copy: location(to) };
        let mut mover = Mover::new(plan, pace());
        let action = mover.step(Happened::Began, self.now);
        self.under_way = Some(Move { from, to, mover, action });
    }

    fn switch(&mut self, rigs: &mut [Rig; 2], from: LogStream, to: LogStream) {
        self.provenance = Some(to);
        let taken: Arc<Mutex<Option<HandOff>>> = Arc::default();
        let slot = taken.clone();
        let respond = Box::new(move |hand_off| *slot.lock().expect("lock") = hand_off);
        let forgotten = self.forgotten.clone();
        forgotten.store(false, Ordering::Relaxed);
        let forgotten = Box::new(move |result: OpResult| {
            forgotten.store(result.is_ok(), Ordering::Relaxed);
        });
        rigs[from.log].run(Event::Depart { id: from.stream, respond, forgotten });
        let hand_off = taken.lock().expect("lock").take();
        if let Some(hand_off) = hand_off {
            rigs[to.log].run(Event::Install { id: to.stream, hand_off });
        }
    }

    /// Both logs were opened again: what there is, is decided as by the server.
    fn resume(&mut self, rigs: &mut [Rig; 2]) -> Result<(), String> {
        let catalogs = [rigs[0].catalog(), rigs[1].catalog()];
        let found = migration::resolve(&LOGS, &catalogs, migration::OtherLogs::Nowhere)
            .map_err(|error| error.to_string())?;
        if found.serve.len() > 1 {
            return Err(format!("{} streams of one name", found.serve.len()));
        }
        self.under_way = None;
        self.sent.clear();
        self.check_left(&catalogs)?;
        let serve = found.serve.first().map(|(log, e)| LogStream { log: *log, stream: e.id });
        if serve.is_some() && self.is_gone {
            return Err("a deleted stream has come back".to_owned());
        }
        if serve.is_none() && self.provenance.is_some() {
            if !self.acked.is_empty() && !self.is_doomed {
                return Err("the stream is lost".to_owned());
            }
            self.acked.clear();
            self.confirmed.clear();
        }
        self.provenance = serve;
        if self.flaw == Flaw::OldLog
            && let Some(old) = found.forget.iter().find(|at| {
                catalogs[at.log].iter().any(|e| e.id == at.stream && !e.provenance.arriving)
            })
        {
            self.provenance = Some(*old);
            return Ok(());
        }
        for at in found.forget {
            rigs[at.log]
                .op(Op::Forget { id: at.stream, what: Forgotten::Any })
                .map_err(|Dark| "dark".to_owned())?;
        }
        self.forgotten.store(true, Ordering::Relaxed);
        if let Some(resume) = found.resume.first() {
            let (from, to) = (resume.source, resume.copy);
            self.go_on(from, to);
        }
        Ok(())
    }

    /// The log that said that a stream may go says where it goes, as long as it has it.
    fn check_left(&mut self, catalogs: &[Vec<CatalogEntry>; 2]) -> Result<(), String> {
        let Some((from, to)) = self.left.take() else { return Ok(()) };
        let entry = catalogs[from.log].iter().find(|entry| entry.id == from.stream);
        match entry.map(|entry| &entry.provenance.to) {
            Some(noted) if *noted != Some(location(to)) => {
                Err(format!("a stream that may be in log {} does not say so: {noted:?}", to.log))
            }
            _ => Ok(()),
        }
    }

    fn check(&mut self, rigs: &mut [Rig; 2]) -> Result<(), String> {
        let Some(provenance) = self.provenance else { return Ok(()) };
        let rig = &mut rigs[provenance.log];
        for (seq, (_, body)) in &self.acked {
            match rig.read(provenance.stream, *seq) {
                Some(found) if found == *body => {}
                Some(_) => return Err(format!("message {seq} changed")),
                None => return Err(format!("message {seq} is lost")),
            }
        }
        // The last one is known by its id.
        if let Some((seq, (token, body))) = self.acked.last_key_value() {
            rig.publish(provenance.stream, &[(*token, body.clone())]);
            let answers = rig.take_answers();
            let answer = answers.get(token).cloned().unwrap_or_default();
            if !answer.contains("\"duplicate\": true") || rig::sequence(&answer) != Some(*seq) {
                return Err(format!("message {seq} is not known any more: {answer}"));
            }
        }
        rig.pull(provenance.stream);
        for (seq, _) in rig.take_delivered() {
            if self.confirmed.contains(&seq) {
                return Err(format!("{seq} comes again after its confirmed acknowledgement"));
            }
        }
        Ok(())
    }
}

fn open(disks: &[MemDisk; 2], salt: u64) -> Result<[Rig; 2], OpenError> {
    let shared = rig::Outside::default();
    Ok([Rig::open(&disks[0], salt, &shared)?, Rig::open(&disks[1], salt ^ 99, &shared)?])
}

/// Returns how the disks were used, and how many moves came to their end, streams were deleted, moves
/// were given up, logs stopped.
fn history(seed: u64, flaw: Flaw) -> Result<(u64, [u64; 4]), String> {
    let mut world = World::new(seed, flaw);
    let mut trace = 0_u64;
    for cut in 0..CUTS {
        world.inject_faults();
        let salt = seed * 31 + cut;
        match open(&world.disks, salt) {
            Ok(mut rigs) => {
                if world.resume(&mut rigs).is_ok() {
                    // Dark or not, power goes now.
                    let _ = world.work(&mut rigs);
                    world.stopped += rigs.iter().filter(|rig| rig.has_stopped()).count() as u64;
                }
            }
            Err(OpenError::Io { .. }) => {}
            Err(error) => return Err(format!("does not open: {error}")),
        }
        for disk in &mut world.disks {
            trace = trace.rotate_left(9) ^ disk.trace();
            *disk = disk.crash(seed ^ (cut << 32));
        }
        let mut rigs = open(&world.disks, salt ^ 7)
            .map_err(|error| format!("does not open after a cut: {error}"))?;
        world.resume(&mut rigs)?;
        world.check(&mut rigs)?;
        // What this look did to the disks is lost as well.
        for disk in &mut world.disks {
            *disk = disk.crash(salt);
        }
    }
    finish(&mut world, seed)?;
    Ok((trace, [world.moves, world.deletions, world.given_up, world.stopped]))
}

/// With power, a move comes to its end, and everything is still there.
fn finish(world: &mut World, seed: u64) -> Result<(), String> {
    let mut rigs = open(&world.disks, seed ^ 0xf1)
        .map_err(|error| format!("does not open at the end: {error}"))?;
    world.resume(&mut rigs)?;
    if world.provenance.is_none() {
        return Ok(());
    }
    for round in 0..4_000 {
        if world.under_way.is_none() {
            break;
        }
        world.step(&mut rigs).map_err(|Dark| "dark without a cut".to_owned())?;
        // Slowly enough that the copy catches up.
        if round % 4 == 0 {
            world.publish(&mut rigs).map_err(|Dark| "dark without a cut".to_owned())?;
        }
        world.collect(&rigs[0]).map_err(|Dark| "a publish was refused".to_owned())?;
    }
    if world.under_way.is_some() {
        return Err("a move does not come to its end".to_owned());
    }
    world.collect(&rigs[0]).map_err(|Dark| "a publish was refused".to_owned())?;
    if !world.sent.is_empty() {
        return Err(format!("{} publishes were not answered", world.sent.len()));
    }
    world.check(&mut rigs)
}

#[test]
fn nothing_is_lost_or_doubled_by_power_cuts_during_moves() {
    let mut totals = [0; 4];
    for seed in seeds::seeds(0..HISTORIES) {
        match history(seed, Flaw::None) {
            Ok((_, counts)) => totals = std::array::from_fn(|at| totals[at] + counts[at]),
            Err(why) => panic!("seed {seed}: {why}"),
        }
    }
    let [moves, deletions, given_up, stopped] = totals;
    assert!(moves > HISTORIES / 2, "only {moves} moves came to their end");
    assert!(deletions > HISTORIES / 4, "only {deletions} streams were deleted");
    assert!(given_up > 0, "no move was given up because its stream was deleted");
    assert!(stopped > HISTORIES / 4, "only {stopped} logs stopped over a fault");
}

#[test]
fn the_harness_bites_where_the_old_log_is_believed() {
    let failures = (0..40).filter(|&seed| history(seed, Flaw::OldLog).is_err()).count();
    assert!(failures > 0, "nothing was lost in 40 histories");
}

#[test]
fn the_harness_bites_where_a_stream_is_deleted_too_early() {
    // The engine may notice by itself that what it is to take over has no copy here: it stops loudly.
    let fails = |seed: &u64| {
        let outcome = std::panic::catch_unwind(|| history(*seed, Flaw::Hasty).map(drop));
        !matches!(outcome, Ok(Ok(())))
    };
    let failures = (0..400).filter(fails).count();
    assert!(failures > 0, "every start succeeded in 400 histories");
}

#[test]
fn equal_seeds_give_equal_traces() {
    for seed in 0..3 {
        assert_eq!(history(seed, Flaw::None), history(seed, Flaw::None));
    }
}
