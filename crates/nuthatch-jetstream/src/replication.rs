//! Replication: mirrors and sources, one task each, which reads its origin and stores what it read.
//!
//! A task drives a [`nuthatch_streams::control::replication`], which decides about every step: where
//! it goes on follows from its own stream, so every message is taken over exactly once, whatever stops
//! and starts in between. It sleeps until its origin has something, so an idle mirror costs nothing. An
//! origin that is missing is looked for again whenever a stream comes or goes.

use crate::copy_tasks::{NEVER_NS, OriginLocation, Shared, Task};
use crate::foreign::Foreign;
use crate::outcome::described;
use crate::registry::{Entry, source_count};
use crate::service::JetStream;
use driver::Driver;
use nuthatch_protocol::js::{StreamConfig, StreamInfo, StreamSource, StreamSourceInfo};
use nuthatch_protocol::jserror::JsError;
use nuthatch_protocol::subject;
use nuthatch_server::jetstream_port::StreamRoute;
use nuthatch_streams::AccountId;
use nuthatch_streams::control::replication::Status;
use rustc_hash::FxHashSet;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

mod driver;

/// Origin of a mirror or a source.
enum Origin {
    /// A stream of this server.
    Here(Arc<Entry>),
    /// A stream of the API with this prefix, of another server.
    Afar(String),
}

/// Mirrors and sources of all streams of an account: each is a task.
pub const SOURCES_OF_ACCOUNT_MAX: usize = 10_000;
/// The API of the account itself, as for a stream that another node has.
const OWN_API: &str = "$JS.API";
/// Streams whose tasks are looked at between two turns of others.
const STREAMS_PART: usize = 64;

/// The sources of a configuration, its mirror first.
fn sources_of(entry: &Entry) -> impl Iterator<Item = (&StreamSource, bool)> {
    let mirror = entry.config.mirror.iter().map(|mirror| (mirror, true));
    mirror.chain(entry.config.sources.iter().map(|source| (source, false)))
}

