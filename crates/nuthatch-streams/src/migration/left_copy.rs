//! A copy whose source is in a log that is not here: when it may be dropped, as a step machine.
//!
//! Whoever owns the source asks how the copy stands ([`super::deciding`]) as long as the source names it, and
//! takes a copy that is not there for one that has taken over and gone on. So it stays until the source says
//! that it does not name it ([`crate::Op::GoesTo`]), and no move to it is under way there.

use super::deciding::Pauses;
use crate::op::{Forgotten, Op};
use crate::rules::ASKED_COPY_STAYS;
use crate::stream::StreamLocation;
use nuthatch_log::StreamId;
use std::time::Duration;

/// What the driver is to do next.
#[derive(PartialEq, Debug)]
pub enum Action {
    /// Ask the owner of the source's log whether it may still ask for the copy: [`Happened::Told`] or
    /// [`Happened::NotTold`].
    Ask(StreamLocation),
    /// Run an operation in the log that has the copy: [`Happened::Done`], whatever became of it.
    Run(Op),
    /// Pause: [`Happened::Rested`].
    Rest(Duration),
    /// It is over: the copy was dropped, has taken over, or its log is another node's now.
    End,
}

/// What became of an [`Action`].
#[derive(Debug)]
pub enum Happened {
    /// It begins.
    Began,
    /// The source's log has answered: whether it names the copy.
    Told(bool),
    /// Nobody has answered for it.
    NotTold,
    /// The operation is over.
    Done,
    /// The pause is over.
    Rested,
}

#[derive(Debug)]
enum State {
    Idle,
    Asking,
    Dropping,
    Over,
}

/// One copy.
#[derive(Debug)]
pub struct LeftCopy {
    copy: StreamId,
    source: StreamLocation,
    pauses: Pauses,
    rested: Option<Duration>,
    state: State,
}

impl LeftCopy {
    /// For a copy of this stream. Call [`LeftCopy::step`] with [`Happened::Began`].
    #[must_use]
    pub const fn new(copy: StreamId, source: StreamLocation, pauses: Pauses) -> Self {
        Self { copy, source, pauses, rested: None, state: State::Idle }
    }

    /// What is to be done next.
    ///
    /// # Panics
    /// What happened is not what was asked for last.
    pub fn step(&mut self, happened: Happened) -> Action {
        match (std::mem::replace(&mut self.state, State::Over), happened) {
            (State::Idle, Happened::Began | Happened::Rested) => self.ask(),
            (State::Asking, Happened::Told(false)) => self.drop_copy(),
            (State::Asking, Happened::Told(true) | Happened::NotTold) => {
                self.state = State::Idle;
                let pause = self.pauses.next(self.rested);
                self.rested = Some(pause);
                Action::Rest(pause)
            }
            (State::Dropping, Happened::Done) => Action::End,
            (state, other) => panic!("not what was asked for in {state:?}: {other:?}"),
        }
    }

    fn ask(&mut self) -> Action {
        if !ASKED_COPY_STAYS.holds() {
            return self.drop_copy();
        }
        self.state = State::Asking;
        Action::Ask(self.source.clone())
    }

    fn drop_copy(&mut self) -> Action {
        self.state = State::Dropping;
        // Only a copy: were this stream the live one, the engine would refuse.
        Action::Run(Op::Forget { id: self.copy, what: Forgotten::Copy })
    }
}
