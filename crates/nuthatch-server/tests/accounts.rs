//! Accounts, byte by byte: isolation, imported streams and services, limits, subject mappings.

mod support;

use support::{Peer, TestServer, configured, login};

/// Accounts `A` and `B` with users `a` and `b`, and what else is in them.
fn two(a: &str, b: &str) -> TestServer {
    TestServer::start(configured(&format!(
        "accounts {{
           A {{ users: [{{user: a, password: pw}}, {{user: a2, password: pw}}], {a} }}
           B {{ users: [{{user: b, password: pw}}], {b} }}
         }}"
    )))
}

fn peers(server: &TestServer) -> (Peer, Peer) {
    (server.connected(&login("a")), server.connected(&login("b")))
}

#[test]
fn accounts_do_not_hear_each_other() {
    let server = two("", "");
    let (mut a, mut b) = peers(&server);
    b.send("SUB > 1\r\n");
    b.flush("");
    a.send("SUB x 1\r\nPUB x 1\r\na\r\n");
    a.flush("MSG x 1 1\r\na\r\n");
    b.send("PUB x r 1\r\nb\r\n");
    b.flush("MSG x 1 r 1\r\nb\r\n");
    a.flush("");
}

#[test]
fn an_imported_stream() {
    let export = "exports: [{stream: 'ev.>'}, {stream: 'one.*', accounts: [B]}]";
    let server = two(
        export,
        "imports: [
           {stream: {account: A, subject: 'ev.*.>'}, prefix: 'in'},
           {stream: {account: A, subject: 'one.*'}, to: 'eins.$1'},
         ]",
    );
    let (mut a, mut b) = peers(&server);
    b.send("SUB in.ev.x.* 1\r\nSUB eins.z q 2\r\nSUB > 3\r\n");
    b.flush("");
    a.send("PUB ev.x.y 1\r\n1\r\nPUB one.z 1\r\n2\r\nPUB ev.x 1\r\n3\r\n");
    a.flush("");
    let mut got = [b.line(), b.line(), b.line(), b.line()];
    got.sort();
    assert_eq!(got, ["1", "1", "MSG in.ev.x.y 1 1", "MSG in.ev.x.y 3 1"]);
    let mut got = [b.line(), b.line(), b.line(), b.line()];
    got.sort();
    assert_eq!(got, ["2", "2", "MSG eins.z 2 1", "MSG eins.z 3 1"]);
    b.send("UNSUB 1\r\nUNSUB 2\r\nUNSUB 3\r\n");
    b.flush("");
    a.send("PUB ev.x.y r 1\r\n1\r\n");
    a.flush("");
    b.flush("");
    // What is imported cannot be published to.
    a.send("SUB ev.> 1\r\n");
    a.flush("");
    b.send("PUB in.ev.x.y 1\r\n1\r\n");
    b.flush("");
    a.flush("");
}

#[test]
fn limits_of_imported_streams_are_those_of_the_subscription() {
    let server = two("exports: [{stream: e}]", "imports: [{stream: {account: A, subject: e}}]");
    let (mut a, mut b) = peers(&server);
    b.send("SUB e 1\r\nUNSUB 1 2\r\n");
    b.flush("");
    a.send("PUB e 0\r\n\r\nPUB e 0\r\n\r\nPUB e 0\r\n\r\n");
    a.flush("");
    b.expect("MSG e 1 0\r\n\r\nMSG e 1 0\r\n\r\n");
    b.flush("");
}

#[test]
fn an_imported_service() {
    let server = two(
        "exports: [{service: 'req.*'}]",
        "imports: [{service: {account: A, subject: 'req.*'}, to: 'ask.$1.please'}]",
    );
    let (mut a, mut b) = peers(&server);
    b.send("SUB inbox.* 1\r\nPUB ask.x.please inbox.1 2\r\nhi\r\n");
    b.expect("HMSG inbox.1 1 44 44\r\nNATS/1.0 503\r\nNats-Subject: ask.x.please\r\n\r\n\r\n");
    a.send("SUB req.> 7\r\n");
    a.flush("");
    b.send("PUB ask.x.please inbox.2 2\r\nhi\r\n");
    let line = a.line();
    let words: Vec<_> = line.split(' ').collect();
    let ["HMSG", "req.x", "7", reply, _, _] = words[..] else { panic!("{line}") };
    assert!(reply.starts_with("_R_."), "{reply}");
    assert_eq!(a.line(), "NATS/1.0");
    let info = a.line();
    assert!(info.starts_with("Nats-Request-Info: {\"acc\":\"B\""), "{info}");
    assert!(!info.contains("\"user\""), "{info}");
    assert_eq!((a.line(), a.line()), (String::new(), "hi".to_owned()));
    // One response, and no other.
    a.send(format!("PUB {reply} 3\r\nyes\r\nPUB {reply} 2\r\nno\r\n"));
    a.flush("");
    b.expect("MSG inbox.2 1 3\r\nyes\r\n");
    b.flush("");
}

