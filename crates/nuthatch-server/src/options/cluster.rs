//! A node of a cluster: `cluster {}` and `jetstream { quorum {} }` of the file, and the flags, which win.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use nuthatch_cluster::{LEASE, Protocol, Route, Zone};
use nuthatch_protocol::config::{Entry, Map, Node, Position, Value};

use super::address::{self, Port};
use super::error::{Conflict, FlagError, OptionsError};
use super::read::ConfigReader;
use super::tables::{CLUSTER, QUORUM};
use super::{ClusterSettings, Invocation};

/// The catalog that needs nothing else.
pub(super) const BUILT_IN: &str = "built-in";

/// Quorum logs for each node at most, where there are three nodes.
const LOGS_PER_NODE_MAX: i64 = 5;

/// Keys of `cluster` that ask for no connections.
const HARMLESS_KEYS: &[&str] =
    &["name", "no_advertise", "connect_retries", "pool_size", "compression", "ping_interval"];

/// Logs that take longer to read are followed where nothing is configured: within this a takeover needs no standby.
const STANDBY_ABOVE: Duration = Duration::from_millis(50);

/// What `-zone` takes.
const ZONE_WANTED: &str = "a name of 1 to 64 letters, digits, '-', '_' and '.'";

/// Why an address of a node is not taken; the scheme of nats-server's TLS.
const TLS_ROUTE: &str = "what nodes say to each other is secured by the key they share; write the address without tls://";

/// What was given of them.
#[derive(Debug, Default)]
pub(super) struct ClusterDraft {
    host: Option<String>,
    port: Option<Port>,
    routes: Option<Vec<Route>>,
    catalog: Option<String>,
    logs_per_node: Option<u8>,
    replace_after: Option<Duration>,
    lease: Option<Duration>,
    zone: Option<Zone>,
    owner_zones: Option<Vec<Zone>>,
    standby_bytes: Option<u64>,
    standby_above: Option<Duration>,
    /// `-node_name`.
    node: Option<String>,
    cluster: Option<String>,
    key: Option<PathBuf>,
    /// `-protocol_max`.
    protocol_max: Option<Protocol>,
}

impl ClusterDraft {
    /// `cluster {}`.
    pub(super) fn block(&mut self, r: &mut ConfigReader, entry: &Entry) {
        let Some(map) = r.map("cluster", &entry.value) else { return };
        let is_harmless =
            |e: &Entry| HARMLESS_KEYS.iter().any(|key| key.eq_ignore_ascii_case(&e.key));
        if map.entries().iter().all(is_harmless) {
            if !map.is_empty() {
                let text = "'cluster' has no effect: it names neither an address nor routes";
                r.warn(&entry.key_pos, text);
            }
            return;
        }
        // A node without routes is one that was forgotten something.
        self.routes.get_or_insert_default();
        r.walk(&CLUSTER, map, |r, key, entry| self.key(r, key, &entry.value));
    }

    fn key(&mut self, r: &mut ConfigReader, key: &'static str, value: &Value) {
        match key {
            "name" => match r.word(key, value) {
                Some(name) if name.contains(' ') => {
                    r.invalid(&value.pos, key, "cannot hold spaces")
                }
                name => self.cluster = name.map(str::to_owned),
            },
            "listen" => {
                if let Some(listen) = address::listen(r, key, value) {
                    self.host = listen.host.or(self.host.take());
                    self.port = Some(listen.port);
                }
            }
            "host" => self.host = r.word(key, value).map(str::to_owned),
            "port" => self.port = address::port(r, key, value),
            "routes" => self.routes = routes(r, key, value).or(self.routes.take()),
            "key_file" => self.key = r.word(key, value).map(PathBuf::from),
            "zone" => {
                self.zone = r.word(key, value).and_then(|text| zone(r, key, text, &value.pos))
            }
            _ => debug_assert!(false, "key '{key}' is in the table and nobody reads it"),
        }
    }

