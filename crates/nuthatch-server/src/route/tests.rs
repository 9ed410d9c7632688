//! Routes that are remembered are those that would be found.

use super::*;
use crate::account::Accounts;
use crate::change_log::{CHANGES_MAX, ChangeLog};
use crate::jetstream_port::{ApiRequest, JsView, LogId, LogSlot, NO_JETSTREAM, Peer, SendError};
use crate::options::Options;
use nuthatch_log::StreamId;
use nuthatch_protocol::subject::{has_empty_token, matches};
use nuthatch_streams::{AccountId, Event};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::oneshot::Receiver;

/// Owns some patterns, one for each stream.
#[derive(Default)]
struct Owner {
    patterns: Mutex<Vec<(StreamId, &'static str)>>,
    version: AtomicU64,
    changes: Mutex<ChangeLog<AccountId>>,
}

impl Owner {
    fn own(&self, patterns: &[(u32, &'static str)]) {
        let new: Vec<_> = patterns.iter().map(|(id, p)| (StreamId(*id), *p)).collect();
        let old = std::mem::replace(&mut *self.patterns.lock(), new.clone());
        let gone = old.iter().filter(|stream| !new.contains(stream));
        let come = new.iter().filter(|stream| !old.contains(stream));
        for (_, pattern) in gone.chain(come) {
            self.changed(AccountId::GLOBAL, pattern);
        }
    }

    fn changed(&self, account: AccountId, pattern: &str) {
        let version = self.version.load(Ordering::Relaxed) + 1;
        self.changes.lock().note(version, account, Some(pattern.as_bytes()));
        self.version.store(version, Ordering::Release);
    }

    fn owner(&self, subject: &[u8]) -> Option<(StreamRoute, &'static str)> {
        if has_empty_token(subject) {
            return None;
        }
        let patterns = self.patterns.lock();
        let (stream, pattern) = patterns.iter().find(|(_, p)| matches(p.as_bytes(), subject))?;
        Some((StreamRoute { log: LogId(0), stream: *stream }, pattern))
    }
}

impl JetStreamPort for Owner {
    fn enabled(&self, _: AccountId) -> bool {
        true
    }
    fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }
    fn changes_since(&self, version: u64, account: AccountId, out: &mut Vec<Box<[u8]>>) -> bool {
        self.changes.lock().since(version, account, out)
    }
    fn find(&self, _: AccountId, wanted: Wanted<'_>) -> Option<StreamRoute> {
        let Wanted::Owner { subject, pattern } = wanted else { return None };
        let (route, own) = self.owner(subject)?;
        if let Some(pattern) = pattern.filter(|_| is_region(own.as_bytes())) {
            pattern.extend_from_slice(own.as_bytes());
        }
        Some(route)
    }
    fn stream_name(&self, _route: StreamRoute) -> Option<String> {
        None
    }
    fn domain(&self) -> Option<&str> {
        None
    }
    fn api_request(&self, _: ApiRequest) -> Option<Receiver<()>> {
        None
    }
    fn send(&self, _: LogId, event: Event<Peer>, _: bool, _: u64) -> Result<(), SendError> {
        Err(SendError::Closed(event))
    }
    fn slots(&self) -> Arc<[LogSlot]> {
        [LogSlot(0)].into()
    }
    fn notify(&self, _: LogSlot, event: Event<Peer>) -> Result<(), SendError> {
        Err(SendError::Closed(event))
    }
    fn stop(&self) -> Result<(), String> {
        Ok(())
    }
    fn view(&self) -> &dyn JsView {
        &NO_JETSTREAM
    }
}

fn account() -> (Arc<Account>, Arc<Outlet>) {
    (Accounts::new(&Options::default()).global().clone(), Outlet::nowhere())
}

fn subscribe(account: &Account, outlet: &Arc<Outlet>, subject: &str) -> Arc<Subscription> {
    let subject = subject.as_bytes();
    let sub = Arc::new(Subscription::new(outlet.clone(), subject, None, subject));
    account.interest.insert(sub.clone());
    sub
}

/// What a route leads to: the stream, and how many subscriptions.
fn ends(route: &Route) -> (Option<StreamId>, usize) {
    assert!(route.foreign_streams.is_none());
    (route.stream.map(|stream| stream.stream), route.matched.plain().len())
}

#[test]
fn what_is_remembered_is_what_would_be_found_whatever_changes() {
    const PATTERNS: [&str; 8] = ["k.*", "k.>", "a.b.>", "k.1", "a.*", "a.*.c", "*", "z.q.*"];
    const SUBSCRIBED: [&str; 9] =
        ["k.1", "k.*", ">", "a.>", "*.b.>", "a.b.c.d", "k.1.x", "z.q", "other"];
    const SUBJECTS: [&str; 19] = [
        "k.1", "k.2", "k.*", "k.>", "k", "k.", "k..x", "k.1.x", ".k", "a.b.c", "a.b.c.d", "a.b",
        "a.b..c", "a.x", "other", "z.q", "z.q.1", "z.q.", "ka.1",
    ];
    let (account, outlet) = account();
    let owner = Owner::default();
    let mut routes = RouteCache::default();
    let mut rng = MemberRng::seeded(7);
    let mut subs: Vec<Arc<Subscription>> = Vec::new();
    let mut uniform = 0;
    for _ in 0..3_000 {
        match rng.below(12) {
            0 => {
                let mut own: Vec<(u32, &str)> = Vec::new();
                for id in 1..=rng.below(4) as u32 {
                    let pattern = PATTERNS[rng.below(PATTERNS.len())];
                    let overlap = |other: &(u32, &str)| {
                        nuthatch_protocol::subject::overlap(pattern.as_bytes(), other.1.as_bytes())
                    };
                    if !own.iter().any(overlap) {
                        own.push((id, pattern));
                    }
                }
                owner.own(&own);
            }
            1 => subs.push(subscribe(&account, &outlet, SUBSCRIBED[rng.below(SUBSCRIBED.len())])),
            2..=3 if !subs.is_empty() => {
                let sub = subs.swap_remove(rng.below(subs.len()));
                assert!(account.interest.remove(&sub));
            }
            _ => {}
        }
        for _ in 0..3 {
            let subject = SUBJECTS[rng.below(SUBJECTS.len())].as_bytes();
            let mut wanted = Route::default();
            account.find(&owner, subject, &mut wanted, None);
            let found = ends(routes.lookup(&account, &owner, subject));
            assert_eq!(found, ends(&wanted), "{}", String::from_utf8_lossy(subject));
            let found = routes.accounts[0].regions.find(subject);
            uniform += u32::from(matches!(found, Found::Uniform(_)));
        }
    }
    assert!(uniform > 500, "{uniform}");
}

#[test]
fn a_subscription_below_a_streams_pattern_gets_the_next_message() {
    let (account, outlet) = account();
    let owner = Owner::default();
    owner.own(&[(1, "k.*")]);
    let mut routes = RouteCache::default();
    let mut at =
        |number: u32| ends(routes.lookup(&account, &owner, format!("k.{number}").as_bytes()));
    for number in 0..50_000 {
        assert_eq!(at(number), (Some(StreamId(1)), 0));
    }
    let sub = subscribe(&account, &outlet, "k.7");
    assert_eq!((at(7), at(8)), ((Some(StreamId(1)), 1), (Some(StreamId(1)), 0)));
    owner.own(&[(2, "k.>")]);
    assert_eq!((at(7), at(8)), ((Some(StreamId(2)), 1), (Some(StreamId(2)), 0)));
    account.interest.remove(&sub);
    owner.own(&[]);
    assert_eq!((at(7), at(8)), ((None, 0), (None, 0)));
    assert!(routes.accounts[0].by_subject.len() <= 2, "no subject of the pattern is remembered");
}

#[test]
fn patterns_give_way_to_others() {
    let (account, _outlet) = account();
    let owner = Owner::default();
    let patterns: Vec<&'static str> =
        (0..100).map(|number| &*format!("p{number}.>").leak()).collect();
    let own: Vec<(u32, &str)> = (1..).zip(patterns).collect();
    owner.own(&own);
    let mut routes = RouteCache::default();
    for round in 0..3 {
        for (id, pattern) in &own {
            let subject = pattern.replace('>', &format!("x.{round}"));
            let route = routes.lookup(&account, &owner, subject.as_bytes());
            assert_eq!(ends(route), (Some(StreamId(*id)), 0));
        }
    }
    let known = &routes.accounts[0];
    assert!(known.routes.len() <= 1 + 300 + 16, "{}", known.routes.len());
}

#[test]
fn very_many_subjects_find_their_way_and_do_not_fill_the_memory() {
    let (account, outlet) = account();
    for subject in [&b"s.7"[..], b"s.1900", b"s.*"] {
        let sub = Subscription::new(outlet.clone(), subject, None, subject);
        account.interest.insert(Arc::new(sub));
    }
    let mut routes = RouteCache::default();
    let mut passes = |subjects: u64, rounds: u64| {
        for number in (0..rounds).flat_map(|_| 0..subjects) {
            let subject = format!("s.{number}");
            let route = routes.lookup(&account, &NO_JETSTREAM, subject.as_bytes());
            let listeners = if number == 7 || number == 1900 { 2 } else { 1 };
            assert_eq!(route.matched.plain().len(), listeners, "{subject}");
        }
        routes.accounts[0].by_subject.len()
    };
    assert_eq!(passes(2000, 1), ROUTES_FREE);
    assert!(passes(2000, 2) > ROUTES_FREE);
    assert!(passes(100_000, 2) <= ROUTES_MAX);
}

#[test]
fn what_routes_hold_is_bounded_by_subscriptions_and_by_bytes_of_subjects() {
    let (account, outlet) = account();
    let subscribe = |subject: &[u8], count: usize| {
        for _ in 0..count {
            let sub = Subscription::new(outlet.clone(), subject, None, b"1");
            account.interest.insert(Arc::new(sub));
        }
    };
    subscribe(b"some.*", 300);
    subscribe(b"many", ROUTE_SUBSCRIPTIONS_MAX + 1);
    let mut routes = RouteCache::default();
    let mut listeners = |subject: &str| {
        let found = routes.lookup(&account, &NO_JETSTREAM, subject.as_bytes()).matched.len();
        let known = &routes.accounts[0];
        let held: usize = known.routes[1..].iter().map(|route| route.matched.len()).sum();
        assert!(held == known.subscriptions && held <= ROUTE_SUBSCRIPTIONS_MAX, "{held}");
        let bytes: usize = known.by_subject.keys().map(|subject| subject.len()).sum();
        assert!(bytes == known.subject_bytes && bytes <= ROUTE_SUBJECT_BYTES_MAX, "{bytes}");
        found
    };
    for number in 0..100 {
        assert_eq!(listeners(&format!("some.{number}")), 300);
        assert_eq!(listeners("many"), ROUTE_SUBSCRIPTIONS_MAX + 1);
    }
    let long = "x".repeat(1000);
    for number in 0..1000 {
        assert_eq!(listeners(&format!("none.{number}.{long}")), 0);
    }
}

/// Lookups that had to be made, of subjects `s.0` to `s.199`.
fn misses(account: &Arc<Account>, owner: &dyn JetStreamPort, routes: &mut RouteCache) -> u64 {
    let before = account.interest.stats().matches;
    for number in 0..200 {
        routes.lookup(account, owner, format!("s.{number}").as_bytes());
    }
    account.interest.stats().matches - before
}

#[test]
fn without_streams_a_change_costs_the_routes_that_it_concerns() {
    let (account, outlet) = account();
    let mut routes = RouteCache::default();
    let mut misses = || misses(&account, &NO_JETSTREAM, &mut routes);
    assert_eq!((misses(), misses()), (200, 0));
    let sub = subscribe(&account, &outlet, "s.5");
    assert_eq!(misses(), 1);
    assert!(account.interest.remove(&sub));
    assert_eq!(misses(), 1);
}

/// A publisher that goes from one stream to the next, every second one with a listener.
#[test]
fn patterns_that_give_way_leave_their_places_to_others() {
    let (account, outlet) = account();
    let owner = Owner::default();
    let patterns: Vec<String> = (0..40).map(|n| format!("s{n}.>")).collect();
    let own = patterns.iter().map(|pattern| &*pattern.clone().leak());
    let own: Vec<_> = (1..).zip(own).collect();
    owner.own(&own);
    for listened in patterns.iter().skip(1).step_by(2) {
        subscribe(&account, &outlet, &listened.replace('>', "one"));
    }
    let mut routes = RouteCache::default();
    let mut places = || {
        for n in 0..40 {
            routes.lookup(&account, &owner, format!("s{n}.two").as_bytes());
        }
        routes.accounts[0].routes.len()
    };
    let before = places();
    assert_eq!((0..20).map(|_| places()).max(), Some(before));
}

#[test]
fn a_change_costs_the_routes_that_it_concerns() {
    let (account, outlet) = account();
    let owner = Owner::default();
    let mut routes = RouteCache::default();
    let mut misses = || misses(&account, &owner, &mut routes);
    assert_eq!((misses(), misses()), (200, 0));

    let sub = subscribe(&account, &outlet, "s.5");
    assert_eq!((misses(), misses()), (1, 0));
    assert!(account.interest.remove(&sub));
    assert_eq!(misses(), 1);
    subscribe(&account, &outlet, "elsewhere.>");
    assert_eq!(misses(), 0);
    subscribe(&account, &outlet, "*.1");
    assert_eq!(misses(), 1);

    owner.own(&[(1, "s.7")]);
    assert_eq!(misses(), 1);
    owner.own(&[(1, "s.7"), (2, "s.8.>")]);
    assert_eq!(misses(), 0);
    owner.changed(AccountId(7), ">");
    assert_eq!(misses(), 0, "streams of other accounts are no matter of this one");

    account.interest.touch();
    assert_eq!((misses(), misses()), (200, 0));
    for _ in 0..=CHANGES_MAX {
        owner.changed(AccountId::GLOBAL, "elsewhere");
    }
    assert_eq!((misses(), misses()), (200, 0), "older changes are not known any more");
}

/// What changes again and again takes no more room: places are used again.
#[test]
fn routes_that_change_again_and_again_take_the_same_places() {
    let (account, outlet) = account();
    let owner = Owner::default();
    owner.own(&[(1, "s.*"), (2, "k.>")]);
    let mut routes = RouteCache::default();
    for round in 0..1_000 {
        let number = round % 50;
        let sub = subscribe(&account, &outlet, &format!("s.{number}"));
        for subject in ["s.1", "s.2", "k.a", "other"] {
            routes.lookup(&account, &owner, subject.as_bytes());
        }
        account.interest.remove(&sub);
    }
    let known = &routes.accounts[0];
    assert!(known.routes.len() <= 8, "{}", known.routes.len());
    let mut places: Vec<usize> = known.by_subject.values().chain(&known.free).copied().collect();
    places.sort_unstable();
    let count = places.len();
    places.dedup();
    assert_eq!(places.len(), count, "a place that is free belongs to nobody");
}
