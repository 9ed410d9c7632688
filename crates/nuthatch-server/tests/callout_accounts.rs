//! Auth callout of operators' accounts, and requests that are encrypted.

mod support;
#[path = "support/tokens.rs"]
mod tokens;

use nuthatch_protocol::nkey::{KeyKind, PublicKey, decode_as};
use nuthatch_server::xkey::CurveKey;
use serde_json::{Value, json};
use support::{Peer, TestServer, configured};
use tokens::{Key, Kind, now};

const SUBJECT: &str = "$SYS.REQ.USER.AUTH";
const REFUSED: &str = "-ERR 'Authorization Violation'\r\n";

/// An operator; the account of a service with a signing key, and two accounts of users. The service, its
/// user, and the user that everybody shares until the service has said who is who.
struct World {
    operator: Key,
    system: Key,
    auth: Key,
    auth_signer: Key,
    app: Key,
    app_signer: Key,
    shop: Key,
    service: Key,
    sentinel: Key,
    curve: CurveKey,
}

impl World {
    fn new() -> Self {
        let account = |number| Key::new(Kind::Account, number);
        Self {
            operator: Key::new(Kind::Operator, 1),
            system: account(2),
            auth: account(3),
            auth_signer: account(4),
            app: account(5),
            app_signer: account(6),
            shop: account(7),
            service: Key::new(Kind::User, 8),
            sentinel: Key::new(Kind::User, 9),
            curve: CurveKey::random(),
        }
    }

    fn account(&self, key: &Key, mut nats: Value) -> String {
        nats["limits"] = json!({
            "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true,
            "conn": -1, "leaf": -1,
        });
        self.operator.sign(&key.public, "account", nats, json!({}))
    }

    /// The account of the service; `more` of its `authorization`.
    fn auth_account(&self, more: Value) -> String {
        let mut authorization = json!({ "auth_users": [self.service.public] });
        for (name, value) in more.as_object().unwrap() {
            authorization[name] = value.clone();
        }
        let keys = json!([self.auth_signer.public]);
        let nats = json!({ "authorization": authorization, "signing_keys": keys });
        self.account(&self.auth, nats)
    }

    fn configuration(&self, authorization: Value, more: &str) -> String {
        let template = json!({ "pub": { "allow": ["orders.{{name()}}"] } });
        let scope = json!({ "kind": "user_scope", "key": self.app_signer.public, "role": "r", "template": template });
        let app = self.account(&self.app, json!({ "signing_keys": [scope] }));
        let tokens = [
            (&self.auth, self.auth_account(authorization)),
            (&self.app, app),
            (&self.shop, self.account(&self.shop, json!({}))),
            (&self.system, self.account(&self.system, json!({}))),
        ];
        let preload: String =
            tokens.iter().map(|(key, token)| format!("{}: {token}\n", key.public)).collect();
        let nats = json!({ "system_account": self.system.public });
        let operator = self.operator.sign(&self.operator.public, "operator", nats, json!({}));
        format!("operator: {operator}\nresolver: MEMORY\nresolver_preload {{\n{preload}}}\n{more}")
    }

    /// A server, and the service that listens there.
    fn started(&self, authorization: Value, more: &str) -> (TestServer, Peer) {
        let server = TestServer::start(configured(&self.configuration(authorization, more)));
        let token = self.auth.sign(&self.service.public, "user", free(), json!({}));
        let mut peer = self.present(&server, &self.service, &token, json!({ "headers": true }));
        peer.send(format!("SUB {SUBJECT} 1\r\n"));
        peer.flush("");
        (server, peer)
    }

    fn sentinel_token(&self) -> String {
        let mut nats = free();
        (nats["bearer_token"], nats["tags"]) = (json!(true), json!(["shared"]));
        nats["pub"] = json!({ "deny": [">"] });
        self.auth.sign(&self.sentinel.public, "user", nats, json!({ "name": "sentinel" }))
    }

