//! What goes on during a soak. Each actor runs on a thread of its own until it is told to stop, and
//! leaves nothing behind then.

use super::support::{
    Random, TIMEOUT, api, api_ok, fetch, position, publish_ok, read_all, reply_of, stream_state,
};
use super::{Soak, count, write_config};
use nuthatch_client::{Client, ConnectOptions};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Messages that are published, verified and purged at a time.
const KEPT: u64 = 400;
/// Consumers that are created before they are removed.
const CHURNED: u64 = 50;
/// A client that is to be killed lives at most so long.
const LIFE_MS: u64 = 60;
/// Bytes behind which a reader that does not read is closed: more than any `max_pending` used.
const FLOOD_BYTES: usize = 24 << 20;

fn connect(soak: &Soak) -> Client {
    let mut options = ConnectOptions::new(&soak.url).expect("url");
    options.timeout = TIMEOUT;
    Client::connect(&options).expect("connect")
}

/// Publishes, through a mapping too, reads everything back and compares, purges, and again.
pub fn keep_and_verify(soak: &Soak) {
    let mut client = connect(soak);
    let mut next = 0_u64;
    loop {
        let mut sequences = Vec::new();
        for n in next..next + KEPT {
            let subject = if n % 3 == 0 { format!("mapped.{n}") } else { format!("keep.p.{n}") };
            let body = format!("{n} {}", "x".repeat((n % 200) as usize));
            sequences.push((publish_ok(&mut client, &subject, body.as_bytes()), n, body));
            count(&soak.done.acked);
        }
        let found = read_all(&mut client, "KEEP", sequences[0].0);
        let mut found = found.into_iter();
        for (sequence, n, body) in sequences {
            let (at, message) = found.next().unwrap_or_else(|| panic!("{n} is lost"));
            assert_eq!(at, sequence, "{n} is somewhere else");
            assert_eq!(message.payload, body.as_bytes(), "{n} is not what it was");
            assert!(message.subject.ends_with(&format!(".{n}")), "{n} is on {}", message.subject);
            count(&soak.done.verified);
        }
        api_ok(&mut client, "STREAM.PURGE.KEEP", &Value::Null);
        next += KEPT;
        if !soak.runs() {
            return;
        }
    }
}

/// A work queue: everything that goes in comes out, and the queue is empty at the end.
pub fn work(soak: &Soak) {
    let (mut producer, mut worker) = (connect(soak), connect(soak));
    let mut random = Random(0x5eed);
    loop {
        for n in 0..100 {
            publish_ok(&mut producer, &format!("work.{}", n % 5), b"job");
        }
        loop {
            let jobs = fetch(&mut worker, "WORK", "W", 50);
            if jobs.is_empty() && stream_state(&mut producer, "WORK")["messages"] == 0 {
                break;
            }
            if jobs.is_empty() {
                // What a killed client was given comes again after ack_wait.
                std::thread::sleep(Duration::from_millis(50));
            }
            for job in jobs {
                // Some are refused and come again.
                if random.below(10) == 0 && position(reply_of(&job)).delivered == 1 {
                    worker
                        .writer
                        .publish(reply_of(&job).as_bytes(), b"", b"", b"-NAK")
                        .expect("nak");
                } else {
                    worker.request(reply_of(&job), b"", b"+ACK", TIMEOUT).expect("double ack");
                    count(&soak.done.worked);
                }
            }
            worker.writer.flush().expect("flush");
        }
        if !soak.runs() {
            return;
        }
    }
}

/// Values that replace each other, read directly, and others that are too old soon.
pub fn latest_values(soak: &Soak) {
    let mut client = connect(soak);
    let mut random = Random(7);
    while soak.runs() {
        for round in 0..50_u64 {
            let key = random.below(100);
            let body = format!("{key}={round}");
            publish_ok(&mut client, &format!("latest.{key}"), body.as_bytes());
            let subject = format!("$JS.API.DIRECT.GET.LATEST.latest.{key}");
            let found = client.request(&subject, b"", b"", TIMEOUT).expect("direct get");
            assert_eq!(found.payload, body.as_bytes());
            publish_ok(&mut client, &format!("short.{key}"), &[b'x'; 500]);
        }
        let state = stream_state(&mut client, "LATEST");
        assert!(state["messages"].as_u64().is_some_and(|n| n <= 100), "{state}");
    }
}

