//! Schedules (ADR-51): when they make what, how they end, and that a replay knows all of it.

use super::harness::{Harness, Msg, Reopen, STREAM};
use crate::op::{Op, Replica};
use nuthatch_log::{Machine, Seq, Timestamp};
use nuthatch_protocol::js::{RetentionPolicy, StreamConfig, Time};

const WAYS: [Reopen; 3] = [Reopen::Scratch, Reopen::Snapshot, Reopen::States];

fn scheduling(adapt: impl FnOnce(&mut StreamConfig)) -> Harness {
    Harness::with_stream(|c| {
        (c.allow_msg_schedules, c.allow_msg_ttl) = (true, true);
        adapt(c);
    })
}

fn send(harness: &mut Harness, subject: &str, headers: &str, body: &str) -> String {
    let headers = format!("NATS/1.0\r\n{headers}\r\n\r\n");
    harness.publish(&[Msg { subject, headers: &headers, body }]).remove(0)
}

fn every(harness: &mut Harness, more: &str) -> String {
    let headers = format!("Nats-Schedule: @every 10s\r\nNats-Schedule-Target: s.out{more}");
    send(harness, "s.plan", &headers, "tick")
}

/// Lets time pass and everything that is due happen.
fn pass(harness: &mut Harness, ms: i64) {
    harness.pass_ms(ms);
    harness.tick();
    harness.commit();
    harness.tick();
    harness.commit();
}

fn last(harness: &mut Harness, subject: &str) -> (String, String) {
    let found = harness.direct(subject, "").remove(0);
    (found.headers, found.body)
}

fn in_s(harness: &Harness, seconds: i64) -> String {
    Time(harness.log.now + seconds * 1_000_000_000).to_string()
}

