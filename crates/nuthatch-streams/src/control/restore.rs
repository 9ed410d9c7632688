//! A restore from a backup as a step machine: all of it becomes a stream, or nothing does.
//!
//! The stream is begun under a name that nobody can ask for ([`crate::stream::staged_config`]) and
//! filled in parts, each durable before the next. Its consumers and its true configuration are its
//! last record, and only then is it shown. Whatever fails before, what there is of it is deleted; what
//! a stop of the server leaves behind, the next start deletes ([`crate::stream::is_restoring`]).
//!
//! A [`Restore`] asks for one thing at a time ([`Action`]) and is told what became of it
//! ([`Happened`]). As long as [`Restore::holds_name`] says so, the driver keeps others from changing
//! streams of the account.

mod filling;

use super::Now;
use crate::op::{Op, OpOutcome, OpResult, Replica};
use crate::rules::{RESTORE_CLEARS, RESTORE_SHOWN_WHOLE, RESTORE_STAGED};
use crate::stream::staged_config;
use filling::Filling;
pub use filling::Parts;
use nuthatch_log::StreamId;
use nuthatch_protocol::js::{ConsumerSnapshot, StreamConfig, StreamInfo};
use nuthatch_protocol::jserror::JsError;
use std::time::Duration;

/// How often the removal of what a failed restore left is tried when the log is busy.
const CLEAR_TRIES: u32 = 20;
/// Between two of them.
const CLEAR_PAUSE: Duration = Duration::from_millis(250);

/// A part of a backup.
#[derive(Clone, PartialEq, Debug)]
pub enum Item {
    /// A message, in the order of sequences.
    Message(Replica),
    /// These sequences, both included, hold nothing (any more).
    Removed {
        /// The first.
        first: u64,
        /// The last.
        last: u64,
    },
    /// A consumer.
    Consumer(Box<ConsumerSnapshot>),
}

/// What the driver is to do next; [`Happened`] names the answer to each.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// Take the right to change the account's streams, for this one: [`Happened::Locked`] or
    /// [`Happened::Failed`].
    Lock,
    /// Begin a stream with a fresh identity: [`Happened::Created`].
    Create(Box<StreamConfig>),
    /// Run an operation: [`Happened::Outcome`].
    Run(Op),
    /// Read on in the backup: [`Happened::Item`], [`Happened::Complete`] or [`Happened::Failed`].
    Feed,
    /// Check the stream against what there is now, and these consumers of it: [`Happened::Checked`]
    /// or [`Happened::Failed`].
    Check(Vec<ConsumerSnapshot>),
    /// Let clients see the stream: [`Happened::Shown`].
    Show(Box<StreamInfo>),
    /// Pause: [`Happened::Rested`].
    Rest {
        /// Until then.
        until: Now,
    },
    /// It is over: the stream, or why there is none.
    End(Result<Box<StreamInfo>, JsError>),
}

/// What became of an [`Action`].
#[derive(Clone, PartialEq, Debug)]
pub enum Happened {
    /// It begins.
    Began,
    /// The right is there.
    Locked,
    /// The outcome of the operation that begins a stream.
    Created(StreamId, OpResult),
    /// The outcome of another operation; an error if it was not taken or not answered.
    Outcome(OpResult),
    /// A part of the backup.
    Item(Item),
    /// All of the backup was read.
    Complete,
    /// Configuration and consumers as they are to be.
    Checked(Box<StreamConfig>, Vec<ConsumerSnapshot>),
    /// Clients see the stream.
    Shown,
    /// The pause is over.
    Rested,
    /// It was refused, or came to nothing.
    Failed(JsError),
}

/// What was asked for last.
#[derive(Debug)]
enum State {
    Idle,
    LockFirst,
    Create,
    Feed,
    /// A part is being stored.
    Store,
    LockLast,
    Check,
    Finish,
    /// Shown once it is whole.
    Show(Box<StreamInfo>),
    /// Shown too early: what remains is to make it whole.
    ShowEarly(Box<StreamConfig>, Vec<ConsumerSnapshot>),
    Clear {
        why: JsError,
        tries: u32,
    },
    ClearPause {
        why: JsError,
        tries: u32,
    },
    Over,
}

/// One restore.
#[derive(Debug)]
pub struct Restore {
    config: StreamConfig,
    state: State,
    filling: Filling,
    /// The stream, once it is begun.
    begun: Option<(StreamId, Box<StreamInfo>)>,
    holds_name: bool,
}

impl Restore {
    /// A restore of a stream with this configuration, validated. Call [`Restore::step`] with
    /// [`Happened::Began`].
    #[must_use]
    pub fn new(config: StreamConfig, parts: Parts) -> Self {
        let filling = Filling::new(parts);
        Self { config, state: State::Idle, filling, begun: None, holds_name: false }
    }

    /// Whether others are to be kept from changing streams of the account.
    #[must_use]
    pub const fn holds_name(&self) -> bool {
        self.holds_name
    }

    /// The stream, once it is begun.
    #[must_use]
    pub fn stream(&self) -> Option<StreamId> {
        self.begun.as_ref().map(|(id, _)| *id)
    }

