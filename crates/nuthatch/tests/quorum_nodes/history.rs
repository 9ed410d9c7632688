//! The history of a stream while something is done to its cluster: one client publishes, another one reads all of it by a
//! durable consumer and acknowledges, both at nodes that stay. In the end it is compared with what the stream has.

use super::publishing::Load;
use super::{ANSWER, Node, Nodes};
use crate::support::{TIMEOUT, position};
use nuthatch_client::{Client, OwnedMessage, TransportError};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What the publisher's messages are published to; the stream may have others.
const SUBJECT: &str = "Q.load";

/// The durable consumer of the stream.
const CONSUMER: &str = "H";

/// Messages of one pull.
const BATCH: usize = 100;

/// How long a pull waits for messages. Its end is told by then, or the client asks anew a second later.
const EXPIRES: Duration = Duration::from_millis(500);

/// Pause between two messages, and before a client asks anew where nobody has answered.
const PAUSE: Duration = Duration::from_millis(2);
const UNHEARD_PAUSE: Duration = Duration::from_millis(50);

/// What clients of the stream `Q` have seen.
pub struct History {
    /// What a message's number has before it, as its body and id.
    prefix: String,
    /// Sequences that were told for the publisher's messages, in the order of acknowledgement: the number is the place.
    acked: Vec<u64>,
    seen: Seen,
}

/// What the reader has seen.
#[derive(Default)]
struct Seen {
    /// The bodies that were delivered under each sequence.
    delivered: BTreeMap<u64, BTreeSet<String>>,
    /// Acknowledgements that were confirmed.
    confirmed: BTreeSet<u64>,
    /// Acknowledgements that were not confirmed at once, and were sent again.
    repeated: u64,
    /// Deliveries of what had been delivered before.
    redelivered: u64,
    /// How pulls ended, other than by a batch or its end of time.
    ended: BTreeMap<String, u64>,
}

/// How far it is.
pub struct Progress<'a> {
    acked: &'a AtomicU64,
    read: &'a AtomicU64,
    has_ended: &'a AtomicBool,
}

