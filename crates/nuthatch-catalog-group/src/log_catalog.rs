//! The catalogs of a cluster's logs. Each log has rows and revisions of its own, so that nothing that is decided of one
//! is compared with what is decided of another.
//!
//! The first log begins with the disks that the founding names. The others begin without any: a node gets their
//! directories when it knows how many logs there are, which the founding says. The transaction by which the last of the
//! nodes names its disk gives such a log its set. Until the first epoch is claimed the set follows the disks that
//! the nodes name, since nothing can have been acknowledged yet; a claim names the row's revision, so one of the two
//! comes first. From the first claim on the set is the cores' matter, as that of the first log is from the beginning.

use crate::rules::Rule;
use crate::types::LogNumber;
use nuthatch_quorum::catalog::{
    Call, Catalog, CatalogReply, LogRow, NodeRow, Ordering as _, Phase, ProposeError, Snapshot,
    TxnId, Versioned, Wish,
};
use nuthatch_quorum::types::{BootCount, Epoch, Lsn, Member, NodeId, Revision};
use std::collections::{BTreeMap, VecDeque};

/// The catalog of one log.
#[derive(Clone, Debug)]
pub struct LogCatalog {
    log: LogNumber,
    /// It began without disks: its set is that of the nodes' until it is claimed.
    without_disks: bool,
    catalog: Catalog,
    /// How often the nodes had changed in the roster that this log has followed last. Only where the catalog is outside the
    /// nodes: in the built-in one the wishes of all logs change in the step in which the nodes do.
    followed: u64,
}

impl LogCatalog {
    /// The catalog of a log as it is founded by these disks, in the order of their nodes' numbers.
    #[must_use]
    pub fn founded(log: LogNumber, disks: &[Member]) -> Self {
        let catalog = match log {
            LogNumber::FIRST => {
                let row = |disk: &Member| {
                    let (incarnation, boots) = (disk.incarnation, BootCount(0));
                    (disk.node, NodeRow { incarnation, boots, former: vec![] })
                };
                Catalog::founded(disks.to_vec(), disks.iter().map(row).collect())
            }
            _ => return Self::without_disks(log, disks),
        };
        Self { log, without_disks: false, catalog, followed: 0 }
    }

    /// That of a log whose keepers lie in directories that may be gone at any start: as the others it begins without disks,
    /// the first one, too, since none of those that the founding names may be there any more.
    #[must_use]
    pub fn without_disks(log: LogNumber, disks: &[Member]) -> Self {
        let catalog = without_disks(keepers(log, disks));
        Self { log, without_disks: true, catalog, followed: 0 }
    }

    /// A catalog as it was, of a log on disks.
    #[must_use]
    pub fn restored(log: LogNumber, catalog: Catalog) -> Self {
        Self { log, without_disks: log != LogNumber::FIRST, catalog, followed: 0 }
    }

    /// The log.
    #[must_use]
    pub fn number(&self) -> LogNumber {
        self.log
    }

    /// The catalog.
    #[must_use]
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// What it holds.
    #[must_use]
    pub fn state(&self) -> &Snapshot {
        self.catalog.state()
    }

    /// What became of a transaction; none: it has not been applied, or that was forgotten.
    #[must_use]
    pub fn outcome(&self, id: TxnId) -> Option<Result<Revision, ProposeError>> {
        let mut recent = self.catalog.recent();
        recent.find(|(recent, _)| *recent == id).map(|(_, outcome)| *outcome)
    }

    /// Answers one call. Calls take effect in the order of this function's invocations.
    pub fn call(&mut self, call: &Call) -> CatalogReply {
        let reply = self.catalog.call(call);
        if !self.seat() {
            return reply;
        }
        CatalogReply { snapshot: self.catalog.state().clone(), ..reply }
    }

