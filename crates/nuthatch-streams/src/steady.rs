//! The clock of streams: a wall clock that is not believed at once.
//!
//! Whatever expires (age, times to live, duplicate windows, idle consumers) and every timestamp comes
//! from the clock of the log. A wall clock that is an hour ahead for two seconds would empty streams
//! for good. A [`SteadyClock`] goes by the monotonic clock: it follows the wall clock in small steps,
//! and a large step forward only once it has lasted [`STEP_LASTS`], or once an operator says that it
//! is right ([`SteadyClock::trust_wall`]). Until then nothing knows of the step, timestamps included.
//!
//! Time never goes backwards: consumers, timers and the order of a stream's timestamps rely on it. Of
//! a step back this clock runs slower until the two agree, as it does where a step forward was
//! followed and taken back later.
//!
//! Where several machines keep a log, a majority of their clocks says more than how long a step has lasted:
//! with [`SteadyClock::judged_by`] the wall clock is followed while others agree with it and not otherwise,
//! from the start on.
//!
//! Both clocks are arguments. At the start there is nothing to compare the wall clock with: it is
//! believed then.

#[cfg(test)]
mod tests;

use crate::rules::DOUBT_STEPS;
use nuthatch_log::Timestamp;
use nuthatch_log::env::Clock;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// The largest step forward that is followed at once. Time servers correct less than this.
pub const STEP_MAX: Duration = Duration::from_secs(10);
/// How long a larger one must last until it is followed.
pub const STEP_LASTS: Duration = Duration::from_mins(10);
/// The wall clock is consulted again after this long.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// A step that others agree with is followed when it is still there at the next look, above this size: what they
/// said may be older than the step.
const AGREED_STEP_MAX: Duration = Duration::from_secs(1);
/// A difference to the wall clock up to this is jitter and is not followed.
const JITTER_NANOS: i64 = 1_000_000;
/// While ahead of the wall clock, time loses one part in this many.
const SLEW_SHARE: i64 = 8;

/// The two clocks of a machine.
pub trait TimeSource: Send + Sync + 'static {
    /// The wall clock, ns since the Unix epoch. May step either way.
    fn wall_nanos(&self) -> i64;
    /// Time since some moment; never steps and never goes backwards.
    fn monotonic(&self) -> Duration;
}

/// Outcome of a step of the wall clock that is larger than [`STEP_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StepEvent {
    /// The wall clock is so far ahead: not followed for now.
    Doubted {
        /// How far.
        ahead: Duration,
    },
    /// It has come back: nothing happened.
    TakenBack,
    /// It has lasted, or an operator says that it is right: time is now that of the wall clock.
    Followed {
        /// How far it was ahead.
        ahead: Duration,
    },
    /// No majority of machines agrees with the wall clock: it is not followed.
    NotAgreed,
    /// A majority agrees with the wall clock again: it is followed.
    Agreed,
}

/// Callback that reports steps. Called on the thread that asks for the time: must be quick.
pub type Tell = Box<dyn Fn(StepEvent) + Send + Sync>;

/// Whether a majority of machines agrees with the wall clock of this one. Called on the thread that asks for the
/// time: must be quick.
pub type Judge = Box<dyn Fn() -> bool + Send + Sync>;

/// See the module.
pub struct SteadyClock<T> {
    source: T,
    state: Mutex<State>,
    tell: Tell,
    judge: OnceLock<Judge>,
}

struct State {
    /// This clock's time at `at`.
    nanos: i64,
    at: Duration,
    /// Ahead of the wall clock: runs slower.
    is_ahead: bool,
    doubted: Option<Doubted>,
    /// The judge does not agree.
    not_agreed: bool,
    /// A step that the judge agrees with was there at the last look.
    agreed_step: bool,
}

/// A step that is not followed yet.
#[derive(Clone, Copy)]
struct Doubted {
    since: Duration,
    ahead_nanos: i64,
}

impl<T: TimeSource> SteadyClock<T> {
    /// A clock that begins with the wall clock's time and tells of its steps.
    pub fn new(source: T, tell: Tell) -> Self {
        let (nanos, at) = (source.wall_nanos(), source.monotonic());
        let state = Mutex::new(State {
            nanos,
            at,
            is_ahead: false,
            doubted: None,
            not_agreed: false,
            agreed_step: false,
        });
        Self { source, state, tell, judge: OnceLock::new() }
    }

    /// From now on `judge` decides whether the wall clock is followed. Time begins with what the wall clock shows now, if `judge`
    /// agrees with that, whatever it showed when this clock was made: it may have been set meanwhile. Otherwise time goes on
    /// from `last`, if that is earlier than the wall clock. Nobody may have used this clock before.
    ///
    /// # Panics
    /// When there is a judge.
    pub fn judged_by(&self, judge: Judge, last: Timestamp) {
        // Both sides of the judgement: it is of what the clock showed in between.
        let before = self.wall_ahead_nanos();
        let agreed = judge();
        let (wall, at) = (self.source.wall_nanos(), self.source.monotonic());
        let stands =
            wall.saturating_sub(to_nanos(at)).abs_diff(before) <= AGREED_STEP_MAX.as_nanos() as u64;
        assert!(self.judge.set(judge).is_ok(), "a clock has one judge");
        let mut state = self.lock();
        (state.at, state.is_ahead) = (at, false);
        if agreed && stands {
            state.nanos = wall;
            return;
        }
        state.nanos = wall.min(last.0);
        state.not_agreed = true;
        drop(state);
        (self.tell)(StepEvent::NotAgreed);
    }

