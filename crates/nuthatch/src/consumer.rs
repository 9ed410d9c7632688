//! Commands about consumers of streams.

mod config;
mod details;
mod list;
mod make;
mod next;

use clap::{Args, Subcommand};
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::js::Answer;
use nuthatch_protocol::js::ConsumerInfo;
use serde_json::{Value, json};

use crate::error::CliError;
use crate::input::check_name;
use crate::session::{Session, confirm};

/// Commands about consumers.
#[derive(Debug, Clone, Subcommand)]
pub enum ConsumerCommand {
    /// Create a consumer
    #[command(visible_alias = "create", alias = "new")]
    Add(Box<make::AddArgs>),
    /// List the consumers of a stream
    #[command(visible_alias = "list")]
    Ls(list::LsArgs),
    /// Show a consumer's configuration and state
    #[command(visible_alias = "nfo", alias = "i")]
    Info(NameArgs),
    /// Show how far all consumers of a stream are
    Report(list::ReportArgs),
    /// Fetch messages of a pull consumer
    Next(next::NextArgs),
    /// Change a consumer's configuration
    #[command(visible_alias = "update")]
    Edit(Box<make::EditArgs>),
    /// Create a consumer with the configuration of another
    #[command(visible_alias = "cp")]
    Copy(Box<make::CopyArgs>),
    /// Deliver nothing until a time
    Pause(make::PauseArgs),
    /// End a pause
    Resume(ForceArgs),
    /// Take the messages of a priority group away from the client that holds them
    Unpin(UnpinArgs),
    /// Delete a consumer
    #[command(visible_alias = "delete", alias = "del")]
    Rm(ForceArgs),
}

/// The name of a consumer.
#[derive(Debug, Clone, Args)]
pub struct NameArgs {
    /// Stream name
    stream: String,
    /// Consumer name
    consumer: String,
}

/// The name of a consumer, and whether to ask.
#[derive(Debug, Clone, Args)]
pub struct ForceArgs {
    #[command(flatten)]
    name: NameArgs,
    /// Do not ask
    #[arg(long, short)]
    force: bool,
}

/// Options of `consumer unpin`.
#[derive(Debug, Clone, Args)]
pub struct UnpinArgs {
    #[command(flatten)]
    name: NameArgs,
    /// Priority group of the consumer
    group: String,
    /// Do not ask
    #[arg(long, short)]
    force: bool,
}

/// Runs a command about consumers.
pub fn run(command: &ConsumerCommand, connect: &ConnectArgs) -> Result<(), CliError> {
    match command {
        ConsumerCommand::Add(args) => make::add(args, connect),
        ConsumerCommand::Ls(args) => list::ls(args, connect),
        ConsumerCommand::Info(args) => details::info(args, connect),
        ConsumerCommand::Report(args) => list::report(args, connect),
        ConsumerCommand::Next(args) => next::run(args, connect),
        ConsumerCommand::Edit(args) => make::edit(args, connect),
        ConsumerCommand::Copy(args) => make::copy(args, connect),
        ConsumerCommand::Pause(args) => make::pause(args, connect),
        ConsumerCommand::Resume(args) => make::resume(args, connect),
        ConsumerCommand::Unpin(args) => unpin(args, connect),
        ConsumerCommand::Rm(args) => rm(args, connect),
    }
}

impl NameArgs {
    /// Refuses names that do not fit into an API subject.
    fn check(&self) -> Result<(), CliError> {
        check_name("stream", &self.stream)?;
        check_name("consumer", &self.consumer)
    }

    /// The consumer's configuration and state.
    pub fn fetch(&self, session: &mut Session) -> Result<Answer<ConsumerInfo>, CliError> {
        self.check()?;
        let (stream, name) = (&self.stream, &self.consumer);
        session
            .ask(&format!("CONSUMER.INFO.{stream}.{name}"), &Value::Null)
            .map_err(CliError::js(format!("consumer {name} of stream {stream}")))
    }

    /// Its configuration as the server tells it: what is changed in it is sent back with all the rest, also with what
    /// a later server has in it.
    fn fetch_config(&self, session: &mut Session) -> Result<Value, CliError> {
        Ok(self.fetch(session)?.json["config"].take())
    }
}

/// Another client of the group gets the messages from now on.
fn unpin(args: &UnpinArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    args.name.check()?;
    let (stream, name, group) = (&args.name.stream, &args.name.consumer, &args.group);
    let mut session = Session::open(connect)?;
    let question = format!("Take group {group} of consumer {name} away from its client?");
    confirm(&question, args.force)?;
    let reply = session
        .api(&format!("CONSUMER.UNPIN.{stream}.{name}"), &json!({ "group": group }))
        .map_err(CliError::js(format!("could not unpin consumer {name} of stream {stream}")))?;
    session.print(&reply, || {
        format!("Group {group} of consumer {name} is free for the next client that pulls\n")
    })
}

fn rm(args: &ForceArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    args.name.check()?;
    let (stream, name) = (&args.name.stream, &args.name.consumer);
    let mut session = Session::open(connect)?;
    confirm(&format!("Delete consumer {name} of stream {stream}?"), args.force)?;
    let reply = session
        .api(&format!("CONSUMER.DELETE.{stream}.{name}"), &Value::Null)
        .map_err(CliError::js(format!("could not delete consumer {name} of stream {stream}")))?;
    session.print(&reply, || format!("Consumer {name} of stream {stream} was deleted\n"))
}
