//! `STREAM.NAMES` and `STREAM.LIST`: the streams of an account, at whatever node.

use crate::core_port::CorePort;
use crate::envelope::{self, Paged, ResponseType};
use crate::infos::Infos;
use crate::log_calls::LogCalls;
use crate::other_nodes::OtherNodes;
use crate::outcome::Answer;
use crate::registry::Entry;
use crate::request::parse_optional;
use crate::sizes::{ASSET_BYTES, LIST_PAGE, NAMES_PAGE, config_bytes, offset_of};
use crate::stream_subjects::Looks;
use crate::stream_table::StreamTable;
use nuthatch_protocol::js::StreamInfo;
use nuthatch_protocol::jserror::JsError;
use nuthatch_server::served::ServedStream;
use nuthatch_server::shares::Share;
use nuthatch_streams::AccountId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of subjects and metadata in one page of `STREAM.LIST`, about; one stream may have more.
const LIST_BYTES: usize = 4 << 20;

#[derive(Deserialize, Default)]
#[serde(default)]
struct ListRequest {
    offset: i64,
    subject: String,
}

#[derive(Serialize)]
struct NamesBody {
    #[serde(flatten)]
    page: Paged,
    /// `null` when there are none, as upstream.
    streams: Option<Vec<String>>,
}

#[derive(Serialize)]
struct ListBody {
    #[serde(flatten)]
    page: Paged,
    streams: Vec<StreamInfo>,
    /// Those whose node does not answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<String>,
}

/// A stream of the account, and who serves it.
enum Listed {
    /// This node.
    Here(Arc<Entry>),
    /// The node of this name.
    At(String, Arc<ServedStream>),
}

impl Listed {
    fn name(&self) -> &str {
        match self {
            Self::Here(entry) => &entry.config.name,
            Self::At(_, stream) => &stream.name,
        }
    }

    /// What it adds to a list, about.
    fn bytes(&self) -> usize {
        match self {
            Self::Here(entry) => config_bytes(&entry.config),
            Self::At(_, stream) => {
                ASSET_BYTES + stream.subjects.iter().map(String::len).sum::<usize>()
            }
        }
    }
}

/// Gathers lists of streams.
pub(super) struct Lists {
    /// Unknown JSON fields are errors.
    pub(super) strict: bool,
    pub(super) core: Arc<dyn CorePort>,
    pub(super) streams: Arc<StreamTable>,
    pub(super) nodes: Arc<OtherNodes>,
    pub(super) calls: Arc<LogCalls>,
    pub(super) infos: Arc<Infos>,
}

impl Lists {
    /// `STREAM.NAMES`.
    pub(super) async fn names(&self, account: AccountId, body: &[u8]) -> Answer {
        let request: ListRequest = parse_optional(body, self.strict)?;
        let all = self.all(account, &request.subject).await;
        let total = all.len();
        let offset = offset_of(request.offset).min(total);
        let page = all[offset..].iter().take(NAMES_PAGE);
        let streams: Vec<String> = page.map(|listed| listed.name().to_owned()).collect();
        let streams = (!streams.is_empty()).then_some(streams);
        let page = Paged { total, offset, limit: NAMES_PAGE };
        Ok(envelope::ok(ResponseType("stream_names"), &NamesBody { page, streams }))
    }

    /// `STREAM.LIST`.
    pub(super) async fn list(&self, account: AccountId, body: &[u8], share: &mut Share) -> Answer {
        let request: ListRequest = parse_optional(body, self.strict)?;
        let all = self.all(account, &request.subject).await;
        let total = all.len();
        let offset = offset_of(request.offset).min(total);
        let mut bytes = 0;
        let mut page = Vec::new();
        for listed in all[offset..].iter().take(LIST_PAGE) {
            // The rest comes with the next page.
            bytes += listed.bytes();
            if bytes > LIST_BYTES && !page.is_empty() {
                break;
            }
            page.push(listed);
        }
        let mut names: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for listed in &page {
            if let Listed::At(node, stream) = listed {
                names.entry(node.clone()).or_default().push(&stream.name);
            }
        }
        let mut elsewhere = self.nodes.infos(account, names, share).await?;
        let (mut streams, mut missing) = (Vec::new(), Vec::new());
        for listed in page {
            let entry = match listed {
                Listed::Here(entry) => entry,
                Listed::At(_, stream) => {
                    match elsewhere.remove(&stream.name) {
                        Some(info) => streams.push(info),
                        None => missing.push(stream.name.clone()),
                    }
                    continue;
                }
            };
            match self.info(account, entry).await {
                Ok(info) => streams.push(info),
                // Deleted since the registry was read.
                Err(error) if error.err_code == JsError::STREAM_NOT_FOUND.err_code => {}
                Err(error) => return Err(error),
            }
        }
        let page = Paged { total, offset, limit: LIST_PAGE };
        envelope::charged(ResponseType("stream_list"), &ListBody { page, streams, missing }, share)
    }

    /// The infos of these streams here, as another node asks for them.
    pub(super) async fn own_infos(
        &self,
        account: AccountId,
        names: Vec<String>,
    ) -> Vec<StreamInfo> {
        let mut infos = Vec::new();
        for name in names {
            let Ok(entry) = self.streams.entry(account, &name) else { continue };
            if let Ok(info) = self.info(account, &entry).await {
                infos.push(info);
            }
        }
        infos
    }

    async fn info(&self, account: AccountId, entry: &Entry) -> Result<StreamInfo, JsError> {
        let mut info = self.calls.current_info(entry).await?;
        self.infos.complete_listed(account, &mut info);
        Ok(info)
    }

    /// The account's streams at all nodes, by name, those with a subject that overlaps with `filter` if it is given.
    async fn all(&self, account: AccountId, filter: &str) -> Vec<Listed> {
        let own = self.streams.about(account, filter).await;
        let mut all: Vec<Listed> = own.into_iter().map(Listed::Here).collect();
        let Some(served) = self.core.served(account) else { return all };
        // Those that cannot be had are told of as far as others know.
        let _ = self.nodes.until_whole(account).await;
        let mut looks = Looks::default();
        for (node, stream) in served.streams() {
            if looks.is_about(&stream.subjects, filter).await {
                all.push(Listed::At(node, stream));
            }
        }
        all.sort_by(|one, other| one.name().cmp(other.name()));
        all.dedup_by(|one, other| one.name() == other.name());
        all
    }
}
