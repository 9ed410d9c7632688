//! What the console keeps of the process, and whom it shows it to.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::Ordering;

use nuthatch_console::Advisory;
use serde_json::json;

use crate::played::{ADA, CONFIRM, Console, JSON, TIMEOUT, until};

/// HTTP connections at a time.
const CONNECTIONS_MAX: usize = 128;

fn give_up(console: &Console, account: &str, sequence: u64) {
    let sender = console.process.advisories.lock().expect("no panic").clone().expect("a listener");
    let body = json!({ "stream": "A", "consumer": "c", "stream_seq": sequence, "deliveries": 2 });
    let advisory = Advisory {
        account: account.to_owned(),
        subject: "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.A.c".to_owned(),
        body: body.to_string().into_bytes(),
    };
    sender.try_send(advisory).expect("room");
}

#[test]
fn what_was_given_up_is_shown_to_its_account_only() {
    let console = Console::start(false);
    let (cookie, token) = console.session();
    let headers = [("Cookie", &*cookie), ("X-Console-Token", &*token), JSON];
    give_up(&console, "OTHER", 9);
    give_up(&console, "SHOP", 7);
    let dead = || console.ask("GET", "/api/dead", &headers, "").body;
    until("heard", || dead()["total"] == 1);
    let found = dead();
    assert_eq!(found["rows"][0]["seq"], 7, "{found}");
    let act = |what: &str, body: serde_json::Value| {
        console.ask("POST", &format!("/api/dead/{what}"), &headers, &body.to_string())
    };
    let id = found["rows"][0]["id"].clone();
    assert_eq!(act("discard", json!({ "ids": [id] })).status, 400, "not confirmed");
    assert_eq!(act("retry", json!({ "ids": vec![1; 101] })).status, 400, "too many");
    assert_eq!(act("bury", json!({ "ids": [id] })).status, 404);
    assert!(!console.process.was_asked("$JS.API.STREAM.MSG.DELETE.A"));
    let done = act("discard", json!({ "ids": [id], "confirm": "discard" }));
    assert_eq!(done.body["done"], 1, "{}", done.body);
    assert!(console.process.was_asked("$JS.API.STREAM.MSG.DELETE.A"));
    assert_eq!(dead()["total"], 0);
    let log = console.process.log();
    assert!(log.contains("discard of 1 dead messages: \"A\" 7: done"), "{log}");
}

#[test]
fn the_server_is_shown_to_the_system_account_only() {
    let console = Console::start(false);
    let (cookie, token) = console.session();
    let headers = [("Cookie", &*cookie), ("X-Console-Token", &*token), JSON];
    for path in ["logs", "leafs", "configuration", "cluster", "findings"] {
        assert_eq!(console.ask("GET", &format!("/api/{path}"), &headers, "").status, 403, "{path}");
    }
    let kick = r#"{"confirm":"7"}"#;
    assert_eq!(console.ask("POST", "/api/connections/7/kick", &headers, kick).status, 403);
    for path in ["accounts", "users", "connections", "connections/7", "may?subject=a"] {
        console.ask("GET", &format!("/api/{path}"), &headers, "");
    }
    let asked = console.process.asked.lock().expect("no panic").clone();
    let behind = ["kick", "users", "cluster", "findings"];
    let is_behind = |asked: &&String| asked.starts_with('/') || behind.contains(&asked.as_str());
    assert!(asked.iter().find(is_behind).is_none(), "behind the broker: {asked:?}");
    assert!(asked.iter().all(|asked| !asked.contains("$SYS.REQ.SERVER")), "{asked:?}");
}

#[test]
fn a_session_may_do_no_more_than_its_role() {
    let console = Console::start(false);
    for (role, publishes, deletes) in
        [("read", 403, 403), ("operate", 200, 403), ("admin", 200, 200)]
    {
        let login = ADA.replace('}', &format!(r#","role":"{role}"}}"#));
        let cookie = console.cookie_of(&login);
        let told = console.ask("GET", "/api/session", &[("Cookie", &cookie)], "").body;
        assert_eq!(told["role"], role);
        let token = told["token"].as_str().expect("a token");
        let headers = [("Cookie", &*cookie), ("X-Console-Token", token), JSON];
        let message = r#"{"subject":"a","data":""}"#;
        let published = console.ask("POST", "/api/publish", &headers, message).status;
        let deleted = console.ask("DELETE", "/api/streams/A", &headers, CONFIRM).status;
        assert_eq!((published, deleted), (publishes, deletes), "{role}");
    }
    let root = ADA.replace('}', r#","role":"root"}"#);
    assert_eq!(console.ask("POST", "/api/login", &[JSON], &root).status, 400);
}

#[test]
fn a_console_that_must_not_be_used_answers_nobody() {
    let console = Console::start(false);
    let cookie = console.cookie();
    let status = |path: &str| console.ask("GET", path, &[("Cookie", &cookie)], "").status;
    assert_eq!(status("/api/streams/A"), 200);
    console.process.is_closed.store(true, Ordering::Relaxed);
    for path in ["/", "/api/session", "/api/streams/A"] {
        assert_eq!(status(path), 403, "{path}");
    }
    assert_eq!(console.ask("POST", "/api/login", &[JSON], ADA).status, 403);
    console.process.is_closed.store(false, Ordering::Relaxed);
    assert_eq!(status("/"), 200);
    assert_eq!(status("/api/streams/A"), 401, "its sessions have ended");
    let log = console.process.log();
    assert_eq!(log.matches("Console: closed: nobody is asked who he is").count(), 1, "{log}");
}

#[test]
fn whoever_sends_slowly_makes_place() {
    let console = Console::start(false);
    let slow = || {
        let mut stream = TcpStream::connect(console.address).expect("a connection");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        stream.write_all(b"GET / HTTP/1.1\r\n").expect("sent");
        stream
    };
    let mut held: Vec<TcpStream> = (0..CONNECTIONS_MAX).map(|_| slow()).collect();
    // Each of these takes the place of the one that has waited for longest.
    for _ in 0..CONNECTIONS_MAX / 2 {
        assert_eq!(console.ask("GET", "/api/session", &[], "").status, 200);
    }
    assert_eq!(held[0].read(&mut [0; 1]).unwrap_or_default(), 0, "it was ended");
}
