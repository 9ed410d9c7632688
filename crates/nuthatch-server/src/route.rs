//! From a subject to whoever gets a message: subscriptions of the account, and the stream that owns
//! the subject.

use crate::account::Account;
use crate::account::imports::Importer;
use crate::egress::{DeliveryContext, EgressBatch, Groups, Outgoing};
use crate::interest::{Matched, SubRef};
use crate::jetstream_port::{JetStreamPort, StreamRoute, Wanted};
use crate::log_id::LogSlot;
use crate::mapping::{Fixed, Mapping};
use crate::member_rng::MemberRng;
use crate::outlet::Outlet;
use crate::subscription::{Receiver, Role, Subscription};
pub(crate) use leafs::nodes_are_there;
use nuthatch_protocol::subject::{has_wildcard, matches};
use nuthatch_protocol::transform::Transform;
use nuthatch_streams::AccountId;
pub use regions::is_region;
use regions::{Found, Regions};
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::hash::BuildHasher;
use std::sync::Arc;

mod leafs;
mod regions;
mod traced;

/// Subjects remembered per account and thread; then the memory starts anew.
const ROUTES_MAX: usize = 16 * 1024;
/// So many subjects are remembered at first sight; further ones when they come a second time, so
/// that a publisher with very many subjects does not drive out what others need.
const ROUTES_FREE: usize = 1024;
/// Subscriptions in all remembered routes of an account and thread; then the memory starts anew.
const ROUTE_SUBSCRIPTIONS_MAX: usize = if cfg!(test) { 20_000 } else { 256 * 1024 };
/// Bytes of subjects that are remembered, for an account and thread; then likewise.
const ROUTE_SUBJECT_BYTES_MAX: usize = if cfg!(test) { 200_000 } else { 4 * 1024 * 1024 };
/// Places for marks of subjects that came once, four in each: as many as four times [`ROUTES_MAX`],
/// so that of subjects in turn which could all be remembered hardly any push out each other's mark.
const SEEN_PLACES: usize = 16 * 1024;
/// The place of the route of a subject that is not remembered.
const PASSING: usize = 0;
/// Comparisons of subjects with patterns that are made to keep the other routes; beyond them all are
/// found again.
const COMPARISONS_MAX: usize = 64 * 1024;
/// Accounts remembered per thread.
const ACCOUNTS_MAX: usize = 8;

/// A stream of another account that stores what it imports.
pub struct ForeignStream {
    /// The subject there.
    pub subject: Box<[u8]>,
    /// The stream.
    pub route: StreamRoute,
    /// The account.
    pub account: AccountId,
    /// Traces follow messages there.
    pub allow_trace: bool,
}

/// Route of messages on one subject.
#[derive(Default)]
pub struct Route {
    /// Subscriptions.
    pub matched: Matched,
    /// The stream that owns the subject.
    pub stream: Option<StreamRoute>,
    /// Streams of other accounts that store what they import, each with the subject there.
    pub foreign_streams: Option<Arc<[ForeignStream]>>,
}

struct AccountRoutes {
    account: Arc<Account>,
    interest_version: u64,
    streams_version: u64,
    by_subject: FxHashMap<Box<[u8]>, usize>,
    /// The first one is [`PASSING`].
    routes: Vec<Route>,
    /// Places in `routes` of which nothing knows any more.
    free: Vec<usize>,
    /// Subscriptions in those that are remembered.
    subscriptions: usize,
    /// Bytes of subjects of those that are remembered.
    subject_bytes: usize,
    /// Bytes of subjects in `mapped`, before and behind the mapping.
    mapped_bytes: usize,
    seen: Seen,
    /// Whole patterns of streams of which every subject takes the same way.
    regions: Regions,
    /// The subject looked up last: most publishers repeat themselves.
    last_subject: Vec<u8>,
    last: usize,
    /// Cached results of subject mappings.
    mapped: FxHashMap<Box<[u8]>, Mapped>,
    last_unmapped: Vec<u8>,
    /// The last subject that always becomes the same one, and that one.
    last_mapped: (Vec<u8>, Vec<u8>),
}

