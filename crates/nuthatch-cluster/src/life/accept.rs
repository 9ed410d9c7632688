//! Connections that others make, which are taken until the node ends.

use super::Life;
use socket2::SockRef;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// Before the next attempt where a connection could not be taken: without descriptors, which come back.
const RETRY: Duration = Duration::from_millis(50);

impl Life {
    /// Starts the thread that hands each connection which comes to `take`, until the end; `take` must not wait.
    ///
    /// # Errors
    /// The operating system has no thread to give, or no descriptor.
    pub(crate) fn accept(
        &self,
        listener: TcpListener,
        take: impl Fn(TcpStream, SocketAddr) + Send + 'static,
    ) -> io::Result<()> {
        let waking = listener.try_clone()?;
        // The thread that waits for a connection is woken.
        self.at_end(move || drop(SockRef::from(&waking).shutdown(Shutdown::Both)));
        let life = self.clone();
        self.spawn("node-port", move || {
            while !life.is_ending() {
                match listener.accept() {
                    Ok((stream, from)) => take(stream, from),
                    Err(_) => drop(life.pause(RETRY)),
                }
            }
        })
    }
}
