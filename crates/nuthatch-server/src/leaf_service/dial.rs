//! Connecting to other servers as a leaf node, again and again.

use super::proxy::{self, Tunnel, Wire};
use super::tls;
use crate::conn::{Connection, Session, Transport};
use crate::credentials::{self, KeyPair};
use crate::leaf::hello::{LeafConnect, LeafInfo};
use crate::leafs::LEAFS_MAX;
use crate::ocsp_peers::{self, PeerKind};
use crate::options::{LeafCompression, LeafOptions, LeafUrl, RemoteOptions, RemoteTls, Secret};
use crate::reader::{ConnReader, LeafSide, Told};
use crate::s2;
use crate::server::Server;
use crate::socket::Socket;
use crate::tls::peer::PeerCertificate;
use crate::version::NATS_VERSION;
use crate::websocket;
use crate::writer;
use nuthatch_protocol::wire::leaf::MAX_LEAF_LINE;
use nuthatch_protocol::wire::write;
use rustls::pki_types::CertificateDer;
use std::hash::{BuildHasher, RandomState};
use std::io::Cursor;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// The pause between attempts grows up to so many times the configured one.
const BACK_OFF_MAX: u32 = 16;
/// How often a server that goes down is noticed while waiting.
const LOOK: Duration = Duration::from_millis(200);
/// A server that has been sent CONNECT must let us in within this time.
const WELCOME: Duration = Duration::from_secs(10);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
enum DialError {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    #[error("attempted to connect to wrong port: the other side is no listener for leaf nodes")]
    WrongPort,
    #[error("the other side's greeting cannot be read: {0}")]
    Greeting(String),
    #[error("{0}")]
    Tls(String),
    #[error(transparent)]
    Proxy(#[from] proxy::ProxyError),
    #[error("Error soliciting websocket connection: {0}")]
    Websocket(#[from] websocket::dial::DialError),
    #[error("{0}")]
    Compression(String),
    #[error(transparent)]
    TlsFiles(#[from] crate::tls::TlsError),
    #[error(transparent)]
    Credentials(#[from] credentials::CredentialsError),
    #[error("account {0} is not there")]
    Account(String),
    #[error("there are {LEAFS_MAX} leaf nodes already")]
    TooMany,
}

/// One remote of the configuration.
struct Remote {
    server: Arc<Server>,
    options: RemoteOptions,
    dial_timeout: Duration,
    /// Addresses that the other side has told.
    told: Arc<Told>,
}

/// Keeps a connection to a remote until the server stops.
pub(crate) async fn keep(server: Arc<Server>, number: usize, options: RemoteOptions) {
    let of_all = server.options();
    let Some(of_all) = &of_all.leafnodes else { return };
    let dial_timeout = options.dial_timeout.unwrap_or(of_all.dial_timeout);
    let mut next = if options.no_randomize { 0 } else { random(number) as usize };
    let told = Arc::new(Told::new(&options));
    let remote = Remote { server: server.clone(), options, dial_timeout, told };
    let mut failures = 0_u32;
    while !is_ending(&server) {
        let url = remote.told.address(&remote.options.urls, next);
        next = next.wrapping_add(1);
        let pause = match remote.connect(&url, of_all).await {
            Ok(Ended { joined, pause }) => {
                failures = if joined { 0 } else { failures.saturating_add(1) };
                pause
            }
            Err(error) => {
                failures = failures.saturating_add(1);
                report(&server, &url, failures, &error);
                None
            }
        };
        wait(&server, pause.unwrap_or_else(|| back_off(of_all.reconnect, failures))).await;
    }
}

/// An unpredictable number.
fn random(salt: usize) -> u64 {
    RandomState::new().hash_one(salt)
}

/// `reconnect` and up to as much again, so that many servers do not come at once; twice as much
/// after each failure.
fn back_off(reconnect: Duration, failures: u32) -> Duration {
    let times = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(BACK_OFF_MAX);
    let pause = reconnect * times.clamp(1, BACK_OFF_MAX);
    pause + pause.mul_f64((random(0) % 1000) as f64 / 1000.0)
}

fn is_ending(server: &Server) -> bool {
    server.stopping.load(Ordering::Relaxed) || server.lame_duck.load(Ordering::Relaxed)
}

async fn wait(server: &Server, pause: Duration) {
    let until = tokio::time::Instant::now() + pause;
    while tokio::time::Instant::now() < until && !is_ending(server) {
        let left = until.saturating_duration_since(tokio::time::Instant::now());
        tokio::time::sleep(left.min(LOOK)).await;
    }
}

/// Logs the 1st, 2nd, 4th, 8th, … failure in a row, the others as debug lines.
fn report(server: &Server, url: &LeafUrl, failures: u32, error: &DialError) {
    let text = format_args!(
        "Error trying to connect as leafnode to remote server \"{url}\" (attempt {failures}): {error}"
    )
    .to_string();
    if failures.is_power_of_two() {
        server.log.error(format_args!("{text}"));
    } else {
        server.log.debug(format_args!("{text}"));
    }
}

/// A connection is over.
struct Ended {
    /// It was let in.
    joined: bool,
    /// How long to wait, if not as usual.
    pause: Option<Duration>,
}

/// A connection to the other side, as it is being made.
struct Dialed<'a> {
    url: &'a LeafUrl,
    conn: &'a Arc<Connection>,
    stream: Arc<TcpStream>,
    /// What this server asks of all leaf nodes' subscriptions.
    isolated: bool,
}

impl Remote {
    /// Connects and stays connected.
    async fn connect(&self, url: &LeafUrl, of_all: &LeafOptions) -> Result<Ended, DialError> {
        let server = &self.server;
        server
            .log
            .debug(format_args!("Trying to connect as leafnode to remote server on \"{url}\""));
        let Tunnel { socket: stream, wire } = match &self.options.proxy {
            None => {
                let address = (url.host.as_str(), url.port);
                Tunnel::direct(within(self.dial_timeout, TcpStream::connect(address)).await??)
            }
            Some(through) => {
                let limit = through.timeout.unwrap_or(self.dial_timeout);
                proxy::connect(through, &url.to_string(), limit).await?
            }
        };
        let _ = stream.set_nodelay(true);
        let remote = stream.peer_addr()?;
        let id = server.connections.fresh_id();
        let conn = server.connect(id, remote, Transport::Leaf);
        conn.set_socket(stream.clone());
        let account = server.account(&self.options.account).await;
        let account = account.ok_or_else(|| DialError::Account(self.options.account.clone()))?;
        conn.set_session(Arc::new(Session { headers: true, ..Session::of_leaf(account) }));
        server.log.info(format_args!(
            "{conn} - Leafnode connection created for account: {}",
            self.options.account
        ));
        let isolated = of_all.isolated;
        self.greet(Dialed { url, conn: &conn, stream, isolated }, wire).await
    }

    /// INFO and TLS, in the order that the options say, then the rest.
    async fn greet(&self, dialed: Dialed<'_>, mut wire: Wire) -> Result<Ended, DialError> {
        let Dialed { url, conn, .. } = dialed;
        let stream = dialed.stream.clone();
        let default = RemoteTls::default();
        let tls = self.options.tls.as_ref().unwrap_or(&default);
        let wait = self.options.first_info_timeout;
        if let Some(path) = &url.websocket {
            if !url.tls && self.options.tls.is_none() {
                return self.upgrade(dialed, path, wire).await;
            }
            let secure = self.secure(tls, url, conn, wire).await?;
            return self.upgrade(dialed, path, secure).await;
        }
        if tls.handshake_first {
            let mut secure = self.secure(tls, url, conn, wire).await?;
            let (info, rest) = within(wait, read_info(&mut secure)).await??;
            let (input, output) = tokio::io::split(secure);
            let input = Cursor::new(rest).chain(input);
            return self.begin(dialed, info, (input, output), None).await;
        }
        let (info, rest) = within(wait, read_info(&mut wire)).await??;
        if info.tls_required || self.options.tls.is_some() || url.tls {
            if !rest.is_empty() {
                return Err(DialError::Greeting("more than INFO came before TLS".to_owned()));
            }
            let secure = self.secure(tls, url, conn, wire).await?;
            return self.begin(dialed, info, tokio::io::split(secure), None).await;
        }
        match wire {
            Wire::Plain(socket) => {
                conn.outbox().set_socket(Some(stream.clone()));
                let halves = (Cursor::new(rest).chain(socket), Socket(stream));
                self.begin(dialed, info, halves, None).await
            }
            Wire::ToProxy(secure) => {
                let (input, output) = tokio::io::split(secure);
                let input = Cursor::new(rest).chain(input);
                self.begin(dialed, info, (input, output), None).await
            }
        }
    }

    /// Makes a websocket of the connection; INFO comes in it.
    async fn upgrade<S>(
        &self,
        dialed: Dialed<'_>,
        path: &str,
        mut socket: S,
    ) -> Result<Ended, DialError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let wait = self.options.first_info_timeout;
        let Dialed { url, conn, .. } = dialed;
        let place = url.to_string();
        let asked = websocket::dial::dial(&mut socket, (&place, path), &self.options);
        let agreed = within(wait, asked).await??;
        let (input, output) = tokio::io::split(socket);
        let control = Arc::new(websocket::Control::default());
        let (owner, compress) = (conn.clone(), agreed.compress);
        // What is compressed are the frames, not what is in them, unless the websocket does that itself.
        let switch = s2::Switch::default();
        let input = s2::Input::waiting(input, switch.clone(), Arc::new(AtomicBool::new(true)));
        let output = s2::Output::waiting(output, switch.clone());
        let mut input =
            websocket::Input::new(input, owner.clone(), control.clone(), false, compress);
        let output = websocket::Output::new(output, owner, control, compress).masked(agreed.masked);
        let (info, rest) = within(wait, read_info(&mut input)).await??;
        let input = Cursor::new(rest).chain(input);
        if compress {
            let off = LeafCompression::Off;
            return self.run(dialed, (info, off), input, output).await;
        }
        self.begin(dialed, info, (input, output), Some(switch)).await
    }

    /// Agrees on compression, then goes on. `under` begins it under the frames of a websocket.
    async fn begin<R, W>(
        &self,
        dialed: Dialed<'_>,
        info: LeafInfo,
        (mut input, mut output): (R, W),
        under: Option<s2::Switch>,
    ) -> Result<Ended, DialError>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        check_port(&info)?;
        let conn = dialed.conn;
        let agreed = self.options.compression.agree(&info.compression);
        let Some(mode) = agreed.map_err(DialError::Compression)? else {
            let off = LeafCompression::Off;
            return self.run(dialed, (info, off), input, output).await;
        };
        let wait = self.options.first_info_timeout;
        let said = LeafInfo::greeting(&self.server, conn, "").compressed(&mode).encode();
        within(wait, async {
            output.write_all(&said).await?;
            output.flush().await
        })
        .await??;
        conn.outbox().set_socket(None);
        if let Some(switch) = under {
            switch.begin(compresses(conn, mode.clone()));
            let (packed, rest) = within(wait, read_info(&mut input)).await??;
            return self.run(dialed, (packed, mode), Cursor::new(rest).chain(input), output).await;
        }
        let mut input = s2::Input::new(input, Arc::new(AtomicBool::new(true)));
        let output = s2::Output::new(output, compresses(conn, mode.clone()));
        let (packed, rest) = within(wait, read_info(&mut input)).await??;
        let input = Cursor::new(rest).chain(input);
        self.run(dialed, (packed, mode), input, output).await
    }

    async fn secure(
        &self,
        tls: &RemoteTls,
        url: &LeafUrl,
        conn: &Connection,
        wire: Wire,
    ) -> Result<tokio_rustls::client::TlsStream<Wire>, DialError> {
        let config = tls::load(tls)?;
        let name = url.tls_name.as_ref().unwrap_or(&url.host);
        let done = tls::connect(config, tls, name, wire).await;
        let (stream, info) = done.map_err(DialError::Tls)?;
        check_pin(&self.server, stream.get_ref().1.peer_certificates())?;
        if let Some(check) = &tls.ocsp_peer {
            let roots = tls::roots(tls)?;
            let shown = (&roots, stream.get_ref().1.peer_certificates());
            let kind = PeerKind::Remote;
            if !ocsp_peers::admits(&self.server, conn, kind, Some(check), shown).await {
                return Err(DialError::Tls(ocsp_peers::rejection(kind).to_owned()));
            }
        }
        let _ = conn.tls.set(info);
        Ok(stream)
    }

    async fn run<R, W>(
        &self,
        dialed: Dialed<'_>,
        (info, compression): (LeafInfo, LeafCompression),
        input: R,
        output: W,
    ) -> Result<Ended, DialError>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        check_port(&info)?;
        let Dialed { url, conn, stream, isolated } = dialed;
        self.told.learn(&self.options, info.leafnode_urls.as_deref());
        let server = &self.server;
        let mut text = Vec::new();
        let compress_mode = match info.compression.as_str() {
            "" => "not supported",
            _ => compression.name(),
        };
        let connect = LeafConnect {
            compress_mode: compress_mode.to_owned(),
            ..self.connect_json(url, &info)?
        };
        write::push_connect(&mut text, &serde_json::to_vec(&connect).unwrap_or_default());
        if !server.leafs.connections.add(conn, LEAFS_MAX) {
            return Err(DialError::TooMany);
        }
        conn.send(&text);
        let told = self.told.clone();
        let side = LeafSide::solicited(self.options.clone(), info, isolated, told);
        let side = side.compressed(compression);
        let reader = ConnReader::of_leaf(server.clone(), conn.clone(), String::new(), side);
        tokio::spawn(writer::run(server.clone(), conn.clone(), output, stream, Some(WELCOME)));
        reader.run(input).await;
        let link = conn.link();
        let reason = conn.close_reason().map_or("", |reason| reason.text());
        server.log.info(format_args!("{conn} - Leafnode connection closed: {reason}"));
        Ok(Ended { joined: link.is_some(), pause: link.and_then(|link| link.take_pause()) })
    }

