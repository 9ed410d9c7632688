use super::*;
use nuthatch_log::StreamId;
use nuthatch_protocol::js::{CreateConsumerRequest, Time};

const ID: StreamId = StreamId(1);

/// What a request carries counts, byte by byte: a queue that is bounded by weight is bounded by
/// memory.
#[test]
fn an_operation_weighs_what_it_carries() {
    let small = Op::DeleteStream { id: ID }.weight_bytes();
    assert!(small < 1024, "{small}");
    let text = "a.long.subject.".repeat(10);
    let many: Vec<String> = (0..1_000).map(|n| format!("{text}{n}")).collect();
    let carried: usize = many.iter().map(String::len).sum();
    let config = ConsumerConfig { filter_subjects: many.clone(), ..ConsumerConfig::default() };
    let request = CreateConsumerRequest { config, ..CreateConsumerRequest::default() };
    let streams = StreamConfig { subjects: many.clone(), ..StreamConfig::default() };
    let tagged = StreamConfig {
        metadata: [("key".to_owned(), "v".repeat(carried))].into(),
        ..StreamConfig::default()
    };
    let copy = Replica {
        seq: 1,
        time: Time(1),
        subject: b"s".to_vec(),
        headers: vec![7; carried / 2],
        body: vec![7; carried],
    };
    let seqs = vec![1; carried / 8 + 1];
    let account = crate::AccountId::GLOBAL;
    let heavy = [
        Op::CreateConsumer { id: ID, request: PreparedConsumer::new(request) },
        Op::CreateStream { id: ID, account, config: Box::new(streams) },
        Op::UpdateStream { id: ID, config: Box::new(tagged) },
        Op::Mirror { id: ID, copies: vec![copy.clone()], gap_to: 0 },
        Op::Source { id: ID, copies: vec![copy] },
        Op::Settle { id: ID, state: vec![0; carried] },
        Op::RemoveRestored { id: ID, seqs },
        Op::ReadRange {
            id: ID,
            request: crate::op::RangeRequest { filters: many, ..Default::default() },
        },
    ];
    for op in heavy {
        let weight = op.weight_bytes();
        assert!(weight >= carried, "{weight} for {carried} bytes");
        assert!(weight < 8 * carried, "{weight} for {carried} bytes");
    }
}
