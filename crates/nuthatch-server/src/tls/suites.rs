//! The cryptography of listeners, as the options choose it.

use crate::cipher_suites::{curve, suite};
use crate::options::TlsVersion;
use rustls::crypto::{CryptoProvider, ring};
use rustls::{CipherSuite, NamedGroup, SupportedProtocolVersion};

/// The cryptography that names of cipher suites and groups leave of all that we have. As in Go, a list
/// without suites of TLS 1.3 leaves those as they are.
#[must_use]
pub fn provider(cipher_suites: &[String], curves: &[String]) -> CryptoProvider {
    let mut provider = ring::default_provider();
    let chosen: Vec<CipherSuite> = cipher_suites.iter().filter_map(|name| suite(name)).collect();
    if !chosen.is_empty() {
        let is_13 = |suite: &rustls::SupportedCipherSuite| suite.tls13().is_some();
        let wants_13 = chosen.iter().any(|suite| format!("{suite:?}").starts_with("TLS13_"));
        provider
            .cipher_suites
            .retain(|suite| chosen.contains(&suite.suite()) || (is_13(suite) && !wants_13));
    }
    let curves: Vec<NamedGroup> = curves.iter().filter_map(|name| curve(name)).collect();
    if !curves.is_empty() {
        let place = |group: NamedGroup| curves.iter().position(|chosen| *chosen == group);
        provider.kx_groups.retain(|group| place(group.name()).is_some());
        provider.kx_groups.sort_by_key(|group| place(group.name()));
    }
    provider
}

/// The versions that are spoken.
#[must_use]
pub fn versions(oldest: TlsVersion) -> &'static [&'static SupportedProtocolVersion] {
    static ALL: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS13, &rustls::version::TLS12];
    match oldest {
        TlsVersion::V12 => &ALL,
        TlsVersion::V13 => &ALL[..1],
    }
}
