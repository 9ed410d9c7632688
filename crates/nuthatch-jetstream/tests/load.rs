//! One client asks for much; another one, in another account, must not wait for it.

mod support;

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::{Peer, TestServer, configured, login, with_jetstream};

/// Longest delay of the canary that is not a mistake on a busy machine.
const DELAY_MAX: Duration = Duration::from_millis(1500);

/// Accounts `A`, which asks for much, and `B` with the canary.
fn server() -> TestServer {
    with_jetstream(configured(
        "max_payload: 8MB
         jetstream { domain: hub }
         websocket { port: -1, no_tls: true, compression: true }
         leafnodes { port: -1 }
         accounts {
           A { jetstream: enabled, users: [{user: a, password: pw}] }
           B { jetstream: enabled, users: [{user: b, password: pw}] }
         }",
    ))
}

/// Publishes to itself, again and again, until told to stop: the longest time that took.
struct Canary {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Duration>,
}

impl Canary {
    fn start(server: &TestServer) -> Self {
        let mut peer = server.connected(&login("b"));
        peer.send("SUB canary 1\r\n");
        peer.flush("");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut longest = Duration::ZERO;
            while !stopped.load(Ordering::Relaxed) {
                let began = Instant::now();
                peer.send("PUB canary 1\r\nx\r\n");
                peer.expect("MSG canary 1 1\r\nx\r\n");
                longest = longest.max(began.elapsed());
                std::thread::sleep(Duration::from_millis(2));
            }
            longest
        });
        Self { stop, thread }
    }

    #[track_caller]
    fn end(self, what: &str) {
        self.stop.store(true, Ordering::Relaxed);
        let longest = self.thread.join().unwrap();
        assert!(longest < DELAY_MAX, "{what}: a delivery took {longest:?}");
    }
}

fn stream_with(name: &str, count: usize) -> String {
    let mut text = format!("{{\"name\":\"{name}\",\"subjects\":[\"{name}\"");
    for at in 0..count {
        let _ = write!(text, ",\"{name}.*.s{at}\"");
    }
    text + "]}"
}

#[test]
fn a_stream_with_very_many_subjects_holds_up_nobody() {
    let server = server();
    let canary = Canary::start(&server);
    let makers: Vec<_> = (0..3)
        .map(|at| {
            let mut peer = server.connected(&login("a"));
            std::thread::spawn(move || {
                let name = format!("S{at}");
                let body = stream_with(&name, 6000);
                let said = peer.ask(&format!("$JS.API.STREAM.CREATE.{name}"), &body);
                assert!(
                    said.contains("stream_create_response"),
                    "{}",
                    &said[..said.len().min(300)]
                );
                // What comes behind a long call is not ahead of it.
                peer.send(format!(
                    "PUB $JS.API.STREAM.UPDATE.{name} _ {}\r\n{body}\r\n",
                    body.len()
                ));
                peer.ask(&format!("$JS.API.STREAM.INFO.{name}"), "");
            })
        })
        .collect();
    makers.into_iter().for_each(|maker| maker.join().unwrap());
    canary.end("streams with 6,000 subjects");
}

#[test]
fn what_is_sent_behind_a_long_call_comes_behind_it() {
    let server = server();
    let mut a = server.connected(&login("a"));
    let body = stream_with("S", 500);
    a.send(format!("PUB $JS.API.STREAM.CREATE.S _ {}\r\n{body}\r\n", body.len()));
    assert!(a.ask("S.x.s7", "first").contains("\"seq\":1"));
    let filters: Vec<String> = (0..500).map(|at| format!("\"S.*.s{at}\"")).collect();
    let body = format!(
        "{{\"stream_name\":\"S\",\"config\":{{\"durable_name\":\"C\",\"ack_policy\":\"none\",\
         \"filter_subjects\":[{}]}}}}",
        filters.join(",")
    );
    a.send(format!("PUB $JS.API.CONSUMER.CREATE.S.C _ {}\r\n{body}\r\n", body.len()));
    a.send("SUB in 7\r\nPUB $JS.API.CONSUMER.MSG.NEXT.S.C in 1\r\n1\r\n");
    loop {
        let line = a.line();
        if line.starts_with("MSG S.x.s7 7 ") {
            break;
        }
        assert!(!line.starts_with("HMSG"), "{line}");
    }
}

