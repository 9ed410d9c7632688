//! A stream, a log and a sink in memory, as plain as they can be.

use crate::consumer::{Ack, Consumer, FlowReply, Pull, TickOutcome};
use crate::index::{MessageIndex, MessageMeta};
use crate::sink::{AccountId, Delivery, Message, Sink};
use bytes::Bytes;
use nuthatch_log::{
    AppendError, Appended, LogAccess, Lsn, Read, RecordKind, RecordRef, Seq, Space, StoredMessage,
    StreamId, Timestamp, Urgency,
};
use nuthatch_protocol::js::{
    ConsumerConfig, ConsumerInfo, CreateConsumerRequest, RetentionPolicy, StreamConfig,
};
use nuthatch_protocol::subject;
use std::collections::{BTreeMap, HashSet};

pub const SECOND: i64 = 1_000_000_000;
pub const START: i64 = 1_700_000_000 * SECOND;

/// A stored message.
pub struct Stored {
    pub subject: u32,
    pub body: Bytes,
    pub at: i64,
}

/// The stream: everything the index trait asks for, by the dullest means.
#[derive(Default)]
pub struct Stream {
    pub messages: BTreeMap<u64, Stored>,
    pub last: u64,
    pub names: Vec<(String, u32)>,
    pub journal: Vec<(u64, u32)>,
    /// Entries before this one have been forgotten.
    pub journal_start: usize,
    /// Give a subject's id to another one as soon as its last message is gone.
    pub reuse_ids: bool,
}

impl Stream {
    pub fn publish(&mut self, name: &str, body: &[u8], at: i64) -> u64 {
        let subject = self.intern(name);
        self.last += 1;
        let body = Bytes::copy_from_slice(body);
        self.messages.insert(self.last, Stored { subject, body, at });
        self.last
    }

    fn intern(&mut self, name: &str) -> u32 {
        if let Some(at) = self.names.iter().position(|(known, _)| known == name) {
            return at as u32;
        }
        let used: HashSet<u32> = self.messages.values().map(|stored| stored.subject).collect();
        let free = (0..self.names.len() as u32).find(|id| self.reuse_ids && !used.contains(id));
        match free {
            Some(id) => {
                let slot = &mut self.names[id as usize];
                *slot = (name.to_owned(), slot.1 + 1);
                id
            }
            None => {
                self.names.push((name.to_owned(), 0));
                self.names.len() as u32 - 1
            }
        }
    }

    pub fn remove(&mut self, seq: u64) -> bool {
        let Some(stored) = self.messages.remove(&seq) else { return false };
        self.journal.push((seq, stored.subject));
        true
    }

    pub fn matching(&self, filters: &[&str], from: u64) -> Vec<u64> {
        let matches = |stored: &Stored| {
            let name = self.names[stored.subject as usize].0.as_bytes();
            filters.is_empty() || filters.iter().any(|f| subject::matches(f.as_bytes(), name))
        };
        self.messages.range(from..).filter(|(_, s)| matches(s)).map(|(&seq, _)| seq).collect()
    }
}

impl MessageIndex for Stream {
    fn first(&self) -> Seq {
        Seq(self.messages.keys().next().copied().unwrap_or(self.last + 1))
    }
    fn last(&self) -> Seq {
        Seq(self.last)
    }
    fn get(&self, seq: Seq) -> Option<MessageMeta> {
        let stored = self.messages.get(&seq.0)?;
        let bytes = stored.body.len() as u32;
        Some(MessageMeta { subject: stored.subject, bytes, timestamp: Timestamp(stored.at) })
    }
    fn next_live(&self, from: Seq) -> Option<Seq> {
        self.messages.range(from.0..).next().map(|(&seq, _)| Seq(seq))
    }
    fn live_after(&self, after: Seq) -> u64 {
        self.messages.range(after.0 + 1..).count() as u64
    }
    fn seq_at(&self, at: Timestamp) -> Seq {
        let found = self.messages.iter().find(|(_, stored)| stored.at >= at.0);
        Seq(found.map_or(self.last + 1, |(&seq, _)| seq))
    }
    fn subject(&self, id: u32) -> &[u8] {
        self.names[id as usize].0.as_bytes()
    }
    fn subject_generation(&self, id: u32) -> u32 {
        self.names[id as usize].1
    }
    fn for_each_subject(&self, pattern: &[u8], visit: &mut dyn FnMut(u32, u64, Seq, Seq)) {
        for (id, (name, _)) in self.names.iter().enumerate() {
            let mut seqs =
                self.messages.iter().filter(|(_, s)| s.subject == id as u32).map(|(&seq, _)| seq);
            if !subject::matches(pattern, name.as_bytes()) {
                continue;
            }
            if let Some(first) = seqs.next() {
                let (count, last) = seqs.fold((1, first), |(count, _), seq| (count + 1, seq));
                visit(id as u32, count, Seq(first), Seq(last));
            }
        }
    }
    fn removed_since(&self, cursor: u64) -> Option<Box<dyn Iterator<Item = (Seq, u32)> + '_>> {
        let from = usize::try_from(cursor).ok().filter(|&from| from >= self.journal_start)?;
        Some(Box::new(self.journal[from..].iter().map(|&(seq, subject)| (Seq(seq), subject))))
    }
    fn removal_cursor(&self) -> u64 {
        self.journal.len() as u64
    }
}

