//! The options of all client commands: where the server is, who we are, how long to wait.
//!
//! They come from the command line, else from the environment, else from the context that is named
//! or selected; names are those of the `nats` command.

pub mod context;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use crate::js::API_PREFIX;
use crate::nkey::{Nkey, NkeyError, jwt_of};
use crate::socket::TlsSettings;
use crate::units::parse_duration;
use crate::{ConnectOptions, Credentials, DEFAULT_INBOX_PREFIX, Identity, UrlError};
use context::{Context, ContextError, Store};

/// Default address of the server.
pub const DEFAULT_SERVER: &str = "nats://127.0.0.1:4222";

/// How to reach a server; shared by all client commands.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Connection and output")]
pub struct ConnectArgs {
    /// Server address: nats://[user:pass@]host:port or tls://…, several separated by commas
    /// [default: the context's, else nats://127.0.0.1:4222]
    #[arg(
        long,
        short,
        global = true,
        env = "NATS_URL",
        default_value = "",
        value_name = "URL",
        hide_default_value = true
    )]
    pub server: String,
    /// User name (a token, when there is no password)
    #[arg(long, global = true, env = "NATS_USER")]
    pub user: Option<String>,
    /// Password
    #[arg(long, global = true, env = "NATS_PASSWORD", hide_env_values = true)]
    pub password: Option<String>,
    /// Token
    #[arg(long, global = true, env = "NATS_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// Credentials file: a user JWT and its seed
    #[arg(long, global = true, env = "NATS_CREDS", value_name = "FILE")]
    pub creds: Option<PathBuf>,
    /// File with an nkey seed
    #[arg(long, global = true, env = "NATS_NKEY", value_name = "FILE")]
    pub nkey: Option<PathBuf>,
    /// Our certificate, PEM
    #[arg(long, global = true, env = "NATS_CERT", value_name = "FILE")]
    pub tlscert: Option<PathBuf>,
    /// The certificate's key, PEM
    #[arg(long, global = true, env = "NATS_KEY", value_name = "FILE")]
    pub tlskey: Option<PathBuf>,
    /// Authorities that vouch for the server, PEM (default: the system's)
    #[arg(long, global = true, env = "NATS_CA", value_name = "FILE")]
    pub tlsca: Option<PathBuf>,
    /// Do the TLS handshake before the server's greeting
    #[arg(long, global = true)]
    pub tlsfirst: bool,
    /// How long to wait for an answer, such as 500ms, 5s, 1m
    #[arg(long, global = true, env = "NATS_TIMEOUT", default_value = "5s",
          value_parser = parse_duration)]
    pub timeout: Duration,
    /// Context with settings for what is not given here (default: the selected one)
    #[arg(long, global = true, env = "NATS_CONTEXT", value_name = "NAME")]
    pub context: Option<String>,
    /// Use no context, selected or not
    #[arg(long, global = true, conflicts_with = "context")]
    pub no_context: bool,
    /// JetStream domain
    #[arg(long, global = true, value_name = "DOMAIN", visible_alias = "domain")]
    pub js_domain: Option<String>,
    /// What the subjects of JetStream's API begin with, instead of $JS.API
    #[arg(long, global = true, value_name = "PREFIX", conflicts_with = "js_domain")]
    pub js_api_prefix: Option<String>,
    /// What reply subjects begin with, instead of _INBOX
    #[arg(long, global = true, value_name = "PREFIX")]
    pub inbox_prefix: Option<String>,
    /// Name of the connection, shown by the server's monitoring
    #[arg(long, global = true, value_name = "NAME")]
    pub connection_name: Option<String>,
    /// Print JSON
    #[arg(long, short = 'j', global = true)]
    pub json: bool,
}

/// Settings that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A server address is unusable.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// A context is unusable.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file holds no credentials.
    #[error("{} is of no use: {source}", path.display())]
    Nkey {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        source: NkeyError,
    },
    /// A subject prefix that would break the protocol.
    #[error("{0:?} is no prefix of a subject: no spaces, no wildcards, no dot at either end")]
    Prefix(String),
}

impl ConnectArgs {
    /// Fills what was not given from the context that is named or selected.
    ///
    /// # Errors
    /// When the named context does not exist or cannot be used.
    pub fn resolve(mut self) -> Result<Self, SettingsError> {
        let context = if self.no_context { None } else { Store::open().wanted(&self.context)? };
        if let Some(context) = context {
            self.fill(context);
        }
        if self.server.is_empty() {
            self.server = DEFAULT_SERVER.into();
        }
        Ok(self)
    }

    fn fill(&mut self, context: Context) {
        let text = |value: String| (!value.is_empty()).then_some(value);
        let path = |value: String| text(value).map(|value| expand(&value));
        if self.server.is_empty() {
            self.server = context.url;
        }
        // Credentials given here replace all of the context's: half of one and half of the other
        // would be nobody.
        let named = self.user.is_some() || self.token.is_some();
        if !named && self.creds.is_none() && self.nkey.is_none() {
            (self.user, self.password) = (text(context.user), text(context.password));
            self.token = text(context.token);
            (self.creds, self.nkey) = (path(context.creds), path(context.nkey));
        }
        self.tlscert = self.tlscert.take().or(path(context.cert));
        self.tlskey = self.tlskey.take().or(path(context.key));
        self.tlsca = self.tlsca.take().or(path(context.ca));
        self.tlsfirst |= context.tls_first;
        if self.js_domain.is_none() && self.js_api_prefix.is_none() {
            self.js_domain = text(context.jetstream_domain);
            self.js_api_prefix = text(context.jetstream_api_prefix);
        }
        self.inbox_prefix = self.inbox_prefix.take().or(text(context.inbox_prefix));
    }

