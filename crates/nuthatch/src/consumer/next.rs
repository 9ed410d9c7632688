//! `consumer next`: fetch messages of a pull consumer.

use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use clap::Args;
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::units::parse_duration;
use nuthatch_client::{OwnedMessage, TransportError};
use nuthatch_protocol::ack::{AckSubject, parse_ack_subject};
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::NameArgs;
use crate::error::CliError;
use crate::input::{nanos, rfc3339};
use crate::message::{self, Style};
use crate::session::Session;
use crate::show;

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

/// What the server is told about each message.
struct Answer {
    /// Name for programs.
    name: &'static str,
    body: &'static [u8],
    /// What was done, for people; the number of messages stands before it.
    done: &'static str,
}

const ACK: Answer = Answer { name: "ack", body: b"+ACK", done: "acknowledged" };
const NAK: Answer =
    Answer { name: "nak", body: b"-NAK", done: "given back, to be delivered again" };
const TERM: Answer =
    Answer { name: "term", body: b"+TERM", done: "given up, never to be delivered again" };

impl NextArgs {
    fn answer(&self) -> Option<&'static Answer> {
        match (self.no_ack, self.nak, self.term) {
            (true, _, _) => None,
            (_, true, _) => Some(&NAK),
            (_, _, true) => Some(&TERM),
            _ => Some(&ACK),
        }
    }
}

/// What a delivery tells about a message besides its content.
struct Facts<'a> {
    ack: AckSubject<'a>,
    stored: OffsetDateTime,
}

impl<'a> Facts<'a> {
    /// Nothing when the reply is no subject for acknowledgements.
    fn of(message: &'a OwnedMessage) -> Option<Self> {
        let ack = parse_ack_subject(message.reply.as_deref()?.as_bytes())?;
        let ns = i128::from(ack.timestamp_ns().unwrap_or_default());
        let stored = OffsetDateTime::from_unix_timestamp_nanos(ns).ok()?;
        Some(Self { ack, stored })
    }

    fn lead(&self) -> String {
        format!("[{}] {} ", self.ack.stream_seq, show::clock(self.stored))
    }

    fn text(&self, now: OffsetDateTime) -> String {
        let seconds = (now - self.stored).whole_seconds().max(0).unsigned_abs();
        let age = show::duration(seconds * 1_000_000_000);
        let (tries, delivery) = (self.ack.delivered, self.ack.consumer_seq);
        let pending = show::count(self.ack.pending().unwrap_or(0));
        format!(": try {tries}, delivery {delivery}, {age} old, {pending} pending")
    }

    fn add_to(&self, json: &mut Value) {
        json["seq"] = self.ack.stream_seq.into();
        json["time"] = rfc3339(self.stored).into();
        json["consumer_seq"] = self.ack.consumer_seq.into();
        json["deliveries"] = self.ack.delivered.into();
        json["pending"] = self.ack.pending().into();
    }
}

/// Prints a message with what its delivery tells.
fn show_message(args: &NextArgs, message: &OwnedMessage, json: bool) -> Result<(), CliError> {
    let style = Style { json, raw: args.raw, ..Style::default() };
    let facts = Facts::of(message);
    if json {
        let mut told = message::to_json(message);
        if let Some(facts) = facts {
            facts.add_to(&mut told);
        }
        // What is sent right behind this line; that it could not be sent, the exit code tells.
        told["answer"] = args.answer().map(|answer| answer.name).into();
        return Ok(writeln!(io::stdout(), "{told}")?);
    }
    let Some(facts) = facts else { return message::print(message, "", style) };
    let (lead, text) = (facts.lead(), facts.text(OffsetDateTime::now_utc()));
    let message = OwnedMessage { reply: None, ..message.clone() };
    message::print_text(&message, &lead, &text, style)
}

/// Says what became of the messages.
fn tell(args: &NextArgs, received: u64, json: bool) -> Result<(), CliError> {
    if json || args.raw || received == 0 {
        return Ok(());
    }
    let done = args.answer().map_or("not acknowledged, to be delivered again", |a| a.done);
    Ok(writeln!(io::stdout(), "{} {done}", show::plural(received, "message"))?)
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
    let mut received = 0;
    let fetched = loop {
        if received == args.count {
            break Ok(());
        }
        match fetch_one(args, &mut session, deadline, received, wait) {
            Ok(()) => received += 1,
            Err(err) => break Err(err),
        }
    };
    // Answers have left before they are spoken of.
    match session.client.round_trip(session.timeout) {
        Ok(()) => tell(args, received, session.json)?,
        Err(err) => return fetched.and(Err(err.into())),
    }
    fetched.map_err(|err| explained(args, &mut session, err))
}

/// Receives, shows and answers one message.
fn fetch_one(
    args: &NextArgs,
    session: &mut Session,
    deadline: Instant,
    received: u64,
    wait: Duration,
) -> Result<(), CliError> {
    let message = match session.client.next_message(deadline) {
        Ok(message) => message,
        Err(TransportError::TimedOut(_)) => return Err(no_more(args, received, wait)),
        Err(err) => return Err(err.into()),
    };
    if message.view().status().is_some() && message.payload.is_empty() {
        return Err(ended(args, &message, received, wait));
    }
    show_message(args, &message, session.json)?;
    if let (Some(answer), Some(reply)) = (args.answer(), &message.reply) {
        session.client.writer.publish(reply.as_bytes(), b"", b"", answer.body)?;
        session.client.writer.flush()?;
    }
    Ok(())
}

/// Says of a consumer that nobody answers for what the server knows about it.
fn explained(args: &NextArgs, session: &mut Session, err: CliError) -> CliError {
    match err {
        CliError::NotFound(text) => match args.name.fetch(session) {
            Err(why @ CliError::Js { .. }) => why,
            _ => CliError::NotFound(text),
        },
        other => other,
    }
}

fn no_more(args: &NextArgs, received: u64, wait: Duration) -> CliError {
    let count = show::plural(args.count, "message");
    let reason = format!("received {received} of {count} within {wait:?}");
    CliError::Pull { consumer: args.name.consumer.clone(), reason }
}

/// Puts the status that ended a pull into words.
fn ended(args: &NextArgs, message: &OwnedMessage, received: u64, wait: Duration) -> CliError {
    let view = message.view();
    let reason = match view.status() {
        Some(404 | 408) => return no_more(args, received, wait),
        Some(503) => {
            let (stream, consumer) = (&args.name.stream, &args.name.consumer);
            let text = format!("stream {stream} has no pull consumer {consumer}");
            return CliError::NotFound(text);
        }
        code => format!("{} {}", code.unwrap_or(0), view.status_text()),
    };
    CliError::Pull { consumer: args.name.consumer.clone(), reason }
}
