//! Accounts that come when they are needed: from an HTTP server, and from other servers on the system account.

mod support;
#[path = "support/tokens.rs"]
mod tokens;

use nuthatch_server::logging::Logger;
use nuthatch_server::server::Server;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::{Peer, TestServer, configured, eventually};
use tokens::{Key, Kind, now};

const REFUSED: &str = "-ERR 'Authorization Violation'\r\n";

/// What the HTTP server says of an account.
#[derive(Clone)]
enum Answer {
    Token(String),
    /// Status 200 and so many bytes.
    Large(usize),
    /// Nothing, ever.
    Silence,
    Status(&'static str),
    /// To be asked for there.
    Moved(String),
}

#[derive(Default)]
struct Content {
    answers: HashMap<String, Answer>,
    asked: HashMap<String, usize>,
    logins: Vec<String>,
}

/// A small HTTP server with the tokens of accounts.
#[derive(Clone)]
struct AccountServer {
    address: SocketAddr,
    content: Arc<Mutex<Content>>,
}

impl AccountServer {
    fn start() -> Self {
        Self::with(|stream| Box::new(stream))
    }

    /// `secure` turns a socket into what is read and written.
    fn with(secure: impl Fn(TcpStream) -> Box<dyn Stream> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let content = Arc::new(Mutex::new(Content::default()));
        let server = Self { address, content };
        let accepting = server.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (server, stream) = (accepting.clone(), secure(stream));
                std::thread::spawn(move || server.answer(stream));
            }
        });
        server
    }

    fn answer(&self, stream: Box<dyn Stream>) {
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        if stream.read_line(&mut line).is_err() || line.is_empty() {
            return;
        }
        let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        loop {
            let mut header = String::new();
            stream.read_line(&mut header).unwrap();
            if let Some(login) = header.to_lowercase().strip_prefix("authorization:") {
                let _ = login;
                self.content.lock().unwrap().logins.push(header.trim().to_owned());
            }
            if header.trim().is_empty() {
                break;
            }
        }
        let name = path.strip_prefix("/jwt/v1/accounts/").expect("the path of the configuration");
        let answer = {
            let mut content = self.content.lock().unwrap();
            *content.asked.entry(name.to_owned()).or_default() += 1;
            content.answers.get(name).cloned()
        };
        let stream = stream.get_mut();
        let mut say = |status: &str, body: &[u8]| {
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
            let _ = stream.flush();
        };
        match answer {
            _ if name.is_empty() => say("200 OK", b""),
            Some(Answer::Token(token)) => say("200 OK", token.as_bytes()),
            Some(Answer::Large(size)) => say("200 OK", &vec![b'x'; size]),
            Some(Answer::Silence) => std::thread::sleep(Duration::from_secs(20)),
            Some(Answer::Status(status)) => say(status, b"no"),
            Some(Answer::Moved(to)) => say(&format!("302 Found\r\nLocation: {to}"), b""),
            None => say("404 Not Found", b""),
        }
    }

    fn put(&self, key: &Key, answer: Answer) {
        self.content.lock().unwrap().answers.insert(key.public.clone(), answer);
    }

    fn asked(&self, key: &Key) -> usize {
        self.content.lock().unwrap().asked.get(&key.public).copied().unwrap_or_default()
    }

    fn resolver(&self, scheme: &str) -> String {
        format!("resolver: URL({scheme}://localhost:{}/jwt/v1/accounts/)", self.address.port())
    }
}

trait Stream: Read + Write + Send {}
impl<S: Read + Write + Send> Stream for S {}

struct World {
    operator: Key,
    system: Key,
    app: Key,
    shop: Key,
    user: Key,
}

impl World {
    fn new() -> Self {
        Self {
            operator: Key::new(Kind::Operator, 1),
            system: Key::new(Kind::Account, 2),
            app: Key::new(Kind::Account, 3),
            shop: Key::new(Kind::Account, 4),
            user: Key::new(Kind::User, 5),
        }
    }

    fn account(&self, key: &Key, mut nats: Value, more: Value) -> String {
        nats["limits"] = json!({
            "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true,
            "conn": -1, "leaf": -1,
        });
        self.operator.sign(&key.public, "account", nats, more)
    }

    fn configuration(&self, resolver: &str) -> String {
        let nats = json!({ "system_account": self.system.public });
        let operator = self.operator.sign(&self.operator.public, "operator", nats, json!({}));
        format!("operator: {operator}\n{resolver}\n")
    }

    fn server(&self, resolver: &str) -> TestServer {
        TestServer::start(configured(&self.configuration(resolver)))
    }

