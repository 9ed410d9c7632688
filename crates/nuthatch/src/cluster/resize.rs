//! `cluster grow` and `shrink`: how many nodes keep the logs.

use std::time::{Duration, Instant};

use clap::Args;
use nuthatch_client::RequestError;
use serde_json::{Value, json};

use super::copying::Copying;
use super::{HowArgs, POLL, ask, list, numbers};
use crate::error::CliError;
use crate::session::{Session, confirm, print};

/// Options of `cluster grow` and `cluster shrink`.
#[derive(Debug, Clone, Args)]
pub struct ResizeArgs {
    /// Names of the nodes that come or go
    #[arg(required = true)]
    nodes: Vec<String>,
    #[command(flatten)]
    how: HowArgs,
}

/// What is under way, for people.
pub(super) fn under_way(resizing: &Value) -> String {
    let names: Vec<&str> = list(resizing, "nodes").filter_map(Value::as_str).collect();
    let names = names.join(", ");
    match resizing["keep"] == true {
        true => format!("becoming nodes that keep the logs: {names}\n"),
        false => format!("leaving the logs to the others: {names}\n"),
    }
}

pub(super) fn run(session: &mut Session, args: &ResizeArgs, keep: bool) -> Result<(), CliError> {
    let body = |dry_run: bool| json!({ "nodes": args.nodes, "keep": keep, "dry_run": dry_run });
    ask(session, "RESIZE", &body(true))?;
    let before = ask(session, "NODES", &Value::Null)?;
    let todo = plan(&before, args, keep);
    if args.how.dry_run {
        return print(session.json, &json!({ "nodes": args.nodes, "keep": keep }), || todo);
    }
    if !args.how.force && !is_done(&before, args, keep) {
        eprint!("{todo}");
        confirm("Go on?", false)?;
    }
    let begun = ask(session, "RESIZE", &body(false))?;
    match args.how.no_wait {
        true => print(session.json, &begun, || under_way(&begun)),
        false => wait(session, args, keep),
    }
}

/// True if this, or the opposite, is under way for these nodes.
fn is_under_way(data: &Value, args: &ResizeArgs, keep: bool) -> bool {
    let resizing = &data["resizing"];
    let is_named = |node: &Value| args.nodes.iter().any(|name| node == name.as_str());
    resizing["keep"] == keep && list(resizing, "nodes").all(is_named)
}

fn plan(before: &Value, args: &ResizeArgs, keep: bool) -> String {
    if is_under_way(before, args, !keep) {
        let names = args.nodes.join(", ");
        return match keep {
            true => format!(
                "It is taken back that {names} leave the logs to the others: they stay what they are.\n"
            ),
            false => {
                format!("It is taken back that {names} keep the logs, too: they stay spares.\n")
            }
        };
    }
    let keepers: Vec<&Value> =
        list(before, "nodes").filter(|node| node["spare"] == false).collect();
    let (count, names) = (keepers.len(), args.nodes.join(", "));
    let logs = numbers(keepers.first().map_or(&Value::Null, |node| &node["logs"]));
    let others = count.saturating_sub(args.nodes.len());
    match keep {
        true => format!(
            "All that is on the quorum logs ({logs}) is brought to {names}. Then {} nodes keep the logs and vote: each message \
             is written by all of them, and {} may be away.\n",
            count + args.nodes.len(),
            (count + args.nodes.len() - 1) / 2,
        ),
        false => format!(
            "{names}: no quorum log ({logs}) is on them afterwards, and they are spares without a vote, which can be removed. \
             {others} nodes keep the logs then, and {} may be away. Memory streams and local logs stay where they are.\n",
            others.saturating_sub(1) / 2,
        ),
    }
}

/// True if the nodes are what they are to be.
fn is_done(data: &Value, args: &ResizeArgs, keep: bool) -> bool {
    let is = |name: &String| {
        let node = list(data, "nodes").find(|node| node["name"] == name.as_str());
        node.is_some_and(|node| node["spare"] == !keep)
    };
    data["resizing"].is_null() && args.nodes.iter().all(is)
}

fn wait(session: &mut Session, args: &ResizeArgs, keep: bool) -> Result<(), CliError> {
    let deadline = Instant::now() + Duration::from_secs(args.how.wait_s);
    // Whichever node answers, which may hear of it a moment later.
    let (mut seen, mut copying) = (false, Copying::default());
    let names: Vec<&str> = args.nodes.iter().map(String::as_str).collect();
    let (coming, going) = if keep { (&names[..], &[][..]) } else { (&[][..], &names[..]) };
    loop {
        match ask(session, "NODES", &Value::Null) {
            Ok(data) if is_done(&data, args, keep) => {
                let (names, done) =
                    (args.nodes.join(", "), json!({ "nodes": args.nodes, "keep": keep }));
                return print(session.json, &done, || match keep {
                    true => format!("among the nodes that keep the logs now: {names}\n"),
                    false => format!("spares now: {names}\n"),
                });
            }
            Ok(data) if is_under_way(&data, args, keep) => {
                copying.tell(&data, coming, going);
                seen = true;
            }
            Ok(_) if seen => {
                return Err(CliError::Failed(format!(
                    "it was taken back meanwhile: {} stay what they were",
                    args.nodes.join(", ")
                )));
            }
            Err(CliError::Request(RequestError::Transport(error))) => {
                return Err(CliError::Failed(format!(
                    "{error}. What was begun goes on: ask another node with `nuthatch cluster status`"
                )));
            }
            // A node whose logs are just moving may not answer.
            _ => {}
        }
        if Instant::now() >= deadline {
            return Err(CliError::Failed(format!(
                "not done within {} s. It goes on: look with `nuthatch cluster status`, or take it back with `nuthatch cluster \
                 {}` for the same nodes",
                args.how.wait_s,
                if keep { "shrink" } else { "grow" },
            )));
        }
        std::thread::sleep(POLL);
    }
}
