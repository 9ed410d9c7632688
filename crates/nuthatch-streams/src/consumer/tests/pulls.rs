//! Pull requests: batches, limits, waiting, statuses.

use super::fakes::{Rig, SECOND};
use crate::consumer::TickOutcome;

fn ten() -> Rig {
    let mut rig = Rig::with(&["a"; 10]);
    rig.create(|_| {});
    rig
}

fn status(rig: &mut Rig) -> Vec<String> {
    rig.statuses().into_iter().map(|(_, line)| line).collect()
}

#[test]
fn bodies_decide_how_many() {
    let cases: [(&str, usize); 4] = [("", 1), ("3", 3), ("{\"batch\":4}", 4), ("100", 10)];
    for (body, count) in cases {
        let mut rig = ten();
        assert_eq!(rig.pull_seqs(body), (1..=count as u64).collect::<Vec<_>>(), "{body}");
        assert!(status(&mut rig).is_empty());
    }
}

#[test]
fn the_ack_subject_tells_everything() {
    let mut rig = ten();
    let delivered = rig.pull("in", "2");
    let last = delivered[1].clone();
    assert_eq!((last.delivered, last.stream_seq, last.consumer_seq, last.pending), (1, 2, 2, 8));
    assert_eq!(last.at, rig.stream.messages[&2].at);
    assert_eq!((last.subject.as_str(), last.body.as_slice()), ("a", &b"m2"[..]));
}

#[test]
fn waiting_requests_are_served_in_turn() {
    let mut rig = Rig::new();
    rig.create(|_| {});
    rig.pull("one", "2");
    rig.pull("two", "2");
    assert!(rig.consumer().has_caught_up());
    for _ in 0..4 {
        rig.publish("a");
    }
    rig.pump();
    let to: Vec<String> = rig.take().into_iter().map(|delivered| delivered.to).collect();
    assert_eq!(to, ["one", "two", "one", "two"]);
    assert!(!rig.consumer().has_caught_up());
}

#[test]
fn no_wait_ends_with_404() {
    let mut rig = ten();
    assert_eq!(rig.pull_seqs("{\"batch\":20,\"no_wait\":true}").len(), 10);
    assert_eq!(status(&mut rig), ["NATS/1.0 404 No Messages"]);
    assert!(rig.pull_seqs("{\"batch\":1,\"no_wait\":true}").is_empty());
    assert_eq!(status(&mut rig), ["NATS/1.0 404 No Messages"]);
    assert_eq!(rig.info().num_waiting, 0);
}

#[test]
fn no_wait_with_expires_waits_once() {
    let mut rig = Rig::new();
    rig.create(|_| {});
    rig.pull("in", "{\"batch\":5,\"no_wait\":true,\"expires\":5000000000}");
    assert!(status(&mut rig).is_empty());
    rig.publish("a");
    rig.pump();
    assert_eq!(rig.take().len(), 1);
    assert_eq!(status(&mut rig), ["NATS/1.0 404 No Messages"]);
    rig.pull("in", "{\"batch\":5,\"no_wait\":true,\"expires\":5000000000}");
    rig.pass(6 * SECOND);
    assert_eq!(status(&mut rig), ["NATS/1.0 408 Request Timeout"]);
}

#[test]
fn expiry_tells_what_is_left() {
    let mut rig = ten();
    rig.pull("in", "{\"batch\":12,\"expires\":1000000000}");
    rig.pass(2 * SECOND);
    assert_eq!(rig.take().len(), 0);
    let block = rig.outbox.messages[0].2.clone();
    assert_eq!(
        block,
        "NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 2\r\nNats-Pending-Bytes: 0\r\n\r\n"
    );
}

