//! What connections for messages of clients ask of the cluster, from a node that keeps logs and from one without JetStream.

use crate::cluster::Cluster;
use crate::key::ClusterKey;
use crate::link_hello::TOLD_MAX;
use crate::myself::OnLink;
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// A node of a cluster, as its connections for messages of clients know it.
pub trait Membership: Send + Sync + 'static {
    /// The cluster.
    fn id(&self) -> u128;

    /// What the nodes know each other by, if they have a key.
    fn key(&self) -> Option<&ClusterKey>;

    /// Node ports of the other nodes, as they are now.
    fn others(&self) -> Vec<SocketAddr>;

    /// Node ports that this node tells those without JetStream, which it knows itself and has not only heard of.
    fn tells(&self) -> Vec<SocketAddr>;

    /// The names of the nodes that were removed, as this one knows.
    fn removed(&self) -> BTreeSet<String>;

    /// True if a node of the catalog has this name, as this one knows.
    fn has(&self, name: &str) -> bool;

    /// The names of the cluster's quorum logs.
    fn log_names(&self) -> Vec<String>;

    /// Where this node listens, where it is a node without JetStream: those are in no catalog, and tell it themselves.
    fn core_port(&self) -> Option<SocketAddr>;

    /// Says who takes connections of other nodes for messages of clients; only the first call has an effect.
    fn take_links(&self, taker: OnLink);

    /// Tells people of a connection of another node, unless too much was told of them lately.
    fn report_link(&self, text: &str);
}

impl Membership for Cluster {
    fn id(&self) -> u128 {
        Self::id(self)
    }

    fn key(&self) -> Option<&ClusterKey> {
        Self::key(self)
    }

    fn others(&self) -> Vec<SocketAddr> {
        Self::others(self)
    }

    fn tells(&self) -> Vec<SocketAddr> {
        Self::others(self)
    }

    fn removed(&self) -> BTreeSet<String> {
        Self::removed(self)
    }

    fn has(&self, name: &str) -> bool {
        self.knows(name)
    }

    fn log_names(&self) -> Vec<String> {
        self.logs().iter().map(|log| log.name()).take(TOLD_MAX).collect()
    }

    fn core_port(&self) -> Option<SocketAddr> {
        None
    }

    fn take_links(&self, taker: OnLink) {
        Self::take_links(self, taker);
    }

    fn report_link(&self, text: &str) {
        Self::report_link(self, text);
    }
}
