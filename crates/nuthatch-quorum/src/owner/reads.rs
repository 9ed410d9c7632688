//! Linearizable reads that trust no clock: each waits for a round of beats that began after it came, and that a
//! majority has answered. All that come while a round is under way share the next one.

use crate::rules::Rule;
use crate::timing::READS_MAX;
use crate::types::RequestId;
use std::collections::VecDeque;

/// Reads that wait, in the order of their rounds.
#[derive(Debug, Default)]
pub(super) struct Reads {
    waiting: VecDeque<(u64, RequestId)>,
    /// The last round that was begun for reads.
    begun: u64,
}

impl Reads {
    /// Lets a read wait for the round after `last`; false if too many wait.
    pub(super) fn wait(&mut self, request: RequestId, last: u64) -> bool {
        let round = if Rule::ReadAfterRound.holds() { last + 1 } else { last };
        let taken = self.waiting.len() < READS_MAX;
        if taken {
            self.waiting.push_back((round, request));
        }
        taken
    }

    /// True if none waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// True if a round is to begin now: reads wait, and the one that was begun for reads before is over.
    pub(super) fn begin_round(&mut self) -> bool {
        let Some((first, _)) = self.waiting.front() else { return false };
        let begins = *first > self.begun;
        if begins {
            self.begun = *first;
        }
        begins
    }

    /// Takes out the reads whose round has been reached.
    pub(super) fn reached(&mut self, reached: impl Fn(u64) -> bool) -> Vec<RequestId> {
        let count = self.waiting.iter().take_while(|(round, _)| reached(*round)).count();
        self.waiting.drain(..count).map(|(_, request)| request).collect()
    }

    /// All that wait.
    pub(super) fn all(&self) -> impl Iterator<Item = RequestId> {
        self.waiting.iter().map(|(_, request)| *request)
    }
}
