//! The `bench` part of the command line: the load generator, and the names of the workbench's commands.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::driver::Driver;
use crate::harness::Target;
use crate::process;
use crate::report::{Plan, Report, RunReport, Watched};
use crate::workload::consumer::AckMode;
use crate::workload::core::{CorePub, CoreSub};
use crate::workload::js_batch::{BatchKind, JsBatch};
use crate::workload::js_pub::JsPub;
use crate::workload::js_read::{JsRead, ReadMode};
use crate::workload::request::RequestReply;
use crate::workload::stream::StreamPlan;
use nuthatch_client::Client;
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::units::{parse_count, parse_duration, parse_number};

pub use crate::harness::BenchError;

/// A durable consumer may have this many pulls' worth of messages unacknowledged by default, but
/// no fewer than JetStream's own default.
const ACK_PENDING_PULLS: u64 = 4;
const MIN_ACK_PENDING: u64 = 1000;

/// Commands of the program `nuthatch-bench`.
pub const WORKBENCH: [&str; 14] = [
    "catalog",
    "compare",
    "import",
    "latency",
    "log",
    "move",
    "mq",
    "objects",
    "partitions",
    "peers",
    "pubsub",
    "report",
    "run",
    "scale",
];

/// Measure a NATS server
///
/// The load generator is here. The workbench, which compares systems, is the program nuthatch-bench: its
/// commands (catalog, compare, import, latency, log, move, mq, objects, partitions, peers, pubsub, report,
/// run, scale) start it from beside this program, else from PATH. `cargo build --release -p nuthatch-bench`
/// builds it.
#[derive(Debug, Clone, Args)]
#[command(verbatim_doc_comment)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: BenchCommand,
}

impl BenchArgs {
    /// The words of a command that is not of the load generator: the workbench's, or nobody's.
    #[must_use]
    pub fn workbench(&self) -> Option<&[OsString]> {
        match &self.command {
            BenchCommand::Workbench(words) => Some(words),
            BenchCommand::Load(_) => None,
        }
    }
}

#[derive(Debug, Clone, Subcommand)]
enum BenchCommand {
    #[command(flatten)]
    Load(LoadCommand),
    #[command(external_subcommand)]
    Workbench(Vec<OsString>),
}

/// The load generator.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum LoadCommand {
    /// JetStream workloads
    #[command(subcommand)]
    Js(JsCommand),
    /// Publish without JetStream, with subscribers of our own or without
    Pub(CorePubArgs),
    /// Receive what somebody else publishes
    Sub(CoreSubArgs),
    /// Requests and replies, one at a time per client
    Request(RequestArgs),
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum JsCommand {
    /// Publish to a stream and check every ack
    Pub(JsPubArgs),
    /// Read with a durable consumer and overlapping pulls
    Consume(JsPullArgs),
    /// Read with a durable consumer, one fetch after the other
    Fetch(JsPullArgs),
    /// Read with an ordered consumer
    Ordered(JsOrderedArgs),
}

/// Options of every workload.
#[derive(Debug, Clone, Args)]
struct CommonArgs {
    /// Concurrent clients
    #[arg(long, default_value_t = 1, value_parser = parse_count)]
    clients: usize,
    /// Messages, such as 100000, 100k, 1M
    #[arg(long, default_value = "100k", value_parser = parse_number)]
    msgs: u64,
    /// Body size in bytes, such as 128, 64KiB, 1MiB
    #[arg(long, default_value = "128", value_parser = parse_number)]
    size: u64,
    /// Run this often and show smallest, median and largest
    #[arg(long, default_value_t = 1, value_parser = parse_count)]
    repeat: usize,
    /// Process of the server (default: found through the port, when it runs on this machine)
    #[arg(long)]
    server_pid: Option<u32>,
    /// Text for the report about the server's settings, such as its sync_interval
    #[arg(long, value_name = "TEXT")]
    sync_label: Option<String>,
}

