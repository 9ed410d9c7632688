//! The ways from one server to another: compressed, over websockets, through proxies, by addresses that it tells.

mod support;

use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{Peer, TestServer, configured, eventually};

fn hub(more: &str) -> TestServer {
    TestServer::start(configured(&format!("server_name: hub, leafnodes {{ port: -1, {more} }}")))
}

fn spoke(url: &str, remote: &str) -> TestServer {
    TestServer::start(configured(&format!(
        "server_name: spoke, leafnodes {{ reconnect: '20ms', dial_timeout: '20s', remotes: [
           {{ url: '{url}', first_info_timeout: '20s'\n{remote} }} ] }}"
    )))
}

fn has_joined(server: &TestServer) -> bool {
    server.server.leafs.connections.open().iter().any(|conn| conn.link().is_some())
}

/// Messages of every size cross in both directions.
fn imports(hub: &TestServer, spoke: &TestServer) {
    eventually("both have joined", || has_joined(hub) && has_joined(spoke));
    for (from, to) in [(hub, spoke), (spoke, hub)] {
        let (mut here, mut there) = (to.client(), from.client());
        here.send("SUB crossing 1\r\n");
        here.flush("");
        let interest = &from.server.accounts.global().interest;
        eventually("interest has crossed", || interest.any(b"crossing"));
        for size in [2, 1000, 100_000, 1_000_000] {
            let body: String = (0..size).map(|n| char::from(b'a' + (n * n % 23) as u8)).collect();
            there.send(format!("PUB crossing {size}\r\n{body}\r\n"));
            here.expect(format!("MSG crossing 1 {size}\r\n"));
            assert!(here.take(size) == body.as_bytes(), "{size} bytes");
            here.expect("\r\n");
        }
        drop(here);
        eventually("interest is gone", || !interest.any(b"crossing"));
    }
}

/// Carries connections, counts what goes, and asks for CONNECT first if it is an HTTP proxy.
struct Carrier {
    address: SocketAddr,
    bytes: Arc<AtomicU64>,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Carrier {
    /// To this address.
    fn to(target: SocketAddr) -> Self {
        Self::start(move |_| Some(target))
    }

    /// A proxy that answers CONNECT with this.
    fn proxy(answer: &'static str) -> Self {
        Self::start(move |incoming| {
            let head = read_head(incoming);
            let target = head.split(' ').nth(1).and_then(|target| target.parse().ok());
            incoming.write_all(answer.as_bytes()).ok()?;
            target.filter(|_| answer.contains(" 200 "))
        })
    }

    fn start(target: impl Fn(&mut Recorded) -> Option<SocketAddr> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (bytes, heads) = (Arc::new(AtomicU64::new(0)), Arc::default());
        let carrier = Self { address, bytes: bytes.clone(), heads: Arc::clone(&heads) };
        let target = Arc::new(target);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (bytes, heads, target) = (bytes.clone(), heads.clone(), target.clone());
                std::thread::spawn(move || {
                    let mut incoming = Recorded { stream, head: Vec::new() };
                    let to = target(&mut incoming);
                    let head = String::from_utf8_lossy(&incoming.head).into_owned();
                    heads.lock().unwrap().push(head);
                    let Some(to) = to else { return };
                    let outgoing = TcpStream::connect(to).unwrap();
                    let back =
                        (outgoing.try_clone().unwrap(), incoming.stream.try_clone().unwrap());
                    let counted = bytes.clone();
                    std::thread::spawn(move || carry(back.0, back.1, &counted));
                    carry(incoming.stream, outgoing, &bytes);
                });
            }
        });
        carrier
    }
}

struct Recorded {
    stream: TcpStream,
    head: Vec<u8>,
}

impl Write for Recorded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.stream.flush()
    }
}

fn read_head(incoming: &mut Recorded) -> String {
    let mut byte = [0];
    while !incoming.head.ends_with(b"\r\n\r\n") && incoming.stream.read(&mut byte).unwrap_or(0) > 0
    {
        incoming.head.push(byte[0]);
    }
    String::from_utf8_lossy(&incoming.head).into_owned()
}

