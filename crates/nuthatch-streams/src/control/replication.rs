//! A mirror or a source as a step machine: reads its origin and stores what it read.
//!
//! A [`Replicator`] never ends by itself. How far it is follows from its own stream: a mirror goes on
//! behind its last sequence, a source behind the last message with its header, so every message is
//! taken over exactly once, whatever stops and starts in between. It asks for one thing at a time
//! ([`Action`]) and is told what became of it ([`Happened`]). After whatever goes wrong it begins
//! anew: it looks for the origin, asks its own stream how far it is, and reads from there.
//!
//! An origin of this server is read by [`crate::Op::ReadRange`], which waits until there is something;
//! one of another server through its API and a push consumer there (`afar`).

mod afar;
mod here;
mod rewrite;

use super::{Backoff, Now};
use crate::op::{Op, OpOutcome, OpResult, Range, Replica};
use crate::rules::{COPY_NOT_EARLY, COPY_NOT_LATE, COPY_STORED_FIRST, SOURCE_POSITION};
use afar::Afar;
use here::Here;
use nuthatch_log::StreamId;
use nuthatch_protocol::js::{StreamSource, Time};
use nuthatch_protocol::jserror::JsError;
use rewrite::Rewrite;
use std::time::Duration;

/// After a problem so long a pause, and twice as long after each further one.
const RETRY_MIN: Duration = Duration::from_millis(250);
/// At most.
const RETRY_MAX: Duration = Duration::from_secs(10);
/// At most where the origin is behind a leaf node, whose return is not reported.
const RETRY_AFAR_MAX: Duration = Duration::from_secs(2);

/// The API of the account itself.
const OWN_API: &str = "$JS.API";

/// What is copied where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The stream that takes the messages.
    pub target: StreamId,
    /// Its mirror, or one of its sources, validated.
    pub source: StreamSource,
    /// A mirror.
    pub mirrors: bool,
}

/// One of the two logs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The log that the origin is in.
    Origin,
    /// The log of the stream that takes its messages.
    Target,
}

/// Location of an origin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Location {
    /// A stream of this server.
    Here {
        /// Its identity.
        id: StreamId,
        /// When it was created: another one of its name is copied from its beginning.
        created: Time,
    },
    /// A stream of the API with this prefix (`$JS.hub.API`), of another server.
    Afar(String),
}

/// A message that came on a subject that is listened on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Delivery {
    /// Its subject.
    pub subject: Vec<u8>,
    /// Reply subject or empty.
    pub reply: Vec<u8>,
    /// Header block or empty.
    pub headers: Vec<u8>,
    /// Body.
    pub body: Vec<u8>,
}

/// What the driver is to do next; [`Happened`] names the answer to each.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// Find the origin: [`Happened::Located`] or [`Happened::NotLocated`].
    Locate {
        /// An attempt begins: what listens goes, and what changes from now on ends
        /// [`Action::AwaitChange`].
        begins: bool,
    },
    /// Run an operation: [`Happened::Outcome`].
    Run {
        /// In this log.
        side: Side,
        /// The operation.
        op: Op,
    },
    /// Send a request, with a reply subject of its own, unless nobody listens there:
    /// [`Happened::Answered`] or [`Happened::Unanswered`].
    Ask {
        /// Its subject.
        subject: String,
        /// Header block or empty.
        headers: Vec<u8>,
        /// Its body.
        body: Vec<u8>,
        /// The timeout.
        until: Now,
    },
    /// Listen on a fresh subject with this prefix, until the next attempt: [`Happened::Listening`] or
    /// [`Happened::Unanswered`].
    Listen {
        /// Tokens, without a dot at the end.
        prefix: String,
    },
    /// The same on just this subject.
    ListenOn {
        /// The subject.
        subject: String,
    },
    /// Take the next message of what is listened on, and those that are there already:
    /// [`Happened::Arrived`], or [`Happened::Silent`] if there is none.
    Receive {
        /// The timeout.
        until: Now,
        /// No more than so many.
        messages_max: usize,
        /// None behind so many bytes.
        bytes_max: usize,
    },
    /// Send a message without a body: [`Happened::Sent`].
    Send {
        /// Its subject.
        subject: Vec<u8>,
        /// Header block.
        headers: Vec<u8>,
    },
    /// Pause: [`Happened::Rested`].
    Rest {
        /// Until then.
        until: Now,
    },
    /// Wait until any stream or account has changed since the attempt began:
    /// [`Happened::Changed`].
    AwaitChange,
}

/// What became of an [`Action`].
#[derive(Clone, PartialEq, Debug)]
pub enum Happened {
    /// It begins.
    Began,
    /// The origin was found.
    Located(Location),
    /// It was not, or may not be copied.
    NotLocated(JsError),
    /// The outcome of an operation; an error if it was not taken or not answered.
    Outcome(OpResult),
    /// The answer to a request.
    Answered {
        /// Header block or empty.
        headers: Vec<u8>,
        /// Its body.
        body: Vec<u8>,
    },
    /// There is none.
    Unanswered(Unanswered),
    /// This subject is listened on.
    Listening(String),
    /// Messages, in the order in which they came.
    Arrived(Vec<Delivery>),
    /// No message came.
    Silent,
    /// A message was sent.
    Sent,
    /// The pause is over.
    Rested,
    /// Streams or accounts have changed.
    Changed,
}

