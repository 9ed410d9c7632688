//! A lean blocking NATS client: one thread, one socket, no allocation per message.
//!
//! The load generator drives [`Client::reader`] and [`Client::writer`] directly; the command line
//! uses [`Client::request`] and [`Client::next_message`].

mod reconnect;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nuthatch_protocol::greeting::Connect;

use self::reconnect::Known;
use crate::frame::{self, Event, Message};
use crate::nkey::Nkey;
use crate::socket::{Socket, TlsError, TlsSettings};
use crate::transport::{Reader, TransportError, Writer};
use crate::url::{Credentials, ServerUrl, UrlError};

pub use nuthatch_protocol::greeting::ServerInfo;

/// How to connect.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// Addresses, tried in order.
    pub servers: Vec<ServerUrl>,
    /// Used where an address carries none.
    pub credentials: Credentials,
    /// Name shown by the server's monitoring.
    pub name: String,
    /// Limit for connecting, handshake included.
    pub timeout: Duration,
    /// Whether our own publishes are delivered to our own subscriptions.
    pub echo: bool,
    /// How to encrypt, when the server or the address asks for it.
    pub tls: TlsSettings,
    /// A key to sign with, and perhaps a token signed by an account.
    pub identity: Option<Arc<Identity>>,
    /// Prefix of our reply subjects.
    pub inbox_prefix: String,
}

/// Identity proved by a signature.
#[derive(Debug)]
pub struct Identity {
    /// The key.
    pub key: Nkey,
    /// The user's JWT of a credentials file.
    pub jwt: Option<String>,
}

/// Default prefix of reply subjects.
pub const DEFAULT_INBOX_PREFIX: &str = "_INBOX";

impl ConnectOptions {
    /// Options for [`Client::over`]: there is no address.
    #[must_use]
    pub fn in_process() -> Self {
        Self::to(vec![ServerUrl::in_process()])
    }

    /// Options for a comma-separated list of addresses.
    ///
    /// # Errors
    /// When an address is unusable.
    pub fn new(servers: &str) -> Result<Self, UrlError> {
        Ok(Self::to(ServerUrl::parse_list(servers)?))
    }

    fn to(servers: Vec<ServerUrl>) -> Self {
        Self {
            servers,
            credentials: Credentials::default(),
            name: "nuthatch".into(),
            timeout: Duration::from_secs(5),
            echo: true,
            tls: TlsSettings::default(),
            identity: None,
            inbox_prefix: DEFAULT_INBOX_PREFIX.into(),
        }
    }
}

/// Why no connection could be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nobody listens there.
    #[error(
        "no server is listening at {server}; start one with `nuthatch serve -js`, or name another \
         with --server or NATS_URL"
    )]
    Refused {
        /// `host:port`.
        server: String,
    },
    /// The name does not resolve.
    #[error("cannot resolve {server}: {source}")]
    Resolve {
        /// `host:port`.
        server: String,
        /// The resolver's error.
        source: io::Error,
    },
    /// Another error of the network.
    #[error("cannot connect to {server}: {source}")]
    Io {
        /// `host:port`.
        server: String,
        /// The system's error.
        source: io::Error,
    },
    /// The server refused the credentials.
    #[error(
        "{server} refused the credentials ({text}); pass --user and --password, --token, --creds \
         or --nkey, put them into the address, or select a context that has them"
    )]
    Denied {
        /// `host:port`.
        server: String,
        /// The server's words.
        text: String,
    },
    /// No encrypted connection came about.
    #[error("TLS with {server}: {source}")]
    Tls {
        /// `host:port`.
        server: String,
        /// Why.
        source: TlsError,
    },
    /// Encryption was asked for, and the server has none.
    #[error(
        "{server} does not offer TLS; leave out the tls:// or the --tls… options to go without"
    )]
    NoTls {
        /// `host:port`.
        server: String,
    },
    /// The handshake failed otherwise.
    #[error("{server} did not complete the NATS handshake: {source}")]
    Handshake {
        /// `host:port`.
        server: String,
        /// The cause.
        source: TransportError,
    },
}

/// Why a request got no reply.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The subject has no subscriber.
    #[error("no responders: nobody is subscribed to {0:?}")]
    NoResponders(String),
    /// No reply in time.
    #[error("no reply on {subject:?} within {timeout:?}")]
    TimedOut {
        /// Subject of the request.
        subject: String,
        /// How long we waited.
        timeout: Duration,
    },
    /// The connection failed.
    #[error(transparent)]
    Transport(#[from] TransportError),
}

/// A message that owns its bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnedMessage {
    /// Subject it was published to.
    pub subject: String,
    /// Reply subject, when there is one.
    pub reply: Option<String>,
    /// Raw header block, empty when there is none.
    pub headers: Vec<u8>,
    /// Body.
    pub payload: Vec<u8>,
}

