//! Changes of streams as a step machine: who may change an account's streams, and which names are
//! claimed by changes that take long, in a log whose bucket does not answer for example.
//!
//! Whoever changes streams of an account has that account's *right* until the log has answered, in
//! the order of asking. After [`CHANGE_TIMEOUT`], or at once behind a log that lets others wait
//! already, the right goes on to the next and the change leaves a *claim*: until it ends, the stream's
//! name and subjects are taken, what it reserves counts, and nobody else changes that stream. Once the
//! log has answered, the change has the right once more, so that what follows from it, names and
//! routes, is done before anybody else looks.
//!
//! All of this is in memory: after a restart the logs say what became of each change.

use super::Now;
use crate::rules::{CLAIM_ENDS, CLAIM_UNTIL_ANSWERED, CLAIM_UNTIL_SHOWN};
use crate::sink::AccountId;
use nuthatch_protocol::js::StreamConfig;
use nuthatch_protocol::subject::tree::SubjectTree;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How long others wait for a log to change a stream. Those behind a log that has let others wait
/// before do not wait at all.
pub const CHANGE_TIMEOUT: Duration = Duration::from_secs(2);

/// One change, by a number that no other one has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ChangeId(pub u64);

/// What a change takes while it is under way.
#[derive(Clone)]
pub struct Claim {
    /// The log that the change waits for, by its number.
    pub log: u64,
    /// The stream's configuration after the change, or until it is deleted.
    pub config: Arc<StreamConfig>,
    /// Its subjects, once others may ask for them.
    pub subjects: Arc<SubjectTree<()>>,
}

impl Claim {
    /// A claim of name and limits; subjects follow with [`Event::Late`].
    #[must_use]
    pub fn new(log: u64, config: impl Into<Arc<StreamConfig>>) -> Self {
        Self { log, config: config.into(), subjects: Arc::default() }
    }

    /// A claim of a name and nothing else.
    #[must_use]
    pub fn of_name(log: u64, name: &str) -> Self {
        Self::new(log, StreamConfig { name: name.to_owned(), ..StreamConfig::default() })
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "claim of {} at log {}", self.config.name, self.log)
    }
}

/// What happens to a change, in this order; [`Event::Ended`] at any time.
pub enum Event {
    /// It wants the right to change this stream.
    Wanted {
        /// The account.
        account: AccountId,
        /// The stream.
        name: String,
    },
    /// With the right, its log was told what to do.
    Begun(Claim),
    /// The time of [`Effect::Wait`] has passed; the subjects that it claims.
    Late(Arc<SubjectTree<()>>),
    /// Its log has answered.
    Answered,
    /// It is over, or given up.
    Ended,
}

/// What follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// This change has the right now.
    Grant(ChangeId),
    /// Another change of its stream waits for this log: it is over.
    Refuse(ChangeId, u64),
    /// If its log has not answered then, [`Event::Late`].
    Wait(ChangeId, Now),
}

#[derive(Debug)]
enum Phase {
    /// Waits for the right.
    Queued,
    /// Has the right.
    Granted,
    /// Has it, and waits for its log.
    Begun(Claim),
    /// Waits for its log without the right, as a claim.
    Claimed,
    /// Waits for the right once more.
    Answered,
}

#[derive(Debug)]
struct Change {
    account: AccountId,
    name: String,
    phase: Phase,
}

/// The changes that are under way. At most as many as API requests.
#[derive(Debug, Default)]
pub struct Changes {
    changes: FxHashMap<ChangeId, Change>,
    /// Who has the right to change an account's streams, and who waits for it.
    queues: FxHashMap<AccountId, VecDeque<ChangeId>>,
    /// By account and name of the stream.
    claims: FxHashMap<(AccountId, String), Claim>,
}

