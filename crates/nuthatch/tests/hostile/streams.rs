//! Requests to the JetStream API whose cost grows with what is in them.

use crate::rig::{Rig, call, scaled, verdict};
use crate::{Attack, Outcome};
use nuthatch_client::Client;
use serde_json::{Value, json};
use std::thread;

/// Requests that are under way may hold so much (`MAX_INFLIGHT_BYTES`), and what is made of them as
/// much again.
const REQUESTS_BYTES: u64 = 128 << 20;

pub const ATTACKS: &[Attack] = &[
    Attack::new("stream-subjects-20k", twenty_thousand_subjects).costs(REQUESTS_BYTES),
    // nats-server answers the first of them after minutes, and nobody meanwhile.
    Attack::new("stream-subjects-6x100k", six_of_100_000_subjects)
        .costs(REQUESTS_BYTES)
        .ours_only(),
    Attack::new("stream-subjects-wild", wildcards_beside_literals).costs(REQUESTS_BYTES),
    Attack::new("consumer-filters-60k", sixty_thousand_filters).costs(REQUESTS_BYTES),
    Attack::new("consumers-thousands", thousands_of_consumers),
];

/// Creates a stream with so many subjects; how that was answered.
fn create(client: &mut Client, name: &str, count: usize) -> Result<Value, String> {
    let subjects: Vec<String> = (0..count).map(|n| format!("{name}{n}")).collect();
    call(
        client,
        &format!("$JS.API.STREAM.CREATE.{name}"),
        &json!({"name": name, "subjects": subjects}),
    )
}

fn delete(client: &mut Client, name: &str) {
    let _ = call(client, &format!("$JS.API.STREAM.DELETE.{name}"), &Value::Null);
}

fn twenty_thousand_subjects(rig: &Rig) -> Outcome {
    let mut client = rig.client("attacker");
    let answer = create(&mut client, "s", 20_000)?;
    delete(&mut client, "s");
    Ok(verdict(&answer))
}

fn six_of_100_000_subjects(rig: &Rig) -> Outcome {
    let clients: Vec<Client> = (0..6).map(|_| rig.client("attacker")).collect();
    let names = ["a", "b", "c", "d", "e", "f"];
    let answers: Vec<Result<Value, String>> = thread::scope(|scope| {
        let ask = |(name, mut client): (&'static str, Client)| {
            scope.spawn(move || create(&mut client, name, 100_000))
        };
        let asked: Vec<_> = names.into_iter().zip(clients).map(ask).collect();
        asked.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let mut client = rig.client("attacker");
    names.iter().for_each(|name| delete(&mut client, name));
    let told: Result<Vec<String>, String> =
        answers.into_iter().map(|answer| answer.map(|answer| verdict(&answer))).collect();
    Ok(told?.first().cloned().unwrap_or_default())
}

/// Every pattern of one stream has to be compared with every subject of another.
fn wildcards_beside_literals(rig: &Rig) -> Outcome {
    let mut client = rig.client("attacker");
    let mut create = |name: &str, subject: &dyn Fn(usize) -> String, count: usize| {
        let subjects: Vec<String> = (0..count).map(subject).collect();
        let config = json!({"name": name, "subjects": subjects});
        call(&mut client, &format!("$JS.API.STREAM.CREATE.{name}"), &config)
    };
    let literals = create("L", &|n| format!("l.{n}.a"), scaled(60_000, 20_000))?;
    let wildcards = create("P", &|n| format!("l.*.q{n}"), scaled(60_000, 20_000))?;
    delete(&mut client, "P");
    delete(&mut client, "L");
    Ok(format!("{} {}", verdict(&literals), verdict(&wildcards)))
}

fn sixty_thousand_filters(rig: &Rig) -> Outcome {
    let mut client = rig.client("attacker");
    let answer =
        call(&mut client, "$JS.API.STREAM.CREATE.W", &json!({"name": "W", "subjects": ["w.>"]}))?;
    if verdict(&answer) != "ok" {
        return Err(answer.to_string());
    }
    let filters: Vec<String> = (0..60_000).map(|n| format!("w.{n}")).collect();
    let config = json!({"durable_name": "C", "ack_policy": "explicit", "filter_subjects": filters});
    let body = json!({"stream_name": "W", "config": config});
    let answer = call(&mut client, "$JS.API.CONSUMER.CREATE.W.C", &body)?;
    delete(&mut client, "W");
    Ok(verdict(&answer))
}

/// More than an account may have, all asked for at once: each is answered.
fn thousands_of_consumers(rig: &Rig) -> Outcome {
    let mut client = rig.client("attacker");
    call(&mut client, "$JS.API.STREAM.CREATE.T", &json!({"name": "T", "subjects": ["t.>"]}))?;
    let count = scaled(5000, 1500);
    let inbox = format!("{}.c", client.inbox());
    client.subscribe(&format!("{inbox}.*"), "").map_err(|e| e.to_string())?;
    for n in 0..count {
        let config = json!({"stream_name": "T", "config": {"durable_name": format!("C{n}"),
            "ack_policy": "explicit", "filter_subject": format!("t.{n}")}});
        let subject = format!("$JS.API.CONSUMER.CREATE.T.C{n}.t.{n}");
        let reply = format!("{inbox}.{n}");
        let body = config.to_string();
        client
            .writer
            .publish(subject.as_bytes(), reply.as_bytes(), b"", body.as_bytes())
            .map_err(|e| e.to_string())?;
    }
    client.writer.flush().map_err(|e| e.to_string())?;
    let (mut made, mut refused) = (0, 0);
    for _ in 0..count {
        let deadline = std::time::Instant::now() + crate::support::TIMEOUT;
        let message =
            client.next_message(deadline).map_err(|e| format!("{made}+{refused}: {e}"))?;
        let answer: Value = serde_json::from_slice(&message.payload).map_err(|e| e.to_string())?;
        if answer["error"].is_null() { made += 1 } else { refused += 1 }
    }
    delete(&mut client, "T");
    Ok(format!("{made} made, {refused} refused"))
}
