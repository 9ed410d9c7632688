//! Core NATS, byte by byte.

mod support;

use nuthatch_server::options::Options;
use std::time::Duration;
use support::{CLIENT, TestServer, eventually};

#[test]
fn greets_with_info() {
    let server = TestServer::plain();
    let mut peer = server.peer();
    peer.send("CONNECT {\"verbose\":false,\"protocol\":1}\r\nPING\r\n");
    peer.expect("PONG\r\n");
    let info = peer.line();
    assert!(info.contains("\"connect_info\":true"), "{info}");
    assert!(info.contains("\"remote_account\":\"$G\""), "{info}");
    peer.flush("");
}

#[test]
fn verbose_until_told_otherwise() {
    let server = TestServer::plain();
    let mut peer = server.peer();
    peer.send("SUB a 1\r\nPUB a 1\r\nx\r\nUNSUB 1\r\nPUB a..b 0\r\n\r\n");
    peer.flush("+OK\r\n+OK\r\nMSG a 1 1\r\nx\r\n+OK\r\n-ERR 'Invalid Publish Subject'\r\n+OK\r\n");
    peer.send("CONNECT {}\r\n");
    peer.flush("+OK\r\n");
    peer.send("CONNECT {\"Verbose\":false,\"user\":null}\r\n");
    peer.flush("");
}

#[test]
fn wildcards_and_the_reply() {
    let server = TestServer::plain();
    let (mut a, mut b) = (server.client(), server.client());
    a.send("SUB x.* 1\r\nSUB x.> 2\r\nSUB y 3\r\n");
    a.flush("");
    b.send("PUB x.y r 2\r\nhi\r\nPUB x.y.z 0\r\n\r\npub y 1\r\nq\r\n");
    b.flush("");
    let first = a.line();
    assert!(first == "MSG x.y 1 r 2" || first == "MSG x.y 2 r 2", "{first}");
    a.expect("hi\r\n");
    a.line();
    a.expect("hi\r\nMSG x.y.z 2 0\r\n\r\nMSG y 3 1\r\nq\r\n");
}

#[test]
fn headers_reach_those_who_understand_them() {
    let server = TestServer::plain();
    let (mut with, mut without) =
        (server.client(), server.connected("{\"verbose\":false,\"headers\":false}"));
    with.send("SUB h 1\r\n");
    with.flush("");
    without.send("SUB h 1\r\n");
    without.flush("");
    with.send("HPUB h r 14 16\r\nNATS/1.0\r\nA:\r\nxy\r\n");
    with.flush("HMSG h 1 r 14 16\r\nNATS/1.0\r\nA:\r\nxy\r\n");
    without.flush("MSG h 1 r 2\r\nxy\r\n");
}

#[test]
fn what_asks_only_for_a_trace_reaches_nobody() {
    let server = TestServer::plain();
    let mut peer = server.client();
    peer.send("SUB t 1\r\n");
    peer.flush("");
    let headers = "NATS/1.0\r\nNats-Trace-Dest: d\r\nNats-Trace-Only: true\r\n\r\n";
    let (headers_len, total) = (headers.len(), headers.len() + 2);
    peer.send(format!("HPUB t {headers_len} {total}\r\n{headers}xy\r\nPUB t 2\r\nab\r\n"));
    peer.flush("MSG t 1 2\r\nab\r\n");
}

#[test]
fn one_member_of_a_queue_group() {
    let server = TestServer::plain();
    let mut members: Vec<_> = (0..3).map(|_| server.client()).collect();
    for member in &mut members {
        member.send("SUB q g 1\r\n");
        member.flush("");
    }
    let mut publisher = server.client();
    for _ in 0..60 {
        publisher.send("PUB q 0\r\n\r\n");
    }
    publisher.flush("");
    let mut total = 0;
    for member in &mut members {
        member.send("PING\r\n");
        let mut mine = 0;
        while member.line() != "PONG" {
            mine += 1;
        }
        assert!(mine > 0, "somebody got nothing");
        total += mine / 2;
    }
    assert_eq!(total, 60);
}

