//! The command line of `bench mq`.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::metrics::Metrics;
use super::node::{NodeReport, Role};
use super::processes::{self, NodeOrder, RunPlan, Setting};
use super::result::MqResult;
use super::stamp::{MESSAGE_CHARS, unix_ns};
use crate::harness::BenchError;
use crate::queue::{self, QueueSpec};
use crate::table::Table;
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::units::{parse_count, parse_duration};

/// Queues by the mqperf method (seed 004): at-least-once throughput and latency
///
/// Sender and receiver nodes are processes with threads; batches of random size 1 to 10 from a
/// pool of 10,000 generated messages of 100 characters, which carry their time; receivers receive,
/// then acknowledge. After https://softwaremill.com/mqperf/ (seed 004).
#[derive(Debug, Clone, Args)]
#[command(verbatim_doc_comment)]
pub struct MqArgs {
    #[command(subcommand)]
    command: MqCommand,
}

#[derive(Debug, Clone, Subcommand)]
enum MqCommand {
    /// Run a matrix of settings on this machine
    Run(RunArgs),
    /// Be one node, for runs over several hosts; prints a report for `merge`
    Node(NodeArgs),
    /// Put the reports of nodes together
    Merge(MergeArgs),
}

/// Which queue.
#[derive(Debug, Clone, Args)]
pub struct QueueArgs {
    /// What to drive: nats, redis, postgres, rabbitmq, kafka or program, as far as this build has
    /// them
    #[arg(long, default_value = "nats")]
    driver: String,
    /// Address in the form of the driver's client (default: --server)
    #[arg(long)]
    url: Option<String>,
    /// Name of the topic, stream or table, which is made anew
    #[arg(long, default_value = "benchmq")]
    topic: String,
    /// A setting of the driver, such as partitions=16, or fsync=TEXT for the report
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_setting)]
    set: Vec<(String, String)>,
}

fn parse_setting(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or(format!("{text:?} is not KEY=VALUE"))?;
    Ok((key.to_owned(), value.to_owned()))
}

impl QueueArgs {
    /// The queue these options describe.
    pub fn spec(&self, connect: &ConnectArgs) -> QueueSpec {
        QueueSpec {
            driver: self.driver.clone(),
            url: self.url.clone().unwrap_or_else(|| connect.server.clone()),
            name: self.topic.clone(),
            settings: self.set.iter().cloned().collect::<BTreeMap<_, _>>(),
        }
    }
}

/// The course of a run.
#[derive(Debug, Clone, Args)]
struct CourseArgs {
    /// Not measured
    #[arg(long, default_value = "5s", value_parser = parse_duration)]
    warmup: Duration,
    /// Length of a window
    #[arg(long, default_value = "1m", value_parser = parse_duration)]
    window: Duration,
    /// Windows, up to 120
    #[arg(long, default_value_t = 1)]
    windows: u32,
    /// Receivers end after receiving nothing for this long
    #[arg(long, default_value = "1m", value_parser = parse_duration)]
    idle: Duration,
    /// But not later than this after the last window
    #[arg(long, default_value = "10m", value_parser = parse_duration)]
    drain: Duration,
    /// Batches have 1 to this many messages
    #[arg(long, default_value_t = 10, value_parser = parse_count)]
    batch: usize,
    /// Characters of a message, at least 40
    #[arg(long, default_value_t = MESSAGE_CHARS)]
    size: usize,
    /// Open loop: messages per second over all senders (default: closed loop, each sender as fast
    /// as it gets answers). Latencies count from when a message was due
    #[arg(long)]
    rate: Option<f64>,
}

impl CourseArgs {
    fn plan(&self) -> RunPlan {
        RunPlan {
            warmup: self.warmup,
            window: self.window,
            windows: self.windows,
            idle: self.idle,
            drain_limit: self.drain,
            batch: self.batch,
            size: self.size,
            rate: self.rate,
        }
    }
}

#[derive(Debug, Clone, Args)]
struct RunArgs {
    #[command(flatten)]
    queue: QueueArgs,
    #[command(flatten)]
    course: CourseArgs,
    /// Settings as THREADS:SENDERS:RECEIVERS, with commas; 200/5 are different threads for senders
    /// and receivers
    #[arg(long, value_delimiter = ',', default_value = "1:1:2,5:1:2", value_parser = Setting::parse)]
    matrix: Vec<Setting>,
    /// Node n serves Prometheus metrics on 127.0.0.1 at this port plus n
    #[arg(long, value_name = "PORT")]
    metrics_port: Option<u16>,
}

