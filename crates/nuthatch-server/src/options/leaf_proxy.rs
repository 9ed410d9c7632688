//! `proxy` of a remote: the HTTP proxy that connections to it go through.

use std::time::Duration;

use nuthatch_protocol::config::Value;

use super::auth::Secret;
use super::leaf_remotes::host_and_port;
use super::read::ConfigReader;
use super::tables::leaf::PROXY;

const HTTP_PORT: u16 = 80;

/// An HTTP proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpProxy {
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// User and password.
    pub login: Option<(String, Secret)>,
    /// Longest wait for a connection to the proxy, and for its answer; `None`: as for the remote.
    pub timeout: Option<Duration>,
}

pub(super) fn proxy(r: &mut ConfigReader, value: &Value) -> Option<HttpProxy> {
    let map = r.map("proxy", value)?;
    let (mut url, mut user, mut password, mut timeout) = (None, None, None, None);
    let before = r.problems.len();
    r.walk(&PROXY, map, |r, key, entry| {
        let value = &entry.value;
        match key {
            "url" => url = r.word(key, value).map(str::to_owned),
            "username" => user = r.word(key, value).map(str::to_owned),
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
        Ok((host, port)) => Some(HttpProxy { host, port, login, timeout }),
        Err(why) => {
            r.invalid(&value.pos, "proxy", format!("has a 'url' that {why}"));
            None
        }
    }
}

/// `http://host[:port]`
fn place(url: &str) -> Result<(String, u16), &'static str> {
    let (scheme, rest) = url.trim().split_once("://").ok_or("does not begin with http://")?;
    match scheme.to_ascii_lowercase().as_str() {
        "http" => {}
        "https" => return Err("begins with https://: proxies are spoken to without TLS here"),
        _ => return Err("does not begin with http://"),
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err("has a user: write 'username' and 'password'");
    }
    host_and_port(authority, HTTP_PORT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_proxies() {
        assert_eq!(place("http://proxy"), Ok(("proxy".to_owned(), 80)));
        assert_eq!(place("HTTP://[::1]:3128/"), Ok(("::1".to_owned(), 3128)));
        for bad in ["proxy:80", "https://proxy", "http://", "http://u:p@proxy", "socks://p"] {
            assert!(place(bad).is_err(), "{bad}");
        }
    }
}
