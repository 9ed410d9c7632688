//! A socket without a client on top: what is sent and what comes back are bytes.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Longest wait for the end that a `read` asks for.
const READ_LIMIT: Duration = Duration::from_secs(6);

/// Most bytes taken by one read, far above what a script provokes.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// A connection.
#[derive(Debug)]
pub struct RawConnection {
    socket: TcpStream,
    closed: bool,
}

impl RawConnection {
    /// Connects; nothing is sent.
    pub fn open(port: u16) -> io::Result<Self> {
        let socket = TcpStream::connect(("127.0.0.1", port))?;
        socket.set_nodelay(true)?;
        Ok(Self { socket, closed: false })
    }

    /// Sends bytes. That the server has closed shows when reading.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.socket.write_all(bytes) {
            Err(err)
                if !matches!(err.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) =>
            {
                Err(err)
            }
            _ => Ok(()),
        }
    }

    /// Reads until a `PONG` (`pong`), until the server closes (`close`), until the end of an INFO
    /// (`info`) or for so many milliseconds. `end` is as `close`, and tells a reset from an orderly end.
    pub fn read(&mut self, until: &str) -> Vec<u8> {
        let fixed = until.parse().map(Duration::from_millis);
        let deadline = Instant::now() + fixed.clone().unwrap_or(READ_LIMIT);
        let mut all = Vec::new();
        let mut how = &b"<closed>"[..];
        while !self.closed && all.len() < MAX_BYTES && !is_end(&all, until) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.socket.set_read_timeout(Some(left)).is_err() {
                break;
            }
            let mut chunk = [0; 16 * 1024];
            match self.socket.read(&mut chunk) {
                Ok(0) => self.closed = true,
                Ok(count) => all.extend_from_slice(&chunk[..count]),
                Err(err) if matches!(err.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(err) => {
                    self.closed = true;
                    if until == "end" && err.kind() == ErrorKind::ConnectionReset {
                        how = b"<reset>";
                    }
                }
            }
        }
        if self.closed {
            all.extend_from_slice(how);
        }
        all
    }
}

fn is_end(all: &[u8], until: &str) -> bool {
    match until {
        "pong" => all.ends_with(b"PONG\r\n") || contains(all, b"\r\nPONG\r\n"),
        "info" => contains(all, b"INFO ") && all.ends_with(b"\r\n"),
        _ => false,
    }
}

fn contains(all: &[u8], part: &[u8]) -> bool {
    all.windows(part.len()).any(|window| window == part)
}
