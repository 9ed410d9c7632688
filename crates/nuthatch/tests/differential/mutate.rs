//! Whether the comparison bites: a transcript with anything changed in it must not be equal to
//! itself, but for what the normalisation is meant to hide.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::compare::compare;
use crate::run::{self, Record, Transcript};
use crate::script::Script;
use crate::server::{Program, Server};

/// Every kind of record in little time.
const STEPS: &str = r#"
== mutations
conn a
read a info
raw a CONNECT {"verbose":true}\r\nSUB x 1\r\nPUB x 2\r\nhi\r\nPING\r\n
read a pong
api STREAM.CREATE.S {"name":"S","subjects":["s.>"],"allow_direct":true,"metadata":{"a":"b"}}
pub s.a [K: v] 1
pub s.b 2
pub s.a [Nats-Expected-Last-Sequence: 9] x
api CONSUMER.CREATE.S.C {"stream_name":"S","config":{"name":"C","durable_name":"C","ack_policy":"explicit"}}
next S C {"batch":3,"no_wait":true}
ack 1 +ACK
api CONSUMER.INFO.S.C
api STREAM.MSG.DELETE.S {"seq":2}
show S
api STREAM.MSG.GET.S {"seq":1}
api DIRECT.GET.S {"seq":1}
"#;

/// Fields that may be changed without notice, by name.
const HIDDEN: &[&str] = &["created", "first_ts", "last_active", "last_ts", "leader", "time", "ts"];

#[test]
fn a_changed_answer_is_noticed() {
    let Some(reference) = Program::reference() else { return };
    let script = Script::parse("mutate", STEPS).remove(0);
    let mut server = Server::start(&reference, "").unwrap();
    let original = run::run(&script, &mut server).unwrap();
    assert_eq!(compare(&script, &original, &original).differing, 0);
    let mut hidden = BTreeSet::new();
    for (step, record) in places(&original) {
        for (what, changed) in mutations(&original, step, record) {
            if compare(&script, &changed, &original).differing == 0 {
                hidden.insert(what);
            }
        }
    }
    let expected: BTreeSet<String> = HIDDEN.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(hidden, expected, "what may change unnoticed");
}

fn places(transcript: &Transcript) -> Vec<(usize, usize)> {
    let steps = transcript.steps.iter().enumerate();
    steps.flat_map(|(at, step)| (0..step.records.len()).map(move |record| (at, record))).collect()
}

/// Transcripts that differ in one thing, with the name of it.
fn mutations(original: &Transcript, step: usize, record: usize) -> Vec<(String, Transcript)> {
    let mut all = Vec::new();
    let mut change = |what: &str, with: &dyn Fn(&mut Vec<Record>)| {
        let mut changed = original.clone();
        with(&mut changed.steps[step].records);
        all.push((what.to_owned(), changed));
    };
    change("a lost record", &|records| drop(records.remove(record)));
    change("a second copy", &|records| records.insert(record, records[record].clone()));
    if record > 0 {
        change("the order", &|records| records.swap(record - 1, record));
    }
    match &original.steps[step].records[record] {
        Record::Bytes(_) => change("bytes", &|records| {
            let Record::Bytes(bytes) = &mut records[record] else { return };
            bytes[0] ^= 1;
        }),
        Record::Note(_) => {}
        Record::Message(message) => {
            for (name, replaced) in changed_bodies(&message.payload) {
                change(&name, &|records| {
                    let Record::Message(message) = &mut records[record] else { return };
                    message.payload.clone_from(&replaced);
                });
            }
            for at in (0..message.headers.len()).filter(|at| !in_timestamp(&message.headers, *at)) {
                change("headers", &|records| {
                    let Record::Message(message) = &mut records[record] else { return };
                    message.headers[at] ^= 1;
                });
            }
            let tokens = message.reply.as_ref().map_or(0, |reply| reply.split('.').count());
            for token in (0..tokens).filter(|token| *token != 7) {
                change("reply", &|records| {
                    let Record::Message(message) = &mut records[record] else { return };
                    message.reply = message.reply.as_deref().map(|reply| longer(reply, token));
                });
            }
            change("subject", &|records| {
                let Record::Message(message) = &mut records[record] else { return };
                message.subject.push('x');
            });
        }
    }
    all
}

/// The value of the one header that the clock writes.
fn in_timestamp(headers: &[u8], at: usize) -> bool {
    let name = b"Nats-Time-Stamp: ";
    let Some(start) = headers.windows(name.len()).position(|window| window == name) else {
        return false;
    };
    let value = start + name.len();
    let end =
        headers[value..].iter().position(|b| *b == b'\r').map_or(headers.len(), |n| value + n);
    (value..end).contains(&at)
}

fn longer(reply: &str, token: usize) -> String {
    let tokens = reply.split('.').enumerate();
    let tokens =
        tokens.map(|(at, text)| if at == token { format!("{text}1") } else { text.into() });
    tokens.collect::<Vec<_>>().join(".")
}

/// The body with each value changed and each field removed, with the field's name.
fn changed_bodies(body: &[u8]) -> Vec<(String, Vec<u8>)> {
    let Ok(value @ Value::Object(_)) = serde_json::from_slice::<Value>(body) else {
        let mut changed = body.to_vec();
        changed.push(b'!');
        return vec![("body".to_owned(), changed)];
    };
    let mut paths = Vec::new();
    leaves(&value, String::new(), &mut paths);
    let mut all = Vec::new();
    for path in paths {
        let mut changed = value.clone();
        let Some(leaf) = changed.pointer_mut(&path) else { continue };
        *leaf = match leaf.take() {
            Value::Bool(flag) => (!flag).into(),
            Value::Number(number) => (number.as_f64().unwrap_or(0.0) + 1.0).into(),
            Value::String(text) => format!("{text}!").into(),
            _ => "another kind".into(),
        };
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        all.push((name, changed.to_string().into_bytes()));
        let mut less = value.clone();
        let (parent, key) = path.rsplit_once('/').unwrap_or_default();
        if let Some(Value::Object(map)) = less.pointer_mut(parent) {
            map.remove(key);
            all.push((format!("no {key}"), less.to_string().into_bytes()));
        }
    }
    all
}

fn leaves(value: &Value, path: String, out: &mut Vec<String>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            map.iter().for_each(|(key, value)| leaves(value, format!("{path}/{key}"), out));
        }
        Value::Array(list) if !list.is_empty() => {
            let items = list.iter().enumerate();
            items.for_each(|(at, value)| leaves(value, format!("{path}/{at}"), out));
        }
        _ => out.push(path),
    }
}
