//! The tree against a list that is searched with the definition of matching.

use super::*;
use crate::subject::{overlap, tests::*};
use proptest::prelude::*;

/// One subscription of the model.
type Entry = (String, Option<&'static str>, u32);

fn found(tree: &SubjectTree<u32>, subject: &str) -> Vec<(Option<Vec<u8>>, u32)> {
    let mut result = MatchResult::default();
    tree.match_into(subject.as_bytes(), &mut result);
    let mut all: Vec<_> = result.plain().iter().map(|&value| (None, value)).collect();
    let mut groups = Vec::new();
    for (id, members) in result.groups() {
        let name = tree.queue_name(id).to_vec();
        assert!(!groups.contains(&name), "each group once");
        groups.push(name.clone());
        all.extend(members.iter().map(|&(_, value)| (Some(name.clone()), value)));
    }
    assert_eq!(tree.has_interest(subject.as_bytes()), !result.is_empty());
    all.sort();
    all
}

fn overlapping(tree: &SubjectTree<u32>, pattern: &str) -> Vec<(Option<Vec<u8>>, u32)> {
    let mut all = Vec::new();
    tree.for_each_overlapping(pattern.as_bytes(), |queue, &value| {
        all.push((queue.map(|id| tree.queue_name(id).to_vec()), value));
    });
    all.sort();
    all
}

fn expected(model: &[Entry], wanted: impl Fn(&str) -> bool) -> Vec<(Option<Vec<u8>>, u32)> {
    let mut all: Vec<_> = model
        .iter()
        .filter(|(pattern, ..)| wanted(pattern))
        .map(|(_, queue, value)| (queue.map(|name| name.as_bytes().to_vec()), *value))
        .collect();
    all.sort();
    all
}

#[test]
fn groups_join_across_patterns() {
    let mut tree = SubjectTree::default();
    tree.insert(b"a.*", Some(b"q"), 1);
    tree.insert(b"a.b", Some(b"q"), 2);
    tree.insert(b"a.>", Some(b"r"), 3);
    tree.insert(b"a.b", None, 4);
    let mut result = MatchResult::default();
    tree.match_into(b"a.b", &mut result);
    assert_eq!(result.plain(), [4]);
    let sizes: Vec<_> = result.groups().map(|(_, members)| members.len()).collect();
    assert_eq!(sizes.iter().sum::<usize>(), 3);
    assert_eq!(sizes.len(), 2);
    result.clear();
    assert!(result.is_empty());
}

#[test]
fn empty_tokens_match_nothing() {
    let mut tree = SubjectTree::default();
    for pattern in [">", "a.>", "a.*.b", "*"] {
        tree.insert(pattern.as_bytes(), None, 1);
    }
    for subject in ["", ".", "a.", "a..b", ".a"] {
        assert!(found(&tree, subject).is_empty(), "{subject:?}");
    }
    assert_eq!(found(&tree, "a.x.b").len(), 3);
}

#[test]
fn removing_everything_frees_every_node() {
    let mut tree = SubjectTree::default();
    let patterns: Vec<String> =
        (0..1000).map(|i| format!("a.{}.{}", i % 7, ["b", "*", ">"][i % 3])).collect();
    for round in 0..3 {
        for (i, pattern) in patterns.iter().enumerate() {
            tree.insert(pattern.as_bytes(), (i % 2 == 0).then_some(b"q"), i);
        }
        assert_eq!(tree.len(), 1000);
        let nodes = tree.nodes.len();
        for (i, pattern) in patterns.iter().enumerate() {
            let queue: Option<&[u8]> = if i % 2 == 0 { Some(b"q") } else { None };
            assert_eq!(tree.remove(pattern.as_bytes(), queue, &i), Some(i));
        }
        assert!(tree.is_empty() && tree.children.is_empty() && tree.queue_count() == 0);
        assert!(tree.nodes[ROOT as usize].is_unused());
        assert!(tree.nodes.len() <= nodes, "nodes are reused in round {round}");
    }
    assert_eq!(tree.remove(b"a.0.b", None, &1), None);
    assert_eq!(tree.remove(b"zz", Some(b"q"), &1), None);
}

#[test]
fn memory_is_given_back_when_most_are_gone() {
    let mut tree = SubjectTree::default();
    let pattern = |i: u32| format!("s{}.{}.x{i}", i % 10, ["b", "*", "c"][i as usize % 3]);
    let queue = |i: u32| i.is_multiple_of(2).then_some(&b"q"[..]);
    let insert = |tree: &mut SubjectTree<u32>, range: std::ops::Range<u32>| {
        range.for_each(|i| tree.insert(pattern(i).as_bytes(), queue(i), i));
    };
    insert(&mut tree, 0..50_000);
    let full = tree.memory_bytes();
    for i in 100..50_000 {
        assert_eq!(tree.remove(pattern(i).as_bytes(), queue(i), &i), Some(i));
    }
    assert!(tree.memory_bytes() < full / 20, "{} of {full}", tree.memory_bytes());
    for i in 0..100 {
        let subject = pattern(i).replace('*', "any");
        assert!(found(&tree, &subject).iter().any(|(_, value)| *value == i), "{i}");
    }
    assert_eq!(overlapping(&tree, ">").len(), 100);
    insert(&mut tree, 100..2000);
    for i in 0..2000 {
        assert_eq!(tree.remove(pattern(i).as_bytes(), queue(i), &i), Some(i));
    }
    assert!(tree.is_empty() && tree.queue_count() == 0);
}

/// Results of one search that is interrupted after every `steps`, and how often it was.
fn in_parts(tree: &SubjectTree<u32>, pattern: &str, steps: usize) -> (Vec<u32>, usize) {
    let (mut all, mut interrupted) = (Vec::new(), 0);
    let mut search = OverlapSearch::new(pattern.as_bytes());
    loop {
        let outcome = search.search(tree, &mut steps.clone(), |_, &value| {
            all.push(value);
            false
        });
        match outcome {
            SearchOutcome::Interrupted => interrupted += 1,
            SearchOutcome::Nothing => break,
            SearchOutcome::Found => panic!("none is wanted"),
        }
    }
    all.sort_unstable();
    (all, interrupted)
}

#[test]
fn a_search_takes_no_more_steps_than_it_may() {
    let mut tree = SubjectTree::default();
    for i in 0..1000 {
        tree.insert(format!("a.b{i}.s").as_bytes(), None, i);
    }
    assert_eq!(tree.any_overlapping(b"a.*.t", 100, |_| true), None);
    assert_eq!(tree.any_overlapping(b"a.*.t", 10_000, |_| true), Some(false));
    assert_eq!(tree.any_overlapping(b"a.*.s", 100, |_| true), Some(true));
    assert_eq!(tree.any_overlapping(b"a.b7.t.>", 100, |_| true), Some(false));
    let (found, interrupted) = in_parts(&tree, "a.*.*", 100);
    assert!(found.len() == 1000 && interrupted >= 20, "{interrupted}");
    // What changed meanwhile makes it begin anew.
    let mut search = OverlapSearch::new(b"a.*.s");
    let outcome = search.search(&tree, &mut 100, |_, &i| i == 1001);
    assert_eq!(outcome, SearchOutcome::Interrupted);
    for i in 0..1000 {
        assert_eq!(tree.remove(format!("a.b{i}.s").as_bytes(), None, &i), Some(i));
    }
    tree.insert(b"a.b.s", None, 1001);
    let outcome = search.search(&tree, &mut 100, |_, &i| i == 1001);
    assert_eq!(outcome, SearchOutcome::Found);
}

proptest! {
    #[test]
    fn agrees_with_the_definition(
        steps in prop::collection::vec((pattern(), 0..3usize, any::<bool>()), 1..60),
        subjects in prop::collection::vec(literal(), 1..10),
        queries in prop::collection::vec(pattern(), 1..5),
    ) {
        let mut tree = SubjectTree::default();
        let mut model: Vec<Entry> = Vec::new();
        for (number, (pattern, queue, remove)) in steps.into_iter().enumerate() {
            if remove && !model.is_empty() {
                let (pattern, queue, value) = model.swap_remove(number % model.len());
                let queue = queue.map(str::as_bytes);
                prop_assert_eq!(tree.remove(pattern.as_bytes(), queue, &value), Some(value));
                prop_assert_eq!(tree.remove(pattern.as_bytes(), queue, &value), None);
            } else {
                let queue = [None, Some("q"), Some("r")][queue];
                tree.insert(pattern.as_bytes(), queue.map(str::as_bytes), number as u32);
                model.push((pattern, queue, number as u32));
            }
            prop_assert_eq!(tree.len(), model.len());
        }
        for subject in &subjects {
            let wanted = expected(&model, |pattern| naive_match(pattern, subject));
            let first = tree.first_match(subject.as_bytes()).copied();
            let mut plain = wanted.iter().filter(|(queue, _)| queue.is_none());
            prop_assert_eq!(first.is_some(), plain.clone().next().is_some());
            prop_assert!(first.is_none_or(|first| plain.any(|(_, value)| *value == first)));
            prop_assert_eq!(found(&tree, subject), wanted);
        }
        for query in &queries {
            let wanted = expected(&model, |p| overlap(p.as_bytes(), query.as_bytes()));
            prop_assert!(wanted.is_empty() || !tree.is_clear_below(query.as_bytes()));
            let mut values: Vec<u32> = wanted.iter().map(|(_, value)| *value).collect();
            values.sort_unstable();
            prop_assert_eq!(in_parts(&tree, query, 1).0, values);
            prop_assert_eq!(overlapping(&tree, query), wanted);
        }
    }
}
