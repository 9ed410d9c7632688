//! Older archives, put together here; nats-server restores the same ones in
//! `crates/nuthatch/tests/backup.rs`.

use super::*;
use crate::block::tests::{message, record, tombstone};
use std::io::Write;

fn header(name: &str, size: usize, kind: u8) -> Vec<u8> {
    let mut block = vec![0; TAR_BLOCK_BYTES];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[100..107].copy_from_slice(b"0000600");
    block[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

fn add(tar: &mut Vec<u8>, name: &str, contents: &[u8], kind: u8) {
    tar.extend(header(name, contents.len(), kind));
    tar.extend_from_slice(contents);
    tar.resize(tar.len().next_multiple_of(TAR_BLOCK_BYTES), 0);
}

fn hex_sum(name: &str, data: &[u8]) -> Vec<u8> {
    let digits = Sums::new(name).of(&[data]).iter().map(|b| format!("{b:02x}")).collect::<String>();
    digits.into_bytes()
}

fn files(stream: &str) -> Vec<(&'static str, Vec<u8>)> {
    let meta =
        format!(r#"{{"Created":"2024-01-01T00:00:00Z","name":"{stream}","subjects":["a.>"]}}"#);
    let consumer = br#"{"Created":"2024-01-01T00:00:00Z","Name":"C","durable_name":"C"}"#.to_vec();
    let first: Vec<u8> = [2, 3, 4].iter().flat_map(|&s| record(stream, 1, &message(s))).collect();
    let second = [record(stream, 2, &message(7)), tombstone(stream, 2, 3)].concat();
    vec![
        ("meta.sum", hex_sum(stream, meta.as_bytes())),
        ("meta.inf", meta.into_bytes()),
        ("msgs/1.blk", first),
        ("msgs/2.blk", second),
        ("msgs/index.db", b"passed over".to_vec()),
        ("obs/C/meta.sum", hex_sum(&format!("{stream}/C"), &consumer)),
        ("obs/C/meta.inf", consumer),
        ("obs/C/o.dat", vec![22, 2, 1, 2, 2, 3, 0, 0]),
    ]
}

/// An archive of these files, each configuration before its checksum.
fn archive(mut files: Vec<(&str, Vec<u8>)>, end: bool) -> Vec<u8> {
    for at in 1..files.len() {
        if files[at].0.ends_with("meta.inf") && files[at - 1].0.ends_with("meta.sum") {
            files.swap(at - 1, at);
        }
    }
    let mut tar = Vec::new();
    for (name, contents) in &files {
        // As Go's writer does, with times in fractions of a second.
        add(&mut tar, "PaxHeaders.0/x", b"30 mtime=1700000000.123456789\n", b'x');
        add(&mut tar, name, contents, b'0');
    }
    if end {
        tar.resize(tar.len() + 2 * TAR_BLOCK_BYTES, 0);
    }
    let mut out = snap::write::FrameEncoder::new(Vec::new());
    out.write_all(&tar).expect("memory");
    out.into_inner().expect("memory")
}

fn items(bytes: &[u8]) -> Result<Vec<String>, ArchiveError> {
    let mut items = Vec::new();
    crate::read(bytes, "S", &mut |item| {
        items.push(match item {
            Item::Consumer(c) => {
                let state = c.state.map(|state| state.delivered.stream_seq);
                format!("consumer {} {state:?}", c.config.name)
            }
            Item::Message(m) => format!("message {} {}", m.seq, m.body.len()),
            Item::Removed { first, last } => format!("removed {first}-{last}"),
        });
        Ok::<(), ArchiveError>(())
    })?;
    Ok(items)
}

#[test]
fn an_archive_is_read() {
    let found = items(&archive(files("S"), true)).expect("intact");
    let expected = [
        "message 2 5",
        "message 3 5",
        "message 4 5",
        "message 7 5",
        "removed 3-3",
        "consumer C Some(3)",
    ];
    assert_eq!(found, expected);
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let check = |files: Vec<(&'static str, Vec<u8>)>, end, expected: &str| {
        let error = items(&archive(files, end)).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error} lacks {expected}");
    };
    check(files("T"), true, "of stream \"T\"");
    check(files("S"), false, "before its end mark");
    let without =
        |name: &str| files("S").into_iter().filter(|file| file.0 != name).collect::<Vec<_>>();
    check(without("meta.sum"), true, "meta.inf");
    check(without("meta.inf"), true, "meta.sum");
    check(without("obs/C/meta.sum"), true, "obs/C");
    let with = |name: &'static str, contents: &[u8]| {
        let mut files = without(name);
        files.push((name, contents.to_vec()));
        files
    };
    check(with("msgs/2.blk", &record("S", 9, &message(7))), true, "msgs/2.blk");
    check(with("../evil", b"x"), true, "../evil");
    check(with("errors.txt", b"disk is gone"), true, "disk is gone");
    check(with("obs/C/o.dat", b"\x16\x02\x01"), true, "o.dat");
    check(with("obs/C/more/deep", b""), true, "obs/C/more/deep");
}

#[test]
fn every_changed_byte_is_refused() {
    let good = archive(files("S"), true);
    let whole = items(&good).expect("intact");
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x22;
        // Another way to compress the same bytes is no damage.
        assert!(items(&bad).map_or(true, |found| found == whole), "byte {at}");
    }
}
