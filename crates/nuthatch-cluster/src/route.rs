//! Where another node listens, as this one was told.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::str::FromStr;

/// Bytes of a name at most (RFC 1035).
const HOST_MAX: usize = 253;

/// Why a text is no route.
const NO_ROUTE: &str =
    "write an address or a name, and a port, such as 10.0.0.1:6222 or n1.example.org:6222";

/// An address for documentation (RFC 5737), which no machine has.
const NOBODYS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// An address, or a name that stands for one node.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Route {
    /// An address.
    Address(SocketAddr),
    /// A name, which is looked up again and again.
    Name {
        /// The name of the machine.
        host: String,
        /// The port.
        port: u16,
    },
}

impl Route {
    /// True if it can be nowhere but on this machine, whatever a name server says.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        matches!(self, Self::Address(address) if address.ip().is_loopback())
    }
}

impl From<SocketAddr> for Route {
    fn from(address: SocketAddr) -> Self {
        Self::Address(address)
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

impl FromStr for Route {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        let (host, port) = text.rsplit_once(':').ok_or(NO_ROUTE)?;
        let port = port.parse().ok().filter(|port| *port > 0);
        let port = port.ok_or("the port must be a number from 1 to 65535")?;
        if host.eq_ignore_ascii_case("localhost") {
            return Ok(Self::Address((IpAddr::V4(Ipv4Addr::LOCALHOST), port).into()));
        }
        match is_host(host) {
            true => Ok(Self::Name { host: host.to_ascii_lowercase(), port }),
            false => Err(NO_ROUTE),
        }
    }
}

/// True if a node listens there that listens at `listen`: there, or on all of this machine's addresses of which this is one.
pub(crate) fn is_own(listen: SocketAddr, address: SocketAddr) -> bool {
    let can_bind = |ip: IpAddr| UdpSocket::bind((ip, 0)).is_ok();
    let is_here = || {
        can_bind(address.ip())
            // Where addresses of others can be bound (`ip_nonlocal_bind`), that tells nothing.
            && !can_bind(NOBODYS)
    };
    let any = listen.ip().is_unspecified() && listen.port() == address.port();
    address == listen || (any && is_here())
}

/// True for what may be the name of a machine. What looks like an address and is none, is none.
fn is_host(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    let text = text.strip_suffix('.').unwrap_or(text);
    let is_number = |label: &str| label.bytes().all(|byte| byte.is_ascii_digit());
    text.len() <= HOST_MAX
        && text.split('.').all(is_label)
        && !text.rsplit('.').next().is_some_and(is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_are_routes() {
        let name = |host: &str, port| Ok(Route::Name { host: host.to_owned(), port });
        let address = |text: &str| Ok(Route::Address(text.parse().expect("an address")));
        for (text, expected) in [
            ("10.0.0.1:6222", address("10.0.0.1:6222")),
            ("[::1]:6222", address("[::1]:6222")),
            ("localhost:1", address("127.0.0.1:1")),
            ("n1:6222", name("n1", 6222)),
            ("N1.Example.org:6222", name("n1.example.org", 6222)),
            (
                "nats-0.nats.default.svc.cluster.local.:6222",
                name("nats-0.nats.default.svc.cluster.local.", 6222),
            ),
            ("my_service:6222", name("my_service", 6222)),
            ("3com.example:1", name("3com.example", 1)),
        ] {
            assert_eq!(text.parse::<Route>(), expected, "{text}");
            assert_eq!(
                text.parse::<Route>().map(|route| route.to_string().parse()),
                Ok(expected),
                "{text}"
            );
        }
        for none in [
            "n1",
            "n1:",
            "n1:0",
            "n1:70000",
            ":1",
            "10.0.0.300:1",
            "1:2",
            "a..b:1",
            "-a:1",
            "a b:1",
            "::1:5",
            "[n1]:5",
        ] {
            assert!(none.parse::<Route>().is_err(), "{none}");
        }
        assert!("127.0.0.1:1".parse::<Route>().is_ok_and(|route| route.is_loopback()));
        assert!("n1:1".parse::<Route>().is_ok_and(|route| !route.is_loopback()));
    }
}
