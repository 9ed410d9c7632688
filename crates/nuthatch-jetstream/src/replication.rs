//! Replication: mirrors and sources, one task each, which reads its origin and stores what it read.
//!
//! A task drives a [`nuthatch_streams::control::replication`], which decides about every step: where
//! it goes on follows from its own stream, so every message is taken over exactly once, whatever stops
//! and starts in between. It sleeps until its origin has something, so an idle mirror costs nothing. An
//! origin that is missing is looked for again whenever a stream comes or goes.

use crate::account_table::AccountTable;
use crate::copy_tasks::{CopyTasks, OriginLocation, Shared, Task};
use crate::core_port::CorePort;
use crate::foreign::Foreign;
use crate::log_calls::LogCalls;
use crate::origins::{Origins, denied_text, sources_of};
use crate::registry::Entry;
use crate::stream_table::StreamTable;
use driver::Driver;
use nuthatch_protocol::js::StreamSource;
use nuthatch_server::jetstream_port::{BoxFuture, StreamRoute};
use nuthatch_streams::AccountId;
use std::sync::Arc;
use std::sync::atomic::Ordering;

mod driver;

/// Streams whose tasks are looked at between two turns of others.
const STREAMS_PART: usize = 64;

/// The API of this server, as a copy asks for an origin at another node.
pub(super) trait OwnApi: Send + Sync {
    /// The answer to a call, whose subject behind the API prefix is `call`; `None`: nobody answers.
    fn ask<'a>(
        &'a self,
        account: AccountId,
        call: &'a str,
        body: &'a [u8],
    ) -> BoxFuture<'a, Option<Vec<u8>>>;
}

/// Keeps the tasks of copies in step with the registry.
pub(super) struct Replication {
    /// JetStream domain, empty if none.
    pub(super) domain: String,
    pub(super) accounts: Arc<AccountTable>,
    pub(super) core: Arc<dyn CorePort>,
    pub(super) streams: Arc<StreamTable>,
    pub(super) calls: Arc<LogCalls>,
    pub(super) origins: Arc<Origins>,
    pub(super) copies: Arc<CopyTasks>,
}

impl Replication {
    /// For as long as the server runs, whose API this is.
    pub(super) async fn run(self: Arc<Self>, api: Arc<dyn OwnApi>) {
        let mut changed = self.streams.changes();
        loop {
            self.match_tasks(&api).await;
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    /// Looks at the streams that copy others and have changed; at all of them after a change of
    /// accounts.
    async fn match_tasks(self: &Arc<Self>, api: &Arc<dyn OwnApi>) {
        let mut routes = self.streams.take_changed_copies();
        if self.copies.accounts_changed.swap(false, Ordering::AcqRel) {
            self.core.renew_imports();
            routes.extend(self.streams.read().copying().map(|entry| entry.route()));
        }
        let routes: Vec<StreamRoute> = routes.into_iter().collect();
        for part in routes.chunks(STREAMS_PART) {
            part.iter().for_each(|route| self.match_stream(*route, api));
            tokio::task::yield_now().await;
        }
    }

    /// Brings the tasks of one stream in step with the registry.
    fn match_stream(self: &Arc<Self>, route: StreamRoute, api: &Arc<dyn OwnApi>) {
        let entry = self.streams.read().copying_at(route).cloned();
        let mut tasks = self.copies.tasks.lock();
        let Some(entry) = entry else {
            tasks.remove(&route);
            return;
        };
        let running = tasks.entry(route).or_default();
        let is_same = running.len() == sources_of(&entry).count()
            && running.iter().zip(sources_of(&entry)).all(|(task, (source, mirrors))| {
                task.source == *source
                    && task.mirrors == mirrors
                    && task.home == self.origins.home(entry.account, source)
            });
        if !is_same {
            running.clear();
            for (source, mirrors) in sources_of(&entry) {
                running.push(self.start_task(&entry, (source, mirrors), api));
            }
        }
    }

    fn start_task(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        (source, mirrors): (&StreamSource, bool),
        api: &Arc<dyn OwnApi>,
    ) -> Task {
        let shared = Shared::new();
        let home = self.origins.home(entry.account, source);
        if let OriginLocation::Foreign(Foreign::Denied(exporter)) = &home {
            let (name, origin) = (&entry.config.name, &source.name);
            let text = denied_text(origin, exporter);
            self.core.say(&format!("stream {name} does not copy {origin} any further: {text}"));
        }
        let driver = Driver {
            service: self.clone(),
            api: api.clone(),
            entry: entry.clone(),
            source: source.clone(),
            mirrors,
            shared: shared.clone(),
        };
        let handle = tokio::spawn(driver.run());
        Task { source: source.clone(), mirrors, home, shared, handle }
    }
}
