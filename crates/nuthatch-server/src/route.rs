//! From a subject to whoever gets a message: subscriptions of the account, and the stream that owns
//! the subject.

use crate::account::Account;
use crate::conn::Connection;
use crate::interest::{Matched, SubRef};
use crate::jetstream_hook::{JetStreamHook, StreamRoute};
use crate::mapping::Fixed;
use crate::stage::{Outgoing, Stage};
use crate::subscription::Role;
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
    /// Streams of other accounts that store what they import, each with the subject there.
    pub abroad: Vec<(Box<[u8]>, StreamRoute)>,
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
    /// What subject mappings make of subjects.
    mapped: FxHashMap<Box<[u8]>, Mapped>,
    last_unmapped: Vec<u8>,
    /// The last subject that always becomes the same one, and that one.
    last_mapped: (Vec<u8>, Vec<u8>),
}

/// What subject mappings make of a subject.
#[derive(Clone)]
enum Mapped {
    /// Nothing.
    Unchanged,
    /// Always this.
    To(Box<[u8]>),
    /// Something else each time: the place of the mapping.
    Choice(usize),
}

/// What became of the subject of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mapping {
    /// It stays as it is.
    Unchanged,
    /// It is another one now.
    Changed,
    /// The message is dropped.
    Dropped,
}

impl AccountRoutes {
    fn clear(&mut self) {
        self.by_subject.clear();
        self.routes.clear();
        self.last_subject.clear();
        self.mapped.clear();
        self.last_unmapped.clear();
        self.last_mapped.0.clear();
    }

    /// Puts what the account's mappings make of `subject` into `out`.
    #[inline]
    fn map(&mut self, subject: &[u8], dice: &mut Dice, out: &mut Vec<u8>) -> Mapping {
        if subject.is_empty() || self.last_unmapped == subject {
            return Mapping::Unchanged;
        }
        if self.last_mapped.0 == subject {
            out.clear();
            out.extend_from_slice(&self.last_mapped.1);
            return Mapping::Changed;
        }
        if self.mapped.len() >= ROUTES_MAX {
            self.mapped.clear();
        }
        let mapped = match self.mapped.get(subject) {
            Some(mapped) => mapped,
            None => {
                let mapped = match self.account.mappings.table().fixed(subject) {
                    Fixed::Unchanged => Mapped::Unchanged,
                    Fixed::To(subject) => Mapped::To(subject),
                    Fixed::Choice(place) => Mapped::Choice(place),
                };
                self.mapped.entry(subject.into()).or_insert(mapped)
            }
        };
        match mapped {
            Mapped::Unchanged => {
                self.last_unmapped.clear();
                self.last_unmapped.extend_from_slice(subject);
                Mapping::Unchanged
            }
            Mapped::To(to) => {
                let (from, last) = &mut self.last_mapped;
                from.clear();
                from.extend_from_slice(subject);
                last.clear();
                last.extend_from_slice(to);
                out.clear();
                out.extend_from_slice(to);
                Mapping::Changed
            }
            Mapped::Choice(place) => {
                self.account.mappings.table().choose(*place, subject, dice, out)
            }
        }
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
        route.abroad = self.account.exchange.streams_abroad(hook, subject);
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
        let known = self.known(account, hook);
        let at = known.position(hook, subject);
        &known.routes[at]
    }

    /// Applies the account's subject mappings to a subject.
    #[inline]
    pub fn map(
        &mut self,
        account: &Arc<Account>,
        hook: &dyn JetStreamHook,
        subject: &[u8],
        dice: &mut Dice,
        out: &mut Vec<u8>,
    ) -> Mapping {
        self.known(account, hook).map(subject, dice, out)
    }

    #[inline]
    fn known(&mut self, account: &Arc<Account>, hook: &dyn JetStreamHook) -> &mut AccountRoutes {
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
        known
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
            mapped: FxHashMap::default(),
            last_unmapped: Vec::new(),
            last_mapped: Default::default(),
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
        (self.next() % bound as u64) as usize
    }

