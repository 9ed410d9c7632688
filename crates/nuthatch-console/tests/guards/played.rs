//! A console beside a broker that plays its part, and requests to it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nuthatch_console::{
    Advisory, BoxFuture, Cluster, Facts, Findings, Host, ReloadPreview, Sample, Setting, Settings,
    User,
};
use serde_json::{Map, Value, json};

/// Waits until it is so.
pub fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < TIMEOUT, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Longest wait for an answer.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// A process whose broker answers every request, and refuses passwords other than birds.
pub struct Process {
    broker: SocketAddr,
    pub lines: Mutex<Vec<String>>,
    pub asked: Arc<Mutex<Vec<String>>>,
    pub held: Arc<Held>,
    /// Nobody may use the console.
    pub is_closed: AtomicBool,
    /// Where advisories are told.
    pub advisories: Mutex<Option<tokio::sync::mpsc::Sender<Advisory>>>,
}

/// What the broker holds back: the answer about the stream SLOW, and to logins of the user slow.
#[derive(Default)]
pub struct Held {
    is_open: Mutex<bool>,
    opened: Condvar,
    /// When logins of slow came.
    pub logins: Mutex<Vec<Instant>>,
}

impl Held {
    fn wait(&self) {
        let open = self.is_open.lock().expect("no panic");
        drop(self.opened.wait_while(open, |open| !*open).expect("no panic"));
    }

    pub fn open(&self) {
        *self.is_open.lock().expect("no panic") = true;
        self.opened.notify_all();
    }
}

impl Process {
    fn new() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let broker = listener.local_addr().expect("an address");
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let held = Arc::<Held>::default();
        let (heard, holds) = (asked.clone(), held.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (heard, holds) = (heard.clone(), holds.clone());
                std::thread::spawn(move || play_broker(stream, &heard, &holds));
            }
        });
        Arc::new(Self {
            broker,
            lines: Mutex::default(),
            asked,
            held,
            is_closed: AtomicBool::new(false),
            advisories: Mutex::default(),
        })
    }

    pub fn was_asked(&self, subject: &str) -> bool {
        self.asked.lock().expect("no panic").iter().any(|asked| asked == subject)
    }

    /// The lines of the log.
    pub fn log(&self) -> String {
        self.lines.lock().expect("no panic").join("\n")
    }
}

impl Host for Process {
    fn facts(&self) -> Facts {
        Facts {
            name: "played".to_owned(),
            needs_login: true,
            system_account: "$SYS".to_owned(),
            ..Facts::default()
        }
    }

    fn client_url(&self) -> String {
        format!("nats://{}", self.broker)
    }

    fn log(&self, line: &str) {
        self.lines.lock().expect("no panic").push(line.to_owned());
    }

    fn closed(&self) -> Option<String> {
        self.is_closed.load(Ordering::Relaxed).then(|| "nobody is asked who he is".to_owned())
    }

    fn sample(&self) -> BoxFuture<'_, Sample> {
        Box::pin(async { Sample::default() })
    }

    fn listen(&self, advisories: tokio::sync::mpsc::Sender<Advisory>) {
        *self.advisories.lock().expect("no panic") = Some(advisories);
    }

    fn document<'a>(
        &'a self,
        path: &'a str,
        _: &'a Map<String, Value>,
    ) -> BoxFuture<'a, Result<Value, String>> {
        self.asked.lock().expect("no panic").push(path.to_owned());
        Box::pin(async { Ok(json!({})) })
    }

    fn waiting_inboxes<'a>(
        &'a self,
        _: &'a str,
        _: &'a str,
        _: &'a str,
    ) -> BoxFuture<'a, Vec<String>> {
        self.asked.lock().expect("no panic").push("waiting inboxes".to_owned());
        Box::pin(async { Vec::new() })
    }

    fn cluster(&self) -> Option<Cluster> {
        self.asked.lock().expect("no panic").push("cluster".to_owned());
        None
    }

    fn findings(&self) -> Vec<Findings> {
        self.asked.lock().expect("no panic").push("findings".to_owned());
        Vec::new()
    }

    fn kick(&self, _: u64) -> bool {
        self.asked.lock().expect("no panic").push("kick".to_owned());
        true
    }

    fn users(&self) -> Vec<User> {
        self.asked.lock().expect("no panic").push("users".to_owned());
        Vec::new()
    }

    fn settings(&self) -> Result<Vec<Setting>, String> {
        self.asked.lock().expect("no panic").push("settings".to_owned());
        Ok(Vec::new())
    }

    fn preview_reload(&self) -> Result<ReloadPreview, String> {
        Ok(ReloadPreview::default())
    }
}

