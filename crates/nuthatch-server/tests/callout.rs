//! Auth callout: a service says who clients are.

mod support;

use nuthatch_protocol::jwt::{NewToken, UserClaims, decode, encode};
use nuthatch_protocol::nkey::KeyKind;
use nuthatch_server::credentials::KeyPair;
use ring::signature::{ED25519, UnparsedPublicKey};
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};
use support::{Peer, TestServer, configured, refused_configuration};

const SUBJECT: &str = "$SYS.REQ.USER.AUTH";

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn verify(key: &[u8; 32], message: &[u8], signature: &[u8]) -> bool {
    UnparsedPublicKey::new(&ED25519, key).verify(message, signature).is_ok()
}

/// The claims of a token; its signature holds.
fn claims(token: &str) -> Value {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let parts: Vec<&str> = token.split('.').collect();
    let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(parts[1]).unwrap()).unwrap();
    let issuer = claims["iss"].as_str().unwrap();
    let key = nuthatch_protocol::nkey::decode_as(KeyKind::Server, issuer).expect("a server's key");
    let signed = format!("{}.{}", parts[0], parts[1]);
    let signature = URL_SAFE_NO_PAD.decode(parts[2]).unwrap();
    assert!(verify(&key, signed.as_bytes(), &signature), "it is signed");
    // Of another kind than a user's.
    assert!(decode::<nuthatch_protocol::jwt::User>(token, &verify).is_err());
    claims
}

/// A service of a test, by hand.
struct Service {
    key: KeyPair,
    peer: Peer,
}

/// A request that it has heard.
struct Asked {
    reply: String,
    claims: Value,
}

impl Service {
    fn ask(&mut self) -> Asked {
        let line = self.peer.line();
        let words: Vec<&str> = line.trim_end().split(' ').collect();
        let ["MSG", SUBJECT, "1", reply, size] = words[..] else { panic!("{line:?}") };
        let body = self.peer.take(size.parse::<usize>().unwrap() + 2);
        let token = std::str::from_utf8(&body).unwrap().trim_end();
        Asked { reply: reply.to_owned(), claims: claims(token) }
    }

    fn token(&self, kind: &str, audience: &str, subject: &str, nats: &Value) -> String {
        let issuer = self.key.public();
        let (id, issued_at, expires) = ("id", now(), now() + 600);
        let token = NewToken { kind, id, audience, subject, issuer: &issuer, issued_at, expires };
        encode(&token, nats, &|message| self.key.sign_bytes(message))
    }

    fn answer(&mut self, asked: &Asked, nats: &Value) {
        let text = |name: &str| asked.claims[name].as_str().unwrap().to_owned();
        let user = asked.claims["nats"]["user_nkey"].as_str().unwrap();
        let token = self.token("authorization_response", &text("iss"), user, nats);
        self.peer.send(format!("PUB {} {}\r\n{token}\r\n", asked.reply, token.len()));
    }

    /// Lets a client into an account.
    fn admit(&mut self, asked: &Asked, account: &str, rights: &Value) {
        let user = asked.claims["nats"]["user_nkey"].as_str().unwrap();
        let jwt = self.token("user", account, user, rights);
        self.answer(asked, &json!({ "jwt": jwt }));
    }
}

/// A server that asks a service, which is there; `more` of the callout.
fn started(more: &str, timeout: &str) -> (TestServer, Service) {
    let key = KeyPair::random(KeyKind::Account);
    let text = format!(
        "accounts {{ AUTH {{ users: [{{user: auth, password: pw}}, {{user: other, password: pw}}] }}, APP {{}}, \
         KNOWN {{ users: [{{user: known, password: pw}}] }} }}\n\
         authorization {{ {timeout} auth_callout {{ issuer: {}, account: AUTH, auth_users: [auth], {more} }} }}\n",
        key.public()
    );
    let server = TestServer::start(configured(&text));
    let mut peer = server.connected("{\"verbose\":false,\"user\":\"auth\",\"pass\":\"pw\"}");
    peer.send(format!("SUB {SUBJECT} 1\r\n"));
    peer.flush("");
    (server, Service { key, peer })
}

fn client(server: &TestServer, user: &str) -> Peer {
    let mut peer = server.peer();
    peer.send(format!(
        "CONNECT {{\"verbose\":false,\"user\":\"{user}\",\"pass\":\"pw\",\"name\":\"test\",\"lang\":\"rust\"}}\r\n"
    ));
    peer
}

