//! Every monitoring endpoint has the fields of nats-server with the same types; `/metrics` is
//! readable.
//!
//! `tests/monitoring/nats-server.json` was recorded from nats-server 2.15.2 by this test itself:
//! `UPDATE_FIXTURE=1 NUTHATCH_TEST_SERVER=…/nats-server cargo test -p nuthatch --test monitoring`.

mod support;

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use support::{Server, TempDir, api_ok, create_stream, fetch, publish_ok};

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/monitoring/nats-server.json");

/// What is asked, by name; `$CID` stands for the number of the client that is there.
const REQUESTS: &[&str] = &[
    "/varz",
    "/connz?auth=1&subs=detail",
    "/connz?subs=1&sort=msgs_from&limit=5",
    "/connz?cid=$CID",
    "/connz?state=closed&sort=stop",
    "/connz?acc=$G",
    "/subsz",
    "/subsz?subs=1&acc=$G&test=seen.x&limit=7",
    "/accountz",
    "/accountz?acc=$G",
    "/accstatz?unused=1",
    "/routez?subs=1",
    "/gatewayz",
    "/leafz?subs=1",
    "/ipqueuesz",
    "/raftz",
    "/jsz",
    "/jsz?acc=$G&consumers=1&config=1",
    "/jsz?accounts=1&raft=1",
    "/jsz?acc=nobody",
    "/healthz",
    "/healthz?js-enabled-only=1&details=1",
    "/healthz?stream=S",
    "/healthz?account=nobody",
    "/healthz?account=nobody&details=1",
    "/healthz?account=$G&stream=nothing&details=1",
    "/connz?state=odd",
    "/connz?sort=odd",
    "/connz?sort=stop",
    "/connz?limit=odd",
    "/connz?auth=odd",
    "/subsz?test=a.*",
    "/accountz?acc=nobody",
    "/nothing",
];

/// What the reference has and we have not, and why. A `*` at the end stands for any rest.
const KNOWN_GAPS: &[(&str, &str)] = &[
    ("/varz .config_digest", "set only where there is a configuration file; ours is empty"),
    ("/varz .feature_flags*", "switches of nats-server's own features; none of them exists here"),
    ("/varz .disk_io_wait_stats*", "no pool of disk readers to wait for"),
    ("/accountz?acc=$G .account_detail.imports*", "system services need no imports here"),
];

struct Answer {
    status: u16,
    kind: String,
    body: String,
}

fn get(port: u16, path: &str) -> Answer {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connect");
    stream.set_read_timeout(Some(support::TIMEOUT)).expect("timeout");
    let request = format!("GET {path} HTTP/1.0\r\nHost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("send");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("answer");
    let text = String::from_utf8(bytes).expect("UTF-8");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).expect("a status").parse().expect("a number");
    let kind = head
        .lines()
        .find_map(|line| line.to_lowercase().strip_prefix("content-type: ").map(str::to_owned))
        .unwrap_or_default();
    Answer { status, kind, body: body.to_owned() }
}

fn monitor_port(dir: &Path) -> u16 {
    let ports = std::fs::read_dir(dir.join("ports")).expect("ports");
    let file = ports.flatten().next().expect("a ports file").path();
    let text = std::fs::read_to_string(file).expect("readable");
    let value: Value = serde_json::from_str(&text).expect("JSON");
    let url = value["monitoring"][0].as_str().expect("a monitoring URL");
    url.rsplit(':').next().expect("a port").parse().expect("a number")
}

/// The paths in a document, and what is there.
fn paths(at: &str, value: &Value, out: &mut BTreeMap<String, &'static str>) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(items) => {
            items.iter().for_each(|item| paths(&format!("{at}[]"), item, out));
            "array"
        }
        Value::Object(fields) => {
            fields.iter().for_each(|(name, field)| paths(&format!("{at}.{name}"), field, out));
            "object"
        }
    };
    out.insert(at.to_owned(), kind);
}

/// A server with a stream, a consumer, clients that are there and one that has left; and what it
/// answers to each request: the status, the media type, and the paths or the text.
fn observe(dir: &Path) -> BTreeMap<String, Value> {
    let server = Server::start(dir, &["-m", "-1"]);
    let port = monitor_port(dir);
    drop(server.connect());
    let mut client = server.connect();
    create_stream(&mut client, "S", &json!({}));
    let consumer =
        json!({"stream_name": "S", "config": {"durable_name": "C", "ack_policy": "explicit"}});
    api_ok(&mut client, "CONSUMER.DURABLE.CREATE.S.C", &consumer);
    publish_ok(&mut client, "S.x", b"hello");
    client.subscribe("seen.*", "").expect("subscribe");
    client.subscribe("seen.x", "group").expect("subscribe");
    api_ok(&mut client, "INFO", &Value::Null);
    let connz: Value = serde_json::from_str(&get(port, "/connz").body).expect("JSON");
    let cid = connz["connections"][0]["cid"].as_u64().expect("a number").to_string();
    let mut seen = BTreeMap::new();
    for request in REQUESTS {
        let answer = get(port, &request.replace("$CID", &cid));
        let content = match serde_json::from_str::<Value>(&answer.body) {
            Ok(value) => {
                let mut found = BTreeMap::new();
                paths("", &value, &mut found);
                json!(found)
            }
            Err(_) => json!(answer.body.trim()),
        };
        let told = json!({ "status": answer.status, "type": answer.kind, "content": content });
        seen.insert((*request).to_owned(), told);
    }
    seen
}

