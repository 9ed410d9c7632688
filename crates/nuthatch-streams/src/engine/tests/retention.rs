//! Work queues and interest: what acknowledgements take away, and that a restart finds the same.

use super::harness::{Harness, Msg, Reopen, STREAM};
use crate::op::{Op, OpOutcome, PurgeRequest};
use nuthatch_log::Machine;
use nuthatch_protocol::js::{
    AckPolicy, DeliverPolicy, RetentionPolicy, StoreCompression, StreamConfig,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

const ALL: [Reopen; 3] = [Reopen::Scratch, Reopen::Snapshot, Reopen::States];

fn filled(retention: RetentionPolicy, messages: usize) -> Harness {
    let mut harness = Harness::with_stream(|config| config.retention = retention);
    harness.consumer("C", |_| {}).expect("created");
    for _ in 0..messages {
        harness.put("s.a", "x");
    }
    harness
}

#[test]
fn acknowledged_messages_leave_a_work_queue_at_once_and_for_good() {
    for how in ALL {
        let mut harness = filled(RetentionPolicy::Workqueue, 3);
        let acks = harness.pull("C", 3);
        assert_eq!(acks.len(), 3);
        harness.ack(&acks[1], "+ACK", "");
        assert_eq!(harness.seqs(), [1, 3]);
        assert_eq!(harness.info().state.messages, 2);
        harness.commit();
        harness.reopen(how);
        assert_eq!(harness.seqs(), [1, 3], "{how:?}");
    }
}

#[test]
fn progress_that_nobody_awaits_starts_no_frame_until_its_time_comes() {
    let mut harness = filled(RetentionPolicy::Limits, 1);
    let acks = harness.pull("C", 1);
    harness.ack(&acks[0], "+ACK", "");
    assert!(!harness.log.awaited);
    harness.pass_ms(251);
    harness.tick();
    assert!(harness.log.awaited, "now it is time");
}

#[test]
fn a_double_ack_is_confirmed_when_it_is_durable() {
    let mut harness = filled(RetentionPolicy::Limits, 1);
    let acks = harness.pull("C", 1);
    harness.engine.sink_mut().published.clear();
    harness.ack(&acks[0], "+ACK", "confirm.me");
    assert!(harness.log.awaited, "it starts a frame");
    assert_eq!(harness.engine.sink().published, []);
    harness.commit();
    assert_eq!(harness.engine.sink().published[0].subject, "confirm.me");
    harness.reopen(Reopen::Scratch);
    assert_eq!(harness.consumer_info("C").expect("there").ack_floor.stream_seq, 1);
}

#[test]
fn interest_keeps_a_message_until_the_last_consumer_has_acknowledged_it() {
    for how in ALL {
        let mut harness = filled(RetentionPolicy::Interest, 0);
        harness.consumer("D", |_| {}).expect("created");
        harness.put("s.a", "x");
        harness.put("s.a", "y");
        let mut acks = harness.pull("C", 2);
        acks.iter().for_each(|ack| harness.ack(ack, "+ACK", ""));
        assert_eq!(harness.seqs(), [1, 2]);
        acks = harness.pull("D", 2);
        harness.ack(&acks[0], "+ACK", "");
        assert_eq!(harness.seqs(), [2]);
        harness.commit();
        harness.reopen(how);
        assert_eq!(harness.seqs(), [2], "{how:?}");
        harness.op(Op::DeleteConsumer { id: STREAM, name: "D".into() }).expect("deleted");
        assert_eq!(harness.seqs(), [0u64; 0], "nobody needs it any more");
    }
}

#[test]
fn a_consumer_that_wants_less_lets_the_rest_go() {
    for how in ALL {
        let mut harness = filled(RetentionPolicy::Interest, 2);
        harness.put("s.b", "x");
        harness.consumer("C", |config| config.filter_subject = "s.b".into()).expect("updated");
        assert_eq!(harness.seqs(), [3]);
        harness.commit();
        harness.reopen(how);
        assert_eq!(harness.seqs(), [3], "{how:?}");
    }
}

#[test]
fn a_large_stream_lets_go_in_parts() {
    const MESSAGES: u64 = 70_000;
    let mut harness = filled(RetentionPolicy::Interest, 0);
    let message = super::harness::Msg { subject: "s.a", body: "x", ..Default::default() };
    harness.send(&vec![message; MESSAGES as usize]);
    harness.commit();
    harness.op(Op::DeleteConsumer { id: STREAM, name: "C".into() }).expect("deleted");
    let left = harness.seqs().len() as u64;
    assert!(left > 0 && left < MESSAGES, "{left}");
    harness.put("s.a", "nobody wants it");
    for _ in 0..3 {
        harness.tick();
        harness.commit();
    }
    assert_eq!(harness.seqs(), [0_u64; 0]);
    assert_eq!(harness.info().state.last_seq, MESSAGES + 1);
    harness.reopen(Reopen::Scratch);
    assert_eq!(harness.seqs(), [0_u64; 0]);
}

/// Otherwise the replay, which meets the publish first, would evict message 1 in its stead.
#[test]
fn an_acknowledgement_is_logged_before_a_publish_that_its_room_admits() {
    for per_subject in [false, true] {
        let mut harness = Harness::with_stream(|config| {
            config.retention = RetentionPolicy::Workqueue;
            let limit =
                if per_subject { &mut config.max_msgs_per_subject } else { &mut config.max_msgs };
            *limit = 3;
        });
        harness.consumer("C", |_| {}).expect("created");
        (0..3).for_each(|_| drop(harness.put("s.a", "x")));
        let acks = harness.pull("C", 3);
        harness.ack(&acks[1], "+ACK", "");
        harness.put("s.a", "x");
        assert_eq!(harness.seqs(), [1, 3, 4]);
        harness.reopen(Reopen::Scratch);
        assert_eq!(harness.seqs(), [1, 3, 4]);
    }
}

#[test]
fn consumers_can_be_listed_and_are_advised_of() {
    let mut harness = filled(RetentionPolicy::Limits, 1);
    harness.consumer("B", |_| {}).expect("created");
    let list = Op::ListConsumers { id: STREAM, offset: 1, limit: 5, names_only: true };
    let OpOutcome::Consumers { total, names, .. } = harness.op(list).expect("listed") else {
        panic!("no list")
    };
    assert_eq!((total, names), (2, vec!["C".to_owned()]));
    let subjects: Vec<String> =
        harness.engine.sink().published.iter().map(|out| out.subject.clone()).collect();
    assert!(subjects.contains(&"$JS.EVENT.ADVISORY.CONSUMER.CREATED.S.B".to_owned()));
    let missing = harness.op(Op::DeleteConsumer { id: STREAM, name: "X".into() });
    assert_eq!(missing.expect_err("missing").err_code, 10014);
}

#[test]
fn waiting_consumers_are_woken_by_their_own_subject() {
    let mut harness = Harness::with_stream(|_| {});
    for name in ["a", "b", "c", "d", "e"] {
        let filter = format!("s.{name}");
        harness.consumer(name, |config| config.filter_subject = filter).expect("created");
        assert_eq!(harness.pull_waiting(name), [""; 0]);
    }
    harness.consumer("all", |config| config.filter_subject = "s.>".into()).expect("created");
    harness.pull_waiting("all");
    harness.put("s.d", "x");
    let delivered = std::mem::take(&mut harness.engine.sink_mut().delivered);
    let mut consumers: Vec<&str> =
        delivered.iter().filter_map(|out| out.subject.split('.').nth(3)).collect();
    consumers.sort_unstable();
    assert_eq!(consumers, ["all", "d"]);
    harness.put("s.e", "x");
    assert_eq!(harness.engine.sink().delivered.len(), 1);
}

/// A consumer that may not have more messages out is not called again and again for nothing.
#[test]
fn a_full_consumer_looks_again_when_messages_have_left_the_stream() {
    let mut harness = Harness::with_stream(|_| {});
    harness.consumer("C", |config| config.max_ack_pending = 1).expect("created");
    (0..2).for_each(|_| drop(harness.put("s.a", "x")));
    assert_eq!(harness.pull_waiting("C").len(), 1);
    assert_eq!(harness.pull_waiting("C").len(), 0, "it is full");
    harness.commit();
    let second = harness.log.now + 1_000_000_000;
    assert!(harness.engine.next_deadline().is_none_or(|at| at.0 > second), "nothing to look for");
    harness.op(Op::DeleteMessage { id: STREAM, seq: 1 }).expect("deleted");
    harness.pass_ms(251);
    harness.tick();
    assert_eq!(std::mem::take(&mut harness.engine.sink_mut().delivered).len(), 1);
}

#[derive(Clone, Debug)]
enum Step {
    Publish(usize),
    Pull {
        consumer: usize,
        batch: u64,
    },
    Ack {
        at: usize,
        body: usize,
    },
    Create {
        consumer: usize,
        from_new: bool,
    },
    /// Another filter for a consumer that exists.
    Refilter {
        consumer: usize,
        filter: usize,
    },
    Delete {
        consumer: usize,
    },
    Purge {
        keep: u64,
        seq: u64,
    },
    Pass,
    Commit,
    Compact,
    Reopen(Reopen),
}

const FILTERS: [&str; 3] = ["s.a", "s.b", "s.*.x"];
/// Filters of consumers that share messages: only interest streams and plain ones allow that.
const SHARED_FILTERS: [&str; 4] = ["s.>", "s.a", "s.*", ""];
const SUBJECTS: [&str; 3] = ["s.a", "s.b", "s.c.x"];

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..3usize).prop_map(Step::Publish),
        6 => (0..3usize, 1..4u64).prop_map(|(consumer, batch)| Step::Pull { consumer, batch }),
        9 => (any::<usize>(), 0..5usize).prop_map(|(at, body)| Step::Ack { at, body }),
        2 => (0..3usize, any::<bool>())
            .prop_map(|(consumer, from_new)| Step::Create { consumer, from_new }),
        1 => (0..3usize).prop_map(|consumer| Step::Delete { consumer }),
        1 => (0..3usize, 0..4usize)
            .prop_map(|(consumer, filter)| Step::Refilter { consumer, filter }),
        1 => (0..3u64, 0..9u64).prop_map(|(keep, seq)| Step::Purge { keep, seq }),
        2 => Just(Step::Pass),
        5 => Just(Step::Commit),
        1 => Just(Step::Compact),
        2 => prop::sample::select(&ALL[..]).prop_map(Step::Reopen),
    ]
}