#[test]
fn responses_in_a_stream_and_in_chunks() {
    let server = two(
        "exports: [{service: s, response: stream}, {service: c, response: chunked}]",
        "imports: [{service: {account: A, subject: s}, share: true},
                   {service: {account: A, subject: c}}]",
    );
    let (mut a, mut b) = peers(&server);
    a.send("SUB s 1\r\nSUB c 2\r\n");
    a.flush("");
    b.send("SUB inbox 1\r\nPUB s inbox 0\r\n\r\n");
    let (reply, info) = request(&mut a);
    assert!(info.contains("\"user\":\"b\"") && info.contains("\"kind\":\"Client\""), "{info}");
    a.send(format!("PUB {reply} 1\r\n1\r\nPUB {reply} 0\r\n\r\nPUB {reply} 1\r\n2\r\n"));
    b.expect("MSG inbox 1 1\r\n1\r\nMSG inbox 1 0\r\n\r\nMSG inbox 1 1\r\n2\r\n");
    b.send("PUB c inbox 0\r\n\r\n");
    let (reply, _) = request(&mut a);
    a.send(format!("PUB {reply} 1\r\n1\r\nPUB {reply} 0\r\n\r\nPUB {reply} 1\r\n2\r\n"));
    b.expect("MSG inbox 1 1\r\n1\r\nMSG inbox 1 0\r\n\r\n");
    a.flush("");
    b.flush("");
}

/// The reply subject and the request info of the next request, which has no body.
fn request(peer: &mut Peer) -> (String, String) {
    let line = peer.line();
    let reply = line.split(' ').nth(3).unwrap().to_owned();
    assert_eq!(peer.line(), "NATS/1.0");
    let info = peer.line();
    assert_eq!((peer.line(), peer.line()), (String::new(), String::new()));
    (reply, info)
}

#[test]
fn a_service_through_three_accounts() {
    let server = TestServer::start(configured(
        "accounts {
           A { users: [{user: a, password: pw}], exports: [{service: deep}] }
           M { users: [{user: m, password: pw}], exports: [{service: middle}],
               imports: [{service: {account: A, subject: deep}, to: middle}] }
           B { users: [{user: b, password: pw}],
               imports: [{service: {account: M, subject: middle}, to: top}] }
         }",
    ));
    let (mut a, mut b) = peers(&server);
    a.send("SUB deep 1\r\n");
    a.flush("");
    b.send("SUB inbox 1\r\nPUB top inbox 0\r\n\r\n");
    let (reply, info) = request(&mut a);
    assert!(info.contains("\"acc\":\"B\"") && info.contains("\"svc\":\"M\""), "{info}");
    a.send(format!("PUB {reply} 2\r\nok\r\n"));
    b.expect("MSG inbox 1 2\r\nok\r\n");
}

#[test]
fn latencies_of_a_service() {
    let server = two(
        "exports: [{service: s, latency: {subject: lat, sampling: 100}}]",
        "imports: [{service: {account: A, subject: s}}]",
    );
    let (mut a, mut b) = peers(&server);
    let mut watcher = server.connected(&login("a2"));
    watcher.send("SUB lat 1\r\n");
    watcher.flush("");
    a.send("SUB s 1\r\n");
    a.flush("");
    b.send("SUB inbox 1\r\nPUB s inbox 0\r\n\r\n");
    let (reply, _) = request(&mut a);
    a.send(format!("PUB {reply} 2\r\nok\r\n"));
    b.expect("MSG inbox 1 2\r\nok\r\n");
    assert!(watcher.line().starts_with("MSG lat 1 "));
    let event: serde_json::Value = serde_json::from_str(&watcher.line()).unwrap();
    assert_eq!(event["type"], "io.nats.server.metric.v1.service_latency");
    assert_eq!((&event["status"], &event["requestor"]["acc"]), (&200.into(), &"B".into()));
    assert!(event["service"].as_u64().unwrap() <= event["total"].as_u64().unwrap());
}

