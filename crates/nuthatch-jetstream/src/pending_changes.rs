//! Changes of streams: who may change an account's streams, and which names are claimed by changes that
//! take long, in a log whose bucket does not answer for example.
//!
//! [`nuthatch_streams::control::changes`] decides about that. Here tasks wait for what it grants them:
//! changes of other streams do not wait for a log that does not answer.

use crate::registry::Registry;
use crate::service::{JetStream, described};
use crate::stream_subjects::tree_of;
use nuthatch_protocol::js::{StorageType, StreamConfig};
use nuthatch_protocol::jserror::JsError;
use nuthatch_protocol::subject::tree::SubjectTree;
use nuthatch_server::jetstream_port::LogId;
use nuthatch_streams::AccountId;
pub(super) use nuthatch_streams::control::changes::CHANGE_TIMEOUT;
use nuthatch_streams::control::changes::{ChangeId, Changes, Claim, Effect, Event};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::oneshot;
use tokio::time::timeout_at;

/// What a change of a stream with this configuration claims.
pub(super) fn claim(engine: LogId, config: impl Into<Arc<StreamConfig>>) -> Claim {
    Claim::new(engine.0, config)
}

/// What a change claims that concerns a name and nothing else.
pub(super) fn claim_of_name(engine: LogId, name: &str) -> Claim {
    Claim::of_name(engine.0, name)
}

/// What a change is told that waits for the right: it has it, or this log keeps it.
type Told = Result<(), LogId>;

/// The changes that are under way; their callers hold no lock.
pub(super) struct PendingChanges {
    /// What the machine's time is counted from.
    origin: Instant,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    machine: Changes,
    /// The number of the next change.
    next: u64,
    waiting: FxHashMap<ChangeId, oneshot::Sender<Told>>,
}

impl Default for PendingChanges {
    fn default() -> Self {
        Self { origin: Instant::now(), inner: Mutex::default() }
    }
}

impl PendingChanges {
    /// Tells the machine what happened, and tasks what follows. Returns when a change that has begun
    /// is late.
    fn step(&self, inner: &mut Inner, id: ChangeId, event: Event) -> Option<Instant> {
        let mut late_at = None;
        for effect in inner.machine.step(id, event, self.origin.elapsed()) {
            let (other, told) = match effect {
                Effect::Wait(_, until) => {
                    late_at = Some(self.origin + until);
                    continue;
                }
                Effect::Grant(other) => (other, Ok(())),
                Effect::Refuse(other, log) => (other, Err(LogId(log))),
            };
            if let Some(waiting) = inner.waiting.remove(&other) {
                // Who does not wait any more ends its change, and the right goes on.
                let _ = waiting.send(told);
            }
        }
        late_at
    }

    /// The log that a change of this stream waits for.
    #[cfg(test)]
    fn engine_of(&self, account: AccountId, name: &str) -> Option<LogId> {
        self.inner.lock().machine.claimed(account, name).map(LogId)
    }

    /// The subjects of other streams' pending changes.
    pub(super) fn subjects_beside(
        &self,
        account: AccountId,
        name: &str,
    ) -> Vec<Arc<SubjectTree<()>>> {
        let inner = self.inner.lock();
        let others = inner.machine.claims_beside(account, name);
        others.map(|claim| claim.subjects.clone()).collect()
    }

    /// Streams that the registry does not have (yet).
    pub(super) fn count(&self, account: AccountId, registry: &Registry) -> usize {
        self.beside(account, registry).len()
    }

    /// Bytes that those reserve.
    pub(super) fn reserved_bytes(
        &self,
        account: AccountId,
        storage: StorageType,
        registry: &Registry,
    ) -> u64 {
        let beside = self.beside(account, registry).into_iter();
        let bytes = beside.filter(|config| config.storage == storage);
        let bytes = bytes.map(|config| u64::try_from(config.max_bytes).unwrap_or(0));
        bytes.fold(0, u64::saturating_add)
    }

    fn beside(&self, account: AccountId, registry: &Registry) -> Vec<Arc<StreamConfig>> {
        let inner = self.inner.lock();
        let own = inner.machine.claims(account);
        let new = own.filter(|claim| registry.get(account, &claim.config.name).is_none());
        new.map(|claim| claim.config.clone()).collect()
    }
}

