//! What commands tell: errors in the words of what was asked for, facts beside messages, sums.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use serde_json::Value;

use super::Server;

/// The error of a command that ends with 1.
fn refused(server: &Server, args: &[&str]) -> String {
    let (code, text) = server.fails(args);
    assert_eq!(code, 1, "{args:?}: {text}");
    text.trim_end().to_owned()
}

#[test]
fn what_does_not_exist_is_named_and_what_is_meant_too() {
    let server = Server::start(&[]);
    server.ok(&["stream", "add", "ORDERS", "--defaults"]);
    server.ok(&["consumer", "add", "ORDERS", "billing", "--pull"]);
    server.ok(&["kv", "add", "CONFIG"]);
    server.ok(&["object", "add", "FILES"]);
    let check = |args: &[&str], expected: &str| {
        assert_eq!(refused(&server, args), format!("nuthatch: {expected}"), "{args:?}");
    };
    let stream = "stream ORDER: stream not found; did you mean ORDERS? (10059)";
    check(&["stream", "info", "ORDER"], stream);
    check(&["stream", "get", "ORDER", "1"], stream);
    let consumer =
        "consumer biling of stream ORDERS: consumer not found; did you mean billing? (10014)";
    check(&["consumer", "info", "ORDERS", "biling"], consumer);
    check(&["consumer", "next", "ORDERS", "biling", "--wait", "200ms"], consumer);
    let bucket = "there is no bucket config; did you mean CONFIG?";
    check(&["kv", "get", "config", "k"], bucket);
    check(&["kv", "put", "config", "k", "v"], bucket);
    check(&["kv", "ls", "config"], bucket);
    check(&["kv", "info", "config"], bucket);
    check(&["kv", "del", "config", "-f"], bucket);
    check(&["kv", "info", "NOWHERE"], "there is no bucket NOWHERE");
    let files = "there is no bucket FILE; did you mean FILES?";
    check(&["object", "get", "FILE", "x"], files);
    check(&["object", "ls", "FILE"], files);
    check(&["object", "rm", "FILE", "-f"], files);
    check(&["object", "get", "FILES", "x"], "bucket FILES has no file \"x\"");
    let (code, text) = server.fails(&["steam"]);
    assert!(code == 2 && text.contains("similar") && text.contains("'stream'"), "{text}");
}

#[test]
fn a_key_that_has_changed_says_how() {
    let server = Server::start(&[]);
    server.ok(&["kv", "add", "C"]);
    server.ok(&["kv", "put", "C", "k", "1"]);
    let update = |revision: &str| refused(&server, &["kv", "update", "C", "k", "2", revision]);
    let nothing = "nuthatch: nothing was written: key k of bucket C";
    assert_eq!(update("7"), format!("{nothing} has revision 1, not revision 7"));
    server.ok(&["kv", "del", "C", "k", "-f"]);
    assert_eq!(update("1"), format!("{nothing} was deleted in revision 2, not revision 1"));
    let other = refused(&server, &["kv", "update", "C", "z", "2", "1"]);
    assert!(other.ends_with("key z of bucket C has no value, not revision 1"), "{other}");
}

#[test]
fn many_publishes_are_summed_up() {
    let server = Server::start(&[]);
    server.ok(&["stream", "add", "S", "--subjects", "s.>", "--defaults"]);
    let stored = server.ok(&["pub", "-J", "s.{{Count}}", "x", "--count", "1000"]);
    assert_eq!(stored, "Stored 1,000 messages in stream S as sequences 1 to 1000\n");
    let id = ["pub", "-J", "s.a", "x", "--count", "3", "-H", "Nats-Msg-Id:a"];
    let again = server.ok(&id);
    assert!(again.ends_with("sequences 1001 to 1001, 2 duplicates among them\n"), "{again}");
    let plain = server.ok(&["pub", "other", "xy", "--count", "3"]);
    assert_eq!(plain, "Published 3 messages, 6 bytes, to \"other\"\n");
    let mut lines = server.command(&["pub", "-J", "s.b", "--send-on", "newline"]);
    let mut lines = lines.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    lines.stdin.take().unwrap().write_all(b"one\ntwo\n").unwrap();
    let output = lines.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text, "Stored 2 messages in stream S as sequences 1002 to 1003\n");
    // Programs hear of each message.
    let acks = server.ok(&["pub", "-J", "s.c", "x", "--count", "2", "--json"]);
    let acks: Vec<Value> =
        serde_json::Deserializer::from_str(&acks).into_iter().map(Result::unwrap).collect();
    assert_eq!((acks.len(), &acks[1]["seq"]), (2, &1005.into()));
    // What was stored before a failure is told too.
    server.ok(&["stream", "add", "FEW", "--subjects", "f", "--max-msgs", "2", "--discard", "new"]);
    let output = server.run(&["pub", "-J", "f", "x", "--count", "5"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text, "Stored 2 messages in stream FEW as sequences 1 to 2\n");
}

