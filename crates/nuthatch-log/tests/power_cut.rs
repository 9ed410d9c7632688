//! Power cuts at seeded moments: whatever was acknowledged is readable afterwards, in order, and no
//! sequence is given out twice. The same checks must fail when syncing is turned off.

mod common;
#[path = "../../../tests/seeds.rs"]
mod seeds;

use common::{
    Event, History, Outcome, Outputs, Rig, Toy, encrypted, keys, tiny, tiny_cold, tiny_parts,
    tiny_sync,
};
use nuthatch_log::env::{Fault, MemDisk};
use nuthatch_log::{LogHandle, LogOptions, OpenError, SendError, StreamId, SyncPolicy};
use std::sync::Arc;
use std::time::Duration;

/// Power cuts per history; each history goes on with what the last cut left.
const CUTS: u64 = 3;

/// Runs one history; returns a hash of everything the disk was asked to do.
fn history(options: &LogOptions, seed: u64) -> Result<u64, String> {
    let mut disk = MemDisk::default();
    let mut history = History::new(seed);
    let mut trace = 0u64;
    for cut in 0..CUTS {
        let at = disk.operations() + 1 + history.chance.below(300);
        disk.inject(Fault::PowerCut(at));
        let salt = seed * 31 + cut;
        match Rig::open_seeded(options.clone(), Arc::new(disk.clone()), salt) {
            Ok(mut rig) => {
                history.work(&mut rig, 150);
                history.collect(&rig);
                if history.chance.below(4) == 0 {
                    let _ = rig.core.close();
                }
                history.known.in_flight.clear();
            }
            Err(OpenError::Io { .. }) => {}
            Err(error) => return Err(format!("does not open: {error}")),
        }
        trace = trace.rotate_left(9) ^ disk.trace();
        disk = disk.crash(seed ^ cut << 32);
        let after = Rig::open_seeded(options.clone(), Arc::new(disk.clone()), salt ^ 7);
        let mut rig = after.map_err(|error| format!("does not open after a cut: {error}"))?;
        history.check(&mut rig)?;
        for stream in rig.core.machine().streams.keys() {
            history.known.created.insert(*stream);
        }
    }
    Ok(trace)
}

fn failures(options: &LogOptions, seeds: impl Iterator<Item = u64>) -> Vec<String> {
    seeds
        .filter_map(|seed| history(options, seed).err().map(|why| format!("seed {seed}: {why}")))
        .collect()
}

/// Cut points of the always-synced run: 400 histories of three cuts each.
const HISTORIES: u64 = 400;

#[test]
fn what_was_acknowledged_survives_power_cuts() {
    let failures = failures(&tiny_parts(), seeds::seeds(0..HISTORIES));
    assert!(failures.is_empty(), "{} failed: {:#?}", failures.len(), failures.first());
}

/// The same where everything sealed is merged, sorted by stream and compressed at once.
#[test]
fn and_while_cold_segments_are_rewritten() {
    let failures = failures(&tiny_cold(), seeds::seeds(5_000..5_000 + HISTORIES));
    assert!(failures.is_empty(), "{} failed: {:#?}", failures.len(), failures.first());
}

/// The same of an encrypted log.
#[test]
fn and_where_everything_is_encrypted() {
    for (options, first) in [(tiny_parts(), 20_000), (tiny_cold(), 21_000)] {
        let seeds = seeds::seeds(first..first + HISTORIES / 2);
        let failures = failures(&encrypted(options), seeds);
        assert!(failures.is_empty(), "{} failed: {:#?}", failures.len(), failures.first());
    }
}

