//! The PROXY protocol, versions 1 and 2: a load balancer says in front of what its client sends who that is.
//!
//! The rules are those of nats-server 2.15: the header may be missing (whoever connects directly sends none), `LOCAL` and
//! `UNKNOWN` leave the socket's own address, and what begins as a header and is none ends the connection. The header is
//! believed whoever sends it, so with `proxy_protocol` the port must be out of others' reach.

use crate::socket::Socket;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tokio::io::{AsyncReadExt, copy, sink};
use tokio::net::TcpStream;

/// How long a client may take for its first bytes.
const HEADER_TIME: Duration = Duration::from_secs(5);
/// Between two looks at a header that has come in part.
const PART_WAIT: Duration = Duration::from_millis(2);
const V1_PREFIX: &[u8] = b"PROXY ";
/// Longest line of version 1, with its CRLF.
const V1_LINE_MAX: usize = 107;
const V2_SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, version and command, family and transport, length of the rest.
const V2_FIXED: usize = 16;
const V2_ADDRESSES_V4: usize = 12;
const V2_ADDRESSES_V6: usize = 36;
/// What of a header is looked at; the rest of one of version 2 (TLVs) is passed over.
const LOOK: usize = 128;

/// Why a connection's PROXY header is not taken.
#[derive(Debug, Error)]
pub(super) enum HeaderError {
    /// What has come is not the beginning of anything within the time.
    #[error("nothing to tell its PROXY header by came within 5 s")]
    Late,
    /// The client has gone, or its socket failed.
    #[error("{0}")]
    Socket(#[from] io::Error),
    /// It begins as a header and is none.
    #[error("invalid PROXY protocol header: {0}")]
    Invalid(&'static str),
    /// A header of something that is no TCP connection.
    #[error("unsupported PROXY protocol feature: {0}")]
    Unsupported(&'static str),
}

/// What the first bytes of a connection are.
#[derive(PartialEq, Eq, Debug)]
enum Beginning {
    /// There is no header.
    NoHeader,
    /// It cannot be told yet.
    Partial,
    /// A header of so many bytes.
    Header { len: usize, client: Option<SocketAddr> },
}

/// Takes the header off the socket, if there is one. `None`: the socket's own address holds.
///
/// # Errors
/// [`HeaderError`]: the connection is to be closed.
pub(super) async fn read_header(
    stream: &Arc<TcpStream>,
) -> Result<Option<SocketAddr>, HeaderError> {
    tokio::time::timeout(HEADER_TIME, take_header(stream)).await.unwrap_or(Err(HeaderError::Late))
}

async fn take_header(stream: &Arc<TcpStream>) -> Result<Option<SocketAddr>, HeaderError> {
    let mut first = [0; LOOK];
    loop {
        let count = stream.peek(&mut first).await?;
        if count == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        match beginning(&first[..count])? {
            Beginning::NoHeader => return Ok(None),
            Beginning::Partial => tokio::time::sleep(PART_WAIT).await,
            Beginning::Header { len, client } => {
                let mut socket = Socket(stream.clone()).take(len as u64);
                let passed = copy(&mut socket, &mut sink()).await?;
                if passed < len as u64 {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                }
                return Ok(client);
            }
        }
    }
}

fn beginning(bytes: &[u8]) -> Result<Beginning, HeaderError> {
    let shared = |prefix: &[u8]| bytes.iter().zip(prefix).all(|(have, want)| have == want);
    if shared(V1_PREFIX) {
        return if bytes.len() < V1_PREFIX.len() { Ok(Beginning::Partial) } else { v1(bytes) };
    }
    // As upstream: six bytes tell a header of version 2 from none, and then it must be one.
    if !shared(&V2_SIGNATURE[..V1_PREFIX.len()]) {
        return Ok(Beginning::NoHeader);
    }
    if !shared(V2_SIGNATURE) {
        return Err(HeaderError::Invalid("invalid signature"));
    }
    if bytes.len() < V2_FIXED { Ok(Beginning::Partial) } else { v2(bytes) }
}

fn v1(bytes: &[u8]) -> Result<Beginning, HeaderError> {
    let line = &bytes[..bytes.len().min(V1_LINE_MAX)];
    let end = line.windows(2).position(|two| two == b"\r\n");
    let Some(end) = end else {
        return if bytes.len() < V1_LINE_MAX {
            Ok(Beginning::Partial)
        } else {
            Err(HeaderError::Invalid("v1 line too long"))
        };
    };
    let len = end + 2;
    let line = std::str::from_utf8(&bytes[V1_PREFIX.len()..end])
        .map_err(|_| HeaderError::Invalid("v1 line is not text"))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    if words.first() == Some(&"UNKNOWN") {
        return Ok(Beginning::Header { len, client: None });
    }
    let [protocol, source, destination, source_port, destination_port] = words[..] else {
        return Err(HeaderError::Invalid("invalid v1 format"));
    };
    let source = v1_address(protocol, source)?;
    v1_address(protocol, destination)?;
    let port = v1_port(source_port)?;
    v1_port(destination_port)?;
    Ok(Beginning::Header { len, client: Some(SocketAddr::new(source.to_canonical(), port)) })
}

fn v1_address(protocol: &str, text: &str) -> Result<IpAddr, HeaderError> {
    let parsed = match protocol {
        "TCP4" => text.parse::<Ipv4Addr>().ok().map(IpAddr::from),
        "TCP6" => text.parse::<Ipv6Addr>().ok().map(IpAddr::from),
        _ => return Err(HeaderError::Invalid("the protocol is neither TCP4 nor TCP6")),
    };
    parsed.ok_or(HeaderError::Invalid("an address is none of its protocol"))
}

fn v1_port(text: &str) -> Result<u16, HeaderError> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let port = text.parse().ok().filter(|_| digits);
    port.ok_or(HeaderError::Invalid("a port is no number up to 65535"))
}

fn v2(bytes: &[u8]) -> Result<Beginning, HeaderError> {
    let (command, family) = (bytes[12], bytes[13]);
    let rest = usize::from(u16::from_be_bytes([bytes[14], bytes[15]]));
    let header = |client| Ok(Beginning::Header { len: V2_FIXED + rest, client });
    if command >> 4 != 2 {
        return Err(HeaderError::Invalid("its version is not 2"));
    }
    match command & 0xf {
        0 => return header(None),
        1 => {}
        _ => return Err(HeaderError::Invalid("unknown command")),
    }
    if family & 0xf != 1 {
        return Err(HeaderError::Unsupported("only the STREAM protocol is"));
    }
    let needed = match family >> 4 {
        0 => return header(None),
        1 => V2_ADDRESSES_V4,
        2 => V2_ADDRESSES_V6,
        _ => return Err(HeaderError::Unsupported("its address family")),
    };
    if rest < needed {
        return Err(HeaderError::Invalid("address data too short"));
    }
    let Some(addresses) = bytes.get(V2_FIXED..V2_FIXED + needed) else {
        return Ok(Beginning::Partial);
    };
    header(Some(v2_source(addresses)))
}

/// Source and destination address, source and destination port.
fn v2_source(addresses: &[u8]) -> SocketAddr {
    let ip = match addresses.first_chunk::<16>().filter(|_| addresses.len() == V2_ADDRESSES_V6) {
        Some(v6) => IpAddr::from(*v6),
        None => IpAddr::from([addresses[0], addresses[1], addresses[2], addresses[3]]),
    };
    let port = addresses.len() - 4;
    let port = u16::from_be_bytes([addresses[port], addresses[port + 1]]);
    SocketAddr::new(ip.to_canonical(), port)
}

#[cfg(test)]
mod tests;