    fn connect_json(&self, url: &LeafUrl, info: &LeafInfo) -> Result<LeafConnect, DialError> {
        let (server, remote) = (&self.server, &self.options);
        let options = server.options();
        let account = server.accounts.by_name(&remote.account);
        let enabled = options.has_jetstream();
        let mut connect = LeafConnect {
            version: NATS_VERSION.to_owned(),
            server_id: server.id.clone(),
            domain: options.jetstream.domain.clone().filter(|_| enabled).unwrap_or_default(),
            name: server.name.clone(),
            is_hub: remote.hub,
            headers: info.headers && !options.no_header_support,
            jetstream: account.is_some_and(|account| server.jetstream().enabled(account.id)),
            deny_pub: (!remote.deny_imports.is_empty()).then(|| remote.deny_imports.clone()),
            isolate: remote.request_isolation,
            remote_account: remote.account.clone(),
            protocol: crate::msg_trace::SERVER_PROTOCOL,
            ..LeafConnect::default()
        };
        if let Some(path) = &remote.credentials {
            let credentials = credentials::read(path)?;
            connect.sig = credentials.key.sign(&info.nonce);
            connect.jwt = credentials.jwt;
        } else if let Some(key) = remote.seed.as_ref().and_then(|s| KeyPair::from_seed(s.expose()))
        {
            connect.nkey = key.public();
            connect.sig = key.sign(&info.nonce);
        }
        if let Some(user) = &url.user {
            connect.user.clone_from(user);
            match &url.password {
                Some(password) => connect.pass = Secret::expose(password).to_owned(),
                // A lone name may be a token.
                None => connect.auth_token.clone_from(user),
            }
        }
        Ok(connect)
    }
}

