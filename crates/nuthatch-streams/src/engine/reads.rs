//! Reads of single messages: `STREAM.MSG.GET` and direct get (ADR-31), cold ones included.
//!
//! A read that depends on an uncommitted write, or whose message is not in memory, is parked with
//! its stream and tried again after the commit or the load.

use super::Engine;
use super::batch_get::BatchGet;
use super::direct::{DirectGet, is_contradictory, is_empty, read_request};
use super::outputs::Outputs;
use super::replication::RangeRead;
use crate::event::{ClientBatch, DirectGetItem};
use crate::op::{FoundMessage, GetMessage, OpOutcome, Respond};
use crate::rules::MISSING_IS_DAMAGE;
use crate::sink::{AccountId, Message, Sink};
use crate::stream::{Lookup, Stream, wire_time};
use nuthatch_log::{LogAccess, Read, RecordRef, Seq, StreamId};
use nuthatch_protocol::jserror::JsError;
use nuthatch_protocol::wire::write::push_u64;
use std::fmt::Write;

/// Reads that may be parked per stream. Further ones are refused.
const PARKED_READS_MAX: usize = 16 * 1024;

/// Reads of a stream that wait for loads at the same time. The others follow as these are answered,
/// so that a crowd of cold reads costs each load only so many tries.
const RETRIED_READS_MAX: usize = 64;

pub(super) const NOT_FOUND: &[u8] = b"NATS/1.0 404 Message Not Found\r\n\r\n";
const TOO_MANY: &[u8] = b"NATS/1.0 429 Too Many Requests\r\n\r\n";
pub(super) const UNREADABLE: &[u8] = b"NATS/1.0 500 Message Not Readable\r\n\r\n";

/// A read that waits.
pub(super) enum ParkedRead<P> {
    /// For one message.
    One(OneRead<P>),
    /// For several.
    Many(Box<BatchGet<P>>),
    /// For a mirror or a source.
    Range(Box<RangeRead>),
}

/// A read of one message.
pub(super) struct OneRead<P> {
    request: GetMessage,
    asker: Asker<P>,
}

/// Receiver of the answer.
enum Asker<P> {
    Api(Respond),
    Direct(DirectAsker<P>),
}

/// Receiver of the answers to a direct get.
pub(super) struct DirectAsker<P> {
    pub(super) peer: P,
    pub(super) hint: u32,
    pub(super) reply: Box<[u8]>,
}

impl<P> ParkedRead<P> {
    /// What a direct get asks for: what is behind the stream's name in its subject, and its body.
    ///
    /// # Errors
    /// The status to answer with.
    pub(super) fn direct(
        stream: &Stream,
        (subject, body): (&[u8], &[u8]),
        asker: DirectAsker<P>,
    ) -> Result<Self, (DirectAsker<P>, &'static [u8])> {
        match read_request(subject, body) {
            Ok(DirectGet::One(request)) => {
                Ok(Self::One(OneRead { request, asker: Asker::Direct(asker) }))
            }
            Ok(DirectGet::Many(request)) => {
                BatchGet::new(stream, &request, asker).map(|many| Self::Many(Box::new(many)))
            }
            Err(status) => Err((asker, status)),
        }
    }

    /// Answers, or gives the read back if it must wait.
    pub(super) fn answer<S: Sink<Peer = P>, L: LogAccess>(
        self,
        env: &mut ReadEnv<'_, S, L>,
    ) -> Option<Self> {
        match self {
            Self::One(read) => read.answer(env).map(Self::One),
            Self::Range(read) => read.answer(env).map(Self::Range),
            Self::Many(many) => many.answer(env).map(Self::Many),
        }
    }

    fn refuse<S: Sink<Peer = P>>(
        self,
        error: &JsError,
        status: &[u8],
        account: AccountId,
        sink: &mut S,
    ) {
        let asker = match self {
            Self::One(OneRead { asker: Asker::Api(respond), .. }) => {
                return respond(Err(error.clone()));
            }
            Self::One(OneRead { asker: Asker::Direct(asker), .. }) => asker,
            Self::Many(many) => many.asker,
            Self::Range(read) => return (read.respond)(Err(error.clone())),
        };
        asker.send_status(sink, account, status);
    }
}

