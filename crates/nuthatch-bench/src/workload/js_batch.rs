//! JetStream batch publishing (ADR-50): one fast batch per client, or atomic batches one after the
//! other with two in flight. Both are checked against the acknowledged counts and the stream.

use std::time::Instant;

use nuthatch_protocol::wire::write::push_u64;
use serde::Deserialize;

use crate::harness::{BenchError, Target, share};
use crate::payload::Payload;
use crate::report::{RunReport, Tally};
use crate::workload::js_pub::JsPub;
use crate::workload::stream::ACK_INBOX;
use nuthatch_client::js::ApiError;
use nuthatch_client::{Client, Event, TransportError};

/// Atomic batches in flight per client: one is being made durable while the next one travels.
const ATOMIC_IN_FLIGHT: u64 = 2;
/// A fast publisher asks for this many flow messages per window, and writes in groups of a window
/// divided by it.
const FLOWS_PER_WINDOW: usize = 4;

/// Which kind of batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchKind {
    /// All or nothing, at most 1000 messages.
    Atomic,
    /// A stream of messages without an acknowledgement each.
    Fast,
}

/// A batch publish workload; `plan.window` is the size of an atomic batch, or how many messages of a
/// fast batch may be on their way.
#[derive(Debug, Clone)]
pub struct JsBatch {
    /// Stream, counts and sizes.
    pub plan: JsPub,
    /// Kind of batch.
    pub kind: BatchKind,
}

/// An answer to a batch.
#[derive(Deserialize, Default, Debug)]
#[serde(default)]
struct Answer {
    r#type: String,
    seq: u64,
    last_seq: u64,
    count: u64,
    error: Option<ApiError>,
}

impl JsBatch {
    /// Runs once.
    ///
    /// # Errors
    /// When the server cannot be reached, stops answering, or ends a batch before its time.
    pub fn run(&self, target: &Target) -> Result<RunReport, BenchError> {
        self.plan.run_with(
            target,
            |index| self.connect(target, index),
            |index, mut publisher, tally| {
                let count = share(self.plan.msgs, self.plan.clients, index);
                tally.started = Instant::now();
                match self.kind {
                    BatchKind::Fast => publisher.fast(count, target, tally)?,
                    BatchKind::Atomic => publisher.atomic(count, target, tally)?,
                }
                tally.finished = Instant::now();
                tally.bytes = tally.msgs * self.plan.size as u64;
                Ok(())
            },
        )
    }

    fn connect(&self, target: &Target, index: usize) -> Result<Publisher<'_>, BenchError> {
        let mut client = target.connect()?;
        let prefix = format!("{}.{ACK_INBOX}.", client.inbox());
        client.subscribe(&format!("{prefix}>"), "")?;
        client.round_trip(target.timeout)?;
        let payload = Payload::new(self.plan.size, index as u64);
        Ok(Publisher { plan: &self.plan, client, payload, prefix })
    }
}

/// One publishing connection.
struct Publisher<'a> {
    plan: &'a JsPub,
    client: Client,
    payload: Payload,
    prefix: String,
}