    fn present(&self, server: &TestServer, user: &Key, token: &str, more: Value) -> Peer {
        let mut peer = Peer::new(std::net::TcpStream::connect(server.address).unwrap());
        let line = peer.line();
        let info: Value = serde_json::from_str(line.strip_prefix("INFO ").unwrap()).unwrap();
        let sig = user.sign_nonce(info["nonce"].as_str().unwrap());
        let mut connect = json!({ "verbose": false, "pedantic": false, "jwt": token, "sig": sig });
        for (name, value) in more.as_object().unwrap() {
            connect[name] = value.clone();
        }
        peer.send(format!("CONNECT {connect}\r\n"));
        peer
    }

    /// A client with the token that everybody has.
    fn client(&self, server: &TestServer, user: &str) -> Peer {
        let more = json!({ "user": user, "pass": "pw" });
        self.present(server, &self.sentinel, &self.sentinel_token(), more)
    }
}

fn free() -> Value {
    json!({ "subs": -1, "data": -1, "payload": -1 })
}

/// A request that the service has heard.
struct Asked {
    reply: String,
    claims: Value,
    headers: String,
}

fn heard(peer: &mut Peer, open: &dyn Fn(&[u8]) -> Vec<u8>) -> Asked {
    let line = peer.line();
    let words: Vec<&str> = line.trim_end().split(' ').collect();
    let (reply, head, total) = match words[..] {
        ["MSG", SUBJECT, "1", reply, size] => (reply, 0, size.parse::<usize>().unwrap()),
        ["HMSG", SUBJECT, "1", reply, head, size] => {
            (reply, head.parse::<usize>().unwrap(), size.parse::<usize>().unwrap())
        }
        _ => panic!("{line:?}"),
    };
    let body = peer.take(total + 2);
    let token = String::from_utf8(open(&body[head..total])).unwrap();
    let headers = String::from_utf8(body[..head].to_vec()).unwrap();
    Asked { reply: reply.to_owned(), claims: claims(&token), headers }
}

fn claims(token: &str) -> Value {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let part = token.split('.').nth(1).expect("a token");
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}

fn plainly(peer: &mut Peer) -> Asked {
    heard(peer, &<[u8]>::to_vec)
}

impl Asked {
    fn user(&self) -> &str {
        self.claims["nats"]["user_nkey"].as_str().unwrap()
    }

    /// A response that this key signs.
    fn response(&self, by: &Key, nats: Value) -> String {
        let more = json!({ "aud": self.claims["iss"] });
        by.sign(self.user(), "authorization_response", nats, more)
    }

    fn send(&self, peer: &mut Peer, response: &[u8]) {
        let head = format!("PUB {} {}\r\n", self.reply, response.len());
        peer.send([head.as_bytes(), response, b"\r\n"].concat());
    }

    fn answer(&self, peer: &mut Peer, by: &Key, nats: Value) {
        self.send(peer, self.response(by, nats).as_bytes());
    }
}

/// A user's token that this key signs.
fn user(by: &Key, asked: &Asked, nats: Value) -> Value {
    json!({ "jwt": by.sign(asked.user(), "user", nats, json!({ "name": "ada" })) })
}

fn curve(text: &str) -> PublicKey {
    decode_as(KeyKind::Curve, text).expect("a curve key")
}

