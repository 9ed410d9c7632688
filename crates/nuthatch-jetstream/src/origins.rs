//! The origins of mirrors and sources: where they are, and whether they may be copied.

use crate::copy_tasks::OriginLocation;
use crate::core_port::CorePort;
use crate::foreign::Foreign;
use crate::other_nodes::OtherNodes;
use crate::outcome::described;
use crate::registry::{Entry, source_count};
use crate::stream_table::StreamTable;
use nuthatch_protocol::js::{RetentionPolicy, StreamConfig, StreamSource};
use nuthatch_protocol::jserror::JsError;
use nuthatch_protocol::subject;
use nuthatch_streams::AccountId;
use rustc_hash::FxHashSet;
use std::collections::VecDeque;
use std::sync::Arc;

/// Origin of a mirror or a source.
pub(super) enum Origin {
    /// A stream of this server.
    Here(Arc<Entry>),
    /// A stream of the API with this prefix: of another server or node, or of this account, which keeps messages for its
    /// consumers.
    Afar(String),
}

/// Mirrors and sources of all streams of an account: each is a task.
pub const SOURCES_OF_ACCOUNT_MAX: usize = 10_000;
/// The API of the account itself, as for a stream that another node has.
const OWN_API: &str = "$JS.API";
/// The sources of a configuration, its mirror first.
pub(super) fn sources_of(entry: &Entry) -> impl Iterator<Item = (&StreamSource, bool)> {
    let mirror = entry.config.mirror.iter().map(|mirror| (mirror, true));
    mirror.chain(entry.config.sources.iter().map(|source| (source, false)))
}

/// Finds the origins of copies.
pub(super) struct Origins {
    core: Arc<dyn CorePort>,
    streams: Arc<StreamTable>,
    nodes: Arc<OtherNodes>,
    /// The prefix of this server's own API with its domain.
    own_api: String,
}

impl Origins {
    pub(super) fn new(
        core: Arc<dyn CorePort>,
        streams: Arc<StreamTable>,
        nodes: Arc<OtherNodes>,
        domain: &str,
    ) -> Self {
        Self { core, streams, nodes, own_api: format!("$JS.{domain}.API") }
    }

    /// Checks that need the registry, of a mirror or of sources: cycles, and sizes that do not fit.
    /// A mirror serves direct gets if its origin does.
    pub(super) fn check(
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
            let (_, stream) = self.nodes.find(account, name)?;
            Some(Arc::new(stream.config()))
        })
    }

    /// Location of a source: this account, the one whose API is imported under its prefix, or
    /// another server.
    pub(super) fn find(
        &self,
        account: AccountId,
        source: &StreamSource,
    ) -> Result<Origin, JsError> {
        let (home, delivers) = match self.home(account, source) {
            OriginLocation::Own => (account, true),
            OriginLocation::Foreign(Foreign::Granted { exporter, delivers }) => {
                (exporter, delivers)
            }
            OriginLocation::Foreign(Foreign::Denied(exporter)) => {
                return Err(denied(source, &exporter));
            }
            OriginLocation::Foreign(Foreign::Afar) => {
                return Ok(Origin::Afar(api_of(source).to_owned()));
            }
        };
        match self.streams.entry(home, &source.name) {
            // Another node of the cluster has it: what is read goes as to another server's.
            Err(_) if self.nodes.find(home, &source.name).is_some() => {
                if !delivers {
                    return Err(not_delivered(source));
                }
                let imported = || api_of(source).to_owned();
                let is_own = home == account;
                Ok(Origin::Afar(if is_own { OWN_API.to_owned() } else { imported() }))
            }
            // It keeps messages for its consumers, so a copy is one of them.
            Ok(entry) if home == account && entry.config.retention != RetentionPolicy::Limits => {
                Ok(Origin::Afar(OWN_API.to_owned()))
            }
            entry => entry.map(Origin::Here),
        }
    }

    pub(super) fn home(&self, account: AccountId, source: &StreamSource) -> OriginLocation {
        match &source.external {
            Some(external) if !external.api.is_empty() && external.api != self.own_api => {
                match source.consumer {
                    // It is asked for by messages, which go as the exports allow.
                    Some(_) => OriginLocation::Foreign(Foreign::Afar),
                    None => OriginLocation::Foreign(self.core.foreign(account, source)),
                }
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

/// An origin of another account is at another node, and what is delivered there to a copy is not imported.
fn not_delivered(source: &StreamSource) -> JsError {
    let text = format!(
        "stream {} of another account is at another node of the cluster, where a consumer delivers to the copy: import the \
         stream of its deliveries too (the prefix 'deliver' of 'external'), not only the API",
        source.name
    );
    described(JsError::CLUSTER_NOT_AVAIL, text)
}

/// The prefix of the API by which a source is asked for that is not of this account.
fn api_of(source: &StreamSource) -> &str {
    let api = source.external.as_ref().map(|external| external.api.as_str());
    api.unwrap_or_default().trim_end_matches('.')
}

/// 10052: the imports do not cover a copy of this source.
fn denied(source: &StreamSource, exporter: &str) -> JsError {
    JsError::STREAM_INVALID_CONFIG.with_err(denied_text(&source.name, exporter))
}

pub(super) fn denied_text(origin: &str, exporter: &str) -> String {
    format!(
        "a copy of stream {origin} of account {exporter} needs an import of its whole API, or of \
         CONSUMER.CREATE.{origin} and of the stream of its deliveries"
    )
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