    /// What is to be done next.
    ///
    /// # Panics
    /// What happened is not what was asked for last.
    pub fn step(&mut self, happened: Happened, now: Now) -> Action {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Idle => {
                self.state = State::LockFirst;
                Action::Lock
            }
            State::LockFirst => self.locked_first(happened),
            State::Create => self.created(happened),
            State::Feed => self.fed(happened),
            State::Store => self.stored(happened),
            State::LockLast => self.locked_last(happened),
            State::Check => self.checked(happened),
            State::Finish => self.finished(happened),
            State::Show(info) => self.end(Ok(info)),
            State::ShowEarly(config, consumers) => self.finish(config, consumers),
            State::Clear { why, tries } => self.cleared(why, tries, happened, now),
            State::ClearPause { why, tries } => self.clear(why, tries),
            State::Over => panic!("the restore is over"),
        }
    }

    fn locked_first(&mut self, happened: Happened) -> Action {
        match happened {
            Happened::Locked => self.holds_name = true,
            Happened::Failed(why) => return self.end(Err(why)),
            other => panic!("the right to change streams was asked for: {other:?}"),
        }
        self.state = State::Create;
        let config =
            if RESTORE_STAGED.holds() { staged_config(&self.config) } else { self.config.clone() };
        Action::Create(Box::new(config))
    }

    fn created(&mut self, happened: Happened) -> Action {
        self.holds_name = false;
        let (id, outcome) = match happened {
            Happened::Created(id, outcome) => (id, outcome),
            other => panic!("a stream was to be begun: {other:?}"),
        };
        match outcome {
            Ok(OpOutcome::Stream { info, .. }) => {
                self.begun = Some((id, info));
                self.feed()
            }
            Ok(other) => unexpected(&other),
            Err(why) => self.end(Err(why)),
        }
    }

    fn feed(&mut self) -> Action {
        self.state = State::Feed;
        Action::Feed
    }

    fn fed(&mut self, happened: Happened) -> Action {
        match happened {
            Happened::Item(item) => match self.filling.take(item) {
                Ok(()) => self.fill(),
                Err(why) => self.failed(why),
            },
            Happened::Complete => {
                self.filling.complete();
                self.fill()
            }
            Happened::Failed(why) => self.failed(why),
            other => panic!("the backup was to be read: {other:?}"),
        }
    }

    /// Stores what makes up a part; then reads on, or ends.
    fn fill(&mut self) -> Action {
        if let Some(op) = self.filling.store(self.id()) {
            self.state = State::Store;
            return Action::Run(op);
        }
        if !self.filling.is_complete() {
            return self.feed();
        }
        self.state = State::LockLast;
        Action::Lock
    }

    fn stored(&mut self, happened: Happened) -> Action {
        match outcome(happened) {
            Ok(_) => self.fill(),
            Err(why) => self.failed(why),
        }
    }

    fn locked_last(&mut self, happened: Happened) -> Action {
        match happened {
            Happened::Locked => {}
            Happened::Failed(why) => return self.failed(why),
            other => panic!("the right to change streams was asked for: {other:?}"),
        }
        self.holds_name = true;
        self.state = State::Check;
        Action::Check(self.filling.take_consumers())
    }

    fn checked(&mut self, happened: Happened) -> Action {
        let (config, consumers) = match happened {
            Happened::Checked(config, consumers) => (config, consumers),
            Happened::Failed(why) => return self.failed(why),
            other => panic!("a check was asked for: {other:?}"),
        };
        if RESTORE_SHOWN_WHOLE.holds() {
            return self.finish(config, consumers);
        }
        let (_, begun) = self.begun.clone().expect("the stream was begun");
        let info = StreamInfo { config: (*config).clone().into(), ..*begun };
        self.state = State::ShowEarly(config, consumers);
        Action::Show(Box::new(info))
    }

    /// Makes the stream what it is to be.
    fn finish(&mut self, config: Box<StreamConfig>, consumers: Vec<ConsumerSnapshot>) -> Action {
        self.state = State::Finish;
        Action::Run(Op::FinishRestore { id: self.id(), config, consumers })
    }

    fn finished(&mut self, happened: Happened) -> Action {
        match outcome(happened) {
            Ok(OpOutcome::Stream { info, .. }) => {
                self.state = State::Show(info.clone());
                Action::Show(info)
            }
            Ok(other) => unexpected(&other),
            Err(why) => self.failed(why),
        }
    }

    fn id(&self) -> StreamId {
        self.stream().expect("the stream was begun")
    }

    /// Nothing is to be left of it.
    fn failed(&mut self, why: JsError) -> Action {
        self.holds_name = false;
        if !RESTORE_CLEARS.holds() {
            return self.end(Err(why));
        }
        self.clear(why, 0)
    }

    fn clear(&mut self, why: JsError, tries: u32) -> Action {
        self.state = State::Clear { why, tries: tries + 1 };
        Action::Run(Op::DeleteStream { id: self.id() })
    }

    /// A log that is busy is asked again; what cannot be removed now goes with the next start.
    fn cleared(&mut self, why: JsError, tries: u32, happened: Happened, now: Now) -> Action {
        let busy = JsError::STREAM_TOO_MANY_REQUESTS.err_code;
        match outcome(happened) {
            Err(error) if error.err_code == busy && tries < CLEAR_TRIES => {
                self.state = State::ClearPause { why, tries };
                Action::Rest { until: now + CLEAR_PAUSE }
            }
            _ => self.end(Err(why)),
        }
    }

    fn end(&mut self, ended: Result<Box<StreamInfo>, JsError>) -> Action {
        self.holds_name = false;
        self.state = State::Over;
        Action::End(ended)
    }
}

fn outcome(happened: Happened) -> OpResult {
    match happened {
        Happened::Outcome(outcome) => outcome,
        other => panic!("an operation was asked for: {other:?}"),
    }
}

/// An outcome that does not belong to its operation.
fn unexpected(other: &OpOutcome) -> ! {
    panic!("the outcome of another operation: {other:?}")
}

#[cfg(test)]
mod tests;
