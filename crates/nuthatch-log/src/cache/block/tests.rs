//! Reading ahead, and frames that were packed.

use super::*;

fn plain(offset: u32, end: u32, len: usize) -> Stretch {
    Stretch {
        offset,
        end,
        bytes: Bytes::from(vec![0; len]),
        unpacked: false,
        last: Link::default(),
    }
}

#[test]
fn reading_ahead_goes_on_at_the_next_block() {
    let mut cache = BlockCache::new(1 << 20);
    let segment = SegmentId::default();
    // A frame larger than one stretch is kept without its padding.
    cache.insert(segment, plain(4096, 16_384, 10_000));
    assert_eq!(cache.read_ahead(segment, 4096), Some((16_384, Link::default())));
    assert_eq!(cache.read_ahead(segment, 4096), None, "asked once");
    cache.insert(segment, plain(16_384, 20_480, 4096));
    assert_eq!(cache.read_ahead(segment, 16_384), Some((20_480, Link::default())));
}

#[test]
fn reading_ahead_passes_over_what_is_there() {
    let mut cache = BlockCache::new(1 << 20);
    let segment = SegmentId::default();
    for n in 0..3 {
        cache.insert(segment, plain(n * 100, n * 100 + 100, 100));
    }
    assert_eq!(cache.read_ahead(segment, 0), Some((300, Link::default())));
}

/// A frame with an empty message of this sequence.
fn frame_of(seq: u64, records: u64) -> Vec<u8> {
    let mut bytes = vec![0; FRAME_HEADER_BYTES];
    for n in 0..records {
        let mut record = [0; 32];
        record[0] = RecordKind::Message as u8;
        record[4] = 1;
        record[8] = 32;
        record[16..24].copy_from_slice(&(seq + n).to_le_bytes());
        bytes.extend_from_slice(&record);
    }
    let len = bytes.len() as u32;
    bytes[..4].copy_from_slice(&len.to_le_bytes());
    bytes
}

/// The next frame after one that was packed lies where the stored frame ended, not where what was
/// unpacked would.
#[test]
fn a_walk_goes_over_frames_that_were_packed() {
    let mut cache = BlockCache::new(1 << 20);
    let segment = SegmentId::default();
    for (offset, seq) in [(64, 1), (128, 101)] {
        let bytes = Bytes::from(frame_of(seq, 100));
        cache.insert(
            segment,
            Stretch { offset, end: offset + 64, bytes, unpacked: true, last: Link::default() },
        );
    }
    let start = FramePosition { frame: 64, record: 0 };
    let wanted = |seq| (StreamId(1), Seq(seq));
    let found = cache.find(segment, 64, start, 256, wanted(103));
    assert_eq!(found, ReadStep::Found(FramePosition { frame: 128, record: 48 + 2 * 32 }));
    assert_eq!(
        cache.find(segment, 64, start, 256, wanted(201)),
        ReadStep::Absent(192, Some(Link::default()))
    );
    assert_eq!(cache.find(segment, 64, start, 192, wanted(201)), ReadStep::Passed);
    // No frame starts inside a packed one.
    let inside = FramePosition { frame: 80, record: 0 };
    assert_eq!(cache.find(segment, 64, inside, 256, wanted(5)), ReadStep::Absent(80, None));
}
