//! A stream that may have moved to a log which no node answers for, or to one that is here.

use super::*;
use crate::core_port::Take;
use crate::logs_port::NotTaken;
use crate::registry::Entry;
use crate::service::{JetStream, Settings};
use nuthatch_protocol::js::{StreamConfig, Time};
use nuthatch_server::jetstream_port::JsHealth;
use nuthatch_streams::op::Forgotten;
use nuthatch_streams::{Message, Respond};
use std::any::Any;

/// Logs that do everything, and one that knows how copies stand.
#[derive(Default)]
struct Logs {
    done: Mutex<Vec<(LogId, Op)>>,
    said: Mutex<Vec<String>>,
    /// How a copy stands; `None`: there is none.
    standing: Mutex<Option<CopyStanding>>,
}

impl CorePort for Logs {
    fn now(&self) -> Time {
        Time(1)
    }
    fn say(&self, text: &str) {
        self.said.lock().push(text.to_owned());
    }
    fn server_name(&self) -> &'static str {
        "n1"
    }
    fn publish(&self, _: AccountId, _: &Message<'_>) -> bool {
        false
    }
    fn subscribe(&self, _: AccountId, _: &str, _: Take) -> Option<Box<dyn Any + Send + Sync>> {
        None
    }
}

impl LogsPort for Logs {
    fn submit(&self, log: LogId, op: Op, respond: Respond) -> Result<(), NotTaken> {
        let outcome = match (&op, *self.standing.lock()) {
            (Op::RefuseCopy { .. }, Some(standing)) => Ok(OpOutcome::Copy(standing)),
            (Op::RefuseCopy { .. }, None) => Err(JsError::STREAM_NOT_FOUND),
            _ => Ok(OpOutcome::Done),
        };
        self.done.lock().push((log, op));
        respond(outcome);
        Ok(())
    }
    fn attached(&self) -> Vec<(String, LogId)> {
        vec![("default".to_owned(), LogId(1)), ("cold".to_owned(), LogId(3))]
    }
    fn health(&self) -> JsHealth {
        JsHealth::Ok
    }
}

const ROUTE: StreamRoute = StreamRoute { log: LogId(1), stream: StreamId(1) };

/// A node that has a stream in its log `default`, which was about to go on as id 2 in a log.
fn undecided(logs: &Arc<Logs>) -> Arc<JetStream> {
    let settings = Settings { node: Some("n1".to_owned()), ..Settings::default() };
    let service = Arc::new(JetStream::new(logs.clone(), logs.clone(), settings));
    let config = StreamConfig { name: "S".to_owned(), ..StreamConfig::default() };
    let (id, engine, account) = (ROUTE.stream, ROUTE.log, AccountId::GLOBAL);
    let config = Arc::new(config);
    let entry = Entry { id, engine, account, config, created: Time(1) };
    service.streams.change(|registry| registry.insert(entry));
    service
}

fn decide(service: &JetStream, log: &str) -> impl Future<Output = ()> + Send + use<> {
    let copy = StreamLocation { log: log.to_owned(), stream: StreamId(2) };
    service.moves.apart.decide((AccountId::GLOBAL, "S"), ROUTE, &copy)
}

fn stays() -> Op {
    let refused = StreamLocation { log: "default@*".to_owned(), stream: StreamId(2) };
    Op::Stay { id: ROUTE.stream, refused: Some(refused) }
}

#[tokio::test]
async fn a_stream_whose_other_log_nobody_answers_for_is_refused_until_the_user_decides() {
    let logs = Arc::new(Logs::default());
    let service = undecided(&logs);
    assert!(!service.moves.apart.keep(AccountId::GLOBAL, "S"), "nobody is finding out yet");
    let deciding = tokio::spawn(decide(&service, "default-2@*"));
    sleep(HELD_MAX / 2).await;
    assert!(logs.done.lock().is_empty(), "what is sent to it waits");
    while logs.done.lock().is_empty() {
        sleep(Duration::from_millis(20)).await;
    }
    // And another question or two.
    sleep(HELD_MAX / 2).await;
    let refuse = Op::Hold { id: ROUTE.stream, refuses: true };
    assert_eq!(*logs.done.lock(), [(ROUTE.log, refuse.clone())], "once");
    {
        let said = logs.said.lock();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("stream \"S\" of log default is not served"), "{said:?}");
        assert!(said[0].contains("nuthatch stream move S --cancel"), "{said:?}");
    }
    assert!(service.streams.has(AccountId::GLOBAL, "S"), "its name is taken");
    assert!(service.moves.apart.keep(AccountId::GLOBAL, "S"));
    deciding.await.expect("it ends");
    assert_eq!(*logs.done.lock(), [(ROUTE.log, refuse), (ROUTE.log, stays())]);
    assert!(service.streams.has(AccountId::GLOBAL, "S"));
    assert!(!service.moves.apart.keep(AccountId::GLOBAL, "S"), "it is decided");
}

#[tokio::test]
async fn what_the_other_log_says_is_done() {
    let forget = Op::Forget { id: ROUTE.stream, what: Forgotten::LeftFor(StreamId(2)) };
    // Of a log of one node only the one that is meant is believed: here another disk has come into its place.
    for (log, standing, done) in [
        ("cold@n1#0000000000000003", Some(CopyStanding::Refused), Some(stays())),
        ("cold@n1#0000000000000003", Some(CopyStanding::Settled), Some(forget.clone())),
        ("cold@n1#0000000000000003", None, Some(forget)),
        ("cold@n1#0000000000000009", None, None),
        ("cold@n2#0000000000000003", None, None),
    ] {
        let logs = Arc::new(Logs::default());
        *logs.standing.lock() = standing;
        let service = undecided(&logs);
        let deciding = tokio::spawn(decide(&service, log));
        let Some(done) = done else {
            sleep(10 * PAUSES.min).await;
            assert!(logs.done.lock().is_empty(), "{log}");
            deciding.abort();
            continue;
        };
        deciding.await.expect("it ends");
        let is_here = matches!(done, Op::Stay { .. });
        assert_eq!(logs.done.lock().last(), Some(&(ROUTE.log, done)), "{log} {standing:?}");
        assert_eq!(service.streams.has(AccountId::GLOBAL, "S"), is_here, "{log} {standing:?}");
    }
}
