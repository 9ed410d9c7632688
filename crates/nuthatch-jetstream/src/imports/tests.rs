//! Imports in logs that answer when they are told to, or not at all.

use super::*;
use crate::logs_port::{LogsPort, NotTaken};
use crate::pending_changes::tests::{ACCOUNT, Logs, code};
use crate::service::{JetStream, Settings};
use nuthatch_server::jetstream_port::JsHealth;
use nuthatch_streams::Respond;
use nuthatch_streams::op::OpResult;
use nuthatch_streams::stream::importing_config;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Long enough for everything here.
const SOON: Duration = Duration::from_secs(5);

/// Logs that keep what stores messages until it is answered, and do the rest at once.
#[derive(Default)]
struct ByHand {
    stores: Mutex<Vec<Respond>>,
    /// The next store ends whoever sends it.
    breaks: Mutex<bool>,
    ops: Mutex<Vec<&'static str>>,
}

impl LogsPort for ByHand {
    fn submit(&self, _: LogId, op: Op, respond: Respond) -> Result<(), NotTaken> {
        let stream = |config: &StreamConfig| -> OpResult {
            let config = Arc::new(config.clone());
            let info = Box::new(StreamInfo { config, ..StreamInfo::default() });
            Ok(OpOutcome::Stream { info, subjects_total: 0 })
        };
        let (what, outcome) = match &op {
            Op::Mirror { .. } => {
                assert!(!std::mem::take(&mut *self.breaks.lock()), "this store ends its sender");
                self.stores.lock().push(respond);
                return Ok(());
            }
            Op::CreateStream { config, .. } => ("create", stream(config)),
            Op::StreamInfo { .. } => ("info", stream(&importing_config(&config("S")))),
            Op::FinishRestore { config, .. } => ("finish", stream(config)),
            Op::DeleteStream { .. } => ("delete", Ok(OpOutcome::Done)),
            _ => ("other", Ok(OpOutcome::Done)),
        };
        self.ops.lock().push(what);
        respond(outcome);
        Ok(())
    }

    fn attached(&self) -> Vec<(String, LogId)> {
        [("default", LogId(1)), ("memory", LogId(2))].map(|(name, id)| (name.into(), id)).into()
    }

    fn health(&self) -> JsHealth {
        JsHealth::Ok
    }
}

impl ByHand {
    /// Answers the store that waits, once it is there.
    async fn answer(&self, outcome: OpResult) {
        let respond = timeout(SOON, async {
            loop {
                let waiting = self.stores.lock().pop();
                match waiting {
                    Some(respond) => return respond,
                    None => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            }
        });
        respond.await.expect("a store")(outcome);
    }

    fn has(&self, what: &str) -> bool {
        self.ops.lock().contains(&what)
    }
}

fn config(name: &str) -> StreamConfig {
    StreamConfig { name: name.into(), subjects: vec!["s.>".into()], ..StreamConfig::default() }
}

async fn act(service: &JetStream, action: &str) -> Answer {
    let body = json!({ "action": action, "config": config("S") }).to_string();
    service.imports.call(ACCOUNT, "S", body.as_bytes()).await
}

/// A server with an import of the stream S.
async fn importing() -> (Arc<ByHand>, Arc<JetStream>) {
    let logs = Arc::new(ByHand::default());
    let core = Arc::new(Logs::default());
    let service = Arc::new(JetStream::new(core, logs.clone(), Settings::default()));
    act(&service, "begin").await.expect("it begins");
    (logs, service)
}

/// Sends the message of this sequence.
fn send(service: &Arc<JetStream>, seq: u64) -> JoinHandle<Answer> {
    let mut batch = Vec::new();
    import::begin(&mut batch);
    let message = Imported { seq, time_ns: 1, subject: b"s.x", headers: b"", body: b"x" };
    import::push(&mut batch, &message).expect("a small message");
    import::set_gap_to(&mut batch, seq);
    let headers = format!("NATS/1.0\r\nNuthatch-Import-After: {}\r\n\r\n", seq - 1);
    let service = service.clone();
    tokio::spawn(
        async move { service.imports.messages(ACCOUNT, "S", headers.as_bytes(), &batch).await },
    )
}

async fn answer(sent: JoinHandle<Answer>) -> Answer {
    timeout(SOON, sent).await.expect("every batch is answered").expect("no panic")
}

/// Lets what was sent arrive.
async fn arrived() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn batches_are_answered_although_the_task_that_stores_them_breaks() {
    let (logs, service) = importing().await;
    let first = send(&service, 1);
    arrived().await;
    let behind = [send(&service, 2), send(&service, 3)];
    arrived().await;
    *logs.breaks.lock() = true;
    logs.answer(Ok(OpOutcome::Done)).await;
    answer(first).await.expect("it is stored");
    for sent in behind {
        assert!(answer(sent).await.is_err());
    }
    assert!(answer(send(&service, 3)).await.is_err(), "2 is not there");
    act(&service, "begin").await.expect("it goes on");
    let again = send(&service, 2);
    logs.answer(Ok(OpOutcome::Done)).await;
    answer(again).await.expect("it is stored");
}

#[tokio::test]
async fn an_import_is_not_put_in_service_while_batches_are_on_their_way() {
    let (logs, service) = importing().await;
    let sent = [send(&service, 1), send(&service, 2)];
    arrived().await;
    assert_eq!(code(act(&service, "finish").await), JsError::STREAM_RESTORE.err_code);
    assert!(!logs.has("finish"));
    logs.answer(Ok(OpOutcome::Done)).await;
    logs.answer(Ok(OpOutcome::Done)).await;
    for sent in sent {
        answer(sent).await.expect("it is stored");
    }
    let done: Value = serde_json::from_slice(&act(&service, "finish").await.unwrap()).unwrap();
    assert_eq!(done["config"]["name"], "S", "{done}");
    assert!(service.streams.read().get(ACCOUNT, "S").is_some());
    assert_eq!(code(act(&service, "").await), JsError::STREAM_NOT_FOUND.err_code);
}

#[tokio::test]
async fn an_import_that_is_given_up_answers_its_batches() {
    let (logs, service) = importing().await;
    let sent = [send(&service, 1), send(&service, 2)];
    arrived().await;
    act(&service, "cancel").await.expect("it is given up");
    for sent in sent {
        assert!(answer(sent).await.is_err());
    }
    assert!(logs.has("delete"));
    // Nobody waits for it any more.
    logs.answer(Ok(OpOutcome::Done)).await;
    act(&service, "begin").await.expect("it begins anew");
}

#[tokio::test]
async fn a_batch_says_after_which_sequence_it_comes() {
    let (_logs, service) = importing().await;
    let headers = b"NATS/1.0\r\nNuthatch-Import-After: many\r\n\r\n";
    let mut batch = Vec::new();
    import::begin(&mut batch);
    let refused = service.imports.messages(ACCOUNT, "S", headers, &batch).await;
    assert_eq!(code(refused), JsError::STREAM_RESTORE.err_code);
    assert_eq!(code(act(&service, "fly").await), JsError::STREAM_RESTORE.err_code);
}
