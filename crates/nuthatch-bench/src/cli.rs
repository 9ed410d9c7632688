//! The `bench` part of the command line.

use std::time::Duration;

use clap::{Args, Subcommand};

use crate::client::{ConnectOptions, Credentials};
use crate::harness::Target;
use crate::process;
use crate::report::{Plan, Report, RunReport};
use crate::workload::js_pub::JsPub;
use crate::workload::stream::StreamPlan;

pub use crate::harness::BenchError;

/// How to reach a server; shared by all client commands.
#[derive(Debug, Clone, Args)]
pub struct ConnectArgs {
    /// Server address: nats://[user:pass@]host:port, several separated by commas
    #[arg(long, short, global = true, env = "NATS_URL", default_value = "nats://127.0.0.1:4222")]
    pub server: String,
    /// User name
    #[arg(long, global = true, env = "NATS_USER")]
    pub user: Option<String>,
    /// Password
    #[arg(long, global = true, env = "NATS_PASSWORD", hide_env_values = true)]
    pub password: Option<String>,
    /// Token
    #[arg(long, global = true, env = "NATS_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// How long to wait for an answer, such as 500ms, 5s, 1m
    #[arg(long, global = true, default_value = "5s", value_parser = parse_duration)]
    pub timeout: Duration,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
}

impl ConnectArgs {
    /// Options for the lean client.
    ///
    /// # Errors
    /// When an address is unusable.
    pub fn options(&self) -> Result<ConnectOptions, BenchError> {
        let mut options =
            ConnectOptions::new(&self.server).map_err(|err| BenchError::Usage(err.to_string()))?;
        options.timeout = self.timeout;
        options.credentials = Credentials {
            user: self.user.clone(),
            password: self.password.clone(),
            token: self.token.clone(),
        };
        Ok(options)
    }
}

/// Measure a NATS server
#[derive(Debug, Clone, Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Debug, Clone, Subcommand)]
enum BenchCommand {
    /// JetStream workloads
    #[command(subcommand)]
    Js(JsCommand),
}

#[derive(Debug, Clone, Subcommand)]
enum JsCommand {
    /// Publish to a stream and check every ack
    Pub(JsPubArgs),
}

/// Options of every workload.
#[derive(Debug, Clone, Args)]
struct CommonArgs {
    /// Concurrent clients
    #[arg(long, default_value_t = 1, value_parser = parse_count)]
    clients: usize,
    /// Messages over all clients, such as 100000, 100k, 1M
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
}

impl StreamArgs {
    fn plan(&self) -> StreamPlan {
        StreamPlan {
            name: self.stream.clone(),
            subject: self.subject.clone(),
            storage: self.storage.clone(),
            create: !self.no_create,
            purge: self.purge,
        }
    }
}

#[derive(Debug, Clone, Args)]
struct JsPubArgs {
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
}

/// Runs a `bench` command and returns what to print.
///
/// # Errors
/// When the measurement cannot be made.
pub fn run(args: &BenchArgs, connect: &ConnectArgs) -> Result<String, BenchError> {
    match &args.command {
        BenchCommand::Js(JsCommand::Pub(args)) => js_pub(args, connect),
    }
}

fn js_pub(args: &JsPubArgs, connect: &ConnectArgs) -> Result<String, BenchError> {
    let window = if args.sync { 1 } else { args.batch };
    let workload = JsPub {
        stream: args.stream.plan(),
        msgs: args.common.msgs,
        size: args.common.size as usize,
        window,
        clients: args.common.clients,
    };
    let name = if args.sync { "js pub sync" } else { "js pub async" };
    let details = Details { batch: (!args.sync).then_some(window), latency_of: Some("ack") };
    repeat(name, &args.common, connect, &details, |target| workload.run(target))
}

/// What the headline of a report says beyond the common options.
struct Details {
    batch: Option<usize>,
    latency_of: Option<&'static str>,
}

fn repeat(
    name: &str,
    common: &CommonArgs,
    connect: &ConnectArgs,
    details: &Details,
    run: impl Fn(&Target) -> Result<RunReport, BenchError>,
) -> Result<String, BenchError> {
    let options = connect.options()?;
    let probe = crate::client::Client::connect(&options)?;
    let server_pid = common.server_pid.or_else(|| process::find_server(probe.server()));
    let version = probe.info().version.clone();
    drop(probe);
    let target = Target { options, server_pid, timeout: connect.timeout };
    let runs: Result<Vec<_>, _> = (0..common.repeat).map(|_| run(&target)).collect();
    let plan = Plan {
        workload: name.to_owned(),
        client: "lean",
        label: common.sync_label.clone(),
        clients: common.clients,
        size_bytes: common.size as usize,
        batch: details.batch,
        latency_of: details.latency_of,
    };
    let report = Report::new(plan, version, runs?);
    if connect.json {
        serde_json::to_string(&report).map_err(|err| BenchError::Usage(err.to_string()))
    } else {
        Ok(report.to_text())
    }
}

/// A count of at least one.
fn parse_count(text: &str) -> Result<usize, String> {
    match parse_number(text)? {
        0 => Err("must be at least 1".into()),
        count => usize::try_from(count).map_err(|err| err.to_string()),
    }
}

/// A number with an optional unit: `k`, `M`, `G` (1000) or `KiB`, `MiB`, `GiB` (1024).
///
/// # Errors
/// In words for the user.
pub fn parse_number(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits_end = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_end);
    let number: u64 = digits
        .replace('_', "")
        .parse()
        .map_err(|_| format!("{text:?} is no number such as 100000, 100k or 64KiB"))?;
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        "ki" | "kib" => 1 << 10,
        "mi" | "mib" => 1 << 20,
        "gi" | "gib" => 1 << 30,
        "ti" | "tib" => 1 << 40,
        other => return Err(format!("unknown unit {other:?}; use k, M, G, KiB, MiB or GiB")),
    };
    number.checked_mul(factor).ok_or_else(|| format!("{text} is too large"))
}

/// A duration: a number with `ns`, `us`, `ms`, `s`, `m`, `h` or `d`, several in a row allowed
/// (`1h30m`), fractions too (`1.5s`); a bare number means seconds.
///
/// # Errors
/// In words for the user.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is no duration such as 500ms, 5s, 1h30m or 7d");
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(bad());
    }
    let mut seconds = 0f64;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number: f64 = rest[..end].parse().map_err(|_| bad())?;
        let after = &rest[end..];
        let unit_end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let factor = match &after[..unit_end] {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "" | "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return Err(bad()),
        };
        seconds += number * factor;
        rest = &after[unit_end..];
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_units() {
        for (text, number) in [("7", 7), ("10k", 10_000), ("64KiB", 65_536), ("1_000", 1000)] {
            assert_eq!(parse_number(text), Ok(number));
        }
        for text in ["", "k", "1x", "-1", "99999999999G"] {
            assert!(parse_number(text).is_err(), "{text}");
        }
        assert!(parse_count("0").is_err());
    }

    #[test]
    fn durations() {
        for (text, ms) in [("5s", 5000), ("500ms", 500), ("1h30m", 5_400_000), ("2", 2000)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)));
        }
        for text in ["", "s", "5x", "-1s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