    fn present(&self, server: &TestServer, account: &Key) -> Peer {
        let rights = json!({ "subs": -1, "data": -1, "payload": -1 });
        let token = account.sign(&self.user.public, "user", rights, json!({}));
        let mut peer = Peer::new(TcpStream::connect(server.address).unwrap());
        let line = peer.line();
        let info: Value = serde_json::from_str(line.strip_prefix("INFO ").unwrap()).unwrap();
        let sig = self.user.sign_nonce(info["nonce"].as_str().unwrap());
        let connect = json!({ "verbose": false, "pedantic": false, "jwt": token, "sig": sig });
        peer.send(format!("CONNECT {connect}\r\n"));
        peer
    }

    fn connect(&self, server: &TestServer, account: &Key) -> Peer {
        let mut peer = self.present(server, account);
        peer.flush("");
        peer
    }

    fn refused(&self, server: &TestServer, account: &Key) {
        self.present(server, account).expect_close(REFUSED);
    }
}

#[test]
fn accounts_come_from_an_http_server_when_they_are_needed() {
    let (world, there) = (World::new(), AccountServer::start());
    let import = json!([{ "name": "news", "subject": "news.>", "account": world.shop.public,
        "type": "stream", "local_subject": "shop.news.>" }]);
    let app = world.account(&world.app, json!({ "imports": import }), json!({}));
    there.put(&world.app, Answer::Token(app));
    let export = json!([{ "name": "news", "subject": "news.>", "type": "stream" }]);
    let shop = world.account(&world.shop, json!({ "exports": export }), json!({}));
    there.put(&world.shop, Answer::Token(shop));
    let server = world.server(&there.resolver("http"));
    assert_eq!((there.asked(&world.app), there.asked(&world.shop)), (0, 0));
    // Many at once ask once, and what the account imports from comes along.
    let mut peers: Vec<Peer> = (0..8).map(|_| world.present(&server, &world.app)).collect();
    for peer in &mut peers {
        peer.flush("");
    }
    assert_eq!((there.asked(&world.app), there.asked(&world.shop)), (1, 1));
    peers[0].send("SUB shop.news.> 1\r\n");
    peers[0].flush("");
    let mut shop = world.connect(&server, &world.shop);
    shop.send("PUB news.today 2\r\nhi\r\n");
    shop.flush("");
    peers[0].expect("MSG shop.news.today 1 2\r\nhi\r\n");
    assert_eq!(there.asked(&world.shop), 1);
}

/// Nobody is let in, and the server is asked once a second at most.
#[test]
fn an_account_that_is_not_there() {
    let (world, there) = (World::new(), AccountServer::start());
    let server = world.server(&there.resolver("http"));
    let begun = Instant::now();
    for _ in 0..10 {
        world.refused(&server, &world.app);
    }
    let seconds = begun.elapsed().as_secs() as usize;
    assert!((1..=seconds + 1).contains(&there.asked(&world.app)), "{}", there.asked(&world.app));
    let token = world.account(&world.app, json!({}), json!({}));
    there.put(&world.app, Answer::Token(token));
    std::thread::sleep(Duration::from_secs(1));
    world.connect(&server, &world.app);
}

#[test]
fn an_account_that_is_to_be_asked_for_elsewhere() {
    let (world, first, other) = (World::new(), AccountServer::start(), AccountServer::start());
    let at = |server: &AccountServer, name: &str| {
        format!("http://localhost:{}/jwt/v1/accounts/{name}", server.address.port())
    };
    first.put(&world.app, Answer::Moved(at(&other, "there")));
    let token = world.account(&world.app, json!({}), json!({}));
    let answers = |name: &str, answer| {
        other.content.lock().unwrap().answers.insert(name.to_owned(), answer);
    };
    answers("there", Answer::Moved("here".to_owned()));
    answers("here", Answer::Token(token));
    let resolver = format!(
        "resolver: URL(http://a:secret@localhost:{}/jwt/v1/accounts/)",
        first.address.port()
    );
    let server = world.server(&resolver);
    world.connect(&server, &world.app);
    assert!(!first.content.lock().unwrap().logins.is_empty());
    assert!(other.content.lock().unwrap().logins.is_empty(), "it is not told the password");
    // One that leads back to itself does not go on for ever.
    first.put(&world.shop, Answer::Moved(at(&first, &world.shop.public)));
    world.refused(&server, &world.shop);
    assert_eq!(first.asked(&world.shop), 11);
}

