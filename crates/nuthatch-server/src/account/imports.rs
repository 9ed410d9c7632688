//! What an account imports, and what others import from it. What they do with messages is in
//! [`account_imports`](crate::account_imports).
//!
//! For an imported stream there are *import subscriptions*: for each subscription of the importing
//! account there is one in the exporting account's interest, which forwards messages under the
//! subject they have in the importing account.

use super::Account;
use super::responses::Responses;
use crate::options::Import;
use crate::subscription::{ImportSubscription, Subscription};
use arc_swap::ArcSwap;
use nuthatch_protocol::subject::tree::{MatchResult, SubjectTree};
use nuthatch_protocol::subject::{matches, tokens};
use nuthatch_protocol::transform::Transform;
use nuthatch_streams::AccountId;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};

/// Imports of an account, and other accounts' imports from it.
#[derive(Default)]
pub struct AccountImports {
    /// Streams that it imports.
    pub(crate) streams: ArcSwap<Vec<Arc<StreamImport>>>,
    /// Importers of its streams.
    pub(crate) importers: ArcSwap<Importers>,
    /// Subscriptions of the server in it, for services that it imports.
    pub(crate) services: Mutex<Vec<Arc<Subscription>>>,
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
    inward: Option<Arc<Transform>>,
    outward: Option<Transform>,
    /// Traces follow its messages.
    allow_trace: bool,
}

/// An account that imports messages on a subject.
pub struct Importer {
    /// The account.
    pub account: AccountId,
    /// The subject there.
    pub subject: Box<[u8]>,
    /// Traces follow the messages there.
    pub allow_trace: bool,
}

/// Importers of an account's streams.
#[derive(Default)]
pub(crate) struct Importers {
    list: Vec<(AccountId, Arc<StreamImport>)>,
    /// Places in `list` by the subject in the exporting account.
    by_subject: SubjectTree<usize>,
}

impl Importers {
    /// Adds an account that imports.
    pub(crate) fn add(&mut self, importer: AccountId, import: Arc<StreamImport>) {
        self.by_subject.insert(&import.there, None, self.list.len());
        self.list.push((importer, import));
    }
}

impl StreamImport {
    /// `None` if the subjects do not fit each other, which the check of the options excludes.
    pub(crate) fn new(import: &Import, exporter: &Arc<Account>) -> Option<Self> {
        Some(Self {
            exporter: Arc::downgrade(exporter),
            there: import.subject.as_bytes().into(),
            here: import.pattern().as_bytes().into(),
            inward: import.inward().ok()?.map(Arc::new),
            outward: import.outward().ok()?,
            allow_trace: import.allow_trace,
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
    /// Accounts that import messages on `subject` of this one.
    pub fn importers_of(&self, subject: &[u8]) -> Vec<Importer> {
        let importers = self.importers.load();
        if importers.list.is_empty() {
            return Vec::new();
        }
        let mut found = MatchResult::default();
        importers.by_subject.match_into(subject, &mut found);
        let importer = |place: &usize| {
            let (account, import) = &importers.list[*place];
            let mut here = Vec::new();
            import.inward(subject, &mut here);
            let (subject, allow_trace) = (here.into_boxed_slice(), import.allow_trace);
            Importer { account: *account, subject, allow_trace }
        };
        found.plain().iter().map(importer).collect()
    }

    /// Subjects of this account that others import and take in their own by one of the patterns that `taken` gives
    /// for them.
    pub fn taken_by_importers(
        &self,
        taken: impl Fn(AccountId) -> Vec<Box<[u8]>>,
    ) -> Vec<Box<[u8]>> {
        let importers = self.importers.load();
        let of_import = |(importer, import): &(AccountId, Arc<StreamImport>)| {
            let patterns = taken(*importer);
            let there = patterns.iter().filter_map(|pattern| import.import_pattern(pattern));
            there.map(Vec::into_boxed_slice).collect::<Vec<_>>()
        };
        importers.list.iter().flat_map(of_import).collect()
    }

    /// True if another account imports streams of this one, which may store messages.
    pub fn has_takers(&self) -> bool {
        !self.importers.load().list.is_empty()
    }

    /// True if it imports a service that answers on this subject.
    pub fn serves(&self, subject: &[u8]) -> bool {
        self.services.lock().iter().any(|service| matches(&service.subject, subject))
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

/// What stands for a subscription in the account that exports a stream.
struct Imported {
    exporter: Arc<Account>,
    sub: Arc<Subscription>,
}

impl ImportSubscription for Imported {
    fn end(&self) -> bool {
        self.sub.close();
        self.exporter.interest.remove(&self.sub) && self.exporter.watch.has_targets()
    }
}

impl Account {
    /// Puts import subscriptions of a client's subscription where this account imports streams from, in
    /// place of those that are there. Returns accounts that got one, with its subject.
    pub fn import(&self, sub: &Arc<Subscription>) -> Vec<(Arc<Self>, Box<[u8]>)> {
        let imports = self.imports.streams.load();
        let (mut told, mut import_subs) = (Vec::new(), Vec::<Arc<dyn ImportSubscription>>::new());
        for import in imports.iter() {
            let Some(exporter) = import.exporter.upgrade() else { continue };
            let Some(subject) = import.import_pattern(&sub.subject) else { continue };
            let import_sub =
                Subscription::import_sub(sub, import.inward.clone(), import.allow_trace, &subject);
            let import_sub = Arc::new(import_sub);
            exporter.interest.insert(import_sub.clone());
            told.push((exporter.clone(), subject.into_boxed_slice()));
            import_subs.push(Arc::new(Imported { exporter, sub: import_sub }));
        }
        for old in sub.set_import_subs(import_subs) {
            old.end();
        }
        told
    }
}

/// Takes the import subscriptions of a subscription away; says whether an engine may have delivered
/// to one.
pub fn end_imports(sub: &Subscription) -> bool {
    let old = sub.set_import_subs(Vec::new());
    // Each is ended, whatever the others say.
    old.iter().filter(|old| old.end()).count() > 0
}

impl std::fmt::Debug for AccountImports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccountImports").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
