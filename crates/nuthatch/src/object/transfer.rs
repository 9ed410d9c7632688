//! Files in and out: `object put`, `get` and `rm`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE;
use clap::Args;
use nuthatch_client::RequestError;
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::js::{ObjectInfo, ObjectOptions};
use nuthatch_protocol::js::{PurgeAnswer, PurgeRequest, Time};
use ring::digest::{Context, SHA256};
use serde_json::json;

use super::{meta, stream_name};
use crate::error::CliError;
use crate::follow::{Follower, From};
use crate::input::split_header;
use crate::session::{Session, check_ack, confirm};
use crate::show;
use crate::template::random;

/// Bytes of a chunk, as other clients choose.
const CHUNK_BYTES: usize = 128 * 1024;

/// Chunks sent before the first of them must have been acknowledged.
const WINDOW: usize = 16;

/// Length of a file's random id.
const ID_LETTERS: usize = 22;

/// Options of `object put`.
#[derive(Debug, Clone, Args)]
pub struct PutArgs {
    /// Bucket name
    bucket: String,
    /// File; "-" or none is the standard input, which needs --name
    file: Option<PathBuf>,
    /// Name in the bucket (default: the path as given)
    #[arg(long)]
    name: Option<String>,
    /// Description
    #[arg(long)]
    description: Option<String>,
    /// Header as NAME:VALUE; may be repeated
    #[arg(long, short = 'H', value_name = "NAME:VALUE")]
    header: Vec<String>,
    /// Replace a file of this name without asking
    #[arg(long, short)]
    force: bool,
    /// Accepted for scripts made for the nats command: there is no progress bar
    #[arg(long)]
    no_progress: bool,
}

/// Options of `object get`.
#[derive(Debug, Clone, Args)]
pub struct GetArgs {
    /// Bucket name
    bucket: String,
    /// Name in the bucket
    file: String,
    /// Where to write it (default: its name without directories); "-" is the standard output
    #[arg(long, short = 'O', value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace an existing file without asking
    #[arg(long, short)]
    force: bool,
    /// Accepted for scripts made for the nats command: there is no progress bar
    #[arg(long)]
    no_progress: bool,
}

fn digest_text(context: Context) -> String {
    format!("SHA-256={}", URL_SAFE.encode(context.finish()))
}

fn file_error<'a>(doing: &'a str, path: &'a Path) -> impl FnOnce(io::Error) -> CliError + 'a {
    move |err| CliError::Failed(format!("cannot {doing} {}: {err}", path.display()))
}

/// Runs `object put`.
pub fn put(args: &PutArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    stream_name(&args.bucket)?;
    let path = args.file.as_deref().filter(|path| *path != Path::new("-"));
    let name = match (&args.name, path) {
        (Some(name), _) => name.clone(),
        (None, Some(path)) => path.to_string_lossy().into_owned(),
        (None, None) => {
            return Err(CliError::Usage(
                "the standard input has no name; give one with --name".into(),
            ));
        }
    };
    let mut input: Box<dyn Read> = match path {
        Some(path) => Box::new(File::open(path).map_err(file_error("read", path))?),
        None => Box::new(io::stdin().lock()),
    };
    let mut headers = BTreeMap::<String, Vec<String>>::new();
    for header in &args.header {
        let (name, value) = split_header(header)?;
        headers.entry(name.to_owned()).or_default().push(value.to_owned());
    }
    let mut session = Session::open(connect)?;
    let before = meta::find(&mut session, &args.bucket, &name)?;
    let old = before.filter(|meta| !meta.deleted);
    if old.is_some() {
        confirm(&format!("Replace {name} in bucket {}?", args.bucket), args.force)?;
    }
    let max_chunk_size = Some(CHUNK_BYTES as u64);
    let mut fresh = ObjectInfo {
        name,
        bucket: args.bucket.clone(),
        description: args.description.clone().unwrap_or_default(),
        headers,
        options: Some(ObjectOptions { max_chunk_size, link: None }),
        ..ObjectInfo::default()
    };
    store(&mut session, &args.bucket, &mut input, &mut fresh)?;
    if let Some(old) = old {
        drop_chunks(&mut session, &args.bucket, &old)?;
    }
    // Readers take the time from the message, so what was written says nothing.
    let mut json = json!(fresh);
    json.as_object_mut().map(|fields| fields.remove("mtime"));
    session.print(&json, || meta::render(&fresh))
}

/// Sends the chunks, then what is known about the file. When that fails, the chunks go again.
fn store(
    session: &mut Session,
    bucket: &str,
    input: &mut dyn Read,
    fresh: &mut ObjectInfo,
) -> Result<(), CliError> {
    let id = random(ID_LETTERS).map_err(CliError::Failed)?;
    fresh.nuid.clone_from(&id);
    let sent = match send_chunks(session, &meta::chunk_subject(bucket, &id), input) {
        Ok(sent) => sent,
        Err(error) => {
            // The first error is the one to report; chunks that stay are unreachable but harmless.
            let _ = drop_chunks(session, bucket, fresh);
            return Err(error);
        }
    };
    (fresh.size, fresh.chunks, fresh.digest) = (sent.size, sent.chunks, sent.digest);
    // If that fails it may be stored all the same, so the chunks stay.
    meta::put(session, bucket, fresh)
}

struct Sent {
    size: u64,
    chunks: u64,
    digest: String,
}

