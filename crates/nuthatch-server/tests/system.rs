//! The system account: requests of tools and events, byte by byte.

mod support;

use serde_json::{Value, json};
use support::{Peer, TestServer, configured, login};

fn server() -> TestServer {
    TestServer::start(configured(
        "server_name: n1, server_tags: [blue]
         system_account: SYS
         accounts {
           SYS { users: [{user: sys, password: pw}],
                 exports: [{service: '$SYS.REQ.>', accounts: [OPS], response: stream}] }
           APP { users: [{user: app, password: pw}] }
           OPS { users: [{user: ops, password: pw}],
                 imports: [{service: {account: SYS, subject: '$SYS.REQ.>'}, to: 'ops.>'}] }
         }",
    ))
}

/// Sends a request and reads the JSON of its answer.
fn request(peer: &mut Peer, subject: &str, body: &str) -> Value {
    peer.send(format!("PUB {subject} answers {}\r\n{body}\r\n", body.len()));
    answer(peer, "MSG answers 1 ")
}

#[track_caller]
fn answer(peer: &mut Peer, begins: &str) -> Value {
    let line = peer.line();
    assert!(line.starts_with(begins), "{line}");
    serde_json::from_str(&peer.line()).unwrap()
}

fn sys(server: &TestServer) -> Peer {
    let mut sys = server.connected(&login("sys"));
    sys.send("SUB answers 1\r\n");
    sys.flush("");
    sys
}

