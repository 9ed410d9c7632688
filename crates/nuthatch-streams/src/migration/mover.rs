//! One move as a step machine: what is to be done next, given what has happened and when.
//!
//! A [`Mover`] begins where the copy is in the new log ([`crate::Op::Arrive`]) and ends where nothing
//! of the stream is left in the old one, or of the copy in the new one. It asks for one thing at a
//! time ([`Action`]) and is told what became of it ([`Happened`]); it knows no tasks, clocks or
//! sockets. Where a stop interrupts it, [`super::resolve`] says what there is, and a new one begins.
//!
//! The steps and their order are those of [`super`]. Between [`Action::Lock`] and the switch, or what
//! takes its place, the driver keeps others from changing the stream's name ([`Mover::phase`]).

mod copying;
mod switching;

use super::refusal_of;
use crate::op::{Forgotten, Op, OpOutcome, OpResult, Range};
use crate::rules::MOVE_REFUSES_FIRST;
use crate::stream::StreamLocation;
use nuthatch_log::StreamId;
use nuthatch_protocol::js::StreamConfig;
use nuthatch_protocol::jserror::JsError;
use std::time::Duration;

/// Time since any moment that stays the same.
pub type Now = Duration;

/// Bounds of a move.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pace {
    /// Bytes that are read before they are stored, about: every store waits for the new log's medium,
    /// so that many small ones would not keep up with publishers.
    pub store_bytes_max: u64,
    /// Messages, likewise.
    pub store_messages_max: usize,
    /// A copy this many messages behind is close enough to hold the stream for the rest.
    pub switch_lag: u64,
    /// So long the stream is held for the rest of the copy. If that does not suffice it goes on, and
    /// the copy with it; each further try may take longer by as much. It is not held at all while the
    /// new log needs more than half of that for a frame: the last of them cannot be taken back.
    pub hold_step: Duration,
    /// However many tries there were.
    pub hold_max: Duration,
    /// After a problem a move waits so long, and twice as long after each further one.
    pub retry_min: Duration,
    /// At most.
    pub retry_max: Duration,
    /// Where another change of the stream is under way, it is asked for again after this.
    pub busy_pause: Duration,
    /// Bytes a second that are copied at most.
    pub rate_bytes: u64,
}

/// What moves where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Where the stream lives.
    pub source: StreamLocation,
    /// Where its copy is.
    pub copy: StreamLocation,
}

/// One of the two logs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The log that the stream leaves.
    Source,
    /// The log that it goes to.
    Copy,
}

/// What the driver is to do next; [`Happened`] names the answer to each.
#[derive(PartialEq, Debug)]
pub enum Action {
    /// Wait for a turn among the copies that are being made, and keep it while [`Mover::needs_turn`]:
    /// [`Happened::Turn`].
    TakeTurn,
    /// Run an operation, waiting for room in the log's queue: [`Happened::Outcome`]. Not later than
    /// `until`: then [`Happened::Late`], whatever becomes of the operation.
    Run {
        /// In this log.
        side: Side,
        /// The operation.
        op: Op,
        /// The timeout.
        until: Option<Now>,
    },
    /// Pause: [`Happened::Rested`], early if the move is cancelled.
    Rest {
        /// Until then.
        until: Now,
    },
    /// Pause as [`Action::Rest`]: something is wrong.
    Retry {
        /// Until then.
        until: Now,
        /// The pause.
        wait: Duration,
        /// What is wrong.
        error: JsError,
    },
    /// Take the right to change the stream's name: [`Happened::Locked`].
    Lock,
    /// The new log has the stream: let its name mean the copy, and hand over what the old engine keeps
    /// of it ([`crate::Event::Depart`], [`crate::Event::Install`]): [`Happened::Switched`].
    Switch,
    /// Wait until the old log has durably forgotten the stream: [`Happened::Outcome`].
    AwaitForgotten,
    /// It is over.
    End(Ended),
}

/// What became of an [`Action`].
#[derive(Debug)]
pub enum Happened {
    /// The move begins.
    Began,
    /// Its turn has come; `false`: the server stops.
    Turn(bool),
    /// The outcome of an operation.
    Outcome(OpResult),
    /// The operation was not taken by the log, and never will be.
    NotSent(JsError),
    /// The log ended before it answered.
    NoAnswer(JsError),
    /// The time was over before the outcome was there.
    Late,
    /// The pause is over.
    Rested,
    /// The right to change the name, with the configuration that the stream is to have in the new log.
    Locked(Box<StreamConfig>),
    /// Another change of the stream is under way.
    LockBusy,
    /// The stream is not where it was when the move began.
    Elsewhere,
    /// Name and routes mean the copy.
    Switched,
}