/// Options about the stream.
#[derive(Debug, Clone, Args)]
struct StreamArgs {
    /// Stream name
    #[arg(long, default_value = "benchstream")]
    stream: String,
    /// Subject to publish to
    #[arg(long, default_value = "bench.js")]
    subject: String,
    /// Storage of a created stream
    #[arg(long, default_value = "file", value_parser = ["file", "memory"])]
    storage: String,
    /// Create the stream if it does not exist (the default)
    #[arg(long, overrides_with = "no_create")]
    create: bool,
    /// Use the stream as it is
    #[arg(long)]
    no_create: bool,
    /// Remove all messages before each run
    #[arg(long)]
    purge: bool,
    /// Which client library drives the workload
    #[arg(long, value_enum, default_value_t)]
    client: Driver,
}

impl StreamArgs {
    fn plan(&self) -> StreamPlan {
        StreamPlan {
            name: self.stream.clone(),
            subject: self.subject.clone(),
            storage: self.storage.clone(),
            create: !self.no_create,
            purge: self.purge,
            batches: false,
        }
    }
}

#[derive(Debug, Clone, Args)]
pub(crate) struct JsPubArgs {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    stream: StreamArgs,
    /// Wait for each ack before the next publish
    #[arg(long, conflicts_with = "async_")]
    sync: bool,
    /// Keep a window of unacknowledged publishes (the default)
    #[arg(long = "async")]
    async_: bool,
    /// Unacknowledged publishes per client
    #[arg(long, default_value_t = 500, value_parser = parse_count, conflicts_with = "sync")]
    batch: usize,
    /// Publish one fast batch per client (ADR-50); --batch is how many messages are on their way
    #[arg(long, conflicts_with_all = ["sync", "async_", "atomic"])]
    fast_batch: bool,
    /// Publish atomic batches (ADR-50) of --batch messages, at most 1000
    #[arg(long, conflicts_with_all = ["sync", "async_"])]
    atomic: bool,
}

impl JsPubArgs {
    /// The kind of batch, if batches are to be published.
    const fn kind(&self) -> Option<BatchKind> {
        match (self.fast_batch, self.atomic) {
            (true, _) => Some(BatchKind::Fast),
            (_, true) => Some(BatchKind::Atomic),
            (false, false) => None,
        }
    }
}

#[derive(Debug, Clone, Args)]
pub(crate) struct JsPullArgs {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    stream: StreamArgs,
    /// Messages per pull request
    #[arg(long, default_value_t = 500, value_parser = parse_count)]
    batch: usize,
    /// How to acknowledge
    #[arg(long, value_enum, default_value_t = AckMode::Explicit)]
    ack: AckMode,
    /// Name of the consumer, which is created anew and deleted afterwards
    #[arg(long, default_value = "bench")]
    consumer: String,
    /// Limit of unacknowledged deliveries (default: four pulls of every client, at least 1000)
    #[arg(long, value_parser = parse_number)]
    max_ack_pending: Option<u64>,
    /// Publish first what the stream lacks
    #[arg(long)]
    fill: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct JsOrderedArgs {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    stream: StreamArgs,
    /// Use an ephemeral pull consumer without acks instead of a push consumer with flow control
    #[arg(long)]
    pull: bool,
    /// Messages per pull request, with --pull
    #[arg(long, default_value_t = 500, value_parser = parse_count)]
    batch: usize,
    /// Publish first what the stream lacks
    #[arg(long)]
    fill: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct CorePubArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Subject to publish to
    #[arg(long, default_value = "bench.core")]
    subject: String,
    /// Subscribers of our own, each receiving everything
    #[arg(long, default_value_t = 0)]
    subs: usize,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct CoreSubArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Subject to subscribe to
    #[arg(long, default_value = "bench.core")]
    subject: String,
    /// Queue group
    #[arg(long, default_value = "")]
    queue: String,
    /// How long to wait for the first message
    #[arg(long, default_value = "1h", value_parser = parse_duration)]
    first_wait: Duration,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct RequestArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Subject of the requests
    #[arg(long, default_value = "bench.request")]
    subject: String,
    /// Responders of our own; 0 when somebody else answers
    #[arg(long, default_value_t = 1)]
    responders: usize,
}

/// Runs a command of the load generator and returns what to print.
///
/// # Errors
/// When the measurement cannot be made, or the command is not of the load generator.
pub fn run(
    args: &BenchArgs,
    connect: &ConnectArgs,
    watched: Option<&Arc<Watched>>,
) -> Result<String, BenchError> {
    match &args.command {
        BenchCommand::Load(command) => generate(command, &Setting { connect, watched }),
        BenchCommand::Workbench(words) => {
            let name = words.first().map_or_else(String::new, |word| word.display().to_string());
            Err(BenchError::Usage(format!("there is no command `bench {name}` in this program")))
        }
    }
}

/// Where a command runs.
#[derive(Clone, Copy)]
pub(crate) struct Setting<'a> {
    pub connect: &'a ConnectArgs,
    /// Who watches how far it is.
    pub watched: Option<&'a Arc<Watched>>,
}

