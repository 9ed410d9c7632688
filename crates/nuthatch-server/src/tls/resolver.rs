//! Which of several certificates a client gets to see.

use super::staple::Staple;
use rustls::client::verify_server_name;
use rustls::pki_types::ServerName;
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::sync::Arc;

/// A certificate of a listener.
#[derive(Debug)]
pub enum Certificate {
    /// Shown as it is.
    Plain(Arc<CertifiedKey>),
    /// Shown with an OCSP response.
    Stapled(Arc<Staple>),
}

impl Certificate {
    fn key(&self) -> &Arc<CertifiedKey> {
        match self {
            Self::Plain(key) => key,
            Self::Stapled(staple) => staple.key(),
        }
    }

    fn shown(&self) -> Option<Arc<CertifiedKey>> {
        match self {
            Self::Plain(key) => Some(key.clone()),
            Self::Stapled(staple) => staple.shown(),
        }
    }
}

/// The certificates of a listener, at least one.
#[derive(Debug)]
pub struct Certificates(pub Vec<Certificate>);

impl ResolvesServerCert for Certificates {
    /// The first that is for the name the client asks for and that it can check, else the first
    /// that it can check, else the first. One that lacks its OCSP response is not shown.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let usable =
            |one: &&Certificate| one.key().key.choose_scheme(hello.signature_schemes()).is_some();
        let wanted = hello.server_name().and_then(|name| ServerName::try_from(name).ok());
        let named = wanted
            .and_then(|name| self.0.iter().filter(usable).find(|one| is_for(one.key(), &name)));
        let chosen = named.or_else(|| self.0.iter().find(usable)).or_else(|| self.0.first());
        chosen.and_then(Certificate::shown)
    }
}

fn is_for(key: &CertifiedKey, name: &ServerName<'_>) -> bool {
    key.end_entity_cert()
        .ok()
        .and_then(|der| ParsedCertificate::try_from(der).ok())
        .is_some_and(|certificate| verify_server_name(&certificate, name).is_ok())
}
