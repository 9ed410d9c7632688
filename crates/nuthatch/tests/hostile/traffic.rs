//! The corpora of the fuzzers, and mutations of them, as traffic.

use crate::mutate::{Random, corpus, mutate};
use crate::rig::{Rig, scaled};
use crate::websocket;
use crate::wire::Raw;
use crate::{Attack, Outcome};
use std::io::Read as _;
use std::time::{Duration, Instant};

/// How long each kind is sent.
const TIME: Duration = Duration::from_secs(scaled(5, 2) as u64);
/// Mutated inputs on one connection, if it lasts.
const INPUTS: usize = 32;
/// Longest wait for what the server says to one connection; most say nothing or close at once.
const HEAR: Duration = Duration::from_millis(5);

pub const ATTACKS: &[Attack] = &[
    Attack::new("fuzz-core", |rig| {
        send(rig, "protocol", client, |input| input.get(1..).unwrap_or(b"").to_vec())
    }),
    Attack::new("fuzz-headers", |rig| send(rig, "headers", client, publish_with_headers)),
    Attack::new("fuzz-json", |rig| send(rig, "requests", client, request)),
    Attack::new("fuzz-connect", |rig| send(rig, "requests", stranger, connect)),
    Attack::new("fuzz-leaf", |rig| send(rig, "leaf", leaf, <[u8]>::to_vec)),
    Attack::new("fuzz-websocket", |rig| send(rig, "protocol", websocket_client, frame)),
    Attack::new("fuzz-websocket-raw", |rig| send(rig, "frame", websocket_client, <[u8]>::to_vec)),
    Attack::new("fuzz-http", |rig| send(rig, "headers", http, http_request)),
];

/// Opens connections and sends inputs, made traffic, until the time is over.
fn send(rig: &Rig, name: &str, open: fn(&Rig) -> Raw, dress: fn(&[u8]) -> Vec<u8>) -> Outcome {
    let corpus = corpus(name);
    let mut random = Random::new(name.len() as u64);
    let (deadline, mut sent, mut connections) = (Instant::now() + TIME, 0, 0);
    while Instant::now() < deadline {
        let mut raw = open(rig);
        connections += 1;
        for _ in 0..INPUTS {
            let mut input = corpus[random.below(corpus.len())].clone();
            for _ in 0..random.below(6) {
                mutate(&mut input, &corpus, &mut random);
            }
            if !raw.send(&dress(&input)) {
                break;
            }
            sent += 1;
        }
        hear(&mut raw);
    }
    Ok(format!("{sent} inputs, {connections} connections"))
}

fn hear(raw: &mut Raw) {
    raw.socket.set_read_timeout(Some(HEAR)).expect("sets");
    let mut buffer = [0; 16 << 10];
    while raw.socket.read(&mut buffer).is_ok_and(|count| count > 0) {}
}

fn client(rig: &Rig) -> Raw {
    Raw::client(&rig.address(), "attacker")
}

fn stranger(rig: &Rig) -> Raw {
    Raw::open(&rig.address())
}

fn leaf(rig: &Rig) -> Raw {
    let mut raw = Raw::open(&format!("127.0.0.1:{}", rig.leaf_port));
    raw.send(b"CONNECT {\"user\":\"attacker\",\"pass\":\"attacker\",\"name\":\"fuzz\",\"headers\":true}\r\n");
    raw
}

fn websocket_client(rig: &Rig) -> Raw {
    websocket::client(rig)
}

fn http(rig: &Rig) -> Raw {
    Raw::open(&rig.http())
}

fn publish_with_headers(block: &[u8]) -> Vec<u8> {
    let len = block.len();
    [format!("HPUB fuzz.headers {len} {}\r\n", len + 2).as_bytes(), block, b"hi\r\n"].concat()
}

/// A request whose kind the input's length chooses.
fn request(body: &[u8]) -> Vec<u8> {
    let calls = [
        "STREAM.CREATE.FUZZ",
        "STREAM.UPDATE.FUZZ",
        "STREAM.NAMES",
        "STREAM.LIST",
        "STREAM.PURGE.FUZZ",
        "STREAM.MSG.GET.FUZZ",
        "STREAM.MSG.DELETE.FUZZ",
        "STREAM.SNAPSHOT.FUZZ",
        "STREAM.RESTORE.FUZZ2",
        "CONSUMER.CREATE.FUZZ",
        "CONSUMER.DURABLE.CREATE.FUZZ.C",
        "CONSUMER.MSG.NEXT.FUZZ.C",
        "DIRECT.GET.FUZZ",
        "INFO",
        "STREAM.DELETE.FUZZ",
    ];
    let call = calls[body.len() % calls.len()];
    let subject = if body.len().is_multiple_of(7) {
        "$SYS.REQ.ACCOUNT.PING.CONNZ".to_owned()
    } else {
        format!("$JS.API.{call}")
    };
    [format!("PUB {subject} fuzz.reply {}\r\n", body.len()).as_bytes(), body, b"\r\n"].concat()
}

fn connect(body: &[u8]) -> Vec<u8> {
    [b"CONNECT ", body, b"\r\nPING\r\n"].concat()
}

/// A frame whose first byte the input chooses.
fn frame(input: &[u8]) -> Vec<u8> {
    let first = [0x82, 0x81, 0x02, 0x80, 0xc2, 0x89, 0x8a, 0x88, 0xf2, 0x83];
    websocket::frame(first[input.first().map_or(0, |byte| usize::from(*byte)) % first.len()], input)
}

fn http_request(input: &[u8]) -> Vec<u8> {
    let pages = [
        "/varz",
        "/connz?subs=1&limit=",
        "/subsz?",
        "/jsz?acc=",
        "/healthz?",
        "/metrics?",
        "/accountz?acc=",
        "/%",
    ];
    let page = pages[input.len() % pages.len()];
    let head = format!(
        "GET {page}{} HTTP/1.1\r\nHost: x\r\n",
        input.escape_ascii().to_string().replace(' ', "%20")
    );
    match input.len() % 3 {
        0 => [head.as_bytes(), input, b"\r\n\r\n"].concat(),
        1 => [b"GET ", input, b" HTTP/1.1\r\nHost: x\r\n\r\n"].concat(),
        _ => [head.as_bytes(), b"\r\n"].concat(),
    }
}
