//! Where a stream has come from and where it is going: what its moves between logs have to remember
//! over a restart.
//!
//! A stream that moves gets a new identity in its new log. There its state names the place that it
//! comes from. While it *arrives*, its messages are being copied and the old log counts; from the
//! record that says it has arrived on, the new log counts, and what is left in the old one is to be
//! forgotten. The old log says where a stream was last about to go (`MoveOut`), so that it is not
//! brought back to life where the new log is missing.

use super::{Accounted, Stream};
use crate::records::{DecodeError, Reader, put_bytes, put_u32};
use nuthatch_log::{Lsn, StreamId};
use nuthatch_protocol::js::StreamConfig;

/// A stream in a log.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Place {
    /// Name of the log.
    pub log: String,
    /// Identity of the stream there.
    pub stream: StreamId,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "id {} in log {}", self.stream, self.log)
    }
}

/// What a stream remembers of its moves.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Home {
    /// Where it came from last.
    pub from: Option<Place>,
    /// Its messages are still being copied from there.
    pub arriving: bool,
    /// Where it was last about to go.
    pub to: Option<Place>,
}

impl Home {
    /// Of a stream whose messages are being copied from `from`.
    #[must_use]
    pub const fn arriving(from: Place) -> Self {
        Self { from: Some(from), arriving: true, to: None }
    }

    /// Of a stream that has arrived from `from`.
    #[must_use]
    pub const fn arrived(from: Place) -> Self {
        Self { from: Some(from), arriving: false, to: None }
    }

    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.arriving));
        put_place(self.from.as_ref(), out);
        put_place(self.to.as_ref(), out);
    }

    /// The reverse of [`Home::encode`].
    ///
    /// # Errors
    /// [`DecodeError`] if it is not understood.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let arriving = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return Err(DecodeError::Damaged { what: "move flags" }),
        };
        Ok(Self { arriving, from: read_place(reader)?, to: read_place(reader)? })
    }
}

/// Appends a place; without one, an empty name.
pub fn put_place(place: Option<&Place>, out: &mut Vec<u8>) {
    put_bytes(out, place.map_or(b"", |place| place.log.as_bytes()));
    put_u32(out, place.map_or(0, |place| place.stream.0));
}

/// The reverse of [`put_place`].
///
/// # Errors
/// [`DecodeError`] if it is not understood.
pub fn read_place(reader: &mut Reader<'_>) -> Result<Option<Place>, DecodeError> {
    let log = std::str::from_utf8(reader.bytes()?)
        .map_err(|_| DecodeError::Damaged { what: "name of a log" })?
        .to_owned();
    let stream = StreamId(reader.u32()?);
    Ok((!log.is_empty()).then_some(Place { log, stream }))
}

impl Stream {
    /// What it remembers of its moves.
    #[must_use]
    pub const fn home(&self) -> &Home {
        &self.home
    }

    /// Changes what it remembers of its moves; returns what it was.
    pub fn set_home(&mut self, home: Home) -> Home {
        std::mem::replace(&mut self.home, home)
    }

    /// Exchanges the configuration for one that differs in nothing that the stream acts upon.
    pub fn swap_config(&mut self, config: Box<StreamConfig>) -> Box<StreamConfig> {
        std::mem::replace(&mut self.config, config)
    }

    /// Continues as `id` in another log. Everything has committed in the old one, and nothing of
    /// the budget there counts any more.
    pub fn rehome(&mut self, id: StreamId, home: Home) {
        let is_quiet = self.marks.is_empty() && self.dooms.is_empty() && self.jump.is_none();
        assert!(is_quiet, "nothing of a stream that leaves is in flight");
        self.id = id;
        self.home = home;
        (self.appending, self.settled) = (Lsn(0), Lsn(0));
        self.accounted = Accounted::default();
        // The state that it begins with tells what has expired.
        self.expired_logged = self.expired_through;
    }
}