/// Whether the key of the other side is one of `pinned_certs` of `leafnodes`, which count for both directions.
fn check_pin(server: &Server, shown: Option<&[CertificateDer<'_>]>) -> Result<(), DialError> {
    let options = server.options();
    let own = options.leafnodes.as_ref().and_then(|leafs| leafs.tls.as_ref());
    let Some(pins) = own.map(|tls| &tls.pinned_keys).filter(|pins| !pins.is_empty()) else {
        return Ok(());
    };
    let first = shown.and_then(<[_]>::first);
    let parsed =
        first.map(|der| PeerCertificate::parse(der)).transpose().map_err(DialError::Tls)?;
    match parsed {
        Some(peer) if pins.contains(&peer.key_sha256) => Ok(()),
        peer => {
            let key = peer.map_or_else(|| "none shown".to_owned(), |peer| peer.key_sha256);
            Err(DialError::Tls(format!("certificate not pinned: {key}")))
        }
    }
}

/// Whether the other side takes leaf nodes where it greets like this.
fn check_port(info: &LeafInfo) -> Result<(), DialError> {
    let is_other = info.client_id == 0 || (info.leafnode_urls.is_none() && !info.info_on_connect);
    if is_other { Err(DialError::WrongPort) } else { Ok(()) }
}

/// Whether what goes out now is compressed, by the round trip of this connection.
pub(super) fn compresses(
    conn: &Arc<Connection>,
    mode: LeafCompression,
) -> impl Fn() -> bool + Send + Sync + 'static {
    let conn = conn.clone();
    move || {
        let ns = conn.rtt_ns.load(Ordering::Relaxed);
        mode.compresses((ns > 0).then(|| Duration::from_nanos(ns)))
    }
}

