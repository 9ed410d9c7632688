//! The table against a map.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Step {
    Push { gap_ns: i64 },
    Skip { by: u64 },
    Remove { at: usize },
    Doom { at: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => prop_oneof![Just(0i64), 1..1000i64, Just(5_000_000_000)]
            .prop_map(|gap_ns| Step::Push { gap_ns }),
        1 => prop_oneof![3 => 1..20u64, 1 => 20..200u64].prop_map(|by| Step::Skip { by }),
        4 => any::<usize>().prop_map(|at| Step::Remove { at }),
        2 => any::<usize>().prop_map(|at| Step::Doom { at }),
    ];
    prop::collection::vec(step, 1..200)
}

/// Sequence → (time, doomed).
type Model = BTreeMap<u64, (i64, bool)>;

fn check(table: &Messages, model: &Model, next: u64, now: i64) {
    let kept = || model.iter().filter(|(_, (_, doomed))| !doomed).map(|(&seq, _)| seq);
    assert_eq!(table.next(), next);
    assert_eq!(table.first(), model.keys().next().copied().unwrap_or(next));
    assert_eq!(table.first_kept(), kept().next().unwrap_or(next));
    let (first, last) = (next / 3, next.saturating_sub(1));
    for seq in 0..next + 2 {
        let expected = model.get(&seq);
        let found = table.get(seq);
        assert_eq!(found.map(|e| (e.timestamp.0, e.is_doomed())), expected.copied(), "{seq}");
        assert_eq!(table.next_live(seq), model.range(seq..).next().map(|(&s, _)| s));
        assert_eq!(table.prev_live(seq), model.range(..=seq).next_back().map(|(&s, _)| s));
        assert_eq!(table.live_between(seq, last), model.range(seq..).count() as u64);
        let up_to = model.range(first.min(seq)..=seq).map(|(seq, _)| weight_of(*seq)).sum::<u64>();
        assert_eq!(table.weight_between(first.min(seq), seq), up_to);
        assert_eq!(table.next_kept(seq), kept().find(|&s| s >= seq));
    }
    for at in [0, now / 2, now, now + 1] {
        let expected = model.iter().find(|(_, (time, _))| *time >= at).map(|(&seq, _)| seq);
        assert_eq!(table.first_at(Timestamp(at)), expected);
    }
    let mut holes = Vec::new();
    table.for_each_hole(|first, last| holes.extend(first..=last));
    let expected: Vec<u64> =
        (table.first_kept()..next).filter(|seq| !kept().any(|k| k == *seq)).collect();
    assert_eq!(holes, expected);
}

fn weight_of(seq: u64) -> u64 {
    100 + seq % 7
}

fn pick(model: &Model, at: usize) -> Option<u64> {
    model.keys().nth(at % model.len().max(1)).copied()
}

proptest! {
    #[test]
    fn the_table_agrees_with_a_map(first in 1..30u64, steps in steps()) {
        let (mut table, mut model, mut next, mut now) = (Messages::new(first), Model::new(), first, 1);
        for step in steps {
            match step {
                Step::Push { gap_ns } => {
                    now += gap_ns;
                    let weight = weight_of(next) as usize;
                    table.push(Entry::new(3, weight, next % 2 == 0, Timestamp(now)));
                    model.insert(next, (now, false));
                    next += 1;
                }
                Step::Skip { by } => {
                    next += by;
                    table.skip_to(next);
                }
                Step::Remove { at } => {
                    if let Some(seq) = pick(&model, at) {
                        let entry = table.remove(seq).expect("was live");
                        prop_assert_eq!(entry.has_headers(), seq % 2 == 0);
                        model.remove(&seq);
                        prop_assert!(table.remove(seq).is_none());
                    }
                }
                Step::Doom { at } => {
                    if let Some(seq) = pick(&model, at) {
                        let doomed = &mut model.get_mut(&seq).expect("is there").1;
                        prop_assert_eq!(table.doom(seq).is_some(), !*doomed);
                        *doomed = true;
                    }
                }
            }
        }
        check(&table, &model, next, now);
    }
}

#[test]
fn a_gap_takes_no_memory_however_wide_it_is() {
    let mut table = Messages::new(1);
    let far = 1 << 60;
    for (seq, at) in [(1, 1), (1 << 34, 2), (far, 3)] {
        table.skip_to(seq);
        table.push(Entry::new(3, 100, false, Timestamp(at)));
    }
    assert_eq!(table.chunks.len(), 3);
    assert!(table.memory_bytes() < 1024, "{} bytes", table.memory_bytes());
    let live = |from| table.next_live(from);
    assert_eq!(
        [live(0), live(2), live((1 << 34) + 1), live(far + 1)],
        [Some(1), Some(1 << 34), Some(far), None]
    );
    assert_eq!(table.prev_live(far - 1), Some(1 << 34));
    assert_eq!((table.live_between(2, far), table.live_between(2, far - 1)), (2, 1));
    assert_eq!(table.first_at(Timestamp(3)), Some(far));
    let mut holes = Vec::new();
    table.for_each_hole(|first, last| holes.push((first, last)));
    assert_eq!(holes, [(2, (1 << 34) - 1), ((1 << 34) + 1, far - 1)]);
    assert!(table.remove(1).is_some());
    assert_eq!((table.first(), table.chunks.len()), (1 << 34, 2));
}
