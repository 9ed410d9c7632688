//! OCSP (RFC 6960): requests, responses and their verification, responders over HTTP.

mod cache;
mod chain;
mod der;
mod fetch;
mod flights;
pub(crate) mod peer;
mod request;
#[cfg(test)]
#[path = "../../tests/support/ocsp.rs"]
mod responder;
mod response;
mod signature;

pub(crate) use self::cache::replace;
pub use self::cache::{CacheStats, PeerCache};
pub(crate) use self::chain::{Chain, Purpose, chains};
pub use self::fetch::RESPONSE_BYTES_MAX;
pub(crate) use self::fetch::{FetchError, Way, fetch};
pub(crate) use self::request::request;
pub(crate) use self::response::{Response, ResponseError, Status, read, read_past};
pub(crate) use self::signature::is_signed_by;

use super::dn::go_subject;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::digest;
use rustls::pki_types::CertificateDer;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::{OID_PKIX_ACCESS_DESCRIPTOR_OCSP, OID_PKIX_AUTHORITY_INFO_ACCESS};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Responders of one certificate that are asked, one after another.
pub const RESPONDERS_MAX: usize = 8;
/// Object identifier of the TLS features that a certificate demands (RFC 7633).
const TLS_FEATURES: &str = "1.3.6.1.5.5.7.1.24";
/// The feature `status_request`: a response must be stapled.
const STATUS_REQUEST: &[u8] = &[5];

/// Who has issued a certificate, as far as responses are concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Issuer {
    /// Its name in DER.
    pub(crate) name: Vec<u8>,
    /// Its SubjectPublicKeyInfo in DER.
    pub(crate) key: Vec<u8>,
}

impl Issuer {
    /// The authority that has this certificate; `None`: it cannot be read.
    pub(crate) fn of(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let name = certificate.subject().as_raw().to_vec();
        Some(Self { name, key: certificate.public_key().raw.to_vec() })
    }

    /// The authority of a trust anchor, whose fields have no outer header.
    pub(crate) fn of_anchor(subject: &[u8], key: &[u8]) -> Self {
        let whole = |content| der::tlv(der::SEQUENCE, &[content]);
        Self { name: whole(subject), key: whole(key) }
    }
}

/// A certificate whose state is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) issuer: Issuer,
    /// Content of its serial number in DER.
    serial: Vec<u8>,
    /// Addresses of the responders that it names.
    pub(crate) responders: Vec<String>,
}

impl Link {
    /// `None`: the certificate cannot be read.
    pub(crate) fn new(certificate: &CertificateDer<'_>, issuer: Issuer) -> Option<Self> {
        let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
        let (serial, responders) = (parsed.raw_serial().to_vec(), responders(&parsed));
        let certificate = certificate.clone().into_owned();
        Some(Self { certificate, issuer, serial, responders })
    }
}

/// The web addresses of responders in a certificate.
fn responders(certificate: &X509Certificate<'_>) -> Vec<String> {
    let extension = certificate.get_extension_unique(&OID_PKIX_AUTHORITY_INFO_ACCESS);
    let Ok(Some(extension)) = extension else { return Vec::new() };
    let ParsedExtension::AuthorityInfoAccess(access) = extension.parsed_extension() else {
        return Vec::new();
    };
    let of_ocsp = access
        .accessdescs
        .iter()
        .filter(|description| description.access_method == OID_PKIX_ACCESS_DESCRIPTOR_OCSP);
    let addresses = of_ocsp.filter_map(|description| match description.access_location {
        GeneralName::URI(address) if fetch::is_web(address) => Some(address.to_owned()),
        _ => None,
    });
    addresses.take(RESPONDERS_MAX).collect()
}

/// True if a certificate demands that a response is stapled.
pub(crate) fn must_staple(certificate: &[u8]) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return false };
    let mut extensions = certificate.extensions().iter();
    let features = extensions.find(|extension| extension.oid.to_id_string() == TLS_FEATURES);
    features.is_some_and(|features| {
        let list = der::Der(features.value).take(der::SEQUENCE).unwrap_or_default();
        let mut list = der::Der(list);
        std::iter::from_fn(|| list.take(der::INTEGER).ok()).any(|feature| feature == STATUS_REQUEST)
    })
}

/// What events tell of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateInfo {
    /// Its subject.
    pub subject: String,
    /// The name of its issuer.
    pub issuer: String,
    /// SHA-256 of it in base64.
    pub fingerprint: String,
    /// All of it in base64.
    pub raw: String,
}

impl CertificateInfo {
    pub(crate) fn of(certificate: &[u8]) -> Self {
        let names = X509Certificate::from_der(certificate)
            .map(|(_, parsed)| (go_subject(parsed.subject()).0, go_subject(parsed.issuer()).0));
        let (subject, issuer) = names.unwrap_or_default();
        let raw = STANDARD.encode(certificate);
        Self { subject, issuer, fingerprint: fingerprint(certificate), raw }
    }
}

/// SHA-256 of a certificate in base64.
pub(crate) fn fingerprint(certificate: &[u8]) -> String {
    STANDARD.encode(digest::digest(&digest::SHA256, certificate))
}
