//! `INFO`: an account's use of JetStream and its limits.

use crate::envelope::{self, ResponseType};
use crate::service::{AccountLimits, Answer, JetStream};
use nuthatch_protocol::js::{API_LEVEL, StorageType, StreamConfig};
use nuthatch_protocol::jserror::JsError;
use nuthatch_server::account_id::SYSTEM_ACCOUNT_ID;
use nuthatch_server::operator::TIER;
use nuthatch_server::served::Scope;
use nuthatch_streams::AccountId;
use serde::Serialize;
use std::collections::BTreeMap;

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

#[derive(Serialize)]
struct PurgeBody {
    initiated: bool,
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

impl JetStream {
    pub(super) async fn account_info(&self, account: AccountId) -> Answer {
        let used = self.used(account).await?;
        let tiers = self.accounts.tiers_of(account);
        let counts = self.stats.of(account);
        let body = AccountBody {
            whole: match &tiers[..] {
                [] => TierBody { limits: shown(&self.accounts.limits_of(account)), ..used.clone() },
                // Limits are those of its tiers, and so is what is reserved.
                _ => TierBody { reserved_memory: 0, reserved_storage: 0, ..used.clone() },
            },
            domain: &self.settings.domain,
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
        let [file_elsewhere, memory_elsewhere] = self.usage_elsewhere(account).await;
        file.add(&file_elsewhere);
        memory.add(&memory_elsewhere);
        let reserved = |storage| {
            let here = self.streams.read().reserved_bytes(account, storage);
            let config = StreamConfig { storage, ..StreamConfig::default() };
            here.saturating_add(self.reserved_elsewhere(account, &config))
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

    /// [`JetStream::account_purge`] at all nodes that are connected.
    pub(super) async fn purge_everywhere(&self, name: &str, scope: &Scope) -> Answer {
        let answer = self.account_purge(name).await?;
        if *scope == Scope::Cluster {
            self.ask_all(SYSTEM_ACCOUNT_ID, &format!("ACCOUNT.PURGE.{name}")).await;
        }
        Ok(answer)
    }

    /// Deletes all streams of an account, as `nats server account purge` asks for. The caller sees to
    /// it that the system account asks. An account without streams is a success, as upstream.
    pub(super) async fn account_purge(&self, name: &str) -> Answer {
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
            match self.stream_delete(account, &stream, b"").await {
                // Another call was faster.
                Err(error) if error.err_code == JsError::STREAM_NOT_FOUND.err_code => {}
                done => drop(done?),
            }
        }
        Ok(envelope::ok(ResponseType("account_purge"), &PurgeBody { initiated: true }))
    }
}
