//! Tells who wants to know which node leads the streams and consumers of a quorum log, and which of them have no majority.
//!
//! A log may have very many streams, which all get another leader in one moment: they are told of in slices, with pauses.

use crate::account_table::AccountTable;
use crate::audit::{is_wanted, publish_advisory};
use crate::core_port::{CorePort, LogStanding};
use crate::leader_advisories::{Advisory, Asset, DOMAIN_LED, Event, Keepers, all_of};
use crate::log_calls::LogCalls;
use crate::log_names::LogNames;
use crate::registry::{DEFAULT_LOG, Entry, is_quorum_log};
use crate::replicas::{own_peer, peer};
use crate::sizes::LIST_PAGE;
use crate::stream_table::StreamTable;
use nuthatch_protocol::js::{ConsumerConfig, PeerInfo};
use nuthatch_protocol::subject::tree::{OverlapSearch, SearchOutcome};
use nuthatch_server::account_id::SYSTEM_ACCOUNT_ID;
use nuthatch_server::jetstream_port::{LogId, StreamRoute};
use nuthatch_streams::{AccountId, Op, OpOutcome};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// So many streams and consumers are told of in one piece.
const SLICE: usize = 64;
/// Pause behind each piece: at most 3,200 are told of in a second, at each account.
const PAUSE: Duration = Duration::from_millis(20);

/// A node that has just started waits so long until the keepers that it hears have told it what their clients listen to.
const NODES_WAIT_MAX: Duration = Duration::from_secs(2);
/// How often that is looked at.
const NODES_CHECK: Duration = Duration::from_millis(20);

/// A log that nobody owns has lost its majority if that is so for this long.
const QUORUM_LOST_AFTER: Duration = Duration::from_secs(5);
/// How often that is looked at.
const QUORUM_CHECK: Duration = Duration::from_millis(250);
/// A log that has a majority and no owner for so long is not looked at any more: its owner tells.
const QUORUM_WATCH_MAX: Duration = Duration::from_secs(60);
/// Streams of a log that are told of if it loses its majority; of others there is no word.
const LOST_STREAMS_MAX: usize = 65_536;
/// Consumers that are remembered for the same, of all logs.
const LOST_CONSUMERS_MAX: usize = 65_536;

/// Streams of a log that has left this node, which may have no majority any more.
pub(super) struct Left {
    name: String,
    streams: Vec<(Arc<Entry>, BTreeSet<String>)>,
}

/// Tells of leaders and of lost majorities.
pub(super) struct Elections {
    pub(super) domain: String,
    pub(super) core: Arc<dyn CorePort>,
    pub(super) accounts: Arc<AccountTable>,
    pub(super) names: Arc<LogNames>,
    pub(super) streams: Arc<StreamTable>,
    pub(super) calls: Arc<LogCalls>,
    /// How often each log has come to this node.
    pub(super) turns: Mutex<FxHashMap<LogId, u64>>,
    pub(super) told: Mutex<ToldConsumers>,
}

/// Consumers whose leader was told.
#[derive(Default)]
pub(super) struct ToldConsumers {
    names: FxHashMap<StreamRoute, BTreeSet<String>>,
    count: usize,
}

impl ToldConsumers {
    fn add(&mut self, stream: StreamRoute, name: &str) {
        if self.count < LOST_CONSUMERS_MAX
            && self.names.entry(stream).or_default().insert(name.to_owned())
        {
            self.count += 1;
        }
    }

    fn remove(&mut self, stream: StreamRoute, name: &str) {
        if self.names.get_mut(&stream).is_some_and(|names| names.remove(name)) {
            self.count -= 1;
        }
    }

    fn remove_stream(&mut self, stream: StreamRoute) {
        self.count -= self.names.remove(&stream).map_or(0, |names| names.len());
    }

    /// Takes out those of all streams of a log.
    fn take_log(&mut self, log: LogId) -> FxHashMap<StreamRoute, BTreeSet<String>> {
        let taken: FxHashMap<_, _> = self.names.extract_if(|route, _| route.log == log).collect();
        self.count -= taken.values().map(BTreeSet::len).sum::<usize>();
        taken
    }
}

/// Makes a pause behind each slice.
#[derive(Default)]
struct Pace(usize);

impl Pace {
    async fn step(&mut self) {
        self.0 += 1;
        if self.0.is_multiple_of(SLICE) {
            sleep(PAUSE).await;
        }
    }
}

impl Elections {
    /// This node leads a stream from now on.
    pub(super) fn stream_led(&self, entry: &Entry) {
        if self.is_kept_by_several(entry) {
            self.tell(Event::LeaderElected, entry, None);
        }
    }

