//! Messages that a stream has and its log does not: damage on every way to them.

use super::harness::{Harness, Msg, STREAM};
use crate::op::{GetMessage, Op, OpOutcome, PurgeRequest, RangeRequest, Replica};
use crate::sink::AccountId;
use crate::stream::{LOOKED_AT_ONCE, StreamLocation};
use nuthatch_log::Machine;
use nuthatch_protocol::js::Time;

/// A stream whose message 2, the last on `s.b`, the log has lost.
fn damaged() -> Harness {
    let mut harness = Harness::with_stream(|_| {});
    for subject in ["s.a", "s.b", "s.a", "s.c"] {
        harness.put(subject, "x");
    }
    harness.log.lose(STREAM, 2);
    harness
}

fn unreadable(harness: &mut Harness, request: GetMessage) {
    let error = harness.op(Op::GetMessage { id: STREAM, request }).expect_err("an error");
    assert_eq!(error.err_code, 10077, "not the error for a message that does not exist");
    assert!(error.description.contains("message 2 can not be read"), "{}", error.description);
}

#[test]
fn a_get_tells_damage_from_no_such_message() {
    let mut harness = damaged();
    unreadable(&mut harness, GetMessage { seq: 2, ..GetMessage::default() });
    unreadable(&mut harness, GetMessage { last_by_subj: "s.b".into(), ..GetMessage::default() });
    let next = GetMessage { seq: 1, next_by_subj: "s.b".into(), ..GetMessage::default() };
    unreadable(&mut harness, next);
    let request = GetMessage { seq: 9, ..GetMessage::default() };
    let error = harness.op(Op::GetMessage { id: STREAM, request }).expect_err("an error");
    assert_eq!(error.err_code, 10037, "no such message");
    let advisories = &harness.engine.sink().published;
    let told = advisories.iter().filter(|out| out.subject.ends_with("STREAM.MSG_UNREADABLE.S"));
    assert_eq!(told.count(), 1, "said once");
    match harness.op(Op::Usage { account: None }) {
        Ok(OpOutcome::Usage(usage)) => assert_eq!(usage.missing_messages, 1),
        other => panic!("{other:?}"),
    }
}

