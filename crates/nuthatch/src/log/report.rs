//! `nuthatch log report`: what logs hold, how durable they are, and what their buckets cost.

use crate::doctor::{
    DEFAULT_LOG, KeyArgs, LogLocation, in_bucket, in_directory, logs_under, open_preview,
};
use crate::error::CliError;
use crate::server::source::{Source, SourceArgs};
use crate::session::print;
use crate::show::{self, Table, number};
use clap::Args;
use nuthatch_client::connect::ConnectArgs;
use nuthatch_log::env::OverlayDisk;
use nuthatch_log::{Chain, Disk, Keys};
use nuthatch_object::MovedAway;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

/// Kinds of requests, as stores bill them.
const KINDS: [&str; 5] = ["put", "get", "head", "list", "delete"];

/// Show what each log holds, where, how durable, and what its bucket costs
///
/// Asks a running server: through the system account, or its monitoring port (--monitor). With a
/// directory or a bucket, shows what is stored there instead; counts of requests are a server's.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// A server's store directory (-sd), or the directory of one log, instead of a running server
    #[arg(conflicts_with_all = ["store", "monitor"])]
    dir: Option<PathBuf>,
    /// A bucket instead: s3://bucket/prefix, gs://, az://, file:///shared/dir (the server's --store)
    #[arg(long, value_name = "ADDRESS", conflicts_with = "monitor")]
    store: Option<String>,
    /// With --store: the log's name
    #[arg(long = "log", value_name = "NAME", default_value = DEFAULT_LOG, requires = "store")]
    log_name: String,
    #[command(flatten)]
    keys: KeyArgs,
    #[command(flatten)]
    source: SourceArgs,
}

impl ReportArgs {
    /// True if it is about files, not about a server.
    pub const fn is_local(&self) -> bool {
        self.dir.is_some() || self.store.is_some()
    }
}

/// Reports on the logs of running servers.
///
/// # Errors
/// No server answers.
pub fn run(args: &ReportArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut source = Source::open(&args.source, connect)?;
    let options = match &source {
        Source::System(_) => json!({ "logs": true }),
        Source::Http { .. } => json!({ "logs": 1 }),
    };
    let mut servers = Vec::new();
    for answer in source.ask("jsz", &options)? {
        if answer.data["logs"].is_array() {
            servers.push(json!({ "server": answer.server, "logs": answer.data["logs"] }));
        } else if answer.data["disabled"] != true {
            let text = format!("server {} does not tell about its logs", answer.server);
            return Err(CliError::Failed(text));
        }
    }
    print(connect.json, &Value::from(servers.clone()), || {
        servers.iter().map(|server| text_of(&server["server"], &server["logs"])).collect()
    })
}

fn text_of(server: &Value, logs: &Value) -> String {
    let logs: Vec<&Value> = logs.as_array().into_iter().flatten().collect();
    let mut out = format!("Logs of {}\n\n{}", show::text(server), contents(&logs));
    let stores: Vec<&&Value> = logs.iter().filter(|log| log["store"].is_object()).collect();
    if !stores.is_empty() {
        let _ = write!(out, "\nRequests to their buckets since the start\n\n{}", requests(&stores));
        let _ = write!(out, "\nWhat is kept here of the buckets\n\n{}", caches(&stores));
    }
    let tiers: Vec<&&Value> = logs.iter().filter(|log| log["tier"].is_object()).collect();
    if !tiers.is_empty() {
        let _ =
            write!(out, "\nSegments in the bucket behind a local log\n\n{}", tier_table(&tiers));
    }
    for tier in tiers {
        if let Some(trouble) = show::some_text(&tier["tier"]["trouble"]) {
            let name = show::text(&tier["name"]);
            let _ = write!(out, "\nNothing moves from {name} for now: {trouble}\n");
        }
    }
    out
}

