//! The catalog in a bucket, or in a directory that all nodes share: transactions are numbered objects
//! that are created where there is none, so that one proposer wins each number.
//!
//! `found/NAME` says which disk a node begins with. When all that are expected are there, `txn/0` names them and
//! the cluster's random identity; from then on each transaction is the next number. The state is what the transactions
//! make of each other; whoever reads asks for the next number until there is none.

use crate::coding::{Malformed, Reader, Writer, crc, malformed};
use crate::small_files;
use bytes::Bytes;
use nuthatch_log::env::Disk;
use nuthatch_object::{Bucket, BucketError};
use nuthatch_quorum::catalog::{
    Call, Catalog, CatalogReply, CutRecord, Key, LogRow, NodeRow, Ordering, Phase, Txn, TxnId,
    Value, Wish,
};
use nuthatch_quorum::types::{BootCount, Epoch, Incarnation, Lsn, Member, NodeId, Revision};
use std::collections::BTreeMap;
use std::io;

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
    /// The disk failed.
    #[error("noting the revision of the catalog: {0}")]
    Disk(#[from] io::Error),
}

fn txn_key(number: u64) -> String {
    format!("txn/{number:020}")
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
    let _ = decode_founding(&mut Reader(data));
    if let Ok(txn) = decode_txn(&mut Reader(data)) {
        let again = encode_txn(&txn);
        assert_eq!(again[..again.len() - 4], *data, "a transaction has one form");
    }
}

