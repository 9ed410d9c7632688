//! A store that a later version has written to, under the real binary: the start and the doctor refuse
//! it in the same words and name the file, and nothing in the directory changes.

mod support;

use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use support::{Server, TempDir, create_stream, publish_ok, read_all};

/// Bytes of a frame's header.
const HEADER_BYTES: usize = 48;
/// Messages that are stored and acknowledged.
const MESSAGES: u64 = 200;
/// Seconds after which a server that should have refused is ended.
const TIMEOUT_S: &str = "60";

fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum: u32, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            (sum >> 1) ^ (0x82F6_3B78 & (sum & 1).wrapping_neg())
        })
    })
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize
}

fn put_u32(bytes: &mut [u8], at: usize, number: u32) {
    bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
}

/// Sets the checksum at 12 right, which covers the file from `from` on.
fn resum(bytes: &mut [u8], from: usize) {
    if from == 0 {
        put_u32(bytes, 12, 0);
    }
    let sum = crc(&bytes[from..]);
    put_u32(bytes, 12, sum);
}

/// Offsets and lengths of a segment's frames.
fn frames(segment: &[u8]) -> Vec<(usize, usize)> {
    let (salt, block) = (u32_at(segment, 40), u32_at(segment, 44));
    let (mut all, mut at) = (Vec::new(), block);
    while at + HEADER_BYTES <= segment.len() && u32_at(segment, at + 12) == salt {
        let len = u32_at(segment, at);
        all.push((at, len));
        at += len.next_multiple_of(block);
    }
    all
}

/// Gives a record in the middle another kind; every checksum of the segment is right.
fn change_kind(segment: &mut [u8], kind: u8) {
    let all = frames(segment);
    let full: Vec<usize> =
        all.iter().filter(|(_, len)| *len > HEADER_BYTES).map(|(at, _)| *at).collect();
    segment[full[full.len() / 2] + HEADER_BYTES] = kind;
    let mut before = u32_at(segment, 12) as u32;
    for (at, len) in all {
        let body = crc(&segment[at + HEADER_BYTES..at + len]);
        put_u32(segment, at + 8, body);
        put_u32(segment, at + 40, before);
        put_u32(segment, at + 4, 0);
        before = crc(&segment[at..at + HEADER_BYTES]);
        put_u32(segment, at + 4, before);
    }
}

/// Gives the footer at the end of a sealed segment another version, with its checksum right.
fn change_footer(segment: &mut [u8]) {
    let trailer = segment.len() - 16;
    let at = segment.len() - u32_at(segment, trailer);
    assert_eq!(&segment[at..at + 8], b"NUTHFOOT");
    put_u32(segment, at + 8, 77);
    let sum = crc(&segment[at..trailer]);
    put_u32(segment, trailer + 4, sum);
}

/// Everything below a directory, by path.
fn content(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for path in std::fs::read_dir(dir).expect("lists").flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            files.extend(content(&path));
        } else {
            files.insert(path.clone(), std::fs::read(&path).expect("reads"));
        }
    }
    files
}

/// True if the words mean that a later version wrote it.
fn is_later(said: &str) -> bool {
    said.contains("later version") || said.contains("has format version 77; this program reads")
}

/// A store with acknowledged messages, closed cleanly.
struct LaterStore {
    dir: TempDir,
    flags: Vec<String>,
}

impl LaterStore {
    fn new(name: &str) -> Self {
        let place = Self { dir: TempDir::new(name), flags: Vec::new() };
        place.publish(MESSAGES, b"a message");
        place
    }

    /// One whose log has a bucket behind it, with segments there.
    fn tiered(name: &str) -> Self {
        let dir = TempDir::new(name);
        let file = dir.path().join("server.conf");
        let bucket = dir.path().join("bucket");
        let text = format!(
            "jetstream {{ tier {{ store: 'file://{}', local_max: 8000000 }} }}",
            bucket.display()
        );
        std::fs::write(&file, text).expect("writes");
        let place = Self { flags: vec!["-c".to_owned(), file.display().to_string()], dir };
        place.publish(MESSAGES, &[b'x'; 100_000]);
        place
    }

