//! A consumer's progress as snapshots of a stream write it (nats-server 2.15 `store.go`,
//! `stream_backup.go`).

use super::{ConsumerConfig, is_default};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A consumer in a snapshot.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ConsumerSnapshot {
    /// Its configuration.
    pub config: ConsumerConfig,
    /// How far it has come; `None`: as if it had just been created.
    #[serde(default)]
    pub state: Option<ConsumerState>,
}

/// How far a consumer has come.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ConsumerState {
    /// The last delivery.
    pub delivered: SequencePair,
    /// Everything up to here is acknowledged.
    pub ack_floor: SequencePair,
    /// Pending messages, by stream sequence.
    #[serde(skip_serializing_if = "is_default")]
    pub pending: BTreeMap<u64, PendingDelivery>,
    /// How often messages were delivered again, by stream sequence.
    #[serde(skip_serializing_if = "is_default")]
    pub redelivered: BTreeMap<u64, u64>,
}

/// A consumer's sequence beside a stream's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SequencePair {
    /// The consumer's: deliveries so far.
    pub consumer_seq: u64,
    /// The stream's.
    pub stream_seq: u64,
}

/// A message that waits for its acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct PendingDelivery {
    /// Consumer sequence of the first delivery.
    pub sequence: u64,
    /// When it was delivered last, ns since the epoch.
    pub timestamp: i64,
}

impl ConsumerState {
    /// The state as of stream sequence `last`: nothing that came later counts.
    pub fn cut(&mut self, last: u64) {
        self.delivered.stream_seq = self.delivered.stream_seq.min(last);
        self.ack_floor.stream_seq = self.ack_floor.stream_seq.min(last);
        self.pending.retain(|&seq, _| seq <= last);
        self.redelivered.retain(|&seq, _| seq <= last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_on_the_wire_are_those_of_the_incumbent() {
        let text = r#"{"delivered":{"consumer_seq":7,"stream_seq":9},"ack_floor":{"consumer_seq":4,"stream_seq":5},"pending":{"6":{"Sequence":5,"Timestamp":12}},"redelivered":{"6":2}}"#;
        let state: ConsumerState = serde_json::from_str(text).expect("valid");
        assert_eq!(state.pending[&6], PendingDelivery { sequence: 5, timestamp: 12 });
        assert_eq!(serde_json::to_string(&state).expect("encodes"), text);
    }

    #[test]
    fn a_cut_forgets_what_came_later() {
        let mut state = ConsumerState {
            delivered: SequencePair { consumer_seq: 4, stream_seq: 9 },
            pending: [(3, PendingDelivery::default()), (8, PendingDelivery::default())].into(),
            redelivered: [(8, 1)].into(),
            ..ConsumerState::default()
        };
        state.cut(7);
        assert_eq!(state.delivered.stream_seq, 7);
        assert_eq!(state.pending.keys().copied().collect::<Vec<_>>(), [3]);
        assert!(state.redelivered.is_empty());
    }
}
