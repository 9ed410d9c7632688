//! Which imports are permitted: what is exported to everybody, and what takes an activation, a
//! permit that the exporting account signs for one other account.

use super::derive::Derived;
use super::state::AccountState;
use super::store::StoredToken;
use nuthatch_protocol::jwt::{
    ActivationClaims, Export, ExportKind, Import, activation_issues, time_issue,
};
use nuthatch_protocol::subject::is_subset;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Takes imports away that are not permitted, and lists importers with the exports that take an
/// activation. `served` are the accounts of `derived.configured`, in order.
pub(super) fn settle(served: &[&Arc<StoredToken>], derived: &mut Derived, now: i64) {
    let by_name: FxHashMap<&str, usize> =
        served.iter().enumerate().map(|(at, stored)| (stored.key(), at)).collect();
    for (at, importer) in served.iter().enumerate() {
        let mut kept = Vec::new();
        for (place, import) in importer.claims.nats.imports.iter().enumerate() {
            let exporter = by_name.get(import.account.as_str()).copied();
            let permitted = exporter
                .ok_or_else(|| format!("account {} is not there", import.account))
                .and_then(|exporter| {
                    let request = Request { importer, place, exporter: served[exporter] };
                    let state = derived.states.get(import.account.as_str());
                    request.examine(state.map(|state| &**state), now).map(|found| (exporter, found))
                });
            match permitted {
                Ok((exporter, permit)) => {
                    kept.push(derived.configured[at].imports[place].clone());
                    derived.approve(exporter, importer.key(), &permit, now);
                }
                Err(why) => derived.problems.push(format!(
                    "account '{}': {} import {:?} of {}: {why}",
                    importer.key(),
                    word(import),
                    import.subject,
                    import.account,
                )),
            }
        }
        derived.configured[at].imports = kept;
    }
}

fn word(import: &Import) -> &'static str {
    if import.kind == Some(ExportKind::Service) { "service" } else { "stream" }
}

/// The permission in an activation.
#[derive(Default)]
struct Permit {
    /// Places of the exports; none if everybody may import.
    exports: Vec<usize>,
    /// When the activation ends; 0: never.
    expires: i64,
}

impl Derived {
    fn approve(&mut self, exporter: usize, importer: &str, permit: &Permit, now: i64) {
        for export in &permit.exports {
            let approved =
                self.configured[exporter].exports[*export].accounts.get_or_insert_default();
            approved.push(importer.to_owned());
        }
        if permit.expires > now {
            let earlier = |deadline: i64| deadline.min(permit.expires);
            self.deadline = Some(self.deadline.map_or(permit.expires, earlier));
        }
    }
}

/// An import, and whom it is from.
struct Request<'a> {
    importer: &'a StoredToken,
    place: usize,
    exporter: &'a StoredToken,
}

impl Request<'_> {
    fn import(&self) -> &Import {
        &self.importer.claims.nats.imports[self.place]
    }

    /// The exports that hold what is imported: the same subject, else all that cover it.
    fn candidates(&self) -> Vec<(usize, &Export)> {
        let (import, exports) = (self.import(), self.exporter.claims.nats.exports.iter());
        let there = import.there();
        let of_kind = || exports.clone().enumerate().filter(|(_, e)| e.kind == import.kind);
        let same: Vec<_> = of_kind().filter(|(_, export)| export.subject == there).collect();
        if !same.is_empty() {
            return same;
        }
        let covers = |export: &Export| is_subset(there.as_bytes(), export.subject.as_bytes());
        of_kind().filter(|(_, export)| covers(export)).collect()
    }

    /// Whether it is permitted.
    fn examine(&self, exporter: Option<&AccountState>, now: i64) -> Result<Permit, String> {
        let candidates = self.candidates();
        if candidates.is_empty() {
            return Err(format!("{} import not authorized", word(self.import())));
        }
        // Whose key must be in the subject is looked at when the subject is.
        if candidates.iter().any(|(_, e)| !e.token_req || e.account_token_position > 0) {
            return Ok(Permit::default());
        }
        let activation = match &self.importer.activations[self.place] {
            None => return Err("the export takes an activation token".to_owned()),
            Some(Err(error)) => return Err(format!("the activation token is none: {error}")),
            Some(Ok(activation)) => activation,
        };
        self.check(activation, exporter, now)?;
        let (subject, at) = (&activation.data.subject, activation.data.issued_at);
        let counts = |export: &Export| !export.revocations.covers(subject, at);
        let counting = candidates.iter().filter(|(_, export)| counts(export));
        let exports: Vec<usize> = counting.map(|(place, _)| *place).collect();
        if exports.is_empty() {
            return Err("the activation token is revoked".to_owned());
        }
        Ok(Permit { exports, expires: activation.data.expires })
    }

    fn check(
        &self,
        activation: &ActivationClaims,
        exporter: Option<&AccountState>,
        now: i64,
    ) -> Result<(), String> {
        let issues = activation_issues(activation, self.import(), self.importer.key());
        if !issues.is_empty() {
            return Err(issues.join("; "));
        }
        if let Some(issue) = time_issue(&activation.data, now) {
            return Err(format!("activation token: {issue}"));
        }
        if activation.data.expires > 0 && activation.data.expires <= now {
            return Err("activation token: claim is expired".to_owned());
        }
        // Signed by the account itself, which was checked, or by one of its keys.
        let by = &activation.nats.issuer_account;
        let signs = |state: &AccountState| state.signers.contains_key(&activation.data.issuer);
        if !by.is_empty() && (by != self.exporter.key() || !exporter.is_some_and(signs)) {
            return Err(format!("Invalid issuer account {by:?} in activation claim"));
        }
        Ok(())
    }
}
