//! What a token may not say, though it is well-formed and signed (the `Validate` methods of
//! `github.com/nats-io/jwt/v2`, whose texts these are). Only what blocks is reported.

use std::collections::BTreeMap;

use super::account::{
    Account, Authorization, Export, ExportKind, Import, MsgTrace, SigningKey, WeightedMapping,
};
use super::cidr;
use super::claims::{Activation, Claims, ClaimsData};
use super::user::{Permission, Permissions, User, UserPermissions};
use crate::nkey::{KeyKind, decode_as};
use crate::subject::has_wildcard;

/// All of it, in percent.
const WHOLE: u32 = 100;

/// Whether a token is in force at `now`, in seconds since 1970: what to say if it is not.
#[must_use]
pub fn time_issue(data: &ClaimsData, now: i64) -> Option<&'static str> {
    if data.expires > 0 && now > data.expires {
        return Some("claim is expired");
    }
    (data.not_before > now).then_some("claim is not yet valid")
}

/// Faults of an account, apart from its times and its activations.
#[must_use]
pub fn account_issues(claims: &Claims<Account>) -> Vec<String> {
    let account = &claims.nats;
    let mut issues = Vec::new();
    imports(account, &mut issues);
    exports(account, &mut issues);
    limits(account, &mut issues);
    if let Some(said) = &account.trace {
        trace(said, &mut issues);
    }
    permissions(&account.default_permissions, &mut issues);
    for (source, destinations) in &account.mappings {
        mapping(source, destinations, &mut issues);
    }
    for (key, scope) in &account.signing_keys {
        if decode_as(KeyKind::Account, key).is_none() {
            issues.push(match scope {
                SigningKey::Plain => format!("{key:?} is not a valid account signing key"),
                SigningKey::Scoped(_) => format!("{key} is not an account public key"),
            });
        }
    }
    authorization(&account.authorization, &mut issues);
    issues
}

/// Faults of a service that says who users are.
fn authorization(said: &Authorization, issues: &mut Vec<String>) {
    if !said.allowed_accounts.is_empty() && !said.is_enabled() {
        let text = "External authorization cannot have accounts without users specified";
        issues.push(text.to_owned());
    }
    for user in &said.auth_users {
        if decode_as(KeyKind::User, user).is_none() {
            issues.push(format!("AuthUser {user:?} is not a valid user public key"));
        }
    }
    for account in &said.allowed_accounts {
        match account.as_str() {
            "*" if said.allowed_accounts.len() > 1 => {
                issues.push("AllowedAccounts can only be a list of accounts or \"*\"".to_owned());
            }
            "*" => {}
            key if decode_as(KeyKind::Account, key).is_none() => {
                issues.push(format!("Account {key:?} is not a valid account public key"));
            }
            _ => {}
        }
    }
    if !said.xkey.is_empty() && decode_as(KeyKind::Curve, &said.xkey).is_none() {
        issues.push(format!("XKey {:?} is not a valid public xkey", said.xkey));
    }
}

/// Faults of a user, apart from its times.
#[must_use]
pub fn user_issues(claims: &Claims<User>) -> Vec<String> {
    let mut issues = Vec::new();
    let user = &claims.nats;
    permissions(&user.rights.permissions, &mut issues);
    user_limits(&user.rights, &mut issues);
    let account = &user.issuer_account;
    if !account.is_empty() && decode_as(KeyKind::Account, account).is_none() {
        issues.push("account_id is not an account public key".to_owned());
    }
    issues
}

