//! `bench pubsub` (seed 000): publish to a topic and subscribe until the last message is received,
//! again and again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::harness::BenchError;
use crate::payload::Payload;
use crate::queue::{self, Queue, QueueSpec};

/// The shapes of the seed: name, body bytes, messages.
pub const SHAPES: [Shape; 4] = [
    Shape { name: "5MB*100", bytes: 5_000_000, messages: 100 },
    Shape { name: "1MB*500", bytes: 1_000_000, messages: 500 },
    Shape { name: "64KB*10000", bytes: 64 * 1024, messages: 10_000 },
    Shape { name: "1KB*50000", bytes: 1024, messages: 50_000 },
];

/// Messages of a batch, and bytes of a batch, whichever is reached first.
const BATCH_MESSAGES: usize = 100;
const BATCH_BYTES: usize = 2 * 1024 * 1024;

/// A message that has not come by then is lost.
const ARRIVAL_LIMIT: Duration = Duration::from_secs(60);

/// Wait of one receive.
const RECEIVE_WAIT: Duration = Duration::from_millis(500);

/// Messages of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// As the seed writes it.
    pub name: &'static str,
    /// Bytes of a body.
    pub bytes: usize,
    /// Messages of an operation.
    pub messages: usize,
}

impl Shape {
    /// Finds one by its name.
    ///
    /// # Errors
    /// In words for the user.
    pub fn parse(name: &str) -> Result<Self, String> {
        SHAPES.iter().find(|shape| shape.name == name).copied().ok_or_else(|| {
            let names: Vec<_> = SHAPES.iter().map(|shape| shape.name).collect();
            format!("no shape {name:?}; the shapes are {}", names.join(", "))
        })
    }
}

/// Results.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PubSub {
    /// Name of the shape.
    pub shape: String,
    /// Operations measured; one more came before as warm-up.
    pub operations: usize,
    /// Seconds of each operation.
    pub seconds: Vec<f64>,
    /// Messages of an operation.
    pub messages: usize,
    /// Messages that came in another order than they were sent, over all operations.
    pub reordered: u64,
}

impl PubSub {
    /// Seconds of an operation on average, the seed's cost per op.
    pub fn seconds_per_op(&self) -> f64 {
        self.seconds.iter().sum::<f64>() / self.seconds.len().max(1) as f64
    }
}

/// Runs one operation as warm-up and then as many as asked. Calls `begun` when the measured part
/// begins.
///
/// # Errors
/// When the queue fails, or a message does not arrive.
pub fn run(
    spec: &QueueSpec,
    shape: Shape,
    operations: usize,
    begun: impl FnOnce(),
) -> Result<PubSub, BenchError> {
    let queue = queue::open(spec)?;
    queue.prepare()?;
    let mut result = PubSub {
        shape: shape.name.into(),
        operations,
        seconds: Vec::new(),
        messages: shape.messages,
        reordered: 0,
    };
    let mut sender = queue.sender(0)?;
    let mut receiver = queue.receiver(0)?;
    let mut operation = |number: usize| one(sender.as_mut(), receiver.as_mut(), shape, number);
    operation(0)?;
    begun();
    for number in 1..=operations {
        let (seconds, reordered) = operation(number)?;
        result.seconds.push(seconds);
        result.reordered += reordered;
    }
    drop::<Box<dyn Queue>>(queue);
    Ok(result)
}

/// Publishes in one thread and receives in another until the last message is there.
fn one(
    sender: &mut dyn queue::Sender,
    receiver: &mut dyn queue::Receiver,
    shape: Shape,
    operation: usize,
) -> Result<(f64, u64), BenchError> {
    let started = Instant::now();
    let failed = AtomicBool::new(false);
    thread::scope(|scope| {
        let publishing = scope.spawn(|| {
            let result = publish(sender, shape, operation);
            failed.store(result.is_err(), Ordering::Relaxed);
            result
        });
        let received = receive(receiver, shape, operation, &failed);
        publishing.join().map_err(|_| BenchError::Panicked)??;
        received.map(|reordered| (started.elapsed().as_secs_f64(), reordered))
    })
}

