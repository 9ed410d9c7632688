//! Traces of messages that pass two servers: the same events whoever made either of them.

use super::{MOMENT, Maker, Pair, TIMEOUT, call_local, eventually, until_heard};
use nuthatch_client::Client;
use serde_json::{Value, json};
use std::time::Instant;

/// An event without what differs from run to run.
fn normal(payload: &[u8]) -> Value {
    let mut event: Value = serde_json::from_slice(payload).expect("a trace is JSON");
    event["server"] = event["server"]["name"].take();
    for step in event["events"].as_array_mut().expect("steps") {
        let step = step.as_object_mut().expect("a step");
        assert!(step.remove("ts").is_some(), "each step has its time: {step:?}");
        step.remove("cid");
    }
    event["events"].as_array_mut().expect("steps").sort_by_key(Value::to_string);
    event
}

/// Publishes with a trace; the events of `servers` servers, and whether `to` got the message.
fn trace(
    (from, to): (&mut Client, &mut Client),
    events: &mut Client,
    (subject, headers): (&str, &str),
    servers: usize,
) -> Value {
    let block = format!("NATS/1.0\r\nNats-Trace-Dest: trace.it\r\n{headers}\r\n");
    from.writer.publish(subject.as_bytes(), b"", block.as_bytes(), b"x").expect("publish");
    from.writer.flush().expect("flush");
    let mut found: Vec<Value> = Vec::new();
    eventually(&format!("traces of {subject}"), || {
        while let Ok(message) = events.next_message(Instant::now() + MOMENT) {
            found.push(normal(&message.payload));
        }
        (found.len() >= servers).then_some(())
    });
    found.sort_by_key(Value::to_string);
    let delivered = to.next_message(Instant::now() + MOMENT).ok();
    let delivered = delivered.map(|message| String::from_utf8_lossy(&message.headers).into_owned());
    json!({ "subject": subject, "headers": headers, "events": found, "delivered": delivered })
}

/// All that the traces between these two say.
fn told(hub: Maker, leaf: Maker) -> Option<Vec<Value>> {
    let pair = Pair::start(hub, leaf)?;
    let (mut hub, mut leaf) = (pair.hub.connect(), pair.leaf.connect());
    let (mut at_hub, mut at_leaf) = (pair.hub.connect(), pair.leaf.connect());
    let mut events = pair.leaf.connect();
    at_hub.subscribe("up.>", "").expect("subscribe");
    at_leaf.subscribe("down.>", "").expect("subscribe");
    at_hub.subscribe("group.>", "workers").expect("subscribe");
    until_heard(&mut leaf, &mut at_hub, "up.test");
    until_heard(&mut leaf, &mut at_hub, "group.test");
    until_heard(&mut hub, &mut at_leaf, "down.test");
    for client in [&mut at_hub, &mut at_leaf] {
        while client.next_message(Instant::now() + MOMENT).is_ok() {}
    }
    let stream = json!({ "name": "S", "subjects": ["kept.*"] });
    call_local(&mut hub, "STREAM.CREATE.S", &stream);
    events.subscribe("trace.>", "").expect("subscribe");
    until_heard(&mut hub, &mut events, "trace.test");
    while events.next_message(Instant::now() + MOMENT).is_ok() {}
    let mut all = Vec::new();
    for headers in ["", "Nats-Trace-Only: true\r\n", "Nats-Trace-Hop: 7\r\n"] {
        for subject in ["up.a", "group.a", "kept.a"] {
            let ends = (&mut leaf, &mut at_hub);
            all.push(trace(ends, &mut events, (subject, headers), 2));
        }
        all.push(trace((&mut hub, &mut at_leaf), &mut events, ("down.a", headers), 2));
    }
    let stored = call_local(&mut hub, "STREAM.MSG.GET.S", &json!({ "last_by_subj": "kept.a" }));
    all.push(stored["message"]["hdrs"].clone());
    hub.round_trip(TIMEOUT).expect("round trip");
    Some(all)
}

#[test]
fn traces_are_the_same_whoever_made_the_servers() {
    use Maker::{Ours, Reference};
    let Some(expected) = told(Reference, Reference) else { return };
    for (hub, leaf) in [(Ours, Ours), (Reference, Ours), (Ours, Reference)] {
        let found = told(hub, leaf).expect("the reference is there");
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found, expected, "hub {hub:?}, leaf {leaf:?}");
        }
    }
}
