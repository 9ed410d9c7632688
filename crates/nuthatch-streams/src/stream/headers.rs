//! The headers of a publish that JetStream acts on. Everything else in the block is opaque.

use nuthatch_protocol::jserror::JsError;

/// What a rollup header asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rollup<'a> {
    /// Only this message stays on its subject.
    Subject,
    /// Only this message stays in the stream.
    All,
    /// Neither word; refused.
    Unknown(&'a [u8]),
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
    /// `Nats-Batch-Sequence`.
    pub batch_seq: &'a [u8],
    /// `Nats-Batch-Commit`.
    pub batch_commit: &'a [u8],
    /// `Nats-Required-Api-Level`.
    pub required_level: &'a [u8],
    /// A header of a feature that no stream here can have switched on, and its error.
    pub unsupported: Unsupported,
}

/// Features that are refused, in the order in which their errors are to be given.
#[derive(Clone, Copy, Default, Debug)]
pub struct Unsupported {
    increment: Option<bool>,
    ttl: Option<bool>,
    schedule: bool,
    scheduler: bool,
    source: bool,
}

impl Unsupported {
    /// Errors that come before any other check.
    ///
    /// # Errors
    /// 10171 or 10168 for a counter increment.
    pub const fn check_first(&self) -> Result<(), JsError> {
        match self.increment {
            Some(false) => Err(JsError::MESSAGE_INCR_INVALID),
            Some(true) => Err(JsError::MESSAGE_INCR_DISABLED),
            None => Ok(()),
        }
    }

    /// A valid per-message TTL: no stream here allows one.
    ///
    /// # Errors
    /// 10166.
    pub const fn check_ttl_allowed(&self) -> Result<(), JsError> {
        match self.ttl {
            Some(true) => Err(JsError::MESSAGE_TTL_DISABLED),
            Some(false) | None => Ok(()),
        }
    }

    /// Something that is no TTL at all, found out later than a valid one.
    ///
    /// # Errors
    /// 10165.
    pub const fn check_ttl(&self) -> Result<(), JsError> {
        match self.ttl {
            Some(false) => Err(JsError::MESSAGE_TTL_INVALID),
            Some(true) | None => Ok(()),
        }
    }

    /// Errors that come after the expected-sequence checks.
    ///
    /// # Errors
    /// 10188, 10212 or 10227.
    pub const fn check_last(&self) -> Result<(), JsError> {
        if self.schedule {
            Err(JsError::MESSAGE_SCHEDULES_DISABLED)
        } else if self.scheduler {
            Err(JsError::MESSAGE_SCHEDULES_SCHEDULER_INVALID)
        } else if self.source {
            Err(JsError::MESSAGE_SOURCE_HDR_NOT_ALLOWED)
        } else {
            Ok(())
        }
    }
}

/// What a message without a header block says.
pub const NO_HEADERS: PublishHeaders<'static> = PublishHeaders {
    msg_id: b"",
    expected_stream: b"",
    expected_last_seq: None,
    expected_last_msg_id: b"",
    expected_last_subject_seq: None,
    expected_last_subject: b"",
    rollup: None,
    batch_id: b"",
    batch_seq: b"",
    batch_commit: b"",
    required_level: b"",
    unsupported: Unsupported {
        increment: None,
        ttl: None,
        schedule: false,
        scheduler: false,
        source: false,
    },
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
            b"Batch-Id" => set(&mut self.batch_id, value),
            b"Batch-Sequence" => set(&mut self.batch_seq, value),
            b"Batch-Commit" => set(&mut self.batch_commit, value),
            b"Required-Api-Level" => set(&mut self.required_level, value),
            b"Incr" => self.unsupported.increment = Some(is_increment(value)),
            b"TTL" => self.unsupported.ttl = check_ttl(value),
            b"Schedule" | b"Schedule-Next" => self.unsupported.schedule = true,
            b"Scheduler" => self.unsupported.scheduler = true,
            b"Stream-Source" => self.unsupported.source = true,
            _ => {}
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

fn is_increment(value: &[u8]) -> bool {
    let digits = value.strip_prefix(b"+").or_else(|| value.strip_prefix(b"-")).unwrap_or(value);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

/// `None`: no TTL (zero seconds); else whether the value is a TTL at all.
fn check_ttl(value: &[u8]) -> Option<bool> {
    const GO_UNITS: &[u8] = b"hmsu\xc2\xb5n.";
    let digits = value.iter().filter(|b| b.is_ascii_digit()).count();
    if value.eq_ignore_ascii_case(b"never") {
        Some(true)
    } else if digits == value.len() {
        value.iter().any(|&b| b != b'0').then_some(true)
    } else {
        let looks_like_duration = digits > 0
            && value[0].is_ascii_digit()
            && value.iter().all(|b| b.is_ascii_digit() || GO_UNITS.contains(b));
        Some(looks_like_duration)
    }
}