/// The consumer in memory, where consumers share messages.
const MEMORY: usize = 2;

/// What must be the same after a restart.
type Shape = (Vec<u64>, BTreeMap<usize, (u64, u64, u64, u64)>);

struct RetentionRun {
    harness: Harness,
    retention: RetentionPolicy,
    /// Consumers want the same messages, and number 2 keeps its state in memory only.
    shared: bool,
    /// Which is as good as any: the log is one that other nodes go on with.
    outlive: bool,
    /// Ack subjects of everything delivered.
    acks: Vec<String>,
}

impl RetentionRun {
    fn name(consumer: usize) -> String {
        format!("C{consumer}")
    }

    fn shape(&mut self) -> Shape {
        let mut consumers = BTreeMap::new();
        for consumer in 0..3 {
            if self.shared && consumer == MEMORY && !self.outlive {
                // Its progress is not meant to survive.
                continue;
            }
            if let Some(info) = self.harness.consumer_info(&Self::name(consumer)) {
                let key = (
                    info.delivered.stream_seq,
                    info.ack_floor.stream_seq,
                    info.num_ack_pending,
                    info.num_pending,
                );
                consumers.insert(consumer, key);
            }
        }
        (self.harness.seqs(), consumers)
    }

    fn reopen(&mut self, how: Reopen) {
        // A log with states is never replayed without them, and what a consumer in memory had done
        // by then is in the states only.
        let no_states = how == Reopen::Scratch && self.harness.has_checkpoint();
        let how = if self.shared && !self.outlive && no_states { Reopen::Snapshot } else { how };
        self.harness.commit();
        let before = self.shape();
        self.harness.commit();
        let state = self.harness.info().state;
        let had_memory = self.harness.consumer_info(&Self::name(MEMORY)).is_some();
        self.harness.reopen(how);
        let is_forgotten = self.shared && !self.outlive;
        if is_forgotten && had_memory && self.retention == RetentionPolicy::Limits {
            assert!(self.harness.consumer_info(&Self::name(MEMORY)).is_none(), "{how:?}");
            let after = self.harness.info().state;
            assert_eq!((after.messages, after.bytes), (state.messages, state.bytes), "{how:?}");
            return;
        }
        assert_eq!(self.shape(), before, "{how:?}");
        assert_eq!(self.harness.info().state, state, "{how:?}");
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Publish(subject) => {
                self.harness.send(&[super::harness::Msg {
                    subject: SUBJECTS[subject],
                    body: "x",
                    ..Default::default()
                }]);
            }
            Step::Pull { consumer, batch } => {
                let acks = self.harness.pull(&Self::name(consumer), batch);
                self.acks.extend(acks);
            }
            Step::Ack { at, body } => {
                if !self.acks.is_empty() {
                    let ack = self.acks.remove(at % self.acks.len());
                    let body = ["+ACK", "+ACK", "+ACK", "+TERM", "-NAK"][body];
                    self.harness.ack(&ack, body, "");
                }
            }
            Step::Create { consumer, from_new } => {
                let workqueue = self.retention == RetentionPolicy::Workqueue;
                let shared = self.shared;
                let filters = if shared { &SHARED_FILTERS[..] } else { &FILTERS[..] };
                let _ = self.harness.consumer(&Self::name(consumer), |config| {
                    config.filter_subject = filters[consumer].into();
                    config.ack_policy = AckPolicy::Explicit;
                    config.mem_storage = shared && consumer == MEMORY;
                    if from_new && !workqueue {
                        config.deliver_policy = DeliverPolicy::New;
                    }
                });
            }
            Step::Refilter { consumer, filter } => {
                let name = Self::name(consumer);
                if let Some(info) = self.harness.consumer_info(&name).filter(|_| self.shared) {
                    let updated = self.harness.consumer(&name, |config| {
                        *config = info.config;
                        config.filter_subject = SHARED_FILTERS[filter].into();
                    });
                    updated.expect("updated");
                }
            }
            Step::Delete { consumer } => {
                let name = Self::name(consumer);
                let _ = self.harness.op(Op::DeleteConsumer { id: STREAM, name });
            }
            Step::Purge { keep, seq } => {
                let keep = if seq > 0 { 0 } else { keep };
                let request = PurgeRequest { filter: String::new(), seq, keep };
                self.harness.op(Op::Purge { id: STREAM, request }).expect("purged");
            }
            Step::Pass => {
                self.harness.pass_ms(100);
                self.harness.tick();
            }
            Step::Commit => self.harness.commit(),
            Step::Compact => self.harness.compact(),
            Step::Reopen(how) => self.reopen(how),
        }
    }
}

