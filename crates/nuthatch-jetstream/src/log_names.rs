//! The attached logs by their names, and which one a configuration asks for.

use crate::logs_port::LogsPort;
use crate::outcome::placement_error;
use crate::registry::{DEFAULT_LOG, LOCAL_LOG, MEMORY_LOG, is_memory_log, is_quorum_log};
use nuthatch_protocol::js::{StorageType, StreamConfig};
use nuthatch_protocol::jserror::JsError;
use nuthatch_server::jetstream_port::LogId;
use std::fmt;
use std::sync::Arc;

/// A placement tag that begins so names the log in which a stream lives.
pub const LOG_TAG: &str = "log:";

/// The logs that are attached, by name.
pub(super) struct LogNames {
    logs: Arc<dyn LogsPort>,
    /// Names of logs that answer before everything is durable.
    lazy: Vec<String>,
    /// This node of a cluster; `None`: the server is alone.
    node: Option<String>,
    /// [`LOCAL_LOG`] is what this node had as a server that was alone.
    has_local: bool,
}

impl LogNames {
    pub(super) fn new(
        logs: Arc<dyn LogsPort>,
        lazy: Vec<String>,
        (node, has_local): (Option<String>, bool),
    ) -> Self {
        Self { logs, lazy, node, has_local }
    }

    /// True if a log is what this node had as a server that was alone: its default log.
    pub(super) fn is_local(&self, log: LogId) -> bool {
        self.has_local && self.find(LOCAL_LOG) == Some(log)
    }

    /// This node of a cluster; `None`: the server is alone.
    pub(super) fn node(&self) -> Option<&str> {
        self.node.as_deref()
    }

    /// What streams that move call a log in their records ([`LogPlace`]). Empty: it is not attached.
    pub(super) fn place_of(&self, log: LogId) -> String {
        let name = self.name_of(log);
        if name.is_empty() { name } else { LogPlace::of(&name, log, self.node()).to_string() }
    }

    /// All of them with their identities, the default one first.
    pub(super) fn all(&self) -> Vec<(String, LogId)> {
        self.logs.attached()
    }

    /// The attached log of this name.
    pub(super) fn find(&self, name: &str) -> Option<LogId> {
        let attached = self.logs.attached();
        attached.into_iter().find(|(known, _)| known == name).map(|(_, id)| id)
    }

    /// The name of a log; empty: it is not attached.
    pub(super) fn name_of(&self, log: LogId) -> String {
        let attached = self.logs.attached();
        attached.into_iter().find(|(_, id)| *id == log).map_or_else(String::new, |(name, _)| name)
    }

    /// The log that a record means. What it calls a log only by its name is from before this server was a node, or from a
    /// version that knew no other; a server that was a node and is alone again has all logs that it has by their names.
    pub(super) fn known(&self, text: &str) -> LogPlace {
        match (LogPlace::read(text), self.node()) {
            (LogPlace::Plain(log), node) => {
                let identity = self.find(&log).unwrap_or(LogId(0));
                LogPlace::of(&log, identity, node)
            }
            (LogPlace::Quorum(log), None) => LogPlace::Plain(log),
            (LogPlace::At { log, .. }, None) if log == LOCAL_LOG && self.find(&log).is_none() => {
                LogPlace::Plain(DEFAULT_LOG.to_owned())
            }
            (LogPlace::At { log, .. }, None) => LogPlace::Plain(log),
            (place, Some(_)) => place,
        }
    }

    /// The error that there is no log of this name.
    pub(super) fn none_of(&self, name: &str) -> JsError {
        let attached = self.logs.attached();
        let names = attached.iter().map(|(name, _)| name.as_str());
        let known: Vec<&str> = names.filter(|known| !is_memory_log(known)).collect();
        let known = known.join(", ");
        placement_error(&format!("there is no log {name:?} here; there are: {known}"))
    }

    /// The log of a stream: the one that its placement tag `log:NAME` names, or the default of its
    /// storage type.
    pub(super) fn of_config(&self, config: &StreamConfig) -> Result<LogId, JsError> {
        match named_by_tag(config)? {
            Some(name) => self.chosen(name),
            None => {
                // As far as this server decides: the cluster's memory log is chosen where all of its nodes are known.
                let default = match config.storage {
                    StorageType::File => DEFAULT_LOG,
                    StorageType::Memory => MEMORY_LOG,
                };
                self.find(default).ok_or_else(|| self.none_of(default))
            }
        }
    }

    /// The log of this name, if a stream may choose it.
    pub(super) fn chosen(&self, name: &str) -> Result<LogId, JsError> {
        let found = self.find(name).filter(|_| !is_memory_log(name));
        found.ok_or_else(|| self.none_of(name))
    }

