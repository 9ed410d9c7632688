//! What the sequencer does for one request is bounded, whatever the request or the stream holds.

use super::harness::{Harness, Msg, STREAM};
use crate::consumer::{FILTERS_MAX, PreparedConsumer};
use crate::engine::details::{PART_STEPS, QUESTIONS_MAX};
use crate::op::{Op, OpOutcome, OpResult, PurgeRequest};
use crate::subject_set::tests::steps_of;
use nuthatch_log::Machine;
use nuthatch_protocol::js::{ConsumerConfig, CreateConsumerRequest, StreamInfo};
use std::sync::{Arc, Mutex};

const SUBJECTS: usize = 2 * PART_STEPS;

/// A stream with this many subjects.
fn large() -> Harness {
    let mut harness = Harness::with_stream(|_| {});
    let names: Vec<String> = (0..SUBJECTS).map(|n| format!("s.{}.{n}", n % 7)).collect();
    for chunk in names.chunks(1024) {
        let messages: Vec<Msg<'_>> =
            chunk.iter().map(|subject| Msg { subject, ..Msg::default() }).collect();
        harness.send(&messages);
        harness.commit();
    }
    harness.take_replies();
    harness
}

fn question(filter: &str, offset: usize) -> Op {
    let subjects_filter = filter.to_owned();
    Op::StreamInfo { id: STREAM, deleted_details: true, subjects_filter, offset }
}

type Asked = Arc<Mutex<Option<OpResult>>>;

fn answer(asked: &Asked) -> Option<(StreamInfo, usize)> {
    match asked.lock().expect("lock").take()? {
        Ok(OpOutcome::Stream { info, subjects_total }) => Some((*info, subjects_total)),
        other => panic!("no information: {other:?}"),
    }
}

/// The answer, and after how many calls of the engine it came.
fn ask(harness: &mut Harness, op: Op) -> (StreamInfo, usize, usize) {
    let asked = harness.start_op(op);
    let mut calls = 1;
    loop {
        if let Some((info, total)) = answer(&asked) {
            return (info, total, calls);
        }
        harness.engine.tick(&mut harness.log);
        calls += 1;
        assert!(calls < 1000, "the answer does not come");
    }
}

#[test]
fn details_of_a_large_stream_come_in_parts_between_which_others_are_served() {
    let mut harness = large();
    let asked = harness.start_op(question(">", 0));
    assert!(answer(&asked).is_none(), "{SUBJECTS} subjects are more than one part");
    assert_eq!(harness.put("s.new", "x"), format!("{{\"stream\":\"S\",\"seq\":{}}}", SUBJECTS + 1));
    assert!(answer(&asked).is_none());
    let mut parts = 1;
    let (info, total) = loop {
        assert_eq!(harness.engine.next_deadline().map(|at| at.0), Some(harness.log.now));
        harness.engine.tick(&mut harness.log);
        parts += 1;
        if let Some(answered) = answer(&asked) {
            break answered;
        }
    };
    // A subject that is shown counts for nine steps, a sequence for one.
    let expected = 10 * SUBJECTS / PART_STEPS;
    assert!((expected..=expected + 2).contains(&parts), "{parts} parts of {PART_STEPS} steps");
    let subjects = info.state.subjects.expect("subjects");
    assert_eq!((subjects.len(), total), (SUBJECTS + 1, SUBJECTS + 1));
    assert!(subjects.values().all(|&count| count == 1));
    assert_eq!(info.state.messages, SUBJECTS as u64 + 1);
}