#[test]
fn unsubscribe_after_a_number_of_messages() {
    let server = TestServer::plain();
    let mut peer = server.client();
    peer.send("SUB m 1\r\nUNSUB 1 2\r\nPUB m 0\r\n\r\nPUB m 0\r\n\r\nPUB m 0\r\n\r\n");
    peer.flush("MSG m 1 0\r\n\r\nMSG m 1 0\r\n\r\n");
    // The number counts from the SUB.
    peer.send("SUB m 2\r\nPUB m 0\r\n\r\nUNSUB 2 1\r\nPUB m 0\r\n\r\n");
    peer.flush("MSG m 2 0\r\n\r\n");
    // A repeated sid is ignored.
    peer.send("SUB m 3\r\nSUB other 3\r\nPUB other 0\r\n\r\nPUB m 0\r\n\r\n");
    peer.flush("MSG m 3 0\r\n\r\n");
    eventually("nothing leaks", || server.server.accounts.global().interest.count() == 1);
}

#[test]
fn no_echo() {
    let server = TestServer::plain();
    let mut quiet = server.connected("{\"verbose\":false,\"echo\":false}");
    quiet.send("SUB e 1\r\nPUB e 0\r\n\r\n");
    quiet.flush("");
}

#[test]
fn no_responders() {
    let server = TestServer::plain();
    let mut peer = server.client();
    peer.send("SUB _I.* 7\r\nPUB nobody _I.x 2\r\nhi\r\n");
    peer.flush("HMSG _I.x 7 38 38\r\nNATS/1.0 503\r\nNats-Subject: nobody\r\n\r\n\r\n");
    peer.send("PUB nobody other 2\r\nhi\r\n");
    peer.flush("");
    peer.send("PUB $JS.API.INFO _I.x 0\r\n\r\n");
    peer.flush("HMSG _I.x 7 44 44\r\nNATS/1.0 503\r\nNats-Subject: $JS.API.INFO\r\n\r\n\r\n");
}

#[test]
fn a_second_connect_drops_subscriptions() {
    let server = TestServer::plain();
    let mut peer = server.client();
    peer.send(format!("SUB a 1\r\nCONNECT {CLIENT}\r\nPUB a 0\r\n\r\n"));
    peer.flush("");
    assert_eq!(server.server.accounts.global().interest.count(), 0);
}

#[test]
fn errors_that_close() {
    let server = TestServer::plain();
    let long = format!("SUB {} 1\r\n", "a".repeat(5000));
    for (input, output) in [
        ("GARBAGE\r\n", "-ERR 'Unknown Protocol Operation'\r\n"),
        ("PUB a 2\r\nabc\r\n", "-ERR 'Unknown Protocol Operation'\r\n"),
        ("PUB a 2000000\r\n", "-ERR 'Maximum Payload Violation'\r\n"),
        (long.as_str(), "-ERR 'maximum control line exceeded'\r\n"),
        ("PUB a\r\n", ""),
        ("HPUB a 5 3\r\n", ""),
        ("CONNECT {\"protocol\":7}\r\n", "-ERR 'invalid client protocol'\r\n"),
        (
            "CONNECT {\"headers\":false,\"no_responders\":true}\r\n",
            "-ERR 'no responders requires headers support'\r\n",
        ),
        ("CONNECT {\"account\":\"x\"}\r\n", "-ERR 'Authorization Violation'\r\n"),
        ("CONNECT nonsense\r\n", ""),
        ("CONNECT []\r\n", ""),
    ] {
        let mut peer = server.client();
        peer.send(input);
        peer.expect_close(output);
    }
    eventually("all are gone", || server.server.connections.is_empty());
}

