//! Counters (ADR-49): totals under pipelining, after deletes, restarts and cold reads; what is
//! refused; batches and sources.

use super::harness::{Harness, Msg, Reopen, STREAM};
use crate::event::Event;
use crate::op::{Op, PurgeRequest, Replica};
use nuthatch_log::{Machine, Seq};
use nuthatch_protocol::js::{StreamConfig, Time};

const WAYS: [Reopen; 3] = [Reopen::Scratch, Reopen::Snapshot, Reopen::States];

fn counting(adapt: impl FnOnce(&mut StreamConfig)) -> Harness {
    Harness::with_stream(|c| {
        c.allow_msg_counter = true;
        adapt(c);
    })
}

fn block(headers: &str) -> String {
    format!("NATS/1.0\r\n{headers}\r\n\r\n")
}

/// Adds to a counter; the answer.
fn add(harness: &mut Harness, subject: &str, increment: &str) -> String {
    let headers = block(&format!("Nats-Incr: {increment}"));
    harness.publish(&[Msg { subject, headers: &headers, body: "" }]).remove(0)
}

fn ack(seq: u64, total: &str) -> String {
    format!(r#"{{"stream":"S","seq":{seq},"val":"{total}"}}"#)
}

/// The last message of a subject: headers and payload.
fn last(harness: &mut Harness, subject: &str) -> (String, String) {
    let found = harness.direct(subject, "").remove(0);
    (found.headers, found.body)
}

#[test]
fn every_increment_is_acknowledged_with_its_total() {
    let mut harness = counting(|_| {});
    assert_eq!(add(&mut harness, "s.a", "1"), ack(1, "1"));
    assert_eq!(add(&mut harness, "s.a", "+41"), ack(2, "42"));
    assert_eq!(add(&mut harness, "s.b", "-7"), ack(3, "-7"));
    assert_eq!(add(&mut harness, "s.a", "0"), ack(4, "42"));
    let (headers, body) = last(&mut harness, "s.a");
    assert!(headers.contains("Nats-Incr: 0\r\n"), "{headers}");
    assert_eq!(body, r#"{"val":"42"}"#);
    let big = "9".repeat(50);
    assert_eq!(add(&mut harness, "s.c", &big), ack(5, &big));
    assert_eq!(add(&mut harness, "s.c", "1"), ack(6, &format!("1{}", "0".repeat(50))));
}

#[test]
fn increments_of_one_read_see_each_other() {
    let mut harness = counting(|c| c.max_msgs_per_subject = 1);
    let one = block("Nats-Incr: 1");
    let many = vec![Msg { subject: "s.a", headers: &one, body: "" }; 100];
    harness.send(&many);
    harness.send(&many);
    assert!(harness.take_replies().is_empty(), "nothing is durable");
    harness.commit();
    let expected: Vec<String> = (1..=200).map(|n| ack(n, &n.to_string())).collect();
    assert_eq!(harness.take_replies(), expected);
    assert_eq!(harness.seqs(), [200]);
    for how in WAYS {
        harness.reopen(how);
        let total = harness.seqs()[0] + 1;
        assert_eq!(add(&mut harness, "s.a", "1"), ack(total, &total.to_string()), "{how:?}");
    }
}

#[test]
fn a_total_that_is_not_in_memory_is_read_while_publishes_wait_in_order() {
    let mut harness = counting(|_| {});
    add(&mut harness, "s.a", "5");
    add(&mut harness, "s.b", "7");
    harness.reopen(Reopen::Snapshot);
    harness.log.cold.extend([(STREAM, Seq(1)), (STREAM, Seq(2))]);
    let one = block("Nats-Incr: 1");
    let to = |subject| Msg { subject, headers: &one, body: "" };
    harness.send(&[to("s.c"), to("s.a"), to("s.b")]);
    harness.send(&[to("s.a")]);
    let slot = harness.start_op(Op::Purge { id: STREAM, request: PurgeRequest::default() });
    harness.commit();
    assert_eq!(harness.take_replies(), [ack(3, "1")], "the others wait");
    harness.log.cold.remove(&(STREAM, Seq(1)));
    harness.engine.loaded(STREAM, &mut harness.log);
    harness.commit();
    assert_eq!(harness.take_replies(), [ack(4, "6")]);
    assert!(slot.lock().expect("lock").is_none(), "the purge waits its turn");
    harness.log.cold.clear();
    harness.engine.loaded(STREAM, &mut harness.log);
    harness.commit();
    assert_eq!(harness.take_replies(), [ack(5, "8"), ack(6, "7")]);
    assert!(slot.lock().expect("lock").is_some(), "then it purged");
    assert_eq!(add(&mut harness, "s.a", "1"), ack(7, "1"), "nothing is left to add to");
}

#[test]
fn a_deleted_message_does_not_count_any_more() {
    let mut harness = counting(|_| {});
    for _ in 0..3 {
        add(&mut harness, "s.a", "10");
    }
    harness.op(Op::DeleteMessage { id: STREAM, seq: 3 }).expect("deleted");
    assert_eq!(add(&mut harness, "s.a", "1"), ack(4, "21"));
    // All of it in one frame: the message that is the last one then has not committed yet.
    let ten = block("Nats-Incr: 10");
    harness.send(&[Msg { subject: "s.a", headers: &ten, body: "" }; 2]);
    let _slot = harness.start_op(Op::DeleteMessage { id: STREAM, seq: 6 });
    harness.send(&[Msg { subject: "s.a", headers: &ten, body: "" }]);
    harness.commit();
    harness.commit();
    assert_eq!(harness.take_replies(), [ack(5, "31"), ack(6, "41"), ack(7, "41")]);
}

#[test]
fn what_is_no_increment_is_refused() {
    let mut harness = counting(|_| {});
    add(&mut harness, "s.a", "1");
    let mut refused = |headers: &str, body: &str, code: &str| {
        let headers = if headers.is_empty() { String::new() } else { block(headers) };
        let reply = harness.publish(&[Msg { subject: "s.a", headers: &headers, body }]).remove(0);
        assert!(reply.contains(&format!("\"err_code\":{code},")), "{headers}: {reply}");
    };
    refused("", "x", "10169");
    refused("", "", "10169");
    refused("My-Header: 1", "", "10169");
    refused("Nats-Incr: 1", "x", "10170");
    for wrong in ["one", "1.5", "1e3", "+", "0x1", "1 2"] {
        refused(&format!("Nats-Incr: {wrong}"), "", "10171");
    }
    for other in [
        "Nats-Rollup: sub",
        "Nats-Expected-Stream: S",
        "Nats-Expected-Last-Msg-Id: x",
        "Nats-Expected-Last-Sequence: 1",
        "Nats-Expected-Last-Subject-Sequence: 1",
        "Nats-Expected-Last-Subject-Sequence-Subject: s.b",
    ] {
        refused(&format!("Nats-Incr: 1\r\n{other}"), "", "10171");
    }
    refused("Nats-Incr: 1\r\nNats-TTL: 1s", "", "10166");
    refused("Nats-Incr: 1\r\nNats-Stream-Source: X 1", "", "10227");
    assert_eq!(add(&mut harness, "s.a", "1"), ack(2, "2"), "nothing was counted");
    let twice = "1\r\nNats-Msg-Id: once";
    assert_eq!(add(&mut harness, "s.a", twice), ack(3, "3"));
    let duplicate = r#"{"stream":"S","seq":3,"duplicate": true}"#;
    assert_eq!(add(&mut harness, "s.a", twice), duplicate);
    let mut small = counting(|c| c.max_msg_size = 40);
    assert_eq!(add(&mut small, "s.a", "1"), ack(1, "1"));
    assert!(add(&mut small, "s.a", "99999999").contains("10054"), "the total is part of the size");
    assert_eq!(add(&mut small, "s.a", "1"), ack(2, "2"));
}

#[test]
fn batches_count_message_by_message() {
    let mut harness = counting(|c| (c.allow_atomic, c.allow_batched) = (true, true));
    add(&mut harness, "s.a", "5");
    harness.reopen(Reopen::Snapshot);
    harness.log.cold.insert((STREAM, Seq(1)));
    let blocks: Vec<String> = (1..=3)
        .map(|n| {
            let commit = if n == 3 { "\r\nNats-Batch-Commit: 1" } else { "" };
            block(&format!("Nats-Incr: 2\r\nNats-Batch-Id: b\r\nNats-Batch-Sequence: {n}{commit}"))
        })
        .collect();
    let subjects = ["s.a", "s.a", "s.b"];
    let batch: Vec<Msg<'_>> = subjects
        .iter()
        .zip(&blocks)
        .map(|(subject, headers)| Msg { subject, headers, body: "" })
        .collect();
    harness.send(&batch);
    harness.log.cold.clear();
    harness.engine.loaded(STREAM, &mut harness.log);
    harness.commit();
    let replies = harness.take_replies();
    assert_eq!(replies.last().map(String::as_str), {
        Some(r#"{"stream":"S","seq":4,"batch":"b","count":3}"#)
    });
    assert_eq!(add(&mut harness, "s.a", "1"), ack(5, "10"));
    assert_eq!(last(&mut harness, "s.b").1, r#"{"val":"2"}"#);
    let two = block("Nats-Incr: 2");
    for (seq, op) in [(1, 0), (2, 2)] {
        let reply = format!("p.fast.10.fail.{seq}.{op}.$FI");
        harness.send_from(&reply, &[Msg { subject: "s.a", headers: &two, body: "" }]);
    }
    harness.commit();
    let replies = harness.take_replies();
    let committed = r#"{"stream":"S","seq":7,"batch":"fast","count":2}"#;
    assert_eq!(replies.last().map(String::as_str), Some(committed), "{replies:?}");
    for how in WAYS {
        harness.reopen(how);
        assert_eq!(last(&mut harness, "s.a").1, r#"{"val":"14"}"#, "{how:?}");
    }
}

/// A message of a counter in another stream.
fn sourced(stream: &str, seq: u64, subject: &str, increment: &str, total: &str) -> Replica {
    let source = format!("{stream} {seq} > > {subject} 1");
    let headers = block(&format!("Nats-Incr: {increment}\r\nNats-Stream-Source: {source}"));
    Replica {
        seq,
        time: Time(1),
        subject: b"s.sum".to_vec(),
        headers: headers.into_bytes(),
        body: format!("{{\"val\":\"{total}\"}}").into_bytes(),
    }
}

#[test]
fn sources_are_added_up_by_where_their_counters_stand() {
    let mut harness = counting(|_| {});
    let source = |copies| Op::Source { id: STREAM, copies };
    let copies = vec![
        sourced("A", 1, "a.x", "3", "3"),
        sourced("B", 1, "b.x", "10", "10"),
        // Two increments of 1 were missed.
        sourced("A", 4, "a.x", "1", "6"),
    ];
    harness.op(source(copies)).expect("stored");
    let (headers, body) = last(&mut harness, "s.sum");
    assert!(headers.contains("Nats-Incr: 3\r\n"), "{headers}");
    let sources = r#"Nats-Counter-Sources: {"A":{"a.x":"6"},"B":{"b.x":"10"}}"#;
    assert!(headers.contains(sources), "{headers}");
    assert_eq!(body, r#"{"val":"16"}"#);
    for how in WAYS {
        harness.reopen(how);
    }
    harness.log.cold.insert((STREAM, Seq(3)));
    let slot = harness.start_op(source(vec![sourced("B", 2, "b.x", "-20", "-10")]));
    harness.commit();
    assert!(slot.lock().expect("lock").is_none(), "the value is being read");
    harness.log.cold.clear();
    harness.engine.loaded(STREAM, &mut harness.log);
    harness.commit();
    assert!(matches!(slot.lock().expect("lock").take(), Some(Ok(_))));
    assert_eq!(last(&mut harness, "s.sum").1, r#"{"val":"-4"}"#);
    assert_eq!(add(&mut harness, "s.sum", "100"), ack(5, "96"), "and one of its own");
    let plain = Replica {
        headers: block("Nats-Stream-Source: C 1 > > c 1").into(),
        ..sourced("C", 1, "c", "1", "1")
    };
    let error = harness.op(source(vec![plain])).expect_err("no counter");
    assert_eq!(error.err_code, 10169);
    let odd = Replica { body: b"x".to_vec(), ..sourced("C", 1, "c", "1", "1") };
    let error = harness.op(source(vec![odd])).expect_err("no total");
    assert_eq!(error.err_code, 10172);
}

#[test]
fn a_stream_that_does_not_count_keeps_what_a_source_counted() {
    let mut harness = Harness::with_stream(|_| {});
    let copies = vec![sourced("A", 1, "a.x", "3", "3")];
    harness.op(Op::Source { id: STREAM, copies }).expect("stored");
    let (headers, body) = last(&mut harness, "s.sum");
    assert!(headers.contains("Nats-Incr: 3\r\n") && !headers.contains("Counter-Sources"));
    assert_eq!(body, r#"{"val":"3"}"#);
}

#[test]
fn too_much_that_waits_for_a_counter_is_refused() {
    let mut harness = counting(|_| {});
    add(&mut harness, "s.a", "1");
    harness.reopen(Reopen::Snapshot);
    harness.log.cold.insert((STREAM, Seq(1)));
    let one = block("Nats-Incr: 1");
    for _ in 0..4097 {
        harness.send(&[Msg { subject: "s.a", headers: &one, body: "" }]);
    }
    harness.commit();
    let replies = harness.take_replies();
    assert_eq!(replies.len(), 1);
    assert!(replies[0].contains("10167"), "{replies:?}");
    harness.log.cold.clear();
    harness.engine.loaded(STREAM, &mut harness.log);
    harness.commit();
    let replies = harness.take_replies();
    assert_eq!(replies.len(), 4096);
    assert_eq!(replies.last(), Some(&ack(4097, "4097")));
    harness.step(Event::Writable);
}