/// The log: time, randomness, and the records that were appended.
pub struct Log {
    pub now: i64,
    pub random: u64,
    pub reads: BTreeMap<u64, (Vec<u8>, Vec<u8>, Bytes, i64)>,
    /// Bodies that are not in memory yet.
    pub loading: HashSet<u64>,
    /// Bodies that cannot be read.
    pub damaged: HashSet<u64>,
    pub records: Vec<(Lsn, Urgency, Vec<u8>)>,
    pub next_lsn: u64,
    pub committed: u64,
}

impl LogAccess for Log {
    fn now(&self) -> Timestamp {
        Timestamp(self.now)
    }
    fn entropy(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.random >> 8
    }
    fn append(
        &mut self,
        record: &RecordRef<'_>,
        urgency: Urgency,
        privileged: bool,
    ) -> Result<Appended, AppendError> {
        assert_eq!((record.kind, privileged), (RecordKind::ConsumerState, true));
        self.next_lsn += 1;
        self.records.push((Lsn(self.next_lsn), urgency, record.body.to_vec()));
        Ok(Appended { lsn: Lsn(self.next_lsn) })
    }
    fn flush_soon(&mut self) {}
    fn committed(&self) -> Lsn {
        Lsn(self.committed)
    }
    fn read(&mut self, stream: StreamId, seq: Seq) -> Read<'_> {
        if self.loading.contains(&seq.0) {
            return Read::Pending;
        }
        if self.damaged.contains(&seq.0) {
            return Read::Damaged;
        }
        let Some((subject, headers, body, at)) = self.reads.get(&seq.0) else {
            return Read::Missing;
        };
        let record = RecordRef {
            kind: RecordKind::Message,
            stream,
            seq,
            timestamp: Timestamp(*at),
            subject,
            headers,
            body,
        };
        Read::Ready(StoredMessage { record, owner: body })
    }
    fn dead(&mut self, _stream: StreamId, _seq: Seq, _weight: usize) {}
    fn space(&self) -> Space {
        Space::Normal
    }
}

/// A delivery, taken apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delivered {
    pub to: String,
    pub subject: String,
    pub headers: Vec<u8>,
    pub body: Vec<u8>,
    pub delivered: u64,
    pub stream_seq: u64,
    pub consumer_seq: u64,
    pub at: i64,
    pub pending: u64,
}

