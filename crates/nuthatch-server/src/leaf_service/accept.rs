//! Accepting leaf nodes.

use super::dial::compresses;
use crate::close_reason::CloseReason;
use crate::conn::{Connection, Transport};
use crate::connections::Listened;
use crate::leaf::hello::LeafInfo;
use crate::leafs::LEAFS_MAX;
use crate::ocsp_peers::{self, PeerKind};
use crate::options::{HandshakeFirst, LeafCompression, TlsOptions};
use crate::random::new_nonce;
use crate::reader::{ConnReader, LeafSide};
use crate::s2;
use crate::server::Server;
use crate::socket::{Socket, accept_each};
use crate::tls::TlsInfo;
use crate::tls::{self, ListenerTls, Secure};
use crate::writer;
use nuthatch_protocol::wire::leaf::MAX_LEAF_LINE;
use std::io::{self, Cursor};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Accepts leaf nodes until the task is dropped.
pub async fn run(server: Arc<Server>, listener: TcpListener) {
    let open = |stream, remote| open(server.clone(), stream, remote);
    accept_each(&listener, &server.log, || server.lame_duck.load(Ordering::Relaxed), open).await;
}

/// A server that has connected and not been greeted yet.
struct Newcomer {
    server: Arc<Server>,
    conn: Arc<Connection>,
    stream: Arc<TcpStream>,
    nonce: String,
    auth_timeout: Duration,
    compression: LeafCompression,
    /// What the connection is compressed with.
    agreed: LeafCompression,
    /// Whether it was let in.
    admitted: Arc<AtomicBool>,
    /// Begins the compression under the frames of a websocket; `None`: it is none, or compresses itself.
    switch: Option<s2::Switch>,
    over_websocket: bool,
}

/// What is under the frames of a websocket.
pub(crate) struct UnderFrames {
    /// Begins the compression.
    pub(crate) switch: s2::Switch,
    /// Whether the other side was let in.
    pub(crate) admitted: Arc<AtomicBool>,
}

async fn open(server: Arc<Server>, stream: TcpStream, remote: SocketAddr) {
    let _ = stream.set_nodelay(true);
    let options = server.options();
    let Some(options) = &options.leafnodes else { return };
    let Some(newcomer) = Newcomer::new(&server, Arc::new(stream), remote) else { return };
    match (server.tls.leafs.load_full(), &options.tls) {
        (Some(config), Some(tls)) => newcomer.run_tls(config, tls).await,
        _ => newcomer.run_plain().await,
    }
}

/// Runs the connection of a server that has connected over a websocket, which may `compress` messages itself;
/// `upgraded` makes the adapters.
pub(crate) async fn over_websocket<R, W>(
    server: Arc<Server>,
    stream: Arc<TcpStream>,
    (remote, tls): (SocketAddr, Option<TlsInfo>),
    compress: bool,
    upgraded: impl FnOnce(Arc<Connection>, &UnderFrames) -> (R, W),
) where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let Some(mut newcomer) = Newcomer::new(&server, stream, remote) else { return };
    newcomer.over_websocket = true;
    let switch = s2::Switch::default();
    if compress {
        newcomer.compression = LeafCompression::Off;
    } else {
        newcomer.switch = Some(switch.clone());
    }
    let under = UnderFrames { switch, admitted: newcomer.admitted.clone() };
    if let Some(tls) = tls {
        let _ = newcomer.conn.tls.set(tls);
    }
    let (input, output) = upgraded(newcomer.conn.clone(), &under);
    newcomer.greet(input, output).await;
}

impl Newcomer {
    /// A connection that has a place; `None`: there is none, and it was closed.
    fn new(server: &Arc<Server>, stream: Arc<TcpStream>, remote: SocketAddr) -> Option<Self> {
        let options = server.options();
        let options = options.leafnodes.as_ref()?;
        let id = server.connections.fresh_id();
        let conn = server.connect(id, remote, Transport::Leaf);
        conn.set_socket(stream.clone());
        server.log.info(format_args!("{conn} - Leafnode connection created"));
        let admitted = server.leafs.connections.add(&conn, LEAFS_MAX);
        let newcomer = Self {
            server: server.clone(),
            conn,
            stream,
            nonce: new_nonce(),
            auth_timeout: options.auth_timeout(),
            compression: options.compression.clone(),
            agreed: LeafCompression::Off,
            admitted: Arc::default(),
            switch: None,
            over_websocket: false,
        };
        if admitted {
            return Some(newcomer);
        }
        server.log.error(format_args!("{} - more than {LEAFS_MAX} leaf nodes", newcomer.conn));
        newcomer.forget(CloseReason::MaxConnectionsExceeded);
        None
    }

    fn greeting(&self) -> Vec<u8> {
        let info = LeafInfo::greeting(&self.server, &self.conn, &self.nonce);
        info.compressed(&self.compression).encode()
    }

    fn forget(&self, reason: CloseReason) {
        self.fail(reason, None);
    }

    fn fail(&self, reason: CloseReason, text: Option<&str>) {
        self.conn.close(reason, text);
        self.server.leafs.connections.remove(&self.conn, Listened::default());
    }

    async fn run_plain(self) {
        let stream = self.stream.clone();
        if self.compression == LeafCompression::Off {
            self.conn.outbox().set_socket(Some(stream.clone()));
        }
        self.greet(Socket(stream.clone()), Socket(stream)).await;
    }

