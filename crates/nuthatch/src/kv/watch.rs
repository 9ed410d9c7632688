//! Many entries: `kv watch`, `ls` and `history`.

use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use clap::Args;
use nuthatch_client::OwnedMessage;
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::js::Operation;
use serde_json::{Value, json};

use super::{KeyArgs, bucket, explained, stream_name};
use crate::core::subscribe::WAIT_STEP;
use crate::error::CliError;
use crate::follow::{Delivered, Follower, From};
use crate::input::{check_subject, rfc3339};
use crate::message::put_body;
use crate::session::Session;
use crate::show::{self, Table};

/// Values are cut to this many characters where several stand below each other.
const SHOWN_CHARS: usize = 60;

/// Options of `kv watch`.
#[derive(Debug, Clone, Args)]
pub struct WatchArgs {
    /// Bucket name
    bucket: String,
    /// Key, wildcards allowed
    #[arg(default_value = ">")]
    key: String,
    /// Begin with all values that are kept, not with the newest of each key
    #[arg(long, conflicts_with = "updates")]
    history: bool,
    /// Show deletions (the default)
    #[arg(long, overrides_with = "no_deletes")]
    deletes: bool,
    /// Do not show deletions
    #[arg(long, overrides_with = "deletes")]
    no_deletes: bool,
    /// Show only what changes from now on
    #[arg(long)]
    updates: bool,
    /// Begin with this revision
    #[arg(long, conflicts_with_all = ["history", "updates"])]
    revision: Option<u64>,
    /// End after this many entries
    #[arg(long)]
    count: Option<u64>,
}

/// Options of `kv ls`.
#[derive(Debug, Clone, Args)]
pub struct LsArgs {
    /// Bucket whose keys are listed (default: all buckets)
    bucket: Option<String>,
    /// Only keys that match this, wildcards allowed
    #[arg(default_value = ">")]
    key: String,
    /// Print names only
    #[arg(long, short)]
    names: bool,
    /// Show revision and time of each key
    #[arg(long, short)]
    verbose: bool,
    /// Show values too
    #[arg(long, requires = "verbose")]
    display_value: bool,
}

/// Options of `kv history`.
#[derive(Debug, Clone, Args)]
pub struct HistoryArgs {
    #[command(flatten)]
    key: KeyArgs,
}

/// What an entry does to its key.
pub fn operation(message: &OwnedMessage) -> Operation {
    Operation::of(&message.view())
}

fn key_of<'a>(message: &'a OwnedMessage, bucket: &str) -> &'a str {
    let key = message.subject.strip_prefix("$KV.").and_then(|rest| rest.strip_prefix(bucket));
    key.and_then(|key| key.strip_prefix('.')).unwrap_or(&message.subject)
}

fn filter(bucket: &str, key: &str) -> Result<String, CliError> {
    check_subject(key, true)?;
    Ok(format!("$KV.{bucket}.{key}"))
}

/// Runs `kv watch` until the count is reached or the connection ends.
pub fn run(args: &WatchArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let (stream, filter) = (stream_name(&args.bucket)?, filter(&args.bucket, &args.key)?);
    let from = match (args.history, args.updates, args.revision) {
        (true, _, _) => From::All,
        (_, true, _) => From::New,
        (_, _, Some(revision)) => From::Sequence(revision),
        _ => From::LastPerSubject,
    };
    let mut session = Session::open(connect)?;
    let mut follower = Follower::open(&mut session, &stream, &[filter], from)
        .map_err(|err| explained(&mut session, &args.bucket, err))?;
    let mut shown = 0;
    while args.count.is_none_or(|count| shown < count) {
        let Some(entry) = follower.next(&mut session, Instant::now() + WAIT_STEP)? else {
            continue;
        };
        if args.no_deletes && operation(&entry.message) != Operation::Put {
            continue;
        }
        shown += 1;
        print_entry(&session, &args.bucket, &entry)?;
    }
    follower.close(&mut session);
    Ok(())
}

fn entry_json(bucket: &str, entry: &Delivered) -> Value {
    let mut json = json!({
        "bucket": bucket, "key": key_of(&entry.message, bucket), "revision": entry.seq,
        "operation": operation(&entry.message).as_str(), "created": rfc3339(entry.time),
    });
    put_body(&mut json, &entry.message.payload);
    json
}