async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Result<T, DialError> {
    tokio::time::timeout(limit, future).await.map_err(|_| DialError::Timeout(limit))
}

/// Reads INFO, and what came with it.
async fn read_info<R: AsyncRead + Unpin>(input: &mut R) -> Result<(LeafInfo, Vec<u8>), DialError> {
    let mut bytes = Vec::with_capacity(1024);
    loop {
        if let Some(end) = memchr::memchr(b'\n', &bytes) {
            let rest = bytes.split_off(end + 1);
            let line = bytes.trim_ascii();
            let Some((verb, json)) = line.split_at_checked(4) else {
                return Err(DialError::WrongPort);
            };
            if !verb.eq_ignore_ascii_case(b"INFO") {
                return Err(DialError::WrongPort);
            }
            let info = crate::greeting::parse(json)
                .map_err(|error| DialError::Greeting(error.to_string()))?;
            return Ok((info, rest));
        }
        if bytes.len() > MAX_LEAF_LINE {
            return Err(DialError::Greeting(format!("it is longer than {MAX_LEAF_LINE} bytes")));
        }
        if input.read_buf(&mut bytes).await? == 0 {
            return Err(DialError::Io(std::io::ErrorKind::UnexpectedEof.into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_stay_within_bounds() {
        let second = Duration::from_secs(1);
        for (failures, times) in
            [(0, 1), (1, 1), (2, 2), (3, 4), (5, 16), (6, 16), (40, 16), (99, 16)]
        {
            let pause = back_off(second, failures);
            assert!(
                pause >= second * times && pause <= second * times * 2,
                "{failures}: {pause:?}"
            );
        }
    }
}
