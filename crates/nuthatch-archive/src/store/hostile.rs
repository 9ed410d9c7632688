//! Directories made to crash the program, or to have it read something else.

use super::tests::{Dir, open, put, put_meta, store};
use super::*;
use crate::block::tests::{compressed, message, record};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

/// Bends a sound store in some way: it is refused, and the error names what is wrong.
fn refused(expected: &str, bend: impl Fn(&Path)) {
    let dir = Dir::new();
    let stream = store(&dir);
    bend(&stream);
    let error = open(&dir.0).err().unwrap_or_else(|| panic!("{expected}: it is taken"));
    let error = error.to_string();
    assert!(error.contains(expected), "{error} lacks {expected}");
}

fn replace(path: &Path, by: impl Fn(&Path)) {
    fs::remove_file(path).expect("was there");
    by(path);
}

#[test]
fn links_are_not_followed() {
    let elsewhere = |path: &Path| symlink("/etc/hostname", path).expect("a link");
    refused("meta.inf is a symbolic link", |dir| replace(&dir.join("meta.inf"), elsewhere));
    refused("meta.sum is a symbolic link", |dir| replace(&dir.join("meta.sum"), elsewhere));
    refused("2.blk is a symbolic link", |dir| replace(&dir.join("msgs/2.blk"), elsewhere));
    refused("o.dat is a symbolic link", |dir| replace(&dir.join("obs/C/o.dat"), elsewhere));
    refused("obs/E is a symbolic link", |dir| {
        symlink(dir.join("obs/C"), dir.join("obs/E")).expect("a link");
    });
}

#[test]
fn loops_of_directories_end() {
    let dir = Dir::new();
    let stream = store(&dir);
    let streams = stream.parent().expect("a parent");
    symlink(streams, streams.join("again")).expect("a link");
    let error = find(&dir.0).expect_err("a stream that is a link").to_string();
    assert!(error.contains("again is a symbolic link"), "{error}");
    fs::remove_file(streams.join("again")).expect("goes");
    symlink(&dir.0, dir.0.join("jetstream/loop")).expect("a link");
    assert_eq!(find(&dir.0).expect("found").len(), 1);
}

/// Opening these would wait for somebody who writes, or read without an end.
#[test]
fn what_is_no_file_is_not_opened() {
    let socket = |path: &Path| {
        std::os::unix::net::UnixListener::bind(path).map(drop).expect("a socket");
    };
    for name in ["meta.inf", "meta.sum"] {
        refused("neither a file nor a directory", |dir| {
            replace(&dir.join(name), |path| {
                // The name of a socket is short.
                let short = std::env::temp_dir().join(format!("nh-{}-{name}", std::process::id()));
                socket(&short);
                fs::rename(&short, path).expect("moves");
            });
        });
    }
    refused("is a directory, where a file should be", |dir| {
        replace(&dir.join("msgs/2.blk"), |path| fs::create_dir(path).expect("a directory"));
    });
}

#[test]
fn huge_files_are_refused_unread() {
    let grow = |path: &Path, bytes: u64| {
        let file = File::options().write(true).open(path).expect("opens");
        // Nothing is stored of it.
        file.set_len(bytes).expect("grows");
    };
    refused("at most 1048576 are read", |dir| grow(&dir.join("meta.inf"), 1 << 40));
    refused("at most 67108864 are read", |dir| grow(&dir.join("msgs/10.blk"), 1 << 40));
    refused("at most 67108864 are read", |dir| grow(&dir.join("obs/C/o.dat"), 1 << 40));
}

#[test]
fn lengths_that_lie_are_noticed() {
    for len in [0, 21, 29, u32::MAX, i32::MAX as u32, 33 << 20] {
        refused("record at byte 0", |dir| {
            let mut bytes = record("S", 10, &message(11));
            bytes[..4].copy_from_slice(&len.to_le_bytes());
            put(&dir.join("msgs/10.blk"), &bytes);
        });
    }
    refused("a compressed block", |dir| {
        // A few bytes that become 100 MB.
        let bytes = record("S", 10, &Message { body: &[0; 1 << 20], ..message(11) });
        put(&dir.join("msgs/10.blk"), &compressed(&bytes.repeat(100)));
    });
}

#[test]
fn names_that_are_none_are_refused() {
    let of_bytes = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
    refused("not UTF-8", |dir| {
        put_meta(&dir.join("obs").join(of_bytes(b"C\xff")), "S/C", "{}");
    });
    refused("holds no number", |dir| {
        put(&dir.join("msgs").join(of_bytes(b"1\xff.blk")), b"");
    });
    refused("another block of this number", |dir| put(&dir.join("msgs/02.blk"), b""));
    refused("is not a name", |dir| put_meta(&dir.join("obs/a b"), "S/a b", "{}"));
    for name in ["../../../etc", "a/b", "", "a.b", "a\\u0000b"] {
        refused("is not a name", |dir| put_meta(dir, name, &format!(r#"{{"name":"{name}"}}"#)));
    }
}

#[test]
fn a_block_of_a_later_version_is_told() {
    refused("compressed in a way (2)", |dir| {
        let mut bytes = compressed(&record("S", 10, &message(11)));
        bytes[3] = 2;
        put(&dir.join("msgs/10.blk"), &bytes);
    });
    refused("unknown version", |dir| put(&dir.join("obs/C/o.dat"), &[22, 9, 1, 5, 2, 7, 0, 0]));
}

#[test]
fn nested_documents_do_not_overflow_the_stack() {
    let deep = "[".repeat(400_000);
    refused("meta.inf", |dir| put_meta(dir, "S", &deep));
    refused("meta.inf", |dir| put_meta(&dir.join("obs/C"), "S/C", &deep));
}

/// Thirty bytes on the disk must not become kilobytes in memory without an end.
#[test]
fn sequences_far_apart_are_bounded() {
    let mut spread = Spread::default();
    let refusal = (0..STRETCHES_MAX + 2).find_map(|n| spread.note(n << 40 >> 8).err());
    assert!(refusal.is_some_and(|error| error.to_string().contains("spread over")));
    let mut dense = Spread::default();
    assert!((0..1_000_000).all(|seq| dense.note(seq).is_ok()));
    // A few of them are taken.
    let dir = Dir::new();
    let stream = store(&dir);
    let far = [1u64 << 34, 1 << 50, (1 << 61) + 7];
    let records: Vec<u8> = far.iter().flat_map(|seq| record("S", 12, &message(*seq))).collect();
    put(&stream.join("msgs/12.blk"), &records);
    let stored = open(&dir.0).expect("is taken");
    assert_eq!((stored.state.messages, stored.state.last_seq), (8, (1 << 61) + 7));
}

#[test]
fn a_directory_with_too_many_entries_is_refused_before_they_are_in_memory() {
    let dir = Dir::new();
    let stream = store(&dir);
    for n in 0..=ENTRIES_MAX {
        // One inode with many names is the cheapest.
        let path = stream.join(format!("msgs/x{n}"));
        if n % 50_000 == 0 {
            fs::write(&path, b"").expect("written");
        } else {
            let first = stream.join(format!("msgs/x{}", n / 50_000 * 50_000));
            fs::hard_link(first, &path).expect("another name");
        }
    }
    let error = open(&dir.0).err().expect("refused").to_string();
    assert!(error.contains("more than 200000 entries"), "{error}");
}