#[derive(Debug, Clone, Args)]
struct NodeArgs {
    #[command(flatten)]
    queue: QueueArgs,
    #[command(flatten)]
    course: CourseArgs,
    /// Send or receive
    #[arg(long, value_enum, default_value_t = Role::Sender)]
    role: Role,
    /// Number of this node, different for all of its role
    #[arg(long, default_value_t = 0)]
    node: u32,
    /// Threads
    #[arg(long, default_value_t = 1, value_parser = parse_count)]
    threads: usize,
    /// Make the queue anew first; one node of a run does this, before the others
    #[arg(long)]
    prepare: bool,
    /// When all nodes start, in seconds since 1970 (default: now). Clocks of the hosts must agree
    #[arg(long, value_name = "SECONDS")]
    start_at: Option<u64>,
    /// Serve Prometheus metrics here
    #[arg(long, value_name = "HOST:PORT")]
    metrics: Option<String>,
    /// Read everything but --metrics as JSON from a file, `-` for standard input
    #[arg(long, value_name = "FILE", hide = true)]
    order: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
struct MergeArgs {
    /// Reports that `node` printed
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

/// Runs `bench mq` and returns what to print.
///
/// # Errors
/// When the queue cannot be used.
pub fn run(args: &MqArgs, connect: &ConnectArgs) -> Result<String, BenchError> {
    match &args.command {
        MqCommand::Run(args) => run_matrix(args, connect),
        MqCommand::Node(args) => run_node(args, connect),
        MqCommand::Merge(args) => merge(args, connect),
    }
}

fn run_matrix(args: &RunArgs, connect: &ConnectArgs) -> Result<String, BenchError> {
    let spec = args.queue.spec(connect);
    let guarantee = queue::open(&spec)?.guarantee()?;
    let mut results = Vec::new();
    for setting in &args.matrix {
        let (nodes, _) = processes::run(args.metrics_port, &spec, setting, &args.course.plan())?;
        results.push(MqResult::of(&nodes));
    }
    if connect.json {
        return to_json(&results);
    }
    Ok(format!("{}: {guarantee}\n\n{}", spec.driver, table(&results)))
}

fn run_node(args: &NodeArgs, connect: &ConnectArgs) -> Result<String, BenchError> {
    let metrics = Metrics::default();
    if let Some(address) = &args.metrics {
        let what = format!("cannot serve metrics on {address}");
        metrics.serve(address).map_err(|source| BenchError::File { what, source })?;
    }
    let order = match &args.order {
        Some(path) => read_order(path)?,
        None => own_order(args, connect)?,
    };
    to_json(&order.run(&metrics)?)
}

fn own_order(args: &NodeArgs, connect: &ConnectArgs) -> Result<NodeOrder, BenchError> {
    let queue = args.queue.spec(connect);
    if args.prepare {
        queue::open(&queue)?.prepare()?;
    }
    let start_ns = args.start_at.map_or_else(unix_ns, |seconds| seconds * 1_000_000_000);
    Ok(NodeOrder {
        queue,
        schedule: args.course.plan().schedule_from(start_ns),
        role: args.role,
        node: args.node,
        threads: args.threads,
        batch: args.course.batch,
        size: args.course.size,
        rate: args.course.rate,
    })
}

fn read_order(path: &PathBuf) -> Result<NodeOrder, BenchError> {
    let mut text = String::new();
    let read = match path.to_str() {
        Some("-") => std::io::stdin().read_to_string(&mut text).map(drop),
        _ => fs::read_to_string(path).map(|read| text = read),
    };
    let what = format!("cannot read {}", path.display());
    read.map_err(|source| BenchError::File { what, source })?;
    serde_json::from_str(&text).map_err(|err| BenchError::Usage(format!("the order: {err}")))
}

fn merge(args: &MergeArgs, connect: &ConnectArgs) -> Result<String, BenchError> {
    let mut nodes: Vec<NodeReport> = Vec::new();
    for path in &args.files {
        let what = format!("cannot read {}", path.display());
        let text = fs::read_to_string(path).map_err(|source| BenchError::File { what, source })?;
        let node = serde_json::from_str(&text)
            .map_err(|err| BenchError::Usage(format!("{}: {err}", path.display())))?;
        nodes.push(node);
    }
    let result = MqResult::of(&nodes);
    if connect.json { to_json(&result) } else { Ok(table(&[result])) }
}

fn to_json<T: serde::Serialize>(value: &T) -> Result<String, BenchError> {
    serde_json::to_string(value).map_err(|err| BenchError::Failed(err.to_string()))
}

/// The columns of the seed's table, and what it leaves out.
pub const COLUMNS: [&str; 9] = [
    "Threads",
    "Sender nodes",
    "Receiver nodes",
    "Send msgs/s",
    "Receive msgs/s",
    "Processing latency p95 ms",
    "Send latency p95 ms",
    "Client µs CPU/msg",
    "Faults",
];

/// The cells of a result under [`COLUMNS`].
pub fn cells(result: &MqResult) -> Vec<String> {
    let mut cells = result.seed_row();
    cells.push(format!("{:.1}", result.client_cpu_us_per_msg));
    let faults = result.faults();
    cells.push(if faults.is_empty() { "none".into() } else { faults });
    cells
}

fn table(results: &[MqResult]) -> String {
    let mut table = Table::new(&COLUMNS);
    for result in results {
        table.row(cells(result));
    }
    table.to_string()
}
