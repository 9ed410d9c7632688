//! The program `nuthatch-bench`: the workbench, and the load generator that `nuthatch bench` has too.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::campaign::{self, ReportArgs, RunArgs};
use crate::catalog::{self, CatalogArgs};
use crate::cli::{self, LoadCommand};
use crate::compare::{self, CompareArgs};
use crate::harness::BenchError;
use crate::migration::{self, importing::ImportArgs, moving::MoveArgs};
use crate::mq::{self, cli::MqArgs};
use crate::objects::{self, ObjectsArgs};
use crate::peers::{self, cli::PeersArgs};
use crate::scale::{self, ScaleArgs};
use crate::workbench::cli::{LogArgs, PartitionsArgs, PubSubArgs};
use crate::workbench::latency_cli::LatencyArgs;
use crate::workbench::{self, latency_cli};
use nuthatch_client::connect::ConnectArgs;

/// Exit code for a command line that makes no sense; clap uses the same.
const EXIT_USAGE: u8 = 2;

/// Measures Nuthatch and other systems side by side
#[derive(Debug, Parser)]
#[command(name = "nuthatch-bench", version, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Bench(BenchCommand),
    /// What `nuthatch bench` passes on: its own command line, as it is
    #[command(subcommand, name = "bench", hide = true)]
    OfNuthatch(BenchCommand),
}

#[derive(Debug, Clone, Subcommand)]
enum BenchCommand {
    #[command(flatten)]
    Workbench(WorkbenchCommand),
    #[command(flatten)]
    Load(LoadCommand),
}

/// All of these are in [`cli::WORKBENCH`].
#[derive(Debug, Clone, Subcommand)]
enum WorkbenchCommand {
    Compare(CompareArgs),
    Scale(ScaleArgs),
    Catalog(CatalogArgs),
    Objects(ObjectsArgs),
    Move(MoveArgs),
    Import(ImportArgs),
    Latency(LatencyArgs),
    Pubsub(PubSubArgs),
    Partitions(PartitionsArgs),
    Log(LogArgs),
    Mq(MqArgs),
    Peers(PeersArgs),
    Run(RunArgs),
    Report(ReportArgs),
}

/// Runs the program with the arguments of the process.
#[must_use]
pub fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(text) => show(&text),
        Err(error) => {
            eprintln!("nuthatch-bench: {error}");
            match error {
                BenchError::Url(_) | BenchError::Settings(_) | BenchError::Usage(_) => {
                    ExitCode::from(EXIT_USAGE)
                }
                _ => ExitCode::FAILURE,
            }
        }
    }
}

/// It is no failure that a reader has gone.
fn show(text: &str) -> ExitCode {
    match writeln!(io::stdout(), "{}", text.trim_end()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("nuthatch-bench: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Runs the program with these words, the first of which is its name, and returns what it would print.
///
/// # Errors
/// When the words make no sense, or the measurement cannot be made.
pub fn run_words<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<String, BenchError> {
    run(Cli::try_parse_from(words).map_err(|error| BenchError::Usage(error.to_string()))?)
}

fn run(cli: Cli) -> Result<String, BenchError> {
    let connect = cli.connect.resolve()?;
    let (Command::Bench(command) | Command::OfNuthatch(command)) = &cli.command;
    match command {
        BenchCommand::Load(command) => {
            cli::generate(command, &cli::Setting { connect: &connect, watched: None })
        }
        BenchCommand::Workbench(command) => run_workbench(command, &connect),
    }
}

fn run_workbench(command: &WorkbenchCommand, connect: &ConnectArgs) -> Result<String, BenchError> {
    match command {
        WorkbenchCommand::Compare(args) => compare::run(args, connect),
        WorkbenchCommand::Scale(args) => scale::run(args),
        WorkbenchCommand::Catalog(args) => catalog::run(args),
        WorkbenchCommand::Objects(args) => objects::run(args),
        WorkbenchCommand::Move(args) => migration::moving::run(args),
        WorkbenchCommand::Import(args) => migration::importing::run(args),
        WorkbenchCommand::Latency(args) => latency_cli::run(args, connect),
        WorkbenchCommand::Pubsub(args) => workbench::cli::run_pubsub(args, connect),
        WorkbenchCommand::Partitions(args) => workbench::cli::run_partitions(args, connect),
        WorkbenchCommand::Log(args) => workbench::cli::run_log(args, connect),
        WorkbenchCommand::Mq(args) => mq::cli::run(args, connect),
        WorkbenchCommand::Run(args) => campaign::run(args),
        WorkbenchCommand::Report(args) => campaign::redraw(args),
        WorkbenchCommand::Peers(args) => peers::cli::run(args, connect),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// `nuthatch bench` starts this program for the commands that it knows by name.
    #[test]
    fn nuthatch_knows_the_commands_of_the_workbench() {
        let all = Cli::command();
        let mut own: Vec<&str> = all.get_subcommands().map(clap::Command::get_name).collect();
        own.retain(|name| !["bench", "js", "pub", "sub", "request"].contains(name));
        own.sort_unstable();
        assert_eq!(own, cli::WORKBENCH);
    }

    #[test]
    fn a_command_line_of_nuthatch_is_understood() {
        let words = ["nuthatch-bench", "-s", "nats://a:1", "bench", "partitions", "--msgs", "20"];
        let cli = Cli::try_parse_from(words).expect("the words are understood");
        assert!(matches!(
            cli.command,
            Command::OfNuthatch(BenchCommand::Workbench(WorkbenchCommand::Partitions(_)))
        ));
    }
}
