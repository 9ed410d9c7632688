//! The command lines of `bench pubsub`, `bench partitions` and `bench log`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use nuthatch_object::RequestKind;

use super::log::{self, Counted, LogRow};
use super::partitions::{self, BODY_BYTES, Mapping, Partitions, Plan};
use super::pubsub::{self, PubSub, SHAPES, Shape};
use crate::compare;
use crate::harness::{BenchError, Target};
use crate::meter::Meter;
use crate::mq::cli::QueueArgs;
use crate::peers::objects;
use crate::process;
use crate::queue;
use crate::report::{RawLimit, thousands};
use crate::requests;
use crate::table::Table;
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::units::{parse_count, parse_duration, parse_number};

/// Publish to a topic and subscribe until the last message is received (seed 000)
///
/// The method of https://zilliz.com/blog/optimizing-data-communication-milvus-embraces-nats-messaging
/// (seed 000): shapes 5MB*100, 1MB*500, 64KB*10000 and 1KB*50000, each repeated. One sender, one
/// receiver that acknowledges. The sender awaits batches of up to 100 messages or 2 MiB.
#[derive(Debug, Clone, Args)]
#[command(verbatim_doc_comment)]
pub struct PubSubArgs {
    #[command(flatten)]
    queue: QueueArgs,
    /// Shapes, with commas (default: all)
    #[arg(long, value_delimiter = ',', value_parser = Shape::parse)]
    shapes: Vec<Shape>,
    /// Operations of each shape; the seed has 50
    #[arg(long, default_value_t = 50, value_parser = parse_count)]
    ops: usize,
    /// Process of the server, for its CPU and memory (default: found through the port of --server)
    #[arg(long)]
    server_pid: Option<u32>,
    /// Directory of the server's data, for the space it takes
    #[arg(long, value_name = "DIR")]
    server_dir: Option<PathBuf>,
}

/// Runs `bench pubsub` and returns what to print.
///
/// # Errors
/// When the queue fails or a message is lost.
pub fn run_pubsub(args: &PubSubArgs, connect: &ConnectArgs) -> Result<String, BenchError> {
    let spec = args.queue.spec(connect);
    let guarantee = queue::open(&spec)?.guarantee()?;
    let shapes = if args.shapes.is_empty() { &SHAPES[..] } else { &args.shapes };
    let server = args.server_pid.or_else(|| {
        let options = connect.options().ok()?;
        process::find_server(options.servers.first()?)
    });
    let mut table = Table::new(&PUBSUB_COLUMNS);
    let mut results = Vec::new();
    for shape in shapes {
        let meter = server.map(|pid| Meter::start(vec![pid]));
        let mut started = Instant::now();
        let result = pubsub::run(&spec, *shape, args.ops, || started = Instant::now())?;
        let ended = Instant::now();
        let used = meter.map(|meter| meter.finish().between(started, ended));
        let disk = args.server_dir.as_deref().map(crate::meter::disk_bytes);
        table.row(pubsub_cells(
            &result,
            used.map(|used| (used.peak_memory_bytes, used.cpu_s)),
            disk,
        ));
        results.push(result);
    }
    match connect.json {
        true => to_json(&results),
        false => Ok(format!("{}: {guarantee}\n\n{table}", spec.driver)),
    }
}

/// The columns of the seed's table, and order.
pub const PUBSUB_COLUMNS: [&str; 7] = [
    "Test type",
    "Op count",
    "Cost per op",
    "Memory cost",
    "CPU total time s",
    "Storage cost",
    "Out of order",
];

/// The cells of a result under [`PUBSUB_COLUMNS`].
pub fn pubsub_cells(
    result: &PubSub,
    server: Option<(u64, f64)>,
    disk_bytes: Option<u64>,
) -> Vec<String> {
    let unknown = || "unknown".to_owned();
    vec![
        format!("{} Pub/Sub", result.shape),
        result.operations.to_string(),
        format!("{:.6} s/op", result.seconds_per_op()),
        server.map_or_else(unknown, |(memory, _)| bytes(memory)),
        server.map_or_else(unknown, |(_, cpu)| format!("{cpu:.2}")),
        disk_bytes.map_or_else(unknown, bytes),
        result.reordered.to_string(),
    ]
}

/// A size for people, in units of 10^6 bytes.
pub fn bytes(count: u64) -> String {
    match count {
        0..1_000_000_000 => format!("{:.1} MB", count as f64 / 1e6),
        _ => format!("{:.2} GB", count as f64 / 1e9),
    }
}

