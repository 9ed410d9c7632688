use super::*;
use crate::in_bucket::Binding;
use nuthatch_log::env::RamDisk;
use nuthatch_quorum::catalog::{Key, NodeRow, TxnId, Value};
use nuthatch_quorum::types::BootCount;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// A store in memory that looks at two objects at a time, as etcd does, and reads in pages.
#[derive(Default)]
pub(crate) struct MemoryStore {
    pub(crate) objects: Mutex<BTreeMap<String, Bytes>>,
    /// The next creation is carried out, and its answer lost.
    loses_answer: AtomicBool,
}

const PAGE: usize = 2;

impl MemoryStore {
    fn check(&self, before: Option<&Object>) -> Result<(), CatalogError> {
        let objects = self.objects.lock();
        let is_there = |before: &&Object| objects.get(&before.key) == Some(&before.bytes);
        match before.filter(|before| !is_there(before)) {
            None => Ok(()),
            Some(before) => Err(CatalogError::SetBack { key: before.key.clone() }),
        }
    }
}

impl CatalogStore for MemoryStore {
    fn get(&self, key: &str) -> Result<Option<Bytes>, CatalogError> {
        Ok(self.objects.lock().get(key).cloned())
    }

    fn list(&self, under: &str) -> Result<Vec<String>, CatalogError> {
        let under = format!("{under}/");
        let objects = self.objects.lock();
        Ok(objects.keys().filter(|key| key.starts_with(&under)).cloned().collect())
    }

    fn create(&self, object: &Object, before: Option<&Object>) -> Result<bool, CatalogError> {
        self.check(before)?;
        let mut objects = self.objects.lock();
        let there = objects.entry(object.key.clone()).or_insert_with(|| object.bytes.clone());
        let is_ours = *there == object.bytes;
        match self.loses_answer.swap(false, Ordering::Relaxed) {
            true => Err(CatalogError::NoMajority),
            false => Ok(is_ours),
        }
    }

    fn read_on(&self, before: &Object, next: &str) -> Result<Vec<Object>, CatalogError> {
        self.check(Some(before))?;
        let objects = self.objects.lock();
        let directory = &next[..=next.rfind('/').expect("a directory")];
        let found = objects.range(next.to_owned()..).take(PAGE);
        let found = found.filter(|(key, _)| key.starts_with(directory));
        Ok(found.map(|(key, bytes)| Object { key: key.clone(), bytes: bytes.clone() }).collect())
    }
}

fn fresh(cluster: u128, logs: LogCount) -> Fresh {
    Fresh { cluster, logs, newest: Protocol::NEWEST }
}

pub(crate) fn founded(store: &MemoryStore) -> Founding {
    for node in 1..=3 {
        let name = format!("n{node}");
        let founding = found(store, &name, Incarnation(node), 3, fresh(7, LogCount::ONE));
        if let Some(founding) = founding.expect("no trouble") {
            return founding;
        }
    }
    panic!("three nodes found a cluster");
}

/// Says how often a node has begun, as it does at its start.
fn begin(catalog: &mut NumberedCatalog, disk: &RamDisk, number: u64) -> Result<(), CatalogError> {
    let state = catalog.state.state();
    let key = Key::Node(NodeId(1));
    let revision = state.nodes.get(&NodeId(1)).map_or(Revision(0), |row| row.revision);
    let boots = BootCount(u32::try_from(number).expect("few"));
    let row = NodeRow { incarnation: Incarnation(1), boots, former: vec![] };
    let id = TxnId { proposer: Incarnation(9), number };
    let txn = Txn { id, key, revision, seen: state.revision, value: Value::Node(row) };
    catalog.call(&Call::Propose(txn), disk).map(drop)
}

#[test]
fn transactions_of_two_nodes_have_one_order_with_strangers_keys_between() {
    let (store, disks) =
        (Arc::new(MemoryStore::default()), [(); 2].map(|()| RamDisk::new(1 << 20)));
    let founding = founded(&store);
    let open = |disk: &RamDisk| {
        NumberedCatalog::open(store.clone(), &founding, LogNumber::FIRST, disk).expect("open")
    };
    let [mut one, mut two] = [open(&disks[0]), open(&disks[1])];
    for number in 1..=9 {
        begin(&mut one, &disks[0], number).expect("no trouble");
        let key = format!("txn/{number:020}x");
        store.objects.lock().insert(key, Bytes::from_static(b"not ours"));
    }
    two.call(&Call::Read, &disks[1]).expect("no trouble");
    assert_eq!((one.next, two.next), (10, 10));
    assert_eq!(one.state.state(), two.state.state());
    // An answer that is lost, and the same transaction again: it counts once.
    store.loses_answer.store(true, Ordering::Relaxed);
    let before = two.next;
    begin(&mut two, &disks[1], 10).expect_err("its fate is not known");
    begin(&mut two, &disks[1], 10).expect("it was carried out");
    assert_eq!(two.next, before + 1);
}