    fn store(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn log(&self) -> PathBuf {
        self.store().join("nuthatch/default")
    }

    fn publish(&self, count: u64, body: &[u8]) {
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        let server = Server::start(&self.store(), &flags);
        let mut client = server.connect();
        create_stream(&mut client, "S", &json!({}));
        (1..=count).for_each(|n| assert_eq!(publish_ok(&mut client, "S.x", body), n));
        let deadline = Instant::now() + support::TIMEOUT;
        while !self.flags.is_empty() && !self.log().join("tier").exists() {
            assert!(Instant::now() < deadline, "nothing moves\n{}", server.log_tail());
            std::thread::sleep(Duration::from_millis(20));
        }
        server.stop();
    }

    /// The files of the log whose names hold `part`, in order.
    fn files(&self, part: &str) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> =
            std::fs::read_dir(self.log()).expect("lists").flatten().map(|e| e.path()).collect();
        paths.retain(|path| path.file_name().is_some_and(|n| n.to_string_lossy().contains(part)));
        paths.sort();
        assert!(!paths.is_empty(), "no {part}");
        paths
    }

    fn nuthatch(&self, args: &[&str]) -> Output {
        let mut command = Command::new("timeout");
        command.args([TIMEOUT_S, env!("CARGO_BIN_EXE_nuthatch")]).args(args);
        command.current_dir(self.dir.path()).output().expect("runs")
    }

    /// Changes a file, and sees start and doctor refuse the store: both name the file and say the same.
    fn refused(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let whole = std::fs::read(path).expect("reads");
        let mut bytes = whole.clone();
        change(&mut bytes);
        assert_ne!(bytes, whole);
        std::fs::write(path, &bytes).expect("writes");
        let before = content(&self.log());
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        let serve = ["serve", "-a", "127.0.0.1", "-p", "-1", "-js", "-sd", "data"];
        let output = self.nuthatch(&[&serve[..], &flags].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let line = said.lines().find(|line| line.contains("[FTL]")).unwrap_or(&said).to_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        assert!(line.contains(&name) && is_later(&line), "{line}");
        assert!(content(&self.log()) == before, "the start changed something: {line}");
        let output = self.nuthatch(&["doctor", "data"]);
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(matches!(output.status.code(), Some(1 | 2)), "{said}");
        assert!(said.contains(&name) && is_later(&said), "{line}\n{said}");
        self.nuthatch(&["doctor", "data", "--apply"]);
        assert!(content(&self.log()) == before, "the doctor changed something: {said}");
        std::fs::write(path, whole).expect("writes");
    }

    /// As it was, it opens, with all that was acknowledged.
    fn check(self) {
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        let server = Server::start(&self.store(), &flags);
        let mut client = server.connect();
        let read = read_all(&mut client, "S", 1);
        assert_eq!(read.len() as u64, MESSAGES);
        assert_eq!(publish_ok(&mut client, "S.x", b"more"), MESSAGES + 1);
        server.stop();
    }
}

/// Without a checkpoint, or with one of a later version, everything is read from the segments.
#[test]
fn a_record_of_a_later_kind_is_refused() {
    let place = LaterStore::new("later-kind");
    let segment = place.files(".seg")[0].clone();
    let checkpoints: Vec<(PathBuf, Vec<u8>)> = place
        .files("checkpoint-")
        .into_iter()
        .map(|path| (path.clone(), std::fs::read(path).expect("reads")))
        .collect();
    for (path, _) in &checkpoints {
        std::fs::remove_file(path).expect("removes");
    }
    for kind in [18, 255] {
        place.refused(&segment, |bytes| change_kind(bytes, kind));
    }
    for (path, bytes) in checkpoints {
        std::fs::write(path, bytes).expect("writes");
    }
    place.check();
}

#[test]
fn a_footer_of_a_later_version_is_refused() {
    let place = LaterStore::new("later-footer");
    let segment = place.files(".seg")[0].clone();
    place.refused(&segment, |bytes| change_footer(bytes));
    place.check();
}

#[test]
fn a_checkpoint_of_a_later_version_is_refused() {
    let place = LaterStore::new("later-checkpoint");
    for path in place.files("checkpoint-") {
        place.refused(&path, |bytes| {
            put_u32(bytes, 8, 77);
            resum(bytes, 0);
        });
    }
    place.check();
}

/// The note that says which segments are in the bucket.
#[test]
fn a_tier_note_of_a_later_version_is_refused() {
    let place = LaterStore::tiered("later-tier");
    let note = place.log().join("tier");
    place.refused(&note, |bytes| {
        put_u32(bytes, 8, 77);
        resum(bytes, 0);
    });
    place.check();
}
