//! The server's parser: operations a client sends.
//!
//! Rules and error texts are those of nats-server 2.15.2: verbs in any case, arguments split at
//! spaces and tabs, control lines ended by LF with an optional CR, payloads ended by exactly CRLF.

use thiserror::Error;

use super::scan::{Args, Line, find_line, is_separator, parse_size, scan_args};

/// The default bound of the arguments of a control line, in bytes (`max_control_line`).
pub const DEFAULT_MAX_CONTROL_LINE: usize = 4096;
/// The default bound of headers plus body, in bytes (`max_payload`).
pub const DEFAULT_MAX_PAYLOAD: usize = 1024 * 1024;

const CRLF_LEN: usize = 2;

/// Limits of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Largest length of a control line's arguments (verb and line end not counted), in bytes.
    pub max_control_line: usize,
    /// Largest size of headers plus body, in bytes; `usize::MAX` means unlimited.
    pub max_payload: usize,
    /// True if the client announced `headers: true`; without it `HPUB` is an error.
    pub headers: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_control_line: DEFAULT_MAX_CONTROL_LINE,
            max_payload: DEFAULT_MAX_PAYLOAD,
            headers: true,
        }
    }
}

/// The result of parsing what a client sent.
pub type Step<'a> = Parsed<Op<'a>>;

/// The result of one parsing step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed<O> {
    /// A whole operation, and how many bytes of the buffer it took.
    Op(O, usize),
    /// The operation at the front of the buffer is not complete.
    Incomplete {
        /// How many bytes, counted from the start of the buffer, must be present before calling
        /// again makes sense. Exact once the control line of a publish is there; until then one
        /// more than there are.
        need: usize,
    },
}

/// An operation sent by a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op<'a> {
    /// `CONNECT {json}`: the JSON text, not checked.
    Connect(&'a [u8]),
    /// `PUB` or `HPUB`.
    Publish(Publish<'a>),
    /// `SUB subject [queue] sid`.
    Subscribe {
        /// The pattern; not validated.
        subject: &'a [u8],
        /// The queue group, if any.
        queue: Option<&'a [u8]>,
        /// The client's name for the subscription, an opaque token.
        sid: &'a [u8],
    },
    /// `UNSUB sid [max]`.
    Unsubscribe {
        /// The client's name for the subscription.
        sid: &'a [u8],
        /// Deliveries, counted from the `SUB`, after which the subscription ends. `None` (absent,
        /// zero or not a number) ends it now.
        max: Option<u64>,
    },
    /// `PING`.
    Ping,
    /// `PONG`.
    Pong,
    /// `INFO {json}`: only servers send it; clients' are ignored.
    Info(&'a [u8]),
    /// `+OK`: ignored.
    Ok,
    /// `-ERR text`: the incumbent logs it and closes the connection without a word.
    Err(&'a [u8]),
}

/// A published message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Publish<'a> {
    /// The subject; not validated (the incumbent does so only for `pedantic` clients).
    pub subject: &'a [u8],
    /// The reply subject, if any.
    pub reply: Option<&'a [u8]>,
    /// How many bytes of `message` are the header block; 0 for `PUB`.
    pub header_len: usize,
    /// Header block and body, contiguous as they came.
    pub message: &'a [u8],
}

impl<'a> Publish<'a> {
    /// The header block with its version line and closing empty line; empty without headers.
    #[inline]
    #[must_use]
    pub fn headers(&self) -> &'a [u8] {
        &self.message[..self.header_len]
    }

    /// The body.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        &self.message[self.header_len..]
    }
}

/// The operation names a client may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// `CONNECT`
    Connect,
    /// `PUB`
    Pub,
    /// `HPUB`
    HPub,
    /// `SUB`
    Sub,
    /// `UNSUB`
    Unsub,
    /// `PING`
    Ping,
    /// `PONG`
    Pong,
    /// `INFO`
    Info,
    /// `+OK`
    Ok,
    /// `-ERR`
    Err,
}

