//! Whether a new or changed stream may be as it is to be, beside all others.

use crate::changing::ChangeRights;
use crate::core_port::CorePort;
use crate::stream_subjects::Steps;
use crate::stream_table::StreamTable;
use nuthatch_protocol::js::StreamConfig;
use nuthatch_protocol::jserror::JsError;
use nuthatch_protocol::subject::tree::OverlapSearch;
use nuthatch_streams::AccountId;
use std::sync::Arc;

/// What a new or changed stream is checked against.
pub(super) struct Admission {
    core: Arc<dyn CorePort>,
    streams: Arc<StreamTable>,
    rights: Arc<ChangeRights>,
}

impl Admission {
    pub(super) fn new(
        core: Arc<dyn CorePort>,
        streams: Arc<StreamTable>,
        rights: Arc<ChangeRights>,
    ) -> Self {
        Self { core, streams, rights }
    }

    /// Refuses subjects that another stream of the account has, or is about to have.
    pub(super) async fn check_overlap(
        &self,
        account: AccountId,
        config: &StreamConfig,
        is_of_all: bool,
    ) -> Result<(), JsError> {
        let served = self.core.served(account).filter(|_| is_of_all);
        let nodes = served.as_ref().map_or_else(Vec::new, |served| served.nodes());
        let except = self.streams.read().key_of(account, &config.name);
        let pending = self.rights.pending().subjects_beside(account, &config.name);
        let mut steps = Steps::new();
        for own in &config.subjects {
            let mut search = OverlapSearch::new(own.as_bytes());
            let registry = |steps: &mut usize| {
                self.streams.read().overlaps(account, &mut search, steps, except)
            };
            if steps.search(registry).await? {
                return Err(JsError::STREAM_SUBJECT_OVERLAP);
            }
            for (node, ..) in &nodes {
                let mut search = OverlapSearch::new(own.as_bytes());
                let overlaps = |steps: &mut usize| {
                    let served = served.as_ref().expect("there are nodes of it");
                    served.overlaps(node, &mut search, steps, &config.name)
                };
                if steps.search(overlaps).await? {
                    return Err(JsError::STREAM_SUBJECT_OVERLAP);
                }
            }
            for theirs in &pending {
                let mut search = OverlapSearch::new(own.as_bytes());
                if steps.search(|steps| search.search(theirs, steps, |_, ()| true)).await? {
                    return Err(JsError::STREAM_SUBJECT_OVERLAP);
                }
            }
        }
        Ok(())
    }
}
