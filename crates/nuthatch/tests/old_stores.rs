//! Stores that released versions wrote, opened by the binary of today: directories, named logs and
//! buckets, closed cleanly and killed. Every message, every consumer's position and every
//! configuration is there, and the store takes new messages that outlive a restart.

mod support;

use nuthatch_client::Client;
use serde_json::{Value, json};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::{Server, TempDir, api_ok, fetch, publish_ok};

/// What 0.1.0 wrote; see the README beside it.
const STORE_0_1_0: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/store-0.1.0");

/// Fields of a consumer's info that a restart must not change.
const POSITION: [&str; 5] = ["name", "delivered", "ack_floor", "num_ack_pending", "num_pending"];

fn unpacked(fixture: &str, name: &str) -> Vec<u8> {
    let packed = std::fs::read(Path::new(fixture).join(format!("{name}.zst"))).expect("a fixture");
    zstd::decode_all(&packed[..]).expect("zstd")
}

/// A copy of a fixture, and the server's configuration for it.
struct Copy {
    dir: TempDir,
    config: PathBuf,
}

impl Copy {
    fn new(fixture: &str, name: &str) -> Self {
        let dir = TempDir::new(&format!("old-store-{name}"));
        let mut tar = Command::new("tar")
            .args(["-x", "-S", "--no-same-owner", "-C"])
            .arg(dir.path())
            .stdin(Stdio::piped())
            .spawn()
            .expect("tar");
        let mut input = tar.stdin.take().expect("piped");
        input.write_all(&unpacked(fixture, &format!("{name}.tar"))).expect("tar reads");
        drop(input);
        assert!(tar.wait().expect("tar ends").success());
        let (second, bucket) = (dir.path().join("second"), dir.path().join("bucket"));
        let address = format!("file://{}", bucket.display());
        let text = format!(
            "jetstream {{ logs {{ second {{ dir: {second:?} }}, bucket {{ store: {address:?} }} }} }}"
        );
        let config = dir.path().join("server.conf");
        std::fs::write(&config, text).expect("a file");
        Self { dir, config }
    }

    fn start(&self) -> Server {
        let flags = ["-c", self.config.to_str().expect("a plain path")];
        Server::start(&self.dir.path().join("store"), &flags)
    }
}

/// A consumer's position. When it last did something is not kept.
fn position(consumer: &Value) -> Value {
    let mut position: Value =
        POSITION.iter().map(|key| ((*key).to_owned(), consumer[*key].clone())).collect();
    for pair in ["delivered", "ack_floor"] {
        position[pair].as_object_mut().expect("a pair").remove("last_active");
    }
    position
}

/// Metadata tells the version and level of the server that is asked.
fn without_server(value: &Value) -> Value {
    let mut value = value.clone();
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|key, _| key != "_nats.ver" && key != "_nats.level");
    }
    value
}

fn check_stream(client: &mut Client, stream: &str, truth: &Value) {
    let ask = json!({"deleted_details": true, "subjects_filter": ">"});
    let info = api_ok(client, &format!("STREAM.INFO.{stream}"), &ask);
    assert_eq!(info["state"], truth["state"], "{stream}");
    for (key, value) in truth["config"].as_object().expect("an object") {
        let (is, was) = (without_server(&info["config"][key]), without_server(value));
        assert_eq!(is, was, "{stream}: {key}");
    }
    for message in truth["messages"].as_array().expect("messages") {
        let ask = json!({"seq": message["seq"]});
        let got = api_ok(client, &format!("STREAM.MSG.GET.{stream}"), &ask);
        assert_eq!(got["message"], *message, "{stream}");
    }
    let list = api_ok(client, &format!("CONSUMER.LIST.{stream}"), &Value::Null);
    let positions =
        |list: &Value| list.as_array().expect("consumers").iter().map(position).collect::<Vec<_>>();
    assert_eq!(positions(&list["consumers"]), positions(&truth["consumers"]), "{stream}");
}

fn opens(fixture: &str, name: &str) {
    let truth: Value = serde_json::from_slice(&unpacked(fixture, "truth.json")).expect("JSON");
    let truth = truth.as_object().expect("streams");
    let copy = Copy::new(fixture, name);
    let server = copy.start();
    let mut client = server.connect();
    for (stream, truth) in truth {
        check_stream(&mut client, stream, truth);
    }
    // A second start finds what the first one has rewritten.
    server.kill();
    let server = copy.start();
    let mut client = server.connect();
    for (stream, truth) in truth {
        check_stream(&mut client, stream, truth);
    }
    for stream in ["LIMITS", "WORK", "INTEREST", "SECOND", "BUCKET"] {
        let seq = publish_ok(&mut client, &format!("{stream}.1"), b"of today");
        assert_eq!(seq, truth[stream]["state"]["last_seq"].as_u64().expect("a number") + 1);
        let got = fetch(&mut client, stream, "c", 300);
        assert_eq!(got.last().expect("messages").payload, b"of today", "{stream}");
    }
    server.kill();
    let server = copy.start();
    let mut client = server.connect();
    for stream in ["LIMITS", "WORK", "INTEREST", "SECOND", "BUCKET"] {
        let last = truth[stream]["state"]["last_seq"].as_u64().expect("a number") + 1;
        let got = api_ok(&mut client, &format!("STREAM.MSG.GET.{stream}"), &json!({"seq": last}));
        assert_eq!(got["message"]["data"], "b2YgdG9kYXk=", "{stream}");
    }
    server.stop();
}

#[test]
fn a_store_of_0_1_0_that_was_closed_opens() {
    opens(STORE_0_1_0, "clean");
}

#[test]
fn a_store_of_0_1_0_that_was_killed_opens() {
    opens(STORE_0_1_0, "killed");
}
