//! Frames that snappy writes, blocks that only S2 writes, and damage to either.

use super::*;
use proptest::prelude::*;
use std::io::Write;

fn framed(data: &[u8]) -> Vec<u8> {
    let mut encoder = snap::write::FrameEncoder::new(Vec::new());
    encoder.write_all(data).expect("memory");
    encoder.into_inner().expect("memory")
}

fn unframed(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    FrameReader::new(bytes).read_to_end(&mut out).map(|_| out)
}

fn text(len: usize) -> Vec<u8> {
    (0..len).flat_map(|at| format!("{} ", at * at % 1013).into_bytes()).take(len).collect()
}

#[test]
fn what_snappy_writes_is_read() {
    for len in [1, 100, 65_536, 65_537, 300_000] {
        let data = text(len);
        assert_eq!(unframed(&framed(&data)).expect("intact"), data, "{len}");
    }
}

#[test]
fn blocks_of_s2_are_read() {
    let check = |block: &[u8], expected: &[u8]| {
        let mut out = Vec::new();
        blocks::decode(block, &mut out, BLOCK_BYTES_MAX).expect("intact");
        assert_eq!(out, expected);
    };
    // A literal, a copy with its offset, and repeats of that offset in all four lengths.
    check(&[12, 3 << 2, b'a', b'b', b'c', b'd', 1, 4, 1, 0], b"abcdabcdabcd");
    check(&[4 + 4 + 9, 12, b'a', b'b', b'c', b'd', 1, 4, 5 << 2 | 1, 0, 1], b"abcdabcdabcdabcda");
    let mut long = Vec::new();
    put_varint(&mut long, 4 + 4 + 3 + 256 + 4);
    long.extend_from_slice(&[12, b'a', b'b', b'c', b'd', 1, 4, 6 << 2 | 1, 0, 3, 0]);
    check(&long, &b"abcd".repeat(68)[..271]);
    let mut longer = Vec::new();
    put_varint(&mut longer, 4 + 4 + 2 + 65_536 + 4);
    longer.extend_from_slice(&[12, b'a', b'b', b'c', b'd', 1, 4, 7 << 2 | 1, 0, 2, 0, 0]);
    check(&longer, &b"abcd".repeat(16_388)[..65_550]);
}

fn put_varint(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[test]
fn every_changed_byte_is_noticed() {
    let data = text(5_000);
    let good = framed(&data);
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x41;
        // A changed type may turn a chunk into one that readers pass over; the data is shorter.
        assert!(unframed(&bad).map_or(true, |read| read != data), "byte {at}");
    }
}

#[test]
fn an_end_in_the_middle_is_noticed() {
    let good = framed(&text(1000));
    for len in 0..good.len() {
        let read = unframed(&good[..len]);
        // Between two chunks nothing tells that more was to come: the archive inside does.
        assert!(read.is_err() || len == 10, "{len}: {read:?}");
    }
}

#[test]
fn foreign_bytes_are_refused_by_name() {
    let error = unframed(b"PK\x03\x04 and so on").expect_err("a zip");
    assert!(error.to_string().contains("not S2 or snappy"), "{error}");
}

proptest! {
    #[test]
    fn any_data_survives(data in proptest::collection::vec(0_u8..4, 0..5000)) {
        if data.is_empty() {
            return Ok(());
        }
        prop_assert_eq!(unframed(&framed(&data)).expect("intact"), data);
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut whole = b"\xff\x06\x00\x00S2sTwO\x00\xc4\x00\x00".to_vec();
        whole.extend_from_slice(&bytes);
        let _ = unframed(&whole);
        let _ = blocks::decode(&bytes, &mut Vec::new(), BLOCK_BYTES_MAX);
    }
}
