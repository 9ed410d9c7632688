//! Push delivery: interest, heartbeats, flow control, rates, replay, pauses.

use super::fakes::{Rig, SECOND};
use nuthatch_protocol::js::{AckPolicy, ConsumerConfig, ReplayPolicy, Time};

fn push(config: &mut ConsumerConfig) {
    config.deliver_subject = "out".into();
    config.ack_policy = AckPolicy::None;
}

#[test]
fn delivers_only_while_somebody_listens() {
    let mut rig = Rig::with(&["a"; 3]);
    rig.create(push);
    rig.pump();
    assert!(rig.take().is_empty() && !rig.info().push_bound);
    rig.listen("out");
    rig.pump();
    assert_eq!(rig.take().len(), 3);
    assert!(rig.info().push_bound && rig.consumer().has_caught_up());
    rig.outbox.listening.clear();
    rig.publish("a");
    rig.pump();
    assert!(rig.take().is_empty() && !rig.consumer().has_caught_up());
    rig.listen("out");
    rig.pump();
    assert_eq!(rig.take().iter().map(|d| d.consumer_seq).collect::<Vec<_>>(), [4]);
}

#[test]
fn pull_requests_are_refused() {
    let mut rig = Rig::new();
    rig.create(push);
    rig.pull("in", "1");
    assert_eq!(rig.statuses(), [("in".into(), "NATS/1.0 409 Consumer is push based".into())]);
}

#[test]
fn heartbeats_only_when_idle_and_bound() {
    let mut rig = Rig::new();
    rig.create(|config| {
        push(config);
        config.idle_heartbeat = SECOND;
    });
    rig.pass(5 * SECOND);
    assert!(rig.statuses().is_empty());
    rig.listen("out");
    rig.pass(SECOND / 2);
    rig.publish("a");
    rig.pump();
    rig.pass(SECOND * 9 / 10);
    assert!(rig.statuses().is_empty());
    rig.pass(SECOND / 5);
    assert_eq!(
        rig.outbox.messages[0].2,
        "NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 1\r\nNats-Last-Stream: 1\r\n\r\n"
    );
}

#[test]
fn flow_control_stalls_and_resumes() {
    let mut rig = Rig::new();
    for _ in 0..60 {
        rig.publish_with("a", b"", &[0; 100_000]);
    }
    rig.listen("out");
    rig.create(|config| {
        push(config);
        config.flow_control = true;
        config.idle_heartbeat = SECOND;
    });
    rig.pump();
    let first = rig.take().len();
    assert_eq!(first, 21, "2 MiB and the message that passes it");
    let (to, reply, headers, _) = rig.outbox.messages.remove(0);
    assert_eq!(
        (to.as_str(), headers.as_str()),
        ("out", "NATS/1.0 100 FlowControl Request\r\n\r\n")
    );
    assert!(reply.starts_with("$JS.FC.S.C.") && reply.len() == "$JS.FC.S.C.".len() + 4);
    rig.pass(SECOND * 3 / 2);
    assert!(rig.take().is_empty());
    let heartbeat = rig.outbox.messages.remove(0).2;
    assert!(heartbeat.contains(&format!("Nats-Consumer-Stalled: {reply}\r\n")), "{heartbeat}");
    assert!(rig.answer_flow("$JS.FC.S.C.nope", "").is_empty());
    assert!(rig.answer_flow(&reply, "").len() > first);
}

/// A consumer whose flow control replies acknowledge, with three messages out of the five there are.
fn acked_by_flow() -> (Rig, String) {
    let mut rig = Rig::new();
    for _ in 0..5 {
        rig.publish("a");
    }
    rig.listen("out");
    rig.create(|config| {
        push(config);
        config.ack_policy = AckPolicy::FlowControl;
        config.max_ack_pending = 3;
    });
    rig.pump();
    assert_eq!(rig.take().len(), 3);
    let (_, request, headers, _) = rig.outbox.messages.remove(0);
    assert_eq!(headers, "NATS/1.0 100 FlowControl Request\r\n\r\n", "it is full");
    (rig, request)
}

