//! Publishing, and requests.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::Call;
use crate::ask::{self, Ask, needed};
use crate::bounds::{BROKER_TIME_MAX, HEADERS_BYTES_MAX, HEADERS_MAX, REPLY_TIME_MAX};
use crate::broker::check_subject;
use crate::failure::Failure;

/// `POST publish`: `subject`, `headers`, `data` in base64; with `stored` it waits for the ack of the
/// stream.
pub fn publish(call: &mut Call<'_>) -> Result<Value, Failure> {
    let (subject, headers, data) = message(call.ask)?;
    let bytes = data.len();
    call.change = Some(format!("publish {bytes} bytes to {subject:?}"));
    if call.ask.body.stored.unwrap_or_default() {
        return call.broker.ask_at(subject, &headers, &data);
    }
    call.broker.publish(subject, &headers, &data)?;
    Ok(json!({}))
}

/// `POST request`: the same, and the reply comes back.
pub fn request(call: &mut Call<'_>) -> Result<Value, Failure> {
    let (subject, headers, data) = message(call.ask)?;
    let wait = call.ask.body.wait_ms.map(Duration::from_millis);
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
    let subject = needed(&ask.body.subject, "subject")?;
    check_subject(subject)?;
    let pairs: Vec<(String, String)> = match &ask.body.headers {
        Some(headers) if headers.get().len() > HEADERS_BYTES_MAX => {
            return Err(Failure::bad(format!("more than {HEADERS_BYTES_MAX} bytes of headers")));
        }
        Some(headers) => ask::parse(headers.get().as_bytes())?,
        None => Vec::new(),
    };
    Ok((subject, headers(&pairs)?, ask.bytes()?))
}

/// The block of headers for pairs of a name and a value.
pub fn headers(pairs: &[(String, String)]) -> Result<Vec<u8>, Failure> {
    if pairs.is_empty() {
        return Ok(Vec::new());
    }
    if pairs.len() > HEADERS_MAX {
        return Err(Failure::bad(format!("more than {HEADERS_MAX} headers")));
    }
    let mut block = b"NATS/1.0\r\n".to_vec();
    for (name, value) in pairs {
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
        let block = |pairs: &[(&str, &str)]| {
            let own = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
            headers(&pairs.iter().map(own).collect::<Vec<_>>())
        };
        assert_eq!(block(&[]).expect("none"), b"");
        let sound = block(&[("A", "b c"), ("A", "")]).expect("sound");
        assert_eq!(sound, b"NATS/1.0\r\nA: b c\r\nA: \r\n\r\n");
        for bad in [("A", "b\r\nPUB x 0"), ("A\n", "b"), ("", "b"), ("A:", "b"), ("A b", "b")] {
            assert!(block(&[bad]).is_err(), "{bad:?}");
        }
    }
}
