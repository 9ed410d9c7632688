//! Replication: mirrors and sources, one task each, which reads its origin and stores what it read.
//!
//! A task asks the origin's engine for what comes next and sleeps until there is something, so an
//! idle mirror costs nothing. Where it is follows from its own stream: a mirror goes on behind its
//! last sequence, a source behind the last message with its header, so every message is taken over
//! exactly once, whatever stops and starts in between. An origin that is missing is looked for again
//! whenever a stream comes or goes.

use crate::foreign::Foreign;
use crate::registry::{Entry, source_count};
use crate::service::{JetStream, unexpected};
use nuthatch_protocol::headers;
use nuthatch_protocol::js::{StreamConfig, StreamInfo, StreamSource, StreamSourceInfo, Time};
use nuthatch_protocol::jserror::JsError;
use nuthatch_protocol::subject;
use nuthatch_protocol::transform::Transform;
use nuthatch_server::jetstream_port::StreamRoute;
use nuthatch_streams::op::{Range, RangeRequest, Replica};
use nuthatch_streams::{AccountId, Op, OpOutcome};
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

mod remote;

/// After a problem a task waits so long, and twice as long after each further one.
const RETRY_MIN: Duration = Duration::from_millis(250);
/// At most.
const RETRY_MAX: Duration = Duration::from_secs(10);
/// At most where the origin is behind a leaf node, whose return is not reported.
const RETRY_AFAR_MAX: Duration = Duration::from_secs(2);

/// An origin of this server counts as heard of so often.
const IN_SIGHT: Duration = Duration::from_secs(1);

/// Origin of a mirror or a source.
enum Origin {
    /// A stream of this server.
    Here(Arc<Entry>),
    /// A stream of the API with this prefix, of another server.
    Afar(String),
}

/// Location of the origin of a source.
#[derive(Clone, PartialEq, Eq, Debug)]
enum OriginLocation {
    /// In the account itself.
    Own,
    /// Behind an API of its own.
    Foreign(Foreign),
}

/// Mirrors and sources of all streams of an account: each is a task.
pub const SOURCES_OF_ACCOUNT_MAX: usize = 10_000;
/// Streams whose tasks are looked at between two turns of others.
const STREAMS_PART: usize = 64;

/// The tasks of all streams that copy others.
#[derive(Default)]
pub(super) struct Replication {
    tasks: Mutex<FxHashMap<StreamRoute, Vec<Task>>>,
    /// Accounts have changed, and with them what they may copy of each other.
    accounts_changed: AtomicBool,
}

impl Replication {
    /// Accounts have changed.
    pub(super) fn note_accounts(&self) {
        self.accounts_changed.store(true, Ordering::Release);
    }
}

struct Task {
    source: StreamSource,
    mirrors: bool,
    /// Location of its origin when it was started, and whether it might be copied.
    home: OriginLocation,
    state: Arc<Mutex<State>>,
    handle: JoinHandle<()>,
}

impl Drop for Task {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

/// How a task is doing.
#[derive(Default)]
struct State {
    lag: u64,
    /// When the origin was last heard of.
    active: Option<Instant>,
    /// True if the task waits at the engine of its origin: what comes there it hears of at once.
    is_in_sight: bool,
    error: Option<JsError>,
}

impl State {
    /// What monitoring compares with its alarms, in ns: how long ago the origin was heard of; -1 if
    /// it never was. An idle origin in sight counts as heard of each second, as often as a
    /// nats-server hears of its own.
    fn active_ns(&self) -> i64 {
        let longest = if self.is_in_sight { IN_SIGHT } else { Duration::MAX };
        let since = |at: Instant| at.elapsed().min(longest).as_nanos();
        self.active.map_or(-1, |at| i64::try_from(since(at)).unwrap_or(i64::MAX))
    }
}

/// A subject filter with what it turns subjects into.
struct Rule {
    filter: String,
    transform: Option<Transform>,
}

/// Work of a task: its origin and its target.
struct Job {
    service: Arc<JetStream>,
    entry: Arc<Entry>,
    source: StreamSource,
    mirrors: bool,
    rules: Vec<Rule>,
    state: Arc<Mutex<State>>,
}

/// The sources of a configuration, its mirror first.
fn sources_of(entry: &Entry) -> impl Iterator<Item = (&StreamSource, bool)> {
    let mirror = entry.config.mirror.iter().map(|mirror| (mirror, true));
    mirror.chain(entry.config.sources.iter().map(|source| (source, false)))
}

impl JetStream {
    /// Keeps the tasks in step with the registry, for as long as the server runs.
    pub(super) async fn copy_streams(self: Arc<Self>) {
        let mut changed = self.changes.subscribe();
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
        let mut routes = FxHashSet::default();
        if self.registry.read().has_changed_copies() {
            routes = self.registry.write().take_changed_copies();
        }
        if self.replication.accounts_changed.swap(false, Ordering::AcqRel) {
            routes.extend(self.registry.read().copying().map(|entry| entry.route()));
        }
        let routes: Vec<StreamRoute> = routes.into_iter().collect();
        for part in routes.chunks(STREAMS_PART) {
            part.iter().for_each(|route| self.match_stream(*route));
            tokio::task::yield_now().await;
        }
    }

