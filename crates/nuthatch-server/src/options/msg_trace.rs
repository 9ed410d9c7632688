//! Reads `msg_trace` of an account.

use nuthatch_protocol::config::{Node, Value};
use nuthatch_protocol::subject::{has_wildcard, is_valid_subject};

use super::auth::MsgTrace;
use super::read::ConfigReader;
use super::tables::MSG_TRACE;

/// All of it, in percent.
pub const WHOLE_SAMPLING: u8 = 100;

/// True if traces can be published on this subject.
#[must_use]
pub fn is_trace_dest(subject: &str) -> bool {
    is_valid_subject(subject.as_bytes()) && !has_wildcard(subject.as_bytes())
}

/// A subject, or `{dest, sampling}`.
pub(super) fn msg_trace(r: &mut ConfigReader, key: &str, value: &Value) -> Option<MsgTrace> {
    if let Node::Str(_) = &value.node {
        return Some(MsgTrace { dest: dest(r, key, value)?, sampling: WHOLE_SAMPLING });
    }
    let map = r.map(key, value)?;
    let (mut to, mut share, problems_before) = (None, None, r.problems.len());
    r.walk(&MSG_TRACE, map, |r, key, entry| match key {
        "dest" => to = dest(r, key, &entry.value),
        _ => share = sampling(r, &entry.value),
    });
    if to.is_none() && share.is_some() && r.problems.len() == problems_before {
        r.warn(&value.pos, "Trace destination sampling ignored since no destination was set");
    }
    Some(MsgTrace { dest: to?, sampling: share.unwrap_or(WHOLE_SAMPLING) })
}

fn dest(r: &mut ConfigReader, key: &str, value: &Value) -> Option<String> {
    let dest = r.text(key, value)?;
    if !is_trace_dest(dest) {
        r.invalid(&value.pos, key, format!("is wrong: Trace destination {dest:?} is not valid"));
        return None;
    }
    Some(dest.to_owned())
}

/// A number from 1 to 100, such as `"50%"`.
fn sampling(r: &mut ConfigReader, value: &Value) -> Option<u8> {
    let number = match &value.node {
        Node::Str(text) => text.strip_suffix('%').unwrap_or(text).parse().ok(),
        Node::Int(number) => Some(*number),
        _ => None,
    };
    let fits = number.and_then(|n: i64| u8::try_from(n).ok()).filter(|n| (1..=100).contains(n));
    if fits.is_none() {
        r.invalid(
            &value.pos,
            "sampling",
            "is no share of messages: it needs to be 1 to 100, such as \"25%\"",
        );
    }
    fits
}
