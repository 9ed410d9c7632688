//! Accounts on the real binary: partitions as in the seed, streams that belong to accounts across
//! restarts and reloads, limits of accounts that share a log.

mod support;

use nuthatch_client::{Client, ConnectOptions};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use support::{
    Server, TIMEOUT, TempDir, api, api_ok, create_stream, publish, publish_ok, stream_state,
};

/// Messages to `events.0`, `events.1`, … and how many of them each partition gets (seed 001).
const MESSAGES: u64 = 200_000;
const PARTITIONS: [u64; 5] = [39_973, 39_968, 39_960, 40_054, 40_045];

fn start(dir: &Path, config: &str) -> Server {
    let file = dir.join("server.conf");
    std::fs::write(&file, config).expect("write the configuration");
    Server::start(dir, &["-c", file.to_str().expect("a path in UTF-8")])
}

fn url(server: &Server, user: &str) -> String {
    server.url.replace("nats://", &format!("nats://{user}:{user}@"))
}

fn connect(server: &Server, user: &str) -> Client {
    let mut options = ConnectOptions::new(&url(server, user)).expect("url");
    options.timeout = TIMEOUT;
    Client::connect(&options).unwrap_or_else(|e| panic!("{user}: {e}\n{}", server.log_tail()))
}

#[test]
fn partitions_as_in_the_seed() {
    let dir = TempDir::new("partitions");
    let accounts = r#"
        accounts: {
          SYS: { users: [{user: sys, password: sys}] }
          APP: {
            jetstream: true,
            users: [{user: app, password: app}]
            mappings: { "events.*": "events.{{wildcard(1)}}.{{partition(5,1)}}" }
          }
        }
        system_account: SYS"#;
    std::fs::write(dir.path().join("accounts.conf"), accounts).expect("write accounts.conf");
    let server = start(dir.path(), "server_name: n1\ninclude accounts.conf\n");
    let mut client = connect(&server, "app");
    for partition in 0..5 {
        let config = json!({
            "name": format!("events-{partition}"), "subjects": [format!("events.*.{partition}")],
            "retention": "limits", "storage": "file", "num_replicas": 1, "discard": "old",
            "duplicate_window": 120_000_000_000_u64, "max_age": 0, "max_msgs": -1, "max_bytes": -1,
            "max_msg_size": -1, "max_msgs_per_subject": -1, "max_consumers": -1,
            "allow_rollup_hdrs": true, "deny_delete": false, "deny_purge": false,
        });
        api_ok(&mut client, &format!("STREAM.CREATE.events-{partition}"), &config);
    }
    for number in 0..MESSAGES {
        let subject = format!("events.{number}");
        client.writer.publish(subject.as_bytes(), b"", b"", b"x").expect("publish");
    }
    client.writer.flush().expect("flush");
    client.round_trip(TIMEOUT).expect("all is read");
    let deadline = Instant::now() + 3 * TIMEOUT;
    loop {
        let count = |partition: usize| {
            let state = stream_state(&mut connect(&server, "app"), &format!("events-{partition}"));
            state["messages"].as_u64().expect("messages")
        };
        let counts = std::array::from_fn(count);
        if counts == PARTITIONS {
            break;
        }
        assert!(Instant::now() < deadline, "{counts:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
    // The workbench finds the mapping and leaves it to the server.
    let words = ["nuthatch-bench", "-s", &url(&server, "app"), "partitions"];
    let sizes = ["--msgs", "2000", "--sync-msgs", "50"];
    let text = nuthatch_bench::program::run_words([words.as_slice(), &sizes].concat())
        .expect("the workbench measures");
    assert!(text.contains("mapped by the server"), "{text}");
}

const TWO: &str = "
    accounts {
      A { jetstream { max_file: 200KB }, users: [{user: a, password: a}] }
      B { jetstream: enabled, users: [{user: b, password: b}] }
    }";

#[test]
fn streams_belong_to_accounts_across_restarts() {
    let dir = TempDir::new("accounts-restart");
    // What was stored without accounts is the global account's.
    let server = Server::start(dir.path(), &[]);
    create_stream(&mut server.connect(), "S", &json!({}));
    publish_ok(&mut server.connect(), "S.global", b"1");
    server.stop();
    let server = start(dir.path(), TWO);
    for (user, count) in [("a", 2), ("b", 3)] {
        let mut client = connect(&server, user);
        create_stream(&mut client, "S", &json!({}));
        for _ in 0..count {
            publish_ok(&mut client, "S.x", user.as_bytes());
        }
    }
    server.stop();
    // Another order, another account in front, and one that is gone for a while.
    let server = start(
        dir.path(),
        "accounts {
           C { jetstream: enabled, users: [{user: c, password: c}] }
           B { jetstream: enabled, users: [{user: b, password: b}] }
         }",
    );
    assert_eq!(stream_state(&mut connect(&server, "b"), "S")["messages"], 3);
    let missing = api(&mut connect(&server, "c"), "STREAM.INFO.S", &Value::Null);
    assert_eq!(missing["error"]["err_code"], 10059);
    server.stop();
    let server = start(dir.path(), TWO);
    assert_eq!(stream_state(&mut connect(&server, "a"), "S")["messages"], 2);
    server.stop();
    let server = Server::start(dir.path(), &[]);
    assert_eq!(stream_state(&mut server.connect(), "S")["messages"], 1);
}

/// What `nats server account purge` asks for.
#[test]
fn the_system_account_purges_others() {
    let dir = TempDir::new("account-purge");
    let accounts = r#"accounts: {
          SYS: { users: [{user: sys, password: sys}] }
          A: { jetstream: true, users: [{user: a, password: a}] }
          B: { jetstream: true, users: [{user: b, password: b}] }
        }
        system_account: SYS"#;
    let server = start(dir.path(), accounts);
    let (mut a, mut b) = (connect(&server, "a"), connect(&server, "b"));
    for client in [&mut a, &mut b] {
        create_stream(client, "S", &json!({ "subjects": ["s"] }));
        publish_ok(client, "s", &[]);
    }
    let names = |client: &mut Client| api_ok(client, "STREAM.NAMES", &json!({}))["total"].clone();
    // Nobody else may, and nobody else is answered.
    let wait = Duration::from_millis(300);
    assert!(a.request("$JS.API.ACCOUNT.PURGE.B", b"", b"", wait).is_err());
    assert_eq!(names(&mut b), 1);
    let mut system = connect(&server, "sys");
    let purged = api_ok(&mut system, "ACCOUNT.PURGE.A", &Value::Null);
    assert_eq!(purged["initiated"], true);
    assert_eq!((names(&mut a), names(&mut b)), (json!(0), json!(1)));
    assert_eq!(api_ok(&mut system, "ACCOUNT.PURGE.nobody", &Value::Null)["initiated"], true);
}

