//! Connections to other nodes, which are given up when the node ends.

use super::{Life, ends};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two looks whether the node ends.
const SLICE: Duration = Duration::from_millis(50);

impl Life {
    /// Connects, until `deadline` or the end.
    ///
    /// # Errors
    /// The connection's, and that the node ends.
    pub(crate) fn dial(
        &self,
        address: SocketAddr,
        deadline: Instant,
    ) -> io::Result<Arc<TcpStream>> {
        let domain = Domain::for_address(address);
        let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        match socket.connect(&address.into()) {
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {
                self.until_connected(&socket, deadline)?;
            }
            done => done?,
        }
        socket.set_nonblocking(false)?;
        self.track(socket.into())
    }

    fn until_connected(&self, socket: &Socket, deadline: Instant) -> io::Result<()> {
        loop {
            if self.is_ending() {
                return Err(ends());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let millis = left.min(SLICE).as_millis().max(1).try_into().expect("short");
            let mut asked =
                libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
            // SAFETY: `asked` is one valid place, and the socket is open while it is borrowed.
            let found = unsafe { libc::poll(&raw mut asked, 1, millis) };
            if found > 0 {
                return socket.take_error()?.map_or(Ok(()), Err);
            }
            if found < 0 {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }
}