#[test]
fn an_account_asks_its_service() {
    let world = World::new();
    let allowed = json!({ "allowed_accounts": [world.app.public] });
    let (server, mut service) = world.started(allowed, "");
    // Into its own account, with the account's key.
    let mut ada = world.client(&server, "ada");
    let asked = plainly(&mut service);
    assert_eq!(asked.claims["sub"], world.auth.public);
    let info = &asked.claims["nats"]["client_info"];
    assert_eq!(
        (&info["user"], &info["name_tag"], &info["tags"]),
        (&json!("ada"), &json!("sentinel"), &json!(["shared"]))
    );
    assert_eq!(asked.claims["nats"]["connect_opts"]["jwt"], world.sentinel_token());
    assert_eq!(asked.claims["nats"]["server_id"]["xkey"], Value::Null);
    let token = user(&world.auth, &asked, free());
    asked.answer(&mut service, &world.auth, token);
    ada.flush("");
    // What the shared token may not do does not matter any more; only the server asks.
    ada.send(format!("PUB a 0\r\n\r\nPUB {SUBJECT} 0\r\n\r\n"));
    ada.flush(format!("-ERR 'Permissions Violation for Publish to \"{SUBJECT}\"'\r\n"));
    service.send(format!("PUB {SUBJECT} 0\r\n\r\n"));
    service.flush(format!("-ERR 'Permissions Violation for Publish to \"{SUBJECT}\"'\r\n"));
    // Into another one, whose scoped key signs; the response with a signing key.
    let mut eve = world.client(&server, "eve");
    let asked = plainly(&mut service);
    let scoped = json!({ "issuer_account": world.app.public });
    let mut response = user(&world.app_signer, &asked, scoped);
    response["issuer_account"] = json!(world.auth.public);
    asked.answer(&mut service, &world.auth_signer, response);
    eve.flush("");
    eve.send("PUB orders.ada 0\r\n\r\nPUB orders.eve 0\r\n\r\n");
    eve.flush("-ERR 'Permissions Violation for Publish to \"orders.eve\"'\r\n");
    let open = server.server.connections.open();
    let in_app = open.iter().filter(|conn| conn.session().account.name == world.app.public);
    assert_eq!(in_app.map(|conn| conn.session().user.clone()).collect::<Vec<_>>(), ["ada"]);
}

/// Clients without a token have the one of the configuration; one that is wrong asks nobody.
#[test]
fn who_comes_without_a_token() {
    let world = World::new();
    let more = format!("default_sentinel: {}", world.sentinel_token());
    let (server, mut service) = world.started(json!({}), &more);
    let mut ada = server.peer();
    ada.send("CONNECT {\"verbose\":false,\"user\":\"ada\",\"pass\":\"pw\"}\r\n");
    let asked = plainly(&mut service);
    assert_eq!(asked.claims["nats"]["connect_opts"]["jwt"], world.sentinel_token());
    assert_eq!(asked.claims["nats"]["connect_opts"]["pass"], "pw");
    let token = user(&world.auth, &asked, free());
    asked.answer(&mut service, &world.auth, token);
    ada.flush("");
    let expired = json!({ "exp": now() - 10 });
    let token = world.auth.sign(&world.sentinel.public, "user", free(), expired);
    let mut late = world.present(&server, &world.sentinel, &token, json!({}));
    late.expect_close(REFUSED);
    let token = world.shop.sign(&world.sentinel.public, "user", free(), json!({}));
    let mut other = world.present(&server, &world.sentinel, &token, json!({}));
    other.flush("");
    service.expect_silence();
}

