//! Moving a stream to another log while it is used: `STREAM.MOVE`.
//!
//! One task for each move copies what the stream holds into the new log, in the background and at a
//! bounded rate, and goes on where the copy ends after whatever stopped it. Once the copy is close
//! behind, the stream is held for a moment, the rest follows, and the new log makes the stream's
//! state durable: from then on it counts (`nuthatch_streams::transit` has the steps and what a start
//! makes of each). Names and routes change in one place, the registry; what connections have sent by
//! older routes is behind a gate of the old log's queue ([`super::backend::Backend::switch`]), so
//! nothing is overtaken.

use super::envelope::{self, ResponseType};
use super::registry::{EngineIndex, Entry, StreamRoute};
use super::request::parse_optional;
use super::service::{Answer, DEFAULT_LOG, JetStream, LOG_TAG, placement_error, unexpected};
use nuthatch_log::StreamId;
use nuthatch_protocol::js::{StorageType, StreamConfig};
use nuthatch_protocol::jserror::JsError;
use nuthatch_streams::op::{OpResult, Range, RangeRequest};
use nuthatch_streams::stream::Place;
use nuthatch_streams::transit::Resume;
use nuthatch_streams::{AccountId, Op, OpOutcome};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};

/// Bytes a second that a copy takes unless the request says otherwise.
pub const RATE_DEFAULT_BYTES: u64 = 64 << 20;
/// A copy this many messages behind is close enough to hold the stream for the rest.
const SWITCH_LAG: u64 = 4096;
/// So long the stream is held for the rest of the copy. If that does not suffice it goes on, and
/// the copy with it; each further try may take longer by as much.
const HOLD_STEP: Duration = Duration::from_millis(600);
/// However many tries there were.
const HOLD_MAX: Duration = Duration::from_secs(20);
/// Answers to stores that may be outstanding: each is of at most 4 MiB.
const STORES_MAX: usize = 8;
/// After a problem a move waits so long, and twice as long after each further one.
const RETRY_MIN: Duration = Duration::from_millis(250);
/// At most.
const RETRY_MAX: Duration = Duration::from_secs(10);
/// How long a move waits for a queue that is full.
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// A stream by its account and name.
type Key = (AccountId, String);

/// Moves that are under way, and those that ended badly.
#[derive(Default)]
pub(super) struct Moves {
    known: Mutex<FxHashMap<Key, Arc<Progress>>>,
    /// How many are under way.
    pub(super) active: AtomicUsize,
}

/// How a move is doing.
#[derive(Debug)]
pub(super) struct Progress {
    from: String,
    to: String,
    copied: AtomicU64,
    last_seq: AtomicU64,
    rate_bytes: u64,
    cancelled: AtomicBool,
    wake: Notify,
    ended: AtomicBool,
    error: Mutex<Option<String>>,
}

impl Progress {
    fn new(from: &str, to: &str, rate_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            from: from.to_owned(),
            to: to.to_owned(),
            copied: AtomicU64::new(0),
            last_seq: AtomicU64::new(0),
            rate_bytes,
            cancelled: AtomicBool::new(false),
            wake: Notify::new(),
            ended: AtomicBool::new(false),
            error: Mutex::new(None),
        })
    }

    /// What there is to tell.
    pub(super) fn report(&self) -> MoveReport {
        MoveReport {
            from: self.from.clone(),
            to: self.to.clone(),
            copied_seq: self.copied.load(Ordering::Relaxed),
            last_seq: self.last_seq.load(Ordering::Relaxed),
            error: self.error.lock().clone(),
        }
    }

    fn is_under_way(&self) -> bool {
        !self.ended.load(Ordering::Acquire)
    }
}

/// How a move is doing, as answers, stream infos and `/jsz` show it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct MoveReport {
    /// Name of the log that it leaves.
    pub from: String,
    /// Name of the log that it goes to.
    pub to: String,
    /// Last sequence that is in the new log.
    pub copied_seq: u64,
    /// Last sequence of the stream.
    pub last_seq: u64,
    /// What went wrong last, if anything; it is tried again unless the move has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What `STREAM.MOVE` may say; nothing asks how a move is doing.
#[derive(Deserialize, Default)]
#[serde(default)]
struct MoveRequest {
    /// Name of the log to move to.
    log: String,
    /// Give the move up.
    cancel: bool,
    /// Bytes a second to copy at most; 0: the default.
    max_rate: u64,
}

