//! Exports and imports of accounts as configured, and the rules that they must keep (`accounts.go`;
//! the error texts are nats-server's).

use std::collections::HashMap;
use std::time::Duration;

use nuthatch_protocol::subject::{has_wildcard, is_subset, is_valid_subject, overlap, tokens};
use nuthatch_protocol::transform::{Transform, TransformError};

use super::Account;

/// How long a response may take, unless `threshold` says otherwise.
pub const DEFAULT_RESPONSE_THRESHOLD: Duration = Duration::from_secs(120);
/// Share of requests whose latency is published, in percent, unless `sampling` says otherwise.
pub const DEFAULT_LATENCY_SAMPLING: u8 = 100;
/// Accounts that the search for a cycle of imports visits at most.
const CYCLE_DEPTH_MAX: usize = 1024;

/// A stream or service that other accounts may import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    /// Its subject in the exporting account.
    pub subject: String,
    /// The only accounts that may import it; `None` is every account.
    pub accounts: Option<Vec<String>>,
    /// Which token of an imported subject must be the importing account's name, from 1; 0: none.
    pub account_token_position: usize,
    /// Options of a service; `None` is a stream.
    pub service: Option<ServiceExport>,
}

/// Options of an exported service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceExport {
    /// How many responses a request gets.
    pub response: ResponseKind,
    /// How long responses may take.
    pub threshold: Duration,
    /// Publication of latencies.
    pub latency: Option<Latency>,
    /// Traces follow requests into the exporting account.
    pub allow_trace: bool,
}

/// How many responses a request gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ResponseKind {
    /// `single`: one.
    #[default]
    Single,
    /// `stream`: any number.
    Stream,
    /// `chunked`: any number, the last one empty.
    Chunked,
}

/// Published latencies of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Latency {
    /// Share of requests in percent; 0: only those whose tracing headers ask for it.
    pub sampling: u8,
    /// Subject in the exporting account.
    pub subject: String,
}

/// A stream or service of another account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    /// The exporting account.
    pub account: String,
    /// The subject there.
    pub subject: String,
    /// The subject here; wildcards as `*` or `$1`.
    pub to: String,
    /// The exporting account learns who its clients are.
    pub share: bool,
    /// A service rather than a stream.
    pub is_service: bool,
    /// Traces follow messages of the stream into the importing account.
    pub allow_trace: bool,
}

/// Why an export or import cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExchangeError {
    /// Not a subject.
    #[error("invalid subject")]
    InvalidSubject,
    /// The named token is no `*`.
    #[error("account_token_position {position} is not a wildcard '*' of {subject:?}")]
    TokenPosition {
        /// The position, from 1.
        position: usize,
        /// The exported subject.
        subject: String,
    },
    /// No export lets this account import that.
    #[error("stream import not authorized")]
    StreamNotAuthorized,
    /// No export lets this account import that.
    #[error("service import not authorized")]
    ServiceNotAuthorized,
    /// The same stream twice.
    #[error("stream import already exists")]
    DuplicateStream,
    /// The same service subject twice from one account.
    #[error(
        "duplicate service import subject {to:?}, previously used in import for account \
         {account:?}, subject {subject:?}"
    )]
    DuplicateService {
        /// The subject here.
        to: String,
        /// The exporting account.
        account: String,
        /// The subject there.
        subject: String,
    },
    /// Messages could go round for ever.
    #[error("import forms a cycle")]
    Cycle,
    /// Too many accounts to search through.
    #[error("search cycle depth exhausted")]
    CycleDepth,
    /// The two subjects of an import do not fit each other.
    #[error(
        "failed to create mapping transform for {what} import subject from {from:?} to {to:?}: \
         {source}"
    )]
    Transform {
        /// `stream` or `service`.
        what: &'static str,
        /// The subject that is transformed.
        from: String,
        /// The resulting subject.
        to: String,
        /// Why not.
        source: TransformError,
    },
}

/// An export or import that cannot be, with the account it belongs to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("account '{account}': Error adding {what} {subject:?}: {source}")]
pub struct ExchangeProblem {
    /// Whose.
    pub account: String,
    /// Such as `stream import`.
    pub what: &'static str,
    /// Its subject.
    pub subject: String,
    /// Why not.
    pub source: ExchangeError,
}

impl Export {
    /// Checks that it makes sense by itself.
    fn check(&self) -> Result<(), ExchangeError> {
        if !is_valid_subject(self.subject.as_bytes()) {
            return Err(ExchangeError::InvalidSubject);
        }
        let position = self.account_token_position;
        if position == 0 {
            return Ok(());
        }
        match tokens(self.subject.as_bytes()).nth(position - 1) {
            Some(b"*") => Ok(()),
            _ => Err(ExchangeError::TokenPosition { position, subject: self.subject.clone() }),
        }
    }

    /// True if this account may import this subject, which the export covers.
    fn admits(&self, account: &str, subject: &str) -> bool {
        if self.account_token_position > 0 {
            let place = self.account_token_position - 1;
            return tokens(subject.as_bytes()).nth(place) == Some(account.as_bytes());
        }
        self.accounts.as_ref().is_none_or(|names| names.iter().any(|name| name == account))
    }
}