#[test]
fn errors_that_do_not_close() {
    let mut options = Options::default();
    options.limits.max_subscriptions = Some(2);
    options.limits.max_subscription_tokens = Some(4);
    let server = TestServer::start(options);
    let mut peer = server.connected("{\"verbose\":false,\"pedantic\":true,\"headers\":true}");
    peer.send("SUB a..b 1\r\nSUB a.>.b 1\r\n");
    peer.flush("-ERR 'Invalid Subject'\r\n-ERR 'Invalid Subject'\r\n");
    peer.send("PUB a..b 0\r\n\r\n");
    peer.flush("-ERR 'Invalid Publish Subject'\r\n");
    peer.send("SUB a.b.c.d.e 1\r\n");
    peer.flush(
        "-ERR 'Permissions Violation for Subscription to \"a.b.c.d.e\", too many tokens'\r\n",
    );
    peer.send("SUB a _sys_ 1\r\n");
    peer.flush("-ERR 'Permissions Violation for Subscription to \"a\" using queue \"_sys_\"'\r\n");
    peer.send("PUB a $JS.ACK.x 0\r\n\r\n");
    peer.flush("-ERR 'Permissions Violation for Publish with Reply of \"$JS.ACK.x\"'\r\n");
    peer.send("PUB _GR_.x 0\r\n\r\n");
    peer.flush("-ERR 'Permissions Violation for Publish to \"_GR_.x\"'\r\n");
    peer.send("SUB a 1\r\nSUB b 2\r\nSUB c 3\r\n");
    peer.flush("-ERR 'maximum subscriptions exceeded'\r\n");
}

#[test]
fn too_many_connections() {
    let mut options = Options::default();
    options.limits.max_connections = 1;
    let server = TestServer::start(options);
    let first = server.client();
    let mut second = server.peer();
    second.expect_close("-ERR 'maximum connections exceeded'\r\n");
    drop(first);
    eventually("there is room again", || server.server.connections.is_empty());
    server.client();
}

#[test]
fn a_slow_consumer_is_closed_without_a_word() {
    let mut options = Options::default();
    options.limits.max_pending_bytes = 1024 * 1024;
    options.limits.write_deadline = support::TIMEOUT;
    options.limits.no_fast_producer_stall = true;
    let server = TestServer::start(options);
    let mut slow = server.client();
    slow.send("SUB s 1\r\n");
    slow.flush("");
    let mut fast = server.client();
    let message = format!("PUB s 100000\r\n{}\r\n", "x".repeat(100_000));
    let slow_consumers = &server.server.slow_consumers;
    for _ in 0..500 {
        fast.send(&message);
        if slow_consumers.pending_bytes.load(std::sync::atomic::Ordering::Relaxed) > 0 {
            break;
        }
    }
    fast.flush("");
    eventually("only the fast one is left", || server.server.connections.len() == 1);
    let closed = server.server.connections.closed();
    assert_eq!(closed[0].reason.text(), "Slow Consumer (Pending Bytes)");
}

#[test]
fn a_peer_that_takes_nothing_misses_the_write_deadline() {
    let mut options = Options::default();
    options.limits.write_deadline = Duration::from_millis(200);
    options.limits.no_fast_producer_stall = true;
    let server = TestServer::start(options);
    let mut slow = server.client();
    slow.send("SUB s 1\r\n");
    slow.flush("");
    let mut fast = server.client();
    let message = format!("PUB s 1000000\r\n{}\r\n", "x".repeat(1_000_000));
    for _ in 0..20 {
        fast.send(&message);
    }
    fast.flush("");
    eventually("only the fast one is left", || server.server.connections.len() == 1);
    let closed = server.server.connections.closed();
    assert_eq!(closed[0].reason.text(), "Slow Consumer (Write Deadline)");
}

/// What `write_timeout: retry` means: a client that takes a part of what waits within the deadline stays.
#[test]
fn a_peer_that_takes_a_part_keeps_the_write_deadline() {
    let text = "write_deadline: '1s', write_timeout: retry, no_fast_producer_stall: true";
    let server = TestServer::start(support::configured(text));
    let mut slow = server.client();
    slow.send("SUB s 1\r\n");
    slow.flush("");
    let mut fast = server.client();
    let body = "x".repeat(1_000_000);
    for _ in 0..20 {
        fast.send(format!("PUB s {}\r\n{body}\r\n", body.len()));
    }
    fast.flush("");
    // Longer than the deadline for all of it, and never as long without taking anything.
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(100));
        slow.expect("MSG s 1 1000000\r\n");
        assert_eq!(slow.take(body.len()), body.as_bytes());
        slow.expect("\r\n");
    }
    slow.flush("");
}