#[test]
fn an_http_server_that_lies() {
    let (world, there) = (World::new(), AccountServer::start());
    let server = world.server(&there.resolver("http"));
    let shop = world.account(&world.shop, json!({}), json!({}));
    there.put(&world.shop, Answer::Token(shop.clone()));
    let stranger = Key::new(Kind::Operator, 77);
    let lies = [
        Answer::Token(shop),
        Answer::Token("eyJ.no.token".to_owned()),
        Answer::Token(String::new()),
        Answer::Token(stranger.sign(
            &Key::new(Kind::Account, 10).public,
            "account",
            json!({}),
            json!({}),
        )),
        Answer::Large(64 << 20),
        Answer::Status("500 Internal Server Error"),
        Answer::Status("302 Found\r\nLocation: http://127.0.0.1:1/"),
    ];
    for (number, lie) in (10_u8..).zip(lies) {
        let account = Key::new(Kind::Account, number);
        there.put(&account, lie);
        world.refused(&server, &account);
        assert_eq!(there.asked(&account), 1);
    }
    world.connect(&server, &world.shop);
}

/// A server that hangs holds up nobody whose account is here, and its own clients not for longer than they
/// have to authenticate.
#[test]
fn an_http_server_that_hangs() {
    let (world, there) = (World::new(), AccountServer::start());
    let token = world.account(&world.app, json!({}), json!({}));
    there.put(&world.app, Answer::Token(token));
    let server =
        world.server(&format!("{}\nauthorization {{ timeout: 0.5 }}", there.resolver("http")));
    world.connect(&server, &world.app);
    let hanging: Vec<Key> = (100..150).map(|number| Key::new(Kind::Account, number)).collect();
    hanging.iter().for_each(|key| there.put(key, Answer::Silence));
    let mut peers: Vec<Peer> = hanging.iter().map(|key| world.present(&server, key)).collect();
    let mut app = world.connect(&server, &world.app);
    app.flush("");
    for peer in &mut peers {
        // Whichever of the two bounds is noticed first.
        let line = peer.line();
        assert!(REFUSED.starts_with(&line) || line == "-ERR 'Authentication Timeout'", "{line}");
    }
    let asked: usize = hanging.iter().map(|key| there.asked(key)).sum();
    assert!(asked <= 32, "{asked} requests at once");
}

#[test]
fn an_account_whose_time_is_over_is_asked_for_again() {
    let (world, there) = (World::new(), AccountServer::start());
    let soon = world.account(&world.app, json!({}), json!({ "exp": now() + 2 }));
    there.put(&world.app, Answer::Token(soon));
    let server = world.server(&there.resolver("http"));
    let mut peer = world.connect(&server, &world.app);
    peer.expect_close("-ERR 'Account Authentication Expired'\r\n");
    let later = world.account(&world.app, json!({}), json!({ "exp": now() + 600 }));
    there.put(&world.app, Answer::Token(later));
    std::thread::sleep(Duration::from_secs(1));
    world.connect(&server, &world.app);
    assert_eq!(there.asked(&world.app), 2);
}

#[test]
fn over_tls_and_with_a_password() {
    let world = World::new();
    let mut ca = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca_key = rcgen::KeyPair::generate().unwrap();
    let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
    let key = rcgen::KeyPair::generate().unwrap();
    let issuer = rcgen::Issuer::new(ca, ca_key);
    let named = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = named.signed_by(&key, &issuer).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key.serialize_der().try_into().unwrap())
        .unwrap();
    let config = Arc::new(config);
    let there = AccountServer::with(move |stream| {
        let session = rustls::ServerConnection::new(config.clone()).unwrap();
        Box::new(rustls::StreamOwned::new(session, stream))
    });
    let token = world.account(&world.app, json!({}), json!({}));
    there.put(&world.app, Answer::Token(token));
    let file = std::env::temp_dir().join(format!("nuthatch-resolver-ca-{}", std::process::id()));
    std::fs::write(&file, ca_pem).unwrap();
    let resolver = there.resolver("https").replace("localhost", "us%40er:pw@localhost");
    let tls = format!("resolver_tls {{ ca_file: '{}' }}", file.display());
    let server = world.server(&format!("{resolver}\n{tls}"));
    world.connect(&server, &world.app);
    let logins = there.content.lock().unwrap().logins.clone();
    assert!(logins.iter().all(|login| login.ends_with("Basic dXNAZXI6cHc=")), "{logins:?}");
    assert!(logins.len() >= 2);
    // An authority that nobody knows.
    let unknown = world.configuration(&there.resolver("https"));
    assert!(start_error(&unknown).contains("TLS"), "{}", start_error(&unknown));
    std::fs::remove_file(&file).unwrap();
}

