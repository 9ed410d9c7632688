//! `pub`, `sub` and `request`.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use nuthatch_bench::client::{OwnedMessage, TransportError};
use nuthatch_bench::connect::ConnectArgs;
use nuthatch_bench::js::ApiError;
use nuthatch_bench::units::parse_number;
use serde_json::{Value, json};

use crate::error::CliError;
use crate::session::Session;

/// A subscription waits this long for a message before it looks again; the length does not
/// matter, it is only a bound for the system call.
const WAIT_STEP: Duration = Duration::from_secs(3600);

/// Publish a message
#[derive(Debug, Clone, Args)]
pub struct PubArgs {
    /// Subject
    subject: String,
    /// Body; "-" reads it from the standard input
    #[arg(default_value = "")]
    body: String,
    /// Header as NAME:VALUE; may be repeated
    #[arg(long, short = 'H', value_name = "NAME:VALUE")]
    header: Vec<String>,
    /// Subject for replies
    #[arg(long)]
    reply: Option<String>,
    /// Publish this often
    #[arg(long, default_value = "1", value_parser = parse_number)]
    count: u64,
    /// Wait for the ack of the stream that stores it
    #[arg(long, short = 'J', conflicts_with = "reply")]
    jetstream: bool,
}

/// Print the messages of a subject
#[derive(Debug, Clone, Args)]
pub struct SubArgs {
    /// Subject, wildcards allowed
    subject: String,
    /// Queue group, of which one member gets each message
    #[arg(long)]
    queue: Option<String>,
    /// End after this many messages
    #[arg(long, value_parser = parse_number)]
    count: Option<u64>,
    /// Print bodies only
    #[arg(long, short)]
    raw: bool,
}

/// Send a request and print the reply
#[derive(Debug, Clone, Args)]
pub struct RequestArgs {
    /// Subject
    subject: String,
    /// Body; "-" reads it from the standard input
    #[arg(default_value = "")]
    body: String,
    /// Header as NAME:VALUE; may be repeated
    #[arg(long, short = 'H', value_name = "NAME:VALUE")]
    header: Vec<String>,
    /// Print the body only
    #[arg(long, short)]
    raw: bool,
}

/// Runs `pub`.
pub fn publish(args: &PubArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    check_subject(&args.subject, false)?;
    args.reply.as_deref().map_or(Ok(()), |reply| check_subject(reply, false))?;
    let headers = header_block(&args.header)?;
    let body = read_body(&args.body)?;
    let mut session = Session::open(connect)?;
    check_size(&session, headers.len() + body.len())?;
    if args.jetstream {
        return publish_stored(args, &mut session, &headers, &body);
    }
    let (subject, reply) = (args.subject.as_bytes(), args.reply.as_deref().unwrap_or_default());
    for _ in 0..args.count {
        session.client.writer.publish(subject, reply.as_bytes(), &headers, &body)?;
    }
    session.client.round_trip(session.timeout)?;
    let json = json!({ "subject": args.subject, "bytes": body.len(), "count": args.count });
    session.print(&json, || {
        let times = if args.count > 1 { format!("{} times ", args.count) } else { String::new() };
        format!("Published {} bytes {times}to {:?}\n", body.len(), args.subject)
    })
}

fn publish_stored(
    args: &PubArgs,
    session: &mut Session,
    headers: &[u8],
    body: &[u8],
) -> Result<(), CliError> {
    for _ in 0..args.count {
        let reply = session.client.request(&args.subject, headers, body, session.timeout)?;
        let ack: Value = serde_json::from_slice(&reply.payload)
            .map_err(|_| CliError::NotStored("the reply is no ack of a stream".into()))?;
        if let Ok(err) = serde_json::from_value::<ApiError>(ack["error"].clone()) {
            return Err(CliError::NotStored(format!("{} ({})", err.description, err.err_code)));
        }
        session.print(&ack, || {
            let again = if ack["duplicate"] == true { ", a duplicate" } else { "" };
            let (stream, seq) = (crate::show::text(&ack["stream"]), &ack["seq"]);
            format!("Stored in stream {stream} as sequence {seq}{again}\n")
        })?;
    }
    Ok(())
}

/// Runs `sub` until the count is reached or the connection ends.
pub fn subscribe(args: &SubArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    check_subject(&args.subject, true)?;
    let mut session = Session::open(connect)?;
    session.client.subscribe(&args.subject, args.queue.as_deref().unwrap_or_default())?;
    session.client.writer.flush()?;
    if !args.raw && !session.json {
        eprintln!("Subscribed to {:?}", args.subject);
    }
    let mut number = 0;
    while args.count.is_none_or(|count| number < count) {
        match session.client.next_message(Instant::now() + WAIT_STEP) {
            Ok(message) => {
                number += 1;
                print_message(&message, &format!("[#{number}] "), args.raw, session.json)?;
            }
            Err(TransportError::TimedOut(_)) => {}
            Err(err) => return Err(err.into()),
        }
    }
    Ok(())
}

