//! People say who is to own the log: a row of the catalog, which the nodes bring about by planned handovers (`balance`).

use super::Host;
use crate::beginning::random;
use nuthatch_quorum::catalog::{Call, Key, Snapshot, Txn, TxnId, Value, Wish};
use nuthatch_quorum::types::{Incarnation, NodeId};
use std::thread;
use std::time::{Duration, Instant};

/// The catalog may take so long to take it.
const WISHED_WITHIN: Duration = Duration::from_secs(4);

/// Between two looks whether it has.
const LOOK: Duration = Duration::from_millis(10);

/// The catalog has not taken it: whether it will is not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the catalog has not taken it within 4 s: it may take it still. Ask again when a majority of the nodes is there"
)]
pub struct NotWished;

impl Host {
    /// Has the catalog say who is to own the log; nobody: that does not matter any more. Waits for it.
    pub(crate) fn wish_owner(&self, owner: Option<NodeId>) -> Result<(), NotWished> {
        let late = Instant::now() + WISHED_WITHIN;
        let mut proposed = None;
        while Instant::now() < late {
            // What is known is what the catalog has said last.
            if let Some(known) = self.snapshot() {
                if known.wish.value.owner == owner {
                    return Ok(());
                }
                // What somebody else has changed meanwhile is built upon.
                if proposed != Some(known.wish.revision) {
                    proposed = Some(known.wish.revision);
                    self.helpers.catalog.hand(Call::Propose(wish(&known, owner)));
                }
            }
            thread::sleep(LOOK);
        }
        Err(NotWished)
    }

    fn snapshot(&self) -> Option<Snapshot> {
        self.cores().node.catalog().cloned()
    }
}

/// The transaction, under a name of its own.
fn wish(known: &Snapshot, owner: Option<NodeId>) -> Txn {
    let proposer = Incarnation(random());
    let keepers = known.wish.value.keepers.clone();
    Txn {
        id: TxnId { proposer, number: 1 },
        key: Key::Wish,
        revision: known.wish.revision,
        seen: known.revision,
        value: Value::Wish(Wish { keepers, owner }),
    }
}
