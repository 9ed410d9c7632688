//! The catalog in a bucket, in a directory that all nodes share, or in etcd: transactions are numbered objects
//! that are created where there is none, so that one proposer wins each number ([`CatalogStore`]).
//!
//! `found/NAME` says which disk a node begins with. When all that are expected are there, `txn/0` names them and
//! the cluster's random identity, and says how many logs it has; from then on each transaction of the first log is the
//! next number. Those of another log are `log/NUMBER/txn/1` and so on; `bucket/NUMBER` says which log in a bucket
//! a log is. The state of a log is what its transactions make of
//! each other; whoever reads asks for the next number until there is none. Among them are orders to follow a
//! [roster](crate::stored_roster), which is a series of its own.

use crate::coding::{Malformed, Reader, Writer, crc, malformed};
use crate::small_files;
use bytes::Bytes;
use nuthatch_catalog_group::catalog_codec::{put_txn, txn};
use nuthatch_catalog_group::founding::{active, put_active};
use nuthatch_catalog_group::{LogCatalog, LogCount, LogNumber, Protocol};
use nuthatch_log::env::Disk;
use nuthatch_quorum::catalog::{Call, CatalogReply, Txn};
use nuthatch_quorum::types::{Incarnation, Member, NodeId, Revision};
use std::sync::Arc;

pub use crate::catalog_error::CatalogError;
pub use crate::catalog_store::{CatalogStore, Object};

/// A node of the cluster, as it was founded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Founder {
    /// Its number.
    pub id: NodeId,
    /// Its name.
    pub name: String,
    /// The disk that it began with.
    pub incarnation: Incarnation,
}

/// What the first object of a catalog says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Founding {
    /// Identity of the cluster.
    pub cluster: u128,
    /// Its nodes.
    pub nodes: Vec<Founder>,
    /// How many quorum logs it has.
    pub logs: LogCount,
    /// What its nodes spoke then: the newest that all of them knew.
    pub active: Protocol,
}

/// What a node says that is to found a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fresh {
    /// The cluster's identity, if it is this node that founds it. Where its logs are in a bucket it is what that is marked with,
    /// the same for all nodes.
    pub cluster: u128,
    /// Which logs it has then.
    pub logs: LogCount,
    /// The newest protocol that the node knows.
    pub newest: Protocol,
}

/// What a node has said of itself that is to found a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Note {
    incarnation: Incarnation,
    /// The mark of the bucket that its logs are to be in; none: they are to be on its disk.
    mark: Option<u128>,
    newest: Protocol,
}

/// The object of a log's transaction. The founding is number 0 of the first log.
fn txn_key(log: LogNumber, number: u64) -> String {
    match log {
        LogNumber::FIRST => format!("txn/{number:020}"),
        LogNumber(other) => format!("log/{other}/txn/{number:020}"),
    }
}

fn found_key(name: &str) -> String {
    format!("found/{name}")
}

pub(crate) fn sealed(to: Writer) -> Bytes {
    let mut all = to.0;
    all.extend_from_slice(&crc(&all).to_le_bytes());
    Bytes::from(all)
}

/// An object that says a number, and nothing else.
pub(crate) fn sealed_number(number: u64) -> Bytes {
    let mut to = Writer::default();
    to.u64(number);
    sealed(to)
}

/// The number that such an object says.
pub(crate) fn number_of(key: &str, bytes: &[u8]) -> Result<u64, CatalogError> {
    let mut from = opened(key, bytes)?;
    let number = from.u64().and_then(|number| from.end().map(|()| number));
    number.map_err(|why| CatalogError::Object { key: key.to_owned(), why })
}

pub(crate) fn opened<'a>(key: &str, bytes: &'a [u8]) -> Result<Reader<'a>, CatalogError> {
    let why = malformed("its checksum does not fit");
    let wrong = || CatalogError::Object { key: key.to_owned(), why };
    let (body, sum) = bytes.split_last_chunk::<4>().ok_or_else(wrong)?;
    if crc(body) == u32::from_le_bytes(*sum) { Ok(Reader(body)) } else { Err(wrong()) }
}

