//! `cluster`: which nodes a cluster has, and the replacement of one.

use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use nuthatch_client::connect::ConnectArgs;
use serde_json::{Value, json};

use crate::error::CliError;
use crate::session::{Session, print};
use crate::show::{Table, text};

/// Between two looks whether a replacement is over.
const POLL: Duration = Duration::from_millis(500);

/// Commands about the nodes of a cluster, for a user of the system account
#[derive(Debug, Clone, Subcommand)]
pub enum ClusterCommand {
    /// Show the nodes: which keep the logs, which are spares, what was removed, what is under way
    #[command(visible_alias = "nodes")]
    Status,
    /// Have a spare take the place of a node, which may be dead
    Replace(ReplaceArgs),
}

/// Options of `cluster replace`.
#[derive(Debug, Clone, Args)]
pub struct ReplaceArgs {
    /// Name of the node that is to go; a spare is removed
    old: String,
    /// Name of the spare that takes its place (default: any)
    new: Option<String>,
    /// Return when it has begun
    #[arg(long)]
    no_wait: bool,
    /// Seconds after which it is waited for no longer; it goes on
    #[arg(long, default_value_t = 600)]
    wait_s: u64,
}

/// Runs a command about the nodes of a cluster.
pub fn run(command: &ClusterCommand, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    match command {
        ClusterCommand::Status => status(&mut session),
        ClusterCommand::Replace(args) => replace(&mut session, args),
    }
}

/// Asks the cluster; one of its nodes answers.
fn ask(session: &mut Session, what: &str, body: &Value) -> Result<Value, CliError> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let subject = format!("$SYS.REQ.CLUSTER.{what}");
    let answer = session.client.request(&subject, b"", body.as_bytes(), session.timeout)?;
    let mut json: Value = serde_json::from_slice(&answer.payload)
        .map_err(|err| CliError::Failed(format!("a server's answer is no JSON: {err}")))?;
    match json["error"]["description"].as_str() {
        Some(why) => Err(CliError::Failed(why.to_owned())),
        None => Ok(json["data"].take()),
    }
}

fn status(session: &mut Session) -> Result<(), CliError> {
    let data = ask(session, "NODES", &Value::Null)?;
    print(session.json, &data, || {
        let mut table = Table::new(&["Node", "Address", "Is", "Quorum logs on it"]);
        for node in data["nodes"].as_array().into_iter().flatten() {
            let is = if node["spare"] == true { "spare" } else { "keeper" };
            let logs = node["logs"].as_array().into_iter().flatten().map(Value::to_string);
            let logs = logs.collect::<Vec<_>>().join(", ");
            table.row(vec![text(&node["name"]), text(&node["address"]), is.to_owned(), logs]);
        }
        let mut out = table.render();
        for gone in data["removed"].as_array().into_iter().flatten() {
            let by = match gone["by"].as_str() {
                Some(by) => format!(", {by} took its place"),
                None => String::new(),
            };
            out.push_str(&format!("{} was removed{by}\n", text(&gone["name"])));
        }
        if !data["replacing"].is_null() {
            let (old, new) = (text(&data["replacing"]["old"]), text(&data["replacing"]["new"]));
            out.push_str(&format!("{new} is taking the place of {old}\n"));
        }
        out
    })
}

fn replace(session: &mut Session, args: &ReplaceArgs) -> Result<(), CliError> {
    let begun = ask(session, "REPLACE", &json!({ "old": args.old, "new": args.new }))?;
    let new = begun["new"].as_str().map(str::to_owned);
    let (Some(new), false) = (&new, args.no_wait) else {
        return print(session.json, &begun, || match &new {
            Some(new) => format!("{new} is taking the place of {}\n", args.old),
            None => format!("the spare {} was removed\n", args.old),
        });
    };
    let deadline = Instant::now() + Duration::from_secs(args.wait_s);
    loop {
        // A node that is just being replaced may not answer.
        if let Ok(data) = ask(session, "NODES", &Value::Null) {
            let removed = data["removed"].as_array().into_iter().flatten();
            if removed.into_iter().any(|gone| gone["name"] == args.old.as_str()) {
                return print(session.json, &begun, || {
                    format!("{new} has taken the place of {}, which was removed\n", args.old)
                });
            }
        }
        if Instant::now() >= deadline {
            return Err(CliError::Failed(format!(
                "{new} has not taken the place of {} within {} s. It goes on: look with `nuthatch cluster status`; if {new} \
                 is gone, name another spare",
                args.old, args.wait_s
            )));
        }
        std::thread::sleep(POLL);
    }
}
