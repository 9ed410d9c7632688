//! What two nodes say to each other before messages go: read and written on any stream.

use crate::account::Account;
use crate::server::Server;
use nuthatch_cluster::Membership;
use nuthatch_cluster::link_hello::{Beyond, LinkHello, LinkVersion, TOLD_MAX, Verdict};
use std::cmp::Ordering as Order;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Bytes that are read at once while a hello comes.
const READ_BYTES: usize = 4096;

/// What is known of this node for a hello.
pub(super) struct Greeter<'a> {
    pub(super) server: &'a Server,
    pub(super) cluster: &'a dyn Membership,
    pub(super) name: &'a str,
}

impl Greeter<'_> {
    /// The hello of this node that begins a connection of this account.
    pub(super) fn begins(&self, account: &str) -> LinkHello {
        let is_core = self.cluster.core_port().is_some();
        self.hello(account, Verdict::Welcome, is_core)
    }

    /// The hello of this node that answers another one's.
    pub(super) fn answers(&self, peer: &LinkHello, verdict: Verdict) -> LinkHello {
        self.hello(&peer.account, verdict, peer.beyond.is_some())
    }

    fn hello(&self, account: &str, verdict: Verdict, goes_beyond: bool) -> LinkHello {
        LinkHello {
            cluster: self.cluster.id(),
            node: self.name.to_owned(),
            server: self.server.name.clone(),
            account: account.to_owned(),
            clients: vec![self.server.client_url()],
            is_leaving: self.server.lame_duck.load(Ordering::Relaxed),
            verdict,
            version: if goes_beyond { LinkVersion::NEWEST } else { LinkVersion::PLAIN },
            beyond: goes_beyond.then(|| self.beyond()),
        }
    }

    /// True if a node that keeps logs, or a spare, has this name.
    fn is_keepers(&self, name: &str) -> bool {
        self.cluster.has(name) || self.server.nodes.is_keeper(name)
    }

    /// What this node tells one without JetStream, or as one.
    fn beyond(&self) -> Beyond {
        let listens = self.cluster.core_port();
        let nodes = self.cluster.tells().into_iter().chain(self.server.nodes.core_ports());
        Beyond {
            is_core: listens.is_some(),
            listens,
            nodes: nodes.take(TOLD_MAX).collect(),
            logs: self.cluster.log_names(),
        }
    }

    /// What becomes of the connection of a node that has said this, and its account.
    pub(super) fn judge(&self, peer: &LinkHello) -> Result<Arc<Account>, Verdict> {
        if peer.cluster != self.cluster.id() {
            return Err(Verdict::OtherCluster);
        }
        if self.cluster.removed().contains(&peer.node) {
            return Err(Verdict::Removed);
        }
        let of_core = peer.beyond.as_ref().is_some_and(|beyond| beyond.is_core);
        let is_core = self.cluster.core_port().is_some();
        match (peer.node.as_str().cmp(self.name), of_core, is_core) {
            (Order::Equal, ..) => return Err(Verdict::SameName),
            // In no catalog, it may be called as one that is.
            (_, true, _) if self.is_keepers(&peer.node) => return Err(Verdict::SameName),
            // A node without JetStream connects to all that have it.
            (_, true, false) => {}
            (_, false, true) | (Order::Greater, ..) => return Err(Verdict::Reversed),
            (Order::Less, ..) => {}
        }
        if of_core && !self.server.nodes.has_room_for_core(&peer.node) {
            return Err(Verdict::Full);
        }
        self.server.accounts.by_name(&peer.account).ok_or(Verdict::NoAccount)
    }
}

/// Says a hello.
///
/// # Errors
/// The connection's, and that a name is too long.
pub(super) async fn say<W: AsyncWrite + Unpin>(to: &mut W, hello: &LinkHello) -> io::Result<()> {
    let bytes = hello.encode().map_err(invalid)?;
    to.write_all(&bytes).await?;
    to.flush().await
}

/// Reads a hello, and what came with it.
///
/// # Errors
/// The connection's, and that it is none.
pub(super) async fn hear<R: AsyncRead + Unpin>(from: &mut R) -> io::Result<(LinkHello, Vec<u8>)> {
    let mut bytes = Vec::with_capacity(READ_BYTES);
    loop {
        if from.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some((hello, used)) = LinkHello::decode(&bytes).map_err(invalid)? {
            return Ok((hello, bytes.split_off(used)));
        }
        bytes.reserve(READ_BYTES);
    }
}

fn invalid(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

/// The node port of a node without JetStream, for others: one that listens everywhere is found where it comes from.
pub(super) fn core_port_of(peer: &LinkHello, at: IpAddr) -> Option<SocketAddr> {
    let beyond = peer.beyond.as_ref().filter(|beyond| beyond.is_core)?;
    // One that does not say so is not found by others, and counts.
    let listens = beyond.listens.unwrap_or(SocketAddr::new(at, 0));
    let ip = if listens.ip().is_unspecified() { at.to_canonical() } else { listens.ip() };
    Some(SocketAddr::new(ip, listens.port()))
}

/// Where a node takes clients, for our own: one that listens everywhere is found where its node port is. None while it
/// is about to end.
pub(super) fn urls_of(peer: &LinkHello, at: IpAddr) -> Vec<String> {
    if peer.is_leaving {
        return Vec::new();
    }
    peer.clients.iter().map(|url| named(url, at)).collect()
}

fn named(url: &str, at: IpAddr) -> String {
    let everywhere = url.strip_prefix("0.0.0.0:").or_else(|| url.strip_prefix("[::]:"));
    match (everywhere, at.to_canonical()) {
        (None, _) => url.to_owned(),
        (Some(port), IpAddr::V4(ip)) => format!("{ip}:{port}"),
        (Some(port), IpAddr::V6(ip)) => format!("[{ip}]:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_without_jetstream_that_listens_everywhere_is_where_it_comes_from() {
        let at = "10.1.2.3".parse().expect("an address");
        let port = |listens: &str, is_core| {
            let listens = Some(listens.parse().expect("an address"));
            let beyond = Some(Beyond { is_core, listens, ..Beyond::default() });
            let texts = [String::new(), String::new(), String::new()];
            let [node, server, account] = texts;
            let (verdict, version) = (Verdict::Welcome, LinkVersion::NEWEST);
            let (cluster, clients, is_leaving) = (1, vec![], false);
            let hello = LinkHello {
                cluster,
                node,
                server,
                account,
                clients,
                is_leaving,
                verdict,
                version,
                beyond,
            };
            core_port_of(&hello, at).map(|port| port.to_string())
        };
        assert_eq!(port("0.0.0.0:6222", true).as_deref(), Some("10.1.2.3:6222"));
        assert_eq!(port("10.9.9.9:6222", true).as_deref(), Some("10.9.9.9:6222"));
        assert_eq!(port("10.9.9.9:6222", false), None);
    }

    #[test]
    fn a_node_that_listens_everywhere_is_where_its_node_port_is() {
        let four = "10.1.2.3".parse().expect("an address");
        let six = "2001:db8::1".parse().expect("an address");
        assert_eq!(named("0.0.0.0:4222", four), "10.1.2.3:4222");
        assert_eq!(named("[::]:4222", six), "[2001:db8::1]:4222");
        assert_eq!(named("example.org:4222", four), "example.org:4222");
    }
}
