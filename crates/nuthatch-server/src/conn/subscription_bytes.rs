//! Memory of a connection's subscriptions: a share of what those of its account, and of all accounts,
//! may take.

use crate::shares::{Share, Shares};
use nuthatch_streams::AccountId;
use std::sync::Arc;

/// Memory of the subscriptions of all connections.
pub const SUBSCRIPTION_BYTES_MAX: usize = 4 << 30;
/// Memory of the subscriptions of one account.
pub const SUBSCRIPTION_BYTES_OF_ACCOUNT_MAX: usize = 2 << 30;
/// Memory of the subscriptions of one client. Another server has those of all its clients: it is
/// bounded by its account.
pub const SUBSCRIPTION_BYTES_OF_CLIENT_MAX: usize = 512 << 20;
/// What a subscription takes beside its names, about.
const SUBSCRIPTION_BASE_BYTES: usize = 400;
/// A connection takes its share in steps that grow with it up to this, so that many connections of one
/// subscription each take little more than those; it gives back what is more than two such steps.
const STEP_BYTES: usize = 64 * 1024;

/// The shares of all accounts.
pub(crate) fn shares() -> Arc<Shares> {
    Shares::new(SUBSCRIPTION_BYTES_MAX, SUBSCRIPTION_BYTES_OF_ACCOUNT_MAX)
}

/// Memory of a subscription.
pub(super) const fn bytes_of(subject: &[u8], queue: Option<&[u8]>, sid: &[u8]) -> usize {
    let queue = match queue {
        Some(queue) => queue.len(),
        None => 0,
    };
    // The connection's table has the name of it, too.
    SUBSCRIPTION_BASE_BYTES + subject.len() + queue + 2 * sid.len()
}

/// What a connection's subscriptions take.
#[derive(Default, Debug)]
pub(super) struct SubscriptionBytes {
    used: usize,
    /// Of the account that the first of them belongs to; it has at least `used`.
    share: Option<Share>,
}

impl SubscriptionBytes {
    /// Takes more; `false`: that would be too much.
    pub(super) fn take(
        &mut self,
        shares: &Arc<Shares>,
        account: AccountId,
        bytes: usize,
        max_bytes: usize,
    ) -> bool {
        let wanted = self.used + bytes;
        if wanted > max_bytes {
            return false;
        }
        if self.share.is_none() {
            self.share = shares.take(account, 0).ok();
        }
        let Some(share) = &mut self.share else { return false };
        let missing = wanted.saturating_sub(share.amount());
        let step = missing.max(wanted.min(STEP_BYTES));
        let enough = missing == 0 || share.grow(step).is_ok() || share.grow(missing).is_ok();
        self.used = if enough { wanted } else { self.used };
        enough
    }

    /// What they take.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    pub(super) fn give_back(&mut self, bytes: usize) {
        self.used = self.used.saturating_sub(bytes);
        if self.used == 0 {
            self.share = None;
        } else if let Some(share) = &mut self.share
            && share.amount() - self.used > 2 * STEP_BYTES
        {
            share.shrink(STEP_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: AccountId = AccountId(7);
    const OTHER: AccountId = AccountId(8);

    #[test]
    fn connections_accounts_and_all_together_have_bounds() {
        let shares = Shares::new(4 << 20, 2 << 20);
        let mut conns: [SubscriptionBytes; 4] = Default::default();
        let mut fill = |at: usize, account| {
            (0_usize..).take_while(|_| conns[at].take(&shares, account, 1000, 1 << 20)).count()
        };
        assert_eq!(fill(0, ONE), 1048, "of a connection");
        let of_others = fill(1, ONE) + fill(2, ONE);
        // What a share has beyond what is used is a step for each connection at most.
        assert!((1049 - 2 * 66..=1049).contains(&of_others), "of an account: {of_others}");
        assert_eq!(fill(3, OTHER), 1048);
        assert!(shares.used() <= 4 << 20);
        for conn in &mut conns {
            while conn.used > 0 {
                conn.give_back(1000);
                assert!(conn.share.as_ref().map_or(0, Share::amount) >= conn.used);
            }
        }
        assert_eq!(shares.used(), 0);
        let shares = Shares::new(1 << 20, 1 << 20);
        let mut conns: [SubscriptionBytes; 2] = Default::default();
        while conns[0].take(&shares, ONE, 1000, usize::MAX) {}
        while conns[1].take(&shares, OTHER, 1000, usize::MAX) {}
        assert!(shares.used() <= 1 << 20, "of all");
    }

    /// Each takes what it needs, not a step that would do for many more.
    #[test]
    fn as_many_clients_of_one_subscription_as_connections_are_allowed() {
        let (shares, bytes) = (shares(), bytes_of(b"an.ordinary.subject", None, b"1"));
        let mut conns: Vec<SubscriptionBytes> = Vec::new();
        conns.resize_with(65_536, Default::default);
        let max = SUBSCRIPTION_BYTES_OF_CLIENT_MAX;
        assert!(conns.iter_mut().all(|conn| conn.take(&shares, ONE, bytes, max)));
        assert!(shares.used() <= 2 * conns.len() * bytes);
    }
}
