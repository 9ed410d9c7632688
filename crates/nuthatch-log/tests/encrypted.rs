//! Encryption at rest: nothing of what a log holds is in its files in the clear, keys change and go, and
//! what is under a key that is not there is named, never taken for damage.

mod common;

use common::bytes::{checkpoints, content, read, segments, write};
use common::{Event, Outcome, Rig, encrypted, keys, tiny, tiny_cold, tiny_parts};
use nuthatch_log::doctor::{
    DecodedState, Diagnosis, DoctorOptions, Kind, StateDecoder, StreamPreview, diagnose,
};
use nuthatch_log::env::{Fault, MemDisk, SeededEntropy};
use nuthatch_log::{
    Cipher, Disk, Inspection, Key, KeyId, Keyring, Keys, LogOptions, OpenError, OwnableDisk,
    StreamId,
};
use std::sync::Arc;
use std::time::Duration;

/// In every body; a subject is `s` and the stream's number in this machine.
const MARK: &[u8] = b"MARKED-PAYLOAD";

fn body(n: u64) -> Vec<u8> {
    [MARK, n.to_string().as_bytes(), &[b'x'; 200]].concat()
}

fn open(options: &LogOptions, disk: &MemDisk, seed: u64) -> Result<Rig, OpenError> {
    let opened = Rig::open_seeded(options.clone(), Arc::new(disk.clone()), seed);
    if opened.is_err() {
        disk.release_lock();
    }
    opened
}

fn with_keys(current: Option<&str>, previous: &[&str]) -> LogOptions {
    LogOptions { keys: keys(current, previous), ..tiny() }
}

fn fill(rig: &mut Rig, from: u64, until: u64) {
    if from == 1 {
        rig.create(1, 0);
    }
    for n in from..until {
        assert_eq!(rig.publish(1, &body(n)), Outcome::Acked(n));
        if n % 5 == 0 {
            rig.advance(Duration::from_millis(60));
        }
    }
}

fn check(rig: &mut Rig, until: u64) {
    for n in (1..until).chain((1..until).rev().step_by(3)) {
        assert_eq!(rig.read(1, n), Outcome::Body(body(n)), "{n}");
    }
}

/// A log of some segments with checkpoints, closed.
fn filled(options: &LogOptions, until: u64) -> MemDisk {
    let disk = MemDisk::default();
    let mut rig = open(options, &disk, 1).expect("opens");
    fill(&mut rig, 1, until);
    check(&mut rig, until);
    rig.core.close().expect("closes");
    disk.survive()
}

/// Lets compaction do what it finds to do.
fn settle(rig: &mut Rig) {
    for _ in 0..400 {
        rig.advance(Duration::from_millis(1100));
    }
}

