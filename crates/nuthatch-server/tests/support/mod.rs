//! A server in this process and scripted peers that talk to it over real sockets, byte by byte.
#![allow(dead_code, reason = "not every test file uses every helper")]

use nuthatch_server::StartJetStream;
use nuthatch_server::listener;
use nuthatch_server::logging::Logger;
use nuthatch_server::options::{Command, Invocation, Options, OptionsError, TlsOptions, load_with};
use nuthatch_server::server::Server;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// How long a peer waits for bytes that must come.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// How long a peer waits to see that nothing comes.
const SILENCE: Duration = Duration::from_millis(100);

/// Gives peers that must show who they are, or shake hands, more time than the server does unless told
/// otherwise: a busy machine may take longer.
fn with_timeout(mut options: Options) -> Options {
    let ours = Options::default().auth.timeout;
    if options.auth.timeout == ours {
        options.auth.timeout = TIMEOUT;
    }
    if let Some(tls) = &mut options.tls
        && tls.timeout == TlsOptions::default().timeout
    {
        tls.timeout = TIMEOUT;
    }
    options
}

/// A server without JetStream.
pub struct TestServer {
    pub server: Arc<Server>,
    pub address: SocketAddr,
    /// Where websocket clients are served, if the options say so.
    pub websocket: Option<SocketAddr>,
    /// Where other servers may connect, if the options say so.
    pub leafs: Option<SocketAddr>,
    pub runtime: Runtime,
    store: Option<Store>,
}

/// A directory that goes with it.
struct Store(PathBuf);

impl Store {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("nuthatch-server-{}-{number}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Panics on threads of servers, of all tests of this process.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Notes panics on threads of servers, where no test would see them.
fn watch_for_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let thread = std::thread::current();
            let name = thread.name().unwrap_or_default();
            if ["tokio-", "calls", "log-"].iter().any(|ours| name.starts_with(ours)) {
                PANICS.lock().unwrap_or_else(PoisonError::into_inner).push(panic.to_string());
            }
            before(panic);
        }));
    });
}

impl Drop for TestServer {
    fn drop(&mut self) {
        let panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if !std::thread::panicking() {
            assert!(panics.is_empty(), "a thread of a server has panicked: {panics:?}");
        }
        if self.store.is_some() {
            let _ = self.server.jetstream().stop();
        }
    }
}

impl TestServer {
    pub fn start(options: Options) -> Self {
        watch_for_panics();
        let runtime = Runtime::new().unwrap();
        let server = Server::new(with_timeout(options), Logger::silent());
        server.set_runtime(runtime.handle().clone());
        nuthatch_server::system::install(&server);
        nuthatch_server::operator_service::start(&server).unwrap();
        runtime.spawn(nuthatch_server::trace_service::serve(server.clone()));
        nuthatch_server::tls::Loaded::read(&server.options()).unwrap().install(&server.tls);
        let bind = || {
            runtime.block_on(async { tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap() })
        };
        let listener = bind();
        let address = listener.local_addr().unwrap();
        runtime.spawn(listener::accept(server.clone(), listener));
        let websocket = server.options().websocket.is_some().then(|| {
            let listener = bind();
            let address = listener.local_addr().unwrap();
            server.websocket_port.store(address.port(), std::sync::atomic::Ordering::Relaxed);
            runtime.spawn(nuthatch_server::listener::websocket::accept(server.clone(), listener));
            address
        });
        let of_leafs = server.options().leafnodes.clone();
        let listener = of_leafs.as_ref().and_then(|leafs| leafs.port).map(|_| bind());
        let leafs = listener.as_ref().map(|listener| listener.local_addr().unwrap());
        if let Some(address) = leafs {
            server.leafs.port.store(address.port(), std::sync::atomic::Ordering::Relaxed);
        }
        runtime.spawn(nuthatch_server::leaf_service::serve(server.clone(), listener));
        Self { server, address, websocket, leafs, runtime, store: None }
    }

    /// A server with the JetStream service that `start` starts, whose store goes with it.
    pub fn with_service(mut options: Options, start: StartJetStream) -> Self {
        let store = Store::new();
        options.jetstream.enabled = true;
        options.jetstream.store_dir.clone_from(&store.0);
        let mut server = Self::start(options);
        let starter = server.server.clone();
        let starting = server.runtime.spawn_blocking(move || start(&starter));
        let started = server.runtime.block_on(starting).unwrap().unwrap();
        server.server.set_jetstream(started.jetstream);
        server.store = Some(store);
        server
    }

