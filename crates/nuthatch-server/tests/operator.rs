//! Operator mode: accounts and users as tokens, byte by byte.

mod support;
#[path = "support/tokens.rs"]
mod tokens;

use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use support::{Peer, TestServer, configured, eventually};
use tokens::{Key, Kind, now};

/// One operator with two accounts and the system account, each with one key of its own.
struct World {
    operator: Key,
    sys: Key,
    app: Key,
    shop: Key,
    user: Key,
}

impl World {
    fn new() -> Self {
        Self {
            operator: Key::new(Kind::Operator, 1),
            sys: Key::new(Kind::Account, 2),
            app: Key::new(Kind::Account, 3),
            shop: Key::new(Kind::Account, 4),
            user: Key::new(Kind::User, 5),
        }
    }

    fn operator_jwt(&self) -> String {
        let nats = json!({ "system_account": self.sys.public });
        self.operator.sign(&self.operator.public, "operator", nats, json!({}))
    }

    /// An account without limits and with these claims.
    fn account(&self, key: &Key, nats: Value) -> String {
        self.operator.sign(&key.public, "account", with_limits(nats), json!({}))
    }

    /// A server with these tokens of accounts in its configuration.
    fn server(&self, tokens: &[(&Key, String)]) -> TestServer {
        TestServer::start(configured(&self.configuration("resolver: MEMORY", tokens)))
    }

    fn configuration(&self, resolver: &str, tokens: &[(&Key, String)]) -> String {
        let preload: Vec<String> =
            tokens.iter().map(|(key, token)| format!("{}: {token}", key.public)).collect();
        let (operator, preload) = (self.operator_jwt(), preload.join("\n"));
        format!("operator: {operator}\n{resolver}\nresolver_preload {{\n{preload}\n}}\n")
    }

    /// A user of an account that may do everything.
    fn user_of(&self, account: &Key) -> String {
        account.sign(&self.user.public, "user", free(), json!({}))
    }

    /// Connects the user with this token.
    fn connect(&self, server: &TestServer, token: &str) -> Peer {
        let mut peer = self.present(server, token);
        peer.send("PING\r\n");
        peer.expect("PONG\r\n");
        peer
    }

    /// Sends CONNECT with this token and the signature that belongs to it.
    fn present(&self, server: &TestServer, token: &str) -> Peer {
        let mut peer = Peer::new(std::net::TcpStream::connect(server.address).unwrap());
        let line = peer.line();
        let info: Value = serde_json::from_str(line.strip_prefix("INFO ").unwrap()).unwrap();
        assert_eq!(info["auth_required"], true);
        let sig = self.user.sign_nonce(info["nonce"].as_str().unwrap());
        peer.send(connect(token, &sig));
        peer
    }

    fn refused(&self, server: &TestServer, token: &str) {
        let mut peer = self.present(server, token);
        peer.expect_close("-ERR 'Authorization Violation'\r\n");
    }
}

fn connect(token: &str, sig: &str) -> String {
    let connect = json!({
        "verbose": false, "pedantic": false, "headers": true, "no_responders": true,
        "jwt": token, "sig": sig,
    });
    format!("CONNECT {connect}\r\n")
}

/// Limits of a user that has none.
fn free() -> Value {
    json!({ "subs": -1, "data": -1, "payload": -1 })
}

fn with_limits(mut nats: Value) -> Value {
    let mut limits = json!({
        "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true,
        "conn": -1, "leaf": -1,
    });
    if let Some(own) = nats.get("limits").and_then(Value::as_object) {
        own.iter().for_each(|(name, value)| limits[name] = value.clone());
    }
    nats["limits"] = limits;
    nats
}

/// Sends a request on the subscription `answers` (sid 1) and reads the answer's body.
fn ask(peer: &mut Peer, subject: &str, body: &str) -> String {
    peer.send(format!("PUB {subject} answers {}\r\n{body}\r\n", body.len()));
    let line = peer.line();
    assert!(line.starts_with("MSG answers 1 "), "{line}");
    let length: usize = line.rsplit(' ').next().unwrap().parse().unwrap();
    let body = peer.take(length);
    peer.expect("\r\n");
    String::from_utf8(body).unwrap()
}

fn listening(mut peer: Peer) -> Peer {
    peer.send("SUB answers 1\r\n");
    peer.flush("");
    peer
}

