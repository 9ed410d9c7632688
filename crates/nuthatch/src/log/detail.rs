//! Frames and records of segments, one line each.

use super::{EXIT_CANNOT_LOOK, EXIT_DAMAGE, InspectArgs};
use nuthatch_log::doctor::{FrameView, Seen, walk_segment_with};
use nuthatch_log::{Disk, FrameFault, Keyring, RecordRef};
use serde_json::json;
use std::io::{self, Write};

/// Lists frames of segments, and records if asked to; returns the exit code.
pub fn list(
    out: &mut impl Write,
    disk: &dyn Disk,
    files: &[String],
    args: &InspectArgs,
    keys: &Keyring,
) -> io::Result<u8> {
    let mut code = 0;
    for name in files {
        if !args.json {
            writeln!(out, "{name}")?;
        }
        let walked = walk_segment_with(disk, keys, name, &mut |seen| match seen {
            Seen::Frame(frame) => frame_line(out, name, frame, args.json),
            Seen::Record(at, record) if args.records => record_line(out, at, &record, args.json),
            Seen::Record(..) => Ok(()),
            Seen::Fault(FrameFault::Key(key), offset) => {
                code = code.max(EXIT_CANNOT_LOOK);
                writeln!(out, "  encrypted from offset {offset} on with key {key}: give --key-file")
            }
            Seen::Fault(fault, offset) => {
                code = EXIT_DAMAGE;
                writeln!(out, "  PROBLEM at offset {offset}: {fault:?}")
            }
        });
        match walked {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Err(error),
            Err(error) => {
                code = EXIT_DAMAGE;
                writeln!(out, "  PROBLEM: {error}")?;
            }
            Ok(()) => {}
        }
    }
    Ok(code)
}

fn frame_line(out: &mut impl Write, file: &str, frame: &FrameView, json: bool) -> io::Result<()> {
    let FrameView { offset, bytes, records, lsn, durable_lsn, flags, header_crc, body_crc, .. } =
        frame;
    if json {
        let line = json!({
            "file": file, "offset": offset, "bytes": bytes, "records": records, "position": lsn.0,
            "durable": durable_lsn.0, "flags": flags, "header_crc": header_crc, "body_crc": body_crc,
            "unpacked_bytes": frame.unpacked_bytes,
            "key": frame.key_id.is_some().then(|| frame.key_id.to_string()),
        });
        return writeln!(out, "{line}");
    }
    let packed = frame.unpacked_bytes.map(|bytes| format!(", packed from {bytes} bytes"));
    let kind = match flags {
        0 => "",
        1 => ", compacted",
        2 => ", commit marker",
        5 => packed.as_deref().unwrap_or_default(),
        _ => ", unknown flags",
    };
    let key =
        if frame.key_id.is_some() { format!(", key {}", frame.key_id) } else { String::new() };
    writeln!(
        out,
        "  frame {lsn} at {offset}: {bytes} bytes, {records} records, durable {durable_lsn}, header \
         {header_crc:08x}, body {body_crc:08x}{kind}{key}"
    )
}

fn record_line(
    out: &mut impl Write,
    at: usize,
    record: &RecordRef<'_>,
    json: bool,
) -> io::Result<()> {
    let subject = String::from_utf8_lossy(record.subject);
    let (headers, body) = (record.headers.len(), record.body.len());
    if json {
        let line = json!({
            "record": format!("{:?}", record.kind), "offset_in_frame": at, "stream": record.stream.0,
            "seq": record.seq.0, "time_ns": record.timestamp.0, "subject": subject,
            "header_bytes": headers, "body_bytes": body,
        });
        return writeln!(out, "{line}");
    }
    writeln!(
        out,
        "    +{at} {:?} stream {} seq {} {:?} headers {headers} body {body}",
        record.kind, record.stream, record.seq, subject
    )
}
