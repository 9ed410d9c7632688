//! TLS: before and after INFO, certificates of clients and whom they name, what is pinned, chosen,
//! limited and reloaded, and plain clients that are turned away or not.

mod support;

use nuthatch_server::options::{
    CertificateFiles, HandshakeFirst, Options, TlsOptions, TlsVersion, User,
};
use nuthatch_server::tls::{Loaded, peer::PeerCertificate};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use support::TestServer;

/// Files of one authority, a server and a client.
struct Pki {
    directory: PathBuf,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Pki {
    fn new(name: &str) -> Self {
        let directory =
            std::env::temp_dir().join(format!("nuthatch-tls-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(directory.join("ca.pem"), authority.pem()).unwrap();
        let pki = Self { directory, authority };
        for (name, host) in
            [("server", "localhost"), ("client", "me.example"), ("other", "other.example")]
        {
            pki.issue(name, host);
        }
        pki
    }

    /// Makes, or makes anew, a certificate for a host.
    fn issue(&self, name: &str, host: &str) {
        self.issue_until(name, host, 4096);
    }

    /// One that is valid from the year 2000 to a year.
    fn issue_until(&self, name: &str, host: &str, year: i32) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let certificate = params.signed_by(&key, &self.authority).unwrap();
        std::fs::write(self.path(&format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn tls(&self) -> TlsOptions {
        let (cert_file, key_file) = (self.path("server.pem"), self.path("server.key"));
        TlsOptions {
            certificates: vec![CertificateFiles { cert_file, key_file }],
            ..TlsOptions::default()
        }
    }

    fn server(&self, verify: bool) -> TestServer {
        TestServer::start(Options {
            tls: Some(TlsOptions {
                ca_file: verify.then(|| self.path("ca.pem")),
                verify,
                ..self.tls()
            }),
            ..Options::default()
        })
    }

    fn client(&self, with_certificate: bool) -> Arc<rustls::ClientConfig> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.path("ca.pem")).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        Arc::new(if with_certificate {
            let chain = vec![CertificateDer::from_pem_file(self.path("client.pem")).unwrap()];
            let key = PrivateKeyDer::from_pem_file(self.path("client.key")).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        } else {
            builder.with_no_client_auth()
        })
    }
}

impl Drop for Pki {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

type Tls = rustls::StreamOwned<rustls::ClientConnection, TcpStream>;

/// A client on its way in.
struct Dial {
    config: Arc<rustls::ClientConfig>,
    name: &'static str,
    first: bool,
    /// What a proxy sends in front.
    before: &'static [u8],
}

impl Dial {
    fn new(config: Arc<rustls::ClientConfig>) -> Self {
        Self { config, name: "localhost", first: false, before: b"" }
    }

    fn first(self) -> Self {
        Self { first: true, ..self }
    }

    /// INFO and a stream on which TLS is up.
    fn open(self, server: &TestServer) -> std::io::Result<(String, Tls)> {
        let mut stream = TcpStream::connect(server.address)?;
        stream.set_read_timeout(Some(support::TIMEOUT))?;
        let mut info = String::new();
        if !self.first {
            info = read_line(&mut stream)?;
        }
        stream.write_all(self.before)?;
        let name = ServerName::try_from(self.name).unwrap();
        let connection =
            rustls::ClientConnection::new(self.config, name).map_err(std::io::Error::other)?;
        let mut tls = rustls::StreamOwned::new(connection, stream);
        if self.first {
            info = read_line(&mut tls)?;
        } else {
            tls.flush()?;
        }
        Ok((info, tls))
    }
}

fn read_line(stream: &mut impl Read) -> std::io::Result<String> {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        line.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}

/// Says something and hears what a client has to hear.
fn converse(tls: &mut Tls) -> std::io::Result<String> {
    tls.write_all(b"CONNECT {\"verbose\":false}\r\nSUB a 1\r\nPUB a 2\r\nhi\r\nPING\r\n")?;
    let expected = "MSG a 1 2\r\nhi\r\nPONG\r\n";
    let mut found = vec![0; expected.len()];
    tls.read_exact(&mut found)?;
    Ok(String::from_utf8_lossy(&found).into_owned())
}

/// Talks through TLS; returns all that came back.
fn talk(server: &TestServer, config: Arc<rustls::ClientConfig>) -> std::io::Result<String> {
    let (info, mut tls) = Dial::new(config).open(server)?;
    assert!(info.contains("\"tls_required\":true"), "{info}");
    converse(&mut tls)
}

fn start(tls: TlsOptions) -> TestServer {
    TestServer::start(Options { tls: Some(tls), ..Options::default() })
}

fn reasons(server: &TestServer) -> Vec<&'static str> {
    server.server.connections.closed().iter().map(|closed| closed.reason.text()).collect()
}

#[test]
fn a_client_that_trusts_the_authority() {
    let pki = Pki::new("plain");
    let server = pki.server(false);
    assert_eq!(talk(&server, pki.client(false)).unwrap(), "MSG a 1 2\r\nhi\r\nPONG\r\n");
    // A client that goes on in the clear gets nothing.
    let mut peer = server.peer();
    peer.send("CONNECT {}\r\nPING\r\n");
    support::eventually("it is turned away", || server.server.connections.is_empty());
    let reasons: Vec<_> =
        server.server.connections.closed().iter().map(|closed| closed.reason.text()).collect();
    assert!(reasons.contains(&"TLS Handshake Failure"), "{reasons:?}");
}

#[test]
fn clients_must_show_a_certificate_when_asked() {
    let pki = Pki::new("verify");
    let server = pki.server(true);
    assert_eq!(talk(&server, pki.client(true)).unwrap(), "MSG a 1 2\r\nhi\r\nPONG\r\n");
    assert!(talk(&server, pki.client(false)).is_err());
}

/// A certificate of somebody else's authority or of another time opens nothing, whatever name is in
/// it, and is nobody's name either.
#[test]
fn certificates_of_another_authority_or_another_time_are_refused() {
    let (pki, others) = (Pki::new("ours"), Pki::new("theirs"));
    let tls = TlsOptions { ca_file: Some(pki.path("ca.pem")), verify: true, ..pki.tls() };
    let mapped = TlsOptions { map_users: true, ..tls.clone() };
    for tls in [tls, mapped] {
        let mut options = Options { tls: Some(tls), ..Options::default() };
        if options.tls.as_ref().is_some_and(|tls| tls.map_users) {
            options.auth.users = vec![user("me.example")];
        }
        let server = TestServer::start(options);
        pki.issue("client", "me.example");
        assert_eq!(talk(&server, pki.client(true)).unwrap(), "MSG a 1 2\r\nhi\r\nPONG\r\n");
        // Theirs names the same host; the client trusts our authority, so that only ours can refuse.
        others.issue("client", "me.example");
        for file in ["client.pem", "client.key"] {
            std::fs::copy(others.path(file), pki.path(file)).unwrap();
        }
        assert!(talk(&server, pki.client(true)).is_err(), "of another authority");
        pki.issue_until("client", "me.example", 2001);
        assert!(talk(&server, pki.client(true)).is_err(), "expired");
        support::eventually("they are turned away", || {
            let refused = reasons(&server);
            refused.iter().filter(|reason| **reason == "TLS Handshake Failure").count() == 2
        });
        assert_eq!(server.server.accounts.global().interest.count(), 0);
    }
}

/// Not TLS 1.1, and no text in the clear to a port where the handshake comes first.
#[test]
fn old_versions_and_plain_text_are_refused() {
    let pki = Pki::new("old");
    let first = || TlsOptions { handshake_first: HandshakeFirst::Yes, ..pki.tls() };
    let server = start(first());
    // ClientHello of TLS 1.0 and 1.1: a record, a handshake of type 1, the version, 32 random bytes, no
    // session, one suite, no compression.
    for version in [1, 2] {
        let mut hello = vec![0x03, version];
        hello.extend_from_slice(&[7; 32]);
        hello.extend_from_slice(&[0, 0, 2, 0x00, 0x2f, 1, 0]);
        let mut record = vec![0x16, 0x03, version, 0, hello.len() as u8 + 4, 1, 0, 0];
        record.push(hello.len() as u8);
        record.extend_from_slice(&hello);
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(support::TIMEOUT)).unwrap();
        stream.write_all(&record).unwrap();
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        assert!(said.first().is_none_or(|kind| *kind == 0x15), "an alert or nothing: {said:?}");
    }
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(support::TIMEOUT)).unwrap();
    stream.write_all(b"CONNECT {\"verbose\":false}\r\nPING\r\n").unwrap();
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    assert!(!said.windows(4).any(|text| text == b"INFO" || text == b"PONG"), "{said:?}");
    support::eventually("all are turned away", || {
        reasons(&server).iter().filter(|reason| **reason == "TLS Handshake Failure").count() == 3
    });
    talk_first(&server, pki.client(false));
}

fn talk_first(server: &TestServer, config: Arc<rustls::ClientConfig>) {
    let (_, mut tls) = Dial::new(config).first().open(server).unwrap();
    converse(&mut tls).unwrap();
}

fn user(name: &str) -> User {
    User {
        name: name.to_owned(),
        password: None,
        permissions: None,
        allowed_connection_types: Default::default(),
        proxy_required: false,
    }
}

#[test]
fn before_info_after_it_or_as_the_client_likes() {
    let pki = Pki::new("first");
    let first = start(TlsOptions { handshake_first: HandshakeFirst::Yes, ..pki.tls() });
    let (info, mut tls) = Dial::new(pki.client(false)).first().open(&first).unwrap();
    assert!(info.contains("\"tls_required\":true"), "{info}");
    converse(&mut tls).unwrap();
    let shown = first.server.connections.open();
    assert!(shown[0].tls.get().is_some_and(|tls| tls.first));
    // Who is to be first gets all the time it wants; who waits for INFO need not wait long.
    let either =
        |time| start(TlsOptions { handshake_first: HandshakeFirst::Within(time), ..pki.tls() });
    let (patient, brief) = (either(support::TIMEOUT), either(Duration::from_millis(50)));
    for (server, dial) in
        [(&patient, Dial::new(pki.client(false)).first()), (&brief, Dial::new(pki.client(false)))]
    {
        let (_, mut tls) = dial.open(server).unwrap();
        converse(&mut tls).unwrap();
    }
}

#[test]
fn plain_clients_beside_tls() {
    let pki = Pki::new("both");
    let options = Options { tls: Some(pki.tls()), allow_non_tls: true, ..Options::default() };
    let server = TestServer::start(options);
    let (info, mut tls) = Dial::new(pki.client(false)).open(&server).unwrap();
    assert!(!info.contains("tls_required") && info.contains("\"tls_available\":true"), "{info}");
    converse(&mut tls).unwrap();
    let mut plain = server.client();
    plain.send("SUB a 1\r\nPUB a 2\r\nhi\r\n");
    plain.flush("MSG a 1 2\r\nhi\r\n");
}

#[test]
fn a_certificate_names_the_user() {
    let pki = Pki::new("map");
    let tls = TlsOptions {
        ca_file: Some(pki.path("ca.pem")),
        verify: true,
        map_users: true,
        ..pki.tls()
    };
    let mut options = Options { tls: Some(tls), ..Options::default() };
    options.auth.users = vec![user("somebody"), user("me.example")];
    let server = TestServer::start(options);
    let (info, mut tls) = Dial::new(pki.client(true)).open(&server).unwrap();
    assert!(info.contains("\"tls_verify\":true"), "{info}");
    // Who must use TLS is not told beside it that he may.
    assert!(info.contains("\"tls_required\":true") && !info.contains("tls_available"), "{info}");
    converse(&mut tls).unwrap();
    assert_eq!(server.server.connections.open()[0].session().user, "me.example");
    // The right authority, but nobody's name.
    pki.issue("client", "nobody.example");
    let (_, mut tls) = Dial::new(pki.client(true)).open(&server).unwrap();
    tls.write_all(b"CONNECT {\"verbose\":false,\"user\":\"somebody\"}\r\n").unwrap();
    assert_eq!(read_line(&mut tls).unwrap(), "-ERR 'Authorization Violation'\r\n");
}

#[test]
fn only_pinned_keys() {
    let pki = Pki::new("pins");
    let der = CertificateDer::from_pem_file(pki.path("client.pem")).unwrap();
    let pin = PeerCertificate::parse(&der).unwrap().key_sha256;
    let server = start(TlsOptions {
        ca_file: Some(pki.path("ca.pem")),
        verify: true,
        pinned_keys: [pin].into(),
        ..pki.tls()
    });
    assert!(talk(&server, pki.client(true)).is_ok());
    pki.issue("client", "me.example");
    assert!(talk(&server, pki.client(true)).is_err());
    support::eventually("it is turned away", || {
        reasons(&server).contains(&"TLS Handshake Failure")
    });
}

#[test]
fn the_certificate_that_was_asked_for() {
    let pki = Pki::new("several");
    let files = |name: &str| CertificateFiles {
        cert_file: pki.path(&format!("{name}.pem")),
        key_file: pki.path(&format!("{name}.key")),
    };
    let server =
        start(TlsOptions { certificates: vec![files("server"), files("other")], ..pki.tls() });
    for name in ["localhost", "other.example"] {
        let (_, mut tls) = Dial { name, ..Dial::new(pki.client(false)) }.open(&server).unwrap();
        converse(&mut tls).unwrap();
    }
    let stranger = Dial { name: "third.example", ..Dial::new(pki.client(false)) };
    assert!(stranger.open(&server).is_err(), "the first one is shown, which is not for it");
}

#[test]
fn versions_suites_and_groups() {
    let pki = Pki::new("suites");
    let agreed = |tls: TlsOptions| {
        let server = start(tls);
        let (_, mut stream) = Dial::new(pki.client(false)).open(&server).unwrap();
        converse(&mut stream).unwrap();
        let open = server.server.connections.open();
        let tls = open[0].tls.get().unwrap().clone();
        (tls.version, tls.cipher, stream.conn.negotiated_key_exchange_group().unwrap().name())
    };
    let (version, _, group) = agreed(TlsOptions {
        min_version: TlsVersion::V13,
        curves: vec!["CurveP384".to_owned()],
        ..pki.tls()
    });
    assert_eq!((version.as_str(), group), ("1.3", rustls::NamedGroup::secp384r1));
    let suite = "TLS_CHACHA20_POLY1305_SHA256";
    let (version, cipher, _) =
        agreed(TlsOptions { cipher_suites: vec![suite.to_owned()], ..pki.tls() });
    assert_eq!((version.as_str(), cipher.as_str()), ("1.3", suite));
    let server = start(TlsOptions { min_version: TlsVersion::V13, ..pki.tls() });
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut old = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    old.enable_sni = false;
    assert!(talk(&server, Arc::new(old)).is_err());
}

#[test]
fn so_many_handshakes_a_second() {
    let pki = Pki::new("rate");
    let server = start(TlsOptions { rate_limit: Some(2), ..pki.tls() });
    // However slow the machine: many come at the same time.
    support::eventually("some are turned away", || {
        let burst: Vec<_> = (0..20).map(|_| TcpStream::connect(server.address).unwrap()).collect();
        for mut stream in &burst {
            stream.set_read_timeout(Some(support::TIMEOUT)).unwrap();
            read_line(&mut stream).unwrap();
        }
        reasons(&server).contains(&"Maximum Connections Exceeded")
    });
}

#[test]
fn new_certificates_for_new_connections() {
    let pki = Pki::new("reload");
    let server = pki.server(false);
    let (_, mut before) = Dial::new(pki.client(false)).open(&server).unwrap();
    converse(&mut before).unwrap();
    pki.issue("server", "renamed.example");
    Loaded::read(&server.server.options()).unwrap().install(&server.server.tls);
    let renamed = || Dial { name: "renamed.example", ..Dial::new(pki.client(false)) };
    let (_, mut after) = renamed().open(&server).unwrap();
    converse(&mut after).unwrap();
    // Who was there stays, and hears what the new one has published.
    assert_eq!(read_line(&mut before).unwrap(), "MSG a 1 2\r\n");
    // Half-written files are refused, and what is in force stays.
    std::fs::write(pki.path("server.pem"), "no certificate").unwrap();
    assert!(Loaded::read(&server.server.options()).is_err());
    let (_, mut still) = renamed().open(&server).unwrap();
    converse(&mut still).unwrap();
}

#[test]
fn handshakes_that_stop_half_way_keep_nobody_out_and_end() {
    let pki = Pki::new("half");
    let mut options = pki.server(false).server.options().tls.clone().unwrap();
    options.timeout = Duration::from_secs(4);
    let server = start(options);
    // The beginning of a hello, which announces more than comes.
    let half = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
    let open: Vec<_> = (0..200)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address).unwrap();
            stream.set_read_timeout(Some(support::TIMEOUT)).unwrap();
            read_line(&mut stream).unwrap();
            stream.write_all(&half).unwrap();
            stream
        })
        .collect();
    assert_eq!(talk(&server, pki.client(false)).unwrap(), "MSG a 1 2\r\nhi\r\nPONG\r\n");
    for mut stream in open {
        // The end comes as an end or as a reset; nothing is said in the clear.
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(!rest.windows(4).any(|bytes| bytes == b"PONG"), "{rest:?}");
    }
    support::eventually("they are gone", || server.server.connections.is_empty());
}

