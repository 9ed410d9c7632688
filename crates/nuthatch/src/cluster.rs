//! `cluster`: which nodes a cluster has, and the replacement of one.

pub mod copies;
mod copying;
mod drain;
mod finalize;
mod forget;
mod logs;
pub mod recover;
mod resize;
mod state;
mod zones;

use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use nuthatch_client::RequestError;
use nuthatch_client::connect::ConnectArgs;
use serde_json::{Value, json};

use self::copying::Copying;
use self::drain::{DrainArgs, UndrainArgs};
use self::finalize::FinalizeArgs;
use self::forget::ForgetArgs;
use self::logs::MoveLogArgs;
use self::recover::RecoverArgs;
use self::resize::ResizeArgs;
use crate::error::CliError;
use crate::server::source::ask_system;
use crate::session::{Session, confirm, print};
use crate::show::{Table, text};

/// Between two looks whether a replacement is over.
const POLL: Duration = Duration::from_millis(500);

/// Code of an answer by which nobody knows what became of the request.
const UNDECIDED: u16 = 503;

/// How often a question is asked that gets no answer.
const ATTEMPTS: usize = 3;

/// Commands about the nodes of a cluster, for a user of the system account
#[derive(Debug, Clone, Subcommand)]
pub enum ClusterCommand {
    /// Show the nodes: which keep the logs and own them, which are spares or drained, what was removed, what is under way
    #[command(visible_alias = "nodes")]
    Status,
    /// Have a spare take the place of a node, which may be dead
    Replace(ReplaceArgs),
    /// Have spares keep the logs, too: three nodes that keep them become five
    Grow(ResizeArgs),
    /// Have nodes leave the logs to the others and be spares: five that keep them become three
    Shrink(ResizeArgs),
    /// Have a node own no log and not lead the catalog, so that nothing moves when it is stopped
    Drain(DrainArgs),
    /// Take that back: the node may own logs again
    Undrain(UndrainArgs),
    /// Show the quorum logs: who owns each, who is to, and how far the copies are
    Logs,
    /// Have a node own a quorum log from now on, whenever it can
    MoveLog(MoveLogArgs),
    /// Give up what is known of streams that only a node had which is away, so that their names are free
    ForgetLog(ForgetArgs),
    /// Say that a node which is being replaced has ended for good, so that logs in memory or in a bucket do not wait for its copies
    ForgetCopies(ForgetArgs),
    /// End a rolling upgrade: the nodes use what all their programs know, and older programs can be no nodes any more
    Finalize(FinalizeArgs),
    /// Make a store for one server of what the disks of a cluster have that has lost its majority; only reads them
    ForceRecover(RecoverArgs),
    /// Take back the replacement of a node that is under way: the node keeps its place
    Keep {
        /// Name of the node that was to go
        node: String,
        /// Show what would happen, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
}

/// Options of `cluster replace`.
#[derive(Debug, Clone, Args)]
pub struct ReplaceArgs {
    /// Name of the node that is to go; a spare is removed
    old: String,
    /// Name of the spare that takes its place (default: any)
    new: Option<String>,
    #[command(flatten)]
    how: HowArgs,
}

/// Options of commands that take a while and cannot be undone in every case.
#[derive(Debug, Clone, Args)]
struct HowArgs {
    /// Return when it has begun
    #[arg(long)]
    no_wait: bool,
    /// Seconds after which it is waited for no longer; it goes on
    #[arg(long, default_value_t = 600)]
    wait_s: u64,
    /// Show what would happen, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    force: bool,
}

/// Runs a command about the nodes of a cluster.
pub fn run(command: &ClusterCommand, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    match command {
        ClusterCommand::Status => status(&mut session),
        ClusterCommand::Replace(args) => replace(&mut session, args, connect),
        ClusterCommand::Grow(args) => resize::run(&mut session, args, true),
        ClusterCommand::Shrink(args) => resize::run(&mut session, args, false),
        ClusterCommand::Drain(args) => drain::drain(&mut session, args, connect),
        ClusterCommand::Undrain(args) => drain::undrain(&mut session, args),
        ClusterCommand::Logs => logs::show(&mut session),
        ClusterCommand::MoveLog(args) => logs::move_log(&mut session, args, connect),
        ClusterCommand::ForgetLog(args) => forget::run(&mut session, args),
        ClusterCommand::ForgetCopies(args) => forget::run_copies(&mut session, args),
        ClusterCommand::Finalize(args) => finalize::run(&mut session, args),
        ClusterCommand::Keep { node, dry_run } => keep(&mut session, node, *dry_run),
        ClusterCommand::ForceRecover(args) => recover::run(args, session.json),
    }
}

/// Asks the cluster; one of its nodes answers. To ask again does no harm: one that has just died may have been chosen, or
/// the one that is removed, which does not hear that it was.
fn ask(session: &mut Session, what: &str, body: &Value) -> Result<Value, CliError> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let subject = format!("$SYS.REQ.CLUSTER.{what}");
    let mut attempt = 0;
    loop {
        attempt += 1;
        let may_repeat = attempt < ATTEMPTS;
        let answer = match session.client.request(&subject, b"", body.as_bytes(), session.timeout) {
            Err(RequestError::TimedOut { .. }) if may_repeat => continue,
            asked => asked?,
        };
        let mut json: Value = serde_json::from_slice(&answer.payload)
            .map_err(|err| CliError::Failed(format!("a server's answer is no JSON: {err}")))?;
        match json["error"]["description"].as_str() {
            Some(_) if json["error"]["code"] == UNDECIDED && may_repeat => std::thread::sleep(POLL),
            Some(why) => return Err(CliError::Failed(why.to_owned())),
            None => return Ok(json["data"].take()),
        }
    }
}

