//! The protocol that the nodes of a cluster speak. It rises when people say so, after all nodes know the next one.

use super::{Refusal, Roster};
use crate::coding::{Malformed, Reader, Writer, malformed};
use crate::types::Protocol;

/// Before the drained nodes and the end, in a roster whose nodes speak a later protocol than the first one: it follows.
const WITH_ACTIVE: u8 = 4;

impl Roster {
    pub(super) fn check_finalize(&self, wanted: Protocol) -> Result<(), Refusal> {
        if wanted > self.active { Ok(()) } else { Err(Refusal::Late) }
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
        let active = Protocol(from.u8()?);
        match active > Protocol::FIRST {
            true => Ok(active),
            false => Err(malformed("a cluster speaks a protocol that is written otherwise")),
        }
    }
}
