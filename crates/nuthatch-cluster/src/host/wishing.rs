//! What people say of a log: who is to own it, which the nodes bring about by planned handovers (`balance`), and that what a
//! node held of it is gone. Rows of its catalog.

use super::Host;
use nuthatch_catalog_group::LogNumber;
use nuthatch_log::env::{Entropy as _, SystemEntropy};
use nuthatch_quorum::catalog::{Call, GivingUp, Key, Snapshot, Txn, TxnId, Value, Wish};
use nuthatch_quorum::types::{Incarnation, NodeId, Revision};
use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};

/// The catalog may take so long to take it.
const WISHED_WITHIN: Duration = Duration::from_secs(4);

/// Between two looks whether it has.
const LOOK: Duration = Duration::from_millis(10);

/// A catalog that has failed once is asked again so often.
const AGAIN: Duration = Duration::from_millis(500);

/// Why the catalog does not say what people want of a log.
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
    /// The copy of a node is not given up that is to keep the log.
    #[error(
        "the node is to keep the log {0}: what it holds is given up only where another node takes its place"
    )]
    IsToKeep(LogNumber),
}

/// What is to be asked of the catalog, by what it says.
enum Wanted {
    /// It is so.
    Done,
    /// To put this under a key that has this revision.
    Put(Key, Revision, Value),
}

impl Host {
    /// Has the catalog say who is to own the log; nobody: that does not matter any more. Waits for it. It is asked also where it
    /// is known to say so: others may have changed that since.
    pub(crate) fn wish_owner(&self, owner: Option<NodeId>) -> Result<(), NotWished> {
        self.bring_about(|known, proposed| {
            let (revision, wish) = (known.wish.revision, &known.wish.value);
            if wish.owner == owner && proposed.is_some_and(|before| before != revision) {
                return Ok(Wanted::Done);
            }
            if owner.is_some_and(|node| !wish.keepers.contains(&node)) {
                return Err(NotWished::KeepsNoCopy);
            }
            let wish = Wish { keepers: wish.keepers.clone(), owner };
            Ok(Wanted::Put(Key::Wish, revision, Value::Wish(wish)))
        })
    }

    /// Has the catalog say that what a node holds of the log is gone, where the log can go on without that. Waits for it. A disk
    /// that the node has begun with meanwhile is not given up.
    pub(crate) fn give_up(&self, number: LogNumber, node: NodeId) -> Result<(), NotWished> {
        let at_first = Cell::new(None);
        self.bring_about(|known, _| {
            let named = known.nodes.get(&node).map(|row| row.value.incarnation);
            let first = at_first.get().unwrap_or(named);
            at_first.set(Some(first));
            if first != named {
                return Ok(Wanted::Done);
            }
            match known.giving_up(node) {
                GivingUp::Done => Ok(Wanted::Done),
                GivingUp::Wanted => Err(NotWished::IsToKeep(number)),
                GivingUp::Put(revision, row) => {
                    Ok(Wanted::Put(Key::Node(node), revision, Value::Node(row)))
                }
            }
        })
    }

    /// True if a node's disk can be given up, and was not. Waits until something is known of the log.
    pub(crate) fn may_give_up(&self, node: NodeId) -> Result<bool, NotWished> {
        let late = Instant::now() + WISHED_WITHIN;
        loop {
            match self.snapshot() {
                Some(known) => return Ok(known.giving_up(node) != GivingUp::Done),
                None if Instant::now() >= late => return Err(NotWished::NoAnswer),
                None => thread::sleep(LOOK),
            }
        }
    }

    /// Proposes until it is so. `look` is told what the catalog says, and on which revision it was proposed last.
    fn bring_about(
        &self,
        look: impl Fn(&Snapshot, Option<Revision>) -> Result<Wanted, NotWished>,
    ) -> Result<(), NotWished> {
        let late = Instant::now() + WISHED_WITHIN;
        let mut proposed: Option<(Txn, Instant)> = None;
        while Instant::now() < late {
            let Some(known) = self.snapshot() else {
                thread::sleep(LOOK);
                continue;
            };
            let before = proposed.as_ref().map(|(txn, _)| txn.revision);
            let Wanted::Put(key, revision, value) = look(&known, before)? else { return Ok(()) };
            // The same under the same name is done once; what others have changed is built upon.
            let same = proposed.take().filter(|(txn, _)| txn.revision == revision);
            let (txn, at) = same.unwrap_or_else(|| {
                let id = TxnId { proposer: drawn(), number: 1 };
                let txn = Txn { id, key, revision, seen: known.revision, value };
                self.helpers.catalog.hand(Call::Propose(txn.clone()));
                (txn, Instant::now())
            });
            let is_late = at.elapsed() >= AGAIN;
            if is_late {
                self.helpers.catalog.hand(Call::Propose(txn.clone()));
            }
            proposed = Some((txn, if is_late { Instant::now() } else { at }));
            thread::sleep(LOOK);
        }
        Err(NotWished::NoAnswer)
    }

    fn snapshot(&self) -> Option<Snapshot> {
        self.cores().node.catalog().cloned()
    }
}

/// A number that nobody else has.
fn drawn() -> Incarnation {
    let mut entropy = SystemEntropy::default();
    Incarnation(u128::from(entropy.next()) << 64 | u128::from(entropy.next()))
}