/// Lives of a log, each under other keys than the one before: encryption is turned on, its key changed
/// twice, and it is turned off again, and in each the power goes at some moment, which is mostly one at
/// which compaction writes anew what is under another key.
fn rekeyed_history(options: &LogOptions, seed: u64) -> Result<(), String> {
    let lives = [
        keys(None, &[]),
        keys(Some("one"), &[]),
        keys(Some("two"), &["one"]),
        keys(Some("three"), &["two", "one"]),
        keys(None, &["three", "two", "one"]),
    ];
    let mut disk = MemDisk::default();
    let mut history = History::new(seed);
    for (life, keys) in lives.into_iter().enumerate() {
        let options = LogOptions { keys, ..options.clone() };
        disk.inject(Fault::PowerCut(disk.operations() + 1 + history.chance.below(400)));
        let salt = seed * 31 + life as u64;
        match Rig::open_seeded(options.clone(), Arc::new(disk.clone()), salt) {
            Ok(mut rig) => {
                history.work(&mut rig, 100);
                history.collect(&rig);
                history.known.in_flight.clear();
            }
            Err(OpenError::Io { .. }) => {}
            Err(error) => return Err(format!("life {life}: does not open: {error}")),
        }
        disk = disk.crash(seed ^ (life as u64) << 32);
        let after = Rig::open_seeded(options, Arc::new(disk.clone()), salt ^ 7);
        let after = after.map_err(|error| format!("life {life}: after a cut: {error}"));
        let mut rig = after?;
        history.check(&mut rig).map_err(|why| format!("life {life}: {why}"))?;
        for stream in rig.core.machine().streams.keys() {
            history.known.created.insert(*stream);
        }
    }
    Ok(())
}

#[test]
fn and_while_keys_change() {
    let failed: Vec<String> = seeds::seeds(22_000..22_000 + HISTORIES / 2)
        .filter_map(|seed| {
            let options = if seed % 2 == 0 { tiny_parts() } else { tiny_cold() };
            rekeyed_history(&options, seed).err().map(|why| format!("seed {seed}: {why}"))
        })
        .collect();
    assert!(failed.is_empty(), "{} failed: {:#?}", failed.len(), failed.first());
}

#[test]
fn the_harness_notices_missing_syncs() {
    let failures = failures(&tiny_sync(SyncPolicy::Never), 0..60);
    assert!(failures.len() > 5, "only {} of 60 histories lost anything", failures.len());
}

/// Without a sync before the acknowledgement messages may be lost, but only from the end, and the
/// log must open and be whole.
#[test]
fn late_syncs_lose_at_most_the_end() {
    for sync in [SyncPolicy::Never, SyncPolicy::Every(Duration::from_millis(100))] {
        for failure in failures(&tiny_sync(sync), 0..100) {
            assert!(failure.contains("lost") || failure.contains("gone"), "{failure}");
            assert!(!failure.contains("does not open"), "{failure}");
        }
    }
}

/// One history with syncs now and then, in a log that drops and rewrites what it can meanwhile.
fn late_history(options: &LogOptions, seed: u64) -> Result<(), String> {
    let disk = MemDisk::default();
    let mut history = History::new(seed).synced_only();
    disk.inject(Fault::PowerCut(40 + history.chance.below(700)));
    if let Ok(mut rig) = Rig::open_seeded(options.clone(), Arc::new(disk.clone()), seed) {
        history.work(&mut rig, 400);
        history.collect(&rig);
    }
    let after = Rig::open_seeded(options.clone(), Arc::new(disk.crash(seed)), seed ^ 7);
    let mut rig = after.map_err(|error| format!("does not open after a cut: {error}"))?;
    history.check(&mut rig)
}

/// With late syncs a power cut takes what was not synced and nothing else: what compaction has removed
/// by then, nothing that was synced needs.
#[test]
fn what_was_synced_survives_although_compaction_goes_on() {
    let sync = SyncPolicy::Every(Duration::from_millis(100));
    let failed: Vec<String> = seeds::seeds(9_000..9_000 + HISTORIES)
        .filter_map(|seed| {
            let options = LogOptions { sync, ..tiny_cold() };
            late_history(&options, seed).err().map(|why| format!("seed {seed}: {why}"))
        })
        .collect();
    assert!(failed.is_empty(), "{} failed: {:#?}", failed.len(), failed.first());
}

/// Histories in which the medium fails in another way than by a loss of power.
const MEDIUM_HISTORIES: u64 = 300;

