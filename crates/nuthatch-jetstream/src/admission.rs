//! Whether a new or changed stream may be as it is to be, by itself and beside all others.

use crate::account_table::{AccountLimits, AccountTable};
use crate::changing::ChangeRights;
use crate::core_port::CorePort;
use crate::log_calls::LogCalls;
use crate::metadata::set_stream_metadata;
use crate::other_nodes::OtherNodes;
use crate::outcome::described;
use crate::pending_changes::CHANGE_TIMEOUT;
use crate::replicas::Replicas;
use crate::request::parse;
use crate::sizes::{check_lengths, subjects_of};
use crate::stream_subjects::Steps;
use crate::stream_table::StreamTable;
use nuthatch_protocol::js::{DiscardPolicy, Nanos, StorageType, StreamConfig};
use nuthatch_protocol::jserror::JsError;
use nuthatch_protocol::subject::tree::OverlapSearch;
use nuthatch_streams::AccountId;
use nuthatch_streams::validate::{self, Limits};
use std::sync::Arc;
use tokio::time::timeout;

/// What a new or changed stream is checked against. Whoever asks has the right to change the account's
/// streams, so what was found to be free stays so.
pub(super) struct Admission {
    /// Unknown JSON fields are errors.
    pub(super) strict: bool,
    /// Longest duplicate window of a stream, ns; 0: no limit.
    pub(super) max_duplicate_window: Nanos,
    pub(super) core: Arc<dyn CorePort>,
    pub(super) accounts: Arc<AccountTable>,
    pub(super) streams: Arc<StreamTable>,
    pub(super) rights: Arc<ChangeRights>,
    pub(super) nodes: Arc<OtherNodes>,
    pub(super) calls: Arc<LogCalls>,
    pub(super) replicas: Arc<Replicas>,
}

impl Admission {
    /// What configurations are checked against by themselves.
    pub(super) fn limits(&self, pedantic: bool) -> Limits {
        Limits {
            pedantic,
            max_replicas: self.replicas.max(),
            max_duplicate_window: self.max_duplicate_window,
            ..Limits::default()
        }
    }

    /// Reads a stream configuration and `pedantic`, which is part of the request only.
    pub(super) fn read_config(&self, body: &[u8]) -> Result<(StreamConfig, bool), JsError> {
        let mut map: serde_json::Map<String, serde_json::Value> = parse(body, false)?;
        let pedantic = map.remove("pedantic").is_some_and(|value| value == true);
        let text = serde_json::to_vec(&map).map_err(|e| JsError::INVALID_JSON.with("err", e))?;
        let config: StreamConfig = parse(&text, self.strict)?;
        check_lengths(subjects_of(&config), JsError::STREAM_INVALID_CONFIG)?;
        Ok((config, pedantic))
    }

    /// A configuration of a backup, checked by itself. Unlike one of a new stream it may be sealed.
    pub(super) fn restored_config(
        &self,
        mut config: StreamConfig,
    ) -> Result<StreamConfig, JsError> {
        set_stream_metadata(&mut config);
        let is_sealed = std::mem::take(&mut config.sealed);
        let mut config = validate::stream_config(config, &self.limits(false))?;
        if is_sealed {
            config.sealed = true;
            config.max_age = 0;
            config.discard = DiscardPolicy::New;
            (config.deny_delete, config.deny_purge) = (true, true);
            config.allow_rollup_hdrs = false;
        }
        Ok(config)
    }