/// Cached result of subject mappings for a subject.
#[derive(Clone)]
enum Mapped {
    /// Nothing.
    Unchanged,
    /// Always this.
    To(Box<[u8]>),
    /// Something else each time: the place of the mapping.
    Choice(usize),
}

/// Which subjects have come before: a mark for each, of which the newest four share a place.
#[derive(Default)]
struct Seen(Vec<[u16; 4]>);

impl Seen {
    /// True if the subject came before, as far as is known; it is marked now.
    fn again(&mut self, subject: &[u8]) -> bool {
        if self.0.is_empty() {
            self.0.resize(SEEN_PLACES, [0; 4]);
        }
        let hash = FxBuildHasher.hash_one(subject);
        let (place, mark) = ((hash >> 32) as usize % SEEN_PLACES, (hash >> 8) as u16 | 1);
        let marks = &mut self.0[place];
        let is_known = marks.contains(&mark);
        if !is_known {
            *marks = [mark, marks[0], marks[1], marks[2]];
        }
        is_known
    }
}

impl AccountRoutes {
    fn clear(&mut self) {
        self.by_subject.clear();
        self.routes.truncate(1);
        self.free.clear();
        (self.subscriptions, self.subject_bytes, self.mapped_bytes) = (0, 0, 0);
        self.regions.clear();
        self.last_subject.clear();
        self.mapped.clear();
        self.last_unmapped.clear();
        self.last_mapped.0.clear();
    }

    /// Puts what the account's mappings make of `subject` into `out`.
    #[inline]
    fn map(&mut self, subject: &[u8], rng: &mut MemberRng, out: &mut Vec<u8>) -> Mapping {
        if subject.is_empty() || self.last_unmapped == subject {
            return Mapping::Unchanged;
        }
        if self.last_mapped.0 == subject {
            out.clear();
            out.extend_from_slice(&self.last_mapped.1);
            return Mapping::Changed;
        }
        if self.mapped.len() >= ROUTES_MAX || self.mapped_bytes > ROUTE_SUBJECT_BYTES_MAX {
            self.mapped.clear();
            self.mapped_bytes = 0;
        }
        let mapped = match self.mapped.get(subject) {
            Some(mapped) => mapped,
            None => {
                let mapped = match self.account.mappings.table().fixed(subject) {
                    Fixed::Unchanged => Mapped::Unchanged,
                    Fixed::To(subject) => Mapped::To(subject),
                    Fixed::Choice(place) => Mapped::Choice(place),
                };
                let becomes = if let Mapped::To(to) = &mapped { to.len() } else { 0 };
                self.mapped_bytes += subject.len() + becomes;
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
                self.account.mappings.table().choose(*place, subject, rng, out)
            }
        }
    }

    #[inline]
    fn route(&mut self, jetstream: &dyn JetStreamPort, subject: &[u8]) -> &Route {
        if self.last_subject == subject && !subject.is_empty() {
            return &self.routes[self.last];
        }
        let found = self.regions.find(subject);
        let at = match found {
            Found::Uniform(at) => at,
            Found::Mixed | Found::Nothing => self.position(jetstream, subject, found),
        };
        &self.routes[at]
    }

    fn position(&mut self, jetstream: &dyn JetStreamPort, subject: &[u8], found: Found) -> usize {
        self.last = match self.by_subject.get(subject) {
            Some(&at) => at,
            None => self.add(jetstream, subject, found),
        };
        self.last_subject.clear();
        self.last_subject.extend_from_slice(subject);
        self.last
    }

