//! Filling a server: streams, subjects, consumers, connections; and checking that they are there.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use super::pipeline::{Publishes, publish, requests};
use crate::harness::{BenchError, Target};
use nuthatch_client::Client;
use nuthatch_client::js;

/// The stream that every server has and that publishes are measured on.
const BASE: &str = "BASE";
const BASE_SUBJECT: &str = "base";

/// Messages of each of many streams.
const MSGS_PER_STREAM: u64 = 10;

/// Streams that share the consumers.
const CONSUMER_STREAMS: u64 = 10;

/// The greeting of a client that only listens, before its own subscriptions.
const HELLO: &str = "CONNECT {\"verbose\":false,\"pedantic\":false,\"protocol\":1}\r\n";

/// Content of a server beside the stream that is measured.
#[derive(Debug, Clone, Copy)]
pub(super) enum Preload {
    Nothing,
    /// So many streams, each with messages.
    Streams(u64),
    /// One stream with so many subjects and one message for each.
    Subjects(u64),
    /// So many idle durable consumers.
    Consumers(u64),
    /// So many connections with two subscriptions each.
    Connections(u64),
}

impl Preload {
    pub(super) fn title(&self) -> String {
        match self {
            Self::Nothing => "one stream".into(),
            Self::Streams(count) => format!("{count} streams with {MSGS_PER_STREAM} messages each"),
            Self::Subjects(count) => format!("{count} subjects in one stream, one message each"),
            Self::Consumers(count) => format!("{count} idle durable consumers"),
            Self::Connections(count) => format!("{count} connections, two subscriptions each"),
        }
    }

    /// What is published to while the server holds this.
    pub(super) fn publishes(&self) -> Vec<Publishes> {
        let base = Publishes { prefix: BASE_SUBJECT, subjects: 0, what: "the one stream".into() };
        let among = |prefix, subjects, what: &str| {
            vec![base.clone(), Publishes { prefix, subjects, what: what.into() }]
        };
        match *self {
            Self::Nothing | Self::Connections(_) => vec![base],
            Self::Streams(count) => among("s.", count, "all streams in turn"),
            Self::Subjects(count) => among("k.", count, "all subjects in turn"),
            Self::Consumers(_) => among("c.0.", 1, "a stream with a tenth of the consumers"),
        }
    }

    /// Brings it about. The connections must be kept as long as they are to count.
    pub(super) fn fill(&self, target: &Target) -> Result<Vec<TcpStream>, BenchError> {
        let mut client = target.connect()?;
        match *self {
            Self::Nothing => {}
            Self::Streams(count) => streams(&mut client, count, target.timeout)?,
            Self::Subjects(count) => {
                let config = json!({"name": "K", "subjects": ["k.*"], "max_msgs_per_subject": 1});
                js::api(&mut client, "STREAM.CREATE.K", &config, target.timeout)?;
                let all = Publishes { prefix: "k.", subjects: count, what: String::new() };
                publish(&mut client, &all, count, target.timeout)?;
            }
            Self::Consumers(count) => consumers(&mut client, count, target.timeout)?,
            Self::Connections(count) => return connections(target, count),
        }
        Ok(Vec::new())
    }

    /// Whether all is there.
    pub(super) fn check(&self, target: &Target) -> Result<(), BenchError> {
        let mut client = target.connect()?;
        let mut ask = |what: &str| js::api(&mut client, what, &Value::Null, target.timeout);
        let (found, expected) = match *self {
            Self::Nothing | Self::Connections(_) => return Ok(()),
            Self::Streams(count) => (ask("INFO")?["streams"].as_u64(), count + 1),
            Self::Subjects(count) => (ask("STREAM.INFO.K")?["state"]["messages"].as_u64(), count),
            Self::Consumers(count) => (ask("INFO")?["consumers"].as_u64(), count),
        };
        if found == Some(expected) {
            return Ok(());
        }
        let text = format!("{}: {found:?} of {expected} are there", self.title());
        Err(BenchError::Failed(text))
    }
}

/// Makes the stream that is measured on.
pub(super) fn base_stream(client: &mut Client, timeout: Duration) -> Result<(), BenchError> {
    let config = json!({"name": BASE, "subjects": [BASE_SUBJECT]});
    js::api(client, &format!("STREAM.CREATE.{BASE}"), &config, timeout)?;
    Ok(())
}

fn streams(client: &mut Client, count: u64, timeout: Duration) -> Result<(), BenchError> {
    requests(client, count, timeout, |number, subject, body| {
        subject.extend_from_slice(format!("$JS.API.STREAM.CREATE.S{number}").as_bytes());
        let config = format!("{{\"name\":\"S{number}\",\"subjects\":[\"s.{number}\"]}}");
        body.extend_from_slice(config.as_bytes());
    })?;
    let all = Publishes { prefix: "s.", subjects: count, what: String::new() };
    publish(client, &all, count * MSGS_PER_STREAM, timeout)
}

fn consumers(client: &mut Client, count: u64, timeout: Duration) -> Result<(), BenchError> {
    for number in 0..CONSUMER_STREAMS {
        let (name, subjects) = (format!("C{number}"), [format!("c.{number}.*")]);
        let config = json!({"name": name, "subjects": subjects, "max_consumers": count});
        js::api(client, &format!("STREAM.CREATE.C{number}"), &config, timeout)?;
    }
    requests(client, count, timeout, |number, subject, body| {
        let stream = number % CONSUMER_STREAMS;
        let call = format!("$JS.API.CONSUMER.CREATE.C{stream}.D{number}");
        subject.extend_from_slice(call.as_bytes());
        let config = format!(
            "{{\"stream_name\":\"C{stream}\",\"action\":\"create\",\"config\":{{\"name\":\"D{number}\",\
             \"durable_name\":\"D{number}\",\"ack_policy\":\"explicit\"}}}}"
        );
        body.extend_from_slice(config.as_bytes());
    })
}

fn connections(target: &Target, count: u64) -> Result<Vec<TcpStream>, BenchError> {
    let server = target.options.servers.first();
    let address = server.map(|url| (url.host.clone(), url.port));
    let Some(address) = address else {
        return Err(BenchError::Usage("no server to connect to".into()));
    };
    (0..count)
        .map(|number| {
            listener(&address, number).map_err(|source| BenchError::File {
                what: format!("connection {number} of {count}; is `ulimit -n` large enough?"),
                source,
            })
        })
        .collect()
}

/// A connection that listens on a subject and an inbox of its own.
fn listener(address: &(String, u16), number: u64) -> std::io::Result<TcpStream> {
    const PONG: &[u8] = b"PONG\r\n";
    let mut stream = TcpStream::connect((address.0.as_str(), address.1))?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let text = format!("{HELLO}SUB idle.{number} 1\r\nSUB _INBOX.idle{number}.* 2\r\nPING\r\n");
    stream.write_all(text.as_bytes())?;
    let mut seen = Vec::new();
    let mut chunk = [0; 2048];
    while !seen.windows(PONG.len()).any(|part| part == PONG) {
        match stream.read(&mut chunk)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            count => seen.extend_from_slice(&chunk[..count]),
        }
    }
    Ok(stream)
}

/// Lets this process, and the servers that it starts, open as many files as the system allows.
pub(crate) fn raise_file_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls only read or write the structure, which lives through them. Where they
    // fail the limit stays as it is, and a connection too many says so.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}