impl OwnedMessage {
    /// The same message with borrowed bytes, for its header accessors.
    pub fn view(&self) -> Message<'_> {
        Message {
            subject: self.subject.as_bytes(),
            sid: 0,
            reply: self.reply.as_deref().map(str::as_bytes),
            headers: &self.headers,
            payload: &self.payload,
        }
    }
}

impl From<Message<'_>> for OwnedMessage {
    fn from(m: Message<'_>) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            subject: text(m.subject),
            reply: m.reply.map(text),
            headers: m.headers.to_vec(),
            payload: m.payload.to_vec(),
        }
    }
}

/// A connection.
#[derive(Debug)]
pub struct Client {
    /// Receiving half.
    pub reader: Reader,
    /// Sending half.
    pub writer: Writer,
    info: ServerInfo,
    server: ServerUrl,
    inbox: String,
    next_sid: u64,
    requests: u64,
    request_sid: Option<u64>,
    known: Known,
}

impl Client {
    /// Connects to the first server of the list that answers.
    ///
    /// # Errors
    /// The error of the last server tried.
    pub fn connect(options: &ConnectOptions) -> Result<Self, ConnectError> {
        let mut last = None;
        for server in &options.servers {
            match Self::connect_to(server, options) {
                Ok(client) => return Ok(client),
                Err(err) => last = Some(err),
            }
        }
        Err(last.unwrap_or(ConnectError::Refused { server: "(no address)".into() }))
    }

    /// Takes a stream that is connected to a server already, such as one end of a pair of sockets whose other end
    /// is served in this process. It is not encrypted; the first address of the options may carry credentials.
    ///
    /// # Errors
    /// The handshake fails.
    pub fn over(stream: OwnedFd, options: &ConnectOptions) -> Result<Self, ConnectError> {
        let server = options.servers.first().cloned().unwrap_or_else(ServerUrl::in_process);
        let name = server.to_string();
        let deadline = Instant::now() + options.timeout;
        let socket = Arc::new(Socket::plain(TcpStream::from(stream)));
        let mut reader = Reader::new(socket.clone());
        let info = read_info(&mut reader, deadline)
            .map_err(|source| ConnectError::Handshake { server: name, source })?;
        Self::log_in(&server, options, (socket, reader, info), deadline)
    }

    fn connect_to(server: &ServerUrl, options: &ConnectOptions) -> Result<Self, ConnectError> {
        let deadline = Instant::now() + options.timeout;
        let greeted = greet(server, options, deadline)?;
        Self::log_in(server, options, greeted, deadline)
    }

    /// The client's part of the handshake.
    fn log_in(
        server: &ServerUrl,
        options: &ConnectOptions,
        (socket, mut reader, info): (Arc<Socket>, Reader, ServerInfo),
        deadline: Instant,
    ) -> Result<Self, ConnectError> {
        let name = server.to_string();
        let handshake = |source| ConnectError::Handshake { server: name.clone(), source };
        let mut writer = Writer::new(socket);
        writer.raw(&connect_line(server, options, &info)).map_err(handshake)?;
        writer.ping().and_then(|()| writer.flush()).map_err(handshake)?;
        wait_pong(&mut reader, &mut writer, deadline).map_err(|err| match err {
            TransportError::Server(text) if is_denial(&text) => {
                ConnectError::Denied { server: name.clone(), text }
            }
            source => ConnectError::Handshake { server: name.clone(), source },
        })?;
        let inbox = format!("{}.{:011x}", options.inbox_prefix, random_u64() >> 20);
        let server = server.clone();
        let (next_sid, requests, request_sid) = (1, 0, None);
        let known = Known::new(options);
        Ok(Self { reader, writer, info, server, inbox, next_sid, requests, request_sid, known })
    }

    /// The server's INFO.
    pub fn info(&self) -> &ServerInfo {
        &self.info
    }

    /// Address of the server.
    pub fn server(&self) -> &ServerUrl {
        &self.server
    }

    /// A subject prefix that no other connection uses.
    pub fn inbox(&self) -> &str {
        &self.inbox
    }

    /// Subscribes and returns the subscription's id. `queue` may be empty.
    ///
    /// # Errors
    /// When the connection fails.
    pub fn subscribe(&mut self, subject: &str, queue: &str) -> Result<u64, TransportError> {
        let sid = self.next_sid;
        self.next_sid += 1;
        self.writer.subscribe(subject, queue, sid)?;
        self.known.subscribed(subject, queue, sid);
        Ok(sid)
    }

    /// Ends a subscription.
    ///
    /// # Errors
    /// When the connection fails.
    pub fn unsubscribe(&mut self, sid: u64) -> Result<(), TransportError> {
        self.known.unsubscribed(sid);
        self.writer.unsubscribe(sid)
    }

