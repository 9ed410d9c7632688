//! `STREAM.*` calls.

use crate::envelope::{self, Paged, ResponseType, Success};
use crate::log_calls::stream_info_of;
use crate::log_names::log_tag;
use crate::outcome::{described, placement_error, unexpected};
use crate::pending_changes::{CHANGE_TIMEOUT, Changing, claim};
use crate::placing::Home;
use crate::registry::Entry;
use crate::request::{is_empty, parse, parse_optional};
use crate::service::{AccountLimits, Answer, JetStream, set_stream_metadata};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use nuthatch_protocol::js::{StorageType, StreamConfig, StreamInfo, Time};
use nuthatch_protocol::jserror::JsError;
use nuthatch_server::served::Scope;
use nuthatch_server::shares::Share;
use nuthatch_streams::op::{GetMessage, PurgeRequest};
use nuthatch_streams::validate::{self, Limits};
use nuthatch_streams::{AccountId, Op, OpOutcome};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

/// Names in one page of `STREAM.NAMES` and `CONSUMER.NAMES`.
pub(super) const NAMES_PAGE: usize = 1024;
/// Infos in one page of `STREAM.LIST` and `CONSUMER.LIST`.
pub(super) const LIST_PAGE: usize = 256;
/// What else of a stream or consumer stands in an answer, about.
pub(super) const ASSET_BYTES: usize = 1024;
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

#[derive(Serialize)]
struct StreamBody<'a> {
    #[serde(flatten)]
    page: Option<Paged>,
    #[serde(flatten)]
    info: &'a StreamInfo,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    did_create: bool,
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
struct PurgedBody {
    success: bool,
    purged: u64,
}

/// Longest subject of a stream's or consumer's configuration, in bytes: no publish has a longer one
/// by default, and a tree of subjects is as deep as they have tokens.
pub(super) const SUBJECT_BYTES_MAX: usize = 4096;

/// Refuses subjects that are longer than any message's.
pub(super) fn check_lengths<'a>(
    subjects: impl IntoIterator<Item = &'a String>,
    kind: JsError,
) -> Result<(), JsError> {
    match subjects.into_iter().find(|subject| subject.len() > SUBJECT_BYTES_MAX) {
        Some(long) => {
            let text = format!("a subject of {} bytes: at most {SUBJECT_BYTES_MAX}", long.len());
            Err(kind.with_err(text))
        }
        None => Ok(()),
    }
}

/// The subjects and filters of a configuration.
fn subjects_of(config: &StreamConfig) -> impl Iterator<Item = &String> {
    config.subjects.iter().chain(subjects_of_sources(config))
}

/// The filters and transforms of a mirror or of sources.
fn subjects_of_sources(config: &StreamConfig) -> impl Iterator<Item = &String> {
    let sources = config.mirror.iter().chain(&config.sources);
    sources.flat_map(|source| {
        let transforms = source.subject_transforms.iter();
        transforms.flat_map(|t| [&t.src, &t.dest]).chain([&source.filter_subject])
    })
}

/// A request's offset as a count; negative means 0, as upstream.
pub(super) fn offset_of(offset: i64) -> usize {
    usize::try_from(offset).unwrap_or(0)
}

impl JetStream {
    pub(super) fn limits(&self, pedantic: bool) -> Limits {
        Limits {
            pedantic,
            max_replicas: self.replicas_max(),
            max_duplicate_window: self.settings.max_duplicate_window,
            ..Limits::default()
        }
    }

    /// Reads a stream configuration and `pedantic`, which is part of the request only.
    pub(super) fn read_config(&self, body: &[u8]) -> Result<(StreamConfig, bool), JsError> {
        let mut map: serde_json::Map<String, serde_json::Value> = parse(body, false)?;
        let pedantic = map.remove("pedantic").is_some_and(|value| value == true);
        let text = serde_json::to_vec(&map).map_err(|e| JsError::INVALID_JSON.with("err", e))?;
        let config: StreamConfig = parse(&text, self.settings.strict)?;
        check_lengths(subjects_of(&config), JsError::STREAM_INVALID_CONFIG)?;
        Ok((config, pedantic))
    }

