//! Why a catalog cannot be used.

use crate::coding::Malformed;
use crate::config::home;
use nuthatch_object::BucketError;
use std::io;

/// Why a catalog cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// The bucket failed.
    #[error("the catalog cannot be reached: {0}")]
    Bucket(#[from] BucketError),
    /// etcd failed.
    #[cfg(feature = "etcd")]
    #[error("the catalog cannot be used: {0}")]
    Etcd(#[from] nuthatch_etcd::EtcdError),
    /// An object cannot be read.
    #[error("{key} of the catalog: {why}")]
    Object {
        /// Its key.
        key: String,
        /// Why not.
        why: Malformed,
    },
    /// Two disks say that they are the same node, and nothing was founded yet.
    #[error(
        "the catalog names disk {there:032x} for node {name}, which begins with {here:032x}: \
         remove found/{name} from the catalog if that disk is gone for good"
    )]
    TwoDisks {
        /// The node.
        name: String,
        /// The disk that is named.
        there: u128,
        /// This disk.
        here: u128,
    },
    /// More nodes have named their disks than are to found a cluster.
    #[error(
        "{expected} nodes are to found the cluster, as this one is told, and these have named their disks in the catalog: \
         {names}. Give all of them the same --routes, and remove found/NAME from the catalog for each that is none of them: it \
         joins later"
    )]
    TooMany {
        /// Those that have.
        names: String,
        /// How many are to.
        expected: usize,
    },
    /// Nodes that are to found a cluster have its logs in different places.
    #[error(
        "node {name} is to have the cluster's logs {}, and this one {}: set them up alike, and remove found/{name} from the \
         catalog, or found/ and this node's name, whichever was wrong",
        home(!in_bucket), home(*in_bucket)
    )]
    TwoHomes {
        /// The other node.
        name: String,
        /// Whether this one has them in a bucket.
        in_bucket: bool,
    },
    /// Nodes that are to found a cluster have its logs in different buckets.
    #[error(
        "node {name} has another bucket for the cluster's logs: its bucket is marked {there:032x}, and this node's {here:032x}. \
         No cluster is founded: give all nodes the same 'store', with the same endpoint, remove found/{name} from the \
         catalog if that one was wrong, and start it again"
    )]
    TwoBuckets {
        /// The other node, or this one as it started before.
        name: String,
        /// Its mark.
        there: u128,
        /// That of this node.
        here: u128,
    },
    /// The catalog does not name this node.
    #[error(
        "the cluster has the nodes {nodes}, and {name} is none of them: give this one its former --node-name, or have it join \
         with an empty directory"
    )]
    Stranger {
        /// This node.
        name: String,
        /// Those that there are.
        nodes: String,
    },
    /// The catalog is behind what this disk has seen.
    #[error(
        "the catalog went back: it is at revision {now}, and this disk has seen {seen}. It was restored \
         from a copy, or is another one; nothing is decided by it"
    )]
    WentBack {
        /// Its revision.
        now: u64,
        /// The greatest that was seen.
        seen: u64,
    },
    /// The catalog is behind what this node has read since it started.
    #[error(
        "the catalog went back: {key}, which this node has read, is gone from it, or is another one now. It was \
         restored from a copy, or is another one; nothing is decided by it"
    )]
    SetBack {
        /// Key of the object.
        key: String,
    },
    /// The catalog lacks changes of the nodes that a log has followed.
    #[error(
        "the catalog went back: its roster has {now} changes of the nodes, and log {log} has followed {followed}. It was \
         restored from a copy, or objects of roster/ are gone; nothing is decided by it"
    )]
    RosterWentBack {
        /// How often the nodes have changed, as the catalog says.
        now: u64,
        /// How often they had for the log.
        followed: u64,
        /// The log.
        log: u8,
    },
    /// The catalog is of another cluster.
    #[error("the catalog is of cluster {there:032x}, and this disk belongs to {here:032x}")]
    OtherCluster {
        /// The catalog's.
        there: u128,
        /// The disk's.
        here: u128,
    },
    /// No majority of the nodes answers: what became of a transaction is not known.
    #[error("the catalog cannot be reached: no majority of the nodes answers for it")]
    NoMajority,
    /// The disk failed.
    #[error("this node's disk, for the catalog: {0}{advice}", advice = room_advice(.0))]
    Disk(#[from] io::Error),
}

/// What helps where a disk is full.
fn room_advice(error: &io::Error) -> &'static str {
    match nuthatch_log::env::is_full(error) {
        true => {
            ". The disk with the node's directory (--store-dir, jetstream.store_dir) is full: nothing of the cluster is to be \
             deleted there by hand. Free some space on it or enlarge it, and start the node again"
        }
        false => "",
    }
}

impl CatalogError {
    /// True if what the catalog is kept in failed: asked again later it may answer.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Bucket(_) => true,
            #[cfg(feature = "etcd")]
            Self::Etcd(_) => true,
            _ => false,
        }
    }
}
