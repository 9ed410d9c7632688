//! What the node is doing about the ownership of the log.

use super::{Node, Purpose, Role};
use crate::doing::{Activity, Doing};

impl Node {
    /// What the node is doing.
    #[must_use]
    pub fn activity(&self) -> Activity {
        let is_claim =
            |purpose: Purpose| matches!(purpose, Purpose::Claim | Purpose::ClaimAnew { .. });
        let claims = self.proposal.as_ref().is_some_and(|proposal| is_claim(proposal.purpose));
        let doing = match &self.role {
            Role::Candidate(candidate) => candidate.doing(),
            Role::Owner(_) => Doing::Owning,
            _ if claims => Doing::Claiming,
            Role::Asking { .. } => Doing::Asking,
            Role::Follower => Doing::Following,
        };
        let leased = match &self.role {
            Role::Candidate(candidate) => candidate.leased_at(),
            _ => None,
        };
        Activity { doing, heard: self.detector.heard_at(), leased }
    }
}
