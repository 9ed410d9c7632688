//! What the configuration lets an account use is what it gets, and not more.

mod support;

use serde_json::{Value, json};
use std::path::Path;
use support::{Server, TempDir, api, api_ok, create_stream, publish, publish_ok, stream_state};

fn start(dir: &Path, config: &str) -> Server {
    let file = dir.join("server.conf");
    std::fs::write(&file, config).expect("write the configuration");
    Server::start(dir, &["-c", file.to_str().expect("a path in UTF-8")])
}

fn code(answer: &Value) -> u64 {
    answer["error"]["err_code"].as_u64().unwrap_or_else(|| panic!("no error in {answer}"))
}

#[test]
fn an_account_has_jetstream_within_its_limits() {
    let dir = TempDir::new("account-limits");
    let config = "
        no_auth_user: app
        accounts { APP {
            users: [ { user: app, password: pw } ]
            jetstream { max_file: 1000000, max_streams: 2, max_consumers: 1,
                        store_max_stream_bytes: 500000, max_bytes_required: true }
        } }";
    let server = start(dir.path(), config);
    let mut client = server.connect();
    let info = api_ok(&mut client, "INFO", &Value::Null);
    assert_eq!(info["limits"]["max_storage"], 1_000_000);
    assert_eq!(info["limits"]["max_streams"], 2);
    assert_eq!(info["limits"]["max_bytes_required"], true);
    let stream = |name: &str, max_bytes: i64| json!({"name": name, "max_bytes": max_bytes});
    assert_eq!(code(&api(&mut client, "STREAM.CREATE.A", &stream("A", -1))), 10113);
    assert_eq!(code(&api(&mut client, "STREAM.CREATE.A", &stream("A", 600_000))), 10122);
    create_stream(&mut client, "A", &json!({"max_bytes": 400_000}));
    publish_ok(&mut client, "A.x", b"hello");
    create_stream(&mut client, "B", &json!({"max_bytes": 400_000}));
    assert_eq!(code(&api(&mut client, "STREAM.CREATE.C", &stream("C", 1000))), 10027);
    let consumer = |name: &str| json!({"stream_name": "A", "config": {"durable_name": name}});
    api_ok(&mut client, "CONSUMER.DURABLE.CREATE.A.one", &consumer("one"));
    api_ok(&mut client, "CONSUMER.DURABLE.CREATE.A.one", &consumer("one"));
    assert_eq!(code(&api(&mut client, "CONSUMER.DURABLE.CREATE.A.two", &consumer("two"))), 10026);
}

#[test]
fn max_file_bounds_what_is_stored_and_deletes_make_room() {
    let dir = TempDir::new("max-file");
    let server = start(dir.path(), "jetstream { max_file: 100000 }");
    let mut client = server.connect();
    create_stream(&mut client, "A", &json!({}));
    create_stream(&mut client, "B", &json!({}));
    let body = [b'x'; 10_000];
    let stored = (0..20).take_while(|n| {
        let ack = publish(&mut client, &format!("{}.x", if n % 2 == 0 { "A" } else { "B" }), &body);
        ack.get("error").is_none() || (code(&ack) != 10023).then(|| panic!("{ack}")).is_some()
    });
    assert_eq!(stored.count(), 9);
    assert_eq!(code(&publish(&mut client, "B.x", &body)), 10023);
    api_ok(&mut client, "STREAM.PURGE.A", &Value::Null);
    publish_ok(&mut client, "B.x", &body);
    assert_eq!(stream_state(&mut client, "B")["messages"], 5);
}
