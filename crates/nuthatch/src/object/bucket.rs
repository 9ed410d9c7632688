//! Buckets as a whole: `object add`, `ls`, `info`, `rm`, `seal` and `watch`.

use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use clap::Args;
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::js::{Answer, ObjectInfo};
use nuthatch_client::units::parse_duration;
use nuthatch_protocol::js::{StreamInfo, Time};
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::{explained, stream_name};
use crate::core::subscribe::WAIT_STEP;
use crate::error::CliError;
use crate::follow::{Delivered, Follower, From};
use crate::input::{metadata, nanos, parse_limit};
use crate::session::{Session, confirm};
use crate::show::{self, DetailView, Table, limit_of};

/// Options of `object add`.
#[derive(Debug, Clone, Args)]
pub struct AddArgs {
    /// Bucket name
    bucket: String,
    /// Forget files after this long, such as 24h
    #[arg(long, value_parser = parse_duration)]
    ttl: Option<Duration>,
    /// Most bytes of the bucket, such as 1GiB; -1 for no limit
    #[arg(long, default_value = "-1", value_parser = parse_limit, allow_negative_numbers = true)]
    max_bucket_size: i64,
    /// Where files are kept
    #[arg(long, default_value = "file", value_parser = ["file", "f", "memory", "m"])]
    storage: String,
    /// Copies in a cluster
    #[arg(long, default_value_t = 1)]
    replicas: u64,
    /// Description
    #[arg(long)]
    description: Option<String>,
    /// Compress files
    #[arg(long)]
    compress: bool,
    /// Placement tags, several with commas
    #[arg(long, value_delimiter = ',')]
    tags: Vec<String>,
    /// Placement cluster
    #[arg(long)]
    cluster: Option<String>,
    /// Metadata as KEY=VALUE; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    metadata: Vec<String>,
}

/// Options of `object ls`.
#[derive(Debug, Clone, Args)]
pub struct LsArgs {
    /// Bucket whose files are listed (default: all buckets)
    bucket: Option<String>,
    /// Print names only
    #[arg(long, short)]
    names: bool,
}

/// Options of `object seal`.
#[derive(Debug, Clone, Args)]
pub struct SealArgs {
    /// Bucket name
    bucket: String,
    /// Do not ask
    #[arg(long, short)]
    force: bool,
}

/// Options of `object watch`.
#[derive(Debug, Clone, Args)]
pub struct WatchArgs {
    /// Bucket name
    bucket: String,
    /// End after this many changes
    #[arg(long)]
    count: Option<u64>,
}

/// Runs `object add`.
pub fn add(args: &AddArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let (bucket, stream) = (&args.bucket, stream_name(&args.bucket)?);
    let mut config = json!({
        "name": stream, "subjects": [format!("$O.{bucket}.C.>"), format!("$O.{bucket}.M.>")],
        "storage": if args.storage.starts_with('m') { "memory" } else { "file" },
        "max_bytes": args.max_bucket_size, "max_msgs": -1, "max_consumers": -1,
        "max_msg_size": -1, "max_age": args.ttl.map_or(0, nanos), "num_replicas": args.replicas,
        "discard": "new", "allow_rollup_hdrs": true, "allow_direct": true,
        "compression": if args.compress { "s2" } else { "none" },
    });
    if let Some(description) = &args.description {
        config["description"] = description.as_str().into();
    }
    if !args.tags.is_empty() {
        config["placement"]["tags"] = json!(args.tags);
    }
    if let Some(cluster) = &args.cluster {
        config["placement"]["cluster"] = cluster.as_str().into();
    }
    if let Some(facts) = metadata(&args.metadata)? {
        config["metadata"] = facts;
    }
    let mut session = Session::open(connect)?;
    let created: Answer<StreamInfo> = session
        .ask(&format!("STREAM.CREATE.{stream}"), &config)
        .map_err(CliError::js(format!("could not create bucket {bucket}")))?;
    session.print(&created.json, || format!("Bucket {bucket} was created\n\n{}", details(&created)))
}

fn fetch(session: &mut Session, bucket: &str) -> Result<Answer<StreamInfo>, CliError> {
    session
        .ask(&format!("STREAM.INFO.{}", stream_name(bucket)?), &Value::Null)
        .map_err(CliError::js(format!("bucket {bucket}")))
        .map_err(|err| explained(session, bucket, err))
}

/// Prints a bucket's configuration and state.
pub fn info(bucket: &str, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    let info = fetch(&mut session, bucket)?;
    session.print(&info.json, || details(&info))
}

fn details(info: &StreamInfo) -> String {
    let (config, state) = (&info.config, &info.state);
    let name = config.name.as_str();
    let mut details = DetailView::default();
    details.heading(&format!("Bucket {}", name.strip_prefix("OBJ_").unwrap_or(name)));
    details.line_if("Description", show::filled(&config.description));
    details.line("Size", show::bytes(state.bytes));
    details.line("Largest size", limit_of(config.max_bytes, show::bytes));
    details.line("Time to live", limit_of(config.max_age, show::duration));
    details.line("Sealed", show::yes(config.sealed));
    details.line("Storage", config.storage.as_str());
    details.line("Replicas", config.num_replicas.to_string());
    details.line("Created", show::moment(info.created));
    details.line("Stream", name);
    for (key, value) in &config.metadata {
        details.line(&format!("Metadata {key}"), value.as_str());
    }
    details.render()
}

