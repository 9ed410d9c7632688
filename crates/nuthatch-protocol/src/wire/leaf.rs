//! The protocol between leaf nodes: parser and encoders.
//!
//! Servers of unequal standing speak it in both directions: `LS+` and `LS-` say which subjects one
//! has listeners for, `LMSG` (`HMSG` with headers) carries messages, and `CONNECT`, `INFO`, `PING`
//! and the rest are as for clients. Syntax and rules are those of nats-server 2.15.2 (`leafnode.go`).

use thiserror::Error;

use super::parse::{Parsed, Publish};
use super::scan::{Line, find_line, is_separator, parse_size};
use super::write::{LINE_OVERHEAD, push_len, push_u64};

/// The longest line accepted from another server, in bytes: INFO may list many addresses, and a
/// message may name many queue groups.
pub const MAX_LEAF_LINE: usize = 64 * 1024;

const CRLF_LEN: usize = 2;

/// The result of parsing what the server at the other end sent.
pub type LeafStep<'a> = Parsed<LeafOp<'a>>;

/// An operation sent by the server at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeafOp<'a> {
    /// `CONNECT {json}`: the JSON text, not checked.
    Connect(&'a [u8]),
    /// `INFO {json}`: the JSON text, not checked.
    Info(&'a [u8]),
    /// `LS+ subject` or `LS+ subject queue weight`.
    Subscribe {
        /// The pattern; not validated.
        subject: &'a [u8],
        /// The queue group and how many members it has there, at least one.
        queue: Option<(&'a [u8], u32)>,
    },
    /// `LS- subject [queue]`.
    Unsubscribe {
        /// The pattern.
        subject: &'a [u8],
        /// The queue group.
        queue: Option<&'a [u8]>,
    },
    /// `LMSG` or `HMSG`.
    Message(LeafMessage<'a>),
    /// `PING`.
    Ping,
    /// `PONG`.
    Pong,
    /// `+OK`.
    Ok,
    /// `-ERR 'text'`: the text as it came, with its quotes.
    Err(&'a [u8]),
}

/// A message from another server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeafMessage<'a> {
    /// Subject, reply, headers and body. The reply may end in `@subject`; see
    /// [`LeafLine::deliver_as`].
    pub publish: Publish<'a>,
    /// Names of the queue groups of which one member each is to get it, with separators between
    /// them; no other group gets it.
    pub queues: &'a [u8],
}

/// Why bytes are not an operation. The connection cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum LeafParseError {
    /// Not a verb, or a payload not ended by CRLF.
    #[error("unknown operation from the other server")]
    UnknownOperation,
    /// A line longer than [`MAX_LEAF_LINE`].
    #[error("line from the other server exceeds {MAX_LEAF_LINE} bytes")]
    LineTooLong,
    /// A wrong number of arguments or a bad size.
    #[error("{verb} with bad arguments")]
    BadArguments {
        /// The operation.
        verb: &'static str,
    },
    /// The announced headers plus body exceed the limit.
    #[error("maximum payload exceeded: {size} vs {max}")]
    MaxPayload {
        /// The announced size in bytes.
        size: usize,
        /// The limit in bytes.
        max: usize,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Connect,
    Info,
    Subscribe,
    Unsubscribe,
    Message,
    MessageWithHeaders,
    Ping,
    Pong,
    Ok,
    Err,
}

const VERBS: [(&[u8], Verb); 10] = [
    (b"LMSG ", Verb::Message),
    (b"HMSG ", Verb::MessageWithHeaders),
    (b"LS+ ", Verb::Subscribe),
    (b"LS- ", Verb::Unsubscribe),
    (b"PING", Verb::Ping),
    (b"PONG", Verb::Pong),
    (b"INFO", Verb::Info),
    (b"CONNECT", Verb::Connect),
    (b"-ERR", Verb::Err),
    (b"+OK", Verb::Ok),
];

/// Parses the operation at the front of `buf`; messages may have up to `max_payload` bytes.
///
/// # Errors
/// [`LeafParseError`] when the bytes cannot become an operation.
pub fn parse_leaf_op(buf: &[u8], max_payload: usize) -> Result<LeafStep<'_>, LeafParseError> {
    let Some((verb, at)) = read_verb(buf)? else {
        return Ok(LeafStep::Incomplete { need: buf.len() + 1 });
    };
    let (args, end) = match find_line(buf, at, MAX_LEAF_LINE) {
        Line::Complete { args, end } => (args, end),
        Line::Partial => return Ok(LeafStep::Incomplete { need: buf.len() + 1 }),
        Line::TooLong => return Err(LeafParseError::LineTooLong),
    };
    let op = match verb {
        Verb::Message => return message(buf, args, end, false, max_payload),
        Verb::MessageWithHeaders => return message(buf, args, end, true, max_payload),
        Verb::Subscribe => subscribe(args)?,
        Verb::Unsubscribe => unsubscribe(args)?,
        Verb::Connect => LeafOp::Connect(args),
        Verb::Info => LeafOp::Info(args),
        Verb::Ping => LeafOp::Ping,
        Verb::Pong => LeafOp::Pong,
        Verb::Ok => LeafOp::Ok,
        Verb::Err => LeafOp::Err(args),
    };
    Ok(LeafStep::Op(op, end))
}

/// The verb at the front and its length; `None` while the bytes are still a prefix of one.
fn read_verb(buf: &[u8]) -> Result<Option<(Verb, usize)>, LeafParseError> {
    let mut partial = buf.is_empty();
    for (name, verb) in VERBS {
        let common = name.len().min(buf.len());
        if buf[..common].eq_ignore_ascii_case(&name[..common]) {
            if common == name.len() {
                return Ok(Some((verb, common)));
            }
            partial = true;
        }
    }
    if partial { Ok(None) } else { Err(LeafParseError::UnknownOperation) }
}

/// The words of a line.
fn words(args: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    args.split(|&byte| is_separator(byte)).filter(|word| !word.is_empty())
}

fn subscribe(args: &[u8]) -> Result<LeafOp<'_>, LeafParseError> {
    let mut words = words(args);
    match (words.next(), words.next(), words.next(), words.next()) {
        (Some(subject), None, ..) => Ok(LeafOp::Subscribe { subject, queue: None }),
        (Some(subject), Some(queue), Some(weight), None) => {
            // A weight that cannot be read counts as one member, as there.
            let weight = parse_size(weight).map_or(1, |weight| weight.max(1) as u32);
            Ok(LeafOp::Subscribe { subject, queue: Some((queue, weight)) })
        }
        _ => Err(LeafParseError::BadArguments { verb: "LS+" }),
    }
}

fn unsubscribe(args: &[u8]) -> Result<LeafOp<'_>, LeafParseError> {
    let mut words = words(args);
    match (words.next(), words.next(), words.next()) {
        (Some(subject), queue, None) => Ok(LeafOp::Unsubscribe { subject, queue }),
        _ => Err(LeafParseError::BadArguments { verb: "LS-" }),
    }
}

