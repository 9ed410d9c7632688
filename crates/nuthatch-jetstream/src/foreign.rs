//! Whether an account may copy a stream of another one: its imports must let it do what a copy does.
//!
//! A copy within one server reads the other account's log directly, so nothing else would ask. What
//! it does over the wire is to create a consumer and to get its messages; so it needs either the
//! whole API of the other account, or `CONSUMER.CREATE.<stream>` and a stream import that covers the
//! subjects of delivery. Less than that, such as `INFO` alone, gives no right.

use nuthatch_protocol::js::StreamSource;
use nuthatch_protocol::subject::{is_subset, overlap};
use nuthatch_server::options::{Account, Import, covering};
use nuthatch_streams::AccountId;

/// What the imports of an account permit for a source with an API of its own (`external`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Foreign {
    /// The stream is in an account of the server, and may be copied.
    Granted {
        /// That account.
        exporter: AccountId,
        /// What a consumer there delivers to the copy is imported, so that the stream may be at another node.
        delivers: bool,
    },
    /// The API is that of this account of the server, and the imports do not cover a copy.
    Denied(String),
    /// The API is no other account's of this server: requests travel, and whoever gets them judges.
    Afar,
}

/// The name of the account whose stream `source` may be copied by `importer`, and whether what a consumer there delivers comes
/// through.
///
/// # Errors
/// The name of the account whose API is imported without the right to copy; `None`: nobody's is.
pub(super) fn copied_account<'a>(
    accounts: &'a [Account],
    importer: &'a Account,
    source: &StreamSource,
) -> Result<(&'a str, bool), Option<&'a str>> {
    let Some(external) = &source.external else { return Err(None) };
    let api = external.api.trim_end_matches('.');
    let (mut denied, whole) = (None, format!("{api}.>"));
    for import in importer.imports.iter().filter(|import| import.is_service) {
        let Some(exporter) = accounts.iter().find(|other| other.name == import.account) else {
            continue;
        };
        if covering(exporter, true, &import.subject, &importer.name).is_none() {
            continue;
        }
        if leads_to(import, &whole, "$JS.API.>") {
            return Ok((&exporter.name, delivers(importer, exporter, source)));
        }
        let creates = creations(source)
            .into_iter()
            .any(|call| leads_to(import, &format!("{api}.{call}"), &format!("$JS.API.{call}")));
        if creates && delivers(importer, exporter, source) {
            return Ok((&exporter.name, true));
        }
        let is_of_api = overlap(import.pattern().as_bytes(), whole.as_bytes())
            && overlap(import.subject.as_bytes(), b"$JS.API.>");
        denied = denied.or_else(|| is_of_api.then_some(&*exporter.name));
    }
    Err(denied)
}

/// The calls one of which creates the consumer of a copy; a filter may stand in the subject.
fn creations(source: &StreamSource) -> Vec<String> {
    let mut calls = vec![format!("CONSUMER.CREATE.{}", source.name)];
    let filter = match &source.subject_transforms[..] {
        [] => Some(&source.filter_subject),
        [only] => Some(&only.src),
        _ => None,
    };
    calls.extend(
        filter
            .filter(|filter| !filter.is_empty())
            .map(|filter| format!("CONSUMER.CREATE.{}.*.{filter}", source.name)),
    );
    calls
}

/// True if requests here on `pattern` arrive as `there`.
fn leads_to(import: &Import, pattern: &str, there: &str) -> bool {
    if !is_subset(pattern.as_bytes(), import.pattern().as_bytes()) {
        return false;
    }
    match import.outward() {
        Ok(None) => pattern == there,
        Ok(Some(outward)) => {
            let mut arrives = Vec::new();
            outward.apply_matching(pattern.as_bytes(), 0, &mut arrives);
            arrives == there.as_bytes()
        }
        Err(_) => false,
    }
}

/// True if what a consumer of the exporter delivers to the copy comes through a stream import.
fn delivers(importer: &Account, exporter: &Account, source: &StreamSource) -> bool {
    let prefix = source.external.as_ref().map(|external| external.deliver.trim_end_matches('.'));
    let prefix = prefix.filter(|prefix| !prefix.is_empty()).unwrap_or("$JS");
    // `M` for mirrors, `S` for sources; whoever has one of the two is not refused the other.
    let wanted = ["M", "S"].map(|kind| format!("{prefix}.{kind}.*"));
    importer.imports.iter().filter(|import| !import.is_service).any(|import| {
        import.account == exporter.name
            && covering(exporter, false, &import.subject, &importer.name).is_some()
            && wanted.iter().any(|one| is_subset(one.as_bytes(), import.pattern().as_bytes()))
    })
}
