//! `stream add`, `edit`, `copy` and `seal`.

use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::Args;
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::js::Answer;
use nuthatch_protocol::js::StreamInfo;
use nuthatch_streams::validate::DIRECT_KEY;
use serde_json::{Value, json};

use super::config::ConfigArgs;
use super::{ForceArgs, details, fetch_config};
use crate::error::CliError;
use crate::input::{check_name, read_config};
use crate::session::{Session, confirm};
use crate::show::differences;

/// Options of `stream add`.
#[derive(Debug, Clone, Args)]
pub struct AddArgs {
    /// Stream name
    stream: String,
    #[command(flatten)]
    config: ConfigArgs,
    /// Configuration as a JSON file, such as `stream info --json` prints; flags change it
    #[arg(long = "config", value_name = "FILE")]
    file: Option<PathBuf>,
    /// Write the configuration to this file instead of creating the stream
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Accepted for scripts made for the nats command: nothing is ever asked here
    #[arg(long)]
    defaults: bool,
}

/// Options of `stream edit`.
#[derive(Debug, Clone, Args)]
pub struct EditArgs {
    /// Stream name
    stream: String,
    #[command(flatten)]
    config: ConfigArgs,
    /// Configuration as a JSON file, instead of the present one; flags change it
    #[arg(long = "config", value_name = "FILE")]
    file: Option<PathBuf>,
    /// Stop mirroring: the stream becomes one of its own
    #[arg(long, conflicts_with = "mirror")]
    no_mirror: bool,
    /// Stop changing subjects
    #[arg(long, conflicts_with = "transform_source")]
    no_transform: bool,
    /// Stop publishing again
    #[arg(long, conflicts_with = "republish_source")]
    no_republish: bool,
    /// Show what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    force: bool,
}

/// Options of `stream copy`.
#[derive(Debug, Clone, Args)]
pub struct CopyArgs {
    /// Stream whose configuration is copied
    #[arg(value_name = "SOURCE")]
    origin: String,
    /// Name of the new stream
    destination: String,
    #[command(flatten)]
    config: ConfigArgs,
}

/// Runs `stream add`.
pub fn add(args: &AddArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    check_name("stream", &args.stream)?;
    let mut config = match &args.file {
        Some(path) => read_config(path)?,
        None => defaults(args),
    };
    config["name"] = args.stream.as_str().into();
    args.config.apply(&mut config)?;
    if let Some(path) = &args.output {
        return write(path, &config);
    }
    create(&config, connect)
}

fn create(config: &Value, connect: &ConnectArgs) -> Result<(), CliError> {
    let name = crate::show::text(&config["name"]);
    let mut session = Session::open(connect)?;
    let created: Answer<StreamInfo> = session
        .ask(&format!("STREAM.CREATE.{name}"), config)
        .map_err(CliError::js(format!("could not create stream {name}")))?;
    session.print(&created.json, || {
        format!("Stream {name} was created\n\n{}", details::render(&created))
    })
}

fn write(path: &PathBuf, config: &Value) -> Result<(), CliError> {
    std::fs::write(path, format!("{config:#}\n"))
        .map_err(|err| CliError::Failed(format!("cannot write {}: {err}", path.display())))?;
    Ok(writeln!(io::stdout(), "The configuration was written to {}", path.display())?)
}

fn defaults(args: &AddArgs) -> Value {
    let mut config = json!({
        "storage": "file", "retention": "limits", "discard": "old", "num_replicas": 1,
        "max_msgs": -1, "max_msgs_per_subject": -1, "max_bytes": -1, "max_age": 0,
        "max_msg_size": -1, "max_consumers": -1, "compression": "none", "allow_direct": true,
    });
    if !args.config.names_messages() {
        config["subjects"] = json!([args.stream]);
    }
    config
}

/// Runs `stream edit`.
pub fn edit(args: &EditArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    let present = fetch_config(&mut session, &args.stream)?;
    let mut wanted = match &args.file {
        Some(path) => read_config(path)?,
        None => present.clone(),
    };
    wanted["name"] = args.stream.as_str().into();
    args.config.apply(&mut wanted)?;
    let removed = [
        (args.no_mirror, "mirror"),
        (args.no_transform, "subject_transform"),
        (args.no_republish, "republish"),
    ];
    for (_, key) in removed.iter().filter(|(set, _)| *set) {
        wanted.as_object_mut().map(|fields| fields.remove(*key));
    }
    let changes = differences(&present, &wanted);
    if changes.is_empty() {
        return session.print(&present, || format!("Stream {} stays as it is\n", args.stream));
    }
    if args.dry_run || !args.force {
        eprint!("{changes}");
    }
    if args.dry_run {
        return Ok(());
    }
    confirm(&format!("Change stream {} like this?", args.stream), args.force)?;
    update(&mut session, &args.stream, &wanted, "changed")
}

fn update(session: &mut Session, name: &str, config: &Value, done: &str) -> Result<(), CliError> {
    let updated: Answer<StreamInfo> = session
        .ask(&format!("STREAM.UPDATE.{name}"), config)
        .map_err(CliError::js(format!("could not change stream {name}")))?;
    session.print(&updated.json, || {
        format!("Stream {name} was {done}\n\n{}", details::render(&updated))
    })
}

/// True of metadata that a server adds, not of what somebody has asked of it.
pub(super) fn is_of_server(key: &str) -> bool {
    key != DIRECT_KEY && (key.starts_with("_nats.") || key.starts_with("_nuthatch."))
}

/// Runs `stream copy`.
pub fn copy(args: &CopyArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    check_name("stream", &args.destination)?;
    let mut session = Session::open(connect)?;
    let mut config = fetch_config(&mut session, &args.origin)?;
    config["name"] = args.destination.as_str().into();
    // The server adds facts about itself; the copy gets its own.
    if let Some(facts) = config["metadata"].as_object_mut() {
        facts.retain(|key, _| !is_of_server(key));
    }
    args.config.apply(&mut config)?;
    drop(session);
    create(&config, connect)
}

/// Runs `stream seal`.
pub fn seal(args: &ForceArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    let mut config = fetch_config(&mut session, &args.stream)?;
    let question = format!("Seal stream {}? This cannot be undone.", args.stream);
    confirm(&question, args.force)?;
    config["sealed"] = true.into();
    update(&mut session, &args.stream, &config, "sealed")
}