    /// Any number.
    pub fn number(&mut self) -> u32 {
        (self.next() >> 32) as u32
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// How a message got where it is, and what delivers it.
pub struct Way<'a> {
    /// The publishing connection, which may have switched echo off.
    pub from: Option<&'a Arc<Connection>>,
    /// Where deliveries are collected.
    pub stage: &'a mut Stage,
    /// For queue groups.
    pub dice: &'a mut Dice,
    /// Accounts it has passed.
    pub hops: u8,
    /// It came through an imported service: exported streams do not see it.
    pub by_service: bool,
}

/// Delivers to every plain subscription and to one member of each queue group. `from` is the
/// publishing connection, which may have switched echo off. Returns whether anybody took it.
#[inline]
pub fn deliver(
    matched: &Matched,
    message: &Outgoing<'_>,
    from: Option<&Arc<Connection>>,
    stage: &mut Stage,
    dice: &mut Dice,
) -> bool {
    let mut way = Way { from, stage, dice, hops: 0, by_service: false };
    deliver_on(matched, message, &mut way)
}

/// [`deliver`] on a way that has begun.
#[inline]
pub fn deliver_on(matched: &Matched, message: &Outgoing<'_>, way: &mut Way<'_>) -> bool {
    let mut taken = false;
    for sub in matched.plain() {
        taken |= deliver_to(sub, message, way);
    }
    for (_, members) in matched.groups() {
        let start = if members.len() == 1 { 0 } else { way.dice.roll(members.len()) };
        let in_turn = members[start..].iter().chain(&members[..start]);
        for (_, sub) in in_turn {
            if deliver_to(sub, message, way) {
                taken = true;
                break;
            }
        }
    }
    taken
}

#[inline]
fn deliver_to(sub: &SubRef, message: &Outgoing<'_>, way: &mut Way<'_>) -> bool {
    if !sub.echo && way.from.is_some_and(|from| Arc::ptr_eq(from, &sub.conn)) {
        return false;
    }
    match &sub.role {
        Role::Client => way.stage.deliver(sub, message),
        role => deliver_specially(sub, role, message, way),
    }
}

#[cold]
fn deliver_specially(sub: &SubRef, role: &Role, message: &Outgoing<'_>, way: &mut Way<'_>) -> bool {
    match role {
        Role::Client => way.stage.deliver(sub, message),
        Role::Server(receiver) => receiver.receive(sub, message, way),
        Role::Shadow { .. } if way.by_service => false,
        Role::Shadow { of, import } => {
            if message.subject != message.routed {
                // A consumer's delivery shows the subject it was stored under, as upstream.
                return way.stage.deliver(of, message);
            }
            let mut subject = Vec::new();
            import.inward(message.subject, &mut subject);
            let message = Outgoing { subject: &subject, routed: &subject, ..*message };
            way.stage.deliver(of, &message)
        }
    }
}

/// Whether those who must listen on a subject do.
#[must_use]
pub fn is_heard(matched: &Matched, group: &[u8], routed: &[u8]) -> bool {
    let hears = |sub: &SubRef| match &sub.role {
        Role::Server(receiver) => receiver.hears(routed),
        _ => true,
    };
    let mut groups = matched.groups();
    if group.is_empty() {
        return groups.next().is_some() || matched.plain().iter().any(hears);
    }
    let is_member = |sub: &SubRef| sub.queue.as_deref() == Some(group);
    groups.any(|(_, members)| members.first().is_some_and(|(_, sub)| is_member(sub)))
}

/// Whether all who would get a message have room for it.
#[must_use]
pub fn is_ready(matched: &Matched, routed: &[u8], engine_bit: u32) -> bool {
    let ready = |sub: &SubRef| match &sub.role {
        Role::Server(receiver) => receiver.ready(routed, engine_bit),
        _ => sub.conn.ready(engine_bit),
    };
    matched.plain().iter().all(ready)
        && matched.groups().all(|(_, members)| members.iter().any(|(_, sub)| ready(sub)))
}
