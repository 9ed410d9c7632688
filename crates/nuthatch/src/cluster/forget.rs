//! `cluster forget-log`: what a node alone had is gone for good, so the names and subjects of its streams are free.
//! `cluster forget-copies`: what it held of logs whose copies end with their nodes is gone, so they do not wait for it.

use clap::Args;
use serde_json::{Value, json};

use super::{ask, list};
use crate::error::CliError;
use crate::session::{Session, confirm, print};
use crate::show::text;

/// Options of `cluster forget-log`.
#[derive(Debug, Clone, Args)]
pub struct ForgetArgs {
    /// Name of the node
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

/// What the status says where a log has no owner while a node goes that is away: it may wait for that.
pub(super) fn hint(data: &Value) -> String {
    let resizing = data["resizing"].as_object().filter(|resizing| resizing["keep"] == false);
    let leaving = resizing.into_iter().flat_map(|resizing| resizing["nodes"].as_array());
    let going: Vec<&Value> = leaving.flatten().chain([&data["replacing"]["old"]]).collect();
    let is_away = |node: &&Value| node["connected"] == false && going.contains(&&node["name"]);
    let waits = |log: &&Value| list(data, "begin_anew").any(|name| name == *log);
    let logs: Vec<String> = list(data, "unowned").filter(waits).map(text).collect();
    let away = list(data, "nodes").filter(is_away).map(|node| text(&node["name"]));
    let line = |node: String| {
        let logs = logs.join(", ");
        format!(
            "{logs} may wait for what {node} held: if {node} has ended for good, nuthatch cluster forget-copies {node}\n"
        )
    };
    if logs.is_empty() { String::new() } else { away.map(line).collect() }
}

/// What is not waited for any more, and what becomes of it.
fn copies(node: &str, logs: &[String]) -> String {
    let names = logs.join(", ");
    match logs.is_empty() {
        true => format!(
            "No log in memory, and none in a bucket, waits for {node}, or it was said already. Logs on disks are not given up like that: see \
             nuthatch cluster force-recover\n"
        ),
        false => format!(
            "What {node} held of {names} counts as gone for good. A log of which no majority is left then begins anew: a log in \
             memory is empty, and one in a bucket goes on with what is there. Say it only if {node} has ended and does not come \
             back: if it still runs, what it and others acknowledge until they read that is lost.\n"
        ),
    }
}

pub(super) fn run_copies(session: &mut Session, args: &ForgetArgs) -> Result<(), CliError> {
    let node = args.node.as_str();
    let would = ask(session, "FORGET_COPIES", &body(node, true))?;
    let logs: Vec<String> = list(&would, "logs").map(text).collect();
    if args.dry_run || logs.is_empty() {
        return print(session.json, &would, || copies(node, &logs));
    }
    if !args.force {
        eprint!("{}", copies(node, &logs));
        confirm("Go on?", false)?;
    }
    let done = ask(session, "FORGET_COPIES", &body(node, false))?;
    print(session.json, &done, || format!("{} waits for {node} no longer\n", logs.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_without_an_owner_may_wait_for_a_node_that_goes_and_is_away() {
        let data = |old: &str, unowned: &[&str]| {
            json!({ "nodes": [{ "name": "n2", "connected": false }, { "name": "n3", "connected": true }],
                    "replacing": { "old": old, "new": "n4" }, "resizing": null, "unowned": unowned,
                    "begin_anew": ["memory-quorum"] })
        };
        let said = hint(&data("n2", &["memory-quorum"]));
        let expected = "memory-quorum may wait for what n2 held: if n2 has ended for good, nuthatch cluster forget-copies n2\n";
        assert_eq!(said, expected);
        assert_eq!(hint(&data("n3", &["memory-quorum"])), "", "it is there");
        assert_eq!(hint(&data("n2", &[])), "", "nothing waits");
        assert_eq!(hint(&data("n2", &["default"])), "", "that is on disks");
        let mut leaving = data("n9", &["default", "memory-quorum"]);
        leaving["resizing"] = json!({ "nodes": ["n2", "n3"], "keep": false });
        assert_eq!(hint(&leaving), expected);
    }
}
