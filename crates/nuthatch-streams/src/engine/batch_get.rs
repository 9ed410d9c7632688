//! Direct gets of several messages (ADR-31): a stretch in order, or the last of each subject.
//!
//! The messages go out one by one, each telling how many follow; the end is a status. A request whose
//! next message is not in memory is parked like any read and goes on where it stopped.

use super::direct::BatchGetRequest;
use super::reads::{DirectAsker, NOT_FOUND, ReadEnv, UNREADABLE, direct_headers};
use crate::index::MessageIndex;
use crate::rules::MISSING_IS_DAMAGE;
use crate::sink::{Message, Sink};
use crate::stream::{Selection, Stream};
use nuthatch_log::{LogAccess, Read, RecordRef, Seq, Timestamp};
use nuthatch_protocol::wire::write::{StatusHeader, push_status, push_u64};
use std::collections::VecDeque;

/// Subjects that a request for last messages may match (nats-server's).
const MULTI_LAST_MAX: usize = 1024;
/// Patterns of such a request.
const MULTI_LAST_PATTERNS_MAX: usize = 1024;
/// Messages that one request gets at most; the end of the batch says how many are left.
const BATCH_MESSAGES_MAX: u64 = 16 * 1024;
/// Bytes that one request gets if it does not say: half of a connection's default `max_pending`.
const BATCH_BYTES_MAX: u64 = 32 << 20;

const NO_RESULTS: &[u8] = b"NATS/1.0 404 No Results\r\n\r\n";
const TOO_MANY_PATTERNS: &[u8] = b"NATS/1.0 413 Too Many Subjects\r\n\r\n";
const TOO_MANY_RESULTS: &[u8] = b"NATS/1.0 413 Too Many Results\r\n\r\n";

/// Messages still to be sent.
enum Targets {
    /// The messages that match (empty: all) from a sequence on.
    From { pattern: Box<[u8]>, next: Seq },
    /// These.
    List(VecDeque<u64>),
}

/// A direct get under way.
pub(super) struct BatchGet<P> {
    pub(super) asker: DirectAsker<P>,
    targets: Targets,
    /// Messages and bytes that may still be sent.
    left: u64,
    bytes_left: u64,
    /// Messages that match and were not sent.
    pending: u64,
    last_sent: u64,
    /// The sequence, told at the end, at which a list of last messages was cut.
    up_to: Option<u64>,
    no_headers: bool,
}

impl Targets {
    fn selection(&self, stream: &Stream) -> Selection {
        match self {
            Self::From { pattern, .. } => Selection::new(stream.contents(), pattern),
            Self::List(_) => Selection::new(stream.contents(), b""),
        }
    }

    fn next(&self, stream: &Stream, selection: &Selection) -> Option<Seq> {
        match self {
            Self::From { next, .. } => selection.next(stream.contents(), *next),
            Self::List(list) => list.front().copied().map(Seq),
        }
    }

    fn advance(&mut self, sent: Seq) {
        match self {
            Self::From { next, .. } => *next = sent.next(),
            Self::List(list) => {
                list.pop_front();
            }
        }
    }
}

/// The targets of a request, how many there are, and where a list was cut.
///
/// # Errors
/// The status to answer with.
fn targets(
    stream: &Stream,
    request: &BatchGetRequest,
) -> Result<(Targets, u64, Option<u64>), &'static [u8]> {
    let from = match request.start.start_time {
        Some(at) => stream.contents().seq_at(Timestamp(at.0)),
        None => Seq(request.start.seq),
    };
    if request.multi_last.is_empty() {
        let pattern = request.start.next_by_subj.as_bytes();
        let pending = stream.contents().pending_from(pattern, from);
        return Ok((Targets::From { pattern: pattern.into(), next: from }, pending, None));
    }
    let up_to = match (request.up_to_time, request.up_to_seq) {
        (Some(at), _) => {
            let after = stream.contents().seq_at(Timestamp(at.0));
            if after <= stream.contents().first() {
                return Err(NO_RESULTS);
            }
            Seq(after.0 - 1)
        }
        (None, 0) => stream.contents().last(),
        (None, seq) => Seq(seq),
    };
    let patterns = &request.multi_last;
    if patterns.len() > MULTI_LAST_PATTERNS_MAX {
        return Err(TOO_MANY_PATTERNS);
    }
    let list = stream
        .contents()
        .last_of_each(patterns, from, up_to, MULTI_LAST_MAX)
        .ok_or(TOO_MANY_RESULTS)?;
    if list.is_empty() {
        return Err(NO_RESULTS);
    }
    let pending = list.len() as u64;
    Ok((Targets::List(list.into()), pending, Some(up_to.0)))
}