#[test]
fn a_service_lets_a_client_in() {
    let (server, mut service) = started("", "");
    let mut alice = client(&server, "alice");
    let asked = service.ask();
    let claims = &asked.claims;
    assert_eq!(claims["iss"], server.server.id);
    assert_eq!(claims["aud"], "nats-authorization-request");
    assert_eq!(claims["sub"], service.key.public());
    let nats = &claims["nats"];
    assert_eq!(nats["type"], "authorization_request");
    assert_eq!(nats["server_id"]["id"], server.server.id);
    assert_eq!(
        (&nats["client_info"]["user"], &nats["client_info"]["kind"]),
        (&json!("alice"), &json!("Client"))
    );
    let options = &nats["connect_opts"];
    assert_eq!(
        (&options["user"], &options["pass"], &options["name"]),
        (&json!("alice"), &json!("pw"), &json!("test"))
    );
    service.admit(
        &asked,
        "APP",
        &json!({ "pub": { "allow": ["a.>"] }, "sub": { "deny": ["secret"] } }),
    );
    alice.flush("");
    alice.send("PUB b 0\r\n\r\nSUB secret 1\r\n");
    alice.flush(
        "-ERR 'Permissions Violation for Publish to \"b\"'\r\n\
         -ERR 'Permissions Violation for Subscription to \"secret\"'\r\n",
    );
    // Another one, with other rights, in another account.
    let mut bob = client(&server, "bob");
    let asked = service.ask();
    service.admit(&asked, "KNOWN", &json!({}));
    bob.flush("");
    bob.send("SUB a.b 1\r\n");
    bob.flush("");
    alice.send("PUB a.b 1\r\nx\r\n");
    alice.flush("");
    bob.flush("");
    let open = server.server.connections.open();
    let accounts: Vec<String> =
        open.iter().map(|conn| conn.session().account.name.clone()).collect();
    assert!(accounts.iter().any(|name| name == "APP"), "{accounts:?}");
}

#[test]
fn a_service_that_says_no_or_lies() {
    let (server, mut service) = started("", "");
    let refused = "-ERR 'Authorization Violation'\r\n";
    let mut peer = client(&server, "mallory");
    let asked = service.ask();
    service.answer(&asked, &json!({ "error": "unknown" }));
    peer.expect_close(refused);
    // A token for somebody else, one that says nothing, and an empty message.
    let mut peer = client(&server, "mallory");
    let asked = service.ask();
    let someone = KeyPair::random(KeyKind::User).public();
    let jwt = service.token("user", "APP", &someone, &json!({}));
    service.answer(&asked, &json!({ "jwt": jwt }));
    peer.expect_close(refused);
    let mut peer = client(&server, "mallory");
    let asked = service.ask();
    service.peer.send(format!("PUB {} 0\r\n\r\n", asked.reply));
    peer.expect_close(refused);
    // An account that is not there.
    let mut peer = client(&server, "mallory");
    let asked = service.ask();
    service.admit(&asked, "NOWHERE", &json!({}));
    peer.expect_close(refused);
    // A token names nobody: it is a secret.
    let mut peer = server.peer();
    peer.send("CONNECT {\"verbose\":false,\"auth_token\":\"secret\"}\r\n");
    let asked = service.ask();
    assert_eq!(asked.claims["nats"]["client_info"]["user"], "[REDACTED]");
    assert_eq!(asked.claims["nats"]["connect_opts"]["auth_token"], "secret");
    service.admit(&asked, "APP", &json!({}));
    peer.flush("");
    let open = server.server.connections.open();
    assert!(open.iter().all(|conn| conn.session().user != "secret"));
}

/// The first response counts; a second one finds nobody.
#[test]
fn a_service_that_answers_twice() {
    let (server, mut service) = started("", "");
    let mut alice = client(&server, "alice");
    let asked = service.ask();
    service.admit(&asked, "APP", &json!({}));
    service.answer(&asked, &json!({ "error": "changed my mind" }));
    service.peer.flush("");
    alice.flush("");
    let interest = &server.server.accounts.by_name("AUTH").expect("it is there").interest;
    assert!(!interest.any(asked.reply.as_bytes()), "nobody waits any more");
}

#[test]
fn a_service_that_is_silent_or_gone() {
    let (server, mut service) = started("", "timeout: 0.3,");
    let refused = "-ERR 'Authorization Violation'\r\n";
    let mut peer = client(&server, "alice");
    service.ask();
    peer.expect_close(refused);
    // Longer than until the first ping, which is for those who are in.
    let (slow_server, mut slow) = started("", "timeout: 2.5,");
    let mut peer = client(&slow_server, "alice").with_pings();
    slow.ask();
    peer.expect_close(refused);
    drop(service);
    let mut peer = client(&server, "alice");
    peer.expect_close(refused);
}

