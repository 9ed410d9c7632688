//! Decoding of records and snapshots for tools that inspect a log without running it.

use crate::consumer::Consumer;
use crate::engine::Engine;
use crate::records::{Advance, AdvanceRollup, DecodeError, FieldReader, LogState};
use crate::sink::{AccountId, Sink};
use crate::stream::Stream;
use nuthatch_log::doctor::{DecodedState, StreamPreview};
use nuthatch_log::{Seq, StreamId};
use nuthatch_protocol::js::StreamConfig;

/// Subjects of a stream whose configuration was lost begin with this, and so does its name.
const RECOVERED: &str = "RECOVERED";

/// Decodes the body of a `StreamState` record; `None` if it is malformed.
#[must_use]
pub fn state(body: &[u8]) -> Option<DecodedState> {
    let snapshot = Stream::decode_state(StreamId(1), body, 0).ok()?;
    let name = snapshot.stream.config().name.clone();
    Some(snapshot.recovering.facts(name))
}

/// The first id never used and the streams that exist, as the body of a `LogState` says.
#[must_use]
pub fn log_state(body: &[u8]) -> Option<(StreamId, Vec<StreamId>)> {
    let state = LogState::decode(body).ok()?;
    Some((state.next_id, state.live))
}

/// The streams in a checkpoint's snapshot; `None` if it makes no sense.
#[must_use]
pub fn snapshot(bytes: &[u8]) -> Option<Vec<(StreamId, DecodedState)>> {
    read_snapshot(bytes).ok()
}

/// True if a checkpoint's snapshot, or a stream or consumer in it, is of a later version.
#[must_use]
pub fn is_later(bytes: &[u8]) -> bool {
    matches!(read_snapshot(bytes), Err(DecodeError::Version { .. }))
}

fn read_snapshot(bytes: &[u8]) -> Result<Vec<(StreamId, DecodedState)>, DecodeError> {
    let mut reader = FieldReader::versioned(bytes, crate::engine::SNAPSHOT_VERSION)?;
    LogState::decode(reader.bytes()?)?;
    let count = reader.count(8)?;
    let mut streams = Vec::with_capacity(count);
    for _ in 0..count {
        let id = StreamId(reader.u32()?);
        let snapshot = Stream::decode_state(id, reader.bytes()?, 0)?;
        for consumer in snapshot.consumers {
            Consumer::<()>::decode(consumer)?;
        }
        let name = snapshot.stream.config().name.clone();
        streams.push((id, snapshot.recovering.facts(name)));
    }
    Ok(streams)
}

/// Body of an `Advance` record, which uses up a sequence and all before it.
#[must_use]
pub fn advance() -> Vec<u8> {
    let mut body = Vec::new();
    Advance { rollup: AdvanceRollup::None, msg_id: b"" }.encode(&mut body);
    body
}

/// Name and `StreamState` body for an orphan, a stream whose configuration is lost and whose
/// messages go up to `last`: in the global account, without limits, on a subject of its own.
#[must_use]
pub fn orphan(id: StreamId, last: u64) -> (String, Vec<u8>) {
    let name = format!("{RECOVERED}_{id}");
    let config = StreamConfig {
        name: name.clone(),
        description: "Its configuration was lost; nuthatch doctor found its messages".to_owned(),
        subjects: vec![format!("{RECOVERED}.{id}")],
        ..StreamConfig::default()
    };
    let at = nuthatch_log::Timestamp(0);
    let mut stream = Stream::new(id, AccountId::GLOBAL, Box::new(config), at, 0);
    let mut body = Vec::new();
    stream.encode_as_of(last, &mut body);
    (name, body)
}

impl<S: Sink> Engine<S> {
    /// The streams as readers see them, by id.
    #[must_use]
    pub fn previews(&self) -> Vec<StreamPreview> {
        let mut streams: Vec<StreamPreview> = self.each_stream().map(preview).collect();
        streams.sort_by_key(|stream| stream.id);
        streams
    }
}

fn preview((stream, consumers): (&Stream, usize)) -> StreamPreview {
    let state = stream.state(consumers);
    let mut preview = StreamPreview {
        id: stream.id(),
        name: stream.config().name.clone(),
        first: state.first_seq,
        last: state.last_seq,
        messages: state.messages,
        consumers,
        ..StreamPreview::default()
    };
    stream.contents().for_each_held(&mut |Seq(seq), weight| {
        preview.bytes += weight as u64;
        match preview.live.last_mut() {
            Some((_, last)) if *last + 1 == seq => *last = seq,
            _ => preview.live.push((seq, seq)),
        }
    });
    preview
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_orphan_state_reads_back() {
        let (name, body) = orphan(StreamId(7), 41);
        let facts = state(&body).expect("reads back");
        assert_eq!(facts.name, name);
        assert_eq!((facts.floor, facts.next, facts.deleted), (1, 42, vec![]));
    }

    /// A snapshot with one stream whose state has this version.
    fn snapshot_of(version: u8) -> Vec<u8> {
        use crate::records::{put_bytes, put_u32};
        let (_, mut state) = orphan(StreamId(7), 41);
        state[0] = version;
        let mut log_state = Vec::new();
        LogState { next_id: StreamId(8), live: vec![StreamId(7)] }.encode(&mut log_state);
        let mut bytes = vec![crate::engine::SNAPSHOT_VERSION];
        put_bytes(&mut bytes, &log_state);
        put_u32(&mut bytes, 1);
        put_u32(&mut bytes, 7);
        put_bytes(&mut bytes, &state);
        bytes
    }

    /// Only what says that it is of a later version is; damage is not.
    #[test]
    fn a_later_version_anywhere_in_a_snapshot_is_told_from_damage() {
        let (_, state) = orphan(StreamId(7), 41);
        let whole = snapshot_of(state[0]);
        assert!(snapshot(&whole).is_some() && !is_later(&whole));
        assert!(is_later(&snapshot_of(200)));
        assert!(!is_later(&snapshot_of(0)) && snapshot(&snapshot_of(0)).is_none());
        assert!(!is_later(&whole[..whole.len() - 1]) && !is_later(b""));
        let mut layout = whole;
        layout[0] += 1;
        assert!(is_later(&layout));
    }
}
