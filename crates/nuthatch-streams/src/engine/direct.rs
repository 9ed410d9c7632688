//! Parsing of direct get requests (ADR-31), and which of them are malformed.

use crate::op::GetMessage;
use nuthatch_protocol::js::Time;
use serde::Deserialize;

const EMPTY_REQUEST: &[u8] = b"NATS/1.0 408 Empty Request\r\n\r\n";
const MALFORMED_REQUEST: &[u8] = b"NATS/1.0 408 Malformed Request\r\n\r\n";
const BAD_REQUEST: &[u8] = b"NATS/1.0 408 Bad Request\r\n\r\n";

/// A request that makes sense.
pub(super) enum DirectGet {
    /// For one message.
    One(GetMessage),
    /// For several.
    Many(Box<BatchGetRequest>),
}

/// A request for several messages.
#[derive(Default, Debug)]
pub(super) struct BatchGetRequest {
    /// Start position and filter.
    pub(super) start: GetMessage,
    /// The last message of each subject that matches any of these; empty: messages in order.
    pub(super) multi_last: Vec<String>,
    /// Not beyond this sequence; 0: the last one.
    pub(super) up_to_seq: u64,
    /// Only what was stored before this time.
    pub(super) up_to_time: Option<Time>,
    /// At most so many; 0: all.
    pub(super) batch: u64,
    /// About so many bytes; 0: the default.
    pub(super) max_bytes: u64,
}

/// The JSON form.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Body {
    seq: u64,
    last_by_subj: String,
    next_by_subj: String,
    start_time: Option<Time>,
    no_hdr: bool,
    batch: u64,
    max_bytes: u64,
    multi_last: Vec<String>,
    up_to_seq: u64,
    up_to_time: Option<Time>,
}

impl Body {
    fn into_request(self, subject: &[u8]) -> Result<DirectGet, &'static [u8]> {
        let start = GetMessage {
            seq: self.seq,
            last_by_subj: self.last_by_subj,
            next_by_subj: self.next_by_subj,
            start_time: self.start_time,
            no_hdr: self.no_hdr,
        };
        let has_multi = !self.multi_last.is_empty();
        let has_limits = self.batch > 0 || self.up_to_seq > 0 || self.up_to_time.is_some();
        if !subject.is_empty() {
            if !is_empty(&start) || has_multi || has_limits {
                return Err(BAD_REQUEST);
            }
            let last_by_subj = String::from_utf8(subject.to_vec()).map_err(|_| BAD_REQUEST)?;
            return Ok(DirectGet::One(GetMessage { last_by_subj, ..start }));
        }
        if is_empty(&start) && !has_multi {
            return Err(EMPTY_REQUEST);
        }
        let has_last = !start.last_by_subj.is_empty();
        if is_contradictory(&start)
            || (has_last && (self.batch > 0 || has_multi))
            || (has_multi && !start.next_by_subj.is_empty())
            || (self.up_to_seq > 0 && self.up_to_time.is_some())
        {
            return Err(BAD_REQUEST);
        }
        if self.batch == 0 && !has_multi {
            return Ok(DirectGet::One(start));
        }
        Ok(DirectGet::Many(Box::new(BatchGetRequest {
            start,
            multi_last: self.multi_last,
            up_to_seq: self.up_to_seq,
            up_to_time: self.up_to_time,
            batch: self.batch,
            max_bytes: self.max_bytes,
        })))
    }
}

/// True if a request names no message at all.
pub(super) const fn is_empty(request: &GetMessage) -> bool {
    request.seq == 0
        && request.last_by_subj.is_empty()
        && request.next_by_subj.is_empty()
        && request.start_time.is_none()
}

/// True if a request names a message in two ways.
pub(super) const fn is_contradictory(request: &GetMessage) -> bool {
    let starts = (request.seq > 0) as u8
        + request.start_time.is_some() as u8
        + !request.last_by_subj.is_empty() as u8;
    let last_and_next = !request.last_by_subj.is_empty() && !request.next_by_subj.is_empty();
    starts > 1 || last_and_next
}

/// Reads a request: `subject` is that of the subject form, or empty.
///
/// # Errors
/// The status to answer with.
pub(super) fn read_request(subject: &[u8], body: &[u8]) -> Result<DirectGet, &'static [u8]> {
    let body = match body {
        b"" if subject.is_empty() => return Err(EMPTY_REQUEST),
        b"" => Body::default(),
        json => serde_json::from_slice(json).map_err(|_| MALFORMED_REQUEST)?,
    };
    body.into_request(subject)
}