fn status(session: &mut Session) -> Result<(), CliError> {
    let mut data = ask(session, "NODES", &Value::Null)?;
    // Only the owner of a log knows how far the others are.
    let pages = ask_system(session, "RAFTZ", &Value::Null)?;
    let pages: Vec<Value> = pages.into_iter().map(|page| page.data).collect();
    state::complete(&mut data, &pages);
    print(session.json, &data, || {
        let mut columns =
            vec!["Node", "Address", "Version", "Is", "State", "Quorum logs on it", "Owns"];
        columns.extend(zones::column(&data));
        let mut table = Table::new(&columns);
        for node in list(&data, "nodes") {
            let (name, address) = (text(&node["name"]), text(&node["address"]));
            let logs = |key: &str| state::logs(&data, &node[key]);
            let (is, health) = (drain::state(node), state::health(&data, node));
            let version = finalize::version(node);
            let mut row = vec![name, address, version, is, health, logs("logs"), logs("owns")];
            row.extend(zones::column(&data).map(|_| zones::of(node)));
            table.row(row);
        }
        let mut out = table.render();
        out.push_str(&state::verdict(&data));
        out.push_str(&finalize::hint(&data));
        out.push_str(&zones::hint(&data));
        out.push_str(&state::standbys(&data));
        out.push_str(&forget::hint(&data));
        out.push_str(&forget::offline(&data));
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
        if !data["resizing"].is_null() {
            out.push_str(&resize::under_way(&data["resizing"]));
        }
        out
    })
}

fn list<'a>(data: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    data[key].as_array().into_iter().flatten()
}

/// What a replacement would do.
enum Plan {
    /// It is done, or under way: there is nothing to ask.
    Begun,
    /// This, in words and as JSON.
    ToDo(String, Value),
}

/// Asks what would happen.
fn plan(session: &mut Session, args: &ReplaceArgs) -> Result<Plan, CliError> {
    let body = json!({ "old": args.old, "new": args.new, "dry_run": true });
    let would = ask(session, "REPLACE", &body)?;
    let data = ask(session, "NODES", &Value::Null)?;
    let (old, new) = (args.old.as_str(), &would["new"]);
    let is_gone = |gone: &Value| gone["name"] == old && gone["by"] == *new;
    let under_way = &data["replacing"];
    if list(&data, "removed").any(is_gone) || (under_way["old"] == old && under_way["new"] == *new)
    {
        return Ok(Plan::Begun);
    }
    let goes = list(&data, "nodes").find(|node| node["name"] == old);
    let logs = goes.map_or(Value::Null, |node| node["logs"].clone());
    let forever = "its name does not come back, and its directory is of no use to the cluster any more, though nothing in \
                   it is deleted";
    let todo = match new.as_str() {
        None => format!("The spare {old} is removed from the cluster for good: {forever}.\n"),
        Some(new) => format!(
            "{new} takes the place of {old}: all that is on {old}'s quorum logs ({}) is brought to {new} first. Then {old} is \
             removed from the cluster for good: {forever}. Memory streams and local logs of {old} go with it: \
             the names of streams in such logs stay taken until `nuthatch cluster forget-log {old}`.\n",
            numbers(&logs),
        ),
    };
    Ok(Plan::ToDo(todo, json!({ "old": old, "new": new, "logs": logs })))
}

