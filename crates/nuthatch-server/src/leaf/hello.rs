//! Greetings between servers: INFO and CONNECT, as JSON.

use crate::conn::Connection;
use crate::msg_trace::SERVER_PROTOCOL;
use crate::options::{LeafCompression, LeafOptions, SubjectPermission};
use crate::served::NodeGets;
use crate::server::Server;
use crate::version::{API_LEVEL, NATS_VERSION};
use nuthatch_protocol::wire::write;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::sync::atomic::Ordering;

fn is_false(value: &bool) -> bool {
    !value
}

/// Subjects that are allowed and denied, as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Subjects {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) allow: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deny: Option<Vec<String>>,
}

impl Subjects {
    pub(crate) fn of(permission: &SubjectPermission) -> Self {
        let deny = (!permission.deny.is_empty()).then(|| permission.deny.clone());
        Self { allow: permission.allow.clone(), deny }
    }

    pub(crate) fn permission(self) -> SubjectPermission {
        // An empty list of what is allowed allows nothing; nats-server leaves it out where there is none.
        SubjectPermission { allow: self.allow, deny: self.deny.unwrap_or_default() }
    }
}

/// INFO of a server that accepts leaf nodes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct LeafInfo {
    pub(crate) server_id: String,
    pub(crate) server_name: String,
    version: String,
    pub(crate) proto: i64,
    go: String,
    host: String,
    port: u16,
    pub(crate) headers: bool,
    auth_required: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) tls_required: bool,
    #[serde(skip_serializing_if = "is_false")]
    tls_verify: bool,
    max_payload: i64,
    #[serde(skip_serializing_if = "is_false")]
    jetstream: bool,
    pub(crate) client_id: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) nonce: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) cluster: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) domain: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) leafnode_urls: Option<Vec<String>>,
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) info_on_connect: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) connect_info: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) remote_account: String,
    #[serde(skip_serializing_if = "is_false")]
    acc_is_sys: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) import: Option<Subjects>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) export: Option<Subjects>,
    api_lvl: u32,
    /// How the connection may be compressed, or is from here on.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) compression: String,
}

/// What nodes of a cluster tell each other after their hellos.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct NodeInfo {
    /// It is about to end: its clients leave, and no new ones are to come.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) ldm: bool,
    /// What the other side's own messages on this link begin with.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) token: String,
    /// It takes part in traces of messages.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) traces: bool,
    /// It sends direct gets back to nodes that can answer them.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) sends_back: bool,
    /// Its zone, if it has one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) zone: String,
}

impl NodeInfo {
    /// Of a node that is about to end.
    pub(crate) fn leaving() -> Self {
        Self { ldm: true, traces: true, ..Self::default() }
    }

    /// With the token of a link that has joined, and the zone of this node; empty: it has none.
    pub(crate) fn joined(token: String, zone: String) -> Self {
        Self { token, traces: true, sends_back: true, zone, ..Self::default() }
    }

    /// What it says of direct gets.
    pub(crate) fn gets(&self) -> NodeGets {
        NodeGets { sends_back: self.sends_back, zone: self.zone.as_str().into() }
    }

    /// As protocol text.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        write::push_info(&mut out, &serde_json::to_vec(self).unwrap_or_default());
        out
    }
}

impl LeafInfo {
    /// INFO for a server that connects.
    pub(crate) fn greeting(server: &Server, conn: &Connection, nonce: &str) -> Self {
        let options = server.options();
        let own = options.leafnodes.as_ref();
        let port = server.leafs.port.load(Ordering::Relaxed);
        let jetstream = options.has_jetstream();
        let domain = options.jetstream.domain.clone().filter(|_| jetstream).unwrap_or_default();
        Self {
            server_id: server.id.clone(),
            server_name: server.name.clone(),
            version: NATS_VERSION.to_owned(),
            proto: SERVER_PROTOCOL,
            go: concat!("nuthatch-", env!("CARGO_PKG_VERSION")).to_owned(),
            host: own.map(|own| own.host.clone()).unwrap_or_default(),
            port,
            headers: !options.no_header_support,
            auth_required: true,
            tls_required: own.is_some_and(|own| own.tls.is_some()),
            tls_verify: own.and_then(|own| own.tls.as_ref()).is_some_and(|tls| tls.verify),
            max_payload: options.limits.max_payload_bytes as i64,
            jetstream,
            client_id: conn.id,
            nonce: nonce.to_owned(),
            domain,
            leafnode_urls: own.and_then(|own| addresses(own, port)),
            info_on_connect: true,
            api_lvl: API_LEVEL,
            ..Self::default()
        }
    }

    /// With what the connection may be compressed with, or is.
    pub(crate) fn compressed(mut self, compression: &LeafCompression) -> Self {
        compression.name().clone_into(&mut self.compression);
        self
    }

    /// INFO once it has been let in: its account here, and its user's permissions.
    pub(crate) fn welcome(
        mut self,
        account: &str,
        is_system: bool,
        import: Option<Subjects>,
        export: Option<Subjects>,
    ) -> Self {
        self.nonce.clear();
        account.clone_into(&mut self.remote_account);
        self.acc_is_sys = is_system;
        (self.import, self.export) = (import, export);
        self.connect_info = true;
        self
    }

    /// As protocol text.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        write::push_info(&mut out, &serde_json::to_vec(self).unwrap_or_default());
        out
    }
}

/// Addresses for leaf nodes, if they are worth telling: an address that stands for all of the
/// machine's leads nowhere from another one.
fn addresses(own: &LeafOptions, port: u16) -> Option<Vec<String>> {
    if own.no_advertise {
        return None;
    }
    let with_port = |host: &str| {
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    };
    let everywhere = own.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified());
    match &own.advertise {
        Some(address) if has_port(address) => Some(vec![address.clone()]),
        Some(host) => Some(vec![with_port(host)]),
        None if everywhere => None,
        None => Some(vec![with_port(&own.host)]),
    }
}

fn has_port(address: &str) -> bool {
    let after_host = address.rsplit_once(']').map_or(address, |(_, rest)| rest);
    after_host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok())
        && address.parse::<std::net::Ipv6Addr>().is_err()
}

/// CONNECT of a server that connects as a leaf node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct LeafConnect {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) nkey: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) jwt: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) sig: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) proxy_sig: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) user: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) pass: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) auth_token: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) server_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) domain: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) name: String,
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) is_hub: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) cluster: String,
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) headers: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) jetstream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deny_pub: Option<Vec<String>>,
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) isolate: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) remote_account: String,
    /// What the connection is compressed with.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) compress_mode: String,
    pub(crate) protocol: i64,
    /// Only clients say it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) lang: String,
    /// Only gateways say it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) gateway: String,
}
