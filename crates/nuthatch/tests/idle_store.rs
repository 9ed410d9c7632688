//! A server with many streams and consumers that nobody uses asks its bucket for nothing but
//! whether it still is the owner of its log. Counted on the way to a real S3 API.

#[path = "../../nuthatch-object/tests/common/proxy.rs"]
mod proxy;
#[path = "../../nuthatch-object/tests/common/s3.rs"]
mod store;
mod support;

use nuthatch_client::Client;
use proxy::{Faults, Proxy};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use store::{S3, SECRET};
use support::{Server, TempDir, api_ok};

/// Streams, each with a consumer; `NUTHATCH_IDLE_STREAMS=10000` asks for more, which takes minutes.
const STREAMS: u64 = 2_000;

/// Requests on their way at a time.
const WINDOW: u64 = 500;

/// How long nothing must be asked for.
const QUIET: Duration = Duration::from_secs(6);

/// An owner looks this often.
const OWNER_CHECK: Duration = Duration::from_secs(5);

/// How long a server may take until nothing is left to do: frames are vouched for, and what nobody
/// awaited is stored, some seconds after the last change.
const SETTLE_LIMIT: Duration = Duration::from_secs(180);

/// How long an answer may take on a busy machine.
const ANSWER_LIMIT: Duration = Duration::from_secs(120);

#[test]
fn a_server_with_many_idle_streams_and_consumers_only_looks_whether_it_is_the_owner() {
    let wished = std::env::var("NUTHATCH_IDLE_STREAMS").ok();
    let streams = wished.map_or(STREAMS, |count| count.parse().expect("a number of streams"));
    let s3 = S3::start("idle-server");
    let proxy = Proxy::start(s3.address, Faults::default());
    let machine = TempDir::new("idle-server-machine");
    let env = store::settings(proxy.address, SECRET);
    let flags = ["--store", "s3://logs/idle"];
    let server = Server::start_with(machine.path(), &flags, &env);
    let mut client = server.connect();
    many(&mut client, streams, |n| {
        let config = format!(r#"{{"name":"S{n}","subjects":["s.{n}.*"]}}"#);
        (format!("$JS.API.STREAM.CREATE.S{n}"), config)
    });
    many(&mut client, streams, |n| {
        let config = format!(
            r#"{{"stream_name":"S{n}","config":{{"durable_name":"C","ack_policy":"explicit"}}}}"#
        );
        (format!("$JS.API.CONSUMER.DURABLE.CREATE.S{n}.C"), config)
    });
    let info = api_ok(&mut client, "INFO", &serde_json::Value::Null);
    assert_eq!((&info["streams"], &info["consumers"]), (&streams.into(), &streams.into()));
    let (asked, took) = requests_when_quiet(&proxy);
    let looks = asked.get("HEAD fence").copied().unwrap_or(0);
    let due = took.as_secs() / OWNER_CHECK.as_secs() + 1;
    assert!(looks <= due, "{looks} looks at the ownership in {took:?}: {asked:?}");
}

/// Waits for a stretch without any request but looks at the ownership; what was asked for in it.
fn requests_when_quiet(proxy: &Proxy) -> (BTreeMap<String, u64>, Duration) {
    let deadline = Instant::now() + SETTLE_LIMIT;
    loop {
        let (started, before) = (Instant::now(), proxy.seen());
        std::thread::sleep(QUIET);
        let mut asked = proxy.seen();
        let took = started.elapsed();
        for (kind, count) in &mut asked {
            *count -= before.get(kind).copied().unwrap_or(0);
        }
        asked.retain(|_, count| *count > 0);
        if asked.keys().all(|kind| kind == "HEAD fence") {
            return (asked, took);
        }
        assert!(Instant::now() < deadline, "an idle server still asks for {asked:?}");
    }
}

/// Makes many API calls with a window of them on their way; all must succeed.
fn many(client: &mut Client, count: u64, make: impl Fn(u64) -> (String, String)) {
    let inbox = format!("{}.many", client.inbox());
    let sid = client.subscribe(&inbox, "").expect("subscribes");
    let (mut sent, mut answered) = (0, 0);
    while answered < count {
        if sent < count && sent - answered <= WINDOW / 2 {
            while sent < count && sent - answered < WINDOW {
                let (subject, body) = make(sent);
                let (subject, reply) = (subject.as_bytes(), inbox.as_bytes());
                client.writer.publish(subject, reply, b"", body.as_bytes()).expect("publishes");
                sent += 1;
            }
            client.writer.flush().expect("flushes");
        }
        let answer = client.next_message(Instant::now() + ANSWER_LIMIT).expect("an answer");
        let text = String::from_utf8_lossy(&answer.payload);
        assert!(!text.contains("\"error\""), "{text}");
        answered += 1;
    }
    client.writer.unsubscribe(sid).expect("unsubscribes");
}