/// Everything that went out.
#[derive(Default)]
pub struct Outbox {
    pub listening: HashSet<String>,
    pub slow: HashSet<String>,
    pub deliveries: Vec<Delivered>,
    /// Subject, reply, headers, body.
    pub messages: Vec<(String, String, String, String)>,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Sink for Outbox {
    type Peer = ();
    type Target = String;

    fn reply(&mut self, account: AccountId, _: &(), _: u32, message: &Message<'_>) {
        self.publish(account, message);
    }
    fn publish(&mut self, _: AccountId, message: &Message<'_>) {
        let parts = [message.subject, message.reply, message.headers, message.body].map(text);
        let [subject, reply, headers, body] = parts;
        self.messages.push((subject, reply, headers, body));
    }
    fn resolve(&mut self, _: AccountId, subject: &[u8], _: &[u8]) -> Option<String> {
        Some(text(subject)).filter(|subject| self.listening.contains(subject))
    }
    fn refresh(&mut self, target: &mut String) -> bool {
        self.listening.contains(target)
    }
    fn ready(&mut self, target: &String) -> bool {
        !self.slow.contains(target)
    }
    fn deliver(&mut self, target: &mut String, delivery: &Delivery<'_>) -> bool {
        if !self.listening.contains(target) {
            return false;
        }
        let reply = text(delivery.reply);
        let numbers: Vec<i64> =
            reply.split('.').skip(4).map(|token| token.parse().expect("a number")).collect();
        assert!(reply.starts_with("$JS.ACK.S.") && numbers.len() == 5, "{reply}");
        self.deliveries.push(Delivered {
            to: target.clone(),
            subject: text(delivery.subject),
            headers: delivery.headers.to_vec(),
            body: delivery.body.to_vec(),
            delivered: numbers[0] as u64,
            stream_seq: numbers[1] as u64,
            consumer_seq: numbers[2] as u64,
            at: numbers[3],
            pending: numbers[4] as u64,
        });
        true
    }
    fn flush(&mut self) {}
}

/// A consumer in its surroundings.
pub struct Rig {
    pub stream: Stream,
    pub log: Log,
    pub outbox: Outbox,
    pub config: StreamConfig,
    pub consumer: Option<Consumer<String>>,
    pub released: Vec<Seq>,
}

/// Borrows the surroundings apart from the consumer.
macro_rules! env {
    ($rig:expr) => {
        $crate::consumer::Env {
            index: &$rig.stream,
            log: &mut $rig.log,
            sink: &mut $rig.outbox,
            account: $crate::sink::AccountId::GLOBAL,
            stream: nuthatch_log::StreamId(1),
            stream_name: "S",
            domain: "",
            released: Some(&mut $rig.released),
        }
    };
}

impl Rig {
    pub fn new() -> Self {
        let log = Log {
            now: START,
            random: 1,
            reads: BTreeMap::new(),
            loading: HashSet::new(),
            damaged: HashSet::new(),
            records: Vec::new(),
            next_lsn: 0,
            committed: 0,
        };
        Self {
            stream: Stream::default(),
            log,
            outbox: Outbox::default(),
            config: StreamConfig {
                name: "S".into(),
                subjects: ["a", "b", "c", "k.>", "x.>", "other", "rare"].map(String::from).into(),
                num_replicas: 1,
                ..StreamConfig::default()
            },
            consumer: None,
            released: Vec::new(),
        }
    }

    /// With messages on these subjects, a millisecond apart.
    pub fn with(subjects: &[&str]) -> Self {
        let mut rig = Self::new();
        for subject in subjects {
            rig.publish(subject);
        }
        rig
    }

    pub fn retention(mut self, retention: RetentionPolicy) -> Self {
        self.config.retention = retention;
        self
    }

    pub fn publish(&mut self, subject: &str) -> u64 {
        let body = format!("m{}", self.stream.last + 1);
        self.publish_with(subject, b"", body.as_bytes())
    }

    pub fn publish_with(&mut self, subject: &str, headers: &[u8], body: &[u8]) -> u64 {
        self.log.now += 1_000_000;
        let at = self.log.now;
        let seq = self.stream.publish(subject, body, at);
        let body = Bytes::copy_from_slice(body);
        self.log.reads.insert(seq, (subject.as_bytes().to_vec(), headers.to_vec(), body, at));
        seq
    }

    /// Creates the consumer from what is different from the defaults.
    pub fn create(&mut self, change: impl FnOnce(&mut ConsumerConfig)) {
        let mut request = CreateConsumerRequest::default();
        request.config.durable_name = "C".into();
        request.config.ack_policy = nuthatch_protocol::js::AckPolicy::Explicit;
        change(&mut request.config);
        let config = crate::consumer::validate_consumer(&request, &self.config, &<_>::default())
            .expect("a valid configuration");
        let mut env = env!(self);
        let filter = crate::consumer::Filter::new(&config);
        self.consumer = Some(Consumer::create(config, filter, &self.config, &mut env));
    }

    pub fn consumer(&mut self) -> &mut Consumer<String> {
        self.consumer.as_mut().expect("created")
    }

    pub fn listen(&mut self, subject: &str) {
        self.outbox.listening.insert(subject.to_owned());
        let mut env = env!(self);
        if let Some(consumer) = &mut self.consumer {
            consumer.interest_changed(&mut env);
        }
    }

