//! The routing of the core, as the service uses it: answers, advisories, inboxes.

use crate::core_port::{
    Arrived, ClusterView, CorePort, Inbox, InboxSender, LogStanding, NotRemoved, OtherNode, Take,
};
use crate::foreign::{self, Foreign};
use bytes::Bytes;
use nuthatch_protocol::js::StreamSource;
use nuthatch_server::account::Account;
use nuthatch_server::account::imports::end_imports;
use nuthatch_server::account_imports::{Inbound, route_inbound};
use nuthatch_server::egress::{DeliveryContext, DirectWrites, EgressBatch, Groups, Outgoing};
use nuthatch_server::interest::Matched;
use nuthatch_server::logs::{KeeperSight, QuorumLog};
use nuthatch_server::member_rng::MemberRng;
use nuthatch_server::nodes::peer_id;
use nuthatch_server::operations::OperationListener;
use nuthatch_server::served::Served;
use nuthatch_server::server::Server;
use nuthatch_server::subscription::{Receiver, Subscription};
use nuthatch_streams::{AccountId, Event, Message};
use parking_lot::Mutex;
use std::any::Any;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::oneshot;

/// Answers of the service go through the server's core routing.
pub(super) struct CoreRouting {
    server: Weak<Server>,
    name: String,
    imported: Imported,
}

/// Who listens to streams that are imported, as far as they are there still.
type Imported = Mutex<Vec<(Weak<Account>, Weak<Subscription>)>>;

impl CoreRouting {
    /// The routing of this server, which is not kept alive.
    pub(super) fn of(server: &Arc<Server>) -> Self {
        let (name, imported) = (server.name.clone(), Imported::default());
        Self { server: Arc::downgrade(server), name, imported }
    }
}

impl CorePort for CoreRouting {
    fn listens(&self, account: AccountId, subject: &[u8]) -> bool {
        let account = self.server.upgrade().and_then(|server| server.accounts.get(account));
        account.is_some_and(|account| account.interest.any(subject))
    }

    fn may_listen_below(&self, account: AccountId, pattern: &[u8]) -> bool {
        let account = self.server.upgrade().and_then(|server| server.accounts.get(account));
        account.is_some_and(|account| !account.interest.is_clear(pattern))
    }

    fn listens_to_just(&self, account: AccountId, subject: &[u8]) -> bool {
        let account = self.server.upgrade().and_then(|server| server.accounts.get(account));
        let Some(account) = account else { return false };
        let mut matched = Matched::default();
        account.interest.match_into(subject, &mut matched);
        matched.plain().iter().any(|sub| *sub.subject == *subject)
    }

    fn foreign(&self, account: AccountId, source: &StreamSource) -> Foreign {
        let Some(server) = self.server.upgrade() else { return Foreign::Afar };
        let Some(account) = server.accounts.get(account) else { return Foreign::Afar };
        let options = server.options();
        let own = options.accounts.iter().find(|own| own.name == account.name);
        let Some(own) = own else { return Foreign::Afar };
        match foreign::copied_account(&options.accounts, own, source) {
            Ok((name, delivers)) => match server.accounts.by_name(name) {
                Some(exporter) => Foreign::Granted { exporter: exporter.id, delivers },
                None => Foreign::Denied(name.to_owned()),
            },
            Err(Some(name)) => Foreign::Denied(name.to_owned()),
            Err(None) => Foreign::Afar,
        }
    }

    fn server_name(&self) -> &str {
        &self.name
    }

    fn system_account(&self) -> String {
        let name = |server: Arc<Server>| server.accounts.system().name.clone();
        self.server.upgrade().map(name).unwrap_or_default()
    }

    fn operations(&self) -> Option<Arc<dyn OperationListener>> {
        self.server.upgrade()?.operations.listener().cloned()
    }

    fn cluster(&self) -> Option<ClusterView> {
        let server = self.server.upgrade()?;
        let size = match server.cluster.get() {
            Some(cluster) => cluster.size(),
            // What goes by it is done at the nodes that keep logs.
            None => server.core_node.get()?.known().len(),
        };
        let name = server.nodes.cluster()?.to_owned();
        let others = server.nodes.met();
        Some(ClusterView { name, size, others })
    }

    fn keepers(&self, log: &str) -> Option<Vec<OtherNode>> {
        let server = self.server.upgrade()?;
        let sight = quorum_log(&server, log)?.sight();
        let owner = sight.owner.as_ref()?;
        Some(sight.keepers_but(&owner.name).into_iter().map(other_node).collect())
    }

