//! Calls against a scripted server, and acknowledgements.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::thread::{self, JoinHandle};

use super::*;
use crate::ConnectOptions;

/// A client of a server that greets with `info`, and of each request answers as many as `unheard` with 503 before it
/// answers `{}`. The thread ends with how many requests came.
fn server(info: &'static str, unheard: usize) -> (Client, JoinHandle<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let options = ConnectOptions::new(&listener.local_addr().unwrap().to_string()).unwrap();
    let served = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.write_all(format!("INFO {info}\r\n").as_bytes()).unwrap();
        let (mut sid, mut requests) = (String::new(), 0);
        for line in BufReader::new(socket.try_clone().unwrap()).lines().map_while(Result::ok) {
            let words: Vec<&str> = line.split(' ').collect();
            let answer = match words[..] {
                ["PING"] => "PONG\r\n".to_owned(),
                ["SUB", _, id] => {
                    id.clone_into(&mut sid);
                    continue;
                }
                ["PUB", _, reply, _] => {
                    requests += 1;
                    match requests <= unheard {
                        true => format!("HMSG {reply} {sid} 16 16\r\nNATS/1.0 503\r\n\r\n\r\n"),
                        false => format!("MSG {reply} {sid} 2\r\n{{}}\r\n"),
                    }
                }
                _ => continue,
            };
            socket.write_all(answer.as_bytes()).unwrap();
        }
        requests
    });
    (Client::connect(&options).unwrap(), served)
}

const WITH_JETSTREAM: &str = r#"{"headers":true,"jetstream":true}"#;

#[test]
fn a_call_that_nobody_hears_for_a_moment_is_repeated() {
    let (mut client, served) = server(WITH_JETSTREAM, 2);
    api(&mut client, "INFO", &Value::Null, Duration::from_secs(60)).unwrap();
    drop(client);
    assert_eq!(served.join().unwrap(), 3);
}

#[test]
fn where_jetstream_is_off_is_told_at_once_and_where_it_is_on_in_time() {
    let (mut client, served) = server(r#"{"headers":true}"#, 1);
    let off = api(&mut client, "INFO", &Value::Null, Duration::from_secs(60));
    assert!(matches!(off, Err(JsError::NotEnabled)), "{off:?}");
    drop(client);
    assert_eq!(served.join().unwrap(), 1);

    let (mut client, served) = server(WITH_JETSTREAM, usize::MAX);
    let unheard = api(&mut client, "INFO", &Value::Null, Duration::from_secs(60));
    assert!(matches!(unheard, Err(JsError::Unheard(_))), "{unheard:?}");
    drop(client);
    let requests = served.join().unwrap();
    let most = (UNHEARD_LIMIT.as_millis() / UNHEARD_PAUSE.as_millis()) as usize;
    assert!((2..=most).contains(&requests), "{requests}");
}

#[test]
fn acks() {
    let check = |body: &str, expected: PubAck| {
        assert_eq!(PubAck::parse(body.as_bytes(), "S"), expected, "{body}");
    };
    check(r#"{"stream":"S","seq":42}"#, PubAck::Stored(42));
    check(r#"{"stream":"S", "seq":42}"#, PubAck::Stored(42));
    check(r#"{"stream":"S","seq":7,"domain":"d"}"#, PubAck::Stored(7));
    check(r#"{"stream":"S","seq":7,"duplicate":true}"#, PubAck::Duplicate(7));
    check(r#"{"stream":"T","seq":7}"#, PubAck::WrongStream("T".into()));
    check(
        r#"{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"stream":"S","seq":0}"#,
        PubAck::Failed("maximum messages exceeded (10077)".into()),
    );
    assert!(matches!(PubAck::parse(b"x", "S"), PubAck::Failed(_)));
}
