//! The web console: pages that are in the binary, and a small JSON API for them.
//!
//! The console is a client of the broker that it stands beside: whoever logs in is asked for the
//! credentials that every client has, a connection is opened with them, and what the pages show and do
//! goes through that connection. So authentication, accounts and permissions are the broker's own.
//! What the console knows of the process beside that is behind [`Host`]; a user sees of it what he
//! could ask the broker for.

mod api;
mod ask;
mod assets;
mod bounds;
mod broker;
mod failure;
mod follow;
mod guard;
mod host;
mod places;
mod rights;
mod serve;
mod session;
mod watch;

pub use host::{
    AccountSample, Advisory, BoxFuture, Cluster, ClusterNode, Facts, Findings, FreeSpace, Host,
    QuorumLog, ReloadPreview, Replica, Rule, Sample, Setting, User,
};
pub use serve::{Settings, StartError, start};
