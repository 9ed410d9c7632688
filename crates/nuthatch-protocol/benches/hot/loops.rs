//! What each loop does. Names are stable: results are compared across versions.

use std::hint::black_box;

use nuthatch_protocol::ack::{parse_ack, parse_ack_subject, parse_pull_request};
use nuthatch_protocol::headers::{find_header, has_nats_header};
use nuthatch_protocol::subject::map::SubjectMap;
use nuthatch_protocol::subject::tree::{MatchResult, SubjectTree};
use nuthatch_protocol::subject::{is_valid_publish_subject, matches};
use nuthatch_protocol::transform::Transform;
use nuthatch_protocol::wire::{Limits, parse_op, parse_server_op, write};

use super::Prepare;

pub(super) const LOOPS: &[(&str, Prepare)] = &[
    ("parse/pub_128", || parse(publish(b"", 128))),
    ("parse/pub_reply_128", || parse(publish_with_reply(b"", 128))),
    ("parse/hpub_reply_128", || parse(publish_with_reply(HEADERS, 128))),
    ("parse/ping", || parse(b"PING\r\n".to_vec())),
    ("parse/server_msg_128", parse_server_message),
    ("write/message_128", write_message),
    ("write/ack_reply", write_ack_reply),
    ("write/pub_ack", write_pub_ack),
    ("write/u64", write_number),
    ("subject/matches", subject_matches),
    ("subject/valid_publish", subject_valid),
    ("tree/match_literal_100k", || tree_match(b"orders.4711.status")),
    ("tree/match_wildcards_100k", || tree_match(b"events.eu.sensor.7")),
    ("tree/match_nobody_100k", || tree_match(b"telemetry.x.y")),
    ("map/lookup_hot", || map_lookup(16)),
    ("map/lookup_1m_random", || map_lookup(1_000_000)),
    ("map/intern_and_release", map_churn),
    ("headers/find_third", headers_find),
    ("headers/no_nats_header", headers_scan),
    ("ack/subject", ack_subject),
    ("ack/body", ack_body),
    ("ack/pull_request_json", pull_request),
    ("transform/partition", transform),
];

const HEADERS: &[u8] =
    b"NATS/1.0\r\nTrace-Id: 0af7651916cd43dd\r\nContent-Type: json\r\nNats-Msg-Id: 42\r\n\r\n";
const INBOX: &[u8] = b"_INBOX.hYvS0bZ2VhWm8mPpKcJ4Tq.0000000042";

fn repeat(mut turn: impl FnMut() + 'static) -> Box<dyn FnMut(u64)> {
    Box::new(move |turns| {
        for _ in 0..turns {
            turn();
        }
    })
}

fn publish(headers: &[u8], size: usize) -> Vec<u8> {
    let mut out = Vec::new();
    write::push_publish(&mut out, b"orders.eu.4711", None, headers, &vec![b'x'; size]);
    out
}

fn publish_with_reply(headers: &[u8], size: usize) -> Vec<u8> {
    let mut out = Vec::new();
    write::push_publish(&mut out, b"orders.eu.4711", Some(INBOX), headers, &vec![b'x'; size]);
    out
}

fn parse(input: Vec<u8>) -> Box<dyn FnMut(u64)> {
    let limits = Limits::default();
    repeat(move || {
        let _ = black_box(parse_op(black_box(&input), black_box(&limits)));
    })
}

fn parse_server_message() -> Box<dyn FnMut(u64)> {
    let mut input = Vec::new();
    write::push_message(&mut input, b"orders.eu.4711", b"42", Some(INBOX), b"", &[b'x'; 128]);
    repeat(move || {
        let _ = black_box(parse_server_op(black_box(&input)));
    })
}

fn write_message() -> Box<dyn FnMut(u64)> {
    let mut out = Vec::with_capacity(4096);
    let payload = [b'x'; 128];
    repeat(move || {
        out.clear();
        let subject = black_box(&b"orders.eu.4711"[..]);
        write::push_message(&mut out, subject, b"42", Some(INBOX), b"", black_box(&payload));
        black_box(&out);
    })
}

fn write_ack_reply() -> Box<dyn FnMut(u64)> {
    let mut out = Vec::with_capacity(4096);
    let mut prefix = Vec::new();
    write::push_ack_prefix(&mut prefix, b"ORDERS", b"worker");
    let reply = write::AckReply {
        delivered: 1,
        stream_seq: 1_234_567,
        consumer_seq: 1_234_568,
        timestamp_ns: 1_700_000_000_123_456_789,
        pending: 99_999,
    };
    repeat(move || {
        out.clear();
        write::push_ack_reply(&mut out, black_box(&prefix), black_box(&reply));
        black_box(&out);
    })
}

