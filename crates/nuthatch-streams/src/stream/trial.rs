//! The admission of a message that is only asked about: the checks of a publish, and nothing stored.

use super::Stream;
use super::admit::{Checked, Publish, Refusal};
use super::headers::PublishHeaders;
use crate::budget::Budget;
use nuthatch_log::{LogAccess, Timestamp};
use nuthatch_protocol::jserror::JsError;

impl Stream {
    /// Whether a publish would be taken; `Some`: it is stored already, with this sequence. Whether there is
    /// room is found only when a message is stored.
    ///
    /// # Errors
    /// As [`Stream::publish`] refuses it.
    pub fn would_take<L: LogAccess>(
        &mut self,
        publish: &Publish<'_>,
        headers: &PublishHeaders<'_>,
        log: &L,
        budget: &Budget,
    ) -> Result<Option<u64>, Refusal> {
        let now: Timestamp = log.now().max(self.contents().assigned_totals().last_at);
        self.check_size(publish)?;
        if self.limits.counter && headers.incr.is_empty() {
            return Err(JsError::MESSAGE_INCR_MISSING);
        }
        if publish.headers.is_empty() {
            return Ok(None);
        }
        match self.check_headers(publish, headers, now, budget)? {
            Checked::Go(_) => Ok(None),
            Checked::Duplicate(seq) => Ok(Some(seq)),
        }
    }
}