#[test]
fn every_subject_is_on_one_page_whatever_the_pattern() {
    let mut harness = large();
    for (pattern, expected) in
        [(">", SUBJECTS), ("s.*.*", SUBJECTS), ("s.3.>", SUBJECTS / 7), ("s.5.12", 1)]
    {
        let mut seen = std::collections::BTreeSet::new();
        for offset in [0, expected / 2, expected - 1, expected] {
            let (info, total, _) = ask(&mut harness, question(pattern, offset));
            let page = info.state.subjects.unwrap_or_default();
            assert_eq!((page.len(), total), (expected - offset, expected), "{pattern} {offset}");
            seen.extend(page.into_keys());
        }
        assert_eq!(seen.len(), expected, "{pattern}");
    }
}

#[test]
fn deleted_sequences_are_listed_in_parts() {
    let mut harness = large();
    let kept: Vec<u64> = (1..=SUBJECTS as u64).filter(|seq| (seq - 1) % 7 != 4).collect();
    let request = PurgeRequest { filter: "s.4.*".into(), ..PurgeRequest::default() };
    harness.op(Op::Purge { id: STREAM, request }).expect("purged");
    let (info, _, calls) = ask(&mut harness, question("", 0));
    assert!(calls > 1, "{SUBJECTS} sequences are more than one part");
    let gone: Vec<u64> = (1..=SUBJECTS as u64).filter(|seq| (seq - 1) % 7 == 4).collect();
    assert_eq!(info.state.deleted, gone);
    assert_eq!(
        (info.state.num_deleted, info.state.messages),
        (gone.len() as u64, kept.len() as u64)
    );
}

#[test]
fn one_question_at_a_time_is_worked_on_and_only_so_many_wait() {
    let mut harness = large();
    let mut asked: Vec<Asked> =
        (0..QUESTIONS_MAX).map(|_| harness.start_op(question(">", 0))).collect();
    let refused = harness.start_op(question(">", 0)).lock().expect("lock").take();
    assert_eq!(refused.expect("at once").expect_err("refused").err_code, 10167);
    let plain = Op::StreamInfo {
        id: STREAM,
        deleted_details: false,
        subjects_filter: String::new(),
        offset: 0,
    };
    assert!(answer(&harness.start_op(plain)).is_some(), "totals wait for nobody");
    asked.truncate(2);
    while answer(&asked[0]).is_none() {
        assert!(answer(&asked[1]).is_none(), "the first one comes first");
        harness.engine.tick(&mut harness.log);
    }
    harness.op(Op::DeleteStream { id: STREAM }).expect("deleted");
    harness.engine.tick(&mut harness.log);
    let gone = asked[1].lock().expect("lock").take().expect("answered");
    assert_eq!(gone.expect_err("it is gone").err_code, 10059);
}

fn filtered(name: &str, filters: &[String]) -> CreateConsumerRequest {
    let config = ConsumerConfig {
        durable_name: name.into(),
        ack_policy: nuthatch_protocol::js::AckPolicy::Explicit,
        filter_subjects: filters.to_vec(),
        ..ConsumerConfig::default()
    };
    CreateConsumerRequest { stream_name: "S".into(), config, ..CreateConsumerRequest::default() }
}

/// The filters are compared by whoever sends the request.
#[test]
fn the_sequencer_compares_no_filters() {
    let mut harness = Harness::with_stream(|_| {});
    let mut filters: Vec<String> = (0..FILTERS_MAX).map(|n| format!("s.*.{n}.>")).collect();
    let (request, steps) = steps_of(|| PreparedConsumer::new(filtered("c", &filters)));
    assert!(steps > FILTERS_MAX, "{steps} steps of the sender");
    let op = Op::CreateConsumer { id: STREAM, request };
    let (created, steps) = steps_of(|| harness.op(op));
    created.expect("created");
    assert_eq!(steps, 0, "on the sequencer");
    filters[0] = "s.a.5.x".into();
    let op =
        Op::CreateConsumer { id: STREAM, request: PreparedConsumer::new(filtered("d", &filters)) };
    let (refused, steps) = steps_of(|| harness.op(op));
    assert_eq!(refused.expect_err("one within another").err_code, 10138);
    assert_eq!(steps, 0, "on the sequencer");
}
