//! `consumer next`: fetch messages of a pull consumer.

use std::time::{Duration, Instant};

use clap::Args;
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::units::parse_duration;
use nuthatch_client::{OwnedMessage, TransportError};
use serde_json::json;

use super::NameArgs;
use crate::error::CliError;
use crate::input::nanos;
use crate::message::{self, Style};
use crate::session::Session;

/// A pull request ends at the server this much before we stop waiting for its end.
const PULL_MARGIN: Duration = Duration::from_millis(500);

/// Options of `consumer next`.
#[derive(Debug, Clone, Args)]
pub struct NextArgs {
    #[command(flatten)]
    name: NameArgs,
    /// Messages to fetch
    #[arg(long, default_value_t = 1)]
    count: u64,
    /// Acknowledge them (the default)
    #[arg(long, overrides_with = "no_ack")]
    ack: bool,
    /// Do not acknowledge them
    #[arg(long, overrides_with = "ack")]
    no_ack: bool,
    /// Ask for them to be delivered again
    #[arg(long, conflicts_with_all = ["ack", "no_ack", "term"])]
    nak: bool,
    /// Never deliver them again, although they were not processed
    #[arg(long, conflicts_with_all = ["ack", "no_ack"])]
    term: bool,
    /// How long to wait for messages (default: --timeout)
    #[arg(long, value_parser = parse_duration)]
    wait: Option<Duration>,
    /// Print bodies only
    #[arg(long, short)]
    raw: bool,
}

impl NextArgs {
    fn answer(&self) -> Option<&'static [u8]> {
        match (self.no_ack, self.nak, self.term) {
            (true, _, _) => None,
            (_, true, _) => Some(b"-NAK"),
            (_, _, true) => Some(b"+TERM"),
            _ => Some(b"+ACK"),
        }
    }
}

/// Runs `consumer next`.
pub fn run(args: &NextArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    args.name.check()?;
    let mut session = Session::open(connect)?;
    let wait = args.wait.unwrap_or(session.timeout);
    let inbox = session.fresh_inbox();
    session.client.subscribe(&inbox, "")?;
    let (stream, name) = (&args.name.stream, &args.name.consumer);
    let subject = format!("{}.CONSUMER.MSG.NEXT.{stream}.{name}", session.api_prefix);
    let body = json!({ "batch": args.count, "expires": nanos(wait) }).to_string();
    session.client.writer.publish(subject.as_bytes(), inbox.as_bytes(), b"", body.as_bytes())?;
    session.client.writer.flush()?;
    let deadline = Instant::now() + wait + PULL_MARGIN;
    let style = Style { json: session.json, raw: args.raw, ..Style::default() };
    for received in 0..args.count {
        let message = match session.client.next_message(deadline) {
            Ok(message) => message,
            Err(TransportError::TimedOut(_)) => return Err(no_more(args, received, wait)),
            Err(err) => return Err(err.into()),
        };
        if message.view().status().is_some() && message.payload.is_empty() {
            return Err(ended(args, &message, received, wait));
        }
        message::print(&message, "", style)?;
        if let (Some(answer), Some(reply)) = (args.answer(), &message.reply) {
            session.client.writer.publish(reply.as_bytes(), b"", b"", answer)?;
            session.client.writer.flush()?;
        }
    }
    session.client.round_trip(session.timeout)?;
    Ok(())
}

fn no_more(args: &NextArgs, received: u64, wait: Duration) -> CliError {
    let reason = format!("received {received} of {} messages within {wait:?}", args.count);
    CliError::Pull { consumer: args.name.consumer.clone(), reason }
}

/// Puts the status that ended a pull into words.
fn ended(args: &NextArgs, message: &OwnedMessage, received: u64, wait: Duration) -> CliError {
    let view = message.view();
    let reason = match view.status() {
        Some(404 | 408) => return no_more(args, received, wait),
        Some(503) => format!("stream {} has no pull consumer of this name", args.name.stream),
        code => format!("{} {}", code.unwrap_or(0), view.status_text()),
    };
    CliError::Pull { consumer: args.name.consumer.clone(), reason }
}
