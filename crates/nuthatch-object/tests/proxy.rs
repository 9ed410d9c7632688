//! A log in a bucket behind a real S3 API, with a network between them that does its worst (see
//! `common/proxy.rs`): whatever was acknowledged is readable for the next owner, in order, no
//! sequence is given out twice, and an owner that was replaced acknowledges nothing, even when its
//! requests arrive long after. The same checks must fail when the fence is broken.
//!
//! `NUTHATCH_FAULT_ROUNDS=N` plays N rounds of each kind instead of a hundred in all.

#[path = "../../nuthatch-log/tests/common/mod.rs"]
mod common;
#[path = "common/proxy.rs"]
mod proxy;
#[path = "../../../tests/seeds.rs"]
mod seeds;
#[path = "common/s3.rs"]
mod store;

use common::{History, Rig, tiny};
use nuthatch_log::{LogOptions, OpenError, SyncPolicy};
use nuthatch_object::{BucketOptions, ObjectDisk, ObjectDiskOptions};
use proxy::{Fate, Faults, Interruption, Proxy};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::S3;

/// Rounds of a test run: deaths, and takeovers.
const DEATH_ROUNDS: u64 = 60;
const TAKEOVER_ROUNDS: u64 = 30;

/// Rounds with a broken fence of which some must fail.
const BROKEN_ROUNDS: u64 = 10;

/// Rounds played at a time; most of a round is waiting for answers that do not come.
const PLAYERS: usize = 6;

/// Deaths of a round; it goes on with what the last death left.
const DEATHS: u64 = 2;

/// Of a hundred requests so many do not go as they should.
const FAIL_PERCENT: u64 = 8;

/// How long the client waits for an answer. An answer that is merely slow to come, on a busy
/// machine, costs a repetition.
const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(500);

/// How long a request is repeated: no round may fail because a machine is slow.
const RETRY_FOR: Duration = Duration::from_secs(120);

type Fates = BTreeMap<Fate, u64>;

fn rounds(default: u64) -> u64 {
    let asked = std::env::var("NUTHATCH_FAULT_ROUNDS");
    asked.map_or(default, |text| text.parse().expect("NUTHATCH_FAULT_ROUNDS is a number"))
}

fn options() -> LogOptions {
    LogOptions { sync: SyncPolicy::Always, block_bytes: 64, ..tiny() }
}

/// Opens the log of a round through a proxy.
fn open(address: SocketAddr, prefix: &str, seed: u64) -> Result<Rig, String> {
    let bucket_options = BucketOptions {
        retry_first_ms: 1,
        retry_for: RETRY_FOR,
        attempt_timeout: ATTEMPT_TIMEOUT,
        ..BucketOptions::default()
    };
    let bucket = store::bucket(address, prefix, bucket_options);
    // Small objects, so that a frame takes several.
    let options_of_disk =
        ObjectDiskOptions { seed, part_bytes: 700, ..ObjectDiskOptions::default() };
    let disk = ObjectDisk::open(bucket, options_of_disk).map_err(|error| error.to_string())?;
    Rig::open_seeded(options(), Arc::new(disk), seed).map_err(|error| match error {
        OpenError::Io { .. } => format!("io: {error}"),
        error => format!("does not open: {error}"),
    })
}

/// An owner that dies at seeded changes of the store, while the network does its worst.
fn deaths(s3: SocketAddr, prefix: &str, seed: u64) -> Result<Fates, String> {
    let mut history = History::new(seed);
    let mut fates = Fates::new();
    for death in 0..DEATHS {
        let die_at = Some(1 + history.chance.below(50));
        let salt = seed * 31 + death;
        let faults = Faults { seed: salt, percent: FAIL_PERCENT, die_at, hide_fences: false };
        let proxy = Proxy::start(s3, faults);
        if let Ok(mut rig) = open(proxy.address, prefix, salt) {
            history.work(&mut rig, 30);
            history.collect(&rig);
            history.known.in_flight.clear();
        }
        add(&mut fates, proxy.fates());
        let quieter = Faults { seed: salt ^ 7 << 40, percent: 2, ..Faults::default() };
        let proxy = Proxy::start(s3, quieter);
        let mut rig = open(proxy.address, prefix, salt ^ 7 << 40)
            .map_err(|error| format!("after death {death}: {error}"))?;
        history.check(&mut rig)?;
        history.known.created.extend(rig.core.machine().streams.keys());
        add(&mut fates, proxy.fates());
    }
    Ok(fates)
}

/// An owner that is interrupted at a seeded change by another, which works and ends; then what the
/// first had sent arrives, and it goes on as if nothing had happened. Whether it was ended.
fn takeover(
    s3: SocketAddr,
    prefix: &str,
    seed: u64,
    hide_fences: bool,
) -> Result<(bool, Fates), String> {
    let mut first = History::new(seed);
    let faults = Faults { seed, percent: FAIL_PERCENT, die_at: None, hide_fences };
    let proxy = Proxy::start(s3, faults);
    let mut rig = open(proxy.address, prefix, seed)?;
    first.work(&mut rig, 6);
    let at = proxy.changes() + 1 + first.chance.below(12);
    let second = second_owner(&proxy, at, s3, prefix, seed);
    first.work(&mut rig, 24);
    first.collect(&rig);
    let fenced = rig.core.machine().failed.is_some();
    drop(rig);
    let mut fates = proxy.fates();
    if proxy.cancel() {
        // The first ended its work before the turn of the second came.
        return Ok((false, fates));
    }
    let second = second.recv().map_err(|error| format!("the second owner: {error}"))?;
    let proxy = Proxy::start(s3, Faults { seed: seed ^ 9 << 40, percent: 2, ..Faults::default() });
    let mut rig = open(proxy.address, prefix, seed ^ 9 << 40)?;
    // What the second acknowledged counts as known to all; a conflict is a sequence given out twice.
    first.merge(second?)?;
    first.known.in_flight.clear();
    first.check(&mut rig)?;
    add(&mut fates, proxy.fates());
    Ok((fenced, fates))
}

