//! Transactions, answers and the whole state of the catalog as bytes.

use crate::coding::{Malformed, Reader, Writer, malformed};
use crate::types::{LogCount, LogNumber};
use nuthatch_quorum::catalog::{
    Call, Catalog, CatalogReply, CutRecord, Key, LogRow, NodeRow, Phase, ProposeError, Snapshot,
    Txn, TxnId, Value, Versioned, Wish,
};
use nuthatch_quorum::types::{BootCount, Epoch, Incarnation, Lsn, Member, NodeId, Revision};
use std::collections::VecDeque;

fn put_member(to: &mut Writer, member: &Member) {
    to.u8(member.node.0);
    to.u128(member.incarnation.0);
}

fn member(from: &mut Reader<'_>) -> Result<Member, Malformed> {
    Ok(Member { node: NodeId(from.u8()?), incarnation: Incarnation(from.u128()?) })
}

fn put_id(to: &mut Writer, id: TxnId) {
    to.u128(id.proposer.0);
    to.u64(id.number);
}

fn txn_id(from: &mut Reader<'_>) -> Result<TxnId, Malformed> {
    Ok(TxnId { proposer: Incarnation(from.u128()?), number: from.u64()? })
}

/// Appends a transaction.
///
/// # Panics
/// Its value does not belong under its key.
pub fn put_txn(to: &mut Writer, txn: &Txn) {
    put_id(to, txn.id);
    to.u64(txn.revision.0);
    to.u64(txn.seen.0);
    match (&txn.key, &txn.value) {
        (Key::Log, Value::Log(row)) => {
            to.u8(1);
            put_log_row(to, row);
        }
        (Key::Node(id), Value::Node(row)) => {
            to.u8(2);
            to.u8(id.0);
            put_node_row(to, row);
        }
        (Key::Wish, Value::Wish(wish)) => {
            to.u8(3);
            put_wish(to, wish);
        }
        (key, value) => panic!("{value:?} does not belong under {key:?}"),
    }
}

/// Reads a transaction.
///
/// # Errors
/// It is none.
pub fn txn(from: &mut Reader<'_>) -> Result<Txn, Malformed> {
    let id = txn_id(from)?;
    let (revision, seen) = (Revision(from.u64()?), Revision(from.u64()?));
    let (key, value) = match from.u8()? {
        1 => (Key::Log, Value::Log(log_row(from)?)),
        2 => (Key::Node(NodeId(from.u8()?)), Value::Node(node_row(from)?)),
        3 => (Key::Wish, Value::Wish(wish(from)?)),
        _ => return Err(malformed("a transaction of another kind")),
    };
    Ok(Txn { id, key, revision, seen, value })
}

/// Appends a transaction and which log it is of, as all of a document. That of the first log is written as before there
/// could be several.
pub fn put_log_txn(to: &mut Writer, log: LogNumber, of_it: &Txn) {
    put_txn(to, of_it);
    if log != LogNumber::FIRST {
        to.u8(log.0);
    }
}

/// Reads all of a document: a transaction, and which log it is of.
///
/// # Errors
/// It is none.
pub fn log_txn(from: &mut Reader<'_>) -> Result<(LogNumber, Txn), Malformed> {
    let of_it = txn(from)?;
    let log = if from.0.is_empty() { LogNumber::FIRST } else { another_log(from)? };
    from.end()?;
    Ok((log, of_it))
}

/// Reads the number of a log that is not the first.
///
/// # Errors
/// No cluster has such a log.
pub fn another_log(from: &mut Reader<'_>) -> Result<LogNumber, Malformed> {
    let log = from.u8()?;
    match (1..LogCount::MOST.all()).contains(&log) {
        true => Ok(LogNumber(log)),
        false => Err(malformed("a log that no cluster has")),
    }
}

/// Appends a question.
pub fn put_call(to: &mut Writer, call: &Call) {
    let txn = match call {
        Call::Read => None,
        Call::Propose(txn) => Some(txn),
    };
    to.option(txn, put_txn);
}

/// Reads a question.
///
/// # Errors
/// It is none.
pub fn call(from: &mut Reader<'_>) -> Result<Call, Malformed> {
    Ok(from.option(txn)?.map_or(Call::Read, Call::Propose))
}

type Outcome = (TxnId, Result<Revision, ProposeError>);

fn put_outcome(to: &mut Writer, (id, outcome): &Outcome) {
    put_id(to, *id);
    let (kind, revision) = match *outcome {
        Ok(revision) => (0, revision),
        Err(ProposeError::Changed { current }) => (1, current),
        Err(ProposeError::Behind { at }) => (2, at),
    };
    to.u8(kind);
    to.u64(revision.0);
}

fn outcome(from: &mut Reader<'_>) -> Result<Outcome, Malformed> {
    let (id, kind, revision) = (txn_id(from)?, from.u8()?, Revision(from.u64()?));
    let outcome = match kind {
        0 => Ok(revision),
        1 => Err(ProposeError::Changed { current: revision }),
        2 => Err(ProposeError::Behind { at: revision }),
        _ => return Err(malformed("an outcome of another kind")),
    };
    Ok((id, outcome))
}

