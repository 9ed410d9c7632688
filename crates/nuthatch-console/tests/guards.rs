//! Who is let in, from where, and within which bounds; judged over HTTP, beside a broker that plays its
//! part.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nuthatch_console::{Facts, Host, Settings};
use serde_json::{Value, json};

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process whose broker answers every request, and refuses users other than ada.
struct Process {
    broker: SocketAddr,
    lines: Mutex<Vec<String>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Process {
    fn new() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let broker = listener.local_addr().expect("an address");
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let heard = asked.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let heard = heard.clone();
                std::thread::spawn(move || play_broker(stream, &heard));
            }
        });
        Arc::new(Self { broker, lines: Mutex::default(), asked })
    }

    fn was_asked(&self, subject: &str) -> bool {
        self.asked.lock().expect("no panic").iter().any(|asked| asked == subject)
    }
}

impl Host for Process {
    fn facts(&self) -> Facts {
        Facts { name: "played".to_owned(), needs_login: true, ..Facts::default() }
    }

    fn client_url(&self) -> String {
        format!("nats://{}", self.broker)
    }

    fn log(&self, line: &str) {
        self.lines.lock().expect("no panic").push(line.to_owned());
    }
}

/// Speaks as much NATS as the console needs, until the client goes.
fn play_broker(stream: TcpStream, asked: &Mutex<Vec<String>>) -> Option<()> {
    let mut out = stream.try_clone().ok()?;
    let mut input = BufReader::new(stream);
    out.write_all(b"INFO {\"server_id\":\"X\",\"max_payload\":1048576,\"headers\":true}\r\n")
        .ok()?;
    let (mut line, mut sid) = (String::new(), String::new());
    loop {
        line.clear();
        if input.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.first().copied() {
            Some("CONNECT") if !line.contains("\"ada\"") || !line.contains("\"birds\"") => {
                out.write_all(b"-ERR 'Authorization Violation'\r\n").ok()?;
                return None;
            }
            Some("PING") => out.write_all(b"PONG\r\n").ok()?,
            Some("SUB") => sid = (*words.last()?).to_owned(),
            Some("PUB" | "HPUB") => {
                let (subject, reply) = (words[1].to_owned(), words[2].to_owned());
                let mut body = vec![0; words.last()?.parse::<usize>().ok()? + 2];
                input.read_exact(&mut body).ok()?;
                asked.lock().expect("no panic").push(subject.clone());
                if subject.contains("SECRET") {
                    out.write_all(b"-ERR 'Permissions Violation for Publish to \"SECRET\"'\r\n")
                        .ok()?;
                    continue;
                }
                let text = answer(&subject).to_string();
                write!(out, "MSG {reply} {sid} {}\r\n{text}\r\n", text.len()).ok()?;
            }
            _ => {}
        }
    }
}

fn answer(subject: &str) -> Value {
    match subject {
        "$SYS.REQ.USER.INFO" => json!({ "data": { "user": "ada", "account": "SHOP" } }),
        "$JS.API.STREAM.NAMES" => json!({ "total": 2, "streams": ["B", "A"] }),
        "$JS.API.STREAM.INFO.A" | "$JS.API.STREAM.INFO.B" => {
            json!({ "config": { "name": subject.rsplit('.').next() }, "state": { "messages": 1 } })
        }
        _ => json!({ "success": true }),
    }
}

/// A console with its runtime.
struct Console {
    address: SocketAddr,
    process: Arc<Process>,
    _runtime: tokio::runtime::Runtime,
}

/// An answer: status, head, JSON of the body.
struct Answer {
    status: u16,
    head: String,
    body: Value,
}

impl Console {
    fn start(read_only: bool) -> Self {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build().expect("a runtime");
        let process = Process::new();
        let host = "127.0.0.1".to_owned();
        let settings =
            Settings { host, port: 0, read_only, hosts: vec!["console.example".to_owned()] };
        let address = {
            let _inside = runtime.enter();
            nuthatch_console::start(settings, process.clone()).expect("a port")
        };
        Self { address, process, _runtime: runtime }
    }

    fn raw(&self, text: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        // One that refuses early closes without reading everything.
        let _ = stream.write_all(text);
        let mut found = Vec::new();
        let _ = stream.read_to_end(&mut found);
        let found = String::from_utf8_lossy(&found).into_owned();
        let (head, body) = found.split_once("\r\n\r\n").expect("an answer");
        let status = head.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("a status");
        let body = serde_json::from_str(body).unwrap_or(Value::Null);
        Answer { status, head: head.to_ascii_lowercase(), body }
    }

    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut text = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        if !headers.iter().any(|(name, _)| *name == "Host") {
            text += &format!("Host: {}\r\n", self.address);
        }
        for (name, value) in headers {
            text += &format!("{name}: {value}\r\n");
        }
        text += &format!("Content-Length: {}\r\n\r\n{body}", body.len());
        self.raw(text.as_bytes())
    }

    /// The cookie of a login, as it was sent.
    fn cookie(&self) -> String {
        let mut stream = TcpStream::connect(self.address).expect("a connection");
        let head = format!(
            "POST /api/login HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{ADA}",
            self.address,
            ADA.len()
        );
        stream.write_all(head.as_bytes()).expect("sent");
        let mut found = String::new();
        stream.read_to_string(&mut found).expect("an answer");
        let line = found.lines().find(|line| line.to_ascii_lowercase().starts_with("set-cookie:"));
        assert!(line.is_some_and(|line| line.contains("HttpOnly; SameSite=Strict")), "{found}");
        let value = line.and_then(|line| line.split_once(": ")).expect("a cookie").1;
        value.split(';').next().expect("a pair").to_owned()
    }

    /// A session: its cookie, and the token that belongs to it.
    fn session(&self) -> (String, String) {
        let cookie = self.cookie();
        let told = self.ask("GET", "/api/session", &[("Cookie", &cookie)], "");
        (cookie, told.body["token"].as_str().expect("a token").to_owned())
    }
}

const JSON: (&str, &str) = ("Content-Type", "application/json");
const ADA: &str = r#"{"user":"ada","password":"birds"}"#;
const CONFIRM: &str = r#"{"confirm":"A"}"#;

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
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
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
