//! Acknowledgements, redelivery, limits on both.

use super::fakes::{Rig, SECOND};
use crate::consumer::{ACK_PENDING_MAX, Consumer};
use nuthatch_log::{Seq, Urgency};
use nuthatch_protocol::js::{AckPolicy, RetentionPolicy, Time};

fn ten(change: impl FnOnce(&mut nuthatch_protocol::js::ConsumerConfig)) -> Rig {
    let mut rig = Rig::with(&["a"; 10]);
    rig.create(change);
    rig
}

#[test]
fn the_floor_follows_acks() {
    let mut rig = ten(|_| {});
    let got = rig.pull("in", "5");
    let floor = |rig: &mut Rig| {
        let info = rig.info();
        (info.ack_floor.consumer_seq, info.ack_floor.stream_seq, info.num_ack_pending)
    };
    assert_eq!(floor(&mut rig), (0, 0, 5));
    rig.ack(&got[1]);
    assert_eq!(floor(&mut rig), (0, 0, 4));
    rig.ack(&got[0]);
    assert_eq!(floor(&mut rig), (2, 2, 3));
    rig.ack_with(&got[2], "+ACK", "");
    rig.ack_with(&got[3], "+OK", "");
    rig.ack(&got[4]);
    assert_eq!(floor(&mut rig), (5, 5, 0));
    assert_eq!(rig.consumer().ack_floor(), Seq(5));
    assert_eq!(rig.released, [2, 1, 3, 4, 5].map(Seq));
}

#[test]
fn max_ack_pending_stops_and_acks_resume() {
    let mut rig = ten(|config| config.max_ack_pending = 3);
    let got = rig.pull("in", "10");
    assert_eq!(got.len(), 3);
    rig.ack(&got[1]);
    rig.pump();
    assert_eq!(rig.take().len(), 1);
}

#[test]
fn the_oldest_message_that_waits_is_told() {
    let mut rig = ten(|_| {});
    assert_eq!(rig.info().oldest_ack_pending, None);
    let got = rig.pull("in", "3");
    let stored = |rig: &Rig, seq: u64| Some(Time(rig.stream.messages[&seq].at));
    assert_eq!(rig.info().oldest_ack_pending, stored(&rig, 1));
    rig.ack(&got[1]);
    assert_eq!(rig.info().oldest_ack_pending, stored(&rig, 1));
    rig.ack(&got[0]);
    assert_eq!(rig.info().oldest_ack_pending, stored(&rig, 3));
    rig.stream.remove(3);
    assert_eq!(rig.info().oldest_ack_pending, None, "the stream has it no more");
}

#[test]
fn ack_all_takes_everything_before() {
    let mut rig = ten(|config| config.ack_policy = AckPolicy::All);
    let got = rig.pull("in", "6");
    rig.ack(&got[3]);
    let info = rig.info();
    assert_eq!((info.ack_floor.stream_seq, info.num_ack_pending), (4, 2));
    assert_eq!(rig.released, [1, 2, 3, 4].map(Seq));
    rig.ack(&got[1]);
    assert_eq!(rig.info().num_ack_pending, 2);
}

#[test]
fn ack_none_is_done_when_delivered() {
    let mut rig = ten(|config| config.ack_policy = AckPolicy::None);
    rig.pull("in", "4");
    let info = rig.info();
    assert_eq!((info.ack_floor.stream_seq, info.num_ack_pending, info.num_pending), (4, 0, 6));
    assert_eq!(rig.consumer().needs_log(), Some(Urgency::Lazy));
    assert_eq!(rig.released, [1, 2, 3, 4].map(Seq));
}