/// The keys under which segments are, each once.
fn keys_in_use(disk: &MemDisk, keys: &Keys) -> Vec<KeyId> {
    let ring = Keyring::new(keys, &mut SeededEntropy::new(9));
    let found = Inspection::look_with(disk, &ring, &mut |_, _| {}).expect("can be read");
    assert!(found.is_sound(), "{found}");
    let live = found.segments.iter().filter(|s| s.state == "open" || s.state == "sealed");
    let mut ids: Vec<KeyId> = live.map(|segment| segment.key_id).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

fn holds(disk: &MemDisk, what: &[u8]) -> Vec<String> {
    let has = |bytes: &Vec<u8>| bytes.windows(what.len()).any(|window| window == what);
    content(disk).into_iter().filter(|(_, bytes)| has(bytes)).map(|(name, _)| name).collect()
}

#[test]
fn no_file_holds_a_payload_in_the_clear() {
    for options in [tiny(), tiny_parts(), tiny_cold()] {
        let mut disk = filled(&encrypted(options.clone()), 120);
        assert_eq!(holds(&disk, MARK), [""; 0], "the marks are nowhere");
        let plain = filled(&options, 120);
        assert!(holds(&plain, MARK).len() > 2, "the search finds them where they are");
        // And after a power cut, with what is set aside then.
        for seed in 0..20 {
            disk.inject(Fault::PowerCut(disk.operations() + 30 + seed * 7));
            if let Ok(mut rig) = open(&encrypted(options.clone()), &disk, 2 + seed) {
                for n in 0..40 {
                    rig.publish(1, &body(1000 + n));
                }
            }
            disk = disk.crash(seed);
            drop(open(&encrypted(options.clone()), &disk, 100 + seed).expect("opens"));
            assert_eq!(holds(&disk, MARK), [""; 0], "seed {seed}");
        }
    }
}

#[test]
fn both_ciphers_are_read_side_by_side() {
    let disk = filled(&encrypted(tiny()), 40);
    let mut options = encrypted(tiny());
    for (cipher, until) in [(Cipher::Aes256Gcm, 80), (Cipher::ChaCha20Poly1305, 120)] {
        options.keys.cipher = cipher;
        let mut rig = open(&options, &disk, until).expect("opens");
        fill(&mut rig, until - 40, until);
        check(&mut rig, until);
        rig.core.close().expect("closes");
        assert_eq!(holds(&disk, MARK), [""; 0]);
    }
}

/// Whatever is under a key that is not there is refused with its name and a segment's, and nothing is
/// changed.
#[test]
fn a_wrong_key_and_none_are_named() {
    let used = keys(Some("one"), &[]).current.expect("a key").id();
    let disk = filled(&with_keys(Some("one"), &[]), 60);
    let first = segments(&disk)[0].clone();
    for clean in [true, false] {
        let disk = if clean { disk.survive() } else { disk.crash(1) };
        let before = content(&disk);
        for options in [with_keys(None, &[]), with_keys(Some("two"), &["three"])] {
            let error = open(&options, &disk, 5).err().expect("refused");
            assert!(!error.is_damage());
            let text = error.to_string();
            assert!(text.contains(&used.to_string()) && text.contains(&first), "{text}");
            assert!(text.contains("prev_key"), "{text}");
            for name in ["two", "three"] {
                let id = Key::of_text(name.as_bytes()).expect("a key").id();
                let given = options.keys.current.is_some();
                assert_eq!(text.contains(&id.to_string()), given, "{text}");
            }
            assert!(content(&disk) == before, "files were changed");
        }
        check(&mut open(&with_keys(Some("two"), &["one"]), &disk, 6).expect("opens"), 60);
    }
}

/// On, changed, off: what is there is written anew in the end, checkpoints too, and then the old key is
/// not needed any more. Before that it is.
#[test]
fn keys_change_until_nothing_is_under_the_old_one() {
    for base in [tiny(), tiny_cold()] {
        let with = |current, previous: &[&str]| LogOptions {
            keys: keys(current, previous),
            ..base.clone()
        };
        let disk = filled(&with(None, &[]), 80);
        let steps: [(Option<&str>, &[&str]); 3] =
            [(Some("one"), &[]), (Some("two"), &["one"]), (None, &["two"])];
        for (current, previous) in steps {
            let options = with(current, previous);
            let now = options.keys.current.as_ref().map_or(KeyId::NONE, Key::id);
            let mut rig = open(&options, &disk, 3).expect("opens");
            assert!(keys_in_use(&disk, &options.keys).iter().any(|id| *id != now));
            check(&mut rig, 80);
            settle(&mut rig);
            check(&mut rig, 80);
            assert_eq!(keys_in_use(&disk, &options.keys), [now]);
            rig.core.close().expect("closes");
            drop(rig);
            assert_eq!(holds(&disk, MARK).is_empty(), now.is_some());
            // The old key is not needed any more.
            let mut rig = open(&with(current, &[]), &disk, 4).expect("opens");
            check(&mut rig, 80);
            settle(&mut rig);
            assert_eq!(keys_in_use(&disk, &with(current, &[]).keys), [now]);
            rig.core.close().expect("closes");
        }
    }
}

/// An encrypted frame is found damaged by its checksum, which needs no key, and by its tag where
/// somebody made the checksum fit.
#[test]
fn damage_is_damage_with_the_key_or_without() {
    let disk = filled(&encrypted(tiny()), 60);
    let segment = segments(&disk)[0].clone();
    let mut bytes = read(&disk, &segment);
    bytes[512 + 48 + 60] ^= 1;
    write(&disk, &segment, &bytes);
    for ring in
        [Keyring::default(), Keyring::new(&encrypted(tiny()).keys, &mut SeededEntropy::new(1))]
    {
        let found = Inspection::look_with(&disk, &ring, &mut |_, _| {}).expect("can be read");
        assert!(!found.is_sound(), "{found}");
    }
    let mut chance = SeededEntropy::new(4);
    let whole = filled(&encrypted(tiny()), 60);
    for _ in 0..60 {
        let disk = whole.crash(1);
        checkpoints(&disk).iter().for_each(|name| disk.remove(name).expect("removes"));
        let name = segments(&disk)[0].clone();
        let len = read(&disk, &name).len() as u64;
        disk.flip_bit(&name, chance.below(len) as usize, chance.below(8) as u8);
        match open(&encrypted(tiny()), &disk, 3) {
            Err(error) => assert!(error.is_damage(), "{error}"),
            Ok(mut rig) => {
                for n in 1..60 {
                    let read = rig.read(1, n);
                    assert!(
                        read == Outcome::Body(body(n)) || read == Outcome::Damaged,
                        "{n}: {read:?}"
                    );
                }
            }
        }
    }
}

/// A read that fails once or a medium that is full at any moment of a start, as of a plain log.
#[test]
fn faults_at_any_moment_of_a_start_lose_nothing() {
    let base = LogOptions { reserve_bytes: Some(128 * 1024), ..encrypted(tiny()) };
    let whole = MemDisk::default();
    let mut rig = open(&base, &whole, 1).expect("opens");
    fill(&mut rig, 1, 60);
    drop(rig);
    let whole = whole.crash(3);
    let changed =
        LogOptions { keys: keys(Some("another"), &["a key of these tests"]), ..base.clone() };
    for options in [&base, &changed] {
        let probe = whole.survive();
        drop(open(options, &probe, 2).expect("opens"));
        for at in 1..=probe.reads() {
            let disk = whole.survive();
            disk.inject(Fault::ReadError(at));
            check(&mut open(options, &disk, 2).expect("opens"), 60);
        }
        for at in 1..=probe.operations() {
            let disk = whole.survive();
            disk.inject(Fault::NoSpace(at));
            check(&mut open(options, &disk, 2).expect("opens"), 60);
        }
    }
}

/// In the machine of these tests all is in its states.
struct Ignorant(Keys);

impl StateDecoder for Ignorant {
    fn state(&self, _: &[u8]) -> Option<DecodedState> {
        Some(DecodedState { next: 1000, ..DecodedState::default() })
    }
    fn log_state(&self, _: &[u8]) -> Option<(StreamId, Vec<StreamId>)> {
        Some((StreamId(100), vec![StreamId(1)]))
    }
    fn snapshot(&self, _: &[u8]) -> Option<Vec<(StreamId, DecodedState)>> {
        Some(Vec::new())
    }
    fn is_later(&self, _: &[u8]) -> bool {
        false
    }
    fn advance(&self) -> Vec<u8> {
        Vec::new()
    }
    fn orphan(&self, stream: StreamId, _: u64) -> (String, Vec<u8>) {
        (stream.to_string(), Vec::new())
    }
    fn preview(&self, disk: Arc<dyn OwnableDisk>) -> Result<Vec<StreamPreview>, String> {
        let options = LogOptions { keys: self.0.clone(), ..tiny() };
        Rig::open(options, disk).map(|_| Vec::new()).map_err(|error| error.to_string())
    }
}

fn examine(disk: &MemDisk, keys: &Keys) -> Diagnosis {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let options = DoctorOptions { likely: false, keys: keys.clone() };
    diagnose(&shared, &Ignorant(keys.clone()), options).expect("examines")
}

/// Without the key the doctor says what it cannot read, calls nothing of it damage and mends nothing;
/// with it it mends as ever, and what it writes is encrypted.
#[test]
fn the_doctor_needs_the_key_and_says_so() {
    let used = encrypted(tiny()).keys;
    let id = used.current.as_ref().expect("a key").id().to_string();
    let whole = filled(&encrypted(tiny()), 60);
    assert!(examine(&whole, &used).is_healthy());
    let other = keys(Some("other"), &[]);
    let disk = whole.survive();
    let segment = segments(&disk)[0].clone();
    for damaged in [false, true] {
        if damaged {
            let mut bytes = read(&disk, &segment);
            bytes[512 + 48 + 50..512 + 48 + 90].fill(7);
            write(&disk, &segment, &bytes);
        }
        for keys in [&Keys::default(), &other] {
            let diagnosis = examine(&disk, keys);
            assert!(!diagnosis.is_mendable() && diagnosis.changes.is_empty(), "{diagnosis:#?}");
            for finding in &diagnosis.findings {
                assert_eq!(finding.kind, Kind::Encrypted, "{finding}");
                assert!(finding.what.contains(&id), "{finding}");
                let told = finding.what.contains("damaged");
                assert_eq!(told, damaged && finding.file == segment, "{finding}");
            }
        }
    }
    let diagnosis = examine(&disk, &used);
    assert!(diagnosis.findings.iter().any(|finding| finding.kind == Kind::FrameLost));
    assert!(diagnosis.is_mendable(), "{diagnosis:#?}");
    diagnosis.apply(&disk, "now").expect("applies");
    assert_eq!(holds(&disk, MARK), [""; 0]);
    drop(open(&encrypted(tiny()), &disk, 7).expect("opens"));
    // A byte that is set back, a header that is written anew, a catalog that is rebuilt.
    for (file, at) in [(segment.as_str(), 512 + 48 + 60), (segment.as_str(), 20), ("catalog", 60)] {
        let disk = whole.survive();
        let mut bytes = read(&disk, file);
        bytes[at] ^= 4;
        write(&disk, file, &bytes);
        let diagnosis = examine(&disk, &used);
        assert!(diagnosis.is_mendable() && !diagnosis.is_healthy(), "{file} {at}: {diagnosis:#?}");
        diagnosis.apply(&disk, "now").expect("applies");
        assert!(examine(&disk, &used).is_healthy());
        check(&mut open(&encrypted(tiny()), &disk, 8).expect("opens"), 60);
    }
}

/// A log in memory has no files: keys change nothing there.
#[test]
fn a_log_in_memory_is_not_encrypted() {
    let disk = Arc::new(nuthatch_log::env::RamDisk::new(1 << 20));
    let options = LogOptions { block_bytes: 64, ..encrypted(tiny()) };
    let mut rig = Rig::open(options, disk.clone()).expect("opens");
    fill(&mut rig, 1, 30);
    check(&mut rig, 30);
    rig.run(Event::Create { stream: StreamId(2), max_messages: 0 });
    let names = disk.list("").expect("lists");
    let segment = names.iter().find(|name| name.ends_with(".seg")).expect("a segment");
    let bytes = disk.open(segment).expect("opens").read_shared(0, 64).expect("reads");
    assert_eq!(bytes[8], 1, "of the version without a key");
}