/// How a move has ended.
#[derive(Clone, PartialEq, Debug)]
pub enum Ended {
    /// The stream lives in the new log, and the old one has forgotten it.
    Moved,
    /// It lives in the new log, but the old one does not forget it: until a restart it can neither be
    /// deleted nor move on.
    Unforgotten(JsError),
    /// Given up; what of clearing up did not succeed, and goes with a restart.
    GivenUp {
        /// Why.
        why: GivenUp,
        /// The old log does not remember that the copy is not to be gone on with: a restart goes on
        /// with the move.
        not_refused: Option<JsError>,
        /// The copy stays until a restart.
        not_dropped: Option<JsError>,
    },
    /// The new log stopped while it was taking over: what it holds shows after a restart.
    Undecided(JsError),
}

/// Why a move was given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GivenUp {
    /// It was cancelled.
    Cancelled,
    /// The stream or its copy is gone.
    Gone,
    /// The new log has refused the copy.
    Refused,
}

/// What the driver has to keep from others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Nothing.
    Free,
    /// The stream's name: it is held in the old log.
    Held,
    /// The same: the new log is taking over.
    Settling,
    /// The same: it has taken over.
    Switching,
}

/// Where the move is. What is named is what was asked for last.
#[derive(Debug)]
enum State {
    Idle,
    Turn,
    /// Asked for the end of the copy.
    Measure,
    /// Reads what is stored next, held or not.
    Read(Read),
    Store(Stored),
    Pace {
        next: u64,
    },
    Probe {
        began: Now,
        allowed: Duration,
        next: u64,
    },
    Lock {
        allowed: Duration,
        next: u64,
    },
    LockBusy,
    Leave {
        until: Now,
        next: u64,
        began: Now,
    },
    /// Told to stay: another attempt follows for this reason, or at once without one.
    Stay(Option<JsError>),
    Settle {
        began: Now,
    },
    Switch {
        began: Now,
    },
    /// The same, before the new log has taken over.
    SwitchEarly(Hold),
    /// Asked whether the new engine has everything in hand.
    Arrive {
        began: Now,
    },
    Forgotten,
    Retry,
    Refuse(GivenUp),
    Drop(GivenUp),
    Over,
}

/// A part of the copy that is being read.
#[derive(Debug)]
struct Read {
    from: u64,
    range: Range,
    /// What the messages weigh.
    bytes: u64,
    began: Now,
    hold: Option<Hold>,
}

/// A part that is being stored.
#[derive(Debug)]
struct Stored {
    next: u64,
    last_seq: u64,
    bytes: u64,
    began: Now,
    hold: Option<Hold>,
}

/// The stream is held for the rest of the copy.
#[derive(Debug)]
struct Hold {
    until: Now,
    began: Now,
    /// State and last sequence, as the old log told them.
    state: Vec<u8>,
    last_seq: u64,
}

/// How far a move has come.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MoveProgress {
    /// The last sequence that is stored in the copy.
    pub copied_seq: u64,
    /// The last sequence of the stream when it was read last.
    pub last_seq: u64,
    /// How long it was held for the switch.
    pub held: Duration,
    /// The new log has it.
    pub switched: bool,
}

/// One move.
#[derive(Debug)]
pub struct Mover {
    plan: Plan,
    pace: Pace,
    state: State,
    phase: Phase,
    progress: MoveProgress,
    cancelled: bool,
    /// Times that the stream was held.
    tries: u32,
    attempt_began: Now,
    retry: Duration,
}

impl Mover {
    /// A move that has not begun. Call [`Mover::step`] with [`Happened::Began`].
    #[must_use]
    pub fn new(plan: Plan, pace: Pace) -> Self {
        assert!(pace.store_messages_max > 0 && pace.rate_bytes > 0, "a move copies something");
        let retry = pace.retry_min;
        Self {
            plan,
            pace,
            state: State::Idle,
            phase: Phase::Free,
            progress: MoveProgress::default(),
            cancelled: false,
            tries: 0,
            attempt_began: Now::ZERO,
            retry,
        }
    }

    /// What it keeps from others.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether it copies or switches. What comes after takes nothing that others wait for, and may
    /// wait for a log that does not answer.
    #[must_use]
    pub const fn needs_turn(&self) -> bool {
        !matches!(
            self.state,
            State::Forgotten | State::Retry | State::Refuse(_) | State::Drop(_) | State::Over
        )
    }

    /// How far it has come.
    #[must_use]
    pub const fn progress(&self) -> MoveProgress {
        self.progress
    }

    /// It is to be given up, where that is still possible: before the new log takes over.
    pub const fn cancel(&mut self) {
        self.cancelled = true;
    }

    /// The new log has refused to begin the copy: what there may be of it goes.
    pub fn give_up(&mut self) -> Action {
        assert!(matches!(self.state, State::Idle), "nothing was begun");
        self.drop_copy(GivenUp::Refused)
    }

