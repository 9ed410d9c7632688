//! The process that the console is part of, as the console sees it.

use std::pin::Pin;

use serde_json::{Map, Value};
use tokio::sync::mpsc;

/// A future of a trait's method.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

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
    /// There are no users: whoever is let in may see and do everything.
    pub is_open: bool,
    /// Name of the system account, whose users may see the whole server.
    pub system_account: String,
}

/// An advisory as it was published.
#[derive(Debug, Clone)]
pub struct Advisory {
    /// Name of its account.
    pub account: String,
    /// Its subject.
    pub subject: String,
    /// Its JSON.
    pub body: Vec<u8>,
}

/// Counters and gauges of an account.
#[derive(Debug, Clone, Default)]
pub struct AccountSample {
    /// Its name.
    pub name: String,
    /// Messages from its clients so far.
    pub in_messages: u64,
    /// Messages to its clients so far.
    pub out_messages: u64,
    /// Bytes from its clients so far.
    pub in_bytes: u64,
    /// Bytes to its clients so far.
    pub out_bytes: u64,
    /// Its connections.
    pub connections: u64,
    /// Bytes that its streams hold.
    pub stored_bytes: u64,
}

/// What is free where a log is.
#[derive(Debug, Clone)]
pub struct FreeSpace {
    /// Name of the log.
    pub log: String,
    /// Bytes that are free.
    pub free_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
}

/// The process at one moment.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    /// Its accounts.
    pub accounts: Vec<AccountSample>,
    /// The media of its logs.
    pub space: Vec<FreeSpace>,
}

/// Which subjects are allowed.
#[derive(Debug, Clone, Default)]
pub struct Rule {
    /// `None`: all that are not denied.
    pub allow: Option<Vec<String>>,
    /// Denied ones.
    pub deny: Vec<String>,
}

/// A user of the configuration.
#[derive(Debug, Clone)]
pub struct User {
    /// His account.
    pub account: String,
    /// His name, or his public key.
    pub name: String,
    /// How he proves who he is.
    pub kind: &'static str,
    /// What he may publish; `None`: everything.
    pub publish: Option<Rule>,
    /// What he may subscribe to; `None`: everything.
    pub subscribe: Option<Rule>,
}

/// A setting of the configuration file.
#[derive(Debug, Clone)]
pub struct Setting {
    /// Its keys from the outermost one, with dots between.
    pub key: String,
    /// File, line and column.
    pub place: String,
    /// Its value, if it is simple and no secret.
    pub value: Option<String>,
}

/// What reading the configuration again would change.
#[derive(Debug, Clone, Default)]
pub struct ReloadPreview {
    /// Keys that change at once.
    pub now: Vec<String>,
    /// Keys that need a restart: with any of them, a reload changes nothing.
    pub restart: Vec<String>,
}

/// What a node knows of another node that keeps a quorum log, or of itself.
#[derive(Debug, Clone)]
pub struct Replica {
    /// Name of the node.
    pub node: String,
    /// It answers.
    pub is_connected: bool,
    /// For how long it has not answered, in milliseconds; `None`: it never has.
    pub silent_ms: Option<u64>,
    /// Entries that it lacks of what the owner has; the owner alone knows.
    pub lag: Option<u64>,
    /// It could own the log: its disk has room, its clock does not differ.
    pub is_fit: bool,
}

/// A quorum log, as this node sees it.
#[derive(Debug, Clone)]
pub struct QuorumLog {
    /// Its name.
    pub name: String,
    /// Its newest epoch.
    pub epoch: u64,
    /// The node that owns it, if one is known to.
    pub owner: Option<String>,
    /// The node that is to own it when all are there.
    pub preferred: String,
    /// Who keeps it.
    pub replicas: Vec<Replica>,
}

/// A node of the cluster, as this one knows it.
#[derive(Debug, Clone)]
pub struct ClusterNode {
    /// Its name.
    pub name: String,
    /// It keeps no log, and may take the place of another one.
    pub is_spare: bool,
    /// `draining` or `drained`; `None`: it is not to be.
    pub drain: Option<&'static str>,
    /// Where it is.
    pub zone: Option<String>,
    /// It answers.
    pub is_connected: bool,
    /// For how long it has not answered, in milliseconds; `None`: it never has.
    pub silent_ms: Option<u64>,
    /// Why it is turned away, if it is.
    pub turned_away: Option<String>,
}

/// The cluster of a server.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// Its name.
    pub name: String,
    /// This node.
    pub node: String,
    /// Nodes in all.
    pub size: usize,
    /// Its nodes.
    pub nodes: Vec<ClusterNode>,
    /// What is under way, and what an operator should know of it; one sentence each.
    pub states: Vec<String>,
    /// Nothing that this node knows speaks against stopping any one node.
    pub may_stop: bool,
    /// Its quorum logs.
    pub logs: Vec<QuorumLog>,
}

/// What is wrong with a log, as far as that is known without stopping it.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    /// Name of the log.
    pub log: String,
    /// Places that readers found damaged since the start.
    pub damaged_places: u64,
    /// Incomplete frames that the start cut off.
    pub torn_frames: u64,
    /// Files that the start could not use.
    pub unusable_files: u64,
    /// When the doctor last mended it, as the name of the directory that it made.
    pub mended_at: Option<String>,
    /// What it said then.
    pub report: Option<Value>,
}

/// The process that the console is part of.
pub trait Host: Send + Sync + 'static {
    /// Its facts now.
    fn facts(&self) -> Facts;

    /// URL of the port for clients.
    fn client_url(&self) -> String;

    /// Writes a line to the log.
    fn log(&self, line: &str);

    /// Why nobody may use the console now; `None`: the usual case.
    fn closed(&self) -> Option<String>;

    /// Its counters. Polled on a thread that may block.
    fn sample(&self) -> BoxFuture<'_, Sample>;

    /// Sends advisories from now on; those for which there is no room are dropped. Called once.
    fn listen(&self, advisories: mpsc::Sender<Advisory>);

    /// A document of its monitoring, such as `/connz`; or what is wrong with the options. Polled on
    /// a thread that may block.
    fn document<'a>(
        &'a self,
        path: &'a str,
        options: &'a Map<String, Value>,
    ) -> BoxFuture<'a, Result<Value, String>>;

    /// Inboxes of pull requests that wait at a consumer, the first ones. Polled on a thread that may block.
    fn waiting_inboxes<'a>(
        &'a self,
        account: &'a str,
        stream: &'a str,
        consumer: &'a str,
    ) -> BoxFuture<'a, Vec<String>>;

    /// The cluster; `None`: the server is alone, or has not found its cluster yet.
    fn cluster(&self) -> Option<Cluster>;

    /// What is known to be wrong, log by log. Reads files.
    fn findings(&self) -> Vec<Findings>;

    /// Closes a client's connection; `false`: there is none of this number.
    fn kick(&self, connection: u64) -> bool;

    /// The users of its configuration.
    fn users(&self) -> Vec<User>;

    /// What its configuration file says now; or why it cannot be read. Empty: there is no file.
    fn settings(&self) -> Result<Vec<Setting>, String>;

    /// What a reload would change; or what is wrong with the file.
    fn preview_reload(&self) -> Result<ReloadPreview, String>;
}
