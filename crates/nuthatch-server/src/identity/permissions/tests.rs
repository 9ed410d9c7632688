//! Permissions as nats-server reads them.

use super::*;

fn rule(allow: Option<&[&str]>, deny: &[&str]) -> SubjectPermission {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    SubjectPermission { allow: allow.map(owned), deny: owned(deny) }
}

fn publish(allow: Option<&[&str]>, deny: &[&str]) -> Rights {
    Rights::new(&Permissions { publish: Some(rule(allow, deny)), ..Permissions::default() })
}

fn subscribe(allow: Option<&[&str]>, deny: &[&str]) -> Rights {
    Rights::new(&Permissions { subscribe: Some(rule(allow, deny)), ..Permissions::default() })
}

#[test]
fn publish_rules() {
    let rights = publish(Some(&["a.*", "b.>"]), &["a.x", "b.c.>"]);
    for (subject, allowed) in [
        ("a.b", true),
        ("a.x", false),
        ("a", false),
        ("a.b.c", false),
        ("b.d", true),
        ("b.c.d", false),
    ] {
        assert_eq!(rights.may_publish(subject.as_bytes()), allowed, "{subject}");
    }
    assert!(publish(None, &["a"]).may_publish(b"b"));
    assert!(!publish(Some(&[]), &[]).may_publish(b"b"));
}

#[test]
fn subscribe_rules() {
    let rights = subscribe(Some(&["foo", "foo v1", "bar.*", "q w.*"]), &["bar.secret"]);
    let allowed = |subject: &str, queue: Option<&str>| {
        rights.may_subscribe(subject.as_bytes(), queue.map(str::as_bytes)) != Allowed::No
    };
    assert!(allowed("foo", None));
    assert!(allowed("foo", Some("v1")));
    assert!(!allowed("foo", Some("v2")));
    assert!(!allowed("bar.>", None));
    assert!(allowed("bar.*", None));
    assert!(!allowed("bar.secret", None));
    assert!(!allowed("q", None));
    assert!(allowed("q", Some("w.x")));
    assert!(matches!(rights.may_subscribe(b"bar.*", None), Allowed::Except(Some(_))));
    assert!(matches!(rights.may_subscribe(b"bar.a", None), Allowed::Except(None)));
}
