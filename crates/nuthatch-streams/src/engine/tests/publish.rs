//! Publishes: headers, limits, retention without interest, and the exact errors.

use super::harness::{Harness, Msg, Reopen, STREAM};
use crate::op::{Op, OpOutcome, PurgeRequest};
use nuthatch_log::Machine;
use nuthatch_protocol::js::{
    DeliverPolicy, DiscardPolicy, PersistMode, RetentionPolicy, StorageType, StreamConfig,
};
use nuthatch_protocol::jserror::JsError;

/// A publish with these headers to a fresh stream with one message on `s.a` (id `first`).
fn check(headers: &str, expected: &str) {
    let mut harness = Harness::with_stream(|_| {});
    harness.put_with("s.a", "Nats-Msg-Id: first");
    let reply = harness.put_with("s.a", headers);
    match expected.parse::<u16>() {
        Ok(code) => {
            let text = format!("\"err_code\":{code}");
            assert!(reply.contains(&text), "{headers}: {reply}, not {code}");
            assert!(reply.ends_with(r#","stream":"S","seq":0}"#), "{reply}");
        }
        Err(_) => assert_eq!(reply, expected, "{headers}"),
    }
}

#[test]
fn headers_are_checked_with_the_incumbents_errors() {
    let stored = r#"{"stream":"S","seq":2}"#;
    check("Nats-Msg-Id: first", r#"{"stream":"S","seq":1,"duplicate": true}"#);
    check("Nats-Msg-Id: second", stored);
    check("Nats-Expected-Stream: S", stored);
    check("Nats-Expected-Stream: T", "10060");
    check("Nats-Expected-Last-Sequence: 1", stored);
    check("Nats-Expected-Last-Sequence: 0", "10071");
    check("Nats-Expected-Last-Sequence: x", "10071");
    check("Nats-Expected-Last-Msg-Id: first", stored);
    check("Nats-Expected-Last-Msg-Id: other", "10070");
    check("Nats-Expected-Last-Subject-Sequence: 1", stored);
    check("Nats-Expected-Last-Subject-Sequence: 0", "10071");
    let other = "Nats-Expected-Last-Subject-Sequence-Subject: s.b";
    check(&format!("Nats-Expected-Last-Subject-Sequence: 0\r\n{other}"), stored);
    check(other, "10193");
    check("Nats-Rollup: sub", "10111");
    check("Nats-TTL: 5s", "10166");
    check("Nats-TTL: 0", "10165");
    check("Nats-TTL: 00", stored);
    check("Nats-TTL: soon", "10165");
    check("Nats-Batch-Id: b", "10174");
    check("Nats-Incr: +1", "10168");
    check("Nats-Incr: many", "10171");
    check("Nats-Schedule: @every 1s", "10188");
    check("Nats-Schedule: now and then", "10188");
    check("Nats-Schedule-Time-Zone: Nowhere", "10188");
    check("Nats-Schedule-Time-Zone: ", "10188");
    check("Nats-Schedule-Next: purge\r\nNats-Scheduler: s.x", "10188");
    check("Nats-Schedule-Next: purge", "10212");
    check("Nats-Scheduler: s.x", "10212");
    check("Nats-Stream-Source: X 1", "10227");
    check("My-Header: 1", stored);
    check("nats-msg-id: first", stored);
}

#[test]
fn what_servers_tell_each_other_is_not_stored() {
    let mut harness = Harness::with_stream(|_| {});
    harness.put_with("s.a", "Nats-Request-Info: {\"acc\":\"forged\"}\r\nMine: 1");
    harness.put_with("s.b", "Nats-Request-Info: {\"acc\":\"forged\"}");
    let headers = |harness: &mut Harness, subject| harness.direct(subject, "").remove(0).headers;
    assert!(headers(&mut harness, "s.a").starts_with("NATS/1.0\r\nMine: 1\r\nNats-Stream"));
    assert!(headers(&mut harness, "s.b").starts_with("NATS/1.0\r\nNats-Stream"));
}

#[test]
fn errors_tell_what_they_found() {
    let mut harness = Harness::with_stream(|_| {});
    harness.put("s.a", "x");
    let reply = harness.put_with("s.a", "Nats-Expected-Last-Sequence: 7");
    let text = r#"{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 1"}"#;
    assert_eq!(reply, format!("{text},\"stream\":\"S\",\"seq\":0}}"));
}

#[test]
fn a_refusal_waits_for_the_write_it_depends_on_and_keeps_the_order() {
    let mut harness = Harness::with_stream(|_| {});
    let id = "NATS/1.0\r\nNats-Msg-Id: one\r\n\r\n";
    let message = |headers| Msg { subject: "s.a", headers, body: "x" };
    harness.send(&[message(id), message(id), message("")]);
    assert_eq!(harness.take_replies(), Vec::<String>::new());
    harness.commit();
    let replies = harness.take_replies();
    assert_eq!(replies[1], r#"{"stream":"S","seq":1,"duplicate": true}"#);
    assert_eq!(replies[2], r#"{"stream":"S","seq":2}"#);
    harness.send(&[message(id)]);
    assert_eq!(harness.take_replies().len(), 1, "nothing is in flight: answered at once");
}

/// A change of configuration.
type Adapt = fn(&mut StreamConfig);

#[test]
fn discard_new_refuses_with_the_limit_that_is_full() {
    let cases: [(Adapt, &str); 3] = [
        (|config| config.max_msgs = 1, "maximum messages exceeded"),
        (|config| config.max_bytes = 60, "maximum bytes exceeded"),
        (
            |config| {
                config.max_msgs_per_subject = 1;
                config.discard_new_per_subject = true;
            },
            "maximum messages per subject exceeded",
        ),
    ];
    for (adapt, text) in cases {
        let mut harness = Harness::with_stream(|config| {
            config.discard = DiscardPolicy::New;
            adapt(config);
        });
        assert_eq!(harness.put("s.a", "x"), r#"{"stream":"S","seq":1}"#);
        let reply = harness.put("s.a", "x");
        assert!(reply.contains("\"err_code\":10077") && reply.contains(text), "{reply}");
    }
}

#[test]
fn sizes_are_limited() {
    let mut harness = Harness::with_stream(|config| config.max_msg_size = 10);
    assert_eq!(harness.put("s.a", "0123456789"), r#"{"stream":"S","seq":1}"#);
    assert!(harness.put("s.a", "0123456789x").contains("10054"));
    let mut harness = Harness::with_stream(|_| {});
    let long = format!("X: {}", "y".repeat(70_000));
    assert!(harness.put_with("s.a", &long).contains("10097"));
}

#[test]
fn without_interest_only_the_sequence_moves() {
    let mut harness = Harness::with_stream(|config| config.retention = RetentionPolicy::Interest);
    assert_eq!(harness.put("s.a", "x"), r#"{"stream":"S","seq":1}"#);
    harness.put_with("s.a", "Nats-Msg-Id: one");
    for how in [Reopen::Scratch, Reopen::Snapshot, Reopen::States] {
        harness.reopen(how);
        let state = harness.info().state;
        assert_eq!((state.messages, state.first_seq, state.last_seq), (0, 3, 2));
        let reply = harness.put_with("s.a", "Nats-Msg-Id: one");
        assert_eq!(reply, r#"{"stream":"S","seq":2,"duplicate": true}"#);
    }
}

#[test]
fn memory_streams_count_bytes_as_the_incumbents_memory_store() {
    let mut harness = Harness::with_stream(|config| config.storage = StorageType::Memory);
    harness.put("s.a", "12345");
    assert_eq!(harness.info().state.bytes, 3 + 5 + 16);
}

#[test]
fn async_persistence_acknowledges_at_once_and_no_ack_never() {
    let message = Msg { subject: "s.a", body: "x", ..Msg::default() };
    let mut harness = Harness::with_stream(|config| config.persist_mode = PersistMode::Async);
    harness.send(&[message, message]);
    assert_eq!(harness.take_replies(), [r#"{"stream":"S","seq":1}"#, r#"{"stream":"S","seq":2}"#]);
    harness.commit();
    assert_eq!(harness.take_replies(), Vec::<String>::new(), "and only once");
    let mut harness = Harness::with_stream(|config| config.no_ack = true);
    assert_eq!(harness.publish(&[message]), Vec::<String>::new());
}

#[test]
fn sealed_streams_change_no_more() {
    let mut harness = Harness::with_stream(|_| {});
    harness.put("s.a", "x");
    let mut config = (*harness.info().config).clone();
    config.sealed = true;
    harness.op(Op::UpdateStream { id: STREAM, config: Box::new(config) }).expect("sealed");
    assert!(harness.put("s.a", "x").contains("10109"));
    let delete = harness.op(Op::DeleteMessage { id: STREAM, seq: 1 });
    assert_eq!(delete, Err(JsError::STREAM_SEALED));
    let request = PurgeRequest::default();
    assert_eq!(harness.op(Op::Purge { id: STREAM, request }), Err(JsError::STREAM_SEALED));
}

#[test]
fn deletes_and_purges_can_be_denied() {
    let mut harness = Harness::with_stream(|config| {
        config.deny_delete = true;
        config.deny_purge = true;
    });
    harness.put("s.a", "x");
    let code = |result: Result<OpOutcome, JsError>| result.expect_err("denied").err_code;
    assert_eq!(code(harness.op(Op::DeleteMessage { id: STREAM, seq: 1 })), 10057);
    let request = PurgeRequest::default();
    assert_eq!(code(harness.op(Op::Purge { id: STREAM, request })), 10110);
}

#[test]
fn a_missing_sequence_cannot_be_deleted() {
    let mut harness = Harness::with_stream(|_| {});
    for body in ["x", "y", "z"] {
        harness.put("s.a", body);
    }
    harness.op(Op::DeleteMessage { id: STREAM, seq: 2 }).expect("deleted");
    let cases = [
        (0, 10057, "no message found"),
        (2, 10043, "sequence 2 not found"),
        (5, 10057, "stream store EOF"),
    ];
    for (seq, code, text) in cases {
        let error = harness.op(Op::DeleteMessage { id: STREAM, seq }).expect_err("missing");
        assert_eq!((error.err_code, &*error.description), (code, text));
    }
}

#[test]
fn a_deleted_stream_is_gone_after_its_record_commits() {
    let mut harness = Harness::with_stream(|_| {});
    harness.put("s.a", "x");
    let op = harness.start_op(Op::DeleteStream { id: STREAM });
    assert!(op.lock().expect("lock").is_none(), "not before the commit");
    harness.send(&[Msg { subject: "s.a", body: "x", ..Msg::default() }]);
    harness.commit();
    assert!(harness.take_replies()[0].contains("10059"));
    assert_eq!(op.lock().expect("lock").take(), Some(Ok(OpOutcome::Done)));
    let published = std::mem::take(&mut harness.engine.sink_mut().published);
    assert_eq!(published[0].subject, "$JS.EVENT.ADVISORY.STREAM.DELETED.S");
    assert_eq!(harness.log.dead.len(), 1);
    harness.reopen(Reopen::Scratch);
    let outcome = harness.op(Op::Catalog).expect("catalog");
    let OpOutcome::Catalog { streams, next_id, unreadable_records } = outcome else {
        panic!("no catalog")
    };
    assert_eq!((streams.len(), next_id.0), (0, 2), "an id is never used again");
    assert_eq!(unreadable_records, 0);
}

#[test]
fn a_batch_over_two_frames_becomes_visible_frame_by_frame() {
    let mut harness = Harness::with_stream(|_| {});
    harness.consumer("c", |_| {}).expect("created");
    for _ in 0..2 {
        assert_eq!(harness.pull_waiting("c"), Vec::<String>::new());
    }
    harness.log.frame_records = 1;
    let message = |body| Msg { subject: "s.a", body, ..Msg::default() };
    harness.send(&[message("one"), message("two")]);
    harness.commit();
    let visible = harness.engine.sink_mut().delivered.len();
    assert_eq!(visible, 1, "the second message has not committed");
    harness.log.frame_records = 0;
    harness.commit();
    let delivered = std::mem::take(&mut harness.engine.sink_mut().delivered);
    let bodies: Vec<&str> = delivered.iter().map(|out| out.body.as_str()).collect();
    assert_eq!(bodies, ["one", "two"], "nothing was passed over");
}

#[test]
fn numbers_at_the_edge_of_their_types_do_no_harm() {
    let mut harness = Harness::with_stream(|config| {
        config.max_age = i64::MAX;
        config.max_bytes = i64::MAX;
        config.max_msgs = i64::MAX;
        config.max_msgs_per_subject = i64::MAX;
    });
    harness.put("s.a", "one");
    let created = harness.consumer("c", |config| {
        config.inactive_threshold = i64::MAX;
        config.deliver_policy = DeliverPolicy::ByStartSequence;
        config.opt_start_seq = u64::MAX;
        config.ack_wait = i64::MAX;
    });
    created.expect("created");
    harness.consumer("all", |config| config.ack_wait = i64::MAX).expect("created");
    harness.pull_with("c", r#"{"batch":-9223372036854775808,"expires":9223372036854775807}"#);
    for _ in 0..3 {
        let body = r#"{"batch":9223372036854775807,"expires":9223372036854775807}"#;
        harness.pull_with("c", body);
    }
    harness.pull_with("c", r#"{"batch":1,"no_wait":true,"max_bytes":-9223372036854775808}"#);
    let acks = harness.pull_with("all", r#"{"batch":-9223372036854775808,"no_wait":true}"#);
    assert_eq!(acks.len(), 1);
    harness.ack(&acks[0], r#"-NAK {"delay": 9223372036854775807}"#, "");
    harness.ack("$JS.ACK.S.all.1.18446744073709551615.18446744073709551615.1.1", "+ACK", "");
    for seq in [0, u64::MAX - 1, u64::MAX] {
        assert!(harness.op(Op::DeleteMessage { id: STREAM, seq }).is_err());
        harness.direct("", &format!("{{\"seq\":{seq}}}"));
        harness.direct("", &format!("{{\"seq\":{seq},\"next_by_subj\":\"s.>\"}}"));
    }
    for (seq, keep) in [(0, u64::MAX), (i64::MAX as u64, 0)] {
        let request = PurgeRequest { filter: "s.a".into(), seq, keep };
        harness.op(Op::Purge { id: STREAM, request }).expect("purged");
    }
    let request = PurgeRequest { filter: String::new(), seq: u64::MAX, keep: 0 };
    let purged = harness.op(Op::Purge { id: STREAM, request });
    assert!(purged.is_err(), "no sequence would be left: {purged:?}");
    assert_eq!(harness.put("s.a", "two"), r#"{"stream":"S","seq":2}"#);
    harness.consumer_info("c").expect("is there");
    harness.reopen(Reopen::Scratch);
    harness.info();
}

/// Readers must not see what a crash could still take away, and what is published meanwhile comes
/// after the gap.
#[test]
fn a_purge_past_the_end_shows_when_it_has_committed() {
    for how in [Reopen::Scratch, Reopen::Snapshot, Reopen::States] {
        let mut harness = Harness::with_stream(|_| {});
        (0..3).for_each(|_| drop(harness.put("s.a", "x")));
        let request = PurgeRequest { seq: 1_000_000_000_000, ..PurgeRequest::default() };
        let purged = harness.start_op(Op::Purge { id: STREAM, request });
        harness.send(&[Msg { subject: "s.b", body: "y", ..Msg::default() }]);
        let deleted = harness.start_op(Op::DeleteMessage { id: STREAM, seq: 1_000_000_000_000 });
        assert_eq!(harness.direct("", r#"{"seq":2}"#).len(), 1);
        assert_eq!((harness.seqs().len(), harness.take_replies().len()), (3, 0));
        harness.commit();
        let outcome = purged.lock().expect("lock").take();
        assert_eq!(outcome, Some(Ok(OpOutcome::Purged(3))));
        harness.commit();
        assert_eq!(deleted.lock().expect("lock").take(), Some(Ok(OpOutcome::Done)));
        assert!(harness.take_replies()[0].contains("1000000000000"));
        assert!(harness.put("s.a", "z").contains("1000000000001"));
        harness.reopen(how);
        assert_eq!(harness.seqs(), [1_000_000_000_001]);
    }
}

#[test]
fn what_waits_for_a_purge_is_refused_when_the_log_fails() {
    let mut harness = Harness::with_stream(|_| {});
    let request = PurgeRequest { seq: 77, ..PurgeRequest::default() };
    harness.start_op(Op::Purge { id: STREAM, request });
    harness.send(&[Msg { subject: "s.b", body: "y", ..Msg::default() }]);
    harness.engine.failed("the disk is gone");
    assert!(harness.take_replies()[0].contains("the disk is gone"));
}
