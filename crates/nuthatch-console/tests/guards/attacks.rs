//! What an attack has found.

use std::io::Read as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::played::{CONFIRM, Console, JSON, until};

/// Most logins that are tried at a time, and how long one is tried.
const LOGINS_MAX: usize = 4;
const LOGIN_TIME: Duration = Duration::from_secs(5);

#[test]
fn a_change_is_in_the_log_though_the_browser_hung_up() {
    let console = Console::start(false);
    let (cookie, token) = console.session();
    let headers = [("Cookie", &*cookie), ("X-Console-Token", &*token), JSON];
    let broken_off = console.send("DELETE", "/api/streams/SLOW", &headers, r#"{"confirm":"SLOW"}"#);
    until("asked", || console.process.was_asked("$JS.API.STREAM.DELETE.SLOW"));
    drop(broken_off);
    // The console notices it meanwhile.
    for _ in 0..20 {
        assert_eq!(console.ask("GET", "/api/session", &headers, "").status, 200);
    }
    console.process.held.open();
    until("the line", || console.process.log().contains("delete stream \"SLOW\": done"));
}

#[test]
fn logins_broken_off_keep_their_places() {
    let console = Console::start(false);
    let slow = r#"{"user":"slow","password":"x"}"#;
    let heard = || console.process.held.logins.lock().expect("no panic").clone();
    let begun = Instant::now();
    for count in 1..=LOGINS_MAX {
        let broken_off = console.send("POST", "/api/login", &[JSON], slow);
        until("heard", || heard().len() >= count);
        drop(broken_off);
    }
    for _ in 0..40 {
        let mut more = console.send("POST", "/api/login", &[JSON], slow);
        more.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
        let _ = more.read(&mut [0; 16]);
    }
    // Another one is only tried once the first one's time is over.
    let next = heard().get(LOGINS_MAX).copied();
    assert!(next.is_none_or(|at| at - begun >= LOGIN_TIME), "{:?}", heard());
    console.process.held.open();
    let ada = || console.ask("POST", "/api/login", &[JSON], crate::played::ADA).status;
    until("places again", || ada() == 200);
}

#[test]
fn one_session_cannot_take_all_places() {
    let console = Console::start(false);
    let (cookie, token) = console.session();
    let headers = [("Cookie", &*cookie), ("X-Console-Token", &*token), JSON];
    let mut waiting = vec![console.send("GET", "/api/streams/SLOW", &headers, "")];
    until("asked", || console.process.was_asked("$JS.API.STREAM.INFO.SLOW"));
    for _ in 0..6 {
        waiting.push(console.send("GET", "/api/streams/A", &headers, ""));
    }
    let is_refused = |stream: &TcpStream| {
        let mut first = [0; 12];
        let count = stream.peek(&mut first).unwrap_or_default();
        &first[..count] == b"HTTP/1.1 429"
    };
    for stream in &waiting {
        stream.set_nonblocking(true).expect("a mode");
    }
    until("one too many", || waiting.iter().filter(|stream| is_refused(stream)).count() == 1);
    assert_eq!(console.ask("GET", "/api/session", &headers, "").status, 200);
    let (other, _) = console.session();
    assert_eq!(console.ask("GET", "/api/streams/A", &[("Cookie", &*other)], "").status, 200);
    assert_eq!(console.ask("POST", "/api/logout", &headers, "{}").status, 200);
    console.process.held.open();
}

#[test]
fn bodies_are_as_large_as_their_kind_needs() {
    let console = Console::start(false);
    let (cookie, token) = console.session();
    let headers = [("Cookie", &*cookie), ("X-Console-Token", &*token), JSON];
    let filled = |bytes: usize| format!("{{\"x\":\"{}\"}}", "x".repeat(bytes));
    for (method, path, bytes) in [
        ("POST", "login", 17 * 1024),
        ("DELETE", "streams/A", 17 * 1024),
        ("POST", "streams/A/purge", 17 * 1024),
        ("POST", "streams", 1024 * 1024),
    ] {
        let found = console.ask(method, &format!("/api/{path}"), &headers, &filled(bytes));
        assert_eq!(found.status, 413, "{method} {path}: {}", found.body);
    }
    let large = json!({ "name": "C", "description": "x".repeat(900 * 1024) }).to_string();
    assert_eq!(console.ask("POST", "/api/streams", &headers, &large).status, 200);
    assert_eq!(console.ask("PUT", "/api/kv/b/entry", &headers, &filled(99 * 1024)).status, 400);
    for body in ["", "{", "[]", r#"{"confirm":1}"#, r#"{"confirm":"A"} x"#] {
        assert_eq!(console.ask("DELETE", "/api/streams/A", &headers, body).status, 400, "{body}");
    }
    assert!(!console.process.was_asked("$JS.API.STREAM.DELETE.A"));
    assert_eq!(console.ask("DELETE", "/api/streams/A", &headers, CONFIRM).status, 200);
}

#[test]
fn lines_of_the_log_are_short() {
    let console = Console::start(false);
    let (cookie, token) = console.session();
    let headers = [("Cookie", &*cookie), ("X-Console-Token", &*token), JSON];
    let user = json!({ "user": "ä".repeat(4000), "password": "x" }).to_string();
    assert_eq!(console.ask("POST", "/api/login", &[JSON], &user).status, 400);
    let purge = json!({ "confirm": "A", "filter": "ü".repeat(4000) }).to_string();
    assert_eq!(console.ask("POST", "/api/streams/A/purge", &headers, &purge).status, 200);
    let lines = console.process.lines.lock().expect("no panic").clone();
    assert!(lines.iter().any(|line| line.contains("purge stream \"A\"")), "{lines:?}");
    assert_eq!(lines.iter().filter(|line| line.ends_with('…')).count(), 2, "{lines:?}");
    assert!(lines.iter().all(|line| line.len() <= 1024 + '…'.len_utf8()));
    // What is no name is not even told.
    let subject = json!({ "subject": "x".repeat(5000), "data": "" }).to_string();
    assert_eq!(console.ask("POST", "/api/publish", &headers, &subject).status, 400);
    let wrong = r#"{"confirm":"A.B"}"#;
    assert_eq!(console.ask("DELETE", "/api/streams/A.B", &headers, wrong).status, 400);
    assert_eq!(console.process.lines.lock().expect("no panic").len(), lines.len());
}

#[test]
fn a_page_on_another_port_of_this_host_is_another_page() {
    let console = Console::start(false);
    let (cookie, token) = console.session();
    let delete = |origin: &str| {
        let headers =
            [("Cookie", &*cookie), ("X-Console-Token", &*token), JSON, ("Origin", origin)];
        console.ask("DELETE", "/api/streams/A", &headers, CONFIRM).status
    };
    let own = console.address;
    for origin in ["http://127.0.0.1", "http://127.0.0.1:9", "null", &format!("ws://{own}")] {
        assert_eq!(delete(origin), 403, "{origin}");
    }
    assert!(!console.process.was_asked("$JS.API.STREAM.DELETE.A"));
    assert_eq!(delete(&format!("http://{own}")), 200);
    assert_eq!(delete("https://console.example"), 200, "a proxy before it");
}

#[test]
fn after_a_refusal_answers_are_those_of_their_requests() {
    let console = Console::start(false);
    let (cookie, token) = console.session();
    let headers = [("Cookie", &*cookie), ("X-Console-Token", &*token), JSON];
    let publish = |subject: &str| {
        let body = json!({ "subject": subject, "data": "" }).to_string();
        console.ask("POST", "/api/publish", &headers, &body).status
    };
    let subjects = ["SECRET", "SECRET", "open", "SECRET", "open"];
    assert_eq!(subjects.map(publish), [403, 403, 200, 403, 200]);
}

#[test]
fn a_user_only_ends_sessions_of_his_own() {
    let console = Console::start(false);
    let bob = console.cookie_of(r#"{"user":"bob","password":"birds"}"#);
    let ada: Vec<String> = (0..9).map(|_| console.cookie()).collect();
    let status =
        |cookie: &str| console.ask("GET", "/api/streams/A", &[("Cookie", cookie)], "").status;
    assert_eq!(status(&ada[0]), 401, "the oldest of nine");
    assert!(ada[1..].iter().all(|cookie| status(cookie) == 200));
    for _ in 0..70 {
        console.cookie();
    }
    assert_eq!(status(&bob), 200);
}

#[test]
fn what_a_list_shows_of_a_message_is_bounded() {
    let console = Console::start(false);
    let cookie = console.cookie();
    let get = |path: &str| console.ask("GET", path, &[("Cookie", &cookie)], "").body;
    for (stream, count) in [("MANY", 64), ("WIDE", 2)] {
        let listed = get(&format!("/api/streams/{stream}/messages"));
        let message = &listed["messages"][0];
        assert_eq!(message["headers"].as_array().map(Vec::len), Some(count), "{stream}");
        assert_eq!(message["headers_truncated"], true, "{stream}");
        let bytes = message["headers"].to_string().len();
        assert!(bytes < 4096, "{bytes} bytes of headers");
        let whole = get(&format!("/api/streams/{stream}/messages/1"));
        assert_eq!(whole["headers_truncated"], false, "{stream}");
        assert!(whole["headers"].as_array().is_some_and(|all| all.len() > count), "{stream}");
    }
    // Headers use the page's bytes up as payloads do: a hundred messages with a megabyte of them.
    let long = get("/api/streams/LONG/messages?dir=forward&limit=100");
    assert_eq!(long["is_whole"], false);
    let shown = long["messages"].as_array().map(Vec::len).unwrap_or_default();
    assert!((1..40).contains(&shown), "{shown} messages");
}

#[test]
fn consumers_are_looked_at_up_to_a_bound() {
    let console = Console::start(false);
    let cookie = console.cookie();
    let found = console.ask("GET", "/api/consumers?search=none", &[("Cookie", &cookie)], "").body;
    assert_eq!(found["more_than_looked_at"], true, "{found}");
    // The first stream alone has as many as are looked at.
    assert!(console.process.was_asked("$JS.API.CONSUMER.LIST.A"));
    assert!(!console.process.was_asked("$JS.API.CONSUMER.LIST.B"));
}