impl Changes {
    /// What follows from what happened to a change.
    ///
    /// # Panics
    /// The change is not where that can happen.
    pub fn step(&mut self, id: ChangeId, event: Event, now: Now) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            Event::Wanted { account, name } => {
                let known = self.changes.insert(id, Change { account, name, phase: Phase::Queued });
                assert!(known.is_none(), "a change has a number of its own");
                self.queue(account, id, &mut effects);
            }
            Event::Begun(claim) => effects.push(self.begun(id, claim, now)),
            Event::Late(subjects) => self.late(id, subjects, &mut effects),
            Event::Answered => self.answered(id, &mut effects),
            Event::Ended => self.ended(id, &mut effects),
        }
        effects
    }

    fn change(&mut self, id: ChangeId) -> &mut Change {
        self.changes.get_mut(&id).expect("the change is under way")
    }

    /// It waits for the right, behind others.
    fn queue(&mut self, account: AccountId, id: ChangeId, effects: &mut Vec<Effect>) {
        let queue = self.queues.entry(account).or_default();
        queue.push_back(id);
        if queue.len() == 1 {
            self.grant_next(account, effects);
        }
    }

    /// The first of an account's queue gets the right, unless its stream is claimed: then the next.
    fn grant_next(&mut self, account: AccountId, effects: &mut Vec<Effect>) {
        while let Some(&id) = self.queues.get(&account).and_then(VecDeque::front) {
            let change = self.changes.get_mut(&id).expect("who waits is under way");
            let key = (account, change.name.clone());
            match change.phase {
                Phase::Queued => match self.claims.get(&key) {
                    None => change.phase = Phase::Granted,
                    Some(claim) => {
                        effects.push(Effect::Refuse(id, claim.log));
                        self.changes.remove(&id);
                        self.queues.get_mut(&account).expect("it has a first").pop_front();
                        continue;
                    }
                },
                Phase::Answered => {
                    change.phase = Phase::Granted;
                    // Nobody else looks before what follows from it is done.
                    if CLAIM_ENDS.holds() {
                        self.claims.remove(&key);
                    }
                }
                ref other => panic!("no waiting change: {other:?}"),
            }
            return effects.push(Effect::Grant(id));
        }
        self.queues.remove(&account);
    }

    fn release(&mut self, account: AccountId, id: ChangeId, effects: &mut Vec<Effect>) {
        let queue = self.queues.get_mut(&account).expect("who has the right stands in the queue");
        let had = queue.pop_front();
        assert_eq!(had, Some(id), "only who has the right lets it go");
        self.grant_next(account, effects);
    }

    fn begun(&mut self, id: ChangeId, claim: Claim, now: Now) -> Effect {
        let is_slow = self.claims.values().any(|other| other.log == claim.log);
        let change = self.change(id);
        assert!(matches!(change.phase, Phase::Granted), "a change begins with the right");
        change.phase = Phase::Begun(claim);
        Effect::Wait(id, if is_slow { now } else { now + CHANGE_TIMEOUT })
    }

    /// The right goes on to others, the name does not. Nothing follows where the log has answered, or
    /// the change has ended, just before: a timer may come after that.
    fn late(&mut self, id: ChangeId, subjects: Arc<SubjectTree<()>>, effects: &mut Vec<Effect>) {
        let Some(change) = self.changes.get_mut(&id) else { return };
        let Phase::Begun(claim) = &change.phase else { return };
        let (account, claim) = (change.account, claim.clone());
        change.phase = Phase::Claimed;
        let key = (account, change.name.clone());
        if CLAIM_UNTIL_ANSWERED.holds() {
            self.claims.insert(key, Claim { subjects, ..claim });
        }
        self.release(account, id, effects);
    }

    fn answered(&mut self, id: ChangeId, effects: &mut Vec<Effect>) {
        let change = self.change(id);
        let account = change.account;
        match change.phase {
            Phase::Begun(_) => {
                change.phase = Phase::Granted;
                effects.push(Effect::Grant(id));
            }
            Phase::Claimed => {
                change.phase = Phase::Answered;
                let key = (account, change.name.clone());
                if !CLAIM_UNTIL_SHOWN.holds() {
                    self.claims.remove(&key);
                }
                self.queue(account, id, effects);
            }
            ref other => panic!("no log was told of it: {other:?}"),
        }
    }

    fn ended(&mut self, id: ChangeId, effects: &mut Vec<Effect>) {
        let Some(change) = self.changes.remove(&id) else { return };
        let account = change.account;
        match change.phase {
            Phase::Granted | Phase::Begun(_) => return self.release(account, id, effects),
            Phase::Claimed => {}
            Phase::Queued | Phase::Answered => {
                let queue = self.queues.get_mut(&account).expect("it waits");
                queue.retain(|other| *other != id);
            }
        }
        if matches!(change.phase, Phase::Claimed | Phase::Answered) {
            self.claims.remove(&(account, change.name));
        }
    }

    /// The claims of an account's other streams.
    pub fn claims_beside<'a>(
        &'a self,
        account: AccountId,
        name: &'a str,
    ) -> impl Iterator<Item = &'a Claim> {
        let others = self.claims.iter();
        others.filter(move |(key, _)| key.0 == account && key.1 != name).map(|(_, claim)| claim)
    }

    /// The claims of an account.
    pub fn claims(&self, account: AccountId) -> impl Iterator<Item = &Claim> {
        self.claims.iter().filter(move |(key, _)| key.0 == account).map(|(_, claim)| claim)
    }

    /// The log that a change of this stream waits for, as a claim.
    #[must_use]
    pub fn claimed(&self, account: AccountId, name: &str) -> Option<u64> {
        self.claims.get(&(account, name.to_owned())).map(|claim| claim.log)
    }
}

#[cfg(test)]
mod tests;
