//! `consumer ls` and `consumer report`.

use clap::Args;
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::js::Answer;
use nuthatch_protocol::js::{ConsumerInfo, StreamInfoRequest};
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::details::{activity, direction, filter, kind};
use crate::error::CliError;
use crate::input::check_name;
use crate::session::Session;
use crate::show::{self, Table, unsigned};

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

fn fetch(session: &mut Session, stream: &str) -> Result<Vec<Answer<ConsumerInfo>>, CliError> {
    check_name("stream", stream)?;
    let mut consumers: Vec<Answer<ConsumerInfo>> = session
        .list_of(&format!("CONSUMER.LIST.{stream}"), "consumers", &Value::Null)
        .map_err(CliError::js(format!("could not list the consumers of {stream}")))?;
    consumers.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(consumers)
}

/// Runs `consumer ls`.
pub fn ls(args: &LsArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    let consumers = fetch(&mut session, &args.stream)?;
    if args.names {
        let names: Vec<&str> = consumers.iter().map(|c| c.name.as_str()).collect();
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
                consumer.name.clone(),
                kind(&consumer.config),
                filter(&consumer.config),
                consumer.config.ack_policy.to_string(),
                consumer.config.description.clone(),
                show::moment(consumer.created),
            ]);
        }
        table.render()
    })
}

/// Runs `consumer report`.
pub fn report(args: &ReportArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    let consumers = fetch(&mut session, &args.stream)?;
    let request = StreamInfoRequest::default();
    let held = crate::stream::fetch(&mut session, &args.stream, &request)?.state.messages;
    session.print(&json!(consumers), || {
        if consumers.is_empty() {
            return format!("No consumers of stream {}\n", args.stream);
        }
        table(&consumers, held, args.raw)
    })
}

fn table(consumers: &[Answer<ConsumerInfo>], held: u64, raw: bool) -> String {
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
        let config = &consumer.config;
        let count = |value: u64| if raw { value.to_string() } else { show::count(value) };
        let unprocessed = consumer.num_pending;
        let share = match held {
            _ if raw || unprocessed == 0 => String::new(),
            0 => String::new(),
            held => format!(" / {}%", unprocessed * 100 / held),
        };
        table.row(vec![
            consumer.name.clone(),
            direction(config).to_owned(),
            config.ack_policy.to_string(),
            show::duration(unsigned(config.ack_wait)),
            count(consumer.num_ack_pending),
            count(consumer.num_redelivered),
            count(unprocessed) + &share,
            count(consumer.ack_floor.stream_seq),
            activity(&consumer.delivered, now),
        ]);
    }
    table.render()
}
