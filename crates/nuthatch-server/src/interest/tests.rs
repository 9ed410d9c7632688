//! Interest with real subscriptions.

use super::*;
use crate::link::{Link, NodeAccount, PeerFacts};
use crate::outlet::Outlet;

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

#[test]
fn what_is_for_streams_of_other_nodes_goes_to_the_nodes_that_are_connected() {
    let (interest, node) = (Interest::default(), Outlet::nowhere());
    let facts = PeerFacts {
        node: Some(NodeAccount::Ordinary),
        knows_by_table: true,
        ..PeerFacts::default()
    };
    node.set_link(Link::new(facts));
    let told =
        || TableChange { is_first: true, come: vec!["S".into()], gone: vec![], is_complete: true };
    let matches = |subject: &[u8]| {
        let mut matched = Matched::default();
        interest.match_into(subject, &mut matched);
        assert_eq!(interest.any(subject), !matched.is_empty());
        matched.plain().len()
    };
    let version = interest.version();
    interest.serves(&node, told());
    assert_eq!((matches(b"$JS.ACK.S.c"), interest.version()), (0, version), "it is not there yet");
    interest.join(&node);
    assert_eq!(matches(b"$JS.ACK.T.c"), 1, "it has not told anything yet");
    interest.serves(&node, told());
    assert_ne!(interest.version(), version);
    assert!(interest.sees_reserved() && !interest.is_clear(b"$JS.ACK.*"));
    assert!(interest.is_clear(b"$KV.b.>"), "routes of streams stay as they are");
    assert_eq!((matches(b"$JS.ACK.S.c"), matches(b"$JS.ACK.T.c"), matches(b"S")), (1, 0, 0));
    let mut changed = Vec::new();
    assert!(interest.changes_since(version, &mut changed));
    assert_eq!(changed, [b"$JS.>".as_slice().into(), b"$JS.>".as_slice().into()]);
    interest.leave(&node);
    interest.serves(&node, told());
    assert_eq!((matches(b"$JS.ACK.S.c"), interest.sees_reserved()), (0, false), "it has left");
}
