//! `server report`.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use nuthatch_client::connect::ConnectArgs;
use serde_json::{Value, json};

use super::source::{Answer, Source, SourceArgs, none};
use crate::error::CliError;
use crate::session::print;
use crate::show::{self, Table, number};

/// Reports about servers.
#[derive(Debug, Clone, Subcommand)]
pub enum ReportCommand {
    /// Connections of clients
    #[command(visible_aliases = ["conn", "connz", "conns"])]
    Connections(ConnectionArgs),
    /// Connections and traffic of each account
    #[command(visible_alias = "acct")]
    Accounts(CommonArgs),
    /// JetStream of each server
    #[command(visible_aliases = ["jsz", "js"])]
    Jetstream(CommonArgs),
    /// Whether each server is well
    Health(CommonArgs),
    /// Processor use of each server
    Cpu(CommonArgs),
    /// Memory use of each server
    Mem(CommonArgs),
}

/// Options of all reports.
#[derive(Debug, Clone, Args)]
pub struct CommonArgs {
    #[command(flatten)]
    source: SourceArgs,
}

/// Options of `server report connections`.
#[derive(Debug, Clone, Args)]
pub struct ConnectionArgs {
    /// Sort by, largest first
    #[arg(long, default_value = "subs",
          value_parser = ["in-bytes", "out-bytes", "in-msgs", "out-msgs", "uptime", "cid", "subs"])]
    sort: String,
    /// Smallest first
    #[arg(long, short = 'R')]
    reverse: bool,
    /// Show no more than this many
    #[arg(long, default_value_t = 1000)]
    top: usize,
    /// Only connections of this account
    #[arg(long)]
    account: Option<String>,
    /// Only connections of this user
    #[arg(long)]
    username: Option<String>,
    /// Open or closed connections
    #[arg(long, default_value = "open", value_parser = ["open", "closed", "all"])]
    state: String,
    #[command(flatten)]
    source: SourceArgs,
}

/// Runs `server report`.
pub fn run(command: &ReportCommand, connect: &ConnectArgs) -> Result<(), CliError> {
    match command {
        ReportCommand::Connections(args) => connections(args, connect),
        ReportCommand::Accounts(args) => accounts(args, connect),
        ReportCommand::Jetstream(args) => jetstream(args, connect),
        ReportCommand::Health(args) => health(args, connect),
        ReportCommand::Cpu(args) => use_of(args, connect, "cpu", "Processor"),
        ReportCommand::Mem(args) => use_of(args, connect, "mem", "Memory"),
    }
}

/// All connections of all servers, page by page.
pub fn all_connections(source: &mut Source, state: &str) -> Result<Vec<Value>, CliError> {
    const PAGE: usize = 1024;
    let mut all = Vec::new();
    loop {
        let options = match source {
            Source::System(_) => {
                let state = match state {
                    "closed" => 1,
                    "all" => 2,
                    _ => 0,
                };
                json!({ "offset": all.len(), "limit": PAGE, "auth": true, "state": state })
            }
            Source::Http { .. } => {
                json!({ "offset": all.len(), "limit": PAGE, "auth": 1, "state": state })
            }
        };
        let answers = source.ask("connz", &options)?;
        let more = answers.iter().any(|answer| {
            let data = &answer.data;
            number(&data["offset"]) + number(&data["num_connections"]) < number(&data["total"])
                && number(&data["num_connections"]) > 0
        });
        for answer in answers {
            for connection in answer.data["connections"].as_array().into_iter().flatten() {
                let mut connection = connection.clone();
                connection["server"] = answer.server.as_str().into();
                all.push(connection);
            }
        }
        if !more {
            return Ok(all);
        }
    }
}

fn sort_key(name: &str) -> &'static str {
    match name {
        "in-bytes" => "in_bytes",
        "out-bytes" => "out_bytes",
        "in-msgs" => "in_msgs",
        "out-msgs" => "out_msgs",
        // A small number is an old connection.
        "uptime" | "cid" => "cid",
        _ => "subscriptions",
    }
}

fn connections(args: &ConnectionArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut source = Source::open(&args.source, connect)?;
    let mut connections = all_connections(&mut source, &args.state)?;
    let is = |value: &Value, wanted: &Option<String>| {
        wanted.as_ref().is_none_or(|wanted| value.as_str() == Some(wanted))
    };
    connections.retain(|c| is(&c["account"], &args.account));
    connections.retain(|c| is(&c["authorized_user"], &args.username));
    let key = sort_key(&args.sort);
    connections.sort_by_key(|connection| std::cmp::Reverse(number(&connection[key])));
    if args.reverse != (args.sort == "uptime") {
        connections.reverse();
    }
    connections.truncate(args.top);
    print(connect.json, &json!(connections), || {
        if connections.is_empty() { "No connections\n".into() } else { table(&connections) }
    })
}

