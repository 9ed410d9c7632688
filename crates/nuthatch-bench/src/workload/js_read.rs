//! JetStream reading: continuous pulls, single fetches, and ordered consumers.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{BenchError, Target};
use crate::report::{RunReport, Tally};
use crate::workload::consumer::{self, AckMode, OrderCheck};
use crate::workload::js_pub::JsPub;
use crate::workload::stream::StreamPlan;
use nuthatch_client::js;
use nuthatch_client::{Client, Message, TransportError, Writer};

/// How long a pull request stays open at the server.
const PULL_EXPIRES: Duration = Duration::from_secs(30);

/// Pull requests a continuous consumer keeps open: one is served while the next one waits.
const OPEN_PULLS: u64 = 2;

/// Ordered consumers ask for a sign of life this often.
const IDLE_HEARTBEAT: Duration = Duration::from_secs(5);

/// Ordered consumers never acknowledge, so the wait for it must never matter (ADR-17).
const ORDERED_ACK_WAIT: Duration = Duration::from_secs(22 * 3600);

/// An ephemeral consumer outlives its reader by this.
const INACTIVE_THRESHOLD: Duration = Duration::from_secs(30);

/// Unacknowledged messages that pre-filling keeps in flight, and most bytes of them.
const FILL_WINDOW: usize = 500;
const FILL_WINDOW_BYTES: usize = 16 * 1024 * 1024;

/// How messages are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadMode {
    /// Durable pull consumer, pulls overlap.
    Consume,
    /// Durable pull consumer, one pull after the other.
    Fetch,
    /// Ephemeral push consumer with flow control and heartbeats.
    OrderedPush,
    /// Ephemeral pull consumer without acks.
    OrderedPull,
}

impl ReadMode {
    /// True if the consumer is ephemeral and never acknowledges.
    pub fn is_ordered(self) -> bool {
        matches!(self, Self::OrderedPush | Self::OrderedPull)
    }
}

/// A reading workload.
#[derive(Debug, Clone)]
pub struct JsRead {
    /// The stream.
    pub stream: StreamPlan,
    /// How.
    pub mode: ReadMode,
    /// Acknowledgement, of the durable modes.
    pub ack: AckMode,
    /// Name of the durable consumer, prefix of the ephemeral ones.
    pub consumer: String,
    /// Messages to read: together with a durable consumer, each with ordered ones.
    pub msgs: u64,
    /// Messages per pull.
    pub batch: usize,
    /// Limit of unacknowledged deliveries of the durable consumer.
    pub max_ack_pending: u64,
    /// Concurrent connections.
    pub clients: usize,
    /// Publish what the stream lacks first, with bodies of this many bytes.
    pub fill: Option<usize>,
}

impl JsRead {
    /// Runs once.
    ///
    /// # Errors
    /// When the stream is too short, the server cannot be reached, or it stops answering.
    pub fn run(&self, target: &Target) -> Result<RunReport, BenchError> {
        let unclaimed = AtomicU64::new(self.msgs);
        self.run_with(
            target,
            |_| self.connect(target),
            |index, mut client, tally| match self.mode {
                ReadMode::Consume => self.pull(&mut client, &unclaimed, target, tally),
                ReadMode::Fetch => self.fetch(&mut client, &unclaimed, target, tally),
                ReadMode::OrderedPush => self.ordered_push(&mut client, index, target, tally),
                ReadMode::OrderedPull => self.ordered_pull(&mut client, index, target, tally),
            },
        )
    }