#[test]
fn limits_of_an_account() {
    let server = two("limits { max_conn: 1, max_subs: 1, max_payload: 4 }", "");
    let mut a = server.connected(&login("a"));
    let mut refused = server.peer();
    refused.send(format!("CONNECT {}\r\n", login("a2")));
    refused.expect_close("-ERR 'maximum account active connections exceeded'\r\n");
    a.send("SUB x 1\r\nSUB y 2\r\n");
    a.flush("-ERR 'maximum subscriptions exceeded'\r\n");
    a.send("PUB x 4\r\nabcd\r\nPUB x 5\r\nabcde\r\n");
    a.expect("MSG x 1 4\r\nabcd\r\n");
    a.expect_close("-ERR 'Maximum Payload Violation'\r\n");
    server.connected(&login("b"));
}

#[test]
fn mappings() {
    let server = two(
        "mappings {
           'ev.*': 'ev.{{wildcard(1)}}.{{partition(5,1)}}'
           'swap.*.*': 'swapped.$2.$1'
           gone: [{dest: gone, weight: 0}]
         }",
        "",
    );
    let (mut a, mut b) = peers(&server);
    a.send("SUB > 1\r\n");
    for _ in 0..2 {
        a.send("PUB ev.1 1\r\n1\r\nPUB swap.a.b 1\r\n2\r\nPUB gone 1\r\n3\r\nPUB same 1\r\n4\r\n");
        a.flush("MSG ev.1.4 1 1\r\n1\r\nMSG swapped.b.a 1 1\r\n2\r\nMSG same 1 1\r\n4\r\n");
    }
    b.send("SUB > 1\r\nPUB ev.1 1\r\n1\r\n");
    b.flush("MSG ev.1 1 1\r\n1\r\n");
}

#[test]
fn permissions_speak_of_the_mapped_subject() {
    let server = TestServer::start(configured(
        "mappings { a: b }
         authorization { users: [{user: u, password: pw, permissions: {publish: b}}] }",
    ));
    let mut u = server.connected(&login("u"));
    u.send("SUB b 1\r\nPUB a 1\r\nx\r\nPUB c 1\r\nx\r\n");
    u.flush("MSG b 1 1\r\nx\r\n-ERR 'Permissions Violation for Publish to \"c\"'\r\n");
}

#[test]
fn a_service_import_meets_mappings_of_the_exporter() {
    let server = two(
        "exports: [{service: s}], mappings { s: t }",
        "imports: [{service: {account: A, subject: s}}]",
    );
    let (mut a, mut b) = peers(&server);
    a.send("SUB t 1\r\n");
    a.flush("");
    b.send("PUB s 0\r\n\r\n");
    assert!(a.line().starts_with("HMSG t 1 "));
}

#[test]
fn a_reload_keeps_clients_that_stay_valid() {
    let server = two("exports: [{stream: e}, {service: s}]", "");
    let (mut a, mut b) = peers(&server);
    b.send("SUB e 1\r\nSUB inbox 2\r\n");
    b.flush("");
    a.send("SUB s 1\r\nPUB e 0\r\n\r\n");
    a.flush("");
    b.flush("");
    let accounts = |imports: &str| {
        configured(&format!(
            "accounts {{
               A {{ users: [{{user: a, password: pw}}], exports: [{{stream: e}}, {{service: s}}] }}
               B {{ users: [{{user: b, password: pw}}], imports: [{imports}] }}
             }}"
        ))
    };
    server.server.set_options(accounts(
        "{stream: {account: A, subject: e}}, {service: {account: A, subject: s}}",
    ));
    a.send("PUB e 1\r\n1\r\n");
    b.expect("MSG e 1 1\r\n1\r\n");
    b.send("PUB s inbox 0\r\n\r\n");
    let (reply, _) = request(&mut a);
    a.send(format!("PUB {reply} 0\r\n\r\n"));
    b.expect("MSG inbox 2 0\r\n\r\n");
    server.server.set_options(accounts(""));
    a.send("PUB e 1\r\n1\r\n");
    a.flush("");
    b.send("PUB s inbox 0\r\n\r\n");
    b.flush("HMSG inbox 2 33 33\r\nNATS/1.0 503\r\nNats-Subject: s\r\n\r\n\r\n");
}