/// One history on a medium that is full at some moments: publishers hear of it, or the log stops and is
/// opened again. Then the power goes.
fn full_history(options: &LogOptions, seed: u64) -> Result<(), String> {
    let mut disk = MemDisk::default();
    let mut history = History::new(seed);
    for life in 0..CUTS {
        for _ in 0..=history.chance.below(4) {
            disk.inject(Fault::NoSpace(disk.operations() + 1 + history.chance.below(300)));
        }
        let salt = seed * 31 + life;
        match Rig::open_seeded(options.clone(), Arc::new(disk.clone()), salt) {
            Ok(mut rig) => {
                history.work(&mut rig, 150);
                history.collect(&rig);
                history.known.in_flight.clear();
            }
            Err(OpenError::Io { .. }) => {}
            Err(error) => return Err(format!("does not open: {error}")),
        }
        disk = if history.chance.below(2) == 0 { disk.crash(seed) } else { disk.survive() };
        let after = Rig::open_seeded(options.clone(), Arc::new(disk.clone()), salt ^ 7);
        let mut rig = after.map_err(|error| format!("does not open with room again: {error}"))?;
        history.check(&mut rig)?;
        for stream in rig.core.machine().streams.keys() {
            history.known.created.insert(*stream);
        }
    }
    Ok(())
}

#[test]
fn a_full_medium_at_any_moment_loses_nothing() {
    let failed: Vec<String> = (0..MEDIUM_HISTORIES)
        .filter_map(|seed| {
            let options = if seed % 2 == 0 { tiny_parts() } else { tiny_cold() };
            let options = if seed % 3 == 0 { encrypted(options) } else { options };
            full_history(&options, seed).err().map(|why| format!("seed {seed}: {why}"))
        })
        .collect();
    assert!(failed.is_empty(), "{failed:#?}");
}

/// One history in which a write to a segment goes to the wrong place, nowhere, or stale, and all that
/// was acknowledged is vouched for by a frame behind it. True if somebody heard of it.
fn astray_history(options: &LogOptions, seed: u64) -> Result<bool, String> {
    let disk = MemDisk::default();
    let mut history = History::new(seed);
    history.told = Some(0);
    let at = 20 + history.chance.below(250);
    let sectors = 1 + history.chance.below(8).cast_signed();
    let by = sectors * 512 * if history.chance.below(2) == 0 { 1 } else { -1 };
    disk.inject(match seed / 2 % 4 {
        0 => Fault::Lost(at),
        1 => Fault::Stale(at),
        _ => Fault::Misdirected(at, by),
    });
    let mut rig = Rig::open_seeded(options.clone(), Arc::new(disk.clone()), seed)
        .map_err(|error| format!("a new log does not open: {error}"))?;
    history.work(&mut rig, 150);
    history.collect(&rig);
    // Two witnesses: the first one may be what went astray.
    for payload in [b"one", b"two"] {
        rig.publish(1, payload);
        rig.advance(Duration::from_secs(3));
    }
    drop(rig);
    let disk = if history.chance.below(2) == 0 { disk.crash(seed) } else { disk.survive() };
    let mut rig = match Rig::open_seeded(options.clone(), Arc::new(disk), seed ^ 7) {
        Ok(rig) => rig,
        Err(error) if error.is_damage() => return Ok(true),
        Err(error) => return Err(format!("does not open: {error}")),
    };
    history.check(&mut rig)?;
    Ok(history.told > Some(0))
}

