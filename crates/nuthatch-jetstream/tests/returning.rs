//! Clients that go and come back.

mod support;

use nuthatch_server::options::Options;
use support::with_jetstream;

#[test]
fn a_waiting_pull_serves_a_client_that_is_back_on_the_same_inbox() {
    let server = with_jetstream(Options::default());
    let mut other = server.client();
    let created = other.ask("$JS.API.STREAM.CREATE.S", r#"{"name":"S","subjects":["s"]}"#);
    assert!(created.contains("did_create"), "{created}");
    let consumer = r#"{"stream_name":"S","config":{"durable_name":"c","ack_policy":"explicit"}}"#;
    let created = other.ask("$JS.API.CONSUMER.DURABLE.CREATE.S.c", consumer);
    assert!(created.contains("\"durable_name\":\"c\""), "{created}");
    let mut gone = server.client();
    gone.send("SUB _INBOX.same.* 1\r\n");
    let request = r#"{"batch":1,"expires":60000000000}"#;
    let length = request.len();
    gone.send(format!("PUB $JS.API.CONSUMER.MSG.NEXT.S.c _INBOX.same.x {length}\r\n{request}\r\n"));
    gone.flush("");
    support::eventually("the request waits", || {
        other.ask("$JS.API.CONSUMER.INFO.S.c", "").contains("\"num_waiting\":1")
    });
    drop(gone);
    support::eventually("the connection is over", || server.server.connections.open().len() == 1);
    // Engines have heard that somebody has gone.
    server.server.tell_all_logs(|| nuthatch_streams::Event::Interest(None));
    let mut back = server.client();
    back.send("SUB _INBOX.same.* 7\r\n");
    back.flush("");
    assert!(other.ask("s", "hello").contains("\"seq\":1"));
    assert!(back.line().starts_with("MSG s 7 $JS.ACK.S.c.1.1.1."), "the pull was lost");
}
