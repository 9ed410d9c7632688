//! State that survives a crash.

use super::fakes::{Rig, SECOND};
use nuthatch_protocol::js::{AckPolicy, DeliverPolicy};

#[test]
fn committed_acks_are_never_redelivered() {
    let mut rig = Rig::with(&["a"; 6]);
    rig.create(|config| config.ack_wait = SECOND);
    let created = rig.encoded();
    let got = rig.pull("in", "5");
    rig.ack(&got[0]);
    rig.ack_with(&got[3], "", "sure");
    rig.commit();
    rig.ack(&got[1]);
    rig.restart(&created);
    rig.pull_quietly("in", "10");
    rig.pump();
    assert_eq!(rig.take().iter().map(|d| d.stream_seq).collect::<Vec<_>>(), [6]);
    rig.pass(SECOND / 2);
    assert!(rig.take().is_empty());
    rig.pass(SECOND);
    let again: Vec<_> = rig.take().iter().map(|d| (d.stream_seq, d.delivered)).collect();
    assert_eq!(again, [(2, 2), (3, 2), (5, 2), (6, 2)]);
    let info = rig.info();
    assert_eq!((info.ack_floor.stream_seq, info.ack_floor.consumer_seq), (1, 1));
    assert_eq!(info.delivered.consumer_seq, 5 + 1 + 4);
}

#[test]
fn the_position_without_acks_survives() {
    let mut rig = Rig::with(&["a"; 6]);
    rig.create(|config| config.ack_policy = AckPolicy::None);
    let created = rig.encoded();
    rig.pull("in", "4");
    rig.commit();
    rig.restart(&created);
    assert_eq!(rig.pull_seqs("10"), [5, 6]);
}

#[test]
fn the_start_is_remembered() {
    let mut rig = Rig::with(&["a"; 6]);
    rig.create(|config| config.deliver_policy = DeliverPolicy::New);
    let created = rig.encoded();
    rig.publish("a");
    rig.restart(&created);
    assert_eq!(rig.pull_seqs("10"), [7]);
}

#[test]
fn a_list_of_last_messages_is_continued() {
    let mut rig = Rig::with(&["a", "b", "a", "c", "b"]);
    rig.create(|config| {
        config.deliver_policy = DeliverPolicy::LastPerSubject;
        config.filter_subject = ">".into();
    });
    let created = rig.encoded();
    assert_eq!(rig.pull_seqs("1"), [3]);
    rig.commit();
    rig.publish("c");
    rig.restart(&created);
    let info = rig.info();
    assert_eq!(info.num_pending, 2, "{info:?}");
    assert_eq!(rig.pull_seqs("10"), [5, 6]);
}

#[test]
fn delivery_counts_and_exhaustion_survive() {
    let mut rig = Rig::with(&["a"; 2]).retention(nuthatch_protocol::js::RetentionPolicy::Workqueue);
    rig.create(|config| {
        config.ack_wait = SECOND;
        config.max_deliver = 3;
    });
    let created = rig.encoded();
    let got = rig.pull("in", "2");
    rig.ack_with(&got[1], "-NAK", "");
    rig.pull("in", "1");
    rig.commit();
    rig.restart(&created);
    rig.pull_quietly("in", "10");
    rig.pass(SECOND * 3 / 2);
    let again: Vec<_> = rig.take().iter().map(|d| (d.stream_seq, d.delivered)).collect();
    assert_eq!(again, [(1, 2), (2, 3)]);
    rig.pass(10 * SECOND);
    rig.commit();
    rig.restart(&created);
    assert!(rig.pull_seqs("10").is_empty());
    assert_eq!(rig.info().num_redelivered, 2);
    assert_eq!(rig.consumer().ack_floor().0, 0);
}

#[test]
fn removals_while_down_are_noticed() {
    let mut rig = Rig::with(&["a"; 6]);
    rig.create(|_| {});
    let created = rig.encoded();
    rig.pull("in", "3");
    rig.commit();
    rig.stream.remove(2);
    rig.stream.remove(5);
    rig.stream.journal_start = rig.stream.journal.len();
    rig.restart(&created);
    let info = rig.info();
    assert_eq!((info.num_ack_pending, info.num_pending), (2, 2));
}

#[test]
fn replay_tells_what_each_record_let_go() {
    let mut rig =
        Rig::with(&["a"; 10]).retention(nuthatch_protocol::js::RetentionPolicy::Workqueue);
    rig.create(|config| config.max_deliver = 1);
    let created = rig.encoded();
    let first = rig.pull("in", "5");
    rig.ack(&first[1]);
    rig.ack_with(&first[3], "-NAK", "");
    rig.commit();
    let second = rig.pull("in", "3");
    [&first[0], &first[2], &second[1]].into_iter().for_each(|delivered| rig.ack(delivered));
    rig.commit();
    rig.ack(&first[3]);
    rig.commit();
    let mut consumer = crate::consumer::Consumer::<String>::decode(&created).expect("decodes");
    let mut let_go = Vec::new();
    for (_, _, body) in &rig.log.records {
        let mut released = Vec::new();
        consumer.apply_state_releasing(body, &mut released).expect("applies");
        let_go.push(released);
    }
    assert_eq!(let_go, [vec![2..=2], vec![1..=1, 3..=3, 7..=7], vec![4..=4]]);
}
