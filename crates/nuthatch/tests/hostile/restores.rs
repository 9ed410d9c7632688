//! Restores: small archives of large streams, uploads that never go on, and consumers beyond every
//! limit.

use crate::rig::{Rig, Who, call, scaled, verdict};
use crate::support::{Server, TIMEOUT, TempDir};
use crate::{Attack, Outcome};
use nuthatch_archive::{Message, SnapshotWriter};
use nuthatch_client::Client;
use nuthatch_protocol::js::{ConsumerSnapshot, StreamState};
use serde_json::{Value, json};

/// Streams that are restored one after another with a gap.
const GAPS: usize = 4;
/// Restores that are begun and left alone.
const IDLE: usize = 16;

pub const ATTACKS: &[Attack] = &[
    Attack::new("restore-gap", large_gaps),
    Attack::new("restore-consumers", too_many_consumers),
    Attack::new("restore-max-ack-pending", absurd_consumer),
    Attack::new("restore-idle-16", idle_restores),
    Attack::new("restore-stop", a_stop_with_restores_open).ours_only(),
];

fn archive(state: &Value, consumers: &[Value], seqs: &[u64]) -> Vec<u8> {
    let state: StreamState = serde_json::from_value(state.clone()).expect("a state");
    let mut writer = SnapshotWriter::new(Vec::new(), &state, 1).expect("writes to memory");
    for consumer in consumers {
        let consumer: ConsumerSnapshot =
            serde_json::from_value(consumer.clone()).expect("a consumer");
        writer.consumer(&consumer, 1).expect("writes to memory");
    }
    for &seq in seqs {
        let message = Message {
            seq,
            time_ns: 1_700_000_000_000_000_000,
            subject: b"r.x",
            headers: b"",
            body: b"x",
        };
        writer.message(&message).expect("writes to memory");
    }
    writer.finish().expect("writes to memory")
}

fn state(seqs: &[u64], consumers: usize) -> Value {
    let (first, last) = (seqs.first().copied().unwrap_or(1), seqs.last().copied().unwrap_or(0));
    json!({"messages": seqs.len(), "bytes": 100, "first_seq": first, "last_seq": last,
        "first_ts": "2023-11-14T22:13:20Z", "last_ts": "2023-11-14T22:13:20Z",
        "consumer_count": consumers})
}

/// Begins a restore; where its chunks go.
fn begin(client: &mut Client, name: &str, state: &Value) -> Result<Result<String, String>, String> {
    let config = json!({"name": name, "subjects": [format!("{name}.>")], "retention": "limits",
        "max_consumers": -1, "max_msgs": -1, "max_bytes": -1, "max_age": 0, "discard": "old",
        "storage": "file", "num_replicas": 1});
    let body = json!({"config": config, "state": state});
    let answer = call(client, &format!("$JS.API.STREAM.RESTORE.{name}"), &body)?;
    let subject = answer["deliver_subject"].as_str().map(str::to_owned);
    Ok(subject.ok_or_else(|| verdict(&answer)))
}

/// A whole restore; how it was answered.
fn restore(client: &mut Client, name: &str, state: &Value, archive: &[u8]) -> Outcome {
    let subject = match begin(client, name, state)? {
        Ok(subject) => subject,
        Err(refused) => return Ok(refused),
    };
    for chunk in archive.chunks(64 << 10).chain([&b""[..]]) {
        let reply = client.request(&subject, b"", chunk, TIMEOUT).map_err(|e| e.to_string())?;
        if !reply.payload.is_empty() {
            let answer: Value =
                serde_json::from_slice(&reply.payload).map_err(|e| e.to_string())?;
            return Ok(verdict(&answer));
        }
    }
    Err("the last chunk was not answered".to_owned())
}

fn large_gaps(rig: &Rig) -> Outcome {
    let mut client = rig.client("attacker");
    let seqs = [1, 1 << 34];
    let (state, mut told) = (state(&seqs, 0), String::new());
    let bytes = archive(&state, &[], &seqs);
    let names: Vec<String> = (0..GAPS).map(|n| format!("GAP{n}")).collect();
    for name in &names {
        told = restore(&mut client, name, &state, &bytes)?;
    }
    for name in &names {
        let _ = call(&mut client, &format!("$JS.API.STREAM.DELETE.{name}"), &Value::Null);
    }
    Ok(format!("{} bytes: {told}", bytes.len()))
}

