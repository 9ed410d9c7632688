//! Authentication and permissions, byte by byte.

mod support;

use nuthatch_server::options::{
    AuthOptions, Options, Permissions, ResponsePermission, Secret, SubjectPermission, User,
};
use std::collections::BTreeSet;
use std::time::Duration;
use support::{TestServer, configured};

fn user(name: &str, permissions: Option<Permissions>) -> User {
    User {
        name: name.to_owned(),
        password: Some(Secret::new("pw")),
        permissions,
        allowed_connection_types: BTreeSet::new(),
        proxy_required: false,
    }
}

fn subjects(allow: &[&str], deny: &[&str]) -> SubjectPermission {
    let owned = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
    SubjectPermission { allow: (!allow.is_empty()).then(|| owned(allow)), deny: owned(deny) }
}

fn with(auth: AuthOptions) -> TestServer {
    TestServer::start(Options { auth, ..Options::default() })
}

fn login(name: &str) -> String {
    format!("{{\"verbose\":false,\"headers\":true,\"user\":\"{name}\",\"pass\":\"pw\"}}")
}

#[test]
fn the_wrong_password() {
    let server = with(AuthOptions {
        user: Some("a".to_owned()),
        password: Some(Secret::new("pw")),
        ..AuthOptions::default()
    });
    server.connected(&login("a"));
    let mut peer = server.peer();
    peer.send("CONNECT {\"user\":\"a\",\"pass\":\"no\"}\r\n");
    peer.expect_close("-ERR 'Authorization Violation'\r\n");
    let mut peer = server.peer();
    peer.send("PING\r\n");
    peer.expect_close("-ERR 'Authorization Violation'\r\n");
}

#[test]
fn a_hashed_token() {
    let hash = bcrypt::hash("s3cr3t", 4).unwrap();
    let server = with(AuthOptions { token: Some(Secret::new(hash)), ..AuthOptions::default() });
    server.connected("{\"verbose\":false,\"auth_token\":\"s3cr3t\"}");
    let mut peer = server.peer();
    peer.send("CONNECT {\"auth_token\":\"wrong\"}\r\n");
    peer.expect_close("-ERR 'Authorization Violation'\r\n");
}

#[test]
fn silence_is_not_enough() {
    let server = with(AuthOptions {
        token: Some(Secret::new("x")),
        timeout: Duration::from_millis(50),
        ..AuthOptions::default()
    });
    let mut peer = server.peer();
    peer.expect_close("-ERR 'Authentication Timeout'\r\n");
}

#[test]
fn guests_become_no_auth_user() {
    let server = with(AuthOptions {
        users: vec![user(
            "guest",
            Some(Permissions { publish: Some(subjects(&["g"], &[])), ..Permissions::default() }),
        )],
        no_auth_user: Some("guest".to_owned()),
        ..AuthOptions::default()
    });
    let mut peer = server.connected("{\"verbose\":false}");
    peer.send("PUB other 0\r\n\r\n");
    peer.flush("-ERR 'Permissions Violation for Publish to \"other\"'\r\n");
    let mut peer = server.peer();
    peer.send("SUB g 1\r\nPUB g 0\r\n\r\n");
    peer.expect("+OK\r\n+OK\r\nMSG g 1 0\r\n\r\n");
}

#[test]
fn permissions() {
    let permissions = Permissions {
        publish: Some(subjects(&["a.>"], &["a.no"])),
        subscribe: Some(subjects(&["a.>", "q w"], &["a.secret"])),
        allow_responses: None,
    };
    let server = with(AuthOptions {
        users: vec![user("u", Some(permissions)), user("root", None)],
        ..AuthOptions::default()
    });
    let mut peer = server.connected(&login("u"));
    peer.send("PUB b 0\r\n\r\nPUB a.no 0\r\n\r\nPUB a.yes 0\r\n\r\n");
    peer.flush(
        "-ERR 'Permissions Violation for Publish to \"b\"'\r\n\
         -ERR 'Permissions Violation for Publish to \"a.no\"'\r\n",
    );
    // Clients are pedantic until they say otherwise, and hear of both.
    peer.send("PUB > 0\r\n\r\n");
    peer.flush(
        "-ERR 'Invalid Publish Subject'\r\n\
         -ERR 'Permissions Violation for Publish to \">\"'\r\n",
    );
    peer.send("SUB b 1\r\nSUB q 2\r\nSUB q x 3\r\nSUB q w 4\r\nSUB a.* 5\r\n");
    peer.flush(
        "-ERR 'Permissions Violation for Subscription to \"b\"'\r\n\
         -ERR 'Permissions Violation for Subscription to \"q\"'\r\n\
         -ERR 'Permissions Violation for Subscription to \"q\" using queue \"x\"'\r\n",
    );
    let mut root = server.connected(&login("root"));
    root.send("PUB a.secret 0\r\n\r\nPUB a.open 0\r\n\r\nPUB q 0\r\n\r\n");
    root.flush("");
    peer.flush("MSG a.open 5 0\r\n\r\nMSG q 4 0\r\n\r\n");
}

