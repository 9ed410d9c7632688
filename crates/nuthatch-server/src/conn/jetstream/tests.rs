//! Ack subjects and compact batches.

use super::*;

#[test]
fn ack_subjects() {
    let parsed = AckSubject::parse(b"S.C.1.22.3.1700000000000000000.4").unwrap();
    assert_eq!((parsed.stream, parsed.consumer), (&b"S"[..], &b"C"[..]));
    assert_eq!((parsed.delivered, parsed.stream_seq, parsed.consumer_seq), (1, 22, 3));
    let long = AckSubject::parse(b"_.hash.S.C.1.22.3.17.4.rnd").unwrap();
    assert_eq!(long, parsed);
    for bad in ["S.C.1.2.3.4", "S.C.x.2.3.4.5", "", "S.C.1.99999999999999999999.3.4.5"] {
        assert!(AckSubject::parse(bad.as_bytes()).is_none(), "{bad}");
    }
}

#[test]
fn a_small_batch_does_not_pin_a_large_buffer() {
    let mut text = vec![b'.'; crate::buffers::READ_BUFFER_BYTES];
    text[100..105].copy_from_slice(b"hello");
    let data = Bytes::from(text);
    let item = PublishItem {
        stream: nuthatch_log::StreamId(1),
        hint: 0,
        subject: Span { start: 100, end: 105 },
        reply: Span::default(),
        headers: Span::default(),
        body: Span { start: 105, end: 110 },
    };
    let mut items = [Item::Publish(item)];
    let buf = compact(&mut items, &data);
    let Item::Publish(moved) = items[0] else { panic!("kind changed") };
    assert_eq!((buf.len(), moved.subject.of(&buf)), (10, &b"hello"[..]));
    assert_eq!(moved.body.of(&buf), b".....");
}
