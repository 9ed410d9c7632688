//! Moving a stream to another log while it is used: `STREAM.MOVE`.
//!
//! One task for each move drives a [`nuthatch_streams::migration::mover`], which decides about every
//! step: it copies what the stream holds into the new log, in the background and at a
//! bounded rate, and goes on where the copy ends after whatever stopped it. Once the copy is close
//! behind, the stream is held for a moment, the rest follows, and the new log makes the stream's
//! state durable: from then on it counts (`nuthatch_streams::migration` has the steps and what a
//! start makes of each). Names and routes change in one place, the registry; what connections have
//! sent by older routes is behind a gate of the old log's queue
//! ([`crate::logs_port::LogsPort::switch`]), so nothing is overtaken.

pub(super) mod apart;
mod mover;
pub(super) mod targets;

pub use crate::move_table::COPIES_AT_ONCE;

use crate::changing::ChangeRights;
use crate::core_port::CorePort;
use crate::envelope::{self, ResponseType};
use crate::log_calls::{BUSY_PAUSE, LogCalls};
use crate::log_names::{LogNames, log_tag};
use crate::logs_port::{LogsPort, NotTaken};
use crate::move_table::{Moves, Progress};
use crate::other_nodes::OtherNodes;
use crate::outcome::{Answer, described, placement_error};
use crate::pending_changes::{CHANGE_TIMEOUT, Changing};
use crate::placing::Placing;
use crate::registry::{Entry, is_memory_log, is_quorum_log};
use crate::request::parse_optional;
use crate::stream_table::StreamTable;
use apart::Apart;
use mover::MoveDriver;
use nuthatch_log::StreamId;
use nuthatch_protocol::js::{StorageType, StreamConfig};
use nuthatch_protocol::jserror::JsError;
use nuthatch_server::jetstream_port::MoveReport;
use nuthatch_server::jetstream_port::{LogId, StreamRoute};
use nuthatch_streams::migration::{LogStream, Resume};
use nuthatch_streams::op::{CatalogEntry, Forgotten, OpResult};
use nuthatch_streams::stream::StreamLocation;
use nuthatch_streams::{AccountId, Op};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use targets::Targets;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

/// Bytes a second that a copy takes unless the request says otherwise.
pub const RATE_DEFAULT_BYTES: u64 = 64 << 20;
/// Moves under way at which no further stream is raised to a quorum log by itself.
const RAISED_AT_ONCE: usize = 2 * COPIES_AT_ONCE;
const RAISED_PAUSE: Duration = Duration::from_millis(50);
/// Streams for which a quorum log is looked for at a time.
pub(super) const RAISING_AT_ONCE: usize = 64;
/// A move that was given up since one of its logs has left is begun anew after this, where that is wanted.
const RAISED_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How long it is waited for a stream that has moved to answer, before its log is opened anew.
const SERVED_WITHIN: Duration = Duration::from_secs(2);
/// How long a deletion waits for the log that its stream has left.
const FORGET_TIMEOUT: Duration = Duration::from_secs(4);

/// Options of `STREAM.MOVE`; without any the report is returned.
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
    /// The log it lives in.
    log: String,
    /// True if a move is under way.
    moving: bool,
    #[serde(rename = "move", skip_serializing_if = "Option::is_none")]
    report: Option<MoveReport>,
}

/// Moves streams.
pub(super) struct StreamMoves {
    /// Unknown JSON fields are errors.
    pub(super) strict: bool,
    pub(super) core: Arc<dyn CorePort>,
    pub(super) logs: Arc<dyn LogsPort>,
    pub(super) names: Arc<LogNames>,
    pub(super) streams: Arc<StreamTable>,
    pub(super) calls: Arc<LogCalls>,
    pub(super) rights: Arc<ChangeRights>,
    pub(super) table: Arc<Moves>,
    pub(super) apart: Arc<Apart>,
    pub(super) targets: Targets,
    pub(super) nodes: Arc<OtherNodes>,
    pub(super) placing: Placing,
    /// Room for streams that are being raised.
    pub(super) raising: Arc<Semaphore>,
}

