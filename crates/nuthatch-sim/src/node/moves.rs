//! Streams that move between the logs of a node: does what `migration::mover` says, and tells it what
//! became of it, as a server's tasks do.

use super::outside::Output;
use super::server::LOGS;
use super::streams::Kind;
use super::world::{End, Happening, World};
use nuthatch_protocol::js::Time;
use nuthatch_protocol::jserror::JsError;
use nuthatch_streams::migration::LogStream;
use nuthatch_streams::migration::mover::{Action, Ended, Happened, Mover, Pace, Phase, Plan, Side};
use nuthatch_streams::op::Forgotten;
use nuthatch_streams::stream::StreamLocation;
use nuthatch_streams::{AccountId, Op};
use std::collections::BTreeMap;
use std::time::Duration;

const SECOND: u64 = 1_000_000;
const MILLI: u64 = 1_000;
/// What an answer takes from a log to the task that waits for it, at most.
const ANSWER_MAX: u64 = 2 * MILLI;

/// One move.
#[derive(Debug)]
struct Move {
    kind: Kind,
    from: LogStream,
    to: LogStream,
    mover: Mover,
    /// What it waits for: the outcome, or the end of the pause, of this number.
    awaits: u64,
    /// It waits for the old log to have forgotten the stream.
    awaits_forgotten: bool,
    /// The old log has forgotten the stream, or does not.
    forgotten: Option<Happened>,
}

/// Who waits for an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Waits {
    /// A move that begins.
    Arrival(u64),
    /// A step of a move.
    Step(u64),
    /// A move whose stream the old log is to forget.
    Departure(u64),
    /// Nobody but a next move of this stream.
    Remains(Option<Kind>),
}

/// The moves of a process, by number.
#[derive(Default, Debug)]
pub struct Moves {
    going: BTreeMap<u64, Move>,
    asked: BTreeMap<u64, Waits>,
    /// Outcomes on their way to who waits for them.
    told: BTreeMap<u64, (Waits, Happened)>,
}

impl Moves {
    /// Takes what belongs to a move; returns its number, or what belongs to somebody else.
    pub fn take(&mut self, output: Output) -> Result<u64, Output> {
        let (Output::Outcome { number, .. } | Output::NoAnswer { number }) = &output else {
            return Err(output);
        };
        let number = *number;
        let Some(waits) = self.asked.remove(&number) else { return Err(output) };
        let happened = match output {
            Output::Outcome { result, .. } => Happened::Outcome(result),
            _ => Happened::NoAnswer(JsError::CLUSTER_NOT_AVAIL),
        };
        self.told.insert(number, (waits, happened));
        Ok(number)
    }

    /// True if a stream may begin to move: it does not, and nothing is left of it where it was.
    fn is_free(&self, kind: Kind) -> bool {
        let remains = Waits::Remains(Some(kind));
        self.going.values().all(|going| going.kind != kind)
            && self.asked.values().all(|waits| *waits != remains)
    }

    /// True if no other move of the stream keeps its name.
    fn may_lock(&self, kind: Kind) -> bool {
        self.going.values().all(|going| going.kind != kind || going.mover.phase() == Phase::Free)
    }

    /// True if any is under way.
    pub fn is_any(&self) -> bool {
        !self.going.is_empty()
    }

    /// Moves under way, in words; none without any.
    pub fn state(&self) -> Option<String> {
        self.is_any().then(|| format!("{:?}", self.going))
    }
}

fn pace() -> Pace {
    Pace {
        store_bytes_max: 1 << 20,
        store_messages_max: 12,
        switch_lag: 8,
        hold_step: Duration::from_millis(600),
        hold_max: Duration::from_secs(20),
        retry_min: Duration::from_millis(100),
        retry_max: Duration::from_secs(2),
        busy_pause: Duration::from_millis(500),
        rate_bytes: 1 << 30,
    }
}

fn location(at: LogStream) -> StreamLocation {
    StreamLocation { log: LOGS[at.log].to_owned(), stream: at.stream }
}

impl World {
    /// Somebody begins a move.
    pub(super) fn operate(&mut self) {
        let pause = self.schedule.rng.between(20 * MILLI, SECOND);
        self.schedule.after(pause, Happening::Operator);
        let kind = *self.schedule.rng.pick(&Kind::ALL);
        let is_ready = self.is_faulty && self.model.is_ready(kind);
        if is_ready && self.server.as_ref().is_some_and(|server| server.moves.is_free(kind)) {
            self.begin_move(kind);
        }
    }

