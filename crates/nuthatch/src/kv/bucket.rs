//! Buckets as a whole: `kv add`, `edit`, `info`, `compact`, and their list.

use std::time::{Duration, Instant};

use clap::Args;
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::js::{Answer, Operation};
use nuthatch_client::units::parse_duration;
use nuthatch_protocol::js::{PurgeRequest, StreamInfo};
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::{BucketArgs, explained, stream_name};
use crate::error::CliError;
use crate::follow::{Follower, From};
use crate::input::{nanos, parse_limit};
use crate::kv::watch::operation;
use crate::session::{Session, confirm};
use crate::show::{self, DetailView, Table, limit_of};

/// How long message ids are remembered at most; a bucket has no use for more.
const DEDUP_WINDOW: Duration = Duration::from_secs(120);

/// Options of `kv add` and `kv edit`.
#[derive(Debug, Clone, Args)]
pub struct AddArgs {
    /// Bucket name
    bucket: String,
    /// Values kept of each key, up to 64 (default: 1)
    #[arg(long, value_parser = clap::value_parser!(i64).range(1..=64))]
    history: Option<i64>,
    /// Forget values after this long, such as 24h
    #[arg(long, value_parser = parse_duration)]
    ttl: Option<Duration>,
    /// Allow keys to have their own time to live, and keep their markers for this long
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    marker_ttl: Option<Duration>,
    /// Largest value, such as 64KiB; -1 for no limit
    #[arg(long, value_parser = parse_limit, allow_negative_numbers = true)]
    max_value_size: Option<i64>,
    /// Most bytes of the bucket, such as 1GiB; -1 for no limit
    #[arg(long, value_parser = parse_limit, allow_negative_numbers = true)]
    max_bucket_size: Option<i64>,
    /// Where values are kept (default: file)
    #[arg(long, value_parser = ["file", "f", "memory", "m"])]
    storage: Option<String>,
    /// Copies in a cluster
    #[arg(long)]
    replicas: Option<u64>,
    /// Description
    #[arg(long)]
    description: Option<String>,
    /// Compress values
    #[arg(long)]
    compress: bool,
    /// Placement tags, several with commas
    #[arg(long, value_delimiter = ',')]
    tags: Vec<String>,
    /// Placement cluster
    #[arg(long)]
    cluster: Option<String>,
    /// Publish again what is stored under subjects that match this
    #[arg(long, value_name = "SUBJECT", requires = "republish_destination")]
    republish_source: Option<String>,
    /// Where to publish it
    #[arg(long, value_name = "SUBJECT", requires = "republish_source")]
    republish_destination: Option<String>,
    /// Publish it without values
    #[arg(long, requires = "republish_source")]
    republish_headers: bool,
    /// Hold what this bucket holds, and nothing else
    #[arg(long, value_name = "BUCKET", conflicts_with = "source")]
    mirror: Option<String>,
    /// Take over the keys of this bucket; may be repeated
    #[arg(long, value_name = "BUCKET")]
    source: Vec<String>,
}

/// Options of `kv compact`.
#[derive(Debug, Clone, Args)]
pub struct CompactArgs {
    #[command(flatten)]
    bucket: BucketArgs,
    /// Do not ask
    #[arg(long, short)]
    force: bool,
}

impl AddArgs {
    fn apply(&self, config: &mut Value) -> Result<(), CliError> {
        let memory = |name: &String| if name.starts_with('m') { "memory" } else { "file" };
        let window = self.ttl.map(|ttl| nanos(ttl.min(DEDUP_WINDOW)));
        let fields = [
            ("max_msgs_per_subject", self.history.map(Value::from)),
            ("max_age", self.ttl.map(|ttl| nanos(ttl).into())),
            ("duplicate_window", window.map(Value::from)),
            ("max_msg_size", self.max_value_size.map(Value::from)),
            ("max_bytes", self.max_bucket_size.map(Value::from)),
            ("storage", self.storage.as_ref().map(|name| memory(name).into())),
            ("num_replicas", self.replicas.map(Value::from)),
            ("description", self.description.clone().map(Value::from)),
            ("compression", self.compress.then(|| "s2".into())),
        ];
        for (key, value) in fields.into_iter().filter_map(|(key, value)| Some((key, value?))) {
            config[key] = value;
        }
        if let Some(ttl) = self.marker_ttl {
            config["allow_msg_ttl"] = true.into();
            config["subject_delete_marker_ttl"] = nanos(ttl).into();
        }
        if !self.tags.is_empty() {
            config["placement"]["tags"] = json!(self.tags);
        }
        if let Some(cluster) = &self.cluster {
            config["placement"]["cluster"] = cluster.as_str().into();
        }
        self.apply_flows(config)
    }