fn carry(mut from: TcpStream, mut to: TcpStream, bytes: &AtomicU64) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count) = from.read(&mut buffer) {
        if count == 0 || to.write_all(&buffer[..count]).is_err() {
            break;
        }
        bytes.fetch_add(count as u64, Ordering::Relaxed);
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

/// What the connection to the other side is compressed with.
fn mode(server: &TestServer) -> &'static str {
    let open = server.server.leafs.connections.open();
    open.iter().find_map(|conn| Some(conn.link()?.compression)).expect("it has joined")
}

/// Bytes that cross for a million bytes of text which compress well, and for what else there is.
fn bytes_between(own: &str, other: &str) -> u64 {
    let hub = hub(&format!("compression: {own}"));
    let carrier = Carrier::to(hub.leafs.unwrap());
    let spoke = spoke(&format!("nats://{}", carrier.address), &format!("compression: {other}"));
    imports(&hub, &spoke);
    assert_eq!(mode(&hub) == "off", mode(&spoke) == "off", "{own} and {other}");
    carrier.bytes.load(Ordering::Relaxed)
}

#[test]
fn connections_are_compressed_if_both_sides_agree() {
    let plain = bytes_between("off", "s2_fast");
    assert!(plain > 2_200_000, "{plain}");
    for (own, other, is_less) in [
        ("s2_fast", "accept", true),
        ("accept", "s2_best", true),
        ("accept", "accept", false),
        ("s2_better", "off", false),
        // There and back takes no ten milliseconds.
        ("s2_auto", "{ mode: s2_auto, rtt_thresholds: ['10s', '20s'] }", false),
    ] {
        let found = bytes_between(own, other);
        assert_eq!(found < plain / 2, is_less, "{own} and {other}: {found} of {plain}");
    }
}

#[test]
fn nonsense_where_compressed_data_should_be() {
    let hub = hub("compression: s2_fast");
    let after = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(hub.leafs.unwrap()).unwrap();
        stream.set_read_timeout(Some(support::TIMEOUT)).unwrap();
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            line.push(byte[0]);
        }
        let info: Value = serde_json::from_slice(&line["INFO ".len()..]).unwrap();
        assert_eq!(info["compression"], "s2_fast");
        stream.write_all(bytes).unwrap();
        let ended = stream.read_to_end(&mut Vec::new());
        assert!(!ended.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock));
    };
    after(b"INFO {\"compression\":\"gzip\"}\r\n");
    // A block that says that it has four gigabytes.
    after(b"INFO {\"compression\":\"s2_fast\"}\r\n\xff\x06\x00\x00S2sTwO\x00\x09\x00\x00aaaa\xff\xff\xff\xff\x0f");
    after(b"INFO {\"compression\":\"s2_fast\"}\r\nCONNECT {}\r\nPING\r\n");
    after(b"INFO {\r\n");
    let spoke = spoke(&format!("nats://{}", hub.leafs.unwrap()), "compression: s2_best");
    imports(&hub, &spoke);
}

struct Pki(PathBuf);