    pub fn plain() -> Self {
        Self::start(Options::default())
    }

    /// A peer that has read INFO.
    pub fn peer(&self) -> Peer {
        let mut peer = Peer::new(TcpStream::connect(self.address).unwrap());
        let info = peer.line();
        assert!(info.starts_with("INFO {") && info.ends_with("} "), "{info}");
        peer
    }

    /// INFO as a new peer sees it.
    pub fn peer_info(&self) -> String {
        Peer::new(TcpStream::connect(self.address).unwrap()).line()
    }

    /// A peer that has sent this CONNECT and got its PONG.
    pub fn connected(&self, connect: &str) -> Peer {
        let mut peer = self.peer();
        peer.send(format!("CONNECT {connect}\r\nPING\r\n"));
        peer.expect("PONG\r\n");
        peer
    }

    /// A peer with the options of a modern client.
    pub fn client(&self) -> Peer {
        self.connected(CLIENT)
    }
}

/// CONNECT of a modern client, but with protocol 0, so that no INFO follows the first PONG.
pub const CLIENT: &str =
    r#"{"verbose":false,"pedantic":false,"headers":true,"no_responders":true}"#;

/// A scripted peer. It takes no notice of pings, of which the server's first comes after two seconds:
/// on a busy machine that is in the middle of any test. Bodies must not look like one.
pub struct Peer {
    stream: TcpStream,
    buffer: Vec<u8>,
    shows_pings: bool,
}

const PING: &[u8] = b"PING\r\n";