impl<P> DirectAsker<P> {
    /// Answers with headers only.
    pub(super) fn send_status<S: Sink<Peer = P>>(
        &self,
        sink: &mut S,
        account: AccountId,
        headers: &[u8],
    ) {
        send_status(sink, account, &self.peer, self.hint, &self.reply, headers);
    }
}

fn send_status<S: Sink>(
    sink: &mut S,
    account: AccountId,
    peer: &S::Peer,
    hint: u32,
    reply: &[u8],
    headers: &[u8],
) {
    let message = Message { subject: reply, reply: b"", headers, body: b"" };
    sink.reply(account, peer, hint, &message);
}

/// The answer of a stream that does not serve direct gets: no responders.
fn not_served(stream: &str, subject: &[u8]) -> Vec<u8> {
    let mut headers = b"NATS/1.0 503\r\nNats-Subject: $JS.API.DIRECT.GET.".to_vec();
    headers.extend_from_slice(stream.as_bytes());
    if !subject.is_empty() {
        headers.push(b'.');
        headers.extend_from_slice(subject);
    }
    headers.extend_from_slice(b"\r\n\r\n");
    headers
}

impl<S: Sink> Engine<S> {
    pub(super) fn get_message<L: LogAccess>(
        &mut self,
        id: StreamId,
        request: GetMessage,
        respond: Respond,
        log: &mut L,
    ) {
        if let Err(error) = self.streams.live(id) {
            return respond(Err(error));
        }
        if is_empty(&request) || is_contradictory(&request) {
            return respond(Err(JsError::BAD_REQUEST));
        }
        let asker = Asker::Api(respond);
        self.start_read(id, ParkedRead::One(OneRead { request, asker }), log);
    }

    pub(super) fn direct_get<L: LogAccess>(
        &mut self,
        batch: &ClientBatch<S::Peer>,
        item: &DirectGetItem,
        log: &mut L,
    ) {
        let reply = item.reply.of(&batch.buf);
        if reply.is_empty() {
            return;
        }
        if !super::consumers::offers_level(item.headers.of(&batch.buf)) {
            let account = self.streams.account_of(item.stream);
            return self.out.refuse_level(account, batch, item.hint, reply);
        }
        let subject = item.subject.of(&batch.buf);
        let stream = self.streams.get(item.stream).map(|slot| &slot.stream);
        let serves = |stream: &&Stream| {
            let config = stream.config();
            if item.for_origin { config.mirror_direct } else { config.allow_direct }
        };
        let Some(account) = stream.filter(serves).map(Stream::account) else {
            let none = not_served(stream.map_or("", |stream| &stream.config().name), subject);
            let account = stream.map_or(AccountId::GLOBAL, Stream::account);
            send_status(self.out.sink_mut(), account, &batch.peer, item.hint, reply, &none);
            return;
        };
        if let Some(unless) = item.unless_changed
            && self.is_as_at(item.stream, unless.position, log)
        {
            let (headers, body) = (item.headers.of(&batch.buf), item.body.of(&batch.buf));
            let subject = unless.back.of(&batch.buf);
            let message = Message { subject, reply, headers, body };
            return self.out.sink_mut().send_back(&batch.peer, &message);
        }
        let asker = DirectAsker { peer: batch.peer.clone(), hint: item.hint, reply: reply.into() };
        let Some((slot, ledger)) = self.streams.entry(item.stream) else { return };
        ledger.expire(slot, log);
        match ParkedRead::direct(&slot.stream, (subject, item.body.of(&batch.buf)), asker) {
            Ok(read) => self.start_expired(item.stream, read, log),
            Err((asker, status)) => asker.send_status(self.out.sink_mut(), account, status),
        }
    }

