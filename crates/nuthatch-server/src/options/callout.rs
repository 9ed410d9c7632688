//! `auth_callout`: a service says who clients are.

use std::collections::BTreeSet;

use nuthatch_protocol::config::Value;
use nuthatch_protocol::nkey::{KeyKind, PublicKey, decode_as};

use super::read::ConfigReader;
use super::tables::AUTH_CALLOUT;
use super::{GLOBAL_ACCOUNT, Permissions};

/// The subject on which a service hears of clients.
pub const CALLOUT_SUBJECT: &str = "$SYS.REQ.USER.AUTH";

/// Denies publishing to the service.
pub fn keep_from_asking(permissions: &mut Permissions) {
    let publish = permissions.publish.get_or_insert_default();
    publish.deny.push(CALLOUT_SUBJECT.to_owned());
}

/// Who is asked about clients, and about which ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthCallout {
    /// Public nkey of the account key that signs responses.
    pub issuer: String,
    /// The account in which the service listens. Default: the global one.
    pub account: String,
    /// Users that the configuration alone decides about: those of the service itself.
    pub auth_users: BTreeSet<String>,
    /// Accounts about whose users the service is asked; empty: about those of all. It is always asked
    /// about clients that the configuration lets into no account, or into the global one.
    pub allowed_accounts: BTreeSet<String>,
    /// The curve key that requests are encrypted for.
    pub xkey: Option<PublicKey>,
}

/// The block; `None`: it is of no use, and that was said.
pub(super) fn auth_callout(r: &mut ConfigReader, value: &Value) -> Option<AuthCallout> {
    let map = r.map("auth_callout", value)?;
    let problems_before = r.problems.len();
    let mut found = AuthCallout {
        issuer: String::new(),
        account: GLOBAL_ACCOUNT.to_owned(),
        auth_users: BTreeSet::new(),
        allowed_accounts: BTreeSet::new(),
        xkey: None,
    };
    r.walk(&AUTH_CALLOUT, map, |r, key, entry| {
        let value = &entry.value;
        let names = |r: &mut ConfigReader| {
            r.texts(key, value).unwrap_or_default().into_iter().collect::<BTreeSet<_>>()
        };
        match key {
            "issuer" => match r.word(key, value) {
                Some(text) if decode_as(KeyKind::Account, text).is_some() => {
                    found.issuer = text.to_owned();
                }
                Some(text) => r.invalid(
                    &value.pos,
                    key,
                    format!("is no public nkey of an account (A…): {text:?}"),
                ),
                None => {}
            },
            "account" => {
                if let Some(name) = r.word(key, value) {
                    found.account = name.to_owned();
                }
            }
            "auth_users" => found.auth_users = names(r),
            "allowed_accounts" => found.allowed_accounts = names(r),
            "xkey" => {
                let text = r.word(key, value).unwrap_or_default();
                found.xkey = decode_as(KeyKind::Curve, text);
                if found.xkey.is_none() {
                    let what = format!("is no public curve key (X…): {text:?}");
                    r.invalid(&value.pos, key, what);
                }
            }
            _ => debug_assert!(false, "key '{key}' is in the table and nobody reads it"),
        }
    });
    if r.problems.len() == problems_before {
        if found.issuer.is_empty() {
            let what = "needs 'issuer', the public nkey (A…) that signs the service's responses";
            r.invalid(&value.pos, "auth_callout", what);
        }
        if found.auth_users.is_empty() {
            let what = "needs 'auth_users', the users as which the service itself connects";
            r.invalid(&value.pos, "auth_callout", what);
        }
    }
    (r.problems.len() == problems_before).then_some(found)
}
