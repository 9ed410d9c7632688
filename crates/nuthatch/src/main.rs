//! The `nuthatch` binary: command line only, the work is in the libraries.

mod account;
mod bench;
mod chart;
mod cluster;
mod complete;
mod console;
mod consumer;
mod context;
mod core;
mod doctor;
mod error;
mod events;
mod follow;
mod help;
mod input;
mod kv;
mod log;
mod manual;
mod message;
mod object;
mod progress;
mod screen;
mod serve;
mod server;
mod session;
mod show;
mod stream;
mod suggest;
mod table;
mod telemetry;
mod template;
mod terminal;
mod top;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use nuthatch_bench::cli::BenchArgs;
use nuthatch_client::connect::ConnectArgs;

use crate::core::{publish, request, subscribe};
use crate::error::CliError;

/// The allocator of musl takes one lock for all threads; this one gives memory back by itself, too.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Version and the commit it was built from.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("NUTHATCH_COMMIT"), ")");

/// The part of `--help` about exit codes.
const EXIT_CODES: &str = "Exit codes: 0 done; 1 failed, with the reason on the standard error; \
    2 the command line, an address, a context or a file named there is wrong. `server check` has \
    those of monitoring probes: 0 fine, 1 warning, 2 critical, 3 unknown.";

/// A durable log broker that speaks NATS and JetStream
#[derive(Debug, Parser)]
#[command(name = "nuthatch", version = VERSION, max_term_width = help::MAX_WIDTH, after_help = EXIT_CODES)]
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
    #[command(visible_alias = "publish")]
    Pub(publish::PubArgs),
    #[command(visible_alias = "subscribe")]
    Sub(Box<subscribe::SubArgs>),
    #[command(visible_alias = "req")]
    Request(request::RequestArgs),
    Reply(request::ReplyArgs),
    /// Manage streams
    #[command(subcommand, visible_alias = "str", alias = "s")]
    Stream(stream::StreamCommand),
    /// Manage consumers of streams
    #[command(subcommand, visible_alias = "con", alias = "c")]
    Consumer(consumer::ConsumerCommand),
    /// Use key-value buckets
    #[command(subcommand)]
    Kv(kv::KvCommand),
    /// Use object stores
    #[command(subcommand, visible_alias = "obj")]
    Object(object::ObjectCommand),
    /// Look at servers
    #[command(subcommand, visible_alias = "srv")]
    Server(server::ServerCommand),
    /// Look at the nodes of a cluster, and replace one
    #[command(subcommand)]
    Cluster(cluster::ClusterCommand),
    Top(top::TopArgs),
    /// Look at the account of the connection
    #[command(subcommand, visible_alias = "a")]
    Account(account::AccountCommand),
    #[command(visible_alias = "event")]
    Events(events::EventsArgs),
    Rtt(account::RttArgs),
    /// Manage contexts: named connection settings, shared with the nats command
    #[command(subcommand, visible_alias = "ctx")]
    Context(context::ContextCommand),
    Bench(BenchArgs),
    Doctor(doctor::DoctorArgs),
    #[command(subcommand)]
    Log(log::LogCommand),
    Completions(manual::CompletionsArgs),
    Man(manual::ManArgs),
    /// Explain the options of every command that talks to a server
    #[command(name = help::TOPIC, hide = true)]
    Connection,
}