type Reported = Receiver<Result<History, String>>;

/// Has another owner take over at a change of the first.
fn second_owner(first: &Proxy, at: u64, s3: SocketAddr, prefix: &str, seed: u64) -> Reported {
    let (send, receive) = sync_channel(1);
    let prefix = prefix.to_owned();
    let work = move || {
        let faults = Faults { seed: seed ^ 5 << 40, percent: 2, ..Faults::default() };
        let proxy = Proxy::start(s3, faults);
        let mut history = History::new(seed ^ 0x5555);
        let mut rig = open(proxy.address, &prefix, seed ^ 5 << 40)?;
        history.known.created.extend(rig.core.machine().streams.keys());
        history.work(&mut rig, 6);
        history.collect(&rig);
        Ok(history)
    };
    let run = Box::new(move || {
        let _ = send.send(work());
    });
    first.interrupt(Interruption { at, run });
    receive
}

fn add(all: &mut Fates, more: Fates) {
    for (fate, count) in more {
        *all.entry(fate).or_default() += count;
    }
}

/// Plays rounds, a few at a time, and returns what each led to, with its seed.
fn play<T: Send>(
    seeds: impl Iterator<Item = u64>,
    round: impl Fn(u64) -> Result<T, String> + Sync,
) -> Vec<(u64, Result<T, String>)> {
    let (seeds, next) = (seeds.collect::<Vec<u64>>(), AtomicUsize::new(0));
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..PLAYERS {
            scope.spawn(|| {
                loop {
                    let Some(&seed) = seeds.get(next.fetch_add(1, Ordering::SeqCst)) else {
                        return;
                    };
                    let result = round(seed);
                    done.lock().expect("no round panicked").push((seed, result));
                }
            });
        }
    });
    done.into_inner().expect("no round panicked")
}

fn failures<T>(results: &[(u64, Result<T, String>)]) -> Vec<String> {
    let failed = |(seed, result): &(u64, Result<T, String>)| {
        result.as_ref().err().map(|why| format!("seed {seed}: {why}"))
    };
    results.iter().filter_map(failed).collect()
}

#[test]
fn what_was_acknowledged_survives_the_network_and_the_death_of_the_server() {
    let s3 = S3::start("proxy-deaths");
    let results = play(seeds::seeds(0..rounds(DEATH_ROUNDS)), |seed| {
        let prefix = format!("deaths/{seed}");
        deaths(s3.address, &prefix, seed).inspect(|_| s3.clear(&prefix))
    });
    let failures = failures(&results);
    assert!(failures.is_empty(), "{} failed: {:#?}", failures.len(), failures.first());
    let mut fates = Fates::new();
    results.into_iter().filter_map(|(_, fates)| fates.ok()).for_each(|more| add(&mut fates, more));
    every_fault_was_met(&fates);
}

/// A harness that injects nothing proves nothing.
fn every_fault_was_met(fates: &Fates) {
    let met = |wanted: Fate| fates.get(&wanted).copied().unwrap_or(0);
    for fate in [
        Fate::Slow,
        Fate::Refused(500),
        Fate::Refused(503),
        Fate::Forgotten(500),
        Fate::Forgotten(503),
        Fate::ResetBeforeBody,
        Fate::ResetWithinBody,
        Fate::ReplyLost,
        Fate::ReplyCut,
        Fate::Silent,
        Fate::SilentAfter,
        Fate::Late,
        Fate::Twice,
        Fate::Conflict,
        Fate::Dies { applied: true },
        Fate::Dies { applied: false },
    ] {
        assert!(met(fate) > 0, "{fate:?} was never met: {fates:?}");
    }
}

#[test]
fn an_owner_whose_requests_come_late_acknowledges_nothing() {
    let s3 = S3::start("proxy-takeovers");
    let rounds = rounds(TAKEOVER_ROUNDS);
    let results = play(seeds::seeds(0..rounds), |seed| {
        let prefix = format!("takeovers/{seed}");
        takeover(s3.address, &prefix, seed, false).inspect(|_| s3.clear(&prefix))
    });
    let failures = failures(&results);
    assert!(failures.is_empty(), "{} failed: {:#?}", failures.len(), failures.first());
    let ended = results.iter().filter(|(_, result)| matches!(result, Ok((true, _)))).count();
    assert!(ended as u64 > rounds / 2, "only {ended} takeovers of {rounds} ended the first owner");
}

#[test]
fn the_harness_notices_a_broken_fence() {
    let s3 = S3::start("proxy-broken");
    let results =
        play(0..BROKEN_ROUNDS, |seed| takeover(s3.address, &format!("broken/{seed}"), seed, true));
    let failures = failures(&results);
    assert!(!failures.is_empty(), "none of {BROKEN_ROUNDS} takeovers lost anything");
}
