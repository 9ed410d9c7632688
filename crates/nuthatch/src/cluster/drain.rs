//! `cluster drain` and `undrain`: a node that owns no log and does not lead the catalog can be stopped, and nothing moves.

use std::time::{Duration, Instant};

use clap::Args;
use nuthatch_client::RequestError;
use nuthatch_client::connect::ConnectArgs;
use serde_json::{Value, json};

use super::{HowArgs, POLL, ask, list, numbers};
use crate::error::CliError;
use crate::session::{Session, confirm, print};

/// Options of `cluster drain`.
#[derive(Debug, Clone, Args)]
pub struct DrainArgs {
    /// Name of the node
    node: String,
    #[command(flatten)]
    how: HowArgs,
}

/// What a node is, for people: a part of the status.
pub(super) fn state(node: &Value) -> String {
    let is = if node["spare"] == true { "spare" } else { "keeper" };
    match node["drain"].as_str() {
        Some(drain) => format!("{is}, {drain}"),
        None => is.to_owned(),
    }
}

fn found<'a>(data: &'a Value, name: &str) -> Option<&'a Value> {
    list(data, "nodes").find(|node| node["name"] == name)
}

fn body(node: &str, drain: bool, dry_run: bool) -> Value {
    json!({ "node": node, "drain": drain, "dry_run": dry_run })
}

pub(super) fn drain(
    session: &mut Session,
    args: &DrainArgs,
    connect: &ConnectArgs,
) -> Result<(), CliError> {
    let name = args.node.as_str();
    let would = ask(session, "DRAIN", &body(name, true, true))?;
    let before = ask(session, "NODES", &Value::Null)?;
    let is_so = would["already"] == true;
    let todo = plan(&before, name, is_so);
    if args.how.dry_run {
        let json = json!({ "node": name, "drain": true, "already": is_so });
        return print(session.json, &json, || todo);
    }
    if !args.how.force && !is_so {
        eprint!("{todo}");
        confirm("Go on?", false)?;
    }
    let begun = ask(session, "DRAIN", &body(name, true, false))?;
    if args.how.no_wait {
        return print(session.json, &begun, || {
            format!("{name} is draining: look with `nuthatch cluster status`\n")
        });
    }
    wait((session, connect), args, &begun, is_so)
}

/// What would happen.
fn plan(before: &Value, name: &str, is_so: bool) -> String {
    let node = found(before, name);
    if is_so {
        let state = node.and_then(|node| node["drain"].as_str()).unwrap_or("draining");
        return format!("{name} is {state} already.\n");
    }
    let owns = node.map_or(&Value::Null, |node| &node["owns"]);
    let logs = match numbers(owns) {
        none if none.is_empty() => "It owns no quorum log now".to_owned(),
        logs => {
            format!("The quorum logs that it owns ({logs}) go to other nodes, one after the other")
        }
    };
    let leads = match before["leader"] == name {
        true => ", and another node leads the catalog",
        false => "",
    };
    format!(
        "{name} owns no quorum log and does not lead the catalog from now on, while another node can. {logs}{leads}. It goes on \
         keeping its copies and serving its clients, until `nuthatch cluster undrain {name}`.\n"
    )
}

/// What is left to be given away.
fn left(data: &Value, name: &str) -> String {
    let owns = found(data, name).map_or_else(String::new, |node| numbers(&node["owns"]));
    match (owns.is_empty(), data["leader"] == name) {
        (false, false) => format!("it owns quorum logs {owns} still"),
        (false, true) => format!("it owns quorum logs {owns} still, and leads the catalog"),
        (true, true) => "it leads the catalog still".to_owned(),
        (true, false) => "who owns each log is not known at this moment".to_owned(),
    }
}

fn done(name: &str, is_so: bool) -> String {
    let already = if is_so { " already" } else { "" };
    format!(
        "{name} is drained{already}: it owns no quorum log and does not lead the catalog, so nothing moves when it is stopped. \
         Its copies stay on it (`nuthatch cluster replace` or `shrink` moves those). Afterwards: `nuthatch cluster undrain \
         {name}`\n"
    )
}

/// How far it is, as one node says.
enum Progress {
    Done,
    /// This is left.
    Left(String),
    /// It is not to be drained, as that node knows.
    NotAsked,
}

fn progress(data: &Value, name: &str) -> Progress {
    match found(data, name).and_then(|node| node["drain"].as_str()) {
        Some("drained") => Progress::Done,
        Some(_) => Progress::Left(left(data, name)),
        None => Progress::NotAsked,
    }
}

fn wait(
    (session, connect): (&mut Session, &ConnectArgs),
    args: &DrainArgs,
    begun: &Value,
    is_so: bool,
) -> Result<(), CliError> {
    let name = args.node.as_str();
    let deadline = Instant::now() + Duration::from_secs(args.how.wait_s);
    let mut told = String::new();
    loop {
        let asked = ask(session, "NODES", &Value::Null);
        match asked.map(|data| progress(&data, name)) {
            Ok(Progress::Done) => return print(session.json, begun, || done(name, is_so)),
            Ok(Progress::Left(left)) if left != told => {
                eprintln!("{name} is draining: {left}");
                told = left;
            }
            // Whichever node answers, which may hear of it a moment later.
            Ok(Progress::NotAsked) if !told.is_empty() => {
                let why = format!("it was taken back meanwhile: {name} may own logs");
                return Err(CliError::Failed(why));
            }
            Err(CliError::Request(RequestError::Transport(_))) => {
                *session = Session::open(connect).map_err(|error| {
                    CliError::Failed(format!(
                        "{error}. {name} goes on draining: ask another node with `nuthatch cluster status`"
                    ))
                })?;
            }
            // A node whose logs are just moving may not answer.
            _ => {}
        }
        if Instant::now() >= deadline {
            return Err(CliError::Failed(late(args, &told)));
        }
        std::thread::sleep(POLL);
    }
}

fn late(args: &DrainArgs, left: &str) -> String {
    let (name, seconds) = (&args.node, args.how.wait_s);
    let left = if left.is_empty() { "nobody has answered" } else { left };
    format!(
        "{name} is not drained within {seconds} s: {left}. It goes on as soon as another node has all of the log: look with \
         `nuthatch cluster status`, or take it back with `nuthatch cluster undrain {name}`"
    )
}

/// Options of `cluster undrain`.
#[derive(Debug, Clone, Args)]
pub struct UndrainArgs {
    /// Name of the node
    node: String,
    /// Show what would happen, and change nothing
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn undrain(session: &mut Session, args: &UndrainArgs) -> Result<(), CliError> {
    let name = args.node.as_str();
    if args.dry_run {
        let would = ask(session, "DRAIN", &body(name, false, true))?;
        return print(session.json, &would, || match would["already"] == true {
            true => format!("{name} is not drained: nothing is to be done\n"),
            false => format!("{name} may own quorum logs again then\n"),
        });
    }
    let done = ask(session, "DRAIN", &body(name, false, false))?;
    print(session.json, &done, || match done["already"] == true {
        true => format!("{name} was not drained\n"),
        false => format!(
            "{name} may own quorum logs again: those that are to be its own come back when they have rested where they are\n"
        ),
    })
}
