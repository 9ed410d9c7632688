//! How a node of a cluster is set up.

use crate::key::ClusterKey;
use nuthatch_catalog_group::LogCount;
use nuthatch_catalog_group::roster::{SPARES_MAX, is_name};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;

/// Nodes that keep the logs of a cluster: a majority of three or of five. So many found one.
pub const SIZES: [usize; 2] = [3, 5];

/// Nodes that may be listed by one that joins a cluster: five that keep the logs, and the spares.
pub const LISTED_MAX: usize = 5 + SPARES_MAX;

/// The catalog that the nodes keep themselves, which others can join.
pub(crate) const BUILT_IN: &str = "built-in";

/// An address for documentation (RFC 5737), which no machine has.
const NOBODYS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// How a node is set up.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// Name of the node: it says which node of the cluster this is, for ever.
    pub name: String,
    /// Where it listens for other nodes.
    pub listen: SocketAddr,
    /// Where the other nodes listen. Its own address may be among them.
    pub routes: Vec<SocketAddr>,
    /// Address of the catalog: `file://` a directory that all nodes share, or a bucket; or `built-in`.
    pub catalog: String,
    /// The keeper's directory.
    pub dir: PathBuf,
    /// What the nodes know each other by; without it all of them are on this machine's loopback.
    pub key: Option<ClusterKey>,
    /// Without a key other addresses are taken too: whoever reaches them can be a node.
    pub may_be_open: bool,
    /// How many quorum logs the cluster is founded with; none: as many as it has nodes. One that was founded keeps the
    /// number that it was founded with.
    pub logs: Option<u8>,
    /// The cluster is founded with a log in its nodes' memory, of which this node's keeper takes so many bytes at most,
    /// beside [`BESIDE_BYTES`](crate::in_memory::BESIDE_BYTES); none: it is founded without one.
    pub memory: Option<u64>,
}

/// Why a node cannot be set up so.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// The name is no name of an object.
    #[error("a node's name has 1 to 64 letters, digits, '-' and '_'; {name:?} is none")]
    Name {
        /// The name.
        name: String,
    },
    /// There are too few or too many nodes.
    #[error(
        "a cluster is founded by 3 or 5 nodes, and one that joins it later lists at most {LISTED_MAX}; this one and its \
         routes are {count}"
    )]
    Size {
        /// How many there are.
        count: usize,
    },
    /// There are too few or too many logs.
    #[error(
        "a cluster has 1 to {} quorum logs, and this one is to have {count}: each costs each node threads, connections \
         and beats, so there are at most three for each of five nodes",
        LogCount::MAX.get()
    )]
    Logs {
        /// How many there would be.
        count: u8,
    },
    /// An address can be reached from elsewhere.
    #[error(
        "without a cluster key (-cluster_key) anybody who can connect is a node: {address} is refused, only \
         loopback addresses are taken"
    )]
    NotLoopback {
        /// The address.
        address: SocketAddr,
    },
}

impl ClusterConfig {
    /// Addresses of the other nodes, each once.
    #[must_use]
    pub fn others(&self) -> Vec<SocketAddr> {
        let mut others = self.routes.clone();
        others.sort_unstable();
        others.dedup();
        others.retain(|address| *address != self.listen && !self.is_own(*address));
        others
    }

    /// True if this node listens on all of this machine's addresses, and this is one of them.
    fn is_own(&self, address: SocketAddr) -> bool {
        let can_bind = |ip: IpAddr| UdpSocket::bind((ip, 0)).is_ok();
        self.listen.ip().is_unspecified()
            && self.listen.port() == address.port()
            && can_bind(address.ip())
            // Where addresses of others can be bound (`ip_nonlocal_bind`), that tells nothing.
            && !can_bind(NOBODYS)
    }

    /// How many nodes the cluster has.
    #[must_use]
    pub fn size(&self) -> usize {
        self.others().len() + 1
    }

    /// How many quorum logs this node founds a cluster with.
    ///
    /// # Errors
    /// [`ConfigError::Logs`].
    pub fn founds(&self) -> Result<LogCount, ConfigError> {
        let nodes = u8::try_from(self.size()).unwrap_or(u8::MAX);
        let count = self.logs.unwrap_or(nodes);
        let on_disks = LogCount::new(count).ok_or(ConfigError::Logs { count })?;
        Ok(if self.memory.is_some() { on_disks.with_memory() } else { on_disks })
    }

