//! The options of all client commands: where the server is and how long to wait for it.

use std::time::Duration;

use clap::Args;

use crate::client::{ConnectOptions, Credentials, UrlError};
use crate::units::parse_duration;

/// How to reach a server; shared by all client commands.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Connection and output")]
pub struct ConnectArgs {
    /// Server address: nats://[user:pass@]host:port, several separated by commas
    #[arg(long, short, global = true, env = "NATS_URL", default_value = "nats://127.0.0.1:4222")]
    pub server: String,
    /// User name
    #[arg(long, global = true, env = "NATS_USER")]
    pub user: Option<String>,
    /// Password
    #[arg(long, global = true, env = "NATS_PASSWORD", hide_env_values = true)]
    pub password: Option<String>,
    /// Token
    #[arg(long, global = true, env = "NATS_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// How long to wait for an answer, such as 500ms, 5s, 1m
    #[arg(long, global = true, default_value = "5s", value_parser = parse_duration)]
    pub timeout: Duration,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
}

impl ConnectArgs {
    /// Options for the lean client.
    ///
    /// # Errors
    /// When an address is unusable.
    pub fn options(&self) -> Result<ConnectOptions, UrlError> {
        let mut options = ConnectOptions::new(&self.server)?;
        options.timeout = self.timeout;
        options.credentials = Credentials {
            user: self.user.clone(),
            password: self.password.clone(),
            token: self.token.clone(),
        };
        Ok(options)
    }
}
