//! `pub`.

use std::io::{self, BufRead};
use std::time::Duration;

use clap::Args;
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::units::{parse_duration, parse_number};
use serde_json::json;

use super::{TemplateArgs, check_size, check_template_subject};
use crate::error::CliError;
use crate::input::{check_subject, header_block, read_body};
use crate::session::Session;

/// Publish a message
///
/// Subject and body may hold templates: {{Count}} the message's number, {{ID}} a unique word,
/// {{Random 10 100}} random text of 10 to 100 letters, {{Time}} and {{TimeStamp}} the time,
/// {{Unix}} and {{UnixNano}} the same as a number.
#[derive(Debug, Clone, Args)]
pub struct PubArgs {
    /// Subject
    subject: String,
    /// Body; "-", or none when the input is no terminal, reads it from the standard input
    body: Option<String>,
    /// Header as NAME:VALUE; may be repeated
    #[arg(long, short = 'H', value_name = "NAME:VALUE")]
    header: Vec<String>,
    /// Subject for replies
    #[arg(long)]
    reply: Option<String>,
    /// Publish this often
    #[arg(long, default_value = "1", value_parser = parse_number)]
    count: u64,
    /// Pause between messages, such as 100ms
    #[arg(long, value_parser = parse_duration)]
    sleep: Option<Duration>,
    /// Wait for the ack of the stream that stores it
    #[arg(long, short = 'J', conflicts_with = "reply")]
    jetstream: bool,
    /// Read the body from the standard input
    #[arg(long, conflicts_with = "body")]
    force_stdin: bool,
    /// When the standard input makes a message: at its end, or at the end of each line
    #[arg(long, default_value = "eof", value_parser = ["eof", "newline"], conflicts_with = "body")]
    send_on: String,
    /// Print nothing unless it fails
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    templates: TemplateArgs,
}

/// Runs `pub`.
pub fn run(args: &PubArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    check_template_subject(&args.subject)?;
    args.reply.as_deref().map_or(Ok(()), |reply| check_subject(reply, false))?;
    let headers = header_block(&args.header)?;
    if args.send_on == "newline" {
        let mut session = Session::open(connect)?;
        for line in io::stdin().lock().lines() {
            send(args, &mut session, &headers, line?.as_bytes())?;
        }
        return Ok(());
    }
    let body = if args.force_stdin { Some("-") } else { args.body.as_deref() };
    let body = read_body(body)?;
    let mut session = Session::open(connect)?;
    send(args, &mut session, &headers, &body)
}

/// Sends a body as often as asked for.
fn send(
    args: &PubArgs,
    session: &mut Session,
    headers: &[u8],
    body: &[u8],
) -> Result<(), CliError> {
    for number in 1..=args.count {
        if let (Some(pause), true) = (args.sleep, number > 1) {
            session.client.writer.flush()?;
            std::thread::sleep(pause);
        }
        let filled = args.templates.fill(body, number, None);
        let subject = args.templates.fill_subject(&args.subject, number);
        check_subject(&subject, false)?;
        check_size(session, headers.len() + filled.len())?;
        if args.jetstream {
            store(args, session, &subject, headers, &filled)?;
        } else {
            let reply = args.reply.as_deref().unwrap_or_default().as_bytes();
            session.client.writer.publish(subject.as_bytes(), reply, headers, &filled)?;
        }
    }
    if args.jetstream {
        return Ok(());
    }
    // The server has taken everything, or said why not, before we claim so.
    session.client.round_trip(session.timeout)?;
    report(args, session, body.len())
}

fn report(args: &PubArgs, session: &Session, size: usize) -> Result<(), CliError> {
    if args.quiet {
        return Ok(());
    }
    let json = json!({ "subject": args.subject, "bytes": size, "count": args.count });
    session.print(&json, || {
        let times = if args.count > 1 { format!("{} times ", args.count) } else { String::new() };
        format!("Published {size} bytes {times}to {:?}\n", args.subject)
    })
}

fn store(
    args: &PubArgs,
    session: &mut Session,
    subject: &str,
    headers: &[u8],
    body: &[u8],
) -> Result<(), CliError> {
    let ack = session.publish_stored(subject, headers, body)?;
    if args.quiet {
        return Ok(());
    }
    session.print(&ack, || {
        let again = if ack["duplicate"] == true { ", a duplicate" } else { "" };
        let (stream, seq) = (crate::show::text(&ack["stream"]), &ack["seq"]);
        format!("Stored in stream {stream} as sequence {seq}{again}\n")
    })
}
