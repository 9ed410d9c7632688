//! Where two logs part.

use super::*;

fn starts(list: &[(u32, u64)]) -> Vec<EpochStart> {
    list.iter().map(|(epoch, lsn)| EpochStart { epoch: Epoch(*epoch), lsn: Lsn(*lsn) }).collect()
}

/// A log: its last trimmed entry, where its epochs begin, its last entry.
type Log<'a> = (u64, &'a [(u32, u64)], u64);

fn check_behind(a: Log<'_>, b: Log<'_>, expected: u64) {
    let (left, right) = (starts(a.1), starts(b.1));
    let extent = |log: Log<'_>, starts| Extent { base: Lsn(log.0), starts, last: Lsn(log.2) };
    let found = common(extent(a, &left), extent(b, &right));
    assert_eq!(found, Lsn(expected), "{a:?} {b:?}");
}

fn check(a: (&[(u32, u64)], u64), b: (&[(u32, u64)], u64), expected: u64) {
    check_behind((0, a.0, a.1), (0, b.0, b.1), expected);
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
fn what_is_trimmed_in_both_logs_is_common() {
    // One was trimmed within epoch 2, the other one holds all.
    check_behind((6, &[(2, 4)], 9), (0, &[(1, 1), (2, 4)], 7), 7);
    check_behind((6, &[(2, 4), (4, 8)], 9), (0, &[(1, 1), (2, 4)], 12), 7);
    // Nothing is known of the epochs before the base's.
    check_behind((6, &[(2, 4)], 9), (0, &[(1, 1)], 7), 0);
    check_behind((6, &[(2, 4)], 9), (3, &[(1, 1)], 7), 3);
    check_behind((6, &[(2, 4)], 9), (6, &[(2, 4)], 6), 6);
}

#[test]
fn a_trimmed_chain_knows_what_its_base_was() {
    let mut whole = Chain::default();
    for (lsn, epoch) in [(1, 1), (2, 1), (3, 2), (4, 2), (5, 2)] {
        let prev = whole.sum_at(whole.last()).expect("readable");
        let body = match lsn {
            1 | 3 => Body::Start { owner: Incarnation(5) },
            _ => Body::Frame { payload: lsn, len: 1 },
        };
        let commit = Lsn(lsn.saturating_sub(2));
        whole.push(Entry::new(Lsn(lsn), Epoch(epoch), prev, commit, WallTime(lsn), body));
    }
    assert_eq!(whole.known_commit(), Lsn(3));
    let mut chain = whole.clone();
    chain.trim(whole.base_at(Lsn(4)).expect("an entry"));
    assert_eq!((chain.base().lsn, chain.last(), chain.known_commit()), (Lsn(4), Lsn(5), Lsn(4)));
    assert_eq!((chain.get(Lsn(4)), chain.get(Lsn(5))), (None, whole.get(Lsn(5))));
    assert_eq!(chain.sum_at(Lsn(4)), whole.sum_at(Lsn(4)));
    assert_eq!(chain.position(), whole.position());
    assert_eq!(chain.starts(), starts(&[(2, 3)]));
    chain.trim(whole.base_at(Lsn(5)).expect("an entry"));
    assert_eq!(chain.position(), whole.position());
    assert_eq!(chain.sum_at(chain.last()), whole.sum_at(Lsn(5)));
    chain.push(Entry::new(
        Lsn(6),
        Epoch(2),
        chain.base().sum,
        Lsn(5),
        WallTime(6),
        Body::Frame { payload: 6, len: 1 },
    ));
    assert!(!chain.damage(Lsn(4)), "what is trimmed is not damaged");
    assert_eq!(chain.first_damaged(), None);
    chain.cut(Lsn(5));
    assert_eq!(chain.last(), Lsn(5));
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
