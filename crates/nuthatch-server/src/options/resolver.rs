//! `resolver` and `resolver_tls`: where the tokens of accounts are.

use std::path::PathBuf;
use std::time::Duration;

use nuthatch_protocol::config::{Map, Node, Value};

use super::auth::Secret;
use super::leaf_remotes::{host_and_port, percent_decoded, remote_tls};
use super::leafnodes::RemoteTls;
use super::read::ConfigReader;
use super::tables::{RESOLVER, RESOLVER_TLS};

/// Default of [`CacheResolver::limit`].
const DEFAULT_CACHED: u32 = 1000;
/// Longest time of asking for one account, by default.
pub const DEFAULT_FETCH_TIMEOUT: Duration = Duration::from_millis(1900);
/// Most time that may be configured for it: clients wait.
const FETCH_TIMEOUT_MAX: Duration = Duration::from_secs(60);
const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;

/// Store of the tokens of accounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolver {
    /// `MEMORY`: only those of the configuration.
    Memory,
    /// `full`: in a directory, which requests to the system account change.
    Full(FullResolver),
    /// `cache`: other servers are asked for accounts when they are needed; a directory keeps the answers.
    Cache(CacheResolver),
    /// `URL(…)`: an HTTP server is asked.
    Url(UrlResolver),
}

impl Resolver {
    /// True if accounts come when they are needed.
    #[must_use]
    pub fn fetches(&self) -> bool {
        matches!(self, Self::Cache(_) | Self::Url(_))
    }
}

/// A directory of tokens of accounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FullResolver {
    /// The directory.
    pub dir: PathBuf,
    /// Treatment of requests to delete an account.
    pub delete: DeletePolicy,
    /// Most accounts; `None`: as many as a server serves.
    pub limit: Option<u32>,
}

/// A directory of tokens that came from other servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheResolver {
    /// The directory.
    pub dir: PathBuf,
    /// Most files; those that were not used for the longest time go first. Default 1000.
    pub limit: u32,
    /// A file that was not used for so long goes; `None`: none does.
    pub ttl: Option<Duration>,
    /// Longest wait for an account. Default 1.9 s.
    pub timeout: Duration,
}

/// An HTTP server that has the tokens of accounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlResolver {
    /// Over TLS.
    pub tls: bool,
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Path to which the account's key is appended; it ends with `/`.
    pub path: String,
    /// User and password.
    pub login: Option<(String, Secret)>,
}

/// As log lines show it, without user and password.
impl std::fmt::Display for UrlResolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}

impl UrlResolver {
    /// Host and port as requests name them.
    #[must_use]
    pub fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

/// Treatment of requests to delete an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeletePolicy {
    /// Nothing.
    Refused,
    /// The file gets another name, and is not read any more.
    Renamed,
    /// The file is removed.
    Removed,
}

pub(super) fn resolver(r: &mut ConfigReader, value: &Value) -> Option<Resolver> {
    let map = match &value.node {
        Node::Map(map) => map,
        Node::Str(text) if text.trim().to_ascii_uppercase().starts_with("URL") => {
            return match url(text.trim()) {
                Ok(url) => Some(Resolver::Url(url)),
                Err(why) => {
                    r.invalid(&value.pos, "resolver", format!("has an address that {why}"));
                    None
                }
            };
        }
        _ => {
            let wanted = "'MEMORY', URL(http://…) or a map: { type: full, dir: \"jwt\" }";
            return r
                .choice("resolver", value, &["MEMORY", "MEM"], wanted)
                .map(|_| Resolver::Memory);
        }
    };
    of_directory(r, value, map)
}

/// `URL(http[s]://[user:password@]host[:port]/path)`
fn url(text: &str) -> Result<UrlResolver, &'static str> {
    let inside = text["URL".len()..].trim();
    let inside = inside.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
    let inside = inside.ok_or("is not in brackets: URL(http://…)")?;
    let address = inside.trim().trim_matches('"');
    let (scheme, rest) =
        address.split_once("://").ok_or("begins with neither http:// nor https://")?;
    let tls = match scheme.to_ascii_lowercase().as_str() {
        "http" => false,
        "https" => true,
        _ => return Err("begins with neither http:// nor https://"),
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    if address.contains(['?', '#']) || path.contains(|c: char| c.is_control() || c == ' ') {
        return Err("has a query, a fragment or a space");
    }
    let (login, place) = match authority.rsplit_once('@') {
        Some((login, place)) => (Some(login.split_once(':').unwrap_or((login, ""))), place),
        None => (None, authority),
    };
    let login = login.map(|(user, password)| {
        Ok::<_, &'static str>((percent_decoded(user)?, Secret::new(percent_decoded(password)?)))
    });
    let (host, port) = host_and_port(place, if tls { HTTPS_PORT } else { HTTP_PORT })?;
    let path = format!("{}/", path.trim_end_matches('/'));
    Ok(UrlResolver { tls, host, port, path, login: login.transpose()? })
}