#[derive(Serialize)]
struct MoveBody {
    stream: String,
    /// Where it lives.
    log: String,
    /// Whether a move is under way.
    moving: bool,
    #[serde(rename = "move", skip_serializing_if = "Option::is_none")]
    report: Option<MoveReport>,
}

/// How a move ends, or why it has not come to its end.
enum Fault {
    /// The stream or its copy is gone.
    Gone,
    /// Somebody gave it up.
    Cancelled,
    /// The new log stopped while it was taking over: what it holds shows after a restart.
    Undecided(JsError),
    /// It is worth another try.
    Problem(JsError),
}

impl From<JsError> for Fault {
    fn from(error: JsError) -> Self {
        if error.err_code == JsError::STREAM_NOT_FOUND.err_code {
            return Self::Gone;
        }
        Self::Problem(error)
    }
}

/// The log that a configuration asks for by a placement tag.
pub(super) fn log_tag(config: &StreamConfig) -> Option<&str> {
    let tags = config.placement.iter().flat_map(|placement| &placement.tags);
    tags.filter_map(|tag| tag.strip_prefix(LOG_TAG)).next()
}

/// A configuration for a stream that lives in log `to`: if it names a log, it names that one.
fn placed(config: &StreamConfig, to: &str) -> StreamConfig {
    let mut config = config.clone();
    if let Some(placement) = &mut config.placement {
        for tag in placement.tags.iter_mut().filter(|tag| tag.starts_with(LOG_TAG)) {
            *tag = format!("{LOG_TAG}{to}");
        }
    }
    config
}

impl JetStream {
    /// The name of a log.
    pub(super) fn log_name(&self, engine: EngineIndex) -> &str {
        match engine {
            EngineIndex::FILE => DEFAULT_LOG,
            EngineIndex::MEMORY => super::open::MEMORY_LOG,
            EngineIndex(at) => {
                let name = self.settings.logs.get(at - EngineIndex::FIRST_NAMED);
                name.map_or("", String::as_str)
            }
        }
    }

    fn log_by_name(&self, name: &str) -> Result<EngineIndex, JsError> {
        let placement = nuthatch_protocol::js::Placement {
            tags: vec![format!("{LOG_TAG}{name}")],
            ..Default::default()
        };
        let config = StreamConfig { placement: Some(placement), ..StreamConfig::default() };
        self.engine_for(&config)
    }

    /// How the move of a stream is doing, if one is under way.
    pub(super) fn move_of(&self, account: AccountId, name: &str) -> Option<MoveReport> {
        if self.moves.active.load(Ordering::Acquire) == 0 {
            return None;
        }
        let known = self.moves.known.lock();
        let progress = known.get(&(account, name.to_owned()))?;
        progress.is_under_way().then(|| progress.report())
    }

    /// `STREAM.MOVE`: begins a move, gives one up, or tells how one is doing.
    pub(super) async fn stream_move(
        self: &Arc<Self>,
        account: AccountId,
        name: &str,
        body: &[u8],
    ) -> Answer {
        let request: MoveRequest = parse_optional(body, self.settings.strict)?;
        let entry = self.entry(account, name)?;
        let known = self.moves.known.lock().get(&(account, name.to_owned())).cloned();
        let under_way = known.clone().filter(|progress| progress.is_under_way());
        match (request.cancel, under_way) {
            (true, Some(progress)) => {
                progress.cancelled.store(true, Ordering::Release);
                progress.wake.notify_one();
            }
            (true, None) => {
                return Err(placement_error("no move of this stream is under way"));
            }
            (false, Some(progress)) if !request.log.is_empty() && request.log != progress.to => {
                let text = format!(
                    "this stream is moving to log {:?} already: cancel that first",
                    progress.to
                );
                return Err(placement_error(&text));
            }
            (false, None) if !request.log.is_empty() => {
                self.begin_move(&entry, &request).await?;
            }
            (false, _) => {}
        }
        Ok(self.move_answer(account, name))
    }

    fn move_answer(&self, account: AccountId, name: &str) -> Vec<u8> {
        let key = (account, name.to_owned());
        let progress = self.moves.known.lock().get(&key).cloned();
        let engine = self.registry.read().get(account, name).map(|entry| entry.engine);
        let body = MoveBody {
            stream: name.to_owned(),
            log: engine.map_or("", |engine| self.log_name(engine)).to_owned(),
            moving: progress.as_ref().is_some_and(|progress| progress.is_under_way()),
            report: progress.map(|progress| progress.report()),
        };
        envelope::ok(ResponseType("stream_move"), &body)
    }

