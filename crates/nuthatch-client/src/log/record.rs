//! What a log holds, and where.

use super::LogError;
use nuthatch_protocol::headers::{begin, finish, push};
use std::fmt;
use std::str::FromStr;

/// The place of a record in its channel: at least 1, rising, with gaps where records were truncated. It does
/// not change when the channel is compacted, moved or taken over.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Position(pub u64);

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl FromStr for Position {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// A record.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Record {
    /// Lets an append be repeated: the same id is stored once within the channel's window. Empty: none.
    pub id: String,
    /// Kept with the record. Names must not begin with `Nats-` or `Nuthatch-`.
    pub properties: Vec<(String, String)>,
    /// Its content.
    pub data: Vec<u8>,
    /// Where it lies; of a transient one, the last position before it. Not looked at in an append.
    pub position: Position,
    /// It is ordered with the others, and was not stored. Not looked at in an append.
    pub transient: bool,
}

impl Record {
    /// One with this content.
    pub fn new(data: impl Into<Vec<u8>>) -> Self {
        Self { data: data.into(), ..Self::default() }
    }

    /// Its header block, as this writer sends it.
    pub(super) fn headers(&self, term: u64, transient: bool) -> Result<Vec<u8>, LogError> {
        let mut block = Vec::with_capacity(64);
        begin(&mut block);
        push(&mut block, b"Nuthatch-Term", term.to_string().as_bytes());
        if transient {
            push(&mut block, b"Nuthatch-Transient", b"1");
        }
        let has_breaks = |text: &str| text.contains(['\r', '\n']);
        if has_breaks(&self.id) {
            return Err(LogError::BadRecord("its id holds a line break".to_owned()));
        }
        if !self.id.is_empty() {
            push(&mut block, b"Nats-Msg-Id", self.id.as_bytes());
        }
        for (name, value) in &self.properties {
            let is_ours = name.starts_with("Nats-") || name.starts_with("Nuthatch-");
            if is_ours || name.is_empty() || name.contains([':', ' ']) || has_breaks(name) {
                return Err(LogError::BadRecord(format!("property {name:?} has no such name")));
            }
            if has_breaks(value) {
                return Err(LogError::BadRecord(format!("property {name:?} holds a line break")));
            }
            push(&mut block, name.as_bytes(), value.as_bytes());
        }
        finish(&mut block);
        Ok(block)
    }
}

/// The stream that a channel is: its name, with what no stream's name may hold as `=XX`.
pub fn stream_name(channel: &str) -> String {
    let mut name = String::with_capacity(channel.len());
    for c in channel.chars() {
        if c <= ' ' || c == '\x7f' || ".*>/\\=".contains(c) {
            name.push_str(&format!("={:02X}", c as u32));
        } else {
            name.push(c);
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_becomes_a_stream() {
        assert_eq!(stream_name("by-dev_0"), "by-dev_0");
        assert_eq!(stream_name("a.b c/ü=1"), "a=2Eb=20c=2Fü=3D1");
    }

    #[test]
    fn records_that_would_forge_headers_are_refused() {
        let with = |name: &str, value: &str| Record {
            properties: vec![(name.to_owned(), value.to_owned())],
            ..Record::new("x")
        };
        assert!(with("kind", "insert").headers(7, false).is_ok());
        for (name, value) in
            [("Nuthatch-Term", "9"), ("Nats-Msg-Id", "1"), ("", "x"), ("a", "1\n2")]
        {
            assert!(with(name, value).headers(7, false).is_err(), "{name}");
        }
        let block = Record { id: "one".into(), ..Record::new("x") }.headers(7, true);
        let expected =
            "NATS/1.0\r\nNuthatch-Term: 7\r\nNuthatch-Transient: 1\r\nNats-Msg-Id: one\r\n\r\n";
        assert_eq!(block.expect("a block"), expected.as_bytes());
    }

    #[test]
    fn positions_are_printed_and_read() {
        assert_eq!("42".parse(), Ok(Position(42)));
        assert!(Position(9) < Position(10) && Position(10).to_string() == "10");
    }
}
