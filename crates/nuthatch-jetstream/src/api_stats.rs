//! Counters of the API.

use nuthatch_log::stats::Latency;
use nuthatch_streams::AccountId;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::atomic::AtomicU64;

/// Requests that were answered.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ApiCounts {
    /// All of them.
    pub total: u64,
    /// Those answered with an error.
    pub errors: u64,
}

impl ApiCounts {
    fn add(&mut self, failed: bool) {
        self.total += 1;
        self.errors += u64::from(failed);
    }
}

/// Counters of the API (`api` in account info and `/jsz`).
#[derive(Default, Debug)]
pub struct ApiStats {
    /// Of all accounts together, and of each that has asked: as many as there are accounts.
    counts: Mutex<(ApiCounts, FxHashMap<AccountId, ApiCounts>)>,
    /// Restores that were refused or came to nothing.
    pub refused_restores: AtomicU64,
    /// Time from a request to its answer.
    pub(super) latency: Latency,
}

impl ApiStats {
    /// A request of this account is about to be answered.
    pub(super) fn count(&self, account: AccountId, failed: bool) {
        let (all, of_accounts) = &mut *self.counts.lock();
        all.add(failed);
        of_accounts.entry(account).or_default().add(failed);
    }

    /// Requests of all accounts.
    pub(super) fn all(&self) -> ApiCounts {
        self.counts.lock().0
    }

    /// Requests of one account.
    pub(super) fn of(&self, account: AccountId) -> ApiCounts {
        self.counts.lock().1.get(&account).copied().unwrap_or_default()
    }
}
