//! Bounds on what an engine keeps for all its streams together, in memory and in the log.

use crate::sink::AccountId;
use rustc_hash::FxHashMap;

/// Subjects of all streams by default: about 1 GiB of names and counts.
pub const SUBJECTS_MAX_DEFAULT: usize = 10_000_000;
/// Message ids of all windows by default: about 700 MiB.
pub const MSG_IDS_MAX_DEFAULT: usize = 10_000_000;

/// Memory of the tables of messages of all streams by default, bytes: about a billion messages.
pub const TABLE_BYTES_MAX_DEFAULT: u64 = 16 << 30;

/// Messages with a time to live of all streams: about 500 MiB.
pub const TIMERS_MAX: usize = 10_000_000;

/// Bounds of one account in an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccountBounds {
    /// Bytes of all its messages; `u64::MAX`: no limit.
    pub bytes_max: u64,
    /// Largest `max_ack_pending` of a consumer; 0: no limit.
    pub max_ack_pending: i64,
    /// Most consumers of one stream; 0: no limit.
    pub max_consumers: i64,
}

/// A stream's use of the engine's budget.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Accounted {
    /// Distinct subjects.
    pub subjects: usize,
    /// Message ids remembered.
    pub msg_ids: usize,
    /// Messages with a time to live, and schedules.
    pub timers: usize,
    /// Bytes of messages, as JetStream counts them.
    pub bytes: u64,
    /// Memory of what is known of each message, bytes, about.
    pub table_bytes: u64,
}

/// Resource use and its bounds. Messages, subjects and ids above it are refused (10023, or 10002
/// where it is an account's own limit).
#[derive(Clone, Debug)]
pub struct Budget {
    used: Accounted,
    max: Accounted,
    /// Bytes of messages that there may be: none more while the tables take too much memory.
    bytes_bound: u64,
    /// Bytes of each account that ever had any.
    of_accounts: Vec<(AccountId, u64)>,
    /// Its place in `of_accounts`.
    places: FxHashMap<AccountId, usize>,
    /// The place used last, which is likely to be used again.
    latest: usize,
    /// Limits of accounts that have any.
    bounds: FxHashMap<AccountId, AccountBounds>,
}

impl Budget {
    /// An empty budget with these bounds.
    #[must_use]
    pub fn new(
        subjects_max: usize,
        msg_ids_max: usize,
        bytes_max: u64,
        table_bytes_max: u64,
    ) -> Self {
        Self {
            used: Accounted::default(),
            max: Accounted {
                subjects: subjects_max,
                msg_ids: msg_ids_max,
                timers: TIMERS_MAX,
                bytes: bytes_max,
                table_bytes: table_bytes_max,
            },
            bytes_bound: bytes_max,
            of_accounts: Vec::new(),
            places: FxHashMap::default(),
            latest: 0,
            bounds: FxHashMap::default(),
        }
    }

    /// Replaces the limits of accounts.
    pub fn set_bounds(&mut self, bounds: FxHashMap<AccountId, AccountBounds>) {
        self.bounds = bounds;
    }

    /// The limits of an account, if it has any.
    #[must_use]
    pub fn bounds_of(&self, account: AccountId) -> Option<AccountBounds> {
        self.bounds.get(&account).copied()
    }

    /// The use of a stream of this account went from one to the other.
    pub fn settle(&mut self, account: AccountId, (before, now): (Accounted, Accounted)) {
        if before == now {
            return;
        }
        if before.bytes != now.bytes {
            let bytes = self.bytes_of(account);
            *bytes = bytes.saturating_sub(before.bytes).saturating_add(now.bytes);
        }
        let is_known = self.used.subjects >= before.subjects
            && self.used.msg_ids >= before.msg_ids
            && self.used.timers >= before.timers;
        assert!(is_known, "what a stream gives back was taken");
        self.used.subjects = self.used.subjects - before.subjects + now.subjects;
        self.used.msg_ids = self.used.msg_ids - before.msg_ids + now.msg_ids;
        self.used.timers = self.used.timers - before.timers + now.timers;
        self.used.bytes = self.used.bytes.saturating_sub(before.bytes).saturating_add(now.bytes);
        self.used.table_bytes =
            self.used.table_bytes.saturating_sub(before.table_bytes) + now.table_bytes;
        let is_full = self.used.table_bytes >= self.max.table_bytes;
        self.bytes_bound = if is_full { 0 } else { self.max.bytes };
    }

    fn bytes_of(&mut self, account: AccountId) -> &mut u64 {
        if self.of_accounts.get(self.latest).is_none_or(|(known, _)| *known != account) {
            let next = self.of_accounts.len();
            self.latest = *self.places.entry(account).or_insert(next);
            if self.latest == next {
                self.of_accounts.push((account, 0));
            }
        }
        &mut self.of_accounts[self.latest].1
    }

    /// True if a new subject may come, given `unaccounted` ones that were not settled yet.
    #[must_use]
    pub const fn has_room_for_subject(&self, unaccounted: usize) -> bool {
        self.used.subjects + unaccounted < self.max.subjects
    }

    /// True if `more` bytes may come, given `unaccounted` ones that were not settled yet. None may
    /// while what is known of the messages takes as much memory as it may.
    #[inline]
    #[must_use]
    pub const fn has_room_for_bytes(&self, unaccounted: u64, more: u64) -> bool {
        self.used.bytes.saturating_add(unaccounted).saturating_add(more) <= self.bytes_bound
    }

    /// True if `more` bytes may come to an account, given `unaccounted` ones that were not settled
    /// yet.
    #[inline]
    #[must_use]
    pub fn account_has_room(&self, account: AccountId, unaccounted: u64, more: u64) -> bool {
        if self.bounds.is_empty() {
            return true;
        }
        let Some(bounds) = self.bounds.get(&account) else { return true };
        let place = self.places.get(&account);
        let used = place.map_or(0, |&place| self.of_accounts[place].1);
        used.saturating_add(unaccounted).saturating_add(more) <= bounds.bytes_max
    }

    /// True if another message with a time to live may come.
    #[must_use]
    pub const fn has_room_for_timer(&self) -> bool {
        self.used.timers < self.max.timers
    }

    /// True if another message id may be remembered.
    #[must_use]
    pub const fn has_room_for_id(&self) -> bool {
        self.used.msg_ids < self.max.msg_ids
    }
}