/// The arguments of a message.
struct MessageLine<'a> {
    subject: &'a [u8],
    reply: Option<&'a [u8]>,
    queues: &'a [u8],
    header_len: usize,
    size: usize,
}

/// `LMSG` and `HMSG`, whose line has been found.
fn message<'a>(
    buf: &'a [u8],
    args: &'a [u8],
    start: usize,
    has_headers: bool,
    max_payload: usize,
) -> Result<LeafStep<'a>, LeafParseError> {
    let verb = if has_headers { "HMSG" } else { "LMSG" };
    let line = message_line(args, has_headers).ok_or(LeafParseError::BadArguments { verb })?;
    if line.size > max_payload {
        return Err(LeafParseError::MaxPayload { size: line.size, max: max_payload });
    }
    let end = start + line.size;
    let need = end + CRLF_LEN;
    let Some(tail) = buf.get(end..need) else {
        return Ok(LeafStep::Incomplete { need });
    };
    if tail != b"\r\n" {
        return Err(LeafParseError::UnknownOperation);
    }
    let MessageLine { subject, reply, queues, header_len, .. } = line;
    let publish = Publish { subject, reply, header_len, message: &buf[start..end] };
    Ok(LeafStep::Op(LeafOp::Message(LeafMessage { publish, queues }), need))
}

/// `subject [reply] [header-length] size`, or with queue groups `subject + reply queue… … size`
/// and `subject | queue… … size`.
fn message_line(args: &[u8], has_headers: bool) -> Option<MessageLine<'_>> {
    let (subject, rest) = split_front(args)?;
    let (rest, size) = split_back(rest)?;
    let size = parse_size(size)?;
    let (rest, header_len) = if has_headers {
        let (rest, header_len) = split_back(rest)?;
        (rest, parse_size(header_len).filter(|&len| len <= size)?)
    } else {
        (rest, 0)
    };
    let (reply, queues) = match split_front(rest) {
        None => (None, &b""[..]),
        Some((reply, b"")) => (Some(reply), &b""[..]),
        Some((b"+", rest)) => {
            let (reply, queues) = split_front(rest)?;
            (Some(reply), queues)
        }
        Some((b"|", queues)) => (None, queues),
        Some(_) => return None,
    };
    Some(MessageLine { subject, reply, queues, header_len, size })
}

