//! TLS towards a server that we connect to.

use crate::options::RemoteTls;
use crate::tls::TlsInfo;
use crate::tls::{TlsError, certificates, file_error, suites};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Reads the files of a remote's TLS configuration.
///
/// # Errors
/// See [`TlsError`].
pub(crate) fn load(options: &RemoteTls) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(suites::provider(&options.cipher_suites, &options.curves));
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(suites::versions(options.min_version))?;
    let builder = if options.insecure {
        let verifier = Arc::new(AnyCertificate { provider });
        builder.dangerous().with_custom_certificate_verifier(verifier)
    } else {
        builder.with_root_certificates(roots(options)?)
    };
    let config = match &options.certificate {
        None => builder.with_no_client_auth(),
        Some(files) => {
            let chain = certificates(&files.cert_file)?;
            let key = PrivateKeyDer::from_pem_file(&files.key_file)
                .map_err(|error| file_error(&files.key_file, error))?;
            builder.with_client_auth_cert(chain, key)?
        }
    };
    Ok(Arc::new(config))
}

/// The authorities of `ca_file`, or those of the system.
pub(crate) fn roots(options: &RemoteTls) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    match &options.ca_file {
        Some(file) => {
            for certificate in certificates(file)? {
                roots.add(certificate)?;
            }
        }
        None => {
            // Some of a system's authorities may be unreadable or of an odd kind.
            let (_, _) =
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    Ok(roots)
}

/// The handshake with the server of this name.
///
/// # Errors
/// What went wrong.
pub(crate) async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
    config: Arc<ClientConfig>,
    options: &RemoteTls,
    host: &str,
    socket: S,
) -> Result<(TlsStream<S>, TlsInfo), String> {
    let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
    let connected = TlsConnector::from(config).connect(name, socket);
    let stream = match tokio::time::timeout(options.timeout, connected).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Err(format!("TLS handshake error: {error}")),
        Err(_) => return Err("TLS handshake timeout".to_owned()),
    };
    let connection = stream.get_ref().1;
    let version = match connection.protocol_version() {
        Some(rustls::ProtocolVersion::TLSv1_3) => "1.3".to_owned(),
        Some(rustls::ProtocolVersion::TLSv1_2) => "1.2".to_owned(),
        other => format!("{other:?}"),
    };
    let cipher = connection
        .negotiated_cipher_suite()
        .map(|suite| format!("{:?}", suite.suite()).replace("TLS13_", "TLS_"))
        .unwrap_or_default();
    Ok((stream, TlsInfo { version, cipher, first: options.handshake_first, peer: None }))
}

/// Takes any certificate (`insecure: true`), but checks that the other side has its key.
#[derive(Debug)]
struct AnyCertificate {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _chain: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