#[test]
fn stale_connections() {
    let mut options = Options::default();
    options.limits.ping_interval = Duration::from_millis(50);
    let server = TestServer::start(options);
    let mut peer = server.peer().with_pings();
    peer.send(format!("CONNECT {CLIENT}\r\n"));
    peer.expect_close("PING\r\nPING\r\n-ERR 'Stale Connection'\r\n");
    eventually("it is gone", || server.server.connections.is_empty());
    let closed = server.server.connections.closed();
    assert_eq!(closed[0].reason.text(), "Stale Connection");
}

#[test]
fn large_messages_pass_whole() {
    let mut options = Options::default();
    options.limits.max_payload_bytes = 8 * 1024 * 1024;
    let server = TestServer::start(options);
    let (mut a, mut b) = (server.client(), server.client());
    a.send("SUB big 1\r\n");
    a.flush("");
    let body: Vec<u8> = (0..5_000_000_u32).map(|n| (n % 251) as u8).collect();
    let sender = std::thread::spawn({
        let body = body.clone();
        move || {
            for _ in 0..4 {
                b.send("PUB big 5000000\r\n");
                b.send(&body);
                b.send("\r\nPUB big 3\r\nabc\r\n");
            }
            b.flush("");
        }
    });
    for _ in 0..4 {
        a.expect("MSG big 1 5000000\r\n");
        assert!(a.take(body.len()) == body);
        a.expect("\r\nMSG big 1 3\r\nabc\r\n");
    }
    sender.join().unwrap();
}

#[test]
fn user_info() {
    let server = TestServer::plain();
    let mut peer = server.client();
    peer.send("SUB i 1\r\nPUB $SYS.REQ.USER.INFO i 0\r\n\r\n");
    assert!(peer.line().starts_with("MSG i 1 "));
    let body = peer.line();
    assert!(
        body.contains("\"data\":{\"user\":\"\",\"account\":\"$G\",\"account_name\":\"$G\"}"),
        "{body}"
    );
}

#[test]
fn many_subscribers_get_everything_in_order() {
    let server = TestServer::plain();
    let mut peers: Vec<_> = (0..20).map(|_| server.client()).collect();
    for peer in &mut peers {
        peer.send("SUB f.* 1\r\n");
        peer.flush("");
    }
    let mut publisher = server.client();
    let mut script = String::new();
    let mut expected = String::new();
    for n in 0..500 {
        script.push_str(&format!("PUB f.{n} 3\r\nabc\r\n"));
        expected.push_str(&format!("MSG f.{n} 1 3\r\nabc\r\n"));
    }
    publisher.send(&script);
    publisher.flush("");
    for peer in &mut peers {
        peer.flush(&expected);
    }
}

#[test]
fn without_header_support_nobody_has_headers() {
    let server = TestServer::start(Options { no_header_support: true, ..Options::default() });
    assert!(server.peer_info().contains("\"headers\":false"));
    let mut both = server.connected(r#"{"verbose":false,"headers":true}"#);
    both.send("SUB a 1\r\nPUB a 2\r\nhi\r\n");
    both.flush("MSG a 1 2\r\nhi\r\n");
    both.send("HPUB a 12 14\r\nNATS/1.0\r\n\r\nhi\r\n");
    both.expect_close("");
    let mut modern = server.peer();
    modern.send(format!("CONNECT {CLIENT}\r\n"));
    modern.expect_close("-ERR 'no responders requires headers support'\r\n");
}

#[test]
fn an_advertised_address_is_told_as_our_own() {
    let client_advertise = Some("example.org:5222".to_owned());
    let server = TestServer::start(Options { client_advertise, ..Options::default() });
    let info = server.peer_info();
    assert!(info.contains("\"host\":\"example.org\",\"port\":5222"), "{info}");
    assert!(!info.contains("connect_urls"), "{info}");
}
