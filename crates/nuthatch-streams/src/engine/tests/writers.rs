//! One writer for a stream, and messages that are not stored.

use super::harness::{Harness, Msg, Reopen, STREAM};
use crate::op::{Op, OpOutcome, OpResult, PurgeRequest};
use nuthatch_protocol::jserror::JsError;

fn fence(harness: &mut Harness, term: u64) -> OpResult {
    harness.op(Op::Fence { id: STREAM, term })
}

fn put(harness: &mut Harness, term: u64) -> String {
    harness.put_with("s.a", &format!("Nuthatch-Term: {term}"))
}

fn ack(seq: u64) -> String {
    format!("{{\"stream\":\"S\",\"seq\":{seq}}}")
}

fn is_fenced(reply: &str) -> bool {
    reply.contains("\"err_code\":20001") && reply.contains("is fenced")
}

#[test]
fn the_writer_with_the_newest_term_is_the_only_one() {
    let mut harness = Harness::with_stream(|config| config.allow_atomic = true);
    assert_eq!(harness.put("s.a", "x"), ack(1), "without a writer anybody writes");
    let early = put(&mut harness, 3);
    assert!(early.contains("\"err_code\":20002"), "never opened with this term: {early}");
    assert_eq!(fence(&mut harness, 3), Ok(OpOutcome::Fenced { term: 3, last_seq: 1 }));
    assert_eq!(put(&mut harness, 3), ack(2));
    assert!(is_fenced(&harness.put("s.a", "x")), "whoever has no term is no writer");
    assert!(is_fenced(&put(&mut harness, 2)));
    assert!(put(&mut harness, 4).contains("\"err_code\":20002"));
    assert!(is_fenced(&harness.put_with("s.a", "Nuthatch-Term: three")));
    assert_eq!(fence(&mut harness, 7), Ok(OpOutcome::Fenced { term: 7, last_seq: 2 }));
    assert!(is_fenced(&put(&mut harness, 3)));
    assert_eq!(fence(&mut harness, 7), Ok(OpOutcome::Fenced { term: 7, last_seq: 2 }), "again");
    let lower = fence(&mut harness, 6);
    assert_eq!(lower.map_err(|error| error.err_code), Err(20001));
    assert_eq!(fence(&mut harness, 0), Err(JsError::BAD_REQUEST));
    let atomic = |term| {
        format!(
            "Nuthatch-Term: {term}\r\nNats-Batch-Id: b\r\nNats-Batch-Sequence: 1\r\nNats-Batch-Commit: 1"
        )
    };
    assert!(is_fenced(&harness.put_with("s.a", &atomic(3))));
    let whole = harness.put_with("s.a", &atomic(7));
    assert!(whole.contains("\"seq\":3"), "{whole}");
    assert_eq!(harness.info().writer_term, 7);
}

