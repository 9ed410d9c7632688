//! One connection with the lean client: everything that arrives is kept per subscription, so that
//! a step sees what belongs to it whatever arrives in between.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use nuthatch_client::{Client, ConnectOptions, Event, OwnedMessage, TransportError};

/// How long the server may take for an answer that must come.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(6);

/// Reply subjects of requests start with this; fixed, so that both servers see the same.
const REPLY_PREFIX: &str = "_INBOX.request.";

/// A connection and what it has received.
#[derive(Debug)]
pub struct Wire {
    client: Client,
    queues: HashMap<u64, VecDeque<OwnedMessage>>,
    names: HashMap<String, u64>,
    replies: u64,
    requests: u64,
    pongs: u64,
    /// What the server has complained about since last asked.
    pub errors: Vec<String>,
}

impl Wire {
    /// Connects.
    pub fn connect(port: u16) -> Result<Self, String> {
        let options = ConnectOptions::new(&format!("nats://127.0.0.1:{port}"));
        let options = options.map_err(|err| err.to_string())?;
        let mut client = Client::connect(&options).map_err(|err| err.to_string())?;
        let replies = client.subscribe(&format!("{REPLY_PREFIX}*"), "");
        let replies = replies.map_err(|err| err.to_string())?;
        Ok(Self {
            client,
            queues: HashMap::new(),
            names: HashMap::new(),
            replies,
            requests: 0,
            pongs: 0,
            errors: Vec::new(),
        })
    }

    /// Subscribes under a name; `queue` may be empty.
    pub fn subscribe(&mut self, name: &str, subject: &str, queue: &str) -> Result<(), String> {
        let sid = self.client.subscribe(subject, queue).map_err(|err| err.to_string())?;
        self.names.insert(name.to_owned(), sid);
        self.flush()
    }

    /// Ends a subscription; what has arrived is forgotten.
    pub fn unsubscribe(&mut self, name: &str) -> Result<(), String> {
        if let Some(sid) = self.names.remove(name) {
            self.client.writer.unsubscribe(sid).map_err(|err| err.to_string())?;
            self.flush()?;
            self.queues.remove(&sid);
        }
        Ok(())
    }

    /// Publishes; `reply` and `headers` may be empty.
    pub fn publish(
        &mut self,
        subject: &str,
        reply: &str,
        headers: &[u8],
        body: &[u8],
    ) -> Result<(), String> {
        let writer = &mut self.client.writer;
        let sent = writer.publish(subject.as_bytes(), reply.as_bytes(), headers, body);
        sent.and_then(|()| writer.flush()).map_err(|err| err.to_string())
    }

    /// Publishes with a reply subject of our own and waits for the reply.
    pub fn request(
        &mut self,
        subject: &str,
        headers: &[u8],
        body: &[u8],
        limit: Duration,
    ) -> Result<Option<OwnedMessage>, String> {
        self.requests += 1;
        let reply = format!("{REPLY_PREFIX}{}", self.requests);
        self.publish(subject, &reply, headers, body)?;
        let deadline = Instant::now() + limit;
        loop {
            let sid = self.replies;
            match self.next_of(sid, deadline)? {
                Some(message) if message.subject == reply => return Ok(Some(message)),
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    /// The next message of a named subscription.
    pub fn next(&mut self, name: &str, deadline: Instant) -> Result<Option<OwnedMessage>, String> {
        let sid = *self.names.get(name).ok_or_else(|| format!("no subscription {name}"))?;
        self.next_of(sid, deadline)
    }

    /// A ping and its pong: the server has then handled all that was sent before.
    pub fn flush(&mut self) -> Result<(), String> {
        let before = self.pongs;
        let writer = &mut self.client.writer;
        writer.ping().and_then(|()| writer.flush()).map_err(|err| err.to_string())?;
        let deadline = Instant::now() + ANSWER_LIMIT;
        while self.pongs == before {
            if !self.receive(deadline)? {
                return Err("no PONG".to_owned());
            }
        }
        Ok(())
    }

    fn next_of(&mut self, sid: u64, deadline: Instant) -> Result<Option<OwnedMessage>, String> {
        loop {
            if let Some(message) = self.queues.entry(sid).or_default().pop_front() {
                return Ok(Some(message));
            }
            if !self.receive(deadline)? {
                return Ok(None);
            }
        }
    }

    /// Takes in one event; false when the time is over.
    fn receive(&mut self, deadline: Instant) -> Result<bool, String> {
        loop {
            match self.client.reader.next_buffered().map_err(|err| err.to_string())? {
                Some(Event::Message(m)) => {
                    self.queues.entry(m.sid).or_default().push_back(m.into());
                    return Ok(true);
                }
                Some(Event::Pong) => {
                    self.pongs += 1;
                    return Ok(true);
                }
                Some(Event::Error(text)) => self.errors.push(text.to_owned()),
                Some(Event::Ping) => self.client.writer.pong().map_err(|err| err.to_string())?,
                Some(Event::Ok | Event::Info(_)) => {}
                None => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Ok(false);
                    }
                    match self.client.reader.fill(left) {
                        Ok(()) => {}
                        Err(TransportError::TimedOut(_)) => return Ok(false),
                        Err(err) => return Err(err.to_string()),
                    }
                }
            }
        }
    }
}
