//! TLS towards clients: configuration from PEM files, and the handshake.

use crate::conn::{Connection, TlsInfo};
use crate::listener::Socket;
use crate::options::TlsOptions;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Why TLS cannot be offered.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or holds nothing of use.
    #[error("tls: cannot use {}: {why}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The files do not fit together.
    #[error("tls: {0}")]
    Config(#[from] rustls::Error),
    /// The authorities for clients' certificates are of no use.
    #[error("tls: cannot verify clients: {0}")]
    Verifier(String),
}

/// Reads the files of a TLS configuration.
///
/// # Errors
/// See [`TlsError`].
pub fn load(options: &TlsOptions) -> Result<Arc<rustls::ServerConfig>, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = certificates(&options.cert_file)?;
    let key = PrivateKeyDer::from_pem_file(&options.key_file)
        .map_err(|error| file_error(&options.key_file, error))?;
    let builder = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?;
    let builder = match &options.ca_file {
        Some(ca_file) if options.verify => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(ca_file)? {
                roots.add(certificate)?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|error| TlsError::Verifier(error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
        _ => builder.with_no_client_auth(),
    };
    Ok(Arc::new(builder.with_single_cert(chain, key)?))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(path).map_err(|error| file_error(path, error))?.collect();
    let found = found.map_err(|error| file_error(path, error))?;
    if found.is_empty() {
        return Err(file_error(path, "it holds no certificate"));
    }
    Ok(found)
}

fn file_error(path: &Path, why: impl ToString) -> TlsError {
    TlsError::File { path: path.to_owned(), why: why.to_string() }
}

/// Sends INFO in the clear, before the handshake.
pub(crate) async fn greet(socket: &mut Socket, greeting: &[u8]) -> io::Result<()> {
    socket.write_all(greeting).await
}

/// The handshake; `None` if it failed, which was logged and answered.
pub(crate) async fn accept(
    conn: &Connection,
    config: Arc<rustls::ServerConfig>,
    socket: Socket,
    limit: Duration,
) -> Option<TlsStream<Socket>> {
    let log = &conn.server().log;
    match tokio::time::timeout(limit, TlsAcceptor::from(config).accept(socket)).await {
        Ok(Ok(stream)) => {
            let _ = conn.tls.set(describe(stream.get_ref().1));
            Some(stream)
        }
        Ok(Err(error)) => {
            log.error(format_args!("{conn} - TLS handshake error: {error}"));
            None
        }
        Err(_) => {
            log.error(format_args!("{conn} - TLS handshake timeout"));
            None
        }
    }
}

fn describe(connection: &rustls::ServerConnection) -> TlsInfo {
    let version = match connection.protocol_version() {
        Some(rustls::ProtocolVersion::TLSv1_3) => "1.3".to_owned(),
        Some(rustls::ProtocolVersion::TLSv1_2) => "1.2".to_owned(),
        other => format!("{other:?}"),
    };
    let cipher = connection
        .negotiated_cipher_suite()
        .map(|suite| format!("{:?}", suite.suite()).replace("TLS13_", "TLS_"))
        .unwrap_or_default();
    TlsInfo { version, cipher }
}