fn print_entry(session: &Session, bucket: &str, entry: &Delivered) -> io::Result<()> {
    if session.json {
        return writeln!(io::stdout(), "{}", entry_json(bucket, entry));
    }
    let (time, key) = (show::clock(entry.time), key_of(&entry.message, bucket));
    let operation = operation(&entry.message);
    let value = match operation {
        Operation::Put => format!(": {}", value_text(&entry.message.payload)),
        Operation::Delete | Operation::Purge => String::new(),
    };
    let operation = operation.as_str();
    writeln!(io::stdout(), "[{time}] {operation} {bucket} > {key}{value}")
}

/// A value on one line.
fn value_text(value: &[u8]) -> String {
    let Ok(text) = std::str::from_utf8(value) else {
        return format!("({} bytes, not text)", value.len());
    };
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().count() <= SHOWN_CHARS {
        return text;
    }
    text.chars().take(SHOWN_CHARS - 1).collect::<String>() + "…"
}

/// All entries there are now.
fn collect(
    session: &mut Session,
    bucket: &str,
    key: &str,
    from: From,
) -> Result<Vec<Delivered>, CliError> {
    let filter = filter(bucket, key)?;
    let mut follower = Follower::open(session, &stream_name(bucket)?, &[filter], from)
        .map_err(|err| explained(session, bucket, err))?;
    let mut entries = Vec::new();
    let mut left = follower.pending_at_start;
    while left > 0 {
        let wait = session.timeout.max(Duration::from_secs(1));
        let Some(entry) = follower.next(session, Instant::now() + wait)? else {
            follower.check_next(session)?;
            let text = format!("bucket {bucket} delivers no more, {left} entries are missing");
            return Err(CliError::Failed(text));
        };
        left = entry.pending;
        entries.push(entry);
    }
    follower.close(session);
    Ok(entries)
}

/// Runs `kv ls`.
pub fn ls(args: &LsArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let Some(bucket) = &args.bucket else { return bucket::ls(args.names, connect) };
    let mut session = Session::open(connect)?;
    let mut entries = collect(&mut session, bucket, &args.key, From::LastPerSubject)?;
    entries.retain(|entry| operation(&entry.message) == Operation::Put);
    entries.sort_by(|a, b| a.message.subject.cmp(&b.message.subject));
    let json = if args.verbose {
        entries.iter().map(|entry| entry_json(bucket, entry)).collect()
    } else {
        entries.iter().map(|entry| Value::from(key_of(&entry.message, bucket))).collect()
    };
    session.print(&json, || {
        if entries.is_empty() && !args.names {
            return format!("No keys in bucket {bucket}\n");
        }
        if args.verbose {
            return table(bucket, &entries, args.display_value, false);
        }
        entries.iter().map(|entry| format!("{}\n", key_of(&entry.message, bucket))).collect()
    })
}

/// Runs `kv history`.
pub fn history(args: &HistoryArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let (bucket, key) = (&args.key.bucket, &args.key.key);
    args.key.subject()?;
    let mut session = Session::open(connect)?;
    let entries = collect(&mut session, bucket, key, From::All)?;
    if entries.is_empty() {
        return Err(CliError::NotFound(format!("bucket {bucket} has no key {key}")));
    }
    let json = entries.iter().map(|entry| entry_json(bucket, entry)).collect();
    session.print(&json, || table(bucket, &entries, true, true))
}

fn table(bucket: &str, entries: &[Delivered], values: bool, operations: bool) -> String {
    let mut titles = vec!["Key", "Revision", "Created"];
    titles.extend(operations.then_some("Operation"));
    titles.extend(values.then_some("Value"));
    let mut table = Table::new(&titles);
    for entry in entries {
        let mut row = vec![
            key_of(&entry.message, bucket).to_owned(),
            entry.seq.to_string(),
            show::clock(entry.time),
        ];
        row.extend(operations.then(|| operation(&entry.message).as_str().to_owned()));
        row.extend(values.then(|| value_text(&entry.message.payload)));
        table.row(row);
    }
    table.render()
}
