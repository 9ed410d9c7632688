//! A node, its clients and what happens to them, in the order of one seed.

use super::check::look;
use super::clients::Client;
use super::faults::Mix;
use super::host::{Host, Style};
use super::model::Model;
use super::server::{Parts, Server, StartFault};
use super::tier::{StoreFaults, TierStyle};
use super::violation::Violation;
use crate::scheduler::Scheduler;
use nuthatch_log::env::Fault as DiskFault;

const SECOND: u64 = 1_000_000;
const MILLI: u64 = 1_000;

/// Clients of a node.
const CLIENTS: u64 = 3;
/// After the faults so long is left to answer what was asked.
const QUIET: u64 = 15 * SECOND;
/// After that so long is left to moves.
const MOVES_END: u64 = 60 * SECOND;
/// Turns in which a log may do nothing, and still not sleep.
const IDLE_TURNS_MAX: u32 = 1000;
/// Then clients rest for so long.
const REST: u64 = 5 * SECOND;
/// Attempts to start that may fail one after the other.
const STARTS_MAX: u32 = 20;

/// Which damage comes to a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damage {
    /// To copies that rest, and to the process that runs.
    Any,
    /// Only to the process that runs.
    Running,
}

/// How a world is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// Faults. None: drawn.
    pub mix: Option<Mix>,
    /// Which damage comes.
    pub damage: Damage,
    /// True if the trace is printed.
    pub printed: bool,
}

impl Options {
    /// Everything drawn from the seed.
    #[must_use]
    pub const fn drawn() -> Self {
        Self { mix: None, damage: Damage::Any, printed: false }
    }
}

/// What a run did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Hash of the trace.
    pub hash: u64,
    /// Happenings.
    pub steps: u64,
    /// Requests that were answered.
    pub answered: u64,
    /// Messages that were seen by somebody.
    pub messages: u64,
    /// Processes that ran.
    pub lives: u64,
    /// Faults.
    pub faults: u64,
    /// Reads that were refused, because what they ask for cannot be read.
    pub unreadable: u64,
    /// Moves of streams between logs that came to their end.
    pub moves: u64,
    /// Moves that were given up.
    pub given_up: u64,
    /// Segments that moved to the store.
    pub tiered: u64,
    /// Segments that were removed from it.
    pub untiered: u64,
    /// Steps of a tier that failed.
    pub tier_failures: u64,
    /// Damages to nodes that ran.
    pub rotten: u64,
    /// Nodes among those that did not start again before they were mended.
    pub stopped: u64,
    /// Messages that the doctor gave up and named.
    pub given_up_messages: u64,
    /// Copies of nodes that were damaged.
    pub harmed: u64,
    /// Those that said so and did not start.
    pub damaged: u64,
}

impl Summary {
    /// Adds what another run did; the hash stays.
    pub fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.answered += other.answered;
        self.messages += other.messages;
        self.lives += other.lives;
        self.faults += other.faults;
        self.unreadable += other.unreadable;
        self.rotten += other.rotten;
        self.stopped += other.stopped;
        self.given_up_messages += other.given_up_messages;
        self.harmed += other.harmed;
        self.damaged += other.damaged;
        self.moves += other.moves;
        self.given_up += other.given_up;
        self.tiered += other.tiered;
        self.untiered += other.untiered;
        self.tier_failures += other.tier_failures;
    }

    /// What was done, in words.
    #[must_use]
    pub fn report(&self) -> String {
        format!(
            "{} answers, {} messages, {} processes, {} faults, {} moves, {} given up, {} segments \
             moved to the store, {} removed from it, {} steps of it failed, {} reads refused, {} \
             copies damaged, {} of them refused, {} damages to running nodes, {} nodes refused to \
             start again, {} messages named as lost",
            self.answered,
            self.messages,
            self.lives,
            self.faults,
            self.moves,
            self.given_up,
            self.tiered,
            self.untiered,
            self.tier_failures,
            self.unreadable,
            self.harmed,
            self.damaged,
            self.rotten,
            self.stopped,
            self.given_up_messages
        )
    }
}

/// How a process ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum End {
    /// The power goes: of what was not synced anything may be missing.
    Power,
    /// It is killed: what it wrote is there.
    Killed,
}

