//! How two servers prove to each other who they are: TLS in either order, certificates, nkeys and
//! credentials files.

mod support;

use nuthatch_server::credentials::KeyPair as UserKey;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::{Value, json};
use std::net::TcpListener;
use std::path::PathBuf;
use support::{Peer, TestServer, configured, eventually};

/// The seed of a user's nkey and what it makes public.
const SEED: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";

/// A directory with an authority, and certificates of it for 127.0.0.1.
struct Pki(PathBuf);

impl Pki {
    fn new(name: &str) -> Self {
        let directory =
            std::env::temp_dir().join(format!("nuthatch-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        for authority in ["ca", "other"] {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let issuer =
                CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
            std::fs::write(directory.join(format!("{authority}.pem")), issuer.pem()).unwrap();
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
            let certificate = params.signed_by(&key, &issuer).unwrap();
            let file = |end: &str| directory.join(format!("of-{authority}.{end}"));
            std::fs::write(file("pem"), certificate.pem()).unwrap();
            std::fs::write(file("key"), key.serialize_pem()).unwrap();
        }
        Self(directory)
    }

    /// `cert_file` and the like for these files.
    fn files(&self, certificate: &str, authority: &str) -> String {
        let path = |name: &str| self.0.join(name).display().to_string();
        format!(
            "cert_file: '{}', key_file: '{}', ca_file: '{}', timeout: 20",
            path(&format!("{certificate}.pem")),
            path(&format!("{certificate}.key")),
            path(&format!("{authority}.pem"))
        )
    }
}

impl Drop for Pki {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn hub(tls: &str, login: &str) -> TestServer {
    TestServer::start(configured(&format!(
        "server_name: hub, leafnodes {{ port: -1, tls {{ {tls} }}, authorization {{ timeout: 30, {login} }} }}"
    )))
}

fn spoke(hub: &TestServer, remote: &str) -> TestServer {
    TestServer::start(configured(&format!(
        "server_name: spoke, leafnodes {{ reconnect: '20ms', dial_timeout: '20s', remotes: [
           {{ url: 'tls://us:pw@127.0.0.1:{}', first_info_timeout: '20s', {remote} }} ] }}",
        hub.leafs.unwrap().port()
    )))
}

fn has_joined(server: &TestServer) -> bool {
    server.server.leafs.connections.open().iter().any(|conn| conn.link().is_some())
}

/// A message crosses from a client of one to a client of the other.
fn imports(hub: &TestServer, spoke: &TestServer) {
    eventually("both have joined", || has_joined(hub) && has_joined(spoke));
    let (mut here, mut there) = (hub.client(), spoke.client());
    here.send("SUB crossing 1\r\n");
    here.flush("");
    eventually("interest has crossed", || spoke.server.accounts.global().interest.any(b"crossing"));
    there.send("PUB crossing 2\r\nhi\r\n");
    here.expect("MSG crossing 1 2\r\nhi\r\n");
}

#[test]
fn tls_in_either_order_with_certificates_on_both_sides() {
    let pki = Pki::new("leaf-tls");
    let own = pki.files("of-ca", "ca");
    for first in [false, true] {
        let hub = hub(
            &format!("{own}, verify: true, handshake_first: {first}"),
            "user: us, password: pw",
        );
        let spoke = spoke(&hub, &format!("tls {{ {own}, handshake_first: {first} }}"));
        imports(&hub, &spoke);
        let joined = hub.server.leafs.connections.open();
        assert!(joined.iter().any(|conn| conn.tls.get().is_some_and(|tls| tls.first == first)));
    }
}

#[test]
fn a_stranger_s_certificate_is_refused_unless_nobody_looks() {
    let pki = Pki::new("leaf-strangers");
    let hub = hub(&pki.files("of-other", "other"), "user: us, password: pw");
    let own = pki.files("of-ca", "ca");
    let wary = spoke(&hub, &format!("tls {{ {own} }}"));
    let careless = spoke(&hub, "tls { insecure: true, timeout: 20 }");
    imports(&hub, &careless);
    assert!(!has_joined(&wary));
}

#[test]
fn an_nkey_proves_who_we_are() {
    let pki = Pki::new("leaf-nkeys");
    let public = UserKey::from_seed(SEED).unwrap().public();
    let own = pki.files("of-ca", "ca");
    let hub = hub(&own, &format!("nkey: {public}"));
    let wrong = spoke(&hub, &format!("tls {{ {own} }}"));
    let right = spoke(&hub, &format!("tls {{ {own} }}, nkey: {SEED}"));
    imports(&hub, &right);
    assert!(!has_joined(&wrong));
}

#[test]
fn a_credentials_file_is_shown() {
    let file = std::env::temp_dir().join(format!("nuthatch-leaf-{}.creds", std::process::id()));
    let text = format!(
        "-----BEGIN NATS USER JWT-----\na.b.c\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{SEED}\n------END USER NKEY SEED------\n"
    );
    std::fs::write(&file, text).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let _server = TestServer::start(configured(&format!(
        "leafnodes {{ remotes: [ {{ url: 'nats-leaf://{}', creds: '{}' }} ] }}",
        listener.local_addr().unwrap(),
        file.display()
    )));
    let mut peer = Peer::new(listener.accept().unwrap().0);
    peer.send(
        "INFO {\"server_id\":\"H\",\"client_id\":7,\"info_on_connect\":true,\"nonce\":\"abc\"}\r\n",
    );
    let line = peer.line();
    let connect: Value = serde_json::from_str(line.strip_prefix("CONNECT ").unwrap()).unwrap();
    let signature = UserKey::from_seed(SEED).unwrap().sign("abc");
    assert_eq!(
        (&connect["jwt"], &connect["sig"]),
        (&json!("a.b.c"), &json!(signature)),
        "{connect}"
    );
    assert_eq!(connect.get("nkey"), None);
    std::fs::remove_file(&file).unwrap();
}

/// `pinned_certs` of `leafnodes` name whom we accept, and whom we connect to.
#[test]
fn a_server_whose_key_is_not_pinned() {
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    let pki = Pki::new("leaf-pins");
    let own = pki.files("of-ca", "ca");
    let hub = hub(&own, "user: us, password: pw");
    let shown = CertificateDer::from_pem_file(pki.0.join("of-ca.pem")).unwrap();
    let key = nuthatch_server::tls::peer::PeerCertificate::parse(&shown).unwrap().key_sha256;
    let pinning = |pin: &str| {
        TestServer::start(configured(&format!(
            "server_name: spoke, leafnodes {{ port: -1, reconnect: '20ms', dial_timeout: '20s',
               tls {{ {own}, verify: true, pinned_certs: [ '{pin}' ] }}, remotes: [
               {{ url: 'tls://us:pw@127.0.0.1:{}', first_info_timeout: '20s', tls {{ {own} }} }} ] }}",
            hub.leafs.unwrap().port()
        )))
    };
    let wary = pinning(&"7".repeat(64));
    imports(&hub, &pinning(&key));
    assert!(!has_joined(&wary));
}
