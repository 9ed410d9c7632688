//! A stream that comes from a backup: all of it or nothing, whatever stops in between.

use super::harness::{Harness, Reopen, STREAM};
use crate::op::{Op, OpOutcome, Replica};
use crate::sink::AccountId;
use crate::stream::staged_config;
use crate::validate::{Limits, stream_config};
use nuthatch_protocol::js::{
    AckPolicy, ConsumerConfig, ConsumerSnapshot, ConsumerState, PendingDelivery, RetentionPolicy,
    SequencePair, StreamConfig, Time,
};

const ALL: [Reopen; 3] = [Reopen::Scratch, Reopen::Snapshot, Reopen::States];
const TIME_NS: i64 = 1_699_999_999_000_000_000;

fn config(adapt: impl FnOnce(&mut StreamConfig)) -> StreamConfig {
    let subjects = vec!["s.>".into()];
    let mut config = StreamConfig { name: "S".into(), subjects, ..StreamConfig::default() };
    adapt(&mut config);
    stream_config(config, &Limits::default()).expect("valid")
}

/// A harness in which a restore has begun.
fn begun(config: &StreamConfig) -> Harness {
    let mut harness = Harness::new();
    let (id, account) = (STREAM, AccountId::GLOBAL);
    let config = Box::new(staged_config(config));
    harness.op(Op::CreateStream { id, account, config }).expect("begun");
    harness
}

fn fill(harness: &mut Harness, seqs: &[u64], gap_to: u64) {
    let copy = |&seq: &u64| Replica {
        seq,
        time: Time(TIME_NS + seq as i64),
        subject: b"s.a".to_vec(),
        headers: b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n".to_vec(),
        body: b"x".to_vec(),
    };
    let copies = seqs.iter().map(copy).collect();
    harness.op(Op::Mirror { id: STREAM, copies, gap_to }).expect("filled");
}

fn finish(harness: &mut Harness, config: &StreamConfig, consumers: Vec<ConsumerSnapshot>) {
    let config = Box::new(config.clone());
    harness.op(Op::FinishRestore { id: STREAM, config, consumers }).expect("finished");
}

fn names(harness: &mut Harness) -> Vec<String> {
    match harness.op(Op::Catalog) {
        Ok(OpOutcome::Catalog { streams, unreadable_records: 0, .. }) => {
            streams.into_iter().map(|entry| entry.config.name.clone()).collect()
        }
        other => panic!("{other:?}"),
    }
}

fn consumer(policy: AckPolicy, pending: &[u64]) -> ConsumerSnapshot {
    let out = |(at, &seq): (usize, &u64)| {
        (seq, PendingDelivery { sequence: at as u64 + 3, timestamp: TIME_NS })
    };
    let config = ConsumerConfig {
        name: "C".into(),
        durable_name: "C".into(),
        ack_policy: policy,
        ack_wait: 30_000_000_000,
        max_deliver: -1,
        ..ConsumerConfig::default()
    };
    let state = ConsumerState {
        delivered: SequencePair { consumer_seq: 4, stream_seq: 9 },
        ack_floor: SequencePair { consumer_seq: 2, stream_seq: 5 },
        pending: pending.iter().enumerate().map(out).collect(),
        ..ConsumerState::default()
    };
    ConsumerSnapshot { config, state: Some(state) }
}

