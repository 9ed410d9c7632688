//! Priority groups (ADR-42), and consumers that are reset.

use super::harness::{Harness, Reopen, STREAM};
use crate::op::{Op, OpOutcome, OpResult};
use nuthatch_protocol::js::{DeliverPolicy, PriorityPolicy, RetentionPolicy};

fn grouped(policy: PriorityPolicy) -> Harness {
    let mut harness = Harness::with_stream(|_| {});
    harness
        .consumer("c", |c| {
            (c.priority_policy, c.priority_groups) = (policy, vec!["g".into()]);
            c.priority_timeout =
                if policy == PriorityPolicy::PinnedClient { 5_000_000_000 } else { 0 };
        })
        .expect("created");
    harness.engine.sink_mut().published.clear();
    harness
}

/// Who got what since the last call.
fn targets(harness: &mut Harness) -> Vec<String> {
    harness.engine.sink_mut().delivered.clear();
    std::mem::take(&mut harness.engine.sink_mut().targets)
}

/// Statuses and advisories since the last call: subject, and headers or reason.
fn told(harness: &mut Harness) -> Vec<(String, String)> {
    let published = std::mem::take(&mut harness.engine.sink_mut().published);
    published.into_iter().map(|out| (out.subject, out.headers)).collect()
}

fn pull(harness: &mut Harness, inbox: &str, more: &str) {
    let body = format!("{{\"batch\":10,\"expires\":60000000000,\"group\":\"g\"{more}}}");
    harness.pull_from(inbox, "c", &body);
}

