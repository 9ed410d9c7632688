//! Accepting clients over websocket.

use super::{refuse_unless, register};
use crate::conn::{Connection, Transport};
use crate::leaf_service::accept::{UnderFrames, over_websocket};
use crate::ocsp_peers::{self, PeerKind};
use crate::options::WebsocketOptions;
use crate::random::new_nonce;
use crate::reader::ConnReader;
use crate::s2;
use crate::server::Server;
use crate::socket::{Socket, accept_each};
use crate::tls::{self, Secure, TlsInfo};
use crate::websocket::{Control, Input, Output, Refusal, Upgrade, read_request};
use crate::writer;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A refused client gets so long to take the answer.
const REFUSAL_TIME: Duration = Duration::from_secs(1);

/// Accepts websocket clients until the task is dropped.
pub async fn accept(server: Arc<Server>, listener: TcpListener) {
    let open = |stream, remote| open(server.clone(), stream, remote);
    accept_each(&listener, &server.log, || server.lame_duck.load(Ordering::Relaxed), open).await;
}

/// Shakes hands with a client, if it keeps to the time, and runs its connection.
async fn open(server: Arc<Server>, stream: TcpStream, remote: SocketAddr) {
    let _ = stream.set_nodelay(true);
    let options = server.options();
    let Some(options) = &options.websocket else { return };
    let stream = Arc::new(stream);
    let socket = Socket(stream.clone());
    let limit = options.handshake_timeout;
    match server.tls.websocket.load_full() {
        None => {
            let Some((socket, upgrade)) = upgrade_in(&server, options, socket, remote, limit).await
            else {
                return;
            };
            let output = Socket(stream.clone());
            if upgrade.is_leaf {
                return run_leaf(server, stream, (remote, None, upgrade), socket, output).await;
            }
            let conn = connect(&server, &stream, remote, upgrade);
            run(server, conn, stream, socket, output).await;
        }
        Some(config) => {
            let Some(tls) = &options.tls else { return };
            let secure = tls::handshake(&server.log, &remote, &config, socket, tls.timeout).await;
            let Some(secure) = secure else { return };
            let (kind, shown) = (PeerKind::Client, (&*config.roots, secure.presented()));
            let check = config.options.ocsp_peer.as_ref();
            if !ocsp_peers::admits(&server, &remote, kind, check, shown).await {
                return;
            }
            let Secure { stream: secure, info } = secure;
            let Some((secure, upgrade)) = upgrade_in(&server, options, secure, remote, limit).await
            else {
                return;
            };
            let (input, output) = tokio::io::split(secure);
            if upgrade.is_leaf {
                return run_leaf(server, stream, (remote, Some(info), upgrade), input, output)
                    .await;
            }
            let conn = connect(&server, &stream, remote, upgrade);
            let _ = conn.tls.set(info);
            run(server, conn, stream, input, output).await;
        }
    }
}

/// Reads the request and answers it within `limit`.
async fn upgrade_in<S: AsyncRead + AsyncWrite + Unpin>(
    server: &Server,
    options: &WebsocketOptions,
    mut socket: S,
    remote: SocketAddr,
    limit: Duration,
) -> Option<(S, Upgrade)> {
    let tls = options.tls.is_some();
    let refusal = match tokio::time::timeout(limit, read_request(&mut socket, options, tls)).await {
        Ok(Ok(Some((upgrade, _)))) if upgrade.is_leaf && !takes_leafs(server) => {
            Refusal { status: 404, why: "leaf nodes are not served here".to_owned() }
        }
        Ok(Ok(Some((upgrade, response)))) => {
            let sent = tokio::time::timeout(limit, async {
                socket.write_all(&response).await?;
                socket.flush().await
            });
            return matches!(sent.await, Ok(Ok(()))).then_some((socket, upgrade));
        }
        Ok(Ok(None)) => return None,
        Ok(Err(refusal)) => refusal,
        Err(_) => {
            server.log.error(format_args!("{remote} - websocket handshake timeout"));
            return None;
        }
    };
    server.log.error(format_args!("{remote} - websocket handshake error: {}", refusal.why));
    let answer = async {
        socket.write_all(&refusal.response()).await?;
        socket.shutdown().await
    };
    let _ = tokio::time::timeout(REFUSAL_TIME, answer).await;
    None
}

/// True if other servers may connect as leaf nodes.
fn takes_leafs(server: &Server) -> bool {
    server.options().leafnodes.as_ref().is_some_and(|own| own.port.is_some())
}

/// Runs the connection of another server.
async fn run_leaf<R, W>(
    server: Arc<Server>,
    stream: Arc<TcpStream>,
    (remote, tls, upgrade): (SocketAddr, Option<TlsInfo>, Upgrade),
    input: R,
    output: W,
) where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (masked, compress) = (upgrade.masked, upgrade.compress);
    let adapters = move |conn: Arc<Connection>, under: &UnderFrames| {
        let control = Arc::new(Control::default());
        let input = s2::Input::waiting(input, under.switch.clone(), under.admitted.clone());
        let output = s2::Output::waiting(output, under.switch.clone());
        let input = Input::new(input, conn.clone(), control.clone(), masked, compress);
        (input, Output::new(output, conn, control, compress))
    };
    over_websocket(server, stream, (remote, tls), compress, adapters).await;
}

fn connect(
    server: &Arc<Server>,
    stream: &Arc<TcpStream>,
    remote: SocketAddr,
    upgrade: Upgrade,
) -> Arc<Connection> {
    let id = server.connections.next_id();
    let transport = Transport::Websocket(Box::new(upgrade));
    let conn = server.connect(id, remote, transport);
    conn.set_socket(stream.clone());
    conn
}

/// Greets the client and runs its tasks.
async fn run<R, W>(
    server: Arc<Server>,
    conn: Arc<Connection>,
    stream: Arc<TcpStream>,
    input: R,
    output: W,
) where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let auth = server.auth();
    let nonce = if auth.needs_nonce() { new_nonce() } else { String::new() };
    let admitted = register(&server, &conn);
    let options = server.options();
    let own = options.websocket.as_ref().and_then(|ws| ws.auth_timeout);
    let timeout = auth.requires(true).then(|| own.unwrap_or(options.auth.timeout));
    let mut info = server.info();
    info.auth_required |= auth.requires(true) && !auth.is_configured();
    conn.send(&server.info_for(info, &conn, &nonce).encode());
    refuse_unless(&server, admitted, &conn);
    let Transport::Websocket(upgrade) = &conn.transport else { return };
    let (masked, compress) = (upgrade.masked, upgrade.compress);
    let control = Arc::new(Control::default());
    let input = Input::new(input, conn.clone(), control.clone(), masked, compress);
    let output = Output::new(output, conn.clone(), control, compress);
    let reader = ConnReader::new(server.clone(), conn.clone(), nonce);
    tokio::spawn(writer::run(server, conn, output, stream, timeout));
    reader.run(input).await;
}
