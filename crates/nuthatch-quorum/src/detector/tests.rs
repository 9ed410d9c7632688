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
    }
}

/// When a node that has heard nothing since 0 suspects, in steps of a tick.
fn suspects_at(row: &LogRow, node: u8, reset: bool) -> Time {
    let mut detector = Detector::new(NodeId(node), Time(0));
    if reset {
        detector.owner_reset();
    }
    let mut ticks = (0..).map(|tick| Time(tick * TICK));
    ticks.find(|now| detector.suspects(row, *now)).expect("in the end")
}

/// M14: with equal clocks and no jitter at all no two nodes suspect within several round trips.
#[test]
fn m14_no_two_nodes_suspect_at_one_moment() {
    for (nodes, reset) in [(3, false), (3, true), (5, false), (5, true)] {
        for owner in [None].into_iter().chain((0..nodes).map(Some)) {
            let row = row(owner, nodes);
            let mut moments: Vec<Time> =
                (0..nodes).map(|node| suspects_at(&row, node, reset)).collect();
            moments.sort_unstable();
            let apart = moments.windows(2).all(|pair| pair[1].since(pair[0]) >= RANK_WAIT - TICK);
            assert!(apart, "{owner:?} of {nodes}: {moments:?}");
        }
    }
}
