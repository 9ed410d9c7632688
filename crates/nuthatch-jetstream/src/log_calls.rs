//! Operations on the logs, as calls of the API send them.

use crate::logs_port::{LogsPort, NotTaken, begin, call, finished};
use crate::move_table::Moves;
use crate::outcome::{LOG_HAS_LEFT, told, unexpected};
use crate::registry::{Entry, is_memory_log};
use crate::stream_table::StreamTable;
use nuthatch_log::StreamId;
use nuthatch_protocol::js::StreamInfo;
use nuthatch_protocol::jserror::JsError;
use nuthatch_server::jetstream_port::{LogId, StreamRoute};
use nuthatch_streams::op::Usage;
use nuthatch_streams::{AccountId, Op, OpOutcome, OpResult};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long an operation that must not be lost waits for a queue that is full.
pub(super) const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// Sends operations to logs. One on a stream that changes its log meanwhile follows it, and the
/// identities of new streams reach their log in the order in which they were given out: see
/// [`nuthatch_streams::Op::CreateStream`].
pub(super) struct LogCalls {
    logs: Arc<dyn LogsPort>,
    streams: Arc<StreamTable>,
    moves: Arc<Moves>,
    /// Held from giving out an identity until its log has been told of it.
    new_ids: Mutex<()>,
}

impl LogCalls {
    pub(super) fn new(
        logs: Arc<dyn LogsPort>,
        streams: Arc<StreamTable>,
        moves: Arc<Moves>,
    ) -> Self {
        Self { logs, streams, moves, new_ids: Mutex::default() }
    }

    /// Sends an operation to a log and turns "no outcome" into an API error.
    /// A stream that changes its log meanwhile is followed.
    pub(super) async fn run(&self, mut log: LogId, mut op: Op) -> Result<OpOutcome, JsError> {
        loop {
            let again = self.may_move().then(|| op.clone());
            let outcome = told(call(&*self.logs, log, op).await);
            let is_gone = |error: &JsError| error.err_code == JsError::STREAM_NOT_FOUND.err_code;
            let (Some(mut again), Err(error)) = (again, &outcome) else { return outcome };
            let Some(id) = again.stream_mut().filter(|_| is_gone(error)) else { return outcome };
            let Some(route) = self.streams.moved(StreamRoute { log, stream: *id }) else {
                return outcome;
            };
            *id = route.stream;
            (log, op) = (route.log, again);
        }
    }

    /// True if any stream has changed its log, or is about to.
    fn may_move(&self) -> bool {
        self.moves.active.load(Ordering::Acquire) > 0 || self.streams.read().has_moved()
    }

    /// Begins an operation on just this log without waiting for its outcome; it waits for room in the
    /// log's queue.
    ///
    /// # Errors
    /// The log is closed.
    pub(super) async fn begin(
        &self,
        log: LogId,
        op: Op,
    ) -> Result<oneshot::Receiver<OpResult>, JsError> {
        loop {
            match begin(&*self.logs, log, op.clone()) {
                Ok(receiver) => return Ok(receiver),
                Err(NotTaken::Busy) => tokio::time::sleep(BUSY_PAUSE).await,
                Err(NotTaken::Closed) => return Err(LOG_HAS_LEFT),
            }
        }
    }

    /// Sends the operation that begins a stream, which gets the identity that is returned with what
    /// waits for its outcome.
    pub(super) fn begin_new<F: FnOnce(StreamId) -> Op>(
        &self,
        log: LogId,
        op: F,
    ) -> (StreamId, impl Future<Output = Result<OpOutcome, JsError>> + use<F>) {
        let (id, begun) = self.submit_new(log, op);
        (id, async move { told(finished(begun).await) })
    }

    /// As [`LogCalls::begin_new`], for who tries again if the log is busy.
    pub(super) fn submit_new(
        &self,
        log: LogId,
        op: impl FnOnce(StreamId) -> Op,
    ) -> (StreamId, Result<oneshot::Receiver<OpResult>, NotTaken>) {
        let _ordered = self.new_ids.lock();
        let id = self.streams.fresh_id();
        (id, begin(&*self.logs, log, op(id)))
    }

    /// What an operation tells of a stream, and how many subjects it has in all.
    pub(super) async fn stream_info(
        &self,
        log: LogId,
        op: Op,
    ) -> Result<(StreamInfo, usize), JsError> {
        stream_info_of(self.run(log, op).await?)
    }

    /// A stream's information without details.
    pub(super) async fn current_info(&self, entry: &Entry) -> Result<StreamInfo, JsError> {
        let op = Op::StreamInfo {
            id: entry.id,
            deleted_details: false,
            subjects_filter: String::new(),
            offset: 0,
        };
        Ok(self.stream_info(entry.engine, op).await?.0)
    }

    /// Totals of an account's streams here on disk or in buckets, and in memory; of all accounts'.
    pub(super) async fn usage(&self, account: Option<AccountId>) -> Result<[Usage; 2], JsError> {
        let mut totals = [Usage::default(); 2];
        for (name, log) in self.logs.attached() {
            if let OpOutcome::Usage(usage) = self.run(log, Op::Usage { account }).await? {
                totals[usize::from(is_memory_log(&name))].add(&usage);
            }
        }
        Ok(totals)
    }
}

/// What an operation tells of a stream, and how many subjects it has in all.
pub(super) fn stream_info_of(outcome: OpOutcome) -> Result<(StreamInfo, usize), JsError> {
    match outcome {
        OpOutcome::Stream { info, subjects_total } => Ok((*info, subjects_total)),
        other => Err(unexpected(&other)),
    }
}