#[test]
fn redelivery_after_ack_wait_in_order() {
    let mut rig = ten(|config| config.ack_wait = SECOND);
    let got = rig.pull("in", "3");
    rig.ack(&got[1]);
    rig.pass(SECOND * 3 / 2);
    let again = rig.pull("in", "3");
    let what: Vec<_> = again.iter().map(|d| (d.stream_seq, d.delivered, d.consumer_seq)).collect();
    assert_eq!(what, [(1, 2, 4), (3, 2, 5), (4, 1, 6)], "what is due comes before what is new");
    assert_eq!(rig.info().num_redelivered, 2);
    // Any of its deliveries' ack subjects will do.
    rig.ack(&got[0]);
    assert_eq!((rig.info().num_redelivered, rig.info().num_ack_pending), (1, 2));
}

#[test]
fn nak_comes_back_at_once_or_later() {
    let mut rig = ten(|_| {});
    let got = rig.pull("in", "3");
    rig.ack_with(&got[0], "-NAK", "");
    rig.ack_with(&got[1], "-NAK {\"delay\":2000000000}", "");
    rig.ack_with(&got[2], "-NAK 1s", "");
    let again = rig.pull("in", "{\"batch\":1}");
    assert_eq!((again[0].stream_seq, again[0].delivered, again[0].consumer_seq), (1, 2, 4));
    rig.pull_quietly("in", "1");
    rig.pump();
    assert_eq!(rig.take()[0].stream_seq, 4);
    rig.pull_quietly("in", "100");
    rig.pump();
    rig.take();
    rig.pass(3 * SECOND);
    let order: Vec<u64> = rig.take().iter().map(|delivered| delivered.stream_seq).collect();
    assert_eq!(order, [3, 2]);
    let naks = rig.statuses();
    assert!(naks.iter().all(|(to, _)| to == "$JS.EVENT.ADVISORY.CONSUMER.MSG_NAKED.S.C"));
    assert_eq!(naks.len(), 3);
}

#[test]
fn in_progress_buys_time() {
    let mut rig = ten(|config| config.ack_wait = SECOND);
    let got = rig.pull("in", "1");
    rig.pull_quietly("in", "1000");
    rig.pump();
    rig.take();
    for _ in 0..5 {
        rig.pass(SECOND * 3 / 5);
        rig.ack_with(&got[0], "+WPI", "");
        assert!(rig.take().iter().all(|delivered| delivered.stream_seq != 1));
    }
    rig.pass(2 * SECOND);
    assert!(rig.take().iter().any(|delivered| delivered.stream_seq == 1));
}

#[test]
fn backoff_sets_the_waits() {
    let mut rig = ten(|config| {
        config.backoff = vec![SECOND, 5 * SECOND];
        config.max_deliver = 4;
    });
    rig.pull("in", "1");
    rig.pull_quietly("in", "{\"batch\":1}");
    rig.consumer();
    rig.pump();
    rig.take();
    let start = rig.log.now;
    let mut times = Vec::new();
    for _ in 0..2_000 {
        rig.pull_quietly("in", "{\"batch\":100,\"no_wait\":true}");
        rig.pump();
        rig.pass(10_000_000);
        for delivered in rig.take() {
            if delivered.stream_seq == 1 {
                times.push((rig.log.now - start) / SECOND);
            }
        }
    }
    assert_eq!(times, [1, 6, 11]);
    let advisories = rig.statuses();
    assert!(
        advisories.iter().any(|(to, _)| to == "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.S.C")
    );
}

