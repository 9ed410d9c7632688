//! What must be true of a group, whoever looks at it.

use nuthatch_catalog_group::MemberId;
use nuthatch_quorum::catalog::{Call, CatalogReply, Snapshot, Txn, TxnId};
use nuthatch_quorum::types::{NodeId, Revision};
use std::collections::BTreeMap;
use thiserror::Error;

/// Something that must never be.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Violation {
    /// One revision has two contents.
    #[error("revision {} was seen with two contents", .0.0)]
    TwoContents(Revision),
    /// An answer does not know what another one knew before its call was made.
    #[error("a call that was made when revision {} had been answered was answered at {}", floor.0, at.0)]
    Stale {
        /// The greatest revision that an answer had before.
        floor: Revision,
        /// This answer's.
        at: Revision,
    },
    /// A transaction has two outcomes.
    #[error("transaction {0:?} has two outcomes")]
    TwoOutcomes(TxnId),
    /// A transaction was applied at a revision that others had been told of before it was proposed.
    #[error("transaction {0:?} was applied before it was proposed")]
    TooEarly(TxnId),
    /// Two members led in one term.
    #[error("members {0:?} and {1:?} led in term {2}")]
    TwoLeaders(MemberId, MemberId, u64),
    /// A member's state went back while it ran.
    #[error("member {0:?} went back")]
    WentBack(MemberId),
    /// A disk takes part that was set back to an earlier image.
    #[error("a disk takes part that was set back")]
    SetBack,
    /// Two clusters were founded.
    #[error("two clusters were founded")]
    TwoClusters,
    /// Nothing was answered for long although nothing was wrong.
    #[error("no call is answered although all is well")]
    Stuck,
    /// A log is on a node that was removed.
    #[error("node {} was removed, and a log is on it", .0.0)]
    RemovedKeeps(NodeId),
    /// A node votes that had not caught up.
    #[error("member {0:?} votes and has not caught up")]
    NotCaughtUp(MemberId),
    /// A replacement that was begun has not ended although all is well.
    #[error("node {} was to be replaced, which has not ended", .0.0)]
    Unfinished(NodeId),
    /// A disk of a node that was removed takes part.
    #[error("member {0:?} takes part, whose node was removed")]
    RemovedTakesPart(MemberId),
    /// Whoever leads when all has been well for long has no vote.
    #[error("{0:?} leads, and has no vote")]
    LeadsWithoutVote(MemberId),
    /// A drained node leads when all has been well for long and another one could.
    #[error("{0:?} leads, and is drained")]
    DrainedLeads(MemberId),
    /// A member lacks what is committed when all has been well for long.
    #[error("member {0:?} lacks what is committed although all is well")]
    LeftBehind(MemberId),
    /// A leader has a node replaced by itself that it has heard lately.
    #[error("node {} is replaced although it was heard", .0.0)]
    HeardReplaced(NodeId),
    /// A member cannot use its disk although that was not harmed.
    #[error("a disk that was not harmed cannot be used: {0}")]
    Unusable(String),
}

/// A call from when it was first made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked {
    /// The call.
    pub call: Call,
    /// The greatest revision that had been answered by then.
    pub floor: Revision,
}

/// Sees all answers and all members.
#[derive(Debug, Default)]
pub struct Observer {
    contents: BTreeMap<Revision, Snapshot>,
    outcomes: BTreeMap<TxnId, Result<Revision, ()>>,
    leaders: BTreeMap<u64, MemberId>,
    /// The greatest revision that was answered.
    pub floor: Revision,
    /// Answers so far.
    pub answers: u64,
}

impl Observer {
    /// A member has this state.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn state(&mut self, state: &Snapshot) -> Result<(), Violation> {
        let known = self.contents.entry(state.revision).or_insert_with(|| state.clone());
        if known == state { Ok(()) } else { Err(Violation::TwoContents(state.revision)) }
    }

    /// A member leads.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn leads(&mut self, member: MemberId, term: u64) -> Result<(), Violation> {
        let other = *self.leaders.entry(term).or_insert(member);
        if other == member { Ok(()) } else { Err(Violation::TwoLeaders(other, member, term)) }
    }

    /// Terms that had a leader.
    #[must_use]
    pub fn terms(&self) -> u64 {
        self.leaders.len() as u64
    }

    /// A call was answered.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn answered(&mut self, asked: &Asked, reply: &CatalogReply) -> Result<(), Violation> {
        let at = reply.snapshot.revision;
        if at < asked.floor {
            return Err(Violation::Stale { floor: asked.floor, at });
        }
        self.state(&reply.snapshot)?;
        if let Call::Propose(txn) = &asked.call {
            self.outcome(txn, asked.floor, reply)?;
        }
        self.floor = self.floor.max(at);
        self.answers += 1;
        Ok(())
    }

    fn outcome(
        &mut self,
        txn: &Txn,
        floor: Revision,
        reply: &CatalogReply,
    ) -> Result<(), Violation> {
        let outcome = reply.outcome.filter(|(id, _)| *id == txn.id).map(|(_, outcome)| outcome);
        let outcome = outcome.ok_or(Violation::TwoOutcomes(txn.id))?.map_err(drop);
        if *self.outcomes.entry(txn.id).or_insert(outcome) != outcome {
            return Err(Violation::TwoOutcomes(txn.id));
        }
        match outcome {
            Ok(revision) if revision <= floor || revision > reply.snapshot.revision => {
                Err(Violation::TooEarly(txn.id))
            }
            _ => Ok(()),
        }
    }
}