/// What waits in the queue. What belongs to a process names its number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Happening {
    /// Counts if it is the one that the log was woken for last.
    Turn {
        life: u64,
        log: usize,
        at: u64,
    },
    Write {
        life: u64,
        log: usize,
    },
    Work {
        life: u64,
        log: usize,
    },
    ClientActs {
        number: u64,
    },
    /// A move begins.
    Operator,
    /// Somebody gives a move up.
    MoveCancelled {
        life: u64,
        at: u64,
    },
    /// The outcome of an operation has come to the task of a move.
    MoverTold {
        life: u64,
        number: u64,
    },
    /// A pause of a move has ended, or its timeout.
    MoverWaited {
        life: u64,
        at: u64,
        number: u64,
        is_late: bool,
    },
    /// The tier of a log goes on.
    Moves {
        life: u64,
        log: usize,
    },
    FaultComes,
    /// Something of a log is damaged while it is used.
    Rots {
        life: u64,
    },
    Ends {
        life: u64,
        how: End,
    },
    Starts,
}

/// What of a log waits in the queue.
#[derive(Clone, Copy, Default, Debug)]
struct Queued {
    turn_at: Option<u64>,
    /// Turns one after the other in which nothing was done, although something was said to be due.
    idle_turns: u32,
    writes: bool,
    works: bool,
}

/// A world.
pub(super) struct World {
    pub schedule: Scheduler<Happening>,
    pub parts: Parts,
    pub server: Option<Server>,
    pub model: Model,
    pub mix: Mix,
    pub summary: Summary,
    pub is_faulty: bool,
    /// Clients do nothing any more.
    pub is_quiet: bool,
    /// What writers and workers do takes up to so long, in microseconds.
    pub slowest: u64,
    pub style: Style,
    queued: [Queued; 2],
    pub life: u64,
    failed_starts: u32,
    /// Time in which nothing happened.
    slept: u64,
}

impl World {
    fn new(seed: u64, options: &Options) -> Self {
        let mut schedule = Scheduler::new(seed, options.printed);
        let mix = options.mix.clone().unwrap_or_else(|| Mix::drawn(&mut schedule.rng));
        let style = Style { is_cold: false, by_hand: false, reserve_bytes: 24 * 1024 };
        let salt = schedule.rng.bits();
        let parts = Parts::new(salt, TierStyle::drawn(&mut schedule.rng));
        let mut world = Self {
            schedule,
            parts,
            server: None,
            model: Model::default(),
            mix,
            summary: Summary::default(),
            is_faulty: true,
            is_quiet: false,
            slowest: 2 * MILLI,
            style,
            queued: [Queued::default(); 2],
            life: 0,
            failed_starts: 0,
            slept: 0,
        };
        world.schedule.after(0, Happening::Starts);
        world.schedule.after(world.mix.pause, Happening::FaultComes);
        // Some nodes have nobody who moves streams.
        if world.schedule.rng.chance(700) {
            world.schedule.after(MILLI, Happening::Operator);
        }
        for number in 0..CLIENTS {
            world.schedule.after(MILLI, Happening::ClientActs { number });
        }
        world
    }

    /// A number that decides what a crash leaves, and what else is drawn outside of the queue.
    pub fn salt(&mut self) -> u64 {
        self.schedule.rng.bits()
    }

    pub fn run_until(&mut self, end: u64) -> Result<(), Violation> {
        while let Some(happening) = self.schedule.next_until(end) {
            let now = self.schedule.now();
            self.schedule.trace.record(now, &happening);
            self.parts.time.is_now(now);
            self.happen(happening)?;
            self.queue_what_is_due();
        }
        self.parts.time.is_now(self.schedule.now());
        Ok(())
    }

    fn happen(&mut self, happening: Happening) -> Result<(), Violation> {
        match happening {
            Happening::Turn { life, log, at } if life == self.life => {
                let is_last = self.queued[log].turn_at == Some(at);
                if is_last { self.turn(log) } else { Ok(()) }
            }
            Happening::Write { life, log } if life == self.life => {
                self.queued[log].writes = false;
                self.with(log, |host| host.write_one());
                self.wake(log, 1);
                Ok(())
            }
            Happening::Work { life, log } if life == self.life => {
                self.queued[log].works = false;
                self.with(log, |host| host.work_one());
                self.wake(log, 1);
                Ok(())
            }
            Happening::ClientActs { number } => {
                self.client_acts(number);
                Ok(())
            }
            Happening::Operator => {
                self.operate();
                Ok(())
            }
            Happening::MoveCancelled { life, at } if life == self.life => {
                self.cancel_move(at);
                Ok(())
            }
            Happening::MoverTold { life, number } if life == self.life => {
                self.mover_told(number);
                Ok(())
            }
            Happening::MoverWaited { life, at, number, is_late } if life == self.life => {
                self.mover_waited(at, number, is_late);
                Ok(())
            }
            Happening::Moves { life, log } if life == self.life => {
                self.move_segments(log);
                Ok(())
            }
            Happening::FaultComes => {
                self.fault_comes();
                Ok(())
            }
            Happening::Rots { life } if life == self.life => {
                self.rots();
                Ok(())
            }
            Happening::Ends { life, how } if life == self.life => self.ends(how),
            Happening::Starts => self.starts(),
            // It belongs to a process that has ended.
            _ => Ok(()),
        }
    }

