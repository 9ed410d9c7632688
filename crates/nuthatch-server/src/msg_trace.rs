//! Traces of messages (ADR-41): what a server did with a message that asks for it by a header.
//!
//! A [`Trace`] goes with its message through routing and notes each step. Streams answer later, on
//! other threads: each has a [`StreamPart`]. When the last of them is gone the trace is finished and
//! goes into a queue, from which a task of the server publishes it.

use crate::log_id::StreamRoute;
use nuthatch_protocol::js::Time;
use nuthatch_streams::AccountId;
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

pub use asked::{Asked, DEST, DISABLED, HOP, TRACE_HEADER_BYTES_MAX, TRACE_HEADERS_MAX, may_ask};
pub use queue::{TRACE_BYTES_QUEUED_MAX, TRACES_QUEUED_MAX, TraceQueue};
pub use stream_error::Outcome;
pub use target::TraceTarget;

mod asked;
mod queue;
mod stream_error;
mod target;

/// Steps of one trace that are told; of those beyond only their number is.
pub const TRACE_STEPS_MAX: usize = 1024;
/// Memory of a step beside its texts.
const STEP_BYTES: usize = 128;

/// The subscriber has switched echo off, and has published the message itself.
pub const NO_ECHO: &str = "Not delivered because of no echo";
/// The subscriber may not see the subject.
pub const DENIED: &str = "Not delivered because subscription denies this subject";
/// The other server may not get the subject.
pub const NOT_SENT: &str = "Not delivered because publish denied for this subject";
/// The subscription is over.
pub const SUBSCRIPTION_CLOSED: &str = "Not delivered because subscription is closed";
/// The subscriber's connection is closed.
pub const CLIENT_CLOSED: &str = "Not delivered because client is closed";
/// The subscription has had as many messages as it was to have.
pub const EXHAUSTED: &str = "Not delivered because auto-unsubscribe exceeded";
/// The other server would deliver what is only to be traced.
const NOT_UNDERSTOOD: &str = "Not delivered because remote does not support message tracing";
/// The other server will not tell what it did.
const UNTRACED: &str = "Message delivered but remote does not support message tracing so no trace \
                        event generated from there";

/// Kind of the other side of a connection, by the numbers of nats-server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartyKind {
    /// A client.
    Client,
    /// A node of the same cluster.
    Node,
    /// A leaf node, or the server that this one is a leaf node of.
    Leaf,
}

impl PartyKind {
    const fn number(self) -> u8 {
        match self {
            Self::Client => 0,
            Self::Node => 1,
            Self::Leaf => 4,
        }
    }
}

/// The other side of a connection.
#[derive(Clone, Debug)]
pub struct Party {
    /// Its kind.
    pub kind: PartyKind,
    /// Number of the connection.
    pub id: u64,
    /// Its name; empty: it has none.
    pub name: String,
    /// Name of the connection's account.
    pub account: String,
}

/// Whether another server takes part in traces.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Support {
    /// It tells what it does with the message.
    Full,
    /// It delivers the message and tells nothing.
    #[default]
    None,
}

/// The version of the protocol between servers that leaf nodes name from which on they take part in
/// traces.
pub const SERVER_PROTOCOL: i64 = 3;

impl Support {
    /// Of a server that names this version.
    #[must_use]
    pub const fn of(protocol: i64) -> Self {
        if protocol >= SERVER_PROTOCOL { Self::Full } else { Self::None }
    }
}