/// What a map says, whatever its type.
#[derive(Default)]
struct Given {
    kind: Option<usize>,
    dir: Option<PathBuf>,
    limit: Option<u32>,
    may_delete: bool,
    hard: Option<bool>,
    ttl: Option<Duration>,
    timeout: Option<Duration>,
}

fn of_directory(r: &mut ConfigReader, value: &Value, map: &Map) -> Option<Resolver> {
    let mut given = Given::default();
    let problems_before = r.problems.len();
    r.walk(&RESOLVER, map, |r, key, entry| setting(r, key, &entry.value, &mut given));
    if r.problems.len() > problems_before {
        return None;
    }
    let is_there = |key: &str| map.entries().iter().any(|e| e.key.eq_ignore_ascii_case(key));
    let mut refuse = |key: &str, what: &str| -> Option<Resolver> {
        r.invalid(&value.pos, key, what);
        None
    };
    match (given.kind, given.dir.take()) {
        (Some(1 | 2), _) => Some(Resolver::Memory),
        (None, _) => refuse("resolver", "needs its 'type': full or cache"),
        (Some(_), None) => refuse("resolver", "needs 'dir', the directory of the accounts"),
        (Some(3), Some(dir)) => {
            let of_full = ["allow_delete", "hard_delete", "interval"];
            match of_full.into_iter().find(|key| is_there(key)) {
                Some(key) => refuse(key, "does not go with type cache"),
                None => Some(Resolver::Cache(cache(dir, &given))),
            }
        }
        (Some(_), Some(_)) if is_there("ttl") => {
            refuse("ttl", "belongs to type cache: type full keeps all accounts")
        }
        (Some(_), Some(_)) if given.hard.is_some() && !given.may_delete => {
            refuse("hard_delete", "has no effect without allow_delete")
        }
        (Some(_), Some(dir)) => {
            if is_there("timeout") {
                let text = "'timeout' has no effect: type full asks no other server";
                r.warn(&value.pos, text);
            }
            let delete = match (given.may_delete, given.hard) {
                (false, _) => DeletePolicy::Refused,
                (true, Some(true)) => DeletePolicy::Removed,
                (true, _) => DeletePolicy::Renamed,
            };
            Some(Resolver::Full(FullResolver { dir, delete, limit: given.limit }))
        }
    }
}

fn cache(dir: PathBuf, given: &Given) -> CacheResolver {
    CacheResolver {
        dir,
        limit: given.limit.unwrap_or(DEFAULT_CACHED),
        ttl: given.ttl.filter(|ttl| !ttl.is_zero()),
        timeout: given.timeout.filter(|time| !time.is_zero()).unwrap_or(DEFAULT_FETCH_TIMEOUT),
    }
}

fn setting(r: &mut ConfigReader, key: &'static str, value: &Value, given: &mut Given) {
    match key {
        "type" => {
            let words = &["full", "memory", "mem", "cache"];
            given.kind = r.choice(key, value, words, "'full', 'cache' or 'memory'");
        }
        "dir" => given.dir = r.word(key, value).map(PathBuf::from),
        "allow_delete" => given.may_delete = r.boolean(key, value).unwrap_or_default(),
        "hard_delete" => given.hard = r.boolean(key, value),
        "limit" => given.limit = r.count(key, value, true).unwrap_or_default(),
        "ttl" => given.ttl = r.duration(key, value),
        "timeout" => {
            given.timeout = r.duration(key, value);
            if given.timeout.is_some_and(|timeout| timeout > FETCH_TIMEOUT_MAX) {
                r.invalid(&value.pos, key, format!("is longer than {FETCH_TIMEOUT_MAX:?}"));
            }
        }
        _ => debug_assert!(false, "key '{key}' is in the table and nobody reads it"),
    }
}

/// TLS towards the HTTP server.
pub(super) fn tls(r: &mut ConfigReader, value: &Value) -> Option<RemoteTls> {
    remote_tls(r, &RESOLVER_TLS, value, "the account resolver")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_account_servers() {
        let found = url("URL(https://us%40r:p:w@host.example/jwt/v1/accounts)").expect("it is one");
        assert_eq!(found.to_string(), "https://host.example:443/jwt/v1/accounts/");
        let (user, password) = found.login.expect("a login");
        assert_eq!((user.as_str(), password.expose()), ("us@r", "p:w"));
        let found = url("url( \"http://[::1]:9090/\" )").expect("it is one");
        assert_eq!((found.tls, found.to_string().as_str()), (false, "http://[::1]:9090/"));
        assert_eq!(url("URL(http://h)").expect("it is one").to_string(), "http://h:80/");
        for bad in [
            "URL",
            "URL()",
            "URL(h)",
            "URL(nats://h)",
            "URL(http://)",
            "URL(http://h:0)",
            "URL(http://h/?a)",
        ] {
            assert!(url(bad).is_err(), "{bad}");
        }
    }
}