#[test]
fn a_fetched_message_comes_with_its_facts() {
    let server = Server::start(&[]);
    server.ok(&["stream", "add", "S", "--subjects", "s", "--defaults"]);
    server.ok(&["consumer", "add", "S", "c", "--pull"]);
    server.ok(&["pub", "-J", "s", "m{{Count}}", "--count", "3"]);
    let next = |args: &[&str]| server.ok(&[&["consumer", "next", "S", "c"], args].concat());
    let text = next(&["--nak"]);
    assert!(text.starts_with("[1] ") && text.contains(" \"s\": try 1, delivery 1, "), "{text}");
    assert!(text.ends_with(" old, 2 pending\nm1\n1 message given back, to be delivered again\n"));
    let told: Value = serde_json::from_str(&next(&["--json"])).unwrap();
    let field = |name: &str| told[name].as_u64().unwrap();
    assert_eq!((field("seq"), field("deliveries"), field("consumer_seq")), (1, 2, 2));
    assert_eq!(
        (field("pending"), &told["answer"], &told["data"]),
        (2, &"ack".into(), &"m1".into())
    );
    assert!(told["time"].as_str().unwrap().ends_with('Z') && told["reply"].is_string(), "{told}");
    let info = server.json(&["consumer", "info", "S", "c"]);
    assert_eq!(info["ack_floor"]["stream_seq"], 1, "{info}");
    assert!(next(&["--count", "2"]).ends_with("\nm3\n2 messages acknowledged\n"));
    let shown = server.ok(&["consumer", "info", "S", "c"]);
    assert!(shown.contains("Last acknowledgement: ") && shown.contains("s ago"), "{shown}");
}

