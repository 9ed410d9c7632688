//! Subject rules on cases, and the matchers against each other on random patterns.

use super::*;
use proptest::prelude::*;

#[test]
fn validity() {
    for good in ["a", "a.b", "*", ">", "a.*", "a.>", "*.*", "a*", "a.>b", "a.b*c", "$JS.API.>"] {
        assert!(is_valid_subject(good.as_bytes()), "{good}");
    }
    for bad in ["", ".", "a.", ".a", "a..b", "a b", "a\t", "a.\r", ">.a", "a.>.b", " ", "a.\u{c}"] {
        assert!(!is_valid_subject(bad.as_bytes()), "{bad:?}");
    }
    for (subject, literal) in [("a.b", true), ("a.*", false), (">", false), ("a*.b>", true)] {
        assert_eq!(is_valid_literal(subject.as_bytes()), literal, "{subject}");
        assert_eq!(is_valid_publish_subject(subject.as_bytes()), literal, "{subject}");
        assert_eq!(!has_wildcard(subject.as_bytes()), literal, "{subject}");
    }
    assert!(!is_valid_literal(b"a..b"));
    for (subject, empty) in [("", true), (".", true), ("a.", true), (".a", true), ("a..b", true)] {
        assert_eq!(has_empty_token(subject.as_bytes()), empty, "{subject}");
    }
    assert!(!has_empty_token(b"a.b.cd") && !has_empty_token(b"a"));
    assert_eq!(count_tokens(b"a.b.c"), 3);
    assert_eq!(tokens(b"a.b.").collect::<Vec<_>>(), [&b"a"[..], b"b", b""]);
}

#[test]
fn matching() {
    let yes = [
        ("a", "a"),
        ("*", "a"),
        (">", "a"),
        (">", "a.b"),
        ("a.*", "a.b"),
        ("a.*.c", "a.b.c"),
        ("a.>", "a.b.c"),
        ("*.b.>", "a.b.c.d"),
        ("a*", "a*"),
        ("a.>b", "a.>b"),
    ];
    for (pattern, literal) in yes {
        assert!(matches(pattern.as_bytes(), literal.as_bytes()), "{pattern} {literal}");
    }
    let no = [
        ("a", "b"),
        ("a", "a.b"),
        ("a.b", "a"),
        ("*", "a.b"),
        ("a.*", "a"),
        ("a.>", "a"),
        ("a.*.c", "a.b.d"),
        ("ab", "a"),
        ("a", "ab"),
        ("a*", "ab"),
        ("a.*", "a."),
    ];
    for (pattern, literal) in no {
        assert!(!matches(pattern.as_bytes(), literal.as_bytes()), "{pattern} {literal}");
    }
}

#[test]
fn subsets_and_overlaps() {
    let cases = [
        // (a, b, a is a subset of b, they overlap)
        ("a.b", "a.b", true, true),
        ("a.b", "a.*", true, true),
        ("a.*", "a.b", false, true),
        ("a.*", "a.>", true, true),
        ("a.>", "a.*", false, true),
        ("a.>", "a.>", true, true),
        ("a.*", "*.b", false, true),
        ("a.*", "*.*.*", false, false),
        ("a.>", "*.b.c", false, true),
        ("a", "a.>", false, false),
        ("a.b", "a.c", false, false),
        ("*", "*", true, true),
    ];
    for (a, b, subset, collide) in cases {
        let (a, b) = (a.as_bytes(), b.as_bytes());
        let name = (String::from_utf8_lossy(a), String::from_utf8_lossy(b));
        assert_eq!(is_subset(a, b), subset, "{name:?}");
        assert_eq!(overlap(a, b), collide, "{name:?}");
        assert_eq!(overlap(b, a), collide, "{name:?}");
    }
}

/// Literal subjects of a tiny vocabulary, so that patterns often hit.
pub(super) fn literal() -> impl Strategy<Value = String> {
    prop::collection::vec("[abc]{1,2}", 1..5).prop_map(|tokens| tokens.join("."))
}

/// Valid patterns of the same vocabulary.
pub(super) fn pattern() -> impl Strategy<Value = String> {
    let token = prop_oneof![3 => "[abc]{1,2}", 1 => Just("*".to_string())];
    (prop::collection::vec(token, 0..4), "[abc>*]").prop_map(|(mut tokens, last)| {
        tokens.push(last);
        tokens.join(".")
    })
}

/// The definition, token by token.
pub(super) fn naive_match(pattern: &str, literal: &str) -> bool {
    let pattern: Vec<_> = pattern.split('.').collect();
    let literal: Vec<_> = literal.split('.').collect();
    for (i, token) in pattern.iter().enumerate() {
        if *token == ">" {
            return literal.len() > i;
        }
        if literal.get(i).is_none_or(|other| *token != "*" && token != other) {
            return false;
        }
    }
    pattern.len() == literal.len()
}

proptest! {
    #[test]
    fn matches_is_the_definition(pattern in pattern(), literal in literal()) {
        let expected = naive_match(&pattern, &literal);
        prop_assert_eq!(matches(pattern.as_bytes(), literal.as_bytes()), expected);
        prop_assert_eq!(overlap(pattern.as_bytes(), literal.as_bytes()), expected);
        prop_assert_eq!(is_subset(literal.as_bytes(), pattern.as_bytes()), expected);
    }

    #[test]
    fn a_common_match_means_overlap(a in pattern(), b in pattern(), literal in literal()) {
        if naive_match(&a, &literal) {
            if naive_match(&b, &literal) {
                prop_assert!(overlap(a.as_bytes(), b.as_bytes()));
            } else {
                prop_assert!(!is_subset(a.as_bytes(), b.as_bytes()));
            }
        }
    }

    #[test]
    fn no_bytes_make_the_matchers_panic(a in "[ab.*>]{0,8}", b in "[ab.*>]{0,8}") {
        let (a, b) = (a.as_bytes(), b.as_bytes());
        let _ = (matches(a, b), overlap(a, b), is_subset(a, b), is_valid_subject(a));
    }
}
