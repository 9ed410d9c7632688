//! How a node of a cluster is set up.

use crate::about::KeyNames;
use crate::key::ClusterKey;
use crate::route::{Route, is_own};
use nuthatch_catalog_group::roster::{SPARES_MAX, is_name};
use nuthatch_catalog_group::{LogCount, Protocol, Zone};
use nuthatch_object::check_url;
use nuthatch_quorum::timing;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// Nodes that keep the logs of a cluster: a majority of three or of five. So many found one.
pub const SIZES: [usize; 2] = [3, 5];

/// Nodes that may be listed by one that joins a cluster: five that keep the logs, the spares, and those without JetStream.
pub const LISTED_MAX: usize = OWNERS_MAX + CORE_NODES_MAX;

/// Nodes of the catalog at a time.
const OWNERS_MAX: usize = 5 + SPARES_MAX;

/// Nodes without JetStream that are connected at a time.
pub const CORE_NODES_MAX: usize = 32;

pub use crate::about::OWNER_ZONES_MAX;

const _: () = assert!(
    OWNER_ZONES_MAX == OWNERS_MAX,
    "as many as there are nodes at a time that may own a log"
);

/// A node must be allowed to be away for so long at least before a spare takes its place: to start again takes some seconds.
pub const REPLACE_AFTER_MIN: Duration = Duration::from_secs(10);

/// How long an owner answers reads after a majority has heard it, where nothing else is set, and at most.
pub const LEASE: Duration = Duration::from_micros(timing::LEASE);

/// The shortest time that this can be: one of the beats, 50 ms apart, may be late.
pub const LEASE_MIN: Duration = Duration::from_micros(timing::LEASE_MIN);

/// The catalog that the nodes keep themselves, which others can join.
pub const BUILT_IN: &str = "built-in";

/// How many quorum logs a cluster is founded with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Logs {
    /// So many.
    Count(u8),
    /// So many for each node that founds it.
    PerNode(u8),
}

impl Default for Logs {
    fn default() -> Self {
        Self::PerNode(1)
    }
}

impl Logs {
    /// How many those are of so many nodes.
    #[must_use]
    pub fn of(self, nodes: usize) -> u8 {
        let all = |each: u8| usize::from(each).saturating_mul(nodes);
        match self {
            Self::Count(count) => count,
            Self::PerNode(each) => u8::try_from(all(each)).unwrap_or(u8::MAX),
        }
    }
}

