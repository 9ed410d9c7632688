//! Nuthatch and NATS JetStream with the lean client: a file stream and one durable pull consumer
//! with explicit acks, shared by all receivers.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use nuthatch_protocol::wire::write::push_u64;
use serde_json::{Value, json};

use super::{Guarantee, Queue, QueueError, QueueSpec, Receiver, Sender, Source, failed};
use crate::harness::BenchError;
use crate::scale::requests;
use nuthatch_client::js::{self, JsError, PubAck, STREAM_NOT_FOUND};
use nuthatch_client::{Client, ConnectOptions, Event, Message, TransportError};

const DRIVER: &str = "nats";

/// Limit for every answer of the server.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The durable consumer that all receivers share.
const CONSUMER: &str = "bench";

/// Unacknowledged deliveries allowed over all receivers.
const MAX_ACK_PENDING: u64 = 100_000;

/// How long the server keeps a pull open.
const PULL_EXPIRES: Duration = Duration::from_secs(30);

/// A stream with its consumer.
pub struct NatsQueue {
    options: ConnectOptions,
    name: String,
    replicas: u64,
    storage: String,
    fsync: String,
    streams: u64,
}

impl NatsQueue {
    /// Settings: `replicas`, `storage` (`file` or `memory`), `fsync`, a text for the report, and
    /// `streams`, over which messages are spread in turn: with more than one there is no consumer.
    ///
    /// # Errors
    /// When the address or a setting makes no sense.
    pub fn new(spec: &QueueSpec) -> Result<Self, QueueError> {
        let mut options =
            ConnectOptions::new(&spec.url).map_err(failed(DRIVER, "read the address"))?;
        options.timeout = TIMEOUT;
        Ok(Self {
            options,
            name: spec.name.clone(),
            replicas: spec.number("replicas", 1)?,
            storage: spec.settings.get("storage").map_or("file", String::as_str).to_owned(),
            fsync: spec.stated_fsync(),
            streams: spec.number("streams", 1)?.max(1),
        })
    }

    /// Makes many streams, and empties those that were there.
    fn prepare_many(&self) -> Result<(), BenchError> {
        let mut client = Client::connect(&self.options)?;
        let (name, storage) = (&self.name, &self.storage);
        requests(&mut client, self.streams, TIMEOUT, |number, subject, body| {
            subject.extend_from_slice(format!("$JS.API.STREAM.CREATE.{name}-{number}").as_bytes());
            let config = json!({
                "name": format!("{name}-{number}"), "subjects": [format!("{name}.{number}.msg")],
                "storage": storage, "num_replicas": self.replicas,
            });
            body.extend_from_slice(config.to_string().as_bytes());
        })?;
        requests(&mut client, self.streams, TIMEOUT, |number, subject, _| {
            subject.extend_from_slice(format!("$JS.API.STREAM.PURGE.{name}-{number}").as_bytes());
        })
    }

    fn connect(&self) -> Result<Client, QueueError> {
        Client::connect(&self.options).map_err(failed(DRIVER, "connect"))
    }

    fn subject(&self) -> String {
        format!("{}.msg", self.name)
    }
}

impl Queue for NatsQueue {
    fn guarantee(&self) -> Result<Guarantee, QueueError> {
        let replicated = match self.replicas {
            0 | 1 => "no".to_owned(),
            replicas => format!("majority of {replicas}"),
        };
        Ok(Guarantee { replicated, fsync: self.fsync.clone(), source: Source::Configured })
    }

    fn streams(&self) -> u64 {
        self.streams
    }

