//! Messages of a stream, read one at a time by sequence: no consumer is ever created.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nuthatch_client::Message;
use serde_json::{Value, json};

use super::Call;
use super::search::Sought;
use crate::bounds::{
    MESSAGE_GETS_MAX, PAGE_BYTES_MAX, PREVIEW_BYTES, PREVIEW_HEADER_BYTES, PREVIEW_HEADERS,
    SEARCH_GETS_MAX,
};
use crate::broker::{Broker, name};
use crate::failure::Failure;

/// A message as the broker stores it.
pub struct Stored {
    /// Its sequence.
    pub sequence: u64,
    /// Its subject.
    pub subject: String,
    /// When it was stored, RFC 3339.
    pub time: String,
    /// Names and values of its headers.
    pub headers: Vec<(String, String)>,
    /// Its payload.
    pub payload: Vec<u8>,
}

impl Stored {
    fn parse(message: &Value) -> Self {
        let text = |name: &str| message[name].as_str().unwrap_or_default().to_owned();
        let bytes = |name: &str| STANDARD.decode(text(name)).unwrap_or_default();
        let block = bytes("hdrs");
        let headers = Message { subject: b"", sid: 0, reply: None, headers: &block, payload: b"" };
        let headers = headers.header_pairs().filter(|(name, _)| !name.is_empty());
        Self {
            sequence: message["seq"].as_u64().unwrap_or_default(),
            subject: text("subject"),
            time: text("time"),
            headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            payload: bytes("data"),
        }
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| &**value)
    }

    /// Bytes of its headers and its payload.
    pub fn bytes(&self) -> usize {
        let headers = self.headers.iter().map(|(name, value)| name.len() + value.len());
        headers.sum::<usize>() + self.payload.len()
    }

    /// How many of its headers a list shows.
    fn headers_in_list(&self) -> usize {
        let mut left = PREVIEW_HEADER_BYTES;
        let fits = |(name, value): &&(String, String)| {
            let rest = left.checked_sub(name.len() + value.len());
            left = rest.unwrap_or_default();
            rest.is_some()
        };
        self.headers.iter().take(PREVIEW_HEADERS).take_while(fits).count()
    }

    /// For the browser, all of it.
    pub fn whole(&self) -> Value {
        self.shown(usize::MAX, self.headers.len())
    }

    /// For a list, with at most so many bytes of the payload.
    pub fn show(&self, bytes_max: usize) -> Value {
        self.shown(bytes_max, self.headers_in_list())
    }

    fn shown(&self, bytes_max: usize, headers_max: usize) -> Value {
        let shown = &self.payload[..self.payload.len().min(bytes_max)];
        json!({
            "seq": self.sequence,
            "subject": self.subject,
            "time": self.time,
            "headers": self.headers[..headers_max],
            "headers_truncated": headers_max < self.headers.len(),
            "size": self.payload.len(),
            "data": STANDARD.encode(shown),
            "truncated": shown.len() < self.payload.len(),
        })
    }
}

