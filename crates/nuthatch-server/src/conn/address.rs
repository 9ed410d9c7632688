//! The address of a connection's peer.

use std::fmt;
use std::net::SocketAddr;
use std::sync::OnceLock;

/// Where a connection comes from: the peer of its socket, or who a proxy in between says that it is.
pub struct PeerAddress {
    accepted: SocketAddr,
    proxied: OnceLock<SocketAddr>,
}

impl PeerAddress {
    pub(crate) fn new(accepted: SocketAddr) -> Self {
        Self { accepted, proxied: OnceLock::new() }
    }

    /// The address that everything but the socket goes by: permissions of users, limits, monitoring, log lines.
    pub fn get(&self) -> SocketAddr {
        *self.proxied.get().unwrap_or(&self.accepted)
    }

    /// True if a proxy named the client.
    pub(crate) fn is_proxied(&self) -> bool {
        self.proxied.get().is_some()
    }

    /// Notes whom a proxy named, once and before anything else has been read.
    ///
    /// # Panics
    /// When one was named before.
    pub(crate) fn set_proxied(&self, client: SocketAddr) {
        assert!(self.proxied.set(client).is_ok(), "a connection has one PROXY header");
    }
}

impl fmt::Debug for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.get(), f)
    }
}
