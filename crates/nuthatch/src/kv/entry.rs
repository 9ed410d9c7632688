//! Single keys: `kv put`, `create`, `update`, `get`, `del`, `purge` and `revert`.

use std::io::{self, Write};
use std::time::Duration;

use clap::Args;
use nuthatch_client::OwnedMessage;
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::js::{NO_MESSAGE, Operation, WRONG_LAST_SEQUENCE, header_block};
use nuthatch_client::units::parse_duration;
use nuthatch_protocol::js::{GetRequest, Time};
use serde_json::{Value, json};

use super::watch::operation;
use super::{KeyArgs, explained, stream_name};
use crate::error::CliError;
use crate::input::read_body;
use crate::message::put_body;
use crate::session::{Session, confirm};
use crate::show;
use crate::stream::contents::stored;

/// Names the operation of an entry that is no value.
const OPERATION: &str = "KV-Operation";
/// The revision that a key must still have.
const EXPECTED: &str = "Nats-Expected-Last-Subject-Sequence";

/// Options of `kv put`.
#[derive(Debug, Clone, Args)]
pub struct PutArgs {
    #[command(flatten)]
    key: KeyArgs,
    /// Value; "-", or none when the input is no terminal, reads it from the standard input
    value: Option<String>,
}

/// Options of `kv create`.
#[derive(Debug, Clone, Args)]
pub struct CreateArgs {
    #[command(flatten)]
    key: KeyArgs,
    /// Value; "-", or none when the input is no terminal, reads it from the standard input
    value: Option<String>,
    /// Forget the key after this long
    #[arg(long, value_parser = parse_duration)]
    ttl: Option<Duration>,
}

/// Options of `kv update`.
#[derive(Debug, Clone, Args)]
pub struct UpdateArgs {
    #[command(flatten)]
    key: KeyArgs,
    /// Value
    value: String,
    /// The revision that is replaced
    revision: u64,
}

/// Options of `kv get`.
#[derive(Debug, Clone, Args)]
pub struct GetArgs {
    #[command(flatten)]
    key: KeyArgs,
    /// The value of this revision instead of the newest one
    #[arg(long)]
    revision: Option<u64>,
    /// Print the value only, byte for byte
    #[arg(long, short)]
    raw: bool,
}

/// Options of `kv del`.
#[derive(Debug, Clone, Args)]
pub struct DelArgs {
    /// Bucket name
    bucket: String,
    /// Key; without one the whole bucket is deleted
    key: Option<String>,
    /// Do not ask
    #[arg(long, short)]
    force: bool,
}

/// Options of `kv purge`.
#[derive(Debug, Clone, Args)]
pub struct PurgeArgs {
    #[command(flatten)]
    key: KeyArgs,
    /// Forget the marker of the deletion after this long
    #[arg(long, value_parser = parse_duration)]
    ttl: Option<Duration>,
    /// Do not ask
    #[arg(long, short)]
    force: bool,
}

/// Options of `kv revert`.
#[derive(Debug, Clone, Args)]
pub struct RevertArgs {
    #[command(flatten)]
    key: KeyArgs,
    /// The revision whose value becomes the newest
    revision: u64,
    /// Do not ask
    #[arg(long, short)]
    force: bool,
}

/// Publishes an entry and returns its revision.
fn write(
    session: &mut Session,
    key: &KeyArgs,
    headers: &[(&str, &str)],
    value: &[u8],
) -> Result<u64, CliError> {
    key.stream()?;
    let target = key.target(session)?;
    crate::core::check_size(session, value.len())?;
    let ack = session
        .publish_stored(&target, &header_block(headers), value)
        .map_err(|err| explained(session, &key.bucket, err))?;
    Ok(show::number(&ack["seq"]))
}