#[test]
fn limits_hold_for_each_account_of_one_log() {
    let dir = TempDir::new("accounts-limits");
    let mut server = start(dir.path(), TWO);
    let (mut a, mut b) = (connect(&server, "a"), connect(&server, "b"));
    for client in [&mut a, &mut b] {
        create_stream(client, "S", &json!({}));
    }
    let body = [b'x'; 20_000];
    let fill = |client: &mut Client| {
        let refused = |_: &i32| publish(client, "S.x", &body)["error"]["err_code"] == 10002;
        (0..30).find(refused)
    };
    assert_eq!(fill(&mut a), Some(10));
    assert_eq!(fill(&mut b), None);
    assert_eq!(stream_state(&mut b, "S")["messages"], 30);
    // A reload raises the limit; nobody is disconnected.
    std::fs::write(dir.path().join("server.conf"), TWO.replace("200KB", "400KB")).expect("write");
    let pid = server.pid().to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().expect("kill").success());
    let deadline = Instant::now() + TIMEOUT;
    while publish(&mut a, "S.x", &body).get("error").is_some() {
        assert!(Instant::now() < deadline && server.is_alive(), "{}", server.log_tail());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(api_ok(&mut a, "INFO", &Value::Null)["limits"]["max_storage"], 400 * 1024);
    assert_eq!(stream_state(&mut b, "S")["messages"], 30);
}

#[test]
fn the_example_of_accounts_that_share_some_things() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/cross-account/run.sh");
    let output =
        Command::new(script).arg(env!("CARGO_BIN_EXE_nuthatch")).output().expect("run the example");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.ends_with("all as it should be\n"), "{text}\n{errors}");
}
