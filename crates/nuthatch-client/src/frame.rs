//! A server's messages as events that point into the read buffer: nothing is copied or allocated
//! per message.

use nuthatch_protocol::wire::client::ServerParseError;
use nuthatch_protocol::wire::{ServerOp, ServerStep, parse_server_op};

/// Largest message accepted from a server (headers and body), so that a bad size cannot make the
/// client reserve unbounded memory.
pub const MAX_MESSAGE_BYTES: usize = 256 * 1024 * 1024;

/// A delivered message. All slices point into the reader's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// Subject it was published to.
    pub subject: &'a [u8],
    /// The subscription it was delivered to.
    pub sid: u64,
    /// Reply subject, when there is one.
    pub reply: Option<&'a [u8]>,
    /// Raw header block (`NATS/1.0 … CRLF CRLF`), empty when there is none.
    pub headers: &'a [u8],
    /// Body.
    pub payload: &'a [u8],
}

impl<'a> Message<'a> {
    /// Status code of a message without content, such as 100, 404 or 503 (`NATS/1.0 503`).
    pub fn status(&self) -> Option<u16> {
        let digits = self.headers.strip_prefix(b"NATS/1.0 ")?.get(..3)?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    }

    /// Text after the status code, such as `No Messages`.
    pub fn status_text(&self) -> &'a str {
        let line = self.headers.split(|b| *b == b'\r').next().unwrap_or_default();
        let text = line.get("NATS/1.0 503".len()..).unwrap_or_default();
        std::str::from_utf8(text).unwrap_or_default().trim()
    }

    /// Value of the first header with this name (names compare without regard to case).
    pub fn header(&self, name: &str) -> Option<&'a str> {
        self.header_pairs().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// All headers in order, names and values trimmed.
    pub fn header_pairs(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let text = std::str::from_utf8(self.headers).unwrap_or_default();
        text.split("\r\n").skip(1).filter_map(|line| {
            let (key, value) = line.split_once(':')?;
            Some((key.trim(), value.trim()))
        })
    }
}

/// One thing a server sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// `MSG` or `HMSG`.
    Message(Message<'a>),
    /// `PING`: the caller owes a `PONG`.
    Ping,
    /// `PONG`.
    Pong,
    /// `+OK`.
    Ok,
    /// `INFO` with its JSON.
    Info(&'a [u8]),
    /// `-ERR` with the text between its quotes.
    Error(&'a str),
}

/// Outcome of looking at the start of a buffer.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// An event and how many bytes it took.
    Event(Event<'a>, usize),
    /// Not all there yet; at least this many bytes are needed from the start of the buffer.
    Incomplete(usize),
}

/// The server broke the protocol.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FrameError {
    /// Not an operation of the protocol.
    #[error(transparent)]
    Parse(#[from] ServerParseError),
    /// A message larger than [`MAX_MESSAGE_BYTES`].
    #[error("a message of {0} bytes is larger than {MAX_MESSAGE_BYTES}")]
    MessageTooLarge(usize),
    /// A subscription id that we have not given.
    #[error("a message for a subscription that was never made")]
    BadSid,
    /// An `INFO` whose JSON is not what a server says about itself.
    #[error("the server's INFO is not understood: {0}")]
    BadInfo(String),
}

/// Reads the first event of `buf`.
///
/// # Errors
/// When the bytes cannot be the start of a valid operation.
#[inline]
pub fn parse(buf: &[u8]) -> Result<Parsed<'_>, FrameError> {
    let (op, used) = match parse_server_op(buf)? {
        ServerStep::Op(op, used) => (op, used),
        ServerStep::Incomplete { need } if need > MAX_MESSAGE_BYTES => {
            return Err(FrameError::MessageTooLarge(need));
        }
        ServerStep::Incomplete { need } => return Ok(Parsed::Incomplete(need)),
    };
    let event = match op {
        ServerOp::Message { sid, message } => {
            let sid = decimal(sid).ok_or(FrameError::BadSid)?;
            let (headers, payload) = (message.headers(), message.payload());
            let (subject, reply) = (message.subject, message.reply);
            Event::Message(Message { subject, sid, reply, headers, payload })
        }
        ServerOp::Info(json) => Event::Info(json),
        ServerOp::Ping => Event::Ping,
        ServerOp::Pong => Event::Pong,
        ServerOp::Ok => Event::Ok,
        ServerOp::Err(text) => Event::Error(std::str::from_utf8(text).unwrap_or("not UTF-8")),
    };
    Ok(Parsed::Event(event, used))
}

/// A decimal number without sign; `None` when empty, not decimal, or too large.
pub fn decimal(word: &[u8]) -> Option<u64> {
    if word.is_empty() || word.len() > 19 {
        return None;
    }
    word.iter().try_fold(0u64, |sum, b| b.is_ascii_digit().then(|| sum * 10 + u64::from(b - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_at_every_split() {
        let all = b"INFO {\"a\":1}\r\nPING\r\nPONG\r\n+OK\r\n-ERR 'Stale Connection'\r\n\
            MSG a.b 7 5\r\nhe\r\nx\r\nMSG a 1 re.ply 0\r\n\r\n\
            HMSG a 9 re 14 16\r\nNATS/1.0 100\r\nok\r\n";
        let mut seen = Vec::new();
        for cut in 0..=all.len() {
            let (mut events, mut pos) = (Vec::new(), 0);
            for end in [cut, all.len()] {
                while let Ok(Parsed::Event(event, used)) = parse(&all[pos..end]) {
                    events.push(format!("{event:?}"));
                    pos += used;
                }
            }
            assert_eq!(pos, all.len(), "cut at {cut}");
            seen.push(events);
        }
        assert_eq!(seen[0].len(), 8);
        assert!(seen.windows(2).all(|pair| pair[0] == pair[1]));
    }

    #[test]
    fn status_and_headers() {
        let text =
            b"HMSG a 9 52 52\r\nNATS/1.0 409 Consumer Deleted\r\nNats-Pending: 3\r\n\r\n\r\n\r\n";
        let Ok(Parsed::Event(Event::Message(m), _)) = parse(text) else { panic!("no message") };
        assert_eq!(m.status(), Some(409));
        assert_eq!(m.status_text(), "Consumer Deleted");
        assert_eq!(m.header("nats-pending"), Some("3"));
    }

    #[test]
    fn refuses_nonsense() {
        for text in ["BOO\r\n", "MSG a 1\r\n", "MSG a x 1\r\nx\r\n", "HMSG a 1 9 3\r\n"] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
        let huge = parse(b"MSG a 1 999999999\r\n");
        assert!(matches!(huge, Err(FrameError::MessageTooLarge(_))), "{huge:?}");
    }
}
