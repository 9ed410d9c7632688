//! The catalog in a bucket, or in a directory that all nodes share: transactions are numbered objects
//! that are created where there is none, so that one proposer wins each number.
//!
//! `found/NAME` says which disk a node begins with. When all that are expected are there, `txn/0` names them and
//! the cluster's random identity, and says how many logs it has; from then on each transaction of the first log is the
//! next number. Those of another log are `log/NUMBER/txn/1` and so on. The state of a log is what its transactions make of
//! each other; whoever reads asks for the next number until there is none.

use crate::coding::{Malformed, Reader, Writer, crc, malformed};
use crate::small_files;
use bytes::Bytes;
use nuthatch_catalog_group::catalog_codec::{put_txn, txn};
use nuthatch_catalog_group::{LogCatalog, LogCount, LogNumber};
use nuthatch_log::env::Disk;
use nuthatch_object::{Bucket, BucketError};
use nuthatch_quorum::catalog::{Call, CatalogReply, Txn};
use nuthatch_quorum::types::{Incarnation, Member, NodeId, Revision};
use std::io;
use std::sync::Arc;

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
}

/// Why a catalog cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// The bucket failed.
    #[error("the catalog cannot be reached: {0}")]
    Bucket(#[from] BucketError),
    /// An object cannot be read.
    #[error("{key} of the catalog: {why}")]
    Object {
        /// Its key.
        key: String,
        /// Why not.
        why: Malformed,
    },
    /// Two disks say that they are the same node, and nothing was founded yet.
    #[error(
        "the catalog names disk {there:032x} for node {name}, which begins with {here:032x}: \
         remove found/{name} from the catalog if that disk is gone for good"
    )]
    TwoDisks {
        /// The node.
        name: String,
        /// The disk that is named.
        there: u128,
        /// This disk.
        here: u128,
    },
    /// The catalog does not name this node.
    #[error("the cluster was founded with the nodes {nodes}, and {name} is none of them")]
    Stranger {
        /// This node.
        name: String,
        /// Those that there are.
        nodes: String,
    },
    /// The catalog is behind what this disk has seen.
    #[error(
        "the catalog went back: it is at revision {now}, and this disk has seen {seen}. It was restored \
         from a copy, or is another one; nothing is decided by it"
    )]
    WentBack {
        /// Its revision.
        now: u64,
        /// The greatest that was seen.
        seen: u64,
    },
    /// The catalog is of another cluster.
    #[error("the catalog is of cluster {there:032x}, and this disk belongs to {here:032x}")]
    OtherCluster {
        /// The catalog's.
        there: u128,
        /// The disk's.
        here: u128,
    },
    /// No majority of the nodes answers: what became of a transaction is not known.
    #[error("the catalog cannot be reached: no majority of the nodes answers for it")]
    NoMajority,
    /// The disk failed.
    #[error("this node's disk, for the catalog: {0}")]
    Disk(#[from] io::Error),
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

fn sealed(to: Writer) -> Bytes {
    let mut all = to.0;
    all.extend_from_slice(&crc(&all).to_le_bytes());
    Bytes::from(all)
}

fn opened<'a>(key: &str, bytes: &'a [u8]) -> Result<Reader<'a>, CatalogError> {
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
    if let Ok(txn) = decode_txn(&mut Reader(data)) {
        let again = sealed_txn(&txn);
        assert_eq!(again[..again.len() - 4], *data, "a transaction has one form");
    }
}

