//! Changes of the nodes of a cluster whose catalog is outside them: in a store that loses answers and is away, several nodes take
//! their steps, each of them held up at any request while others go on, and people change their minds.
//!
//! The machine is the nodes' own (`nuthatch_cluster::stored_steps`), on their own catalogs. The owners of the logs are simulated: they
//! bring about what is wished of a log, sooner or later, and may have read its row long before.

use super::Summary;
use super::violation::Violation;
use crate::scheduler::Scheduler;
use bytes::Bytes;
use nuthatch_catalog_group::{
    Change, Draining, LogCatalog, LogCount, LogNumber, MemberId, Protocol, Replacing, Resizing,
    Roster,
};
use nuthatch_cluster::catalog::{
    CatalogError, CatalogStore, Founding, Fresh, NumberedCatalog, Object, found,
};
use nuthatch_cluster::stored_roster::StoredRoster;
use nuthatch_cluster::stored_steps::{LogWay, Made, StoredSteps};
use nuthatch_log::env::RamDisk;
use nuthatch_quorum::catalog::{Call, Key, LogRow, NodeRow, Txn, TxnId, Value};
use nuthatch_quorum::types::{BootCount, Incarnation, NodeId, Revision};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};

/// Nodes that take steps: a step of theirs is held up at any request, and between what is looked at and what is done for it.
const ACTORS: usize = 3;
/// Logs that follow.
const LOGS: u8 = 2;
/// Steps of a schedule.
const STEPS: u64 = 120;
/// So many nodes are held up at a time, each within a step of the one before.
const NESTED_MAX: usize = 3;
/// What a disk takes.
const DISK_BYTES: u64 = 1 << 20;
/// Rounds in which all is to be over once nothing fails.
const ROUNDS: usize = 60;

/// What happens, for the trace.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Step {
    Asked { by: usize, change: Change, made: Option<bool> },
    Went { by: usize, done: bool },
    Registered { node: u8 },
    Brought { log: u8, applied: bool },
    Ended { changes: u64 },
}

/// The objects, and how the way to them fails.
struct Store {
    world: Weak<World>,
    objects: Mutex<BTreeMap<String, Bytes>>,
}

/// A row of a log as an owner has read it, which may be long ago.
type Read = (Txn, LogNumber);

struct State {
    schedule: Scheduler<Step>,
    summary: Summary,
    /// How many steps are held up.
    depth: usize,
    busy: BTreeSet<usize>,
    number: u64,
    /// What owners are about to propose.
    reads: Vec<Read>,
    broken: Option<Violation>,
    /// The way to the store fails.
    fails: bool,
}

struct World {
    state: Mutex<State>,
    store: Arc<Store>,
    founding: Founding,
    actors: Vec<Mutex<StoredSteps>>,
    /// The roster and the logs as they are.
    observer: Mutex<(StoredRoster, Vec<NumberedCatalog>)>,
}

impl CatalogStore for Store {
    fn get(&self, key: &str) -> Result<Option<Bytes>, CatalogError> {
        Ok(self.objects.lock().expect("lock").get(key).cloned())
    }

    fn list(&self, under: &str) -> Result<Vec<String>, CatalogError> {
        let under = format!("{under}/");
        let objects = self.objects.lock().expect("lock");
        Ok(objects.keys().filter(|key| key.starts_with(&under)).cloned().collect())
    }

    fn create(&self, object: &Object, _: Option<&Object>) -> Result<bool, CatalogError> {
        let world = self.world.upgrade();
        if let Some(world) = &world {
            world.interrupt()?;
        }
        let is_ours = {
            let mut objects = self.objects.lock().expect("lock");
            let there = objects.entry(object.key.clone()).or_insert_with(|| object.bytes.clone());
            *there == object.bytes
        };
        match world {
            Some(world) => {
                world.look();
                world.answer(is_ours)
            }
            None => Ok(is_ours),
        }
    }

    fn read_on(&self, _: &Object, next: &str) -> Result<Vec<Object>, CatalogError> {
        if let Some(world) = self.world.upgrade() {
            world.interrupt()?;
        }
        let objects = self.objects.lock().expect("lock");
        let found = objects.get(next);
        Ok(found
            .map(|bytes| Object { key: next.to_owned(), bytes: bytes.clone() })
            .into_iter()
            .collect())
    }
}

fn away() -> CatalogError {
    CatalogError::NoMajority
}

