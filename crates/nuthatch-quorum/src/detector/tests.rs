//! Who suspects first.

use super::*;
use crate::catalog::Phase;
use crate::timing::TICK;
use crate::types::{Incarnation, Lsn, Member};

fn row(owner: Option<u8>, nodes: u8) -> LogRow {
    let member = |node: u8| Member { node: NodeId(node), incarnation: Incarnation(node.into()) };
    LogRow {
        epoch: Epoch(1),
        owner: owner.map(member),
        phase: Phase::Serving,
        set: (0..nodes).map(member).collect(),
        start: Lsn(0),
        cuts: vec![],
        origin: Epoch(0),
    }
}

/// When a node that has heard nothing since 0 suspects, in steps of a tick.
fn suspects_at(row: &LogRow, node: u8, unfit: bool, reset: bool) -> Time {
    let mut detector = Detector::new(NodeId(node), Time(0));
    if reset {
        detector.owner_reset();
    }
    let mut ticks = (0..).map(|tick| Time(tick * TICK));
    ticks.find(|now| detector.suspects(row, unfit, *now)).expect("in the end")
}

/// After a reset a healthy owner is not waited for; who says that there is one is asked again.
#[test]
fn a_reset_is_believed_before_a_beat_that_was_heard_earlier() {
    let (row, now) = (row(Some(0), 3), Time(10 * SUSPECT));
    let mut detector = Detector::new(NodeId(1), Time(0));
    detector.heard_owner(Epoch(1), true, Epoch(1), now);
    assert!(detector.has_healthy(now) && !detector.suspects(&row, false, now.plus(LEASE)));
    detector.owner_reset();
    assert!(!detector.has_healthy(now) && detector.suspects(&row, false, now));
    for pause in [BEAT, 2 * BEAT, 4 * BEAT, 8 * BEAT, SUSPECT, SUSPECT] {
        detector.denied(now);
        assert!(!detector.suspects(&row, false, now.plus(pause - 1)));
        assert!(detector.suspects(&row, false, now.plus(pause)) && !detector.has_healthy(now));
    }
    detector.heard_owner(Epoch(1), true, Epoch(1), now);
    assert!(detector.has_healthy(now) && !detector.suspects(&row, false, now.plus(LEASE)));
}

/// M14: with equal clocks and no jitter at all no two nodes suspect within several round trips.
#[test]
fn m14_no_two_nodes_suspect_at_one_moment() {
    for (nodes, reset) in [(3, false), (3, true), (5, false), (5, true)] {
        for owner in [None].into_iter().chain((0..nodes).map(Some)) {
            let row = row(owner, nodes);
            let mut moments: Vec<Time> =
                (0..nodes).map(|node| suspects_at(&row, node, false, reset)).collect();
            moments.sort_unstable();
            let apart = moments.windows(2).all(|pair| pair[1].since(pair[0]) >= RANK_WAIT - TICK);
            assert!(apart, "{owner:?} of {nodes}: {moments:?}");
        }
    }
}

#[test]
fn a_node_that_had_better_not_own_the_log_suspects_after_all_others() {
    for (nodes, reset) in [(3, false), (3, true), (5, true)] {
        for unfit in 0..nodes {
            let row = row(Some(0), nodes);
            let at = |node| suspects_at(&row, node, node == unfit, reset);
            let others = (0..nodes).filter(|node| *node != unfit).map(at).max();
            assert!(Some(at(unfit)) > others, "{unfit} of {nodes}");
        }
    }
}

#[test]
fn a_node_that_is_not_cold_does_not_wait_for_those_that_are() {
    let row = row(Some(0), 4);
    let waits = |node: u8, cold: &[u8]| {
        let mut detector = Detector::new(NodeId(node), Time(0));
        cold.iter().for_each(|cold| detector.heard_cold(NodeId(*cold), true));
        detector.owner_reset();
        let at = |tick: &u64| detector.suspects(&row, cold.contains(&node), Time(tick * TICK));
        (0..).find(|tick| at(tick)).expect("some day") * TICK / RANK_WAIT
    };
    assert_eq!([1, 2, 3].map(|node| waits(node, &[])), [0, 1, 2]);
    assert_eq!([1, 2, 3].map(|node| waits(node, &[1])), [4, 0, 1]);
    assert_eq!([1, 2, 3].map(|node| waits(node, &[1, 2])), [4, 5, 0]);
    // They do not all come first, either.
    assert_eq!([1, 2, 3].map(|node| waits(node, &[1, 2, 3])), [4, 5, 6]);
}
