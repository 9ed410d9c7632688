//! Archives that are written here, read back, and damaged.

use super::*;
use crate::{fuzz_archive, read as read_any};
use nuthatch_protocol::js::{ConsumerConfig, ConsumerState, SequencePair};
use proptest::prelude::*;

/// Content of an archive in a form that can be compared.
#[derive(Clone, PartialEq, Debug)]
enum Owned {
    Consumer(Box<ConsumerSnapshot>),
    Message(u64, i64, String, Vec<u8>, Vec<u8>),
    Removed(u64, u64),
}

fn items(bytes: &[u8]) -> Result<Vec<Owned>, ArchiveError> {
    let mut items = Vec::new();
    read_any(bytes, "S", &mut |item| {
        items.push(match item {
            Item::Consumer(consumer) => Owned::Consumer(consumer),
            Item::Message(m) => {
                let subject = String::from_utf8_lossy(m.subject).into_owned();
                Owned::Message(m.seq, m.time_ns, subject, m.headers.to_vec(), m.body.to_vec())
            }
            Item::Removed { first, last } => Owned::Removed(first, last),
        });
        Ok::<(), ArchiveError>(())
    })?;
    Ok(items)
}

fn state(first: u64, last: u64, messages: u64) -> StreamState {
    StreamState { first_seq: first, last_seq: last, messages, ..StreamState::default() }
}

fn consumer(name: &str) -> ConsumerSnapshot {
    let config = ConsumerConfig { name: name.to_owned(), ..ConsumerConfig::default() };
    let delivered = SequencePair { consumer_seq: 2, stream_seq: 4 };
    ConsumerSnapshot { config, state: Some(ConsumerState { delivered, ..Default::default() }) }
}

fn message(seq: u64) -> Message<'static> {
    let headers: &[u8] = if seq.is_multiple_of(2) { b"NATS/1.0\r\nA: b\r\n\r\n" } else { b"" };
    Message { seq, time_ns: -5 + seq as i64, subject: b"a.b", headers, body: b"payload" }
}

fn written(state: &StreamState, consumers: &[&str], seqs: &[u64]) -> Vec<u8> {
    let state = StreamState { consumer_count: consumers.len() as u64, ..state.clone() };
    let mut writer = SnapshotWriter::new(Vec::new(), &state, 7).expect("memory");
    for name in consumers {
        writer.consumer(&consumer(name), 7).expect("memory");
    }
    for &seq in seqs {
        writer.message(&message(seq)).expect("memory");
    }
    writer.finish().expect("memory")
}

fn owned(seq: u64) -> Owned {
    let m = message(seq);
    Owned::Message(seq, m.time_ns, "a.b".into(), m.headers.to_vec(), m.body.to_vec())
}

#[test]
fn what_is_written_is_read() {
    let bytes = written(&state(4, 12, 3), &["C", "D"], &[4, 5, 9]);
    let expected = [
        Owned::Consumer(Box::new(consumer("C"))),
        Owned::Consumer(Box::new(consumer("D"))),
        Owned::Removed(1, 3),
        owned(4),
        owned(5),
        Owned::Removed(6, 8),
        owned(9),
        Owned::Removed(10, 12),
    ];
    assert_eq!(items(&bytes).expect("intact"), expected);
}

#[test]
fn an_empty_stream_keeps_its_place() {
    assert_eq!(items(&written(&state(0, 0, 0), &[], &[])).expect("intact"), []);
    let purged = written(&state(101, 100, 0), &[], &[]);
    assert_eq!(items(&purged).expect("intact"), [Owned::Removed(1, 100)]);
}

#[test]
fn a_part_is_not_taken_for_the_whole() {
    let bytes = written(&state(1, 300, 300), &["C"], &(1..=300).collect::<Vec<_>>());
    for len in 0..bytes.len() {
        assert!(items(&bytes[..len]).is_err(), "{len} of {}", bytes.len());
    }
}

#[test]
fn every_changed_byte_is_refused() {
    let bytes = written(&state(1, 40, 40), &["C"], &(1..=40).collect::<Vec<_>>());
    let whole = items(&bytes).expect("intact");
    for at in 0..bytes.len() {
        let mut bad = bytes.clone();
        bad[at] ^= 0x5a;
        // Another way to compress the same bytes is no damage.
        assert!(items(&bad).map_or(true, |found| found == whole), "byte {at}");
    }
}

#[test]
fn states_that_cannot_be_are_refused() {
    for bad in [state(0, 3, 0), state(5, 3, 0), state(1, 3, 4), state(1, 1 << 63, 0)] {
        let error = items(&written(&bad, &[], &[])).expect_err("refused");
        assert!(error.to_string().contains("state.json"), "{error}");
    }
}

#[test]
fn sequences_must_rise() {
    for seqs in [[2, 2], [3, 2]] {
        let error = items(&written(&state(1, 3, 2), &[], &seqs)).expect_err("refused");
        assert!(error.to_string().contains("entry 3: sequence 2 behind"), "{error}");
    }
}

#[test]
fn sizes_are_bounded_before_anything_is_allocated() {
    let mut out = FrameEncoder::new(Vec::new());
    out.write_all(MAGIC).expect("memory");
    // A name of 2⁶² bytes.
    out.write_all(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40, 0, 0, 0, 0])
        .expect("memory");
    let error = items(&out.into_inner().expect("memory")).expect_err("refused");
    assert!(matches!(error, ArchiveError::TooLarge { .. }), "{error}");
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut out = FrameEncoder::new(Vec::new());
        out.write_all(MAGIC).expect("memory");
        out.write_all(&bytes).expect("memory");
        fuzz_archive(&out.into_inner().expect("memory"));
        fuzz_archive(&bytes);
    }
}