fn adapt(config: &mut StreamConfig, retention: RetentionPolicy, max_msgs: i64, per_subject: i64) {
    config.retention = retention;
    config.max_msgs = max_msgs;
    config.max_msgs_per_subject = per_subject;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_restart_finds_the_same_messages_and_the_same_progress(
        retention in prop::sample::select(&[
            RetentionPolicy::Limits,
            RetentionPolicy::Interest,
            RetentionPolicy::Workqueue,
        ][..]),
        (shared, outlive) in any::<(bool, bool)>(),
        (max_msgs, per_subject) in (0..6i64, 0..4i64),
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let harness = Harness::with_stream_in(outlive, |config| {
            adapt(config, retention, max_msgs, per_subject);
        });
        let shared = shared && retention != RetentionPolicy::Workqueue;
        let mut run = RetentionRun { harness, retention, shared, outlive, acks: Vec::new() };
        for consumer in 0..3 {
            run.apply(Step::Create { consumer, from_new: false });
        }
        for step in steps {
            run.apply(step);
        }
        for how in ALL {
            run.reopen(how);
        }
    }
}

#[test]
fn streams_with_s2_have_their_cold_messages_compressed() {
    let harness = Harness::with_stream(|config| config.compression = StoreCompression::S2);
    assert!(harness.engine.compresses(STREAM) && harness.engine.compresses_any());
    let plain = Harness::with_stream(|_| {});
    assert!(!plain.engine.compresses(STREAM) && !plain.engine.compresses_any());
}

