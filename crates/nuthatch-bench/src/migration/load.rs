//! A publisher and a consumer at work on a stream while something happens to it, and how long each
//! message had to wait. Open loop: a message is due by the clock, so a server that stands still is
//! charged for all that should have been sent meanwhile.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::{BenchError, Target};
use crate::payload::Payload;
use nuthatch_client::js::{self, PubAck};
use nuthatch_client::{Client, Message, TransportError, Writer};

/// Publishes without an answer.
const WINDOW: usize = 512;

/// How long the publisher sleeps at most between two looks at the clock.
const TICK: Duration = Duration::from_millis(2);

/// A publish that waits longer for its answer has failed.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// Messages of a pull, and how few may be asked for before the next.
const PULL: u64 = 1000;
const PULL_AGAIN_BELOW: u64 = 500;

/// After the publisher has ended, the consumer ends when nothing came for so long.
const DRAINED_AFTER: Duration = Duration::from_secs(2);

/// Unacknowledged deliveries of the consumer, more than a few seconds can hold.
const MAX_ACK_PENDING: u64 = 500_000;

/// Bytes in front of a body: when it was due, in nanoseconds since the load began.
const STAMP_BYTES: usize = 8;

/// When a message was due, and when it had arrived (or was acknowledged), since the load began.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait {
    pub(super) due: Duration,
    pub(super) done: Duration,
}

/// The longest wait of those that began in a span.
pub(super) fn longest(waits: &[Wait], from: Duration, to: Duration) -> Duration {
    let within = waits.iter().filter(|wait| (from..to).contains(&wait.due));
    within.map(|wait| wait.done.saturating_sub(wait.due)).max().unwrap_or_default()
}

/// What is published, and until when.
pub(super) struct Load<'a> {
    pub(super) stream: &'a str,
    pub(super) subject: &'a str,
    /// Bytes of a body.
    pub(super) size: usize,
    /// Messages per second.
    pub(super) rate: f64,
    /// When it began.
    pub(super) clock: Instant,
    /// Whether the publisher is to end.
    pub(super) stop: &'a AtomicBool,
}

