//! Server addresses as people write them: `nats://user:pass@host:port`, `tls://host`, `host:port`,
//! `host`.

use std::fmt;

/// Port of an address that names none.
pub const DEFAULT_PORT: u16 = 4222;

/// How to prove who we are.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Credentials {
    /// User name.
    pub user: Option<String>,
    /// Password of that user.
    pub password: Option<String>,
    /// Token, instead of user and password.
    pub token: Option<String>,
}

impl fmt::Debug for Credentials {
    /// Shows which parts are set, never the secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .field("password", &self.password.is_some())
            .field("token", &self.token.is_some())
            .finish()
    }
}

/// One server address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerUrl {
    /// Host name or address, IPv6 without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Whether the connection must be encrypted (`tls://`).
    pub tls: bool,
    /// Credentials written into the address.
    pub credentials: Credentials,
}

/// An address that cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum UrlError {
    /// No host.
    #[error("the server address {0:?} names no host")]
    NoHost(String),
    /// The port is no number from 1 to 65535.
    #[error("the server address {url:?} has the bad port {port:?}")]
    BadPort {
        /// The whole address.
        url: String,
        /// What stood where the port should be.
        port: String,
    },
    /// A scheme this client does not speak.
    #[error(
        "the server address {url:?} has the scheme {scheme:?}; this client speaks \
         nats:// and tls://"
    )]
    BadScheme {
        /// The whole address.
        url: String,
        /// What stood before `://`.
        scheme: String,
    },
}

impl ServerUrl {
    /// Stands for a server in this process, which has no address.
    #[must_use]
    pub fn in_process() -> Self {
        let credentials = Credentials::default();
        Self { host: "in-process".to_owned(), port: 0, tls: false, credentials }
    }

    /// True if it is [`ServerUrl::in_process`].
    #[must_use]
    pub const fn is_in_process(&self) -> bool {
        self.port == 0
    }

    /// True if both lead to the same place.
    #[must_use]
    pub fn is_at(&self, other: &Self) -> bool {
        (&self.host, self.port) == (&other.host, other.port)
    }

    /// Parses one address.
    ///
    /// # Errors
    /// When the scheme is not `nats`, `tcp` or `tls`, or host or port are unusable.
    pub fn parse(url: &str) -> Result<Self, UrlError> {
        let (tls, rest) = match url.split_once("://") {
            Some(("nats" | "tcp", rest)) => (false, rest),
            Some(("tls", rest)) => (true, rest),
            Some((scheme, _)) => {
                return Err(UrlError::BadScheme { url: url.into(), scheme: scheme.into() });
            }
            None => (false, url),
        };
        let rest = rest.trim_end_matches('/');
        let (login, place) = match rest.rsplit_once('@') {
            Some((login, place)) => (Some(login), place),
            None => (None, rest),
        };
        let (host, port) = split_port(url, place)?;
        if host.is_empty() {
            return Err(UrlError::NoHost(url.into()));
        }
        let credentials = login.map(parse_login).unwrap_or_default();
        Ok(Self { host: host.to_owned(), port, tls, credentials })
    }

    /// Parses a comma-separated list of addresses.
    ///
    /// # Errors
    /// When any of them is unusable, or there is none.
    pub fn parse_list(list: &str) -> Result<Vec<Self>, UrlError> {
        let urls: Vec<_> =
            list.split(',').map(str::trim).filter(|url| !url.is_empty()).map(Self::parse).collect();
        if urls.is_empty() {
            return Err(UrlError::NoHost(list.into()));
        }
        urls.into_iter().collect()
    }
}

impl fmt::Display for ServerUrl {
    /// `host:port`, without credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.port == 0 {
            write!(f, "{}", self.host)
        } else if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

fn split_port<'a>(url: &str, place: &'a str) -> Result<(&'a str, u16), UrlError> {
    let bracketed = place.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let (host, port) = match bracketed {
        Some((host, rest)) => (host, rest.strip_prefix(':')),
        None => match place.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        },
    };
    let Some(port) = port else { return Ok((host, DEFAULT_PORT)) };
    match port.parse() {
        Ok(number) if number > 0 => Ok((host, number)),
        _ => Err(UrlError::BadPort { url: url.into(), port: port.into() }),
    }
}

/// `user:password`, or a lone word, which is a token.
fn parse_login(login: &str) -> Credentials {
    match login.split_once(':') {
        Some((user, password)) => Credentials {
            user: Some(percent_decode(user)),
            password: Some(percent_decode(password)),
            token: None,
        },
        None => Credentials { token: Some(percent_decode(login)), ..Credentials::default() },
    }
}

fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut pos = 0;
    while pos < bytes.len() {
        let escaped = (bytes[pos] == b'%')
            .then(|| text.get(pos + 1..pos + 3))
            .flatten()
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match escaped {
            Some(byte) => {
                out.push(byte);
                pos += 3;
            }
            None => {
                out.push(bytes[pos]);
                pos += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn understood() {
        let check = |text: &str, shown: &str, user: Option<&str>, token: Option<&str>| {
            let url = ServerUrl::parse(text).unwrap();
            assert_eq!(url.to_string(), shown);
            assert_eq!(url.credentials.user.as_deref(), user);
            assert_eq!(url.credentials.token.as_deref(), token);
        };
        check("nats://127.0.0.1:4333", "127.0.0.1:4333", None, None);
        check("localhost", "localhost:4222", None, None);
        check("nats://a:p%40s@h:1/", "h:1", Some("a"), None);
        check("tok@h", "h:4222", None, Some("tok"));
        check("nats://[::1]:4000", "[::1]:4000", None, None);
        assert!(ServerUrl::parse("tls://h").unwrap().tls);
        assert_eq!(ServerUrl::parse_list("a, b:2").unwrap().len(), 2);
        let url = ServerUrl::parse("nats://a:p%40s@h").unwrap();
        assert_eq!(url.credentials.password.as_deref(), Some("p@s"));
    }

    #[test]
    fn refused() {
        for text in ["", "nats://", "h:0", "h:x", "http://h", "ws://h", ":4222"] {
            assert!(ServerUrl::parse_list(text).is_err(), "{text}");
        }
    }
}
