//! A client that sends everything at once sees it take effect in the order in which it was sent.

mod support;

use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use support::{Server, TIMEOUT, TempDir};

/// Connections that do the same at the same time, each on a stream of its own.
const CONNECTIONS: usize = 4;
/// How often each does it.
const ROUNDS: usize = 10;

/// Requests of one write, with the answers to them by their number.
struct Pipeline {
    /// Start of the subjects that answers go to.
    inbox: String,
    text: String,
    requests: usize,
}

impl Pipeline {
    fn new(name: &str) -> Self {
        Self { inbox: format!("in.{name}."), text: String::new(), requests: 0 }
    }

    fn request(&mut self, subject: &str, body: &str) -> usize {
        let (inbox, number, length) = (&self.inbox, self.requests, body.len());
        self.text += &format!("PUB {subject} {inbox}{number} {length}\r\n{body}\r\n");
        self.requests += 1;
        self.requests - 1
    }

    /// Sends all of it in one write and returns the body of each answer.
    fn run(self, stream: &mut TcpStream) -> Vec<Value> {
        stream.write_all(self.text.as_bytes()).expect("send");
        let mut answers = vec![Value::Null; self.requests];
        let mut buffer = String::new();
        let mut left = self.requests;
        while left > 0 {
            let Some((number, body)) = take_message(&self.inbox, &mut buffer) else {
                let mut chunk = [0; 64 * 1024];
                let count = stream.read(&mut chunk).expect("an answer in time");
                assert!(count > 0, "closed after {buffer:?}");
                buffer += std::str::from_utf8(&chunk[..count]).expect("text");
                continue;
            };
            answers[number] = serde_json::from_str(&body).expect("JSON");
            left -= 1;
        }
        answers
    }
}

/// Takes `MSG <inbox><number> 1 <length>` with its body off the front.
fn take_message(inbox: &str, buffer: &mut String) -> Option<(usize, String)> {
    let (line, rest) = buffer.split_once("\r\n")?;
    let answer = line.strip_prefix("MSG ").and_then(|line| line.strip_prefix(inbox));
    let Some(line) = answer else {
        assert!(!line.starts_with("-ERR"), "{line}");
        *buffer = rest.to_owned();
        return take_message(inbox, buffer);
    };
    let mut words = line.split(' ').map(|word| word.parse::<usize>().expect("a number"));
    let (number, length) = (words.next()?, words.nth(1)?);
    if rest.len() < length + 2 {
        return None;
    }
    let body = rest[..length].to_owned();
    *buffer = rest[length + 2..].to_owned();
    Some((number, body))
}

fn connect(server: &Server, name: &str) -> TcpStream {
    let address = server.url.trim_start_matches("nats://");
    let mut stream = TcpStream::connect(address).expect("connect");
    stream.set_read_timeout(Some(TIMEOUT)).expect("set a timeout");
    let hello = format!("CONNECT {{\"verbose\":false}}\r\nSUB in.{name}.* 1\r\n");
    stream.write_all(hello.as_bytes()).expect("greet");
    stream
}

/// Create, publish, look, purge, publish, look, take a subject away, delete and create again: all in
/// one write.
fn life_of_a_stream(stream: &mut TcpStream, name: &str) {
    let mut all = Pipeline::new(name);
    let config = format!(r#"{{"name":"{name}","subjects":["{name}.*"]}}"#);
    let create = all.request(&format!("$JS.API.STREAM.CREATE.{name}"), &config);
    let consumer = format!(
        r#"{{"stream_name":"{name}","config":{{"durable_name":"C","ack_policy":"explicit"}}}}"#
    );
    let durable = all.request(&format!("$JS.API.CONSUMER.DURABLE.CREATE.{name}.C"), &consumer);
    let first: Vec<_> =
        (0..100).map(|n| all.request(&format!("{name}.a"), &n.to_string())).collect();
    let full = all.request(&format!("$JS.API.STREAM.INFO.{name}"), "");
    let purge = all.request(&format!("$JS.API.STREAM.PURGE.{name}"), "");
    let after_purge = all.request(&format!("{name}.b"), "after");
    let purged = all.request(&format!("$JS.API.STREAM.INFO.{name}"), "");
    let delete_one = all.request(&format!("$JS.API.STREAM.MSG.DELETE.{name}"), r#"{"seq":101}"#);
    let delete = all.request(&format!("$JS.API.STREAM.DELETE.{name}"), "");
    let again = all.request(&format!("$JS.API.STREAM.CREATE.{name}"), &config);
    let anew = all.request(&format!("{name}.a"), "anew");
    let gone = all.request(&format!("$JS.API.CONSUMER.INFO.{name}.C"), "");
    let end = all.request(&format!("$JS.API.STREAM.DELETE.{name}"), "");
    let answers = all.run(stream);
    for at in [create, durable, full, purge, purged, delete_one, delete, again, end] {
        assert!(answers[at].get("error").is_none(), "{}", answers[at]);
    }
    for (at, number) in first.into_iter().zip(1_u64..) {
        assert_eq!(answers[at]["seq"], number, "{}", answers[at]);
    }
    // A question is answered when all that came before it is durable: it may see a little more.
    assert!(answers[full]["state"]["last_seq"].as_u64() >= Some(100), "{}", answers[full]);
    assert_eq!(answers[purge]["purged"], 100);
    assert_eq!(answers[after_purge]["seq"], 101);
    let purged = &answers[purged]["state"];
    assert!(purged["first_seq"].as_u64() >= Some(101), "{purged}");
    assert_eq!(answers[anew]["seq"], 1);
    assert_eq!(answers[gone]["error"]["err_code"], 10014);
}

#[test]
fn one_write_takes_effect_in_its_order() {
    let dir = TempDir::new("pipeline");
    let server = Server::start(dir.path(), &[]);
    std::thread::scope(|scope| {
        for number in 0..CONNECTIONS {
            let name = format!("S{number}");
            let mut stream = connect(&server, &name);
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    life_of_a_stream(&mut stream, &name);
                }
            });
        }
    });
}
