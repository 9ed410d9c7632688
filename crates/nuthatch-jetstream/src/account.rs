//! `INFO`: an account's use of JetStream and its limits.

use crate::account_table::{AccountLimits, AccountTable};
use crate::api_stats::ApiStats;
use crate::envelope::{self, ResponseType};
use crate::log_calls::LogCalls;
use crate::other_nodes::OtherNodes;
use crate::outcome::Answer;
use crate::stream_table::StreamTable;
use nuthatch_protocol::js::{API_LEVEL, StorageType};
use nuthatch_protocol::jserror::JsError;
use nuthatch_server::operator::TIER;
use nuthatch_server::shares::Shares;
use nuthatch_streams::AccountId;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Limits as account info shows them; -1 means none.
#[derive(Serialize, Clone, Default, Debug)]
struct LimitsBody {
    max_memory: i64,
    max_storage: i64,
    max_streams: i64,
    max_consumers: i64,
    max_ack_pending: i64,
    memory_max_stream_bytes: i64,
    storage_max_stream_bytes: i64,
    max_bytes_required: bool,
}

#[derive(Serialize)]
struct ApiBody {
    level: u32,
    total: u64,
    errors: u64,
    #[serde(skip_serializing_if = "is_zero")]
    inflight: u64,
}

/// What an account uses and may use, or one tier of it.
#[derive(Serialize, Clone, Default, Debug)]
struct TierBody {
    memory: u64,
    storage: u64,
    reserved_memory: u64,
    reserved_storage: u64,
    streams: u64,
    consumers: u64,
    limits: LimitsBody,
}

#[derive(Serialize)]
struct AccountBody<'a> {
    #[serde(flatten)]
    whole: TierBody,
    #[serde(skip_serializing_if = "str::is_empty")]
    domain: &'a str,
    api: ApiBody,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tiers: BTreeMap<String, TierBody>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the signature serde asks for
const fn is_zero(value: &u64) -> bool {
    *value == 0
}

fn signed(limit: Option<u64>) -> i64 {
    limit.map_or(-1, |limit| i64::try_from(limit).unwrap_or(i64::MAX))
}

fn shown(limits: &AccountLimits) -> LimitsBody {
    LimitsBody {
        max_memory: signed(limits.max_memory_bytes),
        max_storage: signed(limits.max_store_bytes),
        max_streams: signed(limits.max_streams),
        max_consumers: signed(limits.max_consumers),
        max_ack_pending: signed(limits.max_ack_pending),
        memory_max_stream_bytes: signed(limits.max_memory_stream_bytes),
        storage_max_stream_bytes: signed(limits.max_store_stream_bytes),
        max_bytes_required: limits.max_bytes_required,
    }
}

/// A tier with what is used of it: all streams here have one replica.
fn tier(name: String, limits: &AccountLimits, used: &TierBody) -> (String, TierBody) {
    let used = if name == TIER { used.clone() } else { TierBody::default() };
    (name, TierBody { limits: shown(limits), ..used })
}

/// Tells accounts what they use.
pub(super) struct AccountInfos {
    /// JetStream domain, empty if none.
    pub(super) domain: String,
    pub(super) accounts: Arc<AccountTable>,
    pub(super) stats: Arc<ApiStats>,
    /// Requests under way.
    pub(super) requests: Arc<Shares>,
    pub(super) streams: Arc<StreamTable>,
    pub(super) calls: Arc<LogCalls>,
    pub(super) nodes: Arc<OtherNodes>,
}

impl AccountInfos {
    /// `INFO`
    pub(super) async fn info(&self, account: AccountId) -> Answer {
        let used = self.used(account).await?;
        let tiers = self.accounts.tiers_of(account);
        let counts = self.stats.of(account);
        let body = AccountBody {
            whole: match &tiers[..] {
                [] => TierBody { limits: shown(&self.accounts.limits_of(account)), ..used.clone() },
                // Limits are those of its tiers, and so is what is reserved.
                _ => TierBody { reserved_memory: 0, reserved_storage: 0, ..used.clone() },
            },
            domain: &self.domain,
            api: ApiBody {
                level: API_LEVEL,
                total: counts.total,
                errors: counts.errors,
                inflight: self.requests.used().saturating_sub(1) as u64,
            },
            tiers: tiers.into_iter().map(|(name, limits)| tier(name, &limits, &used)).collect(),
        };
        Ok(envelope::ok(ResponseType("account_info"), &body))
    }

    /// What an account uses.
    async fn used(&self, account: AccountId) -> Result<TierBody, JsError> {
        let [mut file, mut memory] = self.calls.usage(Some(account)).await?;
        let [file_elsewhere, memory_elsewhere] = self.nodes.usage(account).await;
        file.add(&file_elsewhere);
        memory.add(&memory_elsewhere);
        let reserved = |storage| {
            let here = self.streams.read().reserved_bytes(account, storage);
            here.saturating_add(self.nodes.reserved(account, storage, ""))
        };
        Ok(TierBody {
            memory: memory.bytes,
            storage: file.bytes,
            reserved_memory: reserved(StorageType::Memory),
            reserved_storage: reserved(StorageType::File),
            streams: file.streams + memory.streams,
            consumers: file.consumers + memory.consumers,
            limits: LimitsBody::default(),
        })
    }
}
