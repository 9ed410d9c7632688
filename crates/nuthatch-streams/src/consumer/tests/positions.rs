//! Start positions of consumers, effects of filters, and counts of pending messages.

use super::fakes::{Rig, START};
use nuthatch_protocol::js::{ConsumerConfig, DeliverPolicy, Time};

const SUBJECTS: [&str; 8] = ["k.a", "k.b", "k.a", "x.y", "k.c", "k.b", "k.a", "x.z"];

fn all_of(rig: &mut Rig) -> Vec<u64> {
    rig.pull_seqs("{\"batch\":1000,\"no_wait\":true}")
}

type Case = (fn(&mut ConsumerConfig), &'static [u64]);

const STARTS: [Case; 14] = [
    (|_| {}, &[1, 2, 3, 4, 5, 6, 7, 8]),
    (|c| c.filter_subject = "k.*".into(), &[1, 2, 3, 5, 6, 7]),
    (|c| c.filter_subjects = vec!["k.b".into(), "x.>".into()], &[2, 4, 6, 8]),
    (|c| c.deliver_policy = DeliverPolicy::New, &[]),
    (|c| c.deliver_policy = DeliverPolicy::Last, &[8]),
    (
        |c| {
            c.deliver_policy = DeliverPolicy::Last;
            c.filter_subject = "k.b".into();
        },
        &[6],
    ),
    (
        |c| {
            c.deliver_policy = DeliverPolicy::Last;
            c.filter_subject = "nothing".into();
        },
        &[],
    ),
    (
        |c| {
            c.deliver_policy = DeliverPolicy::LastPerSubject;
            c.filter_subject = "k.>".into();
        },
        &[5, 6, 7],
    ),
    (
        |c| {
            c.deliver_policy = DeliverPolicy::LastPerSubject;
            c.filter_subject = ">".into();
        },
        &[4, 5, 6, 7, 8],
    ),
    (
        |c| {
            c.deliver_policy = DeliverPolicy::ByStartSequence;
            c.opt_start_seq = 6;
        },
        &[6, 7, 8],
    ),
    (
        |c| {
            c.deliver_policy = DeliverPolicy::ByStartSequence;
            c.opt_start_seq = 4;
            c.filter_subject = "k.a".into();
        },
        &[7],
    ),
    (
        |c| {
            c.deliver_policy = DeliverPolicy::ByStartSequence;
            c.opt_start_seq = 100;
        },
        &[],
    ),
    (
        |c| {
            c.deliver_policy = DeliverPolicy::ByStartTime;
            c.opt_start_time = Some(Time(START + 4_500_000));
        },
        &[5, 6, 7, 8],
    ),
    (
        |c| {
            c.deliver_policy = DeliverPolicy::ByStartTime;
            c.opt_start_time = Some(Time(START + 1_000_000_000));
        },
        &[],
    ),
];

#[test]
fn deliver_policies() {
    for (at, (change, expected)) in STARTS.into_iter().enumerate() {
        let mut rig = Rig::with(&SUBJECTS);
        rig.create(change);
        assert_eq!(rig.info().num_pending, expected.len() as u64, "case {at}");
        assert_eq!(all_of(&mut rig), expected, "case {at}");
        assert_eq!(rig.info().num_pending, 0, "case {at}");
    }
}

#[test]
fn new_messages_follow_every_start() {
    let starts: [fn(&mut ConsumerConfig); 3] = [
        |c| c.deliver_policy = DeliverPolicy::New,
        |c| {
            c.deliver_policy = DeliverPolicy::LastPerSubject;
            c.filter_subject = "k.>".into();
        },
        |c| c.filter_subject = "k.a".into(),
    ];
    for change in starts {
        let mut rig = Rig::with(&SUBJECTS);
        rig.create(change);
        all_of(&mut rig);
        rig.publish("other");
        let seq = rig.publish("k.a");
        let got = all_of(&mut rig);
        assert_eq!(got.last(), Some(&seq));
    }
}

#[test]
fn a_start_beyond_the_end_waits_for_it() {
    let mut rig = Rig::with(&SUBJECTS);
    rig.create(|c| {
        c.deliver_policy = DeliverPolicy::ByStartSequence;
        c.opt_start_seq = 11;
    });
    for _ in 0..4 {
        rig.publish("k.a");
    }
    assert_eq!(rig.info().num_pending, 2);
    assert_eq!(all_of(&mut rig), [11, 12]);
}

#[test]
fn superseded_last_messages_are_not_delivered_twice() {
    let mut rig = Rig::with(&SUBJECTS);
    rig.create(|c| {
        c.deliver_policy = DeliverPolicy::LastPerSubject;
        c.filter_subject = "k.>".into();
    });
    // The history limit of the stream removes an old value as its successor comes.
    rig.publish("k.c");
    rig.stream.remove(5);
    assert_eq!(rig.info().num_pending, 3);
    assert_eq!(all_of(&mut rig), [6, 7, 9]);
}

#[test]
fn one_per_subject_streams_need_no_list() {
    let mut rig = Rig::with(&["k.a", "k.b"]);
    rig.config.max_msgs_per_subject = 1;
    rig.create(|c| {
        c.deliver_policy = DeliverPolicy::LastPerSubject;
        c.filter_subject = "k.>".into();
    });
    assert_eq!(rig.info().num_pending, 2);
    assert_eq!(all_of(&mut rig), [1, 2]);
}

#[test]
fn rare_subjects_are_found_by_jumping() {
    let mut rig = Rig::with(&["rare"]);
    for _ in 0..20_000 {
        rig.stream.publish("common", b"", START);
    }
    rig.create(|c| c.filter_subject = "rare".into());
    assert_eq!(rig.pull_seqs("1"), [1]);
    let end = rig.publish("rare");
    assert_eq!(rig.info().num_pending, 1);
    assert_eq!(rig.pull_seqs("1"), [end]);
    assert_eq!(rig.info().delivered.stream_seq, end);
}

#[test]
fn a_filter_for_everything_is_no_filter() {
    let mut rig = Rig::with(&["k.a", "k.b"]);
    rig.config.subjects = vec!["k.*".into()];
    rig.create(|c| c.filter_subject = "k.>".into());
    assert!(rig.consumer().filter.is_all());
    // The stream kept a message from before its subjects were changed.
    let mut rig = Rig::with(&["old", "k.a", "k.b"]);
    rig.config.subjects = vec!["k.*".into()];
    rig.create(|c| c.filter_subject = "k.>".into());
    assert!(!rig.consumer().filter.is_all());
    assert_eq!(all_of(&mut rig), [2, 3]);
}

#[test]
fn changed_filters_apply_from_here() {
    let mut rig = Rig::with(&SUBJECTS);
    rig.create(|c| c.filter_subject = "k.a".into());
    assert_eq!(rig.pull_seqs("1"), [1]);
    let mut config = rig.consumer().config().clone();
    config.filter_subject = "x.>".into();
    let mut env = env!(rig);
    let filter = crate::consumer::Filter::new(&config);
    rig.consumer.as_mut().expect("created").update(config, filter, &rig.config, &mut env);
    assert_eq!(rig.info().num_pending, 2);
    assert_eq!(all_of(&mut rig), [4, 8]);
}

#[test]
fn an_update_forgets_what_left_the_stream() {
    let mut rig = Rig::with(&SUBJECTS);
    rig.create(|_| {});
    assert_eq!(rig.pull_seqs("3"), [1, 2, 3]);
    rig.stream.remove(2);
    let mut config = rig.consumer().config().clone();
    config.headers_only = true;
    let mut env = env!(rig);
    let filter = crate::consumer::Filter::new(&config);
    rig.consumer.as_mut().expect("created").update(config, filter, &rig.config, &mut env);
    assert_eq!(rig.info().num_ack_pending, 2, "2 is not waited for");
}

/// Neither of the two filters lies within the other, so both may be asked for; `k.b` matches both.
#[test]
fn a_message_that_two_filters_match_counts_once() {
    for policy in [DeliverPolicy::All, DeliverPolicy::LastPerSubject] {
        let mut rig = Rig::with(&SUBJECTS);
        rig.create(|c| {
            c.filter_subjects = vec!["k.*".into(), "*.b".into()];
            c.deliver_policy = policy;
        });
        let expected: &[u64] = match policy {
            DeliverPolicy::All => &[1, 2, 3, 5, 6, 7],
            _ => &[5, 6, 7],
        };
        assert_eq!(rig.info().num_pending, expected.len() as u64);
        assert_eq!(all_of(&mut rig), expected);
        assert_eq!(rig.info().num_pending, 0);
    }
}
