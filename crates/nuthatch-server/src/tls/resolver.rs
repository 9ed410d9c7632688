//! Which of several certificates a client gets to see.

use rustls::client::verify_server_name;
use rustls::pki_types::ServerName;
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::sync::Arc;

/// The certificates of a listener, at least one.
#[derive(Debug)]
pub struct Certificates(pub Vec<Arc<CertifiedKey>>);

impl ResolvesServerCert for Certificates {
    /// The first that is for the name the client asks for and that it can check, else the first
    /// that it can check, else the first.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let usable =
            |key: &&Arc<CertifiedKey>| key.key.choose_scheme(hello.signature_schemes()).is_some();
        let wanted = hello.server_name().and_then(|name| ServerName::try_from(name).ok());
        let named =
            wanted.and_then(|name| self.0.iter().filter(usable).find(|key| is_for(key, &name)));
        named.or_else(|| self.0.iter().find(usable)).or_else(|| self.0.first()).cloned()
    }
}

fn is_for(key: &CertifiedKey, name: &ServerName<'_>) -> bool {
    key.end_entity_cert()
        .ok()
        .and_then(|der| ParsedCertificate::try_from(der).ok())
        .is_some_and(|certificate| verify_server_name(&certificate, name).is_ok())
}