/// Names the disk that a node begins with, and founds the cluster when all `expected` nodes have done so.
/// None: some have not. `fresh` is the cluster's identity, and how many logs it has, if it is this call that founds it.
///
/// # Errors
/// [`CatalogError`].
pub fn found(
    bucket: &Bucket,
    name: &str,
    incarnation: Incarnation,
    expected: usize,
    fresh: (u128, LogCount),
) -> Result<Option<Founding>, CatalogError> {
    if let Some(founding) = founding(bucket)? {
        return Ok(Some(founding));
    }
    let mut note = Writer::default();
    note.u128(incarnation.0);
    match bucket.create(&found_key(name), &sealed(note)) {
        Err(BucketError::Exists { .. }) => {
            let there = noted(bucket, &found_key(name))?;
            return Err(CatalogError::TwoDisks {
                name: name.to_owned(),
                there: there.0,
                here: incarnation.0,
            });
        }
        made => made?,
    }
    let mut nodes = Vec::new();
    for (number, listed) in bucket.list("found")?.iter().enumerate() {
        let name = listed.key.strip_prefix("found/").unwrap_or(&listed.key).to_owned();
        let id = NodeId(u8::try_from(number + 1).expect("a few nodes"));
        nodes.push(Founder { id, name, incarnation: noted(bucket, &listed.key)? });
    }
    if nodes.len() < expected {
        return Ok(None);
    }
    let (cluster, logs) = fresh;
    let body = encode_founding(&Founding { cluster, nodes, logs });
    match bucket.create(&txn_key(LogNumber::FIRST, 0), &body) {
        Err(BucketError::Exists { .. }) => {}
        made => made?,
    }
    founding(bucket)
}

fn noted(bucket: &Bucket, key: &str) -> Result<Incarnation, CatalogError> {
    let bytes = bucket.get(key)?;
    let wrong = |why| CatalogError::Object { key: key.to_owned(), why };
    opened(key, &bytes)?.u128().map(Incarnation).map_err(wrong)
}

fn founding(bucket: &Bucket) -> Result<Option<Founding>, CatalogError> {
    let key = txn_key(LogNumber::FIRST, 0);
    let bytes = match bucket.get(&key) {
        Err(BucketError::NotFound { .. }) => return Ok(None),
        bytes => bytes?,
    };
    let founding = decode_founding(&mut opened(&key, &bytes)?);
    founding.map(Some).map_err(|why| CatalogError::Object { key, why })
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
    let logs = LogCount::read(from)?;
    from.end()?;
    Ok(Founding { cluster, nodes, logs })
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
pub struct BucketCatalog {
    bucket: Arc<Bucket>,
    log: LogNumber,
    state: LogCatalog,
    /// Number of the next transaction.
    next: u64,
    seen: Seen,
}

impl BucketCatalog {
    /// The catalog of a log of a cluster that was founded. The log's `disk` remembers how far it was seen.
    ///
    /// # Errors
    /// [`CatalogError`]: among others, when it went back.
    pub fn open(
        bucket: Arc<Bucket>,
        founding: &Founding,
        log: LogNumber,
        disk: &dyn Disk,
    ) -> Result<Self, CatalogError> {
        let member = |node: &Founder| Member { node: node.id, incarnation: node.incarnation };
        let disks: Vec<Member> = founding.nodes.iter().map(member).collect();
        let state = LogCatalog::founded(log, &disks);
        let seen = Seen::open(founding.cluster, disk)?;
        let mut catalog = Self { bucket, log, state, next: 1, seen };
        catalog.catch_up(disk)?;
        Ok(catalog)
    }

    /// Reads what was decided meanwhile. What is read is noted on the disk before anybody acts on it.
    fn catch_up(&mut self, disk: &dyn Disk) -> Result<(), CatalogError> {
        loop {
            let key = txn_key(self.log, self.next);
            let bytes = match self.bucket.get(&key) {
                Err(BucketError::NotFound { .. }) => break,
                bytes => bytes?,
            };
            let txn = decode_txn(&mut opened(&key, &bytes)?);
            let txn = txn.map_err(|why| CatalogError::Object { key, why })?;
            self.state.call(&Call::Propose(txn));
            self.next += 1;
        }
        self.seen.note(self.state.state().revision, disk)
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
            match self.bucket.create(&txn_key(self.log, self.next), &sealed_txn(txn)) {
                Ok(()) => {}
                Err(BucketError::Exists { .. }) => continue,
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn sealed_txn(txn: &Txn) -> Bytes {
    let mut to = Writer::default();
    put_txn(&mut to, txn);
    sealed(to)
}

fn decode_txn(from: &mut Reader<'_>) -> Result<Txn, Malformed> {
    let read = txn(from)?;
    from.end()?;
    Ok(read)
}
