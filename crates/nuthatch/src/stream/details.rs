//! `stream info` and `stream state`: one stream for people.

use clap::Args;
use nuthatch_client::connect::ConnectArgs;
use serde_json::Value;

use super::fetch;
use crate::error::CliError;
use crate::session::Session;
use crate::show::{self, DetailView, number};

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
        let mut details = DetailView::default();
        state_part(&mut details, &info["state"]);
        details.render()
    })
}

/// A stream's configuration and state for people.
pub fn render(info: &Value) -> String {
    let mut details = DetailView::default();
    let config = &info["config"];
    details.heading(&format!("Stream {}", show::text(&config["name"])));
    details.line_if("Description", show::some_text(&config["description"]));
    details.line("Subjects", show::text(&config["subjects"]));
    details.line("Storage", show::text(&config["storage"]));
    details.line("Replicas", show::text(&config["num_replicas"]));
    details.line("Created", show::time(&info["created"]));
    details.line_if("Persist mode", show::some_text(&config["persist_mode"]));
    details.line_if("Placement tags", show::some_text(&config["placement"]["tags"]));
    details.line_if("Placement cluster", show::some_text(&config["placement"]["cluster"]));
    limits(&mut details, config);
    options(&mut details, config);
    flows(&mut details, info);
    cluster(&mut details, &info["cluster"]);
    state_part(&mut details, &info["state"]);
    details.render()
}

fn state_part(details: &mut DetailView, state: &Value) {
    details.heading("State");
    details.line("Messages", show::count(number(&state["messages"])));
    details.line("Size", show::bytes(number(&state["bytes"])));
    let bound = |seq: &str, time: &str| {
        format!("{} at {}", show::count(number(&state[seq])), show::time(&state[time]))
    };
    details.line("First sequence", bound("first_seq", "first_ts"));
    details.line("Last sequence", bound("last_seq", "last_ts"));
    details.line("Subjects stored", show::count(number(&state["num_subjects"])));
    details.line("Deleted inside", show::count(number(&state["num_deleted"])));
    details.line("Consumers", show::count(number(&state["consumer_count"])));
}

fn limits(details: &mut DetailView, config: &Value) {
    details.heading("Limits");
    details.line("Retention", show::text(&config["retention"]));
    details.line("Discard", show::text(&config["discard"]));
    details.line("Messages", show::limit(&config["max_msgs"], show::count));
    details.line("Messages per subject", show::limit(&config["max_msgs_per_subject"], show::count));
    details.line("Bytes", show::limit(&config["max_bytes"], show::bytes));
    details.line("Age", show::limit(&config["max_age"], show::duration));
    details.line("Message size", show::limit(&config["max_msg_size"], show::bytes));
    details.line("Consumers", show::limit(&config["max_consumers"], show::count));
    details.line("Duplicate window", show::duration(number(&config["duplicate_window"])));
}

fn options(details: &mut DetailView, config: &Value) {
    details.heading("Options");
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
        details.line(name, show::flag(&config[key]));
    }
    details.line_if("Compression", show::some_text(&config["compression"]));
    let arrow = |value: &Value| {
        let (src, dest) = (show::text(&value["src"]), show::text(&value["dest"]));
        value.is_object().then(|| format!("{src} → {dest}"))
    };
    details.line_if("Subject transform", arrow(&config["subject_transform"]));
    details.line_if("Republish", arrow(&config["republish"]));
    for (key, value) in config["metadata"].as_object().into_iter().flatten() {
        details.line(&format!("Metadata {key}"), show::text(value));
    }
}

fn flows(details: &mut DetailView, info: &Value) {
    let sources = info["sources"].as_array().into_iter().flatten().map(|flow| ("Source", flow));
    let mirror = Some(("Mirror of", &info["mirror"])).filter(|(_, flow)| flow.is_object());
    for (kind, flow) in mirror.into_iter().chain(sources) {
        let active = flow["active"].as_u64().map_or("never".into(), show::duration);
        let lag = show::count(number(&flow["lag"]));
        details
            .line(kind, format!("{}, {lag} behind, seen {active} ago", show::text(&flow["name"])));
    }
}

fn cluster(details: &mut DetailView, cluster: &Value) {
    let Some(leader) = show::some_text(&cluster["leader"]) else { return };
    details.heading("Cluster");
    details.line_if("Name", show::some_text(&cluster["name"]));
    details.line("Leader", leader);
    for replica in cluster["replicas"].as_array().into_iter().flatten() {
        let state = if replica["current"] == true { "current" } else { "behind" };
        details.line("Replica", format!("{}, {state}", show::text(&replica["name"])));
    }
}
