//! Parameters of a monitoring request.

use super::accept::Form;
use super::large::PAGE_MAX;
use nuthatch_streams::AccountId;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Parsed parameters; of repeated ones the first counts.
#[derive(Clone, Debug, Default)]
pub struct Query {
    values: BTreeMap<String, String>,
    /// The only account that may be told of, whatever the parameters say.
    account: Option<String>,
    /// Who asks; `None`: an operator, over HTTP.
    asker: Option<AccountId>,
    /// The form of metrics that the client prefers.
    form: Form,
}

impl Query {
    /// The query as asked for by an account.
    pub(crate) fn asked_by(self, account: AccountId) -> Self {
        Self { asker: Some(account), ..self }
    }

    /// Who asks; `None`: an operator, over HTTP.
    pub(super) const fn asker(&self) -> Option<AccountId> {
        self.asker
    }

    /// The query of a client that prefers a form of metrics.
    pub(super) fn preferring(self, form: Form) -> Self {
        Self { form, ..self }
    }

    /// The form of metrics that the client prefers.
    pub(super) const fn form(&self) -> Form {
        self.form
    }

    pub(super) fn parse(text: &str) -> Self {
        let mut values = BTreeMap::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            values.entry(decode(name)).or_insert_with(|| decode(value));
        }
        Self { values, ..Self::default() }
    }

    /// Options of a `$SYS` request, under the names that parameters have.
    pub fn from_options(options: &Map<String, Value>) -> Self {
        let mut values = BTreeMap::new();
        for (name, value) in options {
            let (name, text) = match (name.as_str(), value) {
                (_, Value::Null) => continue,
                ("subscriptions_detail", Value::Bool(true)) => ("subs", "detail".to_owned()),
                ("subscriptions", _) if values.contains_key("subs") => continue,
                ("state", Value::Number(state)) => ("state", state_name(state.as_u64())),
                ("accounts", Value::Array(names)) => {
                    let names: Vec<_> = names.iter().filter_map(Value::as_str).collect();
                    ("accounts", names.join(","))
                }
                (name, Value::String(text)) => (parameter(name), text.clone()),
                (name, other) => (parameter(name), other.to_string()),
            };
            values.insert(name.to_owned(), text);
        }
        Self { values, ..Self::default() }
    }

    /// Options of a `$SYS` request about one account: none of them leads to another one.
    pub(crate) fn of_account(options: &Map<String, Value>, account: &str) -> Self {
        let mut query = Self::from_options(options);
        query.values.retain(|name, _| !matches!(name.as_str(), "acc" | "account" | "accounts"));
        query.account = Some(account.to_owned());
        query
    }

    /// The account that the answer keeps to.
    pub(super) fn account(&self) -> Option<&str> {
        self.account.as_deref().or_else(|| self.text("acc"))
    }

    /// The accounts that `accounts` names.
    pub(super) fn accounts(&self) -> Option<Vec<&str>> {
        match &self.account {
            Some(account) => Some(vec![account]),
            None => self.text("accounts").map(|names| names.split(',').collect()),
        }
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// A boolean as Go reads it; absent is false.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, String> {
        match self.text(name) {
            None | Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(false),
            Some("1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(true),
            Some(text) => Err(format!(
                "Error decoding boolean for '{name}': strconv.ParseBool: parsing {text:?}: invalid syntax"
            )),
        }
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<usize>, String> {
        // A negative number means what its absence means.
        let parse = |text: &str| match text.parse::<i64>() {
            Ok(number) => Ok(usize::try_from(number).ok()),
            // In the words of Go, which tools may have learnt.
            Err(_) => Err(format!(
                "Error decoding int for '{name}': strconv.Atoi: parsing {text:?}: invalid syntax"
            )),
        };
        self.text(name).map_or(Ok(None), parse)
    }
}

impl Query {
    /// `offset` and `limit`; negative ones and a limit of 0 stand for the defaults. No page is larger
    /// than [`PAGE_MAX`].
    pub(super) fn page(&self, default_limit: usize) -> Result<(usize, usize), String> {
        let offset = self.number("offset")?.unwrap_or(0);
        let limit = self.number("limit")?.filter(|&limit| limit > 0).unwrap_or(default_limit);
        Ok((offset, limit.min(PAGE_MAX)))
    }
}

/// The parameter that does what an option of this name does.
fn parameter(option: &str) -> &str {
    match option {
        "account" | "account_name" | "account_filter" => "acc",
        "group_filter" => "group",
        "subscriptions" => "subs",
        "consumer" => "consumers",
        "direct_consumer" => "direct-consumers",
        "leader_only" => "leader-only",
        "stream_leader_only" => "stream-leader-only",
        "include_unused" => "unused",
        "filter" => "queues",
        other => other,
    }
}

/// States of connections by number, as upstream's clients send them.
fn state_name(state: Option<u64>) -> String {
    match state {
        Some(1) => "closed",
        Some(2) => "all",
        _ => "open",
    }
    .to_owned()
}

fn decode(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'+' => out.push(b' '),
            b'%' => match text.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok())
            {
                Some(byte) => {
                    out.push(byte);
                    at += 2;
                }
                None => out.push(b'%'),
            },
            byte => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}
