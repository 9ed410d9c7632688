//! `account info` and `rtt`: what the connection's own user may know.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, Subcommand};
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::units::parse_count;
use nuthatch_protocol::js::AccountInfo;
use serde::Serialize;
use serde_json::{Value, json};

use crate::error::CliError;
use crate::session::{Session, print};
use crate::show::{self, DetailView};
use crate::stream::backup::{self, BackupOptions, PlaceOptions};

/// Bytes of the chunks of `account backup`.
const DEFAULT_CHUNK_BYTES: u64 = 128 * 1024;

/// Commands about the account of the connection.
#[derive(Debug, Clone, Subcommand)]
pub enum AccountCommand {
    /// Show the connection's user and account, and what of JetStream is used
    #[command(visible_alias = "nfo")]
    Info,
    /// Save all streams, each in a directory of its name
    #[command(visible_alias = "snapshot")]
    Backup(BackupArgs),
    /// Restore all streams from such a directory
    Restore(RestoreArgs),
}

/// Options of `account backup`.
#[derive(Debug, Clone, Args)]
pub struct BackupArgs {
    /// Directory to create the backup in
    target: PathBuf,
    #[command(flatten)]
    how: BackupOptions,
}

/// Options of `account restore`.
#[derive(Debug, Clone, Args)]
pub struct RestoreArgs {
    /// The directory that holds the backups
    directory: PathBuf,
    #[command(flatten)]
    place: PlaceOptions,
}

/// Measure round trips to the server
#[derive(Debug, Clone, Args)]
pub struct RttArgs {
    /// How many
    #[arg(default_value = "5", value_parser = parse_count)]
    iterations: usize,
}

/// Runs a command about the account.
pub fn run(command: &AccountCommand, connect: &ConnectArgs) -> Result<(), CliError> {
    match command {
        AccountCommand::Info => info(connect),
        AccountCommand::Backup(args) => backup(args, connect),
        AccountCommand::Restore(args) => restore(args, connect),
    }
}

/// Runs an action for each stream, tells of each, and at the end of those that failed.
fn for_each<T: Serialize>(
    session: &mut Session,
    names: Vec<String>,
    act: impl Fn(&mut Session, &str) -> Result<T, CliError>,
    describe: impl Fn(&T) -> String,
) -> Result<(), CliError> {
    let (mut done, mut failures) = (Vec::new(), Vec::new());
    for name in names {
        match act(session, &name) {
            Ok(told) => {
                if !session.json {
                    print(false, &json!(told), || describe(&told))?;
                }
                done.push(told);
            }
            Err(why) => failures.push(why.to_string()),
        }
    }
    if session.json {
        print(true, &json!(done), String::new)?;
    }
    if failures.is_empty() {
        return Ok(());
    }
    let count = show::plural(done.len() as u64, "stream");
    let text = format!("{count} done, {} not:\n", failures.len());
    Err(CliError::Failed(text + &failures.join("\n")))
}

fn backup(args: &BackupArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    let names = session
        .list("STREAM.NAMES", "streams", &json!({}))
        .map_err(CliError::js("the streams of the account"))?;
    let names = names.iter().map(show::text).collect();
    let act = |session: &mut Session, name: &str| {
        backup::take(session, name, &args.target.join(name), &args.how, DEFAULT_CHUNK_BYTES)
    };
    for_each(&mut session, names, act, backup::describe)
}

fn restore(args: &RestoreArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let dir = &args.directory;
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(backup::file_error("read", dir))? {
        let path = entry?.path();
        if path.join(backup::META_FILE).is_file() {
            names.extend(path.file_name().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    if names.is_empty() {
        return Err(CliError::NotFound(format!("there are no backups in {}", dir.display())));
    }
    names.sort_unstable();
    let mut session = Session::open(connect)?;
    let act = |session: &mut Session, name: &str| {
        backup::bring(session, &dir.join(name), None, &args.place, true)
    };
    for_each(&mut session, names, act, |told| backup::restored(told))
}

fn info(connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    let user = session.client.request("$SYS.REQ.USER.INFO", b"", b"", session.timeout)?;
    let user: Value = serde_json::from_slice(&user.payload).map_err(|err| {
        CliError::Failed(format!("the server's answer about the user is not understood: {err}"))
    })?;
    let user = user["data"].clone();
    let js = session.ask::<AccountInfo>("INFO", &Value::Null).ok();
    let json = json!({ "user": user, "jetstream": js.as_ref().map(|js| &js.json) });
    session.print(&json, || {
        let info = session.client.info();
        let mut details = DetailView::default();
        details.heading("Connection");
        details.line("Server", format!("{} at {}", info.server_name, session.client.server()));
        details.line("Version", &*info.version);
        details.line("Our address", info.client_ip.as_str());
        details.line("User", show::text(&user["user"]));
        details.line("Account", show::text(&user["account"]));
        details.line_if("Permissions", show::some_text(&user["permissions"]));
        details.line("Largest message", show::bytes(info.max_payload as u64));
        match &js {
            Some(js) => jetstream(&mut details, js),
            None => details.line("JetStream", "not enabled for this account"),
        }
        details.render()
    })
}

fn jetstream(details: &mut DetailView, js: &AccountInfo) {
    details.heading("JetStream");
    let limits = &js.limits;
    let line = |used: u64, limit: i64, unit: fn(u64) -> String| {
        format!("{} of {}", unit(used), show::limit_of(limit, unit))
    };
    details.line("Memory", line(js.memory, limits.max_memory, show::bytes));
    details.line("Storage", line(js.storage, limits.max_storage, show::bytes));
    details.line("Streams", line(js.streams, limits.max_streams, show::count));
    details.line("Consumers", line(js.consumers, limits.max_consumers, show::count));
    details.line_if("Domain", show::filled(&js.domain));
    details.line("API requests", show::count(js.api.total));
    details.line("API errors", show::count(js.api.errors));
}

/// Runs `rtt`.
pub fn rtt(args: &RttArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    let mut times = Vec::with_capacity(args.iterations);
    for _ in 0..args.iterations {
        let started = Instant::now();
        session.client.round_trip(session.timeout)?;
        times.push(started.elapsed().as_secs_f64() * 1000.0);
    }
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    let address = session.client.server().to_string();
    let json = json!({ "server": address, "rtt_ms": mean, "iterations": times });
    session.print(&json, || {
        format!("{address}: {mean:.3} ms, the mean of {} round trips\n", times.len())
    })
}
