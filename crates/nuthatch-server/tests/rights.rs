//! What an account or a user may not do, by whatever way it is tried.

mod support;

use support::{Peer, TestServer, configured, eventually, login};

/// `B` imports of `A` what `imports` says, and `A` exports what `exports` says.
fn accounts(exports: &str, imports: &str) -> String {
    format!(
        "accounts {{
           A {{ jetstream: enabled, users: [{{user: a, password: pw}}], exports: [{exports}] }}
           B {{ jetstream: enabled, users: [{{user: b, password: pw}}], imports: [{imports}] }}
         }}"
    )
}

const INFO: [&str; 2] = [
    "{service: '$JS.API.INFO'}",
    "{service: {account: A, subject: '$JS.API.INFO'}, to: 'x.API.INFO'}",
];
const WHOLE: [&str; 2] =
    ["{service: '$JS.API.>'}", "{service: {account: A, subject: '$JS.API.>'}, to: 'x.API.>'}"];
const CREATE: [&str; 2] = [
    "{service: '$JS.API.CONSUMER.CREATE.P'}",
    "{service: {account: A, subject: '$JS.API.CONSUMER.CREATE.P'}, to: 'x.API.CONSUMER.CREATE.P'}",
];
const DELIVERY: [&str; 2] = ["{stream: 'out.>'}", "{stream: {account: A, subject: 'out.>'}}"];

