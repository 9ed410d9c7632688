//! The end of an import that stores what comes.

use crate::op::{OpResult, Replica};
use crate::rules::{IMPORT_ANSWER_AFTER_COMMIT, IMPORT_IN_ORDER};
use nuthatch_protocol::jserror::JsError;
use std::collections::VecDeque;

/// Bytes of batches that are stored in one go, about.
const STORE_BYTES_MAX: usize = 4 << 20;

/// A batch, by a number that no other one of its import has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchId(pub u64);

/// What happens to an import.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// A batch came, behind those before it.
    Batch {
        /// Its number.
        batch: BatchId,
        /// Its messages, in order.
        copies: Vec<Replica>,
        /// The origin has nothing else up to here.
        gap_to: u64,
    },
    /// What became of [`Effect::Store`].
    Stored(OpResult),
    /// The importer asks how far the import is: what comes from now on goes on from there.
    Asked,
}

/// What is to be done.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    /// Store messages ([`crate::Op::Mirror`]): [`Event::Stored`].
    Store {
        /// In order.
        copies: Vec<Replica>,
        /// The origin has nothing else up to here.
        gap_to: u64,
    },
    /// Answer a batch.
    Answer(BatchId, Result<(), JsError>),
}

#[derive(Debug)]
struct Waiting {
    batch: BatchId,
    copies: Vec<Replica>,
    gap_to: u64,
}

/// The batches of one import that are under way. At most as many as API requests.
///
/// One store is under way at a time, of all that waited for it: were a batch refused whose successors
/// are on their way already, those would be taken all the same, and leave a hole that no importer goes
/// back to.
#[derive(Debug, Default)]
pub struct Intake {
    storing: Option<Vec<BatchId>>,
    waiting: VecDeque<Waiting>,
    /// A batch was refused, and the importer has not asked since how far the import is.
    is_broken: bool,
}

impl Intake {
    /// What follows from what happened.
    ///
    /// # Panics
    /// Something was stored that was not asked for.
    pub fn step(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            Event::Batch { batch, .. } if self.is_broken => {
                effects.push(Effect::Answer(batch, Err(behind_refused())));
            }
            Event::Batch { batch, copies, gap_to } => {
                if !IMPORT_ANSWER_AFTER_COMMIT.holds() {
                    effects.push(Effect::Answer(batch, Ok(())));
                }
                self.waiting.push_back(Waiting { batch, copies, gap_to });
                self.store(&mut effects);
            }
            Event::Stored(outcome) => self.stored(outcome, &mut effects),
            Event::Asked => self.is_broken = false,
        }
        effects
    }

    /// Stores what waits, if nothing is on its way.
    fn store(&mut self, effects: &mut Vec<Effect>) {
        if self.storing.is_some() {
            return;
        }
        let Some(first) = self.waiting.pop_front() else { return };
        let (mut batches, mut copies, mut gap_to) = (vec![first.batch], first.copies, first.gap_to);
        let mut bytes = weight(&copies);
        while let Some(next) = self.waiting.front()
            && bytes + weight(&next.copies) <= STORE_BYTES_MAX
        {
            let next = self.waiting.pop_front().expect("it was there a moment ago");
            bytes += weight(&next.copies);
            batches.push(next.batch);
            copies.extend(next.copies);
            gap_to = gap_to.max(next.gap_to);
        }
        self.storing = Some(batches);
        effects.push(Effect::Store { copies, gap_to });
    }

    fn stored(&mut self, outcome: OpResult, effects: &mut Vec<Effect>) {
        let batches = self.storing.take().expect("a store was asked for");
        let outcome = outcome.map(drop);
        let is_refused = outcome.is_err();
        if IMPORT_ANSWER_AFTER_COMMIT.holds() {
            let answer = |batch| Effect::Answer(batch, outcome.clone());
            effects.extend(batches.into_iter().map(answer));
        }
        if is_refused && IMPORT_IN_ORDER.holds() {
            self.is_broken = true;
            let waiting = self.waiting.drain(..);
            let refuse = |waiting: Waiting| Effect::Answer(waiting.batch, Err(behind_refused()));
            effects.extend(waiting.map(refuse));
        }
        self.store(effects);
    }
}

fn weight(copies: &[Replica]) -> usize {
    copies.iter().map(|copy| copy.publish().weight()).sum()
}

fn behind_refused() -> JsError {
    JsError::STREAM_RESTORE.with_err("a batch before this one was not stored: begin again")
}
