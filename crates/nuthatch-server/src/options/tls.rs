//! Reads `tls`.

use std::path::PathBuf;
use std::time::Duration;

use nuthatch_protocol::config::{Node, Value};

use super::TlsOptions;
use super::error::ProblemKind;
use super::read::Reader;
use super::tables::{NO_TLS_EXTRA, TLS};

/// Default of [`TlsOptions::timeout`].
pub(super) const DEFAULT_TLS_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) fn tls(r: &mut Reader, value: &Value) -> Option<TlsOptions> {
    let map = r.map("tls", value)?;
    let mut cert_file = None;
    let mut key_file = None;
    let mut ca_file = None;
    let mut verify = false;
    let mut timeout = DEFAULT_TLS_TIMEOUT;
    r.walk(&TLS, map, |r, key, entry| {
        let value = &entry.value;
        match key {
            "cert_file" => cert_file = r.word(key, value).map(PathBuf::from),
            "key_file" => key_file = r.word(key, value).map(PathBuf::from),
            "ca_file" => ca_file = r.word(key, value).map(PathBuf::from),
            "verify" => verify = r.boolean(key, value).unwrap_or_default(),
            "timeout" => match r.timeout(key, value) {
                Some(t) if !t.is_zero() => timeout = t,
                _ => {}
            },
            "min_version" => match &value.node {
                Node::Str(v) if v == "1.2" => {}
                Node::Str(v) if v == "1.3" => {
                    let (key, place) = (entry.key.clone(), TLS.place);
                    let kind = ProblemKind::Refused { key, place, reason: NO_TLS_EXTRA };
                    r.problem(&value.pos, kind);
                }
                _ => r.invalid(&value.pos, key, "must be \"1.2\" or \"1.3\""),
            },
            _ => debug_assert!(false, "key '{key}' is in the table and nobody reads it"),
        }
    });
    let mut missing = |key: &str, there: bool| {
        if !there && !map.entries().iter().any(|e| e.key.eq_ignore_ascii_case(key)) {
            r.invalid(&value.pos, "tls", format!("needs '{key}'"));
        }
    };
    missing("cert_file", cert_file.is_some());
    missing("key_file", key_file.is_some());
    if verify {
        missing("ca_file", ca_file.is_some());
    }
    Some(TlsOptions { cert_file: cert_file?, key_file: key_file?, ca_file, verify, timeout })
}
