//! A node of the mqperf method: one process with several threads that either send or receive.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::metrics::Metrics;
use super::seen::Seen;
use super::stamp::{Pool, Stamp, unix_ns};
use crate::process;
use crate::queue::{Queue, QueueError, Receiver, Sender};
use crate::report::Latencies;

/// Windows a run may have; each costs every thread a histogram.
pub const MAX_WINDOWS: u32 = 120;

/// A receiver asks again after at most this long, so that it notices the end of the run.
const RECEIVE_WAIT: Duration = Duration::from_millis(500);

/// How often the end of a node is noticed by its CPU clock.
const CLOCK_POLL: Duration = Duration::from_millis(20);

/// Sender numbers: nodes are this far apart, so a node may have as many threads.
pub const MAX_THREADS: usize = 1000;

/// Whether a node sends or receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Sends.
    Sender,
    /// Receives and acknowledges.
    Receiver,
}

/// When what happens; the same for all nodes of a run.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Schedule {
    /// The start in nanoseconds since 1970.
    pub start_ns: u64,
    /// Not measured.
    pub warmup: Duration,
    /// Length of a window.
    pub window: Duration,
    /// How many windows are measured.
    pub windows: u32,
    /// After the last window receivers go on until nothing has come for this long.
    pub idle: Duration,
    /// But not longer than this.
    pub drain_limit: Duration,
}

impl Schedule {
    /// When the first window begins.
    pub fn first_ns(&self) -> u64 {
        self.start_ns + self.warmup.as_nanos() as u64
    }

    /// When the last window ends.
    pub fn end_ns(&self) -> u64 {
        self.first_ns() + self.window.as_nanos() as u64 * u64::from(self.windows)
    }

    /// The window that a moment lies in.
    fn window_at(&self, now_ns: u64) -> Option<usize> {
        let since = now_ns.checked_sub(self.first_ns())?;
        let window = since / (self.window.as_nanos() as u64).max(1);
        (window < u64::from(self.windows)).then_some(window as usize)
    }
}

/// Plan of a node.
#[derive(Debug, Clone)]
pub struct NodePlan {
    /// Sends or receives.
    pub role: Role,
    /// Number of the node among those of its role.
    pub node: u32,
    /// Threads, each with a connection.
    pub threads: usize,
    /// When.
    pub schedule: Schedule,
    /// Batches have a random size from 1 to this; receives ask for this many.
    pub batch: usize,
    /// Characters of a message.
    pub size: usize,
    /// Messages per second over all threads of this node (open loop); `None` sends as fast as the
    /// answers come (closed loop).
    pub rate: Option<f64>,
}

/// One window of a node.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Window {
    /// Messages sent or received.
    pub messages: u64,
    /// Latencies as pairs of nanoseconds and count: of sends, one per batch; of processing, one
    /// per message.
    pub latency_ns: Vec<(u64, u64)>,
}

/// Report of a node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NodeReport {
    /// Sends or receives.
    pub role: Role,
    /// Number among those of its role.
    pub node: u32,
    /// Its threads.
    pub threads: usize,
    /// Length of a window in seconds.
    pub window_s: f64,
    /// All windows in order.
    pub windows: Vec<Window>,
    /// CPU time used within the windows, in seconds.
    pub cpu_s: f64,
    /// How many messages each of its senders knows to be safe.
    pub confirmed: BTreeMap<u32, u64>,
    /// Messages seen by its receivers.
    pub seen: Seen,
    /// Whether a receiver gave up at the drain limit while messages were still coming.
    pub drain_cut: bool,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

/// Counts of one thread.
struct Counts {
    schedule: Schedule,
    messages: Vec<u64>,
    latencies: Vec<Latencies>,
}

impl Counts {
    fn new(schedule: Schedule) -> Self {
        let windows = schedule.windows.min(MAX_WINDOWS) as usize;
        let latencies = vec![Latencies::default(); windows];
        Self { schedule, messages: vec![0; windows], latencies }
    }

    fn note(&mut self, now_ns: u64, messages: u64, latency: Duration) {
        let Some(window) = self.schedule.window_at(now_ns) else { return };
        if let (Some(count), Some(latencies)) =
            (self.messages.get_mut(window), self.latencies.get_mut(window))
        {
            *count += messages;
            latencies.record(latency);
        }
    }

    fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.messages.iter_mut().zip(&other.messages) {
            *mine += theirs;
        }
        for (mine, theirs) in self.latencies.iter_mut().zip(&other.latencies) {
            mine.merge(theirs);
        }
    }

    fn windows(&self) -> Vec<Window> {
        let window = |(messages, latencies): (&u64, &Latencies)| Window {
            messages: *messages,
            latency_ns: latencies.pairs(),
        };
        self.messages.iter().zip(&self.latencies).map(window).collect()
    }
}

/// Results of a node's threads.
struct Gathered {
    counts: Counts,
    confirmed: BTreeMap<u32, u64>,
    seen: Seen,
    drain_cut: bool,
    error: Option<String>,
}

/// Runs a node to its end. Never fails: failures are part of the report.
pub fn run(queue: &dyn Queue, plan: &NodePlan, metrics: &Metrics) -> NodeReport {
    let gathered = Mutex::new(Gathered {
        counts: Counts::new(plan.schedule),
        confirmed: BTreeMap::new(),
        seen: Seen::default(),
        drain_cut: false,
        error: None,
    });
    let ended = AtomicBool::new(false);
    let cpu_s = thread::scope(|scope| {
        let clock = scope.spawn(|| cpu_within(&plan.schedule, &ended));
        let threads: Vec<_> = (0..plan.threads)
            .map(|index| {
                let (gathered, metrics) = (&gathered, &metrics);
                scope.spawn(move || one_thread(queue, plan, index, metrics, gathered))
            })
            .collect();
        let panicked = threads.into_iter().map(|t| t.join().is_err()).filter(|bad| *bad).count();
        if panicked > 0 {
            fail(&gathered, "a thread panicked".into());
        }
        ended.store(true, Ordering::Relaxed);
        clock.join().unwrap_or(0.0)
    });
    let gathered = match gathered.into_inner() {
        Ok(gathered) => gathered,
        Err(poisoned) => poisoned.into_inner(),
    };
    NodeReport {
        role: plan.role,
        node: plan.node,
        threads: plan.threads,
        window_s: plan.schedule.window.as_secs_f64(),
        windows: gathered.counts.windows(),
        cpu_s,
        confirmed: gathered.confirmed,
        seen: gathered.seen,
        drain_cut: gathered.drain_cut,
        error: gathered.error,
    }
}

fn fail(gathered: &Mutex<Gathered>, text: String) {
    if let Ok(mut gathered) = gathered.lock() {
        gathered.error.get_or_insert(text);
    }
}

fn one_thread(
    queue: &dyn Queue,
    plan: &NodePlan,
    index: usize,
    metrics: &Metrics,
    gathered: &Mutex<Gathered>,
) {
    let number = plan.node as usize * MAX_THREADS + index;
    let mut counts = Counts::new(plan.schedule);
    let result = match plan.role {
        Role::Sender => send(queue, plan, number, metrics, &mut counts, gathered),
        Role::Receiver => receive(queue, plan, number, metrics, &mut counts, gathered),
    };
    if let Ok(mut gathered) = gathered.lock() {
        gathered.counts.merge(&counts);
    }
    if let Err(err) = result {
        metrics.errors.inc();
        fail(gathered, err.to_string());
    }
}

fn send(
    queue: &dyn Queue,
    plan: &NodePlan,
    number: usize,
    metrics: &Metrics,
    counts: &mut Counts,
    gathered: &Mutex<Gathered>,
) -> Result<(), QueueError> {
    let mut connection = queue.sender(number)?;
    let mut batches = Batches::new(plan, number);
    sleep_until(plan.schedule.start_ns);
    let result = loop {
        if unix_ns() >= plan.schedule.end_ns() {
            break Ok(());
        }
        match batches.send_next(connection.as_mut()) {
            Ok((messages, latency, now_ns)) => {
                counts.note(now_ns, messages, latency);
                metrics.sent.inc_by(messages);
                metrics.send_seconds.observe(latency.as_secs_f64());
            }
            Err(err) => break Err(err),
        }
    };
    if let Ok(mut gathered) = gathered.lock() {
        gathered.confirmed.insert(number as u32, batches.seq);
    }
    result
}

/// Makes the batches of one sender.
struct Batches {
    sender: u32,
    pool: Pool,
    messages: Vec<Vec<u8>>,
    random: u64,
    /// Messages known to be safe; also the next sequence.
    seq: u64,
    /// With a set rate: nanoseconds per message, and when the next batch is due.
    pace: Option<(f64, f64)>,
}

