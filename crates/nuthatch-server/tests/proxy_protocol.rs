//! The PROXY protocol in front of NATS: whom a proxy names is the client, in INFO, in monitoring, for permissions by
//! address; what begins as a header and is none ends the connection, and whoever connects directly needs no header.

mod support;

use serde_json::Value;
use std::net::TcpStream;
use support::{CLIENT, Peer, TestServer, configured, login};

const V1: &[u8] = b"PROXY TCP4 192.0.2.1 10.0.0.1 54321 4222\r\n";
const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x01\x0a\0\0\x01\xd4\x31\x10\x7e";
/// A proxy that looks whether the server is well.
const V2_LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";

fn server() -> TestServer {
    TestServer::start(configured("proxy_protocol: true"))
}

/// Addresses of the open connections, as monitoring shows them.
fn addresses(server: &TestServer) -> Vec<String> {
    let open = server.server.connections.open();
    open.iter().map(|conn| conn.remote.get().to_string()).collect()
}

/// Sends this in front, in the given parts, and logs in.
fn connected(server: &TestServer, parts: &[&[u8]]) -> Peer {
    let mut peer = Peer::new(TcpStream::connect(server.address).unwrap());
    let info = peer.line();
    assert!(info.starts_with("INFO {") && !info.contains("client_ip"), "{info}");
    for part in parts {
        peer.send(part);
    }
    peer.send(format!("CONNECT {CLIENT}\r\nPING\r\n"));
    peer.expect("PONG\r\n");
    peer
}

#[test]
fn a_header_names_the_client() {
    let server = server();
    for parts in
        [vec![V1], vec![V2], vec![&V2[..3], &V2[3..20], &V2[20..]], vec![&V1[..2], &V1[2..]]]
    {
        let mut peer = connected(&server, &parts);
        assert_eq!(addresses(&server), ["192.0.2.1:54321"]);
        // Nothing of what follows the header is lost.
        peer.send("SUB a 1\r\nPUB a 2\r\nhi\r\n");
        peer.flush("MSG a 1 2\r\nhi\r\n");
        drop(peer);
        support::eventually("it is gone", || server.server.connections.is_empty());
    }
}

#[test]
fn a_header_may_be_missing_or_name_nobody() {
    let server = server();
    for before in [&b""[..], b"PROXY UNKNOWN\r\n", V2_LOCAL] {
        let peer = connected(&server, &[before]);
        assert!(addresses(&server)[0].starts_with("127.0.0.1:"), "{:?}", addresses(&server));
        drop(peer);
        support::eventually("it is gone", || server.server.connections.is_empty());
    }
}

#[test]
fn what_is_no_header_after_all_ends_the_connection() {
    let server = server();
    let long = [b"PROXY TCP4 ", &[b'1'; 200][..]].concat();
    for bad in [&b"PROXY TCP4 nobody 10.0.0.1 1 2\r\n"[..], &with_version_3(), &long] {
        let mut peer = Peer::new(TcpStream::connect(server.address).unwrap());
        peer.line();
        let _ = peer.try_send(bad);
        peer.expect_close("");
        let closed = server.server.connections.closed();
        assert_eq!(closed.last().unwrap().reason.text(), "Protocol Violation");
    }
    // A client that goes before it has said anything leaves nothing.
    drop(server.peer_info());
    support::eventually("they are gone", || server.server.connections.is_empty());
}

/// The header with a version that there is not.
fn with_version_3() -> Vec<u8> {
    let mut header = V2.to_vec();
    header[12] = 0x31;
    header
}

#[test]
fn documents_show_the_client_and_not_the_proxy() {
    let server = TestServer::start(configured(
        "proxy_protocol: true, system_account: SYS
         accounts { SYS { users: [{user: sys, password: pw}] }, APP { users: [{user: app, password: pw}] } }",
    ));
    let mut sys = server.connected(&login("sys"));
    let mut app = Peer::new(TcpStream::connect(server.address).unwrap());
    app.line();
    app.send(V1);
    app.send(format!("CONNECT {}\r\nPING\r\n", login("app")));
    app.expect("PONG\r\n");
    let answer = sys.ask("$SYS.REQ.SERVER.PING.CONNZ", r#"{"acc":"APP"}"#);
    let found: Value = serde_json::from_str(&answer).unwrap();
    let connection = &found["data"]["connections"][0];
    assert_eq!(
        (&connection["ip"], &connection["port"]),
        (&"192.0.2.1".into(), &54321.into()),
        "{found}"
    );
}

/// Without the option a header is what any other line is that is no part of the protocol.
#[test]
fn without_the_option_there_are_no_headers() {
    let server = TestServer::plain();
    let mut peer = server.peer();
    peer.send(V1);
    peer.expect_close("-ERR 'Unknown Protocol Operation'\r\n");
}
