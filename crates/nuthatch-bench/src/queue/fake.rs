//! A queue in memory whose faults are known, so that the harness itself can be tested: delays,
//! messages lost, sent twice or out of order, and a server that dies.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::{Guarantee, Queue, QueueError, Receiver, Sender, Source};

/// Injected faults.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Every send takes this long.
    pub send_delay: Duration,
    /// The send with this number takes `stall` longer.
    pub stall_at: Option<u64>,
    /// How much longer.
    pub stall: Duration,
    /// A message can be received only this long after it was sent.
    pub delivery_delay: Duration,
    /// Of this many messages one is acknowledged and lost.
    pub lose_each: Option<u64>,
    /// Of this many messages one is delivered twice.
    pub double_each: Option<u64>,
    /// Of this many messages one is delivered before the one sent before it.
    pub swap_each: Option<u64>,
    /// The server dies at this many messages.
    pub die_at: Option<u64>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<(Instant, Vec<u8>)>,
    taken: u64,
}

/// The queue. Clones share their messages.
#[derive(Clone, Default)]
pub struct FakeQueue {
    faults: Faults,
    state: Arc<(Mutex<State>, Condvar)>,
    sends: Arc<AtomicU64>,
}

impl FakeQueue {
    /// An empty queue with these faults.
    pub fn new(faults: Faults) -> Self {
        Self { faults, ..Self::default() }
    }

    fn take_in(&self, body: &[u8]) -> Result<(), QueueError> {
        let faults = &self.faults;
        let hits = |each: Option<u64>, number: u64| each.is_some_and(|n| number.is_multiple_of(n));
        let ready = Instant::now() + faults.delivery_delay;
        let mut state = self.state.0.lock().unwrap();
        state.taken += 1;
        let number = state.taken;
        if faults.die_at.is_some_and(|limit| number >= limit) {
            return Err(dead());
        }
        if hits(faults.lose_each, number) {
            return Ok(());
        }
        state.waiting.push_back((ready, body.to_vec()));
        let last = state.waiting.len() - 1;
        if hits(faults.swap_each, number) && last > 0 {
            state.waiting.swap(last - 1, last);
        }
        if hits(faults.double_each, number) {
            state.waiting.push_back((ready, body.to_vec()));
        }
        Ok(())
    }
}

fn dead() -> QueueError {
    QueueError { driver: "fake", action: "send", reason: "connection refused".into() }
}

impl Queue for FakeQueue {
    fn guarantee(&self) -> Result<Guarantee, QueueError> {
        Ok(Guarantee { replicated: "no".into(), fsync: "no".into(), source: Source::Asked })
    }

    fn prepare(&self) -> Result<(), QueueError> {
        self.state.0.lock().unwrap().waiting.clear();
        Ok(())
    }

    fn sender(&self, _index: usize) -> Result<Box<dyn Sender>, QueueError> {
        Ok(Box::new(self.clone()))
    }

    fn receiver(&self, _index: usize) -> Result<Box<dyn Receiver>, QueueError> {
        Ok(Box::new(self.clone()))
    }
}

impl Sender for FakeQueue {
    fn send(&mut self, batch: &[&[u8]]) -> Result<(), QueueError> {
        let number = self.sends.fetch_add(1, Ordering::Relaxed);
        let stall = self.faults.stall_at == Some(number);
        let delay = self.faults.send_delay + if stall { self.faults.stall } else { Duration::ZERO };
        if !delay.is_zero() {
            thread::sleep(delay);
        }
        batch.iter().try_for_each(|body| self.take_in(body))?;
        self.state.1.notify_all();
        Ok(())
    }
}

impl Receiver for FakeQueue {
    fn receive(
        &mut self,
        max: usize,
        wait: Duration,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<usize, QueueError> {
        let deadline = Instant::now() + wait;
        let mut state = self.state.0.lock().unwrap();
        loop {
            let now = Instant::now();
            let mut count = 0;
            while count < max && state.waiting.front().is_some_and(|(ready, _)| *ready <= now) {
                let Some((_, body)) = state.waiting.pop_front() else { break };
                each(&body);
                count += 1;
            }
            if count > 0 || now >= deadline {
                return Ok(count);
            }
            let next = state.waiting.front().map_or(deadline, |(ready, _)| *ready.min(&deadline));
            state =
                self.state.1.wait_timeout(state, next.saturating_duration_since(now)).unwrap().0;
        }
    }

    fn ack(&mut self) -> Result<(), QueueError> {
        Ok(())
    }
}
