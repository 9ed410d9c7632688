//! A client connection as the rest of the server sees it.

use nuthatch_streams::AccountId;

/// A client connection. Shared by its tasks, its subscriptions and whatever answers it.
#[derive(Debug)]
pub struct Connection {
    /// Its number, unique in the life of the server, from 1.
    pub id: u64,
    /// Its account.
    pub account: AccountId,
}