/// Users of the configuration: the service's own, those of accounts that are not delegated, others.
#[test]
fn about_whom_the_service_is_asked() {
    let (server, mut service) = started("allowed_accounts: [APP]", "");
    let mut known = client(&server, "known");
    known.flush("");
    let mut wrong = server.peer();
    wrong.send("CONNECT {\"user\":\"known\",\"pass\":\"wrong\"}\r\n");
    let asked = service.ask();
    service.answer(&asked, &json!({ "error": "no" }));
    wrong.expect_close("-ERR 'Authorization Violation'\r\n");
    let (server, mut service) = started("", "");
    let mut known = client(&server, "known");
    let asked = service.ask();
    assert_eq!(asked.claims["nats"]["connect_opts"]["user"], "known");
    service.admit(&asked, "APP", &json!({}));
    known.flush("");
    // Its own user with a wrong password is refused without it, and nobody there can act as the server.
    let mut wrong = server.peer();
    wrong.send("CONNECT {\"user\":\"auth\",\"pass\":\"wrong\"}\r\n");
    wrong.expect_close("-ERR 'Authorization Violation'\r\n");
    service.peer.send(format!("PUB {SUBJECT} 0\r\n\r\n"));
    service.peer.flush(format!("-ERR 'Permissions Violation for Publish to \"{SUBJECT}\"'\r\n"));
    // Without CONNECT nobody is asked either.
    let mut mute = server.peer();
    mute.send("PING\r\n");
    mute.expect_close("-ERR 'Authorization Violation'\r\n");
}

#[test]
fn limits_and_time_of_the_token_hold() {
    let (server, mut service) = started("", "");
    let mut alice = client(&server, "alice");
    let asked = service.ask();
    service.admit(&asked, "APP", &json!({ "subs": 1, "payload": 4 }));
    alice.flush("");
    alice.send("SUB a 1\r\nSUB b 2\r\n");
    alice.flush("-ERR 'maximum subscriptions exceeded'\r\n");
    alice.send("PUB x 5\r\n12345\r\n");
    alice.expect_close("-ERR 'Maximum Payload Violation'\r\n");
    let mut bob = client(&server, "bob");
    let asked = service.ask();
    let user = asked.claims["nats"]["user_nkey"].as_str().unwrap().to_owned();
    let issuer = service.key.public();
    let token = NewToken {
        kind: "user",
        id: "id",
        audience: "APP",
        subject: &user,
        issuer: &issuer,
        issued_at: now(),
        expires: now() + 1,
    };
    let jwt = encode(&token, &json!({}), &|message| service.key.sign_bytes(message));
    let read: UserClaims = decode(&jwt, &verify).expect("it is a token");
    assert_eq!(read.data.audience, "APP");
    service.answer(&asked, &json!({ "jwt": jwt }));
    bob.expect_close("-ERR 'User Authentication Expired'\r\n");
}

/// An account that a reload takes away lives on for its streams, and lets nobody in.
#[test]
fn an_account_that_was_taken_away_lets_nobody_in() {
    let (server, mut service) = started("", "");
    let mut alice = client(&server, "alice");
    let asked = service.ask();
    service.admit(&asked, "APP", &json!({}));
    alice.flush("");
    let mut options = (*server.server.options()).clone();
    options.accounts.retain(|account| account.name != "APP");
    let old = server.server.auth();
    server.server.set_options(options);
    server.server.recheck(&old);
    alice.expect_close("-ERR 'Authorization Violation'\r\n");
    let mut bob = client(&server, "bob");
    let asked = service.ask();
    service.admit(&asked, "APP", &json!({}));
    bob.expect_close("-ERR 'Authorization Violation'\r\n");
    let mut carol = client(&server, "carol");
    let asked = service.ask();
    service.admit(&asked, "KNOWN", &json!({}));
    carol.flush("");
}

#[test]
fn configurations_that_cannot_be() {
    let issuer = KeyPair::random(KeyKind::Account).public();
    for (callout, why) in [
        ("auth_users: [a]".to_owned(), "issuer"),
        (format!("issuer: {issuer}"), "auth_users"),
        ("issuer: UXYZ, auth_users: [a]".to_owned(), "public nkey of an account"),
        (
            format!("issuer: {issuer}, auth_users: [a], allowed_accounts: [NONE]"),
            "\"NONE\" not found",
        ),
        (format!("issuer: {issuer}, auth_users: [a], xkey: {issuer}"), "no public curve key"),
        (format!("issuer: {issuer}, auth_users: [a], colour: red"), "colour"),
    ] {
        let text = format!(
            "authorization {{ users: [{{user: a, password: b}}], auth_callout {{ {callout} }} }}"
        );
        let refused = refused_configuration(&text);
        assert!(refused.contains(why), "{refused}, not {why}");
    }
}
