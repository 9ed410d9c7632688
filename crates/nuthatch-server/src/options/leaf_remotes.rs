//! Reads `remotes` of `leafnodes`.

use std::path::PathBuf;
use std::time::Duration;

use nuthatch_protocol::config::{Node, Value};

use super::auth::Secret;
use super::keys::Block;
use super::leaf_compression::{LeafCompression, compression};
use super::leaf_proxy::proxy;
use super::leafnodes::{DEFAULT_LEAF_PORT, LeafUrl, RemoteOptions, RemoteTls, denied};
use super::read::ConfigReader;
use super::tables::leaf::{REMOTE, REMOTE_TLS};
use super::tls::{cipher_suites, curves, min_version};
use super::{CertificateFiles, GLOBAL_ACCOUNT};
use crate::credentials::KeyPair;

/// Default of [`RemoteOptions::first_info_timeout`]. nats-server waits 1 s and then tries again.
const DEFAULT_FIRST_INFO: Duration = Duration::from_secs(5);
/// Remotes of one server: each has a task and a connection.
const REMOTES_MAX: usize = 1024;
/// Addresses of one remote.
pub(crate) const URLS_MAX: usize = 64;

pub(super) fn remotes(r: &mut ConfigReader, value: &Value) -> Vec<RemoteOptions> {
    let wanted = "an array of remotes: [ { url: \"nats-leaf://hub:7422\" }, … ]";
    let items = r.array("remotes", value, wanted).unwrap_or_default();
    if items.len() > REMOTES_MAX {
        r.invalid(&value.pos, "remotes", format!("holds more than {REMOTES_MAX} remotes"));
        return Vec::new();
    }
    items.iter().filter_map(|item| remote(r, item)).collect()
}

fn remote(r: &mut ConfigReader, item: &Value) -> Option<RemoteOptions> {
    let map = r.map("remotes", item)?;
    let mut remote = RemoteOptions {
        urls: Vec::new(),
        account: GLOBAL_ACCOUNT.to_owned(),
        credentials: None,
        seed: None,
        tls: None,
        deny_imports: Vec::new(),
        deny_exports: Vec::new(),
        hub: false,
        no_randomize: false,
        disabled: false,
        first_info_timeout: DEFAULT_FIRST_INFO,
        dial_timeout: None,
        isolated: false,
        request_isolation: false,
        compression: LeafCompression::Off,
        ignores_told: false,
        proxy: None,
        websocket_compression: false,
        websocket_unmasked: false,
    };
    let before = r.problems.len();
    r.walk(&REMOTE, map, |r, key, entry| setting(r, key, &entry.value, &mut remote));
    if remote.credentials.is_some() && remote.seed.is_some() {
        r.invalid(&item.pos, "nkey", "cannot be combined with 'credentials'");
    }
    if remote.urls.is_empty() && r.problems.len() == before {
        r.invalid(&item.pos, "remotes", "entry needs 'url' or 'urls'");
    }
    let websockets = remote.urls.iter().filter(|url| url.websocket.is_some()).count();
    if websockets > 0 && websockets < remote.urls.len() {
        let what = "cannot have a mix of websocket and non-websocket addresses";
        r.invalid(&item.pos, "urls", what);
    }
    Some(remote)
}

fn setting(r: &mut ConfigReader, key: &'static str, value: &Value, remote: &mut RemoteOptions) {
    let mut flag = |place: &mut bool| *place = r.boolean(key, value).unwrap_or_default();
    match key {
        "hub" => flag(&mut remote.hub),
        "no_randomize" => flag(&mut remote.no_randomize),
        "disabled" => flag(&mut remote.disabled),
        "isolate" => flag(&mut remote.isolated),
        "request_isolation" => flag(&mut remote.request_isolation),
        "ignore_discovered_servers" => flag(&mut remote.ignores_told),
        "ws_compress" => flag(&mut remote.websocket_compression),
        "ws_no_masking" => flag(&mut remote.websocket_unmasked),
        "proxy" => remote.proxy = proxy(r, value),
        "urls" => remote.urls = urls(r, key, value),
        "account" => {
            if let Some(name) = r.word(key, value) {
                name.clone_into(&mut remote.account);
            }
        }
        "credentials" => remote.credentials = r.word(key, value).map(PathBuf::from),
        "nkey" => remote.seed = seed(r, key, value),
        "tls" => remote.tls = remote_tls(r, &REMOTE_TLS, value, "this remote"),
        "deny_imports" => remote.deny_imports = denied(r, key, value),
        "deny_exports" => remote.deny_exports = denied(r, key, value),
        "compression" => remote.compression = compression(r, key, value),
        "first_info_timeout" => {
            if let Some(time) = r.duration(key, value).filter(|time| !time.is_zero()) {
                remote.first_info_timeout = time;
            }
        }
        "dial_timeout" => {
            remote.dial_timeout = r.duration(key, value).filter(|time| !time.is_zero());
        }
        _ => debug_assert!(false, "key '{key}' is in the table and nobody reads it"),
    }
}

