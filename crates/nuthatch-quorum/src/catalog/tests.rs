//! Transactions are compared, and applied once.

use super::*;

fn txn(number: u64, revision: u64, epoch: u32) -> Txn {
    let row = LogRow {
        epoch: Epoch(epoch),
        owner: None,
        phase: Phase::Recovering,
        set: vec![],
        start: Lsn(0),
        cuts: vec![],
        origin: Epoch(0),
    };
    let id = TxnId { proposer: Incarnation(1), number };
    let seen = Revision(0);
    Txn { id, key: Key::Log, revision: Revision(revision), seen, value: Value::Log(row) }
}

fn outcome(catalog: &mut Catalog, txn: &Txn) -> Result<Revision, ProposeError> {
    catalog.call(&Call::Propose(txn.clone())).outcome.expect("a transaction has an outcome").1
}

#[test]
fn one_of_two_that_compare_the_same_revision_is_applied() {
    let mut catalog = Catalog::founded(vec![], BTreeMap::new());
    assert_eq!(outcome(&mut catalog, &txn(1, 1, 5)), Ok(Revision(2)));
    let changed = ProposeError::Changed { current: Revision(2) };
    assert_eq!(outcome(&mut catalog, &txn(2, 1, 6)), Err(changed));
    assert_eq!(catalog.state().log.value.epoch, Epoch(5));
}

#[test]
fn a_transaction_proposed_again_has_the_outcome_it_had() {
    let mut catalog = Catalog::founded(vec![], BTreeMap::new());
    let first = txn(1, 1, 5);
    assert_eq!(outcome(&mut catalog, &first), Ok(Revision(2)));
    assert_eq!(outcome(&mut catalog, &txn(2, 2, 6)), Ok(Revision(3)));
    assert_eq!(outcome(&mut catalog, &first), Ok(Revision(2)), "its answer was lost");
    assert_eq!(catalog.state().log.value.epoch, Epoch(6), "and it was not applied again");
}

/// Otherwise nobody could hand the log on, and the wish would never be fulfilled.
#[test]
fn where_nobody_of_the_wished_keepers_keeps_the_log_yet_an_owner_stays_in_the_set() {
    let member = |node: u8| Member { node: NodeId(node), incarnation: Incarnation(node.into()) };
    let row = |node: u8| NodeRow {
        incarnation: member(node).incarnation,
        boots: BootCount(1),
        former: vec![],
    };
    let nodes = (0..6).map(|node| (NodeId(node), row(node))).collect();
    let mut state = Catalog::founded((0..3).map(member).collect(), nodes).state().clone();
    state.wish.value.keepers = (3..6).map(NodeId).collect();
    assert_eq!(state.target_of(member(0)), [member(3), member(4), member(0)]);
    state.wish.value.keepers = vec![NodeId(3), NodeId(1), NodeId(4)];
    assert_eq!(state.target_of(member(0)), [member(3), member(1), member(4)]);
}

#[test]
fn a_catalog_that_was_set_back_takes_nothing_of_who_has_seen_more() {
    let mut catalog = Catalog::founded(vec![], BTreeMap::new());
    let mut later = txn(1, 1, 1);
    later.seen = Revision(2);
    let behind = Err(ProposeError::Behind { at: Revision(1) });
    let reply = catalog.call(&Call::Propose(later.clone()));
    assert_eq!(reply.outcome, Some((later.id, behind)));
    assert_eq!(reply.snapshot.revision, Revision(1));
    // The same transaction is taken by the catalog as it should be.
    catalog.call(&Call::Propose(txn(2, 1, 1)));
    let again = Txn { id: txn(3, 2, 1).id, revision: Revision(2), ..later };
    assert_eq!(catalog.call(&Call::Propose(again)).outcome.map(|(_, o)| o), Some(Ok(Revision(3))));
}

fn disk(node: u8, incarnation: u128) -> Member {
    Member { node: NodeId(node), incarnation: Incarnation(incarnation) }
}

/// A log of these disks in an epoch, and the disks that its nodes have named last.
fn in_memory(epoch: u32, set: &[Member], named: &[Member]) -> Snapshot {
    let row = |disk: &Member| {
        let (incarnation, boots) = (disk.incarnation, BootCount(1));
        (disk.node, NodeRow { incarnation, boots, former: vec![] })
    };
    let mut state = Catalog::founded(set.to_vec(), named.iter().map(row).collect()).state;
    state.log.value.epoch = Epoch(epoch);
    state.wish.value.keepers = named.iter().map(|disk| disk.node).collect();
    state
}

/// Every subset of three and five nodes that have started again since, with every subset of those having named its disk.
#[test]
fn a_log_in_memory_begins_anew_just_where_no_majority_of_its_set_is_left() {
    for nodes in [3_u8, 5] {
        let set: Vec<Member> = (1..=nodes).map(|node| disk(node, node.into())).collect();
        for again in 0..1_u8 << nodes {
            let is_again = |node: u8| again & 1 << (node - 1) != 0;
            let now =
                |node: u8| disk(node, u128::from(node) + if is_again(node) { 100 } else { 0 });
            let named: Vec<Member> = (1..=nodes).map(now).collect();
            let new: Vec<Member> = (1..=nodes).filter(|node| is_again(*node)).map(now).collect();
            let left = set.len() - new.len();
            let expected = (left < majority(set.len())).then(|| Anew { set: new.clone(), left });
            assert_eq!(in_memory(7, &set, &named).anew(), expected, "{again:b} of {nodes}");
            assert_eq!(in_memory(0, &set, &named).anew(), None, "nothing was acknowledged yet");
        }
    }
}

/// Whoever is left comes into the set later: by then it has named another disk.
#[test]
fn what_begins_anew_has_no_disk_of_its_former_set() {
    let set = [disk(1, 1), disk(2, 2), disk(3, 3)];
    let named = [disk(1, 1), disk(2, 22), disk(3, 33)];
    let anew = in_memory(7, &set, &named).anew().expect("one is left");
    assert_eq!(anew, Anew { set: vec![disk(2, 22), disk(3, 33)], left: 1 });
    // The disk that is left is no majority's, so it may lack what the others have acknowledged.
    let again = in_memory(8, &anew.set, &[disk(1, 11), disk(2, 22), disk(3, 33)]);
    assert_eq!(again.anew(), None, "it goes on");
    let again = in_memory(8, &anew.set, &[disk(1, 11), disk(2, 22), disk(3, 333)]);
    let anew = again.anew().expect("one of two is no majority");
    assert_eq!(anew, Anew { set: vec![disk(1, 11), disk(3, 333)], left: 1 });
}

/// A node that another one takes the place of has ended only when it has named another disk.
#[test]
fn a_disk_of_a_node_that_keeps_the_log_no_more_may_be_there() {
    let set = [disk(1, 1), disk(2, 2), disk(3, 3)];
    let mut state = in_memory(7, &set, &[disk(1, 11), disk(2, 2), disk(3, 3), disk(4, 4)]);
    state.wish.value.keepers = [1, 4, 3].map(NodeId).to_vec();
    assert_eq!(state.anew(), None);
}
