//! `stream import`: streams of a nats-server's store directory, or of a running server
//! ([`super::live_import`]), into a running server.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use nuthatch_archive::ArchiveError;
use nuthatch_archive::store::{self, StoredStream, StreamPlace};
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::js::Answer;
use nuthatch_protocol::js::StreamInfo;
use serde_json::json;

use super::backup::{PlaceOptions, file_error, restored};
use super::live_import::{self, LiveImportArgs};
use super::upload::upload;
use crate::error::CliError;
use crate::progress::{Progress, Unit};
use crate::session::{Session, print};
use crate::show;

/// Directories below one another in the store of a stream: it, `obs`, a consumer; with some to spare.
const DEPTH_MAX: u32 = 6;

/// Options of `stream import`.
#[derive(Debug, Clone, Args)]
pub struct ImportArgs {
    /// Streams to import (default: all)
    streams: Vec<String>,
    /// Store directory of a stopped nats-server, or that of an account or a stream in it
    #[arg(long, value_name = "DIR", required_unless_present_any = ["from", "cancel"])]
    from_dir: Option<PathBuf>,
    #[command(flatten)]
    bring: LiveImportArgs,
    /// Account in the store directory, when it holds several
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
    /// Leave the consumers out
    #[arg(long)]
    no_consumers: bool,
    #[command(flatten)]
    place: PlaceOptions,
}

/// Runs `stream import`.
pub fn import(args: &ImportArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    if args.from_dir.is_none() {
        return live_import::run(&args.streams, &args.bring, connect);
    }
    let places = chosen(args)?;
    let mut session = Session::open(connect)?;
    let (mut told, mut failures) = (Vec::new(), Vec::new());
    for place in places {
        match import_one(&mut session, args, &place) {
            Ok(info) => {
                if !session.json {
                    print(false, &info.json, || restored(&info))?;
                }
                told.push(info);
            }
            Err(why) => failures.push(format!("{}: {why}", place.dir.display())),
        }
    }
    if session.json {
        print(true, &json!(told), String::new)?;
    }
    if failures.is_empty() {
        return Ok(());
    }
    let text = format!("not imported ({} were):\n{}", told.len(), failures.join("\n"));
    Err(CliError::Failed(text))
}

fn name_of(place: &StreamPlace) -> String {
    place.dir.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// The streams that are meant.
fn chosen(args: &ImportArgs) -> Result<Vec<StreamPlace>, CliError> {
    let dir = args.from_dir.as_deref().unwrap_or_else(|| Path::new("."));
    let mut places = store::find(dir).map_err(failed)?;
    if let Some(account) = &args.account {
        places.retain(|place| place.account == *account);
    }
    let mut accounts: Vec<String> = places.iter().map(|place| place.account.clone()).collect();
    accounts.dedup();
    match accounts.len() {
        0 => {
            let text = format!("no account of that name has streams in {}", dir.display());
            return Err(CliError::NotFound(text));
        }
        1 => {}
        _ => {
            let text = format!(
                "the directory holds streams of several accounts: choose one with --account and \
                 connect as one of its users: {}",
                accounts.join(", ")
            );
            return Err(CliError::Usage(text));
        }
    }
    if args.streams.is_empty() {
        return Ok(places);
    }
    if let Some(missing) =
        args.streams.iter().find(|name| !places.iter().any(|place| name_of(place) == **name))
    {
        return Err(CliError::NotFound(format!("there is no stream {missing} in the directory")));
    }
    places.retain(|place| args.streams.contains(&name_of(place)));
    Ok(places)
}

fn failed(error: ArchiveError) -> CliError {
    CliError::Failed(error.to_string())
}

/// Refuses a directory with a pipe, a device or a loop of links in it: reading one may never end.
fn only_files(dir: &Path, depth: u32) -> Result<(), CliError> {
    let odd = |path: &Path, what: &str| {
        CliError::Failed(format!("{} is {what}; nothing of it was read", path.display()))
    };
    if depth == 0 {
        return Err(odd(dir, "nested deeper than the store of a stream"));
    }
    for entry in fs::read_dir(dir).map_err(file_error("list", dir))? {
        let path = entry.map_err(file_error("list", dir))?.path();
        // Links are followed, as they are when the file is read.
        let kind = fs::metadata(&path).map_err(file_error("look at", &path))?.file_type();
        if kind.is_dir() {
            only_files(&path, depth - 1)?;
        } else if !kind.is_file() {
            return Err(odd(&path, "neither a file nor a directory"));
        }
    }
    Ok(())
}

fn import_one(
    session: &mut Session,
    args: &ImportArgs,
    place: &StreamPlace,
) -> Result<Answer<StreamInfo>, CliError> {
    only_files(&place.dir, DEPTH_MAX)?;
    let mut stored = StoredStream::open(place).map_err(failed)?;
    if args.no_consumers {
        stored.consumers.clear();
        stored.state.consumer_count = 0;
    }
    let mut config = json!(stored.config);
    // One server has one copy, whatever the cluster had.
    config["num_replicas"] = 1.into();
    args.place.apply(&mut config);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_ns = i64::try_from(now.as_nanos()).unwrap_or(i64::MAX);
    let progress = Progress::new(format!("Import of {}", name_of(place)), Unit::Bytes);
    // Of what is sent nobody knows the size before; it is about that of the messages.
    progress.set_end(stored.state.bytes);
    let info = upload(session, &config, &json!(stored.state), |out| {
        let mut out = Told { inner: out, progress: &progress };
        stored.write(&mut out, now_ns).map(drop).map_err(failed)
    })?;
    verify(&stored, &info)?;
    Ok(info)
}

/// A writer that tells how far it is.
struct Told<'a, W> {
    inner: W,
    progress: &'a Progress,
}

impl<W: Write> Write for Told<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.progress.add(written as u64);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Whether what the server has is what the files hold.
fn verify(stored: &StoredStream, info: &StreamInfo) -> Result<(), CliError> {
    let (read, has) = (stored.state.messages, info.state.messages);
    let config = &stored.config;
    let is_limited = config.max_msgs > 0
        || config.max_bytes > 0
        || config.max_age > 0
        || config.max_msgs_per_subject > 0
        || config.allow_msg_ttl
        || config.retention != nuthatch_protocol::js::RetentionPolicy::Limits;
    let fits = if is_limited { has <= read } else { has == read };
    let (end, last) = (stored.state.last_seq, info.state.last_seq);
    if fits && last >= end {
        return Ok(());
    }
    Err(CliError::Failed(format!(
        "the files hold {} up to sequence {end}, the server has {} up to {last}",
        show::plural(read, "message"),
        show::count(has)
    )))
}
