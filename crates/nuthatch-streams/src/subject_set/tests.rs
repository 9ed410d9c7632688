use super::*;
use nuthatch_protocol::subject::{is_subset, matches, overlap};
use proptest::prelude::*;
use std::cell::Cell;

thread_local! {
    static STEPS: Cell<usize> = const { Cell::new(0) };
}

/// Called for each token of a list, each comparison of two nodes and each child looked at.
pub(super) fn note_steps(more: usize) {
    STEPS.set(STEPS.get() + more);
}

/// The steps that this thread has taken in some work.
pub(crate) fn steps_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = STEPS.get();
    let done = work();
    (done, STEPS.get() - before)
}

fn pair(subjects: &[String], relation: Relation) -> Option<(usize, usize)> {
    first_pair(subjects.iter().map(String::as_bytes), relation, STEPS_MAX).expect("checked")
}

/// The same by comparing every subject with every other one.
fn pair_by_pair(subjects: &[String], relation: Relation) -> Option<(usize, usize)> {
    let count = subjects.len();
    let stand = |&(i, j): &(usize, usize)| {
        let (a, b) = (subjects[i].as_bytes(), subjects[j].as_bytes());
        match relation {
            Relation::Overlap => i < j && overlap(a, b),
            Relation::Within => i != j && is_subset(a, b),
        }
    };
    (0..count).flat_map(|i| (0..count).map(move |j| (i, j))).find(stand)
}

fn subject() -> impl Strategy<Value = String> {
    let token = prop_oneof![3 => "[a-c]", 1 => Just("*".to_owned())];
    (prop::collection::vec(token, 1..5), prop::bool::weighted(0.15)).prop_map(
        |(mut tokens, rest)| {
            if rest {
                tokens.pop();
                tokens.push(">".to_owned());
            }
            tokens.join(".")
        },
    )
}

proptest! {
    #[test]
    fn the_walk_finds_what_comparing_all_pairs_finds(
        subjects in prop::collection::vec(subject(), 0..12)
    ) {
        for relation in [Relation::Overlap, Relation::Within] {
            let (found, expected) = (pair(&subjects, relation), pair_by_pair(&subjects, relation));
            match relation {
                Relation::Overlap => prop_assert_eq!(found, expected),
                // Of equal ones only the first is compared with the others.
                Relation::Within => prop_assert_eq!(found.map(|p| p.0), expected.map(|p| p.0)),
            }
        }
    }

    #[test]
    fn a_tree_answers_as_each_of_its_patterns(
        patterns in prop::collection::vec(subject(), 0..12),
        literal in prop::collection::vec("[a-c]", 1..5),
        other in subject(),
    ) {
        let tree = PatternTree::new(patterns.iter().map(String::as_bytes));
        let literal = literal.join(".");
        let any = |test: fn(&[u8], &[u8]) -> bool, with: &str| {
            patterns.iter().any(|pattern| test(pattern.as_bytes(), with.as_bytes()))
        };
        prop_assert_eq!(tree.matches(literal.as_bytes()), any(matches, &literal));
        prop_assert_eq!(tree.overlaps(other.as_bytes()), any(overlap, &other));
    }
}

/// Steps for each subject of up to twenty tokens: each is put into the tree, and each node is compared
/// with itself and with few others. Comparing all pairs takes 50,000.
const STEPS_EACH: usize = 100;

#[test]
fn a_hundred_thousand_subjects_are_compared_in_few_steps_each() {
    let shapes: [fn(usize) -> String; 5] = [
        |n| format!("orders.{n}"),
        |n| format!("orders.{n}.>"),
        |n| format!("*.eu.{n}.*.x"),
        |n| if n % 2 == 0 { format!("a.*.b{n}") } else { format!("a.c{n}.d{n}") },
        |n| {
            (0..17).map(|bit| if n >> bit & 1 == 1 { "x." } else { "y." }).collect::<String>() + "z"
        },
    ];
    for shape in shapes {
        let subjects: Vec<String> = (0..100_000).map(shape).collect();
        for relation in [Relation::Overlap, Relation::Within] {
            let (found, steps) = steps_of(|| pair(&subjects, relation));
            assert_eq!(found, None, "{}", subjects[1]);
            assert!(steps > subjects.len(), "{steps} steps are not all of them");
            assert!(steps < STEPS_EACH * subjects.len(), "{}: {steps} steps", subjects[1]);
        }
    }
}

#[test]
fn what_no_method_checks_quickly_is_refused() {
    // Every subject says at some of 30 places what it wants there, and each two of them differ in
    // one place only that both say.
    let subjects: Vec<String> = (0..60_000_u32)
        .map(|n| {
            let token = |bit: u32| match (n.wrapping_mul(2_654_435_761) >> (bit % 16)) % 3 {
                0 => "*".to_owned(),
                other => format!("{other}"),
            };
            (0..30).map(token).collect::<Vec<_>>().join(".") + &format!(".{n}")
        })
        .collect();
    let (found, steps) = steps_of(|| {
        first_pair(subjects.iter().map(String::as_bytes), Relation::Overlap, STEPS_MAX)
    });
    assert_eq!(found, Err(TooTangled { steps_max: STEPS_MAX }));
    assert!(steps < 2 * STEPS_MAX + STEPS_EACH * subjects.len(), "{steps} steps");
}

#[test]
fn a_subject_of_many_tokens_needs_no_stack() {
    let long = |last: &str| "a.".repeat(200_000) + last;
    assert_eq!(pair(&[long("x"), long("y")], Relation::Overlap), None);
    assert_eq!(pair(&[long("x"), long(">")], Relation::Overlap), Some((0, 1)));
}
