//! Input of people: names, subjects, headers, limits, checked before anything is sent.

use std::io::{self, IsTerminal, Read};
use std::time::{Duration, SystemTime};

use nuthatch_client::units::{parse_duration, parse_number};
use serde_json::{Map, Value};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::error::CliError;

/// A subject that cannot break the protocol line it is written into.
pub fn check_subject(subject: &str, wildcards: bool) -> Result<(), CliError> {
    let bad_token = |token: &str| token.is_empty() || token.contains(char::is_whitespace);
    let wild = |token: &str| !wildcards && (token == "*" || token == ">");
    if subject.split('.').any(|token| bad_token(token) || wild(token)) {
        return Err(CliError::Usage(format!("{subject:?} is no valid subject here")));
    }
    Ok(())
}

/// A name that fits into an API subject.
pub fn check_name(what: &str, name: &str) -> Result<(), CliError> {
    let bad = |c: char| c.is_whitespace() || ".*>/\\".contains(c);
    if name.is_empty() || name.contains(bad) {
        let text = format!("{name:?} is no valid {what} name: no spaces and none of . * > / \\");
        return Err(CliError::Usage(text));
    }
    Ok(())
}

/// The `NATS/1.0` block of headers written as `NAME:VALUE`; empty for none.
pub fn header_block(headers: &[String]) -> Result<Vec<u8>, CliError> {
    let pairs: Result<Vec<_>, _> = headers.iter().map(|header| split_header(header)).collect();
    Ok(nuthatch_client::js::header_block(&pairs?))
}

/// Name and value of a header written as `NAME:VALUE`.
pub fn split_header(header: &str) -> Result<(&str, &str), CliError> {
    let bad = || CliError::Usage(format!("{header:?} is no header of the form NAME:VALUE"));
    let (name, value) = header.split_once(':').ok_or_else(bad)?;
    let (name, value) = (name.trim(), value.trim_matches(' '));
    let bad_name = name.is_empty() || name.contains(char::is_whitespace);
    if bad_name || value.contains(['\r', '\n']) {
        return Err(bad());
    }
    Ok((name, value))
}

/// `KEY=VALUE` pairs as an object; nothing for none.
pub fn metadata(pairs: &[String]) -> Result<Option<Value>, CliError> {
    let mut object = Map::new();
    for pair in pairs {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(CliError::Usage(format!("{pair:?} is no metadata of the form KEY=VALUE")));
        };
        object.insert(key.into(), value.into());
    }
    Ok((!object.is_empty()).then_some(Value::Object(object)))
}

/// Whole nanoseconds, as JetStream counts durations.
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A size, or -1 for none.
pub fn parse_limit(text: &str) -> Result<i64, String> {
    if text == "-1" {
        return Ok(-1);
    }
    i64::try_from(parse_number(text)?).map_err(|_| format!("{text} is too large"))
}

/// A longest age in nanoseconds; -1 and 0 mean none.
pub fn parse_age(text: &str) -> Result<u64, String> {
    match text {
        "-1" | "0" => Ok(0),
        _ => parse_duration(text).map(nanos),
    }
}

/// A time: RFC 3339, or how long ago, such as `1h`.
pub fn parse_since(text: &str, now: SystemTime) -> Result<OffsetDateTime, String> {
    if let Ok(time) = OffsetDateTime::parse(text, &Rfc3339) {
        return Ok(time);
    }
    let bad = || format!("{text:?} is neither an age such as 1h nor an RFC 3339 time");
    let age = parse_duration(text).map_err(|_| bad())?;
    now.checked_sub(age).map(OffsetDateTime::from).ok_or_else(bad)
}

/// RFC 3339, as JetStream writes times.
pub fn rfc3339(time: OffsetDateTime) -> String {
    // Formatting fails only for years that do not have four digits.
    time.format(&Rfc3339).unwrap_or_default()
}

/// The body to send: the argument, or the standard input when that is `-`, or when there is no
/// argument and the input is not a terminal.
pub fn read_body(argument: Option<&str>) -> Result<Vec<u8>, CliError> {
    let from_input = match argument {
        Some(text) => text == "-",
        None => !io::stdin().is_terminal(),
    };
    if !from_input {
        return Ok(argument.unwrap_or_default().as_bytes().to_vec());
    }
    let mut body = Vec::new();
    io::stdin().lock().read_to_end(&mut body)?;
    Ok(body)
}

/// A JSON file, with a wrapped `config` taken out: `info --json` writes the configuration inside
/// the whole answer.
pub fn read_config(path: &std::path::Path) -> Result<Value, CliError> {
    let text = std::fs::read_to_string(path)
        .map_err(|err| CliError::Usage(format!("cannot read {}: {err}", path.display())))?;
    let mut config: Value = serde_json::from_str(&text)
        .map_err(|err| CliError::Usage(format!("{} is not JSON: {err}", path.display())))?;
    if config["config"].is_object() {
        config = config["config"].take();
    }
    if !config.is_object() {
        return Err(CliError::Usage(format!("{} holds no JSON object", path.display())));
    }
    Ok(config)
}

/// Value of a pair of flags `--x` and `--no-x`, if one is given.
pub fn switch(yes: bool, no: bool) -> Option<bool> {
    (yes || no).then_some(yes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers() {
        let block = header_block(&["A:1".into(), "B: two words".into()]).unwrap();
        assert_eq!(block, b"NATS/1.0\r\nA: 1\r\nB: two words\r\n\r\n");
        assert!(header_block(&[]).unwrap().is_empty());
        for bad in ["A", ":x", "A B:c", "A:x\r\nC:d"] {
            assert!(header_block(&[bad.into()]).is_err(), "{bad}");
        }
    }

    #[test]
    fn subjects_and_names() {
        assert!(check_subject("a.b", false).is_ok());
        assert!(check_subject("a.*", true).is_ok());
        for bad in ["", "a..b", "a b", "a.\r\nPUB"] {
            assert!(check_subject(bad, true).is_err(), "{bad}");
        }
        assert!(check_subject("a.>", false).is_err());
        assert!(check_name("stream", "A-1_x").is_ok());
        for bad in ["", "a.b", "a b", "a*", "a/b"] {
            assert!(check_name("stream", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn limits_and_times() {
        assert_eq!(parse_limit("-1"), Ok(-1));
        assert_eq!(parse_limit("1KiB"), Ok(1024));
        assert_eq!(parse_age("-1"), Ok(0));
        assert_eq!(parse_age("1d"), Ok(86_400_000_000_000));
        let day = SystemTime::UNIX_EPOCH + Duration::from_secs(86_400);
        assert_eq!(rfc3339(parse_since("1h", day).unwrap()), "1970-01-01T23:00:00Z");
        assert!(parse_since("whenever", day).is_err());
        assert_eq!(metadata(&["a=b=c".into()]).unwrap(), Some(serde_json::json!({"a": "b=c"})));
        assert!(metadata(&["a".into()]).is_err());
    }
}
