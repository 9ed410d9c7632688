//! Reads `authorization`, users and permissions.

use std::collections::BTreeSet;
use std::time::Duration;

use nuthatch_protocol::config::{Map, Node, Value};
use nuthatch_protocol::nkey::{KeyKind, decode_as};

use std::path::{Path, PathBuf};

use super::auth::{
    ConnectionType, NkeyUser, Permissions, ResponsePermission, Secret, SubjectPermission, User,
};
use super::callout::auth_callout;
use super::draft::Draft;
use super::error::ProblemKind;
use super::read::ConfigReader;
use super::subject;
use super::tables::{AUTHORIZATION, PERMISSIONS, RESPONSES, SUBJECTS, USER};

/// Letters and digits of a token that is made: 165 bits.
const MADE_TOKEN_CHARS: usize = 32;

/// The `authorization` block.
pub(super) fn authorization(r: &mut ConfigReader, value: &Value, draft: &mut Draft) {
    let Some(map) = r.map("authorization", value) else { return };
    let auth = &mut draft.options.auth;
    let auth_timeout = &mut draft.auth_timeout;
    let mut defaults = None;
    let mut defaults_at = None;
    let mut password_is_variable = false;
    r.walk(&AUTHORIZATION, map, |r, key, entry| {
        let value = &entry.value;
        match key {
            "user" => auth.user = r.word(key, value).map(str::to_owned),
            "password" => {
                auth.password = r.text(key, value).map(Secret::new);
                password_is_variable = entry.used_as_variable;
            }
            "token" => auth.token = r.word(key, value).map(Secret::new),
            "token_file" => {
                if let Some(path) = r.word(key, value).map(PathBuf::from) {
                    match token_of(&path) {
                        Ok(token) => auth.token = Some(Secret::new(token)),
                        Err(why) => r.invalid(&value.pos, key, why),
                    }
                    auth.token_file = Some(path);
                }
            }
            "timeout" => *auth_timeout = r.timeout(key, value).filter(|t| !t.is_zero()),
            "users" => (auth.users, auth.nkeys) = users(r, value),
            "proxy_required" => {
                auth.proxy_required = r.boolean(key, value).unwrap_or_default();
            }
            "auth_callout" => auth.callout = auth_callout(r, value),
            "default_permissions" => {
                defaults = permissions(r, key, value);
                defaults_at = Some(value);
            }
            _ => debug_assert!(false, "key '{key}' is in the table and nobody reads it"),
        }
    });
    if let Some(value) = defaults_at
        && auth.users.is_empty()
        && auth.nkeys.is_empty()
    {
        let what = "default_permissions has no effect without 'users': the one user or token of \
                    'authorization' may do everything, as in nats-server";
        r.warn(&value.pos, what);
    }
    if password_is_variable && auth.user.is_none() {
        // `PASS = …` above a list of users is a variable, not a password.
        auth.password = None;
    }
    apply_defaults(defaults, &mut auth.users, &mut auth.nkeys);
}

/// The token in a file; one that is made now if there is no such file.
fn token_of(path: &Path) -> Result<String, String> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(crate::random::random_token(MADE_TOKEN_CHARS));
        }
        Err(error) => return Err(format!("cannot be read: {error}")),
    };
    match text.trim() {
        "" => Err("names a file that holds no token".to_owned()),
        token => Ok(token.to_owned()),
    }
}

/// Gives the default permissions to those who have none.
pub(super) fn apply_defaults(
    defaults: Option<Permissions>,
    users: &mut [User],
    nkeys: &mut [NkeyUser],
) {
    let Some(defaults) = defaults else { return };
    let users = users.iter_mut().map(|u| &mut u.permissions);
    for permissions in users.chain(nkeys.iter_mut().map(|n| &mut n.permissions)) {
        permissions.get_or_insert_with(|| defaults.clone());
    }
}

/// An array of users, those with names and those with nkeys.
pub(super) fn users(r: &mut ConfigReader, value: &Value) -> (Vec<User>, Vec<NkeyUser>) {
    let mut users = Vec::new();
    let mut nkeys = Vec::new();
    let wanted = "an array of users: [ {user: a, password: b}, … ]";
    for item in r.array("users", value, wanted).unwrap_or_default() {
        let Some(map) = r.map("user", item) else { continue };
        match user(r, item, map) {
            Some(AnyUser::Named(user)) => users.push(user),
            Some(AnyUser::Nkey(user)) => nkeys.push(user),
            None => {}
        }
    }
    (users, nkeys)
}

enum AnyUser {
    Named(User),
    Nkey(NkeyUser),
}

