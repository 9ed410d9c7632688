//! Frames that are whole and in the wrong place, and frames that are damaged: only what they held is
//! unreadable, and it is told as damage, never as "no such message".

mod common;
#[path = "../../../tests/seeds.rs"]
mod seeds;

use common::bytes::{frames, read, segments, write};
use common::{Outcome, Rig, tiny, tiny_cold};
use nuthatch_log::env::{MemDisk, SeededEntropy};
use nuthatch_log::{Disk, LogOptions, StreamId};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const BLOCK: usize = 512;

fn body(stream: u32, n: u64) -> Vec<u8> {
    let len = 60 + (n * 37 % 240) as usize;
    let mut body = format!("{stream}/{n}/").into_bytes();
    body.resize(len, b'x');
    body
}

/// A closed log with two streams, of messages of many sizes.
fn furnished(options: &LogOptions) -> MemDisk {
    let disk = MemDisk::default();
    let mut rig = Rig::open(options.clone(), Arc::new(disk.clone())).expect("opens");
    rig.create(1, 0);
    rig.create(2, 0);
    for n in 1..=120 {
        for stream in [1, 2] {
            assert_eq!(rig.publish(stream, &body(stream, n)), Outcome::Acked(n));
        }
        rig.advance(Duration::from_millis(60));
    }
    rig.core.close().expect("closes");
    drop(rig);
    disk.crash(1)
}

/// The messages whose records lie in these bytes.
fn messages_in(bytes: &[u8]) -> BTreeSet<(u32, u64)> {
    let mut found = BTreeSet::new();
    for stream in [1u32, 2] {
        for n in 1..=120u64 {
            let text = format!("{stream}/{n}/");
            if bytes.windows(text.len()).any(|window| window == text.as_bytes()) {
                found.insert((stream, n));
            }
        }
    }
    found
}

/// Reads every message, in an order of its own; returns those that are told to be damaged.
fn read_all(rig: &mut Rig, what: &str, seed: u64) -> BTreeSet<(u32, u64)> {
    let mut all: Vec<(u32, u64)> = (1..=120).flat_map(|n| [(1, n), (2, n)]).collect();
    let mut chance = SeededEntropy::new(seed);
    for at in (1..all.len()).rev() {
        if seed > 0 {
            all.swap(at, chance.below(at as u64 + 1) as usize);
        }
    }
    let mut damaged = BTreeSet::new();
    for (stream, n) in all {
        assert!(rig.core.machine().streams[&StreamId(stream)].live.contains_key(&n));
        match rig.read(stream, n) {
            Outcome::Body(found) => assert_eq!(found, body(stream, n), "{what}"),
            Outcome::Damaged => drop(damaged.insert((stream, n))),
            other => panic!("{what}: message {n} of {stream}: {other:?}"),
        }
    }
    damaged
}

/// A frame of a segment copied over another one, as a disk does that writes to the wrong place. Only
/// what the overwritten blocks held is lost, and all of that is told.
#[test]
fn a_frame_in_the_wrong_place_is_damage() {
    let options = LogOptions { tail_cache_bytes: 1, ..tiny() };
    let whole = furnished(&options);
    let (mut lost, mut chance) = (0, SeededEntropy::new(7));
    for segment in segments(&whole) {
        let bytes = read(&whole, &segment);
        let all = frames(&bytes);
        for (number, (at, len)) in all.iter().enumerate() {
            let others = [number + 1, number + 3, number.wrapping_sub(1), all.len() - 1];
            for other in others.iter().filter_map(|other| all.get(*other)) {
                let padded = other.1.next_multiple_of(BLOCK);
                if other.0 == *at || padded > len.next_multiple_of(BLOCK) || chance.below(4) > 0 {
                    continue;
                }
                let disk = whole.crash(1);
                let mut changed = bytes.clone();
                changed.copy_within(other.0..other.0 + padded, *at);
                write(&disk, &segment, &changed);
                let mut rig = Rig::open(options.clone(), Arc::new(disk)).expect("opens");
                let what = format!("{segment}: {other:?} over {at}");
                let expected = messages_in(&bytes[*at..at + len]);
                let seed = chance.below(2);
                assert_eq!(read_all(&mut rig, &what, seed), expected, "{what}");
                lost += expected.len();
            }
        }
    }
    assert!(lost > 60, "only {lost} messages were overwritten");
}