/// Why a client's bytes are not an operation. Every one of them closes the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ParseError {
    /// Not a verb, a verb without a separator behind it, or a payload not ended by CRLF.
    #[error("unknown protocol operation")]
    UnknownOperation,
    /// The arguments of a control line exceed the limit.
    #[error("maximum control line exceeded: more than {max} bytes")]
    ControlLineTooLong {
        /// The limit in bytes.
        max: usize,
    },
    /// The announced headers plus body exceed the limit.
    #[error("maximum payload exceeded: {size} vs {max}")]
    MaxPayload {
        /// The announced size in bytes.
        size: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// Too few or too many arguments.
    #[error("{verb:?} with a wrong number of arguments")]
    WrongArguments {
        /// The operation.
        verb: Verb,
    },
    /// A total size that is missing, negative, longer than nine digits or not a number.
    #[error("{verb:?} with a bad or missing size")]
    BadSize {
        /// The operation.
        verb: Verb,
    },
    /// A header size that is missing, negative, longer than nine digits or not a number.
    #[error("HPub with a bad or missing header size")]
    BadHeaderLength,
    /// A header size above the total size.
    #[error("HPub header size {header} larger than total size {total}")]
    HeaderLargerThanTotal {
        /// The announced header size in bytes.
        header: usize,
        /// The announced total size in bytes.
        total: usize,
    },
    /// `HPUB` from a client that did not announce header support.
    #[error("message headers not supported")]
    HeadersNotSupported,
}

impl ParseError {
    /// The text for `-ERR '<text>'`, or `None` where nats-server closes the connection silently
    /// (verified against 2.15.2 for every variant).
    #[must_use]
    pub fn err_text(&self) -> Option<&'static str> {
        match self {
            Self::UnknownOperation => Some("Unknown Protocol Operation"),
            Self::ControlLineTooLong { .. } => Some("maximum control line exceeded"),
            Self::MaxPayload { .. } => Some("Maximum Payload Violation"),
            Self::WrongArguments { .. }
            | Self::BadSize { .. }
            | Self::BadHeaderLength
            | Self::HeaderLargerThanTotal { .. }
            | Self::HeadersNotSupported => None,
        }
    }

    /// True if the connection closes: always, since the position in the stream is lost.
    #[must_use]
    pub fn closes(&self) -> bool {
        true
    }
}

/// Case-folding mask for a three-letter verb in a little-endian word; the fourth byte is exact.
const FOLD3: u32 = 0x0020_2020;
const PUB_SPACE: u32 = u32::from_le_bytes(*b"pub ");
const HPU: u32 = u32::from_le_bytes(*b"hpu\0");

/// Parses the operation at the front of `buf`.
///
/// # Errors
/// [`ParseError`] as soon as the bytes cannot become an operation, even before its line ends. The
/// connection must then be closed: the parser cannot resynchronise.
#[inline]
pub fn parse_op<'a>(buf: &'a [u8], limits: &Limits) -> Result<Step<'a>, ParseError> {
    if let Some(head) = buf.first_chunk::<5>() {
        let word = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        if word | FOLD3 == PUB_SPACE {
            return parse_publish(buf, 4, Verb::Pub, limits);
        }
        let is_hpu = (word | FOLD3) & 0x00ff_ffff == HPU;
        if is_hpu && head[3] | 0x20 == b'b' && head[4] == b' ' {
            return parse_publish(buf, 5, Verb::HPub, limits);
        }
    }
    parse_other(buf, limits)
}

/// Everything that is not a plainly written publish.
fn parse_other<'a>(buf: &'a [u8], limits: &Limits) -> Result<Step<'a>, ParseError> {
    let Some((verb, at)) = read_verb(buf)? else {
        return Ok(Step::Incomplete { need: buf.len() + 1 });
    };
    if needs_separator(verb) {
        match buf.get(at) {
            None => return Ok(Step::Incomplete { need: at + 1 }),
            Some(&byte) if is_separator(byte) => {}
            Some(_) => return Err(ParseError::UnknownOperation),
        }
    }
    match verb {
        Verb::Pub | Verb::HPub => parse_publish(buf, at + 1, verb, limits),
        Verb::Sub | Verb::Unsub => parse_subscription(buf, at + 1, verb, limits),
        _ => parse_line(buf, at, verb, limits),
    }
}

