//! `cluster finalize`: the end of a rolling upgrade.

use clap::Args;
use serde_json::{Value, json};

use super::{ask, list};
use crate::error::CliError;
use crate::session::{Session, confirm, print};
use crate::show::text;

/// Options of `cluster finalize`.
#[derive(Debug, Clone, Args)]
pub struct FinalizeArgs {
    /// Show what would happen, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    force: bool,
}

/// The version of a node's program, and the newest protocol that it speaks: a part of the status.
pub(super) fn version(node: &Value) -> String {
    let protocol = node["protocol_max"].as_u64().map(|newest| format!("protocol {newest}"));
    let program = node["program"].as_str().map(str::to_owned);
    let known: Vec<String> = [program, protocol].into_iter().flatten().collect();
    if known.is_empty() { "unknown".to_owned() } else { known.join(", ") }
}

/// Says that the cluster can go on to a later protocol, if all its nodes know one.
pub(super) fn hint(data: &Value) -> String {
    let newest = |node: &Value| node["protocol_max"].as_u64();
    let all: Option<Vec<u64>> = list(data, "nodes").map(newest).collect();
    let all_know = all.and_then(|all| all.into_iter().min());
    match (data["protocol"].as_u64(), all_know) {
        (Some(active), Some(all_know)) if all_know > active => format!(
            "the nodes use protocol {active}, and all of them know {all_know}: `nuthatch cluster finalize` ends the upgrade\n"
        ),
        _ => String::new(),
    }
}

pub(super) fn run(session: &mut Session, args: &FinalizeArgs) -> Result<(), CliError> {
    let would = ask(session, "FINALIZE", &json!({ "dry_run": true }))?;
    let is_so = would["protocol"] == would["before"];
    if args.dry_run || is_so {
        return print(session.json, &would, || plan(&would));
    }
    if !args.force {
        eprint!("{}", plan(&would));
        confirm("Go on?", false)?;
    }
    let protocol = would["protocol"].clone();
    let done = ask(session, "FINALIZE", &json!({ "protocol": protocol }))?;
    print(session.json, &done, || {
        format!(
            "the nodes use protocol {protocol} from now on: a program that does not know it is refused\n"
        )
    })
}

/// What would happen.
fn plan(would: &Value) -> String {
    let (before, after) = (&would["before"], &would["protocol"]);
    let behind: Vec<String> = list(would, "held_back_by").map(text).collect();
    match (before == after, behind.is_empty()) {
        (true, true) => format!(
            "The nodes use protocol {before}, the newest that their programs know: nothing is to be done.\n"
        ),
        (true, false) => format!(
            "The nodes use protocol {before}, and {} know nothing newer: start newer programs there first. Nothing is changed.\n",
            behind.join(", ")
        ),
        (false, _) => format!(
            "The nodes use protocol {after} instead of {before} from now on, for good: an older program is refused as a node, so \
             the upgrade cannot be taken back any more.\n"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_says_when_an_upgrade_can_be_finalized() {
        let of = |newest: [Value; 2]| {
            let nodes: Vec<Value> =
                newest.into_iter().map(|newest| json!({ "protocol_max": newest })).collect();
            hint(&json!({ "protocol": 4, "nodes": nodes }))
        };
        assert_eq!(of([json!(4), json!(5)]), "");
        assert_eq!(of([json!(5), Value::Null]), "", "one was not heard");
        assert!(of([json!(6), json!(5)]).contains("all of them know 5"));
    }

    #[test]
    fn who_holds_an_upgrade_back_is_named() {
        let would = |after, behind: &[&str]| {
            plan(&json!({ "before": 4, "protocol": after, "held_back_by": behind }))
        };
        assert!(would(4, &["n2"]).contains("n2 know nothing newer"));
        assert!(would(4, &[]).contains("nothing is to be done"));
        assert!(would(5, &[]).contains("protocol 5 instead of 4"));
    }
}