/// How a node is set up.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// Name of the node: it says which node of the cluster this is, for ever.
    pub name: String,
    /// Where it listens for other nodes.
    pub listen: SocketAddr,
    /// Where the other nodes listen. Its own address, or name, may be among them.
    pub routes: Vec<Route>,
    /// Address of the catalog: `file://` a directory that all nodes share, or a bucket; or `built-in`.
    pub catalog: String,
    /// The keeper's directory.
    pub dir: PathBuf,
    /// What the nodes know each other by; without it all of them are on this machine's loopback.
    pub key: Option<ClusterKey>,
    /// Without a key other addresses are taken too: whoever reaches them can be a node.
    pub may_be_open: bool,
    /// How many quorum logs the cluster is founded with. One that was founded keeps the number that it was founded with.
    pub logs: Logs,
    /// The cluster is founded with a log in its nodes' memory, of which this node's keeper takes so many bytes at most,
    /// beside [`BESIDE_BYTES`](crate::in_memory::BESIDE_BYTES); none: it is founded without one.
    pub memory: Option<u64>,
    /// Address of the bucket that the cluster's durable logs are in; none: they are on its nodes' disks. Needs a catalog that
    /// the nodes do not keep themselves.
    pub store: Option<String>,
    /// Which node leads the catalog has a spare take the place of a node that keeps logs, if it has not heard that for so
    /// long; none: only people replace nodes. At least [`REPLACE_AFTER_MIN`]. Where the catalog is outside the nodes it is the
    /// first of those that hear a majority.
    pub replace_after: Option<Duration>,
    /// How long this node, as an owner, answers reads after a majority has heard it, and another one waits for that when it is
    /// gone: from [`LEASE_MIN`] to [`LEASE`]. It is as long as can be until the cluster speaks
    /// [`Protocol::LEASES_SAID`].
    pub lease: Duration,
    /// What this node fails together with: an availability zone, a rack, a room. None: nobody says.
    pub zone: Option<Zone>,
    /// The zones whose nodes own the logs, while one of them is there that keeps the log and is not drained; none: all nodes do.
    /// At most [`OWNER_ZONES_MAX`]. It is to be the same at all nodes: each goes by its own for the logs that it owns. A cluster
    /// with one log in all does not move it.
    pub owner_zones: Vec<Zone>,
    /// The newest protocol that this node may speak: what an older program knows, where one is to be stood in for.
    pub protocol_max: Protocol,
    /// By which keys it encrypts what it stores.
    pub keys: KeyNames,
    /// The version of the program, for people.
    pub program: String,
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
    /// Nodes are to be replaced after a time that they may need to start.
    #[error(
        "replace_after: a node that is away for {after:?} may just start again: at least {REPLACE_AFTER_MIN:?}"
    )]
    ReplaceSoon {
        /// The time.
        after: Duration,
    },
    /// It would be over before the next beat, or longer than keepers hold back promises at a start.
    #[error("lease: {LEASE_MIN:?} to {LEASE:?} can be, and {lease:?} cannot")]
    Lease {
        /// The time.
        lease: Duration,
    },
    /// Owners are to be in more zones than there can be.
    #[error("owner_zones: {count} zones are more than nodes: name at most {OWNER_ZONES_MAX}")]
    OwnerZones {
        /// How many were named.
        count: usize,
    },
    /// The catalog is nowhere.
    #[error(
        "catalog: {why}. It is 'built-in', or a directory that all nodes share (file:///…), a bucket (s3://…, gs://…, az://…) \
         or etcd (etcd://…, etcds://…)"
    )]
    Catalog {
        /// The fault, with the address as far as it may be shown.
        why: String,
    },
    /// Nodes without disks are to keep the catalog.
    #[error(
        "logs in a bucket ('store') need a catalog outside the nodes, whose directories may go: set the catalog to \
         a bucket (s3://…, gs://…, az://…), a directory that all nodes share (file://…) or etcd; 'built-in' is kept on the \
         nodes' disks"
    )]
    BucketBuiltIn,
    /// The cluster was founded with logs elsewhere.
    #[error(
        "the cluster was founded with its logs {}, and this node is set up for logs {} ('store'): set it up as the others; \
         a cluster keeps its logs where it was founded with them",
        home(!in_bucket), home(*in_bucket)
    )]
    OtherHome {
        /// What this node is set up for.
        in_bucket: bool,
    },
    /// The bucket is another cluster's, or another one than the other nodes have.
    #[error(transparent)]
    OtherBucket(Box<OtherBucket>),
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
        "without a cluster key (-cluster_key) anybody who can connect is a node: {route} is refused, only \
         loopback addresses are taken"
    )]
    NotLoopback {
        /// The address, or a name, which may be anywhere.
        route: Route,
    },
}

/// A bucket that is not that of a node's cluster.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{store} is not the bucket of this cluster: it says that it belongs to {there}, and this cluster {} has the catalog at \
     {catalog}. Give all nodes the same 'store' and the same catalog, with the same endpoints. A bucket that was another \
     cluster's is to be emptied; one that lost the object cluster-of/cluster is to have it again, with the line that says \
     the cluster and the address of its catalog",
    here.map_or_else(|| "that is to be founded".to_owned(), |id| format!("{id:032x}"))
)]
pub struct OtherBucket {
    /// Address of the bucket.
    pub store: String,
    /// What the bucket says.
    pub there: String,
    /// The cluster, if it was founded.
    pub here: Option<u128>,
    /// Address of its catalog.
    pub catalog: String,
}

