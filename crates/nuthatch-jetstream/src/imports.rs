//! `STREAM.IMPORT`: a stream of another server is brought here, a batch at a time: Nuthatch's own.
//!
//! The importer (`nuthatch stream import`) reads the other server and sends what it read; here it is
//! stored with its sequences and times in a stream that has another name, so that nobody can ask for
//! it or publish to it, and that stays over restarts: whoever comes back goes on behind its last
//! sequence. At the end it gets its consumers and its true name and configuration in one step, as a
//! stream that is restored from a backup does ([`crate::restore`]).

use crate::envelope::{self, ResponseType, Success};
use crate::pending_changes::{claim, claim_of_name};
use crate::registry::Entry;
use crate::request::{parse, parse_optional};
use crate::restore::checked_consumers;
use crate::service::{Answer, JetStream, unexpected};
use nuthatch_protocol::import::{self, Imported};
use nuthatch_protocol::js::{ConsumerSnapshot, StreamConfig, StreamState, Time};
use nuthatch_protocol::jserror::JsError;
use nuthatch_server::jetstream_port::StreamRoute;
use nuthatch_streams::control::import::{BatchId, Effect, Event, Intake};
use nuthatch_streams::op::{PurgeRequest, RangeRequest, Replica};
use nuthatch_streams::stream::importing_config;
use nuthatch_streams::{AccountId, Op, OpOutcome};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio::sync::oneshot;

/// Imports under way at once, over all accounts.
pub const IMPORTS_MAX: usize = 4096;
/// Imports of one account under way at once.
pub const IMPORTS_OF_ACCOUNT_MAX: usize = 1024;

/// An import that is under way.
#[derive(Clone)]
struct Import {
    at: StreamRoute,
    /// Up to here the importer has compared both sides.
    verified: u64,
    batches: Arc<Mutex<Batches>>,
}

/// The batches of one import: [`nuthatch_streams::control::import::Intake`] decides about them.
#[derive(Default)]
struct Batches {
    machine: Intake,
    /// The number of the next one.
    next: u64,
    waiting: FxHashMap<u64, oneshot::Sender<Result<(), JsError>>>,
}

/// Messages that are to be stored in one go, and up to where the origin has nothing else.
type Store = (Vec<Replica>, u64);

impl Batches {
    /// Takes a batch, which gets its answer later.
    fn take(
        &mut self,
        copies: Vec<Replica>,
        gap_to: u64,
    ) -> (oneshot::Receiver<Result<(), JsError>>, Option<Store>) {
        let (sender, answer) = oneshot::channel();
        let batch = BatchId(self.next);
        self.waiting.insert(self.next, sender);
        self.next += 1;
        (answer, self.step(Event::Batch { batch, copies, gap_to }))
    }

    /// Tells the machine what happened, and those who wait what follows. Returns what is to be stored.
    fn step(&mut self, event: Event) -> Option<Store> {
        let mut store = None;
        for effect in self.machine.step(event) {
            match effect {
                Effect::Store { copies, gap_to } => store = Some((copies, gap_to)),
                Effect::Answer(BatchId(number), answer) => {
                    let waiting = self.waiting.remove(&number).expect("a batch is answered once");
                    // The requester may have gone; then its answer is dropped.
                    let _ = waiting.send(answer);
                }
            }
        }
        store
    }
}

/// The imports that are under way, by account and name.
#[derive(Default)]
pub(super) struct Imports(Mutex<FxHashMap<(AccountId, String), Import>>);

