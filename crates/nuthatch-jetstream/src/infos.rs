//! What informations about streams and consumers say beside what their log does.

use crate::copy_tasks::CopyTasks;
use crate::core_port::CorePort;
use crate::envelope::{self, Paged, ResponseType};
use crate::log_names::LogNames;
use crate::metadata::{HOME_KEY, MOVE_KEY, add_dynamic_metadata};
use crate::move_table::Moves;
use crate::outcome::Answer;
use crate::registry::{Entry, source_count};
use crate::replicas::{InfoOf, Replicas};
use crate::stream_table::StreamTable;
use nuthatch_protocol::js::{ClusterInfo, ConsumerInfo, StorageType, StreamInfo};
use nuthatch_server::shares::Share;
use nuthatch_streams::AccountId;
use serde::Serialize;
use std::sync::Arc;

#[derive(Serialize)]
struct StreamBody<'a> {
    #[serde(flatten)]
    page: Option<Paged>,
    #[serde(flatten)]
    info: &'a StreamInfo,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    did_create: bool,
}

/// Fills in what only the service knows.
pub(super) struct Infos {
    pub(super) core: Arc<dyn CorePort>,
    /// JetStream domain, empty if none.
    pub(super) domain: String,
    /// Version reported in metadata.
    pub(super) version: String,
    pub(super) names: Arc<LogNames>,
    pub(super) streams: Arc<StreamTable>,
    pub(super) moves: Arc<Moves>,
    pub(super) copies: Arc<CopyTasks>,
    pub(super) replicas: Arc<Replicas>,
}

impl Infos {
    /// An answer that holds the information about a stream.
    pub(super) fn answer(
        &self,
        account: AccountId,
        kind: &'static str,
        mut info: StreamInfo,
        did_create: bool,
    ) -> Vec<u8> {
        self.complete(account, &mut info);
        envelope::ok(ResponseType(kind), &StreamBody { page: None, info: &info, did_create })
    }

    /// The answer of `STREAM.INFO`: with a page of subjects, and charged for. It names a leader, even where
    /// there is one server.
    pub(super) fn charged(
        &self,
        account: AccountId,
        info: StreamInfo,
        page: Paged,
        share: &mut Share,
    ) -> Answer {
        let leader = self.core.server_name().to_owned();
        let cluster = Some(ClusterInfo { leader, ..ClusterInfo::default() });
        let mut info = StreamInfo { cluster, ..info };
        self.complete(account, &mut info);
        let body = StreamBody { page: Some(page), info: &info, did_create: false };
        envelope::charged(ResponseType("stream_info"), &body, share)
    }

    /// Fills in all that is known of a stream.
    pub(super) fn complete(&self, account: AccountId, info: &mut StreamInfo) {
        self.complete_stream(info);
        let Some(entry) = self.entry(account, info) else { return };
        self.complete_copies(&entry, info);
        self.complete_home(&entry, info);
        self.complete_cluster(&entry, info);
    }

    /// Fills in what a list tells of a stream: versions are not in it, as upstream.
    pub(super) fn complete_listed(&self, account: AccountId, info: &mut StreamInfo) {
        info.domain.clone_from(&self.domain);
        let Some(entry) = self.entry(account, info) else { return };
        self.complete_copies(&entry, info);
        self.complete_cluster(&entry, info);
    }

    /// Fills in domain and dynamic metadata of a stream.
    pub(super) fn complete_stream(&self, info: &mut StreamInfo) {
        info.domain.clone_from(&self.domain);
        add_dynamic_metadata(&mut Arc::make_mut(&mut info.config).metadata, &self.version);
    }

    /// Fills in all that is known of a consumer of a stream.
    pub(super) fn complete_consumer(&self, stream: &Entry, info: &mut ConsumerInfo) {
        add_dynamic_metadata(&mut info.config.metadata, &self.version);
        self.complete_listed_consumer(stream, info);
    }

    /// Fills in what a list tells of a consumer of a stream.
    pub(super) fn complete_listed_consumer(&self, stream: &Entry, info: &mut ConsumerInfo) {
        let replicas = info.config.replicas_in(&stream.config);
        let replicas = usize::try_from(replicas).unwrap_or_default();
        let storage = match info.config.mem_storage {
            true => StorageType::Memory,
            false => stream.config.storage,
        };
        let kind = (InfoOf::Consumer, storage);
        info.cluster = self.replicas.cluster_of(kind, stream.engine, replicas);
    }

    fn entry(&self, account: AccountId, info: &StreamInfo) -> Option<Arc<Entry>> {
        self.streams.read().get(account, &info.config.name).cloned()
    }

    fn complete_copies(&self, entry: &Entry, info: &mut StreamInfo) {
        if source_count(&info.config) > 0 {
            self.copies.complete(entry.route(), info);
        }
    }

    /// Adds the log of a stream, if its configuration does not name it, and the log that it is
    /// moving to.
    fn complete_home(&self, entry: &Entry, info: &mut StreamInfo) {
        let moving = self.moves.report_of(entry.account, &info.config.name);
        if self.names.of_config(&info.config).ok() != Some(entry.engine) {
            let log = self.names.name_of(entry.engine);
            Arc::make_mut(&mut info.config).metadata.insert(HOME_KEY.into(), log);
        }
        if let Some(moving) = moving {
            let mut text =
                format!("to log {}: {} of {}", moving.to, moving.copied_seq, moving.last_seq);
            if let Some(error) = moving.error {
                text += &format!("; last problem: {error}");
            }
            Arc::make_mut(&mut info.config).metadata.insert(MOVE_KEY.into(), text);
        }
    }

    /// Fills in where a stream is kept, on a node of a cluster.
    fn complete_cluster(&self, entry: &Entry, info: &mut StreamInfo) {
        let replicas = usize::try_from(info.config.num_replicas).unwrap_or_default();
        if let Some(cluster) =
            self.replicas.cluster_of((InfoOf::Stream, info.config.storage), entry.engine, replicas)
        {
            info.cluster = Some(cluster);
        }
    }
}