    fn apply_flows(&self, config: &mut Value) -> Result<(), CliError> {
        if let (Some(src), Some(dest)) = (&self.republish_source, &self.republish_destination) {
            let headers_only = self.republish_headers;
            config["republish"] = json!({ "src": src, "dest": dest, "headers_only": headers_only });
        }
        if let Some(origin) = &self.mirror {
            config["mirror"] = json!({ "name": stream_name(origin)? });
            config["mirror_direct"] = true.into();
            config.as_object_mut().map(|fields| fields.remove("subjects"));
        }
        let mut sources = Vec::new();
        for origin in &self.source {
            let (src, dest) = (format!("$KV.{origin}.>"), format!("$KV.{}.>", self.bucket));
            let change = json!([{ "src": src, "dest": dest }]);
            sources.push(json!({ "name": stream_name(origin)?, "subject_transforms": change }));
        }
        if !sources.is_empty() {
            config["sources"] = sources.into();
        }
        Ok(())
    }
}

/// Runs `kv add`.
pub fn add(args: &AddArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let stream = stream_name(&args.bucket)?;
    let mut config = json!({
        "name": stream, "subjects": [format!("$KV.{}.>", args.bucket)], "storage": "file",
        "max_msgs_per_subject": 1, "max_msgs": -1, "max_bytes": -1, "max_msg_size": -1,
        "max_consumers": -1, "num_replicas": 1, "discard": "new", "allow_rollup_hdrs": true,
        "deny_delete": true, "allow_direct": true, "duplicate_window": nanos(DEDUP_WINDOW),
    });
    args.apply(&mut config)?;
    let mut session = Session::open(connect)?;
    let created: Answer<StreamInfo> = session
        .ask(&format!("STREAM.CREATE.{stream}"), &config)
        .map_err(CliError::js(format!("could not create bucket {}", args.bucket)))?;
    session.print(&created.json, || {
        format!("Bucket {} was created\n\n{}", args.bucket, details(&created))
    })
}

/// Runs `kv edit`.
pub fn edit(args: &AddArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    let mut config = fetch(&mut session, &args.bucket)?.json["config"].take();
    args.apply(&mut config)?;
    let updated: Answer<StreamInfo> = session
        .ask(&format!("STREAM.UPDATE.{}", stream_name(&args.bucket)?), &config)
        .map_err(CliError::js(format!("could not change bucket {}", args.bucket)))?;
    session.print(&updated.json, || {
        format!("Bucket {} was changed\n\n{}", args.bucket, details(&updated))
    })
}

fn fetch(session: &mut Session, bucket: &str) -> Result<Answer<StreamInfo>, CliError> {
    session
        .ask(&format!("STREAM.INFO.{}", stream_name(bucket)?), &Value::Null)
        .map_err(CliError::js(format!("bucket {bucket}")))
        .map_err(|err| explained(session, bucket, err))
}

/// Runs `kv info`.
pub fn info(args: &BucketArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    let info = fetch(&mut session, &args.bucket)?;
    session.print(&info.json, || details(&info))
}

