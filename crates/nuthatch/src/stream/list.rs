//! `stream ls` and `stream report`.

use std::cmp::Reverse;

use clap::Args;
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::js::Answer;
use nuthatch_protocol::js::{Placement, StreamInfo};
use serde_json::{Value, json};

use crate::error::CliError;
use crate::session::Session;
use crate::show::{self, Table};

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
pub fn fetch(
    session: &mut Session,
    subject: Option<&String>,
) -> Result<Vec<Answer<StreamInfo>>, CliError> {
    let filter = match subject {
        Some(subject) => json!({ "subject": subject }),
        None => Value::Null,
    };
    let mut streams: Vec<Answer<StreamInfo>> = session
        .list_of("STREAM.LIST", "streams", &filter)
        .map_err(CliError::js("could not list streams"))?;
    streams.sort_by(|a, b| a.config.name.cmp(&b.config.name));
    Ok(streams)
}

/// True if a stream belongs to a bucket or to the system.
fn is_internal(stream: &StreamInfo) -> bool {
    let name = &stream.config.name;
    ["KV_", "OBJ_", "MQTT_", "$"].iter().any(|prefix| name.starts_with(prefix))
}

/// Runs `stream ls`.
pub fn ls(args: &LsArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    let mut streams = fetch(&mut session, args.subject.as_ref())?;
    let before = streams.len();
    streams.retain(|stream| args.all || !is_internal(stream));
    if args.names {
        let names: Vec<&str> = streams.iter().map(|stream| stream.config.name.as_str()).collect();
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
pub fn table(streams: &[Answer<StreamInfo>]) -> String {
    let titles = ["Name", "Subjects", "Storage", "Messages", "Size", "Consumers", "Last message"];
    let mut table = Table::new(&titles);
    for stream in streams {
        let (config, state) = (&stream.config, &stream.state);
        table.row(vec![
            config.name.clone(),
            config.subjects.join(", "),
            config.storage.to_string(),
            show::count(state.messages),
            show::bytes(state.bytes),
            show::count(state.consumer_count),
            show::moment(state.last_ts),
        ]);
    }
    table.render()
}

/// Runs `stream report`.
pub fn report(args: &ReportArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    let mut streams = fetch(&mut session, args.subject.as_ref())?;
    // Sorted by name already, which sorting by another key keeps among equals.
    match args.order {
        OrderArgs { name: true, .. } => {}
        OrderArgs { consumers: true, .. } => {
            streams.sort_by_key(|stream| Reverse(stream.state.consumer_count));
        }
        OrderArgs { messages: true, .. } => streams.sort_by_key(|s| Reverse(s.state.messages)),
        OrderArgs { storage: true, .. } => {
            streams.sort_by_key(|stream| stream.config.storage.as_str());
        }
        _ => streams.sort_by_key(|stream| Reverse(stream.state.bytes)),
    }
    session.print(&json!(streams), || {
        if streams.is_empty() { "No streams\n".into() } else { report_table(&streams, args.raw) }
    })
}

fn report_table(streams: &[Answer<StreamInfo>], raw: bool) -> String {
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
        let (config, state) = (&stream.config, &stream.state);
        let count = |value: u64| if raw { value.to_string() } else { show::count(value) };
        table.row(vec![
            config.name.clone(),
            config.storage.to_string(),
            config.placement.as_ref().map(placement).unwrap_or_default(),
            count(state.consumer_count),
            count(state.messages),
            if raw { state.bytes.to_string() } else { show::bytes(state.bytes) },
            state.lost.as_ref().map_or(0, |lost| lost.msgs.len()).to_string(),
            count(state.num_deleted),
            replicas(stream),
        ]);
    }
    let mut out = table.render();
    out.push_str(&flows(streams));
    out
}

fn placement(placement: &Placement) -> String {
    let parts = [placement.cluster.clone(), placement.tags.join(", ")];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Replicas; the leader first, with a star.
fn replicas(stream: &StreamInfo) -> String {
    let cluster = stream.cluster.as_ref().filter(|cluster| !cluster.leader.is_empty());
    let Some(cluster) = cluster else { return stream.config.num_replicas.to_string() };
    let others = cluster.replicas.iter().map(|replica| replica.name.clone());
    std::iter::once(format!("{}*", cluster.leader)).chain(others).collect::<Vec<_>>().join(", ")
}

/// Mirrors and sources with their lag; nothing when there are none.
fn flows(streams: &[Answer<StreamInfo>]) -> String {
    let mut table = Table::new(&["Stream", "Kind", "Origin", "Lag", "Active"]);
    let mut any = false;
    for stream in streams {
        let mirror = stream.mirror.iter().map(|flow| ("mirror", flow));
        for (kind, flow) in mirror.chain(stream.sources.iter().map(|flow| ("source", flow))) {
            any = true;
            table.row(vec![
                stream.config.name.clone(),
                kind.into(),
                flow.name.clone(),
                show::count(flow.lag),
                u64::try_from(flow.active).map_or("never".into(), show::duration),
            ]);
        }
    }
    if any { format!("\n{}", table.render()) } else { String::new() }
}
