//! The right to change streams, as calls take it: changes of other streams do not wait for a log that
//! does not answer ([`crate::pending_changes`]).

use crate::outcome::described;
use crate::pending_changes::Changing;
use crate::service::JetStream;
use crate::stream_subjects::tree_of;
use nuthatch_protocol::jserror::JsError;
use nuthatch_server::jetstream_port::LogId;
use nuthatch_streams::AccountId;
use nuthatch_streams::control::changes::{Claim, Event};
use std::sync::Arc;
use tokio::time::timeout_at;

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
        let log = if log.is_empty() { "of another node" } else { &log };
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
