//! Acks and pull requests as the clients write them.

use super::*;
use crate::wire::write::{AckReply, push_ack_prefix, push_ack_reply};

#[test]
fn subjects_of_both_versions() {
    let v1 = parse_ack_subject(b"$JS.ACK.S.C.1.22.3.1700000000000000000.4").unwrap();
    let expected = AckSubject {
        domain: None,
        account_hash: None,
        stream: b"S",
        consumer: b"C",
        delivered: 1,
        stream_seq: 22,
        consumer_seq: 3,
        timestamp_ns: b"1700000000000000000",
        pending: b"4",
    };
    assert_eq!(v1, expected);
    assert_eq!((v1.timestamp_ns(), v1.pending()), (Some(1_700_000_000_000_000_000), Some(4)));
    let v2 = AckSubject { account_hash: Some(b"h"), ..expected };
    let numbers = "S.C.1.22.3.1700000000000000000.4";
    let parse = |text: String| parse_ack_subject(text.leak().as_bytes());
    assert_eq!(parse(format!("$JS.ACK._.h.{numbers}")), Some(v2));
    assert_eq!(parse(format!("$JS.ACK._.h.{numbers}.rand")), Some(v2));
    assert_eq!(parse(format!("$JS.ACK._.h.{numbers}.rand.more.x")), Some(v2));
    let domain = AckSubject { domain: Some(b"hub"), ..v2 };
    assert_eq!(parse(format!("$JS.ACK.hub.h.{numbers}")), Some(domain));
    assert_eq!(parse(format!("$JS.ACK.x.{numbers}")), None, "ten tokens are neither");
}

#[test]
fn what_is_no_ack_subject() {
    let max = u64::MAX;
    let subjects = [
        "".to_string(),
        "$JS.ACK".to_string(),
        "$JS.ACK.".to_string(),
        "$JS.ACK.S.C.1.2.3.4".to_string(),
        "$JS.ACK.S.C.1.2.x.4.5".to_string(),
        "$JS.ACK.S.C.1..3.4.5".to_string(),
        "$JS.NAK.S.C.1.2.3.4.5".to_string(),
        format!("$JS.ACK.S.C.1.{max}0.3.4.5"),
        format!("$JS.ACK.S.C.1.2.{max}0.4.5"),
    ];
    for subject in subjects {
        assert_eq!(parse_ack_subject(subject.as_bytes()), None, "{subject}");
    }
}

#[test]
fn what_is_written_can_be_read() {
    let (mut prefix, mut subject) = (Vec::new(), Vec::new());
    push_ack_prefix(&mut prefix, b"S", b"C");
    let (delivered, stream_seq, consumer_seq) = (u64::MAX, 7, 1);
    let reply =
        AckReply { delivered, stream_seq, consumer_seq, timestamp_ns: i64::MAX, pending: 0 };
    push_ack_reply(&mut subject, &prefix, &reply);
    let read = parse_ack_subject(&subject).unwrap();
    assert_eq!((read.delivered, read.stream_seq, read.consumer_seq), (u64::MAX, 7, 1));
    assert_eq!((read.timestamp_ns(), read.pending()), (Some(i64::MAX), Some(0)));
}

#[test]
fn bodies() {
    for body in ["", "+ACK", "+OK"] {
        assert_eq!(parse_ack(body.as_bytes()), AckKind::Ack);
    }
    let nak = |body: &'static str| match parse_ack(body.as_bytes()) {
        AckKind::Nak { delay_ns } => delay_ns,
        other => panic!("{other:?}"),
    };
    assert_eq!(nak("-NAK"), None);
    assert_eq!(nak("-NAK {\"delay\":1000000}"), Some(1_000_000));
    assert_eq!(nak("-NAK {\"delay\": 5, \"x\": 1}"), Some(5));
    assert_eq!(nak("-NAK 1m30s"), Some(90_000_000_000));
    assert_eq!(nak("-NAK 1.5s\n"), Some(1_500_000_000));
    assert_eq!(nak("-NAK soon"), None);
    assert_eq!(nak("-NAK {soon}"), None);
    assert_eq!(parse_ack(b"+WPI"), AckKind::Progress);
    assert_eq!(parse_ack(b"+TERM"), AckKind::Term { reason: b"" });
    assert_eq!(parse_ack(b"+TERM bad input "), AckKind::Term { reason: b"bad input" });
    assert_eq!(parse_ack(b"+NXT"), AckKind::Next { request: b"" });
    assert_eq!(parse_ack(b"+NXT 5"), AckKind::Next { request: b" 5" });
    for body in ["ack", "+WPI ", "+ACK ", "+NX"] {
        assert_eq!(parse_ack(body.as_bytes()), AckKind::Unknown, "{body}");
    }
}

#[test]
fn pull_requests() {
    let batch = |body: &'static str| parse_pull_request(body.as_bytes()).unwrap().batch;
    assert_eq!((batch(""), batch("  "), batch("10"), batch(" 7\n")), (1, 1, 10, 7));
    assert_eq!((batch("0"), batch("-3"), batch("x"), batch("{}")), (1, 1, 1, 1));
    let body = br#"{"batch":5,"expires":30000000000,"no_wait":true,"max_bytes":9,
        "idle_heartbeat":15000000000,"group":"g","min_pending":1,"min_ack_pending":2,
        "id":"p\u0041","priority":3,"unknown":[]}"#;
    let expected = PullRequest {
        batch: 5,
        expires_ns: 30_000_000_000,
        no_wait: true,
        max_bytes: 9,
        idle_heartbeat_ns: 15_000_000_000,
        group: "g".into(),
        min_pending: 1,
        min_ack_pending: 2,
        id: "pA".into(),
        priority: 3,
    };
    assert_eq!(parse_pull_request(body).unwrap(), expected);
    let heartbeat = parse_pull_request(br#"{"expires":10,"idle_heartbeat":6}"#).unwrap_err();
    assert_eq!(heartbeat.to_string(), "heartbeat value too large");
    let huge = format!("{{\"idle_heartbeat\":{}}}", i64::MAX);
    assert!(parse_pull_request(huge.as_bytes()).is_err());
    for bad in ["{", "{\"batch\":\"x\"}", "{\"batch\":1.5}"] {
        let error = parse_pull_request(bad.as_bytes()).unwrap_err();
        assert!(matches!(error, PullRequestError::Json(_)), "{bad}");
    }
}
