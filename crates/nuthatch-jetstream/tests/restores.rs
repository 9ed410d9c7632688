//! Restores: what they may bring, and how long they are waited for.

mod support;

use serde_json::{Value, json};
use std::time::{Duration, Instant};
use support::{Peer, TestServer, configured, login, with_jetstream};

fn server(limits: &str) -> TestServer {
    with_jetstream(configured(&format!(
        "jetstream {{ limits {{ {limits} }} }}
         accounts {{
           A {{ jetstream: enabled, users: [{{user: a, password: pw}}] }}
           B {{ jetstream: enabled, users: [{{user: b, password: pw}}] }}
         }}"
    )))
}

/// Where the chunks of a restore go.
fn begin(peer: &mut Peer, name: &str) -> Result<String, String> {
    let body =
        json!({ "config": { "name": name, "subjects": [format!("{name}.>")] }, "state": {} });
    let said = peer.ask(&format!("$JS.API.STREAM.RESTORE.{name}"), body.to_string());
    let answer: Value = serde_json::from_str(&said).unwrap();
    answer["deliver_subject"].as_str().map(ToOwned::to_owned).ok_or(said)
}

#[test]
fn idle_restores_of_one_account_keep_nobody_from_restoring() {
    let server = server("");
    let (mut a, mut b) = (server.connected(&login("a")), server.connected(&login("b")));
    let begun: Vec<_> = (0..16).map(|at| begin(&mut a, &format!("S{at}"))).collect();
    assert_eq!(begun.iter().filter(|one| one.is_ok()).count(), 4);
    let refused = begun.into_iter().find_map(Result::err).unwrap();
    assert!(refused.contains("4 restores of this account are under way"), "{refused}");
    assert!(begin(&mut b, "T").is_ok());
}

#[test]
fn a_stop_does_not_wait_for_restores() {
    let server = server("");
    let mut a = server.connected(&login("a"));
    for at in 0..4 {
        begin(&mut a, &format!("S{at}")).unwrap();
    }
    std::thread::sleep(Duration::from_millis(200));
    let began = Instant::now();
    server.server.jetstream().stop().unwrap();
    // The runtime waits for the threads of the restores.
    drop(server);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

/// A backup of a stream with these consumers, through a server without limits.
fn backup(consumers: &[Value]) -> (Value, Vec<Vec<u8>>) {
    let server = server("");
    let mut a = server.connected(&login("a"));
    a.ask("$JS.API.STREAM.CREATE.S", r#"{"name":"S","subjects":["s.>"]}"#);
    a.ask("s.x", "1");
    for config in consumers {
        let name = config["durable_name"].as_str().unwrap();
        let body = json!({ "stream_name": "S", "config": config }).to_string();
        let said = a.ask(&format!("$JS.API.CONSUMER.DURABLE.CREATE.S.{name}"), body);
        assert!(!said.contains("\"error\""), "{said}");
    }
    a.send("SUB backup 5\r\n");
    let body = json!({ "deliver_subject": "backup", "chunk_size": 65536 }).to_string();
    let said = a.ask("$JS.API.STREAM.SNAPSHOT.S", body);
    let config = serde_json::from_str::<Value>(&said).unwrap()["config"].clone();
    let mut chunks = Vec::new();
    loop {
        let line = a.line();
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["MSG", "backup", "5", reply, size] => {
                let mut chunk = a.take(size.parse::<usize>().unwrap() + 2);
                chunk.truncate(chunk.len() - 2);
                chunks.push(chunk);
                a.send(format!("PUB {reply} 0\r\n\r\n"));
            }
            ["MSG", "backup", "5", size] => {
                let mut chunk = a.take(size.parse::<usize>().unwrap() + 2);
                chunk.truncate(chunk.len() - 2);
                chunks.push(chunk);
            }
            ["HMSG", "backup", "5", ..] => break,
            _ => panic!("{line}"),
        }
    }
    (config, chunks)
}

fn restore(limits: &str, (config, chunks): &(Value, Vec<Vec<u8>>)) -> String {
    let server = server(limits);
    let mut b = server.connected(&login("b"));
    let body = json!({ "config": config, "state": {} }).to_string();
    let said: Value = serde_json::from_str(&b.ask("$JS.API.STREAM.RESTORE.S", body)).unwrap();
    let to = said["deliver_subject"].as_str().unwrap_or_else(|| panic!("{said}")).to_owned();
    for chunk in chunks {
        b.ask(&to, chunk);
    }
    b.ask(&to, "")
}

#[test]
fn consumers_of_a_backup_keep_to_the_limits_of_new_ones() {
    let consumers: Vec<Value> = (0..3)
        .map(|at| json!({ "durable_name": format!("C{at}"), "ack_policy": "explicit" }))
        .collect();
    let three = backup(&consumers);
    assert!(restore("default_max_consumers: 3", &three).contains("stream_create_response"));
    let refused = restore("default_max_consumers: 2", &three);
    assert!(refused.contains("10026"), "{refused}");
    let eager =
        json!({ "durable_name": "C", "ack_policy": "explicit", "max_ack_pending": 1_u64 << 62 });
    let refused = restore("max_ack_pending: 1000", &backup(&[eager]));
    assert!(refused.contains("10121") && refused.contains("consumer C"), "{refused}");
}