    /// Names a node in the wish instead of others. The log's owner brings it about.
    ///
    /// The row is another revision then: what was proposed of an earlier wish and is under way changes nothing any more. It
    /// could bring a node into the set that was named, left out and named again meanwhile, after that was removed.
    pub fn wish_instead(&mut self, of: &[NodeId], new: NodeId) {
        let wish = &self.catalog.state().wish.value;
        let instead = |node: NodeId| if of.contains(&node) { new } else { node };
        let mut keepers = vec![];
        for node in wish.keepers.iter().copied().map(instead) {
            if !keepers.contains(&node) {
                keepers.push(node);
            }
        }
        let owner = wish.owner.map(instead);
        self.wish(Wish { keepers, owner });
    }

    /// Names these nodes in the wish, too, or no more. Which of the nodes is to own which log is found anew: each log has
    /// another one first.
    pub fn wish_with(&mut self, nodes: &[NodeId], keep: bool) {
        let wish = &self.catalog.state().wish.value;
        let others = wish.keepers.iter().copied().filter(|node| !nodes.contains(node));
        let mut keepers: Vec<NodeId> =
            others.chain(nodes.iter().copied().filter(|_| keep)).collect();
        keepers.sort_unstable();
        in_turn(self.log, &mut keepers);
        let owner = wish.owner.filter(|owner| keepers.contains(owner));
        self.wish(Wish { keepers, owner });
    }

    /// How often the nodes had changed in the roster that this log has followed last.
    #[must_use]
    pub fn followed(&self) -> u64 {
        self.followed
    }

    /// True if a roster with so many changes is nothing new for it: it has followed that, or a later one.
    #[must_use]
    pub fn has_followed(&self, changes: u64) -> bool {
        self.followed >= changes && Rule::LaterRosterFollowed.holds()
    }

    /// Has the wish name the nodes that are to keep the logs by a roster with so many changes; one that is not later than what the
    /// log has followed changes nothing. The same order of calls has the same wishes, whoever makes them.
    pub fn follow(&mut self, changes: u64, keepers: &[NodeId]) {
        if self.has_followed(changes) {
            return;
        }
        self.followed = changes;
        let wished = &self.catalog.state().wish.value.keepers;
        let goes: Vec<NodeId> =
            wished.iter().copied().filter(|node| !keepers.contains(node)).collect();
        let comes: Vec<NodeId> =
            keepers.iter().copied().filter(|node| !wished.contains(node)).collect();
        match (&goes[..], &comes[..]) {
            ([], []) => {}
            ([_], [new]) => self.wish_instead(&goes, *new),
            (_, []) => self.wish_with(&goes, false),
            ([], _) => self.wish_with(&comes, true),
            _ => {
                self.wish_with(&goes, false);
                self.wish_with(&comes, true);
            }
        }
    }

    /// True if the wish names these nodes, and no others.
    #[must_use]
    pub fn is_wished(&self, keepers: &[NodeId]) -> bool {
        let wished = &self.catalog.state().wish.value.keepers;
        wished.len() == keepers.len() && wished.iter().all(|node| keepers.contains(node))
    }

    fn wish(&mut self, wish: Wish) {
        let mut state = self.catalog.state().clone();
        state.revision.0 += 1;
        state.wish = Versioned { revision: state.revision, value: wish };
        state.log.revision = state.revision;
        let recent: VecDeque<_> = self.catalog.recent().copied().collect();
        self.catalog = Catalog::restored(state, recent);
        self.seat();
    }

    /// True if the log is on a node, or is to be.
    #[must_use]
    pub fn is_on(&self, node: NodeId) -> bool {
        let state = self.catalog.state();
        let is_in_set = state.log.value.set.iter().any(|member| member.node == node);
        is_in_set || state.wish.value.keepers.contains(&node)
    }

    /// True if the log is on the nodes that are wished, and no others.
    #[must_use]
    pub fn is_as_wished(&self) -> bool {
        let state = self.catalog.state();
        let sorted = |mut nodes: Vec<NodeId>| {
            nodes.sort_unstable();
            nodes
        };
        let set = state.log.value.set.iter().map(|member| member.node).collect();
        sorted(set) == sorted(state.wish.value.keepers.clone())
    }