    /// A move takes a stream out of one log once the other has it for good, which a log that syncs
    /// later cannot say.
    pub(super) fn check_syncs(&self, log: LogId) -> Result<(), JsError> {
        let name = self.name_of(log);
        if !self.lazy.contains(&name) {
            return Ok(());
        }
        Err(placement_error(&format!(
            "log '{name}' does not sync before it answers: streams move only between logs with \
             sync_interval always"
        )))
    }
}

/// Which log of a cluster a record of a move means. Names of local logs are each node's own, so the node is named,
/// too; a quorum log is at whichever node owns it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum LogPlace {
    /// Of this server, which is alone, or was when the record was made.
    Plain(String),
    /// A quorum log.
    Quorum(String),
    /// A log of a node.
    At {
        /// The log.
        log: String,
        /// The node.
        node: String,
        /// The identity of the log: another disk may come into its place.
        identity: LogId,
    },
}

/// Stands between a log and its node in a record; no name has it.
const AT: char = '@';
/// Stands between a node and the identity of its log, in hexadecimal digits.
const IS: char = '#';
/// Stands for whichever node owns a quorum log; no node has this name.
const ANY_NODE: &str = "*";

impl LogPlace {
    /// A log that is attached at this node.
    pub(super) fn of(log: &str, identity: LogId, node: Option<&str>) -> Self {
        let log = log.to_owned();
        match node {
            None => Self::Plain(log),
            Some(_) if is_quorum_log(&log) => Self::Quorum(log),
            Some(node) => Self::At { log, node: node.to_owned(), identity },
        }
    }

    /// Its name.
    pub(super) fn log(&self) -> &str {
        match self {
            Self::Plain(log) | Self::Quorum(log) | Self::At { log, .. } => log,
        }
    }

    /// What a record says.
    pub(super) fn read(text: &str) -> Self {
        match text.split_once(AT) {
            None => Self::Plain(text.to_owned()),
            Some((log, ANY_NODE)) => Self::Quorum(log.to_owned()),
            Some((log, node)) => {
                let (node, identity) = node.split_once(IS).unwrap_or((node, ""));
                let identity = LogId(u64::from_str_radix(identity, 16).unwrap_or_default());
                Self::At { log: log.to_owned(), node: node.to_owned(), identity }
            }
        }
    }
}

impl fmt::Display for LogPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(log) => f.write_str(log),
            Self::Quorum(log) => write!(f, "{log}{AT}{ANY_NODE}"),
            Self::At { log, node, identity } => {
                write!(f, "{log}{AT}{node}{IS}{:016x}", identity.0)
            }
        }
    }
}

/// The names in placement tags `log:NAME`.
fn log_tags(config: &StreamConfig) -> impl Iterator<Item = &str> {
    let tags = config.placement.iter().flat_map(|placement| &placement.tags);
    tags.filter_map(|tag| tag.strip_prefix(LOG_TAG))
}

/// The log that a configuration asks for by its first tag; [`named_by_tag`] checks that, too.
pub(super) fn log_tag(config: &StreamConfig) -> Option<&str> {
    log_tags(config).next()
}

/// The log that a placement tag names; `None`: no tag does.
///
/// # Errors
/// Tags name several logs, or the stream is kept in memory.
pub(super) fn named_by_tag(config: &StreamConfig) -> Result<Option<&str>, JsError> {
    let mut names = log_tags(config);
    let Some(name) = names.next() else { return Ok(None) };
    if names.any(|other| other != name) {
        return Err(placement_error("a stream lives in one log: give one tag 'log:NAME'"));
    }
    if config.storage == StorageType::Memory {
        return Err(placement_error("a stream of storage 'memory' lives in no other log"));
    }
    Ok(Some(name))
}

/// A configuration for a stream that lives in log `to`: if it names a log, it names that one.
pub(super) fn placed(config: &StreamConfig, to: &str) -> StreamConfig {
    let mut config = config.clone();
    if let Some(placement) = &mut config.placement {
        for tag in placement.tags.iter_mut().filter(|tag| tag.starts_with(LOG_TAG)) {
            *tag = format!("{LOG_TAG}{to}");
        }
    }
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_name_logs_so_that_any_node_knows_them() {
        for (log, node, text) in [
            ("default", None, "default"),
            ("cold", None, "cold"),
            ("default", Some("n1"), "default@*"),
            ("default-2", Some("n1"), "default-2@*"),
            ("cold", Some("n1"), "cold@n1#00000000000000ff"),
            ("local", Some("a_b-c"), "local@a_b-c#00000000000000ff"),
        ] {
            let place = LogPlace::of(log, LogId(255), node);
            assert_eq!(place.to_string(), text);
            assert_eq!(LogPlace::read(text), place);
        }
    }
}
