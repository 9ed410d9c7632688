//! A last segment with records that the mended log needs: sequences that must not be given out
//! again, and streams whose configuration is lost.

use super::examine::Examiner;
use super::finding::{Finding, Kind};
use super::rebuild::Frames;
use crate::catalog::CATALOG_FILE;
use crate::env::{AlignedBuf, Disk, Entropy, SystemEntropy};
use crate::frame::{FrameHeader, encode_record};
use crate::record::{RecordKind, RecordRef};
use crate::segment::{Segment, SegmentHeader};
use crate::types::{Lsn, Seq, StreamId};
use std::io;

/// Block size of the segment.
const BLOCK_BYTES: u32 = 4096;

/// A record that the log needs.
struct RepairRecord {
    kind: RecordKind,
    stream: StreamId,
    seq: u64,
    subject: Vec<u8>,
    body: Vec<u8>,
}

impl Examiner<'_> {
    pub(super) fn repair_segment(&mut self) -> io::Result<()> {
        if self.inventory.not_understood > 0 {
            let count = self.inventory.not_understood;
            let what = format!("{count} records are whole and make no sense to this program");
            self.note(Finding::new(Kind::LaterVersion, "", what, ""));
            return Ok(());
        }
        let mut records = self.orphans();
        records.extend(self.skips());
        let key = self.catalog.key_id;
        if records.is_empty() {
            return Ok(());
        }
        if !self.keys.has(key) {
            self.note_encrypted(CATALOG_FILE, key, "; what is to be added would be under it");
            return Ok(());
        }
        self.seal_open()?;
        self.give(&records)
    }

    /// Streams with messages and without a configuration get one.
    fn orphans(&mut self) -> Vec<RepairRecord> {
        let mut records = Vec::new();
        for (stream, first, last) in self.inventory.unknown() {
            let (name, body) = self.decoder.orphan(stream, last);
            let what = format!(
                "messages {first} to {last} belong to stream id {stream}, whose name and \
                 configuration are lost"
            );
            self.note(Finding::new(
                Kind::StreamUnknown,
                "",
                what,
                format!("shown as stream {name}"),
            ));
            let subject = name.into_bytes();
            records.push(RepairRecord {
                kind: RecordKind::StreamState,
                stream,
                seq: last,
                subject,
                body,
            });
        }
        records
    }

    /// Sequences that may have been given out in a hole are skipped.
    fn skips(&self) -> Vec<RepairRecord> {
        let skipped = |unsure: super::inventory::Uncertain| RepairRecord {
            kind: RecordKind::Advance,
            stream: unsure.stream,
            seq: unsure.last.saturating_add(unsure.more_max),
            subject: Vec::new(),
            body: self.decoder.advance(),
        };
        self.inventory.uncertain().into_iter().map(skipped).collect()
    }

    fn give(&mut self, records: &[RepairRecord]) -> io::Result<()> {
        let base = self.catalog.end().next();
        let header = SegmentHeader {
            log_id: self.catalog.log_id,
            id: self.new_id(),
            epoch: self.catalog.epoch,
            base,
            salt: (SystemEntropy::default().next() >> 32) as u32 | 1,
            block_bytes: BLOCK_BYTES,
            compacted: false,
            packed: false,
            key_id: self.catalog.key_id,
        };
        let mut body = AlignedBuf::with_capacity(1 << 16);
        for record in records {
            let record = RecordRef {
                kind: record.kind,
                stream: record.stream,
                seq: Seq(record.seq),
                timestamp: self.inventory.newest,
                subject: &record.subject,
                headers: b"",
                body: &record.body,
            };
            encode_record(&record, &mut body);
        }
        let like = FrameHeader {
            count: records.len() as u16,
            lsn: base,
            durable_lsn: Lsn(base.0 - 1),
            ..FrameHeader::default()
        };
        let (file, keys) = (self.disk.create(&header.file_name())?, self.keys.clone());
        let mut frames = Frames::begin(Segment { header, file, keys })?;
        frames.add(&like, &body)?;
        let entry = frames.finish(None)?;
        self.catalog.segments.push(entry);
        Ok(())
    }
}
