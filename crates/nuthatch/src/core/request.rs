//! `request` and `reply`.

use std::time::{Duration, Instant};

use clap::Args;
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::units::{parse_duration, parse_number};
use nuthatch_client::{OwnedMessage, RequestError, TransportError};

use super::subscribe::WAIT_STEP;
use super::{TemplateArgs, check_size, check_template_subject};
use crate::error::CliError;
use crate::input::{check_subject, header_block, read_body};
use crate::message::{self, Style};
use crate::session::Session;

/// Queue group of repliers, of which one answers; the `nats` command's, so that both share the work.
const REPLY_QUEUE: &str = "NATS-RPLY-22";

/// Send a request and print the reply
#[derive(Debug, Clone, Args)]
pub struct RequestArgs {
    /// Subject
    subject: String,
    /// Body; "-", or none when the input is no terminal, reads it from the standard input
    body: Option<String>,
    /// Header as NAME:VALUE; may be repeated
    #[arg(long, short = 'H', value_name = "NAME:VALUE")]
    header: Vec<String>,
    /// Ask this often
    #[arg(long, default_value = "1", value_parser = parse_number)]
    count: u64,
    /// Wait for this many replies to each request; 0 takes all until --reply-timeout
    #[arg(long, default_value = "1", value_parser = parse_number)]
    replies: u64,
    /// Longest pause between the replies to one request
    #[arg(long, default_value = "300ms", value_parser = parse_duration)]
    reply_timeout: Duration,
    /// Print bodies only
    #[arg(long, short)]
    raw: bool,
    #[command(flatten)]
    templates: TemplateArgs,
}

/// Answer requests
///
/// The body may hold the templates of `pub`, and {{Request}} for the request's body.
#[derive(Debug, Clone, Args)]
pub struct ReplyArgs {
    /// Subject, wildcards allowed
    subject: String,
    /// Body of the replies
    #[arg(required_unless_present = "echo")]
    body: Option<String>,
    /// Send back what came, headers included
    #[arg(long, conflicts_with = "body")]
    echo: bool,
    /// Queue group, of which one member answers
    #[arg(long, short, default_value = REPLY_QUEUE)]
    queue: String,
    /// Header of the replies as NAME:VALUE; may be repeated
    #[arg(long, short = 'H', value_name = "NAME:VALUE")]
    header: Vec<String>,
    /// End after this many requests
    #[arg(long, value_parser = parse_number)]
    count: Option<u64>,
    #[command(flatten)]
    templates: TemplateArgs,
}

/// Runs `request`.
pub fn request(args: &RequestArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    check_template_subject(&args.subject)?;
    let headers = header_block(&args.header)?;
    let body = read_body(args.body.as_deref())?;
    let mut session = Session::open(connect)?;
    let style = Style { json: session.json, raw: args.raw, ..Style::default() };
    for number in 1..=args.count {
        let subject = args.templates.fill_subject(&args.subject, number);
        check_subject(&subject, false)?;
        let body = args.templates.fill(&body, number, None);
        check_size(&session, headers.len() + body.len())?;
        let started = Instant::now();
        if args.replies == 1 {
            let reply = session.client.request(&subject, &headers, &body, session.timeout)?;
            let lead = format!("Reply after {:.1?}: ", started.elapsed());
            message::print(&reply, &lead, style)?;
        } else {
            ask_many(args, &mut session, &subject, (&headers, &body), style)?;
        }
    }
    Ok(())
}

/// Takes replies until there are enough, or none comes for a while.
fn ask_many(
    args: &RequestArgs,
    session: &mut Session,
    subject: &str,
    (headers, body): (&[u8], &[u8]),
    style: Style,
) -> Result<(), CliError> {
    let started = Instant::now();
    let inbox = session.fresh_inbox();
    let sid = session.client.subscribe(&inbox, "")?;
    session.client.writer.publish(subject.as_bytes(), inbox.as_bytes(), headers, body)?;
    session.client.writer.flush()?;
    let mut received = 0;
    while args.replies == 0 || received < args.replies {
        let timeout = if received == 0 { session.timeout } else { args.reply_timeout };
        let reply = match session.client.next_message(Instant::now() + timeout) {
            Ok(reply) => reply,
            Err(TransportError::TimedOut(_)) => break,
            Err(err) => return Err(err.into()),
        };
        if reply.view().status() == Some(503) && reply.payload.is_empty() {
            return Err(RequestError::NoResponders(subject.into()).into());
        }
        received += 1;
        let lead = format!("[#{received}] Reply after {:.1?}: ", started.elapsed());
        message::print(&reply, &lead, style)?;
    }
    session.client.writer.unsubscribe(sid)?;
    if received == 0 {
        let (subject, timeout) = (subject.to_owned(), session.timeout);
        return Err(RequestError::TimedOut { subject, timeout }.into());
    }
    Ok(())
}

/// Runs `reply` until the count is reached or the connection ends.
pub fn reply(args: &ReplyArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    check_subject(&args.subject, true)?;
    let headers = header_block(&args.header)?;
    let mut session = Session::open(connect)?;
    session.client.subscribe(&args.subject, &args.queue)?;
    session.client.round_trip(session.timeout)?;
    if !session.json {
        eprintln!("Answering {:?}", args.subject);
    }
    let mut number = 0;
    while args.count.is_none_or(|count| number < count) {
        let request = match session.client.next_message(Instant::now() + WAIT_STEP) {
            Ok(request) => request,
            Err(TransportError::TimedOut(_)) => continue,
            Err(err) => return Err(err.into()),
        };
        number += 1;
        let style = Style { json: session.json, ..Style::default() };
        message::print(&request, &format!("[#{number}] "), style)?;
        answer(args, &mut session, &request, &headers, number)?;
    }
    session.client.round_trip(session.timeout)?;
    Ok(())
}

fn answer(
    args: &ReplyArgs,
    session: &mut Session,
    request: &OwnedMessage,
    headers: &[u8],
    number: u64,
) -> Result<(), CliError> {
    let Some(inbox) = &request.reply else {
        eprintln!("nuthatch: message {number} asks for no reply");
        return Ok(());
    };
    if args.echo {
        let headers = &request.headers;
        session.client.writer.publish(inbox.as_bytes(), b"", headers, &request.payload)?;
    } else {
        let asked = String::from_utf8_lossy(&request.payload);
        let body = args.body.as_deref().unwrap_or_default().as_bytes();
        let body = args.templates.fill(body, number, Some(&asked));
        session.client.writer.publish(inbox.as_bytes(), b"", headers, &body)?;
    }
    session.client.writer.flush()?;
    Ok(())
}