/// Every body begins with its operation and number, so that the receiver can tell them apart.
fn publish(
    sender: &mut dyn queue::Sender,
    shape: Shape,
    operation: usize,
) -> Result<(), queue::QueueError> {
    let payload = Payload::new(shape.bytes, operation as u64);
    let per_batch = (BATCH_BYTES / shape.bytes).clamp(1, BATCH_MESSAGES);
    let mut bodies: Vec<Vec<u8>> = Vec::new();
    let mut next = 0;
    while next < shape.messages {
        let count = per_batch.min(shape.messages - next);
        bodies.clear();
        for number in next..next + count {
            let mut body = payload.get(number as u64).to_vec();
            body[..8].copy_from_slice(&mark(operation, number));
            bodies.push(body);
        }
        let batch: Vec<&[u8]> = bodies.iter().map(Vec::as_slice).collect();
        sender.send(&batch)?;
        next += count;
    }
    Ok(())
}

fn mark(operation: usize, number: usize) -> [u8; 8] {
    ((operation as u64) << 32 | number as u64).to_be_bytes()
}

/// Receives all messages of an operation; returns how many were out of order.
fn receive(
    receiver: &mut dyn queue::Receiver,
    shape: Shape,
    operation: usize,
    failed: &AtomicBool,
) -> Result<u64, BenchError> {
    let mut seen = vec![false; shape.messages];
    let (mut left, mut due, mut reordered, mut wrong) = (shape.messages, 0, 0, 0u64);
    let mut last = Instant::now();
    while left > 0 {
        let received = receiver.receive(BATCH_MESSAGES, RECEIVE_WAIT, &mut |body| {
            let mark = body.first_chunk::<8>().map(|mark| u64::from_be_bytes(*mark));
            let number = mark
                .filter(|mark| mark >> 32 == operation as u64 && body.len() == shape.bytes)
                .map(|mark| (mark & 0xffff_ffff) as usize);
            match number.and_then(|number| Some((number, seen.get_mut(number)?))) {
                Some((number, seen)) if !*seen => {
                    *seen = true;
                    left -= 1;
                    reordered += u64::from(number != due);
                    due = number + 1;
                }
                _ => wrong += 1,
            }
        })?;
        if received > 0 {
            receiver.ack()?;
            last = Instant::now();
        } else if last.elapsed() > ARRIVAL_LIMIT || failed.load(Ordering::Relaxed) {
            return Err(BenchError::Failed(format!("{left} messages of {} LOST", shape.messages)));
        }
        if wrong > 0 {
            return Err(BenchError::Failed(format!("{wrong} messages came twice or are not ours")));
        }
    }
    Ok(reordered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::fake::{FakeQueue, Faults};

    const SMALL: Shape = Shape { name: "small", bytes: 100, messages: 250 };

    fn try_with(faults: Faults) -> Result<(f64, u64), BenchError> {
        let queue = FakeQueue::new(faults);
        let (mut sender, mut receiver) = (queue.sender(0).unwrap(), queue.receiver(0).unwrap());
        one(sender.as_mut(), receiver.as_mut(), SMALL, 7)
    }

    #[test]
    fn all_arrive_in_order() {
        assert!(matches!(try_with(Faults::default()), Ok((_, 0))));
    }

    #[test]
    fn doubled_and_swapped_messages_are_noticed() {
        let doubled = try_with(Faults { double_each: Some(50), ..Faults::default() });
        assert!(doubled.unwrap_err().to_string().contains("twice"));
        let delivery_delay = Duration::from_millis(50);
        let swapped = try_with(Faults { swap_each: Some(50), delivery_delay, ..Faults::default() });
        assert!(swapped.unwrap().1 > 0);
    }

    #[test]
    fn a_dead_server_is_an_error() {
        let queue = FakeQueue::new(Faults { die_at: Some(10), ..Faults::default() });
        let (mut sender, mut receiver) = (queue.sender(0).unwrap(), queue.receiver(0).unwrap());
        let result = one(sender.as_mut(), receiver.as_mut(), SMALL, 0);
        assert!(result.unwrap_err().to_string().contains("connection refused"));
    }
}