    async fn begin_move(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        request: &MoveRequest,
    ) -> Result<(), JsError> {
        let target = self.log_by_name(&request.log)?;
        let _changing = self.changing.lock().await;
        let entry = self.entry(entry.account, &entry.config.name)?;
        if entry.config.storage == StorageType::Memory {
            return Err(placement_error("a stream of storage 'memory' lives in no other log"));
        }
        if entry.engine == target || self.move_of(entry.account, &entry.config.name).is_some() {
            return Ok(());
        }
        let id = self.registry.write().fresh_id();
        let from = Place { log: self.log_name(entry.engine).to_owned(), stream: entry.id };
        let op = Op::Arrive {
            id,
            account: entry.account,
            config: Box::new((*entry.config).clone()),
            from,
            created: entry.created,
        };
        self.run(target, op).await?;
        let rate = if request.max_rate == 0 { RATE_DEFAULT_BYTES } else { request.max_rate };
        self.start_move(&entry, StreamRoute { engine: target, id }, rate);
        Ok(())
    }

    fn start_move(self: &Arc<Self>, entry: &Arc<Entry>, copy: StreamRoute, rate_bytes: u64) {
        let (from, to) = (self.log_name(entry.engine), self.log_name(copy.engine));
        let progress = Progress::new(from, to, rate_bytes);
        let key = (entry.account, entry.config.name.clone());
        self.moves.known.lock().insert(key, progress.clone());
        self.moves.active.fetch_add(1, Ordering::AcqRel);
        let source = StreamRoute { engine: entry.engine, id: entry.id };
        let (account, name) = (entry.account, entry.config.name.clone());
        let mover = Mover { service: self.clone(), account, name, source, copy, progress };
        tokio::spawn(mover.run());
    }

    /// Goes on with moves that a stop of the server interrupted.
    pub(super) fn resume_moves(self: &Arc<Self>, moves: &[Resume]) {
        for resume in moves {
            let source =
                StreamRoute { engine: EngineIndex(resume.source.log), id: resume.source.stream };
            let copy = StreamRoute { engine: EngineIndex(resume.copy.log), id: resume.copy.stream };
            let entry = self.registry.read().by_route(source).cloned();
            let Some(entry) = entry else { continue };
            self.start_move(&entry, copy, RATE_DEFAULT_BYTES);
        }
    }

    /// Begins an operation without waiting for its outcome.
    async fn begin(
        &self,
        engine: EngineIndex,
        op: Op,
    ) -> Result<oneshot::Receiver<OpResult>, JsError> {
        loop {
            let (sender, receiver) = oneshot::channel();
            let respond = Box::new(move |result| {
                // The move may have been given up.
                let _ = sender.send(result);
            });
            match self.backend.submit(engine, op.clone(), respond) {
                Ok(()) => return Ok(receiver),
                Err(super::backend::NotTaken::Busy) => tokio::time::sleep(BUSY_PAUSE).await,
                Err(super::backend::NotTaken::Closed) => return Err(closed()),
            }
        }
    }
}

fn closed() -> JsError {
    JsError::CLUSTER_NOT_AVAIL
}

/// Stores that are on their way, oldest first, with the last sequence of each.
#[derive(Default)]
struct Stores(VecDeque<(u64, oneshot::Receiver<OpResult>)>);

impl Stores {
    /// Waits until at most `left` are on their way. Returns the last sequence that is stored, if
    /// any ended.
    async fn settle(&mut self, left: usize) -> Result<Option<u64>, JsError> {
        let mut stored = None;
        while self.0.len() > left {
            let Some((seq, outcome)) = self.0.pop_front() else { break };
            outcome.await.map_err(|_| closed())??;
            stored = Some(seq);
        }
        Ok(stored)
    }
}

/// The task of one move.
struct Mover {
    service: Arc<JetStream>,
    account: AccountId,
    name: String,
    source: StreamRoute,
    copy: StreamRoute,
    progress: Arc<Progress>,
}