#[test]
fn responses_may_be_sent_once() {
    let permissions = Permissions {
        publish: Some(SubjectPermission { allow: Some(Vec::new()), deny: Vec::new() }),
        subscribe: None,
        allow_responses: Some(ResponsePermission::default()),
    };
    let server = with(AuthOptions {
        users: vec![user("service", Some(permissions)), user("root", None)],
        ..AuthOptions::default()
    });
    let (mut service, mut root) =
        (server.connected(&login("service")), server.connected(&login("root")));
    service.send("SUB s 1\r\n");
    service.flush("");
    root.send("SUB r 1\r\nPUB s r 0\r\n\r\n");
    root.flush("");
    service.flush("MSG s 1 r 0\r\n\r\n");
    service.send("PUB r 2\r\nok\r\nPUB r 2\r\nno\r\n");
    service.flush("-ERR 'Permissions Violation for Publish to \"r\"'\r\n");
    root.flush("MSG r 1 2\r\nok\r\n");
}

#[test]
fn a_reload_of_permissions_keeps_the_connection_and_ends_what_is_forbidden() {
    let users = |permissions: &str| {
        let text = "authorization {
           users: [{user: u, password: pw, permissions: {PERMISSIONS}}, {user: v, password: pw}]
         }";
        configured(&text.replace("{PERMISSIONS}", permissions))
    };
    let server = TestServer::start(users("{publish: '>', subscribe: '>'}"));
    let (mut u, mut v) = (server.connected(&login("u")), server.connected(&login("v")));
    u.send("SUB a.* 1\r\nSUB b 2\r\nSUB c g 3\r\nSUB d 4\r\nUNSUB 4 3\r\n");
    u.flush("");
    let publish = |v: &mut support::Peer| {
        v.send("PUB a.x 0\r\n\r\nPUB a.y 0\r\n\r\nPUB b 0\r\n\r\nPUB c 0\r\n\r\nPUB d 0\r\n\r\n");
        v.flush("");
    };
    publish(&mut v);
    u.flush(
        "MSG a.x 1 0\r\n\r\nMSG a.y 1 0\r\n\r\nMSG b 2 0\r\n\r\nMSG c 3 0\r\n\r\nMSG d 4 0\r\n\r\n",
    );
    let change = |permissions: &str| {
        let old = server.server.auth();
        server.server.set_options(users(permissions));
        server.server.recheck(&old);
    };
    change("{publish: {deny: q}, subscribe: {allow: ['a.*', d], deny: [a.y, b]}}");
    let mut told = [u.line(), u.line()];
    told.sort();
    assert_eq!(
        told,
        [
            "-ERR 'Permissions Violation for Subscription to \"b\" (sid \"2\")'",
            "-ERR 'Permissions Violation for Subscription to \"c\" using queue \"g\" (sid \"3\")'"
        ]
    );
    publish(&mut v);
    u.flush("MSG a.x 1 0\r\n\r\nMSG d 4 0\r\n\r\n");
    u.send("PUB q 0\r\n\r\nSUB b 5\r\n");
    u.flush(
        "-ERR 'Permissions Violation for Publish to \"q\"'\r\n\
         -ERR 'Permissions Violation for Subscription to \"b\"'\r\n",
    );
    // What is allowed again has to be asked for again; counts of deliveries go on.
    change("{publish: '>', subscribe: '>'}");
    publish(&mut v);
    publish(&mut v);
    u.flush(
        "MSG a.x 1 0\r\n\r\nMSG a.y 1 0\r\n\r\nMSG d 4 0\r\n\r\n\
         MSG a.x 1 0\r\n\r\nMSG a.y 1 0\r\n\r\n",
    );
    u.send("PUB q 0\r\n\r\n");
    u.flush("");
}
