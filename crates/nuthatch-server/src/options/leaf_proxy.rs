//! `proxy` of a remote: the HTTP proxy that connections to it go through.

use std::time::Duration;

use nuthatch_protocol::config::Value;

use super::auth::Secret;
use super::leaf_remotes::{host_and_port, remote_tls};
use super::leafnodes::RemoteTls;
use super::read::ConfigReader;
use super::tables::leaf::{PROXY, PROXY_TLS};

const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;

/// An HTTP proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpProxy {
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// User and password.
    pub login: Option<(String, Secret)>,
    /// It is spoken to over TLS (`https://`).
    pub tls: Option<RemoteTls>,
    /// Longest wait for a connection to the proxy, and for its answer; `None`: as for the remote.
    pub timeout: Option<Duration>,
}

pub(super) fn proxy(r: &mut ConfigReader, value: &Value) -> Option<HttpProxy> {
    let map = r.map("proxy", value)?;
    let (mut url, mut user, mut password, mut timeout) = (None, None, None, None);
    let mut tls = None;
    let before = r.problems.len();
    r.walk(&PROXY, map, |r, key, entry| {
        let value = &entry.value;
        match key {
            "url" => url = r.word(key, value).map(str::to_owned),
            "username" => user = r.word(key, value).map(str::to_owned),
            "tls" => tls = remote_tls(r, &PROXY_TLS, value, "the proxy"),
            "password" => password = r.text(key, value).map(Secret::new),
            "timeout" => timeout = r.duration(key, value).filter(|time| !time.is_zero()),
            _ => debug_assert!(false, "key '{key}' is in the table and nobody reads it"),
        }
    });
    let Some(url) = url else {
        if r.problems.len() == before {
            r.invalid(&value.pos, "proxy", "needs its 'url'");
        }
        return None;
    };
    let login = match (user, password) {
        (Some(user), Some(password)) => Some((user, password)),
        (None, None) => None,
        _ => {
            r.invalid(&value.pos, "proxy", "needs both 'username' and 'password', or neither");
            return None;
        }
    };
    match place(&url) {
        Ok((false, _, _)) if tls.is_some() => {
            r.invalid(&value.pos, "proxy", "has 'tls', which needs a 'url' with https://");
            None
        }
        Ok((secure, host, port)) => {
            let tls = secure.then(|| tls.unwrap_or_default());
            Some(HttpProxy { host, port, login, tls, timeout })
        }
        Err(why) => {
            r.invalid(&value.pos, "proxy", format!("has a 'url' that {why}"));
            None
        }
    }
}

/// `http[s]://host[:port]`: whether over TLS, and where.
fn place(url: &str) -> Result<(bool, String, u16), &'static str> {
    const OTHER: &str = "begins with neither http:// nor https://";
    let (scheme, rest) = url.trim().split_once("://").ok_or(OTHER)?;
    let secure = match scheme.to_ascii_lowercase().as_str() {
        "http" => false,
        "https" => true,
        _ => return Err(OTHER),
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err("has a user: write 'username' and 'password'");
    }
    let (host, port) = host_and_port(authority, if secure { HTTPS_PORT } else { HTTP_PORT })?;
    Ok((secure, host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_proxies() {
        let found = |secure, host: &str, port| Ok((secure, host.to_owned(), port));
        assert_eq!(place("http://proxy"), found(false, "proxy", 80));
        assert_eq!(place("HTTPS://proxy"), found(true, "proxy", 443));
        assert_eq!(place("HTTP://[::1]:3128/"), found(false, "::1", 3128));
        for bad in ["proxy:80", "http://", "http://u:p@proxy", "socks://p"] {
            assert!(place(bad).is_err(), "{bad}");
        }
    }
}