/// The readers of objects, for fuzzers.
pub(crate) fn fuzz(data: &[u8]) {
    if let Ok(founding) = decode_founding(&mut Reader(data)) {
        let again = encode_founding(&founding);
        assert_eq!(again[..again.len() - 4], *data, "a founding has one form");
    }
    if let Ok(step) = Step::decode(&mut Reader(data)) {
        let again = step.encode();
        assert_eq!(again[..again.len() - 4], *data, "a transaction has one form");
    }
}

/// Names the disk that a node begins with, and founds the cluster when all `expected` nodes have done so.
/// None: some have not.
///
/// # Errors
/// [`CatalogError`].
pub fn found(
    store: &dyn CatalogStore,
    name: &str,
    incarnation: Incarnation,
    expected: usize,
    fresh: Fresh,
) -> Result<Option<Founding>, CatalogError> {
    if let Some(founding) = founding_of(store)? {
        return Ok(Some(founding));
    }
    let in_bucket = fresh.logs.are_in_bucket();
    let mark = in_bucket.then_some(fresh.cluster);
    let note = Note { incarnation, mark, newest: fresh.newest };
    let note = Object { key: found_key(name), bytes: note.encode() };
    // The directory of a keeper of who owns a log in a bucket may go.
    if !store.create(&note, None)? && !in_bucket {
        let there = noted(store, &note.key)?.incarnation;
        // The same disk under another program has said something else of that.
        if there != incarnation {
            let (there, here) = (there.0, incarnation.0);
            return Err(CatalogError::TwoDisks { name: name.to_owned(), there, here });
        }
    }
    let (mut nodes, mut active) = (Vec::new(), fresh.newest);
    for (number, key) in store.list("found")?.iter().enumerate() {
        let name = key.strip_prefix("found/").unwrap_or(key).to_owned();
        let id = NodeId(u8::try_from(number + 1).expect("a few nodes"));
        let Note { incarnation, mark, newest } = noted(store, key)?;
        match (mark, in_bucket) {
            (Some(there), true) if there != fresh.cluster => {
                return Err(CatalogError::TwoBuckets { name, there, here: fresh.cluster });
            }
            (Some(_), false) | (None, true) => {
                return Err(CatalogError::TwoHomes { name, in_bucket });
            }
            _ => {}
        }
        active = active.min(newest);
        nodes.push(Founder { id, name, incarnation });
    }
    if nodes.len() < expected {
        return Ok(None);
    }
    if nodes.len() > expected {
        let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        return Err(CatalogError::TooMany { names: names.join(", "), expected });
    }
    let Fresh { cluster, logs, .. } = fresh;
    // What came before is not written: such a cluster goes on as programs do that know no more.
    let active = if active < Protocol::ROSTER_IN_STORE { Protocol::FIRST } else { active };
    // If another node was faster, what it says counts.
    store.create(&founding_object(&Founding { cluster, nodes, logs, active }), None)?;
    founding_of(store)
}

/// What a node has said that is to found a cluster.
fn noted(store: &dyn CatalogStore, key: &str) -> Result<Note, CatalogError> {
    let wrong = |why| CatalogError::Object { key: key.to_owned(), why };
    let bytes = store.get(key)?.ok_or_else(|| wrong(malformed("it is gone")))?;
    let mut from = opened(key, &bytes)?;
    Note::decode(&mut from).map_err(wrong)
}

impl Note {
    /// Protocols that need nothing of a store are not told, as before there were others.
    fn encode(&self) -> Bytes {
        let mut to = Writer::default();
        to.u128(self.incarnation.0);
        if let Some(mark) = self.mark {
            to.u8(IN_BUCKET);
            to.u128(mark);
        }
        if self.newest >= Protocol::ROSTER_IN_STORE {
            to.u8(SPEAKS);
            to.u8(self.newest.0);
        }
        sealed(to)
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let incarnation = from.u128().map(Incarnation)?;
        let mut note = Self { incarnation, mark: None, newest: Protocol::FIRST };
        if from.0.first() == Some(&IN_BUCKET) {
            from.u8()?;
            note.mark = Some(from.u128()?);
        }
        if !from.0.is_empty() {
            match from.u8()? {
                SPEAKS => note.newest = Protocol(from.u8()?),
                _ => return Err(malformed("a node whose logs are elsewhere")),
            }
        }
        from.end()?;
        Ok(note)
    }
}