/// Ephemeral consumers: some are deleted, some are left to their inactivity.
pub fn churn_consumers(soak: &Soak) {
    let mut client = connect(soak);
    publish_ok(&mut client, "churn.x", b"something to read");
    let wanted = soak.consumers_wanted.load(Ordering::Relaxed);
    while soak.runs() || soak.done.consumers.load(Ordering::Relaxed) < wanted {
        let mut names = Vec::new();
        for n in 0..CHURNED {
            let config = json!({"stream_name": "CHURN", "config": {
                "ack_policy": if n % 2 == 0 { "explicit" } else { "none" },
                "mem_storage": n % 3 == 0,
                "inactive_threshold": if n % 5 == 0 { 1_000_000_000_u64 } else { 60_000_000_000 }}});
            let info = api_ok(&mut client, "CONSUMER.CREATE.CHURN", &config);
            names.push(info["name"].as_str().expect("a name").to_owned());
        }
        for (n, name) in names.iter().enumerate() {
            if n % 10 == 1 {
                assert_eq!(fetch(&mut client, "CHURN", name, 1).len(), 1, "{name} has something");
            }
            // Every fifth goes by itself after a second.
            if n % 5 != 0 {
                let gone = api(&mut client, &format!("CONSUMER.DELETE.CHURN.{name}"), &Value::Null);
                assert_eq!(gone["success"], true, "{gone}");
            }
            count(&soak.done.consumers);
        }
        if soak.done.consumers.load(Ordering::Relaxed) >= wanted && soak.runs() {
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// Subscribes over a bare socket.
fn bare(soak: &Soak, text: &str) -> TcpStream {
    let address = soak.url.trim_start_matches("nats://");
    let mut stream = TcpStream::connect(address).expect("connect");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    let hello = format!("CONNECT {{\"verbose\":false,\"headers\":true}}\r\n{text}PING\r\n");
    stream.write_all(hello.as_bytes()).expect("send");
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    while !seen.windows(6).any(|six| six == b"PONG\r\n") {
        let count = stream.read(&mut buffer).expect("an answer");
        assert!(count > 0, "closed: {}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&buffer[..count]);
    }
    stream
}

/// A reader that does not read is closed, and the publisher is not.
pub fn read_slowly(soak: &Soak) {
    let mut publisher = connect(soak);
    let body = vec![b'x'; 64 * 1024];
    while soak.runs() {
        let mut slow = bare(soak, "SUB flood.> 1\r\n");
        for _ in 0..FLOOD_BYTES / body.len() {
            publisher.writer.publish(b"flood.x", b"", b"", &body).expect("publish");
        }
        publisher.round_trip(TIMEOUT).expect("the publisher is served");
        // It is closed behind what the system had taken for it.
        let deadline = Instant::now() + TIMEOUT;
        let mut buffer = vec![0; 1 << 20];
        while matches!(slow.read(&mut buffer), Ok(count) if count > 0) {
            assert!(Instant::now() < deadline, "a slow reader was not closed");
        }
        count(&soak.done.slow_readers);
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Clients that vanish in the middle of things: subscribed, waiting for messages, half through one.
pub fn die(soak: &Soak) {
    let mut random = Random(99);
    while soak.runs() {
        // Seldom with work that it takes along: others have to wait until that comes again.
        let batch = if random.below(20) == 0 { 10 } else { 0 };
        let pull = format!("{{\"batch\":{batch},\"expires\":5000000000}}");
        let ask = format!(
            "SUB _INBOX.dying 3\r\nPUB $JS.API.CONSUMER.MSG.NEXT.WORK.W _INBOX.dying {}\r\n{pull}\r\n",
            pull.len()
        );
        let ask = if batch > 0 { ask.as_str() } else { "" };
        let mut stream = bare(soak, &format!("SUB die.> 1\r\nSUB die.x q 2\r\n{ask}"));
        std::thread::sleep(Duration::from_millis(random.below(LIFE_MS)));
        if random.below(2) == 0 {
            let _ = stream.write_all(b"PUB keep.never 100\r\nhalf a mess");
        }
        let reset = Duration::ZERO;
        if random.below(2) == 0 {
            let _ = socket2::SockRef::from(&stream).set_linger(Some(reset));
        }
        drop(stream);
        count(&soak.done.killed_clients);
    }
}

/// Websocket clients that shake hands, or do not, and vanish.
pub fn come_and_go_over_websocket(soak: &Soak) {
    let mut random = Random(3);
    while soak.runs() {
        let mut stream = TcpStream::connect(&soak.websocket).expect("connect");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        let request = "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
            Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
        let cut = if random.below(4) == 0 { random.below(80) as usize } else { request.len() };
        stream.write_all(&request.as_bytes()[..cut]).expect("send");
        if cut == request.len() {
            let mut buffer = [0; 4096];
            let count = stream.read(&mut buffer).expect("an answer");
            assert!(buffer[..count].starts_with(b"HTTP/1.1 101 "), "{:?}", &buffer[..count]);
            // SUB a 1, with a mask of zeros.
            let _ = stream.write_all(b"\x82\x89\0\0\0\0SUB a 1\r\n");
            if random.below(2) == 0 {
                let _ = stream.write_all(b"\x88\x82\0\0\0\0\x03\xe8");
            }
        }
        drop(stream);
        count(&soak.done.websockets);
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A changed configuration and a signal, again and again.
pub fn reload(soak: &Soak) {
    let mut odd = true;
    while soak.runs() {
        write_config(&soak.config, odd);
        let sent = Command::new("kill").args(["-HUP", &soak.pid.to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "kill -HUP");
        count(&soak.done.reloads);
        odd = !odd;
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// Core requests and answers, with a queue group and subscriptions that end by themselves.
pub fn ask_and_answer(soak: &Soak) {
    let (mut asking, mut answering) = (connect(soak), connect(soak));
    while soak.runs() {
        let sid = answering.subscribe("ask.*", "group").expect("subscribe");
        answering.round_trip(TIMEOUT).expect("subscribed");
        for n in 0..20 {
            let inbox = format!("{}.a{n}", asking.inbox());
            let mine = asking.subscribe(&inbox, "").expect("subscribe");
            asking.writer.raw(format!("UNSUB {mine} 1\r\n").as_bytes()).expect("send");
            asking.writer.publish(b"ask.x", inbox.as_bytes(), b"", b"?").expect("publish");
            asking.writer.flush().expect("flush");
            let question = answering.next_message(Instant::now() + TIMEOUT).expect("a question");
            let reply = question.reply.as_deref().expect("where to answer");
            answering.writer.publish(reply.as_bytes(), b"", b"", b"!").expect("publish");
            answering.writer.flush().expect("flush");
            let answer = asking.next_message(Instant::now() + TIMEOUT).expect("an answer");
            assert_eq!(answer.payload, b"!");
            count(&soak.done.requests);
        }
        answering.writer.unsubscribe(sid).expect("unsubscribe");
    }
}