fn contents(logs: &[&Value]) -> String {
    let titles = [
        "Log",
        "Mode",
        "Home",
        "Durable by",
        "State",
        "Segments",
        "Bytes",
        "Live",
        "Dead",
        "Frames",
        "Records",
        "Tail cache",
        "Block cache",
    ];
    let mut table = Table::new(&titles);
    for log in logs {
        let size = |key: &str| show::bytes(number(&log[key]));
        let count = |key: &str| show::count(number(&log[key]));
        let state = match (log["failed"] == true, number(&log["space_state"])) {
            (true, _) => "stopped",
            (false, 0) => "ok",
            (false, 1) => "nearly full",
            (false, _) => "full",
        };
        table.row(vec![
            show::text(&log["name"]),
            show::text(&log["mode"]),
            show::text(&log["home"]),
            show::text(&log["durability"]),
            state.to_owned(),
            count("segments"),
            size("segment_bytes"),
            size("live_bytes"),
            size("dead_bytes"),
            count("frames"),
            count("records"),
            show::bytes(number(&log["caches"]["tail_bytes"])),
            show::bytes(number(&log["caches"]["block_bytes"])),
        ]);
    }
    table.render()
}

/// Requests by kind, and what a million records have cost.
fn requests(logs: &[&&Value]) -> String {
    let mut titles = vec!["Log"];
    titles.extend(KINDS);
    titles.extend(["repeated", "written", "read", "requests/M records", "bytes/record"]);
    let mut table = Table::new(&titles);
    for log in logs {
        let store = &log["store"];
        let of = |kind: &str| number(&store["requests"][kind]);
        let mut row = vec![show::text(&log["name"])];
        row.extend(KINDS.iter().map(|kind| show::count(of(kind))));
        row.push(show::count(number(&store["retries"])));
        row.push(show::bytes(number(&store["put_bytes"])));
        row.push(show::bytes(number(&store["get_bytes"])));
        let records = number(&log["records"]);
        let total: u64 = KINDS.iter().map(|kind| of(kind)).sum();
        row.push(per(total, records, 1e6));
        row.push(per(number(&store["put_bytes"]), records, 1.0));
        table.row(row);
    }
    table.render()
}

fn per(what: u64, records: u64, unit: f64) -> String {
    if records == 0 {
        "–".to_owned()
    } else {
        format!("{:.1}", what as f64 / records as f64 * unit)
    }
}

fn caches(logs: &[&&Value]) -> String {
    let titles = ["Log", "Memory", "of", "Disk", "of", "found in memory", "on disk", "asked for"];
    let mut table = Table::new(&titles);
    for log in logs {
        let cache = &log["store_cache"];
        let size = |key: &str| show::bytes(number(&cache[key]));
        let (hits, misses) = (number(&cache["hits"]), number(&cache["misses"]));
        table.row(vec![
            show::text(&log["name"]),
            size("bytes"),
            size("max_bytes"),
            size("disk_bytes"),
            size("disk_max_bytes"),
            show::count(hits),
            show::count(number(&cache["disk_hits"])),
            show::count(hits + misses),
        ]);
    }
    table.render()
}

fn tier_table(logs: &[&&Value]) -> String {
    let titles =
        ["Log", "Bucket", "Segments", "Bytes", "On local disk", "Waiting", "Moved since start"];
    let mut table = Table::new(&titles);
    for log in logs {
        let tier = &log["tier"];
        table.row(vec![
            show::text(&log["name"]),
            show::text(&tier["store"]),
            show::count(number(&tier["segments"])),
            show::bytes(number(&tier["bytes"])),
            show::bytes(number(&tier["local_bytes"])),
            show::count(number(&tier["waiting_segments"])),
            show::bytes(number(&tier["moved_bytes"])),
        ]);
    }
    table.render()
}

