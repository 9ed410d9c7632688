//! The protocol that the nodes of a cluster speak. It rises when people say so, after all nodes know the next one.

use super::{Refusal, Roster};
use crate::coding::{LATER, Malformed, Reader, Writer, malformed};
use crate::types::Protocol;

/// Before the drained nodes and the end, in a roster whose nodes speak a later protocol than the first one: it follows.
const WITH_ACTIVE: u8 = 4;

impl Roster {
    /// A node that has joined since is none of those that were known to speak it.
    pub(super) fn check_finalize(&self, wanted: Protocol, changes: u64) -> Result<(), Refusal> {
        let is_next = wanted > self.active && changes == self.changes;
        if is_next { Ok(()) } else { Err(Refusal::Late) }
    }

    /// Appends it. The first one is written as nothing, as before there was another.
    pub(super) fn put_active(&self, to: &mut Writer) {
        if self.active > Protocol::FIRST {
            to.u8(WITH_ACTIVE);
            to.u8(self.active.0);
        }
    }

    pub(super) fn read_active(from: &mut Reader<'_>) -> Result<Protocol, Malformed> {
        if from.0.first() != Some(&WITH_ACTIVE) {
            return Ok(Protocol::FIRST);
        }
        from.u8()?;
        match Protocol(from.u8()?) {
            later if later > Protocol::NEWEST => Err(malformed(LATER)),
            active if active > Protocol::FIRST => Ok(active),
            _ => Err(malformed("a cluster speaks a protocol that is written otherwise")),
        }
    }
}
