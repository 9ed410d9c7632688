//! Websocket clients: frames that inflate, origins that lie, cookies.

use crate::rig::{HASHED_PASSWORD, Rig, scaled};
use crate::wire::Raw;
use crate::{Attack, Outcome};
use flate2::{Compress, Compression, FlushCompress};
use std::time::Duration;

const MASK: [u8; 4] = [0x12, 0x34, 0x56, 0x78];
const BINARY: u8 = 0x82;
const COMPRESSED: u8 = 0x40;
/// Bytes that a frame inflates to, in parts of a MiB.
const BOMB_MIB: usize = 262;
/// What waits for a client that does not read (`max_pending`), and what it is cut into.
const PENDING_BYTES: u64 = 96 << 20;

/// Longest wait for a byte of a handshake's answer.
const HANDSHAKE: Duration = Duration::from_secs(10);

pub const ATTACKS: &[Attack] = &[
    Attack::new("websocket-bomb-ping", |rig| bomb(rig, b"PING\r\n")).costs(PENDING_BYTES),
    Attack::new("websocket-bomb-pong", |rig| bomb(rig, b"PONG\r\n")).costs(PENDING_BYTES),
    Attack::new("websocket-origin", origins),
    Attack::new("websocket-cookies", cookies),
];

/// A connection after the handshake's request; its answer's head.
pub fn handshake(address: &str, headers: &[u8]) -> (Raw, String) {
    let mut raw = Raw::open(address);
    let mut request = format!(
        "GET / HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    )
    .into_bytes();
    request.extend_from_slice(headers);
    request.extend_from_slice(b"\r\n");
    raw.send(&request);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let (byte, closed) = read_byte(&mut raw);
        head.extend(byte);
        if closed {
            break;
        }
    }
    (raw, String::from_utf8_lossy(&head).into_owned())
}

fn read_byte(raw: &mut Raw) -> (Option<u8>, bool) {
    use std::io::Read as _;
    let mut byte = [0];
    raw.socket.set_read_timeout(Some(HANDSHAKE)).expect("sets");
    match raw.socket.read(&mut byte) {
        Ok(1) => (Some(byte[0]), false),
        _ => (None, true),
    }
}

/// A frame as clients send them.
pub fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
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

/// A client of the attacker over frames that may be compressed.
pub fn client(rig: &Rig) -> Raw {
    let deflate = b"Sec-WebSocket-Extensions: permessage-deflate; client_no_context_takeover; \
                    server_no_context_takeover\r\n";
    let (mut raw, head) = handshake(&rig.websocket(), deflate);
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    let connect = "CONNECT {\"user\":\"attacker\",\"pass\":\"attacker\",\"verbose\":false}\r\n";
    raw.send(&frame(BINARY, connect.as_bytes()));
    raw
}

/// Deflated blocks, each of a MiB of the same words and whole by itself.
fn deflated(word: &[u8], mib: usize) -> Vec<u8> {
    let text: Vec<u8> =
        word.iter().copied().cycle().take((1 << 20) / word.len() * word.len()).collect();
    let mut deflate = Compress::new(Compression::best(), false);
    let mut block = Vec::with_capacity(64 << 10);
    deflate.compress_vec(&text, &mut block, FlushCompress::Full).expect("compresses");
    let mut all = block.repeat(mib);
    // The receiver adds the end of the last block.
    assert!(all.ends_with(&[0, 0, 0xff, 0xff]));
    all.truncate(all.len() - 4);
    all
}

/// One frame of words that are answered, or not. The connection may be closed for it, or live on.
fn bomb(rig: &Rig, word: &[u8]) -> Outcome {
    let payload = deflated(word, scaled(BOMB_MIB, BOMB_MIB / 8));
    let mut raw = client(rig);
    raw.send(&frame(BINARY | COMPRESSED, &payload));
    let is_closed = raw.is_closed_within(Duration::from_secs(2));
    // The canary has felt it by now; whoever still inflates goes on after this connection's end.
    let told = if is_closed { "closed" } else { "read on" };
    Ok(format!("{} bytes: {told}", payload.len()))
}

/// Only pages of this address are let in, and who says something else as well is not.
fn origins(rig: &Rig) -> Outcome {
    let address = rig.websocket();
    let own = format!("Origin: http://{address}\r\n");
    let twice = format!("{own}Origin: http://evil.example\r\n");
    let again = format!("Origin: http://evil.example\r\n{own}");
    let cases: [(&str, &[u8], bool); 6] = [
        ("none", b"", true),
        ("its own", own.as_bytes(), true),
        ("another", b"Origin: http://evil.example\r\n", false),
        ("twice", twice.as_bytes(), false),
        ("twice, its own last", again.as_bytes(), false),
        ("not UTF-8", b"Origin: http://\xff\xfe.example\r\n", false),
    ];
    for (name, headers, is_allowed) in cases {
        let (_raw, head) = handshake(&address, headers);
        if head.starts_with("HTTP/1.1 101 ") != is_allowed {
            return Err(format!("origin {name}: {:?}", head.lines().next().unwrap_or_default()));
        }
    }
    Ok("refused".to_owned())
}

/// Whether cookies log in; `None`: the handshake was refused.
fn cookies_log_in(rig: &Rig, cookies: &[u8]) -> Option<bool> {
    let mut headers = b"Cookie: ".to_vec();
    headers.extend_from_slice(cookies);
    headers.extend_from_slice(b"\r\n");
    let (mut raw, head) = handshake(&rig.websocket(), &headers);
    if !head.starts_with("HTTP/1.1 101 ") {
        return None;
    }
    raw.send(&frame(BINARY, b"CONNECT {\"verbose\":false}\r\nPING\r\n"));
    Some(raw.exchange(b"", b"PONG\r\n", Duration::from_secs(5)).ends_with(b"PONG\r\n"))
}

fn cookies(rig: &Rig) -> Outcome {
    let hashed = format!("user=hashed; pass={HASHED_PASSWORD}");
    if cookies_log_in(rig, hashed.as_bytes()) != Some(true) {
        return Err("the right cookies do not log in".to_owned());
    }
    let many = "a=b; ".repeat(scaled(200_000, 20_000));
    let wrong: [&[u8]; 8] = [
        b"user=attacker",
        b"user=attacker; pass=",
        b"user=attacker; pass=wrong",
        b"user=\xff\xfe; pass=\xff",
        b"user=attacker; user=canary; pass=wrong; pass=attackerx",
        b"=; ;;; user; pass",
        b"user=attacker\x00; pass=attacker\x01",
        many.as_bytes(),
    ];
    for cookies in wrong {
        if cookies_log_in(rig, cookies) == Some(true) {
            return Err(format!("logged in: {}", cookies[..cookies.len().min(60)].escape_ascii()));
        }
    }
    Ok("refused".to_owned())
}