/// Says what has become of a key that was to be replaced in another revision.
fn not_replaced(session: &mut Session, key: &KeyArgs, expected: u64, err: CliError) -> CliError {
    match err {
        CliError::Refused(error) if error.err_code == WRONG_LAST_SEQUENCE => {}
        other => return other,
    }
    let (name, bucket) = (&key.key, &key.bucket);
    let now = match fetch(session, key, None) {
        Ok(last) if operation(&last.message) == Operation::Put => {
            format!("has revision {}", last.revision)
        }
        Ok(last) => format!("was deleted in revision {}", last.revision),
        Err(CliError::NotFound(_)) => "has no value".into(),
        Err(other) => return other,
    };
    CliError::Failed(format!(
        "nothing was written: key {name} of bucket {bucket} {now}, not revision {expected}"
    ))
}

fn report(session: &Session, key: &KeyArgs, revision: u64) -> Result<(), CliError> {
    let json = json!({ "bucket": key.bucket, "key": key.key, "revision": revision });
    session.print(&json, || format!("{} > {} has revision {revision}\n", key.bucket, key.key))
}

/// Runs `kv put`.
pub fn put(args: &PutArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    args.key.subject()?;
    let value = read_body(args.value.as_deref())?;
    let mut session = Session::open(connect)?;
    let revision = write(&mut session, &args.key, &[], &value)?;
    report(&session, &args.key, revision)
}

/// Runs `kv create`. A key that was deleted counts as one without a value.
pub fn create(args: &CreateArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    args.key.subject()?;
    let value = read_body(args.value.as_deref())?;
    let mut session = Session::open(connect)?;
    let ttl = args.ttl.map(ttl_text);
    let attempt = |session: &mut Session, expected: u64| {
        let expected = expected.to_string();
        let mut headers = vec![(EXPECTED, expected.as_str())];
        headers.extend(ttl.as_deref().map(|ttl| ("Nats-TTL", ttl)));
        write(session, &args.key, &headers, &value)
    };
    let revision = match attempt(&mut session, 0) {
        Err(CliError::Refused(err)) if err.err_code == WRONG_LAST_SEQUENCE => {
            let last = fetch(&mut session, &args.key, None)?;
            if operation(&last.message) == Operation::Put {
                let (key, revision) = (&args.key.key, last.revision);
                let text = format!("key {key} has a value already, of revision {revision}");
                return Err(CliError::Failed(text));
            }
            attempt(&mut session, last.revision)?
        }
        other => other?,
    };
    report(&session, &args.key, revision)
}

/// A time to live as its header has it; the server counts whole seconds.
fn ttl_text(ttl: Duration) -> String {
    format!("{}s", ttl.as_secs().max(1))
}

/// Runs `kv update`.
pub fn update(args: &UpdateArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    let expected = args.revision.to_string();
    let headers = [(EXPECTED, expected.as_str())];
    let revision = write(&mut session, &args.key, &headers, args.value.as_bytes())
        .map_err(|err| not_replaced(&mut session, &args.key, args.revision, err))?;
    report(&session, &args.key, revision)
}

/// An entry of a bucket.
struct Entry {
    message: OwnedMessage,
    revision: u64,
    time: Time,
}

/// The newest entry of a key, or that of a revision, whatever its operation.
fn fetch(session: &mut Session, key: &KeyArgs, revision: Option<u64>) -> Result<Entry, CliError> {
    let subject = key.subject()?;
    let which = match revision {
        Some(seq) => GetRequest { seq, ..GetRequest::default() },
        None => GetRequest { last_by_subj: subject.clone(), ..GetRequest::default() },
    };
    let missing = || {
        let of = revision.map(|seq| format!(" of revision {seq}")).unwrap_or_default();
        CliError::NotFound(format!("bucket {} has no key {}{of}", key.bucket, key.key))
    };
    let found = match stored(session, &key.stream()?, &which) {
        Err(CliError::Js { source, .. }) if source.err_code() == Some(NO_MESSAGE) => {
            return Err(missing());
        }
        other => other.map_err(|err| explained(session, &key.bucket, err))?,
    };
    if found.subject != subject {
        return Err(missing());
    }
    let (headers, payload) = (found.headers, found.data);
    let message = OwnedMessage { subject, reply: None, headers, payload };
    Ok(Entry { message, revision: found.seq, time: found.time })
}

