//! Building the log: the engine on a log in the bucket, in this process, fed by events as the
//! server would feed it, with nobody waiting for acknowledgements.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use bytes::Bytes;
use indicatif::{ProgressBar, ProgressStyle};
use nuthatch_log::env::{SystemClock, SystemEntropy};
use nuthatch_log::{Log, LogHandle, LogOptions, SendError, StreamId};
use nuthatch_object::{Bucket, BucketOptions, ObjectDisk, ObjectDiskOptions, open_url_with};
use nuthatch_protocol::js::{AckPolicy, ConsumerConfig, CreateConsumerRequest, StreamConfig};
use nuthatch_protocol::wire::write::push_u64;
use nuthatch_streams::consumer::PreparedConsumer;
use nuthatch_streams::op::Usage;
use nuthatch_streams::validate::{self, Limits};
use nuthatch_streams::{
    AccountId, ClientBatch, Engine, EngineConfig, Event, Item, NullSink, Op, OpOutcome, OpResult,
    PublishItem, Span,
};

use super::shape::Shape;
use crate::harness::BenchError;
use crate::payload::Payload;
use crate::requests::Requests;

/// Name of the log in the bucket: the server's default one.
const LOG: &str = "default";

/// Messages of one event.
const BATCH_MESSAGES: usize = 1000;

/// Bytes of memory that an event costs the queue, for each message: its item and its subject.
const ITEM_BYTES: usize = 80;

/// Pause before a full queue is tried again.
const BUSY_PAUSE: Duration = Duration::from_millis(1);

/// A log that commits nothing for so long has a fault.
const COMMIT_LIMIT: Duration = Duration::from_secs(60);

/// Cost of building.
#[derive(Debug, Clone)]
pub(crate) struct Built {
    pub(crate) took: Duration,
    pub(crate) requests: Requests,
}

/// Whoever built a log, and still is its owner: it has not closed it.
pub(super) struct Builder {
    pub(super) built: Built,
    site: Site,
}

impl Builder {
    /// Ends it, whether or not another is the owner by now.
    pub(super) fn end(self) {
        // It fails when another is, which changes nothing for that one.
        let _ = self.site.handle.close();
    }
}

/// The log that is being built.
struct Site {
    bucket: Arc<Bucket>,
    handle: LogHandle<Event<()>>,
}

fn failed(what: impl std::fmt::Display) -> BenchError {
    BenchError::Failed(format!("the log cannot be built: {what}"))
}

impl Site {
    fn open(url: &str, env: &[(String, String)]) -> Result<Self, BenchError> {
        let settings: Vec<(&str, &str)> =
            env.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let bucket =
            open_url_with(url, LOG, &settings, BucketOptions::default()).map_err(failed)?;
        let bucket = Arc::new(bucket);
        let options = ObjectDiskOptions { who: "bench catalog".into(), ..Default::default() };
        let disk = ObjectDisk::open(Arc::clone(&bucket), options).map_err(failed)?;
        let engine = Engine::new(EngineConfig::default(), NullSink);
        let (clock, entropy) = (SystemClock::default(), SystemEntropy::default());
        let (disk, clock) = (Arc::new(disk), Arc::new(clock));
        let opened = Log::open(LogOptions::object(), disk, clock, Box::new(entropy), engine);
        let (core, _) = opened.map_err(failed)?;
        let handle = core.spawn("catalog").map_err(failed)?;
        Ok(Self { bucket, handle })
    }

    /// Hands an event over, waiting for room.
    fn send(&self, event: Event<()>, weight_bytes: usize) -> Result<(), BenchError> {
        let mut event = event;
        loop {
            event = match self.handle.send(event, weight_bytes) {
                Ok(()) => return Ok(()),
                Err(SendError::Closed(_)) => return Err(failed("the log was closed")),
                // Stale means: sent by an old route, which nothing here has.
                Err(SendError::Busy(event) | SendError::Stale(event)) => event,
            };
            if self.handle.stats().failed > 0 {
                return Err(failed("the log has failed"));
            }
            std::thread::sleep(BUSY_PAUSE);
        }
    }

    fn ask(&self, op: Op) -> Result<OpOutcome, BenchError> {
        let (send, receive) = sync_channel(1);
        let respond = Box::new(move |outcome: OpResult| drop(send.send(outcome)));
        let weight = op.weight_bytes();
        self.send(Event::Op(op, respond), weight)?;
        receive.recv().map_err(failed)?.map_err(failed)
    }

