//! `stream backup` and `stream restore`: a stream in a directory, as the `nats` command writes and
//! reads it: `backup.json` and `stream.tar.s2` (whatever its format inside).

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use nuthatch_archive::{ArchiveError, Item};
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::js::{Answer, JsError, refusal};
use nuthatch_client::units::parse_number;
use nuthatch_client::{OwnedMessage, TransportError};
use nuthatch_protocol::js::{StreamInfo, StreamState};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::upload::upload;
use crate::error::{CliError, damage_note};
use crate::input::check_name;
use crate::progress::{Progress, Unit};
use crate::session::Session;
use crate::show;

/// File with the stream's metadata.
pub const META_FILE: &str = "backup.json";
/// File with the stream's content.
const DATA_FILE: &str = "stream.tar.s2";
/// What that file is called until it is whole.
const PART_FILE: &str = "stream.tar.s2.part";
/// Without a chunk for at least so long a backup has failed.
const IDLE_LIMIT: Duration = Duration::from_secs(10);

/// Options of `stream backup`.
#[derive(Debug, Clone, Args)]
pub struct BackupArgs {
    /// Stream name
    stream: String,
    /// Directory to create the backup in
    target: PathBuf,
    #[command(flatten)]
    how: BackupOptions,
    /// Bytes of the chunks that the server sends, such as 128KiB
    #[arg(long, value_name = "SIZE", default_value = "128KiB", value_parser = parse_number)]
    chunk_size: u64,
}

/// Options shared by backups of one stream and of all streams.
#[derive(Debug, Clone, Args)]
pub struct BackupOptions {
    /// Ask the server to check the stream first (nuthatch checks every message anyway)
    #[arg(long)]
    check: bool,
    /// Leave the consumers out
    #[arg(long)]
    no_consumers: bool,
    /// Replace a backup that is there
    #[arg(long, short)]
    force: bool,
    /// Accepted for scripts made for the nats command: consumers are part of a backup
    #[arg(long, hide = true, conflicts_with = "no_consumers")]
    consumers: bool,
    /// Do not show how far it is
    #[arg(long)]
    no_progress: bool,
}

impl BackupOptions {
    fn progress(&self, what: String) -> Progress {
        if self.no_progress { Progress::hidden() } else { Progress::new(what, Unit::Bytes) }
    }
}

/// Options of `stream restore`.
#[derive(Debug, Clone, Args)]
pub struct RestoreArgs {
    /// The directory that holds the backup
    file: PathBuf,
    /// File with another configuration for the stream (JSON; the name must be the same)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    place: PlaceOptions,
    /// Do not show how far it is
    #[arg(long)]
    no_progress: bool,
}

/// Placement of a restored stream.
#[derive(Debug, Clone, Default, Args)]
pub struct PlaceOptions {
    /// Place the stream in this cluster
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// Place the stream on servers with this tag (log:NAME chooses a log); may be repeated
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
    /// Number of copies, instead of what the backup says
    #[arg(long, value_name = "N")]
    pub replicas: Option<u64>,
}

impl PlaceOptions {
    /// Puts it into a configuration.
    pub fn apply(&self, config: &mut Value) {
        if self.cluster.is_some() || !self.tag.is_empty() {
            let cluster = self.cluster.clone().unwrap_or_default();
            config["placement"] = json!({ "cluster": cluster, "tags": self.tag });
        }
        if let Some(replicas) = self.replicas {
            config["num_replicas"] = replicas.into();
        }
    }
}

/// An error that names the file.
pub fn file_error<'a>(doing: &'a str, path: &'a Path) -> impl FnOnce(io::Error) -> CliError + 'a {
    move |err| CliError::Failed(format!("cannot {doing} {}: {err}", path.display()))
}

/// Counts of an archive's content.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Contents {
    /// Messages.
    pub messages: u64,
    /// Consumers.
    pub consumers: u64,
}

/// A reader that tells how far it is.
struct Counted<'a, R> {
    inner: R,
    progress: &'a Progress,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let got = self.inner.read(into)?;
        self.progress.add(got as u64);
        Ok(got)
    }
}

/// Reads a whole archive and counts what it holds.
fn count(path: &Path, stream: &str, progress: &Progress) -> Result<Contents, CliError> {
    let file = File::open(path).map_err(file_error("read", path))?;
    let file = Counted { inner: file, progress };
    let mut found = Contents::default();
    let counted = nuthatch_archive::read::<_, ArchiveError>(file, stream, &mut |item| {
        match item {
            Item::Message(_) => found.messages += 1,
            Item::Consumer(_) => found.consumers += 1,
            // Older archives bring deleted messages first and say so later.
            Item::Removed { .. } => {}
        }
        Ok(())
    });
    counted.map_err(|why| CliError::Failed(format!("{}: {why}", path.display())))?;
    Ok(found)
}

/// Runs `stream backup`.
pub fn backup(args: &BackupArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    let told = take(&mut session, &args.stream, &args.target, &args.how, args.chunk_size)?;
    session.print(&json!(told), || describe(&told))
}

