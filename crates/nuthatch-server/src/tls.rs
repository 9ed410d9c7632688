//! TLS towards clients: configuration from PEM files, and the handshake.

use crate::logging::Logger;
use crate::options::{CertificateFiles, Options, TlsOptions};
use crate::socket::Socket;
use arc_swap::ArcSwapOption;
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::CertifiedKey;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use self::ocsp::peer::PeerChecks;
use self::peer::PeerCertificate;
pub use self::rate::RateLimit;
use self::resolver::Certificate;
use self::staple::{Staples, Stapling};

mod dn;
pub mod ocsp;
pub mod peer;
mod rate;
mod resolver;
pub(crate) mod staple;
pub mod suites;

/// Why TLS cannot be offered.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or holds nothing of use.
    #[error("tls: cannot use {}: {why}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// The fault.
        why: String,
    },
    /// The files do not fit together.
    #[error("tls: {0}")]
    Config(#[from] rustls::Error),
    /// The authorities for clients' certificates are of no use.
    #[error("tls: cannot verify clients: {0}")]
    Verifier(String),
    /// A certificate cannot be shown as it must be, with an OCSP response.
    #[error("{0}")]
    Ocsp(String),
}

/// Parameters that TLS negotiated.
#[derive(Clone, Debug)]
pub struct TlsInfo {
    /// Protocol version as Go writes it.
    pub version: String,
    /// Cipher suite.
    pub cipher: String,
    /// The handshake came before INFO.
    pub first: bool,
    /// The certificate that the client has shown.
    pub peer: Option<Arc<PeerCertificate>>,
}

/// TLS of a listener.
#[derive(Debug)]
pub struct ListenerTls {
    /// How it shakes hands.
    pub config: Arc<rustls::ServerConfig>,
    /// The authorities of those who connect; empty unless they must show a certificate.
    pub roots: Arc<RootCertStore>,
    /// What it was made from: those who connect are checked by the options that go with the authorities.
    pub options: TlsOptions,
}

/// What the listeners of a server offer at present; `None`: no TLS.
#[derive(Debug, Default)]
pub struct Offered {
    /// To clients.
    pub clients: ArcSwapOption<ListenerTls>,
    /// To HTTPS monitoring: the same without a demand for certificates, unless OCSP checks them.
    pub monitor: ArcSwapOption<ListenerTls>,
    /// To websocket clients.
    pub websocket: ArcSwapOption<ListenerTls>,
    /// To leaf nodes.
    pub leafs: ArcSwapOption<ListenerTls>,
    /// Certificates that are shown with an OCSP response.
    pub staples: Staples,
    /// OCSP of the other side's certificates.
    pub peers: PeerChecks,
}

/// TLS settings of a server's listeners.
#[derive(Debug, Default)]
pub struct Loaded {
    clients: Option<Arc<ListenerTls>>,
    monitor: Option<Arc<ListenerTls>>,
    websocket: Option<Arc<ListenerTls>>,
    leafs: Option<Arc<ListenerTls>>,
    stapling: Stapling,
}

impl Loaded {
    /// Reads the files of all listeners.
    ///
    /// # Errors
    /// See [`TlsError`].
    pub fn read(options: &Options) -> Result<Self, TlsError> {
        let mut loaded = Self::default();
        let stapling = &mut loaded.stapling;
        stapling.options.clone_from(&options.ocsp);
        if let Some(tls) = &options.tls {
            loaded.clients = Some(load(tls, Some(stapling))?);
            // Whoever only looks needs no certificate, as in nats-server.
            let open = TlsOptions { verify: tls.verify && options.checks_peers(), ..tls.clone() };
            loaded.monitor = Some(load(&open, Some(stapling))?);
        }
        if let Some(tls) = options.websocket.as_ref().and_then(|ws| ws.tls.as_ref()) {
            loaded.websocket = Some(load(tls, Some(stapling))?);
        }
        if let Some(tls) = options.leafnodes.as_ref().and_then(|leafs| leafs.tls.as_ref()) {
            // nats-server staples nothing for them: they have `ocsp_peer`.
            loaded.leafs = Some(load(tls, None)?);
        }
        Ok(loaded)
    }

    /// Certificates that need an OCSP response before they can be shown.
    pub(crate) fn staples(&self) -> &[Arc<staple::Staple>] {
        &self.stapling.all
    }

    /// What is to be said of certificates.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.stapling.warnings
    }

    /// Lets new connections use them.
    pub fn install(self, offered: &Offered) {
        offered.clients.store(self.clients);
        offered.monitor.store(self.monitor);
        offered.websocket.store(self.websocket);
        offered.leafs.store(self.leafs);
    }
}