    /// Names, subjects and limits that only the registry can judge.
    pub(super) async fn check_new(
        &self,
        account: AccountId,
        config: &StreamConfig,
    ) -> Result<(), JsError> {
        self.nodes.check_whole(account)?;
        if self.nodes.find(account, &config.name).is_some() {
            return Err(JsError::STREAM_NAME_EXIST);
        }
        if let Some(offline) = self.nodes.offline(account, &config.name) {
            return Err(offline);
        }
        // It may have come back between the two.
        if self.nodes.find(account, &config.name).is_some() {
            return Err(JsError::STREAM_NAME_EXIST);
        }
        self.check_overlap(account, config, true).await?;
        let limits = self.accounts.limits_of(account);
        check_limits(config, &limits)?;
        let elsewhere = self.nodes.count(account);
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

    /// What [`Admission::check_new`] judges, of a stream that changes.
    pub(super) async fn check_changed(
        &self,
        account: AccountId,
        before: &StreamConfig,
        config: &StreamConfig,
    ) -> Result<(), JsError> {
        check_limits(config, &self.accounts.limits_of(account))?;
        self.check_overlap(account, config, true).await?;
        let already = u64::try_from(before.max_bytes).unwrap_or(0);
        if u64::try_from(config.max_bytes).unwrap_or(0) > already {
            self.check_space(account, config, already).await?;
        }
        Ok(())
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
        let elsewhere = self.nodes.reserved(account, config.storage, &config.name);
        let reserved = reserved.saturating_add(elsewhere);
        let usage = timeout(CHANGE_TIMEOUT, self.calls.usage(Some(account))).await;
        let [mut file, mut memory] = usage.map_err(|_| usage_unknown())??;
        let [file_elsewhere, memory_elsewhere] = self.nodes.usage(account).await;
        file.add(&file_elsewhere);
        memory.add(&memory_elsewhere);
        let used = if config.storage == StorageType::File { file.bytes } else { memory.bytes };
        if reserved.saturating_add(wanted) > limit || used > limit {
            return Err(error);
        }
        Ok(())
    }

    /// Refuses subjects that another stream of the account has, or is about to have.
    pub(super) async fn check_overlap(
        &self,
        account: AccountId,
        config: &StreamConfig,
        is_of_all: bool,
    ) -> Result<(), JsError> {
        let served = self.core.served(account).filter(|_| is_of_all);
        let nodes = served.as_ref().map_or_else(Vec::new, |served| served.nodes());
        let except = self.streams.read().key_of(account, &config.name);
        let pending = self.rights.pending().subjects_beside(account, &config.name);
        let mut steps = Steps::new();
        for own in &config.subjects {
            let mut search = OverlapSearch::new(own.as_bytes());
            let registry = |steps: &mut usize| {
                self.streams.read().overlaps(account, &mut search, steps, except)
            };
            if steps.search(registry).await? {
                return Err(JsError::STREAM_SUBJECT_OVERLAP);
            }
            for (node, ..) in &nodes {
                let mut search = OverlapSearch::new(own.as_bytes());
                let overlaps = |steps: &mut usize| {
                    let served = served.as_ref().expect("there are nodes of it");
                    served.overlaps(node, &mut search, steps, &config.name)
                };
                if steps.search(overlaps).await? {
                    return Err(JsError::STREAM_SUBJECT_OVERLAP);
                }
            }
            for theirs in &pending {
                let mut search = OverlapSearch::new(own.as_bytes());
                if steps.search(|steps| search.search(theirs, steps, |_, ()| true)).await? {
                    return Err(JsError::STREAM_SUBJECT_OVERLAP);
                }
            }
        }
        let Some(served) = served else { return Ok(()) };
        // Behind the tables: a node that went meanwhile is among them.
        for log in served.offline_logs() {
            for own in &config.subjects {
                let mut search = OverlapSearch::new(own.as_bytes());
                let overlaps = |steps: &mut usize| {
                    served.overlaps_offline(&log, &mut search, steps, &config.name)
                };
                if steps.search(overlaps).await? {
                    return Err(JsError::STREAM_SUBJECT_OVERLAP);
                }
            }
        }
        Ok(())
    }
}

/// Checks an account's rules for configurations of streams.
fn check_limits(config: &StreamConfig, limits: &AccountLimits) -> Result<(), JsError> {
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
