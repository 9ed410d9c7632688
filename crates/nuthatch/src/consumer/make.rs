//! `consumer add`, `edit`, `copy`, `pause` and `resume`.

use std::path::PathBuf;
use std::time::SystemTime;

use clap::Args;
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::js::Answer;
use nuthatch_protocol::js::{ConsumerInfo, PauseAnswer};
use serde_json::{Value, json};

use super::config::{ConfigArgs, pause_until};
use super::{ForceArgs, NameArgs, details};
use crate::error::CliError;
use crate::input::{check_subject, read_config};
use crate::session::{Session, confirm};
use crate::show::{self, differences};

/// Options of `consumer add`.
#[derive(Debug, Clone, Args)]
pub struct AddArgs {
    #[command(flatten)]
    name: NameArgs,
    /// Clients fetch messages (the default)
    #[arg(long, conflicts_with = "target")]
    pull: bool,
    /// Messages are pushed to this subject
    #[arg(long, visible_alias = "deliver-subject", value_name = "SUBJECT")]
    target: Option<String>,
    /// Queue group of a push consumer
    #[arg(long, requires = "target")]
    deliver_group: Option<String>,
    /// It goes when nobody uses it any more
    #[arg(long)]
    ephemeral: bool,
    #[command(flatten)]
    config: ConfigArgs,
    /// Configuration as a JSON file, such as `consumer info --json` prints; flags change it
    #[arg(long = "config", value_name = "FILE")]
    file: Option<PathBuf>,
    /// Accepted for scripts made for the nats command: nothing is ever asked here
    #[arg(long)]
    defaults: bool,
}

/// Options of `consumer edit`.
#[derive(Debug, Clone, Args)]
pub struct EditArgs {
    #[command(flatten)]
    name: NameArgs,
    #[command(flatten)]
    config: ConfigArgs,
    /// Configuration as a JSON file, instead of the present one; flags change it
    #[arg(long = "config", value_name = "FILE")]
    file: Option<PathBuf>,
    /// Show what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    force: bool,
}

/// Options of `consumer copy`.
#[derive(Debug, Clone, Args)]
pub struct CopyArgs {
    #[command(flatten)]
    source: NameArgs,
    /// Name of the new consumer
    destination: String,
    #[command(flatten)]
    config: ConfigArgs,
}

/// Options of `consumer pause`.
#[derive(Debug, Clone, Args)]
pub struct PauseArgs {
    #[command(flatten)]
    name: NameArgs,
    /// A time, RFC 3339, or how long, such as 1h
    until: String,
    /// Do not ask
    #[arg(long, short)]
    force: bool,
}

/// Runs `consumer add`.
pub fn add(args: &AddArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    args.name.check()?;
    let config = configured(args, SystemTime::now())?;
    let mut session = Session::open(connect)?;
    put(&mut session, &args.name, &config, "create", "created")
}

fn configured(args: &AddArgs, now: SystemTime) -> Result<Value, CliError> {
    let mut config = match &args.file {
        Some(path) => read_config(path)?,
        None => {
            let ack = if args.target.is_some() { "none" } else { "explicit" };
            json!({ "ack_policy": ack, "replay_policy": "instant", "deliver_policy": "all" })
        }
    };
    config["name"] = args.name.consumer.as_str().into();
    if !args.ephemeral {
        config["durable_name"] = args.name.consumer.as_str().into();
    }
    if let Some(target) = &args.target {
        check_subject(target, false)?;
        config["deliver_subject"] = target.as_str().into();
    }
    if let Some(group) = &args.deliver_group {
        config["deliver_group"] = group.as_str().into();
    }
    args.config.apply(&mut config, now)?;
    Ok(config)
}

