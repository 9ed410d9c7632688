//! The `nuthatch` binary: command line only, the work is in the libraries.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use nuthatch_bench::cli::BenchArgs;
use nuthatch_bench::connect::ConnectArgs;

/// A durable log broker that speaks NATS and JetStream
#[derive(Debug, Parser)]
#[command(name = "nuthatch", version)]
struct Cli {
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Bench(BenchArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match &cli.command {
        Command::Bench(args) => nuthatch_bench::cli::run(args, &cli.connect),
    };
    match result {
        Ok(text) => {
            println!("{}", text.trim_end());
            ExitCode::SUCCESS
        }
        Err(err) => {
            eprintln!("nuthatch: {err}");
            ExitCode::FAILURE
        }
    }
}
