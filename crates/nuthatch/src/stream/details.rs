//! `stream info` and `stream state`: one stream for people.

use clap::Args;
use nuthatch_client::connect::ConnectArgs;
use nuthatch_protocol::js::{
    ClusterInfo, PersistMode, StreamConfig, StreamInfo, StreamInfoRequest, StreamState, Time,
};

use super::fetch;
use crate::error::CliError;
use crate::session::Session;
use crate::show::{self, DetailView, limit_of, unsigned};

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
    let info = fetch(&mut session, &args.stream, &StreamInfoRequest::default())?;
    session.print(&info.json, || render(&info))
}

/// Runs `stream state`.
pub fn state(name: &str, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    let info = fetch(&mut session, name, &StreamInfoRequest::default())?;
    session.print(&info.json["state"], || {
        let mut details = DetailView::default();
        state_part(&mut details, &info.state);
        details.render()
    })
}

/// A stream's configuration and state for people.
pub fn render(info: &StreamInfo) -> String {
    let mut details = DetailView::default();
    let config = &*info.config;
    details.heading(&format!("Stream {}", config.name));
    details.line_if("Description", show::filled(&config.description));
    details.line("Subjects", config.subjects.join(", "));
    details.line("Storage", config.storage.as_str());
    details.line("Replicas", config.num_replicas.to_string());
    details.line("Created", show::moment(info.created));
    if config.persist_mode != PersistMode::Default {
        details.line("Persist mode", config.persist_mode.as_str());
    }
    let placement = config.placement.clone().unwrap_or_default();
    details.line_if("Placement tags", show::filled(&placement.tags.join(", ")));
    details.line_if("Placement cluster", show::filled(&placement.cluster));
    limits(&mut details, config);
    options(&mut details, config);
    flows(&mut details, info);
    cluster(&mut details, info.cluster.as_ref());
    state_part(&mut details, &info.state);
    details.render()
}

fn state_part(details: &mut DetailView, state: &StreamState) {
    details.heading("State");
    details.line("Messages", show::count(state.messages));
    details.line("Size", show::bytes(state.bytes));
    let bound = |seq: u64, time: Time| format!("{} at {}", show::count(seq), show::moment(time));
    details.line("First sequence", bound(state.first_seq, state.first_ts));
    details.line("Last sequence", bound(state.last_seq, state.last_ts));
    details.line("Subjects stored", show::count(state.num_subjects));
    details.line("Deleted inside", show::count(state.num_deleted));
    details.line("Consumers", show::count(state.consumer_count));
}

fn limits(details: &mut DetailView, config: &StreamConfig) {
    details.heading("Limits");
    details.line("Retention", config.retention.as_str());
    details.line("Discard", config.discard.as_str());
    details.line("Messages", limit_of(config.max_msgs, show::count));
    details.line("Messages per subject", limit_of(config.max_msgs_per_subject, show::count));
    details.line("Bytes", limit_of(config.max_bytes, show::bytes));
    details.line("Age", limit_of(config.max_age, show::duration));
    details.line("Message size", limit_of(config.max_msg_size.into(), show::bytes));
    details.line("Consumers", limit_of(config.max_consumers, show::count));
    details.line("Duplicate window", show::duration(unsigned(config.duplicate_window)));
}

fn options(details: &mut DetailView, config: &StreamConfig) {
    details.heading("Options");
    let options = [
        ("Direct get", config.allow_direct),
        ("Rollup headers", config.allow_rollup_hdrs),
        ("Delete denied", config.deny_delete),
        ("Purge denied", config.deny_purge),
        ("Sealed", config.sealed),
        ("Publishes unanswered", config.no_ack),
        ("Message time to live", config.allow_msg_ttl),
        ("Atomic batches", config.allow_atomic),
        ("Counters", config.allow_msg_counter),
        ("Schedules", config.allow_msg_schedules),
    ];
    for (name, is_set) in options {
        details.line(name, show::yes(is_set));
    }
    details.line("Compression", config.compression.as_str());
    if let Some(transform) = &config.subject_transform {
        details.line("Subject transform", format!("{} → {}", transform.src, transform.dest));
    }
    if let Some(republish) = &config.republish {
        details.line("Republish", format!("{} → {}", republish.src, republish.dest));
    }
    for (key, value) in &config.metadata {
        details.line(&format!("Metadata {key}"), value.as_str());
    }
}

fn flows(details: &mut DetailView, info: &StreamInfo) {
    let mirror = info.mirror.iter().map(|flow| ("Mirror of", flow));
    for (kind, flow) in mirror.chain(info.sources.iter().map(|flow| ("Source", flow))) {
        let active = u64::try_from(flow.active).map_or("never".into(), show::duration);
        let lag = show::count(flow.lag);
        details.line(kind, format!("{}, {lag} behind, seen {active} ago", flow.name));
    }
}

fn cluster(details: &mut DetailView, cluster: Option<&ClusterInfo>) {
    let Some(cluster) = cluster.filter(|cluster| !cluster.leader.is_empty()) else { return };
    details.heading("Cluster");
    details.line_if("Name", show::filled(&cluster.name));
    details.line("Leader", cluster.leader.as_str());
    for replica in &cluster.replicas {
        let state = if replica.current { "current" } else { "behind" };
        details.line("Replica", format!("{}, {state}", replica.name));
    }
}