    /// Refuses what cannot be.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn check(&self) -> Result<(), ConfigError> {
        if !is_name(&self.name) {
            return Err(ConfigError::Name { name: self.name.clone() });
        }
        let mut addresses = self.routes.iter().chain([&self.listen]);
        if self.key.is_none()
            && !self.may_be_open
            && let Some(address) = addresses.find(|address| !address.ip().is_loopback())
        {
            return Err(ConfigError::NotLoopback { address: *address });
        }
        let size = self.size();
        let joins = self.catalog == BUILT_IN && (2..=LISTED_MAX).contains(&size);
        if !self.may_found() && !joins {
            return Err(ConfigError::Size { count: size });
        }
        if self.may_found() { self.founds().map(drop) } else { Ok(()) }
    }

    /// True if so many nodes found a cluster. Otherwise this one can only belong to one that there is.
    #[must_use]
    pub fn may_found(&self) -> bool {
        SIZES.contains(&self.size())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(name: &str, listen: &str, routes: &[&str]) -> ClusterConfig {
        ClusterConfig {
            name: name.to_owned(),
            listen: listen.parse().expect("an address"),
            routes: routes.iter().map(|route| route.parse().expect("an address")).collect(),
            catalog: "file:///nowhere".to_owned(),
            dir: PathBuf::new(),
            key: None,
            may_be_open: false,
            logs: None,
            memory: None,
        }
    }

    #[test]
    fn a_cluster_has_as_many_logs_as_nodes_unless_it_is_told_otherwise() {
        let all = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"];
        let with = |logs| ClusterConfig { logs, ..config("n1", "127.0.0.1:1", &all) };
        assert_eq!(with(None).founds().map(LogCount::get), Ok(3));
        assert_eq!(with(Some(1)).founds(), Ok(LogCount::ONE));
        assert_eq!(with(Some(15)).founds(), Ok(LogCount::MAX));
        let memory = ClusterConfig { memory: Some(0), ..with(Some(15)) };
        assert_eq!(memory.founds(), Ok(LogCount::MOST));
        for count in [0, 16] {
            let error = with(Some(count)).check().expect_err("none, or too many");
            assert_eq!(error, ConfigError::Logs { count });
            assert!(error.to_string().contains("1 to 15 quorum logs"), "{error}");
        }
    }

    #[test]
    fn its_own_address_and_doubles_do_not_count() {
        let all = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3", "127.0.0.1:2"];
        let node = config("n1", "127.0.0.1:1", &all);
        assert_eq!((node.size(), node.check()), (3, Ok(())));
        let everywhere = config("n1", "0.0.0.0:1", &all);
        assert_eq!(everywhere.others(), [all[1], all[2]].map(|a| a.parse().expect("an address")));
        let two = config("n1", "127.0.0.1:1", &all[..2]);
        assert_eq!(two.check(), Err(ConfigError::Size { count: 2 }));
        let built_in = |count: u16| {
            let routes: Vec<_> = (2..=count).map(|port| format!("127.0.0.1:{port}")).collect();
            let routes: Vec<&str> = routes.iter().map(String::as_str).collect();
            ClusterConfig { catalog: BUILT_IN.to_owned(), ..config("n1", "127.0.0.1:1", &routes) }
        };
        let checked: Vec<bool> = (1..=9).map(|count| built_in(count).check().is_ok()).collect();
        assert_eq!(checked, [false, true, true, true, true, true, true, true, false]);
        assert!(built_in(3).may_found() && !built_in(4).may_found(), "four can only join");
    }

    #[test]
    fn what_can_be_reached_from_elsewhere_needs_a_key() {
        let all = ["127.0.0.1:1", "127.0.0.1:2", "10.0.0.1:3"];
        let node = config("n1", "127.0.0.1:1", &all);
        let error = node.check().expect_err("not loopback");
        assert!(error.to_string().contains("10.0.0.1:3"), "{error}");
        let key = Some(ClusterKey::new(&[7; 32]).expect("long enough"));
        assert_eq!(ClusterConfig { key, ..node }.check(), Ok(()));
        assert!(config("n1", "0.0.0.0:1", &all[..2]).check().is_err());
        assert!(config("a/b", "127.0.0.1:1", &all[..2]).check().is_err());
    }
}
