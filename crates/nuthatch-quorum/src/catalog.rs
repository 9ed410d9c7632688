//! The catalog: one state machine of small transactions, compared by revision.
//!
//! [`Catalog`] is a linearizable model of it in memory. A file, objects in a bucket, etcd or a built-in
//! group order the same transactions later, behind [`Ordering`].

use crate::rules::Rule;
use crate::types::{BootCount, Epoch, Incarnation, Lsn, Member, NodeId, Revision, majority};
use std::collections::{BTreeMap, VecDeque};
use thiserror::Error;

/// Whether an epoch's owner is still taking over.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    /// The owner collects what the epoch starts with.
    Recovering,
    /// The start of the epoch is decided.
    Serving,
}

/// That a takeover went on with a disk whose tail had been cut off (R2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CutRecord {
    /// The disk.
    pub disk: Incarnation,
    /// The epoch that went on with it.
    pub epoch: Epoch,
    /// The last entry that it still had.
    pub after: Lsn,
}

/// The row of a log.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LogRow {
    /// The newest epoch.
    pub epoch: Epoch,
    /// Who owns it; none before the first.
    pub owner: Option<Member>,
    /// How far that is.
    pub phase: Phase,
    /// The epoch with which the log last began anew, which only one in memory does; 0: it never has. What disks hold of
    /// earlier epochs counts for nothing.
    pub origin: Epoch,
    /// The disks that hold the log.
    pub set: Vec<Member>,
    /// The last entry before the epoch.
    pub start: Lsn,
    /// Takeovers that went on with a disk that was cut.
    pub cuts: Vec<CutRecord>,
}

/// What is wanted of the log, by people or a coordinator. Nodes bring it about by takeovers.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Wish {
    /// The nodes that are to keep the log.
    pub keepers: Vec<NodeId>,
    /// The one that is to own it, by somebody's word; none where that does not matter. Drivers bring it about: the cores do
    /// nothing for it.
    pub owner: Option<NodeId>,
}

/// The row of a node.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct NodeRow {
    /// Its disk.
    pub incarnation: Incarnation,
    /// How often that was begun with.
    pub boots: BootCount,
    /// Disks that it had before; they never come back.
    pub former: Vec<Incarnation>,
}

/// A key of the catalog.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Key {
    /// The row of the log.
    Log,
    /// The row of a node.
    Node(NodeId),
    /// What is wanted of the log.
    Wish,
}

/// A value to put.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Value {
    /// Under [`Key::Log`].
    Log(LogRow),
    /// Under [`Key::Node`].
    Node(NodeRow),
    /// Under [`Key::Wish`].
    Wish(Wish),
}

/// Names a transaction: proposed again under the same name it is applied once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TxnId {
    /// A random number that the proposer drew at its start.
    pub proposer: Incarnation,
    /// Number of the transaction since that start.
    pub number: u64,
}

/// A transaction: puts a value if the key's revision is as it was read.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Txn {
    /// Its name.
    pub id: TxnId,
    /// The key.
    pub key: Key,
    /// The revision that the key must have.
    pub revision: Revision,
    /// The greatest revision of the catalog that the proposer has seen: one that is behind it was set back, and
    /// must not go on from there.
    pub seen: Revision,
    /// The new value.
    pub value: Value,
}

/// A question to the catalog.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Call {
    /// A linearizable read of everything.
    Read,
    /// A transaction.
    Propose(Txn),
}

/// Why a transaction was not applied.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum ProposeError {
    /// The key has another revision.
    #[error("the key has revision {current:?}")]
    Changed {
        /// The revision it has.
        current: Revision,
    },
    /// The catalog is behind what the proposer has seen.
    #[error("the catalog was set back to revision {at:?}")]
    Behind {
        /// The revision it has.
        at: Revision,
    },
}

/// A value with the revision that put it there.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Versioned<T> {
    /// The revision.
    pub revision: Revision,
    /// The value.
    pub value: T,
}

/// Everything in the catalog.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Snapshot {
    /// Revision of the catalog.
    pub revision: Revision,
    /// The log's row.
    pub log: Versioned<LogRow>,
    /// The nodes' rows.
    pub nodes: BTreeMap<NodeId, Versioned<NodeRow>>,
    /// What is wanted of the log.
    pub wish: Versioned<Wish>,
}

