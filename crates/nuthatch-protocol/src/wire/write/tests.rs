//! Encoders against literal protocol text, and against the parsers.

use super::*;

fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn numbers_are_plain_decimal() {
    for value in [0, 7, 9, 10, 99, 100, 101, 999, 1000, 12_345, u64::from(u32::MAX), u64::MAX] {
        assert_eq!(text(|out| push_u64(out, value)), value.to_string());
    }
    for value in [0, -1, 42, i64::MIN, i64::MAX] {
        assert_eq!(text(|out| push_i64(out, value)), value.to_string());
    }
}

#[test]
fn messages() {
    let plain = text(|out| push_message(out, b"a.b", b"9", None, b"", b"hi"));
    assert_eq!(plain, "MSG a.b 9 2\r\nhi\r\n");
    let full = text(|out| push_message(out, b"a", b"9", Some(b"r"), b"NATS/1.0\r\n\r\n", b"hi"));
    assert_eq!(full, "HMSG a 9 r 12 14\r\nNATS/1.0\r\n\r\nhi\r\n");
    let publish = text(|out| push_publish(out, b"a", Some(b"r"), b"", b"hi"));
    assert_eq!(publish, "PUB a r 2\r\nhi\r\n");
    let with_headers = text(|out| push_publish(out, b"a", None, b"NATS/1.0\r\n\r\n", b""));
    assert_eq!(with_headers, "HPUB a 12 12\r\nNATS/1.0\r\n\r\n\r\n");
}

#[test]
fn lines() {
    assert_eq!(text(|out| push_subscribe(out, b"a.*", Some(b"q"), b"1")), "SUB a.* q 1\r\n");
    assert_eq!(text(|out| push_subscribe(out, b"a.*", None, b"1")), "SUB a.* 1\r\n");
    assert_eq!(text(|out| push_unsubscribe(out, b"1", Some(5))), "UNSUB 1 5\r\n");
    assert_eq!(text(|out| push_unsubscribe(out, b"1", None)), "UNSUB 1\r\n");
    assert_eq!(text(|out| push_err(out, "Stale Connection")), "-ERR 'Stale Connection'\r\n");
    assert_eq!(text(|out| push_info(out, b"{}")), "INFO {} \r\n");
    assert_eq!(text(|out| push_connect(out, b"{}")), "CONNECT {}\r\n");
}

#[test]
fn statuses() {
    let heartbeat = text(|out| {
        let headers = [
            StatusHeader::Number("Nats-Last-Consumer", 7),
            StatusHeader::Text("Nats-Last-Stream", b"12"),
        ];
        push_status(out, 100, "Idle Heartbeat", &headers);
    });
    let expected =
        "NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 7\r\nNats-Last-Stream: 12\r\n\r\n";
    assert_eq!(heartbeat, expected);
    assert_eq!(text(|out| push_status(out, 204, "", &[])), "NATS/1.0 204\r\n\r\n");
}

#[test]
fn no_responders_is_what_the_incumbent_sends() {
    let message = text(|out| push_no_responders(out, b"_INBOX.x", b"1", b"foo"));
    let expected = "HMSG _INBOX.x 1 35 35\r\nNATS/1.0 503\r\nNats-Subject: foo\r\n\r\n\r\n";
    assert_eq!(message, expected);
    assert_eq!(no_responders_header_len(b"foo"), 32 + 3);
}

#[test]
fn jetstream_texts() {
    let ack = text(|out| push_pub_ack(out, "S", 7, None, false));
    assert_eq!(ack, r#"{"stream":"S","seq":7}"#);
    let ack = text(|out| push_pub_ack(out, "a\"\\\u{1}", 7, Some("hub"), true));
    assert_eq!(
        ack,
        "{\"stream\":\"a\\\"\\\\\\u0001\",\"domain\":\"hub\",\"seq\":7,\"duplicate\":true}"
    );
    let reply = text(|out| {
        let mut prefix = Vec::new();
        push_ack_prefix(&mut prefix, b"S", b"C");
        let numbers = AckReply {
            delivered: 1,
            stream_seq: 22,
            consumer_seq: 3,
            timestamp_ns: 1_700_000_000_000_000_000,
            pending: 4,
        };
        push_ack_reply(out, &prefix, &numbers);
    });
    assert_eq!(reply, "$JS.ACK.S.C.1.22.3.1700000000000000000.4");
}