/// Names the disk that a node begins with, and founds the cluster when all `expected` nodes have done so.
/// None: some have not. `fresh` is the cluster's identity, if it is this call that founds it.
///
/// # Errors
/// [`CatalogError`].
pub fn found(
    bucket: &Bucket,
    name: &str,
    incarnation: Incarnation,
    expected: usize,
    fresh: u128,
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
    let body = encode_founding(&Founding { cluster: fresh, nodes });
    match bucket.create(&txn_key(0), &body) {
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
    let key = txn_key(0);
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
    Ok(Founding { cluster, nodes })
}

/// The catalog as far as it was read.
pub struct BucketCatalog {
    bucket: Bucket,
    cluster: u128,
    state: Catalog,
    /// Number of the next transaction.
    next: u64,
    /// The greatest revision that is noted on the disk.
    seen: Revision,
}

impl BucketCatalog {
    /// The catalog of a cluster that was founded. `disk` remembers how far it was seen.
    ///
    /// # Errors
    /// [`CatalogError`]: among others, when it went back.
    pub fn open(
        bucket: Bucket,
        founding: &Founding,
        disk: &dyn Disk,
    ) -> Result<Self, CatalogError> {
        let member = |node: &Founder| Member { node: node.id, incarnation: node.incarnation };
        let row = |node: &Founder| {
            let row =
                NodeRow { incarnation: node.incarnation, boots: BootCount(0), former: vec![] };
            (node.id, row)
        };
        let set = founding.nodes.iter().map(member).collect();
        let state =
            Catalog::founded(set, founding.nodes.iter().map(row).collect::<BTreeMap<_, _>>());
        let (cluster, seen) =
            small_files::load_seen(disk)?.unwrap_or((founding.cluster, Revision(0)));
        if cluster != founding.cluster {
            return Err(CatalogError::OtherCluster { there: founding.cluster, here: cluster });
        }
        let mut catalog = Self { bucket, cluster, state, next: 1, seen };
        catalog.catch_up(disk)?;
        Ok(catalog)
    }

    /// Reads what was decided meanwhile. What is read is noted on the disk before anybody acts on it.
    fn catch_up(&mut self, disk: &dyn Disk) -> Result<(), CatalogError> {
        loop {
            let key = txn_key(self.next);
            let bytes = match self.bucket.get(&key) {
                Err(BucketError::NotFound { .. }) => break,
                bytes => bytes?,
            };
            let txn = decode_txn(&mut opened(&key, &bytes)?);
            let txn = txn.map_err(|why| CatalogError::Object { key, why })?;
            self.state.call(&Call::Propose(txn));
            self.next += 1;
        }
        let now = self.state.state().revision;
        if now < self.seen {
            return Err(CatalogError::WentBack { now: now.0, seen: self.seen.0 });
        }
        if now > self.seen {
            small_files::store_seen(disk, self.cluster, now)?;
            self.seen = now;
        }
        Ok(())
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
            match self.bucket.create(&txn_key(self.next), &encode_txn(txn)) {
                Ok(()) => {}
                Err(BucketError::Exists { .. }) => continue,
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn put_member(to: &mut Writer, member: &Member) {
    to.u8(member.node.0);
    to.u128(member.incarnation.0);
}

fn member(from: &mut Reader<'_>) -> Result<Member, Malformed> {
    Ok(Member { node: NodeId(from.u8()?), incarnation: Incarnation(from.u128()?) })
}

fn encode_txn(txn: &Txn) -> Bytes {
    let mut to = Writer::default();
    to.u128(txn.id.proposer.0);
    to.u64(txn.id.number);
    to.u64(txn.revision.0);
    to.u64(txn.seen.0);
    match (&txn.key, &txn.value) {
        (Key::Log, Value::Log(row)) => {
            to.u8(1);
            put_log_row(&mut to, row);
        }
        (Key::Node(id), Value::Node(row)) => {
            to.u8(2);
            to.u8(id.0);
            to.u128(row.incarnation.0);
            to.u32(row.boots.0);
            to.all(&row.former, |to, former| to.u128(former.0));
        }
        (Key::Wish, Value::Wish(wish)) => {
            to.u8(3);
            to.all(&wish.keepers, |to, node| to.u8(node.0));
            to.option(wish.owner, |to, node| to.u8(node.0));
        }
        (key, value) => panic!("{value:?} does not belong under {key:?}"),
    }
    sealed(to)
}

fn decode_txn(from: &mut Reader<'_>) -> Result<Txn, Malformed> {
    let id = TxnId { proposer: Incarnation(from.u128()?), number: from.u64()? };
    let (revision, seen) = (Revision(from.u64()?), Revision(from.u64()?));
    let (key, value) = match from.u8()? {
        1 => (Key::Log, Value::Log(log_row(from)?)),
        2 => {
            let id = NodeId(from.u8()?);
            let row = NodeRow {
                incarnation: Incarnation(from.u128()?),
                boots: BootCount(from.u32()?),
                former: from.all(|from| from.u128().map(Incarnation))?,
            };
            (Key::Node(id), Value::Node(row))
        }
        3 => {
            let keepers = from.all(|from| from.u8().map(NodeId))?;
            let owner = from.option(Reader::u8)?.map(NodeId);
            (Key::Wish, Value::Wish(Wish { keepers, owner }))
        }
        _ => return Err(malformed("a transaction of another kind")),
    };
    from.end()?;
    Ok(Txn { id, key, revision, seen, value })
}

fn put_log_row(to: &mut Writer, row: &LogRow) {
    to.u32(row.epoch.0);
    to.option(row.owner, |to, owner| put_member(to, &owner));
    to.bool(row.phase == Phase::Serving);
    to.all(&row.set, put_member);
    to.u64(row.start.0);
    to.all(&row.cuts, |to, cut| {
        to.u128(cut.disk.0);
        to.u32(cut.epoch.0);
        to.u64(cut.after.0);
    });
}

fn log_row(from: &mut Reader<'_>) -> Result<LogRow, Malformed> {
    Ok(LogRow {
        epoch: Epoch(from.u32()?),
        owner: from.option(member)?,
        phase: if from.bool()? { Phase::Serving } else { Phase::Recovering },
        set: from.all(member)?,
        start: Lsn(from.u64()?),
        cuts: from.all(|from| {
            Ok(CutRecord {
                disk: Incarnation(from.u128()?),
                epoch: Epoch(from.u32()?),
                after: Lsn(from.u64()?),
            })
        })?,
    })
}
