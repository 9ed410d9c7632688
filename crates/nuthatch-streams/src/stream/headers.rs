//! The headers of a publish that JetStream acts on. Everything else in the block is opaque.

use super::timers::TTL_NEVER;
use nuthatch_protocol::duration::parse_go_bytes;
use nuthatch_protocol::jserror::JsError;

/// The rollup that a header asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rollup<'a> {
    /// Only this message stays on its subject.
    Subject,
    /// Only this message stays in the stream.
    All,
    /// Neither word; refused.
    Unknown(&'a [u8]),
}

/// Value of a `Nats-TTL` header.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Ttl {
    /// Nothing.
    #[default]
    None,
    /// Something that is no time to live.
    Invalid,
    /// So many seconds, or [`TTL_NEVER`].
    Seconds(u32),
}

impl Ttl {
    /// Seconds, 0 for none.
    #[must_use]
    pub const fn seconds(self) -> u32 {
        match self {
            Self::Seconds(seconds) => seconds,
            Self::None | Self::Invalid => 0,
        }
    }

    /// Whether a stream without times to live refuses it at once.
    ///
    /// # Errors
    /// 10166.
    pub const fn check_allowed(self, allowed: bool) -> Result<(), JsError> {
        match self {
            Self::Seconds(_) if !allowed => Err(JsError::MESSAGE_TTL_DISABLED),
            _ => Ok(()),
        }
    }

    /// Something that is no TTL at all, found out later than one that is not allowed.
    ///
    /// # Errors
    /// 10165.
    pub const fn check_valid(self) -> Result<(), JsError> {
        match self {
            Self::Invalid => Err(JsError::MESSAGE_TTL_INVALID),
            _ => Ok(()),
        }
    }
}

/// The `Nats-` headers of a publish, values as they stand in the block. First occurrence wins.
#[derive(Clone, Copy, Default, Debug)]
pub struct PublishHeaders<'a> {
    /// `Nats-Msg-Id`.
    pub msg_id: &'a [u8],
    /// `Nats-Expected-Stream`.
    pub expected_stream: &'a [u8],
    /// `Nats-Expected-Last-Sequence`.
    pub expected_last_seq: Option<u64>,
    /// `Nats-Expected-Last-Msg-Id`.
    pub expected_last_msg_id: &'a [u8],
    /// `Nats-Expected-Last-Subject-Sequence`.
    pub expected_last_subject_seq: Option<u64>,
    /// `Nats-Expected-Last-Subject-Sequence-Subject`.
    pub expected_last_subject: &'a [u8],
    /// `Nats-Rollup`.
    pub rollup: Option<Rollup<'a>>,
    /// `Nats-Batch-Id`: a message of an atomic batch (ADR-50).
    pub batch_id: &'a [u8],
    /// True if it is not stored by itself: it belongs to an atomic batch, or is transient.
    pub aside: bool,
    /// `Nuthatch-Term`.
    pub term: &'a [u8],
    /// True if there is a `Nuthatch-Transient`: it goes to those who follow, and is not stored.
    pub transient: bool,
    /// `Nats-Batch-Sequence`.
    pub batch_seq: &'a [u8],
    /// `Nats-Batch-Commit`.
    pub batch_commit: &'a [u8],
    /// `Nats-Required-Api-Level`.
    pub required_level: &'a [u8],
    /// `Nats-Stream-Source`: set by the server only.
    pub source: &'a [u8],
    /// `Nats-TTL`.
    pub ttl: Ttl,
    /// True if it is a delete marker: `Nats-Marker-Reason`, or `KV-Operation: PURGE`.
    pub is_marker: bool,
    /// `Nats-Incr`: what a message adds to its counter (ADR-49).
    pub incr: &'a [u8],
    /// True if any header begins with `Nats-Schedule` (ADR-51).
    pub scheduling: bool,
    /// True if there is a `Nats-Request-Info`, which servers set for those who answer requests;
    /// streams do not store it.
    pub request_info: bool,
}

impl PublishHeaders<'_> {
    /// Where a message is from is said by the server only.
    ///
    /// # Errors
    /// 10227.
    pub const fn check_source(&self) -> Result<(), JsError> {
        if self.source.is_empty() { Ok(()) } else { Err(JsError::MESSAGE_SOURCE_HDR_NOT_ALLOWED) }
    }
}

/// Header values of a message without a header block.
pub const NO_HEADERS: PublishHeaders<'static> = PublishHeaders {
    msg_id: b"",
    expected_stream: b"",
    expected_last_seq: None,
    expected_last_msg_id: b"",
    expected_last_subject_seq: None,
    expected_last_subject: b"",
    rollup: None,
    batch_id: b"",
    aside: false,
    term: b"",
    transient: false,
    batch_seq: b"",
    batch_commit: b"",
    required_level: b"",
    source: b"",
    ttl: Ttl::None,
    is_marker: false,
    incr: b"",
    scheduling: false,
    request_info: false,
};