/// As [`run`], for a command that is of the load generator.
pub(crate) fn generate(command: &LoadCommand, connect: &Setting<'_>) -> Result<String, BenchError> {
    match command {
        LoadCommand::Js(JsCommand::Pub(args)) => js_pub(args, connect),
        LoadCommand::Js(JsCommand::Consume(args)) => js_pull(args, ReadMode::Consume, connect),
        LoadCommand::Js(JsCommand::Fetch(args)) => js_pull(args, ReadMode::Fetch, connect),
        LoadCommand::Js(JsCommand::Ordered(args)) => js_ordered(args, connect),
        LoadCommand::Pub(args) => core_pub(args, connect),
        LoadCommand::Sub(args) => core_sub(args, connect),
        LoadCommand::Request(args) => request(args, connect),
    }
}

fn js_batch(
    args: &JsPubArgs,
    kind: BatchKind,
    connect: &Setting<'_>,
) -> Result<String, BenchError> {
    let name = match kind {
        BatchKind::Fast => "js pub fast batch",
        BatchKind::Atomic => "js pub atomic batches",
    };
    let plan = JsPub {
        stream: StreamPlan { batches: true, ..args.stream.plan() },
        msgs: args.common.msgs,
        size: args.common.size as usize,
        window: args.batch,
        clients: args.common.clients,
    };
    let details = Details {
        name: name.into(),
        driver: Driver::Lean,
        batch: Some(args.batch),
        latency_of: (kind == BatchKind::Atomic).then_some("commit"),
        readers: 1,
    };
    let workload = JsBatch { plan, kind };
    repeat(details, &args.common, connect, |target| workload.run(target))
}

fn js_pub(args: &JsPubArgs, connect: &Setting<'_>) -> Result<String, BenchError> {
    if let Some(kind) = args.kind() {
        return js_batch(args, kind, connect);
    }
    let window = if args.sync { 1 } else { args.batch };
    let workload = JsPub {
        stream: args.stream.plan(),
        msgs: args.common.msgs,
        size: args.common.size as usize,
        window,
        clients: args.common.clients,
    };
    let details = Details {
        name: if args.sync { "js pub sync".into() } else { "js pub async".into() },
        driver: args.stream.client,
        batch: (!args.sync).then_some(window),
        latency_of: Some("ack"),
        readers: 1,
    };
    let driver = details.driver;
    repeat(details, &args.common, connect, |target| driver.publish(&workload, target))
}

fn js_pull(args: &JsPullArgs, mode: ReadMode, connect: &Setting<'_>) -> Result<String, BenchError> {
    let common = &args.common;
    let default_pending = ACK_PENDING_PULLS * (args.batch * common.clients) as u64;
    let workload = JsRead {
        stream: args.stream.plan(),
        mode,
        ack: args.ack,
        consumer: args.consumer.clone(),
        msgs: common.msgs,
        batch: args.batch,
        max_ack_pending: args.max_ack_pending.unwrap_or(default_pending.max(MIN_ACK_PENDING)),
        clients: common.clients,
        fill: args.fill.then_some(common.size as usize),
    };
    let fetch = mode == ReadMode::Fetch;
    let what = if fetch { "fetch" } else { "consume" };
    let details = Details {
        name: format!("js {what}, ack {}", args.ack.policy()),
        driver: args.stream.client,
        batch: Some(args.batch),
        latency_of: fetch.then_some("fetch"),
        readers: 1,
    };
    let driver = details.driver;
    repeat(details, common, connect, |target| driver.read(&workload, target))
}

