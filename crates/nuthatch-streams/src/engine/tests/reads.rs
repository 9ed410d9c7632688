//! Direct get and message get.

use super::harness::{Harness, Msg, STREAM};
use crate::event::Event;
use crate::op::{GetMessage, Op, OpOutcome, OpResult};
use nuthatch_log::{Machine, Seq};
use nuthatch_protocol::js::{AckPolicy, ConsumerConfig};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

fn filled() -> Harness {
    let mut harness = Harness::with_stream(|config| config.allow_direct = true);
    harness.put("s.a", "one");
    harness.pass_ms(10);
    harness.put_with("s.b", "X: 1");
    harness.pass_ms(10);
    harness.put("s.a", "three");
    harness
}

/// Status or body of the answer to a direct get.
fn check(subject: &str, body: &str, expected: &str) {
    let answers = filled().direct(subject, body);
    assert_eq!(answers.len(), 1, "{subject} {body}");
    let answer = &answers[0];
    assert_eq!(answer.subject, "inbox");
    let found = if answer.headers.contains("Nats-Sequence") {
        answer.body.clone()
    } else {
        answer.headers.lines().next().unwrap_or_default().replace("NATS/1.0 ", "")
    };
    assert_eq!(found, expected, "{subject} {body}");
}

#[test]
fn direct_gets_find_messages_or_say_why_not() {
    check("", r#"{"seq":1}"#, "one");
    check("", r#"{"seq":9}"#, "404 Message Not Found");
    check("", r#"{"last_by_subj":"s.a"}"#, "three");
    check("", r#"{"last_by_subj":"s.none"}"#, "404 Message Not Found");
    check("", r#"{"next_by_subj":"s.a","seq":2}"#, "three");
    check("", r#"{"next_by_subj":"s.*"}"#, "one");
    check("", r#"{"next_by_subj":"s.b","seq":3}"#, "404 Message Not Found");
    check("s.a", "", "three");
    check("s.none", "", "404 Message Not Found");
    check("s.a", r#"{"seq":1}"#, "408 Bad Request");
    check("", "", "408 Empty Request");
    check("", "{}", "408 Empty Request");
    check("", "nonsense", "408 Malformed Request");
    check("", r#"{"seq":1,"last_by_subj":"s.a"}"#, "408 Bad Request");
    check("", r#"{"batch":5}"#, "408 Empty Request");
    check("", r#"{"last_by_subj":"s.a","batch":5}"#, "408 Bad Request");
    check("", r#"{"next_by_subj":"s.a","multi_last":["s.a"]}"#, "408 Bad Request");
    check(
        "",
        r#"{"multi_last":["s.a"],"up_to_seq":1,"up_to_time":"2023-11-14T22:13:20Z"}"#,
        "408 Bad Request",
    );
    check("", r#"{"multi_last":["s.none"]}"#, "404 No Results");
    check("", r#"{"multi_last":["s.a"],"up_to_time":"2023-11-14T22:13:20Z"}"#, "404 No Results");
    check("", r#"{"next_by_subj":"s.none","batch":5}"#, "404 Message Not Found");
    check("", r#"{"start_time":"2023-11-14T22:13:20.000000001Z"}"#, "x");
    check("", r#"{"start_time":"2023-11-14T22:13:20.011Z"}"#, "three");
}

#[test]
fn headers_tell_where_a_message_comes_from() {
    let answer = filled().direct("s.b", "").remove(0);
    assert_eq!(
        answer.headers,
        "NATS/1.0\r\nX: 1\r\nNats-Stream: S\r\nNats-Subject: s.b\r\nNats-Sequence: 2\r\n\
         Nats-Time-Stamp: 2023-11-14T22:13:20.01Z\r\n\r\n"
    );
    let bare = filled().direct("s.b", r#"{"no_hdr":true}"#).remove(0);
    assert_eq!((bare.headers.as_str(), bare.body.as_str()), ("", "x"));
}

#[test]
fn a_cold_message_is_answered_when_it_is_loaded() {
    let mut harness = filled();
    harness.log.cold.insert((STREAM, Seq(1)));
    assert_eq!(harness.direct("", r#"{"seq":1}"#).len(), 0);
    let request = GetMessage { seq: 1, ..GetMessage::default() };
    let op = harness.start_op(Op::GetMessage { id: STREAM, request });
    assert!(op.lock().expect("lock").is_none());
    harness.log.cold.clear();
    harness.engine.loaded(STREAM, &mut harness.log);
    assert_eq!(harness.engine.sink().replies[0].body, "one");
    let outcome = op.lock().expect("lock").take();
    assert!(matches!(outcome, Some(Ok(OpOutcome::Message(found))) if found.body == b"one"));
}

#[test]
fn the_last_value_never_disappears_while_a_new_one_is_in_flight() {
    let mut harness = Harness::with_stream(|config| {
        config.max_msgs_per_subject = 1;
        config.allow_direct = true;
    });
    harness.put("s.a", "old");
    harness.send(&[Msg { subject: "s.a", body: "new", ..Msg::default() }]);
    assert_eq!(harness.direct("", r#"{"seq":1}"#)[0].body, "old");
    assert_eq!(harness.direct("s.a", "").len(), 0, "waits for the commit");
    assert_eq!(harness.info().state.messages, 1);
    harness.commit();
    let answers = std::mem::take(&mut harness.engine.sink_mut().replies);
    assert!(answers.iter().any(|answer| answer.body == "new"), "{answers:?}");
    assert_eq!(harness.info().state.messages, 1);
    assert_eq!(harness.info().state.first_seq, 2);
}

#[test]
fn expired_messages_are_hidden_before_any_record_says_so() {
    let mut harness = Harness::with_stream(|config| {
        config.max_age = 1_000_000_000;
        config.allow_direct = true;
    });
    harness.put("s.a", "x");
    harness.pass_ms(1001);
    assert_eq!(
        harness.direct("", r#"{"seq":1}"#)[0].headers.lines().next(),
        Some("NATS/1.0 404 Message Not Found")
    );
    assert_eq!(harness.info().state.messages, 0);
    assert!(!harness.log.awaited && harness.log.open.is_empty(), "no frame for it");
    harness.put("s.a", "y");
    let frame = harness.log.frames.last().expect("a frame");
    assert!(frame.iter().any(|r| r.kind == nuthatch_log::RecordKind::Expire && r.seq == Seq(1)));
}

#[test]
fn a_crowd_of_cold_reads_is_answered_in_the_end() {
    let mut harness = filled();
    harness.log.cold.insert((STREAM, Seq(1)));
    for _ in 0..200 {
        assert_eq!(harness.direct("", r#"{"seq":1}"#).len(), 0);
    }
    harness.direct("", r#"{"seq":2}"#);
    harness.engine.loaded(STREAM, &mut harness.log);
    assert_eq!(harness.engine.sink().replies.len(), 0, "still cold");
    harness.log.cold.clear();
    harness.engine.loaded(STREAM, &mut harness.log);
    assert_eq!(harness.engine.sink().replies.len(), 200);
}

/// What a request for several is answered with: body, pending and last sequence of each message,
/// then the end.
fn many(harness: &mut Harness, body: &str) -> Vec<String> {
    let answers = harness.direct("", body);
    let field = |headers: &str, name: &str| {
        let line = headers.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or("-").trim().to_owned()
    };
    let tell = |out: super::harness::Out| {
        let pending = field(&out.headers, "Nats-Num-Pending:");
        let last = field(&out.headers, "Nats-Last-Sequence:");
        let up_to = field(&out.headers, "Nats-UpTo-Sequence:");
        match out.headers.starts_with("NATS/1.0 204 EOB") {
            true => format!("end {pending} {last} {up_to}"),
            false => format!("{} {pending} {last}", out.body),
        }
    };
    answers.into_iter().map(tell).collect()
}

#[test]
fn batches_go_out_in_order_and_say_what_is_left() {
    let harness = &mut filled();
    assert_eq!(many(harness, r#"{"seq":1,"batch":2}"#), ["one 2 0", "x 1 1", "end 1 2 -"]);
    assert_eq!(
        many(harness, r#"{"seq":1,"next_by_subj":"s.a","batch":9}"#),
        ["one 1 0", "three 0 1", "end 0 3 -"]
    );
    assert_eq!(
        many(harness, r#"{"seq":2,"next_by_subj":"s.a","batch":1}"#),
        ["three 0 0", "end 0 3 -"]
    );
    assert_eq!(many(harness, r#"{"seq":1,"batch":3,"max_bytes":1}"#), ["one 2 0", "end 2 1 -"]);
    assert_eq!(many(harness, r#"{"multi_last":["s.*"]}"#), ["x 1 0", "three 0 2", "end 0 3 3"]);
    assert_eq!(many(harness, r#"{"multi_last":["s.*"],"batch":1}"#), ["x 1 0", "end 1 2 3"]);
    assert_eq!(
        many(harness, r#"{"multi_last":["s.a","s.b"],"up_to_seq":2}"#),
        ["one 1 0", "x 0 1", "end 0 2 2"]
    );
    assert_eq!(
        many(harness, r#"{"multi_last":["s.*"],"up_to_time":"2023-11-14T22:13:20.005Z"}"#),
        ["one 0 0", "end 0 1 1"]
    );
}

#[test]
fn a_batch_goes_on_after_a_cold_message() {
    let mut harness = filled();
    harness.log.cold.insert((STREAM, Seq(2)));
    assert_eq!(many(&mut harness, r#"{"seq":1,"batch":5}"#), ["one 2 0"]);
    harness.log.cold.clear();
    harness.engine.loaded(STREAM, &mut harness.log);
    let answers = std::mem::take(&mut harness.engine.sink_mut().replies);
    assert_eq!(answers.len(), 3, "two more and the end");
}

/// nats-py takes an information without pending messages that comes before any message for an empty
/// bucket; on a busy machine that was seen.
#[test]
fn an_answer_does_not_overtake_what_was_delivered_before_it() {
    let mut harness = Harness::with_stream(|_| {});
    let push = |config: &mut ConsumerConfig| {
        config.deliver_subject = "inbox".into();
        config.ack_policy = AckPolicy::None;
    };
    harness.consumer("c", push).expect("created");
    harness.send(&[Msg { subject: "s.a", body: "one", ..Msg::default() }]);
    harness.commit_frame();
    let staged = Arc::clone(&harness.engine.sink().staged);
    assert_eq!(staged.load(Ordering::Relaxed), 1, "delivered in this turn");

    let seen = Arc::new(AtomicUsize::new(usize::MAX));
    let respond = {
        let (staged, seen) = (Arc::clone(&staged), Arc::clone(&seen));
        Box::new(move |_| seen.store(staged.load(Ordering::Relaxed), Ordering::Relaxed))
    };
    let question = Op::ConsumerInfo { id: STREAM, name: "c".into() };
    harness.engine.step(Event::Op(question, respond), &mut harness.log);
    assert_eq!(seen.load(Ordering::Relaxed), 0, "handed over before the answer");
}

/// Publishes, questions and a delete that one client sends without waiting may all lie in one frame.
#[test]
fn a_question_is_answered_before_the_delete_that_was_sent_behind_it() {
    let mut harness = Harness::with_stream(|_| {});
    harness.send(&[Msg { subject: "s.a", body: "one", ..Msg::default() }]);
    let question = Op::StreamInfo {
        id: STREAM,
        deleted_details: false,
        subjects_filter: String::new(),
        offset: 0,
    };
    let stream = harness.start_op(question.clone());
    let consumer = harness.start_op(Op::ConsumerInfo { id: STREAM, name: "nobody".into() });
    let deleted = harness.start_op(Op::DeleteStream { id: STREAM });
    let late = harness.start_op(question);
    harness.commit();
    let take = |slot: Arc<Mutex<Option<OpResult>>>| slot.lock().expect("lock").take();
    let Some(Ok(OpOutcome::Stream { info, .. })) = take(stream) else { panic!("no information") };
    assert_eq!(info.state.messages, 1);
    assert_eq!(take(consumer).expect("answered").expect_err("no consumer").err_code, 10014);
    take(deleted).expect("answered").expect("deleted");
    assert_eq!(take(late).expect("answered").expect_err("no stream").err_code, 10059);
}