#[test]
fn streams_are_found_and_their_gaps_shown() {
    let server = Server::start(&[]);
    server.ok(&["stream", "add", "ORDERS", "--subjects", "o.>", "--defaults"]);
    server.ok(&["stream", "add", "EMPTY", "--subjects", "e", "--defaults"]);
    server.ok(&["pub", "-J", "o.a", "x", "--count", "9"]);
    for seq in ["3", "4", "7"] {
        server.ok(&["stream", "rmm", "ORDERS", seq, "-f"]);
    }
    let find = |args: &[&str]| server.ok(&[&["stream", "find", "-n"], args].concat());
    assert_eq!(find(&["--empty"]), "EMPTY\n");
    assert_eq!(find(&["--empty", "--invert"]), "ORDERS\n");
    assert_eq!(find(&["order"]), "ORDERS\n");
    assert_eq!(find(&["--subject", "o.b"]), "ORDERS\n");
    assert_eq!(find(&["--created", "1h"]), "");
    assert!(server.ok(&["stream", "find", "--mirrored"]).contains("No streams found"));
    let gaps = server.json(&["stream", "gaps", "ORDERS"]);
    let expected: Value =
        serde_json::from_str(r#"[{"first": 3, "last": 4}, {"first": 7, "last": 7}]"#).unwrap();
    assert_eq!((&gaps["gaps"], &gaps["last_seq"]), (&expected, &9.into()));
    let text = server.ok(&["stream", "gaps", "ORDERS"]);
    assert!(text.ends_with("3 messages removed in 2 gaps between sequences 1 and 9\n"), "{text}");
    let none = server.ok(&["stream", "gaps", "EMPTY"]);
    assert!(none.contains("has no gaps"), "{none}");
    let graph = server.ok(&["stream", "graph", "ORDERS", "--count", "2", "-d", "20ms"]);
    assert_eq!(graph.matches("stored/s").count(), 2, "{graph}");
    let list = server.json(&["server", "ls"]);
    assert!(list[0]["server_id"].is_string(), "{list}");
    let shown = server.ok(&["top", "--once", "-d", "20ms"]);
    assert!(shown.starts_with("Account: 2 streams, 0 consumers, "), "{shown}");
}

#[test]
fn a_pinned_group_is_set_free() {
    let server = Server::start(&[]);
    server.ok(&["stream", "add", "S", "--subjects", "s", "--defaults"]);
    server.ok(&["consumer", "add", "S", "c", "--pull"]);
    // Without priority groups there is nothing to set free, which the server says.
    let text = refused(&server, &["consumer", "unpin", "S", "c", "g", "-f"]);
    assert!(text.contains("could not unpin consumer c of stream S"), "{text}");
    let config = server.json(&["consumer", "info", "S", "c"])["config"].clone();
    let mut config = config;
    config["durable_name"] = "p".into();
    config["name"] = "p".into();
    config["priority_groups"] = serde_json::json!(["g"]);
    config["priority_policy"] = "pinned_client".into();
    config["priority_timeout"] = 60_000_000_000u64.into();
    let body = serde_json::json!({ "stream_name": "S", "config": config }).to_string();
    server.ok(&["request", "$JS.API.CONSUMER.CREATE.S.p", &body, "--raw"]);
    let freed = server.ok(&["consumer", "unpin", "S", "p", "g", "-f"]);
    assert_eq!(freed, "Group g of consumer p is free for the next client that pulls\n");
    assert_eq!(server.fails(&["consumer", "unpin", "S", "p", "g"]).0, 2);
}

#[test]
fn an_interrupted_backup_is_no_backup() {
    let server = Server::start(&[]);
    server.ok(&["stream", "add", "S", "--subjects", "s", "--defaults"]);
    server.ok(&["pub", "-J", "s", "x", "--count", "2"]);
    let dir = server.dir.join("backup");
    let place = dir.to_str().unwrap();
    fs::create_dir_all(&dir).unwrap();
    // What a backup that was killed leaves.
    fs::write(dir.join("stream.tar.s2.part"), b"half").unwrap();
    let text = refused(&server, &["stream", "restore", place]);
    assert!(text.contains("was interrupted and is not whole; make it again"), "{text}");
    let output = server.run(&["stream", "backup", "S", place]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("stream.tar.s2.part is what an interrupted backup has left"), "{said}");
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(told.starts_with("Stream S: 2 messages and 0 consumers in "), "{told}");
    let mut files: Vec<_> =
        fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files, ["backup.json", "stream.tar.s2"]);
    server.ok(&["pub", "-J", "s", "x"]);
    assert_eq!(server.fails(&["stream", "backup", "S", place]).0, 2);
    let again = server.ok(&["stream", "backup", "S", place, "--force"]);
    assert!(again.starts_with("Stream S: 3 messages"), "{again}");
    server.ok(&["stream", "rm", "S", "-f"]);
    let restored = server.ok(&["stream", "restore", place]);
    assert_eq!(restored, "Stream S: 3 messages, sequences 1 to 3, 0 consumers\n");
}

#[test]
fn a_segment_that_is_not_there_is_refused() {
    let server = Server::start(&[]);
    server.ok(&["stream", "add", "S", "--subjects", "s", "--defaults"]);
    let dir = server.dir.join("nuthatch");
    let inspect = |args: &[&str]| {
        let output = server.run(&[&["log", "inspect", dir.to_str().unwrap()], args].concat());
        let text = String::from_utf8(output.stderr).unwrap();
        (output.status.code().unwrap(), text)
    };
    for args in [
        &["--segment", "nope"][..],
        &["--segment", "99"],
        &["--segment", "nope", "--frames"],
        &["--segment", "99", "--records"],
    ] {
        let (code, text) = inspect(args);
        assert_eq!(code, 2, "{args:?}: {text}");
        assert!(text.contains(&format!("no segment {}; there are: ", args[1])), "{text}");
    }
    assert_eq!(inspect(&["--segment", "1"]).0, 0);
    assert_eq!(inspect(&["--segment", "1", "--frames"]).0, 0);
}
