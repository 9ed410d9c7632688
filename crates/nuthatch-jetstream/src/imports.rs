//! `STREAM.IMPORT`: a stream of another server is brought here, a batch at a time: Nuthatch's own.
//!
//! The importer (`nuthatch stream import`) reads the other server and sends what it read; here it is
//! stored with its sequences and times in a stream that has another name, so that nobody can ask for
//! it or publish to it, and that stays over restarts: whoever comes back goes on behind its last
//! sequence. At the end it gets its consumers and its true name and configuration in one step, as a
//! stream that is restored from a backup does ([`crate::restore`]).

use crate::account_table::AccountTable;
use crate::admission::Admission;
use crate::changing::ChangeRights;
use crate::elections::Elections;
use crate::envelope::{self, ResponseType, Success};
use crate::import_table::{Arrived, ImportTable};
use crate::infos::Infos;
use crate::log_calls::LogCalls;
use crate::origins::Origins;
use crate::outcome::{Answer, unexpected};
use crate::pending_changes::{Changing, claim, claim_of_name};
use crate::placing::Placing;
use crate::registry::Entry;
use crate::request::{parse, parse_optional};
use crate::restore::checked_consumers;
use crate::stream_table::StreamTable;
use nuthatch_protocol::headers::find_header;
use nuthatch_protocol::import::{self, IMPORT_AFTER, Imported};
use nuthatch_protocol::js::{ConsumerSnapshot, StreamConfig, StreamInfo, StreamState, Time};
use nuthatch_protocol::jserror::JsError;
use nuthatch_server::jetstream_port::LogId;
use nuthatch_streams::control::import::{
    Call, CallAction, CallHappened, Ended, Key, Request, Target,
};
use nuthatch_streams::op::{RangeRequest, Replica};
use nuthatch_streams::{AccountId, Op, OpOutcome};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

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
    /// The last sequence that a finished import is to have; 0: its importer does not say.
    last_seq: u64,
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

/// One call about an import: does what [`nuthatch_streams::control::import::Call`] says.
struct ImportCall<'a> {
    service: &'a StreamImports,
    table: Arc<ImportTable>,
    account: AccountId,
    name: &'a str,
    machine: Call,
    /// The right to change the account's streams, once the machine has asked for it.
    changing: Option<Changing>,
}

impl Drop for ImportCall<'_> {
    fn drop(&mut self) {
        self.table.abandon(&mut self.machine);
    }
}

impl<'a> ImportCall<'a> {
    fn new(
        service: &'a StreamImports,
        account: AccountId,
        name: &'a str,
        request: Request,
    ) -> Self {
        let machine = Call::new(Key { account, name: name.to_owned() }, request);
        let table = service.table.clone();
        Self { service, table, account, name, machine, changing: None }
    }

    async fn run(mut self) -> Result<Ended, JsError> {
        let mut happened = CallHappened::Began;
        loop {
            happened = match self.table.step(&mut self.machine, happened) {
                CallAction::End(ended) => return ended,
                action => self.perform(action).await,
            };
        }
    }

    async fn perform(&mut self, action: CallAction) -> CallHappened {
        match action {
            CallAction::Lock => match self.service.rights.lock(self.account, self.name).await {
                Ok(changing) => {
                    self.changing = Some(changing);
                    CallHappened::Locked
                }
                Err(why) => CallHappened::Failed(why),
            },
            CallAction::Check(config, consumers) => {
                let (service, account) = (self.service, self.account);
                let checked = service.checked(account, self.name, *config, consumers).await;
                checked.unwrap_or_else(CallHappened::Failed)
            }
            CallAction::Create { log, config, claim: claimed } => {
                self.create(LogId(log), config, *claimed).await
            }
            CallAction::Run { log, op } => self.operate(LogId(log), op).await,
            CallAction::Show(target, info) => {
                self.show(target, &info).await;
                CallHappened::Shown
            }
            CallAction::End(_) => panic!("that is for the caller"),
        }
    }

    async fn create(
        &mut self,
        log: LogId,
        config: Box<StreamConfig>,
        claimed: StreamConfig,
    ) -> CallHappened {
        let (service, account) = (self.service, self.account);
        let (id, work) =
            service.calls.begin_new(log, |id| Op::CreateStream { id, account, config });
        let changing = self.changing.take().expect("its name is held");
        let (outcome, changing) = changing.settle(claim(log, claimed), work).await;
        self.changing = Some(changing);
        CallHappened::Created(id, outcome)
    }

    /// Runs an operation, with the right to change the stream where that was asked for.
    async fn operate(&mut self, log: LogId, op: Op) -> CallHappened {
        let pending = match &op {
            Op::FinishRestore { config, .. } => claim(log, (**config).clone()),
            _ => claim_of_name(log, self.name),
        };
        let work = self.service.calls.run(log, op);
        let Some(changing) = self.changing.take() else {
            return CallHappened::Outcome(work.await);
        };
        let (outcome, changing) = changing.settle(pending, work).await;
        self.changing = Some(changing);
        CallHappened::Outcome(outcome)
    }

    async fn show(&self, target: Target, info: &StreamInfo) {
        let (config, created) = (info.config.clone(), info.created);
        let (id, engine) = (target.stream, LogId(target.log));
        let entry = Entry { id, engine, account: self.account, config, created };
        // One whose log was detached just now comes into service with it, and is told of then.
        if self.service.streams.enter(entry.clone()).await {
            self.service.elections.stream_led(&entry);
        }
    }
}