#[test]
fn a_stream_is_there_with_its_last_record_and_stays() {
    let config = config(|c| c.allow_rollup_hdrs = true);
    let mut harness = begun(&config);
    fill(&mut harness, &[5, 6, 9, 10], 12);
    finish(&mut harness, &config, vec![consumer(AckPolicy::Explicit, &[6, 9])]);
    for how in ALL {
        assert_eq!(names(&mut harness), ["S"], "{how:?}");
        // The rollup headers had their effect when the messages were stored first.
        assert_eq!(harness.seqs(), [5, 6, 9, 10], "{how:?}");
        let state = harness.info().state;
        assert_eq!((state.first_seq, state.last_seq, state.first_ts.0), (5, 12, TIME_NS + 5));
        let info = harness.consumer_info("C").expect("the consumer");
        assert_eq!((info.num_ack_pending, info.num_pending), (2, 1), "{how:?}");
        assert_eq!((info.delivered.consumer_seq, info.ack_floor.stream_seq), (4, 5));
        harness.reopen(how);
    }
    let answer = harness.put("s.b", "next");
    assert!(answer.contains(r#""stream":"S","seq":13"#), "{answer}");
    assert_eq!(harness.pull("C", 10).len(), 2, "what was never delivered");
}

#[test]
fn what_was_not_finished_is_gone_with_the_next_start() {
    let config = config(|_| {});
    for how in ALL {
        let mut harness = begun(&config);
        fill(&mut harness, &[1, 2], 2);
        if how != Reopen::Scratch {
            harness.compact();
        }
        let config = Box::new(config.clone());
        let consumers = vec![consumer(AckPolicy::Explicit, &[])];
        // Its records are in a frame that does not commit.
        harness.start_op(Op::FinishRestore { id: STREAM, config, consumers });
        harness.log.open.clear();
        harness.reopen(how);
        assert_eq!(names(&mut harness), [""; 0], "{how:?}");
        harness.commit();
        assert_eq!(harness.seqs(), [0; 0], "{how:?}");
        harness.reopen(Reopen::Scratch);
        assert_eq!(names(&mut harness), [""; 0], "{how:?}: and stays gone");
    }
}

#[test]
fn consumers_in_an_earlier_frame_are_nothing_without_the_last_record() {
    let config = config(|_| {});
    let mut harness = begun(&config);
    fill(&mut harness, &[1, 2], 2);
    harness.log.frame_records = 1;
    let op = Op::FinishRestore {
        id: STREAM,
        config: Box::new(config),
        consumers: vec![consumer(AckPolicy::Explicit, &[])],
    };
    let slot = harness.start_op(op);
    harness.commit();
    assert!(slot.lock().expect("lock").is_none(), "the last record is not durable");
    harness.reopen(Reopen::Scratch);
    assert_eq!(names(&mut harness), [""; 0]);
}

#[test]
fn a_restore_in_progress_is_not_shown_and_expires_nothing() {
    let config = config(|c| {
        c.max_age = 1_000_000_000;
        c.duplicate_window = 1_000_000_000;
    });
    let mut harness = begun(&config);
    fill(&mut harness, &[1, 2], 2);
    harness.pass_ms(10_000);
    harness.tick();
    assert_eq!(harness.seqs(), [1, 2]);
    assert!(harness.engine.sink().published.is_empty(), "no advisory");
    finish(&mut harness, &config, Vec::new());
    let advisories: Vec<&str> =
        harness.engine.sink().published.iter().map(|out| out.subject.as_str()).collect();
    assert_eq!(advisories, ["$JS.EVENT.ADVISORY.STREAM.CREATED.S"]);
    harness.pass_ms(100);
    harness.tick();
    assert_eq!(harness.seqs(), [0; 0], "now its own limits hold");
}

#[test]
fn messages_are_taken_back() {
    let config = config(|_| {});
    let mut harness = begun(&config);
    fill(&mut harness, &[1, 2, 3, 4], 4);
    let seqs = vec![2, 3, 9];
    harness.op(Op::RemoveRestored { id: STREAM, seqs: seqs.clone() }).expect("removed");
    finish(&mut harness, &config, Vec::new());
    for how in ALL {
        assert_eq!(harness.seqs(), [1, 4], "{how:?}");
        harness.reopen(how);
    }
    let refused = harness.op(Op::RemoveRestored { id: STREAM, seqs });
    assert!(refused.is_err(), "only while it is being restored");
    let config = Box::new(config);
    assert!(harness.op(Op::FinishRestore { id: STREAM, config, consumers: vec![] }).is_err());
}

#[test]
fn a_consumer_without_a_state_begins_where_it_is_configured_to() {
    let config = config(|_| {});
    let mut harness = begun(&config);
    fill(&mut harness, &[3, 4], 4);
    let fresh = ConsumerSnapshot { state: None, ..consumer(AckPolicy::Explicit, &[]) };
    finish(&mut harness, &config, vec![fresh]);
    let info = harness.consumer_info("C").expect("the consumer");
    assert_eq!((info.num_pending, info.delivered.stream_seq), (2, 2));
}

#[test]
fn what_nobody_needs_leaves_an_interest_stream() {
    let config = config(|c| c.retention = RetentionPolicy::Interest);
    let mut harness = begun(&config);
    fill(&mut harness, &[5, 6, 9, 10], 10);
    finish(&mut harness, &config, vec![consumer(AckPolicy::Explicit, &[6])]);
    harness.commit();
    assert_eq!(harness.seqs(), [6, 10]);
    harness.reopen(Reopen::Scratch);
    assert_eq!(harness.seqs(), [6, 10]);
}

#[test]
fn a_state_comes_out_as_it_went_in() {
    let config = config(|_| {});
    let mut harness = begun(&config);
    fill(&mut harness, &[5, 6, 9, 10], 10);
    let snapshot = consumer(AckPolicy::Explicit, &[6, 9]);
    finish(&mut harness, &config, vec![snapshot.clone()]);
    let told = match harness.op(Op::ConsumerState { id: STREAM, name: "C".into() }) {
        Ok(OpOutcome::ConsumerState(told)) => *told,
        other => panic!("{other:?}"),
    };
    let (told, mut expected) = (told.state.expect("a state"), snapshot.state.expect("a state"));
    for out in expected.pending.values_mut() {
        // Their wait begins anew, as after a restart.
        out.timestamp = harness.log.now;
    }
    assert_eq!(told, expected);
}
