//! The table of connections: those that are open, and the last ones that were closed.

use crate::close_reason::CloseReason;
use crate::conn::Connection;
use crate::outbox::Tally;
use crate::subscription::Subscription;
use nuthatch_streams::AccountId;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// Subscriptions that are remembered.
pub type SubscriptionList = Arc<[Arc<Subscription>]>;

/// A connection that was closed.
#[derive(Clone, Debug)]
pub struct Closed {
    /// It.
    pub conn: Arc<Connection>,
    /// When it was closed.
    pub stopped: SystemTime,
    /// Why.
    pub reason: CloseReason,
    /// How many subscriptions it had.
    pub subscriptions: usize,
    /// Those that are remembered.
    pub listed: SubscriptionList,
}

/// Subscriptions of closed connections that are remembered, in all; those of the connections that were
/// closed first are forgotten first.
pub const CLOSED_SUBSCRIPTIONS_MAX: usize = 65_536;

/// Those of one connection.
pub const CLOSED_SUBSCRIPTIONS_OF_ONE_MAX: usize = 4096;

/// What a connection listened to that is being closed.
#[derive(Clone, Debug, Default)]
pub struct Listened {
    /// How many subscriptions it had.
    pub count: usize,
    /// At most [`CLOSED_SUBSCRIPTIONS_OF_ONE_MAX`] of them.
    pub some: SubscriptionList,
}

impl Listened {
    /// What an open connection listens to.
    #[must_use]
    pub fn of(conn: &Connection) -> Self {
        let some = conn.some_subscriptions(CLOSED_SUBSCRIPTIONS_OF_ONE_MAX).into();
        Self { count: conn.subscription_count(), some }
    }
}

#[derive(Default)]
struct Table {
    open: FxHashMap<u64, Arc<Connection>>,
    closed: VecDeque<Closed>,
    /// Subscriptions that they list.
    listed: usize,
    /// Sums of connections that are gone.
    received: Tally,
    sent: Tally,
    /// The same by account; accounts are few and bounded by the configuration.
    gone: FxHashMap<AccountId, AccountTraffic>,
}

impl Table {
    /// Remembers a connection; returns what is forgotten for it.
    fn note_closed(
        &mut self,
        closed: Closed,
        max: usize,
    ) -> (Option<Closed>, Vec<SubscriptionList>) {
        let oldest = if self.closed.len() >= max { self.closed.pop_front() } else { None };
        self.listed -= oldest.as_ref().map_or(0, |closed| closed.listed.len());
        self.listed += closed.listed.len();
        self.closed.push_back(closed);
        let mut lists = Vec::new();
        for closed in &mut self.closed {
            if self.listed <= CLOSED_SUBSCRIPTIONS_MAX {
                break;
            }
            self.listed -= closed.listed.len();
            lists.push(std::mem::take(&mut closed.listed));
        }
        (oldest, lists)
    }
}

/// Traffic of one account's connections.
#[derive(Clone, Copy, Default, Debug)]
pub struct AccountTraffic {
    /// From clients.
    pub received: Tally,
    /// To clients.
    pub sent: Tally,
    /// Clients closed as slow consumers.
    pub slow_consumers: u64,
}

impl AccountTraffic {
    /// Adds what other connections of the account did.
    pub fn add(&mut self, more: &Self) {
        add(&mut self.received, more.received);
        add(&mut self.sent, more.sent);
        self.slow_consumers += more.slow_consumers;
    }
}

/// The connections of a server.
pub struct Connections {
    table: Mutex<Table>,
    closed_max: usize,
    next_id: AtomicU64,
    total: AtomicU64,
}

/// Messages and bytes of a whole server.
#[derive(Clone, Copy, Default, Debug)]
pub struct Traffic {
    /// From clients.
    pub received: Tally,
    /// To clients.
    pub sent: Tally,
}