/// Runs `request`.
pub fn request(args: &RequestArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    check_subject(&args.subject, false)?;
    let headers = header_block(&args.header)?;
    let body = read_body(&args.body)?;
    let mut session = Session::open(connect)?;
    check_size(&session, headers.len() + body.len())?;
    let started = Instant::now();
    let reply = session.client.request(&args.subject, &headers, &body, session.timeout)?;
    let lead = format!("Reply after {:.1?}: ", started.elapsed());
    print_message(&reply, &lead, args.raw, session.json)
}

/// Prints a message as asked for: JSON on one line, the body alone, or everything for people.
pub fn print_message(
    message: &OwnedMessage,
    lead: &str,
    raw: bool,
    json: bool,
) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    if json {
        writeln!(out, "{}", message_json(message))?;
    } else {
        if !raw {
            let reply = message.reply.as_deref();
            let reply = reply.map(|reply| format!(" with reply {reply:?}")).unwrap_or_default();
            writeln!(out, "{lead}{:?}{reply}", message.subject)?;
            if let Some(status) = message.view().status() {
                writeln!(out, "Status: {status} {}", message.view().status_text())?;
            }
            for (name, value) in message.view().header_pairs() {
                if !name.is_empty() {
                    writeln!(out, "{name}: {value}")?;
                }
            }
            if !message.headers.is_empty() {
                writeln!(out)?;
            }
        }
        out.write_all(&message.payload)?;
        writeln!(out)?;
    }
    out.flush()?;
    Ok(())
}

/// `data` when the body is text, else `data_base64`.
fn message_json(message: &OwnedMessage) -> Value {
    let mut json = json!({ "subject": message.subject });
    if let Some(reply) = &message.reply {
        json["reply"] = reply.as_str().into();
    }
    for (name, value) in message.view().header_pairs() {
        if !json["headers"][name].is_array() {
            json["headers"][name] = json!([]);
        }
        if let Some(values) = json["headers"][name].as_array_mut() {
            values.push(value.into());
        }
    }
    match std::str::from_utf8(&message.payload) {
        Ok(text) => json["data"] = text.into(),
        Err(_) => json["data_base64"] = STANDARD.encode(&message.payload).into(),
    }
    json
}

fn read_body(text: &str) -> Result<Vec<u8>, CliError> {
    if text != "-" {
        return Ok(text.as_bytes().to_vec());
    }
    let mut body = Vec::new();
    io::stdin().lock().read_to_end(&mut body)?;
    Ok(body)
}

fn check_size(session: &Session, size: usize) -> Result<(), CliError> {
    let max = session.client.info().max_payload;
    if max > 0 && size > max {
        let text = format!("the message has {size} bytes, the server takes at most {max}");
        return Err(CliError::Usage(text));
    }
    Ok(())
}

/// A subject that cannot break the protocol line it is written into.
pub fn check_subject(subject: &str, wildcards: bool) -> Result<(), CliError> {
    let bad_token = |token: &str| token.is_empty() || token.contains(char::is_whitespace);
    let wild = |token: &str| !wildcards && (token == "*" || token == ">");
    if subject.split('.').any(|token| bad_token(token) || wild(token)) {
        return Err(CliError::Usage(format!("{subject:?} is no valid subject here")));
    }
    Ok(())
}

/// The `NATS/1.0` block of these headers; empty for none.
fn header_block(headers: &[String]) -> Result<Vec<u8>, CliError> {
    if headers.is_empty() {
        return Ok(Vec::new());
    }
    let mut block = String::from("NATS/1.0\r\n");
    for header in headers {
        let (name, value) = header.split_once(':').unwrap_or((header, "\n"));
        let (name, value) = (name.trim(), value.trim_matches(' '));
        let bad_name = name.is_empty() || name.contains(char::is_whitespace);
        if bad_name || value.contains(['\r', '\n']) {
            return Err(CliError::Usage(format!("{header:?} is no header of the form NAME:VALUE")));
        }
        block.push_str(&format!("{name}: {value}\r\n"));
    }
    block.push_str("\r\n");
    Ok(block.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers() {
        let block = header_block(&["A:1".into(), "B: two words".into()]).unwrap();
        assert_eq!(block, b"NATS/1.0\r\nA: 1\r\nB: two words\r\n\r\n");
        assert!(header_block(&[]).unwrap().is_empty());
        for bad in ["A", ":x", "A B:c", "A:x\r\nC:d"] {
            assert!(header_block(&[bad.into()]).is_err(), "{bad}");
        }
    }

    #[test]
    fn subjects() {
        assert!(check_subject("a.b", false).is_ok());
        assert!(check_subject("a.*", true).is_ok());
        for bad in ["", "a..b", "a b", "a.\r\nPUB"] {
            assert!(check_subject(bad, true).is_err(), "{bad}");
        }
        assert!(check_subject("a.>", false).is_err());
    }

    #[test]
    fn binary_bodies_as_base64() {
        let message = OwnedMessage { payload: vec![0xff, 0], ..OwnedMessage::default() };
        assert_eq!(message_json(&message)["data_base64"], "/wA=");
        let headers = b"NATS/1.0\r\nA: 1\r\nA: 2\r\n\r\n".to_vec();
        let message = OwnedMessage { headers, payload: b"x".to_vec(), ..OwnedMessage::default() };
        assert_eq!(message_json(&message)["headers"]["A"], json!(["1", "2"]));
        assert_eq!(message_json(&message)["data"], "x");
    }
}
