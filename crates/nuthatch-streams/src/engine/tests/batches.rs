//! Atomic and fast batches (ADR-50): errors, visibility, and what a crash leaves of them.

use super::harness::{Harness, Msg, Reopen, STREAM};
use crate::op::Op;
use nuthatch_protocol::js::{DiscardPolicy, RetentionPolicy, StreamConfig};

const COMMIT: &str = "Nats-Batch-Commit: 1";

fn batched(adapt: impl FnOnce(&mut StreamConfig)) -> Harness {
    Harness::with_stream(|c| {
        (c.allow_atomic, c.allow_batched) = (true, true);
        adapt(c);
    })
}

/// A message of batch `b`.
fn member(harness: &mut Harness, subject: &str, seq: u64, more: &str) -> Vec<String> {
    let more = if more.is_empty() { String::new() } else { format!("{more}\r\n") };
    let headers =
        format!("NATS/1.0\r\nNats-Batch-Id: b\r\nNats-Batch-Sequence: {seq}\r\n{more}\r\n");
    harness.send(&[Msg { subject, headers: &headers, body: "x" }]);
    harness.take_replies()
}

fn code(reply: &str) -> Option<&str> {
    reply.split("\"err_code\":").nth(1)?.split(',').next()
}

#[test]
fn a_batch_becomes_visible_as_a_whole() {
    let mut harness = batched(|_| {});
    assert_eq!(member(&mut harness, "s.a", 1, ""), [""]);
    assert_eq!(member(&mut harness, "s.b", 2, ""), [""]);
    harness.put("s.z", "between");
    assert_eq!(harness.info().state.last_seq, 1);
    assert!(member(&mut harness, "s.a", 3, COMMIT).is_empty(), "not before it is durable");
    harness.commit();
    assert_eq!(harness.take_replies(), [r#"{"stream":"S","seq":4,"batch":"b","count":3}"#]);
    assert_eq!(harness.info().state.messages, 4);
    assert_eq!(harness.seqs(), [1, 2, 3, 4]);
    for how in [Reopen::Scratch, Reopen::Snapshot, Reopen::States] {
        harness.reopen(how);
        assert_eq!(harness.seqs(), [1, 2, 3, 4], "{how:?}");
    }
}

#[test]
fn an_end_of_batch_message_is_not_stored() {
    let mut harness = batched(|_| {});
    member(&mut harness, "s.a", 1, "");
    member(&mut harness, "s.a", 2, "Nats-Batch-Commit: eob");
    harness.commit();
    assert_eq!(harness.take_replies(), [r#"{"stream":"S","seq":1,"batch":"b","count":1}"#]);
    assert_eq!(harness.seqs(), [1]);
}

#[test]
fn a_batch_over_several_frames_is_there_after_a_crash_as_a_whole_or_not_at_all() {
    for committed in 0..=4 {
        for how in [Reopen::Scratch, Reopen::Snapshot, Reopen::States] {
            let mut harness = batched(|c| c.max_msgs = 4);
            (0..4).for_each(|_| {
                harness.put("s.old", "x");
            });
            harness.compact();
            // The record that begins it, then five messages: three frames.
            harness.log.frame_records = 2;
            (1..5).for_each(|seq| {
                member(&mut harness, "s.new", seq, "");
            });
            member(&mut harness, "s.new", 5, COMMIT);
            for _ in 0..committed {
                if harness.log.sealed.is_empty() && harness.log.open.is_empty() {
                    break;
                }
                harness.commit();
            }
            harness.log.frame_records = 0;
            harness.reopen(how);
            let whole = committed >= 3;
            let expected: &[u64] = if whole { &[6, 7, 8, 9] } else { &[1, 2, 3, 4] };
            assert_eq!(harness.seqs(), expected, "{committed} frames, {how:?}");
            // What follows gets a sequence of its own, and a second crash changes nothing.
            let next = if committed == 0 { 5 } else { 10 };
            assert_eq!(
                harness.put("s.next", "x"),
                format!("{{\"stream\":\"S\",\"seq\":{next}}}"),
                "{committed} frames, {how:?}"
            );
            let before = harness.seqs();
            for again in [Reopen::Scratch, how] {
                harness.reopen(again);
                assert_eq!(harness.seqs(), before, "{committed} frames, {again:?}");
            }
        }
    }
}

#[test]
fn readers_see_nothing_of_a_batch_whose_last_frame_is_in_flight() {
    let mut harness = batched(|_| {});
    harness.log.frame_records = 2;
    (1..5).for_each(|seq| {
        member(&mut harness, "s.a", seq, "");
    });
    member(&mut harness, "s.a", 5, COMMIT);
    harness.commit();
    let message = harness.op(Op::GetMessage {
        id: STREAM,
        request: crate::op::GetMessage { seq: 1, ..Default::default() },
    });
    assert!(message.is_err(), "{message:?}");
    while !harness.log.open.is_empty() {
        harness.commit();
    }
    assert_eq!(harness.info().state.messages, 5);
}

#[test]
fn faults_of_a_batch_have_the_incumbents_codes() {
    let refused = |headers: &str, expected: &str| {
        let mut harness = batched(|_| {});
        let headers = format!("NATS/1.0\r\n{headers}\r\n\r\n");
        harness.send(&[Msg { subject: "s.a", headers: &headers, body: "x" }]);
        let replies = harness.take_replies();
        assert_eq!(code(&replies[0]), Some(expected), "{headers}: {replies:?}");
        assert_eq!(harness.seqs(), [] as [u64; 0]);
    };
    refused("Nats-Batch-Id: b", "10175");
    refused("Nats-Batch-Id: b\r\nNats-Batch-Sequence: 2", "10176");
    refused("Nats-Batch-Id: b\r\nNats-Batch-Sequence: 1002", "10199");
    refused("Nats-Batch-Id: b\r\nNats-Batch-Sequence: 1\r\nNats-Batch-Commit: yes", "10200");
    refused("Nats-Batch-Id: b\r\nNats-Batch-Sequence: 1\r\nNats-Batch-Commit: eob", "10176");
    refused("Nats-Batch-Id: b\r\nNats-Batch-Sequence: 1\r\nNats-Required-Api-Level: 99", "10185");
    refused(&format!("Nats-Batch-Id: {}\r\nNats-Batch-Sequence: 1", "b".repeat(65)), "10179");
    let last = "Nats-Batch-Id: b\r\nNats-Batch-Sequence: 1\r\nNats-Batch-Commit: 1";
    refused(&format!("{last}\r\nNats-Expected-Last-Msg-Id: x"), "10177");
    refused(&format!("{last}\r\nNats-Expected-Last-Sequence: 3"), "10071");
    refused(&format!("{last}\r\nNats-Expected-Stream: T"), "10060");
    refused(&format!("{last}\r\nNats-Rollup: sub"), "10111");
    refused(&format!("{last}\r\nNats-Incr: 1"), "10168");

    let mut harness = Harness::with_stream(|_| {});
    assert_eq!(code(&member(&mut harness, "s.a", 1, "")[0]), Some("10174"));
}

/// Subjects and headers of a batch, and the code that its commit is refused with.
type Case<'a> = (&'a [(&'a str, &'a str)], Option<&'a str>);

/// Sends a batch of these (subject, headers) and returns the answer to the last.
fn whole(harness: &mut Harness, messages: &[(&str, &str)]) -> String {
    for (seq, (subject, headers)) in (1..).zip(messages) {
        let more = match (seq == messages.len() as u64, headers.is_empty()) {
            (true, true) => COMMIT.to_owned(),
            (true, false) => format!("{headers}\r\n{COMMIT}"),
            (false, _) => (*headers).to_owned(),
        };
        let replies = member(harness, subject, seq, &more);
        if let Some(reply) = replies.into_iter().find(|reply| !reply.is_empty()) {
            return reply;
        }
    }
    harness.commit();
    harness.take_replies().pop().unwrap_or_default()
}

#[test]
fn checks_inside_a_batch_see_what_the_batch_does() {
    let subject_seq = |seq| format!("Nats-Expected-Last-Subject-Sequence: {seq}");
    let (zero, one) = (subject_seq(0), subject_seq(1));
    let id = "Nats-Msg-Id: i";
    let fresh = || {
        let mut harness = batched(|c| c.allow_rollup_hdrs = true);
        harness.put_with("s.a", "Nats-Msg-Id: old");
        harness
    };
    let cases: &[Case<'_>] = &[
        (&[("s.a", "Nats-Expected-Last-Sequence: 1"), ("s.b", "")], None),
        (&[("s.b", ""), ("s.a", "Nats-Expected-Last-Sequence: 2")], Some("10164")),
        (&[("s.b", ""), ("s.a", "Nats-Expected-Last-Sequence: 1")], Some("10071")),
        (&[("s.a", &one), ("s.b", &zero)], None),
        (&[("s.a", ""), ("s.a", &one)], Some("10164")),
        (&[("s.b", &zero), ("s.b", "")], None),
        (&[("s.b", id), ("s.c", id)], Some("10201")),
        (&[("s.b", "Nats-Msg-Id: old")], Some("10201")),
        (&[("s.b", "Nats-Rollup: all"), ("s.c", "")], None),
        (&[("s.b", ""), ("s.c", "Nats-Rollup: all")], Some("10111")),
        (&[("s.b", ""), ("s.b", "Nats-Rollup: sub")], Some("10111")),
        (&[("s.b", ""), ("s.c", "Nats-Rollup: sub")], None),
    ];
    for (messages, expected) in cases {
        let mut harness = fresh();
        let reply = whole(&mut harness, messages);
        assert_eq!(code(&reply), *expected, "{messages:?}: {reply}");
        if expected.is_some() {
            assert_eq!(harness.seqs(), [1], "{messages:?}");
        }
    }
}

#[test]
fn discard_new_counts_the_whole_batch() {
    let mut harness = batched(|c| {
        (c.max_msgs, c.discard) = (2, DiscardPolicy::New);
    });
    let reply = whole(&mut harness, &[("s.a", ""), ("s.b", ""), ("s.c", "")]);
    assert_eq!(code(&reply), Some("10077"), "{reply}");
    let reply = whole(&mut harness, &[("s.a", ""), ("s.b", "")]);
    assert_eq!(code(&reply), None, "{reply}");
}

#[test]
fn a_batch_that_nobody_wants_uses_up_its_sequences() {
    let mut harness = batched(|c| c.retention = RetentionPolicy::Interest);
    harness.consumer("c", |c| c.filter_subject = "s.a".into()).expect("created");
    let reply = whole(&mut harness, &[("s.a", ""), ("s.b", "Nats-Msg-Id: i"), ("s.c", "")]);
    assert_eq!(reply, r#"{"stream":"S","seq":3,"batch":"b","count":3}"#);
    for how in [Reopen::Scratch, Reopen::States] {
        harness.reopen(how);
        assert_eq!(harness.seqs(), [1]);
        assert_eq!(harness.info().state.last_seq, 3);
        assert!(harness.put_with("s.a", "Nats-Msg-Id: i").contains("duplicate"));
    }
}

#[test]
fn a_gap_or_silence_gives_the_batch_up_and_says_so() {
    let mut harness = batched(|_| {});
    member(&mut harness, "s.a", 1, "");
    assert_eq!(code(&member(&mut harness, "s.a", 3, "")[0]), Some("10176"));
    member(&mut harness, "s.a", 1, "");
    harness.pass_ms(11_000);
    harness.tick();
    let advisories = std::mem::take(&mut harness.engine.sink_mut().published);
    assert!(advisories.iter().all(|out| out.subject.ends_with("STREAM.BATCH_ABANDONED.S")));
    assert!(advisories[0].body.contains(r#""batch":"b","reason":"incomplete""#));
    assert!(advisories[1].body.contains(r#""batch":"b","reason":"timeout""#), "{advisories:?}");
    assert_eq!(code(&member(&mut harness, "s.a", 2, COMMIT)[0]), Some("10176"));
}

#[test]
fn batches_are_bounded() {
    let mut harness = batched(|_| {});
    let mut open = |id: usize| {
        let headers = format!("NATS/1.0\r\nNats-Batch-Id: {id}\r\nNats-Batch-Sequence: 1\r\n\r\n");
        harness.send(&[Msg { subject: "s.a", headers: &headers, body: "x" }]);
        harness.take_replies().remove(0)
    };
    (0..50).for_each(|id| assert_eq!(open(id), ""));
    assert_eq!(code(&open(50)), Some("10210"));
    for seq in 1..=1000 {
        if seq == 1 {
            // Fifty are open: the stream is full until they fall silent.
            harness.pass_ms(11_000);
            harness.tick();
        }
        assert_eq!(member(&mut harness, "s.a", seq, ""), [""], "{seq}");
    }
    assert_eq!(code(&member(&mut harness, "s.a", 1001, COMMIT)[0]), Some("10199"));
}

/// A message of fast batch `f`.
fn fast(harness: &mut Harness, flow: u64, gap: &str, seq: u64, op: u64) -> Vec<String> {
    fast_with(harness, flow, gap, seq, op, "")
}

fn fast_with(
    harness: &mut Harness,
    flow: u64,
    gap: &str,
    seq: u64,
    op: u64,
    headers: &str,
) -> Vec<String> {
    let reply = format!("_INBOX.f.{flow}.{gap}.{seq}.{op}.$FI");
    harness.send_from(&reply, &[Msg { subject: "s.a", headers, body: "x" }]);
    if !harness.log.open.is_empty() {
        harness.commit();
    }
    harness.take_replies()
}

#[test]
fn a_fast_batch_is_told_how_far_it_is() {
    let mut harness = batched(|_| {});
    assert_eq!(fast(&mut harness, 3, "fail", 1, 0), [r#"{"type":"ack","seq":0,"msgs":3}"#]);
    assert!(fast(&mut harness, 3, "fail", 2, 1).is_empty());
    assert_eq!(fast(&mut harness, 3, "fail", 3, 1), [r#"{"type":"ack","seq":3,"msgs":3}"#]);
    assert_eq!(fast(&mut harness, 3, "fail", 3, 4), [r#"{"type":"ack","seq":3,"msgs":3}"#]);
    let done = r#"{"stream":"S","seq":4,"batch":"f","count":4}"#;
    assert_eq!(fast(&mut harness, 3, "fail", 4, 2), [done]);
    assert_eq!(code(&fast(&mut harness, 3, "fail", 5, 1)[0]), Some("10208"));
    assert_eq!(harness.seqs(), [1, 2, 3, 4]);
    fast(&mut harness, 3, "fail", 1, 0);
    assert_eq!(
        fast(&mut harness, 3, "fail", 2, 3),
        [r#"{"stream":"S","seq":5,"batch":"f","count":1}"#]
    );
}

#[test]
fn gaps_end_a_fast_batch_or_do_not() {
    let mut harness = batched(|_| {});
    fast(&mut harness, 10, "fail", 1, 0);
    let gap = r#"{"type":"gap","last_seq":2,"seq":4}"#;
    let done = r#"{"stream":"S","seq":1,"batch":"f","count":1}"#;
    assert_eq!(fast(&mut harness, 10, "fail", 4, 1), [gap, done]);
    fast(&mut harness, 10, "ok", 1, 0);
    assert_eq!(fast(&mut harness, 10, "ok", 4, 1), [gap]);
    let done = r#"{"stream":"S","seq":4,"batch":"f","count":5}"#;
    assert_eq!(fast(&mut harness, 10, "ok", 5, 2), [done]);
}

#[test]
fn faults_of_a_fast_batch_have_the_incumbents_codes() {
    let mut harness = batched(|_| {});
    assert_eq!(code(&fast(&mut harness, 1, "maybe", 1, 0)[0]), Some("10206"));
    assert_eq!(code(&fast(&mut harness, 1, "ok", 1, 4)[0]), Some("10208"));
    let wrong = "NATS/1.0\r\nNats-Expected-Stream: T\r\n\r\n";
    assert_eq!(code(&fast_with(&mut harness, 9, "fail", 1, 0, wrong)[0]), Some("10060"));
    fast(&mut harness, 9, "ok", 1, 0);
    let replies = fast_with(&mut harness, 9, "ok", 2, 1, wrong);
    assert!(replies[0].starts_with(r#"{"type":"err","seq":2,"error":{"#), "{replies:?}");
    assert_eq!(
        fast(&mut harness, 9, "ok", 3, 2),
        [r#"{"stream":"S","seq":2,"batch":"f","count":3}"#]
    );
    let mut harness = Harness::with_stream(|_| {});
    assert_eq!(code(&fast(&mut harness, 1, "ok", 1, 0)[0]), Some("10205"));
}

#[test]
fn a_fast_batch_is_acknowledged_only_when_it_is_durable() {
    let mut harness = batched(|_| {});
    let message = Msg { subject: "s.a", headers: "", body: "x" };
    harness.send_from("_INBOX.f.1.fail.1.2.$FI", &[message]);
    assert_eq!(harness.take_replies(), [] as [String; 0]);
    harness.commit();
    assert_eq!(harness.take_replies().len(), 1);
}

/// The message of the batch is acknowledged later, so nothing else in the queue holds the answer back.
#[test]
fn a_duplicate_of_what_a_fast_batch_stores_waits_until_that_is_durable() {
    let mut harness = batched(|_| {});
    fast(&mut harness, 10, "fail", 1, 0);
    let headers = "NATS/1.0\r\nNats-Msg-Id: a\r\n\r\n";
    let message = Msg { subject: "s.a", headers, body: "x" };
    harness.send_from("_INBOX.f.10.fail.2.1.$FI", &[message]);
    harness.send(&[message]);
    assert_eq!(harness.take_replies(), [] as [String; 0]);
    harness.commit();
    assert_eq!(harness.take_replies(), [r#"{"stream":"S","seq":2,"duplicate": true}"#]);
}
