//! `server ls`.

use clap::Args;
use nuthatch_client::connect::ConnectArgs;
use serde_json::{Value, json};

use super::source::{Answer, Source, SourceArgs, none};
use crate::error::CliError;
use crate::session::{Session, print};
use crate::show::{self, Table, number};

/// Options of `server ls`.
#[derive(Debug, Clone, Args)]
pub struct LsArgs {
    #[command(flatten)]
    source: SourceArgs,
}

/// Runs `server ls`.
pub fn run(args: &LsArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut source = Source::open(&args.source, connect)?;
    match source.ask("varz", &none()) {
        Ok(answers) => list(&answers, connect.json),
        // Only the system account knows all servers; every client knows its own.
        Err(err) => match source {
            Source::System(session) => own(&session),
            Source::Http { .. } => Err(err),
        },
    }
}

fn list(answers: &[Answer], as_json: bool) -> Result<(), CliError> {
    let json = answers.iter().map(|answer| {
        let mut facts = json!({ "server": answer.server });
        for key in [
            "server_id",
            "version",
            "host",
            "port",
            "connections",
            "subscriptions",
            "in_msgs",
            "out_msgs",
            "in_bytes",
            "out_bytes",
            "mem",
            "cpu",
            "uptime",
        ] {
            facts[key] = answer.data[key].clone();
        }
        facts
    });
    print(as_json, &json.collect(), || {
        let titles = [
            "Server",
            "Version",
            "Address",
            "Connections",
            "Subscriptions",
            "In msgs",
            "Out msgs",
            "Memory",
            "Processor",
            "Uptime",
        ];
        let mut table = Table::new(&titles);
        for Answer { server, data, .. } in answers {
            let count = |key: &str| show::count(number(&data[key]));
            table.row(vec![
                server.clone(),
                show::text(&data["version"]),
                format!("{}:{}", show::text(&data["host"]), data["port"]),
                count("connections"),
                count("subscriptions"),
                count("in_msgs"),
                count("out_msgs"),
                show::bytes(number(&data["mem"])),
                format!("{:.1}%", data["cpu"].as_f64().unwrap_or(0.0)),
                show::text(&data["uptime"]),
            ]);
        }
        table.render()
    })
}

/// The server of this connection, as it introduced itself.
fn own(session: &Session) -> Result<(), CliError> {
    let info = session.client.info();
    let address = session.client.server().to_string();
    let json: Value = json!([{
        "server": info.server_name, "server_id": info.server_id, "version": info.version,
        "address": address,
    }]);
    session.print(&json, || {
        let mut table = Table::new(&["Server", "Version", "Address"]);
        table.row(vec![info.server_name.clone(), info.version.to_string(), address.clone()]);
        table.render()
            + "(only the server of this connection: others need a user of the system account)\n"
    })
}