    /// True if somebody may want to hear of the leader of a new consumer of a stream.
    pub(super) fn may_hear_of_consumers(&self, entry: &Entry) -> bool {
        let [_, consumers] = all_of(Event::LeaderElected);
        self.is_kept_by_several(entry) && self.may_hear(entry.account, &consumers)
    }

    /// This node leads a consumer from now on.
    pub(super) fn consumer_led(&self, entry: &Entry, name: &str, config: &ConsumerConfig) {
        if self.is_kept_by_several(entry) && config.replicas_in(&entry.config) > 1 {
            self.tell(Event::LeaderElected, entry, Some(name));
            self.told.lock().add(entry.route(), name);
        }
    }

    /// A consumer was deleted.
    pub(super) fn consumer_gone(&self, entry: &Entry, name: &str) {
        self.told.lock().remove(entry.route(), name);
    }

    /// A stream was deleted.
    pub(super) fn stream_gone(&self, entry: &Entry) {
        self.told.lock().remove_stream(entry.route());
    }

    /// This node serves a quorum log from now on: tells of all that is in it, until it is served no more.
    pub(super) async fn log_led(&self, log: LogId) {
        let turn = {
            let mut turns = self.turns.lock();
            let turn = turns.entry(log).or_default();
            *turn += 1;
            *turn
        };
        let name = self.names.name_of(log);
        let until = Instant::now() + NODES_WAIT_MAX;
        if name == DEFAULT_LOG {
            self.nodes_are_heard(SYSTEM_ACCOUNT_ID, &name, until).await;
            self.tell_domain();
        }
        let is_turn = || self.turns.lock().get(&log) == Some(&turn) && self.has_log(log);
        let accounts: Vec<AccountId> = self.streams.read().accounts().collect();
        let mut pace = Pace::default();
        for account in accounts {
            self.nodes_are_heard(account, &name, until).await;
            let [streams, consumers] = all_of(Event::LeaderElected);
            let (streams, consumers) =
                (self.may_hear(account, &streams), self.may_hear(account, &consumers));
            if streams || consumers {
                self.account_led((account, log), consumers, &is_turn, &mut pace).await;
            }
        }
    }

    /// Waits until the other keepers of a log that are connected have told of themselves in the account too: a log may be
    /// led sooner, and what nobody is known to listen to is not told.
    async fn nodes_are_heard(&self, account: AccountId, log: &str, until: Instant) {
        while Instant::now() < until && self.lacks_nodes(account, log) {
            sleep(NODES_CHECK).await;
        }
    }

    fn lacks_nodes(&self, account: AccountId, log: &str) -> bool {
        let (Some(standing), Some(served)) = (self.core.standing(log), self.core.served(account))
        else {
            return false;
        };
        let nodes = served.nodes();
        let is_heard =
            |name: &str| nodes.iter().any(|(node, _, complete)| *complete && node == name);
        standing.others.iter().any(|node| node.is_connected && !is_heard(&node.name))
    }

    async fn account_led(
        &self,
        (account, log): (AccountId, LogId),
        with_consumers: bool,
        is_turn: &(impl Fn() -> bool + Sync),
        pace: &mut Pace,
    ) {
        let mut after: Option<String> = None;
        loop {
            let part = self.streams.part(account, after.as_deref(), SLICE);
            let Some(last) = part.last() else { return };
            after = Some(last.config.name.clone());
            for entry in part.iter().filter(|entry| entry.engine == log) {
                if !is_turn() {
                    return;
                }
                self.stream_led(entry);
                pace.step().await;
                if with_consumers && self.is_kept_by_several(entry) {
                    self.consumers_led(entry, pace).await;
                }
            }
        }
    }

    async fn consumers_led(&self, entry: &Entry, pace: &mut Pace) {
        let mut offset = 0;
        loop {
            let (id, limit, names_only) = (entry.id, LIST_PAGE, false);
            let op = Op::ListConsumers { id, offset, limit, names_only };
            // Whoever has the log then tells of them.
            let Ok(OpOutcome::Consumers { total, infos, .. }) =
                self.calls.run(entry.engine, op).await
            else {
                return;
            };
            for info in &infos {
                self.consumer_led(entry, &info.name, &info.config);
                pace.step().await;
            }
            offset += infos.len();
            if infos.is_empty() || offset >= total {
                return;
            }
        }
    }

    /// What is in a log that is about to leave this node.
    pub(super) fn leaving(&self, log: LogId) -> Left {
        let mut consumers = self.told.lock().take_log(log);
        let registry = self.streams.read();
        let of_accounts = registry.accounts().flat_map(|account| registry.of_account(account));
        let of_log = of_accounts.filter(|entry| entry.engine == log);
        let streams = of_log
            .filter(|entry| entry.config.num_replicas > 1)
            .take(LOST_STREAMS_MAX)
            .map(|entry| (entry.clone(), consumers.remove(&entry.route()).unwrap_or_default()));
        Left { name: self.names.name_of(log), streams: streams.collect() }
    }