/// Creates or updates; the API's subject carries a lone filter, for permissions.
fn put(
    session: &mut Session,
    names: &NameArgs,
    config: &Value,
    action: &str,
    done: &str,
) -> Result<(), CliError> {
    let (stream, name) = (&names.stream, &names.consumer);
    let body = json!({ "stream_name": stream, "config": config, "action": action });
    let mut what = format!("CONSUMER.CREATE.{stream}.{name}");
    if let Some(filter) = show::some_text(&config["filter_subject"]) {
        check_subject(&filter, true)?;
        what = format!("{what}.{filter}");
    }
    let info: Answer<ConsumerInfo> = session
        .ask(&what, &body)
        .map_err(CliError::js(format!("could not {action} consumer {name} of stream {stream}")))?;
    session
        .print(&info.json, || format!("Consumer {name} was {done}\n\n{}", details::render(&info)))
}

/// Runs `consumer edit`.
pub fn edit(args: &EditArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    let present = args.name.fetch_config(&mut session)?;
    let mut wanted = match &args.file {
        Some(path) => read_config(path)?,
        None => present.clone(),
    };
    for key in ["name", "durable_name"] {
        wanted[key] = present[key].clone();
    }
    args.config.apply(&mut wanted, SystemTime::now())?;
    let changes = differences(&present, &wanted);
    if changes.is_empty() {
        let text = || format!("Consumer {} stays as it is\n", args.name.consumer);
        return session.print(&present, text);
    }
    if args.dry_run || !args.force {
        eprint!("{changes}");
    }
    if args.dry_run {
        return Ok(());
    }
    confirm(&format!("Change consumer {} like this?", args.name.consumer), args.force)?;
    put(&mut session, &args.name, &wanted, "update", "changed")
}

/// Runs `consumer copy`.
pub fn copy(args: &CopyArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let names = NameArgs { stream: args.source.stream.clone(), consumer: args.destination.clone() };
    names.check()?;
    let mut session = Session::open(connect)?;
    let mut config = args.source.fetch_config(&mut session)?;
    config["name"] = names.consumer.as_str().into();
    if config["durable_name"].is_string() {
        config["durable_name"] = names.consumer.as_str().into();
    }
    if let Some(facts) = config["metadata"].as_object_mut() {
        facts.retain(|key, _| !key.starts_with("_nats."));
    }
    args.config.apply(&mut config, SystemTime::now())?;
    put(&mut session, &names, &config, "create", "created")
}

/// Runs `consumer pause`.
pub fn pause(args: &PauseArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let until = pause_until(&args.until, SystemTime::now())?;
    let mut session = Session::open(connect)?;
    let question = format!("Pause consumer {} until {until}?", args.name.consumer);
    confirm(&question, args.force)?;
    set_pause(&mut session, &args.name, &json!({ "pause_until": until }))
}

/// Runs `consumer resume`.
pub fn resume(args: &ForceArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    confirm(&format!("Resume consumer {}?", args.name.consumer), args.force)?;
    set_pause(&mut session, &args.name, &json!({}))
}

fn set_pause(session: &mut Session, names: &NameArgs, body: &Value) -> Result<(), CliError> {
    names.check()?;
    let (stream, name) = (&names.stream, &names.consumer);
    let reply: Answer<PauseAnswer> = session
        .ask(&format!("CONSUMER.PAUSE.{stream}.{name}"), body)
        .map_err(CliError::js(format!("could not pause or resume consumer {name}")))?;
    session.print(&reply.json, || {
        if reply.paused {
            format!("Consumer {name} is paused until {}\n", show::moment(reply.pause_until))
        } else {
            format!("Consumer {name} is not paused\n")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: AddArgs,
    }

    fn config_of(line: &str) -> Value {
        let words = std::iter::once("add").chain(line.split(' '));
        configured(&Line::try_parse_from(words).unwrap().args, SystemTime::UNIX_EPOCH).unwrap()
    }

    #[test]
    fn pull_and_push() {
        let expected = json!({
            "name": "C", "durable_name": "C", "ack_policy": "explicit",
            "replay_policy": "instant", "deliver_policy": "all",
        });
        assert_eq!(config_of("S C"), expected);
        let push = config_of("S C --target d --heartbeat 5s --flow-control --ephemeral");
        assert_eq!((&push["deliver_subject"], &push["ack_policy"]), (&json!("d"), &json!("none")));
        assert!(push["durable_name"].is_null());
    }
}