#[test]
fn an_id_that_is_there_does_not_let_a_fenced_writer_pass() {
    let mut harness = Harness::with_stream(|_| {});
    fence(&mut harness, 1).expect("opened");
    let headers = "Nuthatch-Term: 1\r\nNats-Msg-Id: one";
    assert_eq!(harness.put_with("s.a", headers), ack(1));
    assert_eq!(harness.put_with("s.a", headers), r#"{"stream":"S","seq":1,"duplicate": true}"#);
    fence(&mut harness, 2).expect("opened");
    assert!(is_fenced(&harness.put_with("s.a", headers)));
    let headers = "Nuthatch-Term: 2\r\nNats-Msg-Id: one";
    assert_eq!(harness.put_with("s.a", headers), r#"{"stream":"S","seq":1,"duplicate": true}"#);
}

#[test]
fn a_batch_that_was_begun_before_the_fence_is_refused_as_a_whole() {
    let mut harness = Harness::with_stream(|config| config.allow_atomic = true);
    fence(&mut harness, 1).expect("opened");
    let part = |at: u64, more: &str| {
        format!("Nuthatch-Term: 1\r\nNats-Batch-Id: b\r\nNats-Batch-Sequence: {at}{more}")
    };
    harness.put_with("s.a", &part(1, ""));
    fence(&mut harness, 2).expect("opened");
    assert!(is_fenced(&harness.put_with("s.a", &part(2, "\r\nNats-Batch-Commit: 1"))));
    assert!(harness.seqs().is_empty());
}

#[test]
fn the_term_survives_restarts_compaction_and_changes_of_the_configuration() {
    for how in [Reopen::Scratch, Reopen::Snapshot, Reopen::States] {
        for opened_last in [true, false] {
            let mut harness = Harness::with_stream(|_| {});
            fence(&mut harness, 4).expect("opened");
            if opened_last {
                harness.compact();
                fence(&mut harness, 5).expect("opened");
            } else {
                fence(&mut harness, 5).expect("opened");
                harness.compact();
            }
            harness.reopen(how);
            assert!(is_fenced(&put(&mut harness, 4)), "{how:?} {opened_last}");
            assert_eq!(put(&mut harness, 5), ack(1), "{how:?} {opened_last}");
        }
    }
    let mut harness = Harness::with_stream(|_| {});
    fence(&mut harness, 4).expect("opened");
    let mut config =
        harness.engine.streams.get(STREAM).expect("it is there").stream.config().clone();
    config.max_msgs = 10;
    harness.op(Op::UpdateStream { id: STREAM, config: Box::new(config) }).expect("changed");
    assert!(is_fenced(&put(&mut harness, 3)));
}

#[test]
fn an_opening_is_answered_when_it_is_durable_and_holds_from_its_place_in_the_log() {
    let mut harness = Harness::with_stream(|_| {});
    harness.send(&[Msg { subject: "s.a", headers: "", body: "before" }]);
    let slot = harness.start_op(Op::Fence { id: STREAM, term: 1 });
    harness.send(&[Msg { subject: "s.a", headers: "", body: "after" }]);
    assert!(slot.lock().expect("lock").is_none(), "it waits for its frame");
    assert!(harness.take_replies().is_empty(), "so does the refusal");
    harness.commit();
    assert_eq!(
        slot.lock().expect("lock").take(),
        Some(Ok(OpOutcome::Fenced { term: 1, last_seq: 1 }))
    );
    let replies = harness.take_replies();
    assert!(replies[0] == ack(1) && is_fenced(&replies[1]), "{replies:?}");
}

#[test]
fn only_the_writer_truncates_with_its_term() {
    let mut harness = Harness::with_stream(|_| {});
    fence(&mut harness, 2).expect("opened");
    (1..=3).for_each(|_| drop(put(&mut harness, 2)));
    let truncate = |harness: &mut Harness, term| {
        let request = PurgeRequest { seq: 3, ..PurgeRequest::default() };
        harness.op(Op::Truncate { id: STREAM, request, term })
    };
    fence(&mut harness, 3).expect("opened");
    assert_eq!(truncate(&mut harness, 2).map_err(|error| error.err_code), Err(20001));
    assert_eq!(harness.seqs(), [1, 2, 3]);
    assert_eq!(truncate(&mut harness, 3), Ok(OpOutcome::Purged(2)));
    assert_eq!(harness.seqs(), [3]);
}

const TICK: &str = "NATS/1.0\r\nNuthatch-Transient: 1\r\n\r\n";

#[test]
fn a_transient_message_is_told_in_its_place_and_not_stored() {
    let mut harness = Harness::with_stream(|_| {});
    let message = |headers| Msg { subject: "s.a", headers, body: "x" };
    harness.send(&[message(""), message(TICK), message("")]);
    assert!(harness.engine.sink_mut().published.is_empty(), "what it follows is not durable");
    harness.commit();
    let told = std::mem::take(&mut harness.engine.sink_mut().published);
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].subject, "$JS.EVENT.TRANSIENT.S");
    assert!(told[0].headers.contains("Nuthatch-Last-Sequence: 1\r\nNats-Subject: s.a\r\n"));
    let transient = r#"{"stream":"S","seq":1,"transient": true}"#;
    assert_eq!(harness.take_replies(), [ack(1), transient.to_owned(), ack(2)]);
    assert_eq!((harness.seqs(), harness.info().state.last_seq), (vec![1, 2], 2));
    harness.send(&[message(TICK)]);
    assert_eq!(harness.engine.sink_mut().published.len(), 1, "nothing is in flight: at once");
    assert_eq!(harness.take_replies().len(), 1);
    harness.reopen(Reopen::Scratch);
    assert_eq!(harness.info().state.messages, 2);
}

#[test]
fn transient_messages_have_a_writer_and_a_bound() {
    let mut harness = Harness::with_stream(|_| {});
    fence(&mut harness, 1).expect("opened");
    let message = |headers| Msg { subject: "s.a", headers, body: "x" };
    harness.send(&[message(TICK)]);
    assert!(is_fenced(&harness.take_replies()[0]));
    let tick = "NATS/1.0\r\nNuthatch-Transient: 1\r\nNuthatch-Term: 1\r\n\r\n";
    let stored = "NATS/1.0\r\nNuthatch-Term: 1\r\n\r\n";
    let body = "x".repeat(1 << 20);
    harness.send(&[message(stored)]);
    for _ in 0..16 {
        harness.send(&[Msg { subject: "s.a", headers: tick, body: &body }]);
    }
    harness.commit();
    let replies = harness.take_replies();
    let refused = replies.iter().filter(|reply| reply.contains("\"err_code\":10167")).count();
    assert_eq!((replies.len(), refused), (17, 1));
}