/// True if a cluster was founded with this catalog.
pub(crate) fn is_founded(store: &dyn CatalogStore) -> Result<bool, CatalogError> {
    Ok(store.get(&txn_key(LogNumber::FIRST, 0))?.is_some())
}

/// In a note of a node whose logs are to be in a bucket.
const IN_BUCKET: u8 = 1;

/// At the end of one: the newest protocol that it knows.
const SPEAKS: u8 = 2;

/// What a cluster was founded with; none: nothing was founded yet.
pub(crate) fn founding_of(store: &dyn CatalogStore) -> Result<Option<Founding>, CatalogError> {
    let key = txn_key(LogNumber::FIRST, 0);
    let Some(bytes) = store.get(&key)? else { return Ok(None) };
    let founding = decode_founding(&mut opened(&key, &bytes)?);
    founding.map(Some).map_err(|why| CatalogError::Object { key, why })
}

/// What the transactions of each log begin behind.
pub(crate) fn founding_object(founding: &Founding) -> Object {
    Object { key: txn_key(LogNumber::FIRST, 0), bytes: encode_founding(founding) }
}

fn encode_founding(founding: &Founding) -> Bytes {
    let mut to = Writer::default();
    to.u128(founding.cluster);
    to.all(&founding.nodes, |to, node| {
        to.u8(node.id.0);
        to.bytes(node.name.as_bytes());
        to.u128(node.incarnation.0);
    });
    founding.logs.put(&mut to);
    put_active(&mut to, founding.active);
    sealed(to)
}

fn decode_founding(from: &mut Reader<'_>) -> Result<Founding, Malformed> {
    let cluster = from.u128()?;
    let nodes = from.all(|from| {
        Ok(Founder {
            id: NodeId(from.u8()?),
            name: from.string()?,
            incarnation: Incarnation(from.u128()?),
        })
    })?;
    let (logs, active) = (LogCount::read(from)?, active(from)?);
    Ok(Founding { cluster, nodes, logs, active })
}

/// The greatest revision of the catalog that this node's disk has seen.
pub struct Seen {
    cluster: u128,
    revision: Revision,
}

impl Seen {
    /// What a disk has seen of a cluster's catalog.
    ///
    /// # Errors
    /// The disk's, and that it belongs to another cluster.
    pub fn open(cluster: u128, disk: &dyn Disk) -> Result<Self, CatalogError> {
        let (here, revision) = small_files::load_seen(disk)?.unwrap_or((cluster, Revision(0)));
        match here == cluster {
            true => Ok(Self { cluster, revision }),
            false => Err(CatalogError::OtherCluster { there: cluster, here }),
        }
    }

    /// Notes a revision on the disk, before anybody acts on it.
    ///
    /// # Errors
    /// The disk's, and that the catalog went back.
    pub fn note(&mut self, now: Revision, disk: &dyn Disk) -> Result<(), CatalogError> {
        if now < self.revision {
            return Err(CatalogError::WentBack { now: now.0, seen: self.revision.0 });
        }
        if now > self.revision {
            small_files::store_seen(disk, self.cluster, now)?;
            self.revision = now;
        }
        Ok(())
    }
}

/// The catalog of one log as far as it was read.
pub struct NumberedCatalog {
    store: Arc<dyn CatalogStore>,
    log: LogNumber,
    state: LogCatalog,
    /// The last object that was read: what comes next stands behind it.
    before: Object,
    /// Number of the next transaction.
    next: u64,
    seen: Seen,
}

impl NumberedCatalog {
    /// The catalog of a log of a cluster that was founded. The log's `disk` remembers how far it was seen.
    ///
    /// # Errors
    /// [`CatalogError`]: among others, when it went back.
    pub fn open(
        store: Arc<dyn CatalogStore>,
        founding: &Founding,
        log: LogNumber,
        disk: &dyn Disk,
    ) -> Result<Self, CatalogError> {
        let member = |node: &Founder| Member { node: node.id, incarnation: node.incarnation };
        let disks: Vec<Member> = founding.nodes.iter().map(member).collect();
        let state = match founding.logs.are_in_bucket() {
            true => LogCatalog::without_disks(log, &disks),
            false => LogCatalog::founded(log, &disks),
        };
        let seen = Seen::open(founding.cluster, disk)?;
        let before = founding_object(founding);
        let mut catalog = Self { store, log, state, before, next: 1, seen };
        catalog.catch_up(disk)?;
        Ok(catalog)
    }