/// Why there is no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unanswered {
    /// Nobody listens for such requests.
    NobodyListens,
    /// The time was over.
    Late,
    /// The account is not there.
    AccountGone,
}

/// How it is doing.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Status {
    /// Messages of the origin that are still to come.
    pub lag: u64,
    /// When the origin was last heard of.
    pub active: Option<Now>,
    /// The origin is read by an operation that waits: what comes there is heard of at once.
    pub is_in_sight: bool,
    /// The last problem, until something was read again.
    pub error: Option<JsError>,
}

/// What reads the origin.
#[derive(Debug)]
enum Reader {
    Here(Here),
    Afar(Box<Afar>),
}

/// What was asked for last.
#[derive(Debug)]
enum State {
    Idle,
    Locate,
    /// How far the own stream is.
    Position {
        key: Vec<u8>,
        reader: Reader,
    },
    /// The same, by a header that does not say when the origin was created.
    OlderPosition {
        key: Vec<u8>,
        reader: Reader,
    },
    /// `STREAM.INFO` of an origin of this API.
    Info {
        api: String,
    },
    /// The identity of an origin whose information may not be asked for.
    Identity(Box<Afar>),
    /// A durable consumer of the origin, from its acknowledgement floor.
    Reset(Box<Afar>),
    Read(Here),
    Listen(Box<Afar>),
    Create(Box<Afar>),
    Receive(Box<Afar>),
    Reply(Box<Afar>),
    Store(Reader),
    /// Where the origin is, after a problem.
    Recheck,
    Pause,
}

/// One mirror, or one source.
#[derive(Debug)]
pub struct Replicator {
    plan: Plan,
    rewrite: Rewrite,
    state: State,
    status: Status,
    /// What tells this source from others of its stream, in this attempt.
    key: Vec<u8>,
    backoff: Backoff,
    attempt_began: Now,
    /// What its consumers are called in other servers; empty: they choose.
    consumer: String,
}

