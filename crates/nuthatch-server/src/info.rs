//! INFO: the server's description for its clients.

use crate::conn::{Connection, Session, Transport};
use crate::server::Server;
use crate::version::{API_LEVEL, NATS_VERSION};
use nuthatch_protocol::wire::write;
use serde::Serialize;
use std::sync::atomic::Ordering;

fn is_false(value: &bool) -> bool {
    !value
}

fn is_zero(value: &u32) -> bool {
    *value == 0
}

/// INFO, in the order in which nats-server writes its fields.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ServerInfo {
    server_id: String,
    server_name: String,
    version: &'static str,
    proto: u8,
    #[serde(skip_serializing_if = "str::is_empty")]
    git_commit: &'static str,
    go: &'static str,
    host: String,
    port: u16,
    headers: bool,
    #[serde(skip_serializing_if = "is_false")]
    auth_required: bool,
    #[serde(skip_serializing_if = "is_false")]
    tls_required: bool,
    #[serde(skip_serializing_if = "is_false")]
    tls_verify: bool,
    #[serde(skip_serializing_if = "is_false")]
    tls_available: bool,
    max_payload: usize,
    #[serde(skip_serializing_if = "is_false")]
    jetstream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_id: Option<u64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    client_ip: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    nonce: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    domain: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    connect_urls: Vec<String>,
    #[serde(skip_serializing_if = "is_false")]
    ldm: bool,
    #[serde(skip_serializing_if = "is_false")]
    connect_info: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    remote_account: String,
    #[serde(skip_serializing_if = "is_false")]
    acc_is_sys: bool,
    #[serde(skip_serializing_if = "is_zero")]
    api_lvl: u32,
}

impl ServerInfo {
    /// INFO for any connection.
    #[must_use]
    pub fn of(server: &Server) -> Self {
        let options = server.options();
        let port = server.client_port.load(Ordering::Relaxed);
        let jetstream = options.jetstream.enabled;
        Self {
            server_id: server.id.clone(),
            server_name: server.name.clone(),
            version: NATS_VERSION,
            proto: 1,
            git_commit: "",
            go: concat!("nuthatch-", env!("CARGO_PKG_VERSION")),
            host: options.host.clone(),
            port,
            headers: true,
            auth_required: server.auth().asks(),
            tls_required: options.tls.is_some() && !options.allow_non_tls,
            tls_available: options.tls.is_some(),
            tls_verify: options.tls.as_ref().is_some_and(|tls| tls.verify),
            max_payload: options.limits.max_payload_bytes,
            jetstream,
            domain: options.jetstream.domain.clone().filter(|_| jetstream),
            connect_urls: connect_urls(server),
            ldm: server.lame_duck.load(Ordering::Relaxed),
            api_lvl: API_LEVEL,
            ..Self::default()
        }
    }

    /// As a lame duck says it.
    #[must_use]
    pub fn as_lame_duck(mut self) -> Self {
        self.ldm = true;
        self.connect_urls = Vec::new();
        self
    }

    /// For one connection, with a nonce if it may need one.
    #[must_use]
    pub fn for_connection(mut self, conn: &Connection, nonce: &str) -> Self {
        self.client_id = Some(conn.id);
        self.client_ip = conn.remote.ip().to_string();
        nonce.clone_into(&mut self.nonce);
        self.for_transport(conn)
    }

    /// A websocket client hears where websocket clients are served.
    #[must_use]
    pub fn for_transport(mut self, conn: &Connection) -> Self {
        let (server, options) = (conn.server(), conn.server().options());
        if let (Transport::Websocket(_), Some(websocket)) = (&conn.transport, &options.websocket) {
            self.host.clone_from(&websocket.host);
            self.port = server.websocket_port.load(Ordering::Relaxed);
            let tls = websocket.tls.as_ref();
            (self.tls_required, self.tls_available) = (tls.is_some(), tls.is_some());
            self.tls_verify = tls.is_some_and(|tls| tls.verify);
            self.auth_required &= websocket.no_auth_user.is_none();
            self.connect_urls = advertised(server, &websocket.advertise, self.port);
        }
        self
    }

    /// For a client that began with TLS.
    #[must_use]
    pub fn requiring_tls(mut self) -> Self {
        self.tls_required = true;
        self
    }

    /// For a connection that has just got its first PONG.
    #[must_use]
    pub fn for_session(mut self, server: &Server, session: &Session) -> Self {
        self.connect_info = true;
        self.remote_account.clone_from(&session.account.name);
        self.acc_is_sys = session.account.id == server.accounts.system().id;
        self
    }

    /// As protocol text.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        let json = serde_json::to_vec(self).unwrap_or_default();
        write::push_info(&mut out, &json);
        out
    }
}

/// Addresses under which clients reach this server: only an advertised one. A lame duck names none.
pub fn connect_urls(server: &Server) -> Vec<String> {
    let options = server.options();
    advertised(server, &options.client_advertise, server.client_port.load(Ordering::Relaxed))
}

fn advertised(server: &Server, address: &Option<String>, port: u16) -> Vec<String> {
    if server.lame_duck.load(Ordering::Relaxed) {
        return Vec::new();
    }
    match address {
        Some(address) if has_port(address) => vec![address.clone()],
        Some(host) => vec![format!("{host}:{port}")],
        None => Vec::new(),
    }
}

fn has_port(address: &str) -> bool {
    let after_host = address.rsplit_once(']').map_or(address, |(_, rest)| rest);
    after_host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok())
}
