//! The ring: order, tombstones, deadlines.

use super::*;

fn filled(seqs: std::ops::RangeInclusive<u64>) -> Pending {
    let mut pending = Pending::default();
    for seq in seqs {
        pending.push(seq, seq, 100 + seq as i64);
    }
    pending
}

#[test]
fn acks_in_any_order_leave_the_rest() {
    let mut pending = filled(1..=10);
    assert_eq!(pending.remove(5).map(|entry| entry.consumer_seq), Some(5));
    assert!(pending.remove(5).is_none());
    assert_eq!(pending.len(), 9);
    for seq in [1, 2, 3, 4] {
        assert!(pending.remove(seq).is_some());
    }
    assert_eq!(pending.front().map(|entry| entry.seq), Some(6));
    assert_eq!(pending.iter().map(|entry| entry.seq).collect::<Vec<_>>(), vec![6, 7, 8, 9, 10]);
}

#[test]
fn a_stuck_message_does_not_keep_tombstones() {
    let mut pending = filled(1..=5_000);
    for seq in 2..=4_999 {
        pending.remove(seq);
    }
    assert_eq!(pending.len(), 2);
    assert!(pending.ring.len() <= 2 * pending.len() + SLACK);
    assert!(pending.get(5_000).is_some() && pending.get(1).is_some());
}

#[test]
fn deadlines_follow_postponement() {
    let mut pending = filled(1..=3);
    let mut out = Vec::new();
    pending.postpone(1, 500);
    pending.postpone(3, 50);
    pending.expired(102, &mut out);
    assert_eq!(out, vec![2, 3]);
    assert!(pending.make_due(3) && !pending.make_due(3));
    assert_eq!(pending.next_due().map(|entry| entry.seq), Some(3));
    pending.redeliver(3, 600);
    assert_eq!((pending.next_due(), pending.redelivered()), (None, 1));
    pending.expired(599, &mut out);
    assert_eq!(out, vec![1]);
}

#[test]
fn acknowledged_while_due_is_not_redelivered() {
    let mut pending = filled(1..=3);
    pending.make_due(2);
    pending.make_due(1);
    pending.remove(2);
    assert_eq!(pending.next_due().map(|entry| entry.seq), Some(1));
}

#[test]
fn timers_stay_bounded() {
    let mut pending = filled(1..=2);
    for at in 0..10_000 {
        pending.postpone(1, 1_000 + at);
        pending.postpone(2, 20_000 - at);
    }
    assert!(pending.timers.len() + pending.odd_timers.len() <= 2 * 2 + SLACK + 1);
    let mut out = Vec::new();
    pending.expired(i64::MAX, &mut out);
    assert_eq!(out, vec![1, 2]);
}

#[test]
fn ack_all_removes_a_prefix() {
    let mut pending = filled(1..=10);
    pending.remove(8);
    let mut gone = Vec::new();
    pending.remove_through(7, |entry| gone.push(entry.seq));
    assert_eq!(gone, (1..=7).collect::<Vec<_>>());
    assert_eq!(pending.front().map(|entry| entry.seq), Some(9));
}