impl Snapshot {
    /// The set that an owner or candidate is to bring about: the wished one, or where nobody of that keeps
    /// the log yet one with itself in the last place, since somebody has to hand the log on.
    #[must_use]
    pub fn target_of(&self, me: Member) -> Vec<Member> {
        let mut target = self.target();
        let set = &self.log.value.set;
        if !target.iter().any(|member| *member == me || set.contains(member)) {
            target.pop();
            target.push(me);
        }
        target
    }

    /// The disks of that set that the log's set has not.
    #[must_use]
    pub fn newcomers_for(&self, me: Member) -> Vec<Member> {
        let (mut target, set) = (self.target_of(me), &self.log.value.set);
        target.retain(|member| !set.contains(member));
        target
    }

    /// The set that the log is to have: the disks that the wished nodes have now. While one of them has
    /// none, the nodes stay as they are.
    #[must_use]
    pub fn target(&self) -> Vec<Member> {
        let disk = |node: &NodeId| self.nodes.get(node).map(|row| row.value.incarnation);
        let member =
            |node: &NodeId| disk(node).map(|incarnation| Member { node: *node, incarnation });
        let wished: Option<Vec<Member>> = self.wish.value.keepers.iter().map(member).collect();
        let set = &self.log.value.set;
        wished.unwrap_or_else(|| set.iter().map(|m| member(&m.node).unwrap_or(*m)).collect())
    }
}

/// How a log in memory begins anew.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Anew {
    /// The disks that it begins on.
    pub set: Vec<Member>,
    /// How many disks of its former set may be there still.
    pub left: usize,
}

/// Former disks of a node that the catalog names for a log in memory. One that has ended cannot come back, so few are needed; of a
/// directory that says who owns a log in a bucket it takes eight others since, each begun in its place.
pub(crate) const FORMER_MAX: usize = 8;

/// What becomes of the disk of a node of which people say that it is gone for good.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GivingUp {
    /// The node is to keep the log: a disk that nobody has would be wanted in the set.
    Wanted,
    /// It is said already, or the node never had a disk.
    Done,
    /// The row of the node is to be this one, in the place of the one of that revision.
    Put(Revision, NodeRow),
}

/// Logs in memory, whose disks end with their nodes' processes.
impl Snapshot {
    /// What the catalog is to say where people know that the disk of a node is gone for good: that the node has another
    /// one, which nobody has and which follows from the disk that is given up, so that to say it again is nothing new. A log in
    /// memory waits for it no longer. It is said also where the disk is in no set: a claim with it may be on its way. It must
    /// not be said of a node that runs: what was acknowledged with it may be lost then, as if its memory was.
    #[must_use]
    pub fn giving_up(&self, node: NodeId) -> GivingUp {
        let Some(row) = self.nodes.get(&node) else { return GivingUp::Done };
        let nobodys = |disk: &Incarnation| Incarnation(!disk.0);
        let disk = row.value.incarnation;
        if row.value.former.last().map(nobodys) == Some(disk) {
            return GivingUp::Done;
        }
        if self.wish.value.keepers.contains(&node) && Rule::GivenUpUnwanted.holds() {
            return GivingUp::Wanted;
        }
        let mut former = row.value.former.clone();
        former.push(disk);
        let former = former.split_off(former.len().saturating_sub(FORMER_MAX));
        let instead = NodeRow { incarnation: nobodys(&disk), boots: BootCount(0), former };
        GivingUp::Put(row.revision, instead)
    }

    /// How a log in memory begins anew, where it has to; none while it goes on, or waits for disks to do so.
    ///
    /// It goes on while a majority of its set may be there: what was acknowledged is on one of those. A disk is gone when
    /// its node has named another one, which it does after its end and never takes back, so fewer are left with time
    /// and never more. With fewer than a majority nobody can tell any more what was acknowledged. Then it begins on disks
    /// that were never in its set. One of these may have been brought some of it: that counts for nothing
    /// ([`LogRow::origin`]), as does what one has that is left, which may lack what others have acknowledged.
    #[must_use]
    pub fn anew(&self) -> Option<Anew> {
        let LogRow { epoch, set, .. } = &self.log.value;
        let named = |m: &&Member| {
            self.nodes.get(&m.node).is_some_and(|row| row.value.incarnation == m.incarnation)
        };
        let left = set.iter().filter(named).count();
        let needed =
            if Rule::AnewWithoutMajority.holds() { majority(set.len()) } else { set.len() };
        if *epoch == Epoch(0) || left >= needed {
            return None;
        }
        let target = self.target();
        let new: Vec<Member> = target.iter().filter(|m| !set.contains(m)).copied().collect();
        let enough = new.len() >= majority(target.len()) || !Rule::AnewWithoutMajority.holds();
        enough.then_some(Anew { set: new, left })
    }
}