#[test]
fn max_deliver_gives_up_and_keeps_the_message() {
    let mut rig = Rig::with(&["a"]).retention(RetentionPolicy::Workqueue);
    rig.create(|config| {
        config.max_deliver = 2;
        config.ack_wait = SECOND;
    });
    let got = rig.pull("in", "1");
    rig.pull_quietly("in", "5");
    rig.pass(5 * SECOND);
    assert_eq!(rig.take().len(), 1);
    let advisory = rig.outbox.messages.iter().find(|m| m.0.contains("MAX_DELIVERIES"));
    let body: serde_json::Value =
        serde_json::from_str(&advisory.expect("an advisory").3).expect("JSON");
    assert_eq!(body["type"], "io.nats.jetstream.advisory.v1.max_deliver");
    assert_eq!((&body["stream"], &body["consumer"]), (&"S".into(), &"C".into()));
    assert_eq!((&body["stream_seq"], &body["deliveries"]), (&1.into(), &2.into()));
    assert_eq!(body["id"].as_str().map(str::len), Some(22));
    assert_eq!(rig.info().num_ack_pending, 0);
    let Rig { consumer, stream, .. } = &mut rig;
    let consumer = consumer.as_mut().expect("created");
    assert!(consumer.needs(stream, Seq(1), 0) && consumer.ack_floor() == Seq(0));
    // A late ack still counts.
    rig.ack(&got[0]);
    assert_eq!(rig.released, [Seq(1)]);
    assert_eq!(rig.consumer().ack_floor(), Seq(1));
}

#[test]
fn term_ends_it_with_a_reason() {
    let mut rig = ten(|config| config.ack_wait = SECOND);
    let got = rig.pull("in", "1");
    rig.ack_with(&got[0], "+TERM because I said so", "");
    rig.pass(5 * SECOND);
    assert!(rig.take().is_empty());
    let advisory = &rig.outbox.messages[0];
    assert_eq!(advisory.0, "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.S.C");
    assert!(advisory.3.contains("\"reason\":\"because I said so\""));
    assert_eq!(rig.released, [Seq(1)]);
}

#[test]
fn next_acks_and_pulls() {
    let mut rig = ten(|_| {});
    let got = rig.pull("in", "1");
    rig.outbox.listening.insert("more".into());
    rig.ack_with(&got[0], "+NXT {\"batch\":2}", "more");
    rig.pump();
    let more = rig.take();
    assert_eq!(
        more.iter().map(|d| (d.to.as_str(), d.stream_seq)).collect::<Vec<_>>(),
        [("more", 2), ("more", 3)]
    );
    assert_eq!(rig.info().num_ack_pending, 2);
}

#[test]
fn double_acks_wait_for_the_commit() {
    let mut rig = ten(|_| {});
    let got = rig.pull("in", "3");
    rig.commit();
    rig.ack_with(&got[0], "", "r1");
    assert_eq!(rig.consumer().needs_log(), Some(Urgency::Awaited));
    assert!(rig.statuses().is_empty());
    let env = env!(rig);
    let consumer = rig.consumer.as_mut().expect("created");
    consumer.log_state(env.stream, env.log, Urgency::Awaited).expect("appended");
    assert!(consumer.awaits_commit() && consumer.needs_log().is_none());
    // The same again before the commit waits for the same frame.
    rig.ack_with(&got[0], "", "r2");
    assert!(rig.statuses().is_empty() && rig.consumer().needs_log().is_none());
    rig.ack_with(&got[1], "+TERM", "r3");
    rig.ack_with(&got[0], "", "r4");
    rig.commit();
    let to: Vec<String> = rig.statuses().into_iter().map(|(to, _)| to).collect();
    assert_eq!(
        to.into_iter().filter(|to| !to.starts_with('$')).collect::<Vec<_>>(),
        ["r1", "r2", "r3", "r4"]
    );
    assert!(!rig.consumer().awaits_commit());
    // Long since durable: answered at once.
    rig.ack_with(&got[0], "", "r5");
    assert_eq!(rig.statuses()[0].0, "r5");
}

#[test]
fn acks_from_nowhere_are_ignored() {
    let mut rig = ten(|_| {});
    let mut got = rig.pull("in", "1");
    got[0].stream_seq = 9;
    rig.ack_with(&got[0], "", "r");
    got[0].stream_seq = 0;
    rig.ack_with(&got[0], "", "r");
    assert!(rig.statuses().is_empty());
    assert_eq!(rig.info().num_ack_pending, 1);
}

