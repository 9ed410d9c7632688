//! `STREAM.*` calls.

use crate::account_table::AccountTable;
use crate::admission::Admission;
use crate::changing::ChangeRights;
use crate::elections::Elections;
use crate::envelope::{self, Paged, ResponseType, Success};
use crate::infos::Infos;
use crate::log_calls::{LogCalls, stream_info_of};
use crate::log_names::{LogNames, log_tag};
use crate::logs_port::LogsPort;
use crate::metadata::set_stream_metadata;
use crate::moves::StreamMoves;
use crate::origins::Origins;
use crate::other_nodes::{Made, OtherNodes, Purpose};
use crate::outcome::{Answer, LOG_HAS_LEFT, described, placement_error, unexpected};
use crate::pending_changes::{Changing, claim};
use crate::placing::{Home, Placing};
use crate::registry::{DEFAULT_LOG, Entry, LOCAL_LOG};
use crate::replicas::Replicas;
use crate::request::{is_empty, parse, parse_optional};
use crate::sizes::offset_of;
use crate::stream_table::StreamTable;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use nuthatch_protocol::js::{StreamConfig, Time};
use nuthatch_protocol::jserror::JsError;
use nuthatch_server::account_id::SYSTEM_ACCOUNT_ID;
use nuthatch_server::jetstream_port::LogId;
use nuthatch_server::served::Scope;
use nuthatch_server::shares::Share;
use nuthatch_streams::op::{GetMessage, PurgeRequest};
use nuthatch_streams::{AccountId, Op, OpOutcome, validate};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long the log of just this node may take to be opened.
const LOCAL_LOG_WITHIN: Duration = Duration::from_secs(10);

/// Subjects in one page of `STREAM.INFO`.
const SUBJECTS_PAGE: usize = 100_000;

