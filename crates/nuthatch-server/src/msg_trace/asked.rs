//! What the headers of a message ask for.

use memchr::memmem;
use std::collections::BTreeMap;

/// Names the subject that the trace is published on.
pub const DEST: &[u8] = b"Nats-Trace-Dest";
/// In place of that subject: the message is not traced any more.
pub const DISABLED: &[u8] = b"trace disabled";
/// The place of a server among those that the message passes.
pub const HOP: &[u8] = b"Nats-Trace-Hop";
/// The message is not to be delivered.
const ONLY: &[u8] = b"Nats-Trace-Only";
/// Older servers said by it that the message has left its account: it is not traced.
const ORIGIN_ACCOUNT: &[u8] = b"Nats-Trace-Origin-Account";
/// The header of W3C trace contexts, in any letter case.
const TRACE_PARENT: &[u8] = b"traceparent";
/// What every block begins with that may ask for a trace: one with a status does not.
const FIRST_LINE: &[u8] = b"NATS/1.0\r\n";

/// Header lines of a message that its trace shows; of those beyond only their number is.
pub const TRACE_HEADERS_MAX: usize = 256;
/// Bytes of names and values of the header lines that a trace shows.
pub const TRACE_HEADER_BYTES_MAX: usize = 64 << 10;
/// Memory of a header line beside its texts.
const LINE_BYTES: usize = 128;

/// True if a header block may ask for a trace; with `parents` also by a trace context.
#[inline]
#[must_use]
pub fn may_ask(block: &[u8], parents: bool) -> bool {
    memmem::find(block, DEST).is_some() || (parents && mentions_parent(block))
}

/// True if a line begins with the name of a trace context.
#[cold]
fn mentions_parent(block: &[u8]) -> bool {
    let mut lines = block.split(|byte| *byte == b'\n');
    lines.any(|line| {
        line.get(..TRACE_PARENT.len()).is_some_and(|name| name.eq_ignore_ascii_case(TRACE_PARENT))
    })
}

/// What a header block asks for.
#[derive(Debug)]
pub struct Asked {
    /// Its headers, with their values in order.
    pub headers: BTreeMap<String, Vec<String>>,
    /// Lines beyond [`TRACE_HEADERS_MAX`] and [`TRACE_HEADER_BYTES_MAX`].
    pub omitted: u64,
    /// The subject that the trace is published on; empty: a trace context asks for it, and the account
    /// names the subject.
    pub dest: Vec<u8>,
    /// The message is not to be delivered.
    pub only: bool,
    /// It comes from an older server that has changed its account; with that header's value.
    pub origin: Option<String>,
    /// The place that another server gave this one.
    pub(super) hop: String,
    /// Memory of the headers, in bytes.
    pub weight: usize,
}

impl Asked {
    /// Reads a header block as nats-server does; `None`: it asks for no trace.
    #[must_use]
    pub fn read(block: &[u8]) -> Option<Self> {
        let mut rest = block.strip_prefix(FIRST_LINE)?;
        let mut kept = Kept::default();
        let (mut dest, mut by_parent) = (None, false);
        let (mut only, mut origin, mut hop) = (None, None, None);
        while let Some((name, value, behind)) = next_line(rest) {
            rest = behind;
            if name.is_empty() || value.is_empty() {
                continue;
            }
            if name == DEST {
                if value == DISABLED && dest.is_none() {
                    return None;
                }
                dest = dest.or(Some(value));
            } else if !by_parent && name.eq_ignore_ascii_case(TRACE_PARENT) {
                by_parent = is_sampled(value);
            }
            // The first value counts, wherever it stands.
            match name {
                ONLY => only = only.or(Some(value)),
                ORIGIN_ACCOUNT => origin = origin.or(Some(value)),
                HOP => hop = hop.or(Some(value)),
                _ => {}
            }
            kept.add(name, value);
        }
        if dest.is_none() && !by_parent {
            return None;
        }
        let says_only = only.is_some_and(|value| {
            [&b"1"[..], b"true", b"on"].iter().any(|yes| value.eq_ignore_ascii_case(yes))
        });
        Some(Self {
            only: dest.is_some() && says_only,
            origin: origin.map(super::text),
            hop: hop.map(super::text).unwrap_or_default(),
            dest: dest.unwrap_or_default().to_vec(),
            weight: kept.bytes + LINE_BYTES * kept.lines,
            headers: kept.headers,
            omitted: kept.omitted,
        })
    }
}

/// The header lines that a trace shows.
#[derive(Default)]
struct Kept {
    headers: BTreeMap<String, Vec<String>>,
    lines: usize,
    bytes: usize,
    omitted: u64,
}

impl Kept {
    fn add(&mut self, name: &[u8], value: &[u8]) {
        let bytes = self.bytes + name.len() + value.len();
        if self.lines == TRACE_HEADERS_MAX || bytes > TRACE_HEADER_BYTES_MAX {
            self.omitted += 1;
            return;
        }
        (self.lines, self.bytes) = (self.lines + 1, bytes);
        self.headers.entry(super::text(name)).or_default().push(super::text(value));
    }
}

/// Name and value of the next line, and what follows it.
fn next_line(block: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let colon = memchr::memchr(b':', block)?;
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let (name, behind) = (&block[..colon], &block[colon + 1..]);
    let blanks = behind.iter().take_while(|byte| is_blank(byte)).count();
    let value = &behind[blanks..];
    let end = memmem::find(value, b"\r\n")?;
    let (value, behind) = (&value[..end], &value[end + 2..]);
    let blanks = value.iter().rev().take_while(|byte| is_blank(byte)).count();
    Some((name, &value[..value.len() - blanks], behind))
}

/// True if a trace context is one that is sampled: the last bit of its flags.
fn is_sampled(context: &[u8]) -> bool {
    let mut parts = context.split(|byte| *byte == b'-');
    let (Some(flags), None) = (parts.nth(3), parts.next()) else { return false };
    let number = std::str::from_utf8(flags).ok().filter(|flags| flags.len() == 2);
    // nats-server reads it as a signed byte.
    number.and_then(|flags| i8::from_str_radix(flags, 16).ok()).is_some_and(|flags| flags & 1 == 1)
}
