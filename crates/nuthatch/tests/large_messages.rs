//! 5 MB messages with `max_payload` raised: 500 published, 500 read in order by an ordered consumer.

mod support;

use serde_json::{Value, json};
use std::ops::ControlFlow;
use support::{Random, Server, TempDir, api_ok, create_stream, position, publish_ok};

const MESSAGES: u64 = 500;
const SIZE_BYTES: usize = 5_000_000;

#[test]
fn five_hundred_messages_of_five_megabytes() {
    let dir = TempDir::new("large");
    let config = dir.path().join("large.conf");
    std::fs::write(&config, "max_payload: 8MB\n").expect("config");
    let server = Server::start(dir.path(), &["-c", config.to_str().expect("utf-8 path")]);
    let mut client = server.connect();
    create_stream(&mut client, "BIG", &json!({}));

    let mut random = Random(7);
    let mut payload: Vec<u8> = (0..SIZE_BYTES).map(|_| random.next() as u8).collect();
    for index in 1..=MESSAGES {
        payload[..8].copy_from_slice(&index.to_le_bytes());
        assert_eq!(publish_ok(&mut client, "BIG.m", &payload), index);
    }

    let mut reader = server.connect();
    let inbox = format!("{}.ordered", reader.inbox());
    reader.subscribe(&inbox, "").expect("subscribe");
    let consumer = json!({"stream_name": "BIG", "config": {"deliver_subject": inbox,
        "ack_policy": "none", "max_deliver": 1, "mem_storage": true, "num_replicas": 1,
        "flow_control": true, "idle_heartbeat": 5_000_000_000_u64,
        "ack_wait": 79_200_000_000_000_u64}});
    api_ok(&mut client, "CONSUMER.CREATE.BIG", &consumer);
    let mut expected = 0_u64;
    reader
        .pump(support::TIMEOUT, |message, writer| {
            if message.payload.is_empty() {
                // A heartbeat or a flow control request; the latter wants an answer.
                if let Some(reply) = message.reply {
                    writer.publish(reply, b"", b"", b"")?;
                }
                return Ok(ControlFlow::Continue(()));
            }
            expected += 1;
            let reply = message.reply.expect("an ack subject");
            let at = position(std::str::from_utf8(reply).expect("utf-8"));
            assert_eq!((at.stream_seq, at.consumer_seq), (expected, expected), "gapless");
            assert_eq!(message.payload.len(), SIZE_BYTES);
            assert_eq!(message.payload[..8], expected.to_le_bytes());
            assert_eq!(message.payload[8..], payload[8..], "message {expected} is intact");
            Ok(if expected == MESSAGES {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            })
        })
        .unwrap_or_else(|e| panic!("after {expected} messages: {e}\n{}", server.log_tail()));
    let state = api_ok(&mut client, "STREAM.INFO.BIG", &Value::Null)["state"].clone();
    assert_eq!(state["messages"], MESSAGES);
}
