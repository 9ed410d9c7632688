//! Streams of events: who may follow what, how many at a time, and when they end.

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;

use nuthatch_console::Advisory;
use serde_json::{Value, json};

use crate::played::{Console, JSON, TIMEOUT, until};

/// Streams of events of one session at a time.
const SESSION_FOLLOWS_MAX: usize = 8;

/// A stream of events that is read.
struct Stream {
    input: BufReader<TcpStream>,
    head: String,
}

impl Stream {
    fn open(console: &Console, path: &str, headers: &[(&str, &str)]) -> Self {
        let stream = console.send("GET", path, headers, "");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        let mut input = BufReader::new(stream);
        let mut head = String::new();
        while input.read_line(&mut head).expect("a head") > 2 {}
        Self { input, head: head.to_ascii_lowercase() }
    }

    /// The next line that begins so; `None`: it has ended.
    fn next(&mut self, with: &str) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.input.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some(rest) = line.trim_end().strip_prefix(with) {
                return Some(rest.to_owned());
            }
        }
    }

    fn data(&mut self) -> Value {
        let line = self.next("data: ").expect("an event");
        serde_json::from_str(&line).expect("JSON")
    }
}

fn tell(console: &Console, account: &str, sequence: u64) {
    let sender = console.process.advisories.lock().expect("no panic").clone().expect("a listener");
    let advisory = Advisory {
        account: account.to_owned(),
        subject: "$JS.EVENT.ADVISORY.STREAM.CREATED.A".to_owned(),
        body: json!({ "stream": "A", "n": sequence }).to_string().into_bytes(),
    };
    sender.try_send(advisory).expect("room");
}

#[test]
fn nobody_follows_without_a_login_or_from_another_page() {
    let console = Console::start(false);
    let cookie = console.cookie();
    let status =
        |path: &str, headers: &[(&str, &str)]| console.ask("GET", path, headers, "").status;
    assert_eq!(status("/api/follow/events", &[]), 401);
    let foreign = [("Cookie", &*cookie), ("Origin", "http://evil.example")];
    assert_eq!(status("/api/follow/events", &foreign), 403);
    let own = [("Cookie", &*cookie)];
    for path in ["login", "session", "configuration", "objects/B/part", "follow/events", ""] {
        assert_eq!(status(&format!("/api/follow/{path}"), &own), 404, "{path}");
    }
    let changing = [("Cookie", &*cookie), JSON];
    assert_ne!(console.ask("POST", "/api/follow/publish", &changing, "{}").status, 200);
}

#[test]
fn events_come_as_they_happen_to_their_account_and_go_on_where_they_were() {
    let console = Console::start(false);
    let cookie = console.cookie();
    tell(&console, "SHOP", 1);
    let own = [("Cookie", &*cookie)];
    let mut stream = Stream::open(&console, "/api/follow/events", &own);
    assert!(stream.head.contains("content-type: text/event-stream"), "{}", stream.head);
    assert_eq!(stream.data()["rows"][0]["body"]["n"], 1);
    tell(&console, "OTHER", 2);
    tell(&console, "SHOP", 3);
    let id = stream.next("id: ").expect("an event");
    let found = stream.data();
    assert_eq!(found["rows"].as_array().map(Vec::len), Some(1), "only what is new: {found}");
    assert_eq!(found["rows"][0]["body"]["n"], 3);
    tell(&console, "SHOP", 4);
    let again = [("Cookie", &*cookie), ("Last-Event-ID", &*id)];
    let found = Stream::open(&console, "/api/follow/events", &again).data();
    assert_eq!(found["rows"].as_array().map(Vec::len), Some(1), "not what it has: {found}");
    assert_eq!(found["rows"][0]["body"]["n"], 4);
}

#[test]
fn a_stream_of_events_ends_with_its_session() {
    let console = Console::start(false);
    let (cookie, token) = console.session();
    let headers = [("Cookie", &*cookie), ("X-Console-Token", &*token), JSON];
    let mut stream = Stream::open(&console, "/api/follow/streams/A", &headers[..1]);
    assert_eq!(stream.data()["config"]["name"], "A");
    assert_eq!(console.ask("POST", "/api/logout", &headers, "{}").status, 200);
    assert_eq!(stream.next("data: "), None, "nobody is logged in any more");
}

#[test]
fn one_session_follows_so_much_at_a_time_and_can_still_ask() {
    let console = Console::start(false);
    let cookie = console.cookie();
    let own = [("Cookie", &*cookie)];
    let open = || Stream::open(&console, "/api/follow/events", &own);
    let held: Vec<Stream> = (0..SESSION_FOLLOWS_MAX).map(|_| open()).collect();
    assert!(held.iter().all(|stream| stream.head.starts_with("http/1.1 200")));
    let status = || open().head.split(' ').nth(1).map(str::to_owned);
    assert_eq!(status().as_deref(), Some("429"));
    // On a busy machine its turn may not come in time at first.
    until("its turn", || console.ask("GET", "/api/streams/A", &own, "").status == 200);
    drop(held);
    until("a place again", || status().as_deref() == Some("200"));
}
