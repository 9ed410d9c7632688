//! The server under attack: three accounts, every kind of listener.

use crate::memory;
use crate::support::{Server, TIMEOUT, TempDir, api_ok};
use nuthatch_client::{Client, ConnectOptions, Credentials};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The canary's connections are called so; no other account may ever see it.
pub const CANARY_NAME: &str = "canary-that-nobody-sees";
/// A hash with a cost of 2^10 rounds, and its password.
const HASH: &str = "$2a$10$XajjQvNhvvRt5GSeFk1xFeyqRrsxkhBkUiQeg0dt.wU1qD4aFDcga";
/// The password of [`HASH`].
pub const HASHED_PASSWORD: &str = "allmine";

/// Which server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Who {
    /// This build's.
    Ours,
    /// nats-server.
    Theirs,
}

/// A running server.
pub struct Rig {
    server: Option<Server>,
    dir: TempDir,
    who: Who,
    /// Port of leaf nodes, without TLS.
    pub leaf_port: u16,
    /// Resident bytes before the first attack.
    pub idle_bytes: u64,
}

impl Rig {
    /// A server with nobody connected; `None` where there is no nats-server and
    /// `NUTHATCH_SKIP_PEERS` says that this is intended.
    pub fn start(who: Who) -> Option<Self> {
        if who == Who::Theirs {
            reference()?;
        }
        let dir = TempDir::new(&format!("hostile-{who:?}"));
        write_certificate(dir.path());
        let leaf_port = free_port();
        let mut rig = Self { server: None, dir, who, leaf_port, idle_bytes: 0 };
        rig.launch();
        Some(rig)
    }

    fn launch(&mut self) {
        let file = self.dir.path().join("server.conf");
        std::fs::write(&file, configuration(self.leaf_port, self.dir.path())).expect("writes");
        let store = self.store();
        let _ = std::fs::remove_dir_all(&store);
        let ours = || std::env::var_os("NUTHATCH_TEST_SERVER").map(PathBuf::from);
        let program = if self.who == Who::Theirs { reference() } else { ours() };
        let flags = ["-m", "-1", "-c", file.to_str().expect("a plain path")];
        let mut server = Server::start_program(program.as_deref(), &store, &flags);
        // TLS is there for who asks for it.
        server.url = server.url.replace("tls://", "nats://");
        self.server = Some(server);
        let private = json!({"name": "PRIVATE", "subjects": ["private.>"]});
        let mut client = self.client("canary");
        api_ok(&mut client, "STREAM.CREATE.PRIVATE", &private);
        for n in 0..10 {
            crate::support::publish_ok(&mut client, "private.x", format!("secret {n}").as_bytes());
        }
        self.idle_bytes = memory::resident(self.pid());
    }

    /// Starts anew what an attack has ended, so that the next one meets a server.
    pub fn replace_if_gone(&mut self) {
        if !self.is_alive() {
            self.server = None;
            self.launch();
        }
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().expect("it is there until it is stopped")
    }

