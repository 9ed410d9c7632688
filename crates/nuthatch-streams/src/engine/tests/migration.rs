//! What each log has noted before a stream goes from one to the other.

use super::harness::{Harness, Reopen, STREAM};
use crate::op::{Op, OpOutcome};
use crate::stream::StreamLocation;
use nuthatch_log::StreamId;

fn to() -> StreamLocation {
    StreamLocation { log: "new".into(), stream: StreamId(7) }
}

/// Were it told before, and the power cut, a start would find a stream here that may live elsewhere
/// and says nothing of it.
#[test]
fn a_stream_may_leave_when_its_log_has_durably_noted_where_to() {
    let mut harness = Harness::with_stream(|_| {});
    harness.put("s.a", "x");
    let config = Box::new((*harness.info().config).clone());
    let leave = Op::Leave { id: STREAM, log: "old".into(), to: to(), config };
    let asked = harness.start_op(leave);
    assert!(asked.lock().expect("lock").is_none(), "nothing is told before the frame is durable");
    harness.commit();
    let answer = asked.lock().expect("lock").take();
    assert!(matches!(answer, Some(Ok(OpOutcome::Left { last_seq: 1, .. }))), "{answer:?}");
    harness.reopen(Reopen::Scratch);
    let Ok(OpOutcome::Catalog { streams, .. }) = harness.op(Op::Catalog) else { panic!("catalog") };
    assert_eq!(streams[0].provenance.to, Some(to()));
}

/// Were it told before, and the power cut, the stream would name a copy again that is dropped by then.
#[test]
fn where_a_stream_does_not_go_is_told_when_that_is_durable() {
    let mut harness = Harness::with_stream(|_| {});
    let refused = Some(StreamLocation { log: "old".into(), stream: StreamId(7) });
    let _ = harness.start_op(Op::Stay { id: STREAM, refused: refused.clone() });
    let asked = harness.start_op(Op::GoesTo { id: STREAM });
    assert!(asked.lock().expect("lock").is_none(), "nothing is told before the frame is durable");
    harness.commit();
    let answer = asked.lock().expect("lock").take();
    assert_eq!(answer, Some(Ok(OpOutcome::GoesTo(refused))));
}
