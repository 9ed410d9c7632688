//! Clients and servers that come through a trusted proxy, which signs the nonce; and those who have to.

mod support;
#[path = "support/tokens.rs"]
mod tokens;

use nuthatch_server::close_reason::CloseReason;
use serde_json::{Value, json};
use std::net::TcpStream;
use support::{Peer, TestServer, configured, eventually};
use tokens::{Key, Kind};

const REFUSED: &str = "-ERR 'Authorization Violation'\r\n";

/// A proxy's key, and those of a user and of strangers.
struct World {
    proxy: Key,
    second: Key,
    stranger: Key,
    user: Key,
}

impl World {
    fn new() -> Self {
        Self {
            proxy: Key::new(Kind::Account, 30),
            second: Key::new(Kind::User, 31),
            stranger: Key::new(Kind::Account, 32),
            user: Key::new(Kind::User, 33),
        }
    }

    fn server(&self, text: &str) -> TestServer {
        let keys = [&self.proxy, &self.second].map(|key| format!("{{ key: {} }}", key.public));
        TestServer::start(configured(&format!(
            "proxies {{ trusted: [ {} ] }}\n{text}",
            keys.join(", ")
        )))
    }

    /// A client that shows this, through the proxy with this key.
    fn client(&self, server: &TestServer, through: Option<&Key>, shown: Value) -> Peer {
        let mut peer = Peer::new(TcpStream::connect(server.address).unwrap());
        let line = peer.line();
        let info: Value = serde_json::from_str(&line["INFO ".len()..]).unwrap();
        let nonce = info["nonce"].as_str().expect("a nonce to sign");
        let mut connect = json!({ "verbose": false, "sig": self.user.sign_nonce(nonce) });
        for (name, value) in shown.as_object().unwrap() {
            connect[name] = value.clone();
        }
        if let Some(key) = through {
            connect["proxy_sig"] = json!(key.sign_nonce(nonce));
        }
        peer.send(format!("CONNECT {connect}\r\n"));
        peer
    }
}

fn password(user: &str) -> Value {
    json!({ "user": user, "pass": "pw" })
}

#[track_caller]
fn closed_as(server: &TestServer, reason: CloseReason) {
    eventually(reason.text(), || {
        let closed = server.server.connections.closed();
        closed.iter().any(|row| row.conn.close_reason() == Some(reason))
    });
}

#[test]
fn users_who_have_to_come_through_a_proxy() {
    let world = World::new();
    let server = world.server(&format!(
        "authorization {{ users: [ {{ user: free, password: pw }},
           {{ user: kept, password: pw, proxy_required: true }},
           {{ nkey: {}, proxy_required: true }} ] }}",
        world.user.public
    ));
    let nkey = json!({ "nkey": world.user.public });
    for shown in [password("free"), password("kept"), nkey.clone()] {
        for key in [&world.proxy, &world.second] {
            world.client(&server, Some(key), shown.clone()).flush("");
        }
        // A proxy that nobody trusts lets nobody in, whoever it is.
        world.client(&server, Some(&world.stranger), shown).expect_close(REFUSED);
        closed_as(&server, CloseReason::ProxyNotTrusted);
    }
    world.client(&server, None, password("free")).flush("");
    for shown in [password("kept"), nkey] {
        world.client(&server, None, shown).expect_close(REFUSED);
        closed_as(&server, CloseReason::ProxyRequired);
    }
    // Its signature is for one connection.
    let mut peer = server.peer();
    let old = world.proxy.sign_nonce("another nonce");
    peer.send(format!("CONNECT {{\"user\":\"kept\",\"pass\":\"pw\",\"proxy_sig\":\"{old}\"}}\r\n"));
    peer.expect_close(REFUSED);
    let wrong = json!({ "user": "kept", "pass": "no" });
    world.client(&server, Some(&world.proxy), wrong).expect_close(REFUSED);
    closed_as(&server, CloseReason::AuthenticationViolation);
}

#[test]
fn the_one_user_and_the_token() {
    let world = World::new();
    for (text, shown) in [
        ("authorization { user: a, password: pw, proxy_required: true }", password("a")),
        ("authorization { token: t, proxy_required: true }", json!({ "auth_token": "t" })),
    ] {
        let server = world.server(text);
        world.client(&server, Some(&world.proxy), shown.clone()).flush("");
        world.client(&server, None, shown).expect_close(REFUSED);
        closed_as(&server, CloseReason::ProxyRequired);
    }
    // Without trusted proxies a signature says nothing, and nobody who has to have one gets in.
    let server = TestServer::start(configured("authorization { user: a, password: pw }"));
    let mut peer = server.peer();
    peer.send(
        "CONNECT {\"verbose\":false,\"user\":\"a\",\"pass\":\"pw\",\"proxy_sig\":\"abc\"}\r\n",
    );
    peer.flush("");
}

/// A key that a reload takes away ends the connections that came with it.
#[test]
fn a_proxy_that_is_not_trusted_any_more() {
    let world = World::new();
    let server = world.server("authorization { users: [ { user: free, password: pw } ] }");
    let mut through = world.client(&server, Some(&world.proxy), password("free"));
    let mut other = world.client(&server, Some(&world.second), password("free"));
    let mut direct = world.client(&server, None, password("free"));
    through.flush("");
    other.flush("");
    direct.flush("");
    let mut options = (*server.server.options()).clone();
    options.proxies.retain(|proxy| proxy.public != world.proxy.public);
    let old = server.server.auth();
    server.server.set_options(options);
    server.server.recheck(&old);
    through.expect_close(REFUSED);
    closed_as(&server, CloseReason::ProxyNotTrusted);
    other.flush("");
    direct.flush("");
}

/// Leaf nodes, whose users are their own.
#[test]
fn leaf_nodes_through_a_proxy() {
    let world = World::new();
    let server = world.server(
        "leafnodes { port: -1, authorization { users: [ { user: a, password: pw },
           { user: b, password: pw, proxy_required: true } ] } }",
    );
    let join = |user: &str, through: Option<&Key>| {
        let mut peer = Peer::new(TcpStream::connect(server.leafs.unwrap()).unwrap());
        let info: Value = serde_json::from_str(&peer.line()["INFO ".len()..]).unwrap();
        let mut connect = json!({ "user": user, "pass": "pw", "name": user });
        if let Some(key) = through {
            connect["proxy_sig"] = json!(key.sign_nonce(info["nonce"].as_str().unwrap()));
        }
        peer.send(format!("CONNECT {connect}\r\n"));
        peer
    };
    for (user, through) in [("a", None), ("a", Some(&world.proxy)), ("b", Some(&world.proxy))] {
        assert!(join(user, through).line().starts_with("INFO "), "{user}");
    }
    join("b", None).expect_close(REFUSED);
    join("a", Some(&world.stranger)).expect_close(REFUSED);
}