/// Runs `object ls`.
pub fn ls(args: &LsArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    match &args.bucket {
        Some(bucket) => list_files(&mut session, bucket, args.names),
        None => list_buckets(&mut session, args.names),
    }
}

fn list_buckets(session: &mut Session, names_only: bool) -> Result<(), CliError> {
    let mut buckets: Vec<Answer<StreamInfo>> = session
        .list_of("STREAM.LIST", "streams", &json!({ "subject": "$O.*.C.>" }))
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
        let mut table = Table::new(&["Bucket", "Description", "Created", "Size", "Last change"]);
        let now = OffsetDateTime::now_utc();
        for info in &buckets {
            table.row(vec![
                bucket_of(info).unwrap_or_default().to_owned(),
                info.config.description.clone(),
                show::moment(info.created),
                show::bytes(info.state.bytes),
                show::ago(info.state.last_ts, now),
            ]);
        }
        table.render()
    })
}

/// The bucket of a stream.
fn bucket_of(info: &StreamInfo) -> Option<&str> {
    info.config.name.strip_prefix("OBJ_")
}

/// Metadata of a file in a message, with the time at which it was stored.
fn meta_of(delivered: &Delivered) -> Option<ObjectInfo> {
    let meta: ObjectInfo = serde_json::from_slice(&delivered.message.payload).ok()?;
    let stored = i64::try_from(delivered.time.unix_timestamp_nanos()).ok()?;
    Some(ObjectInfo { mtime: Time(stored), ..meta })
}

fn list_files(session: &mut Session, bucket: &str, names_only: bool) -> Result<(), CliError> {
    let filters = [format!("$O.{bucket}.M.>")];
    let from = From::LastPerSubject;
    let mut follower = Follower::open(session, &stream_name(bucket)?, &filters, from)
        .map_err(|err| explained(session, bucket, err))?;
    let mut files = Vec::new();
    let mut left = follower.pending_at_start;
    while left > 0 {
        let Some(delivered) = follower.next(session, Instant::now() + session.timeout)? else {
            follower.check_next(session)?;
            let text = format!("bucket {bucket} delivers no more, {left} files are missing");
            return Err(CliError::Failed(text));
        };
        left = delivered.pending;
        files.extend(meta_of(&delivered).filter(|meta| !meta.deleted));
    }
    follower.close(session);
    files.sort_by(|a, b| a.name.cmp(&b.name));
    if names_only {
        let names: Vec<&str> = files.iter().map(|meta| meta.name.as_str()).collect();
        return session.print(&json!(names), || names.iter().map(|n| format!("{n}\n")).collect());
    }
    session.print(&json!(files), || {
        if files.is_empty() {
            return format!("No files in bucket {bucket}\n");
        }
        let mut table = Table::new(&["Name", "Size", "Time"]);
        for meta in &files {
            let size = show::bytes(meta.size);
            table.row(vec![meta.name.clone(), size, show::moment(meta.mtime)]);
        }
        table.render()
    })
}

/// Deletes a bucket.
pub fn rm(bucket: &str, force: bool, connect: &ConnectArgs) -> Result<(), CliError> {
    let stream = stream_name(bucket)?;
    let mut session = Session::open(connect)?;
    confirm(&format!("Delete bucket {bucket} and all its files?"), force)?;
    let reply = session
        .api(&format!("STREAM.DELETE.{stream}"), &Value::Null)
        .map_err(CliError::js(format!("could not delete bucket {bucket}")))
        .map_err(|err| explained(&mut session, bucket, err))?;
    session.print(&reply, || format!("Bucket {bucket} was deleted\n"))
}

/// Runs `object seal`.
pub fn seal(args: &SealArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    let mut config = fetch(&mut session, &args.bucket)?.json["config"].take();
    confirm(&format!("Seal bucket {}? This cannot be undone.", args.bucket), args.force)?;
    config["sealed"] = true.into();
    let updated = session
        .api(&format!("STREAM.UPDATE.{}", stream_name(&args.bucket)?), &config)
        .map_err(CliError::js(format!("could not seal bucket {}", args.bucket)))?;
    session.print(&updated, || format!("Bucket {} was sealed\n", args.bucket))
}

/// Runs `object watch` until the count is reached or the connection ends.
pub fn watch(args: &WatchArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let (bucket, stream) = (&args.bucket, stream_name(&args.bucket)?);
    let mut session = Session::open(connect)?;
    let filters = [format!("$O.{bucket}.M.>")];
    let mut follower = Follower::open(&mut session, &stream, &filters, From::LastPerSubject)
        .map_err(|err| explained(&mut session, bucket, err))?;
    let mut shown = 0;
    while args.count.is_none_or(|count| shown < count) {
        let wait = Instant::now() + WAIT_STEP;
        let Some(delivered) = follower.next(&mut session, wait)? else { continue };
        let Some(meta) = meta_of(&delivered) else { continue };
        shown += 1;
        if session.json {
            writeln!(io::stdout(), "{}", json!(meta))?;
            continue;
        }
        let (time, name) = (show::clock(delivered.time), &meta.name);
        if meta.deleted {
            writeln!(io::stdout(), "[{time}] DEL {bucket} > {name}")?;
        } else {
            let size = show::bytes(meta.size);
            writeln!(io::stdout(), "[{time}] PUT {bucket} > {name}: {size}")?;
        }
    }
    follower.close(&mut session);
    Ok(())
}
