//! What a connection reads from and writes to: a TCP socket, or one inside TLS.
//!
//! The two halves of a client share one socket, so everything here works through `&self`. Under TLS
//! the session is behind a lock that is never held while waiting for the network to deliver.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

/// Encrypted bytes taken from the network at once.
const RECORD_BUFFER_BYTES: usize = 16 * 1024;

/// How to speak TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// Authorities in PEM that vouch for the server (default: those of the system).
    pub ca: Option<PathBuf>,
    /// Our certificate chain in PEM.
    pub cert: Option<PathBuf>,
    /// Its key in PEM.
    pub key: Option<PathBuf>,
    /// Whether the handshake comes before the server's greeting.
    pub first: bool,
}

impl TlsSettings {
    /// True if anything was asked for that makes no sense without encryption.
    pub fn is_wanted(&self) -> bool {
        self.first || self.ca.is_some() || self.cert.is_some()
    }
}

/// Why no encrypted connection could be made.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or holds nothing of use.
    #[error("cannot use {}: {why}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Only one of certificate and key was given.
    #[error("a client certificate needs both --tlscert and --tlskey")]
    HalfACertificate,
    /// The system has no list of authorities.
    #[error("this system lists no certificate authorities; name the server's with --tlsca")]
    NoAuthorities,
    /// The host cannot stand in a certificate.
    #[error("{0:?} is no host name that a certificate can carry")]
    BadName(String),
    /// Certificate and key do not fit, or the handshake broke.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    /// The handshake failed on the network, or one side refused the other's certificate.
    #[error("{0}; if the server's certificate is of your own making, name its issuer with --tlsca")]
    Handshake(io::Error),
}

/// A socket, encrypted or not.
#[derive(Debug)]
pub struct Socket(Kind);

#[derive(Debug)]
enum Kind {
    Plain(TcpStream),
    Tls(Box<TlsSocket>),
}

#[derive(Debug)]
struct TlsSocket {
    tcp: TcpStream,
    session: Mutex<Session>,
}

#[derive(Debug)]
struct Session {
    tls: ClientConnection,
    /// Encrypted bytes that TLS has not taken yet; at most [`RECORD_BUFFER_BYTES`].
    raw: Vec<u8>,
}

impl Socket {
    /// A socket in the clear.
    pub fn plain(tcp: TcpStream) -> Self {
        Self(Kind::Plain(tcp))
    }

    /// Shakes hands; `tcp` must be at the start of the encrypted part.
    ///
    /// # Errors
    /// When the files are of no use, or either side does not trust the other.
    pub fn encrypted(
        tcp: TcpStream,
        host: &str,
        settings: &TlsSettings,
        timeout: Duration,
    ) -> Result<Self, TlsError> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| TlsError::BadName(host.to_owned()))?;
        let mut tls = ClientConnection::new(client_config(settings)?, name)?;
        let limit = Some(timeout.max(Duration::from_millis(1)));
        let shake = |tls: &mut ClientConnection| {
            tcp.set_read_timeout(limit)?;
            tcp.set_write_timeout(limit)?;
            while tls.is_handshaking() {
                tls.complete_io(&mut &tcp)?;
            }
            tcp.set_write_timeout(None)
        };
        shake(&mut tls).map_err(TlsError::Handshake)?;
        let session = Mutex::new(Session { tls, raw: Vec::new() });
        Ok(Self(Kind::Tls(Box::new(TlsSocket { tcp, session }))))
    }

    /// True if it is encrypted.
    pub fn is_encrypted(&self) -> bool {
        matches!(self.0, Kind::Tls(_))
    }

    /// Reads what is there, waiting at most the read timeout; 0 at the end of the stream.
    pub(super) fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        match &self.0 {
            Kind::Plain(tcp) => (&mut &*tcp).read(buf),
            Kind::Tls(tls) => tls.read(buf),
        }
    }

    /// Writes everything.
    pub(super) fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        match &self.0 {
            Kind::Plain(tcp) => (&mut &*tcp).write_all(bytes),
            Kind::Tls(tls) => tls.write_all(bytes),
        }
    }

    /// Writes some of the parts, in order, in as few calls as possible.
    pub(super) fn write_vectored(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match &self.0 {
            Kind::Plain(tcp) => (&mut &*tcp).write_vectored(parts),
            Kind::Tls(tls) => {
                parts.iter().try_for_each(|part| tls.write_all(part))?;
                Ok(parts.iter().map(|part| part.len()).sum())
            }
        }
    }

    /// Limits each wait of [`Self::read`].
    pub(super) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match &self.0 {
            Kind::Plain(tcp) => tcp.set_read_timeout(timeout),
            Kind::Tls(tls) => tls.tcp.set_read_timeout(timeout),
        }
    }
}

impl TlsSocket {
    fn session(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        let mut raw = [0; RECORD_BUFFER_BYTES];
        loop {
            if let Some(count) = self.read_decrypted(buf)? {
                return Ok(count);
            }
            let count = (&self.tcp).read(&mut raw)?;
            if count == 0 {
                return Ok(0);
            }
            self.session().raw.extend_from_slice(&raw[..count]);
        }
    }

    /// Decrypts what has been received until there is something to hand out; nothing when the
    /// network has to be asked for more.
    fn read_decrypted(&self, buf: &mut [u8]) -> io::Result<Option<usize>> {
        let mut session = self.session();
        loop {
            match session.tls.reader().read(buf) {
                Ok(count) => return Ok(Some(count)),
                Err(err) if err.kind() == ErrorKind::WouldBlock => {}
                Err(err) => return Err(err),
            }
            if session.raw.is_empty() {
                return Ok(None);
            }
            let Session { tls, raw } = &mut *session;
            let taken = tls.read_tls(&mut raw.as_slice())?;
            raw.drain(..taken);
            tls.process_new_packets().map_err(io::Error::other)?;
            // Answers of the protocol itself, such as to a change of keys.
            while tls.wants_write() {
                tls.write_tls(&mut &self.tcp)?;
            }
        }
    }

    fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        let mut session = self.session();
        while !bytes.is_empty() {
            let taken = session.tls.writer().write(bytes)?;
            bytes = &bytes[taken..];
            while session.tls.wants_write() {
                session.tls.write_tls(&mut &self.tcp)?;
            }
        }
        Ok(())
    }
}

fn client_config(settings: &TlsSettings) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(authorities(settings.ca.as_deref())?);
    let config = match (&settings.cert, &settings.key) {
        (None, None) => builder.with_no_client_auth(),
        (Some(cert), Some(key)) => {
            let key_der = PrivateKeyDer::from_pem_file(key).map_err(|err| file_error(key, err))?;
            builder.with_client_auth_cert(certificates(cert)?, key_der)?
        }
        _ => return Err(TlsError::HalfACertificate),
    };
    Ok(Arc::new(config))
}

fn authorities(ca: Option<&Path>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(path) => {
            for certificate in certificates(path)? {
                roots.add(certificate)?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(TlsError::NoAuthorities);
            }
        }
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|err| file_error(path, err))?;
    if found.is_empty() {
        return Err(file_error(path, "it holds no certificate"));
    }
    Ok(found)
}

fn file_error(path: &Path, why: impl ToString) -> TlsError {
    TlsError::File { path: path.to_owned(), why: why.to_string() }
}