    /// How far the wall clock is ahead of the one that nobody sets.
    fn wall_ahead_nanos(&self) -> i64 {
        let at = self.source.monotonic();
        self.source.wall_nanos().saturating_sub(to_nanos(at))
    }

    /// How far the wall clock is ahead by a step that is not followed; `None` if there is none.
    pub fn doubted(&self) -> Option<Duration> {
        self.lock().doubted.map(|step| nanos_to_duration(step.ahead_nanos))
    }

    /// An operator says that the wall clock is right: a step that is doubted is followed at once.
    /// Returns how far it is; `None` if none is doubted.
    pub fn trust_wall(&self) -> Option<Duration> {
        let mut state = self.lock();
        state.doubted?;
        state.carry_to(self.source.monotonic());
        let ahead = self.source.wall_nanos().saturating_sub(state.nanos).max(0);
        let event = state.follow(ahead);
        drop(state);
        (self.tell)(event);
        Some(nanos_to_duration(ahead))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Whatever panicked elsewhere: every state of a clock is one to go on from.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: TimeSource> Clock for SteadyClock<T> {
    fn now(&self) -> Timestamp {
        let mut state = self.lock();
        let at = self.source.monotonic();
        if at.saturating_sub(state.at) < LOOK_INTERVAL {
            return Timestamp(state.after(at));
        }
        let wall = self.source.wall_nanos();
        let event = match self.judge.get() {
            None => state.look(at, wall),
            Some(judge) => state.look_judged(at, wall, judge()),
        };
        let now = Timestamp(state.nanos);
        drop(state);
        if let Some(event) = event {
            (self.tell)(event);
        }
        now
    }
}

fn to_nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

fn nanos_to_duration(nanos: i64) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

impl State {
    /// The time at this moment of the monotonic clock.
    fn after(&self, at: Duration) -> i64 {
        let elapsed = to_nanos(at.saturating_sub(self.at));
        let lost = if self.is_ahead { elapsed / SLEW_SHARE } else { 0 };
        self.nanos.saturating_add(elapsed - lost)
    }

    fn carry_to(&mut self, at: Duration) {
        self.nanos = self.after(at);
        self.at = at;
    }

    /// Compares with the wall clock, and says what there is to tell.
    fn look(&mut self, at: Duration, wall: i64) -> Option<StepEvent> {
        self.carry_to(at);
        let ahead = wall.saturating_sub(self.nanos);
        self.is_ahead = ahead < -JITTER_NANOS;
        if ahead > to_nanos(STEP_MAX) && DOUBT_STEPS.holds() {
            return self.doubt(ahead);
        }
        if ahead > JITTER_NANOS {
            self.nanos = wall;
        }
        self.doubted.take().map(|_| StepEvent::TakenBack)
    }

    /// Compares with the wall clock while others agree with that, and says what there is to tell.
    fn look_judged(&mut self, at: Duration, wall: i64, agreed: bool) -> Option<StepEvent> {
        self.carry_to(at);
        self.doubted = None;
        let before = std::mem::replace(&mut self.not_agreed, !agreed);
        if !agreed {
            (self.is_ahead, self.agreed_step) = (false, false);
            return (!before).then_some(StepEvent::NotAgreed);
        }
        let ahead = wall.saturating_sub(self.nanos);
        self.is_ahead = ahead < -JITTER_NANOS;
        let is_step = ahead > to_nanos(AGREED_STEP_MAX);
        let was_step = std::mem::replace(&mut self.agreed_step, is_step);
        if ahead > JITTER_NANOS && (!is_step || was_step) {
            self.nanos = wall;
            self.agreed_step = false;
        }
        before.then_some(StepEvent::Agreed)
    }

    /// The wall clock is far ahead: follows it if it has been so for long enough.
    fn doubt(&mut self, ahead_nanos: i64) -> Option<StepEvent> {
        // Another step begins anew.
        let same =
            |step: &Doubted| step.ahead_nanos.abs_diff(ahead_nanos) <= STEP_MAX.as_nanos() as u64;
        match self.doubted.filter(same) {
            Some(step) if self.at.saturating_sub(step.since) >= STEP_LASTS => {
                Some(self.follow(ahead_nanos))
            }
            Some(_) => None,
            None => {
                self.doubted = Some(Doubted { since: self.at, ahead_nanos });
                Some(StepEvent::Doubted { ahead: nanos_to_duration(ahead_nanos) })
            }
        }
    }

    fn follow(&mut self, ahead_nanos: i64) -> StepEvent {
        self.nanos = self.nanos.saturating_add(ahead_nanos);
        self.doubted = None;
        StepEvent::Followed { ahead: nanos_to_duration(ahead_nanos) }
    }
}
