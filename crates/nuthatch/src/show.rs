//! Tables, and numbers and times as people read them.

use std::fmt::Write as _;

use nuthatch_protocol::js::Time;
use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

pub use crate::table::Table;
use crate::terminal::{Look, printable};

/// Lines of `name: value`, the names right-aligned, under headings.
#[derive(Debug, Default)]
pub struct DetailView {
    out: String,
}

impl DetailView {
    const NAME_WIDTH: usize = 26;

    /// Starts a part.
    pub fn heading(&mut self, title: &str) {
        let gap = if self.out.is_empty() { "" } else { "\n" };
        let title = Look::of_stdout().title(&format!("{title}:"));
        let _ = writeln!(self.out, "{gap}{title}\n");
    }

    /// Adds a line.
    pub fn line(&mut self, name: &str, value: impl Into<String>) {
        let value = printable(&value.into());
        let _ = writeln!(self.out, "{name:>0$}: {value}", Self::NAME_WIDTH);
    }

    /// Adds a line unless there is nothing to say.
    pub fn line_if(&mut self, name: &str, value: Option<String>) {
        if let Some(value) = value {
            self.line(name, value);
        }
    }

    /// The finished text.
    pub fn render(self) -> String {
        self.out
    }
}

/// A limit where -1 (and for sizes 0) means none.
pub fn limit(value: &Value, show: impl Fn(u64) -> String) -> String {
    match value.as_i64() {
        Some(number) if number > 0 => show(number as u64),
        _ => "unlimited".into(),
    }
}

/// [`limit`] of a number.
pub fn limit_of(number: i64, show: impl Fn(u64) -> String) -> String {
    match u64::try_from(number) {
        Ok(number) if number > 0 => show(number),
        _ => "unlimited".into(),
    }
}

/// A number that is never negative, where the wire has a signed one.
pub fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// `1.2 MiB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 message`, `2,000 messages`: a number and its noun, which is given in the singular.
pub fn plural(number: u64, noun: &str) -> String {
    let end = if number == 1 { "" } else { "s" };
    format!("{} {noun}{end}", count(number))
}

