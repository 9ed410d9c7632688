//! The client's parser: operations a server sends. Used by the load generator and by tests.

use thiserror::Error;

use super::parse::{Parsed, Publish};
use super::scan::{Args, Line, find_line, is_separator, parse_size, scan_args};

/// The longest line accepted from a server, in bytes: INFO lists every URL of a cluster.
pub const MAX_SERVER_LINE: usize = 64 * 1024;

const CRLF_LEN: usize = 2;

/// The result of parsing what a server sent.
pub type ServerStep<'a> = Parsed<ServerOp<'a>>;

/// An operation sent by a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerOp<'a> {
    /// `INFO {json}`: the JSON text, not checked.
    Info(&'a [u8]),
    /// `MSG` or `HMSG`: the subscription's id and the message.
    Message {
        /// The id this client gave in its `SUB`.
        sid: &'a [u8],
        /// Subject, reply, headers and body.
        message: Publish<'a>,
    },
    /// `PING`.
    Ping,
    /// `PONG`.
    Pong,
    /// `+OK`, sent to verbose clients.
    Ok,
    /// `-ERR 'text'`: the text without its quotes.
    Err(&'a [u8]),
}

/// Why a server's bytes are not an operation. The connection cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ServerParseError {
    /// Not a verb, or a payload not ended by CRLF.
    #[error("unknown operation from the server")]
    UnknownOperation,
    /// A line longer than [`MAX_SERVER_LINE`].
    #[error("line from the server exceeds {MAX_SERVER_LINE} bytes")]
    LineTooLong,
    /// `MSG` or `HMSG` with a wrong number of arguments or a bad size.
    #[error("message from the server with bad arguments")]
    BadArguments,
}

/// Parses the server's operation at the front of `buf`.
///
/// # Errors
/// [`ServerParseError`] when the bytes cannot become an operation.
#[inline]
pub fn parse_server_op(buf: &[u8]) -> Result<ServerStep<'_>, ServerParseError> {
    match buf {
        [b'M' | b'm', b'S' | b's', b'G' | b'g', sep, ..] if is_separator(*sep) => {
            parse_message(buf, 4, false)
        }
        [b'H' | b'h', b'M' | b'm', b'S' | b's', b'G' | b'g', sep, ..] if is_separator(*sep) => {
            parse_message(buf, 5, true)
        }
        _ => parse_line_op(buf),
    }
}

#[derive(Clone, Copy)]
enum LineVerb {
    Info,
    Ping,
    Pong,
    Ok,
    Err,
    /// `MSG ` or `HMSG `, listed so that a prefix of it counts as incomplete.
    Message,
}

const VERBS: [(&[u8], LineVerb); 7] = [
    (b"INFO", LineVerb::Info),
    (b"PING", LineVerb::Ping),
    (b"PONG", LineVerb::Pong),
    (b"+OK", LineVerb::Ok),
    (b"-ERR", LineVerb::Err),
    (b"MSG ", LineVerb::Message),
    (b"HMSG ", LineVerb::Message),
];

fn parse_line_op(buf: &[u8]) -> Result<ServerStep<'_>, ServerParseError> {
    let Some((verb, at)) = read_verb(buf)? else {
        return Ok(ServerStep::Incomplete { need: buf.len() + 1 });
    };
    let (args, end) = match find_line(buf, at, MAX_SERVER_LINE) {
        Line::Complete { args, end } => (args, end),
        Line::Partial => return Ok(ServerStep::Incomplete { need: buf.len() + 1 }),
        Line::TooLong => return Err(ServerParseError::LineTooLong),
    };
    let op = match verb {
        LineVerb::Info => ServerOp::Info(args),
        LineVerb::Ping => ServerOp::Ping,
        LineVerb::Pong => ServerOp::Pong,
        LineVerb::Ok => ServerOp::Ok,
        LineVerb::Err => ServerOp::Err(unquote(args)),
        LineVerb::Message => return Err(ServerParseError::UnknownOperation),
    };
    Ok(ServerStep::Op(op, end))
}

fn read_verb(buf: &[u8]) -> Result<Option<(LineVerb, usize)>, ServerParseError> {
    let mut partial = false;
    for (name, verb) in VERBS {
        let common = name.len().min(buf.len());
        if buf[..common].eq_ignore_ascii_case(&name[..common]) {
            if common == name.len() {
                return Ok(Some((verb, common)));
            }
            partial = true;
        }
    }
    if partial { Ok(None) } else { Err(ServerParseError::UnknownOperation) }
}

fn unquote(text: &[u8]) -> &[u8] {
    match text {
        [b'\'', inner @ .., b'\''] => inner,
        _ => text,
    }
}

#[inline]
fn parse_message(
    buf: &[u8],
    at: usize,
    with_headers: bool,
) -> Result<ServerStep<'_>, ServerParseError> {
    let (tokens, count, start) = match scan_args::<5>(buf, at, MAX_SERVER_LINE) {
        Args::Complete { tokens, count, end } => (tokens, count, end),
        Args::Partial => return Ok(ServerStep::Incomplete { need: buf.len() + 1 }),
        Args::TooLong => return Err(ServerParseError::LineTooLong),
    };
    let line = message_line(tokens, count, with_headers).ok_or(ServerParseError::BadArguments)?;
    let end = start + line.size;
    let need = end + CRLF_LEN;
    let Some(tail) = buf.get(end..need) else {
        return Ok(ServerStep::Incomplete { need });
    };
    if tail != b"\r\n" {
        return Err(ServerParseError::UnknownOperation);
    }
    let MessageLine { subject, sid, reply, header_len, .. } = line;
    let message = Publish { subject, reply, header_len, message: &buf[start..end] };
    Ok(ServerStep::Op(ServerOp::Message { sid, message }, need))
}

struct MessageLine<'a> {
    subject: &'a [u8],
    sid: &'a [u8],
    reply: Option<&'a [u8]>,
    header_len: usize,
    size: usize,
}

/// `subject sid [reply] [header-length] size`.
#[inline]
fn message_line(tokens: [&[u8]; 5], count: usize, with_headers: bool) -> Option<MessageLine<'_>> {
    let sizes = 1 + usize::from(with_headers);
    let reply = match count.checked_sub(sizes)? {
        2 => None,
        3 => Some(tokens[2]),
        _ => return None,
    };
    let size = parse_size(tokens[count - 1])?;
    let header_len = if with_headers { parse_size(tokens[count - 2])? } else { 0 };
    if header_len > size {
        return None;
    }
    Some(MessageLine { subject: tokens[0], sid: tokens[1], reply, header_len, size })
}

#[cfg(test)]
mod tests;
