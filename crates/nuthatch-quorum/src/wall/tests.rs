//! Whose clock is wrong.

use super::*;
use crate::catalog::Phase;
use crate::types::{Epoch, Incarnation, Lsn, Member};

const NOW: Time = Time(50_000_000);
const NOON: WallTime = WallTime(1_700_000_000_000_000);
const HOUR: u64 = 3_600_000_000;

fn row(nodes: u8) -> LogRow {
    let member = |node: u8| Member { node: NodeId(node), incarnation: Incarnation(node.into()) };
    LogRow {
        epoch: Epoch(1),
        owner: None,
        phase: Phase::Serving,
        set: (0..nodes).map(member).collect(),
        start: Lsn(0),
        cuts: vec![],
        origin: Epoch(0),
    }
}

/// Node 0 of a set, its clock at noon, and what the others' show; none of those that are not heard.
fn check(others: &[Option<u64>], wrong: bool, agreed: bool) {
    let mut walls = Walls::default();
    walls.set(NOON, NOW);
    for (at, wall) in others.iter().enumerate() {
        if let Some(wall) = wall {
            walls.heard(NodeId(at as u8 + 1), WallTime(*wall), NOW, NOW);
        }
    }
    let row = row(others.len() as u8 + 1);
    let found = (walls.is_wrong(&row, NodeId(0), NOW), walls.is_agreed(&row, NodeId(0), NOW));
    assert_eq!(found, (wrong, agreed), "{others:?}");
}

#[test]
fn a_majority_decides_whose_clock_is_wrong() {
    let (same, later) = (Some(NOON.0 + 1_900_000), Some(NOON.0 + HOUR));
    let earlier = Some(NOON.0 - HOUR);
    check(&[same, same], false, true);
    check(&[same, later], false, true);
    check(&[later, later], true, false);
    check(&[later, earlier], true, false);
    check(&[later, None], false, false);
    check(&[None, None], false, false);
    check(&[later, later, same, None], false, false);
    check(&[later, earlier, later, same], true, false);
    check(&[later, later, same, same], false, true);
}

#[test]
fn a_jump_of_the_own_clock_shows_at_once_and_a_late_answer_says_nothing() {
    let mut walls = Walls::default();
    let row = row(3);
    walls.set(NOON, NOW);
    walls.heard(NodeId(1), NOON, NOW, NOW);
    walls.heard(NodeId(2), NOON, NOW, NOW.plus(SUSPECT));
    assert!(walls.is_agreed(&row, NodeId(0), NOW) && walls.peers.len() == 1);
    walls.set(WallTime(NOON.0 + HOUR), NOW);
    assert!(!walls.is_agreed(&row, NodeId(0), NOW));
    assert_eq!(walls.mine(NOW.plus(5)), Some(WallTime(NOON.0 + HOUR + 5)));
}