    /// Runs once with clients of any kind: prepares stream and consumer, and checks afterwards
    /// that the consumer knows of every ack.
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
        self.ensure_messages(&mut control, target)?;
        if !self.mode.is_ordered() {
            consumer::create(&mut control, target, &self.stream.name, &self.durable())?;
        }
        let clients: Result<Vec<S>, BenchError> = (0..self.clients).map(connect).collect();
        let mut report = target.measure(clients?, |index, state, tally| {
            tally.started = Instant::now();
            work(index, state, tally)?;
            tally.finished = Instant::now();
            Ok(())
        })?;
        self.finish(&mut control, target, &mut report)?;
        Ok(report)
    }

    fn ensure_messages(&self, control: &mut Client, target: &Target) -> Result<(), BenchError> {
        self.stream.prepare(control, target)?;
        let there = self.stream.state(control, target)?.messages;
        if there >= self.msgs {
            return Ok(());
        }
        let Some(size) = self.fill else {
            let (name, msgs) = (&self.stream.name, self.msgs);
            let text = format!("stream {name} holds {there} messages, not {msgs}; pass --fill");
            return Err(BenchError::Usage(text));
        };
        let window = FILL_WINDOW.min((FILL_WINDOW_BYTES / size.max(1)).max(1));
        let stream = StreamPlan { create: false, purge: false, ..self.stream.clone() };
        let fill = JsPub { stream, msgs: self.msgs - there, size, window, clients: 1 };
        let report = fill.run(target)?;
        match report.first_error {
            Some(err) => Err(BenchError::Failed(format!("filling the stream failed: {err}"))),
            None => Ok(()),
        }
    }

    fn durable(&self) -> Value {
        json!({
            "name": self.consumer, "durable_name": self.consumer, "deliver_policy": "all",
            "ack_policy": self.ack.policy(), "max_ack_pending": self.max_ack_pending,
            "replay_policy": "instant",
        })
    }

    fn connect(&self, target: &Target) -> Result<Client, BenchError> {
        let mut client = target.connect()?;
        let inbox = data_inbox(&client);
        client.subscribe(&inbox, "")?;
        client.round_trip(target.timeout)?;
        Ok(client)
    }

    /// Removes the durable consumer, after a look at whether it knows of every ack.
    fn finish(
        &self,
        control: &mut Client,
        target: &Target,
        report: &mut RunReport,
    ) -> Result<(), BenchError> {
        if self.mode.is_ordered() {
            return Ok(());
        }
        if self.ack != AckMode::None {
            let what = format!("CONSUMER.INFO.{}.{}", self.stream.name, self.consumer);
            let deadline = Instant::now() + target.timeout;
            loop {
                let info = js::api(control, &what, &Value::Null, target.timeout)?;
                let unacked = info["num_ack_pending"].as_u64().unwrap_or(0);
                if unacked == 0 {
                    break;
                }
                if Instant::now() > deadline {
                    report.errors += unacked;
                    report.first_error.get_or_insert(format!("{unacked} acks were lost"));
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        consumer::delete(control, target, &self.stream.name, &self.consumer)
    }

    /// Overlapping pulls until everything is claimed and received.
    fn pull(
        &self,
        client: &mut Client,
        unclaimed: &AtomicU64,
        target: &Target,
        tally: &mut Tally,
    ) -> Result<(), BenchError> {
        let mut pulls = Pulls::new(self, &self.consumer, unclaimed, client);
        let mut check = OrderCheck::new(self.clients == 1);
        let mut acks = Acks::new(if self.mode.is_ordered() { AckMode::None } else { self.ack });
        pulls.refill(&mut client.writer)?;
        if pulls.open > 0 {
            client.pump(target.timeout, |m, writer| {
                if pulls.status(&m, tally) {
                    pulls.refill(writer)?;
                } else {
                    receive(&m, &mut check, tally);
                    pulls.open = pulls.open.saturating_sub(1);
                    pulls.refill(writer)?;
                    acks.received(&m, pulls.open.is_multiple_of(self.batch as u64), writer)?;
                }
                Ok(if pulls.open == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
        }
        client.round_trip(target.timeout)?;
        Ok(())
    }

    /// One pull after the other; the latency is that of a whole fetch.
    fn fetch(
        &self,
        client: &mut Client,
        unclaimed: &AtomicU64,
        target: &Target,
        tally: &mut Tally,
    ) -> Result<(), BenchError> {
        let mut pulls = Pulls::new(self, &self.consumer, unclaimed, client);
        let mut check = OrderCheck::new(self.clients == 1);
        let mut acks = Acks::new(self.ack);
        loop {
            let asked = Instant::now();
            pulls.ask(&mut client.writer)?;
            if pulls.open == 0 {
                break;
            }
            client.pump(target.timeout, |m, writer| {
                if !pulls.status(&m, tally) {
                    receive(&m, &mut check, tally);
                    pulls.open = pulls.open.saturating_sub(1);
                    acks.received(&m, pulls.open == 0, writer)?;
                }
                Ok(if pulls.open == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
            tally.latencies.record(asked.elapsed());
        }
        client.round_trip(target.timeout)?;
        Ok(())
    }

    fn ordered_push(
        &self,
        client: &mut Client,
        index: usize,
        target: &Target,
        tally: &mut Tally,
    ) -> Result<(), BenchError> {
        let name = format!("{}_{index}", self.consumer);
        let config = json!({
            "name": name, "deliver_subject": data_inbox(client), "deliver_policy": "all",
            "ack_policy": "none", "ack_wait": ORDERED_ACK_WAIT.as_nanos() as u64,
            "max_deliver": 1, "flow_control": true, "mem_storage": true, "num_replicas": 1,
            "idle_heartbeat": IDLE_HEARTBEAT.as_nanos() as u64, "replay_policy": "instant",
        });
        let mut control = target.connect()?;
        consumer::create(&mut control, target, &self.stream.name, &config)?;
        let mut check = OrderCheck::new(true);
        let mut left = self.msgs;
        client.pump(target.timeout, |m, writer| {
            if !m.headers.is_empty() && m.status() == Some(100) {
                answer_flow_control(&m, writer)?;
            } else {
                receive(&m, &mut check, tally);
                left -= 1;
            }
            Ok(if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        consumer::delete(&mut control, target, &self.stream.name, &name)
    }

    fn ordered_pull(
        &self,
        client: &mut Client,
        index: usize,
        target: &Target,
        tally: &mut Tally,
    ) -> Result<(), BenchError> {
        let name = format!("{}_{index}", self.consumer);
        let config = json!({
            "name": name, "deliver_policy": "all", "ack_policy": "none", "max_deliver": 1,
            "mem_storage": true, "num_replicas": 1, "replay_policy": "instant",
            "inactive_threshold": INACTIVE_THRESHOLD.as_nanos() as u64,
        });
        let mut control = target.connect()?;
        consumer::create(&mut control, target, &self.stream.name, &config)?;
        let own = Self { consumer: name.clone(), clients: 1, ..self.clone() };
        own.pull(client, &AtomicU64::new(self.msgs), target, tally)?;
        consumer::delete(&mut control, target, &self.stream.name, &name)
    }
}

fn data_inbox(client: &Client) -> String {
    format!("{}.d", client.inbox())
}

#[inline]
fn receive(m: &Message<'_>, check: &mut OrderCheck, tally: &mut Tally) {
    tally.count(1);
    tally.bytes += m.payload.len() as u64;
    if let Err(what) = check.next(m.reply) {
        tally.error(|| what);
    }
}

/// A flow control request is answered on its reply subject; a heartbeat that says that the
/// consumer is stalled names the subject to answer on.
fn answer_flow_control(m: &Message<'_>, writer: &mut Writer) -> Result<(), TransportError> {
    let stalled = m.header("Nats-Consumer-Stalled").map(str::as_bytes);
    match m.reply.or(stalled) {
        Some(subject) => writer.publish(subject, b"", b"", b""),
        None => Ok(()),
    }
}

/// The open pull requests of a connection.
struct Pulls<'a> {
    subject: Vec<u8>,
    inbox: Vec<u8>,
    batch: u64,
    unclaimed: &'a AtomicU64,
    /// Messages asked for and not yet received.
    open: u64,
}

impl<'a> Pulls<'a> {
    fn new(plan: &JsRead, consumer: &str, unclaimed: &'a AtomicU64, client: &Client) -> Self {
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{}.{consumer}", plan.stream.name);
        Self {
            subject: subject.into_bytes(),
            inbox: data_inbox(client).into_bytes(),
            batch: plan.batch as u64,
            unclaimed,
            open: 0,
        }
    }

    /// Asks for the next unclaimed batch.
    fn ask(&mut self, writer: &mut Writer) -> Result<(), TransportError> {
        let take = |left: u64| (left > 0).then(|| left - left.min(self.batch));
        let before = self.unclaimed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        let Ok(left) = before else { return Ok(()) };
        let batch = left.min(self.batch);
        let body = format!(r#"{{"batch":{batch},"expires":{}}}"#, PULL_EXPIRES.as_nanos());
        self.open += batch;
        writer.publish(&self.subject, &self.inbox, b"", body.as_bytes())
    }

    /// Keeps [`OPEN_PULLS`] open.
    #[inline]
    fn refill(&mut self, writer: &mut Writer) -> Result<(), TransportError> {
        while self.open <= self.batch * (OPEN_PULLS - 1) {
            let before = self.open;
            self.ask(writer)?;
            if self.open == before {
                break;
            }
        }
        Ok(())
    }

    /// True if this is the end of a pull instead of a message; what it did not deliver goes back
    /// to the unclaimed.
    #[inline]
    fn status(&mut self, m: &Message<'_>, tally: &mut Tally) -> bool {
        if m.headers.is_empty() {
            return false;
        }
        let Some(code) = m.status() else { return false };
        if code == 100 {
            return true;
        }
        let undelivered = m.header("Nats-Pending-Messages").and_then(|text| text.parse().ok());
        let undelivered = undelivered.unwrap_or(self.batch).min(self.open);
        self.open -= undelivered;
        self.unclaimed.fetch_add(undelivered, Ordering::Relaxed);
        if code != 408 && code != 404 {
            tally.error(|| format!("pull ended with {code} {}", m.status_text()));
        }
        true
    }
}

/// Acknowledges as the mode says.
struct Acks {
    mode: AckMode,
}

impl Acks {
    fn new(mode: AckMode) -> Self {
        Self { mode }
    }

    /// `last_of_batch` is when [`AckMode::All`] speaks.
    #[inline]
    fn received(
        &mut self,
        m: &Message<'_>,
        last_of_batch: bool,
        writer: &mut Writer,
    ) -> Result<(), TransportError> {
        let due = match self.mode {
            AckMode::Explicit => true,
            AckMode::All => last_of_batch,
            AckMode::None => false,
        };
        match m.reply {
            Some(reply) if due => writer.publish(reply, b"", b"", b"+ACK"),
            _ => Ok(()),
        }
    }
}
