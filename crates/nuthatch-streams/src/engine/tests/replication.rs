//! What mirrors and sources do in an engine: stretches of streams, copies, exactly-once.

use super::harness::{Harness, Reopen, STREAM};
use crate::engine::EngineConfig;
use crate::op::{Forgotten, Op, OpOutcome, Range, RangeRequest, Replica};
use crate::sink::AccountId;
use nuthatch_log::{Machine, StreamId};
use nuthatch_protocol::js::{StreamConfig, StreamSource, Time};

fn read(harness: &mut Harness, from: u64, filters: &[&str]) -> Range {
    let filters = filters.iter().map(|&filter| filter.into()).collect();
    let request = RangeRequest { from, filters, ..RangeRequest::default() };
    match harness.op(Op::ReadRange { id: STREAM, request }) {
        Ok(OpOutcome::Range(range)) => range,
        other => panic!("{other:?}"),
    }
}

fn seqs(range: &Range) -> Vec<u64> {
    range.messages.iter().map(|message| message.seq).collect()
}

fn copy(seq: u64, headers: &str) -> Replica {
    let headers =
        if headers.is_empty() { String::new() } else { format!("NATS/1.0\r\n{headers}\r\n\r\n") };
    let time = Time(1_600_000_000_000_000_000 + seq as i64);
    let (headers, body) = (headers.into_bytes(), b"x".to_vec());
    Replica { seq, time, subject: b"s.a".to_vec(), headers, body }
}

#[test]
fn a_stretch_ends_where_the_stream_does() {
    let mut harness = Harness::with_stream(|_| {});
    for subject in ["s.a", "s.b", "s.a", "s.c.d"] {
        harness.put(subject, "x");
    }
    harness.op(Op::DeleteMessage { id: STREAM, seq: 2 }).expect("deleted");
    let all = read(&mut harness, 1, &[]);
    assert_eq!((seqs(&all), all.next, all.last_seq), (vec![1, 3, 4], 5, 4));
    assert_eq!(seqs(&read(&mut harness, 2, &["s.*"])), [3]);
    assert_eq!(seqs(&read(&mut harness, 1, &["s.c.>", "s.b"])), [4]);
    let nothing = read(&mut harness, 9, &[]);
    assert_eq!((nothing.messages.len(), nothing.next), (0, 9));
}

#[test]
fn a_reader_that_waits_is_answered_by_the_commit() {
    let mut harness = Harness::with_stream(|_| {});
    let request = RangeRequest { from: 1, wait: true, ..RangeRequest::default() };
    let slot = harness.start_op(Op::ReadRange { id: STREAM, request });
    assert!(slot.lock().expect("lock").is_none());
    harness.put("s.a", "x");
    let answer = slot.lock().expect("lock").take();
    assert!(matches!(answer, Some(Ok(OpOutcome::Range(range))) if seqs(&range) == [1]));
    let request = RangeRequest { from: 2, wait: true, ..RangeRequest::default() };
    let slot = harness.start_op(Op::ReadRange { id: STREAM, request });
    harness.op(Op::DeleteStream { id: STREAM }).expect("deleted");
    let answer = slot.lock().expect("lock").take();
    assert_eq!(answer.and_then(Result::err).map(|e| e.err_code), Some(10059));
}

/// Makes a mirror of a configuration.
pub(super) fn mirrors(config: &mut StreamConfig) {
    config.subjects.clear();
    config.mirror = Some(StreamSource { name: "O".into(), ..StreamSource::default() });
}

#[test]
fn a_mirror_keeps_sequences_gaps_and_times() {
    let mut harness = Harness::with_stream(mirrors);
    let mirror = |harness: &mut Harness, seqs: &[u64], gap_to| {
        let copies = seqs.iter().map(|&seq| copy(seq, "")).collect();
        harness.op(Op::Mirror { id: STREAM, copies, gap_to }).expect("mirrored");
    };
    mirror(&mut harness, &[5, 6, 9], 12);
    mirror(&mut harness, &[6, 9, 13], 13);
    for how in [Reopen::Scratch, Reopen::Snapshot, Reopen::States] {
        assert_eq!(harness.seqs(), [5, 6, 9, 13], "{how:?}");
        let state = harness.info().state;
        assert_eq!((state.last_seq, state.first_ts.0), (13, 1_600_000_000_000_000_005));
        harness.reopen(how);
    }
    mirror(&mut harness, &[], 20);
    assert_eq!(harness.info().state.last_seq, 20);
    harness.reopen(Reopen::Scratch);
    assert_eq!(harness.info().state.last_seq, 20);
}

