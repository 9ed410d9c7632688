//! `STREAM.SNAPSHOT`: a stream as an archive, in chunks, each of which its receiver acknowledges.
//!
//! The archive is made while it is sent: what is in memory is a stretch of the stream, the
//! consumers' states, and what does not fill a chunk yet. It holds the stream as of the request;
//! what is deleted meanwhile may be missing in it, what comes later is not in it.

use crate::core_port::CorePort;
use crate::log_calls::LogCalls;
use crate::outcome::{Answer, Work, unexpected};
use crate::registry::Entry;
use crate::request::{is_empty, parse};
use crate::stream_table::StreamTable;
use crate::transfers::{SNAPSHOTS_MAX, SNAPSHOTS_OF_ACCOUNT_MAX, Transfers};
use crate::{envelope, envelope::ResponseType};
use nuthatch_archive::SnapshotWriter;
use nuthatch_protocol::js::{ConsumerSnapshot, StreamConfig, StreamState, Time};
use nuthatch_protocol::jserror::JsError;
use nuthatch_protocol::subject::is_valid_publish_subject;
use nuthatch_server::jetstream_port::Requester;
use nuthatch_server::random::random_id;
use nuthatch_server::shares::{Full, Share};
use nuthatch_streams::op::{Range, RangeRequest};
use nuthatch_streams::{AccountId, Message, Op, OpOutcome};
use serde::{Deserialize, Serialize};
use serde_json::{Map, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};

/// Memory of a message that a consumer has out.
const PENDING_BYTES: usize = 64;
/// Bytes of a chunk, unless the request says otherwise, and what it may say.
const CHUNK_BYTES: (usize, usize, usize) = (1 << 10, 128 << 10, 1 << 20);
/// Bytes on their way at once, unless the request says otherwise, and what it may say.
const WINDOW_BYTES: (usize, usize, usize) = (1 << 10, 8 << 20, 32 << 20);
/// A receiver that acknowledges nothing for so long has gone.
const ACK_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the receiver may take to subscribe.
const INTEREST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a wildcard alone does not count as that, as upstream: clients listen on one for all
/// answers to their requests, and drop what no request of theirs is waiting for. jsm.go, and with it
/// `nats stream backup`, names such a subject and subscribes to it only after the answer.
const LITERAL_TIMEOUT: Duration = Duration::from_secs(2);
/// How often it is looked whether it has.
const INTEREST_POLL: Duration = Duration::from_millis(10);
/// Characters of the random part of a subject.
const SUBJECT_ID_CHARS: usize = 22;

#[derive(Deserialize, Default)]
#[serde(default)]
struct SnapshotRequest {
    deliver_subject: String,
    no_consumers: bool,
    chunk_size: i64,
    window_size: i64,
    /// Every message that is read is checked anyway.
    jsck: bool,
}

#[derive(Serialize)]
struct SnapshotBody<'a> {
    config: &'a StreamConfig,
    state: &'a StreamState,
}

/// Why a snapshot was not made to its end, as the receiver is told.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
enum Broken {
    /// The deliver subject has no subscriber (any more).
    #[error("no interest")]
    NoInterest,
    /// Chunks are not acknowledged.
    #[error("no flow response")]
    NoFlow,
    /// The stream could not be read.
    #[error("{0}")]
    Failed(String),
}

impl Broken {
    fn status(&self) -> String {
        match self {
            Self::NoInterest => "NATS/1.0 408 No Interest\r\n\r\n".to_owned(),
            Self::NoFlow => "NATS/1.0 408 No Flow Response\r\n\r\n".to_owned(),
            Self::Failed(why) => {
                let why = why.replace(['\r', '\n'], " ");
                format!("NATS/1.0 500 {why}\r\n\r\n")
            }
        }
    }
}

