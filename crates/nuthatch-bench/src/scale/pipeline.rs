//! Many requests at once over one connection: answers are awaited in a window, and every one must be
//! a success.

use std::time::Duration;

use nuthatch_protocol::wire::write::push_u64;

use crate::harness::BenchError;
use crate::payload::Payload;
use nuthatch_client::{Client, Event, TransportError};

/// Requests under way at once.
pub(super) const WINDOW: u64 = 500;

/// Size of a published body in bytes.
pub(super) const BODY_BYTES: usize = 128;

/// A step through the subjects that meets all of them in no order that a cache would like: the
/// golden ratio of 2^32, coprime to every count that people choose.
const STRIDE: u64 = 2_654_435_761;

/// Target of publishes.
#[derive(Debug, Clone)]
pub(super) struct Publishes {
    /// `<prefix><number>` are the subjects.
    pub(super) prefix: &'static str,
    /// How many there are; 0: the prefix itself is the one.
    pub(super) subjects: u64,
    /// What they are, in a table.
    pub(super) what: String,
}

impl Publishes {
    pub(super) fn title(&self) -> String {
        self.what.clone()
    }

    fn subject(&self, number: u64, into: &mut Vec<u8>) {
        into.extend_from_slice(self.prefix.as_bytes());
        if self.subjects > 0 {
            push_u64(into, number.wrapping_mul(STRIDE) % self.subjects);
        }
    }
}

/// Publishes `count` messages and checks every acknowledgement.
pub(super) fn publish(
    client: &mut Client,
    publishes: &Publishes,
    count: u64,
    timeout: Duration,
) -> Result<(), BenchError> {
    let payload = Payload::new(BODY_BYTES, 0);
    requests(client, count, timeout, |number, subject, body| {
        publishes.subject(number, subject);
        body.extend_from_slice(payload.get(number));
    })
}

/// Sends `count` requests, made by `make`, and waits for all answers.
///
/// # Errors
/// The first answer that is an error, or a connection that fails.
pub(crate) fn requests(
    client: &mut Client,
    count: u64,
    timeout: Duration,
    mut make: impl FnMut(u64, &mut Vec<u8>, &mut Vec<u8>),
) -> Result<(), BenchError> {
    let mut reply = format!("{}.s.", client.inbox()).into_bytes();
    let prefix_len = reply.len();
    let sid = client.subscribe(&format!("{}.s.*", client.inbox()), "")?;
    let (mut sent, mut answered) = (0, 0);
    let (mut subject, mut body) = (Vec::new(), Vec::new());
    while answered < count {
        while sent < count && sent - answered < WINDOW {
            subject.clear();
            body.clear();
            make(sent, &mut subject, &mut body);
            push_u64(&mut reply, sent);
            client.writer.publish(&subject, &reply, b"", &body)?;
            reply.truncate(prefix_len);
            sent += 1;
        }
        client.writer.flush()?;
        client.reader.fill(timeout)?;
        answered += answers(client)?;
    }
    client.writer.unsubscribe(sid)?;
    client.round_trip(timeout)?;
    Ok(())
}

/// Looks at the answers that are here: how many there were.
fn answers(client: &mut Client) -> Result<u64, BenchError> {
    let mut count = 0;
    while let Some(event) = client.reader.next_buffered()? {
        match event {
            Event::Message(answer) => {
                count += 1;
                if answer.status().is_some() || is_error(answer.payload) {
                    let (headers, body) = (answer.headers, answer.payload);
                    let text = [headers, body].concat();
                    return Err(BenchError::Failed(String::from_utf8_lossy(&text).into_owned()));
                }
            }
            Event::Ping => client.writer.pong()?,
            Event::Error(text) => return Err(TransportError::Server(text.into()).into()),
            Event::Pong | Event::Ok | Event::Info(_) => {}
        }
    }
    Ok(count)
}

fn is_error(body: &[u8]) -> bool {
    body.starts_with(b"{\"error\"") || body.windows(9).any(|part| part == b"\"error\":{")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_subjects_are_met() {
        let publishes = Publishes { prefix: "s.", subjects: 1000, what: String::new() };
        let mut seen = std::collections::BTreeSet::new();
        for number in 0..1000 {
            let mut subject = Vec::new();
            publishes.subject(number, &mut subject);
            seen.insert(subject);
        }
        assert_eq!(seen.len(), 1000);
        assert!(seen.contains(&b"s.0"[..]) && seen.contains(&b"s.999"[..]));
    }

    #[test]
    fn errors_are_seen() {
        assert!(is_error(br#"{"error":{"code":503},"stream":"S"}"#));
        assert!(is_error(br#"{"type":"x","error":{"code":400}}"#));
        assert!(!is_error(br#"{"stream":"S","seq":1}"#));
    }
}
