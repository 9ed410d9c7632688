//! Header-only messages that carry a status: `NATS/1.0 100 Idle Heartbeat` and its kin.

use super::push_u64;

const VERSION: &[u8] = b"NATS/1.0";
const NO_RESPONDERS_START: &[u8] = b"NATS/1.0 503\r\nNats-Subject: ";
const BLOCK_END: &[u8] = b"\r\n\r\n";

/// One header of a status message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusHeader<'a> {
    /// A text value.
    Text(&'a str, &'a [u8]),
    /// A decimal value.
    Number(&'a str, u64),
}

/// Appends a status header block: version, code, description, headers and the closing empty line.
///
/// Clients compare descriptions, so they must be the exact ones of the protocol.
pub fn push_status(out: &mut Vec<u8>, code: u16, description: &str, headers: &[StatusHeader<'_>]) {
    out.extend_from_slice(VERSION);
    out.push(b' ');
    push_u64(out, u64::from(code));
    if !description.is_empty() {
        out.push(b' ');
        out.extend_from_slice(description.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    for header in headers {
        let (StatusHeader::Text(name, _) | StatusHeader::Number(name, _)) = header;
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b": ");
        match header {
            StatusHeader::Text(_, value) => out.extend_from_slice(value),
            StatusHeader::Number(_, value) => push_u64(out, *value),
        }
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

/// The length of the header block of a no-responders answer for a publish to `subject`.
#[must_use]
pub fn no_responders_header_len(subject: &[u8]) -> usize {
    NO_RESPONDERS_START.len() + subject.len() + BLOCK_END.len()
}

/// Appends the header block of a no-responders answer for a publish to `subject`.
pub fn push_no_responders_headers(out: &mut Vec<u8>, subject: &[u8]) {
    out.extend_from_slice(NO_RESPONDERS_START);
    out.extend_from_slice(subject);
    out.extend_from_slice(BLOCK_END);
}

/// Appends the whole `HMSG` that tells a publisher that nobody listens on `subject`.
///
/// `reply` is the publish's reply subject, `sid` the publisher's subscription that covers it.
pub fn push_no_responders(out: &mut Vec<u8>, reply: &[u8], sid: &[u8], subject: &[u8]) {
    let header_len = no_responders_header_len(subject);
    super::push_message_line(out, reply, sid, None, header_len, header_len);
    push_no_responders_headers(out, subject);
    out.extend_from_slice(b"\r\n");
}