/// A duration in nanoseconds as `1h30m`, `2s`, `1.5s`, `100ms`.
pub fn duration(ns: u64) -> String {
    const UNITS: [(u64, &str); 3] =
        [(86_400_000_000_000, "d"), (3_600_000_000_000, "h"), (60_000_000_000, "m")];
    let mut rest = ns;
    let mut out = String::new();
    for (size, unit) in UNITS {
        if rest >= size {
            let _ = write!(out, "{}{unit}", rest / size);
            rest %= size;
        }
    }
    if rest == 0 && !out.is_empty() {
        return out;
    }
    let small = match rest {
        0 => "0s".into(),
        1..1_000 => format!("{rest}ns"),
        1_000..1_000_000 => format!("{}µs", rest as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{}ms", rest as f64 / 1e6),
        _ => format!("{}s", rest as f64 / 1e9),
    };
    out + &small
}

/// An RFC 3339 time to the second; the zero time is `never`.
pub fn time(value: &Value) -> String {
    match value.as_str() {
        None | Some("") => "never".into(),
        Some(text) if text.starts_with("0001-01-01") => "never".into(),
        Some(text) => text.get(..19).unwrap_or(text).replace('T', " "),
    }
}

/// A time of JetStream to the second; the zero time is `never`.
pub fn moment(time: Time) -> String {
    if time.is_zero() { "never".into() } else { self::time(&time.to_string().into()) }
}

/// How long ago a time of JetStream was, such as `3m12s`; `never` for the zero time.
pub fn ago(time: Time, now: OffsetDateTime) -> String {
    since(&time.to_string().into(), now)
}

/// A text, unless it is empty.
pub fn filled(text: &str) -> Option<String> {
    Some(text.to_owned()).filter(|text| !text.is_empty())
}

/// `yes` or `no`.
pub fn yes(value: bool) -> String {
    if value { "yes" } else { "no" }.to_owned()
}

/// A time of today or another day, to the second, UTC.
pub fn clock(time: OffsetDateTime) -> String {
    let (date, clock) = (time.date(), time.time());
    let (hour, minute, second) = (clock.hour(), clock.minute(), clock.second());
    format!("{date} {hour:02}:{minute:02}:{second:02}")
}

/// How long ago an RFC 3339 time was, such as `3m12s`; `never` for the zero time.
pub fn since(value: &Value, now: OffsetDateTime) -> String {
    let time = value.as_str().and_then(|text| OffsetDateTime::parse(text, &Rfc3339).ok());
    match time {
        Some(time) if time.year() > 1 => {
            let seconds = (now - time).whole_seconds().max(0);
            duration(seconds as u64 * 1_000_000_000)
        }
        _ => "never".into(),
    }
}

/// A number of a JSON object, 0 when it is missing.
pub fn number(value: &Value) -> u64 {
    value.as_u64().or_else(|| value.as_f64().map(|number| number as u64)).unwrap_or(0)
}

/// Text of a string, or of the strings of an array with commas.
pub fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(", "),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// A string that is there and not empty.
pub fn some_text(value: &Value) -> Option<String> {
    let text = text(value);
    (!text.is_empty()).then_some(text)
}

/// The fields in which two configurations differ, one line for each; empty when they do not. A
/// field that is missing is the same as one that says nothing.
pub fn differences(before: &Value, after: &Value) -> String {
    let keys = |value: &Value| -> Vec<String> {
        value.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect()
    };
    let all: std::collections::BTreeSet<String> =
        keys(before).into_iter().chain(keys(after)).collect();
    let mut out = String::new();
    for key in all.iter().filter(|key| !same(&before[key.as_str()], &after[key.as_str()])) {
        let _ = writeln!(out, "{key}: {} → {}", before[key.as_str()], after[key.as_str()]);
    }
    out
}

fn same(a: &Value, b: &Value) -> bool {
    let says_nothing = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(true) => false,
    };
    a == b || (says_nothing(a) && says_nothing(b))
}

/// Yes or no.
pub fn flag(value: &Value) -> String {
    if value.as_bool().unwrap_or(false) { "yes".into() } else { "no".into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_and_times() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(u64::MAX), "16384.0 PiB");
        assert_eq!(count(1_234_567), "1,234,567");
        let nouns = [plural(1, "message"), plural(0, "message"), plural(2000, "message")];
        assert_eq!(nouns, ["1 message", "0 messages", "2,000 messages"]);
        assert_eq!(limit(&json!(-1), count), "unlimited");
        assert_eq!(limit(&json!(5000), count), "5,000");
        let second = 1_000_000_000;
        for (ns, shown) in [
            (0, "0s"),
            (100_000_000, "100ms"),
            (1_500_000_000, "1.5s"),
            (120 * second, "2m"),
            (5_400 * second, "1h30m"),
            (86_401 * second, "1d1s"),
        ] {
            assert_eq!(duration(ns), shown);
        }
        assert_eq!(time(&json!("2026-01-02T03:04:05.678Z")), "2026-01-02 03:04:05");
        assert_eq!(time(&json!("0001-01-01T00:00:00Z")), "never");
    }

    #[test]
    fn what_differs() {
        let before = json!({ "a": 1, "b": "", "c": ["x"] });
        assert_eq!(differences(&before, &json!({ "a": 1, "c": ["x"], "d": false })), "");
        assert_eq!(differences(&before, &json!({ "a": 2, "c": ["x"] })), "a: 1 → 2\n");
    }

    #[test]
    fn strangers_do_not_write_to_the_terminal() {
        let mut table = Table::new(&["Name"]);
        table.row(vec!["a\u{1b}[2J\r\nb".into()]);
        let mut details = DetailView::default();
        details.line("Name", "\u{1b}]0;x\u{7}");
        for text in [table.render(), details.render()] {
            assert!(!text.contains(['\u{1b}', '\r', '\u{7}']), "{text:?}");
        }
    }
}
