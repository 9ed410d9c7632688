//! Changes whose log takes long.

use super::*;
use crate::core_port::{CorePort, Take};
use crate::logs_port::{LogsPort, NotTaken};
use crate::outcome::Answer;
use crate::service::{JetStream, Settings};
use nuthatch_log::StreamId;
use nuthatch_protocol::js::{StreamInfo, Time};
use nuthatch_server::jetstream_port::JsHealth;
use nuthatch_server::served::Scope;
use nuthatch_streams::op::CatalogEntry;
use nuthatch_streams::stream::Provenance;
use nuthatch_streams::{Message, Op, OpOutcome, Respond};
use serde_json::{Value, json};
use std::any::Any;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::yield_now;

const COLD: LogId = LogId(3);
pub(crate) const ACCOUNT: AccountId = AccountId::GLOBAL;

/// Logs that do as they are told, but that `cold` keeps what it is told until it is let.
#[derive(Default)]
pub(crate) struct Logs {
    waiting: Mutex<Vec<(Op, Respond)>>,
    /// What they hold at a start.
    listed: Mutex<Vec<CatalogEntry>>,
}

impl Logs {
    fn answer_all(&self) {
        for (op, respond) in self.waiting.lock().drain(..) {
            respond(Ok(outcome(op)));
        }
    }
}

/// A stream in a log that is to be attached.
fn listed(name: &str, subject: &str) -> CatalogEntry {
    let (name, subjects) = (name.to_owned(), vec![subject.to_owned()]);
    CatalogEntry {
        id: StreamId(70),
        account: ACCOUNT,
        config: StreamConfig { name, subjects, ..StreamConfig::default() }.into(),
        created: Time(1),
        provenance: Provenance::default(),
        last_seq: 0,
    }
}

fn outcome(op: Op) -> OpOutcome {
    let (Op::CreateStream { config, .. } | Op::UpdateStream { config, .. }) = op else {
        return OpOutcome::Done;
    };
    let info = Box::new(StreamInfo { config: Arc::from(config), ..StreamInfo::default() });
    OpOutcome::Stream { info, subjects_total: 0 }
}

impl CorePort for Logs {
    fn now(&self) -> Time {
        Time(1)
    }
    fn server_name(&self) -> &'static str {
        "test"
    }
    fn publish(&self, _: AccountId, _: &Message<'_>) -> bool {
        false
    }
    fn subscribe(&self, _: AccountId, _: &str, _: Take) -> Option<Box<dyn Any + Send + Sync>> {
        None
    }
}

impl LogsPort for Logs {
    fn submit(&self, engine: LogId, op: Op, respond: Respond) -> Result<(), NotTaken> {
        if let Op::Catalog = op {
            let (streams, next_id) = (self.listed.lock().clone(), StreamId(71));
            respond(Ok(OpOutcome::Catalog { streams, next_id, unreadable_records: 0 }));
        } else if engine == COLD {
            self.waiting.lock().push((op, respond));
        } else {
            respond(Ok(outcome(op)));
        }
        Ok(())
    }
    fn attached(&self) -> Vec<(String, LogId)> {
        let logs = [("default", LogId(1)), ("memory", LogId(2)), ("cold", COLD)];
        logs.map(|(name, id)| (name.to_owned(), id)).into()
    }
    fn health(&self) -> JsHealth {
        unreachable!("nobody asks for it here")
    }
}

pub(crate) async fn create(
    service: &JetStream,
    name: &str,
    subject: &str,
    tags: &[&str],
) -> Answer {
    let placement = json!({ "tags": tags });
    let body = json!({ "name": name, "subjects": [subject], "placement": placement });
    service.stream_calls.create(ACCOUNT, (name, &Scope::Cluster), body.to_string().as_bytes()).await
}

pub(crate) fn service() -> (Arc<Logs>, Arc<JetStream>) {
    let logs = Arc::new(Logs::default());
    let settings = Settings::default();
    (logs.clone(), Arc::new(JetStream::new(logs.clone(), logs, settings)))
}

pub(crate) fn code(answer: Answer) -> u16 {
    answer.expect_err("an error").err_code
}

/// How often another task had its turn while `work` went on.
pub(crate) async fn turns_during(work: impl Future<Output = ()>) -> usize {
    let turns = Arc::new(AtomicUsize::new(0));
    let counted = turns.clone();
    let other = tokio::spawn(async move {
        loop {
            counted.fetch_add(1, Ordering::Relaxed);
            yield_now().await;
        }
    });
    work.await;
    other.abort();
    turns.load(Ordering::Relaxed)
}

async fn until(what: impl Fn() -> bool) {
    while !what() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_log_that_does_not_answer_holds_up_its_own_streams_only() {
    let (logs, service) = service();
    let other = service.clone();
    let slow = tokio::spawn(async move { create(&other, "C", "c.>", &["log:cold"]).await });
    until(|| logs.waiting.lock().len() == 1).await;
    create(&service, "A", "a", &[]).await.unwrap();
    create(&service, "B", "b", &[]).await.unwrap();
    service.stream_calls.delete(ACCOUNT, "A", b"").await.unwrap();
    let other = service.clone();
    let slower = tokio::spawn(async move { create(&other, "D", "d.>", &["log:cold"]).await });
    until(|| service.stream_calls.rights.pending().engine_of(ACCOUNT, "D").is_some()).await;
    create(&service, "A", "a", &[]).await.unwrap();

    assert_eq!(code(create(&service, "C", "c.>", &["log:cold"]).await), 10008, "its name");
    assert_eq!(code(create(&service, "E", "c.x", &[]).await), 10065, "its subjects");
    assert!(service.streams.read().get(ACCOUNT, "C").is_none());

    logs.answer_all();
    for created in [slow.await, slower.await] {
        let text: Value = serde_json::from_slice(&created.unwrap().unwrap()).unwrap();
        assert_eq!(text["did_create"], true, "{text}");
    }
    assert_eq!(service.streams.read().count(ACCOUNT), 4);
    assert_eq!(code(create(&service, "E", "c.x", &[]).await), 10065);

    let other = service.clone();
    let deleting = tokio::spawn(async move { other.stream_calls.delete(ACCOUNT, "C", b"").await });
    until(|| service.stream_calls.rights.pending().engine_of(ACCOUNT, "C").is_some()).await;
    let update = service.stream_calls.update(ACCOUNT, "C", br#"{"name":"C"}"#).await;
    assert_eq!(code(update), 10008, "it may still be there");
    logs.answer_all();
    deleting.await.unwrap().unwrap();
    create(&service, "C", "e", &[]).await.unwrap();
}

/// A log that is attached has streams of names and subjects that changes under way are about to take.
#[tokio::test]
async fn a_log_is_not_attached_beside_a_change_that_takes_its_names_or_subjects() {
    let (logs, service) = service();
    let other = service.clone();
    let slow = tokio::spawn(async move { create(&other, "C", "c.>", &["log:cold"]).await });
    until(|| service.stream_calls.rights.pending().engine_of(ACCOUNT, "C").is_some()).await;
    for (name, subject) in [("C", "other"), ("D", "c.x")] {
        *logs.listed.lock() = vec![listed(name, subject)];
        let refused = service.loading.load_log("new", LogId(9)).await;
        assert!(refused.is_err_and(|why| why.contains("under way")), "{name} {subject}");
    }
    *logs.listed.lock() = vec![listed("D", "d")];
    assert_eq!(service.loading.load_log("new", LogId(9)).await, Ok(1));
    logs.answer_all();
    slow.await.unwrap().unwrap();
    assert_eq!(service.streams.read().count(ACCOUNT), 2);
}
