//! JetStream publish: every message waits for its ack, up to a window of them at a time.

use std::time::Instant;

use nuthatch_protocol::wire::write::push_u64;

use crate::harness::{BenchError, Target, share};
use crate::payload::Payload;
use crate::report::{RunReport, Tally};
use crate::workload::stream::{ACK_INBOX, StreamPlan};
use nuthatch_client::js::PubAck;
use nuthatch_client::{Client, Event, TransportError};

/// A client publishes again once this part of its window is free, so that messages and acks cross
/// in large groups instead of one by one.
const REFILL_PART: usize = 4;

/// A publish workload.
#[derive(Debug, Clone)]
pub struct JsPub {
    /// The stream.
    pub stream: StreamPlan,
    /// Messages over all clients.
    pub msgs: u64,
    /// Body size in bytes.
    pub size: usize,
    /// Unacknowledged messages per client; 1 is synchronous publishing.
    pub window: usize,
    /// Concurrent connections.
    pub clients: usize,
}

impl JsPub {
    /// Runs once.
    ///
    /// # Errors
    /// When the server cannot be reached or stops answering. Refused messages are counted in the
    /// report instead.
    pub fn run(&self, target: &Target) -> Result<RunReport, BenchError> {
        self.run_with(
            target,
            |index| self.connect(target, index),
            |index, mut publisher, tally| {
                publisher.run(share(self.msgs, self.clients, index), target, tally)
            },
        )
    }

    /// Runs once with clients of any kind: prepares the stream, and compares its growth with the
    /// acks afterwards.
    ///
    /// # Errors
    /// Like [`Self::run`].
    pub fn run_with<S: Send>(
        &self,
        target: &Target,
        connect: impl Fn(usize) -> Result<S, BenchError>,
        work: impl Fn(usize, S, &mut Tally) -> Result<(), BenchError> + Sync,
    ) -> Result<RunReport, BenchError> {
        let mut control = target.connect()?;
        let before = self.stream.prepare(&mut control, target)?;
        let states: Result<Vec<S>, BenchError> = (0..self.clients).map(connect).collect();
        let mut report = target.measure(states?, work)?;
        let grown = self.stream.state(&mut control, target)?.last_seq - before;
        if grown != report.msgs {
            report.errors += 1;
            let text = format!("{} acks, but the stream grew by {grown}", report.msgs);
            report.first_error.get_or_insert(text);
        }
        Ok(report)
    }

    fn connect(&self, target: &Target, index: usize) -> Result<Publisher<'_>, BenchError> {
        let mut client = target.connect()?;
        let max_payload = client.info().max_payload;
        if self.size > max_payload {
            let text =
                format!("--size {} exceeds the server's max_payload {max_payload}", self.size);
            return Err(BenchError::Usage(text));
        }
        let prefix = format!("{}.{ACK_INBOX}.", client.inbox());
        client.subscribe(&format!("{prefix}*"), "")?;
        client.round_trip(target.timeout)?;
        Ok(Publisher {
            plan: self,
            client,
            payload: Payload::new(self.size, index as u64),
            window: Window::new(self.window),
            prefix: prefix.into_bytes(),
        })
    }
}

/// One publishing connection.
struct Publisher<'a> {
    plan: &'a JsPub,
    client: Client,
    payload: Payload,
    window: Window,
    prefix: Vec<u8>,
}

