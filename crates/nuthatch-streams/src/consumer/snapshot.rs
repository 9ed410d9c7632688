//! A consumer's progress in the form of the incumbent, for backups, and back.

use super::filter::Filter;
use super::pending::{Entry, Pending, PendingPlace};
use super::state::Progress;
use super::{ACK_PENDING_MAX, Consumer};
use crate::stream::LAST_SEQ_MAX;
use nuthatch_log::Timestamp;
use nuthatch_protocol::js::{ConsumerConfig, ConsumerState, PendingDelivery, SequencePair};
use roaring::RoaringTreemap;

impl<T> Consumer<T> {
    /// The progress as a backup holds it. Where the last message of each subject is delivered first
    /// and that is not done yet, a restore goes on with all messages from there.
    #[must_use]
    pub fn snapshot_state(&self, now: Timestamp) -> ConsumerState {
        let delivered_at = |entry: &Entry| {
            if entry.place == PendingPlace::Out && entry.deadline != i64::MAX {
                entry.deadline.saturating_sub(self.terms.wait_after(entry.delivered))
            } else {
                now.0
            }
        };
        let mut state = ConsumerState {
            delivered: SequencePair {
                consumer_seq: self.next_consumer_seq - 1,
                stream_seq: self.delivered_stream,
            },
            ack_floor: SequencePair {
                consumer_seq: self.floor.consumer,
                stream_seq: self.floor.stream,
            },
            ..ConsumerState::default()
        };
        for entry in self.pending.iter() {
            let (sequence, timestamp) = (entry.consumer_seq, delivered_at(entry));
            state.pending.insert(entry.seq, PendingDelivery { sequence, timestamp });
            if entry.delivered > 1 {
                state.redelivered.insert(entry.seq, u64::from(entry.delivered) - 1);
            }
        }
        // Given up: counted, and not out any more.
        let spent = u64::from(self.terms.max_deliver).saturating_sub(1).max(1);
        state.redelivered.extend(self.exhausted.iter().map(|seq| (seq, spent)));
        state
    }

    /// A consumer as a backup holds it. `config` is what [`super::validate_consumer`] returned, with
    /// a name. Call [`Consumer::recovered`] before anything else.
    ///
    /// # Errors
    /// What in the state cannot be.
    pub fn restored(
        config: ConsumerConfig,
        state: &ConsumerState,
        created: Timestamp,
    ) -> Result<Self, &'static str> {
        if state.pending.len() > ACK_PENDING_MAX {
            return Err("more messages are out than a consumer may have");
        }
        let mut pending = Pending::default();
        let (mut out_stream, mut out_consumer) = (0, 0);
        for (&seq, out) in &state.pending {
            // The state needs rising numbers; old servers renumbered what they delivered again.
            let consumer_seq = out.sequence.max(out_consumer + 1);
            if seq > LAST_SEQ_MAX || consumer_seq > LAST_SEQ_MAX {
                return Err("a sequence that cannot be");
            }
            let again = state.redelivered.get(&seq).copied().unwrap_or(0);
            let delivered = u32::try_from(again.saturating_add(1)).unwrap_or(u32::MAX);
            pending.restore(seq, consumer_seq, delivered);
            (out_stream, out_consumer) = (seq, consumer_seq);
        }
        let delivered_stream = state.delivered.stream_seq.max(out_stream);
        let delivered_consumer = state.delivered.consumer_seq.max(out_consumer);
        if delivered_stream > LAST_SEQ_MAX || delivered_consumer > LAST_SEQ_MAX {
            return Err("a sequence that cannot be");
        }
        let below = |first: Option<u64>, all: u64| first.map_or(all, |seq| seq.saturating_sub(1));
        let first = pending.front().map(|entry| (entry.seq, entry.consumer_seq));
        let floor = (
            state.ack_floor.consumer_seq.min(below(first.map(|f| f.1), delivered_consumer)),
            state.ack_floor.stream_seq.min(below(first.map(|f| f.0), delivered_stream)),
        );
        let exhausted = given_up(&config, state);
        let progress = Progress {
            next: delivered_stream + 1,
            resume: 0,
            next_consumer_seq: delivered_consumer + 1,
            delivered_stream,
            floor,
            pending,
            exhausted,
        };
        let filter = Filter::new(&config);
        Ok(Self::assemble(config, filter, created, progress))
    }
}

/// Messages that reached `max_deliver` and are not out any more.
fn given_up(config: &ConsumerConfig, state: &ConsumerState) -> RoaringTreemap {
    let Ok(max @ 1..) = u64::try_from(config.max_deliver) else { return RoaringTreemap::new() };
    let is_spent = |(seq, again): (&u64, &u64)| {
        let gone = again.saturating_add(1) >= max && !state.pending.contains_key(seq);
        gone.then_some(*seq)
    };
    state.redelivered.iter().filter_map(is_spent).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(pending: &[(u64, u64)], redelivered: &[(u64, u64)]) -> ConsumerState {
        let out = |&(seq, sequence): &(u64, u64)| (seq, PendingDelivery { sequence, timestamp: 7 });
        ConsumerState {
            delivered: SequencePair { consumer_seq: 9, stream_seq: 20 },
            ack_floor: SequencePair { consumer_seq: 3, stream_seq: 5 },
            pending: pending.iter().map(out).collect(),
            redelivered: redelivered.iter().copied().collect(),
        }
    }

    fn restored(state: &ConsumerState, max_deliver: i64) -> Consumer<()> {
        let config = ConsumerConfig { max_deliver, ..ConsumerConfig::default() };
        Consumer::restored(config, state, Timestamp(1)).expect("valid")
    }

    #[test]
    fn a_state_survives() {
        let state = state(&[(6, 4), (8, 5), (20, 9)], &[(8, 2)]);
        assert_eq!(restored(&state, -1).snapshot_state(Timestamp(7)), state);
    }

    #[test]
    fn what_was_given_up_stays_so() {
        let state = state(&[(8, 5)], &[(7, 2), (8, 2)]);
        let consumer = restored(&state, 3);
        assert_eq!(consumer.exhausted.iter().collect::<Vec<_>>(), [7]);
        assert_eq!(consumer.snapshot_state(Timestamp(7)), state);
    }

    #[test]
    fn numbers_that_do_not_rise_are_mended_and_can_be_logged() {
        let state = state(&[(6, 9), (8, 5), (30, 0)], &[]);
        let consumer = restored(&state, -1);
        let mut bytes = Vec::new();
        consumer.encode(&mut bytes);
        let back = Consumer::<()>::decode(&bytes).expect("what was encoded is read");
        let told = back.snapshot_state(Timestamp(7));
        let numbers: Vec<u64> = told.pending.values().map(|out| out.sequence).collect();
        assert_eq!((numbers, told.delivered.stream_seq), (vec![9, 10, 11], 30));
    }

    #[test]
    fn absurd_sequences_are_refused() {
        for seq in [u64::MAX, 1 << 63] {
            let state = state(&[(seq, 1)], &[]);
            let config = ConsumerConfig::default();
            assert!(Consumer::<()>::restored(config, &state, Timestamp(1)).is_err());
        }
        let state = state(&[(6, u64::MAX), (7, 1)], &[]);
        let config = ConsumerConfig::default();
        assert!(Consumer::<()>::restored(config, &state, Timestamp(1)).is_err());
    }
}