/// One flipped bit makes unreadable what its frame held, and nothing behind it.
#[test]
fn a_damaged_frame_takes_nothing_with_it() {
    for (options, seeds) in [(tiny(), 0..100), (tiny_cold(), 100..160)] {
        let options = LogOptions { tail_cache_bytes: 1, ..options };
        let whole = furnished(&options);
        let mut unreadable = 0;
        for seed in seeds::seeds(seeds) {
            let mut chance = SeededEntropy::new(seed);
            let disk = whole.crash(1);
            let names = segments(&disk);
            let segment = &names[chance.below(names.len() as u64) as usize];
            let bytes = read(&disk, segment);
            let all = frames(&bytes);
            let (at, len) = all[chance.below(all.len() as u64) as usize];
            // In the header as often as in the records.
            let within = if seed % 2 == 0 { 48 } else { len as u64 };
            let byte = at + chance.below(within) as usize;
            disk.flip_bit(segment, byte, chance.below(8) as u8);
            let mut rig = Rig::open(options.clone(), Arc::new(disk)).expect("opens");
            let what = format!("seed {seed}: {segment} at {byte}");
            let damaged = read_all(&mut rig, &what, seed % 3);
            let packed = bytes[at + 16] & 4 != 0;
            if packed {
                assert!(!damaged.is_empty() && damaged.len() < 60, "{what}: {damaged:?}");
            } else {
                assert_eq!(damaged, messages_in(&bytes[at..at + len]), "{what}");
            }
            unreadable += damaged.len();
        }
        assert!(unreadable > 50, "only {unreadable}");
    }
}

/// Several frames at once, zeros among them: what is whole can be read.
#[test]
fn several_damaged_frames_take_nothing_with_them() {
    let options = LogOptions { tail_cache_bytes: 1, ..tiny() };
    let whole = furnished(&options);
    for seed in seeds::seeds(0..50) {
        let mut chance = SeededEntropy::new(seed);
        let disk = whole.crash(1);
        let mut expected = BTreeSet::new();
        for segment in segments(&disk) {
            let mut bytes = read(&disk, &segment);
            let intact = bytes.clone();
            for (at, len) in frames(&intact) {
                if chance.below(6) > 0 {
                    continue;
                }
                match chance.below(3) {
                    0 => bytes[at..at + BLOCK].fill(0),
                    1 => bytes[at + len - 1] ^= 1,
                    _ => bytes[at..at + len].fill(0xA5),
                }
                expected.extend(messages_in(&intact[at..at + len]));
            }
            write(&disk, &segment, &bytes);
        }
        let mut rig = Rig::open(options.clone(), Arc::new(disk)).expect("opens");
        assert_eq!(read_all(&mut rig, &format!("seed {seed}"), seed % 2), expected, "seed {seed}");
    }
}

/// What is damaged for good can be overwritten by a repair: the reader finds it whole again.
#[test]
fn a_place_that_was_mended_is_read_again() {
    let options = LogOptions { tail_cache_bytes: 1, ..tiny() };
    let disk = furnished(&options);
    let most = |name: &String| frames(&read(&disk, name)).len();
    let segment = segments(&disk).into_iter().max_by_key(most).expect("segments");
    let intact = read(&disk, &segment);
    let (at, len) = frames(&intact)[3];
    let mut broken = intact.clone();
    broken[at + len - 1] ^= 1;
    write(&disk, &segment, &broken);
    let mut rig = Rig::open(options, Arc::new(disk.clone())).expect("opens");
    let damaged = read_all(&mut rig, "broken", 0);
    assert_eq!(damaged, messages_in(&intact[at..at + len]));
    disk.open(&segment).expect("opens").write_at(&intact, 0).expect("mends");
    rig.advance(Duration::from_secs(20));
    assert_eq!(read_all(&mut rig, "mended", 0), BTreeSet::new());
}