fn details(info: &StreamInfo) -> String {
    let (config, state) = (&info.config, &info.state);
    let name = config.name.as_str();
    let bucket = name.strip_prefix("KV_").unwrap_or(name);
    let mut details = DetailView::default();
    details.heading(&format!("Bucket {bucket}"));
    details.line_if("Description", show::filled(&config.description));
    details.line("Values kept of each key", config.max_msgs_per_subject.to_string());
    details.line("Keys", show::count(state.num_subjects));
    details.line("Values and markers", show::count(state.messages));
    details.line("Size", show::bytes(state.bytes));
    details.line("Time to live", limit_of(config.max_age, show::duration));
    details.line("Largest value", limit_of(config.max_msg_size.into(), show::bytes));
    details.line("Largest size", limit_of(config.max_bytes, show::bytes));
    let marker = Some(show::unsigned(config.subject_delete_marker_ttl)).filter(|ttl| *ttl > 0);
    details.line_if("Markers live", marker.map(show::duration));
    details.line("Storage", config.storage.as_str());
    details.line("Replicas", config.num_replicas.to_string());
    details.line_if("Mirror of", config.mirror.as_ref().map(|origin| origin.name.clone()));
    details.line("Created", show::moment(info.created));
    details.line("Stream", name);
    details.render()
}

/// The bucket of a stream.
fn bucket_of(info: &StreamInfo) -> Option<&str> {
    info.config.name.strip_prefix("KV_")
}

/// Prints all buckets.
pub fn ls(names_only: bool, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    let mut buckets: Vec<Answer<StreamInfo>> = session
        .list_of("STREAM.LIST", "streams", &json!({ "subject": "$KV.*.>" }))
        .map_err(CliError::js("could not list buckets"))?;
    buckets.retain(|info| bucket_of(info).is_some());
    buckets.sort_by(|a, b| a.config.name.cmp(&b.config.name));
    if names_only {
        let names: Vec<&str> = buckets.iter().filter_map(|info| bucket_of(info)).collect();
        return session.print(&json!(names), || names.iter().map(|n| format!("{n}\n")).collect());
    }
    session.print(&json!(buckets), || {
        if buckets.is_empty() {
            return "No buckets\n".into();
        }
        let titles = ["Bucket", "Description", "Created", "Size", "Keys", "Last change"];
        let mut table = Table::new(&titles);
        let now = OffsetDateTime::now_utc();
        for info in &buckets {
            table.row(vec![
                bucket_of(info).unwrap_or_default().to_owned(),
                info.config.description.clone(),
                show::moment(info.created),
                show::bytes(info.state.bytes),
                show::count(info.state.num_subjects),
                show::ago(info.state.last_ts, now),
            ]);
        }
        table.render()
    })
}

/// Runs `kv compact`: purges every key whose newest entry is a marker of its deletion.
pub fn compact(args: &CompactArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let bucket = &args.bucket.bucket;
    let stream = stream_name(bucket)?;
    let mut session = Session::open(connect)?;
    confirm(&format!("Remove what is left of deleted keys of {bucket}?"), args.force)?;
    let mut gone = Vec::new();
    let mut follower = Follower::open(&mut session, &stream, &[], From::LastPerSubject)
        .map_err(|err| explained(&mut session, bucket, err))?;
    let mut left = follower.pending_at_start;
    while left > 0 {
        let deadline = Instant::now() + session.timeout;
        let Some(entry) = follower.next(&mut session, deadline)? else {
            follower.check_next(&mut session)?;
            break;
        };
        left = entry.pending;
        if operation(&entry.message) != Operation::Put {
            gone.push(entry.message.subject);
        }
    }
    follower.close(&mut session);
    for subject in &gone {
        let request = PurgeRequest { filter: subject.clone(), ..PurgeRequest::default() };
        session
            .ask::<Value>(&format!("STREAM.PURGE.{stream}"), &request)
            .map_err(CliError::js(format!("could not purge {subject}")))?;
    }
    let json = json!({ "bucket": bucket, "removed": gone.len() });
    session.print(&json, || {
        let were = if gone.len() == 1 { "was" } else { "were" };
        format!("{} {were} removed\n", show::plural(gone.len() as u64, "deleted key"))
    })
}
