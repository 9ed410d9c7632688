//! Sockets without a client library: what is sent and what comes back are bytes.

use crate::support::TIMEOUT;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A connection.
pub struct Raw {
    /// The socket itself.
    pub socket: TcpStream,
}

impl Raw {
    pub fn open(address: &str) -> Self {
        let socket = TcpStream::connect(address).expect("it listens");
        socket.set_nodelay(true).expect("sets");
        socket.set_write_timeout(Some(TIMEOUT)).expect("sets");
        Self { socket }
    }

    /// One of a user whose password is its name, past the greeting.
    pub fn client(address: &str, user: &str) -> Self {
        let mut raw = Self::open(address);
        let connect = format!(
            "CONNECT {{\"user\":\"{user}\",\"pass\":\"{user}\",\"verbose\":false,\"headers\":true}}\r\n"
        );
        raw.send(connect.as_bytes());
        let told = raw.exchange(b"PING\r\n", b"PONG\r\n", TIMEOUT);
        assert!(told.ends_with(b"PONG\r\n"), "{}", told.escape_ascii());
        raw
    }

    /// True if all of it was taken.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        self.socket.write_all(bytes).is_ok()
    }

    /// Sends and reads up to `end`, the end of the connection or of the time.
    pub fn exchange(&mut self, bytes: &[u8], end: &[u8], limit: Duration) -> Vec<u8> {
        self.send(bytes);
        self.read_until(end, limit).0
    }

    /// What comes up to `end`, and whether the connection has ended.
    pub fn read_until(&mut self, end: &[u8], limit: Duration) -> (Vec<u8>, bool) {
        let (mut all, deadline) = (Vec::new(), Instant::now() + limit);
        let mut chunk = vec![0; 64 << 10];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || (!end.is_empty() && all.ends_with(end)) {
                return (all, false);
            }
            self.socket.set_read_timeout(Some(left)).expect("sets");
            match self.socket.read(&mut chunk) {
                Ok(0) => return (all, true),
                Ok(count) => all.extend_from_slice(&chunk[..count]),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => return (all, true),
            }
        }
    }

    /// Reads and forgets until the other side closes; whether it did in time.
    pub fn is_closed_within(&mut self, limit: Duration) -> bool {
        self.read_until(b"", limit).1
    }
}

/// A GET over HTTP: its status and body.
pub fn get(address: &str, path: &str, limit: Duration) -> Result<(u16, Vec<u8>), String> {
    let mut raw = Raw { socket: TcpStream::connect(address).map_err(|e| format!("{path}: {e}"))? };
    raw.send(format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes());
    let (all, _) = raw.read_until(b"", limit);
    let text = String::from_utf8_lossy(&all[..all.len().min(64)]).into_owned();
    let status = text.split(' ').nth(1).and_then(|code| code.parse().ok());
    let head = all.windows(4).position(|four| four == b"\r\n\r\n").map_or(all.len(), |at| at + 4);
    status.map(|status| (status, all[head..].to_vec())).ok_or(format!("{path}: no answer"))
}