/// Of logs in a bucket: a node that starts with an empty directory before the cluster is founded is no other one.
#[test]
fn a_directory_that_went_before_the_founding_is_another_disk() {
    let (store, logs) = (MemoryStore::default(), LogCount::ONE.in_bucket());
    let begin =
        |node: u8, disk| found(&store, &format!("n{node}"), Incarnation(disk), 3, fresh(7, logs));
    for (node, disk) in [(1, 1), (1, 11), (2, 2), (1, 12), (2, 22)] {
        assert_eq!(begin(node, disk).expect("no trouble"), None);
    }
    let founding = begin(3, 3).expect("no trouble").expect("all are there");
    assert_eq!((founding.logs, founding.nodes.len()), (logs, 3));
    let disk = RamDisk::new(1 << 20);
    let catalog = NumberedCatalog::open(Arc::new(store), &founding, LogNumber::FIRST, &disk);
    assert!(catalog.expect("open").state.state().log.value.set.is_empty(), "no disk is named yet");
}

#[test]
fn nodes_found_no_cluster_whose_logs_are_in_two_places() {
    let store = MemoryStore::default();
    let begin = |node: u8, logs| {
        found(&store, &format!("n{node}"), Incarnation(node.into()), 3, fresh(7, logs))
    };
    assert_eq!(begin(1, LogCount::ONE.in_bucket()).expect("no trouble"), None);
    let error =
        begin(2, LogCount::ONE).expect_err("the other one has them in a bucket").to_string();
    assert!(error.contains("n1 is to have the cluster's logs in a bucket"), "{error}");
    assert!(begin(1, LogCount::ONE.in_bucket()).is_err(), "and this one on disks");
    let store = MemoryStore::default();
    let marked = |node: u8, mark| {
        let logs = LogCount::ONE.in_bucket();
        found(&store, &format!("n{node}"), Incarnation(node.into()), 2, fresh(mark, logs))
    };
    assert_eq!(marked(1, 7).expect("no trouble"), None);
    let error = marked(2, 8).expect_err("its bucket is another one").to_string();
    assert!(error.contains("n1 has another bucket") && error.contains("found/n1"), "{error}");
    assert!(marked(1, 7).is_err(), "the other one's note is there");
    store.objects.lock().remove("found/n2");
    assert_eq!(marked(1, 7).expect("no trouble"), None);
    assert!(marked(2, 7).expect("no trouble").is_some_and(|founding| founding.cluster == 7));
}

#[test]
fn a_log_in_a_bucket_is_the_one_that_was_named_first() {
    let store = Arc::new(MemoryStore::default());
    let binding = Binding::new(Arc::clone(&store) as _, LogNumber(2));
    assert_eq!(binding.get().expect("no trouble"), None);
    assert_eq!(binding.set(77).expect("no trouble"), 77);
    assert_eq!(binding.set(78).expect("no trouble"), 77, "another bucket's");
    assert_eq!(binding.get().expect("no trouble"), Some(77));
    let damaged = Bytes::from_static(b"123456789012");
    store.objects.lock().insert("bucket/2".to_owned(), damaged);
    assert!(matches!(binding.get(), Err(CatalogError::Object { .. })));
}

#[test]
fn a_store_that_is_set_back_decides_nothing() {
    let (store, disk) = (Arc::new(MemoryStore::default()), RamDisk::new(1 << 20));
    let founding = founded(&store);
    let open = || NumberedCatalog::open(store.clone(), &founding, LogNumber::FIRST, &disk);
    let mut catalog = open().expect("open");
    (1..=4).for_each(|number| begin(&mut catalog, &disk, number).expect("no trouble"));
    let newest = store.objects.lock().clone();
    for number in 3..=4 {
        store.objects.lock().remove(&txn_key(LogNumber::FIRST, number));
    }
    let text = catalog.call(&Call::Read, &disk).expect_err("it went back").to_string();
    assert!(text.contains("went back: txn/00000000000000000004,"), "{text}");
    begin(&mut catalog, &disk, 5).expect_err("it went back");
    assert_eq!(store.get(&txn_key(LogNumber::FIRST, 5)).expect("no trouble"), None);
    let text = open().err().expect("it went back").to_string();
    assert!(text.contains("this disk has seen"), "{text}");
    *store.objects.lock() = newest;
    begin(&mut catalog, &disk, 5).expect("it is there again");
    open().expect("it is there again");
}

#[test]
fn more_nodes_than_found_a_cluster_are_named() {
    let store = MemoryStore::default();
    let note = |node: u8, expected| {
        let name = format!("n{node}");
        found(&store, &name, Incarnation(node.into()), expected, fresh(7, LogCount::ONE))
    };
    // They are told of other numbers of nodes.
    assert!([4, 1, 2].iter().all(|node| matches!(note(*node, 5), Ok(None))));
    let error = note(3, 3).expect_err("four have named their disks");
    let text = error.to_string();
    assert!(text.contains("n1, n2, n3, n4") && text.contains("found/NAME"), "{text}");
}