impl Publisher<'_> {
    fn run(&mut self, count: u64, target: &Target, tally: &mut Tally) -> Result<(), BenchError> {
        let window = self.plan.window as u64;
        let refill = (self.plan.window / REFILL_PART).max(1) as u64;
        tally.started = Instant::now();
        while self.window.answered < count {
            let sent = self.window.sent;
            let free = window - self.window.in_flight();
            if sent < count && (free >= refill || free >= count - sent) {
                self.publish(free.min(count - sent))?;
            }
            self.client.reader.fill(target.timeout)?;
            self.read_acks(tally)?;
        }
        tally.finished = Instant::now();
        tally.bytes = tally.msgs * self.plan.size as u64;
        Ok(())
    }

    fn publish(&mut self, count: u64) -> Result<(), TransportError> {
        let subject = self.plan.stream.subject.as_bytes();
        let prefix_len = self.prefix.len();
        let now = Instant::now();
        for _ in 0..count {
            let token = self.window.send(now);
            push_u64(&mut self.prefix, token);
            let body = self.payload.get(token);
            self.client.writer.publish(subject, &self.prefix, b"", body)?;
            self.prefix.truncate(prefix_len);
        }
        self.client.writer.flush()
    }

    fn read_acks(&mut self, tally: &mut Tally) -> Result<(), TransportError> {
        let Self { client, window, prefix, plan, .. } = self;
        let now = Instant::now();
        while let Some(event) = client.reader.next_buffered()? {
            match event {
                Event::Message(ack) => {
                    let token = ack.subject.strip_prefix(&prefix[..]);
                    let answer = match ack.status() {
                        Some(code) => PubAck::Failed(format!("status {code}: no stream listens")),
                        None => PubAck::parse(ack.payload, &plan.stream.name),
                    };
                    window.answer(token, answer, now, tally);
                }
                Event::Ping => client.writer.pong()?,
                Event::Error(text) => return Err(TransportError::Server(text.into())),
                Event::Pong | Event::Ok | Event::Info(_) => {}
            }
        }
        Ok(())
    }
}

/// The unacknowledged messages of a connection. Acks of one connection come in the order of its
/// messages; anything else is counted as an error.
#[derive(Debug)]
struct Window {
    /// When the message with token `t` was sent, at `t` modulo the length.
    sent_at: Vec<Instant>,
    /// Messages sent so far; also the next token.
    sent: u64,
    /// Messages answered so far; also the token expected next.
    answered: u64,
    last_seq: u64,
}

impl Window {
    fn new(size: usize) -> Self {
        Self { sent_at: vec![Instant::now(); size], sent: 0, answered: 0, last_seq: 0 }
    }

    fn in_flight(&self) -> u64 {
        self.sent - self.answered
    }

    #[inline]
    fn send(&mut self, now: Instant) -> u64 {
        let token = self.sent;
        let slot = (token % self.sent_at.len() as u64) as usize;
        self.sent_at[slot] = now;
        self.sent += 1;
        token
    }

    #[inline]
    fn answer(&mut self, token: Option<&[u8]>, answer: PubAck, now: Instant, tally: &mut Tally) {
        let token = token.and_then(nuthatch_client::frame::decimal);
        if token.is_none_or(|token| token >= self.sent) || self.in_flight() == 0 {
            return tally.error(|| format!("ack for a message never sent: {token:?}"));
        }
        if token != Some(self.answered) {
            tally.error(|| format!("ack {token:?} came when {} was due", self.answered));
        }
        let slot = (self.answered % self.sent_at.len() as u64) as usize;
        self.answered += 1;
        match answer {
            PubAck::Stored(seq) if seq > self.last_seq => {
                self.last_seq = seq;
                tally.count(1);
                tally.latencies.record(now.duration_since(self.sent_at[slot]));
            }
            PubAck::Stored(seq) => {
                tally.error(|| format!("sequence {seq} after {}", self.last_seq));
            }
            other => tally.error(|| format!("{other:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_sequence_and_refusals_are_checked() {
        let now = Instant::now();
        let mut tally = Tally::default();
        let mut window = Window::new(4);
        for _ in 0..4 {
            window.send(now);
        }
        window.answer(Some(b"0"), PubAck::Stored(5), now, &mut tally);
        assert_eq!((tally.msgs, tally.errors), (1, 0));
        window.answer(Some(b"1"), PubAck::Stored(5), now, &mut tally);
        assert_eq!((tally.msgs, tally.errors), (1, 1));
        window.answer(Some(b"3"), PubAck::Stored(7), now, &mut tally);
        assert_eq!((tally.msgs, tally.errors), (2, 2));
        window.answer(Some(b"9"), PubAck::Stored(8), now, &mut tally);
        window.answer(None, PubAck::Stored(8), now, &mut tally);
        assert_eq!((tally.msgs, tally.errors, window.answered), (2, 4, 3));
        window.answer(Some(b"3"), PubAck::Failed("no".into()), now, &mut tally);
        assert_eq!((tally.errors, window.in_flight()), (5, 0));
    }
}
