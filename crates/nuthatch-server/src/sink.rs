//! Receiver of engines' outputs: acknowledgements, deliveries, statuses.
//!
//! One sink per engine, used on its sequencer thread only. Outputs are staged per connection and
//! handed over at [`Sink::flush`].

use crate::account::{Account, Accounts};
use crate::account_imports::ImportHost;
use crate::egress::{DirectWrites, EgressBatch, Outgoing};
use crate::interest::Matched;
use crate::log_id::LogSlot;
use crate::member_rng::MemberRng;
use crate::own_publishes::OwnPublishes;
use crate::peer::{MuxRoute, Peer, TRACED_HINT};
use crate::route::{self};
use crate::served::message_of_node;
use memchr::memchr;
use nuthatch_streams::{AccountId, Delivery, Message, Sink};
use std::sync::{Arc, Weak};

/// The sink of one engine.
pub struct ServerSink {
    accounts: Arc<Accounts>,
    slot: LogSlot,
    egress: EgressBatch,
    rng: MemberRng,
    account: Option<Arc<Account>>,
    matched: Matched,
    /// The last quick route used: connection, hint and route.
    mux: Option<(u64, u32, MuxRoute)>,
    /// What streams store of what is published here; `None`: nothing.
    own_publishes: Option<OwnPublishes>,
}

/// Subscribers of a deliver subject.
pub struct Target {
    account: Arc<Account>,
    subject: Box<[u8]>,
    /// Queue group of which a member must listen; empty: anybody will do.
    group: Box<[u8]>,
    version: u64,
    matched: Matched,
}

impl Drop for Target {
    fn drop(&mut self) {
        self.account.watch.release();
    }
}

impl Target {
    /// True if those who must listen do.
    fn is_heard(&self) -> bool {
        route::is_heard(&self.matched, &self.group, &self.subject)
    }

    /// Brings it up to date with the account's interest.
    #[inline]
    fn update(&mut self) {
        let version = self.account.interest.version();
        if version != self.version {
            self.version = version;
            self.account.interest.match_into(&self.subject, &mut self.matched);
        }
    }
}

impl ServerSink {
    /// The sink of the engine of this log.
    #[must_use]
    pub fn new(accounts: Arc<Accounts>, slot: LogSlot) -> Self {
        Self {
            accounts,
            slot,
            egress: EgressBatch::default(),
            rng: MemberRng::default(),
            account: None,
            matched: Matched::default(),
            mux: None,
            own_publishes: None,
        }
    }

    /// Streams of this server, which is not kept alive, store what engines publish for them.
    #[must_use]
    pub fn with_streams_of(self, host: Weak<dyn ImportHost>) -> Self {
        Self { own_publishes: Some(OwnPublishes::new(host)), ..self }
    }

    /// Makes `self.account` the one with this id; `false` if there is none.
    #[inline]
    fn select(&mut self, id: AccountId) -> bool {
        if self.account.as_ref().is_some_and(|account| account.id == id) {
            return true;
        }
        self.account = self.accounts.get(id);
        self.account.is_some()
    }

    fn route(&mut self, account: AccountId, outgoing: &Outgoing<'_>) -> bool {
        if !self.select(account) {
            return false;
        }
        let Self { account: Some(account), matched, egress, rng, .. } = self else { return false };
        account.interest.match_into(outgoing.subject, matched);
        route::deliver(matched, outgoing, None, egress, rng)
    }

    /// Delivers by the quick route of a hint, if it holds.
    #[inline]
    fn reply_by_hint(
        &mut self,
        account: AccountId,
        peer: &Peer,
        hint: u32,
        message: &Message<'_>,
    ) -> bool {
        if hint == 0 || !self.select(account) {
            return false;
        }
        let Self { account: Some(account), mux, egress, .. } = self else { return false };
        let version = account.interest.version();
        let known = mux.as_ref().is_some_and(|(id, known_hint, route)| {
            *id == peer.outlet.id && *known_hint == hint && route.version == version
        });
        if !known {
            *mux = peer.mux.route(hint, version).map(|route| (peer.outlet.id, hint, route));
        }
        let Some((_, _, route)) = mux else { return false };
        let Some(token) = message.subject.strip_prefix(&*route.prefix) else { return false };
        if token.is_empty() || memchr(b'.', token).is_some() {
            return false;
        }
        route.sub.deliver(&Outgoing::from_message(message), egress)
    }
}

impl Sink for ServerSink {
    type Peer = Peer;
    type Target = Target;

    fn reply(&mut self, account: AccountId, peer: &Peer, hint: u32, message: &Message<'_>) {
        if !self.reply_by_hint(account, peer, hint, message)
            && (hint != TRACED_HINT || peer.answered(message.body))
        {
            self.route(account, &Outgoing::from_message(message));
        }
    }

    fn send_back(&mut self, peer: &Peer, message: &Message<'_>) {
        let Message { subject, reply, headers, body } = *message;
        peer.outlet.hand_over(message_of_node((subject, reply), headers, body));
    }

    fn publish(&mut self, account: AccountId, message: &Message<'_>) {
        self.route(account, &Outgoing::from_message(message));
    }

    fn publish_and_store(&mut self, account: AccountId, message: &Message<'_>) {
        if !self.select(account) {
            return;
        }
        let Self { account: Some(account), matched, egress, rng, own_publishes, .. } = self else {
            return;
        };
        self.accounts.advisories.tell(&account.name, message);
        let outgoing = Outgoing::from_message(message);
        let stored = own_publishes.as_mut().and_then(|publishes| {
            publishes.add(account, message, |route| {
                route::deliver(&route.matched, &outgoing, None, egress, rng)
            })
        });
        if stored.is_none() {
            account.interest.match_into(outgoing.subject, matched);
            route::deliver(matched, &outgoing, None, egress, rng);
        }
    }

    fn resolve(&mut self, account: AccountId, subject: &[u8], group: &[u8]) -> Option<Target> {
        if !self.select(account) {
            return None;
        }
        let account = self.account.clone()?;
        let version = account.interest.version();
        let mut matched = Matched::default();
        account.interest.match_into(subject, &mut matched);
        if !route::is_heard(&matched, group, subject) {
            account.watch.wait_for(subject, self.slot);
            // A subscription may have come between the two: then it would not be reported
            // otherwise.
            account.interest.match_into(subject, &mut matched);
            if !route::is_heard(&matched, group, subject) {
                return None;
            }
        }
        account.watch.hold();
        let (subject, group) = (subject.into(), group.into());
        Some(Target { account, subject, group, version, matched })
    }

    fn refresh(&mut self, target: &mut Target) -> bool {
        target.update();
        if !target.is_heard() {
            target.account.watch.wait_for(&target.subject, self.slot);
            let account = target.account.clone();
            account.interest.match_into(&target.subject, &mut target.matched);
        }
        target.is_heard()
    }

    fn ready(&mut self, target: &Target) -> bool {
        route::is_ready(&target.matched, &target.subject, self.slot)
    }

    fn deliver(&mut self, target: &mut Target, delivery: &Delivery<'_>) -> bool {
        target.update();
        let Delivery { subject, reply, headers, body, owner } = *delivery;
        let outgoing = Outgoing { subject, routed: &target.subject, reply, headers, body, owner };
        route::deliver(&target.matched, &outgoing, None, &mut self.egress, &mut self.rng)
    }

    fn flush(&mut self) {
        self.egress.flush(DirectWrites::SEQUENCER);
        if let Some(publishes) = &mut self.own_publishes {
            publishes.flush();
        }
    }
}