/// Time for all parts of a sweep.
fn sweep(harness: &mut Harness) {
    for _ in 0..10 {
        harness.pass_ms(200);
        harness.tick();
        harness.commit();
    }
}

#[test]
fn a_sweep_that_a_restart_interrupted_is_finished() {
    for how in [Reopen::Scratch, Reopen::Snapshot, Reopen::States] {
        let mut harness = Harness::with_stream(|c| c.retention = RetentionPolicy::Interest);
        harness.consumer("all", |_| {}).expect("created");
        harness.consumer("one", |c| c.filter_subject = "s.1".into()).expect("created");
        let needed = [Msg { subject: "s.1", body: "x", ..Msg::default() }];
        let unneeded = vec![Msg { subject: "s.0", body: "x", ..Msg::default() }; 40_000];
        harness.publish(&unneeded);
        harness.publish(&needed);
        harness.op(Op::DeleteConsumer { id: STREAM, name: "all".into() }).expect("deleted");
        assert!(harness.seqs().len() > 1000, "the first part does not find everything");
        if how == Reopen::States {
            // The states are written in the middle of the sweep.
            harness.compact();
        }
        harness.reopen(how);
        sweep(&mut harness);
        assert_eq!(harness.seqs(), [40_001], "{how:?}");
        harness.op(Op::DeleteConsumer { id: STREAM, name: "one".into() }).expect("deleted");
        harness.reopen(how);
        sweep(&mut harness);
        assert_eq!(harness.seqs(), [0_u64; 0], "{how:?}");
    }
}

