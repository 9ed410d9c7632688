//! `Nats-Request-Info`: what an exporting account learns about who calls its service.

use super::ImportHost;
use crate::account::Account;
use crate::egress::DeliveryContext;
use crate::wall_time::time_json;
use nuthatch_protocol::headers;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The header's name.
pub const HEADER: &[u8] = b"Nats-Request-Info";

/// The caller's description: the account and its round trip; with `share` everything about the
/// client.
pub(super) fn of(
    host: &dyn ImportHost,
    importer: &Arc<Account>,
    way: &DeliveryContext<'_>,
    share: bool,
) -> Map<String, Value> {
    let mut info = Map::new();
    let Some(client) = way.from.and_then(|from| from.client()) else {
        info.insert("acc".to_owned(), json!(importer.name));
        return info;
    };
    let client = client.facts();
    if share {
        for (name, value) in [
            ("start", time_json(client.since)),
            ("host", json!(client.remote.ip().to_string())),
            ("id", json!(client.id)),
        ] {
            info.insert(name.to_owned(), value);
        }
    }
    info.insert("acc".to_owned(), json!(client.account));
    if share {
        for (name, value) in [
            ("user", &client.user),
            ("name", &client.name),
            ("lang", &client.lang),
            ("ver", &client.version),
        ] {
            if !value.is_empty() {
                info.insert(name.to_owned(), json!(value));
            }
        }
    }
    if client.rtt_ns > 0 {
        info.insert("rtt".to_owned(), json!(client.rtt_ns));
    }
    if share {
        info.insert("server".to_owned(), json!(host.name()));
        info.insert("kind".to_owned(), json!("Client"));
        info.insert("client_type".to_owned(), json!(client.client_type));
    }
    info
}

/// The header block with the header in it. A request that has passed an account already keeps what
/// was said first, with the account that carries it on as its `svc`.
pub(super) fn add(
    block: &[u8],
    host: &dyn ImportHost,
    importer: &Arc<Account>,
    way: &DeliveryContext<'_>,
    share: bool,
) -> Vec<u8> {
    let mut headers = block.to_vec();
    let carried = (way.hops > 0)
        .then(|| headers::find_header(block, HEADER))
        .flatten()
        .and_then(|value| serde_json::from_slice::<Map<String, Value>>(value).ok());
    let info = match carried {
        Some(mut info) => {
            info.insert("svc".to_owned(), json!(importer.name));
            info
        }
        None => of(host, importer, way, share),
    };
    let json = serde_json::to_vec(&info).unwrap_or_default();
    headers::set(&mut headers, HEADER, &json);
    headers
}

/// The header block without the header, as streams store it.
pub(super) fn strip(block: &[u8]) -> Vec<u8> {
    let mut headers = block.to_vec();
    headers::remove(&mut headers, HEADER);
    headers
}
