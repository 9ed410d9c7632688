//! One delivery of a consumer: fetched, shown, and acknowledged by hand.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::Call;
use crate::ask::needed;
use crate::bounds::BROKER_TIME_MAX;
use crate::broker::name;
use crate::failure::Failure;

/// `POST streams/NAME/consumers/CONSUMER/next`: its next message, `null` if there is none now.
pub fn next(call: &mut Call<'_>, stream: &str, consumer: &str) -> Result<Value, Failure> {
    let what = format!("$JS.API.CONSUMER.MSG.NEXT.{}.{}", name(stream)?, name(consumer)?);
    call.change = Some(format!("fetch from consumer {consumer:?} of stream {stream:?}"));
    let body = json!({ "batch": 1, "no_wait": true }).to_string();
    let is_ours = |reply: &str| {
        Place::parse(reply).is_some_and(|p| p.stream == stream && p.consumer == consumer)
    };
    let found = call
        .broker
        .pull(&what, body.as_bytes(), |found| found.reply.as_deref().is_some_and(is_ours))?;
    let view = found.view();
    if let Some(status) = view.status() {
        let text = format!("{status}");
        return match text.starts_with("404") {
            true => Ok(json!({ "message": null })),
            false => Err(Failure::bad(format!("the consumer answers {text}"))),
        };
    }
    let pairs: Vec<(&str, &str)> =
        view.header_pairs().filter(|(name, _)| !name.is_empty()).collect();
    let reply = found.reply.as_deref().unwrap_or_default();
    let place = Place::parse(reply);
    Ok(json!({
        "message": {
            "subject": found.subject,
            "headers": pairs,
            "size": found.payload.len(),
            "data": STANDARD.encode(&found.payload),
            "truncated": false,
            "reply": reply,
            "seq": place.as_ref().map(|place| place.sequence),
            "deliveries": place.as_ref().map(|place| place.deliveries),
        },
    }))
}

/// `POST streams/NAME/consumers/CONSUMER/ack`: `reply` of the delivery, and `ack`: `ack`, `nak` or
/// `term`.
pub fn acknowledge(call: &mut Call<'_>, stream: &str, consumer: &str) -> Result<Value, Failure> {
    let reply = needed(&call.ask.body.reply, "reply")?;
    let place = Place::parse(reply);
    let place = place.filter(|place| place.stream == stream && place.consumer == consumer);
    let place = place.ok_or_else(|| Failure::bad("reply is of no delivery of this consumer"))?;
    let word = needed(&call.ask.body.ack, "ack")?;
    let payload: &[u8] = match word {
        "ack" => b"+ACK",
        "nak" => b"-NAK",
        "term" => b"+TERM",
        _ => return Err(Failure::bad("ack must be ack, nak or term")),
    };
    call.change = Some(format!(
        "{word} message {} for consumer {consumer:?} of stream {stream:?}",
        place.sequence
    ));
    call.broker.request(reply, b"", payload, BROKER_TIME_MAX)?;
    Ok(json!({}))
}

/// What the reply subject of a delivery tells.
#[derive(Debug, PartialEq, Eq)]
struct Place<'r> {
    stream: &'r str,
    consumer: &'r str,
    deliveries: u64,
    sequence: u64,
}

impl<'r> Place<'r> {
    /// `$JS.ACK.STREAM.CONSUMER.…` of nine parts, or with domain and account before the stream.
    fn parse(reply: &'r str) -> Option<Self> {
        let rest = reply.strip_prefix("$JS.ACK.")?;
        let parts: Vec<&str> = rest.split('.').collect();
        let parts = match parts.len() {
            7 => &parts[..],
            9.. => &parts[2..],
            _ => return None,
        };
        let (stream, consumer) = (parts[0], parts[1]);
        let (deliveries, sequence) = (parts[2].parse().ok()?, parts[3].parse().ok()?);
        Some(Self { stream, consumer, deliveries, sequence })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_of_deliveries() {
        let wanted = Place { stream: "S", consumer: "c", deliveries: 2, sequence: 7 };
        assert_eq!(Place::parse("$JS.ACK.S.c.2.7.9.123.0").as_ref(), Some(&wanted));
        assert_eq!(Place::parse("$JS.ACK.hub.acc.S.c.2.7.9.123.0").as_ref(), Some(&wanted));
        for wrong in
            ["", "$JS.ACK", "$JS.ACK.S.c", "$JS.ACK.S.c.x.7.9.123.0", "$JS.API.A.S.c.2.7.9.1.0"]
        {
            assert_eq!(Place::parse(wrong), None, "{wrong}");
        }
    }
}
