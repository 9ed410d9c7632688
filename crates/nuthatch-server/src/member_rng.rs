//! Random choices on the way of a message: members of queue groups, destinations of mappings.

/// Fast random numbers for the choice among the members of a queue group.
#[derive(Clone, Copy, Debug)]
pub struct MemberRng(u64);

impl Default for MemberRng {
    fn default() -> Self {
        use std::hash::{BuildHasher, RandomState};
        Self(RandomState::new().hash_one(0_u8) | 1)
    }
}

impl MemberRng {
    /// The choices of this seed, which must not be 0.
    #[cfg(test)]
    pub(crate) const fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Any number.
    pub fn number(&mut self) -> u32 {
        (self.next() >> 32) as u32
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
