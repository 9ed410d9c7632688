//! Reads of single messages: `STREAM.MSG.GET` and direct get (ADR-31), cold ones included.
//!
//! A read that depends on an uncommitted write, or whose message is not in memory, is parked with
//! its stream and tried again after the commit or the load.

use super::Engine;
use crate::event::{ClientBatch, DirectGetItem};
use crate::op::{FoundMessage, GetMessage, OpOutcome, Respond};
use crate::sink::{AccountId, Message, Sink};
use crate::stream::{Lookup, Stream, wire_time};
use nuthatch_log::{LogAccess, Read, RecordRef, Seq, StreamId};
use nuthatch_protocol::js::Time;
use nuthatch_protocol::jserror::JsError;
use nuthatch_protocol::wire::write::push_u64;
use serde::Deserialize;
use std::fmt::Write;

/// Reads that may be parked per stream. Further ones are refused.
const PARKED_READS_MAX: usize = 16 * 1024;

/// Reads of a stream that wait for loads at the same time. The others follow as these are answered,
/// so that a crowd of cold reads costs each load only so many tries.
const RETRIED_READS_MAX: usize = 64;

const EMPTY_REQUEST: &[u8] = b"NATS/1.0 408 Empty Request\r\n\r\n";
const MALFORMED_REQUEST: &[u8] = b"NATS/1.0 408 Malformed Request\r\n\r\n";
const BAD_REQUEST: &[u8] = b"NATS/1.0 408 Bad Request\r\n\r\n";
const NOT_FOUND: &[u8] = b"NATS/1.0 404 Message Not Found\r\n\r\n";
const TOO_MANY: &[u8] = b"NATS/1.0 429 Too Many Requests\r\n\r\n";
const UNREADABLE: &[u8] = b"NATS/1.0 500 Message Not Readable\r\n\r\n";

/// A read that waits.
pub(super) struct ParkedRead<P> {
    request: GetMessage,
    asker: Asker<P>,
}

/// Who asked.
enum Asker<P> {
    Api(Respond),
    Direct { peer: P, hint: u32, reply: Box<[u8]> },
}

/// What a try led to.
enum Outcome<P> {
    Answered,
    Wait(ParkedRead<P>),
}

/// The JSON form of a direct get, with the fields that are not served yet.
#[derive(Deserialize, Default)]
#[serde(default)]
struct DirectRequest {
    seq: u64,
    last_by_subj: String,
    next_by_subj: String,
    start_time: Option<Time>,
    no_hdr: bool,
    batch: u64,
    multi_last: Vec<String>,
    up_to_seq: u64,
    up_to_time: Option<Time>,
}

impl DirectRequest {
    /// The single read that is asked for.
    ///
    /// # Errors
    /// The status to answer with. Batches and several subjects are not served yet.
    fn into_single(self, subject: &[u8]) -> Result<GetMessage, &'static [u8]> {
        let several = self.batch > 0 || !self.multi_last.is_empty();
        if several || self.up_to_seq > 0 || self.up_to_time.is_some() {
            return Err(BAD_REQUEST);
        }
        let request = GetMessage {
            seq: self.seq,
            last_by_subj: self.last_by_subj,
            next_by_subj: self.next_by_subj,
            start_time: self.start_time,
            no_hdr: self.no_hdr,
        };
        if subject.is_empty() {
            return if is_empty(&request) {
                Err(EMPTY_REQUEST)
            } else if is_contradictory(&request) {
                Err(BAD_REQUEST)
            } else {
                Ok(request)
            };
        }
        if !is_empty(&request) {
            return Err(BAD_REQUEST);
        }
        let last_by_subj = String::from_utf8(subject.to_vec()).map_err(|_| BAD_REQUEST)?;
        Ok(GetMessage { last_by_subj, ..request })
    }
}

const fn is_empty(request: &GetMessage) -> bool {
    request.seq == 0
        && request.last_by_subj.is_empty()
        && request.next_by_subj.is_empty()
        && request.start_time.is_none()
}

const fn is_contradictory(request: &GetMessage) -> bool {
    let starts = (request.seq > 0) as u8
        + request.start_time.is_some() as u8
        + !request.last_by_subj.is_empty() as u8;
    let last_and_next = !request.last_by_subj.is_empty() && !request.next_by_subj.is_empty();
    starts > 1 || last_and_next
}

impl<P> ParkedRead<P> {
    /// Answers with an error.
    pub(super) fn fail<S: Sink<Peer = P>>(self, error: &JsError, account: AccountId, sink: &mut S) {
        match self.asker {
            Asker::Api(respond) => respond(Err(error.clone())),
            Asker::Direct { peer, hint, reply } => {
                send_status(sink, account, &peer, hint, &reply, UNREADABLE);
            }
        }
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

/// What a client gets where nobody serves direct gets: no responders.
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
        if let Err(error) = self.slot(id) {
            return respond(Err(error));
        }
        if is_empty(&request) || is_contradictory(&request) {
            return respond(Err(JsError::BAD_REQUEST));
        }
        self.start_read(id, ParkedRead { request, asker: Asker::Api(respond) }, log);
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
        let subject = item.subject.of(&batch.buf);
        let stream = self.slots.get(&item.stream).map(|slot| &slot.stream);
        let Some(account) = stream.filter(|s| s.config().allow_direct).map(Stream::account) else {
            let none = not_served(stream.map_or("", |stream| &stream.config().name), subject);
            let account = stream.map_or(AccountId::GLOBAL, Stream::account);
            send_status(&mut self.sink, account, &batch.peer, item.hint, reply, &none);
            return;
        };
        match read_request(subject, item.body.of(&batch.buf)) {
            Ok(request) => {
                let asker = Asker::Direct {
                    peer: batch.peer.clone(),
                    hint: item.hint,
                    reply: reply.into(),
                };
                self.start_read(item.stream, ParkedRead { request, asker }, log);
            }
            Err(status) => {
                send_status(&mut self.sink, account, &batch.peer, item.hint, reply, status);
            }
        }
    }

