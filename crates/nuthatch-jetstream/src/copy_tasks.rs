//! The tasks of mirrors and sources, and how they are doing.

use crate::foreign::Foreign;
use nuthatch_protocol::js::{StreamInfo, StreamSource, StreamSourceInfo};
use nuthatch_server::jetstream_port::StreamRoute;
use nuthatch_streams::control::Now;
use nuthatch_streams::control::replication::Status;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// An origin that was never heard of.
const NEVER_NS: i64 = -1;
/// An origin of this server counts as heard of so often.
const IN_SIGHT: Duration = Duration::from_secs(1);

/// Location of the origin of a source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum OriginLocation {
    /// In the account itself.
    Own,
    /// Behind an API of its own.
    Foreign(Foreign),
}

/// The tasks of all streams that copy others.
#[derive(Default)]
pub(super) struct CopyTasks {
    pub(super) tasks: Mutex<FxHashMap<StreamRoute, Vec<Task>>>,
    /// Accounts have changed, and with them what they may copy of each other.
    pub(super) accounts_changed: AtomicBool,
}

impl CopyTasks {
    /// Accounts have changed.
    pub(super) fn note_accounts(&self) {
        self.accounts_changed.store(true, Ordering::Release);
    }

    /// Fills in how the mirror or the sources of the stream at `route` are doing.
    pub(super) fn complete(&self, route: StreamRoute, info: &mut StreamInfo) {
        let tasks = self.tasks.lock();
        let tasks = tasks.get(&route).map_or(&[][..], Vec::as_slice);
        // In the order of the configuration, unless it was created or changed just now: then its tasks
        // are still to come.
        let told = |source: &StreamSource, mirrors, at: usize| {
            let is_its = |task: &&Task| task.mirrors == mirrors && task.source == *source;
            match tasks.get(at).filter(is_its) {
                Some(task) => describe(source, &task.shared.status(), task.shared.active_ns()),
                None => describe(source, &Status::default(), NEVER_NS),
            }
        };
        let mirrors = usize::from(info.config.mirror.is_some());
        info.mirror = info.config.mirror.as_ref().map(|mirror| told(mirror, true, 0));
        let sources = info.config.sources.iter().enumerate();
        info.sources = sources.map(|(at, source)| told(source, false, mirrors + at)).collect();
    }
}

/// The task of one mirror or source; it ends when this is dropped.
pub(super) struct Task {
    pub(super) source: StreamSource,
    pub(super) mirrors: bool,
    /// Location of its origin when it was started, and whether it might be copied.
    pub(super) home: OriginLocation,
    pub(super) shared: Arc<Shared>,
    pub(super) handle: JoinHandle<()>,
}

impl Drop for Task {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

/// How a task is doing, as others see it.
pub(super) struct Shared {
    /// What the machine's time is counted from.
    origin: Instant,
    status: Mutex<Status>,
}

impl Shared {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { origin: Instant::now(), status: Mutex::default() })
    }

    /// The machine's time.
    pub(super) fn now(&self) -> Now {
        self.origin.elapsed()
    }

    /// Notes how it is doing; returns what was noted before.
    pub(super) fn replace(&self, status: Status) -> Status {
        std::mem::replace(&mut *self.status.lock(), status)
    }

    pub(super) fn status(&self) -> Status {
        self.status.lock().clone()
    }

    /// See [`active_ns`].
    pub(super) fn active_ns(&self) -> i64 {
        active_ns(&self.status.lock(), self.now())
    }
}

/// What monitoring compares with its alarms, in ns: how long ago the origin was heard of, or
/// [`NEVER_NS`]. An idle origin in sight counts as heard of each second, as often as a nats-server
/// hears of its own.
fn active_ns(status: &Status, now: Now) -> i64 {
    let longest = if status.is_in_sight { IN_SIGHT } else { Duration::MAX };
    let since = |at: Now| now.saturating_sub(at).min(longest).as_nanos();
    status.active.map_or(NEVER_NS, |at| i64::try_from(since(at)).unwrap_or(i64::MAX))
}

fn describe(source: &StreamSource, status: &Status, active_ns: i64) -> StreamSourceInfo {
    StreamSourceInfo {
        name: source.name.clone(),
        external: source.external.clone(),
        lag: status.lag,
        active: active_ns,
        error: status.error.clone(),
        filter_subject: source.filter_subject.clone(),
        subject_transforms: source.subject_transforms.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_origin_in_sight_raises_no_alarm() {
        let now = Now::from_secs(60);
        let status = |active, is_in_sight| Status { active, is_in_sight, ..Status::default() };
        assert_eq!(active_ns(&status(None, true), now), NEVER_NS);
        assert_eq!(active_ns(&status(Some(Now::ZERO), true), now), 1_000_000_000);
        assert_eq!(active_ns(&status(Some(Now::ZERO), false), now), 60_000_000_000);
    }
}
