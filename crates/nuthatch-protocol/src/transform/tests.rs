//! Transforms by example; the expected values were checked against nats-server 2.15.2.

use super::*;
use proptest::prelude::*;

fn apply(source: &str, destination: &str, subject: &str) -> Option<String> {
    let transform = Transform::new(source, destination).unwrap();
    let mut out = Vec::new();
    let applied = transform.apply(subject.as_bytes(), 0x8000_0007, &mut out);
    assert!(applied || out.is_empty());
    applied.then(|| String::from_utf8(out).unwrap())
}

#[track_caller]
fn check(source: &str, destination: &str, subject: &str, expected: &str) {
    let result = apply(source, destination, subject);
    assert_eq!(result.as_deref(), Some(expected), "{source} -> {destination}: {subject}");
}

#[test]
fn wildcards_and_tails() {
    check("foo", "bar", "foo", "bar");
    check("foo.*.*", "bar.$2.$1", "foo.a.b", "bar.b.a");
    check("foo.*.*", "bar.{{wildcard(2)}}.{{ Wildcard( 1 ) }}", "foo.a.b", "bar.b.a");
    check("foo.*", "bar.$1.{{wildcard(0)}}", "foo.a", "bar.a.foo");
    check("foo.>", "bar.>", "foo.a.b", "bar.a.b");
    check(">", "x.>", "a.b", "x.a.b");
    check("", ">", "a.b", "a.b");
    check("a.*.>", "$1.>", "a.b.c.d", "b.c.d");
    check("a.*.>", "x.>", "a.b.c.d", "x.c.d");
    check("$KV.*.>", "$KV.copy.$1.>", "$KV.b.k", "$KV.copy.b.k");
    check("foo.*", "bar-$1", "foo.a", "bar-$1");
    assert_eq!(apply("foo", "bar", "baz"), None);
    assert_eq!(apply("foo.>", "bar.>", "foo"), None);
}

#[test]
fn partitions() {
    for (subject, partition) in [("foo", 3), ("baz", 0), ("qux", 9)] {
        check("*", "p.{{partition(10,1)}}", subject, &format!("p.{partition}"));
        check(">", "p.{{Partition(10)}}.>", subject, &format!("p.{partition}.{subject}"));
    }
    check(">", "{{partition(10)}}.>", "foo.bar", "6.foo.bar");
    check("foo.bar", "{{partition(10)}}", "foo.bar", "6");
    check("foo.bar", "{{partition(10, 5)}}", "foo.bar", "6");
    let joined = apply("*.*", "{{partition(10,1,2)}}", "fo.o");
    assert_eq!(joined.as_deref(), Some("3"), "tokens are hashed without a separator");
    check("*", "{{partition(0,1)}}", "foo", "0");
    check("*", "{{random(5)}}", "foo", "2");
    check("*", "{{random(0)}}", "foo", "0");
}

#[test]
fn cuts() {
    let cases = [
        ("{{splitFromLeft(1,3)}}", "12345", "123.45"),
        ("{{SplitFromRight(1,3)}}", "12345", "12.345"),
        ("{{splitfromleft(1,9)}}", "12345", "12345"),
        ("{{splitFromLeft(1,0)}}", "12345", "12345"),
        ("{{sliceFromLeft(1,2)}}", "12345", "12.34.5"),
        ("{{sliceFromRight(1,2)}}", "12345", "1.23.45"),
        ("{{sliceFromLeft(1,2)}}", "1234", "12.34"),
        ("{{sliceFromRight(1,2)}}", "1234", "12.34"),
        ("{{left(1,2)}}", "12345", "12"),
        ("{{right(1,2)}}", "12345", "45"),
        ("{{right(1,-2)}}", "12345", "12345"),
        ("{{split(1,-)}}", "a-b-c", "a.b.c"),
        ("{{split(1,-)}}", "-a--b-", "a.b"),
        ("{{split(1,--)}}", "a--b", "a.b"),
        ("{{split(1,-)}}", "---", "---"),
        ("{{split(1,)}}", "abc", "a.b.c"),
    ];
    for (function, subject, expected) in cases {
        check("*", function, subject, expected);
    }
}

