//! The right to change streams, as calls take it: changes of other streams do not wait for a log that
//! does not answer ([`crate::pending_changes`]).

use crate::log_names::LogNames;
use crate::outcome::described;
use crate::pending_changes::{Changing, PendingChanges};
use nuthatch_protocol::jserror::JsError;
use nuthatch_server::jetstream_port::LogId;
use nuthatch_streams::AccountId;
use nuthatch_streams::control::changes::Event;
use std::sync::Arc;

/// Gives the rights to change the streams of accounts.
pub(super) struct ChangeRights {
    pending: Arc<PendingChanges>,
    names: Arc<LogNames>,
}

impl ChangeRights {
    pub(super) fn new(names: Arc<LogNames>) -> Self {
        Self { pending: Arc::default(), names }
    }

    /// The changes that are under way.
    pub(super) fn pending(&self) -> &PendingChanges {
        &self.pending
    }

    /// The right to change the streams of an account, for one of them.
    ///
    /// # Errors
    /// Another change of it waits for its log.
    pub(super) async fn lock(&self, account: AccountId, name: &str) -> Result<Changing, JsError> {
        let changing = Changing::new(&self.pending);
        let wanted = Event::Wanted { account, name: name.to_owned() };
        match changing.until_granted(wanted).await {
            Ok(()) => Ok(changing),
            Err(log) => Err(self.not_answering(log, "another change of this stream")),
        }
    }

    /// `what` waits for a log; 10008.
    pub(super) fn not_answering(&self, log: LogId, what: &str) -> JsError {
        let log = self.names.name_of(log);
        let log = if log.is_empty() { "of another node" } else { &log };
        let text = format!("{what} waits for log {log}, which does not answer: try again later");
        described(JsError::CLUSTER_NOT_AVAIL, text)
    }
}
