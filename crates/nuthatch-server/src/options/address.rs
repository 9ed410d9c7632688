//! Addresses, ports and paths as configured.

use nuthatch_protocol::config::{Node, Position, Value};

use super::DEFAULT_PORT;
use super::error::ProblemKind;
use super::read::ConfigReader;

/// A port as configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Port {
    /// 0: the default for clients, off for monitoring.
    Unset,
    /// -1: a free one.
    Any,
    /// This one.
    Fixed(u16),
}

impl Port {
    /// From a number that was checked to be from -1 to 65535.
    pub fn new(number: i64) -> Self {
        match u16::try_from(number) {
            Ok(0) => Port::Unset,
            Ok(port) => Port::Fixed(port),
            Err(_) => Port::Any,
        }
    }

    /// The port to bind for clients; 0 lets the system choose.
    pub fn for_clients(self) -> u16 {
        match self {
            Port::Unset => DEFAULT_PORT,
            Port::Any => 0,
            Port::Fixed(port) => port,
        }
    }

    /// The port to bind where nothing is bound by default.
    pub fn optional(self) -> Option<u16> {
        match self {
            Port::Unset => None,
            Port::Any => Some(0),
            Port::Fixed(port) => Some(port),
        }
    }
}

/// Value of `listen`, `http` and `https`.
pub(super) struct Listen {
    /// `None`: as elsewhere configured, else the default.
    pub host: Option<String>,
    pub port: Port,
}

pub(super) fn port(r: &mut ConfigReader, key: &str, value: &Value) -> Option<Port> {
    r.int(key, value, -1, i64::from(u16::MAX)).map(Port::new)
}

/// A port or `host:port`.
pub(super) fn listen(r: &mut ConfigReader, key: &str, value: &Value) -> Option<Listen> {
    if let Node::Int(_) = value.node {
        return port(r, key, value).map(|port| Listen { host: None, port });
    }
    let Node::Str(text) = &value.node else {
        let (key, found) = (key.to_owned(), value.node.type_name());
        let wanted = "a port or host:port";
        r.problem(&value.pos, ProblemKind::WrongType { key, wanted, found, advice: None });
        return None;
    };
    match split_host_port(text) {
        Ok((host, port)) => {
            let host = (!host.is_empty()).then(|| host.to_owned());
            Some(Listen { host, port })
        }
        Err(why) => {
            let (key, found) = (key.to_owned(), text.clone());
            r.problem(&value.pos, ProblemKind::Address { key, found, why });
            None
        }
    }
}

/// Splits `host:port`, `[v6]:port` and `:port`.
pub(super) fn split_host_port(text: &str) -> Result<(&str, Port), &'static str> {
    let (host, port) = text.rsplit_once(':').ok_or("write host:port")?;
    let host = match host.strip_prefix('[') {
        Some(v6) => v6.strip_suffix(']').ok_or("']' is missing")?,
        None if host.contains(':') => {
            return Err("put an IPv6 address in brackets: \"[::1]:4222\"");
        }
        None => host,
    };
    let port = port.parse::<i64>().ok().filter(|p| (-1..=i64::from(u16::MAX)).contains(p));
    Ok((host, Port::new(port.ok_or("the port must be a number from -1 to 65535")?)))
}

/// Checks `client_advertise`: a host, perhaps with a port.
pub(super) fn advertised(
    r: &mut ConfigReader,
    key: &str,
    pos: &Position,
    text: &str,
) -> Option<String> {
    if text.is_empty() {
        return None;
    }
    if let Err(why) = check_advertised(text) {
        let (key, found) = (key.to_owned(), text.to_owned());
        r.problem(pos, ProblemKind::Address { key, found, why });
        return None;
    }
    Some(text.to_owned())
}

/// Whether a text can be told to clients as our address.
pub(super) fn check_advertised(text: &str) -> Result<(), &'static str> {
    let bare_v6 = text.parse::<std::net::Ipv6Addr>().is_ok();
    if !text.contains(':') || bare_v6 {
        return Ok(());
    }
    match split_host_port(text)? {
        ("", _) => Err("write host:port"),
        (_, Port::Any) => Err("the port must be a number from 0 to 65535"),
        _ => Ok(()),
    }
}

/// A path that begins with `/`, has no empty or dotted parts, and ends without `/` unless it is
/// the root.
pub(super) fn base_path(text: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in text.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}
