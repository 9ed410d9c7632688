//! Calls of nodes: on their way to the leader, and there until they are answered.

use super::{Effect, Member};
use crate::asked::Origin;
use crate::catalog_codec::put_log_txn;
use crate::coding::Writer;
use crate::packet::Body;
use crate::rules::Rule;
use crate::types::{LogNumber, MemberId};
use nuthatch_quorum::catalog::{Call, CatalogReply, TxnId};

impl Member {
    /// Sends calls where they go now.
    pub(super) fn send_calls(&mut self) {
        self.note_leader();
        let leader = self.leader;
        if !self.is_leader() {
            self.waiting.clear();
        }
        if leader == raft::INVALID_ID || !self.taking_part.is_on() {
            return;
        }
        let me = self.id();
        for (number, log, call) in self.calls.due(self.ticks) {
            match leader == me.0 {
                true => self.lead(Origin { member: me, number }, log, &call),
                false => self.send(MemberId(leader), Body::Ask { number, log, call }),
            }
        }
    }

    /// Notes who leads: all calls go there at once.
    pub(super) fn note_leader(&mut self) {
        let leader = self.raw.raft.leader_id;
        if leader != self.leader {
            self.leader = leader;
            self.led_since = self.ticks;
            self.calls.restart();
        }
    }

    /// Takes a call, if this member leads and there is such a log.
    pub(super) fn lead(&mut self, origin: Origin, log: LogNumber, call: &Call) {
        if !self.is_leader() || self.waiting.is_full() || log.index() >= self.catalogs.len() {
            return;
        }
        let catalog = &self.catalogs[log.index()];
        // Until then the library forgets what it is to confirm.
        let may_read = self.raw.raft.commit_to_current_term();
        match call {
            Call::Read if !may_read && Rule::ReadConfirmed.holds() => {}
            Call::Read => self.lead_read(origin, (log, None)),
            // It was sent again, and what came of it is known: another entry would say nothing more.
            Call::Propose(txn) if may_read && catalog.outcome(txn.id).is_some() => {
                self.lead_read(origin, (log, Some(txn.id)));
            }
            Call::Propose(txn) => {
                let is_new = self.waiting.propose(origin, txn.id, self.raw.raft.term);
                let mut data = Writer::default();
                put_log_txn(&mut data, log, txn);
                if is_new && self.raw.propose(vec![], data.0).is_err() {
                    // It comes again.
                    self.waiting.applied(txn.id);
                }
                if !Rule::AnswerAfterCommit.holds() {
                    let mut catalog = self.catalogs[log.index()].clone();
                    let reply = catalog.call(&Call::Propose(txn.clone()));
                    self.answer_all(self.id(), vec![origin], &reply);
                }
            }
        }
    }

    /// A read waits until a majority has confirmed that this member leads.
    fn lead_read(&mut self, origin: Origin, of: (LogNumber, Option<TxnId>)) {
        let context = self.read_context();
        self.reads_due |= self.waiting.read(origin, of, context);
    }

    /// What names the next confirmation.
    fn read_context(&self) -> Vec<u8> {
        let mut context = Writer::default();
        context.u64(self.identity.boot.nonce);
        context.u64(self.reads);
        context.0
    }

    /// Has a majority confirm that this member leads, once for all reads that came meanwhile.
    pub(super) fn confirm_reads(&mut self) {
        // Until an entry of its term is committed the library forgets what it is to confirm.
        let may_read = self.raw.raft.commit_to_current_term() || !Rule::ReadConfirmed.holds();
        if !self.is_leader() || !may_read || !std::mem::take(&mut self.reads_due) {
            return;
        }
        let context = self.read_context();
        self.reads += 1;
        match Rule::ReadConfirmed.holds() {
            true => self.raw.read_index(context),
            false => self.waiting.confirmed(&context, self.applied),
        }
    }

    pub(super) fn answer(&mut self, number: u64, reply: CatalogReply) {
        if self.calls.answered(number) {
            self.out.push(Effect::Answer { number, reply: Box::new(reply) });
        }
    }

    pub(super) fn answer_all(&mut self, me: MemberId, origins: Vec<Origin>, reply: &CatalogReply) {
        for Origin { member, number } in origins {
            match member == me {
                true => self.answer(number, reply.clone()),
                false => self.send(member, Body::Answer { number, reply: reply.clone() }),
            }
        }
    }

    /// Answers those for which the leader was confirmed, and what it had then is applied.
    pub(super) fn answer_reads(&mut self) {
        for (origin, log, txn) in self.waiting.readable(self.applied) {
            let catalog = &mut self.catalogs[log.index()];
            let outcome = txn.map(|id| Some((id, catalog.outcome(id)?)));
            let reply = catalog.call(&Call::Read);
            let reply = match outcome {
                None => reply,
                Some(Some(outcome)) => CatalogReply { outcome: Some(outcome), ..reply },
                // Forgotten meanwhile: the call comes again.
                Some(None) => continue,
            };
            self.answer_all(self.id(), vec![origin], &reply);
        }
    }
}
