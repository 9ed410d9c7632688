//! What others send or leave lying about, wrong in every way, against the real server: each gets a clear
//! error, nothing that was stored is lost, and the process lives on.
//!
//! Damaged segment files are in `doctor.rs`, corrupt bytes of every format in `fuzz_corpus.rs`.

mod support;

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output};
use std::time::Duration;
use support::{Server, TIMEOUT, TempDir, api, create_stream, publish_ok, read_all, stream_state};

/// A server with a stream of three messages, which every test must leave as they are.
struct Rig {
    _place: TempDir,
    server: Server,
}

impl Rig {
    fn new(name: &str) -> Self {
        let place = TempDir::new(name);
        let server = Server::start(place.path(), &[]);
        let mut client = server.connect();
        create_stream(&mut client, "KEPT", &json!({}));
        for n in 1..=3 {
            assert_eq!(publish_ok(&mut client, "KEPT.a", format!("{n}").as_bytes()), n);
        }
        Self { _place: place, server }
    }

    /// A connection without a client library, past the greeting.
    fn raw(&self) -> BufReader<TcpStream> {
        let address = self.server.url.trim_start_matches("nats://");
        let stream = TcpStream::connect(address).expect("connects");
        stream.set_read_timeout(Some(TIMEOUT)).expect("sets");
        let mut reader = BufReader::new(stream);
        let mut info = String::new();
        reader.read_line(&mut info).expect("greets");
        assert!(info.starts_with("INFO {"), "{info}");
        reader
    }

    /// Sends bytes after a valid CONNECT and reads all answers until the server closes or, with
    /// `end`, until that line comes.
    fn exchange(&self, bytes: &[u8], end: &str) -> String {
        let mut reader = self.raw();
        let connect = b"CONNECT {\"verbose\":false,\"headers\":true}\r\n";
        reader.get_mut().write_all(connect).expect("writes");
        // The server may close before it has read everything.
        let _ = reader.get_mut().write_all(bytes);
        let mut all = String::new();
        loop {
            let mut line = Vec::new();
            match reader.read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return all,
                Ok(_) => all += &String::from_utf8_lossy(&line),
            }
            if !end.is_empty() && all.ends_with(end) {
                return all;
            }
        }
    }

    /// What was stored is there, and the server serves.
    fn check(&mut self) {
        assert!(self.server.is_alive(), "{}", self.server.log_tail());
        let mut client = self.server.connect();
        assert_eq!(stream_state(&mut client, "KEPT")["messages"], json!(3));
        let read = read_all(&mut client, "KEPT", 1);
        let bodies: Vec<_> = read.iter().map(|(_, message)| message.payload.clone()).collect();
        assert_eq!(bodies, [b"1", b"2", b"3"]);
    }
}

#[test]
fn protocol_lines_that_are_cut_too_long_or_lie() {
    let mut rig = Rig::new("bad-lines");
    // As nats-server: arguments that make no sense end the connection without a word.
    let closed = "";
    let unknown = "-ERR 'Unknown Protocol Operation'";
    let control = "-ERR 'maximum control line exceeded'";
    let long = format!("PUB {} 1\r\nx\r\n", "a".repeat(5000));
    let megabyte = format!("PUB {} 1\r\nx\r\n", "a.".repeat(512 * 1024));
    let cases: [(&[u8], &str); 12] = [
        (b"NONSENSE\r\n", unknown),
        (b"\r\n", unknown),
        (b"PUB KEPT.a\r\n", closed),
        (b"PUB KEPT.a -1\r\nx\r\n", closed),
        (b"PUB KEPT.a 99999999999999999999999\r\n", closed),
        (b"PUB KEPT.a 2\r\nabc\r\n", unknown),
        (b"PUB KEPT.a 20971520\r\n", "-ERR 'Maximum Payload Violation'"),
        (b"HPUB KEPT.a 30 10\r\n", closed),
        (b"HPUB KEPT.a x 10\r\n", closed),
        (long.as_bytes(), control),
        (megabyte.as_bytes(), control),
        (b"SUB\r\n", unknown),
    ];
    for (bytes, expected) in cases {
        let answer = rig.exchange(bytes, "");
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]);
        assert!(answer.contains(expected), "{shown}: {answer:?}");
    }
    for cut in
        [&b"PUB KEPT.a 5\r\nab"[..], b"HPUB KEPT.a 12 14\r\nNATS/1.0\r\n", b"CONN", b"PUB KEPT"]
    {
        let mut reader = rig.raw();
        reader.get_mut().write_all(cut).expect("writes");
    }
    rig.check();
}

