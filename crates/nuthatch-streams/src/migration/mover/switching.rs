//! The switch: hold the stream, copy the rest, let the new log take over.

use super::{Action, Ended, GivenUp, Happened, Hold, Mover, Now, Phase, Side, State};
use super::{outcome, took, unexpected};
use crate::op::{Op, OpOutcome};
use crate::rules::{MOVE_COPIES_REST, MOVE_SETTLES_FIRST};
use nuthatch_protocol::jserror::JsError;
use std::time::Duration;

impl Mover {
    /// Asks the new log for a frame: the stream is held only if that is quick at the moment.
    pub(super) fn probe(&mut self, next: u64, now: Now) -> Action {
        self.tries = self.tries.saturating_add(1);
        let allowed = self.pace.hold_step.saturating_mul(self.tries).min(self.pace.hold_max);
        self.state = State::Probe { began: now, allowed, next };
        self.run(Side::Copy, Op::Probe { id: self.copy_id() }, None)
    }

    pub(super) fn probed(
        &mut self,
        took: Duration,
        allowed: Duration,
        next: u64,
        happened: Happened,
        now: Now,
    ) -> Action {
        if let Err(error) = outcome(happened) {
            return self.failed(error, now);
        }
        if took * 2 > allowed {
            let (to, ms) = (&self.plan.copy.log, took.as_millis());
            let text = format!("log {to} takes {ms} ms to store a frame: trying again later");
            return self.failed(JsError::STREAM_STORE_FAILED.with_err(text), now);
        }
        self.state = State::Lock { allowed, next };
        Action::Lock
    }

    pub(super) fn locked(
        &mut self,
        allowed: Duration,
        next: u64,
        happened: Happened,
        now: Now,
    ) -> Action {
        let config = match happened {
            Happened::Locked(config) => config,
            Happened::Elsewhere => return self.drop_copy(GivenUp::Gone),
            Happened::LockBusy => {
                self.state = State::LockBusy;
                return Action::Rest { until: now + self.pace.busy_pause };
            }
            other => panic!("the right to change a name was asked for: {other:?}"),
        };
        self.phase = Phase::Held;
        let until = now + allowed;
        self.state = State::Leave { until, next, began: now };
        let (log, to) = (self.plan.source.log.clone(), self.plan.copy.clone());
        self.run(Side::Source, Op::Leave { id: self.source_id(), log, to, config }, Some(until))
    }

    pub(super) fn left(
        &mut self,
        until: Now,
        next: u64,
        began: Now,
        happened: Happened,
        now: Now,
    ) -> Action {
        if matches!(happened, Happened::Late) {
            return self.stay(None);
        }
        match outcome(happened) {
            Ok(OpOutcome::Left { state, last_seq }) => {
                self.rest_copied(next, Hold { until, began, state, last_seq }, now)
            }
            Ok(other) => unexpected(&other),
            Err(error) => self.stay(Some(error)),
        }
    }

    /// The copy holds everything before `next`.
    pub(super) fn rest_copied(&mut self, next: u64, hold: Hold, now: Now) -> Action {
        if next <= hold.last_seq && MOVE_COPIES_REST.holds() {
            return if now >= hold.until {
                self.stay(None)
            } else {
                self.read_from(next, now, Some(hold))
            };
        }
        self.phase = Phase::Settling;
        if MOVE_SETTLES_FIRST.holds() {
            return self.settle(hold);
        }
        self.state = State::SwitchEarly(hold);
        Action::Switch
    }

    /// Lets the new log take over. It cannot be taken back: whatever it takes is waited for.
    pub(super) fn settle(&mut self, hold: Hold) -> Action {
        self.state = State::Settle { began: hold.began };
        self.run(Side::Copy, Op::Settle { id: self.copy_id(), state: hold.state }, None)
    }

    /// The stream goes on where it was.
    pub(super) fn stay(&mut self, why: Option<JsError>) -> Action {
        self.state = State::Stay(why);
        self.run(Side::Source, Op::Stay { id: self.source_id(), refused: None }, None)
    }

    pub(super) fn stayed(&mut self, why: Option<JsError>, happened: Happened, now: Now) -> Action {
        match (outcome(happened), why) {
            (Err(error), _) | (Ok(_), Some(error)) => self.failed(error, now),
            (Ok(_), None) => self.measure(),
        }
    }

    /// If the new log stops while it takes over, whether it has is unknown.
    pub(super) fn settled(&mut self, began: Now, happened: Happened) -> Action {
        match happened {
            Happened::Outcome(Ok(OpOutcome::Unsettled(error))) | Happened::NotSent(error) => {
                self.stay(Some(error))
            }
            Happened::Outcome(Ok(_)) => {
                self.phase = Phase::Switching;
                self.progress.switched = true;
                if !MOVE_SETTLES_FIRST.holds() {
                    return self.switched(began);
                }
                self.state = State::Switch { began };
                Action::Switch
            }
            Happened::Outcome(Err(error)) | Happened::NoAnswer(error) => {
                self.end(Ended::Undecided(error))
            }
            other => panic!("a take-over was asked for: {other:?}"),
        }
    }

    /// The stream lives in the new log now, whatever the answer is; it comes once the new engine has
    /// everything in hand.
    pub(super) fn switched(&mut self, began: Now) -> Action {
        let asked = self.measure();
        self.phase = Phase::Switching;
        self.state = State::Arrive { began };
        asked
    }

    pub(super) fn arrived(&mut self, began: Now, now: Now) -> Action {
        self.phase = Phase::Free;
        self.progress.held = took(began, now);
        self.state = State::Forgotten;
        Action::AwaitForgotten
    }

    pub(super) fn forgotten(&mut self, happened: Happened) -> Action {
        match outcome(happened) {
            Ok(_) => self.end(Ended::Moved),
            Err(error) => self.end(Ended::Unforgotten(error)),
        }
    }
}
