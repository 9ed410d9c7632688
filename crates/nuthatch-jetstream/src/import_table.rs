//! The imports that are under way, and who waits for the answers to their batches.
//!
//! [`nuthatch_streams::control::import`] decides about them.

use crate::logs_port::{LogsPort, NotTaken, begin, finished};
use crate::outcome::told;
use nuthatch_protocol::jserror::JsError;
use nuthatch_server::jetstream_port::LogId;
use nuthatch_streams::control::import::{
    Batch, BatchId, Call, CallAction, CallHappened, Effect, Imports, Key, Target,
};
use nuthatch_streams::op::{OpResult, Replica};
use nuthatch_streams::{AccountId, Op};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use tokio::sync::oneshot;

/// What a batch is told.
type BatchAnswer = Result<(), JsError>;
/// An operation that was sent to its log.
type Begun = Result<oneshot::Receiver<OpResult>, NotTaken>;

/// The imports of a server.
pub(super) struct ImportTable {
    logs: Arc<dyn LogsPort>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    machine: Imports,
    /// The number of the next batch.
    next: u64,
    waiting: FxHashMap<BatchId, oneshot::Sender<BatchAnswer>>,
}

impl Inner {
    /// Tells those who wait what follows. Returns what is to be stored.
    fn perform(&mut self, effects: Vec<Effect>) -> Option<(Vec<Replica>, u64)> {
        let mut store = None;
        for effect in effects {
            match effect {
                Effect::Store { copies, gap_to } => store = Some((copies, gap_to)),
                Effect::Answer(id, answer) => {
                    // The requester may have gone; then its answer is dropped.
                    self.waiting.remove(&id).map(|waiting| waiting.send(answer));
                }
            }
        }
        store
    }
}

/// A batch of messages, as it came.
pub(super) struct Arrived {
    pub(super) copies: Vec<Replica>,
    pub(super) after: Option<u64>,
    pub(super) gap_to: u64,
}

impl ImportTable {
    pub(super) fn new(logs: Arc<dyn LogsPort>) -> Self {
        Self { logs, inner: Mutex::default() }
    }

    /// The stream that an import fills.
    pub(super) fn target(&self, account: AccountId, name: &str) -> Option<Target> {
        self.inner.lock().machine.target(&Key { account, name: name.to_owned() })
    }

    /// A stream that a log holds half imported.
    ///
    /// # Errors
    /// The stream that this import fills already, in another log.
    pub(super) fn found(&self, key: Key, target: Target) -> Result<(), Target> {
        self.inner.lock().machine.found(key, target)
    }

    /// A log is not served any more.
    pub(super) fn forget_log(&self, log: LogId) {
        let mut inner = self.inner.lock();
        let effects = inner.machine.forget_log(log.0);
        let store = inner.perform(effects);
        assert!(store.is_none(), "what is over stores nothing");
    }

    /// Takes a step of a call.
    pub(super) fn step(&self, call: &mut Call, happened: CallHappened) -> CallAction {
        let mut inner = self.inner.lock();
        let (action, effects) = call.step(happened, &mut inner.machine);
        let store = inner.perform(effects);
        assert!(store.is_none(), "a call stores no batches");
        action
    }

    /// The call is not gone on with.
    pub(super) fn abandon(&self, call: &mut Call) {
        call.abandon(&mut self.inner.lock().machine);
    }

    /// Takes a batch, which has reached its log when this returns unless others are on their way. What
    /// is returned waits for its answer.
    pub(super) fn take(
        self: &Arc<Self>,
        key: Key,
        arrived: Arrived,
    ) -> Result<oneshot::Receiver<BatchAnswer>, JsError> {
        // Before the lock: it takes that when it is dropped.
        let mut storing = None;
        let mut inner = self.inner.lock();
        let id = BatchId(inner.next);
        let Arrived { copies, after, gap_to } = arrived;
        let (target, effects) = inner.machine.batch(&key, Batch { id, copies, after, gap_to })?;
        inner.next += 1;
        let (sender, answer) = oneshot::channel();
        inner.waiting.insert(id, sender);
        if let Some((copies, gap_to)) = inner.perform(effects) {
            let task = Storing { table: self.clone(), key, target, begun: None, is_told: false };
            let task = storing.insert(task);
            // Sent before others may take the table: operations reach the log in the order in which
            // what they follow from came.
            task.begun = Some(self.submit(target, copies, gap_to));
        }
        drop(inner);
        storing.map(|task| tokio::spawn(task.run()));
        Ok(answer)
    }

    fn submit(&self, target: Target, copies: Vec<Replica>, gap_to: u64) -> Begun {
        let op = Op::Mirror { id: target.stream, copies, gap_to };
        begin(&*self.logs, LogId(target.log), op)
    }
}

/// Stores batches of an import until none waits. However this ends, every batch is answered.
struct Storing {
    table: Arc<ImportTable>,
    key: Key,
    target: Target,
    /// What is being stored.
    begun: Option<Begun>,
    /// Its outcome was told.
    is_told: bool,
}

impl Storing {
    async fn run(mut self) {
        while let Some(begun) = self.begun.take() {
            let outcome = told(finished(begun).await);
            self.stored(outcome);
        }
    }

    /// Tells what became of a store, and begins the next one, if there is one.
    fn stored(&mut self, outcome: OpResult) {
        let mut inner = self.table.inner.lock();
        self.is_told = true;
        let effects = inner.machine.stored(&self.key, self.target, outcome);
        if let Some((copies, gap_to)) = inner.perform(effects) {
            self.is_told = false;
            self.begun = Some(self.table.submit(self.target, copies, gap_to));
        }
    }
}

impl Drop for Storing {
    /// A store that nobody waits for any more, because its task was ended or could not go on, is one
    /// whose outcome is not known.
    fn drop(&mut self) {
        if !self.is_told {
            self.stored(Err(JsError::CLUSTER_NOT_AVAIL));
        } else if std::thread::panicking() {
            // A mistake of ours: who waits for an answer hears that there is none.
            self.table.inner.lock().waiting.clear();
        }
    }
}
