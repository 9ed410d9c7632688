//! Cipher suites and key exchange groups by the names that Go has for them.

use rustls::{CipherSuite, NamedGroup};

/// Suites by name; TLS 1.3 has its own.
const SUITES: &[(&str, CipherSuite)] = &[
    ("TLS_AES_128_GCM_SHA256", CipherSuite::TLS13_AES_128_GCM_SHA256),
    ("TLS_AES_256_GCM_SHA384", CipherSuite::TLS13_AES_256_GCM_SHA384),
    ("TLS_CHACHA20_POLY1305_SHA256", CipherSuite::TLS13_CHACHA20_POLY1305_SHA256),
    ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    (
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    ),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", RSA_CHACHA),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", RSA_CHACHA),
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305", ECDSA_CHACHA),
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", ECDSA_CHACHA),
];
const RSA_CHACHA: CipherSuite = CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256;
const ECDSA_CHACHA: CipherSuite = CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256;

/// Groups by name.
const CURVES: &[(&str, NamedGroup)] = &[
    ("X25519", NamedGroup::X25519),
    ("CurveP256", NamedGroup::secp256r1),
    ("CurveP384", NamedGroup::secp384r1),
];
/// Groups that Go has and we have not. They are passed over if there are others.
const OTHER_CURVES: &[&str] =
    &["CurveP521", "X25519MLKEM768", "SecP256r1MLKEM768", "SecP384r1MLKEM1024"];

fn find<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, found)| *found)
}

/// The suite of this name.
pub(crate) fn suite(name: &str) -> Option<CipherSuite> {
    find(SUITES, name)
}

/// The group of this name.
pub(crate) fn curve(name: &str) -> Option<NamedGroup> {
    find(CURVES, name)
}

/// True if there is a suite of this name.
#[must_use]
pub fn is_suite(name: &str) -> bool {
    find(SUITES, name).is_some()
}

/// Whether there is a group of this name; `None` if only Go has it.
#[must_use]
pub fn is_curve(name: &str) -> Option<bool> {
    if OTHER_CURVES.iter().any(|other| other.eq_ignore_ascii_case(name)) {
        return None;
    }
    Some(find(CURVES, name).is_some())
}
