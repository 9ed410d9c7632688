//! Reading ahead.

use super::*;

#[test]
fn reading_ahead_goes_on_at_the_next_block() {
    let mut cache = BlockCache::new(1 << 20);
    let segment = SegmentId::default();
    // A frame larger than one stretch is kept without its padding.
    cache.insert(segment, 4096, Bytes::from(vec![0; 10_000]));
    assert_eq!(cache.read_ahead(segment, 4096, 4096), Some(16_384));
    assert_eq!(cache.read_ahead(segment, 4096, 4096), None, "asked once");
    cache.insert(segment, 16_384, Bytes::from(vec![0; 4096]));
    assert_eq!(cache.read_ahead(segment, 16_384, 4096), Some(20_480));
}
