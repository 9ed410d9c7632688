//! `$SYS.REQ.USER.INFO`: what a client may learn about itself.

use crate::conn::Session;
use crate::options::{Permissions, SubjectPermission};
use crate::server::Server;
use crate::version::NATS_VERSION;
use crate::wall_time::now;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::time::SystemTime;

#[derive(Serialize)]
struct Response<'a> {
    server: ServerPart<'a>,
    data: DataPart<'a>,
}

#[derive(Serialize)]
struct ServerPart<'a> {
    name: &'a str,
    host: &'a str,
    id: &'a str,
    ver: &'static str,
    jetstream: bool,
    flags: u8,
    seq: u64,
    time: Value,
}

#[derive(Serialize)]
struct DataPart<'a> {
    user: &'a str,
    account: &'a str,
    account_name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    permissions: Option<Value>,
    /// Nanoseconds, in whole seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<u64>,
}

/// The response body.
#[must_use]
pub fn response(server: &Server, session: &Session) -> Vec<u8> {
    let options = server.options();
    let jetstream = options.jetstream.enabled;
    let response = Response {
        server: ServerPart {
            name: &server.name,
            host: &options.host,
            id: &server.id,
            ver: NATS_VERSION,
            jetstream,
            flags: u8::from(jetstream),
            seq: 0,
            time: now(),
        },
        data: DataPart {
            user: &session.user,
            account: &session.account.name,
            account_name: session.account_name(),
            user_name: session.grant.as_ref().map(|grant| grant.claims.data.name.as_str()),
            permissions: session.rights.as_ref().map(|rights| permissions(&rights.source)),
            expires: session.grant.as_ref().and_then(|grant| {
                let rest = grant.expires?.duration_since(SystemTime::now()).unwrap_or_default();
                Some(rest.as_secs() * 1_000_000_000)
            }),
        },
    };
    serde_json::to_vec(&response).unwrap_or_default()
}

fn permissions(permissions: &Permissions) -> Value {
    let mut out = Map::new();
    if let Some(publish) = &permissions.publish {
        out.insert("publish".to_owned(), subjects(publish));
    }
    if let Some(subscribe) = &permissions.subscribe {
        out.insert("subscribe".to_owned(), subjects(subscribe));
    }
    if let Some(responses) = &permissions.allow_responses {
        let max = responses.max_msgs.map_or(-1, i64::from);
        let ttl = responses.expires.map_or(0, |expires| expires.as_nanos() as i64);
        out.insert("responses".to_owned(), json!({ "max": max, "ttl": ttl }));
    }
    Value::Object(out)
}

fn subjects(permission: &SubjectPermission) -> Value {
    let mut out = Map::new();
    if let Some(allow) = &permission.allow {
        out.insert("allow".to_owned(), json!(allow));
    }
    if !permission.deny.is_empty() {
        out.insert("deny".to_owned(), json!(permission.deny));
    }
    Value::Object(out)
}