fn write_pub_ack() -> Box<dyn FnMut(u64)> {
    let mut out = Vec::with_capacity(4096);
    repeat(move || {
        out.clear();
        write::push_pub_ack(&mut out, black_box("ORDERS"), black_box(1_234_567), None, false);
        black_box(&out);
    })
}

fn write_number() -> Box<dyn FnMut(u64)> {
    let mut out = Vec::with_capacity(4096);
    repeat(move || {
        out.clear();
        write::push_u64(&mut out, black_box(1_234_567));
        black_box(&out);
    })
}

fn subject_matches() -> Box<dyn FnMut(u64)> {
    repeat(|| {
        black_box(matches(black_box(b"orders.*.4711.>"), black_box(b"orders.eu.4711.status.new")));
    })
}

fn subject_valid() -> Box<dyn FnMut(u64)> {
    repeat(|| {
        black_box(is_valid_publish_subject(black_box(b"orders.eu.4711.status.new")));
    })
}

/// 100,000 literal and inbox subscriptions, a few wildcards and a queue group.
fn tree_match(subject: &'static [u8]) -> Box<dyn FnMut(u64)> {
    let mut tree = SubjectTree::default();
    for i in 0..50_000u32 {
        tree.insert(format!("orders.{i}.status").as_bytes(), None, i);
        tree.insert(format!("_INBOX.{i:022}.*").as_bytes(), None, i);
    }
    tree.insert(b"events.*.sensor.*", None, 1);
    tree.insert(b"events.eu.>", None, 2);
    tree.insert(b"events.eu.*.7", Some(b"workers"), 3);
    let mut result = MatchResult::default();
    repeat(move || {
        result.clear();
        tree.match_into(black_box(subject), &mut result);
        black_box(&result);
    })
}

fn map_lookup(count: u32) -> Box<dyn FnMut(u64)> {
    let mut map = SubjectMap::default();
    let names: Vec<String> = (0..count).map(|i| format!("orders.{i}.status")).collect();
    for name in &names {
        map.intern(name.as_bytes());
    }
    let mut at = 0usize;
    repeat(move || {
        // A stride that visits them all in an order no prefetcher guesses.
        at = (at + 618_033) % names.len();
        black_box(map.lookup(black_box(names[at].as_bytes())));
    })
}

fn map_churn() -> Box<dyn FnMut(u64)> {
    let mut map = SubjectMap::default();
    for i in 0..10_000 {
        map.intern(format!("orders.{i}.status").as_bytes());
    }
    repeat(move || {
        let id = map.intern(black_box(b"orders.new.status"));
        black_box(map.release(id));
    })
}

fn headers_find() -> Box<dyn FnMut(u64)> {
    repeat(|| {
        black_box(find_header(black_box(HEADERS), black_box(b"Nats-Msg-Id")));
    })
}

fn headers_scan() -> Box<dyn FnMut(u64)> {
    let block = b"NATS/1.0\r\nTrace-Id: 0af7651916cd43dd\r\nContent-Type: json\r\n\r\n";
    repeat(move || {
        black_box(has_nats_header(black_box(block)));
    })
}

fn ack_subject() -> Box<dyn FnMut(u64)> {
    let subject = b"$JS.ACK.ORDERS.worker.1.1234567.1234568.1700000000123456789.99999";
    repeat(move || {
        black_box(parse_ack_subject(black_box(subject)));
    })
}

fn ack_body() -> Box<dyn FnMut(u64)> {
    repeat(|| {
        black_box(parse_ack(black_box(b"+ACK")));
    })
}

fn pull_request() -> Box<dyn FnMut(u64)> {
    let body = br#"{"batch":100,"expires":30000000000,"idle_heartbeat":15000000000}"#;
    repeat(move || {
        let _ = black_box(parse_pull_request(black_box(body)));
    })
}

fn transform() -> Box<dyn FnMut(u64)> {
    // Compiled from constants, so it cannot fail; if it did the loop would show it.
    let transform = Transform::new("orders.*.>", "orders.{{partition(10,1)}}.$1.>").ok();
    let mut out = Vec::with_capacity(256);
    repeat(move || {
        out.clear();
        if let Some(transform) = &transform {
            transform.apply(black_box(b"orders.4711.status.new"), 0, &mut out);
        }
        black_box(&out);
    })
}