/// A step of a trace, as its event shows it.
#[derive(Debug, Serialize)]
#[serde(tag = "type")]
pub enum Step {
    /// The message came in.
    #[serde(rename = "in")]
    #[allow(missing_docs, reason = "ADR-41 says it")]
    Ingress {
        ts: Time,
        kind: u8,
        cid: u64,
        #[serde(skip_serializing_if = "String::is_empty")]
        name: String,
        acc: String,
        subj: String,
        #[serde(skip_serializing_if = "String::is_empty")]
        error: String,
    },
    /// A subject mapping gave it another subject.
    #[serde(rename = "sm")]
    #[allow(missing_docs, reason = "ADR-41 says it")]
    Mapping { ts: Time, to: String },
    /// It goes to an account that imports a stream.
    #[serde(rename = "se")]
    #[allow(missing_docs, reason = "ADR-41 says it")]
    StreamExport { ts: Time, acc: String, to: String },
    /// It goes to an account whose service is imported.
    #[serde(rename = "si")]
    #[allow(missing_docs, reason = "ADR-41 says it")]
    ServiceImport { ts: Time, acc: String, from: String, to: String },
    /// It goes to a stream.
    #[serde(rename = "js")]
    #[allow(missing_docs, reason = "ADR-41 says it")]
    Stream {
        ts: Time,
        stream: String,
        #[serde(skip_serializing_if = "String::is_empty")]
        subject: String,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        nointerest: bool,
        #[serde(skip_serializing_if = "String::is_empty")]
        error: String,
        #[serde(skip)]
        question: Option<Box<StreamQuestion>>,
    },
    /// It goes out.
    #[serde(rename = "eg")]
    #[allow(missing_docs, reason = "ADR-41 says it")]
    Egress {
        ts: Time,
        kind: u8,
        cid: u64,
        #[serde(skip_serializing_if = "String::is_empty")]
        name: String,
        #[serde(skip_serializing_if = "String::is_empty")]
        hop: String,
        #[serde(skip_serializing_if = "String::is_empty")]
        acc: String,
        #[serde(skip_serializing_if = "String::is_empty")]
        sub: String,
        #[serde(skip_serializing_if = "String::is_empty")]
        queue: String,
        #[serde(skip_serializing_if = "String::is_empty")]
        error: String,
    },
}

/// What a stream is asked about a message when its trace is finished.
#[derive(Debug)]
pub struct StreamQuestion {
    /// The stream.
    pub route: StreamRoute,
    /// Its account.
    pub account: AccountId,
    /// Subject of the message there.
    pub subject: Vec<u8>,
    /// Reply subject or empty.
    pub reply: Vec<u8>,
    /// Header block: one for all streams that the message goes to with it.
    pub headers: Arc<[u8]>,
    /// Bytes of the body.
    pub body_len: usize,
    /// It was not stored: the question is what would have become of it.
    pub only: bool,
    /// What the stream has answered to the message; `None`: nothing.
    pub answer: Option<Vec<u8>>,
}

/// What a stream says about a message.
#[derive(Debug, Default)]
pub struct StreamVerdict {
    /// The subject under which it is stored.
    pub subject: Vec<u8>,
    /// It is not kept because no consumer wants it.
    pub no_interest: bool,
    /// Why it would be refused: the answer that the publisher gets.
    pub refusal: Option<Vec<u8>>,
}

impl StreamQuestion {
    /// What the answer to the message means.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        stream_error::outcome(self.answer.as_deref().unwrap_or_default(), &self.headers)
    }
}