    /// Answers a read, or parks it with its stream.
    pub(super) fn start_read<L: LogAccess>(
        &mut self,
        id: StreamId,
        read: ParkedRead<S::Peer>,
        log: &mut L,
    ) {
        self.streams.expire(id, log);
        self.start_expired(id, read, log);
    }

    /// The same of a stream from which has gone what is due.
    fn start_expired<L: LogAccess>(
        &mut self,
        id: StreamId,
        read: ParkedRead<S::Peer>,
        log: &mut L,
    ) {
        let Some(slot) = self.streams.get_mut(id) else { return };
        let (stream, out, headers) = (&mut slot.stream, &mut self.out, &mut self.scratch.headers);
        slot.reads.start(read, &mut ReadEnv { stream, out, headers, log });
    }

    /// Tries the parked reads of a stream again.
    pub(super) fn retry_reads<L: LogAccess>(&mut self, id: StreamId, log: &mut L) {
        let Some(slot) = self.streams.get_mut(id) else { return };
        let (stream, out, headers) = (&mut slot.stream, &mut self.out, &mut self.scratch.headers);
        slot.reads.retry(&mut ReadEnv { stream, out, headers, log });
    }
}

/// The surroundings of a read.
pub(super) struct ReadEnv<'a, S: Sink, L> {
    pub(super) stream: &'a mut Stream,
    pub(super) out: &'a mut Outputs<S>,
    /// Keeps its memory between reads.
    pub(super) headers: &'a mut Vec<u8>,
    pub(super) log: &'a mut L,
}

/// The reads of a stream that wait for a load or a commit, oldest first. At most
/// [`PARKED_READS_MAX`].
pub(super) struct ParkedReads<P> {
    parked: Vec<ParkedRead<P>>,
}

impl<P> Default for ParkedReads<P> {
    fn default() -> Self {
        Self { parked: Vec::new() }
    }
}

impl<P> ParkedReads<P> {
    /// True if none waits.
    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.parked.is_empty()
    }

    /// Answers a read or lets it wait.
    fn start<S: Sink<Peer = P>, L: LogAccess>(
        &mut self,
        read: ParkedRead<P>,
        env: &mut ReadEnv<'_, S, L>,
    ) {
        let Some(read) = read.answer(env) else { return };
        if self.parked.len() < PARKED_READS_MAX {
            return self.parked.push(read);
        }
        let (account, sink) = (env.stream.account(), env.out.sink_mut());
        read.refuse(&JsError::STREAM_TOO_MANY_REQUESTS, TOO_MANY, account, sink);
    }

    /// Tries those again that have waited longest, until too many of them go on waiting.
    fn retry<S: Sink<Peer = P>, L: LogAccess>(&mut self, env: &mut ReadEnv<'_, S, L>) {
        if self.parked.is_empty() {
            return;
        }
        let mut parked = std::mem::take(&mut self.parked).into_iter();
        let mut waiting = Vec::new();
        while waiting.len() < RETRIED_READS_MAX
            && let Some(read) = parked.next()
        {
            waiting.extend(read.answer(env));
        }
        waiting.extend(parked);
        self.parked = waiting;
    }

    /// Answers all of them with an error.
    pub(super) fn fail<S: Sink<Peer = P>>(
        &mut self,
        error: &JsError,
        account: AccountId,
        sink: &mut S,
    ) {
        for read in self.parked.drain(..) {
            read.refuse(error, UNREADABLE, account, sink);
        }
    }
}

