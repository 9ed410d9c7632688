//! A connection between two nodes: plain on loopback, or secured by the cluster's key.

use crate::key::ClusterKey;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, ConnectionCommon, ServerConnection, StreamOwned};
use socket2::SockRef;
use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::ops::DerefMut;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The first byte of a TLS handshake.
pub const TLS_HANDSHAKE: u8 = 22;

/// A socket with a time until which what is under way must be done, however often the other side says a
/// little; without one each operation has the socket's own time.
#[derive(Debug)]
pub struct Socket {
    stream: Arc<TcpStream>,
    deadline: Option<Instant>,
}

impl Socket {
    fn limit(&self) -> io::Result<()> {
        let Some(deadline) = self.deadline else { return Ok(()) };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.set_write_timeout(Some(left))
    }

    /// Writes as much as the system takes without waiting, which may be nothing.
    fn send_now(&self, bytes: &[u8]) -> io::Result<usize> {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        match SockRef::from(&*self.stream).send_with_flags(bytes, flags) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            sent => sent,
        }
    }
}

impl Read for Socket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.limit()?;
        (&*self.stream).read(bytes)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.limit()?;
        (&*self.stream).write(bytes)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.limit()?;
        (&*self.stream).write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A socket without a key.
#[derive(Debug)]
pub struct Plain {
    socket: Socket,
    /// What [`Channel::write_now`] took and the system did not: it goes first.
    owed: Vec<u8>,
}

impl Plain {
    fn settle(&mut self) -> io::Result<()> {
        let owed = std::mem::take(&mut self.owed);
        self.socket.write_all(&owed)
    }
}

/// A connection between two nodes.
#[derive(Debug)]
pub enum Channel {
    /// Without a key.
    Plain(Plain),
    /// To a node that was connected to.
    Outward(Box<StreamOwned<ClientConnection, Socket>>),
    /// From a node that has connected.
    Inward(Box<StreamOwned<ServerConnection, Socket>>),
}

impl Channel {
    /// A connection that we have made. All of its beginning must be over by `deadline`.
    ///
    /// # Errors
    /// The connection's, and that the other side does not have the key.
    pub fn outward(
        stream: impl Into<Arc<TcpStream>>,
        key: Option<&ClusterKey>,
        deadline: Instant,
    ) -> io::Result<Self> {
        let mut socket = Socket { stream: stream.into(), deadline: Some(deadline) };
        let Some(key) = key else { return Ok(Self::plain(socket)) };
        // There is no name to be checked; the key is.
        let name = ServerName::try_from("node").expect("a name");
        let mut tls = ClientConnection::new(key.client.clone(), name).map_err(invalid)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut socket)?;
        }
        Ok(Self::Outward(Box::new(StreamOwned::new(tls, socket))))
    }

    /// A connection that somebody else has made. All of its beginning must be over by `deadline`.
    ///
    /// # Errors
    /// The connection's, and that the other side does not have the key.
    pub fn inward(
        stream: impl Into<Arc<TcpStream>>,
        key: Option<&ClusterKey>,
        deadline: Instant,
    ) -> io::Result<Self> {
        let mut socket = Socket { stream: stream.into(), deadline: Some(deadline) };
        let Some(key) = key else { return Ok(Self::plain(socket)) };
        let mut tls = ServerConnection::new(key.server.clone()).map_err(invalid)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut socket)?;
        }
        Ok(Self::Inward(Box::new(StreamOwned::new(tls, socket))))
    }

    fn plain(socket: Socket) -> Self {
        Self::Plain(Plain { socket, owed: vec![] })
    }

    /// Takes bytes, and writes what goes without waiting. True if all went; otherwise the rest goes with the next write
    /// or flush, before which this is not to be called again.
    ///
    /// # Errors
    /// The connection's: it is not to be used any more.
    pub fn write_now(&mut self, bytes: &[u8]) -> io::Result<bool> {
        match self {
            Self::Plain(plain) => {
                let sent = plain.socket.send_now(bytes)?;
                plain.owed.extend_from_slice(&bytes[sent..]);
                Ok(plain.owed.is_empty())
            }
            Self::Outward(tls) => write_now(&mut tls.conn, &tls.sock, bytes),
            Self::Inward(tls) => write_now(&mut tls.conn, &tls.sock, bytes),
        }
    }

    fn socket(&mut self) -> &mut Socket {
        match self {
            Self::Plain(plain) => &mut plain.socket,
            Self::Outward(tls) => &mut tls.sock,
            Self::Inward(tls) => &mut tls.sock,
        }
    }

    /// True if the other side has ended the connection, whatever it has said before.
    #[must_use]
    pub fn is_ended(&mut self) -> bool {
        let events = libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR;
        let fd = self.socket().stream.as_raw_fd();
        let mut asked = libc::pollfd { fd, events, revents: 0 };
        // SAFETY: `asked` is one valid place, and the socket is open while it is borrowed.
        let found = unsafe { libc::poll(&raw mut asked, 1, 0) };
        found > 0 && asked.revents & events != 0
    }

    /// The beginning is over: from now on each operation may take so long.
    ///
    /// # Errors
    /// The socket's.
    pub fn begun(&mut self, read: Duration, write: Duration) -> io::Result<()> {
        let socket = self.socket();
        socket.deadline = None;
        socket.stream.set_read_timeout(Some(read))?;
        socket.stream.set_write_timeout(Some(write))
    }
}

impl Read for Channel {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(plain) => plain.socket.read(bytes),
            Self::Outward(tls) => tls.read(bytes),
            Self::Inward(tls) => tls.read(bytes),
        }
    }
}

impl Write for Channel {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(plain) => {
                plain.settle()?;
                plain.socket.write(bytes)
            }
            Self::Outward(tls) => tls.write(bytes),
            Self::Inward(tls) => tls.write(bytes),
        }
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(plain) => {
                plain.settle()?;
                plain.socket.write_vectored(parts)
            }
            Self::Outward(tls) => tls.write_vectored(parts),
            Self::Inward(tls) => tls.write_vectored(parts),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(plain) => {
                plain.settle()?;
                plain.socket.flush()
            }
            Self::Outward(tls) => tls.flush(),
            Self::Inward(tls) => tls.flush(),
        }
    }
}

/// What the system takes of encrypted bytes without waiting.
struct Now<'a>(&'a Socket);

impl Write for Now<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.send_now(bytes)? {
            0 if !bytes.is_empty() => Err(io::ErrorKind::WouldBlock.into()),
            sent => Ok(sent),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_now<Side>(
    tls: &mut impl DerefMut<Target = ConnectionCommon<Side>>,
    socket: &Socket,
    bytes: &[u8],
) -> io::Result<bool> {
    tls.writer().write_all(bytes)?;
    while tls.wants_write() {
        match tls.write_tls(&mut Now(socket)) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_connection_that_the_other_side_has_ended_shows_it_behind_what_was_not_read() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
        let address = listener.local_addr().expect("bound");
        let stream = TcpStream::connect(address).expect("connects");
        let (mut other, _) = listener.accept().expect("accepts");
        let mut channel = Channel::outward(stream, None, Instant::now()).expect("without a key");
        assert!(!channel.is_ended());
        other.write_all(b"not read").expect("written");
        assert!(!channel.is_ended());
        drop(other);
        while !channel.is_ended() {
            std::thread::yield_now();
        }
    }
}
