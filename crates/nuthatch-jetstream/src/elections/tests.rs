//! What is told of many streams, and at which rate.

use super::*;
use crate::core_port::{ClusterView, OtherNode, Take};
use crate::pending_changes::tests::{ACCOUNT, Logs};
use crate::service::{JetStream, Settings};
use nuthatch_log::StreamId;
use nuthatch_protocol::js::{StreamConfig, Time};
use nuthatch_server::served::Served;
use nuthatch_streams::Message;
use std::any::Any;

const LED: LogId = LogId(1);
const COUNT: usize = 3 * SLICE;

/// A node of a cluster of three that hears everything.
#[derive(Default)]
struct Hearing {
    told: Mutex<Vec<(AccountId, String)>>,
    /// Another node keeps the log, and has told nothing yet.
    other: Mutex<Option<OtherNode>>,
}

impl CorePort for Hearing {
    fn server_name(&self) -> &'static str {
        "n1"
    }

    fn now(&self) -> Time {
        Time(1)
    }

    fn listens(&self, _: AccountId, _: &[u8]) -> bool {
        true
    }

    fn publish(&self, account: AccountId, message: &Message<'_>) -> bool {
        let subject = String::from_utf8_lossy(message.subject).into_owned();
        self.told.lock().push((account, subject));
        true
    }

    fn subscribe(&self, _: AccountId, _: &str, _: Take) -> Option<Box<dyn Any + Send + Sync>> {
        None
    }

    fn cluster(&self) -> Option<ClusterView> {
        Some(ClusterView { name: "c".to_owned(), size: 3, others: Vec::new() })
    }

    fn standing(&self, _: &str) -> Option<LogStanding> {
        let others = self.other.lock().iter().cloned().collect();
        Some(LogStanding { has_owner: true, others })
    }

    fn served(&self, _: AccountId) -> Option<Arc<Served>> {
        Some(Arc::default())
    }
}

/// A service with `COUNT` streams of three replicas in the first quorum log, and others that nobody is told of.
fn service() -> (Arc<Hearing>, Arc<Elections>) {
    let core = Arc::new(Hearing::default());
    let logs = Arc::new(Logs::default());
    let service = JetStream::new(core.clone(), logs, Settings::default());
    let entry = |number: usize, engine, num_replicas| {
        let name = format!("S{number:04}");
        let config = StreamConfig { name, num_replicas, ..StreamConfig::default() };
        let id = StreamId(u32::try_from(number).expect("few"));
        Entry { id, engine, account: ACCOUNT, config: Arc::new(config), created: Time(1) }
    };
    service.streams.change(|registry| {
        for number in 0..COUNT {
            registry.insert(entry(3 * number, LED, 3));
            registry.insert(entry(3 * number + 1, LED, 1));
            // In a log of this node alone.
            registry.insert(entry(3 * number + 2, LogId(3), 3));
        }
    });
    (core, service.elections.clone())
}

#[tokio::test]
async fn a_log_is_told_of_in_slices_with_pauses() {
    let (core, elections) = service();
    let began = Instant::now();
    elections.log_led(LED).await;
    let pauses = u32::try_from(COUNT / SLICE).expect("few");
    assert!(began.elapsed() >= pauses * PAUSE, "{:?}", began.elapsed());
    let told = core.told.lock();
    assert_eq!(told[0], (SYSTEM_ACCOUNT_ID, DOMAIN_LED.to_owned()));
    let of = |account| told.iter().filter(|(whose, _)| *whose == account).count();
    assert_eq!((of(ACCOUNT), of(SYSTEM_ACCOUNT_ID)), (COUNT, COUNT + 1));
    let is_led = |(_, subject): &(_, String)| subject.contains(".STREAM.LEADER_ELECTED.S");
    assert!(told[1..].iter().all(is_led));
}

#[tokio::test]
async fn a_connected_keeper_is_waited_for_until_it_has_told_of_itself() {
    let (core, elections) = service();
    let other = OtherNode {
        name: "n2".to_owned(),
        is_connected: true,
        silent: Duration::ZERO,
        is_current: true,
        lag: 0,
    };
    *core.other.lock() = Some(other.clone());
    let telling = elections.clone();
    let telling = tokio::spawn(async move { telling.log_led(LED).await });
    sleep(5 * NODES_CHECK).await;
    assert!(core.told.lock().is_empty(), "n2 may listen");
    *core.other.lock() = Some(OtherNode { is_connected: false, ..other });
    telling.await.expect("no panic");
    assert_eq!(core.told.lock().len(), 2 * COUNT + 1);
}

#[tokio::test]
async fn what_was_under_way_ends_when_the_log_comes_anew() {
    let (core, elections) = service();
    let first = elections.clone();
    let first = tokio::spawn(async move { first.log_led(LED).await });
    while core.told.lock().is_empty() {
        tokio::task::yield_now().await;
    }
    elections.log_led(LED).await;
    first.await.expect("no panic");
    let told = core.told.lock().iter().filter(|(account, _)| *account == ACCOUNT).count();
    // Of its first slice, in which every other stream is one that nobody is told of.
    assert_eq!(told, COUNT + SLICE / 2);
}

#[test]
fn a_majority_counts_this_node() {
    let other = |is_connected| OtherNode {
        name: "n".to_owned(),
        is_connected,
        silent: Duration::ZERO,
        is_current: is_connected,
        lag: 0,
    };
    for (connected, of, expected) in [(0, 2, false), (1, 2, true), (1, 4, false), (2, 4, true)] {
        let others = (0..of).map(|at| other(at < connected)).collect();
        let standing = LogStanding { has_owner: false, others };
        assert_eq!(standing.has_majority(), expected, "{connected} of {of} others");
    }
}

#[test]
fn consumers_are_remembered_until_they_or_their_log_go() {
    let mut told = ToldConsumers::default();
    let stream = |log, id| StreamRoute { log: LogId(log), stream: StreamId(id) };
    for (log, id, name) in [(1, 1, "a"), (1, 1, "b"), (1, 1, "a"), (1, 2, "c"), (2, 3, "d")] {
        told.add(stream(log, id), name);
    }
    told.remove(stream(1, 1), "b");
    told.remove(stream(1, 1), "never there");
    assert_eq!(told.count, 3);
    told.remove_stream(stream(1, 2));
    assert_eq!(told.count, 2);
    let taken = told.take_log(LogId(1));
    assert_eq!((taken.len(), &taken[&stream(1, 1)]), (1, &BTreeSet::from(["a".to_owned()])));
    assert_eq!((told.count, told.names.len()), (1, 1));
}
