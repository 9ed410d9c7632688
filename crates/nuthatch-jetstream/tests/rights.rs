//! What an account or a user may not do, by whatever way it is tried.

mod support;

use support::{Peer, TestServer, configured, eventually, login, with_jetstream};

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
    let server = with_jetstream(configured(&text));
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
    let server = with_jetstream(configured(&text));
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

/// What `A` is in the longer form of acknowledgements.
const HASH: &str = "NUmM6cRx";

/// Pulls one message of the stream and returns its reply subject.
fn delivery(peer: &mut Peer, stream: &str, consumer: &str) -> String {
    peer.send("SUB _INBOX.pull 77\r\nUNSUB 77 1\r\n");
    peer.send(format!("PUB $JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer} _INBOX.pull 1\r\n1\r\n"));
    let line = peer.line();
    let words: Vec<&str> = line.split(' ').collect();
    assert_eq!((words[0], words[2]), ("MSG", "77"), "{line}");
    peer.take(words[4].parse::<usize>().unwrap() + 2);
    words[3].to_owned()
}

fn consumer(peer: &mut Peer, stream: &str) {
    let config = format!(
        r#"{{"stream_name":"{stream}","config":{{"durable_name":"C","ack_policy":"explicit"}}}}"#
    );
    let created = peer.ask(&format!("$JS.API.CONSUMER.DURABLE.CREATE.{stream}.C"), config);
    assert!(created.contains("\"durable_name\":\"C\""), "{created}");
}

/// How many messages of the consumer are not acknowledged, and how many were never delivered.
fn left(peer: &mut Peer, stream: &str) -> (u64, u64) {
    let info = peer.ask(&format!("$JS.API.CONSUMER.INFO.{stream}.C"), "");
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    (info["num_ack_pending"].as_u64().unwrap(), info["num_pending"].as_u64().unwrap())
}

#[test]
fn a_longer_acknowledgement_leads_round_no_export() {
    // Any two tokens in front, and those of the account's own.
    let own = format!("_.{HASH}");
    for front in ["ORDERS.NEW", &own] {
        let acks = [
            format!("{{service: '$JS.ACK.{front}.>'}}"),
            format!("{{service: {{account: A, subject: '$JS.ACK.{front}.>'}}}}"),
        ];
        let (_server, mut a, mut b) = private_stream(&[[&acks[0], &acks[1]]]);
        consumer(&mut a, "P");
        let sent = format!("$JS.ACK.{front}.P.C.1.1.1.0.0");
        b.send(format!("SUB got 5\r\nPUB {sent} got 4\r\n+NXT\r\n"));
        let answer = b.ask("$JS.API.INFO", "");
        assert!(answer.contains("account_info"), "{answer}");
        // Had it been taken, it would be ahead of this in the log's queue.
        assert_eq!(left(&mut a, "P"), (0, 1), "{sent}");
        // Nor is a message acknowledged that the owner has out.
        let reply = delivery(&mut a, "P", "C");
        let rest = reply.strip_prefix("$JS.ACK.").unwrap();
        b.send(format!("PUB $JS.ACK.{front}.{rest} 4\r\n+ACK\r\n"));
        b.flush("");
        assert_eq!(left(&mut a, "P"), (1, 0), "{sent}");
        // By itself, it can.
        a.send(format!("PUB $JS.ACK._.{HASH}.{rest} 4\r\n+ACK\r\n"));
        assert_eq!(left(&mut a, "P"), (0, 0));
    }
}

#[test]
fn a_longer_acknowledgement_leads_round_no_permission() {
    for permissions in [
        format!("allow: ['$JS.ACK.MINE.C.>', '$JS.ACK.hub.{HASH}.>']"),
        "deny: ['$JS.ACK.D.>']".to_owned(),
    ] {
        let (_server, mut a, mut u) =
            denied(&format!("permissions: {{publish: {{{permissions}}}}}"));
        a.ask("d", "one");
        consumer(&mut a, "D");
        let reply = delivery(&mut a, "D", "C");
        let rest = reply.strip_prefix("$JS.ACK.").unwrap();
        u.send(format!("PUB $JS.ACK.hub.{HASH}.{rest} 0\r\n\r\n"));
        u.flush(format!("-ERR 'Permissions Violation for Publish to \"{reply}\"'\r\n"));
        // Another's domain and account are not read over, and mean nothing here.
        u.send(format!("PUB $JS.ACK.MINE.C.{rest} 0\r\n\r\n"));
        u.flush("");
        assert_eq!(left(&mut a, "D"), (1, 0));
        a.send(format!("PUB $JS.ACK.hub.{HASH}.{rest} 0\r\n\r\n"));
        assert_eq!(left(&mut a, "D"), (0, 0));
    }
}

/// A server that has joined the hub as this user.
fn leaf_of(server: &TestServer, user: &str) -> Peer {
    let mut leaf = Peer::new(std::net::TcpStream::connect(server.leafs.unwrap()).unwrap());
    leaf.line();
    leaf.send(format!(
        "CONNECT {{\"user\":\"{user}\",\"pass\":\"pw\",\"name\":\"l\",\"headers\":true}}\r\nPING\r\n"
    ));
    while leaf.line() != "PONG" {}
    leaf
}

