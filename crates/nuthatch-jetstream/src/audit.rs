//! The audit of the API (`$JS.EVENT.ADVISORY.API`): calls and answers. Built only if it has
//! subscribers.

use crate::core_port::CorePort;
use crate::stream_table::StreamTable;
use nuthatch_protocol::js::Time;
use nuthatch_server::jetstream_port::Requester;
use nuthatch_server::random::random_id;
use nuthatch_server::wall_time::time_json;
use nuthatch_streams::{AccountId, Message};
use serde_json::{Map, Value, json};

/// Subject of advisories about calls.
const AUDIT: &str = "$JS.EVENT.ADVISORY.API";
/// Subject of advisories about refused calls.
const LIMIT_REACHED: &str = "$JS.EVENT.ADVISORY.API.LIMIT_REACHED";
/// Characters of an event's id, as many as the incumbent's.
const ID_CHARS: usize = 22;

/// A call and its answer.
pub(super) struct Called<'a> {
    pub(super) from: &'a Requester,
    pub(super) subject: &'a [u8],
    pub(super) request: &'a [u8],
    pub(super) response: &'a [u8],
}

/// Description of the server in advisories.
pub(super) struct ServerIdentity<'a> {
    pub(super) server: &'a str,
    pub(super) domain: &'a str,
    pub(super) now: Time,
}

/// True if anybody wants to know. The registry is free again afterwards: receivers of an advisory may
/// look for routes themselves, and a second look would wait for a writer that waits for the first.
pub(super) fn is_wanted(
    account: AccountId,
    subject: &str,
    answers: &dyn CorePort,
    streams: &StreamTable,
) -> bool {
    answers.listens(account, subject.as_bytes())
        || streams.read().route(account, subject.as_bytes()).is_some()
}

/// Tells of a call, if anybody wants to know.
pub(super) fn tell_call(
    called: &Called<'_>,
    place: &ServerIdentity<'_>,
    answers: &dyn CorePort,
    streams: &StreamTable,
) {
    let account = called.from.account;
    if !is_wanted(account, AUDIT, answers, streams) {
        return;
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut event = event("io.nats.jetstream.advisory.v1.api_audit", place);
    event.insert("client".to_owned(), Value::Object(client(called.from, place.server)));
    event.insert("subject".to_owned(), json!(text(called.subject)));
    if !called.request.is_empty() {
        event.insert("request".to_owned(), json!(text(called.request)));
    }
    event.insert("response".to_owned(), json!(text(called.response)));
    publish(account, AUDIT, &Value::Object(event), answers);
}

/// Tells that a call was refused because too many are under way.
pub(super) fn tell_limit(
    account: AccountId,
    place: &ServerIdentity<'_>,
    answers: &dyn CorePort,
    streams: &StreamTable,
) {
    if is_wanted(account, LIMIT_REACHED, answers, streams) {
        let mut event = event("io.nats.jetstream.advisory.v1.api_limit_reached", place);
        event.insert("dropped".to_owned(), json!(1));
        publish(account, LIMIT_REACHED, &Value::Object(event), answers);
    }
}

/// A snapshot or a restore that began or ended.
pub(super) struct Transfer<'a> {
    pub(super) from: &'a Requester,
    /// `snapshot_create`, `snapshot_complete`, `restore_create` or `restore_complete`.
    pub(super) what: &'a str,
    pub(super) stream: &'a str,
    /// Fields of this advisory beside the common ones.
    pub(super) fields: Map<String, Value>,
}

/// Tells of a snapshot or a restore, if anybody wants to know.
pub(super) fn tell_transfer(
    told: Transfer<'_>,
    place: &ServerIdentity<'_>,
    answers: &dyn CorePort,
    streams: &StreamTable,
) {
    let account = told.from.account;
    let event_name = told.what.to_uppercase();
    let subject = format!("$JS.EVENT.ADVISORY.STREAM.{event_name}.{}", told.stream);
    if !is_wanted(account, &subject, answers, streams) {
        return;
    }
    let mut event = event(&format!("io.nats.jetstream.advisory.v1.{}", told.what), place);
    // Only the audit of calls names the server.
    event.remove("server");
    event.insert("stream".to_owned(), json!(told.stream));
    event.insert("client".to_owned(), Value::Object(client(told.from, place.server)));
    event.extend(told.fields);
    publish(account, &subject, &Value::Object(event), answers);
}