#[test]
fn max_bytes_ends_a_request() {
    let mut rig = ten();
    // One message: subject 1, ack reply `$JS.ACK.S.C.1.1.1.<19 digits>.9` 39, payload 2.
    let one = 42;
    let got = rig.pull("in", &format!("{{\"batch\":5,\"max_bytes\":{}}}", 2 * one + 1));
    assert_eq!(got.len(), 2);
    assert_eq!(
        rig.outbox.messages[0].2,
        "NATS/1.0 409 Message Size Exceeds MaxBytes\r\nNats-Pending-Messages: 3\r\nNats-Pending-Bytes: 1\r\n\r\n"
    );
    rig.statuses();
    assert_eq!(rig.pull("in", &format!("{{\"batch\":1,\"max_bytes\":{}}}", one + 7)).len(), 1);
    assert_eq!(status(&mut rig), ["NATS/1.0 409 Batch Completed"]);
    // Exactly used up: over without a status.
    assert_eq!(rig.pull("in", &format!("{{\"batch\":3,\"max_bytes\":{one}}}")).len(), 1);
    assert!(status(&mut rig).is_empty());
    assert_eq!(rig.info().num_waiting, 0);
}

#[test]
fn limits_of_the_consumer_are_kept() {
    let cases = [
        ("5", "NATS/1.0 409 Exceeded MaxRequestBatch of 4"),
        (
            "{\"batch\":1,\"expires\":90000000001}",
            "NATS/1.0 409 Exceeded MaxRequestExpires of 1m30s",
        ),
        ("{\"batch\":1,\"max_bytes\":101}", "NATS/1.0 409 Exceeded MaxRequestMaxBytes of 100"),
        (
            "{\"batch\":1,\"expires\":10,\"idle_heartbeat\":6}",
            "NATS/1.0 400 Bad Request - heartbeat value too large",
        ),
        (
            "{\"batch\":1,\"min_pending\":6}",
            "NATS/1.0 400 Bad Request - Not a Overflow Priority consumer",
        ),
        (
            "{\"batch\":1,\"id\":\"x\"}",
            "NATS/1.0 400 Bad Request - Not a Pinned Client Priority consumer",
        ),
        (
            "{\"batch\":1,\"priority\":10}",
            "NATS/1.0 400 Bad Request - Priority must be between 0 and 9",
        ),
    ];
    for (body, expected) in cases {
        let mut rig = Rig::with(&["a"; 10]);
        rig.create(|config| {
            config.max_batch = 4;
            config.max_expires = 90 * SECOND;
            config.max_bytes = 100;
        });
        assert!(rig.pull("in", body).is_empty(), "{body}");
        assert_eq!(status(&mut rig), [expected]);
    }
}

#[test]
fn the_queue_is_bounded() {
    let mut rig = Rig::new();
    rig.create(|config| config.max_waiting = 2);
    rig.pull("a", "1");
    rig.pull("b", "1");
    rig.pull("c", "1");
    assert_eq!(rig.statuses(), [("c".into(), "NATS/1.0 409 Exceeded MaxWaiting".into())]);
    // With a heartbeat the client notices by itself.
    rig.pull("d", "{\"batch\":1,\"expires\":9000000000,\"idle_heartbeat\":1000000000}");
    assert!(rig.statuses().is_empty());
    // Inboxes that nobody listens to any more make room.
    rig.outbox.listening.remove("a");
    rig.pull("e", "1");
    assert!(rig.statuses().is_empty());
    let info = rig.info();
    assert_eq!((info.num_waiting, info.waiting_inboxes), (2, vec!["b".to_owned(), "e".to_owned()]));
}

#[test]
fn requests_pending_when_others_want_it_all() {
    let mut rig = ten();
    rig.create(|config| config.max_ack_pending = 2);
    assert_eq!(rig.pull("in", "20").len(), 2);
    rig.pull("other", "{\"batch\":1,\"no_wait\":true}");
    assert_eq!(rig.statuses(), [("other".into(), "NATS/1.0 408 Requests Pending".into())]);
}

