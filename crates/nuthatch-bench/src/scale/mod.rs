//! `bench scale`: does a server stay what it is when it holds much? Many streams, many subjects,
//! many idle consumers, many connections: memory, start time, and what a publish costs then,
//! against a server that holds one stream.
//!
//! The cost is CPU time, and instructions in user mode of all the server's threads where the kernel
//! counts them: these hardly depend on what else the machine does.

mod fill;
mod instructions;
mod pipeline;
mod table;

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use clap::Args;

use crate::compare::server::{Contender, Further, Server};
use crate::harness::{BenchError, Target};
use crate::process;
use fill::Preload;
use instructions::Instructions;
use nuthatch_client::units::{parse_count, parse_number};
use pipeline::Publishes;

pub(crate) use fill::raise_file_limit;
pub(crate) use pipeline::requests;

/// How long a filled server is left alone before its memory is read and its cost measured.
const SETTLE: Duration = Duration::from_secs(2);

/// Part of the messages of a round that is published before the first one, to warm caches up.
const WARM_UP_PART: u64 = 2;

/// Measure what a server costs that holds very much
#[derive(Debug, Clone, Args)]
pub struct ScaleArgs {
    /// The Nuthatch binary (default: this one)
    #[arg(long, value_name = "PATH")]
    nuthatch: Option<PathBuf>,
    /// Directory for the stores, on the disk to be measured
    #[arg(long, default_value = ".", value_name = "DIR")]
    dir: PathBuf,
    /// Streams, each with messages
    #[arg(long, default_value = "10k", value_parser = parse_number)]
    streams: u64,
    /// Subjects of one stream that keeps one message for each
    #[arg(long, default_value = "1M", value_parser = parse_number)]
    subjects: u64,
    /// Idle durable consumers, over ten streams
    #[arg(long, default_value = "100k", value_parser = parse_number)]
    consumers: u64,
    /// Connections with subscriptions
    #[arg(long, default_value = "10k", value_parser = parse_number)]
    connections: u64,
    /// Messages of a round of publishing
    #[arg(long, default_value = "200k", value_parser = parse_number)]
    msgs: u64,
    /// Rounds of publishing; the median counts
    #[arg(long, default_value_t = 5, value_parser = parse_count)]
    rounds: usize,
    /// Only these, with commas: streams, subjects, consumers, connections
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

/// Result of one kind of publishing.
#[derive(Debug, Clone)]
pub(crate) struct Cost {
    /// The target of the publishes.
    pub(crate) what: String,
    /// CPU time per publish in microseconds.
    pub(crate) cpu_us: f64,
    /// Instructions in user mode per publish, where they can be counted.
    pub(crate) instructions: Option<f64>,
}

/// Results of a server with such a content.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    /// Its content.
    pub(crate) holds: String,
    /// Resident memory in bytes: filled, and after a clean restart.
    pub(crate) memory_bytes: u64,
    pub(crate) restarted_bytes: Option<u64>,
    /// Time until the API answers: after a clean stop, and after it was killed.
    pub(crate) starts: Option<[Duration; 2]>,
    /// Costs of publishing.
    pub(crate) costs: Vec<Cost>,
}

/// Runs all that was asked for; returns a table.
///
/// # Errors
/// When a server does not start, refuses something, or loses something.
pub fn run(args: &ScaleArgs) -> Result<String, BenchError> {
    let command = crate::own::program(args.nuthatch.as_deref())?;
    let contender = Contender {
        name: "server".into(),
        command: vec![command, "serve".into()],
        sync_interval: None,
        slow_publish: false,
        further: Further::default(),
    };
    raise_file_limit();
    let mut found = vec![measure(args, &contender, &Preload::Nothing)?];
    for held in wanted(args)? {
        found.push(measure(args, &contender, &held)?);
    }
    Ok(table::render(&found))
}

fn wanted(args: &ScaleArgs) -> Result<Vec<Preload>, BenchError> {
    let all = [
        ("streams", Preload::Streams(args.streams)),
        ("subjects", Preload::Subjects(args.subjects)),
        ("consumers", Preload::Consumers(args.consumers)),
        ("connections", Preload::Connections(args.connections)),
    ];
    if let Some(unknown) = args.only.iter().find(|name| all.iter().all(|(n, _)| n != name)) {
        let names = all.map(|(name, _)| name).join(", ");
        return Err(BenchError::Usage(format!("{unknown:?} is none of {names}")));
    }
    let is_wanted = |name: &str| args.only.is_empty() || args.only.iter().any(|o| o == name);
    Ok(all.into_iter().filter(|(name, _)| is_wanted(name)).map(|(_, held)| held).collect())
}

fn measure(args: &ScaleArgs, contender: &Contender, held: &Preload) -> Result<Found, BenchError> {
    eprintln!("{}", held.title());
    let server = Server::start(contender, &args.dir)?;
    let target = server.target()?;
    let mut base = target.connect()?;
    fill::base_stream(&mut base, target.timeout)?;
    let connections = held.fill(&target)?;
    thread::sleep(SETTLE);
    let memory_bytes = resident(&server);
    let mut costs = Vec::new();
    for publishes in held.publishes() {
        costs.push(cost(args, &server, &target, &publishes)?);
    }
    let holds = held.title();
    if !connections.is_empty() {
        return Ok(Found { holds, memory_bytes, restarted_bytes: None, starts: None, costs });
    }
    drop(base);
    let server = server.restart(contender, false)?;
    held.check(&server.target()?)?;
    let clean = server.start_time;
    thread::sleep(SETTLE);
    let restarted_bytes = Some(resident(&server));
    let server = server.restart(contender, true)?;
    held.check(&server.target()?)?;
    let starts = Some([clean, server.start_time]);
    Ok(Found { holds, memory_bytes, restarted_bytes, starts, costs })
}

fn resident(server: &Server) -> u64 {
    process::usage(server.pid()).map_or(0, |usage| usage.rss_bytes)
}

/// Cost of a publish for the server: the median of the rounds.
fn cost(
    args: &ScaleArgs,
    server: &Server,
    target: &Target,
    publishes: &Publishes,
) -> Result<Cost, BenchError> {
    let mut client = target.connect()?;
    let mut run = |msgs| pipeline::publish(&mut client, publishes, msgs, target.timeout);
    run(args.msgs / WARM_UP_PART)?;
    let (mut cpu_us, mut instructions) = (Vec::new(), Vec::new());
    for _ in 0..args.rounds {
        let counter = Instructions::of_process(server.pid());
        let before = process::usage(server.pid()).unwrap_or_default();
        run(args.msgs)?;
        let after = process::usage(server.pid()).unwrap_or_default();
        let per_msg = |total: f64| total / args.msgs.max(1) as f64;
        cpu_us.push(per_msg(after.cpu.saturating_sub(before.cpu).as_secs_f64() * 1e6));
        instructions.extend(counter.and_then(|c| c.total()).map(|total| per_msg(total as f64)));
    }
    let what = publishes.title();
    let cost = Cost { what, cpu_us: median(&mut cpu_us), instructions: None };
    let instructions = (!instructions.is_empty()).then(|| median(&mut instructions));
    let cost = Cost { instructions, ..cost };
    eprintln!("  {cost:?}");
    Ok(cost)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