impl From<JsError> for Broken {
    fn from(error: JsError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<std::io::Error> for Broken {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// The wanted value within its bounds; `(smallest, default, largest)`.
fn within(wanted: i64, (min, default, max): (usize, usize, usize)) -> usize {
    match usize::try_from(wanted) {
        Ok(0) => default,
        Ok(wanted) => wanted.clamp(min, max),
        Err(_) => min,
    }
}

/// A snapshot on its way.
struct Snapshot {
    service: Arc<Snapshots>,
    from: Requester,
    entry: Arc<Entry>,
    request: SnapshotRequest,
    state: StreamState,
    _place: Share,
}

/// Chunks on their way to the receiver.
struct Chunks<'a> {
    service: &'a Snapshots,
    account: AccountId,
    to: &'a str,
    /// Prefix of acknowledgement subjects.
    acks: String,
    chunk_bytes: usize,
    in_flight_max: usize,
    sent: usize,
    acked: Arc<Acked>,
}

/// Acknowledgements so far.
#[derive(Default)]
struct Acked {
    count: AtomicUsize,
    more: Notify,
}

/// Makes snapshots of streams.
pub(super) struct Snapshots {
    /// Unknown JSON fields are errors.
    pub(super) strict: bool,
    pub(super) core: Arc<dyn CorePort>,
    pub(super) streams: Arc<StreamTable>,
    pub(super) calls: Arc<LogCalls>,
    pub(super) transfers: Arc<Transfers>,
}

impl Snapshots {
    /// `STREAM.SNAPSHOT`
    pub(super) async fn begin(
        self: &Arc<Self>,
        from: &Requester,
        name: &str,
        body: &[u8],
        then: &mut Option<Work>,
    ) -> Answer {
        if is_empty(body) {
            return Err(JsError::BAD_REQUEST);
        }
        let entry = self.streams.entry(from.account, name)?;
        let request: SnapshotRequest = parse(body, self.strict)?;
        if !is_valid_publish_subject(request.deliver_subject.as_bytes()) {
            return Err(JsError::SNAPSHOT_DELIVER_SUBJECT_INVALID);
        }
        let place = self.transfers.snapshots.take(from.account, 1);
        let place = place.map_err(|full| JsError::STREAM_SNAPSHOT.with_err(too_many(full)))?;
        let state = self.calls.current_info(&entry).await?.state;
        let body = SnapshotBody { config: &entry.config, state: &state };
        let answer = envelope::ok(ResponseType("stream_snapshot"), &body);
        let (service, from) = (self.clone(), from.clone());
        let snapshot = Snapshot { service, from, entry, request, state, _place: place };
        *then = Some(Box::pin(snapshot.run()));
        Ok(answer)
    }
}

fn too_many(full: Full) -> String {
    match full {
        Full::All => format!("{SNAPSHOTS_MAX} snapshots are under way: try again"),
        Full::Account => {
            format!("{SNAPSHOTS_OF_ACCOUNT_MAX} snapshots of this account are under way: try again")
        }
    }
}

/// The fields that tell how long something took.
pub(super) fn times(start: Time, end: Time) -> Map<String, serde_json::Value> {
    let mut fields = Map::new();
    fields.insert("start".to_owned(), json!(start));
    fields.insert("end".to_owned(), json!(end));
    fields
}

impl Snapshot {
    async fn run(self) {
        let (service, name) = (&self.service, &self.entry.config.name);
        let start = service.core.now();
        let mut fields = Map::new();
        fields.insert("state".to_owned(), json!(self.state));
        service.transfers.tell(&self.from, "snapshot_create", name, fields);
        let result = self.send().await;
        let (status, error) = match result {
            Ok(()) => ("NATS/1.0 204\r\n\r\n".to_owned(), String::new()),
            Err(broken) => {
                if let Broken::Failed(why) = &broken {
                    service.core.say(&format!("the backup of stream {name} failed: {why}"));
                }
                (broken.status(), broken.to_string())
            }
        };
        self.publish(status.as_bytes());
        let mut fields = times(start, service.core.now());
        if !error.is_empty() {
            fields.insert("error".to_owned(), json!(error));
        }
        service.transfers.tell(&self.from, "snapshot_complete", name, fields);
    }

    /// The last message, which says how it went.
    fn publish(&self, headers: &[u8]) {
        let subject = self.request.deliver_subject.as_bytes();
        let message = Message { subject, reply: b"", headers, body: b"" };
        self.service.core.publish(self.from.account, &message);
    }

    async fn send(&self) -> Result<(), Broken> {
        let acked = Arc::new(Acked::default());
        let routing = &*self.service.core;
        let name = &self.entry.config.name;
        let acks = format!("$JS.SNAPSHOT.ACK.{name}.{}", random_id(SUBJECT_ID_CHARS));
        let counter = acked.clone();
        let take = Box::new(move |_: &Message<'_>| {
            counter.count.fetch_add(1, Ordering::AcqRel);
            counter.more.notify_one();
        });
        let _subscribed = routing
            .subscribe(self.from.account, &format!("{acks}.>"), take)
            .ok_or_else(|| Broken::Failed("the account is gone".to_owned()))?;
        let chunk_bytes = within(self.request.chunk_size, CHUNK_BYTES);
        let window = within(self.request.window_size, WINDOW_BYTES).max(chunk_bytes);
        let chunks = Chunks {
            service: &self.service,
            account: self.from.account,
            to: &self.request.deliver_subject,
            acks,
            chunk_bytes,
            in_flight_max: window / chunk_bytes,
            sent: 0,
            acked,
        };
        self.stream(chunks).await
    }

    async fn stream(&self, mut chunks: Chunks<'_>) -> Result<(), Broken> {
        chunks.wait_for_interest().await?;
        let now_ns = self.service.core.now().0;
        let bytes = self.service.transfers.bytes.take(self.from.account, 0);
        let mut bytes = bytes.expect("there is always room for nothing");
        let consumers = self.consumers(&mut bytes).await?;
        let mut state = self.state.clone();
        state.consumer_count = consumers.len() as u64;
        let mut writer = SnapshotWriter::new(Vec::new(), &state, now_ns)?;
        for consumer in consumers {
            writer.consumer(&consumer, now_ns)?;
            chunks.send_full(writer.get_mut()).await?;
        }
        let mut next = state.first_seq.max(1);
        while next <= state.last_seq {
            let range = self.range(next).await?;
            if range.next <= next {
                return Err(Broken::Failed("the stream was deleted".to_owned()));
            }
            next = range.next;
            for message in range.messages.iter().filter(|found| found.seq <= state.last_seq) {
                writer.message(&nuthatch_archive::Message {
                    seq: message.seq,
                    time_ns: message.time.0,
                    subject: &message.subject,
                    headers: &message.headers,
                    body: &message.body,
                })?;
                chunks.send_full(writer.get_mut()).await?;
            }
        }
        let mut rest = writer.finish()?;
        chunks.send_full(&mut rest).await?;
        if !rest.is_empty() {
            chunks.publish(&rest, b"");
        }
        Ok(())
    }

    async fn range(&self, from: u64) -> Result<Range, Broken> {
        let request = RangeRequest { from, ..RangeRequest::default() };
        let op = Op::ReadRange { id: self.entry.id, request };
        match self.service.calls.run(self.entry.engine, op).await? {
            OpOutcome::Range(range) => Ok(range),
            other => Err(unexpected(&other).into()),
        }
    }

    /// The consumers, as of the last message of the snapshot, within a share of what all transfers may
    /// keep.
    async fn consumers(&self, share: &mut Share) -> Result<Vec<ConsumerSnapshot>, Broken> {
        let mut consumers = Vec::new();
        if self.request.no_consumers {
            return Ok(consumers);
        }
        let (id, engine) = (self.entry.id, self.entry.engine);
        let op = Op::ListConsumers { id, offset: 0, limit: usize::MAX, names_only: true };
        let names = match self.service.calls.run(engine, op).await? {
            OpOutcome::Consumers { names, .. } => names,
            other => return Err(unexpected(&other).into()),
        };
        for name in names {
            match self.service.calls.run(engine, Op::ConsumerState { id, name }).await {
                Ok(OpOutcome::ConsumerState(mut consumer)) => {
                    let mut bytes = size_of::<ConsumerSnapshot>();
                    if let Some(state) = &mut consumer.state {
                        state.cut(self.state.last_seq);
                        bytes += state.pending.len() * PENDING_BYTES;
                    }
                    if share.grow(bytes).is_err() {
                        let why =
                            "consumers have more messages out than snapshots may keep in memory";
                        return Err(Broken::Failed(why.to_owned()));
                    }
                    consumers.push(*consumer);
                }
                Ok(other) => return Err(unexpected(&other).into()),
                // Gone since the list was made.
                Err(error) if error.err_code == JsError::CONSUMER_NOT_FOUND.err_code => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(consumers)
    }
}

impl Chunks<'_> {
    fn has_interest(&self) -> bool {
        self.service.core.listens(self.account, self.to.as_bytes())
    }

    async fn wait_for_interest(&self) -> Result<(), Broken> {
        let start = Instant::now();
        let routing = &*self.service.core;
        while !routing.listens_to_just(self.account, self.to.as_bytes()) {
            if start.elapsed() > LITERAL_TIMEOUT && self.has_interest() {
                return Ok(());
            }
            if start.elapsed() > INTEREST_TIMEOUT {
                return Err(Broken::NoInterest);
            }
            sleep(INTEREST_POLL).await;
        }
        Ok(())
    }

    fn publish(&self, body: &[u8], reply: &[u8]) {
        let message = Message { subject: self.to.as_bytes(), reply, headers: b"", body };
        self.service.core.publish(self.account, &message);
    }

    /// Sends what fills whole chunks and takes it off the front of `bytes`.
    async fn send_full(&mut self, bytes: &mut Vec<u8>) -> Result<(), Broken> {
        let full = bytes.len() - bytes.len() % self.chunk_bytes;
        for chunk in bytes[..full].chunks(self.chunk_bytes) {
            self.wait_for_room().await?;
            self.sent += 1;
            let reply = format!("{}.{}.{}", self.acks, chunk.len(), self.sent);
            self.publish(chunk, reply.as_bytes());
        }
        bytes.drain(..full);
        Ok(())
    }

    /// Waits until another chunk may be on its way.
    async fn wait_for_room(&self) -> Result<(), Broken> {
        let deadline = Instant::now() + ACK_TIMEOUT;
        loop {
            if !self.has_interest() {
                return Err(Broken::NoInterest);
            }
            let more = self.acked.more.notified();
            let acked = self.acked.count.load(Ordering::Acquire);
            if self.sent.saturating_sub(acked) < self.in_flight_max {
                return Ok(());
            }
            timeout_at(deadline, more).await.map_err(|_| Broken::NoFlow)?;
        }
    }
}