    /// Sends everything queued and waits until the server has processed it. Messages that arrive
    /// meanwhile are dropped. An error that the server reports is returned once its answer is there as
    /// well, so that the next round trip does not take that for its own.
    ///
    /// # Errors
    /// When the connection fails, the server reports an error, or no answer comes in time.
    pub fn round_trip(&mut self, timeout: Duration) -> Result<(), TransportError> {
        self.writer.ping()?;
        self.writer.flush()?;
        let deadline = Instant::now() + timeout;
        let mut reported = None;
        loop {
            let ended = match wait_pong(&mut self.reader, &mut self.writer, deadline) {
                Err(error @ TransportError::Server(_)) => {
                    reported.get_or_insert(error);
                    continue;
                }
                ended => ended,
            };
            return reported.map_or(ended, Err);
        }
    }

    /// The next message of any subscription, waiting at most until `deadline`.
    ///
    /// # Errors
    /// [`TransportError::TimedOut`] at the deadline, [`TransportError::Server`] when the server
    /// reports an error, else the connection's failure.
    pub fn next_message(&mut self, deadline: Instant) -> Result<OwnedMessage, TransportError> {
        self.next_with_sid(deadline).map(|(_, message)| message)
    }

    /// Hands every message to `each` until that says stop. Answers pings; sends what has been
    /// queued before each wait and at the end.
    ///
    /// # Errors
    /// When nothing arrives for `timeout`, the server reports an error, the connection fails, or
    /// `each` does.
    pub fn pump(
        &mut self,
        timeout: Duration,
        mut each: impl FnMut(Message<'_>, &mut Writer) -> Result<ControlFlow<()>, TransportError>,
    ) -> Result<(), TransportError> {
        loop {
            while let Some(event) = self.reader.next_buffered()? {
                match event {
                    Event::Message(m) => {
                        if each(m, &mut self.writer)?.is_break() {
                            return self.writer.flush();
                        }
                    }
                    Event::Ping => self.writer.pong()?,
                    Event::Error(text) => return Err(TransportError::Server(text.into())),
                    Event::Pong | Event::Ok | Event::Info(_) => {}
                }
            }
            self.writer.flush()?;
            self.reader.fill(timeout)?;
        }
    }

    /// Sends a request and waits for its one reply. Messages of other subscriptions that arrive
    /// meanwhile are dropped.
    ///
    /// # Errors
    /// When nobody is subscribed, no reply comes within `timeout`, or the connection fails.
    pub fn request(
        &mut self,
        subject: &str,
        headers: &[u8],
        payload: &[u8],
        timeout: Duration,
    ) -> Result<OwnedMessage, RequestError> {
        let sid = match self.request_sid {
            Some(sid) => sid,
            None => {
                let wildcard = format!("{}.r.*", self.inbox);
                let sid = self.subscribe(&wildcard, "")?;
                *self.request_sid.insert(sid)
            }
        };
        self.requests += 1;
        let reply = format!("{}.r.{}", self.inbox, self.requests);
        self.writer.publish(subject.as_bytes(), reply.as_bytes(), headers, payload)?;
        self.writer.flush()?;
        let deadline = Instant::now() + timeout;
        loop {
            let (from, message) = self.next_with_sid(deadline).map_err(|err| match err {
                TransportError::TimedOut(_) => {
                    RequestError::TimedOut { subject: subject.into(), timeout }
                }
                other => other.into(),
            })?;
            if from != sid || message.subject != reply {
                continue;
            }
            if message.view().status() == Some(503) && message.payload.is_empty() {
                return Err(RequestError::NoResponders(subject.into()));
            }
            return Ok(message);
        }
    }

    /// [`Client::next_message`] with the id of its subscription.
    ///
    /// # Errors
    /// As [`Client::next_message`].
    pub fn next_with_sid(
        &mut self,
        deadline: Instant,
    ) -> Result<(u64, OwnedMessage), TransportError> {
        loop {
            match self.reader.next_buffered()? {
                Some(Event::Message(m)) => return Ok((m.sid, m.into())),
                Some(Event::Ping) => self.writer.pong()?,
                Some(Event::Error(text)) => return Err(TransportError::Server(text.into())),
                Some(Event::Pong | Event::Ok | Event::Info(_)) => {}
                None => {
                    // What was queued may be what is answered.
                    self.writer.flush()?;
                    fill_until(&mut self.reader, deadline)?;
                }
            }
        }
    }
}

/// [`Reader::fill`] with a deadline instead of a duration.
fn fill_until(reader: &mut Reader, deadline: Instant) -> Result<(), TransportError> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(TransportError::TimedOut(left));
    }
    reader.fill(left)
}

