//! The task of one move: does what [`nuthatch_streams::migration::mover`] says, and tells it what became
//! of it. Nothing here decides about a step.

use super::{StreamMoves, closed};
use crate::log_names::placed;
use crate::move_table::Progress;
use crate::pending_changes::{CHANGE_TIMEOUT, Changing, claim};
use crate::registry::{Entry, Registry};
use nuthatch_protocol::jserror::JsError;
use nuthatch_server::jetstream_port::StreamRoute;
use nuthatch_streams::migration::mover::{
    Action, Ended, GivenUp, Happened, Mover, Now, Pace, Phase, Plan, Side,
};
use nuthatch_streams::op::OpResult;
use nuthatch_streams::stream::StreamLocation;
use nuthatch_streams::{AccountId, Op};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::{SemaphorePermit, oneshot};
use tokio::time::timeout;

/// Bytes that are read before they are stored, about ([`Pace::store_bytes_max`]).
pub(super) const STORE_BYTES_MAX: u64 = 8 << 20;
/// Messages, likewise.
const STORE_MESSAGES_MAX: usize = 16 * 1024;
/// See [`Pace::switch_lag`].
const SWITCH_LAG: u64 = 4096;
/// See [`Pace::hold_step`].
const HOLD_STEP: Duration = Duration::from_millis(600);
/// See [`Pace::hold_max`].
const HOLD_MAX: Duration = Duration::from_secs(20);
/// How long it is waited until the new log has what the old one had in memory, which is told by other means, too.
const SWITCH_MAX: Duration = Duration::from_secs(5);
/// See [`Pace::retry_min`].
const RETRY_MIN: Duration = Duration::from_millis(250);
/// See [`Pace::retry_max`].
const RETRY_MAX: Duration = Duration::from_secs(10);

/// The task of one move.
pub(super) struct MoveDriver {
    pub(super) service: Arc<StreamMoves>,
    pub(super) account: AccountId,
    pub(super) name: String,
    /// Location of the stream.
    pub(super) source: StreamRoute,
    /// Location of the copy.
    pub(super) copy: StreamRoute,
    /// The same as records call them.
    pub(super) source_place: StreamLocation,
    pub(super) copy_place: StreamLocation,
    pub(super) progress: Arc<Progress>,
    /// What the mover's time is counted from.
    pub(super) origin: Instant,
}

/// What the task holds between two steps.
#[derive(Default)]
struct Holds<'a> {
    turn: Option<SemaphorePermit<'a>>,
    /// Tells once the old log has forgotten the stream.
    forgotten: Option<oneshot::Receiver<OpResult>>,
}

impl MoveDriver {
    pub(super) async fn run(self) {
        let mut mover = self.mover();
        let first = self.step(&mut mover, Happened::Began);
        let ended = self.drive(&mut mover, first).await;
        self.end(ended, None);
    }

    /// The new log has refused the copy, or stopped before it answered.
    pub(super) async fn give_up(&self, error: &JsError) {
        let mut mover = self.mover();
        let first = mover.give_up();
        let ended = self.drive(&mut mover, first).await;
        self.end(ended, Some(error));
    }

    fn mover(&self) -> Mover {
        let plan = Plan { source: self.source_place.clone(), copy: self.copy_place.clone() };
        let pace = Pace {
            store_bytes_max: STORE_BYTES_MAX,
            store_messages_max: STORE_MESSAGES_MAX,
            switch_lag: SWITCH_LAG,
            hold_step: HOLD_STEP,
            hold_max: HOLD_MAX,
            retry_min: RETRY_MIN,
            retry_max: RETRY_MAX,
            busy_pause: CHANGE_TIMEOUT,
            rate_bytes: self.progress.rate_bytes.max(1),
        };
        Mover::new(plan, pace)
    }

    fn now(&self) -> Now {
        self.origin.elapsed()
    }

    /// Tells the mover what happened, and others how far it is.
    fn step(&self, mover: &mut Mover, happened: Happened) -> Action {
        if self.progress.cancelled.load(Ordering::Acquire) {
            mover.cancel();
        }
        let action = mover.step(happened, self.now());
        let progress = mover.progress();
        self.progress.copied.store(progress.copied_seq, Ordering::Relaxed);
        self.progress.last_seq.store(progress.last_seq, Ordering::Relaxed);
        self.progress.switched.store(progress.switched, Ordering::Release);
        action
    }

