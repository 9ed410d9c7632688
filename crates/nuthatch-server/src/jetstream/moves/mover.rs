//! The task of one move: copies, switches, tries again.

use super::super::pending_changes::{CHANGE_TIMEOUT, PendingChange};
use super::super::registry::{Entry, LogIndex, StreamRoute};
use super::super::service::{JetStream, unexpected};
use super::{Progress, closed, placed};
use nuthatch_protocol::js::StreamConfig;
use nuthatch_protocol::jserror::JsError;
use nuthatch_streams::migration::refusal_of;
use nuthatch_streams::op::{OpResult, Range, RangeRequest};
use nuthatch_streams::stream::StreamLocation;
use nuthatch_streams::{AccountId, Op, OpOutcome};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::{SemaphorePermit, oneshot};
use tokio::time::timeout;

/// Bytes that are read before they are stored, about: every store waits for the new log's medium, so
/// that many small ones would not keep up with publishers.
pub(super) const STORE_BYTES_MAX: u64 = 8 << 20;
/// Messages, likewise.
const STORE_MESSAGES_MAX: usize = 16 * 1024;
/// A copy this many messages behind is close enough to hold the stream for the rest.
const SWITCH_LAG: u64 = 4096;
/// So long the stream is held for the rest of the copy. If that does not suffice it goes on, and
/// the copy with it; each further try may take longer by as much. It is not held at all while the
/// new log needs more than half of that for a frame: the last of them cannot be taken back.
const HOLD_STEP: Duration = Duration::from_millis(600);
/// However many tries there were.
const HOLD_MAX: Duration = Duration::from_secs(20);
/// After a problem a move waits so long, and twice as long after each further one.
const RETRY_MIN: Duration = Duration::from_millis(250);
/// At most.
const RETRY_MAX: Duration = Duration::from_secs(10);

/// A stream that has moved.
struct Moved {
    /// How long it was held.
    held: Duration,
    /// Tells once the old log has forgotten it.
    forgotten: oneshot::Receiver<OpResult>,
}

/// How a move ends, or why it has not come to its end.
enum Fault {
    /// The stream or its copy is gone.
    Gone,
    /// It was cancelled.
    Cancelled,
    /// The new log stopped while it was taking over: what it holds shows after a restart.
    Undecided(JsError),
    /// It is worth another try.
    Problem(JsError),
}

