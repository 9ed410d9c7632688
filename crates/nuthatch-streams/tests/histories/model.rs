//! What the outside world knows of the streams, what it does to them, and what must be true.

mod check;

use super::rig::{Delivered, Outgoing, Rig, held};
use nuthatch_log::StreamId;
use nuthatch_log::env::{Clock, SeededEntropy};
use nuthatch_protocol::js::{
    AckPolicy, ConsumerConfig, CreateConsumerRequest, RetentionPolicy, StreamConfig,
};
use nuthatch_streams::consumer::PreparedConsumer;
use nuthatch_streams::op::{OpResult, PurgeRequest};
use nuthatch_streams::validate::{self, Limits};
use nuthatch_streams::{AccountId, Op};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

const SECOND_NS: i64 = 1_000_000_000;
/// After so long without an answer a message is delivered again.
const ACK_WAIT_NS: i64 = SECOND_NS;
/// Messages that the work queue keeps.
const KEPT: u64 = 12;
/// Ages that the aging stream keeps messages for: an update goes from one to the other.
const AGES_S: [i64; 2] = [4, 60];
/// Longer than every age and time to live here.
const ALL_EXPIRED_MS: u64 = 61_000;

pub const QUEUE: usize = 0;
pub const INTEREST: usize = 1;
pub const AGING: usize = 2;
pub const TIMED: usize = 3;
/// Names; subjects are `NAME.0` and `NAME.1`.
pub const STREAMS: [&str; 4] = ["Q", "I", "A", "T"];