    fn standing(&self, log: &str) -> Option<LogStanding> {
        let server = self.server.upgrade()?;
        let sight = quorum_log(&server, log)?.sight();
        let options = server.options();
        let own = &options.cluster.as_ref()?.name;
        let others = sight.keepers_but(own).into_iter().map(other_node).collect();
        Some(LogStanding { has_owner: sight.owner.is_some(), others })
    }

    fn server_tags(&self) -> Vec<String> {
        self.server.upgrade().map(|server| server.options().server_tags.clone()).unwrap_or_default()
    }

    fn unique_tag(&self) -> Option<String> {
        self.server.upgrade()?.options().jetstream.unique_tag.clone()
    }

    fn served(&self, account: AccountId) -> Option<Arc<Served>> {
        let server = self.server.upgrade()?;
        server.nodes.cluster()?;
        Some(server.accounts.get(account)?.served.clone())
    }

    fn tell_streams(&self, account: AccountId) {
        let Some(server) = self.server.upgrade() else { return };
        if let Some(account) = server.accounts.get(account) {
            server.advertise(&account);
        }
    }

    fn leads_in(&self) -> Option<u64> {
        let server = self.server.upgrade()?;
        let first = server.cluster.get()?.logs().first()?;
        Some(u64::from(first.owned()?.0))
    }

    fn step_down(&self, log: &str, to: Option<String>) -> Option<oneshot::Receiver<bool>> {
        let server = self.server.upgrade()?;
        let number = quorum_log(&server, log)?.number().0;
        server.nodes.step_down(number, to)
    }

    fn remove_node(
        &self,
        name: &str,
        id: &str,
    ) -> Option<oneshot::Receiver<Result<(), NotRemoved>>> {
        let cluster = self.server.upgrade()?.cluster.get()?.clone();
        let (done, hears) = oneshot::channel();
        let mut nodes = cluster.nodes().nodes.into_iter().map(|node| node.name);
        let name = match id {
            "" => name.to_owned(),
            // One that is no node's is named as it was asked for.
            id => nodes.find(|node| peer_id(node) == id).unwrap_or(id.to_owned()),
        };
        // It waits for the catalog.
        tokio::task::spawn_blocking(move || {
            let removed = cluster.replace(&name, None).map(drop).map_err(|error| match () {
                () if error.is_unknown_node() => NotRemoved::NoMember(error.to_string()),
                () if error.is_busy() => NotRemoved::Busy(error.to_string()),
                () => NotRemoved::Refused(error.to_string()),
            });
            // Who has asked may be gone.
            let _ = done.send(removed);
        });
        Some(hears)
    }

    fn has_memory_streams(&self, account: AccountId) -> bool {
        let Some(server) = self.server.upgrade() else { return false };
        // A node without JetStream keeps no list of them, and must not take it for empty.
        if server.core_node.get().is_some() {
            return true;
        }
        let account = server.accounts.get(account);
        account.is_some_and(|account| server.nodes.has_memory_streams(&account.name))
    }

    fn quorum_logs(&self) -> Vec<String> {
        let Some(server) = self.server.upgrade() else { return Vec::new() };
        match (server.cluster.get(), server.core_node.get()) {
            (Some(cluster), _) => cluster.logs().iter().map(|log| log.name()).collect(),
            (None, Some(core)) => core.log_names(),
            (None, None) => Vec::new(),
        }
    }

    fn has_quorum_memory(&self) -> bool {
        let Some(server) = self.server.upgrade() else { return false };
        let logs = server.cluster.get().map_or(&[][..], |cluster| cluster.logs());
        logs.iter().any(|log| log.is_in_memory())
    }

    fn say(&self, text: &str) {
        if let Some(server) = self.server.upgrade() {
            server.log.info(format_args!("JetStream: {text}"));
        }
    }

    fn warn(&self, text: &str) {
        if let Some(server) = self.server.upgrade() {
            server.log.error(format_args!("JetStream: {text}"));
        }
    }

    fn publish(&self, account: AccountId, message: &Message<'_>) -> bool {
        self.server.upgrade().is_some_and(|server| server.publish(account, message))
    }

    fn publish_and_store(&self, account: AccountId, message: &Message<'_>) -> bool {
        self.server.upgrade().is_some_and(|server| server.publish_and_store(account, message))
    }

