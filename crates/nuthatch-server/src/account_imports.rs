//! Imports of accounts at run time: what imported services and streams do with messages.
//!
//! An imported service is a subscription of the server itself in the importing account; it forwards
//! requests, and gives them a reply subject `_R_.…` that leads the responses back. What messages of an
//! imported stream do is in [`route`](crate::route).

use crate::account::imports::{Importers, StreamImport};
use crate::account::{Account, Accounts};
use crate::jetstream_port::JetStreamPort;
use crate::latency::LatencyEvent;
use crate::options::{self, Import, ResponseKind, ServiceExport, covering};
use crate::peer::Peer;
use crate::subscription::Subscription;
use nuthatch_streams::{AccountId, Message};
use rustc_hash::FxHashMap;
use std::sync::Arc;

mod inbound;
mod relay;
mod request_info;
mod service;

pub use self::inbound::{Inbound, route_inbound, to_jetstream};
use self::service::ServiceImport;

/// Accounts that one message passes at most: what a cycle of imports costs.
pub const HOPS_MAX: u8 = 8;

/// What imports need of the server.
pub trait ImportHost: Send + Sync {
    /// Its name.
    fn name(&self) -> &str;

    /// The JetStream service, or one that owns nothing.
    fn jetstream(&self) -> &dyn JetStreamPort;

    /// Publishes through core routing, as nobody's connection.
    fn publish(&self, account: AccountId, message: &Message<'_>) -> bool;

    /// Whose the server's own subscriptions are.
    fn own_peer(&self) -> &Peer;

    /// Name of the system account.
    fn system_account(&self) -> &str;

    /// Tells the operator of something that needs him.
    fn warn(&self, text: &str);
}

/// Publishes what is known of a request's latency.
fn publish_latency(host: &dyn ImportHost, exporter: &Account, event: &LatencyEvent) {
    let (subject, body) = (event.subject.as_bytes(), &event.body[..]);
    host.publish(exporter.id, &Message { subject, reply: b"", headers: b"", body });
}

/// Accounts of the configuration by their names: there may be many.
type ByName<'a> = FxHashMap<&'a str, &'a options::Account>;

/// Makes the exports and imports of these options those in force. The configuration was checked.
pub fn install(accounts: &Accounts, configured: &[options::Account], host: &Arc<dyn ImportHost>) {
    let by_name: ByName<'_> = configured.iter().map(|own| (own.name.as_str(), own)).collect();
    let mut importers: FxHashMap<AccountId, Importers> = FxHashMap::default();
    let all = accounts.all();
    for account in &all {
        let imports = by_name.get(account.name.as_str()).map_or(&[][..], |own| &own.imports);
        let (services, streams): (Vec<&Import>, Vec<&Import>) =
            imports.iter().partition(|import| import.is_service);
        let mut taken = Vec::new();
        for import in streams {
            let Some(exporter) = accounts.by_name(&import.account) else { continue };
            let Some(import) = StreamImport::new(import, &exporter).map(Arc::new) else { continue };
            importers.entry(exporter.id).or_default().add(account.id, import.clone());
            taken.push(import);
        }
        account.imports.streams.store(Arc::new(taken));
        install_services(accounts, &by_name, account, &services, host);
    }
    for account in all {
        let found = importers.remove(&account.id).unwrap_or_default();
        account.imports.importers.store(Arc::new(found));
        account.interest.touch();
    }
}

fn install_services(
    accounts: &Accounts,
    by_name: &ByName<'_>,
    account: &Arc<Account>,
    imports: &[&Import],
    host: &Arc<dyn ImportHost>,
) {
    let mut subs = Vec::new();
    for import in imports {
        let exporter = by_name.get(import.account.as_str());
        let export = exporter.and_then(|e| covering(e, true, &import.subject, &account.name));
        let service = export.and_then(|export| Some((&*export.subject, export.service.as_ref()?)));
        let Some(service) = service else { continue };
        let Some(exporter) = accounts.by_name(&import.account) else { continue };
        let Some(receiver) = ServiceImport::new(import, service, account, &exporter, host) else {
            continue;
        };
        let pattern = import.pattern();
        let sub = Subscription::of_server(
            host.own_peer().outlet.clone(),
            pattern.as_bytes(),
            Arc::new(receiver),
        );
        subs.push(Arc::new(sub));
    }
    for sub in &subs {
        account.interest.insert(sub.clone());
    }
    let old = std::mem::replace(&mut *account.imports.services.lock(), subs);
    for sub in old {
        account.interest.remove(&sub);
    }
}
