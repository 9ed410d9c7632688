//! The web console: pages that are in the binary, and a small JSON API for them.
//!
//! The console is a client of the broker that it stands beside: whoever logs in is asked for the
//! credentials that every client has, a connection is opened with them, and what the pages show and do
//! goes through that connection. So authentication, accounts and permissions are the broker's own.
//! What the console knows of the process beside that is behind [`Host`].

mod api;
mod ask;
mod assets;
mod bounds;
mod broker;
mod failure;
mod guard;
mod serve;
mod session;

pub use serve::{Settings, StartError, start};

/// Facts of the process that every user may see.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Name of the server.
    pub name: String,
    /// Version of the program.
    pub version: String,
    /// Time since its start.
    pub uptime_ms: u64,
    /// Its health, as sentences; empty: nothing is wrong.
    pub troubles: Vec<String>,
    /// What an acknowledgement means on each log: its name, and words.
    pub durability: Vec<(String, String)>,
    /// Clients must show who they are.
    pub needs_login: bool,
}

/// The process that the console is part of.
pub trait Host: Send + Sync + 'static {
    /// Its facts now.
    fn facts(&self) -> Facts;

    /// URL of the port for clients.
    fn client_url(&self) -> String;

    /// Writes a line to the log.
    fn log(&self, line: &str);
}
