//! From when on a member may vote: when a majority, itself included, holds its new boot counter. An old image of a
//! disk does not get that far, since one of any majority has seen the disk begin later.
//!
//! A majority of whom? A member that was away may know members that are gone since, and none of those that are there.
//! So whoever holds a counter says who the members are, and the latest that is known counts.

use crate::rules::Rule;
use crate::types::{Boot, MemberId};
use raft::eraftpb::ConfState;
use std::collections::BTreeSet;

/// Whether a member takes part.
#[derive(Debug)]
pub struct TakingPart {
    me: MemberId,
    boot: Boot,
    held_by: BTreeSet<MemberId>,
    /// Who the members are, after so many entries of the log.
    members: (u64, ConfState),
    state: State,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum State {
    Asking,
    Yes,
    Never(&'static str),
}

impl TakingPart {
    /// A member that has just begun.
    pub fn new(me: MemberId, boot: Boot) -> Self {
        let members = (0, ConfState::default());
        Self { me, boot, held_by: BTreeSet::new(), members, state: State::Asking }
    }

    /// Somebody holds a boot counter of this member.
    pub fn held(&mut self, by: MemberId, boot: Boot) {
        if boot == self.boot {
            self.held_by.insert(by);
        }
    }

    /// Looks whether those that hold it are enough, when members are known after so many entries.
    pub fn look(&mut self, members: (u64, ConfState)) {
        if members.0 >= self.members.0 {
            self.members = members;
        }
        let conf = &self.members.1;
        let enough = |voters: &[u64]| {
            let holds = |id: &&u64| **id == self.me.0 || self.held_by.contains(&MemberId(**id));
            voters.is_empty() || 2 * voters.iter().filter(holds).count() > voters.len()
        };
        let all = enough(&conf.voters) && enough(&conf.voters_outgoing);
        if self.state == State::Asking && (all || !Rule::BootHeldFirst.holds()) {
            self.state = State::Yes;
        }
    }

    /// It must never take part again, because of what it is; true when that is new.
    pub fn refuse(&mut self, why: &'static str) -> bool {
        let new = !matches!(self.state, State::Never(_));
        if new {
            self.state = State::Never(why);
        }
        new
    }

    /// True if the member votes.
    pub fn is_on(&self) -> bool {
        self.state == State::Yes
    }

    /// True if it still asks the others.
    pub fn is_asking(&self) -> bool {
        self.state == State::Asking
    }

    /// Why it never will, if so.
    pub fn why_never(&self) -> Option<&'static str> {
        match self.state {
            State::Never(why) => Some(why),
            State::Asking | State::Yes => None,
        }
    }
}
