//! `stream ls` and `stream report`.

use clap::Args;
use nuthatch_client::connect::ConnectArgs;
use serde_json::{Value, json};

use crate::error::CliError;
use crate::session::Session;
use crate::show::{self, Table, number};

/// Options of `stream ls`.
#[derive(Debug, Clone, Args)]
pub struct LsArgs {
    /// Only streams that store this subject
    #[arg(long)]
    subject: Option<String>,
    /// Print names only
    #[arg(long, short)]
    names: bool,
    /// Show the streams of buckets and of the system too
    #[arg(long, short)]
    all: bool,
}

/// Options of `stream report`.
#[derive(Debug, Clone, Args)]
pub struct ReportArgs {
    /// Only streams that store this subject
    #[arg(long)]
    subject: Option<String>,
    #[command(flatten)]
    order: OrderArgs,
    /// Show numbers as they are
    #[arg(long, short)]
    raw: bool,
}

#[derive(Debug, Clone, Copy, Args)]
#[group(multiple = false)]
struct OrderArgs {
    /// Sort by number of consumers
    #[arg(long, short = 'o')]
    consumers: bool,
    /// Sort by number of messages
    #[arg(long, short)]
    messages: bool,
    /// Sort by name (default: by bytes)
    #[arg(long, short)]
    name: bool,
    /// Sort by storage
    #[arg(long, short = 't')]
    storage: bool,
}

/// Configuration and state of the streams, by name; only of those that store a subject, if given.
pub fn fetch(session: &mut Session, subject: Option<&String>) -> Result<Vec<Value>, CliError> {
    let filter = match subject {
        Some(subject) => json!({ "subject": subject }),
        None => Value::Null,
    };
    let mut streams = session
        .list("STREAM.LIST", "streams", &filter)
        .map_err(CliError::js("could not list streams"))?;
    streams.sort_by_key(|stream| show::text(&stream["config"]["name"]));
    Ok(streams)
}

/// True if a stream belongs to a bucket or to the system.
fn is_internal(stream: &Value) -> bool {
    let name = stream["config"]["name"].as_str().unwrap_or_default();
    ["KV_", "OBJ_", "MQTT_", "$"].iter().any(|prefix| name.starts_with(prefix))
}

/// Runs `stream ls`.
pub fn ls(args: &LsArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    let mut streams = fetch(&mut session, args.subject.as_ref())?;
    let before = streams.len();
    streams.retain(|stream| args.all || !is_internal(stream));
    if args.names {
        let names: Vec<String> =
            streams.iter().map(|stream| show::text(&stream["config"]["name"])).collect();
        return session.print(&json!(names), || names.iter().map(|n| format!("{n}\n")).collect());
    }
    session.print(&json!(streams), || {
        let hidden = match before - streams.len() {
            0 => String::new(),
            1 => "1 more belongs to a bucket; see it with --all\n".to_owned(),
            count => format!("{count} more belong to buckets; see them with --all\n"),
        };
        if streams.is_empty() { format!("No streams\n{hidden}") } else { table(&streams) + &hidden }
    })
}

/// Streams for people.
pub fn table(streams: &[Value]) -> String {
    let titles = ["Name", "Subjects", "Storage", "Messages", "Size", "Consumers", "Last message"];
    let mut table = Table::new(&titles);
    for stream in streams {
        let (config, state) = (&stream["config"], &stream["state"]);
        table.row(vec![
            show::text(&config["name"]),
            show::text(&config["subjects"]),
            show::text(&config["storage"]),
            show::count(number(&state["messages"])),
            show::bytes(number(&state["bytes"])),
            show::count(number(&state["consumer_count"])),
            show::time(&state["last_ts"]),
        ]);
    }
    table.render()
}

/// Runs `stream report`.
pub fn report(args: &ReportArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    let mut streams = fetch(&mut session, args.subject.as_ref())?;
    let state = |stream: &Value, key: &str| std::cmp::Reverse(number(&stream["state"][key]));
    // Sorted by name already, which sorting by another key keeps among equals.
    match args.order {
        OrderArgs { name: true, .. } => {}
        OrderArgs { consumers: true, .. } => streams.sort_by_key(|s| state(s, "consumer_count")),
        OrderArgs { messages: true, .. } => streams.sort_by_key(|s| state(s, "messages")),
        OrderArgs { storage: true, .. } => {
            streams.sort_by_key(|stream| show::text(&stream["config"]["storage"]));
        }
        _ => streams.sort_by_key(|s| state(s, "bytes")),
    }
    session.print(&json!(streams), || {
        if streams.is_empty() { "No streams\n".into() } else { report_table(&streams, args.raw) }
    })
}

fn report_table(streams: &[Value], raw: bool) -> String {
    let titles = [
        "Stream",
        "Storage",
        "Placement",
        "Consumers",
        "Messages",
        "Bytes",
        "Lost",
        "Deleted",
        "Replicas",
    ];
    let mut table = Table::new(&titles);
    for stream in streams {
        let (config, state) = (&stream["config"], &stream["state"]);
        let count = |value: &Value| {
            if raw { number(value).to_string() } else { show::count(number(value)) }
        };
        let size = number(&state["bytes"]);
        table.row(vec![
            show::text(&config["name"]),
            show::text(&config["storage"]),
            placement(&config["placement"]),
            count(&state["consumer_count"]),
            count(&state["messages"]),
            if raw { size.to_string() } else { show::bytes(size) },
            state["lost"]["msgs"].as_array().map_or(0, Vec::len).to_string(),
            count(&state["num_deleted"]),
            replicas(stream),
        ]);
    }
    let mut out = table.render();
    out.push_str(&flows(streams));
    out
}

fn placement(placement: &Value) -> String {
    let parts = [show::text(&placement["cluster"]), show::text(&placement["tags"])];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Replicas; the leader first, with a star.
fn replicas(stream: &Value) -> String {
    let leader = show::text(&stream["cluster"]["leader"]);
    if leader.is_empty() {
        return show::text(&stream["config"]["num_replicas"]);
    }
    let others = stream["cluster"]["replicas"].as_array().into_iter().flatten();
    let others = others.map(|replica| show::text(&replica["name"]));
    std::iter::once(format!("{leader}*")).chain(others).collect::<Vec<_>>().join(", ")
}

/// Mirrors and sources with their lag; nothing when there are none.
fn flows(streams: &[Value]) -> String {
    let mut table = Table::new(&["Stream", "Kind", "Origin", "Lag", "Active"]);
    let mut any = false;
    for stream in streams {
        let mirror = (!stream["mirror"].is_null()).then_some(("mirror", &stream["mirror"]));
        let sources = stream["sources"].as_array().into_iter().flatten();
        for (kind, flow) in mirror.into_iter().chain(sources.map(|source| ("source", source))) {
            any = true;
            let active = flow["active"].as_u64().map_or("never".into(), show::duration);
            table.row(vec![
                show::text(&stream["config"]["name"]),
                kind.into(),
                show::text(&flow["name"]),
                show::count(number(&flow["lag"])),
                active,
            ]);
        }
    }
    if any { format!("\n{}", table.render()) } else { String::new() }
}