#[test]
fn what_cannot_be_compiled() {
    let error = |source, destination| Transform::new(source, destination).unwrap_err().to_string();
    for (source, destination) in [
        ("foo", ""),
        ("foo", "a..b"),
        ("a..b", "foo"),
        ("foo.*", "bar.*"),
        ("foo.>", "bar"),
        ("foo", "bar.>"),
        ("foo.>", "bar.>.x"),
    ] {
        assert_eq!(error(source, destination), "invalid subject", "{source} {destination}");
    }
    let prefix = "invalid mapping destination: ";
    let cases = [
        ("{{unknown(1)}}", "unknown function"),
        ("{{wildcard}}", "unknown function"),
        ("{{WILDCARD(1)}}", "unknown function"),
        ("{{wildcard()}}", "not enough arguments passed to the function"),
        ("{{left(1)}}", "not enough arguments passed to the function"),
        ("{{wildcard(1,2)}}", "too many arguments passed to the function"),
        ("{{split(1,-,2)}}", "too many arguments passed to the function"),
        ("{{wildcard(x)}}", "function argument is invalid or in the wrong format"),
        ("{{partition(9999999999)}}", "function argument is invalid or in the wrong format"),
        ("{{split(1,a b)}}", "function argument is invalid or in the wrong format"),
    ];
    for (token, reason) in cases {
        assert_eq!(error("foo.*", token), format!("{prefix}{reason} in {token}"));
    }
    for token in ["$2", "{{wildcard(2)}}", "{{partition(3,2)}}"] {
        let reason = "wildcard index out of range";
        assert_eq!(error("foo.*", token), format!("{prefix}{reason} in {token}: [2]"));
    }
    assert_eq!(error("foo.*", "foo bar"), format!("{prefix}invalid transform"));
    let literal_source = error("foo", "{{left(1,2)}}");
    assert_eq!(literal_source, format!("{prefix}wildcard index out of range in {{{{left(1,2)}}}}"));
}

#[test]
fn imports_can_be_undone() {
    let forward = Transform::new_reversible("a.*.*.*.>", "b.$3.$1.$2.>").unwrap();
    let back = forward.reverse().unwrap();
    let (mut there, mut again) = (Vec::new(), Vec::new());
    assert!(forward.apply(b"a.x.y.z.t.u", 0, &mut there));
    assert_eq!(there, b"b.z.x.y.t.u");
    assert!(back.apply(&there, 0, &mut again));
    assert_eq!(again, b"a.x.y.z.t.u");
    let error = |destination| Transform::new_reversible("a.*.*", destination).unwrap_err();
    assert!(matches!(error("b.$1"), TransformError::WildcardUnused { .. }));
    let text = error("b.$1.{{left(2,1)}}").to_string();
    assert!(text.ends_with("is {{Wildcard()}} in {{left(2,1)}}"), "{text}");
    assert_eq!(Transform::identity("a.*.b.*").unwrap().destination(), b"a.$1.b.$2");
}

#[test]
fn weights() {
    let to = |subject: &str, weight, cluster: &str| Destination {
        subject: subject.to_owned(),
        weight,
        cluster: cluster.to_owned(),
    };
    let shares = |mapping: &Mapping| {
        let mut shares = std::collections::BTreeMap::<String, u32>::new();
        for entropy in 0..1000 {
            let destination = mapping.choose(entropy).map_or(&b""[..], Transform::destination);
            *shares.entry(String::from_utf8_lossy(destination).into_owned()).or_default() += 1;
        }
        shares.into_iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>()
    };
    let list = [to("b.$1", 70, ""), to("c.$1", 10, ""), to("d.$1", 100, "east")];
    let mapping = Mapping::new("a.*", &list, "").unwrap();
    assert_eq!(shares(&mapping), ["a.$1 200", "b.$1 700", "c.$1 100"]);
    assert_eq!(shares(&Mapping::new("a.*", &list, "east").unwrap()), ["d.$1 1000"]);
    let lossy = Mapping::new("a", &[to("a", 50, "")], "").unwrap();
    assert_eq!(shares(&lossy), [" 500", "a 500"]);
    let error = |list: &[Destination]| Mapping::new("a", list, "").unwrap_err();
    assert_eq!(error(&[to("b", 101, "")]), MappingError::WeightTooLarge);
    assert_eq!(error(&[to("b", 60, ""), to("c", 60, "")]), MappingError::TotalTooLarge);
    let twice = error(&[to("b", 1, ""), to("b", 1, "x")]);
    assert_eq!(twice, MappingError::Duplicate { subject: "b".to_owned() });
}

proptest! {
    #[test]
    fn nothing_makes_it_panic(
        source in "[ab.*>]{0,7}",
        destination in "([ab.>$]|\\$[0-3]|\\{\\{(left|split|partition|sliceFromRight)\\([0-3],[-0-9a]{0,2}\\)\\}\\}){0,5}",
        subject in "[ab.-]{0,9}",
    ) {
        if let Ok(transform) = Transform::new(&source, &destination) {
            let mut out = Vec::new();
            transform.apply(subject.as_bytes(), 7, &mut out);
            transform.apply_matching(subject.as_bytes(), 7, &mut out);
            let _ = transform.reverse();
        }
    }
}