impl World {
    fn new(seed: u64, printed: bool) -> Arc<Self> {
        let state = State {
            schedule: Scheduler::new(seed, printed),
            summary: Summary::default(),
            depth: 0,
            busy: BTreeSet::new(),
            number: 0,
            reads: vec![],
            broken: None,
            fails: false,
        };
        let world = Arc::new_cyclic(|world: &Weak<Self>| {
            let store = Arc::new(Store { world: world.clone(), objects: Mutex::default() });
            let founding = founded(&store);
            let actor = |_| Mutex::new(steps_of(&store, &founding));
            let actors = (0..ACTORS).map(actor).collect();
            let shared = || Arc::clone(&store) as Arc<dyn CatalogStore>;
            let roster = StoredRoster::open(shared(), &founding).expect("nothing fails");
            let disk = RamDisk::new(DISK_BYTES);
            let way = |log| NumberedCatalog::open(shared(), &founding, LogNumber(log), &disk);
            let ways = (0..LOGS).map(|log| way(log).expect("nothing fails")).collect();
            Self {
                state: Mutex::new(state),
                store,
                founding,
                actors,
                observer: Mutex::new((roster, ways)),
            }
        });
        for node in 1..=3 {
            world.register(NodeId(node));
        }
        world.state().fails = true;
        world
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("lock")
    }

    fn note(&self, step: &Step) {
        let mut state = self.state();
        state.summary.steps += 1;
        let now = state.summary.steps * 1_000;
        state.schedule.trace.record(now, step);
    }

    /// A request is on its way: others go on before it arrives, or it never does.
    fn interrupt(&self) -> Result<(), CatalogError> {
        let (mut others, lost) = {
            let mut state = self.state();
            if !state.fails || state.depth >= NESTED_MAX {
                return Ok(());
            }
            let others =
                if state.schedule.rng.chance(150) { state.schedule.rng.between(1, 6) } else { 0 };
            (others, state.schedule.rng.chance(10))
        };
        self.state().depth += 1;
        while others > 0 {
            others -= 1;
            self.step();
        }
        let mut state = self.state();
        state.depth -= 1;
        state.summary.faults += u64::from(lost);
        if lost { Err(away()) } else { Ok(()) }
    }

    fn answer(&self, is_ours: bool) -> Result<bool, CatalogError> {
        let mut state = self.state();
        let lost = state.fails && state.schedule.rng.chance(20);
        state.summary.faults += u64::from(lost);
        if lost { Err(away()) } else { Ok(is_ours) }
    }

    /// One of the many things that can happen next.
    fn step(&self) {
        let (what, at) = {
            let mut state = self.state();
            let what = state.schedule.rng.weighted(&[30, 12, 12, 30]).expect("weights");
            (what, state.schedule.rng.below(ACTORS as u64) as usize)
        };
        match what {
            0 => self.go_on(at),
            1 => self.ask(at),
            2 => self.read_row(),
            _ => self.bring(),
        }
    }

    /// A node looks at the roster and takes the next step of what was begun. Between the two it may do something else, and
    /// sometimes it has been started anew by then.
    fn take_step(&self, at: usize) -> Result<(), CatalogError> {
        let mut steps = self.actors[at].lock().expect("lock");
        let enrolled: Vec<NodeId> = steps.read_roster()?.nodes.keys().copied().collect();
        let due = steps.due()?;
        drop(steps);
        self.state().busy.remove(&at);
        let (is_asked, begins_anew) = {
            let mut state = self.state();
            let fails = state.fails && state.depth < NESTED_MAX;
            (fails && state.schedule.rng.chance(100), fails && state.schedule.rng.chance(30))
        };
        if is_asked {
            self.ask(at);
        }
        // Whoever is at it further out goes on with what it knows.
        if !self.state().busy.insert(at) {
            return Ok(());
        }
        let mut steps = self.actors[at].lock().expect("lock");
        if begins_anew {
            *steps = self.calm(|| steps_of(&self.store, &self.founding));
            self.state().summary.lives += 1;
        }
        steps.take(due)?;
        drop(steps);
        enrolled.into_iter().for_each(|node| self.register(node));
        Ok(())
    }

    /// Does something while nothing fails.
    fn calm<T>(&self, work: impl FnOnce() -> T) -> T {
        let fails = std::mem::replace(&mut self.state().fails, false);
        let done = work();
        self.state().fails = fails;
        done
    }