/// Reports on the files of logs.
///
/// # Errors
/// They cannot be read.
pub fn run_local(args: &ReportArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let keys = args.keys.read().map_err(CliError::Usage)?;
    let logs = match (&args.dir, &args.store) {
        (Some(dir), _) => logs_under(dir)
            .map_err(|error| CliError::Usage(format!("{}: {error}", dir.display())))?
            .iter()
            .map(|place| in_files(place, &keys))
            .collect::<Result<Vec<_>, _>>()?,
        (None, address) => {
            vec![bucket(address.as_deref().unwrap_or_default(), &args.log_name, &keys)?]
        }
    };
    print(connect.json, &Value::from(logs.clone()), || local_text(&logs))
}

fn in_files(place: &LogLocation, keys: &Keys) -> Result<Value, CliError> {
    let home = place.dir.display().to_string();
    let (disk, moved) =
        in_directory(&place.dir).map_err(|error| CliError::Failed(format!("{home}: {error}")))?;
    describe("local", &home, disk, moved, keys)
}

fn bucket(address: &str, name: &str, keys: &Keys) -> Result<Value, CliError> {
    let home = format!("{}/{name}", address.trim_end_matches('/'));
    let view =
        in_bucket(address, name).map_err(|error| CliError::Failed(format!("{home}: {error}")))?;
    let owner = view.newest_owner();
    let mut log = describe("object", &home, Arc::new(view), None, keys)?;
    log["owner_generation"] = owner.into();
    Ok(log)
}

/// Describes the chain and the footers; no frame is read that a start would not read.
fn describe(
    mode: &str,
    home: &str,
    disk: Arc<dyn Disk>,
    moved: Option<MovedAway>,
    keys: &Keys,
) -> Result<Value, CliError> {
    let failed = |why: String| CliError::Failed(format!("{home}: {why}"));
    let chain = Chain::read(&*disk).map_err(|error| failed(error.to_string()))?;
    let chain = chain.ok_or_else(|| failed("there is no log".to_owned()))?;
    let bytes = chain.files.iter().map(|name| disk.open(name).and_then(|file| file.len()));
    let bytes: u64 = bytes.map(Result::unwrap_or_default).sum();
    let streams = open_preview(Arc::new(OverlayDisk::new(disk)), keys);
    let live: u64 = streams.iter().flatten().map(|stream| stream.bytes).sum();
    let messages: u64 = streams.iter().flatten().map(|stream| stream.messages).sum();
    Ok(json!({
        "mode": mode,
        "home": home,
        "log_id": format!("{:016x}", chain.log_id),
        "opens": streams.is_ok(),
        "why_not": streams.as_ref().err(),
        "segments": chain.files.len(),
        "sealed_segments": chain.sealed.len(),
        "segment_bytes": bytes,
        "live_bytes": live,
        "dead_bytes": bytes.saturating_sub(live),
        "streams": streams.iter().flatten().count(),
        "messages": messages,
        "tier": moved.map(|moved| json!({
            "store": moved.place, "segments": moved.segments, "bytes": moved.bytes,
        })),
    }))
}

fn local_text(logs: &[Value]) -> String {
    let titles = [
        "Home",
        "Mode",
        "State",
        "Segments",
        "Bytes",
        "Live",
        "Dead",
        "Streams",
        "Messages",
        "Moved segments",
        "Moved bytes",
    ];
    let mut table = Table::new(&titles);
    for log in logs {
        let size = |key: &str| show::bytes(number(&log[key]));
        let count = |key: &str| show::count(number(&log[key]));
        table.row(vec![
            show::text(&log["home"]),
            show::text(&log["mode"]),
            if log["opens"] == true { "opens".to_owned() } else { "does not open".to_owned() },
            count("segments"),
            size("segment_bytes"),
            size("live_bytes"),
            size("dead_bytes"),
            count("streams"),
            count("messages"),
            show::count(number(&log["tier"]["segments"])),
            show::bytes(number(&log["tier"]["bytes"])),
        ]);
    }
    let why_not = logs.iter().filter_map(|log| {
        let why = show::some_text(&log["why_not"])?;
        Some(format!("\n{} does not open: {why}\n", show::text(&log["home"])))
    });
    table.render() + &why_not.collect::<String>()
}