impl Import {
    /// The subject here as a pattern: `$1` and the like as `*`.
    #[must_use]
    pub fn pattern(&self) -> String {
        let token = |token| if is_reference(token) { "*" } else { token };
        self.to.split('.').map(token).collect::<Vec<_>>().join(".")
    }

    /// From a subject there to the subject here; `None` if they are the same.
    ///
    /// # Errors
    /// [`ExchangeError::Transform`] if the two do not fit each other.
    pub fn inward(&self) -> Result<Option<Transform>, ExchangeError> {
        if self.subject == self.to {
            return Ok(None);
        }
        let transform = if has_wildcard(self.subject.as_bytes()) {
            Transform::new_reversible(&self.subject, &numbered(&self.to))
        } else {
            Transform::new(&self.subject, &self.to)
        };
        transform.map(Some).map_err(|source| ExchangeError::Transform {
            what: if self.is_service { "service" } else { "stream" },
            from: self.subject.clone(),
            to: self.to.clone(),
            source,
        })
    }

    /// From a subject here to the subject there; `None` if they are the same.
    ///
    /// # Errors
    /// As [`Import::inward`].
    pub fn outward(&self) -> Result<Option<Transform>, ExchangeError> {
        let Some(inward) = self.inward()? else { return Ok(None) };
        inward.reverse().map(Some).map_err(|source| ExchangeError::Transform {
            what: if self.is_service { "service" } else { "stream" },
            from: self.to.clone(),
            to: self.subject.clone(),
            source,
        })
    }
}

/// `$1`, `$2`, …
fn is_reference(token: &str) -> bool {
    token.strip_prefix('$').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// Every `*` as the next `$n`.
fn numbered(subject: &str) -> String {
    let mut number = 0;
    let token = |token: &str| {
        if token == "*" {
            number += 1;
            format!("${number}")
        } else {
            token.to_owned()
        }
    };
    subject.split('.').map(token).collect::<Vec<_>>().join(".")
}

/// The export of this kind that covers a subject: the same subject first, then any that covers it
/// and lets the account have it.
#[must_use]
pub fn covering<'a>(
    exporter: &'a Account,
    is_service: bool,
    subject: &str,
    importer: &str,
) -> Option<&'a Export> {
    let of_kind = || exporter.exports.iter().filter(|e| e.service.is_some() == is_service);
    if let Some(same) = of_kind().find(|export| export.subject == subject) {
        return same.admits(importer, subject).then_some(same);
    }
    of_kind().find(|export| {
        is_subset(subject.as_bytes(), export.subject.as_bytes()) && export.admits(importer, subject)
    })
}

/// Checks the exports and imports of all accounts.
///
/// # Errors
/// The first that cannot be.
pub(super) fn check(accounts: &[Account]) -> Result<(), Box<ExchangeProblem>> {
    for account in accounts {
        for export in &account.exports {
            let what = if export.service.is_some() { "service export" } else { "stream export" };
            export.check().map_err(problem(account, what, &export.subject))?;
        }
    }
    let mut seen = Seen::new(accounts);
    // Streams first, as there: a cycle is reported for the import that closes it.
    for is_service in [false, true] {
        let what = if is_service { "service import" } else { "stream import" };
        for (at, account) in accounts.iter().enumerate() {
            for import in account.imports.iter().filter(|i| i.is_service == is_service) {
                seen.admit(at, import).map_err(problem(account, what, &import.subject))?;
            }
        }
    }
    Ok(())
}

/// Takes away the exports and imports that cannot be, and says why: a mistake in one account must
/// not take the others down.
pub fn drop_impossible(accounts: &mut [Account]) -> Vec<ExchangeProblem> {
    let mut problems = Vec::new();
    for account in accounts.iter_mut() {
        let exports = std::mem::take(&mut account.exports);
        for export in exports {
            let what = if export.service.is_some() { "service export" } else { "stream export" };
            match export.check() {
                Ok(()) => account.exports.push(export),
                Err(source) => {
                    problems.push(*problem(account, what, &export.subject)(source));
                }
            }
        }
    }
    let mut dropped = vec![Vec::new(); accounts.len()];
    let mut seen = Seen::new(accounts);
    for is_service in [false, true] {
        let what = if is_service { "service import" } else { "stream import" };
        for (at, account) in seen.accounts.iter().enumerate() {
            for (place, import) in account.imports.iter().enumerate() {
                if import.is_service == is_service
                    && let Err(source) = seen.admit(at, import)
                {
                    problems.push(*problem(account, what, &import.subject)(source));
                    dropped[at].push(place);
                }
            }
        }
    }
    for (account, dropped) in accounts.iter_mut().zip(dropped) {
        let mut places = 0..;
        account.imports.retain(|_| places.next().is_none_or(|place| !dropped.contains(&place)));
    }
    problems
}

fn problem(
    account: &Account,
    what: &'static str,
    subject: &str,
) -> impl FnOnce(ExchangeError) -> Box<ExchangeProblem> + use<> {
    let (account, subject) = (account.name.clone(), subject.to_owned());
    move |source| Box::new(ExchangeProblem { account, what, subject, source })
}