/// Where a cluster has its logs, for people.
pub(crate) fn home(in_bucket: bool) -> &'static str {
    if in_bucket { "in a bucket" } else { "on its nodes' disks" }
}

impl ClusterConfig {
    /// How many nodes these routes and this one may be: more than one number where names may be this node's own.
    fn sizes(&self) -> RangeInclusive<usize> {
        let mut told = self.routes.clone();
        told.sort_unstable();
        told.dedup();
        let is_own = |route: &Route| matches!(route, Route::Address(address) if is_own(self.listen, *address));
        told.retain(|route| !is_own(route));
        let others = told.len();
        let has_names = told.iter().any(|route| matches!(route, Route::Name { .. }));
        (if has_names { others } else { others + 1 })..=others + 1
    }

    /// True if so many nodes found a cluster, and this one may list as many. Otherwise it can only belong to one that there is.
    #[must_use]
    pub fn may_found(&self, nodes: usize) -> bool {
        self.may_found_beside(nodes, 0)
    }

    /// As [`ClusterConfig::may_found`] where so many of the nodes listed have no JetStream.
    pub(crate) fn may_found_beside(&self, nodes: usize, without: usize) -> bool {
        SIZES.contains(&nodes) && self.sizes().contains(&(nodes + without))
    }

    /// How many quorum logs this node founds a cluster of so many nodes with.
    ///
    /// # Errors
    /// [`ConfigError::Logs`].
    pub fn founds(&self, nodes: usize) -> Result<LogCount, ConfigError> {
        let count = self.logs.of(nodes);
        let durable = LogCount::new(count).ok_or(ConfigError::Logs { count })?;
        let durable = if self.store.is_some() { durable.in_bucket() } else { durable };
        Ok(if self.memory.is_some() { durable.with_memory() } else { durable })
    }

    /// Refuses what cannot be.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn check(&self) -> Result<(), ConfigError> {
        self.check_reach()?;
        if self.owner_zones.len() > OWNER_ZONES_MAX {
            return Err(ConfigError::OwnerZones { count: self.owner_zones.len() });
        }
        if self.catalog != BUILT_IN {
            check_catalog(&self.catalog)?;
        }
        if self.store.is_some() && self.catalog == BUILT_IN {
            return Err(ConfigError::BucketBuiltIn);
        }
        let sizes = self.sizes();
        let joins = |size: usize| (2..=LISTED_MAX).contains(&size);
        if !sizes.clone().any(|size| self.may_found(size) || joins(size)) {
            return Err(ConfigError::Size { count: *sizes.end() });
        }
        if let Some(after) = self.replace_after.filter(|after| *after < REPLACE_AFTER_MIN) {
            return Err(ConfigError::ReplaceSoon { after });
        }
        if !(LEASE_MIN..=LEASE).contains(&self.lease) {
            return Err(ConfigError::Lease { lease: self.lease });
        }
        sizes.filter(|size| self.may_found(*size)).try_for_each(|size| self.founds(size).map(drop))
    }

    /// Refuses a name and addresses that no node can have, whether it keeps logs or not.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn check_reach(&self) -> Result<(), ConfigError> {
        if !is_name(&self.name) {
            return Err(ConfigError::Name { name: self.name.clone() });
        }
        let listen = Route::Address(self.listen);
        let mut routes = self.routes.iter().chain([&listen]);
        if self.key.is_none()
            && !self.may_be_open
            && let Some(route) = routes.find(|route| !route.is_loopback())
        {
            return Err(ConfigError::NotLoopback { route: route.clone() });
        }
        Ok(())
    }
}

/// True if a catalog is in etcd.
pub(crate) fn is_in_etcd(catalog: &str) -> bool {
    catalog.starts_with("etcd://") || catalog.starts_with("etcds://")
}

/// Reads the address of a catalog outside the nodes, as what opens it does. Whether anything is there shows then.
///
/// # Errors
/// It is none; the text has no secret.
fn check_catalog(catalog: &str) -> Result<(), ConfigError> {
    if is_in_etcd(catalog) {
        return check_etcd(catalog);
    }
    check_url(catalog).map_err(|error| ConfigError::Catalog { why: error.to_string() })
}