/// Writes that go astray in a log that merges, compresses and writes checkpoints meanwhile: whatever
/// was acknowledged is there as it was, or whoever asks hears of damage.
#[test]
fn writes_that_go_astray_are_healed_or_told_in_any_history() {
    let (mut told, mut failed) = (0, Vec::new());
    for seed in 0..MEDIUM_HISTORIES {
        let options = if seed % 2 == 0 { tiny_parts() } else { tiny_cold() };
        let options = if seed % 3 == 0 { encrypted(options) } else { options };
        match astray_history(&options, seed) {
            Ok(heard) => told += u64::from(heard),
            Err(why) => failed.push(format!("seed {seed}: {why}")),
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(told > MEDIUM_HISTORIES / 10, "only {told} were heard of");
}

#[test]
fn equal_seeds_give_equal_traces() {
    for seed in 0..20 {
        assert_eq!(history(&tiny_parts(), seed), history(&tiny_parts(), seed));
        assert_eq!(history(&tiny_cold(), seed), history(&tiny_cold(), seed));
    }
    assert_ne!(history(&tiny_parts(), 1), history(&tiny_parts(), 2));
}

#[test]
fn a_failed_sync_stops_the_log_but_not_its_readers() {
    for fault in [Fault::SyncError, Fault::WriteError] {
        let disk = MemDisk::default();
        let mut rig = Rig::open(tiny_parts(), Arc::new(disk.clone())).expect("opens");
        rig.create(1, 0);
        assert_eq!(rig.publish(1, b"one"), Outcome::Acked(1));
        disk.inject(fault(disk.operations() + 1));
        assert!(matches!(rig.publish(1, b"two"), Outcome::Failed(_)));
        assert!(matches!(rig.publish(1, b"three"), Outcome::Refused(_)));
        assert_eq!(rig.read(1, 1), Outcome::Body(b"one".to_vec()));
        assert_eq!(rig.read(1, 2), Outcome::Missing);
        assert_eq!(rig.handle.stats().failed, 1);
        assert!(rig.core.close().is_err());
        drop(rig);
        let mut rig = Rig::open(tiny_parts(), Arc::new(disk)).expect("opens");
        assert_eq!(rig.read(1, 1), Outcome::Body(b"one".to_vec()));
        assert!(!rig.report.clean);
    }
}

/// Histories on threads, where frames wait at the writer while one is being written.
const THREADED_HISTORIES: u64 = 300;

/// Events sent at a time, of a third of a frame each: so there is always a full frame that waits.
const THREADED_BATCH: u64 = 12;

fn body_of(token: u64) -> Vec<u8> {
    token.to_le_bytes().repeat(90)
}

/// Publishes until the log fails; returns the tokens of what was sent.
fn publish_until_it_fails(outputs: &Outputs, handle: &LogHandle<Event>) -> Vec<u64> {
    let mut tokens = Vec::new();
    while handle.stats().failed == 0 && tokens.len() < 3_000 {
        let mut batch = Vec::new();
        for _ in 0..THREADED_BATCH {
            let token = outputs.token();
            batch.push(Event::Publish { stream: StreamId(1), body: body_of(token), token });
            tokens.push(token);
        }
        let mut event = Event::Batch(batch);
        while let Err(SendError::Busy(back)) = handle.send(event.clone(), event.weight()) {
            event = back;
            std::thread::yield_now();
        }
    }
    tokens
}

/// A frame that was handed to the writer's thread early is written only behind a durable one: after
/// a failure there is at most one frame that was not committed, and whatever was acknowledged is
/// there after a power cut.
#[test]
fn frames_that_wait_at_the_writer_are_written_behind_durable_ones() {
    let mut met = 0;
    for seed in seeds::seeds(0..THREADED_HISTORIES) {
        let disk = MemDisk::default();
        let mut rig = Rig::open_seeded(tiny(), Arc::new(disk.clone()), seed).expect("opens");
        rig.create(1, 0);
        let fault = [Fault::PowerCut, Fault::SyncError, Fault::WriteError][(seed % 3) as usize];
        disk.inject(fault(disk.operations() + 1 + seed * 7919 % 251));
        let Rig { core, handle, outputs, .. } = rig;
        core.spawn("cut").expect("threads");
        let sent = publish_until_it_fails(&outputs, &handle);
        // The fault may have met a checkpoint instead, which the log survives.
        met += u64::from(handle.close().is_err());
        let committed = handle.stats().committed_lsn;
        let written = Rig::open(tiny(), Arc::new(disk.survive())).expect("opens");
        assert!(written.report.last.0 <= committed + 1, "seed {seed}: {:?}", written.report);
        drop(written);
        let mut after = Rig::open(tiny(), Arc::new(disk.crash(seed))).expect("opens");
        for token in sent {
            if let Outcome::Acked(seq) = outputs.take(token) {
                assert_eq!(after.read(1, seq), Outcome::Body(body_of(token)), "seed {seed}");
            }
        }
    }
    assert!(met > THREADED_HISTORIES / 2, "only {met} faults stopped the log");
}

#[allow(dead_code, reason = "the machine's type names the rig's")]
type Machine = Toy;