impl Replicator {
    /// One that has not begun. Call [`Replicator::step`] with [`Happened::Began`].
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        let rewrite = Rewrite::new(&plan.source, plan.mirrors);
        Self {
            plan,
            rewrite,
            state: State::Idle,
            status: Status::default(),
            key: Vec::new(),
            backoff: Backoff::new(RETRY_MIN, RETRY_MAX),
            attempt_began: Now::ZERO,
            consumer: String::new(),
        }
    }

    /// Names its consumers in other servers: the same name in each attempt, and no other copy's. An origin
    /// that keeps messages for its consumers then keeps them for this one.
    #[must_use]
    pub fn with_consumer(self, consumer: String) -> Self {
        Self { consumer, ..self }
    }

    /// How it is doing.
    #[must_use]
    pub const fn status(&self) -> &Status {
        &self.status
    }

    /// What is to be done next.
    ///
    /// # Panics
    /// What happened is not what was asked for last.
    pub fn step(&mut self, happened: Happened, now: Now) -> Action {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Idle | State::Pause => self.begin(now),
            State::Locate => self.located(happened, now),
            State::Position { key, reader } => self.positioned(key, reader, happened, now),
            State::OlderPosition { key, reader } => {
                let position = self.sourced(happened);
                self.resume(position, key, reader, now)
            }
            State::Info { api } => self.informed(api, happened, now),
            State::Identity(afar) => self.identified(afar, happened),
            State::Reset(afar) => self.was_reset(afar, happened),
            State::Read(here) => self.read(here, happened, now),
            State::Listen(afar) => self.listening(afar, happened, now),
            State::Create(afar) => self.created(afar, happened, now),
            State::Receive(afar) => self.received(afar, happened, now),
            State::Reply(afar) => self.reply(afar, now),
            State::Store(reader) => self.stored(reader, happened, now),
            State::Recheck => self.rechecked(happened, now),
        }
    }

    fn begin(&mut self, now: Now) -> Action {
        self.attempt_began = now;
        self.state = State::Locate;
        Action::Locate { begins: true }
    }

    fn located(&mut self, happened: Happened, now: Now) -> Action {
        match happened {
            Happened::Located(Location::Here { id, created }) => {
                if self.plan.source.consumer.is_some() {
                    return self.reset(Afar::new(OWN_API.to_owned()), Some(created), now);
                }
                let key = self.rewrite.key(&created.0.to_string());
                self.position(key, Reader::Here(Here::new(id)))
            }
            Happened::Located(Location::Afar(api)) => self.ask_info(api, now),
            Happened::NotLocated(error) => self.failed(error),
            other => panic!("an origin was looked for: {other:?}"),
        }
    }

    /// Asks the own stream how far it is.
    fn position(&mut self, key: Vec<u8>, reader: Reader) -> Action {
        let id = self.plan.target;
        let op = if self.plan.mirrors {
            Op::StreamInfo { id, deleted_details: false, subjects_filter: String::new(), offset: 0 }
        } else {
            Op::Sourced { id, key: key.clone() }
        };
        self.state = State::Position { key, reader };
        Action::Run { side: Side::Target, op }
    }

    fn positioned(&mut self, key: Vec<u8>, reader: Reader, happened: Happened, now: Now) -> Action {
        if self.plan.mirrors {
            let position = match outcome(happened) {
                Ok(OpOutcome::Stream { info, .. }) => Ok(info.state.last_seq),
                Ok(other) => unexpected(&other),
                Err(error) => Err(error),
            };
            return self.resume(position, key, reader, now);
        }
        let position = self.sourced(happened);
        if position != Ok(0) {
            return self.resume(position, key, reader, now);
        }
        // What came with a backup of a nats-server does not say when the origin was created.
        let end = key.iter().rposition(|&byte| byte == b' ').expect("a key has four parts");
        let op = Op::Sourced { id: self.plan.target, key: key[..=end].to_vec() };
        self.state = State::OlderPosition { key, reader };
        Action::Run { side: Side::Target, op }
    }

    fn sourced(&self, happened: Happened) -> Result<u64, JsError> {
        match outcome(happened)? {
            OpOutcome::Sourced(seq) if SOURCE_POSITION.holds() => Ok(seq),
            OpOutcome::Sourced(_) => Ok(0),
            other => unexpected(&other),
        }
    }

    /// Goes on behind `position`, the last sequence of the origin that was taken over; 0: none was.
    fn resume(
        &mut self,
        position: Result<u64, JsError>,
        key: Vec<u8>,
        reader: Reader,
        now: Now,
    ) -> Action {
        let mut next = match position {
            Ok(position) => position + 1,
            Err(error) => return self.failed(error),
        };
        if !COPY_NOT_EARLY.holds() {
            next = (next - 1).max(1);
        }
        if !COPY_NOT_LATE.holds() {
            next += 1;
        }
        self.key = key;
        match reader {
            Reader::Here(here) => self.read_from(here, next, now),
            Reader::Afar(afar) => self.listen(afar, next),
        }
    }

    /// Stores what was read. Nothing more is read before that is done: behind a part that was refused
    /// a later one would be taken all the same, and leave a hole that no attempt goes back to.
    fn store(&mut self, range: Range, reader: Reader, now: Now) -> Action {
        let (id, gap_to) = (self.plan.target, range.next - 1);
        let messages = range.messages.into_iter();
        let copies: Vec<Replica> =
            messages.map(|message| self.rewrite.apply(message, &self.key)).collect();
        let op = if self.plan.mirrors {
            Op::Mirror { id, copies, gap_to }
        } else if copies.is_empty() {
            return self.go_on(reader, now);
        } else {
            Op::Source { id, copies }
        };
        self.state = State::Store(reader);
        Action::Run { side: Side::Target, op }
    }

    fn stored(&mut self, reader: Reader, happened: Happened, now: Now) -> Action {
        match outcome(happened) {
            Err(error) if COPY_STORED_FIRST.holds() => self.failed(error),
            _ => self.go_on(reader, now),
        }
    }

    /// What was read is stored.
    fn go_on(&mut self, reader: Reader, now: Now) -> Action {
        match reader {
            Reader::Here(here) => {
                self.note(here.lag, true, now);
                self.read_more(here)
            }
            Reader::Afar(afar) => {
                self.note(afar.pending, false, now);
                self.reply(afar, now)
            }
        }
    }

    fn note(&mut self, lag: u64, is_in_sight: bool, now: Now) {
        self.status = Status { lag, active: Some(now), is_in_sight, error: None };
    }

    /// The attempt has failed. Where the origin is now decides when the next one begins.
    fn failed(&mut self, error: JsError) -> Action {
        (self.status.error, self.status.is_in_sight) = (Some(error), false);
        self.state = State::Recheck;
        Action::Locate { begins: false }
    }

    fn rechecked(&mut self, happened: Happened, now: Now) -> Action {
        self.state = State::Pause;
        self.backoff.attempted(self.attempt_began, now);
        let longest = match happened {
            // Missing, or not ours to copy: a change of streams or of accounts may make it right,
            // and until then nothing is to be done.
            Happened::NotLocated(why) if awaits_change(&why) => return Action::AwaitChange,
            Happened::Located(Location::Afar(_)) => RETRY_AFAR_MAX,
            // It is not told when the consumer is there.
            Happened::Located(_) if self.plan.source.consumer.is_some() => RETRY_AFAR_MAX,
            Happened::Located(_) | Happened::NotLocated(_) => RETRY_MAX,
            other => panic!("an origin was looked for: {other:?}"),
        };
        Action::Rest { until: now + self.backoff.pause(longest) }
    }
}

fn awaits_change(error: &JsError) -> bool {
    [JsError::STREAM_NOT_FOUND, JsError::STREAM_INVALID_CONFIG]
        .iter()
        .any(|kind| error.err_code == kind.err_code)
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