    pub fn pump(&mut self) {
        let mut env = env!(self);
        self.consumer.as_mut().expect("created").pump(&mut env);
    }

    pub fn pull_quietly(&mut self, inbox: &str, body: &str) {
        self.outbox.listening.insert(inbox.to_owned());
        let mut env = env!(self);
        let pull = Pull { reply: inbox.as_bytes(), body: body.as_bytes() };
        self.consumer.as_mut().expect("created").pull(&mut env, &pull);
    }

    /// A pull request and what it leads to at once.
    pub fn pull(&mut self, inbox: &str, body: &str) -> Vec<Delivered> {
        self.pull_quietly(inbox, body);
        self.pump();
        self.take()
    }

    /// Stream sequences of a pull's deliveries.
    pub fn pull_seqs(&mut self, body: &str) -> Vec<u64> {
        self.pull("in", body).iter().map(|delivered| delivered.stream_seq).collect()
    }

    pub fn ack_with(&mut self, delivered: &Delivered, body: &str, reply: &str) {
        let mut env = env!(self);
        let ack = Ack {
            delivered: delivered.delivered,
            stream_seq: Seq(delivered.stream_seq),
            consumer_seq: delivered.consumer_seq,
            reply: reply.as_bytes(),
            body: body.as_bytes(),
        };
        self.consumer.as_mut().expect("created").ack(&mut env, &ack);
    }

    /// An answer to a flow control request, and what it leads to at once.
    pub fn answer_flow(&mut self, subject: &str, headers: &str) -> Vec<Delivered> {
        let mut env = env!(self);
        let reply = FlowReply { subject: subject.as_bytes(), headers: headers.as_bytes() };
        self.consumer.as_mut().expect("created").flow_response(&mut env, &reply);
        self.pump();
        self.take()
    }

    pub fn ack(&mut self, delivered: &Delivered) {
        self.ack_with(delivered, "", "");
    }

    /// Lets time pass, ticking when the consumer wants it.
    pub fn pass(&mut self, nanos: i64) -> TickOutcome {
        let end = self.log.now + nanos;
        loop {
            let next = self.consumer().next_deadline().map_or(i64::MAX, |at| at.0);
            if next > end {
                self.log.now = end;
                return TickOutcome::Keep;
            }
            self.log.now = self.log.now.max(next);
            let mut env = env!(self);
            let outcome = self.consumer.as_mut().expect("created").tick(&mut env);
            if outcome == TickOutcome::Expired {
                return outcome;
            }
        }
    }

    pub fn take(&mut self) -> Vec<Delivered> {
        std::mem::take(&mut self.outbox.deliveries)
    }

    /// Status lines published since the last call, with their subject.
    pub fn statuses(&mut self) -> Vec<(String, String)> {
        let messages = std::mem::take(&mut self.outbox.messages);
        let line = |headers: &str| headers.split("\r\n").next().unwrap_or("").to_owned();
        messages.iter().map(|message| (message.0.clone(), line(&message.2))).collect()
    }

    pub fn info(&mut self) -> ConsumerInfo {
        let mut env = env!(self);
        self.consumer.as_mut().expect("created").info(&mut env)
    }

    /// Logs what is to be logged and commits it.
    pub fn commit(&mut self) {
        let env = env!(self);
        let consumer = self.consumer.as_mut().expect("created");
        if let Some(urgency) = consumer.needs_log() {
            consumer.log_state(env.stream, env.log, urgency).expect("appended");
        }
        self.log.committed = self.log.next_lsn;
        let lsn = Lsn(self.log.committed);
        let mut env = env!(self);
        self.consumer.as_mut().expect("created").committed(&mut env, lsn);
    }

    /// Kills the server: what was not committed is gone.
    pub fn restart(&mut self, created: &[u8]) {
        let mut consumer = Consumer::decode(created).expect("decodes");
        for (lsn, _, body) in &self.log.records {
            if lsn.0 <= self.log.committed {
                consumer.apply_state(body).expect("applies");
            }
        }
        self.log.records.retain(|(lsn, _, _)| lsn.0 <= self.log.committed);
        self.outbox = Outbox::default();
        let mut env = env!(self);
        consumer.recovered(&self.config, &mut env);
        self.consumer = Some(consumer);
    }

    pub fn encoded(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        self.consumer().encode(&mut out);
        out
    }
}