/// What a backup holds.
#[derive(Debug, Serialize)]
pub struct BackupReport {
    stream: String,
    messages: u64,
    consumers: u64,
    bytes: u64,
    file: String,
}

/// Summary of a backup in a line.
pub fn describe(told: &BackupReport) -> String {
    format!(
        "Stream {}: {} and {} in {} of {}\n",
        told.stream,
        show::plural(told.messages, "message"),
        show::plural(told.consumers, "consumer"),
        show::bytes(told.bytes),
        told.file,
    )
}

/// Answer to `STREAM.SNAPSHOT`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct SnapshotAnswer {
    state: StreamState,
}

/// Backs one stream up and reads the backup once.
pub fn take(
    session: &mut Session,
    stream: &str,
    target: &Path,
    how: &BackupOptions,
    chunk_size: u64,
) -> Result<BackupReport, CliError> {
    check_name("stream", stream)?;
    // A backup holds what users sent, as the store does.
    nuthatch_server::private_files::keep_private();
    fs::create_dir_all(target).map_err(file_error("create", target))?;
    let (meta_path, data_path) = (target.join(META_FILE), target.join(DATA_FILE));
    let part_path = target.join(PART_FILE);
    if !how.force && (meta_path.exists() || data_path.exists()) {
        let text = format!("there is a backup in {}; pass --force", target.display());
        return Err(CliError::Usage(text));
    }
    if part_path.exists() {
        eprintln!(
            "nuthatch: {} is what an interrupted backup has left; it is begun anew",
            part_path.display()
        );
    }
    let request = json!({
        "deliver_subject": Value::Null, "no_consumers": how.no_consumers, "jsck": how.check,
        "chunk_size": chunk_size,
    });
    let progress = how.progress(format!("Backup of {stream}"));
    let (reply, bytes) = receive(session, stream, request, &part_path, &progress)?;
    drop(progress);
    let data = File::open(&part_path).map_err(file_error("read", &part_path))?;
    data.sync_all().map_err(file_error("write", &part_path))?;
    let reading = how.progress(format!("Reading the backup of {stream}"));
    reading.set_end(bytes);
    let found = count(&part_path, stream, &reading)?;
    drop(reading);
    // As it came: what is not known here is part of the backup.
    let meta = json!({ "config": reply.json["config"], "state": reply.json["state"] });
    put_in_place(target, &meta)?;
    Ok(BackupReport {
        stream: stream.to_owned(),
        messages: found.messages,
        consumers: found.consumers,
        bytes,
        file: data_path.display().to_string(),
    })
}

/// Gives a whole backup its names. The description of the stream comes last: a directory that has
/// one holds a whole backup, and one that was replaced has none meanwhile.
fn put_in_place(target: &Path, meta: &Value) -> Result<(), CliError> {
    let (meta_path, data_path) = (target.join(META_FILE), target.join(DATA_FILE));
    match fs::remove_file(&meta_path) {
        Err(err) if err.kind() != io::ErrorKind::NotFound => {
            return Err(file_error("replace", &meta_path)(err));
        }
        _ => {}
    }
    fs::rename(target.join(PART_FILE), &data_path).map_err(file_error("write", &data_path))?;
    let beside = target.join(format!("{META_FILE}.part"));
    let mut file = File::create(&beside).map_err(file_error("write", &beside))?;
    file.write_all(format!("{meta:#}\n").as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&beside, &meta_path))
        .and_then(|()| File::open(target)?.sync_all())
        .map_err(file_error("write", &meta_path))
}

/// Asks for a backup and writes its chunks to a file, until the message that says how it went;
/// returns the answer and the bytes. Answer and chunks may come in any order.
fn receive(
    session: &mut Session,
    stream: &str,
    mut request: Value,
    path: &Path,
    progress: &Progress,
) -> Result<(Answer<SnapshotAnswer>, u64), CliError> {
    let (chunks, answers) = (session.fresh_inbox(), session.fresh_inbox());
    request["deliver_subject"] = chunks.as_str().into();
    let subject = format!("{}.STREAM.SNAPSHOT.{stream}", session.api_prefix);
    let sids = [session.client.subscribe(&chunks, "")?, session.client.subscribe(&answers, "")?];
    let body = request.to_string();
    let writer = &mut session.client.writer;
    writer.publish(subject.as_bytes(), answers.as_bytes(), b"", body.as_bytes())?;
    writer.flush()?;
    let (mut answer, mut is_ended, mut bytes) = (None::<Answer<SnapshotAnswer>>, false, 0);
    let mut data = None;
    let answer = loop {
        if let (Some(answer), true) = (&answer, is_ended) {
            break answer.clone();
        }
        let message = next(session, stream)?;
        if message.subject == answers {
            let told = read_answer(&message).map_err(CliError::js(format!("stream {stream}")))?;
            // What is stored; it arrives packed, so that the end comes sooner.
            progress.set_end(told.state.bytes);
            answer = Some(told);
        } else if message.subject == chunks && message.payload.is_empty() {
            is_ended = true;
            check_end(stream, &message)?;
        } else if message.subject == chunks {
            let file = match &mut data {
                Some(file) => file,
                None => data.insert(File::create(path).map_err(file_error("write", path))?),
            };
            file.write_all(&message.payload).map_err(file_error("write", path))?;
            bytes += message.payload.len() as u64;
            progress.set(bytes);
            if let Some(reply) = &message.reply {
                session.client.writer.publish(reply.as_bytes(), b"", b"", b"")?;
                session.client.writer.flush()?;
            }
        }
    };
    sids.iter().try_for_each(|&sid| session.client.writer.unsubscribe(sid))?;
    Ok((answer, bytes))
}