fn send_chunks(
    session: &mut Session,
    subject: &str,
    input: &mut dyn Read,
) -> Result<Sent, CliError> {
    let max = session.client.info().max_payload;
    let chunk_bytes = if max == 0 { CHUNK_BYTES } else { CHUNK_BYTES.min(max) };
    let inbox = session.fresh_inbox();
    let sid = session.client.subscribe(&inbox, "")?;
    let unreadable = |err| CliError::Failed(format!("cannot read the file to store: {err}"));
    let mut digest = Context::new(&SHA256);
    let (mut size, mut chunks, mut unanswered) = (0u64, 0u64, 0usize);
    let mut chunk = Vec::with_capacity(chunk_bytes);
    loop {
        chunk.clear();
        (&mut *input).take(chunk_bytes as u64).read_to_end(&mut chunk).map_err(unreadable)?;
        if chunk.is_empty() {
            break;
        }
        digest.update(&chunk);
        size += chunk.len() as u64;
        chunks += 1;
        session.client.writer.publish(subject.as_bytes(), inbox.as_bytes(), b"", &chunk)?;
        unanswered += 1;
        if unanswered == WINDOW {
            take_ack(session)?;
            unanswered -= 1;
        }
    }
    for _ in 0..unanswered {
        take_ack(session)?;
    }
    session.client.writer.unsubscribe(sid)?;
    Ok(Sent { size, chunks, digest: digest_text(digest) })
}

fn take_ack(session: &mut Session) -> Result<(), CliError> {
    session.client.writer.flush()?;
    let ack = session.client.next_message(Instant::now() + session.timeout)?;
    if ack.view().status() == Some(503) {
        return Err(RequestError::NoResponders("the bucket".into()).into());
    }
    check_ack(&ack.payload).map(|_| ())
}

fn drop_chunks(session: &mut Session, bucket: &str, meta: &ObjectInfo) -> Result<(), CliError> {
    if meta.nuid.is_empty() {
        return Ok(());
    }
    let filter = meta::chunk_subject(bucket, &meta.nuid);
    let request = PurgeRequest { filter, ..PurgeRequest::default() };
    session
        .ask::<PurgeAnswer>(&format!("STREAM.PURGE.{}", stream_name(bucket)?), &request)
        .map(|_| ())
        .map_err(CliError::js("could not remove the chunks of the old file"))
}

/// Runs `object get`.
pub fn get(args: &GetArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    let meta = meta::resolve(&mut session, &args.bucket, &args.file)?;
    if args.output.as_deref() == Some(Path::new("-")) {
        return receive(&mut session, &meta, &mut io::stdout().lock());
    }
    let base = Path::new(&args.file).file_name().map(PathBuf::from);
    let path = args.output.clone().or(base).ok_or_else(|| {
        CliError::Usage(format!("{:?} makes no file name; give one with --output", args.file))
    })?;
    if path.exists() {
        confirm(&format!("Replace {}?", path.display()), args.force)?;
    }
    // Written beside and renamed, so that a file is whole and right or not there.
    let beside = path.with_extension(format!("part-{}", std::process::id()));
    let mut file = File::create(&beside).map_err(file_error("write", &beside))?;
    let received = receive(&mut session, &meta, &mut file).and_then(|()| {
        file.sync_all()
            .and_then(|()| fs::rename(&beside, &path))
            .map_err(file_error("write", &path))
    });
    if received.is_err() {
        let _ = fs::remove_file(&beside);
    }
    received?;
    let (size, name) = (show::bytes(meta.size), &meta.name);
    session.print(&json!(meta), || format!("Wrote {size} of {name} to {}\n", path.display()))
}

/// Writes a file's chunks in order, and checks their number, size and digest.
fn receive(session: &mut Session, meta: &ObjectInfo, out: &mut dyn Write) -> Result<(), CliError> {
    let ObjectInfo { bucket, name, size, chunks, .. } = meta;
    let (size, chunks) = (*size, *chunks);
    let mut digest = Context::new(&SHA256);
    let mut received = 0u64;
    if size > 0 {
        let filter = meta::chunk_subject(bucket, &meta.nuid);
        let stream = stream_name(bucket)?;
        let mut follower = Follower::open(session, &stream, &[filter], From::All)?;
        for number in 0..chunks {
            let deadline = Instant::now() + session.timeout;
            let Some(chunk) = follower.next(session, deadline)? else {
                follower.check_next(session)?;
                let text = format!("only {number} of {chunks} chunks of {name} came in time");
                return Err(CliError::Failed(text));
            };
            digest.update(&chunk.message.payload);
            received += chunk.message.payload.len() as u64;
            out.write_all(&chunk.message.payload)?;
        }
        follower.close(session);
    }
    out.flush()?;
    let expected = &meta.digest;
    let found = digest_text(digest);
    if received != size || (!expected.is_empty() && *expected != found) {
        let text = format!(
            "{name} is damaged: expected {size} bytes with {expected}, received {received} with {found}"
        );
        return Err(CliError::Failed(text));
    }
    Ok(())
}

/// Deletes a file.
pub fn rm(bucket: &str, file: &str, force: bool, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    let mut meta = meta::get(&mut session, bucket, file)?;
    confirm(&format!("Delete {file} of bucket {bucket}?"), force)?;
    let old = meta.clone();
    (meta.deleted, meta.size, meta.chunks, meta.mtime) = (true, 0, 0, Time::ZERO);
    meta.digest.clear();
    meta::put(&mut session, bucket, &meta)?;
    drop_chunks(&mut session, bucket, &old)?;
    session.print(&json!(meta), || format!("{file} of bucket {bucket} was deleted\n"))
}
