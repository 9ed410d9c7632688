//! The thin line: create, publish, ack on commit, get, info, restart.

use super::harness::{Harness, Msg, Reopen, STREAM};
use crate::op::{GetMessage, Op, OpOutcome};
use nuthatch_log::AppendError;

#[test]
fn publish_is_acknowledged_on_commit_and_not_before() {
    let mut harness = Harness::with_stream(|_| {});
    let message = |body| Msg { subject: "s.a", body, ..Msg::default() };
    harness.send(&[message("one"), message("two")]);
    assert_eq!(harness.take_replies(), Vec::<String>::new());
    let question = || Op::StreamInfo {
        id: STREAM,
        deleted_details: false,
        subjects_filter: String::new(),
        offset: 0,
    };
    let asked = harness.start_op(question());
    assert!(asked.lock().expect("lock").is_none(), "readers see committed state only");
    harness.commit();
    let Some(Ok(OpOutcome::Stream { info, .. })) = asked.lock().expect("lock").take() else {
        panic!("the information comes with the frame");
    };
    assert_eq!(info.state.messages, 2, "what was published before the question counts");
    assert_eq!(harness.take_replies(), [r#"{"stream":"S","seq":1}"#, r#"{"stream":"S","seq":2}"#]);
    let state = harness.info().state;
    assert_eq!((state.messages, state.first_seq, state.last_seq), (2, 1, 2));
    assert_eq!(state.bytes, 2 * (22 + 3 + 8 + 3));
}

#[test]
fn a_message_is_found_by_sequence_and_subject() {
    let mut harness = Harness::with_stream(|_| {});
    harness.put("s.a", "one");
    harness.put("s.b", "two");
    let get = |request| Op::GetMessage { id: STREAM, request };
    let by_seq = GetMessage { seq: 2, ..GetMessage::default() };
    let OpOutcome::Message(found) = harness.op(get(by_seq)).expect("found") else { panic!() };
    assert_eq!((found.subject.as_slice(), found.body.as_slice()), (&b"s.b"[..], &b"two"[..]));
    let by_subject = GetMessage { last_by_subj: "s.a".into(), ..GetMessage::default() };
    let OpOutcome::Message(found) = harness.op(get(by_subject)).expect("found") else { panic!() };
    assert_eq!(found.seq, 1);
    let missing = GetMessage { seq: 9, ..GetMessage::default() };
    assert_eq!(harness.op(get(missing)).expect_err("missing").err_code, 10037);
}

#[test]
fn a_restart_keeps_everything() {
    for how in [Reopen::Scratch, Reopen::Snapshot, Reopen::States] {
        let mut harness = Harness::with_stream(|_| {});
        harness.put("s.a", "one");
        harness.put("s.b", "two");
        let before = harness.info();
        harness.reopen(how);
        let after = harness.info();
        assert_eq!(before.config, after.config, "{how:?}");
        assert_eq!(before.created, after.created, "{how:?}");
        assert_eq!(before.state, after.state, "{how:?}");
        assert_eq!(harness.put("s.c", "three"), r#"{"stream":"S","seq":3}"#, "{how:?}");
    }
}

#[test]
fn a_full_disk_refuses_publishes_with_a_reason_and_lets_deletes_pass() {
    let mut harness = Harness::with_stream(|_| {});
    harness.put("s.a", "one");
    harness.log.refuse = Some(AppendError::Full { needed_bytes: 4096, available_bytes: 0 });
    let reply = harness.put("s.a", "two");
    assert!(reply.contains(r#""err_code":10077"#) && reply.contains("no space left"), "{reply}");
    assert_eq!(harness.op(Op::DeleteMessage { id: STREAM, seq: 1 }), Ok(OpOutcome::Done));
    harness.log.refuse = None;
    assert_eq!(harness.put("s.a", "three"), r#"{"stream":"S","seq":2}"#);
}

#[test]
fn a_failed_log_answers_everybody_with_the_reason() {
    use nuthatch_log::Machine;
    let mut harness = Harness::with_stream(|_| {});
    harness.send(&[Msg { subject: "s.a", body: "one", ..Msg::default() }]);
    let op = harness.start_op(Op::DeleteStream { id: STREAM });
    harness.engine.failed("fsync: I/O error");
    let replies = harness.take_replies();
    assert!(replies[0].contains("10008") && replies[0].contains("fsync: I/O error"), "{replies:?}");
    let outcome = op.lock().expect("lock").take().expect("answered");
    assert_eq!(outcome.expect_err("refused").err_code, 10008);
    harness.send(&[Msg { subject: "s.a", body: "two", ..Msg::default() }]);
    assert!(harness.take_replies()[0].contains("10008"), "later publishes get an answer as well");
}

/// A newer version's stream is not a deleted stream.
#[test]
fn what_is_not_understood_is_counted_and_nothing_is_dead() {
    use nuthatch_log::{Machine, RecordKind, Seq};
    let mut harness = Harness::with_stream(|_| {});
    harness.put("s.a", "one");
    for record in harness.log.frames.iter_mut().flatten() {
        if record.kind == RecordKind::StreamCreate {
            record.body = [&[9], &record.body[1..]].concat().into();
        }
    }
    harness.reopen(Reopen::Scratch);
    let Ok(OpOutcome::Catalog { unreadable_records, .. }) = harness.op(Op::Catalog) else {
        panic!("no catalog")
    };
    assert_eq!(unreadable_records, 1);
    assert!(harness.engine.is_live(STREAM, Seq(1)), "not taken for deleted");
    let refused = harness.engine.log_states(&[STREAM], &mut harness.log);
    assert_eq!(refused, Err(nuthatch_log::StatesError::Unreadable { records: 1 }));
    assert!(harness.log.open.is_empty());
}

#[test]
fn a_consumer_is_as_before_when_its_update_found_no_room() {
    let mut harness = Harness::with_stream(|_| {});
    harness.consumer("c", |config| config.max_deliver = 3).expect("created");
    harness.log.refuse = Some(AppendError::Full { needed_bytes: 4096, available_bytes: 0 });
    assert!(harness.consumer("c", |config| config.max_deliver = 5).is_err());
    let info = harness.consumer_info("c").expect("is there");
    assert_eq!(info.config.max_deliver, 3);
}
