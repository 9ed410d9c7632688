//! The end of an import that stores what comes.

use crate::op::{OpResult, Replica};
use crate::rules::{IMPORT_ANSWER_AFTER_COMMIT, IMPORT_IN_ORDER};
use nuthatch_protocol::jserror::JsError;
use std::collections::VecDeque;

/// Bytes of batches that are stored in one go, about.
const STORE_BYTES_MAX: usize = 4 << 20;

/// A batch, by a number that no other one has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BatchId(pub u64);

/// Messages on their way into an import.
#[derive(Clone, PartialEq, Debug)]
pub struct Batch {
    /// Its number.
    pub id: BatchId,
    /// Its messages, in order.
    pub copies: Vec<Replica>,
    /// The last sequence before the batch, where the importer says so.
    pub after: Option<u64>,
    /// The origin has nothing else up to here.
    pub gap_to: u64,
}

/// What happens to an import.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// A batch came, behind those before it.
    Batch(Batch),
    /// What became of [`Effect::Store`].
    Stored(OpResult),
    /// The importer asked how far the import is, and everything up to this sequence is stored: what
    /// comes from now on goes on from there.
    Asked(u64),
    /// The import ends, or may have ended, for this reason: it takes nothing more until the importer
    /// asks.
    Closed(JsError),
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

/// Batches that are stored in one go.
#[derive(Debug)]
struct Storing {
    batches: Vec<BatchId>,
    gap_to: u64,
}

/// The batches of one import that are under way. At most as many as API requests.
///
/// One store is under way at a time, of all that waited for it: were a batch refused whose successors
/// are on their way already, those would be taken all the same, and leave a hole that no importer goes
/// back to.
#[derive(Debug, Default)]
pub struct Intake {
    storing: Option<Storing>,
    waiting: VecDeque<Batch>,
    /// Everything up to here is stored.
    stored: u64,
    /// Everything up to here is stored or under way.
    taken: u64,
    /// Why nothing more is taken until the importer asks how far the import is.
    closed: Option<JsError>,
}

impl Intake {
    /// One that begins with its stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One of a stream that a start has found: it takes batches once the importer has asked how far
    /// the import is.
    #[must_use]
    pub fn found() -> Self {
        Self { closed: Some(not_asked()), ..Self::default() }
    }

    /// What follows from what happened.
    ///
    /// # Panics
    /// Something was stored that was not asked for.
    pub fn step(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            Event::Batch(batch) => self.batch(batch, &mut effects),
            Event::Stored(outcome) => self.stored(outcome, &mut effects),
            Event::Asked(stored) => {
                self.closed = None;
                self.stored = self.stored.max(stored);
                self.taken = self.taken.max(stored);
            }
            Event::Closed(why) => self.close(why, &mut effects),
        }
        effects
    }

    /// Whether every batch was confirmed, and everything up to `last`, as its importer has counted, is
    /// stored.
    ///
    /// # Errors
    /// Why not: one is under way, or one was refused and the importer has not asked since.
    pub fn check_confirmed(&self, last: u64) -> Result<(), JsError> {
        if let Some(why) = &self.closed {
            return Err(why.clone());
        }
        if self.storing.is_some() || !self.waiting.is_empty() {
            return Err(refusal("batches of this import are under way: try again"));
        }
        if last > self.stored {
            let text = format!(
                "it is to have everything up to sequence {last}, and {} is stored: begin again",
                self.stored
            );
            return Err(refusal(&text));
        }
        Ok(())
    }

    /// The import is over, and so are all of its batches. What was stored of them is not known.
    #[must_use]
    pub fn end(self, why: &JsError) -> Vec<Effect> {
        let storing = self.storing.into_iter().flat_map(|storing| storing.batches);
        let waiting = self.waiting.into_iter().map(|batch| batch.id);
        storing.chain(waiting).map(|id| Effect::Answer(id, Err(why.clone()))).collect()
    }

    fn batch(&mut self, batch: Batch, effects: &mut Vec<Effect>) {
        if let Err(why) = self.admit(&batch) {
            effects.push(Effect::Answer(batch.id, Err(why)));
            return;
        }
        if !IMPORT_ANSWER_AFTER_COMMIT.holds() {
            effects.push(Effect::Answer(batch.id, Ok(())));
        }
        self.taken = self.taken.max(batch.gap_to);
        self.waiting.push_back(batch);
        self.store(effects);
    }

    fn admit(&self, batch: &Batch) -> Result<(), JsError> {
        if let Some(why) = &self.closed {
            return Err(why.clone());
        }
        match batch.after {
            Some(after) if after > self.taken && IMPORT_IN_ORDER.holds() => Err(behind_refused()),
            _ => Ok(()),
        }
    }

    /// Stores what waits, if nothing is on its way.
    fn store(&mut self, effects: &mut Vec<Effect>) {
        if self.storing.is_some() {
            return;
        }
        let Some(first) = self.waiting.pop_front() else { return };
        let (mut batches, mut copies, mut gap_to) = (vec![first.id], first.copies, first.gap_to);
        let mut bytes = weight(&copies);
        while let Some(next) = self.waiting.front()
            && bytes + weight(&next.copies) <= STORE_BYTES_MAX
        {
            let next = self.waiting.pop_front().expect("it was there a moment ago");
            bytes += weight(&next.copies);
            batches.push(next.id);
            copies.extend(next.copies);
            gap_to = gap_to.max(next.gap_to);
        }
        self.storing = Some(Storing { batches, gap_to });
        effects.push(Effect::Store { copies, gap_to });
    }

    fn stored(&mut self, outcome: OpResult, effects: &mut Vec<Effect>) {
        let Storing { batches, gap_to } = self.storing.take().expect("a store was asked for");
        let outcome = outcome.map(drop);
        if IMPORT_ANSWER_AFTER_COMMIT.holds() {
            let answer = |id| Effect::Answer(id, outcome.clone());
            effects.extend(batches.into_iter().map(answer));
        }
        if outcome.is_ok() {
            self.stored = self.stored.max(gap_to);
        } else if IMPORT_IN_ORDER.holds() {
            self.close(behind_refused(), effects);
        }
        self.store(effects);
    }

    /// Refuses what waits, and what comes.
    fn close(&mut self, why: JsError, effects: &mut Vec<Effect>) {
        let waiting = self.waiting.drain(..);
        effects.extend(waiting.map(|batch| Effect::Answer(batch.id, Err(why.clone()))));
        self.taken = self.storing.as_ref().map_or(self.stored, |storing| storing.gap_to);
        self.closed = Some(why);
    }
}

fn weight(copies: &[Replica]) -> usize {
    copies.iter().map(|copy| copy.publish().weight()).sum()
}

fn refusal(text: &str) -> JsError {
    JsError::STREAM_RESTORE.with_err(text)
}

fn behind_refused() -> JsError {
    refusal("a batch before this one was not stored: begin again")
}

fn not_asked() -> JsError {
    refusal("the server was restarted since this import was begun: begin again")
}
