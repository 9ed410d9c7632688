//! How a server describes itself: in INFO, in answers and in events.

use super::Server;
use crate::account::Account;
use crate::conn::{Connection, Transport};
use crate::info::ServerInfo;
use crate::version::{API_LEVEL, NATS_VERSION};
use crate::wall_time::now;
use nuthatch_streams::Message;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;

impl Server {
    /// Description of the server in every answer and event.
    #[must_use]
    pub fn description(&self) -> Value {
        let options = self.options();
        let jetstream = options.jetstream.enabled;
        let mut info = json!({
            "name": self.name,
            "host": options.host,
            "id": self.id,
            "ver": NATS_VERSION,
            "jetstream": jetstream,
            "flags": u8::from(jetstream),
            "seq": self.event_sequence.fetch_add(1, Ordering::Relaxed) + 1,
            "time": now(),
        });
        let mut set = |name: &str, value: Value| info[name] = value;
        if let Some(domain) = options.jetstream.domain.as_ref().filter(|_| jetstream) {
            set("domain", json!(domain));
        }
        if !options.server_tags.is_empty() {
            set("tags", json!(options.server_tags));
        }
        if !options.server_metadata.is_empty() {
            set("metadata", json!(options.server_metadata));
        }
        info
    }

    /// Publishes JSON in an account.
    pub(crate) fn publish_json(&self, account: &Account, subject: &[u8], body: &Value) {
        self.publish_text(account, subject, &serde_json::to_vec(body).unwrap_or_default());
    }

    /// Publishes a text that may be large in an account.
    pub(crate) fn publish_text(&self, account: &Account, subject: &[u8], body: &[u8]) {
        crate::trim::freed(body.len());
        self.publish(account.id, &Message { subject, reply: b"", headers: b"", body });
    }

    /// INFO for any connection.
    #[must_use]
    pub fn info(&self) -> ServerInfo {
        let options = self.options();
        let port = self.client_port.load(Ordering::Relaxed);
        let jetstream = options.jetstream.enabled;
        ServerInfo {
            server_id: self.id.clone(),
            server_name: self.name.clone(),
            version: NATS_VERSION,
            proto: 1,
            git_commit: "",
            go: concat!("nuthatch-", env!("CARGO_PKG_VERSION")),
            host: options.host.clone(),
            port,
            headers: true,
            auth_required: self.auth().asks(),
            tls_required: options.tls.is_some() && !options.allow_non_tls,
            tls_available: options.tls.is_some(),
            tls_verify: options.tls.as_ref().is_some_and(|tls| tls.verify),
            max_payload: options.limits.max_payload_bytes,
            jetstream,
            domain: options.jetstream.domain.clone().filter(|_| jetstream),
            connect_urls: self.connect_urls(),
            ldm: self.lame_duck.load(Ordering::Relaxed),
            api_lvl: API_LEVEL,
            ..ServerInfo::default()
        }
    }

    /// Addresses under which clients reach this server: only an advertised one. A lame duck names
    /// none.
    pub fn connect_urls(&self) -> Vec<String> {
        let options = self.options();
        self.advertised(&options.client_advertise, self.client_port.load(Ordering::Relaxed))
    }

    /// INFO for one connection, with a nonce if it may need one. A websocket client hears where websocket
    /// clients are served.
    pub(crate) fn info_for(&self, info: ServerInfo, conn: &Connection, nonce: &str) -> ServerInfo {
        let mut info = info.for_connection(conn, nonce);
        let options = self.options();
        if let (Transport::Websocket(_), Some(websocket)) = (&conn.transport, &options.websocket) {
            info.host.clone_from(&websocket.host);
            info.port = self.websocket_port.load(Ordering::Relaxed);
            let tls = websocket.tls.as_ref();
            (info.tls_required, info.tls_available) = (tls.is_some(), tls.is_some());
            info.tls_verify = tls.is_some_and(|tls| tls.verify);
            info.auth_required &= websocket.no_auth_user.is_none();
            info.connect_urls = self.advertised(&websocket.advertise, info.port);
        }
        info
    }

    /// Addresses of a listener of which this one is advertised.
    pub(crate) fn advertised(&self, address: &Option<String>, port: u16) -> Vec<String> {
        if self.lame_duck.load(Ordering::Relaxed) {
            return Vec::new();
        }
        match address {
            Some(address) if has_port(address) => vec![address.clone()],
            Some(host) => vec![format!("{host}:{port}")],
            None => Vec::new(),
        }
    }
}

fn has_port(address: &str) -> bool {
    let after_host = address.rsplit_once(']').map_or(address, |(_, rest)| rest);
    after_host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok())
}