    fn begin_move(&mut self, kind: Kind) {
        let Some(server) = &mut self.server else { return };
        let Some(from) = server.homes[kind as usize] else { return };
        let to = LogStream { log: 1 - from.log, stream: server.fresh_id() };
        let at = self.add_move(kind, from, to);
        let (account, config, created) = (AccountId::GLOBAL, kind.config(), Time(1));
        let op = Op::Arrive { id: to.stream, account, config, from: location(from), created };
        self.ask_for_move(to.log, op, Waits::Arrival(at));
        if self.schedule.rng.chance(200) {
            let after = self.schedule.rng.between(1, 10 * self.slowest);
            self.schedule.after(after, Happening::MoveCancelled { life: self.life, at });
        }
    }

    pub(super) fn cancel_move(&mut self, at: u64) {
        let Some(server) = &mut self.server else { return };
        if let Some(going) = server.moves.going.get_mut(&at) {
            going.mover.cancel();
        }
    }

    fn add_move(&mut self, kind: Kind, from: LogStream, to: LogStream) -> u64 {
        let number = self.model.number();
        let plan = Plan { source: location(from), copy: location(to) };
        let mover = Mover::new(plan, pace());
        let (awaits, awaits_forgotten, forgotten) = (0, false, None);
        let going = Move { kind, from, to, mover, awaits, awaits_forgotten, forgotten };
        if let Some(server) = &mut self.server {
            server.moves.going.insert(number, going);
        }
        number
    }

    /// Sends an operation; a log that does not take it says so at once. Returns its number.
    fn ask_for_move(&mut self, log: usize, op: Op, waits: Waits) -> u64 {
        let number = self.model.number();
        let Some(server) = &mut self.server else { return number };
        if server.hosts[log].begin(number, op) {
            server.moves.asked.insert(number, waits);
            self.wake(log, 5);
        } else {
            let happened = Happened::NotSent(JsError::CLUSTER_NOT_AVAIL);
            server.moves.told.insert(number, (waits, happened));
            self.tell_mover(number);
        }
        number
    }

    /// What became of an operation comes to the task that waits for it some time later.
    pub(super) fn tell_mover(&mut self, number: u64) {
        let delay = self.schedule.rng.between(1, ANSWER_MAX);
        self.schedule.after(delay, Happening::MoverTold { life: self.life, number });
    }

    /// A start has found moves to go on with, and what is to be forgotten.
    pub(super) fn resume_moves(&mut self) {
        let Some(server) = &mut self.server else { return };
        let (forget, resume) =
            (std::mem::take(&mut server.forget), std::mem::take(&mut server.resume));
        for (kind, at) in forget {
            let op = Op::Forget { id: at.stream, what: Forgotten::Any };
            self.ask_for_move(at.log, op, Waits::Remains(kind));
        }
        for (kind, resume) in resume {
            let number = self.add_move(kind, resume.source, resume.copy);
            self.step_move(number, Happened::Began);
        }
    }

    /// What became of an operation is known to who waits for it.
    pub(super) fn mover_told(&mut self, number: u64) {
        let Some(server) = &mut self.server else { return };
        let Some((waits, happened)) = server.moves.told.remove(&number) else { return };
        match waits {
            Waits::Arrival(at) => self.arrived(at, &happened),
            // What nobody waits for any more is dropped.
            Waits::Step(at) if self.awaits(at, number) => self.step_move(at, happened),
            Waits::Step(_) => {}
            Waits::Departure(at) => self.departed(at, happened),
            Waits::Remains(_) if matches!(happened, Happened::Outcome(Ok(_))) => {}
            Waits::Remains(_) => {
                // They are there until a restart.
                self.keep_waiting(number, waits);
                self.restart_soon();
            }
        }
    }

    fn keep_waiting(&mut self, number: u64, waits: Waits) {
        if let Some(server) = &mut self.server {
            server.moves.asked.insert(number, waits);
        }
    }

    /// A pause, or a timeout, has ended.
    pub(super) fn mover_waited(&mut self, at: u64, number: u64, is_late: bool) {
        if self.awaits(at, number) {
            self.step_move(at, if is_late { Happened::Late } else { Happened::Rested });
        }
    }

    fn awaits(&self, at: u64, number: u64) -> bool {
        let going = self.server.as_ref().and_then(|server| server.moves.going.get(&at));
        going.is_some_and(|going| going.awaits == number)
    }

    fn arrived(&mut self, at: u64, happened: &Happened) {
        match happened {
            Happened::Outcome(Ok(_)) => self.step_move(at, Happened::Began),
            Happened::NotSent(_) => drop(self.drop_move(at)),
            _ => {
                let Some(mut going) = self.drop_move(at) else { return };
                let action = going.mover.give_up();
                self.act_for_move(at, going, action);
            }
        }
    }