impl<P> OneRead<P> {
    /// Answers, or gives the read back if it must wait.
    fn answer<S: Sink<Peer = P>, L: LogAccess>(self, env: &mut ReadEnv<'_, S, L>) -> Option<Self> {
        let (id, account) = (env.stream.id(), env.stream.account());
        let found = match env.stream.contents_mut().look_up(&self.request) {
            Lookup::InFlight => return Some(self),
            Lookup::Missing => Err(Failure::Missing),
            Lookup::Found(seq) => match env.log.read(id, seq) {
                Read::Pending => return Some(self),
                Read::Ready(stored) => Ok(stored.record),
                // The stream has it: it is lost, whatever the log says.
                Read::Missing if MISSING_IS_DAMAGE.holds() => Err(Failure::Lost(seq)),
                Read::Missing => Err(Failure::Missing),
                Read::Damaged | Read::Failing => Err(Failure::Unreadable(seq)),
            },
        };
        let lost = match &found {
            Err(Failure::Lost(seq)) => Some(*seq),
            _ => None,
        };
        match (self.asker, found) {
            (Asker::Api(respond), Ok(record)) => {
                respond(Ok(OpOutcome::Message(found_message(&record, self.request.no_hdr))));
            }
            (Asker::Api(respond), Err(failure)) => respond(Err(failure.error())),
            (Asker::Direct(asker), Ok(record)) => {
                let headers = &mut *env.headers;
                headers.clear();
                if !self.request.no_hdr {
                    direct_headers(env.stream, &record, headers);
                    headers.extend_from_slice(b"\r\n");
                }
                let subject = &asker.reply;
                let message = Message { subject, reply: b"", headers, body: record.body };
                env.out.sink_mut().reply(account, &asker.peer, asker.hint, &message);
            }
            (Asker::Direct(asker), Err(failure)) => {
                asker.send_status(env.out.sink_mut(), account, failure.status());
            }
        }
        if let Some(seq) = lost {
            env.out.note_missing(env.stream, seq, env.log);
        }
        None
    }
}

/// The error for a message that the stream has and the log does not.
pub(super) fn unreadable(seq: Seq) -> JsError {
    let why = format!("message {seq} can not be read: the log does not have it any more");
    JsError::STREAM_STORE_FAILED.with_err(why)
}

/// Why there is no message to answer with.
enum Failure {
    /// The stream has no such message.
    Missing,
    /// The log found its place damaged, or the disk did not give it.
    Unreadable(Seq),
    /// The stream has it, and the log does not.
    Lost(Seq),
}

impl Failure {
    fn error(&self) -> JsError {
        match self {
            Self::Missing => JsError::NO_MESSAGE_FOUND,
            Self::Unreadable(seq) => {
                JsError::STREAM_STORE_FAILED.with_err(format!("message {seq} can not be read"))
            }
            Self::Lost(seq) => unreadable(*seq),
        }
    }

    const fn status(&self) -> &'static [u8] {
        match self {
            Self::Missing => NOT_FOUND,
            Self::Unreadable(_) | Self::Lost(_) => UNREADABLE,
        }
    }
}

fn found_message(record: &RecordRef<'_>, no_headers: bool) -> FoundMessage {
    FoundMessage {
        subject: record.subject.to_vec(),
        seq: record.seq.0,
        headers: if no_headers { Vec::new() } else { record.headers.to_vec() },
        body: record.body.to_vec(),
        time: wire_time(record.timestamp),
    }
}

/// The stored headers with where the message comes from, without the closing empty line.
pub(super) fn direct_headers(stream: &Stream, record: &RecordRef<'_>, out: &mut Vec<u8>) {
    match record.headers.strip_suffix(b"\r\n") {
        Some(stored) => out.extend_from_slice(stored),
        None => out.extend_from_slice(b"NATS/1.0\r\n"),
    }
    out.extend_from_slice(b"Nats-Stream: ");
    out.extend_from_slice(stream.config().name.as_bytes());
    out.extend_from_slice(b"\r\nNats-Subject: ");
    out.extend_from_slice(record.subject);
    out.extend_from_slice(b"\r\nNats-Sequence: ");
    push_u64(out, record.seq.0);
    let mut time = String::new();
    write!(time, "\r\nNats-Time-Stamp: {}\r\n", wire_time(record.timestamp))
        .expect("writing to a string does not fail");
    out.extend_from_slice(time.as_bytes());
}