impl Mover {
    async fn run(self) {
        let mut wait = RETRY_MIN;
        let mut holds = 0;
        let ended = loop {
            let began = Instant::now();
            match self.attempt(&mut holds).await {
                Ok(held) => break Ok(held),
                Err(Fault::Problem(error)) => {
                    if began.elapsed() > RETRY_MAX {
                        wait = RETRY_MIN;
                    }
                    *self.progress.error.lock() = Some(error.to_string());
                    let woken = self.progress.wake.notified();
                    // Woken early, it was cancelled.
                    let _ = tokio::time::timeout(wait, woken).await;
                    wait = (wait * 2).min(RETRY_MAX);
                }
                Err(fault) => break Err(fault),
            }
        };
        self.end(ended).await;
    }

    /// Clears up, says how it ended.
    async fn end(&self, ended: Result<Duration, Fault>) {
        let (name, to) = (&self.name, &self.progress.to);
        let error = match ended {
            Ok(held) => {
                let ms = held.as_millis();
                self.service.backend.say(&format!(
                    "stream {name:?} has moved to log {to}; it was held for {ms} ms"
                ));
                None
            }
            Err(Fault::Cancelled) => {
                let stay = Op::Stay { id: self.source.id, for_good: true };
                match self.service.run(self.source.engine, stay).await {
                    Ok(_) => self.forget_copy().await,
                    Err(error) => self.service.backend.say(&format!(
                        "the move of stream {name:?} was not given up, a restart goes on with it: \
                         {error}"
                    )),
                }
                Some("cancelled".to_owned())
            }
            Err(Fault::Gone) => {
                self.forget_copy().await;
                Some("the stream was deleted".to_owned())
            }
            Err(Fault::Undecided(error) | Fault::Problem(error)) => {
                let text = format!(
                    "log {to} stopped while it took over stream {name:?} ({error}): the stream \
                     waits for a restart of the server, which finds out where it lives"
                );
                self.service.backend.say(&text);
                Some(text)
            }
        };
        let mut known = self.service.moves.known.lock();
        match error {
            None => {
                known.remove(&(self.account, name.clone()));
            }
            error => *self.progress.error.lock() = error,
        }
        drop(known);
        self.progress.ended.store(true, Ordering::Release);
        self.service.moves.active.fetch_sub(1, Ordering::AcqRel);
    }

    async fn forget_copy(&self) {
        // What stays is forgotten at the next start.
        let _ = self.service.run(self.copy.engine, Op::Forget { id: self.copy.id }).await;
    }

    /// Copies from where the copy ends, and switches. Returns how long the stream was held.
    async fn attempt(&self, holds: &mut u32) -> Result<Duration, Fault> {
        let mut next = self.copied().await? + 1;
        let mut stores = Stores::default();
        loop {
            if self.progress.cancelled.load(Ordering::Acquire) {
                return Err(Fault::Cancelled);
            }
            let began = Instant::now();
            let range = self.read(next).await?;
            let bytes = weight(&range);
            let last_seq = range.last_seq;
            self.progress.last_seq.store(last_seq, Ordering::Relaxed);
            next = self.store(next, range, &mut stores, STORES_MAX).await?;
            if last_seq < next + SWITCH_LAG {
                self.settle(&mut stores, 0).await?;
                *holds += 1;
                if let Some(held) = self.switch(next, *holds).await? {
                    return Ok(held);
                }
                next = self.copied().await? + 1;
            } else {
                self.pace(bytes, began).await;
            }
        }
    }

    /// Waits as long as the rate asks for after so many bytes.
    async fn pace(&self, bytes: u64, began: Instant) {
        let due = Duration::from_secs_f64(bytes as f64 / self.progress.rate_bytes.max(1) as f64);
        if let Some(pause) = due.checked_sub(began.elapsed()) {
            // Woken early, it was cancelled.
            let _ = tokio::time::timeout(pause, self.progress.wake.notified()).await;
        }
    }

    /// The last sequence that is durable in the copy.
    async fn copied(&self) -> Result<u64, JsError> {
        let op = Op::StreamInfo {
            id: self.copy.id,
            deleted_details: false,
            subjects_filter: String::new(),
            offset: 0,
        };
        match self.service.run(self.copy.engine, op).await? {
            OpOutcome::Stream { info, .. } => Ok(info.state.last_seq),
            other => Err(unexpected(&other)),
        }
    }

    async fn read(&self, from: u64) -> Result<Range, JsError> {
        let request = RangeRequest { from, ..RangeRequest::default() };
        let op = Op::ReadRange { id: self.source.id, request };
        let outcome = self.service.begin(self.source.engine, op).await?;
        match outcome.await.map_err(|_| closed())?? {
            OpOutcome::Range(range) => Ok(range),
            other => Err(unexpected(&other)),
        }
    }