/// Faults of an activation for `import` of the account `importer`, apart from its times.
#[must_use]
pub fn activation_issues(
    claims: &Claims<Activation>,
    import: &Import,
    importer: &str,
) -> Vec<String> {
    let mut issues = Vec::new();
    let (activation, subject) = (&claims.nats, &import.subject);
    let by = &activation.issuer_account;
    if claims.data.issuer != import.account && *by != import.account {
        issues.push(format!("activation token doesn't match account for import {subject:?}"));
    }
    if claims.data.subject != importer {
        let text = "activation token doesn't match account it is being included in";
        issues.push(format!("{text}, {subject:?}"));
    }
    if activation.kind.is_none() || activation.kind != import.kind {
        issues.push("mismatch between token import type and type of import".to_owned());
    }
    self::subject(&activation.subject, &mut issues);
    if !by.is_empty() && decode_as(KeyKind::Account, by).is_none() {
        issues.push("account_id is not an account public key".to_owned());
    }
    if !is_contained_in(import.there(), &activation.subject) {
        issues.push(format!(
            "activation token import subject {:?} doesn't match import {subject:?}",
            activation.subject
        ));
    }
    issues
}

/// The numbers of a version such as `2.11.0`; empty is 0.0.0.
///
/// # Errors
/// What is wrong with the text.
pub fn server_version(text: &str) -> Result<[u32; 3], String> {
    if text.is_empty() {
        return Ok([0; 3]);
    }
    let numbers: Vec<&str> = text.split('.').collect();
    let &[major, minor, update] = numbers.as_slice() else {
        return Err(
            "asserted server version must be of the form <major>.<minor>.<update>".to_owned()
        );
    };
    let number = |text: &str| {
        text.parse().map_err(|_| format!("asserted server version cant parse {text} to int"))
    };
    Ok([number(major)?, number(minor)?, number(update)?])
}

fn imports(account: &Account, issues: &mut Vec<String>) {
    let mut by_account: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for import in &account.imports {
        if import.kind == Some(ExportKind::Service) {
            let here = pattern(&service_subject(import));
            let others = by_account.entry(&import.account).or_default();
            let overlaps =
                |other: &&String| is_contained_in(&here, other) || is_contained_in(other, &here);
            if let Some(other) = others.iter().find(overlaps) {
                issues.push(format!(
                    "overlapping subject namespace for {here:?} and {other:?} in same account {:?}",
                    import.account
                ));
            }
            others.push(here);
        }
        self::import(import, issues);
    }
}

/// Key by which services of one account are compared.
fn service_subject(import: &Import) -> String {
    match import {
        Import { to, .. } if !to.is_empty() => to.clone(),
        Import { local_subject, .. } if !local_subject.is_empty() => local_subject.clone(),
        Import { subject, .. } => subject.clone(),
    }
}

fn import(import: &Import, issues: &mut Vec<String>) {
    if import.kind.is_none() {
        issues.push("invalid import type: \"unknown\"".to_owned());
    }
    if import.account.is_empty() {
        issues.push("account to import from is not specified".to_owned());
    }
    subject(&import.subject, issues);
    if !import.local_subject.is_empty() {
        renaming(&import.local_subject, &import.subject, issues);
        if !import.to.is_empty() {
            issues.push("Local Subject replaces To".to_owned());
        }
    }
    if import.allow_trace && import.kind == Some(ExportKind::Service) {
        issues.push("AllowTrace only valid for stream import".to_owned());
    }
    if import.share && import.kind != Some(ExportKind::Service) {
        let text = "sharing information (for latency tracking) is only valid for services";
        issues.push(format!("{text}: {:?}", import.subject));
    }
}

fn renaming(to: &str, from: &str, issues: &mut Vec<String>) {
    subject(to, issues);
    let is_tail = |subject: &str| subject == ">" || subject.ends_with(".>");
    if is_tail(to) != is_tail(from) {
        let text = "both, renaming subject and subject, need to end or not end in >";
        issues.push(text.to_owned());
    }
    let wildcards = from.split('.').filter(|token| *token == "*").count();
    let mut references = 0;
    for token in to.split('.') {
        match reference(token) {
            Some(index) if index > wildcards => issues.push(format!(
                "Reference ${index} in {to:?} reference * in {from:?} that do not exist"
            )),
            Some(_) => references += 1,
            None => references += usize::from(token == "*"),
        }
    }
    if references != wildcards {
        let text = "subject does not contain enough * or reference wildcards $[0-9]";
        issues.push(text.to_owned());
    }
}