/// The server, somebody in `A` with a stream `P` that holds one message, and somebody in `B`.
fn private_stream(rights: &[[&str; 2]]) -> (TestServer, Peer, Peer) {
    let exports: Vec<_> = rights.iter().map(|[export, _]| *export).collect();
    let imports: Vec<_> = rights.iter().map(|[_, import]| *import).collect();
    let text = accounts(&exports.join(", "), &imports.join(", "));
    let server = TestServer::with_jetstream(configured(&text));
    let (mut a, b) = (server.connected(&login("a")), server.connected(&login("b")));
    let created = a.ask("$JS.API.STREAM.CREATE.P", r#"{"name":"P","subjects":["p.>"]}"#);
    assert!(created.contains("did_create"), "{created}");
    let stored = a.ask("p.x", "secret");
    assert!(stored.contains("\"seq\":1"), "{stored}");
    (server, a, b)
}

const MIRROR: &str =
    r#"{"name":"M","mirror":{"name":"P","external":{"api":"x.API","deliver":"out"}}}"#;
const SOURCE: &str =
    r#"{"name":"M","sources":[{"name":"P","external":{"api":"x.API","deliver":"out"}}]}"#;

fn messages_in_m(b: &mut Peer) -> u64 {
    let info: serde_json::Value =
        serde_json::from_str(&b.ask("$JS.API.STREAM.INFO.M", "")).unwrap();
    info["state"]["messages"].as_u64().unwrap_or_default()
}

#[test]
fn a_private_stream_is_not_copied_with_less_than_what_a_copy_does() {
    for rights in [&[INFO][..], &[CREATE], &[INFO, DELIVERY], &[INFO, CREATE]] {
        let (_server, _a, mut b) = private_stream(rights);
        for config in [MIRROR, SOURCE] {
            let refused = b.ask("$JS.API.STREAM.CREATE.M", config);
            assert!(refused.contains("10052") && refused.contains("account A"), "{refused}");
        }
        // Nor by a detour through an update.
        b.ask("$JS.API.STREAM.CREATE.M", r#"{"name":"M","subjects":["m"]}"#);
        let refused = b.ask("$JS.API.STREAM.UPDATE.M", SOURCE);
        assert!(refused.contains("10052"), "{refused}");
        assert_eq!(messages_in_m(&mut b), 0);
    }
}

#[test]
fn a_stream_is_copied_with_the_whole_api_or_with_creation_and_delivery() {
    for rights in [&[WHOLE][..], &[CREATE, DELIVERY]] {
        for config in [MIRROR, SOURCE] {
            let (_server, _a, mut b) = private_stream(rights);
            let created = b.ask("$JS.API.STREAM.CREATE.M", config);
            assert!(created.contains("did_create"), "{created}");
            eventually("the copy has the message", || messages_in_m(&mut b) == 1);
        }
    }
}

#[test]
fn a_copy_stops_when_its_right_goes_and_goes_on_when_it_is_back() {
    let (server, mut a, mut b) = private_stream(&[WHOLE]);
    b.ask("$JS.API.STREAM.CREATE.M", MIRROR);
    eventually("the copy has the message", || messages_in_m(&mut b) == 1);
    let with = server.server.options();
    let mut without = (*with).clone();
    without.accounts = configured(&accounts(INFO[0], INFO[1])).accounts;
    server.server.set_options(without);
    eventually("the copy says that it has no right", || {
        b.ask("$JS.API.STREAM.INFO.M", "").contains("a copy of stream P of account A needs")
    });
    a.ask("p.x", "later");
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(messages_in_m(&mut b), 1);
    // Its other settings can be changed meanwhile.
    let config = MIRROR.replace("\"M\",", "\"M\",\"max_age\":3600000000000,");
    let updated = b.ask("$JS.API.STREAM.UPDATE.M", config);
    assert!(updated.contains("\"max_age\":3600000000000"), "{updated}");
    server.server.set_options((*with).clone());
    eventually("the copy goes on", || messages_in_m(&mut b) == 2);
}

const DENY: &str = "permissions: {publish: {deny: ['$JS.API.STREAM.DELETE.D', '$KV.priv.>']}}";

/// A hub with a stream `D` and a stream of a bucket that `u` must not touch.
fn denied(permissions: &str) -> (TestServer, Peer, Peer) {
    let text = format!(
        "jetstream {{ domain: hub }}
         accounts {{ A {{ jetstream: enabled, mappings: {{ 'way.>': '$JS.hub.API.>' }},
           users: [{{user: a, password: pw}}, {{user: u, password: pw, {permissions}}}] }} }}
         leafnodes {{ port: -1 }}"
    );
    let server = TestServer::with_jetstream(configured(&text));
    let mut a = server.connected(&login("a"));
    a.ask("$JS.API.STREAM.CREATE.D", r#"{"name":"D","subjects":["d"]}"#);
    a.ask("$JS.API.STREAM.CREATE.KV_priv", r#"{"name":"KV_priv","subjects":["$KV.priv.>"]}"#);
    let u = server.connected(&login("u"));
    (server, a, u)
}

/// Whether both are there, and nothing is in the bucket.
#[track_caller]
fn untouched(a: &mut Peer) {
    assert!(a.ask("$JS.API.STREAM.INFO.D", "").contains("stream_info"));
    assert!(a.ask("$JS.API.STREAM.INFO.KV_priv", "").contains("\"messages\":0"));
}

#[test]
fn a_prefix_of_the_domain_leads_round_no_denial() {
    let (_server, mut a, mut u) = denied(DENY);
    for (sent, said) in [
        ("$JS.API.STREAM.DELETE.D", "$JS.API.STREAM.DELETE.D"),
        ("$JS.hub.API.STREAM.DELETE.D", "$JS.API.STREAM.DELETE.D"),
        ("$JS.hub.API.$KV.priv.k", "$KV.priv.k"),
        ("way.STREAM.DELETE.D", "$JS.API.STREAM.DELETE.D"),
    ] {
        u.send(format!("PUB {sent} 1\r\nx\r\n"));
        u.flush(format!("-ERR 'Permissions Violation for Publish to \"{said}\"'\r\n"));
    }
    untouched(&mut a);
    // What is not denied works with the prefix and without.
    for info in ["$JS.API.STREAM.INFO.D", "$JS.hub.API.STREAM.INFO.D", "way.STREAM.INFO.D"] {
        assert!(u.ask(info, "").contains("stream_info"), "{info}");
    }
}

#[test]
fn an_allowed_prefix_alone_allows_no_call() {
    let allow = "permissions: {publish: {allow: ['$JS.hub.API.>']}}";
    let (_server, mut a, mut u) = denied(allow);
    u.send("PUB $JS.hub.API.STREAM.DELETE.D 0\r\n\r\n");
    u.flush("-ERR 'Permissions Violation for Publish to \"$JS.API.STREAM.DELETE.D\"'\r\n");
    untouched(&mut a);
}

#[test]
fn a_leaf_node_gets_round_no_denial_either() {
    for sent in [
        "$JS.API.STREAM.DELETE.D",
        "$JS.hub.API.STREAM.DELETE.D",
        "$JS.hub.API.$KV.priv.k",
        "way.STREAM.DELETE.D",
    ] {
        let (server, mut a, _u) = denied(DENY);
        let mut leaf = Peer::new(std::net::TcpStream::connect(server.leafs.unwrap()).unwrap());
        leaf.line();
        let connect = "{\"user\":\"u\",\"pass\":\"pw\",\"name\":\"l\",\"headers\":true}";
        leaf.send(format!("CONNECT {connect}\r\nPING\r\n"));
        while leaf.line() != "PONG" {}
        leaf.send(format!("LMSG {sent} 1\r\nx\r\nPING\r\n"));
        while !leaf.line().starts_with("-ERR 'Permissions Violation for Publish") {}
        untouched(&mut a);
    }
}