#[test]
fn an_overflow_request_is_served_once_enough_is_pending() {
    let mut harness = grouped(PriorityPolicy::Overflow);
    pull(&mut harness, "late", r#","min_pending":3"#);
    harness.put("s.a", "1");
    harness.put("s.a", "2");
    assert_eq!(targets(&mut harness), [] as [&str; 0]);
    harness.put("s.a", "3");
    // It gets messages for as long as that many are pending.
    assert_eq!(targets(&mut harness), ["late"]);
    pull(&mut harness, "first", "");
    assert_eq!(targets(&mut harness), ["first", "first"]);
    let mut harness = grouped(PriorityPolicy::Overflow);
    pull(&mut harness, "late", r#","min_ack_pending":1"#);
    harness.put("s.a", "1");
    assert_eq!(targets(&mut harness), [] as [&str; 0]);
    pull(&mut harness, "first", "");
    assert_eq!(targets(&mut harness), ["first"]);
    harness.put("s.a", "2");
    assert_eq!(targets(&mut harness), ["late"]);
}

#[test]
fn the_smallest_number_is_served_first() {
    let mut harness = grouped(PriorityPolicy::Prioritized);
    pull(&mut harness, "five", r#","priority":5"#);
    pull(&mut harness, "one", r#","priority":1"#);
    pull(&mut harness, "uno", r#","priority":1"#);
    (0..4).for_each(|_| drop(harness.put("s.a", "x")));
    assert_eq!(targets(&mut harness), ["one", "uno", "one", "uno"]);
}

#[test]
fn one_client_is_pinned_until_it_falls_silent() {
    let mut harness = grouped(PriorityPolicy::PinnedClient);
    pull(&mut harness, "a", "");
    pull(&mut harness, "b", "");
    harness.put("s.a", "1");
    let headers = harness.engine.sink().delivered[0].headers.clone();
    let id = headers.split("Nats-Pin-Id: ").nth(1).and_then(|rest| rest.split('\r').next());
    let id = id.expect("a pin").to_owned();
    let info = harness.consumer_info("c").expect("info");
    assert_eq!(info.priority_groups[0].pinned_client_id, id);
    assert!(told(&mut harness).iter().any(|(to, _)| to.contains("CONSUMER.PINNED.S.c")));
    harness.put("s.a", "2");
    assert_eq!(targets(&mut harness), ["a", "a"]);
    harness.pull_from("x", "c", r#"{"batch":1,"group":"g","id":"other"}"#);
    assert_eq!(told(&mut harness)[0].1, "NATS/1.0 423 Nats-Pin-Id mismatch\r\n\r\n");
    // A request with the pin keeps it; without one it is lost.
    harness.pass_ms(4000);
    pull(&mut harness, "a", &format!(",\"id\":\"{id}\""));
    harness.pass_ms(4000);
    harness.tick();
    harness.put("s.a", "3");
    assert_eq!(targets(&mut harness), ["a"]);
    harness.pass_ms(6000);
    harness.tick();
    assert!(told(&mut harness).iter().any(|(to, _)| to.contains("CONSUMER.UNPINNED.S.c")));
    harness.put("s.a", "4");
    assert_eq!(targets(&mut harness), ["b"]);
    // The request with the pin of old was ended with 423.
    assert!(told(&mut harness).iter().any(|(to, h)| to == "a" && h.contains("423")));
    let unpin =
        |group: &str| Op::UnpinConsumer { id: STREAM, name: "c".into(), group: group.into() };
    assert_eq!(harness.op(unpin("other")).map_err(|e| e.err_code), Err(10160));
    assert_eq!(harness.op(unpin("g")), Ok(OpOutcome::Done));
    assert_eq!(harness.consumer_info("c").expect("info").priority_groups[0].pinned_client_id, "");
}

#[test]
fn requests_say_their_group() {
    let mut harness = grouped(PriorityPolicy::Overflow);
    let refused = |harness: &mut Harness, body: &str| {
        harness.pull_from("x", "c", body);
        told(harness).pop().map(|(_, headers)| headers).unwrap_or_default()
    };
    assert!(refused(&mut harness, r#"{"batch":1}"#).contains("Priority Group missing"));
    assert!(refused(&mut harness, r#"{"group":"h"}"#).contains("Invalid Priority Group"));
    let pinned = refused(&mut harness, r#"{"group":"g","id":"x"}"#);
    assert!(pinned.contains("Not a Pinned Client Priority consumer"), "{pinned}");
}

fn reset(harness: &mut Harness, seq: u64) -> OpResult {
    harness.op(Op::ResetConsumer { id: STREAM, name: "c".into(), seq })
}

#[test]
fn a_reset_consumer_starts_again() {
    let mut harness = Harness::with_stream(|_| {});
    (0..6).for_each(|_| drop(harness.put("s.a", "x")));
    harness.consumer("c", |_| {}).expect("created");
    let acks = harness.pull("c", 4);
    harness.ack(&acks[0], "", "");
    harness.commit();
    match reset(&mut harness, 0) {
        Ok(OpOutcome::Reset { seq, info }) => {
            assert_eq!((seq, info.num_pending, info.num_ack_pending), (2, 5, 0));
        }
        other => panic!("{other:?}"),
    }
    for how in [Reopen::Scratch, Reopen::Snapshot, Reopen::States] {
        harness.reopen(how);
        let info = harness.consumer_info("c").expect("info");
        assert_eq!((info.num_pending, info.delivered.consumer_seq), (5, 0), "{how:?}");
        assert_eq!(info.ack_floor.stream_seq, 1);
    }
    reset(&mut harness, 5).expect("forward");
    assert_eq!(harness.pull("c", 9).len(), 2);
    assert!(reset(&mut harness, 1).is_ok());
    assert_eq!(harness.pull("c", 9).len(), 6);
}

#[test]
fn a_reset_obeys_the_deliver_policy() {
    let mut harness = Harness::with_stream(|_| {});
    (0..6).for_each(|_| drop(harness.put("s.a", "x")));
    harness
        .consumer("c", |c| {
            (c.deliver_policy, c.opt_start_seq) = (DeliverPolicy::ByStartSequence, 3);
        })
        .expect("created");
    let refused = reset(&mut harness, 2).expect_err("below the start");
    assert_eq!(
        (refused.err_code, &*refused.description),
        (10204, "invalid reset: below start seq")
    );
    assert!(reset(&mut harness, 4).is_ok());
    let mut harness = Harness::with_stream(|_| {});
    harness.consumer("c", |c| c.deliver_policy = DeliverPolicy::New).expect("created");
    assert_eq!(reset(&mut harness, 9).map_err(|e| e.err_code), Err(10204));
    assert!(reset(&mut harness, 0).is_ok());
}

#[test]
fn a_reset_forward_releases_what_an_interest_stream_kept() {
    let mut harness = Harness::with_stream(|c| c.retention = RetentionPolicy::Interest);
    harness.consumer("c", |_| {}).expect("created");
    (0..4).for_each(|_| drop(harness.put("s.a", "x")));
    reset(&mut harness, 3).expect("forward");
    harness.commit();
    assert_eq!(harness.seqs(), [3, 4]);
    harness.reopen(Reopen::Scratch);
    assert_eq!(harness.seqs(), [3, 4]);
}

#[test]
fn a_request_for_a_higher_api_level_is_refused() {
    let mut harness = Harness::with_stream(|_| {});
    harness.put("s.a", "x");
    harness.consumer("c", |_| {}).expect("created");
    for level in ["99", "many"] {
        let headers = format!("NATS/1.0\r\nNats-Required-Api-Level: {level}\r\n\r\n");
        harness.pull_as("inbox", "c", &headers, "");
        let replies = std::mem::take(&mut harness.engine.sink_mut().replies);
        assert_eq!(replies[0].headers, "NATS/1.0 412 Required Api Level\r\n\r\n");
    }
}