impl JetStream {
    /// Keeps the tasks in step with the registry, for as long as the server runs.
    pub(super) async fn copy_streams(self: Arc<Self>) {
        let mut changed = self.streams.changes();
        loop {
            self.match_tasks().await;
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    /// Looks at the streams that copy others and have changed; at all of them after a change of
    /// accounts.
    async fn match_tasks(self: &Arc<Self>) {
        let mut routes = self.streams.take_changed_copies();
        if self.replication.accounts_changed.swap(false, Ordering::AcqRel) {
            routes.extend(self.streams.read().copying().map(|entry| entry.route()));
        }
        let routes: Vec<StreamRoute> = routes.into_iter().collect();
        for part in routes.chunks(STREAMS_PART) {
            part.iter().for_each(|route| self.match_stream(*route));
            tokio::task::yield_now().await;
        }
    }

    /// Brings the tasks of one stream in step with the registry.
    fn match_stream(self: &Arc<Self>, route: StreamRoute) {
        let entry = self.streams.read().copying_at(route).cloned();
        let mut tasks = self.replication.tasks.lock();
        let Some(entry) = entry else {
            tasks.remove(&route);
            return;
        };
        let running = tasks.entry(route).or_default();
        let is_same = running.len() == sources_of(&entry).count()
            && running.iter().zip(sources_of(&entry)).all(|(task, (source, mirrors))| {
                task.source == *source
                    && task.mirrors == mirrors
                    && task.home == self.home(entry.account, source)
            });
        if !is_same {
            running.clear();
            for (source, mirrors) in sources_of(&entry) {
                running.push(self.start_task(&entry, source, mirrors));
            }
        }
    }

    fn start_task(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        source: &StreamSource,
        mirrors: bool,
    ) -> Task {
        let shared = Shared::new();
        let home = self.home(entry.account, source);
        if let OriginLocation::Foreign(Foreign::Denied(exporter)) = &home {
            let (name, origin) = (&entry.config.name, &source.name);
            let text = denied_text(origin, exporter);
            self.core.say(&format!("stream {name} does not copy {origin} any further: {text}"));
        }
        let driver = Driver {
            service: self.clone(),
            entry: entry.clone(),
            source: source.clone(),
            mirrors,
            shared: shared.clone(),
        };
        let handle = tokio::spawn(driver.run());
        Task { source: source.clone(), mirrors, home, shared, handle }
    }

    /// Fills in how the mirror or the sources of a stream are doing.
    pub(super) fn complete_copies(&self, account: AccountId, info: &mut StreamInfo) {
        if info.config.mirror.is_none() && info.config.sources.is_empty() {
            return;
        }
        let key = match self.streams.read().get(account, &info.config.name) {
            Some(entry) => entry.route(),
            None => return,
        };
        let tasks = self.replication.tasks.lock();
        let tasks = tasks.get(&key).map_or(&[][..], Vec::as_slice);
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

    /// Checks that need the registry, of a mirror or of sources: cycles, and sizes that do not fit.
    /// A mirror serves direct gets if its origin does.
    pub(super) fn check_copies(
        &self,
        account: AccountId,
        config: &mut StreamConfig,
    ) -> Result<(), JsError> {
        self.check_rights(account, config)?;
        let registry = self.streams.read();
        let before = registry.get(account, &config.name).map_or(0, |own| source_count(&own.config));
        let others = registry.source_count(account) - before;
        let now = source_count(config);
        if now > before && others + now > SOURCES_OF_ACCOUNT_MAX {
            let text =
                format!("an account has at most {SOURCES_OF_ACCOUNT_MAX} mirrors and sources");
            return Err(JsError::STREAM_INVALID_CONFIG.with_err(text));
        }
        drop(registry);
        // Whoever changes a stream of the account waits for its turn, so these change nothing meanwhile.
        let config_of = |name: &str| self.known_config(account, name);
        let too_small = |origin: &str| {
            config_of(origin).is_some_and(|origin| {
                let (own, theirs) = (config.max_msg_size, origin.max_msg_size);
                own > 0 && theirs > 0 && own < theirs
            })
        };
        let local = |source: &&StreamSource| source.external.is_none();
        if config.mirror.iter().filter(local).any(|mirror| too_small(&mirror.name)) {
            return Err(JsError::MIRROR_MAX_MESSAGE_SIZE_TOO_BIG);
        }
        if config.sources.iter().filter(local).any(|source| too_small(&source.name)) {
            return Err(JsError::SOURCE_MAX_MESSAGE_SIZE_TOO_BIG);
        }
        if forms_cycle(config, config_of) {
            return Err(JsError::STREAM_INVALID_CONFIG.with("err", "detected cycle"));
        }
        if let Some(mirror) = &config.mirror
            && mirror.external.is_none()
            && let Some(origin) = config_of(&mirror.name)
        {
            config.mirror_direct = origin.allow_direct;
        }
        Ok(())
    }

    /// The configuration of a stream of any node, as far as it is known here.
    fn known_config(&self, account: AccountId, name: &str) -> Option<Arc<StreamConfig>> {
        let here = self.streams.read().get(account, name).map(|entry| entry.config.clone());
        here.or_else(|| {
            let (_, stream) = self.core.served(account)?.find(name)?;
            Some(Arc::new(stream.config()))
        })
    }

    /// Location of a source: this account, the one whose API is imported under its prefix, or
    /// another server.
    fn origin(&self, account: AccountId, source: &StreamSource) -> Result<Origin, JsError> {
        let home = match self.home(account, source) {
            OriginLocation::Own => account,
            OriginLocation::Foreign(Foreign::Granted(home)) => home,
            OriginLocation::Foreign(Foreign::Denied(exporter)) => {
                return Err(denied(source, &exporter));
            }
            OriginLocation::Foreign(Foreign::Afar) => {
                let api = source.external.as_ref().map(|external| external.api.as_str());
                let api = api.unwrap_or_default().trim_end_matches('.');
                return Ok(Origin::Afar(api.to_owned()));
            }
        };
        let served = self.core.served(home);
        match self.streams.entry(home, &source.name) {
            // Another node of the cluster has it: what is read goes as to another server's.
            Err(_) if served.is_some_and(|served| served.find(&source.name).is_some()) => {
                if home == account {
                    return Ok(Origin::Afar(OWN_API.to_owned()));
                }
                Err(at_other_node(&source.name))
            }
            entry => entry.map(Origin::Here),
        }
    }

    fn home(&self, account: AccountId, source: &StreamSource) -> OriginLocation {
        let own_api = format!("$JS.{}.API", self.settings.domain);
        match &source.external {
            Some(external) if !external.api.is_empty() && external.api != own_api => {
                OriginLocation::Foreign(self.core.foreign(account, source))
            }
            _ => OriginLocation::Own,
        }
    }

    /// Whether the account may copy what the configuration names for the first time.
    fn check_rights(&self, account: AccountId, config: &StreamConfig) -> Result<(), JsError> {
        let before = self.streams.read().get(account, &config.name).cloned();
        let is_known = |source: &StreamSource| {
            before.as_ref().is_some_and(|entry| sources_of(entry).any(|(own, _)| own == source))
        };
        for source in config.mirror.iter().chain(&config.sources) {
            if !is_known(source)
                && let OriginLocation::Foreign(Foreign::Denied(exporter)) =
                    self.home(account, source)
            {
                return Err(denied(source, &exporter));
            }
        }
        Ok(())
    }
}

/// A stream of another account is read from the node that has it only.
fn at_other_node(origin: &str) -> JsError {
    let text = format!(
        "stream {origin} of another account is at another node of the cluster: a copy of it must be at that node"
    );
    described(JsError::CLUSTER_NOT_AVAIL, text)
}

/// 10052: the imports do not cover a copy of this source.
fn denied(source: &StreamSource, exporter: &str) -> JsError {
    JsError::STREAM_INVALID_CONFIG.with_err(denied_text(&source.name, exporter))
}

fn denied_text(origin: &str, exporter: &str) -> String {
    format!(
        "a copy of stream {origin} of account {exporter} needs an import of its whole API, or of \
         CONSUMER.CREATE.{origin} and of the stream of its deliveries"
    )
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

/// Bytes of subjects and filters that are compared for one configuration.
const CYCLE_BYTES_MAX: usize = 16 << 20;

/// True if messages would come back to a stream that copies others. Each stream is looked at once, the
/// nearest first: the order decides what counts as coming back where two ways lead to one stream.
/// Where that takes too many comparisons, they count as coming back.
fn forms_cycle(config: &StreamConfig, get: impl Fn(&str) -> Option<Arc<StreamConfig>>) -> bool {
    let here = |source: &&StreamSource| source.external.is_none();
    let mut queued = FxHashSet::from_iter([config.name.clone()]);
    let (mut visited, mut left) =
        (FxHashSet::default(), VecDeque::from([Arc::new(config.clone())]));
    let mut left_bytes = CYCLE_BYTES_MAX;
    while let Some(config) = left.pop_front() {
        visited.insert(config.name.clone());
        let mut comes_back = |source: &StreamSource| {
            let filter = source.filter_subject.as_bytes();
            let bytes: usize = config.subjects.iter().map(|own| own.len() + filter.len()).sum();
            if filter.is_empty() || bytes > left_bytes {
                return true;
            }
            left_bytes -= bytes;
            config.subjects.iter().any(|own| subject::overlap(own.as_bytes(), filter))
        };
        let names: Vec<&StreamSource> = config.sources.iter().filter(here).collect();
        let before = names.iter().filter(|source| visited.contains(&source.name));
        if before.into_iter().any(|source| comes_back(source)) {
            return true;
        }
        let mirror = config.mirror.as_ref().filter(here);
        if mirror.is_some_and(|mirror| visited.contains(&mirror.name)) {
            return true;
        }
        for source in names.into_iter().chain(mirror) {
            if !visited.contains(&source.name) && queued.insert(source.name.clone()) {
                left.extend(get(&source.name));
            }
        }
    }
    false
}