fn next(session: &mut Session, stream: &str) -> Result<OwnedMessage, CliError> {
    let idle = IDLE_LIMIT.max(session.timeout);
    match session.client.next_message(Instant::now() + idle) {
        Err(TransportError::TimedOut(_)) => {
            let text = format!("backup of stream {stream}: nothing came for {idle:?}");
            Err(CliError::Failed(text))
        }
        other => Ok(other?),
    }
}

/// The answer to the request, or the error in it.
fn read_answer(message: &OwnedMessage) -> Result<Answer<SnapshotAnswer>, JsError> {
    if message.view().status() == Some(503) {
        return Err(JsError::NotEnabled);
    }
    let bad = |reason: String| JsError::BadReply { subject: "STREAM.SNAPSHOT".to_owned(), reason };
    let answer: Value =
        serde_json::from_slice(&message.payload).map_err(|err| bad(err.to_string()))?;
    match refusal(&message.payload) {
        Some(error) => Err(JsError::Api(error)),
        None => Answer::read("STREAM.SNAPSHOT", answer),
    }
}

/// Checks the last message of a backup.
fn check_end(stream: &str, message: &OwnedMessage) -> Result<(), CliError> {
    let view = message.view();
    match view.status() {
        None | Some(204) => Ok(()),
        Some(code) => {
            let why = view.status_text();
            let note = damage_note(why);
            let text = format!("backup of stream {stream}: {code} {why}{note}");
            Err(CliError::Failed(text))
        }
    }
}

/// Reads what a backup says about its stream.
fn read_meta(dir: &Path) -> Result<Value, CliError> {
    let path = dir.join(META_FILE);
    match fs::read(&path) {
        Ok(bytes) => parse_json(&path, &bytes),
        Err(err) if err.kind() == io::ErrorKind::NotFound && is_unfinished(dir) => {
            Err(CliError::NotFound(format!(
                "the backup in {} was interrupted and is not whole; make it again",
                dir.display()
            )))
        }
        Err(err) => Err(file_error("read", &path)(err)),
    }
}

/// True if a backup was begun in a directory and not ended.
fn is_unfinished(dir: &Path) -> bool {
    [PART_FILE, DATA_FILE].iter().any(|name| dir.join(name).exists())
}

fn parse_json(path: &Path, bytes: &[u8]) -> Result<Value, CliError> {
    serde_json::from_slice(bytes)
        .map_err(|err| CliError::Failed(format!("{}: {err}", path.display())))
}

/// Runs `stream restore`.
pub fn restore(args: &RestoreArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    let other = match &args.config {
        None => None,
        Some(path) => {
            let bytes = fs::read(path).map_err(file_error("read", path))?;
            Some(parse_json(path, &bytes)?)
        }
    };
    let tells = !args.no_progress;
    let told = bring(&mut session, &args.file, other, &args.place, tells)?;
    session.print(&told.json, || restored(&told))
}

/// Summary of a restore in a line.
pub fn restored(told: &StreamInfo) -> String {
    format!(
        "Stream {}: {}, sequences {} to {}, {}\n",
        told.config.name,
        show::plural(told.state.messages, "message"),
        told.state.first_seq,
        told.state.last_seq,
        show::plural(told.state.consumer_count, "consumer"),
    )
}

/// Restores one stream from its directory; `tells` how far it is, where somebody looks.
pub fn bring(
    session: &mut Session,
    dir: &Path,
    other_config: Option<Value>,
    place: &PlaceOptions,
    tells: bool,
) -> Result<Answer<StreamInfo>, CliError> {
    let meta = read_meta(dir)?;
    let name = show::text(&meta["config"]["name"]);
    let mut config = other_config.unwrap_or_else(|| meta["config"].clone());
    if config["name"] != meta["config"]["name"] {
        let text = format!("the backup is of stream {name}; its name cannot be changed");
        return Err(CliError::Usage(text));
    }
    check_name("stream", &name)?;
    place.apply(&mut config);
    let path = dir.join(DATA_FILE);
    let file = File::open(&path).map_err(file_error("read", &path))?;
    let what = format!("Restore of {name}");
    let progress = if tells { Progress::new(what, Unit::Bytes) } else { Progress::hidden() };
    progress.set_end(file.metadata().map_or(0, |facts| facts.len()));
    let mut input = BufReader::new(Counted { inner: file, progress: &progress });
    upload(session, &config, &meta["state"], |out| {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let got = input.read(&mut buffer).map_err(file_error("read", &path))?;
            if got == 0 {
                return Ok(());
            }
            out.write_all(&buffer[..got])?;
        }
    })
}
