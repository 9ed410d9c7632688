//! The flags of a node of a quorum log.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::ClusterSettings;
use super::error::{Conflict, FlagError, OptionsError};

/// What was given of them.
#[derive(Debug, Default)]
pub(super) struct ClusterFlags {
    listen: String,
    routes: String,
    catalog: String,
    name: String,
    key: String,
}

impl ClusterFlags {
    pub(super) fn set(&mut self, flag: &str, text: &str) {
        let place = match flag {
            "cluster_listen" => &mut self.listen,
            "routes" => &mut self.routes,
            "catalog" => &mut self.catalog,
            "cluster_key" => &mut self.key,
            _ => &mut self.name,
        };
        text.clone_into(place);
    }

    /// The settings, if this server is a node of a quorum log.
    pub(super) fn finish(self) -> Result<Option<ClusterSettings>, OptionsError> {
        let Self { listen, routes, catalog, name, key } = self;
        if catalog.is_empty() {
            let given = [
                ("routes", &routes),
                ("cluster_listen", &listen),
                ("node_name", &name),
                ("cluster_key", &key),
            ];
            let mut given = given.into_iter().filter(|(_, text)| !text.is_empty());
            return match given.next() {
                None => Ok(None),
                Some((name, _)) => {
                    let reason = "without -catalog this server runs alone";
                    Err(FlagError::Refused { name: name.to_owned(), reason }.into())
                }
            };
        }
        if listen.is_empty() || name.is_empty() {
            return Err(Conflict::IncompleteCluster.into());
        }
        let listen = address("cluster_listen", &listen)?;
        let routes = routes.split(',').filter(|route| !route.trim().is_empty());
        let routes = routes.map(|route| address("routes", route)).collect::<Result<_, _>>()?;
        let key = (!key.is_empty()).then(|| PathBuf::from(key));
        Ok(Some(ClusterSettings { name, listen, routes, catalog, key }))
    }
}

/// `host:port` with a numeric host; a scheme before it, as nats-server's routes have, is left out.
fn address(flag: &str, text: &str) -> Result<SocketAddr, FlagError> {
    if text.trim().to_ascii_lowercase().starts_with("tls://") {
        let reason = "what nodes say to each other is secured by -cluster_key; write the address without tls://";
        return Err(FlagError::Refused { name: flag.to_owned(), reason });
    }
    let plain = text.rsplit_once("://").map_or(text, |(_, address)| address).trim();
    plain.parse().map_err(|_| FlagError::BadValue {
        name: flag.to_owned(),
        wanted: "addresses such as 127.0.0.1:6222".into(),
        found: text.to_owned(),
    })
}
