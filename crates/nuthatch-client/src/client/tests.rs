//! The handshake against a scripted server.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::thread;

use super::*;

const SEED: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";

/// Connects with these options to a server that greets with `info` and answers `answer`; returns
/// what `CONNECT` said, and what became of it.
fn shake_hands(
    info: &str,
    answer: &'static str,
    change: impl FnOnce(&mut ConnectOptions),
) -> (serde_json::Value, Result<Client, ConnectError>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut options = ConnectOptions::new(&listener.local_addr().unwrap().to_string()).unwrap();
    change(&mut options);
    let greeting = format!("INFO {info}\r\n");
    let server = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.write_all(greeting.as_bytes()).unwrap();
        let mut line = String::new();
        let mut reader = BufReader::new(socket.try_clone().unwrap());
        reader.read_line(&mut line).unwrap();
        let _ = socket.write_all(answer.as_bytes());
        (line, socket)
    });
    let client = Client::connect(&options);
    let (line, _socket) = server.join().unwrap();
    let json = line.strip_prefix("CONNECT ").unwrap_or("null");
    (serde_json::from_str(json).unwrap(), client)
}

fn identity(jwt: Option<&str>) -> Option<Arc<Identity>> {
    let key = crate::nkey::Nkey::from_text(SEED).unwrap();
    Some(Arc::new(Identity { key, jwt: jwt.map(str::to_owned) }))
}

#[test]
fn nkeys_and_credentials_are_proved_by_the_nonce() {
    let nonce = r#"{"nonce":"abc","auth_required":true}"#;
    let (said, client) =
        shake_hands(nonce, "PONG\r\n", |options| options.identity = identity(None));
    client.unwrap();
    let signature = crate::nkey::Nkey::from_text(SEED).unwrap().sign("abc");
    assert_eq!(said["sig"], signature.as_str());
    assert!(said["nkey"].as_str().unwrap().starts_with("UDXU"), "{said}");
    assert!(said["jwt"].is_null());

    let with_jwt = |options: &mut ConnectOptions| options.identity = identity(Some("e.y.J"));
    let (said, client) = shake_hands(nonce, "PONG\r\n", with_jwt);
    client.unwrap();
    assert_eq!((&said["jwt"], &said["sig"]), (&"e.y.J".into(), &signature.into()));
    assert!(said["nkey"].is_null());
}

#[test]
fn refusals_are_told_apart() {
    let denied = "-ERR 'Authorization Violation'\r\n";
    let (_, client) = shake_hands("{}", denied, |_| {});
    assert!(matches!(client, Err(ConnectError::Denied { .. })), "{client:?}");
    let (_, client) = shake_hands("{}", "-ERR 'Maximum Connections Exceeded'\r\n", |_| {});
    assert!(matches!(client, Err(ConnectError::Handshake { .. })), "{client:?}");
}

#[test]
fn own_inboxes() {
    let (_, client) = shake_hands("{}", "PONG\r\n", |options| {
        options.inbox_prefix = "my.inbox".into();
    });
    assert!(client.unwrap().inbox().starts_with("my.inbox."));
}

#[test]
fn an_error_does_not_leave_its_pong_to_the_next_round_trip() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let options = ConnectOptions::new(&listener.local_addr().unwrap().to_string()).unwrap();
    let server = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.write_all(b"INFO {}\r\n").unwrap();
        for line in BufReader::new(socket.try_clone().unwrap()).lines().map_while(Result::ok) {
            let answer = match &*line {
                "PUB denied 0" => "-ERR 'Permissions Violation for Publish to \"denied\"'\r\n",
                "PING" => "PONG\r\n",
                "PUB last 0" => return,
                _ => continue,
            };
            socket.write_all(answer.as_bytes()).unwrap();
        }
    });
    let mut client = Client::connect(&options).unwrap();
    let mut publish = |subject: &[u8]| {
        client.writer.publish(subject, b"", b"", b"").unwrap();
        client.round_trip(Duration::from_secs(60))
    };
    for _ in 0..2 {
        assert!(matches!(publish(b"denied"), Err(TransportError::Server(_))));
    }
    publish(b"allowed").unwrap();
    assert!(matches!(publish(b"denied"), Err(TransportError::Server(_))));
    // The connection ends.
    assert!(!matches!(publish(b"last"), Ok(()) | Err(TransportError::Server(_))));
    server.join().unwrap();
}