/// The number of `$1` and the like.
fn reference(token: &str) -> Option<usize> {
    token.strip_prefix('$').and_then(|number| number.parse().ok())
}

/// `$1` and the like as `*`.
fn pattern(subject: &str) -> String {
    let token = |token| if reference(token).is_some() { "*" } else { token };
    subject.split('.').map(token).collect::<Vec<_>>().join(".")
}

fn exports(account: &Account, issues: &mut Vec<String>) {
    for kind in [ExportKind::Service, ExportKind::Stream] {
        let word = if kind == ExportKind::Service { "service" } else { "stream" };
        let of_kind: Vec<&str> = account
            .exports
            .iter()
            .filter(|export| export.kind == Some(kind))
            .map(|export| export.subject.as_str())
            .collect();
        for (i, one) in of_kind.iter().enumerate() {
            let covers = |(j, other): &(usize, &&str)| i != *j && is_contained_in(one, other);
            if let Some((_, other)) = of_kind.iter().enumerate().find(covers) {
                issues.push(format!("{word} export subject {other:?} already exports {one:?}"));
            }
        }
    }
    account.exports.iter().for_each(|e| export(e, issues));
}

fn export(export: &Export, issues: &mut Vec<String>) {
    let is_service = export.kind == Some(ExportKind::Service);
    if export.kind.is_none() {
        issues.push("invalid export type: \"unknown\"".to_owned());
    }
    if !is_service && export.response_type.is_some() {
        issues.push(format!("invalid response type for stream: {:?}", export.response_type));
    }
    if export.allow_trace && export.kind == Some(ExportKind::Stream) {
        issues.push("AllowTrace only valid for service export".to_owned());
    }
    if let Some(latency) = &export.service_latency {
        if !is_service {
            issues.push("latency tracking only permitted for services".to_owned());
        }
        if !(0..=100).contains(&latency.sampling) {
            issues.push("sampling percentage needs to be between 1-100".to_owned());
        }
        subject(&latency.results, issues);
        if has_wildcard(latency.results.as_bytes()) {
            issues.push("results subject can not contain wildcards".to_owned());
        }
    }
    if export.response_threshold < 0 {
        issues.push("negative response threshold is invalid".to_owned());
    }
    if export.response_threshold > 0 && !is_service {
        issues.push("response threshold only valid for services".to_owned());
    }
    subject(&export.subject, issues);
    let position = export.account_token_position;
    if position > 0 && export.subject.split('.').nth(position - 1) != Some("*") {
        issues.push(format!(
            "Account Token Position {position} must match a * in: {}",
            export.subject
        ));
    }
}

fn trace(said: &MsgTrace, issues: &mut Vec<String>) {
    let mut wrong = Vec::new();
    subject(&said.dest, &mut wrong);
    if let Some(wrong) = wrong.first() {
        issues.push(format!("the account Trace.Destination {wrong}"));
    }
    if has_wildcard(said.dest.as_bytes()) {
        issues.push(format!(
            "the account Trace.Destination subject {:?} is not a valid publish subject",
            said.dest
        ));
    }
    if !(0..=100).contains(&said.sampling) {
        issues.push(format!(
            "the account Trace.Sampling value '{}' is not valid, should be in the range [1..100]",
            said.sampling
        ));
    }
}

fn limits(account: &Account, issues: &mut Vec<String>) {
    let limits = &account.limits;
    if !limits.tiered_limits.is_empty() && limits.tiered_limits.contains_key("") {
        let text = "Tiered JetStream Limits can not contain a blank \"\" tier name";
        issues.push(text.to_owned());
    }
    let exceeds = |count: usize, max: i64| max >= 0 && count as u64 > max.unsigned_abs();
    if exceeds(account.imports.len(), limits.imports) {
        issues.push("the account contains more imports than allowed by the operator".to_owned());
    }
    if exceeds(account.exports.len(), limits.exports) {
        issues.push("the account contains more exports than allowed by the operator".to_owned());
    }
    let has_wild = |export: &Export| has_wildcard(export.subject.as_bytes());
    if limits.exports != -1 && !limits.wildcards && account.exports.iter().any(has_wild) {
        let text = "the account contains wildcard exports that are not allowed by the operator";
        issues.push(text.to_owned());
    }
}