/// Connections for people.
pub fn table(connections: &[Value]) -> String {
    let titles = [
        "Cid",
        "Name",
        "Server",
        "User",
        "Address",
        "Account",
        "Uptime",
        "In msgs",
        "Out msgs",
        "In bytes",
        "Out bytes",
        "Subs",
    ];
    let mut table = Table::new(&titles);
    for connection in connections {
        let count = |key: &str| show::count(number(&connection[key]));
        let size = |key: &str| show::bytes(number(&connection[key]));
        let text = |key: &str| show::text(&connection[key]);
        table.row(vec![
            text("cid"),
            text("name"),
            text("server"),
            text("authorized_user"),
            format!("{}:{}", text("ip"), text("port")),
            text("account"),
            text("uptime"),
            count("in_msgs"),
            count("out_msgs"),
            size("in_bytes"),
            size("out_bytes"),
            count("subscriptions"),
        ]);
    }
    table.render()
}

fn accounts(args: &CommonArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    const KEYS: [&str; 5] = ["in_msgs", "out_msgs", "in_bytes", "out_bytes", "subscriptions"];
    let mut source = Source::open(&args.source, connect)?;
    let mut sums: BTreeMap<String, (u64, [u64; 5])> = BTreeMap::new();
    for connection in all_connections(&mut source, "open")? {
        let name = show::some_text(&connection["account"]).unwrap_or_else(|| "$G".into());
        let sum = sums.entry(name).or_default();
        sum.0 += 1;
        for (total, key) in sum.1.iter_mut().zip(KEYS) {
            *total += number(&connection[key]);
        }
    }
    let values = sums.iter().map(|(name, (connections, totals))| {
        let mut value = json!({ "account": name, "connections": connections });
        for (key, total) in KEYS.iter().zip(totals) {
            value[*key] = (*total).into();
        }
        value
    });
    print(connect.json, &values.collect(), || {
        let titles =
            ["Account", "Connections", "In msgs", "Out msgs", "In bytes", "Out bytes", "Subs"];
        let mut table = Table::new(&titles);
        for (name, (connections, totals)) in &sums {
            let [in_msgs, out_msgs, in_bytes, out_bytes, subs] = *totals;
            table.row(vec![
                name.clone(),
                show::count(*connections),
                show::count(in_msgs),
                show::count(out_msgs),
                show::bytes(in_bytes),
                show::bytes(out_bytes),
                show::count(subs),
            ]);
        }
        table.render()
    })
}

fn json_of(answers: &[Answer]) -> Value {
    let tagged =
        answers.iter().map(|answer| json!({ "server": answer.server, "data": answer.data }));
    tagged.collect()
}

fn jetstream(args: &CommonArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let answers = Source::open(&args.source, connect)?.ask("jsz", &none())?;
    print(connect.json, &json_of(&answers), || {
        let titles = [
            "Server",
            "Cluster",
            "Domain",
            "Streams",
            "Consumers",
            "Messages",
            "Bytes",
            "Memory",
            "File",
            "API requests",
            "API errors",
        ];
        let mut table = Table::new(&titles);
        for Answer { server, data, .. } in &answers {
            let count = |value: &Value| show::count(number(value));
            table.row(vec![
                server.clone(),
                show::text(&data["meta_cluster"]["name"]),
                show::text(&data["config"]["domain"]),
                count(&data["streams"]),
                count(&data["consumers"]),
                count(&data["messages"]),
                show::bytes(number(&data["bytes"])),
                show::bytes(number(&data["memory"])),
                show::bytes(number(&data["storage"])),
                count(&data["api"]["total"]),
                count(&data["api"]["errors"]),
            ]);
        }
        table.render()
    })
}

fn health(args: &CommonArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let answers = Source::open(&args.source, connect)?.ask("healthz", &none())?;
    print(connect.json, &json_of(&answers), || {
        let mut table = Table::new(&["Server", "Status", "Reason"]);
        for Answer { server, data, .. } in &answers {
            let (status, why) = (show::text(&data["status"]), show::text(&data["error"]));
            table.row(vec![server.clone(), status, why]);
        }
        table.render()
    })?;
    if answers.iter().all(|answer| answer.data["status"] == "ok") {
        return Ok(());
    }
    Err(CliError::Failed("not every server is well".into()))
}

fn use_of(
    args: &CommonArgs,
    connect: &ConnectArgs,
    key: &str,
    title: &str,
) -> Result<(), CliError> {
    let answers = Source::open(&args.source, connect)?.ask("varz", &none())?;
    let values = answers.iter().map(|a| json!({ "server": a.server, key: a.data[key] }));
    print(connect.json, &values.collect(), || {
        let mut table = Table::new(&["Server", title]);
        for Answer { server, data, .. } in &answers {
            let shown = match key {
                "mem" => show::bytes(number(&data[key])),
                _ => format!("{:.1}%", data[key].as_f64().unwrap_or(0.0)),
            };
            table.row(vec![server.clone(), shown]);
        }
        table.render()
    })
}
