//! Records and states with right checksums and wrong contents: what is not understood is refused and
//! counted; what is understood and impossible stops the log with words, and never by an index, an
//! overflow or an endless loop.

use super::harness::{Harness, Reopen, STREAM};
use crate::op::{Op, PurgeRequest};
use nuthatch_log::env::{Entropy, SeededEntropy};
use nuthatch_log::{Machine, RecordKind};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Ways to be wrong that an ordinary run tries.
const SEEDS: u64 = 3000;

/// A log with something of everything in its states and records.
fn some_log() -> Harness {
    let mut harness = Harness::with_stream(|c| {
        (c.allow_msg_ttl, c.allow_atomic, c.max_msgs_per_subject) = (true, true, 5);
        (c.max_msgs, c.max_bytes) = (20, 10_000);
    });
    harness.consumer("C", |_| {}).expect("created");
    harness.consumer("D", |c| c.filter_subject = "s.b".into()).expect("created");
    for n in 0..12 {
        harness.put_with(["s.a", "s.b", "s.c"][n % 3], &format!("Nats-Msg-Id: {n}"));
    }
    harness.put_with("s.ttl", "Nats-TTL: 10s");
    let acks = harness.pull("C", 5);
    harness.ack(&acks[1], "+ACK", "");
    harness.ack(&acks[3], "-NAK", "");
    harness.op(Op::DeleteMessage { id: STREAM, seq: 7 }).expect("deleted");
    harness.compact();
    harness.put("s.a", "x");
    let request = PurgeRequest { filter: "s.b".into(), keep: 1, ..PurgeRequest::default() };
    harness.op(Op::Purge { id: STREAM, request }).expect("purged");
    harness.ack(&acks[0], "+ACK", "confirm");
    harness.commit();
    harness
}

/// Changes the body of one record that is no message.
fn change(harness: &mut Harness, chance: &mut SeededEntropy) -> RecordKind {
    let records = harness.log.frames.iter_mut().flatten();
    let mut records: Vec<_> =
        records.filter(|r| r.kind != RecordKind::Message && !r.body.is_empty()).collect();
    let at = chance.below(records.len() as u64) as usize;
    let record = &mut records[at];
    let mut body = record.body.to_vec();
    for _ in 0..=chance.below(2) {
        let at = chance.below(body.len() as u64) as usize;
        match chance.below(4) {
            0 => body[at] ^= 1 << chance.below(8),
            1 => body[at] = chance.next() as u8,
            2 => body.truncate(at.max(1)),
            _ => {
                let wide = [u64::MAX, 1 << 62, 1 << 32, 0][chance.below(4) as usize];
                for (byte, new) in body[at..].iter_mut().zip(wide.to_le_bytes()) {
                    *byte = new;
                }
            }
        }
    }
    record.body = body.into();
    record.kind
}

/// True if a panic says what was impossible, in words of ours.
fn is_told(panic: &(dyn std::any::Any + Send)) -> bool {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default();
    let by_itself = ["index out of bounds", "overflow", "range ", "slice", "capacity", "unwrap()"];
    !text.is_empty() && !by_itself.iter().any(|word| text.contains(word))
}

#[test]
fn wrong_contents_are_refused_or_stop_the_log_with_words() {
    let whole = some_log();
    for seed in 0..SEEDS {
        let mut chance = SeededEntropy::new(seed);
        let mut harness = Harness::new();
        harness.log = whole.log.clone();
        let kind = change(&mut harness, &mut chance);
        let how = [Reopen::Scratch, Reopen::States][chance.below(2) as usize];
        let opened = catch_unwind(AssertUnwindSafe(|| {
            harness.reopen(how);
            harness.tick();
            let mut snapshot = Vec::new();
            harness.engine.snapshot(&mut snapshot);
        }));
        if let Err(panic) = opened {
            let text = panic.downcast_ref::<String>().cloned();
            assert!(is_told(&*panic), "seed {seed}, {kind:?}, {how:?}: {text:?}");
        }
    }
}
