//! Transactions that a node proposes, and what it does when they are decided.

use super::{Node, Proposal, Purpose, Role};
use crate::catalog::{Call, Key, Phase, Txn, TxnId, Value};
use crate::effect::{Alarm, Effect};
use crate::out::Out;
use crate::takeover::Candidate;
use crate::types::{Epoch, Revision, Time};

/// Says that a claim has begun the log anew, if it has.
fn tell_anew(purpose: Purpose, epoch: Epoch, out: &mut Out) {
    if let Purpose::ClaimAnew { left, of } = purpose {
        out.effects.push(Effect::Alarm(Alarm::BeganAnew { epoch, left, of }));
    }
}

impl Node {
    /// The first transaction of a takeover.
    pub(super) fn claim(&mut self, now: Time, out: &mut Out) {
        let me = self.me();
        let Some(snapshot) = &self.row else { return };
        let mut row = snapshot.log.value.clone();
        row.epoch = row.epoch.next();
        row.owner = Some(me);
        row.phase = Phase::Recovering;
        let revision = snapshot.log.revision;
        self.propose(Key::Log, revision, Value::Log(row), Purpose::Claim, now, out);
    }

    pub(super) fn propose(
        &mut self,
        key: Key,
        revision: Revision,
        value: Value,
        purpose: Purpose,
        now: Time,
        out: &mut Out,
    ) {
        self.number += 1;
        let id = TxnId { proposer: self.config.fresh[0], number: self.number };
        let seen = self.keeper.identity().seen;
        let txn = Txn { id, key, revision, seen, value };
        out.effects.push(Effect::Catalog(Call::Propose(txn.clone())));
        self.proposal = Some(Proposal { txn, purpose, sent_at: now });
    }

    pub(super) fn decided(
        &mut self,
        id: TxnId,
        applied: Option<Revision>,
        now: Time,
        out: &mut Out,
    ) {
        let Some(proposal) = self.proposal.take_if(|proposal| proposal.txn.id == id) else {
            return;
        };
        let prepares = self.prepares.filter(|_| proposal.purpose == Purpose::Claim);
        match (proposal.purpose, applied) {
            (Purpose::Register, applied) => self.registered = applied.is_some(),
            (purpose @ (Purpose::Claim | Purpose::ClaimAnew { .. }), Some(revision)) => {
                let Value::Log(row) = proposal.txn.value else { unreachable!("as proposed") };
                self.fall_back(now, out);
                self.detector.begin_role(now);
                let snapshot = self.row.as_ref().expect("a row was proposed");
                let target = match purpose {
                    // Whoever was left comes into the set later, with another disk.
                    Purpose::ClaimAnew { .. } => row.set.clone(),
                    _ => snapshot.target_of(self.me()),
                };
                tell_anew(purpose, row.epoch, out);
                let mut candidate = Candidate::new(self.me(), row, revision, target, now);
                self.prepares = prepares;
                if prepares.is_some_and(|prepares| !prepares.gone) {
                    candidate.hold(now);
                }
                self.role = Role::Candidate(Box::new(candidate));
                self.tick_role(now, out);
            }
            (Purpose::Serve, Some(_)) => {
                if let Role::Candidate(candidate) = &mut self.role {
                    candidate.committed(self.keeper.log(), out);
                }
            }
            (Purpose::Claim | Purpose::ClaimAnew { .. }, None) => {
                self.prepares = None;
                self.detector.begin_anew(now);
                self.miss_gone_owner();
                self.claim_again(proposal.txn.revision, now, out);
            }
            (Purpose::Serve, None) => self.fall_back(now, out),
        }
    }
}