/// The right to change the streams of an account, for one of them; let go when it is dropped.
pub(super) struct Changing {
    changes: Arc<PendingChanges>,
    id: ChangeId,
}

impl Changing {
    fn new(changes: &Arc<PendingChanges>) -> Self {
        let mut inner = changes.inner.lock();
        inner.next += 1;
        Self { changes: changes.clone(), id: ChangeId(inner.next) }
    }

    /// Tells the machine what happened to this change, and waits until it has the right.
    async fn until_granted(&self, event: Event) -> Told {
        let granted = {
            let mut inner = self.changes.inner.lock();
            let (sender, granted) = oneshot::channel();
            inner.waiting.insert(self.id, sender);
            self.changes.step(&mut inner, self.id, event);
            granted
        };
        granted.await.expect("who waits is told")
    }

    fn step(&self, event: Event) -> Option<Instant> {
        self.changes.step(&mut self.changes.inner.lock(), self.id, event)
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        let mut inner = self.changes.inner.lock();
        inner.waiting.remove(&self.id);
        self.changes.step(&mut inner, self.id, Event::Ended);
    }
}

impl JetStream {
    /// The right to change the streams of an account, for one of them.
    ///
    /// # Errors
    /// Another change of it waits for its log.
    pub(super) async fn lock_for(
        &self,
        account: AccountId,
        name: &str,
    ) -> Result<Changing, JsError> {
        let changing = Changing::new(&self.pending_changes);
        let wanted = Event::Wanted { account, name: name.to_owned() };
        match changing.until_granted(wanted).await {
            Ok(()) => Ok(changing),
            Err(engine) => Err(self.not_answering(engine, "another change of this stream")),
        }
    }

    /// `what` waits for a log; 10008.
    pub(super) fn not_answering(&self, engine: LogId, what: &str) -> JsError {
        let log = self.log_name(engine);
        let text = format!("{what} waits for log {log}, which does not answer: try again later");
        described(JsError::CLUSTER_NOT_AVAIL, text)
    }

    /// Waits for `work`, which changes the claimed stream and has reached the log when it is polled
    /// for the first time. Returns its outcome, and the right to change the registry, which others
    /// have had meanwhile if it took long.
    pub(super) async fn settle<T>(
        &self,
        changing: Changing,
        claim: Claim,
        work: impl Future<Output = T>,
    ) -> (T, Changing) {
        let config = claim.config.clone();
        let mut work = Box::pin(work);
        let late_at =
            changing.step(Event::Begun(claim)).expect("a change that has begun can be late");
        if let Ok(outcome) = timeout_at(late_at.into(), &mut work).await {
            changing.step(Event::Answered);
            return (outcome, changing);
        }
        let subjects = Arc::new(tree_of(&config.subjects).await);
        changing.step(Event::Late(subjects));
        let outcome = work.await;
        let granted = changing.until_granted(Event::Answered).await;
        granted.expect("the name was claimed by this change");
        (outcome, changing)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::core_port::{CorePort, Take};
    use crate::logs_port::{LogsPort, NotTaken};
    use crate::service::{Answer, Settings};
    use nuthatch_protocol::js::{StreamInfo, Time};
    use nuthatch_server::jetstream_port::JsHealth;
    use nuthatch_streams::{Message, Op, OpOutcome, Respond};
    use serde_json::{Value, json};
    use std::any::Any;
    use std::time::Duration;

    const COLD: LogId = LogId(3);
    pub(crate) const ACCOUNT: AccountId = AccountId::GLOBAL;

    /// Logs that do as they are told, but that `cold` keeps what it is told until it is let.
    #[derive(Default)]
    pub(crate) struct Logs {
        waiting: Mutex<Vec<(Op, Respond)>>,
    }

    impl Logs {
        fn answer_all(&self) {
            for (op, respond) in self.waiting.lock().drain(..) {
                respond(Ok(outcome(op)));
            }
        }
    }

    fn outcome(op: Op) -> OpOutcome {
        let (Op::CreateStream { config, .. } | Op::UpdateStream { config, .. }) = op else {
            return OpOutcome::Done;
        };
        let info = Box::new(StreamInfo { config: Arc::from(config), ..StreamInfo::default() });
        OpOutcome::Stream { info, subjects_total: 0 }
    }

    impl CorePort for Logs {
        fn now(&self) -> Time {
            Time(1)
        }
        fn server_name(&self) -> &'static str {
            "test"
        }
        fn publish(&self, _: AccountId, _: &Message<'_>) -> bool {
            false
        }
        fn subscribe(&self, _: AccountId, _: &str, _: Take) -> Option<Box<dyn Any + Send + Sync>> {
            None
        }
    }

