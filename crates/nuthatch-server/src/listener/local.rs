//! Clients of the same process: each has one end of a pair of sockets, the server the other one.
//!
//! The sockets have no address and no network below them; a pair instead of a pipe in memory, because delivering
//! threads write to the descriptor of a connection directly, and clients in other languages can use theirs.

use super::{Newcomer, register};
use crate::conn::Transport;
use crate::random::new_nonce;
use crate::server::Server;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::net::TcpStream;

/// Address of every client of this process, as monitoring shows it.
const HERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Connects: returns the client's end.
///
/// # Errors
/// The server takes no clients, or the system has no more descriptors.
pub(crate) fn connect(server: &Arc<Server>) -> io::Result<UnixStream> {
    let is_open = server.is_listening()
        && !server.stopping.load(Ordering::Relaxed)
        && !server.lame_duck.load(Ordering::Relaxed);
    let runtime = server.runtime().filter(|_| is_open);
    let Some(runtime) = runtime else {
        return Err(io::Error::new(io::ErrorKind::NotConnected, "the server takes no clients"));
    };
    let (theirs, ours) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let _inside = runtime.enter();
    // A descriptor of a stream is what a connection needs; whether TCP is below it makes no difference to it.
    let stream = TcpStream::from_std(std::net::TcpStream::from(OwnedFd::from(ours)))?;
    runtime.spawn(open(server.clone(), stream));
    Ok(theirs)
}

async fn open(server: Arc<Server>, stream: TcpStream) {
    let stream = Arc::new(stream);
    let id = server.connections.next_id();
    let conn = server.connect(id, HERE, Transport::Tcp);
    let nonce = if server.auth().needs_nonce() { new_nonce() } else { String::new() };
    let admitted = register(&server, &conn);
    conn.set_socket(stream.clone());
    let options = server.options();
    let newcomer = Newcomer { server, conn, stream, options, nonce, admitted };
    let greeting = newcomer.greeting().without_tls();
    newcomer.conn.outbox().set_socket(Some(newcomer.stream.clone()));
    newcomer.conn.send(&greeting.encode());
    newcomer.run_plain(false).await;
}
