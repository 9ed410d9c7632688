//! The greetings of a connection: a server's INFO, and a client's CONNECT.
//!
//! Both sides use the same types: servers write [`ServerInfo`] and read [`Connect`], clients the other way round.

use crate::wire::write;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_false(value: &bool) -> bool {
    !value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

/// INFO, in the order in which nats-server writes its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerInfo {
    /// The server's unique id.
    pub server_id: String,
    /// Name given by its operator.
    pub server_name: String,
    /// Version, such as `2.15.2`.
    pub version: Cow<'static, str>,
    /// Protocol of the server; from 1 on it sends INFO again when something changes.
    pub proto: i64,
    /// Commit that it was built from.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub git_commit: Cow<'static, str>,
    /// Go version; of ours the product's name and version.
    pub go: Cow<'static, str>,
    /// Address at which it listens.
    pub host: String,
    /// Port at which it listens.
    pub port: u16,
    /// Messages may have headers.
    pub headers: bool,
    /// Credentials are needed.
    #[serde(skip_serializing_if = "is_false")]
    pub auth_required: bool,
    /// The connection must be encrypted.
    #[serde(skip_serializing_if = "is_false")]
    pub tls_required: bool,
    /// Clients must show a certificate.
    #[serde(skip_serializing_if = "is_false")]
    pub tls_verify: bool,
    /// The connection may be encrypted.
    #[serde(skip_serializing_if = "is_false")]
    pub tls_available: bool,
    /// Largest message accepted, headers and body, in bytes.
    pub max_payload: usize,
    /// JetStream is on.
    #[serde(skip_serializing_if = "is_false")]
    pub jetstream: bool,
    /// Number that the server gave this connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<u64>,
    /// The client's address as the server sees it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub client_ip: String,
    /// What a key has to sign; empty when the server takes no keys.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub nonce: String,
    /// Name of its cluster, when it is part of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// JetStream domain, when it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Where else clients may connect, as `host:port`.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_default")]
    pub connect_urls: Vec<String>,
    /// It is about to end: clients should go elsewhere.
    #[serde(skip_serializing_if = "is_false")]
    pub ldm: bool,
    /// This INFO answers a CONNECT.
    #[serde(skip_serializing_if = "is_false")]
    pub connect_info: bool,
    /// Account of the connection.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub remote_account: String,
    /// That is the system account.
    #[serde(skip_serializing_if = "is_false")]
    pub acc_is_sys: bool,
    /// Level of the JetStream API (ADR-44).
    #[serde(skip_serializing_if = "is_zero")]
    pub api_lvl: u32,
    /// Public key that services of an auth callout may encrypt for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub xkey: String,
}

/// `null` counts as absent, as in Go.
fn null_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

impl ServerInfo {
    /// As a lame duck says it.
    #[must_use]
    pub fn as_lame_duck(mut self) -> Self {
        self.ldm = true;
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

    /// As protocol text.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        // Plain fields with string keys: this cannot fail.
        write::push_info(&mut out, &serde_json::to_vec(self).unwrap_or_default());
        out
    }
}

/// CONNECT: what a client says about itself. For a server an absent field keeps its value from before.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Connect {
    /// The server answers every operation with `+OK`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verbose: Option<bool>,
    /// The server checks subjects strictly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pedantic: Option<bool>,
    /// The client's own publishes are delivered to its own subscriptions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub echo: Option<bool>,
    /// The client understands headers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers: Option<bool>,
    /// A request without a subscriber is answered with status 503.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_responders: Option<bool>,
    /// Protocol of the client: 0, or 1 if it takes INFO at any time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<i64>,
    /// User's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pass: Option<String>,
    /// Token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_token: Option<String>,
    /// Public key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nkey: Option<String>,
    /// Signature of the nonce.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sig: Option<String>,
    /// Signature of the nonce by the proxy that the connection goes through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_sig: Option<String>,
    /// The user's token, signed by an account.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jwt: Option<String>,
    /// Name for monitoring.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Language of the client library.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lang: Option<String>,
    /// Version of the client library.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Account wanted; no server takes it any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// With `account`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_account: Option<bool>,
}

impl Connect {
    /// As protocol text.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        write::push_connect(&mut out, &serde_json::to_vec(self).unwrap_or_default());
        out
    }
}

/// Secrets are not shown.
impl std::fmt::Debug for Connect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connect")
            .field("name", &self.name)
            .field("user", &self.user)
            .field("nkey", &self.nkey)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_writes_a_client_reads() {
        let info = ServerInfo {
            server_id: "N".into(),
            version: "2.14.2".into(),
            max_payload: 1024,
            client_id: Some(7),
            connect_urls: vec!["a:1".into()],
            ..ServerInfo::default()
        };
        let text = info.clone().as_lame_duck().encode();
        let json = text.strip_prefix(b"INFO ").expect("an INFO");
        let read: ServerInfo = serde_json::from_slice(json).expect("it is read");
        assert_eq!(read, info.as_lame_duck());
        assert!(!String::from_utf8_lossy(json).contains("nonce"), "what says nothing is left out");
    }

    /// As nats-server 2.15 greets, with fields that are not known here.
    #[test]
    fn the_greeting_of_the_incumbent_is_read() {
        let text = r#"{"server_id":"ND","server_name":"s","version":"2.15.2","proto":1,"git_commit":"ab","go":"go1.26",
            "host":"0.0.0.0","port":4222,"headers":true,"max_payload":1048576,"jetstream":true,"client_id":5,
            "client_ip":"127.0.0.1","nonce":"n","connect_urls":null,"xkey":"XK","feature_flags":["a"]}"#;
        let info: ServerInfo = serde_json::from_str(text).expect("it is read");
        assert_eq!((&*info.version, info.client_id, &*info.nonce), ("2.15.2", Some(5), "n"));
        assert!(info.connect_urls.is_empty() && info.cluster.is_none());
    }

    #[test]
    fn a_connect_says_what_is_set_and_shows_no_secret() {
        let pass = Some("hidden".to_owned());
        let connect = Connect { verbose: Some(false), pass, ..Connect::default() };
        assert_eq!(connect.encode(), b"CONNECT {\"verbose\":false,\"pass\":\"hidden\"}\r\n");
        assert!(!format!("{connect:?}").contains("hidden"));
    }
}
