//! Calls on their way: those of this member's own node until they are answered, and at the leader those of everybody
//! until they are committed or confirmed.

use crate::types::{LogNumber, MemberId};
use nuthatch_quorum::catalog::{Call, TxnId};
use std::collections::BTreeMap;

/// Calls of one node that wait at a time.
pub const CALLS_MAX: usize = 64;

/// Calls of all nodes that wait at the leader at a time.
pub const WAITING_MAX: usize = 256;

/// Ticks after which a call is sent again.
const RETRY_TICKS: u64 = 4;

/// Ticks after which nobody knows what became of a call.
const CALL_TICKS: u64 = 40;

/// A call of this member's node.
#[derive(Debug)]
struct Own {
    log: LogNumber,
    call: Call,
    began: u64,
    sent: Option<u64>,
}

/// Calls of this member's node, by their numbers.
#[derive(Debug, Default)]
pub struct Calls {
    own: BTreeMap<u64, Own>,
}

impl Calls {
    /// Takes a call; false: there are too many.
    pub fn add(&mut self, number: u64, (log, call): (LogNumber, Call), now: u64) -> bool {
        let fits = self.own.len() < CALLS_MAX;
        if fits {
            self.own.insert(number, Own { log, call, began: now, sent: None });
        }
        fits
    }

    /// A call was answered; true if somebody waited for it.
    pub fn answered(&mut self, number: u64) -> bool {
        self.own.remove(&number).is_some()
    }

    /// Calls that are given up.
    pub fn given_up(&mut self, now: u64) -> Vec<u64> {
        let late = |own: &Own| now >= own.began + CALL_TICKS;
        let given_up: Vec<u64> =
            self.own.iter().filter(|(_, own)| late(own)).map(|(number, _)| *number).collect();
        self.own.retain(|_, own| !late(own));
        given_up
    }

    /// There is another leader: all calls go there at once.
    pub fn restart(&mut self) {
        self.own.values_mut().for_each(|own| own.sent = None);
    }

    /// Calls that are to be sent now.
    pub fn due(&mut self, now: u64) -> Vec<(u64, LogNumber, Call)> {
        let due = |own: &Own| own.sent.is_none_or(|sent| now >= sent + RETRY_TICKS);
        let mut calls = Vec::new();
        for (number, own) in self.own.iter_mut().filter(|(_, own)| due(own)) {
            own.sent = Some(now);
            calls.push((*number, own.log, own.call.clone()));
        }
        calls
    }
}

/// Whose call it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The member.
    pub member: MemberId,
    /// Its number of the call.
    pub number: u64,
}

/// A transaction that waits at the leader.
#[derive(Debug)]
struct Proposed {
    origin: Origin,
    id: TxnId,
    term: u64,
}

/// A read that waits at the leader.
#[derive(Debug)]
struct Reading {
    origin: Origin,
    log: LogNumber,
    context: Vec<u8>,
    /// A transaction whose outcome is known and is the answer; none: only what there is was asked for.
    txn: Option<TxnId>,
    /// The entry that must be applied, once a majority has confirmed the leader.
    index: Option<u64>,
}

/// What waits at the leader.
#[derive(Debug, Default)]
pub struct Waiting {
    proposed: Vec<Proposed>,
    reading: Vec<Reading>,
}

impl Waiting {
    /// True if no more fits.
    pub fn is_full(&self) -> bool {
        self.proposed.len() + self.reading.len() >= WAITING_MAX
    }

    /// Nobody waits here any more: this member does not lead.
    pub fn clear(&mut self) {
        self.proposed.clear();
        self.reading.clear();
    }

    /// A transaction of this name waits for its entry of `term`; false: that entry was proposed already.
    pub fn propose(&mut self, origin: Origin, id: TxnId, term: u64) -> bool {
        let is_new = !self.proposed.iter().any(|one| one.id == id && one.term == term);
        self.proposed.retain(|one| one.origin != origin);
        self.proposed.push(Proposed { origin, id, term });
        is_new
    }

    /// A read waits until the leader is confirmed; so does a call whose transaction has been applied before, since its
    /// answer tells what there is now, too. False: it waits already, and for that confirmation. On a slow disk one takes
    /// longer than it takes until calls are sent again: with another one for each it would never be answered.
    pub fn read(
        &mut self,
        origin: Origin,
        (log, txn): (LogNumber, Option<TxnId>),
        context: Vec<u8>,
    ) -> bool {
        let same = |one: &Reading| one.origin == origin && (one.log, one.txn) == (log, txn);
        if self.reading.iter().any(same) {
            return false;
        }
        self.reading.retain(|one| one.origin != origin);
        self.reading.push(Reading { origin, log, txn, context, index: None });
        true
    }

    /// The leader was confirmed: a read may be answered when this is applied.
    pub fn confirmed(&mut self, context: &[u8], index: u64) {
        for one in self.reading.iter_mut().filter(|one| one.context == context) {
            one.index = Some(index);
        }
    }

    /// Who waits for a transaction.
    pub fn applied(&mut self, id: TxnId) -> Vec<Origin> {
        let origins = self.proposed.iter().filter(|one| one.id == id).map(|one| one.origin);
        let origins = origins.collect();
        self.proposed.retain(|one| one.id != id);
        origins
    }

    /// Whose reads may be answered when so much is applied, of which logs, and after which transactions.
    pub fn readable(&mut self, applied: u64) -> Vec<(Origin, LogNumber, Option<TxnId>)> {
        let ready = |one: &Reading| one.index.is_some_and(|index| index <= applied);
        let readable = self.reading.iter().filter(|one| ready(one));
        let readable = readable.map(|one| (one.origin, one.log, one.txn)).collect();
        self.reading.retain(|one| !ready(one));
        readable
    }
}
