//! What a change of streams does with their subjects: each may have 100,000.
//!
//! They are compared with those of all others in parts, between which other tasks have their turn on
//! the thread.

use nuthatch_protocol::js::StreamConfig;
use nuthatch_protocol::jserror::JsError;
use nuthatch_protocol::subject;
use nuthatch_protocol::subject::tree::{SearchOutcome, SubjectTree};
use nuthatch_streams::subject_set::{STEPS_MAX, TooTangled};
use std::collections::HashSet;
use std::sync::Arc;
use tokio::task::yield_now;

/// Subjects that are put into the registry, or taken out, while it is held.
pub(super) const SUBJECTS_PART: usize = 1024;
/// Steps of a comparison between two turns of others.
const STEPS_PART: usize = 4096;

/// Steps that a comparison may still take: [`STEPS_MAX`] in all.
pub(super) struct Steps {
    /// Before others have their turn.
    part: usize,
    /// Beyond those.
    left: usize,
}

impl Steps {
    pub(super) const fn new() -> Self {
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
    pub(super) async fn search(
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

/// Subjects of `one` that `other` does not have.
pub(super) async fn missing<'a>(
    one: &'a Arc<StreamConfig>,
    other: &StreamConfig,
) -> Vec<&'a String> {
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
    use crate::pending_changes::tests::{ACCOUNT, code, create, service, turns_during};
    use nuthatch_server::served::Scope;
    use nuthatch_streams::AccountId;
    use serde_json::json;
    use std::time::Duration;
    use tokio::time::timeout;

    const OTHER: AccountId = AccountId(7);

    fn body(name: &str, subjects: impl Iterator<Item = String>) -> String {
        json!({ "name": name, "subjects": subjects.collect::<Vec<_>>() }).to_string()
    }

    #[tokio::test]
    async fn subjects_come_and_go_in_parts() {
        let (_logs, service) = service();
        let text = body("S", (0..50_000).map(|n| format!("s.{n}")));
        let route = |subject: &str| service.streams.read().route(ACCOUNT, subject.as_bytes());
        // A literal: a part that grows must not lower what is expected.
        let parts = 40;
        let turns = turns_during(async {
            service
                .stream_calls
                .create(ACCOUNT, ("S", &Scope::Cluster), text.as_bytes())
                .await
                .unwrap();
        });
        assert!(turns.await >= parts);
        assert!(route("s.0").is_some() && route("s.49999").is_some());
        // What stays has its route all the time.
        let text = body("S", (49_999..50_001).map(|n| format!("s.{n}")));
        let turns = turns_during(async {
            service.stream_calls.update(ACCOUNT, "S", text.as_bytes()).await.unwrap();
        });
        assert!(turns.await >= parts);
        let there = ["s.0", "s.49999", "s.50000"].map(|subject| route(subject).is_some());
        assert_eq!(there, [false, true, true]);
        service.stream_calls.delete(ACCOUNT, "S", b"").await.unwrap();
        assert!(route("s.49999").is_none());
        create(&service, "T", "s.>", &[]).await.unwrap();
    }

    #[tokio::test]
    async fn comparing_subjects_has_a_bound() {
        let (_logs, service) = service();
        let text = body("S", (0..5000).map(|n| format!("a.b{n}.s")));
        service
            .stream_calls
            .create(ACCOUNT, ("S", &Scope::Cluster), text.as_bytes())
            .await
            .unwrap();
        let text = body("T", (0..5000).map(|n| format!("a.*.t{n}")));
        let answer =
            service.stream_calls.create(ACCOUNT, ("T", &Scope::Cluster), text.as_bytes()).await;
        let error = answer.expect_err("25 million steps are too many");
        assert_eq!(error.err_code, 10052);
        assert!(error.description.contains("too entangled"), "{error}");
        let text = body("T", (0..100).map(|n| format!("a.*.t{n}")));
        service
            .stream_calls
            .create(ACCOUNT, ("T", &Scope::Cluster), text.as_bytes())
            .await
            .unwrap();
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
        let changing = service.stream_calls.rights.lock(OTHER, "S").await.unwrap();
        let created = timeout(Duration::from_secs(20), create(&service, "S", "s", &[]));
        created.await.expect("it waits for no other account").unwrap();
        let waiting = service.clone();
        let behind = tokio::spawn(async move {
            waiting.stream_calls.rights.lock(OTHER, "T").await.map(drop).unwrap();
        });
        yield_now().await;
        assert!(!behind.is_finished());
        drop(changing);
        behind.await.unwrap();
    }
}