impl ImportRequest {
    /// What it asks for.
    fn asked(self) -> Result<Request, JsError> {
        let config = || self.config.clone().map(Box::new).ok_or(JsError::BAD_REQUEST);
        Ok(match self.action.as_str() {
            "" => Request::Look,
            "begin" => Request::Begin(config()?),
            "verified" => Request::Verified(self.verified),
            "reconcile" => Request::Reconcile { first_seq: self.first_seq, deleted: self.deleted },
            "finish" => {
                let (config, consumers) = (config()?, self.consumers);
                Request::Finish { config, consumers, last: self.last_seq }
            }
            "cancel" => Request::Cancel,
            other => {
                let text = format!("there is no action {other:?} of an import");
                return Err(JsError::STREAM_RESTORE.with_err(text));
            }
        })
    }
}

/// Brings streams of other servers here.
pub(super) struct StreamImports {
    /// Unknown JSON fields are errors.
    pub(super) strict: bool,
    pub(super) accounts: Arc<AccountTable>,
    pub(super) streams: Arc<StreamTable>,
    pub(super) calls: Arc<LogCalls>,
    pub(super) rights: Arc<ChangeRights>,
    pub(super) admission: Arc<Admission>,
    pub(super) origins: Arc<Origins>,
    pub(super) placing: Arc<Placing>,
    pub(super) infos: Arc<Infos>,
    pub(super) table: Arc<ImportTable>,
    pub(super) elections: Arc<Elections>,
}

impl StreamImports {
    /// `STREAM.IMPORT.S`: begins an import, tells how it is doing, ends it or gives it up.
    pub(super) async fn call(&self, account: AccountId, name: &str, body: &[u8]) -> Answer {
        let request: ImportRequest = parse_optional(body, self.strict)?;
        let kind = ResponseType("stream_import");
        Ok(match ImportCall::new(self, account, name, request.asked()?).run().await? {
            Ended::UnderWay(info, verified) => {
                envelope::ok(kind, &ImportBody { importing: true, state: info.state, verified })
            }
            Ended::Finished(info) => self.infos.answer(account, kind.0, *info, false),
            Ended::Cancelled => envelope::ok(kind, &Success::YES),
        })
    }

    /// An imported stream, checked by itself and beside the others, and the log that it belongs in.
    async fn checked(
        &self,
        account: AccountId,
        name: &str,
        config: StreamConfig,
        consumers: Vec<ConsumerSnapshot>,
    ) -> Result<CallHappened, JsError> {
        if config.name != name {
            return Err(JsError::STREAM_MISMATCH);
        }
        let mut config = self.admission.restored_config(config)?;
        self.origins.check(account, &mut config)?;
        if self.streams.read().get(account, &config.name).is_some() {
            return Err(JsError::STREAM_NAME_EXIST);
        }
        self.admission.check_new(account, &config).await?;
        let log = self.placing.here(&config)?;
        let consumers =
            checked_consumers(consumers, &config, &self.accounts.consumer_limits(account))?;
        Ok(CallHappened::Checked(Box::new(config), consumers, log.0))
    }

    fn target(&self, account: AccountId, name: &str) -> Result<Target, JsError> {
        self.table.target(account, name).ok_or(JsError::STREAM_NOT_FOUND)
    }

    /// `STREAM.IMPORT.S.MSGS`: stores a batch.
    pub(super) async fn messages(
        &self,
        account: AccountId,
        name: &str,
        headers: &[u8],
        body: &[u8],
    ) -> Answer {
        self.target(account, name)?;
        let (messages, gap_to) =
            import::read(body).map_err(|why| JsError::STREAM_RESTORE.with_err(why))?;
        let copies = messages.into_iter().map(replica).collect();
        let arrived = Arrived { copies, after: after(headers)?, gap_to };
        // Not behind anything that waits: batches are taken in the order in which they came.
        let answer = self.table.take(Key { account, name: name.to_owned() }, arrived)?;
        answer.await.unwrap_or(Err(JsError::CLUSTER_NOT_AVAIL))?;
        Ok(envelope::ok(ResponseType("stream_import_messages"), &Success::YES))
    }

    /// `STREAM.IMPORT.S.READ`: what was stored, as a batch.
    pub(super) async fn read(&self, account: AccountId, name: &str, body: &[u8]) -> Answer {
        let request: ReadRequest = parse(body, self.strict)?;
        let Target { log, stream: id } = self.target(account, name)?;
        let request = RangeRequest { from: request.from, ..RangeRequest::default() };
        let range = match self.calls.run(LogId(log), Op::ReadRange { id, request }).await? {
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

/// The last sequence before a batch, where its importer says so.
fn after(headers: &[u8]) -> Result<Option<u64>, JsError> {
    let Some(text) = find_header(headers, IMPORT_AFTER) else { return Ok(None) };
    let number = std::str::from_utf8(text).ok().and_then(|text| text.trim().parse().ok());
    let why = || JsError::STREAM_RESTORE.with_err("a batch says after which sequence it comes");
    number.map(Some).ok_or_else(why)
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

#[cfg(test)]
mod tests;
