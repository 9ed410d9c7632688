//! Changes of streams that take long, in a log whose bucket does not answer for example: changes of
//! other streams do not wait for them.
//!
//! Whoever changes streams of an account holds that account's lock of changes until the log has
//! answered. After [`CHANGE_TIMEOUT`] the lock is let go and the change becomes *pending*: until it
//! ends, the stream's name and subjects are taken, what it reserves counts, and nobody else changes
//! that stream.

use crate::registry::Registry;
use crate::service::{JetStream, described};
use crate::stream_subjects::tree_of;
use nuthatch_protocol::js::{StorageType, StreamConfig};
use nuthatch_protocol::jserror::JsError;
use nuthatch_protocol::subject::tree::SubjectTree;
use nuthatch_server::jetstream_port::LogId;
use nuthatch_server::shares::Turn;
use nuthatch_streams::AccountId;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long others wait for a log to change a stream. Those behind a log that has let others wait
/// before do not wait at all.
pub(super) const CHANGE_TIMEOUT: Duration = Duration::from_secs(2);

/// The right to change the streams of an account.
pub(super) type Changing = Turn;

/// A change of a stream that waits for its log.
#[derive(Clone)]
pub(super) struct PendingChange {
    account: AccountId,
    /// The log that the change waits for.
    engine: LogId,
    /// The stream's configuration after the change, or until it is deleted.
    config: Arc<StreamConfig>,
    /// Its subjects, once others may ask for them.
    subjects: Arc<SubjectTree<()>>,
}

impl PendingChange {
    pub(super) fn new(
        account: AccountId,
        engine: LogId,
        config: impl Into<Arc<StreamConfig>>,
    ) -> Self {
        Self { account, engine, config: config.into(), subjects: Arc::default() }
    }

    /// A pending change of a name and nothing else.
    pub(super) fn of_name(account: AccountId, engine: LogId, name: &str) -> Self {
        let config = StreamConfig { name: name.to_owned(), ..StreamConfig::default() };
        Self::new(account, engine, config)
    }
}

/// Pending changes by account and name of the stream; their callers hold no lock. At most as many
/// as API requests.
#[derive(Default)]
pub(super) struct PendingChanges(Mutex<FxHashMap<(AccountId, String), PendingChange>>);

impl PendingChanges {
    /// The log that a change of this stream waits for.
    fn engine_of(&self, account: AccountId, name: &str) -> Option<LogId> {
        self.0.lock().get(&(account, name.to_owned())).map(|pending| pending.engine)
    }

    fn is_slow(&self, engine: LogId) -> bool {
        self.0.lock().values().any(|pending| pending.engine == engine)
    }

    /// The subjects of other streams' pending changes.
    pub(super) fn subjects_beside(
        &self,
        account: AccountId,
        name: &str,
    ) -> Vec<Arc<SubjectTree<()>>> {
        let pending_changes = self.0.lock();
        let others = pending_changes.values().filter(|pending| pending.account == account);
        let others = others.filter(|pending| pending.config.name != name);
        others.map(|pending| pending.subjects.clone()).collect()
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
        let pending_changes = self.0.lock();
        let own = pending_changes.values().filter(|pending| pending.account == account);
        let new = own.filter(|pending| registry.get(account, &pending.config.name).is_none());
        new.map(|pending| pending.config.clone()).collect()
    }
}

/// A pending change, until it is dropped.
struct PendingChangeGuard<'a>(&'a PendingChanges, (AccountId, String));

impl<'a> PendingChangeGuard<'a> {
    fn new(pending_changes: &'a PendingChanges, pending: PendingChange) -> Self {
        let key = (pending.account, pending.config.name.clone());
        pending_changes.0.lock().insert(key.clone(), pending);
        Self(pending_changes, key)
    }
}

impl Drop for PendingChangeGuard<'_> {
    fn drop(&mut self) {
        self.0.0.lock().remove(&self.1);
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
        let changing = self.changing.turn(account).await;
        match self.pending_changes.engine_of(account, name) {
            Some(engine) => Err(self.not_answering(engine, "another change of this stream")),
            None => Ok(changing),
        }
    }

    /// `what` waits for a log; 10008.
    pub(super) fn not_answering(&self, engine: LogId, what: &str) -> JsError {
        let log = self.log_name(engine);
        let text = format!("{what} waits for log {log}, which does not answer: try again later");
        described(JsError::CLUSTER_NOT_AVAIL, text)
    }

    /// Waits for `work`, which changes the pending change's stream and has reached the log when it
    /// is polled for the first time. Returns its outcome, and the right to change the registry,
    /// which others have had meanwhile if it took long.
    pub(super) async fn settle<T>(
        &self,
        changing: Changing,
        mut pending: PendingChange,
        work: impl Future<Output = T>,
    ) -> (T, Changing) {
        let account = pending.account;
        let mut work = Box::pin(work);
        let slow = self.pending_changes.is_slow(pending.engine);
        let wait = if slow { Duration::ZERO } else { CHANGE_TIMEOUT };
        if let Ok(outcome) = timeout(wait, &mut work).await {
            return (outcome, changing);
        }
        pending.subjects = Arc::new(tree_of(&pending.config.subjects).await);
        let guard = PendingChangeGuard::new(&self.pending_changes, pending);
        drop(changing);
        let outcome = work.await;
        let changing = self.changing.turn(account).await;
        // Not before: no other change may take the name between the outcome and what follows from
        // it.
        drop(guard);
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
