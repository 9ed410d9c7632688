//! Imports of accounts at run time: imported streams and services.
//!
//! For an imported stream there are *import subscriptions*: for each subscription of the importing
//! account there is one in the exporting account's interest, which forwards messages under the
//! subject they have in the importing account. An imported service is a subscription of the server
//! itself in the importing account; it forwards requests, and gives them a reply subject `_R_.…`
//! that leads the responses back.

use crate::account::{Account, Accounts};
use crate::conn::Connection;
use crate::jetstream_port::{JetStreamPort, StreamRoute};
use crate::options::{self, Import, ResponseKind, ServiceExport, covering};
use crate::subscription::Subscription;
use arc_swap::ArcSwap;
use nuthatch_protocol::subject::tokens;
use nuthatch_protocol::subject::tree::{MatchResult, SubjectTree};
use nuthatch_protocol::transform::Transform;
use nuthatch_streams::AccountId;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};

mod inbound;
mod latency;
mod request_info;
mod responses;
mod service;

pub use self::inbound::{Inbound, route_inbound, to_jetstream};
pub use self::responses::Responses;
use self::service::ServiceImport;

/// Accounts that one message passes at most: what a cycle of imports costs.
pub const HOPS_MAX: u8 = 8;

/// Imports of an account, and other accounts' imports from it.
#[derive(Default)]
pub struct AccountImports {
    /// Streams that it imports.
    streams: ArcSwap<Vec<Arc<StreamImport>>>,
    /// Importers of its streams.
    importers: ArcSwap<Importers>,
    /// Subscriptions of the server in it, for services that it imports.
    services: Mutex<Vec<Arc<Subscription>>>,
    /// Responses that are awaited from it.
    pub responses: Responses,
}

/// An imported stream.
#[derive(Debug)]
pub struct StreamImport {
    exporter: Weak<Account>,
    /// Its subject in the exporting account.
    there: Box<[u8]>,
    /// Its subject in the importing account.
    here: Box<[u8]>,
    inward: Option<Transform>,
    outward: Option<Transform>,
}

/// Importers of an account's streams.
#[derive(Default)]
struct Importers {
    list: Vec<(AccountId, Arc<StreamImport>)>,
    /// Places in `list` by the subject in the exporting account.
    by_subject: SubjectTree<usize>,
}

impl StreamImport {
    fn new(import: &Import, exporter: &Arc<Account>) -> Option<Self> {
        Some(Self {
            exporter: Arc::downgrade(exporter),
            there: import.subject.as_bytes().into(),
            here: import.pattern().as_bytes().into(),
            inward: import.inward().ok()?,
            outward: import.outward().ok()?,
        })
    }

    /// Appends the subject here of a message on `subject` there.
    pub fn inward(&self, subject: &[u8], out: &mut Vec<u8>) {
        match &self.inward {
            Some(transform) => transform.apply_matching(subject, 0, out),
            None => out.extend_from_slice(subject),
        }
    }

    /// The pattern there that a subscription to `pattern` here sees; `None` if it sees nothing.
    fn import_pattern(&self, pattern: &[u8]) -> Option<Vec<u8>> {
        let common = intersection(pattern, &self.here)?;
        let mut out = Vec::new();
        match &self.outward {
            Some(transform) => transform.apply_matching(&common, 0, &mut out),
            None => out = common,
        }
        Some(out)
    }
}

/// The subjects that two patterns have in common, as a pattern.
fn intersection(one: &[u8], other: &[u8]) -> Option<Vec<u8>> {
    let (mut ones, mut others) = (tokens(one), tokens(other));
    let mut out: Vec<u8> = Vec::with_capacity(one.len().max(other.len()));
    loop {
        let (rest_of_one, rest_of_other) = (ones.rest(), others.rest());
        let token = match (ones.next(), others.next()) {
            (None, None) => return (!out.is_empty()).then_some(out),
            (None, _) | (_, None) => return None,
            (Some(b">"), Some(_)) => return Some(join(out, rest_of_other?)),
            (Some(_), Some(b">")) => return Some(join(out, rest_of_one?)),
            (Some(b"*"), Some(token)) | (Some(token), Some(b"*")) => token,
            (Some(a), Some(b)) if a == b => a,
            _ => return None,
        };
        out = join(out, token);
    }
}

fn join(mut out: Vec<u8>, token: &[u8]) -> Vec<u8> {
    if !out.is_empty() {
        out.push(b'.');
    }
    out.extend_from_slice(token);
    out
}