    fn prepare(&self) -> Result<(), QueueError> {
        if self.streams > 1 {
            return self.prepare_many().map_err(failed(DRIVER, "create the streams"));
        }
        let mut client = self.connect()?;
        let name = &self.name;
        match js::api(&mut client, &format!("STREAM.DELETE.{name}"), &Value::Null, TIMEOUT) {
            Err(JsError::Api(err)) if err.err_code == STREAM_NOT_FOUND => {}
            result => drop(result.map_err(failed(DRIVER, "delete the old stream"))?),
        }
        let stream = json!({
            "name": name, "subjects": [self.subject()], "storage": self.storage,
            "retention": "limits", "discard": "old", "num_replicas": self.replicas,
        });
        js::api(&mut client, &format!("STREAM.CREATE.{name}"), &stream, TIMEOUT)
            .map_err(failed(DRIVER, "create the stream"))?;
        let consumer = json!({ "stream_name": name, "config": {
            "name": CONSUMER, "durable_name": CONSUMER, "deliver_policy": "all",
            "ack_policy": "explicit", "max_ack_pending": MAX_ACK_PENDING,
            "replay_policy": "instant",
        }});
        js::api(&mut client, &format!("CONSUMER.CREATE.{name}.{CONSUMER}"), &consumer, TIMEOUT)
            .map_err(failed(DRIVER, "create the consumer"))?;
        Ok(())
    }

    fn sender(&self, _index: usize) -> Result<Box<dyn Sender>, QueueError> {
        let mut client = self.connect()?;
        let prefix = format!("{}.p.", client.inbox());
        client
            .subscribe(&format!("{prefix}*"), "")
            .and_then(|_| client.round_trip(TIMEOUT))
            .map_err(failed(DRIVER, "subscribe"))?;
        Ok(Box::new(NatsSender {
            client,
            name: self.name.clone(),
            streams: self.streams,
            stream: self.name.clone(),
            subject: self.subject().into_bytes(),
            prefix: prefix.into_bytes(),
            next: 0,
        }))
    }

    fn receiver(&self, _index: usize) -> Result<Box<dyn Receiver>, QueueError> {
        let mut client = self.connect()?;
        let inbox = format!("{}.d", client.inbox());
        client
            .subscribe(&inbox, "")
            .and_then(|_| client.round_trip(TIMEOUT))
            .map_err(failed(DRIVER, "subscribe"))?;
        Ok(Box::new(NatsReceiver {
            client,
            subject: format!("$JS.API.CONSUMER.MSG.NEXT.{}.{CONSUMER}", self.name).into_bytes(),
            inbox: inbox.into_bytes(),
            open: 0,
            to_ack: Vec::new(),
            ends: Vec::new(),
        }))
    }
}

struct NatsSender {
    client: Client,
    name: String,
    streams: u64,
    /// The stream of the ack that is due.
    stream: String,
    subject: Vec<u8>,
    /// Reply subject up to the token.
    prefix: Vec<u8>,
    /// Token of the next message.
    next: u64,
}

impl NatsSender {
    fn publish(&mut self, batch: &[&[u8]]) -> Result<(), TransportError> {
        let prefix_len = self.prefix.len();
        for body in batch {
            if self.streams > 1 {
                self.subject.truncate(self.name.len() + 1);
                push_u64(&mut self.subject, self.next % self.streams);
                self.subject.extend_from_slice(b".msg");
            }
            push_u64(&mut self.prefix, self.next);
            self.next += 1;
            self.client.writer.publish(&self.subject, &self.prefix, b"", body)?;
            self.prefix.truncate(prefix_len);
        }
        self.client.writer.flush()
    }

    /// Reads acks until `due` is the next token to be acknowledged.
    fn await_acks(&mut self, mut due: u64) -> Result<(), TransportError> {
        while due < self.next {
            let Some(event) = self.client.reader.next_buffered()? else {
                self.client.reader.fill(TIMEOUT)?;
                continue;
            };
            match event {
                Event::Message(ack) => {
                    if self.streams > 1 {
                        let number = due % self.streams;
                        self.stream.clear();
                        // Writing to a string cannot fail.
                        let _ = write!(self.stream, "{}-{number}", self.name);
                    }
                    check_ack(&ack, &self.prefix, due, &self.stream)
                        .map_err(TransportError::Server)?;
                    due += 1;
                }
                Event::Ping => self.client.writer.pong()?,
                Event::Error(text) => return Err(TransportError::Server(text.into())),
                Event::Pong | Event::Ok | Event::Info(_) => {}
            }
        }
        Ok(())
    }
}