impl StreamMoves {
    /// `STREAM.MOVE`: begins a move, gives one up, or tells how one is doing.
    pub(super) async fn call(
        self: &Arc<Self>,
        account: AccountId,
        name: &str,
        body: &[u8],
    ) -> Answer {
        let request: MoveRequest = parse_optional(body, self.strict)?;
        let entry = self.streams.entry(account, name)?;
        let known = self.table.of(account, name);
        let under_way = known.clone().filter(|progress| progress.is_under_way());
        if request.cancel && self.apart.keep(account, name) {
            return Ok(self.answer(account, name));
        }
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
                self.begin(&entry, &request).await?;
            }
            (false, _) => {}
        }
        Ok(self.answer(account, name))
    }

    fn answer(&self, account: AccountId, name: &str) -> Vec<u8> {
        let progress = self.table.of(account, name);
        let engine = self.streams.read().get(account, name).map(|entry| entry.engine);
        let body = MoveBody {
            stream: name.to_owned(),
            log: engine.map_or_else(String::new, |engine| self.names.name_of(engine)),
            moving: progress.as_ref().is_some_and(|progress| progress.is_under_way()),
            report: progress.map(|progress| progress.report()),
        };
        envelope::ok(ResponseType("stream_move"), &body)
    }

    async fn begin(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        request: &MoveRequest,
    ) -> Result<(), JsError> {
        self.check_begin(entry, &request.log)?;
        if self.is_there_already(entry, &request.log) {
            return Ok(());
        }
        let target = self.targets.named(entry.account, &request.log).await?;
        let changing = self.rights.lock(entry.account, &entry.config.name).await?;
        let entry = self.streams.entry(entry.account, &entry.config.name)?;
        self.check_begin(&entry, &request.log)?;
        self.names.check_syncs(target)?;
        if self.is_there_already(&entry, &request.log) {
            return Ok(());
        }
        let arriving = timeout(CHANGE_TIMEOUT, self.begin_arrival(target, &entry)).await;
        let (id, arriving) =
            arriving.map_err(|_| self.rights.not_answering(target, "the move"))??;
        let rate = if request.max_rate == 0 { RATE_DEFAULT_BYTES } else { request.max_rate };
        let mover = self.new_move(&entry, StreamRoute { log: target, stream: id }, rate);
        // Its identity stands in the log's queue, and the move is known: other changes need not
        // wait for the new log, which may be a bucket that does not answer.
        drop(changing);
        let arrived = arriving.await.unwrap_or_else(|_| Err(closed()));
        if let Err(error) = arrived {
            mover.give_up(&error).await;
            return Err(error);
        }
        tokio::spawn(mover.run());
        Ok(())
    }

    /// Whether a stream may move to a log of this name, as far as this node knows without that log.
    fn check_begin(&self, entry: &Entry, to: &str) -> Result<(), JsError> {
        if entry.config.storage == StorageType::Memory {
            return Err(placement_error("a stream of storage 'memory' lives in no other log"));
        }
        check_replicas(&entry.config, to, self.names.node().is_some())?;
        self.placing.check_tags(entry.account, &entry.config, to)?;
        self.names.check_syncs(entry.engine)?;
        let name = &entry.config.name;
        match self.nodes.find(entry.account, name).filter(|_| is_quorum_log(to)) {
            Some((node, _)) => Err(placement_error(&format!(
                "node {node} has a stream {name:?}, too: in the logs of the cluster a name is one stream's"
            ))),
            None if is_quorum_log(to) => match self.nodes.offline(entry.account, name) {
                Some(offline) => Err(placement_error(&format!(
                    "there is another stream of this name: {}",
                    offline.description
                ))),
                None => Ok(()),
            },
            None => Ok(()),
        }
    }

    fn is_there_already(&self, entry: &Entry, to: &str) -> bool {
        let (account, name) = (entry.account, &entry.config.name);
        self.names.name_of(entry.engine) == to || self.table.report_of(account, name).is_some()
    }

    /// A stream has taken over in a log. Where it never gets what the engine of the other log had in memory, since that log is
    /// another node's by now, it is served where its log is opened anew.
    pub(super) fn reopen_unless_served(self: &Arc<Self>, stream: String, at: StreamRoute) {
        let moves = self.clone();
        tokio::spawn(async move {
            let op = Op::StreamInfo {
                id: at.stream,
                deleted_details: false,
                subjects_filter: String::new(),
                offset: 0,
            };
            let name = moves.names.name_of(at.log);
            let is_served = timeout(SERVED_WITHIN, moves.calls.run(at.log, op)).await.is_ok();
            if is_served || name.is_empty() {
                return;
            }
            moves.core.say(&format!(
                "log {name} is opened anew: stream {stream:?} has moved there while the log that it came from left this node"
            ));
            if is_quorum_log(&name) {
                // Another node opens it, or this one again.
                drop(moves.core.step_down(&name, None));
            } else if let Err(why) = moves.logs.reopen(at.log).await {
                let what =
                    format!("log {name} was not opened anew ({why}): start this server again");
                moves.core.warn(&what);
            }
        });
    }

    /// What records of moves call a stream.
    fn location(&self, route: StreamRoute) -> StreamLocation {
        StreamLocation { log: self.names.place_of(route.log), stream: route.stream }
    }

    fn new_move(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        copy: StreamRoute,
        rate_bytes: u64,
    ) -> MoveDriver {
        let (from, to) = (self.names.name_of(entry.engine), self.names.name_of(copy.log));
        let progress = Progress::new((&from, &to), self.location(copy), rate_bytes);
        self.table.add((entry.account, entry.config.name.clone()), progress.clone());
        let source = StreamRoute { log: entry.engine, stream: entry.id };
        let (account, name) = (entry.account, entry.config.name.clone());
        let (service, origin) = (self.clone(), Instant::now());
        let (source_place, copy_place) = (self.location(source), self.location(copy));
        MoveDriver {
            service,
            account,
            name,
            source,
            copy,
            source_place,
            copy_place,
            progress,
            origin,
        }
    }

    /// True if a stream with this configuration is to be kept by several nodes and is in a log of this one only: it moves to
    /// a quorum log by itself. One whose tag names its log stays there.
    pub(super) fn is_to_be_raised(&self, config: &StreamConfig, log: LogId) -> bool {
        self.names.node().is_some()
            && config.num_replicas > 1
            && config.storage == StorageType::File
            && log_tag(config).is_none()
            && !is_quorum_log(&self.names.name_of(log))
    }

    /// Whether a stream of this node may get this configuration, as far as that has it moved.
    ///
    /// # Errors
    /// It could not move to a quorum log, or is on its way to a log of one node.
    pub(super) fn check_raised(&self, config: &StreamConfig, entry: &Entry) -> Result<(), JsError> {
        if self.is_to_be_raised(config, entry.engine) {
            self.names.check_syncs(entry.engine)?;
        }
        match self.table.report_of(entry.account, &entry.config.name) {
            Some(report) => check_replicas(config, &report.to, self.names.node().is_some()),
            None => Ok(()),
        }
    }

    /// Has a stream moved to a quorum log, unless it moves already.
    pub(super) fn raise(self: &Arc<Self>, entry: Arc<Entry>) {
        if self.table.report_of(entry.account, &entry.config.name).is_some() {
            return;
        }
        let moves = self.clone();
        let Ok(turn) = self.raising.clone().try_acquire_owned() else {
            let why = "too many streams look for a quorum log at the moment";
            return self
                .say_not_raised(&entry, &described(JsError::CLUSTER_NOT_AVAIL, why.to_owned()));
        };
        tokio::spawn(async move {
            let _turn = turn;
            let target = moves.targets.any(entry.account).await;
            if let Err(error) = moves.raise_to(&entry, target).await {
                moves.say_not_raised(&entry, &error);
            }
        });
    }

    /// The same after a move that was given up, if this node owns a quorum log still.
    fn raise_again(self: &Arc<Self>, account: AccountId, name: String) {
        let moves = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(RAISED_AGAIN_AFTER).await;
            let entry = moves.streams.read().get(account, &name).cloned();
            let raised = entry.filter(|entry| moves.is_to_be_raised(&entry.config, entry.engine));
            if let Some(entry) = raised.filter(|_| moves.targets.here(account).is_some()) {
                moves.raise(entry);
            }
        });
    }

    /// Has all streams moved to a quorum log, which has come here, that are to be kept by several nodes and are not.
    pub(super) fn raise_all(self: &Arc<Self>, log: LogId) {
        let local: Vec<LogId> = self
            .names
            .all()
            .into_iter()
            .filter(|(name, _)| !is_quorum_log(name) && !is_memory_log(name))
            .map(|(_, log)| log)
            .collect();
        let waiting: Vec<Arc<Entry>> = {
            let registry = self.streams.read();
            let has_local =
                |account: &AccountId| local.iter().any(|log| registry.count_in(*account, *log) > 0);
            let accounts: Vec<AccountId> = registry.accounts().filter(has_local).collect();
            let entries = accounts.into_iter().flat_map(|account| registry.of_account(account));
            entries
                .filter(|entry| self.is_to_be_raised(&entry.config, entry.engine))
                .cloned()
                .collect()
        };
        if waiting.is_empty() {
            return;
        }
        let moves = self.clone();
        tokio::spawn(async move {
            for entry in waiting {
                let is_gone = || !moves.logs.is_attached(log) || moves.logs.is_withdrawn(log);
                while moves.table.active.load(Ordering::Acquire) >= RAISED_AT_ONCE && !is_gone() {
                    tokio::time::sleep(RAISED_PAUSE).await;
                }
                if is_gone() {
                    return;
                }
                if let Err(error) = moves.raise_to(&entry, Ok(log)).await {
                    moves.say_not_raised(&entry, &error);
                }
            }
        });
    }

    async fn raise_to(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        target: Result<LogId, JsError>,
    ) -> Result<(), JsError> {
        let log = self.names.name_of(target?);
        self.begin(entry, &MoveRequest { log, ..MoveRequest::default() }).await
    }

    fn say_not_raised(&self, entry: &Entry, error: &JsError) {
        let (name, replicas) = (&entry.config.name, entry.config.num_replicas);
        self.core.warn(&format!(
            "stream {name:?} is to be kept by {replicas} nodes and is on this one only: it did not begin to move to a quorum \
             log ({error}). It is tried again when a quorum log comes to this node, or with the next update of the stream"
        ));
    }

    /// Goes on with moves that a stop of the server interrupted, between these logs.
    pub(super) fn resume(self: &Arc<Self>, logs: &[LogId], moves: &[Resume]) {
        for resume in moves {
            let source = StreamRoute { log: logs[resume.source.log], stream: resume.source.stream };
            let copy = StreamRoute { log: logs[resume.copy.log], stream: resume.copy.stream };
            let entry = self.streams.read().by_route(source).cloned();
            let Some(entry) = entry else { continue };
            tokio::spawn(self.new_move(&entry, copy, RATE_DEFAULT_BYTES).run());
        }
    }

    /// Forgets what a start has found of streams that live elsewhere, and copies of none.
    pub(super) async fn forget_left(
        &self,
        logs: &[LogId],
        found: &[LogStream],
        catalogs: &[Vec<CatalogEntry>],
    ) {
        for left in found {
            let engine = logs[left.log];
            let op = Op::Forget { id: left.stream, what: Forgotten::Any };
            let Err(error) = self.calls.run(engine, op).await else { continue };
            let log = self.names.name_of(engine);
            self.core.say(&format!(
                "what is left in log {log} of a stream that moved away stays: {error}"
            ));
            let entry = catalogs[left.log].iter().find(|entry| entry.id == left.stream);
            if let Some(entry) = entry.filter(|entry| !entry.provenance.arriving) {
                self.note_unforgotten(entry, &log, &error);
            }
        }
    }

    fn note_unforgotten(&self, left: &CatalogEntry, log: &str, error: &JsError) {
        let (account, name) = (left.account, &left.config.name);
        let Some(entry) = self.streams.read().get(account, name).cloned() else { return };
        let to = self.names.name_of(entry.engine);
        let progress = Progress::new((log, &to), self.location(entry.route()), 0);
        progress.switched.store(true, Ordering::Release);
        *progress.error.lock() = Some(error.to_string());
        self.table.add((account, name.to_owned()), progress);
    }

    /// The right to change the registry, once no other log holds anything of this stream: were it
    /// deleted before, a start that finds it there would take it for one that has never left.
    pub(super) async fn lock_forgotten(
        &self,
        account: AccountId,
        name: &str,
    ) -> Result<Changing, JsError> {
        let until = Instant::now() + FORGET_TIMEOUT;
        loop {
            let guard = self.rights.lock(account, name).await?;
            let Some(progress) = self.table.unforgotten(account, name) else { return Ok(guard) };
            drop(guard);
            if Instant::now() >= until {
                return Err(JsError::STREAM_DELETE.with_err(format!(
                    "log {} still holds what is left of this stream from before it moved, and does \
                     not take writes: try again once it does",
                    progress.from
                )));
            }
            tokio::time::sleep(BUSY_PAUSE).await;
        }
    }

    /// Begins a copy of a stream in another log without waiting for the outcome.
    async fn begin_arrival(
        &self,
        target: LogId,
        entry: &Entry,
    ) -> Result<(StreamId, oneshot::Receiver<OpResult>), JsError> {
        let from = self.location(entry.route());
        let arrive = |id| Op::Arrive {
            id,
            account: entry.account,
            config: Box::new((*entry.config).clone()),
            from: from.clone(),
            created: entry.created,
        };
        loop {
            match self.calls.submit_new(target, arrive) {
                (id, Ok(receiver)) => return Ok((id, receiver)),
                (_, Err(NotTaken::Busy)) => tokio::time::sleep(BUSY_PAUSE).await,
                (_, Err(NotTaken::Closed)) => return Err(closed()),
            }
        }
    }
}

/// A stream that is kept by several nodes does not move to a log of one.
fn check_replicas(config: &StreamConfig, log: &str, is_node: bool) -> Result<(), JsError> {
    if !is_node || config.num_replicas <= 1 || is_quorum_log(log) {
        return Ok(());
    }
    let (name, replicas) = (&config.name, config.num_replicas);
    let why = format!(
        "no suitable peers for placement: stream {name:?} is kept by {replicas} nodes, and log '{log}' is on one: set its \
         replicas to 1 first"
    );
    Err(JsError::CLUSTER_NO_PEERS.with_err(why))
}

fn closed() -> JsError {
    JsError::CLUSTER_NOT_AVAIL
}

#[cfg(test)]
mod tests;
