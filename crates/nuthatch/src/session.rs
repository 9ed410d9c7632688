//! A connection together with the options that every client command has.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use nuthatch_bench::client::Client;
use nuthatch_bench::connect::ConnectArgs;
use nuthatch_bench::js::{self, JsError};
use serde_json::Value;

use crate::error::CliError;

/// An open connection and how to use it.
#[derive(Debug)]
pub struct Session {
    /// The connection.
    pub client: Client,
    /// Limit for each answer.
    pub timeout: Duration,
    /// Whether to print JSON.
    pub json: bool,
    /// What the subjects of JetStream's API begin with.
    pub api_prefix: String,
}

impl Session {
    /// Connects.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub fn open(connect: &ConnectArgs) -> Result<Self, CliError> {
        let mut options = connect.options()?;
        if connect.connection_name.is_none() {
            options.name = "nuthatch CLI".into();
        }
        let api_prefix = connect.api_prefix()?;
        let client = Client::connect(&options)?;
        Ok(Self { client, timeout: connect.timeout, json: connect.json, api_prefix })
    }

    /// Asks JetStream's API.
    ///
    /// # Errors
    /// Like [`js::api_at`].
    pub fn api(&mut self, what: &str, body: &Value) -> Result<Value, JsError> {
        js::api_at(&mut self.client, &self.api_prefix, what, body, self.timeout)
    }

    /// All pages of a list of JetStream's API.
    ///
    /// # Errors
    /// Like [`js::list_at`].
    pub fn list(&mut self, what: &str, field: &str, filter: &Value) -> Result<Vec<Value>, JsError> {
        js::list_at(&mut self.client, &self.api_prefix, what, field, filter, self.timeout)
    }

    /// Prints JSON when asked for, else the text.
    ///
    /// # Errors
    /// When the output is gone.
    pub fn print(&self, json: &Value, text: impl FnOnce() -> String) -> Result<(), CliError> {
        let text = if self.json { format!("{json:#}\n") } else { text() };
        io::stdout().write_all(text.as_bytes())?;
        Ok(())
    }
}

/// Asks before something is destroyed. Without a terminal to ask on, `force` is needed.
///
/// # Errors
/// When the answer is no, or nobody can be asked.
pub fn confirm(question: &str, force: bool) -> Result<(), CliError> {
    if force {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        let text = "there is no terminal to ask for confirmation on; pass --force".to_owned();
        return Err(CliError::Usage(text));
    }
    eprint!("{question} [y/N] ");
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(CliError::Declined),
    }
}