#[test]
fn a_sourced_message_comes_once() {
    let mut harness = Harness::with_stream(|_| {});
    let header = |seq: u64| format!("Nats-Stream-Source: O {seq} > > s.a 17");
    let source = |harness: &mut Harness, seqs: &[u64]| {
        let copies = seqs.iter().map(|&seq| copy(seq, &header(seq))).collect();
        harness.op(Op::Source { id: STREAM, copies }).expect("sourced");
    };
    source(&mut harness, &[3, 4, 7]);
    for how in [Reopen::Scratch, Reopen::Snapshot, Reopen::States] {
        harness.reopen(how);
        let key = b"O > > 17".to_vec();
        assert_eq!(harness.op(Op::Sourced { id: STREAM, key }), Ok(OpOutcome::Sourced(7)));
        source(&mut harness, &[3, 4, 7]);
        assert_eq!(harness.seqs(), [1, 2, 3], "{how:?}");
    }
    source(&mut harness, &[7, 8]);
    assert_eq!(harness.seqs(), [1, 2, 3, 4]);
    assert!(harness.put_with("s.a", &header(9)).contains("10227"), "clients may not say so");
}

#[test]
fn a_stream_that_lives_here_is_never_forgotten_as_a_copy() {
    let mut harness = Harness::with_stream(|_| {});
    harness.put("s.a", "1");
    let refused = harness.op(Op::Forget { id: STREAM, what: Forgotten::Copy });
    assert!(refused.is_err());
    assert_eq!(harness.info().state.messages, 1);
}

#[test]
fn a_stream_that_is_used_takes_no_copies_with_sequences_of_their_own() {
    let mut harness = Harness::with_stream(|_| {});
    harness.put("s.a", "1");
    let late = Op::Mirror { id: STREAM, copies: vec![copy(7, "")], gap_to: 9 };
    assert!(harness.op(late).is_err());
    assert_eq!(harness.info().state.last_seq, 1);
}

#[test]
fn identities_come_in_order() {
    let mut harness = Harness::with_stream(|_| {});
    let config = (*harness.info().config).clone();
    let mut create = |id: u32, name: &str| {
        let config = StreamConfig { name: name.into(), subjects: vec![], ..config.clone() };
        let (id, account) = (StreamId(id), AccountId::GLOBAL);
        harness.op(Op::CreateStream { id, account, config: Box::new(config) })
    };
    create(STREAM.0 + 5, "LATER").expect("created");
    // A state of the log may say by now that there is none of this identity.
    assert!(create(STREAM.0 + 4, "EARLIER").is_err());
    create(STREAM.0 + 6, "LAST").expect("created");
}

#[test]
fn sequences_far_apart_cost_neither_memory_nor_bytes_of_a_state() {
    let mut harness = Harness::with_stream(mirrors);
    let mirror = |harness: &mut Harness, seqs: &[u64], gap_to| {
        let copies = seqs.iter().map(|&seq| copy(seq, "")).collect();
        harness.op(Op::Mirror { id: STREAM, copies, gap_to })
    };
    let far = [1, 1 << 34, (1 << 34) + 70_000, 1 << 60];
    mirror(&mut harness, &far, 1 << 61).expect("mirrored");
    harness.op(Op::DeleteMessage { id: STREAM, seq: (1 << 34) + 70_000 }).expect("deleted");
    for how in [Reopen::Scratch, Reopen::Snapshot, Reopen::States] {
        assert_eq!(harness.seqs(), [1, 1 << 34, 1 << 60], "{how:?}");
        assert_eq!(harness.info().state.last_seq, 1 << 61);
        let mut snapshot = Vec::new();
        harness.engine.snapshot(&mut snapshot);
        assert!(snapshot.len() < 4096, "{} bytes", snapshot.len());
        harness.reopen(how);
    }
    let error = mirror(&mut harness, &[u64::MAX], u64::MAX).expect_err("no sequences are left");
    assert!(error.description.contains("too far ahead"), "{}", error.description);
}

#[test]
fn the_table_of_messages_has_a_budget() {
    let mut harness = Harness::with_stream(mirrors);
    let config = EngineConfig { table_bytes_max: 100_000, ..EngineConfig::default() };
    harness.reopen_with(Reopen::Scratch, config);
    let mut stored = 0;
    // Each lies in a chunk of its own.
    let refused = (0..1000).find_map(|n| {
        let copies = vec![copy(1 + (n << 20), "")];
        let done = harness.op(Op::Mirror { id: STREAM, copies, gap_to: 0 });
        stored += u64::from(done.is_ok());
        done.err()
    });
    assert_eq!(refused.map(|error| error.err_code), Some(10023));
    assert!((100..1000).contains(&stored), "{stored}");
    // What goes gives room again.
    harness.op(Op::DeleteMessage { id: STREAM, seq: 1 }).expect("deleted");
    let copies = vec![copy(1 << 40, "")];
    harness.op(Op::Mirror { id: STREAM, copies, gap_to: 0 }).expect("room");
}