impl Pki {
    fn new(name: &str) -> Self {
        let name = format!("nuthatch-ways-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let issuer =
            rcgen::CertifiedIssuer::self_signed(params, rcgen::KeyPair::generate().unwrap())
                .unwrap();
        std::fs::write(directory.join("ca.pem"), issuer.pem()).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        std::fs::write(directory.join("own.pem"), certificate.pem()).unwrap();
        std::fs::write(directory.join("own.key"), key.serialize_pem()).unwrap();
        Self(directory)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Pki {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn over_websockets() {
    let pki = Pki::new("websocket");
    let tls = format!(
        "tls {{ cert_file: '{}', key_file: '{}', timeout: 20 }}",
        pki.path("own.pem"),
        pki.path("own.key")
    );
    let ca_file = format!("tls {{ ca_file: '{}', timeout: 20 }}", pki.path("ca.pem"));
    for (own, scheme, remote, compresses) in [
        ("no_tls: true", "ws", "", false),
        ("no_tls: true, compression: true", "ws", "ws_compress: true", true),
        ("no_tls: true", "ws", "ws_no_masking: true, ws_compress: true", false),
        (tls.as_str(), "wss", ca_file.as_str(), false),
    ] {
        let mut plain = u64::MAX;
        for compression in ["off", "s2_fast"] {
            let hub = TestServer::start(configured(&format!(
                "server_name: hub, websocket {{ port: -1, {own}, handshake_timeout: '20s' }}
                 leafnodes {{ port: -1, compression: {compression} }}"
            )));
            let carrier = Carrier::to(hub.websocket.unwrap());
            let url = format!("{scheme}://{}/some/path", carrier.address);
            let spoke = spoke(&url, &format!("{remote}\ncompression: accept"));
            imports(&hub, &spoke);
            // A websocket that compresses is not compressed once more.
            let expected = if compresses { "off" } else { compression };
            assert_eq!((mode(&hub), mode(&spoke)), (expected, expected), "{own} {remote}");
            let bytes = carrier.bytes.load(Ordering::Relaxed);
            if expected == "s2_fast" {
                assert!(bytes < plain / 2, "{own} {remote}: {bytes} of {plain}");
            }
            plain = bytes;
        }
    }
}

/// Users may be kept to one way, and who is not served at all hears so.
#[test]
fn who_may_come_over_a_websocket() {
    let users = "authorization { users: [
        { user: tcp, password: pw, allowed_connection_types: [LEAFNODE] },
        { user: ws, password: pw, allowed_connection_types: [LEAFNODE_WS] } ] }";
    let hub = TestServer::start(configured(&format!(
        "server_name: hub, websocket {{ port: -1, no_tls: true }}, leafnodes {{ port: -1 }}\n{users}"
    )));
    let (tcp, ws) = (hub.leafs.unwrap(), hub.websocket.unwrap());
    let joins = [
        (format!("nats://tcp:pw@{tcp}"), true),
        (format!("nats://ws:pw@{tcp}"), false),
        (format!("ws://tcp:pw@{ws}"), false),
        (format!("ws://ws:pw@{ws}"), true),
    ];
    for (url, is_let_in) in joins {
        let spoke = spoke(&url, "");
        match is_let_in {
            true => eventually("it is let in", || has_joined(&spoke)),
            false => {
                std::thread::sleep(std::time::Duration::from_millis(300));
                assert!(!has_joined(&spoke), "{url}");
            }
        }
    }
    let closed = TestServer::start(configured("websocket { port: -1, no_tls: true }"));
    let mut peer = Peer::new(TcpStream::connect(closed.websocket.unwrap()).unwrap());
    peer.send("GET /leafnode HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n");
    peer.send("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n");
    assert!(peer.line().starts_with("HTTP/1.1 404 "));
}

#[test]
fn through_an_http_proxy() {
    let hub = hub("compression: accept");
    let proxy = Carrier::proxy("HTTP/1.1 200 Connection established\r\nVia: us\r\n\r\n");
    let login = "username: ada, password: 'a b'";
    let through = format!("proxy {{ url: 'http://{}', {login} }}", proxy.address);
    let url = format!("nats://{}", hub.leafs.unwrap());
    let spoke_a = spoke(&url, &format!("{through}, compression: s2_fast"));
    imports(&hub, &spoke_a);
    let head = proxy.heads.lock().unwrap()[0].clone();
    let target = hub.leafs.unwrap();
    assert_eq!(
        head,
        format!(
            "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Authorization: Basic YWRhOmEgYg==\r\n\r\n"
        )
    );
    drop(spoke_a);
    // Those that say no, that speak something else, that never end, and that say nothing.
    let endless: &'static str = Box::leak(
        format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(1 << 20)).into_boxed_str(),
    );
    for answer in ["HTTP/1.1 407 No\r\n\r\n", "SSH-2.0\r\n\r\n", endless, ""] {
        let proxy = Carrier::proxy(answer);
        let through = format!("proxy {{ url: 'http://{}', timeout: '200ms' }}", proxy.address);
        let spoke = spoke(&url, &through);
        eventually("it tries again", || proxy.heads.lock().unwrap().len() > 2);
        assert!(!has_joined(&spoke), "{answer:?}");
    }
}

/// Speaks TLS with the certificate of this name and carries what is in it to an address.
fn secured(server: &TestServer, pki: &Pki, to: SocketAddr) -> SocketAddr {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = vec![CertificateDer::from_pem_file(pki.path("own.pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_file(pki.path("own.key")).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let bound = tokio::net::TcpListener::bind("127.0.0.1:0");
    let listener = server.runtime.block_on(bound).unwrap();
    let address = listener.local_addr().unwrap();
    server.runtime.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut outside = acceptor.accept(stream).await?;
                let mut inside = tokio::net::TcpStream::connect(to).await?;
                tokio::io::copy_bidirectional(&mut outside, &mut inside).await
            });
        }
    });
    address
}