    fn with(&mut self, log: usize, call: impl FnOnce(&mut Host)) {
        if let Some(server) = &mut self.server {
            call(&mut server.hosts[log]);
        }
    }

    /// Lets a log take a turn after `delay`, unless it does so before.
    pub(super) fn wake(&mut self, log: usize, delay: u64) {
        let at = self.schedule.now() + delay;
        if self.queued[log].turn_at.is_none_or(|queued| queued > at) {
            self.queued[log].turn_at = Some(at);
            self.schedule.after(delay, Happening::Turn { life: self.life, log, at });
        }
    }

    fn turn(&mut self, log: usize) -> Result<(), Violation> {
        self.queued[log].turn_at = None;
        let Some(server) = &mut self.server else { return Ok(()) };
        let turn = server.hosts[log].turn();
        let (now_ns, has_moves) = (server.now_ns(), server.moves.is_any());
        self.model.clock_max = self.model.clock_max.max(now_ns);
        self.take_outputs()?;
        if turn.progress {
            self.queued[log].idle_turns = 0;
            // What it has handed over waits in the other one's queue.
            if has_moves {
                self.wake(1 - log, 5);
            }
            let delay = self.schedule.rng.below(20);
            self.wake(log, 1 + delay);
        } else if let Some(at) = turn.wake_at {
            let wait = u64::try_from(at.0.saturating_sub(now_ns)).unwrap_or(0) / 1000;
            let idle = &mut self.queued[log].idle_turns;
            *idle = if wait == 0 { *idle + 1 } else { 0 };
            if *idle > IDLE_TURNS_MAX {
                return Err(Violation::Spins { log });
            }
            self.wake(log, wait.clamp(1, SECOND));
        }
        Ok(())
    }

    fn take_outputs(&mut self) -> Result<(), Violation> {
        let now = self.schedule.now();
        let outputs = self.server.as_ref().map(|server| server.outside.take());
        for output in outputs.unwrap_or_default() {
            self.schedule.trace.record(now, &format!("{output:?}"));
            let Some(server) = &mut self.server else { break };
            match server.moves.take(output) {
                Ok(number) => self.tell_mover(number),
                Err(output) => self.model.take(output)?,
            }
        }
        Ok(())
    }

    /// Jobs that wait are done after some time.
    fn queue_what_is_due(&mut self) {
        let Some(server) = &self.server else { return };
        let life = self.life;
        for (log, host) in server.hosts.iter().enumerate() {
            let queued = &mut self.queued[log];
            if host.has_writing() && !std::mem::replace(&mut queued.writes, true) {
                let takes = self.schedule.rng.between(20, self.slowest);
                self.schedule.after(takes, Happening::Write { life, log });
            }
            if host.has_work() && !std::mem::replace(&mut queued.works, true) {
                let takes = self.schedule.rng.between(20, 5 * self.slowest);
                self.schedule.after(takes, Happening::Work { life, log });
            }
        }
    }

    fn client_acts(&mut self, number: u64) {
        let pause = self.schedule.rng.between(MILLI, 60 * MILLI);
        self.schedule.after(pause, Happening::ClientActs { number });
        if self.is_quiet {
            return;
        }
        let Some(server) = &mut self.server else { return };
        self.model.clock_max = self.model.clock_max.max(server.now_ns());
        // The other log goes on where one has failed.
        if !server.hosts.iter().all(Host::has_failed) {
            Client { model: &mut self.model, server, rng: &mut self.schedule.rng }.act();
            (0..2).for_each(|log| self.wake(log, 5));
        }
    }

    /// The process ends; what it leaves is looked at, and another one starts some time later.
    pub fn ends(&mut self, how: End) -> Result<(), Violation> {
        self.end_process(how)?;
        self.look(false)?;
        // Mostly it is down for moments, now and then for hours.
        if self.is_faulty && self.schedule.rng.chance(100) {
            self.sleep(6 * 3600 * SECOND);
        }
        let pause = self.schedule.rng.between(MILLI, SECOND);
        self.schedule.after(pause, Happening::Starts);
        Ok(())
    }

