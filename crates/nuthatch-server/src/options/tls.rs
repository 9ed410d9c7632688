//! Reads `tls`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use nuthatch_protocol::config::{Map, Node, Value, parse_duration_ns};

use super::ocsp::{OcspPeer, ocsp_peer};
use super::read::ConfigReader;
use super::tables::{CERTIFICATE, TLS};
use crate::cipher_suites;

/// Default of [`TlsOptions::timeout`].
pub(super) const DEFAULT_TLS_TIMEOUT: Duration = Duration::from_secs(2);
/// How long `handshake_first: auto` waits for a client to begin.
const AUTO_FALLBACK: Duration = Duration::from_millis(50);
/// Certificates of one listener.
const CERTIFICATES_MAX: usize = 1000;
/// Hexadecimal digits of a SHA-256.
const PIN_DIGITS: usize = 64;

/// TLS of one listener. Files are checked when they are read, not here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsOptions {
    /// Its certificates: the first whose name a client asks for, else the first.
    pub certificates: Vec<CertificateFiles>,
    /// PEM file with the authorities that clients' certificates must come from.
    pub ca_file: Option<PathBuf>,
    /// Clients must present a certificate that is signed by one of `ca_file`.
    pub verify: bool,
    /// That certificate names the user (`verify_and_map`).
    pub map_users: bool,
    /// When the handshake takes place.
    pub handshake_first: HandshakeFirst,
    /// SHA-256 of the public keys (SubjectPublicKeyInfo) that clients may have, in lower-case
    /// hexadecimal; empty: any.
    pub pinned_keys: BTreeSet<String>,
    /// The oldest version that is spoken.
    pub min_version: TlsVersion,
    /// Names of the only cipher suites, as Go writes them; empty: all that we have.
    pub cipher_suites: Vec<String>,
    /// Names of the only groups for the key exchange, in this order; empty: all that we have.
    pub curves: Vec<String>,
    /// Certificates of clients are checked by OCSP.
    pub ocsp_peer: Option<OcspPeer>,
    /// Handshakes per second; `None`: any number.
    pub rate_limit: Option<u32>,
    /// Longest time a handshake may take. Default 2 s.
    pub timeout: Duration,
}

/// PEM files of one certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate and what it is signed by, in this order.
    pub cert_file: PathBuf,
    /// Its private key.
    pub key_file: PathBuf,
}

/// When TLS begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HandshakeFirst {
    /// After INFO in the clear.
    #[default]
    No,
    /// Before INFO.
    Yes,
    /// Before INFO if the client begins within this time, else after it.
    Within(Duration),
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsVersion {
    /// 1.2
    #[default]
    V12,
    /// 1.3
    V13,
}

impl Default for TlsOptions {
    fn default() -> Self {
        Self {
            certificates: Vec::new(),
            ca_file: None,
            verify: false,
            map_users: false,
            handshake_first: HandshakeFirst::No,
            pinned_keys: BTreeSet::new(),
            min_version: TlsVersion::V12,
            cipher_suites: Vec::new(),
            curves: Vec::new(),
            ocsp_peer: None,
            rate_limit: None,
            timeout: DEFAULT_TLS_TIMEOUT,
        }
    }
}

/// Values read on the way to the options.
#[derive(Default)]
struct Given {
    cert_file: Option<PathBuf>,
    key_file: Option<PathBuf>,
}

pub(super) fn tls(r: &mut ConfigReader, value: &Value) -> Option<TlsOptions> {
    let map = r.map("tls", value)?;
    let (mut options, mut given) = (TlsOptions::default(), Given::default());
    r.walk(&TLS, map, |r, key, entry| setting(r, key, &entry.value, &mut options, &mut given));
    let is_there = |key: &str| map.entries().iter().any(|e| e.key.eq_ignore_ascii_case(key));
    let several = !options.certificates.is_empty() || is_there("certs") || is_there("certificates");
    if several && is_there("cert_file") {
        r.invalid(&value.pos, "tls", "cannot combine 'cert_file' with 'certs'");
    }
    let mut needs = |key: &str| {
        if !is_there(key) {
            r.invalid(&value.pos, "tls", format!("needs '{key}'"));
        }
    };
    if !several {
        needs("cert_file");
        needs("key_file");
    }
    if options.verify {
        needs("ca_file");
    }
    if options.ocsp_peer.is_some() && !options.verify {
        let what = "needs 'verify': without it clients show no certificate";
        r.invalid(&value.pos, "ocsp_peer", what);
    }
    if !options.pinned_keys.is_empty() && !options.verify {
        let what = "needs 'verify': without it clients show no certificate";
        r.invalid(&value.pos, "pinned_certs", what);
    }
    if let Given { cert_file: Some(cert_file), key_file: Some(key_file), .. } = given {
        options.certificates.push(CertificateFiles { cert_file, key_file });
    }
    (!options.certificates.is_empty()).then_some(options)
}

