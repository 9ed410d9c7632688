//! Who is let in, from where, and within which bounds; judged over HTTP, beside a broker that plays its
//! part.

mod attacks;
mod followed;
mod played;
mod watched;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::json;

use played::{CONFIRM, Console, JSON, TIMEOUT};

#[test]
fn nobody_sees_anything_without_a_login() {
    let console = Console::start(false);
    for path in ["overview", "streams", "streams/A", "streams/A/messages", "consumers", "kv"] {
        assert_eq!(console.ask("GET", &format!("/api/{path}"), &[], "").status, 401, "{path}");
    }
    assert_eq!(console.ask("DELETE", "/api/streams/A", &[JSON], CONFIRM).status, 401);
    let wrong = console.ask("POST", "/api/login", &[JSON], r#"{"user":"ada","password":"x"}"#);
    assert_eq!(wrong.status, 401);
    assert!(!wrong.head.contains("set-cookie"), "{}", wrong.head);
    let made_up = [("Cookie", "nuthatch_console_1=AAAA")];
    assert_eq!(console.ask("GET", "/api/streams", &made_up, "").status, 401);
    assert!(console.process.asked.lock().expect("no panic").is_empty(), "the broker was asked");
    let cookie = console.cookie();
    let found = console.ask("GET", "/api/streams", &[("Cookie", &cookie)], "");
    assert_eq!(found.body["rows"][0]["name"], "A", "{}", found.body);
    let lines = console.process.lines.lock().expect("no panic").join("\n");
    assert!(lines.contains("login of \"ada\"") && !lines.contains("birds"), "{lines}");
}

#[test]
fn another_page_reaches_nothing() {
    let console = Console::start(false);
    let (cookie, token) = console.session();
    let cookie = ("Cookie", &*cookie);
    let token = ("X-Console-Token", &*token);
    let delete = |headers: &[(&str, &str)]| {
        let found = console.ask("DELETE", "/api/streams/A", headers, CONFIRM);
        found.status
    };
    assert_eq!(delete(&[cookie, JSON]), 403, "without the token");
    assert_eq!(delete(&[cookie, JSON, ("X-Console-Token", "x")]), 403);
    assert_eq!(delete(&[cookie, JSON, token, ("Origin", "http://evil.example")]), 403);
    assert_eq!(delete(&[cookie, JSON, token, ("Sec-Fetch-Site", "cross-site")]), 403);
    assert_eq!(delete(&[cookie, JSON, token, ("Host", "evil.example")]), 403, "a name of others");
    assert_eq!(delete(&[cookie, token, ("Content-Type", "text/plain")]), 400, "as a form sends it");
    let read = console.ask("GET", "/api/streams", &[cookie, ("Host", "evil.example:8280")], "");
    assert_eq!(read.status, 403);
    assert_eq!(console.ask("GET", "/", &[("Host", "evil.example")], "").status, 403);
    assert!(!console.process.was_asked("$JS.API.STREAM.DELETE.A"));
    let proxied =
        [cookie, JSON, token, ("Host", "console.example"), ("Origin", "https://console.example")];
    assert_eq!(delete(&proxied), 200, "under a configured name");
    assert!(console.process.was_asked("$JS.API.STREAM.DELETE.A"));
    let lines = console.process.lines.lock().expect("no panic").join("\n");
    assert!(
        lines.contains("\"ada\" of account \"SHOP\"")
            && lines.contains("delete stream \"A\": done")
    );
}

#[test]
fn a_read_only_console_asks_for_no_change() {
    let console = Console::start(true);
    let (cookie, token) = console.session();
    let headers = [("Cookie", &*cookie), ("X-Console-Token", &*token), JSON];
    for (method, path, body) in [
        ("DELETE", "streams/A", CONFIRM),
        ("POST", "streams", r#"{"name":"C"}"#),
        ("PUT", "streams", r#"{"name":"A"}"#),
        ("POST", "streams/A/purge", CONFIRM),
        ("DELETE", "streams/A/messages/1", r#"{"confirm":"1"}"#),
        ("POST", "streams/A/consumers/c/pause", "{}"),
        ("DELETE", "streams/A/consumers/c", r#"{"confirm":"c"}"#),
        ("POST", "publish", r#"{"subject":"a","data":""}"#),
        ("POST", "request", r#"{"subject":"a","data":""}"#),
        ("PUT", "kv/b/entry", r#"{"key":"k","data":""}"#),
        ("DELETE", "kv/b/entry", r#"{"key":"k","confirm":"k"}"#),
    ] {
        let found = console.ask(method, &format!("/api/{path}"), &headers, body);
        assert_eq!(found.status, 403, "{method} {path}");
        assert_eq!(found.body["error"], "this console is read-only");
    }
    assert_eq!(console.ask("GET", "/api/streams/A", &headers, "").status, 200);
    let asked = console.process.asked.lock().expect("no panic").clone();
    assert!(asked.iter().all(|s| s.contains("INFO")), "{asked:?}");
    drop(asked);
    assert_eq!(console.ask("POST", "/api/logout", &headers, "{}").status, 200);
    assert_eq!(console.ask("GET", "/api/streams/A", &headers, "").status, 401, "after the logout");
}

#[test]
fn what_the_broker_forbids_is_forbidden() {
    let console = Console::start(false);
    let (cookie, token) = console.session();
    let headers = [("Cookie", &*cookie), ("X-Console-Token", &*token), JSON];
    let found = console.ask("GET", "/api/streams/SECRET", &headers, "");
    assert_eq!(found.status, 403, "{}", found.body);
    assert!(
        found.body["error"].as_str().is_some_and(|text| text.contains("Permissions Violation"))
    );
    // The session goes on.
    assert_eq!(console.ask("GET", "/api/streams/A", &headers, "").status, 200);
}

#[test]
fn names_and_subjects_cannot_leave_their_place() {
    let console = Console::start(false);
    let (cookie, token) = console.session();
    let headers = [("Cookie", &*cookie), ("X-Console-Token", &*token), JSON];
    for name in ["A.B", "*", "%3E", "A%20B", "A%0D%0APUB%20x%200", "", "%00"] {
        let found = console.ask("GET", &format!("/api/streams/{name}"), &headers, "");
        assert_eq!(found.status, 400, "{name}: {}", found.body);
    }
    for subject in ["", "a b", "a..b", "a.*", "a\r\nPUB x 0", "a\u{7f}"] {
        let body = json!({ "subject": subject, "data": "" }).to_string();
        let found = console.ask("POST", "/api/publish", &headers, &body);
        assert_eq!(found.status, 400, "{subject:?}: {}", found.body);
    }
    for key in ["", ".a", "a b", "a.>", "a..b", "ä"] {
        let body = json!({ "key": key, "data": "" }).to_string();
        assert_eq!(console.ask("PUT", "/api/kv/b/entry", &headers, &body).status, 400, "{key:?}");
    }
    let unconfirmed = console.ask("DELETE", "/api/streams/A", &headers, r#"{"confirm":"B"}"#);
    assert_eq!(unconfirmed.status, 400);
    assert!(!console.process.was_asked("$JS.API.STREAM.DELETE.A"));
}

#[test]
fn everything_is_bounded() {
    let console = Console::start(false);
    let (cookie, token) = console.session();
    let auth = format!("Cookie: {cookie}\r\nX-Console-Token: {token}\r\n");
    let address = console.address;
    // Told only: nobody reads that much.
    let mut text = format!(
        "POST /api/publish HTTP/1.1\r\nHost: {address}\r\n{auth}Content-Type: application/json\r\n\
         Content-Length: 999999999\r\n\r\n"
    )
    .into_bytes();
    text.resize(text.len() + 13 * 1024 * 1024, b' ');
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    let mut half = stream.try_clone().expect("a handle");
    let sending = std::thread::spawn(move || half.write_all(&text).is_ok());
    let mut first = [0; 12];
    stream.read_exact(&mut first).expect("an answer");
    assert_eq!(&first, b"HTTP/1.1 413");
    drop(stream);
    let _ = sending.join();
    // A message larger than the broker takes is not sent.
    let data = "A".repeat(4 * 1024 * 1024);
    let body = format!(r#"{{"subject":"big","data":"{data}"}}"#);
    let headers = [("Cookie", &*cookie), ("X-Console-Token", &*token), JSON];
    assert_eq!(console.ask("POST", "/api/publish", &headers, &body).status, 413);
    assert!(!console.process.was_asked("big"));
    // The oldest session makes place for the newest.
    for _ in 0..64 {
        console.cookie();
    }
    assert_eq!(console.ask("GET", "/api/streams/A", &headers, "").status, 401);
}

#[test]
fn pages_load_nothing_from_elsewhere() {
    let console = Console::start(false);
    for path in ["/", "/app.js", "/console.css", "/icon.svg"] {
        let found = console.ask("GET", path, &[], "");
        assert_eq!(found.status, 200, "{path}");
        for wanted in ["default-src 'none'", "frame-ancestors 'none'", "nosniff", "no-referrer"] {
            assert!(found.head.contains(wanted), "{path}: {}", found.head);
        }
        assert!(!found.head.contains("access-control"), "{}", found.head);
    }
    for path in ["/nothing", "/../Cargo.toml", "/%2e%2e/x", "//app.js"] {
        assert_eq!(console.ask("GET", path, &[], "").status, 404, "{path}");
    }
    assert_eq!(console.ask("POST", "/", &[], "").status, 404);
}