/// Reads a header block.
#[must_use]
pub fn scan(block: &[u8]) -> PublishHeaders<'_> {
    let mut found = PublishHeaders::default();
    for line in block.split(|&b| b == b'\n').skip(1) {
        if let Some(name) = line.strip_prefix(b"Nats-")
            && let Some(colon) = name.iter().position(|&b| b == b':')
        {
            found.take(&name[..colon], trim(&name[colon + 1..]));
        } else if let Some(value) = line.strip_prefix(b"KV-Operation:") {
            found.is_marker |= trim(value) == b"PURGE";
        } else if let Some(name) = line.strip_prefix(b"Nuthatch-") {
            found.take_own(name);
        }
    }
    found
}

fn trim(value: &[u8]) -> &[u8] {
    let value = value.strip_suffix(b"\r").unwrap_or(value);
    let blank = value.iter().take_while(|&&b| b == b' ').count();
    &value[blank..]
}

impl<'a> PublishHeaders<'a> {
    fn take(&mut self, name: &[u8], value: &'a [u8]) {
        // One of these means something even without a value.
        self.scheduling |= name.starts_with(b"Schedule");
        if value.is_empty() {
            return;
        }
        match name {
            b"Msg-Id" => set(&mut self.msg_id, value),
            b"Expected-Stream" => set(&mut self.expected_stream, value),
            b"Expected-Last-Msg-Id" => set(&mut self.expected_last_msg_id, value),
            b"Expected-Last-Subject-Sequence-Subject" => {
                set(&mut self.expected_last_subject, value)
            }
            b"Expected-Last-Sequence" => {
                self.expected_last_seq.get_or_insert(parse_seq(value));
            }
            b"Expected-Last-Subject-Sequence" => {
                self.expected_last_subject_seq.get_or_insert(parse_seq(value));
            }
            b"Rollup" => {
                self.rollup.get_or_insert(parse_rollup(value));
            }
            b"Batch-Id" => {
                set(&mut self.batch_id, value);
                self.aside = true;
            }
            b"Batch-Sequence" => set(&mut self.batch_seq, value),
            b"Batch-Commit" => set(&mut self.batch_commit, value),
            b"Required-Api-Level" => set(&mut self.required_level, value),
            b"Incr" => set(&mut self.incr, value),
            b"TTL" if self.ttl == Ttl::None => self.ttl = parse_ttl(value),
            b"Marker-Reason" => self.is_marker = true,
            b"Request-Info" => self.request_info = true,
            b"Stream-Source" => set(&mut self.source, value),
            _ => {}
        }
    }
}

impl<'a> PublishHeaders<'a> {
    #[cold]
    fn take_own(&mut self, line: &'a [u8]) {
        if let Some(value) = line.strip_prefix(b"Term:") {
            set(&mut self.term, trim(value));
        } else if line.starts_with(b"Transient:") {
            (self.aside, self.transient) = (true, true);
        }
    }
}

fn set<'a>(slot: &mut &'a [u8], value: &'a [u8]) {
    if slot.is_empty() {
        *slot = value;
    }
}

/// Decimal digits; anything else never equals a sequence (the incumbent's `-1`).
fn parse_seq(value: &[u8]) -> u64 {
    std::str::from_utf8(value)
        .ok()
        .filter(|text| text.bytes().all(|b| b.is_ascii_digit()))
        .and_then(|text| text.parse().ok())
        .unwrap_or(u64::MAX)
}

fn parse_rollup(value: &[u8]) -> Rollup<'_> {
    if value.eq_ignore_ascii_case(b"sub") {
        Rollup::Subject
    } else if value.eq_ignore_ascii_case(b"all") {
        Rollup::All
    } else {
        Rollup::Unknown(value)
    }
}

/// Reads a time to live as the incumbent does: `never`, a Go duration of at least a second (parts of
/// one are dropped), or seconds, of which none mean nothing.
pub(super) fn parse_ttl(value: &[u8]) -> Ttl {
    const LONGEST: u64 = TTL_NEVER as u64 - 1;
    let seconds = |seconds: u64| Ttl::Seconds(seconds.min(LONGEST) as u32);
    if value.eq_ignore_ascii_case(b"never") {
        return Ttl::Seconds(TTL_NEVER);
    }
    if value.iter().all(u8::is_ascii_digit) {
        let text = std::str::from_utf8(value).unwrap_or_default();
        return match text.parse() {
            Ok(0) if value.len() == 1 => Ttl::Invalid,
            Ok(0) => Ttl::None,
            number => seconds(number.unwrap_or(LONGEST)),
        };
    }
    match parse_go_bytes(value).and_then(|ns| u64::try_from(ns).ok()) {
        Some(ns) if ns >= 1_000_000_000 => seconds(ns / 1_000_000_000),
        _ => Ttl::Invalid,
    }
}
