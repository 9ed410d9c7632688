//! Clients of the catalog: each is at one node at a time, asks one thing after the other, and proposes a transaction
//! of which it does not know what became again, under the same name.

use super::check::Asked;
use crate::rng::Rng;
use nuthatch_quorum::catalog::{Call, Key, NodeRow, Snapshot, Txn, TxnId, Value, Wish};
use nuthatch_quorum::types::{BootCount, Incarnation, NodeId, Revision};

/// A client.
#[derive(Debug)]
pub struct Client {
    me: u64,
    made: u64,
    /// What it knows of the catalog.
    known: Option<Snapshot>,
    /// What it asks at present, and under which number at which node.
    pub asks: Option<(Asked, u64, usize)>,
}

impl Client {
    /// A client that knows nothing.
    #[must_use]
    pub fn new(me: u64) -> Self {
        Self { me, made: 0, known: None, asks: None }
    }

    /// The next thing to ask: the last one again while it was not answered. Where little happens (`quiet`) nothing is proposed
    /// but what the nodes wait for.
    pub fn next(&mut self, floor: Revision, quiet: bool, rng: &mut Rng) -> Asked {
        if let Some((asked, ..)) = &self.asks {
            return asked.clone();
        }
        let known = self.known.as_ref().filter(|_| rng.chance(700));
        let known = known.filter(|known| !quiet || is_waited_for(known));
        let call = known.map_or(Call::Read, |known| {
            self.made += 1;
            Call::Propose(txn((self.me, self.made), known, rng))
        });
        Asked { call, floor }
    }

    /// An answer came.
    pub fn learn(&mut self, snapshot: &Snapshot) {
        self.known = Some(snapshot.clone());
        self.asks = None;
    }
}

fn txn((me, made): (u64, u64), known: &Snapshot, rng: &mut Rng) -> Txn {
    let id = TxnId { proposer: Incarnation(me.into()), number: made };
    let node = unnamed(known).filter(|_| rng.chance(500));
    let node = node.unwrap_or_else(|| NodeId(u8::try_from(rng.between(1, 8)).expect("small")));
    let (key, revision, value) = match rng.below(3) {
        0 => {
            let keepers = known.wish.value.keepers.clone();
            let wish = Wish { keepers, owner: Some(node) };
            (Key::Wish, known.wish.revision, Value::Wish(wish))
        }
        1 => {
            let mut row = known.log.value.clone();
            row.epoch.0 += 1;
            // As an owner does that brings the wish about.
            row.set = known.target();
            (Key::Log, known.log.revision, Value::Log(row))
        }
        _ => {
            let row = NodeRow {
                incarnation: Incarnation(rng.bits().into()),
                boots: BootCount(1),
                former: vec![],
            };
            let revision = known.nodes.get(&node).map_or(Revision(0), |row| row.revision);
            (Key::Node(node), revision, Value::Node(row))
        }
    };
    Txn { id, key, revision, seen: known.revision, value }
}

/// True if the log is not where it is wished, or a node that is wished has not named its disk.
fn is_waited_for(known: &Snapshot) -> bool {
    unnamed(known).is_some() || known.target() != known.log.value.set
}

/// A node that is wished and has not named its disk.
fn unnamed(known: &Snapshot) -> Option<NodeId> {
    let keepers = &known.wish.value.keepers;
    keepers.iter().copied().find(|node| !known.nodes.contains_key(node))
}