impl AccountImports {
    /// Streams of other accounts that store messages on `subject` of this one, each with the
    /// subject there.
    pub fn foreign_streams(
        &self,
        jetstream: &dyn JetStreamPort,
        subject: &[u8],
    ) -> Vec<(Box<[u8]>, StreamRoute)> {
        let importers = self.importers.load();
        if importers.list.is_empty() {
            return Vec::new();
        }
        let mut found = MatchResult::default();
        importers.by_subject.match_into(subject, &mut found);
        let mut streams = Vec::new();
        for &place in found.plain() {
            let (account, import) = &importers.list[place];
            let mut here = Vec::new();
            import.inward(subject, &mut here);
            if let Some(route) = jetstream.route(*account, &here) {
                streams.push((here.into_boxed_slice(), route));
            }
        }
        streams
    }

    /// True if another account imports streams of this one, which may store messages.
    pub fn has_takers(&self) -> bool {
        !self.importers.load().list.is_empty()
    }

    /// Import subscriptions that a subscription needs in accounts whose streams this one imports.
    fn import_subs_of(&self, sub: &Arc<Subscription>) -> Vec<(Arc<Account>, Arc<Subscription>)> {
        let imports = self.streams.load();
        let import_sub = |import: &Arc<StreamImport>| {
            let exporter = import.exporter.upgrade()?;
            let subject = import.import_pattern(&sub.subject)?;
            let import_sub = Subscription::import_sub(sub, import.clone(), &subject);
            Some((exporter, Arc::new(import_sub)))
        };
        imports.iter().filter_map(import_sub).collect()
    }

    /// Lists the services that it imports, for monitoring.
    #[must_use]
    pub fn service_count(&self) -> usize {
        self.services.lock().len()
    }

    /// Lists the streams that it imports, for monitoring.
    #[must_use]
    pub fn stream_count(&self) -> usize {
        self.streams.load().len()
    }
}

/// Puts import subscriptions of a client's subscription where its account imports streams from, in
/// place of those that are there. Returns accounts that got one or lost one, with the subject of
/// what came.
pub fn import_sub(
    account: &Account,
    sub: &Arc<Subscription>,
) -> Vec<(Arc<Account>, Arc<Subscription>)> {
    let import_subs = account.imports.import_subs_of(sub);
    for (exporter, import_sub) in &import_subs {
        exporter.interest.insert(import_sub.clone());
    }
    for (exporter, import_sub) in sub.set_import_subs(import_subs.clone()) {
        import_sub.close();
        exporter.interest.remove(&import_sub);
    }
    import_subs
}

/// Takes the import subscriptions of a subscription away; says whether an engine may have delivered
/// to one.
pub fn end_imports(sub: &Subscription) -> bool {
    let mut mattered = false;
    for (exporter, import_sub) in sub.set_import_subs(Vec::new()) {
        import_sub.close();
        mattered |= exporter.interest.remove(&import_sub) && exporter.watch.has_targets();
    }
    mattered
}

/// Makes the exports and imports of these options those in force. The configuration was checked.
pub fn install(accounts: &Accounts, configured: &[options::Account], server: &Arc<Connection>) {
    let mut importers: Vec<(Arc<Account>, AccountId, Arc<StreamImport>)> = Vec::new();
    for account in accounts.all() {
        let own = configured.iter().find(|own| own.name == account.name);
        let imports = own.map_or(&[][..], |own| &own.imports);
        let (services, streams): (Vec<&Import>, Vec<&Import>) =
            imports.iter().partition(|import| import.is_service);
        let mut taken = Vec::new();
        for import in streams {
            let Some(exporter) = accounts.by_name(&import.account) else { continue };
            let Some(import) = StreamImport::new(import, &exporter).map(Arc::new) else { continue };
            importers.push((exporter, account.id, import.clone()));
            taken.push(import);
        }
        account.imports.streams.store(Arc::new(taken));
        install_services(accounts, configured, &account, &services, server);
    }
    for account in accounts.all() {
        let of_account = importers.iter().filter(|(exporter, ..)| Arc::ptr_eq(exporter, &account));
        let mut found = Importers::default();
        for (_, importer, import) in of_account {
            found.by_subject.insert(&import.there, None, found.list.len());
            found.list.push((*importer, import.clone()));
        }
        account.imports.importers.store(Arc::new(found));
        account.interest.touch();
    }
}

fn install_services(
    accounts: &Accounts,
    configured: &[options::Account],
    account: &Arc<Account>,
    imports: &[&Import],
    server: &Arc<Connection>,
) {
    let mut subs = Vec::new();
    for import in imports {
        let exporter = configured.iter().find(|other| other.name == import.account);
        let export = exporter.and_then(|e| covering(e, true, &import.subject, &account.name));
        let service = export.and_then(|export| Some((&*export.subject, export.service.as_ref()?)));
        let Some(service) = service else { continue };
        let Some(exporter) = accounts.by_name(&import.account) else { continue };
        let Some(receiver) = ServiceImport::new(import, service, account, &exporter) else {
            continue;
        };
        let pattern = import.pattern();
        let sub = Subscription::of_server(server.clone(), pattern.as_bytes(), Arc::new(receiver));
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

impl std::fmt::Debug for AccountImports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