/// Stream, name, the subject that it wants (all if none), whether messages are pushed to it.
type Consumer = (usize, &'static str, Option<u64>, bool);

pub const CONSUMERS: [Consumer; 7] = [
    (QUEUE, "q0", Some(0), false),
    (QUEUE, "q1", Some(1), true),
    (INTEREST, "all", None, false),
    (INTEREST, "one", Some(1), false),
    (INTEREST, "push", None, true),
    (AGING, "old", None, false),
    (TIMED, "brief", None, false),
];

pub const fn id(stream: usize) -> StreamId {
    StreamId(stream as u32 + 1)
}

#[derive(Default)]
struct Stream {
    exists: bool,
    /// Bodies that anybody has seen or that were acknowledged.
    seen: BTreeMap<u64, Vec<u8>>,
    /// What a removal was asked for that may have happened.
    doubtful: BTreeSet<u64>,
    /// What is durably gone.
    gone: BTreeSet<u64>,
    /// When each token was sent, for what expires.
    sent_at: BTreeMap<u64, i64>,
    /// Publishes that nobody has answered.
    in_flight: u64,
    /// Ids that were acknowledged, with their sequences.
    ids: BTreeMap<u64, u64>,
}

#[derive(Default)]
struct Reader {
    exists: bool,
    outstanding: Vec<Delivered>,
    /// Acknowledgements that were sent.
    sent: BTreeSet<u64>,
    confirmed: BTreeSet<u64>,
}

/// What was shown at the end of a life.
#[derive(Default)]
pub struct Shown {
    held: BTreeMap<usize, BTreeSet<u64>>,
    /// Floor and last delivery, for consumers of which only durable things were shown.
    progress: BTreeMap<usize, (u64, u64)>,
}

/// An operation, and what is gone for certain once it is confirmed.
struct Removal {
    stream: usize,
    takes: BTreeSet<u64>,
    done: Arc<Mutex<Option<OpResult>>>,
}

/// A publish that was sent.
struct Sent {
    stream: usize,
    token: u64,
    /// The messages before it of an atomic batch.
    batch: Vec<Vec<u8>>,
    body: Vec<u8>,
}

pub struct World {
    pub chance: SeededEntropy,
    pub now_ns: i64,
    pub shown: Shown,
    streams: [Stream; 4],
    readers: [Reader; 7],
    sent: BTreeMap<u64, Sent>,
    next: u64,
    /// Consumers of the interest stream were deleted in this life, or in it or the one before.
    sweeps: [bool; 2],
    /// Removals that nobody has answered.
    waiting: Vec<Removal>,
    longer_age: bool,
}

fn stream_config(stream: usize, age_s: i64) -> Box<StreamConfig> {
    let config = StreamConfig {
        name: STREAMS[stream].into(),
        subjects: vec![format!("{}.>", STREAMS[stream])],
        retention: match stream {
            QUEUE => RetentionPolicy::Workqueue,
            INTEREST => RetentionPolicy::Interest,
            _ => RetentionPolicy::Limits,
        },
        max_msgs: if stream == QUEUE { KEPT.cast_signed() } else { -1 },
        max_age: if stream == AGING { age_s * SECOND_NS } else { 0 },
        allow_atomic: stream == AGING,
        allow_msg_ttl: stream == TIMED,
        ..StreamConfig::default()
    };
    Box::new(validate::stream_config(config, &Limits::default()).expect("a valid stream"))
}

fn create_consumer(number: usize) -> Op {
    let (stream, name, wants, is_push) = CONSUMERS[number];
    let config = ConsumerConfig {
        name: name.into(),
        durable_name: name.into(),
        ack_policy: AckPolicy::Explicit,
        ack_wait: ACK_WAIT_NS,
        filter_subject: wants
            .map(|which| format!("{}.{which}", STREAMS[stream]))
            .unwrap_or_default(),
        deliver_subject: if is_push { format!("to.{name}") } else { String::new() },
        ..ConsumerConfig::default()
    };
    let stream_name = STREAMS[stream].into();
    let request = CreateConsumerRequest { stream_name, config, ..CreateConsumerRequest::default() };
    Op::CreateConsumer { id: id(stream), request: PreparedConsumer::new(request) }
}

/// Token, number of messages in the batch, number of this one; padding.
fn body_of(token: u64, count: u64, index: u64, pad: u64) -> Vec<u8> {
    let mut body = [token.to_le_bytes(), count.to_le_bytes(), index.to_le_bytes()].concat();
    body.resize(24 + pad as usize, token as u8);
    body
}

fn number_at(body: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(body[8 * at..8 * at + 8].try_into().expect("eight bytes"))
}

/// Which of its two subjects a message of this body is on.
fn subject_of(body: &[u8]) -> u64 {
    // Every second number is that of an answer.
    number_at(body, 0) / 2 % 2
}

fn ttl_s(token: u64) -> i64 {
    1 + (token / 2 % 5).cast_signed()
}

/// The sequence in a positive acknowledgement, and whether it says that it had come before.
fn sequence(answer: &str) -> Option<(u64, bool)> {
    if answer.contains("\"error\"") {
        return None;
    }
    let digits = answer.split("\"seq\":").nth(1)?;
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    Some((digits[..end].parse().ok()?, answer.contains("\"duplicate\"")))
}

impl World {
    pub fn new(seed: u64) -> Self {
        Self {
            chance: SeededEntropy::new(seed),
            now_ns: 1_700_000_000 * SECOND_NS,
            shown: Shown::default(),
            streams: Default::default(),
            readers: Default::default(),
            sent: BTreeMap::new(),
            next: 0,
            sweeps: [false; 2],
            waiting: Vec::new(),
            longer_age: true,
        }
    }

    /// The beginning of a life: whatever is not there is made.
    pub fn begin(&mut self, rig: &mut Rig) {
        self.sweeps = [false, self.sweeps[0]];
        for stream in 0..STREAMS.len() {
            let age_s = AGES_S[usize::from(self.longer_age)];
            if !self.streams[stream].exists {
                let (account, config) = (AccountId::GLOBAL, stream_config(stream, age_s));
                let done = rig.op(Op::CreateStream { id: id(stream), account, config });
                self.streams[stream].exists = matches!(done, Some(Ok(_)));
            }
        }
        (0..CONSUMERS.len()).for_each(|number| self.make_consumer(rig, number));
        self.take_in(rig);
    }

    fn make_consumer(&mut self, rig: &mut Rig, number: usize) {
        if !self.readers[number].exists && self.streams[CONSUMERS[number].0].exists {
            let done = rig.op(create_consumer(number));
            self.readers[number].exists = matches!(done, Some(Ok(_)));
        }
    }

    pub fn step(&mut self, rig: &mut Rig) {
        match self.chance.below(32) {
            0..=1 => rig.pass(self.chance.below(900)),
            2..=7 => self.pull(rig),
            8..=14 => self.acknowledge(rig),
            15 => self.purge(rig),
            16 => self.delete(rig),
            17 if self.chance.below(3) == 0 => self.drop_consumer(rig),
            18 if self.chance.below(2) == 0 => self.change_age(rig),
            19..=20 => self.publish_batch(rig),
            21 => self.publish_again(rig),
            22 => self.rest(rig),
            _ => self.publish(rig),
        }
    }

    pub fn settle(&mut self, rig: &mut Rig) {
        rig.settle();
        self.take_in(rig);
    }

    fn token(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn publish(&mut self, rig: &Rig) {
        let stream = self.chance.below(4) as usize;
        let mut messages = Vec::new();
        for _ in 0..=self.chance.below(4) {
            let token = self.token();
            let body = body_of(token, 1, 0, self.chance.below(300));
            messages.push(self.outgoing(rig, stream, token, body));
        }
        rig.publish(id(stream), &messages);
    }

    /// A message with its token as its id, where ids are asked for again.
    fn outgoing(&mut self, rig: &Rig, stream: usize, token: u64, body: Vec<u8>) -> Outgoing {
        let headers = match stream {
            TIMED => format!("NATS/1.0\r\nNats-TTL: {}s\r\n\r\n", ttl_s(token)),
            QUEUE | AGING => format!("NATS/1.0\r\nNats-Msg-Id: {token}\r\n\r\n"),
            _ => String::new(),
        };
        let answer_to = self.token();
        let subject = format!("{}.{}", STREAMS[stream], subject_of(&body));
        self.streams[stream].in_flight += 1;
        self.streams[stream].sent_at.insert(token, rig.clock.now().0);
        let sent = Sent { stream, token, batch: Vec::new(), body: body.clone() };
        self.sent.insert(answer_to, sent);
        Outgoing { subject, answer_to, headers, body }
    }

    /// The same id again, perhaps twice in one go with a new one.
    fn publish_again(&mut self, rig: &Rig) {
        let stream = if self.chance.below(2) == 0 { QUEUE } else { AGING };
        // The aging stream remembers ids no longer than it keeps messages.
        let known = if stream == QUEUE { &self.streams[stream].ids } else { &BTreeMap::new() };
        let at = self.chance.below(known.len().max(1) as u64) as usize;
        let known = known.iter().nth(at).map(|(&token, &seq)| (token, seq));
        let (token, body) = match known.filter(|_| self.chance.below(2) == 0) {
            Some((token, seq)) => (token, self.streams[stream].seen[&seq].clone()),
            None => {
                let token = self.token();
                (token, body_of(token, 1, 0, 40))
            }
        };
        if body.len() < 24 || number_at(&body, 1) != 1 {
            return;
        }
        let sent_at = self.streams[stream].sent_at.get(&token).copied();
        let messages: Vec<Outgoing> =
            (0..2).map(|_| self.outgoing(rig, stream, token, body.clone())).collect();
        if let Some(at) = sent_at {
            self.streams[stream].sent_at.insert(token, at);
        }
        rig.publish(id(stream), &messages);
    }

    fn publish_batch(&mut self, rig: &Rig) {
        let (token, count) = (self.token(), 2 + self.chance.below(10));
        let (mut messages, mut bodies) = (Vec::new(), Vec::new());
        for index in 0..count {
            let body = body_of(token, count, index, self.chance.below(500));
            let is_last = index + 1 == count;
            let commit = if is_last { "Nats-Batch-Commit: 1\r\n" } else { "" };
            let headers = format!(
                "NATS/1.0\r\nNats-Batch-Id: {token}\r\nNats-Batch-Sequence: {}\r\n{commit}\r\n",
                index + 1
            );
            let subject = format!("A.{}", subject_of(&body));
            messages.push(Outgoing { subject, answer_to: 0, headers, body: body.clone() });
            bodies.push(body);
        }
        let answer_to = self.token();
        messages.last_mut().expect("two at least").answer_to = answer_to;
        let body = bodies.pop().expect("two at least");
        self.streams[AGING].in_flight += count;
        self.streams[AGING].sent_at.insert(token, rig.clock.now().0);
        self.sent.insert(answer_to, Sent { stream: AGING, token, batch: bodies, body });
        rig.publish(id(AGING), &messages);
    }

    fn pull(&mut self, rig: &Rig) {
        let (stream, name, _, is_push) = CONSUMERS[self.chance.below(7) as usize];
        if !is_push {
            rig.pull(id(stream), name, 1 + self.chance.below(5));
        }
    }

    fn acknowledge(&mut self, rig: &Rig) {
        let number = self.chance.below(7) as usize;
        for _ in 0..=self.chance.below(6) {
            let count = self.readers[number].outstanding.len() as u64;
            if count == 0 {
                return;
            }
            let at = self.chance.below(count) as usize;
            let of = self.readers[number].outstanding.swap_remove(at);
            let stream = id(CONSUMERS[number].0);
            match self.chance.below(8) {
                0 => rig.ack(stream, &of, "-NAK", false),
                1 => rig.ack(stream, &of, "+WPI", false),
                what => {
                    self.readers[number].sent.insert(of.seq);
                    let body = if what == 2 { "+TERM" } else { "+ACK" };
                    rig.ack(stream, &of, body, what > 5);
                }
            }
        }
    }

    fn purge(&mut self, rig: &mut Rig) {
        let stream = [QUEUE, INTEREST, TIMED][self.chance.below(3) as usize];
        self.settle(rig);
        let last = self.streams[stream].seen.keys().next_back().copied().unwrap_or(0);
        let request = match self.chance.below(5) {
            0 => PurgeRequest::default(),
            1 => PurgeRequest { filter: format!("{}.1", STREAMS[stream]), ..<_>::default() },
            2 => PurgeRequest { keep: 1 + self.chance.below(4), ..<_>::default() },
            3 => PurgeRequest { seq: last + 2 + self.chance.below(9), ..<_>::default() },
            _ => PurgeRequest { seq: 1 + self.chance.below(last + 1), ..<_>::default() },
        };
        let known = &mut self.streams[stream];
        known.doubtful.extend(known.seen.keys().copied());
        let end = if request.seq == 0 { u64::MAX } else { request.seq };
        let all = request.filter.is_empty();
        let goes = |seq: u64, body: &[u8]| {
            request.keep == 0 && seq < end && (all || subject_of(body) == 1)
        };
        let takes = known.seen.iter().filter(|(seq, body)| goes(**seq, body));
        let takes = takes.map(|(&seq, _)| seq).collect();
        let done = rig.send_op(Op::Purge { id: id(stream), request });
        self.waiting.push(Removal { stream, takes, done });
    }

    fn delete(&mut self, rig: &mut Rig) {
        let stream = [QUEUE, INTEREST, TIMED][self.chance.below(3) as usize];
        self.settle(rig);
        let count = self.streams[stream].seen.len().max(1) as u64;
        let at = self.chance.below(count) as usize;
        let Some(&seq) = self.streams[stream].seen.keys().nth(at) else { return };
        self.streams[stream].doubtful.insert(seq);
        let done = rig.op(Op::DeleteMessage { id: id(stream), seq });
        if matches!(done, Some(Ok(_))) {
            self.streams[stream].gone.insert(seq);
        }
    }

    fn drop_consumer(&mut self, rig: &mut Rig) {
        let number = 2 + self.chance.below(3) as usize;
        let (stream, name, ..) = CONSUMERS[number];
        self.settle(rig);
        let reader = &mut self.readers[number];
        reader.exists = false;
        reader.confirmed.clear();
        reader.outstanding.clear();
        self.sweeps = [true; 2];
        drop(rig.send_op(Op::DeleteConsumer { id: id(stream), name: name.to_owned() }));
        if self.chance.below(2) == 0 {
            self.make_consumer(rig, number);
        }
    }

    fn change_age(&mut self, rig: &Rig) {
        let longer = self.chance.below(2) == 0;
        self.longer_age = longer;
        let config = stream_config(AGING, AGES_S[usize::from(longer)]);
        drop(rig.send_op(Op::UpdateStream { id: id(AGING), config }));
    }

    /// Waits until everything is durable, and notes what is gone then.
    fn rest(&mut self, rig: &mut Rig) {
        for _ in 0..3 {
            rig.pass(300);
        }
        self.take_in(rig);
        let shown: Vec<_> = (0..STREAMS.len()).map(|s| rig.info(id(s))).collect();
        let probe = self.probe(rig);
        for (stream, info) in self.streams.iter_mut().zip(shown).filter(|_| probe) {
            let Some(info) = info else { continue };
            let (held, last) = (held(&info), info.state.last_seq);
            let seen = stream.seen.keys().copied();
            stream.gone.extend(seen.filter(|seq| *seq <= last && !held.contains(seq)));
        }
    }

    /// True if the log still makes things durable.
    fn probe(&mut self, rig: &mut Rig) -> bool {
        let token = self.token();
        let message = self.outgoing(rig, AGING, token, body_of(token, 1, 0, 0));
        rig.publish(id(AGING), &[message]);
        self.settle(rig);
        self.streams[AGING].ids.contains_key(&token)
    }

    /// Takes in what clients have got.
    fn take_in(&mut self, rig: &Rig) {
        let got = rig.take();
        for (number, answer) in got.answers {
            let sent = self.sent.remove(&number).expect("an answer to what was sent");
            self.take_answer(sent, &answer);
        }
        for delivered in got.delivered {
            self.take_delivery(delivered);
        }
        self.waiting.retain(|removal| {
            let done = removal.done.lock().expect("lock");
            if let Some(Ok(_)) = &*done {
                self.streams[removal.stream].gone.extend(&removal.takes);
            }
            done.is_none()
        });
        for (_, consumer, seq) in got.confirmed {
            let number = CONSUMERS.iter().position(|known| known.1 == consumer);
            let number = number.expect("a consumer of ours");
            let reader = &mut self.readers[number];
            if reader.sent.contains(&seq) && reader.exists {
                reader.confirmed.insert(seq);
                if CONSUMERS[number].0 == QUEUE {
                    self.streams[QUEUE].gone.insert(seq);
                }
            }
        }
    }

    fn take_answer(&mut self, sent: Sent, answer: &str) {
        let stream = &mut self.streams[sent.stream];
        if !answer.contains("the outcome is unknown") {
            stream.in_flight -= sent.batch.len() as u64 + 1;
        }
        let Some((last, is_duplicate)) = sequence(answer) else { return };
        if let Some(&seq) = stream.ids.get(&sent.token) {
            assert!(is_duplicate && seq == last, "id {} is not known: {answer}", sent.token);
            return;
        }
        stream.ids.insert(sent.token, last);
        let first = last - sent.batch.len() as u64;
        for (seq, body) in (first..).zip(sent.batch.into_iter().chain([sent.body])) {
            stream.see(seq, &body);
        }
    }

    fn take_delivery(&mut self, delivered: Delivered) {
        let number = CONSUMERS.iter().position(|known| known.1 == delivered.consumer);
        let number = number.expect("a consumer of ours");
        let stream = CONSUMERS[number].0;
        self.streams[stream].see(delivered.seq, &delivered.body);
        let reader = &mut self.readers[number];
        assert!(
            !reader.confirmed.contains(&delivered.seq),
            "{} of {} came again after its confirmed acknowledgement",
            delivered.seq,
            STREAMS[stream]
        );
        reader.outstanding.push(delivered);
    }
}

impl Stream {
    fn see(&mut self, seq: u64, body: &[u8]) {
        let known = self.seen.entry(seq).or_insert_with(|| body.to_vec());
        assert!(known == body, "sequence {seq} was given out twice");
    }

    /// True if what was sent with this token expires within `ms` from `now_ns` on, or has.
    fn expires(&self, number: usize, body: &[u8], now_ns: i64, ms: i64) -> bool {
        let token = number_at(body, 0);
        let sent_at = self.sent_at.get(&token).copied().unwrap_or(now_ns);
        let age_s = match number {
            AGING => AGES_S[0],
            TIMED => ttl_s(token),
            _ => return false,
        };
        sent_at + age_s * SECOND_NS <= now_ns + ms * 1_000_000
    }
}
