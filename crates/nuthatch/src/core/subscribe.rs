//! `sub`: what is published from now on, or what a stream holds.

use std::io::{self, Write};
use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::units::{parse_duration, parse_number};
use nuthatch_client::{OwnedMessage, TransportError};
use nuthatch_protocol::subject::matches;
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::error::CliError;
use crate::follow::{Follower, From};
use crate::input::{check_name, check_subject, parse_since};
use crate::message::{self, Style};
use crate::session::Session;
use crate::show;

/// A subscription waits this long for a message before it looks again; the length does not
/// matter, it is only a bound for the system call.
pub const WAIT_STEP: Duration = Duration::from_secs(3600);

/// Print the messages of subjects
///
/// With --stream, --all, --last, --new, --since, --last-per-subject or --start-sequence the
/// messages are read from a stream, else as they are published.
#[derive(Debug, Clone, Args)]
pub struct SubArgs {
    /// Subjects, wildcards allowed
    #[arg(required_unless_present_any = ["inbox", "stream"])]
    subjects: Vec<String>,
    /// Queue group, of which one member gets each message
    #[arg(long)]
    queue: Option<String>,
    /// End after this many messages
    #[arg(long, value_parser = parse_number)]
    count: Option<u64>,
    /// End when nothing came for this long
    #[arg(long, value_parser = parse_duration)]
    wait: Option<Duration>,
    /// Print bodies only
    #[arg(long, short)]
    raw: bool,
    /// Print everything but the bodies
    #[arg(long)]
    headers_only: bool,
    /// Print subjects only
    #[arg(long)]
    subjects_only: bool,
    /// Show when each message came
    #[arg(long, short)]
    timestamp: bool,
    /// Leave out messages of this subject; may be repeated
    #[arg(long, short = 'I', value_name = "SUBJECT")]
    ignore_subject: Vec<String>,
    /// Subscribe to a fresh reply subject and print it
    #[arg(long, short)]
    inbox: bool,
    /// Acknowledge messages that a push consumer delivers
    #[arg(long)]
    ack: bool,
    /// Read this stream (default: the one that stores the subject)
    #[arg(long, conflicts_with = "queue")]
    stream: Option<String>,
    #[command(flatten)]
    place: PlaceArgs,
}

/// Where to begin in a stream.
#[derive(Debug, Clone, Args)]
#[group(multiple = false, conflicts_with = "queue")]
struct PlaceArgs {
    /// Begin with the first message of the stream
    #[arg(long)]
    all: bool,
    /// Begin with the last message of the stream
    #[arg(long)]
    last: bool,
    /// Read only what the stream stores from now on
    #[arg(long)]
    new: bool,
    /// Begin with the last message of each subject of the stream
    #[arg(long)]
    last_per_subject: bool,
    /// Begin with this sequence of the stream
    #[arg(long, value_name = "SEQ")]
    start_sequence: Option<u64>,
    /// Begin with what the stream stored this long ago, such as 1h, or at an RFC 3339 time
    #[arg(long, value_name = "AGE")]
    since: Option<String>,
}

impl PlaceArgs {
    fn from(&self) -> Result<Option<From>, CliError> {
        if let Some(text) = &self.since {
            let time = parse_since(text, SystemTime::now()).map_err(CliError::Usage)?;
            return Ok(Some(From::Time(time)));
        }
        let words = [
            (self.all, From::All),
            (self.last, From::Last),
            (self.new, From::New),
            (self.last_per_subject, From::LastPerSubject),
        ];
        let by_word = words.into_iter().find(|(set, _)| *set).map(|(_, from)| from);
        Ok(by_word.or(self.start_sequence.map(From::Sequence)))
    }
}