#[test]
fn a_service_of_an_account_that_lies() {
    let world = World::new();
    let allowed = json!({ "allowed_accounts": [world.app.public] });
    let (server, mut service) = world.started(allowed, "");
    let stranger = Key::new(Kind::Account, 99);
    type Lie<'a> = &'a dyn Fn(&Asked) -> String;
    let lies: [(&str, Lie<'_>); 9] = [
        ("signed by nobody", &|asked| asked.response(&stranger, user(&world.auth, asked, free()))),
        ("in another name", &|asked| {
            let mut nats = user(&world.auth, asked, free());
            nats["issuer_account"] = json!(world.app.public);
            asked.response(&world.auth, nats)
        }),
        ("signed by another account", &|asked| {
            asked.response(&world.app, user(&world.app, asked, free()))
        }),
        ("an account that is not allowed", &|asked| {
            asked.response(&world.auth, user(&world.shop, asked, free()))
        }),
        ("an account that nobody knows", &|asked| {
            asked.response(&world.auth, user(&stranger, asked, free()))
        }),
        ("a key that is not the account's", &|asked| {
            let mut nats = free();
            nats["issuer_account"] = json!(world.app.public);
            asked.response(&world.auth, user(&stranger, asked, nats))
        }),
        ("a scoped user with permissions", &|asked| {
            let mut nats = json!({ "pub": { "allow": [">"] } });
            nats["issuer_account"] = json!(world.app.public);
            asked.response(&world.auth, user(&world.app_signer, asked, nats))
        }),
        ("another user", &|asked| {
            let token = world.auth.sign(&world.sentinel.public, "user", free(), json!({}));
            asked.response(&world.auth, json!({ "jwt": token }))
        }),
        ("no", &|asked| asked.response(&world.auth, json!({ "error": "who are you" }))),
    ];
    for (what, lie) in lies {
        let mut mallory = world.client(&server, "mallory");
        let asked = plainly(&mut service);
        asked.send(&mut service, lie(&asked).as_bytes());
        mallory.expect_close(REFUSED);
        println!("{what}: refused");
    }
    // The same words, truly said.
    let mut ada = world.client(&server, "ada");
    let asked = plainly(&mut service);
    let token = user(&world.app, &asked, free());
    asked.answer(&mut service, &world.auth, token);
    ada.flush("");
}

#[test]
fn requests_are_encrypted_for_the_service() {
    let world = World::new();
    let (server, mut service) = world.started(json!({ "xkey": world.curve.public() }), "");
    let info: Value = serde_json::from_str(&server.peer_info()["INFO ".len()..]).unwrap();
    let own = curve(info["xkey"].as_str().expect("the server has a curve key"));
    let open = |sealed: &[u8]| world.curve.open(sealed, &own).expect("it is for us");
    let good = |asked: &Asked| asked.response(&world.auth, user(&world.auth, asked, free()));
    // Encrypted, and plain.
    for sealed in [true, false] {
        let mut ada = world.client(&server, "ada");
        let asked = heard(&mut service, &open);
        assert_eq!(
            asked.headers,
            format!("NATS/1.0\r\nNats-Server-Xkey: {}\r\n\r\n", info["xkey"].as_str().unwrap())
        );
        assert_eq!(asked.claims["nats"]["server_id"]["xkey"], info["xkey"]);
        let plain = good(&asked);
        match sealed {
            true => asked.send(&mut service, &world.curve.seal(plain.as_bytes(), &own)),
            false => asked.send(&mut service, plain.as_bytes()),
        }
        ada.flush("");
    }
    let someone = CurveKey::random();
    for of in [
        &|plain: &str| someone.seal(plain.as_bytes(), &own) as Vec<u8>,
        &|plain: &str| world.curve.seal(plain.as_bytes(), &curve(someone.public())),
        &|_: &str| b"nonsense".to_vec(),
    ] as [&dyn Fn(&str) -> Vec<u8>; 3]
    {
        let mut mallory = world.client(&server, "mallory");
        let asked = heard(&mut service, &open);
        asked.send(&mut service, &of(&good(&asked)));
        mallory.expect_close(REFUSED);
    }
}

/// The right to put users somewhere is looked at again when accounts change.
#[test]
fn an_account_that_changes_its_service() {
    let world = World::new();
    let allowed = json!({ "allowed_accounts": ["*"] });
    let (server, mut service) = world.started(allowed, "");
    let mut ada = world.client(&server, "ada");
    let asked = plainly(&mut service);
    let token = user(&world.shop, &asked, free());
    asked.answer(&mut service, &world.auth, token);
    ada.flush("");
    // While another one waits, too.
    let mut eve = world.client(&server, "eve");
    let asked = plainly(&mut service);
    let token = world.system.sign(&world.service.public, "user", free(), json!({}));
    let mut system = world.present(&server, &world.service, &token, json!({}));
    system.send("SUB answers 1\r\n");
    system.flush("");
    let changed = world.operator.sign(
        &world.auth.public,
        "account",
        json!({
            "authorization": { "auth_users": [world.service.public], "allowed_accounts": [world.app.public] },
            "signing_keys": [world.auth_signer.public],
            "limits": { "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1,
                        "wildcards": true, "conn": -1, "leaf": -1 },
        }),
        json!({ "iat": now() + 1 }),
    );
    let subject = format!("$SYS.REQ.ACCOUNT.{}.CLAIMS.UPDATE", world.auth.public);
    let answer: Value = serde_json::from_str(&system.ask(&subject, changed)).unwrap();
    assert_eq!(answer["data"]["message"], "jwt updated", "{answer}");
    ada.expect_close(REFUSED);
    let token = user(&world.auth, &asked, free());
    asked.answer(&mut service, &world.auth, token);
    eve.expect_close(REFUSED);
}