/// The first word and what follows it.
fn split_front(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.trim_ascii_start();
    if text.is_empty() {
        return None;
    }
    let end = text.iter().position(|&byte| is_separator(byte)).unwrap_or(text.len());
    Some((&text[..end], text[end..].trim_ascii_start()))
}

/// The part before the last word, and the last word.
fn split_back(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.trim_ascii_end();
    if text.is_empty() {
        return None;
    }
    let start = text.iter().rposition(|&byte| is_separator(byte)).map_or(0, |at| at + 1);
    Some((text[..start].trim_ascii_end(), &text[start..]))
}

/// The names of queue groups in [`LeafMessage::queues`].
pub fn queue_names(queues: &[u8]) -> impl Iterator<Item = &[u8]> {
    words(queues)
}

/// Takes `@subject` off the reply of a consumer's delivery (`$JS.ACK.…@subject`): the reply, and
/// the subject that receivers see. `None`: it is not one.
#[must_use]
pub fn split_delivery(reply: &[u8]) -> Option<(&[u8], &[u8])> {
    /// Dots of the shortest such reply.
    const DOTS_MIN: usize = 8;
    if !reply.starts_with(b"$JS.ACK.") {
        return None;
    }
    let mut dots = 0;
    let at = reply.iter().position(|&byte| {
        dots += usize::from(byte == b'.');
        byte == b'@' && dots >= DOTS_MIN
    })?;
    (at + 1 < reply.len()).then(|| (&reply[..at], &reply[at + 1..]))
}

/// The line of a message to another server.
#[derive(Debug, Clone, Copy, Default)]
pub struct LeafLine<'a> {
    /// Subject that it is routed by.
    pub subject: &'a [u8],
    /// Reply subject or empty.
    pub reply: &'a [u8],
    /// Subject that receivers see, if it is another one: it travels behind the reply.
    pub deliver_as: &'a [u8],
    /// Queue groups of which a member is to get it, each followed by a space.
    pub queues: &'a [u8],
    /// Length of the header block, bytes.
    pub header_len: usize,
    /// Length of headers and body, bytes.
    pub total_len: usize,
}

/// Appends the line of a message, up to and with its CRLF; the message and a CRLF follow it.
pub fn push_leaf_message_line(out: &mut Vec<u8>, line: &LeafLine<'_>) {
    let LeafLine { subject, reply, deliver_as, queues, header_len, total_len } = *line;
    let names = subject.len() + reply.len() + deliver_as.len() + queues.len();
    out.reserve(names + LINE_OVERHEAD);
    out.extend_from_slice(if header_len == 0 { b"LMSG " } else { b"HMSG " });
    out.extend_from_slice(subject);
    out.push(b' ');
    if !queues.is_empty() {
        out.extend_from_slice(if reply.is_empty() { b"| " } else { b"+ " });
    }
    if !reply.is_empty() {
        out.extend_from_slice(reply);
        if !deliver_as.is_empty() {
            out.push(b'@');
            out.extend_from_slice(deliver_as);
        }
        out.push(b' ');
    }
    out.extend_from_slice(queues);
    if header_len != 0 {
        push_len(out, header_len);
        out.push(b' ');
    }
    push_len(out, total_len);
    out.extend_from_slice(b"\r\n");
}

/// Appends `LS+ subject [queue weight]`.
pub fn push_leaf_subscribe(out: &mut Vec<u8>, subject: &[u8], queue: Option<(&[u8], u64)>) {
    out.extend_from_slice(b"LS+ ");
    out.extend_from_slice(subject);
    if let Some((queue, weight)) = queue {
        out.push(b' ');
        out.extend_from_slice(queue);
        out.push(b' ');
        push_u64(out, weight);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends `LS- subject [queue]`.
pub fn push_leaf_unsubscribe(out: &mut Vec<u8>, subject: &[u8], queue: Option<&[u8]>) {
    out.extend_from_slice(b"LS- ");
    out.extend_from_slice(subject);
    if let Some(queue) = queue {
        out.push(b' ');
        out.extend_from_slice(queue);
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests;
