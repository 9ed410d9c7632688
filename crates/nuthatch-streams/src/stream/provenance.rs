//! Provenance of a stream: the log it came from and the one it is about to move to, remembered over
//! a restart.
//!
//! A stream that moves gets a new identity in its new log. There its state names the place that it
//! comes from. While it *arrives*, its messages are being copied and the old log counts; from the
//! record that says it has arrived on, the new log counts, and what is left in the old one is to be
//! forgotten. The old log says where a stream was last about to go (`MoveOut`), so that it is not
//! brought back to life where the new log is missing.

use super::{Accounted, Stream};
use crate::records::{DecodeError, FieldReader, StreamLocation, put_place, read_place};
use nuthatch_log::StreamId;
use nuthatch_protocol::js::StreamConfig;
use std::sync::Arc;

/// A stream's migrations between logs.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Provenance {
    /// The last location it came from.
    pub from: Option<StreamLocation>,
    /// Its messages are still being copied from there.
    pub arriving: bool,
    /// The last location it was about to move to.
    pub to: Option<StreamLocation>,
}

impl Provenance {
    /// Of a stream whose messages are being copied from `from`.
    #[must_use]
    pub const fn arriving(from: StreamLocation) -> Self {
        Self { from: Some(from), arriving: true, to: None }
    }

    /// Of a stream that has arrived from `from`.
    #[must_use]
    pub const fn arrived(from: StreamLocation) -> Self {
        Self { from: Some(from), arriving: false, to: None }
    }

    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.arriving));
        put_place(self.from.as_ref(), out);
        put_place(self.to.as_ref(), out);
    }

    /// The reverse of [`Provenance::encode`].
    ///
    /// # Errors
    /// [`DecodeError`] if it is not understood.
    pub fn decode(reader: &mut FieldReader<'_>) -> Result<Self, DecodeError> {
        let arriving = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return Err(DecodeError::Damaged { what: "move flags" }),
        };
        Ok(Self { arriving, from: read_place(reader)?, to: read_place(reader)? })
    }
}

impl Stream {
    /// Its migrations between logs.
    #[must_use]
    pub const fn provenance(&self) -> &Provenance {
        &self.provenance
    }

    /// Changes what it remembers of its moves; returns what it was.
    pub fn set_provenance(&mut self, provenance: Provenance) -> Provenance {
        std::mem::replace(&mut self.provenance, provenance)
    }

    /// Exchanges the configuration for one that differs in nothing that the stream acts upon.
    pub fn swap_config(&mut self, config: Arc<StreamConfig>) -> Arc<StreamConfig> {
        std::mem::replace(&mut self.config, config)
    }

    /// Continues as `id` in another log. Everything has committed in the old one, and nothing of
    /// the budget there counts any more.
    pub fn rehome(&mut self, id: StreamId, provenance: Provenance) {
        self.contents.rehome();
        self.id = id;
        self.provenance = provenance;
        self.accounted = Accounted::default();
        // The state that it begins with tells what has expired.
        self.unwritten.rehome();
    }
}
