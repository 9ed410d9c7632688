//! The end of a host: no step is taken any more, whoever waits for something of it is told, and the threads that it asks
//! get nothing more to do. For the log it is as if the process had ended at that moment.

use super::Host;
use parking_lot::RwLock;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, SyncSender};

/// The way to a thread until the node ends.
pub struct Way<S>(RwLock<Option<S>>);

impl<S> Way<S> {
    /// A way that is open.
    #[must_use]
    pub fn open(sender: S) -> Self {
        Self(RwLock::new(Some(sender)))
    }

    /// The thread has nothing more to come.
    fn close(&self) {
        self.0.write().take();
    }
}

impl<T> Way<SyncSender<T>> {
    /// Hands something over, if there is room for it.
    pub(super) fn offer(&self, it: T) -> bool {
        self.0.read().as_ref().is_some_and(|way| way.try_send(it).is_ok())
    }
}

impl<T> Way<Sender<T>> {
    /// Hands something over. At the end it is dropped.
    pub(super) fn hand(&self, it: T) {
        if let Some(way) = &*self.0.read() {
            let _ = way.send(it);
        }
    }
}

impl Host {
    /// Ends it. Waits for no disk: a step that is under way may go on, and nobody hears of what comes of it.
    pub(crate) fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
        {
            let mut status = self.status.lock();
            *status = status.ended();
        }
        self.changed.notify_all();
        self.answered.notify_all();
        self.work.raise();
        let helpers = &self.helpers;
        helpers.catalog.close();
        helpers.installs.close();
        helpers.scrubs.close();
        helpers.doubts.close();
        helpers.reads.close();
        helpers.deferred.close();
        // Its thread makes the journal durable, and ends.
        let _ = helpers.syncs.send(None);
    }

    /// True from then on.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }
}
