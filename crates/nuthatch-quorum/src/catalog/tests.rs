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
