//! TLS: the upgrade after INFO, client certificates, and plain clients that are turned away.

mod support;

use nuthatch_server::options::{CertificateFiles, Options, TlsOptions};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use support::TestServer;

/// Files of one authority, a server and a client.
struct Pki {
    directory: PathBuf,
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
        for name in ["server", "client"] {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            let certificate = params.signed_by(&key, &authority).unwrap();
            std::fs::write(directory.join(format!("{name}.pem")), certificate.pem()).unwrap();
            std::fs::write(directory.join(format!("{name}.key")), key.serialize_pem()).unwrap();
        }
        Self { directory }
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

/// Talks through TLS; returns all that came back.
fn talk(server: &TestServer, config: Arc<rustls::ClientConfig>) -> std::io::Result<String> {
    let stream = TcpStream::connect(server.address)?;
    let mut stream = BufReader::with_capacity(64 * 1024, stream);
    let mut info = String::new();
    stream.read_line(&mut info)?;
    assert!(info.contains("\"tls_required\":true"), "{info}");
    let name = ServerName::try_from("localhost").unwrap();
    let connection = rustls::ClientConnection::new(config, name).map_err(std::io::Error::other)?;
    let mut tls = rustls::StreamOwned::new(connection, stream.into_inner());
    tls.write_all(b"CONNECT {\"verbose\":false}\r\nSUB a 1\r\nPUB a 2\r\nhi\r\nPING\r\n")?;
    let expected = "MSG a 1 2\r\nhi\r\nPONG\r\n";
    let mut found = vec![0; expected.len()];
    tls.read_exact(&mut found)?;
    Ok(String::from_utf8_lossy(&found).into_owned())
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