impl From<JsError> for Fault {
    fn from(error: JsError) -> Self {
        if is_gone(&error) {
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
    /// Location of the stream.
    pub(super) source: StreamRoute,
    /// Location of the copy.
    pub(super) copy: StreamRoute,
    pub(super) progress: Arc<Progress>,
}

impl Mover {
    pub(super) async fn run(self) {
        let mut wait = RETRY_MIN;
        let mut tries = 0;
        let ended = loop {
            let began = Instant::now();
            match self.attempt(&mut tries).await {
                Ok(moved) => break Ok(moved),
                Err(Fault::Problem(error)) => {
                    if began.elapsed() > RETRY_MAX {
                        wait = RETRY_MIN;
                    }
                    self.tell(&error, wait);
                    let woken = self.progress.wake.notified();
                    // Woken early, it was cancelled.
                    let _ = timeout(wait, woken).await;
                    wait = (wait * 2).min(RETRY_MAX);
                }
                Err(fault) => break Err(fault),
            }
        };
        self.end(ended).await;
    }

    /// Says why the move has not come to its end: in its status always, in the server's log when it is
    /// for another reason than the last time.
    fn tell(&self, error: &JsError, wait: Duration) {
        let text = error.to_string();
        let before = self.progress.error.lock().replace(text.clone());
        if before.is_none_or(|before| without_numbers(&before) != without_numbers(&text)) {
            let (name, to) = (&self.name, &self.progress.to);
            self.service.core_port.say(&format!(
                "the move of stream {name:?} to log {to} does not come to its end: {text}; it is \
                 tried again in {wait:?}, later every {RETRY_MAX:?}, until it is cancelled"
            ));
        }
    }

    /// Clears up, says how it ended.
    async fn end(&self, ended: Result<Moved, Fault>) {
        let (name, to) = (&self.name, &self.progress.to);
        let error = match ended {
            Ok(Moved { held, forgotten }) => {
                let ms = held.as_millis();
                self.service.core_port.say(&format!(
                    "stream {name:?} has moved to log {to}; it was held for {ms} ms"
                ));
                if !self.is_forgotten(forgotten).await {
                    return;
                }
                None
            }
            Err(Fault::Cancelled) => {
                self.drop_copy().await;
                Some("cancelled".to_owned())
            }
            Err(Fault::Gone) => {
                self.drop_copy().await;
                Some("the stream was deleted".to_owned())
            }
            Err(Fault::Undecided(error) | Fault::Problem(error)) => {
                let text = format!(
                    "log {to} stopped while it took over stream {name:?} ({error}): the stream \
                     waits for a restart of the server, which finds out where it lives"
                );
                self.service.core_port.say(&text);
                Some(text)
            }
        };
        if error.is_none() {
            self.service.moves.known.lock().remove(&(self.account, name.clone()));
        }
        self.close(error);
    }

    /// The new log has refused the copy, or stopped before it answered.
    pub(super) async fn give_up(&self, error: &JsError) {
        self.drop_copy().await;
        self.close(Some(error.to_string()));
    }

    fn close(&self, error: Option<String>) {
        *self.progress.error.lock() = error;
        self.progress.ended.store(true, Ordering::Release);
        self.service.moves.active.fetch_sub(1, Ordering::AcqRel);
    }

    /// Waits until the old log has durably forgotten the stream. If it does not, the stream can be
    /// used, but neither be deleted nor move on before a restart: the move stays under way.
    async fn is_forgotten(&self, forgotten: oneshot::Receiver<OpResult>) -> bool {
        let error = match forgotten.await {
            Ok(Ok(_)) => return true,
            Ok(Err(error)) => error,
            Err(_) => closed(),
        };
        let (name, from) = (&self.name, &self.progress.from);
        let text = format!(
            "log {from} does not forget stream {name:?}, which has left it ({error}): until a restart \
             the stream can neither be deleted nor move on"
        );
        self.service.core_port.say(&text);
        *self.progress.error.lock() = Some(text);
        false
    }

    /// Drops the copy for good. The old log remembers first that it is not to be gone on with, or has
    /// durably forgotten the stream: a copy that cannot be dropped now goes with the next start.
    async fn drop_copy(&self) {
        let refused = Some(refusal_of(&self.progress.from, self.copy.id));
        let stay = Op::Stay { id: self.source.id, refused };
        match self.insist(self.source.engine, stay).await {
            Err(error) if !is_gone(&error) => self.service.core_port.say(&format!(
                "the move of stream {:?} was not given up, a restart goes on with it: {error}",
                self.name
            )),
            _ => self.forget_copy().await,
        }
    }

    async fn forget_copy(&self) {
        // Only a copy: were this stream the live one, the engine would refuse.
        let op = Op::Forget { id: self.copy.id, only_copy: true };
        if let Err(error) = self.insist(self.copy.engine, op).await
            && !is_gone(&error)
        {
            let (name, to) = (&self.name, &self.progress.to);
            self.service.core_port.say(&format!(
                "the unfinished copy of stream {name:?} in log {to} stays until a restart: {error}"
            ));
        }
    }

    /// Runs an operation, waiting for room as long as the log's queue is full: a stream that is held
    /// must not stay so because the server is busy.
    async fn insist(&self, engine: LogIndex, op: Op) -> Result<OpOutcome, JsError> {
        let outcome = self.service.begin(engine, op).await?;
        outcome.await.map_err(|_| closed())?
    }

    /// Waits for its turn.
    async fn turn(&self) -> Result<SemaphorePermit<'_>, Fault> {
        if self.progress.cancelled.load(Ordering::Acquire) {
            return Err(Fault::Cancelled);
        }
        tokio::select! {
            permit = self.service.moves.room.acquire() => {
                permit.map_err(|_| Fault::Problem(closed()))
            }
            () = self.progress.wake.notified() => Err(Fault::Cancelled),
        }
    }

    /// Copies from where the copy ends, and switches.
    async fn attempt(&self, tries: &mut u32) -> Result<Moved, Fault> {
        let _turn = self.turn().await?;
        let mut next = self.copied().await? + 1;
        loop {
            if self.progress.cancelled.load(Ordering::Acquire) {
                return Err(Fault::Cancelled);
            }
            let began = Instant::now();
            let range = self.gather(next).await?;
            let bytes = weight(&range);
            let last_seq = range.last_seq;
            self.progress.last_seq.store(last_seq, Ordering::Relaxed);
            next = self.store(next, range).await?;
            if last_seq < next + SWITCH_LAG {
                *tries += 1;
                let allowed = (HOLD_STEP * *tries).min(HOLD_MAX);
                self.check_is_quick(allowed).await?;
                if let Some(moved) = self.switch(next, allowed).await? {
                    return Ok(moved);
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
            self.rest(pause).await;
        }
    }

    /// Woken early, it was cancelled.
    async fn rest(&self, pause: Duration) {
        let _ = timeout(pause, self.progress.wake.notified()).await;
    }

    /// Whether the new log is so quick at the moment that the stream can be held for the two frames
    /// that a switch takes. Otherwise another attempt is made later, with more patience.
    async fn check_is_quick(&self, allowed: Duration) -> Result<(), JsError> {
        let began = Instant::now();
        self.insist(self.copy.engine, Op::Probe { id: self.copy.id }).await?;
        let took = began.elapsed();
        if took * 2 <= allowed {
            return Ok(());
        }
        let (to, ms) = (&self.progress.to, took.as_millis());
        let text = format!("log {to} takes {ms} ms to store a frame: trying again later");
        Err(JsError::STREAM_STORE_FAILED.with_err(text))
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

    /// Reads messages from a sequence on, as many as are stored at a time.
    async fn gather(&self, from: u64) -> Result<Range, JsError> {
        let bytes_max = STORE_BYTES_MAX.min(self.progress.rate_bytes);
        let mut all = self.read(from).await?;
        let mut bytes = weight(&all);
        while all.next <= all.last_seq
            && bytes < bytes_max
            && all.messages.len() < STORE_MESSAGES_MAX
        {
            let more = self.read(all.next).await?;
            if more.next <= all.next {
                break;
            }
            bytes += weight(&more);
            all.messages.extend(more.messages);
            (all.next, all.last_seq) = (more.next, more.last_seq);
        }
        Ok(all)
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

    /// Holds the stream, copies the rest, and lets the new log take over. `None` if the rest took
    /// too long, then it goes on where it was.
    async fn switch(&self, next: u64, allowed: Duration) -> Result<Option<Moved>, Fault> {
        // The stream may be about to change in a log that takes long.
        let Ok(changing) = self.service.lock_for(self.account, &self.name).await else {
            self.rest(CHANGE_TIMEOUT).await;
            return Ok(None);
        };
        let entry = self.service.entry(self.account, &self.name)?;
        if (entry.engine, entry.id) != (self.source.engine, self.source.id) {
            return Err(Fault::Gone);
        }
        let config = placed(&entry.config, &self.progress.to);
        let began = Instant::now();
        let pending = PendingChange::new(self.account, self.source.engine, entry.config.clone());
        let work = self.hold(&config, next, allowed);
        let (state, changing) = self.service.settle(changing, pending, work).await;
        let Some(state) = state? else { return Ok(None) };
        let pending = PendingChange::new(self.account, self.copy.engine, entry.config.clone());
        let (taken, _changing) =
            self.service.settle(changing, pending, self.take_over(state)).await;
        taken?;
        self.progress.switched.store(true, Ordering::Release);
        let new = Entry {
            id: self.copy.id,
            engine: self.copy.engine,
            config: Arc::new(config),
            ..(*entry).clone()
        };
        let seen = self.service.change(|registry| {
            registry.rehome(&entry, new);
            registry.version()
        });
        let forgotten = self.service.core_port.switch(self.source, self.copy, seen);
        // The stream lives in the new log now, whatever the answer is; it comes once the new engine
        // has everything in hand.
        let _ = self.copied().await;
        Ok(Some(Moved { held: began.elapsed(), forgotten }))
    }

    /// Holds the stream and copies the rest; returns its state, or `None` if it goes on where it was
    /// because that took too long.
    async fn hold(
        &self,
        config: &StreamConfig,
        next: u64,
        allowed: Duration,
    ) -> Result<Option<Vec<u8>>, Fault> {
        match timeout(allowed, self.prepare(config, next)).await {
            Ok(Ok(state)) => Ok(Some(state)),
            Ok(Err(error)) => {
                self.stay().await?;
                Err(error.into())
            }
            Err(_) => {
                self.stay().await?;
                Ok(None)
            }
        }
    }

    /// Holds the stream and copies the rest; returns its state. Given up half way, the stream has to
    /// be told to go on.
    async fn prepare(&self, config: &StreamConfig, next: u64) -> Result<Vec<u8>, JsError> {
        let (state, last_seq) = self.leave(config).await?;
        self.copy_rest(next, last_seq).await?;
        Ok(state)
    }

    /// Holds the stream; returns its state and its last sequence once all of it is durable.
    async fn leave(&self, config: &StreamConfig) -> Result<(Vec<u8>, u64), JsError> {
        let to = StreamLocation { log: self.progress.to.clone(), stream: self.copy.id };
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
        let op = Op::Stay { id: self.source.id, refused: None };
        self.insist(self.source.engine, op).await.map(drop)
    }

    async fn copy_rest(&self, mut next: u64, last_seq: u64) -> Result<(), JsError> {
        while next <= last_seq {
            let range = self.gather(next).await?;
            next = self.store(next, range).await?;
        }
        Ok(())
    }

    /// Makes the state durable in the new log. If the log stops meanwhile, whether it is durable is
    /// unknown.
    async fn take_over(&self, state: Vec<u8>) -> Result<(), Fault> {
        let op = Op::Settle { id: self.copy.id, state };
        let refused = match self.service.begin(self.copy.engine, op).await {
            Ok(outcome) => match outcome.await {
                Ok(Ok(OpOutcome::Unsettled(error))) => error,
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(error)) => return Err(Fault::Undecided(error)),
                Err(_) => return Err(Fault::Undecided(closed())),
            },
            // It was not even sent.
            Err(error) => error,
        };
        self.stay().await?;
        Err(Fault::Problem(refused))
    }
}

/// What stays the same of a text when durations and sequences in it change.
fn without_numbers(text: &str) -> String {
    text.chars().filter(|c| !c.is_ascii_digit()).collect()
}

fn is_gone(error: &JsError) -> bool {
    error.err_code == JsError::STREAM_NOT_FOUND.err_code
}

fn weight(range: &Range) -> u64 {
    let sizes = range.messages.iter().map(|message| message.publish().weight() as u64);
    sizes.sum()
}
