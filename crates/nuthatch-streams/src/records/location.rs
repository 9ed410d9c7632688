//! Where a stream is: the log and its identity there, as records name it.

use super::{DecodeError, FieldReader, put_bytes, put_u32};
use nuthatch_log::StreamId;

/// A stream in a log.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct StreamLocation {
    /// Name of the log.
    pub log: String,
    /// Identity of the stream there.
    pub stream: StreamId,
}

impl std::fmt::Display for StreamLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "id {} in log {}", self.stream, self.log)
    }
}

/// Appends a place; without one, an empty name.
pub fn put_place(place: Option<&StreamLocation>, out: &mut Vec<u8>) {
    put_bytes(out, place.map_or(b"", |place| place.log.as_bytes()));
    put_u32(out, place.map_or(0, |place| place.stream.0));
}

/// The reverse of [`put_place`].
///
/// # Errors
/// [`DecodeError`] if it is not understood.
pub fn read_place(reader: &mut FieldReader<'_>) -> Result<Option<StreamLocation>, DecodeError> {
    let log = std::str::from_utf8(reader.bytes()?)
        .map_err(|_| DecodeError::Damaged { what: "name of a log" })?
        .to_owned();
    let stream = StreamId(reader.u32()?);
    Ok((!log.is_empty()).then_some(StreamLocation { log, stream }))
}