#[derive(Deserialize, Default)]
#[serde(default)]
struct InfoRequest {
    offset: i64,
    deleted_details: bool,
    subjects_filter: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PurgeBody {
    seq: u64,
    filter: String,
    keep: u64,
    /// Term of the writer that asks; 0: whoever may purge may. Nuthatch's own.
    term: u64,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct DeleteBody {
    seq: u64,
    /// Erasing is the same as removing here: a removed message's bytes go with compaction.
    no_erase: bool,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct GetBody {
    seq: u64,
    last_by_subj: String,
    next_by_subj: String,
    start_time: Option<Time>,
    no_hdr: bool,
    batch: i64,
    max_bytes: i64,
    multi_last: Vec<String>,
    up_to_seq: u64,
    up_to_time: Option<Time>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct FenceBody {
    term: u64,
}

#[derive(Serialize)]
struct FencedBody {
    term: u64,
    last_seq: u64,
}

#[derive(Serialize)]
struct StoredMessage<'a> {
    subject: &'a str,
    seq: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    hdrs: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    data: String,
    time: Time,
}

#[derive(Serialize)]
struct MessageBody<'a> {
    message: StoredMessage<'a>,
}

#[derive(Serialize)]
struct AccountPurgedBody {
    initiated: bool,
}

#[derive(Serialize)]
struct PurgedBody {
    success: bool,
    purged: u64,
}

/// Handles the calls about streams.
pub(super) struct StreamCalls {
    /// Unknown JSON fields are errors.
    pub(super) strict: bool,
    pub(super) accounts: Arc<AccountTable>,
    pub(super) logs: Arc<dyn LogsPort>,
    pub(super) names: Arc<LogNames>,
    pub(super) streams: Arc<StreamTable>,
    pub(super) calls: Arc<LogCalls>,
    pub(super) rights: Arc<ChangeRights>,
    pub(super) nodes: Arc<OtherNodes>,
    pub(super) replicas: Arc<Replicas>,
    pub(super) placing: Arc<Placing>,
    pub(super) admission: Arc<Admission>,
    pub(super) origins: Arc<Origins>,
    pub(super) infos: Arc<Infos>,
    pub(super) moves: Arc<StreamMoves>,
    pub(super) elections: Arc<Elections>,
}

impl StreamCalls {
    /// `STREAM.CREATE`.
    pub(super) async fn create(
        &self,
        account: AccountId,
        (name, scope): (&str, &Scope),
        body: &[u8],
    ) -> Answer {
        let (mut config, pedantic) = self.admission.read_config(body)?;
        if config.name != name {
            return Err(JsError::STREAM_MISMATCH);
        }
        if name.contains(['/', '\\']) {
            return Err(JsError::STREAM_NAME_CONTAINS_PATH_SEPARATORS);
        }
        set_stream_metadata(&mut config);
        let mut config = validate::stream_config(config, &self.admission.limits(pedantic))?;
        if *scope == Scope::Log(LOCAL_LOG.to_owned()) {
            self.local_log().await?;
        }
        let changing = self.rights.lock(account, name).await?;
        self.origins.check(account, &mut config)?;
        let existing = self.streams.read().get(account, name).cloned();
        if let Some(existing) = existing {
            return self.create_existing(account, &existing, &config, changing).await;
        }
        let (engine, changing) = match self.home_of_new(account, &config, scope).await? {
            Home::Here(engine) => (engine, changing),
            Home::Local => match self.names.find(LOCAL_LOG) {
                Some(log) => (log, changing),
                None => {
                    // A log that is opened waits for the right to change the streams that it has.
                    drop(changing);
                    self.local_log().await?;
                    return Box::pin(self.create(account, (name, scope), body)).await;
                }
            },
            Home::At { node, log } => {
                let made = (&config, body);
                let at = (&*node, log.clone());
                let changing = match self.nodes.create_at(account, changing, at, made).await {
                    Made::Answered(answer) => return answer,
                    Made::CameHere(changing) => changing,
                };
                // The stream is in the log, or is made there now.
                let existing = self.streams.read().get(account, name).cloned();
                if let Some(existing) = existing {
                    return self.create_existing(account, &existing, &config, changing).await;
                }
                (self.names.find(&log).ok_or(LOG_HAS_LEFT)?, changing)
            }
        };
        let pending = claim(engine, config.clone());
        let config = Box::new(config);
        let (id, work) =
            self.calls.begin_new(engine, |id| Op::CreateStream { id, account, config });
        let (outcome, _changing) = changing.settle(pending, work).await;
        let info = stream_info_of(outcome?)?.0;
        let config = info.config.clone();
        let entry = Entry { id, engine, account, config, created: info.created };
        // It is done: a log that leaves meanwhile takes the stream along, and its next owner tells of that.
        if self.streams.enter(entry.clone()).await {
            self.elections.stream_led(&entry);
        }
        Ok(self.infos.answer(account, "stream_create", info, true))
    }

    /// Where a new stream is to live, once nothing speaks against it.
    async fn home_of_new(
        &self,
        account: AccountId,
        config: &StreamConfig,
        scope: &Scope,
    ) -> Result<Home, JsError> {
        if let Scope::Log(log) = scope {
            // The leader has looked at what is at other nodes.
            self.admission.check_overlap(account, config, false).await?;
            let here = self.names.find(log).map(Home::Here);
            return match here {
                None if log == LOCAL_LOG => Ok(Home::Local),
                here => here.ok_or(LOG_HAS_LEFT),
            };
        }
        self.nodes.check_whole(account)?;
        if let Some((node, stream)) = self.nodes.find(account, &config.name) {
            // It is there: the node compares the two.
            return Ok(Home::At { node, log: stream.log.clone() });
        }
        self.admission.check_new(account, config).await?;
        self.placing.home_for(account, config)
    }

    async fn local_log(&self) -> Result<LogId, JsError> {
        if let Some(log) = self.names.find(LOCAL_LOG) {
            return Ok(log);
        }
        let opened = timeout(LOCAL_LOG_WITHIN, self.logs.local_log()).await;
        let opened = opened.unwrap_or_else(|_| Err("it takes too long".to_owned()));
        opened.map_err(|why| {
            described(
                JsError::CLUSTER_NOT_AVAIL,
                format!("the log of just this node cannot be had: {why}"),
            )
        })
    }

    /// Creating what exists: the same configuration is a success, another one is 10058.
    async fn create_existing(
        &self,
        account: AccountId,
        existing: &Entry,
        config: &StreamConfig,
        changing: Changing,
    ) -> Answer {
        if *existing.config != *config {
            return Err(JsError::STREAM_NAME_EXIST);
        }
        let pending = claim(existing.engine, existing.config.clone());
        let (info, _changing) = changing.settle(pending, self.calls.current_info(existing)).await;
        Ok(self.infos.answer(account, "stream_create", info?, true))
    }

    /// Updates a stream of any node.
    pub(super) async fn update_anywhere(
        &self,
        account: AccountId,
        name: &str,
        body: &[u8],
    ) -> Answer {
        if !self.streams.has(account, name) {
            self.nodes.check_whole(account)?;
            if let Some((node, _)) = self.nodes.find(account, name) {
                return self.update_elsewhere(account, (&node, name), body).await;
            }
        }
        self.update(account, name, body).await
    }

    /// Hands an update of a stream of another node on once its subjects are known to be free.
    async fn update_elsewhere(
        &self,
        account: AccountId,
        (node, name): (&str, &str),
        body: &[u8],
    ) -> Answer {
        let changing = self.rights.lock(account, name).await?;
        // What is wrong with it otherwise the node says.
        let read = self.admission.read_config(body);
        let config = read.map(|(config, _)| config).unwrap_or_default();
        let config = StreamConfig { name: name.to_owned(), ..config };
        self.admission.check_overlap(account, &config, true).await?;
        self.nodes.update_at(account, changing, node, (config, body)).await
    }

    /// `STREAM.UPDATE` of a stream of this node.
    pub(super) async fn update(&self, account: AccountId, name: &str, body: &[u8]) -> Answer {
        let (mut config, pedantic) = self.admission.read_config(body)?;
        if config.name.is_empty() {
            validate::stream_config(config.clone(), &self.admission.limits(pedantic))?;
        }
        if config.name != name {
            return Err(JsError::STREAM_MISMATCH);
        }
        set_stream_metadata(&mut config);
        let changing = self.rights.lock(account, name).await?;
        let entry = self.streams.entry(account, name)?;
        let mut config =
            validate::stream_update(&entry.config, config, &self.admission.limits(pedantic))?;
        self.origins.check(account, &mut config)?;
        // A stream that was moved stays where it is as long as the tag stays as it is.
        if log_tag(&config) != log_tag(&entry.config)
            && self.names.of_config(&config)? != entry.engine
        {
            return Err(placement_error(
                "a stream does not change its log by an update: its placement tag must stay; \
                 nuthatch stream move changes it",
            ));
        }
        let is_raised = self.moves.is_to_be_raised(&config, entry.engine);
        self.moves.check_raised(&config, &entry)?;
        // It moves to a quorum log behind this.
        let log = if is_raised { DEFAULT_LOG.to_owned() } else { self.names.name_of(entry.engine) };
        self.replicas.check(&config, &log)?;
        let is_placed_anew = config.placement != entry.config.placement
            || config.num_replicas > entry.config.num_replicas;
        if is_placed_anew {
            self.placing.check_tags(account, &config, &log)?;
        }
        self.admission.check_changed(account, &entry.config, &config).await?;
        let pending = claim(entry.engine, config.clone());
        let op = Op::UpdateStream { id: entry.id, config: Box::new(config) };
        let work = self.calls.stream_info(entry.engine, op);
        let (outcome, changing) = changing.settle(pending, work).await;
        let info = outcome?.0;
        let config = info.config.clone();
        let changed = Entry { config, ..(*entry).clone() };
        // As for a new one.
        if self.streams.enter(changed.clone()).await && entry.config.num_replicas <= 1 {
            self.elections.stream_led(&changed);
        }
        drop(changing);
        if is_raised {
            self.moves.raise(Arc::new(changed));
        }
        Ok(self.infos.answer(account, "stream_update", info, false))
    }

    /// `STREAM.DELETE`.
    pub(super) async fn delete(&self, account: AccountId, name: &str, body: &[u8]) -> Answer {
        if !is_empty(body) {
            return Err(JsError::NOT_EMPTY_REQUEST);
        }
        let changing = self.moves.lock_forgotten(account, name).await?;
        let entry = self.streams.entry(account, name)?;
        // Routes go first: nothing may be accepted for a stream that is about to vanish. If the
        // engine refuses, the stream is still there and gets its routes back.
        self.streams.leave(account, name).await;
        let pending = claim(entry.engine, entry.config.clone());
        let work = self.calls.run(entry.engine, Op::DeleteStream { id: entry.id });
        let (outcome, _changing) = changing.settle(pending, work).await;
        if let Err(error) = outcome {
            // One that its log does not have has moved on. If its log was detached the stream comes back with that.
            if error.err_code != JsError::STREAM_NOT_FOUND.err_code {
                self.streams.enter((*entry).clone()).await;
            }
            return Err(error);
        }
        self.elections.stream_gone(&entry);
        Ok(envelope::ok(ResponseType("stream_delete"), &Success::YES))
    }

    /// `STREAM.INFO`.
    pub(super) async fn info(
        &self,
        account: AccountId,
        name: &str,
        body: &[u8],
        share: &mut Share,
    ) -> Answer {
        let request: InfoRequest = parse_optional(body, self.strict)?;
        let entry = self.streams.entry(account, name)?;
        let offset = offset_of(request.offset);
        let filtered = !request.subjects_filter.is_empty();
        let op = Op::StreamInfo {
            id: entry.id,
            deleted_details: request.deleted_details,
            subjects_filter: request.subjects_filter,
            offset,
        };
        let (info, total) = self.calls.stream_info(entry.engine, op).await?;
        let page = if filtered && total > 0 {
            Paged { total, offset, limit: SUBJECTS_PAGE }
        } else {
            Paged { total: 0, offset: 0, limit: 0 }
        };
        self.infos.charged(account, info, page, share)
    }

    /// `STREAM.PURGE`.
    pub(super) async fn purge(&self, account: AccountId, name: &str, body: &[u8]) -> Answer {
        let request: PurgeBody = parse_optional(body, self.strict)?;
        if request.seq > 0 && request.keep > 0 {
            return Err(JsError::BAD_REQUEST);
        }
        let entry = self.streams.entry(account, name)?;
        if entry.config.sealed {
            return Err(JsError::STREAM_SEALED);
        }
        if entry.config.deny_purge {
            return Err(JsError::STREAM_PURGE_FAILED.with("err", "stream purge not permitted"));
        }
        let PurgeBody { seq, filter, keep, term } = request;
        let (id, request) = (entry.id, PurgeRequest { filter, seq, keep });
        let op = match term {
            0 => Op::Purge { id, request },
            term => Op::Truncate { id, request, term },
        };
        match self.calls.run(entry.engine, op).await? {
            OpOutcome::Purged(purged) => Ok(envelope::ok(
                ResponseType("stream_purge"),
                &PurgedBody { success: true, purged },
            )),
            other => Err(unexpected(&other)),
        }
    }

    /// `STREAM.MSG.GET`.
    pub(super) async fn msg_get(&self, account: AccountId, name: &str, body: &[u8]) -> Answer {
        if is_empty(body) {
            return Err(JsError::BAD_REQUEST);
        }
        let request: GetBody = parse(body, self.strict)?;
        let request = checked_get(request)?;
        let entry = self.streams.entry(account, name)?;
        match self.calls.run(entry.engine, Op::GetMessage { id: entry.id, request }).await? {
            OpOutcome::Message(found) => {
                let message = StoredMessage {
                    subject: &String::from_utf8_lossy(&found.subject),
                    seq: found.seq,
                    hdrs: BASE64.encode(&found.headers),
                    data: BASE64.encode(&found.body),
                    time: found.time,
                };
                Ok(envelope::ok(ResponseType("stream_msg_get"), &MessageBody { message }))
            }
            other => Err(unexpected(&other)),
        }
    }

    /// `STREAM.MSG.DELETE`.
    pub(super) async fn msg_delete(&self, account: AccountId, name: &str, body: &[u8]) -> Answer {
        if is_empty(body) {
            return Err(JsError::BAD_REQUEST);
        }
        let request: DeleteBody = parse(body, self.strict)?;
        let entry = self.streams.entry(account, name)?;
        if entry.config.sealed {
            return Err(JsError::STREAM_SEALED);
        }
        if entry.config.deny_delete {
            return Err(
                JsError::STREAM_MSG_DELETE_FAILED.with("err", "message delete not permitted")
            );
        }
        self.calls.run(entry.engine, Op::DeleteMessage { id: entry.id, seq: request.seq }).await?;
        Ok(envelope::ok(ResponseType("stream_msg_delete"), &Success::YES))
    }

    /// `STREAM.FENCE`: one writer takes a stream for itself. From the answer on the stream takes
    /// records of the writer with this term only.
    pub(super) async fn fence(&self, account: AccountId, name: &str, body: &[u8]) -> Answer {
        let FenceBody { term } = parse(body, self.strict)?;
        let entry = self.streams.entry(account, name)?;
        match self.calls.run(entry.engine, Op::Fence { id: entry.id, term }).await? {
            OpOutcome::Fenced { term, last_seq } => {
                Ok(envelope::ok(ResponseType("stream_fence"), &FencedBody { term, last_seq }))
            }
            other => Err(unexpected(&other)),
        }
    }

    /// [`StreamCalls::account_purge`] at all nodes that are connected.
    pub(super) async fn purge_everywhere(&self, name: &str, scope: &Scope) -> Answer {
        if *scope == Scope::Cluster {
            // Streams of a log that is between two owners would be passed over.
            self.nodes.until_whole(SYSTEM_ACCOUNT_ID, Purpose::Change).await?;
        }
        let answer = self.account_purge(name).await?;
        let call = format!("ACCOUNT.PURGE.{name}");
        if *scope == Scope::Cluster && !self.nodes.ask_all(SYSTEM_ACCOUNT_ID, &call).await {
            let text = "not all nodes have answered: what they serve may still be there; ask again";
            return Err(described(JsError::CLUSTER_NOT_AVAIL, text.to_owned()));
        }
        Ok(answer)
    }

    /// Deletes all streams of an account, as `nats server account purge` asks for. The caller sees to
    /// it that the system account asks. An account without streams is a success, as upstream.
    async fn account_purge(&self, name: &str) -> Answer {
        if name.contains(['/', '\\']) {
            let why = "account name can not contain path separators";
            return Err(JsError::STREAM_GENERAL.with("err", why));
        }
        let names: Vec<(AccountId, String)> = {
            let ids = self
                .accounts
                .ids(self.streams.read().accounts())
                .into_iter()
                .filter(|id| self.accounts.name_of(*id) == name);
            let registry = self.streams.read();
            let names_of =
                |id| registry.of_account(id).map(move |entry| (id, entry.config.name.clone()));
            ids.flat_map(names_of).collect()
        };
        for (account, stream) in names {
            match self.delete(account, &stream, b"").await {
                // Another call was faster.
                Err(error) if error.err_code == JsError::STREAM_NOT_FOUND.err_code => {}
                done => drop(done?),
            }
        }
        Ok(envelope::ok(ResponseType("account_purge"), &AccountPurgedBody { initiated: true }))
    }
}

/// The combinations that upstream refuses with 10003 (`jsMsgGetRequest`).
fn checked_get(request: GetBody) -> Result<GetMessage, JsError> {
    let by_seq = request.seq > 0;
    let by_last = !request.last_by_subj.is_empty();
    let by_next = !request.next_by_subj.is_empty();
    let by_time = request.start_time.is_some();
    let nothing = !by_seq && !by_last && !by_next && !by_time;
    let batch = request.batch != 0
        || request.max_bytes != 0
        || !request.multi_last.is_empty()
        || request.up_to_seq != 0
        || request.up_to_time.is_some();
    if nothing || batch || (by_last && (by_seq || by_time || by_next)) || (by_seq && by_time) {
        return Err(JsError::BAD_REQUEST);
    }
    Ok(GetMessage {
        seq: request.seq,
        last_by_subj: request.last_by_subj,
        next_by_subj: request.next_by_subj,
        start_time: request.start_time,
        no_hdr: request.no_hdr,
    })
}