/// Why a server does not start.
fn start_error(text: &str) -> String {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = Server::new(configured(text), Logger::silent());
    server.set_runtime(runtime.handle().clone());
    let started = nuthatch_server::operator_service::start(&server);
    started.err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn a_server_does_not_start_without_its_account_server() {
    let world = World::new();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let text = world.configuration(&format!("resolver: URL(http://a:secret@{nobody}/x)"));
    let error = start_error(&text);
    assert!(error.contains(&format!("could not fetch <\"http://{nobody}/x/\">")), "{error}");
    assert!(!error.contains("secret"), "{error}");
}

/// A directory that is removed in the end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("nuthatch-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    fn resolver(&self, more: &str) -> String {
        format!("resolver {{ type: cache, dir: '{}', {more} }}", self.0.display())
    }

    fn files(&self) -> usize {
        let entries = std::fs::read_dir(&self.0).unwrap().flatten();
        entries.filter(|entry| entry.path().extension().is_some_and(|e| e == "jwt")).count()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The account that somebody asks for on the system account, and where the answer goes.
fn lookup(peer: &mut Peer) -> (String, String) {
    let line = peer.line();
    let words: Vec<&str> = line.trim_end().split(' ').collect();
    let ["MSG", subject, "1", reply, "0"] = words[..] else { panic!("{line:?}") };
    peer.expect("\r\n");
    (subject.split('.').nth(3).unwrap().to_owned(), reply.to_owned())
}

fn reply(peer: &mut Peer, to: &str, body: &str) {
    peer.send(format!("PUB {to} {}\r\n{body}\r\n", body.len()));
}

#[test]
fn accounts_come_from_other_servers_and_are_kept() {
    let (world, dir) = (World::new(), Directory::new("cached-accounts"));
    let server = world.server(&dir.resolver("limit: 1, timeout: '400ms'"));
    // The system account may have users before its own token has come.
    let mut system = world.connect(&server, &world.system);
    system.send("SUB $SYS.REQ.ACCOUNT.*.CLAIMS.LOOKUP 1\r\n");
    system.flush("");
    let token = world.account(&world.app, json!({}), json!({}));
    let mut app = world.present(&server, &world.app);
    // The server looks for the token of the system account, too.
    let answer = |system: &mut Peer, body: &str| {
        loop {
            let (key, to) = lookup(system);
            if key != world.system.public {
                reply(system, &to, body);
                return key;
            }
        }
    };
    assert_eq!(answer(&mut system, &token), world.app.public);
    app.flush("");
    assert_eq!(dir.files(), 1);
    // Nothing, another account's, and silence: nobody is let in.
    for (number, body) in [(20, Some("")), (21, Some(token.as_str())), (22, None)] {
        let account = Key::new(Kind::Account, number);
        let mut peer = world.present(&server, &account);
        if let Some(body) = body {
            assert_eq!(answer(&mut system, body), account.public);
        }
        peer.expect_close(REFUSED);
    }
    let shop = world.account(&world.shop, json!({}), json!({}));
    let mut peer = world.present(&server, &world.shop);
    while answer(&mut system, &shop) != world.shop.public {}
    peer.flush("");
    assert_eq!(dir.files(), 1, "one is kept");
    app.flush("");
    drop(server);
    // The file is enough after a restart, as long as it is young enough.
    let server = world.server(&dir.resolver(""));
    world.connect(&server, &world.shop);
    world.refused(&server, &world.app);
    drop(server);
    let server = world.server(&dir.resolver("ttl: '1s'"));
    eventually("what nobody uses goes", || dir.files() == 0);
    world.refused(&server, &world.shop);
}

/// What a cache has changes with what is sent to all servers; what it has not is none of its business.
#[test]
fn a_cache_hears_of_changes() {
    let (world, dir) = (World::new(), Directory::new("changed-accounts"));
    let token = world.account(&world.app, json!({}), json!({}));
    let system = world.account(&world.system, json!({}), json!({}));
    let preload = format!(
        "resolver_preload {{ {}: {token}\n{}: {system} }}",
        world.app.public, world.system.public
    );
    let server = world.server(&format!("{}\n{preload}", dir.resolver("")));
    assert_eq!(dir.files(), 2);
    let mut app = world.connect(&server, &world.app);
    let mut peer = world.connect(&server, &world.system);
    let said = |peer: &mut Peer, token: &str| {
        let answer: Value =
            serde_json::from_str(&peer.ask("$SYS.REQ.CLAIMS.UPDATE", token)).unwrap();
        answer["data"]["message"].as_str().unwrap_or_default().to_owned()
    };
    let shop = world.account(&world.shop, json!({}), json!({}));
    assert_eq!(said(&mut peer, &shop), "jwt update cache skipped");
    let revoked = json!({ "revocations": { "*": now() + 10 } });
    let revoked = world.account(&world.app, revoked, json!({ "iat": now() + 1 }));
    assert_eq!(said(&mut peer, &revoked), "jwt updated cache");
    app.expect_close("-ERR 'User Authentication Revoked'\r\n");
}