/// Reads the files of a TLS configuration.
fn load(
    options: &TlsOptions,
    mut stapling: Option<&mut Stapling>,
) -> Result<Arc<ListenerTls>, TlsError> {
    let provider = Arc::new(suites::provider(&options.cipher_suites, &options.curves));
    let builder = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(suites::versions(options.min_version))?;
    let mut roots = RootCertStore::empty();
    if let Some(ca_file) = options.ca_file.as_ref().filter(|_| options.verify) {
        for certificate in certificates(ca_file)? {
            roots.add(certificate)?;
        }
    }
    // The options demand `ca_file`, and a file without certificates is refused.
    assert_eq!(options.verify, !roots.is_empty(), "clients are verified if that is wanted");
    let roots = Arc::new(roots);
    let builder = if roots.is_empty() {
        builder.with_no_client_auth()
    } else {
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
            .build()
            .map_err(|error| TlsError::Verifier(error.to_string()))?;
        builder.with_client_cert_verifier(verifier)
    };
    let mut shown = Vec::new();
    for files in &options.certificates {
        let key = certified(files, &provider)?;
        let staple = match &mut stapling {
            Some(stapling) => stapling.add(&key, &files.cert_file, options)?,
            None => None,
        };
        shown.push(staple.map_or(Certificate::Plain(key), Certificate::Stapled));
    }
    let config = Arc::new(builder.with_cert_resolver(Arc::new(resolver::Certificates(shown))));
    Ok(Arc::new(ListenerTls { config, roots, options: options.clone() }))
}

fn certified(
    files: &CertificateFiles,
    provider: &CryptoProvider,
) -> Result<Arc<CertifiedKey>, TlsError> {
    let chain = certificates(&files.cert_file)?;
    let key = PrivateKeyDer::from_pem_file(&files.key_file)
        .map_err(|error| file_error(&files.key_file, error))?;
    let certified = CertifiedKey::from_der(chain, key, provider)
        .map_err(|error| file_error(&files.cert_file, error))?;
    Ok(Arc::new(certified))
}

pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(path).map_err(|error| file_error(path, error))?.collect();
    let found = found.map_err(|error| file_error(path, error))?;
    if found.is_empty() {
        return Err(file_error(path, "it holds no certificate"));
    }
    Ok(found)
}

pub(crate) fn file_error(path: &Path, why: impl ToString) -> TlsError {
    TlsError::File { path: path.to_owned(), why: why.to_string() }
}

/// A connection over TLS and what was agreed on.
pub(crate) struct Secure {
    pub(crate) stream: TlsStream<Socket>,
    pub(crate) info: TlsInfo,
}

impl Secure {
    /// The certificates that the other side has shown.
    pub(crate) fn presented(&self) -> Option<&[CertificateDer<'static>]> {
        self.stream.get_ref().1.peer_certificates()
    }
}

/// The handshake and the check of pinned keys; `None` if either failed, which was logged.
pub(crate) async fn handshake(
    log: &Logger,
    who: &(dyn Display + Sync),
    config: &ListenerTls,
    socket: Socket,
    limit: Duration,
) -> Option<Secure> {
    let acceptor = TlsAcceptor::from(config.config.clone());
    let accepted = tokio::time::timeout(limit, acceptor.accept(socket)).await;
    let stream = match accepted {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            log.error(format_args!("{who} - TLS handshake error: {error}"));
            return None;
        }
        Err(_) => {
            log.error(format_args!("{who} - TLS handshake timeout"));
            return None;
        }
    };
    let info = match describe(stream.get_ref().1) {
        Ok(info) => info,
        Err(why) => {
            log.error(format_args!("{who} - TLS: cannot read the client's certificate: {why}"));
            return None;
        }
    };
    let pins = &config.options.pinned_keys;
    let key = info.peer.as_ref().map(|peer| peer.key_sha256.as_str());
    if !pins.is_empty() && !key.is_some_and(|key| pins.contains(key)) {
        log.error(format_args!("{who} - certificate not pinned: {}", key.unwrap_or("none shown")));
        return None;
    }
    Some(Secure { stream, info })
}

fn describe(connection: &rustls::ServerConnection) -> Result<TlsInfo, String> {
    let version = match connection.protocol_version() {
        Some(rustls::ProtocolVersion::TLSv1_3) => "1.3".to_owned(),
        Some(rustls::ProtocolVersion::TLSv1_2) => "1.2".to_owned(),
        other => format!("{other:?}"),
    };
    let cipher = connection
        .negotiated_cipher_suite()
        .map(|suite| format!("{:?}", suite.suite()).replace("TLS13_", "TLS_"))
        .unwrap_or_default();
    let shown = connection.peer_certificates().and_then(<[_]>::first);
    let peer = shown.map(|der| PeerCertificate::parse(der).map(Arc::new)).transpose()?;
    Ok(TlsInfo { version, cipher, first: false, peer })
}
