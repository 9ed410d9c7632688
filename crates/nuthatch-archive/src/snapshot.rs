//! The newer archives: `state.json`, one entry for each consumer, one for each message, an end mark.
//!
//! What is missing between two messages, before the first and behind the last was deleted; the
//! state tells how far the stream has come. The end mark tells a whole archive from a part.

use crate::entry::{self, Entries, Header};
use crate::error::ArchiveError;
use crate::{CONSUMER_BYTES_MAX, CONSUMERS_MAX, Item, Message, SEQ_MAX, check_name, json};
use nuthatch_protocol::js::{ConsumerSnapshot, StreamState};
use nuthatch_protocol::subject;
use snap::write::FrameEncoder;
use std::io::{self, BufReader, Read, Write};

/// Magic of an uncompressed archive.
pub const MAGIC: &[u8; 8] = b"NATSARC1";

const STATE_NAME: &[u8] = b"state.json";
const CONSUMER_PREFIX: &[u8] = b"consumers/";
/// Bytes of `state.json`.
const STATE_BYTES_MAX: u64 = 1 << 20;

/// Writes an archive: the state, then consumers, then messages in order, then [`Self::finish`].
pub struct SnapshotWriter<W: Write> {
    out: FrameEncoder<W>,
}

impl<W: Write> SnapshotWriter<W> {
    /// Begins an archive of a stream in this state; `consumer_count` of it must be the number of
    /// consumers that follow.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(out: W, state: &StreamState, now_ns: i64) -> io::Result<Self> {
        let mut writer = Self { out: FrameEncoder::new(out) };
        writer.out.write_all(MAGIC)?;
        writer.document(STATE_NAME.to_vec(), now_ns, &serde_json::to_vec(state)?)?;
        Ok(writer)
    }

    fn document(&mut self, name: Vec<u8>, time_ns: i64, body: &[u8]) -> io::Result<()> {
        let body_bytes = body.len() as u64;
        let header = Header { name, time_ns, body_bytes, ..Header::default() };
        entry::write(&mut self.out, &header, [b"", body])
    }

    /// Adds a consumer, named in its configuration.
    ///
    /// # Errors
    /// Those of the output.
    pub fn consumer(&mut self, consumer: &ConsumerSnapshot, now_ns: i64) -> io::Result<()> {
        let name = [CONSUMER_PREFIX, consumer.config.name.as_bytes()].concat();
        self.document(name, now_ns, &serde_json::to_vec(consumer)?)
    }

    /// Adds a message. Sequences must rise.
    ///
    /// # Errors
    /// Those of the output.
    pub fn message(&mut self, message: &Message<'_>) -> io::Result<()> {
        let header = Header {
            name: message.subject.to_vec(),
            time_ns: message.time_ns,
            seq: message.seq,
            headers_bytes: message.headers.len() as u64,
            body_bytes: message.body.len() as u64,
        };
        entry::write(&mut self.out, &header, [message.headers, message.body])
    }

    /// The underlying writer, to take what is there.
    pub fn get_mut(&mut self) -> &mut W {
        self.out.get_mut()
    }

    /// Writes the end mark and everything that is not written yet.
    ///
    /// # Errors
    /// Those of the output.
    pub fn finish(mut self) -> io::Result<W> {
        entry::write(&mut self.out, &Header::default(), [b"", b""])?;
        self.out.into_inner().map_err(snap::write::IntoInnerError::into_error)
    }
}

/// The range of sequences that a state speaks of.
fn check_state(state: &StreamState) -> Result<(), &'static str> {
    let (first, last) = (state.first_seq, state.last_seq);
    if last > SEQ_MAX || first > SEQ_MAX {
        return Err("a sequence beyond 63 bits");
    }
    let fits = match (first, last) {
        (0, _) => last == 0 && state.messages == 0,
        _ if first > last => first - 1 == last && state.messages == 0,
        _ => state.messages <= last - first + 1,
    };
    if !fits {
        return Err("the number of messages does not fit the range of sequences");
    }
    if state.consumer_count > CONSUMERS_MAX {
        return Err("more than 100,000 consumers");
    }
    Ok(())
}

/// Reads what follows the magic bytes.
pub(crate) fn read<R, E>(
    input: R,
    visit: &mut dyn FnMut(Item<'_>) -> Result<(), E>,
) -> Result<(), E>
where
    R: Read,
    E: From<ArchiveError>,
{
    let mut entries = Entries::new(BufReader::new(input));
    let state = read_state(&mut entries)?;
    let mut bytes = Vec::new();
    for _ in 0..state.consumer_count {
        let consumer = read_consumer(&mut entries, &mut bytes)?;
        visit(Item::Consumer(Box::new(consumer)))?;
    }
    let mut last = 0;
    loop {
        let header = entries.next()?;
        if header.is_end() {
            break;
        }
        check_message(&entries, &header, last)?;
        if header.seq - last > 1 {
            visit(Item::Removed { first: last + 1, last: header.seq - 1 })?;
        }
        last = header.seq;
        entries.bytes(header.headers_bytes + header.body_bytes, &mut bytes)?;
        let (headers, body) = bytes.split_at(header.headers_bytes as usize);
        let Header { ref name, time_ns, seq, .. } = header;
        visit(Item::Message(Message { seq, time_ns, subject: name, headers, body }))?;
    }
    if last < state.last_seq {
        visit(Item::Removed { first: last + 1, last: state.last_seq })?;
    }
    Ok(())
}

fn read_state<R: Read>(entries: &mut Entries<R>) -> Result<StreamState, ArchiveError> {
    let header = entries.next()?;
    if header.name != STATE_NAME {
        return Err(entries.damaged("it is not the state of a stream"));
    }
    ArchiveError::check_size("state.json", header.body_bytes, STATE_BYTES_MAX)?;
    let mut bytes = Vec::new();
    entries.bytes(header.headers_bytes + header.body_bytes, &mut bytes)?;
    let state: StreamState = json::parse(&bytes, "state.json")?;
    check_state(&state).map_err(|what| ArchiveError::damaged("state.json", what))?;
    Ok(state)
}

fn read_consumer<R: Read>(
    entries: &mut Entries<R>,
    bytes: &mut Vec<u8>,
) -> Result<ConsumerSnapshot, ArchiveError> {
    let header = entries.next()?;
    let name = header.name.strip_prefix(CONSUMER_PREFIX);
    let Some(name) = name.and_then(|name| std::str::from_utf8(name).ok()) else {
        return Err(entries.damaged("it is not a consumer, where one should be"));
    };
    check_name(name, &entries.place())?;
    let size = header.headers_bytes + header.body_bytes;
    ArchiveError::check_size(&format!("consumer {name}"), size, CONSUMER_BYTES_MAX)?;
    entries.bytes(size, bytes)?;
    let mut consumer: ConsumerSnapshot = json::parse(bytes, &format!("consumer {name}"))?;
    consumer.config.name = name.to_owned();
    Ok(consumer)
}

fn check_message<R: Read>(
    entries: &Entries<R>,
    header: &Header,
    last: u64,
) -> Result<(), ArchiveError> {
    let seq = header.seq;
    if seq <= last || seq > SEQ_MAX {
        return Err(entries.damaged(format!("sequence {seq} behind {last}")));
    }
    if !subject::is_valid_literal(&header.name) {
        return Err(entries.damaged(format!("message {seq} has no valid subject")));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
