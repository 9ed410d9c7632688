//! Publishing, and requests.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::Call;
use crate::ask::Ask;
use crate::bounds::{BROKER_TIME_MAX, HEADERS_MAX, REPLY_TIME_MAX};
use crate::failure::Failure;

/// `POST publish`: `subject`, `headers`, `data` in base64; with `stored` it waits for the ack of the
/// stream.
pub fn publish(call: &mut Call<'_>) -> Result<Value, Failure> {
    let (subject, headers, data) = message(call.ask)?;
    let bytes = data.len();
    call.change = Some(format!("publish {bytes} bytes to {subject:?}"));
    if call.ask.body["stored"].as_bool().unwrap_or_default() {
        return call.broker.ask_at(subject, &headers, &data);
    }
    call.broker.publish(subject, &headers, &data)?;
    Ok(json!({}))
}

/// `POST request`: the same, and the reply comes back.
pub fn request(call: &mut Call<'_>) -> Result<Value, Failure> {
    let (subject, headers, data) = message(call.ask)?;
    let wait = call.ask.body["wait_ms"].as_u64().map(Duration::from_millis);
    let wait = wait.unwrap_or(BROKER_TIME_MAX).min(REPLY_TIME_MAX);
    let bytes = data.len();
    call.change = Some(format!("request of {bytes} bytes to {subject:?}"));
    let reply = call.broker.request(subject, &headers, &data, wait)?;
    let pairs: Vec<(&str, &str)> =
        reply.view().header_pairs().filter(|(name, _)| !name.is_empty()).collect();
    Ok(json!({
        "subject": reply.subject,
        "status": reply.view().status(),
        "headers": pairs,
        "size": reply.payload.len(),
        "data": STANDARD.encode(&reply.payload),
        "truncated": false,
    }))
}

fn message(ask: &Ask) -> Result<(&str, Vec<u8>, Vec<u8>), Failure> {
    let subject = ask.needed("subject")?;
    Ok((subject, headers(&ask.body["headers"])?, ask.bytes("data")?))
}

/// The block of headers for an array of pairs.
pub fn headers(pairs: &Value) -> Result<Vec<u8>, Failure> {
    let pairs = pairs.as_array().map(Vec::as_slice).unwrap_or_default();
    if pairs.is_empty() {
        return Ok(Vec::new());
    }
    if pairs.len() > HEADERS_MAX {
        return Err(Failure::bad(format!("more than {HEADERS_MAX} headers")));
    }
    let mut block = b"NATS/1.0\r\n".to_vec();
    for pair in pairs {
        let (Some(name), Some(value)) = (pair[0].as_str(), pair[1].as_str()) else {
            return Err(Failure::bad("headers must be pairs of a name and a value"));
        };
        let is_name = |c: char| c.is_ascii_graphic() && c != ':';
        if name.is_empty() || !name.chars().all(is_name) {
            return Err(Failure::bad(format!("{name:?} is no name of a header")));
        }
        if value.chars().any(|c| c.is_control() && c != '\t') {
            return Err(Failure::bad(format!("the header {name:?} holds control characters")));
        }
        block.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    block.extend_from_slice(b"\r\n");
    Ok(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_cannot_end_their_block() {
        assert_eq!(headers(&json!([])).expect("none"), b"");
        let block = headers(&json!([["A", "b c"], ["A", ""]])).expect("sound");
        assert_eq!(block, b"NATS/1.0\r\nA: b c\r\nA: \r\n\r\n");
        for bad in [
            json!([["A", "b\r\nPUB x 0"]]),
            json!([["A\n", "b"]]),
            json!([["", "b"]]),
            json!([["A:", "b"]]),
            json!([["A b", "b"]]),
            json!([["A"]]),
            json!(["A"]),
        ] {
            assert!(headers(&bad).is_err(), "{bad}");
        }
    }
}