/// Gets one message; `None`: there is none.
pub fn get(broker: &mut Broker, stream: &str, body: &Value) -> Result<Option<Stored>, Failure> {
    match broker.ask(&format!("STREAM.MSG.GET.{stream}"), body) {
        Ok(found) => Ok(Some(Stored::parse(&found["message"]))),
        Err(Failure::Refused { code: 404, err_code: 10037, .. }) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// `GET streams/NAME/messages/SEQ`: all of it.
pub fn one(call: &mut Call<'_>, stream: &str, sequence: &str) -> Result<Value, Failure> {
    let found = get(call.broker, name(stream)?, &json!({ "seq": number(sequence)? }))?;
    let found = found.ok_or_else(|| Failure::NotFound(format!("message {sequence}")))?;
    Ok(found.whole())
}

/// `DELETE streams/NAME/messages/SEQ`.
pub fn delete(call: &mut Call<'_>, stream: &str, sequence: &str) -> Result<Value, Failure> {
    let (number, stream) = (number(sequence)?, name(stream)?);
    call.ask.confirms(sequence)?;
    call.change = Some(format!("delete message {number} of stream {stream:?}"));
    let what = format!("STREAM.MSG.DELETE.{stream}");
    call.broker.ask(&what, &json!({ "seq": number }))
}

fn number(text: &str) -> Result<u64, Failure> {
    text.parse().map_err(|_| Failure::bad(format!("{text:?} is no sequence")))
}

/// `GET streams/NAME/messages?dir=&seq=&time=&subject=&limit=`: forwards from a sequence or a time
/// on, or backwards from before a sequence (default: the newest). Always in ascending order.
pub fn page(call: &mut Call<'_>, stream: &str) -> Result<Value, Failure> {
    let ask = call.ask;
    let info = super::streams::info(call, stream)?;
    let first = info["state"]["first_seq"].as_u64().unwrap_or_default();
    let last = info["state"]["last_seq"].as_u64().unwrap_or_default();
    let filter = ask.query("subject").unwrap_or(">").to_owned();
    let (_, limit) = ask.rows()?;
    let sought = Sought::given(ask)?;
    let gets_left = if sought.is_some() { SEARCH_GETS_MAX } else { MESSAGE_GETS_MAX };
    let mut reader = Reader { broker: call.broker, stream, filter, sought, gets_left, bytes: 0 };
    let page = if let Some(time) = ask.query("time") {
        if !time.ends_with('Z') {
            return Err(Failure::bad("time must be in UTC, such as 2026-01-31T12:00:00Z"));
        }
        let start = reader.sequence_at(time, first, last)?;
        reader.forwards(start, limit)?
    } else {
        match (ask.query("dir"), ask.number("seq")?) {
            (Some("forward"), sequence) => {
                reader.forwards(sequence.unwrap_or(first).max(1), limit)?
            }
            (_, sequence) => {
                let before = sequence.unwrap_or(u64::MAX).min(last.saturating_add(1));
                reader.backwards(before, first, limit)?
            }
        }
    };
    let messages: Vec<Value> = page.messages.iter().map(|m| m.show(PREVIEW_BYTES)).collect();
    Ok(json!({
        "first": first,
        "last": last,
        "messages": messages,
        // Where looking on begins in either direction.
        "before": page.from,
        "after": page.to,
        "is_whole": page.is_whole,
    }))
}

/// Some messages, and what was looked at for them: sequences from `from` on and below `to`.
struct Page {
    messages: Vec<Stored>,
    from: u64,
    to: u64,
    /// No bound has cut the search short.
    is_whole: bool,
}

struct Reader<'a> {
    broker: &'a mut Broker,
    stream: &'a str,
    filter: String,
    sought: Option<Sought>,
    gets_left: usize,
    bytes: usize,
}

impl Reader<'_> {
    /// The first message from a sequence on; `None` as well when a bound is reached.
    fn next(&mut self, sequence: u64) -> Result<Option<Stored>, Failure> {
        if self.is_spent() {
            return Ok(None);
        }
        self.gets_left -= 1;
        let body = json!({ "seq": sequence, "next_by_subj": self.filter });
        let found = get(self.broker, self.stream, &body)?;
        self.bytes += found.as_ref().map_or(0, Stored::bytes);
        Ok(found)
    }

    fn is_sought(&self, message: &Stored) -> bool {
        self.sought.as_ref().is_none_or(|sought| sought.is_in(&message.payload))
    }

    fn is_spent(&self) -> bool {
        self.gets_left == 0 || self.bytes >= PAGE_BYTES_MAX
    }

    fn forwards(&mut self, start: u64, limit: usize) -> Result<Page, Failure> {
        let (mut messages, mut at) = (Vec::new(), start);
        while messages.len() < limit {
            let Some(found) = self.next(at)? else { break };
            at = found.sequence.saturating_add(1);
            if self.is_sought(&found) {
                messages.push(found);
            }
        }
        Ok(Page { messages, from: start, to: at, is_whole: !self.is_spent() })
    }

    /// Looks through windows, the newest first. The broker only finds what comes next, so a window
    /// grows while it holds little, and shrinks when it holds far more than is wanted.
    fn backwards(&mut self, before: u64, first: u64, limit: usize) -> Result<Page, Failure> {
        let (mut messages, mut to) = (Vec::new(), before);
        let mut width = limit as u64;
        while messages.len() < limit && to > first {
            // A search reads all of a window: one that it cannot finish would be for nothing.
            if self.sought.is_some() {
                width = width.min(self.gets_left as u64).max(1);
            }
            let from = to.saturating_sub(width).max(first);
            let Some(mut found) = self.window(from, to, limit)? else {
                if self.is_spent() || width == 1 {
                    break;
                }
                width = (width / 8).max(1);
                continue;
            };
            found.append(&mut messages);
            messages = found;
            to = from;
            width = width.saturating_mul(4);
        }
        let surplus = messages.len().saturating_sub(limit);
        messages.drain(..surplus);
        let cut = messages.first().filter(|_| surplus > 0).map(|m| m.sequence);
        Ok(Page { messages, from: cut.unwrap_or(to), to: before, is_whole: !self.is_spent() })
    }

    /// What a window holds; `None`: far too much, or a bound is reached.
    fn window(&mut self, from: u64, to: u64, limit: usize) -> Result<Option<Vec<Stored>>, Failure> {
        let (mut found, mut at) = (Vec::new(), from);
        while at < to {
            if self.is_spent() || found.len() > limit * 2 {
                return Ok(None);
            }
            let Some(message) = self.next(at)?.filter(|message| message.sequence < to) else {
                break;
            };
            at = message.sequence + 1;
            if self.is_sought(&message) {
                found.push(message);
            }
        }
        Ok(Some(found))
    }

    /// The first sequence that was stored at this time or later.
    fn sequence_at(&mut self, time: &str, first: u64, last: u64) -> Result<u64, Failure> {
        let filter = std::mem::replace(&mut self.filter, ">".to_owned());
        let (mut low, mut high) = (first, last.saturating_add(1));
        while low < high {
            let middle = low + (high - low) / 2;
            match self.next(middle)? {
                // Times are RFC 3339 in UTC, as is ours: the digits compare like the times.
                Some(found) if digits(&found.time) < digits(time) => low = found.sequence + 1,
                _ => high = middle,
            }
        }
        self.filter = filter;
        self.bytes = 0;
        Ok(low)
    }
}

/// The digits of a time in UTC without the zeros that a fraction may end with.
fn digits(time: &str) -> &str {
    time.trim_end_matches('Z').trim_end_matches('0')
}