    fn departed(&mut self, at: u64, happened: Happened) {
        let going = self.server.as_mut().and_then(|server| server.moves.going.get_mut(&at));
        let Some(going) = going else { return };
        if going.awaits_forgotten {
            self.step_move(at, happened);
        } else {
            going.forgotten = Some(happened);
        }
    }

    fn drop_move(&mut self, at: u64) -> Option<Move> {
        self.server.as_mut().and_then(|server| server.moves.going.remove(&at))
    }

    fn step_move(&mut self, at: u64, happened: Happened) {
        let Some(mut going) = self.drop_move(at) else { return };
        let now = Duration::from_micros(self.schedule.now());
        let action = going.mover.step(happened, now);
        self.act_for_move(at, going, action);
    }

    /// Does what a mover says, until that takes time.
    fn act_for_move(&mut self, at: u64, mut going: Move, mut action: Action) {
        loop {
            let happened = match action {
                Action::TakeTurn => Happened::Turn(true),
                Action::Lock => self.lock_for_move(&going),
                Action::Switch => {
                    self.switch(at, &going);
                    Happened::Switched
                }
                Action::AwaitForgotten => match going.forgotten.take() {
                    Some(happened) => happened,
                    None => {
                        going.awaits_forgotten = true;
                        return self.keep_move(at, going);
                    }
                },
                Action::End(ended) => return self.move_ended(&going, &ended),
                action => return self.perform(at, going, action),
            };
            action = going.mover.step(happened, Duration::from_micros(self.schedule.now()));
        }
    }

    fn keep_move(&mut self, at: u64, going: Move) {
        if let Some(server) = &mut self.server {
            server.moves.going.insert(at, going);
        }
    }

    fn lock_for_move(&mut self, going: &Move) -> Happened {
        let is_busy = self.is_faulty && self.schedule.rng.chance(50);
        let Some(server) = &self.server else { return Happened::LockBusy };
        if is_busy || !server.moves.may_lock(going.kind) {
            return Happened::LockBusy;
        }
        if server.homes[going.kind as usize] != Some(going.from) {
            return Happened::Elsewhere;
        }
        Happened::Locked(going.kind.config())
    }

    fn switch(&mut self, at: u64, going: &Move) {
        let number = self.model.number();
        if let Some(server) = &mut self.server {
            server.moves.asked.insert(number, Waits::Departure(at));
            server.switch(going.kind, going.from, going.to, number);
        }
        (0..2).for_each(|log| self.wake(log, 5));
    }

    /// What takes time: its end is a happening of a number of its own.
    fn perform(&mut self, at: u64, mut going: Move, action: Action) {
        let (life, now) = (self.life, self.schedule.now());
        let wait = |until: Duration| (until.as_micros() as u64).saturating_sub(now);
        match action {
            Action::Run { side, op, until } => {
                let log = if side == Side::Source { going.from.log } else { going.to.log };
                going.awaits = self.ask_for_move(log, op, Waits::Step(at));
                if let Some(until) = until {
                    let (number, is_late) = (going.awaits, true);
                    let late = Happening::MoverWaited { life, at, number, is_late };
                    self.schedule.after(wait(until), late);
                }
            }
            Action::Rest { until } | Action::Retry { until, .. } => {
                going.awaits = self.model.number();
                let (number, is_late) = (going.awaits, false);
                let rested = Happening::MoverWaited { life, at, number, is_late };
                self.schedule.after(wait(until), rested);
            }
            other => panic!("that takes no time: {other:?}"),
        }
        self.keep_move(at, going);
    }

    fn move_ended(&mut self, going: &Move, ended: &Ended) {
        let now = self.schedule.now();
        self.schedule.trace.record(now, &format!("{} {ended:?}", going.kind.name()));
        match ended {
            Ended::Moved => self.summary.moves += 1,
            Ended::GivenUp { not_refused: None, not_dropped: None, .. } => {
                self.summary.given_up += 1;
            }
            // A restart finds out; until then it does not move on. (A server lets it: see the test that is
            // ignored.)
            Ended::Unforgotten(_) | Ended::Undecided(_) => {
                let number = self.model.number();
                self.keep_waiting(number, Waits::Remains(Some(going.kind)));
                self.restart_soon();
            }
            Ended::GivenUp { .. } => self.restart_soon(),
        }
    }

    fn restart_soon(&mut self) {
        let after = self.schedule.rng.between(MILLI, SECOND);
        self.schedule.after(after, Happening::Ends { life: self.life, how: End::Killed });
    }
}

#[cfg(test)]
mod tests;
