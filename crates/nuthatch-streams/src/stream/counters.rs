//! Counters (ADR-49): every message of such a stream adds to the total of its subject.
//!
//! The total is in the last message of the subject, and nowhere else: what is kept here is a cache
//! that says of which message each value is. It is empty after a restart, and a value that is not in
//! it is read from the log before anything is added (`engine/counters.rs`).

use super::Stream;
use super::admit::{Admitted, Effects, Publish, Refusal};
use super::contents::Contents;
use super::headers::PublishHeaders;
use super::limits::Limits;
use crate::budget::Budget;
use nuthatch_log::{LogAccess, RecordRef, Seq, Timestamp};
use nuthatch_protocol::decimal::Decimal;
use nuthatch_protocol::headers::{self, find_header};
use nuthatch_protocol::jserror::JsError;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const INCREMENT: &[u8] = b"Nats-Incr";
const SOURCES: &[u8] = b"Nats-Counter-Sources";
/// Memory for the cached values of one stream's counters, in bytes, about. Above it all are dropped
/// and read again.
const KNOWN_BYTES_MAX: usize = 64 << 20;
/// Memory of a value beside its digits, in bytes.
const KNOWN_BYTES: usize = 96;

/// Totals of the sources of a counter, by stream and by subject there.
type Sources = BTreeMap<String, BTreeMap<String, String>>;

/// Value of a counter.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Counter {
    total: Decimal,
    sources: Sources,
}

/// The payload of a message in a counter stream.
#[derive(Serialize, Deserialize)]
struct Payload {
    val: String,
}

/// A value that is known, and of which message.
#[derive(Debug)]
struct CachedTotal {
    seq: u64,
    /// `None`: the message is no counter's.
    counter: Option<Counter>,
}

/// The values of counters that are known, by subject id. Ids are given anew when nothing is left of
/// a subject; the sequence tells.
#[derive(Default, Debug)]
pub struct Counters {
    known: FxHashMap<u32, CachedTotal>,
    bytes: usize,
}

impl Counters {
    fn get(&self, subject: u32, seq: u64) -> Option<&CachedTotal> {
        self.known.get(&subject).filter(|known| known.seq == seq)
    }

    fn set(&mut self, subject: u32, known: CachedTotal) {
        if self.bytes >= KNOWN_BYTES_MAX {
            self.known.clear();
            self.bytes = 0;
        }
        self.bytes += known.size();
        if let Some(before) = self.known.insert(subject, known) {
            self.bytes -= before.size();
        }
    }

    /// A message of a counter stream that is to be stored: with the new total in it. `staged` is what
    /// the counter stands at inside a batch that is being checked.
    pub(super) fn count(
        &self,
        contents: &mut Contents,
        publish: &Publish<'_>,
        found: &PublishHeaders<'_>,
        staged: Option<&Counter>,
    ) -> Result<Counted, Refusal> {
        if found.incr.is_empty() {
            return Err(JsError::MESSAGE_INCR_MISSING);
        }
        let mut increment = Decimal::parse(found.incr).ok_or(JsError::MESSAGE_INCR_INVALID)?;
        let mut counter = match staged {
            Some(counter) => counter.clone(),
            None => self.current(contents, publish.subject)?,
        };
        let mut block = publish.headers.to_vec();
        if !found.source.is_empty() {
            // Where the source's counter stands counts, not by how much it grew then: so the sum is
            // right whatever was missed.
            increment = counter
                .follow(found.source, publish.subject, publish.body)
                .ok_or(JsError::MESSAGE_COUNTER_BROKEN)?;
            headers::set(&mut block, INCREMENT, increment.to_string().as_bytes());
        }
        counter.total = counter.total.plus(&increment);
        if !counter.sources.is_empty() {
            let json = serde_json::to_vec(&counter.sources)
                .map_err(|_| JsError::MESSAGE_COUNTER_BROKEN)?;
            headers::set(&mut block, SOURCES, &json);
        }
        let body = counter.body();
        Ok(Counted { counter, headers: block, body })
    }

    /// Value of a counter by assigned state.
    fn current(&self, contents: &mut Contents, subject: &[u8]) -> Result<Counter, Refusal> {
        let Some((id, seq)) = last_counted(contents, subject) else {
            return Ok(Counter::default());
        };
        match self.get(id, seq) {
            Some(CachedTotal { counter: Some(counter), .. }) => Ok(counter.clone()),
            Some(_) => Err(JsError::MESSAGE_COUNTER_BROKEN),
            None => {
                let why =
                    format!("message {seq} with the counter's value is being read, try again");
                Err(JsError::STREAM_STORE_FAILED.with_err(why))
            }
        }
    }

