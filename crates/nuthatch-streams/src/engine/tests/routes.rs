//! Subjects that a stream maps, and messages that it publishes again.

use super::harness::{Harness, Msg, Reopen};
use nuthatch_protocol::js::{RePublish, SubjectTransformConfig};

fn transformed() -> Harness {
    Harness::with_stream(|c| {
        let (src, dest) = ("s.in.*".into(), "s.out.{{partition(3,1)}}.{{wildcard(1)}}".into());
        c.subject_transform = Some(SubjectTransformConfig { src, dest });
        (c.allow_atomic, c.allow_batched) = (true, true);
    })
}

fn subjects(harness: &mut Harness) -> Vec<String> {
    harness.info().state.subjects.unwrap_or_default().into_keys().collect()
}

#[test]
fn what_comes_in_is_stored_under_its_mapped_subject() {
    let mut harness = transformed();
    harness.put("s.in.foo", "x");
    harness.put("s.other", "x");
    harness
        .put_with("s.in.bar", "Nats-Batch-Id: b\r\nNats-Batch-Sequence: 1\r\nNats-Batch-Commit: 1");
    harness.send_from("_INBOX.f.9.ok.1.2.$FI", &[Msg { subject: "s.in.baz", ..Msg::default() }]);
    harness.commit();
    let stored = subjects(&mut harness);
    assert_eq!(stored.len(), 4, "{stored:?}");
    assert!(stored.iter().all(|s| s == "s.other" || s.starts_with("s.out.")), "{stored:?}");
    harness.take_replies();
    let expected = "Nats-Expected-Last-Subject-Sequence: 1";
    assert!(harness.put_with("s.in.foo", expected).contains("\"seq\":5"), "checks use it too");
    harness.reopen(Reopen::Scratch);
    assert_eq!(subjects(&mut harness).len(), 4);
}

#[test]
fn what_is_durable_is_published_again() {
    let mut harness = Harness::with_stream(|c| {
        let (src, dest) = ("s.a.>".into(), "again.>".into());
        c.republish = Some(RePublish { src, dest, headers_only: false });
        c.max_msgs_per_subject = 1;
    });
    harness.put("s.a.x", "1");
    harness.send(&[
        Msg { subject: "s.a.x", headers: "NATS/1.0\r\nOwn: 1\r\n\r\n", body: "2" },
        Msg { subject: "s.b", body: "3", ..Msg::default() },
    ]);
    assert_eq!(harness.engine.sink().published.len(), 1, "not before it is durable");
    harness.commit();
    let again = &harness.engine.sink().published;
    assert_eq!(again.len(), 2);
    assert_eq!((again[1].subject.as_str(), again[1].body.as_str()), ("again.x", "2"));
    let headers = &again[1].headers;
    let start =
        "NATS/1.0\r\nOwn: 1\r\nNats-Stream: S\r\nNats-Subject: s.a.x\r\nNats-Sequence: 2\r\n";
    assert!(headers.starts_with(start), "{headers}");
    assert!(headers.ends_with("Nats-Last-Sequence: 1\r\n\r\n"), "{headers}");
}

#[test]
fn headers_alone_may_be_published_again() {
    let mut harness = Harness::with_stream(|c| {
        let (src, dest) = (">".into(), "again.>".into());
        c.republish = Some(RePublish { src, dest, headers_only: true });
    });
    harness.put("s.a", "four");
    let again = &harness.engine.sink().published[0];
    assert!(again.body.is_empty() && again.headers.contains("Nats-Msg-Size: 4\r\n"), "{again:?}");
}