    /// A log has left this node: if it has no owner, and its keepers are no majority, that is told.
    pub(super) async fn log_left(&self, left: Left) {
        let (mut since, until) = (Instant::now(), Instant::now() + QUORUM_WATCH_MAX);
        while Instant::now() < until {
            sleep(QUORUM_CHECK).await;
            match self.core.standing(&left.name) {
                Some(LogStanding { has_owner: false, .. }) if self.has_no_majority(&left.name) => {
                    if since.elapsed() >= QUORUM_LOST_AFTER {
                        return self.log_lost(left).await;
                    }
                }
                // It is on its way to an owner.
                Some(LogStanding { has_owner: false, .. }) => since = Instant::now(),
                _ => return,
            }
        }
    }

    fn has_no_majority(&self, log: &str) -> bool {
        self.core.standing(log).is_some_and(|standing| !standing.has_majority())
    }

    async fn log_lost(&self, left: Left) {
        let (name, count) = (&left.name, left.streams.len());
        self.core.warn(&format!(
            "quorum log {name} has NO quorum, stalled, with {count} streams of several replicas that this node led"
        ));
        let mut pace = Pace::default();
        for (entry, consumers) in &left.streams {
            if !self.has_no_majority(name) {
                return;
            }
            self.tell_of((Event::QuorumLost, name), entry, None);
            pace.step().await;
            for consumer in consumers {
                self.tell_of((Event::QuorumLost, name), entry, Some(consumer));
                pace.step().await;
            }
        }
    }

    fn has_log(&self, log: LogId) -> bool {
        !self.names.name_of(log).is_empty()
    }

    fn is_kept_by_several(&self, entry: &Entry) -> bool {
        entry.config.num_replicas > 1
            && self.core.cluster().is_some()
            && is_quorum_log(&self.names.name_of(entry.engine))
    }

    /// True if anybody of the account, or of the system account, may want to know what is told on subjects that this pattern
    /// selects.
    fn may_hear(&self, account: AccountId, pattern: &str) -> bool {
        let may_hear = |account| {
            let (mut search, mut steps) = (OverlapSearch::new(pattern.as_bytes()), SLICE);
            self.core.may_listen_below(account, pattern.as_bytes())
                || self.streams.read().overlaps(account, &mut search, &mut steps, None)
                    != SearchOutcome::Nothing
        };
        may_hear(account) || may_hear(SYSTEM_ACCOUNT_ID)
    }

    fn tell(&self, event: Event, entry: &Entry, consumer: Option<&str>) {
        self.tell_of((event, &self.names.name_of(entry.engine)), entry, consumer);
    }

    /// Tells the account, and the system account with the account's name.
    fn tell_of(&self, (event, log): (Event, &str), entry: &Entry, consumer: Option<&str>) {
        let asset = Asset { stream: &entry.config.name, consumer };
        let subject = asset.subject(event);
        let wants = |account| is_wanted(account, &subject, &*self.core, &self.streams);
        let own = entry.account != SYSTEM_ACCOUNT_ID && wants(entry.account);
        let system = wants(SYSTEM_ACCOUNT_ID);
        if !own && !system {
            return;
        }
        let mut advisory = Advisory::of(event, asset, self.keepers(log));
        if own {
            publish_advisory(entry.account, &subject, &advisory.body(), &*self.core);
        }
        if system {
            let account = self.accounts.name_of(entry.account);
            advisory.account = Some(&account);
            publish_advisory(SYSTEM_ACCOUNT_ID, &subject, &advisory.body(), &*self.core);
        }
    }

    /// This node decides about streams from now on.
    fn tell_domain(&self) {
        if !is_wanted(SYSTEM_ACCOUNT_ID, DOMAIN_LED, &*self.core, &self.streams) {
            return;
        }
        let Some(cluster) = self.core.cluster() else { return };
        let advisory = Advisory::of_domain(&cluster.name, self.keepers(DEFAULT_LOG));
        publish_advisory(SYSTEM_ACCOUNT_ID, DOMAIN_LED, &advisory.body(), &*self.core);
    }

    fn keepers(&self, log: &str) -> Keepers<'_> {
        let (own, domain, now) = (self.core.server_name(), self.domain.as_str(), self.core.now());
        let others = self.core.standing(log).map(|standing| standing.others).unwrap_or_default();
        let others = others.into_iter().map(peer);
        let replicas: Vec<PeerInfo> = [own_peer(own)].into_iter().chain(others).collect();
        Keepers { own, replicas, domain, now }
    }
}

#[cfg(test)]
mod tests;
