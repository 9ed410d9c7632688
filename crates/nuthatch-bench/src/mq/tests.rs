//! The harness against a queue whose faults are known.

use std::thread;
use std::time::Duration;

use super::metrics::Metrics;
use super::node::{self, NodePlan, Role, Schedule};
use super::result::MqResult;
use super::stamp::{MESSAGE_CHARS, unix_ns};
use crate::queue::fake::{FakeQueue, Faults};

const WARMUP: Duration = Duration::from_millis(100);

fn schedule(windows: u32) -> Schedule {
    Schedule {
        start_ns: unix_ns() + 20_000_000,
        warmup: WARMUP,
        window: Duration::from_millis(400),
        windows,
        idle: Duration::from_millis(200),
        drain_limit: Duration::from_secs(10),
    }
}

/// Runs one sender and one receiver node of `threads` threads each.
fn run(faults: Faults, threads: usize, rate: Option<f64>) -> MqResult {
    let queue = FakeQueue::new(faults);
    let schedule = schedule(2);
    let plan =
        |role| NodePlan { role, node: 0, threads, schedule, batch: 10, size: MESSAGE_CHARS, rate };
    let nodes = thread::scope(|scope| {
        let run_one = |role| {
            let (queue, plan) = (&queue, plan(role));
            scope.spawn(move || node::run(queue, &plan, &Metrics::default()))
        };
        [run_one(Role::Sender), run_one(Role::Receiver)].map(|thread| thread.join().unwrap())
    });
    // What crosses a process boundary as JSON must come out the same.
    let nodes =
        nodes.map(|node| serde_json::from_str(&serde_json::to_string(&node).unwrap()).unwrap());
    MqResult::of(&nodes)
}

#[test]
fn known_delays_give_the_expected_percentiles() {
    let faults = Faults {
        send_delay: Duration::from_millis(5),
        delivery_delay: Duration::from_millis(30),
        ..Faults::default()
    };
    let result = run(faults, 1, None);
    let send = result.send_p95_ms.unwrap();
    assert!((5.0..60.0).contains(&send), "send {send}");
    // The stamp is taken before the send, so both delays are in the processing latency.
    let processing = result.processing_us.as_ref().unwrap();
    assert!((34_900.0..100_000.0).contains(&processing.p50), "{processing:?}");
    assert!(processing.min >= 34_900.0, "{processing:?}");
    assert_eq!(result.faults(), "");
    assert!(result.verdict.confirmed > 100 && result.verdict.lost == 0);
    assert_eq!(result.windows.len(), 2);
}

#[test]
fn losses_duplicates_and_swaps_are_counted_exactly() {
    let send_delay = Duration::from_millis(1);
    let result = run(
        Faults { send_delay, lose_each: Some(10), double_each: Some(25), ..Faults::default() },
        1,
        None,
    );
    let v = result.verdict;
    assert_eq!(v.lost, v.confirmed / 10);
    // Every fiftieth message is chosen to be doubled but is lost before.
    assert_eq!(v.duplicated, v.confirmed / 25 - v.confirmed / 50);
    assert_eq!((v.reordered, v.foreign), (0, 0));
    assert!(result.faults().contains("LOST"), "{}", result.faults());

    // Swaps happen only between messages that wait together, so a delivery delay keeps some there.
    let delivery_delay = Duration::from_millis(20);
    let faults = Faults { send_delay, delivery_delay, swap_each: Some(10), ..Faults::default() };
    let v = run(faults, 1, None).verdict;
    assert!(v.reordered > v.confirmed / 10 - 10 && v.reordered <= v.confirmed / 10, "{v:?}");
    assert_eq!((v.lost, v.duplicated), (0, 0));
}

#[test]
fn several_threads_are_told_apart() {
    let faults = Faults { send_delay: Duration::from_millis(1), ..Faults::default() };
    let result = run(faults, 4, None);
    assert_eq!((result.verdict.lost, result.verdict.duplicated), (0, 0));
    assert_eq!(result.verdict.received, result.verdict.confirmed);
}

#[test]
fn a_stall_is_charged_to_all_messages_that_were_due_meanwhile() {
    // Without a set rate one send of many is slow; with it all that were due meanwhile are.
    let stall = Duration::from_millis(300);
    let faults = Faults { stall_at: Some(40), stall, ..Faults::default() };
    let send_delay = Duration::from_millis(1);
    let p90 = |faults: &Faults, rate| Some(run(faults.clone(), 1, rate).send_us?.p90);
    at_last("an open loop shows the stall at p90", || {
        let p90 = p90(&faults, Some(1000.0));
        (p90, p90.is_some_and(|p90| p90 > 100_000.0))
    });
    let closed = Faults { send_delay, stall_at: Some(150), ..faults.clone() };
    at_last("a closed loop hides it", || {
        let p90 = p90(&closed, None);
        (p90, p90.is_some_and(|p90| p90 < 50_000.0))
    });
}

/// Measures until it is as it should be: while a machine is busy, times are not.
fn at_last<T: std::fmt::Debug>(what: &str, mut measure: impl FnMut() -> (T, bool)) {
    let mut seen = Vec::new();
    for _ in 0..20 {
        let (found, holds) = measure();
        if holds {
            return;
        }
        seen.push(found);
    }
    panic!("{what}: {seen:?}");
}

#[test]
fn a_set_rate_is_kept() {
    at_last("the rate", || {
        let per_s = run(Faults::default(), 2, Some(2000.0)).send_per_s;
        (per_s, (1400.0..2400.0).contains(&per_s))
    });
}

#[test]
fn a_dying_server_is_a_failure_in_words() {
    let faults =
        Faults { send_delay: Duration::from_millis(1), die_at: Some(50), ..Faults::default() };
    let result = run(faults, 1, None);
    assert_eq!(result.error.as_deref(), Some("fake: cannot send: connection refused"));
    assert!(result.faults().starts_with("FAILED"));
    assert!(result.verdict.confirmed < 50 && result.verdict.lost == 0);
}