    /// Gives a log that has had no epoch the disks that its nodes have named, once all have; true if that changes
    /// something. It is part of the transaction that was just applied, under its revision.
    fn seat(&mut self) -> bool {
        let state = self.catalog.state();
        let unclaimed = self.without_disks && state.log.value.epoch == Epoch(0);
        let set = state.target();
        if !unclaimed || set == state.log.value.set {
            return false;
        }
        let mut state = state.clone();
        state.log.value.set = set;
        state.log.revision = state.revision;
        let recent: VecDeque<_> = self.catalog.recent().copied().collect();
        self.catalog = Catalog::restored(state, recent);
        true
    }
}

/// The nodes of a log in the order in which they are to own it: each log has another one first.
fn keepers(log: LogNumber, disks: &[Member]) -> Vec<NodeId> {
    let mut nodes: Vec<NodeId> = disks.iter().map(|disk| disk.node).collect();
    in_turn(log, &mut nodes);
    nodes
}

fn in_turn(log: LogNumber, nodes: &mut [NodeId]) {
    if !nodes.is_empty() {
        let first = log.index() % nodes.len();
        nodes.rotate_left(first);
    }
}

fn without_disks(keepers: Vec<NodeId>) -> Catalog {
    let row = LogRow {
        epoch: Epoch(0),
        owner: None,
        phase: Phase::Recovering,
        set: vec![],
        start: Lsn(0),
        cuts: vec![],
        origin: Epoch(0),
    };
    let first = Revision(1);
    let state = Snapshot {
        revision: first,
        log: Versioned { revision: first, value: row },
        nodes: BTreeMap::new(),
        wish: Versioned { revision: first, value: Wish { keepers, owner: None } },
    };
    Catalog::restored(state, VecDeque::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nuthatch_quorum::catalog::{Key, Txn, Value};
    use nuthatch_quorum::types::Incarnation;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn disk(node: u8, incarnation: u128) -> Member {
        Member { node: NodeId(node), incarnation: Incarnation(incarnation) }
    }

    fn disks() -> Vec<Member> {
        (1..=3).map(|node| disk(node, node.into())).collect()
    }

    fn propose(
        to: &mut LogCatalog,
        key: Key,
        revision: Revision,
        value: Value,
    ) -> Result<Revision, ProposeError> {
        let seen = to.state().revision;
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let id = TxnId { proposer: Incarnation(9), number };
        let txn = Txn { id, key, revision, seen, value };
        let reply = to.call(&Call::Propose(txn));
        assert_eq!(&reply.snapshot, to.state(), "an answer has what its transaction made");
        reply.outcome.expect("of a transaction").1
    }

    fn name(to: &mut LogCatalog, disk: Member) {
        let row = NodeRow { incarnation: disk.incarnation, boots: BootCount(1), former: vec![] };
        let known = to.state().nodes.get(&disk.node).map_or(Revision(0), |row| row.revision);
        propose(to, Key::Node(disk.node), known, Value::Node(row)).expect("nobody else does");
    }

    fn claim(to: &mut LogCatalog, read: &Versioned<LogRow>) -> Result<Revision, ProposeError> {
        let owner = read.value.set.first().copied();
        let row = LogRow { epoch: read.value.epoch.next(), owner, ..read.value.clone() };
        propose(to, Key::Log, read.revision, Value::Log(row))
    }

    #[test]
    fn in_a_bucket_the_first_log_follows_the_disks_that_are_named_too() {
        let mut first = LogCatalog::without_disks(LogNumber::FIRST, &disks());
        assert!(first.state().log.value.set.is_empty());
        assert_eq!(first.state().wish.value.keepers, [NodeId(1), NodeId(2), NodeId(3)]);
        let named = [disk(1, 41), disk(2, 42), disk(3, 43)];
        named.into_iter().for_each(|disk| name(&mut first, disk));
        assert_eq!(first.state().log.value.set, named);
        name(&mut first, disk(2, 52));
        assert_eq!(first.state().log.value.set[1], disk(2, 52), "nothing was claimed yet");
    }

    #[test]
    fn the_first_log_has_its_disks_from_the_founding_on() {
        let mut first = LogCatalog::founded(LogNumber::FIRST, &disks());
        assert_eq!(first.state().log.value.set, disks());
        name(&mut first, disk(2, 20));
        assert_eq!(first.state().log.value.set, disks(), "its set is the cores' matter");
    }

    #[test]
    fn another_log_has_a_set_when_all_nodes_have_named_their_disks() {
        let mut second = LogCatalog::founded(LogNumber(1), &disks());
        name(&mut second, disk(1, 11));
        name(&mut second, disk(3, 13));
        assert_eq!(second.state().log.value.set, []);
        name(&mut second, disk(2, 12));
        // Its first node is the second one.
        assert_eq!(second.state().log.value.set, [disk(2, 12), disk(3, 13), disk(1, 11)]);
        assert_eq!(second.state().target(), second.state().log.value.set, "nothing else is wished");
        assert_eq!(second.state().log.revision, second.state().revision);
        let firsts = (0..7).map(|log| keepers(LogNumber(log), &disks())[0].0);
        assert_eq!(firsts.collect::<Vec<_>>(), [1, 2, 3, 1, 2, 3, 1]);
    }

    #[test]
    fn another_node_is_wished_in_the_place_of_the_former_one() {
        for log in [LogNumber::FIRST, LogNumber(1)] {
            let mut log = LogCatalog::founded(log, &disks());
            (1..=3).for_each(|node| name(&mut log, disk(node, node.into())));
            assert!(log.is_as_wished());
            let before = log.state().clone();
            log.wish_instead(&[NodeId(3)], NodeId(4));
            assert_eq!(log.state().revision.0, before.revision.0 + 1);
            let keepers = |log: &LogCatalog| log.state().wish.value.keepers.clone();
            let wanted = before.wish.value.keepers.iter().map(|node| match node.0 {
                3 => NodeId(4),
                _ => *node,
            });
            assert_eq!(keepers(&log), wanted.collect::<Vec<_>>(), "in its place");
            assert!(!log.is_as_wished());
            // Another one instead of either: it is there once.
            log.wish_instead(&[NodeId(3), NodeId(4)], NodeId(5));
            log.wish_instead(&[NodeId(5)], NodeId(1));
            assert_eq!(keepers(&log).iter().filter(|node| node.0 == 1).count(), 1);
            let read = before.wish.revision;
            let wish = Value::Wish(before.wish.value.clone());
            let late = propose(&mut log, Key::Wish, read, wish);
            assert!(matches!(late, Err(ProposeError::Changed { .. })), "{late:?}");
        }
    }

    /// Named, left out and named again: a set that was proposed meanwhile has a node that may be removed by now (seed 305313
    /// of the group's schedules).
    #[test]
    fn what_was_proposed_of_an_earlier_wish_changes_nothing() {
        let mut log = LogCatalog::founded(LogNumber::FIRST, &disks());
        (1..=3).for_each(|node| name(&mut log, disk(node, node.into())));
        let read = log.state().log.clone();
        log.wish_instead(&[NodeId(3)], NodeId(4));
        assert!(matches!(claim(&mut log, &read), Err(ProposeError::Changed { .. })));
        let read = log.state().log.clone();
        claim(&mut log, &read).expect("as it was read");
    }

    #[test]
    fn a_disk_that_is_lost_before_the_first_epoch_is_replaced_in_the_set() {
        let mut log = LogCatalog::founded(LogNumber(3), &disks());
        (1..=3).for_each(|node| name(&mut log, disk(node, node.into())));
        let read = log.state().log.clone();
        name(&mut log, disk(1, 100));
        assert_eq!(log.state().log.value.set[0], disk(1, 100));
        // Whoever claims the epoch with the former set comes too late.
        assert!(matches!(claim(&mut log, &read), Err(ProposeError::Changed { .. })));
        let read = log.state().log.clone();
        claim(&mut log, &read).expect("as it was read");
        name(&mut log, disk(1, 101));
        assert_eq!(
            log.state().log.value.set[0],
            disk(1, 100),
            "from now on disks may hold something"
        );
    }
}
