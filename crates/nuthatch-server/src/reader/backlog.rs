//! Backlog: publishes that the full queue of a log has refused.
//!
//! They wait here in their order, a queue for each log, and are offered again until the log takes
//! them. Nothing else of the connection waits behind them: acknowledgements, pulls and gets go
//! around them, and reading goes on, slower the more waits, so that a publisher that is too fast
//! feels it. What has waited too long, or finds no room here, is answered 429.

use super::ConnReader;
use super::refusal::Refusal;
use crate::jetstream_port::reroute;
use crate::jetstream_port::{LogId, Peer, SendError};
use crate::server::Server;
use nuthatch_streams::{ClientBatch, Event, Item};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A log that takes nothing for so long has its waiting publishes answered 429.
const STUCK_MAX: Duration = Duration::from_millis(500);
/// No publish waits longer than this, however the log moves.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// From this many waiting bytes on reads are slowed down.
const FREE_BYTES: usize = 1024 * 1024;
/// Slowed down, a read waits a millisecond for each of these many waiting bytes.
const BYTES_PER_MS: usize = 1024 * 1024;
/// Bytes that wait for one connection; publishes beyond are answered 429 at once.
const CONNECTION_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Bytes that wait over all connections.
const SERVER_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Memory of a queued batch beside its buffer and items.
const BATCH_BYTES: usize = 256;

/// Publishes of one connection that wait.
#[derive(Default)]
pub(super) struct Backlog {
    /// One queue for each log that has refused something; never an empty one.
    queues: Vec<Queue>,
    /// Memory of the backlog, in bytes.
    bytes: usize,
    /// The next read waits until then.
    read_at: Option<Instant>,
    /// The JetStream port's version when the queues were chosen.
    version: u64,
}

struct Queue {
    log: LogId,
    waiting: VecDeque<QueuedBatch>,
    /// When the log last took something, or refused first.
    moved: Instant,
}

struct QueuedBatch {
    batch: ClientBatch<Peer>,
    since: Instant,
}

fn weight(batch: &ClientBatch<Peer>) -> usize {
    BATCH_BYTES + batch.buf.len() + batch.items.len() * size_of::<Item>()
}

impl Backlog {
    /// True if publishes for this log wait already, so that later ones have to go behind them.
    pub(super) fn holds(&self, log: LogId) -> bool {
        self.queues.iter().any(|queue| queue.log == log)
    }

    /// True if nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Takes a batch in, or gives it back if there is no room.
    fn push(
        &mut self,
        server: &Server,
        log: LogId,
        batch: ClientBatch<Peer>,
        now: Instant,
    ) -> Result<(), ClientBatch<Peer>> {
        let weight = weight(&batch);
        let total = server.backlog_bytes.fetch_add(weight, Ordering::Relaxed) + weight;
        let fits = self.bytes + weight <= CONNECTION_BYTES_MAX || self.bytes == 0;
        if !fits || total > SERVER_BYTES_MAX {
            server.backlog_bytes.fetch_sub(weight, Ordering::Relaxed);
            return Err(batch);
        }
        self.bytes += weight;
        let queue = match self.queues.iter().position(|queue| queue.log == log) {
            Some(at) => &mut self.queues[at],
            None => {
                self.queues.push(Queue { log, waiting: VecDeque::new(), moved: now });
                self.queues.last_mut().expect("pushed above")
            }
        };
        queue.waiting.push_back(QueuedBatch { batch, since: now });
        Ok(())
    }

    fn forget(&mut self, server: &Server, weight: usize) {
        self.bytes -= weight;
        server.backlog_bytes.fetch_sub(weight, Ordering::Relaxed);
    }

    /// Offers the backlog to the logs; returns the batches that no log will take, with the reason.
    fn offer(&mut self, server: &Server, now: Instant) -> Vec<(LogId, ClientBatch<Peer>, Refusal)> {
        let mut refused = Vec::new();
        let mut queues = std::mem::take(&mut self.queues);
        for queue in &mut queues {
            self.offer_queue(queue, server, now, &mut refused);
        }
        queues.retain(|queue| !queue.waiting.is_empty());
        self.queues = queues;
        refused
    }

    fn offer_queue(
        &mut self,
        queue: &mut Queue,
        server: &Server,
        now: Instant,
        refused: &mut Vec<(LogId, ClientBatch<Peer>, Refusal)>,
    ) {
        while let Some(QueuedBatch { batch, since }) = queue.waiting.pop_front() {
            let weight = weight(&batch);
            match server.jetstream().send(queue.log, Event::Batch(batch), false, 0) {
                Ok(()) => queue.moved = now,
                Err(SendError::Closed(Event::Batch(batch))) => {
                    refused.push((queue.log, batch, Refusal::Closed));
                }
                Err(SendError::Busy(Event::Batch(batch))) => {
                    let is_stuck = now.saturating_duration_since(queue.moved) >= STUCK_MAX;
                    if !is_stuck && now.saturating_duration_since(since) < WAIT_MAX {
                        queue.waiting.push_front(QueuedBatch { batch, since });
                        return;
                    }
                    refused.push((queue.log, batch, Refusal::Busy));
                }
                // The JetStream port gives back what it was given.
                Err(_) => {}
            }
            self.forget(server, weight);
        }
    }

    /// How long the next read waits for what is here; `None`: it need not.
    fn pace(&self) -> Option<Duration> {
        let over = self.bytes.checked_sub(FREE_BYTES)?;
        Some(Duration::from_millis(1 + (over / BYTES_PER_MS) as u64))
    }

