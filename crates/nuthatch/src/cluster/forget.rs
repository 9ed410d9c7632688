//! `cluster forget-log`: what a node alone had is gone for good, so the names and subjects of its streams are free.

use clap::Args;
use serde_json::{Value, json};

use super::{ask, list};
use crate::error::CliError;
use crate::session::{Session, confirm, print};
use crate::show::text;

/// Options of `cluster forget-log`.
#[derive(Debug, Clone, Args)]
pub struct ForgetArgs {
    /// Name of the node that had them
    node: String,
    /// Show what would happen, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    force: bool,
}

fn body(node: &str, dry_run: bool) -> Value {
    json!({ "node": node, "dry_run": dry_run })
}

/// What is offline with a node, a line for each log and account.
fn lines(data: &Value, key: &str) -> String {
    let line = |log: &Value| {
        let names: Vec<String> = list(log, "names").map(text).collect();
        let count = log["streams"].as_u64().unwrap_or_default();
        let more = match count.saturating_sub(names.len() as u64) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let (node, name, identity) =
            (text(&log["node"]), text(&log["log"]), text(&log["identity"]));
        let account = text(&log["account"]);
        format!(
            "offline with {node}, log {name} ({identity}), account {account}: {}{more}\n",
            names.join(", ")
        )
    };
    list(data, key).map(line).collect()
}

/// What the status says of streams that are offline.
pub(super) fn offline(data: &Value) -> String {
    lines(data, "offline")
}

pub(super) fn run(session: &mut Session, args: &ForgetArgs) -> Result<(), CliError> {
    let node = args.node.as_str();
    let would = ask(session, "FORGET", &body(node, true))?;
    let todo = format!(
        "{}Nothing is known of these streams any more: others may be made of the same names and subjects. Nothing on {node}'s disk \
         is deleted; should the log come back, its node serves what is in it again, beside what was made meanwhile.\n",
        lines(&would, "logs")
    );
    if args.dry_run {
        return print(session.json, &would, || todo);
    }
    if !args.force {
        eprint!("{todo}");
        confirm("Go on?", false)?;
    }
    let done = ask(session, "FORGET", &body(node, false))?;
    print(session.json, &done, || format!("what was offline with {node} is forgotten\n"))
}
