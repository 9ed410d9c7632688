//! Interest with real subscriptions.

use super::*;
#[test]
fn the_version_changes_and_the_sole_listener_is_found() {
    let (interest, outlet) = (Interest::default(), Outlet::nowhere());
    let sub = |subject: &str, queue: Option<&str>| {
        let queue = queue.map(str::as_bytes);
        Arc::new(Subscription::new(outlet.clone(), subject.as_bytes(), queue, b"1"))
    };
    let inbox = sub("_INBOX.a.*", None);
    interest.insert(inbox.clone());
    let sole = interest.sole_overlapping(b"_INBOX.a.*").unwrap();
    assert!(Arc::ptr_eq(&sole, &inbox));
    let before = interest.version();
    let other = sub("_INBOX.a.b", None);
    interest.insert(other.clone());
    assert_ne!(interest.version(), before);
    assert!(interest.sole_overlapping(b"_INBOX.a.*").is_none());
    assert!(!interest.sees_reserved());
    let all = sub(">", Some("q"));
    interest.insert(all.clone());
    assert!(interest.sees_reserved());
    assert!(interest.remove(&other) && !interest.remove(&other));
    assert!(interest.remove(&all));
    assert!(interest.sole_overlapping(b"_INBOX.a.*").is_some());
    let mut matched = Matched::default();
    interest.match_into(b"_INBOX.a.z", &mut matched);
    assert_eq!(matched.plain().len(), 1);
    assert!(!interest.any(b"x"));
}

#[test]
fn first_tokens_hide_nobody() {
    let (interest, outlet) = (Interest::default(), Outlet::nowhere());
    let count = |subject: &str| {
        let mut matched = Matched::default();
        interest.match_into(subject.as_bytes(), &mut matched);
        matched.plain().len()
    };
    let patterns = ["a.b", "a.*", "b", "*.b", ">", "a"];
    let subs: Vec<_> = patterns
        .iter()
        .map(|p| Arc::new(Subscription::new(outlet.clone(), p.as_bytes(), None, b"1")))
        .collect();
    let subjects = ["a.b", "a.c", "a", "b", "b.b", "c", "ab"];
    let expect = |held: &[&str]| {
        for subject in subjects {
            let matches =
                |p: &&&str| nuthatch_protocol::subject::matches(p.as_bytes(), subject.as_bytes());
            assert_eq!(count(subject), held.iter().filter(matches).count(), "{subject} {held:?}");
        }
    };
    for known in 0..=patterns.len() {
        expect(&patterns[..known]);
        subs.get(known).into_iter().for_each(|sub| interest.insert(sub.clone()));
    }
    for known in (0..patterns.len()).rev() {
        assert!(interest.remove(&subs[known]));
        expect(&patterns[..known]);
    }
}