    fn start_read<L: LogAccess>(&mut self, id: StreamId, read: ParkedRead<S::Peer>, log: &mut L) {
        self.expire_stream(id, log);
        if let Outcome::Wait(read) = self.try_read(id, read, log)
            && let Some(slot) = self.slots.get_mut(&id)
        {
            if slot.parked.len() < PARKED_READS_MAX {
                slot.parked.push(read);
                return;
            }
            let account = slot.stream.account();
            match read.asker {
                Asker::Api(respond) => respond(Err(JsError::STREAM_TOO_MANY_REQUESTS)),
                Asker::Direct { peer, hint, reply } => {
                    send_status(&mut self.sink, account, &peer, hint, &reply, TOO_MANY);
                }
            }
        }
    }

    /// Tries the parked reads of a stream again.
    pub(super) fn retry_reads<L: LogAccess>(&mut self, id: StreamId, log: &mut L) {
        let Some(slot) = self.slots.get_mut(&id).filter(|slot| !slot.parked.is_empty()) else {
            return;
        };
        let mut parked = std::mem::take(&mut slot.parked).into_iter();
        let mut waiting = Vec::new();
        while waiting.len() < RETRIED_READS_MAX
            && let Some(read) = parked.next()
        {
            if let Outcome::Wait(read) = self.try_read(id, read, log) {
                waiting.push(read);
            }
        }
        if let Some(slot) = self.slots.get_mut(&id) {
            waiting.extend(parked);
            slot.parked = waiting;
        }
    }

    fn try_read<L: LogAccess>(
        &mut self,
        id: StreamId,
        read: ParkedRead<S::Peer>,
        log: &mut L,
    ) -> Outcome<S::Peer> {
        let Some(slot) = self.slots.get_mut(&id) else { return Outcome::Answered };
        let (account, stream) = (slot.stream.account(), &mut slot.stream);
        let found = match stream.look_up(&read.request) {
            Lookup::InFlight => return Outcome::Wait(read),
            Lookup::Missing => Err(Failure::Missing),
            Lookup::Found(seq) => match log.read(id, seq) {
                Read::Pending => return Outcome::Wait(read),
                Read::Ready(stored) => Ok(stored.record),
                Read::Missing => Err(Failure::Missing),
                Read::Damaged => Err(Failure::Damaged(seq)),
            },
        };
        match (read.asker, found) {
            (Asker::Api(respond), Ok(record)) => {
                respond(Ok(OpOutcome::Message(found_message(&record, read.request.no_hdr))));
            }
            (Asker::Api(respond), Err(failure)) => respond(Err(failure.error())),
            (Asker::Direct { peer, hint, reply }, Ok(record)) => {
                let headers = &mut self.scratch.headers;
                direct_headers(stream, &record, read.request.no_hdr, headers);
                let message = Message { subject: &reply, reply: b"", headers, body: record.body };
                self.sink.reply(account, &peer, hint, &message);
            }
            (Asker::Direct { peer, hint, reply }, Err(failure)) => {
                send_status(&mut self.sink, account, &peer, hint, &reply, failure.status());
            }
        }
        Outcome::Answered
    }
}

/// Why there is no message to answer with.
enum Failure {
    Missing,
    Damaged(Seq),
}

impl Failure {
    fn error(&self) -> JsError {
        match self {
            Self::Missing => JsError::NO_MESSAGE_FOUND,
            Self::Damaged(seq) => {
                JsError::STREAM_STORE_FAILED.with_err(format!("message {seq} can not be read"))
            }
        }
    }

    const fn status(&self) -> &'static [u8] {
        match self {
            Self::Missing => NOT_FOUND,
            Self::Damaged(_) => UNREADABLE,
        }
    }
}

fn read_request(subject: &[u8], body: &[u8]) -> Result<GetMessage, &'static [u8]> {
    if body.is_empty() {
        if subject.is_empty() {
            return Err(EMPTY_REQUEST);
        }
        return DirectRequest::default().into_single(subject);
    }
    let request: DirectRequest = serde_json::from_slice(body).map_err(|_| MALFORMED_REQUEST)?;
    request.into_single(subject)
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

/// The stored headers with where the message comes from.
fn direct_headers(stream: &Stream, record: &RecordRef<'_>, none: bool, out: &mut Vec<u8>) {
    out.clear();
    if none {
        return;
    }
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
    // Writing to a string cannot fail.
    let _ = write!(time, "\r\nNats-Time-Stamp: {}\r\n\r\n", wire_time(record.timestamp));
    out.extend_from_slice(time.as_bytes());
}