fn seed(r: &mut ConfigReader, key: &str, value: &Value) -> Option<Secret> {
    let text = r.word(key, value)?;
    if KeyPair::from_seed(text).is_none() {
        // Its text is not shown: it may be a seed with a slip of the pen.
        r.invalid(&value.pos, key, "must be the seed of a user's nkey: it begins with SU");
        return None;
    }
    Some(Secret::new(text))
}

fn urls(r: &mut ConfigReader, key: &str, value: &Value) -> Vec<LeafUrl> {
    let texts = r.texts(key, value).unwrap_or_default();
    if texts.is_empty() || texts.len() > URLS_MAX {
        r.invalid(&value.pos, key, format!("must hold 1 to {URLS_MAX} addresses"));
    }
    let mut urls = Vec::new();
    for text in texts.iter().take(URLS_MAX) {
        match url(text) {
            Ok(url) => urls.push(url),
            Err(why) => r.invalid(&value.pos, key, format!("holds an address that {why}")),
        }
    }
    urls
}

/// `nats-leaf://[user[:password]@]host[:port]`, `nats://`, `leaf://`, `tls://`, `ws://…/path`, `wss://`.
fn url(text: &str) -> Result<LeafUrl, &'static str> {
    let (scheme, rest) = text.trim().split_once("://").unwrap_or(("nats-leaf", text.trim()));
    let (tls, is_websocket) = match scheme.to_ascii_lowercase().as_str() {
        "nats" | "nats-leaf" | "leaf" => (false, false),
        "tls" => (true, false),
        "ws" => (false, true),
        "wss" => (true, true),
        _ => return Err("begins with none of nats-leaf://, nats://, tls://, ws://, wss://"),
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let websocket = if is_websocket { Some(path_of(&rest[authority.len()..])?) } else { None };
    let (login, place) = match authority.rsplit_once('@') {
        Some((login, place)) => (Some(login), place),
        None => (None, authority),
    };
    let default = match (is_websocket, tls) {
        (false, _) => DEFAULT_LEAF_PORT,
        (true, false) => 80,
        (true, true) => 443,
    };
    let (host, port) = host_and_port(place, default)?;
    let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
        None => (None, None),
        Some((user, password)) => {
            let password = percent_decoded(password)?;
            let password = (!password.is_empty()).then(|| Secret::new(password));
            (Some(percent_decoded(user)?), password)
        }
    };
    Ok(LeafUrl { host, port, tls, websocket, tls_name: None, user, password })
}

/// The path of a websocket's address, without a slash at its end.
fn path_of(rest: &str) -> Result<String, &'static str> {
    if rest.contains(['?', '#', ' ']) || rest.contains(char::is_control) {
        return Err("has a query, a fragment or a space");
    }
    Ok(rest.trim_end_matches('/').to_owned())
}

/// An address that the other side has told: `host:port`, for which the rest is as for this one.
pub(crate) fn told(text: &str, like: &LeafUrl) -> Option<LeafUrl> {
    let (host, port) = host_and_port(text, DEFAULT_LEAF_PORT).ok()?;
    let is_sound = host.chars().all(|c| c.is_ascii_alphanumeric() || ".-_:".contains(c));
    // Certificates are for names.
    let is_address = host.parse::<std::net::IpAddr>().is_ok();
    let tls_name = is_address.then(|| like.host.clone());
    is_sound.then(|| LeafUrl { host, port, tls_name, ..like.clone() })
}