/// The imports that were found good so far.
struct Seen<'a> {
    accounts: &'a [Account],
    /// Places in `accounts`.
    by_name: HashMap<&'a str, usize>,
    admitted: Vec<Vec<&'a Import>>,
}

impl<'a> Seen<'a> {
    fn new(accounts: &'a [Account]) -> Self {
        let by_name = accounts.iter().enumerate().map(|(at, account)| (account.name.as_str(), at));
        Self { accounts, by_name: by_name.collect(), admitted: vec![Vec::new(); accounts.len()] }
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    fn admit(&mut self, at: usize, import: &'a Import) -> Result<(), ExchangeError> {
        let importer = &self.accounts[at].name;
        let not_authorized = if import.is_service {
            ExchangeError::ServiceNotAuthorized
        } else {
            ExchangeError::StreamNotAuthorized
        };
        let pattern = import.pattern();
        if !is_valid_subject(import.subject.as_bytes()) || !is_valid_subject(pattern.as_bytes()) {
            return Err(ExchangeError::InvalidSubject);
        }
        let exporter = self.place(&import.account).ok_or_else(|| not_authorized.clone())?;
        covering(&self.accounts[exporter], import.is_service, &import.subject, importer)
            .ok_or(not_authorized)?;
        self.check_duplicate(at, import)?;
        if import.is_service {
            self.search_services(exporter, &pattern, &mut vec![at])?;
        } else {
            self.search_streams(exporter, &pattern, &mut vec![at])?;
            self.search_streams(exporter, &import.subject, &mut vec![at])?;
        }
        import.outward()?;
        self.admitted[at].push(import);
        Ok(())
    }

    fn check_duplicate(&self, at: usize, import: &Import) -> Result<(), ExchangeError> {
        let same_account = |other: &&&Import| {
            other.is_service == import.is_service && other.account == import.account
        };
        let mut others = self.admitted[at].iter().filter(same_account);
        if !import.is_service {
            return match others.any(|other| other.subject == import.subject) {
                true => Err(ExchangeError::DuplicateStream),
                false => Ok(()),
            };
        }
        match others.find(|other| other.to == import.to) {
            Some(other) => Err(ExchangeError::DuplicateService {
                to: import.to.clone(),
                account: other.account.clone(),
                subject: other.subject.clone(),
            }),
            None => Ok(()),
        }
    }

    /// Whether requests on `subject` could come back to an account that was visited: compared with
    /// the subjects that account `at` imports, as nats-server does. What that misses ends at run
    /// time, where the number of accounts that a message passes is bounded.
    fn search_services(
        &self,
        at: usize,
        subject: &str,
        visited: &mut Vec<usize>,
    ) -> Result<(), ExchangeError> {
        if visited.len() >= CYCLE_DEPTH_MAX {
            return Err(ExchangeError::CycleDepth);
        }
        for import in self.admitted[at].iter().filter(|i| i.is_service) {
            if !overlap(subject.as_bytes(), import.subject.as_bytes()) {
                continue;
            }
            let pattern = import.pattern();
            let narrower = is_subset(pattern.as_bytes(), subject.as_bytes());
            let next = if narrower { pattern.as_str() } else { subject };
            self.visit(at, import, visited, |this, exporter, visited| {
                this.search_services(exporter, next, visited)
            })?;
        }
        Ok(())
    }

    /// Whether messages on `subject` of account `at` come from one that was visited.
    fn search_streams(
        &self,
        at: usize,
        subject: &str,
        visited: &mut Vec<usize>,
    ) -> Result<(), ExchangeError> {
        if visited.len() >= CYCLE_DEPTH_MAX {
            return Err(ExchangeError::CycleDepth);
        }
        let exported = |export: &Export| {
            export.service.is_none() && is_subset(subject.as_bytes(), export.subject.as_bytes())
        };
        if !self.accounts[at].exports.iter().any(exported) {
            return Ok(());
        }
        for import in self.admitted[at].iter().filter(|i| !i.is_service) {
            let pattern = import.pattern();
            if !overlap(subject.as_bytes(), pattern.as_bytes()) {
                continue;
            }
            let narrower = is_subset(pattern.as_bytes(), subject.as_bytes());
            let next = if narrower { pattern.as_str() } else { subject };
            self.visit(at, import, visited, |this, exporter, visited| {
                this.search_streams(exporter, next, visited)
            })?;
        }
        Ok(())
    }

    fn visit(
        &self,
        at: usize,
        import: &Import,
        visited: &mut Vec<usize>,
        search: impl FnOnce(&Self, usize, &mut Vec<usize>) -> Result<(), ExchangeError>,
    ) -> Result<(), ExchangeError> {
        let Some(exporter) = self.place(&import.account) else { return Ok(()) };
        if visited.contains(&exporter) {
            return Err(ExchangeError::Cycle);
        }
        if !visited.contains(&at) {
            visited.push(at);
        }
        search(self, exporter, visited)
    }
}

#[cfg(test)]
mod tests;
