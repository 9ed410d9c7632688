//! Messages that are traced on their way to streams: each goes by itself, and what the stream answers
//! is told.

use crate::jetstream_port::{JetStreamPort, StreamRoute};
use crate::msg_trace::{DEST, DISABLED, StreamQuestion, Trace};
use crate::outlet::Outlet;
use crate::peer::{EnginePeer, Peer, TRACED_HINT};
use bytes::Bytes;
use nuthatch_protocol::headers;
use nuthatch_streams::{AccountId, ClientBatch, Item, PublishItem, Span};
use std::sync::Arc;

/// Reply subject of a message whose publisher wants no answer: the stream's goes into the trace, and
/// nowhere else.
const UNHEARD: &[u8] = b"_TRACE";

/// The header block as a stream stores it: the value that asks for a trace is replaced in its place.
fn stored_headers(block: &[u8]) -> Vec<u8> {
    let mut lines = block.split_inclusive(|byte| *byte == b'\n');
    let is_dest = |line: &[u8]| line.strip_prefix(DEST).is_some_and(|rest| rest.starts_with(b":"));
    let Some(line) = lines.find(|line| is_dest(line)) else { return untraced(block) };
    let start = line.as_ptr() as usize - block.as_ptr() as usize + DEST.len() + 1;
    let end = line.len() + line.as_ptr() as usize - block.as_ptr() as usize;
    let blank: &[u8] = if block.get(start) == Some(&b' ') { b" " } else { b"" };
    [&block[..start], blank, DISABLED, b"\r\n", &block[end..]].concat()
}

/// A message for a stream.
#[derive(Clone, Copy)]
pub struct Stored<'a> {
    /// The stream's account.
    pub account: AccountId,
    /// The stream.
    pub route: StreamRoute,
    /// Its subject.
    pub subject: &'a [u8],
    /// Reply subject or empty.
    pub reply: &'a [u8],
    /// Header block.
    pub headers: &'a [u8],
    /// Body.
    pub body: &'a [u8],
}

/// The header block of a message that is traced no further.
#[must_use]
pub fn untraced(block: &[u8]) -> Vec<u8> {
    let mut headers = block.to_vec();
    headers::set(&mut headers, DEST, DISABLED);
    headers
}

/// Notes that a message goes to a stream. Returns what is sent to its log; `None`: it is only traced.
/// What is stored is not traced again when it is delivered.
#[must_use]
pub fn batch(
    trace: &Trace,
    jetstream: &dyn JetStreamPort,
    outlet: &Arc<Outlet>,
    stored: &Stored<'_>,
) -> Option<ClientBatch<Peer>> {
    let question = StreamQuestion {
        route: stored.route,
        account: stored.account,
        subject: stored.subject.to_vec(),
        reply: stored.reply.to_vec(),
        headers: trace.block(stored.headers),
        body_len: stored.body.len(),
        only: trace.only,
        answer: None,
    };
    let name = jetstream.stream_name(stored.route).unwrap_or_default();
    let part = trace.stored(name, question);
    if trace.only {
        return None;
    }
    let headers = stored_headers(stored.headers);
    let has_reply = !stored.reply.is_empty();
    let reply = if has_reply { stored.reply } else { UNHEARD };
    let mut buf = Vec::new();
    let [subject, reply, headers, body] =
        [stored.subject, reply, &headers, stored.body].map(|part| {
            let start = buf.len() as u32;
            buf.extend_from_slice(part);
            Span { start, end: buf.len() as u32 }
        });
    let stream = stored.route.stream;
    let item = PublishItem { stream, hint: TRACED_HINT, subject, reply, headers, body };
    let peer = EnginePeer::of_traced(outlet.clone(), part, has_reply);
    Some(ClientBatch { peer, buf: Bytes::from(buf), items: vec![Item::Publish(item)] })
}

#[cfg(test)]
mod tests {
    use super::{stored_headers, untraced};

    #[test]
    fn what_asked_for_a_trace_asks_no_more() {
        let block = b"NATS/1.0\r\nNats-Trace-Dest: t\r\nA: b\r\n\r\n";
        let stored = b"NATS/1.0\r\nNats-Trace-Dest: trace disabled\r\nA: b\r\n\r\n";
        assert_eq!(stored_headers(block), stored);
        let delivered = b"NATS/1.0\r\nA: b\r\nNats-Trace-Dest: trace disabled\r\n\r\n";
        assert_eq!(untraced(block), delivered);
        assert_eq!(stored_headers(b"NATS/1.0\r\nA: b\r\n\r\n"), delivered);
        let tight = stored_headers(b"NATS/1.0\r\nNats-Trace-Dest:t\r\n\r\n");
        assert_eq!(tight, b"NATS/1.0\r\nNats-Trace-Dest:trace disabled\r\n\r\n");
    }
}
