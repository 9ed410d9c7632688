//! The accounts that have JetStream, and their limits.

use arc_swap::ArcSwap;
use nuthatch_server::options::GLOBAL_ACCOUNT;
use nuthatch_streams::AccountId;
use nuthatch_streams::consumer::ConsumerLimits;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Limits of an account. `None`: no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AccountLimits {
    /// Bytes of memory streams.
    pub max_memory_bytes: Option<u64>,
    /// Bytes of file streams.
    pub max_store_bytes: Option<u64>,
    /// Streams.
    pub max_streams: Option<u64>,
    /// Consumers of one stream.
    pub max_consumers: Option<u64>,
    /// `max_ack_pending` of any consumer (shown here, enforced by the engines).
    pub max_ack_pending: Option<u64>,
    /// Bytes of one memory stream.
    pub max_memory_stream_bytes: Option<u64>,
    /// Bytes of one file stream.
    pub max_store_stream_bytes: Option<u64>,
    /// Every stream must set `max_bytes`.
    pub max_bytes_required: bool,
}

/// An account beside the global one that has JetStream.
#[derive(Clone, Debug)]
pub struct ServedAccount {
    /// Its name.
    pub name: String,
    /// Its limits.
    pub limits: AccountLimits,
    /// The tiers that its token names, if it names any: [`ServedAccount::limits`] are those of streams
    /// with one replica then.
    pub tiers: Vec<(String, AccountLimits)>,
}

/// Accounts beside the global one that have JetStream.
pub type ServedAccounts = FxHashMap<AccountId, ServedAccount>;

/// The accounts that have JetStream now. The global one always has it.
pub(super) struct AccountTable {
    /// Those beside the global one.
    others: ArcSwap<ServedAccounts>,
    /// Limits of accounts that have none of their own.
    limits: AccountLimits,
    /// Limits of the server on consumers.
    consumers: ConsumerLimits,
}

impl AccountTable {
    pub(super) fn new(
        others: ServedAccounts,
        limits: AccountLimits,
        consumers: ConsumerLimits,
    ) -> Self {
        Self { others: ArcSwap::from_pointee(others), limits, consumers }
    }

    /// Replaces all accounts beside the global one.
    pub(super) fn set(&self, others: ServedAccounts) {
        self.others.store(Arc::new(others));
    }

    /// True if JetStream is on for an account.
    pub(super) fn serves(&self, account: AccountId) -> bool {
        account == AccountId::GLOBAL || self.others.load().contains_key(&account)
    }

    /// True if the global account is the only one.
    pub(super) fn is_global_only(&self) -> bool {
        self.others.load().is_empty()
    }

    /// Limits of an account.
    pub(super) fn limits_of(&self, account: AccountId) -> AccountLimits {
        self.own_limits_of(account).unwrap_or(self.limits)
    }

    /// Limits that an account has of its own.
    pub(super) fn own_limits_of(&self, account: AccountId) -> Option<AccountLimits> {
        self.others.load().get(&account).map(|own| own.limits)
    }

    /// The tiers that an account's token names.
    pub(super) fn tiers_of(&self, account: AccountId) -> Vec<(String, AccountLimits)> {
        self.others.load().get(&account).map_or_else(Vec::new, |own| own.tiers.clone())
    }

    /// The limits on consumers of an account's streams, as its engines keep them; 0: none.
    pub(super) fn consumer_limits(&self, account: AccountId) -> ConsumerLimits {
        let (own, mut limits) = (self.limits_of(account), self.consumers);
        let lower = |server: i64, own: Option<u64>| {
            let own = own.and_then(|own| i64::try_from(own).ok()).unwrap_or_default();
            if server > 0 && own > 0 { server.min(own) } else { server.max(own) }
        };
        limits.max_ack_pending = lower(limits.max_ack_pending, own.max_ack_pending);
        limits.max_consumers = lower(limits.max_consumers, own.max_consumers);
        limits
    }

    /// Name of an account as monitoring shows it. One that is no longer configured has only a
    /// number.
    pub(super) fn name_of(&self, account: AccountId) -> String {
        if account == AccountId::GLOBAL {
            return GLOBAL_ACCOUNT.to_owned();
        }
        let others = self.others.load();
        others.get(&account).map_or_else(|| format!("#{}", account.0), |served| served.name.clone())
    }

    /// Accounts that have JetStream, and those of `with_streams`.
    pub(super) fn ids(&self, with_streams: impl Iterator<Item = AccountId>) -> Vec<AccountId> {
        let mut ids = vec![AccountId::GLOBAL];
        ids.extend(self.others.load().keys());
        ids.extend(with_streams.filter(|id| !self.serves(*id)));
        ids
    }
}
