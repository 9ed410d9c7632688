//! Addresses: `etcd://HOST:PORT[,HOST:PORT...]/PREFIX`, and `etcds://` for TLS.

use crate::error::OpenError;

/// Servers of one etcd at most.
pub const ENDPOINTS_MAX: usize = 16;

/// Scheme of etcd in plain text.
const PLAIN: &str = "etcd://";

/// Scheme of etcd with TLS.
const TLS: &str = "etcds://";

/// Where an etcd is, and which keys of it are ours.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    /// Hosts with ports. There is at least one.
    pub endpoints: Vec<String>,
    /// Connections are TLS.
    pub tls: bool,
    /// What all keys begin with, without the slash behind it. Not empty.
    pub prefix: String,
}

impl Address {
    /// Reads an address.
    ///
    /// # Errors
    /// [`OpenError::Address`].
    pub fn parse(address: &str) -> Result<Self, OpenError> {
        let wrong =
            |why: &str| OpenError::Address { address: redacted(address), why: why.to_owned() };
        let (tls, rest) = match (address.strip_prefix(PLAIN), address.strip_prefix(TLS)) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => return Err(wrong("it begins with neither etcd:// nor etcds://")),
        };
        if rest.contains('@') {
            return Err(wrong(
                "it must not hold credentials: use NUTHATCH_ETCD_USER and NUTHATCH_ETCD_PASSWORD",
            ));
        }
        let (hosts, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_end_matches('/');
        if !prefix.split('/').all(is_part) {
            return Err(wrong(
                "it needs a prefix for the keys of this cluster, of letters, digits, '-', '_' and '.', with '/' between parts",
            ));
        }
        let endpoints: Vec<String> = hosts.split(',').map(|host| host.trim().to_owned()).collect();
        if !endpoints.iter().all(|endpoint| is_endpoint(endpoint)) {
            return Err(wrong("a server is a host and a port, such as 10.0.0.1:2379"));
        }
        if endpoints.len() > ENDPOINTS_MAX {
            return Err(wrong(&format!("it names more than {ENDPOINTS_MAX} servers")));
        }
        Ok(Self { endpoints, tls, prefix: prefix.to_owned() })
    }

    /// A server as an address of HTTP.
    pub(crate) fn http(&self, endpoint: &str) -> String {
        format!("{}://{endpoint}", if self.tls { "https" } else { "http" })
    }
}

fn is_part(part: &str) -> bool {
    !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

fn is_endpoint(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let is_bracketed = host.starts_with('[') && host.ends_with(']');
    let is_host = !host.is_empty() && (is_bracketed || !host.contains(':'));
    let is_host = is_host && text.parse::<http::uri::Authority>().is_ok();
    is_host && port.parse::<u16>().is_ok_and(|port| port > 0)
}

/// The address without what stands before an `@`.
fn redacted(address: &str) -> String {
    match (address.find("://"), address.rfind('@')) {
        (Some(scheme), Some(at)) if at > scheme => {
            format!("{}://...{}", &address[..scheme], &address[at..])
        }
        _ => address.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_servers_and_a_prefix() {
        let one = Address::parse("etcd://127.0.0.1:2379/nuthatch").expect("an address");
        assert_eq!((one.endpoints.len(), one.tls, &*one.prefix), (1, false, "nuthatch"));
        let three = Address::parse("etcds://e1:2379,e2.example.org:2379,[::1]:2379/a/b.c/")
            .expect("an address");
        assert_eq!(three.endpoints, ["e1:2379", "e2.example.org:2379", "[::1]:2379"]);
        assert_eq!((three.tls, &*three.prefix), (true, "a/b.c"));
        assert_eq!(three.http("e1:2379"), "https://e1:2379");
    }

    #[test]
    fn a_wrong_address_is_explained_without_secrets() {
        let many = format!("etcd://{}/p", vec!["h:1"; ENDPOINTS_MAX + 1].join(","));
        for (address, part) in [
            ("s3://bucket/p", "neither etcd:// nor etcds://"),
            ("etcd://h:2379", "needs a prefix"),
            ("etcd://h:2379/", "needs a prefix"),
            ("etcd://h:2379/a//b", "needs a prefix"),
            ("etcd://h:2379/a b", "needs a prefix"),
            ("etcd://h/p", "a host and a port"),
            ("etcd://h:0/p", "a host and a port"),
            ("etcd://h:2379,/p", "a host and a port"),
            ("etcd://::1:2379/p", "a host and a port"),
            ("etcd://root:secret@h:2379/p", "must not hold credentials"),
            (&many, "more than 16 servers"),
        ] {
            let text = Address::parse(address).expect_err("wrong").to_string();
            assert!(text.contains(part), "{address}: {text}");
            assert!(!text.contains("secret"), "{text}");
        }
    }
}