/// What a trace says of its message.
#[derive(Debug, Serialize)]
pub struct Request {
    /// Its headers.
    pub header: BTreeMap<String, Vec<String>>,
    /// Header lines that are not shown.
    #[serde(rename = "header_omitted", skip_serializing_if = "is_zero")]
    pub omitted: u64,
    /// Bytes of headers and body.
    pub msgsize: usize,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A trace as it is published.
#[derive(Debug)]
pub struct Finished {
    /// Account in which it is published.
    pub account: AccountId,
    /// Subject on which it is published.
    pub dest: Vec<u8>,
    /// The message.
    pub request: Request,
    /// Other servers that tell what they did.
    pub hops: u32,
    /// What happened.
    pub steps: Vec<Step>,
    /// Steps beyond [`TRACE_STEPS_MAX`].
    pub omitted: u64,
    /// Memory that it takes, in bytes.
    pub weight: usize,
}

impl Finished {
    fn push(&mut self, weight: usize, step: Step) -> Option<usize> {
        if self.steps.len() >= TRACE_STEPS_MAX {
            self.omitted += 1;
            return None;
        }
        self.weight += STEP_BYTES + weight;
        self.steps.push(step);
        Some(self.steps.len() - 1)
    }
}

/// What all parts of a trace share; whoever drops it last finishes it.
struct Shared {
    queue: Arc<TraceQueue>,
    finished: Mutex<Option<Finished>>,
}

impl Shared {
    fn with<T>(&self, change: impl FnOnce(&mut Finished) -> T) -> Option<T> {
        self.finished.lock().as_mut().map(change)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(finished) = self.finished.get_mut().take() {
            self.queue.push(finished);
        }
    }
}

/// The trace of a message that is being routed.
pub struct Trace {
    shared: Arc<Shared>,
    from: Party,
    /// The subject that other servers publish what they did on, as the message tells them.
    pub dest: Vec<u8>,
    /// The message is not delivered.
    pub only: bool,
    /// Number of this server among those that the message has passed; empty: the first.
    hop: String,
    /// The number that the next server gets.
    next_hop: String,
    /// Servers that got the message from here.
    hops: u32,
    /// The header block with which the message went to a stream last.
    block: Mutex<Arc<[u8]>>,
}

/// A message that is traced, as it came.
pub struct Traced<'a> {
    /// Whose connection it came by.
    pub from: Party,
    /// That connection's account.
    pub account: AccountId,
    /// Its subject.
    pub subject: &'a [u8],
    /// Bytes of headers and body.
    pub size: usize,
}