    /// Reads what was decided meanwhile. What is read is noted on the disk before anybody acts on it.
    fn catch_up(&mut self, disk: &dyn Disk) -> Result<(), CatalogError> {
        while self.read_page()? {}
        self.seen.note(self.state.state().revision, disk)
    }

    /// Reads some of what was decided meanwhile; false: nothing was.
    fn read_page(&mut self) -> Result<bool, CatalogError> {
        let first = self.next;
        for object in self.store.read_on(&self.before, &txn_key(self.log, first))? {
            let key = txn_key(self.log, self.next);
            // What others have put between is no transaction.
            if object.key != key {
                break;
            }
            let step = Step::decode(&mut opened(&key, &object.bytes)?);
            step.map_err(|why| CatalogError::Object { key, why })?.apply(&mut self.state);
            self.next += 1;
            self.before = object;
        }
        Ok(self.next > first)
    }

    /// Answers one call.
    ///
    /// # Errors
    /// [`CatalogError`]: whether a transaction was or will be applied is unknown; proposed again under the same
    /// name it is applied once.
    pub fn call(&mut self, call: &Call, disk: &dyn Disk) -> Result<CatalogReply, CatalogError> {
        loop {
            self.catch_up(disk)?;
            let before = self.state.state().revision;
            let mut trial = self.state.clone();
            let reply = trial.call(call);
            // A read, a transaction that was applied before, or one whose comparison fails.
            let Call::Propose(txn) = call else { return Ok(reply) };
            if reply.snapshot.revision == before {
                return Ok(reply);
            }
            self.create(&Step::Txn(txn.clone()))?;
        }
    }

    /// The log as it is now.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub fn look(&mut self, disk: &dyn Disk) -> Result<LogCatalog, CatalogError> {
        self.catch_up(disk)?;
        Ok(self.state.clone())
    }

    /// Has the log follow a roster with so many changes, by which these nodes are to keep it.
    ///
    /// # Errors
    /// [`CatalogError`]: whether it follows is unknown, and to ask again does no harm.
    pub fn follow(
        &mut self,
        (changes, keepers): (u64, &[NodeId]),
        disk: &dyn Disk,
    ) -> Result<(), CatalogError> {
        loop {
            self.catch_up(disk)?;
            let has_followed = self.state.has_followed(changes);
            if has_followed || self.create(&Step::Follow { changes, keepers: keepers.to_vec() })? {
                return Ok(());
            }
        }
    }

    /// Makes the next step; false: whoever was faster, what is there is read next.
    fn create(&self, step: &Step) -> Result<bool, CatalogError> {
        let object = Object { key: txn_key(self.log, self.next), bytes: step.encode() };
        self.store.create(&object, Some(&self.before))
    }
}

/// What an object of a log's series does.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    /// A transaction.
    Txn(Txn),
    /// The log follows a roster with so many changes, by which these nodes are to keep it.
    Follow {
        /// How often the nodes had changed.
        changes: u64,
        /// The nodes.
        keepers: Vec<NodeId>,
    },
}

/// Where the name of a transaction has its proposer: none has drawn this.
const FOLLOWS: u128 = 0;

impl Step {
    fn encode(&self) -> Bytes {
        let mut to = Writer::default();
        match self {
            Self::Txn(txn) => put_txn(&mut to, txn),
            Self::Follow { changes, keepers } => {
                to.u128(FOLLOWS);
                to.u64(*changes);
                to.all(keepers, |to, node| to.u8(node.0));
            }
        }
        sealed(to)
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let follows = from.0.first_chunk().is_some_and(|id| u128::from_le_bytes(*id) == FOLLOWS);
        let read = match follows {
            false => Self::Txn(txn(from)?),
            true => {
                from.u128()?;
                let changes = from.u64()?;
                Self::Follow { changes, keepers: from.all(|from| Ok(NodeId(from.u8()?)))? }
            }
        };
        from.end()?;
        Ok(read)
    }

    fn apply(self, to: &mut LogCatalog) {
        match self {
            Self::Txn(txn) => drop(to.call(&Call::Propose(txn))),
            Self::Follow { changes, keepers } => to.follow(changes, &keepers),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
