//! A last segment with records that the mended log needs: sequences that must not be given out
//! again, and streams whose configuration is lost.

use super::examine::Examiner;
use super::finding::{Finding, Kind};
use super::rebuild::Frames;
use crate::env::{AlignedBuf, Disk, Entropy, SystemEntropy};
use crate::frame::{FrameHeader, encode_record};
use crate::record::{RecordKind, RecordRef};
use crate::segment::SegmentHeader;
use crate::types::{Lsn, Seq, StreamId};
use std::io;

/// Block size of the segment.
const BLOCK_BYTES: u32 = 4096;

/// A record that the log needs.
struct Dose {
    kind: RecordKind,
    stream: StreamId,
    seq: u64,
    subject: Vec<u8>,
    body: Vec<u8>,
}

impl Examiner<'_> {
    pub(super) fn medicine(&mut self) -> io::Result<()> {
        if self.census.not_understood > 0 {
            let count = self.census.not_understood;
            let what = format!("{count} records are whole and make no sense to this program");
            self.note(Finding::new(Kind::LaterVersion, "", what, ""));
            return Ok(());
        }
        let mut doses = self.foundlings();
        doses.extend(self.skips());
        if doses.is_empty() {
            return Ok(());
        }
        self.seal_open()?;
        self.give(&doses)
    }

    /// Streams with messages and without a configuration get one.
    fn foundlings(&mut self) -> Vec<Dose> {
        let mut doses = Vec::new();
        for (stream, first, last) in self.census.unknown() {
            let (name, body) = self.medic.foundling(stream, last);
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
            doses.push(Dose { kind: RecordKind::StreamState, stream, seq: last, subject, body });
        }
        doses
    }

    /// Sequences that may have been given out in a hole are skipped.
    fn skips(&self) -> Vec<Dose> {
        let skipped = |unsure: super::census::Uncertain| Dose {
            kind: RecordKind::Advance,
            stream: unsure.stream,
            seq: unsure.last.saturating_add(unsure.more_max),
            subject: Vec::new(),
            body: self.medic.advance(),
        };
        self.census.uncertain().into_iter().map(skipped).collect()
    }

    fn give(&mut self, doses: &[Dose]) -> io::Result<()> {
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
        };
        let mut body = AlignedBuf::with_capacity(1 << 16);
        for dose in doses {
            let record = RecordRef {
                kind: dose.kind,
                stream: dose.stream,
                seq: Seq(dose.seq),
                timestamp: self.census.newest,
                subject: &dose.subject,
                headers: b"",
                body: &dose.body,
            };
            encode_record(&record, &mut body);
        }
        let like = FrameHeader {
            count: doses.len() as u16,
            lsn: base,
            durable_lsn: Lsn(base.0 - 1),
            ..FrameHeader::default()
        };
        let mut frames = Frames::begin(self.disk.create(&header.file_name())?, header)?;
        frames.add(&like, &body)?;
        let entry = frames.finish(None)?;
        self.catalog.segments.push(entry);
        Ok(())
    }
}