#[test]
fn an_acknowledgement_of_another_domain_goes_there_and_takes_no_effect_here() {
    let (server, mut a, _u) = denied(DENY);
    a.ask("d", "one");
    consumer(&mut a, "D");
    let reply = delivery(&mut a, "D", "C");
    let rest = reply.strip_prefix("$JS.ACK.").unwrap();
    let mut leaf = leaf_of(&server, "a");
    leaf.send(format!("LS+ $JS.ACK.leaf.{HASH}.>\r\n"));
    leaf.flush("");
    a.send(format!("PUB $JS.ACK.leaf.{HASH}.{rest} 4\r\n+ACK\r\n"));
    leaf.expect(format!("LMSG $JS.ACK.leaf.{HASH}.{rest} 4\r\n+ACK\r\n"));
    assert_eq!(left(&mut a, "D"), (1, 0));
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
        let mut leaf = leaf_of(&server, "u");
        leaf.send(format!("LMSG {sent} 1\r\nx\r\nPING\r\n"));
        while !leaf.line().starts_with("-ERR 'Permissions Violation for Publish") {}
        untouched(&mut a);
    }
}

/// A hub with a stream `D` and a leaf node whose user may publish to `in.>` and pull from `D` only.
fn narrow_leaf() -> (TestServer, Peer, Peer) {
    let permissions = "permissions: {publish: {allow: ['in.>', '$JS.hub.API.CONSUMER.MSG.NEXT.D.>',
        '$JS.API.CONSUMER.MSG.NEXT.D.>']}}";
    let (server, mut a, _u) = denied(permissions);
    for body in ["one", "two"] {
        a.ask("d", body);
    }
    consumer(&mut a, "D");
    let leaf = leaf_of(&server, "u");
    (server, a, leaf)
}

#[test]
fn a_leaf_node_acknowledges_what_it_was_handed_and_nothing_else() {
    let (_server, mut a, mut leaf) = narrow_leaf();
    let foreign = delivery(&mut a, "D", "C");
    leaf.send("LS+ _INBOX.leaf\r\n");
    leaf.send("LMSG $JS.hub.API.CONSUMER.MSG.NEXT.D.C _INBOX.leaf 1\r\n1\r\n");
    let line = leaf.line();
    let words: Vec<&str> = line.split(' ').collect();
    assert_eq!((words[0], words[1]), ("LMSG", "_INBOX.leaf"), "{line}");
    let own = words[2].strip_suffix("@d").unwrap().to_owned();
    leaf.take(words[3].parse::<usize>().unwrap() + 2);
    assert_eq!(left(&mut a, "D"), (2, 0));
    // Not that of somebody else; the connection stays.
    leaf.send(format!("LMSG {foreign} 4\r\n+ACK\r\n"));
    leaf.flush("");
    assert_eq!(left(&mut a, "D"), (2, 0));
    // Its own, first told to be in work.
    leaf.send(format!("LMSG {own} 4\r\n+WPI\r\nLMSG {own} 4\r\n+ACK\r\n"));
    leaf.flush("");
    assert_eq!(left(&mut a, "D"), (1, 0));
}

#[test]
fn a_leaf_node_answers_only_requests_that_it_was_handed() {
    let (_server, mut a, mut leaf) = narrow_leaf();
    a.send("SUB _R_.> 5\r\n");
    a.flush("");
    // Told before the listener below, if at all.
    leaf.send("LS+ service\r\nLMSG _R_.abc.key 1\r\nx\r\n");
    loop {
        leaf.send("PING\r\n");
        if leaf.line() == "PONG" {
            break;
        }
    }
    a.flush("");
}

#[test]
fn a_leaf_node_shows_no_subject_that_it_may_not_publish_to() {
    let (_server, mut a, mut leaf) = narrow_leaf();
    a.send("SUB in.a 5\r\n");
    a.flush("");
    while leaf.line() != "LS+ in.a" {}
    leaf.send("LMSG in.a $JS.ACK.S.C.1.2.3.4.5@admin.cmd 1\r\nx\r\n");
    leaf.send("LMSG in.a $JS.ACK.S.C.1.2.3.4.5@in.b 1\r\ny\r\n");
    leaf.flush("");
    a.expect("MSG in.b 5 $JS.ACK.S.C.1.2.3.4.5 1\r\ny\r\n");
}

#[test]
fn an_account_that_imports_account_info_hears_nothing_from_what_it_does_not_import() {
    let server = with_jetstream(configured(
        "accounts {
           A { jetstream: enabled, users: [{user: a, password: pw}],
               exports: [{service: '$JS.API.>'}] }
           INFO { users: [{user: info, password: pw}],
                  imports: [{service: {account: A, subject: '$JS.API.INFO'}}] }
           OTHER { users: [{user: other, password: pw}],
                   imports: [{service: {account: A, subject: '$JS.API.STREAM.LIST'}}] }
           NONE { users: [{user: none, password: pw}] }
         }",
    ));
    let ask =
        |user: &str, call: &str| server.connected(&login(user)).ask(&format!("$JS.API.{call}"), "");
    assert!(ask("info", "INFO").contains("account_info_response"));
    assert!(ask("info", "STREAM.NAMES").contains("503"), "nobody answers");
    assert!(ask("other", "STREAM.LIST").contains("stream_list_response"));
    for user in ["other", "none"] {
        assert!(ask(user, "STREAM.NAMES").contains("10039"), "{user}");
        assert!(ask(user, "INFO").contains("10039"), "{user}");
    }
}
