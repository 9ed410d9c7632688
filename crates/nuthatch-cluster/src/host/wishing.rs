//! People say who is to own the log: a row of the catalog, which the nodes bring about by planned handovers (`balance`).

use super::Host;
use nuthatch_log::env::{Entropy as _, SystemEntropy};
use nuthatch_quorum::catalog::{Call, Key, Snapshot, Txn, TxnId, Value, Wish};
use nuthatch_quorum::types::{Incarnation, NodeId};
use std::thread;
use std::time::{Duration, Instant};

/// The catalog may take so long to take it.
const WISHED_WITHIN: Duration = Duration::from_secs(4);

/// Between two looks whether it has.
const LOOK: Duration = Duration::from_millis(10);

/// A catalog that has failed once is asked again so often.
const AGAIN: Duration = Duration::from_millis(500);

/// Why nobody was named as a log's owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotWished {
    /// Whether the catalog takes it is not known.
    #[error(
        "the catalog has not taken it within 4 s: it may take it still. Ask again when a majority of the nodes is there"
    )]
    NoAnswer,
    /// The nodes that are to keep the log have changed.
    #[error(
        "the nodes that are to keep the log have just changed, and it is none of them any more"
    )]
    KeepsNoCopy,
}

impl Host {
    /// Has the catalog say who is to own the log; nobody: that does not matter any more. Waits for it. It is asked also where it
    /// is known to say so: others may have changed that since.
    pub(crate) fn wish_owner(&self, owner: Option<NodeId>) -> Result<(), NotWished> {
        let late = Instant::now() + WISHED_WITHIN;
        let mut proposed: Option<(Txn, Instant)> = None;
        while Instant::now() < late {
            if let Some(known) = self.snapshot() {
                let (revision, is_so) = (known.wish.revision, known.wish.value.owner == owner);
                match &proposed {
                    Some((txn, _)) if txn.revision != revision && is_so => return Ok(()),
                    Some((txn, at)) if txn.revision == revision && at.elapsed() < AGAIN => {}
                    _ => {
                        if owner.is_some_and(|node| !known.wish.value.keepers.contains(&node)) {
                            return Err(NotWished::KeepsNoCopy);
                        }
                        // The same under the same name is done once; what others have changed is built upon.
                        let same = proposed.take().filter(|(txn, _)| txn.revision == revision);
                        let txn = same.map_or_else(|| wish(&known, owner), |(txn, _)| txn);
                        self.helpers.catalog.hand(Call::Propose(txn.clone()));
                        proposed = Some((txn, Instant::now()));
                    }
                }
            }
            thread::sleep(LOOK);
        }
        Err(NotWished::NoAnswer)
    }

    fn snapshot(&self) -> Option<Snapshot> {
        self.cores().node.catalog().cloned()
    }
}

/// The transaction, under a name of its own.
fn wish(known: &Snapshot, owner: Option<NodeId>) -> Txn {
    let keepers = known.wish.value.keepers.clone();
    let mut entropy = SystemEntropy::default();
    let proposer = Incarnation(u128::from(entropy.next()) << 64 | u128::from(entropy.next()));
    Txn {
        id: TxnId { proposer, number: 1 },
        key: Key::Wish,
        revision: known.wish.revision,
        seen: known.revision,
        value: Value::Wish(Wish { keepers, owner }),
    }
}