#[test]
fn a_delayed_message_is_made_once_and_takes_its_schedule_with_it() {
    let mut harness = scheduling(|_| {});
    let at = in_s(&harness, 5);
    let headers = format!(
        "My-Header: 1\r\nNats-Schedule: @at {at}\r\nNats-Schedule-Target: s.out\r\n\
         Nats-Schedule-TTL: 60s\r\nNats-Msg-Id: once"
    );
    let ack = send(&mut harness, "s.plan", &headers, "later");
    assert_eq!(ack, r#"{"stream":"S","seq":1}"#);
    assert!(last(&mut harness, "s.plan").0.contains("Nats-Rollup: sub\r\n"), "it replaces others");
    pass(&mut harness, 4900);
    assert_eq!(harness.seqs(), [1]);
    for how in WAYS {
        harness.reopen(how);
        pass(&mut harness, 10);
        assert_eq!(harness.seqs(), [1], "{how:?}");
    }
    pass(&mut harness, 70);
    let (headers, body) = last(&mut harness, "s.out");
    let expected = "NATS/1.0\r\nMy-Header: 1\r\nNats-Scheduler: s.plan\r\n\
                    Nats-Schedule-Next: purge\r\nNats-TTL: 60s\r\nNats-Stream: S\r\n";
    assert!(headers.starts_with(expected), "{headers}");
    assert_eq!(body, "later");
    for how in WAYS {
        harness.reopen(how);
        pass(&mut harness, 1000);
        assert_eq!(harness.seqs(), [2], "{how:?}: not a second time");
    }
    pass(&mut harness, 60_000);
    assert_eq!(harness.seqs(), [] as [u64; 0], "it had a time to live");
}

#[test]
fn intervals_go_on_where_they_were_after_a_restart_and_catch_up_once() {
    let mut harness = scheduling(|_| {});
    every(&mut harness, "\r\nNats-Schedule-Rollup: sub");
    pass(&mut harness, 10_000);
    let next = in_s(&harness, 10);
    let (headers, body) = last(&mut harness, "s.out");
    assert!(
        headers.contains(&format!("Nats-Schedule-Next: {next}\r\nNats-Rollup: sub")),
        "{headers}"
    );
    assert_eq!((body.as_str(), harness.seqs()), ("tick", vec![1, 2]));
    for (made, how) in (3..).zip(WAYS) {
        harness.reopen(how);
        pass(&mut harness, 9_900);
        assert_eq!(harness.seqs(), [1, made - 1], "{how:?}");
        pass(&mut harness, 100);
        assert_eq!(harness.seqs(), [1, made], "{how:?}");
    }
    pass(&mut harness, 95_000);
    assert_eq!(harness.seqs(), [1, 6], "nine were missed, one is made");
    pass(&mut harness, 9_000);
    assert_eq!(harness.seqs(), [1, 6]);
    pass(&mut harness, 1_000);
    assert_eq!(harness.seqs(), [1, 7]);
}

#[test]
fn cron_patterns_are_in_their_zone() {
    let mut harness = scheduling(|_| {});
    let headers = "Nats-Schedule: 0 0 9 * * *\r\nNats-Schedule-Time-Zone: Europe/Berlin\r\n\
                   Nats-Schedule-Target: s.out";
    send(&mut harness, "s.plan", headers, "good morning");
    let eight = Time::parse("2023-11-15T08:00:00Z").expect("a time").0;
    harness.log.now = eight - 1;
    pass(&mut harness, 0);
    assert_eq!(harness.seqs(), [1]);
    harness.log.now = eight;
    pass(&mut harness, 0);
    assert_eq!(harness.seqs(), [1, 2]);
    let headers = last(&mut harness, "s.out").0;
    assert!(headers.contains("Nats-Schedule-Next: 2023-11-16T09:00:00+01:00\r\n"), "{headers}");
    for how in WAYS {
        harness.reopen(how);
    }
    harness.log.now = eight + 24 * 3_600_000_000_000;
    pass(&mut harness, 0);
    assert_eq!(harness.seqs(), [1, 2, 3]);
}

#[test]
fn a_schedule_takes_the_last_message_of_its_source() {
    let mut harness = scheduling(|_| {});
    every(&mut harness, "\r\nNats-Schedule-Source: s.in");
    pass(&mut harness, 10_000);
    assert_eq!(last(&mut harness, "s.out").1, "tick", "its own payload as long as there is none");
    send(&mut harness, "s.in", "Sensor: 7\r\nNats-Msg-Id: m\r\nNats-TTL: never", "21.5");
    pass(&mut harness, 10_000);
    let (headers, body) = last(&mut harness, "s.out");
    assert!(
        headers.starts_with("NATS/1.0\r\nSensor: 7\r\nNats-Scheduler: s.plan\r\n"),
        "{headers}"
    );
    assert_eq!(body, "21.5");
    assert!(!headers.contains("Msg-Id") && !headers.contains("TTL"), "{headers}");
    // The newest is not durable yet: the one before it counts.
    harness.send(&[Msg { subject: "s.in", headers: "", body: "22.0" }]);
    harness.pass_ms(10_000);
    harness.tick();
    harness.commit();
    harness.take_replies();
    assert_eq!(last(&mut harness, "s.out").1, "21.5");
}

#[test]
fn schedules_end_in_many_ways() {
    let alive = |harness: &mut Harness| {
        let before = harness.info().state.last_seq;
        pass(harness, 10_500);
        harness.info().state.last_seq > before
    };
    for how in WAYS {
        let mut harness = scheduling(|_| {});
        every(&mut harness, "");
        assert!(alive(&mut harness));
        harness.op(Op::DeleteMessage { id: STREAM, seq: 1 }).expect("deleted");
        harness.reopen(how);
        assert!(!alive(&mut harness), "{how:?}: its message was deleted");
        every(&mut harness, "");
        harness.reopen(how);
        assert!(alive(&mut harness));
        harness.put("s.plan", "plain");
        harness.reopen(how);
        assert!(!alive(&mut harness), "{how:?}: a message took its place");
        every(&mut harness, "\r\nNats-TTL: 15s");
        harness.reopen(how);
        assert!(alive(&mut harness));
        assert!(!alive(&mut harness), "{how:?}: it expired");
        every(&mut harness, "");
        let end = "Nats-Schedule-Next: purge\r\nNats-Scheduler: s.plan";
        assert!(!send(&mut harness, "s.done", end, "").contains("error"));
        harness.reopen(how);
        assert!(!alive(&mut harness), "{how:?}: a client ended it");
        assert!(harness.direct("s.plan", "")[0].headers.contains("404"));
    }
}

#[test]
fn a_replaced_schedule_is_due_at_its_new_time_only() {
    let mut harness = scheduling(|_| {});
    every(&mut harness, "");
    let later = in_s(&harness, 30);
    let headers = format!("Nats-Schedule: @at {later}\r\nNats-Schedule-Target: s.out");
    send(&mut harness, "s.plan", &headers, "instead");
    assert_eq!(harness.seqs(), [2]);
    pass(&mut harness, 29_000);
    assert_eq!(harness.seqs(), [2]);
    pass(&mut harness, 1_000);
    assert_eq!(last(&mut harness, "s.out").1, "instead");
}

#[test]
fn what_is_due_is_not_made_before_it_is_durable_and_read() {
    let mut harness = scheduling(|_| {});
    let past = in_s(&harness, -100);
    let headers =
        format!("NATS/1.0\r\nNats-Schedule: @at {past}\r\nNats-Schedule-Target: s.out\r\n\r\n");
    harness.send(&[Msg { subject: "s.plan", headers: &headers, body: "late" }]);
    harness.tick();
    assert_eq!(harness.seqs(), [1], "its schedule has not committed");
    assert!(harness.engine.next_deadline().is_none_or(|at| at > Timestamp(harness.log.now)));
    harness.log.cold.insert((STREAM, Seq(1)));
    harness.commit();
    harness.tick();
    harness.commit();
    assert_eq!(harness.seqs(), [1], "it is being read");
    assert!(harness.engine.next_deadline().is_none_or(|at| at > Timestamp(harness.log.now)));
    harness.log.cold.clear();
    harness.engine.loaded(STREAM, &mut harness.log);
    harness.tick();
    harness.commit();
    assert_eq!(harness.seqs(), [2]);
}

#[test]
fn where_nobody_is_interested_the_schedule_goes_on() {
    let mut harness = scheduling(|c| c.retention = RetentionPolicy::Interest);
    harness.consumer("plans", |c| c.filter_subject = "s.plan".into()).expect("created");
    every(&mut harness, "");
    pass(&mut harness, 10_000);
    assert_eq!((harness.seqs(), harness.info().state.last_seq), (vec![1], 2), "used up");
    for how in WAYS {
        harness.reopen(how);
        let before = harness.info().state.last_seq;
        pass(&mut harness, 5_000);
        assert_eq!(harness.info().state.last_seq, before, "{how:?}");
        pass(&mut harness, 5_000);
        assert_eq!(harness.info().state.last_seq, before + 1, "{how:?}");
    }
    harness.consumer("out", |c| c.filter_subject = "s.out".into()).expect("created");
    pass(&mut harness, 10_000);
    assert_eq!(last(&mut harness, "s.out").1, "tick");
}

#[test]
fn faults_have_the_incumbents_codes() {
    let mut harness = scheduling(|c| c.subjects.push("t".into()));
    harness.put("s.plain", "x");
    let mut refused = |headers: &str, code: &str| {
        let reply = send(&mut harness, "s.plan", headers, "x");
        assert!(reply.contains(&format!("\"err_code\":{code},")), "{headers}: {reply}");
    };
    let daily = |more: &str| format!("Nats-Schedule: @daily\r\n{more}");
    refused(&daily(""), "10190");
    refused("Nats-Schedule: daily\r\nNats-Schedule-Target: s.out", "10189");
    refused("Nats-Schedule: 0 0 0 30 2 *\r\nNats-Schedule-Target: s.out", "10189");
    for target in ["s.plan", "s.*", "elsewhere", "s..x"] {
        refused(&daily(&format!("Nats-Schedule-Target: {target}")), "10190");
    }
    let target = "Nats-Schedule-Target: s.out\r\n";
    for source in ["s.plan", "s.out", "s.>", "elsewhere"] {
        refused(&daily(&format!("{target}Nats-Schedule-Source: {source}")), "10203");
    }
    refused(&daily(&format!("{target}Nats-Schedule-TTL: soon")), "10191");
    refused(&daily(&format!("{target}Nats-Schedule-Rollup: all")), "10192");
    refused(&daily(&format!("{target}Nats-Rollup: all")), "10192");
    refused(&daily(&format!("{target}Nats-Schedule-Time-Zone: Moon")), "10223");
    refused(&daily(&format!("{target}Nats-Schedule-Time-Zone: ")), "10223");
    refused("Nats-Schedule-Time-Zone: Moon", "10223");
    let zone = "Nats-Schedule: @every 1m\r\nNats-Schedule-Time-Zone: UTC\r\n";
    refused(&format!("{zone}{target}"), "10189");
    refused("Nats-Scheduler: s.x", "10212");
    refused("Nats-Schedule-Next: 2030-01-01T00:00:00Z\r\nNats-Scheduler: s.x", "10212");
    for scheduler in ["s.plan", "s.*", "s.plain"] {
        refused(&format!("Nats-Schedule-Next: purge\r\nNats-Scheduler: {scheduler}"), "10212");
    }
    assert_eq!(harness.seqs(), [1]);
    let mut plain = Harness::with_stream(|c| c.allow_msg_schedules = true);
    let reply = send(&mut plain, "s.plan", &daily(&format!("{target}Nats-Schedule-TTL: 5s")), "");
    assert!(reply.contains("10166"), "{reply}");
}

#[test]
fn a_mirror_lets_a_schedule_go_that_is_over() {
    let mut harness = Harness::with_stream(|c| {
        super::replication::mirrors(c);
        c.allow_rollup_hdrs = true;
    });
    let copy = |seq: u64, subject: &str, headers: &str| Replica {
        seq,
        time: Time(seq.cast_signed()),
        subject: subject.into(),
        headers: format!("NATS/1.0\r\n{headers}\r\n\r\n").into_bytes(),
        body: b"x".to_vec(),
    };
    let plan = "Nats-Schedule: @at 2023-01-01T00:00:00Z\r\nNats-Schedule-Target: s.out";
    let over = "Nats-Scheduler: s.plan\r\nNats-Schedule-Next: purge";
    let copies = vec![copy(1, "s.plan", plan), copy(2, "s.other", "A: 1"), copy(3, "s.out", over)];
    harness.op(Op::Mirror { id: STREAM, copies, gap_to: 3 }).expect("stored");
    for how in WAYS {
        pass(&mut harness, 1000);
        assert_eq!(harness.seqs(), [2, 3], "{how:?}: it makes nothing of its own");
        harness.reopen(how);
    }
}

#[test]
fn a_batch_may_hold_schedules() {
    let mut harness = scheduling(|c| c.allow_atomic = true);
    let member =
        |seq: u32, more: &str| format!("Nats-Batch-Id: b\r\nNats-Batch-Sequence: {seq}\r\n{more}");
    let plan = "Nats-Schedule: @every 10s\r\nNats-Schedule-Target: s.out";
    send(&mut harness, "s.plan", &member(1, plan), "tick");
    let commit = "Nats-Batch-Commit: 1\r\nNats-Schedule-Next: purge\r\nNats-Scheduler: s.other";
    let reply = send(&mut harness, "s.b", &member(2, commit), "");
    assert_eq!(reply, r#"{"stream":"S","seq":2,"batch":"b","count":2}"#);
    for (made, how) in (3..).zip(WAYS) {
        harness.reopen(how);
        pass(&mut harness, 10_000);
        assert_eq!(harness.info().state.last_seq, made, "{how:?}");
    }
    send(&mut harness, "s.plan", &member(1, plan), "tick");
    let end = "Nats-Batch-Commit: 1\r\nNats-Schedule-Next: purge\r\nNats-Scheduler: s.plan";
    let reply = send(&mut harness, "s.b", &member(2, end), "");
    assert!(!reply.contains("error"), "the batch's own schedule may be ended: {reply}");
    send(&mut harness, "s.c", &member(1, ""), "plain");
    let end = "Nats-Batch-Commit: 1\r\nNats-Schedule-Next: purge\r\nNats-Scheduler: s.c";
    let reply = send(&mut harness, "s.b", &member(2, end), "");
    assert!(reply.contains("10212"), "{reply}");
}