/// Streams behind a deterministic partition of subjects (seed 001)
///
/// The method of https://natsbyexample.com/examples/jetstream/partitions/cli (seed 001): streams
/// events-0 … behind the mapping events.* -> events.{{wildcard(1)}}.{{partition(5,1)}}; messages
/// events.0, events.1, … of 128 bytes; one publisher synchronously, one with batches of 100, five
/// with batches of 100. Uses the server's mapping when it has one. Otherwise this client maps with
/// the same function, and the output says so. Every ack must come from the right stream.
#[derive(Debug, Clone, Args)]
#[command(verbatim_doc_comment)]
pub struct PartitionsArgs {
    /// Streams
    #[arg(long, default_value_t = 5)]
    partitions: u32,
    /// Messages of the phases with batches
    #[arg(long, default_value = "200k", value_parser = parse_number)]
    msgs: u64,
    /// Messages of the synchronous phase (default: the same)
    #[arg(long, value_parser = parse_number)]
    sync_msgs: Option<u64>,
}

/// Runs `bench partitions` and returns what to print.
///
/// # Errors
/// When the server cannot be reached or refuses.
pub fn run_partitions(args: &PartitionsArgs, connect: &ConnectArgs) -> Result<String, BenchError> {
    let target = Target {
        options: connect.options()?,
        server_pid: None,
        timeout: connect.timeout,
        watched: None,
    };
    let plan = Plan {
        partitions: args.partitions.max(1),
        messages: args.msgs,
        sync_messages: args.sync_msgs.unwrap_or(args.msgs),
    };
    let result = partitions::run(&target, plan)?;
    match connect.json {
        true => to_json(&result),
        false => Ok(partitions_text(&result)),
    }
}

/// What [`Mapping`] means, in words.
pub fn mapping_words(mapping: Mapping) -> &'static str {
    match mapping {
        Mapping::Server => "mapped by the server",
        Mapping::Client => "mapped by this client, because the server has no such mapping",
    }
}

fn partitions_text(result: &Partitions) -> String {
    let mut out = format!("Subjects {}; {BODY_BYTES} B\n\n", mapping_words(result.mapping));
    let mut table = Table::new(&[
        "Phase",
        "msgs/s",
        "min",
        "avg",
        "max",
        "stddev",
        "ack p50 µs",
        "ack p99 µs",
        "errors",
    ]);
    for phase in &result.phases {
        let mut cells = vec![phase.name.clone(), thousands(phase.per_s)];
        cells.extend(phase.spread().map(thousands));
        let latency = |pick: fn(&crate::report::LatencySummary) -> f64| {
            phase.ack_us.as_ref().map_or("–".to_owned(), |l| format!("{:.0}", pick(l)))
        };
        cells.extend([latency(|l| l.p50), latency(|l| l.p99), phase.errors.to_string()]);
        table.row(cells);
    }
    out += &table.to_string();
    for phase in &result.phases {
        out += &format!("\nStream report after: {}\n", phase.name);
        let mut table = Table::new(&["Stream", "Messages"]);
        for (partition, count) in phase.streams.iter().enumerate() {
            table.row(vec![format!("events-{partition}"), thousands(*count as f64)]);
        }
        out += &table.to_string();
        if let Some(error) = &phase.first_error {
            out += &format!("first error: {error}\n");
        }
    }
    out
}

/// One client, one log: throughput and latency beside the disk's own limit (seed 002)
///
/// The question of https://milvus.io/blog/we-replaced-kafka-pulsar-with-a-woodpecker-for-milvus.md
/// (seed 002): which part of what the storage can do is reached. The limit is that of writing and
/// syncing a file of this machine's disk, so the server must be on this machine and its data on
/// the same disk as --dir. For a server that keeps objects --objects measures puts of several sizes,
/// one and four at a time, and compares with the best of those. Bodies do not compress. Batches of
/// up to 1000 messages or 4 MiB are awaited one after the other; then single messages.
#[derive(Debug, Clone, Args)]
#[command(verbatim_doc_comment)]
pub struct LogArgs {
    #[command(flatten)]
    queue: QueueArgs,
    /// Body sizes, with commas
    #[arg(long, value_delimiter = ',', default_value = "128,1KiB,64KiB,1MiB", value_parser = parse_number)]
    sizes: Vec<u64>,
    /// Length of each measurement
    #[arg(long = "for", default_value = "10s", value_parser = parse_duration)]
    span: Duration,
    /// Directory for measuring the disk (default: the system's temporary one)
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Measure puts of objects too: into this bucket, with the name and password of
    /// AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or without a value into a MinIO of its own
    #[arg(long, value_name = "http://HOST:PORT/BUCKET", num_args = 0..=1)]
    objects: Option<Option<String>>,
    /// Monitoring port of the server, on this machine: prints what it asked of its bucket per million
    /// messages, with --objects
    #[arg(long, value_name = "PORT")]
    monitoring: Option<u16>,
    /// Streams that messages are spread over in turn
    #[arg(long, default_value = "1", value_parser = parse_number)]
    streams: u64,
}

