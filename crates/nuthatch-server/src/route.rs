//! From a subject to whoever gets a message: subscriptions of the account, and the stream that owns
//! the subject.

use crate::account::Account;
use crate::conn::Connection;
use crate::interest::{Matched, SubRef};
use crate::jetstream_hook::{JetStreamHook, StreamRoute};
use crate::stage::{Outgoing, Stage};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Subjects remembered per account and thread; then the memory starts anew.
const ROUTES_MAX: usize = 4096;
/// Accounts remembered per thread.
const ACCOUNTS_MAX: usize = 8;

/// Where messages on one subject go.
#[derive(Default)]
pub struct Route {
    /// Subscriptions.
    pub matched: Matched,
    /// The stream that owns the subject.
    pub stream: Option<StreamRoute>,
}

struct AccountRoutes {
    account: Arc<Account>,
    interest_generation: u64,
    stream_generation: u64,
    by_subject: FxHashMap<Box<[u8]>, usize>,
    routes: Vec<Route>,
    /// The subject looked up last: most publishers repeat themselves.
    last_subject: Vec<u8>,
    last: usize,
}

impl AccountRoutes {
    fn clear(&mut self) {
        self.by_subject.clear();
        self.routes.clear();
        self.last_subject.clear();
    }

    #[inline]
    fn position(&mut self, hook: &dyn JetStreamHook, subject: &[u8]) -> usize {
        if self.last_subject == subject && !subject.is_empty() {
            return self.last;
        }
        self.last = match self.by_subject.get(subject) {
            Some(&at) => at,
            None => self.add(hook, subject),
        };
        self.last_subject.clear();
        self.last_subject.extend_from_slice(subject);
        self.last
    }

    fn add(&mut self, hook: &dyn JetStreamHook, subject: &[u8]) -> usize {
        if self.routes.len() >= ROUTES_MAX {
            self.clear();
        }
        let mut route = Route::default();
        self.account.interest.match_into(subject, &mut route.matched);
        route.stream = hook.route(self.account.id, subject);
        self.by_subject.insert(subject.into(), self.routes.len());
        self.routes.push(route);
        self.routes.len() - 1
    }
}

/// Routes known to one thread, valid as long as neither interest nor streams change.
#[derive(Default)]
pub struct RouteCache {
    accounts: Vec<AccountRoutes>,
}

impl RouteCache {
    /// The route of a subject.
    #[inline]
    pub fn lookup(
        &mut self,
        account: &Arc<Account>,
        hook: &dyn JetStreamHook,
        subject: &[u8],
    ) -> &Route {
        let at = match self.accounts.iter().position(|a| Arc::ptr_eq(&a.account, account)) {
            Some(at) => at,
            None => self.open(account),
        };
        let known = &mut self.accounts[at];
        // Read before matching: what changes in between makes the result look old, not new.
        let (interest, streams) = (account.interest.generation(), hook.generation());
        if known.interest_generation != interest || known.stream_generation != streams {
            known.clear();
            known.interest_generation = interest;
            known.stream_generation = streams;
        }
        let at = known.position(hook, subject);
        &known.routes[at]
    }

    fn open(&mut self, account: &Arc<Account>) -> usize {
        if self.accounts.len() >= ACCOUNTS_MAX {
            self.accounts.remove(0);
        }
        self.accounts.push(AccountRoutes {
            account: account.clone(),
            interest_generation: 0,
            stream_generation: 0,
            by_subject: FxHashMap::default(),
            routes: Vec::new(),
            last_subject: Vec::new(),
            last: 0,
        });
        self.accounts.len() - 1
    }
}

/// Cheap randomness for the choice among the members of a queue group.
#[derive(Clone, Copy, Debug)]
pub struct Dice(u64);

impl Default for Dice {
    fn default() -> Self {
        use std::hash::{BuildHasher, RandomState};
        Self(RandomState::new().hash_one(0_u8) | 1)
    }
}

impl Dice {
    /// A number below `bound`, which must not be 0.
    pub fn roll(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// Delivers to every plain subscription and to one member of each queue group. `from` is the
/// publishing connection, which may have switched echo off. Returns whether anybody took it.
#[inline]
pub fn deliver(
    matched: &Matched,
    message: &Outgoing<'_>,
    from: Option<&Connection>,
    stage: &mut Stage,
    dice: &mut Dice,
) -> bool {
    let mut taken = false;
    for sub in matched.plain() {
        taken |= deliver_to(sub, message, from, stage);
    }
    for (_, members) in matched.groups() {
        let start = if members.len() == 1 { 0 } else { dice.roll(members.len()) };
        let in_turn = members[start..].iter().chain(&members[..start]);
        for (_, sub) in in_turn {
            if deliver_to(sub, message, from, stage) {
                taken = true;
                break;
            }
        }
    }
    taken
}

#[inline]
fn deliver_to(
    sub: &SubRef,
    message: &Outgoing<'_>,
    from: Option<&Connection>,
    stage: &mut Stage,
) -> bool {
    if !sub.echo && from.is_some_and(|from| std::ptr::eq(from, &*sub.conn)) {
        return false;
    }
    stage.deliver(sub, message)
}
