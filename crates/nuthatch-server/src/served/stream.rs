//! Streams, as nodes tell each other of them.

use crate::logs::QUORUM_MEMORY_LOG;
use nuthatch_protocol::js::{StorageType, StreamConfig, StreamSource};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A stream of this node, as others are told of it.
#[derive(Clone, Debug)]
pub struct OwnStream {
    /// Its configuration.
    pub config: Arc<StreamConfig>,
    /// Name of the log that it lives in.
    pub log: Arc<str>,
}

impl OwnStream {
    pub(super) fn told(&self) -> ServedStream {
        ServedStream {
            name: self.config.name.clone(),
            subjects: self.config.subjects.clone(),
            log: self.log.to_string(),
            is_memory: self.config.storage == StorageType::Memory,
            max_bytes: u64::try_from(self.config.max_bytes).unwrap_or(0),
            max_msg_size: self.config.max_msg_size,
            allow_direct: self.config.allow_direct,
            mirror_direct: self.config.mirror_direct,
            mirror: self.config.mirror.clone(),
            sources: self.config.sources.clone(),
            whole: self.is_in_quorum_memory().then(|| Box::new((*self.config).clone())),
        }
    }

    pub(super) fn is_in_quorum_memory(&self) -> bool {
        &*self.log == QUORUM_MEMORY_LOG
    }
}

/// A stream that another node serves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServedStream {
    /// Its name.
    pub name: String,
    /// Its subjects.
    pub subjects: Vec<String>,
    /// Name of the log that it lives in.
    pub log: String,
    /// It is kept in memory.
    pub is_memory: bool,
    /// Bytes that it reserves; 0: none.
    pub max_bytes: u64,
    /// Its largest message, as its configuration says.
    pub max_msg_size: i32,
    /// It serves direct gets.
    pub allow_direct: bool,
    /// It serves direct gets for what it mirrors, while that is not there.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub mirror_direct: bool,
    /// What it mirrors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror: Option<StreamSource>,
    /// What it copies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<StreamSource>,
    /// All of its configuration, if it is in the log in memory: every node keeps that of those.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub whole: Option<Box<StreamConfig>>,
}

impl ServedStream {
    /// Its configuration, as far as it is known here.
    #[must_use]
    pub fn config(&self) -> StreamConfig {
        StreamConfig {
            name: self.name.clone(),
            subjects: self.subjects.clone(),
            max_msg_size: self.max_msg_size,
            allow_direct: self.allow_direct,
            mirror_direct: self.mirror_direct,
            mirror: self.mirror.clone(),
            sources: self.sources.clone(),
            ..StreamConfig::default()
        }
    }
}
