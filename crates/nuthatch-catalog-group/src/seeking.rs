//! What a node that looks for its cluster has said and heard, so that a founding whose founder has lost its disk comes
//! to nobody beside the next one.
//!
//! A founder that comes back without its disk founds again as soon as all others have said that they hold nothing. None of
//! them may hold an earlier founding after it has said so: what the founder told before it lost its disk may still be on
//! its way. So a node says that it holds nothing, or takes what it is told, but not both for one question of its own:
//! an answer counts only if nothing was said since its question, and once one counts nothing is said before the round
//! is over.

use crate::founding::Answer;
use crate::rules::Rule;

/// A node that looks for its cluster in rounds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Seeking {
    /// How often it has said that it holds nothing.
    said: u64,
    /// The same when this round began.
    said_before: u64,
    /// In this round it was told of a founding.
    told: bool,
}

impl Seeking {
    /// A round begins: it asks the others.
    pub fn ask(&mut self) {
        self.said_before = self.said;
        self.told = false;
    }

    /// It is asked who it is. True: it says that it holds nothing; otherwise it does not answer.
    #[must_use]
    pub fn say_nothing_held(&mut self) -> bool {
        if self.told && Rule::FoundingAskedAnew.holds() {
            return false;
        }
        self.said += 1;
        true
    }

    /// An answer came to a question of this round. False: it does not count.
    #[must_use]
    pub fn counts(&mut self, answer: &Answer) -> bool {
        if answer.founding.is_none() {
            return true;
        }
        let is_new = self.said == self.said_before || !Rule::FoundingAskedAnew.holds();
        self.told |= is_new;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::founding::{Founding, Named};
    use crate::types::{LogCount, MemberId, Protocol};
    use nuthatch_quorum::types::Incarnation;

    fn answer(holds: bool) -> Answer {
        let node = Named { name: "a".to_owned(), keeper: Incarnation(1), member: MemberId(1) };
        let founding =
            Founding { cluster: 7, founders: vec![], logs: LogCount::ONE, active: Protocol::FIRST };
        Answer { node, founding: holds.then_some(founding), roster: None }
    }

    #[test]
    fn what_was_asked_before_it_said_that_it_holds_nothing_does_not_count() {
        let mut node = Seeking::default();
        node.ask();
        assert!(node.say_nothing_held());
        assert!(!node.counts(&answer(true)));
        assert!(
            node.counts(&answer(false)),
            "that nobody holds anything is no older than the question"
        );
        node.ask();
        assert!(node.counts(&answer(true)), "it was asked anew");
    }

    #[test]
    fn who_was_told_of_a_founding_says_nothing_before_the_round_is_over() {
        let mut node = Seeking::default();
        node.ask();
        assert!(node.counts(&answer(true)));
        assert!(!node.say_nothing_held());
        node.ask();
        assert!(node.say_nothing_held(), "it did not take it");
    }
}
