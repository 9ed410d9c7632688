//! Store directories made here; that of a real nats-server is imported in
//! `crates/nuthatch/tests/backup.rs`.

use super::*;
use crate::block::tests::{compressed, message, record, tombstone};
use crate::{Item, read};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory that goes with the test.
pub(super) struct Dir(pub(super) PathBuf);

impl Dir {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("nuthatch-store-test-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        fs::create_dir_all(&dir).expect("a directory");
        Self(dir)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(super) fn put(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
    fs::write(path, bytes).expect("written");
}

pub(super) fn put_meta(dir: &Path, key: &str, meta: &str) {
    put(&dir.join("meta.inf"), meta.as_bytes());
    let sum = Sums::new(key).of(&[meta.as_bytes()]);
    let digits = sum.iter().map(|b| format!("{b:02x}")).collect::<String>();
    put(&dir.join("meta.sum"), digits.as_bytes());
}

pub(super) fn store(dir: &Dir) -> PathBuf {
    let stream = dir.0.join("jetstream/$G/streams/S");
    put_meta(&stream, "S", r#"{"Created":"2024-01-01T00:00:00Z","name":"S","subjects":["a.>"]}"#);
    let first: Vec<u8> = (5..=9).flat_map(|seq| record("S", 2, &message(seq))).collect();
    put(&stream.join("msgs/2.blk"), &compressed(&first));
    let last = [record("S", 10, &message(11)), tombstone("S", 10, 6), tombstone("S", 10, 14)];
    put(&stream.join("msgs/10.blk"), &last.concat());
    put(&stream.join("msgs/index.db"), b"passed over");
    put_meta(&stream.join("obs/C"), "S/C", r#"{"Name":"C","durable_name":"C"}"#);
    put(&stream.join("obs/C/o.dat"), &[22, 2, 1, 5, 2, 7, 0, 0]);
    put_meta(&stream.join("obs/D"), "S/D", r#"{"Name":"D","durable_name":"D"}"#);
    stream
}

pub(super) fn open(dir: &Path) -> Result<StoredStream, ArchiveError> {
    StoredStream::open(&find(dir)?[0])
}

#[test]
fn a_stream_is_found_from_every_level() {
    let dir = Dir::new();
    let stream = store(&dir);
    for (at, account) in [("", "$G"), ("jetstream", "$G"), ("jetstream/$G", "$G")] {
        let found = find(&dir.0.join(at)).expect("found");
        assert_eq!(found, [StreamPlace { account: account.into(), dir: stream.clone() }], "{at}");
    }
    assert_eq!(find(&stream).expect("found")[0].dir, stream);
    let error = find(&Dir::new().0).expect_err("nothing there");
    assert!(error.to_string().contains("no streams"), "{error}");
}

#[test]
fn a_stream_becomes_an_archive() {
    let dir = Dir::new();
    store(&dir);
    let stored = open(&dir.0).expect("intact");
    let state = &stored.state;
    assert_eq!((state.messages, state.first_seq, state.last_seq), (5, 5, 14));
    let bytes = stored.write(Vec::new(), 7).expect("written");
    let (mut seqs, mut consumers, mut removed) = (Vec::new(), Vec::new(), Vec::new());
    read::<_, ArchiveError>(&bytes[..], "S", &mut |item| {
        match item {
            Item::Message(message) => seqs.push(message.seq),
            Item::Consumer(c) => consumers.push((c.config.name, c.state.is_some())),
            Item::Removed { first, last } => removed.push((first, last)),
        }
        Ok(())
    })
    .expect("intact");
    assert_eq!(seqs, [5, 7, 8, 9, 11]);
    assert_eq!(consumers, [("C".into(), true), ("D".into(), false)]);
    assert_eq!(removed, [(1, 4), (6, 6), (10, 10), (12, 14)]);
}

#[test]
fn what_cannot_be_read_is_refused_with_its_place() {
    let check = |damage: &dyn Fn(&Path), expected: &str| {
        let dir = Dir::new();
        let stream = store(&dir);
        damage(&stream);
        let error = open(&dir.0).err().expect(expected).to_string();
        assert!(error.contains(expected), "{error} lacks {expected}");
    };
    check(&|dir| put(&dir.join("meta.key"), b"k"), "encrypted");
    check(&|dir| put(&dir.join("msgs/2.key"), b"k"), "encrypted");
    check(&|dir| put(&dir.join("meta.inf"), br#"{"name":"S"}"#), "checksum");
    check(&|dir| put(&dir.join("msgs/x.blk"), b""), "no number");
    let torn = record("S", 11, &message(15));
    check(&|dir| put(&dir.join("msgs/11.blk"), &torn[..20]), "11.blk, record at byte 0");
    check(&|dir| put(&dir.join("obs/C/o.dat"), b"\x16\x09"), "o.dat");
}