    /// Runs many operations, which must all succeed.
    fn ask_all(&self, ops: impl Iterator<Item = Op>) -> Result<(), BenchError> {
        let (refused, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut asked = 0;
        for op in ops {
            let (refused, done) = (Arc::clone(&refused), Arc::clone(&done));
            let respond = Box::new(move |outcome: OpResult| {
                refused.fetch_add(u64::from(outcome.is_err()), Ordering::SeqCst);
                done.fetch_add(1, Ordering::SeqCst);
            });
            let weight = op.weight_bytes();
            self.send(Event::Op(op, respond), weight)?;
            asked += 1;
        }
        while done.load(Ordering::SeqCst) < asked {
            if self.handle.stats().failed > 0 {
                return Err(failed("the log has failed"));
            }
            std::thread::sleep(BUSY_PAUSE);
        }
        match refused.load(Ordering::SeqCst) {
            0 => Ok(()),
            refused => Err(failed(format!("{refused} of {asked} operations were refused"))),
        }
    }

    /// Waits until so many messages are committed: nobody awaits any, so the last may ride a timer.
    fn await_messages(&self, count: u64) -> Result<(), BenchError> {
        let (mut found, mut since) = (self.usage()?.messages, Instant::now());
        while found < count {
            if self.handle.stats().failed > 0 || since.elapsed() > COMMIT_LIMIT {
                return Err(failed(format!("{found} of {count} messages are there")));
            }
            std::thread::sleep(BUSY_PAUSE * 10);
            let now = self.usage()?.messages;
            if now > found {
                (found, since) = (now, Instant::now());
            }
        }
        Ok(())
    }

    fn usage(&self) -> Result<Usage, BenchError> {
        match self.ask(Op::Usage { account: None })? {
            OpOutcome::Usage(usage) => Ok(usage),
            other => Err(failed(format!("{other:?} instead of the totals"))),
        }
    }
}

fn stream_id(stream: u64) -> StreamId {
    StreamId(u32::try_from(stream).map_or(u32::MAX, |stream| stream + 1))
}

fn create_stream(stream: u64) -> Result<Op, BenchError> {
    let config = StreamConfig {
        name: format!("S{stream}"),
        subjects: vec![format!("s.{stream}.*")],
        ..StreamConfig::default()
    };
    let config = validate::stream_config(config, &Limits::default()).map_err(failed)?;
    let (id, account) = (stream_id(stream), AccountId::GLOBAL);
    Ok(Op::CreateStream { id, account, config: Box::new(config) })
}

fn create_consumer(shape: &Shape, consumer: u64) -> Op {
    let (stream, k) = shape.filter_of(consumer);
    let name = format!("C{consumer}");
    let config = ConsumerConfig {
        name: name.clone(),
        durable_name: name,
        ack_policy: AckPolicy::Explicit,
        filter_subject: format!("s.{stream}.{k}"),
        ..ConsumerConfig::default()
    };
    let stream_name = format!("S{stream}");
    let request = CreateConsumerRequest { stream_name, config, ..Default::default() };
    Op::CreateConsumer { id: stream_id(stream), request: PreparedConsumer::new(request) }
}

/// Publishes on their way into one event.
struct Batch {
    buf: Vec<u8>,
    items: Vec<Item>,
    body: Vec<u8>,
}

impl Batch {
    fn new(body_bytes: usize) -> Self {
        let body = Payload::new(body_bytes.max(1), 5).get(0)[..body_bytes].to_vec();
        Self { buf: body.clone(), items: Vec::with_capacity(BATCH_MESSAGES), body }
    }

    /// All messages share the one body at the beginning of the buffer.
    fn push(&mut self, stream: u64, k: u64) {
        let start = self.buf.len() as u32;
        self.buf.extend_from_slice(b"s.");
        push_u64(&mut self.buf, stream);
        self.buf.push(b'.');
        push_u64(&mut self.buf, k);
        let (empty, end) = (Span::default(), self.buf.len() as u32);
        self.items.push(Item::Publish(PublishItem {
            stream: stream_id(stream),
            hint: 0,
            subject: Span { start, end },
            reply: empty,
            headers: empty,
            body: Span { start: 0, end: self.body.len() as u32 },
        }));
    }

    fn take(&mut self) -> (Event<()>, usize) {
        let buf = std::mem::replace(&mut self.buf, self.body.clone());
        let items = std::mem::replace(&mut self.items, Vec::with_capacity(BATCH_MESSAGES));
        let weight = buf.len() + items.len() * ITEM_BYTES;
        (Event::Batch(ClientBatch { peer: (), buf: Bytes::from(buf), items }), weight)
    }
}

/// Builds the log that `shape` describes in a bucket without one, and leaves it as a server leaves it
/// that is killed: with an open segment that has no footer yet.
///
/// # Errors
/// When the store fails, or there is a log already.
pub(super) fn build(
    shape: &Shape,
    url: &str,
    env: &[(String, String)],
) -> Result<Builder, BenchError> {
    let started = Instant::now();
    let site = Site::open(url, env)?;
    if site.usage()?.streams > 0 {
        let text = format!("{url} holds a log with streams already; name another, or use --built");
        return Err(BenchError::Usage(text));
    }
    let streams: Result<Vec<Op>, BenchError> = (0..shape.streams).map(create_stream).collect();
    site.ask_all(streams?.into_iter())?;
    site.ask_all((0..shape.consumers).map(|consumer| create_consumer(shape, consumer)))?;
    publish(shape, &site)?;
    site.await_messages(shape.messages)?;
    let built = Built { took: started.elapsed(), requests: Requests::of(&site.bucket) };
    Ok(Builder { built, site })
}

fn publish(shape: &Shape, site: &Site) -> Result<(), BenchError> {
    let progress = ProgressBar::new(shape.messages);
    let style = ProgressStyle::with_template("{human_pos} of {human_len} messages, {per_sec}");
    progress.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let mut batch = Batch::new(shape.body_bytes);
    for (stream, first, count) in shape.stretches() {
        for n in first..first + count {
            batch.push(stream, n % shape.subjects_each);
        }
        progress.inc(count);
        if batch.items.len() >= BATCH_MESSAGES {
            let (event, weight) = batch.take();
            site.send(event, weight)?;
        }
    }
    progress.finish_and_clear();
    let (event, weight) = batch.take();
    site.send(event, weight)
}

/// Opens a log in a bucket and counts what it holds.
#[cfg(test)]
pub(super) fn count(url: &str, env: &[(String, String)]) -> Result<Usage, BenchError> {
    let site = Site::open(url, env)?;
    let usage = site.usage();
    site.handle.close().map_err(failed)?;
    usage
}
