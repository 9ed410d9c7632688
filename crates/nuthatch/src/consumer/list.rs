//! `consumer ls` and `consumer report`.

use clap::Args;
use nuthatch_client::connect::ConnectArgs;
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::details::{activity, filter, kind};
use crate::error::CliError;
use crate::input::check_name;
use crate::session::Session;
use crate::show::{self, Table, number};

/// Options of `consumer ls`.
#[derive(Debug, Clone, Args)]
pub struct LsArgs {
    /// Stream name
    stream: String,
    /// Print names only
    #[arg(long, short)]
    names: bool,
}

/// Options of `consumer report`.
#[derive(Debug, Clone, Args)]
pub struct ReportArgs {
    /// Stream name
    stream: String,
    /// Show numbers as they are
    #[arg(long, short)]
    raw: bool,
}

fn fetch(session: &mut Session, stream: &str) -> Result<Vec<Value>, CliError> {
    check_name("stream", stream)?;
    let mut consumers = session
        .list(&format!("CONSUMER.LIST.{stream}"), "consumers", &Value::Null)
        .map_err(CliError::js(format!("could not list the consumers of {stream}")))?;
    consumers.sort_by_key(|consumer| show::text(&consumer["name"]));
    Ok(consumers)
}

/// Runs `consumer ls`.
pub fn ls(args: &LsArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    let consumers = fetch(&mut session, &args.stream)?;
    if args.names {
        let names: Vec<String> = consumers.iter().map(|c| show::text(&c["name"])).collect();
        return session.print(&json!(names), || names.iter().map(|n| format!("{n}\n")).collect());
    }
    session.print(&json!(consumers), || {
        if consumers.is_empty() {
            return format!("No consumers of stream {}\n", args.stream);
        }
        let titles = ["Name", "Kind", "Filter", "Ack", "Description", "Created"];
        let mut table = Table::new(&titles);
        for consumer in &consumers {
            table.row(vec![
                show::text(&consumer["name"]),
                kind(&consumer["config"]),
                filter(&consumer["config"]),
                show::text(&consumer["config"]["ack_policy"]),
                show::text(&consumer["config"]["description"]),
                show::time(&consumer["created"]),
            ]);
        }
        table.render()
    })
}

/// Runs `consumer report`.
pub fn report(args: &ReportArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    let consumers = fetch(&mut session, &args.stream)?;
    let info = crate::stream::fetch(&mut session, &args.stream, &Value::Null)?;
    let held = number(&info["state"]["messages"]);
    session.print(&json!(consumers), || {
        if consumers.is_empty() {
            return format!("No consumers of stream {}\n", args.stream);
        }
        table(&consumers, held, args.raw)
    })
}

fn table(consumers: &[Value], held: u64, raw: bool) -> String {
    let titles = [
        "Consumer",
        "Mode",
        "Ack policy",
        "Ack wait",
        "Unacknowledged",
        "Redelivered",
        "Unprocessed",
        "Ack floor",
        "Last delivery",
    ];
    let mut table = Table::new(&titles);
    let now = OffsetDateTime::now_utc();
    for consumer in consumers {
        let config = &consumer["config"];
        let count = |value: &Value| {
            if raw { number(value).to_string() } else { show::count(number(value)) }
        };
        let unprocessed = number(&consumer["num_pending"]);
        let share = match held {
            _ if raw || unprocessed == 0 => String::new(),
            0 => String::new(),
            held => format!(" / {}%", unprocessed * 100 / held),
        };
        table.row(vec![
            show::text(&consumer["name"]),
            if config["deliver_subject"].is_string() { "push".into() } else { "pull".into() },
            show::text(&config["ack_policy"]),
            show::duration(number(&config["ack_wait"])),
            count(&consumer["num_ack_pending"]),
            count(&consumer["num_redelivered"]),
            count(&consumer["num_pending"]) + &share,
            count(&consumer["ack_floor"]["stream_seq"]),
            activity(&consumer["delivered"], now),
        ]);
    }
    table.render()
}
