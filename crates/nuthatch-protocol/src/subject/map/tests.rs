//! The map against a `BTreeMap` searched with the definition of matching.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::subject::tests::*;
use proptest::prelude::*;

fn matched(map: &SubjectMap, pattern: &str) -> Vec<String> {
    let mut names = Vec::new();
    map.for_each_match(pattern.as_bytes(), |id, name| {
        assert_eq!(map.name(id), name);
        names.push(String::from_utf8(name.to_vec()).unwrap());
    });
    names.sort();
    names
}

#[test]
fn patterns_on_a_few_subjects() {
    let mut map = SubjectMap::default();
    for subject in ["a", "a.b", "a.b.c", "a.x.c", "b.b.c", "z.y.x.w"] {
        map.intern(subject.as_bytes());
    }
    assert_eq!(matched(&map, "a"), ["a"]);
    assert_eq!(matched(&map, "*"), ["a"]);
    assert_eq!(matched(&map, "a.>"), ["a.b", "a.b.c", "a.x.c"]);
    assert_eq!(matched(&map, "a.*"), ["a.b"]);
    assert_eq!(matched(&map, "a.*.c"), ["a.b.c", "a.x.c"]);
    assert_eq!(matched(&map, "*.b.*"), ["a.b.c", "b.b.c"]);
    assert_eq!(matched(&map, "*.*.*.*"), ["z.y.x.w"]);
    assert_eq!(matched(&map, "z.y.>"), ["z.y.x.w"]);
    assert_eq!(matched(&map, ">").len(), 6);
    assert!(matched(&map, "z.y").is_empty() && matched(&map, "q.>").is_empty());
    assert!(map.find_match(b">", |_, _| true));
    assert!(!map.find_match(b"q.*", |_, _| true));
}

#[test]
fn numbers_are_dense_and_reused() {
    let mut map = SubjectMap::default();
    let long = "orders.a-rather-long-customer-name.shipped";
    let (a, b) = (map.intern(b"a.b"), map.intern(long.as_bytes()));
    assert_eq!((a, b, map.len(), map.id_bound()), (SubjectId(0), SubjectId(1), 2, 2));
    let before = map.generation(a);
    assert!(map.release(a) && !map.release(a));
    assert_eq!(map.lookup(b"a.b"), None);
    assert_eq!(map.name(a), b"");
    assert_eq!(map.intern(b"c"), a);
    assert_ne!(map.generation(a), before);
    assert_eq!(map.name(a), b"c");
    assert!(map.release(a) && map.release(b));
    assert_eq!((map.len(), map.branches.live(), map.name_bytes), (0, 0, 0));
    assert!(!map.release(SubjectId(77)));
    assert_eq!((map.name(SubjectId(77)), map.generation(SubjectId(77))), (&b""[..], 0));
}

#[test]
fn odd_subjects_do_not_panic() {
    let mut map = SubjectMap::default();
    let odd = ["", ".", "..", ".a", "a.", "a..b", ".a.b", "*", ">", "a.>", "a.>.b", "*.a"];
    for subject in odd {
        map.intern(subject.as_bytes());
    }
    for pattern in odd {
        matched(&map, pattern);
    }
    for subject in odd {
        let id = map.lookup(subject.as_bytes()).unwrap();
        assert!(map.release(id));
    }
    assert_eq!((map.len(), map.branches.live()), (0, 0));
}

/// The promise of the module header, on the shapes streams have.
#[test]
fn memory_per_subject_is_bounded() {
    for format in [|i: u32| format!("kv.key-{i}"), |i: u32| format!("orders.{i}.status")] {
        let mut map = SubjectMap::default();
        let count = 100_000;
        for i in 0..count {
            map.intern(format(i).as_bytes());
        }
        let each = map.memory_bytes() / count as usize;
        assert!(each <= 130, "{each} bytes per subject such as {}", format(0));
    }
}

proptest! {
    #[test]
    fn agrees_with_a_sorted_map(
        steps in prop::collection::vec((literal(), any::<bool>()), 1..80),
        patterns in prop::collection::vec(pattern(), 1..8),
    ) {
        let mut map = SubjectMap::default();
        let mut model: BTreeMap<String, SubjectId> = BTreeMap::new();
        for (subject, remove) in steps {
            let known = model.get(&subject).copied();
            prop_assert_eq!(map.lookup(subject.as_bytes()), known);
            match known {
                Some(id) if remove => {
                    prop_assert!(map.release(id));
                    model.remove(&subject);
                }
                Some(id) => prop_assert_eq!(map.intern(subject.as_bytes()), id),
                None => {
                    let id = map.intern(subject.as_bytes());
                    prop_assert!(!model.values().any(|&other| other == id));
                    model.insert(subject, id);
                }
            }
            prop_assert_eq!(map.len(), model.len());
        }
        for pattern in &patterns {
            let wanted: Vec<_> =
                model.keys().filter(|subject| naive_match(pattern, subject)).cloned().collect();
            prop_assert_eq!(matched(&map, pattern), wanted);
        }
        let all: BTreeSet<_> = map.iter().map(|(id, name)| (name.to_vec(), id)).collect();
        let expected: BTreeSet<_> =
            model.iter().map(|(name, id)| (name.as_bytes().to_vec(), *id)).collect();
        prop_assert_eq!(all, expected);
    }
}
