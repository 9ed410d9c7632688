//! Messages as people and programs read them.

use std::io::{self, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use nuthatch_client::OwnedMessage;
use serde_json::{Value, json};

use crate::error::CliError;

/// How to print messages.
#[derive(Debug, Clone, Copy, Default)]
pub struct Style {
    /// One JSON object on each line.
    pub json: bool,
    /// Bodies only.
    pub raw: bool,
    /// Everything but the body.
    pub headers_only: bool,
    /// Subjects only.
    pub subjects_only: bool,
}

/// Prints a message; `lead` stands before the subject for people.
///
/// # Errors
/// When the output is gone.
pub fn print(message: &OwnedMessage, lead: &str, style: Style) -> Result<(), CliError> {
    if style.json {
        return Ok(writeln!(io::stdout(), "{}", to_json(message))?);
    }
    print_text(message, lead, "", style)
}

/// Prints a message for people; `lead` stands before the subject, `facts` behind it.
///
/// # Errors
/// When the output is gone.
pub fn print_text(
    message: &OwnedMessage,
    lead: &str,
    facts: &str,
    style: Style,
) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    if style.subjects_only {
        writeln!(out, "{}", message.subject)?;
    } else {
        if !style.raw {
            print_head(&mut out, message, lead, facts)?;
        }
        if !style.headers_only {
            out.write_all(&message.payload)?;
            writeln!(out)?;
        }
    }
    out.flush()?;
    Ok(())
}

fn print_head(
    out: &mut impl Write,
    message: &OwnedMessage,
    lead: &str,
    facts: &str,
) -> io::Result<()> {
    let reply = message.reply.as_deref();
    let reply = reply.map(|reply| format!(" with reply {reply:?}")).unwrap_or_default();
    writeln!(out, "{lead}{:?}{reply}{facts}", message.subject)?;
    if let Some(status) = message.view().status() {
        writeln!(out, "Status: {status} {}", message.view().status_text())?;
    }
    for (name, value) in message.view().header_pairs().filter(|(name, _)| !name.is_empty()) {
        writeln!(out, "{name}: {value}")?;
    }
    if !message.headers.is_empty() {
        writeln!(out)?;
    }
    Ok(())
}

/// A message as JSON.
pub fn to_json(message: &OwnedMessage) -> Value {
    let mut json = json!({ "subject": message.subject });
    if let Some(reply) = &message.reply {
        json["reply"] = reply.as_str().into();
    }
    let headers = headers_json(message);
    if headers.as_object().is_some_and(|headers| !headers.is_empty()) {
        json["headers"] = headers;
    }
    if let Some(status) = message.view().status() {
        json["status"] = status.into();
    }
    put_body(&mut json, &message.payload);
    json
}

/// All headers, each with its values in order.
pub fn headers_json(message: &OwnedMessage) -> Value {
    let mut headers = json!({});
    for (name, value) in message.view().header_pairs().filter(|(name, _)| !name.is_empty()) {
        match &mut headers[name] {
            Value::Array(values) => values.push(value.into()),
            slot => *slot = json!([value]),
        }
    }
    headers
}

/// Puts a body into an object: `data` when it is text, else `data_base64`.
pub fn put_body(json: &mut Value, body: &[u8]) {
    match std::str::from_utf8(body) {
        Ok(text) => json["data"] = text.into(),
        Err(_) => json["data_base64"] = STANDARD.encode(body).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_bodies_as_base64() {
        let message = OwnedMessage { payload: vec![0xff, 0], ..OwnedMessage::default() };
        assert_eq!(to_json(&message)["data_base64"], "/wA=");
        let headers = b"NATS/1.0\r\nA: 1\r\nA: 2\r\n\r\n".to_vec();
        let message = OwnedMessage { headers, payload: b"x".to_vec(), ..OwnedMessage::default() };
        assert_eq!(to_json(&message)["headers"]["A"], json!(["1", "2"]));
        assert_eq!(to_json(&message)["data"], "x");
    }
}
