//! `server info`.

use clap::Args;
use nuthatch_bench::connect::ConnectArgs;
use serde_json::{Value, json};

use super::source::{Source, SourceArgs};
use crate::error::CliError;
use crate::session::{Session, print};
use crate::show::{self, Sheet, number};

/// Options of `server info`.
#[derive(Debug, Clone, Args)]
pub struct InfoArgs {
    /// Name or id of the server (default: the only one that answers)
    #[arg(value_name = "SERVER")]
    name: Option<String>,
    #[command(flatten)]
    source: SourceArgs,
}

/// Runs `server info`.
pub fn run(args: &InfoArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut source = Source::open(&args.source, connect)?;
    match (source.ask_one("varz", &Value::Null, args.name.as_deref()), source) {
        (Ok(answer), _) => print(connect.json, &answer.data, || sheet(&answer.data)),
        (Err(CliError::Failed(_)), Source::System(session)) if args.name.is_none() => {
            connected(*session)
        }
        (Err(err), _) => Err(err),
    }
}

fn sheet(varz: &Value) -> String {
    let mut sheet = Sheet::default();
    let count = |key: &str| show::count(number(&varz[key]));
    let size = |key: &str| show::bytes(number(&varz[key]));
    sheet.heading(&format!("Server {}", show::text(&varz["server_name"])));
    sheet.line("Id", show::text(&varz["server_id"]));
    sheet.line("Version", show::text(&varz["version"]));
    sheet.line("Built with", show::text(&varz["go"]));
    sheet.line("Started", show::time(&varz["start"]));
    sheet.line("Up for", show::text(&varz["uptime"]));
    sheet.line_if("Cluster", show::some_text(&varz["cluster"]["name"]));
    sheet.heading("Connections");
    let host = show::text(&varz["host"]);
    sheet.line("Listens at", format!("{host}:{}", varz["port"]));
    sheet.line("Authentication required", show::flag(&varz["auth_required"]));
    sheet.line("TLS required", show::flag(&varz["tls_required"]));
    sheet.line("Connections", format!("{} of {}", count("connections"), count("max_connections")));
    sheet.line("Subscriptions", count("subscriptions"));
    sheet.line("Slow consumers", count("slow_consumers"));
    sheet.heading("Use");
    sheet.line("Processor", format!("{:.1}%", varz["cpu"].as_f64().unwrap_or(0.0)));
    sheet.line("Memory", size("mem"));
    let flow =
        |messages: &str, bytes: &str| format!("{} messages, {}", count(messages), size(bytes));
    sheet.line("Received", flow("in_msgs", "in_bytes"));
    sheet.line("Sent", flow("out_msgs", "out_bytes"));
    sheet.line("Largest message", size("max_payload"));
    jetstream(&mut sheet, &varz["jetstream"]);
    sheet.render()
}

fn jetstream(sheet: &mut Sheet, js: &Value) {
    let (config, stats) = (&js["config"], &js["stats"]);
    if !config.is_object() {
        return;
    }
    sheet.heading("JetStream");
    sheet.line_if("Domain", show::some_text(&config["domain"]));
    sheet.line("Store directory", show::text(&config["store_dir"]));
    sheet.line_if("Sync interval", sync(config));
    sheet.line("Largest store", show::limit(&config["max_storage"], show::bytes));
    sheet.line("Largest memory", show::limit(&config["max_memory"], show::bytes));
    sheet.line("Store used", show::bytes(number(&stats["storage"])));
    sheet.line("Memory used", show::bytes(number(&stats["memory"])));
    sheet.line("API requests", show::count(number(&stats["api"]["total"])));
    sheet.line("API errors", show::count(number(&stats["api"]["errors"])));
}

/// When data is made durable; nothing when the server does not say.
fn sync(config: &Value) -> Option<String> {
    if config["sync_always"] == true {
        return Some("always, before each ack".into());
    }
    config["sync_interval"].as_u64().map(show::duration)
}

/// What a server tells everyone who connects.
fn connected(mut session: Session) -> Result<(), CliError> {
    let info = session.client.info().clone();
    let account = session.api("INFO", &Value::Null).ok();
    let json = json!({
        "server_name": info.server_name, "server_id": info.server_id, "version": info.version,
        "address": session.client.server().to_string(), "max_payload": info.max_payload,
        "jetstream": info.jetstream, "domain": info.domain, "cluster": info.cluster,
        "auth_required": info.auth_required, "tls_required": info.tls_required,
        "client_id": info.client_id, "client_ip": info.client_ip, "account": account,
    });
    session.print(&json, || {
        let mut sheet = Sheet::default();
        let yes = |value: bool| if value { "yes" } else { "no" };
        sheet.heading(&format!("Server {}", info.server_name));
        sheet.line("Id", info.server_id.as_str());
        sheet.line("Version", info.version.as_str());
        sheet.line("Address", session.client.server().to_string());
        sheet.line_if("Cluster", show::some_text(&json["cluster"]));
        sheet.line("Authentication required", yes(info.auth_required));
        sheet.line("TLS required", yes(info.tls_required));
        sheet.line("Largest message", show::bytes(info.max_payload as u64));
        sheet.line("JetStream", yes(info.jetstream));
        sheet.line_if("Domain", show::some_text(&json["domain"]));
        sheet.line("This connection", format!("{} from {}", info.client_id, info.client_ip));
        let mut text = sheet.render();
        text.push_str(
            "\nMore with a user of the system account, or with --monitor http://HOST:8222\n",
        );
        text
    })
}
