//! Where two logs part.

use super::*;

fn starts(list: &[(u32, u64)]) -> Vec<EpochStart> {
    list.iter().map(|(epoch, lsn)| EpochStart { epoch: Epoch(*epoch), lsn: Lsn(*lsn) }).collect()
}

fn check(a: (&[(u32, u64)], u64), b: (&[(u32, u64)], u64), expected: u64) {
    let (left, right) = (starts(a.0), starts(b.0));
    let found = common((&left, Lsn(a.1)), (&right, Lsn(b.1)));
    assert_eq!(found, Lsn(expected), "{a:?} {b:?}");
}

#[test]
fn logs_have_in_common_what_the_same_epochs_wrote() {
    check((&[], 0), (&[(1, 1)], 5), 0);
    check((&[(1, 1)], 3), (&[(1, 1)], 5), 3);
    check((&[(1, 1), (2, 4)], 6), (&[(1, 1)], 5), 3);
    check((&[(1, 1), (2, 4)], 6), (&[(1, 1), (3, 5)], 9), 3);
    check((&[(1, 1), (2, 4), (4, 8)], 9), (&[(1, 1), (2, 4)], 12), 7);
    check((&[(1, 1)], 4), (&[(2, 1)], 4), 0);
}

#[test]
fn a_changed_entry_is_not_intact() {
    let entry = Entry::new(
        Lsn(4),
        Epoch(2),
        Sum(9),
        Lsn(3),
        WallTime(7),
        Body::Frame { payload: 5, len: 6 },
    );
    assert!(entry.is_intact());
    for changed in [
        Entry { lsn: Lsn(5), ..entry },
        Entry { epoch: Epoch(3), ..entry },
        Entry { prev: Sum(8), ..entry },
        Entry { commit: Lsn(4), ..entry },
        Entry { stamp: WallTime(8), ..entry },
        Entry { body: Body::Frame { payload: 6, len: 6 }, ..entry },
        Entry { body: Body::Frame { payload: 5, len: 7 }, ..entry },
    ] {
        assert!(!changed.is_intact(), "{changed:?}");
    }
}