/// Speaks as much NATS as the console needs, until the client goes.
fn play_broker(stream: TcpStream, asked: &Mutex<Vec<String>>, held: &Held) -> Option<()> {
    let mut out = stream.try_clone().ok()?;
    let mut input = BufReader::new(stream);
    out.write_all(b"INFO {\"server_id\":\"X\",\"max_payload\":1048576,\"headers\":true}\r\n")
        .ok()?;
    let (mut line, mut sid, mut user) = (String::new(), String::new(), "ada");
    loop {
        line.clear();
        if input.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.first().copied() {
            Some("CONNECT") if line.contains("\"slow\"") => {
                held.logins.lock().expect("no panic").push(Instant::now());
                held.wait();
            }
            Some("CONNECT") if line.contains("\"birds\"") => {
                user = if line.contains("\"bob\"") { "bob" } else { "ada" };
            }
            Some("CONNECT") => {
                out.write_all(b"-ERR 'Authorization Violation'\r\n").ok()?;
                return None;
            }
            Some("PING") => out.write_all(b"PONG\r\n").ok()?,
            // That of replies; another one only asks whether it may.
            Some("SUB") if words[1].ends_with(".r.*") => sid = (*words.last()?).to_owned(),
            Some("PUB" | "HPUB") => {
                let few = if words[0] == "PUB" { 3 } else { 4 };
                let reply = (words.len() > few).then(|| words[2].to_owned());
                let subject = words[1].to_owned();
                let mut body = vec![0; words.last()?.parse::<usize>().ok()? + 2];
                input.read_exact(&mut body).ok()?;
                asked.lock().expect("no panic").push(subject.clone());
                if subject.contains("SECRET") {
                    out.write_all(b"-ERR 'Permissions Violation for Publish to \"SECRET\"'\r\n")
                        .ok()?;
                    continue;
                }
                if subject.ends_with(".SLOW") {
                    held.wait();
                }
                let Some(reply) = reply else { continue };
                let text = answer(&subject, user, &body).to_string();
                write!(out, "MSG {reply} {sid} {}\r\n{text}\r\n", text.len()).ok()?;
            }
            _ => {}
        }
    }
}

fn answer(subject: &str, user: &str, body: &[u8]) -> Value {
    let asked: Value = serde_json::from_slice(body).unwrap_or_default();
    let last = subject.rsplit('.').next().unwrap_or_default();
    match subject.strip_suffix(last).unwrap_or_default() {
        "$SYS.REQ.USER." => json!({ "data": { "user": user, "account": "SHOP" } }),
        "$JS.API.STREAM." if last == "NAMES" => json!({ "total": 2, "streams": ["B", "A"] }),
        "$JS.API.STREAM.INFO." => {
            let last_seq = if last == "LONG" { 100 } else { 1 };
            json!({
                "config": { "name": last },
                "state": { "messages": last_seq, "first_seq": 1, "last_seq": last_seq },
            })
        }
        "$JS.API.STREAM.MSG.GET." => {
            let headers = match last {
                "MANY" => "a: b\r\n".repeat(1000),
                "WIDE" => format!("a: {}\r\n", "b".repeat(800)).repeat(1000),
                _ => format!("a: {}\r\n", "b".repeat(700_000)),
            };
            let block = STANDARD.encode(format!("NATS/1.0\r\n{headers}\r\n"));
            let message = json!({ "seq": asked["seq"], "subject": "x", "hdrs": block });
            json!({ "message": message })
        }
        "$JS.API.CONSUMER.LIST." => {
            let row = json!({ "stream_name": last, "name": "c" });
            json!({ "total": 10_000, "consumers": vec![row; 5_000] })
        }
        _ => json!({ "success": true }),
    }
}

/// A console with its runtime.
pub struct Console {
    pub address: SocketAddr,
    pub process: Arc<Process>,
    _runtime: tokio::runtime::Runtime,
}

/// An answer: status, head, JSON of the body.
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Value,
}

impl Console {
    pub fn start(read_only: bool) -> Self {
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

    pub fn raw(&self, text: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.address).expect("a connection");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
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

    pub fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
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
    pub fn cookie(&self) -> String {
        self.cookie_of(ADA)
    }

    pub fn cookie_of(&self, login: &str) -> String {
        let mut stream = TcpStream::connect(self.address).expect("a connection");
        let head = format!(
            "POST /api/login HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{login}",
            self.address,
            login.len()
        );
        stream.write_all(head.as_bytes()).expect("sent");
        let mut found = String::new();
        stream.read_to_string(&mut found).expect("an answer");
        let line = found.lines().find(|line| line.to_ascii_lowercase().starts_with("set-cookie:"));
        assert!(line.is_some_and(|line| line.contains("HttpOnly; SameSite=Strict")), "{found}");
        let value = line.and_then(|line| line.split_once(": ")).expect("a cookie").1;
        value.split(';').next().expect("a pair").to_owned()
    }

    /// Sends a request on a connection of its own, which the caller may break off.
    pub fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).expect("a connection");
        let mut text = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n", self.address);
        for (name, value) in headers {
            text += &format!("{name}: {value}\r\n");
        }
        text += &format!("Content-Length: {}\r\n\r\n{body}", body.len());
        stream.write_all(text.as_bytes()).expect("sent");
        stream
    }

    /// A session: its cookie, and the token that belongs to it.
    pub fn session(&self) -> (String, String) {
        let cookie = self.cookie();
        let told = self.ask("GET", "/api/session", &[("Cookie", &cookie)], "");
        (cookie, told.body["token"].as_str().expect("a token").to_owned())
    }
}

pub const JSON: (&str, &str) = ("Content-Type", "application/json");
pub const ADA: &str = r#"{"user":"ada","password":"birds"}"#;
pub const CONFIRM: &str = r#"{"confirm":"A"}"#;