    /// Takes everything out, with where it is to go.
    fn drain_queues(&mut self, server: &Server) -> Vec<(LogId, ClientBatch<Peer>)> {
        self.forget(server, self.bytes);
        let mut all = Vec::new();
        for queue in std::mem::take(&mut self.queues) {
            all.extend(queue.waiting.into_iter().map(|waiting| (queue.log, waiting.batch)));
        }
        all
    }
}

impl ConnReader {
    /// Sends a batch to its log. What a full queue refuses of it waits, if it may.
    pub(super) fn submit(&mut self, log: LogId, batch: ClientBatch<Peer>) {
        if self.backlog.is_some() {
            self.follow_moves();
        }
        if self.backlog.as_ref().is_some_and(|backlog| backlog.holds(log)) {
            return self.hold(log, batch);
        }
        match self.server.jetstream().send(log, Event::Batch(batch), false, self.seen) {
            Err(SendError::Busy(Event::Batch(batch))) => self.hold(log, batch),
            Err(SendError::Closed(Event::Batch(batch))) => self.refuse_closed(log, batch),
            // The JetStream port gives back what it was given.
            Ok(()) | Err(_) => {}
        }
    }

    /// What a closed log did not take waits for its next owner, if that is to have it, or is answered.
    fn refuse_closed(&mut self, log: LogId, batch: ClientBatch<Peer>) {
        if let Some(batch) = self.await_owner(log, batch) {
            self.refuse_batch(log, &batch, Refusal::Closed);
        }
    }

    /// Keeps the publishes of a refused batch; everything else goes around them.
    fn hold(&mut self, log: LogId, batch: ClientBatch<Peer>) {
        let ClientBatch { peer, buf, items } = batch;
        let is_publish = |item: &Item| matches!(item, Item::Publish(_));
        let (publishes, others): (Vec<_>, Vec<_>) = items.into_iter().partition(is_publish);
        if !others.is_empty() {
            let others = ClientBatch { peer: peer.clone(), buf: buf.clone(), items: others };
            match self.server.jetstream().send(log, Event::Batch(others), true, 0) {
                Err(SendError::Busy(Event::Batch(batch))) => {
                    self.refuse_batch(log, &batch, Refusal::Busy)
                }
                Err(SendError::Closed(Event::Batch(batch))) => self.refuse_closed(log, batch),
                Ok(()) | Err(_) => {}
            }
        }
        if publishes.is_empty() {
            return;
        }
        self.keep(log, ClientBatch { peer, buf, items: publishes });
    }

    /// Keeps publishes, behind those that wait for the logs in which their streams are now.
    fn keep(&mut self, log: LogId, batch: ClientBatch<Peer>) {
        let server = self.server.clone();
        let jetstream = server.jetstream();
        let version = jetstream.version();
        let parts = reroute::split(log, &batch, |at| jetstream.moved(at.log, at.stream));
        for (log, part) in parts.unwrap_or_else(|| vec![(log, batch)]) {
            let backlog = self
                .backlog
                .get_or_insert_with(|| Box::new(Backlog { version, ..Backlog::default() }));
            if let Err(batch) = backlog.push(&server, log, part, Instant::now()) {
                self.refuse_batch(log, &batch, Refusal::Busy);
            }
        }
    }

    /// If streams have come, gone or moved since anything waits, what waits goes behind whatever
    /// waits for the logs in which its streams are now: later publishes must not overtake it.
    fn follow_moves(&mut self) {
        let version = self.server.jetstream().version();
        let Some(mut backlog) = self.backlog.take_if(|backlog| backlog.version != version) else {
            return;
        };
        let server = self.server.clone();
        let waiting = backlog.drain_queues(&server);
        self.backlog = None;
        for (log, batch) in waiting {
            self.keep(log, batch);
        }
    }

    /// Offers the backlog again and answers what has waited too long.
    pub(super) fn offer_backlog(&mut self) {
        let Some(mut backlog) = self.backlog.take() else { return };
        // What is offered last was sent last, and waits behind.
        for (log, batch, refusal) in backlog.offer(&self.server, Instant::now()).into_iter().rev() {
            match refusal {
                Refusal::Closed => self.refuse_closed(log, batch),
                refusal => self.refuse_batch(log, &batch, refusal),
            }
        }
        if !backlog.is_empty() {
            self.backlog = Some(backlog);
        }
    }

    /// True if the next read must wait for what is in the backlog.
    pub(super) fn is_paced(&self) -> bool {
        let read_at = self.backlog.as_ref().and_then(|backlog| backlog.read_at);
        read_at.is_some_and(|at| at > Instant::now())
    }

    /// A read has been made: the next one waits the longer the more is in the backlog.
    pub(super) fn pace(&mut self) {
        if let Some(backlog) = &mut self.backlog {
            backlog.read_at = backlog.pace().map(|pause| Instant::now() + pause);
        }
    }

    /// The connection is closed: the remaining backlog is counted and logged.
    pub(super) fn abandon_backlog(&mut self) {
        let Some(mut backlog) = self.backlog.take() else { return };
        for (log, batch) in backlog.drain_queues(&self.server) {
            self.refuse_batch(log, &batch, Refusal::Busy);
        }
    }
}

impl Drop for ConnReader {
    /// Also when a reader ends by a panic: what it held no longer counts.
    fn drop(&mut self) {
        let server: Arc<Server> = self.server.clone();
        if let Some(backlog) = &mut self.backlog {
            backlog.drain_queues(&server);
        }
    }
}
