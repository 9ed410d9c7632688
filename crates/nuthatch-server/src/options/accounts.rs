//! Reads `accounts`.

use nuthatch_protocol::config::{Entry, Node, Value};

use super::auth::{Account, AccountJetStream, AccountLimits};
use super::error::ProblemKind;
use super::read::ConfigReader;
use super::tables::{ACCOUNT, ACCOUNT_JETSTREAM, ACCOUNT_LIMITS};
use super::{GLOBAL_ACCOUNT, Options, exports, jetstream, mappings, msg_trace, users};

/// An array of names or a map of accounts.
pub(super) fn accounts(r: &mut ConfigReader, value: &Value, options: &mut Options) {
    match &value.node {
        Node::Array(items) => {
            for item in items {
                let Some(name) = r.word("accounts", item) else { continue };
                if check_name(r, item, name, options) {
                    options.accounts.push(Account::empty(name));
                }
            }
        }
        Node::Map(map) => {
            for entry in map.entries() {
                // Permissions and the like are often defined here, for use as variables.
                if !entry.used_as_variable {
                    account(r, entry, options);
                }
            }
        }
        other => {
            let (key, found) = ("accounts".to_owned(), other.type_name());
            let wanted = "a map of accounts or an array of names";
            r.problem(&value.pos, ProblemKind::WrongType { key, wanted, found, advice: None });
        }
    }
}

fn check_name(r: &mut ConfigReader, value: &Value, name: &str, options: &Options) -> bool {
    if name == GLOBAL_ACCOUNT {
        r.invalid(&value.pos, name, "is the account of 'authorization': configure it there");
    } else if options.accounts.iter().any(|a| a.name == name) {
        r.invalid(&value.pos, name, "is defined twice: merge the two accounts");
    } else {
        return true;
    }
    false
}

fn account(r: &mut ConfigReader, entry: &Entry, options: &mut Options) {
    let Some(map) = r.map(&entry.key, &entry.value) else { return };
    if !check_name(r, &entry.value, &entry.key, options) {
        return;
    }
    let mut account = Account::empty(&entry.key);
    let mut defaults = None;
    r.walk(&ACCOUNT, map, |r, key, entry| {
        let value = &entry.value;
        match key {
            "users" => (account.users, account.nkeys) = users::users(r, value),
            "default_permissions" => defaults = users::permissions(r, key, value),
            "jetstream" => account.jetstream = account_jetstream(r, value),
            "limits" => account.limits = limits(r, value),
            "exports" => account.exports = exports::exports(r, value),
            "imports" => account.imports = exports::imports(r, value),
            "mappings" => account.mappings = mappings::mappings(r, key, value),
            "msg_trace" => account.msg_trace = msg_trace::msg_trace(r, key, value),
            _ => debug_assert!(false, "key '{key}' is in the table and nobody reads it"),
        }
    });
    users::apply_defaults(defaults, &mut account.users, &mut account.nkeys);
    options.accounts.push(account);
}

fn limits(r: &mut ConfigReader, value: &Value) -> AccountLimits {
    let mut limits = AccountLimits::default();
    let Some(map) = r.map("limits", value) else { return limits };
    r.walk(&ACCOUNT_LIMITS, map, |r, key, entry| {
        let value = &entry.value;
        match key {
            "max_connections" => {
                limits.max_connections = r.count(key, value, false).unwrap_or_default();
            }
            "max_subscriptions" => {
                limits.max_subscriptions = r.count(key, value, false).unwrap_or_default();
            }
            "max_leafnodes" => {
                limits.max_leafnodes = r.count(key, value, false).unwrap_or_default();
            }
            _ => {
                let bytes = r.limit(key, value, false).unwrap_or_default();
                limits.max_payload_bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
            }
        }
    });
    limits
}

fn account_jetstream(r: &mut ConfigReader, value: &Value) -> Option<AccountJetStream> {
    if let Some(on) = jetstream::switch(r, "jetstream", value) {
        return on.then(AccountJetStream::default);
    }
    let Node::Map(map) = &value.node else { return None };
    let mut js = AccountJetStream::default();
    r.walk(&ACCOUNT_JETSTREAM, map, |r, key, entry| {
        let value = &entry.value;
        let bytes = match key {
            "max_memory" => &mut js.max_memory_bytes,
            "max_file" => &mut js.max_store_bytes,
            "memory_max_stream_bytes" => &mut js.memory_max_stream_bytes,
            "store_max_stream_bytes" => &mut js.store_max_stream_bytes,
            "max_streams" => {
                js.max_streams = r.count(key, value, false).unwrap_or_default();
                return;
            }
            "max_consumers" => {
                js.max_consumers = r.count(key, value, false).unwrap_or_default();
                return;
            }
            "max_ack_pending" => {
                js.max_ack_pending = r.count(key, value, true).unwrap_or_default();
                return;
            }
            _ => {
                js.max_bytes_required = r.boolean(key, value).unwrap_or_default();
                return;
            }
        };
        *bytes = r.limit(key, value, false).unwrap_or_default();
    });
    Some(js)
}