    /// Brings the tasks of one stream in step with the registry.
    fn match_stream(self: &Arc<Self>, route: StreamRoute) {
        let entry = self.registry.read().copying_at(route).cloned();
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
        let state = Arc::new(Mutex::new(State::default()));
        let home = self.home(entry.account, source);
        if let OriginLocation::Foreign(Foreign::Denied(exporter)) = &home {
            let (name, origin) = (&entry.config.name, &source.name);
            let text = denied_text(origin, exporter);
            self.core.say(&format!("stream {name} does not copy {origin} any further: {text}"));
        }
        let job = Job {
            service: self.clone(),
            entry: entry.clone(),
            source: source.clone(),
            mirrors,
            rules: rules_of(source),
            state: state.clone(),
        };
        let handle = tokio::spawn(job.run());
        Task { source: source.clone(), mirrors, home, state, handle }
    }

    /// Fills in how the mirror or the sources of a stream are doing.
    pub(super) fn complete_copies(&self, account: AccountId, info: &mut StreamInfo) {
        if info.config.mirror.is_none() && info.config.sources.is_empty() {
            return;
        }
        let key = match self.registry.read().get(account, &info.config.name) {
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
                Some(task) => describe(source, &task.state.lock()),
                None => describe(source, &State::default()),
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
        let registry = self.registry.read();
        let before = registry.get(account, &config.name).map_or(0, |own| source_count(&own.config));
        let others = registry.source_count(account) - before;
        let now = source_count(config);
        if now > before && others + now > SOURCES_OF_ACCOUNT_MAX {
            let text =
                format!("an account has at most {SOURCES_OF_ACCOUNT_MAX} mirrors and sources");
            return Err(JsError::STREAM_INVALID_CONFIG.with_err(text));
        }
        let too_small = |origin: &str| {
            registry.get(account, origin).is_some_and(|origin| {
                let (own, theirs) = (config.max_msg_size, origin.config.max_msg_size);
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
        drop(registry);
        // Whoever changes a stream of the account waits for its turn, so this changes nothing meanwhile.
        let config_of =
            |name: &str| self.registry.read().get(account, name).map(|entry| entry.config.clone());
        if forms_cycle(config, config_of) {
            return Err(JsError::STREAM_INVALID_CONFIG.with("err", "detected cycle"));
        }
        if let Some(mirror) = &config.mirror
            && mirror.external.is_none()
            && let Some(origin) = self.registry.read().get(account, &mirror.name)
        {
            config.mirror_direct = origin.config.allow_direct;
        }
        Ok(())
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
        self.entry(home, &source.name).map(Origin::Here)
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
        let before = self.registry.read().get(account, &config.name).cloned();
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

fn describe(source: &StreamSource, state: &State) -> StreamSourceInfo {
    StreamSourceInfo {
        name: source.name.clone(),
        external: source.external.clone(),
        lag: state.lag,
        active: state.active_ns(),
        error: state.error.clone(),
        filter_subject: source.filter_subject.clone(),
        subject_transforms: source.subject_transforms.clone(),
    }
}

/// Bytes of subjects and filters that are compared for one configuration.
const CYCLE_BYTES_MAX: usize = 16 << 20;

/// True if messages would come back to a stream that copies others. Each stream is looked at once.
/// Where that takes too many comparisons, they count as coming back.
fn forms_cycle(config: &StreamConfig, get: impl Fn(&str) -> Option<Arc<StreamConfig>>) -> bool {
    let here = |source: &&StreamSource| source.external.is_none();
    let mut queued = FxHashSet::from_iter([config.name.clone()]);
    let (mut visited, mut left) = (FxHashSet::default(), vec![Arc::new(config.clone())]);
    let mut left_bytes = CYCLE_BYTES_MAX;
    while let Some(config) = left.pop() {
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

fn rules_of(source: &StreamSource) -> Vec<Rule> {
    let or_all = |filter: &str| if filter.is_empty() { ">".to_owned() } else { filter.to_owned() };
    if source.subject_transforms.is_empty() {
        return vec![Rule { filter: or_all(&source.filter_subject), transform: None }];
    }
    let rule = |config: &nuthatch_protocol::js::SubjectTransformConfig| {
        let filter = or_all(&config.src);
        // The configuration has been validated.
        let transform =
            (!config.dest.is_empty()).then(|| Transform::new(&filter, &config.dest).ok()).flatten();
        Rule { filter, transform }
    };
    source.subject_transforms.iter().map(rule).collect()
}

impl Job {
    async fn run(self) {
        let mut changed = self.service.changes.subscribe();
        let mut wait = RETRY_MIN;
        loop {
            changed.mark_unchanged();
            let began = Instant::now();
            let Err(error) = self.copy().await;
            let origin = self.service.origin(self.entry.account, &self.source);
            let is_afar = matches!(origin, Ok(Origin::Afar(_)));
            // Missing, or not ours to copy: a change of streams or of accounts may make it right.
            let waits = origin.is_err_and(|why| {
                [JsError::STREAM_NOT_FOUND, JsError::STREAM_INVALID_CONFIG]
                    .iter()
                    .any(|kind| why.err_code == kind.err_code)
            });
            let longest = if is_afar { RETRY_AFAR_MAX } else { RETRY_MAX };
            {
                let mut state = self.state.lock();
                if state.error.as_ref() != Some(&error) {
                    self.tell_damage(&error);
                }
                (state.error, state.is_in_sight) = (Some(error), false);
            }
            if began.elapsed() > RETRY_MAX {
                wait = RETRY_MIN;
            }
            if waits {
                // Nothing is to be done until then.
                if changed.changed().await.is_err() {
                    return;
                }
            } else {
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(longest);
            }
        }
    }

    /// A message that the origin holds and cannot give is damage, which its operator must hear of:
    /// the copy waits there, and never passes over it.
    fn tell_damage(&self, error: &JsError) {
        if error.err_code == JsError::STREAM_STORE_FAILED.err_code {
            let (name, origin) = (&self.entry.config.name, &self.source.name);
            let text = format!("stream {name} cannot go on to copy {origin}: {error}");
            self.service.core.say(&text);
        }
    }

    /// Copies until something is wrong.
    async fn copy(&self) -> Result<std::convert::Infallible, JsError> {
        let origin = match self.service.origin(self.entry.account, &self.source)? {
            Origin::Here(origin) => origin,
            Origin::Afar(api) => return self.copy_from_afar(&api).await,
        };
        let key = self.key(origin.created);
        let mut next = self.position(&key).await? + 1;
        let is_fresh = next == 1;
        if is_fresh {
            next = self.source.opt_start_seq.max(1);
        }
        let mut start_time = self.source.opt_start_time.filter(|_| is_fresh);
        self.note_in_sight(0);
        loop {
            let filters = if self.reads_all() {
                Vec::new()
            } else {
                self.rules.iter().map(|rule| rule.filter.clone()).collect()
            };
            let request =
                RangeRequest { from: next, start_time: start_time.take(), filters, wait: true };
            let op = Op::ReadRange { id: origin.id, request };
            let range = match self.service.run(origin.engine, op).await? {
                OpOutcome::Range(range) => range,
                other => return Err(unexpected(&other)),
            };
            next = range.next;
            let lag = (range.last_seq + 1).saturating_sub(next);
            self.store(range, &key).await?;
            self.note_in_sight(lag);
        }
    }

    fn note_in_sight(&self, lag: u64) {
        let active = Some(Instant::now());
        *self.state.lock() = State { lag, active, is_in_sight: true, error: None };
    }

    fn reads_all(&self) -> bool {
        matches!(&self.rules[..], [rule] if rule.filter == ">")
    }

    /// The last sequence of the origin that was taken over; 0 if none was.
    async fn position(&self, key: &[u8]) -> Result<u64, JsError> {
        if self.mirrors {
            return Ok(self.service.current_info(&self.entry).await?.state.last_seq);
        }
        let seq = self.sourced(key).await?;
        match key.iter().rposition(|&byte| byte == b' ') {
            // What came with a backup of a nats-server does not say when the origin was created.
            Some(end) if seq == 0 => self.sourced(&key[..=end]).await,
            _ => Ok(seq),
        }
    }

    async fn sourced(&self, key: &[u8]) -> Result<u64, JsError> {
        let op = Op::Sourced { id: self.entry.id, key: key.to_vec() };
        match self.service.run(self.entry.engine, op).await? {
            OpOutcome::Sourced(seq) => Ok(seq),
            other => Err(unexpected(&other)),
        }
    }

    async fn store(&self, range: Range, key: &[u8]) -> Result<(), JsError> {
        let id = self.entry.id;
        let gap_to = range.next - 1;
        let copies: Vec<Replica> =
            range.messages.into_iter().map(|message| self.adapt(message, key)).collect();
        let op = if self.mirrors {
            Op::Mirror { id, copies, gap_to }
        } else if copies.is_empty() {
            return Ok(());
        } else {
            Op::Source { id, copies }
        };
        self.service.run(self.entry.engine, op).await.map(drop)
    }

    /// A message as it is stored here: under its new subject, and for sources with where it is from.
    fn adapt(&self, mut message: Replica, key: &[u8]) -> Replica {
        let matches = |rule: &&Rule| subject::matches(rule.filter.as_bytes(), &message.subject);
        let mut mapped = Vec::new();
        if let Some(transform) = self.rules.iter().find(matches).and_then(|r| r.transform.as_ref())
        {
            #[allow(clippy::cast_possible_truncation)] // a number like any other
            transform.apply(&message.subject, message.seq as u32, &mut mapped);
        }
        if !self.mirrors {
            let header = source_header(key, message.seq, &message.subject);
            let mut block = Vec::new();
            if !message.headers.is_empty() {
                headers::copy_without(&mut block, &message.headers, |name| {
                    name.starts_with(b"Nats-Expected-")
                        || name.starts_with(b"Nats-Batch-")
                        || name == b"Nats-Stream-Source"
                });
            }
            headers::append(&mut block, b"Nats-Stream-Source", &header);
            message.headers = block;
        }
        if !mapped.is_empty() {
            message.subject = mapped;
        }
        message
    }

    /// What tells this source from others of the stream: `<stream> <filters> <destinations> <origin>`.
    /// The last part is when the origin was created, so that one of the same name that comes after
    /// it is begun anew.
    fn key(&self, created: Time) -> Vec<u8> {
        let mut name = self.source.name.clone();
        if let Some(external) = &self.source.external {
            name = format!("{name}:{}", external.api);
        }
        let filters: Vec<&str> = self.rules.iter().map(|rule| rule.filter.as_str()).collect();
        let dests: Vec<&str> = self
            .source
            .subject_transforms
            .iter()
            .map(|config| if config.dest.is_empty() { ">" } else { config.dest.as_str() })
            .collect();
        let dests = if dests.is_empty() { ">".to_owned() } else { dests.join("\x0c") };
        format!("{name} {} {dests} {}", filters.join("\x0c"), created.0).into_bytes()
    }
}

/// `<stream> <sequence> <filters> <destinations> <subject> <origin>`.
fn source_header(key: &[u8], seq: u64, subject: &[u8]) -> Vec<u8> {
    let parts: Vec<&[u8]> = key.splitn(4, |&b| b == b' ').collect();
    let part = |at: usize| parts.get(at).copied().unwrap_or_default();
    [part(0), seq.to_string().as_bytes(), part(1), part(2), subject, part(3)].join(&b' ')
}

#[cfg(test)]
mod tests {
    use super::*;
    use nuthatch_streams::stream::read_source;

    #[test]
    fn an_idle_origin_in_sight_raises_no_alarm() {
        let heard = Instant::now().checked_sub(Duration::from_secs(60));
        let state = |active, is_in_sight| State { active, is_in_sight, ..State::default() };
        assert!(heard.is_some(), "the clock began less than a minute ago");
        assert_eq!(state(None, true).active_ns(), -1);
        assert_eq!(state(heard, true).active_ns(), 1_000_000_000);
        assert!(state(heard, false).active_ns() >= 60_000_000_000);
    }

    #[test]
    fn a_header_leads_back_to_its_key() {
        let key = b"ORIGIN:JS.acc.API a.*\x0cb.> >\x0cc.> 1700000000000000000";
        let header = source_header(key, 42, b"a.x");
        assert_eq!(read_source(&header), Some((key[..].into(), 42)));
    }
}
