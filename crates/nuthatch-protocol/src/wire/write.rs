//! Encoders: append protocol text to a `Vec<u8>` the caller owns and reuses.
//!
//! None of them validates: subjects, ids and header values must hold no CR, LF or separators, as
//! everything that came through the parsers does.

mod js_messages;
mod status;

pub use js_messages::{AckReply, push_ack_prefix, push_ack_reply, push_pub_ack};
pub use status::{
    StatusHeader, no_responders_header_len, push_no_responders, push_no_responders_headers,
    push_status,
};

/// `PING` as it goes over the wire.
pub const PING: &[u8] = b"PING\r\n";
/// `PONG` as it goes over the wire.
pub const PONG: &[u8] = b"PONG\r\n";
/// `+OK` as it goes over the wire, for verbose clients.
pub const OK: &[u8] = b"+OK\r\n";

/// Room for a decimal `u64`.
const MAX_U64_DIGITS: usize = 20;
/// Room for what a message line holds besides names: verb, separators, two sizes, two CRLF.
pub(super) const LINE_OVERHEAD: usize = 64;

/// `"00"`, `"01"`, … `"99"`: two digits per step halves the divisions.
static DIGIT_PAIRS: [[u8; 2]; 100] = digit_pairs();

const fn digit_pairs() -> [[u8; 2]; 100] {
    let mut pairs = [[0; 2]; 100];
    let mut i = 0;
    while i < 100 {
        pairs[i] = [b'0' + (i / 10) as u8, b'0' + (i % 10) as u8];
        i += 1;
    }
    pairs
}

/// Writes `value` in decimal so that it ends before `end`; returns where it begins.
///
/// Backwards, because the number of digits need not be known. `end` must be at least 20.
#[inline(always)]
fn write_back(buf: &mut [u8], end: usize, value: u64) -> usize {
    let mut at = end;
    let mut rest = value;
    while rest >= 100 {
        at -= 2;
        buf[at..at + 2].copy_from_slice(&DIGIT_PAIRS[(rest % 100) as usize]);
        rest /= 100;
    }
    if rest >= 10 {
        at -= 2;
        buf[at..at + 2].copy_from_slice(&DIGIT_PAIRS[rest as usize]);
    } else {
        at -= 1;
        buf[at] = b'0' + rest as u8;
    }
    at
}

/// Appends `value` in decimal. Inlined always: each acknowledgement of a publish writes a sequence.
#[inline(always)]
pub fn push_u64(out: &mut Vec<u8>, value: u64) {
    if value < 10 {
        out.push(b'0' + value as u8);
        return;
    }
    let mut digits = [0u8; MAX_U64_DIGITS];
    let at = write_back(&mut digits, MAX_U64_DIGITS, value);
    out.extend_from_slice(&digits[at..]);
}

/// Appends `value` in decimal, with its sign if negative.
#[inline]
pub fn push_i64(out: &mut Vec<u8>, value: i64) {
    if value < 0 {
        out.push(b'-');
    }
    push_u64(out, value.unsigned_abs());
}

/// Appends a length in decimal.
#[inline]
pub(super) fn push_len(out: &mut Vec<u8>, len: usize) {
    push_u64(out, len as u64);
}

/// Appends the line of a message to a subscriber, up to and with its CRLF.
///
/// With `header_len` 0 it is a `MSG`, else an `HMSG`; `total_len` counts headers plus body. The
/// caller appends or vectors the message itself and a CRLF behind it.
#[inline]
pub fn push_message_line(
    out: &mut Vec<u8>,
    subject: &[u8],
    sid: &[u8],
    reply: Option<&[u8]>,
    header_len: usize,
    total_len: usize,
) {
    out.reserve(subject.len() + sid.len() + reply.map_or(0, <[u8]>::len) + LINE_OVERHEAD);
    out.extend_from_slice(if header_len == 0 { b"MSG " } else { b"HMSG " });
    out.extend_from_slice(subject);
    out.push(b' ');
    out.extend_from_slice(sid);
    push_reply_and_sizes(out, reply, header_len, total_len);
}

/// ` [reply] [header-length] total\r\n`.
#[inline]
fn push_reply_and_sizes(
    out: &mut Vec<u8>,
    reply: Option<&[u8]>,
    header_len: usize,
    total_len: usize,
) {
    out.push(b' ');
    if let Some(reply) = reply {
        out.extend_from_slice(reply);
        out.push(b' ');
    }
    if header_len != 0 {
        push_len(out, header_len);
        out.push(b' ');
    }
    push_len(out, total_len);
    out.extend_from_slice(b"\r\n");
}

/// Appends a whole message to a subscriber: `MSG`, or `HMSG` when `headers` is not empty.
#[inline]
pub fn push_message(
    out: &mut Vec<u8>,
    subject: &[u8],
    sid: &[u8],
    reply: Option<&[u8]>,
    headers: &[u8],
    payload: &[u8],
) {
    let total_len = headers.len() + payload.len();
    let names = subject.len() + sid.len() + reply.map_or(0, <[u8]>::len);
    out.reserve(names + total_len + LINE_OVERHEAD);
    push_message_line(out, subject, sid, reply, headers.len(), total_len);
    out.extend_from_slice(headers);
    out.extend_from_slice(payload);
    out.extend_from_slice(b"\r\n");
}

/// Appends a publish: `PUB`, or `HPUB` when `headers` is not empty.
#[inline]
pub fn push_publish(
    out: &mut Vec<u8>,
    subject: &[u8],
    reply: Option<&[u8]>,
    headers: &[u8],
    payload: &[u8],
) {
    let total_len = headers.len() + payload.len();
    out.reserve(subject.len() + reply.map_or(0, <[u8]>::len) + total_len + LINE_OVERHEAD);
    out.extend_from_slice(if headers.is_empty() { b"PUB " } else { b"HPUB " });
    out.extend_from_slice(subject);
    push_reply_and_sizes(out, reply, headers.len(), total_len);
    out.extend_from_slice(headers);
    out.extend_from_slice(payload);
    out.extend_from_slice(b"\r\n");
}

/// Appends `SUB subject [queue] sid`.
pub fn push_subscribe(out: &mut Vec<u8>, subject: &[u8], queue: Option<&[u8]>, sid: &[u8]) {
    out.extend_from_slice(b"SUB ");
    out.extend_from_slice(subject);
    out.push(b' ');
    if let Some(queue) = queue {
        out.extend_from_slice(queue);
        out.push(b' ');
    }
    out.extend_from_slice(sid);
    out.extend_from_slice(b"\r\n");
}

/// Appends `UNSUB sid [max]`.
pub fn push_unsubscribe(out: &mut Vec<u8>, sid: &[u8], max: Option<u64>) {
    out.extend_from_slice(b"UNSUB ");
    out.extend_from_slice(sid);
    if let Some(max) = max {
        out.push(b' ');
        push_u64(out, max);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends `CONNECT json`.
pub fn push_connect(out: &mut Vec<u8>, json: &[u8]) {
    out.extend_from_slice(b"CONNECT ");
    out.extend_from_slice(json);
    out.extend_from_slice(b"\r\n");
}

/// Appends `INFO json`; the incumbent puts a space before the line end, kept for exactness.
pub fn push_info(out: &mut Vec<u8>, json: &[u8]) {
    out.extend_from_slice(b"INFO ");
    out.extend_from_slice(json);
    out.extend_from_slice(b" \r\n");
}

/// Appends `-ERR 'text'`.
pub fn push_err(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(b"-ERR '");
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"'\r\n");
}

#[cfg(test)]
mod tests;