    /// What is to be done next.
    ///
    /// # Panics
    /// What happened is not what was asked for last.
    pub fn step(&mut self, happened: Happened, now: Now) -> Action {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Idle | State::Retry => self.begin(now),
            State::Turn => self.turn(&happened, now),
            State::Measure => self.measured(happened, now),
            State::Read(read) => self.read(read, happened, now),
            State::Store(stored) => self.stored(stored, happened, now),
            State::Pace { next } => self.copy_from(next, now),
            State::Probe { began, allowed, next } => {
                self.probed(took(began, now), allowed, next, happened, now)
            }
            State::Lock { allowed, next } => self.locked(allowed, next, happened, now),
            State::LockBusy => self.measure(),
            State::Leave { until, next, began } => self.left(until, next, began, happened, now),
            State::Stay(why) => self.stayed(why, happened, now),
            State::Settle { began } => self.settled(began, happened),
            State::Switch { began } => self.switched(began),
            State::SwitchEarly(hold) => self.settle(hold),
            State::Arrive { began } => self.arrived(began, now),
            State::Forgotten => self.forgotten(happened),
            State::Refuse(why) => self.refused(why, happened),
            State::Drop(why) => self.dropped(why, happened),
            State::Over => panic!("the move is over"),
        }
    }

    fn begin(&mut self, now: Now) -> Action {
        self.attempt_began = now;
        if self.cancelled {
            return self.drop_copy(GivenUp::Cancelled);
        }
        self.state = State::Turn;
        Action::TakeTurn
    }

    fn turn(&mut self, happened: &Happened, now: Now) -> Action {
        match happened {
            _ if self.cancelled => self.drop_copy(GivenUp::Cancelled),
            Happened::Turn(true) => self.measure(),
            Happened::Turn(false) => self.failed(JsError::CLUSTER_NOT_AVAIL, now),
            other => panic!("a turn was asked for: {other:?}"),
        }
    }

    /// An operation was refused, or not answered: the stream is gone, or it is worth another try.
    fn failed(&mut self, error: JsError, now: Now) -> Action {
        self.phase = Phase::Free;
        if is_gone(&error) {
            return self.drop_copy(GivenUp::Gone);
        }
        if took(self.attempt_began, now) > self.pace.retry_max {
            self.retry = self.pace.retry_min;
        }
        let wait = self.retry;
        self.retry = (wait * 2).min(self.pace.retry_max);
        self.state = State::Retry;
        Action::Retry { until: now + wait, wait, error }
    }

    /// Drops the copy for good. The old log remembers first that it is not to be gone on with, or has
    /// durably forgotten the stream: a copy that cannot be dropped now goes with the next start.
    fn drop_copy(&mut self, why: GivenUp) -> Action {
        self.phase = Phase::Free;
        if !MOVE_REFUSES_FIRST.holds() {
            return self.forget_copy(why);
        }
        self.state = State::Refuse(why);
        let refused = Some(refusal_of(&self.plan.source.log, self.plan.copy.stream));
        self.run(Side::Source, Op::Stay { id: self.plan.source.stream, refused }, None)
    }

    fn refused(&mut self, why: GivenUp, happened: Happened) -> Action {
        match outcome(happened) {
            Err(error) if !is_gone(&error) => {
                self.end(Ended::GivenUp { why, not_refused: Some(error), not_dropped: None })
            }
            _ => self.forget_copy(why),
        }
    }

    fn forget_copy(&mut self, why: GivenUp) -> Action {
        self.state = State::Drop(why);
        // Only a copy: were this stream the live one, the engine would refuse.
        self.run(Side::Copy, Op::Forget { id: self.plan.copy.stream, what: Forgotten::Copy }, None)
    }

    fn dropped(&mut self, why: GivenUp, happened: Happened) -> Action {
        let not_dropped = outcome(happened).err().filter(|error| !is_gone(error));
        self.end(Ended::GivenUp { why, not_refused: None, not_dropped })
    }

    fn end(&mut self, ended: Ended) -> Action {
        self.phase = Phase::Free;
        self.state = State::Over;
        Action::End(ended)
    }

    const fn run(&self, side: Side, op: Op, until: Option<Now>) -> Action {
        Action::Run { side, op, until }
    }

    const fn copy_id(&self) -> StreamId {
        self.plan.copy.stream
    }

    const fn source_id(&self) -> StreamId {
        self.plan.source.stream
    }
}

/// The outcome of an operation; an operation without one has not succeeded.
fn outcome(happened: Happened) -> Result<OpOutcome, JsError> {
    match happened {
        Happened::Outcome(outcome) => outcome,
        Happened::NotSent(error) | Happened::NoAnswer(error) => Err(error),
        other => panic!("an operation was asked for: {other:?}"),
    }
}

/// An outcome that does not belong to its operation.
fn unexpected(other: &OpOutcome) -> ! {
    panic!("the outcome of another operation: {other:?}")
}

fn is_gone(error: &JsError) -> bool {
    error.err_code == JsError::STREAM_NOT_FOUND.err_code
}

const fn took(began: Now, now: Now) -> Duration {
    now.saturating_sub(began)
}

#[cfg(test)]
mod tests;
