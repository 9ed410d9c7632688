//! Peers that lie, vanish or say nothing.

mod support;

use nuthatch_server::options::{AuthOptions, Limits, Options, Secret};
use std::sync::Arc;
use std::time::Duration;
use support::{CLIENT, TestServer, eventually};

/// Connections that come and go; `CHURN=20000` for a longer run.
const CHURN: usize = 400;

fn limited(change: impl FnOnce(&mut Limits)) -> TestServer {
    let mut options = Options::default();
    change(&mut options.limits);
    TestServer::start(options)
}

#[test]
fn a_stranger_is_turned_away_before_its_payload() {
    let auth = AuthOptions { token: Some(Secret::new("t")), ..AuthOptions::default() };
    let server = TestServer::start(Options { auth, ..Options::default() });
    let mut peer = server.peer();
    peer.send("PUB a 1000000\r\n");
    peer.expect_close("-ERR 'Authorization Violation'\r\n");
}

#[test]
fn who_never_connects_and_never_answers_is_stale() {
    let server = limited(|limits| {
        limits.ping_interval = Duration::from_millis(30);
        limits.ping_max = 1;
    });
    let mut peer = server.peer().with_pings();
    peer.expect_close("PING\r\n-ERR 'Stale Connection'\r\n");
}

#[test]
fn a_large_message_in_small_pieces() {
    let server = TestServer::plain();
    let mut sub = server.client();
    sub.send("SUB a 1\r\n");
    sub.flush("");
    let mut peer = server.client();
    let body: Vec<u8> = (0..900_000_u32).map(|i| (i % 251) as u8).collect();
    let message = [b"PUB a 900000\r\n".as_slice(), &body, b"\r\nPUB a 2\r\nok\r\n"].concat();
    for piece in message.chunks(7777) {
        peer.send(piece);
    }
    sub.expect([b"MSG a 1 900000\r\n".as_slice(), &body, b"\r\nMSG a 1 2\r\nok\r\n"].concat());
}

#[test]
fn nothing_stays_of_connections_that_are_gone() {
    let server = limited(|limits| limits.max_closed_clients = 0);
    let before = Arc::strong_count(&server.server);
    let count = std::env::var("CHURN").ok().and_then(|n| n.parse().ok()).unwrap_or(CHURN);
    for round in 0..count {
        let mut peer = server.peer();
        peer.send(format!(
            "CONNECT {CLIENT}\r\nSUB a.{round} 1\r\nSUB b.{round}.> q 2\r\nSUB _INBOX.{round}.* 3\r\n\
             PUB a.{round} 2\r\nhi\r\nPUB b.{round}.c _INBOX.{round}.1 1\r\nx\r\nUNSUB 3 1\r\n"
        ));
        match round % 3 {
            0 => peer.send("PUB cut 100\r\nhalf"),
            1 => peer.send("nonsense\r\n"),
            _ => peer.flush(format!(
                "MSG a.{round} 1 2\r\nhi\r\nMSG b.{round}.c 2 _INBOX.{round}.1 1\r\nx\r\n"
            )),
        }
    }
    eventually("all connections are gone", || server.server.connections.is_empty());
    let account = server.server.accounts.global();
    assert_eq!(account.interest.count(), 0);
    assert_eq!(account.connections.load(std::sync::atomic::Ordering::Relaxed), 0);
    // Each connection holds the server; a few may be remembered by the route caches of threads.
    let threads = std::thread::available_parallelism().map_or(1, usize::from) + 1;
    eventually("what they held is free", || {
        Arc::strong_count(&server.server) <= before + 16 * threads
    });
}
