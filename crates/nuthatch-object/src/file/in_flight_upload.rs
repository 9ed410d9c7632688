//! Parts of a file that are put into the bucket while the file grows: the puts, the look for a later
//! owner behind them, and who is told.

use super::{Content, KeyedPart};
use crate::bucket::BucketError;
use crate::rules;
use crate::shared::LogShared;
use nuthatch_log::env::SyncDone;
use std::io;
use std::sync::Arc;

/// Parts being uploaded. When this ends, in whatever way, the file is told, and then the waiters.
pub struct InFlightUpload {
    content: Arc<Content>,
    shared: Arc<LogShared>,
    parts: Vec<KeyedPart>,
    done: Option<SyncDone>,
}

impl InFlightUpload {
    /// Parts of a file that are noted as leaving, with their keys.
    pub fn new(
        content: Arc<Content>,
        shared: Arc<LogShared>,
        parts: Vec<KeyedPart>,
        done: SyncDone,
    ) -> Self {
        Self { content, shared, parts, done: Some(done) }
    }

    /// Begins to put them and then to look for `sentinel`, a later owner's fence. Does not wait.
    pub fn begin(self, sentinel: String) {
        let objects = self.parts.iter().map(|(key, part)| (key.to_string(), part.payload()));
        let (objects, shared) = (objects.collect(), Arc::clone(&self.shared));
        shared.bucket.put_all_later(objects, sentinel, move |stored| self.stored(stored));
    }

    /// They are there, or not; and a later owner is, or is not.
    fn stored(mut self, stored: Result<bool, BucketError>) {
        self.settle(stored.is_ok());
        match stored {
            Ok(true) if rules::LOOK_BEFORE_ACK.holds() => {
                self.shared.note_look(true);
                let shared = Arc::clone(&self.shared);
                // Who it is takes another request to find out.
                shared.bucket.beside(move || {
                    let fenced = self.shared.check_owner();
                    self.end(fenced);
                });
            }
            Ok(_) => {
                self.shared.note_look(false);
                self.end(Ok(()));
            }
            Err(error) => self.end(Err(error.into())),
        }
    }

    /// The file takes note, once.
    fn settle(&mut self, stored: bool) {
        let epoch = self.shared.epoch();
        let mut state = self.content.state.lock();
        for (key, part) in self.parts.drain(..) {
            state.leaving.remove(&key);
            if stored {
                state.note_written(&part, key, epoch);
            } else {
                state.set_leaving(std::slice::from_ref(&part), false);
                state.lost = true;
            }
        }
        drop(state);
        self.content.settled.notify_all();
    }

    fn end(mut self, result: io::Result<()>) {
        self.settle(false);
        if let Some(done) = self.done.take() {
            done(result);
        }
    }
}

impl Drop for InFlightUpload {
    fn drop(&mut self) {
        self.settle(false);
        if let Some(done) = self.done.take() {
            done(Err(BucketError::Closed.into()));
        }
    }
}