fn mapping(source: &str, destinations: &[WeightedMapping], issues: &mut Vec<String>) {
    subject(source, issues);
    let mut totals: BTreeMap<&str, u32> = BTreeMap::new();
    for destination in destinations {
        subject(&destination.subject, issues);
        let weight = if destination.weight == 0 { WHOLE } else { u32::from(destination.weight) };
        if weight > WHOLE {
            issues.push(format!("Mapping {source:?} has a weight {weight} that exceeds 100"));
        }
        *totals.entry(&destination.cluster).or_default() += weight;
    }
    if totals.values().any(|total| *total > WHOLE) {
        let text = "exceeds 100% among all of it's weighted to mappings";
        issues.push(format!("Mapping {source:?} {text}"));
    }
}

fn permissions(permissions: &Permissions, issues: &mut Vec<String>) {
    permission(&permissions.subscribe, true, issues);
    permission(&permissions.publish, false, issues);
}

fn permission(permission: &Permission, queues: bool, issues: &mut Vec<String>) {
    for text in permission.allow.iter().chain(&permission.deny) {
        let parts: Vec<&str> = text.split(' ').collect();
        match parts.as_slice() {
            [one] => subject(one, issues),
            [one, queue] => {
                subject(one, issues);
                subject(queue, issues);
                if !queues {
                    issues.push(format!(
                        "Permission Subject \"{text}\" is not allowed to contain queue"
                    ));
                }
            }
            _ => issues.push(format!("Permission Subject \"{text}\" contains too many spaces")),
        }
    }
}

fn user_limits(rights: &UserPermissions, issues: &mut Vec<String>) {
    let somewhere = std::net::IpAddr::from([127, 0, 0, 1]);
    for network in &rights.src {
        if cidr::contains(network, somewhere).is_none() {
            issues.push(format!("invalid cidr {network:?} in user src limits"));
        }
    }
    for range in &rights.times {
        for (name, text) in [("start", &range.start), ("end", &range.end)] {
            if time_of_day(text).is_none() {
                issues.push(format!("{name} in time range is invalid {text:?}"));
            }
        }
    }
}

/// Hours, minutes and seconds of a text such as `15:04:05`.
#[must_use]
pub fn time_of_day(text: &str) -> Option<[u8; 3]> {
    let mut parts = text.split(':').map(|part| {
        let plain = (1..=2).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
        plain.then(|| part.parse::<u8>().ok()).flatten()
    });
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    let fits = hour < 24 && minute < 60 && second < 60 && parts.next().is_none();
    fits.then_some([hour, minute, second])
}

fn subject(text: &str, issues: &mut Vec<String>) {
    if text.is_empty() {
        issues.push("subject cannot be empty".to_owned());
        return;
    }
    if text.contains(' ') {
        issues.push(format!("subject {text:?} cannot have spaces"));
    }
    if text.starts_with('.') || text.ends_with('.') {
        issues.push(format!("subject {text:?} cannot start or end with a `.`"));
    }
    if text.contains("..") {
        issues.push(format!("subject {text:?} cannot contain consecutive `.`"));
    }
}

/// True if `subject` is the same as `other` or a part of it, token by token.
fn is_contained_in(subject: &str, other: &str) -> bool {
    let (mut own, mut others) = (subject.split('.'), other.split('.').peekable());
    loop {
        match (own.next(), others.next()) {
            (Some(_), Some(">")) if others.peek().is_none() => return true,
            (Some(token), Some(other)) if token == other || other == "*" => {}
            (None, None) => return true,
            _ => return false,
        }
    }
}