const fn or_most(wanted: u64, most: u64) -> u64 {
    if wanted == 0 || wanted > most { most } else { wanted }
}

impl<P> BatchGet<P> {
    /// What a request asks for.
    ///
    /// # Errors
    /// The status to answer with.
    pub(super) fn new(
        stream: &Stream,
        request: &BatchGetRequest,
        asker: DirectAsker<P>,
    ) -> Result<Self, (DirectAsker<P>, &'static [u8])> {
        match targets(stream, request) {
            Err(status) => Err((asker, status)),
            Ok((targets, pending, up_to)) => Ok(Self {
                asker,
                targets,
                left: or_most(request.batch, BATCH_MESSAGES_MAX),
                bytes_left: or_most(request.max_bytes, BATCH_BYTES_MAX),
                pending,
                last_sent: 0,
                up_to,
                no_headers: request.start.no_hdr,
            }),
        }
    }

    /// Sends what can be sent; gives the request back if it must wait.
    pub(super) fn answer<S: Sink<Peer = P>, L: LogAccess>(
        mut self: Box<Self>,
        env: &mut ReadEnv<'_, S, L>,
    ) -> Option<Box<Self>> {
        let (stream, id, account) = (&*env.stream, env.stream.id(), env.stream.account());
        let selection = self.targets.selection(stream);
        while self.left > 0
            && self.bytes_left > 0
            && let Some(seq) = self.targets.next(stream, &selection)
        {
            let record = match env.log.read(id, seq) {
                Read::Pending => return Some(self),
                Read::Ready(stored) => stored.record,
                // An answer with a hole would look like a whole one.
                Read::Damaged | Read::Failing => {
                    self.asker.send_status(env.out.sink_mut(), account, UNREADABLE);
                    return None;
                }
                Read::Missing
                    if stream.contents().get(seq).is_some() && MISSING_IS_DAMAGE.holds() =>
                {
                    self.asker.send_status(env.out.sink_mut(), account, UNREADABLE);
                    env.out.note_missing(stream, seq, env.log);
                    return None;
                }
                // Deleted meanwhile.
                Read::Missing => {
                    self.targets.advance(seq);
                    self.pending = self.pending.saturating_sub(1);
                    continue;
                }
            };
            self.pending = self.pending.saturating_sub(1);
            self.write_headers(stream, &record, env.headers);
            let (subject, headers) = (&self.asker.reply, &*env.headers);
            let message = Message { subject, reply: b"", headers, body: record.body };
            env.out.sink_mut().reply(account, &self.asker.peer, self.asker.hint, &message);
            let size = record.subject.len() + record.headers.len() + record.body.len();
            self.sent(seq, size);
        }
        self.end(env.headers);
        self.asker.send_status(env.out.sink_mut(), account, env.headers);
        None
    }

    fn write_headers(&self, stream: &Stream, record: &RecordRef<'_>, headers: &mut Vec<u8>) {
        headers.clear();
        if !self.no_headers {
            direct_headers(stream, record, headers);
            headers.extend_from_slice(b"Nats-Num-Pending: ");
            push_u64(headers, self.pending);
            headers.extend_from_slice(b"\r\nNats-Last-Sequence: ");
            push_u64(headers, self.last_sent);
            headers.extend_from_slice(b"\r\n\r\n");
        }
    }

    fn sent(&mut self, seq: Seq, size: usize) {
        self.targets.advance(seq);
        self.last_sent = seq.0;
        self.left -= 1;
        self.bytes_left = self.bytes_left.saturating_sub(size as u64);
    }

    /// The status that ends the batch; "not found" if nothing was sent.
    fn end(&self, out: &mut Vec<u8>) {
        out.clear();
        if self.last_sent == 0 {
            return out.extend_from_slice(NOT_FOUND);
        }
        let pending = StatusHeader::Number("Nats-Num-Pending", self.pending);
        let last = StatusHeader::Number("Nats-Last-Sequence", self.last_sent);
        match self.up_to {
            None => push_status(out, 204, "EOB", &[pending, last]),
            Some(seq) => {
                let up_to = StatusHeader::Number("Nats-UpTo-Sequence", seq);
                push_status(out, 204, "EOB", &[pending, last, up_to]);
            }
        }
    }
}
