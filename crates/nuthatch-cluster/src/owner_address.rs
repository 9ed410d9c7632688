//! Which node takes clients, and where: asked on a connection of its own, as files are.
//!
//! A node that owns the log says where it listens for clients; every other one says nothing. Whoever asks does so
//! of all nodes at once, so that one that hangs holds up no answer of another.

use crate::channel::Channel;
use crate::hello::Lane;
use crate::links::{Local, connect};
use crate::transfer::{put_answer, read_answer};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// How long a node may take to say whether it owns the log.
const ANSWER_WITHIN: Duration = Duration::from_millis(500);

/// Bytes of a host's name at most, as the domain name system has it.
const HOST_MAX: usize = 255;

/// Bytes of an answer at most: a host in brackets and a port.
const ANSWER_MAX: u32 = 300;

/// Where a node takes clients, as it says itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientAddress {
    host: String,
    port: u16,
}

impl ClientAddress {
    /// An address by its host, a name or a number, and its port. `None`: the host is longer than names are.
    #[must_use]
    pub fn new(host: &str, port: u16) -> Option<Self> {
        (1..=HOST_MAX).contains(&host.len()).then(|| Self { host: host.to_owned(), port })
    }

    fn encode(&self) -> String {
        format!("{} {}", self.port, self.host)
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (port, host) = std::str::from_utf8(bytes).ok()?.split_once(' ')?;
        Self::new(host, port.parse().ok()?)
    }

    /// The address to connect to. A node that listens everywhere is found where its node port was.
    fn resolve(&self, node: IpAddr) -> io::Result<SocketAddr> {
        let host = self.host.trim_start_matches('[').trim_end_matches(']');
        match host.parse::<IpAddr>() {
            Ok(ip) if ip.is_unspecified() => Ok(SocketAddr::new(node, self.port)),
            Ok(ip) => Ok(SocketAddr::new(ip, self.port)),
            Err(_) => {
                let found = (host, self.port).to_socket_addrs()?.next();
                found.ok_or_else(|| io::ErrorKind::NotFound.into())
            }
        }
    }
}

/// Tells a node that asks.
///
/// # Errors
/// The connection's.
pub fn answer(mut channel: Channel, local: &dyn Local) -> io::Result<()> {
    let address = local.client_address().map(|address| address.encode());
    put_answer(&mut channel, address.unwrap_or_default().as_bytes())
}

/// Where the owner takes clients, if one of these nodes says that it is the owner.
#[must_use]
pub fn find(nodes: &[SocketAddr], local: &Arc<dyn Local>) -> Option<SocketAddr> {
    let (found, first) = channel();
    for &node in nodes {
        let (found, local) = (found.clone(), Arc::clone(local));
        // Without a thread this node is not asked this time.
        drop(thread::Builder::new().name("node-ask".to_owned()).spawn(move || {
            if let Ok(Some(address)) = ask(node, &*local) {
                // Another one may have answered first.
                let _ = found.send(address);
            }
        }));
    }
    drop(found);
    // A name may take longer to be looked up.
    first.recv_timeout(ANSWER_WITHIN).ok()
}

fn ask(node: SocketAddr, local: &dyn Local) -> io::Result<Option<SocketAddr>> {
    let deadline = Instant::now() + ANSWER_WITHIN;
    let (mut channel, _) = connect(node, Lane::Owner, local, deadline)?;
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    channel.begun(left, left)?;
    let answer = read_answer(&mut channel, ANSWER_MAX)?;
    ClientAddress::decode(&answer).map(|address| address.resolve(node.ip())).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_comes_back_and_is_found() {
        let node: IpAddr = "10.1.2.3".parse().expect("an address");
        for (host, found) in [
            ("127.0.0.1", "127.0.0.1:4222"),
            ("0.0.0.0", "10.1.2.3:4222"),
            ("::", "10.1.2.3:4222"),
            ("[::1]", "[::1]:4222"),
        ] {
            let address = ClientAddress::new(host, 4222).expect("an address");
            let read = ClientAddress::decode(address.encode().as_bytes());
            assert_eq!(read.as_ref(), Some(&address));
            assert_eq!(address.resolve(node).expect("found").to_string(), found);
        }
    }

    #[test]
    fn what_is_no_address_is_none() {
        for bytes in [&b""[..], b"4222", b"x host", b"70000 host", b"1 ", b"\xff 1"] {
            assert_eq!(ClientAddress::decode(bytes), None, "{bytes:?}");
        }
        assert_eq!(ClientAddress::new("", 1), None);
        assert_eq!(ClientAddress::new(&"h".repeat(HOST_MAX + 1), 1), None);
    }
}