#[test]
fn direct_gets_of_one_and_of_many_tell_damage() {
    let mut harness = damaged();
    let status = "NATS/1.0 500 Message Not Readable\r\n\r\n";
    let one = harness.direct("", r#"{"seq":2}"#);
    assert_eq!(one[0].headers, status);
    assert_eq!(harness.direct("s.b", "")[0].headers, status);
    let many = harness.direct("", r#"{"seq":1,"batch":4}"#);
    assert_eq!((many.len(), many[1].headers.as_str()), (2, status));
    let lasts = harness.direct("", r#"{"multi_last":["s.*"]}"#);
    assert_eq!(lasts.last().map(|out| out.headers.as_str()), Some(status));
}

#[test]
fn nobody_copies_around_what_is_missing() {
    let mut harness = damaged();
    let request = RangeRequest { from: 1, ..RangeRequest::default() };
    let error = harness.op(Op::ReadRange { id: STREAM, request }).expect_err("an error");
    assert!(error.description.contains("message 2 can not be read"), "{}", error.description);
}

#[test]
fn a_move_settles_only_over_a_whole_copy() {
    let mut source = Harness::with_stream(|_| {});
    (0..5).for_each(|_| drop(source.put("s.a", "x")));
    source.op(Op::DeleteMessage { id: STREAM, seq: 3 }).expect("deleted");
    let config = Box::new((*source.info().config).clone());
    let place = |log: &str| StreamLocation { log: log.into(), stream: STREAM };
    let leave =
        Op::Leave { id: STREAM, log: "old".into(), to: place("new"), config: config.clone() };
    let Ok(OpOutcome::Left { state, .. }) = source.op(leave) else { panic!("it leaves") };
    for (copied, whole) in [
        (vec![1, 2, 4, 5], true),
        (vec![1, 2, 3, 4, 5], true),
        (vec![1, 2, 4], false),
        (vec![2, 4, 5], false),
        (vec![1, 2, 5], false),
        (vec![], false),
    ] {
        let mut target = Harness::new();
        let arrive = Op::Arrive {
            id: STREAM,
            account: AccountId::GLOBAL,
            config: config.clone(),
            from: place("old"),
            created: Time(1),
        };
        target.op(arrive).expect("begun");
        let copy = |&seq: &u64| Replica {
            seq,
            time: Time(1_700_000_000_000_000_000),
            subject: b"s.a".to_vec(),
            headers: Vec::new(),
            body: b"x".to_vec(),
        };
        let copies = copied.iter().map(copy).collect();
        target.op(Op::Mirror { id: STREAM, copies, gap_to: 0 }).expect("copied");
        let done = target.op(Op::Settle { id: STREAM, state: state.clone() });
        match done {
            Ok(OpOutcome::Done) => assert!(whole, "{copied:?}"),
            Ok(OpOutcome::Unsettled(error)) => {
                assert!(!whole, "{copied:?}: {error:?}");
                assert!(error.description.contains("lacks"), "{}", error.description);
            }
            other => panic!("{copied:?}: {other:?}"),
        }
    }
}

#[test]
fn after_a_failure_of_the_log_only_durable_progress_is_shown() {
    let mut harness = Harness::with_stream(|_| {});
    harness.consumer("C", |_| {}).expect("created");
    (0..4).for_each(|_| drop(harness.put("s.a", "x")));
    let acks = harness.pull("C", 3);
    harness.ack(&acks[0], "+ACK", "confirm");
    harness.commit();
    harness.ack(&acks[1], "+ACK", "");
    let shown = |harness: &mut Harness| {
        let info = harness.consumer_info("C").expect("there");
        (info.ack_floor.stream_seq, info.delivered.stream_seq, info.num_ack_pending)
    };
    assert_eq!(shown(&mut harness), (2, 3, 1));
    harness.engine.failed("fsync: I/O error");
    assert_eq!(shown(&mut harness), (1, 3, 2), "the second acknowledgement will not be there");
    harness.ack(&acks[2], "+ACK", "");
    assert_eq!(shown(&mut harness), (1, 3, 2));
    let Ok(OpOutcome::Consumers { infos, .. }) =
        harness.op(Op::ListConsumers { id: STREAM, offset: 0, limit: 10, names_only: false })
    else {
        panic!("a list");
    };
    assert_eq!(infos[0].ack_floor.stream_seq, 1);
    harness.reopen(super::harness::Reopen::Scratch);
    assert_eq!(shown(&mut harness), (1, 3, 2), "as the restart finds it");
}

#[test]
fn a_publish_that_waited_when_the_log_failed_has_an_unknown_outcome() {
    let mut harness = Harness::with_stream(|_| {});
    harness.send(&[Msg { subject: "s.a", body: "x", ..Msg::default() }]);
    harness.engine.failed("fsync: I/O error");
    let answer = harness.take_replies().remove(0);
    let why = "temporarily unavailable: fsync: I/O error; the outcome is unknown: it may be there \
               after the server's restart, or not";
    assert!(answer.contains(why), "{answer}");
    harness.send(&[Msg { subject: "s.a", body: "x", ..Msg::default() }]);
    let answer = harness.take_replies().remove(0);
    assert!(!answer.contains("unknown"), "this one was not written: {answer}");
}

#[test]
fn a_consumer_waits_at_what_is_missing_and_it_is_told_and_counted_once() {
    let mut harness = damaged();
    harness.consumer("C", |_| {}).expect("created");
    harness.consumer("D", |_| {}).expect("created");
    let told = |harness: &Harness, kind: &str| {
        let advisories = &harness.engine.sink().published;
        advisories.iter().filter(|out| out.subject.contains(kind)).count()
    };
    assert_eq!(harness.pull("C", 4).len(), 1, "it does not pass over message 2");
    assert_eq!(harness.pull("D", 4).len(), 1);
    for _ in 0..3 {
        harness.pass_ms(1500);
        harness.tick();
    }
    assert_eq!(told(&harness, "STREAM.MSG_UNREADABLE.S"), 1, "once for the message");
    assert_eq!(told(&harness, "CONSUMER.MSG_UNREADABLE.S.C"), 1, "once for the consumer");
    match harness.op(Op::Usage { account: None }) {
        Ok(OpOutcome::Usage(usage)) => assert_eq!(usage.missing_messages, 1),
        other => panic!("{other:?}"),
    }
    harness.op(Op::DeleteMessage { id: STREAM, seq: 2 }).expect("deleted");
    assert_eq!(harness.pull("C", 4).len(), 2, "messages 3 and 4: whoever deletes it lets it go on");
}

#[test]
fn a_large_copy_is_compared_in_parts() {
    const PAIRS: usize = LOOKED_AT_ONCE + 100;
    let mut source = Harness::with_stream(|_| {});
    let message = |subject| Msg { subject, body: "x", ..Msg::default() };
    source.send(&[message("s.a"), message("s.b")].repeat(PAIRS));
    source.commit();
    let request = PurgeRequest { filter: "s.b".into(), ..PurgeRequest::default() };
    source.op(Op::Purge { id: STREAM, request }).expect("purged");
    let config = Box::new((*source.info().config).clone());
    let place = |log: &str| StreamLocation { log: log.into(), stream: STREAM };
    let (log, to) = ("old".into(), place("new"));
    let leave = Op::Leave { id: STREAM, log, to, config: config.clone() };
    let Ok(OpOutcome::Left { state, .. }) = source.op(leave) else { panic!("it leaves") };
    for missing in [None, Some(2 * LOOKED_AT_ONCE as u64 + 101)] {
        let mut target = Harness::new();
        let (account, from) = (AccountId::GLOBAL, place("old"));
        let config = config.clone();
        target
            .op(Op::Arrive { id: STREAM, account, config, from, created: Time(1) })
            .expect("begun");
        let copy = |seq| Replica {
            seq,
            time: Time(1_700_000_000_000_000_000),
            subject: b"s.a".to_vec(),
            headers: Vec::new(),
            body: b"x".to_vec(),
        };
        let seqs = (0..PAIRS as u64).map(|pair| 2 * pair + 1).filter(|seq| Some(*seq) != missing);
        let copies = seqs.map(copy).collect();
        target.op(Op::Mirror { id: STREAM, copies, gap_to: 2 * PAIRS as u64 }).expect("copied");
        let done = target.start_op(Op::Settle { id: STREAM, state: state.clone() });
        target.commit();
        assert!(done.lock().expect("lock").is_none(), "one part is not all of it");
        assert!(target.engine.next_deadline().is_some_and(|at| at.0 <= target.log.now));
        target.tick();
        target.commit();
        let outcome = done.lock().expect("lock").take().expect("the second part was the last");
        match (outcome, missing) {
            (Ok(OpOutcome::Done), None) => {}
            (Ok(OpOutcome::Unsettled(error)), Some(seq)) => {
                let place = format!("lacks messages from {seq} to {seq}");
                assert!(error.description.contains(&place), "{}", error.description);
            }
            other => panic!("{other:?}"),
        }
    }
}