    /// Finds the route of a subject; returns its place, which is [`PASSING`] if it is not to be
    /// remembered.
    fn add(&mut self, jetstream: &dyn JetStreamPort, subject: &[u8], found: Found) -> usize {
        let is_kept = self.by_subject.len() < ROUTES_FREE || self.seen.again(subject);
        let mut route = std::mem::take(&mut self.routes[PASSING]);
        if route.matched.capacity() > ROUTE_SUBSCRIPTIONS_MAX {
            route = Route::default();
        }
        let mut pattern = Vec::new();
        let wanted = (found == Found::Nothing).then_some(&mut pattern);
        self.account.find(jetstream, subject, &mut route, wanted);
        if !pattern.is_empty() {
            self.add_region(&pattern, route.stream);
        }
        let subscriptions = route.matched.len();
        if !is_kept || subscriptions > ROUTE_SUBSCRIPTIONS_MAX {
            self.routes[PASSING] = route;
            return PASSING;
        }
        let is_full = self.by_subject.len() >= ROUTES_MAX
            || self.subscriptions + subscriptions > ROUTE_SUBSCRIPTIONS_MAX
            || self.subject_bytes + subject.len() > ROUTE_SUBJECT_BYTES_MAX;
        if is_full {
            self.clear();
        }
        self.subscriptions += subscriptions;
        self.subject_bytes += subject.len();
        let place = self.next_place();
        self.by_subject.insert(subject.into(), place);
        self.put(place, route);
        place
    }

    /// The place that the next route gets.
    fn next_place(&self) -> usize {
        self.free.last().copied().unwrap_or(self.routes.len())
    }

    /// Puts a route in its place: the next one, or one that has a route already.
    fn put(&mut self, place: usize, route: Route) {
        if self.free.last() == Some(&place) {
            self.free.pop();
        }
        match self.routes.get_mut(place) {
            Some(old) => *old = route,
            None => self.routes.push(route),
        }
    }

    /// Forgets what may have changed since its versions; all of it if that is not known, or takes
    /// longer than finding it again.
    #[cold]
    fn catch_up(&mut self, jetstream: &dyn JetStreamPort) {
        let mut changed = Vec::new();
        let (account, streams) = (&self.account, self.streams_version);
        // Streams of importing accounts may change routes here.
        let is_known = account.interest.changes_since(self.interest_version, &mut changed)
            && (streams == jetstream.version() || !account.imports.has_takers())
            && jetstream.changes_since(streams, account.id, &mut changed);
        let wild = changed.iter().filter(|pattern| has_wildcard(pattern)).count();
        if is_known && wild * self.by_subject.len() <= COMPARISONS_MAX {
            changed.iter().for_each(|pattern| self.forget(pattern));
        } else {
            self.clear();
        }
    }

    /// Forgets the routes of subjects that a pattern selects.
    fn forget(&mut self, pattern: &[u8]) {
        let is_selected = |subject: &[u8]| subject == pattern || matches(pattern, subject);
        let gone: Vec<_> = if has_wildcard(pattern) {
            self.by_subject.extract_if(|subject, _| is_selected(subject)).collect()
        } else {
            self.by_subject.remove_entry(pattern).into_iter().collect()
        };
        for (subject, place) in gone {
            let route = std::mem::take(&mut self.routes[place]);
            self.subscriptions -= route.matched.len();
            self.subject_bytes -= subject.len();
            self.free.push(place);
        }
        self.regions.forget(pattern, &mut self.free);
        self.last_subject.clear();
    }
}

impl AccountRoutes {
    /// Remembers a pattern of a stream, all of whose subjects that stream owns.
    #[cold]
    fn add_region(&mut self, pattern: &[u8], stream: Option<StreamRoute>) {
        let is_uniform = self.account.is_uniform(pattern);
        let next = self.next_place();
        let at = self.regions.add(pattern, is_uniform, next, &mut self.free);
        let Some(at) = at else { return };
        self.put(at, Route { stream, ..Route::default() });
    }
}

impl Account {
    /// Replaces `route` by that of `subject`; puts the pattern into `pattern` that a region may be
    /// made of, if there is one.
    fn find(
        &self,
        jetstream: &dyn JetStreamPort,
        subject: &[u8],
        route: &mut Route,
        pattern: Option<&mut Vec<u8>>,
    ) {
        self.interest.match_into(subject, &mut route.matched);
        route.stream = jetstream.find(self.id, Wanted::Owner { subject, pattern });
        let stored = |importer: Importer| {
            let Importer { account, subject, allow_trace } = importer;
            let route = jetstream.find(account, Wanted::owner(&subject))?;
            Some(ForeignStream { subject, route, account, allow_trace })
        };
        let importers = self.imports.importers_of(subject);
        let found: Vec<_> = importers.into_iter().filter_map(stored).collect();
        route.foreign_streams = (!found.is_empty()).then(|| found.into());
    }