const CONNECT: (&[u8], Verb) = (b"CONNECT", Verb::Connect);
const ERR: (&[u8], Verb) = (b"-ERR", Verb::Err);
const HPUB: (&[u8], Verb) = (b"HPUB", Verb::HPub);
const INFO: (&[u8], Verb) = (b"INFO", Verb::Info);
const OK: (&[u8], Verb) = (b"+OK", Verb::Ok);
const PING: (&[u8], Verb) = (b"PING", Verb::Ping);
const PONG: (&[u8], Verb) = (b"PONG", Verb::Pong);
const PUB: (&[u8], Verb) = (b"PUB", Verb::Pub);
const SUB: (&[u8], Verb) = (b"SUB", Verb::Sub);
const UNSUB: (&[u8], Verb) = (b"UNSUB", Verb::Unsub);

/// The verbs that begin with a byte.
fn verbs_from(first: u8) -> &'static [(&'static [u8], Verb)] {
    match first.to_ascii_uppercase() {
        b'P' => &[PING, PONG, PUB],
        b'S' => &[SUB],
        b'U' => &[UNSUB],
        b'H' => &[HPUB],
        b'C' => &[CONNECT],
        b'I' => &[INFO],
        b'+' => &[OK],
        b'-' => &[ERR],
        _ => &[],
    }
}

/// The verb at the front and its length; `None` while the bytes are still a prefix of one.
fn read_verb(buf: &[u8]) -> Result<Option<(Verb, usize)>, ParseError> {
    let Some(&first) = buf.first() else { return Ok(None) };
    let mut partial = false;
    for &(name, verb) in verbs_from(first) {
        let common = name.len().min(buf.len());
        if buf[..common].eq_ignore_ascii_case(&name[..common]) {
            if common == name.len() {
                return Ok(Some((verb, common)));
            }
            partial = true;
        }
    }
    if partial { Ok(None) } else { Err(ParseError::UnknownOperation) }
}

/// `CONNECT{}`, `PINGanything` and the like are accepted by the incumbent, so by us.
fn needs_separator(verb: Verb) -> bool {
    matches!(verb, Verb::Pub | Verb::HPub | Verb::Sub | Verb::Unsub | Verb::Err)
}

/// An operation whose arguments are the rest of its line.
fn parse_line<'a>(
    buf: &'a [u8],
    at: usize,
    verb: Verb,
    limits: &Limits,
) -> Result<Step<'a>, ParseError> {
    let (args, end) = match find_line(buf, at, limits.max_control_line) {
        Line::Complete { args, end } => (args, end),
        Line::Partial => return Ok(Step::Incomplete { need: buf.len() + 1 }),
        Line::TooLong => {
            return Err(ParseError::ControlLineTooLong { max: limits.max_control_line });
        }
    };
    let op = match verb {
        Verb::Connect => Op::Connect(args),
        Verb::Info => Op::Info(args),
        Verb::Ping => Op::Ping,
        Verb::Pong => Op::Pong,
        Verb::Ok => Op::Ok,
        Verb::Err => Op::Err(args),
        // These have arguments of their own and do not come here.
        Verb::Pub | Verb::HPub | Verb::Sub | Verb::Unsub => {
            return Err(ParseError::UnknownOperation);
        }
    };
    Ok(Step::Op(op, end))
}