    /// The message that must be read ([`Counters::learn`]) before anything is added to a
    /// counter; `None` if its value is known.
    pub fn unknown(&self, contents: &mut Contents, subject: &[u8]) -> Option<Seq> {
        let (id, seq) = last_counted(contents, subject)?;
        self.get(id, seq).is_none().then_some(Seq(seq))
    }

    /// Takes note of the value in a stored message.
    pub fn learn(&mut self, contents: &Contents, record: &RecordRef<'_>) {
        if let Some(id) = contents.subjects().find(record.subject) {
            let known = CachedTotal { seq: record.seq.0, counter: Counter::read(record) };
            self.set(id, known);
        }
    }

    /// Caches the value of message `seq` as that of its counter.
    pub(super) fn know(&mut self, contents: &Contents, subject: &[u8], seq: u64, counter: Counter) {
        if let Some(id) = contents.subjects().find(subject) {
            self.set(id, CachedTotal { seq, counter: Some(counter) });
        }
    }

    /// The total in message `seq`, for its acknowledgement.
    #[must_use]
    pub fn total(&self, contents: &Contents, subject: &[u8], seq: u64) -> Option<&Decimal> {
        let id = contents.subjects().find(subject)?;
        Some(&self.get(id, seq)?.counter.as_ref()?.total)
    }
}

/// Subject id and sequence of the message that holds a counter's value.
fn last_counted(contents: &mut Contents, subject: &[u8]) -> Option<(u32, u64)> {
    let id = contents.subjects().find(subject)?;
    let seq = contents.last_of(id)?;
    Some((id, seq))
}

impl CachedTotal {
    fn size(&self) -> usize {
        KNOWN_BYTES + self.counter.as_ref().map_or(0, Counter::heap_bytes)
    }
}

/// A message of a counter as it is stored.
#[derive(Debug)]
pub(super) struct Counted {
    /// The counter's value including it.
    pub(super) counter: Counter,
    headers: Vec<u8>,
    body: Vec<u8>,
}

impl Counted {
    /// The publish with what is stored in the place of what came.
    pub(super) fn publish<'a>(&'a self, publish: &Publish<'a>) -> Publish<'a> {
        Publish { headers: &self.headers, body: &self.body, ..*publish }
    }
}

impl Counter {
    /// Reads a stored message; `None` if it is no counter's.
    fn read(record: &RecordRef<'_>) -> Option<Self> {
        let total = read_total(record.body)?;
        let sources = match find_header(record.headers, SOURCES) {
            None | Some(b"") => Sources::new(),
            Some(json) => serde_json::from_slice(json).ok()?,
        };
        Some(Self { total, sources })
    }

    /// Takes over where a source's counter stands; returns by how much it has grown since.
    fn follow(&mut self, source: &[u8], subject: &[u8], body: &[u8]) -> Option<Decimal> {
        let mut fields = source.split(|&b| b == b' ').map(String::from_utf8_lossy);
        let stream = fields.next()?.into_owned();
        let own = || String::from_utf8_lossy(subject);
        let subject = fields.nth(3).unwrap_or_else(own).into_owned();
        let total = read_total(body)?;
        let last = self.sources.entry(stream).or_default().entry(subject).or_default();
        let before = Decimal::parse(last.as_bytes()).unwrap_or_default();
        *last = total.to_string();
        Some(total.minus(&before))
    }

    fn heap_bytes(&self) -> usize {
        let of_stream = |(stream, totals): (&String, &BTreeMap<String, String>)| {
            let totals = totals.iter().map(|(subject, total)| subject.len() + total.len());
            stream.len() + totals.map(|len| len + KNOWN_BYTES).sum::<usize>()
        };
        self.total.heap_bytes() + self.sources.iter().map(of_stream).sum::<usize>()
    }

    fn body(&self) -> Vec<u8> {
        format!("{{\"val\":\"{}\"}}", self.total).into_bytes()
    }
}

fn read_total(body: &[u8]) -> Option<Decimal> {
    let payload: Payload = serde_json::from_slice(body).ok()?;
    Decimal::parse(payload.val.as_bytes())
}