/// Reads; that the process was stopped and goes on is no error.
fn read(stream: &mut TcpStream, chunk: &mut [u8]) -> std::io::Result<usize> {
    loop {
        match stream.read(chunk) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

impl Peer {
    pub fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, buffer: Vec::new(), shows_pings: false }
    }

    /// One that is shown pings as well.
    pub fn with_pings(mut self) -> Self {
        self.shows_pings = true;
        self
    }

    /// Removes pings from what has come, of which the first `seen` bytes hold none.
    fn hide_pings(&mut self, seen: usize) {
        let mut from = seen.saturating_sub(PING.len());
        while let Some(at) = memchr::memmem::find(&self.buffer[from..], PING).map(|at| at + from) {
            let starts_line = at == 0 || self.buffer[at - 1] == b'\n';
            if starts_line {
                self.buffer.drain(at..at + PING.len());
            }
            from = if starts_line { at } else { at + 1 };
        }
    }

    /// How much has come, without what may turn out to be a ping.
    fn available(&self) -> usize {
        let len = self.buffer.len();
        let may_be_ping = |&tail: &usize| {
            let start = len - tail;
            self.buffer[start..] == PING[..tail] && (start == 0 || self.buffer[start - 1] == b'\n')
        };
        let longest = if self.shows_pings { 0 } else { len.min(PING.len() - 1) };
        len - (1..=longest).rev().find(may_be_ping).unwrap_or(0)
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Sends to a server that may have closed already.
    pub fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    #[track_caller]
    fn fill(&mut self) -> usize {
        let mut chunk = vec![0; 256 * 1024];
        match read(&mut self.stream, &mut chunk) {
            Ok(count) => {
                let seen = self.buffer.len();
                self.buffer.extend_from_slice(&chunk[..count]);
                if !self.shows_pings {
                    self.hide_pings(seen);
                }
                count
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
            Err(error) => {
                panic!("waiting for more than {:?}: {error}", String::from_utf8_lossy(&self.buffer))
            }
        }
    }

    /// The next line, without its end.
    #[track_caller]
    pub fn line(&mut self) -> String {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\r\n") {
                let rest = self.buffer.split_off(end + 2);
                let line = std::mem::replace(&mut self.buffer, rest);
                return String::from_utf8(line[..end].to_vec()).unwrap();
            }
            assert!(self.fill() > 0, "closed in {:?}", String::from_utf8_lossy(&self.buffer));
        }
    }

    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Vec<u8> {
        while self.available() < count {
            assert!(self.fill() > 0, "closed after {:?}", String::from_utf8_lossy(&self.buffer));
        }
        let rest = self.buffer.split_off(count);
        std::mem::replace(&mut self.buffer, rest)
    }

    /// Reads until these bytes have come.
    pub fn take_until(&mut self, wanted: &[u8]) {
        loop {
            if let Some(at) = memchr::memmem::find(&self.buffer, wanted) {
                self.buffer.drain(..at + wanted.len());
                return;
            }
            assert!(self.fill() > 0, "closed after {:?}", String::from_utf8_lossy(&self.buffer));
        }
    }

    /// Exactly these bytes must come next.
    #[track_caller]
    pub fn expect(&mut self, expected: impl AsRef<[u8]>) {
        let expected = expected.as_ref();
        let found = self.take(expected.len());
        assert_eq!(
            String::from_utf8_lossy(&found),
            String::from_utf8_lossy(expected),
            "then {:?}",
            String::from_utf8_lossy(&self.buffer)
        );
    }

    /// Sends a request and returns the body of its answer.
    #[track_caller]
    pub fn ask(&mut self, subject: &str, body: impl AsRef<[u8]>) -> String {
        // Nobody else in the account hears this answer.
        static ASKED: AtomicU32 = AtomicU32::new(0);
        let inbox = format!("_INBOX.ask{}", ASKED.fetch_add(1, Ordering::Relaxed));
        let body = body.as_ref();
        self.send(format!("SUB {inbox} 999\r\nUNSUB 999 1\r\n"));
        let line = format!("PUB {subject} {inbox} {}\r\n", body.len());
        self.send([line.as_bytes(), body, b"\r\n"].concat());
        loop {
            let line = self.line();
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["MSG", _, "999", size] => {
                    let body = self.take(size.parse::<usize>().unwrap() + 2);
                    return String::from_utf8(body).unwrap().trim_end().to_owned();
                }
                ["HMSG", _, "999", _, size] => {
                    let body = self.take(size.parse::<usize>().unwrap() + 2);
                    return String::from_utf8_lossy(&body).trim_end().to_owned();
                }
                ["-ERR", ..] => return line,
                _ => {}
            }
        }
    }

    /// Sends PING and expects exactly these bytes and then the PONG.
    #[track_caller]
    pub fn flush(&mut self, expected: impl AsRef<[u8]>) {
        self.send("PING\r\n");
        self.expect([expected.as_ref(), b"PONG\r\n"].concat());
    }

    /// Exactly these bytes must come, then the end of the connection.
    #[track_caller]
    pub fn expect_close(&mut self, expected: &str) {
        let deadline = Instant::now() + TIMEOUT;
        while self.fill() > 0 {
            assert!(Instant::now() < deadline, "not closed");
        }
        assert_eq!(String::from_utf8_lossy(&self.buffer), expected);
    }

    /// Nothing must come.
    #[track_caller]
    pub fn expect_silence(&mut self) {
        let end = Instant::now() + SILENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.stream.set_read_timeout(Some(left)).unwrap();
            let mut chunk = [0; 1024];
            match read(&mut self.stream, &mut chunk) {
                Ok(0) => panic!("closed"),
                Ok(count) => {
                    self.buffer.extend_from_slice(&chunk[..count]);
                    self.hide_pings(0);
                }
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
                }
            }
        }
        self.stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        assert!(self.buffer.is_empty(), "came: {:?}", String::from_utf8_lossy(&self.buffer));
    }
}

/// Waits until something holds.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The options of a configuration file with this text.
pub fn configured(text: &str) -> Options {
    match load(text) {
        Ok(Command::Serve(options)) => *options,
        other => panic!("{other:?}"),
    }
}

/// What is said of a configuration file with this text, which cannot be used.
pub fn refused_configuration(text: &str) -> String {
    match load(text) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("accepted: {text}"),
    }
}

fn load(text: &str) -> Result<Command, OptionsError> {
    use nuthatch_protocol::config::{Loader, Source};
    struct Text<'a>(&'a str);
    impl Loader for Text<'_> {
        fn load(&mut self, path: &str, _from: &str) -> Result<Source, String> {
            Ok(Source { name: path.to_owned(), text: self.0.to_owned() })
        }
        fn env(&self, _name: &str) -> Option<String> {
            None
        }
    }
    let args = ["-c".to_owned(), "test.conf".to_owned()];
    load_with(Invocation::NatsServer, &args, &mut Text(text))
}

/// CONNECT of a modern client with this user, whose password is `pw`.
pub fn login(user: &str) -> String {
    format!(
        "{{\"verbose\":false,\"headers\":true,\"no_responders\":true,\"user\":\"{user}\",\"pass\":\"pw\"}}"
    )
}
