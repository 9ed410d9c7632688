//! Messages on their way into a stream that is being imported, many in one request: Nuthatch's own.
//!
//! ```text
//! batch   = version u8 (1) | gap to u64 | messages
//! message = sequence u64 | time i64 | subject length u16 | headers length u32 | body length u32
//!         | subject | headers | body
//! ```
//!
//! All numbers are little endian. *Gap to* is the last sequence that the batch speaks of: whatever up
//! to there is not in it does not exist. Times are nanoseconds since the Unix epoch.

/// Version of the layout.
const VERSION: u8 = 1;
/// Header of the request that carries a batch: the last sequence before the batch. What comes behind a
/// batch that was not stored is told by it.
pub const IMPORT_AFTER: &[u8] = b"Nuthatch-Import-After";
/// Bytes before the messages.
pub const HEAD_BYTES: usize = 1 + 8;
/// Bytes of a message beside its subject, headers and body.
pub const MESSAGE_HEAD_BYTES: usize = 8 + 8 + 2 + 4 + 4;

/// A message of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Imported<'a> {
    /// Its sequence.
    pub seq: u64,
    /// When it was stored, ns since the Unix epoch.
    pub time_ns: i64,
    /// Subject.
    pub subject: &'a [u8],
    /// Header block or empty.
    pub headers: &'a [u8],
    /// Payload.
    pub body: &'a [u8],
}

impl Imported<'_> {
    /// Bytes that it takes in a batch.
    #[must_use]
    pub const fn size(&self) -> usize {
        MESSAGE_HEAD_BYTES + self.subject.len() + self.headers.len() + self.body.len()
    }
}

/// Why a batch makes no sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ImportError {
    /// Another version's.
    #[error("batch of version {found}, this server knows {VERSION}")]
    Version {
        /// The version found.
        found: u8,
    },
    /// It ends in the middle.
    #[error("batch ends in the middle of message {number}")]
    Truncated {
        /// Which message, counted from 0.
        number: usize,
    },
    /// Sequences do not rise.
    #[error("sequence {seq} in the batch does not follow {previous}, up to {gap_to}")]
    Order {
        /// The one that does not fit.
        seq: u64,
        /// The one before it.
        previous: u64,
        /// The last that the batch speaks of.
        gap_to: u64,
    },
    /// A subject or header block is too long to be one.
    #[error("the {what} of message {seq} is too long")]
    TooLong {
        /// The field.
        what: &'static str,
        /// Whose.
        seq: u64,
    },
}

/// Begins a batch in `out`, which is emptied.
pub fn begin(out: &mut Vec<u8>) {
    out.clear();
    out.push(VERSION);
    out.extend_from_slice(&0_u64.to_le_bytes());
}

/// Says up to where the batch in `out` speaks.
pub fn set_gap_to(out: &mut [u8], gap_to: u64) {
    if let Some(place) = out.get_mut(1..HEAD_BYTES) {
        place.copy_from_slice(&gap_to.to_le_bytes());
    }
}

/// Adds a message to the batch in `out`.
///
/// # Errors
/// [`ImportError::TooLong`]; nothing was added then.
pub fn push(out: &mut Vec<u8>, message: &Imported<'_>) -> Result<(), ImportError> {
    let seq = message.seq;
    let too_long = |what| move |_| ImportError::TooLong { what, seq };
    let subject = u16::try_from(message.subject.len()).map_err(too_long("subject"))?;
    let headers = u32::try_from(message.headers.len()).map_err(too_long("header block"))?;
    let body = u32::try_from(message.body.len()).map_err(too_long("payload"))?;
    out.extend_from_slice(&seq.to_le_bytes());
    out.extend_from_slice(&message.time_ns.to_le_bytes());
    out.extend_from_slice(&subject.to_le_bytes());
    out.extend_from_slice(&headers.to_le_bytes());
    out.extend_from_slice(&body.to_le_bytes());
    for part in [message.subject, message.headers, message.body] {
        out.extend_from_slice(part);
    }
    Ok(())
}

/// Reads a batch: what it holds, and up to where it speaks.
///
/// # Errors
/// [`ImportError`].
pub fn read(batch: &[u8]) -> Result<(Vec<Imported<'_>>, u64), ImportError> {
    let (&version, rest) = batch.split_first().ok_or(ImportError::Truncated { number: 0 })?;
    if version != VERSION {
        return Err(ImportError::Version { found: version });
    }
    let mut rest = Left { bytes: rest, number: 0 };
    let gap_to = u64::from_le_bytes(rest.array()?);
    let (mut messages, mut previous) = (Vec::new(), 0);
    while !rest.bytes.is_empty() {
        let message = rest.message()?;
        if message.seq <= previous || message.seq > gap_to {
            return Err(ImportError::Order { seq: message.seq, previous, gap_to });
        }
        previous = message.seq;
        messages.push(message);
        rest.number += 1;
    }
    Ok((messages, gap_to))
}

struct Left<'a> {
    bytes: &'a [u8],
    number: usize,
}

impl<'a> Left<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], ImportError> {
        let number = self.number;
        let (taken, rest) =
            self.bytes.split_at_checked(len).ok_or(ImportError::Truncated { number })?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ImportError> {
        let number = self.number;
        self.take(N)?.try_into().map_err(|_| ImportError::Truncated { number })
    }

    fn message(&mut self) -> Result<Imported<'a>, ImportError> {
        let seq = u64::from_le_bytes(self.array()?);
        let time_ns = i64::from_le_bytes(self.array()?);
        let subject = usize::from(u16::from_le_bytes(self.array()?));
        let headers = u32::from_le_bytes(self.array()?) as usize;
        let body = u32::from_le_bytes(self.array()?) as usize;
        let (subject, headers) = (self.take(subject)?, self.take(headers)?);
        Ok(Imported { seq, time_ns, subject, headers, body: self.take(body)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(seq: u64) -> Imported<'static> {
        let headers = b"NATS/1.0\r\nA: 1\r\n\r\n";
        Imported { seq, time_ns: -5, subject: b"a.b", headers, body: b"body" }
    }

    fn batch(seqs: &[u64], gap_to: u64) -> Vec<u8> {
        let mut out = vec![7];
        begin(&mut out);
        for &seq in seqs {
            push(&mut out, &message(seq)).expect("fits");
        }
        set_gap_to(&mut out, gap_to);
        out
    }

    #[test]
    fn what_was_written_is_read() {
        let out = batch(&[3, 9], 12);
        assert_eq!(out.len(), HEAD_BYTES + 2 * message(3).size());
        assert_eq!(read(&out), Ok((vec![message(3), message(9)], 12)));
        assert_eq!(read(&batch(&[], 5)), Ok((vec![], 5)));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let out = batch(&[3, 9], 12);
        for len in 0..out.len() {
            let whole = len == HEAD_BYTES || len == HEAD_BYTES + message(3).size();
            assert_eq!(read(&out[..len]).is_ok(), whole, "{len} bytes");
        }
        assert!(matches!(read(&batch(&[3, 3], 9)), Err(ImportError::Order { seq: 3, .. })));
        assert!(matches!(read(&batch(&[3], 2)), Err(ImportError::Order { .. })));
        assert!(matches!(read(&[9]), Err(ImportError::Version { found: 9 })));
    }
}