    /// Sends INFO, then goes on.
    async fn greet<R, W>(self, input: R, mut output: W)
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let greeting = self.greeting();
        if self.compression == LeafCompression::Off {
            self.conn.send(&greeting);
            return self.run(input, output).await;
        }
        let said = async {
            output.write_all(&greeting).await?;
            output.flush().await
        };
        match tokio::time::timeout(self.auth_timeout, said).await {
            Ok(Ok(())) => self.negotiate(input, output).await,
            _ => self.forget(CloseReason::WriteError),
        }
    }

    /// Waits for what the other side says: INFO if it wants to compress, else CONNECT.
    async fn negotiate<R, W>(self, mut input: R, output: W)
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let line = tokio::time::timeout(self.auth_timeout, first_line(&mut input)).await;
        let (line, rest) = match line {
            Ok(Ok(found)) => found,
            Ok(Err(_)) => return self.forget(CloseReason::ReadError),
            Err(_) => {
                let text = Some("Authentication Timeout");
                return self.fail(CloseReason::AuthenticationTimeout, text);
            }
        };
        let Some(json) = line.get(..4).filter(|verb| verb.eq_ignore_ascii_case(b"INFO")) else {
            let input = Cursor::new([line, rest].concat()).chain(input);
            return self.run(input, output).await;
        };
        let json = line[json.len()..].trim_ascii();
        let said = crate::greeting::parse::<LeafInfo>(json).map_err(|error| error.to_string());
        match said.and_then(|info| self.compression.agree(&info.compression)) {
            Ok(None) => self.run(Cursor::new(rest).chain(input), output).await,
            Ok(Some(mode)) => {
                let info = LeafInfo::greeting(&self.server, &self.conn, &self.nonce);
                self.conn.send(&info.compressed(&mode).encode());
                let input = Cursor::new(rest).chain(input);
                let compresses = compresses(&self.conn, mode.clone());
                if let Some(switch) = &self.switch {
                    switch.begin(compresses);
                    return Self { agreed: mode, ..self }.run(input, output).await;
                }
                let input = s2::Input::new(input, self.admitted.clone());
                let output = s2::Output::new(output, compresses);
                Self { agreed: mode, ..self }.run(input, output).await;
            }
            Err(why) => {
                self.server.log.error(format_args!("{} - {why}", self.conn));
                self.fail(CloseReason::ProtocolViolation, None);
            }
        }
    }

    async fn run_tls(self, config: Arc<ListenerTls>, tls: &TlsOptions) {
        let first = match tls.handshake_first {
            HandshakeFirst::No => false,
            HandshakeFirst::Yes => true,
            HandshakeFirst::Within(time) => self.is_first(time).await,
        };
        if !first {
            let mut socket = Socket(self.stream.clone());
            if socket.write_all(&self.greeting()).await.is_err() {
                return self.forget(CloseReason::WriteError);
            }
        }
        let (server, socket) = (&self.server, Socket(self.stream.clone()));
        let done = tls::handshake(&server.log, &self.conn, &config, socket, tls.timeout).await;
        let Some(secure) = done else {
            return self.forget(CloseReason::TlsHandshakeError);
        };
        let (kind, shown) = (PeerKind::Leaf, (&*config.roots, secure.presented()));
        let check = config.options.ocsp_peer.as_ref();
        if !ocsp_peers::admits(server, &self.conn, kind, check, shown).await {
            return self.forget(CloseReason::TlsHandshakeError);
        }
        let Secure { stream, info } = secure;
        let _ = self.conn.tls.set(TlsInfo { first, ..info });
        let (input, output) = tokio::io::split(stream);
        match (first, &self.compression) {
            (true, _) => self.greet(input, output).await,
            (false, LeafCompression::Off) => self.run(input, output).await,
            (false, _) => self.negotiate(input, output).await,
        }
    }

    /// True if the other side begins within this time.
    async fn is_first(&self, time: Duration) -> bool {
        let mut byte = [0];
        let peeked = tokio::time::timeout(time, self.stream.peek(&mut byte)).await;
        matches!(peeked, Ok(Ok(1)))
    }

    async fn run<R, W>(self, input: R, output: W)
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let Self {
            server,
            conn,
            stream,
            nonce,
            auth_timeout,
            over_websocket,
            agreed,
            admitted,
            ..
        } = self;
        let side = if over_websocket { LeafSide::over_websocket() } else { LeafSide::default() };
        let side = side.compressed(agreed).telling(admitted);
        let reader = ConnReader::of_leaf(server.clone(), conn.clone(), nonce, side);
        tokio::spawn(writer::run(server, conn, output, stream, Some(auth_timeout)));
        reader.run(input).await;
    }
}

/// The first line, and what came with it.
async fn first_line<R: AsyncRead + Unpin>(input: &mut R) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let mut bytes = Vec::with_capacity(1024);
    loop {
        if let Some(end) = memchr::memchr(b'\n', &bytes) {
            let rest = bytes.split_off(end + 1);
            return Ok((bytes, rest));
        }
        if bytes.len() > MAX_LEAF_LINE {
            // Too long for any: whoever reads it says so.
            return Ok((bytes, Vec::new()));
        }
        if input.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}
