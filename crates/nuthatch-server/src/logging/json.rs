//! Log lines as JSON, one object a line, for what collects logs.

use super::{Calendar, Level, steers};
use crate::options::LogOptions;
use serde::Serialize;
use std::fmt::Write as _;

/// What a line holds, in this order.
#[derive(Serialize)]
struct Fields<'a> {
    /// RFC 3339, in UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<String>,
    level: &'static str,
    pid: u32,
    message: &'a str,
}

/// A line with its end. Whatever the text holds, it stays one line and one string of JSON.
pub(super) fn line(options: &LogOptions, level: Level, text: &str) -> String {
    let time = options.logtime.then(|| Calendar::now(true).as_rfc3339());
    let fields = Fields { time, level: level.name(), pid: std::process::id(), message: text };
    // Strings and a number can always be written.
    let written = serde_json::to_string(&fields).unwrap_or_default();
    let mut line = String::with_capacity(written.len() + 1);
    for c in written.chars() {
        match steers(c) {
            // Only strings hold such characters; JSON itself has no need to escape these.
            true => _ = write!(line, "\\u{:04x}", u32::from(c)),
            false => line.push(c),
        }
    }
    line.push('\n');
    line
}
