//! What a change of streams does with their subjects: each may have 100,000.
//!
//! Subjects are compared with those of all others, put into the registry and taken out of it in
//! parts. Between two parts the registry is let go, which publishers ask for routes, and other tasks
//! have their turn on the thread. Whoever calls holds the right to change the account's streams, so
//! nobody takes the subjects between two parts.

use crate::outcome::described;
use crate::registry::{Entry, Registry, SubjectsKey};
use crate::service::JetStream;
use nuthatch_protocol::js::StreamConfig;
use nuthatch_protocol::jserror::JsError;
use nuthatch_protocol::subject;
use nuthatch_protocol::subject::tree::{OverlapSearch, SearchOutcome, SubjectTree};
use nuthatch_streams::AccountId;
use nuthatch_streams::subject_set::{STEPS_MAX, TooTangled};
use std::collections::HashSet;
use std::sync::Arc;
use tokio::task::yield_now;

/// Subjects that are put into the registry, or taken out, while it is held.
const SUBJECTS_PART: usize = 1024;
/// Steps of a comparison between two turns of others.
const STEPS_PART: usize = 4096;

/// Steps that a comparison may still take: [`STEPS_MAX`] in all.
struct Steps {
    /// Before others have their turn.
    part: usize,
    /// Beyond those.
    left: usize,
}

impl Steps {
    const fn new() -> Self {
        Self { part: STEPS_PART, left: STEPS_MAX - STEPS_PART }
    }

    /// Lets others have their turn once a part is used up.
    async fn turn(&mut self) -> Result<(), JsError> {
        if self.part > 0 {
            return Ok(());
        }
        if self.left == 0 {
            let why = TooTangled { steps_max: STEPS_MAX };
            return Err(JsError::STREAM_INVALID_CONFIG.with_err(why));
        }
        self.part = STEPS_PART.min(self.left);
        self.left -= self.part;
        yield_now().await;
        Ok(())
    }

    /// Carries out a search to its end: whether anything was found.
    async fn search(
        &mut self,
        mut search: impl FnMut(&mut usize) -> SearchOutcome,
    ) -> Result<bool, JsError> {
        loop {
            self.turn().await?;
            match search(&mut self.part) {
                SearchOutcome::Found => return Ok(true),
                SearchOutcome::Nothing => return Ok(false),
                SearchOutcome::Interrupted => {}
            }
        }
    }
}

/// Looks at subjects of many streams, with turns of others in between.
#[derive(Default)]
pub(super) struct Looks(usize);

impl Looks {
    /// True if one of a stream's subjects overlaps with `filter`, or that is empty.
    pub(super) async fn is_about(&mut self, subjects: &[String], filter: &str) -> bool {
        if filter.is_empty() {
            return true;
        }
        for own in subjects {
            self.0 += 1;
            if self.0.is_multiple_of(SUBJECTS_PART) {
                yield_now().await;
            }
            if subject::overlap(own.as_bytes(), filter.as_bytes()) {
                return true;
            }
        }
        false
    }
}

impl JetStream {
    /// Refuses subjects that another stream of the account has, or is about to have.
    pub(super) async fn check_overlap(
        &self,
        account: AccountId,
        config: &StreamConfig,
        is_of_all: bool,
    ) -> Result<(), JsError> {
        let served = self.core.served(account).filter(|_| is_of_all);
        let nodes = served.as_ref().map_or_else(Vec::new, |served| served.nodes());
        let except = self.registry.read().key_of(account, &config.name);
        let pending = self.pending_changes.subjects_beside(account, &config.name);
        let mut steps = Steps::new();
        for own in &config.subjects {
            let mut search = OverlapSearch::new(own.as_bytes());
            let registry = |steps: &mut usize| {
                self.registry.read().overlaps(account, &mut search, steps, except)
            };
            if steps.search(registry).await? {
                return Err(JsError::STREAM_SUBJECT_OVERLAP);
            }
            for (node, ..) in &nodes {
                let mut search = OverlapSearch::new(own.as_bytes());
                let overlaps = |steps: &mut usize| {
                    let served = served.as_ref().expect("there are nodes of it");
                    served.overlaps(node, &mut search, steps, &config.name)
                };
                if steps.search(overlaps).await? {
                    return Err(JsError::STREAM_SUBJECT_OVERLAP);
                }
            }
            for theirs in &pending {
                let mut search = OverlapSearch::new(own.as_bytes());
                if steps.search(|steps| search.search(theirs, steps, |_, ()| true)).await? {
                    return Err(JsError::STREAM_SUBJECT_OVERLAP);
                }
            }
        }
        Ok(())
    }