/// `SUB` and `UNSUB`, whose arguments start at `at`.
fn parse_subscription<'a>(
    buf: &'a [u8],
    at: usize,
    verb: Verb,
    limits: &Limits,
) -> Result<Step<'a>, ParseError> {
    let (tokens, count, end) = match scan_args::<3>(buf, at, limits.max_control_line) {
        Args::Complete { tokens, count, end } => (tokens, count, end),
        Args::Partial => return Ok(Step::Incomplete { need: buf.len() + 1 }),
        Args::TooLong => {
            return Err(ParseError::ControlLineTooLong { max: limits.max_control_line });
        }
    };
    let op = match (verb, count, tokens) {
        (Verb::Sub, 2, [subject, sid, _]) => Op::Subscribe { subject, queue: None, sid },
        (Verb::Sub, 3, [subject, queue, sid]) => Op::Subscribe { subject, queue: Some(queue), sid },
        (Verb::Unsub, 1, [sid, ..]) => Op::Unsubscribe { sid, max: None },
        (Verb::Unsub, 2, [sid, max, _]) => {
            let max = parse_size(max).filter(|&max| max > 0).map(|max| max as u64);
            Op::Unsubscribe { sid, max }
        }
        _ => return Err(ParseError::WrongArguments { verb }),
    };
    Ok(Step::Op(op, end))
}

/// The arguments of a publish, before its payload is there.
struct PublishLine<'a> {
    subject: &'a [u8],
    reply: Option<&'a [u8]>,
    header_len: usize,
    size: usize,
}

/// `PUB` and `HPUB`, whose arguments start at `at`.
#[inline(always)]
fn parse_publish<'a>(
    buf: &'a [u8],
    at: usize,
    verb: Verb,
    limits: &Limits,
) -> Result<Step<'a>, ParseError> {
    let (tokens, count, start) = match scan_args::<4>(buf, at, limits.max_control_line) {
        Args::Complete { tokens, count, end } => (tokens, count, end),
        Args::Partial => return Ok(Step::Incomplete { need: buf.len() + 1 }),
        Args::TooLong => {
            return Err(ParseError::ControlLineTooLong { max: limits.max_control_line });
        }
    };
    let line = if verb == Verb::Pub {
        pub_line(tokens, count)?
    } else {
        hpub_line(tokens, count, limits)?
    };
    if line.size > limits.max_payload {
        return Err(ParseError::MaxPayload { size: line.size, max: limits.max_payload });
    }
    let end = start + line.size;
    let need = end + CRLF_LEN;
    let Some(tail) = buf.get(end..need) else {
        return Ok(Step::Incomplete { need });
    };
    if tail != b"\r\n" {
        return Err(ParseError::UnknownOperation);
    }
    let message = &buf[start..end];
    let PublishLine { subject, reply, header_len, .. } = line;
    Ok(Step::Op(Op::Publish(Publish { subject, reply, header_len, message }), need))
}

#[inline(always)]
fn pub_line(tokens: [&[u8]; 4], count: usize) -> Result<PublishLine<'_>, ParseError> {
    let (subject, reply, size) = match (count, tokens) {
        (2, [subject, size, ..]) => (subject, None, size),
        (3, [subject, reply, size, _]) => (subject, Some(reply), size),
        _ => return Err(ParseError::WrongArguments { verb: Verb::Pub }),
    };
    let size = parse_size(size).ok_or(ParseError::BadSize { verb: Verb::Pub })?;
    Ok(PublishLine { subject, reply, header_len: 0, size })
}

#[inline(always)]
fn hpub_line<'a>(
    tokens: [&'a [u8]; 4],
    count: usize,
    limits: &Limits,
) -> Result<PublishLine<'a>, ParseError> {
    if !limits.headers {
        return Err(ParseError::HeadersNotSupported);
    }
    let (subject, reply, header, size) = match (count, tokens) {
        (3, [subject, header, size, _]) => (subject, None, header, size),
        (4, [subject, reply, header, size]) => (subject, Some(reply), header, size),
        _ => return Err(ParseError::WrongArguments { verb: Verb::HPub }),
    };
    let header_len = parse_size(header).ok_or(ParseError::BadHeaderLength)?;
    let size = parse_size(size).ok_or(ParseError::BadSize { verb: Verb::HPub })?;
    if header_len > size {
        return Err(ParseError::HeaderLargerThanTotal { header: header_len, total: size });
    }
    Ok(PublishLine { subject, reply, header_len, size })
}

#[cfg(test)]
mod tests;
