//! The arithmetic of commit positions (M15), and what an owner says of a log that is damaged.

use super::*;
use crate::timing::{LEASE, WINDOW_BYTES};
use crate::types::Incarnation;

fn member(node: u8) -> Member {
    Member { node: NodeId(node), incarnation: Incarnation(node.into()) }
}

/// A log of epoch 1 whose frames have `len` bytes.
fn log(entries: u64, len: u32) -> Chain {
    let mut chain = Chain::default();
    for lsn in (1..=entries).map(Lsn) {
        let start = Body::Start { owner: Incarnation(0) };
        let body = if lsn == Lsn(1) { start } else { Body::Frame { payload: lsn.0, len } };
        let prev = chain.sum_at(lsn.before()).expect("undamaged");
        chain.push(Entry::new(lsn, Epoch(1), prev, lsn.before(), WallTime(0), body));
    }
    chain
}

/// The largest position that a majority has reached, counted naively.
fn counted(positions: &[Lsn]) -> Lsn {
    let reached = |lsn: Lsn| positions.iter().filter(|position| **position >= lsn).count();
    (0..=9)
        .rev()
        .map(Lsn)
        .find(|lsn| reached(*lsn) >= majority(positions.len()))
        .expect("0 is reached")
}

#[test]
fn the_commit_position_is_what_a_majority_has_reached() {
    for members in [3_u32, 5] {
        for n in 0..5_u64.pow(members) {
            let digit = |at| Lsn(n / 5_u64.pow(at) % 5);
            let positions: Vec<Lsn> = (0..members).map(digit).collect();
            assert_eq!(committed(&positions), counted(&positions), "{positions:?}");
        }
    }
}

/// Such a message would be answered and sent again at once, for ever.
#[test]
fn nothing_empty_is_sent_where_the_own_log_is_damaged() {
    let mut chain = log(5, 10);
    chain.damage(Lsn(3));
    assert_eq!(supply(Epoch(1), &chain, Lsn(2), Lsn(5)), None);
    assert_eq!(supply(Epoch(1), &chain, Lsn(3), Lsn(5)), None, "nothing tells what it follows");
    let end = supply(Epoch(1), &chain, Lsn(5), Lsn(5));
    assert!(end.is_some(), "that the log ends there is something to say");
}

#[test]
fn a_message_holds_a_window_of_bytes_or_a_single_entry() {
    let half = (WINDOW_BYTES / 2) as u32;
    for (len, expected) in [(10, 9), (half, 2), (half + 1, 1), (2 * half + 1, 1)] {
        assert_eq!(slice(&log(10, len), Lsn(1), Lsn(10)).len(), expected, "{len}");
    }
}

#[test]
fn a_disk_that_learns_counts_for_nothing() {
    let set = [member(0), member(1), member(2)];
    let mut owner = Owner::new(set[0], Epoch(1), (Lsn(0), Sum(0)), &set, &set[..2], LEASE, Time(0));
    owner.teach(&[member(3)], Time(0));
    assert!(owner.members().all(|member| set.contains(&member)));
    let learner = owner.find(member(3)).expect("it is known");
    let mut out = Out::new(NodeId(0), Incarnation(0));
    owner.advance(learner, Stage::Live);
    owner.last = Lsn(9);
    owner.done(learner, Lsn(9), &mut out);
    owner.done(0, Lsn(9), &mut out);
    assert_eq!(owner.commit(), Lsn(1), "it stands beside the set");
    assert!(owner.has_learnt_but(member(3), 0));
    owner.teach(&[], Time(0));
    assert_eq!(owner.find(member(3)), None, "nobody wants it any more");
}
