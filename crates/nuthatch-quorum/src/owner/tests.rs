//! The arithmetic of commit positions (M15).

use super::committed;
use crate::types::{Lsn, majority};

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
