//! Blocks made here; those of a real nats-server are read in `crates/nuthatch/tests/backup.rs`.

use super::*;
use std::io::Write;

/// A record as nats-server writes it into block `index` of stream `stream`.
pub(crate) fn record(stream: &str, index: u32, message: &Message<'_>) -> Vec<u8> {
    let Message { seq, time_ns, subject, headers, body } = *message;
    let has_headers = !headers.is_empty();
    let extra = if has_headers { 4 + headers.len() } else { 0 };
    let size = HEADER_BYTES + subject.len() + extra + body.len() + SUM_BYTES;
    let mut out = Vec::new();
    let bit = if has_headers { HEADERS_BIT } else { 0 };
    out.extend_from_slice(&(size as u32 | bit).to_le_bytes());
    out.extend_from_slice(&seq.to_le_bytes());
    out.extend_from_slice(&time_ns.to_le_bytes());
    out.extend_from_slice(&(subject.len() as u16).to_le_bytes());
    let sums = Sums::new(&format!("{stream}-{index}"));
    let sum = sums.of(&[&out[4..20], subject, headers, body]);
    out.extend_from_slice(subject);
    if has_headers {
        out.extend_from_slice(&(headers.len() as u32).to_le_bytes());
        out.extend_from_slice(headers);
    }
    out.extend_from_slice(body);
    out.extend_from_slice(&sum);
    out
}

/// A message with this sequence.
pub(crate) fn message(seq: u64) -> Message<'static> {
    let headers: &[u8] = if seq.is_multiple_of(2) { b"NATS/1.0\r\nA: b\r\n\r\n" } else { b"" };
    Message { seq, time_ns: 1_000 + seq as i64, subject: b"a.b", headers, body: b"hello" }
}

/// The record that says that a message was deleted.
pub(crate) fn tombstone(stream: &str, index: u32, seq: u64) -> Vec<u8> {
    let mark = seq | TOMBSTONE_BIT;
    record(stream, index, &Message { seq: mark, time_ns: 5, subject: b"", headers: b"", body: b"" })
}

/// A compressed block of these records.
pub(crate) fn compressed(records: &[u8]) -> Vec<u8> {
    let (body, sum) = records.split_at(records.len() - SUM_BYTES);
    let mut encoder = snap::write::FrameEncoder::new(Vec::new());
    encoder.write_all(body).expect("memory");
    let mut out = COMPRESSED.to_vec();
    let mut size = records.len();
    while size >= 0x80 {
        out.push(size as u8 | 0x80);
        size >>= 7;
    }
    out.push(size as u8);
    out.extend(encoder.into_inner().expect("memory"));
    out.extend_from_slice(sum);
    out
}

fn told_by(bytes: &[u8]) -> Result<Vec<(u64, String)>, ArchiveError> {
    let size = bytes.len() as u64;
    let mut block = BlockReader::new(bytes, size, "S", 3, "3.blk".to_owned())?;
    let mut all = Vec::new();
    while let Some(record) = block.next()? {
        all.push(match record {
            Record::Message(m) => (m.seq, format!("{:?} {:?}", m.headers, m.body)),
            Record::Removed { seq, .. } => (seq, "removed".to_owned()),
        });
    }
    Ok(all)
}

fn some_records() -> Vec<u8> {
    let mut bytes = Vec::new();
    for seq in [7, 8, 10] {
        bytes.extend(record("S", 3, &message(seq)));
    }
    bytes.extend(tombstone("S", 3, 7));
    bytes
}

#[test]
fn plain_and_compressed_blocks_are_read() {
    let plain = told_by(&some_records()).expect("intact");
    let seqs: Vec<u64> = plain.iter().map(|found| found.0).collect();
    assert_eq!((seqs, plain[3].1.as_str()), (vec![7, 8, 10, 7], "removed"));
    assert_eq!(told_by(&compressed(&some_records())).expect("intact"), plain);
    assert_eq!(told_by(b"").expect("nothing"), []);
}

#[test]
fn the_checksum_depends_on_stream_and_block() {
    let bytes = record("S", 4, &message(1));
    let error = told_by(&bytes).expect_err("of another block");
    assert_eq!(error.to_string(), "damaged: 3.blk, record at byte 0: the checksum is wrong");
}

#[test]
fn every_changed_byte_is_noticed() {
    let good = record("S", 3, &message(8));
    for at in 0..good.len() {
        // The checksum does not say where the subject ends; its own text mostly does.
        if (20..22).contains(&at) {
            continue;
        }
        let mut bad = good.clone();
        bad[at] ^= 0x80;
        assert!(told_by(&bad).is_err(), "byte {at}");
    }
    let good = compressed(&some_records());
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x80;
        let _ = told_by(&bad);
    }
}

#[test]
fn an_end_in_the_middle_is_noticed() {
    let good = some_records();
    let first = record("S", 3, &message(7)).len();
    let error = told_by(&good[..first + 30]).expect_err("cut");
    assert!(
        error.to_string().starts_with(&format!("damaged: 3.blk, record at byte {first}")),
        "{error}"
    );
    let good = compressed(&good);
    for len in 1..good.len() {
        assert!(told_by(&good[..len]).is_err(), "{len}");
    }
}
