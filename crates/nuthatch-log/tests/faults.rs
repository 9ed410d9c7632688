//! What real disks do: reads that fail once, a medium that is full at any moment of a start, writes
//! that go to the wrong place or nowhere, directories that are gone after a power cut.

mod common;
#[path = "../../../tests/seeds.rs"]
mod seeds;

use common::bytes::{checkpoints, content, frames, read, segments, write};
use common::{Event, Outcome, Rig, tiny};
use nuthatch_log::env::{Clock as _, Fault, MemDisk, SeededEntropy};
use nuthatch_log::{Disk, Inspection, LogOptions, OpenError, StreamId, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const RESERVE_BYTES: u64 = 128 * 1024;

fn options() -> LogOptions {
    LogOptions { compact_below_percent: 0, reserve_bytes: Some(RESERVE_BYTES), ..tiny() }
}

fn open(disk: &MemDisk) -> Result<Rig, OpenError> {
    Rig::open(options(), Arc::new(disk.clone()))
}

fn work(disk: &MemDisk, messages: u64) -> u64 {
    let Ok(mut rig) = open(disk) else { return 0 };
    rig.create(1, 0);
    let mut acked = 0;
    for n in 1..=messages {
        if rig.publish(1, &[n as u8; 1200]) != Outcome::Acked(n) {
            return acked;
        }
        acked = n;
        if n % 9 == 0 {
            rig.advance(Duration::from_millis(60));
        }
    }
    acked
}

/// A log that a power cut left with a torn tail, and how many messages it must hold.
fn torn(seed: u64) -> Option<(MemDisk, u64)> {
    let disk = MemDisk::default();
    disk.inject(Fault::PowerCut(150 + seed * 3));
    let acked = work(&disk, 90);
    let disk = disk.crash(seed);
    let has_tail = open(&disk.survive()).ok()?.report.torn_frames > 0;
    has_tail.then_some((disk, acked))
}

fn check(disk: &MemDisk, acked: u64, what: &str) {
    let mut rig = open(disk).unwrap_or_else(|error| panic!("{what}: {error}"));
    for seq in 1..=acked {
        assert_eq!(rig.read(1, seq), Outcome::Body(vec![seq as u8; 1200]), "{what}");
    }
    disk.release_lock();
}

/// Torn logs to try things on.
fn some_torn() -> Vec<(MemDisk, u64)> {
    let found: Vec<_> = (0..60).filter_map(torn).take(6).collect();
    assert!(found.len() >= 4, "only {} power cuts left a torn tail", found.len());
    found
}

/// An error of a read that passes at the second attempt keeps nobody from anything; one that lasts
/// may keep the log from being opened, but nothing is changed or lost by that.
#[test]
fn a_read_error_at_any_moment_of_a_start_loses_nothing() {
    for (whole, acked) in some_torn() {
        let probe = whole.survive();
        drop(open(&probe).expect("opens"));
        let reads = probe.reads();
        for at in 1..=reads {
            let disk = whole.survive();
            disk.inject(Fault::ReadError(at));
            check(&disk, acked, &format!("read {at} of {reads} fails once"));
            let disk = whole.survive();
            let before = content(&disk);
            let from = disk.reads();
            disk.inject(Fault::ReadError(from + at));
            disk.inject(Fault::ReadError(from + at + 1));
            match open(&disk) {
                Ok(rig) => drop(rig),
                Err(OpenError::Io { .. } | OpenError::Catalog { .. }) => {
                    disk.release_lock();
                    let now = content(&disk);
                    for (name, bytes) in &before {
                        let kept = now
                            .get(name)
                            .is_some_and(|now| now.starts_with(&bytes[..64.min(bytes.len())]));
                        let under_construction = name.starts_with("tmp/") || name == "catalog";
                        assert!(kept || under_construction, "read {at}: {name} is gone");
                    }
                }
                Err(error) => panic!("read {at}: {error}"),
            }
            disk.heal();
            check(&disk, acked, &format!("reads {at} and {} failed", at + 1));
        }
    }
}

/// A full medium at any step of a start: the reserve is drawn on.
#[test]
fn a_start_on_a_full_medium_draws_on_the_reserve() {
    for (whole, acked) in some_torn() {
        let probe = whole.survive();
        let reserve = probe.file_len("reserve").unwrap_or(0);
        assert!(reserve > 0, "there is a reserve");
        drop(open(&probe).expect("opens"));
        for at in 1..=probe.operations() {
            let disk = whole.survive();
            disk.inject(Fault::NoSpace(at));
            check(&disk, acked, &format!("full at operation {at}"));
        }
        // Full to the last byte, for as long as it takes.
        let disk = whole.survive();
        disk.set_capacity(0);
        let used: u64 = content(&disk).values().map(|bytes| bytes.len() as u64).sum();
        disk.set_capacity(used);
        let rig = open(&disk).expect("opens");
        assert!(rig.report.torn_frames > 0);
        drop(rig);
        check(&disk, acked, "a full disk");
    }
}

/// Without anything to draw on, a torn tail stays where it is, and the log opens once there is room for
/// a catalog.
#[test]
fn without_a_reserve_the_torn_tail_stays_in_place() {
    let (whole, acked) = some_torn().remove(0);
    whole.remove("reserve").expect("removes");
    let disk = whole.survive();
    let used: u64 = content(&disk).values().map(|bytes| bytes.len() as u64).sum();
    disk.set_capacity(used);
    if let Err(error) = open(&disk) {
        assert!(matches!(error, OpenError::Io { .. }), "{error}");
    }
    disk.release_lock();
    disk.set_capacity(used + 600);
    check(&disk, acked, "with room for a catalog");
    disk.set_capacity(u64::MAX);
    check(&disk, acked, "with room again");
}

/// A log without a reserve whose newest segment ends in a damaged frame, the `number`th of it, and
/// the bytes of that frame.
fn ends_torn(first: bool) -> (MemDisk, String, Vec<u8>) {
    let disk = MemDisk::default();
    work(&disk, 9);
    let disk = disk.survive();
    open(&disk).expect("opens").core.close().expect("closes");
    disk.release_lock();
    let mut rig = open(&disk).expect("opens");
    for n in 10..=12u8 {
        assert_eq!(rig.publish(1, &[n; 1200]), Outcome::Acked(n.into()));
    }
    drop(rig);
    let disk = disk.survive();
    disk.remove("reserve").expect("removes");
    let name = segments(&disk).pop().expect("a segment");
    let mut bytes = read(&disk, &name);
    let all = frames(&bytes);
    assert!(all.len() > 1);
    let (at, len) = if first { all[0] } else { all[all.len() - 1] };
    bytes[at + len..].fill(0);
    bytes[at + len / 2] ^= 1;
    write(&disk, &name, &bytes);
    (disk, name, bytes[at..at + len].to_vec())
}

fn has(disk: &MemDisk, torn: &[u8]) -> bool {
    content(disk).values().any(|bytes| bytes.windows(torn.len()).any(|window| window == torn))
}

/// Torn bytes for which `torn/` has no room are never destroyed: they stay, or their file is moved
/// as a whole, whenever a start is cut off and however many there are.
#[test]
fn torn_bytes_without_room_are_kept_over_any_number_of_starts() {
    for first in [false, true] {
        let (whole, name, torn) = ends_torn(first);
        assert!(torn.len() > 1000 && has(&whole, &torn));
        let full = |disk: &MemDisk| {
            let used: u64 = content(disk).values().map(|bytes| bytes.len() as u64).sum();
            disk.set_capacity(used + 700);
        };
        let probe = whole.survive();
        full(&probe);
        drop(open(&probe).expect("opens"));
        assert!(has(&probe, &torn), "first: {first}");
        assert_eq!(probe.open(&format!("torn/{name}")).is_ok(), first);
        for cut in 1..=probe.operations() {
            let disk = whole.survive();
            full(&disk);
            disk.inject(Fault::PowerCut(cut));
            drop(open(&disk));
            for after in [disk.survive(), disk.crash(cut)] {
                for start in 0..3 {
                    drop(open(&after).unwrap_or_else(|error| panic!("cut {cut}: {error}")));
                    assert!(has(&after, &torn), "first: {first}, cut {cut}, start {start}");
                    after.set_capacity(u64::MAX);
                }
                let kept =
                    content(&after).into_iter().filter(|(path, _)| path.starts_with("torn/"));
                let mut kept = kept.map(|(_, bytes)| bytes);
                let holds = |bytes: Vec<u8>| bytes.windows(torn.len()).any(|w| w == torn);
                assert!(kept.any(holds), "first: {first}, cut {cut}: not in torn/");
            }
        }
    }
}

/// A process that is killed between a segment's end in the catalog and its cut leaves space allocated:
/// the next start gives it back, also where the log counts as closed cleanly.
#[test]
fn what_a_killed_process_did_not_cut_is_cut_by_the_next_start() {
    let whole = MemDisk::default();
    assert_eq!(work(&whole, 9), 9);
    let whole = whole.survive();
    let close = |disk: &MemDisk, cut: Option<u64>| {
        let mut rig = open(disk).expect("opens");
        assert_eq!(rig.publish(1, &[10; 1200]), Outcome::Acked(10));
        let from = disk.operations();
        cut.into_iter().for_each(|at| disk.inject(Fault::PowerCut(from + at)));
        let _ = rig.core.close();
        drop(rig);
        disk.operations() - from
    };
    let steps = close(&whole.survive(), None);
    let mut left_uncut = 0;
    for cut in 1..=steps {
        let disk = whole.survive();
        close(&disk, Some(cut));
        let disk = disk.survive();
        let uncut = |disk: &MemDisk| {
            let look = Inspection::of(disk).expect("can be looked at");
            let sealed = look.segments.into_iter().filter(|s| s.state == "sealed");
            let excess = sealed.map(|s| s.file_bytes - s.good_bytes - s.footer_bytes);
            (look.clean, excess.sum::<u64>())
        };
        let (clean, excess) = uncut(&disk);
        left_uncut += u64::from(clean && excess > 0);
        drop(open(&disk).expect("opens"));
        assert_eq!(uncut(&disk.survive()).1, 0, "cut {cut} of {steps}, clean: {clean}");
    }
    assert!(left_uncut > 0, "no kill came between");
}

/// A directory without an identity and a medium without a byte to spare: the log opens, so that
/// something can be purged, and gets it when there is room.
#[test]
fn a_full_medium_puts_the_identity_off() {
    let disk = MemDisk::default();
    let acked = work(&disk, 20);
    open(&disk.survive()).expect("opens");
    let disk = disk.survive();
    open(&disk).expect("opens").core.close().expect("closes");
    disk.release_lock();
    for name in ["identity", "reserve"] {
        disk.remove(name).expect("removes");
    }
    let used: u64 = content(&disk).values().map(|bytes| bytes.len() as u64).sum();
    disk.set_capacity(used);
    check(&disk, acked, "a full medium");
    assert!(disk.open("identity").is_err());
    assert!(disk.list("tmp").expect("lists").iter().all(|name| name != "identity"));
    disk.set_capacity(u64::MAX);
    check(&disk, acked, "with room again");
    assert!(disk.open("identity").is_ok());
}

/// A torn tail that would take all of the reserve stays where it is: without room for the catalog the log
/// would not open, and nobody could free any space.
#[test]
fn a_torn_copy_leaves_the_catalog_its_share() {
    let mut met = 0;
    for (whole, acked) in some_torn() {
        let probe = whole.survive();
        let torn = open(&probe).expect("opens").report.torn_bytes;
        // A smaller one leaves room for the catalog in any case.
        if torn < 1000 {
            continue;
        }
        for spare in [0, 60, 200, 500] {
            let disk = whole.survive();
            // What a start removes first would be room as well.
            for name in disk.list("tmp").expect("lists") {
                disk.remove(&format!("tmp/{name}")).expect("removes");
            }
            disk.open("reserve").and_then(|file| file.set_len(torn + spare)).expect("cuts");
            let used: u64 = content(&disk).values().map(|bytes| bytes.len() as u64).sum();
            disk.set_capacity(used);
            check(&disk, acked, &format!("a reserve of {} bytes", torn + spare));
            met += 1;
        }
    }
    assert!(met > 0, "no torn tail was larger than a catalog");
}

/// Unusable checkpoints are kept, but not for ever: the newest ones, once another one is in use.
#[test]
fn old_unusable_checkpoints_are_removed() {
    let disk = MemDisk::default();
    let options = LogOptions { checkpoint_bytes: 2048, ..options() };
    let mut set_aside = Vec::new();
    for round in 0..24u64 {
        let mut rig = Rig::open(options.clone(), Arc::new(disk.clone())).expect("opens");
        rig.create(1, 0);
        for _ in 0..6 {
            rig.publish(1, &[round as u8; 900]);
            rig.advance(Duration::from_secs(20));
        }
        rig.core.close().expect("closes");
        drop(rig);
        disk.release_lock();
        let newest = checkpoints(&disk).pop().expect("a checkpoint");
        disk.flip_bit(&newest, 60, 1);
        set_aside.push(newest);
    }
    let left = disk.list("torn").expect("lists");
    let left: Vec<_> = left.iter().filter(|name| name.starts_with("checkpoint-")).collect();
    // The one set aside last is newer than the one in use, and the newest was not met by a start yet.
    assert!(left.len() <= 9 && left.len() >= 2, "{left:?}");
    let newest = &set_aside[set_aside.len() - 2];
    assert!(left.contains(&newest), "{newest} of {left:?}");
    assert_eq!(open(&disk).expect("opens").report.unusable, 1);
}

/// Checkpoints that find no room leave nothing behind.
#[test]
fn a_full_medium_is_not_filled_further_by_attempts() {
    let disk = MemDisk::default();
    let options = LogOptions { checkpoint_bytes: 4096, ..options() };
    let mut rig = Rig::open(options, Arc::new(disk.clone())).expect("opens");
    rig.create(1, 0);
    let mut failed = 0;
    for n in 0..120u64 {
        disk.inject(Fault::NoSpace(disk.operations() + 1 + n % 5));
        rig.publish(1, &[1; 900]);
        rig.advance(Duration::from_millis(300));
        failed += u64::from(rig.core.machine().failed.is_some());
        disk.heal();
        if failed > 0 {
            drop(rig);
            rig =
                Rig::open(LogOptions { checkpoint_bytes: 4096, ..tiny() }, Arc::new(disk.clone()))
                    .expect("opens");
            failed = 0;
        }
        let left: Vec<_> = disk.list("tmp").expect("lists");
        assert!(left.iter().all(|name| name.starts_with("spare-")), "{left:?}");
    }
}

/// Files under construction that could not be removed when they were given up do not fill a medium
/// until the next start: they go while it is full. What is in use stays, and so does what others keep
/// there.
#[test]
fn what_stayed_behind_unfinished_goes_while_the_medium_is_full() {
    let disk = MemDisk::default();
    let mut rig = Rig::open(options(), Arc::new(disk.clone())).expect("opens");
    rig.create(1, 0);
    assert_eq!(rig.publish(1, b"one"), Outcome::Acked(1));
    let left = ["tmp/compact-7", "tmp/checkpoint-00000000000000000001", "tmp/spare-99"];
    for path in left {
        disk.create(path).and_then(|file| file.write_at(&[7; 40_000], 0)).expect("writes");
    }
    disk.create("tmp/tier-note").and_then(|file| file.write_at(&[7; 10], 0)).expect("writes");
    let used: u64 = content(&disk).values().map(|bytes| bytes.len() as u64).sum();
    disk.set_capacity(used);
    let mut acked = 1;
    for _ in 0..400 {
        rig.advance(Duration::from_millis(60));
        match rig.publish(1, &[1; 400]) {
            Outcome::Acked(seq) => acked = seq,
            Outcome::Refused(_) => {}
            other => panic!("{other:?}"),
        }
    }
    let names = disk.list("tmp").expect("lists");
    assert!(left.iter().all(|path| !names.contains(&path[4..].to_owned())), "{names:?}");
    assert!(names.contains(&"tier-note".to_owned()), "{names:?}");
    assert!(acked > 80, "only {acked} found room in what was given back");
    for seq in 1..=acked {
        assert!(matches!(rig.read(1, seq), Outcome::Body(_)), "{seq}");
    }
}

/// A write to the wrong place, or to none, is never a silent loss: whoever asks for what was
/// acknowledged gets it, or hears of damage.
#[test]
fn writes_that_go_astray_are_told() {
    let (mut told, mut kept) = (0, 0);
    for seed in seeds::seeds(0..300) {
        let mut chance = SeededEntropy::new(seed);
        let disk = MemDisk::default();
        let at = 20 + chance.below(150);
        let by = (1 + chance.below(6) as i64) * 512 * if chance.below(2) == 0 { 1 } else { -1 };
        disk.inject(match seed / 2 % 4 {
            0 => Fault::Lost(at),
            1 => Fault::Stale(at),
            _ => Fault::Misdirected(at, by),
        });
        let acked = work(&disk, 80);
        let disk = if seed % 2 == 0 { disk.crash(seed) } else { disk.survive() };
        let mut rig = match open(&disk) {
            Ok(rig) => rig,
            Err(error) if error.is_damage() => {
                told += 1;
                continue;
            }
            Err(error) => panic!("seed {seed}: {error}"),
        };
        let mut bodies = BTreeMap::new();
        for seq in 1..=acked {
            bodies.insert(seq, rig.read(1, seq));
        }
        let last = rig.core.machine().streams.get(&StreamId(1)).map_or(0, |stream| stream.last);
        for (seq, found) in bodies {
            match found {
                Outcome::Body(body) => assert_eq!(body, vec![seq as u8; 1200], "seed {seed}"),
                Outcome::Damaged => told += 1,
                // The newest frame of all: nothing was written behind it that could tell.
                Outcome::Missing if seq == acked && last < acked => {}
                other => panic!("seed {seed}: message {seq} of {acked}: {other:?}"),
            }
            kept += 1;
        }
    }
    assert!(told > 100 && kept > 1000, "{told} told, {kept} read");
}

/// Sub-directories are made durable before anything in them is relied upon: what was set aside is there
/// after the next power cut.
#[test]
fn what_was_set_aside_survives_a_power_cut() {
    let mut seen = 0;
    for seed in seeds::seeds(0..40) {
        let Some((disk, _)) = torn(seed) else { continue };
        let rig = open(&disk).expect("opens");
        let frames = rig.report.torn_frames;
        drop(rig);
        for cut in 0..4 {
            let after = disk.crash(seed * 7 + cut);
            assert!(frames == 0 || !after.list("torn").expect("lists").is_empty(), "seed {seed}");
        }
        seen += 1;
    }
    assert!(seen > 3, "only {seen}");
}

/// Lets the log and its writer work until they rest. Returns when the log wants to be woken.
fn rest(rig: &mut Rig) -> Option<Timestamp> {
    loop {
        let turn = rig.core.turn();
        if !turn.progress && !rig.core.write_one() {
            return turn.wake_at;
        }
    }
}

fn publish_by_hand(rig: &mut Rig, messages: u8) {
    for n in 1..=messages {
        rig.send(Event::Publish { stream: StreamId(1), body: vec![n; 1200], token: 0 });
        rest(rig);
    }
    rig.clock.advance(Duration::from_secs(120));
}

/// What waits for the worker, or for a log that takes no more writes, is due and stays so: a thread that was
/// woken for it would not sleep.
#[test]
fn a_log_sleeps_while_its_worker_is_busy_and_when_it_has_failed() {
    let disk = MemDisk::default();
    let options = LogOptions { compact_below_percent: 90, ..tiny() };
    let mut rig = Rig::open(options, Arc::new(disk.clone())).expect("opens");
    rig.core.run_by_hand();
    rig.send(Event::Create { stream: StreamId(1), max_messages: 3 });
    publish_by_hand(&mut rig, 60);
    let wake_at = rest(&mut rig);
    assert!(rig.core.has_work(), "it has begun a task");
    assert!(wake_at.is_none_or(|at| at > rig.clock.now()), "{wake_at:?}");
    disk.inject(Fault::WriteError(disk.operations() + 1));
    publish_by_hand(&mut rig, 1);
    while rig.core.work_one() {
        rest(&mut rig);
    }
    assert_eq!(rig.handle.stats().failed, 1);
    assert_eq!(rest(&mut rig), None);
}
