//! `cluster logs` and `move-log`: which node owns each quorum log, and that another one is to.

use std::time::{Duration, Instant};

use clap::Args;
use nuthatch_client::RequestError;
use nuthatch_client::connect::ConnectArgs;
use serde_json::{Value, json};

use super::{HowArgs, POLL, ask, list, state};
use crate::error::CliError;
use crate::server::source::ask_system;
use crate::session::{Session, confirm, print};
use crate::show::{Table, text};

/// Options of `cluster move-log`.
#[derive(Debug, Clone, Args)]
pub struct MoveLogArgs {
    /// Name of the log, as in `cluster logs`
    log: String,
    /// Name of the node that is to own it from now on
    #[arg(required_unless_present = "anywhere", conflicts_with = "anywhere")]
    node: Option<String>,
    /// Take that back: it is owned by whichever node is best
    #[arg(long)]
    anywhere: bool,
    #[command(flatten)]
    how: HowArgs,
}

/// Shows the logs as one node knows them, and how far the copies are, as their owners know it.
pub(super) fn show(session: &mut Session) -> Result<(), CliError> {
    let mut data = ask(session, "LOGS", &Value::Null)?;
    let pages = ask_system(session, "RAFTZ", &Value::Null)?;
    let pages: Vec<Value> = pages.into_iter().map(|page| page.data).collect();
    state::complete_logs(&mut data, &pages);
    print(session.json, &data, || {
        let mut table =
            Table::new(&["Log", "Is in", "Epoch", "Owner", "Is to be owned by", "Copies"]);
        for log in list(&data, "logs") {
            let owner = log["owner"].as_str().unwrap_or("NOBODY").to_owned();
            let (name, store, epoch) =
                (text(&log["name"]), text(&log["store"]), log["epoch"].to_string());
            table.row(vec![name, store, epoch, owner, place(log), copies(log)]);
        }
        table.render() + &standby_memory(&data)
    })
}

/// What the standbys of the node that answers take, and may.
fn standby_memory(data: &Value) -> String {
    let standby = &data["standby_memory"];
    let mib = |of: &str| standby[of].as_u64().map(|bytes| bytes >> 20);
    let dropped: u64 = list(data, "logs").filter_map(|log| log["standbys_dropped"].as_u64()).sum();
    match (mib("bytes"), mib("max_bytes")) {
        (Some(bytes), Some(max)) if bytes > 0 || dropped > 0 => format!(
            "standbys of the node that answers take {bytes} of {max} MiB; {dropped} dropped so far\n"
        ),
        // The server is older than that, or there are none.
        _ => String::new(),
    }
}

fn place(log: &Value) -> String {
    let by = text(&log["to_be_owned_by"]);
    match log["moved_to"].as_str() {
        Some(to) if to == by => format!("{by} (move-log)"),
        Some(to) => format!("{by} (move-log to {to}, which cannot)"),
        None => by,
    }
}

/// Which copies there are, and what is wrong with each.
fn copies(log: &Value) -> String {
    let one = |keeper: &Value| {
        let name = text(&keeper["node"]);
        let behind = list(log, "behind").find(|behind| behind["node"] == keeper["node"]);
        match (keeper["connected"] == true, keeper["counts"] == true, behind) {
            (false, ..) => format!("{name} AWAY"),
            (true, false, _) => format!("{name} (does not count yet)"),
            (true, true, Some(behind)) => match behind["lag"].as_u64() {
                Some(lag) => format!("{name} (lacks {lag} entries)"),
                None => format!("{name} (behind)"),
            },
            (true, true, None) if keeper["cold"] == true => {
                format!("{name} (reads it, to follow it)")
            }
            (true, true, None) => name,
        }
    };
    list(log, "keepers").map(one).collect::<Vec<_>>().join(", ")
}

/// Has a log owned by another node.
pub(super) fn move_log(
    session: &mut Session,
    args: &MoveLogArgs,
    connect: &ConnectArgs,
) -> Result<(), CliError> {
    let body = |dry_run: bool| json!({ "log": args.log, "node": args.node, "dry_run": dry_run });
    let would = ask(session, "MOVE_LOG", &body(true))?;
    let todo = plan(&would);
    if args.how.dry_run {
        return print(session.json, &would, || todo);
    }
    let is_so = would["before"] == would["node"];
    if !args.how.force && !is_so {
        eprint!("{todo}");
        confirm("Go on?", false)?;
    }
    let begun = ask(session, "MOVE_LOG", &body(false))?;
    let log = args.log.as_str();
    match args.node.as_deref() {
        None => print(session.json, &begun, || {
            format!("log {log} is owned by whichever node is best from now on\n")
        }),
        Some(node) if args.how.no_wait => print(session.json, &begun, || {
            format!("log {log} goes to {node}: look with `nuthatch cluster logs`\n")
        }),
        Some(node) => wait((session, connect), args, node, &begun),
    }
}

/// What would happen.
fn plan(would: &Value) -> String {
    let (log, owner) = (text(&would["log"]), would["owner"].as_str().unwrap_or("nobody"));
    let Some(node) = would["node"].as_str() else {
        return match would["before"].as_str() {
            Some(before) => format!(
                "Log {log} is not kept at {before} any more: it is owned by whichever node is best. In a cluster of several \
                 logs it goes there when it has rested.\n"
            ),
            None => format!("Log {log} is owned by whichever node is best already.\n"),
        };
    };
    let back = format!(
        "While {node} is away or drained another node owns it, and gives it back as to its place, minutes after {node} has \
         everything, whatever clients ask of it (`nuthatch cluster move-log {log} --anywhere` takes that back)"
    );
    match owner == node {
        true => format!("Log {log} is owned by {node}, and stays there. {back}.\n"),
        false => format!(
            "Log {log} goes from {owner} to {node} by a planned handover: what is sent to its streams meanwhile, for some tens of \
             milliseconds, finds no responders, as clients ask again by default. {back}.\n"
        ),
    }
}

fn owner(data: &Value, log: &str) -> Option<String> {
    let found = list(data, "logs").find(|one| one["name"] == log)?;
    found["owner"].as_str().map(str::to_owned)
}

fn wait(
    (session, connect): (&mut Session, &ConnectArgs),
    args: &MoveLogArgs,
    node: &str,
    begun: &Value,
) -> Result<(), CliError> {
    let (log, deadline) =
        (args.log.as_str(), Instant::now() + Duration::from_secs(args.how.wait_s));
    loop {
        match ask(session, "LOGS", &Value::Null) {
            Ok(data) if owner(&data, log).as_deref() == Some(node) => {
                return print(session.json, begun, || format!("{node} owns log {log}\n"));
            }
            Err(CliError::Request(RequestError::Transport(_))) => {
                *session = Session::open(connect)?;
            }
            // A node whose logs are just moving may not answer.
            _ => {}
        }
        if Instant::now() >= deadline {
            return Err(CliError::Failed(format!(
                "{node} does not own log {log} within {} s: it does as soon as it has everything. Look with `nuthatch cluster logs`",
                args.how.wait_s
            )));
        }
        std::thread::sleep(POLL);
    }
}