    /// True if messages on all subjects that a stream's pattern selects go to that stream and
    /// nowhere else.
    fn is_uniform(&self, pattern: &[u8]) -> bool {
        !self.imports.has_takers() && self.interest.is_clear(pattern)
    }
}

/// Routes known to one thread. What changes in interest or streams takes those with it that it
/// concerns.
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
        jetstream: &dyn JetStreamPort,
        subject: &[u8],
    ) -> &Route {
        self.known(account, jetstream).route(jetstream, subject)
    }

    /// Applies the account's subject mappings to a subject.
    #[inline]
    pub fn map(
        &mut self,
        account: &Arc<Account>,
        jetstream: &dyn JetStreamPort,
        subject: &[u8],
        rng: &mut MemberRng,
        out: &mut Vec<u8>,
    ) -> Mapping {
        self.known(account, jetstream).map(subject, rng, out)
    }

    #[inline]
    fn known(
        &mut self,
        account: &Arc<Account>,
        jetstream: &dyn JetStreamPort,
    ) -> &mut AccountRoutes {
        let at = match self.accounts.iter().position(|a| Arc::ptr_eq(&a.account, account)) {
            Some(at) => at,
            None => self.open(account),
        };
        let known = &mut self.accounts[at];
        // Read before matching: what changes in between makes the result look old, not new.
        let (interest, streams) = (account.interest.version(), jetstream.version());
        if known.interest_version != interest || known.streams_version != streams {
            known.catch_up(jetstream);
            known.interest_version = interest;
            known.streams_version = streams;
        }
        known
    }

    fn open(&mut self, account: &Arc<Account>) -> usize {
        if self.accounts.len() >= ACCOUNTS_MAX {
            self.accounts.remove(0);
        }
        self.accounts.push(AccountRoutes {
            account: account.clone(),
            interest_version: 0,
            streams_version: 0,
            by_subject: FxHashMap::default(),
            routes: vec![Route::default()],
            free: Vec::new(),
            subscriptions: 0,
            subject_bytes: 0,
            mapped_bytes: 0,
            seen: Seen::default(),
            regions: Regions::default(),
            last_subject: Vec::new(),
            last: 0,
            mapped: FxHashMap::default(),
            last_unmapped: Vec::new(),
            last_mapped: Default::default(),
        });
        self.accounts.len() - 1
    }
}

/// Delivers to every plain subscription and to one member of each queue group. `from` is the
/// publishing connection, which may have switched echo off. Returns whether anybody took it.
#[inline]
pub fn deliver(
    matched: &Matched,
    message: &Outgoing<'_>,
    from: Option<&Arc<Outlet>>,
    egress: &mut EgressBatch,
    rng: &mut MemberRng,
) -> bool {
    let mut way = DeliveryContext {
        from,
        egress,
        rng,
        hops: 0,
        by_service: false,
        groups: Groups::All,
        trace: None,
    };
    deliver_on(matched, message, &mut way)
}

/// [`deliver`] in a given context.
#[inline]
pub fn deliver_on(
    matched: &Matched,
    message: &Outgoing<'_>,
    way: &mut DeliveryContext<'_>,
) -> bool {
    if way.trace.is_some() {
        return traced::deliver(matched, message, way);
    }
    deliver_each(matched, message, way, deliver_to)
}