/// [`fetch`] that takes a deleted key for a missing one.
fn fetch_value(
    session: &mut Session,
    key: &KeyArgs,
    revision: Option<u64>,
) -> Result<Entry, CliError> {
    let entry = fetch(session, key, revision)?;
    match operation(&entry.message) {
        Operation::Put => Ok(entry),
        Operation::Delete | Operation::Purge => {
            let (bucket, name, revision) = (&key.bucket, &key.key, entry.revision);
            let text = format!("key {name} of bucket {bucket} was deleted in revision {revision}");
            Err(CliError::NotFound(text))
        }
    }
}

/// Runs `kv get`.
pub fn get(args: &GetArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    let entry = fetch_value(&mut session, &args.key, args.revision)?;
    let (key, value) = (&args.key, &entry.message.payload);
    if session.json {
        let mut json = json!({
            "bucket": key.bucket, "key": key.key, "revision": entry.revision,
            "created": entry.time.to_string(),
        });
        put_body(&mut json, value);
        return session.print(&json, String::new);
    }
    let mut out = io::stdout().lock();
    if args.raw {
        out.write_all(value)?;
        return Ok(out.flush()?);
    }
    let (revision, time) = (entry.revision, show::moment(entry.time));
    writeln!(out, "{} > {} revision {revision}, created {time}\n", key.bucket, key.key)?;
    out.write_all(value)?;
    Ok(writeln!(out)?)
}

/// Runs `kv del`.
pub fn del(args: &DelArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let stream = stream_name(&args.bucket)?;
    let mut session = Session::open(connect)?;
    let bucket = &args.bucket;
    let Some(key) = &args.key else {
        confirm(&format!("Delete bucket {bucket} and all its keys?"), args.force)?;
        let reply = session
            .api(&format!("STREAM.DELETE.{stream}"), &Value::Null)
            .map_err(CliError::js(format!("could not delete bucket {bucket}")))
            .map_err(|err| explained(&mut session, bucket, err))?;
        return session.print(&reply, || format!("Bucket {bucket} was deleted\n"));
    };
    let key = KeyArgs { bucket: bucket.clone(), key: key.clone() };
    key.subject()?;
    confirm(&format!("Delete key {} of bucket {bucket}?", key.key), args.force)?;
    let revision = write(&mut session, &key, &[(OPERATION, "DEL")], b"")?;
    deleted(&session, &key, revision)
}

fn deleted(session: &Session, key: &KeyArgs, revision: u64) -> Result<(), CliError> {
    let json = json!({ "bucket": key.bucket, "key": key.key, "revision": revision });
    session.print(&json, || format!("Key {} of bucket {} was deleted\n", key.key, key.bucket))
}

/// Runs `kv purge`.
pub fn purge(args: &PurgeArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let key = &args.key;
    key.subject()?;
    let mut session = Session::open(connect)?;
    let question = format!("Delete key {} of bucket {} and its history?", key.key, key.bucket);
    confirm(&question, args.force)?;
    let ttl = args.ttl.map(ttl_text);
    let mut headers = vec![(OPERATION, "PURGE"), ("Nats-Rollup", "sub")];
    headers.extend(ttl.as_deref().map(|ttl| ("Nats-TTL", ttl)));
    let revision = write(&mut session, key, &headers, b"")?;
    deleted(&session, key, revision)
}

/// Runs `kv revert`.
pub fn revert(args: &RevertArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let key = &args.key;
    let mut session = Session::open(connect)?;
    let old = fetch_value(&mut session, key, Some(args.revision))?;
    let newest = fetch(&mut session, key, None)?;
    let question = format!("Give key {} its value of revision {} again?", key.key, args.revision);
    confirm(&question, args.force)?;
    let expected = newest.revision.to_string();
    let headers = [(EXPECTED, expected.as_str())];
    let revision = write(&mut session, key, &headers, &old.message.payload)
        .map_err(|err| not_replaced(&mut session, key, newest.revision, err))?;
    report(&session, key, revision)
}