/// Connects, reads the server's greeting, and encrypts when either side wants that.
fn greet(
    server: &ServerUrl,
    options: &ConnectOptions,
    deadline: Instant,
) -> Result<(Arc<Socket>, Reader, ServerInfo), ConnectError> {
    let name = || server.to_string();
    let handshake = |source| ConnectError::Handshake { server: name(), source };
    let encrypt = |tcp: TcpStream| {
        let left = deadline.saturating_duration_since(Instant::now());
        Socket::encrypted(tcp, &server.host, &options.tls, left)
            .map(Arc::new)
            .map_err(|source| ConnectError::Tls { server: name(), source })
    };
    let tcp = open(server, options.timeout)?;
    if options.tls.first {
        let socket = encrypt(tcp)?;
        let mut reader = Reader::new(socket.clone());
        let info = read_info(&mut reader, deadline).map_err(handshake)?;
        return Ok((socket, reader, info));
    }
    let copy = tcp.try_clone().map_err(|source| ConnectError::Io { server: name(), source })?;
    let socket = Arc::new(Socket::plain(tcp));
    let mut reader = Reader::new(socket.clone());
    let info = read_info(&mut reader, deadline).map_err(handshake)?;
    let wanted = server.tls || options.tls.is_wanted();
    if !info.tls_required && !wanted {
        return Ok((socket, reader, info));
    }
    if !info.tls_required && !info.tls_available {
        return Err(ConnectError::NoTls { server: name() });
    }
    let socket = encrypt(copy)?;
    Ok((socket.clone(), Reader::new(socket), info))
}

/// True if the server's error is about who we are.
fn is_denial(text: &str) -> bool {
    let text = text.to_lowercase();
    text.contains("authorization") || text.contains("authentication")
}

fn open(server: &ServerUrl, timeout: Duration) -> Result<TcpStream, ConnectError> {
    let name = server.to_string();
    let addresses = (server.host.as_str(), server.port)
        .to_socket_addrs()
        .map_err(|source| ConnectError::Resolve { server: name.clone(), source })?;
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(socket) => {
                return match socket.set_nodelay(true) {
                    Ok(()) => Ok(socket),
                    Err(source) => Err(ConnectError::Io { server: name, source }),
                };
            }
            Err(err) => last = err,
        }
    }
    Err(match last.kind() {
        io::ErrorKind::ConnectionRefused => ConnectError::Refused { server: name },
        _ => ConnectError::Io { server: name, source: last },
    })
}

fn read_info(reader: &mut Reader, deadline: Instant) -> Result<ServerInfo, TransportError> {
    loop {
        match reader.next_buffered()? {
            Some(Event::Info(json)) => {
                return serde_json::from_slice(json)
                    .map_err(|err| frame::FrameError::BadInfo(err.to_string()).into());
            }
            Some(Event::Error(text)) => return Err(TransportError::Server(text.into())),
            Some(_) => {}
            None => fill_until(reader, deadline)?,
        }
    }
}

fn wait_pong(
    reader: &mut Reader,
    writer: &mut Writer,
    deadline: Instant,
) -> Result<(), TransportError> {
    loop {
        match reader.next_buffered()? {
            Some(Event::Pong) => return Ok(()),
            Some(Event::Error(text)) => return Err(TransportError::Server(text.into())),
            Some(Event::Ping) => writer.pong()?,
            Some(_) => {}
            None => fill_until(reader, deadline)?,
        }
    }
}

fn connect_line(server: &ServerUrl, options: &ConnectOptions, info: &ServerInfo) -> Vec<u8> {
    let own = &server.credentials;
    let anonymous = own.user.is_none() && own.token.is_none();
    let login = if anonymous { &options.credentials } else { own };
    let mut connect = Connect {
        verbose: Some(false),
        pedantic: Some(false),
        echo: Some(options.echo),
        headers: Some(true),
        no_responders: Some(true),
        protocol: Some(1),
        name: Some(options.name.clone()),
        lang: Some("rust".to_owned()),
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        user: login.user.clone(),
        pass: login.password.clone(),
        auth_token: login.token.clone(),
        ..Connect::default()
    };
    if let Some(identity) = &options.identity {
        match &identity.jwt {
            Some(jwt) => connect.jwt = Some(jwt.clone()),
            None => connect.nkey = Some(identity.key.public().into()),
        }
        let nonce = Some(info.nonce.as_str()).filter(|nonce| !nonce.is_empty());
        connect.sig = nonce.map(|nonce| identity.key.sign(nonce));
    }
    connect.encode()
}

/// A number that differs between processes and calls: the standard library seeds its hash maps
/// from the system's entropy.
pub fn random_u64() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests;
