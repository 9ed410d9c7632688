//! Who the members of a group are.

/// One disk that is, was or wants to be a member of the group. Drawn at random when the disk is first used, so a
/// disk that lost everything comes back as another member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MemberId(pub u64);

/// One beginning of a member on its disk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Boot {
    /// How often the member has begun.
    pub count: u32,
    /// A number drawn for this beginning: an old image of the disk that begins as often is another one.
    pub nonce: u64,
}

impl Boot {
    /// True if who has seen `self` must not listen to `other` of the same member.
    #[must_use]
    pub fn outdates(self, other: Self) -> bool {
        other.count < self.count || (other.count == self.count && other.nonce != self.nonce)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_beginning_and_another_one_of_the_same_number_are_outdated() {
        let boot = |count, nonce| Boot { count, nonce };
        assert!(boot(3, 1).outdates(boot(2, 9)));
        assert!(boot(3, 1).outdates(boot(3, 2)), "two images of one disk");
        assert!(!boot(3, 1).outdates(boot(3, 1)));
        assert!(!boot(3, 1).outdates(boot(4, 2)));
    }
}
