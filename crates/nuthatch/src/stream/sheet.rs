//! `stream info` and `stream state`: one stream for people.

use clap::Args;
use nuthatch_bench::connect::ConnectArgs;
use serde_json::Value;

use super::fetch;
use crate::error::CliError;
use crate::session::Session;
use crate::show::{self, Sheet, number};

/// Options of `stream info`.
#[derive(Debug, Clone, Args)]
pub struct InfoArgs {
    /// Stream name
    stream: String,
    /// Show the state only
    #[arg(long)]
    state: bool,
}

/// Runs `stream info`.
pub fn info(args: &InfoArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    if args.state {
        return state(&args.stream, connect);
    }
    let mut session = Session::open(connect)?;
    let info = fetch(&mut session, &args.stream, &Value::Null)?;
    session.print(&info, || render(&info))
}

/// Runs `stream state`.
pub fn state(name: &str, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    let info = fetch(&mut session, name, &Value::Null)?;
    session.print(&info["state"], || {
        let mut sheet = Sheet::default();
        state_part(&mut sheet, &info["state"]);
        sheet.render()
    })
}

/// A stream's configuration and state for people.
pub fn render(info: &Value) -> String {
    let mut sheet = Sheet::default();
    let config = &info["config"];
    sheet.heading(&format!("Stream {}", show::text(&config["name"])));
    sheet.line_if("Description", show::some_text(&config["description"]));
    sheet.line("Subjects", show::text(&config["subjects"]));
    sheet.line("Storage", show::text(&config["storage"]));
    sheet.line("Replicas", show::text(&config["num_replicas"]));
    sheet.line("Created", show::time(&info["created"]));
    sheet.line_if("Persist mode", show::some_text(&config["persist_mode"]));
    sheet.line_if("Placement tags", show::some_text(&config["placement"]["tags"]));
    sheet.line_if("Placement cluster", show::some_text(&config["placement"]["cluster"]));
    limits(&mut sheet, config);
    options(&mut sheet, config);
    flows(&mut sheet, info);
    cluster(&mut sheet, &info["cluster"]);
    state_part(&mut sheet, &info["state"]);
    sheet.render()
}

fn state_part(sheet: &mut Sheet, state: &Value) {
    sheet.heading("State");
    sheet.line("Messages", show::count(number(&state["messages"])));
    sheet.line("Size", show::bytes(number(&state["bytes"])));
    let bound = |seq: &str, time: &str| {
        format!("{} at {}", show::count(number(&state[seq])), show::time(&state[time]))
    };
    sheet.line("First sequence", bound("first_seq", "first_ts"));
    sheet.line("Last sequence", bound("last_seq", "last_ts"));
    sheet.line("Subjects stored", show::count(number(&state["num_subjects"])));
    sheet.line("Deleted inside", show::count(number(&state["num_deleted"])));
    sheet.line("Consumers", show::count(number(&state["consumer_count"])));
}

fn limits(sheet: &mut Sheet, config: &Value) {
    sheet.heading("Limits");
    sheet.line("Retention", show::text(&config["retention"]));
    sheet.line("Discard", show::text(&config["discard"]));
    sheet.line("Messages", show::limit(&config["max_msgs"], show::count));
    sheet.line("Messages per subject", show::limit(&config["max_msgs_per_subject"], show::count));
    sheet.line("Bytes", show::limit(&config["max_bytes"], show::bytes));
    sheet.line("Age", show::limit(&config["max_age"], show::duration));
    sheet.line("Message size", show::limit(&config["max_msg_size"], show::bytes));
    sheet.line("Consumers", show::limit(&config["max_consumers"], show::count));
    sheet.line("Duplicate window", show::duration(number(&config["duplicate_window"])));
}

fn options(sheet: &mut Sheet, config: &Value) {
    sheet.heading("Options");
    let options = [
        ("Direct get", "allow_direct"),
        ("Rollup headers", "allow_rollup_hdrs"),
        ("Delete denied", "deny_delete"),
        ("Purge denied", "deny_purge"),
        ("Sealed", "sealed"),
        ("Publishes unanswered", "no_ack"),
        ("Message time to live", "allow_msg_ttl"),
        ("Atomic batches", "allow_atomic"),
        ("Counters", "allow_msg_counter"),
        ("Schedules", "allow_msg_schedules"),
    ];
    for (name, key) in options {
        sheet.line(name, show::flag(&config[key]));
    }
    sheet.line_if("Compression", show::some_text(&config["compression"]));
    let arrow = |value: &Value| {
        let (src, dest) = (show::text(&value["src"]), show::text(&value["dest"]));
        value.is_object().then(|| format!("{src} → {dest}"))
    };
    sheet.line_if("Subject transform", arrow(&config["subject_transform"]));
    sheet.line_if("Republish", arrow(&config["republish"]));
    for (key, value) in config["metadata"].as_object().into_iter().flatten() {
        sheet.line(&format!("Metadata {key}"), show::text(value));
    }
}

fn flows(sheet: &mut Sheet, info: &Value) {
    let sources = info["sources"].as_array().into_iter().flatten().map(|flow| ("Source", flow));
    let mirror = Some(("Mirror of", &info["mirror"])).filter(|(_, flow)| flow.is_object());
    for (kind, flow) in mirror.into_iter().chain(sources) {
        let active = flow["active"].as_u64().map_or("never".into(), show::duration);
        let lag = show::count(number(&flow["lag"]));
        sheet.line(kind, format!("{}, {lag} behind, seen {active} ago", show::text(&flow["name"])));
    }
}

fn cluster(sheet: &mut Sheet, cluster: &Value) {
    let Some(leader) = show::some_text(&cluster["leader"]) else { return };
    sheet.heading("Cluster");
    sheet.line_if("Name", show::some_text(&cluster["name"]));
    sheet.line("Leader", leader);
    for replica in cluster["replicas"].as_array().into_iter().flatten() {
        let state = if replica["current"] == true { "current" } else { "behind" };
        sheet.line("Replica", format!("{}, {state}", show::text(&replica["name"])));
    }
}
