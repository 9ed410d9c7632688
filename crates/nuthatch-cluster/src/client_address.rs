//! Where a node takes clients.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};

/// Bytes of a host's name at most, as the domain name system has it.
const HOST_MAX: usize = 255;

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

    /// As nodes tell it to each other.
    #[must_use]
    pub fn encode(&self) -> String {
        format!("{} {}", self.port, self.host)
    }

    /// Reads it; none if it is none.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (port, host) = std::str::from_utf8(bytes).ok()?.split_once(' ')?;
        Self::new(host, port.parse().ok()?)
    }

    /// The address to connect to. A node that listens everywhere is found where its node port was.
    ///
    /// # Errors
    /// Its name is nobody's.
    pub fn resolve(&self, node: IpAddr) -> io::Result<SocketAddr> {
        let host = self.host.trim_start_matches('[').trim_end_matches(']');
        match host.parse::<IpAddr>() {
            Ok(ip) if ip.is_unspecified() => Ok(SocketAddr::new(node, self.port)),
            // Its own loopback is not ours.
            Ok(ip) if ip.is_loopback() && !node.is_loopback() => {
                Err(io::Error::other("it takes clients on its own loopback interface only"))
            }
            Ok(ip) => Ok(SocketAddr::new(ip, self.port)),
            Err(_) => {
                let found = (host, self.port).to_socket_addrs()?.next();
                found.ok_or_else(|| io::ErrorKind::NotFound.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_comes_back_and_is_found() {
        let node: IpAddr = "10.1.2.3".parse().expect("an address");
        let loopback: IpAddr = "127.0.0.1".parse().expect("an address");
        for (host, found) in [
            ("127.0.0.1", "127.0.0.1:4222"),
            ("0.0.0.0", "10.1.2.3:4222"),
            ("::", "10.1.2.3:4222"),
            ("[::1]", "[::1]:4222"),
        ] {
            let address = ClientAddress::new(host, 4222).expect("an address");
            let read = ClientAddress::decode(address.encode().as_bytes());
            assert_eq!(read.as_ref(), Some(&address));
            let from = if found.ends_with("4222") && host.contains('1') { loopback } else { node };
            assert_eq!(address.resolve(from).expect("found").to_string(), found);
            assert_eq!(address.resolve(node).is_ok(), !host.contains('1'), "{host}");
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
