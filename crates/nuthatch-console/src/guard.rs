//! Whether a request comes from the console's own page.
//!
//! A page of somebody else that a user has open must not reach the console, whatever name it makes
//! resolve to this machine: so `Host` has to be an address, `localhost` or a configured name, and what
//! changes something has to come from the very page (`Origin`, `Sec-Fetch-Site`).

use std::net::IpAddr;

use hyper::HeaderMap;
use hyper::header::{HOST, HeaderName, ORIGIN};

use crate::failure::Failure;

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The names under which the console is reached.
#[derive(Debug, Clone)]
pub struct Guard {
    hosts: Vec<String>,
    listens_on: String,
}

impl Guard {
    /// `hosts`: names beside addresses, `localhost` and what it listens on. A proxy may stand before
    /// it under these, so that pages of theirs are the console's own.
    pub fn new(hosts: impl IntoIterator<Item = String>, listens_on: &str) -> Self {
        let hosts = hosts.into_iter().map(|host| host.to_ascii_lowercase()).collect();
        Self { hosts, listens_on: listens_on.to_ascii_lowercase() }
    }

    /// Refuses a request under a name that is not ours.
    ///
    /// # Errors
    /// [`Failure::Foreign`].
    pub fn check_host(&self, headers: &HeaderMap) -> Result<(), Failure> {
        let foreign = Failure::Foreign("the console is not reached under this name (Host)");
        let mut all = headers.get_all(HOST).iter();
        let (Some(host), None) = (all.next(), all.next()) else { return Err(foreign) };
        let host = host.to_str().ok().map(name_of).filter(|name| self.is_ours(name));
        host.map(drop).ok_or(foreign)
    }

    /// Refuses what another page sends.
    ///
    /// # Errors
    /// [`Failure::Foreign`].
    pub fn check_origin(&self, headers: &HeaderMap) -> Result<(), Failure> {
        if let Some(site) = headers.get(FETCH_SITE)
            && !matches!(site.as_bytes(), b"same-origin" | b"none")
        {
            return Err(Failure::Foreign("the request comes from another page (Sec-Fetch-Site)"));
        }
        let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
        let foreign = Failure::Foreign("the request comes from another page (Origin)");
        let origin = origin.to_str().unwrap_or_default().to_ascii_lowercase();
        let Some(("http" | "https", authority)) = origin.split_once("://") else {
            return Err(foreign);
        };
        let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let is_same = authority.eq_ignore_ascii_case(host);
        (is_same || self.hosts.contains(&name_of(authority))).then_some(()).ok_or(foreign)
    }

    fn is_ours(&self, name: &str) -> bool {
        name == "localhost"
            || name == self.listens_on
            || name.parse::<IpAddr>().is_ok()
            || self.hosts.iter().any(|h| h == name)
    }
}

/// The host of `host`, `host:port`, `[v6]` and `[v6]:port`, in lower case.
fn name_of(authority: &str) -> String {
    let name = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    name.to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, HeaderValue::from_str(value).expect("a value"));
        }
        map
    }

    #[test]
    fn only_own_names_are_taken() {
        let guard = Guard::new(["Console.example".to_owned()], "Workshop");
        for host in [
            "127.0.0.1:8280",
            "localhost",
            "[::1]:8280",
            "10.0.0.7",
            "console.EXAMPLE:1",
            "workshop",
        ] {
            assert!(guard.check_host(&headers(&[("host", host)])).is_ok(), "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example:8280", "localhost.evil", ""] {
            assert!(guard.check_host(&headers(&[("host", host)])).is_err(), "{host}");
        }
        assert!(guard.check_host(&headers(&[])).is_err());
        let two = [("host", "127.0.0.1"), ("host", "evil.example")];
        assert!(guard.check_host(&headers(&two)).is_err());
    }

    #[test]
    fn only_the_own_page_is_taken() {
        let guard = Guard::new(["console.example".to_owned()], "127.0.0.1");
        let check = |origin: &str, site: Option<&str>| {
            let mut pairs = vec![("host", "127.0.0.1:8280"), ("origin", origin)];
            pairs.extend(site.map(|site| ("sec-fetch-site", site)));
            guard.check_origin(&headers(&pairs)).is_ok()
        };
        assert!(check("http://127.0.0.1:8280", None));
        assert!(check("https://console.example", Some("same-origin")));
        assert!(!check("http://127.0.0.1:9", None));
        assert!(!check("http://evil.example", None));
        assert!(!check("null", None));
        assert!(!check("ftp://127.0.0.1:8280", None));
        assert!(!check("http://127.0.0.1", None));
        assert!(!check("http://127.0.0.1:8280", Some("cross-site")));
        assert!(guard.check_origin(&headers(&[("host", "127.0.0.1:8280")])).is_ok());
    }
}