/// Acks of one connection come in the order of its messages; anything else is a failure.
fn check_ack(ack: &Message<'_>, prefix: &[u8], due: u64, stream: &str) -> Result<(), String> {
    let token = ack.subject.strip_prefix(prefix).and_then(nuthatch_client::frame::decimal);
    if token != Some(due) {
        return Err(format!("ack {token:?} came when {due} was due"));
    }
    if let Some(code) = ack.status() {
        return Err(format!("status {code} instead of an ack"));
    }
    match PubAck::parse(ack.payload, stream) {
        PubAck::Stored(_) => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

impl Sender for NatsSender {
    fn send(&mut self, batch: &[&[u8]]) -> Result<(), QueueError> {
        let due = self.next;
        self.publish(batch).and_then(|()| self.await_acks(due)).map_err(failed(DRIVER, "publish"))
    }
}

/// One connection with an open pull. A pull outlives [`Receiver::receive`]: what it delivers
/// later is taken by the next call, as with the prefetch of other systems.
struct NatsReceiver {
    client: Client,
    subject: Vec<u8>,
    inbox: Vec<u8>,
    /// Messages asked for that have neither come nor been given up by the server.
    open: usize,
    /// Reply subjects of unacknowledged messages, one after the other.
    to_ack: Vec<u8>,
    /// Where each of them ends.
    ends: Vec<usize>,
}

impl NatsReceiver {
    fn pull(
        &mut self,
        max: usize,
        wait: Duration,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<usize, TransportError> {
        let deadline = Instant::now() + wait;
        let mut count = 0;
        loop {
            count += self.take_buffered(max - count, each)?;
            let now = Instant::now();
            if count > 0 || now >= deadline {
                return Ok(count);
            }
            if self.open <= max / 2 {
                self.ask(max)?;
            }
            match self.client.reader.fill(deadline - now) {
                Ok(()) | Err(TransportError::TimedOut(_)) => {}
                Err(err) => return Err(err),
            }
        }
    }

    fn ask(&mut self, batch: usize) -> Result<(), TransportError> {
        let body = format!(r#"{{"batch":{batch},"expires":{}}}"#, PULL_EXPIRES.as_nanos());
        self.client.writer.publish(&self.subject, &self.inbox, b"", body.as_bytes())?;
        self.open += batch;
        self.client.writer.flush()
    }

    /// Takes up to `max` messages that have arrived already.
    fn take_buffered(
        &mut self,
        max: usize,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<usize, TransportError> {
        let mut count = 0;
        while count < max {
            match self.client.reader.next_buffered()? {
                None => break,
                Some(Event::Message(m)) => match (m.status(), m.reply) {
                    (None, Some(reply)) => {
                        each(m.payload);
                        self.to_ack.extend_from_slice(reply);
                        self.ends.push(self.to_ack.len());
                        self.open = self.open.saturating_sub(1);
                        count += 1;
                    }
                    _ => self.open -= given_up(&m)?.min(self.open),
                },
                Some(Event::Ping) => self.client.writer.pong()?,
                Some(Event::Error(text)) => return Err(TransportError::Server(text.into())),
                Some(Event::Pong | Event::Ok | Event::Info(_)) => {}
            }
        }
        Ok(count)
    }

    fn publish_acks(&mut self) -> Result<(), TransportError> {
        let mut start = 0;
        for end in &self.ends {
            self.client.writer.publish(&self.to_ack[start..*end], b"", b"", b"+ACK")?;
            start = *end;
        }
        self.to_ack.clear();
        self.ends.clear();
        self.client.writer.flush()
    }
}

/// How many messages of a pull will not come any more, from the status that ends it.
fn given_up(m: &Message<'_>) -> Result<usize, TransportError> {
    let pending = || m.header("Nats-Pending-Messages").and_then(|text| text.parse().ok());
    match m.status() {
        Some(100) => Ok(0),
        Some(404 | 408) => Ok(pending().unwrap_or(usize::MAX)),
        code => {
            let text = format!("pull ended with {code:?} {}", m.status_text());
            Err(TransportError::Server(text))
        }
    }
}

impl Receiver for NatsReceiver {
    fn receive(
        &mut self,
        max: usize,
        wait: Duration,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<usize, QueueError> {
        self.pull(max, wait, each).map_err(failed(DRIVER, "receive"))
    }

    fn ack(&mut self) -> Result<(), QueueError> {
        self.publish_acks().map_err(failed(DRIVER, "acknowledge"))
    }
}
