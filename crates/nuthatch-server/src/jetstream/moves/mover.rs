//! The task of one move: copies, switches, tries again.

use super::super::registry::{EngineIndex, Entry, StreamRoute};
use super::super::service::{JetStream, unexpected};
use super::{Progress, closed, placed};
use nuthatch_protocol::js::StreamConfig;
use nuthatch_protocol::jserror::JsError;
use nuthatch_streams::op::{Range, RangeRequest};
use nuthatch_streams::stream::Place;
use nuthatch_streams::{AccountId, Op, OpOutcome};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A copy this many messages behind is close enough to hold the stream for the rest.
const SWITCH_LAG: u64 = 4096;
/// So long the stream is held for the rest of the copy. If that does not suffice it goes on, and
/// the copy with it; each further try may take longer by as much.
const HOLD_STEP: Duration = Duration::from_millis(600);
/// However many tries there were.
const HOLD_MAX: Duration = Duration::from_secs(20);
/// After a problem a move waits so long, and twice as long after each further one.
const RETRY_MIN: Duration = Duration::from_millis(250);
/// At most.
const RETRY_MAX: Duration = Duration::from_secs(10);

/// How a move ends, or why it has not come to its end.
enum Fault {
    /// The stream or its copy is gone.
    Gone,
    /// Somebody gave it up.
    Cancelled,
    /// The new log stopped while it was taking over: what it holds shows after a restart.
    Undecided(JsError),
    /// It is worth another try.
    Problem(JsError),
}

impl From<JsError> for Fault {
    fn from(error: JsError) -> Self {
        if error.err_code == JsError::STREAM_NOT_FOUND.err_code {
            return Self::Gone;
        }
        Self::Problem(error)
    }
}

/// The task of one move.
pub(super) struct Mover {
    pub(super) service: Arc<JetStream>,
    pub(super) account: AccountId,
    pub(super) name: String,
    /// Where the stream is.
    pub(super) source: StreamRoute,
    /// Where it goes.
    pub(super) copy: StreamRoute,
    pub(super) progress: Arc<Progress>,
}

impl Mover {
    pub(super) async fn run(self) {
        let mut wait = RETRY_MIN;
        let mut holds = 0;
        let ended = loop {
            let began = Instant::now();
            match self.attempt(&mut holds).await {
                Ok(held) => break Ok(held),
                Err(Fault::Problem(error)) => {
                    if began.elapsed() > RETRY_MAX {
                        wait = RETRY_MIN;
                    }
                    *self.progress.error.lock() = Some(error.to_string());
                    let woken = self.progress.wake.notified();
                    // Woken early, it was cancelled.
                    let _ = tokio::time::timeout(wait, woken).await;
                    wait = (wait * 2).min(RETRY_MAX);
                }
                Err(fault) => break Err(fault),
            }
        };
        self.end(ended).await;
    }

    /// Clears up, says how it ended.
    async fn end(&self, ended: Result<Duration, Fault>) {
        let (name, to) = (&self.name, &self.progress.to);
        let error = match ended {
            Ok(held) => {
                let ms = held.as_millis();
                self.service.backend.say(&format!(
                    "stream {name:?} has moved to log {to}; it was held for {ms} ms"
                ));
                None
            }
            Err(Fault::Cancelled) => {
                let stay = Op::Stay { id: self.source.id, for_good: true };
                match self.insist(self.source.engine, stay).await {
                    Ok(_) => self.forget_copy().await,
                    Err(error) => self.service.backend.say(&format!(
                        "the move of stream {name:?} was not given up, a restart goes on with it: \
                         {error}"
                    )),
                }
                Some("cancelled".to_owned())
            }
            Err(Fault::Gone) => {
                self.forget_copy().await;
                Some("the stream was deleted".to_owned())
            }
            Err(Fault::Undecided(error) | Fault::Problem(error)) => {
                let text = format!(
                    "log {to} stopped while it took over stream {name:?} ({error}): the stream \
                     waits for a restart of the server, which finds out where it lives"
                );
                self.service.backend.say(&text);
                Some(text)
            }
        };
        let mut known = self.service.moves.known.lock();
        match error {
            None => {
                known.remove(&(self.account, name.clone()));
            }
            error => *self.progress.error.lock() = error,
        }
        drop(known);
        self.progress.ended.store(true, Ordering::Release);
        self.service.moves.active.fetch_sub(1, Ordering::AcqRel);
    }

    async fn forget_copy(&self) {
        // Only a copy: were this stream the live one, the engine would refuse.
        let op = Op::Forget { id: self.copy.id, only_copy: true };
        if let Err(error) = self.insist(self.copy.engine, op).await {
            let (name, to) = (&self.name, &self.progress.to);
            self.service.backend.say(&format!(
                "the unfinished copy of stream {name:?} in log {to} stays until a restart: {error}"
            ));
        }
    }

    /// Runs an operation, waiting for room as long as the log's queue is full: a stream that is held
    /// must not stay so because the server is busy.
    async fn insist(&self, engine: EngineIndex, op: Op) -> Result<OpOutcome, JsError> {
        let outcome = self.service.begin(engine, op).await?;
        outcome.await.map_err(|_| closed())?
    }