    fn send(&self, account: AccountId, message: &Message<'_>) -> bool {
        let Some(server) = self.server.upgrade() else { return false };
        let Some(account) = server.accounts.get(account) else { return false };
        let Message { subject, reply, headers, body } = *message;
        let inbound = Inbound { subject, routed: subject, reply, headers, body };
        let (mut egress, mut rng) = (EgressBatch::default(), MemberRng::default());
        let mut way = DeliveryContext {
            from: None,
            egress: &mut egress,
            rng: &mut rng,
            hops: 0,
            by_service: false,
            groups: Groups::All,
            trace: None,
        };
        let taken = route_inbound(&*server, &account, &inbound, &mut way);
        egress.flush(DirectWrites::READER);
        taken
    }

    fn listen(&self, account: AccountId, subject: &[u8]) -> Option<Inbox> {
        let server = self.server.upgrade()?;
        let account = server.accounts.get(account)?;
        let imported = &self.imported;
        let begin = |slot| Listening::begin(&server, account, subject, slot, imported);
        Some(Inbox::new(|slot| Box::new(begin(slot))))
    }

    fn renew_imports(&self) {
        let mut imported = self.imported.lock();
        imported.retain(|(_, sub)| sub.strong_count() > 0);
        for (account, sub) in imported.iter() {
            if let (Some(account), Some(sub)) = (account.upgrade(), sub.upgrade()) {
                drop(account.import(&sub));
            }
        }
    }

    fn tell_interest(&self, subject: &[u8]) {
        if let Some(server) = self.server.upgrade() {
            server.tell_all_logs(|| Event::Interest(Some(Bytes::copy_from_slice(subject))));
        }
    }

    fn subscribe(
        &self,
        account: AccountId,
        subject: &str,
        take: Take,
    ) -> Option<Box<dyn Any + Send + Sync>> {
        let server = self.server.upgrade()?;
        let account = server.accounts.get(account)?;
        let outlet = server.own_peer().outlet.clone();
        let sub =
            Arc::new(Subscription::of_server(outlet, subject.as_bytes(), Arc::new(Taker(take))));
        account.interest.insert(sub.clone());
        Some(Box::new(Listening { account, sub }))
    }
}

/// A subscription of the service; it ends when this is dropped.
struct Listening {
    account: Arc<Account>,
    sub: Arc<Subscription>,
}

impl Listening {
    fn begin(
        server: &Arc<Server>,
        account: Arc<Account>,
        subject: &[u8],
        slot: InboxSender,
        imported: &Imported,
    ) -> Self {
        let (outlet, receiver) = (server.own_peer().outlet.clone(), Arc::new(Putting(slot)));
        let sub = Arc::new(Subscription::of_server(outlet, subject, receiver));
        account.interest.insert(sub.clone());
        // What a copy reads of another account comes by a stream that is imported. Its consumer is made later, and asks itself
        // who listens.
        if !account.import(&sub).is_empty() {
            let mut imported = imported.lock();
            // Who is gone is forgotten before the list grows.
            if imported.len() == imported.capacity() {
                imported.retain(|(_, sub)| sub.strong_count() > 0);
            }
            imported.push((Arc::downgrade(&account), Arc::downgrade(&sub)));
        }
        Self { account, sub }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.sub.close();
        end_imports(&self.sub);
        self.account.interest.remove(&self.sub);
    }
}

/// Puts what comes into an inbox.
struct Putting(InboxSender);

impl Receiver for Putting {
    fn receive(
        &self,
        sub: &Subscription,
        message: &Outgoing<'_>,
        _way: &mut DeliveryContext<'_>,
    ) -> bool {
        !sub.is_closed()
            && self.0.put(Arrived {
                subject: message.subject.to_vec(),
                reply: message.reply.to_vec(),
                headers: message.headers.to_vec(),
                body: message.body.to_vec(),
            })
    }
}

/// Hands what comes to a subscription of the server to a function.
struct Taker(Take);

impl Receiver for Taker {
    fn receive(
        &self,
        _: &Subscription,
        message: &Outgoing<'_>,
        _: &mut DeliveryContext<'_>,
    ) -> bool {
        let Outgoing { routed, reply, headers, body, .. } = *message;
        (self.0)(&Message { subject: routed, reply, headers, body });
        true
    }
}

fn other_node(keeper: &KeeperSight) -> OtherNode {
    OtherNode {
        name: keeper.node.name.clone(),
        is_connected: keeper.connected,
        silent: keeper.silent.unwrap_or(Duration::MAX),
        is_current: keeper.is_current(),
        lag: keeper.lag.unwrap_or_default(),
    }
}

/// The cluster's log of this name.
fn quorum_log(server: &Server, name: &str) -> Option<Arc<QuorumLog>> {
    server.cluster.get()?.logs().iter().find(|log| log.name() == name).cloned()
}