fn is_known_gap(request: &str, path: &str) -> bool {
    let full = format!("{request} {path}");
    KNOWN_GAPS.iter().any(|(gap, _)| match gap.strip_suffix('*') {
        Some(start) => full.starts_with(start),
        None => full == *gap,
    })
}

#[test]
fn answers_have_the_fields_of_the_reference() {
    let dir = TempDir::new("monitoring");
    let seen = observe(dir.path());
    if std::env::var_os("UPDATE_FIXTURE").is_some() {
        let text = serde_json::to_string_pretty(&seen).expect("JSON") + "\n";
        std::fs::write(FIXTURE, text).expect("write the fixture");
        return;
    }
    let text = std::fs::read_to_string(FIXTURE).expect("the fixture");
    let reference: BTreeMap<String, Value> = serde_json::from_str(&text).expect("JSON");
    let mut differences = Vec::new();
    for request in REQUESTS {
        let (theirs, ours) = (&reference[*request], &seen[*request]);
        for part in ["status", "type"] {
            if theirs[part] != ours[part] {
                differences.push(format!("{request}: {part} {} for {}", ours[part], theirs[part]));
            }
        }
        match &theirs["content"] {
            Value::Object(fields) => {
                for (path, kind) in fields {
                    let mine = &ours["content"][path];
                    if mine != kind && !is_known_gap(request, path) {
                        differences.push(format!("{request}: {path} is {mine} and not {kind}"));
                    }
                }
            }
            text if *text != ours["content"] => {
                differences.push(format!("{request}: {} for {text}", ours["content"]));
            }
            _ => {}
        }
    }
    assert!(differences.is_empty(), "\n{}", differences.join("\n"));
}

#[test]
fn details_of_what_is_there() {
    let dir = TempDir::new("monitoring-details");
    let server = Server::start(dir.path(), &["-m", "-1"]);
    let port = monitor_port(dir.path());
    let mut client = server.connect();
    create_stream(&mut client, "S", &json!({}));
    let consumer =
        json!({"stream_name": "S", "config": {"durable_name": "C", "ack_policy": "explicit"}});
    api_ok(&mut client, "CONSUMER.DURABLE.CREATE.S.C", &consumer);
    for _ in 0..5 {
        publish_ok(&mut client, "S.x", b"hello");
    }
    assert_eq!(fetch(&mut client, "S", "C", 2).len(), 2);
    client.subscribe("seen.*", "").expect("subscribe");
    client.subscribe("other", "group").expect("subscribe");
    api_ok(&mut client, "INFO", &Value::Null);
    let json = |path: &str| -> Value {
        let answer = get(port, path);
        serde_json::from_str(&answer.body).unwrap_or_else(|_| panic!("{path}: {}", answer.body))
    };
    let listed = json("/subsz?subs=1&test=seen.x");
    assert_eq!(listed["total"], 1, "{listed}");
    assert_eq!(listed["subscriptions_list"][0]["subject"], "seen.*");
    assert_eq!(json("/subsz?subs=1&acc=nobody")["total"], 0);
    let page = json("/subsz?subs=1&limit=1&offset=1");
    assert_eq!(page["subscriptions_list"].as_array().map(Vec::len), Some(1), "{page}");
    let account = json("/accstatz")["account_statz"][0].clone();
    assert_eq!((&account["acc"], &account["conns"]), (&json!("$G"), &json!(1)), "{account}");
    assert!(account["received"]["msgs"].as_u64() > Some(5), "{account}");
    assert_eq!(json("/accountz?acc=$G")["account_detail"]["jetstream_enabled"], true);
    assert!(json("/ipqueuesz?all=1").as_object().is_some_and(|queues| queues.len() == 2));
    assert!(get(port, "/stacksz").body.contains("threads:"));
    let only = json("/connz?acc=$G&filter_subject=seen.%3E");
    assert_eq!(only["num_connections"], 1, "{only}");
    assert_eq!(json("/connz?acc=$G&filter_subject=unseen")["num_connections"], 0);

    let metrics = get(port, "/metrics").body;
    let value = |line: &str| -> f64 {
        let found = metrics.lines().find_map(|l| l.strip_prefix(line)?.strip_prefix(' '));
        found.unwrap_or_else(|| panic!("no {line} in\n{metrics}")).parse().expect("a number")
    };
    let of = "{account=\"$G\",stream=\"S\",consumer=\"C\"}";
    assert_eq!(value(&format!("nuthatch_consumer_pending_messages{of}")), 3.0);
    assert_eq!(value(&format!("nuthatch_consumer_ack_pending_messages{of}")), 2.0);
    assert_eq!(value("nuthatch_stream_messages{account=\"$G\",stream=\"S\"}"), 5.0);
    assert_eq!(value("nuthatch_durability{level=\"always\"}"), 1.0);
    assert!(value("nuthatch_log_commit_seconds_count{log=\"default\"}") >= 5.0);
    assert!(value("nuthatch_log_syncs_total{log=\"default\"}") >= 5.0);
    assert!(value("nuthatch_runtime_tasks") >= 2.0);
    let bounded = get(port, "/metrics?streams=0").body;
    assert!(bounded.contains("nuthatch_metrics_omitted{what=\"streams\"} 1"), "{bounded}");
    assert!(!bounded.contains("stream=\"S\""), "{bounded}");
}