fn numbers(logs: &Value) -> String {
    let logs = logs.as_array().into_iter().flatten().map(Value::to_string);
    logs.collect::<Vec<_>>().join(", ")
}

fn replace(
    session: &mut Session,
    args: &ReplaceArgs,
    connect: &ConnectArgs,
) -> Result<(), CliError> {
    let plan = plan(session, args)?;
    // What was agreed to: another node might choose another spare by now.
    let new = match &plan {
        Plan::ToDo(_, json) => json["new"].clone(),
        Plan::Begun => json!(args.new),
    };
    match plan {
        Plan::Begun if args.how.dry_run => {
            let text = || "It is done or under way already\n".to_owned();
            return print(session.json, &json!({ "old": args.old, "begun": true }), text);
        }
        Plan::ToDo(todo, json) if args.how.dry_run => return print(session.json, &json, || todo),
        Plan::ToDo(todo, _) if !args.how.force => {
            eprint!("{todo}");
            confirm("Go on?", false)?;
        }
        Plan::Begun | Plan::ToDo(..) => {}
    }
    let begun = ask(session, "REPLACE", &json!({ "old": args.old, "new": new }))?;
    let new = begun["new"].as_str().map(str::to_owned);
    match new.filter(|_| !args.how.no_wait) {
        Some(new) => wait((session, connect), args, &new, &begun),
        None => print(session.json, &begun, || match begun["new"].as_str() {
            Some(new) => format!("{new} is taking the place of {}\n", args.old),
            None => format!("the spare {} was removed\n", args.old),
        }),
    }
}

fn keep(session: &mut Session, node: &str, dry_run: bool) -> Result<(), CliError> {
    if dry_run {
        let data = ask(session, "NODES", &Value::Null)?;
        let under_way = &data["replacing"];
        if under_way["old"] != node {
            return Err(CliError::Failed(format!("no replacement of {node} is under way")));
        }
        let spare = &under_way["new"];
        return print(session.json, &json!({ "keep": node, "spare": spare }), || {
            format!(
                "{node} would keep its place, and {} be a spare again: what it was brought of the logs is of no use then.\n",
                text(spare)
            )
        });
    }
    let kept = ask(session, "KEEP", &json!({ "node": node }))?;
    print(session.json, &kept, || {
        format!("{node} keeps its place, and {} is a spare again\n", text(&kept["spare"]))
    })
}

fn wait(
    (session, connect): (&mut Session, &ConnectArgs),
    args: &ReplaceArgs,
    new: &str,
    begun: &Value,
) -> Result<(), CliError> {
    let deadline = Instant::now() + Duration::from_secs(args.how.wait_s);
    let mut copying = Copying::default();
    loop {
        match ask(session, "NODES", &Value::Null) {
            Ok(data) if list(&data, "removed").any(|gone| gone["name"] == args.old.as_str()) => {
                return print(session.json, begun, || {
                    format!("{new} has taken the place of {}, which was removed\n", args.old)
                });
            }
            Err(CliError::Request(RequestError::Transport(_))) => {
                *session = Session::open(connect).map_err(|error| {
                    CliError::Failed(format!(
                        "{error}. The server may be the node that is replaced, which ends then. The replacement goes on: \
                         ask another node with `nuthatch cluster status`"
                    ))
                })?;
            }
            Ok(data) => copying.tell(&data, &[new], &[&args.old]),
            // A node that is just being replaced may not answer.
            Err(_) => {}
        }
        if Instant::now() >= deadline {
            return Err(CliError::Failed(format!(
                "{new} has not taken the place of {} within {} s. It goes on: look with `nuthatch cluster status`; if {new} \
                 is gone, name another spare",
                args.old, args.how.wait_s
            )));
        }
        std::thread::sleep(POLL);
    }
}