    /// `quorum {}` of `jetstream`.
    pub(super) fn quorum(&mut self, r: &mut ConfigReader, map: &Map) {
        r.walk(&QUORUM, map, |r, key, entry| match key {
            "catalog" => self.catalog = r.word(key, &entry.value).map(str::to_owned),
            "logs_per_node" => {
                let count = r.int(key, &entry.value, 1, LOGS_PER_NODE_MAX);
                self.logs_per_node = count.and_then(|count| u8::try_from(count).ok());
            }
            "replace_after" => {
                self.replace_after = r.duration(key, &entry.value).filter(|time| !time.is_zero());
            }
            "lease" => self.lease = r.duration(key, &entry.value),
            "owner_zones" => {
                let texts = r.texts(key, &entry.value).unwrap_or_default();
                let zones = texts.iter().map(|text| zone(r, key, text, &entry.value.pos));
                self.owner_zones = Some(zones.collect::<Vec<_>>().into_iter().flatten().collect());
            }
            "standby_above" => self.standby_above = r.duration(key, &entry.value),
            "standby_memory" => {
                let bytes = r.size(key, &entry.value, 0, i64::MAX);
                self.standby_bytes = bytes.and_then(|bytes| u64::try_from(bytes).ok());
            }
            _ => debug_assert!(false, "key '{key}' is in the table and nobody reads it"),
        });
    }

    /// A flag; an empty one takes back what the file says.
    pub(super) fn flag(&mut self, flag: &str, text: &str) -> Result<(), FlagError> {
        let given = (!text.is_empty()).then(|| text.to_owned());
        match flag {
            "cluster_listen" => {
                let address = given.map(|text| node_address(flag, &text)).transpose()?;
                self.host = address.map(|address| address.ip().to_string());
                self.port = address.map(|address| Port::Fixed(address.port()));
            }
            "routes" => {
                let routes = text.split(',').filter(|route| !route.trim().is_empty());
                let routes: Vec<_> =
                    routes.map(|route| node_route(flag, route)).collect::<Result<_, _>>()?;
                self.routes = (!routes.is_empty()).then_some(routes);
            }
            "catalog" => self.catalog = given,
            "cluster_key" => self.key = given.map(PathBuf::from),
            "cluster_name" => self.cluster = given,
            "zone" => {
                let parse = |text: String| {
                    text.parse().map_err(|_| FlagError::BadValue {
                        name: flag.to_owned(),
                        found: text,
                        wanted: ZONE_WANTED.into(),
                    })
                };
                self.zone = given.map(parse).transpose()?;
            }
            "protocol_max" => {
                self.protocol_max = given.map(|text| protocol(flag, &text)).transpose()?;
            }
            _ => self.node = given,
        }
        Ok(())
    }

    fn is_node(&self) -> bool {
        self.port.is_some()
            || self.routes.is_some()
            || self.catalog.is_some()
            || self.logs_per_node.is_some()
            || self.replace_after.is_some()
            || self.lease.is_some()
            || self.node.is_some()
            || self.key.is_some()
            || self.protocol_max.is_some()
            || self.zone.is_some()
            || self.owner_zones.is_some()
            || self.standby_bytes.is_some()
            || self.standby_above.is_some()
    }

    /// True if the server is named as one of a cluster, and is alone.
    pub(super) fn names_nothing(&self) -> bool {
        !self.is_node() && self.cluster.is_some()
    }

    /// The settings, if this server is a node of a cluster.
    pub(super) fn finish(
        self,
        invocation: Invocation,
        server_name: Option<&str>,
    ) -> Result<Option<ClusterSettings>, OptionsError> {
        if !self.is_node() {
            return Ok(None);
        }
        let Self { host, port, routes, catalog, logs_per_node, replace_after, lease, .. } = self;
        let Self { node, cluster, key, protocol_max, zone, owner_zones, .. } = self;
        let Self { standby_bytes, standby_above, .. } = self;
        let node = node.or_else(|| server_name.map(str::to_owned));
        let (Some(name), Some(Port::Fixed(port)), Some(routes)) = (node, port, routes) else {
            return Err(Conflict::IncompleteCluster.into());
        };
        let host = host.unwrap_or_else(|| Ipv4Addr::UNSPECIFIED.to_string());
        let listen = node_address("cluster_listen", &bracketed(&host, port))?;
        let catalog = catalog.unwrap_or_else(|| BUILT_IN.to_owned());
        let may_be_open = invocation == Invocation::NatsServer && key.is_none();
        let logs_per_node = logs_per_node.unwrap_or(1);
        Ok(Some(ClusterSettings {
            name,
            cluster,
            listen,
            routes,
            catalog,
            logs_per_node,
            replace_after,
            lease: lease.unwrap_or(LEASE),
            key,
            may_be_open,
            protocol_max: protocol_max.unwrap_or(Protocol::NEWEST),
            zone,
            owner_zones: owner_zones.unwrap_or_default(),
            standby_bytes,
            standby_above: standby_above.unwrap_or(STANDBY_ABOVE),
        }))
    }
}