impl Progress<'_> {
    /// Waits until so many more were acknowledged, and something was read.
    pub fn more(&self, count: u64) {
        let now = |of: &AtomicU64| of.load(Ordering::Acquire);
        let (acked, read) = (now(self.acked) + count, now(self.read) + 1);
        let deadline = Instant::now() + 3 * TIMEOUT;
        while now(self.acked) < acked || now(self.read) < read {
            assert!(!self.has_ended.load(Ordering::Acquire), "a client has failed");
            assert!(Instant::now() < deadline, "nothing is acknowledged or read any more");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Sets a mark when it goes, also when a thread fails.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl History {
    /// Begins with the creation of the consumer, at a client of the account that has the stream.
    pub fn begin(client: &mut Client, prefix: &str) -> Self {
        let config = json!({"durable_name": CONSUMER, "ack_policy": "explicit", "num_replicas": 3});
        let body = json!({"stream_name": "Q", "config": config}).to_string();
        let call = format!("$JS.API.CONSUMER.DURABLE.CREATE.Q.{CONSUMER}");
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let asked = client.request(&call, b"", body.as_bytes(), ANSWER);
            let told = asked.map(|answer| String::from_utf8_lossy(&answer.payload).into_owned());
            if told.as_ref().is_ok_and(|told| !told.contains("\"error\"")) {
                return Self { prefix: prefix.to_owned(), acked: vec![], seen: Seen::default() };
            }
            assert!(Instant::now() < deadline, "the consumer is not created: {told:?}");
            std::thread::sleep(UNHEARD_PAUSE);
        }
    }

    /// How many messages were acknowledged in all.
    pub fn acked(&self) -> u64 {
        self.acked.len() as u64
    }

    /// Publishes and reads at a node that stays while something is done; what became of the messages, and what that gave.
    pub fn during<T>(
        &mut self,
        (mut publisher, reader): (Client, Client),
        what: impl FnOnce(&Progress<'_>) -> T,
    ) -> (Load, T) {
        let (ends, has_ended) = (AtomicBool::new(false), AtomicBool::new(false));
        let (acked, read) = (AtomicU64::new(0), AtomicU64::new(0));
        let Self { prefix, acked: sequences, seen } = self;
        let (load, done) = std::thread::scope(|scope| {
            let stop = SetAtEnd(&ends);
            let publishing = scope.spawn(|| {
                let _told = SetAtEnd(&has_ended);
                let (mut load, deadline) = (Load::default(), Instant::now() + 4 * TIMEOUT);
                while !ends.load(Ordering::Acquire) {
                    let id = format!("{prefix}{}", sequences.len());
                    sequences.push(load.publish(&mut publisher, (SUBJECT, &id, &id), deadline));
                    acked.fetch_add(1, Ordering::AcqRel);
                    std::thread::sleep(PAUSE);
                }
                load
            });
            let reading = scope.spawn(|| {
                let _told = SetAtEnd(&has_ended);
                let mut reader = Reader::new(reader, seen);
                while !ends.load(Ordering::Acquire) {
                    read.fetch_add(reader.turn(), Ordering::AcqRel);
                }
            });
            let done = what(&Progress { acked: &acked, read: &read, has_ended: &has_ended });
            drop(stop);
            reading.join().expect("the reader reads");
            (publishing.join().expect("all are acknowledged"), done)
        });
        println!("{load:?}; {}", self.told());
        (load, done)
    }

    fn told(&self) -> String {
        let Seen { delivered, confirmed, repeated, redelivered, ended } = &self.seen;
        format!(
            "delivered {}, redelivered {redelivered}, confirmed {}, acks repeated {repeated}, pulls ended {ended:?}",
            delivered.len(),
            confirmed.len()
        )
    }

    /// Reads what is left and looks whether the history is right:
    ///
    /// - each message that was acknowledged is in the stream once, at the sequence that was told, in the order of the publisher,
    ///   and no other one of the publisher is;
    /// - each message of the stream was delivered, as what it is, and its acknowledgement confirmed;
    /// - nothing was delivered that is not in the stream;
    /// - the consumer knows all that.
    pub fn expect_right(&mut self, nodes: &Nodes, at: &Node, user: &str) {
        let last = self.read_to_end(at, user);
        let text = |message: &OwnedMessage| String::from_utf8_lossy(&message.payload).into_owned();
        let stream = nodes.read_all("Q");
        let own = stream.iter().filter(|(_, message)| message.subject == SUBJECT);
        let own: Vec<(u64, String)> = own.map(|(seq, message)| (*seq, text(message))).collect();
        let told = self.acked.iter().enumerate();
        let told: Vec<_> = told.map(|(at, seq)| (*seq, format!("{}{at}", self.prefix))).collect();
        assert_eq!(own.len(), told.len(), "messages in the stream, and those acknowledged");
        if let Some((there, told)) = own.iter().zip(&told).find(|(there, told)| there != told) {
            panic!("{there:?} is in the stream where {told:?} was acknowledged");
        }
        let all: BTreeMap<u64, BTreeSet<String>> =
            stream.iter().map(|(seq, message)| (*seq, BTreeSet::from([text(message)]))).collect();
        assert_eq!(all.len(), stream.len(), "each sequence is there once");
        let differs = |seq: &&u64| all.get(*seq) != self.seen.delivered.get(*seq);
        if let Some(seq) = all.keys().chain(self.seen.delivered.keys()).find(differs) {
            let (there, delivered) = (all.get(seq), self.seen.delivered.get(seq));
            panic!("at {seq} the stream has {there:?}, and {delivered:?} was delivered");
        }
        let unconfirmed = all.keys().find(|seq| !self.seen.confirmed.contains(seq));
        assert_eq!(unconfirmed, None, "delivered and not acknowledged");
        assert_eq!(all.keys().next_back(), Some(&last), "the consumer has come to the end");
        println!("{} messages: {}", all.len(), self.told());
    }

    /// Reads until the consumer says that nothing is left, nor out; up to which sequence all is acknowledged then.
    fn read_to_end(&mut self, at: &Node, user: &str) -> u64 {
        let mut asking = at.client(user);
        let mut reader = Reader::new(at.client(user), &mut self.seen);
        let deadline = Instant::now() + 2 * TIMEOUT;
        let call = format!("$JS.API.CONSUMER.INFO.Q.{CONSUMER}");
        loop {
            reader.turn();
            let asked = asking.request(&call, b"", b"", ANSWER);
            let info = asked.ok().and_then(|told| serde_json::from_slice(&told.payload).ok());
            let info: Value = info.unwrap_or_default();
            if info["num_pending"] == 0 && info["num_ack_pending"] == 0 {
                return info["ack_floor"]["stream_seq"].as_u64().expect("a sequence");
            }
            assert!(Instant::now() < deadline, "the consumer does not come to the end: {info}");
        }
    }
}

/// A client that pulls and acknowledges.
struct Reader<'a> {
    client: Client,
    pulls: String,
    acks: String,
    /// Where the acknowledgement of each message goes that is not confirmed.
    open: BTreeMap<u64, String>,
    seen: &'a mut Seen,
}

/// What a message says to who reads.
enum Told {
    Delivered,
    Confirmed,
    Ended,
    Other,
}

impl<'a> Reader<'a> {
    fn new(mut client: Client, seen: &'a mut Seen) -> Self {
        let (pulls, acks) = (format!("{}.p", client.inbox()), format!("{}.a", client.inbox()));
        client.subscribe(&pulls, "").expect("subscribed");
        client.subscribe(&format!("{acks}.*"), "").expect("subscribed");
        Self { client, pulls, acks, open: BTreeMap::new(), seen }
    }

    /// Pulls once, and acknowledges what came; how many messages these were.
    fn turn(&mut self) -> u64 {
        let expires = u64::try_from(EXPIRES.as_nanos()).expect("small");
        let body = json!({"batch": BATCH, "expires": expires}).to_string();
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.Q.{CONSUMER}");
        let writer = &mut self.client.writer;
        writer
            .publish(subject.as_bytes(), self.pulls.as_bytes(), b"", body.as_bytes())
            .expect("sent");
        let deadline = Instant::now() + EXPIRES + Duration::from_secs(1);
        let mut count = 0;
        while count < BATCH {
            match self.next(deadline) {
                None | Some(Told::Ended) => break,
                Some(Told::Delivered) => count += 1,
                Some(_) => {}
            }
        }
        if count == 0 {
            std::thread::sleep(UNHEARD_PAUSE);
        }
        self.acknowledge();
        count as u64
    }

    /// Acknowledges what is open until all of it is confirmed, or a moment has passed: the next turn does it again.
    fn acknowledge(&mut self) {
        for (seq, subject) in &self.open {
            let reply = format!("{}.{seq}", self.acks);
            let writer = &mut self.client.writer;
            writer.publish(subject.as_bytes(), reply.as_bytes(), b"", b"+ACK").expect("sent");
        }
        let deadline = Instant::now() + ANSWER;
        while !self.open.is_empty() && self.next(deadline).is_some() {}
        self.seen.repeated += self.open.len() as u64;
    }

    /// What comes next; none: nothing by then.
    fn next(&mut self, deadline: Instant) -> Option<Told> {
        let message = match self.client.next_message(deadline) {
            Ok(message) => message,
            Err(TransportError::TimedOut(_)) => return None,
            Err(error) => panic!("the reader's connection: {error}"),
        };
        let is_status = message.view().status().is_some();
        if let Some(seq) = message.subject.strip_prefix(&format!("{}.", self.acks)) {
            let seq: u64 = seq.parse().expect("a number");
            if !is_status && message.payload.is_empty() {
                self.open.remove(&seq);
                self.seen.confirmed.insert(seq);
                return Some(Told::Confirmed);
            }
            let said = String::from_utf8_lossy(&message.payload).into_owned();
            let said = format!("ack: {:?} {said}", message.view().status());
            *self.seen.ended.entry(said).or_default() += 1;
            return Some(Told::Other);
        }
        if message.subject == self.pulls {
            let said = String::from_utf8_lossy(&message.headers).into_owned();
            let said = said.lines().next().unwrap_or_default().to_owned();
            *self.seen.ended.entry(said).or_default() += 1;
            return Some(Told::Ended);
        }
        self.deliver(&message);
        Some(Told::Delivered)
    }

    fn deliver(&mut self, message: &OwnedMessage) {
        let reply = message.reply.clone().expect("delivered messages carry an ack subject");
        let seq = position(&reply).stream_seq;
        let body = String::from_utf8_lossy(&message.payload).into_owned();
        let bodies = self.seen.delivered.entry(seq).or_default();
        self.seen.redelivered += u64::from(!bodies.is_empty());
        bodies.insert(body);
        self.open.insert(seq, reply);
    }
}