/// The header block is shorter or longer than what it says, or no header block at all.
#[test]
fn header_lengths_that_lie() {
    let mut rig = Rig::new("bad-headers");
    let blocks: [&[u8]; 4] = [
        b"HPUB core.a 14 16\r\nNATS/1.0\r\n\r\nhi\r\n",
        b"HPUB core.a 5 16\r\nNATS/1.0\r\n\r\nhihi\r\n",
        b"HPUB core.a 12 14\r\nNOTS/1.0\r\n\r\nhi\r\n",
        b"HPUB core.a 12 14\r\n\xff\xfe\xfd\x00\x01\x02\x03\x04\x05\x06\x07\x08hi\r\n",
    ];
    for block in blocks {
        let mut bytes = block.to_vec();
        bytes.extend_from_slice(b"PING\r\n");
        let answer = rig.exchange(&bytes, "PONG\r\n");
        assert!(answer.contains("PONG") || answer.contains("-ERR"), "{answer:?}");
    }
    // To a stream: refused or stored as it came, never a crash; a lying length is never stored.
    let mut client = rig.server.connect();
    create_stream(&mut client, "HEADERS", &json!({}));
    let reply = client.request(
        "HEADERS.a",
        b"NATS/1.0\r\nNats-Expected-Last-Sequence: x\r\n\r\n",
        b"",
        TIMEOUT,
    );
    let ack: Value = serde_json::from_slice(&reply.expect("answers").payload).expect("JSON");
    assert!(ack.get("error").is_some() || ack["seq"] == json!(1), "{ack}");
    rig.check();
}

#[test]
fn invalid_utf8_is_no_reason_to_die() {
    let mut rig = Rig::new("bad-utf8");
    let bytes =
        b"SUB \xff\xfe.* 1\r\nPUB \xff\xfe.x 3\r\n\x80\x81\x82\r\nPUB KEPTX\xc3 0\r\n\r\nPING\r\n";
    let answer = rig.exchange(bytes, "PONG\r\n");
    assert!(answer.contains("PONG") || answer.contains("-ERR"), "{answer:?}");
    let mut client = rig.server.connect();
    for body in [&b"{\"name\":\"\xff\xfe\"}"[..], b"\xff", b"\xef\xbb\xbf{}"] {
        let reply = client.request("$JS.API.STREAM.CREATE.U", b"", body, TIMEOUT).expect("answers");
        let value: Value = serde_json::from_slice(&reply.payload).expect("JSON");
        assert_eq!(value["error"]["code"], json!(400), "{value}");
    }
    rig.check();
}

#[test]
fn json_bombs_get_an_error() {
    let mut rig = Rig::new("bad-json");
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let deep_object = "{\"a\":".repeat(50_000);
    let many = format!("{{\"name\":\"B\",\"subjects\":[{}]}}", vec!["\"b.x\""; 40_000].join(","));
    let huge = format!("{{\"name\":\"B\",\"max_msgs\":{}}}", "9".repeat(50_000));
    let bodies = [
        deep,
        deep_object,
        many,
        huge,
        "{\"name\":\"B\",\"max_age\":1e400}".to_owned(),
        "{\"name\":\"B\",\"max_bytes\":-99999999999999999999}".to_owned(),
        "{\"name\":\"B\",\"subjects\":{}}".to_owned(),
        "{\"name\":7}".to_owned(),
        "{\"name\":\"B\"".to_owned(),
        "null".to_owned(),
    ];
    let mut client = rig.server.connect();
    for body in bodies {
        let call = "$JS.API.STREAM.CREATE.B";
        let reply = client.request(call, b"", body.as_bytes(), TIMEOUT).expect("answers");
        let value: Value = serde_json::from_slice(&reply.payload).expect("JSON");
        let shown = &body[..body.len().min(60)];
        assert!(value["error"]["code"].as_u64().is_some(), "{shown}: {value}");
        assert!(value["error"]["description"].as_str().is_some_and(|text| !text.is_empty()));
    }
    rig.check();
}