    fn go_on(&self, at: usize) {
        if !self.state().busy.insert(at) {
            return;
        }
        let done = self.take_step(at).is_ok();
        self.state().busy.remove(&at);
        self.state().summary.steps_of_machines += 1;
        self.note(&Step::Went { by: at, done });
    }

    /// Somebody asks a node for a change.
    fn ask(&self, at: usize) {
        if !self.state().busy.insert(at) {
            return;
        }
        let mut steps = self.actors[at].lock().expect("lock");
        let roster = steps.known().0.clone();
        let change = self.drawn(&roster);
        let made = steps.make(&change);
        drop(steps);
        let made = made.ok().map(|made| made == Made::Done);
        let mut state = self.state();
        state.busy.remove(&at);
        match made {
            Some(true) => state.summary.acked += 1,
            Some(false) => state.summary.given_up += 1,
            None => {}
        }
        drop(state);
        self.note(&Step::Asked { by: at, change, made });
    }

    fn drawn(&self, roster: &Roster) -> Change {
        let mut state = self.state();
        let nodes: Vec<NodeId> = roster.nodes.keys().copied().collect();
        let spares: Vec<NodeId> = roster.spares().map(|(node, _)| *node).collect();
        let keepers: Vec<NodeId> =
            nodes.iter().copied().filter(|node| !spares.contains(node)).collect();
        state.number += 1;
        let number = state.number;
        let rng = &mut state.schedule.rng;
        let join = || Change::Join {
            name: format!("s{number}"),
            member: MemberId(1_000 + number),
            address: None,
        };
        match (roster.replacing, &roster.resizing) {
            (Some(replacing), _) if rng.chance(600) => return Change::Cancel(replacing),
            (_, Some(resizing)) if rng.chance(600) => return Change::Resize(resizing.inverse()),
            _ => {}
        }
        match (rng.below(9), spares.first()) {
            (8, _) => {
                let port = u16::try_from(number % 60_000).expect("small") + 1;
                let address = SocketAddr::from(([10, 0, 0, 1], port));
                Change::Address { node: *rng.pick(&nodes), address }
            }
            (0 | 1, _) | (_, None) => join(),
            (2..=4, Some(_)) => {
                let (old, new) = (*rng.pick(&keepers), *rng.pick(&spares));
                Change::Begin(Replacing { old, new })
            }
            (5, _) => {
                let keep = rng.chance(500);
                let from = if keep { &spares } else { &keepers };
                let mut nodes: Vec<NodeId> = from.iter().copied().take(2).collect();
                nodes.sort_unstable();
                Change::Resize(Resizing { nodes, keep })
            }
            (6, _) => {
                let (node, drain) = (*rng.pick(&nodes), rng.chance(500));
                Change::Drain(Draining { node, drain })
            }
            _ => Change::Leave(*rng.pick(&spares)),
        }
    }

    /// A node names its disk in all logs.
    fn register(&self, node: NodeId) {
        for log in (0..LOGS).map(LogNumber) {
            let at = self.log(log);
            if at.state().nodes.contains_key(&node) {
                continue;
            }
            let incarnation = Incarnation(u128::from(node.0));
            let row = NodeRow { incarnation, boots: BootCount(1), former: vec![] };
            let txn = self.txn(&at, Key::Node(node), Revision(0), Value::Node(row));
            self.propose(log, txn);
            self.note(&Step::Registered { node: node.0 });
        }
    }

    /// An owner reads the row of a log, and is to have what is wished.
    fn read_row(&self) {
        let log = LogNumber(self.state().schedule.rng.below(u64::from(LOGS)) as u8);
        let at = self.log(log);
        let (row, set) = (at.state().log.clone(), at.state().target());
        if set == row.value.set {
            return;
        }
        let owner = set.first().copied();
        let value = LogRow { epoch: row.value.epoch.next(), owner, set, ..row.value };
        let txn = self.txn(&at, Key::Log, row.revision, Value::Log(value));
        let mut state = self.state();
        if state.reads.len() < 4 {
            state.reads.push((txn, log));
        }
    }

    /// An owner has brought what it was to bring: the log begins anew with the set that it has read of.
    fn bring(&self) {
        let read = {
            let mut state = self.state();
            if state.reads.is_empty() {
                return;
            }
            let count = state.reads.len() as u64;
            let at = state.schedule.rng.below(count) as usize;
            state.reads.swap_remove(at)
        };
        let (txn, log) = read;
        let applied = self.propose(log, txn);
        self.note(&Step::Brought { log: log.0, applied });
        self.state().summary.claims += u64::from(applied);
        self.look();
    }