#[test]
fn removed_messages_leave_the_pending_set() {
    let mut rig = ten(|config| config.ack_wait = SECOND);
    rig.pull("in", "4");
    rig.stream.remove(2);
    rig.stream.remove(7);
    let info = rig.info();
    assert_eq!((info.num_ack_pending, info.num_pending), (3, 5));
    assert!(rig.outbox.messages[0].3.contains("Unacknowledged message was deleted"));
    // The journal forgets: everything is looked at again.
    rig.stream.remove(3);
    rig.stream.remove(8);
    rig.stream.journal_start = rig.stream.journal.len();
    rig.stream.remove(9);
    let info = rig.info();
    assert_eq!((info.num_ack_pending, info.num_pending), (2, 3));
}

#[test]
fn sampled_acks_are_reported() {
    let mut rig = ten(|config| config.sample_freq = "100%".into());
    let got = rig.pull("in", "1");
    rig.pass(1_000);
    rig.ack(&got[0]);
    let metric = &rig.outbox.messages[0];
    assert_eq!(metric.0, "$JS.EVENT.METRIC.CONSUMER.ACK.S.C");
    assert!(metric.3.contains("\"ack_time\":1000,"), "{}", metric.3);
}

#[test]
fn however_large_max_ack_pending_is_no_more_are_out_than_the_bound() {
    for given in [1 << 62, i64::MAX, -1] {
        let mut rig = ten(|config| config.max_ack_pending = given);
        assert_eq!(rig.consumer().terms.max_ack_pending, ACK_PENDING_MAX, "{given}");
        let mut bytes = Vec::new();
        rig.consumer().encode(&mut bytes);
        let back = Consumer::<()>::decode(&bytes).expect("decodes");
        assert_eq!(back.terms.max_ack_pending, ACK_PENDING_MAX, "{given}, after a restart");
    }
}

#[test]
fn an_ack_of_what_is_not_pending_is_activity_too() {
    let mut rig = ten(|_| {});
    let got = rig.pull("in", "1");
    rig.ack(&got[0]);
    let first = rig.info().ack_floor.last_active;
    assert!(first.is_some());
    rig.log.now += SECOND;
    rig.ack(&got[0]);
    let second = rig.info().ack_floor.last_active;
    assert!(second > first, "{second:?} after {first:?}");
    assert_eq!(rig.info().ack_floor.consumer_seq, 1);
}

#[test]
fn a_redelivery_that_no_request_takes_comes_after_the_others() {
    let mut rig = Rig::new();
    rig.create(|_| {});
    rig.publish_with("a", b"", &[b'x'; 500]);
    rig.publish("a");
    let got = rig.pull("in", "2");
    rig.ack_with(&got[0], "-NAK", "");
    rig.ack_with(&got[1], "-NAK", "");
    assert_eq!(rig.pull_seqs("{\"batch\":1,\"max_bytes\":200}"), [0_u64; 0]);
    assert_eq!(rig.pull_seqs("{\"batch\":1,\"max_bytes\":200}"), [2], "the smaller one");
    assert_eq!(rig.pull_seqs("1"), [1]);
}

#[test]
fn an_ack_of_what_left_the_stream_before_it_was_looked_at_is_confirmed() {
    let mut rig = ten(|_| {});
    let got = rig.pull("in", "3");
    // Created anew, the consumer has delivered nothing yet.
    rig.create(|_| {});
    rig.outbox.listening.insert("confirmed".to_owned());
    rig.ack_with(&got[2], "", "confirmed");
    rig.commit();
    assert!(rig.statuses().is_empty(), "it is there, and was not delivered");
    (1..=5).for_each(|seq| assert!(rig.stream.remove(seq)));
    rig.ack_with(&got[2], "", "confirmed");
    rig.commit();
    assert_eq!(rig.statuses().len(), 1);
    assert_eq!(rig.pull_seqs("1"), [6]);
}
