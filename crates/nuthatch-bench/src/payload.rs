//! Bodies that do not compress: seeded pseudo-random bytes.

use std::ops::Range;

/// Different bodies of one size are slices of one pool at offsets within this many bytes, so that
/// making the next body costs nothing and the pool stays in the CPU's cache.
const SPREAD_BYTES: usize = 256 * 1024;

/// Distance between the offsets of consecutive bodies; odd, so that all offsets are visited.
const STEP_BYTES: usize = 4099;

/// A source of bodies of one size.
#[derive(Debug, Clone)]
pub struct Payload {
    pool: Vec<u8>,
    size: usize,
}

impl Payload {
    /// Bodies of `size` bytes that depend on `seed` alone.
    pub fn new(size: usize, seed: u64) -> Self {
        let mut pool = vec![0; size + SPREAD_BYTES];
        let mut state = seed;
        for chunk in pool.chunks_mut(8) {
            chunk.copy_from_slice(&split_mix(&mut state).to_le_bytes()[..chunk.len()]);
        }
        Self { pool, size }
    }

    /// The body of message `index`.
    #[inline]
    pub fn get(&self, index: u64) -> &[u8] {
        &self.pool[self.range(index)]
    }

    /// Where the body of message `index` lies in the pool.
    #[inline]
    pub fn range(&self, index: u64) -> Range<usize> {
        let offset = (index as usize).wrapping_mul(STEP_BYTES) % SPREAD_BYTES;
        offset..offset + self.size
    }

    /// The pool itself, for clients that share ownership of bodies.
    #[cfg(feature = "async-nats")]
    pub fn pool(&self) -> &[u8] {
        &self.pool
    }
}

/// SplitMix64 of Steele, Lea and Flood.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_bytes_and_bodies_differ() {
        let (a, b, c) = (Payload::new(100, 1), Payload::new(100, 1), Payload::new(100, 2));
        assert_eq!(a.get(5), b.get(5));
        assert_ne!(a.get(5), c.get(5));
        assert_ne!(a.get(5), a.get(6));
        assert_eq!(a.get(u64::MAX).len(), 100);
        assert!(Payload::new(0, 1).get(3).is_empty());
    }
}
