//! The outbox without a socket.

use super::*;

fn text(batch: &Batch) -> Vec<u8> {
    let mut slices = [IoSlice::new(&[]); MAX_SLICES];
    let count = batch.slices(&mut slices);
    slices[..count].iter().flat_map(|slice| slice.iter().copied()).collect()
}

#[test]
fn keeps_order_and_counts() {
    let outbox = Outbox::new(100);
    let tally = Tally { messages: 1, bytes: 3 };
    assert_eq!(outbox.append(&mut b"abc".to_vec(), tally), Appended::Pending(3));
    let shared = outbox.append_shared(b"line ", Bytes::from_static(b"body"), tally);
    assert_eq!(shared, Appended::Pending(14));
    assert_eq!(outbox.append(&mut b"def".to_vec(), Tally::default()), Appended::Pending(17));
    let mut batch = outbox.take_pen().unwrap();
    assert_eq!(text(&batch), b"abcline body\r\ndef");
    assert!(outbox.take_pen().is_none(), "the pen is taken");
    batch.advance(10);
    assert_eq!(text(&batch), b"dy\r\ndef");
    outbox.put_back(batch);
    outbox.count_written(10);
    assert_eq!(outbox.pending(), 7);
    let batch = outbox.take_pen().unwrap();
    assert_eq!(text(&batch), b"dy\r\ndef");
    assert!(outbox.next_batch(7).is_empty());
    assert_eq!(outbox.pending(), 0);
    assert_eq!((outbox.totals().messages, outbox.totals().bytes), (2, 6));
}

#[test]
fn refuses_what_exceeds_the_limit_and_all_after_the_close() {
    let outbox = Outbox::new(4);
    assert_eq!(outbox.append(&mut b"abc".to_vec(), Tally::default()), Appended::Pending(3));
    assert_eq!(outbox.append(&mut b"de".to_vec(), Tally::default()), Appended::Overflow);
    outbox.close(true);
    assert_eq!(outbox.append(&mut b"d".to_vec(), Tally::default()), Appended::Closed);
    assert_eq!(text(&outbox.take_pen().unwrap()), b"abc");
}