    fn txn(&self, at: &LogCatalog, key: Key, revision: Revision, value: Value) -> Txn {
        let mut state = self.state();
        state.number += 1;
        let id = TxnId { proposer: Incarnation(77), number: state.number };
        Txn { id, key, revision, seen: at.state().revision, value }
    }

    /// A log as it is, read past all that fails.
    fn log(&self, log: LogNumber) -> LogCatalog {
        self.calmly(|way| way.look(&RamDisk::new(DISK_BYTES)), log)
    }

    fn propose(&self, log: LogNumber, txn: Txn) -> bool {
        let reply = self
            .calmly(|way| way.call(&Call::Propose(txn.clone()), &RamDisk::new(DISK_BYTES)), log);
        reply.outcome.is_some_and(|(_, outcome)| outcome.is_ok())
    }

    /// Asks the catalog of a log past all that fails.
    fn calmly<T>(
        &self,
        ask: impl Fn(&mut NumberedCatalog) -> Result<T, CatalogError>,
        log: LogNumber,
    ) -> T {
        let mut observer = self.observer.lock().expect("lock");
        self.calm(|| ask(&mut observer.1[log.index()]).expect("nothing fails"))
    }

    /// What must hold at any time: no log is on a node that was removed, or is to be.
    fn look(&self) {
        if self.state().broken.is_some() || !self.state().fails {
            return;
        }
        let roster = self.roster();
        for log in (0..LOGS).map(LogNumber) {
            let at = self.log(log);
            if let Some(gone) = roster.removed.iter().find(|gone| at.is_on(gone.node)) {
                let node = gone.node.0;
                self.state().broken = Some(Violation::OnRemoved { log: log.0, node });
            }
        }
    }

    fn roster(&self) -> Roster {
        let mut observer = self.observer.lock().expect("lock");
        self.calm(|| observer.0.catch_up().expect("nothing fails").clone())
    }

    /// Nothing fails any more: what was begun comes to its end, and all logs are where they are to be.
    fn end(&self) -> Result<(), Violation> {
        if let Some(broken) = self.state().broken.take() {
            return Err(broken);
        }
        self.state().fails = false;
        for _ in 0..ROUNDS {
            for at in 0..ACTORS {
                self.go_on(at);
            }
            self.read_row();
            self.bring();
        }
        let roster = self.roster();
        self.note(&Step::Ended { changes: roster.changes });
        if roster.replacing.is_some() || roster.resizing.is_some() {
            return Err(Violation::NodesUnsettled);
        }
        let keepers = roster.keepers();
        for log in (0..LOGS).map(LogNumber) {
            let at = self.log(log);
            if !at.is_wished(&keepers) || !at.is_as_wished() {
                return Err(Violation::NodesUnsettled);
            }
        }
        self.state().summary.done += roster.changes;
        Ok(())
    }
}

fn founded(store: &Store) -> Founding {
    let logs = LogCount::new(LOGS).expect("as many as there may be");
    for node in 1..=3 {
        let fresh = Fresh { cluster: 7, logs, newest: Protocol::NEWEST };
        let founding = found(store, &format!("n{node}"), Incarnation(node), 3, fresh);
        if let Some(founding) = founding.expect("nothing fails") {
            return founding;
        }
    }
    panic!("three nodes found a cluster");
}

fn steps_of(store: &Arc<Store>, founding: &Founding) -> StoredSteps {
    let way = |log| -> LogWay {
        let disk = Arc::new(RamDisk::new(DISK_BYTES));
        let store = Arc::clone(store) as Arc<dyn CatalogStore>;
        let opened = NumberedCatalog::open(store, founding, log, &*disk);
        (Arc::new(parking_lot::Mutex::new(opened.expect("nothing fails"))), disk)
    };
    let store = Arc::clone(store) as Arc<dyn CatalogStore>;
    let roster = StoredRoster::open(store, founding).expect("nothing fails");
    StoredSteps::new(roster, (0..LOGS).map(|log| way(LogNumber(log))).collect())
}

/// Runs the schedule of a seed.
pub fn run(seed: u64, printed: bool) -> (Summary, Result<(), Violation>) {
    let world = World::new(seed, printed);
    let mut steps = 0;
    while steps < STEPS && world.state().broken.is_none() {
        steps += 1;
        world.step();
    }
    let ended = world.end();
    let mut state = world.state();
    state.summary.hash = state.schedule.trace.hash();
    (state.summary, ended)
}
