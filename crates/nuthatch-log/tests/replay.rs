//! Whatever way a log is replayed — with its checkpoints, without some, without all, at any step of
//! a compaction — the machine ends in the same state. And damage never passes for silence.

mod common;

use common::{
    Event, Outcome, Outputs, Rig, Toy, ToyStream, encrypted, tiny, tiny_cold, tiny_parts,
};
use nuthatch_log::env::{Fault, MemDisk, SeededEntropy};
use nuthatch_log::{
    Disk, Inspection, LogAccess, LogOptions, Lsn, OpenError, Read, Reporter, Seq, Standby,
    StandbyError, StandbyReader, StreamId,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

type State = BTreeMap<StreamId, ToyStream>;

#[derive(Clone, Debug)]
enum Step {
    Publish(u32, u8),
    Delete(u32, u16),
    Purge(u32, u16),
    Drop(u32),
    Create(u32, u64),
    Wait(u16),
    Follow,
    Reopen(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        24 => (1u32..6, any::<u8>()).prop_map(|(stream, len)| Step::Publish(stream, len)),
        2 => (1u32..6, any::<u16>()).prop_map(|(stream, seq)| Step::Delete(stream, seq)),
        1 => (1u32..6, any::<u16>()).prop_map(|(stream, seq)| Step::Purge(stream, seq)),
        1 => (1u32..6).prop_map(Step::Drop),
        2 => (1u32..6, 0u64..6).prop_map(|(stream, max)| Step::Create(stream, max)),
        4 => (0u16..1500).prop_map(Step::Wait),
        3 => Just(Step::Follow),
        1 => any::<bool>().prop_map(Step::Reopen),
    ]
}

/// Stream ids are never reused: each name gets a new id when its stream is created anew.
struct World {
    options: LogOptions,
    disk: MemDisk,
    rig: Option<Rig>,
    ids: BTreeMap<u32, u32>,
    next_id: u32,
    /// What follows the log, and the outputs of its machine.
    standby: Option<(Standby<Toy>, Outputs)>,
}

impl World {
    fn new(options: LogOptions) -> Self {
        let disk = MemDisk::default();
        let rig = Some(Rig::open(options.clone(), Arc::new(disk.clone())).expect("opens"));
        Self { options, disk, rig, ids: BTreeMap::new(), next_id: 1, standby: None }
    }

    fn rig(&mut self) -> &mut Rig {
        self.rig.as_mut().expect("open")
    }

    fn last_of(&mut self, id: u32) -> u64 {
        self.rig().core.machine().streams.get(&StreamId(id)).map_or(0, |stream| stream.last)
    }

    fn take(&mut self, step: &Step) {
        let id = |world: &Self, name: &u32| world.ids.get(name).copied();
        match step {
            Step::Publish(name, len) => {
                let Some(id) = id(self, name) else { return };
                for n in 0..4 {
                    let body = vec![n; usize::from(*len)];
                    assert!(matches!(self.rig().publish(id, &body), Outcome::Acked(_)));
                }
            }
            Step::Delete(name, seq) => {
                let Some(id) = id(self, name) else { return };
                let seq = u64::from(*seq) % (self.last_of(id) + 1);
                self.rig().run(Event::Delete { stream: StreamId(id), seq, token: 0 });
            }
            Step::Purge(name, seq) => {
                let Some(id) = id(self, name) else { return };
                let up_to = u64::from(*seq) % (self.last_of(id) + 1);
                self.rig().run(Event::Purge { stream: StreamId(id), up_to });
            }
            Step::Drop(name) => {
                let Some(id) = self.ids.remove(name) else { return };
                self.rig().run(Event::Drop { stream: StreamId(id) });
            }
            Step::Create(name, max) => {
                if !self.ids.contains_key(name) {
                    let id = self.next_id;
                    self.next_id += 1;
                    self.ids.insert(*name, id);
                    self.rig().create(id, *max);
                }
            }
            Step::Wait(ms) => self.rig().advance(Duration::from_millis(u64::from(*ms))),
            Step::Follow => self.follow(),
            Step::Reopen(clean) => self.reopen(*clean),
        }
    }

    fn reopen(&mut self, clean: bool) {
        let mut rig = self.rig.take().expect("open");
        if clean {
            rig.core.close().expect("closes");
        }
        let before = rig.core.machine().streams.clone();
        let stats = rig.handle.stats();
        COMPACTED.fetch_add(stats.compacted_segments, Ordering::Relaxed);
        PACKED.fetch_add(u64::from(stats.packed_bytes > 0), Ordering::Relaxed);
        drop(rig);
        let (standby, outputs) = match self.standby.take() {
            Some((standby, outputs)) => (Some(standby), outputs),
            None => (None, Outputs::default()),
        };
        let has_standby = standby.is_some();
        let (options, disk) = (self.options.clone(), Arc::new(self.disk.clone()));
        let mut rig = Rig::open_from(options, disk, 1, (standby, outputs)).expect("opens");
        assert_eq!(rig.core.machine().streams, before);
        if rig.report.standby > Lsn(0) {
            FOLLOWED.fetch_add(1, Ordering::Relaxed);
            assert!(rig.report.indexed == 0 && rig.report.state_frames == 0);
        } else if has_standby {
            LEFT_BEHIND.fetch_add(1, Ordering::Relaxed);
        }
        for (stream, state) in &before {
            for seq in state.live.keys() {
                let read = rig.read(stream.0, *seq);
                assert!(matches!(read, Outcome::Body(_)), "{stream} {seq}: {read:?}");
            }
        }
        self.rig = Some(rig);
    }

    /// Has the standby read what there is, which begins it if there is none.
    fn follow(&mut self) {
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let Some((standby, _)) = &mut self.standby else {
            let outputs = Outputs::default();
            let begun = Standby::begin(&self.options.keys, &disk, Toy::new(outputs.clone()));
            self.standby = begun.expect("reads").map(|standby| (standby, outputs));
            return;
        };
        loop {
            match standby.follow(&disk) {
                Ok(true) => {}
                Ok(false) => {
                    return read_all(standby, &disk, self.rig.as_mut().expect("open"));
                }
                Err(StandbyError::Changed { .. }) => {
                    LEFT_BEHIND.fetch_add(1, Ordering::Relaxed);
                    self.standby = None;
                    return;
                }
                Err(why) => panic!("{why}"),
            }
        }
    }
}

/// Every message of a standby is read from its files as its owner reads it.
fn read_all(standby: &mut Standby<Toy>, disk: &Arc<dyn Disk>, rig: &mut Rig) {
    let live = standby.machine().streams.iter();
    let live: Vec<(StreamId, u64)> =
        live.flat_map(|(id, stream)| stream.live.keys().map(|seq| (*id, *seq))).collect();
    let mut reader = StandbyReader::default();
    for (stream, seq) in live {
        let body = loop {
            let found = standby.read(&mut reader, |_, log| match log.read(stream, Seq(seq)) {
                Read::Ready(stored) => Some(stored.record.body.to_vec()),
                Read::Pending => None,
                other => panic!("{stream} {seq}: {other:?}"),
            });
            match found {
                Some(body) => break body,
                None => assert!(reader.load(disk), "{stream} {seq} cannot be read"),
            }
        };
        assert_eq!(rig.read(stream.0, seq), Outcome::Body(body), "{stream} {seq}");
        READ.fetch_add(1, Ordering::Relaxed);
    }
}

/// Messages that were read from standbys' files.
static READ: AtomicU64 = AtomicU64::new(0);

/// Segments that all cases of the property compacted: the property says nothing without.
static COMPACTED: AtomicU64 = AtomicU64::new(0);

/// Openings of logs with what a standby had read of them, likewise.
static FOLLOWED: AtomicU64 = AtomicU64::new(0);

/// Standbys that were left behind by a compaction, likewise.
static LEFT_BEHIND: AtomicU64 = AtomicU64::new(0);

/// Openings of logs in which anything was compressed, likewise.
static PACKED: AtomicU64 = AtomicU64::new(0);

/// Every state that a replay of `disk` gives, over all subsets of its checkpoints.
fn replays(options: &LogOptions, disk: &MemDisk) -> Vec<State> {
    let names = disk.list("").expect("lists");
    let checkpoints: Vec<_> = names.iter().filter(|n| n.starts_with("checkpoint-")).collect();
    (0..1u32 << checkpoints.len())
        .map(|subset| {
            let copy = disk.crash(1);
            for (i, name) in checkpoints.iter().enumerate() {
                if subset & 1 << i != 0 {
                    copy.remove(name).expect("removes");
                }
            }
            let rig = Rig::open(options.clone(), Arc::new(copy)).expect("opens");
            rig.core.machine().streams.clone()
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    fn replays_agree(
        steps in proptest::collection::vec(step(), 1..250), cold: bool, sealed: bool
    ) {
        let options = if cold { tiny_cold() } else { tiny_parts() };
        let mut world = World::new(if sealed { encrypted(options) } else { options });
        for (number, step) in steps.iter().enumerate() {
            world.take(step);
            if number % 10 == 9 || number + 1 == steps.len() {
                let now = world.rig().core.machine().streams.clone();
                for state in replays(&world.options, &world.disk) {
                    prop_assert_eq!(&state, &now, "after step {}", number);
                }
            }
        }
        world.reopen(true);
    }
}

#[test]
fn every_way_of_replaying_gives_the_same_state() {
    replays_agree();
    let compacted = COMPACTED.load(Ordering::Relaxed);
    assert!(compacted > 100, "only {compacted} segments were compacted");
    let followed = FOLLOWED.load(Ordering::Relaxed);
    let left_behind = LEFT_BEHIND.load(Ordering::Relaxed);
    assert!(followed > 50 && left_behind > 5, "{followed} standbys, {left_behind} left behind");
    let read = READ.load(Ordering::Relaxed);
    assert!(read > 1000, "only {read} messages were read from standbys' files");
    let packed = PACKED.load(Ordering::Relaxed);
    assert!(packed > 10, "messages were compressed only {packed} times");
}

/// A deletion is compacted away while the stream's creation stays, in a segment that is still good.
#[test]
fn a_stream_whose_deletion_was_compacted_away_stays_gone() {
    let mut world = World::new(tiny_parts());
    world.rig().create(1, 0);
    world.rig().create(2, 0);
    for _ in 0..40 {
        world.rig().publish(2, &[7; 300]);
    }
    world.rig().create(3, 1);
    world.rig().run(Event::Drop { stream: StreamId(1) });
    for _ in 0..200 {
        world.rig().publish(3, &[7; 300]);
        world.rig().advance(Duration::from_millis(50));
    }
    assert!(world.rig().handle.stats().compacted_segments > 3);
    let now = world.rig().core.machine().streams.clone();
    assert!(!now.contains_key(&StreamId(1)));
    for state in replays(&world.options, &world.disk) {
        assert_eq!(state, now);
    }
}

/// Publishes and drops until the power goes; compaction and new segments come along.
fn work_until_cut(options: &LogOptions, disk: &MemDisk, cut: u64) {
    disk.inject(Fault::PowerCut(cut));
    let Ok(mut rig) = Rig::open(options.clone(), Arc::new(disk.clone())) else { return };
    rig.create(1, 2);
    rig.create(2, 0);
    for n in 0..150 {
        rig.publish(1, &[1; 300]);
        if n % 30 == 0 {
            rig.publish(2, &[2; 300]);
        }
        rig.advance(Duration::from_millis(100));
        if rig.core.machine().failed.is_some() {
            return;
        }
    }
    let stats = rig.handle.stats();
    assert!(stats.compacted_segments > 3, "{stats:?}");
}

/// Whoever waited for a log that is opened has the machine first.
#[test]
fn nothing_is_compacted_right_after_a_start() {
    let options = LogOptions { rest_at_start_ms: 3_000, ..tiny() };
    let disk = MemDisk::default();
    let mut rig = Rig::open(options.clone(), Arc::new(disk.clone())).expect("opens");
    rig.create(1, 2);
    for _ in 0..100 {
        rig.publish(1, &[1; 300]);
    }
    drop(rig);
    let mut rig = Rig::open(options, Arc::new(disk)).expect("opens");
    let compacted = |rig: &Rig| rig.handle.stats().compacted_segments;
    for _ in 0..25 {
        rig.publish(1, &[1; 300]);
        rig.advance(Duration::from_millis(100));
    }
    assert_eq!(compacted(&rig), 0);
    for _ in 0..25 {
        rig.publish(1, &[1; 300]);
        rig.advance(Duration::from_millis(100));
    }
    assert!(compacted(&rig) > 0);
}

/// Whatever a kill interrupts — the end of a segment, a compaction between any two steps — nothing
/// is called damaged or strange, and nothing is left lying about.
#[test]
fn a_kill_raises_no_false_alarms_and_leaves_nothing_behind() {
    kill_at_every(3, &tiny_parts());
}

/// The same of a log that merges, sorts and compresses: several segments are made at a time.
#[test]
fn nor_does_a_kill_while_cold_segments_are_rewritten() {
    kill_at_every(7, &tiny_cold());
}

fn kill_at_every(nth: usize, options: &LogOptions) {
    let whole = MemDisk::default();
    work_until_cut(options, &whole, u64::MAX);
    for cut in (1..whole.operations()).step_by(nth) {
        let disk = MemDisk::default();
        work_until_cut(options, &disk, cut);
        let disk = disk.survive();
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&said);
        let report = Reporter::new(move |text| heard.lock().expect("lock").push(text.to_owned()));
        let options = LogOptions { report, ..options.clone() };
        let rig = Rig::open(options, Arc::new(disk.clone())).expect("opens");
        let alarms: Vec<String> = said.lock().expect("lock").clone();
        let alarms: Vec<_> = alarms.iter().filter(|text| !text.contains("footer")).collect();
        assert!(alarms.is_empty() && rig.report.torn_frames == 0, "cut {cut}: {alarms:?}");
        drop(rig);
        assert_eq!(disk.list("torn").expect("lists"), [""; 0], "cut {cut}");
        let inspection = Inspection::of(&disk).expect("can be read");
        assert!(inspection.strangers.is_empty(), "cut {cut}: {:?}", inspection.strangers);
        let replaced = inspection.segments.iter().filter(|s| s.state == "replaced").count();
        assert_eq!(replaced, 0, "cut {cut}");
    }
}

/// Torn tails are kept, but not for ever.
#[test]
fn old_torn_tails_are_removed() {
    let mut disk = MemDisk::default();
    let mut torn = 0;
    for round in 0..800 {
        if let Ok(mut rig) = Rig::open_seeded(tiny(), Arc::new(disk.clone()), round) {
            rig.create(1, 0);
            disk.inject(Fault::PowerCut(disk.operations() + 1 + round % 40));
            (0..6).for_each(|n| drop(rig.publish(1, &[n; 1500])));
        }
        disk = disk.crash(round);
        torn += disk.list("torn").expect("lists").len();
    }
    let left = disk.list("torn").expect("lists").len();
    assert!(torn > 500 && left == 32, "{left} of {torn}");
}

/// Before a compaction removes anything a checkpoint has the states that it relies on: the segment that
/// they are in may be lost, and then nothing else tells what lives in compacted segments.
#[test]
fn a_checkpoint_has_the_states_that_a_compaction_relies_on() {
    let never = u64::MAX;
    let options = LogOptions { checkpoint_bytes: never, checkpoint_interval_ms: never, ..tiny() };
    let mut rig = Rig::open(options, Arc::new(MemDisk::default())).expect("opens");
    rig.create(1, 4);
    for _ in 0..100 {
        rig.publish(1, &[7; 300]);
        rig.advance(Duration::from_millis(100));
    }
    let stats = rig.handle.stats();
    assert!(stats.compacted_segments > 0 && stats.checkpoints > 0, "{stats:?}");
}

/// A stream whose state no single record takes: its segments are compacted all the same, and every
/// way of replaying finds it as it was.
#[test]
fn a_state_larger_than_any_record_does_not_stop_compaction() {
    let options = LogOptions { max_record_bytes: 700, state_part_bytes: 256, ..tiny() };
    let disk = MemDisk::default();
    let mut rig = Rig::open(options.clone(), Arc::new(disk.clone())).expect("opens");
    rig.create(1, 0);
    rig.create(2, 4);
    for seq in 1..=250 {
        rig.publish(1, &[1; 40]);
        if seq % 2 == 0 {
            rig.run(Event::Delete { stream: StreamId(1), seq, token: 0 });
        }
    }
    for _ in 0..300 {
        rig.publish(2, &[7; 300]);
        rig.advance(Duration::from_millis(100));
    }
    let stats = rig.handle.stats();
    assert!(stats.compacted_segments > 3 && stats.states_refused == 0, "{stats:?}");
    let now = rig.core.machine().streams.clone();
    assert!(now[&StreamId(1)].live.len() == 125);
    for subset in 0..4 {
        let copy = disk.crash(1);
        for (i, name) in copy.list("").expect("lists").iter().enumerate() {
            if name.starts_with("checkpoint-") && subset & 1 << (i % 2) != 0 {
                copy.remove(name).expect("removes");
            }
        }
        let rig = Rig::open(options.clone(), Arc::new(copy)).expect("opens");
        assert_eq!(rig.core.machine().streams, now);
    }
}

/// Thousands of states lie in one frame: it is read once for all of them, not once for each.
#[test]
fn a_frame_is_read_once_for_the_states_in_it() {
    let options = LogOptions { segment_bytes: 64 * 1024, ..tiny() };
    let disk = MemDisk::default();
    let mut rig = Rig::open(options.clone(), Arc::new(disk.clone())).expect("opens");
    (1..=100).for_each(|stream| rig.create(stream, 4));
    for n in 0..3000 {
        rig.publish(1 + n % 100, &[7; 300]);
        if n % 20 == 0 {
            rig.advance(Duration::from_millis(100));
        }
    }
    let stats = rig.handle.stats();
    assert!(stats.compacted_segments > 0, "{stats:?}");
    let now = rig.core.machine().streams.clone();
    let copy = disk.crash(1);
    for name in copy.list("").expect("lists") {
        if name.starts_with("checkpoint-") {
            copy.remove(&name).expect("removes");
        }
    }
    let rig = Rig::open(options, Arc::new(copy)).expect("opens");
    assert_eq!(rig.core.machine().streams, now);
    let read = rig.report.state_frames;
    assert!(
        (1..=20).contains(&read),
        "frames were read {read} times for the states of 100 streams"
    );
}

/// A log with some of everything, closed or not, and what can be read in it.
fn furnished(clean: bool) -> (MemDisk, State) {
    furnished_with(&options(), clean)
}

fn furnished_with(options: &LogOptions, clean: bool) -> (MemDisk, State) {
    let disk = MemDisk::default();
    let mut rig = Rig::open(options.clone(), Arc::new(disk.clone())).expect("opens");
    rig.create(1, 0);
    rig.create(2, 10);
    for n in 0..120u8 {
        rig.publish(1, &vec![n; usize::from(n) * 3]);
        rig.publish(2, &[n; 300]);
        rig.advance(Duration::from_millis(40));
    }
    rig.advance(Duration::from_secs(2));
    let state = rig.core.machine().streams.clone();
    if clean {
        rig.core.close().expect("closes");
    }
    drop(rig);
    (disk, state)
}

fn options() -> LogOptions {
    tiny_parts()
}

/// Opens a disk and reads everything; `Err` says that damage was reported, `Ok` what was wrong
/// although nothing was reported.
fn silent_loss(disk: MemDisk, expected: &State) -> Result<Option<String>, String> {
    let mut rig = match Rig::open(options(), Arc::new(disk)) {
        Ok(rig) => rig,
        Err(OpenError::Io { context, source }) => panic!("{context}: {source}"),
        Err(error) => return Err(error.to_string()),
    };
    if rig.report.torn_frames > 0 {
        return Err("torn".to_owned());
    }
    let found = rig.core.machine().streams.clone();
    if found != *expected {
        return Ok(Some("the state differs".to_owned()));
    }
    for (stream, state) in expected {
        for seq in state.live.keys() {
            let expected_len = state.live[seq] - 32 - "subject.0".len();
            match rig.read(stream.0, *seq) {
                Outcome::Damaged => return Err("damaged".to_owned()),
                Outcome::Body(body) if body.len() == expected_len => {
                    if body.iter().any(|byte| *byte != body[0]) {
                        return Ok(Some(format!("message {seq} of {stream} changed")));
                    }
                }
                other => return Ok(Some(format!("message {seq} of {stream}: {other:?}"))),
            }
        }
    }
    Ok(None)
}

#[test]
fn a_flipped_bit_is_never_a_silent_loss() {
    for (clean, options) in [(true, options()), (false, options()), (true, tiny_cold())] {
        let (disk, state) = furnished_with(&options, clean);
        let mut chance = SeededEntropy::new(u64::from(clean));
        let names: Vec<_> = disk.list("").expect("lists");
        let (mut reported, mut harmless) = (0, 0);
        for _ in 0..600 {
            let name = &names[chance.below(names.len() as u64) as usize];
            let len = disk.file_len(name).unwrap_or(0) as u64;
            let (byte, bit) = (chance.below(len) as usize, chance.below(8) as u8);
            let copy = disk.crash(1);
            copy.flip_bit(name, byte, bit);
            match silent_loss(copy, &state) {
                Err(_) => reported += 1,
                Ok(None) => harmless += 1,
                Ok(Some(loss)) => panic!("bit {bit} of byte {byte} of {name}: {loss}"),
            }
        }
        assert!(reported > 20, "{reported} reported, {harmless} harmless");
    }
}

#[test]
fn a_missing_segment_is_named() {
    let (disk, _) = furnished(true);
    let name = disk.list("").expect("lists").into_iter().find(|name| name.ends_with(".seg"));
    let name = name.expect("there are segments");
    disk.remove(&name).expect("removes");
    let error = Rig::open(options(), Arc::new(disk)).err().expect("refused");
    assert!(matches!(&error, OpenError::Missing { segment, .. } if *segment == name), "{error}");
}

#[test]
fn a_lost_or_damaged_catalog_is_refused() {
    let (disk, _) = furnished(true);
    disk.flip_bit("catalog", 60, 1);
    let error = Rig::open(options(), Arc::new(disk.clone())).err().expect("refused");
    assert!(error.to_string().contains("checksum"), "{error}");
    disk.remove("catalog").expect("removes");
    let error = Rig::open(options(), Arc::new(disk)).err().expect("refused");
    assert!(error.to_string().contains("missing although"), "{error}");
}

#[test]
fn an_inspection_finds_what_is_damaged() {
    for clean in [true, false] {
        let (disk, state) = furnished(clean);
        let sound = Inspection::of(&disk).expect("can be read");
        assert!(sound.is_sound(), "{sound}");
        let messages: u64 = sound.segments.iter().map(|segment| segment.messages).sum();
        assert!(messages as usize >= state.values().map(|stream| stream.live.len()).sum());
        let last = sound.segments.iter().rfind(|s| s.frames > 2).expect("there are frames");
        disk.flip_bit(&last.file, 520, 0);
        let damaged = Inspection::of(&disk).expect("can be read");
        assert!(!damaged.is_sound(), "{damaged}");
    }
}

#[test]
fn a_clean_restart_reads_no_frames() {
    let (disk, state) = furnished(true);
    let rig = Rig::open(options(), Arc::new(disk)).expect("opens");
    assert_eq!(rig.core.machine().streams, state);
    assert!(rig.report.clean);
    assert!(rig.report.checkpoint.is_some());
    assert_eq!((rig.report.frames, rig.report.records), (0, 0));
    assert!(rig.report.indexed > 100);
}
