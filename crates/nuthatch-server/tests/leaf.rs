//! Leaf nodes, byte by byte: a scripted server at the other end.

mod support;

use serde_json::{Value, json};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use support::{Peer, TestServer, configured, eventually, login};

/// CONNECT of another server, but for its name.
const LEAF: &str = r#""remote_account":"$G","headers":true,"protocol":1"#;

fn hub() -> TestServer {
    TestServer::start(configured("leafnodes { port: -1 }"))
}

/// Another server that has read our greeting.
fn stranger(server: &TestServer) -> Peer {
    let mut peer = Peer::new(TcpStream::connect(server.leafs.unwrap()).unwrap());
    let info = json_of(&peer.line(), "INFO ");
    assert_eq!(info["info_on_connect"], true, "{info}");
    assert!(info["client_id"].as_u64().unwrap() > 0 && info["nonce"].is_string(), "{info}");
    assert_eq!(info["compression"], "off", "{info}");
    peer
}

fn json_of(line: &str, verb: &str) -> Value {
    let json = line.strip_prefix(verb).unwrap_or_else(|| panic!("{line}"));
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// A server that has joined: it, its welcome, and what it was told of, the subject that finds loops
/// left out.
struct Joined {
    peer: Peer,
    welcome: Value,
    interest: Vec<String>,
    loop_subject: String,
}

fn join_with(server: &TestServer, connect: &str) -> Joined {
    let mut peer = stranger(server);
    peer.send(format!("CONNECT {{{connect}}}\r\nPING\r\n"));
    let welcome = json_of(&peer.line(), "INFO ");
    let (mut interest, mut loop_subject) = (Vec::new(), String::new());
    loop {
        let line = peer.line();
        match line.strip_prefix("LS+ ") {
            Some(subject) if subject.starts_with("$LDS.") => loop_subject = subject.to_owned(),
            Some(subject) => interest.push(subject.to_owned()),
            None if line == "PONG" => break,
            None => panic!("{line}"),
        }
    }
    interest.sort();
    assert!(!loop_subject.is_empty());
    Joined { peer, welcome, interest, loop_subject }
}

fn join(server: &TestServer, name: &str) -> Joined {
    join_with(server, &format!(r#""name":"{name}",{LEAF}"#))
}

/// Sends this and waits until it has been handled.
fn settle(peer: &mut Peer, text: &str) {
    peer.send(text);
    peer.flush("");
}

#[test]
fn interest_and_messages_cross_in_both_directions() {
    let server = hub();
    let mut client = server.client();
    settle(&mut client, "SUB early 1\r\nSUB early 2\r\n");
    let Joined { mut peer, welcome, interest, .. } = join(&server, "leaf");
    assert_eq!(
        (&welcome["connect_info"], &welcome["remote_account"]),
        (&json!(true), &json!("$G"))
    );
    assert_eq!(interest, ["early"], "told once, whoever listens");
    settle(&mut client, "SUB late 3\r\nSUB late 4\r\n");
    peer.expect("LS+ late\r\n");
    settle(&mut client, "UNSUB 3\r\nUNSUB 4\r\n");
    peer.expect("LS- late\r\n");
    settle(&mut peer, "LMSG early reply 2\r\nhi\r\n");
    client.expect("MSG early 1 reply 2\r\nhi\r\n");
    client.expect("MSG early 2 reply 2\r\nhi\r\n");
    settle(&mut peer, "HMSG early 12 14\r\nNATS/1.0\r\n\r\nhi\r\n");
    client.expect("HMSG early 1 12 14\r\nNATS/1.0\r\n\r\nhi\r\n");
    client.expect("HMSG early 2 12 14\r\nNATS/1.0\r\n\r\nhi\r\n");
    settle(&mut peer, "LS+ there.>\r\n");
    settle(&mut client, "PUB there.a 2\r\nhi\r\nPUB there.b r 0\r\n\r\nPUB elsewhere 0\r\n\r\n");
    peer.expect("LMSG there.a 2\r\nhi\r\nLMSG there.b r 0\r\n\r\n");
    settle(&mut client, "HPUB there.c r 12 13\r\nNATS/1.0\r\n\r\n!\r\n");
    peer.expect("HMSG there.c r 12 13\r\nNATS/1.0\r\n\r\n!\r\n");
    settle(&mut peer, "LS- there.>\r\n");
    client.send("PUB there.a inbox 0\r\n\r\n");
    client.send("SUB inbox 9\r\nPUB there.a inbox 0\r\n\r\n");
    client.expect("HMSG inbox 9 ");
    assert!(client.line().ends_with(|c: char| c.is_ascii_digit()), "nobody listens any more");
}

#[test]
fn one_copy_for_each_server_and_none_for_the_sender() {
    let server = hub();
    let mut client = server.client();
    let mut one = join(&server, "one").peer;
    settle(&mut one, "LS+ a.*\r\nLS+ a.b\r\nLS+ a.b q 1\r\n");
    settle(&mut client, "PUB a.b 1\r\nx\r\nPUB a.b r 1\r\nx\r\n");
    one.expect("LMSG a.b | q 1\r\nx\r\nLMSG a.b + r q 1\r\nx\r\n");
    let other = join(&server, "other");
    assert_eq!(other.interest.iter().filter(|s| !s.starts_with('$')).count(), 3);
    let mut other = other.peer;
    settle(&mut one, "LMSG a.b 1\r\ny\r\n");
    settle(&mut other, "LS+ a.b\r\n");
    one.expect("LS+ a.b\r\n");
    settle(&mut one, "LMSG a.b 1\r\nz\r\n");
    other.expect("LMSG a.b 1\r\nz\r\n");
    one.flush("");
}

#[test]
fn queue_groups_choose_one_member_and_prefer_those_here() {
    let server = hub();
    let mut client = server.client();
    let mut peer = join(&server, "leaf").peer;
    settle(&mut client, "SUB work pool 1\r\n");
    peer.expect("LS+ work pool 1\r\n");
    settle(&mut client, "SUB work pool 2\r\n");
    peer.expect("LS+ work pool 2\r\n");
    settle(&mut client, "UNSUB 2\r\n");
    peer.expect("LS+ work pool 1\r\n");
    settle(&mut peer, "LMSG work 1\r\na\r\n");
    client.flush("");
    settle(&mut peer, "LMSG work | other 1\r\nb\r\nLMSG work + r other pool 1\r\nc\r\n");
    client.expect("MSG work 1 r 1\r\nc\r\n");
    settle(&mut peer, "LS+ work pool 5\r\n");
    for _ in 0..20 {
        client.send("PUB work 1\r\nd\r\n");
        client.expect("MSG work 1 1\r\nd\r\n");
    }
    settle(&mut client, "UNSUB 1\r\n");
    peer.expect("LS- work pool\r\n");
    settle(&mut client, "PUB work 1\r\ne\r\n");
    peer.expect("LMSG work | pool 1\r\ne\r\n");
}

#[test]
fn weights_decide_among_servers() {
    let server = hub();
    let mut client = server.client();
    let mut light = join(&server, "light").peer;
    settle(&mut light, "LS+ job g 1\r\n");
    let mut heavy = join(&server, "heavy").peer;
    settle(&mut heavy, "LS+ job g 50\r\n");
    let text = "PUB job 0\r\n\r\n".repeat(200);
    settle(&mut client, &text);
    let heavy_got = server.server.leafs.connections.open()[1].outbox().totals().messages;
    assert!(heavy_got > 150, "{heavy_got} of 200");
}

#[test]
fn a_loop_is_found_and_ended() {
    let server = hub();
    let Joined { mut peer, loop_subject, .. } = join(&server, "leaf");
    peer.send(format!("LS+ {loop_subject}\r\n"));
    peer.expect_close(
        "-ERR 'Loop detected for leafnode account=\"$G\". Delaying attempt to reconnect for 30s'\r\n",
    );
    eventually("it is gone", || server.server.leafs.connections.is_empty());
    assert_eq!(server.server.accounts.global().leafs.load(Ordering::Relaxed), 0);
}

#[test]
fn strangers_clients_and_nonsense_are_turned_away() {
    let server = hub();
    let mut early = stranger(&server);
    early.send("LS+ a\r\n");
    early.expect_close("-ERR 'Authorization Violation'\r\n");
    let mut client = stranger(&server);
    client.send("CONNECT {\"lang\":\"go\"}\r\n");
    client.expect_close("-ERR 'attempted to connect to leaf node port'\r\n");
    let mut nonsense = join(&server, "leaf").peer;
    nonsense.send("SUB a 1\r\n");
    nonsense.expect_close("-ERR 'Unknown Protocol Operation'\r\n");
    let mut large = join(&server, "leaf").peer;
    large.send("LMSG a 99999999\r\n");
    large.expect_close("-ERR 'Maximum Payload Violation'\r\n");
}

#[test]
fn a_server_that_comes_back_replaces_itself() {
    let server = hub();
    let mut old = join(&server, "leaf").peer;
    settle(&mut old, "LS+ a\r\nLS+ $LDS.theirs\r\n");
    let mut new = join(&server, "leaf");
    assert_eq!(new.interest, Vec::<String>::new(), "nothing of its former self");
    old.expect_close("-ERR 'Duplicate Remote LeafNode Connection'\r\n");
    settle(&mut new.peer, "LS+ $LDS.theirs\r\n");
    eventually("one is left", || server.server.leafs.connections.len() == 1);
}

#[test]
fn users_of_leaf_nodes_lead_to_their_accounts() {
    let server = TestServer::start(configured(
        "accounts { A { users: [{user: a, password: pw}] }, B {} }
         leafnodes { port: -1, authorization {
           timeout: 5
           users: [{user: one, password: pw, account: A}, {user: two, password: pw, account: B}] } }",
    ));
    let mut wrong = stranger(&server);
    wrong.send("CONNECT {\"user\":\"one\",\"pass\":\"no\"}\r\n");
    wrong.expect_close("-ERR 'Authorization Violation'\r\n");
    let mut wrong = stranger(&server);
    wrong.send("CONNECT {\"user\":\"a\",\"pass\":\"pw\"}\r\n");
    wrong.expect_close("-ERR 'Authorization Violation'\r\n");
    let mut client = server.connected(&login("a"));
    settle(&mut client, "SUB x 1\r\n");
    let one = join_with(&server, &format!(r#""name":"1","user":"one","pass":"pw",{LEAF}"#));
    assert_eq!((&one.welcome["remote_account"], one.interest), (&json!("A"), vec!["x".to_owned()]));
    let two = join_with(&server, &format!(r#""name":"2","user":"two","pass":"pw",{LEAF}"#));
    assert_eq!((&two.welcome["remote_account"], two.interest), (&json!("B"), vec![]));
}

#[test]
fn permissions_of_the_user_hold() {
    let server = TestServer::start(configured(
        "authorization { users: [
           {user: free, password: pw}
           {user: leaf, password: pw, permissions: {
             publish: {allow: ['up.>'], deny: ['up.secret']}, subscribe: ['down.>']}} ] }
         leafnodes { port: -1 }",
    ));
    let mut client = server.connected(&login("free"));
    settle(&mut client, "SUB up.> 1\r\nSUB > 2\r\nSUB up.a 3\r\n");
    let connect = format!(r#""name":"leaf","user":"leaf","pass":"pw",{LEAF}"#);
    let Joined { mut peer, welcome, interest, .. } = join_with(&server, &connect);
    assert_eq!(welcome["export"], json!({"allow": ["up.>"], "deny": ["up.secret"]}));
    assert_eq!(welcome["import"], json!({"allow": ["down.>"]}));
    assert_eq!(interest, ["up.>", "up.a"]);
    settle(&mut peer, "LS+ down.x\r\nLS+ down.>\r\nLS+ >\r\n");
    let mut other = server.connected(&login("free"));
    settle(&mut other, "PUB down.x 1\r\nx\r\nPUB side 1\r\ny\r\n");
    peer.expect("LMSG down.x 1\r\nx\r\n");
    peer.flush("");
    peer.send("LMSG up.secret 1\r\nx\r\n");
    peer.expect_close("-ERR 'Permissions Violation for Publish to \"up.secret\"'\r\n");
    let mut peer = join_with(&server, &connect).peer;
    peer.send("LS+ side\r\n");
    peer.expect_close("-ERR 'Permissions Violation for Subscription to \"side\"'\r\n");
}

#[test]
fn jetstream_subjects_stay_where_they_are() {
    let server = hub();
    let mut client = server.client();
    let mut peer = join(&server, "leaf").peer;
    settle(&mut client, "SUB $JS.API.> 1\r\nSUB $KV.b.> 2\r\nSUB $JS.hub.API.> 3\r\n");
    peer.expect("LS+ $JS.hub.API.>\r\n");
    settle(&mut peer, "LS+ >\r\n");
    settle(&mut client, "UNSUB 1\r\nUNSUB 2\r\nUNSUB 3\r\n");
    peer.expect("LS- $JS.hub.API.>\r\n");
    settle(
        &mut client,
        "PUB $JS.API.INFO 0\r\n\r\nPUB $KV.b.k 0\r\n\r\nPUB $JS.far.API.INFO 0\r\n\r\n",
    );
    peer.expect("LMSG $JS.far.API.INFO 0\r\n\r\n");
    peer.flush("");
}

#[test]
fn a_delivery_from_afar_shows_the_subject_it_was_stored_under() {
    let server = hub();
    let mut client = server.client();
    settle(&mut client, "SUB _INBOX.c 1\r\n");
    let mut peer = join(&server, "leaf").peer;
    settle(&mut peer, "LMSG _INBOX.c $JS.ACK.S.C.1.2.3.4.5@orders.new 2\r\nhi\r\n");
    client.expect("MSG orders.new 1 $JS.ACK.S.C.1.2.3.4.5 2\r\nhi\r\n");
}

#[test]
fn a_server_that_does_not_read_is_cut_off() {
    let server = TestServer::start(configured(
        "max_pending: 1MB, max_payload: 64KB, write_deadline: '60s', leafnodes { port: -1 }",
    ));
    let mut client = server.client();
    let mut peer = join(&server, "leaf").peer;
    settle(&mut peer, "LS+ flood\r\n");
    let one = format!("PUB flood 60000\r\n{}\r\n", "x".repeat(60_000));
    let leafs = &server.server.leafs;
    eventually("it is cut off", || {
        client.send(&one);
        leafs.slow_consumers.load(Ordering::Relaxed) > 0
    });
    eventually("it is gone", || leafs.connections.is_empty());
    client.flush("");
}

#[test]
fn monitoring_and_events_tell_of_leaf_nodes() {
    let server = TestServer::start(configured(
        "system_account: SYS
         accounts { SYS { users: [{user: sys, password: pw}] }, A { users: [{user: a, password: pw}] } }
         leafnodes { port: -1, authorization { user: l, password: pw, account: A } }",
    ));
    let mut sys = server.connected(&login("sys"));
    settle(&mut sys, "SUB $SYS.ACCOUNT.A.LEAFNODE.CONNECT 1\r\nSUB answers 2\r\n");
    let connect = format!(r#""name":"far","user":"l","pass":"pw",{LEAF}"#);
    let mut peer = join_with(&server, &connect).peer;
    assert!(sys.line().starts_with("MSG $SYS.ACCOUNT.A.LEAFNODE.CONNECT 1 "));
    assert_eq!(json_of(&sys.line(), "")["acc"], "A");
    settle(&mut peer, "LS+ x\r\nLMSG y 2\r\nhi\r\n");
    let mut ask = |what: &str| {
        sys.send(format!("PUB $SYS.REQ.SERVER.PING.{what} answers 13\r\n{{\"subs\":true}}\r\n"));
        assert!(sys.line().starts_with("MSG answers 2 "));
        json_of(&sys.line(), "")["data"].clone()
    };
    let leafz = ask("LEAFZ");
    let leaf = &leafz["leafs"][0];
    assert_eq!((&leafz["leafnodes"], &leaf["name"]), (&json!(1), &json!("far")), "{leafz}");
    assert_eq!((&leaf["account"], &leaf["is_spoke"]), (&json!("A"), &json!(false)));
    assert_eq!((&leaf["in_msgs"], &leaf["in_bytes"]), (&json!(1), &json!(2)));
    assert_eq!((&leaf["subscriptions"], &leaf["subscriptions_list"]), (&json!(1), &json!(["x"])));
    let varz = ask("VARZ");
    assert_eq!((&varz["leafnodes"], &varz["connections"]), (&json!(1), &json!(1)), "{varz}");
    assert_eq!(varz["leaf"]["port"], server.leafs.unwrap().port());
}

/// A scripted hub.
struct Hub(TcpListener);

impl Hub {
    fn bind() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    fn url(&self) -> String {
        format!("nats-leaf://us:pw@{}", self.0.local_addr().unwrap())
    }

    /// The server comes: its CONNECT.
    fn accept(&self) -> (Peer, Value) {
        let (stream, _) = self.0.accept().unwrap();
        let mut peer = Peer::new(stream);
        peer.send(
            "INFO {\"server_id\":\"H\",\"server_name\":\"hub\",\"headers\":true,\"client_id\":7,\
             \"info_on_connect\":true,\"leafnode_urls\":[],\"nonce\":\"abc\",\"domain\":\"hub\"}\r\n",
        );
        let connect = json_of(&peer.line(), "CONNECT ");
        (peer, connect)
    }

    /// Lets it in: what it tells of, the subject that finds loops left out.
    fn welcome(&self, peer: &mut Peer, permissions: &str) -> Vec<String> {
        peer.send(format!(
            "INFO {{\"connect_info\":true,\"remote_account\":\"$G\"{permissions}}}\r\nPING\r\n"
        ));
        let mut interest = Vec::new();
        loop {
            match peer.line() {
                line if line == "PONG" => break,
                line => interest.push(line.strip_prefix("LS+ ").expect("interest").to_owned()),
            }
        }
        interest.retain(|subject| !subject.starts_with("$LDS."));
        interest.sort();
        interest
    }
}

#[test]
fn we_connect_as_a_leaf_node_and_come_back() {
    let hub = Hub::bind();
    let server = TestServer::start(configured(&format!(
        "server_name: spoke, leafnodes {{ reconnect: '10ms', remotes: [
           {{ url: '{}', deny_imports: ['in.no'], deny_exports: ['out.no'] }} ] }}",
        hub.url()
    )));
    let mut client = server.client();
    settle(&mut client, "SUB in.> 1\r\nSUB in.no 2\r\nSUB in.yes 3\r\n");
    let (mut peer, connect) = hub.accept();
    assert_eq!((&connect["name"], &connect["user"]), (&json!("spoke"), &json!("us")), "{connect}");
    assert_eq!((&connect["pass"], &connect["deny_pub"]), (&json!("pw"), &json!(["in.no"])));
    assert_eq!(connect["remote_account"], "$G");
    assert_eq!(hub.welcome(&mut peer, ""), ["in.>", "in.yes"]);
    settle(&mut peer, "LS+ out.>\r\nLS+ out.no\r\nLMSG in.no 1\r\nx\r\nLMSG in.yes 1\r\ny\r\n");
    let got: Vec<String> = (0..4).map(|_| client.line()).collect();
    assert!(got.contains(&"MSG in.yes 1 1".to_owned()), "{got:?}");
    assert!(got.contains(&"MSG in.yes 3 1".to_owned()), "{got:?}");
    settle(&mut client, "PUB out.no 1\r\nx\r\nPUB out.yes 1\r\ny\r\n");
    peer.expect("LMSG out.yes 1\r\ny\r\n");
    drop(peer);
    let (mut peer, _) = hub.accept();
    let permissions = ",\"import\":{\"allow\":[\"in.yes\"]},\"export\":{\"deny\":[\"out.yes\"]}";
    assert_eq!(hub.welcome(&mut peer, permissions), ["in.yes"]);
    settle(&mut peer, "LS+ out.>\r\n");
    settle(&mut client, "PUB out.yes 1\r\ny\r\nPUB out.else 1\r\nz\r\n");
    peer.expect("LMSG out.else 1\r\nz\r\n");
}

#[test]
fn a_spoke_does_not_join_two_hubs() {
    let hubs = [Hub::bind(), Hub::bind()];
    let server = TestServer::start(configured(&format!(
        "leafnodes {{ port: -1, remotes: [ {{url: '{}'}}, {{url: '{}'}} ] }}",
        hubs[0].url(),
        hubs[1].url()
    )));
    let mut peers = hubs.each_ref().map(|hub| hub.accept().0);
    for (hub, peer) in hubs.iter().zip(&mut peers) {
        hub.welcome(peer, "");
    }
    let mut below = join(&server, "below").peer;
    peers[0].send("LS+ of.first\r\nPING\r\n");
    peers[1].send("LS+ of.second\r\nPING\r\n");
    for peer in &mut peers {
        // The server has heard it when it answers; what comes before is of no interest.
        while peer.line() != "PONG" {}
    }
    settle_below(&mut below);
    for peer in &mut peers {
        let mut heard = Vec::new();
        while heard.last().is_none_or(|line: &String| line != "LS+ of.below") {
            heard.push(peer.line());
        }
        let crossed =
            heard.iter().any(|line| line.contains("of.first") || line.contains("of.second"));
        assert!(!crossed, "{heard:?}");
    }
}

/// A leaf node below listens; it hears of both hubs' interest, in any order.
fn settle_below(below: &mut Peer) {
    below.send("LS+ of.below\r\nPING\r\n");
    let mut heard = Vec::new();
    while heard.last().is_none_or(|line: &String| line != "PONG") {
        heard.push(below.line());
    }
    for subject in ["LS+ of.first", "LS+ of.second"] {
        assert!(heard.iter().any(|line| line == subject), "{heard:?}");
    }
}

#[test]
fn a_port_that_is_no_leaf_node_listener_is_refused() {
    let hub = Hub::bind();
    let server = TestServer::start(configured(&format!(
        "leafnodes {{ reconnect: '10ms', remotes: [ {{ url: '{}' }} ] }}",
        hub.url()
    )));
    let mut peer = Peer::new(hub.0.accept().unwrap().0);
    peer.send("INFO {\"server_id\":\"H\",\"client_id\":7}\r\n");
    peer.expect_close("");
    hub.accept();
    drop(server);
}
