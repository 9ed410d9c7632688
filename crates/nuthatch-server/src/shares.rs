//! Shares of what accounts use together: an account that uses up its own leaves room for others.

use nuthatch_streams::AccountId;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::hash::Hash;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// So much of something may be in use: by all accounts, and by each of them.
#[derive(Debug)]
pub struct Shares {
    max: usize,
    of_account_max: usize,
    used: Mutex<Used>,
}

#[derive(Default, Debug)]
struct Used {
    total: usize,
    by_account: FxHashMap<AccountId, usize>,
}

/// What would be too much.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Full {
    /// More than all accounts may use.
    All,
    /// More than the share of this account.
    Account,
}

impl Shares {
    /// Nothing is in use yet.
    pub fn new(max: usize, of_account_max: usize) -> Arc<Self> {
        Arc::new(Self { max, of_account_max, used: Mutex::default() })
    }

    /// Uses `amount` more until what is returned is dropped.
    pub fn take(self: &Arc<Self>, account: AccountId, amount: usize) -> Result<Share, Full> {
        let mut used = self.used.lock();
        if amount > self.max - used.total {
            return Err(Full::All);
        }
        let own = used.by_account.get(&account).copied().unwrap_or_default();
        if amount > self.of_account_max.saturating_sub(own) {
            return Err(Full::Account);
        }
        used.total += amount;
        used.by_account.insert(account, own + amount);
        Ok(Share { shares: self.clone(), account, amount })
    }

    /// How much is in use.
    pub fn used(&self) -> usize {
        self.used.lock().total
    }
}

/// A part that is in use.
#[derive(Debug)]
pub struct Share {
    shares: Arc<Shares>,
    account: AccountId,
    amount: usize,
}

impl Share {
    /// Uses `amount` more.
    pub fn grow(&mut self, amount: usize) -> Result<(), Full> {
        let mut more = self.shares.take(self.account, amount)?;
        self.amount += std::mem::take(&mut more.amount);
        Ok(())
    }

    /// Uses so much less.
    pub fn shrink(&mut self, amount: usize) {
        let amount = amount.min(self.amount);
        self.amount -= amount;
        drop(Self { shares: self.shares.clone(), account: self.account, amount });
    }

    /// How much it is.
    pub const fn amount(&self) -> usize {
        self.amount
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut used = self.shares.used.lock();
        used.total -= self.amount;
        // A part of nothing is not counted.
        let Some(own) = used.by_account.get_mut(&self.account) else { return };
        *own -= self.amount;
        if *own == 0 {
            used.by_account.remove(&self.account);
        }
    }
}

/// Work of which each party has only so much under way at a time; what is more waits for it.
#[derive(Debug)]
pub struct Turns<K: Copy + Eq + Hash> {
    of_one_max: usize,
    by_party: Mutex<FxHashMap<K, Arc<Semaphore>>>,
}

/// Work in turns of accounts.
pub type AccountTurns = Turns<AccountId>;

impl<K: Copy + Eq + Hash> Turns<K> {
    /// Nothing is under way yet.
    pub fn new(of_one_max: usize) -> Arc<Self> {
        Arc::new(Self { of_one_max, by_party: Mutex::default() })
    }

    /// Waits until it is the party's turn, in the order of the calls.
    pub async fn turn(self: &Arc<Self>, party: K) -> Turn<K> {
        let fresh = || Arc::new(Semaphore::new(self.of_one_max));
        let turns = self.by_party.lock().entry(party).or_insert_with(fresh).clone();
        let mut turn = Turn { turns: self.clone(), party, permit: None };
        turn.permit = Some(turns.acquire_owned().await.expect("it is never closed"));
        turn
    }
}

/// The right to do a piece of work for a party, until it is dropped.
#[derive(Debug)]
pub struct Turn<K: Copy + Eq + Hash = AccountId> {
    turns: Arc<Turns<K>>,
    party: K,
    /// `None` while it is waited for.
    permit: Option<OwnedSemaphorePermit>,
}

impl<K: Copy + Eq + Hash> Drop for Turn<K> {
    fn drop(&mut self) {
        self.permit = None;
        let mut turns = self.turns.by_party.lock();
        // Whoever has a turn or waits for one holds a part of it.
        if turns.get(&self.party).is_some_and(|own| Arc::strong_count(own) == 1) {
            turns.remove(&self.party);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: AccountId = AccountId(1);
    const OTHER: AccountId = AccountId(2);

    #[test]
    fn one_account_leaves_room_for_others() {
        let shares = Shares::new(10, 6);
        let first = shares.take(ONE, 4).unwrap();
        assert_eq!(shares.take(ONE, 3).unwrap_err(), Full::Account);
        let second = shares.take(ONE, 2).unwrap();
        let mut third = shares.take(OTHER, 1).unwrap();
        third.grow(3).unwrap();
        assert_eq!(third.grow(1).unwrap_err(), Full::All);
        third.shrink(2);
        assert_eq!((third.amount(), shares.used()), (2, 8));
        drop((first, third));
        assert_eq!(shares.used(), 2);
        drop(second);
        assert!(shares.used() == 0 && shares.used.lock().by_account.is_empty());
    }

    #[tokio::test]
    async fn turns_of_one_account_are_no_matter_of_others() {
        let turns = AccountTurns::new(1);
        let first = turns.turn(ONE).await;
        drop(turns.turn(OTHER).await);
        let waiting = turns.clone();
        let second = tokio::spawn(async move { drop(waiting.turn(ONE).await) });
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        drop(first);
        second.await.unwrap();
        assert!(turns.by_party.lock().is_empty());
    }
}