fn now() -> Time {
    Time(crate::wall_time::now_ns())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Trace {
    /// The message has come in; what is told is published on `dest`.
    #[must_use]
    pub fn begin(queue: &Arc<TraceQueue>, asked: Asked, dest: &[u8], message: Traced<'_>) -> Self {
        let Traced { from, account, subject, size } = message;
        let step = Step::Ingress {
            ts: now(),
            kind: from.kind.number(),
            cid: from.id,
            name: from.name.clone(),
            acc: from.account.clone(),
            subj: text(subject),
            error: String::new(),
        };
        // Only servers say how far a message has come.
        let hop = if from.kind == PartyKind::Client { String::new() } else { asked.hop };
        let mut finished = Finished {
            account,
            dest: dest.to_vec(),
            request: Request { header: asked.headers, omitted: asked.omitted, msgsize: size },
            hops: 0,
            steps: Vec::new(),
            omitted: 0,
            weight: asked.weight,
        };
        finished.push(subject.len(), step);
        Self {
            shared: Arc::new(Shared { queue: queue.clone(), finished: Mutex::new(Some(finished)) }),
            from,
            dest: dest.to_vec(),
            only: asked.only,
            hop,
            next_hop: String::new(),
            hops: 0,
            block: Mutex::default(),
        }
    }

    fn push(&self, weight: usize, step: Step) -> Option<usize> {
        self.shared.with(|finished| finished.push(weight, step)).flatten()
    }

    /// The message is refused.
    pub fn refused(&self, why: &str) {
        self.shared.with(|finished| {
            if let Some(Step::Ingress { error, .. }) = finished.steps.first_mut() {
                why.clone_into(error);
            }
        });
    }

    /// A mapping gave it another subject.
    pub fn mapped(&self, to: &[u8]) {
        self.push(to.len(), Step::Mapping { ts: now(), to: text(to) });
    }

    /// It goes to an account that imports a stream.
    pub fn exported(&self, account: &str, to: &[u8]) {
        let acc = account.to_owned();
        self.push(to.len(), Step::StreamExport { ts: now(), acc, to: text(to) });
    }

    /// It goes to an account whose service is imported.
    pub fn carried(&self, account: &str, from: &[u8], to: &[u8]) {
        let (acc, from, to) = (account.to_owned(), text(from), text(to));
        self.push(from.len() + to.len(), Step::ServiceImport { ts: now(), acc, from, to });
    }

    /// It goes out to a client's subscription, or does not: `error`, which is empty if it does.
    pub fn delivered(&mut self, to: Party, subscription: (&[u8], Option<&[u8]>), error: &str) {
        let (sub, queue) = (text(subscription.0), text(subscription.1.unwrap_or_default()));
        let (hop, acc) = (std::mem::take(&mut self.next_hop), self.other_account(&to));
        self.push(
            sub.len() + queue.len() + to.name.len(),
            Step::Egress {
                ts: now(),
                kind: to.kind.number(),
                cid: to.id,
                hop,
                acc,
                name: to.name,
                sub,
                queue,
                error: error.to_owned(),
            },
        );
    }

    /// It goes to another server, if that may have it. Returns the headers that it gets; `None`: it is
    /// not sent.
    pub fn sent(
        &mut self,
        to: Party,
        support: Support,
        denied: bool,
        headers: &[u8],
    ) -> Option<Vec<u8>> {
        let hop = self.begin_hop();
        let error = match (denied, support) {
            (true, _) => NOT_SENT,
            (false, Support::Full) => "",
            (false, Support::None) if self.only => NOT_UNDERSTOOD,
            (false, Support::None) => UNTRACED,
        };
        self.delivered(to, (b"", None), error);
        if denied || error == NOT_UNDERSTOOD {
            return None;
        }
        let mut headers = headers.to_vec();
        nuthatch_protocol::headers::set(&mut headers, HOP, hop.as_bytes());
        Some(headers)
    }

    /// How many servers got it from here.
    #[must_use]
    pub const fn hops(&self) -> u32 {
        self.hops
    }

    fn begin_hop(&mut self) -> String {
        self.hops += 1;
        let hops = self.hops;
        self.shared.with(|finished| finished.hops = hops);
        let dot = if self.hop.is_empty() { "" } else { "." };
        self.next_hop = format!("{}{dot}{hops}", self.hop);
        self.next_hop.clone()
    }

    /// The other side's account, where it is another one than the message came in by.
    fn other_account(&self, to: &Party) -> String {
        let is_other = to.kind != PartyKind::Node && to.account != self.from.account;
        if is_other { to.account.clone() } else { String::new() }
    }

    /// A header block for a [`StreamQuestion`]: a message that goes to many streams has it once.
    #[must_use]
    pub fn block(&self, headers: &[u8]) -> Arc<[u8]> {
        let mut block = self.block.lock();
        if **block != *headers {
            *block = headers.into();
            self.shared.with(|finished| finished.weight += headers.len());
        }
        block.clone()
    }

    /// It goes to a stream, which is asked `question` in the end.
    #[must_use]
    pub fn stored(&self, stream: String, question: StreamQuestion) -> StreamPart {
        let weight = question.subject.len() + question.reply.len();
        let at = self.push(
            weight,
            Step::Stream {
                ts: now(),
                stream,
                subject: String::new(),
                nointerest: false,
                error: String::new(),
                question: Some(Box::new(question)),
            },
        );
        StreamPart { shared: self.shared.clone(), at }
    }

    /// Nothing is told after all: the message is traced again later.
    pub fn forget(self) {
        self.shared.finished.lock().take();
    }
}

/// The part of a trace that a stream adds to.
pub struct StreamPart {
    shared: Arc<Shared>,
    /// Place of its step; `None`: it is not told.
    at: Option<usize>,
}

impl StreamPart {
    /// The stream has answered.
    pub fn answered(&self, body: &[u8]) {
        let Some(at) = self.at else { return };
        self.shared.with(|finished| {
            finished.weight += body.len();
            let step = finished.steps.get_mut(at);
            if let Some(Step::Stream { ts, question: Some(question), .. }) = step {
                *ts = now();
                question.answer = Some(body.to_vec());
            }
        });
    }
}

impl std::fmt::Debug for StreamPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("StreamPart").field(&self.at).finish()
    }
}

#[cfg(test)]
mod tests;