/// Runs `bench log` and returns what to print.
///
/// # Errors
/// When the queue or the file fails.
pub fn run_log(args: &LogArgs, connect: &ConnectArgs) -> Result<String, BenchError> {
    let dir = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let mut limits = compare::raw_limits(&dir)?;
    if let Some(url) = &args.objects {
        limits.extend(objects::limits(&dir, url.as_deref())?);
    }
    let mut spec = args.queue.spec(connect);
    if args.streams > 1 {
        spec.settings.insert("streams".into(), args.streams.to_string());
    }
    let guarantee = queue::open(&spec)?.guarantee()?;
    let sizes: Vec<usize> = args.sizes.iter().map(|size| *size as usize).collect();
    let asked = || requests::requests(args.monitoring.unwrap_or_default(), requests::OUR_METRICS);
    let counted: Option<Counted<'_>> = args.monitoring.map(|_| &asked as Counted<'_>);
    let rows = log::run(&spec, &sizes, args.span, counted, || {})?;
    if connect.json {
        return to_json(&(limits, rows));
    }
    let mut out = format!("{}: {guarantee}\n\n{}\n", spec.driver, limits_table(&limits));
    let mut table = Table::new(&LOG_COLUMNS);
    let best = best_limit(&limits, args.objects.is_some());
    for row in &rows {
        table.row(log_cells(row, best));
    }
    out += &table.to_string();
    if args.monitoring.is_some() {
        out += &format!("\nRequests to the bucket per million messages\n\n{}", store_table(&rows));
    }
    Ok(out)
}

/// What each size cost a bucket.
fn store_table(rows: &[LogRow]) -> Table {
    let kinds = RequestKind::ALL.map(RequestKind::name);
    let mut table = Table::new(&[&["Body"][..], &kinds[..], &["all", "MB written"][..]].concat());
    for (row, (requests, messages)) in rows.iter().filter_map(|row| Some((row, row.store?))) {
        let (by_kind, all) = requests.per_million(messages);
        let mut cells = vec![crate::plot::short(row.bytes as f64) + " B"];
        cells.extend(by_kind.map(|count| format!("{count:.1}")));
        let written = requests.put_bytes as f64 / messages.max(1) as f64;
        cells.extend([format!("{all:.1}"), format!("{written:.1}")]);
        table.row(cells);
    }
    table
}

/// The columns of a log table.
pub const LOG_COLUMNS: [&str; 8] = [
    "Body",
    "Batch",
    "msgs/s",
    "MB/s",
    "of the storage's limit",
    "batch p50 / p99 ms",
    "single p50 µs",
    "single p99 µs",
];

/// The cells of a row under [`LOG_COLUMNS`]. `limit` is in MB/s.
pub fn log_cells(row: &LogRow, limit: Option<f64>) -> Vec<String> {
    let single = row.single_us.as_ref();
    let batch = row.batch_us.as_ref();
    let us = |value: Option<f64>| value.map_or("–".to_owned(), |us| format!("{us:.1}"));
    vec![
        crate::plot::short(row.bytes as f64) + " B",
        row.batch.to_string(),
        thousands(row.per_s),
        format!("{:.1}", row.mb_per_s),
        limit.map_or("–".into(), |limit| format!("{:.1} %", row.mb_per_s * 100.0 / limit)),
        batch.map_or("–".into(), |l| format!("{:.2} / {:.2}", l.p50 / 1e3, l.p99 / 1e3)),
        us(single.map(|l| l.p50)),
        us(single.map(|l| l.p99)),
    ]
}

/// The fastest way of writing and syncing, or of putting objects, that was measured, in MB/s.
pub fn best_limit(limits: &[RawLimit], objects: bool) -> Option<f64> {
    let kind = if objects { "objects:" } else { "disk:" };
    let mine = limits.iter().filter(|limit| limit.name.starts_with(kind));
    mine.filter_map(|limit| limit.mb_per_s).reduce(f64::max)
}

/// The limits for people.
pub fn limits_table(limits: &[RawLimit]) -> Table {
    let mut table = Table::new(&["Limit of this machine", "MB/s", "p50 µs", "p99 µs"]);
    let cell = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.0}"));
    for limit in limits {
        let numbers = [limit.mb_per_s, limit.p50_us, limit.p99_us].map(cell);
        table.row([vec![limit.name.clone()], numbers.to_vec()].concat());
    }
    table
}

fn to_json<T: serde::Serialize>(value: &T) -> Result<String, BenchError> {
    serde_json::to_string(value).map_err(|err| BenchError::Failed(err.to_string()))
}