    async fn drive(&self, mover: &mut Mover, mut action: Action) -> Ended {
        let mut holds = Holds::default();
        loop {
            if !mover.needs_turn() {
                holds.turn = None;
            }
            let happened = match action {
                Action::TakeTurn => self.take_turn(&mut holds).await,
                Action::Run { side, op, until } => self.perform(side, op, until).await,
                Action::Rest { until } => self.rest(until).await,
                Action::Retry { until, wait, error } => {
                    self.tell(&error, wait);
                    self.rest(until).await
                }
                Action::Lock => match self.lock().await {
                    Ok((changing, entry)) => {
                        action = self.switch(mover, changing, &entry, &mut holds).await;
                        continue;
                    }
                    Err(happened) => happened,
                },
                Action::Switch => panic!("a stream is switched under the lock of its name"),
                Action::AwaitForgotten => {
                    self.say_moved(mover.progress().held);
                    let forgotten = holds.forgotten.take().expect("the stream was switched");
                    forgotten.await.map_or_else(|_| Happened::NoAnswer(closed()), Happened::Outcome)
                }
                Action::End(ended) => return ended,
            };
            action = self.step(mover, happened);
        }
    }

    /// Waits for its turn, or until it is cancelled.
    async fn take_turn<'a>(&'a self, holds: &mut Holds<'a>) -> Happened {
        tokio::select! {
            permit = self.service.table.room.acquire() => {
                holds.turn = permit.ok();
                Happened::Turn(holds.turn.is_some())
            }
            () = self.progress.wake.notified() => Happened::Turn(true),
        }
    }

    /// Woken early, it was cancelled.
    async fn rest(&self, until: Now) -> Happened {
        let pause = until.saturating_sub(self.now());
        let _ = timeout(pause, self.progress.wake.notified()).await;
        Happened::Rested
    }

    /// Runs an operation, waiting for room as long as the log's queue is full: a stream that is held
    /// must not stay so because the server is busy.
    async fn perform(&self, side: Side, op: Op, until: Option<Now>) -> Happened {
        let engine = match side {
            Side::Source => self.source.log,
            Side::Copy => self.copy.log,
        };
        let work = async {
            match self.service.calls.begin(engine, op).await {
                Ok(outcome) => {
                    outcome.await.map_or_else(|_| Happened::NoAnswer(closed()), Happened::Outcome)
                }
                Err(error) => Happened::NotSent(error),
            }
        };
        match until {
            None => work.await,
            Some(until) => {
                let limit = until.saturating_sub(self.now());
                timeout(limit, work).await.unwrap_or(Happened::Late)
            }
        }
    }

    /// The right to change the stream's name, if it is where it was.
    async fn lock(&self) -> Result<(Changing, Arc<Entry>), Happened> {
        // The stream may be about to change in a log that takes long.
        let Ok(changing) = self.service.rights.lock(self.account, &self.name).await else {
            return Err(Happened::LockBusy);
        };
        match self.service.streams.entry(self.account, &self.name) {
            Ok(entry) if (entry.engine, entry.id) == (self.source.log, self.source.stream) => {
                Ok((changing, entry))
            }
            _ => Err(Happened::Elsewhere),
        }
    }

    /// Everything for which the stream's name is kept from others. Returns what is to be done behind it.
    async fn switch(
        &self,
        mover: &mut Mover,
        changing: Changing,
        entry: &Arc<Entry>,
        holds: &mut Holds<'_>,
    ) -> Action {
        let config = placed(&entry.config, &self.progress.to);
        let action = self.step(mover, Happened::Locked(Box::new(config.clone())));
        let pending = claim(self.source.log, entry.config.clone());
        let work = self.while_in(Phase::Held, mover, action);
        let (action, changing) = changing.settle(pending, work).await;
        if mover.phase() != Phase::Settling {
            return action;
        }
        let pending = claim(self.copy.log, entry.config.clone());
        let work = self.while_in(Phase::Settling, mover, action);
        let (action, _changing) = changing.settle(pending, work).await;
        if action != Action::Switch {
            return action;
        }
        let (id, engine) = (self.copy.stream, self.copy.log);
        let new = Entry { id, engine, config: Arc::new(config), ..(**entry).clone() };
        let seen = self.service.streams.change(|registry| {
            self.change_home(registry, entry, new);
            registry.version()
        });
        holds.forgotten = Some(self.service.logs.switch(self.source, self.copy, seen));
        let action = self.step(mover, Happened::Switched);
        self.while_in(Phase::Switching, mover, action).await
    }

    /// The stream's name means the new log. Either log may have left this node a moment ago, with all that is in it.
    fn change_home(&self, registry: &mut Registry, old: &Entry, new: Entry) {
        let known = registry.get(self.account, &self.name);
        let was_here = known.is_some_and(|known| known.route() == old.route());
        match (was_here, self.service.logs.is_attached(new.engine)) {
            (true, true) => registry.rehome(old, new),
            (false, true) if known.is_none() => registry.insert(new),
            (true, false) => {
                if let Some((key, gone)) = registry.take(self.account, &self.name) {
                    registry.drop_subjects(self.account, key, &gone.config.subjects);
                }
            }
            (false, _) => {}
        }
    }

    /// Runs the operations of one phase.
    async fn while_in(&self, phase: Phase, mover: &mut Mover, mut action: Action) -> Action {
        while mover.phase() == phase {
            let Action::Run { side, op, until } = action else {
                panic!("only operations are run under the lock of a name: {action:?}")
            };
            let work = self.perform(side, op, until);
            let happened = match phase {
                // What the new log waits for does not come if the old one has ended meanwhile.
                Phase::Switching if self.service.names.node().is_some() => {
                    timeout(SWITCH_MAX, work).await.unwrap_or(Happened::Late)
                }
                _ => work.await,
            };
            action = self.step(mover, happened);
        }
        action
    }

    /// Says why the move has not come to its end: in its status always, in the server's log when it is
    /// for another reason than the last time.
    fn tell(&self, error: &JsError, wait: Duration) {
        let text = error.to_string();
        let before = self.progress.error.lock().replace(text.clone());
        if before.is_none_or(|before| without_numbers(&before) != without_numbers(&text)) {
            let (name, to) = (&self.name, &self.progress.to);
            self.service.core.say(&format!(
                "the move of stream {name:?} to log {to} does not come to its end: {text}; it is \
                 tried again in {wait:?}, later every {RETRY_MAX:?}, until it is cancelled"
            ));
        }
    }

    fn say_moved(&self, held: Duration) {
        let (name, to, ms) = (&self.name, &self.progress.to, held.as_millis());
        self.service
            .core
            .say(&format!("stream {name:?} has moved to log {to}; it was held for {ms} ms"));
    }

    /// Says how it ended. `refusal` is why it did not even begin.
    fn end(&self, ended: Ended, refusal: Option<&JsError>) {
        let (name, from, to) = (&self.name, &self.progress.from, &self.progress.to);
        let say = |text: &str| self.service.core.say(text);
        let is_node = self.service.names.node().is_some();
        match ended {
            Ended::Moved => {
                self.service.table.forget(self.account, name);
                self.close(None);
            }
            Ended::Undecided(_) | Ended::Unforgotten(_) if is_node => self.leave_to_others(&ended),
            // The move stays under way: the stream must not leave its new log.
            Ended::Unforgotten(error) => {
                let text = format!(
                    "log {from} does not forget stream {name:?}, which has left it ({error}): until a \
                     restart the stream can neither be deleted nor move on"
                );
                say(&text);
                *self.progress.error.lock() = Some(text);
            }
            Ended::GivenUp { why, not_refused, not_dropped } => {
                if is_node && (not_refused.is_some() || not_dropped.is_some()) {
                    let stream = (self.account, name.as_str());
                    self.service.apart.clear(stream, self.copy, &self.source_place);
                }
                if let Some(error) = not_refused {
                    say(&format!(
                        "the move of stream {name:?} was not given up, a restart goes on with it: \
                         {error}"
                    ));
                }
                if let Some(error) = not_dropped {
                    say(&format!(
                        "the unfinished copy of stream {name:?} in log {to} stays until a restart: \
                         {error}"
                    ));
                }
                let text = match why {
                    GivenUp::Cancelled => "cancelled".to_owned(),
                    GivenUp::Gone => "the stream was deleted".to_owned(),
                    GivenUp::Refused => refusal.map(JsError::to_string).unwrap_or_default(),
                };
                self.close(Some(text));
                self.raise_again();
            }
            Ended::Undecided(error) => {
                let text = format!(
                    "log {to} stopped while it took over stream {name:?} ({error}): the stream waits \
                     for a restart of the server, which finds out where it lives"
                );
                say(&text);
                self.close(Some(text));
            }
        }
    }

    /// A log of the move is another node's now, or ended while it took over: whoever owns the two finds out where the
    /// stream lives.
    fn leave_to_others(&self, ended: &Ended) {
        let (service, progress) = (self.service.clone(), self.progress.clone());
        let key = (self.account, self.name.clone());
        if !service.logs.is_attached(self.source.log) {
            if matches!(ended, Ended::Unforgotten(_)) {
                service.reopen_unless_served(self.name.clone(), self.copy);
            }
            service.table.forget(key.0, &key.1);
            return service.table.close(&progress, None);
        }
        // Until the old log has forgotten it the stream is not to leave the new one.
        let decided = service.apart.decide((key.0, &key.1), self.source, &self.copy_place);
        tokio::spawn(async move {
            decided.await;
            service.table.forget(key.0, &key.1);
            service.table.close(&progress, None);
        });
    }

    /// A move was given up because one of its logs has left this node: a stream that is to be kept by several nodes moves to
    /// another one, if there is one here.
    fn raise_again(&self) {
        if self.progress.log_left.load(Ordering::Acquire) {
            self.service.raise_again(self.account, self.name.clone());
        }
    }

    fn close(&self, error: Option<String>) {
        self.service.table.close(&self.progress, error);
    }
}

/// What stays the same of a text when durations and sequences in it change.
fn without_numbers(text: &str) -> String {
    text.chars().filter(|c| !c.is_ascii_digit()).collect()
}