    /// Options for the lean client. [`Self::resolve`] comes first.
    ///
    /// # Errors
    /// When an address or a file with credentials is unusable.
    pub fn options(&self) -> Result<ConnectOptions, SettingsError> {
        let server = if self.server.is_empty() { DEFAULT_SERVER } else { &self.server };
        let mut options = ConnectOptions::new(server)?;
        options.timeout = self.timeout;
        options.credentials = self.credentials();
        options.tls = TlsSettings {
            ca: self.tlsca.clone(),
            cert: self.tlscert.clone(),
            key: self.tlskey.clone(),
            first: self.tlsfirst,
        };
        options.identity = self.identity()?.map(Arc::new);
        let prefix = self.inbox_prefix.as_deref().unwrap_or(DEFAULT_INBOX_PREFIX);
        options.inbox_prefix = check_prefix(prefix)?.to_owned();
        if let Some(name) = &self.connection_name {
            options.name.clone_from(name);
        }
        Ok(options)
    }

    /// What the subjects of JetStream's API begin with, such as `$JS.API`.
    ///
    /// # Errors
    /// When it cannot be part of a subject.
    pub fn api_prefix(&self) -> Result<String, SettingsError> {
        let prefix = match (&self.js_api_prefix, &self.js_domain) {
            (Some(prefix), _) => prefix.trim_end_matches('.').to_owned(),
            (None, Some(domain)) => format!("$JS.{domain}.API"),
            (None, None) => API_PREFIX.to_owned(),
        };
        check_prefix(&prefix).map(str::to_owned)
    }

    fn credentials(&self) -> Credentials {
        match (&self.user, &self.password, &self.token) {
            (Some(user), None, None) => {
                Credentials { token: Some(user.clone()), ..Credentials::default() }
            }
            (user, password, token) => {
                Credentials { user: user.clone(), password: password.clone(), token: token.clone() }
            }
        }
    }

    /// A user and a password win over a credentials file, that over a bare seed.
    fn identity(&self) -> Result<Option<Identity>, SettingsError> {
        let (path, with_jwt) = match (&self.user, &self.creds, &self.nkey) {
            (None, Some(path), _) => (path, true),
            (None, None, Some(path)) => (path, false),
            _ => return Ok(None),
        };
        let text = std::fs::read_to_string(path)
            .map_err(|source| SettingsError::File { path: path.clone(), source })?;
        let bad = |source| SettingsError::Nkey { path: path.clone(), source };
        let jwt = if with_jwt { Some(jwt_of(&text).map_err(bad)?) } else { None };
        Ok(Some(Identity { key: Nkey::from_text(&text).map_err(bad)?, jwt }))
    }
}

fn check_prefix(prefix: &str) -> Result<&str, SettingsError> {
    let bad = |token: &str| {
        token.is_empty() || token == "*" || token == ">" || token.contains(char::is_whitespace)
    };
    if prefix.split('.').any(bad) {
        return Err(SettingsError::Prefix(prefix.into()));
    }
    Ok(prefix)
}

/// A path as contexts write them, with `~` and `$NAME` or `${NAME}` for the environment's values.
fn expand(path: &str) -> PathBuf {
    let home = std::env::var("HOME").unwrap_or_default();
    let path = match path.strip_prefix("~/") {
        Some(rest) => format!("{home}/{rest}"),
        None => path.to_owned(),
    };
    let mut parts = path.split('$');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (name, rest) = match part.strip_prefix('{').and_then(|part| part.split_once('}')) {
            Some(found) => found,
            None => part.split_at(part.find(|c| !is_name(c)).unwrap_or(part.len())),
        };
        out.push_str(&std::env::var(name).unwrap_or_default());
        out.push_str(rest);
    }
    Path::new(&out).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        connect: ConnectArgs,
    }

    fn args(words: &[&str]) -> ConnectArgs {
        Line::try_parse_from([&["x"], words].concat()).unwrap().connect
    }

    #[test]
    fn a_context_fills_what_is_not_given() {
        let context = || Context {
            url: "nats://there:1".into(),
            user: "ada".into(),
            password: "secret".into(),
            ca: "/ca.pem".into(),
            jetstream_domain: "hub".into(),
            ..Context::default()
        };
        let mut plain = args(&["--no-context"]);
        plain.fill(context());
        assert_eq!((plain.server.as_str(), plain.user.as_deref()), ("nats://there:1", Some("ada")));
        assert_eq!(plain.api_prefix().unwrap(), "$JS.hub.API");
        assert_eq!(plain.options().unwrap().tls.ca, Some("/ca.pem".into()));
        let mut own = args(&["-s", "here", "--token", "t", "--js-api-prefix", "other.api."]);
        own.fill(context());
        assert_eq!((own.server.as_str(), &own.user, &own.password), ("here", &None, &None));
        assert_eq!(own.api_prefix().unwrap(), "other.api");
    }

    #[test]
    fn a_lone_user_is_a_token() {
        let credentials = args(&["--user", "word"]).credentials();
        assert_eq!((credentials.user, credentials.token), (None, Some("word".into())));
    }

    #[test]
    fn paths_and_prefixes() {
        let home = std::env::var("HOME").unwrap_or_default();
        for text in ["~/a", "$HOME/a", "${HOME}/a"] {
            assert_eq!(expand(text), Path::new(&format!("{home}/a")), "{text}");
        }
        assert_eq!(expand("/plain"), Path::new("/plain"));
        for bad in ["", "a.", "a b", "a.>"] {
            assert!(check_prefix(bad).is_err(), "{bad}");
        }
        let missing = args(&["--creds", "/does/not/exist"]).options();
        assert!(matches!(missing, Err(SettingsError::File { .. })), "{missing:?}");
    }
}