/// Appends an answer.
pub fn put_reply(to: &mut Writer, reply: &CatalogReply) {
    to.option(reply.outcome.as_ref(), put_outcome);
    put_state(to, &reply.snapshot);
}

/// Reads an answer.
///
/// # Errors
/// It is none.
pub fn reply(from: &mut Reader<'_>) -> Result<CatalogReply, Malformed> {
    Ok(CatalogReply { outcome: from.option(outcome)?, snapshot: state(from)? })
}

/// Appends a catalog: what it holds, and the outcomes that it remembers.
pub fn put_catalog(to: &mut Writer, catalog: &Catalog) {
    put_state(to, catalog.state());
    let recent: Vec<Outcome> = catalog.recent().copied().collect();
    to.all(&recent, put_outcome);
}

/// Reads a catalog.
///
/// # Errors
/// It is none.
pub fn catalog(from: &mut Reader<'_>) -> Result<Catalog, Malformed> {
    let state = state(from)?;
    let recent: VecDeque<Outcome> = from.all(outcome)?.into();
    Ok(Catalog::restored(state, recent))
}

fn put_state(to: &mut Writer, state: &Snapshot) {
    to.u64(state.revision.0);
    to.u64(state.log.revision.0);
    put_log_row(to, &state.log.value);
    let nodes: Vec<_> = state.nodes.iter().collect();
    to.all(&nodes, |to, (id, row)| {
        to.u8(id.0);
        to.u64(row.revision.0);
        put_node_row(to, &row.value);
    });
    to.u64(state.wish.revision.0);
    put_wish(to, &state.wish.value);
}

fn state(from: &mut Reader<'_>) -> Result<Snapshot, Malformed> {
    let revision = Revision(from.u64()?);
    let log = Versioned { revision: Revision(from.u64()?), value: log_row(from)? };
    let node = |from: &mut Reader<'_>| {
        let id = NodeId(from.u8()?);
        Ok((id, Versioned { revision: Revision(from.u64()?), value: node_row(from)? }))
    };
    let nodes = from.all(node)?.into_iter().collect();
    let wish = Versioned { revision: Revision(from.u64()?), value: wish(from)? };
    Ok(Snapshot { revision, log, nodes, wish })
}

fn put_node_row(to: &mut Writer, row: &NodeRow) {
    to.u128(row.incarnation.0);
    to.u32(row.boots.0);
    to.all(&row.former, |to, former| to.u128(former.0));
}

fn node_row(from: &mut Reader<'_>) -> Result<NodeRow, Malformed> {
    Ok(NodeRow {
        incarnation: Incarnation(from.u128()?),
        boots: BootCount(from.u32()?),
        former: from.all(|from| from.u128().map(Incarnation))?,
    })
}

fn put_wish(to: &mut Writer, wish: &Wish) {
    to.all(&wish.keepers, |to, node| to.u8(node.0));
    to.option(wish.owner, |to, node| to.u8(node.0));
}

fn wish(from: &mut Reader<'_>) -> Result<Wish, Malformed> {
    let keepers = from.all(|from| from.u8().map(NodeId))?;
    Ok(Wish { keepers, owner: from.option(Reader::u8)?.map(NodeId) })
}

fn put_log_row(to: &mut Writer, row: &LogRow) {
    to.u32(row.epoch.0);
    to.option(row.owner, |to, owner| put_member(to, &owner));
    // Only logs in memory begin anew: of others it is written as before there were such ones.
    let began_anew = row.origin > Epoch(0);
    to.u8(u8::from(row.phase == Phase::Serving) | if began_anew { BEGAN_ANEW } else { 0 });
    if began_anew {
        to.u32(row.origin.0);
    }
    to.all(&row.set, put_member);
    to.u64(row.start.0);
    to.all(&row.cuts, |to, cut| {
        to.u128(cut.disk.0);
        to.u32(cut.epoch.0);
        to.u64(cut.after.0);
    });
}

/// In the byte of a phase: the epoch with which the log began anew follows.
const BEGAN_ANEW: u8 = 2;

fn log_row(from: &mut Reader<'_>) -> Result<LogRow, Malformed> {
    let (epoch, owner) = (Epoch(from.u32()?), from.option(member)?);
    let byte = from.u8()?;
    let phase = match byte & !BEGAN_ANEW {
        0 => Phase::Recovering,
        1 => Phase::Serving,
        _ => return Err(malformed("a phase that there is not")),
    };
    let origin = if byte & BEGAN_ANEW == 0 { 0 } else { from.u32()? };
    if byte & BEGAN_ANEW != 0 && origin == 0 {
        return Err(malformed("a log that began anew before its first epoch"));
    }
    Ok(LogRow {
        epoch,
        owner,
        phase,
        origin: Epoch(origin),
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
