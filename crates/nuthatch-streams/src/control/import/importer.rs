//! The end of an import that reads the other server and sends what it read.

use crate::rules::{IMPORT_NOT_EARLY, IMPORT_NOT_LATE};

/// What the driver is to do next; [`Happened`] names the answer to each. What fails ends the import:
/// a new [`Importer`] goes on with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Begin the import here, or ask how far it is: [`Happened::Told`].
    Begin,
    /// Ask the other server for the last sequence of the stream: [`Happened::Last`].
    AskLast,
    /// Read these sequences there, both included, send what there is of them in order, and wait until
    /// every batch is confirmed: [`Happened::Brought`].
    Bring {
        /// The first.
        first: u64,
        /// The last.
        last: u64,
    },
    /// Compare these sequences of both sides: [`Happened::Compared`].
    Compare {
        /// The first.
        first: u64,
        /// The last.
        last: u64,
    },
    /// Note here that both sides are the same up to this sequence: [`Happened::Noted`].
    Note(u64),
    /// Everything is here and was compared. [`Happened::LookAgain`] goes on with what came meanwhile.
    Done,
}

/// What became of an [`Action`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Happened {
    /// It begins.
    Began,
    /// The import is under way here.
    Told {
        /// Its last sequence.
        stored: u64,
        /// Up to here both sides were compared.
        verified: u64,
    },
    /// The last sequence of the stream there.
    Last(u64),
    /// All of it is durable here.
    Brought,
    /// Both sides are the same.
    Compared,
    /// The server has noted it.
    Noted,
    /// The other server may have more.
    LookAgain,
}

/// One import, as its command sees it.
#[derive(Clone, Debug, Default)]
pub struct Importer {
    stored: u64,
    verified: u64,
    asked: Option<Action>,
}

impl Importer {
    /// The last sequence that is durable here.
    #[must_use]
    pub const fn stored(&self) -> u64 {
        self.stored
    }

    /// Up to here both sides were compared.
    #[must_use]
    pub const fn verified(&self) -> u64 {
        self.verified
    }

    /// What is to be done next.
    ///
    /// # Panics
    /// What happened is not what was asked for last.
    pub fn step(&mut self, happened: Happened) -> Action {
        let action = match (self.asked, happened) {
            (None, Happened::Began) => Action::Begin,
            (Some(Action::Begin), Happened::Told { stored, verified }) => {
                (self.stored, self.verified) = (stored, verified);
                Action::AskLast
            }
            (Some(Action::AskLast), Happened::Last(last)) => self.bring(last),
            (Some(Action::Bring { last, .. }), Happened::Brought) => {
                self.stored = last;
                self.compare()
            }
            (Some(Action::Compare { last, .. }), Happened::Compared) => {
                self.verified = last;
                Action::Note(last)
            }
            (Some(Action::Note(_)), Happened::Noted) => Action::Done,
            (Some(Action::Done), Happened::LookAgain) => Action::AskLast,
            (asked, other) => panic!("asked for {asked:?}, told {other:?}"),
        };
        self.asked = Some(action);
        action
    }

    /// Brings what the other server has and this one has not.
    fn bring(&self, last: u64) -> Action {
        let mut first = self.stored + 1;
        if !IMPORT_NOT_EARLY.holds() {
            first = self.stored.max(1);
        }
        if !IMPORT_NOT_LATE.holds() {
            first += 1;
        }
        if last > self.stored { Action::Bring { first, last } } else { self.compare() }
    }

    fn compare(&self) -> Action {
        if self.verified >= self.stored {
            return Action::Done;
        }
        Action::Compare { first: self.verified + 1, last: self.stored }
    }
}