impl Batches {
    fn new(plan: &NodePlan, number: usize) -> Self {
        let pool = Pool::new(plan.size, number as u64);
        let pace = plan.rate.map(|rate| {
            let interval_ns = 1e9 * plan.threads as f64 / rate;
            (interval_ns, plan.schedule.start_ns as f64)
        });
        let messages = vec![pool.message(0); plan.batch.max(1)];
        Self { sender: number as u32, pool, messages, random: number as u64 + 1, seq: 0, pace }
    }

    /// Sends a batch of random size. Returns its messages, its latency and the time.
    ///
    /// With a set rate the latency counts from when the batch was due, so a queue that stands still
    /// is charged for all messages that should have been sent meanwhile (coordinated omission).
    fn send_next(
        &mut self,
        connection: &mut dyn Sender,
    ) -> Result<(u64, Duration, u64), QueueError> {
        let count = 1 + (self.next_random() % self.messages.len() as u64) as usize;
        let sent_ns = self.wait_for_turn(count);
        for index in 0..count {
            let pick = self.next_random();
            let stamp = Stamp { sender: self.sender, seq: self.seq + index as u64, sent_ns };
            let message = &mut self.messages[index];
            self.pool.copy(pick, message);
            stamp.write(message);
        }
        let batch: Vec<&[u8]> = self.messages[..count].iter().map(Vec::as_slice).collect();
        connection.send(&batch)?;
        self.seq += count as u64;
        let now_ns = unix_ns();
        Ok((count as u64, Duration::from_nanos(now_ns.saturating_sub(sent_ns)), now_ns))
    }

    fn wait_for_turn(&mut self, count: usize) -> u64 {
        let Some((interval_ns, due_ns)) = &mut self.pace else { return unix_ns() };
        let due = *due_ns as u64;
        *due_ns += *interval_ns * count as f64;
        sleep_until(due);
        due
    }

    /// xorshift64 of Marsaglia.
    fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

fn receive(
    queue: &dyn Queue,
    plan: &NodePlan,
    number: usize,
    metrics: &Metrics,
    counts: &mut Counts,
    gathered: &Mutex<Gathered>,
) -> Result<(), QueueError> {
    let mut connection = queue.receiver(number)?;
    let mut seen = Seen::default();
    let result = receive_all(connection.as_mut(), plan, metrics, counts, &mut seen);
    if let Ok(mut gathered) = gathered.lock() {
        gathered.seen.merge(&seen);
        gathered.drain_cut |= result == Ok(true);
    }
    result.map(drop)
}

/// Receives until nothing comes any more. Says whether it gave up before that.
fn receive_all(
    connection: &mut dyn Receiver,
    plan: &NodePlan,
    metrics: &Metrics,
    counts: &mut Counts,
    seen: &mut Seen,
) -> Result<bool, QueueError> {
    let idle_ns = plan.schedule.idle.as_nanos() as u64;
    let end_ns = plan.schedule.end_ns();
    let limit_ns = end_ns + plan.schedule.drain_limit.as_nanos() as u64;
    let mut last_ns = end_ns;
    loop {
        let received = connection.receive(plan.batch, RECEIVE_WAIT, &mut |message| {
            let now_ns = unix_ns();
            let stamp = Stamp::read(message);
            if let Some(stamp) = stamp {
                let latency = Duration::from_nanos(now_ns.saturating_sub(stamp.sent_ns));
                counts.note(now_ns, 1, latency);
                metrics.processing_seconds.observe(latency.as_secs_f64());
            }
            seen.note(stamp);
        })?;
        let now_ns = unix_ns();
        if received > 0 {
            metrics.received.inc_by(received as u64);
            connection.ack()?;
            last_ns = last_ns.max(now_ns);
        } else if now_ns > last_ns + idle_ns {
            return Ok(false);
        }
        if now_ns > limit_ns {
            return Ok(true);
        }
    }
}

/// CPU time of this process within the windows, in seconds.
fn cpu_within(schedule: &Schedule, ended: &AtomicBool) -> f64 {
    let wait = |until_ns: u64| {
        while unix_ns() < until_ns && !ended.load(Ordering::Relaxed) {
            let left = Duration::from_nanos(until_ns.saturating_sub(unix_ns()));
            thread::sleep(left.min(CLOCK_POLL));
        }
        process::own_cpu()
    };
    let before = wait(schedule.first_ns());
    wait(schedule.end_ns()).saturating_sub(before).as_secs_f64()
}

fn sleep_until(until_ns: u64) {
    let now_ns = unix_ns();
    if until_ns > now_ns {
        thread::sleep(Duration::from_nanos(until_ns - now_ns));
    }
}