impl Load<'_> {
    fn due(&self, index: u64) -> Duration {
        Duration::from_secs_f64(index as f64 / self.rate)
    }

    /// Publishes until told to stop and all is answered; one wait for each message.
    ///
    /// # Errors
    /// When a publish is refused or not answered.
    pub(super) fn publish(&self, target: &Target) -> Result<Vec<Wait>, BenchError> {
        let mut client = target.connect()?;
        let inbox = format!("{}.p", client.inbox());
        client.subscribe(&inbox, "")?;
        let bodies = Payload::new(self.size, 1);
        let (mut waits, mut unanswered) = (Vec::new(), VecDeque::new());
        let mut sent = 0;
        loop {
            let stopping = self.stop.load(Ordering::Relaxed);
            if stopping && unanswered.is_empty() {
                return Ok(waits);
            }
            while !stopping && unanswered.len() < WINDOW && self.due(sent) <= self.clock.elapsed() {
                self.send(&mut client, &inbox, &bodies, sent)?;
                unanswered.push_back(self.due(sent));
                sent += 1;
            }
            client.writer.flush()?;
            match client.next_message(Instant::now() + TICK) {
                Ok(answer) => waits.push(self.answered(&answer.payload, &mut unanswered)?),
                Err(TransportError::TimedOut(_)) if !self.is_overdue(&unanswered) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn send(
        &self,
        client: &mut Client,
        inbox: &str,
        bodies: &Payload,
        index: u64,
    ) -> Result<(), TransportError> {
        let mut body = bodies.get(index).to_vec();
        body[..STAMP_BYTES].copy_from_slice(&(self.due(index).as_nanos() as u64).to_le_bytes());
        client.writer.publish(self.subject.as_bytes(), inbox.as_bytes(), b"", &body)
    }

    /// Answers come in the order of the publishes.
    fn answered(
        &self,
        payload: &[u8],
        unanswered: &mut VecDeque<Duration>,
    ) -> Result<Wait, BenchError> {
        let failed = |why: String| BenchError::Failed(format!("a publish failed: {why}"));
        match PubAck::parse(payload, self.stream) {
            PubAck::Stored(_) => {}
            other => return Err(failed(format!("{other:?}"))),
        }
        let due = unanswered.pop_front().ok_or_else(|| failed("an answer too many".into()))?;
        Ok(Wait { due, done: self.clock.elapsed() })
    }

    fn is_overdue(&self, unanswered: &VecDeque<Duration>) -> bool {
        unanswered.front().is_some_and(|due| self.clock.elapsed() > *due + ANSWER_LIMIT)
    }

    /// Makes the consumer for [`Self::consume`], which begins with what is published from now on.
    ///
    /// # Errors
    /// When the server refuses.
    pub(super) fn add_consumer(&self, target: &Target, name: &str) -> Result<(), BenchError> {
        let what = format!("CONSUMER.DURABLE.CREATE.{}.{name}", self.stream);
        let config = json!({"stream_name": self.stream, "config": {
            "durable_name": name, "ack_policy": "explicit", "deliver_policy": "new",
            "max_ack_pending": MAX_ACK_PENDING}});
        js::api(&mut target.connect()?, &what, &config, target.timeout)?;
        Ok(())
    }

    /// Fetches and acknowledges until the publisher has ended and nothing more comes; one wait for
    /// each message.
    ///
    /// # Errors
    /// When the connection fails, or a message is missing or out of order.
    pub(super) fn consume(&self, target: &Target, name: &str) -> Result<Vec<Wait>, BenchError> {
        let mut client = target.connect()?;
        let inbox = format!("{}.c", client.inbox());
        client.subscribe(&inbox, "")?;
        let pull = Pull {
            subject: format!("{}.CONSUMER.MSG.NEXT.{}.{name}", js::API_PREFIX, self.stream),
            body: json!({"batch": PULL, "expires": 60_000_000_000_u64}).to_string(),
            inbox,
        };
        pull.ask(&mut client.writer)?;
        let (mut open, mut waits, mut order) = (PULL, Vec::new(), Order::default());
        loop {
            let pumped = client.pump(DRAINED_AFTER, |message, writer| {
                if message.reply.is_none() {
                    open = 0;
                } else {
                    open = open.saturating_sub(1);
                    self.received(&message, writer, &mut order, &mut waits)?;
                }
                if open < PULL_AGAIN_BELOW {
                    pull.ask(writer)?;
                    open += PULL;
                }
                Ok(ControlFlow::Continue(()))
            });
            match pumped {
                Err(TransportError::TimedOut(_)) if self.stop.load(Ordering::Relaxed) => break,
                Err(TransportError::TimedOut(_)) => {}
                other => other?,
            }
        }
        order.check()?;
        Ok(waits)
    }

    fn received(
        &self,
        message: &Message<'_>,
        writer: &mut Writer,
        order: &mut Order,
        waits: &mut Vec<Wait>,
    ) -> Result<(), TransportError> {
        let reply = message.reply.unwrap_or_default();
        writer.publish(reply, b"", b"", b"+ACK")?;
        order.note(reply);
        let stamp = message.payload.first_chunk::<STAMP_BYTES>();
        let due = Duration::from_nanos(stamp.map_or(0, |bytes| u64::from_le_bytes(*bytes)));
        waits.push(Wait { due, done: self.clock.elapsed() });
        Ok(())
    }
}

/// How more messages are asked for.
struct Pull {
    subject: String,
    body: String,
    inbox: String,
}

impl Pull {
    fn ask(&self, writer: &mut Writer) -> Result<(), TransportError> {
        let (subject, inbox) = (self.subject.as_bytes(), self.inbox.as_bytes());
        writer.publish(subject, inbox, b"", self.body.as_bytes())
    }
}

/// Whether every message came, once and in order.
#[derive(Debug, Default)]
struct Order {
    last_seq: Option<u64>,
    wrong: u64,
}

impl Order {
    /// `reply` is `$JS.ACK.<stream>.<consumer>.<delivered>.<stream sequence>.…`.
    fn note(&mut self, reply: &[u8]) {
        let text = std::str::from_utf8(reply).unwrap_or_default();
        let seq = text.split('.').nth(5).and_then(|seq| seq.parse::<u64>().ok());
        let follows = match (self.last_seq, seq) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(last), Some(seq)) => seq == last + 1,
        };
        self.wrong += u64::from(!follows);
        self.last_seq = seq;
    }

    fn check(&self) -> Result<(), BenchError> {
        match self.wrong {
            0 => Ok(()),
            wrong => Err(BenchError::Failed(format!("{wrong} deliveries were out of order"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_wait_is_of_those_that_began_in_the_span() {
        let ms = Duration::from_millis;
        let wait = |due, done| Wait { due: ms(due), done: ms(done) };
        let waits = [wait(0, 90), wait(100, 130), wait(110, 170), wait(300, 400)];
        assert_eq!(longest(&waits, ms(100), ms(300)), ms(60));
        assert_eq!(longest(&waits, ms(500), ms(600)), ms(0));
    }

    #[test]
    fn a_gap_and_a_repetition_are_seen() {
        let mut order = Order::default();
        for seq in [7, 8, 10, 10, 11] {
            order.note(format!("$JS.ACK.S.c.1.{seq}.1.1.0").as_bytes());
        }
        assert_eq!(order.wrong, 2);
        assert!(order.check().is_err());
    }
}