#[test]
fn flow_control_acknowledges_what_its_answer_names() {
    let (mut rig, request) = acked_by_flow();
    let config = rig.consumer().config().clone();
    assert!(config.flow_control && config.idle_heartbeat == SECOND && config.ack_wait == 0);
    let last = |consumer: u64, stream: u64| {
        format!("NATS/1.0\r\nNats-Last-Consumer: {consumer}\r\nNats-Last-Stream: {stream}\r\n\r\n")
    };
    let more = rig.answer_flow(&request, &last(2, 2));
    assert_eq!(more.iter().map(|sent| sent.stream_seq).collect::<Vec<_>>(), [4, 5]);
    assert_eq!((rig.info().ack_floor.stream_seq, rig.info().num_ack_pending), (2, 3));
    // An answer to what is outstanding no more says nothing.
    rig.answer_flow(&request, &last(5, 5));
    assert_eq!(rig.info().ack_floor.stream_seq, 2);
    // Nobody listens to other acknowledgements, and nothing is delivered again by itself.
    rig.outbox.messages.clear();
    rig.ack_with(&more[0].clone(), "+ACK", "inbox");
    assert_eq!(rig.statuses(), [("inbox".to_owned(), "NATS/1.0 503".to_owned())]);
    rig.pass(100 * SECOND);
    assert!(rig.take().is_empty());
    assert_eq!(rig.info().ack_floor.stream_seq, 2);
}

#[test]
fn flow_control_that_acknowledges_is_asked_for_at_the_end_and_after_a_restart() {
    let (mut rig, request) = acked_by_flow();
    rig.commit();
    let created = rig.encoded();
    rig.answer_flow(&request, "");
    // What was out stays out; a heartbeat brings the next request.
    rig.restart(&created);
    rig.listen("out");
    rig.outbox.messages.clear();
    rig.pass(SECOND * 3 / 2);
    let asked: Vec<_> = rig.statuses().into_iter().map(|(_, line)| line).collect();
    assert_eq!(asked, ["NATS/1.0 100 Idle Heartbeat", "NATS/1.0 100 FlowControl Request"]);
    assert_eq!((rig.take().len(), rig.info().num_ack_pending), (0, 3));
}

#[test]
fn rate_limits_spread_deliveries() {
    let mut rig = Rig::new();
    rig.config.max_msg_size = 1_000;
    for _ in 0..5 {
        rig.publish_with("a", b"", &[0; 900]);
    }
    rig.listen("out");
    rig.create(|config| {
        push(config);
        config.rate_limit_bps = 8_000;
    });
    rig.pump();
    assert_eq!(rig.take().len(), 1);
    rig.pass(SECOND / 2);
    assert_eq!(rig.take().len(), 0);
    rig.pass(10 * SECOND);
    assert_eq!(rig.take().len(), 4);
}

#[test]
fn replay_keeps_the_original_pace() {
    let mut rig = Rig::new();
    for _ in 0..4 {
        rig.publish("a");
        rig.log.now += SECOND;
    }
    rig.listen("out");
    rig.create(|config| {
        push(config);
        config.replay_policy = ReplayPolicy::Original;
    });
    rig.pump();
    assert_eq!(rig.take().len(), 1);
    rig.pass(SECOND * 3 / 2);
    assert_eq!(rig.take().len(), 1);
    rig.pass(4 * SECOND);
    assert_eq!(rig.take().len(), 2);
    for _ in 0..3 {
        rig.publish("a");
        rig.log.now += SECOND;
    }
    rig.pump();
    assert_eq!(rig.take().len(), 3, "what came later is not replayed");
}

#[test]
fn headers_only_tells_the_size() {
    let mut rig = Rig::new();
    rig.publish_with("a", b"", b"12345");
    rig.publish_with("a", b"NATS/1.0\r\nX: y\r\n\r\n", b"");
    rig.listen("out");
    rig.create(|config| {
        push(config);
        config.headers_only = true;
    });
    rig.pump();
    let got = rig.take();
    assert_eq!(got[0].headers, b"NATS/1.0\r\nNats-Msg-Size: 5\r\n\r\n");
    assert_eq!(got[1].headers, b"NATS/1.0\r\nX: y\r\nNats-Msg-Size: 0\r\n\r\n");
    assert!(got.iter().all(|delivered| delivered.body.is_empty()));
}

#[test]
fn a_pause_ends_by_itself() {
    let mut rig = Rig::with(&["a"; 2]);
    rig.listen("out");
    let until = rig.log.now + 3 * SECOND;
    rig.create(|config| {
        push(config);
        config.pause_until = Some(Time(until));
    });
    rig.pump();
    let info = rig.info();
    assert!(rig.take().is_empty() && info.paused && info.pause_remaining == 3 * SECOND);
    rig.pass(4 * SECOND);
    assert_eq!(rig.take().len(), 2);
    assert!(!rig.info().paused);
    assert_eq!(rig.statuses()[0].0, "$JS.EVENT.ADVISORY.CONSUMER.PAUSE.S.C");
}

#[test]
fn slow_listeners_hold_it_back() {
    let mut rig = Rig::with(&["a"; 2]);
    rig.listen("out");
    rig.create(push);
    rig.outbox.slow.insert("out".into());
    rig.pump();
    assert!(rig.take().is_empty() && rig.consumer().waits_for_receiver());
    rig.outbox.slow.clear();
    rig.pump();
    assert_eq!(rig.take().len(), 2);
}
