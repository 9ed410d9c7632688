//! Consumers that serve copies elsewhere, consumers that flow control acknowledges, and a new consumer
//! that waits until its creation is answered.

use super::harness::{Harness, Reopen, STREAM};
use crate::consumer::PreparedConsumer;
use crate::event::{ClientBatch, Event, FlowItem, Item, Span};
use crate::op::{Op, OpOutcome, OpResult};
use nuthatch_protocol::js::{
    AckPolicy, ConsumerConfig, CreateConsumerRequest, DeliverPolicy, RetentionPolicy,
};

/// A consumer that a copy of a limits stream asks for.
fn direct(config: &mut ConsumerConfig) {
    config.durable_name = String::new();
    (config.ack_policy, config.direct) = (AckPolicy::None, true);
    config.deliver_subject = "to".into();
}

/// A consumer that a copy of a stream asks for that keeps messages for its consumers.
fn sourcing(config: &mut ConsumerConfig) {
    (config.ack_policy, config.sourcing) = (AckPolicy::FlowControl, true);
    config.deliver_subject = "to".into();
}

fn names(harness: &mut Harness) -> (usize, Vec<String>) {
    let op = Op::ListConsumers { id: STREAM, offset: 0, limit: 10, names_only: true };
    match harness.op(op) {
        Ok(OpOutcome::Consumers { total, names, .. }) => (total, names),
        other => panic!("no names: {other:?}"),
    }
}

fn refused(result: OpResult) -> u16 {
    result.expect_err("refused").err_code
}

#[test]
fn consumers_of_copies_are_neither_listed_nor_limited_nor_kept() {
    let mut harness = Harness::with_stream(|c| c.max_consumers = 1);
    harness.put("s.a", "x");
    harness.consumer("d", direct).expect("created");
    harness.consumer("c", |_| {}).expect("the direct one does not count");
    harness.consumer("e", direct).expect("it is not counted");
    assert_eq!(refused(harness.consumer("f", |_| {})), 10026);
    harness.commit();
    assert_eq!(names(&mut harness), (1, vec!["c".to_owned()]));
    assert_eq!(harness.info().state.consumer_count, 1);
    assert!(harness.consumer_info("d").is_some());
    harness.reopen(Reopen::Scratch);
    assert!(harness.consumer_info("d").is_none() && harness.consumer_info("c").is_some());
    assert_eq!(names(&mut harness).0, 1);
}

/// An answer to the flow control request that came last, which names these numbers.
fn answer_flow(harness: &mut Harness, consumer_seq: u64, stream_seq: u64) {
    let subject = std::mem::take(&mut harness.engine.sink_mut().flow);
    let headers = format!(
        "NATS/1.0\r\nNats-Last-Consumer: {consumer_seq}\r\nNats-Last-Stream: {stream_seq}\r\n\r\n"
    );
    let mut buf = Vec::new();
    let mut span = |text: &str| {
        let start = buf.len() as u32;
        buf.extend_from_slice(text.as_bytes());
        Span { start, end: buf.len() as u32 }
    };
    let (consumer, subject, headers) = (span("c"), span(&subject), span(&headers));
    let items = vec![Item::Flow(FlowItem { stream: STREAM, consumer, subject, headers })];
    harness.step(Event::Batch(ClientBatch { peer: 7, buf: buf.into(), items }));
}

#[test]
fn flow_control_lets_go_what_an_interest_stream_kept_and_a_restart_knows_it() {
    let mut harness = Harness::with_stream(|c| c.retention = RetentionPolicy::Interest);
    harness
        .consumer("c", |config| {
            sourcing(config);
            config.max_ack_pending = 2;
        })
        .expect("created");
    (0..4).for_each(|_| drop(harness.put("s.a", "x")));
    harness.commit();
    assert_eq!(harness.seqs(), [1, 2, 3, 4]);
    answer_flow(&mut harness, 2, 2);
    harness.commit();
    assert_eq!(harness.seqs(), [3, 4]);
    let info = harness.consumer_info("c").expect("info");
    assert_eq!((info.ack_floor.stream_seq, info.num_ack_pending), (2, 2));
    for reopen in [Reopen::Scratch, Reopen::Snapshot] {
        harness.reopen(reopen);
        let info = harness.consumer_info("c").expect("info");
        assert_eq!((info.ack_floor.stream_seq, info.num_ack_pending), (2, 2));
        assert_eq!(info.config.ack_policy, AckPolicy::FlowControl);
        assert_eq!(harness.seqs(), [3, 4]);
    }
}

#[test]
fn a_copy_that_begins_anew_finds_its_consumer_behind_what_it_let_go() {
    let mut harness = Harness::with_stream(|c| c.retention = RetentionPolicy::Workqueue);
    (0..4).for_each(|_| drop(harness.put("s.a", "x")));
    let ask = |harness: &mut Harness, adapt: fn(&mut ConsumerConfig)| {
        harness.consumer("c", |config| {
            sourcing(config);
            adapt(config);
        })
    };
    ask(&mut harness, |config| config.max_ack_pending = 2).expect("created");
    harness.commit();
    harness.engine.sink_mut().delivered.clear();
    // Whatever start it asks for, also with the same configuration.
    let again = ask(&mut harness, |config| {
        config.max_ack_pending = 2;
        (config.deliver_policy, config.opt_start_seq) = (DeliverPolicy::ByStartSequence, 3);
    });
    let Ok(OpOutcome::Consumer(info)) = again else { panic!("not found: {again:?}") };
    assert_eq!((info.delivered.consumer_seq, info.delivered.stream_seq), (0, 0));
    assert_eq!(info.config.deliver_policy, DeliverPolicy::All);
    harness.commit();
    assert_eq!(harness.engine.sink_mut().delivered.len(), 2, "from the first one on");
}

#[test]
fn a_new_consumer_waits_until_its_creation_is_answered() {
    let mut harness = Harness::with_stream(|_| {});
    harness.put("s.a", "x");
    let create = |harness: &mut Harness, name: &str| {
        let mut config = ConsumerConfig { name: name.into(), ..ConsumerConfig::default() };
        config.deliver_subject = "to".into();
        let request = CreateConsumerRequest { stream_name: "S".into(), config, ..<_>::default() };
        let request = PreparedConsumer::new(request).held();
        let created = harness.op(Op::CreateConsumer { id: STREAM, request });
        harness.commit();
        let Ok(OpOutcome::Consumer(info)) = created else { panic!("{created:?}") };
        assert_eq!(info.num_pending, 1);
        harness.engine.sink_mut().delivered.len()
    };
    assert_eq!(create(&mut harness, "c"), 0);
    let start = |name: &str| Op::StartConsumer { id: STREAM, name: name.into() };
    assert_eq!(harness.op(start("c")), Ok(OpOutcome::Done));
    assert_eq!(harness.engine.sink_mut().delivered.len(), 1);
    assert_eq!(refused(harness.op(start("nobody"))), 10014);
    // Should nobody say so, it waits a second.
    assert_eq!(create(&mut harness, "d"), 1);
    harness.pass_ms(1_100);
    harness.tick();
    assert_eq!(harness.engine.sink_mut().delivered.len(), 2);
}
