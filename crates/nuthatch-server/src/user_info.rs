//! `$SYS.REQ.USER.INFO`: what a client may learn about itself.

use crate::conn::Session;
use crate::options::{Permissions, SubjectPermission};
use crate::server::{NATS_VERSION, Server};
use nuthatch_protocol::js::Time;
use serde_json::{Map, Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// The response body.
#[must_use]
pub fn response(server: &Server, session: &Session) -> Vec<u8> {
    let mut data = Map::new();
    let user = if session.user.is_empty() { "" } else { &session.user };
    data.insert("user".to_owned(), json!(user));
    data.insert("account".to_owned(), json!(session.account.name));
    data.insert("account_name".to_owned(), json!(session.account.name));
    if let Some(rights) = &session.rights {
        data.insert("permissions".to_owned(), permissions(&rights.source));
    }
    let jetstream = server.options().jetstream.enabled;
    let response = json!({
        "server": {
            "name": server.name,
            "host": server.options().host,
            "id": server.id,
            "ver": NATS_VERSION,
            "jetstream": jetstream,
            "flags": if jetstream { 1 } else { 0 },
            "seq": 0,
            "time": now(),
        },
        "data": data,
    });
    response.to_string().into_bytes()
}

/// The present time as JSON text.
#[must_use]
pub fn now() -> Value {
    time_json(SystemTime::now())
}

/// A time as JSON text, RFC 3339 in UTC.
#[must_use]
pub fn time_json(at: SystemTime) -> Value {
    let nanos = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as i64;
    serde_json::to_value(Time(nanos)).unwrap_or(Value::Null)
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