    /// The process ends: what was under way changes nothing any more, and the disks are what that leaves.
    pub fn end_process(&mut self, how: End) -> Result<(), Violation> {
        self.take_outputs()?;
        if let Some(server) = self.server.take() {
            self.model.clock_max = self.model.clock_max.max(server.now_ns());
            self.parts.disks.iter().for_each(|disk| disk.inject(DiskFault::PowerCut(0)));
        }
        self.life += 1;
        self.model.process_ended();
        self.queued = [Queued::default(); 2];
        for log in 0..2 {
            let salt = self.salt();
            let disk = &mut self.parts.disks[log];
            let (now, trace) = (self.schedule.now(), (disk.trace(), self.parts.store.trace()));
            self.schedule.trace.record(now, &trace);
            *disk = match how {
                End::Power => disk.crash(salt),
                End::Killed => disk.survive(),
            };
        }
        Ok(())
    }

    /// Nothing happens for up to so long; at the longest, clients of a node that is down would only wait.
    pub fn sleep(&mut self, longest: u64) {
        let time = self.schedule.rng.between(SECOND, longest);
        self.schedule.sleep(time);
        self.slept += time;
    }

    fn look(&mut self, drains: bool) -> Result<(), Violation> {
        let salt = self.salt();
        look(&mut self.model, &self.parts, self.style, salt, drains)
    }

    fn starts(&mut self) -> Result<(), Violation> {
        if self.server.is_some() {
            return Ok(());
        }
        let rng = &mut self.schedule.rng;
        self.style.is_cold = rng.chance(500);
        self.style.by_hand = rng.chance(700);
        let salt = rng.bits();
        self.summary.lives += 1;
        match Server::start(&self.parts, self.style, salt) {
            Ok(server) => {
                self.failed_starts = 0;
                self.model.clock_max = self.model.clock_max.max(server.now_ns());
                self.server = Some(server);
                self.take_outputs()?;
                (0..2).for_each(|log| self.wake(log, 1));
                if self.parts.tier.is_some() {
                    (0..2).for_each(|log| self.move_on_after(log, MILLI));
                }
                self.resume_moves();
                Ok(())
            }
            Err(StartFault::Io { .. }) if self.failed_starts < STARTS_MAX => {
                self.failed_starts += 1;
                // A full disk stays full, a store away: in the end somebody sees to them.
                if self.failed_starts > STARTS_MAX / 2 {
                    self.parts.disks.iter().for_each(|disk| disk.set_capacity(u64::MAX));
                    self.parts.store.set_faults(|now| *now = StoreFaults::NONE);
                }
                let how = if self.schedule.rng.chance(500) { End::Power } else { End::Killed };
                self.ends(how)
            }
            Err(fault) => Err(fault.into()),
        }
    }

    /// Runs while faults come: for so long, but for the time in which nothing happens.
    fn run_for(&mut self, time: u64) -> Result<(), Violation> {
        while self.schedule.now() < time + self.slept {
            self.run_until(time + self.slept)?;
        }
        Ok(())
    }

    /// Faults stop; everything that was asked is answered, and everything is there.
    fn finish(&mut self, damage: Damage) -> Result<(), Violation> {
        self.is_faulty = false;
        self.mend();
        let end = self.schedule.now() + QUIET;
        self.run_until(end)?;
        self.await_moves()?;
        if self.server.as_ref().is_none_or(Server::has_failed) {
            let what = "the node does not serve although nothing fails any more".to_owned();
            return Err(Violation::Unexpected { what });
        }
        self.look(true)?;
        // Whatever was acknowledged has a later frame that vouches for it.
        self.is_quiet = true;
        let end = self.schedule.now() + REST;
        self.run_until(end)?;
        if damage == Damage::Any {
            self.look_at_harmed()?;
        }
        self.rot()
    }

    /// Moves that are under way come to their end.
    fn await_moves(&mut self) -> Result<(), Violation> {
        let moves = |world: &Self| world.server.as_ref().and_then(|server| server.moves.state());
        let end = self.schedule.now() + MOVES_END;
        while self.schedule.now() < end && moves(self).is_some() {
            self.run_until(self.schedule.now() + SECOND)?;
        }
        moves(self).map_or(Ok(()), |state| Err(Violation::MoveStuck { state }))
    }

    fn summary(&self) -> Summary {
        let messages = self.model.streams.iter().map(|known| known.seen.len() as u64).sum();
        Summary {
            hash: self.schedule.trace.hash(),
            steps: self.schedule.steps(),
            answered: self.model.answered,
            messages,
            unreadable: self.model.unreadable,
            ..self.summary
        }
    }
}

/// Runs the schedule of a seed.
pub fn run(seed: u64, options: &Options) -> (Summary, Result<(), Violation>) {
    let mut world = World::new(seed, options);
    let faults_for = world.schedule.rng.between(2 * SECOND, 8 * SECOND);
    let result = world.run_for(faults_for).and_then(|()| world.finish(options.damage));
    (world.summary(), result)
}