    /// The account's streams by name, those with a subject that overlaps with `filter` if it is given.
    pub(super) async fn streams_with(&self, account: AccountId, filter: &str) -> Vec<Arc<Entry>> {
        let all: Vec<Arc<Entry>> = self.registry.read().of_account(account).cloned().collect();
        if filter.is_empty() {
            return all;
        }
        let (mut found, mut looks) = (Vec::new(), Looks::default());
        for entry in all {
            if looks.is_about(&entry.config.subjects, filter).await {
                found.push(entry);
            }
        }
        found
    }

    /// Takes a new or changed stream into the registry, if its log is attached still: one that is
    /// detached takes its streams out of the registry after it has left, so none stays.
    ///
    /// # Errors
    /// Its log was detached; the stream comes with it when it is attached again.
    pub(super) async fn enter(&self, entry: Entry) -> Result<(), JsError> {
        let (account, new) = (entry.account, entry.config.clone());
        let (key, old) = {
            let mut registry = self.registry.write();
            let old = registry.get(account, &new.name).map(|old| old.config.clone());
            (registry.key_for(account, &new.name), old)
        };
        let old = old.unwrap_or_default();
        let (added, gone) = (missing(&new, &old).await, missing(&old, &new).await);
        self.in_parts(&added, |registry, part| registry.add_subjects(account, key, part)).await;
        let is_served = self.change(|registry| {
            let is_served = self.logs.is_attached(entry.engine);
            if is_served {
                registry.put(key, entry);
            }
            is_served
        });
        if !is_served {
            self.drop_subjects(account, key, &added).await;
            let text = "the log of this stream was taken away: it comes back with that";
            return Err(described(JsError::CLUSTER_NOT_AVAIL, text.to_owned()));
        }
        self.drop_subjects(account, key, &gone).await;
        Ok(())
    }

    /// Takes a stream out of the registry. From the first part on nothing is routed to it.
    pub(super) async fn leave(&self, account: AccountId, name: &str) {
        let Some((key, entry)) = self.change(|registry| registry.take(account, name)) else {
            return;
        };
        let subjects: Vec<&String> = entry.config.subjects.iter().collect();
        self.in_parts(&subjects, |registry, part| registry.drop_subjects(account, key, part)).await;
    }

    async fn drop_subjects(&self, account: AccountId, key: SubjectsKey, gone: &[&String]) {
        if gone.is_empty() {
            return;
        }
        self.in_parts(gone, |registry, part| registry.drop_subjects(account, key, part)).await;
        self.change(|registry| registry.note_change(account, gone.iter().copied()));
    }

    async fn in_parts<'a>(
        &self,
        subjects: &[&'a String],
        mut change: impl FnMut(&mut Registry, Vec<&'a String>),
    ) {
        for (at, part) in subjects.chunks(SUBJECTS_PART).enumerate() {
            if at > 0 {
                yield_now().await;
            }
            change(&mut self.registry.write(), part.to_vec());
        }
    }
}

/// Subjects of `one` that `other` does not have.
async fn missing<'a>(one: &'a Arc<StreamConfig>, other: &StreamConfig) -> Vec<&'a String> {
    if one.subjects == other.subjects {
        return Vec::new();
    }
    let mut theirs = HashSet::new();
    for part in other.subjects.chunks(SUBJECTS_PART) {
        theirs.extend(part);
        yield_if_full(part).await;
    }
    let mut missing = Vec::new();
    for part in one.subjects.chunks(SUBJECTS_PART) {
        missing.extend(part.iter().filter(|own| !theirs.contains(own)));
        yield_if_full(part).await;
    }
    missing
}

/// The subjects as a tree of their own.
pub(super) async fn tree_of(subjects: &[String]) -> SubjectTree<()> {
    let mut tree = SubjectTree::default();
    for part in subjects.chunks(SUBJECTS_PART) {
        part.iter().for_each(|own| tree.insert(own.as_bytes(), None, ()));
        yield_if_full(part).await;
    }
    tree
}