#[test]
fn heartbeats_while_waiting() {
    let mut rig = ten();
    rig.pull("in", "{\"batch\":12,\"expires\":5000000000,\"idle_heartbeat\":2000000000}");
    rig.pass(3 * SECOND);
    assert_eq!(
        rig.outbox.messages[0].2,
        "NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 10\r\nNats-Last-Stream: 10\r\n\r\n"
    );
    rig.pass(3 * SECOND);
    let lines = status(&mut rig);
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[2], "NATS/1.0 408 Request Timeout");
}

#[test]
fn slow_receivers_wait_and_others_go_on() {
    let mut rig = ten();
    rig.outbox.slow.insert("slow".into());
    assert!(rig.pull("slow", "5").is_empty());
    assert!(rig.consumer().waits_for_receiver());
    let to = rig.pull("quick", "3");
    assert_eq!(to.iter().filter(|delivered| delivered.to == "quick").count(), 3);
    assert!(rig.consumer().waits_for_receiver());
    rig.outbox.slow.clear();
    rig.pump();
    assert_eq!(rig.take().len(), 5);
}

#[test]
fn an_inbox_without_listeners_gets_nothing() {
    let mut rig = ten();
    rig.pull_quietly("gone", "5");
    rig.outbox.listening.clear();
    rig.pump();
    assert!(rig.take().is_empty() && rig.statuses().is_empty());
    assert_eq!(rig.pull_seqs("1"), [1]);
}

#[test]
fn a_request_waits_for_an_inbox_that_comes_back() {
    let mut rig = Rig::new();
    rig.create(|_| {});
    rig.pull_quietly("in", "2");
    rig.outbox.listening.clear();
    rig.listen("another");
    rig.listen("in");
    rig.publish("s.a");
    rig.pump();
    assert_eq!(rig.take().len(), 1, "nobody has looked meanwhile");
    rig.outbox.listening.clear();
    rig.publish("s.a");
    rig.pump();
    rig.listen("in");
    rig.pump();
    assert!(rig.take().is_empty(), "it was over when there was something for it");
    assert_eq!(rig.pull_seqs("1"), [2]);
}

#[test]
fn deletion_is_told_to_those_who_wait() {
    let mut rig = Rig::new();
    rig.create(|_| {});
    rig.pull("in", "5");
    let mut env = env!(rig);
    rig.consumer.as_mut().expect("created").on_delete(&mut env);
    assert_eq!(rig.statuses(), [("in".into(), "NATS/1.0 409 Consumer Deleted".into())]);
}

#[test]
fn ephemerals_go_when_nobody_asks() {
    let mut rig = ten();
    rig.create(|config| {
        config.durable_name.clear();
        config.name = "E".into();
        config.ack_policy = nuthatch_protocol::js::AckPolicy::None;
    });
    assert_eq!(rig.pass(5 * SECOND), TickOutcome::Keep);
    rig.pull("in", "{\"batch\":100,\"expires\":20000000000}");
    assert_eq!(rig.pass(24 * SECOND), TickOutcome::Keep);
    assert_eq!(rig.pass(3 * SECOND), TickOutcome::Expired);
}

#[test]
fn loads_and_damage() {
    let mut rig = ten();
    rig.log.loading.insert(2);
    rig.log.damaged.insert(3);
    assert_eq!(rig.pull_seqs("4"), [1]);
    assert!(rig.consumer().waits_for_load());
    rig.log.loading.clear();
    rig.pump();
    let got: Vec<u64> = rig.take().iter().map(|delivered| delivered.stream_seq).collect();
    assert_eq!(got, [2], "a message that cannot be read is not passed over");
    rig.pass(2 * SECOND);
    assert_eq!((rig.take().len(), rig.outbox.messages.len()), (0, 1), "told of once");
    let advisory = &rig.outbox.messages[0];
    assert!(advisory.0.ends_with("MSG_UNREADABLE.S.C") && advisory.3.contains("can not be read"));
    rig.log.damaged.clear();
    rig.pass(2 * SECOND);
    let got: Vec<u64> = rig.take().iter().map(|delivered| delivered.stream_seq).collect();
    assert_eq!(got, [3, 4]);
}