impl ClusterSettings {
    /// Warning about a node port that anybody may use; `None`: none is needed.
    pub(super) fn exposure(&self) -> Option<String> {
        let is_open = self.may_be_open && !self.listen.ip().is_loopback();
        is_open.then(|| {
            format!(
                "cluster: whoever reaches {} can be a node and read everything: give all nodes the same 'key_file'",
                self.listen
            )
        })
    }
}

/// A protocol that this program speaks.
fn protocol(flag: &str, text: &str) -> Result<Protocol, FlagError> {
    let known = Protocol::FIRST.0..=Protocol::NEWEST.0;
    let given = text.parse().ok().filter(|version| known.contains(version));
    given.map(Protocol).ok_or_else(|| FlagError::BadValue {
        name: flag.to_owned(),
        found: text.to_owned(),
        wanted: format!(
            "a protocol that this version speaks: {} to {}",
            known.start(),
            known.end()
        ),
    })
}

/// A zone in the file.
fn zone(r: &mut ConfigReader, key: &'static str, text: &str, pos: &Position) -> Option<Zone> {
    let zone = text.parse::<Zone>();
    zone.inspect_err(|why| r.invalid(pos, key, why.to_string())).ok()
}

fn bracketed(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// `routes` of the file: a string or an array of them.
fn routes(r: &mut ConfigReader, key: &'static str, value: &Value) -> Option<Vec<Route>> {
    let texts = r.texts(key, value)?;
    let places = match &value.node {
        Node::Array(items) => items.iter().map(|item| item.pos.clone()).collect(),
        _ => vec![value.pos.clone()],
    };
    let mut routes = Vec::new();
    for (text, pos) in texts.iter().zip(places) {
        match parse(text) {
            Ok(route) => routes.push(route),
            Err(what) => r.invalid(&pos, key, format!("\"{text}\": {what}")),
        }
    }
    Some(routes)
}

/// This node's own address, given by a flag.
fn node_address(flag: &str, text: &str) -> Result<SocketAddr, FlagError> {
    match node_route(flag, text)? {
        Route::Address(address) => Ok(address),
        Route::Name { .. } => Err(FlagError::BadValue {
            name: flag.to_owned(),
            wanted: "a numeric address and a port, such as 10.0.0.1:6222 or 0.0.0.0:6222".into(),
            found: text.to_owned(),
        }),
    }
}

/// Where another node is, given by a flag.
fn node_route(flag: &str, text: &str) -> Result<Route, FlagError> {
    parse(text).map_err(|what| match what {
        TLS_ROUTE => FlagError::Refused { name: flag.to_owned(), reason: TLS_ROUTE },
        _ => FlagError::BadValue {
            name: flag.to_owned(),
            wanted: "addresses such as 127.0.0.1:6222, or names such as n1.example.org:6222".into(),
            found: text.to_owned(),
        },
    })
}

/// A host and a port; a scheme before them, as nats-server's routes have, is left out.
fn parse(text: &str) -> Result<Route, &'static str> {
    let text = text.trim();
    if text.to_ascii_lowercase().starts_with("tls://") {
        return Err(TLS_ROUTE);
    }
    let plain = text.rsplit_once("://").map_or(text, |(_, address)| address).trim_end_matches('/');
    if plain.contains('@') {
        return Err("nodes know each other by the key they share ('key_file'), not by users");
    }
    plain.parse()
}