/// An answer of the catalog.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CatalogReply {
    /// What became of the transaction, with its name; none after a read.
    pub outcome: Option<(TxnId, Result<Revision, ProposeError>)>,
    /// The catalog after it.
    pub snapshot: Snapshot,
}

/// Something that orders transactions.
pub trait Ordering {
    /// Answers one call. Calls take effect in the order of this function's invocations.
    fn call(&mut self, call: &Call) -> CatalogReply;
}

/// Names of transactions that are remembered.
const REMEMBERED: usize = 64;

/// The catalog in memory.
#[derive(Clone, Debug)]
pub struct Catalog {
    state: Snapshot,
    recent: VecDeque<(TxnId, Result<Revision, ProposeError>)>,
}

impl Catalog {
    /// A catalog of a log that was founded on the disks of `set` and has had no owner yet.
    #[must_use]
    pub fn founded(set: Vec<Member>, nodes: BTreeMap<NodeId, NodeRow>) -> Self {
        let keepers = set.iter().map(|member| member.node).collect();
        let row = LogRow {
            epoch: Epoch(0),
            owner: None,
            phase: Phase::Recovering,
            set,
            start: Lsn(0),
            cuts: vec![],
            origin: Epoch(0),
        };
        let first = Revision(1);
        let rows =
            nodes.into_iter().map(|(id, row)| (id, Versioned { revision: first, value: row }));
        let state = Snapshot {
            revision: first,
            log: Versioned { revision: first, value: row },
            nodes: rows.collect(),
            wish: Versioned { revision: first, value: Wish { keepers, owner: None } },
        };
        Self { state, recent: VecDeque::new() }
    }

    /// A catalog as it was: what it held, and what became of the last transactions ([`Catalog::recent`]).
    #[must_use]
    pub fn restored(
        state: Snapshot,
        recent: VecDeque<(TxnId, Result<Revision, ProposeError>)>,
    ) -> Self {
        Self { state, recent }
    }

    /// What became of the last transactions, the oldest first.
    pub fn recent(&self) -> impl Iterator<Item = &(TxnId, Result<Revision, ProposeError>)> {
        self.recent.iter()
    }

    /// What it holds.
    #[must_use]
    pub fn state(&self) -> &Snapshot {
        &self.state
    }

    fn current(&self, key: Key) -> Revision {
        match key {
            Key::Log => self.state.log.revision,
            Key::Wish => self.state.wish.revision,
            Key::Node(id) => self.state.nodes.get(&id).map_or(Revision(0), |row| row.revision),
        }
    }

    fn propose(&mut self, txn: &Txn) -> Result<Revision, ProposeError> {
        if let Some((_, outcome)) = self.recent.iter().find(|(id, _)| *id == txn.id) {
            return *outcome;
        }
        let at = self.state.revision;
        if txn.seen > at && Rule::CatalogRefusesBehind.holds() {
            return Err(ProposeError::Behind { at });
        }
        let current = self.current(txn.key);
        let compared = current == txn.revision || !Rule::CompareRow.holds();
        let outcome =
            if compared { Ok(self.put(txn)) } else { Err(ProposeError::Changed { current }) };
        if self.recent.len() == REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.push_back((txn.id, outcome));
        outcome
    }

    fn put(&mut self, txn: &Txn) -> Revision {
        let revision = Revision(self.state.revision.0 + 1);
        self.state.revision = revision;
        match (txn.key, txn.value.clone()) {
            (Key::Log, Value::Log(value)) => self.state.log = Versioned { revision, value },
            (Key::Wish, Value::Wish(value)) => self.state.wish = Versioned { revision, value },
            (Key::Node(id), Value::Node(value)) => {
                self.state.nodes.insert(id, Versioned { revision, value });
            }
            (key, value) => panic!("{value:?} does not belong under {key:?}"),
        }
        revision
    }
}

impl Ordering for Catalog {
    fn call(&mut self, call: &Call) -> CatalogReply {
        let outcome = match call {
            Call::Read => None,
            Call::Propose(txn) => Some((txn.id, self.propose(txn))),
        };
        CatalogReply { outcome, snapshot: self.state.clone() }
    }
}

#[cfg(test)]
mod tests;