    /// Copies from where the copy ends, and switches. Returns how long the stream was held.
    async fn attempt(&self, holds: &mut u32) -> Result<Duration, Fault> {
        let mut next = self.copied().await? + 1;
        loop {
            if self.progress.cancelled.load(Ordering::Acquire) {
                return Err(Fault::Cancelled);
            }
            let began = Instant::now();
            let range = self.read(next).await?;
            let bytes = weight(&range);
            let last_seq = range.last_seq;
            self.progress.last_seq.store(last_seq, Ordering::Relaxed);
            next = self.store(next, range).await?;
            if last_seq < next + SWITCH_LAG {
                *holds += 1;
                if let Some(held) = self.switch(next, *holds).await? {
                    return Ok(held);
                }
                next = self.copied().await? + 1;
            } else {
                self.pace(bytes, began).await;
            }
        }
    }

    /// Waits as long as the rate asks for after so many bytes.
    async fn pace(&self, bytes: u64, began: Instant) {
        let due = Duration::from_secs_f64(bytes as f64 / self.progress.rate_bytes.max(1) as f64);
        if let Some(pause) = due.checked_sub(began.elapsed()) {
            // Woken early, it was cancelled.
            let _ = tokio::time::timeout(pause, self.progress.wake.notified()).await;
        }
    }

    /// The last sequence that is durable in the copy.
    async fn copied(&self) -> Result<u64, JsError> {
        let op = Op::StreamInfo {
            id: self.copy.id,
            deleted_details: false,
            subjects_filter: String::new(),
            offset: 0,
        };
        match self.insist(self.copy.engine, op).await? {
            OpOutcome::Stream { info, .. } => Ok(info.state.last_seq),
            other => Err(unexpected(&other)),
        }
    }

    async fn read(&self, from: u64) -> Result<Range, JsError> {
        let request = RangeRequest { from, ..RangeRequest::default() };
        let op = Op::ReadRange { id: self.source.id, request };
        match self.insist(self.source.engine, op).await? {
            OpOutcome::Range(range) => Ok(range),
            other => Err(unexpected(&other)),
        }
    }

    /// Stores what was read in the copy; returns where to go on. Nothing else is on its way: behind a
    /// store that was refused, a later one would be taken all the same, and leave a hole that no
    /// retry goes back to.
    async fn store(&self, from: u64, range: Range) -> Result<u64, JsError> {
        let next = range.next;
        if next > from {
            let op = Op::Mirror { id: self.copy.id, copies: range.messages, gap_to: next - 1 };
            self.insist(self.copy.engine, op).await?;
            self.progress.copied.store(next - 1, Ordering::Relaxed);
        }
        Ok(next)
    }

    /// Holds the stream, copies the rest, and lets the new log take over. Returns how long the
    /// stream was held; `None` if the rest took too long, then it goes on where it was.
    async fn switch(&self, next: u64, tries: u32) -> Result<Option<Duration>, Fault> {
        let _changing = self.service.changing.lock().await;
        let entry = self.service.entry(self.account, &self.name)?;
        if (entry.engine, entry.id) != (self.source.engine, self.source.id) {
            return Err(Fault::Gone);
        }
        let config = placed(&entry.config, &self.progress.to);
        let began = Instant::now();
        let (state, last_seq) = self.leave(&config).await?;
        let allowed = (HOLD_STEP * tries).min(HOLD_MAX);
        match tokio::time::timeout(allowed, self.copy_rest(next, last_seq)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                self.stay().await?;
                return Err(error.into());
            }
            Err(_) => {
                self.stay().await?;
                return Ok(None);
            }
        }
        self.take_over(state).await?;
        let new = Entry {
            id: self.copy.id,
            engine: self.copy.engine,
            config: Arc::new(config),
            ..(*entry).clone()
        };
        let seen = self.service.change(|registry| {
            registry.rehome(&entry, new);
            registry.generation()
        });
        self.service.backend.switch(self.source, self.copy, seen);
        // The stream lives in the new log now, whatever the answer is; it comes once the new engine
        // has everything in hand.
        let _ = self.copied().await;
        Ok(Some(began.elapsed()))
    }

    /// Holds the stream; returns its state and its last sequence once all of it is durable.
    async fn leave(&self, config: &StreamConfig) -> Result<(Vec<u8>, u64), JsError> {
        let to = Place { log: self.progress.to.clone(), stream: self.copy.id };
        let op = Op::Leave {
            id: self.source.id,
            log: self.progress.from.clone(),
            to,
            config: Box::new(config.clone()),
        };
        match self.insist(self.source.engine, op).await? {
            OpOutcome::Left { state, last_seq } => Ok((state, last_seq)),
            other => Err(unexpected(&other)),
        }
    }

    async fn stay(&self) -> Result<(), JsError> {
        let op = Op::Stay { id: self.source.id, for_good: false };
        self.insist(self.source.engine, op).await.map(drop)
    }

    async fn copy_rest(&self, mut next: u64, last_seq: u64) -> Result<(), JsError> {
        while next <= last_seq {
            let range = self.read(next).await?;
            next = self.store(next, range).await?;
        }
        Ok(())
    }

    /// The new log makes the state durable. If it stops meanwhile, nobody knows whether it has.
    async fn take_over(&self, state: Vec<u8>) -> Result<(), Fault> {
        let op = Op::Settle { id: self.copy.id, state };
        let Err(error) = self.insist(self.copy.engine, op).await else { return Ok(()) };
        if self.service.backend.has_stopped(self.copy.engine) {
            return Err(Fault::Undecided(error));
        }
        self.stay().await?;
        Err(Fault::Problem(error))
    }
}

fn weight(range: &Range) -> u64 {
    let sizes = range.messages.iter().map(|message| message.publish().weight() as u64);
    sizes.sum()
}