#[track_caller]
fn updated(peer: &mut Peer, token: &str) {
    let answer: Value = serde_json::from_str(&ask(peer, "$SYS.REQ.CLAIMS.UPDATE", token)).unwrap();
    assert_eq!(answer["data"]["message"], "jwt updated", "{answer}");
    assert_eq!(answer["data"]["code"], 200);
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
        format!("resolver {{ type: full, dir: '{}' {more} }}", self.0.display())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn who_is_let_in_and_who_is_not() {
    let world = World::new();
    let server = world.server(&[(&world.app, world.account(&world.app, json!({})))]);
    let good = world.user_of(&world.app);
    let mut peer = listening(world.connect(&server, &good));
    let info: Value = serde_json::from_str(&ask(&mut peer, "$SYS.REQ.USER.INFO", "")).unwrap();
    assert_eq!(info["data"]["user"], world.user.public);
    assert_eq!(info["data"]["account"], world.app.public);
    assert_eq!(info["data"]["account_name"], "somebody");

    // An account that is not there, one that nobody trusts, and a token of another kind.
    world.refused(&server, &world.user_of(&world.shop));
    world.refused(&server, &world.account(&world.app, json!({})));
    world.refused(&server, "");
    world.refused(&server, &format!("{}x", &good[..good.len() - 1]));
    // Somebody else's signature.
    let mut peer = server.peer();
    peer.send(connect(&good, &world.user.sign_nonce("another nonce")));
    peer.expect_close("-ERR 'Authorization Violation'\r\n");
    // Before and after its time.
    for times in [json!({ "nbf": now() + 1000 }), json!({ "exp": now() - 10 })] {
        let token = world.app.sign(&world.user.public, "user", free(), times);
        world.refused(&server, &token);
    }
    // Not from there, not over this kind of connection, not at any time of the day.
    for limit in [
        json!({ "src": ["10.0.0.0/8"] }),
        json!({ "allowed_connection_types": ["WEBSOCKET", "MQTT"] }),
        json!({ "times": [{ "start": "12:00:00", "end": "12:00:00" }] }),
        json!({ "proxy_required": true }),
    ] {
        let mut nats = free();
        limit.as_object().unwrap().iter().for_each(|(name, v)| nats[name] = v.clone());
        world.refused(&server, &world.app.sign(&world.user.public, "user", nats, json!({})));
    }
    let mut nats = free();
    nats["src"] = json!(["127.0.0.0/8", "::1/128"]);
    nats["allowed_connection_types"] = json!(["standard"]);
    world.connect(&server, &world.app.sign(&world.user.public, "user", nats, json!({})));
}

#[test]
fn a_bearer_need_not_sign() {
    let world = World::new();
    let account = world.account(&world.app, json!({}));
    let strict = world.account(&world.shop, json!({ "limits": { "disallow_bearer": true } }));
    let server = world.server(&[(&world.app, account), (&world.shop, strict)]);
    let mut nats = free();
    nats["bearer_token"] = json!(true);
    let token = |key: &Key| key.sign(&world.user.public, "user", nats.clone(), json!({}));
    let mut peer = server.peer();
    peer.send(connect(&token(&world.app), ""));
    peer.flush("");
    world.refused(&server, &token(&world.shop));
}

#[test]
fn limits_and_permissions_of_a_user() {
    let world = World::new();
    let account = json!({ "default_permissions": { "pub": { "allow": ["open.>"] } },
        "limits": { "conn": 2 } });
    let server = world.server(&[(&world.app, world.account(&world.app, account))]);
    let nats = json!({ "subs": 1, "data": -1, "payload": 4,
        "pub": { "allow": ["a.>"], "deny": ["a.b"] }, "sub": { "deny": ["secret.>"] } });
    let token = world.app.sign(&world.user.public, "user", nats, json!({}));
    let mut peer = world.connect(&server, &token);
    peer.send("PUB a.b 1\r\nx\r\nSUB secret.x 1\r\nSUB a.c 1\r\nSUB a.d 2\r\nPUB a.c 2\r\nhi\r\n");
    peer.flush(
        "-ERR 'Permissions Violation for Publish to \"a.b\"'\r\n\
         -ERR 'Permissions Violation for Subscription to \"secret.x\"'\r\n\
         -ERR 'maximum subscriptions exceeded'\r\nMSG a.c 1 2\r\nhi\r\n",
    );
    peer.send("PUB a.c 5\r\nhello\r\n");
    peer.expect_close("-ERR 'Maximum Payload Violation'\r\n");
    // Who has no permissions has those of the account.
    let account = server.server.accounts.by_name(&world.app.public).unwrap();
    eventually("the connection is gone", || account.connections.load(Ordering::Relaxed) == 0);
    let mut peer = world.connect(&server, &world.user_of(&world.app));
    peer.send("PUB a.c 1\r\nx\r\nPUB open.c 1\r\nx\r\n");
    peer.flush("-ERR 'Permissions Violation for Publish to \"a.c\"'\r\n");
    let _second = world.connect(&server, &world.user_of(&world.app));
    let mut third = world.present(&server, &world.user_of(&world.app));
    third.expect_close("-ERR 'maximum account active connections exceeded'\r\n");
}

#[test]
fn a_scoped_key_gives_its_users_their_rights() {
    let world = World::new();
    let (role, plain) = (Key::new(Kind::Account, 20), Key::new(Kind::Account, 21));
    let template = json!({ "pub": { "allow": ["orders.{{name()}}.>"] },
        "sub": { "allow": ["team.{{tag(team)}}", "{{tag(none)}}.x"] }, "subs": 5 });
    let keys = json!([plain.public,
        { "kind": "user_scope", "key": role.public, "role": "r", "template": template }]);
    let account = world.account(&world.app, json!({ "signing_keys": keys }));
    let server = world.server(&[(&world.app, account)]);
    let nats = |rights: Value| {
        let mut nats = rights;
        nats["issuer_account"] = json!(world.app.public);
        nats["tags"] = json!(["team:red", "team:blue"]);
        nats
    };
    let scoped = role.sign(&world.user.public, "user", nats(json!({})), json!({ "name": "ada" }));
    let mut peer = world.connect(&server, &scoped);
    peer.send("SUB team.red 1\r\nSUB team.green 2\r\nPUB orders.ada.x 1\r\nx\r\nPUB orders.eve.x 1\r\nx\r\n");
    peer.flush(
        "-ERR 'Permissions Violation for Subscription to \"team.green\"'\r\n\
         -ERR 'Permissions Violation for Publish to \"orders.eve.x\"'\r\n",
    );
    // A scoped user may not say itself what it may do; a plain key's user must.
    world.refused(&server, &role.sign(&world.user.public, "user", nats(free()), json!({})));
    world.connect(&server, &plain.sign(&world.user.public, "user", nats(free()), json!({})));
    // A key of nobody.
    let stranger = Key::new(Kind::Account, 22);
    world.refused(&server, &stranger.sign(&world.user.public, "user", nats(free()), json!({})));
}

/// Lives of tokens, in seconds: a slow machine may miss the first.
const LIVES: [i64; 3] = [3, 6, 9];

/// Presents a token that ends soon and waits for its end; `false`: it had ended before.
fn outlives(world: &World, server: &TestServer, token: &str, last_words: &str) -> bool {
    let mut peer = world.present(server, token);
    peer.send("PING\r\n");
    if peer.line() != "PONG" {
        return false;
    }
    peer.expect_close(last_words);
    true
}

#[test]
fn a_user_has_to_go_when_its_token_ends() {
    let world = World::new();
    let server = world.server(&[(&world.app, world.account(&world.app, json!({})))]);
    let lived = LIVES.iter().any(|life| {
        let times = json!({ "exp": now() + life });
        let token = world.app.sign(&world.user.public, "user", free(), times);
        outlives(&world, &server, &token, "-ERR 'User Authentication Expired'\r\n")
    });
    assert!(lived);
}

#[test]
fn an_account_has_to_go_when_its_token_ends() {
    let world = World::new();
    let token = world.user_of(&world.app);
    let lived = LIVES.iter().any(|life| {
        let (claims, times) = (with_limits(json!({})), json!({ "exp": now() + life }));
        let account = world.operator.sign(&world.app.public, "account", claims, times);
        let server = world.server(&[(&world.app, account)]);
        let lived = outlives(&world, &server, &token, "-ERR 'Account Authentication Expired'\r\n");
        world.refused(&server, &token);
        lived
    });
    assert!(lived);
}

#[test]
fn accounts_change_while_the_server_runs() {
    let world = World::new();
    let directory = Directory::new("operator-live");
    let tokens = [
        (&world.sys, world.account(&world.sys, json!({}))),
        (&world.app, world.account(&world.app, json!({}))),
    ];
    let conf = world.configuration(&directory.resolver(""), &tokens);
    let server = TestServer::start(configured(&conf));
    let mut sys = listening(world.connect(&server, &world.user_of(&world.sys)));

    let token = world.user_of(&world.app);
    let mut peer = world.connect(&server, &token);
    let revoked = json!({ "revocations": { world.user.public.clone(): now() + 1000 } });
    updated(&mut sys, &world.account(&world.app, revoked));
    peer.expect_close("-ERR 'User Authentication Revoked'\r\n");
    world.refused(&server, &token);

    updated(&mut sys, &world.account(&world.app, json!({ "tags": ["again"] })));
    let _first = world.connect(&server, &token);
    let mut second = world.connect(&server, &token);
    updated(&mut sys, &world.account(&world.app, json!({ "limits": { "conn": 1 } })));
    second.expect_close("-ERR 'maximum account active connections exceeded'\r\n");

    // A new account is served at once.
    updated(&mut sys, &world.account(&world.shop, json!({})));
    world.connect(&server, &world.user_of(&world.shop));
}

#[test]
fn requests_about_accounts_and_a_restart() {
    let world = World::new();
    let directory = Directory::new("operator-requests");
    let system = [(&world.sys, world.account(&world.sys, json!({})))];
    let conf = world.configuration(&directory.resolver(", allow_delete: true"), &system);
    let server = TestServer::start(configured(&conf));
    let mut sys = listening(world.connect(&server, &world.user_of(&world.sys)));
    let account = world.account(&world.app, json!({}));
    updated(&mut sys, &account);
    let lookup = format!("$SYS.REQ.ACCOUNT.{}.CLAIMS.LOOKUP", world.app.public);
    assert_eq!(ask(&mut sys, &lookup, ""), account);
    let unknown = format!("$SYS.REQ.ACCOUNT.{}.CLAIMS.LOOKUP", world.shop.public);
    assert_eq!(ask(&mut sys, &unknown, ""), "");
    let list: Value = serde_json::from_str(&ask(&mut sys, "$SYS.REQ.CLAIMS.LIST", "")).unwrap();
    let mut keys = vec![world.app.public.clone(), world.sys.public.clone()];
    keys.sort();
    assert_eq!(list["data"], json!(keys));
    refusals(&world, &mut sys);
    drop(server);

    let server = TestServer::start(configured(&conf));
    world.connect(&server, &world.user_of(&world.app));
    let mut sys = listening(world.connect(&server, &world.user_of(&world.sys)));
    let mut peer = world.connect(&server, &world.user_of(&world.app));
    let accounts = json!({ "accounts": [world.app.public] });
    let token = world.operator.sign(&world.operator.public, "generic", accounts, json!({}));
    let answer: Value =
        serde_json::from_str(&ask(&mut sys, "$SYS.REQ.CLAIMS.DELETE", &token)).unwrap();
    assert_eq!(answer["data"]["message"], "deleted 1 accounts", "{answer}");
    peer.expect_close("-ERR 'Account Authentication Expired'\r\n");
    world.refused(&server, &world.user_of(&world.app));
    assert!(directory.0.join(format!("{}.jwt.deleted", world.app.public)).exists());
}

/// What is refused, with the reason.
fn refusals(world: &World, sys: &mut Peer) {
    let mut fails = |subject: &str, body: &str, expect: &str| {
        let answer: Value = serde_json::from_str(&ask(sys, subject, body)).unwrap();
        let found = answer["error"]["description"].as_str().unwrap_or_default();
        assert!(found.contains(expect), "{answer}");
    };
    let update = "$SYS.REQ.CLAIMS.UPDATE";
    fails(update, "nonsense", "expected 3 chunks");
    fails(update, &world.user_of(&world.app), "not account claim");
    let self_signed = world.app.sign(&world.app.public, "account", json!({}), json!({}));
    fails(update, &self_signed, "not signed by a trusted operator");
    let of_shop = world.account(&world.shop, json!({}));
    let of_app = format!("$SYS.REQ.ACCOUNT.{}.CLAIMS.UPDATE", world.app.public);
    fails(&of_app, &of_shop, "subject does not match jwt content");
    let callout = json!({ "authorization": { "auth_users": [world.shop.public] } });
    fails(update, &world.account(&world.shop, callout), "is not a valid user public key");
    let mapping = json!({ "mappings": { "a": [{ "subject": "b.{{wildcard(1)}}" }] } });
    fails(update, &world.account(&world.shop, mapping), "mapping");
    let delete = "$SYS.REQ.CLAIMS.DELETE";
    let doomed = |by: &Key, accounts: Value| {
        by.sign(&by.public, "generic", json!({ "accounts": accounts }), json!({}))
    };
    fails(delete, &doomed(&world.shop, json!([])), "not trusted");
    fails(delete, &doomed(&world.operator, json!(["x"])), "malformed request");
    let system = doomed(&world.operator, json!([world.sys.public]));
    fails(delete, &system, "not allowed to delete system account");
}

/// `STORE`'s exports: a public stream and a service that takes an activation.
fn exporter(revocations: &Value) -> Value {
    json!({ "exports": [
        { "subject": "news.>", "type": "stream" },
        { "subject": "orders.*", "type": "service", "token_req": true, "revocations": revocations },
    ] })
}

/// The order arrives, with who it is from in its headers.
#[track_caller]
fn ordered(shop: &mut Peer) {
    let line = shop.line();
    assert!(line.starts_with("HMSG orders.seeds 1 _R_."), "{line}");
    let length: usize = line.rsplit(' ').next().unwrap().parse().unwrap();
    let message = String::from_utf8(shop.take(length)).unwrap();
    assert!(message.contains("Nats-Request-Info") && message.ends_with("\r\n\r\nx"), "{message}");
    shop.expect("\r\n");
}

/// Nobody serves it.
#[track_caller]
fn unanswered(app: &mut Peer) {
    assert!(app.line().starts_with("HMSG answers 1 "));
    assert_eq!(app.line(), "NATS/1.0 503");
    while !app.line().is_empty() {}
    app.expect("\r\n");
}

#[test]
fn imports_by_token() {
    let world = World::new();
    let directory = Directory::new("operator-imports");
    let activation = |by: &Key| {
        let nats = json!({ "subject": "orders.*", "kind": "service" });
        by.sign(&world.app.public, "activation", nats, json!({}))
    };
    let importer = |token: &str| {
        json!({ "imports": [
            { "subject": "news.>", "account": world.shop.public, "to": "shop", "type": "stream" },
            { "subject": "orders.*", "account": world.shop.public, "local_subject": "buy.$1",
              "type": "service", "token": token },
        ] })
    };
    let tokens = [
        (&world.sys, world.account(&world.sys, json!({}))),
        (&world.shop, world.account(&world.shop, exporter(&json!({})))),
        (&world.app, world.account(&world.app, importer(&activation(&world.shop)))),
    ];
    let conf = world.configuration(&directory.resolver(""), &tokens);
    let server = TestServer::start(configured(&conf));
    let mut shop = world.connect(&server, &world.user_of(&world.shop));
    let mut app = listening(world.connect(&server, &world.user_of(&world.app)));
    app.send("SUB shop.news.> 2\r\n");
    app.flush("");
    shop.send("SUB orders.* 1\r\nPUB news.today 2\r\nhi\r\n");
    shop.flush("");
    app.expect("MSG shop.news.today 2 2\r\nhi\r\n");
    let order = |app: &mut Peer| app.send("PUB buy.seeds answers 1\r\nx\r\n");
    order(&mut app);
    ordered(&mut shop);

    // Without a valid activation nobody responds; the rest goes on.
    let mut sys = listening(world.connect(&server, &world.user_of(&world.sys)));
    updated(&mut sys, &world.account(&world.app, importer(&activation(&world.sys))));
    order(&mut app);
    unanswered(&mut app);
    updated(&mut sys, &world.account(&world.app, importer(&activation(&world.shop))));
    order(&mut app);
    ordered(&mut shop);
    let revoked = exporter(&json!({ world.app.public.clone(): now() + 1000 }));
    updated(&mut sys, &world.account(&world.shop, revoked));
    order(&mut app);
    unanswered(&mut app);
    shop.send("PUB news.today 2\r\nho\r\n");
    app.expect("MSG shop.news.today 2 2\r\nho\r\n");
}

#[test]
fn settings_that_do_not_go_together() {
    let world = World::new();
    let operator = world.operator_jwt();
    let memory = format!("operator: {operator}\nresolver: MEMORY\n");
    let full = "resolver { type: full, dir: x }";
    let of = |nats: Value| world.operator.sign(&world.operator.public, "operator", nats, json!({}));
    let cases = [
        (format!("operator: {operator}"), "operators require an account resolver"),
        (format!("{memory} accounts {{ A {{}} }}"), "do not allow Accounts"),
        (format!("{memory} authorization {{ user: a, password: b }}"), "do not allow users"),
        (format!("{memory} no_auth_user: a"), "no_auth_user"),
        (format!("{memory} trusted_keys: {}", world.operator.public), "trusted_keys cannot be"),
        (format!("{memory} system_account: {}", world.app.public), "must be identical"),
        (format!("operator: {}\n{full}", of(json!({}))), "lives on the system account"),
        (
            format!("trusted_keys: {}\n{full}", world.operator.public),
            "a resolver of type full or cache needs 'operator'",
        ),
        (
            format!(
                "operator: {}\nresolver: MEMORY",
                of(json!({ "assert_server_version": "9.0.0" }))
            ),
            "expects server version 9.0.0",
        ),
        (
            format!("operator: {}\nresolver: MEMORY", of(json!({ "signing_keys": ["x"] }))),
            "'x' is not the public nkey of an operator",
        ),
        (
            format!(
                "trusted_keys: {}\nresolver: MEMORY\nsystem_account: SYS",
                world.operator.public
            ),
            "system_account 'SYS' is not the public nkey",
        ),
    ];
    for (conf, expect) in cases {
        let error = support::refused_configuration(&conf);
        assert!(error.contains(expect), "{conf}: {error}");
    }
    // A key in place of the operator's token.
    let conf = format!(
        "trusted_keys: {}\nresolver: MEMORY\nresolver_preload {{ {}: {} }}",
        world.operator.public,
        world.app.public,
        world.account(&world.app, json!({}))
    );
    let server = TestServer::start(configured(&conf));
    world.connect(&server, &world.user_of(&world.app));
}

#[test]
fn a_leaf_node_logs_in_with_a_token_and_goes_when_that_is_revoked() {
    let world = World::new();
    let directory = Directory::new("operator-leaf");
    let tokens = [
        (&world.sys, world.account(&world.sys, json!({}))),
        (&world.app, world.account(&world.app, json!({}))),
    ];
    let conf = world.configuration(&directory.resolver(""), &tokens);
    let server = TestServer::start(configured(&format!("{conf}\nleafnodes {{ port: -1 }}")));
    let mut sys = listening(world.connect(&server, &world.user_of(&world.sys)));
    let join = |kinds: Value| {
        let stream = std::net::TcpStream::connect(server.leafs.unwrap()).unwrap();
        let mut peer = Peer::new(stream);
        let line = peer.line();
        let info: Value = serde_json::from_str(line.strip_prefix("INFO ").unwrap()).unwrap();
        let mut nats = free();
        nats["allowed_connection_types"] = kinds;
        let token = world.app.sign(&world.user.public, "user", nats, json!({}));
        let sig = world.user.sign_nonce(info["nonce"].as_str().unwrap());
        let connect = json!({ "jwt": token, "sig": sig, "name": "leaf", "headers": true,
            "protocol": 1, "remote_account": "X" });
        peer.send(format!("CONNECT {connect}\r\n"));
        peer
    };
    join(json!(["STANDARD"])).expect_close("-ERR 'Authorization Violation'\r\n");
    let mut leaf = join(json!(["LEAFNODE"]));
    let welcome = leaf.line();
    assert!(welcome.contains(&world.app.public), "{welcome}");
    let revoked = json!({ "revocations": { "*": now() + 1000 } });
    updated(&mut sys, &world.account(&world.app, revoked));
    let mut line = leaf.line();
    while line.starts_with("LS") {
        line = leaf.line();
    }
    assert_eq!(line, "-ERR 'User Authentication Revoked'");
    join(json!([])).expect_close("-ERR 'Authorization Violation'\r\n");
}

#[test]
fn the_system_account_may_bring_its_own_token() {
    let world = World::new();
    let directory = Directory::new("operator-bootstrap");
    let conf = world.configuration(&directory.resolver(""), &[]);
    let server = TestServer::start(configured(&conf));
    let mut sys = listening(world.connect(&server, &world.user_of(&world.sys)));
    updated(&mut sys, &world.account(&world.sys, json!({})));
    updated(&mut sys, &world.account(&world.app, json!({})));
    world.connect(&server, &world.user_of(&world.app));
}