    /// Its store directory.
    pub fn store(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub fn who(&self) -> Who {
        self.who
    }

    pub fn pid(&self) -> u32 {
        self.server().pid()
    }

    pub fn is_alive(&mut self) -> bool {
        self.server.as_mut().is_some_and(Server::is_alive)
    }

    /// SIGTERM, and waits for the end.
    pub fn stop(mut self) {
        self.server.take().expect("it is there").stop();
    }

    /// `host:port` of clients.
    pub fn address(&self) -> String {
        self.server().url.trim_start_matches("nats://").to_owned()
    }

    /// `host:port` of monitoring.
    pub fn http(&self) -> String {
        self.server().monitor_url().trim_start_matches("http://").to_owned()
    }

    /// `host:port` of websocket clients.
    pub fn websocket(&self) -> String {
        self.server().port_of("websocket").trim_start_matches("ws://").to_owned()
    }

    /// A client of a user whose password is its name.
    pub fn client(&self, user: &str) -> Client {
        self.client_named(user, "attacker")
    }

    /// [`Rig::client`] with a name for monitoring.
    pub fn client_named(&self, user: &str, name: &str) -> Client {
        self.try_client(user, user, name).unwrap_or_else(|why| panic!("{user}: {why}"))
    }

    /// A client with any password.
    pub fn try_client(&self, user: &str, password: &str, name: &str) -> Result<Client, String> {
        let mut options = ConnectOptions::new(&self.server().url).map_err(|e| e.to_string())?;
        options.timeout = TIMEOUT;
        options.name = name.to_owned();
        let (user, password) = (Some(user.to_owned()), Some(password.to_owned()));
        options.credentials = Credentials { user, password, ..Credentials::default() };
        Client::connect(&options).map_err(|e| e.to_string())
    }

    /// Nothing panicked so far.
    pub fn check_log(&self) -> Result<(), String> {
        let text = self.server().log_text();
        let line = text.lines().find(|line| line.contains("panicked at"));
        line.map_or(Ok(()), |line| Err(line.to_owned()))
    }
}

/// The whole number in a release build, or if `NUTHATCH_HOSTILE_FULL` is set while the test is built; the
/// small one in a debug build.
pub const fn scaled(full: usize, small: usize) -> usize {
    let is_full = option_env!("NUTHATCH_HOSTILE_FULL").is_some();
    if cfg!(debug_assertions) && !is_full { small } else { full }
}

/// An API call with an answer, whatever it says.
pub fn call(client: &mut Client, subject: &str, body: &Value) -> Result<Value, String> {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let reply =
        client.request(subject, b"", &body, TIMEOUT).map_err(|e| format!("{subject}: {e}"))?;
    serde_json::from_slice(&reply.payload).map_err(|e| format!("{subject}: {e}"))
}

/// How an answer ended: `ok` or its error.
pub fn verdict(answer: &Value) -> String {
    match answer["error"]["description"].as_str() {
        Some(text) => text.chars().take(60).collect(),
        None => "ok".to_owned(),
    }
}

fn reference() -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers/nats-server");
    let path = std::env::var_os("NATS_SERVER").map_or(built, PathBuf::from);
    if path.is_file() {
        return Some(path);
    }
    let may_miss = std::env::var_os("NUTHATCH_SKIP_PEERS").is_some();
    assert!(may_miss, "{} is absent: run tests/peers.sh", path.display());
    None
}

/// A port that nobody listened on a moment ago.
pub fn free_port() -> u16 {
    nuthatch_ports::free_port().expect("a port")
}

/// `cert.pem` and `key.pem` of 127.0.0.1, which sign themselves.
pub fn write_certificate(dir: &Path) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("makes");
    std::fs::write(dir.join("cert.pem"), made.cert.pem()).expect("writes");
    std::fs::write(dir.join("key.pem"), made.signing_key.serialize_pem()).expect("writes");
}

fn configuration(leaf_port: u16, dir: &Path) -> String {
    let dir = dir.display();
    format!(
        r#"
jetstream {{ domain: hub }}
system_account: SYS
accounts {{
  SYS {{ users: [ {{ user: system, password: system }} ] }}
  CANARY {{
    jetstream: enabled
    users: [ {{ user: canary, password: canary }} ]
    exports: [ {{ service: "$JS.API.INFO" }} ]
  }}
  ATTACKER {{
    jetstream: enabled
    users: [
      {{ user: attacker, password: attacker }}
      {{ user: hashed, password: "{HASH}" }}
      {{ user: limited, password: limited, permissions: {{
        publish: {{ deny: ["$JS.API.STREAM.DELETE.>", "$KV.priv.>"] }} }} }}
    ]
    imports: [
      {{ service: {{ account: CANARY, subject: "$JS.API.INFO" }}, to: "their.api.INFO" }}
    ]
  }}
}}
tls {{ cert_file: "{dir}/cert.pem", key_file: "{dir}/key.pem", timeout: 2 }}
allow_non_tls: true
websocket {{
  listen: "127.0.0.1:-1", no_tls: true, compression: true, same_origin: true
  user_cookie: "user", pass_cookie: "pass"
}}
leafnodes {{
  listen: "127.0.0.1:{leaf_port}"
  authorization {{ user: attacker, password: attacker, account: ATTACKER }}
}}
"#
    )
}
