//! The two JetStream texts written once per message: the publish acknowledgement and the reply
//! subject of a delivered message.

use super::{MAX_U64_DIGITS, push_u64, write_back};

/// Five numbers and the dots between them.
const NUMBERS_MAX: usize = 5 * MAX_U64_DIGITS + 4;

/// The numbers of a version 1 ack reply subject, in the order they appear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckReply {
    /// How many times the message has been delivered, this one included.
    pub delivered: u64,
    /// The message's sequence in the stream.
    pub stream_seq: u64,
    /// The delivery's sequence in the consumer.
    pub consumer_seq: u64,
    /// When the message was stored, in nanoseconds since the Unix epoch.
    pub timestamp_ns: i64,
    /// Messages of the consumer's filter that are still to be delivered.
    pub pending: u64,
}

/// Appends `$JS.ACK.<stream>.<consumer>.`, the part that stays the same for a consumer.
pub fn push_ack_prefix(out: &mut Vec<u8>, stream: &[u8], consumer: &[u8]) {
    out.extend_from_slice(b"$JS.ACK.");
    out.extend_from_slice(stream);
    out.push(b'.');
    out.extend_from_slice(consumer);
    out.push(b'.');
}

/// Appends `prefix` (from [`push_ack_prefix`]) and
/// `<delivered>.<stream_seq>.<consumer_seq>.<timestamp ns>.<pending>`.
#[inline]
pub fn push_ack_reply(out: &mut Vec<u8>, prefix: &[u8], reply: &AckReply) {
    let mut text = [0u8; NUMBERS_MAX];
    let mut at = write_back(&mut text, NUMBERS_MAX, reply.pending);
    // Nothing was stored before the epoch; a negative time would not parse back anyway.
    let timestamp_ns = u64::try_from(reply.timestamp_ns).unwrap_or(0);
    for number in [timestamp_ns, reply.consumer_seq, reply.stream_seq, reply.delivered] {
        at -= 1;
        text[at] = b'.';
        at = write_back(&mut text, at, number);
    }
    let numbers = &text[at..];
    out.reserve(prefix.len() + numbers.len());
    out.extend_from_slice(prefix);
    out.extend_from_slice(numbers);
}

/// Appends the body of a publish acknowledgement:
/// `{"stream":"S"[,"domain":"D"],"seq":N[,"duplicate":true]}`.
#[inline]
pub fn push_pub_ack(
    out: &mut Vec<u8>,
    stream: &str,
    seq: u64,
    domain: Option<&str>,
    duplicate: bool,
) {
    out.extend_from_slice(b"{\"stream\":\"");
    push_json_text(out, stream);
    out.push(b'"');
    if let Some(domain) = domain {
        out.extend_from_slice(b",\"domain\":\"");
        push_json_text(out, domain);
        out.push(b'"');
    }
    out.extend_from_slice(b",\"seq\":");
    push_u64(out, seq);
    if duplicate {
        out.extend_from_slice(b",\"duplicate\":true");
    }
    out.push(b'}');
}

/// Appends text between JSON quotes, escaping what JSON demands.
#[inline]
fn push_json_text(out: &mut Vec<u8>, text: &str) {
    if text.bytes().all(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\') {
        out.extend_from_slice(text.as_bytes());
    } else {
        push_escaped(out, text);
    }
}

#[cold]
fn push_escaped(out: &mut Vec<u8>, text: &str) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            0..0x20 => {
                let (high, low) = (HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]);
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', high, low]);
            }
            _ => out.push(byte),
        }
    }
}
