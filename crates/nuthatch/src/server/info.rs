//! `server info`.

use clap::Args;
use nuthatch_client::connect::ConnectArgs;
use serde_json::{Value, json};

use super::source::{Source, SourceArgs};
use crate::error::CliError;
use crate::session::{Session, print};
use crate::show::{self, DetailView, number};

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
        (Ok(answer), _) => print(connect.json, &answer.data, || details(&answer.data)),
        (Err(CliError::Failed(_)), Source::System(session)) if args.name.is_none() => {
            connected(*session)
        }
        (Err(err), _) => Err(err),
    }
}

fn details(varz: &Value) -> String {
    let mut details = DetailView::default();
    let count = |key: &str| show::count(number(&varz[key]));
    let size = |key: &str| show::bytes(number(&varz[key]));
    details.heading(&format!("Server {}", show::text(&varz["server_name"])));
    details.line("Id", show::text(&varz["server_id"]));
    details.line("Version", show::text(&varz["version"]));
    details.line("Built with", show::text(&varz["go"]));
    details.line("Started", show::time(&varz["start"]));
    details.line("Up for", show::text(&varz["uptime"]));
    details.line_if("Cluster", show::some_text(&varz["cluster"]["name"]));
    details.heading("Connections");
    let host = show::text(&varz["host"]);
    details.line("Listens at", format!("{host}:{}", varz["port"]));
    details.line("Authentication required", show::flag(&varz["auth_required"]));
    details.line("TLS required", show::flag(&varz["tls_required"]));
    details
        .line("Connections", format!("{} of {}", count("connections"), count("max_connections")));
    details.line("Subscriptions", count("subscriptions"));
    details.line("Slow consumers", count("slow_consumers"));
    details.heading("Use");
    details.line("Processor", format!("{:.1}%", varz["cpu"].as_f64().unwrap_or(0.0)));
    details.line("Memory", size("mem"));
    let flow =
        |messages: &str, bytes: &str| format!("{} messages, {}", count(messages), size(bytes));
    details.line("Received", flow("in_msgs", "in_bytes"));
    details.line("Sent", flow("out_msgs", "out_bytes"));
    details.line("Largest message", size("max_payload"));
    jetstream(&mut details, &varz["jetstream"]);
    details.render()
}

fn jetstream(details: &mut DetailView, js: &Value) {
    let (config, stats) = (&js["config"], &js["stats"]);
    if !config.is_object() {
        return;
    }
    details.heading("JetStream");
    details.line_if("Domain", show::some_text(&config["domain"]));
    details.line("Store directory", show::text(&config["store_dir"]));
    details.line_if("Sync interval", sync(config));
    details.line("Largest store", show::limit(&config["max_storage"], show::bytes));
    details.line("Largest memory", show::limit(&config["max_memory"], show::bytes));
    details.line("Store used", show::bytes(number(&stats["storage"])));
    details.line("Memory used", show::bytes(number(&stats["memory"])));
    details.line("API requests", show::count(number(&stats["api"]["total"])));
    details.line("API errors", show::count(number(&stats["api"]["errors"])));
}

/// When data is made durable; nothing when the server does not say.
fn sync(config: &Value) -> Option<String> {
    if config["sync_always"] == true {
        return Some("always, before each ack".into());
    }
    config["sync_interval"].as_u64().map(show::duration)
}

/// Information that a server gives to every client.
fn connected(mut session: Session) -> Result<(), CliError> {
    let info = session.client.info().clone();
    let client_id = info.client_id.unwrap_or_default();
    let account = session.api("INFO", &Value::Null).ok();
    let json = json!({
        "server_name": info.server_name, "server_id": info.server_id, "version": info.version,
        "address": session.client.server().to_string(), "max_payload": info.max_payload,
        "jetstream": info.jetstream, "domain": info.domain.as_deref().unwrap_or_default(),
        "cluster": info.cluster.as_deref().unwrap_or_default(),
        "auth_required": info.auth_required, "tls_required": info.tls_required,
        "client_id": client_id, "client_ip": info.client_ip, "account": account,
    });
    session.print(&json, || {
        let mut details = DetailView::default();
        let yes = |value: bool| if value { "yes" } else { "no" };
        details.heading(&format!("Server {}", info.server_name));
        details.line("Id", info.server_id.as_str());
        details.line("Version", &*info.version);
        details.line("Address", session.client.server().to_string());
        details.line_if("Cluster", info.cluster.clone().filter(|name| !name.is_empty()));
        details.line("Authentication required", yes(info.auth_required));
        details.line("TLS required", yes(info.tls_required));
        details.line("Largest message", show::bytes(info.max_payload as u64));
        details.line("JetStream", yes(info.jetstream));
        details.line_if("Domain", info.domain.clone().filter(|name| !name.is_empty()));
        details.line("This connection", format!("{client_id} from {}", info.client_ip));
        let mut text = details.render();
        text.push_str(
            "\nMore with a user of the system account, or with --monitor http://HOST:8222\n",
        );
        text
    })
}
