//! What clients do: publish, publish again, pull, acknowledge, read, remove.

use super::host::Outgoing;
use super::model::{Asked, Model};
use super::server::Server;
use super::streams::{CONSUMERS, Kind, body};
use crate::rng::Rng;
use nuthatch_streams::Op;
use nuthatch_streams::op::{GetMessage, PurgeRequest};

/// Messages of one go.
const MESSAGES_MAX: u64 = 4;
/// Answers that are waited for before clients send more.
const ASKED_MAX: usize = 60;

/// A client of a running node.
pub struct Client<'a> {
    pub model: &'a mut Model,
    pub server: &'a mut Server,
    pub rng: &'a mut Rng,
}

impl Client<'_> {
    /// Does one thing.
    pub fn act(&mut self) {
        if self.model.asked.len() > ASKED_MAX || self.make_what_is_missing() {
            return;
        }
        let kind = *self.rng.pick(&Kind::ALL);
        if !self.model.is_ready(kind) {
            return;
        }
        match self.rng.below(100) {
            0..50 => self.publish(kind),
            50..56 => self.publish_again(),
            56..68 => self.pull(),
            68..84 => self.acknowledge(),
            84..92 => self.get(kind),
            92..95 => self.info(kind),
            95..97 => self.consumer_info(),
            97 => self.purge(kind),
            _ => self.delete(kind),
        }
    }

    /// Creates the first stream or consumer that is not there; false if there is none.
    fn make_what_is_missing(&mut self) -> bool {
        let missing = Kind::ALL.into_iter().find(|kind| !self.model.stream(*kind).exists);
        if let Some(kind) = missing {
            let pending = |asked: &Asked| matches!(asked, Asked::Create(of) if *of == kind);
            if !self.model.asked.values().any(pending) {
                let number = self.model.ask(Asked::Create(kind));
                self.server.create(kind, number);
            }
            return true;
        }
        let missing = (0..CONSUMERS.len()).find(|at| !self.model.readers[*at].exists);
        let Some(at) = missing else { return false };
        let pending = |asked: &Asked| matches!(asked, Asked::CreateConsumer(of) if *of == at);
        if !self.model.asked.values().any(pending) {
            let number = self.model.ask(Asked::CreateConsumer(at));
            let spec = CONSUMERS[at];
            let request = spec.request();
            self.server.send(spec.stream, number, |id| Op::CreateConsumer { id, request });
        }
        true
    }

    /// Notes a publish that is about to be sent.
    fn outgoing(&mut self, kind: Kind, token: u64) -> Outgoing {
        let body = body(token);
        let sent_ns = self.server.now_ns();
        let known = self.model.stream(kind);
        // The least, since a clock that was set back while nothing was durable goes back.
        known.sent_at.entry(token).and_modify(|at| *at = sent_ns.min(*at)).or_insert(sent_ns);
        let before = known.acked;
        let asked = Asked::Publish { kind, token, body: body.clone(), before, sent_ns };
        let has_id = matches!(kind, Kind::Plain | Kind::Queue);
        Outgoing { number: self.model.ask(asked), token, has_id, body }
    }

    fn send(&mut self, kind: Kind, messages: &[Outgoing]) {
        if !self.server.publish(kind, messages) {
            // A full queue: the client hears of it, and nothing was stored.
            for message in messages {
                self.model.asked.remove(&message.number);
            }
        }
    }

    fn publish(&mut self, kind: Kind) {
        let mut messages = Vec::new();
        for _ in 0..=self.rng.below(MESSAGES_MAX) {
            let token = self.model.number();
            messages.push(self.outgoing(kind, token));
        }
        self.send(kind, &messages);
    }

    /// An id that was sent before, answered or not, perhaps twice in one go.
    fn publish_again(&mut self) {
        let known = &self.model.streams[Kind::Plain as usize];
        let token = if self.rng.chance(500) && !self.model.unknown.is_empty() {
            *self.rng.pick(&self.model.unknown)
        } else {
            let count = known.ids.len() as u64;
            let Some(at) = count.checked_sub(1).map(|last| self.rng.between(0, last)) else {
                return;
            };
            *known.ids.keys().nth(at as usize).expect("one of them")
        };
        if !self.model.is_in_window(Kind::Plain, token) {
            return;
        }
        let messages: Vec<Outgoing> =
            (0..=self.rng.below(2)).map(|_| self.outgoing(Kind::Plain, token)).collect();
        self.send(Kind::Plain, &messages);
    }

    fn pull(&mut self) {
        let at = self.rng.below(CONSUMERS.len() as u64) as usize;
        if !CONSUMERS[at].is_push {
            let count = self.rng.between(1, 6);
            self.server.pull(at, count);
        }
    }

    fn acknowledge(&mut self) {
        let at = self.rng.below(CONSUMERS.len() as u64) as usize;
        for _ in 0..=self.rng.below(6) {
            let count = self.model.readers[at].outstanding.len() as u64;
            if count == 0 {
                return;
            }
            let of = self.rng.below(count) as usize;
            let delivered = self.model.readers[at].outstanding.swap_remove(of);
            let (body, confirm) = match self.rng.below(8) {
                0 => ("-NAK", false),
                1 => ("+WPI", false),
                2 => ("+TERM", false),
                what => ("+ACK", what > 4),
            };
            if self.server.ack(at, &delivered, body, confirm) && matches!(body, "+ACK" | "+TERM") {
                self.model.readers[at].acked.insert(delivered.seq);
            }
        }
    }

    /// A sequence that somebody has seen.
    fn seen(&mut self, kind: Kind) -> Option<u64> {
        let seen = &self.model.streams[kind as usize].seen;
        let count = seen.len() as u64;
        let at = self.rng.below(count.max(1)) as usize;
        seen.keys().nth(at).copied()
    }

    fn get(&mut self, kind: Kind) {
        let Some(seq) = self.seen(kind) else { return };
        let number = self.model.ask(Asked::Get { kind, seq });
        let request = GetMessage { seq, ..GetMessage::default() };
        self.server.send(kind, number, |id| Op::GetMessage { id, request });
    }

    fn info(&mut self, kind: Kind) {
        let acked = self.model.stream(kind).acked;
        let number = self.model.ask(Asked::Info { kind, acked });
        let subjects_filter = String::new();
        self.server.send(kind, number, |id| Op::StreamInfo {
            id,
            deleted_details: false,
            subjects_filter,
            offset: 0,
        });
    }

    fn consumer_info(&mut self) {
        let at = self.rng.below(CONSUMERS.len() as u64) as usize;
        let (kind, name) = (CONSUMERS[at].stream, CONSUMERS[at].name.to_owned());
        let number = self.model.ask(Asked::ConsumerInfo(at));
        self.server.send(kind, number, |id| Op::ConsumerInfo { id, name });
    }

    fn purge(&mut self, kind: Kind) {
        let Some(below) = self.seen(kind) else { return };
        let known = self.model.stream(kind);
        known.purged_below = known.purged_below.max(below);
        let number = self.model.ask(Asked::Purge { kind, below });
        let request = PurgeRequest { seq: below, ..PurgeRequest::default() };
        self.server.send(kind, number, |id| Op::Purge { id, request });
    }

    fn delete(&mut self, kind: Kind) {
        let Some(seq) = self.seen(kind) else { return };
        self.model.stream(kind).doubtful.insert(seq);
        let number = self.model.ask(Asked::Delete { kind, seq });
        self.server.send(kind, number, |id| Op::DeleteMessage { id, seq });
    }
}
