//! Commands about servers: what they say about themselves, whether they are well, subject mappings.

mod check;
mod info;
mod ls;
pub mod mapping;
mod ping;
mod report;
pub mod source;

pub use report::all_connections;

use clap::Subcommand;
use nuthatch_client::connect::ConnectArgs;

use crate::error::CliError;

/// Commands about servers.
#[derive(Debug, Clone, Subcommand)]
pub enum ServerCommand {
    /// List servers: all for a user of the system account, else the one we are connected to
    #[command(visible_alias = "list")]
    Ls(ls::LsArgs),
    /// Measure the round trip to every server, or to the one we are connected to
    Ping(ping::PingArgs),
    /// Show what a server says about itself
    #[command(visible_alias = "i")]
    Info(info::InfoArgs),
    /// Tables about connections, accounts, JetStream, health, processor and memory
    #[command(subcommand, visible_alias = "rep")]
    Report(report::ReportCommand),
    /// Probes for monitoring, with its exit codes: 0 fine, 1 warning, 2 critical, 3 unknown
    #[command(subcommand)]
    Check(check::CheckCommand),
    #[command(visible_alias = "mappings")]
    Mapping(mapping::MappingArgs),
}

/// Runs a command about servers.
pub fn run(command: &ServerCommand, connect: &ConnectArgs) -> Result<(), CliError> {
    match command {
        ServerCommand::Ls(args) => ls::run(args, connect),
        ServerCommand::Ping(args) => ping::run(args, connect),
        ServerCommand::Info(args) => info::run(args, connect),
        ServerCommand::Report(command) => report::run(command, connect),
        ServerCommand::Check(command) => check::run(command, connect),
        ServerCommand::Mapping(args) => mapping::run(args),
    }
}