fn setting(
    r: &mut ConfigReader,
    key: &'static str,
    value: &Value,
    options: &mut TlsOptions,
    given: &mut Given,
) {
    match key {
        "cert_file" => given.cert_file = r.word(key, value).map(PathBuf::from),
        "key_file" => given.key_file = r.word(key, value).map(PathBuf::from),
        "certs" => certificates(r, key, value, options),
        "ca_file" => options.ca_file = r.word(key, value).map(PathBuf::from),
        "verify" => options.verify |= r.boolean(key, value).unwrap_or_default(),
        "verify_and_map" => {
            options.map_users = r.boolean(key, value).unwrap_or_default();
            options.verify |= options.map_users;
        }
        "verify_cert_and_check_known_urls" => {
            if r.boolean(key, value) == Some(true) {
                let what = "is for routes and gateways: clients have no known URLs";
                r.invalid(&value.pos, key, what);
            }
        }
        "handshake_first" => {
            if let Some(first) = handshake_first(r, key, value) {
                options.handshake_first = first;
            }
        }
        "pinned_certs" => pins(r, key, value, options),
        "ocsp_peer" => options.ocsp_peer = ocsp_peer(r, key, value),
        "min_version" => options.min_version = min_version(r, key, value),
        "cipher_suites" => options.cipher_suites = cipher_suites(r, key, value),
        "curve_preferences" => options.curves = curves(r, key, value),
        "connection_rate_limit" => options.rate_limit = r.count(key, value, true).flatten(),
        "timeout" => match r.timeout(key, value) {
            Some(timeout) if !timeout.is_zero() => options.timeout = timeout,
            _ => {}
        },
        _ => debug_assert!(false, "key '{key}' is in the table and nobody reads it"),
    }
}

pub(super) fn min_version(r: &mut ConfigReader, key: &str, value: &Value) -> TlsVersion {
    match &value.node {
        Node::Str(v) if v == "1.2" => TlsVersion::V12,
        Node::Str(v) if v == "1.3" => TlsVersion::V13,
        _ => {
            r.invalid(&value.pos, key, "must be \"1.2\" or \"1.3\"");
            TlsVersion::default()
        }
    }
}

fn names(r: &mut ConfigReader, key: &str, value: &Value) -> Vec<String> {
    let names = r.texts(key, value).unwrap_or_default();
    if names.is_empty() {
        r.invalid(&value.pos, key, "cannot be empty");
    }
    names
}

pub(super) fn cipher_suites(r: &mut ConfigReader, key: &str, value: &Value) -> Vec<String> {
    let found = names(r, key, value);
    for name in found.iter().filter(|name| !cipher_suites::is_suite(name)) {
        let what = format!("holds {name:?}, which is unknown, or weak and never offered");
        r.invalid(&value.pos, key, what);
    }
    found
}

/// Groups that only Go has are passed over, as long as others are left.
pub(super) fn curves(r: &mut ConfigReader, key: &str, value: &Value) -> Vec<String> {
    let (mut found, mut passed) = (Vec::new(), Vec::new());
    for name in names(r, key, value) {
        match cipher_suites::is_curve(&name) {
            Some(true) => found.push(name),
            Some(false) => r.invalid(&value.pos, key, format!("holds {name:?}, which is unknown")),
            None => passed.push(name),
        }
    }
    if !passed.is_empty() {
        let passed = passed.join(", ");
        if found.is_empty() {
            r.invalid(&value.pos, key, format!("holds only groups that are not there: {passed}"));
        } else {
            r.warn(&value.pos, format!("'{key}': not there and passed over: {passed}"));
        }
    }
    found
}

fn handshake_first(r: &mut ConfigReader, key: &str, value: &Value) -> Option<HandshakeFirst> {
    let Node::Str(text) = &value.node else {
        let on = r.boolean(key, value)?;
        return Some(if on { HandshakeFirst::Yes } else { HandshakeFirst::No });
    };
    match text.to_ascii_lowercase().as_str() {
        "true" | "on" => Some(HandshakeFirst::Yes),
        "false" | "off" => Some(HandshakeFirst::No),
        "auto" | "auto_fallback" => Some(HandshakeFirst::Within(AUTO_FALLBACK)),
        word => match parse_duration_ns(word).map(u64::try_from) {
            Ok(Ok(nanos)) => Some(HandshakeFirst::Within(Duration::from_nanos(nanos))),
            _ => {
                r.invalid(&value.pos, key, "must be true, false, \"auto\" or a duration");
                None
            }
        },
    }
}

fn pins(r: &mut ConfigReader, key: &str, value: &Value, options: &mut TlsOptions) {
    for pin in r.texts(key, value).unwrap_or_default() {
        if pin.len() == PIN_DIGITS && pin.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            options.pinned_keys.insert(pin.to_ascii_lowercase());
        } else {
            let what = format!("holds {pin:?}, which is not a SHA-256 in hexadecimal");
            r.invalid(&value.pos, key, what);
        }
    }
}

fn certificates(r: &mut ConfigReader, key: &str, value: &Value, options: &mut TlsOptions) {
    let wanted = "an array of { cert_file: …, key_file: … }";
    let pairs = r.array(key, value, wanted).unwrap_or_default();
    if pairs.len() > CERTIFICATES_MAX {
        r.invalid(&value.pos, key, format!("holds more than {CERTIFICATES_MAX} certificates"));
        return;
    }
    for pair in pairs {
        let Some(map) = r.map(key, pair) else { continue };
        match certificate(r, map) {
            (Some(cert_file), Some(key_file)) => {
                options.certificates.push(CertificateFiles { cert_file, key_file });
            }
            _ => r.invalid(&pair.pos, key, "needs 'cert_file' and 'key_file' in each entry"),
        }
    }
}

fn certificate(r: &mut ConfigReader, map: &Map) -> (Option<PathBuf>, Option<PathBuf>) {
    let (mut cert_file, mut key_file) = (None, None);
    r.walk(&CERTIFICATE, map, |r, key, entry| {
        let file = r.word(key, &entry.value).map(PathBuf::from);
        match key {
            "cert_file" => cert_file = file,
            _ => key_file = file,
        }
    });
    (cert_file, key_file)
}