/// A host, and its port or this one.
pub(super) fn host_and_port(place: &str, default: u16) -> Result<(String, u16), &'static str> {
    let after_host = place.rsplit_once(']').map_or(place, |(_, rest)| rest);
    let (host, port) = match after_host.rsplit_once(':') {
        None => (place, default),
        Some((_, port)) => {
            let host = &place[..place.len() - port.len() - 1];
            (host, port.parse().map_err(|_| "has a port that is not a number from 1 to 65535")?)
        }
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() {
        return Err("has no host");
    }
    if port == 0 {
        return Err("has a port that is not a number from 1 to 65535");
    }
    Ok((host.to_owned(), port))
}

/// Replaces `%40` and the like.
pub(super) fn percent_decoded(text: &str) -> Result<String, &'static str> {
    const WRONG: &str = "has a '%' that does not begin an escape such as %40";
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let value = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).ok_or(WRONG)?;
        bytes.push(value);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).map_err(|_| WRONG)
}

/// TLS towards another side, with the keys of this block.
pub(super) fn remote_tls(
    r: &mut ConfigReader,
    block: &'static Block,
    value: &Value,
    whose: &str,
) -> Option<RemoteTls> {
    let map = r.map("tls", value)?;
    let mut tls = RemoteTls::default();
    let (mut cert_file, mut key_file) = (None, None);
    r.walk(block, map, |r, key, entry| {
        let value = &entry.value;
        match key {
            "cert_file" => cert_file = r.word(key, value).map(PathBuf::from),
            "key_file" => key_file = r.word(key, value).map(PathBuf::from),
            "ca_file" => tls.ca_file = r.word(key, value).map(PathBuf::from),
            "insecure" => tls.insecure = r.boolean(key, value).unwrap_or_default(),
            "min_version" => tls.min_version = min_version(r, key, value),
            "cipher_suites" => tls.cipher_suites = cipher_suites(r, key, value),
            "curve_preferences" => tls.curves = curves(r, key, value),
            "ocsp_peer" => tls.ocsp_peer = super::ocsp::ocsp_peer(r, key, value),
            "handshake_first" => match &value.node {
                Node::Bool(first) => tls.handshake_first = *first,
                _ => r.invalid(&value.pos, key, "must be true or false"),
            },
            "timeout" => match r.timeout(key, value) {
                Some(timeout) if !timeout.is_zero() => tls.timeout = timeout,
                _ => {}
            },
            _ => debug_assert!(false, "key '{key}' is in the table and nobody reads it"),
        }
    });
    match (cert_file, key_file) {
        (Some(cert_file), Some(key_file)) => {
            tls.certificate = Some(CertificateFiles { cert_file, key_file });
        }
        (None, None) => {}
        _ => r.invalid(&value.pos, "tls", "needs both 'cert_file' and 'key_file', or neither"),
    }
    if tls.insecure && tls.ocsp_peer.is_some() {
        let what = "needs a certificate that is checked: it does not go with 'insecure'";
        r.invalid(&value.pos, "ocsp_peer", what);
    }
    if tls.insecure {
        let not = "is not verified: DO NOT USE IN PRODUCTION";
        r.warn(&value.pos, format!("the certificate of {whose} {not}"));
    }
    Some(tls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_other_servers() {
        let parsed = url("nats-leaf://us%40r:p:w@hub.example:7000").unwrap();
        assert_eq!(parsed.to_string(), "hub.example:7000");
        assert_eq!(parsed.user.as_deref(), Some("us@r"));
        assert_eq!(parsed.password.as_ref().map(Secret::expose), Some("p:w"));
        assert_eq!(url("[::1]").unwrap().to_string(), "[::1]:7422");
        assert!(url("tls://hub").unwrap().tls);
        let login = url("nats://token@hub").unwrap();
        assert_eq!((login.user.as_deref(), &login.password), (Some("token"), &None));
        let found = url("wss://hub/a/b/").unwrap();
        assert_eq!((found.tls, found.port, found.websocket.as_deref()), (true, 443, Some("/a/b")));
        assert_eq!(url("ws://hub:80").unwrap().websocket.as_deref(), Some(""));
        let learned = told("[::1]:4000", &login).unwrap();
        assert_eq!(
            (learned.to_string().as_str(), learned.user.as_deref()),
            ("[::1]:4000", Some("token"))
        );
        assert!(told("a b:1", &login).is_none() && told("host:0", &login).is_none());
        for bad in ["ws://hub/?a", "http://hub", "nats://", "nats://hub:0", "hub:x", "a%4@hub"] {
            assert!(url(bad).is_err(), "{bad}");
        }
    }
}
