//! Changing the files of a log byte by byte, with every checksum set right again: what another
//! version would have written, and what a disk puts in the wrong place.

use nuthatch_log::Disk;
use nuthatch_log::env::{MemDisk, read_exact_at};
use std::collections::BTreeMap;

/// Bytes of a frame's header.
const HEADER: usize = 48;

pub fn crc(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

pub fn put_u32(bytes: &mut [u8], at: usize, number: u32) {
    bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
}

/// A file as a whole.
pub fn read(disk: &MemDisk, path: &str) -> Vec<u8> {
    let file = disk.open(path).expect("there");
    read_exact_at(&*file, 0, disk.file_len(path).expect("a length")).expect("reads")
}

/// Replaces a file's bytes, durably.
pub fn write(disk: &MemDisk, path: &str, bytes: &[u8]) {
    let file = disk.open(path).expect("there");
    file.set_len(bytes.len() as u64).expect("cuts");
    file.write_at(bytes, 0).expect("writes");
    file.sync().expect("syncs");
}

/// Every file of a disk with its content.
pub fn content(disk: &MemDisk) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for dir in ["", "torn", "tmp"] {
        for name in disk.list(dir).expect("lists") {
            let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
            files.insert(path.clone(), read(disk, &path));
        }
    }
    files
}

pub fn segments(disk: &MemDisk) -> Vec<String> {
    let mut names = disk.list("").expect("lists");
    names.retain(|name| name.ends_with(".seg"));
    names
}

pub fn checkpoints(disk: &MemDisk) -> Vec<String> {
    let mut names = disk.list("").expect("lists");
    names.retain(|name| name.starts_with("checkpoint-"));
    names
}

/// Offsets and lengths of a segment's frames, by its own salt.
pub fn frames(segment: &[u8]) -> Vec<(usize, usize)> {
    let (salt, block) = (u32_at(segment, 40), u32_at(segment, 44) as usize);
    let mut frames = Vec::new();
    let mut at = 64usize.next_multiple_of(block);
    while at + HEADER <= segment.len() && u32_at(segment, at + 12) == salt {
        let len = u32_at(segment, at) as usize;
        frames.push((at, len));
        at += len.next_multiple_of(block);
    }
    frames
}

/// Sets the sums of all frames right, from the segment's header on.
pub fn rechain(segment: &mut [u8]) {
    let mut prev = u32_at(segment, 12);
    for (at, len) in frames(segment) {
        let body = crc(&segment[at + HEADER..at + len]);
        put_u32(segment, at + 8, body);
        put_u32(segment, at + 40, prev);
        put_u32(segment, at + 4, 0);
        prev = crc(&segment[at..at + HEADER]);
        put_u32(segment, at + 4, prev);
    }
}

/// Sets the checksum at 12 right, which covers the first `len` bytes.
pub fn resum(bytes: &mut [u8], len: usize) {
    put_u32(bytes, 12, 0);
    let sum = crc(&bytes[..len]);
    put_u32(bytes, 12, sum);
}

/// Sets the checksum in the trailer of a footer right, which begins at `at` and ends the file.
pub fn resum_footer(segment: &mut [u8], at: usize) {
    let trailer = segment.len() - 16;
    let sum = crc(&segment[at..trailer]);
    put_u32(segment, trailer + 4, sum);
}

/// Where the footer at the end of a sealed segment begins.
pub fn footer_at(segment: &[u8]) -> usize {
    segment.len() - u32_at(segment, segment.len() - 16) as usize
}