fn main() -> ExitCode {
    if let Some(args) = serve::arguments(std::env::args_os()) {
        return serve::run(args);
    }
    // A shell that asks how a line goes on; ends the process.
    complete::answer(Cli::command);
    let matches = help::fold(Cli::command()).get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    // `serve` in the first place is taken care of above; here it follows options of ours.
    if let Command::Serve { args } = cli.command {
        return serve::run(args);
    }
    // What looks at files needs no server.
    let files = match &cli.command {
        Command::Doctor(args) => Some(doctor::run(args)),
        Command::Log(log::LogCommand::Inspect(args)) => Some(log::run(args)),
        _ => None,
    };
    if let Some(done) = files {
        return done.unwrap_or_else(|error| CliError::from(error).exit_code());
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
    // These need no server, so a context that is out of order does not matter to them.
    match &cli.command {
        Command::Context(command) => return context::run(command, &cli.connect),
        Command::Server(server::ServerCommand::Mapping(args)) => return server::mapping::run(args),
        Command::Log(log::LogCommand::Report(args)) if args.is_local() => {
            return log::report::run_local(args, &cli.connect);
        }
        Command::Cluster(cluster::ClusterCommand::ForceRecover(args)) => {
            return cluster::recover::run(args, cli.connect.json);
        }
        Command::Completions(args) => return manual::completions(args),
        Command::Man(args) => return manual::man(args, Cli::command()),
        Command::Connection => return Ok(write!(std::io::stdout(), "{}", help::options())?),
        _ => {}
    }
    if let Command::Bench(args) = &cli.command
        && let Some(words) = args.workbench()
    {
        return Err(bench::start_workbench(words));
    }
    let connect = cli.connect.resolve()?;
    match cli.command {
        Command::Pub(args) => publish::run(&args, &connect),
        Command::Sub(args) => subscribe::run(&args, &connect),
        Command::Request(args) => request::request(&args, &connect),
        Command::Reply(args) => request::reply(&args, &connect),
        Command::Stream(command) => stream::run(&command, &connect),
        Command::Consumer(command) => consumer::run(&command, &connect),
        Command::Kv(command) => kv::run(&command, &connect),
        Command::Object(command) => object::run(&command, &connect),
        Command::Server(command) => server::run(&command, &connect),
        Command::Cluster(command) => cluster::run(&command, &connect),
        Command::Top(args) => top::run(&args, &connect),
        Command::Account(command) => account::run(&command, &connect),
        Command::Events(args) => events::run(&args, &connect),
        Command::Rtt(args) => account::rtt(&args, &connect),
        Command::Log(log::LogCommand::Report(args)) => log::report::run(&args, &connect),
        Command::Bench(args) => bench::run(&args, &connect),
        Command::Serve { .. }
        | Command::Context(_)
        | Command::Doctor(_)
        | Command::Log(_)
        | Command::Completions(_)
        | Command::Man(_)
        | Command::Connection => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Every command but the first and the topic shows the options of the connection as one line, and
    /// takes them nevertheless.
    #[test]
    fn options_of_the_connection_are_explained_once() {
        let mut root = help::fold(Cli::command());
        root.build();
        let show = |path: &[&str]| {
            let start = root.clone();
            let at = |command: clap::Command, name: &&str| {
                command.find_subcommand(name).expect("a command").clone()
            };
            path.iter().fold(start, at).render_long_help().to_string()
        };
        for path in [&["stream", "info"][..], &["pub"], &["kv"], &["server", "report", "mem"]] {
            let text = show(path);
            assert!(text.contains("nuthatch help connection"), "{text}");
            assert!(text.contains("--json") && !text.contains("--tlscert"), "{text}");
        }
        assert!(!show(&["doctor"]).contains("nuthatch help connection"));
        let topic = show(&[help::TOPIC]);
        assert!(topic.contains("--tlscert") && topic.contains("NATS_CREDS"), "{topic}");
        let line = ["nuthatch", "stream", "info", "S", "--tlscert", "c.pem", "-s", "x:1"];
        let cli = Cli::from_arg_matches(&root.get_matches_from(line)).unwrap();
        assert_eq!(cli.connect.server, "x:1");
    }

    /// clap copies the value of a global option over an argument of the same name. With `json` that
    /// is what one wants: it means the same.
    #[test]
    fn no_argument_is_named_like_a_global_option() {
        let mut root = Cli::command();
        root.build();
        let names: Vec<String> = root
            .get_arguments()
            .filter(|arg| arg.is_global_set())
            .map(|arg| arg.get_id().to_string())
            .filter(|name| name != "json")
            .collect();
        check_names(&root, &names);
    }

    fn check_names(command: &clap::Command, names: &[String]) {
        for sub in command.get_subcommands() {
            let mut own = sub.get_arguments().filter(|arg| !arg.is_global_set());
            let clash = own.find(|arg| names.contains(&arg.get_id().to_string()));
            assert!(clash.is_none(), "{} has {clash:?}", sub.get_name());
            check_names(sub, names);
        }
    }
}
