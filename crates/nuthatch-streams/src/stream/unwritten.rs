//! What has become of a stream's messages and its log does not know yet: a record says so later, and
//! before any record whose replay depends on it.

/// Removals by consumers that no record in the log tells of yet.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Unlogged {
    /// Messages.
    pub messages: u64,
    /// Bytes.
    pub bytes: u64,
}

/// See the module. What has expired stays so, whatever the stream's age becomes.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Unwritten {
    released: Unlogged,
    /// Messages up to here are gone by age; a record says so once `expired_logged` reaches it.
    expired_through: u64,
    expired_logged: u64,
    /// Interest retention: messages up to here are being swept for those that no consumer needs; 0:
    /// none.
    unswept: u64,
}

impl Unwritten {
    /// Removals by consumers that are not in the log yet.
    #[inline]
    #[must_use]
    pub const fn released(&self) -> Unlogged {
        self.released
    }

    /// Messages that count so many bytes are gone, and no record tells of it.
    pub(super) const fn release(&mut self, messages: u64, bytes: u64) {
        self.released.messages += messages;
        self.released.bytes += bytes;
    }

    /// The log knows of all removals now.
    pub fn set_releases_logged(&mut self) {
        self.released = Unlogged::default();
    }

    /// Messages up to here are gone by age.
    #[must_use]
    pub const fn expired_through(&self) -> u64 {
        self.expired_through
    }

    /// Messages up to `seq` are gone by age.
    pub(super) fn expire(&mut self, seq: u64) {
        self.expired_through = self.expired_through.max(seq);
    }

    /// The sequence up to which an `Expire` record is due, if one is.
    #[must_use]
    pub fn due_expiry(&self) -> Option<u64> {
        (self.expired_through > self.expired_logged).then_some(self.expired_through)
    }

    /// The log says that messages up to `seq` have expired.
    pub fn expiry_logged(&mut self, seq: u64) {
        self.expire(seq);
        self.expired_logged = seq;
    }

    /// The state that the log begins with tells what has expired.
    pub(super) const fn rehome(&mut self) {
        self.expired_logged = self.expired_through;
    }

    /// Interest retention: the sequence up to which messages are to be swept for those that no
    /// consumer needs; 0 if there is nothing to sweep.
    #[must_use]
    pub const fn unswept(&self) -> u64 {
        self.unswept
    }

    /// Notes that messages up to `last` are to be looked through; 0: that it is done.
    pub const fn set_unswept(&mut self, last: u64) {
        self.unswept = last;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expiry_is_due_until_a_record_says_it_and_never_goes_back() {
        let mut unwritten = Unwritten::default();
        unwritten.expire(5);
        unwritten.expire(3);
        assert_eq!(unwritten.due_expiry(), Some(5));
        unwritten.expiry_logged(5);
        assert_eq!((unwritten.due_expiry(), unwritten.expired_through()), (None, 5));
        unwritten.expire(9);
        unwritten.rehome();
        assert_eq!((unwritten.due_expiry(), unwritten.expired_through()), (None, 9));
    }

    #[test]
    fn releases_add_up_until_they_are_logged() {
        let mut unwritten = Unwritten::default();
        unwritten.release(1, 10);
        unwritten.release(2, 5);
        assert_eq!(unwritten.released(), Unlogged { messages: 3, bytes: 15 });
        unwritten.set_releases_logged();
        assert_eq!(unwritten.released(), Unlogged::default());
    }
}