    pub(super) async fn stream_create(
        &self,
        account: AccountId,
        (name, scope): (&str, &Scope),
        body: &[u8],
    ) -> Answer {
        let (mut config, pedantic) = self.read_config(body)?;
        if config.name != name {
            return Err(JsError::STREAM_MISMATCH);
        }
        if name.contains(['/', '\\']) {
            return Err(JsError::STREAM_NAME_CONTAINS_PATH_SEPARATORS);
        }
        set_stream_metadata(&mut config);
        let mut config = validate::stream_config(config, &self.limits(pedantic))?;
        let changing = self.rights.lock(account, name).await?;
        self.check_copies(account, &mut config)?;
        let existing = self.streams.read().get(account, name).cloned();
        if let Some(existing) = existing {
            return self.create_existing(account, &existing, &config, changing).await;
        }
        let engine = match self.home_of_new(account, &config, scope).await? {
            Home::Here(engine) => engine,
            Home::At { node, log } => {
                return self
                    .create_elsewhere(account, changing, (node, log), (&config, body))
                    .await;
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
        self.streams.enter(entry).await?;
        Ok(self.stream_answer(account, "stream_create", info, None, true))
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
            return self.names.find(log).map(Home::Here).ok_or_else(|| self.names.none_of(log));
        }
        self.check_whole(account)?;
        let served = self.core.served(account);
        if let Some((node, stream)) = served.and_then(|served| served.find(&config.name)) {
            // It is there: the node compares the two.
            return Ok(Home::At { node, log: stream.log.clone() });
        }
        self.check_new(account, config).await?;
        self.home_for(account, config)
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
        Ok(self.stream_answer(account, "stream_create", info?, None, true))
    }

    /// Names, subjects and limits that only the registry can judge.
    pub(super) async fn check_new(
        &self,
        account: AccountId,
        config: &StreamConfig,
    ) -> Result<(), JsError> {
        self.check_whole(account)?;
        let served = self.core.served(account);
        if served.as_ref().is_some_and(|served| served.find(&config.name).is_some()) {
            return Err(JsError::STREAM_NAME_EXIST);
        }
        self.admission.check_overlap(account, config, true).await?;
        let limits = self.accounts.limits_of(account);
        check_account(config, &limits)?;
        let elsewhere = served.map_or(0, |served| served.count());
        let count = {
            let registry = self.streams.read();
            (registry.count(account) + self.rights.pending().count(account, &registry) + elsewhere)
                as u64
        };
        if limits.max_streams.is_some_and(|max| count >= max) {
            return Err(JsError::MAXIMUM_STREAMS_LIMIT);
        }
        self.check_space(account, config, 0).await
    }

    /// Whether `max_bytes` still fits what the account may reserve.
    async fn check_space(
        &self,
        account: AccountId,
        config: &StreamConfig,
        already: u64,
    ) -> Result<(), JsError> {
        let limits = self.accounts.limits_of(account);
        let wanted = u64::try_from(config.max_bytes).unwrap_or(0);
        let (limit, error) = if config.storage == StorageType::File {
            (limits.max_store_bytes, JsError::STORAGE_RESOURCES_EXCEEDED)
        } else {
            (limits.max_memory_bytes, JsError::MEMORY_RESOURCES_EXCEEDED)
        };
        let Some(limit) = limit else { return Ok(()) };
        let reserved = {
            let registry = self.streams.read();
            let claimed = self.rights.pending().reserved_bytes(account, config.storage, &registry);
            (registry.reserved_bytes(account, config.storage) - already).saturating_add(claimed)
        };
        let reserved = reserved.saturating_add(self.reserved_elsewhere(account, config));
        let usage = timeout(CHANGE_TIMEOUT, self.calls.usage(Some(account))).await;
        let [mut file, mut memory] = usage.map_err(|_| usage_unknown())??;
        let [file_elsewhere, memory_elsewhere] = self.usage_elsewhere(account).await;
        file.add(&file_elsewhere);
        memory.add(&memory_elsewhere);
        let used = if config.storage == StorageType::File { file.bytes } else { memory.bytes };
        if reserved.saturating_add(wanted) > limit || used > limit {
            return Err(error);
        }
        Ok(())
    }

    pub(super) async fn stream_update(
        &self,
        account: AccountId,
        name: &str,
        body: &[u8],
    ) -> Answer {
        let (mut config, pedantic) = self.read_config(body)?;
        if config.name.is_empty() {
            validate::stream_config(config.clone(), &self.limits(pedantic))?;
        }
        if config.name != name {
            return Err(JsError::STREAM_MISMATCH);
        }
        set_stream_metadata(&mut config);
        let changing = self.rights.lock(account, name).await?;
        let entry = self.streams.entry(account, name)?;
        let mut config = validate::stream_update(&entry.config, config, &self.limits(pedantic))?;
        self.check_copies(account, &mut config)?;
        // A stream that was moved stays where it is as long as the tag stays as it is.
        if log_tag(&config) != log_tag(&entry.config)
            && self.names.of_config(&config)? != entry.engine
        {
            return Err(placement_error(
                "a stream does not change its log by an update: its placement tag must stay; \
                 nuthatch stream move changes it",
            ));
        }
        self.check_replicas(&config, &self.names.name_of(entry.engine))?;
        check_account(&config, &self.accounts.limits_of(account))?;
        self.admission.check_overlap(account, &config, true).await?;
        let already = u64::try_from(entry.config.max_bytes).unwrap_or(0);
        if u64::try_from(config.max_bytes).unwrap_or(0) > already {
            self.check_space(account, &config, already).await?;
        }
        let pending = claim(entry.engine, config.clone());
        let op = Op::UpdateStream { id: entry.id, config: Box::new(config) };
        let work = self.calls.stream_info(entry.engine, op);
        let (outcome, _changing) = changing.settle(pending, work).await;
        let info = outcome?.0;
        let config = info.config.clone();
        self.streams.enter(Entry { config, ..(*entry).clone() }).await?;
        Ok(self.stream_answer(account, "stream_update", info, None, false))
    }

    pub(super) async fn stream_delete(
        &self,
        account: AccountId,
        name: &str,
        body: &[u8],
    ) -> Answer {
        if !is_empty(body) {
            return Err(JsError::NOT_EMPTY_REQUEST);
        }
        let changing = self.lock_forgotten(account, name).await?;
        let entry = self.streams.entry(account, name)?;
        // Routes go first: nothing may be accepted for a stream that is about to vanish. If the
        // engine refuses, the stream is still there and gets its routes back.
        self.streams.leave(account, name).await;
        let pending = claim(entry.engine, entry.config.clone());
        let work = self.calls.run(entry.engine, Op::DeleteStream { id: entry.id });
        let (outcome, _changing) = changing.settle(pending, work).await;
        if let Err(error) = outcome {
            self.streams.enter((*entry).clone()).await?;
            return Err(error);
        }
        Ok(envelope::ok(ResponseType("stream_delete"), &Success::YES))
    }

    pub(super) async fn stream_info(
        &self,
        account: AccountId,
        name: &str,
        body: &[u8],
        share: &mut Share,
    ) -> Answer {
        let request: InfoRequest = parse_optional(body, self.settings.strict)?;
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
        let mut info = StreamInfo { cluster: Some(self.cluster()), ..info };
        self.complete(account, &mut info);
        let body = StreamBody { page: Some(page), info: &info, did_create: false };
        envelope::charged(ResponseType("stream_info"), &body, share)
    }

    pub(super) async fn stream_purge(&self, account: AccountId, name: &str, body: &[u8]) -> Answer {
        let request: PurgeBody = parse_optional(body, self.settings.strict)?;
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

    pub(super) async fn msg_get(&self, account: AccountId, name: &str, body: &[u8]) -> Answer {
        if is_empty(body) {
            return Err(JsError::BAD_REQUEST);
        }
        let request: GetBody = parse(body, self.settings.strict)?;
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

    pub(super) async fn msg_delete(&self, account: AccountId, name: &str, body: &[u8]) -> Answer {
        if is_empty(body) {
            return Err(JsError::BAD_REQUEST);
        }
        let request: DeleteBody = parse(body, self.settings.strict)?;
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

    /// Fills in what only the service knows of a stream.
    fn complete(&self, account: AccountId, info: &mut StreamInfo) {
        self.complete_stream(info);
        self.complete_copies(account, info);
        self.complete_home(account, info);
        self.complete_cluster(account, info);
    }

    pub(super) fn stream_answer(
        &self,
        account: AccountId,
        kind: &'static str,
        mut info: StreamInfo,
        page: Option<Paged>,
        did_create: bool,
    ) -> Vec<u8> {
        self.complete(account, &mut info);
        envelope::ok(ResponseType(kind), &StreamBody { page, info: &info, did_create })
    }
}

/// What a configuration adds to an answer, about.
pub(super) fn config_bytes(config: &StreamConfig) -> usize {
    let subjects = subjects_of(config);
    let metadata = config.metadata.iter().map(|(key, value)| key.len() + value.len());
    subjects.map(String::len).sum::<usize>() + metadata.sum::<usize>() + ASSET_BYTES
}

/// Checks an account's rules for configurations of streams.
fn check_account(config: &StreamConfig, limits: &AccountLimits) -> Result<(), JsError> {
    let stream_bytes = match config.storage {
        StorageType::File => limits.max_store_stream_bytes,
        StorageType::Memory => limits.max_memory_stream_bytes,
    };
    if limits.max_bytes_required && config.max_bytes <= 0 {
        return Err(JsError::STREAM_MAX_BYTES_REQUIRED);
    }
    if stream_bytes.is_some_and(|max| u64::try_from(config.max_bytes).is_ok_and(|own| own > max)) {
        return Err(JsError::STREAM_MAX_STREAM_BYTES_EXCEEDED);
    }
    let above = |max: u64| u64::try_from(config.max_consumers).is_ok_and(|own| own > max);
    if limits.max_consumers.is_some_and(above) {
        return Err(JsError::MAXIMUM_CONSUMERS_LIMIT);
    }
    Ok(())
}

fn usage_unknown() -> JsError {
    let text = "a log does not answer, so what the account stores is not known: try again later";
    described(JsError::CLUSTER_NOT_AVAIL, text.to_owned())
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
