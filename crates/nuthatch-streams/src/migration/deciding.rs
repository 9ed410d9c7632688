//! Whether a stream lives here that was about to move to a log which may be at another node: as a step
//! machine, which knows no tasks, clocks or sockets.
//!
//! The stream is held ([`crate::Op::Hold`]). The log that it was about to go to is asked by whoever owns it
//! ([`crate::Op::RefuseCopy`]), again and again until it answers. What has taken over there counts. Otherwise
//! the copy never will, this log remembers that, and the stream goes on here.

use super::refusal_of;
use crate::op::{CopyStanding, Forgotten, Op, OpResult};
use crate::stream::StreamLocation;
use nuthatch_log::StreamId;
use nuthatch_protocol::jserror::JsError;
use std::time::Duration;

/// Bounds of the pauses between two questions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pauses {
    /// The first pause, which doubles.
    pub min: Duration,
    /// The longest.
    pub max: Duration,
}

impl Pauses {
    pub(super) fn next(self, before: Option<Duration>) -> Duration {
        before.map_or(self.min, |before| (before * 2).min(self.max))
    }
}

/// What the driver is to do next.
#[derive(PartialEq, Debug)]
pub enum Action {
    /// Ask the owner of the log that the stream was about to go to how this copy stands: [`Happened::Told`] or
    /// [`Happened::NotTold`].
    Ask(StreamLocation),
    /// Run an operation in the log that the stream was in: [`Happened::Outcome`] or [`Happened::NotSent`].
    Run(Op),
    /// Pause: [`Happened::Rested`].
    Rest(Duration),
    /// It is over.
    End(Decided),
}

/// What the other log says of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// This.
    Copy(CopyStanding),
    /// It has no such stream. That log outlives any node, so it had it: it took over, and was deleted or went
    /// on to a further log.
    Gone,
}

/// What became of an [`Action`].
#[derive(Debug)]
pub enum Happened {
    /// It begins.
    Began,
    /// The other log has answered.
    Told(Told),
    /// Nobody has answered for it.
    NotTold,
    /// The outcome of an operation.
    Outcome(OpResult),
    /// The operation was not taken, and never will be: the log is not here any more.
    NotSent,
    /// The pause is over.
    Rested,
}

/// How it has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decided {
    /// The stream goes on here.
    Stays,
    /// It lives elsewhere, and this log has forgotten it.
    Left,
    /// Somebody else has decided; or this log is another node's now, which finds out by itself.
    GivenUp,
}

#[derive(Debug)]
enum State {
    Idle,
    Asking,
    Staying,
    Leaving,
    Over,
}

/// One stream that may live elsewhere.
#[derive(Debug)]
pub struct Decider {
    source: StreamLocation,
    copy: StreamLocation,
    pauses: Pauses,
    rested: Option<Duration>,
    state: State,
}

impl Decider {
    /// For a stream of the log `source.log` that was about to go on as `copy`. Call [`Decider::step`] with
    /// [`Happened::Began`].
    #[must_use]
    pub const fn new(source: StreamLocation, copy: StreamLocation, pauses: Pauses) -> Self {
        Self { source, copy, pauses, rested: None, state: State::Idle }
    }

    /// What is to be done next.
    ///
    /// # Panics
    /// What happened is not what was asked for last.
    pub fn step(&mut self, happened: Happened) -> Action {
        match (std::mem::replace(&mut self.state, State::Over), happened) {
            (State::Idle, Happened::Began | Happened::Rested) => {
                self.state = State::Asking;
                Action::Ask(self.copy.clone())
            }
            (State::Asking, Happened::NotTold) => self.rest(),
            (State::Asking, Happened::Told(Told::Copy(CopyStanding::Refused))) => self.stay(),
            (State::Asking, Happened::Told(_)) => self.leave(),
            (State::Staying, Happened::Outcome(Ok(_))) => self.end(Decided::Stays),
            (State::Leaving, Happened::Outcome(Ok(_))) => self.end(Decided::Left),
            (State::Leaving, Happened::Outcome(Err(error))) if is_gone(&error) => {
                self.end(Decided::Left)
            }
            // Somebody else has decided, or decides.
            (State::Staying | State::Leaving, Happened::Outcome(Err(error)))
                if is_decided(&error) =>
            {
                self.end(Decided::GivenUp)
            }
            // The log may take it later: both may be asked for again.
            (State::Staying | State::Leaving, Happened::Outcome(Err(_))) => self.rest(),
            (State::Staying | State::Leaving, Happened::NotSent) => self.end(Decided::GivenUp),
            (state, other) => panic!("not what was asked for in {state:?}: {other:?}"),
        }
    }

    fn rest(&mut self) -> Action {
        self.state = State::Idle;
        let pause = self.pauses.next(self.rested);
        self.rested = Some(pause);
        Action::Rest(pause)
    }

    fn stay(&mut self) -> Action {
        self.state = State::Staying;
        let refused = Some(refusal_of(&self.source.log, self.copy.stream));
        Action::Run(Op::Stay { id: self.id(), refused })
    }

    fn leave(&mut self) -> Action {
        self.state = State::Leaving;
        Action::Run(Op::Forget { id: self.id(), what: Forgotten::LeftFor(self.copy.stream) })
    }

    fn end(&mut self, decided: Decided) -> Action {
        self.state = State::Over;
        Action::End(decided)
    }

    const fn id(&self) -> StreamId {
        self.source.stream
    }
}

fn is_gone(error: &JsError) -> bool {
    error.err_code == JsError::STREAM_NOT_FOUND.err_code
}

fn is_decided(error: &JsError) -> bool {
    error.err_code == JsError::STREAM_MOVE_IN_PROGRESS.err_code
}
