//! OCSP: what is stapled to the server's certificates, and what becomes of those whose certificates a
//! responder knows, does not know, or lies about.

#[path = "support/ocsp.rs"]
mod responder;
mod support;

use nuthatch_server::options::OcspMode;
use nuthatch_server::tls::{Loaded, TlsError};
use responder::{Answer, Authority};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::{TestServer, configured, eventually, refused_configuration};

/// Takes any certificate, and notes what was stapled to it.
#[derive(Debug, Default)]
struct Noting(Mutex<Vec<u8>>);

impl ServerCertVerifier for Noting {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _chain: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        *self.0.lock().unwrap() = ocsp.to_vec();
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// Connects with the certificate of this name; returns what was stapled once PONG has come.
fn talk(authority: &Authority, server: &TestServer, name: &str) -> std::io::Result<Vec<u8>> {
    let noting = Arc::new(Noting::default());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(noting.clone());
    let chain =
        vec![CertificateDer::from_pem_file(authority.path(&format!("{name}.pem"))).unwrap()];
    // Some clients show the root too.
    let chain =
        [chain, vec![CertificateDer::from_pem_file(authority.path("ca.pem")).unwrap()]].concat();
    let key = PrivateKeyDer::from_pem_file(authority.path(&format!("{name}.key"))).unwrap();
    let config = builder.with_client_auth_cert(chain, key).unwrap();
    let mut stream = TcpStream::connect(server.address)?;
    stream.set_read_timeout(Some(support::TIMEOUT))?;
    let mut byte = [0];
    while byte != *b"\n" {
        stream.read_exact(&mut byte)?;
    }
    let name = ServerName::try_from("localhost").unwrap();
    let connection = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut tls = rustls::StreamOwned::new(connection, stream);
    tls.write_all(b"CONNECT {\"verbose\":false}\r\nPING\r\n")?;
    let mut pong = [0; 6];
    tls.read_exact(&mut pong)?;
    assert_eq!(&pong, b"PONG\r\n");
    let stapled = noting.0.lock().unwrap().clone();
    Ok(stapled)
}

/// As a process starts it, but without a process.
fn start_ocsp(server: &TestServer) -> Result<(), TlsError> {
    let loaded = Loaded::read(&server.server.options())?;
    server.runtime.block_on(nuthatch_server::ocsp_service::start(
        &server.server,
        &loaded,
        support::TIMEOUT,
    ))?;
    loaded.install(&server.server.tls);
    Ok(())
}

fn server(text: &str) -> TestServer {
    let server = TestServer::start(configured(text));
    start_ocsp(&server).unwrap();
    server
}

/// A server whose clients' certificates are checked.
fn checking(authority: &Authority, further: &str) -> TestServer {
    authority.issue_with("server", 100, false, false);
    let cache = authority.path("cache");
    let text = format!(
        "ocsp_cache {{ local_store: '{}' }}\n{}",
        cache.display(),
        authority.tls("server", &format!("verify: true, ocsp_peer {{ verify: true, {further} }}"))
    );
    server(&text)
}

#[test]
fn clients_whose_certificates_are_good_get_in() {
    let authority = Authority::new("peers");
    let server = checking(&authority, "ca_timeout: 1");
    for (serial, answer, gets_in) in [
        (1, Answer::Good, true),
        (2, Answer::Delegated, true),
        (3, Answer::GoodWithoutEnd, true),
        (4, Answer::Revoked, false),
        (5, Answer::Unknown, false),
        (6, Answer::Expired, false),
        (7, Answer::Future, false),
        (8, Answer::Usurped, false),
        (9, Answer::Forged, false),
        (10, Answer::Other, false),
        (11, Answer::Large, false),
        (12, Answer::Failure, false),
        (13, Answer::TryLater, false),
        (14, Answer::Nonsense, false),
        (15, Answer::Gone, false),
        (16, Answer::Slow, false),
    ] {
        let name = format!("{answer:?}");
        authority.issue(&name, serial);
        authority.set(serial, answer);
        let talked = talk(&authority, &server, &name);
        assert_eq!(talked.is_ok(), gets_in, "{name}: {talked:?}");
    }
    // Who names no responder is not asked about.
    authority.issue_with("unasked", 17, false, false);
    let before = authority.count();
    talk(&authority, &server, "unasked").unwrap();
    assert_eq!(authority.count(), before);
}

#[test]
fn what_the_options_let_in() {
    let cases: &[(&str, &[(Answer, bool)])] = &[
        (
            "warn_only: true",
            &[(Answer::Revoked, true), (Answer::Forged, true), (Answer::Gone, true)],
        ),
        ("unknown_is_good: true", &[(Answer::Unknown, true), (Answer::Revoked, false)]),
        (
            "allow_when_ca_unreachable: true",
            &[(Answer::Gone, true), (Answer::Forged, false), (Answer::Revoked, false)],
        ),
    ];
    for (number, (options, answers)) in cases.iter().enumerate() {
        let authority = Authority::new(&format!("options-{number}"));
        let server = checking(&authority, options);
        for (serial, (answer, gets_in)) in (1..).zip(*answers) {
            authority.issue("client", serial);
            authority.set(serial, *answer);
            let talked = talk(&authority, &server, "client");
            assert_eq!(talked.is_ok(), *gets_in, "{options} {answer:?}: {talked:?}");
        }
    }
}

/// A responder that does not answer keeps those waiting whom it is asked about, and nobody else.
#[test]
fn a_slow_responder_keeps_others_from_nothing() {
    let authority = Authority::new("slow");
    let server = checking(&authority, "ca_timeout: 10");
    let slow: Vec<String> = (1..=8).map(|serial| format!("slow-{serial}")).collect();
    for (serial, name) in (1..).zip(&slow) {
        authority.issue(name, serial);
        authority.set(serial, Answer::Slow);
    }
    authority.issue("good", 9);
    authority.set(9, Answer::Good);
    std::thread::scope(|scope| {
        for name in &slow {
            scope.spawn(|| talk(&authority, &server, name));
        }
        eventually("they are asked about", || authority.count() == 8);
        let began = Instant::now();
        talk(&authority, &server, "good").unwrap();
        assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
    });
}

/// Who is known to be revoked stays out when the responder is away, however long that takes.
#[test]
fn a_revocation_that_is_over_is_one() {
    let authority = Authority::new("over");
    let server = checking(&authority, "allow_when_ca_unreachable: true, allowed_clockskew: 0");
    for (name, serial, answer) in [
        ("unknown", 1, Answer::Gone),
        ("over", 2, Answer::RevokedFor(2)),
        ("delegate", 3, Answer::RevokedByDelegate(2)),
    ] {
        authority.issue(name, serial);
        authority.set(serial, answer);
    }
    for name in ["over", "delegate"] {
        talk(&authority, &server, name).unwrap_err();
    }
    for serial in [2, 3] {
        authority.set(serial, Answer::Gone);
    }
    std::thread::sleep(Duration::from_secs(4));
    for _ in 0..3 {
        talk(&authority, &server, "unknown").unwrap();
        talk(&authority, &server, "over").unwrap_err();
        talk(&authority, &server, "delegate").unwrap_err();
    }
    assert_eq!(server.server.tls.peers.cache.load_full().unwrap().stats().revokes, 2);
}

#[test]
fn responses_are_kept_over_a_restart() {
    let authority = Authority::new("cache");
    let first = checking(&authority, "");
    for (name, serial, answer) in [("good", 1, Answer::Good), ("bad", 2, Answer::Revoked)] {
        authority.issue(name, serial);
        authority.set(serial, answer);
    }
    for _ in 0..3 {
        talk(&authority, &first, "good").unwrap();
        talk(&authority, &first, "bad").unwrap_err();
    }
    assert_eq!(authority.count(), 2, "one request for each certificate");
    first.server.tls.peers.cache.load_full().unwrap().save().unwrap();
    let second = checking(&authority, "");
    for serial in [1, 2] {
        authority.set(serial, Answer::Gone);
    }
    talk(&authority, &second, "good").unwrap();
    talk(&authority, &second, "bad").unwrap_err();
    assert_eq!(authority.count(), 2);
    let stats = second.server.tls.peers.cache.load_full().unwrap().stats();
    assert_eq!((stats.hits, stats.misses, stats.goods, stats.revokes), (2, 0, 1, 1));
}

/// What is in the file of the cache is believed only if it is signed.
#[test]
fn a_forged_file_of_the_cache_opens_nothing() {
    let authority = Authority::new("forged");
    let first = checking(&authority, "");
    authority.issue("client", 1);
    authority.set(1, Answer::Revoked);
    talk(&authority, &first, "client").unwrap_err();
    let cache = first.server.tls.peers.cache.load_full().unwrap();
    cache.save().unwrap();
    let file = authority.path("cache/cache.json");
    let text = std::fs::read_to_string(&file).unwrap();
    // The response of another certificate under the key of this one.
    authority.issue("other", 2);
    authority.set(2, Answer::Good);
    talk(&authority, &first, "other").unwrap();
    cache.save().unwrap();
    let both: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let of_client: serde_json::Value = serde_json::from_str(&text).unwrap();
    let key = of_client.as_object().unwrap().keys().next().unwrap().clone();
    let other = both.as_object().unwrap().iter().find(|(name, _)| **name != key).unwrap().1;
    let forged = serde_json::json!({ key: other });
    std::fs::write(&file, forged.to_string()).unwrap();
    let second = checking(&authority, "");
    talk(&authority, &second, "client").unwrap_err();
}

#[test]
fn rejections_are_published() {
    let authority = Authority::new("events");
    authority.issue_with("server", 100, false, false);
    let text = format!(
        "no_auth_user: u, ocsp_cache: none,
         accounts {{ $SYS {{ users: [ {{ user: s, password: p }} ] }}, A {{ users: [ {{ user: u, password: p }} ] }} }}
         {}\nallow_non_tls: true",
        authority.tls("server", "verify: true, ocsp_peer: true")
    );
    let server = server(&text);
    let mut listener = server.connected(r#"{"user":"s","pass":"p","verbose":false}"#);
    listener.send("SUB $SYS.SERVER.*.OCSP.> 1\r\nPING\r\n");
    listener.expect("PONG\r\n");
    authority.issue("bad", 1);
    authority.set(1, Answer::Revoked);
    talk(&authority, &server, "bad").unwrap_err();
    let mut event = || {
        let line = listener.line();
        assert!(line.starts_with("MSG $SYS.SERVER."), "{line}");
        let len: usize = line.trim_end().rsplit(' ').next().unwrap().parse().unwrap();
        let body = listener.take(len + 2);
        serde_json::from_slice::<serde_json::Value>(&body[..len]).unwrap()
    };
    let invalid = event();
    assert_eq!(invalid["type"], "io.nats.server.advisory.v1.ocsp_peer_link_invalid");
    assert_eq!(invalid["reason"], "Invalid OCSP response status: revoked");
    assert_eq!(invalid["link"], invalid["peer"]);
    assert_eq!(invalid["peer"]["subject"], "CN=bad");
    assert_eq!(invalid["peer"]["issuer"], "CN=authority");
    let rejected = event();
    assert_eq!(rejected["type"], "io.nats.server.advisory.v1.ocsp_peer_reject");
    assert_eq!((&rejected["kind"], &rejected["peer"]), (&"Client".into(), &invalid["peer"]));
    assert_eq!(rejected["reason"], "client not OCSP valid");
    assert_eq!(rejected["server"]["id"], server.server.id);
}

/// A text of the configuration that staples, with the responses kept in a store.
fn stapling(authority: &Authority, mode: &str) -> String {
    let store = authority.path("store");
    format!(
        "ocsp {{ mode: {mode} }}\njetstream {{ store_dir: '{}' }}\n{}",
        store.display(),
        authority.tls("server", "verify: true")
    )
}

#[test]
fn a_response_is_stapled_and_kept_over_a_restart() {
    let authority = Authority::new("staple");
    authority.issue_with("server", 1, true, true);
    authority.issue_with("client", 2, false, false);
    authority.set(1, Answer::Good);
    let first = server(&stapling(&authority, "auto"));
    let stapled = talk(&authority, &first, "client").unwrap();
    assert!(!stapled.is_empty());
    assert_eq!(authority.count(), 1);
    authority.set(1, Answer::Gone);
    let second = server(&stapling(&authority, "must"));
    assert_eq!(talk(&authority, &second, "client").unwrap(), stapled);
    assert_eq!(authority.count(), 1, "it was kept");
}

#[test]
fn which_certificates_are_stapled() {
    for (mode, demands, expected) in [
        ("auto", false, false),
        ("auto", true, true),
        ("must", false, false),
        ("always", false, true),
        ("never", true, false),
    ] {
        let authority = Authority::new(&format!("mode-{mode}-{demands}"));
        authority.issue_with("server", 1, true, demands);
        authority.issue_with("client", 2, false, false);
        authority.set(1, Answer::Good);
        let server = server(&stapling(&authority, mode));
        let stapled = talk(&authority, &server, "client").unwrap();
        assert_eq!(!stapled.is_empty(), expected, "{mode} {demands}");
        assert_eq!(authority.count(), usize::from(expected), "{mode} {demands}");
    }
}

#[test]
fn a_server_that_cannot_staple_does_not_start() {
    for (mode, answer, starts) in [
        ("must", Answer::Revoked, "found existing OCSP status for certificate"),
        ("always", Answer::Unknown, "found existing OCSP status for certificate"),
        ("auto", Answer::Revoked, ""),
        ("auto", Answer::Forged, "bad OCSP status update for certificate"),
        ("auto", Answer::Expired, "bad OCSP status update for certificate"),
        ("always", Answer::Large, "bad OCSP status update for certificate"),
        ("always", Answer::Gone, "bad OCSP status update for certificate"),
    ] {
        let authority = Authority::new(&format!("start-{mode}-{answer:?}"));
        authority.issue_with("server", 1, true, true);
        authority.set(1, answer);
        let server = TestServer::start(configured(&stapling(&authority, mode)));
        let why = start_ocsp(&server).map_err(|error| error.to_string()).err().unwrap_or_default();
        assert!(why.starts_with(starts) && why.is_empty() == starts.is_empty(), "{mode}: {why}");
    }
}

#[test]
fn the_start_waits_for_silent_responders_once() {
    let authority = Authority::new("silent");
    authority.issue_with("server", 1, true, true);
    authority.set(1, Answer::Slow);
    let server = TestServer::start(configured(&stapling(&authority, "auto")));
    let loaded = Loaded::read(&server.server.options()).unwrap();
    let (began, limit) = (Instant::now(), Duration::from_millis(200));
    let started = nuthatch_server::ocsp_service::start(&server.server, &loaded, limit);
    let why = server.runtime.block_on(started).unwrap_err().to_string();
    assert!(why.ends_with("no answer within 200ms"), "{why}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[test]
fn a_response_is_renewed_and_a_revocation_stops_the_server() {
    let authority = Authority::new("renew");
    authority.issue_with("server", 1, true, true);
    authority.issue_with("client", 2, false, false);
    authority.set(1, Answer::GoodFor(4));
    let server = server(&stapling(&authority, "must"));
    let first = talk(&authority, &server, "client").unwrap();
    eventually("it is asked for again", || authority.count() > 1);
    eventually("the new one is shown", || {
        talk(&authority, &server, "client").is_ok_and(|stapled| stapled != first)
    });
    assert_eq!(server.server.fatal.reason(), None);
    authority.set(1, Answer::Revoked);
    eventually("it stops", || server.server.fatal.reason().is_some());
    let why = server.server.fatal.reason().unwrap();
    assert!(why.starts_with("Received OCSP status for certificate") && why.ends_with("revoked"));
}

/// Once the response has ended and no other can be had, the certificate is not shown; and it is again once
/// the responder answers.
#[test]
fn an_ended_response_is_not_shown() {
    let authority = Authority::new("ended");
    authority.issue_with("server", 1, true, true);
    authority.issue_with("client", 2, false, false);
    authority.set(1, Answer::GoodFor(3));
    let server = server(&stapling(&authority, "auto"));
    talk(&authority, &server, "client").unwrap();
    authority.set(1, Answer::Forged);
    eventually("it ends", || talk(&authority, &server, "client").is_err());
    authority.set(1, Answer::Good);
    eventually("there is a new one", || talk(&authority, &server, "client").is_ok());
}

#[test]
fn other_responders_than_the_certificate_names() {
    let authority = Authority::new("urls");
    authority.issue_with("server", 1, false, true);
    authority.issue_with("client", 2, false, false);
    authority.set(1, Answer::Good);
    let tls = authority.tls("server", "verify: true");
    let nobody = "http://127.0.0.1:1";
    let text = format!("ocsp {{ mode: must, urls: ['{nobody}', '{}'] }}\n{tls}", authority.url());
    let server = server(&text);
    assert!(!talk(&authority, &server, "client").unwrap().is_empty());
}

#[test]
fn leaf_nodes_are_checked_on_both_sides() {
    let authority = Authority::new("leafs");
    for (name, serial) in [("hub", 1), ("spoke", 2)] {
        authority.issue(name, serial);
    }
    for (of_hub, of_spoke, joins) in [
        (Answer::Good, Answer::Good, true),
        (Answer::Revoked, Answer::Good, false),
        (Answer::Good, Answer::Revoked, false),
    ] {
        authority.set(1, of_hub);
        authority.set(2, of_spoke);
        let hub = server(&format!(
            "ocsp_cache: false, server_name: hub, leafnodes {{ port: -1, {} }}",
            authority.tls("hub", "verify: true, ocsp_peer: true")
        ));
        let port = hub.leafs.unwrap().port();
        let spoke = server(&format!(
            "ocsp_cache: false, server_name: spoke, leafnodes {{ reconnect: '20ms', remotes: [
               {{ url: 'tls://localhost:{port}', {} }} ] }}",
            authority.tls("spoke", "ocsp_peer: true")
        ));
        let before = authority.count();
        let joined = || spoke.server.leafs.connections.open().iter().any(|c| c.link().is_some());
        if joins {
            eventually("it joins", joined);
        } else {
            eventually("it is asked about", || authority.count() > before + 4);
            assert!(!joined(), "{of_hub:?} {of_spoke:?}");
        }
    }
}

#[test]
fn a_reload_brings_other_certificates_and_options() {
    let authority = Authority::new("reload");
    authority.issue_with("server", 1, true, true);
    authority.set(1, Answer::Good);
    let options = configured(&stapling(&authority, "always"));
    assert_eq!(options.ocsp.mode, OcspMode::Always);
    let plan = options.reload_diff(&configured(&stapling(&authority, "never")));
    assert_eq!((plan.now, plan.restart), (vec!["ocsp"], vec![]));
}

#[test]
fn what_cannot_be_configured() {
    let tls = "cert_file: c, key_file: k, ca_file: a";
    let of_peers =
        |text| format!("tls {{ {tls}, verify: true, ocsp_peer {{ verify: true, {text} }} }}");
    for (text, why) in [
        ("ocsp { mode: sometimes }", "'mode' must be 'auto', 'always', 'must' or 'never'"),
        ("ocsp { urls: [ 'ldap://ca' ] }", "neither http:// nor https://"),
        ("ocsp { urls: [] }", "1 to 8 addresses"),
        ("ocsp_cache { type: redis }", "'none' or 'local'"),
        (&format!("tls {{ {tls}, ocsp_peer: true }}"), "needs 'verify'"),
        (
            "leafnodes { remotes: [ { url: 'tls://h', tls { insecure: true, ocsp_peer: true } } ] }",
            "does not go with 'insecure'",
        ),
        (&format!("tls {{ {tls}, verify: true, ocsp_peer: 7 }}"), "a map"),
        (&of_peers("ca_timeout: 10000000000000000000.5"), "at most 10000000000 seconds"),
        (&of_peers("ca_timeout: 3601"), "at most 3600 seconds"),
        (&of_peers("ca_timeout: '2h'"), "at most 3600 seconds"),
        (&of_peers("allowed_clockskew: 86400.5"), "at most 86400 seconds"),
        (
            &of_peers("cache_ttl_when_next_update_unset: 10000000000000000000.5"),
            "at most 31622400 seconds",
        ),
        (&of_peers("cache_ttl_when_next_update_unset: 9223372036854775807"), "at most 31622400"),
        ("ocsp_cache { save_interval: 10000000000000000000.5 }", "at most 31622400 seconds"),
    ] {
        let said = refused_configuration(text);
        assert!(said.contains(why), "{text}: {said}");
    }
    for (text, mode) in [
        ("ocsp: true", OcspMode::Auto),
        ("ocsp: false", OcspMode::Never),
        ("ocsp: must", OcspMode::Must),
        ("ocsp { mode: Always }", OcspMode::Always),
    ] {
        assert_eq!(configured(text).ocsp.mode, mode, "{text}");
    }
}
