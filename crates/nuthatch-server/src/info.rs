//! INFO: the server's description for its clients.

use crate::account_id::SYSTEM_ACCOUNT_ID;
use crate::conn::{Connection, Session};
use nuthatch_protocol::wire::write;
use serde::Serialize;

fn is_false(value: &bool) -> bool {
    !value
}

fn is_zero(value: &u32) -> bool {
    *value == 0
}

/// INFO, in the order in which nats-server writes its fields.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ServerInfo {
    pub(crate) server_id: String,
    pub(crate) server_name: String,
    pub(crate) version: &'static str,
    pub(crate) proto: u8,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) git_commit: &'static str,
    pub(crate) go: &'static str,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) headers: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) auth_required: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) tls_required: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) tls_verify: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) tls_available: bool,
    pub(crate) max_payload: usize,
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) jetstream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client_id: Option<u64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) client_ip: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) nonce: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cluster: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) domain: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) connect_urls: Vec<String>,
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) ldm: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) connect_info: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) remote_account: String,
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) acc_is_sys: bool,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) api_lvl: u32,
}

impl ServerInfo {
    /// As a lame duck says it.
    #[must_use]
    pub fn as_lame_duck(mut self) -> Self {
        self.ldm = true;
        self
    }

    /// For one connection, with a nonce if it may need one.
    #[must_use]
    pub fn for_connection(mut self, conn: &Connection, nonce: &str) -> Self {
        self.client_id = Some(conn.id);
        self.client_ip = conn.remote.get().ip().to_string();
        nonce.clone_into(&mut self.nonce);
        self
    }

    /// For a client that began with TLS.
    #[must_use]
    pub fn requiring_tls(mut self) -> Self {
        self.tls_required = true;
        self
    }

    /// For a client of this process.
    #[must_use]
    pub fn without_tls(mut self) -> Self {
        (self.tls_required, self.tls_verify, self.tls_available) = (false, false, false);
        self
    }

    /// For a connection that has just got its first PONG.
    #[must_use]
    pub fn for_session(mut self, session: &Session) -> Self {
        self.connect_info = true;
        self.remote_account.clone_from(&session.account.name);
        self.acc_is_sys = session.account.id == SYSTEM_ACCOUNT_ID;
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