#[test]
fn documents_of_the_server() {
    let server = server();
    let id = server.server.id.clone();
    let mut sys = sys(&server);
    let found = request(&mut sys, "$SYS.REQ.SERVER.PING", "");
    assert_eq!((&found["server"]["name"], &found["server"]["id"]), (&json!("n1"), &json!(id)));
    assert_eq!(found["statsz"]["connections"], 1);
    let whole = request(&mut sys, &format!("$SYS.REQ.SERVER.{id}.IDZ"), "");
    assert_eq!(whole, json!({"name": "n1", "host": "0.0.0.0", "id": id}));
    for (what, field) in [
        ("VARZ", "max_payload"),
        ("CONNZ", "num_connections"),
        ("SUBSZ", "num_subscriptions"),
        ("ROUTEZ", "num_routes"),
        ("GATEWAYZ", "server_id"),
        ("LEAFZ", "leafnodes"),
        ("ACCOUNTZ", "accounts"),
        ("JSZ", "disabled"),
        ("HEALTHZ", "status_code"),
        ("EXPVARZ", "cmdline"),
    ] {
        for subject in
            [format!("$SYS.REQ.SERVER.PING.{what}"), format!("$SYS.REQ.SERVER.{id}.{what}")]
        {
            let found = request(&mut sys, &subject, "");
            assert_eq!(found["server"]["ver"], nuthatch_server::version::NATS_VERSION);
            assert!(found["data"].get(field).is_some(), "{subject}: {found}");
        }
    }
    let found =
        request(&mut sys, "$SYS.REQ.SERVER.PING.CONNZ", r#"{"auth":true,"subscriptions":true}"#);
    assert_eq!(found["data"]["connections"][0]["authorized_user"], "sys");
    let found = request(&mut sys, "$SYS.REQ.SERVER.PING.VARZ", "no json");
    assert_eq!(found["error"]["code"], 400);
    // What is meant for others gets no answer.
    for filter in [
        r#"{"server_name":"n2"}"#,
        r#"{"server_name":"n","exact_match":true}"#,
        r#"{"tags":["red"]}"#,
        r#"{"cluster":"c"}"#,
        r#"{"domain":"d"}"#,
    ] {
        sys.send(format!("PUB $SYS.REQ.SERVER.PING answers {}\r\n{filter}\r\n", filter.len()));
    }
    let filter = r#"{"server_name":"n","tags":["Blue"]}"#;
    assert_eq!(request(&mut sys, "$SYS.REQ.SERVER.PING.VARZ", filter)["data"]["server_name"], "n1");
    sys.flush("");
}

#[test]
fn documents_of_accounts() {
    let server = server();
    let mut sys = sys(&server);
    let mut app = server.connected(&login("app"));
    app.send("SUB x.y 7\r\n");
    app.flush("");
    let of = |what: &str| format!("$SYS.REQ.ACCOUNT.APP.{what}");
    assert_eq!(request(&mut sys, &of("CONNZ"), "")["data"]["num_connections"], 1);
    let subs = request(&mut sys, &of("SUBSZ"), "");
    assert_eq!(subs["data"]["subscriptions_list"][0]["subject"], "x.y");
    assert_eq!(request(&mut sys, &of("INFO"), "")["data"]["client_connections"], 1);
    assert_eq!(request(&mut sys, &of("STATZ"), "")["data"]["account_statz"][0]["conns"], 1);
    let conns = request(&mut sys, &of("CONNS"), "");
    assert_eq!((&conns["acc"], &conns["conns"]), (&json!("APP"), &json!(1)));
    // Whoever has left is still told of, with what it listened to.
    let mut left = server.connected(&login("app"));
    left.send("SUB left.> q 9\r\n");
    left.flush("");
    drop(left);
    let asked = r#"{"state":1,"acc":"APP","subscriptions_detail":true,"filter_subject":"left.x"}"#;
    support::eventually("it has left", || {
        let closed = request(&mut sys, "$SYS.REQ.SERVER.PING.CONNZ", asked);
        let list = &closed["data"]["connections"][0]["subscriptions_list_detail"];
        (&list[0]["subject"], &list[0]["qgroup"]) == (&json!("left.>"), &json!("q"))
    });
    let all = request(&mut sys, "$SYS.REQ.ACCOUNT.PING.STATZ", "");
    assert_eq!(all["data"]["account_statz"].as_array().unwrap().len(), 2);
    // Others see their own account, and nothing else.
    app.send("SUB answers 1\r\n");
    let own = request(&mut app, "$SYS.REQ.SERVER.PING.CONNZ", "");
    assert_eq!(own["data"]["num_connections"], 1);
    assert_eq!(
        request(&mut app, "$SYS.REQ.ACCOUNT.PING.STATZ", "")["data"]["account_statz"][0]["acc"],
        "APP"
    );
    app.send("PUB $SYS.REQ.SERVER.PING answers 0\r\n\r\n");
    assert!(app.line().starts_with("HMSG answers 1 "));
    assert_eq!(app.line(), "NATS/1.0 503");
    // Unless they import it.
    let mut ops = server.connected(&login("ops"));
    ops.send("SUB answers 1\r\n");
    assert_eq!(request(&mut ops, "ops.SERVER.PING.VARZ", "")["data"]["server_name"], "n1");
}

#[test]
fn actions() {
    let server = server();
    let id = server.server.id.clone();
    let mut sys = sys(&server);
    let mut app = server.connected(&login("app"));
    let cid = request(&mut sys, "$SYS.REQ.ACCOUNT.APP.CONNZ", "")["data"]["connections"][0]["cid"]
        .clone();
    let body = json!({ "cid": cid }).to_string();
    let told = request(&mut sys, &format!("$SYS.REQ.SERVER.{id}.LDM"), &body);
    assert!(told.get("error").is_none(), "{told}");
    assert!(app.line().contains("\"ldm\":true"));
    let kicked = request(&mut sys, &format!("$SYS.REQ.SERVER.{id}.KICK"), &body);
    assert!(kicked.get("error").is_none(), "{kicked}");
    app.expect_close("");
    let again = request(&mut sys, &format!("$SYS.REQ.SERVER.{id}.KICK"), "{\"cid\":12345}");
    assert_eq!(again["error"]["description"], "no such client or leafnode id");
    let reload = request(&mut sys, &format!("$SYS.REQ.SERVER.{id}.RELOAD"), "");
    assert_eq!(reload["error"]["code"], 500, "there is no file to read again");
}

#[test]
fn events() {
    let server = server();
    let mut sys = sys(&server);
    sys.send("SUB $SYS.ACCOUNT.APP.> 2\r\nSUB $SYS.SERVER.*.CLIENT.AUTH.ERR 3\r\n");
    sys.flush("");
    let app = server.connected(&login("app"));
    let event = answer(&mut sys, "MSG $SYS.ACCOUNT.APP.CONNECT 2 ");
    assert_eq!(event["type"], "io.nats.server.advisory.v1.client_connect");
    assert_eq!((&event["client"]["user"], &event["client"]["acc"]), (&json!("app"), &json!("APP")));
    let event = answer(&mut sys, "MSG $SYS.ACCOUNT.APP.SERVER.CONNS 2 ");
    assert_eq!(event["conns"], 1);
    drop(app);
    let event = answer(&mut sys, "MSG $SYS.ACCOUNT.APP.DISCONNECT 2 ");
    assert_eq!(
        (&event["reason"], &event["client"]["user"]),
        (&json!("Client Closed"), &json!("app"))
    );
    assert_eq!(answer(&mut sys, "MSG $SYS.ACCOUNT.APP.SERVER.CONNS 2 ")["conns"], 0);
    let mut stranger = server.peer();
    stranger.send("CONNECT {\"user\":\"app\",\"pass\":\"no\"}\r\n");
    stranger.expect_close("-ERR 'Authorization Violation'\r\n");
    let event = answer(&mut sys, "MSG $SYS.SERVER.");
    assert_eq!(event["reason"], "Authentication Failure");
}

#[test]
fn the_callers_account_is_the_only_one_that_is_told_of() {
    let server = TestServer::start(configured(
        "accounts {
           PING { users: [{user: eve, password: pw}] }
           APP { users: [{user: app, password: pw}] }
         }",
    ));
    let _app = server.connected(&login("app"));
    let mut eve = server.connected(&login("eve"));
    eve.send("SUB answers 1\r\n");
    eve.flush("");
    let bodies = [
        r#"{"account":"APP"}"#,
        r#"{"account_name":"APP"}"#,
        r#"{"account":"APP","account_name":"APP","acc":"APP","accounts":["APP"]}"#,
        r#"{"accounts":["APP"],"filter_subject":">","auth":true}"#,
        r#"{"auth":true,"state":2}"#,
        "",
    ];
    for body in bodies {
        for kind in ["ACCOUNT.PING.CONNZ", "SERVER.PING.CONNZ"] {
            let found = request(&mut eve, &format!("$SYS.REQ.{kind}"), body);
            let conns = found["data"]["connections"].as_array().unwrap();
            assert!(!conns.is_empty(), "{found}");
            assert!(!found.to_string().contains("APP"), "{kind} {body}: {found}");
            assert_eq!(found["data"]["total"], 1, "{kind} {body}: {found}");
        }
        let found = request(&mut eve, "$SYS.REQ.ACCOUNT.PING.STATZ", body);
        assert_eq!(found["data"]["account_statz"][0]["acc"], "PING", "{body}: {found}");
        assert!(!found.to_string().contains("APP"), "{body}: {found}");
    }
}

#[test]
fn a_request_about_one_account_is_not_answered_with_another() {
    let server = server();
    let _app = server.connected(&login("app"));
    let mut sys = sys(&server);
    for what in ["CONNZ", "SUBSZ", "LEAFZ", "JSZ", "INFO", "STATZ"] {
        let body = r#"{"account":"APP","account_name":"APP","acc":"APP","accounts":["APP"]}"#;
        let found = request(&mut sys, &format!("$SYS.REQ.ACCOUNT.SYS.{what}"), body);
        assert!(!found.to_string().contains("APP"), "{what}: {found}");
    }
}
