//! The command line of `bench peers`.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde_json::json;

use super::{PEERS, Peer, Running};
use crate::harness::BenchError;
use crate::queue::{self, DRIVERS};
use crate::table::Table;
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::units::parse_duration;

/// How often a running peer is looked after.
const POLL: Duration = Duration::from_millis(100);

/// Other systems to compare with: what is installed, how to get the rest, and run one
#[derive(Debug, Clone, Args)]
pub struct PeersArgs {
    #[command(subcommand)]
    command: Option<PeersCommand>,
}

#[derive(Debug, Clone, Subcommand)]
enum PeersCommand {
    /// List them (the default)
    List,
    /// Run one on the loopback interface in a temporary directory until Ctrl-C, then remove it
    Up(UpArgs),
}

#[derive(Debug, Clone, Args)]
struct UpArgs {
    /// Its name in the list
    name: String,
    /// End it after this long
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    limit: Option<Duration>,
    /// Directory for its data (default: the system's temporary one)
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Runs `bench peers` and returns what to print.
///
/// # Errors
/// When a peer does not start.
pub fn run(args: &PeersArgs, connect: &ConnectArgs) -> Result<String, BenchError> {
    match &args.command {
        None | Some(PeersCommand::List) => Ok(list(connect.json)),
        Some(PeersCommand::Up(args)) => up(args),
    }
}

fn list(as_json: bool) -> String {
    if as_json {
        let peer = |peer: &Peer| {
            let version = version(peer);
            json!({ "name": peer.name, "what": peer.what, "installed": version.is_some(),
                "version": version, "driver": peer.driver, "driver_built": driver_built(peer),
                "package": peer.package, "licence": peer.licence, "config": peer.config })
        };
        return serde_json::Value::from_iter(PEERS.iter().map(peer)).to_string();
    }
    let mut table = Table::new(&["Peer", "Installed", "What", "How it starts", "Package"]);
    let mut missing = Vec::new();
    for peer in PEERS {
        let found = version(peer).unwrap_or_else(|| "no".into());
        let cells = [peer.name, &found, peer.what, peer.config, peer.package];
        table.row(cells.map(str::to_owned).to_vec());
        if !driver_built(peer) && !missing.contains(&peer.driver) {
            missing.push(peer.driver);
        }
    }
    let mut text = table.to_string();
    if !missing.is_empty() {
        text += &format!(
            "\nThis build lacks the drivers {}; build with `cargo build --release -p nuthatch-bench \
             --features peers`, or with the features of the same names.\n",
            missing.join(", ")
        );
    }
    text
}

/// Its version when it is installed; a program that does not tell is "yes".
pub fn version(peer: &Peer) -> Option<String> {
    let program = (peer.find)()?;
    Some((peer.version)(&program).unwrap_or_else(|| "yes".into()))
}

/// True if this build can speak to it.
pub fn driver_built(peer: &Peer) -> bool {
    DRIVERS.iter().any(|driver| driver.name == peer.driver && driver.built)
}

/// Set by the handler of SIGINT and SIGTERM.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn interrupted(_signal: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

fn up(args: &UpArgs) -> Result<String, BenchError> {
    let peer = Peer::named(&args.name)?;
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let handler = interrupted as extern "C" fn(libc::c_int);
        // SAFETY: the handler only stores into an atomic.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
    let base = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let mut running = Running::start(peer, &base)?;
    let guarantee = match driver_built(peer) {
        true => queue::open(&running.spec("probe"))?.guarantee()?.to_string(),
        false => "this build cannot ask it".into(),
    };
    eprintln!("{} is up: {} ({guarantee})", peer.name, running.url);
    let settings: Vec<String> =
        peer.settings.iter().map(|(k, v)| format!("--set '{k}={v}'")).collect();
    eprintln!(
        "measure it with: nuthatch bench mq run --driver {} --url '{}' {}",
        peer.driver,
        running.url,
        settings.join(" ")
    );
    let started = Instant::now();
    while !INTERRUPTED.load(Ordering::Relaxed) && args.limit.is_none_or(|l| started.elapsed() < l) {
        if !running.is_alive() {
            return Err(BenchError::Failed(format!("{} has ended by itself", peer.name)));
        }
        thread::sleep(POLL);
    }
    drop(running);
    Ok(format!("{} is down and its directory removed\n", peer.name))
}