#[test]
fn through_an_https_proxy() {
    let pki = Pki::new("proxy");
    let ca_file = format!("ca_file: '{}', timeout: 20", pki.path("ca.pem"));
    let tls = format!(
        "tls {{ cert_file: '{}', key_file: '{}', timeout: 20 }}",
        pki.path("own.pem"),
        pki.path("own.key")
    );
    let websocket = "websocket { port: -1, no_tls: true, handshake_timeout: '20s' }";
    for (more, scheme, remote) in [
        ("compression: s2_fast", "nats", "compression: accept"),
        (tls.as_str(), "tls", &format!("tls {{ {ca_file} }}")),
        ("compression: accept", "ws", "compression: s2_fast"),
    ] {
        let hub = TestServer::start(configured(&format!(
            "server_name: hub, {websocket}\nleafnodes {{ port: -1, {more} }}"
        )));
        let proxy = Carrier::proxy("HTTP/1.1 200 Connection established\r\n\r\n");
        let address = secured(&hub, &pki, proxy.address);
        let target = if scheme == "ws" { hub.websocket } else { hub.leafs }.unwrap();
        let through = format!("proxy {{ url: 'https://{address}', tls {{ {ca_file} }} }}");
        let spoke = spoke(&format!("{scheme}://{target}"), &format!("{through}, {remote}"));
        imports(&hub, &spoke);
        let head = proxy.heads.lock().unwrap()[0].clone();
        assert_eq!(head, format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n"));
    }
    // One whose certificate is of nobody that is trusted, or that speaks no TLS, hears no CONNECT.
    let hub = hub("");
    let proxy = Carrier::proxy("HTTP/1.1 200 Connection established\r\n\r\n");
    let seen = |address: SocketAddr, tls: &str| {
        let url = format!("nats://{}", hub.leafs.unwrap());
        let spoke = spoke(&url, &format!("proxy {{ url: 'https://{address}', {tls} }}"));
        std::thread::sleep(Duration::from_millis(300));
        assert!(!has_joined(&spoke));
    };
    seen(secured(&hub, &pki, proxy.address), "");
    seen(hub.leafs.unwrap(), &format!("tls {{ {ca_file} }}"));
    assert_eq!(proxy.heads.lock().unwrap().iter().filter(|head| !head.is_empty()).count(), 0);
}

#[test]
fn servers_that_are_too_old() {
    let hub = hub("min_version: '2.9.3'");
    for (version, is_let_in) in
        [("2.9.2", false), ("2.10.0-preview.1", true), ("2.9.3", true), ("", false), ("x", false)]
    {
        let mut peer = Peer::new(TcpStream::connect(hub.leafs.unwrap()).unwrap());
        assert!(peer.line().starts_with("INFO "));
        peer.send(format!("CONNECT {{\"version\":\"{version}\",\"name\":\"old\"}}\r\n"));
        match is_let_in {
            true => assert!(peer.line().starts_with("INFO "), "{version}"),
            false => peer.expect_close(
                "-ERR 'connection rejected since minimum version required is \"2.9.3\"'\r\n",
            ),
        }
    }
    let spoke = spoke(&format!("nats://{}", hub.leafs.unwrap()), "");
    imports(&hub, &spoke);
}

/// The addresses that a hub tells are used when the one that is configured leads nowhere any more.
#[test]
fn addresses_that_the_other_side_tells() {
    let second = hub("");
    let first = hub(&format!("advertise: '{}'", second.leafs.unwrap()));
    let way = Carrier::start({
        let (target, turn) = (first.leafs.unwrap(), AtomicU64::new(0));
        move |_| (turn.fetch_add(1, Ordering::Relaxed) == 0).then_some(target)
    });
    let spoke = spoke(&format!("nats://{}", way.address), "");
    eventually("it has joined the first one", || has_joined(&first) && has_joined(&spoke));
    assert!(!has_joined(&second));
    for conn in first.server.leafs.connections.open() {
        conn.close(nuthatch_server::close_reason::CloseReason::Kicked, None);
    }
    eventually("it has joined the second one", || has_joined(&second));
}
