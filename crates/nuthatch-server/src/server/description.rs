//! How a server describes itself: in INFO, in answers and in events.

use super::Server;
use crate::account::Account;
use crate::conn::{Connection, Transport};
use crate::info::{self, ServerInfo};
use crate::version::{API_LEVEL, NATS_VERSION};
use crate::wall_time::now;
use nuthatch_streams::Message;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;

/// Clients that are told of something before others have their turn.
const CLIENTS_IN_TURN: usize = 64;

impl Server {
    /// Description of the server in every answer and event.
    #[must_use]
    pub fn description(&self) -> Value {
        let options = self.options();
        let jetstream = options.jetstream.enabled;
        let mut info = json!({
            "name": self.name,
            "host": advertised(&options.client_advertise, &options.host, 0).0,
            "id": self.id,
            "ver": NATS_VERSION,
            "jetstream": jetstream,
            "flags": u8::from(jetstream),
            "seq": self.event_sequence.fetch_add(1, Ordering::Relaxed) + 1,
            "time": now(),
        });
        let mut set = |name: &str, value: Value| info[name] = value;
        if let Some(cluster) = self.nodes.cluster() {
            set("cluster", json!(cluster));
        }
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
        let (host, port) = advertised(&options.client_advertise, &options.host, port);
        // Clients look here whether they can use it; a node without its own has that of the others.
        let jetstream = options.has_jetstream();
        ServerInfo {
            server_id: self.id.clone(),
            server_name: self.name.clone(),
            version: NATS_VERSION.into(),
            proto: 1,
            go: concat!("nuthatch-", env!("CARGO_PKG_VERSION")).into(),
            host,
            port,
            headers: !options.no_header_support,
            auth_required: self.auth().asks(),
            tls_required: options.tls.is_some() && !options.allow_non_tls,
            tls_available: options.tls.is_some() && options.allow_non_tls,
            tls_verify: options.tls.as_ref().is_some_and(|tls| tls.verify),
            max_payload: options.limits.max_payload_bytes,
            jetstream,
            cluster: self.nodes.cluster().map(str::to_owned),
            domain: options.jetstream.domain.clone().filter(|_| jetstream),
            connect_urls: self.connect_urls(),
            ldm: self.lame_duck.load(Ordering::Relaxed),
            api_lvl: API_LEVEL,
            xkey: self.key.curve.public().to_owned(),
            ..ServerInfo::default()
        }
    }

    /// Where this server takes clients, as `host:port`; the host may be one that stands for all addresses.
    #[must_use]
    pub fn client_url(&self) -> String {
        let (options, port) = (self.options(), self.client_port.load(Ordering::Relaxed));
        let (host, port) = advertised(&options.client_advertise, &options.host, port);
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// Where clients of this server may connect too, once there is another node: here first, unless that is all of
    /// this machine's addresses, of which the client knows one.
    fn connect_urls(&self) -> Vec<String> {
        let others = self.nodes.urls();
        let own = self.client_url();
        let is_named = !own.starts_with("0.0.0.0:") && !own.starts_with("[::]:");
        let own = Some(own).filter(|_| is_named && self.nodes.were_told());
        own.into_iter().chain(others).collect()
    }

    /// Tells clients where else they may connect now.
    pub(crate) async fn tell_clients(&self) {
        let info = self.info();
        for (count, conn) in self.connections.open().iter().enumerate() {
            if conn.hears_info.load(Ordering::Acquire) {
                let info = self.info_for(info.clone(), conn, "");
                let info = info::for_session(info, &conn.session());
                conn.send(&info.encode());
            }
            if count % CLIENTS_IN_TURN == CLIENTS_IN_TURN - 1 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// INFO for one connection, with a nonce if it may need one. A websocket client hears where websocket
    /// clients are served.
    pub(crate) fn info_for(&self, info: ServerInfo, conn: &Connection, nonce: &str) -> ServerInfo {
        let mut info = info::for_connection(info, conn, nonce);
        let options = self.options();
        if let (Transport::Websocket(_), Some(websocket)) = (&conn.transport, &options.websocket) {
            let port = self.websocket_port.load(Ordering::Relaxed);
            (info.host, info.port) = advertised(&websocket.advertise, &websocket.host, port);
            let tls = websocket.tls.as_ref();
            (info.tls_required, info.tls_available) = (tls.is_some(), tls.is_some());
            info.tls_verify = tls.is_some_and(|tls| tls.verify);
            info.auth_required &= websocket.no_auth_user.is_none();
            // Those of the other nodes are not known.
            info.connect_urls.clear();
        }
        info
    }
}

/// What clients are told of a listener: its address, or the one that is advertised, which is its own
/// port where it names none.
fn advertised(address: &Option<String>, host: &str, port: u16) -> (String, u16) {
    let Some(address) = address else { return (host.to_owned(), port) };
    let after_host = address.rsplit_once(']').map_or(address.as_str(), |(_, rest)| rest);
    let named = after_host.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    let host = match named {
        Some(_) => address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host),
        None => address,
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (host.to_owned(), named.filter(|named| *named != 0).unwrap_or(port))
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("id", &self.id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::advertised;

    #[test]
    fn an_advertised_address_stands_for_our_own() {
        let told = |address: &str| advertised(&Some(address.to_owned()), "0.0.0.0", 4222);
        assert_eq!(told("example.org:5222"), ("example.org".to_owned(), 5222));
        assert_eq!(told("example.org"), ("example.org".to_owned(), 4222));
        assert_eq!(told("example.org:0"), ("example.org".to_owned(), 4222));
        assert_eq!(told("[2001:db8::1]:5222"), ("2001:db8::1".to_owned(), 5222));
        assert_eq!(told("[2001:db8::1]"), ("2001:db8::1".to_owned(), 4222));
        assert_eq!(advertised(&None, "::", 1), ("::".to_owned(), 1));
    }
}