impl Publisher<'_> {
    fn fast(&mut self, count: u64, target: &Target, tally: &mut Tally) -> Result<(), BenchError> {
        let window = self.plan.window as u64;
        let group = (self.plan.window / FLOWS_PER_WINDOW).max(1) as u64;
        // A batch is known by its id in the whole stream: each client takes one of its own.
        let id = self.client.inbox().rsplit('.').next().unwrap_or_default();
        let prefix = format!("{}{id}.{group}.fail.", self.prefix).into_bytes();
        let (mut sent, mut acked, mut done) = (0, 0, count == 0);
        while !done {
            let free = window.saturating_sub(sent - acked);
            if sent < count && (free >= group || free >= count - sent || sent == acked) {
                let more = free.clamp(1, window).min(count - sent);
                self.send_fast(&prefix, sent, more, count)?;
                sent += more;
            }
            self.client.reader.fill(target.timeout)?;
            while let Some(answer) = self.next_answer()? {
                match (answer.r#type.as_str(), answer.error) {
                    (_, Some(error)) => return Err(refused(&error)),
                    ("ack", None) => {
                        tally.tell(answer.seq.saturating_sub(acked));
                        acked = acked.max(answer.seq);
                    }
                    ("gap", None) => tally.error(|| {
                        format!("message {} came when {} was due", answer.seq, answer.last_seq)
                    }),
                    _ => {
                        tally.msgs += answer.count;
                        done = true;
                    }
                }
            }
        }
        Ok(())
    }

    fn send_fast(
        &mut self,
        prefix: &[u8],
        sent: u64,
        more: u64,
        count: u64,
    ) -> Result<(), TransportError> {
        let subject = self.plan.stream.subject.as_bytes();
        let mut reply = prefix.to_vec();
        for seq in sent + 1..=sent + more {
            push_u64(&mut reply, seq);
            reply.extend_from_slice(match seq {
                _ if seq == count => b".2.$FI",
                1 => b".0.$FI",
                _ => b".1.$FI",
            });
            let body = self.payload.get(seq);
            self.client.writer.publish(subject, &reply, b"", body)?;
            reply.truncate(prefix.len());
        }
        self.client.writer.flush()
    }

    fn atomic(&mut self, count: u64, target: &Target, tally: &mut Tally) -> Result<(), BenchError> {
        let size = self.plan.window as u64;
        let batches = count.div_ceil(size);
        let mut sent_at = vec![Instant::now(); ATOMIC_IN_FLIGHT as usize];
        let (mut sent, mut done) = (0, 0);
        while done < batches {
            while sent < batches && sent - done < ATOMIC_IN_FLIGHT {
                sent_at[(sent % ATOMIC_IN_FLIGHT) as usize] = Instant::now();
                self.send_atomic(sent, size.min(count - sent * size))?;
                sent += 1;
            }
            self.client.reader.fill(target.timeout)?;
            while let Some(answer) = self.next_answer()? {
                if let Some(error) = answer.error {
                    return Err(refused(&error));
                }
                let began = sent_at[(done % ATOMIC_IN_FLIGHT) as usize];
                tally.latencies.record(began.elapsed());
                tally.count(answer.count);
                done += 1;
            }
        }
        Ok(())
    }

    /// Sends a batch; only its last message asks for an answer.
    fn send_atomic(&mut self, batch: u64, count: u64) -> Result<(), TransportError> {
        let subject = self.plan.stream.subject.as_bytes();
        let start = format!("NATS/1.0\r\nNats-Batch-Id: {}{batch}\r\n", self.prefix);
        let reply = format!("{}{batch}", self.prefix);
        let mut headers = start.into_bytes();
        headers.extend_from_slice(b"Nats-Batch-Sequence: ");
        let fixed = headers.len();
        for seq in 1..=count {
            headers.truncate(fixed);
            push_u64(&mut headers, seq);
            let is_last = seq == count;
            headers.extend_from_slice(if is_last {
                b"\r\nNats-Batch-Commit: 1\r\n\r\n"
            } else {
                b"\r\n\r\n"
            });
            let reply = if is_last { reply.as_bytes() } else { b"" };
            let body = self.payload.get(seq);
            self.client.writer.publish(subject, reply, &headers, body)?;
        }
        self.client.writer.flush()
    }

    /// The next answer that has been received whole.
    fn next_answer(&mut self) -> Result<Option<Answer>, BenchError> {
        loop {
            let Self { client, .. } = self;
            match client.reader.next_buffered()? {
                None => return Ok(None),
                Some(Event::Message(message)) => {
                    if let Some(code) = message.status() {
                        return Err(BenchError::Failed(format!(
                            "status {code}: no stream listens"
                        )));
                    }
                    return serde_json::from_slice(message.payload).map(Some).map_err(|error| {
                        let text = String::from_utf8_lossy(message.payload);
                        BenchError::Failed(format!("not an answer to a batch ({error}): {text}"))
                    });
                }
                Some(Event::Ping) => client.writer.pong()?,
                Some(Event::Error(text)) => {
                    return Err(TransportError::Server(text.into()).into());
                }
                Some(Event::Pong | Event::Ok | Event::Info(_)) => {}
            }
        }
    }
}

fn refused(error: &ApiError) -> BenchError {
    BenchError::Failed(format!("{} ({})", error.description, error.err_code))
}
