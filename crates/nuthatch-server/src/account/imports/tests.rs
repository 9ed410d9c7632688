//! Patterns of imported streams.

use super::*;
use crate::account::Accounts;
use crate::options::Options;

#[track_caller]
fn common(one: &str, other: &str, expect: Option<&str>) {
    for (a, b) in [(one, other), (other, one)] {
        let found = intersection(a.as_bytes(), b.as_bytes());
        assert_eq!(found.as_deref(), expect.map(str::as_bytes), "{a} {b}");
    }
}

#[test]
fn what_two_patterns_have_in_common() {
    common("a.b", "a.b", Some("a.b"));
    common("a.b", "a.*", Some("a.b"));
    common("a.*.c", "a.b.*", Some("a.b.c"));
    common(">", "a.*", Some("a.*"));
    common("a.>", "a.b.>", Some("a.b.>"));
    common("*.b.>", "a.>", Some("a.b.>"));
    common("a.>", "a", None);
    common("a.b", "a.c", None);
    common("a.b.c", "a.b", None);
}

#[test]
fn patterns_of_import_subscriptions() {
    let exporter = Accounts::new(&Options::default()).global().clone();
    let import = |subject: &str, to: &str| {
        let (account, share, is_service) = ("A".to_owned(), false, false);
        let (subject, to) = (subject.to_owned(), to.to_owned());
        let import = Import { account, subject, to, share, is_service, allow_trace: false };
        StreamImport::new(&import, &exporter).unwrap()
    };
    let prefixed = import("ev.*.>", "in.ev.*.>");
    for (sub, import_sub) in [
        (">", Some("ev.*.>")),
        ("in.>", Some("ev.*.>")),
        ("in.ev.x.y", Some("ev.x.y")),
        ("*.ev.x.*", Some("ev.x.*")),
        ("ev.x.y", None),
    ] {
        let found = prefixed.import_pattern(sub.as_bytes());
        assert_eq!(found.as_deref(), import_sub.map(str::as_bytes), "{sub}");
    }
    let mut here = Vec::new();
    prefixed.inward(b"ev.a.b.c", &mut here);
    assert_eq!(here, b"in.ev.a.b.c");
    let swapped = import("a.*.*", "b.$2.$1");
    assert_eq!(swapped.import_pattern(b"b.x.y").as_deref(), Some(&b"a.y.x"[..]));
    let same = import("s.>", "s.>");
    assert_eq!(same.import_pattern(b"s.*").as_deref(), Some(&b"s.*"[..]));
}
