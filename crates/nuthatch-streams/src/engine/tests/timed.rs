//! Messages with a time to live, and delete markers (ADR-43).

use super::harness::{Harness, Reopen, STREAM};
use crate::op::Op;
use nuthatch_log::{Machine, Timestamp};
use nuthatch_protocol::js::StreamConfig;

const WAYS: [Reopen; 3] = [Reopen::Scratch, Reopen::Snapshot, Reopen::States];

fn timed(adapt: impl FnOnce(&mut StreamConfig)) -> Harness {
    Harness::with_stream(|c| {
        c.allow_msg_ttl = true;
        adapt(c);
    })
}

#[test]
fn headers_say_when_a_message_goes() {
    let mut harness = timed(|_| {});
    let refused = |harness: &mut Harness, value: &str| {
        let reply = harness.put_with("s.a", &format!("Nats-TTL: {value}"));
        assert!(reply.contains("10165"), "{value}: {reply}");
    };
    for value in ["0", "900ms", "-5", "soon", "0s", "-1s"] {
        refused(&mut harness, value);
    }
    for (seq, value) in (1..).zip(["1", "2s", "2500ms", "1m", "never", "NEVER", "00"]) {
        let reply = harness.put_with("s.a", &format!("Nats-TTL: {value}"));
        assert_eq!(reply, format!(r#"{{"stream":"S","seq":{seq}}}"#), "{value}");
    }
    harness.pass_ms(1500);
    harness.tick();
    assert_eq!(harness.seqs(), [2, 3, 4, 5, 6, 7]);
    harness.pass_ms(1000);
    assert_eq!(harness.info().state.messages, 4, "readers see it by the clock");
    for how in WAYS {
        harness.reopen(how);
        harness.tick();
        assert_eq!(harness.seqs(), [4, 5, 6, 7], "{how:?}");
    }
    harness.pass_ms(60_000);
    harness.tick();
    assert_eq!(harness.seqs(), [5, 6, 7]);
}

#[test]
fn a_message_that_never_expires_outlives_the_age_limit() {
    let mut harness = timed(|c| c.max_age = 1_000_000_000);
    harness.put_with("s.a", "Nats-TTL: never");
    harness.put("s.a", "x");
    harness.put_with("s.a", "Nats-TTL: 1h");
    harness.pass_ms(1500);
    harness.tick();
    harness.put("s.a", "x");
    assert_eq!(harness.seqs(), [1, 4]);
    for how in WAYS {
        harness.reopen(how);
        assert_eq!(harness.seqs(), [1, 4], "{how:?}");
    }
}

#[test]
fn what_expired_does_not_count_towards_limits_after_a_replay() {
    let mut harness = timed(|c| c.max_msgs = 2);
    harness.put("s.old", "x");
    harness.put_with("s.short", "Nats-TTL: 1s");
    harness.pass_ms(2000);
    // The short one goes first, so the old one stays; a replay must see it the same way.
    harness.put("s.new", "x");
    assert_eq!(harness.seqs(), [1, 3]);
    for how in WAYS {
        harness.reopen(how);
        assert_eq!(harness.seqs(), [1, 3], "{how:?}");
    }
}

fn marked(adapt: impl FnOnce(&mut StreamConfig)) -> Harness {
    timed(|c| {
        c.subject_delete_marker_ttl = 5_000_000_000;
        adapt(c);
    })
}

fn last_headers(harness: &mut Harness, subject: &str) -> String {
    let found = harness.direct(subject, "");
    found.into_iter().next().map(|out| out.headers).unwrap_or_default()
}

#[test]
fn the_last_message_of_a_subject_leaves_a_marker() {
    let mut harness = marked(|c| c.max_age = 2_000_000_000);
    harness.put("s.a", "1");
    harness.put("s.a", "2");
    harness.put("s.b", "3");
    harness.pass_ms(2500);
    harness.tick();
    harness.commit();
    assert_eq!(harness.seqs(), [4, 5], "one marker for each subject");
    let headers = last_headers(&mut harness, "s.a");
    assert!(headers.contains("Nats-Marker-Reason: MaxAge\r\nNats-TTL: 5s\r\n"), "{headers}");
    for how in WAYS {
        harness.reopen(how);
        assert_eq!(harness.seqs(), [4, 5], "{how:?}");
    }
    // A marker goes by age as well here, and leaves nothing.
    harness.pass_ms(6000);
    harness.tick();
    assert_eq!(harness.seqs(), [] as [u64; 0]);
}

#[test]
fn short_times_to_live_are_raised_to_that_of_markers() {
    let mut harness = marked(|_| {});
    harness.put_with("s.a", "Nats-TTL: 1s");
    assert!(last_headers(&mut harness, "s.a").contains("Nats-TTL: 5"));
    harness.pass_ms(2000);
    harness.tick();
    assert_eq!(harness.seqs(), [1]);
    harness.pass_ms(4000);
    harness.tick();
    harness.commit();
    assert_eq!(harness.seqs(), [2]);
    let mut harness = marked(|c| c.max_msgs_per_subject = 1);
    harness.put_with("s.a", "Nats-TTL: 1s");
    assert!(last_headers(&mut harness, "s.a").contains("Nats-TTL: 1s"));
}

#[test]
fn a_purge_marker_of_a_key_value_bucket_leaves_no_other_one() {
    let mut harness = marked(|c| c.max_msgs_per_subject = 1);
    harness.put_with("s.a", "KV-Operation: PURGE\r\nNats-Rollup: sub\r\nNats-TTL: 1s");
    for how in WAYS {
        harness.reopen(how);
    }
    harness.pass_ms(2000);
    harness.tick();
    harness.commit();
    assert_eq!(harness.seqs(), [] as [u64; 0]);
}

#[test]
fn a_batch_may_hold_times_to_live() {
    let mut harness = timed(|c| c.allow_atomic = true);
    let last = "Nats-Batch-Id: b\r\nNats-Batch-Sequence: 1\r\nNats-Batch-Commit: 1";
    harness.put_with("s.a", &format!("{last}\r\nNats-TTL: 1s"));
    harness.reopen(Reopen::Scratch);
    harness.pass_ms(2000);
    harness.tick();
    assert_eq!(harness.seqs(), [] as [u64; 0]);
}

#[test]
fn what_expired_while_there_was_no_room_does_not_come_back_with_a_longer_age() {
    let mut harness = Harness::with_stream(|c| c.max_age = 1_000_000_000);
    harness.put("s.a", "x");
    harness.put("s.a", "x");
    harness.log.is_exhausted = true;
    harness.pass_ms(1500);
    harness.tick();
    harness.commit();
    assert_eq!(harness.info().state.messages, 0);
    harness.log.is_exhausted = false;
    let mut config = (*harness.info().config).clone();
    config.max_age = 3_600_000_000_000;
    harness.op(Op::UpdateStream { id: STREAM, config: Box::new(config) }).expect("updated");
    harness.put("s.a", "x");
    assert_eq!(harness.seqs(), [3]);
    for how in WAYS {
        harness.reopen(how);
        assert_eq!(harness.seqs(), [3], "{how:?}");
    }
}

#[test]
fn what_expired_while_there_was_no_room_is_logged_before_a_limit_bites() {
    let mut harness = timed(|c| c.max_msgs = 3);
    harness.put("s.a", "x");
    harness.put_with("s.b", "Nats-TTL: 1");
    harness.put("s.c", "x");
    harness.log.is_exhausted = true;
    harness.pass_ms(1500);
    harness.tick();
    harness.log.is_exhausted = false;
    harness.put("s.d", "x");
    assert_eq!(harness.seqs(), [1, 3, 4]);
    for how in WAYS {
        harness.reopen(how);
        harness.tick();
        assert_eq!(harness.seqs(), [1, 3, 4], "{how:?}");
    }
}

/// The engine is not to be called again at once: nothing would have changed.
fn assert_rests(harness: &Harness) {
    let next = harness.engine.next_deadline().unwrap_or(Timestamp(i64::MAX));
    assert!(next.0 > harness.log.now, "it is called again without end");
}

#[test]
fn what_expires_and_can_not_be_logged_is_looked_at_again_later() {
    let mut harness = timed(|_| {});
    harness.consumer("C", |_| {}).expect("created");
    harness.put_with("s.a", "Nats-TTL: 1");
    let acks = harness.pull("C", 1);
    harness.ack(&acks[0], "+ACK", "");
    harness.log.is_exhausted = true;
    harness.pass_ms(1500);
    harness.tick();
    assert_rests(&harness);
    harness.log.is_exhausted = false;
    harness.pass_ms(300);
    harness.tick();
    assert_eq!(harness.seqs(), [] as [u64; 0]);
}

#[test]
fn what_expires_in_a_log_that_failed_is_not_looked_at_without_end() {
    let mut harness = timed(|_| {});
    harness.put_with("s.a", "Nats-TTL: 1");
    harness.engine.failed("fsync: I/O error");
    harness.pass_ms(1500);
    harness.tick();
    assert_rests(&harness);
}

#[test]
fn a_consumer_whose_end_can_not_be_logged_is_looked_at_again_later() {
    let mut harness = timed(|_| {});
    harness.consumer("C", |c| c.inactive_threshold = 1_000_000_000).expect("created");
    harness.log.is_exhausted = true;
    harness.pass_ms(3000);
    harness.tick();
    assert_rests(&harness);
    assert_eq!(harness.info().state.consumer_count, 1);
    harness.log.is_exhausted = false;
    harness.pass_ms(300);
    harness.tick();
    assert_eq!(harness.info().state.consumer_count, 0);
}