    /// Sends what was read to the copy; returns where to go on.
    async fn store(
        &self,
        from: u64,
        range: Range,
        stores: &mut Stores,
        left: usize,
    ) -> Result<u64, JsError> {
        let next = range.next;
        if next > from {
            let (copies, gap_to) = (range.messages, next - 1);
            let op = Op::Mirror { id: self.copy.id, copies, gap_to };
            let outcome = self.service.begin(self.copy.engine, op).await?;
            stores.0.push_back((gap_to, outcome));
        }
        self.settle(stores, left).await?;
        Ok(next)
    }

    async fn settle(&self, stores: &mut Stores, left: usize) -> Result<(), JsError> {
        if let Some(seq) = stores.settle(left).await? {
            self.progress.copied.store(seq, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Holds the stream, copies the rest, and lets the new log take over. Returns how long the
    /// stream was held; `None` if the rest took too long, then it goes on where it was.
    async fn switch(&self, next: u64, tries: u32) -> Result<Option<Duration>, Fault> {
        let _changing = self.service.changing.lock().await;
        let entry = self.service.entry(self.account, &self.name)?;
        if (entry.engine, entry.id) != (self.source.engine, self.source.id) {
            return Err(Fault::Gone);
        }
        let config = placed(&entry.config, &self.progress.to);
        let began = Instant::now();
        let (state, last_seq) = self.leave(&config).await?;
        let allowed = (HOLD_STEP * tries).min(HOLD_MAX);
        match tokio::time::timeout(allowed, self.copy_rest(next, last_seq)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                self.stay().await?;
                return Err(error.into());
            }
            Err(_) => {
                self.stay().await?;
                return Ok(None);
            }
        }
        self.take_over(state).await?;
        let new = Entry {
            id: self.copy.id,
            engine: self.copy.engine,
            config: Arc::new(config),
            ..(*entry).clone()
        };
        let seen = self.service.change(|registry| {
            registry.rehome(&entry, new);
            registry.generation()
        });
        self.service.backend.switch(self.source, self.copy, seen);
        // Answered once the new engine has everything in hand.
        self.copied().await?;
        Ok(Some(began.elapsed()))
    }

    /// Holds the stream; returns its state and its last sequence once all of it is durable.
    async fn leave(&self, config: &StreamConfig) -> Result<(Vec<u8>, u64), JsError> {
        let to = Place { log: self.progress.to.clone(), stream: self.copy.id };
        let op = Op::Leave {
            id: self.source.id,
            log: self.progress.from.clone(),
            to,
            config: Box::new(config.clone()),
        };
        match self.service.run(self.source.engine, op).await? {
            OpOutcome::Left { state, last_seq } => Ok((state, last_seq)),
            other => Err(unexpected(&other)),
        }
    }

    async fn stay(&self) -> Result<(), JsError> {
        let op = Op::Stay { id: self.source.id, for_good: false };
        self.service.run(self.source.engine, op).await.map(drop)
    }

    async fn copy_rest(&self, mut next: u64, last_seq: u64) -> Result<(), JsError> {
        let mut stores = Stores::default();
        while next <= last_seq {
            let range = self.read(next).await?;
            next = self.store(next, range, &mut stores, STORES_MAX).await?;
        }
        self.settle(&mut stores, 0).await
    }

    /// The new log makes the state durable. If it stops meanwhile, nobody knows whether it has.
    async fn take_over(&self, state: Vec<u8>) -> Result<(), Fault> {
        let op = Op::Settle { id: self.copy.id, state };
        let Err(error) = self.service.run(self.copy.engine, op).await else { return Ok(()) };
        if self.service.backend.has_stopped(self.copy.engine) {
            return Err(Fault::Undecided(error));
        }
        self.stay().await?;
        Err(Fault::Problem(error))
    }
}

fn weight(range: &Range) -> u64 {
    let sizes = range.messages.iter().map(|message| message.publish().weight() as u64);
    sizes.sum()
}

/// A stream that an operation found at an old place.
pub(super) fn redirected(
    service: &JetStream,
    engine: EngineIndex,
    id: StreamId,
) -> Option<StreamRoute> {
    service.registry.read().moved(StreamRoute { engine, id })
}