/// Another account's restore goes on beside restores that are begun and left alone.
fn idle_restores(rig: &Rig) -> Outcome {
    let mut client = rig.client("attacker");
    let seqs = [1];
    let state = state(&seqs, 0);
    let mut begun = 0;
    for n in 0..IDLE {
        begun += usize::from(begin(&mut client, &format!("IDLE{n}"), &state)?.is_ok());
    }
    let mut other = rig.client("canary");
    let told = restore(&mut other, "RESTORED", &state, &archive(&state, &[], &seqs))?;
    let _ = call(&mut other, "$JS.API.STREAM.DELETE.RESTORED", &Value::Null);
    if told == "ok" {
        Ok(format!("{begun} idle, another's: ok"))
    } else {
        Err(format!("beside {begun} idle restores another account hears: {told}"))
    }
}

fn consumer(name: &str, extra: &Value) -> Value {
    let mut config = json!({"durable_name": name, "name": name, "ack_policy": "explicit",
        "deliver_policy": "all", "replay_policy": "instant", "num_replicas": 0});
    for (key, value) in extra.as_object().expect("an object") {
        config[key] = value.clone();
    }
    let none = json!({"consumer_seq": 0, "stream_seq": 0});
    json!({"stream_name": "X", "name": name, "config": config, "created": "2023-11-14T22:13:20Z",
        "state": {"delivered": none, "ack_floor": none}})
}

/// A restore that must be refused, and leave nothing.
fn refused(rig: &Rig, consumers: &[Value]) -> Outcome {
    let mut client = rig.client("attacker");
    let seqs = [1];
    let state = state(&seqs, consumers.len());
    let told = restore(&mut client, "X", &state, &archive(&state, consumers, &seqs))?;
    let info = call(&mut client, "$JS.API.STREAM.INFO.X", &Value::Null)?;
    let _ = call(&mut client, "$JS.API.STREAM.DELETE.X", &Value::Null);
    if told == "ok" || info["error"].is_null() {
        return Err(format!("restored: {}", info["state"]));
    }
    Ok(told)
}

fn too_many_consumers(rig: &Rig) -> Outcome {
    let count = scaled(20_000, 3000);
    let all: Vec<Value> = (0..count).map(|n| consumer(&format!("C{n}"), &json!({}))).collect();
    refused(rig, &all)
}

/// What a creation refuses, a restore refuses, and what one of them makes of it the other does too.
fn absurd_consumer(rig: &Rig) -> Outcome {
    let mut client = rig.client("attacker");
    let seqs = [1];
    let absurd = consumer("C", &json!({"max_ack_pending": 1_u64 << 62}));
    call(&mut client, "$JS.API.STREAM.CREATE.Y", &json!({"name": "Y", "subjects": ["y.>"]}))?;
    let body = json!({"stream_name": "Y", "config": absurd["config"]});
    let created = call(&mut client, "$JS.API.CONSUMER.DURABLE.CREATE.Y.C", &body)?;
    let bytes = archive(&state(&seqs, 1), &[absurd], &seqs);
    let told = restore(&mut client, "X", &state(&seqs, 1), &bytes)?;
    let restored = call(&mut client, "$JS.API.CONSUMER.INFO.X.C", &Value::Null)?;
    for name in ["X", "Y"] {
        let _ = call(&mut client, &format!("$JS.API.STREAM.DELETE.{name}"), &Value::Null);
    }
    let [one, other] = [&created, &restored].map(|info| &info["config"]["max_ack_pending"]);
    if one != other {
        return Err(format!("created: {}, {one}; restored: {told}, {other}", verdict(&created)));
    }
    Ok(format!("created: {}, restored: {told}, {one}", verdict(&created)))
}

/// A stop does not wait for uploads, and ends them without a panic.
fn a_stop_with_restores_open(rig: &Rig) -> Outcome {
    assert_eq!(rig.who(), Who::Ours);
    let dir = TempDir::new("hostile-restore-stop");
    let server = Server::start(dir.path(), &[]);
    let mut client = server.connect();
    let state = state(&[1], 0);
    for n in 0..4 {
        begin(&mut client, &format!("OPEN{n}"), &state)??;
    }
    let started = std::time::Instant::now();
    server.terminate();
    let (_, log) = server.wait_for_exit();
    let took = started.elapsed();
    match log.lines().find(|line| line.contains("panicked at")) {
        Some(line) => Err(line.to_owned()),
        None => Ok(format!("stopped in {} ms", took.as_millis())),
    }
}
