//! Replies to traffic that a log did not take.

use super::ConnReader;
use crate::egress::{DirectWrites, EgressBatch, Outgoing};
use crate::interest::Matched;
use crate::jetstream_port::{LogId, Peer, StreamRoute};
use crate::member_rng::MemberRng;
use crate::peer::TRACED_HINT;
use crate::route::deliver;
use nuthatch_protocol::jserror::JsError;
use nuthatch_streams::{ClientBatch, Item, PublishItem};
use serde::Serialize;
use std::sync::atomic::Ordering;

/// Status of an answer for which there was no room.
const TOO_MANY: &[u8] = b"NATS/1.0 429 Too Many Requests\r\n\r\n";
/// Status of a pull whose log is closed: the server stops.
const SHUTDOWN: &[u8] = b"NATS/1.0 409 Server Shutdown\r\n\r\n";
/// Status of a pull whose log another node is to own (`checkPendingRequests` of nats-server).
const LEADERSHIP_CHANGE: &[u8] = b"NATS/1.0 409 Leadership Change\r\n\r\n";
/// Status without responders.
const NO_RESPONDERS: &[u8] = b"NATS/1.0 503\r\n\r\n";

/// Why a log did not take something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// Its queue is full.
    Busy,
    /// It takes nothing any more.
    Closed,
    /// It is another node's, or soon will be: who repeats it reaches that.
    Elsewhere,
}

impl Refusal {
    fn error(self) -> JsError {
        match self {
            Self::Busy => JsError::STREAM_TOO_MANY_REQUESTS,
            Self::Closed | Self::Elsewhere => {
                JsError::STREAM_STORE_FAILED.with_err("the log is closed and takes no more writes")
            }
        }
    }

    /// Headers of the answer to a publish.
    const fn publish_status(self) -> &'static [u8] {
        match self {
            Self::Busy => TOO_MANY,
            Self::Closed | Self::Elsewhere => b"",
        }
    }

    /// Headers of the answer to anything else. Clients take an answer to an acknowledgement for a
    /// confirmation unless its status is "no responders".
    const fn status(self, item: &Item) -> &'static [u8] {
        match (item, self) {
            (Item::Ack(_), _) | (Item::DirectGet(_), Self::Closed | Self::Elsewhere) => {
                NO_RESPONDERS
            }
            (Item::Pull(_), Self::Closed) => SHUTDOWN,
            (Item::Pull(_), Self::Elsewhere) => LEADERSHIP_CHANGE,
            _ => TOO_MANY,
        }
    }
}

/// A publish acknowledgement that is an error.
#[derive(Serialize)]
struct Refused {
    error: JsError,
    stream: String,
    seq: u64,
}

impl ConnReader {
    /// Answers a batch that was not taken: counts it, says so in the log, and tells whoever waits.
    pub(super) fn refuse_batch(&self, log: LogId, batch: &ClientBatch<Peer>, refusal: Refusal) {
        // A node closes a log that it hands over, and nothing of this was stored.
        let is_node = self.server.nodes.cluster().is_some();
        let refusal = match refusal {
            Refusal::Closed if is_node && self.server.jetstream().is_handed_over(log) => {
                Refusal::Elsewhere
            }
            other => other,
        };
        self.note(batch, refusal);
        let mut answers = RefusalReplies {
            reader: self,
            log,
            egress: EgressBatch::default(),
            matched: Matched::default(),
            rng: MemberRng::default(),
        };
        for item in &batch.items {
            answers.answer(batch, item, refusal);
        }
        answers.egress.flush(DirectWrites::READER);
    }

    fn note(&self, batch: &ClientBatch<Peer>, refusal: Refusal) {
        let publishes = batch.items.iter().filter(|item| matches!(item, Item::Publish(_))).count();
        let others = batch.items.len() - publishes;
        self.server.refused_publishes.fetch_add(publishes as u64, Ordering::Relaxed);
        let why = match refusal {
            Refusal::Busy => "the queue of the log is full",
            Refusal::Closed => "the log is closed",
            Refusal::Elsewhere => "the log was closed here",
        };
        if publishes > 0 {
            self.server.log.warn(format_args!(
                "{} - {publishes} published messages were not stored: {why}",
                self.conn
            ));
        }
        if others > 0 {
            self.server.log.warn(format_args!(
                "{} - {others} acknowledgements, pulls or gets were refused: {why}",
                self.conn
            ));
        }
    }
}

struct RefusalReplies<'a> {
    reader: &'a ConnReader,
    /// The log that did not take the batch.
    log: LogId,
    egress: EgressBatch,
    matched: Matched,
    rng: MemberRng,
}

impl RefusalReplies<'_> {
    fn answer(&mut self, batch: &ClientBatch<Peer>, item: &Item, refusal: Refusal) {
        let reply = match item {
            Item::Publish(item) => item.reply,
            Item::Ack(item) => item.reply,
            Item::Pull(item) => item.reply,
            Item::DirectGet(item) => item.reply,
            Item::Flow(_) => return,
        };
        let reply = reply.of(&batch.buf);
        if reply.is_empty() {
            return;
        }
        if let Item::Publish(publish) = item
            && publish.hint == TRACED_HINT
            && !batch.peer.answered(&self.publish_body(publish, refusal))
        {
            // Its publisher wants no answer: only the trace tells what became of it.
            return;
        }
        match item {
            // Clients repeat what has this status and nothing else.
            Item::Publish(_) if refusal == Refusal::Elsewhere => {
                self.send(reply, NO_RESPONDERS, b"");
            }
            Item::Publish(publish) => {
                let body = self.publish_body(publish, refusal);
                self.send(reply, refusal.publish_status(), &body);
            }
            _ => self.send(reply, refusal.status(item), b""),
        }
    }

    fn publish_body(&self, item: &PublishItem, refusal: Refusal) -> Vec<u8> {
        let route = StreamRoute { log: self.log, stream: item.stream };
        let name = self.reader.server.jetstream().stream_name(route);
        let stream = name.unwrap_or_default();
        let body = Refused { error: refusal.error(), stream, seq: 0 };
        serde_json::to_vec(&body).unwrap_or_default()
    }

    fn send(&mut self, reply: &[u8], headers: &[u8], body: &[u8]) {
        self.reader.session.account.interest.match_into(reply, &mut self.matched);
        let message =
            Outgoing { subject: reply, routed: reply, reply: b"", headers, body, owner: None };
        deliver(&self.matched, &message, None, &mut self.egress, &mut self.rng);
    }
}