async fn yield_if_full(part: &[String]) {
    if part.len() == SUBJECTS_PART {
        yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pending_changes::tests::{ACCOUNT, code, create, service};
    use nuthatch_server::served::Scope;
    use serde_json::json;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;
    use tokio::time::timeout;

    const OTHER: AccountId = AccountId(7);

    /// How often another task had its turn while `work` went on.
    async fn turns_during(work: impl Future<Output = ()>) -> usize {
        let turns = Arc::new(AtomicUsize::new(0));
        let counted = turns.clone();
        let other = tokio::spawn(async move {
            loop {
                counted.fetch_add(1, Ordering::Relaxed);
                yield_now().await;
            }
        });
        work.await;
        other.abort();
        turns.load(Ordering::Relaxed)
    }

    fn body(name: &str, subjects: impl Iterator<Item = String>) -> String {
        json!({ "name": name, "subjects": subjects.collect::<Vec<_>>() }).to_string()
    }

    #[tokio::test]
    async fn subjects_come_and_go_in_parts() {
        let (_logs, service) = service();
        let text = body("S", (0..50_000).map(|n| format!("s.{n}")));
        let route = |subject: &str| service.registry.read().route(ACCOUNT, subject.as_bytes());
        // A literal: a part that grows must not lower what is expected.
        let parts = 40;
        let turns = turns_during(async {
            service.stream_create(ACCOUNT, ("S", &Scope::Cluster), text.as_bytes()).await.unwrap();
        });
        assert!(turns.await >= parts);
        assert!(route("s.0").is_some() && route("s.49999").is_some());
        // What stays has its route all the time.
        let text = body("S", (49_999..50_001).map(|n| format!("s.{n}")));
        let turns = turns_during(async {
            service.stream_update(ACCOUNT, "S", text.as_bytes()).await.unwrap();
        });
        assert!(turns.await >= parts);
        let there = ["s.0", "s.49999", "s.50000"].map(|subject| route(subject).is_some());
        assert_eq!(there, [false, true, true]);
        service.stream_delete(ACCOUNT, "S", b"").await.unwrap();
        assert!(route("s.49999").is_none());
        create(&service, "T", "s.>", &[]).await.unwrap();
    }

    #[tokio::test]
    async fn comparing_subjects_has_a_bound() {
        let (_logs, service) = service();
        let text = body("S", (0..5000).map(|n| format!("a.b{n}.s")));
        service.stream_create(ACCOUNT, ("S", &Scope::Cluster), text.as_bytes()).await.unwrap();
        let text = body("T", (0..5000).map(|n| format!("a.*.t{n}")));
        let answer = service.stream_create(ACCOUNT, ("T", &Scope::Cluster), text.as_bytes()).await;
        let error = answer.expect_err("25 million steps are too many");
        assert_eq!(error.err_code, 10052);
        assert!(error.description.contains("too entangled"), "{error}");
        let text = body("T", (0..100).map(|n| format!("a.*.t{n}")));
        service.stream_create(ACCOUNT, ("T", &Scope::Cluster), text.as_bytes()).await.unwrap();
        assert_eq!(code(create(&service, "U", "a.*.t9", &[]).await), 10065);
    }

    #[tokio::test]
    async fn accounts_do_not_wait_for_each_other() {
        let (_logs, service) = service();
        let served = crate::service::ServedAccount {
            name: "other".to_owned(),
            limits: crate::service::AccountLimits::default(),
            tiers: Vec::new(),
        };
        service.set_accounts([(OTHER, served)].into_iter().collect());
        let changing = service.lock_for(OTHER, "S").await.unwrap();
        let created = timeout(Duration::from_secs(20), create(&service, "S", "s", &[]));
        created.await.expect("it waits for no other account").unwrap();
        let waiting = service.clone();
        let behind = tokio::spawn(async move {
            waiting.lock_for(OTHER, "T").await.map(drop).unwrap();
        });
        yield_now().await;
        assert!(!behind.is_finished());
        drop(changing);
        behind.await.unwrap();
    }
}