fn event(kind: &str, place: &ServerIdentity<'_>) -> Map<String, Value> {
    let mut event = Map::new();
    event.insert("type".to_owned(), json!(kind));
    event.insert("id".to_owned(), json!(random_id(ID_CHARS)));
    event.insert("timestamp".to_owned(), json!(place.now));
    event.insert("server".to_owned(), json!(place.server));
    if !place.domain.is_empty() {
        event.insert("domain".to_owned(), json!(place.domain));
    }
    event
}

fn client(from: &Requester, server: &str) -> Map<String, Value> {
    let mut client = Map::new();
    client.insert("server".to_owned(), json!(server));
    let Some(facts) = from.client.as_ref().map(|client| client.facts()) else { return client };
    client.insert("start".to_owned(), time_json(facts.since));
    client.insert("host".to_owned(), json!(facts.remote.ip().to_string()));
    client.insert("id".to_owned(), json!(facts.id));
    client.insert("acc".to_owned(), json!(facts.account));
    let parts = [
        ("user", &facts.user),
        ("name", &facts.name),
        ("lang", &facts.lang),
        ("ver", &facts.version),
    ];
    for (name, value) in parts.into_iter().filter(|(_, value)| !value.is_empty()) {
        client.insert(name.to_owned(), json!(value));
    }
    client
}

fn publish(account: AccountId, subject: &str, event: &Value, answers: &dyn CorePort) {
    publish_advisory(account, subject, event.to_string().as_bytes(), answers);
}

/// Publishes an advisory; streams that have its subject store it.
pub(super) fn publish_advisory(
    account: AccountId,
    subject: &str,
    body: &[u8],
    answers: &dyn CorePort,
) {
    answers.publish_and_store(
        account,
        &Message { subject: subject.as_bytes(), reply: b"", headers: b"", body },
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pending_changes::tests::Logs;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A receiver that changes streams while it is told.
    struct Changing {
        streams: Arc<StreamTable>,
        told: AtomicUsize,
    }

    impl CorePort for Changing {
        fn server_name(&self) -> &'static str {
            "test"
        }

        fn listens(&self, _: AccountId, _: &[u8]) -> bool {
            true
        }

        fn publish(&self, _: AccountId, message: &Message<'_>) -> bool {
            let subject = String::from_utf8_lossy(message.subject);
            assert!(!self.streams.is_locked(), "{subject} under the lock");
            self.told.fetch_add(1, Ordering::Relaxed);
            true
        }

        fn subscribe(
            &self,
            _: AccountId,
            _: &str,
            _: crate::core_port::Take,
        ) -> Option<Box<dyn std::any::Any + Send + Sync>> {
            None
        }
    }

    #[test]
    fn nothing_is_told_while_the_registry_is_locked() {
        let streams = Arc::new(StreamTable::new(Arc::new(Logs::default())));
        let answers = Changing { streams: streams.clone(), told: AtomicUsize::new(0) };
        let account = AccountId(1);
        let from = Requester { account, client: None };
        let place = ServerIdentity { server: "s", domain: "", now: Time(0) };
        let called = Called { from: &from, subject: b"a", request: b"", response: b"{}" };
        tell_call(&called, &place, &answers, &streams);
        tell_limit(account, &place, &answers, &streams);
        let told =
            Transfer { from: &from, what: "restore_create", stream: "S", fields: Map::new() };
        tell_transfer(told, &place, &answers, &streams);
        assert_eq!(answers.told.load(Ordering::Relaxed), 3);
    }
}