/// Runs `sub` until the count is reached, nothing comes any more, or the connection ends.
pub fn run(args: &SubArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    args.subjects.iter().try_for_each(|subject| check_subject(subject, true))?;
    args.ignore_subject.iter().try_for_each(|subject| check_subject(subject, true))?;
    let from = args.place.from()?;
    let mut session = Session::open(connect)?;
    if from.is_some() || args.stream.is_some() {
        return read_stream(args, from.unwrap_or(From::All), session);
    }
    let mut subjects = args.subjects.clone();
    if args.inbox {
        subjects.push(session.fresh_inbox());
    }
    for subject in &subjects {
        session.client.subscribe(subject, args.queue.as_deref().unwrap_or_default())?;
    }
    session.client.writer.flush()?;
    if !args.raw && !session.json {
        eprintln!("Subscribed to {}", subjects.join(", "));
    }
    let mut printer = Printer::new(args, session.json);
    while !printer.is_done() {
        match session.client.next_message(deadline(args)) {
            Ok(message) => {
                printer.print(&message, None)?;
                if let (true, Some(reply)) = (args.ack, ack_subject(&message)) {
                    session.client.writer.publish(reply.as_bytes(), b"", b"", b"+ACK")?;
                    session.client.writer.flush()?;
                }
            }
            Err(TransportError::TimedOut(_)) if args.wait.is_some() => break,
            Err(TransportError::TimedOut(_)) => {}
            Err(err) => return Err(err.into()),
        }
    }
    session.client.round_trip(session.timeout)?;
    Ok(())
}

fn deadline(args: &SubArgs) -> Instant {
    Instant::now() + args.wait.unwrap_or(WAIT_STEP)
}

fn ack_subject(message: &OwnedMessage) -> Option<&str> {
    message.reply.as_deref().filter(|reply| reply.starts_with("$JS.ACK."))
}

fn read_stream(args: &SubArgs, from: From, mut session: Session) -> Result<(), CliError> {
    let stream = match (&args.stream, args.subjects.first()) {
        (Some(stream), _) => stream.clone(),
        (None, Some(subject)) => stream_of(&mut session, subject)?,
        (None, None) => return Err(CliError::Usage("name a subject or a --stream".into())),
    };
    check_name("stream", &stream)?;
    let mut printer = Printer::new(args, session.json);
    let mut follower = Follower::open(&mut session, &stream, &args.subjects, from)?;
    while !printer.is_done() {
        match follower.next(&mut session, deadline(args))? {
            Some(delivered) => printer.print(&delivered.message, Some(delivered.seq))?,
            None if args.wait.is_some() => break,
            None => {}
        }
    }
    follower.close(&mut session);
    Ok(())
}

/// The one stream that stores a subject.
fn stream_of(session: &mut Session, subject: &str) -> Result<String, CliError> {
    let names = session
        .api("STREAM.NAMES", &json!({ "subject": subject }))
        .map_err(CliError::js("could not look for the stream"))?;
    match names["streams"].as_array().map(Vec::as_slice).unwrap_or_default() {
        [Value::String(name)] => Ok(name.clone()),
        [] => Err(CliError::Usage(format!("no stream stores {subject:?}"))),
        several => {
            let names: Vec<String> = several.iter().map(show::text).collect();
            let text = format!("{subject:?} is in {}; choose with --stream", names.join(", "));
            Err(CliError::Usage(text))
        }
    }
}

/// Prints and counts messages.
struct Printer<'a> {
    args: &'a SubArgs,
    style: Style,
    number: u64,
}

impl<'a> Printer<'a> {
    fn new(args: &'a SubArgs, json: bool) -> Self {
        let style = Style {
            json,
            raw: args.raw,
            headers_only: args.headers_only,
            subjects_only: args.subjects_only,
        };
        Self { args, style, number: 0 }
    }

    fn is_done(&self) -> bool {
        self.args.count.is_some_and(|count| self.number >= count)
    }

    fn print(&mut self, message: &OwnedMessage, seq: Option<u64>) -> Result<(), CliError> {
        let subject = message.subject.as_bytes();
        if self.args.ignore_subject.iter().any(|ignored| matches(ignored.as_bytes(), subject)) {
            return Ok(());
        }
        self.number += 1;
        if let (true, Some(seq)) = (self.style.json, seq) {
            let mut json = message::to_json(message);
            json["seq"] = seq.into();
            return Ok(writeln!(io::stdout(), "{json}")?);
        }
        let mut lead = format!("[#{}] ", self.number);
        if self.args.timestamp {
            lead.push_str(&format!("@ {} ", show::clock(OffsetDateTime::now_utc())));
        }
        if let Some(seq) = seq {
            lead.push_str(&format!("sequence {seq} "));
        }
        message::print(message, &lead, self.style)
    }
}