impl Imports {
    /// Whether one more may begin.
    fn check_room(&self, account: AccountId) -> Result<(), JsError> {
        let imports = self.0.lock();
        let of_account = || imports.keys().filter(|(owner, _)| *owner == account).count();
        let text = if imports.len() >= IMPORTS_MAX {
            format!("{IMPORTS_MAX} imports are under way: finish some first")
        } else if of_account() >= IMPORTS_OF_ACCOUNT_MAX {
            format!("{IMPORTS_OF_ACCOUNT_MAX} imports of this account are under way: finish some")
        } else {
            return Ok(());
        };
        Err(JsError::STREAM_RESTORE.with_err(text))
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ImportRequest {
    /// The step to take; empty: report the state only.
    action: String,
    /// The configuration that the stream is to have.
    config: Option<StreamConfig>,
    /// Its consumers.
    consumers: Vec<ConsumerSnapshot>,
    /// Nothing below this exists in the origin.
    first_seq: u64,
    /// Neither do these.
    deleted: Vec<u64>,
    /// Up to here both sides are the same.
    verified: u64,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ReadRequest {
    from: u64,
}

#[derive(Serialize)]
struct ImportBody {
    /// True if the import is under way.
    importing: bool,
    /// State of the target.
    state: StreamState,
    verified: u64,
}

impl JetStream {
    /// `STREAM.IMPORT.S`: begins an import, tells how it is doing, ends it or gives it up.
    pub(super) async fn stream_import(
        self: &Arc<Self>,
        account: AccountId,
        name: &str,
        body: &[u8],
    ) -> Answer {
        let request: ImportRequest = parse_optional(body, self.settings.strict)?;
        match request.action.as_str() {
            "begin" => self.import_begin(account, name, request).await?,
            "verified" => {
                let mut imports = self.imports.0.lock();
                let import = imports.get_mut(&(account, name.to_owned()));
                import.ok_or(JsError::STREAM_NOT_FOUND)?.verified = request.verified;
            }
            "reconcile" => self.import_reconcile(account, name, request).await?,
            "finish" => return self.import_finish(account, name, request).await,
            "cancel" => return self.import_cancel(account, name).await,
            "" => {}
            other => {
                let text = format!("there is no action {other:?} of an import");
                return Err(JsError::STREAM_RESTORE.with_err(text));
            }
        }
        self.import_status(account, name).await
    }

    fn import(&self, account: AccountId, name: &str) -> Result<Import, JsError> {
        let imports = self.imports.0.lock();
        imports.get(&(account, name.to_owned())).cloned().ok_or(JsError::STREAM_NOT_FOUND)
    }

    /// A stream that a start has found half imported.
    pub(super) fn adopt_import(&self, account: AccountId, name: &str, at: StreamRoute) {
        let import = Import { at, verified: 0, batches: Arc::default() };
        self.imports.0.lock().insert((account, name.to_owned()), import);
    }

    async fn import_status(&self, account: AccountId, name: &str) -> Answer {
        let import = self.import(account, name)?;
        let op = Op::StreamInfo {
            id: import.at.stream,
            deleted_details: false,
            subjects_filter: String::new(),
            offset: 0,
        };
        let state = match self.run(import.at.log, op).await? {
            OpOutcome::Stream { info, .. } => info.state,
            other => return Err(unexpected(&other)),
        };
        let body = ImportBody { importing: true, state, verified: import.verified };
        Ok(envelope::ok(ResponseType("stream_import"), &body))
    }

    async fn import_begin(
        self: &Arc<Self>,
        account: AccountId,
        name: &str,
        request: ImportRequest,
    ) -> Result<(), JsError> {
        let changing = self.lock_for(account, name).await?;
        if let Ok(import) = self.import(account, name) {
            let store = import.batches.lock().step(Event::Asked);
            assert!(store.is_none(), "a question stores nothing");
            return Ok(());
        }
        let config = self.imported_config(account, name, request.config).await?;
        self.imports.check_room(account)?;
        let engine = self.engine_for(&config)?;
        let importing = Box::new(importing_config(&config));
        let pending = claim(engine, config);
        let (id, work) =
            self.begin_new(engine, |id| Op::CreateStream { id, account, config: importing });
        let (outcome, _changing) = self.settle(changing, pending, work).await;
        outcome?;
        self.adopt_import(account, name, StreamRoute { log: engine, stream: id });
        Ok(())
    }

    /// The configuration of an imported stream, checked by itself and beside the others.
    async fn imported_config(
        &self,
        account: AccountId,
        name: &str,
        config: Option<StreamConfig>,
    ) -> Result<StreamConfig, JsError> {
        let config = config.ok_or(JsError::BAD_REQUEST)?;
        if config.name != name {
            return Err(JsError::STREAM_MISMATCH);
        }
        let mut config = self.restored_config(config)?;
        self.check_copies(account, &mut config)?;
        if self.registry.read().get(account, name).is_some() {
            return Err(JsError::STREAM_NAME_EXIST);
        }
        self.check_new(account, &config).await?;
        Ok(config)
    }

    /// Deletes what the origin does not have (any more).
    async fn import_reconcile(
        &self,
        account: AccountId,
        name: &str,
        request: ImportRequest,
    ) -> Result<(), JsError> {
        let changing = self.lock_for(account, name).await?;
        let at = self.import(account, name)?.at;
        let pending = claim_of_name(at.log, name);
        self.settle(changing, pending, self.reconcile(at, request)).await.0
    }

    async fn reconcile(
        &self,
        StreamRoute { log: engine, stream: id }: StreamRoute,
        request: ImportRequest,
    ) -> Result<(), JsError> {
        if request.first_seq > 1 {
            let purge = PurgeRequest { seq: request.first_seq, ..PurgeRequest::default() };
            self.run(engine, Op::Purge { id, request: purge }).await?;
        }
        if !request.deleted.is_empty() {
            let mut seqs = request.deleted;
            seqs.sort_unstable();
            self.run(engine, Op::RemoveRestored { id, seqs }).await?;
        }
        Ok(())
    }

    async fn import_cancel(&self, account: AccountId, name: &str) -> Answer {
        // Not while it is being finished: a stream that others use already would go.
        let changing = self.lock_for(account, name).await?;
        let StreamRoute { log: engine, stream: id } = self.import(account, name)?.at;
        let pending = claim_of_name(engine, name);
        let work = self.run(engine, Op::DeleteStream { id });
        let (outcome, _changing) = self.settle(changing, pending, work).await;
        outcome?;
        self.imports.0.lock().remove(&(account, name.to_owned()));
        Ok(envelope::ok(ResponseType("stream_import"), &Success::YES))
    }

    async fn import_finish(
        self: &Arc<Self>,
        account: AccountId,
        name: &str,
        request: ImportRequest,
    ) -> Answer {
        let changing = self.lock_for(account, name).await?;
        let StreamRoute { log: engine, stream: id } = self.import(account, name)?.at;
        let config = self.imported_config(account, name, request.config).await?;
        if self.engine_for(&config)? != engine {
            return Err(crate::service::placement_error(
                "the import was begun in another log: cancel it, or keep the placement",
            ));
        }
        let limits = self.consumer_limits(account);
        let consumers = checked_consumers(request.consumers, &config, &limits)?;
        let pending = claim(engine, config.clone());
        let config = Box::new(config);
        let work = self.run(engine, Op::FinishRestore { id, config, consumers });
        let (outcome, _changing) = self.settle(changing, pending, work).await;
        let info = match outcome? {
            OpOutcome::Stream { info, .. } => *info,
            other => return Err(unexpected(&other)),
        };
        let config = info.config.clone();
        let entry = Entry { id, engine, account, config, created: info.created };
        self.enter(entry).await;
        self.imports.0.lock().remove(&(account, name.to_owned()));
        Ok(self.stream_answer(account, "stream_import", info, None, false))
    }

    /// `STREAM.IMPORT.S.MSGS`: stores a batch.
    pub(super) async fn import_messages(
        self: &Arc<Self>,
        account: AccountId,
        name: &str,
        body: &[u8],
    ) -> Answer {
        let Import { at, batches, .. } = self.import(account, name)?;
        let (messages, gap_to) =
            import::read(body).map_err(|why| JsError::STREAM_RESTORE.with_err(why))?;
        let copies = messages.into_iter().map(replica).collect();
        // Not behind anything that waits: batches are taken in the order in which they came.
        let (answer, store) = batches.lock().take(copies, gap_to);
        if let Some(store) = store {
            tokio::spawn(self.clone().store_batches(at, batches, store));
        }
        answer.await.expect("every batch is answered")?;
        Ok(envelope::ok(ResponseType("stream_import_messages"), &Success::YES))
    }

    /// Stores batches of an import until none waits.
    async fn store_batches(
        self: Arc<Self>,
        StreamRoute { log: engine, stream: id }: StreamRoute,
        batches: Arc<Mutex<Batches>>,
        first: Store,
    ) {
        let mut store = Some(first);
        while let Some((copies, gap_to)) = store {
            let outcome = self.run(engine, Op::Mirror { id, copies, gap_to }).await;
            store = batches.lock().step(Event::Stored(outcome));
        }
    }

    /// `STREAM.IMPORT.S.READ`: what was stored, as a batch.
    pub(super) async fn import_read(&self, account: AccountId, name: &str, body: &[u8]) -> Answer {
        let request: ReadRequest = parse(body, self.settings.strict)?;
        let StreamRoute { log: engine, stream: id } = self.import(account, name)?.at;
        let request = RangeRequest { from: request.from, ..RangeRequest::default() };
        let range = match self.run(engine, Op::ReadRange { id, request }).await? {
            OpOutcome::Range(range) => range,
            other => return Err(unexpected(&other)),
        };
        let mut out = Vec::new();
        import::begin(&mut out);
        for message in &range.messages {
            let stored = Imported {
                seq: message.seq,
                time_ns: message.time.0,
                subject: &message.subject,
                headers: &message.headers,
                body: &message.body,
            };
            import::push(&mut out, &stored).map_err(|why| JsError::STREAM_RESTORE.with_err(why))?;
        }
        import::set_gap_to(&mut out, range.next.saturating_sub(1));
        Ok(out)
    }
}

fn replica(message: Imported<'_>) -> Replica {
    Replica {
        seq: message.seq,
        time: Time(message.time_ns),
        subject: message.subject.to_vec(),
        headers: message.headers.to_vec(),
        body: message.body.to_vec(),
    }
}