impl Connections {
    /// An empty table that remembers `closed_max` closed connections.
    #[must_use]
    pub fn new(closed_max: usize) -> Self {
        Self {
            table: Mutex::default(),
            closed_max,
            next_id: AtomicU64::new(1),
            total: AtomicU64::new(0),
        }
    }

    /// A fresh number for a connection.
    pub fn next_id(&self) -> u64 {
        self.total.fetch_add(1, Ordering::Relaxed);
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// A fresh number for a connection to another server, which does not count as a client.
    pub fn fresh_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Connections accepted so far.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Adds a connection unless there are `max` already.
    pub fn add(&self, conn: &Arc<Connection>, max: usize) -> bool {
        let mut table = self.table.lock();
        if table.open.len() >= max {
            return false;
        }
        table.open.insert(conn.id, conn.clone());
        true
    }

    /// Moves a connection to the closed ones.
    pub fn remove(&self, conn: &Arc<Connection>, listened: Listened) {
        let account = conn.session().account.id;
        let (received, sent) = (conn.received.get(), conn.outbox().totals());
        let reason = conn.close_reason().unwrap_or(CloseReason::ClientClosed);
        let mut table = self.table.lock();
        table.open.remove(&conn.id);
        add(&mut table.received, received);
        add(&mut table.sent, sent);
        let gone = table.gone.entry(account).or_default();
        add(&mut gone.received, received);
        add(&mut gone.sent, sent);
        gone.slow_consumers += u64::from(reason.is_slow_consumer());
        if self.closed_max == 0 {
            return;
        }
        let forgotten = table.note_closed(
            Closed {
                conn: conn.clone(),
                stopped: SystemTime::now(),
                reason,
                subscriptions: listened.count,
                listed: listened.some,
            },
            self.closed_max,
        );
        drop(table);
        // Dropped outside of the lock: they may be many.
        drop(forgotten);
    }

    /// Number of open connections.
    pub fn len(&self) -> usize {
        self.table.lock().open.len()
    }

    /// True if there are no open connections.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// An open connection.
    pub fn get(&self, id: u64) -> Option<Arc<Connection>> {
        self.table.lock().open.get(&id).cloned()
    }

    /// Open connections, oldest first.
    pub fn open(&self) -> Vec<Arc<Connection>> {
        let mut open: Vec<_> = self.table.lock().open.values().cloned().collect();
        open.sort_unstable_by_key(|conn| conn.id);
        open
    }

    /// Forgets all connections, those that are open too: for a server that has ended in a process that goes on.
    pub fn forget_all(&self) {
        let mut table = self.table.lock();
        let (open, closed) = (std::mem::take(&mut table.open), std::mem::take(&mut table.closed));
        table.listed = 0;
        drop(table);
        // Dropped outside of the lock: the last one may drop the server.
        drop((open, closed));
    }

    /// Closed connections, oldest first.
    pub fn closed(&self) -> Vec<Closed> {
        self.table.lock().closed.iter().cloned().collect()
    }

    /// Messages and bytes so far, by account.
    pub fn traffic_by_account(&self) -> FxHashMap<AccountId, AccountTraffic> {
        let table = self.table.lock();
        let mut traffic = table.gone.clone();
        for conn in table.open.values() {
            let of_account = traffic.entry(conn.session().account.id).or_default();
            add(&mut of_account.received, conn.received.get());
            add(&mut of_account.sent, conn.outbox().totals());
        }
        traffic
    }

    /// Messages and bytes so far.
    pub fn traffic(&self) -> Traffic {
        let table = self.table.lock();
        let mut traffic = Traffic { received: table.received, sent: table.sent };
        for conn in table.open.values() {
            add(&mut traffic.received, conn.received.get());
            add(&mut traffic.sent, conn.outbox().totals());
        }
        traffic
    }
}

fn add(sum: &mut Tally, more: Tally) {
    sum.messages += more.messages;
    sum.bytes += more.bytes;
}
