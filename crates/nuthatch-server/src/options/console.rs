//! Reads `console`, and the flags about it.

use nuthatch_protocol::config::Value;

use super::address::{self, Port};
use super::error::FlagError;
use super::flags::Given;
use super::read::ConfigReader;
use super::tables::CONSOLE;
use super::{Invocation, LOOPBACK_HOST, Options, listen};

/// Default port of the web console.
pub const DEFAULT_CONSOLE_PORT: u16 = 8280;

/// The web console.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsoleOptions {
    /// It is served.
    pub enabled: bool,
    /// Address to listen on. Default [`LOOPBACK_HOST`].
    pub host: String,
    /// Port to listen on; 0 lets the system choose (configured as -1).
    pub port: u16,
    /// Nobody asked for it: if its port is taken, the server goes on without.
    pub by_default: bool,
    /// It changes nothing, whoever asks.
    pub read_only: bool,
    /// Names under which browsers reach it, beside addresses and `localhost`.
    pub hosts: Vec<String>,
}

impl Default for ConsoleOptions {
    fn default() -> Self {
        Self {
            enabled: false,
            host: LOOPBACK_HOST.to_owned(),
            port: DEFAULT_CONSOLE_PORT,
            by_default: false,
            read_only: false,
            hosts: Vec::new(),
        }
    }
}

/// What the file and the flags say of it, as far as they say anything.
#[derive(Debug, Default)]
pub(super) struct ConsoleDraft {
    enabled: Option<bool>,
    address: Option<(Option<String>, Port)>,
    read_only: Option<bool>,
    hosts: Vec<String>,
}

impl ConsoleDraft {
    /// The block of the file.
    pub fn block(&mut self, r: &mut ConfigReader, value: &Value) {
        let Some(map) = r.map("console", value) else { return };
        r.walk(&CONSOLE, map, |r, key, entry| {
            let value = &entry.value;
            match key {
                "enabled" => self.enabled = r.boolean(key, value).or(self.enabled),
                "read_only" => self.read_only = r.boolean(key, value).or(self.read_only),
                "hosts" => self.hosts = r.texts(key, value).unwrap_or_default(),
                "listen" => {
                    if let Some(listen) = address::listen(r, key, value) {
                        self.address = Some((listen.host, listen.port));
                    }
                }
                _ => debug_assert!(false, "key '{key}' is in the table and nobody reads it"),
            }
        });
    }

    /// `--console`.
    pub fn flag(&mut self, text: &str, given: &Given) -> Result<(), FlagError> {
        if text == "off" {
            self.enabled = Some(false);
            return Ok(());
        }
        let split = address::split_host_port(text);
        let (host, port) = split.map_err(|_| given.bad("host:port or off"))?;
        self.enabled = Some(true);
        self.address = Some(((!host.is_empty()).then(|| host.to_owned()), port));
        Ok(())
    }

    /// `--console-read-only`.
    pub fn set_read_only(&mut self, on: bool) {
        self.read_only = Some(on);
    }

    /// What follows from it. Under our own name it is on.
    pub fn finish(self, invocation: Invocation) -> ConsoleOptions {
        let mut options = ConsoleOptions::default();
        let asked = self.enabled.or(self.address.as_ref().map(|_| true));
        options.enabled = asked.unwrap_or(invocation == Invocation::Nuthatch);
        options.by_default = options.enabled && asked.is_none();
        options.read_only = self.read_only.unwrap_or_default();
        options.hosts = self.hosts;
        if let Some((host, port)) = self.address {
            options.host = host.unwrap_or(options.host);
            options.port = match port {
                Port::Unset => DEFAULT_CONSOLE_PORT,
                Port::Any => 0,
                Port::Fixed(port) => port,
            };
        }
        options
    }
}

impl Options {
    /// Why the console may not be served: whoever reaches it from elsewhere could change everything;
    /// `None`: it may.
    #[must_use]
    pub fn console_opens_up(&self) -> Option<String> {
        let ConsoleOptions { enabled, host, port, read_only, .. } = &self.console;
        let lets_everybody_in = !self.has_users() || self.auth.no_auth_user.is_some();
        (*enabled && !read_only && lets_everybody_in && !listen::is_loopback(host)).then(|| {
            format!(
                "on {host}:{port} the console would let everybody who reaches it change everything, for \
                 the server asks nobody who he is: configure users (without no_auth_user), let the \
                 console change nothing (--console-read-only), or listen on {LOOPBACK_HOST}"
            )
        })
    }

    /// Warning about a console that others than this machine reach; `None`: none is needed.
    #[must_use]
    pub fn console_exposure(&self) -> Option<String> {
        let ConsoleOptions { enabled, host, port, .. } = &self.console;
        (*enabled && !listen::is_loopback(host)).then(|| {
            format!(
                "the console listens on {host}:{port} without TLS: passwords and messages can be read \
                 on their way; put a proxy with TLS before it, or listen on {LOOPBACK_HOST}"
            )
        })
    }
}