fn user(r: &mut ConfigReader, value: &Value, map: &Map) -> Option<AnyUser> {
    let problems_before = r.problems.len();
    let mut name = None;
    let mut password = None;
    let mut public = None;
    let mut granted = None;
    let mut allowed_connection_types = BTreeSet::new();
    let mut proxy_required = false;
    r.walk(&USER, map, |r, key, entry| {
        let value = &entry.value;
        match key {
            "user" => name = r.word(key, value).map(str::to_owned),
            "password" => password = r.text(key, value).map(Secret::new),
            "nkey" => public = r.word(key, value).map(|text| (text.to_owned(), value)),
            "permissions" => granted = permissions(r, key, value),
            "proxy_required" => proxy_required = r.boolean(key, value).unwrap_or_default(),
            "allowed_connection_types" => {
                allowed_connection_types = connection_types(r, &entry.key, value);
            }
            _ => debug_assert!(false, "key '{key}' is in the table and nobody reads it"),
        }
    });
    let permissions = granted;
    match (name, public) {
        (Some(_), Some((_, nkey))) => {
            r.invalid(&nkey.pos, "nkey", "users take no name: remove 'user' or 'nkey'");
            None
        }
        (None, Some((_, nkey))) if password.is_some() => {
            r.invalid(&nkey.pos, "nkey", "users take no password: the key proves who they are");
            None
        }
        (None, Some((public, nkey))) => match decode_as(KeyKind::User, &public) {
            Some(key) => {
                let user =
                    NkeyUser { public, key, permissions, allowed_connection_types, proxy_required };
                Some(AnyUser::Nkey(user))
            }
            None => {
                let what = "must be the public key of a user: 56 characters that begin with U";
                r.invalid(&nkey.pos, "nkey", what);
                None
            }
        },
        (Some(name), None) => {
            let user =
                User { name, password, permissions, allowed_connection_types, proxy_required };
            Some(AnyUser::Named(user))
        }
        (None, None) => {
            if r.problems.len() == problems_before {
                r.invalid(&value.pos, "users", "entry needs 'user' or 'nkey'");
            }
            None
        }
    }
}

const CONNECTION_TYPES: &[&str] =
    &["STANDARD", "WEBSOCKET", "LEAFNODE", "LEAFNODE_WS", "MQTT", "MQTT_WS", "IN_PROCESS"];

fn connection_types(r: &mut ConfigReader, key: &str, value: &Value) -> BTreeSet<ConnectionType> {
    let items = match &value.node {
        Node::Array(items) => items.as_slice(),
        _ => std::slice::from_ref(value),
    };
    let wanted = "one of STANDARD, WEBSOCKET, LEAFNODE, LEAFNODE_WS, MQTT, MQTT_WS, IN_PROCESS";
    let mut types = BTreeSet::new();
    for item in items {
        let Some(index) = r.choice(key, item, CONNECTION_TYPES, wanted) else { continue };
        types.insert(match index {
            0 => ConnectionType::Standard,
            1 => ConnectionType::Websocket,
            2 => ConnectionType::Leafnode,
            3 => ConnectionType::LeafnodeWs,
            4 => ConnectionType::Mqtt,
            5 => ConnectionType::MqttWs,
            _ => ConnectionType::InProcess,
        });
    }
    types
}

/// `{publish, subscribe, allow_responses}`.
pub(super) fn permissions(r: &mut ConfigReader, key: &str, value: &Value) -> Option<Permissions> {
    let map = r.map(key, value)?;
    let mut permissions = Permissions::default();
    r.walk(&PERMISSIONS, map, |r, key, entry| {
        let value = &entry.value;
        match key {
            "publish" => permissions.publish = subjects(r, key, value, false),
            "subscribe" => permissions.subscribe = subjects(r, key, value, true),
            "allow_responses" => permissions.allow_responses = responses(r, key, value),
            _ => debug_assert!(false, "key '{key}' is in the table and nobody reads it"),
        }
    });
    if permissions.allow_responses.is_some() {
        // Who may answer may not thereby publish everything else.
        let publish = permissions.publish.get_or_insert_default();
        publish.allow.get_or_insert_default();
    }
    Some(permissions)
}

/// A subject, an array of them, or `{allow, deny}`. An empty map restricts nothing.
fn subjects(
    r: &mut ConfigReader,
    key: &'static str,
    value: &Value,
    queues: bool,
) -> Option<SubjectPermission> {
    let Node::Map(map) = &value.node else {
        let allow = subject_list(r, key, value, queues);
        return Some(SubjectPermission { allow: Some(allow), deny: Vec::new() });
    };
    if map.is_empty() {
        return None;
    }
    let mut permission = SubjectPermission::default();
    r.walk(&SUBJECTS, map, |r, key, entry| {
        let list = subject_list(r, key, &entry.value, queues);
        match key {
            "allow" => permission.allow = Some(list),
            _ => permission.deny = list,
        }
    });
    Some(permission)
}

fn subject_list(r: &mut ConfigReader, key: &str, value: &Value, queues: bool) -> Vec<String> {
    let list = r.texts(key, value).unwrap_or_default();
    for text in &list {
        if let Err((found, what)) = subject::check_permission(text, queues) {
            let (key, found) = (key.to_owned(), found.to_owned());
            r.problem(&value.pos, ProblemKind::Subject { key, found, what });
        }
    }
    list
}

/// `true`, `false` or `{max, expires}`. Zeros mean the default, negative numbers no limit.
fn responses(r: &mut ConfigReader, key: &str, value: &Value) -> Option<ResponsePermission> {
    let mut responses = ResponsePermission::default();
    let map = match &value.node {
        Node::Bool(on) => return on.then_some(responses),
        Node::Map(map) => map,
        other => {
            let (key, found) = (key.to_owned(), other.type_name());
            let wanted = "true, false or a map: { max: 1, expires: \"2m\" }";
            r.problem(&value.pos, ProblemKind::WrongType { key, wanted, found, advice: None });
            return None;
        }
    };
    r.walk(&RESPONSES, map, |r, key, entry| {
        let value = &entry.value;
        match key {
            "max" => match r.count(key, value, false) {
                Some(Some(0)) | None => {}
                Some(max_msgs) => responses.max_msgs = max_msgs,
            },
            _ => match r.duration_ns(key, value) {
                Some(0) | None => {}
                Some(ns) => responses.expires = u64::try_from(ns).ok().map(Duration::from_nanos),
            },
        }
    });
    Some(responses)
}