/// Changes the stream to limits retention.
fn keep_by_limits(harness: &mut Harness) {
    let mut config = (*harness.info().config).clone();
    config.retention = RetentionPolicy::Limits;
    harness.op(Op::UpdateStream { id: STREAM, config: Box::new(config) }).expect("updated");
}

#[test]
fn a_stream_that_has_left_interest_retention_is_not_swept_after_a_restart() {
    for how in ALL {
        let mut harness = filled(RetentionPolicy::Interest, 0);
        harness.consumer("D", |_| {}).expect("created");
        for _ in 0..3 {
            harness.put("s.a", "x");
        }
        harness.op(Op::DeleteConsumer { id: STREAM, name: "C".into() }).expect("deleted");
        harness.tick();
        harness.commit();
        keep_by_limits(&mut harness);
        let acks = harness.pull("D", 3);
        acks.iter().for_each(|ack| harness.ack(ack, "+ACK", ""));
        harness.pass_ms(500);
        harness.tick();
        harness.commit();
        harness.reopen(how);
        for _ in 0..3 {
            harness.tick();
            harness.commit();
        }
        assert_eq!(harness.seqs(), [1, 2, 3], "{how:?}");
    }
}

#[test]
fn a_sweep_ends_when_its_stream_leaves_interest_retention() {
    const MESSAGES: usize = 70_000;
    let mut harness = filled(RetentionPolicy::Interest, 0);
    let message = super::harness::Msg { subject: "s.a", body: "x", ..Default::default() };
    harness.send(&vec![message; MESSAGES]);
    harness.commit();
    harness.op(Op::DeleteConsumer { id: STREAM, name: "C".into() }).expect("deleted");
    let left = harness.seqs().len();
    assert!((1..MESSAGES).contains(&left), "the sweep is under way: {left}");
    keep_by_limits(&mut harness);
    for _ in 0..5 {
        harness.tick();
        harness.commit();
    }
    assert_eq!(harness.seqs().len(), left);
}

#[test]
fn a_checkpoint_in_the_middle_of_a_sweep_knows_that_it_is_not_done() {
    const MESSAGES: usize = 70_000;
    for how in [Reopen::Snapshot, Reopen::States] {
        let mut harness = filled(RetentionPolicy::Interest, 0);
        let message = super::harness::Msg { subject: "s.a", body: "x", ..Default::default() };
        harness.send(&vec![message; MESSAGES]);
        harness.commit();
        harness.op(Op::DeleteConsumer { id: STREAM, name: "C".into() }).expect("deleted");
        harness.compact();
        let left = harness.seqs().len();
        assert!((1..MESSAGES).contains(&left), "the sweep is under way: {left}");
        harness.reopen(how);
        for _ in 0..5 {
            harness.tick();
            harness.commit();
        }
        assert_eq!(harness.seqs().len(), 0, "{how:?}");
    }
}
