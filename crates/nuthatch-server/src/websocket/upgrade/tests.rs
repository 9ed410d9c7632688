//! Requests that are granted and requests that are not.

use super::*;
use crate::options::Origin;

const REQUEST: &str = "GET /any HTTP/1.1\r\nHost: here:80\r\nUpgrade: websocket\r\n\
    Connection: keep-alive, Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    Sec-WebSocket-Version: 13\r\n";

fn examine_with(more: &str, options: &WebsocketOptions) -> Result<(Upgrade, String), Refusal> {
    let (upgrade, response) =
        examine(format!("{REQUEST}{more}\r\n").as_bytes(), options, false)?.unwrap();
    Ok((upgrade, String::from_utf8(response).unwrap()))
}

#[track_caller]
fn refused(request: &str, status: u16, why: &str) {
    let refusal = examine(request.as_bytes(), &WebsocketOptions::default(), false).unwrap_err();
    assert_eq!((refusal.status, refusal.why.as_str()), (status, why));
}

#[test]
fn the_key_of_the_standard() {
    let (upgrade, response) = examine_with("", &WebsocketOptions::default()).unwrap();
    assert!(response.contains("\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"));
    assert_eq!(upgrade, Upgrade { masked: true, ..Upgrade::default() });
    let half = &REQUEST.as_bytes()[..50];
    assert_eq!(examine(half, &WebsocketOptions::default(), false), Ok(None));
}

#[test]
fn what_is_agreed() {
    let options = WebsocketOptions {
        compression: true,
        user_cookie: Some("u".to_owned()),
        token_cookie: Some("t".to_owned()),
        headers: vec![("X-Served-By".to_owned(), "us".to_owned())],
        ..WebsocketOptions::default()
    };
    let more = "Sec-WebSocket-Extensions: x, permessage-deflate; client_max_window_bits\r\n\
        Nats-No-Masking: true\r\nX-Forwarded-For: 192.0.2.7\r\nCookie: a=b; u=me; t=\"tok=en\"\r\n";
    let (upgrade, response) = examine_with(more, &options).unwrap();
    assert!(upgrade.compress && !upgrade.masked);
    assert_eq!(upgrade.forwarded_for, "192.0.2.7".parse().ok());
    assert_eq!(upgrade.cookies.user.as_deref(), Some("me"));
    assert_eq!(upgrade.cookies.token.as_deref(), Some("tok=en"));
    assert_eq!(upgrade.cookies.password, None);
    assert!(response.contains("Sec-WebSocket-Extensions: permessage-deflate; server_no"));
    assert!(response.contains("\r\nX-Served-By: us\r\n"));
    let (plain, _) = examine_with(more, &WebsocketOptions::default()).unwrap();
    assert!(!plain.compress);
}

#[test]
fn what_is_refused() {
    let without = |line: &str| {
        let kept: Vec<_> = REQUEST.split("\r\n").filter(|l| !l.starts_with(line)).collect();
        kept.join("\r\n") + "\r\n"
    };
    refused(&without("Host"), 400, "'Host' missing in request");
    refused(&without("Upgrade"), 400, "invalid value for header 'Upgrade'");
    refused(&without("Connection"), 400, "invalid value for header 'Connection'");
    refused(&without("Sec-WebSocket-Key"), 400, "key missing");
    refused(&without("Sec-WebSocket-Version"), 400, "invalid version");
    refused(&(REQUEST.replace("dGhl", "dGh") + "\r\n"), 400, "invalid websocket key");
    refused(&(REQUEST.replace("GET", "POST") + "\r\n"), 405, "request method must be GET");
    refused(&(REQUEST.replace("/any", "/mqtt") + "\r\n"), 404, "/mqtt is not served here");
    let early = REQUEST.to_owned() + "\r\nPING\r\n";
    refused(&early, 400, "client sent data before handshake is complete");
}

#[test]
fn origins() {
    let same = WebsocketOptions { same_origin: true, ..WebsocketOptions::default() };
    let listed = WebsocketOptions {
        allowed_origins: vec![Origin::parse("https://good.example").unwrap()],
        ..WebsocketOptions::default()
    };
    let allows = |origin: &str, options| examine_with(&format!("Origin: {origin}\r\n"), options);
    assert!(examine_with("", &same).is_ok(), "no browser, no origin");
    assert!(allows("http://here", &same).is_ok());
    assert!(allows("http://HERE:80", &same).is_ok());
    for other in ["https://here", "http://here:81", "http://there", "null"] {
        assert_eq!(allows(other, &same).unwrap_err().status, 403, "{other}");
    }
    assert!(allows("https://good.example:443", &listed).is_ok());
    for other in ["http://good.example", "https://good.example:444", "https://evil.example"] {
        assert_eq!(allows(other, &listed).unwrap_err().status, 403, "{other}");
    }
}

#[test]
fn an_origin_that_is_unreadable_or_comes_twice_is_refused() {
    let same = WebsocketOptions { same_origin: true, ..WebsocketOptions::default() };
    let status = |more: &[u8]| {
        let request = [REQUEST.as_bytes(), more, b"\r\n"].concat();
        examine(&request, &same, false).map(drop).map_err(|refusal| refusal.status)
    };
    assert_eq!(status(b"Origin: http://here\r\n"), Ok(()));
    for twice in [
        "Origin: http://here\r\nOrigin: http://evil\r\n",
        "origin: http://here\r\nORIGIN: http://here\r\n",
        "Sec-WebSocket-Origin: http://here\r\nSec-WebSocket-Origin: http://evil\r\n",
        "Origin: http://evil\r\nHost: evil\r\n",
    ] {
        assert_eq!(status(twice.as_bytes()), Err(403), "{twice}");
    }
    assert_eq!(status(b"Origin: http://evil.example/\xff\r\n"), Err(403));
    assert_eq!(status(b"Sec-WebSocket-Origin: \xff\r\n"), Err(403));
}
