//! Websocket clients, frame by frame: the handshake, masks, fragments, compression, control frames,
//! close codes, cookies, and the bounds.

mod support;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};
use nuthatch_server::options::{ConnectionType, Options, Secret, User, WebsocketOptions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use support::{TestServer, eventually};

const MASK: [u8; 4] = [0x12, 0x34, 0x56, 0x78];
const TEXT: u8 = 0x81;
const BINARY: u8 = 0x82;
const CLOSE: u8 = 0x88;
const PING: u8 = 0x89;
const PONG: u8 = 0x8a;
const COMPRESSED: u8 = 0x40;

fn server(websocket: WebsocketOptions) -> TestServer {
    TestServer::start(Options { websocket: Some(websocket), ..Options::default() })
}

fn plain() -> TestServer {
    server(WebsocketOptions::default())
}

/// A peer that speaks frames.
struct Peer {
    stream: TcpStream,
    /// Protocol text that has come out of frames and is not looked at yet.
    text: Vec<u8>,
}

/// A frame that came: its first byte and what it carries.
type Frame = (u8, Vec<u8>);

impl Peer {
    /// Shakes hands; returns the response's head too.
    fn open(server: &TestServer, headers: &str) -> (Self, String) {
        let stream = TcpStream::connect(server.websocket.unwrap()).unwrap();
        stream.set_read_timeout(Some(support::TIMEOUT)).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut peer = Self { stream, text: Vec::new() };
        peer.raw(
            format!(
                "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                 Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\
                 {headers}\r\n"
            )
            .as_bytes(),
        );
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            peer.stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        (peer, String::from_utf8(head).unwrap())
    }

    /// A peer that has read INFO and got its PONG.
    fn connected(server: &TestServer, headers: &str, connect: &str) -> Self {
        let (mut peer, head) = Self::open(server, headers);
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        let info = peer.line();
        assert!(info.starts_with("INFO {"), "{info}");
        peer.say(&format!("CONNECT {connect}\r\nPING\r\n"));
        assert_eq!(peer.line(), "PONG");
        peer
    }

    fn client(server: &TestServer) -> Self {
        Self::connected(server, "", support::CLIENT)
    }

    fn raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![first];
        match payload.len() {
            len @ 0..=125 => out.push(0x80 | len as u8),
            len @ 126..=0xffff => {
                out.push(0x80 | 126);
                out.extend_from_slice(&(len as u16).to_be_bytes());
            }
            len => {
                out.push(0x80 | 127);
                out.extend_from_slice(&(len as u64).to_be_bytes());
            }
        }
        out.extend_from_slice(&MASK);
        out.extend(payload.iter().enumerate().map(|(at, byte)| byte ^ MASK[at % 4]));
        out
    }

    fn say(&mut self, text: &str) {
        self.raw(&Self::frame(BINARY, text.as_bytes()));
    }

    /// The next frame that is not the server's ping of a NATS client: its first one comes after two
    /// seconds, which on a busy machine is in the middle of any test.
    fn receive(&mut self) -> Frame {
        loop {
            let frame = self.try_receive().expect("a frame");
            if frame != (BINARY, b"PING\r\n".to_vec()) {
                return frame;
            }
        }
    }

    fn try_receive(&mut self) -> Option<Frame> {
        let mut head = [0; 2];
        self.stream.read_exact(&mut head).ok()?;
        assert_eq!(head[1] & 0x80, 0, "servers do not mask");
        let len = match head[1] {
            126 => {
                let mut len = [0; 2];
                self.stream.read_exact(&mut len).unwrap();
                usize::from(u16::from_be_bytes(len))
            }
            127 => {
                let mut len = [0; 8];
                self.stream.read_exact(&mut len).unwrap();
                u64::from_be_bytes(len) as usize
            }
            len => usize::from(len),
        };
        let mut payload = vec![0; len];
        self.stream.read_exact(&mut payload).unwrap();
        Some((head[0], payload))
    }

    /// The next line of protocol text.
    fn line(&mut self) -> String {
        loop {
            if let Some(end) = self.text.windows(2).position(|pair| pair == b"\r\n") {
                let rest = self.text.split_off(end + 2);
                let line = std::mem::replace(&mut self.text, rest);
                if line != b"PING\r\n" {
                    return String::from_utf8(line[..end].to_vec()).unwrap();
                }
                continue;
            }
            match self.receive() {
                (BINARY, payload) => self.text.extend_from_slice(&payload),
                (first, payload) if first == BINARY | COMPRESSED => {
                    self.text.extend_from_slice(&inflate(&payload));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// The code of the close that must come next, after protocol text.
    fn close_code(&mut self) -> u16 {
        loop {
            match self.receive() {
                (CLOSE, payload) => return u16::from_be_bytes([payload[0], payload[1]]),
                (BINARY, payload) => self.text.extend_from_slice(&payload),
                other => panic!("{other:?}"),
            }
        }
    }
}

fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 100);
    let mut compress = Compress::new(Compression::default(), false);
    compress.compress_vec(bytes, &mut out, FlushCompress::Sync).unwrap();
    assert!(out.ends_with(&[0, 0, 0xff, 0xff]));
    out.truncate(out.len() - 4);
    out
}

fn inflate(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 << 20);
    let packed = [bytes, &[0, 0, 0xff, 0xff]].concat();
    let mut decompress = Decompress::new(false);
    decompress.decompress_vec(&packed, &mut out, FlushDecompress::None).unwrap();
    out
}

#[test]
fn text_goes_both_ways() {
    let server = plain();
    let mut peer = Peer::client(&server);
    peer.say("SUB a 1\r\nPUB a 2\r\nhi\r\n");
    assert_eq!((peer.line(), peer.line()), ("MSG a 1 2".to_owned(), "hi".to_owned()));
    // Text frames are as good as binary ones, and a TCP client hears the same.
    let mut tcp = server.client();
    tcp.send("SUB b 9\r\n");
    tcp.flush("");
    peer.raw(&Peer::frame(TEXT, b"PUB b 3\r\nyes\r\n"));
    tcp.expect("MSG b 9 3\r\nyes\r\n");
    let shown: Vec<_> = server.server.connections.open().iter().map(|c| c.to_string()).collect();
    assert!(shown[0].ends_with(" - wid:1") && shown[1].ends_with(" - cid:2"), "{shown:?}");
}

#[test]
fn every_info_is_about_websocket() {
    let advertise = Some("ws.example:443".to_owned());
    let server = server(WebsocketOptions { advertise, ..WebsocketOptions::default() });
    let (mut peer, _) = Peer::open(&server, "");
    let shown = "\"host\":\"ws.example\",\"port\":443";
    let info = peer.line();
    assert!(info.contains(shown) && !info.contains("tls_required"), "{info}");
    peer.say("CONNECT {\"verbose\":false,\"protocol\":1}\r\nPING\r\n");
    assert_eq!(peer.line(), "PONG");
    let info = peer.line();
    assert!(info.contains("\"connect_info\":true") && info.contains(shown), "{info}");
    assert!(!server.peer_info().contains("ws.example"), "TCP clients have other addresses");
}

#[test]
fn any_cut_of_frames_and_reads() {
    let server = plain();
    let mut peer = Peer::client(&server);
    let text = "SUB a 1\r\nPUB a 10\r\n0123456789\r\nPING\r\n";
    // In fragments of every length, with a ping between them, byte by byte.
    for size in [1, 2, 3, 7, 64] {
        let chunks: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
        for (at, chunk) in chunks.iter().enumerate() {
            let opcode = if at == 0 { 2 } else { 0 };
            let is_last = if at + 1 == chunks.len() { 0x80 } else { 0 };
            let frame = Peer::frame(opcode | is_last, chunk);
            for byte in frame {
                peer.raw(&[byte]);
            }
        }
        for expected in ["MSG a 1 10", "0123456789", "PONG"] {
            assert_eq!(peer.line(), expected, "in pieces of {size}");
        }
        peer.say("UNSUB 1\r\n");
    }
    // Empty frames are nothing.
    peer.raw(&Peer::frame(0x02, b""));
    peer.raw(&Peer::frame(0x80, b""));
    peer.say("PING\r\n");
    assert_eq!(peer.line(), "PONG");
}

#[test]
fn large_messages_cross_frames() {
    let server = plain();
    let mut peer = Peer::client(&server);
    let body: String = (0..900_000_u64).map(|n| char::from(b'a' + (n * n % 23) as u8)).collect();
    peer.say(&format!("SUB big 1\r\nPUB big {}\r\n{body}\r\n", body.len()));
    assert_eq!(peer.line(), format!("MSG big 1 {}", body.len()));
    assert!(peer.line() == body);
}

#[test]
fn compressed_messages() {
    let options = WebsocketOptions { compression: true, ..WebsocketOptions::default() };
    let server = server(options);
    let offer = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n";
    let (_, head) = Peer::open(&server, offer);
    assert!(head.contains("permessage-deflate; server_no_context_takeover"), "{head}");
    let mut peer = Peer::connected(&server, offer, support::CLIENT);
    let body = "nuthatch ".repeat(20_000);
    let text = format!("SUB a 1\r\nPUB a {}\r\n{body}\r\n", body.len());
    let packed = deflate(text.as_bytes());
    assert!(packed.len() < text.len() / 10);
    peer.raw(&Peer::frame(BINARY | COMPRESSED, &packed));
    assert_eq!(peer.line(), format!("MSG a 1 {}", body.len()));
    assert!(peer.line() == body);
    // In fragments; small ones need no compression.
    let packed = deflate(b"PING\r\nPING\r\n");
    let (one, two) = packed.split_at(5);
    peer.raw(&Peer::frame(0x02 | COMPRESSED, one));
    peer.raw(&Peer::frame(0x80, two));
    assert_eq!((peer.line(), peer.line()), ("PONG".to_owned(), "PONG".to_owned()));
    peer.say("PING\r\n");
    assert_eq!(peer.line(), "PONG");
}

#[test]
fn a_bomb_is_no_more_than_its_messages() {
    let options = WebsocketOptions { compression: true, ..WebsocketOptions::default() };
    let server = server(options);
    let offer = "Sec-WebSocket-Extensions: permessage-deflate\r\n";
    let mut peer = Peer::connected(&server, offer, support::CLIENT);
    // 300 MB of nothing behind a message that may have 1 MB.
    let mut bomb = Vec::new();
    let mut compress = Compress::new(Compression::default(), false);
    let zeros = vec![0; 1 << 20];
    bomb.reserve(1 << 20);
    compress.compress_vec(b"PUB a 1048576\r\n", &mut bomb, FlushCompress::None).unwrap();
    for _ in 0..300 {
        compress.compress_vec(&zeros, &mut bomb, FlushCompress::None).unwrap();
    }
    compress.compress_vec(&[], &mut bomb, FlushCompress::Sync).unwrap();
    peer.raw(&Peer::frame(BINARY | COMPRESSED, &bomb));
    // It may be cut off before it has sent everything, and then not hear why.
    eventually("it is closed", || server.server.connections.is_empty());
    let closed = server.server.connections.closed();
    assert_eq!(closed[0].reason.text(), "Parse Error");
    assert!(closed[0].conn.received.get().bytes <= 1 << 20, "one message and no more");
}

#[test]
fn control_frames() {
    let server = plain();
    let mut peer = Peer::client(&server);
    peer.raw(&Peer::frame(PING, b"are you there"));
    assert_eq!(peer.receive(), (PONG, b"are you there".to_vec()));
    // Between the fragments of a message, and one that nobody asked for.
    peer.raw(&Peer::frame(0x02, b"PI"));
    peer.raw(&Peer::frame(PING, b""));
    assert_eq!(peer.receive(), (PONG, Vec::new()));
    peer.raw(&Peer::frame(PONG, b"what"));
    peer.raw(&Peer::frame(0x80, b"NG\r\n"));
    assert_eq!(peer.line(), "PONG");
    peer.raw(&Peer::frame(CLOSE, &[&4001_u16.to_be_bytes()[..], b"enough"].concat()));
    assert_eq!(peer.close_code(), 4001, "the same code goes back");
    assert_eq!(peer.try_receive(), None);
    eventually("it is gone", || server.server.connections.is_empty());
    let closed = server.server.connections.closed();
    assert_eq!(closed[0].reason.text(), "Client Closed");
}

#[test]
fn frames_against_the_rules() {
    let server = plain();
    let unmasked = [BINARY, 6, b'P', b'I', b'N', b'G', b'\r', b'\n'].to_vec();
    let cases = [
        ("unmasked", unmasked),
        ("reserved bit", Peer::frame(BINARY | 0x20, b"x")),
        ("compression nobody agreed on", Peer::frame(BINARY | COMPRESSED, b"x")),
        ("an unknown opcode", Peer::frame(0x83, b"x")),
        ("a continuation of nothing", Peer::frame(0x80, b"x")),
        ("a fragmented ping", Peer::frame(0x09, b"x")),
        ("a long ping", Peer::frame(PING, &[b'x'; 126])),
        ("half a close code", Peer::frame(CLOSE, b"x")),
        ("a message in a message", [Peer::frame(0x02, b"P"), Peer::frame(BINARY, b"x")].concat()),
    ];
    for (what, bytes) in cases {
        let mut peer = Peer::client(&server);
        peer.raw(&bytes);
        assert_eq!(peer.close_code(), 1002, "{what}");
        assert_eq!(peer.try_receive(), None, "{what}");
    }
    let mut peer = Peer::client(&server);
    let mut endless = vec![BINARY, 0xff];
    endless.extend_from_slice(&(1_u64 << 40).to_be_bytes());
    endless.extend_from_slice(&MASK);
    peer.raw(&endless);
    assert_eq!(peer.close_code(), 1009);
}

#[test]
fn closes_say_why() {
    let mut options =
        Options { websocket: Some(WebsocketOptions::default()), ..Options::default() };
    options.auth.token = Some(Secret::new("right".to_owned()));
    let server = TestServer::start(options);
    let (mut peer, _) = Peer::open(&server, "");
    assert!(peer.line().contains("\"auth_required\":true"));
    peer.say("CONNECT {\"auth_token\":\"wrong\"}\r\n");
    assert_eq!(peer.close_code(), 1008);
    assert_eq!(peer.text, b"-ERR 'Authorization Violation'\r\n");
    let mut peer = Peer::connected(&server, "", r#"{"verbose":false,"auth_token":"right"}"#);
    peer.say("PUB a 99999999\r\n");
    assert_eq!(peer.close_code(), 1009);
    assert_eq!(peer.text, b"-ERR 'Maximum Payload Violation'\r\n");
}

#[test]
fn users_may_be_for_websocket_only_and_cookies_name_them() {
    let user = |name: &str, kinds: &[ConnectionType]| User {
        name: name.to_owned(),
        password: Some(Secret::new("pw".to_owned())),
        permissions: None,
        allowed_connection_types: kinds.iter().copied().collect(),
        proxy_required: false,
    };
    let websocket = WebsocketOptions {
        user_cookie: Some("u".to_owned()),
        password_cookie: Some("p".to_owned()),
        no_auth_user: Some("guest".to_owned()),
        ..WebsocketOptions::default()
    };
    let mut options = Options { websocket: Some(websocket), ..Options::default() };
    options.auth.users = vec![
        user("web", &[ConnectionType::Websocket]),
        user("tcp", &[ConnectionType::Standard]),
        user("guest", &[]),
    ];
    let server = TestServer::start(options);
    let who = |cid: usize| server.server.connections.open()[cid].session().user.clone();
    let cookie = "Cookie: u=web; p=pw\r\n";
    let _one = Peer::connected(&server, cookie, r#"{"verbose":false}"#);
    assert_eq!(who(0), "web");
    let _two = Peer::connected(&server, "", r#"{"verbose":false}"#);
    assert_eq!(who(1), "guest");
    let (mut refused, _) = Peer::open(&server, "");
    refused.line();
    refused.say("CONNECT {\"user\":\"tcp\",\"pass\":\"pw\"}\r\n");
    assert_eq!(refused.close_code(), 1008);
    let mut tcp = server.peer();
    tcp.send("CONNECT {\"user\":\"web\",\"pass\":\"pw\"}\r\n");
    tcp.expect_close("-ERR 'Authorization Violation'\r\n");
}

/// Websocket clients may have a user or a token of their own, whatever others have.
#[test]
fn one_user_of_their_own() {
    let text = |own: &str, rest: &str| {
        support::configured(&format!(
            "websocket {{ port: -1, no_tls: true, authorization {{ {own} }} }}\n{rest}"
        ))
    };
    let others = "authorization { user: tcp, password: pw }";
    let right = r#"{"verbose":false,"user":"web","pass":"pw"}"#;
    for (own, rest, open) in
        [("user: web, password: pw", others, false), ("user: web, password: pw", "", true)]
    {
        let server = TestServer::start(text(own, rest));
        let (mut peer, _) = Peer::open(&server, "");
        assert!(peer.line().contains("\"auth_required\":true"));
        for wrong in [r#"{"user":"tcp","pass":"pw"}"#, r#"{"user":"web","pass":"no"}"#, "{}"] {
            let (mut refused, _) = Peer::open(&server, "");
            refused.line();
            refused.say(&format!("CONNECT {wrong}\r\n"));
            assert_eq!(refused.close_code(), 1008, "{wrong}");
        }
        let (mut mute, _) = Peer::open(&server, "");
        mute.line();
        mute.say("PING\r\n");
        assert_eq!(mute.close_code(), 1008);
        Peer::connected(&server, "", right);
        if open {
            assert!(!server.peer_info().contains("auth_required"));
            server.client().flush("");
        } else {
            server.connected(r#"{"verbose":false,"user":"tcp","pass":"pw"}"#).flush("");
            let mut refused = server.peer();
            refused.send("CONNECT {\"user\":\"web\",\"pass\":\"pw\"}\r\n");
            refused.expect_close("-ERR 'Authorization Violation'\r\n");
        }
    }
    let server = TestServer::start(text("token: t", others));
    Peer::connected(&server, "", r#"{"verbose":false,"auth_token":"t"}"#);
    for (own, rest, why) in [
        ("user: web, token: t", "", "cannot have both"),
        ("password: p", "", "needs 'user'"),
        (
            "user: web",
            "authorization { users: [ {user: a, password: b} ] }",
            "not compatible with presence",
        ),
    ] {
        let text =
            format!("websocket {{ port: -1, no_tls: true, authorization {{ {own} }} }}\n{rest}");
        let refused = support::refused_configuration(&text);
        assert!(refused.contains(why), "{refused}, not {why}");
    }
}

#[test]
fn handshakes_that_fail() {
    let options = |handshake_timeout| WebsocketOptions {
        same_origin: true,
        handshake_timeout,
        ..WebsocketOptions::default()
    };
    let hasty = server(options(Duration::from_millis(100)));
    let server = server(options(support::TIMEOUT));
    let (_, head) = Peer::open(&server, "Origin: http://evil.example\r\n");
    assert!(head.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{head}");
    let (_, head) = Peer::open(&server, "Origin: http://localhost\r\n");
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    let ask_at = |server: &TestServer, request: &[u8]| {
        let mut stream = TcpStream::connect(server.websocket.unwrap()).unwrap();
        stream.set_read_timeout(Some(support::TIMEOUT)).unwrap();
        stream.write_all(request).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let ask = |request: &[u8]| ask_at(&server, request);
    assert!(ask(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").starts_with("HTTP/1.1 400 Bad Request\r\n"));
    let endless = [b"GET / HTTP/1.1\r\nX: ".to_vec(), vec![b'x'; 20_000]].concat();
    assert!(ask(&endless).starts_with("HTTP/1.1 431 "));
    assert_eq!(ask_at(&hasty, b"GET / HT"), "", "too slow");
}

#[test]
fn without_masks_if_the_client_asks() {
    let server = plain();
    let (mut peer, head) = Peer::open(&server, "Nats-No-Masking: true\r\n");
    assert!(head.contains("\r\nNats-No-Masking: true\r\n"), "{head}");
    peer.line();
    peer.raw(&[BINARY, 6, b'P', b'I', b'N', b'G', b'\r', b'\n']);
    // Before its CONNECT a client is taken to be verbose.
    assert_eq!(peer.line(), "PONG");
}

#[test]
fn a_slow_reader_is_closed_and_holds_nobody_up() {
    let mut options =
        Options { websocket: Some(WebsocketOptions::default()), ..Options::default() };
    options.limits.max_pending_bytes = 2 << 20;
    options.limits.write_deadline = Duration::from_secs(1);
    let server = TestServer::start(options);
    let mut slow = Peer::client(&server);
    slow.say("SUB a 1\r\nPING\r\n");
    assert_eq!(slow.line(), "PONG");
    let mut publisher = server.client();
    let message = format!("PUB a 100000\r\n{}\r\n", "x".repeat(100_000));
    for _ in 0..200 {
        publisher.send(&message);
    }
    publisher.flush("");
    eventually("it is closed", || server.server.connections.open().len() == 1);
}