/// Delivers by `each` to every plain subscription and to one member of each queue group.
#[inline]
fn deliver_each(
    matched: &Matched,
    message: &Outgoing<'_>,
    way: &mut DeliveryContext<'_>,
    each: impl Fn(&SubRef, &Outgoing<'_>, &mut DeliveryContext<'_>) -> bool,
) -> bool {
    let mut taken = false;
    for sub in matched.plain() {
        taken |= each(sub, message, way);
    }
    let groups = way.groups;
    for (_, members) in matched.groups().filter(|(_, members)| is_admitted(groups, members)) {
        if leafs::has_nodes() && leafs::goes_to_node(members, message, way) {
            taken = true;
            continue;
        }
        let start = if members.len() == 1 { 0 } else { way.rng.below(members.len()) };
        let mut in_turn = members[start..].iter().chain(&members[..start]);
        let here = in_turn.any(|(_, sub)| each(sub, message, way));
        taken |= here || leafs::offer(members, message, way);
    }
    if way.egress.has_leafs() {
        leafs::send(message, way);
    }
    taken
}

/// True if this group gets it, of which here are the members.
#[inline]
fn is_admitted<T>(groups: Groups<'_>, members: &[(T, SubRef)]) -> bool {
    let group = || members.first().and_then(|(_, sub)| sub.queue.as_deref());
    matches!(groups, Groups::All) || group().is_some_and(|group| groups.admit(group))
}

#[inline]
fn deliver_to(sub: &SubRef, message: &Outgoing<'_>, way: &mut DeliveryContext<'_>) -> bool {
    if !sub.echo && way.from.is_some_and(|from| Arc::ptr_eq(from, &sub.outlet)) {
        return false;
    }
    match &sub.role {
        Role::Client => sub.deliver(message, way.egress),
        role => deliver_specially(sub, role, message, way),
    }
}

#[cold]
fn deliver_specially(
    sub: &SubRef,
    role: &Role,
    message: &Outgoing<'_>,
    way: &mut DeliveryContext<'_>,
) -> bool {
    match role {
        Role::Client => sub.deliver(message, way.egress),
        Role::Server(receiver) => receive(&**receiver, sub, message, way),
        // Of a group members here come first.
        Role::Leaf { .. } => sub.queue.is_none() && leafs::note(sub, message, way),
        Role::ImportSubscription { .. } if way.by_service => false,
        Role::ImportSubscription { of, inward, .. } => {
            if message.subject != message.routed {
                // A consumer's delivery shows the subject it was stored under, as upstream.
                return deliver_import(of, message, way);
            }
            let subject = imported(message.subject, inward.as_deref());
            let message = Outgoing { subject: &subject, routed: &subject, ..*message };
            deliver_import(of, &message, way)
        }
    }
}

/// The subject in the importing account.
fn imported(subject: &[u8], inward: Option<&Transform>) -> Vec<u8> {
    let mut here = Vec::new();
    match inward {
        Some(transform) => transform.apply_matching(subject, 0, &mut here),
        None => here.extend_from_slice(subject),
    }
    here
}

/// To the subscription of an importing account.
fn deliver_import(
    of: &Arc<Subscription>,
    message: &Outgoing<'_>,
    way: &mut DeliveryContext<'_>,
) -> bool {
    match &of.role {
        Role::Leaf { .. } => leafs::send_to(of, message, way),
        Role::Server(receiver) => receive(&**receiver, of, message, way),
        _ => of.deliver(message, way.egress),
    }
}

/// To the server itself, from where it may go on: what is under way here is not its affair.
fn receive(
    receiver: &dyn Receiver,
    sub: &Subscription,
    message: &Outgoing<'_>,
    way: &mut DeliveryContext<'_>,
) -> bool {
    let noted = way.egress.take_leafs();
    let groups = std::mem::replace(&mut way.groups, Groups::All);
    let taken = receiver.receive(sub, message, way);
    way.groups = groups;
    way.egress.put_leafs(noted);
    taken
}

/// True if those who must listen on a subject do.
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

/// True if all who would get a message have room for it.
#[must_use]
pub fn is_ready(matched: &Matched, routed: &[u8], slot: LogSlot) -> bool {
    let ready = |sub: &SubRef| match &sub.role {
        Role::Server(receiver) => receiver.ready(routed, slot),
        _ => sub.outlet.ready(slot),
    };
    matched.plain().iter().all(ready)
        && matched.groups().all(|(_, members)| members.iter().any(|(_, sub)| ready(sub)))
}

#[cfg(test)]
mod tests;