fn js_ordered(args: &JsOrderedArgs, connect: &Setting<'_>) -> Result<String, BenchError> {
    let workload = JsRead {
        stream: args.stream.plan(),
        mode: if args.pull { ReadMode::OrderedPull } else { ReadMode::OrderedPush },
        ack: AckMode::None,
        consumer: "bench_ordered".into(),
        msgs: args.common.msgs,
        batch: args.batch,
        max_ack_pending: MIN_ACK_PENDING,
        clients: args.common.clients,
        fill: args.fill.then_some(args.common.size as usize),
    };
    let details = Details {
        name: format!("js ordered {}", if args.pull { "pull" } else { "push" }),
        driver: args.stream.client,
        batch: args.pull.then_some(args.batch),
        latency_of: None,
        readers: args.common.clients as u64,
    };
    let driver = details.driver;
    repeat(details, &args.common, connect, |target| driver.read(&workload, target))
}

fn core_pub(args: &CorePubArgs, connect: &Setting<'_>) -> Result<String, BenchError> {
    let workload = CorePub {
        subject: args.subject.clone(),
        msgs: args.common.msgs,
        size: args.common.size as usize,
        clients: args.common.clients,
        subs: args.subs,
    };
    let name = match args.subs {
        0 => "pub".to_owned(),
        subs => format!("pub with {subs} subscriber(s), deliveries"),
    };
    repeat(Details::plain(name), &args.common, connect, |target| workload.run(target))
}

fn core_sub(args: &CoreSubArgs, connect: &Setting<'_>) -> Result<String, BenchError> {
    let workload = CoreSub {
        subject: args.subject.clone(),
        queue: args.queue.clone(),
        msgs: args.common.msgs,
        clients: args.common.clients,
        first_wait: args.first_wait,
    };
    repeat(Details::plain("sub".into()), &args.common, connect, |target| workload.run(target))
}

fn request(args: &RequestArgs, connect: &Setting<'_>) -> Result<String, BenchError> {
    let workload = RequestReply {
        subject: args.subject.clone(),
        msgs: args.common.msgs,
        size: args.common.size as usize,
        clients: args.common.clients,
        responders: args.responders,
    };
    let details = Details { latency_of: Some("round trip"), ..Details::plain("request".into()) };
    repeat(details, &args.common, connect, |target| workload.run(target))
}

/// What the headline of a report says beyond the common options.
struct Details {
    name: String,
    driver: Driver,
    batch: Option<usize>,
    latency_of: Option<&'static str>,
    /// How often each message counts.
    readers: u64,
}

impl Details {
    fn plain(name: String) -> Self {
        Self { name, driver: Driver::Lean, batch: None, latency_of: None, readers: 1 }
    }
}

fn repeat(
    details: Details,
    common: &CommonArgs,
    setting: &Setting<'_>,
    run: impl Fn(&Target) -> Result<RunReport, BenchError>,
) -> Result<String, BenchError> {
    let Setting { connect, watched } = *setting;
    let options = connect.options()?;
    let probe = Client::connect(&options)?;
    let server_pid = common.server_pid.or_else(|| process::find_server(probe.server()));
    let version = probe.info().version.to_string();
    drop(probe);
    let watched = watched.cloned();
    let target = Target { options, server_pid, timeout: connect.timeout, watched };
    let once = |_| {
        if let Some(watched) = &target.watched {
            watched.begin(common.msgs * details.readers);
        }
        run(&target)
    };
    let runs: Result<Vec<_>, _> = (0..common.repeat).map(once).collect();
    let plan = Plan {
        workload: details.name,
        client: details.driver.name(),
        label: common.sync_label.clone(),
        clients: common.clients,
        size_bytes: common.size as usize,
        batch: details.batch,
        latency_of: details.latency_of,
    };
    let report = Report::new(plan, version, runs?);
    if connect.json {
        serde_json::to_string(&report).map_err(|err| BenchError::Failed(err.to_string()))
    } else {
        Ok(report.to_text())
    }
}