#[cfg(feature = "etcd")]
fn check_etcd(catalog: &str) -> Result<(), ConfigError> {
    let address = nuthatch_etcd::Address::parse(catalog);
    address.map(drop).map_err(|error| ConfigError::Catalog { why: error.to_string() })
}

/// That this build has no etcd is said when the catalog is to be opened.
#[cfg(not(feature = "etcd"))]
fn check_etcd(_: &str) -> Result<(), ConfigError> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_catalog_has_an_address() {
        let routes = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"];
        let with = |catalog: &str| {
            let catalog = catalog.to_owned();
            ClusterConfig { catalog, ..config("n1", "127.0.0.1:1", &routes) }.check()
        };
        for catalog in [BUILT_IN, "file:///c", "file:/c", "S3://b/c", "gs://b", "etcds://h:2379/c"]
        {
            assert_eq!(with(catalog), Ok(()), "{catalog}");
        }
        let of_etcd: &[&str] = if cfg!(feature = "etcd") {
            &["etcd://h:2379", "etcd://root:secret@h:1/c"]
        } else {
            &[]
        };
        let others = ["builtin", "", "/shared/c", "ftp://h", "s3://", "s3://key:secret@b/c"];
        for catalog in others.iter().chain(of_etcd) {
            let error = with(catalog).expect_err("it is none").to_string();
            assert!(error.contains("'built-in'") && !error.contains("secret"), "{error}");
        }
    }

    fn config(name: &str, listen: &str, routes: &[&str]) -> ClusterConfig {
        ClusterConfig {
            name: name.to_owned(),
            listen: listen.parse().expect("an address"),
            routes: routes.iter().map(|route| route.parse().expect("a route")).collect(),
            catalog: "file:///nowhere".to_owned(),
            dir: PathBuf::new(),
            key: None,
            may_be_open: false,
            logs: Logs::PerNode(1),
            memory: None,
            store: None,
            replace_after: None,
            lease: LEASE,
            zone: None,
            owner_zones: vec![],
            protocol_max: Protocol::NEWEST,
            keys: KeyNames::default(),
            program: String::new(),
        }
    }

    #[test]
    fn logs_in_a_bucket_need_a_catalog_outside_the_nodes() {
        let routes = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"];
        let with = |catalog: &str| ClusterConfig {
            catalog: catalog.to_owned(),
            store: Some("file:///b".to_owned()),
            memory: Some(0),
            ..config("n1", "127.0.0.1:1", &routes)
        };
        let founded = with("file:///c").founds(3).expect("it can be");
        assert!(founded.are_in_bucket() && founded.memory().is_some());
        assert_eq!(with(BUILT_IN).check(), Err(ConfigError::BucketBuiltIn));
    }

    #[test]
    fn a_cluster_has_as_many_logs_as_nodes_unless_it_is_told_otherwise() {
        let all = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"];
        let with = |logs| ClusterConfig { logs, ..config("n1", "127.0.0.1:1", &all) };
        assert_eq!(with(Logs::PerNode(1)).founds(3).map(LogCount::get), Ok(3));
        assert_eq!(with(Logs::PerNode(2)).founds(5).map(LogCount::get), Ok(10));
        assert_eq!(with(Logs::Count(1)).founds(3), Ok(LogCount::ONE));
        assert_eq!(with(Logs::Count(15)).founds(3), Ok(LogCount::MAX));
        let memory = ClusterConfig { memory: Some(0), ..with(Logs::Count(15)) };
        assert_eq!(memory.founds(3), Ok(LogCount::MOST));
        for (logs, count) in
            [(Logs::Count(0), 0), (Logs::PerNode(6), 18), (Logs::PerNode(255), 255)]
        {
            let error = with(logs).check().expect_err("none, or too many");
            assert_eq!(error, ConfigError::Logs { count });
            assert!(error.to_string().contains("1 to 15 quorum logs"), "{error}");
        }
    }

    #[test]
    fn nodes_are_replaced_after_what_a_start_takes() {
        let routes = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"];
        let with = |catalog: &str, seconds| ClusterConfig {
            catalog: catalog.to_owned(),
            replace_after: Some(Duration::from_secs(seconds)),
            ..config("n1", "127.0.0.1:1", &routes)
        };
        assert_eq!(with(BUILT_IN, 10).check(), Ok(()));
        assert_eq!(with("file:///c", 10).check(), Ok(()));
        let soon = with(BUILT_IN, 9).check().expect_err("it may just start again");
        assert!(soon.to_string().contains("9s may just start again: at least 10s"), "{soon}");
    }

    #[test]
    fn owners_are_in_no_more_zones_than_there_are_nodes() {
        let routes = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"];
        let with = |count: usize| ClusterConfig {
            owner_zones: (0..count).map(|at| at.to_string().parse().expect("a zone")).collect(),
            ..config("n1", "127.0.0.1:1", &routes)
        };
        assert_eq!(with(OWNER_ZONES_MAX).check(), Ok(()));
        assert_eq!(with(9).check(), Err(ConfigError::OwnerZones { count: 9 }));
    }

    #[test]
    fn its_own_address_and_doubles_do_not_count() {
        let all = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3", "127.0.0.1:2"];
        let node = config("n1", "127.0.0.1:1", &all);
        assert_eq!((node.sizes(), node.check()), (3..=3, Ok(())));
        for catalog in [BUILT_IN, "file:///c"] {
            let listing = |count: u16| {
                let routes: Vec<_> = (2..=count).map(|port| format!("127.0.0.1:{port}")).collect();
                let routes: Vec<&str> = routes.iter().map(String::as_str).collect();
                let catalog = catalog.to_owned();
                ClusterConfig { catalog, ..config("n1", "127.0.0.1:1", &routes) }
            };
            let is_taken = |count: u16| listing(count).check().is_ok();
            assert!(!is_taken(1) && (2..=40).all(is_taken) && !is_taken(41), "{catalog}");
            assert!(listing(3).may_found(3) && !listing(4).may_found(4), "four can only join");
        }
    }

    #[test]
    fn one_of_the_names_may_be_its_own() {
        let open = |routes: &[&str]| ClusterConfig {
            may_be_open: true,
            ..config("n1", "127.0.0.1:1", routes)
        };
        let all = ["n1:1", "n2:1", "n3:1"];
        assert_eq!((open(&all).sizes(), open(&all).check()), (3..=4, Ok(())));
        assert_eq!((open(&all[1..]).sizes(), open(&all[1..]).check()), (2..=3, Ok(())));
        let five = open(&["n1:1", "n2:1", "n3:1", "n4:1", "n5:1"]);
        assert!(
            five.may_found(5) && !five.may_found(3),
            "names that are at one address are no fewer nodes"
        );
        assert_eq!((open(&all[..1]).may_found(2), open(&all[..1]).check()), (false, Ok(())));
        let key = config("n1", "127.0.0.1:1", &all).check().expect_err("they may be anywhere");
        assert!(key.to_string().contains("n1:1 is refused"), "{key}");
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

    #[test]
    fn a_lease_outlasts_a_beat_that_is_late_and_no_keepers_start() {
        let with = |lease_ms| {
            let lease = Duration::from_millis(lease_ms);
            ClusterConfig {
                lease,
                ..config("n1", "127.0.0.1:1", &["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"])
            }
            .check()
        };
        assert_eq!((with(100), with(200)), (Ok(()), Ok(())));
        for lease_ms in [0, 99, 201] {
            let lease = Duration::from_millis(lease_ms);
            assert_eq!(with(lease_ms), Err(ConfigError::Lease { lease }));
        }
        let text = with(99).expect_err("too short").to_string();
        assert_eq!(text, "lease: 100ms to 200ms can be, and 99ms cannot");
    }
}
