//! Ending all subscriptions of a connection, of which there may be very many.

use super::Connection;
use crate::subscription::Subscription;
use std::collections::hash_map::IntoValues;
use std::sync::Arc;

/// Subscriptions that are being ended. Those that are left when it is dropped end then, so that a
/// task that is stopped leaves none behind.
pub(super) struct Ending<'a> {
    conn: &'a Connection,
    /// One by one: taking all of a large table apart in one go takes long.
    subs: IntoValues<Box<[u8]>, Arc<Subscription>>,
}

impl Ending<'_> {
    /// All subscriptions of a connection.
    pub(super) fn of(conn: &Connection) -> Ending<'_> {
        Ending { conn, subs: conn.subs.take() }
    }

    /// Ends one; `false`: there are no more.
    pub(super) fn next(&mut self) -> bool {
        let Some(sub) = self.subs.next() else { return false };
        self.conn.subs.uncharge(&sub);
        self.conn.detach(&sub);
        true
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        while self.next() {}
    }
}
