//! What two nodes say to each other before messages go: read and written on any stream.

use crate::account::Account;
use crate::server::Server;
use nuthatch_cluster::Cluster;
use nuthatch_cluster::link_hello::{LinkHello, LinkVersion, Verdict};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Bytes that are read at once while a hello comes.
const READ_BYTES: usize = 4096;

/// What is known of this node for a hello.
pub(super) struct Greeter<'a> {
    pub(super) server: &'a Server,
    pub(super) cluster: &'a Cluster,
    pub(super) name: &'a str,
}

impl Greeter<'_> {
    /// The hello of this node for a connection of this account.
    pub(super) fn hello(&self, account: &str, verdict: Verdict) -> LinkHello {
        LinkHello {
            cluster: self.cluster.id(),
            node: self.name.to_owned(),
            server: self.server.name.clone(),
            account: account.to_owned(),
            clients: vec![self.server.client_url()],
            is_leaving: self.server.lame_duck.load(Ordering::Relaxed),
            verdict,
            version: LinkVersion::NEWEST,
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
        match peer.node.as_str().cmp(self.name) {
            std::cmp::Ordering::Equal => return Err(Verdict::SameName),
            std::cmp::Ordering::Greater => return Err(Verdict::Reversed),
            std::cmp::Ordering::Less => {}
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
    use super::named;

    #[test]
    fn a_node_that_listens_everywhere_is_where_its_node_port_is() {
        let four = "10.1.2.3".parse().expect("an address");
        let six = "2001:db8::1".parse().expect("an address");
        assert_eq!(named("0.0.0.0:4222", four), "10.1.2.3:4222");
        assert_eq!(named("[::]:4222", six), "[2001:db8::1]:4222");
        assert_eq!(named("example.org:4222", four), "example.org:4222");
    }
}
