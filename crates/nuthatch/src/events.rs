//! `events`: advisories, metrics and events of servers, as they happen.

use std::io::{self, Write as _};
use std::time::Instant;

use clap::Args;
use nuthatch_client::TransportError;
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::units::parse_number;
use serde_json::Value;

use crate::core::subscribe::WAIT_STEP;
use crate::error::CliError;
use crate::input::check_subject;
use crate::session::Session;
use crate::show;

/// Show advisories and events as they happen
///
/// Without options: advisories of JetStream. Events of servers reach users of the system account.
#[derive(Debug, Clone, Args)]
pub struct EventsArgs {
    /// Show everything
    #[arg(long, short)]
    all: bool,
    /// Show metrics of JetStream, such as samples of acks
    #[arg(long)]
    js_metric: bool,
    /// Show advisories of JetStream
    #[arg(long)]
    js_advisory: bool,
    /// Show events of servers: connections, accounts
    #[arg(long)]
    srv_advisory: bool,
    /// Show what comes on these subjects too, several with commas
    #[arg(long, value_delimiter = ',')]
    subjects: Vec<String>,
    /// One line for each event
    #[arg(long)]
    short: bool,
    /// Only events that hold this text
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// End after this many events
    #[arg(long, value_parser = parse_number)]
    count: Option<u64>,
}

impl EventsArgs {
    fn subjects(&self) -> Vec<String> {
        let plain =
            !(self.js_metric || self.js_advisory || self.srv_advisory) && self.subjects.is_empty();
        let choices = [
            (self.js_advisory || plain, "$JS.EVENT.ADVISORY.>"),
            (self.js_metric, "$JS.EVENT.METRIC.>"),
            (self.srv_advisory, "$SYS.ACCOUNT.*.CONNECT"),
            (self.srv_advisory, "$SYS.ACCOUNT.*.DISCONNECT"),
            (self.srv_advisory, "$SYS.SERVER.>"),
        ];
        let chosen = choices.iter().filter(|(set, _)| *set || self.all);
        chosen.map(|(_, subject)| (*subject).to_owned()).chain(self.subjects.clone()).collect()
    }
}

/// Runs `events` until the count is reached or the connection ends.
pub fn run(args: &EventsArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let subjects = args.subjects();
    subjects.iter().try_for_each(|subject| check_subject(subject, true))?;
    let mut session = Session::open(connect)?;
    for subject in &subjects {
        session.client.subscribe(subject, "")?;
    }
    session.client.round_trip(session.timeout)?;
    if !session.json {
        eprintln!("Listening for events on {}", subjects.join(", "));
    }
    let mut shown = 0;
    while args.count.is_none_or(|count| shown < count) {
        let message = match session.client.next_message(Instant::now() + WAIT_STEP) {
            Ok(message) => message,
            Err(TransportError::TimedOut(_)) => continue,
            Err(err) => return Err(err.into()),
        };
        let text = String::from_utf8_lossy(&message.payload);
        if args.filter.as_ref().is_some_and(|filter| !text.contains(filter.as_str())) {
            continue;
        }
        shown += 1;
        let event: Value = serde_json::from_slice(&message.payload).unwrap_or(Value::Null);
        let mut out = io::stdout();
        if session.json {
            writeln!(out, "{}", if event.is_null() { Value::from(text) } else { event })?;
        } else if args.short || event.is_null() {
            writeln!(out, "{}", one_line(&message.subject, &event))?;
        } else {
            writeln!(out, "{}\n{event:#}\n", one_line(&message.subject, &event))?;
        }
    }
    Ok(())
}

/// Time, kind and place of an event.
fn one_line(subject: &str, event: &Value) -> String {
    let kind = show::text(&event["type"]);
    let kind = kind.rsplit('.').next().unwrap_or_default().to_owned();
    let kind = if kind.is_empty() { subject.to_owned() } else { kind };
    let parts = ["action", "stream", "consumer", "account", "stream_seq"]
        .into_iter()
        .filter_map(|key| show::some_text(&event[key]).map(|value| format!("{key}={value}")));
    let time = show::time(&event["timestamp"]);
    [format!("[{time}] {kind}")].into_iter().chain(parts).collect::<Vec<_>>().join(" ")
}