/// A field that no version knows is refused when strict (the default), with its name.
#[test]
fn unknown_fields_are_named() {
    let mut rig = Rig::new("bad-fields");
    let mut client = rig.server.connect();
    let config = json!({"name": "F", "subjects": ["f.>"], "max_mgs": 5});
    let answer = api(&mut client, "STREAM.CREATE.F", &config);
    let text = answer["error"]["description"].as_str().unwrap_or_default();
    assert!(text.contains("max_mgs"), "{answer}");
    let answer = api(&mut client, "STREAM.INFO.F", &Value::Null);
    assert_eq!(answer["error"]["code"], json!(404), "{answer}");
    rig.check();
}

fn check_config(text: &str) -> Output {
    let place =
        TempDir::new(&format!("bad-config-{:x}", text.len() * 31 + text.as_bytes()[0] as usize));
    std::fs::write(place.path().join("server.conf"), text).expect("writes");
    Command::new(env!("CARGO_BIN_EXE_nuthatch"))
        .args(["serve", "-t", "-c", "server.conf"])
        .current_dir(place.path())
        .output()
        .expect("runs")
}

/// Twenty-two mistakes: exit code 1, and an error with the place and the thing.
#[test]
fn configuration_files_wrong_in_twenty_ways() {
    let cases = [
        ("max_paylaod: 1\n", "max_payload"),
        ("port: many\n", "port"),
        ("port: 70000\n", "port"),
        ("port: -5\n", "port"),
        ("port: {a: 1}\n", "port"),
        ("host\n", "server.conf:"),
        ("a: [1, 2\n", "server.conf:"),
        ("a { b: 1\n", "server.conf:"),
        ("a: 1 b: ]\n", "server.conf:1:"),
        ("host: \"x\n", "server.conf:"),
        ("host: \"\\q\"\n", "server.conf:"),
        ("include \"missing.conf\"\n", "missing.conf"),
        ("include \"server.conf\"\n", "server.conf"),
        ("host: $NO_SUCH_VARIABLE_HERE\n", "NO_SUCH_VARIABLE_HERE"),
        ("ping_interval: 2m\n", "ping_interval"),
        ("max_payload: 99999999999999999999\n", "server.conf:"),
        ("authorization { users = 7 }\n", "users"),
        ("authorization { users = [ {password: x} ] }\n", "user"),
        ("tls { cert_file: nowhere.pem }\n", "server.conf"),
        ("jetstream { sync_interval: sometimes }\n", "sync_interval"),
        ("jetstream { max_mem: lots }\n", "max_mem"),
        ("\u{0}\u{1}\n", "server.conf:1:"),
    ];
    for (text, expected) in cases {
        let out = check_config(text);
        let error = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(1), "{text:?}: {error}");
        assert!(error.contains(expected), "{text:?}: {error}");
        assert!(!error.contains("panicked"), "{text:?}: {error}");
    }
}

/// A configuration that is no text at all.
#[test]
fn a_binary_configuration_is_refused() {
    let place = TempDir::new("bad-config-binary");
    std::fs::write(place.path().join("server.conf"), [0xFF, 0xFE, 0x00, 0x80]).expect("writes");
    let out = Command::new(env!("CARGO_BIN_EXE_nuthatch"))
        .args(["serve", "-t", "-c", "server.conf"])
        .current_dir(place.path())
        .output()
        .expect("runs");
    let error = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(1), "{error}");
    assert!(error.contains("server.conf"), "{error}");
}

/// Hundreds of connections that say nonsense and leave: they cost nobody else anything.
#[test]
fn a_crowd_of_nonsense_harms_nobody() {
    let mut rig = Rig::new("bad-crowd");
    for n in 0..300_u32 {
        let mut reader = rig.raw();
        let noise: Vec<u8> = (0..64).map(|i: u32| (n.wrapping_mul(i + 7) >> 3) as u8).collect();
        let _ = reader.get_mut().write_all(&noise);
        if n % 3 == 0 {
            reader.get_ref().set_read_timeout(Some(Duration::from_millis(20))).expect("sets");
            let _ = reader.read(&mut [0; 64]);
        }
    }
    rig.check();
}
