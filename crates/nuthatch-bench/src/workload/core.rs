//! Core publish and subscribe, without JetStream.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::harness::{BenchError, Target, share};
use crate::payload::Payload;
use crate::report::{RunReport, Tally};
use nuthatch_client::Client;

/// Publishing, with subscribers of our own or without.
#[derive(Debug, Clone)]
pub struct CorePub {
    /// Subject.
    pub subject: String,
    /// Messages over all publishers.
    pub msgs: u64,
    /// Body size in bytes.
    pub size: usize,
    /// Publishers.
    pub clients: usize,
    /// Subscribers; each receives everything.
    pub subs: usize,
}

/// One connection of [`CorePub`].
enum Role {
    Publisher(Client),
    Subscriber(Client),
}

impl CorePub {
    /// Runs once. Counts what the server has taken, or with subscribers what has been delivered.
    ///
    /// # Errors
    /// When the server cannot be reached, or messages do not arrive.
    pub fn run(&self, target: &Target) -> Result<RunReport, BenchError> {
        let mut roles = Vec::new();
        for _ in 0..self.clients {
            roles.push(Role::Publisher(target.connect()?));
        }
        for _ in 0..self.subs {
            let mut client = target.connect()?;
            client.subscribe(&self.subject, "")?;
            client.round_trip(target.timeout)?;
            roles.push(Role::Subscriber(client));
        }
        target.measure(roles, |index, role, tally| match role {
            Role::Publisher(client) => self.publish(index, client, target, tally),
            Role::Subscriber(mut client) => {
                tally.started = Instant::now();
                let first_wait = target.timeout;
                receive(&mut client, self.msgs, first_wait, target.timeout, tally)
            }
        })
    }

    fn publish(
        &self,
        index: usize,
        mut client: Client,
        target: &Target,
        tally: &mut Tally,
    ) -> Result<(), BenchError> {
        let payload = Payload::new(self.size, index as u64);
        let count = share(self.msgs, self.clients, index);
        tally.started = Instant::now();
        for number in 0..count {
            let body = payload.get(number);
            client.writer.publish(self.subject.as_bytes(), b"", b"", body)?;
            if self.subs == 0 {
                tally.tell(1);
            }
        }
        client.round_trip(target.timeout.max(PUBLISH_DRAIN))?;
        tally.finished = Instant::now();
        if self.subs == 0 {
            tally.msgs = count;
            tally.bytes = count * self.size as u64;
        }
        Ok(())
    }
}

/// A server that slows its publishers down may take this long to come to the final ping.
const PUBLISH_DRAIN: Duration = Duration::from_secs(60);

/// Subscribing to another client's publishes.
#[derive(Debug, Clone)]
pub struct CoreSub {
    /// Subject, wildcards allowed.
    pub subject: String,
    /// Queue group; empty for none.
    pub queue: String,
    /// Messages per subscriber.
    pub msgs: u64,
    /// Subscribers.
    pub clients: usize,
    /// How long to wait for the first message.
    pub first_wait: Duration,
}

impl CoreSub {
    /// Runs once. Time counts from the first message.
    ///
    /// # Errors
    /// When the server cannot be reached, or messages do not arrive.
    pub fn run(&self, target: &Target) -> Result<RunReport, BenchError> {
        let mut clients = Vec::new();
        for _ in 0..self.clients {
            let mut client = target.connect()?;
            client.subscribe(&self.subject, &self.queue)?;
            client.round_trip(target.timeout)?;
            clients.push(client);
        }
        target.measure(clients, |_, mut client, tally| {
            receive(&mut client, self.msgs, self.first_wait, target.timeout, tally)
        })
    }
}

/// Receives `count` messages; a gap longer than `wait` after the first is an error.
fn receive(
    client: &mut Client,
    count: u64,
    first_wait: Duration,
    wait: Duration,
    tally: &mut Tally,
) -> Result<(), BenchError> {
    let mut first = true;
    while tally.msgs < count {
        let limit = if first { first_wait } else { wait };
        let result = client.pump(limit, |m, _| {
            if first {
                first = false;
                tally.started = Instant::now();
            }
            tally.count(1);
            tally.bytes += m.payload.len() as u64;
            let done = tally.msgs >= count || tally.msgs == 1;
            Ok(if done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        });
        if let Err(err) = result {
            let text = format!("received {} of {count} messages: {err}", tally.msgs);
            return Err(BenchError::Failed(text));
        }
    }
    tally.finished = Instant::now();
    Ok(())
}