    impl LogsPort for Logs {
        fn submit(&self, engine: LogId, op: Op, respond: Respond) -> Result<(), NotTaken> {
            if engine == COLD {
                self.waiting.lock().push((op, respond));
            } else {
                respond(Ok(outcome(op)));
            }
            Ok(())
        }
        fn attached(&self) -> Vec<(String, LogId)> {
            let logs = [("default", LogId(1)), ("memory", LogId(2)), ("cold", COLD)];
            logs.map(|(name, id)| (name.to_owned(), id)).into()
        }
        fn health(&self) -> JsHealth {
            unreachable!("nobody asks for it here")
        }
    }

    pub(crate) async fn create(
        service: &JetStream,
        name: &str,
        subject: &str,
        tags: &[&str],
    ) -> Answer {
        let placement = json!({ "tags": tags });
        let body = json!({ "name": name, "subjects": [subject], "placement": placement });
        service.stream_create(ACCOUNT, name, body.to_string().as_bytes()).await
    }

    pub(crate) fn service() -> (Arc<Logs>, Arc<JetStream>) {
        let logs = Arc::new(Logs::default());
        let settings = Settings::default();
        (logs.clone(), Arc::new(JetStream::new(logs.clone(), logs, settings)))
    }

    pub(crate) fn code(answer: Answer) -> u16 {
        answer.expect_err("an error").err_code
    }

    async fn until(what: impl Fn() -> bool) {
        while !what() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test]
    async fn a_log_that_does_not_answer_holds_up_its_own_streams_only() {
        let (logs, service) = service();
        let other = service.clone();
        let slow = tokio::spawn(async move { create(&other, "C", "c.>", &["log:cold"]).await });
        until(|| logs.waiting.lock().len() == 1).await;
        create(&service, "A", "a", &[]).await.unwrap();
        create(&service, "B", "b", &[]).await.unwrap();
        service.stream_delete(ACCOUNT, "A", b"").await.unwrap();
        let other = service.clone();
        let slower = tokio::spawn(async move { create(&other, "D", "d.>", &["log:cold"]).await });
        until(|| service.pending_changes.engine_of(ACCOUNT, "D").is_some()).await;
        create(&service, "A", "a", &[]).await.unwrap();

        assert_eq!(code(create(&service, "C", "c.>", &["log:cold"]).await), 10008, "its name");
        assert_eq!(code(create(&service, "E", "c.x", &[]).await), 10065, "its subjects");
        assert!(service.registry.read().get(ACCOUNT, "C").is_none());

        logs.answer_all();
        for created in [slow.await, slower.await] {
            let text: Value = serde_json::from_slice(&created.unwrap().unwrap()).unwrap();
            assert_eq!(text["did_create"], true, "{text}");
        }
        assert_eq!(service.registry.read().count(ACCOUNT), 4);
        assert_eq!(code(create(&service, "E", "c.x", &[]).await), 10065);

        let other = service.clone();
        let deleting = tokio::spawn(async move { other.stream_delete(ACCOUNT, "C", b"").await });
        until(|| service.pending_changes.engine_of(ACCOUNT, "C").is_some()).await;
        let update = service.stream_update(ACCOUNT, "C", br#"{"name":"C"}"#).await;
        assert_eq!(code(update), 10008, "it may still be there");
        logs.answer_all();
        deleting.await.unwrap().unwrap();
        create(&service, "C", "e", &[]).await.unwrap();
    }
}
