//! Moves that do not come to their end.

use super::*;
use crate::core_port::{CorePort, Take};
use crate::logs_port::{LogsPort, NotTaken};
use crate::service::{JetStream, Settings};
use nuthatch_protocol::js::{StreamConfig, StreamInfo, Time};
use nuthatch_server::jetstream_port::JsHealth;
use nuthatch_streams::{Message, OpOutcome, Respond};
use parking_lot::Mutex;
use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// Logs that refuse everything, for a reason of their own.
#[derive(Default)]
struct Refusing {
    reason: Mutex<String>,
    asked: AtomicU64,
    said: Mutex<Vec<String>>,
    /// Not even that: what waits for an answer.
    is_silent: AtomicBool,
    waiting: Mutex<Vec<Respond>>,
}

impl Refusing {
    /// Waits until so many operations more were refused.
    async fn asked_again(&self, times: u64) {
        let until = self.asked.load(Ordering::SeqCst) + times;
        while self.asked.load(Ordering::SeqCst) < until {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl CorePort for Refusing {
    fn now(&self) -> Time {
        Time(1)
    }
    fn say(&self, text: &str) {
        self.said.lock().push(text.to_owned());
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

impl LogsPort for Refusing {
    fn submit(&self, _: LogId, _: Op, respond: Respond) -> Result<(), NotTaken> {
        let count = self.asked.fetch_add(1, Ordering::SeqCst);
        if self.is_silent.load(Ordering::SeqCst) {
            self.waiting.lock().push(respond);
            return Ok(());
        }
        let text = format!("{} ({count} ms)", self.reason.lock());
        respond(Err(JsError::STREAM_STORE_FAILED.with_err(text)));
        Ok(())
    }
    fn attached(&self) -> Vec<(String, LogId)> {
        vec![("default".to_owned(), LogId(1)), ("cold".to_owned(), LogId(3))]
    }
    fn health(&self) -> JsHealth {
        JsHealth::Ok
    }
}

/// A server with a stream, and a move of that.
fn moving(logs: &Arc<Refusing>) -> (Arc<JetStream>, Arc<Entry>, MoveDriver) {
    let settings = Settings::default();
    let service = Arc::new(JetStream::new(logs.clone(), logs.clone(), settings));
    let config = StreamConfig { name: "S".to_owned(), ..StreamConfig::default() };
    let entry = Arc::new(Entry {
        id: StreamId(1),
        engine: LogId(1),
        account: AccountId::GLOBAL,
        config: Arc::new(config),
        created: Time(1),
    });
    service.streams.change(|registry| registry.insert((*entry).clone()));
    let copy = StreamRoute { log: LogId(3), stream: StreamId(2) };
    let mover = service.moves.new_move(&entry, copy, RATE_DEFAULT_BYTES);
    (service, entry, mover)
}

#[tokio::test]
async fn a_move_that_fails_again_and_again_says_why_once() {
    let logs = Arc::new(Refusing::default());
    "the copy lacks messages from 3 to 5".clone_into(&mut logs.reason.lock());
    let (service, entry, mover) = moving(&logs);
    let progress = mover.progress.clone();
    let moving = tokio::spawn(mover.run());
    logs.asked_again(3).await;
    {
        let said = logs.said.lock();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("lacks messages from 3 to 5") && said[0].contains("\"S\""));
    }
    assert_eq!(service.moves.table.under_way(), [0, 1]);
    let report = service.moves.table.report_of(AccountId::GLOBAL, "S").expect("it is under way");
    assert!(report.error.is_some_and(|error| error.contains("lacks messages")));
    let mut info = StreamInfo { config: entry.config.clone(), ..StreamInfo::default() };
    service.stream_calls.infos.complete(AccountId::GLOBAL, &mut info);
    let shown = &info.config.metadata[crate::metadata::MOVE_KEY];
    assert!(shown.contains("last problem:") && shown.contains("lacks messages"), "{shown}");
    // Another reason is told.
    "the medium is full".clone_into(&mut logs.reason.lock());
    logs.asked_again(1).await;
    progress.cancelled.store(true, Ordering::Release);
    progress.wake.notify_one();
    moving.await.expect("it ends");
    let said = logs.said.lock();
    assert_eq!(said.iter().filter(|text| text.contains("does not come to its end")).count(), 2);
}

/// A log that does not answer may keep a move from being cleared up for ever: others copy meanwhile.
#[tokio::test]
async fn a_move_that_is_given_up_takes_no_turn_from_others() {
    let logs = Arc::new(Refusing::default());
    logs.is_silent.store(true, Ordering::SeqCst);
    let (service, entry, mover) = moving(&logs);
    let progress = mover.progress.clone();
    let moving = tokio::spawn(mover.run());
    logs.asked_again(1).await;
    assert_eq!(service.moves.table.room.available_permits(), COPIES_AT_ONCE - 1, "it copies");
    progress.cancelled.store(true, Ordering::Release);
    progress.wake.notify_one();
    let info = Box::new(StreamInfo { config: entry.config.clone(), ..StreamInfo::default() });
    let measured = logs.waiting.lock().pop().expect("it asks where the copy ends");
    measured(Ok(OpOutcome::Stream { info, subjects_total: 0 }));
    while logs.waiting.lock().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(service.moves.table.room.available_permits(), COPIES_AT_ONCE);
    for _ in 0..2 {
        while logs.waiting.lock().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let respond = logs.waiting.lock().pop().expect("it waits");
        respond(Ok(OpOutcome::Done));
    }
    moving.await.expect("it ends");
    let report = progress.report();
    assert_eq!(report.error.as_deref(), Some("cancelled"));
    assert_eq!(service.moves.table.active.load(Ordering::Acquire), 0);
}