/// A PROXY header is plain text in front of the handshake, whoever is to speak first.
#[test]
fn a_proxy_header_comes_before_the_handshake() {
    let pki = Pki::new("proxied");
    for handshake_first in
        [HandshakeFirst::No, HandshakeFirst::Yes, HandshakeFirst::Within(Duration::from_millis(50))]
    {
        for allow_non_tls in [false, true] {
            let first = handshake_first == HandshakeFirst::Yes;
            let tls = Some(TlsOptions { handshake_first, ..pki.tls() });
            let options =
                Options { tls, allow_non_tls, proxy_protocol: true, ..Options::default() };
            let server = TestServer::start(options);
            let before = b"PROXY TCP4 192.0.2.1 10.0.0.1 54321 4222\r\n";
            for (before, address) in [(&before[..], "192.0.2.1:54321"), (b"", "127.0.0.1")] {
                let dial = Dial { first, before, ..Dial::new(pki.client(false)) };
                let (_, mut tls) = dial.open(&server).unwrap();
                assert_eq!(converse(&mut tls).unwrap(), "MSG a 1 2\r\nhi\r\nPONG\r\n");
                let open = server.server.connections.open();
                let seen = open.iter().map(|conn| conn.remote.get().to_string()).next().unwrap();
                assert!(seen.starts_with(address), "{seen}");
                drop(tls);
                support::eventually("it is gone", || server.server.connections.is_empty());
            }
        }
    }
}
