//! Commands about streams.

pub mod backup;
mod config;
pub mod contents;
mod details;
mod find;
mod gaps;
mod graph;
mod import;
mod list;
mod live_import;
mod make;
mod moving;
mod upload;

use clap::{Args, Subcommand};
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::js::Answer;
use nuthatch_protocol::js::{StreamInfo, StreamInfoRequest};
use serde_json::Value;

use crate::error::CliError;
use crate::input::check_name;
use crate::session::{Session, confirm};

/// Commands about streams.
#[derive(Debug, Clone, Subcommand)]
pub enum StreamCommand {
    /// Create a stream
    #[command(visible_alias = "create", alias = "new")]
    Add(Box<make::AddArgs>),
    /// List streams
    #[command(visible_alias = "list", alias = "l")]
    Ls(list::LsArgs),
    /// Show a stream's configuration and state
    #[command(visible_alias = "nfo", alias = "i")]
    Info(details::InfoArgs),
    /// Show a stream's state
    State(NameArgs),
    /// Show what all streams hold and how they are used
    Report(list::ReportArgs),
    Find(find::FindArgs),
    /// Show which sequences were removed from inside a stream
    Gaps(gaps::GapsArgs),
    Graph(graph::GraphArgs),
    /// List the subjects of a stream's messages
    #[command(visible_alias = "subj")]
    Subjects(contents::SubjectsArgs),
    /// Print one message of a stream
    Get(contents::GetArgs),
    /// Print several messages of a stream
    View(contents::ViewArgs),
    /// Change a stream's configuration
    #[command(visible_alias = "update")]
    Edit(Box<make::EditArgs>),
    /// Create a stream with the configuration of another; no messages are copied
    #[command(visible_alias = "cp")]
    Copy(Box<make::CopyArgs>),
    /// Remove messages of a stream
    Purge(contents::PurgeArgs),
    /// Remove one message of a stream and erase its content
    Rmm(contents::RmmArgs),
    /// Move a stream to another log of the server while it is used
    Move(moving::MoveArgs),
    /// Forbid every further change of a stream
    Seal(ForceArgs),
    /// Save a stream in a directory, as the nats command does
    #[command(visible_alias = "snapshot")]
    Backup(backup::BackupArgs),
    /// Restore a stream from a directory with a backup, of nuthatch or of the nats command
    Restore(backup::RestoreArgs),
    /// Bring streams of a nats-server's store directory into this server
    Import(import::ImportArgs),
    /// Delete a stream and all its messages
    #[command(visible_alias = "delete", alias = "del")]
    Rm(ForceArgs),
}

/// The name of a stream.
#[derive(Debug, Clone, Args)]
pub struct NameArgs {
    /// Stream name
    stream: String,
}

/// The name of a stream, and whether to ask.
#[derive(Debug, Clone, Args)]
pub struct ForceArgs {
    /// Stream name
    stream: String,
    /// Do not ask
    #[arg(long, short)]
    force: bool,
}

/// Runs a command about streams.
pub fn run(command: &StreamCommand, connect: &ConnectArgs) -> Result<(), CliError> {
    match command {
        StreamCommand::Add(args) => make::add(args, connect),
        StreamCommand::Ls(args) => list::ls(args, connect),
        StreamCommand::Info(args) => details::info(args, connect),
        StreamCommand::State(args) => details::state(&args.stream, connect),
        StreamCommand::Report(args) => list::report(args, connect),
        StreamCommand::Find(args) => find::run(args, connect),
        StreamCommand::Gaps(args) => gaps::run(args, connect),
        StreamCommand::Graph(args) => graph::run(args, connect),
        StreamCommand::Subjects(args) => contents::subjects(args, connect),
        StreamCommand::Get(args) => contents::get(args, connect),
        StreamCommand::View(args) => contents::view(args, connect),
        StreamCommand::Edit(args) => make::edit(args, connect),
        StreamCommand::Copy(args) => make::copy(args, connect),
        StreamCommand::Purge(args) => contents::purge(args, connect),
        StreamCommand::Rmm(args) => contents::rmm(args, connect),
        StreamCommand::Move(args) => moving::run(args, connect),
        StreamCommand::Seal(args) => make::seal(args, connect),
        StreamCommand::Backup(args) => backup::backup(args, connect),
        StreamCommand::Restore(args) => backup::restore(args, connect),
        StreamCommand::Import(args) => import::import(args, connect),
        StreamCommand::Rm(args) => rm(args, connect),
    }
}

fn rm(args: &ForceArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let name = &args.stream;
    check_name("stream", name)?;
    let mut session = Session::open(connect)?;
    confirm(&format!("Delete stream {name} and all its messages?"), args.force)?;
    let reply = session
        .api(&format!("STREAM.DELETE.{name}"), &Value::Null)
        .map_err(CliError::js(format!("could not delete stream {name}")))?;
    session.print(&reply, || format!("Stream {name} was deleted\n"))
}

/// A stream's configuration and state.
pub fn fetch(
    session: &mut Session,
    name: &str,
    request: &StreamInfoRequest,
) -> Result<Answer<StreamInfo>, CliError> {
    check_name("stream", name)?;
    session
        .ask(&format!("STREAM.INFO.{name}"), request)
        .map_err(CliError::js(format!("stream {name}")))
}

/// A stream's configuration as the server tells it: what is changed in it is sent back with all the rest, also with
/// what a later server has in it.
pub fn fetch_config(session: &mut Session, name: &str) -> Result<Value, CliError> {
    let mut info = fetch(session, name, &StreamInfoRequest::default())?;
    Ok(info.json["config"].take())
}
