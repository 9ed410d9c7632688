//! Compact batches.

use super::*;

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
