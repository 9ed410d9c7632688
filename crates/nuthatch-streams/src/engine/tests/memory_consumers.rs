//! Consumers whose state is in memory, across a start.

use super::harness::{Harness, Reopen};
use nuthatch_log::RecordKind;
use nuthatch_protocol::js::{ConsumerConfig, DeliverPolicy, RetentionPolicy};

const ALL: [Reopen; 3] = [Reopen::Scratch, Reopen::Snapshot, Reopen::States];

#[test]
fn removals_by_memory_consumers_are_logged_as_deletes() {
    let mut harness = Harness::with_stream(|config| config.retention = RetentionPolicy::Workqueue);
    harness.consumer("C", |config| config.mem_storage = true).expect("created");
    harness.put("s.a", "x");
    let acks = harness.pull("C", 1);
    harness.ack(&acks[0], "+ACK", "");
    harness.commit();
    let records = harness.log.frames.last().expect("a frame");
    assert!(records.iter().any(|record| record.kind == RecordKind::Delete));
    harness.reopen(Reopen::Scratch);
    assert_eq!(harness.seqs(), [0u64; 0]);
}

/// The consumer in memory had let go first: no record of the other one tells that nobody is left.
#[test]
fn what_a_memory_consumer_had_let_go_before_is_logged_as_deleted() {
    let mut harness = Harness::with_stream(|config| {
        config.retention = RetentionPolicy::Interest;
        config.max_msgs = 2;
    });
    harness.consumer("M", |config| config.mem_storage = true).expect("created");
    harness.consumer("D", |_| {}).expect("created");
    harness.put("s.a", "1");
    harness.put("s.a", "2");
    for name in ["M", "D"] {
        let acks = harness.pull(name, 2);
        harness.ack(&acks[1], "+ACK", "");
    }
    harness.put("s.a", "3");
    assert_eq!(harness.seqs(), [1, 3], "there was room");
    harness.reopen(Reopen::Scratch);
    assert_eq!(harness.seqs(), [1, 3]);
}

#[test]
fn a_consumer_in_memory_is_gone_after_a_start_and_its_name_is_free() {
    for how in ALL {
        let mut harness = Harness::with_stream(|_| ());
        harness.consumer("M", |config| config.mem_storage = true).expect("created");
        harness.consumer("D", |config| config.filter_subject = "s.b".into()).expect("created");
        harness.put("s.a", "x");
        harness.put("s.b", "y");
        harness.commit();
        harness.reopen(how);
        assert!(harness.consumer_info("M").is_none(), "{how:?}");
        assert!(harness.consumer_info("D").is_some(), "{how:?}");
        assert_eq!(harness.seqs(), [1, 2], "{how:?}");
        let later = |config: &mut ConsumerConfig| {
            config.mem_storage = true;
            config.deliver_policy = DeliverPolicy::New;
        };
        harness.consumer("M", later).expect("created anew");
        harness.commit();
        harness.reopen(how);
        assert!(harness.consumer_info("M").is_none() && harness.seqs() == [1, 2], "{how:?}");
    }
}

/// A node is not the end of the memory of several.
#[test]
fn a_consumer_in_memory_goes_on_where_other_nodes_go_on_with_the_log() {
    for how in ALL {
        let mut harness = Harness::with_stream_in(true, |_| ());
        harness.consumer("M", |config| config.mem_storage = true).expect("created");
        harness.put("s.a", "1");
        harness.put("s.a", "2");
        let acks = harness.pull("M", 1);
        harness.ack(&acks[0], "+ACK", "");
        harness.commit();
        harness.reopen(how);
        let info = harness.consumer_info("M").expect("it goes on");
        assert_eq!((info.ack_floor.stream_seq, info.num_pending), (1, 1), "{how:?}");
        assert!(info.config.mem_storage);
    }
}

/// What an acknowledged message is kept for does not end with a restart.
#[test]
fn a_consumer_in_memory_for_which_messages_are_kept_stays() {
    for how in ALL {
        for retention in [RetentionPolicy::Interest, RetentionPolicy::Workqueue] {
            let mut harness = Harness::with_stream(|config| config.retention = retention);
            harness.consumer("M", |config| config.mem_storage = true).expect("created");
            harness.put("s.a", "x");
            harness.commit();
            harness.reopen(how);
            assert!(harness.consumer_info("M").is_some(), "{how:?}");
            assert_eq!(harness.seqs(), [1], "{how:?}");
        }
    }
}
