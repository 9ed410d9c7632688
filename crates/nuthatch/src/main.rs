//! The `nuthatch` binary: command line only, the work is in the libraries.

mod consumer;
mod core;
mod error;
mod serve;
mod session;
mod show;
mod stream;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use nuthatch_bench::cli::BenchArgs;
use nuthatch_bench::connect::ConnectArgs;

use crate::error::CliError;

/// A durable log broker that speaks NATS and JetStream
#[derive(Debug, Parser)]
#[command(name = "nuthatch", version, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server; takes the flags of nats-server (see `nuthatch serve --help`)
    #[command(disable_help_flag = true)]
    Serve {
        /// The server's arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        args: Vec<std::ffi::OsString>,
    },
    Pub(core::PubArgs),
    Sub(core::SubArgs),
    #[command(visible_alias = "req")]
    Request(core::RequestArgs),
    /// Manage streams
    #[command(subcommand, visible_alias = "str")]
    Stream(stream::StreamCommand),
    /// Manage consumers of streams
    #[command(subcommand, visible_alias = "con")]
    Consumer(consumer::ConsumerCommand),
    Bench(BenchArgs),
}

fn main() -> ExitCode {
    if let Some(args) = serve::arguments(std::env::args_os()) {
        return serve::run(args);
    }
    let cli = Cli::parse();
    // `serve` in the first place is taken care of above; here it follows options of ours.
    if let Command::Serve { args } = cli.command {
        return serve::run(args);
    }
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            if !err.is_silent() {
                eprintln!("nuthatch: {err}");
            }
            err.exit_code()
        }
    }
}

fn run(cli: Cli) -> Result<(), CliError> {
    let connect = cli.connect.resolve()?;
    match cli.command {
        Command::Serve { .. } => Ok(()),
        Command::Pub(args) => core::publish(&args, &connect),
        Command::Sub(args) => core::subscribe(&args, &connect),
        Command::Request(args) => core::request(&args, &connect),
        Command::Stream(command) => stream::run(&command, &connect),
        Command::Consumer(command) => consumer::run(&command, &connect),
        Command::Bench(args) => bench(&args, &connect),
    }
}

fn bench(args: &BenchArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let text = nuthatch_bench::cli::run(args, connect)?;
    writeln!(io::stdout(), "{}", text.trim_end())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
