//! `pub`.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::time::Duration;

use clap::Args;
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::units::{parse_duration, parse_number};
use serde_json::json;

use super::{TemplateArgs, check_size, check_template_subject};
use crate::error::CliError;
use crate::input::{check_subject, header_block, read_body};
use crate::progress::{Progress, Unit};
use crate::session::Session;
use crate::show::{number, plural, text};

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
    /// Wait for the acknowledgement of the stream that stores it
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

/// What was sent, for the summary.
#[derive(Debug, Default)]
struct Sent {
    messages: u64,
    bytes: u64,
    /// Acks by stream.
    stored: BTreeMap<String, Stored>,
}

/// What a stream has acknowledged.
#[derive(Debug, Default, PartialEq, Eq)]
struct Stored {
    messages: u64,
    duplicates: u64,
    first: u64,
    last: u64,
}

/// Runs `pub`.
pub fn run(args: &PubArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    check_template_subject(&args.subject)?;
    args.reply.as_deref().map_or(Ok(()), |reply| check_subject(reply, false))?;
    let headers = header_block(&args.header)?;
    let mut sent = Sent::default();
    if args.send_on == "newline" {
        let mut session = Session::open(connect)?;
        let done = io::stdin()
            .lock()
            .lines()
            .try_for_each(|line| send(args, &mut session, &headers, line?.as_bytes(), &mut sent));
        return summary(args, &session, &sent).and(done);
    }
    let body = if args.force_stdin { Some("-") } else { args.body.as_deref() };
    let body = read_body(body)?;
    let mut session = Session::open(connect)?;
    let done = send(args, &mut session, &headers, &body, &mut sent);
    summary(args, &session, &sent).and(done)
}

/// Sends a body as often as asked for.
fn send(
    args: &PubArgs,
    session: &mut Session,
    headers: &[u8],
    body: &[u8],
    sent: &mut Sent,
) -> Result<(), CliError> {
    let progress = Progress::new(format!("Publishing to {}", args.subject), Unit::Messages);
    progress.set_end(args.count);
    let before = sent.messages;
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
            store(args, session, &subject, headers, &filled, sent)?;
        } else {
            let reply = args.reply.as_deref().unwrap_or_default().as_bytes();
            session.client.writer.publish(subject.as_bytes(), reply, headers, &filled)?;
        }
        sent.messages += 1;
        sent.bytes += filled.len() as u64;
        progress.add(1);
    }
    if args.jetstream {
        return Ok(());
    }
    // The server has taken everything, or said why not, before we claim so.
    if let Err(err) = session.client.round_trip(session.timeout) {
        sent.messages = before;
        return Err(err.into());
    }
    if session.json && !args.quiet {
        let json = json!({ "subject": args.subject, "bytes": body.len(), "count": args.count });
        session.print(&json, String::new)?;
    }
    Ok(())
}

fn store(
    args: &PubArgs,
    session: &mut Session,
    subject: &str,
    headers: &[u8],
    body: &[u8],
    sent: &mut Sent,
) -> Result<(), CliError> {
    let ack = session.publish_stored(subject, headers, body)?;
    let seq = number(&ack["seq"]);
    let stored = sent.stored.entry(text(&ack["stream"])).or_default();
    stored.messages += 1;
    if ack["duplicate"] == true {
        stored.duplicates += 1;
    }
    stored.first = if stored.messages == 1 { seq } else { stored.first.min(seq) };
    stored.last = stored.last.max(seq);
    if session.json && !args.quiet {
        session.print(&ack, String::new)?;
    }
    Ok(())
}

/// One line about what was sent, or for each stream that has stored some of it. Programs were told
/// of every message.
fn summary(args: &PubArgs, session: &Session, sent: &Sent) -> Result<(), CliError> {
    if args.quiet || session.json || sent.messages == 0 {
        return Ok(());
    }
    let text = if args.jetstream { stored_text(sent) } else { sent_text(&args.subject, sent) };
    Ok(io::stdout().write_all(text.as_bytes())?)
}

fn sent_text(subject: &str, sent: &Sent) -> String {
    let bytes = plural(sent.bytes, "byte");
    match sent.messages {
        1 => format!("Published {bytes} to {subject:?}\n"),
        messages => {
            format!("Published {}, {bytes}, to {subject:?}\n", plural(messages, "message"))
        }
    }
}

fn stored_text(sent: &Sent) -> String {
    let line = |(stream, stored): (&String, &Stored)| {
        let Stored { messages, duplicates, first, last } = *stored;
        if messages == 1 {
            let again = if duplicates > 0 { ", a duplicate" } else { "" };
            return format!("Stored in stream {stream} as sequence {first}{again}\n");
        }
        let again = match duplicates {
            0 => String::new(),
            some => format!(", {} among them", plural(some, "duplicate")),
        };
        let messages = plural(messages, "message");
        format!("Stored {messages} in stream {stream} as sequences {first} to {last}{again}\n")
    };
    sent.stored.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_messages_are_summed_up() {
        let stored = |messages, duplicates, first, last| {
            let stored = Stored { messages, duplicates, first, last };
            let stored = BTreeMap::from([("S".to_owned(), stored)]);
            stored_text(&Sent { messages, bytes: 0, stored })
        };
        assert_eq!(stored(1, 0, 7, 7), "Stored in stream S as sequence 7\n");
        assert_eq!(stored(1, 1, 7, 7), "Stored in stream S as sequence 7, a duplicate\n");
        assert_eq!(
            stored(1000, 1, 1, 999),
            "Stored 1,000 messages in stream S as sequences 1 to 999, 1 duplicate among them\n"
        );
        let sent =
            |messages, bytes| sent_text("a", &Sent { messages, bytes, stored: BTreeMap::new() });
        assert_eq!(sent(1, 1), "Published 1 byte to \"a\"\n");
        assert_eq!(sent(3, 42), "Published 3 messages, 42 bytes, to \"a\"\n");
    }
}
