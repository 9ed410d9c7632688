//! OCSP responses that go with certificates of the server.

use super::ocsp::{Issuer, Link, Response, is_signed_by, must_staple};
use super::{TlsError, certificates};
use crate::options::{Ocsp, OcspMode, TlsOptions};
use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use rustls::sign::CertifiedKey;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use x509_parser::prelude::{FromDer, X509Certificate};

/// A certificate that is only shown with a response that counts.
#[derive(Debug)]
pub struct Staple {
    /// Its file.
    pub(crate) file: PathBuf,
    pub(crate) link: Link,
    /// The server stops if it is not good.
    pub(crate) stops: bool,
    key: Arc<CertifiedKey>,
    current: ArcSwapOption<Stapled>,
    /// Somebody wants to see it, and there is no response that counts.
    pub(crate) wanted: Notify,
}

/// A certificate with a response.
#[derive(Debug)]
pub(crate) struct Stapled {
    key: Arc<CertifiedKey>,
    pub(crate) raw: Vec<u8>,
    pub(crate) response: Response,
}

/// True if a response counts now. Clocks are taken as they are, as in nats-server.
pub(crate) fn is_current(response: &Response, now: SystemTime) -> bool {
    response.this_update <= now && response.next_update.is_none_or(|end| end >= now)
}

impl Staple {
    /// The certificate with its response; `None`: there is none that counts.
    pub(super) fn shown(&self) -> Option<Arc<CertifiedKey>> {
        let current = self.current();
        let counts = current.filter(|stapled| is_current(&stapled.response, SystemTime::now()));
        if counts.is_none() {
            self.wanted.notify_one();
        }
        counts.map(|stapled| stapled.key.clone())
    }

    pub(super) fn key(&self) -> &Arc<CertifiedKey> {
        &self.key
    }

    /// The last response.
    pub(crate) fn current(&self) -> Option<Arc<Stapled>> {
        self.current.load_full()
    }

    /// Shows the certificate with this response from now on; false: it is older than the one that is shown, so
    /// that one stays.
    pub(crate) fn set(&self, raw: Vec<u8>, response: Response) -> bool {
        if let Some(shown) = self.current().map(|current| current.response)
            && is_current(&shown, SystemTime::now())
            && response.this_update < shown.this_update
        {
            return false;
        }
        let key = CertifiedKey { ocsp: Some(raw.clone()), ..CertifiedKey::clone(&self.key) };
        self.current.store(Some(Arc::new(Stapled { key: Arc::new(key), raw, response })));
        true
    }
}

/// All certificates of a server that are stapled, and the tasks that keep them so.
#[derive(Debug, Default)]
pub struct Staples {
    pub(crate) all: Mutex<Vec<Arc<Staple>>>,
    pub(crate) tasks: Mutex<Vec<AbortHandle>>,
}

/// Certificates of a configuration that are to be stapled.
#[derive(Debug, Default)]
pub(super) struct Stapling {
    pub(super) options: Ocsp,
    pub(super) all: Vec<Arc<Staple>>,
    /// What is to be said.
    pub(super) warnings: Vec<String>,
}

impl Stapling {
    /// The state of a certificate of these options that is to be stapled; `None`: it is not.
    ///
    /// # Errors
    /// Its issuer is not known.
    pub(super) fn add(
        &mut self,
        key: &Arc<CertifiedKey>,
        file: &Path,
        tls: &TlsOptions,
    ) -> Result<Option<Arc<Staple>>, TlsError> {
        let Some(certificate) = key.cert.first() else { return Ok(None) };
        let demands = must_staple(certificate);
        let (wanted, stops) = match self.options.mode {
            OcspMode::Auto => (demands, false),
            OcspMode::Must => (demands, true),
            OcspMode::Always => (true, true),
            OcspMode::Never => (false, false),
        };
        if !wanted {
            if demands {
                let file = file.display();
                let what = "has MustStaple but OCSP is disabled";
                self.warnings.push(format!("Certificate at '{file}' {what}"));
            }
            return Ok(None);
        }
        let known = self.all.iter().find(|one| one.link.certificate == *certificate);
        if let Some(known) = known {
            return Ok(Some(known.clone()));
        }
        let bad = |why: &str| TlsError::Ocsp(format!("certificate at '{}': {why}", file.display()));
        let issuer = issuer(&key.cert, tls)?.ok_or_else(|| bad("no issuers found"))?;
        let link = Link::new(certificate, issuer).ok_or_else(|| bad("it cannot be read"))?;
        let staple = Arc::new(Staple {
            file: file.to_owned(),
            link,
            stops,
            key: key.clone(),
            current: ArcSwapOption::default(),
            wanted: Notify::new(),
        });
        self.all.push(staple.clone());
        Ok(Some(staple))
    }
}

/// Who has issued the first certificate: the second one of the file, else one of `ca_file` or of the
/// system's authorities.
fn issuer(chain: &[CertificateDer<'_>], tls: &TlsOptions) -> Result<Option<Issuer>, TlsError> {
    let Some((first, others)) = chain.split_first() else { return Ok(None) };
    if let Some(second) = others.first() {
        return Ok(issued(first, second));
    }
    let roots = match &tls.ca_file {
        Some(file) => certificates(file)?,
        // Some of a system's authorities may be unreadable or of an odd kind.
        None => rustls_native_certs::load_native_certs().certs,
    };
    Ok(roots.iter().find_map(|root| issued(first, root)))
}

/// The authority that `authority` is of, if it has issued the certificate.
fn issued(certificate: &[u8], authority: &[u8]) -> Option<Issuer> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let (_, parsed_authority) = X509Certificate::from_der(authority).ok()?;
    let issuer = Issuer::of(authority)?;
    let is = parsed.issuer().as_raw() == issuer.name
        && parsed_authority.is_ca()
        && is_signed_by(certificate, &issuer.key);
    is.then_some(issuer)
}

#[cfg(test)]
mod tests {
    use super::super::ocsp::Status;
    use super::*;
    use std::time::Duration;

    /// One of two responders may be behind the other.
    #[test]
    fn an_older_response_takes_no_newer_ones_place() {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let certificate = made.cert.der().clone();
        let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der());
        let provider = rustls::crypto::ring::default_provider();
        let key = CertifiedKey::from_der(vec![certificate.clone()], key.unwrap(), &provider);
        let link = Link::new(&certificate, Issuer::of(&certificate).unwrap()).unwrap();
        let staple = Staple {
            file: PathBuf::new(),
            link,
            stops: false,
            key: Arc::new(key.unwrap()),
            current: ArcSwapOption::default(),
            wanted: Notify::new(),
        };
        let now = SystemTime::now();
        let hours = |count: u64| Duration::from_secs(3600 * count);
        let response = |began: Duration, end: SystemTime| Response {
            status: Status::Good,
            this_update: now - began,
            next_update: Some(end),
        };
        let shown = || staple.current().unwrap().raw.clone();
        assert!(staple.set(b"first".to_vec(), response(hours(2), now + hours(9))));
        assert!(!staple.set(b"older".to_vec(), response(hours(3), now + hours(9))));
        assert_eq!(shown(), b"first");
        assert!(staple.set(b"newer".to_vec(), response(hours(1), now + hours(9))));
        // One that has ended is no use.
        assert!(staple.set(b"ended".to_vec(), response(hours(1), now - Duration::from_secs(1))));
        assert!(staple.set(b"older".to_vec(), response(hours(3), now + hours(9))));
        assert_eq!(shown(), b"older");
    }
}