impl Limits {
    /// Checks an increment, before anything else is looked at.
    pub(super) fn check_increment(
        &self,
        publish: &Publish<'_>,
        found: &PublishHeaders<'_>,
    ) -> Result<(), Refusal> {
        if found.incr.is_empty() {
            return Ok(());
        }
        if Decimal::parse(found.incr).is_none() {
            return Err(JsError::MESSAGE_INCR_INVALID);
        }
        if !self.counter {
            return Err(JsError::MESSAGE_INCR_DISABLED);
        }
        if !publish.body.is_empty() {
            return Err(JsError::MESSAGE_INCR_PAYLOAD);
        }
        let contradicts = found.rollup.is_some()
            || !found.expected_stream.is_empty()
            || !found.expected_last_msg_id.is_empty()
            || !found.expected_last_subject.is_empty()
            || found.expected_last_seq.is_some()
            || found.expected_last_subject_seq.is_some();
        if contradicts { Err(JsError::MESSAGE_INCR_INVALID) } else { Ok(()) }
    }
}

impl Stream {
    /// Stores a message of a counter stream whose other checks are done.
    #[cold]
    pub(super) fn store_counted<L: LogAccess>(
        &mut self,
        publish: &Publish<'_>,
        found: &PublishHeaders<'_>,
        effects: &Effects<'_>,
        now: Timestamp,
        log: &mut L,
        budget: &Budget,
    ) -> Result<Admitted, Refusal> {
        let counted = self.counters.count(&mut self.contents, publish, found, None)?;
        let whole = counted.publish(publish);
        self.check_own_size(&whole)?;
        let admitted = self.store(&whole, effects, now, log, budget)?;
        if let Admitted::Sequenced { seq, .. } = admitted {
            self.counters.know(&self.contents, publish.subject, seq, counted.counter);
        }
        Ok(admitted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record<'a>(headers: &'a [u8], body: &'a [u8]) -> RecordRef<'a> {
        RecordRef {
            kind: nuthatch_log::RecordKind::Message,
            stream: nuthatch_log::StreamId(1),
            seq: Seq(1),
            timestamp: Timestamp(1),
            subject: b"s",
            headers,
            body,
        }
    }

    #[test]
    fn stored_messages_are_read_strictly() {
        let read = |headers: &'static str, body: &'static str| {
            Counter::read(&record(headers.as_bytes(), body.as_bytes()))
        };
        let counter = read("", r#"{"val":"-12"}"#).expect("a counter");
        assert_eq!(counter.body(), br#"{"val":"-12"}"#);
        for body in ["", "12", "{}", r#"{"val":12}"#, r#"{"val":"x"}"#] {
            assert_eq!(read("", body), None, "{body}");
        }
        let block = "NATS/1.0\r\nNats-Counter-Sources: {\"A\":{\"a.x\":\"3\"}}\r\n\r\n";
        let mut counter = read(block, r#"{"val":"3"}"#).expect("with sources");
        let grown = counter.follow(b"A 7 > > a.x", b"s", br#"{"val":"10"}"#);
        assert_eq!(grown, Some(Decimal::from(7)));
        let grown = counter.follow(b"B 1", b"s", br#"{"val":"-1"}"#);
        assert_eq!(grown, Some(Decimal::from(-1)));
        let json = serde_json::to_string(&counter.sources).expect("strings");
        assert_eq!(json, r#"{"A":{"a.x":"10"},"B":{"s":"-1"}}"#);
        assert_eq!(read("NATS/1.0\r\nNats-Counter-Sources: no\r\n\r\n", r#"{"val":"3"}"#), None);
    }

    #[test]
    fn what_is_known_is_bounded() {
        let mut counters = Counters::default();
        let digits = "9".repeat(60_000);
        let counter = Counter {
            total: Decimal::parse(digits.as_bytes()).expect("a number"),
            ..Counter::default()
        };
        for subject in 0..3000 {
            let known = CachedTotal { seq: u64::from(subject) + 1, counter: Some(counter.clone()) };
            counters.set(subject, known);
            assert!(counters.bytes <= KNOWN_BYTES_MAX + 100_000);
            assert!(counters.get(subject, u64::from(subject) + 1).is_some());
        }
        let sizes: usize = counters.known.values().map(CachedTotal::size).sum();
        assert_eq!(sizes, counters.bytes);
    }
}