#[test]
fn subjects_longer_than_any_message_are_refused() {
    let server = server();
    let mut a = server.connected(&login("a"));
    let deep = "a.".repeat(200_000) + "a";
    let config = format!("{{\"name\":\"S\",\"subjects\":[\"{deep}\"]}}");
    let said = a.ask("$JS.API.STREAM.CREATE.S", config);
    assert!(said.contains("10052") && said.contains("at most 4096"), "{}", &said[..200]);
    a.ask("$JS.API.STREAM.CREATE.S", r#"{"name":"S","subjects":["a.>"]}"#);
    let body = format!(
        "{{\"stream_name\":\"S\",\"config\":{{\"ack_policy\":\"none\",\"filter_subject\":\"{deep}\"}}}}"
    );
    let said = a.ask("$JS.API.CONSUMER.CREATE.S", body);
    assert!(said.contains("at most 4096"), "{}", &said[..said.len().min(300)]);
    // A reply with wildcards finds nothing, and is not looked for long.
    a.send("PUB a.b *.*.> 1\r\nx\r\n");
    a.flush("");
}

#[test]
fn sources_that_name_one_stream_many_times_take_no_memory() {
    let server = server();
    let mut a = server.connected(&login("a"));
    a.ask("$JS.API.STREAM.CREATE.O", stream_with("O", 2000));
    let sources: Vec<String> = (0..2000)
        .map(|at| format!("{{\"name\":\"O\",\"filter_subject\":\"O.x.s{at}\"}}"))
        .collect();
    let config = format!("{{\"name\":\"S\",\"sources\":[{}]}}", sources.join(","));
    let began = Instant::now();
    let said = a.ask("$JS.API.STREAM.CREATE.S", config);
    assert!(said.contains("stream_create_response"), "{}", &said[..said.len().min(300)]);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

/// A compressed frame of a websocket that holds this text so many times.
fn frame(text: &[u8], count: usize) -> Vec<u8> {
    let mut compress = flate2::Compress::new(flate2::Compression::fast(), false);
    let plain = text.repeat(count);
    let mut packed = Vec::with_capacity(plain.len() / 8 + 1024);
    let done = compress.compress_vec(&plain, &mut packed, flate2::FlushCompress::Sync).unwrap();
    assert!(done == flate2::Status::Ok && packed.len() < packed.capacity(), "room for all of it");
    packed.truncate(packed.len() - 4);
    let mut out = vec![0xc2, 0xff];
    out.extend_from_slice(&(packed.len() as u64).to_be_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&packed);
    out
}

#[test]
fn a_small_frame_that_holds_very_much_holds_up_nobody() {
    let server = server();
    let bomb = frame(b"PONG\r\n", 2_000_000);
    assert!(bomb.len() < 200_000, "{}", bomb.len());
    let canary = Canary::start(&server);
    let senders: Vec<_> = (0..4)
        .map(|_| {
            let mut peer =
                Peer::new(std::net::TcpStream::connect(server.websocket.unwrap()).unwrap());
            peer.send(
                "GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                 Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\
                 Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n",
            );
            while !peer.line().is_empty() {}
            let connect = login("a");
            let mut hello = vec![0x82, 0xfe];
            let text = format!("CONNECT {connect}\r\n");
            hello.extend_from_slice(&(text.len() as u16).to_be_bytes());
            hello.extend_from_slice(&[0; 4]);
            hello.extend_from_slice(text.as_bytes());
            peer.send(&hello);
            peer.send(&bomb);
            // Its answer comes when all before it has been handled.
            peer.send([&[0x89, 0x84][..], &[0; 4], b"done"].concat());
            peer
        })
        .collect();
    for mut peer in senders {
        peer.take_until(b"\x8a\x04done");
    }
    canary.end("websocket frames of 12 MB");
}

#[test]
fn a_connection_that_never_pauses_holds_up_nobody() {
    let server = server();
    let canary = Canary::start(&server);
    let senders: Vec<_> = (0..4)
        .map(|_| {
            let mut peer = server.connected(&login("a"));
            std::thread::spawn(move || {
                let text = b"PONG\r\n".repeat(100_000);
                for _ in 0..10 {
                    peer.send(&text);
                }
                peer.flush("");
            })
        })
        .collect();
    senders.into_iter().for_each(|sender| sender.join().unwrap());
    canary.end("pongs without an end");
}

/// Monitoring of a server, and its port.
fn monitor(server: &TestServer) -> u16 {
    server.runtime.block_on(async {
        let options = server.server.options();
        let listeners = nuthatch_server::monitor::bind_all(&options).await.unwrap();
        let port = listeners.http_port().unwrap();
        nuthatch_server::monitor::serve(server.server.clone(), listeners);
        port
    })
}

fn with_monitoring() -> TestServer {
    let mut options = nuthatch_server::options::Options::default();
    options.monitor.http_port = Some(0);
    options.monitor.host = "127.0.0.1".to_owned();
    TestServer::start(options)
}

fn get(port: u16, path: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// A connection with so many subscriptions.
fn subscriber(server: &TestServer, count: usize) -> Peer {
    let mut peer = server.client();
    let mut text = String::new();
    for at in 0..count {
        let _ = write!(text, "SUB some.subject.of.a.subscription.{at} {at}\r\n");
    }
    peer.send(text);
    peer.flush("");
    peer
}

#[test]
fn clients_that_do_not_read_keep_nobody_from_the_health_check() {
    use std::io::Write;
    let server = with_monitoring();
    let port = monitor(&server);
    let _subscriber = subscriber(&server, 20_000);
    let open = || std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut idle: Vec<_> = (0..100).map(|_| open()).collect();
    for _ in 0..100 {
        let mut stream = open();
        write!(stream, "GET /connz?subs=detail HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        idle.push(stream);
    }
    let began = Instant::now();
    let health = get(port, "/healthz");
    assert!(health.starts_with("HTTP/1.1 503") && health.contains("starting"), "{health}");
    assert!(get(port, "/metrics").contains("nuthatch_"));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn answers_about_very_many_subscriptions_are_cut_and_say_so() {
    let server = with_monitoring();
    let port = monitor(&server);
    let _subscribers = [subscriber(&server, 20_000), subscriber(&server, 10)];
    let connz = get(port, "/connz?subs=1&limit=1000000");
    assert!(connz.contains("\"subscriptions_truncated\": true"));
    assert!(connz.contains("\"limit\": 4096"));
    let listed = connz.matches("some.subject.of.a.subscription.").count();
    assert_eq!(listed, 16 * 1024);
    let subsz = get(port, "/subsz?subs=1&limit=1000000&offset=100");
    assert_eq!(subsz.matches("some.subject.of.a.subscription.").count(), 4096);
    assert!(subsz.contains("\"total\": 20010"));
}

#[test]
fn wrong_passwords_against_a_slow_hash_hold_up_nobody() {
    let server = with_jetstream(configured(
        "accounts {
           A { users: [{user: a, password: '$2a$11$V1qrpBt8/SLfEBr4NJq4T.2mg8chx8.MTblUiTBOLV3MKDeAy.f7u'}] }
           B { jetstream: enabled, users: [{user: b, password: pw}] }
         }",
    ));
    let canary = Canary::start(&server);
    let strangers: Vec<_> = (0..12)
        .map(|_| {
            let mut peer = server.peer();
            peer.send(format!("CONNECT {}\r\nPING\r\n", login("a")));
            peer
        })
        .collect();
    for mut stranger in strangers {
        stranger.expect_close("-ERR 'Authorization Violation'\r\n");
    }
    canary.end("wrong passwords");
}

#[test]
fn thousands_of_consumers_hold_up_nobody() {
    const COUNT: usize = 2000;
    let server = server();
    let mut a = server.connected(&login("a"));
    let config = r#"{"name":"S","subjects":["s.>"],"max_consumers":100000,"storage":"memory"}"#;
    assert!(a.ask("$JS.API.STREAM.CREATE.S", config).contains("did_create"));
    let canary = Canary::start(&server);
    let mut text = String::new();
    for at in 0..COUNT {
        let body = format!(
            "{{\"stream_name\":\"S\",\"config\":{{\"durable_name\":\"C{at}\",\
             \"ack_policy\":\"none\",\"mem_storage\":true,\"filter_subject\":\"s.{at}\"}}}}"
        );
        let _ = write!(
            text,
            "PUB $JS.API.CONSUMER.CREATE.S.C{at}.s.{at} _ {}\r\n{body}\r\n",
            body.len()
        );
    }
    a.send(&text);
    let total = format!("\"total\":{COUNT}");
    support::eventually("all are there", || a.ask("$JS.API.CONSUMER.NAMES.S", "").contains(&total));
    for offset in (0..COUNT).step_by(256) {
        let page = a.ask("$JS.API.CONSUMER.LIST.S", format!("{{\"offset\":{offset}}}"));
        assert!(page.contains(&total), "{}", &page[..page.len().min(300)]);
    }
    assert!(a.ask("s.7", "x").contains("\"seq\":1"));
    canary.end("consumers by the thousand");
}
