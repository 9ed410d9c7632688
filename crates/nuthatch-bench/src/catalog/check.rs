//! Asking a server what only one that knows all of its log can answer.

use std::fmt;

use serde_json::{Value, json};

use super::shape::Shape;
use crate::harness::{BenchError, Target};
use nuthatch_client::Client;
use nuthatch_client::js;

/// Streams and consumers that are asked for, spread over all.
const SAMPLES: u64 = 20;

/// `wrong last sequence: …` in JetStream's error table.
const WRONG_LAST_SEQUENCE: u64 = 10071;

/// Checks a sample of streams and consumers. `published` counts how often this has been done on
/// this log: each time publishes one message to one subject of each sampled stream. Without it the
/// first stream's count is taken for right.
///
/// # Errors
/// An answer that is not what the shape of the log says.
pub(super) fn answers(
    target: &Target,
    shape: &Shape,
    published: Option<u64>,
) -> Result<(), BenchError> {
    let mut client = target.connect()?;
    let mut ask = |what: &str| js::api(&mut client, what, &Value::Null, target.timeout);
    let info = ask("INFO")?;
    let published = match published {
        Some(published) => published,
        None => {
            let messages = ask("STREAM.INFO.S0")?["state"]["messages"].as_u64();
            messages.unwrap_or(0).saturating_sub(shape.messages_of(0))
        }
    };
    let held = (info["streams"].as_u64(), info["consumers"].as_u64());
    expect("streams and consumers", &held, &(Some(shape.streams), Some(shape.consumers)))?;
    for n in 0..SAMPLES.min(shape.streams) {
        let stream = n * shape.streams / SAMPLES.min(shape.streams);
        publish(&mut client, target, shape, stream, published)?;
    }
    for n in 0..SAMPLES.min(shape.consumers) {
        let consumer = n * shape.consumers / SAMPLES.min(shape.consumers);
        pending(&mut client, target, shape, consumer, published)?;
    }
    Ok(())
}

/// Which subject of a stream is published to.
const fn published_to(shape: &Shape, stream: u64) -> u64 {
    stream % shape.subjects_each
}

/// A publish that expects a wrong last sequence of its subject is refused with the right one, and
/// one that expects that is stored.
fn publish(
    client: &mut Client,
    target: &Target,
    shape: &Shape,
    stream: u64,
    published: u64,
) -> Result<(), BenchError> {
    let k = published_to(shape, stream);
    let last = match published {
        0 => shape.last_on(stream, k),
        more => shape.messages_of(stream) + more,
    };
    let subject = format!("s.{stream}.{k}");
    let mut send = |expected: u64| -> Result<Value, BenchError> {
        let headers =
            format!("NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: {expected}\r\n\r\n");
        let reply = client.request(&subject, headers.as_bytes(), b"one more", target.timeout)?;
        serde_json::from_slice(&reply.payload).map_err(|err| BenchError::Failed(err.to_string()))
    };
    let refused = send(last + 1)?;
    let code = refused["error"]["err_code"].as_u64();
    expect(&format!("{subject}: refusal {refused}"), &code, &Some(WRONG_LAST_SEQUENCE))?;
    let stored = send(last)?;
    let next = shape.messages_of(stream) + published + 1;
    expect(&format!("{subject}: {stored}"), &stored["seq"].as_u64(), &Some(next))
}

/// What a consumer with a filter has before it.
fn pending(
    client: &mut Client,
    target: &Target,
    shape: &Shape,
    consumer: u64,
    published: u64,
) -> Result<(), BenchError> {
    let (stream, k) = shape.filter_of(consumer);
    let call = format!("CONSUMER.INFO.S{stream}.C{consumer}");
    let info = js::api(client, &call, &json!(null), target.timeout)?;
    let samples = SAMPLES.min(shape.streams);
    let sampled = (0..samples).any(|n| n * shape.streams / samples == stream);
    let more = if sampled && k == published_to(shape, stream) { published + 1 } else { 0 };
    let expected = shape.messages_on(stream, k) + more;
    expect(&format!("num_pending of C{consumer}"), &info["num_pending"].as_u64(), &Some(expected))
}

fn expect<T: PartialEq + fmt::Debug>(
    what: &str,
    found: &T,
    expected: &T,
) -> Result<(), BenchError> {
    if found == expected {
        return Ok(());
    }
    Err(BenchError::Failed(format!("{what}: {found:?}, but {expected:?} is right")))
}
